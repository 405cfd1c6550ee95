"""Newton-Schulz: worked examples by hand, best polynomials, and what they make of a matrix in every form and dtype."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.flop_counter import FlopCounterMode

from course_lib.optimization import newton_schulz as module
from course_lib.optimization.newton_schulz import (
    CUBIC,
    FLAT,
    JORDAN,
    LOWER,
    minimax_composition,
    minimax_quintic,
    newton_schulz_step,
    odd_polynomial,
    orthogonality_error,
    orthogonalize,
    polar_express,
    polar_factor,
)
from course_lib.optimization.steepest_descent import orthogonal_factor

SEEDS = st.integers(0, 2**31)
SIZES = st.integers(1, 12)
BF16, F32, F64 = torch.bfloat16, torch.float32, torch.float64
# Coefficients of arXiv:2505.16932, Algorithm 1.
PUBLISHED = (
    (8.28721201814563, -23.595886519098837, 17.300387312530933),
    (4.107059111542203, -2.9478499167379106, 0.5448431082926601),
    (3.9486908534822946, -2.908902115962949, 0.5518191394370137),
    (3.3184196573706015, -2.488488024314874, 0.51004894012372),
    (2.300652019954817, -1.6689039845747493, 0.4188073119525673),
    (1.891301407787398, -1.2679958271945868, 0.37680408948524835),
    (1.8750014808534479, -1.2500016453999487, 0.3750001645474248),
    (1.875, -1.25, 0.375),
)


def rng(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = F64) -> torch.Tensor:
    return torch.randn(shape, generator=rng(seed), dtype=F64).to(dtype)


def basis(size: int, count: int, seed: int) -> torch.Tensor:
    return torch.linalg.qr(normal(size, count, seed=seed + 1))[0]


def numbers(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=F64)


def close(a: torch.Tensor, b: torch.Tensor, tolerance: float) -> None:
    torch.testing.assert_close(a, b, rtol=0, atol=tolerance)


# Worked examples


def test_the_orbit_of_one_half_under_the_cubic():
    orbit = [Fraction(1, 2)]
    for _ in range(3):
        orbit.append((3 * orbit[-1] - orbit[-1] ** 3) / 2)
    assert orbit == [
        Fraction(1, 2),
        Fraction(11, 16),
        Fraction(7117, 8192),
        Fraction(1072353284651, 2**40),
    ]
    s = numbers(0.5)
    for exact in orbit[1:]:
        s = odd_polynomial(s, CUBIC)
        assert float(s) == pytest.approx(float(exact), abs=1e-15)
    assert float(s) == pytest.approx(0.9752996308188813, abs=1e-15)


def test_where_the_cubic_leaves_its_region():
    start = numbers(2, math.sqrt(3), math.sqrt(5), -math.sqrt(5), 1, 0)
    close(odd_polynomial(start, CUBIC), numbers(-1, 0, -math.sqrt(5), math.sqrt(5), 1, 0), 2e-15)


@pytest.mark.parametrize(
    ("s0", "limit"), [(1.732, 1), (1.733, -1), (0.001, 1), (2, -1), (2.2, 1), (2.23, -1)]
)
def test_where_the_cubic_goes(s0, limit):
    s = numbers(s0)
    for _ in range(60):
        s = odd_polynomial(s, CUBIC)
    assert float(s) == pytest.approx(limit, abs=1e-12)


def test_the_cubic_diverges_above_sqrt_5():
    s = numbers(2.24)
    for _ in range(8):
        s = odd_polynomial(s, CUBIC)
    assert abs(float(s)) > 1e6


def test_flops_of_the_left_and_right_form():
    left = lambda W: 1.5 * W - 0.5 * (W @ W.T) @ W  # noqa: E731
    right = lambda W: 1.5 * W - 0.5 * W @ (W.T @ W)  # noqa: E731
    gram = lambda W: W @ W.T  # noqa: E731

    def flops(function, rows, columns):
        with FlopCounterMode(display=False) as counter:
            function(torch.empty(rows, columns, device="meta"))
        return counter.get_total_flops()

    assert (flops(left, 4096, 1024), flops(right, 4096, 1024)) == (68_719_476_736, 17_179_869_184)
    assert (flops(left, 96, 24), flops(right, 96, 24)) == (884_736, 221_184)
    assert flops(gram, 96, 24) == 442_368 == 2 * 96**2 * 24 != 2 * 96 * 24


def test_polynomials_at_one():
    one = numbers(1)
    assert float(odd_polynomial(one, JORDAN)) == pytest.approx(0.701, abs=1e-12)
    assert float(odd_polynomial(one, FLAT)) == 1
    slopes = [sum(k * power for k, power in zip(p, (1, 3, 5), strict=True)) for p in (CUBIC, JORDAN, FLAT)]
    assert slopes == pytest.approx([0, -0.723, 0], abs=1e-12)


# Minimax polynomials


INTERVALS = st.tuples(st.floats(1e-4, 0.999), st.floats(0.1, 3)).map(lambda t: (t[0] * t[1], t[1]))


@given(INTERVALS)
def test_the_minimax_error_is_reached_four_times_with_alternating_signs(interval):
    lower, upper = interval
    (a, b, c), error = minimax_quintic(lower, upper)
    roots = np.roots([5 * c, 3 * b, a])
    points = numbers(lower, *sorted(np.sqrt(roots.real)), upper)
    errors = 1 - odd_polynomial(points, (a, b, c))
    # Near a point interval the four equations are all but dependent: their solution loses digits, not the error.
    assert errors.tolist() == pytest.approx([error, -error, error, -error], abs=1e-11)
    grid = torch.linspace(lower, upper, 2001, dtype=F64)
    assert float((1 - odd_polynomial(grid, (a, b, c))).abs().max()) <= error + 1e-10


@given(INTERVALS, SEEDS, st.floats(1e-4, 1))
def test_no_other_quintic_is_closer_to_one(interval, seed, spread):
    lower, upper = interval
    quintic, error = minimax_quintic(lower, upper)
    change = spread * normal(3, seed=seed)
    other = tuple(k * (1 + float(d)) for k, d in zip(quintic, change, strict=True))
    grid = torch.cat([torch.linspace(lower, upper, 4001, dtype=F64), numbers(lower, upper)])
    assert float((1 - odd_polynomial(grid, other)).abs().max()) >= error * (1 - 1e-4) - 1e-10


@given(st.floats(1e-4, 0.9), st.floats(0.1, 10))
def test_minimax_quintics_scale_with_their_interval(lower, upper):
    (a, b, c), error = minimax_quintic(lower, 1)
    scaled, same = minimax_quintic(lower * upper, upper)
    assert same == pytest.approx(error, abs=1e-10)
    assert scaled == pytest.approx((a / upper, b / upper**3, c / upper**5), rel=1e-5)


def test_on_a_short_interval_the_best_quintic_is_flat_at_one():
    assert minimax_quintic(1, 1)[0] == FLAT
    assert minimax_quintic(0.99, 1.01)[0] == pytest.approx(FLAT, abs=1e-3)
    assert minimax_quintic(2, 2)[0] == (15 / 16, -10 / 64, 3 / 256)


def test_the_table_can_be_made_while_torch_computes_no_numbers():
    """The first call may come while a model is traced."""
    with FakeTensorMode(), torch.device("meta"):
        made = polar_express.__wrapped__(4)
    assert made == polar_express(4)


def test_the_composition_is_the_published_table():
    found, _ = minimax_composition(LOWER, 8, cushion=module.CUSHION)
    for ours, theirs in zip(found, PUBLISHED, strict=True):
        assert ours == pytest.approx(theirs, abs=1e-8)


@given(st.floats(1e-4, 0.5), st.integers(1, 6), st.sampled_from([0.0, 0.02, 0.1]))
def test_a_composition_errs_by_what_it_says(lower, steps, cushion):
    quintics, error = minimax_composition(lower, steps, cushion=cushion)
    s = torch.cat([torch.logspace(math.log10(lower), 0, 3000, dtype=F64), numbers(lower, 1)]).clamp(lower, 1)
    for quintic in quintics:
        s = odd_polynomial(s, quintic)
    assert float((1 - s).abs().max()) == pytest.approx(error, abs=1e-9)


def test_five_different_quintics_beat_five_equal_ones():
    s = torch.logspace(-3, 0, 5000, dtype=F64)
    worst = {}
    for name, schedule in {
        "composition": minimax_composition(1e-3, 5)[0],
        "jordan": [JORDAN] * 5,
        "cubic": [CUBIC] * 5,
        "flat": [FLAT] * 5,
        "first repeated": [minimax_quintic(1e-3, 1)[0]] * 5,
    }.items():
        values = s
        for quintic in schedule:
            values = odd_polynomial(values, quintic)
        worst[name] = float((values - 1).abs().max())
    assert worst["composition"] == pytest.approx(0.1134, abs=1e-3)
    assert all(other > 4 * worst["composition"] for name, other in worst.items() if name != "composition")


def test_the_safety_factor_stretches_every_quintic_but_the_last():
    plain, safe = polar_express(4, safety=1), polar_express(4, safety=1.1)
    s = torch.linspace(0.1, 1, 7, dtype=F64)
    for k in range(3):
        close(odd_polynomial(s, safe[k]), odd_polynomial(s / 1.1, plain[k]), 1e-12)
    assert safe[3] == plain[3]


@pytest.mark.parametrize("ends", [(0, 1), (-1, 1), (2, 1), (0.5, math.inf), (math.nan, 1)])
def test_intervals_that_are_none_are_refused(ends):
    with pytest.raises(ValueError, match="lower and upper must satisfy"):
        minimax_quintic(*ends)


@pytest.mark.parametrize("wrong", [{"lower": 0}, {"lower": 1.5}, {"steps": 0}, {"cushion": -0.1}])
def test_compositions_that_are_none_are_refused(wrong):
    with pytest.raises(ValueError, match="lower must lie in"):
        minimax_composition(**{"lower": 0.1, "steps": 2, **wrong})


# Singular values, and nothing else


every_form = pytest.mark.parametrize("form", ["plain", "gram"])


@every_form
@pytest.mark.parametrize("coefficients", ["polar_express", "jordan", "cubic", [CUBIC, FLAT]])
@given(seed=SEEDS, rows=SIZES, columns=SIZES, exponent=st.floats(-5, 0), steps=st.integers(1, 8))
def test_only_singular_values_change(form, coefficients, seed, rows, columns, exponent, steps):
    short = min(rows, columns)
    values = torch.logspace(0, exponent, short, dtype=F64)
    left, right = basis(rows, short, seed), basis(columns, short, seed + 2)
    found = orthogonalize(
        left * values @ right.T, steps, coefficients=coefficients, norm="frobenius", form=form
    )
    schedule = {
        "jordan": [JORDAN] * steps,
        "cubic": [CUBIC] * steps,
        "polar_express": polar_express(steps),
    }.get(coefficients if isinstance(coefficients, str) else "", [CUBIC, *[FLAT] * steps][:steps])
    expected = values / values.norm()
    for quintic in schedule:
        expected = odd_polynomial(expected, quintic)
    # What the Gram form takes for a small singular value is known up to rounding / s, and grows by a at each step.
    close(found, left * expected @ right.T, 1e-10 if form == "plain" else 1e-6)


@given(SEEDS, SIZES, SIZES, st.sampled_from(["jordan", "cubic"]), st.integers(1, 5))
def test_the_fast_forms_agree_with_the_step_as_it_is_written(seed, rows, columns, name, steps):
    matrix = normal(rows, columns, seed=seed)
    X = matrix / torch.linalg.matrix_norm(matrix)
    for _ in range(steps):
        X = newton_schulz_step(X, {"jordan": JORDAN, "cubic": CUBIC}[name])
    for form in ("plain", "gram"):
        found = orthogonalize(matrix, steps, coefficients=name, norm="frobenius", form=form)
        close(found, X, 1e-9)


@given(SEEDS, SIZES, SIZES, st.sampled_from([F32, F64, BF16]))
def test_the_gram_norm_lies_between_the_spectral_and_the_frobenius_norm(seed, rows, columns, dtype):
    matrix = normal(rows, columns, seed=seed).to(dtype).double()
    values = torch.linalg.svdvals(matrix)
    size = torch.linalg.matrix_norm(matrix @ matrix.T).sqrt()
    assert float(values[0]) <= float(size) * (1 + 1e-12)
    assert float(size) <= float(values.norm()) * (1 + 1e-12)
    # One linear "step" with a = 1 shows the scaled matrix itself.
    found = orthogonalize(matrix.to(dtype), 1, coefficients=[(1.0, 0.0, 0.0)], norm="gram", form="plain")
    torch.testing.assert_close(
        found.double(), matrix / size, rtol=0.03 if dtype == BF16 else 1e-5, atol=1e-12
    )


# Orthogonality


@every_form
@given(
    seed=SEEDS,
    rows=st.integers(1, 40),
    columns=st.integers(1, 40),
    batch=st.lists(st.integers(1, 3), max_size=2),
    condition=st.floats(0, 2.5),
)
def test_five_steps_bring_every_singular_value_near_one(form, seed, rows, columns, batch, condition):
    short = min(rows, columns)
    values = torch.logspace(0, -condition, short, dtype=F64)
    matrices = torch.stack(
        [
            basis(rows, short, seed + 3 * k) * values @ basis(columns, short, seed + 3 * k + 1).T
            for k in range(math.prod(batch))
        ]
    ).reshape(*batch, rows, columns)
    found = torch.linalg.svdvals(orthogonalize(matrices.float(), form=form))
    # 5 steps cover [0.001, 1] after division by a norm of at most sqrt(40) times the largest singular value.
    assert float(found.max()) <= 1.13
    assert float(found.min()) >= min(0.87, 250 * 10**-condition / short**0.5)
    exact = torch.linalg.svdvals(orthogonalize(matrices, 20, form="plain"))
    close(exact, torch.ones_like(exact), 1e-9)


@pytest.mark.parametrize("spectrum", ["gaussian", "harmonic"])
def test_five_bfloat16_steps_reach_an_error_of_a_fifth(spectrum):
    n = 256
    if spectrum == "gaussian":
        matrix = normal(n, n, dtype=F32)
    else:
        matrix = (basis(n, n, 3) / torch.arange(1, n + 1) @ basis(n, n, 4).T).float()
    assert float(orthogonality_error(orthogonalize(matrix, compute_dtype=BF16))) <= 0.2
    jordan = orthogonalize(matrix, coefficients="jordan", norm="frobenius", compute_dtype=BF16)
    assert float(orthogonality_error(jordan)) >= 0.3


def test_the_error_is_the_norm_of_the_gram_matrix_minus_one():
    X = normal(5, 9)
    expected = torch.linalg.matrix_norm(X @ X.T - torch.eye(5, dtype=F64)) / math.sqrt(5)
    close(orthogonality_error(X), expected, 1e-12)
    close(orthogonality_error(X.T), expected, 1e-12)
    close(orthogonality_error(torch.stack([X, 2 * X]))[0], expected, 1e-12)
    assert float(orthogonality_error(torch.zeros(3, 4))) == 1


HARD = {  # spectra on which rounding in the Gram matrix matters
    "1/k": lambda k: 1 / np.arange(1, k + 1),
    "one large": lambda k: np.r_[1, np.full(k - 1, 0.1)],
    "logarithmic": lambda k: np.logspace(0, -4, k),
    "low rank": lambda k: np.r_[np.ones(4), np.full(k - 4, 1e-5)],
}


@pytest.mark.parametrize("spectrum", list(HARD))
def test_the_gram_form_does_not_blow_up_where_singular_values_drown_in_rounding(spectrum):
    matrix = (basis(256, 64, 0) * torch.tensor(HARD[spectrum](64), dtype=F64) @ basis(64, 64, 1).T).float()
    for dtype, steps in itertools.product((BF16, torch.float16, F32), (5, 8)):
        gram, plain = (
            orthogonalize(matrix, steps, compute_dtype=dtype, form=form) for form in ("gram", "plain")
        )
        assert float(torch.linalg.matrix_norm(gram, ord=2)) <= 1.2, (dtype, steps)
        if spectrum != "low rank":  # where most directions are rounding, in either form
            bound = float(orthogonality_error(plain)) + 0.08
            assert float(orthogonality_error(gram)) <= bound, (dtype, steps)


def test_without_computing_the_gram_matrix_anew_it_does_blow_up(monkeypatch):
    matrix = (basis(512, 128, 0) / torch.arange(1, 129) @ basis(128, 128, 1).T).float()
    assert float(orthogonalize(matrix, compute_dtype=BF16, form="gram").abs().max()) < 1
    monkeypatch.setattr(module, "GRAM_GROWTH", math.inf)
    broken = orthogonalize(matrix, compute_dtype=BF16, form="gram")
    assert not float(broken.abs().max()) < 1000


@pytest.mark.parametrize(
    ("dtype", "coefficients", "phases"),
    [
        (BF16, "polar_express", (1, 2, 2)),
        (F32, "polar_express", (5,)),
        (BF16, "jordan", (2, 2, 1)),
    ],
)
@pytest.mark.parametrize("shape", [(40, 10), (10, 40)])
def test_flops_of_both_forms(dtype, coefficients, phases, shape):
    short, long = sorted(shape)

    def flops(form):
        with FlopCounterMode(display=False) as counter:
            empty = torch.empty(shape, device="meta", dtype=dtype)
            orthogonalize(empty, coefficients=coefficients, form=form)
        return counter.get_total_flops()

    assert flops("plain") == 5 * (4 * short**2 * long + 2 * short**3)
    # In a phase of j steps: X X^T and P X; j squares of A, j - 1 products for P, 2 (j - 1) for A.
    expected = sum(4 * short**2 * long + (4 * j - 3) * 2 * short**3 for j in phases)
    assert flops("gram") == expected
    assert flops("auto") == expected


def test_auto_takes_the_plain_form_below_the_aspect():
    with FlopCounterMode(display=False) as counter:
        orthogonalize(torch.empty(10, 24, device="meta"))
    assert counter.get_total_flops() == 5 * (4 * 100 * 24 + 2 * 1000)


@pytest.mark.parametrize("shape", [(256, 700), (700, 257), (2, 300, 800)])
def test_a_gram_matrix_multiplied_by_halves_is_the_gram_matrix(shape):
    X = normal(*shape)
    whole = X.mT @ X if shape[-2] > shape[-1] else X @ X.mT
    found = module._half_multiplied_gram(X)
    close(found, whole, 1e-10)


# Scale, shape, dtype, memory


@pytest.mark.parametrize("dtype", [F32, F64, BF16])
@pytest.mark.parametrize("options", [{}, {"coefficients": "jordan", "norm": "frobenius"}, {"form": "gram"}])
@given(seed=SEEDS, exponent=st.integers(-100, 100))
def test_a_power_of_two_changes_nothing(dtype, options, seed, exponent):
    matrix = normal(6, 9, seed=seed, dtype=dtype)
    scaled = matrix * 2.0**exponent
    assert torch.equal(orthogonalize(scaled, **options), orthogonalize(matrix, **options))


@pytest.mark.parametrize("compute_dtype", [F32, BF16])
@pytest.mark.parametrize("shape", [(16, 16), (64, 16)])
def test_the_result_does_not_depend_on_the_scale(compute_dtype, shape):
    matrix = normal(*shape, dtype=F32)
    expected = orthogonalize(matrix, compute_dtype=compute_dtype)
    for scale in (1e-37, 1e-30, 1e-12, 1e12, 1e30):
        found = orthogonalize(scale * matrix, compute_dtype=compute_dtype)
        # Products with powers of ten are rounded: bfloat16 has 8 bits, and five steps multiply them.
        close(found, expected, 2e-5 if compute_dtype == F32 else 0.1)
        assert float(torch.linalg.matrix_norm(found, ord=2)) == pytest.approx(1, abs=0.15), scale


def test_subnormal_numbers_are_orthogonalized():
    matrix = 1e-40 * normal(4, 4, dtype=F32)
    assert 0 < float(matrix.abs().max()) < torch.finfo(F32).tiny
    assert float(orthogonality_error(orthogonalize(matrix, 12))) <= 1e-2
    half = (1e-7 * normal(4, 4)).half()
    assert torch.isfinite(orthogonalize(half)).all()


@pytest.mark.parametrize("form", ["plain", "gram"])
@pytest.mark.parametrize("norm", ["gram", "frobenius"])
def test_zeros_stay_zero_also_beside_others(form, norm):
    matrix = torch.zeros(3, 4, 8)
    matrix[1] = normal(4, 8, dtype=F32)
    found = orthogonalize(matrix, form=form, norm=norm)
    assert torch.equal(found[0], torch.zeros(4, 8))
    assert torch.equal(found[2], torch.zeros(4, 8))
    close(found[1], orthogonalize(matrix[1], form=form, norm=norm), 1e-5)
    rows = normal(4, 8, dtype=F32)
    rows[2] = 0
    assert torch.equal(orthogonalize(rows, form=form, norm=norm)[2], torch.zeros(8))


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_numbers_that_are_none_are_not_hidden(bad):
    matrix = torch.eye(4)
    matrix[0, 0] = bad
    assert torch.isnan(orthogonalize(matrix)).any()


@pytest.mark.parametrize("dtype", [BF16, torch.float16, F32, F64])
@pytest.mark.parametrize("compute_dtype", [None, BF16, F32])
def test_dtype_shape_and_memory(dtype, compute_dtype):
    for shape in ((8, 8), (5, 8), (24, 8), (2, 8, 30), (2, 3, 4, 4), (1, 1), (1, 7), (7, 1)):
        matrix = normal(*shape).to(dtype)
        before = matrix.clone()
        found = orthogonalize(matrix, compute_dtype=compute_dtype)
        assert (found.dtype, found.shape, found.device) == (dtype, matrix.shape, matrix.device)
        assert torch.equal(matrix, before), shape
        assert found.untyped_storage().data_ptr() != matrix.untyped_storage().data_ptr(), shape
        assert found.is_contiguous(), shape
        assert float(torch.linalg.svdvals(found.float()).max()) < 1.2, shape


@given(SEEDS, st.integers(1, 10), st.integers(1, 30))
def test_transposed_inputs_give_transposed_outputs(seed, rows, columns):
    matrix = normal(rows, columns, seed=seed)
    close(orthogonalize(matrix.T), orthogonalize(matrix).T, 1e-9)


@given(SEEDS, st.integers(1, 3), st.integers(1, 6), st.integers(1, 20))
def test_a_batch_is_its_matrices(seed, count, rows, columns):
    matrices = normal(2, count, rows, columns, seed=seed)
    found = orthogonalize(matrices)
    for i in range(2):
        for j in range(count):
            close(found[i, j], orthogonalize(matrices[i, j]), 1e-9)


@pytest.mark.parametrize("shape", [(0, 4), (4, 0), (0, 3, 3)])
def test_nothing_gives_nothing(shape):
    assert orthogonalize(torch.zeros(shape)).shape == shape
    assert polar_factor(torch.zeros(shape)).shape == shape


def test_float16_does_not_overflow_on_long_rows():
    found = orthogonalize(torch.ones(2, 70_000, dtype=torch.float16))
    assert torch.isfinite(found).all()


def test_gradients_flow_through_it():
    matrix = normal(3, 5).requires_grad_()
    assert torch.autograd.gradcheck(lambda m: orthogonalize(m, 2, form="plain"), matrix)


@pytest.mark.parametrize(
    ("matrix", "options", "message"),
    [
        (torch.zeros(4), {}, "two dimensions or more, got shape \\(4,\\)"),
        (torch.zeros(()), {}, "two dimensions or more"),
        (torch.zeros(2, 2, dtype=torch.int64), {}, "real floating-point numbers, got torch.int64"),
        (torch.zeros(2, 2, dtype=torch.complex64), {}, "real floating-point numbers, got torch.complex64"),
        (torch.zeros(2, 2), {"compute_dtype": torch.int8}, "compute_dtype must be of real"),
        (torch.zeros(2, 2), {"coefficients": "newton"}, "got 'newton'"),
        (torch.zeros(2, 2), {"coefficients": []}, "sequence of triples"),
        (torch.zeros(2, 2), {"coefficients": [(1.0, 2.0)]}, "sequence of triples"),
        (torch.zeros(2, 2), {"norm": "spectral"}, "norm must be one of"),
        (torch.zeros(2, 2), {"form": "fast"}, "form must be one of"),
        *((torch.zeros(2, 2), {"steps": steps}, "steps must be a whole number") for steps in (0, -1, True)),
    ],
)
def test_what_cannot_be_orthogonalized_is_refused(matrix, options, message):
    with pytest.raises(ValueError, match=message):
        _untyped(orthogonalize)(matrix, **options)


@pytest.mark.parametrize("steps", [math.inf, math.nan, 2.5, "five", None])
def test_steps_that_are_no_whole_number_are_refused(steps):
    with pytest.raises(ValueError, match="steps must be a whole number"):
        _untyped(orthogonalize)(torch.zeros(2, 2), steps)


def _untyped(function):
    """The function without the type checks that the tests switch on, as users have it."""
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    return function


# The exact factor


@pytest.mark.parametrize("method", ["auto", "svd", "iteration"])
@given(seed=SEEDS, rows=SIZES, columns=SIZES, condition=st.floats(0, 3))
def test_the_polar_factor_is_that_of_the_decomposition(method, seed, rows, columns, condition):
    short = min(rows, columns)
    values = torch.logspace(0, -condition, short, dtype=F64)
    left, right = basis(rows, short, seed), basis(columns, short, seed + 2)
    matrix = left * values @ right.T
    found = polar_factor(matrix, method=method)
    close(found, left @ right.T, 1e-5)
    close(found, orthogonal_factor(matrix), 1e-5)
    assert float(orthogonality_error(polar_factor(matrix.float(), method=method))) <= 2e-5


def test_the_polar_factor_of_a_batch_of_rank_deficient_matrices():
    matrices = torch.stack([torch.outer(numbers(1, 2, 2), numbers(3, 4)), torch.zeros(3, 2).double()])
    found = polar_factor(matrices)
    close(found[0], torch.outer(numbers(1, 2, 2) / 3, numbers(3, 4) / 5), 1e-12)
    assert torch.equal(found[1], torch.zeros(3, 2, dtype=F64))
    assert torch.isfinite(polar_factor(matrices, method="iteration")).all()


@pytest.mark.parametrize("dtype", [BF16, torch.float16])
def test_the_polar_factor_in_half_precision_is_computed_in_float32(dtype):
    matrix = normal(6, 4).to(dtype)
    found = polar_factor(matrix)
    assert found.dtype == dtype
    close(found.double(), orthogonal_factor(matrix.double()), 1e-2)


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_the_polar_factor_does_not_depend_on_the_scale(scale):
    matrix = normal(6, 4, dtype=F32)
    for method in ("svd", "iteration"):
        close(polar_factor(scale * matrix, method=method), polar_factor(matrix), 1e-4)


def test_a_wrong_method_is_refused():
    with pytest.raises(ValueError, match="method must be"):
        _untyped(polar_factor)(torch.eye(2), method="eigh")
