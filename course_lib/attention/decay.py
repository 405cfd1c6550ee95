"""Sums that fade: each token multiplies what came before by a decay, in chunks, for attention of lessons 15 and 19.

S_t = gamma_t S_(t-1) + k_t v_t^T is the one recurrence of retention, of Mamba-2 and of gated linear attention with a
scalar gate. Nothing here divides by a decay, so that decays of 0 are as good as any other.
"""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import pad

SIZE = 64  # tokens that meet each other in one product of matrices


def decay_weights(decay: Tensor | float | None, k: Tensor, *, causal: bool) -> Tensor | None:
    """Bring a decay to one number a token, (..., S), for keys (..., S, D); None stays None.

    Shapes: a number; one for each of the leading dimensions, or fewer that broadcast; or one a token, (..., S).
    Ranges: 0 to 1, which is checked for numbers only: looking into a tensor would stop a GPU at every step.

    Raises:
        ValueError: `causal` is False, the shape fits neither, or a number lies outside its range.
    """
    if decay is None:
        return None
    if not causal:
        raise ValueError("decay needs causal=True: without an order of the tokens nothing is older")
    lead, length = k.shape[:-2], k.shape[-2]
    if not isinstance(decay, Tensor):
        if not 0 <= decay <= 1:
            raise ValueError(f"decay must lie between 0 and 1, got {decay}")
        return k.new_full((1,), decay, dtype=torch.promote_types(k.dtype, torch.float32)).expand(
            *lead, length
        )
    per_token = decay if decay.ndim > len(lead) else decay[..., None]
    if decay.device != k.device or not decay.is_floating_point():
        raise ValueError(
            f"decay must be floating point on {k.device} as the keys are, got {decay.dtype} on {decay.device}"
        )
    try:
        return per_token.expand(*lead, length)
    except RuntimeError:
        raise ValueError(
            f"decay must be a number, or broadcast to {tuple(lead)}, one for each of the leading dimensions, or to "
            f"{(*lead, length)}, one a token; got {tuple(decay.shape)}"
        ) from None


def decay_mask(decay: Float[Tensor, "... length"]) -> Float[Tensor, "... length length"]:
    """M_ij = gamma_(j+1) ... gamma_i for j <= i, 1 on the diagonal and 0 above it (16.6): products, no quotients."""
    return _DecayMask.apply(decay)


def decay_mask_with_past(decay: Float[Tensor, "... length"]) -> Float[Tensor, "... longer longer"]:
    """The same with one more token before the first, which stands for all that came before it (row and column 0)."""
    return decay_mask(pad(decay, (1, 0), value=1.0))


class _DecayMask(torch.autograd.Function):
    """The mask, with a gradient that holds for decays of 0; torch's own for `cumprod` looks at values."""

    @staticmethod
    def forward(decay):
        size = decay.shape[-1]
        below = torch.ones(size, size, dtype=torch.bool, device=decay.device).tril(-1)
        return torch.where(below, decay[..., :, None], 1).cumprod(-2).tril()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, grad):
        # The decay of token s stands between every j < s and every i >= s: M_is grad_ij M_(s-1)j, summed.
        (mask,) = ctx.saved_tensors
        inside = ((mask.mT @ grad)[..., 1:, :] * mask[..., :-1, :]).sum(-1)
        return pad(inside, (1, 0))


def decayed_sums(
    q: Float[Tensor, "batch length d"],
    k: Float[Tensor, "batch length d"],
    v: Float[Tensor, "batch length d_v"],
    decay: Float[Tensor, "batch length"],
    state: Float[Tensor, "batch d d_v"],
    *,
    size: int = SIZE,
) -> tuple[Float[Tensor, "batch length d_v"], Float[Tensor, "batch d d_v"]]:
    """y_i = S_i^T q_i with S_i = gamma_i S_(i-1) + k_i v_i^T (16.5), (16.6), and the last S; `state` is the first.

    Within a chunk of `size` tokens by a masked product of matrices, between chunks by the state. Gradients are by hand,
    with respect to all inputs and the first state; they cannot be differentiated again.
    """
    length, size = q.shape[1], min(size, q.shape[1])
    more = -length % size  # keys of 0 and decays of 1 behind the end change nothing
    chunks = (pad(t, (0, 0, 0, more)).unflatten(1, (-1, size)) for t in (q, k, v))
    decays = pad(decay.to(q.dtype), (0, more), value=1.0).unflatten(1, (-1, size))
    y, last = _DecayedAttention.apply(*chunks, decays, state)
    return y.flatten(1, 2)[:, :length], last


class _DecayedAttention(torch.autograd.Function):
    """(16.6) on q, k, v (batch, chunks, m, d), decay (batch, chunks, m) and a state; gradients by hand."""

    @staticmethod
    def forward(ctx, q, k, v, decay, state):
        mask, whole = decay_mask(decay), decay.cumprod(-1)
        added = k.mT @ (v * mask[..., -1, :, None])  # v and dy have fewer columns than keys of many features
        starts = torch.empty_like(added)
        for number in range(q.shape[1]):
            starts[:, number] = state
            state = torch.addcmul(added[:, number], whole[:, number, -1, None, None], state)
        y = ((q @ k.mT) * mask) @ v + whole[..., None] * (q @ starts)
        ctx.save_for_backward(q, k, v, decay, mask, starts)
        return y, state

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dy, dstate):
        q, k, v, decay, mask, starts = ctx.saved_tensors
        whole, to_end = decay.cumprod(-1)[..., None], mask[..., -1, :, None]
        added, ends = q.mT @ (whole * dy), torch.empty_like(starts)
        for number in reversed(range(q.shape[1])):
            ends[:, number] = dstate  # what later chunks want from the state at the end of this one
            dstate = torch.addcmul(added[:, number], whole[:, number, -1, :, None], dstate)
        similar, wanted = q @ k.mT, dy @ v.mT
        into = wanted * mask
        read, written = dy @ starts.mT, v @ ends.mT
        dq = into @ k + whole * read
        dk = into.mT @ q + to_end * written
        dv = (similar * mask).mT @ dy + to_end * (k @ ends)
        # The decay of token s stands between every j < s and every i >= s: M_is E_ij M_(s-1)j, summed; the state at the
        # start is one more j before the chunk, that at the end one more i behind it.
        pairs = similar * wanted
        pairs[..., -1, :] += (k * written).sum(-1)
        first = (q * read).sum(-1)
        first[..., -1] += (starts * ends).sum((-2, -1))
        sums, first = mask.mT @ pairs, (mask.mT @ first[..., None])[..., 0]
        earlier = torch.cat([torch.ones_like(whole[..., :1, 0]), whole[..., :-1, 0]], -1)
        ddecay = first * earlier
        ddecay[..., 1:] += (sums[..., 1:, :] * mask[..., :-1, :]).sum(-1)
        return dq, dk, dv, ddecay, dstate
