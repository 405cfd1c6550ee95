"""The quiz of lesson 01, gradient_descent_stability."""

import torch

from course_lib.lessons.gradient_descent_stability.contents import lesson
from course_lib.lessons.gradient_descent_stability.pictures import SWEEP, fewest_steps, small_network, spectrum
from course_lib.optimization.gradient_descent import (
    best_step,
    gradient_descent,
    sharpness,
    stability_limit,
    steps_to_accuracy,
    steps_to_share,
    worst_rate,
)
from course_lib.teaching import fact


@lesson.sentence(
    "01.Q1",
    "From $w_0 = 0$ the relative error is below $\\varepsilon$ once $t > \\ln\\varepsilon / \\ln(1 - 2\\eta\\sigma^2)$.",
    answer="only if η is below 1/(2σ²)",
    conditions=("only if η is below 1/(2σ²)", "only if η is below 1/σ²"),
)  # fmt: skip
def logarithm():
    """Above 1/(2σ²) the factor is negative and has no logarithm. Its absolute value does: it is what the size of the error
    is multiplied by. At 1/(2σ²) one step is enough."""
    factor = torch.tensor(1 - 2 * 0.8)
    printed = torch.tensor(0.01).log() / factor.log()
    bound = torch.tensor(0.01).log() / factor.abs().log()
    return "\n".join(
        (
            fact("σ = 1, η = 0.8: the bound as printed is not a number", bool(printed.isnan())),
            fact("with the absolute value it is {:.4f}", bound, equals=9.0152, within=1e-3),
            fact("steps needed: {}", steps_to_accuracy(1.0, step_size=0.8, accuracy=0.01), equals=10, within=0),
        )
    )  # fmt: skip


@lesson.sentence(
    "01.Q2", "The step $1/(\\sigma_{\\max}^2 + \\sigma_{\\min}^2)$ of (01.4) reaches a wanted loss first.",
    answer="only if the start is the worst one",
    conditions=("only if the start is the worst one", "only if there are two directions"),
)  # fmt: skip
def fastest():
    """For the worst start it is exact, with any number of directions. A given start may have little error along the
    flattest direction, and then a shorter or longer step wins: here, 1% of the standardised patients' loss."""
    sigmas, shares = spectrum("standardised")
    theirs = steps_to_share(sigmas, shares, step_size=best_step(sigmas), share=0.01)
    steps, part = fewest_steps("standardised")
    five = torch.tensor([3.0, 2.5, 2.0, 1.0, 0.5], dtype=torch.float64)
    grid = [worst_rate(five, step_size=s * stability_limit(five)) for s in SWEEP]
    return "\n".join(
        (
            fact("standardised patients, the step of (01.4): {} steps", theirs, equals=482, within=3),
            fact(f"a step of {part:.2f} of the border: {{}}", steps, at_most=10),
            fact("five directions, worst start: the best of 60 steps is slower by a rate of {:.4f}",
                 min(grid) - worst_rate(five, step_size=best_step(five)), at_least=0),
        )
    )  # fmt: skip


@lesson.sentence(
    "01.Q3", "For a diagonal matrix $\\Sigma$ a step is $w_{t+1} = (I - 2\\eta\\Sigma)\\,w_t + 2\\eta\\Sigma y$.",
    answer="only if every σ is 0 or 1", conditions=("only if every σ is 0 or 1", "only if every σ is below 1/η"),
)  # fmt: skip
def lost_square():
    """The gradient holds Σ twice: from the residual and from the chain rule. Repeated, this map ends at y instead of y/σ."""
    sigmas, target = (torch.tensor(v, dtype=torch.float64) for v in ([3.0, 0.5], [3.0, 1.0]))
    weights = torch.tensor([0.2, -0.4], dtype=torch.float64)
    right = gradient_descent(torch.diag(sigmas), target, weights, step_size=0.03, steps=1)[1]
    printed = (1 - 2 * 0.03 * sigmas) * weights + 2 * 0.03 * sigmas * target
    for _ in range(2000):
        weights = (1 - 2 * 0.03 * sigmas) * weights + 2 * 0.03 * sigmas * target
    return "\n".join(
        (
            fact("σ = (3, 0.5), y = (3, 1): the two steps differ by {:.3f}", (printed - right).abs().max(), at_least=0.07),
            fact("repeated, the map ends {:.0e} from y", (weights - target).abs().max(), at_most=1e-9),
        )
    )  # fmt: skip


@lesson.sentence("01.Q4", "A network diverges when $\\eta\\,\\lambda_{\\max}$ is above 2 at its start.", answer=False)
def network_above():
    """Five networks, 400 steps each. Half above the border all five still learn: their curvature falls as they move. Further
    above, none did."""
    learned = {}
    for factor in (1.5, 2.5):
        shares = []
        for seed in range(5):
            weights, loss = small_network(seed=seed)
            first, gradient = float(loss(weights)), torch.func.grad(loss)
            border = 2 / sharpness(loss, weights, generator=torch.Generator().manual_seed(1))
            for _ in range(400):
                weights = weights - factor * border * gradient(weights)
                if not float(weights.norm()) < 1e4:
                    break
            last = float(loss(weights))
            shares.append(last / first)
        learned[factor] = sum(share < 0.5 for share in shares)
    return "\n".join(
        fact(f"{factor} times the border at the start: {{}} of 5 networks halve their loss",
             count, equals=5 * (factor < 2), within=0)
        for factor, count in learned.items()
    )  # fmt: skip
