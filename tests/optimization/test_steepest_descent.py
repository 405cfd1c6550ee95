"""Steepest steps in five norms: worked examples by hand, then properties of norms, steps and their dual."""

import math

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from course_lib.optimization.steepest_descent import (
    MOST_COORDINATES,
    NORMS,
    constrained_step,
    dual_norm,
    lp_step,
    orthogonal_factor,
    penalized_objective,
    penalized_step,
    primal_norm,
    smoothness,
    unit_direction,
)

VECTOR_NORMS = ("l1", "l2", "linf")
MATRIX_NORMS = ("spectral", "rms_to_rms")
SEEDS = st.integers(0, 2**31)
SIZES = st.integers(1, 6)
POSITIVE = st.floats(0.01, 10.0)
every_norm = pytest.mark.parametrize("norm", NORMS)


def vector(*entries: float) -> torch.Tensor:
    return torch.tensor(entries, dtype=torch.float64)


def rng(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def normal(*shape: int, generator: torch.Generator) -> torch.Tensor:
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def orthogonal(n: int, *, generator: torch.Generator) -> torch.Tensor:
    return torch.linalg.qr(normal(n, n, generator=generator))[0]


def inner(a: torch.Tensor, b: torch.Tensor) -> float:
    return float((a * b).sum())


def close(a: torch.Tensor, b: torch.Tensor, tolerance: float = 1e-9) -> None:
    torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


# Worked examples


GRADIENT = vector(3, -1, 2)


def test_l2_step_and_value_by_hand():
    step = penalized_step(GRADIENT, norm="l2", alpha=0.4)
    close(step, vector(-3 / 5, 1 / 5, -2 / 5), 1e-15)
    assert float(penalized_objective(GRADIENT, step, norm="l2", alpha=0.4)) == pytest.approx(
        -7 / 5, abs=1e-14
    )


def test_linf_step_and_value_by_hand():
    step = penalized_step(GRADIENT, norm="linf", alpha=0.4)
    close(step, vector(-6 / 5, 6 / 5, -6 / 5), 1e-15)
    value = float(penalized_objective(GRADIENT, step, norm="linf", alpha=0.4))
    assert value == pytest.approx(-18 / 5, abs=1e-14)


def test_l1_step_and_value_by_hand():
    step = penalized_step(GRADIENT, norm="l1", alpha=0.4)
    close(step, vector(-3 / 5, 0, 0), 1e-15)
    assert float(penalized_objective(GRADIENT, step, norm="l1", alpha=0.4)) == pytest.approx(-0.9, abs=1e-14)


def test_constrained_steps_by_hand():
    assert constrained_step(GRADIENT, norm="linf", radius=0.5).tolist() == [-0.5, 0.5, -0.5]
    assert constrained_step(GRADIENT, norm="l1", radius=0.5).tolist() == [-0.5, 0, 0]
    l2 = constrained_step(GRADIENT, norm="l2", radius=1)
    close(l2, -GRADIENT / math.sqrt(14), 1e-15)
    assert inner(GRADIENT, l2) == pytest.approx(-3.7416573867739413, abs=1e-14)


def test_the_printed_objectives_without_the_square_have_no_minimum():
    # g = (3, -1, 2) and alpha = 0.4: along -g both terms are proportional to the length.
    def l2(t):
        return inner(GRADIENT, -t * GRADIENT) + float((t * GRADIENT).norm()) / 0.4

    def linf(m):
        return inner(GRADIENT, -m * GRADIENT.sign()) + m / 0.4

    assert l2(1) == pytest.approx(2.5 * math.sqrt(14) - 14, abs=1e-12)
    assert l2(10) == pytest.approx(10 * l2(1), abs=1e-11)
    assert l2(1) == pytest.approx(-4.65, abs=0.005)
    assert linf(1.2) == pytest.approx(-4.2, abs=1e-12)
    assert linf(12) == pytest.approx(-42, abs=1e-11)


def test_a_zero_entry_may_move_freely():
    gradient = vector(3, 0, 2)
    values = [
        float(penalized_objective(gradient, vector(-1, middle, -1), norm="linf", alpha=0.4))
        for middle in (-1, -0.3, 0, 1)
    ]
    assert values == pytest.approx([-2.5] * 4, abs=1e-14)
    assert penalized_step(gradient, norm="linf", alpha=0.4).tolist() == pytest.approx([-1, 0, -1], abs=1e-14)


def test_matrix_norms_by_hand():
    matrix = torch.tensor([[3.0, 0, 0, 0], [0, -4, 0, 0]], dtype=torch.float64)
    assert float(primal_norm(matrix, norm="spectral")) == pytest.approx(4, abs=1e-14)
    assert float(dual_norm(matrix, norm="spectral")) == pytest.approx(7, abs=1e-14)
    # d_in / d_out = 2.
    assert float(primal_norm(matrix, norm="rms_to_rms")) == pytest.approx(4 * math.sqrt(2), abs=1e-14)
    assert float(dual_norm(matrix, norm="rms_to_rms")) == pytest.approx(7 / math.sqrt(2), abs=1e-14)
    step = constrained_step(matrix, norm="rms_to_rms", radius=0.2)
    close(step, -0.2 / math.sqrt(2) * matrix.sign(), 1e-14)


def test_48_by_12_of_spectral_norm_2_has_rms_norm_1():
    matrix = torch.zeros(48, 12, dtype=torch.float64)
    matrix[5, 7] = -2
    assert float(primal_norm(matrix, norm="rms_to_rms")) == pytest.approx(1, abs=1e-14)


# Norms and their duals


@every_norm
@given(SEEDS, SIZES, SIZES, st.floats(-5, 5))
def test_they_are_norms(norm, seed, rows, columns, factor):
    generator = rng(seed)
    a, b = (normal(rows, columns, generator=generator) for _ in range(2))
    for measure in (primal_norm, dual_norm):
        length = {k: float(measure(m, norm=norm)) for k, m in (("a", a), ("b", b), ("a+b", a + b))}
        assert length["a"] > 0
        assert length["a+b"] <= length["a"] + length["b"] + 1e-12
        assert float(measure(factor * a, norm=norm)) == pytest.approx(abs(factor) * length["a"], abs=1e-12)


@every_norm
@given(SEEDS, SIZES, SIZES)
def test_the_dual_norm_is_the_largest_gain_of_a_unit_step(norm, seed, rows, columns):
    generator = rng(seed)
    gradient, other = (normal(rows, columns, generator=generator) for _ in range(2))
    dual, best = float(dual_norm(gradient, norm=norm)), unit_direction(gradient, norm=norm)
    assert inner(gradient, other) <= dual * float(primal_norm(other, norm=norm)) + 1e-12
    assert inner(gradient, best) == pytest.approx(dual, rel=1e-12)
    assert float(primal_norm(best, norm=norm)) == pytest.approx(1, rel=1e-12)


@given(SEEDS, SIZES)
def test_l1_and_linf_are_each_others_duals(seed, n):
    x = normal(n, generator=rng(seed))
    assert torch.equal(dual_norm(x, norm="l1"), primal_norm(x, norm="linf"))
    assert torch.equal(dual_norm(x, norm="linf"), primal_norm(x, norm="l1"))


@given(SEEDS, SIZES, SIZES)
def test_the_rms_norm_bounds_the_rms_of_the_output(seed, rows, columns):
    generator = rng(seed)
    matrix, x = normal(rows, columns, generator=generator), normal(columns, generator=generator)
    output, size = (matrix @ x).square().mean().sqrt(), x.square().mean().sqrt()
    norm = float(primal_norm(matrix, norm="rms_to_rms"))
    assert output <= norm * size + 1e-12
    top = torch.linalg.svd(matrix)[2][0]
    reached = (matrix @ top).square().mean().sqrt() / top.square().mean().sqrt()
    assert float(reached) == pytest.approx(norm, rel=1e-12)


# Steps


@every_norm
@given(SEEDS, SIZES, SIZES, POSITIVE)
def test_a_constrained_step_has_the_radius_and_reaches_the_bound(norm, seed, rows, columns, radius):
    gradient = normal(rows, columns, generator=rng(seed))
    step = constrained_step(gradient, norm=norm, radius=radius)
    assert float(primal_norm(step, norm=norm)) == pytest.approx(radius, rel=1e-12)
    dual = float(dual_norm(gradient, norm=norm))
    assert inner(gradient, step) == pytest.approx(-radius * dual, rel=1e-12)


@every_norm
@given(SEEDS, SIZES, SIZES, POSITIVE, st.floats(1e-3, 3))
def test_a_penalized_step_is_lowest(norm, seed, rows, columns, alpha, spread):
    generator = rng(seed)
    gradient = normal(rows, columns, generator=generator)
    step = penalized_step(gradient, norm=norm, alpha=alpha)
    value = float(penalized_objective(gradient, step, norm=norm, alpha=alpha))
    dual = float(dual_norm(gradient, norm=norm))
    assert float(primal_norm(step, norm=norm)) == pytest.approx(alpha / 2 * dual, rel=1e-12)
    assert value == pytest.approx(-alpha / 4 * dual**2, rel=1e-10)
    other = step + spread * normal(rows, columns, generator=generator)
    assert float(penalized_objective(gradient, other, norm=norm, alpha=alpha)) >= value - 1e-10 * abs(value)


@every_norm
@given(SEEDS, POSITIVE, POSITIVE)
def test_only_the_penalized_step_grows_with_the_gradient(norm, seed, alpha, factor):
    gradient = normal(3, 4, generator=rng(seed))
    close(
        constrained_step(factor * gradient, norm=norm, radius=0.3),
        constrained_step(gradient, norm=norm, radius=0.3),
    )
    step = penalized_step(gradient, norm=norm, alpha=alpha)
    close(penalized_step(factor * gradient, norm=norm, alpha=alpha), factor * step)
    radius = alpha / 2 * float(dual_norm(gradient, norm=norm))
    close(step, constrained_step(gradient, norm=norm, radius=radius))


@given(SEEDS, SIZES, st.floats(1.02, 50), POSITIVE)
def test_the_lp_step_has_the_radius_and_reaches_the_bound_of_hoelder(seed, n, p, radius):
    gradient = normal(n, generator=rng(seed))
    step = lp_step(gradient, p=p, radius=radius)
    assert float(torch.linalg.vector_norm(step, ord=p)) == pytest.approx(radius, rel=1e-10)
    dual = float(torch.linalg.vector_norm(gradient, ord=p / (p - 1)))
    assert inner(gradient, step) == pytest.approx(-radius * dual, rel=1e-10)


@pytest.mark.parametrize(("p", "norm"), [(1, "l1"), (2, "l2"), (math.inf, "linf")])
@given(seed=SEEDS, n=SIZES)
def test_the_named_vector_norms_are_lp_norms(p, norm, seed, n):
    gradient = normal(n, generator=rng(seed))
    close(lp_step(gradient, p=p, radius=0.3), constrained_step(gradient, norm=norm, radius=0.3), 1e-12)


@pytest.mark.parametrize("p", [1, 1.001, 2, 7, math.inf])
def test_the_lp_step_of_zeros_and_of_tiny_gradients(p):
    assert lp_step(vector(0, 0), p=p, radius=1.0).abs().tolist() == [0, 0]
    close(lp_step(1e-200 * GRADIENT, p=p, radius=1.0), lp_step(GRADIENT, p=p, radius=1.0))


# Orthogonalisation


@given(SEEDS, SIZES, SIZES, st.floats(-8, 0))
def test_the_orthogonal_factor_has_singular_values_one(seed, rows, columns, exponent):
    generator = rng(seed)
    left, _, right = torch.linalg.svd(normal(rows, columns, generator=generator), full_matrices=False)
    values = torch.logspace(0, exponent, min(rows, columns), dtype=torch.float64)
    factor = orthogonal_factor(left * values @ right)
    close(torch.linalg.svdvals(factor), torch.ones_like(values), 1e-12)
    close(factor, left @ right, 1e-6)


@given(SEEDS, st.integers(2, 6), st.integers(2, 6))
def test_rank_deficient_matrices_keep_their_zero_directions(seed, rows, columns):
    generator = rng(seed)
    rank = min(rows, columns) - 1
    matrix = normal(rows, rank, generator=generator) @ normal(rank, columns, generator=generator)
    assume(float(torch.linalg.svdvals(matrix)[rank - 1]) > 1e-6)
    factor = orthogonal_factor(matrix)
    values = torch.linalg.svdvals(factor)
    close(values, torch.cat([torch.ones(rank), torch.zeros(len(values) - rank)]).double())
    assert inner(matrix, factor) == pytest.approx(float(dual_norm(matrix, norm="spectral")), rel=1e-9)


@every_norm
@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_directions_of_tiny_and_huge_float32_gradients(norm, scale):
    gradient = normal(3, 2, generator=rng(2)).float()
    found = unit_direction(scale * gradient, norm=norm)
    torch.testing.assert_close(found, unit_direction(gradient, norm=norm), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("scale", [1e-150, 1e-30, 1e30, 1e150])
def test_orthogonalisation_does_not_depend_on_the_scale(scale):
    matrix = normal(4, 3, generator=rng(0))
    close(orthogonal_factor(scale * matrix), orthogonal_factor(matrix))


def test_on_diagonal_matrices_orthogonalisation_is_sign_descent():
    matrix = torch.diag(vector(2, -0.3, 0, 5))
    close(orthogonal_factor(matrix), matrix.sign(), 1e-12)


# Invariances


@given(SEEDS, SIZES, SIZES)
def test_the_l2_step_turns_with_every_rotation(seed, rows, columns):
    generator = rng(seed)
    gradient = normal(rows, columns, generator=generator)
    turn = orthogonal(rows * columns, generator=generator)

    def apply(x):
        return (turn @ x.flatten()).reshape(rows, columns)

    step = constrained_step(apply(gradient), norm="l2", radius=0.7)
    close(step, apply(constrained_step(gradient, norm="l2", radius=0.7)))


@pytest.mark.parametrize("norm", VECTOR_NORMS)
@given(seed=SEEDS, n=SIZES)
def test_vector_steps_follow_signed_permutations(norm, seed, n):
    generator = rng(seed)
    gradient, order = normal(n, generator=generator), torch.randperm(n, generator=generator)
    signs = normal(n, generator=generator).sign()
    step = constrained_step(signs * gradient[order], norm=norm, radius=0.7)
    close(step, signs * constrained_step(gradient, norm=norm, radius=0.7)[order])


@pytest.mark.parametrize("norm", ["l1", "linf"])
def test_l1_and_linf_steps_do_not_turn_with_rotations(norm):
    c, s = math.cos(0.6), math.sin(0.6)
    turn = torch.tensor([[c, -s], [s, c]], dtype=torch.float64)
    gradient = vector(2, 1)
    turned = constrained_step(turn @ gradient, norm=norm, radius=1.0)
    assert (turned - turn @ constrained_step(gradient, norm=norm, radius=1.0)).norm() > 0.3


@pytest.mark.parametrize("norm", MATRIX_NORMS)
@given(seed=SEEDS, rows=SIZES, columns=SIZES)
def test_matrix_steps_turn_with_orthogonal_factors_on_both_sides(norm, seed, rows, columns):
    generator = rng(seed)
    gradient = normal(rows, columns, generator=generator)
    assume(float(torch.linalg.svdvals(gradient)[-1]) > 1e-4)
    left, right = orthogonal(rows, generator=generator), orthogonal(columns, generator=generator)
    step = constrained_step(left @ gradient @ right, norm=norm, radius=0.7)
    close(step, left @ constrained_step(gradient, norm=norm, radius=0.7) @ right, 1e-8)


@given(SEEDS, SIZES, SIZES)
def test_steps_do_not_read_entry_sizes_or_singular_values(seed, rows, columns):
    generator = rng(seed)
    gradient = normal(rows, columns, generator=generator)
    scales = normal(rows, columns, generator=generator).exp()
    assert torch.equal(
        constrained_step(scales * gradient, norm="linf", radius=0.7),
        constrained_step(gradient, norm="linf", radius=0.7),
    )
    left, values, right = torch.linalg.svd(gradient, full_matrices=False)
    assume(float(values[-1]) > 1e-4)
    others = 0.1 + torch.rand(len(values), generator=generator, dtype=torch.float64)
    close(
        constrained_step(left * others @ right, norm="spectral", radius=0.7),
        constrained_step(gradient, norm="spectral", radius=0.7),
        1e-8,
    )


# Smoothness


@pytest.mark.parametrize("norm", VECTOR_NORMS)
@given(seed=SEEDS, n=SIZES)
def test_each_step_goes_down_as_far_as_its_norm_promises(norm, seed, n):
    generator = rng(seed)
    root, w = normal(n, n, generator=generator), normal(n, generator=generator)
    hessian = root @ root.T
    bound, gradient = float(smoothness(hessian, norm=norm)), hessian @ w
    new = w + penalized_step(gradient, norm=norm, alpha=2 / bound)
    fall = float(w @ hessian @ w - new @ hessian @ new) / 2
    assert fall >= float(dual_norm(gradient, norm=norm)) ** 2 / (2 * bound) * (1 - 1e-9)
    step = normal(n, generator=generator)
    assert inner(step, hessian @ step) <= bound * float(primal_norm(step, norm=norm)) ** 2 * (1 + 1e-9)


def test_smoothness_of_a_diagonal_by_hand():
    hessian = torch.diag(vector(100, 1, 1, 0))
    found = {norm: float(smoothness(hessian, norm=norm)) for norm in VECTOR_NORMS}
    assert found == pytest.approx({"l1": 100, "l2": 100, "linf": 102}, abs=1e-10)
    coupled = torch.tensor([[2.0, -1.0], [-1.0, 2.0]], dtype=torch.float64)
    assert float(smoothness(coupled, norm="linf")) == pytest.approx(6, abs=1e-12)
    assert float(smoothness(coupled, norm="l2")) == pytest.approx(3, abs=1e-12)


# PyTorch's optimisers


def first_step(optimizer_class, gradient, **options):
    weights = torch.zeros_like(gradient, requires_grad=True)
    weights.grad = gradient.clone()
    optimizer_class([weights], lr=0.1, **options).step()
    return weights.detach()


@given(SEEDS)
def test_torch_sgd_and_adam_take_the_l2_and_the_linf_step(seed):
    gradient = normal(3, 4, generator=rng(seed))
    close(first_step(torch.optim.SGD, gradient), penalized_step(gradient, norm="l2", alpha=0.2), 1e-14)
    adam = first_step(torch.optim.Adam, gradient)
    close(adam, -0.1 * gradient / (gradient.abs() + 1e-8), 1e-12)


def test_torch_muon_is_near_the_spectral_step_but_not_on_it():
    gradient = torch.randn(32, 64, generator=rng(3))
    exact = constrained_step(gradient, norm="spectral", radius=0.1)
    step = first_step(torch.optim.Muon, gradient, weight_decay=0.0)
    assert 0.1 < float((step - exact).norm() / exact.norm()) < 0.35


# Edges, dtypes and errors


@every_norm
def test_a_zero_gradient_gives_a_zero_step(norm):
    zero = torch.zeros(2, 3, dtype=torch.float64)
    for step in (constrained_step(zero, norm=norm, radius=1.0), penalized_step(zero, norm=norm, alpha=1.0)):
        assert torch.equal(step.abs(), zero)
    assert float(dual_norm(zero, norm=norm)) == 0


def test_l1_moves_the_first_of_several_largest_entries_and_keeps_the_shape():
    gradient = torch.tensor([[1.0, -3.0], [3.0, 2.0]])
    assert constrained_step(gradient, norm="l1", radius=1.0).tolist() == [[0, 1], [0, 0]]


@every_norm
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dtype_and_shape_follow_the_input(norm, dtype):
    gradient = torch.tensor([[1.0, 2, 3], [0, -1, 1]], dtype=dtype)
    for step in (
        constrained_step(gradient, norm=norm, radius=0.1),
        penalized_step(gradient, norm=norm, alpha=0.1),
    ):
        assert (step.dtype, step.shape) == (dtype, gradient.shape)
    assert primal_norm(gradient, norm=norm).dtype == dual_norm(gradient, norm=norm).dtype == dtype


@pytest.mark.parametrize("norm", VECTOR_NORMS)
def test_vector_norms_take_any_shape(norm):
    gradient = normal(2, 3, 4, generator=rng(1))
    step = constrained_step(gradient, norm=norm, radius=1.0)
    close(step.flatten(), constrained_step(gradient.flatten(), norm=norm, radius=1.0))


CALLS = (
    primal_norm,
    dual_norm,
    unit_direction,
    lambda x, norm: constrained_step(x, norm=norm, radius=1.0),
    lambda x, norm: penalized_step(x, norm=norm, alpha=1.0),
    lambda x, norm: penalized_objective(x, x, norm=norm, alpha=1.0),
)


@pytest.mark.parametrize("call", CALLS)
def test_an_unknown_norm_is_refused(call):
    with pytest.raises(ValueError, match=r"norm must be one of .*'rms_to_rms'.*, got 'l3'"):
        call(GRADIENT, norm="l3")


@pytest.mark.parametrize("norm", MATRIX_NORMS)
@pytest.mark.parametrize("call", CALLS)
def test_a_matrix_norm_of_a_vector_is_refused(call, norm):
    with pytest.raises(ValueError, match=rf"norm '{norm}' needs a matrix, got a tensor of shape \(3,\)"):
        call(GRADIENT, norm=norm)


@pytest.mark.parametrize("radius", [-0.1, math.nan, math.inf])
def test_a_radius_that_is_no_length_is_refused(radius):
    with pytest.raises(ValueError, match="radius must be a finite number, 0 or more"):
        constrained_step(GRADIENT, norm="l2", radius=radius)
    for p in (1, 3, math.inf):
        with pytest.raises(ValueError, match="radius must be a finite number, 0 or more"):
            lp_step(GRADIENT, p=p, radius=radius)


@pytest.mark.parametrize("p", [0.5, 0, -1, math.nan])
def test_a_p_below_one_is_refused(p):
    with pytest.raises(ValueError, match="p must be 1 or more"):
        lp_step(GRADIENT, p=p, radius=1.0)


@pytest.mark.parametrize("alpha", [0.0, -1.0, math.nan, math.inf])
def test_an_alpha_that_is_no_price_is_refused(alpha):
    with pytest.raises(ValueError, match="alpha must be a finite number above 0"):
        penalized_step(GRADIENT, norm="l2", alpha=alpha)


def test_smoothness_refuses_what_it_cannot_bound():
    with pytest.raises(ValueError, match='norm must be "l1", "l2" or "linf", got \'spectral\''):
        smoothness(torch.eye(2), norm="spectral")
    for hessian in (torch.tensor([[1.0, 1.0], [0.0, 1.0]]), torch.diag(torch.tensor([1.0, -1.0]))):
        with pytest.raises(ValueError, match="symmetric positive semi-definite"):
            smoothness(hessian, norm="l1")
    with pytest.raises(ValueError, match=f"hessian has {MOST_COORDINATES + 1} rows"):
        smoothness(torch.eye(MOST_COORDINATES + 1), norm="linf")
