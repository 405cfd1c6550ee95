import dataclasses

import pytest
import torch

from course_lib.sae import (
    BatchTopKSparseAutoencoder,
    GroupBiasAdaptedAutoencoder,
    JumpReluSparseAutoencoder,
    ReluSparseAutoencoder,
    StackedAutoencoder,
    TopKSparseAutoencoder,
    TrainConfig,
    metrics,
    train,
    train_greedy,
)
from course_lib.sae.greedy import LayerInputs, _fit_decoder
from course_lib.sae.train import DivergedError, _Run, check_activations, compute_dtype
from tests.sae.test_batches import Store

CONFIG = TrainConfig(steps=400, batch_size=64, step_size=3e-3)
SHORT = dataclasses.replace(CONFIG, steps=200, step_size=6e-3)


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def planted(n=512, d=24, k=40, seed=0):
    """Sums of a few of k fixed directions, far from the origin: what hidden states are taken to be."""
    generator = seeded(seed)
    atoms = torch.nn.functional.normalize(torch.randn(k, d, generator=generator), dim=1)
    active = (torch.rand(n, k, generator=generator) < 0.08).float()
    return active @ atoms + 0.02 * torch.randn(n, d, generator=generator) + 20


def test_the_stacked_autoencoder_stays_below_its_pca_bound_and_learns():
    x = planted()
    model = StackedAutoencoder(24, (12, 6), beta=1e-3, generator=seeded())
    history = train(model, x, SHORT, generator=seeded(), progress=False)
    with torch.no_grad():
        explained = metrics.explained_variance(x, model(x))
    bound = metrics.pca_bound(x, 6)
    assert 0.6 * bound < explained <= bound
    assert history.parts["reconstruction"][-1] < history.parts["reconstruction"][0]


def test_the_kl_penalty_brings_units_to_their_target():
    def mean_activation(beta):
        model = StackedAutoencoder(24, (6,), beta=beta, rho=0.3, generator=seeded())
        train(model, planted(), SHORT, generator=seeded(), progress=False)
        return (model.encode(planted()).mean(dim=0) - 0.3).abs().max().item()

    assert mean_activation(1.0) < 0.05 < mean_activation(1e-6)


def test_the_l1_penalty_makes_features_sparse():
    x, found = planted(), {}
    for l1 in (0.0, 0.3):
        model = ReluSparseAutoencoder(24, 96, l1=l1, generator=seeded())
        history = train(model, x, SHORT, generator=seeded(), progress=False)
        with torch.no_grad():
            found[l1] = (metrics.l0(model.encode(x)), metrics.explained_variance(x, model(x)))
        assert set(history.parts) == {"reconstruction", "l1", "total"}
    assert found[0.3][0] < 0.3 * found[0.0][0]
    assert found[0.3][1] > 0.5


def test_aux_wakes_features_that_start_dead():
    """Three quarters of the features start below all others: without the loss they stay silent for good."""
    x, dead = planted(), {}
    for aux_k in (0, 16):
        model = TopKSparseAutoencoder(24, 96, k=3, aux_k=aux_k, dead_after=640, generator=seeded())
        with torch.no_grad():
            model.encoder_bias[24:] = -0.35
        train(model, x, SHORT, generator=seeded(), progress=False)
        dead[aux_k] = (metrics.firing_rates(model.encode(x)) == 0).sum().item()
    assert dead[0] >= 50
    assert dead[16] <= 20


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
        model = ReluSparseAutoencoder(24, l1=0.1, generator=seeded())
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
    model = ReluSparseAutoencoder(24, l1=0.1, generator=seeded())
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
        (Store(with_value(float("nan"))), "in 1 of 8 rows, first in row 3"),
        (Store(table(4, 23)), "width 23"),
        (Store(table(1)), "has 1 rows"),
    ],
)
def test_unusable_activations_are_refused(activations, message):
    with pytest.raises(ValueError, match=message):
        train(ReluSparseAutoencoder(24), activations, CONFIG, generator=seeded(), progress=False)


def test_tables_only():
    for bad in (torch.ones(3), torch.ones(3, 2, dtype=torch.long)):
        with pytest.raises(ValueError, match="floating-point numbers of shape"):
            check_activations(bad)


def test_labels_must_match_and_divergence_is_reported():
    model = StackedAutoencoder(24, gamma=1.0, n_outputs=2)
    with pytest.raises(ValueError, match="labels has 3 rows, activations 4"):
        train(model, table(), CONFIG, generator=seeded(), labels=torch.zeros(3).long(), progress=False)
    # All labels are checked before the first step, not those of each batch.
    one_row = TrainConfig(steps=1, batch_size=1)
    for wrong in range(4):
        labels = torch.where(torch.arange(4) == wrong, 2, 0)
        with pytest.raises(ValueError, match="labels range from 0 to 2; expected 0 to 1 for 2 classes"):
            train(model, table(), one_row, generator=seeded(), labels=labels, progress=False)
    model = ReluSparseAutoencoder(24, l1=0.1)
    # The first step's loss is that of the start; by the second the weights are where one such step leads.
    with pytest.raises(
        DivergedError, match=r"loss is not finite at step 2 of 1000, where the step size is 4e\+28"
    ):
        train(model, table(), TrainConfig(step_size=1e30), generator=seeded(), progress=False)


@pytest.mark.parametrize("record_every", [1, 7, 1000])
def test_dead_features_are_not_revived_where_training_has_diverged(record_every):
    model = TopKSparseAutoencoder(24, 96, k=4, generator=seeded())
    config = TrainConfig(
        steps=40, batch_size=32, step_size=1e30, warm_up=0.0, revive_every=3, record_every=record_every
    )
    with pytest.raises(DivergedError, match=r"is not finite at step \d of 40, where the step size is 1e\+30"):
        train(model, planted(), config, generator=seeded(), progress=False)


@pytest.mark.parametrize(
    "change",
    [
        {"steps": 0},
        {"batch_size": 0},
        {"step_size": 0.0},
        {"betas": (0.9, 1.0)},
        {"betas": (-0.1, 0.9)},
        {"warm_up": 1.5},
        {"decay": -0.1},
        {"record_every": 0},
        {"buffer_rows": 0},
        {"revive_every": -1},
    ],
)
def test_config_errors_name_the_field(change):
    with pytest.raises(ValueError, match=next(iter(change))):
        TrainConfig(**change)


@pytest.mark.parametrize(
    "make",
    [
        lambda g: TopKSparseAutoencoder(24, 96, k=4, generator=g),
        lambda g: BatchTopKSparseAutoencoder(24, 96, k=4, generator=g),
        lambda g: JumpReluSparseAutoencoder(24, 96, l0=0.02, threshold=0.1, bandwidth=0.1, generator=g),
        lambda g: GroupBiasAdaptedAutoencoder(24, 96, groups=3, highest=0.1, lowest=0.03, generator=g),
    ],
    ids=["topk", "batch topk", "jump relu", "gba"],
)
def test_every_kind_explains_planted_states_by_few_features(make):
    model = make(seeded())
    config = CONFIG if model.kind == "gba" else SHORT  # whose thresholds need the steps
    train(model, planted(), config, generator=seeded(), progress=False)
    with torch.no_grad():
        features = model.encode(planted())
        assert metrics.explained_variance(planted(), model(planted())) > 0.7
    assert 1 < metrics.l0(features) < 12


def test_a_store_trains_as_well_as_a_tensor():
    losses = []
    for source in (planted(), Store(planted())):
        model = TopKSparseAutoencoder(24, 96, k=4, generator=seeded())
        config = dataclasses.replace(CONFIG, steps=100, buffer_rows=128)
        losses.append(train(model, source, config, generator=seeded(), progress=False).parts["total"][-1])
    assert losses[1] == pytest.approx(losses[0], rel=0.1)


def test_precision():
    wide, narrow = ReluSparseAutoencoder(128, 256), ReluSparseAutoencoder(64, 256)
    assert compute_dtype("float32", wide) == torch.float32
    assert compute_dtype("bfloat16", narrow) == torch.bfloat16
    assert compute_dtype("auto", narrow) == torch.float32
    assert compute_dtype("auto", wide) in (torch.float32, torch.bfloat16)
    assert compute_dtype("auto", ReluSparseAutoencoder(128, 256).double()) == torch.float64


@pytest.mark.parametrize("kind", ["topk", "relu", "stacked"])
def test_bfloat16_products_train_as_float32_does(kind):
    curves = []
    for precision in ("float32", "bfloat16"):
        model = {
            "topk": lambda: TopKSparseAutoencoder(24, 96, k=4, generator=seeded()),
            "relu": lambda: ReluSparseAutoencoder(24, 96, l1=0.1, generator=seeded()),
            "stacked": lambda: StackedAutoencoder(24, (12, 6), "relu", generator=seeded()),
        }[kind]()
        config = dataclasses.replace(CONFIG, steps=150, precision=precision)
        history = train(model, planted(), config, generator=seeded(), progress=False)
        assert all(p.dtype == torch.float32 for p in model.parameters())
        curves.append(torch.tensor(history.parts["total"]))
    torch.testing.assert_close(curves[1], curves[0], rtol=0.03, atol=0)


def test_the_fused_optimiser_steps_as_the_plain_one():
    """Also through the decoder, whose columns lie together in memory."""
    config = TrainConfig(steps=5, batch_size=512, step_size=1e-2, warm_up=0, decay=0, sparsity_warm_up=0)
    fused = TopKSparseAutoencoder(24, 96, k=4, generator=seeded())
    train(fused, planted().double(), config, generator=seeded(), progress=False)
    plain = TopKSparseAutoencoder(24, 96, k=4, generator=seeded())
    plain.fit_normalisation(planted())
    optimizer = torch.optim.Adam(plain.parameters(), lr=1e-2, foreach=False, fused=False)
    for _ in range(5):
        optimizer.zero_grad()
        plain.loss(planted())["total"].backward()
        optimizer.step()
    for ours, theirs in zip(fused.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)


def test_unit_norm_decoders_stay_so_and_start_with_the_same_function():
    model = ReluSparseAutoencoder(24, 96, l1=0.05, generator=seeded())
    config = dataclasses.replace(CONFIG, steps=1, step_size=1e-12, unit_norm_decoder=True)
    model.fit_normalisation(planted())
    before = model(planted())
    train(model, planted(), config, generator=seeded(), progress=False)
    torch.testing.assert_close(model(planted()), before, rtol=1e-4, atol=1e-4)
    train(
        model,
        planted(),
        dataclasses.replace(config, steps=50, step_size=1e-2),
        generator=seeded(),
        progress=False,
    )
    torch.testing.assert_close(model.decoder_weight.norm(dim=0), torch.ones(96))


@pytest.mark.parametrize("field", [{"unit_norm_decoder": True}, {"revive_every": 5}])
@pytest.mark.parametrize("model", [StackedAutoencoder(24), GroupBiasAdaptedAutoencoder(24)])
def test_what_needs_a_free_decoder_says_so(field, model):
    with pytest.raises(ValueError, match=f"{next(iter(field))} is .* for a {model.kind} autoencoder"):
        train(model, planted(), TrainConfig(**field), generator=seeded(), progress=False)


def test_revived_features_live():
    def dead_after(revive_every):
        model = TopKSparseAutoencoder(24, 96, k=2, generator=seeded())
        with torch.no_grad():
            model.encoder_bias[:60] = -10  # dead from the start
        config = dataclasses.replace(SHORT, revive_every=revive_every)
        history = train(model, planted(), config, generator=seeded(), progress=False)
        return int((metrics.firing_rates(model.encode(planted())) == 0).sum()), history

    untouched, _ = dead_after(0)
    revived, history = dead_after(50)
    assert untouched >= 60
    assert revived < untouched / 2
    assert history.revived[50] >= 60
    assert max(history.revived) < 0.7 * SHORT.steps  # none while the step size decays


def test_curves_for_tensorboard(tmp_path):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    model = ReluSparseAutoencoder(24, l1=0.1, generator=seeded())
    config = TrainConfig(steps=30, record_every=10)
    history = train(
        model, planted(), config, generator=seeded(), progress=False, tensorboard_dir=tmp_path / "board"
    )
    found = accumulator.EventAccumulator(str(tmp_path / "board"))
    found.Reload()
    curve = found.Scalars("loss/total")
    assert [point.step for point in curve] == [10, 20, 30]
    assert [point.value for point in curve] == pytest.approx(history.parts["total"])


def test_layers_are_pretrained_on_what_they_read_and_then_trained_together():
    x = planted()
    model = StackedAutoencoder(24, (18, 12, 6), "relu", generator=seeded())
    short = dataclasses.replace(CONFIG, steps=60)
    layers, joint = train_greedy(model, x, short, pretraining=SHORT, generator=seeded(), progress=False)
    assert len(layers) == 3
    alone = StackedAutoencoder(24, (18, 12, 6), "relu", generator=seeded())
    from_scratch = train(alone, x, short, generator=seeded(), progress=False)
    assert joint.parts["reconstruction"][0] < 0.7 * from_scratch.parts["reconstruction"][0]
    assert joint.parts["reconstruction"][-1] < from_scratch.parts["reconstruction"][-1]


@pytest.mark.parametrize("tied", [False, True])
def test_greedy_training_keeps_the_bound_and_the_penalty(tied):
    x = planted()
    model = StackedAutoencoder(24, (12, 6), beta=1.0, rho=0.3, tied=tied, generator=seeded())
    train_greedy(model, x, SHORT, pretraining=SHORT, generator=seeded(), progress=False)
    with torch.no_grad():
        assert metrics.explained_variance(x, model(x)) <= metrics.pca_bound(x, 6)
        assert (model.encode(x).mean(dim=0) - 0.3).abs().max() < 0.1


def test_the_fitted_decoder_is_the_best_affine_one():
    x = planted().double()
    model = StackedAutoencoder(24, (6,), "relu", generator=seeded()).double()
    model.fit_normalisation(x)
    _fit_decoder(model, Store(x))
    with torch.no_grad():
        code = torch.cat([model.encode(x), torch.ones(len(x), 1, dtype=x.dtype)], dim=1)
        best = code @ torch.linalg.lstsq(code, model.normalise(x), driver="gelsd").solution
        expected = (best - model.normalise(x)).square().sum(dim=1).mean()
    assert model.loss(x)["reconstruction"].item() == pytest.approx(expected.item(), rel=1e-4)


def test_layer_inputs_are_what_layers_read():
    model = StackedAutoencoder(24, (12, 6), generator=seeded())
    model.fit_normalisation(planted())
    inputs = LayerInputs(model, planted(), 1)
    assert len(inputs) == 512
    with torch.no_grad():
        states = model.normalise(planted()[3:5]) * 24**0.5
        torch.testing.assert_close(inputs[3:5], torch.sigmoid(model.encoder[0](states)))
        torch.testing.assert_close(inputs[torch.tensor([3, 4])], inputs[3:5])


def test_a_revived_feature_starts_small_and_without_the_optimisers_memory():
    config = TrainConfig(steps=9, batch_size=16, revive_every=8)
    run = _Run(ReluSparseAutoencoder(24, 32, l1=0.1), table(64), config, generator=seeded(), labels=None)
    run._watch()
    run.step(0)
    model, dead = run.autoencoder, torch.arange(32) == 3
    before = model.encoder_weight.detach().clone()
    model.fired.copy_(~dead)
    assert run._revive(table(64)) == 1
    encoder_norms, decoder_norms = model.encoder_weight.norm(dim=1), model.decoder_weight.norm(dim=0)
    torch.testing.assert_close(encoder_norms[3], model.revived_size * encoder_norms[~dead].mean())
    torch.testing.assert_close(decoder_norms[3], decoder_norms[~dead].mean())
    torch.testing.assert_close(
        model.encoder_weight[3] / encoder_norms[3], model.decoder_weight[:, 3] / decoder_norms[3]
    )
    assert torch.equal(model.encoder_weight[~dead], before[~dead])
    for moments in ("exp_avg", "exp_avg_sq"):
        kept = run.optimizer.state[model.encoder_weight][moments].abs().sum(dim=1)
        assert kept[3] == 0
        assert (kept[~dead] > 0).any()


def test_betas_are_those_of_the_optimiser():
    """With betas of 0 nothing is remembered: every step is the sign of its own gradient."""
    config = TrainConfig(steps=2, step_size=0.01, warm_up=0, decay=0, batch_size=100)
    models = {}
    for betas in ((0.0, 0.0), (0.9, 0.999)):
        model = ReluSparseAutoencoder(24, l1=0.1, generator=seeded())
        before = model.encoder_bias.detach().clone()
        train(model, planted(), dataclasses.replace(config, betas=betas), generator=seeded(1), progress=False)
        models[betas] = (model.encoder_bias.detach() - before) / config.step_size
    steps = models[0.0, 0.0]
    assert torch.isin(steps.round(decimals=3).abs(), torch.tensor([0.0, 1.0, 2.0])).all()
    assert not torch.isin(models[0.9, 0.999].round(decimals=3).abs(), torch.tensor([0.0, 1.0, 2.0])).all()


def test_without_a_generator_rows_are_drawn_with_seed_0():
    rows = torch.randn(50, 8, generator=torch.Generator().manual_seed(5))
    config = TrainConfig(steps=7, batch_size=10, step_size=0.01)
    weights = []
    for given in (
        {},
        {"generator": torch.Generator().manual_seed(0)},
        {"generator": torch.Generator().manual_seed(1)},
    ):
        model = TopKSparseAutoencoder(8, 16, k=2, generator=torch.Generator().manual_seed(2))
        train(model, rows, config, progress=False, **given)
        weights.append(model.encoder_weight.detach())
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])
