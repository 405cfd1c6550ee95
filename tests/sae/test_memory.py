"""Tables that are used again: never twice in a step, always in the next one."""

import torch

from course_lib.sae import TopKSparseAutoencoder, TrainConfig, memory, train


def test_a_step_gets_every_table_once_and_the_next_step_the_same_memory():
    kept, like = memory.Memory(), torch.zeros(1)
    steps = []
    for _ in range(2):
        with kept.reused():
            steps.append([memory.empty(3, 4, like=like).data_ptr() for _ in range(3)])
    assert steps[0] == steps[1]
    assert len(set(steps[0])) == 3
    with kept.reused():
        assert memory.empty(3, 4, like=like).data_ptr() == steps[0][0]
        low = memory.empty(3, 4, like=like, dtype=torch.bfloat16)
        assert (low.dtype, low.shape) == (torch.bfloat16, (3, 4))
        assert memory.empty(2, 4, like=like).data_ptr() not in steps[0]


def test_outside_of_a_step_nothing_is_used_again():
    first, second = (memory.empty(3, like=torch.zeros(1)) for _ in range(2))
    assert first.data_ptr() != second.data_ptr()


def test_what_is_converted_already_is_not_copied():
    x = torch.randn(3, 4, requires_grad=True)
    assert memory.converted(x, torch.float32).data_ptr() == x.data_ptr()
    low = memory.converted(x, torch.bfloat16)
    assert torch.equal(low, x.bfloat16())
    assert not low.requires_grad


def test_training_does_not_depend_on_memory_that_is_used_again(monkeypatch):
    """Fresh memory in every step, full of NaN, gives the same bits."""

    def trained():
        model = TopKSparseAutoencoder(24, 96, k=3, aux_k=8, generator=torch.Generator().manual_seed(0))
        x = torch.randn(300, 24, generator=torch.Generator().manual_seed(1))
        config = TrainConfig(steps=12, batch_size=64, unit_norm_decoder=True, revive_every=4, decay=0)
        train(model, x, config, generator=torch.Generator().manual_seed(2), progress=False)
        return [p.detach().clone() for p in model.parameters()]

    usual = trained()
    monkeypatch.setattr(
        memory.Memory, "empty", lambda self, shape, dtype: torch.full(shape, torch.nan).to(dtype)
    )
    for fresh, reused in zip(trained(), usual, strict=True):
        assert torch.equal(fresh, reused)
