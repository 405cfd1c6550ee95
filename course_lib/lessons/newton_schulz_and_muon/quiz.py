"""The quiz of lesson 08, newton_schulz_and_muon."""

import torch

from course_lib.lessons.newton_schulz_and_muon.contents import lesson
from course_lib.lessons.newton_schulz_and_muon.pictures import count_flops, stored_row
from course_lib.optimization.muon import Muon
from course_lib.optimization.newton_schulz import CUBIC, newton_schulz_step, odd_polynomial
from course_lib.optimization.steepest_descent import orthogonal_factor
from course_lib.teaching import fact


def _repeated(matrix: torch.Tensor, steps: int = 60) -> torch.Tensor:
    for _ in range(steps):
        matrix = newton_schulz_step(matrix, CUBIC)
    return matrix


@lesson.sentence(
    "08.Q1", "Repeat the cubic on G, of full rank and with no singular value above 2: it tends to UVᵀ.",
    answer="only if all singular values are below √3",
    conditions=("only if all singular values are below √3", "only if G is square"),
)  # fmt: skip
def as_it_comes():
    """√3 goes to 0, and a value between √3 and 2 below 0 and then to -1: that direction is reversed, and a step goes uphill
    in it. Here G is 3 × 3 with singular values 1.9, 1 and 1/2, so being square does not help; divided by its Frobenius norm
    first, it arrives."""
    generator = torch.Generator().manual_seed(0)
    U, V = (torch.linalg.qr(torch.randn(3, 3, generator=generator, dtype=torch.float64)).Q for _ in range(2))
    G = U @ torch.tensor([1.9, 1.0, 0.5], dtype=torch.float64).diag() @ V.T
    return "\n".join(
        (
            fact("as it comes: the first direction ends at {:.2f}", float(U[:, 0] @ _repeated(G) @ V[:, 0]),
                 equals=-1, within=1e-6),
            fact("divided by its norm: at {:.2f}", float(U[:, 0] @ _repeated(G / G.norm()) @ V[:, 0]),
                 equals=1, within=1e-6),
        )
    )  # fmt: skip


@lesson.sentence(
    "08.Q2",
    "The product WWᵀ, with W of d_out rows and d_in columns, takes about 2 d_out d_in operations.",
    answer=False,
)
def gram_product():
    """That is one multiplication and one addition for each entry of W. But each of the d_out² entries of the result is a sum
    of d_in products, so it takes 2 d_out² d_in. Torch counts it for 96 × 24."""
    counted = count_flops(lambda W: W @ W.mT, 96, 24)
    return "\n".join(
        (
            fact("{} operations", counted, equals=2 * 96 * 96 * 24, within=0),
            fact("{} times 2 d_out d_in", counted / (2 * 96 * 24), equals=96, within=0),
        )
    )


@lesson.sentence(
    "08.Q3", "(3I - WWᵀ)W / 2 and W(3I - WᵀW) / 2 give the same, and take as many operations.",
    answer="only if W is square",
    conditions=("only if W is square", "only if W has full rank"),
)  # fmt: skip
def left_or_right():
    """The results agree for every W. The operations do not: the Gram matrix belongs on the shorter side. Torch counts both
    for 96 × 24, a matrix of full rank."""
    W = torch.randn(96, 24, generator=torch.Generator().manual_seed(0), dtype=torch.float64) / 20
    left = lambda W: (3 * torch.eye(len(W), dtype=W.dtype, device=W.device) - W @ W.mT) @ W / 2  # noqa: E731
    right = lambda W: W @ (3 * torch.eye(W.shape[1], dtype=W.dtype, device=W.device) - W.mT @ W) / 2  # noqa: E731
    return "\n".join(
        (
            fact("the results differ by {:.0e}", (left(W) - right(W)).abs().max(), at_most=1e-12),
            fact("left over right: {} times the operations", count_flops(left, 96, 24) / count_flops(right, 96, 24),
                 equals=4, within=0),
        )
    )  # fmt: skip


@lesson.sentence(
    "08.Q4", "An odd polynomial with p(1) = 1, repeated, brings all values near 1 to 1.",
    answer="only if it is not too steep at 1",
    conditions=("only if it is not too steep at 1", "only if its coefficients add up to 1"),
)  # fmt: skip
def rest_at_one():
    """Near 1 a step multiplies the distance to 1 by the slope there: the values come to rest if it lies between -1 and 1.
    That the coefficients add up to 1 is p(1) = 1 in other words. Here p(s) = 2.2 s - 1.2 s³, whose slope at 1 is -1.4."""
    ends = []
    for pair in ((2.2, -1.2, 0.0), (1.8, -0.8, 0.0)):
        s = torch.tensor(1.01, dtype=torch.float64)
        for _ in range(101):
            s = odd_polynomial(s, pair)
        ends.append(abs(float(s) - 1))
    return "\n".join(
        (
            fact("from 1.01, slope -1.4: after 101 steps {:.2f} away from 1", ends[0], at_least=0.1),
            fact("with 1.8 s - 0.8 s³, slope -0.6: {:.0e} away", ends[1], at_most=1e-12),
        )
    )


@lesson.sentence(
    "08.Q5", "On the processor measured here, products give UVᵀ sooner than a singular value decomposition.",
    answer="only if a rough result is enough",
    conditions=("only if a rough result is enough", "only if an exact result is wanted"),
)  # fmt: skip
def sooner():
    """Five steps of Polar Express in bfloat16 take less than half the time of a decomposition and leave an error of about
    0.2. To 0.00001 the iteration takes longer. The stored times are for 1024 × 1024, one thread, no GPU."""
    rough, exact = (stored_row(name) for name in ("Polar Express 5, bfloat16", "polar_factor, iteration"))
    return "\n".join(
        (
            fact("rough: {:.2f} of the decomposition's time", rough[1], at_most=0.6),
            fact("to five digits: {:.1f} times its time", exact[1], at_least=1.3),
        )
    )


@lesson.sentence(
    "08.Q6", "Divide all gradients by a thousand: Muon's steps stay the same, up to rounding.", answer=True
)
def scale_free():
    """In (08.7) momentum is divided by its norm, and only then flattened: its scale is forgotten. Gradient descent's steps
    would shrink by a thousand."""

    def moved(scale: float) -> torch.Tensor:
        weights = torch.zeros(24, 32, dtype=torch.float64, requires_grad=True)
        optimizer = Muon([weights], lr=1.0, weight_decay=0.0, compute_dtype=torch.float64)
        generator = torch.Generator().manual_seed(1)
        for _ in range(3):
            weights.grad = scale * torch.randn(24, 32, generator=generator, dtype=torch.float64)
            optimizer.step()
        return weights.detach()

    usual, small = moved(1.0), moved(0.001)
    return "\n".join(
        (
            fact("three steps differ by {:.0e} of their length", (usual - small).norm() / usual.norm(), at_most=1e-9),
            fact("the first is {:.0%} away from exactly flat", _away_from_flat(), at_least=0.01),
        )
    )


def _away_from_flat() -> float:
    """Return how far five steps of Polar Express are from the orthogonal factor, over its length, for a 24 x 32 matrix."""
    G = torch.randn(24, 32, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    weights = torch.zeros_like(G, requires_grad=True)
    weights.grad = G
    Muon([weights], lr=1.0, weight_decay=0.0, nesterov=False, compute_dtype=torch.float64).step()
    return float((-weights.detach() - orthogonal_factor(G)).norm() / orthogonal_factor(G).norm())
