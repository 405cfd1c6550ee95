"""Two processes under gloo end where one does, for the same global batches."""

from dataclasses import replace

import pytest
import torch

from course_lib.sae import (
    BatchTopKSparseAutoencoder,
    GroupBiasAdaptedAutoencoder,
    KLSparseAutoencoder,
    ReluSparseAutoencoder,
    StackedAutoencoder,
    TopKSparseAutoencoder,
    TrainConfig,
    train,
)
from tests.ranks import in_processes
from tests.sae.kinds import composed_kinds
from tests.sae.test_batches import Store

CONFIG = TrainConfig(steps=40, batch_size=48, record_every=8, buffer_rows=128)
KINDS = {
    "relu, revived": (
        lambda g: ReluSparseAutoencoder(8, 32, l1=2.0, generator=g),
        replace(CONFIG, revive_every=9, unit_norm_decoder=True, sparsity_warm_up=0, step_size=2e-2),
    ),
    "kl": (lambda g: KLSparseAutoencoder(8, 32, beta=0.1, generator=g), CONFIG),
    "topk": (lambda g: TopKSparseAutoencoder(8, 32, k=2, generator=g), CONFIG),
    "batch topk": (lambda g: BatchTopKSparseAutoencoder(8, 32, k=2, generator=g), CONFIG),
    # The last adaptation and the last checkpoint lie in the middle of gathering statistics.
    "gba": (lambda g: GroupBiasAdaptedAutoencoder(8, 32, every=7, generator=g), CONFIG),
    **composed_kinds(CONFIG),
    "stacked with labels": (
        lambda g: StackedAutoencoder(8, (6, 4), beta=0.1, gamma=0.5, n_outputs=3, generator=g),
        CONFIG,
    ),
}


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def data():
    x = torch.randn(500, 8, generator=seeded(4), dtype=torch.float64) + 2
    labels = torch.randint(-1, 3, (500,), generator=seeded(5))
    return Store(x), labels


def run(kind, directory=None, seed=0):
    make, config = KINDS[kind]
    # In float64, so that what is left of the difference is what the algorithm makes, not rounding.
    model = make(seeded(seed)).double()
    x, labels = data()
    history = train(
        model,
        x,
        config,
        generator=seeded(1 + seed),
        labels=labels if "labels" in kind else None,
        progress=False,
        checkpoint_dir=directory,
        checkpoint_every=10,
    )
    return model.state_dict(), history


@pytest.mark.parametrize("kind", KINDS)
def test_two_processes_give_the_result_of_one(kind, tmp_path):
    expected, history = run(kind)
    # A different seed on the second rank: weights and random numbers are those of the first.
    found = in_processes(lambda rank: run(kind, tmp_path / "checkpoints", seed=rank), tmp_path)
    for state, curves in found:
        for name, value in expected.items():
            torch.testing.assert_close(state[name], value, rtol=1e-6, atol=1e-6, msg=f"{kind}: {name}")
        assert curves.steps == history.steps
        assert curves.revived == history.revived
        for name, curve in history.parts.items():
            assert curves.parts[name] == pytest.approx(curve, rel=1e-6)
    for name, value in found[0][0].items():
        assert torch.equal(value, found[1][0][name])
    if kind == "relu, revived":
        assert sum(history.revived.values()) > 0


def test_a_batch_that_cannot_be_shared_out_is_refused(tmp_path):
    def work(rank):
        x, _ = data()
        with pytest.raises(ValueError, match="batch_size is 33 with 2 processes"):
            train(
                ReluSparseAutoencoder(8).double(),
                x,
                replace(CONFIG, batch_size=33),
                generator=seeded(),
                progress=False,
            )

    in_processes(work, tmp_path)
