"""The checks that all attention functions share."""

import pytest
import torch

from course_lib.attention.shapes import check_causal, check_qkv, key_weights, merge_leading


def qkv(queries=3, keys=5, width=4, values=2, lead=(2, 6), dtype=torch.float32):
    return (
        torch.zeros(*lead, queries, width, dtype=dtype),
        torch.zeros(*lead, keys, width, dtype=dtype),
        torch.zeros(*lead, keys, values, dtype=dtype),
    )


@pytest.mark.parametrize("lead", [(), (2,), (2, 3), (2, 3, 1)])
def test_good_shapes_pass(lead):
    check_qkv(*qkv(lead=lead))


@pytest.mark.parametrize(
    ("index", "shape", "message"),
    [
        (0, (4,), r"q must have shape \(..., seq, head_dim\), got \(4,\)"),
        (1, (2, 6, 5, 3), "same head_dim, got 4 and 3"),
        (2, (2, 6, 4, 2), "same length, got 5 and 4"),
        (1, (2, 5, 5, 4), r"same leading dimensions, got q \(2, 6, 3, 4\) and k \(2, 5, 5, 4\)"),
    ],
)
def test_bad_shapes_are_named(index, shape, message):
    tensors = list(qkv())
    tensors[index] = torch.zeros(shape)
    with pytest.raises(ValueError, match=message):
        check_qkv(*tensors)


def test_dtypes_are_checked():
    q, k, v = qkv()
    with pytest.raises(ValueError, match=r"share dtype and device.*k torch.float64"):
        check_qkv(q, k.double(), v)
    with pytest.raises(ValueError, match=r"q must be floating point, got torch.int64"):
        check_qkv(q.long(), k, v)


def test_causal_queries_are_the_last_tokens():
    q, k, _ = qkv()
    with pytest.raises(ValueError, match="as many keys as queries, got 5 queries and 3 keys"):
        check_causal(k, q)
    check_causal(q, k)
    check_causal(k, k)


def test_key_weights_are_zero_where_the_mask_is_false():
    _, k, _ = qkv()
    mask = torch.tensor([True, False, True, True, False])[None]
    weights = key_weights(mask, k)
    assert weights.shape == (2, 6, 5, 1)
    assert weights[1, 2, :, 0].tolist() == [1, 0, 1, 1, 0]
    assert key_weights(None, k) is None


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        (torch.ones(1, 5), "must be boolean"),
        (torch.ones(3, 5, dtype=torch.bool), r"must have shape \(..., 1, 5\)"),
        (torch.ones(5, dtype=torch.bool), r"must have shape \(..., 1, 5\)"),
        (torch.ones(7, 1, 1, 5, dtype=torch.bool), "does not broadcast"),
    ],
)
def test_masks_that_depend_on_the_query_are_refused(mask, message):
    _, k, _ = qkv()
    with pytest.raises(ValueError, match=message):
        key_weights(mask, k)


def test_merging_shares_memory():
    q, _, _ = qkv()
    assert merge_leading(q).shape == (12, 3, 4)
    assert merge_leading(q).data_ptr() == q.data_ptr()
    assert merge_leading(torch.zeros(3, 4)).shape == (1, 3, 4)
    assert merge_leading(torch.zeros(2, 3, 0, 4)).shape == (6, 0, 4)
