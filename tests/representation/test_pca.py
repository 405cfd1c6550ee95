"""Principal components against the SVD, the linear autoencoder against autograd, and the worked examples of lesson 23."""

import math
from itertools import combinations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from course_lib.representation import pca as module
from course_lib.representation.pca import (
    RunningMoments,
    critical_point,
    falling_rates,
    linear_gradients,
    linear_loss,
    pca,
    pca_by_svd,
    reconstruction_loss,
    shrinkage,
)

f64 = lambda *entries: torch.tensor(entries, dtype=torch.float64)  # noqa: E731
SPECTRUM = f64(4, 2, 1, 0.3)


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def rows(n: int = 60, d: int = 7) -> torch.Tensor:
    return normal(n, d) @ normal(d, d, seed=1) + 5 * normal(d, seed=2)


# Principal components


@pytest.mark.parametrize("block", [2, 3, 512])
def test_the_gram_matrix_by_blocks_is_the_product(block, monkeypatch):
    monkeypatch.setattr(module, "_BLOCK", block)
    x = rows()
    torch.testing.assert_close(module.gram(x), x.T @ x, rtol=1e-13, atol=1e-12)


@pytest.mark.parametrize("chunk_rows", [1, 7, 59, 60, 1000])
def test_chunks_give_what_the_svd_gives(chunk_rows):
    slow, fast = pca_by_svd(rows(), 5), pca(rows(), 5, chunk_rows=chunk_rows)
    for name in ("mean", "components", "variances", "total_variance"):
        torch.testing.assert_close(getattr(fast, name), getattr(slow, name), rtol=1e-9, atol=1e-10)
    assert fast.n_rows == slow.n_rows == 60


def test_three_points_on_a_line_and_a_tie_of_signs():
    found = pca(f64(1, 5, 3, 5, 5, 5).reshape(3, 2), 2)
    assert found.mean.tolist() == [3, 5]
    torch.testing.assert_close(found.variances, f64(8 / 3, 0))  # divided by 3 rows, not by 2
    torch.testing.assert_close(found.components, torch.eye(2, dtype=torch.float64))
    torch.testing.assert_close(found.kept(), f64(1, 1))


def test_a_large_mean_costs_no_digits():
    x = normal(500, 4) @ torch.diag(f64(4, 3, 2, 1))
    near = pca(x, 2)
    far = pca(x + 2.0**26, 2, chunk_rows=64)
    torch.testing.assert_close(far.variances, near.variances, rtol=1e-6, atol=0)
    moved = x + 2.0**26
    naive = torch.linalg.eigvalsh(moved.T @ moved / 500 - moved.mean(0).outer(moved.mean(0))).flip(0)[:2]
    assert (naive / near.variances - 1).abs().max() > 0.01


def test_projections_are_centred_uncorrelated_and_keep_the_most():
    x, found = rows(), pca(rows(), 3)
    code = found.project(x)
    torch.testing.assert_close(code.mean(0), torch.zeros(3).double(), rtol=0, atol=1e-12)
    torch.testing.assert_close(code.T @ code / 60, torch.diag(found.variances), rtol=1e-9, atol=1e-10)
    rest = (x - found.reconstruct(code)).square().sum() / 60
    torch.testing.assert_close(rest, found.total_variance - found.variances.sum())
    for seed in range(5):
        q = torch.linalg.qr(normal(7, 3, seed=seed)).Q
        assert (x - found.mean - (x - found.mean) @ q @ q.T).square().sum() / 60 > rest


def test_results_follow_the_dtype_of_the_input_and_are_fitted_in_float64():
    x = rows().float()
    found = pca(x.bfloat16(), 2)
    assert found.components.dtype == torch.float64
    assert found.project(x).dtype == found.reconstruct(found.project(x)).dtype == torch.float32
    torch.testing.assert_close(found.variances, pca_by_svd(x.bfloat16(), 2).variances, rtol=1e-9, atol=0)


def test_a_few_components_of_many_dimensions_are_those_of_the_svd():
    x = normal(300, 40) * torch.arange(1, 41).double().sqrt()
    slow, fast = pca_by_svd(x, 10), pca(x, 10)
    assert fast.components.shape == (10, 40)
    torch.testing.assert_close(fast.components, slow.components, rtol=0, atol=1e-9)
    torch.testing.assert_close(fast.variances, slow.variances, rtol=1e-12, atol=0)
    kept = pca(x.requires_grad_(), 10).variances.sum()
    assert torch.autograd.grad(kept, x)[0].norm() > 0


def test_products_in_float32_keep_the_digits_of_the_largest_variance():
    scales = torch.diag(10.0 ** torch.arange(0, -6, -0.5, dtype=torch.float64))
    x = normal(5000, 12) @ scales @ torch.linalg.qr(normal(12, 12, seed=1)).Q + 7
    exact, coarse = (pca(x, 12, products=dtype).variances for dtype in (torch.float64, torch.float32))
    error = (coarse / exact - 1).abs()
    assert (coarse - exact).abs().max() < 2e-7 * exact[0]
    assert error[:6].max() < 1e-2  # down to a hundred-thousandth of the largest
    assert error[-1] > 0.1  # 1e-11 of it: rounding


class Store:
    """Rows that can only be read by slices, and remember the longest."""

    def __init__(self, table):
        self.table, self.longest = table, 0

    def __len__(self):
        return len(self.table)

    def __getitem__(self, part):
        self.longest = max(self.longest, len(self.table[part]))
        return self.table[part]


def test_a_store_is_read_by_chunks():
    store = Store(rows())
    torch.testing.assert_close(pca(store, 2, chunk_rows=16).components, pca(rows(), 2).components)
    assert store.longest == 16


@settings(max_examples=25)
@given(cuts=st.lists(st.integers(0, 40), max_size=6), seed=st.integers(0, 5))
def test_how_rows_are_cut_does_not_matter(cuts, seed):
    x, moments = normal(40, 3, seed=seed) + 100, RunningMoments()
    for start, stop in zip([0, *sorted(cuts)], [*sorted(cuts), 40], strict=True):
        moments.update(x[start:stop])
    centred = x - x.mean(0)
    torch.testing.assert_close(moments.scatter(), centred.T @ centred, rtol=1e-9, atol=1e-9)
    assert moments.n_rows == 40


def test_scikit_learn_agrees():
    decomposition = pytest.importorskip("sklearn.decomposition")
    found, peer = pca(rows(), 3), decomposition.PCA(3, svd_solver="full").fit(rows().numpy())
    torch.testing.assert_close(found.variances * 60 / 59, torch.tensor(peer.explained_variance_))
    torch.testing.assert_close(found.components.abs(), torch.tensor(peer.components_).abs())
    torch.testing.assert_close(found.kept()[0], torch.tensor(peer.explained_variance_ratio_[0]))


# The linear autoencoder

# Each shape tells units, d_model and the number of rows apart.
W1, W2, X = normal(2, 4, seed=3), normal(4, 2, seed=4), normal(9, 4, seed=5)


def test_worked_example():
    """X = diag(2, 1), W1 = (1, 1), W2 = (1, 0)^T: loss 2, gradients (0, 2) and (2, -2)^T."""
    x, encoder, decoder = torch.diag(f64(2, 1)), f64(1, 1)[None], f64(1, 0)[:, None]
    assert reconstruction_loss(encoder, decoder, x) == linear_loss(encoder, decoder, x @ x.T) == 2
    d_encoder, d_decoder = linear_gradients(encoder, decoder, x @ x.T)
    assert (d_encoder.tolist(), d_decoder.tolist()) == ([[0, 2]], [[2], [-2]])
    losses = [float(linear_loss(*critical_point(x @ x.T, [i], 1), x @ x.T)) for i in (0, 1)]
    assert losses == [1, 4]


def test_the_loss_needs_the_rows_only_through_their_second_moment():
    torch.testing.assert_close(linear_loss(W1, W2, X.T @ X), reconstruction_loss(W1, W2, X))
    torch.testing.assert_close(
        linear_loss(W1, W2, X.T @ X / 9, 0.3),
        reconstruction_loss(W1, W2, X) / 9 + 0.3 * (W1.square().sum() + W2.square().sum()),
    )


@pytest.mark.parametrize("penalty", [0.0, 0.7, f64(0.2, 1.5)], ids=["none", "equal", "unequal"])
def test_both_gradients_are_autograds(penalty):
    leaves = [W1.clone().requires_grad_(), W2.clone().requires_grad_()]
    sizes = leaves[0].square().sum(1) + leaves[1].square().sum(0)
    loss = reconstruction_loss(*leaves, X) + (torch.as_tensor(penalty, dtype=torch.float64) * sizes).sum()
    wanted = torch.autograd.grad(loss, leaves)
    for ours, theirs in zip(linear_gradients(W1, W2, X.T @ X, penalty), wanted, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-11, atol=1e-11)
    assert torch.autograd.gradcheck(lambda a, b: linear_loss(a, b, X.T @ X, penalty), leaves)


def test_the_printed_trace_is_not_the_loss_and_the_corrected_one_is():
    s, a = X.T @ X, W2 @ W1
    loss = reconstruction_loss(W1, W2, X)
    corrected = (a @ s @ a.T - 2 * a @ s).trace() + s.trace()
    torch.testing.assert_close(corrected, loss)
    assert ((s @ a @ s @ a.T - 2 * a @ s).trace() + s.trace() - loss).abs() > loss
    (wanted,) = torch.autograd.grad(reconstruction_loss(W1, leaf := W2.clone().requires_grad_(), X), leaf)
    torch.testing.assert_close(2 * (a - torch.eye(4)) @ s @ W1.T, wanted)


def test_the_product_rule_of_a_quadratic_trace():
    """As printed, the gradient of tr(A B B A) has no place for A^T; of tr(A B A^T) it is A (B + B^T)."""
    a, b = normal(3, 3, seed=6).requires_grad_(), normal(3, 3, seed=7)
    (wanted,) = torch.autograd.grad((a @ b @ a.T).trace(), a)
    torch.testing.assert_close(wanted, (a @ (b + b.T)).detach())
    assert (2 * a @ b - wanted).abs().max() > 0.1  # right only for a symmetric B


def test_in_the_eigenbasis_the_conditions_need_the_squared_singular_values():
    u, sigma, _ = torch.linalg.svd(X.T, full_matrices=False)
    v1, v2 = W1 @ u, u.T @ W2
    rest = v2 @ v1 - torch.eye(4)
    _, d_decoder = linear_gradients(W1, W2, X.T @ X)
    torch.testing.assert_close(2 * u @ rest @ torch.diag(sigma**2) @ v1.T, d_decoder)
    assert (2 * u @ rest @ torch.diag(sigma) @ v1.T - d_decoder).abs().max() > 0.1


def hessian(encoder, decoder, second_moment, penalty):
    k, d = encoder.shape
    both = torch.cat([encoder.flatten(), decoder.flatten()])
    loss = lambda v: linear_loss(v[: k * d].view(k, d), v[k * d :].view(d, k), second_moment, penalty)  # noqa: E731
    return torch.linalg.eigvalsh(torch.autograd.functional.hessian(loss, both))


@pytest.mark.parametrize("penalty", [0.0, 0.5, 1.5])
def test_every_subset_is_stationary_and_its_falling_directions_are_those_of_the_hessian(penalty):
    q = torch.linalg.qr(normal(4, 4, seed=8)).Q
    s = q @ torch.diag(SPECTRUM) @ q.T
    alive = int((penalty < SPECTRUM).sum())
    for size in (0, 1, 2):
        for subset in combinations(range(4), size):
            weights = critical_point(s, subset, 2, penalty)
            for gradient in linear_gradients(*weights, s, penalty):
                assert gradient.abs().max() < 1e-12
            curvature = hessian(*weights, s, penalty)
            rates = falling_rates(SPECTRUM, subset, 2, penalty)
            torch.testing.assert_close(-curvature[: len(rates)], rates, rtol=1e-8, atol=1e-9)
            assert curvature[len(rates)] > -1e-9
            kept = [i for i in subset if i < alive]
            assert (len(rates) == 0) == (kept == list(range(min(2, alive))))


def test_escape_times_are_those_of_the_rates():
    """A hundredth of the deviation takes log(100) / log(1 + step_size * rate) steps more."""
    s, times = torch.diag(SPECTRUM), []
    for delta in (1e-4, 1e-6):
        encoder, decoder = critical_point(s, [0, 2], 2)
        encoder, decoder = encoder + delta * normal(2, 4, seed=9), decoder + delta * normal(4, 2, seed=10)
        steps = 0
        while linear_loss(encoder, decoder, s) > 2.2:  # the saddle has 2.3
            d_encoder, d_decoder = linear_gradients(encoder, decoder, s)
            encoder, decoder, steps = encoder - 0.02 * d_encoder, decoder - 0.02 * d_decoder, steps + 1
        times.append(steps)
    (rate,) = falling_rates(SPECTRUM, [0, 2], 2).tolist()
    wanted = math.log(100) / math.log1p(0.02 * rate)
    assert times[1] - times[0] == pytest.approx(wanted, abs=2)
    assert abs(times[1] - times[0] - 2 * wanted) > 50  # the rate is -2 mu, not -mu


@pytest.mark.parametrize(
    ("values", "units", "penalty", "factors", "loss", "orthonormal"),
    [
        ((4, 1), 1, 1.0, (3 / 4,), 11 / 4, 3),
        ((4, 2, 1, 0.3), 3, 0.5, (7 / 8, 3 / 4, 1 / 2), 229 / 80, 33 / 10),
        ((4, 2, 1, 0.3), 3, 1.5, (5 / 8, 1 / 4, 0), 449 / 80, 93 / 10),
    ],
)
def test_penalised_optimum(values, units, penalty, factors, loss, orthonormal):
    s = torch.diag(f64(*values))
    torch.testing.assert_close(shrinkage(f64(*values), penalty)[:units], f64(*factors))
    weights = critical_point(s, range(units), units, penalty)
    assert float(linear_loss(*weights, s, penalty)) == pytest.approx(loss, abs=1e-12)
    singular = torch.linalg.svdvals(weights[0])
    torch.testing.assert_close(singular, f64(*factors).sqrt())
    notes = critical_point(s, range(units), units)  # W1 W1^T = I, as the notes have it
    assert float(linear_loss(*notes, s, penalty)) == pytest.approx(orthonormal, abs=1e-12)


def test_descent_from_random_weights_reaches_the_penalised_optimum_and_no_less():
    s = torch.diag(SPECTRUM)
    for seed in range(3):
        encoder, decoder = 0.3 * normal(3, 4, seed=seed), 0.3 * normal(4, 3, seed=50 + seed)
        for _ in range(600):
            d_encoder, d_decoder = linear_gradients(encoder, decoder, s, 0.5)
            encoder, decoder = encoder - 0.05 * d_encoder, decoder - 0.05 * d_decoder
        assert float(linear_loss(encoder, decoder, s, 0.5)) == pytest.approx(229 / 80, abs=1e-6)
        torch.testing.assert_close(encoder, decoder.T, rtol=0, atol=1e-3)


def test_unequal_penalties_belong_in_rising_order():
    s, penalty = torch.diag(SPECTRUM), f64(0.2, 0.4, 0.6)
    losses = [
        float(linear_loss(*critical_point(s, order, 3, penalty), s, penalty))
        for order in ((0, 1, 2), (1, 0, 2), (2, 1, 0))
    ]
    assert losses == sorted(losses)
    assert losses[0] == pytest.approx(2.25, abs=1e-12)


def test_shrinkage_of_nothing_is_zero():
    assert shrinkage(f64(0, 2, 1), 0.0).tolist() == [0, 1, 1]
    assert shrinkage(f64(2, 2), f64(1, 4)).tolist() == [0.5, 0]


def test_steps_read_nothing_back():
    """On the meta device, which holds no numbers, a read-back raises."""
    meta = lambda t: torch.empty_like(t, device="meta")  # noqa: E731
    for penalty in (0.5, meta(f64(1, 2))):
        assert linear_loss(meta(W1), meta(W2), meta(X.T @ X), penalty).is_meta
        assert all(g.is_meta for g in linear_gradients(meta(W1), meta(W2), meta(X.T @ X), penalty))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: pca(rows(), 0), "k must be a whole number from 1 to 7 .*got 0"),
        (lambda: pca(rows(), 8), "k must be .* 1 to 7 .*got 8"),
        (lambda: pca_by_svd(rows(3, 7), 4), "k must be .* 1 to 3 .*got 4"),
        (lambda: pca(rows()[:0], 1), "rows must hold at least one row, got none"),
        (lambda: pca(rows(), 1, chunk_rows=0), "chunk_rows must be .*got 0"),
        (lambda: pca(rows() / 0, 1), "rows must hold finite numbers, got NaN or infinity"),
        (lambda: RunningMoments().pca(1), "no rows were taken in"),
        (lambda: pca(rows(), 1, products=torch.bfloat16), "products must be .*got torch.bfloat16"),
        (lambda: pca(rows(), 2).project(normal(3, 6)), r"x must have shape \(rows, 7\), got \(3, 6\)"),
        (lambda: pca(rows(), 2).reconstruct(normal(3, 3)), r"code must have shape \(rows, 2\)"),
        (lambda: linear_loss(W1, W1, X.T @ X), r"decoder must have shape \(4, 2\).*got \(2, 4\)"),
        (lambda: linear_loss(W1, W2, X), "second_moment must be a square matrix"),
        (lambda: linear_gradients(W2, W1, X.T @ X), r"encoder must have shape \(units, 4\), got \(4, 2\)"),
        (lambda: linear_loss(W1, W2, X.T @ X, -1.0), "penalty must be a finite number of at least 0, got -1"),
        (lambda: linear_loss(W1, W2, X.T @ X, f64(1, 2, 3)), r"each of the 2 units, got shape \(3,\)"),
        (lambda: critical_point(X.T @ X, [0, 0], 2), r"subset must hold different numbers .*got \[0, 0\]"),
        (lambda: critical_point(X.T @ X, [0, 1], 1), "subset must have at most 1 entries.*got 2"),
        (lambda: falling_rates(SPECTRUM, [4], 2), r"numbers from 0 to 3, got \[4\]"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
