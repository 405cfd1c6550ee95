"""The sentences of lesson 09, each with what decides on it."""

import math

import torch

from course_lib.lessons.gradient_estimators.bandit import PAY, failed, play
from course_lib.lessons.gradient_estimators.contents import lesson
from course_lib.lessons.gradient_estimators.pictures import step
from course_lib.optimization.gradient_estimators import gaussian_expectation, pathwise_gradients, score_gradients
from course_lib.teaching import fact


@lesson.sentence(
    "09.Q1",
    "For every bounded f and every density p_θ(x) that is smooth in θ wherever it is above 0, the average of f(x) ∇ log "
    "p_θ(x) is ∇F.",
    answer="only if x has a fixed range, or density 0 at each end that moves",
    conditions=("only if x has a fixed range, or density 0 at each end that moves", "only if f is smooth, too"),
)
def a_moving_end():
    """x uniform on (0, θ) and f = x: F = θ/2 grows. Inside the range log p = -log θ, which gives the wrong sign; what is
    missed is the end at θ, where the density stops. A density that falls to 0 at the moving end loses nothing. In each
    case we must be allowed to differentiate under the integral."""
    theta = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
    u = (torch.arange(10_000, dtype=torch.float64) + 0.5) / 10_000
    x = (theta * u).detach()
    log_density = torch.distributions.Uniform(0.0, theta).log_prob(x)
    (by_score,) = torch.autograd.grad((x * log_density).mean(), theta)
    (by_path,) = torch.autograd.grad((theta * u).mean(), theta)
    falling = 2 * (theta - x) / theta**2  # on (0, theta), 0 at the end; the mean of x is theta / 3
    (by_falling,) = torch.autograd.grad((theta.detach() * falling.detach() * x * falling.log()).mean(), theta)
    return "\n".join(
        [
            fact("θ = 2: the score estimate averages {}", by_score, equals=-0.5, within=1e-6),
            fact("the path, x = θu: {}", by_path, equals=0.5, within=1e-6),
            fact("density 2 (θ - x) / θ², F = θ/3: the score estimate {:.3f}", by_falling, equals=1 / 3, within=1e-3),
        ]
    )


@lesson.sentence("09.Q2", "(09.1) also holds for a payment that depends on θ itself.", answer=False)
def a_payment_that_moves():
    """The product rule adds the mean of the payment's own derivative. For f = μx it is half of the gradient."""
    mean, std = 1.0, 0.7
    by_score = gaussian_expectation(lambda x: mean * x * (x - mean) / std**2, mean=mean, std=std)
    own = gaussian_expectation(lambda x: x, mean=mean, std=std)
    return "\n".join(
        [
            fact("f = μx, μ = 1, so F = μ² and its derivative is 2: the score estimate averages {}",
                 by_score, equals=1, within=1e-9),
            fact("with the mean of ∂f/∂μ added: {}", by_score + own, equals=2, within=1e-9),
        ]
    )  # fmt: skip


@lesson.sentence(
    "09.Q3",
    "If f has a derivative at every point but one, and that derivative is bounded, the path estimate is right on average.",
    answer="only if f does not jump there",
    conditions=("only if f does not jump there", "only if f has no kink there"),
)
def a_kink_and_a_jump():
    """A kink does no harm: no sample lies on it, and nothing is lost on the way across. A jump is lost."""
    z = torch.randn(400_000, 1, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    mean = torch.tensor([0.6], dtype=torch.float64)
    kink = pathwise_gradients(lambda x: x[:, 0].abs(), mean, std=1, noise=z).mean()
    jump = pathwise_gradients(step, mean, std=1, noise=z).mean()
    seen = score_gradients(step, mean, std=1, noise=z).mean()
    return "\n".join(
        [
            fact("|x|, μ = 0.6, σ = 1, derivative 0.451: the path averages {:.3f}",
                 kink, equals=math.erf(0.6 / math.sqrt(2)), within=0.01),
            fact("1[x > 0], derivative 0.333: the path averages {}", jump, equals=0, within=0),
            fact("and the score {:.3f}", seen, equals=math.exp(-0.18) / math.sqrt(2 * math.pi), within=0.01),
        ]
    )  # fmt: skip


@lesson.sentence(
    "09.Q4",
    "With the mean of the payments so far as a baseline, 0 before the first, the learners tolerate any added constant.",
    answer=False,
)
def the_first_pull():
    """The first pull of a learner is compared with 0. If it pays 100, it decides at once which arm is drawn from then on."""
    lost = {added: failed(play(added, baseline=True)[-1]) for added in (100.0, 10.0)}
    return "\n".join(
        [
            fact("100 added: {} of 100 learners end on a worse arm", lost[100.0], at_least=50),
            fact("10 added: {}", lost[10.0], at_most=5),
        ]
    )


@lesson.sentence(
    "09.Q5",
    "Before the first pull, when all arms are equally likely, the mean payment is the constant baseline with the least "
    "variance, summed over the five logits.",
    answer=True,
)
def equal_scores():
    """All scores have the same length there, so that each payment has the same weight. Later they have not, and for a
    single logit they have not even then."""
    pay, best = torch.tensor(PAY, dtype=torch.float64), []
    for p in (torch.full((5,), 0.2, dtype=torch.float64), torch.tensor([0.6, 0.1, 0.1, 0.1, 0.1], dtype=torch.float64)):
        score = torch.eye(5, dtype=torch.float64) - p  # one row for each arm
        candidates = torch.linspace(-1, 2, 3001, dtype=torch.float64)
        noise = ((pay - candidates[:, None]).square() * score.square().sum(1)) @ p
        best.append(float(candidates[noise.argmin()] - p @ pay))
    weight = (torch.eye(5, dtype=torch.float64)[4] - 0.2).square()  # equally likely, logit 5 alone: (09.3)
    alone = float(weight @ pay / weight.sum())
    return "\n".join(
        [
            fact(
                "equally likely: the best baseline of a grid less the mean payment, {:.3f}",
                best[0],
                equals=0,
                within=2e-3,
            ),
            fact("arm 1 drawn in 60% of the pulls: {:.2f}", best[1], at_least=0.1),
            fact("equally likely, logit 5 alone: {:.3f}", alone - float(pay.mean()), at_least=0.5),
        ]
    )
