"""Exercises of lesson 05, multiplicative_noise."""

import math
from itertools import product

from course_lib.lessons.multiplicative_noise.contents import lesson
from course_lib.teaching import but, close, edit, inputs, near, one_of, uniform

lesson.value(
    "05.1", "A coin that multiplies", difficulty=1, minutes=4,
    prompt="Each step multiplies $w$ by 1.7 or by 0.4, as a fair coin decides. By which factor does one step multiply the "
    "mean of $w$ over all possible runs, by which one the mean of $w^2$, and by which factor a step does "
    "almost every single run grow or shrink in the long run? Give a dictionary with the numbers `mean`, `square` and `run`.",
    answer={"mean": 1.05, "square": 1.525, "run": math.sqrt(0.68)},
    properties=[
        ("The mean of w over the runs is multiplied by another number.", lambda mean: close(mean, 1.05, atol=1e-3)),
        ("The mean of w² over the runs is multiplied by another number.", lambda square: close(square, 1.525, atol=1e-3)),
        ("In the long run a single run has another factor.", lambda run: close(run, math.sqrt(0.68), atol=1e-3)),
    ],
    hints=(
        "The coin of a step does not depend on w: means of products are products of means.",
        "A long run has seen each side about equally often. What do two steps, one of each side, do?",
        "Two steps multiply by 1.7 times 0.4. One step does half of that, on a logarithmic scale.",
    ),
    mistakes=[
        ("the run as the mean", {"mean": 1.05, "square": 1.525, "run": 1.05},
         "You gave a single run the factor of the mean. A run multiplies its factors; it does not average them.",
         but(lambda run: close(run, 1.05, atol=1e-3))),
        ("two steps", {"mean": 1.05, "square": 1.525, "run": 0.68},
         "1.7 times 0.4 is what two steps do. Give the factor of one.",
         but(lambda run: close(run, 0.68, atol=1e-3))),
        ("the logarithm", {"mean": 1.05, "square": 1.525, "run": math.log(0.68) / 2},
         "That is the mean of the logarithm. The factor is the exponential of it.",
         but(lambda run: close(run, math.log(0.68) / 2, atol=1e-3))),
        ("square of the mean", {"mean": 1.05, "square": 1.1025, "run": math.sqrt(0.68)},
         "You squared the mean factor. The mean of the squares is larger.",
         but(lambda square: close(square, 1.1025, atol=1e-3))),
        ("root mean square", {"mean": 1.05, "square": math.sqrt(1.525), "run": math.sqrt(0.68)},
         "What you gave for the square is its root. Asked is the factor of the mean of w².",
         but(lambda square: close(square, math.sqrt(1.525), atol=1e-3))),
    ],
)


def _mean_square_factor(x, sigma, step_size, rows=1):
    """E (1 - eta m)^2 for the mean m of (x + N)^2 over rows, by a coin with the normal's moments up to order 5."""
    sides = ((-math.sqrt(3), 1 / 6), (0.0, 2 / 3), (math.sqrt(3), 1 / 6))
    total = 0.0
    for shown in product(sides, repeat=rows):
        chance = math.prod(chance for _, chance in shown)
        total += chance * (1 - step_size * sum((x + sigma * side) ** 2 for side, _ in shown) / rows) ** 2
    return total


def _is_limit(x, sigma, answer, rows=1):
    """Whether the mean square shrinks just below the answer and grows just above it."""
    below, above = (_mean_square_factor(x, sigma, factor * float(answer), rows) for factor in (1 - 1e-6, 1 + 1e-6))
    return below < 1 < above


@lesson.exercise(
    "05.2", "Which steps keep the mean square bounded?", difficulty=2, minutes=8,
    prompt="Write `longest_step(x, sigma)`: for the step (05.1) with $y = 0$, the number below which every step size "
    "$\\eta$ makes $\\mathrm E\\,w_t^2$ shrink and above which each makes it grow. `x` and `sigma` are positive numbers; "
    "return a number. You need $\\mathrm E\\,N^4 = 3\\sigma^4$.",
    draw=inputs(x=uniform(0.3, 2.0), sigma=uniform(0.3, 1.5)),
    properties=[
        ("A step just below yours makes the mean square grow, or one just above yours makes it shrink.",
         lambda x, sigma, answer: _is_limit(x, sigma, answer)),
    ],
    hints=(
        "Square the random factor 1 - η(x + N)² and take the mean term by term.",
        "You need E(x + N)² and E(x + N)⁴; the moments of the noise are E N² = σ² and E N⁴ = 3σ⁴.",
        "1 - 2ηP + η²Q < 1 says 0 < η < 2P/Q. What are P and Q?",
    ),
    mistakes=[
        ("one over the power", edit("2 * square / fourth", "1 / square"),
         "1/(x² + σ²) is where the mean factor is 0. For the mean square you need E(x + N)⁴."),
        ("limit of the mean", edit("2 * square / fourth", "2 / square"),
         "That keeps the mean bounded. The mean square needs E(x + N)⁴, which is more than the square of E(x + N)²."),
        ("fourth moment without the 3", edit("3 * sigma**4", "sigma**4"),
         "You took E N⁴ = σ⁴. For a normal variable it is 3σ⁴."),
        ("forgot the cross terms", edit(" + 6 * x**2 * sigma**2", ""),
         "You left out 6x²σ²: the middle term of the binomial (x + N)⁴ does not average out, since N² does not."),
        ("half the limit", edit("2 * square", "square"),
         "That is half the limit: there E a² is smallest. The limit is where E a² is 1 again."),
        ("four in the middle", edit("6 * ", "4 * "),
         "You took 4x²σ². The binomial coefficients of (x + N)⁴ are 1, 4, 6, 4, 1, and the middle one belongs to x²N²."),
        ("squared mean of the square", edit("6 * ", "2 * "),
         "You took 2x²σ², the middle term of (x² + σ²)². The mean of the fourth power has 6x²σ²."),
        ("without noise", edit("2 * square / fourth", "2 / x**2"),
         "That is the limit without noise. With noise E(x + N)² and E(x + N)⁴ are larger."),
        ("deviation for the variance", lambda x, sigma: longest_step(x, math.sqrt(sigma)),
         "You put σ where σ² belongs: sigma is the standard deviation."),
    ],
)
def longest_step(x, sigma):
    """The limit of the step size for the mean square."""
    square = x**2 + sigma**2
    fourth = x**4 + 6 * x**2 * sigma**2 + 3 * sigma**4
    return 2 * square / fourth


def _bounded(x, sigma, step_size):
    return max(abs(x), abs(sigma), abs(step_size)) <= 1000


lesson.flaw(
    "05.3", "Catch the tempting limit", difficulty=2, minutes=5,
    prompt="“Noisy descent (05.1) is stable for $0 < \\eta < 1/(x^2 + \\sigma^2)$.” Give a counterexample: a dictionary "
    "with the numbers `x` $> 0$, `sigma` $\\ge 0$ and `step_size`, none above 1,000, within this limit, for which "
    "$\\mathrm E\\,w_t^2$ (with $y = 0$) grows by more than 1% a step.",
    answer={"x": 1.0, "sigma": 1.0, "step_size": 0.45},
    needs=[
        ("Take numbers up to 1,000.", _bounded),
        ("Take an input x > 0.", lambda x: x > 0),
        ("A standard deviation is 0 or more.", lambda sigma: sigma >= 0),
        ("The rule has η > 0: take a positive step.", lambda step_size: step_size > 0),
        ("Your step is beyond the limit of the rule, which does not call it stable.",
         lambda x, sigma, step_size: _bounded(x, sigma, step_size) and step_size < 1 / (x**2 + sigma**2)),
    ],
    properties=[
        ("For your numbers the mean square does not grow by more than 1% a step.",
         lambda x, sigma, step_size: _bounded(x, sigma, step_size)
         and _mean_square_factor(x, sigma, step_size) > 1.01),
    ],
    hints=(
        "The rule looks at the mean. Which condition does the mean square add?",
        "Compare 1/(x² + σ²) with your longest step of exercise 05.2: for which ratio σ/x is the second one smaller?",
        "Noise as large as the input is enough. Then take a step between the two limits, nearer to the larger one.",
    ),
    mistakes=[
        ("no noise", {"x": 1.0, "sigma": 0.0, "step_size": 0.9},
         "Without noise the mean square is the square of the mean, and the rule is safe.",
         but(lambda sigma: sigma == 0)),
        ("too little noise", {"x": 2.0, "sigma": 0.5, "step_size": 0.22},
         "With x² ≥ (1 + √2)σ² the rule happens to be safe: take more noise.",
         but(lambda x, sigma: abs(x) <= 1000 and abs(sigma) <= 1000 and x**2 >= (1 + math.sqrt(2)) * sigma**2)),
        ("too short a step", {"x": 1.0, "sigma": 1.0, "step_size": 0.3},
         "Your noise is large enough, but this step is below the limit of the mean square, or too little above it: take a "
         "longer one.",
         but()),
    ],
)

lesson.value(
    "05.4", "Where the variance ends", difficulty=2, minutes=5,
    prompt="A quantity whose tail (05.6) has the exponent $\\alpha$ has a finite variance only if $\\alpha > 2$. Take "
    "$x = 0.5$ and $\\sigma = 1$. For which step size $\\eta > 0$ is $\\alpha = 2$?",
    answer=2.5 / 4.5625,
    properties=[("With your step E|a|² is not 1.", lambda answer: close(answer, 2.5 / 4.5625, atol=1e-3))],
    hints=(
        "What does (05.6) say if α is 2?",
        "E a² = 1: where did you meet that?",
        "It is the limit (05.4), for x = 0.5 and σ = 1.",
    ),
    mistakes=[
        ("limit of the mean", 1.6, "There E a is -1. Asked is where E a² is 1, which happens at a shorter step.",
         near(1.6, within=1e-3)),
        ("another x", 0.4, "That is right for x = 1. Here x is 0.5.", near(0.4, within=1e-3)),
        ("half of it", 1.25 / 4.5625, "You lost the factor 2: there E a² is smallest.", near(1.25 / 4.5625, within=1e-3)),
        ("one over the power", 0.8, "That is 1/(x² + σ²), where E a is 0.", near(0.8, within=1e-3)),
        ("without the 6", 2.5 / 3.0625, "You left out 6x²σ² in E(x + N)⁴.", near(2.5 / 3.0625, within=1e-3)),
        ("without the 3", 2.5 / 2.5625, "You took E N⁴ = σ⁴. It is 3σ⁴.", near(2.5 / 2.5625, within=1e-3)),
    ],
)


@lesson.exercise(
    "05.5", "Several rows a step", difficulty=2, minutes=7,
    prompt="Now a step takes the mean of the gradients of $b$ noisy copies of the sample, each with noise of its own, so "
    "that $a$ is 1 minus $\\eta$ times the mean of $b$ squares $(x + N)^2$. Write `longest_step_of(rows, x, sigma)`: the "
    "limit of $\\eta$ for $\\mathrm E\\,w_t^2$ with $y = 0$, which for one row is (05.4). `rows` is $b$; return a number.",
    draw=inputs(rows=one_of(2, 3, 4), x=uniform(0.3, 2.0), sigma=uniform(0.3, 1.5)),
    properties=[
        ("A step just below yours makes the mean square grow, or one just above yours makes it shrink.",
         lambda rows, x, sigma, answer: _is_limit(x, sigma, answer, rows)),
    ],
    hints=(
        "You need the mean of the square of a mean of b independent numbers, each with mean P and mean square Q.",
        "The mean of a square is the square of the mean plus the variance, and b rows divide the variance by b.",
        "The variance of one is Q - P². So P² + (Q - P²)/b takes the place of Q.",
    ),
    mistakes=[
        ("one row", edit("(fourth - power**2) / rows", "(fourth - power**2)"),
         "That is the limit for one row a step."),
        ("all divided", edit("power**2 + (fourth - power**2) / rows", "fourth / rows"),
         "You divided all of Q by b. The square of the mean stays, whatever b is; the variance is divided."),
        ("not subtracted", edit("(fourth - power**2) / rows", "fourth / rows"),
         "You divided Q by b, and added P². The variance of one square is Q - P²."),
        ("limit of the mean", edit("power**2 + (fourth - power**2) / rows", "power**2"),
         "That is 2/P, the limit of the mean, to which more and more rows would come."),
        ("root of the rows", edit("/ rows", "/ rows**0.5"),
         "You divided the variance by the root of b. Deviations fall like that; variances are divided by b."),
        ("half the limit", edit("2 * power / second", "power / second"),
         "That is half the limit: there E a² is smallest."),
    ],
)
def longest_step_of(rows, x, sigma):
    """The mean of the square of a mean: its variance is divided by the rows."""
    power = x**2 + sigma**2
    fourth = x**4 + 6 * x**2 * sigma**2 + 3 * sigma**4
    second = power**2 + (fourth - power**2) / rows
    return 2 * power / second


EXERCISES = lesson.exercises
