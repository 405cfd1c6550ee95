"""Calls as users of torch's scaled_dot_product_attention make them: each works, or is refused with its reason."""

import math
from functools import partial

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from course_lib.attention.kernelized import Quadratic, elu_features, linear_attention
from course_lib.attention.random_features import positive_features, random_feature_attention
from course_lib.attention.ridge import delta_rule, ridge_attention
from course_lib.attention.scaled_dot_product import attention, naive_attention, qk_norm_attention

LINEAR = {
    "elu": partial(linear_attention, feature_map=elu_features, chunk_size=2),
    "quadratic": partial(linear_attention, feature_map=Quadratic(), chunk_size=2),
    "random features": partial(
        random_feature_attention,
        features=positive_features(4, 30, generator=torch.Generator().manual_seed(0), dtype=torch.float64),
        chunk_size=2,
    ),
    "ridge": partial(ridge_attention, penalty=0.5, chunk_size=2),
}
FORMS = {"softmax": attention, **LINEAR}
every_form = pytest.mark.parametrize("name", FORMS)
every_linear_form = pytest.mark.parametrize("name", LINEAR)


def draw(*lead, queries=5, keys=5, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    shapes = ((queries, 4), (keys, 4), (keys, 3))
    return [torch.randn(*lead, *s, generator=generator, dtype=torch.float64).to(dtype) for s in shapes]


def same(a, b, tolerance=1e-10):
    torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


@every_form
@pytest.mark.parametrize("is_causal", [False, True])
def test_is_causal_counts_in_place_of_causal(name, is_causal):
    tensors = draw(2, 3)
    wanted = FORMS[name](*tensors, causal=is_causal)
    assert torch.equal(FORMS[name](*tensors, is_causal=is_causal), wanted)
    assert torch.equal(FORMS[name](*tensors, causal=not is_causal, is_causal=is_causal), wanted)
    assert not torch.allclose(FORMS[name](*tensors, is_causal=not is_causal), wanted)


@every_form
@pytest.mark.parametrize("causal", [False, True])
def test_grouped_heads(name, causal):
    q, _, _ = draw(2, 6)
    _, k, v = draw(2, 2, seed=1)
    found = FORMS[name](q, k, v, causal=causal, enable_gqa=True)
    for head in range(6):  # head h of q belongs to head h // 3 of k and v
        own = k[:, head // 3], v[:, head // 3]
        same(found[:, head], FORMS[name](q[:, head], *own, causal=causal))
    if name == "softmax":
        same(found, scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=True))


@pytest.mark.parametrize("lead", [(6,), (2, 6), (3, 2, 6)])
def test_a_token_of_grouped_heads_needs_no_copies_of_the_cache(lead):
    (q, _, _), (_, k, v) = draw(*lead, queries=1), draw(*lead[:-1], 2, seed=1)
    repeated = (x.repeat_interleave(3, dim=-3) for x in (k, v))
    same(attention(q, k, v, causal=True, enable_gqa=True), attention(q, *repeated))
    same(
        attention(q, k[..., :1, :, :], v[..., :1, :, :], enable_gqa=True, scale=2.0),
        attention(q, *(x[..., :1, :, :].expand(*lead, *x.shape[-2:]) for x in (k, v)), scale=2.0),
    )
    mask = torch.arange(5) != 2
    same(
        attention(q, k, v, attn_mask=mask, enable_gqa=True),
        attention(q, k[..., mask, :], v[..., mask, :], enable_gqa=True),
    )


@pytest.mark.parametrize("form", [partial(delta_rule, step_size=0.1), partial(qk_norm_attention, scale=3.0)])
def test_grouped_heads_of_the_relatives(form):
    q, _, _ = draw(2, 6)
    _, k, v = draw(2, 2, seed=1)
    found = form(q, k, v, enable_gqa=True)
    for head in range(6):
        same(found[:, head], form(q[:, head], k[:, head // 3], v[:, head // 3]))
    with pytest.raises(ValueError, match="got 6, 4 and 4 heads"):
        form(q, q[:, :4], q[:, :4], enable_gqa=True)
    with pytest.raises(ValueError, match="same leading dimensions"):
        form(q, k, v)


@pytest.mark.parametrize("form", [partial(delta_rule, step_size=0.1), partial(qk_norm_attention, scale=3.0)])
def test_padding_masks_of_the_relatives(form):
    q, k, v = draw(2, 3)
    padding = torch.tensor([[True, True, True, False, False], [True, False, True, True, True]])
    mask = padding[:, None, None, :]
    wanted = form(q, k, v, attn_mask=mask, is_causal=True)
    k, v = (x.masked_fill(~mask.mT, math.nan) for x in (k, v))
    same(form(q, k, v, padding_mask=padding, is_causal=True), wanted)
    with pytest.raises(ValueError, match="padding_mask must be boolean of shape"):
        form(q, k, v, padding_mask=padding[:1])


def test_qk_norm_is_called_as_attention_is():
    q, k, v = draw(2, 3)
    for causal in (False, True):
        wanted = qk_norm_attention(q, k, v, scale=3.0, causal=causal)
        assert torch.equal(qk_norm_attention(q, k, v, scale=3.0, causal=not causal, is_causal=causal), wanted)
    torch.manual_seed(0)
    dropped = qk_norm_attention(q, k, v, scale=3.0, dropout_p=0.5)
    units = [torch.nn.functional.normalize(x, dim=-1) for x in (q, k)]
    torch.manual_seed(0)
    assert torch.equal(dropped, attention(*units, v, scale=3.0, dropout_p=0.5))
    assert not torch.allclose(dropped, qk_norm_attention(q, k, v, scale=3.0))


def test_the_delta_rule_is_called_as_attention_is():
    q, k, v = draw(2, 3)
    wanted = delta_rule(q, k, v, step_size=0.1)
    assert torch.equal(delta_rule(q, k, v, step_size=0.1, is_causal=True), wanted)
    same(delta_rule(q, k, v, step_size=0.1, scale=0.5), 0.5 * wanted)
    with pytest.raises(ValueError, match="is_causal must be True or left out, got False"):
        delta_rule(q, k, v, is_causal=False)
    with pytest.raises(TypeError, match="unexpected keyword argument 'dropout_p'"):
        delta_rule(q, k, v, dropout_p=0.1)


@every_form
def test_leading_dimensions_that_broadcast(name):
    q, _, _ = draw(2, 3)
    _, k, v = draw(1, 3, seed=1)
    wanted = FORMS[name](q, k.expand(2, 3, 5, 4), v.expand(2, 3, 5, 3), causal=True)
    same(FORMS[name](q, k, v, causal=True), wanted)
    same(FORMS[name](q, k[0], v, causal=True), wanted)


@every_form
@pytest.mark.parametrize("queries", [1, 3])
def test_a_cache_puts_the_queries_last(name, queries):
    q, k, v = draw(2, 3)
    whole = FORMS[name](q, k, v, causal=True)
    found = FORMS[name](q[..., -queries:, :], k, v, causal=True)
    same(found, whole[..., -queries:, :])
    mask = torch.tensor([True, False, True, True, True]).expand(2, 1, 1, 5)
    whole = FORMS[name](q, k, v, causal=True, attn_mask=mask)
    same(FORMS[name](q[..., -queries:, :], k, v, causal=True, attn_mask=mask), whole[..., -queries:, :])


def test_torch_itself_aligns_at_the_other_corner():
    q, k, v = draw(2, 3, queries=3)
    first = scaled_dot_product_attention(q, k, v, is_causal=True)
    same(first, attention(q, k[..., :3, :], v[..., :3, :], causal=True))
    assert not torch.allclose(first, attention(q, k, v, causal=True))
    same(attention(q, k, v, causal=True), naive_attention(q, k, v, causal=True))


@every_form
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("lead", [(2,), (2, 3), (2, 3, 2)])
def test_padding_masks_are_one_row_a_sequence(name, causal, lead):
    q, k, v = draw(*lead)
    padding = torch.tensor([[True, True, True, False, False], [True, False, True, True, True]])
    mask = padding.reshape(2, *[1] * len(lead), 5)
    wanted = FORMS[name](q, k, v, attn_mask=mask, causal=causal)
    k, v = (x.masked_fill(~mask.mT, math.nan) for x in (k, v))
    found = FORMS[name](q, k, v, padding_mask=padding, causal=causal)
    same(found, wanted)
    both = FORMS[name](q, k, v, padding_mask=padding, attn_mask=mask | True, causal=causal)
    same(both, wanted)


@pytest.mark.parametrize("form", [attention, naive_attention])
def test_a_float32_mask_with_bfloat16(form):
    q, k, v = draw(2, 3, dtype=torch.bfloat16)
    keep = torch.rand(2, 1, 5, 5, generator=torch.Generator().manual_seed(0)) > 0.3
    keep[..., 0] = True
    found = form(q, k, v, attn_mask=torch.zeros(keep.shape).masked_fill(~keep, -math.inf))
    assert found.dtype == torch.bfloat16
    same(found, form(q, k, v, attn_mask=keep), 2**-7)
    least = torch.zeros(keep.shape).masked_fill(~keep, torch.finfo(torch.float32).min)
    same(form(q, k, v, attn_mask=least), found, 2**-7)


def test_a_padding_mask_closes_a_mask_that_is_added():
    q, k, v = draw(2, 3)
    padding = torch.tensor([[True] * 3 + [False] * 2, [True] * 5])
    added = torch.randn(5, 5, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    wanted = attention(q, k, v, attn_mask=added.masked_fill(~padding[:, None, None], -math.inf))
    same(attention(q, k, v, attn_mask=added, padding_mask=padding), wanted)


def test_scale_means_the_scores():
    q, k, v = draw(2, 3)
    kernel = partial(linear_attention, q, k, v)
    same(kernel(feature_map=Quadratic(), scale=0.3), kernel(feature_map=Quadratic(scale=0.3)))
    same(ridge_attention(q, k, v, penalty=1, scale=0.3), 0.3 * ridge_attention(q, k, v, penalty=1))
    many = positive_features(4, 200_000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    small = 0.5 * q[0, 0], 0.5 * k[0, 0], v[0, 0]
    found = random_feature_attention(*small, features=many, scale=0.3)
    same(found, scaled_dot_product_attention(*small, scale=0.3), 0.01)
    assert not torch.allclose(found, scaled_dot_product_attention(*small), atol=0.01)


def test_dropout_drops_weights_and_keeps_their_mean():
    q, k, _ = draw(keys=400, queries=1)
    torch.manual_seed(0)
    out = attention(q, k, torch.eye(400, dtype=torch.float64), dropout_p=0.25)
    share = float((out == 0).double().mean())
    assert 0.17 < share < 0.33
    kept = out[out != 0] / attention(q, k, torch.eye(400, dtype=torch.float64))[out != 0]
    same(kept, torch.full_like(kept, 4 / 3))


@every_linear_form
def test_refused_with_a_reason(name):
    q, k, v = draw(2, 6)
    form = LINEAR[name]
    for call, reason in (
        (lambda: form(q, k, v, attn_mask=torch.zeros(5, 5)), "no scores it could be added to"),
        (lambda: form(q, k, v, attn_mask=torch.ones(5, 5).bool()), "the same for all queries"),
        (lambda: form(q, k[:, :2], v[:, :2]), "same leading dimensions.* enable_gqa=True"),
        (lambda: form(q, k[:, :4], v[:, :4], enable_gqa=True), "got 6, 4 and 4 heads"),
        (
            lambda: form(q, k, v, padding_mask=torch.ones(5, 2).bool()),
            r"of shape \(2, 5\), .* got .* \(5, 2\)",
        ),
        (lambda: form(q, k, v, padding_mask=torch.ones(2, 5)), "must be boolean"),
        (lambda: form(q, k[..., :3, :], v[..., :3, :], causal=True), "as many keys as queries, got 5"),
    ):
        with pytest.raises(ValueError, match=reason):
            call()
    with pytest.raises(TypeError, match="unexpected keyword argument 'dropout_p'"):
        form(q, k, v, dropout_p=0.1)


def test_softmax_refuses_what_is_no_probability():
    with pytest.raises(ValueError, match="between 0 and 1, without 1, got 1"):
        attention(*draw(), dropout_p=1)
