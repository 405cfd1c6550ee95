"""The quiz of lesson 01, gradient_descent_stability."""

import torch

from course_lib.lessons.gradient_descent_stability.contents import lesson
from course_lib.lessons.gradient_descent_stability.pictures import SWEEP, patients, small_network, spectrum
from course_lib.optimization.gradient_descent import (
    excess_shares,
    gradient_descent,
    sharpness,
    stability_limit,
    steps_to_accuracy,
    steps_to_share,
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


def _steps(path, *, loss=1e-6):
    """Return the first step at which sum of sigma_i^2 e_i^2, here the rows' sum of squares, is below `loss` of the first."""
    losses = path.square().sum(1)
    return int((losses < loss * losses[0]).int().argmax())


def _from_one_direction(step_size, place, *, sigmas=(2.0, 1.0)):
    """Run gradient descent with an error along one of the directions only; return the steps to a millionth of the loss."""
    matrix = torch.diag(torch.tensor(sigmas, dtype=torch.float64))
    start = torch.eye(len(sigmas), dtype=torch.float64)[place]
    return _steps(gradient_descent(matrix, 0 * start, start, step_size=step_size, steps=200) @ matrix)


@lesson.sentence(
    "01.Q2",
    "From a start that is the worst for it, the step size of (01.4) is faster than any other.",
    answer=False,
)  # fmt: skip
def fastest():
    """It has the best guarantee over all starts: no other step size does better from its own worst start. But from one given
    start another can be faster, even if that start is the worst for (01.4). Here σ = (2, 1), the loss falls to 1e-6 of the
    first, and the error lies along the flat direction only."""
    sizes = [part / 4 for part in SWEEP]  # the border is 1/4
    worst = [max(_from_one_direction(size, place) for place in (0, 1)) for size in sizes if 0.02 < size < 0.245]
    return "\n".join(
        (
            fact("η = 0.2, the step size of (01.4): {} steps", _from_one_direction(0.2, 1), equals=14, within=0),
            fact("η = 0.24: {} steps", _from_one_direction(0.24, 1), equals=11, within=0),
            fact("η = 0.24 with the error along the steep direction: {} steps",
                 _from_one_direction(0.24, 0), equals=83, within=0),
            fact("other step sizes, each from its own worst start: never fewer than {}", min(worst), at_least=14),
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
    """Five networks, 400 steps each. At 1.5 times the border all five learn, and their sharpness falls. At 2.5 times all
    five diverge: their weights grow beyond a norm of 10,000."""
    shares, sharper, norms = [], [], []
    for seed in range(5):
        start, loss = small_network(seed=seed)
        gradient = torch.func.grad(loss)
        sharp = lambda at: sharpness(loss, at, generator=torch.Generator().manual_seed(1))  # noqa: B023, E731
        for factor in (1.5, 2.5):
            weights, step_size = start, factor * 2 / sharp(start)
            for _ in range(400):
                weights = weights - step_size * gradient(weights)
                if not float(weights.norm()) < 1e4:
                    break
            if factor == 1.5:
                shares.append(float(loss(weights) / loss(start)))
                sharper.append(sharp(weights) / sharp(start))
            else:
                norms.append(float(weights.norm()))
    return "\n".join(
        (
            fact("1.5 times the border: of the loss at most {:.2f} is left", shares, at_most=0.5),
            fact("and of the sharpness at most {:.2f}", sharper, at_most=1),
            fact("2.5 times the border: the norm of the weights exceeds {:.0e}", norms, at_least=1e4),
        )
    )  # fmt: skip


@lesson.sentence(
    "01.Q5", "For these raw measurements the steepest direction holds little of the removable loss.",
    answer="only if the mean is subtracted from y",
    conditions=("only if the mean is subtracted from y", "only if the columns are centred"),
)  # fmt: skip
def little_in_the_steepest():
    """All measurements are positive and most vary little between patients, so the steepest direction is almost the average
    over the patients, and the average of y is 0 once its mean is subtracted. With the mean, that direction holds nearly
    all, and 1% of what can be removed then is left far sooner."""
    sigmas, shares = spectrum("raw")
    matrix, target = patients(keep_mean=True)
    _, kept = excess_shares(matrix, target, matrix.new_zeros(11))
    steepest = torch.linalg.svd(matrix, full_matrices=False)[0][:, 0]
    counts = [steps_to_share(sigmas, kept, step_size=s * stability_limit(sigmas), share=0.01) for s in SWEEP]
    return "\n".join(
        (
            fact("the cosine of its column of U and a column of ones is {:.3f}", steepest.mean().abs() * 442**0.5,
                 at_least=0.98),
            fact("mean subtracted: it holds {:.4f}", shares[0], at_most=0.01),
            fact("mean kept: it holds {:.2f}", kept[0], at_least=0.85),
            fact("mean kept: 1% is left after {:,.0f} steps", min(counts), at_most=50_000),
        )
    )  # fmt: skip
