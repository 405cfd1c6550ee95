"""Recurrent networks: a loop forward, an affine recursion backward, and what a gradient is after many steps (lesson 14).

Time comes first: inputs are (time, batch, features), states (time, batch, units), as in torch.nn without
`batch_first`. Of each network two forms stand here. The one to be read is the equation in a loop, with autograd's
gradients. The other one computes all input products at once, goes back through time by hand, and collects the
gradient of every weight in one product of matrices; it cannot be differentiated twice.
"""

import torch
from jaxtyping import Float
from torch import Tensor

_SLOPES = {
    # The slope of each function, by what it returned: the backward pass needs no inputs.
    "tanh": (torch.tanh, lambda h: 1 - h * h),
    "relu": (torch.relu, lambda h: (h > 0).to(h.dtype)),
    "identity": (lambda a: a, torch.ones_like),
}
_BACK_ = {
    # gradient * slope, written to `out` in one operation.
    "tanh": lambda g, h, out: torch.ops.aten.tanh_backward.grad_input(g, h, grad_input=out),
    "relu": lambda g, h, out: torch.ops.aten.threshold_backward.grad_input(g, h, 0, grad_input=out),
    "identity": lambda g, h, out: out.copy_(g),
}
RESETS = ("after", "before")


def _check_sequence(x: Tensor, h0: Tensor | None, weight_ih: Tensor, weight_hh: Tensor, gates: int) -> Tensor:
    """Refuse what does not belong together; return the first state."""
    if x.ndim != 3 or not x.shape[0]:
        raise ValueError(
            f"x must have shape (time, batch, features) with at least one step, got {tuple(x.shape)}"
        )
    if not x.is_floating_point():
        raise ValueError(f"x must hold floating-point numbers, got {x.dtype}")
    units = weight_hh.shape[-1]
    for name, weight, columns in (("weight_ih", weight_ih, x.shape[2]), ("weight_hh", weight_hh, units)):
        if tuple(weight.shape) != (gates * units, columns):
            raise ValueError(
                f"{name} must have shape {(gates * units, columns)} for {units} units and {x.shape[2]} features, "
                f"got {tuple(weight.shape)}"
            )
    h0 = x.new_zeros(x.shape[1], units) if h0 is None else h0
    if tuple(h0.shape) != (x.shape[1], units):
        raise ValueError(f"h0 must have shape (batch, units) = {(x.shape[1], units)}, got {tuple(h0.shape)}")
    _check_alike(x, h0=h0, weight_ih=weight_ih, weight_hh=weight_hh)
    _check_finite(x=x, h0=h0)
    return h0


def _check_bias(x: Tensor, size: int, **biases: Tensor | None) -> None:
    for name, bias in biases.items():
        if bias is not None and tuple(bias.shape) != (size,):
            raise ValueError(f"{name} must have one entry for each of {size} rows, got {tuple(bias.shape)}")
    _check_alike(x, **{name: bias for name, bias in biases.items() if bias is not None})


def _check_alike(x: Tensor, **others: Tensor) -> None:
    for name, tensor in others.items():
        if (tensor.dtype, tensor.device) != (x.dtype, x.device):
            raise ValueError(
                f"{name} must share dtype and device with x, {x.dtype} on {x.device}, "
                f"got {tensor.dtype} on {tensor.device}"
            )


def _check_finite(**tensors: Tensor) -> None:
    """On a CPU only: elsewhere looking at a value would make every step wait for the device."""
    for name, tensor in tensors.items():
        # NaN and infinity survive a sum, which costs a twentieth of looking at every entry; so does an overflow.
        if tensor.device.type != "cpu" or bool(tensor.detach().sum().isfinite()):
            continue
        if not bool(tensor.isfinite().all()):
            raise ValueError(
                f"{name} must be finite, got {int((~tensor.isfinite()).sum())} entries that are not"
            )


def _check_square(weight_hh: Tensor) -> None:
    if weight_hh.ndim != 2 or weight_hh.shape[0] != weight_hh.shape[1] or not weight_hh.shape[0]:
        raise ValueError(f"weight_hh must be a square matrix, got shape {tuple(weight_hh.shape)}")
    _check_finite(weight_hh=weight_hh)


def _check_kind(name: str, value: str, allowed) -> None:
    if value not in allowed:
        raise ValueError(f"{name} must be one of {list(allowed)}, got {value!r}")


# The simple recurrent network


def rnn_by_steps(
    x: Float[Tensor, "time batch features"],
    weight_ih: Float[Tensor, "units _"],
    weight_hh: Float[Tensor, "units units"],
    bias: Float[Tensor, "_"] | None = None,
    h0: Float[Tensor, "_ _"] | None = None,
    *,
    nonlinearity: str = "tanh",
) -> Float[Tensor, "time batch units"]:
    """h_t = phi(W_h h_(t-1) + W_x x_t + b) (14.1), to be read: `rnn` gives the same and is faster.

    Shapes: `weight_ih` is W_x, units x features; `weight_hh` is W_h; `h0` is the state before the first input, 0
    where it is left out.
    Ranges: `nonlinearity` is "tanh", "relu" or "identity".

    Raises:
        ValueError: there is no step, shapes, dtypes or devices do not belong together, or an input is not finite.
    """
    h, states = _check_rnn(x, weight_ih, weight_hh, bias, h0, nonlinearity), []
    phi = _SLOPES[nonlinearity][0]
    for x_t in x.unbind():
        h = phi(h @ weight_hh.T + x_t @ weight_ih.T + (0 if bias is None else bias))
        states.append(h)
    return torch.stack(states)


def _check_rnn(x, weight_ih, weight_hh, bias, h0, nonlinearity) -> Tensor:
    _check_kind("nonlinearity", nonlinearity, _SLOPES)
    h0 = _check_sequence(x, h0, weight_ih, weight_hh, 1)
    _check_bias(x, weight_hh.shape[0], bias=bias)
    return h0


def rnn(
    x: Float[Tensor, "time batch features"],
    weight_ih: Float[Tensor, "units _"],
    weight_hh: Float[Tensor, "units units"],
    bias: Float[Tensor, "_"] | None = None,
    h0: Float[Tensor, "_ _"] | None = None,
    *,
    nonlinearity: str = "tanh",
) -> Float[Tensor, "time batch units"]:
    """h_t = phi(W_h h_(t-1) + W_x x_t + b) (14.1), with the gradients (14.3) and (14.4) by hand.

    W_x x_t + b is one product for all steps. Backward, the gradients at the sums follow one from the other; those of
    the weights are then one product each, with time and batch as one axis.
    Shapes and ranges: those of `rnn_by_steps`. The bias is the sum of the two that torch.nn.RNN keeps.

    Raises:
        ValueError: there is no step, shapes, dtypes or devices do not belong together, or an input is not finite.
    """
    h0 = _check_rnn(x, weight_ih, weight_hh, bias, h0, nonlinearity)
    return _Rnn.apply(x, weight_ih, weight_hh, bias, h0, nonlinearity)


def state_deltas(
    states: Float[Tensor, "time batch units"],
    upstream: Float[Tensor, "_ _ _"],
    weight_hh: Float[Tensor, "_ _"],
    *,
    nonlinearity: str = "tanh",
) -> Float[Tensor, "time batch units"]:
    """delta_t = phi'(a_t) * (g_t + W_h^T delta_(t+1)) (14.3), from the last step to the first.

    delta_t is the gradient of the loss with respect to the sum a_t in front of phi; g_t, `upstream`, is what reaches
    h_t directly, not through later states. States are what `rnn` returned. The result carries no gradient itself.

    Raises:
        ValueError: shapes, dtypes or devices do not belong together, or there is no step.
    """
    _check_kind("nonlinearity", nonlinearity, _SLOPES)
    if states.ndim != 3 or not states.shape[0] or states.shape != upstream.shape:
        raise ValueError(
            f"states and upstream must have the same shape (time, batch, units) with at least one step, "
            f"got {tuple(states.shape)} and {tuple(upstream.shape)}"
        )
    if tuple(weight_hh.shape) != (states.shape[2],) * 2:
        raise ValueError(
            f"weight_hh must have shape {(states.shape[2],) * 2} for {states.shape[2]} units, "
            f"got {tuple(weight_hh.shape)}"
        )
    _check_alike(states, upstream=upstream, weight_hh=weight_hh)
    return _deltas(states.detach(), upstream.detach(), weight_hh.detach(), nonlinearity)


def _deltas(states: Tensor, upstream: Tensor, weight_hh: Tensor, nonlinearity: str) -> Tensor:
    deltas, later, back_ = torch.empty_like(states), None, _BACK_[nonlinearity]
    for h, g, delta in zip(*(t.unbind()[::-1] for t in (states, upstream, deltas)), strict=True):
        arriving = g if later is None else torch.addmm(g, later, weight_hh, out=delta)
        later = back_(arriving, h, delta)
    return deltas


class _Rnn(torch.autograd.Function):
    """Equation (14.1), and its gradients by hand."""

    @staticmethod
    def forward(ctx, x, weight_ih, weight_hh, bias, h0, nonlinearity):
        phi_ = {"tanh": torch.tanh_, "relu": torch.relu_, "identity": lambda a: a}[nonlinearity]
        states, h, turned = x.new_empty(len(x), *h0.shape), h0, weight_hh.T.contiguous()
        # Views of all steps at once: indexing x[t] in the loop would cost more than the arithmetic.
        for a, h_t in zip(_input_products(x, weight_ih, bias).unbind(), states.unbind(), strict=True):
            h = phi_(torch.addmm(a, h, turned, out=h_t))
        ctx.save_for_backward(x, weight_ih, weight_hh, h0, states)
        ctx.nonlinearity = nonlinearity
        return states

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, g):
        x, weight_ih, weight_hh, h0, states = ctx.saved_tensors
        deltas = _deltas(states, g, weight_hh, ctx.nonlinearity)
        flat, need = deltas.flatten(0, 1), ctx.needs_input_grad
        after, before = deltas[1:].flatten(0, 1), states[:-1].flatten(0, 1)
        return (
            (flat @ weight_ih).view_as(x) if need[0] else None,
            flat.T @ x.flatten(0, 1) if need[1] else None,
            torch.addmm(deltas[0].T @ h0, after.T, before) if need[2] else None,
            flat.sum(0) if need[3] else None,
            deltas[0] @ weight_hh if need[4] else None,
            None,
        )


def _input_products(x: Tensor, weight_ih: Tensor, bias: Tensor | None) -> Tensor:
    return torch.nn.functional.linear(x, weight_ih, bias)


# Affine maps and their scan


def affine_scan(
    matrices: Float[Tensor, "time units units"], offsets: Float[Tensor, "time units"]
) -> Float[Tensor, "time units"]:
    """s_t = A_t s_(t-1) + c_t with s_0 = 0, by pairs of affine maps (14.11), in log2(time) rounds.

    (A', c') after (A, c) is (A' A, A' c + c'). Each round composes every map with the one 1, 2, 4, ... places before
    it. All maps of a round are independent of each other: few rounds, more work than the loop. For a backward pass,
    turn time round.

    Raises:
        ValueError: there is no step, or shapes do not belong together.
    """
    time, units = offsets.shape
    if not time or tuple(matrices.shape) != (time, units, units):
        raise ValueError(
            f"matrices must have shape (time, units, units) and offsets (time, units) with at least one step, "
            f"got {tuple(matrices.shape)} and {tuple(offsets.shape)}"
        )
    step = 1
    while step < time:
        later, earlier = matrices[step:], (matrices[:-step], offsets[:-step])
        moved = offsets[step:] + (later @ earlier[1][..., None])[..., 0]
        offsets = torch.cat([offsets[:step], moved])
        matrices = torch.cat([matrices[:step], later @ earlier[0]])
        step *= 2
    return offsets


# Gated networks


def gru_by_steps(
    x: Float[Tensor, "time batch features"],
    weight_ih: Float[Tensor, "gates _"],
    weight_hh: Float[Tensor, "gates units"],
    bias_ih: Float[Tensor, "_"] | None = None,
    bias_hh: Float[Tensor, "_"] | None = None,
    h0: Float[Tensor, "_ _"] | None = None,
    *,
    reset: str = "after",
) -> Float[Tensor, "time batch units"]:
    """h_t = (1 - z) * n + z * h_(t-1) (14.9), to be read: `gru` gives the same and is faster.

    r and z are sigmoids of W_x x_t + W_h h_(t-1) + b. With `reset="after"` n = tanh(W_x x_t + b_x + r * (W_h h_(t-1)
    + b_h)), as torch.nn.GRU has it; with "before" n = tanh(W_x x_t + b_x + W_h (r * h_(t-1)) + b_h).
    Shapes: `weight_ih` is 3 units x features, `weight_hh` 3 units x units, each bias 3 units: rows for r, z, n in this
    order, as in torch.

    Raises:
        ValueError: there is no step, shapes, dtypes or devices do not belong together, or an input is not finite.

    Source: Cho et al. 2014, arXiv:1406.1078.
    """
    h, b_x, b_h = _check_gru(x, weight_ih, weight_hh, bias_ih, bias_hh, h0, reset)
    (u_r, u_z, u_n), (b_r, b_z, b_n), states = weight_hh.chunk(3), b_h.chunk(3), []
    for x_t in x.unbind():
        s_r, s_z, s_n = (x_t @ weight_ih.T + b_x).chunk(3, dim=-1)
        r, z = torch.sigmoid(s_r + h @ u_r.T + b_r), torch.sigmoid(s_z + h @ u_z.T + b_z)
        product = r * (h @ u_n.T + b_n) if reset == "after" else (r * h) @ u_n.T + b_n
        h = (1 - z) * torch.tanh(s_n + product) + z * h
        states.append(h)
    return torch.stack(states)


def _check_gru(x, weight_ih, weight_hh, bias_ih, bias_hh, h0, reset) -> tuple[Tensor, Tensor, Tensor]:
    _check_kind("reset", reset, RESETS)
    h0 = _check_sequence(x, h0, weight_ih, weight_hh, 3)
    _check_bias(x, weight_hh.shape[0], bias_ih=bias_ih, bias_hh=bias_hh)
    zeros = x.new_zeros(weight_hh.shape[0])
    return h0, zeros if bias_ih is None else bias_ih, zeros if bias_hh is None else bias_hh


def gru(
    x: Float[Tensor, "time batch features"],
    weight_ih: Float[Tensor, "gates _"],
    weight_hh: Float[Tensor, "gates units"],
    bias_ih: Float[Tensor, "_"] | None = None,
    bias_hh: Float[Tensor, "_"] | None = None,
    h0: Float[Tensor, "_ _"] | None = None,
    *,
    reset: str = "after",
) -> Float[Tensor, "time batch units"]:
    """h_t = (1 - z) * n + z * h_(t-1) (14.9), with gradients by hand.

    Backward, what arrives at h_t is multiplied by factors that the forward pass has fixed: they are computed for all
    steps at once, and a step back is one multiplication and one or two products of matrices.
    Shapes and ranges: those of `gru_by_steps`. With `reset="after"` weights and biases are those of torch.nn.GRU.

    Raises:
        ValueError: there is no step, shapes, dtypes or devices do not belong together, or an input is not finite.

    Source: Cho et al. 2014, arXiv:1406.1078.
    """
    h0, bias_ih, bias_hh = _check_gru(x, weight_ih, weight_hh, bias_ih, bias_hh, h0, reset)
    kind = _GruAfter if reset == "after" else _GruBefore
    return kind.apply(x, weight_ih, weight_hh, bias_ih, bias_hh, h0)


class _GruAfter(torch.autograd.Function):
    """The reset gate multiplies the product W_h h: one product of matrices a step, forward and backward."""

    @staticmethod
    def forward(ctx, x, weight_ih, weight_hh, bias_ih, bias_hh, h0):
        (time, batch, _), units = x.shape, h0.shape[1]
        # The recurrent bias of r and z joins that of the input; that of n stays behind the reset gate.
        split = [2 * units, units]
        joined = bias_ih.clone()
        joined[: 2 * units] += bias_hh[: 2 * units]
        sums = _input_products(x, weight_ih, joined)
        gates, news, products = (x.new_empty(time, batch, n) for n in (2 * units, units, units))
        states = x.new_empty(time + 1, *h0.shape)
        states[0] = h0
        turned = [w.T.contiguous() for w in weight_hh.split(split)]
        bias_n = bias_hh[2 * units :]
        h, *after = states.unbind()
        rows = (
            s.unbind() for s in (*sums.split(split, dim=2), gates, *gates.chunk(2, dim=2), news, products)
        )
        for s_rz, s_n, rz, r, z, n, p, h_t in zip(*rows, after, strict=True):
            torch.sigmoid_(torch.addmm(s_rz, h, turned[0], out=rz))
            torch.addmm(bias_n, h, turned[1], out=p)
            torch.tanh_(torch.addcmul(s_n, r, p, out=n))
            h = torch.lerp(n, h, z, out=h_t)
        ctx.save_for_backward(x, weight_ih, weight_hh, gates, news, products, states)
        return states[1:].clone()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, g):
        x, weight_ih, weight_hh, gates, n, products, states = ctx.saved_tensors
        (r, z), before = gates.chunk(2, dim=2), states[:-1]
        to_n = (1 - z) * (1 - n * n)
        factors = torch.stack([to_n * products * r * (1 - r), (before - n) * z * (1 - z), to_n * r], dim=2)
        arriving, pulled = torch.empty_like(g), torch.empty_like(factors)
        rows = (t.unbind()[::-1] for t in (g, factors, z, arriving, pulled, pulled.flatten(2)))
        later = None
        for g_t, factor, z_t, dh, d, flat in zip(*rows, strict=True):
            dh.copy_(g_t) if later is None else torch.add(g_t, later, out=dh)
            torch.mul(dh[:, None], factor, out=d)
            later = torch.addcmul(flat @ weight_hh, dh, z_t)
        at_h = pulled.flatten(0, 1).flatten(1)
        at_x = at_h.clone()
        torch.mul(arriving, to_n, out=at_x.view(*g.shape[:2], 3, -1)[:, :, 2])
        return (*_gru_gradients(x, weight_ih, before, at_x, at_h), later)


def _gru_gradients(x, weight_ih, before, at_x, at_h) -> tuple[Tensor, ...]:
    """Gradients of the inputs, both weights and both biases, from those of the sums on the two sides."""
    return (
        (at_x @ weight_ih).view_as(x),
        at_x.T @ x.flatten(0, 1),
        at_h.T @ before.flatten(0, 1),
        at_x.sum(0),
        at_h.sum(0),
    )


class _GruBefore(torch.autograd.Function):
    """The reset gate multiplies the state: W_n r * h has to wait for r, so that a step takes two products."""

    @staticmethod
    def forward(ctx, x, weight_ih, weight_hh, bias_ih, bias_hh, h0):
        (time, batch, _), units = x.shape, h0.shape[1]
        split = [2 * units, units]
        sums = _input_products(x, weight_ih, bias_ih + bias_hh)
        gates, news = (x.new_empty(time, batch, n) for n in (2 * units, units))
        states = x.new_empty(time + 1, *h0.shape)
        states[0] = h0
        turned = [w.T.contiguous() for w in weight_hh.split(split)]
        h, *after = states.unbind()
        rows = (s.unbind() for s in (*sums.split(split, dim=2), gates, *gates.chunk(2, dim=2), news))
        for s_rz, s_n, rz, r, z, n, h_t in zip(*rows, after, strict=True):
            torch.sigmoid_(torch.addmm(s_rz, h, turned[0], out=rz))
            torch.tanh_(torch.addmm(s_n, r * h, turned[1], out=n))
            h = torch.lerp(n, h, z, out=h_t)
        ctx.save_for_backward(x, weight_ih, weight_hh, gates, news, states)
        return states[1:].clone()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, g):
        x, weight_ih, weight_hh, gates, n, states = ctx.saved_tensors
        (r, z), before = gates.chunk(2, dim=2), states[:-1]
        weight_rz, weight_n = weight_hh.split([2 * n.shape[2], n.shape[2]])
        to_n, to_z, to_r = (1 - z) * (1 - n * n), (before - n) * z * (1 - z), before * r * (1 - r)
        pulled, later = x.new_empty(*g.shape[:2], 3, g.shape[2]), 0
        rows = (t.unbind()[::-1] for t in (g, to_n, to_z, to_r, r, z, pulled))
        for g_t, f_n, f_z, f_r, r_t, z_t, d in zip(*rows, strict=True):
            dh = g_t + later
            torch.mul(dh, f_n, out=d[:, 2])
            torch.mul(dh, f_z, out=d[:, 1])
            at_product = d[:, 2] @ weight_n  # at r * h
            torch.mul(at_product, f_r, out=d[:, 0])
            later = dh * z_t + at_product * r_t + d[:, :2].flatten(1) @ weight_rz
        at_x, units = pulled.flatten(0, 1).flatten(1), n.shape[2]
        dx, dw_ih, dw_hh, db, _ = _gru_gradients(x, weight_ih, before, at_x, at_x)
        dw_hh[2 * units :] = at_x[:, 2 * units :].T @ (r * before).flatten(0, 1)
        return dx, dw_ih, dw_hh, db, db.clone(), later


# A gate without the state: a scan of numbers


def gated_scan(
    keep: Float[Tensor, "time batch units"],
    add: Float[Tensor, "_ _ _"],
    h0: Float[Tensor, "_ _"] | None = None,
) -> Float[Tensor, "time batch units"]:
    """h_t = keep_t * h_(t-1) + add_t for each unit alone, with gradients by hand.

    Few numbers a step are computed in blocks: all blocks run at once from 0, then the states at their ends follow one
    from the other, and each block adds what its first state becomes. That is about 2 sqrt(time) operations in the
    place of time, with three times the arithmetic; many numbers a step are cheaper in the plain loop. Nothing is
    divided by a product of gates, so that gates may be 0.

    Raises:
        ValueError: there is no step, shapes, dtypes or devices do not belong together, or an input is not finite.
    """
    if keep.ndim != 3 or not keep.shape[0] or keep.shape != add.shape:
        raise ValueError(
            f"keep and add must have the same shape (time, batch, units) with at least one step, "
            f"got {tuple(keep.shape)} and {tuple(add.shape)}"
        )
    h0 = torch.zeros_like(add[0]) if h0 is None else h0
    if h0.shape != add.shape[1:]:
        raise ValueError(f"h0 must have shape {tuple(add.shape[1:])}, got {tuple(h0.shape)}")
    _check_alike(keep, add=add, h0=h0)
    _check_finite(keep=keep, add=add, h0=h0)
    return _GatedScan.apply(keep, add, h0)


BLOCKS_BELOW = 2048  # numbers a step; measured, see `make bench recurrent`


def _scan(keep: Tensor, add: Tensor, h: Tensor, *, backward: bool = False) -> Tensor:
    """The recursion from h on; backward in time, d_t = keep_(t+1) d_(t+1) + add_t, with h behind the last step."""
    time, states = len(keep), torch.empty_like(add)
    size = int(time**0.5) if keep[0].numel() < BLOCKS_BELOW else 1
    if backward and size > 3:
        return _scan(torch.cat([h[None], keep[1:].flip(0)]), add.flip(0), h).flip(0)
    if size > 3:
        done = time // size * size
        shape = (time // size, size, *keep.shape[1:])
        blocks, grown = states[:done].view(shape), keep[:done].reshape(shape).cumprod(1)
        parts = (t.unbind(1) for t in (keep[:done].reshape(shape), add[:done].reshape(shape), blocks))
        last = torch.zeros_like(blocks[:, 0])
        for k, a, out in zip(*parts, strict=True):
            last = torch.addcmul(a, k, last, out=out)
        starts = torch.empty_like(last)
        for start, k, own in zip(starts.unbind(), grown[:, -1].unbind(), last.unbind(), strict=True):
            start.copy_(h)
            h = torch.addcmul(own, k, h)
        blocks.addcmul_(grown, starts[:, None])
    else:
        done = 0
    keeps, adds, out = (t[done:].unbind() for t in (keep, add, states))
    if backward:
        keeps, adds, out = (h, *keeps[:0:-1]), adds[::-1], out[::-1]
    for k, a, h_t in zip(keeps, adds, out, strict=True):
        h = torch.addcmul(a, k, h, out=h_t)
    return states


class _GatedScan(torch.autograd.Function):
    """The scan, and its backward pass: the same scan with time turned round."""

    @staticmethod
    def forward(ctx, keep, add, h0):
        states = _scan(keep, add, h0)
        ctx.save_for_backward(keep, states, h0)
        return states

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, g):
        keep, states, h0 = ctx.saved_tensors
        deltas, at_keep = _scan(keep, g, torch.zeros_like(h0), backward=True), torch.empty_like(keep)
        torch.mul(deltas[0], h0, out=at_keep[0])
        torch.mul(deltas[1:], states[:-1], out=at_keep[1:])
        return at_keep, deltas, deltas[0] * keep[0]


def min_gru(
    x: Float[Tensor, "time batch features"],
    weight_z: Float[Tensor, "units _"],
    weight_n: Float[Tensor, "units _"],
    bias_z: Float[Tensor, "_"] | None = None,
    bias_n: Float[Tensor, "_"] | None = None,
    h0: Float[Tensor, "_ _"] | None = None,
) -> Float[Tensor, "time batch units"]:
    """h_t = (1 - z_t) * h_(t-1) + z_t * n_t (14.10), with z_t and n_t from the input alone, by `gated_scan`.

    z = sigmoid(W_z x + b_z) and n = W_n x + b_n do not wait for the state: both are one product for all steps.
    Shapes: both weights are units x features.

    Raises:
        ValueError: there is no step, shapes, dtypes or devices do not belong together, or an input is not finite.

    Source: Feng et al. 2024, arXiv:2410.01201; there z is the share of the new value.
    """
    if x.ndim != 3 or not x.shape[0]:
        raise ValueError(
            f"x must have shape (time, batch, features) with at least one step, got {tuple(x.shape)}"
        )
    if weight_z.shape != weight_n.shape or weight_z.shape[1] != x.shape[2]:
        raise ValueError(
            f"weight_z and weight_n must both have shape (units, {x.shape[2]}), "
            f"got {tuple(weight_z.shape)} and {tuple(weight_n.shape)}"
        )
    _check_bias(x, weight_z.shape[0], bias_z=bias_z, bias_n=bias_n)
    _check_alike(x, weight_z=weight_z, weight_n=weight_n)
    _check_finite(x=x)
    sums, n = _input_products(x, weight_z, bias_z), _input_products(x, weight_n, bias_n)
    return gated_scan(torch.sigmoid(-sums), torch.sigmoid(sums) * n, h0)


# Gradients by distance


def spectral_radius(weight_hh: Float[Tensor, "units units"]) -> Float[Tensor, ""]:
    """rho(W) = max |lambda_i|: the factor of a power of W for one more step, in the long run (14.6).

    Raises:
        ValueError: the matrix is not square, or not finite.
    """
    _check_square(weight_hh)
    return torch.linalg.eigvals(weight_hh).abs().amax()


def power_norms(weight_hh: Float[Tensor, "units units"], distance: int) -> Float[Tensor, "steps"]:
    """|W^k|_2 for k = 0, ..., `distance`: the most by which a linear network changes a gradient over k steps (14.6).

    Raises:
        ValueError: the matrix is not square or not finite, or the distance is below 0.
    """
    _check_square(weight_hh)
    if not isinstance(distance, int) or distance < 0:
        raise ValueError(f"distance must be a whole number of at least 0, got {distance!r}")
    power, norms = torch.eye(len(weight_hh), dtype=weight_hh.dtype, device=weight_hh.device), []
    for _ in range(distance + 1):
        norms.append(torch.linalg.matrix_norm(power, ord=2))
        power = power @ weight_hh
    return torch.stack(norms)


def gradient_by_distance(
    states: Float[Tensor, "time batch units"],
    weight_hh: Float[Tensor, "_ _"],
    *,
    nonlinearity: str = "tanh",
) -> Float[Tensor, "time batch"]:
    """|d h_T / d h_(T-k)|_2 for k = 0, ..., T - 1 and each sequence, as the product of the steps' Jacobians (14.5).

    One step has the Jacobian diag(phi'(a_t)) W_h; the slopes come from the states, which `rnn` returned.

    Raises:
        ValueError: shapes do not belong together, there is no step, or a value is not finite.
    """
    _check_kind("nonlinearity", nonlinearity, _SLOPES)
    _check_square(weight_hh)
    if states.ndim != 3 or not states.shape[0] or states.shape[2] != len(weight_hh):
        raise ValueError(
            f"states must have shape (time, batch, {len(weight_hh)}) with at least one step, "
            f"got {tuple(states.shape)}"
        )
    _check_alike(states, weight_hh=weight_hh)
    _check_finite(states=states)
    slopes = _SLOPES[nonlinearity][1](states)
    product = torch.eye(len(weight_hh), dtype=states.dtype, device=states.device).expand(
        states.shape[1], -1, -1
    )
    norms = [torch.linalg.matrix_norm(product, ord=2)]
    for slope in slopes[1:].flip(0).unbind():
        product = (product * slope[:, None]) @ weight_hh
        norms.append(torch.linalg.matrix_norm(product, ord=2))
    return torch.stack(norms)
