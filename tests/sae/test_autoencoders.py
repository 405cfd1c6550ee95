import pytest
import torch

from course_lib.sae import (
    BatchTopKSparseAutoencoder,
    CrosscoderSparseAutoencoder,
    GatedSparseAutoencoder,
    GroupBiasAdaptedAutoencoder,
    JumpReluSparseAutoencoder,
    KLSparseAutoencoder,
    MatryoshkaBatchTopKSparseAutoencoder,
    MatryoshkaTopKSparseAutoencoder,
    ReluSparseAutoencoder,
    SparseAutoencoder,
    StackedAutoencoder,
    TopKSparseAutoencoder,
)
from course_lib.sae.sparse import adapted_bias, exclusive_site, remove_radial_
from tests.sae.test_io import BUILT


def rows(n=20, d=16, seed=0):
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed)) * 3 + 7


def models():
    generator = torch.Generator().manual_seed(1)
    return [
        StackedAutoencoder(16, beta=0.1, gamma=0.1, n_outputs=3, generator=generator),
        StackedAutoencoder(16, (4,), "relu", generator=generator),
        ReluSparseAutoencoder(16, l1=0.1, generator=generator),
        ReluSparseAutoencoder(16, 5, generator=generator),
        StackedAutoencoder(16, (8, 6, 4), tied=True, generator=generator),
        KLSparseAutoencoder(16, 40, beta=0.1, generator=generator),
        TopKSparseAutoencoder(16, 40, k=3, generator=generator),
        BatchTopKSparseAutoencoder(16, 40, k=3, generator=generator),
        JumpReluSparseAutoencoder(16, 40, generator=generator),
        JumpReluSparseAutoencoder(16, 40, penalty="tanh", generator=generator),
        GroupBiasAdaptedAutoencoder(16, 40, groups=4, generator=generator),
        TopKSparseAutoencoder(16, 40, k=3, aux_k=4, dead_after=10, generator=generator),
        MatryoshkaTopKSparseAutoencoder(16, 40, k=3, generator=generator),
        MatryoshkaBatchTopKSparseAutoencoder(16, 40, k=3, prefixes=(4, 40), generator=generator),
        GatedSparseAutoencoder(16, 40, l1=0.1, generator=generator),
        CrosscoderSparseAutoencoder(16, 40, sites=(10, 6), l1=0.1, generator=generator),
        CrosscoderSparseAutoencoder(16, 40, sites=(10, 6), k=3, generator=generator),
    ]


@pytest.mark.parametrize("index", range(17))
def test_one_interface(index):
    model, x = models()[index], rows()
    model.fit_normalisation(x)
    code = model.encode(x)
    assert code.shape == (20, model.code_width)
    assert (code >= 0).all()
    torch.testing.assert_close(model(x), model.decode(code))
    parts = model.loss(x)
    assert "reconstruction" in parts
    assert all(value.isfinite() for value in parts.values())
    parts["total"].backward()
    assert all(p.grad is not None for name, p in model.named_parameters() if not name.startswith("head"))
    assert type(model)(**model.config()).config() == model.config()


def test_default_widths():
    assert StackedAutoencoder(1024).widths == (512, 128)
    assert StackedAutoencoder(1024).config()["widths"] == [512, 128]
    assert ReluSparseAutoencoder(8).n_features == 32
    sizes = sum(p.numel() for p in StackedAutoencoder(1024, (128,)).parameters())
    assert sizes == 263_296


def test_normalisation_makes_the_reconstruction_loss_the_unexplained_fraction():
    model, x = StackedAutoencoder(16), rows()
    model.fit_normalisation(x)
    z = model.normalise(x)
    torch.testing.assert_close(z.mean(dim=0), torch.zeros(16), atol=1e-5, rtol=0)
    assert z.square().sum(dim=1).mean().item() == pytest.approx(1, rel=1e-5)
    residual = (model(x) - x).square().sum() / (x - x.mean(dim=0)).square().sum()
    assert model.loss(x)["reconstruction"].item() == pytest.approx(residual.item(), rel=1e-4)


def test_the_total_is_the_weighted_sum_of_the_parts():
    model, x = models()[0], rows()
    labels = torch.arange(20) % 3
    parts = model.loss(x, labels=labels, sparsity_scale=0.5)
    expected = parts["reconstruction"] + 0.5 * 0.1 * parts["kl"] + 0.1 * parts["supervised"]
    torch.testing.assert_close(parts["total"], expected)
    assert "supervised" not in model.loss(x)
    logits = model.predict(x)
    torch.testing.assert_close(parts["supervised"], torch.nn.functional.cross_entropy(logits, labels))


def test_squared_error_head():
    model = StackedAutoencoder(16, n_outputs=2, supervised="squared_error", gamma=1.0)
    x, target = rows(), rows(20, 2, seed=3)
    expected = (model.predict(x) - target).square().sum(dim=1).mean()
    torch.testing.assert_close(model.loss(x, labels=target)["supervised"], expected)


def test_a_sparse_autoencoder_starts_near_the_identity_on_average():
    model = ReluSparseAutoencoder(64, 4096, generator=torch.Generator().manual_seed(0))
    x = torch.randn(50, 64, generator=torch.Generator().manual_seed(1))
    assert ((model(x) * x).sum() / x.square().sum()).item() == pytest.approx(1, abs=0.1)


def test_strengths_do_not_depend_on_the_split_between_feature_and_decoder():
    model, x = models()[2], rows()
    features = model.encode(x)
    before = model.strengths(features)
    with torch.no_grad():
        model.decoder_weight *= 10
    torch.testing.assert_close(model.strengths(features / 10), before)


def test_same_generator_same_weights_and_the_global_one_is_left_alone():
    state = torch.get_rng_state()
    a, b = models(), models()
    assert torch.equal(torch.get_rng_state(), state)
    for left, right in zip(a, b, strict=True):
        for p, q in zip(left.parameters(), right.parameters(), strict=True):
            assert torch.equal(p, q)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: StackedAutoencoder(0), "d_model is 0"),
        (lambda: StackedAutoencoder(8, ()), "widths is empty"),
        (lambda: StackedAutoencoder(8, (4, 0)), "widths is 0"),
        (lambda: StackedAutoencoder(8, beta=-1.0), "beta is -1"),
        (lambda: StackedAutoencoder(8, gamma=-1.0), "gamma is -1"),
        (lambda: StackedAutoencoder(8, gamma=1.0), "n_outputs 0"),
        (lambda: StackedAutoencoder(8, rho=1.5), "rho is 1.5"),
        (lambda: StackedAutoencoder(8, (4,), "relu", beta=1.0), "sigmoid"),
        (lambda: ReluSparseAutoencoder(8, 0), "n_features is 0"),
        (lambda: ReluSparseAutoencoder(8, l1=-0.1), "l1 is -0.1"),
        (lambda: KLSparseAutoencoder(8, rho=1.0), "rho is 1.0"),
        (lambda: KLSparseAutoencoder(8, beta=-1.0), "beta is -1"),
        (lambda: TopKSparseAutoencoder(8, 16, k=17), "k is 17; expected 1 to n_features, 16"),
        (lambda: TopKSparseAutoencoder(8, 16, k=0), "k is 0"),
        (lambda: BatchTopKSparseAutoencoder(8, 16, k=17), "k is 17"),
        (
            lambda: TopKSparseAutoencoder(8, 16, k=2, aux_k=17),
            r"aux_k is 17; expected 0 .* to n_features, 16",
        ),
        (lambda: TopKSparseAutoencoder(8, 16, k=2, aux_weight=-1.0), "aux_weight is -1"),
        (lambda: BatchTopKSparseAutoencoder(8, 16, k=2, dead_after=0), "dead_after is 0"),
        *(
            (
                lambda prefixes=prefixes: MatryoshkaTopKSparseAutoencoder(8, 16, k=2, prefixes=prefixes),
                r"prefixes is \(.*expected whole numbers that rise strictly from at least 1 to n_features, 16",
            )
            for prefixes in ((), (0, 16), (4, 4, 16), (8, 4, 16), (4, 8), (4, 17))
        ),
        (lambda: GatedSparseAutoencoder(8, l1=-0.1), "l1 is -0.1"),
        (
            lambda: CrosscoderSparseAutoencoder(8, sites=(8,)),
            r"sites is \(8,\); expected the widths of at least two",
        ),
        (lambda: CrosscoderSparseAutoencoder(8, sites=(3, 4)), "with sum d_model 8"),
        (lambda: CrosscoderSparseAutoencoder(8, sites=(8, 0)), "sites is 0"),
        (lambda: CrosscoderSparseAutoencoder(8, 16, sites=(4, 4), k=17), "k is 17"),
        (lambda: CrosscoderSparseAutoencoder(8, 16, sites=(4, 4), k=2, l1=0.1), "k is 2 and l1 0.1"),
        (lambda: exclusive_site(torch.ones(2, 3) / 2, threshold=0.5), "threshold is 0.5"),
        (lambda: JumpReluSparseAutoencoder(8, l0=-1.0), "l0 is -1"),
        (lambda: JumpReluSparseAutoencoder(8, bandwidth=0.0), "bandwidth is 0"),
        (lambda: GroupBiasAdaptedAutoencoder(8, 16, groups=17), "groups is 17"),
        (
            lambda: GroupBiasAdaptedAutoencoder(8, highest=0.1, lowest=0.2),
            "lowest and highest are 0.2 and 0.1",
        ),
        (lambda: GroupBiasAdaptedAutoencoder(8, gamma=0.0), "gamma is 0"),
        (lambda: GroupBiasAdaptedAutoencoder(8, every=0), "every is 0"),
    ],
)
def test_errors_name_the_argument(build, message):
    with pytest.raises(ValueError, match=message):
        build()


def test_no_head_no_prediction():
    with pytest.raises(RuntimeError, match="n_outputs"):
        StackedAutoencoder(16).predict(rows())


def test_equal_rows_have_no_variance():
    with pytest.raises(ValueError, match="no variance"):
        ReluSparseAutoencoder(4).fit_normalisation(torch.full((5, 4), 1e4))


def test_a_tied_decoder_reads_and_writes_the_same_directions():
    model = StackedAutoencoder(16, (8, 4), "relu", tied=True, generator=torch.Generator().manual_seed(0))
    free = StackedAutoencoder(16, (8, 4), "relu")
    assert sum(p.numel() for p in free.parameters()) - sum(p.numel() for p in model.parameters()) == 4 * 16
    code = torch.rand(5, 4, generator=torch.Generator().manual_seed(1))
    product = model.encoder[1].weight @ model.encoder[0].weight
    torch.testing.assert_close(model.decode(code), code @ product / 4)


def test_topk_keeps_the_k_largest_where_positive():
    model, x = TopKSparseAutoencoder(16, 40, k=3, generator=torch.Generator().manual_seed(0)), rows() / 10
    pre = x @ model.encoder_weight.T
    features = model.encode(x)
    assert ((features > 0).sum(dim=1) <= 3).all()
    assert torch.equal(features.amax(dim=1), pre.amax(dim=1).relu())
    lowest = pre.topk(3, dim=1).values[:, -1:]
    torch.testing.assert_close(features, torch.where((pre >= lowest) & (pre > 0), pre, 0))
    with torch.no_grad():
        model.encoder_bias.fill_(-100)
    assert model.encode(x).sum() == 0


def test_batch_topk_spends_its_features_where_they_are_needed_and_learns_a_threshold():
    model = BatchTopKSparseAutoencoder(16, 40, k=3, generator=torch.Generator().manual_seed(0))
    x = rows(200) - 7
    x[:100] /= 10  # short rows: others take their share
    pre = model._preactivations(x)
    features = model._activate_batch(pre)
    active = (features > 0).sum(dim=1)
    assert active.sum() == 3 * 200
    assert active[:100].sum() < active[100:].sum() / 5
    last = pre.flatten().topk(3 * 200).values[-1]
    torch.testing.assert_close(features, torch.where(pre >= last, pre, 0))
    # Before training a ReLU; after, one threshold for every row, whatever is beside it.
    torch.testing.assert_close(model.encode(x), pre.relu())
    model.training_loss(x)
    first = model.threshold.clone()
    assert first == last
    model.training_loss(2 * x)
    torch.testing.assert_close(model.threshold, first + 0.01 * (2 * first - first))
    torch.testing.assert_close(model.encode(x)[:7], model.encode(x[:7]))


def test_jump_relu_has_the_gradients_of_its_rectangle_kernel():
    model = JumpReluSparseAutoencoder(1, 2, l0=1.0, threshold=0.5, bandwidth=0.2)
    pre = torch.tensor([[0.45, 3.0], [0.55, 0.1], [0.7, 0.45]], requires_grad=True)
    features = model._activate(pre)
    torch.testing.assert_close(features, torch.tensor([[0, 3], [0.55, 0], [0.7, 0]]))
    upstream = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    grad_pre, grad_log = torch.autograd.grad(features, (pre, model.log_threshold), upstream)
    assert grad_pre.tolist() == [[0, 2], [3, 0], [5, 0]]
    # d theta / d log theta = theta; within 0.1 of 0.5 lie 0.45 and 0.55 of the first, 0.45 of the second.
    assert grad_log.tolist() == pytest.approx([-0.5 * 0.5 / 0.2 * (1 + 3), -0.5 * 0.5 / 0.2 * 6])
    weight, count = model._penalties(pre, features)["l0"]
    assert (weight, count.item()) == (1.0, 1.0)
    (grad_log,) = torch.autograd.grad(count, model.log_threshold)
    assert grad_log.tolist() == pytest.approx([-0.5 / 0.2 * 2 / 3, -0.5 / 0.2 / 3])


def test_bias_adaptation_by_hand():
    """Two groups of three: too frequent, dead, as it should be; and the clamps at -1 and 0."""
    adapted = adapted_bias(
        torch.tensor([-0.2, -0.3, -0.1, -0.99, -0.001, 0.0]),
        frequency=torch.tensor([0.5, 0.0, 0.05, 0.5, 0.0, 0.0]),
        target=torch.tensor([0.1, 0.1, 0.1, 0.1, 0.1, 0.1]),
        largest=torch.tensor([2.0, 0.0, 1.0, 8.0, 0.0, 0.0]),
        group=torch.tensor([0, 0, 0, 1, 1, 1]),
        gamma=0.01,
    )
    # Dead units of group 0 rise by gamma times the mean 1.5 of its living; those of group 1 by 0.08, to 0.
    assert adapted.tolist() == pytest.approx([-0.22, -0.285, -0.1, -1.0, 0.0, 0.0])


def test_gba_gathers_what_decides_the_next_adaptation():
    model = GroupBiasAdaptedAutoencoder(16, 40, groups=4, every=3, generator=torch.Generator().manual_seed(0))
    expected = torch.tensor([0.1 * 0.01 ** (group / 3) for group in range(4)]).repeat_interleave(10)
    torch.testing.assert_close(model.target_frequency, expected)
    with torch.no_grad():
        model.encoder_bias -= 0.05
    x = [rows(20, seed=seed) - 7 for seed in range(3)]
    pre = torch.cat([model._preactivations(part) for part in x]) + model.encoder_bias
    for part in x:
        model.training_loss(part)["total"].backward()
    assert torch.equal(model.fired_rows, (pre > 0).sum(dim=0))
    torch.testing.assert_close(model.largest, pre.amax(dim=0).relu())
    assert "encoder_bias" not in dict(model.named_parameters())
    before = model.encoder_bias.clone()
    model.after_step(1)
    assert torch.equal(model.encoder_bias, before)
    model.after_step(2)
    frequent = (pre > 0).double().mean(dim=0) > model.target_frequency
    assert frequent.any()
    assert (model.encoder_bias[frequent] < before[frequent]).all()
    assert model.rows_seen == 0
    assert model.fired_rows.sum() == model.largest.sum() == 0


def test_gba_directions_stay_on_the_sphere():
    model = GroupBiasAdaptedAutoencoder(16, 40, groups=4, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(model.encoder_weight.norm(dim=1), torch.ones(40))
    model.training_loss(rows() - 7)["total"].backward()
    model.before_step()
    radial = (model.encoder_weight.grad * model.encoder_weight).sum(dim=1)
    assert radial.abs().max() <= 1e-5 * model.encoder_weight.grad.norm(dim=1).max()
    with torch.no_grad():
        model.encoder_weight -= 0.1 * model.encoder_weight.grad
    model.after_step(0)
    torch.testing.assert_close(model.encoder_weight.norm(dim=1), torch.ones(40))
    torch.testing.assert_close(model.decoder_weight.norm(dim=0), model.amplitude.abs())


def test_remove_radial_leaves_the_tangent():
    gradient, row = torch.tensor([[3.0, 4.0]]), torch.tensor([[1.0, 0.0]])
    remove_radial_(gradient, row)
    assert gradient.tolist() == [[0, 4]]


def test_restarted_features_point_at_what_is_missing():
    model = ReluSparseAutoencoder(4, 8, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():  # nothing is written in the last two dimensions
        model.decoder_weight[2:] = 0
    x = torch.zeros(50, 4)
    x[:, 3] = 5.0
    model.restart(torch.tensor([2, 6]), x, generator=torch.Generator().manual_seed(1))
    direction = torch.tensor([0.0, 0.0, 0.0, 1.0])
    for feature in (2, 6):
        written = model.decoder_weight[:, feature] / model.decoder_weight[:, feature].norm()
        assert (written @ direction).item() > 0.5
        read = model.encoder_weight[feature] / model.encoder_weight[feature].norm()
        torch.testing.assert_close(read, written)
    others = [0, 1, 3, 4, 5, 7]
    torch.testing.assert_close(
        model.decoder_weight[:, [2, 6]].norm(dim=0),
        model.decoder_weight[:, others].norm(dim=0).mean().expand(2),
    )


def test_aux_wakes_what_is_dead_and_nothing_else():
    model, x = TopKSparseAutoencoder(16, 40, k=3, aux_k=4, dead_after=40, generator=rng()), rows() - 7
    with torch.no_grad():
        model.encoder_bias[:10] = -100  # never among the largest
    assert model.training_loss(x)["aux"] == model.training_loss(x)["aux"] == 0
    quiet = model.quiet_rows
    assert (quiet[:10] == 40).all()
    assert (quiet[model.encode(x).amax(dim=0) > 0] == 0).all()
    with torch.no_grad():
        model.encoder_bias[:10] = -0.5
    dead = model.dead.clone()
    assert dead[:10].all()
    parts = model.loss(x)
    by_weight = torch.autograd.grad(parts["aux"], model.decoder_weight)[0].norm(dim=0)
    assert (by_weight[~dead] == 0).all()
    assert (by_weight[dead] > 0).any()
    # By its equation, row by row.
    pre = model._preactivations(x).masked_fill(~dead, 0).relu()
    keep = pre >= pre.topk(4, dim=1).values[:, -1:]
    error = (x - model(x)).detach() - (pre * keep) @ model.decoder_weight.T
    torch.testing.assert_close(parts["aux"], error.square().sum(dim=1).mean())
    torch.testing.assert_close(parts["total"], parts["reconstruction"] + parts["aux"] / 32)


def test_no_aux_leaves_configuration_and_weights_as_they_were():
    model = TopKSparseAutoencoder(16, 40, k=3)
    assert model.config() == {"d_model": 16, "n_features": 40, "k": 3}
    assert "quiet_rows" not in model.state_dict()


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


def test_every_prefix_of_a_matryoshka_reconstructs():
    model, x = MatryoshkaTopKSparseAutoencoder(16, 64, k=5, generator=rng()), rows() - 7
    assert model.prefixes == (4, 8, 16, 32, 64)
    code = model.encode(x)
    expected = []
    for m in model.prefixes:
        only = torch.where(torch.arange(64) < m, code, 0)
        expected.append((model.decode(only) - x).square().sum(dim=1).mean())
    parts = model.loss(x)
    torch.testing.assert_close(parts["reconstruction"], expected[-1])
    torch.testing.assert_close(parts["nested"], sum(expected) / 5)
    assert parts["total"] == parts["nested"]


def test_one_prefix_is_the_plain_kind():
    x = rows() - 7
    plain = TopKSparseAutoencoder(16, 40, k=3, generator=rng())
    nested = MatryoshkaTopKSparseAutoencoder(16, 40, k=3, prefixes=(40,), generator=rng())
    torch.testing.assert_close(nested.loss(x)["total"], plain.loss(x)["total"])


def test_a_gate_decides_and_a_magnitude_is_passed_on():
    model = GatedSparseAutoencoder(2, 3, l1=0.5)
    with torch.no_grad():
        model.encoder_weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]))
        model.decoder_weight.copy_(torch.tensor([[1.0, 0.0, 0.0], [0.0, 2.0, 0.0]]))
        model.encoder_bias.copy_(torch.tensor([-0.5, -3.0, 1.0]))
        model.log_scale.copy_(torch.tensor([2.0, 1.0, 1.0]).log())
        model.magnitude_bias.copy_(torch.tensor([0.25, 5.0, -9.0]))
    x = torch.tensor([[1.0, 2.0]])
    # gates 0.5, -1, 4; magnitudes 2.25, 7, -6: closed, and below 0
    assert model.encode(x).tolist() == [[2.25, 0, 0]]
    parts = {name: value.item() for name, value in model.loss(x, sparsity_scale=0.5).items()}
    assert parts == pytest.approx(
        {"reconstruction": 1.25**2 + 4, "l1": 0.5, "gate": 0.25 + 4, "total": 1.5625 + 4 + 0.125 + 4.25}
    )


def test_the_gates_loss_trains_the_encoder_alone():
    model, x = models()[14], rows() - 7
    by_decoder, by_bias, by_gate = torch.autograd.grad(
        model.loss(x)["gate"],
        (model.decoder_weight, model.decoder_bias, model.encoder_bias),
        allow_unused=True,
    )
    assert by_decoder is None
    # Centring is part of the encoder.
    torch.testing.assert_close(by_bias, -by_gate @ model.encoder_weight)


def test_a_crosscoder_is_a_sum_of_encoders_and_a_decoder_a_site():
    one, other = rows(50, 10) - 7, 100 * rows(50, 6, seed=3)
    source = torch.cat([one, other], dim=1)
    model = CrosscoderSparseAutoencoder(16, 40, sites=(10, 6), l1=0.1, generator=rng())
    model.fit_normalisation(source)
    z = model.normalise(source)
    # Each site has half of the variance, however large its states are.
    torch.testing.assert_close(
        torch.stack([part.square().sum(dim=1).mean() for part in z.split((10, 6), 1)]), torch.full((2,), 0.5)
    )
    code = model.encode(source)
    read = sum(
        part @ weight.T
        for part, weight in zip(z.split((10, 6), 1), model.encoder_weight.split((10, 6), 1), strict=True)
    )
    torch.testing.assert_close(code, (read + model.encoder_bias).relu())
    norms = model.site_norms()
    torch.testing.assert_close(
        norms, torch.stack([model.decoder_weight[:10].norm(dim=0), model.decoder_weight[10:].norm(dim=0)])
    )
    torch.testing.assert_close(model.loss(source)["l1"], (code * norms.sum(dim=0)).sum(dim=1).mean())
    assert code.shape == (50, 40)


def test_shares_and_what_they_are_called():
    model = CrosscoderSparseAutoencoder(4, 4, sites=(2, 2), k=1)
    with torch.no_grad():
        model.decoder_weight.copy_(
            torch.tensor([[3.0, 0, 1, 0], [4.0, 0, 0, 0], [0.0, 9, 1, 0], [0.0, 0, 0, 0]])
        )
    shares = model.shares()
    assert shares.tolist() == [[1, 0, 0.5, 0.5], [0, 1, 0.5, 0.5]]
    assert exclusive_site(shares, threshold=0.9).tolist() == [0, 1, -1, -1]
    assert exclusive_site(torch.tensor([[0.7, 0.2], [0.3, 0.8]]), threshold=0.75).tolist() == [-1, 1]


def test_topk_of_a_crosscoder_weighs_by_what_is_written():
    model = CrosscoderSparseAutoencoder(2, 2, sites=(1, 1), k=1)
    with torch.no_grad():
        model.encoder_weight.copy_(torch.eye(2))
        model.decoder_weight.copy_(torch.tensor([[1.0, 3.0], [1.0, 0.0]]))
    # 1.4 at norms 1 + 1 against 1 at norms 3 + 0; the length of both together, 1.41 against 3, would say the same,
    # 1.6 it would not.
    assert model.encode(torch.tensor([[1.4, 1.0], [1.6, 1.0], [-1.0, -1.0]])).tolist() == [
        [0, 1],
        [pytest.approx(1.6), 0],
        [0, 0],
    ]


def test_a_site_without_variance_is_named():
    model = CrosscoderSparseAutoencoder(16, 40, sites=(10, 6), k=3)
    with pytest.raises(ValueError, match="no variance in columns 10 to 15"):
        model.fit_normalisation(torch.cat([rows(20, 10), torch.ones(20, 6)], dim=1))
    with pytest.raises(RuntimeError, match="one by one"):
        model.set_normalisation(torch.zeros(16), torch.ones(()))


@pytest.mark.parametrize("model", models(), ids=lambda model: model.kind)
def test_a_row_with_a_nan_is_never_a_code_of_zeros(model):
    if isinstance(model, BatchTopKSparseAutoencoder):
        model.threshold.fill_(0.5)
    x = rows()
    clean = model.encode(x)
    for broken in (slice(3, 4), slice(None)):
        bad = x.clone()
        bad[7, broken] = float("nan")
        code = model.encode(bad)
        assert code[7].isnan().any()
        assert model(bad)[7].isnan().all()
        others = torch.arange(len(x)) != 7
        torch.testing.assert_close(code[others], clean[others], rtol=0, atol=0)


@pytest.mark.parametrize("model", models(), ids=lambda model: model.kind)
def test_a_batch_without_rows_has_an_empty_code_and_no_loss(model):
    empty = rows()[:0]
    assert model.encode(empty).shape == (0, model.code_width)
    assert model(empty).shape == (0, 16)
    for loss in (model.loss, model.training_loss, model.training_forward):
        with pytest.raises(ValueError, match="batch has no rows; expected at least 1"):
            loss(empty)


@pytest.mark.parametrize("name", BUILT)
def test_rows_may_have_any_leading_dimensions(name):
    model = BUILT[name]()
    model.fit_normalisation(rows_of(9))
    x = rows_of(6).to(model.input_mean)
    code, back = model.encode(x), model(x)
    for shape in ((2, 3), (6, 1), (1, 2, 3)):
        torch.testing.assert_close(model.encode(x.view(*shape, 16)), code.view(*shape, -1))
        torch.testing.assert_close(model.decode(code.view(*shape, -1)), back.view(*shape, 16))
        torch.testing.assert_close(model(x.view(*shape, 16)), back.view(*shape, 16))
    torch.testing.assert_close(model.encode(x[0]), code[0])
    assert model(x.view(2, 3, 16)[:, :0]).shape == (2, 0, 16)
    with pytest.raises(ValueError, match=r"x has shape \(2, 24, 2\): states have width 2"):
        model(x.reshape(2, 24, 2))


@pytest.mark.parametrize("name", BUILT)
def test_weights_for_raw_states_give_the_same_pre_activations_and_reconstructions(name):
    model = BUILT[name]()
    if not isinstance(model, SparseAutoencoder):
        return
    model.fit_normalisation(rows_of(9))
    with torch.no_grad():  # nothing as it was made
        for value in (*model.parameters(), model.encoder_bias):
            value += 0.1 * torch.randn(value.shape, generator=torch.Generator().manual_seed(3)).to(value)
        x = rows_of(6).to(model.input_mean)
        assert (model.W_enc.shape, model.W_dec.shape) == ((16, model.n_features), (model.n_features, 16))
        pre = model._preactivations(model.normalise(x))
        tolerance = {"rtol": 1e-4, "atol": 1e-4}
        torch.testing.assert_close((x - model.b_dec) @ model.W_enc + model.b_enc, pre, **tolerance)
        code = model.encode(x)
        torch.testing.assert_close(code @ model.W_dec + model.b_dec, model.decode(code), **tolerance)


def rows_of(n):
    return torch.randn(n, 16, generator=torch.Generator().manual_seed(n)) * 2 + 5
