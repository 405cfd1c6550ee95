"""The quiz of lesson 06, steepest_descent."""

import itertools
import math

import torch

from course_lib.lessons.steepest_descent.contents import lesson
from course_lib.lessons.steepest_descent.pictures import EXAMPLE, muon_step
from course_lib.optimization.steepest_descent import constrained_step
from course_lib.teaching import fact


@lesson.sentence(
    "06.Q1", "For every direction d with ⟨g, d⟩ < 0 there is a norm in which d is the steepest step.", answer=True
)
def steepest_in_some_norm():
    """With B = gᵀg/(-⟨g, d⟩) + I - ddᵀ/‖d‖₂², here gᵀg with g as a row, Bd = -g, and B is positive definite. In the norm
    √(ΔᵀBΔ) the steepest step is along -B⁻¹g = d. So a step that goes down is steepest for somebody: the norm needs a reason
    of its own. The check draws 100 gradients and directions with five entries."""
    generator = torch.Generator().manual_seed(0)
    normal = lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)  # noqa: E731
    smallest, shares = [], []
    for _ in range(100):
        g, d = normal(5), normal(5)
        d = d if float(g @ d) < 0 else -d
        B = torch.outer(g, g) / -(g @ d) + torch.eye(5, dtype=torch.float64) - torch.outer(d, d) / d.square().sum()
        others = normal(2000, 5)
        gains = -(others @ g) / ((others @ B) * others).sum(1).sqrt()
        smallest.append(float(torch.linalg.eigvalsh(B)[0]))
        shares.append(float(gains.max() / (-(g @ d) / (d @ B @ d).sqrt())))
    return "\n".join(
        (
            fact("the smallest eigenvalue of all these B is {:.0e}", min(smallest), at_least=1e-9),
            fact("of 2,000 random steps of the same length, the best gains {:.3f} of what d gains", max(shares),
                 at_most=1),
        )
    )  # fmt: skip


@lesson.sentence(
    "06.Q2", "Among steps with ‖Δ‖ < η, the border left out, there is a steepest one.",
    answer="only if the gradient is 0",
    conditions=("only if the gradient is 0", "only if the norm is L2"),
)  # fmt: skip
def open_ball():
    """Each step inside that goes down can be stretched a little and goes down further: the value -η‖g‖ of the dual norm
    is approached and not reached. With ≤ in the place of < it is reached. If g = 0, all steps are equal."""
    shares = 1 - torch.logspace(-1, -6, 6, dtype=torch.float64)
    direction = -EXAMPLE / EXAMPLE.norm()
    values = torch.stack([EXAMPLE @ (share * direction) for share in shares])
    return "\n".join(
        (
            fact(
                "L2, six lengths ever closer to η: each value is lower by {:.0e} or more", -values.diff(), at_least=1e-6
            ),
            fact("the last is still {:.0e} above -‖g‖", float(values[-1] + EXAMPLE.norm()), at_least=1e-7),
        )
    )


@lesson.sentence(
    "06.Q3", "The step -η sign(g) is the only steepest step in the L∞ ball.",
    answer="only if no entry of the gradient is 0",
    conditions=("only if no entry of the gradient is 0", "only if all entries have the same size"),
)  # fmt: skip
def unique():
    """A weight whose entry of the gradient is 0 may move anywhere between -η and η at no gain and no loss. All others
    have to go to the border: anything less gains less."""
    flat, eta = torch.tensor([3.0, 0.0, 2.0], dtype=torch.float64), 0.5
    moved = torch.tensor([[-eta, middle, -eta] for middle in (-0.5, -0.1, 0.0, 0.5)], dtype=torch.float64)
    steps = torch.cartesian_prod(*[torch.linspace(-eta, eta, 11, dtype=torch.float64)] * 3)
    lowest = steps @ EXAMPLE
    as_low = int((lowest < lowest.min() + 1e-9).sum())
    return "\n".join(
        (
            fact("g = (3, 0, 2): four different steps change it by {:.1f}", moved @ flat, equals=-2.5, within=1e-12),
            fact("g = (3, -1, 2): of 1,331 steps on a grid, {} is the lowest", as_low, equals=1, within=0),
        )
    )


@lesson.sentence(
    "06.Q4", "The singular values of a step of torch.optim.Muon with lr=1 are 1, up to rounding.", answer=False
)
def muon_is_close():
    """Muon replaces the singular value decomposition by five rounds of a polynomial. It was chosen to lift small
    singular values fast, and 1 is not a point where it stays."""
    gaussian = torch.randn(64, 128, generator=torch.Generator().manual_seed(0))
    step = muon_step(gaussian)
    values = torch.linalg.svdvals(step.double())
    exact = constrained_step(gaussian, norm="spectral", radius=1.0)
    return "\n".join(
        (
            fact(
                "gradient of 64 × 128 normal numbers: the smallest is {:.2f}",
                float(values.min()),
                equals=0.68,
                within=0.06,
            ),
            fact("the largest is {:.2f}", float(values.max()), equals=1.13, within=0.06),
            fact(
                "the step is {:.0%} away from the exact one", float((step - exact).norm() / exact.norm()), at_least=0.1
            ),
        )
    )


@lesson.sentence(
    "06.Q5", "A linear map of two weights that keeps the L∞ length of every step also keeps its L2 length.", answer=True
)
def square_to_square():
    """Such a map takes the square to itself, so its corners to corners: it swaps the weights and flips signs, and no
    more. The check tries all 2 × 2 matrices with entries -1, -0.5, 0, 0.5 and 1 on 360 steps."""
    angles = torch.arange(360, dtype=torch.float64) * math.pi / 180
    steps = torch.stack([angles.cos(), angles.sin()])
    lengths = {"linf": lambda x: x.abs().amax(0), "l2": lambda x: x.norm(dim=0)}
    kept = {name: set() for name in lengths}
    for entries in itertools.product((-1.0, -0.5, 0.0, 0.5, 1.0), repeat=4):
        matrix = torch.tensor(entries, dtype=torch.float64).view(2, 2)
        for name, length in lengths.items():
            if torch.allclose(length(matrix @ steps), length(steps), rtol=0, atol=1e-9):
                kept[name].add(entries)
    return "\n".join(
        (
            fact("of 625 matrices, {} keep all L∞ lengths", len(kept["linf"]), equals=8, within=0),
            fact("of these, {} keep all L2 lengths", len(kept["linf"] & kept["l2"]), equals=8, within=0),
        )
    )


@lesson.sentence(
    "06.Q6", "The spectral step turns with a rotation of the weights: the step of the rotated gradient is the rotated step.",
    answer="only if it keeps the singular values of every matrix",
    conditions=("only if it keeps the singular values of every matrix", "only if the gradient is square"),
)  # fmt: skip
def mixed_entries():
    """Inputs and outputs rotated, P G Q, leave the singular values as they are. A random rotation of all entries is not of
    that form: it keeps the sum of their squares and changes the singular values. The gradient here is 4 × 4: being square
    does not help."""
    generator = torch.Generator().manual_seed(0)
    normal = lambda n: torch.randn(n, n, generator=generator, dtype=torch.float64)  # noqa: E731
    gradient, turns = normal(4), [torch.linalg.qr(normal(n)).Q for n in (4, 4, 16)]
    step = lambda matrix: constrained_step(matrix, norm="spectral", radius=1.0)  # noqa: E731
    both = lambda matrix: turns[0] @ matrix @ turns[1]  # noqa: E731
    mixed = lambda matrix: (turns[2] @ matrix.flatten()).view(4, 4)  # noqa: E731
    return "\n".join(
        (
            fact("inputs and outputs: the steps differ by {:.0e}", (step(both(gradient)) - both(step(gradient))).norm(),
                 at_most=1e-12),
            fact("random rotation of all 16 entries: by {:.1f}",
                 (step(mixed(gradient)) - mixed(step(gradient))).norm(), at_least=0.5),
        )
    )  # fmt: skip
