"""Purification: the worked examples of the notes, closed form against descent's conditions, and one eigh for all."""

import pytest
import torch

from course_lib.representation.purification import (
    Purifier,
    penalty_for,
    purification_gradient,
    purification_loss,
    purifying_matrix,
    shrink_factors,
)

f64 = lambda *entries: torch.tensor(entries, dtype=torch.float64)  # noqa: E731
# The notes' table, one example in each row.
X = f64(-2.17, 0.02, 1.98, -0.01, 2.41, 0.01, -2.03, -0.02).reshape(4, 2)
SPECTRUM = f64(10, 8, 4, 1, 0.5, 0.36, 0.16, 0.01)


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_the_two_candidates_are_equal_at_one_thousandth_and_neither_is_best():
    alpha, beta = torch.eye(2, dtype=torch.float64), torch.diag(f64(1, 0))
    for penalty in (0.0005, 0.001, 0.002):
        first, second = (float(purification_loss(w, X, penalty)) for w in (alpha, beta))
        assert first == pytest.approx(2 * penalty, abs=1e-15)
        assert second == pytest.approx(0.001 + penalty, abs=1e-15)
    assert float(Purifier.fit(X).least_loss(0.001)) == pytest.approx(0.001499915805298743, rel=1e-12)


@pytest.mark.parametrize(
    ("penalty", "weight", "loss"),
    [
        (1 / 1000, (742287 / 742327, 30 / 742327, 30 / 742327, 371141 / 742327), 278357 / 185581750),
        (1 / 100, (4082781 / 4084981, 300 / 4084981, 300 / 4084981, 371321 / 4084981), 131003 / 12014650),
        (1 / 2, (61984707 / 63654707, 5000 / 63654707, 5000 / 63654707, 381121 / 190964121), 93167621 / 190964121),
    ],
)  # fmt: skip
def test_worked_example(penalty, weight, loss):
    torch.testing.assert_close(X.T @ X, f64(185583 / 10000, 3 / 2000, 3 / 2000, 1 / 1000).view(2, 2))
    weight = f64(*weight).view(2, 2)
    purifier = Purifier.fit(X)
    for found in (purifying_matrix(X, penalty), purifier.matrix(penalty)):
        torch.testing.assert_close(found, weight, rtol=1e-9, atol=1e-12)
    assert float(purification_loss(weight, X, penalty)) == pytest.approx(loss, rel=1e-10)
    assert float(purifier.least_loss(penalty)) == pytest.approx(loss, rel=1e-10)


def test_singular_values_of_the_worked_example():
    found = Purifier.fit(X).singular_values
    torch.testing.assert_close(found, f64(4.307934553965054, 0.031620859474630766), rtol=1e-9, atol=0)


@pytest.mark.parametrize(
    ("penalty", "factors"),
    [
        (1, (100 / 101, 64 / 65, 16 / 17, 1 / 2, 1 / 5, 81 / 706, 16 / 641, 1 / 10001)),
        (2, (50 / 51, 32 / 33, 8 / 9, 1 / 3, 1 / 9, 81 / 1331, 8 / 633, 1 / 20001)),
        (4, (25 / 26, 16 / 17, 4 / 5, 1 / 5, 1 / 17, 81 / 2581, 4 / 629, 1 / 40001)),
    ],
)
def test_factors_of_the_notes(penalty, factors):
    torch.testing.assert_close(shrink_factors(SPECTRUM, penalty), f64(*factors), rtol=1e-12, atol=0)


def test_the_notes_range_of_penalties_is_sharp():
    assert float(penalty_for(f64(4), 0.8)[0]) == pytest.approx(4)
    assert penalty_for(1.0, 0.5) == 1

    def good(penalty):
        keeps, drops = shrink_factors(SPECTRUM[:3], penalty), shrink_factors(SPECTRUM[3:], penalty)
        return bool((keeps >= 0.8 - 1e-12).all() and (drops <= 0.5 + 1e-12).all())

    assert [good(p) for p in (0.99, 1, 2.5, 4, 4.01)] == [False, True, True, True, False]


@pytest.mark.parametrize("shape", [(7, 4), (3, 5)])
def test_the_closed_form_is_stationary_least_and_symmetric(shape):
    x = normal(*shape)
    weight = purifying_matrix(x, 0.3)
    assert purification_gradient(weight, x, 0.3).abs().max() < 1e-12
    torch.testing.assert_close(weight, weight.T)
    least = purification_loss(weight, x, 0.3)
    torch.testing.assert_close(least, 0.3 * weight.trace())
    for seed in range(5):
        assert purification_loss(weight + 0.01 * normal(*weight.shape, seed=seed), x, 0.3) > least


def test_the_gradient_is_autograds():
    weight, x = normal(4, 4).requires_grad_(), normal(6, 4, seed=1)
    (wanted,) = torch.autograd.grad(purification_loss(weight, x, 0.7), weight)
    torch.testing.assert_close(purification_gradient(weight.detach(), x, 0.7), wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("chunk_rows", [1, 4, 100])
def test_one_eigh_serves_all_penalties(chunk_rows):
    x = normal(9, 4) + 3
    purifier = Purifier.fit(x, chunk_rows=chunk_rows)
    torch.testing.assert_close(purifier.singular_values, torch.linalg.svdvals(x))
    penalties = f64(0.01, 1, 100)
    for penalty, loss in zip(penalties.tolist(), purifier.least_loss(penalties), strict=True):
        wanted = purifying_matrix(x, penalty)
        torch.testing.assert_close(purifier.matrix(penalty), wanted, rtol=1e-9, atol=1e-10)
        torch.testing.assert_close(purifier.purify(x, penalty), x @ wanted, rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(loss, purification_loss(wanted, x, penalty))
    # The rows are not centred: of centred rows it would be another map.
    assert (purifying_matrix(x - x.mean(0), 1.0) - purifier.matrix(1.0)).abs().max() > 0.01


def test_equal_singular_values_and_directions_without_data():
    x = torch.diag(f64(2, 2, 0))
    torch.testing.assert_close(purifying_matrix(x, 4.0), torch.diag(f64(0.5, 0.5, 0)))
    torch.testing.assert_close(Purifier.fit(x).matrix(4.0), torch.diag(f64(0.5, 0.5, 0)))
    assert shrink_factors(f64(2, 0), 0).tolist() == [1, 0]


def test_results_follow_the_dtype_of_the_rows():
    x = normal(9, 4).float()
    purified = Purifier.fit(x).purify(x, 0.5)
    assert purified.dtype == torch.float32
    torch.testing.assert_close(purified, x @ purifying_matrix(x, 0.5))


def test_scikit_learns_ridge_agrees():
    linear = pytest.importorskip("sklearn.linear_model")
    x = normal(30, 4)
    ridge = linear.Ridge(alpha=0.7, fit_intercept=False).fit(x.numpy(), x.numpy())
    torch.testing.assert_close(purifying_matrix(x, 0.7), torch.tensor(ridge.coef_).T)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: purification_loss(normal(3, 3), X, 1.0), r"weight must have shape \(2, 2\).*got \(3, 3\)"),
        (
            lambda: purification_gradient(normal(2, 3), X, 1.0),
            r"weight must have shape \(2, 2\).*got \(2, 3\)",
        ),
        (
            lambda: purification_loss(normal(2, 2), X, -1.0),
            "penalty must be a finite number at least 0, got -1",
        ),
        (lambda: purifying_matrix(X, 0.0), "penalty must be a finite number above 0, got 0"),
        (lambda: shrink_factors(SPECTRUM, -2), "penalty must be .*got -2"),
        (lambda: penalty_for(2.0, 0.0), "factor must lie above 0 and be at most 1, got 0"),
        (lambda: penalty_for(2.0, 1.5), "factor .*got 1.5"),
        (lambda: Purifier.fit(X[:0]), "at least one row .*got 0"),
        (lambda: Purifier.fit(X, chunk_rows=0), "chunk_rows of 1 .*and 0"),
        (lambda: Purifier.fit(X / 0), "rows must hold finite numbers"),
        (lambda: Purifier.fit(X).purify(normal(3, 3), 1.0), r"x must have shape \(rows, 2\), got \(3, 3\)"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
