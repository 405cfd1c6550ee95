"""What learners of lesson 27 answer, and what gives its predictions away."""

import torch
from torch.nn import functional

from course_lib.teaching import edit

GIVES_AWAY = {
    "27.P1": [r"\{1\} takes everything", r"(?i)the worse one|predicts worse"],
    "27.P2": [r"(?i)overtakes in all|overtook", r"(?i)next to nothing"],
}


def by_windows(tokens, lags, vocabulary):
    """Compare all places at once."""
    places = torch.arange(max(lags), len(tokens))
    hit = torch.stack([tokens[places - lag] == tokens[-lag] for lag in lags]).all(0)
    found = functional.one_hot(tokens[places[hit]], vocabulary).double().sum(0)
    return found / max(1.0, float(found.sum()))


def with_lists(tokens, lags, vocabulary):
    text, past = tokens.tolist(), [int(tokens[-lag]) for lag in lags]
    next_tokens = [text[t] for t in range(max(lags), len(text)) if [text[t - lag] for lag in lags] == past]
    return torch.tensor(
        [next_tokens.count(v) / max(1, len(next_tokens)) for v in range(vocabulary)], dtype=torch.float64
    )


def last_match(tokens, lags, vocabulary):
    for place in range(len(tokens) - 1, max(lags) - 1, -1):
        if all(tokens[place - lag] == tokens[-lag] for lag in lags):
            return functional.one_hot(tokens[place], vocabulary).double()
    return torch.zeros(vocabulary).double()


def not_guarded(tokens, lags, vocabulary):
    found = by_windows(tokens, lags, vocabulary)
    return found / found.sum()


def by_joint(joint):
    """Sum mu(x, e)^2 / mu(e), less the squares of the rows' sums."""
    return (joint.square() / joint.sum(0)).sum() - joint.sum(1).square().sum()


def row_by_row(joint):
    total = 0.0
    for row in joint:
        total += row.sum() ** 2 * (((row / row.sum()) ** 2 / joint.sum(0)).sum() - 1)
    return total


def chain(p_00, p_01, p_10, p_11):
    return {"p_00": p_00, "p_01": p_01, "p_10": p_10, "p_11": p_11}


def by_autograd(c, values, a):
    leaf = c.clone().requires_grad_()
    return torch.autograd.grad(a * (leaf.square() * values).sum() / leaf.square().sum(), leaf)[0]


def by_jacobian(c, values, a):
    total = c @ c
    p = c * c / total
    return a * (2 / total) * (torch.diag(c) - torch.outer(c, p)) @ values


ANSWERS = {
    "27.1": [
        ("solved", "all places at once", by_windows),
        ("solved", "lists", with_lists),
        ("any lag", "one of the lags", edit("if all(", "if any(")),
        ("one too early", "the past of the last token", edit("tokens[len(tokens) - lag]", "tokens[-1 - lag]")),
        ("the token before", "the last token of the match", edit("counts[tokens[place]]", "counts[tokens[place - 1]]")),
        ("counts", "not divided", edit(" / counts.sum().clamp(min=1)", "")),
        ("once", "a set of tokens", edit("+= 1", "= 1")),
        ("all places", "divided by the length", edit("counts.sum().clamp(min=1)", "len(tokens)")),
        ("unigram", "no past", lambda tokens, lags, vocabulary: functional.one_hot(tokens, vocabulary).double().mean(0)),
        ("last match", "the last match alone", last_match),
        ("wrong", "a place too many", lambda tokens, lags, vocabulary: by_windows(
            torch.cat([tokens, tokens[:1]]), lags, vocabulary)),
        ("malformed", "0 / 0 without a match", not_guarded),
        ("malformed", "float32", lambda tokens, lags, vocabulary: by_windows(tokens, lags, vocabulary).float()),
    ],
    "27.2": [
        ("solved", "multiplied out", by_joint),
        ("solved", "row by row", row_by_row),
        ("solved", "distances of the laws", lambda joint: (
            (joint / joint.sum(1, keepdim=True) - joint.sum(0)).square() / joint.sum(0)).sum(1) @ joint.sum(1).square()),
        ("distance not divided", "distances not divided by the law", lambda joint: (
            joint / joint.sum(1, keepdim=True) - joint.sum(0)).square().sum(1) @ joint.sum(1).square()),
        ("mutual information", "the mutual information", lambda joint: (
            joint * (joint / joint.sum(1, keepdim=True) / joint.sum(0)).log()).sum()),
        ("plain chi-square", "rows weighted once",
         lambda joint: (joint.square() / joint.sum(0) / joint.sum(1, keepdim=True)).sum() - 1),
        ("no -1", "the first term", lambda joint: (joint.square() / joint.sum(0)).sum()),
        ("no weight", "the rows added up", edit("mass.square() * ", "")),
        ("joint for conditional", "not divided by the row", edit(" / mass[:, None]", "")),
        ("law not squared", "the law once", edit("law.square()", "law")),
        ("uniform next token", "all tokens alike", lambda joint: (joint.square() * joint.shape[1]).sum()
         - joint.sum(1).square().sum()),
        ("malformed", "one for each row", lambda joint: (joint.square() / joint.sum(0)).sum(1)),
    ],
    "27.3": [
        ("solved", "0.64 times the squares", 0.64 * (2 * 0.45**2 + 2 * 0.05**2)),
        ("solved", "rounded", 0.262),
        ("plain chi-square", "frequencies once", 0.64),
        ("as {1}", "nothing new, so the same", 0.64 / 2),
        ("equal pairs", "1/4 each", 0.64 / 4),
        ("lag 2 alone", "two steps back", 0.2048),
        ("no -1", "1.64 times the squares", 1.64 * 0.41),
        ("half", "two pairs", 0.64 * (0.45**2 + 0.05**2)),
        ("malformed", "for both sets", (0.32, 0.2624)),
    ],
    "27.4": [
        ("autograd", "autograd", by_autograd),
        ("solved", "the Jacobian of the shares", by_jacobian),
        ("sign", "uphill in the loss", lambda c, values, a: -by_autograd(c, values, a)),
        ("not centred", "each by itself", lambda c, values, a: 2 * a * c * values / c.square().sum()),
        ("plain mean", "the mean of I", lambda c, values, a: 2 * a * c * (values - values.mean()) / c.square().sum()),
        ("no 2", "forgot the square", lambda c, values, a: by_jacobian(c, values, a / 2)),
        ("not divided", "without the sum of squares", lambda c, values, a: by_jacobian(c, values, a) * c.square().sum()),
        ("rate of the logarithm", "divided by c", lambda c, values, a: by_autograd(c, values, a) / c),
        ("a left out", "a of 1", lambda c, values, a: by_autograd(c, values, 1.0)),
        ("wrong", "dp/dt", lambda c, values, a: c.square() / c.square().sum() * (values - values.mean())),
        ("malformed", "one number", lambda c, values, a: (by_autograd(c, values, a) * values).sum()),
    ],
    "27.5": [
        ("solved", "exclusive or", chain(0.2, 0.8, 0.8, 0.2)),
        ("solved", "equal presses are followed by a 1", chain(0.9, 0.1, 0.1, 0.9)),
        ("no second parent", "a chain of order 1", chain(0.1, 0.9, 0.1, 0.9)),
        ("only the second", "the older one alone", chain(0.2, 0.2, 0.8, 0.8)),
        ("symmetric", "the player of the page", chain(0.3875, 0.9125, 0.0875, 0.6125)),
        ("wrong", "hardly a second parent", chain(0.2, 0.85, 0.22, 0.78)),
        ("wrong", "outside of the range", chain(0.0, 1.0, 1.0, 0.0)),
        ("malformed", "a table", [[0.1, 0.9], [0.15, 0.85]]),
    ],
}  # fmt: skip

NEIGHBOURS = {
    "27.e1": ("loss[1,] - loss[1, 2]", "loss[1,] - loss[2,]"),
    "27.e2": ("history = train_selector(0.01, steps=40", "history = train_selector(3.0, steps=40"),
    "27.3": ("p = features(presses[0], share, c), c.square()", "p = features(presses[0], share, c), c.abs()"),
    "27.5": ("weight = 1 + (math.exp(a) - 1) * match", "weight = 1 + math.exp(a) * match"),
    "27.6": (
        "value = criterion(next_table(long[0], 2), lags).mean()",
        "value = chi_square(next_table(long[0], 2), lags).mean()",
    ),
    "27.7": (
        "ratio = criterion(idle, (1, 2)) / criterion(idle, (1,))",
        "ratio = chi_square(idle, (1, 2)) / chi_square(idle, (1,))",
    ),
    "27.8": (
        "criterion(next_table(players(800, 0.3, seed=seed), 2), lags).mean() for lags in SETS])",
        "chi_square(next_table(players(800, 0.3, seed=seed), 2), lags).mean() for lags in SETS])",
    ),
    "27.e3": ("of = {lags: criterion(", "of = {lags: chi_square("),
    "27.e4": ("for history in (from_one, together)}", "for history in (from_one, stages)}"),
    "27.e5": ("losses[stages] - losses[together]", "losses[together] - losses[stages]"),
    "27.e6": (
        "both_at[3.0] - both_at[0.3].maximum(both_at[10.0])",
        "both_at[3.0] - both_at[0.3].maximum(both_at[3.0])",
    ),
    "27.e7": ("from_three = train_arm(STAGES, 3.0)", "from_three = train_arm(STAGES, 0.01)"),
}
