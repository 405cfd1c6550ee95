"""What training computes fast: the losses of `sparse` and `stacked` with gradients written by hand.

Each kernel has the value and the gradients of the readable form, which tests check against autograd.
They are faster for three reasons.

- Of 8,192 features 32 are active in a row. Only the encoder has to look at all of them: the decoder
  reads 32 columns a row, and the gradients of both weights are products with a sparse matrix.
- Large products are taken in `compute_dtype`. bfloat16 takes half the time on hardware made for it; weights, their
  gradients' sums, the optimiser and the loss stay in float32, where small steps are not rounded away.
- The gradient is known on paper, so that intermediate results which autograd would keep or compute
  again (masks, broadcast norms, float32 copies) are never made.

For one row x, with c = x - b_d, residual e = x' - x and G = 2 e / N:

    dL/dW_d = G f^T,  dL/df = W_d^T G,  dL/dp = dL/df at active features,  dL/dW_e = dL/dp c^T,
    dL/db_e = dL/dp,  dL/db_d = G - W_e^T dL/dp,  each summed over rows.
"""

import warnings
from itertools import pairwise
from typing import NamedTuple

import torch
from jaxtyping import Float, Int, Real
from torch import Tensor
from torch.nn import functional

from course_lib.sae import memory

BLOCK, GROUP = 2048, 4
STRETCH, CACHE = 256, 2**21  # bytes


class SparseCode(NamedTuple):
    """The active features of a batch, row after row (compressed sparse rows).

    Row n holds the entries from offsets[n] to offsets[n + 1]: their features in `columns`, their values in
    `values`. `rows` says for each entry which row it belongs to.
    """

    values: Float[Tensor, " entries"]
    columns: Int[Tensor, " entries"]
    rows: Int[Tensor, " entries"]
    offsets: Int[Tensor, " rows_and_one"]


@torch.no_grad()
def topk_code(
    centred: Float[Tensor, "batch d_model"],
    encoder_weight: Float[Tensor, "features d_model"],
    encoder_bias: Float[Tensor, " features"],
    *,
    k: int,
    compute_dtype: torch.dtype,
) -> SparseCode:
    """The k largest entries of W_e c + b_e in each row, negative ones as 0. They carry no gradient.

    On the CPU by blocks of rows, which all use the same memory for their pre-activations.
    """
    low, weight, bias = (memory.converted(t, compute_dtype) for t in (centred, encoder_weight, encoder_bias))
    blocks = low.split(BLOCK if low.device.type == "cpu" else len(low))
    pre = memory.empty(len(blocks[0]), len(weight), like=low)
    found = [largest(torch.addmm(bias, block, weight.T, out=pre[: len(block)]), k) for block in blocks]
    values, columns = (torch.cat(parts) for parts in zip(*found, strict=True))
    return even_code(values.relu().to(centred.dtype), columns)


def even_code(values: Float[Tensor, "batch k"], columns: Int[Tensor, "batch k"]) -> SparseCode:
    """The code with k entries in each row."""
    n, k = columns.shape
    rows = torch.arange(n, device=columns.device).repeat_interleave(k)
    offsets = torch.arange(0, n * k + 1, k, device=columns.device)
    return SparseCode(values.flatten(), columns.flatten(), rows, offsets)


def largest(pre: Real[Tensor, "batch features"], k: int) -> tuple[Tensor, Tensor]:
    """Values and places of the k largest entries of each row, in any order.

    A tournament: the k largest entries are among the k groups with the largest maxima (a group that is not one
    of them has k entries above all of its own), and these maxima are found in the same way. Maxima are cheap.
    """
    n, features = pre.shape
    stride, rest = divmod(features, GROUP)
    if rest or stride < 2 * k or pre.device.type != "cpu":
        return pre.topk(k, dim=-1, sorted=False)
    # Group j holds the features j, j + stride, j + 2 stride, ...: maxima of whole stretches of memory.
    _, groups = largest(pre.view(n, GROUP, stride).amax(dim=1), k)
    members = torch.arange(0, features, stride, device=pre.device)[:, None] + groups[:, None, :]
    members = members.view(n, -1)
    values, places = pre.gather(1, members).topk(k, dim=-1, sorted=False)
    return values, members.gather(1, places)


def code_at(
    pre: Float[Tensor, "batch features"], places: Int[Tensor, " entries"], *, dtype: torch.dtype
) -> SparseCode:
    """The pre-activations at places of the flattened table, negative ones as 0, with values in `dtype`."""
    places = places.sort().values
    rows = places // pre.shape[1]
    offsets = torch.searchsorted(rows, torch.arange(len(pre) + 1, device=rows.device))
    return SparseCode(pre.flatten()[places].relu().to(dtype), places % pre.shape[1], rows, offsets)


def sparse_reconstruction(
    centred: Float[Tensor, "batch d_model"],
    code: SparseCode,
    *,
    encoder_weight: Float[Tensor, "features d_model"],
    encoder_bias: Float[Tensor, " features"],
    decoder_weight: Float[Tensor, "d_model features"],
    decoder_bias: Float[Tensor, " d_model"],
    compute_dtype: torch.dtype,
) -> Float[Tensor, ""]:
    """Mean squared length of W_d f - (x - b_d), with f = ReLU(W_e (x - b_d) + b_e) at the entries of `code` alone.

    `centred` is x - b_d without its gradient; the one in `decoder_bias` is found on both of its ways, through
    the decoder and through the encoder.
    """
    weights = encoder_weight, encoder_bias, decoder_weight, decoder_bias
    return _SparseReconstruction.apply(centred, None, code, 1, compute_dtype, *weights)[0].squeeze(0)


def nested_reconstruction(
    centred: Float[Tensor, "batch d_model"],
    code: SparseCode,
    *,
    prefixes: tuple[int, ...],
    encoder_weight: Float[Tensor, "features d_model"],
    encoder_bias: Float[Tensor, " features"],
    decoder_weight: Float[Tensor, "d_model features"],
    decoder_bias: Float[Tensor, " d_model"],
    compute_dtype: torch.dtype,
) -> tuple[Float[Tensor, " prefixes"], Float[Tensor, "batch d_model"]]:
    """`sparse_reconstruction` with the first m features alone, for every m in `prefixes`; and W_d f - (x - b_d).

    One pass: what each block between two prefixes writes is summed up from block to block, and on the way back
    the gradients are summed up in the other order. The error after the last prefix comes second and carries no
    gradient. `prefixes` rise; the last one is the number of features.
    """
    if len(prefixes) > 1:
        code = _by_block(code, prefixes, n_rows=len(centred))
    weights = encoder_weight, encoder_bias, decoder_weight, decoder_bias
    found, residual = _SparseReconstruction.apply(centred, None, code, len(prefixes), compute_dtype, *weights)
    return found, residual[-len(centred) :]


def residual_reconstruction(
    centred: Float[Tensor, "batch d_model"],
    target: Float[Tensor, "batch d_model"],
    code: SparseCode,
    *,
    encoder_weight: Float[Tensor, "features d_model"],
    encoder_bias: Float[Tensor, " features"],
    decoder_weight: Float[Tensor, "d_model features"],
    decoder_bias: Float[Tensor, " d_model"],
    compute_dtype: torch.dtype,
) -> Float[Tensor, ""]:
    """Mean squared length of W_d f - target, for a `target` without gradient, with f as in `sparse_reconstruction`.

    `decoder_bias` gets the gradient of its way through the encoder alone.
    """
    weights = encoder_weight, encoder_bias, decoder_weight, decoder_bias
    return _SparseReconstruction.apply(centred, target, code, 1, compute_dtype, *weights)[0].squeeze(0)


def _by_block(code: SparseCode, prefixes: tuple[int, ...], *, n_rows: int) -> SparseCode:
    """The entries of the first block of features, row after row, then those of the second, ...

    Entry (n, i) of block b is then in row b n_rows + n of a taller table.
    """
    # A tensor of the edges would have to be copied to a GPU, which waits for the copy at every step.
    block = sum((code.columns >= edge).long() for edge in prefixes[:-1])
    rows = block * n_rows + code.rows
    order = rows.argsort(stable=True)
    rows = rows[order]
    offsets = torch.searchsorted(rows, torch.arange(len(prefixes) * n_rows + 1, device=rows.device))
    return SparseCode(code.values[order], code.columns[order], rows, offsets)


class _SparseReconstruction(torch.autograd.Function):
    # With several blocks the code's rows are those of `_by_block`: every block has all rows of the batch.

    @staticmethod
    def forward(
        ctx, centred, target, code, blocks, dtype, encoder_weight, encoder_bias, decoder_weight, decoder_bias
    ):
        residual = _summed_rows(decoder_weight.T, code.columns, code.offsets[:-1], code.values)
        parts = residual.chunk(blocks)
        for before, part in pairwise(parts):
            part.add_(before)
        for part in parts:
            part.sub_(centred if target is None else target)
        ctx.save_for_backward(centred, residual, encoder_weight, decoder_weight, *code)
        ctx.dtype, ctx.blocks, ctx.own_target = dtype, blocks, target is None
        ctx.mark_non_differentiable(residual)
        return torch.stack([_mean_square(part) for part in parts]), residual

    @staticmethod
    def backward(ctx, upstream, _):
        centred, residual, encoder_weight, decoder_weight, *code = ctx.saved_tensors
        code, n = SparseCode(*code), len(centred)
        # One block's factor is left to the sums, which are shorter.
        factor = 2 * upstream / n
        gradient = residual
        if ctx.blocks > 1:
            gradient, factor = residual * factor.repeat_interleave(n)[:, None], 1
        grad_decoder_bias = factor * gradient.sum(dim=0) if ctx.own_target else 0
        # A block's features are in the reconstructions of all later prefixes, too.
        parts = gradient.chunk(ctx.blocks)
        for part, after in zip(parts[-2::-1], parts[:0:-1], strict=True):
            part.add_(after)
        grad_value = factor * entries_of_product(gradient, decoder_weight, code)
        grad_value = torch.where(code.values > 0, grad_value, 0)
        n_features = len(encoder_weight)
        by_feature = code.columns.int().argsort(stable=True)
        # bincount would do, but it reads the largest column back.
        counts = torch.zeros(n_features, dtype=torch.int64, device=by_feature.device)
        counts.index_add_(0, code.columns, torch.ones_like(code.columns))
        starts = counts.cumsum(dim=0) - counts
        rows = code.rows[by_feature]

        def summed(weights: Tensor, states: Tensor, rows: Tensor) -> Tensor:
            """For each feature the sum of the states of its rows, times the weights of its entries."""
            # On the CPU the stretches of `_summed_rows` gain more than half the bytes do.
            low = states.dtype if states.device.type == "cpu" else ctx.dtype
            weights = weights[by_feature].to(low)
            return _summed_rows(states.to(low), rows, starts, weights).to(states.dtype)

        grad_encoder_bias = grad_value.new_zeros(n_features).index_add_(0, code.columns, grad_value)
        return (
            *(None,) * 5,
            summed(grad_value, centred, rows % n if ctx.blocks > 1 else rows),
            grad_encoder_bias,
            summed(factor * code.values, gradient, rows).T,
            grad_decoder_bias - grad_encoder_bias @ encoder_weight,
        )


def _summed_rows(
    table: Float[Tensor, "rows n"],
    places: Int[Tensor, " entries"],
    starts: Int[Tensor, " bags"],
    weights: Float[Tensor, " entries"],
) -> Float[Tensor, "bags n"]:
    """For each bag of entries the sum of the rows of `table` at their places, times their weights.

    A table that does not fit in the cache is gone through in stretches of columns that do: each row is read many times.
    """

    def summed(table: Tensor) -> Tensor:
        return functional.embedding_bag(places, table, starts, mode="sum", per_sample_weights=weights)

    if table.device.type != "cpu" or table.numel() * table.element_size() <= CACHE:
        return summed(table)
    sums, width = memory.empty(len(starts), table.shape[1], like=table), STRETCH // table.element_size()
    for part, columns in zip(table.split(width, dim=1), sums.split(width, dim=1), strict=True):
        columns.copy_(summed(part.contiguous()))
    return sums


def entries_of_product(left: Tensor, right: Tensor, code: SparseCode) -> Tensor:
    """(left @ right) at the entries of `code` only."""
    if left.is_cuda or (left.device.type == "cpu" and torch.backends.mkl.is_available()):
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Sparse")  # that their interface may still change
            pattern = torch.sparse_csr_tensor(
                code.offsets,
                code.columns,
                code.values,
                size=(len(left), right.shape[1]),
                check_invariants=False,
            )
        if left.is_cuda or not _in_stretches(right):
            return torch.sparse.sampled_addmm(pattern, left, right, beta=0.0).values()
        width, found = STRETCH // right.element_size(), torch.zeros_like(code.values)
        for part, columns in zip(left.split(width, dim=1), right.T.split(width, dim=1), strict=True):
            part, columns = part.contiguous(), columns.contiguous()
            found += torch.sparse.sampled_addmm(pattern, part, columns.T, beta=0.0).values()
        return found
    # Without it: embedding_bag's own gradient in its weights is the same product, in 1.6 times the time.
    weights = code.values.detach().requires_grad_()
    with torch.enable_grad():
        written = functional.embedding_bag(
            code.columns, right.T.detach(), code.offsets[:-1], mode="sum", per_sample_weights=weights
        )
    return torch.autograd.grad(written, weights, left)[0]


def _in_stretches(right: Tensor) -> bool:
    """Whether `right`, whose columns are read many times, has no room in the cache and a stretch of its rows has some."""
    inner, n = right.shape
    return inner * n * right.element_size() > CACHE and n * STRETCH <= 2 * CACHE


def _mean_square(rows: Float[Tensor, "batch d_model"]) -> Float[Tensor, ""]:
    """Mean over rows of the squared length, without a table of squares."""
    flat = rows.flatten()
    return flat.dot(flat) / len(rows)


def relu_l1(
    centred: Float[Tensor, "batch d_model"],
    *,
    encoder_weight: Float[Tensor, "features d_model"],
    encoder_bias: Float[Tensor, " features"],
    decoder_weight: Float[Tensor, "d_model features"],
    decoder_bias: Float[Tensor, " d_model"],
    compute_dtype: torch.dtype,
    sites: tuple[int, ...] | None = None,
) -> tuple[Float[Tensor, ""], Float[Tensor, ""], Float[Tensor, " features"]]:
    """Reconstruction loss, decoder-weighted L1 and summed features of f = ReLU(W_e (x - b_d) + b_e).

    The last carries no gradient. `centred` is x - b_d without its gradient, as in `sparse_reconstruction`. With
    `sites` a feature's weight in the L1 is the sum of its decoder norms over parts of these widths.
    """
    sites = sites or (len(decoder_weight),)
    weights = encoder_weight, encoder_bias, decoder_weight, decoder_bias
    return _ReluL1.apply(centred, *weights, compute_dtype, sites)


def site_norms(
    decoder_weight: Float[Tensor, "d_model features"], sites: tuple[int, ...]
) -> Float[Tensor, "sites features"]:
    """Lengths of the parts of each decoder column; the parts' widths are `sites`, with sum d_model."""
    return torch.stack([part.norm(dim=0) for part in decoder_weight.split(sites)])


class _ReluL1(torch.autograd.Function):
    @staticmethod
    def forward(ctx, centred, encoder_weight, encoder_bias, decoder_weight, decoder_bias, dtype, sites):
        low, encoder = (memory.converted(t, dtype) for t in (centred, encoder_weight))
        # Transposed as it lies in memory, which a decoder does.
        decoder = memory.converted(decoder_weight.T, dtype).T
        features = memory.empty(len(low), len(encoder), like=low)
        torch.addmm(encoder_bias.to(dtype), low, encoder.T, out=features).relu_()
        written = torch.mm(features, decoder.T, out=memory.empty(*low.shape, like=low))
        residual = torch.sub(written, centred, out=memory.empty(*centred.shape, like=centred))
        sums = _column_sums(features).to(centred.dtype)
        by_site = site_norms(decoder_weight, sites)
        norms = by_site.sum(dim=0)
        ctx.save_for_backward(low, features, residual, sums, by_site, decoder, encoder_weight, decoder_weight)
        ctx.sites = sites
        ctx.mark_non_differentiable(sums)
        return _mean_square(residual), sums @ norms / len(residual), sums

    @staticmethod
    def backward(ctx, grad_reconstruction, grad_l1, _):
        low, features, residual, sums, by_site, decoder, encoder_weight, decoder_weight = ctx.saved_tensors
        norms = by_site.sum(dim=0)
        n, dtype, precise = len(residual), features.dtype, residual.dtype
        factor = 2 * grad_reconstruction / n
        gradient = torch.mul(residual, factor, out=memory.empty(*residual.shape, like=residual))
        low_gradient = memory.converted(gradient, dtype)
        # The L1's own gradient, grad_l1 ||W_d[:, i]|| / n in every active f_i, rides on the product.
        grad_pre = memory.empty(*features.shape, like=features)
        torch.addmm((grad_l1 / n * norms).to(dtype), low_gradient, decoder, out=grad_pre)
        torch.ops.aten.threshold_backward(grad_pre, features, 0, grad_input=grad_pre)
        grad_encoder_bias = _column_sums(grad_pre).to(precise)
        grad_decoder = _product(features.T, low_gradient, precise).T
        shrink = grad_l1 / n * torch.where(by_site > 0, sums / by_site, 0)
        parts = grad_decoder.split(ctx.sites), decoder_weight.split(ctx.sites), shrink
        for grad_part, part, factor in zip(*parts, strict=True):
            grad_part += part * factor
        return (
            None,
            _product(grad_pre.T, low, precise),
            grad_encoder_bias,
            grad_decoder,
            gradient.sum(dim=0) - grad_encoder_bias @ encoder_weight,
            None,
            None,
        )


def _product(
    left: Float[Tensor, "a b"], right: Float[Tensor, "b c"], dtype: torch.dtype
) -> Float[Tensor, "a c"]:
    """left @ right, then converted."""
    product = memory.empty(len(left), right.shape[1], like=left)
    return memory.converted(torch.mm(left, right, out=product), dtype)


def gated(
    centred: Float[Tensor, "batch d_model"],
    *,
    encoder_weight: Float[Tensor, "features d_model"],
    encoder_bias: Float[Tensor, " features"],
    log_scale: Float[Tensor, " features"],
    magnitude_bias: Float[Tensor, " features"],
    decoder_weight: Float[Tensor, "d_model features"],
    decoder_bias: Float[Tensor, " d_model"],
    compute_dtype: torch.dtype,
) -> tuple[Float[Tensor, ""], Float[Tensor, ""], Float[Tensor, ""], Float[Tensor, " features"]]:
    """Reconstruction loss, decoder-weighted L1 of the gate, the gate's own reconstruction loss, and summed features.

    With u = W_e (x - b_d), g = ReLU(u + b_e) and f = 1[u + b_e > 0] ReLU(exp(r) u + b_m). The gate's reconstruction is
    W_d g + b_d, whose W_d and b_d get no gradient from it. The last result carries none. `centred` as in `relu_l1`.

        dL/du = exp(r) dL/dm + dL/dg at active gates,  dL/dr = sum u exp(r) dL/dm,
        dL/dm = W_d^T G at f > 0,  dL/dg = W_d^T G_gate + l1 ||W_d[:, i]|| / N
    """
    return _Gated.apply(
        centred,
        encoder_weight,
        encoder_bias,
        log_scale,
        magnitude_bias,
        decoder_weight,
        decoder_bias,
        compute_dtype,
    )


class _Gated(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx,
        centred,
        encoder_weight,
        encoder_bias,
        log_scale,
        magnitude_bias,
        decoder_weight,
        decoder_bias,
        dtype,
    ):
        low, encoder, decoder = centred.to(dtype), encoder_weight.to(dtype), decoder_weight.to(dtype)
        read = low @ encoder.T
        gate = (read + encoder_bias.to(dtype)).relu_()
        scale = log_scale.exp()
        features = torch.addcmul(magnitude_bias.to(dtype), read, scale.to(dtype)).relu_()
        features = torch.ops.aten.threshold_backward(features, gate, 0)
        residual = (features @ decoder.T).to(centred.dtype).sub_(centred)
        of_gate = (gate @ decoder.T).to(centred.dtype).sub_(centred)
        gate_sums = _column_sums(gate).to(centred.dtype)
        sums = _column_sums(features).to(centred.dtype)
        norms = decoder_weight.norm(dim=0)
        ctx.save_for_backward(
            low, read, gate, features, residual, of_gate, gate_sums, norms, scale, decoder,
            encoder_weight, decoder_weight,
        )  # fmt: skip
        ctx.mark_non_differentiable(sums)
        n = len(residual)
        return _mean_square(residual), gate_sums @ norms / n, _mean_square(of_gate), sums

    @staticmethod
    def backward(ctx, grad_reconstruction, grad_l1, grad_gate_loss, _):
        (
            low, read, gate, features, residual, of_gate, gate_sums, norms, scale, decoder,
            encoder_weight, decoder_weight,
        ) = ctx.saved_tensors  # fmt: skip
        n, dtype, precise = len(residual), features.dtype, residual.dtype
        gradient = residual * (2 * grad_reconstruction / n)
        low_gradient = gradient.to(dtype)
        grad_magnitude = torch.ops.aten.threshold_backward(low_gradient @ decoder, features, 0)
        grad_gate = torch.addmm(
            (grad_l1 / n * norms).to(dtype), (of_gate * (2 * grad_gate_loss / n)).to(dtype), decoder
        )
        grad_gate = torch.ops.aten.threshold_backward(grad_gate, gate, 0)
        grad_encoder_bias = _column_sums(grad_gate).to(precise)
        grad_magnitude_bias = _column_sums(grad_magnitude).to(precise)
        grad_log_scale = scale * _column_sums(grad_magnitude * read).to(precise)
        grad_read = torch.addcmul(grad_gate, grad_magnitude, scale.to(dtype))
        grad_decoder = (features.T @ low_gradient).to(precise).T
        grad_decoder += decoder_weight * (grad_l1 / n * torch.where(norms > 0, gate_sums / norms, 0))
        grad_decoder_bias = gradient.sum(dim=0) - _column_sums(grad_read).to(precise) @ encoder_weight
        return (
            None,
            (grad_read.T @ low).to(precise),
            grad_encoder_bias,
            grad_log_scale,
            grad_magnitude_bias,
            grad_decoder,
            grad_decoder_bias,
            None,
        )


def _column_sums(table: Float[Tensor, "batch n"]) -> Float[Tensor, " n"]:
    """Sums over rows. As a product they are accumulated in float32 also for bfloat16, and much faster there."""
    return (table.new_ones(1, len(table)) @ table)[0]


def active_counts(features: Float[Tensor, "batch features"]) -> Int[Tensor, " features"]:
    """In how many rows each feature f >= 0 is active (f > 0).

    By products, because sums of truth values over rows are slow; in blocks, because bfloat16 counts to 256 only.
    """
    blocks = [_column_sums(block) for block in features.sign().split(256)]
    return torch.stack(blocks).to(torch.int64).sum(dim=0)


def stacked_reconstruction(
    x: Float[Tensor, "batch d_model"],
    layers: list[tuple[Float[Tensor, "_ _"], Float[Tensor, " _"]]],
    decoder: tuple[Float[Tensor, "d_model code"], Float[Tensor, " d_model"]],
    *,
    activation: str,
    scale: float | int,
    compute_dtype: torch.dtype,
) -> tuple[Float[Tensor, ""], Float[Tensor, "batch code"]]:
    """Reconstruction loss and code of a stack of layers with a free affine decoder, on inputs times `scale`.

    The loss is in the units of x: the squared length of (W' z + b') / scale - x. The code carries a gradient.
    """
    flat = [parameter for layer in (*layers, decoder) for parameter in layer]
    return _StackedReconstruction.apply(x, activation, scale, compute_dtype, *flat)


class _StackedReconstruction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, activation, scale, dtype, *parameters):
        first, *others = parameters[::2]
        weights = [(first * scale).to(dtype), *(w.to(dtype) for w in others)]
        biases = [b.to(dtype) for b in parameters[1::2]]
        values, residual = _reconstruct(x, weights, biases, activation, scale)
        ctx.save_for_backward(residual, *values, *weights)
        ctx.activation, ctx.scale = activation, scale
        ctx.set_materialize_grads(False)  # no table of zeros for a code that the loss does not use
        return _mean_square(residual), values[-1].to(x.dtype)

    @staticmethod
    def backward(ctx, grad_loss, grad_code):
        residual, *saved = ctx.saved_tensors
        if grad_loss is None:
            grad_loss = residual.new_zeros(())
        depth = len(saved) // 2
        values, weights = saved[:depth], saved[depth:]
        # The gradient in what the decoder writes is `factor` times the residual.
        factor = -2 * grad_loss / (len(residual) * ctx.scale)
        weights[-1] = (weights[-1].to(residual.dtype) * factor).to(weights[-1].dtype)
        first, *others, weight, bias = _gradients(residual, values, weights, ctx.activation, grad_code)
        return *(None,) * 4, first * ctx.scale, *others, weight * factor, bias * factor


# Tables of states are long and weights are small: factors are multiplied into weights wherever they can be.


def _reconstruct(
    x: Tensor, weights: list[Tensor], biases: list[Tensor], activation: str, scale: float | int
) -> tuple[list[Tensor], Tensor]:
    """What each layer and the decoder read, and x - x'."""
    values = [x.to(weights[0].dtype)]
    squash_ = torch.relu_ if activation == "relu" else torch.sigmoid_
    for weight, bias in zip(weights[:-1], biases[:-1], strict=True):
        values.append(squash_(torch.addmm(bias, values[-1], weight.T)))
    written = torch.addmm(biases[-1], values[-1], weights[-1].T)
    # What is written is `scale` times what is meant.
    return values, torch.sub(x, written, alpha=1 / scale)


def _gradients(
    residual: Tensor, values: list[Tensor], weights: list[Tensor], activation: str, grad_code: Tensor | None
) -> list[Tensor]:
    """Gradients of weights and biases, without the factors of first and last layer; the last of `weights` has its own."""
    slope = (
        torch.ops.aten.threshold_backward
        if activation == "relu"
        else lambda gradient, value, _: torch.ops.aten.sigmoid_backward(gradient, value)
    )
    precise, dtype = residual.dtype, values[0].dtype
    grad_output, gradients = residual.to(dtype), []
    for i in reversed(range(len(values))):
        gradients[:0] = (grad_output.T @ values[i]).to(precise), _column_sums(grad_output).to(precise)
        if i:
            grad_value = grad_output @ weights[i]
            if i == len(values) - 1 and grad_code is not None:
                grad_value = grad_value + grad_code.to(dtype)
            grad_output = slope(grad_value, values[i], 0)
    return gradients
