"""What stands in a key that no query may look at takes no part: not in outputs, not in gradients, whatever it is."""

import contextlib
import math
from functools import partial

import pytest
import torch

from course_lib.attention.kernelized import (
    Quadratic,
    elu_features,
    exp_similarity,
    kernel_attention,
    linear_attention,
)
from course_lib.attention.random_features import (
    positive_features,
    random_feature_attention,
    trigonometric_features,
)
from course_lib.attention.ridge import ridge_attention
from course_lib.attention.scaled_dot_product import (
    argmax_attention,
    attention,
    naive_attention,
    qk_norm_attention,
)

FORMS = {
    "attention": attention,
    "naive": naive_attention,
    "qk norm": partial(qk_norm_attention, scale=3.0),
    "argmax": argmax_attention,
    "kernel": partial(kernel_attention, similarity=exp_similarity),
    "linear": partial(linear_attention, feature_map=elu_features, chunk_size=2),
    "quadratic": partial(linear_attention, feature_map=Quadratic(), chunk_size=2),
    **{
        f"{make.__name__}": partial(
            random_feature_attention,
            features=make(4, 20, generator=torch.Generator().manual_seed(0), dtype=torch.float64),
            chunk_size=2,
        )
        for make in (positive_features, trigonometric_features)
    },
    **{
        f"ridge {method}": partial(ridge_attention, penalty=0.5, method=method)
        for method in ("chunk", "sherman_morrison", "cholesky", "solve")
    },
}
MASK = torch.tensor([[False, True, True, False, True, False]])


def inputs(padding, hidden=~MASK[0]):
    """Queries, keys and values (2, 6, 4), with `padding` in the rows of keys and values that are hidden."""
    generator = torch.Generator().manual_seed(1)
    q, k, v = torch.randn(3, 2, 6, 4, dtype=torch.float64, generator=generator)
    k[:, hidden] = v[:, hidden] = padding
    return [x.requires_grad_() for x in (q, k, v)]


def results(form, tensors, **options):
    """Output and gradients."""
    out = form(*tensors, **options)
    return [out.detach(), *torch.autograd.grad(out.square().sum(), tensors, allow_unused=True)]


@pytest.mark.parametrize("padding", [math.nan, math.inf])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", FORMS)
def test_padding_may_hold_anything(name, causal, padding):
    form = partial(FORMS[name], causal=causal)
    if name == "kernel" and causal:  # its definition gives a query without keys 0/0
        form = lambda *a, **o: FORMS[name](*a, causal=True, **o)[:, 1:]  # noqa: E731
    wanted = results(form, inputs(0.0), attn_mask=MASK)
    found = results(form, inputs(padding), attn_mask=MASK)
    assert found[0].isfinite().all()
    for a, b in zip(found, wanted, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0, equal_nan=True)
    # The nearest wrong neighbour: the same in a key that is seen. (A factorisation of it raises.)
    with contextlib.suppress(RuntimeError):
        assert not form(*inputs(padding, hidden=MASK[0]), attn_mask=MASK).isfinite().all()


@pytest.mark.parametrize("form", [attention, naive_attention])
def test_padding_under_a_mask_that_is_added(form):
    added = torch.zeros(1, 6, dtype=torch.float64).masked_fill(~MASK, -math.inf)
    assert torch.equal(form(*inputs(math.nan), attn_mask=added), form(*inputs(0.0), attn_mask=MASK))
