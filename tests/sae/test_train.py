import dataclasses

import pytest
import torch

from course_lib.sae import SparseAutoencoder, StackedAutoencoder, TrainConfig, metrics, train
from course_lib.sae.train import check_activations

CONFIG = TrainConfig(steps=400, batch_size=64, step_size=3e-3)


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def planted(n=512, d=24, k=40, seed=0):
    """Sums of a few of k fixed directions, far from the origin: what hidden states are taken to be."""
    generator = seeded(seed)
    atoms = torch.nn.functional.normalize(torch.randn(k, d, generator=generator), dim=1)
    active = (torch.rand(n, k, generator=generator) < 0.08).float()
    return active @ atoms + 0.02 * torch.randn(n, d, generator=generator) + 20


def test_the_stacked_autoencoder_stays_below_its_pca_bound_and_learns():
    for seed in range(3):
        x = planted(seed=seed)
        model = StackedAutoencoder(24, (12, 6), beta=1e-3, generator=seeded(seed))
        history = train(model, x, CONFIG, generator=seeded(seed), progress=False)
        with torch.no_grad():
            explained = metrics.explained_variance(x, model(x))
        bound = metrics.pca_bound(x, 6)
        assert 0.6 * bound < explained <= bound
        assert history.parts["reconstruction"][-1] < history.parts["reconstruction"][0]


def test_the_kl_penalty_brings_units_to_their_target():
    def mean_activation(beta):
        model = StackedAutoencoder(24, (6,), beta=beta, rho=0.3, generator=seeded())
        train(model, planted(), CONFIG, generator=seeded(), progress=False)
        return (model.encode(planted()).mean(dim=0) - 0.3).abs().max().item()

    assert mean_activation(1.0) < 0.05 < mean_activation(1e-6)


def test_the_l1_penalty_makes_features_sparse():
    x, found = planted(), {}
    for l1 in (0.0, 0.3):
        model = SparseAutoencoder(24, 96, l1=l1, generator=seeded())
        history = train(model, x, CONFIG, generator=seeded(), progress=False)
        with torch.no_grad():
            found[l1] = (metrics.l0(model.encode(x)), metrics.explained_variance(x, model(x)))
        assert set(history.parts) == {"reconstruction", "l1", "total"}
    assert found[0.3][0] < 0.3 * found[0.0][0]
    assert found[0.3][1] > 0.5


def test_a_supervised_code_knows_the_class():
    generator = seeded()
    labels = torch.randint(0, 3, (300,), generator=generator)
    x = torch.randn(300, 16, generator=generator) + 3 * torch.eye(16)[labels]
    labels[::10] = -1
    model = StackedAutoencoder(16, (8, 2), gamma=1.0, n_outputs=3, generator=generator)
    config = dataclasses.replace(CONFIG, step_size=1e-2)
    train(model, x, config, generator=generator, labels=labels, progress=False)
    right = (model.predict(x).argmax(dim=1) == labels)[labels >= 0]
    assert right.float().mean() > 0.7


def test_same_generator_same_result():
    def run(seed):
        model = SparseAutoencoder(24, l1=0.1, generator=seeded())
        history = train(
            model, planted(), dataclasses.replace(CONFIG, steps=30), generator=seeded(seed), progress=False
        )
        return history, model.decoder_weight

    (first, a), (second, b), (_, c) = run(1), run(1), run(2)
    assert first == second
    assert torch.equal(a, b)
    assert not torch.equal(a, c)


def test_the_curve_covers_every_step():
    config = TrainConfig(steps=25, record_every=10, batch_size=1000)
    model = SparseAutoencoder(24, l1=0.1, generator=seeded())
    history = train(model, planted(n=100), config, generator=seeded(), progress=False)
    assert history.steps == [10, 20, 25]
    assert {len(curve) for curve in history.parts.values()} == {3}


def test_schedules():
    config = TrainConfig(steps=100, step_size=1.0, warm_up=0.1, decay=0.2, sparsity_warm_up=0.5)
    sizes = [config.step_size_at(step) for step in range(100)]
    assert sizes[0] == pytest.approx(0.1)
    assert sizes[9:80] == [1.0] * 71
    assert sizes[99] == pytest.approx(0.05)
    assert [config.sparsity_scale_at(step) for step in (0, 25, 50, 99)] == [0, 0.5, 1, 1]
    flat = TrainConfig(warm_up=0.0, decay=0.0, sparsity_warm_up=0.0)
    assert flat.step_size_at(0) == flat.step_size_at(999) == 1e-3
    assert flat.sparsity_scale_at(0) == 1


def table(n=4, d=24):
    return torch.randn(n, d, generator=seeded())


def with_value(value):
    x = table(8)
    x[3, 5] = value
    return x


@pytest.mark.parametrize(
    ("activations", "message"),
    [
        (torch.empty(0, 24), "has 0 rows"),
        (table(1), "has 1 rows"),
        (with_value(float("nan")), "in 1 of 8 rows, first in row 3"),
        (with_value(float("inf")), "in 1 of 8 rows, first in row 3"),
        (table(4, 23), "width 23"),
        (torch.ones(4, 24), "no variance"),
    ],
)
def test_unusable_activations_are_refused(activations, message):
    with pytest.raises(ValueError, match=message):
        train(SparseAutoencoder(24), activations, CONFIG, generator=seeded(), progress=False)


def test_tables_only():
    for bad in (torch.ones(3), torch.ones(3, 2, dtype=torch.long)):
        with pytest.raises(ValueError, match="floating-point numbers of shape"):
            check_activations(bad)


def test_labels_must_match_and_divergence_is_reported():
    model = StackedAutoencoder(24, gamma=1.0, n_outputs=2)
    with pytest.raises(ValueError, match="labels has 3 rows, activations 4"):
        train(model, table(), CONFIG, generator=seeded(), labels=torch.zeros(3).long(), progress=False)
    model = SparseAutoencoder(24, l1=0.1)
    with pytest.raises(RuntimeError, match="lower step_size"):
        train(model, table(), TrainConfig(step_size=1e30), generator=seeded(), progress=False)


@pytest.mark.parametrize(
    "change",
    [
        {"steps": 0},
        {"batch_size": 0},
        {"step_size": 0.0},
        {"warm_up": 1.5},
        {"decay": -0.1},
        {"record_every": 0},
    ],
)
def test_config_errors_name_the_field(change):
    with pytest.raises(ValueError, match=next(iter(change))):
        TrainConfig(**change)
