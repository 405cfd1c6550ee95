"""Exercises of lesson 02, momentum."""

import torch

from course_lib.lessons.momentum.contents import lesson
from course_lib.teaching import close, edit, inputs, near, normal, one_of, uniform, whole


def _velocity(momentum: float, sign: int, steps: int = 400) -> float:
    """The size of the velocity after many gradients of size 1 that agree, or alternate."""
    velocity = 0.0
    for step in range(steps):
        velocity = momentum * velocity + sign**step
    return abs(velocity)


lesson.value(
    "02.1", "Steady and alternating", difficulty=1, minutes=5,
    prompt="Let $\\beta = 0.9$ and $v_0 = 0$ in (02.1). Which size does the velocity approach if the gradients are 1, 1, 1, "
    "..., and which if they are 1, -1, 1, -1, ...? Give a dictionary with the numbers `steady` and `alternating`, to four "
    "decimals.",
    answer={"steady": 10.0, "alternating": 10 / 19},
    properties=[
        ("Under steady gradients the velocity approaches another size.",
         lambda steady: close(steady, _velocity(0.9, 1), atol=1e-4)),
        ("Under alternating gradients the velocity approaches another size.",
         lambda alternating: close(alternating, _velocity(0.9, -1), atol=1e-4)),
    ],
    hints=(
        "Write down the first three velocities. Which series is that?",
        "A gradient that is k steps old counts β to the power k, with its sign.",
        "Both are geometric series: one with the factor β, the other with -β.",
    ),
    mistakes=[
        ("nothing remembered", {"steady": 1.0, "alternating": 1.0},
         "That is the size of one gradient. The velocity keeps 0.9 of what it was."),
        ("all cancels", {"steady": 10.0, "alternating": 0.0},
         "`steady` is right. Alternating gradients do not cancel completely: an older one counts less than a newer one."),
        ("averaged", {"steady": 1.0, "alternating": 1 / 19},
         "You multiplied each gradient by 1 - β, as for an average. In (02.1) it enters whole."),
        ("no signs", {"steady": 10.0, "alternating": 10.0},
         "You added sizes. In the second case every other gradient has a minus sign."),
        ("exchanged", {"steady": 10 / 19, "alternating": 10.0}, "You exchanged the two."),
        ("one short", {"steady": 9.0, "alternating": 9 / 19},
         "You left out the newest gradient. It counts fully."),
        ("inverted", {"steady": 10.0, "alternating": 1.9},
         "`steady` is right. For `alternating` you have 1 + β; the series is its inverse."),
    ],
)


def _grows(step_size: float, momentum: float, curvature: float, steps: int = 3000) -> bool:
    """Whether an error of 1 is larger than 1 after many steps."""
    error, velocity = 1.0, 0.0
    for _ in range(steps):
        velocity = momentum * velocity + curvature * error
        error = error - step_size * velocity
        if abs(error) > 1e6:
            break
    return abs(error) > 1


def _is_border(answer: float) -> bool:
    if not 0 < answer < 100:
        return False
    return not _grows(0.998 * answer, 0.8, 4.0) and _grows(1.002 * answer, 0.8, 4.0)


lesson.value(
    "02.2", "The border", difficulty=2, minutes=5,
    prompt="Along one direction the loss is $\\frac12\\lambda e^2$ with the error $e$ and the curvature $\\lambda = 4$; the "
    "momentum is $\\beta = 0.8$. At the border the error changes its sign in each step and keeps its size. By (02.2), at "
    "which step size is that?",
    answer=0.9,
    properties=[("A run with 0.2% less must shrink, and one with 0.2% more must grow.", _is_border)],
    hints=(
        "If the error alternates, so does the gradient, which is 4 e. How large is the velocity?",
        "In (02.2) the velocity is the gradient over 1 + β. Which step leads from e to -e?",
        "The step has to be 2 e long: η · 4 e/1.8 = 2 e.",
    ),
    mistakes=[
        ("no momentum", 0.5, "That is the border of gradient descent, 2/λ.", near(0.5, within=1e-6)),
        ("steady", 0.1, "You used the sum for steady gradients. At the border they alternate.", near(0.1, within=1e-6)),
        ("divided", 0.5 / 1.8, "You divided by 1 + β where the step grows by it: the velocity is smaller, so the step may "
         "be longer.", near(0.5 / 1.8, within=1e-3)),
        ("to the minimum", 0.45, "That step ends at the minimum. At the border it ends as far on the other side.",
         near(0.45, within=1e-6)),
        ("no curvature", 3.6, "That is the border of ηλ. Divide by the curvature.", near(3.6, within=1e-6)),
        ("added up", 2.5, "You multiplied by 1/(1 - β), which makes steady gradients longer.", near(2.5, within=1e-6)),
        ("half a square", 1.8, "Your gradient is 2e. That of ½ · 4e² is 4e.", near(1.8, within=1e-6)),
    ],
)


def _with_velocity(weights, before, gradient, step_size, momentum):
    """One step of (02.1), with the velocity that led from `before` to `weights`."""
    velocity = momentum * (before - weights) / step_size + gradient
    return weights - step_size * velocity


@lesson.exercise(
    "02.3", "Without a velocity", difficulty=2, minutes=6,
    prompt="The velocity of (02.1) is hidden in the last two weights. Write `next_weights(weights, before, gradient, "
    "step_size, momentum)`: return $w_{t+1}$ from $w_t$ (`weights`), $w_{t-1}$ (`before`) and the gradient at $w_t$, all of "
    "shape $(d,)$.",
    draw=inputs(d=whole(2, 3), weights=normal("d"), before=normal("d"), gradient=normal("d"),
                step_size=one_of(0.1, 0.2, 0.5), momentum=one_of(0.3, 0.6, 0.9)),
    properties=[
        ("A step of (02.1), with the velocity that led here, ends elsewhere.",
         lambda weights, before, gradient, step_size, momentum, answer: close(
             answer, _with_velocity(weights, before, gradient, step_size, momentum), atol=1e-9)),
    ],
    hints=(
        "By (02.1) the last step was w_t - w_{t-1} = -η v_t. So what is v_t?",
        "Put v_t = (w_{t-1} - w_t)/η into v_{t+1}, then v_{t+1} into the step.",
        "The step size cancels in one of the two terms.",
    ),
    mistakes=[
        ("no momentum", edit(" + momentum * (weights - before)", ""), "That is gradient descent."),
        ("backwards", edit("(weights - before)", "(before - weights)"),
         "You repeat the last step with the wrong sign: it led from `before` to `weights`."),
        ("step size twice", edit("+ momentum *", "+ step_size * momentum *"),
         "The last step has its step size in it already."),
        ("averaged", edit("step_size * gradient", "(1 - momentum) * step_size * gradient"),
         "You damp the gradient by 1 - β. In (02.1) it enters whole."),
        ("the whole step", edit("momentum * (weights", "(weights"),
         "You repeat the whole last step. Only the share β is kept."),
        ("weights kept", edit("momentum * (weights - before)", "momentum * weights"),
         "You keep a share of the weights, not of the step between them."),
    ],
)
def next_weights(weights, before, gradient, step_size, momentum):
    """Repeat a share of the last step, after a step of descent."""
    return weights - step_size * gradient + momentum * (weights - before)


def _larger_root(curvatures, step_size, momentum):
    """The largest size of a root over all curvatures, for any step size and momentum."""
    middle = (1 + momentum - step_size * curvatures) / 2
    beyond = (middle.square() - momentum).to(torch.complex128).sqrt()
    return torch.maximum((middle + beyond).abs(), (middle - beyond).abs()).amax(-1)


def _is_best(curvatures, answer):
    step_size, momentum = answer.double()
    if not (0 <= momentum < 1 and 0 < step_size < 1e6):
        return False
    here = _larger_root(curvatures, step_size, momentum)
    steps = torch.linspace(-0.2, 0.2, 41, dtype=torch.float64)
    pairs = torch.cartesian_prod(step_size * (1 + steps), (momentum + steps).clamp(0, 0.999))
    return bool(here <= _larger_root(curvatures, pairs[:, :1], pairs[:, 1:]).min() + 1e-6)


@lesson.exercise(
    "02.4", "The best pair", difficulty=3, minutes=10,
    prompt="All directions should be on the circle, and the circle as small as possible. By (02.6): the flattest direction "
    "lies at the lower end of the range, the steepest at the upper end. Write `best_pair(curvatures)`: return the step size "
    "and the momentum as one tensor of shape $(2,)$. `curvatures` has shape $(r,)$, in any order, all positive.",
    draw=inputs(r=whole(2, 4), curvatures=uniform(0.2, 6, "r")),
    properties=[
        ("A pair near yours has a smaller largest root.", _is_best),
    ],
    same=lambda a, b: close(a, b, atol=1e-5),
    hints=(
        "Two equations, two unknowns: one for the smallest curvature, one for the largest.",
        "Take square roots of both equations; s = √β is easier to find than β.",
        "√(ηλ) is 1 - s for the flattest and 1 + s for the steepest. Their sum gives η, then s follows.",
    ),
    mistakes=[
        ("the root of it", edit("share**2", "share"),
         "The second number is √β, the rate. The momentum is its square."),
        ("half", edit("4 / (", "2 / ("),
         "That step size is half as long: the sum of the two square roots of ηλ is 2, so η carries 4."),
        ("no roots", edit(".sqrt()", ""),
         "You used the curvatures where their square roots belong."),
        ("that of descent", edit("torch.stack([4 / (high + low) ** 2, share**2])",
                                 "torch.stack([2 / (high**2 + low**2), 0 * share])"),
         "That is the best step size without momentum."),
        ("upside down", edit("share**2", "(1 / share) ** 2"),
         "Your momentum is above 1: you divided the sum by the difference."),
        ("first and last", edit("slopes.max(), slopes.min()", "slopes[-1], slopes[0]"),
         "You took the first and the last curvature. They come in any order."),
    ],
)
def best_pair(curvatures):
    """Stretch the range of shared rates over all curvatures."""
    slopes = curvatures.sqrt()
    high, low = slopes.max(), slopes.min()
    share = (high - low) / (high + low)
    return torch.stack([4 / (high + low) ** 2, share**2])


lesson.value(
    "02.5", "More memory, same step", difficulty=1, minutes=4,
    prompt="Noise limits a run, as on the stream with noisy labels; $\\beta = 0.9$ and the step size 0.02 work well. You "
    "want $\\beta = 0.99$ and, as far as (02.2) can promise it, the same run. Which step size do you take?",
    answer=0.002,
    properties=[("A gradient that enters once moves the weights by another amount in the end.",
                 lambda answer: close(answer * _velocity(0.99, 1, 4000), 0.02 * _velocity(0.9, 1), rtol=1e-4)
                 if 0 < answer < 100 else False)],
    hints=(
        "By how much does one gradient move the weights, over all the steps in which it is remembered?",
        "That is η/(1 - β), the effective step size.",
        "0.02/0.1 is 0.2. Which η gives 0.2 with β = 0.99?",
    ),
    mistakes=[
        ("unchanged", 0.02, "With the same η the effective step becomes ten times as long.", near(0.02, within=1e-7)),
        ("inverted", 0.2, "You went the wrong way: more memory adds up more steps.", near(0.2, within=1e-6)),
        ("borders", 0.02 * 1.99 / 1.9, "You kept the share of the border. In a noisy run the border is far away.",
         near(0.02 * 1.99 / 1.9, within=1e-4)),
        ("by the ratio of momenta", 0.02 * 0.9 / 0.99, "You scaled with β. What counts is 1 - β.",
         near(0.02 * 0.9 / 0.99, within=1e-4)),
    ],
)

EXERCISES = lesson.exercises
