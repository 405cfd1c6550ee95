"""Softmax attention: worked examples, the fused form against the definition, the scale's effect, hard attention."""

import json
import math
import subprocess
import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional

from course_lib.attention.scaled_dot_product import (
    argmax_attention,
    argmax_keys,
    attention,
    attention_scores,
    attention_weights,
    entropy,
    naive_attention,
    qk_norm_attention,
    score_moments,
    softmax_jacobian,
)
from tests import HANG_S

SEEDS = st.integers(0, 2**31)
SIZES = st.integers(1, 5)
LEADS = st.lists(st.integers(1, 3), max_size=3).map(tuple)
every_form = pytest.mark.parametrize("form", [attention, naive_attention])
every_attention = pytest.mark.parametrize("form", [attention, naive_attention, argmax_attention])


def vector(*entries: float) -> torch.Tensor:
    return torch.tensor(entries, dtype=torch.float64)


def rng(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def normal(*shape: int, generator: torch.Generator) -> torch.Tensor:
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def qkv(lead=(2, 3), queries=4, keys=5, width=8, values=6, seed=0, dtype=torch.float64):
    generator = rng(seed)
    shapes = ((queries, width), (keys, width), (keys, values))
    return tuple(normal(*lead, *shape, generator=generator).to(dtype) for shape in shapes)


def close(a: torch.Tensor, b: torch.Tensor, tolerance: float = 1e-12) -> None:
    torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


# Worked examples

Q = vector(1, 1, 2)[None]
K = torch.tensor([[1, 2, 0], [0, 3, 4], [5, 0, 0], [0, 0, 1]], dtype=torch.float64)
V = torch.tensor([[2, 0, 1], [1, 4, 3], [0, -1, 4], [1, 0, -1]], dtype=torch.float64)


def test_argmax_takes_the_largest_score():
    assert attention_scores(Q, K, scale=1)[0].tolist() == [3, 11, 5, 2]
    assert argmax_keys(attention_scores(Q, K, scale=1)).tolist() == [1]
    assert argmax_attention(Q, K, V)[0].tolist() == [1, 4, 3]


@pytest.mark.parametrize(
    ("scale", "weights", "output"),
    [
        (
            1.0,
            (0.0003344800510733744, 0.9970709797533005, 0.002471491861354352, 0.00012304833427186846),
            (0.9978629881897192, 3.985812427151848, 3.0013103384221202),
        ),
        (
            None,
            (0.009424450004932519, 0.9553803469345157, 0.02990446843138055, 0.005290734629171343),
            (0.979519981573552, 3.791616919306682, 2.9898926299048303),
        ),
    ],
)
def test_softmax_of_the_same_scores(scale, weights, output):
    close(attention_weights(Q, K, scale=scale)[0], vector(*weights), 1e-13)
    for form in (attention, naive_attention):
        close(form(Q, K, V, scale=scale)[0], vector(*output), 1e-12)


def test_at_the_tie_the_first_key_wins_and_either_side_wins_beyond_it():
    at = lambda t: argmax_attention(vector(1, 1, t)[None], K, V)[0].tolist()  # noqa: E731
    assert attention_scores(vector(1, 1, 0.5)[None], K, scale=1)[0].tolist() == [3, 5, 5, 0.5]
    assert at(0.5) == [1, 4, 3]
    assert at(0.5 - 1e-9) == [0, -1, 4]
    assert at(0.5 + 1e-9) == [1, 4, 3]


def test_only_the_selected_value_has_a_gradient():
    q, k, v = (tensor.clone().requires_grad_() for tensor in (Q, K, V))
    output = argmax_attention(q, k, v)
    gradients = torch.autograd.grad(output.sum(), (q, k, v), allow_unused=True)
    assert gradients[:2] == (None, None)
    assert gradients[2].sum(-1).tolist() == [0, 3, 0, 0]


def test_a_decoder_state_looks_at_encoder_states():
    states = torch.tensor([[1, 0], [0, 1], [1, 1]], dtype=torch.float64)
    query = vector(1, 2)[None]
    alpha = (0.09003057317038046, 0.24472847105479767, 0.6652409557748219)
    close(attention_weights(query, states, scale=1)[0], vector(*alpha), 1e-13)
    close(attention(query, states, states, scale=1)[0], vector(0.7552715289452023, 0.9099694268296196), 1e-13)


@pytest.mark.parametrize(
    ("mean", "std", "expected"),
    [
        ((0, 0, 0, 0), 2, (0, 64)),
        ((1, 2, 0.5), 1.5, (21 / 4, 38.8125)),
        ((0,) * 64, 1, (0, 64)),
        ((0,) * 16, 1, (0, 16)),
    ],
)
def test_moments_of_a_score(mean, std, expected):
    assert [float(m) for m in score_moments(vector(*mean), std=std)] == pytest.approx(expected, abs=1e-13)


# The fused form is the definition


@given(SEEDS, LEADS, SIZES, SIZES, SIZES, SIZES, st.floats(-2, 2))
def test_both_forms_agree_for_any_number_of_dimensions(seed, lead, queries, keys, width, values, scale):
    q, k, v = qkv(lead, queries, keys, width, values, seed)
    assert attention(q, k, v).shape == (*lead, queries, values)
    close(attention(q, k, v), naive_attention(q, k, v))
    close(attention(q, k, v, scale=scale), naive_attention(q, k, v, scale=scale))


@given(
    SEEDS,
    LEADS,
    SIZES,
    SIZES,
    st.booleans(),
    st.booleans(),
    st.lists(st.booleans(), min_size=5, max_size=5),
    st.integers(0, 4),
)
def test_both_forms_agree_under_masks(seed, lead, length, keys, causal, additive, shared, dropped):
    keys = length if causal else keys
    q, k, v = qkv(lead, length, keys, 4, 3, seed)
    full = (*lead, length, keys)
    # Any dimensions of the mask may be 1 and any number of the first ones left out.
    shape = tuple(1 if s else size for s, size in zip(shared, full, strict=False))[min(dropped, len(full)) :]
    mask = torch.rand(shape, generator=rng(seed)) < 0.6
    if additive:
        mask = torch.where(mask, torch.randn(shape, generator=rng(seed + 1)).double(), -math.inf)
    mine = attention(q, k, v, attn_mask=mask, causal=causal)
    close(mine, naive_attention(q, k, v, attn_mask=mask, causal=causal))
    weights = attention_weights(q, k, attn_mask=mask, causal=causal)
    seen = (mask if mask.dtype == torch.bool else mask > -math.inf).expand(full)
    seen = seen.tril() if causal else seen
    assert bool((weights[~seen] == 0).all())
    close(weights.sum(-1), seen.any(-1).double())


@pytest.mark.parametrize("lead", [(), (2,), (2, 3), (2, 3, 2)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_dtype_is_kept_and_values_are_near_those_of_float64(lead, dtype):
    exact = attention(*qkv(lead))
    found = attention(*qkv(lead, dtype=dtype))
    assert found.dtype == dtype
    tolerance = 16 * torch.finfo(dtype).eps
    torch.testing.assert_close(found.double(), exact, rtol=tolerance, atol=tolerance)


def test_four_dimensions_are_torchs_own_call():
    q, k, v = qkv((2, 3), dtype=torch.float32)
    assert torch.equal(attention(q, k, v), functional.scaled_dot_product_attention(q, k, v))


@pytest.mark.parametrize("lead", [(), (6,), (2, 3), (2, 3, 4), (2, 1, 3, 2)])
def test_torch_gets_four_dimensions_and_no_copies(lead, monkeypatch):
    calls = []
    real = functional.scaled_dot_product_attention

    def spy(q, k, v, **options):
        calls.append((q, k, v, options["attn_mask"]))
        return real(q, k, v, **options)

    monkeypatch.setattr(functional, "scaled_dot_product_attention", spy)
    q, k, v = qkv(lead)
    mask = torch.ones(4, 5, dtype=torch.bool)
    attention(q, k, v)
    attention(q, k, v, attn_mask=mask)
    plain, masked = calls
    assert [tensor.ndim for tensor in (*plain[:3], *masked)] == [4] * 7
    assert [tensor.data_ptr() for tensor in plain[:3]] == [tensor.data_ptr() for tensor in (q, k, v)]
    # Under a mask keys and values are copied, once: what is in hidden ones is cleared.
    assert [masked[at].data_ptr() for at in (0, 3)] == [q.data_ptr(), mask.data_ptr()]


def test_strides_do_not_matter():
    x = normal(2, 3, 4, 2, 8, generator=rng(1))
    q = x.transpose(1, 3)
    assert not q.is_contiguous()
    close(attention(q, q, q), attention(*[q.contiguous()] * 3))


@every_attention
@pytest.mark.parametrize("shape", [(0, 2, 3, 4), (2, 0, 3, 4), (2, 3, 0, 4), (0, 2, 2, 3, 4)])
def test_empty_batches_and_sequences(form, shape):
    q = torch.zeros(shape)
    k = torch.zeros(*shape[:-2], 5, 4)
    assert form(q, k, k).shape == shape


@every_form
def test_without_keys_the_output_is_zero(form):
    q, k = torch.ones(2, 3, 4), torch.ones(2, 0, 4)
    assert torch.equal(form(q, k, k), torch.zeros(2, 3, 4))


# Rows that may see nothing


@every_attention
@pytest.mark.parametrize("lead", [(), (2,), (2, 3), (2, 3, 2)])
@pytest.mark.parametrize("additive", [False, True])
def test_a_row_that_sees_nothing_gives_zeros_and_finite_gradients(form, lead, additive):
    q, k, v = (tensor.requires_grad_() for tensor in qkv(lead))
    mask = torch.ones(4, 5, dtype=torch.bool)
    mask[1] = False
    if additive:
        mask = torch.zeros(4, 5, dtype=torch.float64).masked_fill(~mask, -math.inf)
    output = form(q, k, v, attn_mask=mask)
    assert bool((output[..., 1, :] == 0).all())
    assert bool((output[..., 0, :] != 0).all())
    gradients = torch.autograd.grad(
        output.square().sum(), (q, k, v), allow_unused=True, materialize_grads=True
    )
    assert all(bool(g.isfinite().all()) for g in gradients)
    assert bool((gradients[0][..., 1, :] == 0).all())


def test_plain_softmax_of_such_a_row_is_nan():
    assert torch.softmax(torch.full((3,), -math.inf), -1).isnan().all()


# Gradients


@every_form
@pytest.mark.parametrize("lead", [(), (2,), (2, 1), (1, 2, 2)])
@pytest.mark.parametrize("causal", [False, True])
def test_gradcheck(form, lead, causal):
    q, k, v = (tensor.requires_grad_() for tensor in qkv(lead, 3, 3, 2, 2))
    assert torch.autograd.gradcheck(lambda *x: form(*x, causal=causal), (q, k, v), fast_mode=True)


@every_form
@pytest.mark.parametrize("shape", [(), (3, 1, 1), (2, 3, 1, 1), (2, 1, 1, 1)])
def test_a_tensor_of_scales_gets_its_gradient(form, shape):
    q, k, v = qkv((2, 3), 3, 3, 2, 2)
    scale = (0.5 + torch.rand(shape, generator=rng(1)).double()).requires_grad_()
    assert torch.autograd.gradcheck(lambda s: form(q, k, v, scale=s), (scale,))
    close(form(q, k, v, scale=scale), naive_attention(q * scale, k, v, scale=1))


@every_form
def test_the_dtype_of_a_scale_does_not_change_that_of_the_output(form):
    q, k, v = qkv(dtype=torch.bfloat16)
    assert form(q, k, v, scale=torch.full((3, 1, 1), 0.3, dtype=torch.float64)).dtype == torch.bfloat16


@every_form
def test_a_float_mask_gets_its_gradient(form):
    q, k, v = qkv((2, 2), 3, 3, 2, 2)
    mask = normal(2, 1, 3, 3, generator=rng(2)).requires_grad_()
    assert torch.autograd.gradcheck(lambda m: form(q, k, v, attn_mask=m), (mask,))


def test_gradcheck_of_qk_norm_and_entropy():
    q, k, v = (tensor.requires_grad_() for tensor in qkv((2,), 3, 3, 2, 2))
    scale = torch.tensor(1.7, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda q, k, v, s: qk_norm_attention(q, k, v, scale=s), (q, k, v, scale))
    assert torch.autograd.gradcheck(lambda q, k: entropy(attention_weights(q, k)), (q, k))


@pytest.mark.nightly
def test_compiled_without_graph_breaks():
    # In a process of its own: the run-time checks of shapes that the tests switch on cannot be traced.
    code = """
import json, torch
from course_lib.attention import scaled_dot_product as m
torch.set_num_threads(1)
torch.manual_seed(0)
q, k, v = torch.randn(3, 2, 3, 2, 6, 8)
mask = torch.rand(3, 1, 6, 6) > 0.3
said = {}
for name in ("attention", "naive_attention", "qk_norm_attention", "argmax_attention"):
    for backend in ("eager", "aot_eager"):
        torch._dynamo.reset()
        form = lambda q, k, v: getattr(m, name)(q, k, v, attn_mask=mask, causal=True, scale=0.3)
        compiled = torch.compile(form, fullgraph=True, backend=backend)
        said[f"{name} {backend}"] = float((compiled(q, k, v) - form(q, k, v)).abs().max())
print(json.dumps(said))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=HANG_S)
    assert done.returncode == 0, done.stderr[-2000:]
    differences = json.loads(done.stdout)
    assert len(differences) == 8
    assert max(differences.values()) <= 1e-5


# Errors


def rejects(message: str):
    # Under the run-time checks of shapes a wrong one is stopped by them, before ours.
    return pytest.raises((ValueError, TypeError), match=f"{message}|Type-check error")


@every_attention
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"k": torch.zeros(2, 3, 5, 7)}, "same head_dim, got 8 and 7"),
        ({"v": torch.zeros(2, 3, 4, 6)}, "same length, got 5 and 4"),
        ({"v": torch.zeros(2, 5, 6)}, "same leading dimensions"),
        ({"k": torch.zeros(2, 3, 5, 8, dtype=torch.bfloat16)}, "share dtype and device"),
        ({"k": torch.zeros(2, 3, 3, 8), "v": torch.zeros(2, 3, 3, 6), "causal": True}, "as many keys as queries, got 4"),
        ({"attn_mask": torch.ones(4, 5, dtype=torch.int64)}, "must be boolean or torch.float32 as q is"),
        ({"attn_mask": torch.ones(4, 5, dtype=torch.float64)}, "must be boolean or torch.float32 as q is"),
        ({"attn_mask": torch.ones(5, 4, dtype=torch.bool)}, r"must broadcast to \(2, 3, 4, 5\), got .* \(5, 4\)"),
        ({"attn_mask": torch.ones(2, 1, 1, 1, 5, dtype=torch.bool)}, r"got shape \(2, 1, 1, 1, 5\)"),
        ({"scale": math.inf}, "scale must be a finite number, a tensor or None, got inf"),
        ({"scale": torch.ones(8)}, r"end in \(1, 1\) and broadcast to \(2, 3, 1, 1\), got \(8,\)"),
        ({"scale": torch.ones(2, 1, 1)}, r"got \(2, 1, 1\)"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_named(form, change, message):
    q, k, v = qkv(dtype=torch.float32)
    with rejects(message):
        form(**{"q": q, "k": k, "v": v, **change})


@every_form
def test_no_features_need_a_scale(form):
    q, k, v = torch.zeros(3, 0), torch.zeros(4, 0), torch.ones(4, 2)
    with pytest.raises(ValueError, match="head_dim is 0"):
        form(q, k, v)
    assert torch.equal(form(q, k, v, scale=1.0), torch.ones(3, 2))


def test_argmax_needs_a_key():
    with pytest.raises(ValueError, match=r"at least one key, got scores of shape \(2, 0\)"):
        argmax_attention(torch.zeros(2, 4), torch.zeros(0, 4), torch.zeros(0, 3))


@pytest.mark.parametrize("std", [-1.0, math.nan, math.inf])
def test_a_standard_deviation_is_finite_and_not_negative(std):
    with pytest.raises(ValueError, match="std must be a finite number, 0 or more"):
        score_moments(vector(1, 2), std=std)


# What the scale does


@given(SEEDS, st.integers(1, 4), st.floats(0, 3))
def test_moments_are_those_of_all_cases(seed, d, std):
    """Entries mean plus or minus std have the covariance that is asked for, and finitely many cases."""
    mean = normal(d, generator=rng(seed))
    signs = torch.cartesian_prod(*[vector(-1, 1)] * d).reshape(-1, d)
    scores = (mean + std * signs) @ (mean + std * signs).T
    found = [float(m) for m in score_moments(mean, std=std)]
    assert found == pytest.approx([float(scores.mean()), float(scores.var(correction=0))], rel=1e-9, abs=1e-9)


@given(SEEDS, st.integers(1, 6), st.floats(0.01, 30))
def test_the_jacobian_is_autograds_and_bounded(seed, n, scale):
    scores = scale * normal(n, generator=rng(seed))
    weights = scores.softmax(-1)
    jacobian = softmax_jacobian(weights)
    close(jacobian, torch.autograd.functional.jacobian(lambda s: s.softmax(-1), scores))
    norm = float(torch.linalg.eigvalsh(jacobian)[-1])
    assert norm <= 2 * float((weights * (1 - weights)).max()) + 1e-12
    assert norm <= 0.5 + 1e-12
    assert norm <= 2 * (1 - float(weights.max())) + 1e-12
    if n > 1:
        best = scores.sort(descending=True).values
        assert norm <= 2 * (n - 1) * math.exp(-float(best[0] - best[1])) + 1e-12
    close(jacobian.sum(-1), torch.zeros(n, dtype=torch.float64))


def test_the_jacobian_of_rows_is_that_of_each_row():
    weights = normal(2, 3, 4, generator=rng(0)).softmax(-1)
    assert softmax_jacobian(weights).shape == (2, 3, 4, 4)
    close(softmax_jacobian(weights)[1, 2], softmax_jacobian(weights[1, 2]))


@given(SEEDS, st.integers(1, 6), st.floats(0.01, 30))
def test_entropy_falls_by_scale_times_variance(seed, n, scale):
    scores = normal(n, generator=rng(seed))
    beta = torch.tensor(scale, dtype=torch.float64, requires_grad=True)
    value = entropy((beta * scores).softmax(-1))
    (slope,) = torch.autograd.grad(value, beta)
    weights = (scale * scores).softmax(-1)
    mean = weights @ scores
    assert float(slope) == pytest.approx(float(-scale * (weights @ (scores - mean) ** 2)), rel=1e-7, abs=1e-9)
    assert -1e-12 <= float(value.detach()) <= math.log(n) + 1e-12


def test_entropy_of_zero_weights_and_its_gradient_are_finite():
    scores = torch.tensor([0.0, -1e4, -math.inf], requires_grad=True)
    value = entropy(scores.softmax(-1))
    assert float(value.detach()) == 0
    assert torch.autograd.grad(value, scores)[0][:2].isfinite().all()
    assert float(entropy(torch.full((8,), 1 / 8))) == pytest.approx(math.log(8), rel=1e-6)


@given(SEEDS, st.floats(0, 20))
def test_qk_norm_bounds_scores_weights_and_entropy(seed, scale):
    q, k, v = qkv((2,), 4, 5, 3, 2, seed)
    q = 1e3 * q
    cosines = functional.cosine_similarity(q[:, :, None], k[:, None], dim=-1)
    weights = (scale * cosines).softmax(-1)
    close(qk_norm_attention(q, k, v, scale=scale), weights @ v, 1e-10)
    others = 4 * math.exp(-2 * scale)
    assert float(weights.max()) <= 1 / (1 + others) + 1e-12
    assert float(entropy(weights).min()) >= math.log1p(others) - 1e-12


def test_qk_norm_does_not_see_lengths():
    q, k, v = qkv()
    close(
        qk_norm_attention(7 * q, 0.01 * k, v, scale=3.0, causal=False), qk_norm_attention(q, k, v, scale=3.0)
    )


# Hard attention


@given(SEEDS, LEADS, SIZES, SIZES)
def test_argmax_is_the_limit_of_the_softmax(seed, lead, queries, keys):
    q, k, v = qkv(lead, queries, keys, 4, 3, seed)
    scores = attention_scores(q, k, scale=1)
    hard = argmax_attention(q, k, v)
    assert torch.equal(hard, torch.take_along_dim(v, argmax_keys(scores)[..., None], -2))
    if keys > 1:
        best = scores.sort(descending=True).values
        gap = float((best[..., 0] - best[..., 1]).min())
        # A scale of 40 over the smallest gap leaves the others at most (n - 1) e^-40; a tie has no such scale.
        if gap > 1e-6:
            close(attention(q, k, v, scale=40 / gap), hard, 1e-6)


@given(SEEDS)
def test_masks_choose_who_may_win(seed):
    q, k, v = qkv((2,), 4, 4, 3, 2, seed)
    hard = argmax_attention(q, k, v, causal=True)
    assert torch.equal(hard[:, 0], v[:, 0])
    only_last = torch.tensor([False, False, False, True])
    assert torch.equal(argmax_attention(q, k, v, attn_mask=only_last), v[:, 3:].expand(2, 4, 2))
