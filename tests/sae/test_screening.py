"""The largest features found by estimates in small integers, against those of the whole product."""

import pytest
import torch
from torch.nn.functional import normalize

from course_lib import devices
from course_lib.sae import CrosscoderSparseAutoencoder, TopKSparseAutoencoder, kernels, screening

N, D, FEATURES, K = 700, 64, 1024, 8


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def drawn(*, bias=0.1, outlier=1.0):
    """States, of which one dimension is `outlier` times as large, weights and biases."""
    states = torch.randn(N, D, generator=seeded())
    states[:, 5] *= outlier
    weights = normalize(torch.randn(FEATURES, D, generator=seeded(1)), dim=1)
    return states, weights, bias * torch.randn(FEATURES, generator=seeded(2))


def by_column(code):
    """Columns in order with their values."""
    columns, order = code.columns.view(N, K).sort(dim=1)
    return columns, code.values.view(N, K).gather(1, order)


@pytest.fixture
def whole_rows(monkeypatch):
    """How many rows were done again as a whole, counted while code runs."""
    found = []

    def largest(pre, k, largest=kernels.largest):
        if pre.dtype == torch.float32 and pre.shape[1] == FEATURES:  # it calls itself on maxima of groups
            found.append(len(pre))
        return largest(pre, k)

    monkeypatch.setattr(kernels, "largest", largest)
    return found


needs_products = pytest.mark.skipif(not hasattr(torch, "_int_mm"), reason="this torch has no integer product")


@needs_products
@pytest.mark.parametrize("bias", [0, 0.1, 3])
@pytest.mark.parametrize("outlier", [1, 30, 3000])
def test_screened_codes_are_those_of_the_whole_product(bias, outlier):
    states, weights, biases = drawn(bias=bias, outlier=outlier)
    screened = screening.screened(states, weights, biases, k=K)
    exact = kernels.topk_code(states, weights, biases, k=K, compute_dtype=torch.float32)
    assert torch.equal(screened.offsets, exact.offsets)
    assert torch.equal(screened.rows, exact.rows)
    (ours, values), (theirs, expected) = by_column(screened), by_column(exact)
    assert torch.equal(ours, theirs)
    torch.testing.assert_close(values, expected, rtol=2e-6, atol=2e-6 * expected.max().item())


@needs_products
def test_without_the_second_look_codes_would_differ(monkeypatch):
    """What it is for: sixteen spare entries and doubts that are never raised are not enough behind an outlier."""
    states, weights, biases = drawn(outlier=3000)
    exact = kernels.topk_code(states, weights, biases, k=K, compute_dtype=torch.float32)
    monkeypatch.setattr(screening, "SAFE", -torch.inf)
    screened = screening.screened(states, weights, biases, k=K)
    alike = (by_column(screened)[0] == by_column(exact)[0]).all(dim=1)
    assert not alike.all()


@needs_products
def test_few_rows_are_done_again(whole_rows):
    """Estimates are good enough for nearly all rows, and for few of them where one dimension is far larger."""
    screening.screened(*drawn(), k=K)
    assert sum(whole_rows) <= 0.02 * N
    whole_rows.clear()
    screening.screened(*drawn(outlier=3000), k=K)
    assert 0.1 * N <= sum(whole_rows) <= 0.3 * N


@needs_products
def test_zeros_and_numbers_that_are_not_finite_pass_through():
    states, weights, biases = drawn()
    nothing = screening.screened(states, torch.zeros_like(weights), torch.zeros_like(biases), k=K)
    assert (nothing.values == 0).all()
    exact = kernels.topk_code(states, weights, biases, k=K, compute_dtype=torch.float32)
    for bad in (torch.nan, torch.inf):
        for table in (t.clone() for t in (states, weights, biases)):
            table.view(-1)[3] = bad
            tables = [table if t.shape == table.shape else t for t in (states, weights, biases)]
            code = screening.screened(*tables, k=K)
            expected = kernels.topk_code(*tables, k=K, compute_dtype=torch.float32)
            assert torch.equal(code.values.isnan(), expected.values.isnan())
            assert not torch.equal(code.values, exact.values)


def calls(monkeypatch, *, int8, d_model=64, n_features=16384, dtype=torch.float32):
    """Whether a training loss of TopK looks at estimates first."""
    seen = []
    monkeypatch.setattr(devices, "multiplies_int8", lambda device: int8)
    monkeypatch.setattr(screening, "screened", lambda *args, k: (seen.append(k), kernels.topk_code(
        *args, k=k, compute_dtype=torch.float32))[1])  # fmt: skip
    model = TopKSparseAutoencoder(d_model, n_features, k=4, generator=seeded()).to(dtype)
    model.training_loss(torch.randn(40, d_model, generator=seeded(1)).to(dtype))
    return seen


def test_it_is_for_large_float32_encoders_where_integers_are_fast(monkeypatch):
    assert calls(monkeypatch, int8=True) == [4]
    assert calls(monkeypatch, int8=False) == []
    assert calls(monkeypatch, int8=True, n_features=4096) == []
    assert calls(monkeypatch, int8=True, dtype=torch.float64) == []


@needs_products
@pytest.mark.parametrize("kind", ["topk", "crosscoder"])
def test_losses_and_gradients_are_the_same(kind, monkeypatch):
    if kind == "topk":
        model = TopKSparseAutoencoder(D, FEATURES, k=K, generator=seeded())
    else:
        model = CrosscoderSparseAutoencoder(D, FEATURES, sites=(24, 40), k=K, generator=seeded())
    states, _, _ = drawn()
    found = []
    for fast in (True, False):
        monkeypatch.setattr(devices, "multiplies_int8", lambda device, fast=fast: fast)
        monkeypatch.setattr(screening, "SMALLEST", 0)
        loss = model.training_loss(states)["total"]
        found.append((loss, torch.autograd.grad(loss, list(model.parameters()))))
    (ours, our_gradients), (theirs, their_gradients) = found
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=0)
    for a, b in zip(our_gradients, their_gradients, strict=True):
        assert (a - b).abs().max() <= 2e-6 * b.abs().max()
