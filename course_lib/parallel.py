"""The processes (ranks) that share a task, as `torchrun` starts them: who they are, and what they tell each other.

In training each rank holds an equal part of the global batch, and gradients are averaged. That gives what
one process would compute for whatever is a mean over rows. What depends on the batch otherwise, such as a
unit's mean activation inside a logarithm, must be made global first: these functions do, and are the identity
outside `synchronised()`.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import torch
import torch.distributed as dist
from jaxtyping import Float, Int
from torch import Tensor, nn

T = TypeVar("T")

_active = False


def local_rank() -> int | None:
    """This process's number on its machine under `torchrun`, which says whose which GPU is; None elsewhere."""
    found = os.environ.get("LOCAL_RANK")
    return None if found is None else int(found)


@contextmanager
def process_group(*, on: torch.device | None = None) -> Iterator[None]:
    """Under `torchrun`, join the other processes while the block runs; elsewhere nothing.

    By gloo, which is enough for the few words that are exchanged where tensors stay on their rank, and, where tensors
    of a GPU `on` which a rank works are exchanged, by NCCL.
    """
    together = local_rank() is not None
    if together:
        gpu = on is not None and on.type == "cuda"
        if gpu:
            torch.cuda.set_device(on)
        dist.init_process_group("cpu:gloo,cuda:nccl" if gpu else "gloo")
    try:
        yield
    finally:
        if together:
            dist.destroy_process_group()


@contextmanager
def synchronised() -> Iterator[None]:
    """Inside, ranks count and statistics are those of the global batch: every rank must make the same calls."""
    global _active
    before, _active = _active, dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1
    try:
        yield
    finally:
        _active = before


def world_size() -> int:
    """Number of ranks that take part, 1 outside `synchronised`."""
    return dist.get_world_size() if _active else 1


def rank() -> int:
    """This process's number among them."""
    return dist.get_rank() if _active else 0


def mean_over_ranks(local: Tensor) -> Tensor:
    """Mean of equally large parts; the gradient passes as if the mean were the local value.

    A function g of the mean m = (1/R) sum_r m_r has the derivative g'(m) / R in m_r. Averaging gradients over
    ranks divides by R once more than it should for a value that all ranks compute alike, so R is left out here.
    """
    return _MeanOverRanks.apply(local) if _active else local


def sum_over_ranks(local: Tensor) -> None:
    """Replace `local` by its sum over ranks, in place."""
    if _active:
        dist.all_reduce(local)


def max_over_ranks(local: Tensor) -> None:
    """Replace `local` by its largest value over ranks, in place."""
    if _active:
        dist.all_reduce(local, op=dist.ReduceOp.MAX)


def any_over_ranks(local: Tensor) -> None:
    """Replace a tensor of truth values by their disjunction over ranks, in place."""
    if _active:
        numbers = local.to(torch.int32)
        dist.all_reduce(numbers, op=dist.ReduceOp.MAX)
        local.copy_(numbers > 0)


def gathered(local: Tensor) -> Tensor:
    """The equally large parts of all ranks, one after the other."""
    if not _active:
        return local
    parts = [torch.empty_like(local) for _ in range(world_size())]
    dist.all_gather(parts, local.contiguous())
    return torch.cat(parts)


def average_gradients(parameters: Iterable[nn.Parameter]) -> None:
    """Replace every gradient by its mean over ranks."""
    if not _active:
        return
    for parameter in parameters:
        if parameter.grad is not None:
            # Communication wants contiguous memory; a decoder's gradient is contiguous transposed.
            gradient = parameter.grad if parameter.grad.is_contiguous() else parameter.grad.T
            dist.all_reduce(gradient)
            gradient.div_(world_size())


def share(tensors: list[Tensor]) -> None:
    """Replace tensors by those of rank 0, in place."""
    if not _active:
        return
    for tensor in tensors:
        whole = tensor.contiguous()
        dist.broadcast(whole, src=0)
        tensor.copy_(whole)


def share_generator(generator: torch.Generator) -> None:
    """Bring a generator to the state that it has on rank 0."""
    if _active:
        device = "cuda" if dist.get_backend() == "nccl" else "cpu"
        state = generator.get_state().to(device)
        dist.broadcast(state, src=0)
        generator.set_state(state.cpu())


def on_first(action: Callable[[], T]) -> T:
    """Act on rank 0 alone; every rank waits for it and gets the result, or the error."""
    found: list = [None, None]
    if rank() == 0:
        try:
            found[0] = action()
        except Exception as error:
            found[1] = error
    if _active:
        dist.broadcast_object_list(found, src=0)
    if found[1] is not None:
        raise found[1]
    return found[0]


def barrier() -> None:
    """Wait for all ranks."""
    if _active:
        dist.barrier()


def largest(
    values: Float[Tensor, "batch features"], k: int
) -> tuple[Int[Tensor, " entries"], Float[Tensor, ""]]:
    """Places of the k largest entries, in the flattened table, and the value of the last of them.

    Over all ranks together they are the (k times their number) largest, and the places those of this rank. No rank
    can hold more of the largest than there are, so each sends that many at most.
    """
    k *= world_size()
    found, places = values.flatten().topk(min(k, values.numel()))
    if not _active:
        return places, found[-1]
    last = gathered(found).topk(k).values[-1]
    return places[found >= last], last


class _MeanOverRanks(torch.autograd.Function):
    @staticmethod
    def forward(ctx, local: Tensor) -> Tensor:
        total = local.detach().clone()
        dist.all_reduce(total)
        return total / dist.get_world_size()

    @staticmethod
    def backward(ctx, gradient: Tensor) -> Tensor:
        return gradient
