"""Ridge attention: worked examples as fractions, four forms that agree, streaming, gradients, errors."""

import inspect
import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from course_lib.attention.ridge import (
    RidgeState,
    cholesky_update,
    conjugate_gradient,
    delta_rule,
    operations,
    ridge_attention,
    ridge_memory,
    sherman_morrison,
)

SEEDS = st.integers(0, 2**31)
LOOPS = ("sherman_morrison", "cholesky", "solve")
# Under the run-time type check, shapes are refused before the function sees them: test what it says without.
unchecked = inspect.unwrap(ridge_attention)


def tensor(rows) -> torch.Tensor:
    return torch.tensor([[float(Fraction(x)) for x in row] for row in rows], dtype=torch.float64)


def draw(seed, lead=(), queries=6, keys=6, width=4, values=3, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    shapes = ((queries, width), (keys, width), (keys, values))
    return [
        torch.randn(*lead, *shape, generator=generator, dtype=torch.float64).to(dtype) for shape in shapes
    ]


def direct(q, k, v, penalty):
    """The definition: at each token, the minimiser by plain least squares on keys with sqrt(lambda) I below."""
    rows = []
    for i in range(len(k)):
        below = math.sqrt(penalty) * torch.eye(k.shape[1], dtype=k.dtype)
        keys, values = (
            torch.cat([k[: i + 1], below]),
            torch.cat([v[: i + 1], v.new_zeros(len(below), v.shape[1])]),
        )
        rows.append(torch.linalg.lstsq(keys, values).solution.T @ q[i])
    return torch.stack(rows)


# Worked examples


def test_keys_two_values_two():
    keys, values = tensor([[1, 0], [1, 1]]), tensor([[1, 2], [3, 4]])
    memory = ridge_memory(keys, values, penalty=1)
    torch.testing.assert_close(memory, tensor([[1, "8/5"], [1, "6/5"]]))
    q = torch.ones(2, dtype=torch.float64)
    torch.testing.assert_close(memory.T @ q, tensor([[2, "14/5"]])[0])
    torch.testing.assert_close(memory @ q, tensor([["13/5", "11/5"]])[0])
    for method in ("chunk", *LOOPS):
        y = ridge_attention(q.expand(2, 2), keys, values, penalty=1, method=method)
        torch.testing.assert_close(y[1], tensor([[2, "14/5"]])[0])


def test_sherman_morrison_by_hand():
    inverse = tensor([["1/2", 0], [0, "1/4"]])
    found = sherman_morrison(inverse, torch.tensor([1.0, 2.0]).double(), torch.tensor([3.0, 1.0]).double())
    torch.testing.assert_close(found, tensor([["1/4", "-1/24"], ["-1/4", "5/24"]]))


def test_operations_of_the_example():
    counts = [operations(2048, 64, method=m) for m in ("single", "resolve", "rank_one")]
    assert counts == [8_650_752, 536_870_912, 16_777_216]


def test_an_update_multiplies_as_often_as_is_said():
    """Counted by running it: a number that counts its products, in (22.6) for a symmetric P and u = v = k."""
    count = 0

    class Counted(float):
        def __mul__(self, other):
            nonlocal count
            count += 1
            return Counted(float(self) * float(other))

        def __add__(self, other):
            return Counted(float(self) + float(other))

    d = 6
    generator = torch.Generator().manual_seed(3)
    factor, key = (
        torch.randn(d, d, generator=generator).double(),
        torch.randn(d, generator=generator).double(),
    )
    inverse = factor @ factor.T
    P, k = [[Counted(x) for x in row] for row in inverse.tolist()], [Counted(x) for x in key.tolist()]
    left = [sum((p * x for p, x in zip(row, k, strict=True)), Counted(0)) for row in P]
    products, scale = count, 1 / (1 + float(inverse @ key @ key))
    updated = [
        [p - scale * float(a * b) for p, b in zip(row, left, strict=True)]
        for row, a in zip(P, left, strict=True)
    ]
    torch.testing.assert_close(torch.tensor(updated).double(), sherman_morrison(inverse, key, key))
    assert products == d**2
    assert count == operations(1, d, method="rank_one")


# Properties


@given(SEEDS, st.integers(1, 9), st.integers(1, 5), st.floats(0.05, 10))
def test_all_forms_give_the_least_squares_solution(seed, tokens, width, penalty):
    q, k, v = draw(seed, queries=tokens, keys=tokens, width=width)
    wanted = direct(q, k, v, penalty)
    for method in LOOPS:
        torch.testing.assert_close(
            ridge_attention(q, k, v, penalty=penalty, method=method), wanted, rtol=1e-8, atol=1e-8
        )
    for size in (1, 2, 4, 32):
        for refresh in (None, 1, 2):
            y = ridge_attention(q, k, v, penalty=penalty, chunk_size=size, refresh_every=refresh)
            torch.testing.assert_close(y, wanted, rtol=1e-8, atol=1e-8)


@given(SEEDS, st.integers(1, 12), st.integers(1, 5), st.floats(0.05, 10))
def test_without_causality_both_systems_give_the_minimiser(seed, keys, width, penalty):
    q, k, v = draw(seed, queries=3, keys=keys, width=width)
    y = ridge_attention(q, k, v, penalty=penalty, causal=False)
    memory = ridge_memory(k, v, penalty=penalty)
    torch.testing.assert_close(y, q @ memory, rtol=1e-8, atol=1e-8)
    gradient = k.T @ (k @ memory - v) + penalty * memory
    assert gradient.abs().max() <= 1e-10 * (1 + (k.T @ v).abs().max())


@given(SEEDS, st.integers(1, 6))
def test_sherman_morrison_is_the_inverse(seed, size):
    generator = torch.Generator().manual_seed(seed)
    root = torch.randn(size, size, generator=generator, dtype=torch.float64)
    matrix = root @ root.T + torch.eye(size, dtype=torch.float64)
    x = torch.randn(size, generator=generator, dtype=torch.float64)
    found = sherman_morrison(torch.linalg.inv(matrix), x, x)
    torch.testing.assert_close(found, torch.linalg.inv(matrix + torch.outer(x, x)), rtol=1e-8, atol=1e-10)


@given(SEEDS, st.integers(1, 6))
def test_the_updated_factor_is_the_factor(seed, size):
    generator = torch.Generator().manual_seed(seed)
    root = torch.randn(2, size, size, generator=generator, dtype=torch.float64)
    matrix = root @ root.mT + torch.eye(size, dtype=torch.float64)
    x = torch.randn(2, size, generator=generator, dtype=torch.float64)
    found = cholesky_update(torch.linalg.cholesky(matrix), x)
    wanted = torch.linalg.cholesky(matrix + x[..., None] * x[..., None, :])
    torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-9)


@given(SEEDS, st.sampled_from([(1, 1, 1, 1, 1), (2, 1, 3), (6,), (1, 5)]))
def test_streaming_gives_what_attention_gives(seed, pieces):
    total = sum(pieces)
    q, k, v = draw(seed, lead=(2,), queries=total, keys=total)
    wanted = ridge_attention(q, k, v, penalty=0.3, method="solve")
    state, done = RidgeState.empty(2, head_dim=4, value_dim=3, penalty=0.3, dtype=torch.float64), 0
    for length in pieces:
        state = state.update(k[:, done : done + length], v[:, done : done + length])
        done += length
        last = state.read(q[:, done - 1 : done])
        torch.testing.assert_close(last, wanted[:, done - 1 : done], rtol=1e-8, atol=1e-8)
    fresh = state.refreshed()
    torch.testing.assert_close(fresh.inverse, state.inverse, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(fresh.weights, state.weights, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(fresh.inverse @ state.gram, torch.eye(4).double().expand(2, 4, 4))


@given(SEEDS)
def test_only_the_ratio_of_keys_and_penalty_matters(seed):
    q, k, v = draw(seed)
    root = math.sqrt(0.2)
    scaled = ridge_attention(q / root, k / root, v, penalty=1)
    torch.testing.assert_close(ridge_attention(q, k, v, penalty=0.2), scaled, rtol=1e-8, atol=1e-8)


@given(SEEDS)
def test_later_tokens_never_matter(seed):
    q, k, v = draw(seed, queries=20, keys=20)
    whole = ridge_attention(q, k, v, penalty=0.5, chunk_size=8)
    part = ridge_attention(q[:11], k[:11], v[:11], penalty=0.5, chunk_size=8)
    torch.testing.assert_close(whole[:11], part, rtol=1e-9, atol=1e-9)


@given(SEEDS)
def test_a_huge_penalty_leaves_linear_attention(seed):
    q, k, v = draw(seed)
    linear = (q @ k.T).tril() @ v
    y = 1e8 * ridge_attention(q, k, v, penalty=1e8)
    torch.testing.assert_close(y, linear, rtol=1e-5, atol=1e-5)


@given(SEEDS, st.floats(0.01, 10))
def test_orthonormal_keys_make_it_the_delta_rule(seed, penalty):
    q, k, v = draw(seed, queries=4, keys=4, width=4)
    k = torch.linalg.qr(k).Q
    torch.testing.assert_close(
        ridge_attention(q, k, v, penalty=penalty),
        delta_rule(q, k, v, step_size=1 / (1 + penalty)),
        rtol=1e-8,
        atol=1e-8,
    )


def test_the_delta_rule_is_one_gradient_step():
    q, k, v = draw(3, queries=1, keys=1)
    weights = torch.zeros(4, 3, dtype=torch.float64, requires_grad=True)
    (0.5 * (v[0] - weights.T @ k[0]).square().sum()).backward()
    torch.testing.assert_close(delta_rule(q, k, v, step_size=0.3), q @ (-0.3 * weights.grad))


@given(SEEDS, st.integers(1, 6))
def test_conjugate_gradients_end_after_as_many_steps_as_dimensions(seed, size):
    generator = torch.Generator().manual_seed(seed)
    root = torch.randn(2, size, size, generator=generator, dtype=torch.float64)
    matrix = root @ root.mT + 5 * torch.eye(size, dtype=torch.float64)
    right = torch.randn(2, size, 3, generator=generator, dtype=torch.float64)
    right[..., 0] = 0
    found = conjugate_gradient(matrix, right, steps=size + 3)
    torch.testing.assert_close(found, torch.linalg.solve(matrix, right), rtol=1e-7, atol=1e-8)
    assert (conjugate_gradient(matrix, right, steps=0) == 0).all()


# Masks, shapes, dtypes


@pytest.mark.parametrize("method", ["chunk", *LOOPS])
def test_masked_keys_are_not_stored(method):
    q, k, v = draw(0, lead=(2, 3), queries=9, keys=9)
    keep = torch.tensor([True, False, True, True, False, True, True, False, True])
    mask = keep.expand(2, 1, 1, 9)
    y = ridge_attention(q, k, v, penalty=0.2, attn_mask=mask, method=method, chunk_size=4)
    # The rows of kept tokens are those of the shorter sequence.
    short = ridge_attention(q[..., keep, :], k[..., keep, :], v[..., keep, :], penalty=0.2, method="solve")
    torch.testing.assert_close(y[..., keep, :], short, rtol=1e-9, atol=1e-9)
    whole = ridge_attention(q, k, v, penalty=0.2, attn_mask=mask, causal=False)
    kept = ridge_attention(q, k[..., keep, :], v[..., keep, :], penalty=0.2, causal=False)
    torch.testing.assert_close(whole, kept, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("method", ["chunk", *LOOPS])
@pytest.mark.parametrize("lead", [(), (2,), (2, 3), (2, 3, 1)])
def test_any_leading_dimensions(method, lead):
    q, k, v = draw(1, lead=lead)
    y = ridge_attention(q, k, v, penalty=0.2, method=method, chunk_size=4)
    assert y.shape == v.shape
    flat = [x.reshape(-1, *x.shape[-2:]) for x in (q, k, v)]
    rows = [ridge_attention(*parts, penalty=0.2, method="solve") for parts in zip(*flat, strict=True)]
    torch.testing.assert_close(y.reshape(-1, *y.shape[-2:]), torch.stack(rows), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("method", ["chunk", *LOOPS])
def test_no_token_at_all(method):
    q, k, v = draw(1, lead=(2,), queries=0, keys=0)
    assert ridge_attention(q, k, v, penalty=0.2, method=method).shape == (2, 0, 3)
    assert (ridge_attention(draw(1, lead=(2,))[0], k, v, penalty=0.2, causal=False) == 0).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_low_precision_is_computed_in_float32(dtype):
    q, k, v = draw(2, lead=(2,), dtype=dtype)
    wanted = ridge_attention(q.float(), k.float(), v.float(), penalty=0.5).to(dtype)
    y = ridge_attention(q, k, v, penalty=0.5)
    assert y.dtype == dtype
    assert torch.equal(y, wanted)


def test_autocast_leaves_the_factorisations_alone():
    q, k, v = draw(2, lead=(2,), dtype=torch.float32)
    wanted = ridge_attention(q, k, v, penalty=0.5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(ridge_attention(q, k, v, penalty=0.5), wanted)


def test_inputs_stay_as_they_were():
    tensors = draw(4, lead=(2,))
    before = [x.clone() for x in tensors]
    for options in ({}, {"causal": False}, {"refresh_every": 1, "chunk_size": 2}):
        with torch.no_grad():
            ridge_attention(*tensors, penalty=0.5, **options)
    assert all(torch.equal(a, b) for a, b in zip(tensors, before, strict=True))
    state = RidgeState.empty(2, head_dim=4, value_dim=3, penalty=0.5, dtype=torch.float64)
    state.update(tensors[1], tensors[2])
    assert (state.weights == 0).all()
    assert torch.equal(state.gram, 0.5 * torch.eye(4).double().expand(2, 4, 4))


# Gradients and compilation


@pytest.mark.parametrize(
    "options",
    [
        {"chunk_size": 3},
        {"chunk_size": 2, "refresh_every": 2},
        {"method": "sherman_morrison"},
        {"method": "cholesky"},
        {"method": "solve"},
        {"causal": False},
    ],
)
@pytest.mark.parametrize("width", [3, 7])
def test_gradients(options, width):
    inputs = [x.requires_grad_() for x in draw(5, lead=(2,), width=width)]
    attention = lambda *x: ridge_attention(*x, penalty=0.5, **options)  # noqa: E731
    assert torch.autograd.gradcheck(attention, inputs, fast_mode=True)


def test_gradients_reach_what_was_streamed():
    q, k, v = (x.requires_grad_() for x in draw(6))

    def stream(q, k, v):
        state = RidgeState.empty(head_dim=4, value_dim=3, penalty=0.5, dtype=torch.float64)
        return state.update(k[:1], v[:1]).update(k[1:], v[1:]).read(q)

    assert torch.autograd.gradcheck(stream, (q, k, v), fast_mode=True)


@pytest.mark.nightly
@pytest.mark.parametrize(
    "options", [{"chunk_size": 4}, {"chunk_size": 4, "refresh_every": 1}, {"causal": False}]
)
def test_compiles_without_a_graph_break(options):
    tensors = draw(7, lead=(2, 2), queries=10, keys=10)
    compiled = torch.compile(
        lambda *x: unchecked(*x, penalty=0.5, **options), fullgraph=True, backend="aot_eager"
    )
    torch.testing.assert_close(compiled(*tensors), ridge_attention(*tensors, penalty=0.5, **options))
    ours, theirs = [[x.clone().requires_grad_() for x in tensors] for _ in range(2)]
    compiled(*ours).square().sum().backward()
    ridge_attention(*theirs, penalty=0.5, **options).square().sum().backward()
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-8, atol=1e-10)


# Rounding


def unit_keys(seed, tokens=1024, width=32):
    q, k, v = draw(seed, queries=tokens, keys=tokens, width=width, values=width)
    return [torch.nn.functional.normalize(q, dim=-1), torch.nn.functional.normalize(k, dim=-1), v]


@pytest.mark.parametrize("penalty", [1, 1e-2, 1e-4])
def test_chunks_are_no_less_exact_than_the_loop_and_a_refresh_ends_the_drift(penalty):
    tensors = unit_keys(0)
    exact = ridge_attention(*tensors, penalty=penalty, method="solve")
    single = [x.float() for x in tensors]

    def error(first=0, **options):
        y = ridge_attention(*single, penalty=penalty, **options).double()
        return float((y - exact)[first:].norm() / exact[first:].norm())

    # Measured: a third to a fifth of the loop's error.
    assert error() <= error(method="sherman_morrison")
    assert error(first=512, refresh_every=8) <= 2e-6
    if penalty == 1e-4:  # the factor's error is 1.7 to 2.0e-6 for all three
        assert error(first=512, method="cholesky") <= 5e-6


# Errors


@pytest.mark.parametrize("penalty", [0, -1.0, math.inf, math.nan])
def test_penalties_that_are_none(penalty):
    q, k, v = draw(0)
    for call in (
        lambda: ridge_attention(q, k, v, penalty=penalty),
        lambda: ridge_memory(k, v, penalty=penalty),
        lambda: RidgeState.empty(head_dim=4, value_dim=3, penalty=penalty),
    ):
        with pytest.raises(ValueError, match="penalty must be a finite number above 0"):
            call()


def test_sizes_and_shapes_are_named():
    q, k, v = draw(0)
    with pytest.raises(ValueError, match="chunk_size must be 1 or more, got 0"):
        ridge_attention(q, k, v, penalty=1, chunk_size=0)
    with pytest.raises(ValueError, match="refresh_every must be 1 or more, got -2"):
        ridge_attention(q, k, v, penalty=1, refresh_every=-2)
    with pytest.raises(ValueError, match="as many keys as queries, got 6 queries and 5 keys"):
        ridge_attention(q, k[:5], v[:5], penalty=1)
    with pytest.raises(ValueError, match="same head_dim, got 3 and 4"):
        unchecked(q[:, :3], k, v, penalty=1)
    with pytest.raises(ValueError, match="method must be one of"):
        unchecked(q, k, v, penalty=1, method="woodbury")
    with pytest.raises(ValueError, match="must be boolean"):
        ridge_attention(q, k, v, penalty=1, attn_mask=torch.ones(1, 6))
    with pytest.raises(ValueError, match="as many keys as queries, got 6 queries and 5 keys"):
        inspect.unwrap(delta_rule)(q, k[:5], v[:5])
    with pytest.raises(ValueError, match="steps must be 0 or more, got -1"):
        conjugate_gradient(k.T @ k, k.T @ v, steps=-1)
    with pytest.raises(ValueError, match="tokens and head_dim must be 1 or more, got 0 and 4"):
        operations(0, 4, method="single")
    with pytest.raises(ValueError, match="method must be one of"):
        inspect.unwrap(operations)(1, 4, method="double")


def test_a_state_names_what_does_not_fit():
    state = RidgeState.empty(2, head_dim=4, value_dim=3, penalty=1, dtype=torch.float64)
    _, k, v = draw(0, lead=(2,))
    with pytest.raises(ValueError, match=r"got \(2, 6, 4\) and \(2, 6, 2\)"):
        state.update(k, v[..., :2])
    with pytest.raises(ValueError, match=r"\(\*\(2,\), keys, 4\)"):
        state.update(k[0], v[0])
    with pytest.raises(ValueError, match=r"float32 or float64, got torch\.bfloat16"):
        RidgeState.empty(head_dim=4, value_dim=3, penalty=1, dtype=torch.bfloat16)


def test_a_singular_rank_one_update_is_refused():
    eye, first = torch.eye(3, dtype=torch.float64), torch.eye(3, dtype=torch.float64)[0]
    with pytest.raises(ValueError, match="has no inverse"):
        sherman_morrison(eye, first, -first)


@pytest.mark.parametrize("method", ["chunk", "solve"])
def test_a_penalty_below_rounding_is_an_error_and_not_a_wrong_answer(method):
    k = torch.ones(40, 8) * torch.linspace(1, 3, 40)[:, None]
    k[:, 0] += 1e-4
    with pytest.raises(RuntimeError, match="use a larger penalty"):
        ridge_attention(k, k, k, penalty=1e-12, method=method, refresh_every=1, chunk_size=8)


def test_a_tensor_as_penalty_is_refused():
    q, k, v = torch.randn(3, 2, 9, 4)
    # A TypeError where annotations are checked at run time, as in `make test`.
    with pytest.raises((ValueError, TypeError), match="penalty"):
        ridge_attention(q, k, v, penalty=torch.tensor(0.5))


def test_what_the_package_offers_are_functions():
    import course_lib.attention as package

    assert all(callable(getattr(package, name)) for name in package.__all__)
    assert package.ridge_attention is ridge_attention


@pytest.mark.parametrize("size", [1e10, 1e20, 1e37])
def test_the_cholesky_form_reads_keys_whose_squares_do_not_fit_the_dtype(size):
    q, k, v = draw(0, keys=12, queries=12, dtype=torch.float32)
    long = (size * k).double()
    wanted = q[-1].double() @ torch.linalg.solve(
        long.mT @ long, long.mT @ v.double()
    )  # penalty 1 is nothing here
    found = ridge_attention(q, size * k, v, penalty=1.0, method="cholesky")[-1]
    torch.testing.assert_close(found.double(), wanted, rtol=1e-4, atol=1e-5 * wanted.abs().max().item())


@pytest.mark.parametrize("method", ["solve", "sherman_morrison", "cholesky", "chunk"])
def test_the_result_keeps_its_dtype_whatever_the_default_is(double_by_default, method):
    q, k, v = torch.randn(3, 6, 4, dtype=torch.float32, generator=torch.Generator().manual_seed(0))
    assert ridge_attention(q, k, v, penalty=0.1, method=method).dtype == torch.float32
