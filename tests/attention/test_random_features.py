"""Random features: expectations, variances, and attention that agrees with its definition."""

import importlib.util
import math
import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import scaled_dot_product_attention

from course_lib.attention import random_features
from course_lib.attention.random_features import (
    PositiveFeatures,
    TrigonometricFeatures,
    attention_error,
    draw_frequencies,
    gaussian_kernel,
    orthogonal_covariance,
    positive_features,
    random_feature_attention,
    relative_variance,
    trigonometric_features,
)

SEEDS = st.integers(0, 2**31 - 1)
KINDS = {"trigonometric": trigonometric_features, "positive": positive_features}
every_kind = pytest.mark.parametrize("kind", KINDS)


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def normal(*shape: int, generator: torch.Generator, dtype=torch.float64) -> torch.Tensor:
    return torch.randn(*shape, generator=generator, dtype=dtype)


def draw(kind: str, head_dim: int, m: int, *, seed: int = 0, **options):
    return KINDS[kind](head_dim, m, generator=rng(seed), dtype=torch.float64, **options)


def by_definition(q, k, v, *, features, causal=False, attn_mask=None):
    """All similarities of all pairs; trigonometric features stand for the kernel, so the key's norm is put back."""
    similarities = features(q) @ features(k).mT
    if isinstance(features, TrigonometricFeatures):
        sigma = q.shape[-1] ** 0.25 if features.sigma is None else features.sigma
        similarities = similarities * (k.square().sum(-1) / (2 * sigma**2)).exp()[..., None, :]
    if causal:
        similarities = similarities.tril()
    if attn_mask is not None:
        similarities = similarities * attn_mask
    return similarities @ v / similarities.sum(-1, keepdim=True)


# Worked examples


def test_softmax_is_the_kernel_between_two_norms_for_one_width_only():
    q = torch.tensor([[1.0] * 4 + [0.0] * 12], dtype=torch.float64)
    k = torch.tensor([[1.2041838] * 4 + [0.5] * 12], dtype=torch.float64)  # q.k = 4.8167
    product = lambda sigma: float(  # noqa: E731
        ((q.square().sum() + k.square().sum()) / (2 * sigma**2)).exp() * gaussian_kernel(q, k, sigma=sigma)
    )
    softmax = float((q @ k.mT / math.sqrt(16)).exp())
    assert softmax == pytest.approx(3.334, abs=5e-4)
    assert product(2) == pytest.approx(softmax, rel=1e-12)
    assert product(1) == pytest.approx(123.6, abs=0.1)


def test_the_kernel_and_the_law_of_the_notes_by_hand():
    # sigma = 2, |q - k|^2 = 4.
    q, k = torch.zeros(1, 3, dtype=torch.float64), torch.tensor([[2.0, 0, 0]], dtype=torch.float64)
    assert float(gaussian_kernel(q, k, sigma=2)) == pytest.approx(0.6065306597126334, abs=1e-15)
    # Frequencies N(0, sigma^2 I) belong to the width 1 / sigma: e^-8.
    assert float(gaussian_kernel(q, k, sigma=0.5)) == pytest.approx(0.00033546262790251185, abs=1e-18)
    w = normal(400_000, 3, generator=rng(1))
    for law, expected in ((w / 2, 0.6065306597126334), (2 * w, 0.00033546262790251185)):
        values = (law @ (q - k)[0]).cos()
        assert float((values.mean() - expected) / values.std() * math.sqrt(len(w))) == pytest.approx(0, abs=5)
        found = (TrigonometricFeatures(law, 1)(q) @ TrigonometricFeatures(law, 1)(k).mT).squeeze()
        assert float(found) == pytest.approx(float(values.mean()), abs=1e-12)


def test_the_square_of_xy_minus_1_is_no_kernel():
    x = torch.tensor([0.0, 1.0], dtype=torch.float64)
    values = torch.linalg.eigvalsh((x[:, None] * x - 1).square())
    assert values.tolist() == pytest.approx([(1 - math.sqrt(5)) / 2, (1 + math.sqrt(5)) / 2], abs=1e-14)


def test_eight_frequencies_at_distance_three_are_negative_in_about_48_percent_of_draws():
    angles = 3 * normal(200_000, 8, generator=rng(2))
    assert float((angles.cos().mean(1) < 0).double().mean()) == pytest.approx(0.48, abs=0.01)


def test_one_feature_by_hand():
    w = torch.tensor([[0.5, -1.0]], dtype=torch.float64)
    x = torch.tensor([[2.0, 4.0]], dtype=torch.float64)
    trigonometric = TrigonometricFeatures(w, 2)(x)[0]
    assert trigonometric.tolist() == pytest.approx([math.sin(-1.5), math.cos(-1.5)], abs=1e-15)
    assert float(PositiveFeatures(w, 2)(x)) == pytest.approx(math.exp(-1.5 - 20 / 8), abs=1e-15)
    # The width of softmax attention is the default: 2^(1/4).
    assert float(PositiveFeatures(w)(x)) == pytest.approx(math.exp(-3 / 2**0.25 - 20 / (2 * math.sqrt(2))))


# Kernel and features


@given(SEEDS, st.floats(0.3, 3))
def test_the_kernel_is_positive_semidefinite_and_one_on_the_diagonal(seed, sigma):
    x = normal(6, 3, generator=rng(seed))
    kernel = gaussian_kernel(x, x, sigma=sigma)
    assert float((kernel.diagonal() - 1).abs().max()) == 0
    assert float(torch.linalg.eigvalsh(kernel).min()) >= -1e-13
    assert bool((kernel > 0).all())


@given(SEEDS)
def test_softmax_weights_are_kernel_weights_times_key_norms(seed):
    generator = rng(seed)
    q, k = normal(3, 9, generator=generator), normal(5, 9, generator=generator)
    weights = gaussian_kernel(q, k) * (k.square().sum(-1) / (2 * math.sqrt(9))).exp()
    expected = (q @ k.mT / 3).softmax(-1)
    torch.testing.assert_close(weights / weights.sum(-1, keepdim=True), expected, rtol=1e-10, atol=1e-12)


@given(SEEDS, st.integers(1, 6), st.integers(1, 9))
def test_features_depend_on_the_differences_or_have_one_sign(seed, head_dim, m):
    generator = rng(seed)
    q, k, shift = (normal(head_dim, generator=generator)[None] for _ in range(3))
    trigonometric, positive = (draw(kind, head_dim, m, seed=seed) for kind in KINDS)
    estimate = lambda a, b: float(trigonometric(a) @ trigonometric(b).mT)  # noqa: E731
    assert estimate(q, k) == pytest.approx(estimate(q + shift, k + shift), abs=1e-9)
    assert estimate(q, q) == pytest.approx(1, abs=1e-12)
    assert abs(estimate(q, k)) <= 1 + 1e-12
    assert bool((positive(q) > 0).all())
    # Opposite vectors have the same product for every frequency: no variance at all.
    assert float(positive(q) @ positive(-q).mT) == pytest.approx(
        math.exp(-float(q.square().sum()) / math.sqrt(head_dim)), rel=1e-9
    )


@every_kind
@pytest.mark.parametrize("orthogonal", [False, True])
def test_estimates_are_unbiased(kind, orthogonal):
    generator = rng(3)
    q, k = (0.7 * normal(3, 4, generator=generator) for _ in range(2))
    exact = (q @ k.mT / 2).exp() if kind == "positive" else gaussian_kernel(q, k)
    draws = []
    for _ in range(200):
        features = KINDS[kind](4, 99, orthogonal=orthogonal, generator=generator, dtype=torch.float64)
        draws.append(features(q) @ features(k).mT)
    draws = torch.stack(draws)
    standard_error = draws.std(0) / math.sqrt(len(draws))
    assert float(((draws.mean(0) - exact) / standard_error).abs().max()) < 6


# Frequencies


@given(SEEDS, st.integers(1, 6), st.integers(1, 15))
def test_orthogonal_blocks(seed, head_dim, m):
    w = draw_frequencies(head_dim, m, orthogonal=True, generator=rng(seed), dtype=torch.float64)
    assert w.shape == (m, head_dim)
    for block in w.split(head_dim):
        products = block @ block.mT
        off_diagonal = products - products.diagonal().diag()
        assert float(off_diagonal.abs().max()) <= 1e-12 * float(products.diagonal().max())


@pytest.mark.parametrize("orthogonal", [False, True])
def test_every_row_is_normal(orthogonal):
    generator = rng(4)
    # The last row of every block, where a QR routine's choice of signs would show.
    w = draw_frequencies(3, 60_000, orthogonal=orthogonal, generator=generator, dtype=torch.float64)[2::3]
    bound = 6 / math.sqrt(len(w))
    assert float(w.mean(0).abs().max()) < bound
    assert float((w.mT @ w / len(w) - torch.eye(3)).abs().max()) < 2 * bound
    assert float(((w**4).mean(0) - 3).abs().max()) < 10 * bound
    # Rotations of both kinds occur in every octant: the signs of the QR routine do not show.
    assert float((w.sign().mean(0)).abs().max()) < bound
    assert float((w[:, 0] * w[:, 1] * w[:, 2]).mean().abs()) < bound


def test_the_generator_decides():
    for orthogonal in (False, True):
        a, b, c = (draw_frequencies(4, 6, orthogonal=orthogonal, generator=rng(s)) for s in (1, 1, 2))
        assert torch.equal(a, b)
        assert not torch.equal(a, c)
        assert a.dtype == torch.float32
        assert draw_frequencies(4, 6, orthogonal=orthogonal, device="meta").device.type == "meta"


# Variances


@every_kind
@given(seed=SEEDS, width=st.floats(0.5, 2))
def test_variances_are_second_moments_of_normal_variables(kind, seed, width):
    # One number decides: w.s is N(0, |s|^2), so the moments are integrals over one normal variable.
    generator = rng(seed)
    q, k = (0.8 * normal(2, 3, generator=generator) for _ in range(2))
    z = torch.linspace(-14, 14, 40_001, dtype=torch.float64)
    density = torch.exp(-(z**2) / 2) / math.sqrt(2 * math.pi) * (z[1] - z[0])
    found = relative_variance(q, k, kind=kind, sigma=width)
    for i in range(2):
        for j in range(2):
            s = float((q[i] + k[j] if kind == "positive" else q[i] - k[j]).norm()) / width
            if s > 4:  # then the integral needs more than 14 standard deviations
                continue
            values = (s * z - s**2 / 2).exp() if kind == "positive" else (s * z).cos() * math.exp(s**2 / 2)
            assert float(density @ values) == pytest.approx(1, rel=1e-6)
            expected = float(density @ (values - 1).square())
            assert float(found[i, j]) == pytest.approx(expected, rel=1e-6, abs=1e-9)


@given(st.floats(0, 3))
def test_the_variance_of_a_pair_in_terms_of_the_kernel(distance):
    q, k = torch.zeros(1, 1, dtype=torch.float64), torch.tensor([[distance]], dtype=torch.float64)
    kernel = float(gaussian_kernel(q, k, sigma=1))
    expected = (1 - kernel**2) ** 2 / 2
    found = float(relative_variance(q, k, kind="trigonometric", sigma=1)) * kernel**2
    assert found == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("head_dim", [1, 2, 5, 64])
def test_frequencies_of_one_block_are_negatively_correlated(head_dim):
    lengths = torch.tensor([0.0, 0.5, 2.0, 9.0, 60.0], dtype=torch.float64)
    found = orthogonal_covariance(lengths, head_dim=head_dim)
    assert float(found[0]) == 0
    assert bool((found[1:] < 0).all())
    assert bool((found >= -1).all())
    # By the definition of the confluent series, term by term in exact order.
    for x, value in zip(lengths.tolist(), found.tolist(), strict=True):
        total = term = 1.0
        for j in range(400):
            term *= x / (j + 1) * (head_dim + j) / (head_dim + 2 * j)
            total += term
        assert value == pytest.approx(math.exp(-x) * total - 1, abs=1e-10)


def test_the_covariance_of_a_block_as_measured():
    # In two dimensions the second row of a block is the first one's direction turned by 90 degrees.
    n, squared = 400_000, 1.2
    generator = rng(5)
    w = normal(n, 2, generator=generator)
    length = normal(n, 2, generator=generator).norm(dim=1)
    other = torch.stack([-w[:, 1], w[:, 0]], 1) / w.norm(dim=1, keepdim=True) * length[:, None]
    r, t = ((x[:, 0] * math.sqrt(squared) - squared / 2).exp() - 1 for x in (w, other))
    expected = float(orthogonal_covariance(torch.tensor(squared, dtype=torch.float64), head_dim=2))
    assert float(((r * t).mean() - expected) / (r * t).std() * math.sqrt(n)) == pytest.approx(0, abs=5)


@every_kind
def test_the_predicted_error_of_attention_is_the_measured_one(kind):
    generator = rng(6)
    q, k, v = (
        normal(4, 8, generator=generator),
        normal(12, 8, generator=generator),
        normal(12, 3, generator=generator),
    )
    q, k = 0.4 * q, 0.4 * k
    exact = scaled_dot_product_attention(q, k, v)
    squares = []
    for _ in range(100):
        features = KINDS[kind](8, 4000, generator=generator, dtype=torch.float64)
        squares.append((random_feature_attention(q, k, v, features=features) - exact).square().sum(-1))
    measured = torch.stack(squares).mean(0).sqrt()
    predicted = attention_error(q, k, v, kind=kind, n_frequencies=4000)
    assert float((measured / predicted - 1).abs().max()) < 0.25
    four_times = attention_error(q, k, v, kind=kind, n_frequencies=16_000)
    torch.testing.assert_close(predicted, 2 * four_times)


# Attention


@every_kind
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("lead", [(), (2,), (2, 3), (2, 1, 3)])
@pytest.mark.parametrize("masked", [False, True])
def test_attention_is_its_definition(kind, causal, lead, masked):
    generator = rng(7)
    keys = 9 if causal else 11
    q, k, v = (normal(*lead, n, d, generator=generator) for n, d in ((9, 5), (keys, 5), (keys, 4)))
    q, k = 0.3 * q, 0.3 * k  # far from a denominator of zero
    mask = None
    if masked:
        mask = torch.rand(*lead[:1], *(1,) * len(lead[1:]), 1, keys, generator=generator) > 0.4
        mask[..., 0] = True
    features = draw(kind, 5, 300)
    expected = by_definition(q, k, v, features=features, causal=causal, attn_mask=mask)
    for chunk_size in (1, 2, 4, 100):
        found = random_feature_attention(
            q, k, v, features=features, causal=causal, attn_mask=mask, chunk_size=chunk_size
        )
        assert found.shape == (*lead, 9, 4)
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


@given(SEEDS, st.integers(1, 12), st.integers(1, 5), st.booleans())
def test_positive_features_give_a_weighted_average(seed, length, chunk_size, causal):
    generator = rng(seed)
    q, k = (3 * normal(length, 4, generator=generator) for _ in range(2))
    features = draw("positive", 4, 6, seed=seed)
    weights = random_feature_attention(
        q, k, torch.eye(length, dtype=torch.float64), features=features, causal=causal, chunk_size=chunk_size
    )
    assert bool((weights >= 0).all())
    torch.testing.assert_close(weights.sum(-1), torch.ones(length, dtype=torch.float64))
    if causal:
        assert float(weights.triu(1).abs().max()) == 0


@pytest.mark.parametrize("size", [1.0, 30.0, 1000.0])
def test_without_causal_nothing_overflows_or_underflows(size):
    q, k, v = (normal(40, 8, generator=rng(s), dtype=torch.float32) for s in (1, 2, 3))
    features = positive_features(8, 16, generator=rng())
    found = random_feature_attention(size * q, size * k, v, features=features, chunk_size=4)
    assert bool(torch.isfinite(found).all())
    assert bool((found <= v.amax(0) + 1e-5).all())
    assert bool((found >= v.amin(0) - 1e-5).all())


def test_causal_with_chunks_of_one_never_underflows():
    q, k, v = (normal(40, 8, generator=rng(s), dtype=torch.float32) for s in (1, 2, 3))
    features = positive_features(8, 16, generator=rng())
    found = random_feature_attention(30 * q, 30 * k, v, features=features, causal=True, chunk_size=1)
    assert bool(torch.isfinite(found).all())


def test_the_largest_exponent_of_each_key_would_not_cancel():
    # The factors that are taken out belong to a feature or to a query. One that belongs to a key changes its weight.
    generator = rng(8)
    q, k, v = (normal(n, 4, generator=generator) for n in (3, 6, 6))
    features = draw("positive", 4, 50)
    exact = by_definition(q, k, v, features=features)
    phi_q, phi_k = features(q), features(k)
    by_feature = phi_k.amax(0, keepdim=True)
    by_query = (phi_q * by_feature).amax(1, keepdim=True)
    weights = (phi_q * by_feature / by_query) @ (phi_k / by_feature).mT
    torch.testing.assert_close(weights @ v / weights.sum(-1, keepdim=True), exact)
    weights = phi_q @ (phi_k / phi_k.amax(1, keepdim=True)).mT
    assert float((weights @ v / weights.sum(-1, keepdim=True) - exact).abs().max()) > 0.01


@every_kind
def test_later_keys_do_not_change_earlier_outputs(kind):
    generator = rng(9)
    q, k, v = (0.5 * normal(10, 4, generator=generator) for _ in range(3))
    features = draw(kind, 4, 400)
    before = random_feature_attention(q, k, v, features=features, causal=True, chunk_size=4)
    k[6:], v[6:] = 2 * k[6:], -5.0
    after = random_feature_attention(q, k, v, features=features, causal=True, chunk_size=4)
    torch.testing.assert_close(before[:6], after[:6], rtol=1e-9, atol=1e-9)
    assert float((before[6:] - after[6:]).abs().max()) > 0.1


@every_kind
def test_many_features_are_softmax_attention(kind):
    generator = rng(10)
    q, k, v = (0.5 * normal(2, 12, 6, generator=generator) for _ in range(3))
    features = draw(kind, 6, 200_000)
    for causal in (False, True):
        found = random_feature_attention(q, k, v, features=features, causal=causal)
        exact = scaled_dot_product_attention(q, k, v, is_causal=causal)
        assert float((found - exact).abs().max()) < 0.02
    mask = torch.rand(2, 1, 12, generator=generator) > 0.3
    mask[..., 0] = True
    found = random_feature_attention(q, k, v, features=features, attn_mask=mask)
    exact = scaled_dot_product_attention(q, k, v, attn_mask=mask.expand(2, 12, 12))
    assert float((found - exact).abs().max()) < 0.02


def test_the_width_is_the_scale_of_the_scores():
    generator = rng(11)
    q, k, v = (0.5 * normal(7, 6, generator=generator) for _ in range(3))
    features = draw("positive", 6, 200_000, sigma=1.25)
    exact = scaled_dot_product_attention(q, k, v, scale=1 / 1.25**2)
    assert float((random_feature_attention(q, k, v, features=features) - exact).abs().max()) < 0.02


@every_kind
@pytest.mark.parametrize("causal", [False, True])
def test_a_query_that_sees_no_key_gets_zeros_and_no_gradient(kind, causal):
    q, k, v = (normal(2, 5, 3, generator=rng(s)).requires_grad_() for s in (1, 2, 3))
    mask = torch.tensor([[[False] * 5], [[False, False, True, True, True]]])
    features = draw(kind, 3, 200)
    found = random_feature_attention(q, k, v, features=features, causal=causal, attn_mask=mask, chunk_size=2)
    assert float(found[0].detach().abs().max()) == 0
    assert float(found[1, :2].detach().abs().max() == 0) == causal
    for gradient in torch.autograd.grad(found.sum(), (q, k, v)):
        assert bool(torch.isfinite(gradient).all())
        assert float(gradient[0].abs().max()) == 0


@every_kind
@pytest.mark.parametrize("causal", [False, True])
def test_gradients(kind, causal):
    q, k, v = ((0.5 * normal(2, 5, 3, generator=rng(s))).requires_grad_() for s in (1, 2, 3))
    mask = torch.tensor([[[True, True, False, True, True]]])
    features = draw(kind, 3, 40)

    def attention(q, k, v):
        return random_feature_attention(
            q, k, v, features=features, causal=causal, attn_mask=mask, chunk_size=2
        )

    assert torch.autograd.gradcheck(attention, (q, k, v), fast_mode=True)
    assert torch.autograd.gradgradcheck(attention, (q, k, v), fast_mode=True)


@every_kind
@pytest.mark.parametrize("causal", [False, True])
def test_without_keys_or_queries_there_is_nothing_to_average(kind, causal):
    q, k, v = torch.ones(2, 0 if causal else 3, 4), torch.ones(2, 0, 4), torch.ones(2, 0, 5)
    found = random_feature_attention(q, k, v, features=draw(kind, 4, 10), causal=causal)
    assert torch.equal(found, torch.zeros(*q.shape[:-1], 5))


@every_kind
@pytest.mark.parametrize("masked", [False, True])
def test_a_chunk_with_steep_exponents_is_as_exact_as_single_tokens(kind, masked):
    """Queries and keys of 8 entries, drawn and multiplied by 30: exponents rise by hundreds within a chunk."""
    q, k, v = (30 * normal(2, 96, 8, generator=rng(s)).float() for s in (1, 2, 3))
    mask = torch.rand(2, 1, 96, generator=rng(4)) > 0.3 if masked else None
    found, single = (
        random_feature_attention(
            q, k, v, features=draw(kind, 8, 32), causal=True, attn_mask=mask, chunk_size=size
        )
        for size in (96, 1)
    )
    if kind == "positive":  # the sums of the others may cancel
        assert found.isfinite().all()
    torch.testing.assert_close(found, single, rtol=1e-4, atol=1e-3, equal_nan=kind != "positive")


@pytest.fixture
def unchecked():
    """The module without the run-time shape checks that the test run puts around its functions."""
    spec = importlib.util.spec_from_file_location("random_features_unchecked", random_features.__file__)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # the compiler looks modules up by name
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


@pytest.mark.nightly
@every_kind
@pytest.mark.parametrize("causal", [False, True])
def test_compiles_to_one_graph(unchecked, kind, causal):
    q, k, v = ((0.3 * normal(2, 6, 4, generator=rng(s))).requires_grad_() for s in (1, 2, 3))
    mask = torch.tensor([[[True, True, False, True, True, True]]])
    features = getattr(unchecked, f"{kind}_features")(4, 60, generator=rng(), dtype=torch.float64)

    def attention(q, k, v):
        return unchecked.random_feature_attention(
            q, k, v, features=features, causal=causal, attn_mask=mask, chunk_size=4
        )

    torch.compiler.reset()
    compiled = torch.compile(attention, backend="aot_eager", fullgraph=True)
    found, expected = compiled(q, k, v), attention(q, k, v)
    torch.testing.assert_close(found, expected)
    for mine, theirs in zip(
        torch.autograd.grad(found.square().sum(), (q, k, v)),
        torch.autograd.grad(expected.square().sum(), (q, k, v)),
        strict=True,
    ):
        torch.testing.assert_close(mine, theirs)


@every_kind
@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [(torch.float64, 1e-12), (torch.float32, 2e-4), (torch.bfloat16, 3e-2), (torch.float16, 1e-2)],
)
def test_dtype_follows_the_input(kind, dtype, tolerance):
    q, k, v = ((0.3 * normal(6, 4, generator=rng(s))).to(dtype) for s in (1, 2, 3))
    features = draw(kind, 4, 60)
    found = random_feature_attention(q, k, v, features=features, causal=True)
    assert found.dtype == dtype
    assert features(q).dtype == dtype
    exact = by_definition(q.double(), k.double(), v.double(), features=features, causal=True)
    assert float((found.double() - exact).abs().max()) <= tolerance


def test_inputs_stay_as_they_are():
    tensors = [0.3 * normal(6, 4, generator=rng(s)) for s in (1, 2, 3)]
    copies = [t.clone() for t in tensors]
    for kind in KINDS:
        for causal in (False, True):
            random_feature_attention(*tensors, features=draw(kind, 4, 7), causal=causal)
    assert all(map(torch.equal, tensors, copies))


# Errors


@pytest.mark.parametrize("sigma", [0.0, -1.0, math.nan, math.inf])
def test_a_width_that_is_none_is_refused(sigma):
    x = torch.zeros(2, 3)
    for call in (
        lambda: gaussian_kernel(x, x, sigma=sigma),
        lambda: PositiveFeatures(x, sigma),
        lambda: trigonometric_features(3, 4, sigma=sigma),
        lambda: relative_variance(x, x, kind="positive", sigma=sigma),
        lambda: attention_error(x, x, x, kind="positive", n_frequencies=4, sigma=sigma),
    ):
        with pytest.raises(ValueError, match="sigma must be a finite number above 0"):
            call()


def test_frequencies_must_be_a_matrix():
    for shape in ((3,), (0, 3), (3, 0), (1, 2, 3)):
        with pytest.raises(ValueError, match=r"frequencies must have shape \(m, head_dim\)"):
            PositiveFeatures(torch.zeros(shape))
    for head_dim, m in ((0, 3), (3, 0)):
        with pytest.raises(ValueError, match=f"must be 1 or more, got {head_dim} and {m}"):
            draw_frequencies(head_dim, m)


def test_features_of_another_head_dimension_are_refused():
    q, features = torch.zeros(2, 3), positive_features(4, 5)
    for call in (lambda: features(q), lambda: random_feature_attention(q, q, q, features=features)):
        with pytest.raises(ValueError, match="drawn for head_dim 4, got vectors of 3"):
            call()


def test_other_wrong_arguments():
    q, features = torch.zeros(2, 3), positive_features(3, 5)
    with pytest.raises(ValueError, match="chunk_size must be 1 or more, got 0"):
        random_feature_attention(q, q, q, features=features, chunk_size=0)
    with pytest.raises(ValueError, match="as many keys as queries"):
        random_feature_attention(q, q[:1], q[:1], features=features, causal=True)
    with pytest.raises(ValueError, match="must be boolean"):
        random_feature_attention(q, q, q, features=features, attn_mask=torch.ones(1, 2))
    with pytest.raises(ValueError, match="head_dim must be 1 or more, got 0"):
        orthogonal_covariance(torch.ones(1), head_dim=0)


def test_autocast_changes_nothing():
    q, k, v = torch.randn(3, 2, 40, 8)
    features = positive_features(8, 16, generator=torch.Generator().manual_seed(0))
    alone = random_feature_attention(q, k, v, features=features, causal=True)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(random_feature_attention(q, k, v, features=features, causal=True), alone)
