"""What ranks tell each other; one process alone hears itself."""

import torch

from course_lib import parallel
from tests.ranks import in_processes


def test_statistics_over_two_processes(tmp_path):
    whole = torch.randn(6, 5, generator=torch.Generator().manual_seed(0))

    def work(rank):
        part = whole[3 * rank : 3 * rank + 3].clone().requires_grad_()
        with parallel.synchronised():
            mean = parallel.mean_over_ranks(part.mean(dim=0))
            mean.log().nan_to_num().sum().backward()
            places, last = parallel.largest(part.detach(), 4)
            rows = parallel.gathered(part.detach())
        return mean.detach(), part.grad, last, rows, part.detach().flatten()[places]

    first, second = in_processes(work, tmp_path)
    assert torch.equal(first[0], second[0])
    torch.testing.assert_close(first[0], whole.mean(dim=0))
    # Averaged over ranks, the gradients are those of the function of the whole mean.
    all_rows = whole.clone().requires_grad_()
    all_rows.mean(dim=0).log().nan_to_num().sum().backward()
    torch.testing.assert_close(torch.cat([first[1], second[1]]) / 2, all_rows.grad)
    assert first[2] == second[2] == whole.flatten().topk(8).values[-1]
    assert torch.equal(first[3], whole)
    found = torch.cat([first[4], second[4]]).sort(descending=True).values
    assert torch.equal(found, whole.flatten().topk(8).values)


def test_the_first_rank_acts_for_all_and_its_error_reaches_all(tmp_path):
    acted = []

    def act():
        acted.append(parallel.rank())
        return f"done by {parallel.rank()}"

    def fail():
        raise FileExistsError("in the way")

    def work(rank):
        with parallel.synchronised():
            said = parallel.on_first(act)
            try:
                parallel.on_first(fail)
            except FileExistsError as error:
                said += f", {error}"
            parallel.barrier()
        return said, acted, parallel.world_size()

    found = in_processes(work, tmp_path)
    assert found == [("done by 0, in the way", [0], 1), ("done by 0, in the way", [], 1)]
    assert work(0) == found[0]  # one process alone


def test_without_torchrun_there_is_no_group(monkeypatch):
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    with parallel.process_group():
        assert not torch.distributed.is_initialized()
    assert parallel.local_rank() is None
    monkeypatch.setenv("LOCAL_RANK", "3")
    assert parallel.local_rank() == 3
