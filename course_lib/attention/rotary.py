"""Rotary position embedding (RoPE): queries and keys turned by their position, so that scores see distances (lesson 18).

The d entries of a query or key are taken as d/2 pairs, that is, as d/2 complex numbers z_i. At position t pair i is
turned against the clock by the angle t omega_i:

    z_i -> e^{j t omega_i} z_i,    omega_i = base^(-2 (i - 1) / d),    i = 1 .. d/2.

Two layouts say which entries form pair i. They are permutations of each other, and nothing in the data tells them
apart, so every function that depends on it takes a `layout`:

- "interleaved": the neighbours (x_{2i-1}, x_{2i}), as in the paper and in GPT-J;
- "half": the entries (x_i, x_{i + d/2}), as in GPT-NeoX and in transformers' Llama, where the code calls it
  rotate_half. Meta's own code turns neighbours: the converter of checkpoints permutes the rows of W_q and W_k.

Shapes follow attention: x is (..., n_heads, seq, head_dim), positions are (seq,), or (batch, seq) where the sequences
of a batch stand at positions of their own. In a model, make `rotary_table` once and use it for the queries and keys of
all layers; `rope` does both in one call.
"""

import math

import torch
from jaxtyping import Complex, Float, Float64, Shaped
from torch import Tensor

from course_lib.checks import checked, named

LAYOUTS = ("interleaved", "half")


def _check_layout(layout: str, name: str = "layout") -> None:
    if layout not in LAYOUTS:
        raise ValueError(f"{name} must be one of {list(LAYOUTS)}, got {layout!r}")


def _check_pairs(dim: int, name: str, *, least: int = 2) -> None:
    if dim < least or dim % 2:
        raise ValueError(
            f"{name} must be an even number, {least} or more, since entries turn in pairs; got {dim}"
        )


def _check_base(base: float | int) -> None:
    if not 1 < base < math.inf:
        raise ValueError(f"base must be a finite number above 1, got {base}")


def _check_scale(scale: float | int) -> None:
    if not 1 <= scale < math.inf:
        raise ValueError(
            f"scale must be a finite number, 1 or more (new context over trained context), got {scale}"
        )


def _check_length(length: float | int, name: str = "trained_length") -> None:
    if not 0 < length < math.inf:
        raise ValueError(f"{name} must be a number of positions above 0, got {length}")


def _check_turns(fast: float | int, slow: float | int) -> None:
    if not 0 < slow < fast < math.inf:
        raise ValueError(f"turns must be 0 < slow_turns < fast_turns, got {slow} and {fast}")


# Frequencies


@named
def rope_frequencies(
    rotary_dim: int, *, base: float | int = 10_000.0, device: torch.device | str | None = None
) -> Float64[Tensor, " pairs"]:
    """omega_i = base^(-2 (i - 1) / d) for i = 1 .. d/2, in float64 (18.5).

    Shapes: `rotary_dim` is d, the number of entries of a head that turn; the result has d/2 entries.
    Units: radians a position, from 1 for the first pair down to base^(-1 + 2/d) for the last.

    Raises:
        ValueError: `rotary_dim` is odd or below 2, or `base` is not a finite number above 1.

    Source: Su et al. 2021, arXiv:2104.09864.
    """
    _check_pairs(rotary_dim, "rotary_dim")
    _check_base(base)
    exponents = torch.arange(0, rotary_dim, 2, dtype=torch.float64, device=device) / rotary_dim
    return float(base) ** -exponents


@named
@checked
def interpolated_frequencies(
    frequencies: Float[Tensor, " pairs"], *, scale: float | int
) -> Float[Tensor, " pairs"]:
    """omega_i / s: position s t gets the angles that position t had in training (18.7).

    Raises:
        ValueError: `scale` is below 1 or not finite.

    Source: position interpolation, Chen et al. 2023, arXiv:2306.15595.
    """
    _check_scale(scale)
    return frequencies / scale


def ntk_aware_base(base: float | int, *, scale: float | int, rotary_dim: int) -> float:
    """base s^(d / (d - 2)): the slowest pair is slowed down s times, the fastest not at all (18.9).

    Raises:
        ValueError: `base` is not above 1, `scale` is below 1, or `rotary_dim` is odd or below 4.

    Source: proposed as "NTK-aware" in 2023; discussed in Peng et al. 2023, arXiv:2309.00071.
    """
    _check_base(base)
    _check_scale(scale)
    _check_pairs(rotary_dim, "rotary_dim", least=4)
    return float(base * scale ** (rotary_dim / (rotary_dim - 2)))


@named
def ntk_frequencies(
    rotary_dim: int,
    *,
    scale: float | int,
    base: float | int = 10_000.0,
    device: torch.device | str | None = None,
) -> Float64[Tensor, " pairs"]:
    """omega_i s^(-2 (i - 1) / (d - 2)): the frequencies of the base `ntk_aware_base` (18.9).

    Shapes: `rotary_dim` is d; the result has d/2 entries, in radians a position.

    Raises:
        ValueError: `base` is not above 1, `scale` is below 1, or `rotary_dim` is odd or below 4.

    Source: Peng et al. 2023, arXiv:2309.00071.
    """
    base = ntk_aware_base(base, scale=scale, rotary_dim=rotary_dim)
    return rope_frequencies(rotary_dim, base=base, device=device)


def turns_in(frequencies: Float[Tensor, " pairs"], length: float | int) -> Float[Tensor, " pairs"]:
    """r_i = L omega_i / (2 pi): how many turns pair i makes over a text of L positions."""
    return length * frequencies / (2 * math.pi)


@named
def yarn_frequencies(
    rotary_dim: int,
    *,
    scale: float | int,
    trained_length: int,
    base: float | int = 10_000.0,
    fast_turns: float | int = 32,
    slow_turns: float | int = 1,
    whole_pairs: bool = True,
    device: torch.device | str | None = None,
) -> Float64[Tensor, " pairs"]:
    """(1 - g_i) omega_i + g_i omega_i / s: fast pairs keep their frequency, slow ones are interpolated.

    A pair that made many turns in training has shown all its angles, and distinguishes neighbours; one that made less than a
    turn would come to angles that training has never shown. Between the two g_i is a ramp in the number of the pair. It
    starts at the pair that makes `fast_turns` turns over the trained length, i = 1 + d ln(L / (2 pi r)) / (2 ln base) for r
    turns, and ends at the one that makes `slow_turns`. With `whole_pairs` these two are rounded outwards.

    A model with these frequencies multiplies its scores by the square of `yarn_attention_factor`.

    Shapes: `rotary_dim` is d; the result has d/2 entries, in radians a position.
    Units: `scale` is s, the new context over the trained one; `trained_length` is L, in positions.

    Raises:
        ValueError: `rotary_dim` is odd or below 2, `base` is not above 1, `scale` is below 1, the length is not above 0, or
            the turns are not 0 < slow < fast.

    Source: YaRN, Peng et al. 2023, arXiv:2309.00071.
    """
    frequencies = rope_frequencies(rotary_dim, base=base, device=device)
    _check_scale(scale)
    _check_length(trained_length)
    _check_turns(fast_turns, slow_turns)
    # Pairs are counted from 0 here.
    first, last = (
        rotary_dim * math.log(trained_length / (2 * math.pi * turns)) / (2 * math.log(base))
        for turns in (fast_turns, slow_turns)
    )
    if whole_pairs:
        first, last = math.floor(first), math.ceil(last)
    # As in the code of the paper, the ramp may end behind the last pair, and is a step where it has no length.
    first, last = max(first, 0), min(last, rotary_dim - 1)
    pairs = torch.arange(len(frequencies), dtype=torch.float64, device=device)
    ramp = ((pairs - first) / (last - first if last != first else 0.001)).clamp(0, 1)
    return torch.lerp(frequencies, frequencies / scale, ramp)


@named
def yarn_attention_factor(
    scale: float | int, *, mscale: float | int = 1, mscale_all_dim: float | int = 0
) -> float:
    """(0.1 m ln s + 1) / (0.1 m' ln s + 1): what queries and keys are multiplied by, so that scores grow by its square.

    Over a longer text the softmax shares its weight among more keys; larger scores undo that.

    Units: `scale` is s; `mscale` is m and `mscale_all_dim` is m', under which names DeepSeek's configurations have them. The
    paper's own factor has m = 1 and m' = 0.

    Raises:
        ValueError: `scale` is below 1, or one of the other two is negative.

    Source: YaRN, Peng et al. 2023, arXiv:2309.00071.
    """
    _check_scale(scale)
    for name, weight in (("mscale", mscale), ("mscale_all_dim", mscale_all_dim)):
        if not 0 <= weight < math.inf:
            raise ValueError(f"{name} must be a finite number, 0 or more, got {weight}")
    return (0.1 * mscale * math.log(scale) + 1) / (0.1 * mscale_all_dim * math.log(scale) + 1)


@named
@checked
def llama3_frequencies(
    frequencies: Float[Tensor, " pairs"],
    *,
    scale: float | int = 8,
    trained_length: int = 8192,
    fast_turns: float | int = 4,
    slow_turns: float | int = 1,
) -> Float[Tensor, " pairs"]:
    """(1 - g_i) omega_i + g_i omega_i / s, g_i = (fast - r_i) / (fast - slow) kept within 0 and 1 (18.8).

    As in YaRN, but the ramp is linear in the turns r_i that pair i makes over the trained length, and scores keep their
    size. Configurations call `fast_turns` high_freq_factor and `slow_turns` low_freq_factor.

    Units: `scale` is s, the new context over the trained one; `trained_length` is in positions.

    Raises:
        ValueError: `scale` is below 1, the length is not above 0, or the turns are not 0 < slow < fast.

    Source: Llama 3.1, Grattafiori et al. 2024, arXiv:2407.21783, and the code published with it.
    """
    _check_scale(scale)
    _check_length(trained_length)
    _check_turns(fast_turns, slow_turns)
    ramp = ((fast_turns - turns_in(frequencies, trained_length)) / (fast_turns - slow_turns)).clamp(0, 1)
    return torch.lerp(frequencies, frequencies / scale, ramp)


def mean_score(
    distances: Shaped[Tensor, " n"], frequencies: Float[Tensor, " pairs"]
) -> Float64[Tensor, " n"]:
    """(2/d) sum_i cos(s omega_i): the score of x with itself at distance s, for a typical x (18.6).

    It is the expectation over x ~ N(0, I), divided by d; it is exact for every x whose pairs have equal lengths.
    """
    return torch.outer(distances.double(), frequencies.double()).cos().mean(dim=1)


# Turning


@named
def rotary_table(
    positions: Shaped[Tensor, "*batch seq"],
    frequencies: Float[Tensor, " pairs"],
    *,
    dtype: torch.dtype = torch.complex64,
    attention_factor: float | int = 1.0,
) -> Complex[Tensor, "*batch seq pairs"]:
    """e^{j t omega_i} for every position t and pair i (18.2), on the device of the positions.

    The angle is formed in float64 and only its cosine and sine are rounded to `dtype`: in float32 the angle itself
    would be off by 4e-3 at position 100,000, in bfloat16 by whole turns. A device without float64 can take the
    table from the CPU.

    Ranges: positions are whole numbers of any size and order; start them at the length of the cache to go on from it.
    `attention_factor` multiplies all entries, for YaRN: what turns is then longer by it.

    Raises:
        ValueError: positions are not integers or have no dimension, `dtype` is not complex, or the factor is not above 0.
    """
    if positions.is_floating_point() or positions.is_complex() or positions.dtype == torch.bool:
        raise ValueError(
            f"positions must be integers, got {positions.dtype}: floating point loses whole numbers (bfloat16 above "
            "256), and stretched positions belong into the frequencies"
        )
    if positions.ndim == 0:
        raise ValueError(
            "positions must have shape (seq,) or (batch, seq), got a scalar: use torch.arange(t, t + 1)"
        )
    if frequencies.ndim != 1:
        raise ValueError(f"frequencies must have shape (pairs,), got {tuple(frequencies.shape)}")
    if not dtype.is_complex:
        raise ValueError(f"dtype must be complex (torch.complex64 or torch.complex128), got {dtype}")
    if not 0 < attention_factor < math.inf:
        raise ValueError(f"attention_factor must be a finite number above 0, got {attention_factor}")
    angles = positions.double()[..., None] * frequencies.to(positions.device, torch.float64)
    return torch.polar(torch.full_like(angles, attention_factor), angles).to(dtype)


def _fit(x: Tensor, table: Tensor, layout: str) -> Tensor:
    """Check that the table belongs to x, and give a table of several sequences a dimension for the heads."""
    _check_layout(layout)
    if x.ndim < 2 or not x.is_floating_point():
        raise ValueError(
            f"x must be floating point of shape (..., seq, head_dim), got {x.dtype}, {tuple(x.shape)}"
        )
    if not table.is_complex():
        raise ValueError(f"table must be complex, as rotary_table makes it, got {table.dtype}")
    if table.device != x.device:
        raise ValueError(f"x and table must be on one device, got {x.device} and {table.device}")
    if 2 * table.shape[-1] > x.shape[-1]:
        raise ValueError(
            f"x does not fit: table turns {2 * table.shape[-1]} entries of a head, and head_dim is {x.shape[-1]}"
        )
    if table.shape[-2] != x.shape[-2]:
        raise ValueError(
            f"one position an entry of the sequence is needed: x has {x.shape[-2]}, "
            f"positions {table.shape[-2]} (the rows of table)"
        )
    if table.ndim == 2:
        return table
    batch, own = x.shape[:-3], table.shape[:-2]
    if len(own) > len(batch) or any(n not in (1, m) for n, m in zip(own[::-1], batch[::-1], strict=False)):
        raise ValueError(
            f"positions of shape {(*own, table.shape[-2])}, those of table, need x of shape (..., n_heads, seq, head_dim) "
            f"with leading dimensions {tuple(own)}, got {tuple(x.shape)}"
        )
    return table.unsqueeze(-3)


def _as_complex(x: Tensor) -> Tensor:
    """View neighbours as complex numbers; memory whose pairs are not aligned is copied first."""
    aligned = x.stride(-1) == 1 and not any(n % 2 for n in (x.storage_offset(), *x.stride()[:-1]))
    return torch.view_as_complex(
        (x if aligned else x.clone(memory_format=torch.contiguous_format)).unflatten(-1, (-1, 2))
    )


@named
def apply_rotary(
    x: Float[Tensor, "... seq head_dim"],
    table: Shaped[Tensor, "... positions pairs"],
    *,
    layout: str,
) -> Float[Tensor, "... seq head_dim"]:
    """Turn the pairs of x by the table of their positions (18.2, 18.4); the fast form.

    "interleaved" is one complex multiplication. "half" multiplies by cosines, swaps the halves and adds their product
    with the sines in place: three passes over memory where the usual form makes five. Half precision is turned in
    float32 and rounded once. Entries beyond the 2 x pairs of the table stay as they are (partial rotary).

    Shapes: x is (..., seq, head_dim); the table is (seq, pairs), or (batch, seq, pairs) for x of shape
    (batch, n_heads, seq, head_dim).

    Raises:
        ValueError: the layout is unknown, or x and table do not fit in shape, kind or device.
    """
    table, rotary_dim = _fit(x, table, layout), 2 * table.shape[-1]
    # A compiler fuses the readable form into one loop, and has no code of its own for complex numbers.
    turn = _turn_by_pairs if torch.compiler.is_compiling() else _turn
    if rotary_dim == x.shape[-1]:
        return turn(x, table, layout)
    return torch.cat([turn(x[..., :rotary_dim], table, layout), x[..., rotary_dim:]], dim=-1)


def apply_rotary_by_pairs(
    x: Float[Tensor, "... seq head_dim"],
    table: Shaped[Tensor, "... positions pairs"],
    *,
    layout: str,
) -> Float[Tensor, "... seq head_dim"]:
    """Do what `apply_rotary` does, written as the equation (18.2) is: pair by pair; the readable form.

    Raises:
        ValueError: the layout is unknown, or x and table do not fit in shape, kind or device.
    """
    table, rotary_dim = _fit(x, table, layout), 2 * table.shape[-1]
    turned = _turn_by_pairs(x[..., :rotary_dim], table, layout)
    return torch.cat([turned, x[..., rotary_dim:]], dim=-1)


def _turn_by_pairs(x: Tensor, table: Tensor, layout: str) -> Tensor:
    first, second = (x[..., 0::2], x[..., 1::2]) if layout == "interleaved" else x.chunk(2, dim=-1)
    cos, sin = table.real, table.imag
    turned = [first * cos - second * sin, first * sin + second * cos]
    joined = torch.stack(turned, dim=-1).flatten(-2) if layout == "interleaved" else torch.cat(turned, dim=-1)
    return joined.to(x.dtype)


def _turn(x: Tensor, table: Tensor, layout: str) -> Tensor:
    wide = x if x.dtype in (torch.float32, torch.float64) else x.float()
    if layout == "interleaved":
        return torch.view_as_real(_as_complex(wide) * table).flatten(-2).to(x.dtype)
    cos = torch.cat([table.real, table.real], dim=-1)
    sin = torch.cat([-table.imag, table.imag], dim=-1)
    swapped = wide.unflatten(-1, (2, -1)).flip(-2).flatten(-2)
    return (wide * cos).addcmul_(swapped, sin).to(x.dtype)


@named
def rope(
    x: Float[Tensor, "... seq head_dim"],
    positions: Shaped[Tensor, "... positions"],
    *,
    layout: str = "interleaved",
    base: float | int = 10_000.0,
    rotary_dim: int | None = None,
    frequencies: Float[Tensor, " pairs"] | None = None,
    attention_factor: float | int = 1.0,
) -> Float[Tensor, "... seq head_dim"]:
    """RoPE(x, t): every pair i of x turned by t omega_i (18.4), with no parameters.

    Turn queries and keys with it, not values. The length of x is kept, and the product of a query at m with a key at n
    depends on n - m only (18.3).

    Shapes: x is (..., n_heads, seq, head_dim); positions are (seq,) or (batch, seq). Any floating dtype; the cosines
    are those of float64 angles, rounded to float32 (kept in float64 where x is float64).
    Ranges: `rotary_dim` is the number of leading entries that turn, all by default; the others stay as they are. For a
    longer context than in training give `frequencies` in their place, as `yarn_frequencies` and the others return them,
    and with YaRN's its `attention_factor`, which multiplies what turns.

    Raises:
        ValueError: `rotary_dim` (or head_dim) is odd or too large or given beside `frequencies`, the layout is unknown,
            positions are not integers or not one for each entry of the sequence, or the factor is not above 0.

    Source: Su et al. 2021, arXiv:2104.09864.
    """
    if frequencies is None:
        turning, name = (x.shape[-1], "head_dim") if rotary_dim is None else (rotary_dim, "rotary_dim")
        _check_pairs(turning, name)
        frequencies = rope_frequencies(turning, base=base, device=x.device)
    elif rotary_dim is not None:
        raise ValueError(
            f"give frequencies, one for each pair that turns, or rotary_dim, got {len(frequencies)} and {rotary_dim}"
        )
    dtype = torch.complex128 if x.dtype == torch.float64 else torch.complex64
    table = rotary_table(positions, frequencies, dtype=dtype, attention_factor=attention_factor)
    return apply_rotary(x, table, layout=layout)


# Layouts


def layout_order(
    head_dim: int, *, source: str, target: str, rotary_dim: int | None = None
) -> Shaped[Tensor, " head_dim"]:
    """Return the index that takes a head from one layout to the other: x_target = x_source[..., order].

    Raises:
        ValueError: a layout is unknown, or `rotary_dim` is odd, below 2 or above `head_dim`.
    """
    _check_layout(source, "source")
    _check_layout(target, "target")
    rotary_dim = head_dim if rotary_dim is None else rotary_dim
    _check_pairs(rotary_dim, "rotary_dim")
    if rotary_dim > head_dim:
        raise ValueError(f"rotary_dim must be at most head_dim = {head_dim}, got {rotary_dim}")
    order = torch.arange(head_dim)
    if source != target:
        # Written as a table of pairs, one layout has a pair in each row, the other in each column.
        shape = (-1, 2) if source == "interleaved" else (2, -1)
        order[:rotary_dim] = order[:rotary_dim].reshape(shape).T.flatten()
    return order


@named
def convert_layout(
    weight: Shaped[Tensor, "rows *columns"],
    *,
    head_dim: int,
    source: str,
    target: str,
    rotary_dim: int | None = None,
) -> Shaped[Tensor, "rows *columns"]:
    """Reorder the rows of W_q or W_k, or the entries of a bias, so that the other layout gives the same scores.

    Convert queries and keys, never one of them alone; values and output are not touched. A checkpoint in the half
    layout can so be run with the interleaved one, which is faster here.

    Shapes: `weight` is (n_heads x head_dim, d_model), as in nn.Linear, or a bias (n_heads x head_dim,). Keys may have
    fewer heads than queries.

    Raises:
        ValueError: the rows are no multiple of `head_dim`, a layout is unknown, or `rotary_dim` does not fit.
    """
    order = layout_order(head_dim, source=source, target=target, rotary_dim=rotary_dim)
    if weight.shape[0] % head_dim:
        raise ValueError(
            f"weight must have a multiple of head_dim = {head_dim} rows, one block a head, got {weight.shape[0]}"
        )
    heads = weight.unflatten(0, (-1, head_dim))
    return heads.index_select(1, order.to(weight.device)).flatten(0, 1)
