"""Exercises of lesson 27, induction heads."""

import math

import torch

from course_lib.lessons.induction_heads.contents import lesson
from course_lib.teaching import close, edit, inputs, near, normal, one_of, uniform
from course_lib.theory.markov_chains import Chains, criterion, next_table


def _matches(tokens, lags):
    """Whether each place has the past of the place to come: shifted copies of the tokens, compared all at once."""
    places = torch.arange(len(tokens))
    alike = [tokens.roll(lag) == tokens[-lag] for lag in lags]
    return torch.stack(alike).all(dim=0) & (places >= max(lags))


@lesson.exercise(
    "27.1", "Match and count", difficulty=1, minutes=7,
    prompt="Write `match_shares(tokens, lags, vocabulary)`: a place *matches* when its tokens at all `lags` equal those of "
    "the place to come, which follows the last token. Return the shares of each token *at* the matching places, "
    "`vocabulary` float64 numbers. Count only places that have all lags; where none matches, return zeros. `tokens` is a "
    "tensor of whole numbers (0 for A, 1 for B; your function should also take more kinds), `lags` a tuple such as (1, 2).",
    draw=inputs(tokens=lambda generator: torch.randint(3, (16,), generator=generator),
                lags=one_of((1,), (2,), (1, 2), (1, 3)), vocabulary=3).sometimes(
        0.2, {"tokens": torch.tensor([0, 1, 0, 1, 1, 0, 2]), "lags": (1,), "vocabulary": 3}),
    properties=[
        ("No share should be below 0, and together they should give 1; where no place matches, all should be 0.",
         lambda tokens, lags, answer: bool((answer >= 0).all())
         and math.isclose(float(answer.sum()), float(_matches(tokens, lags).any()), abs_tol=1e-6)),
        ("A token that stands at no matching place should have the share 0.",
         lambda tokens, lags, vocabulary, answer: all(
             answer[v] == 0 or bool((_matches(tokens, lags) & (tokens == v)).any()) for v in range(vocabulary))),
    ],
    agrees="Each share should be the number of matching places that hold the token, over the number of matching places.",
    hints=(
        "The place to come has the number len(tokens). Which tokens stand 1 and 2 before it?",
        "Go through the places from max(lags) on, and compare lag by lag.",
        "A match counts the token at its own place: what followed the same past.",
    ),
    mistakes=[
        ("any lag", edit("all(", "any("), "You counted places where one of the lags matches. All of them have to."),
        ("one too early", edit("tokens[len(tokens) - lag]", "tokens[len(tokens) - 1 - lag]"),
         "You compared with the past of the last token. The place to come follows it: its lag 1 is the last token."),
        ("the token before", edit("counts[tokens[place]]", "counts[tokens[place - 1]]"),
         "You counted the token before the place. What follows the same past stands at the place itself."),
        ("counts", edit("counts / counts.sum().clamp(min=1)", "counts"), "Those are counts. Divide by their sum."),
        ("once", edit("+= 1", "= 1"), "Each token counts as often as it occurs at a matching place."),
        ("all places", edit("counts.sum().clamp(min=1)", "len(tokens)"), "You divided by the number of tokens. The shares "
         "are among the places that match."),
        ("last match", edit("range(max(lags), len(tokens))", "reversed(range(max(lags), len(tokens)))",
                            "counts[tokens[place]] += 1", "counts[tokens[place]] += 1\n            break"),
         "You kept the last matching place alone. All places that match count alike."),
        ("unigram", lambda tokens, lags, vocabulary: torch.bincount(tokens, minlength=vocabulary).double() / len(tokens),
         "Those are the shares among all places: the past plays no part."),
    ],
)
def match_shares(tokens, lags, vocabulary):
    """Count the tokens at the places that match."""
    counts = torch.zeros(vocabulary, dtype=torch.float64)
    for place in range(max(lags), len(tokens)):
        if all(tokens[place - lag] == tokens[len(tokens) - lag] for lag in lags):
            counts[tokens[place]] += 1
    return counts / counts.sum().clamp(min=1)


@lesson.exercise(
    "27.2", "What a set is worth", difficulty=2, minutes=8,
    prompt="In a long game a reader in the context $x$ predicts, for small $a$, $y_e \\approx \\mu(e) + "
    "a\\,\\mu(x)\\big(\\mu(e \\mid x) - \\mu(e)\\big)$. How fast does its mean loss fall as $a$ grows from 0? Write "
    "`worth(joint)`: `joint` holds $\\mu(x, e)$, one row for each context $x$ and one column for each next press $e$, all "
    "positive, with the sum 1, float64. Return the slope of the mean of $\\log y_e$ at $a = 0$, one number.",
    draw=inputs(joint=lambda generator: _table(generator)),
    properties=[
        ("It should be positive: no row of this table has exactly the law of the next press in all rows.",
         lambda answer: answer > 0),
        ("It should be less than the plain chi-square of the table, whose rows count with their sums and not the squares.",
         lambda joint, answer:
         float(answer) < float((joint.square() / (joint.sum(1, keepdim=True) * joint.sum(0))).sum()) - 1),
    ],
    agrees="It should be the mean, over x and e with the weights μ(x, e), of μ(x) (μ(e|x) - μ(e)) / μ(e).",
    hints=(
        "The slope of log y_e at a = 0 is μ(x) (μ(e|x) - μ(e)) / μ(e). Average it over x and e with μ(x, e).",
        "μ(e) is the sum of a column, μ(x) the sum of a row, and μ(e|x) = μ(x, e) / μ(x).",
        "In each row, the sum of μ(e|x) (μ(e|x) - μ(e)) / μ(e) is the sum of μ(e|x)²/μ(e), less 1.",
    ),
    mistakes=[
        ("plain chi-square", edit("mass.square()", "mass"), "That is the plain chi-square: the weight of a row is "
         "the square "
         "of its sum."),
        ("no weight", edit("mass.square() * ", ""), "The rows are not weighted: the square of μ(x_S) is missing."),
        ("no -1", edit(" - 1)", ")"), "The slope of μ(e) itself, -1 in each row, is missing."),
        ("joint for conditional", edit("law = joint / mass[:, None]", "law = joint"), "You used the joint law in "
         "the place "
         "of the law given the row: divide by the sum of the row."),
        ("uniform next token", edit("next_token = joint.sum(dim=0)",
                                    "next_token = torch.full_like(joint[0], 1 / joint.shape[1])"),
         "You took all next tokens as equally frequent. μ(e) is the sum of a column."),
        ("distance not divided", lambda joint: (
            joint / joint.sum(1, keepdim=True) - joint.sum(0)).square().sum(1) @ joint.sum(1).square(),
         "You added the squared distances as they are. Each is divided by μ(e), so that rare tokens count as well."),
        ("mutual information", lambda joint: (joint * (joint / joint.sum(1, keepdim=True) / joint.sum(0)).log()).sum(),
         "That is the mutual information. The question asks for squares instead of logarithms, and the squares of the rows' "
         "sums."),
        ("law not squared", edit("law.square() / next_token", "law / next_token"), "The law of the next token "
         "enters squared."),
    ],
)
def worth(joint):
    """Compare the law of the next token in each row with its law in all rows."""
    mass = joint.sum(dim=1)
    next_token = joint.sum(dim=0)
    law = joint / mass[:, None]
    return (mass.square() * ((law.square() / next_token).sum(dim=1) - 1)).sum()


def _table(generator):
    joint = (0.05 + torch.rand(4, 3, generator=generator, dtype=torch.float64)) ** 2
    return joint / joint.sum()


lesson.value(
    "27.3", "One lag too many", difficulty=1, minutes=4,
    prompt="A player with $\\delta = 0$ repeats her last press, and changes it with probability 0.1 after either press. For "
    "her $I(\\{1\\}) = 2 \\cdot 0.5^2 \\cdot 0.64 = 0.32$. What is $I(\\{1, 2\\})$ by (27.6)?",
    answer=0.2624,
    properties=[("The pairs AA and BB have the frequency 0.45 each, the pairs AB and BA have 0.05.",
                 lambda answer: close(answer, 0.2624, rtol=2e-3))],
    hints=(
        "The press before last adds nothing to the law of the next one. What does it change in (27.6)?",
        "The four pairs are not equally frequent.",
        "The bracket is 0.64 for each pair. Add the squares of the pairs' frequencies.",
    ),
    mistakes=[
        ("plain chi-square", 0.64, "That is the plain chi-square, which ties {1} and {1, 2}. Squares of frequencies "
         "fall when "
         "a context is split."),
        ("as {1}", 0.32, "That is I({1}). Each context is split in two, and the squares of the parts add up to less."),
        ("equal pairs", 0.16, "You took the four pairs as equally frequent. Pairs of equal presses are nine times as "
         "frequent."),
        ("lag 2 alone", 0.2048, "That is I({2}), for the press before last alone."),
        ("no -1", 0.6724, "The -1 in the bracket is missing: a context that says nothing is worth nothing.",
         near(0.6724, within=1e-3)),
        ("half", 0.1312, "You added one pair of each kind. There are two of each."),
    ],
)


@lesson.exercise(
    "27.4", "The race of the terms", difficulty=3, minutes=10,
    prompt="For small $a$ the loss is a constant less $a \\sum_S p_S I(S)$ with $p_S = c_S^2 / \\sum_{S'} c_{S'}^2$. Write "
    "`velocity(c, values, a)`: return $dc/dt$ of gradient flow, one float64 number for each set, without autograd. `c` and "
    "`values`, the numbers I(S), have one entry for each set, and `a` is a number.",
    draw=inputs(c=uniform(0.2, 1.5, "4"), values=normal("4", digits=2), a=uniform(0.01, 0.5)),
    properties=[
        ("The sum of the squares of c should not change: its rate is 2 c · dc/dt.",
         lambda c, answer: close(float((c * answer).sum()), 0.0, atol=1e-7)),
    ],
    agrees="Entry i should be the rate at which a Σ p_S I(S) grows with entry i of c alone, which changes all the "
    "shares p_S.",
    forbids=("autograd",),
    hints=(
        "Take the derivative of p_S with respect to c_T first, for T equal to S and for T other than S.",
        "∂p_S/∂c_T = 2 c_T (1[S = T] - p_S) / Σ c².",
        "The mean of I that is subtracted has the weights p, not equal ones.",
    ),
    mistakes=[
        ("sign", edit("2 * a", "-2 * a"), "The sign is turned: gradient flow goes downhill, and the loss falls as "
         "the mean of "
         "I rises."),
        ("not centred", edit("(values - mean)", "values"), "Terms compete: what one share gains, the others lose. "
         "Subtract the "
         "mean of I."),
        ("plain mean", edit("(p * values).sum()", "values.mean()"), "The mean has the weights p, not equal ones."),
        ("no 2", edit("2 * a", "a"), "The 2 from the square is missing."),
        ("not divided", edit("(values - mean) / total", "(values - mean)"),
         "The derivative of c²/Σc² holds one more factor 1/Σc²."),
        ("rate of the logarithm", edit("a * c *", "a *"), "That is d log c/dt. Multiply by c."),
        ("a left out", edit("2 * a * c", "2 * c"), "The factor a is missing."),
    ],
)
def velocity(c, values, a):
    """Each term grows by how much it is worth above the mean."""
    total = c.square().sum()
    p = c.square() / total
    mean = (p * values).sum()
    return 2 * a * c * (values - mean) / total


def _chain(p_00, p_01, p_10, p_11):
    ones = torch.tensor([[p_00, p_01], [p_10, p_11]], dtype=torch.float64)
    return next_table(Chains(torch.stack([1 - ones, ones], dim=-1)[None], (1, 2)), 2)


def _inside(p_00, p_01, p_10, p_11):
    return all(0.05 <= p <= 0.95 for p in (p_00, p_01, p_10, p_11))


def _both_win(p_00, p_01, p_10, p_11):
    table = _chain(p_00, p_01, p_10, p_11)
    return float(criterion(table, (1, 2))) >= 1.02 * max(float(criterion(table, lags)) for lags in ((1,), (2,)))


lesson.flaw(
    "27.5", "Can both parents win?", difficulty=2, minutes=10,
    prompt="\"At a small scale one lag always beats two, since it has more matches.\" Give a counterexample with two "
    "presses, 0 and 1: a dictionary with `p_00`, `p_01`, `p_10`, `p_11`, the probability of a 1 after the two presses in "
    "the name, the older one first. Each is in [0.05, 0.95], and I({1, 2}) is at least 2% larger than I({1}) and I({2}).",
    answer={"p_00": 0.1, "p_01": 0.9, "p_10": 0.9, "p_11": 0.1},
    properties=[
        ("All four probabilities should lie in [0.05, 0.95].", _inside),
        ("I({1, 2}) is not 2% larger than both I({1}) and I({2}).",
         lambda p_00, p_01, p_10, p_11: _inside(p_00, p_01, p_10, p_11) and _both_win(p_00, p_01, p_10, p_11)),
    ],
    hints=(
        "The pair loses matches. So each press alone has to say little, and both together much.",
        "If A and B play symmetric roles, (27.e3) says that the pair lies between the two single lags.",
        "What if the next press tells whether the last two were equal?",
    ),
    mistakes=[
        ("no second parent", {"p_00": 0.1, "p_01": 0.9, "p_10": 0.1, "p_11": 0.9},
         "With no difference the older press is no parent, and (27.7) says that {1} wins.",
         lambda p_00, p_01, p_10, p_11: p_00 == p_10 and p_01 == p_11),
        ("only the second", {"p_00": 0.1, "p_01": 0.1, "p_10": 0.9, "p_11": 0.9},
         "Here only the older press matters, and (27.7) says that {2} wins.",
         lambda p_00, p_01, p_10, p_11: p_00 == p_01 and p_10 == p_11 and p_00 != p_10),
        ("symmetric", {"p_00": 0.4, "p_01": 0.9, "p_10": 0.1, "p_11": 0.6},
         "A and B play symmetric roles, as for a player with one rate of slips: I({1, 2}) is the mean of the other two.",
         lambda p_00, p_01, p_10, p_11: abs(p_00 + p_11 - 1) < 1e-9 and abs(p_01 + p_10 - 1) < 1e-9),
    ],
)  # fmt: skip


EXERCISES = lesson.exercises
