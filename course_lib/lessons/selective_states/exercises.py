"""Exercises of lesson 16, a memory that decides what to keep."""

import torch
from torch import Tensor

from course_lib.architectures.selective_copying import last_flagged
from course_lib.lessons.selective_states.contents import lesson
from course_lib.teaching import close, edit, inputs, normal, whole


def _numbers(like: Tensor) -> Tensor:
    """Numbers that no rule fits by chance, one for each token."""
    return torch.randn(len(like), generator=torch.Generator().manual_seed(33), dtype=torch.float64)


def _cell(gates: Tensor, numbers: Tensor) -> Tensor:
    h, states = torch.zeros((), dtype=torch.float64), []
    for decay, entry, u in zip(*gates.double(), numbers, strict=True):
        h = decay * h + entry * u
        states.append(h)
    return torch.stack(states)


@lesson.exercise(
    "16.1", "Two numbers a token", difficulty=1, minutes=6,
    prompt="A state of one number follows $h_t = a_t\\,h_{t-1} + e_tu_t$ from 0. Write `gates(flags)`: `flags` is a vector "
    "with a 1 at each flagged token and 0 elsewhere. Return `torch.stack([a, e])`, two rows with the decay $a_t$ and the "
    "share $e_t$ for each token, so that $h_t$ is always the last flagged number.",
    draw=inputs(n=whole(3, 6), flags=lambda n, generator: torch.randint(0, 2, (n,), generator=generator).double()),
    properties=[
        ("The state should be the last flagged number at each token, and 0 before the first one.",
         lambda flags, answer: close(_cell(answer, _numbers(flags)), last_flagged(_numbers(flags), flags))),
    ],
    hints=(
        "There are two kinds of tokens. For each, write down what the state should be after it.",
        "After a flagged token nothing of the old state may be left. After any other token all of it is left.",
        "So a flagged token has the decay 0. Both rows follow from `flags` with one operation each, or none.",
    ),
    mistakes=[
        ("swapped", edit("[1 - flags, flags]", "[flags, flags]"),
         "Your decay is 1 at flagged tokens and 0 elsewhere: the number is dropped at the next token."),
        ("both swapped", edit("[1 - flags, flags]", "[flags, 1 - flags]"),
         "Your cell keeps the state at flagged tokens and takes the number of every other one: it is the wrong way round."),
        ("nothing is cleared", edit("[1 - flags, flags]", "[torch.ones_like(flags), flags]"),
         "Your state is never cleared: it adds up all flagged numbers."),
        ("everything enters", edit("[1 - flags, flags]", "[1 - flags, torch.ones_like(flags)]"),
         "Your cell lets every number in: the state adds up all that came since the last flag, with the flagged one."),
        ("nothing is kept", edit("[1 - flags, flags]", "[torch.zeros_like(flags), flags]"),
         "Your state is cleared at every token, so the flagged number is seen once and is gone."),
        ("halfway", edit("[1 - flags, flags]", "[1 - flags / 2, flags]"),
         "A flagged token halves your old state, and the rest of it is added to the new number. It has to be cleared."),
    ],
)  # fmt: skip
def gates(flags):
    """A flagged token clears and writes; every other one keeps and adds nothing."""
    return torch.stack([1 - flags, flags])


def _mask_by_definition(decay: Tensor) -> Tensor:
    T = len(decay)
    mask = torch.zeros(T, T, dtype=decay.dtype)
    for i in range(T):
        for j in range(i + 1):
            mask[i, j] = decay[j + 1 : i + 1].prod()
    return mask


@lesson.exercise(
    "16.2", "What is left of token j when token i reads", difficulty=2, minutes=10,
    prompt="A state follows $S_t = \\gamma_tS_{t-1} + k_tv_t^\\top$: each token first decays what is there, "
           "then adds its own "
    "product. Write `mask(decay)`: from the vector of the $\\gamma_t$ the matrix `M` in which `M[i, j]` is the "
    "share of token "
    "j's product that is left when token i reads $S_i$, and 0 for tokens that have not come yet. A decay may be "
    "0. Loops are "
    "allowed.",
    draw=inputs(n=whole(3, 5), decay=lambda n, generator: torch.tensor([0.0, 0.5, 0.8, 1.0]).double()[
        torch.randint(0, 4, (n,), generator=generator)]),
    properties=[
        ("`M[i, j]` should be the share that the recursion leaves.",
         lambda decay, answer: close(answer, _mask_by_definition(decay))),
    ],
    hints=(
        "Take three tokens. By which factors has the first product been multiplied when token 2 (the third) reads?",
        "Token j's product is not multiplied by its own decay, but by that of every token after it, up to the reader's own.",
        "Row i is row i - 1 times decay[i], and then a 1 is put on the diagonal.",
    ),
    mistakes=[
        ("own decay", edit("row[i] = 1", "row[i] = decay[i]"),
         "Your tokens are multiplied by their own decay. A token is added after the state has decayed, so the "
         "diagonal is 1."),
        ("reader's decay left out", edit("row = row * decay[i]", "row = row * (decay[i - 1] if i else 1)"),
         "Your factors are one token late: the reader's own decay comes before it reads."),
        ("transposed", edit("torch.stack(rows)", "torch.stack(rows).T"),
         "Your matrix is transposed: the row is the reader i, and tokens after it (j > i) are 0."),
        ("both triangles", edit("torch.stack(rows)", "torch.stack(rows) + torch.stack(rows).T.triu(1)"),
         "Your readers see tokens that have not come yet: entries with j > i are 0."),
        ("a quotient", edit("    return torch.stack(rows)", "    total = decay.cumprod(0)\n"
                            "    return (total[:, None] / total).tril()"),
         "You divided one running product by another. Where a decay is 0 that is 0/0, not a number: multiply instead."),
        ("one decay for all", edit("row = row * decay[i]", "row = row * decay[-1]"),
         "You used one decay for all tokens. Each token brings its own."),
        ("distance only", edit("row = row * decay[i]", "row = row * 1"),
         "Your shares do not fade: all decays are left out."),
    ],
)  # fmt: skip
def mask(decay):
    """Each reader's row is the row before, decayed once more, and its own token."""
    rows, row = [], torch.zeros_like(decay)
    for i in range(len(decay)):
        row = row * decay[i]
        row[i] = 1
        rows.append(row)
    return torch.stack(rows)


# A chunk at once


def _token_by_token(state: Tensor, k: Tensor, v: Tensor, decay: Tensor) -> Tensor:
    for key, value, gamma in zip(k, v, decay, strict=True):
        state = gamma * state + torch.outer(key, value)
    return state


@lesson.exercise(
    "16.3", "A whole chunk in one product", difficulty=3, minutes=12,
    prompt="The memory follows $S_t = \\gamma_tS_{t-1} + k_tv_t^\\top$. Write `next_state(state, k, v, decay)`: "
           "the state after a "
    "chunk of tokens, from the `state` before it, keys `k` and values `v` as rows, and the vector `decay`, in "
    "which there may "
    "be zeros. Use one product of matrices and no loop over the tokens.",
    draw=inputs(
        m=whole(2, 5), state=normal("2 2"), k=normal("m 2"), v=normal("m 2"),
        decay=lambda m, generator: torch.tensor([0.0, 0.5, 0.8, 0.9, 1.0]).double()[
            torch.randint(0, 5, (m,), generator=generator)],
    ),
    forbids=("loop",),
    properties=[
        ("It should be what the loop over the chunk ends with.",
         lambda state, k, v, decay, answer: close(answer, _token_by_token(state, k, v, decay))),
    ],
    hints=(
        "By which decays has the first token's product been multiplied at the end of the chunk, and by which "
        "the last one's?",
        "Token j keeps the product of all decays after j. Turn the vector round, and a running product gives them all.",
        "That product starts with 1 and leaves out decay[0]. The old state is multiplied by all decays.",
    ),
    mistakes=[
        ("own decay too", edit("later = torch.cat([torch.ones_like(decay[:1]), decay.flip(0)[:-1]])",
                               "later = decay.flip(0)"),
         "You let each token decay in its own step as well. In that step it is only added."),
        ("from the start", edit("later.cumprod(0).flip(0)", "decay.cumprod(0)"),
         "Your running product begins at the first token, as if the first had decayed least. It has decayed most."),
        ("not turned back", edit("later.cumprod(0).flip(0)", "later.cumprod(0)"),
         "Your shares are in reverse order: the last token has not decayed at all, the first one most."),
        ("state kept", edit("decay.prod() * state", "state"),
         "Your old state does not decay. It is multiplied by every decay of the chunk."),
        ("state decayed once", edit("decay.prod() * state", "decay[-1] * state"),
         "Your old state decays once. It is multiplied by every decay of the chunk."),
        ("no decay inside", edit("(left[:, None] * k)", "k"),
         "The tokens of your chunk do not decay: earlier ones must count less."),
        ("transposed", edit("(left[:, None] * k).mT @ v", "v.mT @ (left[:, None] * k)"),
         "Your sum of products is transposed: keys index the rows of the state, values the columns."),
        ("no old state", edit("decay.prod() * state + ", ""),
         "The state from before the chunk is missing. What is left of it is added to the chunk's products."),
        ("a quotient", edit("later.cumprod(0).flip(0)", "decay.cumprod(0)[-1] / decay.cumprod(0)"),
         "You divided the product of all decays by that of the first ones. With a decay of 0 that is 0/0: multiply the "
         "decays that come after each token instead."),
    ],
)  # fmt: skip
def next_state(state, k, v, decay):
    """What is left of each token at the end, one product, and what is left of the old state."""
    later = torch.cat([torch.ones_like(decay[:1]), decay.flip(0)[:-1]])
    left = later.cumprod(0).flip(0)
    return decay.prod() * state + (left[:, None] * k).mT @ v


SETTERS = ("nobody", "clock", "token", "state")
_RIGHT = ["clock", "state", "token", "nobody"]


def _words(answer: str) -> list[str]:
    return answer.lower().replace(",", " ").replace(";", " ").replace(".", " ").split()


lesson.value(
    "16.4", "Who sets the decay?", difficulty=1, minutes=5,
    prompt="Four memories, one step each. `u` is the token, `t` counts tokens from 0, capital letters are "
           "learned. Who sets the "
    "factor on the old state: `nobody` (it is always the same), the `clock`, the `token`, or the `state` "
    "itself? Answer with "
    "one string of four words in the order A, B, C, D, such as `\"token, clock, nobody, state\"`.\n\n"
    "```python\n"
    "m = m + (u - m) / (t + 1)                                    # A\n"
    "z = sigmoid(W @ u + V @ h); h = z * h + (1 - z) * tanh(B @ u)  # B\n"
    "h = exp(-softplus(W @ u)) * h + B @ u                         # C\n"
    "m = m.lerp(u, 0.1)                                            # D\n"
    "```",
    answer="clock, state, token, nobody",
    properties=[
        ("Give four words, each one of nobody, clock, token, state.",
         lambda answer: len(_words(answer)) == 4 and set(_words(answer)) <= set(SETTERS)),
        ("At least one of the four is set by something else. Write each step as factor times old state plus something.",
         lambda answer: _words(answer) == _RIGHT),
    ],
    hints=(
        "Bring each line into the form: new state = factor × old state + the rest.",
        "Which names stand in the factor: t, u, the state, or only numbers and learned matrices?",
        "`m.lerp(u, 0.1)` is m + 0.1 (u - m). In A the factor is t / (t + 1).",
    ),
    mistakes=[
        ("a mean with a fixed decay", "nobody, state, token, nobody",
         "In A the factor is t/(t + 1): 0, 1/2, 2/3, ... It changes with the position, though with nothing else.",
         lambda answer: _words(answer)[:1] == ["nobody"]),
        ("a gate is a gate", "clock, token, token, nobody",
         "B's gate z reads h: its factor is not known before the state is.",
         lambda answer: _words(answer)[:2] == ["clock", "token"]),
        ("exponential taken for fixed", "clock, state, nobody, nobody",
         "C's factor is exp(-softplus(W @ u)): it has u in it, so each token brings its own.",
         lambda answer: _words(answer)[:3] == ["clock", "state", "nobody"]),
        ("recurrent, so state", "clock, state, state, nobody",
         "C multiplies h, as all four do, but its factor exp(-softplus(W @ u)) is computed from the token alone.",
         lambda answer: _words(answer)[:3] == ["clock", "state", "state"]),
        ("lerp by the token", "clock, state, token, token",
         "D's factor is 0.9 at every token; the token decides what is added, not what is kept.",
         lambda answer: _words(answer) == ["clock", "state", "token", "token"]),
        ("lerp by the clock", "clock, state, token, clock",
         "D's factor is 0.9 at every token, whatever t is.",
         lambda answer: _words(answer) == ["clock", "state", "token", "clock"]),
    ],
)  # fmt: skip

EXERCISES = lesson.exercises
