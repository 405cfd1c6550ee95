"""Exercises of lesson 12, state space models."""

import torch

from course_lib.lessons.state_space_models.contents import lesson
from course_lib.teaching import close, edit, inputs, normal, uniform, whole

lesson.value(
    "12.1", "Three tokens by hand", difficulty=1, minutes=5,
    prompt="A state of one number, $x_t = \\frac12x_{t-1} + 2u_t$ and $y_t = 3x_t + u_t$, starts from 0. The input is "
    "$u_0, u_1, u_2 = 1, 0, 2$. What is $y_2$?",
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
    "12.2", "The kernel of a diagonal system", difficulty=1, minutes=8,
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
    "12.3", "A power without matrix products", difficulty=2, minutes=10,
    prompt="Write `rank_one_power(p, power)`: the matrix $(I + pp^\\top)^L$ for a vector `p` that is not 0 and "
    "`power` = $L \\ge 1$, without multiplying any two matrices.",
    draw=inputs(n=whole(2, 3), p=uniform(0.2, 1.5, "n", digits=1), power=whole(2, 5)),
    properties=[
        ("It should be the product of L factors I + p pᵀ.",
         lambda p, power, answer: close(answer, torch.linalg.matrix_power(torch.eye(len(p)) + torch.outer(p, p), power))),
    ],
    hints=(
        "What does (p pᵀ)(p pᵀ) collapse to? Write s for the number in the middle.",
        "Every power of p pᵀ is p pᵀ times a number, so the result is I plus a number times p pᵀ.",
        "Apply both sides to p: the vector p is multiplied by (1 + s)^L on the left, and by 1 + (the number)·s "
        "on the right.",
    ),
    mistakes=[
        ("the power's letter", edit("s = p @ p", "s = power"),
         "You used L in two meanings, as the notes print it: inside the sum stands s = |p|², not the power."),
        ("length for its square", edit("s = p @ p", "s = (p @ p).sqrt()"),
         "You used the length of p. What stands in the middle is p·p, its square."),
        ("no identity", edit("torch.eye(len(p)).to(p) + ", ""),
         "The identity is missing: directions at right angles to p stay as they are."),
        ("only the first order", edit("((1 + s) ** power - 1) / s", "power"),
         "You kept the term L p pᵀ and dropped the higher ones. That is good for small p only."),
        ("one power of s too many", edit("((1 + s) ** power - 1) / s", "(1 + s) ** power - 1"),
         "Your factor is s times too large: (p pᵀ)^l is p pᵀ times s^(l-1), not s^l."),
        ("only the highest order", edit("((1 + s) ** power - 1) / s", "s ** (power - 1)"),
         "You kept the identity and (p pᵀ)^L. The terms between them are missing: the binomial sum has all of them."),
        ("entry by entry", edit("factor * torch.outer(p, p)", "0 * factor", "return torch.eye",
                                "return (torch.outer(p, p) + torch.eye", "to(p) +", "to(p)) ** power +"),
         "`**` raises each entry of the matrix to the power. A power of a matrix repeats the product."),
    ],
)
def rank_one_power(p, power):
    """I plus a number times p pᵀ."""
    s = p @ p
    factor = ((1 + s) ** power - 1) / s
    return torch.eye(len(p)).to(p) + factor * torch.outer(p, p)


def _is_stable(decay, frequency, step):
    return decay > 0 and step > 0 and abs(frequency) < 1e100 and 0 < decay * step < 2


lesson.flaw(
    "12.4", "Slow enough for Euler", difficulty=2, minutes=6,
    prompt="\"Euler's rule is stable as long as a step takes away less than twice the state, $\\Delta\\alpha < 2$.\" "
    "That is right for "
    "$\\omega = 0$. Give a counterexample: a dictionary with `decay` ($\\alpha > 0$), `frequency` ($\\omega$) "
    "and `step` "
    "($\\Delta > 0$), so that $\\Delta\\alpha < 2$ and yet the pole $-\\alpha + i\\omega$ ends outside of the "
    "unit circle.",
    answer={"decay": 0.5, "frequency": 2.0, "step": 1.0},
    properties=[
        ("Decay and step should be above 0, and their product below 2.", _is_stable),
        ("Euler's step is stable for your numbers.",
         lambda decay, frequency, step: abs(complex(1 - step * decay, step * frequency)) > 1),
    ],
    hints=(
        "Where does Euler's rule put the pole? Write down its real and imaginary part.",
        "Its squared size is a sum of two squares. Which of them does the condition control?",
        "Choose Δα = 1, so that the real part vanishes. What must Δω be?",
    ),
    mistakes=[
        ("on the real axis", {"decay": 0.5, "frequency": 0.0, "step": 1.0},
         "For ω = 0 the statement is right: 1 - Δα lies between -1 and 1. The state has to turn.",
         lambda decay, frequency, step: _is_stable(decay, 0, step) and frequency == 0),
        ("decay too fast", {"decay": 3.0, "frequency": 0.0, "step": 1.0},
         "Here Δα is 2 or more, so that the statement says nothing about it.",
         lambda decay, frequency, step: decay > 0 and step > 0 and decay * step >= 2),
        ("no decay", {"decay": 0.0, "frequency": 1.0, "step": 1.0},
         "With α = 0 or below the continuous system itself does not fade. A stable one is asked for.",
         lambda decay, frequency, step: decay <= 0 and step > 0),
        ("turns too slowly", {"decay": 1.0, "frequency": 0.5, "step": 1.0},
         "The state turns, but too slowly for this step: |1 - Δα + iΔω| is still at most 1.",
         lambda decay, frequency, step: _is_stable(decay, frequency, step) and frequency != 0
         and abs(complex(1 - step * decay, step * frequency)) <= 1),
    ],
)


@lesson.exercise(
    "12.5", "A convolution that does not wrap round", difficulty=2, minutes=8,
    prompt="Write `convolve(u, taps)` with `torch.fft.rfft` and `torch.fft.irfft`: the causal convolution "
    "$y_t = \\sum_{l \\le t}K_lu_{t-l}$ of an input with the kernel `taps`. Both are vectors, and their lengths "
    "may differ; "
    "the output is as long as `u`.",
    draw=inputs(n=whole(3, 6), m=whole(2, 6), u=normal("n"), taps=normal("m")),
    properties=[
        ("Each output should be the sum over all tokens up to its own.",
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


def _token_by_token(state, k, v, decay):
    for key, value in zip(k, v, strict=True):
        state = decay * state + torch.outer(key, value)
    return state


@lesson.exercise(
    "12.6", "A state over a whole chunk", difficulty=3, minutes=12,
    prompt="The memory follows $S_t = \\gamma S_{t-1} + k_tv_t^\\top$ with one decay $\\gamma$ for all tokens. Write "
    "`next_state(state, k, v, decay)`: the state after a chunk of tokens, from the `state` before it, the keys "
    "`k` and values "
    "`v` as rows, by one product of matrices and without a loop. `decay` is $\\gamma$, a number that may be 0.",
    draw=inputs(
        m=whole(2, 4), k=normal("m 2"), v=normal("m 2"), state=normal("2 2"), decay=uniform(0.2, 0.9, digits=1),
    ).sometimes(
        0.2, {"state": torch.eye(2).double(), "k": torch.ones(3, 2).double(),
              "v": torch.tensor([[1.0, 0.0], [2.0, 1.0], [0.0, 3.0]]).double(), "decay": 0.0}),
    properties=[
        ("It should be what the loop over the chunk ends with.",
         lambda state, k, v, decay, answer: close(answer, _token_by_token(state, k, v, decay))),
    ],
    hints=(
        "How many steps of decay does the first token of the chunk see until the end, and how many the last one?",
        "The weights belong to the rows of k: multiply them in before the product k^T v.",
        "The old state decays once for each token of the chunk.",
    ),
    mistakes=[
        ("weights in the wrong order", edit("torch.arange(len(k)).flip(0)", "torch.arange(len(k))"),
         "Your oldest token counts most. The last token of the chunk has not decayed at all, the first one m - "
         "1 times."),
        ("one decay too many", edit("torch.arange(len(k)).flip(0)", "(torch.arange(len(k)).flip(0) + 1)"),
         "You let each token decay in its own step as well. In that step it is only added."),
        ("state kept", edit("decay ** len(k) * state", "state"),
         "Your old state does not decay. It fades once for each token of the chunk."),
        ("state decayed once", edit("decay ** len(k) * state", "decay * state"),
         "Your old state decays once. It fades once for each token of the chunk."),
        ("no decay inside", edit("(k * weights[:, None])", "k"),
         "The tokens of your chunk do not decay: earlier ones must count less."),
        ("transposed", edit("(k * weights[:, None]).mT @ v", "v.mT @ (k * weights[:, None])"),
         "Your sum of products is transposed: keys index the rows of the state, values the columns."),
        ("no old state", edit("decay ** len(k) * state + ", ""),
         "The state from before the chunk is missing. What is left of it is added to the chunk's products."),
    ],
)
def next_state(state, k, v, decay):
    """Weights by age, one product, and what is left of the old state."""
    weights = decay ** torch.arange(len(k)).flip(0).to(k)
    return decay ** len(k) * state + (k * weights[:, None]).mT @ v


EXERCISES = lesson.exercises
