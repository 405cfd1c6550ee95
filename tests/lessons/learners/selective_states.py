"""What learners of lesson 16 answer, what gives its predictions away, and its claims' nearest wrong neighbours."""

import torch

from course_lib.teaching import edit

GIVES_AWAY = {
    "16.P1": [
        r"(?i)fixed decay",
        r"(?i)\bclear",
        r"(?i)sets? (its|the) decay",
        r"(?i)set by the token",
        r"(?i)selective memory",
    ],
    "16.P2": [r"(?i)no scan of pairs", r"before any state"],
    "16.P3": [r"\b149\b", r"\b150\b", r"1,?074", r"0/0 from"],
}

NEIGHBOURS = {
    # Only a decay that may differ at flags gets anywhere: here it may.
    "16.1": ("min(error(keep, keep, enter)", "min(error(0.0, keep, enter)"),
    "16.c1": ("error(0.0, 1.0, 1.0)", "error(0.0, 0.95, 1.0)"),
    "16.2": ("skip[:, 20] = 0", "skip[:, 19] = 0"),
    "16.c2": ("wipe[:, 20] = 10_000", "wipe[:, 20] = 10"),
    "16.3": ("nn.functional.softplus(z)", "nn.functional.relu(z)"),
    "16.c3": ("of_a[6:].max()", "of_a[5:].max()"),
    "16.4": ("late[0] * early[1] + late[1]", "early[0] * late[1] + early[1]"),
    "16.6": ("decay_mask(gamma) * (q @ k.T)", "gamma[:, None] * decay_mask(gamma) * (q @ k.T)"),
    "16.5": (
        "decayed_attention(q, k, v, gamma, chunk_size=16)",
        "decayed_attention(q, k, v, gamma.roll(1), chunk_size=16)",
    ),
    "16.c4": ("torch.full((200,), 0.5)", "torch.full((200,), 0.49)"),
    "16.c5": ('max(errors("selective", "400 tokens"))', 'max(errors("fixed", "400 tokens"))'),
    "16.c6": ('"two fixed layers", "fixed, divided")', '"two fixed layers", "GRU")'),
}


def by_cases(flags):
    return torch.tensor([[0.0, 1.0] if flag else [1.0, 0.0] for flag in flags]).double().T


def as_floats(flags):
    a = torch.where(flags > 0.5, 0.0, 1.0).to(flags)
    return torch.stack([a, 1 - a])


def nothing_to_keep_at_first(flags):
    """The decay before the first flag may be anything: there is nothing to keep."""
    a = 1 - flags
    a[flags.cumsum(0) == 0] = 0.3
    return torch.stack([a, flags])


def double_loop(decay):
    M = torch.zeros(len(decay), len(decay), dtype=decay.dtype)
    for i in range(len(decay)):
        for j in range(i + 1):
            M[i, j] = torch.prod(decay[j + 1 : i + 1])
    return M


def in_a_triangle(decay):
    """Decays in the lower triangle, ones above, running products downwards."""
    T = len(decay)
    factors = decay[:, None].expand(T, T).tril(-1) + torch.ones(T, T, dtype=decay.dtype).triu()
    return factors.cumprod(0).tril()


def with_own_decay(decay):
    return in_a_triangle(decay) * decay


def divided(decay):
    P = torch.cumprod(decay, 0)
    return torch.tril(torch.outer(P, 1 / P))


def token_by_token(state, k, v, decay):
    for j in range(len(decay)):
        state = decay[j] * state + k[j][:, None] * v[j]
    return state


def by_einsum(state, k, v, decay):
    left = torch.cat([decay[1:], decay.new_ones(1)]).flip(0).cumprod(0).flip(0)
    return torch.einsum("t,td,te->de", left, k, v) + state * torch.prod(decay)


def by_a_triangle(state, k, v, decay):
    left = in_a_triangle(decay)[-1]
    return (k * left.unsqueeze(-1)).transpose(0, 1) @ v + decay.prod() * state


def a_list_of_products(state, k, v, decay):
    left = torch.stack([decay[j + 1 :].prod() for j in range(len(decay))])
    return decay.prod() * state + (left[:, None] * k).T @ v


def in_plain_numbers(state, k, v, decay):
    left, shares = 1.0, []
    for gamma in reversed(decay.tolist()):
        shares.append(left)
        left *= gamma
    return left * state + (torch.tensor(shares[::-1], dtype=k.dtype)[:, None] * k).T @ v


ANSWERS = {
    "16.1": [
        ("solved", "case by case", by_cases),
        ("solved", "torch.where", as_floats),
        ("solved", "another decay before the first flag", nothing_to_keep_at_first),
        ("swapped", "flags as both rows", lambda flags: torch.stack([flags, flags])),
        ("both swapped", "keep when flagged", lambda flags: torch.stack([flags, 1 - flags])),
        ("nothing is cleared", "decay 1", lambda flags: torch.stack([flags**0, flags])),
        ("everything enters", "entry 1", lambda flags: torch.stack([1 - flags, flags**0])),
        ("nothing is kept", "decay 0", lambda flags: torch.stack([0 * flags, flags])),
        ("halfway", "half is kept", lambda flags: torch.stack([1 - 0.5 * flags, flags])),
        ("wrong", "a leaky cell", lambda flags: torch.stack([0.9 * (1 - flags), flags])),
        ("malformed", "one row for each token", lambda flags: torch.stack([1 - flags, flags], 1)),
        ("malformed", "a pair", lambda flags: (1 - flags, flags)),
    ],
    "16.2": [
        ("solved", "two loops", double_loop),
        ("solved", "running products down a triangle", in_a_triangle),
        ("own decay", "multiplied by the writer's decay", with_own_decay),
        ("own decay", "products from j on", lambda decay: torch.stack([
            torch.stack([decay[j : i + 1].prod() if j <= i else decay[0] * 0 for j in range(len(decay))])
            for i in range(len(decay))])),
        ("transposed", "columns are readers", lambda decay: double_loop(decay).T),
        ("both triangles", "made symmetric", lambda decay: double_loop(decay) + double_loop(decay).tril(-1).T),
        ("a quotient", "one division", divided),
        ("distance only", "torch.tril of ones", lambda decay: torch.ones(len(decay), len(decay)).tril().double()),
        ("wrong", "no diagonal", lambda decay: double_loop(decay).tril(-1)),
        ("malformed", "the last row only", lambda decay: double_loop(decay)[-1]),
    ],
    "16.3": [
        ("solved", "einsum", by_einsum),
        ("solved", "the last row of a mask", by_a_triangle),
        ("loop", "token by token", token_by_token),
        ("loop", "a product for each token", a_list_of_products),
        ("loop", "in Python's numbers", in_plain_numbers),
        ("own decay too", "products from j on", lambda state, k, v, decay: decay.prod() * state
         + (decay.flip(0).cumprod(0).flip(0)[:, None] * k).T @ v),
        ("from the start", "cumprod as it is", lambda state, k, v, decay: decay.prod() * state
         + (decay.cumprod(0)[:, None] * k).T @ v),
        ("state kept", "the state added", edit("decay.prod() * state", "state")),
        ("no decay inside", "k^T v", lambda state, k, v, decay: decay.prod() * state + k.T @ v),
        ("transposed", "values as rows", lambda state, k, v, decay: by_einsum(state, v, k, decay)),
        ("no old state", "the chunk alone", lambda state, k, v, decay: by_einsum(0 * state, k, v, decay)),
        ("a quotient", "divided by the running product", lambda state, k, v, decay: decay.prod() * state
         + ((decay.prod() / decay.cumprod(0))[:, None] * k).T @ v),
        ("wrong", "the mean of the products", lambda state, k, v, decay: by_einsum(state, k, v / len(v), decay)),
    ],
    "16.4": [
        ("solved", "with commas", "clock, state, token, nobody"),
        ("solved", "capitals, no commas", "Clock State Token Nobody"),
        ("a mean with a fixed decay", "A looks linear", "nobody, state, token, nobody"),
        ("a gate is a gate", "B as in Mamba", "clock, token, token, nobody"),
        ("exponential taken for fixed", "C is a state space model", "clock, state, nobody, nobody"),
        ("recurrent, so state", "C multiplies h", "clock, state, state, nobody"),
        ("lerp by the token", "D takes u in", "clock, state, token, token"),
        ("lerp by the clock", "D as A", "clock, state, token, clock"),
        ("wrong", "three words", "clock, state, token"),
        ("malformed", "a list", ["clock", "state", "token", "nobody"]),
    ],
}  # fmt: skip
