"""Processes that can talk to each other, as `torchrun` would start them."""

import os
import traceback

import torch
import torch.distributed as dist


def in_processes(work, directory, n=2):
    """Run `work(rank)` in n forked processes that can talk to each other; return what they return."""
    children = []
    for rank in range(n):
        child = os.fork()
        if child == 0:
            try:
                # The parent's threads are not in its fork: OpenMP would wait for them without end.
                torch.set_num_threads(1)
                dist.init_process_group(
                    "gloo", init_method=f"file://{directory}/meet", rank=rank, world_size=n
                )
                torch.save(work(rank), directory / f"{rank}.pt")
                dist.destroy_process_group()
                os._exit(0)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * n
    return [torch.load(directory / f"{rank}.pt", weights_only=False) for rank in range(n)]
