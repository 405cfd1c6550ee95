"""Linear recurrences whose decay depends on the token: scans, the selective scan, and attention with decay (lesson 16).

With a decay of its own at every token there is no kernel any more, but the steps still compose: two of them are one
step of the same kind. Three forms agree for each model: the token loop, the fast form in chunks, and a step that
shares its state with both. The fast forms keep the state at the start of each chunk and compute the rest again in the
backward pass; neither divides by a decay, so that decays of 0 are as good as any other.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from course_lib.architectures.state_space import check_sequence, check_shape, check_whole
from course_lib.attention.decay import decay_mask as decay_mask
from course_lib.attention.decay import decayed_sums

# Any decay for each entry: the scan


def scan_loop(
    a: Float[Tensor, "length *lead"], x: Float[Tensor, "length *lead"]
) -> Float[Tensor, "length *lead"]:
    """h_t = a_t h_(t-1) + x_t from h = 0 (15.5), entry by entry; to be read.

    Raises:
        ValueError: a sequence is empty or not finite, or a and x differ in shape.
    """
    _check_scan(a, x)
    h, states = torch.zeros_like(x[0]), []
    for a_t, x_t in zip(a, x, strict=True):
        h = a_t * h + x_t
        states.append(h)
    return torch.stack(states)


def scan_by_doubling(
    a: Float[Tensor, "length *lead"], x: Float[Tensor, "length *lead"]
) -> Float[Tensor, "length *lead"]:
    """The same in log2(length) rounds, each over all tokens at once (15.5).

    After the round with distance d, each entry stands for the last 2d steps in one. Nothing waits for its neighbour,
    but the work grows to length log2(length): faster than the loop only where there are processors for all tokens.

    Raises:
        ValueError: a sequence is empty or not finite, or a and x differ in shape.
    Source: Hillis and Steele, Communications of the ACM 29 (1986).
    """
    _check_scan(a, x)
    distance = 1
    while distance < len(x):
        x = torch.cat([x[:distance], a[distance:] * x[:-distance] + x[distance:]])
        a = torch.cat([a[:distance], a[distance:] * a[:-distance]])
        distance *= 2
    return x


def _check_scan(a: Tensor, x: Tensor) -> None:
    check_sequence("x", x, dim=0)
    check_sequence("a", a, dim=0)
    check_shape("a", a, tuple(x.shape), x)


# The selective state space model: step sizes and both maps depend on the token


def _check_selective(
    u: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor | None, state
) -> None:
    *lead, channels = u.shape
    if A.ndim != 2 or not A.numel():
        raise ValueError(f"A must have shape (channels, n) and not be empty, got {tuple(A.shape)}")
    n = A.shape[-1]
    for name, tensor, wanted in (
        ("delta", delta, (*lead, channels)),
        ("A", A, (channels, n)),
        ("B", B, (*lead, n)),
        ("C", C, (*lead, n)),
        ("D", D, (channels,)),
    ):
        if tensor is not None:
            check_shape(name, tensor, wanted, u)
    if state is not None and tuple(state.shape) != (len(u), channels, n):
        raise ValueError(f"state must have shape {(len(u), channels, n)}, got {tuple(state.shape)}")


def selective_step(
    state: Float[Tensor, "batch channels n"] | None,
    u: Float[Tensor, "batch channels"],
    delta: Float[Tensor, "batch channels"],
    A: Float[Tensor, "channels n"],
    B: Float[Tensor, "batch n"],
    C: Float[Tensor, "batch n"],
    D: Float[Tensor, " channels"] | None = None,
) -> tuple[Float[Tensor, "batch channels"], Float[Tensor, "batch channels n"]]:
    """One token of (16.2): h_t = e^(delta_t A) h_(t-1) + delta_t B_t u_t, y_t = C_t.h_t + D u_t; None starts.

    Raises:
        ValueError: shapes, dtypes or devices do not belong together.
    """
    _check_selective(u, delta, A, B, C, D, state)
    new = (delta * u)[..., None] * B[:, None]
    state = new if state is None else torch.exp(delta[..., None] * A) * state + new
    y = (state * C[:, None]).sum(-1)
    return (y if D is None else y + D * u), state


def selective_scan_loop(
    u: Float[Tensor, "batch length channels"],
    delta: Float[Tensor, "batch length channels"],
    A: Float[Tensor, "channels n"],
    B: Float[Tensor, "batch length n"],
    C: Float[Tensor, "batch length n"],
    D: Float[Tensor, " channels"] | None = None,
) -> Float[Tensor, "batch length channels"]:
    """(16.2) token by token, to be read: `selective_scan` gives the same and is faster.

    Raises:
        ValueError: a sequence is empty or not finite, or shapes, dtypes or devices do not belong together.
    """
    for name, tensor in (("u", u), ("delta", delta), ("B", B), ("C", C)):
        check_sequence(name, tensor)
    _check_selective(u, delta, A, B, C, D, None)
    state, outputs = None, []
    for t in range(u.shape[1]):
        y_t, state = selective_step(state, u[:, t], delta[:, t], A, B[:, t], C[:, t], D)
        outputs.append(y_t)
    return torch.stack(outputs, 1)


def selective_scan(
    u: Float[Tensor, "batch length channels"],
    delta: Float[Tensor, "batch length channels"],
    A: Float[Tensor, "channels n"],
    B: Float[Tensor, "batch length n"],
    C: Float[Tensor, "batch length n"],
    D: Float[Tensor, " channels"] | None = None,
    *,
    state: Float[Tensor, "batch channels n"] | None = None,
    chunk_size: int = 128,
) -> tuple[Float[Tensor, "batch length channels"], Float[Tensor, "batch channels n"]]:
    """h_t = e^(delta_t A) h_(t-1) + delta_t B_t u_t, y_t = C_t.h_t + D u_t (16.2): outputs and the last state.

    Only the state at the start of each chunk is kept for the backward pass, which computes the others again.
    Gradients are by hand, with respect to all inputs and the first state; they cannot be differentiated again.
    Half precision is computed, and the state kept, in float32.

    Shapes: `state` is what came before, as this function and `selective_step` return it; None for nothing.
    Units: `delta` is the step of each token, above 0 in practice; A is the poles in continuous time, below 0.

    Raises:
        ValueError: a sequence is empty or not finite, `chunk_size` is below 1, or shapes, dtypes or devices do not belong
            together.
    Source: Gu and Dao 2023, arXiv:2312.00752 (Mamba).
    """
    for name, tensor in (("u", u), ("delta", delta), ("B", B), ("C", C)):
        check_sequence(name, tensor)
    _check_selective(u, delta, A, B, C, D, state)
    check_whole(1, chunk_size=chunk_size)
    dtype = torch.promote_types(u.dtype, torch.float32)
    if state is None:
        state = u.new_zeros(len(u), *A.shape, dtype=dtype)
    y, state = _SelectiveScan.apply(*(t.to(dtype) for t in (u, delta, A, B, C, state)), chunk_size)
    y = y.to(u.dtype)
    return (y if D is None else y + D * u), state


class _Chunk:
    """Memory for one chunk, (m, batch, n, channels), which all chunks share: fresh pages cost more than arithmetic.

    Channels come last: there are many of them, and the innermost loops are long. The views of single tokens are made
    once as well.
    """

    def __init__(self, like: Tensor, size: int, count: int):
        self.whole = like.new_empty(count, size, *like.shape)
        self.by_token = [part.unbind() for part in self.whole.unbind()]

    def states(self, u: Tensor, delta: Tensor, A: Tensor, B: Tensor, start: Tensor) -> Tensor:
        """Write decays (buffer 0) and states (buffer 1) of u and delta (m, batch, channels) and B (m, batch, n)."""
        decay, states = self.whole[:2, : len(u)]
        torch.mul(delta[:, :, None], A, out=decay).exp_()
        torch.mul((delta * u)[:, :, None], B[..., None], out=states)
        for decay_t, state_t in zip(self.by_token[0][: len(u)], self.by_token[1], strict=False):
            start = state_t.addcmul_(decay_t, start)
        return states

    def adjoints(self, dy: Tensor, C: Tensor, carry: Tensor) -> tuple[Tensor, Tensor]:
        """Write what reaches each state, from its own output and through the next token, to buffer 2."""
        g = self.whole[2, : len(dy)]
        torch.mul(dy[:, :, None], C[..., None], out=g)
        decay_t, after = self.by_token[0][: len(dy)], self.by_token[2][: len(dy)]
        after[-1].add_(carry)
        for t in range(len(dy) - 2, -1, -1):
            after[t].addcmul_(decay_t[t + 1], after[t + 1])
        return g, decay_t[0] * after[0]


class _SelectiveScan(torch.autograd.Function):
    """Chunks of the scan, states kept at their starts only, and the gradients by hand: the same scan backwards."""

    @staticmethod
    def forward(ctx, u, delta, A, B, C, state, m):
        timed = [t.transpose(0, 1).contiguous() for t in (u, delta, B, C)]
        A, state = A.mT.contiguous(), state.mT.contiguous()
        chunk, y = _Chunk(state, min(m, u.shape[1]), 2), torch.empty_like(timed[0])
        starts = u.new_empty(-(-u.shape[1] // m), *state.shape)
        for number, start in enumerate(starts.unbind()):
            u_, delta_, B_, C_, y_ = (t[number * m : (number + 1) * m] for t in (*timed, y))
            states = chunk.states(u_, delta_, A, B_, start.copy_(state))
            torch.matmul(C_[:, :, None], states, out=y_[:, :, None])
            state = states[-1]
        ctx.save_for_backward(*timed, A, starts)
        ctx.chunk_size = m
        return y.transpose(0, 1).contiguous(), state.mT.contiguous()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dy, dstate):
        (*timed, A, starts), m = ctx.saved_tensors, ctx.chunk_size
        dy = dy.transpose(0, 1).contiguous()
        grads, dA, carry = [torch.empty_like(t) for t in timed], torch.zeros_like(A), dstate.mT
        chunk = _Chunk(starts[0], min(m, len(dy)), 3)
        for number in reversed(range(len(starts))):
            parts = (t[number * m : (number + 1) * m] for t in (*timed, *grads, dy))
            u, delta, B, C, du, ddelta, dB, dC, dy_ = parts
            states = chunk.states(u, delta, A, B, starts[number])
            g, carry = chunk.adjoints(dy_, C, carry)
            torch.matmul(states, dy_[..., None], out=dC[..., None])
            torch.matmul(g, (delta * u)[..., None], out=dB[..., None])
            entered = torch.matmul(B[:, :, None], g)[:, :, 0]
            torch.mul(entered, delta, out=du)
            # The exponent delta A gets g_t h_(t-1) e^(delta A).
            g *= chunk.whole[0, : len(u)]
            g[0] *= starts[number]
            g[1:] *= states[:-1]
            dA += torch.mul(g, delta[:, :, None], out=states).sum((0, 1))
            torch.add(g.mul_(A).sum(-2), entered * u, out=ddelta)
        du, ddelta, dB, dC = (t.transpose(0, 1) for t in grads)
        return du, ddelta, dA.mT, dB, dC, carry.mT, None


# One decay a token for the whole state: linear attention that forgets


def _check_decay(q: Tensor, k: Tensor, v: Tensor, decay: Tensor, state: Tensor | None) -> None:
    lead = q.shape[:-1]
    check_shape("k", k, tuple(q.shape), q)
    check_shape("v", v, (*lead, v.shape[-1]), q)
    check_shape("decay", decay, tuple(lead), q)


def _check_memory(state: Tensor | None, wanted: tuple[int, ...]) -> None:
    if state is not None and tuple(state.shape) != wanted:
        raise ValueError(f"state must have shape {wanted}, got {tuple(state.shape)}")


def decayed_step(
    state: Float[Tensor, "... d d_v"] | None,
    q: Float[Tensor, "... d"],
    k: Float[Tensor, "... d"],
    v: Float[Tensor, "... d_v"],
    decay: Float[Tensor, "..."],
) -> tuple[Float[Tensor, "... d_v"], Float[Tensor, "... d d_v"]]:
    """One token of (16.5): S_t = gamma_t S_(t-1) + k_t v_t^T, y_t = S_t^T q_t. None is the state before the first.

    Raises:
        ValueError: shapes, dtypes or devices do not belong together.
    """
    _check_decay(q, k, v, decay, state)
    _check_memory(state, (*q.shape, v.shape[-1]))
    new = k[..., :, None] * v[..., None, :]
    state = new if state is None else decay[..., None, None] * state + new
    return (q[..., None, :] @ state)[..., 0, :], state


def decayed_attention_loop(
    q: Float[Tensor, "... length d"],
    k: Float[Tensor, "... length d"],
    v: Float[Tensor, "... length d_v"],
    decay: Float[Tensor, "... length"],
) -> Float[Tensor, "... length d_v"]:
    """(16.5) token by token, to be read: `decayed_attention` gives the same and is faster.

    Raises:
        ValueError: a sequence is empty or not finite, or shapes, dtypes or devices do not belong together.
    """
    check_sequence("v", v)
    state, outputs = None, []
    for q_t, k_t, v_t, decay_t in zip(*(t.unbind(-2) for t in (q, k, v)), decay.unbind(-1), strict=True):
        y_t, state = decayed_step(state, q_t, k_t, v_t, decay_t)
        outputs.append(y_t)
    return torch.stack(outputs, -2)


def decayed_attention(
    q: Float[Tensor, "... length d"],
    k: Float[Tensor, "... length d"],
    v: Float[Tensor, "... length d_v"],
    decay: Float[Tensor, "... length"],
    *,
    state: Float[Tensor, "... d d_v"] | None = None,
    chunk_size: int = 64,
) -> tuple[Float[Tensor, "... length d_v"], Float[Tensor, "... d d_v"]]:
    """y_i = sum_(j <= i) gamma_(j+1) ... gamma_i (q_i.k_j) v_j (16.6): outputs and the last state.

    Within a chunk by a masked product of matrices, between chunks by the state. With all decays 1 it is causal
    `linear_attention` with the identity for a feature map and without a denominator. Gradients are by hand, with respect
    to all inputs and the first state; they cannot be differentiated again. Half precision is summed in float32.

    Shapes: any leading dimensions, the same in all. Ranges: `decay` from 0, which forgets everything, to 1.

    Raises:
        ValueError: a sequence is empty or not finite, `chunk_size` is below 1, or shapes, dtypes or devices do not
            belong together.
    Source: Dao and Gu 2024, arXiv:2405.21060 (Mamba-2).
    """
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        check_sequence(name, tensor)
    check_sequence("decay", decay, dim=-1)
    _check_decay(q, k, v, decay, state)
    _check_memory(state, (*q.shape[:-2], q.shape[-1], v.shape[-1]))
    check_whole(1, chunk_size=chunk_size)
    dtype, lead, length = torch.promote_types(q.dtype, torch.float32), q.shape[:-2], q.shape[-2]
    if state is None:
        state = q.new_zeros(*lead, q.shape[-1], v.shape[-1], dtype=dtype)
    tokens = (t.to(dtype).reshape(-1, *t.shape[-2:]) for t in (q, k, v))
    start = state.to(dtype).reshape(-1, *state.shape[-2:])
    y, last = decayed_sums(*tokens, decay.reshape(-1, length), start, size=chunk_size)
    y = y.reshape(*lead, length, v.shape[-1]).to(v.dtype)
    return y, last.reshape(*lead, *last.shape[-2:])
