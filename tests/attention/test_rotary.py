"""Rotary embedding: worked examples, the relative property, layouts, precision, gradients, and the peer it replaces."""

import cmath
import importlib.util
import math
import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from course_lib.attention import rotary
from course_lib.attention.rotary import (
    LAYOUTS,
    apply_rotary,
    apply_rotary_by_pairs,
    convert_layout,
    interpolated_frequencies,
    layout_order,
    llama3_frequencies,
    mean_score,
    ntk_aware_base,
    ntk_frequencies,
    rope,
    rope_frequencies,
    rotary_table,
    turns_in,
    yarn_attention_factor,
    yarn_frequencies,
)

SEEDS = st.integers(0, 2**31)
DIMS = st.sampled_from([2, 4, 6, 16])
POSITIONS = st.integers(-200_000, 200_000)
both_layouts = pytest.mark.parametrize("layout", LAYOUTS)
any_layout = st.sampled_from(LAYOUTS)


def rng(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(shape, generator=rng(seed), dtype=torch.float64).to(dtype)


def at(*positions: int) -> torch.Tensor:
    return torch.tensor(positions)


def turned(x: torch.Tensor, position: int, **options) -> torch.Tensor:
    """Return one vector at one position."""
    return rope(x[None], at(position), **options)[0]


def by_python(x: torch.Tensor, positions: list[int], *, base: float, layout: str) -> torch.Tensor:
    """Turn the pairs of (seq, d) with Python's own complex numbers: an independent computation."""
    result, d = x.clone(), x.shape[-1]
    for row, t in enumerate(positions):
        for i in range(d // 2):
            a, b = (2 * i, 2 * i + 1) if layout == "interleaved" else (i, i + d // 2)
            z = complex(x[row, a], x[row, b]) * cmath.exp(1j * t * base ** (-2 * i / d))
            result[row, a], result[row, b] = z.real, z.imag
    return result


# Worked examples


def test_five_sine_two():
    x, y = torch.tensor([1.0, 2.0]).double(), torch.tensor([2.0, -1.0]).double()
    score = float(turned(x, 3) @ turned(y, 5))
    assert score == pytest.approx(5 * math.sin(2), abs=1e-14)
    assert score == pytest.approx(4.546487134128409, abs=1e-14)
    assert float(x @ turned(y, 2)) == pytest.approx(score, abs=1e-14)


def test_cosine_two():
    x = torch.tensor([1.0, 0.0]).double()
    assert float(turned(x, 1) @ turned(x, 3)) == pytest.approx(-0.4161468365471424, abs=1e-14)


def test_frequencies_of_eight_entries_are_powers_of_ten():
    torch.testing.assert_close(
        rope_frequencies(8), torch.tensor([1, 0.1, 0.01, 0.001], dtype=torch.float64), rtol=1e-14, atol=0
    )
    # As the notes print them, 10000^-2 (i - 1)/d, the fastest pair would need 1e8 positions for a radian.
    printed = [10000**-2 * (i - 1) / 8 for i in range(1, 5)]
    assert printed == pytest.approx([0, 1.25e-9, 2.5e-9, 3.75e-9])


@pytest.mark.parametrize(("start", "offset", "expected"), [(m, 5, 0) for m in (0, 3, 17, 100)] + [(0, 6, 1)])
def test_one_offset_gives_one_score_and_another_gives_another(start, offset, expected):
    x, y = normal(8, seed=1), normal(8, seed=2)
    gap = float(turned(x, start) @ turned(y, start + offset) - turned(x, 7) @ turned(y, 12))
    assert abs(gap) < 1e-10 if expected == 0 else abs(gap) > 0.01


def test_a_quarter_turn_goes_against_the_clock():
    table = torch.polar(torch.ones(1, 1), torch.full((1, 1), math.pi / 2))
    for layout in LAYOUTS:
        found = apply_rotary(torch.tensor([[1.0, 0.0]]), table, layout=layout)
        torch.testing.assert_close(found, torch.tensor([[0.0, 1.0]]), rtol=0, atol=1e-7)


def test_position_zero_changes_nothing():
    x = normal(3, 8)
    assert torch.equal(rope(x, at(0, 0, 0)), x)


# Equality with other computations


@both_layouts
@pytest.mark.parametrize("base", [10_000.0, 500_000, 7.5])
def test_against_pythons_complex_numbers(layout, base):
    x, positions = normal(6, 10), [0, 1, 2, 5, 1000, 131_072]
    found = rope(x, torch.tensor(positions), layout=layout, base=base)
    torch.testing.assert_close(found, by_python(x, positions, base=base, layout=layout), rtol=1e-9, atol=1e-9)


@given(SEEDS, DIMS, any_layout, st.lists(POSITIONS, min_size=1, max_size=5))
def test_the_fast_form_is_the_readable_one(seed, d, layout, positions):
    x = normal(2, 3, len(positions), d, seed=seed)
    table = rotary_table(torch.tensor(positions), rope_frequencies(d), dtype=torch.complex128)
    fast = apply_rotary(x, table, layout=layout)
    torch.testing.assert_close(
        fast, apply_rotary_by_pairs(x, table, layout=layout), rtol=1e-12, atol=1e-12 * float(x.abs().max())
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@both_layouts
def test_every_dtype_is_kept_and_rounded_once(layout, dtype):
    x = normal(2, 3, 50, 16, dtype=dtype)
    positions = torch.arange(100_000, 100_050)
    found = rope(x, positions, layout=layout)
    assert found.dtype == dtype
    exact = rope(x.double(), positions, layout=layout)
    size = float(exact.abs().max())
    within = (
        0.5 * torch.finfo(dtype).eps + 3e-7 if dtype != torch.float64 else 1e-14
    )  # one rounding, and float32
    assert float((found.double() - exact).abs().max()) <= within * size


@both_layouts
def test_a_table_of_either_precision_serves_either_input(layout):
    positions, frequencies = torch.arange(9), rope_frequencies(4)
    for x_dtype in (torch.float32, torch.float64):
        for table_dtype in (torch.complex64, torch.complex128):
            x = normal(9, 4, dtype=x_dtype)
            table = rotary_table(positions, frequencies, dtype=table_dtype)
            for function in (apply_rotary, apply_rotary_by_pairs):
                found = function(x, table, layout=layout)
                assert found.dtype == x_dtype
                torch.testing.assert_close(
                    found, rope(x.double(), positions, layout=layout).to(x_dtype), rtol=0, atol=2e-6
                )


# Properties


@given(SEEDS, DIMS, any_layout, POSITIONS, POSITIONS, POSITIONS)
def test_scores_depend_on_the_offset_only(seed, d, layout, m, n, shift):
    x, y = normal(d, seed=seed), normal(d, seed=seed + 1)
    score = float(turned(x, m, layout=layout) @ turned(y, n, layout=layout))
    size = float(x.norm() * y.norm())
    shifted = float(turned(x, m + shift, layout=layout) @ turned(y, n + shift, layout=layout))
    moved = float(x @ turned(y, n - m, layout=layout))
    assert abs(score - shifted) <= 1e-9 * size
    assert abs(score - moved) <= 1e-9 * size


@given(SEEDS, DIMS, any_layout, POSITIONS)
def test_lengths_are_kept_and_turning_back_restores(seed, d, layout, t):
    x = normal(d, seed=seed)
    there = turned(x, t, layout=layout)
    assert float(there.norm()) == pytest.approx(float(x.norm()), rel=1e-12)
    torch.testing.assert_close(
        turned(there, -t, layout=layout), x, rtol=1e-12, atol=1e-12 * float(x.abs().max())
    )


@given(SEEDS, DIMS, any_layout, POSITIONS, st.floats(-3, 3))
def test_turning_is_linear(seed, d, layout, t, c):
    x, y = normal(d, seed=seed), normal(d, seed=seed + 1)
    size = 1e-12 * (1 + abs(c)) * float(x.abs().max() + y.abs().max())
    together = turned(c * x + y, t, layout=layout)
    apart = c * turned(x, t, layout=layout) + turned(y, t, layout=layout)
    torch.testing.assert_close(together, apart, rtol=0, atol=size)


@both_layouts
def test_shift_invariance_in_float32_up_to_position_131072(layout):
    q, k = normal(64, 1, 64, dtype=torch.float32, seed=1), normal(64, 1, 64, dtype=torch.float32, seed=2)
    sizes = q.norm(dim=-1) * k.norm(dim=-1)

    def scores(m):
        products = rope(q, at(m), layout=layout) * rope(k, at(m + 100), layout=layout)
        return products.double().sum(-1)

    for m in (1, 1000, 32_768, 131_072 - 100):
        assert float(((scores(m) - scores(0)) / sizes).abs().max()) <= 1e-6  # the goal is 1e-5


def test_the_cosines_of_the_table_are_exact_to_float32_rounding():
    positions = at(0, 1, 77, 2048, 32_768, 131_072, 10_000_000)
    frequencies = rope_frequencies(64)
    table = rotary_table(positions, frequencies)
    for row, t in enumerate(positions.tolist()):
        for i, omega in enumerate(frequencies.tolist()):
            assert abs(float(table[row, i].real) - math.cos(t * omega)) <= 2**-24
            assert abs(float(table[row, i].imag) - math.sin(t * omega)) <= 2**-24


# Positions


@both_layouts
def test_a_cache_goes_on_where_it_stopped(layout):
    x = normal(2, 3, 12, 8)
    whole = rope(x, torch.arange(12), layout=layout)
    parts = [rope(x[..., a:b, :], torch.arange(a, b), layout=layout) for a, b in ((0, 5), (5, 11), (11, 12))]
    torch.testing.assert_close(torch.cat(parts, dim=-2), whole, rtol=0, atol=1e-14)


@both_layouts
def test_each_sequence_of_a_batch_may_have_its_own_positions(layout):
    x, positions = normal(3, 4, 5, 8), torch.randint(0, 5000, (3, 5), generator=rng(0))
    found = rope(x, positions, layout=layout)
    for b in range(3):
        torch.testing.assert_close(found[b], rope(x[b], positions[b], layout=layout), rtol=1e-14, atol=1e-14)
    one_for_all = rope(x, positions[:1], layout=layout)
    torch.testing.assert_close(one_for_all, rope(x, positions[0], layout=layout), rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.uint8])
def test_positions_of_any_integer_kind(dtype):
    x = normal(3, 8)
    assert torch.equal(rope(x, at(0, 7, 200).to(dtype)), rope(x, at(0, 7, 200)))


@both_layouts
def test_no_position_and_no_head_are_fine(layout):
    assert rope(torch.zeros(2, 4, 0, 8), torch.arange(0), layout=layout).shape == (2, 4, 0, 8)
    assert rope(torch.zeros(2, 0, 3, 8), torch.arange(3), layout=layout).shape == (2, 0, 3, 8)


# Memory layouts, partial turning, gradients, compilation


def odd_memories():
    """Tensors of shape (2, 3, 5, 8) whose memory is laid out in ways that a view as complex numbers cannot take."""
    values = normal(2, 3, 5, 8)
    transposed = values.transpose(1, 2).contiguous().transpose(1, 2)
    shifted = torch.zeros(2, 3, 5, 9).double()
    shifted[..., 1:] = values
    flat = torch.zeros(2 * 3 * 5 * 8 + 1).double()
    flat[1:] = values.flatten()
    spread = torch.zeros(2, 3, 5, 16).double()
    spread[..., ::2] = values
    column = values.mT.contiguous().mT
    return values, (
        transposed,
        shifted[..., 1:],
        flat[1:].view(2, 3, 5, 8),
        spread[..., ::2],
        column,
        values.expand(2, 3, 5, 8),
    )


@both_layouts
def test_any_memory_layout_is_taken_and_the_input_is_left_alone(layout):
    values, memories = odd_memories()
    expected = by_python(values[1, 2], [3, 1, 4, 1, 5], base=10_000, layout=layout)
    for x in memories:
        before = x.clone()
        found = rope(x, at(3, 1, 4, 1, 5), layout=layout)
        torch.testing.assert_close(found[1, 2], expected, rtol=1e-12, atol=1e-12)
        assert torch.equal(x, before)


@both_layouts
@pytest.mark.parametrize(("head_dim", "rotary_dim"), [(8, 4), (9, 6), (8, 8)])
def test_partial_turning_leaves_the_rest(layout, head_dim, rotary_dim):
    x, positions = normal(2, 3, 5, head_dim), torch.arange(5)
    table = rotary_table(positions, rope_frequencies(rotary_dim), dtype=torch.complex128)
    whole = rope(x, positions, layout=layout, rotary_dim=rotary_dim)
    assert torch.equal(whole[..., rotary_dim:], x[..., rotary_dim:])
    inner = rope(x[..., :rotary_dim].contiguous(), positions, layout=layout)
    torch.testing.assert_close(whole[..., :rotary_dim], inner, rtol=0, atol=1e-15)
    torch.testing.assert_close(apply_rotary_by_pairs(x, table, layout=layout), whole, rtol=1e-13, atol=1e-13)


@both_layouts
@pytest.mark.parametrize("rotary_dim", [None, 2])
def test_gradients(layout, rotary_dim):
    x = normal(2, 2, 3, 4).requires_grad_()

    def function(x):
        return rope(x, at(0, 5, 9), layout=layout, rotary_dim=rotary_dim)

    assert torch.autograd.gradcheck(function, (x,), fast_mode=True)
    assert torch.autograd.gradgradcheck(function, (x,), fast_mode=True)


@both_layouts
def test_the_gradient_is_turned_back(layout):
    x, upstream = normal(4, 6).requires_grad_(), normal(4, 6, seed=5)
    positions = at(2, 3, 50, 999)
    (found,) = torch.autograd.grad(rope(x, positions, layout=layout), x, upstream)
    torch.testing.assert_close(found, rope(upstream, -positions, layout=layout), rtol=1e-13, atol=1e-13)


def test_nothing_is_learned():
    assert not rope(normal(3, 4), at(0, 1, 2)).requires_grad


@pytest.fixture(scope="module")
def unchecked():
    """The module without the run-time shape checks that the test run puts around its functions."""
    spec = importlib.util.spec_from_file_location("rotary_unchecked", rotary.__file__)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # the compiler looks modules up by name
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


@pytest.mark.nightly
def test_it_compiles_for_shapes_that_vary(unchecked):
    torch._dynamo.reset()
    compiled = torch.compile(unchecked.rope, dynamic=True, fullgraph=True, backend="eager")
    for length in (5, 9):
        x, positions = normal(2, length, 8), torch.arange(length)
        torch.testing.assert_close(compiled(x, positions, base=5e4), rope(x, positions, base=5e4))


@pytest.mark.nightly
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@both_layouts
def test_it_compiles_to_one_graph(unchecked, layout, dtype, backend):
    def function(x, positions):
        return unchecked.rope(x, positions, layout=layout)

    torch._dynamo.reset()
    compiled = torch.compile(function, fullgraph=True, backend=backend)
    x = normal(2, 3, 5, 8, dtype=dtype).requires_grad_()
    same = x.detach().clone().requires_grad_()
    for positions in (torch.arange(5), torch.arange(100, 105)):
        a, b = compiled(x, positions), function(same, positions)
        torch.testing.assert_close(a, b, rtol=0, atol=0.02 if dtype == torch.bfloat16 else 1e-6)
        a.float().square().sum().backward()
        b.float().square().sum().backward()
    torch.testing.assert_close(x.grad, same.grad, rtol=0.02, atol=0.05 if dtype == torch.bfloat16 else 1e-5)


def test_shapes_are_known_on_the_meta_device():
    x = torch.empty(2, 3, 5, 8, device="meta")
    for layout in LAYOUTS:
        found = rope(x, torch.arange(5, device="meta"), layout=layout)
        assert (found.shape, found.device.type) == (x.shape, "meta")


# Layouts


def test_the_order_by_hand():
    assert layout_order(6, source="interleaved", target="half").tolist() == [0, 2, 4, 1, 3, 5]
    assert layout_order(6, source="half", target="interleaved").tolist() == [0, 3, 1, 4, 2, 5]
    assert layout_order(7, source="half", target="interleaved", rotary_dim=4).tolist() == [
        0,
        2,
        1,
        3,
        4,
        5,
        6,
    ]
    assert layout_order(4, source="half", target="half").tolist() == [0, 1, 2, 3]


@given(SEEDS, DIMS, st.lists(POSITIONS, min_size=1, max_size=4))
def test_layouts_are_one_map_in_two_orders(seed, d, positions):
    x, t = normal(len(positions), d, seed=seed), torch.tensor(positions)
    order = layout_order(d, source="interleaved", target="half")
    torch.testing.assert_close(
        rope(x[..., order], t, layout="half"),
        rope(x, t, layout="interleaved")[..., order],
        rtol=1e-12,
        atol=1e-12 * float(x.abs().max()),
    )


@given(SEEDS, st.sampled_from([(6, 6), (8, 4), (7, 6)]), st.sampled_from([(1, 1), (3, 3), (4, 2)]))
def test_converted_weights_give_the_same_scores(seed, dims, heads):
    (head_dim, rotary_dim), (n_heads, n_kv_heads) = dims, heads
    d_model, t = 5, at(0, 3, 4, 90)
    hidden = normal(4, d_model, seed=seed)
    weights = [normal(n * head_dim, d_model, seed=seed + n) for n in (n_heads, n_kv_heads)]
    biases = [normal(n * head_dim, seed=seed - n) for n in (n_heads, n_kv_heads)]

    def scores(weights, biases, layout):
        q, k = (
            rope(
                (hidden @ w.T + b).unflatten(-1, (-1, head_dim)).transpose(0, 1),
                t,
                layout=layout,
                rotary_dim=rotary_dim,
            )
            for w, b in zip(weights, biases, strict=True)
        )
        return q @ k.repeat_interleave(n_heads // n_kv_heads, dim=0).mT

    def convert(tensors, source, target):
        return [
            convert_layout(w, head_dim=head_dim, source=source, target=target, rotary_dim=rotary_dim)
            for w in tensors
        ]

    half = scores(weights, biases, "half")
    new = [convert(tensors, "half", "interleaved") for tensors in (weights, biases)]
    size = float(half.abs().max()) + 1
    torch.testing.assert_close(scores(*new, "interleaved"), half, rtol=0, atol=1e-11 * size)
    back = convert(new[0], "interleaved", "half")
    assert all(torch.equal(a, b) for a, b in zip(back, weights, strict=True))


def test_without_converting_the_other_layout_gives_other_scores():
    q, k = normal(4, 8, seed=1), normal(4, 8, seed=2)
    t = torch.arange(4)
    a, b = (rope(q, t, layout=n) @ rope(k, t, layout=n).mT for n in LAYOUTS)
    assert float((a - b).abs().max()) > 0.1


# Longer contexts


@given(st.sampled_from([4, 16, 64, 128]), st.floats(2.0, 1e6), st.floats(1.0, 64.0))
def test_the_ntk_aware_base_slows_the_slowest_pair_only(d, base, scale):
    old = rope_frequencies(d, base=base)
    new = rope_frequencies(d, base=ntk_aware_base(base, scale=scale, rotary_dim=d))
    assert float(new[0]) == 1 == float(old[0])
    assert float(old[-1] / new[-1]) == pytest.approx(scale, rel=1e-9)
    slowed = old / new
    assert bool((slowed.diff() >= -1e-9 * scale).all())


def test_interpolation_squeezes_positions():
    frequencies = rope_frequencies(16)
    stretched = rotary_table(torch.arange(0, 40, 4), interpolated_frequencies(frequencies, scale=4))
    torch.testing.assert_close(stretched, rotary_table(torch.arange(10), frequencies), rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    "extend",
    [
        lambda scale: yarn_frequencies(64, scale=scale, trained_length=2048),
        lambda scale: yarn_frequencies(64, scale=scale, trained_length=2048, whole_pairs=False),
        lambda scale: llama3_frequencies(
            rope_frequencies(64), scale=scale, trained_length=2048, fast_turns=32
        ),
    ],
)
def test_fast_pairs_are_kept_and_slow_ones_interpolated(extend):
    plain = rope_frequencies(64)
    turns, slowed = turns_in(plain, 2048), plain / extend(4.0)
    assert float(turns[0]) == pytest.approx(2048 / (2 * math.pi))
    assert torch.equal(slowed[turns > 40], torch.ones(int((turns > 40).sum())).double())
    torch.testing.assert_close(slowed[turns < 0.7], torch.full_like(slowed[turns < 0.7], 4))
    between = slowed[(turns < 31) & (turns > 1.01)]
    assert len(between) > 5
    assert bool(((between > 1) & (between < 4)).all())
    assert bool((slowed.diff() >= -1e-12).all())
    torch.testing.assert_close(extend(1), plain)


def test_a_table_of_its_own_for_rope():
    x, positions = normal(3, 8), at(0, 5, 70)
    own = llama3_frequencies(rope_frequencies(4, base=100), scale=8, trained_length=64)
    found = rope(x, positions, frequencies=own, attention_factor=1.5)
    assert torch.equal(found[:, 4:], x[:, 4:])  # what does not turn keeps its size
    turned_by = rotary_table(positions, own, dtype=torch.complex128)
    torch.testing.assert_close(
        found[:, :4], 1.5 * apply_rotary_by_pairs(x[:, :4], turned_by, layout="interleaved")
    )
    assert not torch.allclose(found, rope(x, positions, base=100, rotary_dim=4, attention_factor=1.5))


@given(st.lists(st.integers(0, 100_000), min_size=1, max_size=5), SEEDS, DIMS)
def test_the_mean_score_is_that_of_a_vector_with_equal_pairs(distances, seed, d):
    angle = 2 * math.pi * torch.rand(d // 2, generator=rng(seed), dtype=torch.float64)
    x = torch.stack([angle.cos(), angle.sin()], dim=-1).flatten() / math.sqrt(d / 2)
    scores = [float(turned(x, 7) @ turned(x, 7 + s)) for s in distances]
    found = mean_score(torch.tensor(distances), rope_frequencies(d))
    assert found.tolist() == pytest.approx(scores, abs=1e-9)


# Errors


def table(seq: int = 5, d: int = 8) -> torch.Tensor:
    return rotary_table(torch.arange(seq), rope_frequencies(d))


@pytest.mark.parametrize("function", [apply_rotary, apply_rotary_by_pairs])
def test_what_does_not_fit_is_refused(function):
    x = torch.zeros(2, 3, 5, 8)
    with pytest.raises(ValueError, match=r"layout must be one of \['interleaved', 'half'\], got 'neox'"):
        function(x, table(), layout="neox")
    with pytest.raises(ValueError, match="x has 5, positions 4"):
        function(x, table(4), layout="half")
    with pytest.raises(ValueError, match="turns 10 entries of a head, and head_dim is 8"):
        function(x, table(5, 10), layout="half")
    with pytest.raises(ValueError, match="table must be complex"):
        function(x, table().real, layout="half")
    with pytest.raises(ValueError, match="one device, got cpu and meta"):
        function(x, table().to("meta"), layout="half")
    with pytest.raises(ValueError, match=r"leading dimensions \(4,\), got \(2, 3, 5, 8\)"):
        function(x, table().expand(4, 5, 4), layout="half")
    with pytest.raises(ValueError, match=r"need x of shape \(..., n_heads, seq, head_dim\)"):
        function(x[0, 0], table().expand(2, 5, 4), layout="half")


@pytest.mark.parametrize("d", [7, 0, 1])
def test_odd_dimensions_are_refused(d):
    with pytest.raises(ValueError, match=f"head_dim must be an even number, 2 or more.* got {d}"):
        rope(torch.zeros(3, d), torch.arange(3))
    with pytest.raises(ValueError, match=f"rotary_dim must be an even number, 2 or more.* got {d}"):
        rope_frequencies(d)
    with pytest.raises(ValueError, match=f"rotary_dim must be an even number, 2 or more.* got {d}"):
        rope(torch.zeros(3, 8), torch.arange(3), rotary_dim=d)


def test_wrong_positions_are_refused(unchecked):
    for positions in (torch.arange(3.0), torch.arange(3).bfloat16(), torch.ones(3, dtype=torch.bool)):
        with pytest.raises(ValueError, match="positions must be integers"):
            rope(torch.zeros(3, 8), positions)
    with pytest.raises(ValueError, match="got a scalar"):
        unchecked.rotary_table(torch.tensor(3), rope_frequencies(4))
    with pytest.raises(ValueError, match="x has 3, positions 4"):
        rope(torch.zeros(3, 8), torch.arange(4))


def test_wrong_numbers_are_refused():
    for base in (1, 0.5, math.inf, math.nan):
        with pytest.raises(ValueError, match="base must be a finite number above 1"):
            rope_frequencies(8, base=base)
        with pytest.raises(ValueError, match="base must be a finite number above 1"):
            ntk_aware_base(base, scale=2, rotary_dim=8)
    for scale in (0.5, math.inf, math.nan):
        with pytest.raises(ValueError, match="scale must be a finite number, 1 or more"):
            ntk_aware_base(10_000, scale=scale, rotary_dim=8)
        with pytest.raises(ValueError, match="scale must be a finite number, 1 or more"):
            interpolated_frequencies(rope_frequencies(8), scale=scale)
    with pytest.raises(ValueError, match=r"rotary_dim must be an even number, 4 or more.* got 2"):
        ntk_aware_base(10_000, scale=2, rotary_dim=2)
    with pytest.raises(ValueError, match="dtype must be complex"):
        rotary_table(torch.arange(3), rope_frequencies(8), dtype=torch.float32)


def test_wrong_extensions_are_refused():
    yarn = {"scale": 2, "trained_length": 64}
    plain = rope_frequencies(8)
    for call, reason in (
        (lambda: yarn_frequencies(8, **yarn | {"scale": 0.5}), "scale must be .* got 0.5"),
        (lambda: yarn_frequencies(8, **yarn | {"trained_length": 0}), "trained_length must be .* got 0"),
        (lambda: yarn_frequencies(8, **yarn, fast_turns=1), "slow_turns < fast_turns, got 1 and 1"),
        (lambda: yarn_frequencies(8, **yarn, base=1), "base must be a finite number above 1"),
        (lambda: yarn_frequencies(7, **yarn), "rotary_dim must be an even number"),
        (lambda: llama3_frequencies(plain, scale=math.nan), "scale must be .* got nan"),
        (lambda: llama3_frequencies(plain, slow_turns=0), "slow_turns < fast_turns, got 0 and 4"),
        (lambda: llama3_frequencies(plain, trained_length=-1), "trained_length must be .* got -1"),
        (lambda: ntk_frequencies(2, scale=2), "rotary_dim must be an even number, 4 or more"),
        (lambda: yarn_attention_factor(2, mscale=-1), "mscale must be .* got -1"),
        (lambda: yarn_attention_factor(0.9), "scale must be .* got 0.9"),
        (lambda: rope(normal(2, 8), at(0, 1), frequencies=plain, rotary_dim=8), "got 4 and 8"),
        (lambda: rope(normal(2, 8), at(0, 1), attention_factor=0), "attention_factor must be .* got 0"),
        (lambda: rope(normal(2, 6), at(0, 1), frequencies=plain), "turns 8 entries .* head_dim is 6"),
    ):
        with pytest.raises(ValueError, match=reason):
            call()


def test_wrong_layouts_are_refused():
    weight = torch.zeros(12, 3)
    with pytest.raises(ValueError, match="source must be one of"):
        convert_layout(weight, head_dim=4, source="gptj", target="half")
    with pytest.raises(ValueError, match="target must be one of"):
        convert_layout(weight, head_dim=4, source="half", target="llama")
    with pytest.raises(ValueError, match="multiple of head_dim = 8 rows, one block a head, got 12"):
        convert_layout(weight, head_dim=8, source="half", target="interleaved")
    with pytest.raises(ValueError, match="rotary_dim must be at most head_dim = 4, got 6"):
        convert_layout(weight, head_dim=4, source="half", target="interleaved", rotary_dim=6)
    with pytest.raises(ValueError, match="rotary_dim must be an even number"):
        convert_layout(weight, head_dim=3, source="half", target="interleaved")


# The peer


@pytest.fixture(scope="module")
def llama():
    """transformers' rotary embedding for a small Llama configuration: (module, its function that turns)."""
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

    config = LlamaConfig(hidden_size=64, num_attention_heads=4, num_key_value_heads=2)
    return LlamaRotaryEmbedding(config), apply_rotary_pos_emb


def test_the_half_layout_is_transformers_llama(llama):
    embedding, turn = llama
    q, k = normal(2, 4, 40, 16, dtype=torch.float32), normal(2, 2, 40, 16, dtype=torch.float32, seed=1)
    positions = torch.arange(40).expand(2, 40)
    cos, sin = embedding(q, positions)
    theirs = turn(q, k, cos, sin)
    # With their cosines, whatever the position: the same map.
    same_table = torch.complex(cos[..., :8], sin[..., :8])
    for x, expected in zip((q, k), theirs, strict=True):
        found = apply_rotary(x, same_table, layout="half")
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)
        # With ours, up to their rounding of the angles, at most 40 x 2^-23 here.
        torch.testing.assert_close(rope(x, positions, layout="half"), expected, rtol=0, atol=3e-5)
        exact = rope(x.double(), positions, layout="half")
        assert float((rope(x, positions, layout="half") - exact).abs().max()) <= 1e-6


def test_the_first_positions_agree_to_1e_6(llama):
    embedding, turn = llama
    q = normal(1, 4, 5, 16, dtype=torch.float32)
    positions = torch.arange(5)[None]
    expected, _ = turn(q, q, *embedding(q, positions))
    torch.testing.assert_close(rope(q, positions, layout="half"), expected, rtol=1e-6, atol=1e-6)


def test_frequencies_are_transformers_own(llama):
    embedding, _ = llama
    assert sum(p.numel() for p in embedding.parameters()) == 0
    torch.testing.assert_close(embedding.inv_freq.double(), rope_frequencies(16), rtol=1e-6, atol=0)


def theirs(rope_type, *, base, factor, partial, trained, seq_len=None, **options):
    """transformers' frequencies and factor of queries and keys, for heads of 32 and a context of `trained`."""
    from transformers import LlamaConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    if rope_type in ("yarn", "llama3"):
        options["original_max_position_embeddings"] = trained
    config = LlamaConfig(
        hidden_size=64,
        num_attention_heads=2,
        max_position_embeddings=trained,
        rope_parameters={
            "rope_type": rope_type,
            "rope_theta": base,
            "factor": factor,
            "partial_rotary_factor": partial,
            **options,
        },
    )
    frequencies, attention_factor = ROPE_INIT_FUNCTIONS[rope_type](config, seq_len=seq_len)
    return frequencies.double(), attention_factor


@pytest.mark.parametrize("kind", ["linear", "dynamic", "yarn", "yarn by fractions", "llama3"])
@given(
    base=st.sampled_from([1e3, 1e4, 5e5, 1e6]),
    factor=st.floats(1, 64),
    partial=st.sampled_from([0.25, 0.5, 1.0]),
    trained=st.sampled_from([64, 2048, 8192]),
    length=st.integers(1, 200_000),
    turns=st.sampled_from([(1, 32), (2, 16), (1, 4), (0.5, 3)]),
)
def test_extensions_are_transformers_own(kind, base, factor, partial, trained, length, turns):
    dim, slow, fast = int(32 * partial), *turns
    common = {"base": base, "factor": factor, "partial": partial, "trained": trained}
    ramp = {"trained_length": trained, "slow_turns": slow, "fast_turns": fast}
    plain = rope_frequencies(dim, base=base)
    if kind == "linear":
        expected, size = theirs("linear", **common)
        found = interpolated_frequencies(plain, scale=factor)
    elif kind == "dynamic":
        expected, size = theirs("dynamic", **common, seq_len=length)
        scale = factor * max(length, trained) / trained - (factor - 1)
        found = ntk_frequencies(dim, base=base, scale=scale)
    elif kind == "llama3":
        expected, size = theirs("llama3", **common, low_freq_factor=slow, high_freq_factor=fast)
        found = llama3_frequencies(plain, scale=factor, **ramp)
    else:
        whole = kind == "yarn"
        expected, size = theirs("yarn", **common, beta_slow=slow, beta_fast=fast, truncate=whole)
        found = yarn_frequencies(dim, base=base, scale=factor, whole_pairs=whole, **ramp)
    # Theirs are float32: rounding the exponent of a base of 1e6 alone moves a power by ln(1e6) half units of it.
    # So is their blend: a half unit in the share of f beside f / factor counts factor times.
    relative = 2e-6 + 6e-8 * factor * ("yarn" in kind)
    torch.testing.assert_close(found, expected, rtol=relative, atol=1e-6 * (kind == "llama3"))
    assert size == pytest.approx(yarn_attention_factor(factor) if "yarn" in kind else 1, rel=1e-12)


@pytest.mark.parametrize(("mscale", "all_dim"), [(1.0, 1.0), (0.707, 1.0), (2, 0.5), (0, 1.0), (1.0, 0)])
@pytest.mark.parametrize("factor", [1, 4, 40.0])
def test_yarns_factor_of_queries_and_keys_is_transformers_own(factor, mscale, all_dim):
    common = {"base": 1e4, "partial": 1.0, "trained": 64, "factor": factor}
    _, expected = theirs("yarn", **common, mscale=mscale, mscale_all_dim=all_dim)
    # They take both numbers or neither.
    own = {"mscale": mscale, "mscale_all_dim": all_dim} if mscale and all_dim else {}
    assert yarn_attention_factor(factor, **own) == pytest.approx(expected, rel=1e-12)
    _, chosen = theirs("yarn", **common, attention_factor=1.25)
    assert chosen == 1.25 != yarn_attention_factor(factor)


def test_a_llama_with_yarn_turns_as_rope_with_its_frequencies(llama):
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    options = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 8.0, "original_max_position_embeddings": 64}
    config = LlamaConfig(hidden_size=64, num_attention_heads=4, rope_parameters=options)
    q, positions = normal(1, 4, 5, 16, dtype=torch.float32), torch.arange(5)
    cos, sin = LlamaRotaryEmbedding(config)(q, positions[None])
    expected, _ = llama[1](q, q, cos, sin)
    own = yarn_frequencies(16, scale=8, trained_length=64)
    found = rope(q, positions, layout="half", frequencies=own, attention_factor=yarn_attention_factor(8))
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=2e-6)
    scores = [
        float(x[0, 0, 3] @ x[0, 0, 1]) for x in (found, rope(q, positions, layout="half", frequencies=own))
    ]
    assert scores[0] == pytest.approx(scores[1] * yarn_attention_factor(8) ** 2, rel=1e-5)
