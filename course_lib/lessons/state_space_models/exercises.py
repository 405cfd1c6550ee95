"""Exercises of lesson 15, state space models."""

import torch

from course_lib.lessons.state_space_models.contents import lesson
from course_lib.teaching import close, edit, inputs, normal, uniform, whole

lesson.value(
    "15.1", "Three tokens by hand", difficulty=1, minutes=5,
    prompt="In (15.1) let the state be one number: $x_t = \\frac12x_{t-1} + 2u_t$ and $y_t = 3x_t + u_t$, from 0 on. The "
    "input is $u_0, u_1, u_2 = 1, 0, 2$. What is $y_2$?",
    answer=15.5,
    properties=[
        ("The loop over the three tokens ends with another number.", lambda answer: close(answer, _three_tokens())),
    ],
    hints=(
        "Write down the state after each token; there are three of them.",
        "The state is updated first, then read: x₂ already holds u₂.",
        "Only u₀ and u₂ are not 0. By which factor has u₀ shrunk when it is read at token 2?",
    ),
    mistakes=[
        ("read before writing", 5.0,
         "You read the state before the new token was written into it. Here y_t reads x_t, which holds u_t."),
        ("no direct path", 13.5,
         "You left out the direct path: u_t itself is added to the output."),
        ("no decay", 20.0,
         "Your state does not fade: every step halves what was there before."),
        ("state, not output", 4.5,
         "That is the state x₂. The output is three times the state, plus the direct path."),
        ("one step of decay", 17.0,
         "You let u₀ fade once. Between token 0 and token 2 lie two steps."),
        ("kernel not turned", 19.25,
         "You multiplied K_l with u_l. The tap K_l belongs to the token that lies l steps back, u_(t-l)."),
        ("input not doubled", 8.75,
         "You left out the factor 2 with which the input enters the state."),
    ],
)


def _three_tokens():
    x = y = 0.0
    for u in (1, 0, 2):
        x = x / 2 + 2 * u
        y = 3 * x + u
    return y


def _by_loop(a, b, c, u):
    x, outputs = torch.zeros_like(a), []
    for token in u:
        x = a * x + b * token
        outputs.append((c * x).sum())
    return torch.stack(outputs)


@lesson.exercise(
    "15.2", "The kernel of a diagonal system", difficulty=1, minutes=8,
    prompt="Write `kernel(a, b, c, length)` for a real diagonal system: the state has one entry for each pole, "
    "$x_t = a\\,x_{t-1} + b\\,u_t$ entry by entry, and $y_t = \\sum_n c_nx_{tn}$. `a`, `b` and `c` are vectors. "
    "Return the taps "
    "$K_0, \\dots, K_{\\text{length}-1}$.",
    draw=inputs(n=whole(2, 3), a=uniform(-0.9, 0.9, "n", digits=1), b=normal("n"), c=normal("n"), length=whole(2, 6)),
    properties=[
        ("The taps should be the loop's outputs for the input 1, 0, 0, ...",
         lambda a, b, c, length, answer: close(answer, _by_loop(a, b, c, torch.eye(length).double()[0]))),
    ],
    hints=(
        "Feed a single 1 into the loop, followed by zeros: what is the state after l more steps?",
        "A diagonal matrix to the power l has the powers of its entries on the diagonal.",
        "A table with one row for each tap and one column for each pole needs only broadcasting; then sum over "
        "one axis.",
    ),
    mistakes=[
        ("one tap late", edit("torch.arange(length)", "torch.arange(1, length + 1)"),
         "Your first tap is already multiplied by a. The state is read in the step in which the input enters: "
         "K_0 = Σ c b."),
        ("first tap 0", edit("return taps", "return torch.cat([torch.zeros_like(taps[:1]), taps[:-1]])"),
         "Your first tap is 0: that is the kernel of a system that reads its state before it writes. Here y_t "
         "holds u_t."),
        ("without b", edit("b * c * ", "c * "),
         "The factor b, with which the input enters the state, is missing."),
        ("without c", edit("b * c * ", "b * "),
         "The factor c, with which the output reads the state, is missing."),
        ("response to a switch", edit("return taps", "return taps.cumsum(0)"),
         "Your taps add up: that is the response to an input that stays at 1. The kernel answers a single 1."),
        ("mean for the sum", edit(".sum(-1)", ".mean(-1)"),
         "You took the mean over the poles. The outputs of all poles are added."),
        ("turned round", edit("return taps", "return taps.flip(0)"),
         "Your taps stand in reverse order: K_0, the youngest, comes first."),
    ],
)
def kernel(a, b, c, length):
    """One row of powers for each tap."""
    powers = a ** torch.arange(length)[:, None]
    taps = (b * c * powers).sum(-1)
    return taps


@lesson.exercise(
    "15.3", "A causal convolution by transforms", difficulty=2, minutes=8,
    prompt="Write `convolve(u, taps)` with `torch.fft.rfft` and `torch.fft.irfft`: the causal convolution "
    "$y_t = \\sum_{l \\le t}K_lu_{t-l}$ of an input with the kernel `taps`. Both are vectors, and their lengths "
    "may differ; "
    "the output is as long as `u`.",
    draw=inputs(n=whole(3, 6), m=whole(2, 6), u=normal("n"), taps=normal("m")),
    properties=[
        ("The first output should be K₀u₀ alone, and something else has got into it.",
         lambda u, taps, answer: close(answer[0], taps[0] * u[0])),
        ("An output is not the sum of K_l u_(t-l) over the tokens up to its own.",
         lambda u, taps, answer: close(answer, torch.nn.functional.conv1d(
             torch.nn.functional.pad(u, (len(taps) - 1, 0))[None, None], taps.flip(0)[None, None])[0, 0])),
    ],
    hints=(
        "On how large a circle must the tokens sit so that nothing that runs out at the end reaches the start?",
        "Both functions take the size as their second argument n and fill up with zeros.",
        "The full convolution of n and m numbers has n + m - 1. Cut off at the end what was not asked for.",
    ),
    mistakes=[
        ("no room", edit("size = len(u) + len(taps)", "size = max(len(u), len(taps))"),
         "Your transform has no room behind the signal: what runs out at the end comes in again at the start."),
        ("the input's circle", edit("size = len(u) + len(taps)", "size = len(u)"),
         "Your circle is as long as u: taps beyond it are cut off, and what runs out at the end comes in again at the "
         "start."),
        ("cut at the wrong end", edit("[: len(u)]", "[-len(u) :]"),
         "You kept the end of the circle. The outputs of the tokens are the first ones."),
        ("conjugate", edit("* torch.fft.rfft(taps, size)", "* torch.fft.rfft(taps, size).conj()"),
         "A conjugate spectrum runs backwards: yours is a correlation, in which the past reads the future."),
        ("odd size lost", edit("size = len(u) + len(taps)", "size = len(u) + len(taps) - 1",
                                "irfft(product, size)", "irfft(product)"),
         "Give `irfft` the size as well: half a spectrum does not tell an even size from an odd one, and without "
         "it the next smaller even one is taken."),
        ("not cut", edit("[: len(u)]", ""),
         "Your output is as long as the circle. Keep as many outputs as u has tokens."),
        ("not flipped", edit("rfft(taps, size)", "rfft(taps.flip(0), size)"),
         "Your newest token meets the last tap. K_0 belongs to the newest token: `conv1d` does not flip its weights, a "
         "convolution does."),
    ],
)
def convolve(u, taps):
    """Multiply spectra on a circle that is large enough."""
    size = len(u) + len(taps)
    product = torch.fft.rfft(u, size) * torch.fft.rfft(taps, size)
    return torch.fft.irfft(product, size)[: len(u)]


def _after(step, h):
    return step[0] * h + step[1]


@lesson.exercise(
    "15.4", "Two steps in one", difficulty=1, minutes=6,
    prompt="One step multiplies a number $h$ by a decay and adds something: the step $(a, w)$ turns $h$ into $ah + w$. "
    "Write `join(later, earlier)`: the one step that does what `earlier` and then `later` do. Each step is a tensor "
    "$(a, w)$ of shape (2,), and so is the result.",
    draw=inputs(later=normal("2"), earlier=normal("2")),
    properties=[
        ("From h = 0, the joined step does not end where the two steps end.",
         lambda later, earlier, answer: close(_after(answer, 0.0), _after(later, _after(earlier, 0.0)))),
        ("From h = 1, the joined step does not end where the two steps end.",
         lambda later, earlier, answer: close(_after(answer, 1.0), _after(later, _after(earlier, 1.0)))),
    ],
    hints=(
        "Let h run through both steps on paper, and collect what multiplies h and what does not.",
        "What the earlier step adds still passes through the later one.",
        "The decay is the product of both decays. What has been added by the earlier step is multiplied once more.",
    ),
    mistakes=[
        ("other order", edit("a2 * w1 + w2", "a1 * w2 + w1"),
         "You let `later` act first. What the earlier step adds passes through the later step, not the other way round."),
        ("nothing fades", edit("a2 * w1 + w2", "w1 + w2"),
         "You added both inputs as they are. The first one is already in the state when the later step multiplies it."),
        ("decays added", edit("a2 * a1", "a2 + a1"),
         "You added the decays. Multiplying by one number and then by another is multiplying by their product."),
        ("first input lost", edit("a2 * w1 + w2", "w2"),
         "What the earlier step has added is missing from your result."),
        ("second input lost", edit("a2 * w1 + w2", "a2 * w1"),
         "What the later step adds is missing from your result."),
        ("both faded", edit("a2 * w1 + w2", "a2 * (w1 + w2)"),
         "You let the later step's own input fade in its own step. There it is only added."),
        ("two decays on the first input", edit("a2 * w1 + w2", "a2 * a1 * w1 + w2"),
         "You multiplied the earlier input by both decays. It was added after the earlier step's own multiplication."),
    ],
)
def join(later, earlier):
    """Let a number run through both steps."""
    a1, w1 = earlier
    a2, w2 = later
    return torch.stack([a2 * a1, a2 * w1 + w2])


def _one_by_one(steps, distance):
    rows = [steps[:, t] for t in range(steps.shape[1])]
    return torch.stack([join(row, rows[t - distance]) if t >= distance else row for t, row in enumerate(rows)], 1)


@lesson.exercise(
    "15.5", "One round for all tokens", difficulty=2, minutes=10,
    prompt="Write `scan_round(steps, distance)`: one round of a scan. `steps` is a tensor of shape (2, L), the decays in "
    "row 0 and the inputs in row 1, one column for each token. Join each token with the one `distance` places to its "
    "left; the first `distance` tokens have no such neighbour and stay as they are. Return a tensor of shape (2, L).",
    draw=inputs(n=whole(3, 6), steps=normal("2 n"), distance=whole(1, 2)),
    properties=[
        ("The first tokens have nobody `distance` places to their left and should stay as they are.",
         lambda steps, distance, answer: close(answer[:, :distance], steps[:, :distance])),
        ("A decay (row 0) is not the product of the two that are joined.",
         lambda steps, distance, answer: close(answer[0], _one_by_one(steps, distance)[0])),
        ("An input (row 1) is not that of the two steps in one.",
         lambda steps, distance, answer: close(answer[1], _one_by_one(steps, distance)[1])),
    ],
    hints=(
        "Columns from `distance` on are the later steps; which columns are their partners?",
        "`a[distance:]` and `a[:-distance]` are as long as each other, and line up partner with partner.",
        "All joins read the old rows: build new ones with `torch.cat` from the untouched start and the joined rest.",
    ),
    mistakes=[
        ("wraps round",
         lambda steps, distance: torch.stack([
             steps[0] * steps[0].roll(distance), steps[0] * steps[1].roll(distance) + steps[1]]),
         "`roll` lets the last tokens come in at the start: the first tokens have nobody to their left."),
        ("decays first", edit("later[0] * earlier[1]", "later[0] * earlier[0] * earlier[1]"),
         "Your inputs were multiplied by decays that had been joined already. Both rows must be read before either is "
         "written."),
        ("only the neighbour", lambda steps, distance: scan_round(steps, 1),
         "You joined each token with its direct neighbour. After the first round the partner lies `distance` places "
         "away."),
        ("decays kept", edit("later[0] * earlier[0]", "later[0]"),
         "Your decays did not change. A joined step has the product of both decays, which the next round needs."),
        ("partner's decay", edit("later[0] * earlier[1]", "earlier[0] * earlier[1]"),
         "You multiplied the earlier input by its own decay. It passes through the later step."),
        ("other order", edit("later[0] * earlier[1] + later[1]", "earlier[0] * later[1] + earlier[1]"),
         "You let the later step act first: the input of the left partner is multiplied, that of the right one is added."),
        ("start emptied", edit("[steps[:, :distance],", "[0 * steps[:, :distance],"),
         "You emptied the first tokens. They have no partner and stay as they are."),
        ("inputs added", edit("later[0] * earlier[1] + later[1]", "earlier[1] + later[1]"),
         "You added both inputs as they are. The earlier one passes through the later step, whose decay multiplies it."),
    ],
)
def scan_round(steps, distance):
    """Join the columns from `distance` on with those that lie `distance` to their left."""
    later, earlier = steps[:, distance:], steps[:, :-distance]
    w = later[0] * earlier[1] + later[1]
    a = later[0] * earlier[0]
    return torch.cat([steps[:, :distance], torch.stack([a, w])], 1)


EXERCISES = lesson.exercises
