"""What a GPU allows forms of attention, by counting alone: multiply-adds, bytes, and where linear time overtakes softmax.

Of one token of one head with D = M. A call can be no faster than its multiply-adds at the rate of the tensor cores, nor
than its inputs and outputs, once each, at the rate of the memory; what takes longer is its roofline. Counted are the
products of the form with the fewest: softmax compares N keys a query (N / 2 if causal) and sums as many values; C features
write and read sums of C (M + 1) numbers; the delta rule asks, writes and reads a matrix; ridge attention keeps an inverse
besides, with P k, the update of P and P q. Making features, exponentials and launches count nothing. Nor does time: the
delta rule and ridge attention go token by token in this form, and chunks, which a GPU needs, multiply more.

A gradient by hand computes each product but the last again and follows both of its factors: of n products 4 - 1 / n times
the forward pass. It reads the three inputs and the gradient of the output, and writes three gradients.

Rates are those of NVIDIA's data sheets for the H200 SXM, dense: 67 TFLOP/s in float32, 494.5 in TF32, 989.5 in bfloat16,
4.8 TB/s. The H100 SXM has the same but for 3.35 TB/s.
"""

from typing import NamedTuple

from course_lib.attention.kernelized import Quadratic, linear_multiply_adds

HEAD_DIMS = (64, 16)
BANDWIDTH = 4.8e12  # bytes a second
TFLOPS = {"float32": 67, "TF32": 494.5, "bfloat16": 989.5}
BYTES = {"float32": 4, "TF32": 4, "bfloat16": 2}


class Form(NamedTuple):
    """A form of attention in linear time: multiply-adds a token in the forward pass, and products that these are."""

    multiply_adds: int
    products: int


def forms(d: int) -> dict[str, Form]:
    """Return the forms of a head of D = M = d entries."""

    def features(n: int) -> Form:
        return Form(linear_multiply_adds(1, d, n_features=n), 2)

    n_quadratic = Quadratic().n_features(d)
    return {
        f"quadratic, C = {n_quadratic:,}": features(n_quadratic),
        "256 random features": features(256),
        f"elu + 1, C = {d}": features(d),
        "delta rule": Form(3 * d * d, 3),
        "ridge": Form(5 * d * d, 5),
    }


def seconds_a_token(form: Form, d: int, dtype: str, *, training: bool = False) -> tuple[float, float]:
    """Return the rooflines of multiply-adds and of bytes of a token of one head."""
    times, tables = (4 - 1 / form.products, 11) if training else (1, 4)
    return (
        2 * times * form.multiply_adds / (1e12 * TFLOPS[dtype]),
        tables * d * BYTES[dtype] / BANDWIDTH,
    )


def balance(dtype: str) -> float:
    """Return the multiply-adds that take as long as a byte."""
    return 1e12 * TFLOPS[dtype] / 2 / BANDWIDTH


def softmax_balance(dtype: str) -> float:
    """Return the length up to which softmax attention, without a mask and forward, takes as long as its bytes do."""
    return 4 * BYTES[dtype] * balance(dtype) / 2


def crossover(form: Form, d: int, dtype: str, *, causal: bool = False, training: bool = False) -> float:
    """Return the length N from which on softmax attention's roofline is above that of the form.

    Softmax attention moves the same bytes, so below its own crossing from bytes to multiply-adds both take as long.
    """
    of_pair = Form(d if causal else 2 * d, 2)
    each, _ = seconds_a_token(of_pair, d, dtype, training=training)
    return max(seconds_a_token(form, d, dtype, training=training)) / each


def table() -> str:
    """Return counts and crossovers as Markdown."""
    rows = [
        "| head, form | multiply-adds a token | for a byte, bfloat16 | float32 | TF32 | bfloat16 | causal, bfloat16 "
        "| causal, forward and backward |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for d in HEAD_DIMS:
        for name, form in forms(d).items():
            crossings = [crossover(form, d, dtype) for dtype in TFLOPS]
            crossings += [
                crossover(form, d, "bfloat16", causal=True, training=after) for after in (False, True)
            ]
            bound = form.multiply_adds / (4 * d * BYTES["bfloat16"])
            cells = [f"{form.multiply_adds:,}", f"{bound:,.1f}", *(f"{n:,.0f}" for n in crossings)]
            rows.append(f"| {d}, {name} | {' | '.join(cells)} |")
    return "\n".join(rows)
