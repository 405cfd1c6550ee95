"""Exercises of lesson 20, fixed_memory."""


import torch

from course_lib.lessons.fixed_memory.contents import lesson
from course_lib.teaching import close, edit, inputs, near, normal, uniform, whole

K1, K2, K3 = (1.0, 0.0), (0.6, 0.8), (0.0, 1.0)
VALUES = (10.0, 20.0, 30.0)


lesson.value(
    "20.1", "Three keys in a plane", difficulty=1, minutes=5,
    prompt="Three pairs are written by addition, $U = k_1v_1^\\top + k_2v_2^\\top + k_3v_3^\\top$. The keys are "
    "$k_1 = (1, 0)$, $k_2 = (0.6, 0.8)$ and $k_3 = (0, 1)$, all of length 1, and the values are the numbers 10, 20 and 30. "
    "Which number $U^\\top k_2$ is read at the second key? Formula (20.1) below holds for any number of pairs.",
    answer=50,
    properties=[
        ("The three values are read with the weights k₂·k₁, k₂·k₂ and k₂·k₃.",
         lambda answer: abs(answer - sum(
             v * (K2[0] * k[0] + K2[1] * k[1]) for k, v in zip((K1, K2, K3), VALUES, strict=True))) < 0.01),
    ],
    hints=(
        "U has two rows and one column here. You can also avoid forming it: what does the term k₁v₁ᵀ answer at k₂?",
        "The term kⱼvⱼᵀ answers vⱼ times the inner product of kⱼ with the key that asks.",
        "The three inner products with k₂ are 0.6, 1 and 0.8.",
    ),
    mistakes=[
        ("the value alone", 20,
         "That is the value that belongs to k₂. It would be read alone if the other keys were orthogonal to k₂; "
         "they are not."),
        ("crosstalk alone", 30, "That is what the two other pairs add, 6 and 24. The value of k₂ itself comes on top."),
        ("all values", 60, "That is the plain sum of the values. Each counts by the inner product of its key with k₂."),
        ("averaged", 50 / 2.4,
         "You divided by the sum of the inner products, which makes an average of the values. This memory has "
         "no denominator.",
         near(50 / 2.4, within=0.1)),
        ("squared products", 42.8, "You squared the inner products. Each enters once: 0.6, 1 and 0.8.",
         near(42.8, within=0.05)),
        ("the first key", 22, "That is read at k₁. The question asks at k₂."),
        ("the third key", 46, "That is read at k₃. The question asks at k₂."),
        ("lost the first", 44, "You left out the first pair: k₁·k₂ = 0.6, so it adds 6."),
        ("lost the third", 26, "You left out the third pair: k₃·k₂ = 0.8, so it adds 24."),
    ],
)


def _expected_error(factor, n_pairs, d):
    """E |c (v + crosstalk) - v|^2 for values of length 1 and crosstalk of squared length (N - 1)/d."""
    return (1 - factor) ** 2 + factor**2 * (n_pairs - 1) / d


@lesson.exercise(
    "20.2", "Shrink the answer", difficulty=2, minutes=7,
    prompt="An answer is $v + x$: a value of length 1 plus crosstalk, which points in a random direction and "
           "has the expected "
    "squared length $(N - 1)/d$ of (20.2). The two are orthogonal on average. Write `best_factor(n_pairs, d)`: "
    "the factor $c$ by which "
    "all answers are multiplied, so that the expected squared error $\\mathbb E\\lVert c(v + x) - v\\rVert^2$ "
    "is as small as "
    "possible.",
    draw=inputs(n_pairs=whole(2, 300), d=whole(4, 128)),
    properties=[
        ("A slightly smaller or larger factor should give a larger expected error.",
         lambda n_pairs, d, answer: all(
             _expected_error(answer, n_pairs, d) < _expected_error(answer + step, n_pairs, d) for step in (-1e-5, 1e-5))),
    ],
    hints=(
        "Split c(v + x) - v into a part along v and a part along x. Their squared lengths add up on average.",
        "The expected error is (1 - c)² + c² (N - 1)/d.",
        "Its derivative with respect to c is 0 where c (1 + (N - 1)/d) = 1.",
    ),
    mistakes=[
        ("all pairs count", edit("n_pairs - 1", "n_pairs"),
         "You counted N pairs as crosstalk. The pair that is read is not crosstalk: N - 1."),
        ("equal lengths", edit("d / (d + n_pairs - 1)", "(d / (d + n_pairs - 1)) ** 0.5"),
         "This factor gives the answers the length of the values. The error is smaller still if you shrink further."),
        ("the error left", edit("d / (d + n_pairs - 1)", "(n_pairs - 1) / (d + n_pairs - 1)"),
         "That is the error that is left with the best factor, and not the factor."),
        ("no crosstalk in sight", edit("d / (d + n_pairs - 1)", "1.0"),
         "That leaves the answers as they are. Crosstalk makes them too long."),
        ("one over the crosstalk", edit("d / (d + n_pairs - 1)", "d / (n_pairs - 1)"),
         "You divided by the squared length of the crosstalk alone. The answer has the squared length 1 + (N - 1)/d."),
        ("the mean", edit("d / (d + n_pairs - 1)", "1 / n_pairs"),
         "You took the mean of the pairs. Only the share of each key that lies along the key that asks is added."),
        ("upside down", edit("d / (d + n_pairs - 1)", "(d + n_pairs - 1) / d"),
         "That is 1/c: it makes the answers longer, and the error larger."),
    ],
)
def best_factor(n_pairs, d):
    """Balance what shrinking takes from the value and what it takes from the crosstalk."""
    return d / (d + n_pairs - 1)


def _written(state, key, value, step_size):
    """The delta rule for a key of any length: the key is first brought to length 1."""
    key = key / key.norm()
    return state + step_size * torch.outer(key, value - key @ state)


@lesson.exercise(
    "20.3", "Ask first, write the difference", difficulty=2, minutes=8,
    prompt="Write `delta_write(state, key, value, step_size)`. The memory `state` is $U$ of shape `(d, M)`. "
           "Bring the key to "
    "length 1, ask the memory what it answers there, and change the memory along this key so that its error at the key, "
    "value minus answer, shrinks by the factor $1 - \\eta$. At directions orthogonal to the key nothing may "
    "change. `key` has "
    "$d$ entries and any length above 0, `value` has $M$, and `step_size` is $\\eta$, above 0 and at most 1. Return the new "
    "state and leave the old one as it is. This is (20.4).",
    draw=inputs(d=whole(3, 4), m=2, state=normal("d m"), noise=normal("d"), key=lambda noise: noise + 2,
                value=normal("m"), step_size=uniform(0.3, 0.9)),
    properties=[
        ("The error v - Uᵀk should have shrunk by the factor 1 - η, for the key at length 1.",
         lambda state, key, value, step_size, answer: close(
             value - key @ answer / key.norm(), (1 - step_size) * (value - key @ state / key.norm()))),
        ("What is read at directions orthogonal to the key should stay as it was.",
         lambda state, key, value, step_size, answer: close(answer, _written(state, key, value, step_size))),
    ],
    hints=(
        "First ask the memory: what does it answer at this key?",
        "Only the difference between the value and that answer is written.",
        "The summand is an outer product of a key of length 1 and a difference, times the step size.",
    ),
    mistakes=[
        ("plain addition", edit("value - key @ state", "value"),
         "You added the new value to whatever is there: the old one stays, and a query reads both. Subtract what the memory "
         "answers at this key."),
        ("key not normalised", edit("key = key / key.norm()", "pass"),
         "You used the key at its own length. A key longer than 1 overshoots: bring it to length 1 first."),
        ("normalised for writing only", edit("    key = key / key.norm()\n", "",
                                             "torch.outer(key,", "torch.outer(key / key.norm(),"),
         "You asked the memory at the key's own length. The key of length 1 stands in both places."),
        ("normalised for asking only", edit("    key = key / key.norm()\n", "", "value - key @ state",
                                            "value - key @ state / key.norm()"),
         "You wrote along the key at its own length. The key of length 1 stands in both places."),
        ("added the old value", edit("value - key @ state", "value + key @ state"),
         "You added the old answer to the value; it has to be subtracted."),
        ("subtracted the step", edit("state + step_size", "state - step_size"),
         "Your step goes away from the new value: the error grows. Add the correction."),
        ("no step size", edit("step_size * ", ""),
         "You wrote the whole correction. With a step size below 1 the memory moves only that share of the way."),
        ("step on the value alone", edit("step_size * torch.outer(key, value - key @ state)",
                                         "torch.outer(key, step_size * value - key @ state)"),
         "You removed all of the old value and wrote only a share of the new one. The step size multiplies the difference."),
        ("step on the old value alone", edit("step_size * torch.outer(key, value - key @ state)",
                                             "torch.outer(key, value - step_size * (key @ state))"),
         "You wrote all of the new value and removed only a share of the old one. The step size multiplies the difference."),
        ("the whole state fades", edit("state + step_size * torch.outer(key, value - key @ state)",
                                       "(1 - step_size) * state + step_size * torch.outer(key, value)"),
         "You let the whole state fade, other keys included: that is a decay. The delta rule removes only what stands at "
         "this key."),
        ("the correction alone", edit("state + step_size * torch.outer(key, value - key @ state)",
                                 "step_size * torch.outer(key, value - key @ state)"),
         "You returned the correction. Add it to the state."),
        ("normalised twice", edit("key.norm()", "(key @ key)"),
         "You divided the key by its squared length. Divide by the length, key.norm()."),
    ],
)
def delta_write(state, key, value, step_size):
    """Correct the memory by a share of what it gets wrong at the key."""
    key = key / key.norm()
    return state + step_size * torch.outer(key, value - key @ state)


# Twelve directions of length 1 that can be read.
_HALF = ((1.0, 0.0), (0.8, 0.6), (0.6, 0.8), (0.0, 1.0), (-0.6, 0.8), (-0.8, 0.6))
CIRCLE = torch.tensor([*_HALF, *((-a, -b) for a, b in _HALF)], dtype=torch.float64)


def _values(generator):
    return CIRCLE[torch.randperm(len(CIRCLE), generator=generator)[:8]]


def _answers(values, generator):
    """Noisy answers, the older a pair the noisier, and none as near to one value as to another."""
    size = torch.linspace(1.2, 0.1, len(values), dtype=values.dtype)[:, None]
    while True:
        noise = torch.randn(values.shape, generator=generator, dtype=values.dtype)
        answers = (values + size * noise).round(decimals=2)
        first, second = torch.cdist(answers, values).topk(2, largest=False).values.T
        if float((second - first).min()) > 1e-3:
            return answers


def _quarters(answers, values):
    right = [int(torch.stack([(a - v).norm() for v in values]).argmin()) == i for i, a in enumerate(answers)]
    share = len(right) // 4
    return [sum(right[q * share : (q + 1) * share]) / share for q in range(4)]


@lesson.exercise(
    "20.4", "Which pairs are lost?", difficulty=2, minutes=8,
    prompt="Write `recall_by_age(answers, values)`. Row $i$ of `answers` is what the memory answers at key $i$, row $i$ of "
    "`values` the value that was stored there; both have shape `(N, M)`, pairs stand in the order of writing, and $N$ is a "
    "multiple of 4. All values have length 1. A pair is recalled if its own value is the nearest to its answer "
    "among all $N$ "
    "values. Return a tensor (float64) of four numbers: the share recalled in each quarter of the pairs, oldest first.",
    draw=inputs(values=_values, answers=_answers),
    properties=[
        ("Entry q should be the share of pairs recalled in quarter q, the oldest quarter first.",
         lambda answers, values, answer: close(answer, torch.tensor(_quarters(answers, values), dtype=torch.float64))),
    ],
    hints=(
        "torch.cdist(answers, values) holds all distances, one row for each answer.",
        "argmin along a row names the nearest value. Compare it with torch.arange(N).",
        "Turn the result into float64, bring it to the shape (4, N // 4) and take the mean of each row.",
    ),
    mistakes=[
        ("newest first", edit(".mean(1)", ".mean(1).flip(0)"),
         "Your quarters stand newest first. Pairs are in the order of writing: the first rows are the oldest."),
        ("every fourth pair", edit("right.view(4, -1).mean(1)", "right.view(-1, 4).mean(0)"),
         "You put every fourth pair into one group. A quarter is N/4 pairs that were written one after another."),
        ("counted", edit(".mean(1)", ".sum(1)"), "You counted the pairs recalled. Divide by the N/4 pairs of a quarter."),
        ("share of all", edit(".mean(1)", ".sum(1) / len(values)"),
         "You divided by all N pairs. A quarter has N/4 of them."),
        ("values ask", edit("argmin(1)", "argmin(0)"),
         "You looked for the nearest answer to each value. Each answer looks for its nearest value: argmin along its row."),
        ("the farthest value", edit("argmin", "argmax"), "You took the value at the largest distance. The "
            "nearest has the smallest."),
        ("up to that age", edit("right.view(4, -1).mean(1)",
                                "right.cumsum(0)[len(values) // 4 - 1 :: len(values) // 4]"
                                " / torch.arange(1, 5) / (len(values) // 4)"),
         "Your shares are those of all pairs up to the end of each quarter. Take each quarter alone."),
        ("lost, not recalled", edit("== torch", "!= torch"), "You returned the share that is lost: 1 minus the "
            "share recalled."),
    ],
)
def recall_by_age(answers, values):
    """Let each answer choose the nearest value, and average by quarters."""
    nearest = torch.cdist(answers, values).argmin(1)
    right = (nearest == torch.arange(len(values))).double()
    return right.view(4, -1).mean(1)


EXERCISES = lesson.exercises
