"""The fast training losses against the readable ones under autograd."""

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
    StackedAutoencoder,
    TopKSparseAutoencoder,
    kernels,
)

KINDS = {
    "relu": lambda g: ReluSparseAutoencoder(16, 64, l1=0.1, generator=g),
    "kl": lambda g: KLSparseAutoencoder(16, 64, generator=g),
    "topk": lambda g: TopKSparseAutoencoder(16, 64, k=3, generator=g),
    "topk without a tournament": lambda g: TopKSparseAutoencoder(16, 60, k=5, generator=g),
    "batch topk": lambda g: BatchTopKSparseAutoencoder(16, 64, k=5, generator=g),
    "topk, aux": lambda g: TopKSparseAutoencoder(16, 64, k=3, aux_k=8, aux_weight=0.7, generator=g),
    "topk, aux, few dead": lambda g: TopKSparseAutoencoder(16, 64, k=3, aux_k=40, generator=g),
    "batch topk, aux": lambda g: BatchTopKSparseAutoencoder(16, 64, k=5, aux_k=8, generator=g),
    "matryoshka": lambda g: MatryoshkaTopKSparseAutoencoder(16, 64, k=5, generator=g),
    "matryoshka, one prefix": lambda g: MatryoshkaTopKSparseAutoencoder(
        16, 60, k=5, prefixes=(60,), generator=g
    ),
    "matryoshka of a batch, aux": lambda g: MatryoshkaBatchTopKSparseAutoencoder(
        16, 64, k=5, prefixes=(1, 7, 64), aux_k=8, aux_weight=0.7, generator=g
    ),
    "gated": lambda g: GatedSparseAutoencoder(16, 64, l1=0.1, generator=g),
    "crosscoder": lambda g: CrosscoderSparseAutoencoder(16, 64, sites=(6, 10), l1=0.1, generator=g),
    "crosscoder, topk": lambda g: CrosscoderSparseAutoencoder(16, 64, sites=(4, 10, 2), k=4, generator=g),
    "jump": lambda g: JumpReluSparseAutoencoder(16, 64, generator=g),
    "jump tanh": lambda g: JumpReluSparseAutoencoder(16, 64, penalty="tanh", generator=g),
    "gba": lambda g: GroupBiasAdaptedAutoencoder(16, 64, generator=g),
    "bottleneck": lambda g: StackedAutoencoder(16, (4,), "relu", generator=g),
    "deep bottleneck": lambda g: StackedAutoencoder(16, (8, 4), generator=g),
    "stacked": lambda g: StackedAutoencoder(16, (8, 4), beta=0.1, gamma=0.3, n_outputs=3, generator=g),
    "tied": lambda g: StackedAutoencoder(16, (8, 4), tied=True, generator=g),
}


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def built(kind, *, dtype=torch.float32):
    model = KINDS[kind](seeded(1)).to(dtype)
    x = torch.randn(700, 16, generator=seeded(2)).to(dtype) * 3 + 7
    model.fit_normalisation(x)
    with torch.no_grad():  # away from the start, where biases are 0 and both weights are the same
        for parameter in model.parameters():
            parameter += 0.05 * torch.randn(parameter.shape, generator=seeded(3)).to(dtype)
    if getattr(model, "aux_k", 0):
        model.quiet_rows[::3] = model.dead_after
    return model, x, torch.arange(700) % 3


def gradients(model, parts):
    # An upstream gradient that is not 1 for any part.
    weighted = sum((i + 0.5) * value for i, value in enumerate(parts.values()))
    return torch.autograd.grad(weighted, list(model.parameters()))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("dtype", "bound"), [(torch.float32, 2e-6), (torch.float64, 1e-13)])
def test_fast_and_readable_losses_have_the_same_values_and_gradients(kind, dtype, bound):
    model, x, labels = built(kind, dtype=dtype)
    readable = model.loss(x, labels=labels, sparsity_scale=0.7)
    assert all(value > 0 for value in readable.values())
    fast = model.training_loss(x, labels=labels, sparsity_scale=0.7)
    assert fast.keys() == readable.keys()
    for name in readable:
        torch.testing.assert_close(fast[name], readable[name], rtol=bound, atol=0)
    pairs = zip(gradients(model, fast), gradients(model, readable), strict=True)
    for (name, _), (ours, theirs) in zip(model.named_parameters(), pairs, strict=True):
        assert (ours - theirs).abs().max() <= bound * theirs.abs().max(), name
        assert ours.dtype == dtype


def test_a_loss_of_the_code_alone_reaches_the_encoder():
    model, x, _ = built("stacked")
    stack = (
        [(layer.weight, layer.bias) for layer in model.encoder],
        (model.decoder.weight, model.decoder.bias),
    )
    options = {"activation": model.activation, "scale": model.d_model**0.5, "compute_dtype": x.dtype}
    x = model.normalise(x)
    _, code = kernels.stacked_reconstruction(x, *stack, **options)
    weights = list(model.encoder.parameters())
    found = torch.autograd.grad(code.square().sum(), weights)
    expected = torch.autograd.grad(model.layer_inputs(x, len(model.encoder)).square().sum(), weights)
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "tied"])
def test_bfloat16_products_stay_close_and_leave_float32_gradients(kind):
    model, x, labels = built(kind)
    readable = model.loss(x, labels=labels)
    fast = model.training_loss(x, labels=labels, compute_dtype=torch.bfloat16)
    assert fast["total"].item() == pytest.approx(readable["total"].item(), rel=0.02)
    pairs = zip(gradients(model, fast), gradients(model, readable), strict=True)
    for ours, theirs in pairs:
        assert ours.dtype == torch.float32
        assert torch.cosine_similarity(ours.flatten(), theirs.flatten(), dim=0) > 0.98


@pytest.mark.parametrize("kind", ["matryoshka", "crosscoder", "crosscoder, topk"])
def test_fast_gradients_are_those_of_finite_differences(kind):
    model, x, _ = built(kind, dtype=torch.float64)
    names = [name for name, _ in model.named_parameters()]
    model.forward = lambda x: tuple(model.training_loss(x).values())

    def losses(*values):
        return torch.func.functional_call(model, dict(zip(names, values, strict=True)), (x[:40],))

    weights = [p.detach().clone().requires_grad_() for p in model.parameters()]
    assert torch.autograd.gradcheck(losses, weights, fast_mode=True)


def test_gated_gradients_are_those_of_finite_differences():
    """In the encoder's parameters. The decoder is left out of the gate's loss by definition."""
    model, x, _ = built("gated", dtype=torch.float64)
    centred = (model.normalise(x[:40]) - model.decoder_bias).detach()
    fixed = {"decoder_weight": model.decoder_weight.detach(), "decoder_bias": model.decoder_bias.detach()}
    names = ("encoder_weight", "encoder_bias", "log_scale", "magnitude_bias")

    def losses(*values):
        own = dict(zip(names, values, strict=True))
        return kernels.gated(centred, **own, **fixed, compute_dtype=torch.float64)[:3]

    weights = [getattr(model, name).detach().clone().requires_grad_() for name in names]
    assert torch.autograd.gradcheck(losses, weights, fast_mode=True)


def test_sums_in_stretches_are_those_of_the_whole_table(monkeypatch):
    table, weights = torch.randn(9, 150, generator=seeded()), torch.rand(40, generator=seeded(1))
    places, starts = torch.randint(0, 9, (40,), generator=seeded(2)), torch.tensor([0, 0, 13, 40])
    expected = torch.stack(
        [
            (weights[a:b, None] * table[places[a:b]]).sum(dim=0)
            for a, b in ((0, 0), (0, 13), (13, 40), (40, 40))
        ]
    )
    for cache in (10**9, 0):
        monkeypatch.setattr(kernels, "CACHE", cache)
        torch.testing.assert_close(kernels._summed_rows(table, places, starts, weights), expected)


def test_gradients_keep_the_layout_of_their_weights():
    # The fused optimiser walks weights and gradients as they lie in memory.
    model, x, _ = built("topk")
    model.training_loss(x)["total"].backward()
    assert model.decoder_weight.grad.stride() == model.decoder_weight.stride() == (1, 16)


@pytest.mark.parametrize("k", [1, 7, 32])
def test_the_tournament_finds_the_largest(k):
    pre = torch.randn(50, 1024, generator=seeded())
    values, columns = kernels.largest(pre, k)
    assert torch.equal(values.sort(dim=-1).values, pre.topk(k, dim=-1).values.flip(-1))
    assert torch.equal(pre.gather(1, columns), values)
    tied = pre.round()  # many equal entries: the values are those of any choice
    assert torch.equal(kernels.largest(tied, k)[0].sort(dim=-1).values, tied.topk(k).values.flip(-1))
    columns = kernels.largest(tied, k)[1].sort(dim=-1).values
    assert (columns.diff(dim=-1) > 0).all()  # no place twice


def test_products_at_the_entries_of_a_code_each_way(monkeypatch):
    code = kernels.SparseCode(
        torch.rand(12, generator=seeded()),
        torch.randint(0, 9, (12,), generator=seeded()).view(4, 3).sort().values.flatten(),
        torch.arange(4).repeat_interleave(3),
        torch.arange(0, 13, 3),
    )
    left, right = torch.randn(4, 5, generator=seeded(1)), torch.randn(5, 9, generator=seeded(2))
    expected = (left @ right)[code.rows, code.columns]
    torch.testing.assert_close(kernels.entries_of_product(left, right, code), expected)
    with monkeypatch.context() as small:  # stretches of two entries, and a last one of one
        small.setattr(kernels, "CACHE", 5 * 9 * 4 - 1)
        small.setattr(kernels, "STRETCH", 8)
        torch.testing.assert_close(kernels.entries_of_product(left, right, code), expected)
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: False)
    torch.testing.assert_close(kernels.entries_of_product(left, right, code), expected)


def test_counts_are_exact_in_bfloat16():
    features = (torch.rand(3000, 20, generator=seeded()) < torch.linspace(0, 1, 20)).bfloat16() * 0.3
    assert torch.equal(kernels.active_counts(features), (features > 0).sum(dim=0))
