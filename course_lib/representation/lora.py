"""Low-rank adaptation: a frozen linear layer plus a trained product of two thin matrices (lesson 25).

Names are those of the paper and of PEFT: the frozen weight W is (d_out, d_in), A is (rank, d_in) and reads the input,
B is (d_out, rank) and writes the output; the layer acts as W + s B A with a number s, its scale. (Some notes write
W + AB: their A is this B.) The d_out x d_in matrix B A and its gradient are never formed in training.

    inject(model, rank=8, alpha=16, targets=["q_proj", "v_proj"])
    optimiser = torch.optim.AdamW(param_groups(model, lr=1e-3))

Source: Hu et al. 2021 (arXiv:2106.09685); rank-stabilised scale: arXiv:2312.03732; DoRA: arXiv:2402.09353;
PiSSA: arXiv:2404.02948; LoRA+: arXiv:2402.12354.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from course_lib.checks import named

SCALINGS = ("alpha/r", "alpha/sqrt(r)")
INITS = ("zero_b", "gradient_svd", "pissa")
ALL_LINEAR = "all-linear"


def adapter_scale(alpha: float | int, rank: int, scaling: str = "alpha/r") -> float:
    """The factor s in front of B A (25.6): alpha / r as published, alpha / sqrt(r) for steps that do not depend on r.

    Raises:
        ValueError: `alpha` is not a finite number above 0, `rank` no whole number from 1, or `scaling` unknown.
    """
    if not isinstance(rank, int) or isinstance(rank, bool) or rank < 1:
        raise ValueError(f"rank must be a whole number of at least 1, got {rank!r}")
    if not 0 < alpha < math.inf:
        raise ValueError(f"alpha must be a finite number above 0, got {alpha!r}")
    if scaling not in SCALINGS:
        raise ValueError(f"scaling must be one of {list(SCALINGS)}, got {scaling!r}")
    return alpha / (rank if scaling == "alpha/r" else math.sqrt(rank))


# To be read


def adapted_linear_by_weight(
    x: Float[Tensor, "*rows d_in"],
    weight: Float[Tensor, "d_out d_in"],
    bias: Float[Tensor, " d_out"] | None,
    lora_A: Float[Tensor, "rank d_in"],
    lora_B: Float[Tensor, "d_out rank"],
    scale: float | int,
) -> Float[Tensor, "*rows d_out"]:
    """y = (W + s B A) x + b (25.1), to be read: the adapted weight is formed."""
    return functional.linear(x, weight + scale * lora_B @ lora_A, bias)


def lora_gradients(
    grad: Float[Tensor, "rows d_out"],
    x: Float[Tensor, "rows d_in"],
    weight: Float[Tensor, "d_out d_in"],
    lora_A: Float[Tensor, "rank d_in"],
    lora_B: Float[Tensor, "d_out rank"],
    scale: float | int,
) -> tuple[Float[Tensor, "rows d_in"], Float[Tensor, "rank d_in"], Float[Tensor, "d_out rank"]]:
    """dA = s B^T G, dB = s G A^T with G = grad^T x, and dx = (W + s B A)^T grad (25.2), to be read.

    `grad` is the gradient of the loss with respect to the layer's outputs, one example a row. Returns dx, dA, dB.
    """
    full = grad.T @ x
    return grad @ (weight + scale * lora_B @ lora_A), scale * lora_B.T @ full, scale * full @ lora_A.T


def row_norms_by_weight(
    weight: Float[Tensor, "d_out d_in"],
    lora_A: Float[Tensor, "rank d_in"],
    lora_B: Float[Tensor, "d_out rank"],
    scale: float | int,
) -> Float[Tensor, " d_out"]:
    """||row i of W + s B A|| (25.10), to be read: the adapted weight is formed."""
    return torch.linalg.norm(weight + scale * lora_B @ lora_A, dim=1)


# The fast form


def _product_dtype(dtype: torch.dtype, device: torch.device) -> torch.dtype:
    """float32 for half precision on a CPU without instructions for it, where its products are the slower ones."""
    if device.type != "cpu" or dtype not in (torch.bfloat16, torch.float16):
        return dtype
    native = torch.cpu._is_amx_tile_supported() or torch.cpu._is_avx512_bf16_supported()
    return dtype if native and dtype == torch.bfloat16 else torch.float32


class _AdaptedLinear(torch.autograd.Function):
    """Forward and backward in the order of (25.3): a rank stands between the two sides of every product.

    `dtype` is that of the outputs and of what is saved, `work` that of the products.
    """

    @staticmethod
    def forward(ctx, x, adapter_input, weight, bias, lora_A, lora_B, scale, dtype):
        work = _product_dtype(dtype, x.device)
        rows = x.reshape(-1, x.shape[-1]).to(dtype)
        read = rows if adapter_input is None else adapter_input.reshape(rows.shape).to(dtype)
        hidden = read.to(work) @ lora_A.to(work).T
        out = functional.linear(rows.to(work), weight.to(work), None if bias is None else bias.to(work))
        out.addmm_(hidden, lora_B.to(work).T, alpha=scale)
        ctx.save_for_backward(read if ctx.needs_input_grad[4] else None, hidden, weight, lora_A, lora_B)
        ctx.scale, ctx.work, ctx.one_input, ctx.input = scale, work, adapter_input is None, (x.shape, x.dtype)
        return out.to(dtype).view(*x.shape[:-1], len(weight))

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        read, hidden, weight, lora_A, lora_B = ctx.saved_tensors
        need_x, need_own, _, need_bias, need_A, need_B, _, _ = ctx.needs_input_grad
        (shape, dtype), work = ctx.input, ctx.work
        grad = grad.reshape(-1, grad.shape[-1]).to(work)
        back = ctx.scale * (grad @ lora_B.to(work))  # (rows, rank)
        d_x = d_own = None
        if need_x:
            d_x = grad @ weight.to(work)
            if ctx.one_input:
                d_x.addmm_(back, lora_A.to(work))
            d_x = d_x.view(shape).to(dtype)
        if need_own:
            d_own = (back @ lora_A.to(work)).view(shape).to(dtype)
        d_bias = grad.sum(dim=0) if need_bias else None
        d_A = (back.T @ read.to(work)).to(lora_A.dtype) if need_A else None
        # As (rank, d_out) first: the other way round the product of thin matrices takes twice the time.
        d_B = (ctx.scale * (hidden.T @ grad)).T.to(lora_B.dtype) if need_B else None
        return d_x, d_own, None, d_bias, d_A, d_B, None, None


def adapted_linear(
    x: Float[Tensor, "*rows d_in"],
    weight: Float[Tensor, "d_out width"],
    bias: Float[Tensor, " d_out"] | None,
    lora_A: Float[Tensor, "rank read"],
    lora_B: Float[Tensor, "written as_many"],
    scale: float | int,
    *,
    adapter_input: Float[Tensor, "*rows d_in"] | None = None,
) -> Float[Tensor, "*rows d_out"]:
    """y = W x + b + s B (A x) (25.3), with gradients by hand: equal to `adapted_linear_by_weight` up to rounding.

    W is frozen, so its gradient is not computed. Saved for the backward pass are x and A x. Outputs are in the dtype of x
    and W, or that of autocast; so are products, except on a CPU without instructions for half precision. A and B may be
    float32 beside a half-precision W, and get float32 gradients.
    `adapter_input` is what A reads instead of x, for dropout.

    Raises:
        ValueError: shapes do not fit, `x` and `weight` differ in dtype (outside of autocast), or `weight` needs a gradient.
    """
    (d_out, d_in), rank = weight.shape, len(lora_A)
    if x.shape[-1:] != (d_in,):
        raise ValueError(f"x must have shape (..., {d_in}), as wide as weight, got {tuple(x.shape)}")
    if tuple(lora_A.shape) != (rank, d_in) or tuple(lora_B.shape) != (d_out, rank):
        raise ValueError(
            f"lora_A must have shape (rank, {d_in}) and lora_B ({d_out}, rank) for a weight {tuple(weight.shape)}, "
            f"got {tuple(lora_A.shape)} and {tuple(lora_B.shape)}"
        )
    if weight.requires_grad and torch.is_grad_enabled():
        raise ValueError(
            "weight must be frozen, got one that requires a gradient, which an adapted layer does not compute: "
            "call weight.requires_grad_(False), or train the layer without an adapter"
        )
    own = (x, adapter_input, weight, bias, lora_A, lora_B, scale)
    device = x.device.type
    if torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device):
        with torch.autocast(device, enabled=False):
            return _AdaptedLinear.apply(*own, torch.get_autocast_dtype(device))
    if x.dtype != weight.dtype:
        raise ValueError(f"x must have the dtype of weight, {weight.dtype}, got {x.dtype}")
    return _AdaptedLinear.apply(*own, weight.dtype)


def row_norms(
    weight: Float[Tensor, "d_out d_in"],
    lora_A: Float[Tensor, "rank d_in"],
    lora_B: Float[Tensor, "d_out rank"],
    scale: float | int,
) -> Float[Tensor, " d_out"]:
    """||w_i||^2 + 2 s b_i . (A w_i) + s^2 b_i A A^T b_i, and its root (25.11): `row_norms_by_weight` without B A.

    w_i and b_i are rows of W and B. Computed in the dtype of A, at least float32.
    """
    wide = torch.promote_types(lora_A.dtype, torch.float32)
    weight, lora_A, lora_B = weight.to(wide), lora_A.to(wide), scale * lora_B.to(wide)
    squares = weight.square().sum(dim=1)
    cross = (weight @ lora_A.T * lora_B).sum(dim=1)
    own = (lora_B @ (lora_A @ lora_A.T) * lora_B).sum(dim=1)
    return (squares + 2 * cross + own).clamp(min=0).sqrt()


# The layer


class LoRALinear(nn.Module):
    """A frozen `nn.Linear` with an adapter; `inject` puts it in the place of one.

    Parameters: `lora_A` (rank, d_in), uniform within 1 / sqrt(d_in), and `lora_B` (d_out, rank), zero: in float32 beside a
    half-precision weight, else in its dtype. With `dora` also `magnitude` (d_out,): the row norms that the adapted
    weight is rescaled to, at first those of W; the norms that it is divided by are constants to the gradient.
    `dropout` acts on what A reads. `weight` is the adapted weight, for code that reads weights instead of calling layers.

    Raises:
        ValueError: `base` is no plain nn.Linear, or a number is out of its range.
    """

    def __init__(
        self,
        base: nn.Linear,
        *,
        rank: int,
        alpha: float | int,
        scaling: str = "alpha/r",
        dropout: float | int = 0.0,
        dora: bool = False,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(base, nn.Linear) or type(base).forward is not nn.Linear.forward:
            raise ValueError(f"base must be an nn.Linear with its own forward, got {type(base).__name__}")
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout must lie in [0, 1), got {dropout!r}")
        self.scale = adapter_scale(alpha, rank, scaling)
        self.base = base.requires_grad_(False)
        self.rank, self.alpha, self.scaling, self.dropout = rank, alpha, scaling, float(dropout)
        d_out, d_in = base.weight.shape
        # float32 beside half precision: an update of 1e-3 of an entry rounds to nothing in bfloat16.
        like = {"dtype": torch.promote_types(base.weight.dtype, torch.float32), "device": base.weight.device}
        start = torch.empty(rank, d_in, **like).uniform_(-(d_in**-0.5), d_in**-0.5, generator=generator)
        self.lora_A, self.lora_B = nn.Parameter(start), nn.Parameter(torch.zeros(d_out, rank, **like))
        self.magnitude = nn.Parameter(self._row_norms()) if dora else None
        self.register_buffer("_unmerged", None, persistent=False)
        # What was taken out of W at the start (PiSSA): a file for the published W needs it.
        self.register_buffer("_start_A", None, persistent=False)
        self.register_buffer("_start_B", None, persistent=False)

    @property
    def bias(self) -> Tensor | None:
        """The frozen bias."""
        return self.base.bias

    @property
    def merged(self) -> bool:
        """Whether the base weight holds the adapter at the moment."""
        return self._unmerged is not None

    @property
    def weight(self) -> Tensor:
        """The weight that the layer acts with, in the dtype of the base; formed anew at each call."""
        return self.base.weight if self.merged else self._adapted().to(self.base.weight.dtype)

    def _row_norms(self) -> Tensor:
        return row_norms(self.base.weight, self.lora_A.detach(), self.lora_B.detach(), self.scale)

    def _gain(self) -> Tensor:
        """What each output is multiplied by (25.10), (d_out,)."""
        return self.magnitude / self._row_norms()

    def _adapted(self) -> Tensor:
        adapted = self.base.weight.to(self.lora_A.dtype) + self.scale * self.lora_B @ self.lora_A
        return adapted if self.magnitude is None else self._gain()[:, None] * adapted

    def forward(self, x: Float[Tensor, "*rows d_in"]) -> Float[Tensor, "*rows d_out"]:
        """The adapted layer's outputs."""
        if self.merged:
            return self.base(x)
        drops = self.training and self.dropout > 0
        read = functional.dropout(x, self.dropout) if drops else None
        own = (self.lora_A, self.lora_B, self.scale)
        if self.magnitude is None:
            return adapted_linear(x, self.base.weight, self.base.bias, *own, adapter_input=read)
        out = adapted_linear(read if drops else x, self.base.weight, None, *own)
        out = out * self._gain().to(out.dtype)
        if drops:  # as PEFT has it: what was dropped passes the frozen weight alone
            return out + functional.linear(x - read, self.base.weight, self.base.bias)
        return out if self.base.bias is None else out + self.base.bias.to(out.dtype)

    @torch.no_grad()
    def merge(self) -> None:
        """Put the adapted weight in the place of the base's, which is kept; twice is once."""
        if not self.merged:
            merged, kept = self.weight, self.base.weight.data
            self._unmerged, self.base.weight.data = kept, merged

    @torch.no_grad()
    def unmerge(self) -> None:
        """Give the base its weight back, the same bits."""
        if self.merged:
            self.base.weight.data, self._unmerged = self._unmerged, None

    def extra_repr(self) -> str:
        """What `print(model)` shows."""
        return f"rank={self.rank}, alpha={self.alpha}, scaling={self.scaling!r}, dora={self.magnitude is not None}"


# How it starts


@torch.no_grad()
def _start_from_gradient(layer: LoRALinear, gradient: Tensor) -> None:
    """A = the leading right singular vectors of dL/dW, as long as random rows are on average; B stays 0 (25.5)."""
    _, _, v_t = torch.linalg.svd(gradient.to(layer.lora_A.dtype), full_matrices=False)
    layer.lora_A.copy_(v_t[: layer.rank] / math.sqrt(3))


@torch.no_grad()
def _start_from_weight(layer: LoRALinear) -> None:
    """s B A = the best approximation of W of rank r, and W keeps the rest (25.9)."""
    weight = layer.base.weight
    u, sigma, v_t = torch.linalg.svd(weight.to(layer.lora_A.dtype), full_matrices=False)
    root = (sigma[: layer.rank] / layer.scale).sqrt()
    layer.lora_A.copy_(root[:, None] * v_t[: layer.rank])
    layer.lora_B.copy_(u[:, : layer.rank] * root)
    layer._start_A, layer._start_B = layer.lora_A.detach().clone(), layer.lora_B.detach().clone()
    weight.copy_(weight.to(layer.lora_A.dtype) - layer.scale * layer.lora_B @ layer.lora_A)


def _check_init(
    init: str, gradients: Mapping[str, Tensor] | None, linears: Mapping[str, nn.Linear], rank: int
):
    if init == "both_zero":
        raise ValueError(
            "init 'both_zero' never learns: dA = s B^T G and dB = s G A^T are 0 where A and B are, so no step moves them "
            "(a saddle point); use 'zero_b', in which A is random"
        )
    if init not in INITS:
        raise ValueError(f"init must be one of {list(INITS)}, got {init!r}")
    for name, linear in linears.items() if init != "zero_b" else ():
        if rank > min(linear.weight.shape):
            raise ValueError(
                f"rank must be at most {min(linear.weight.shape)}, the smaller side of {name!r}, "
                f"for init {init!r}, got {rank}"
            )
        if init == "gradient_svd":
            found = (gradients or {}).get(name)
            if found is None or found.shape != linear.weight.shape:
                raise ValueError(
                    f"gradients must hold dL/dW of {name!r}, of shape {tuple(linear.weight.shape)}, for init "
                    f"'gradient_svd', got {'none' if found is None else tuple(found.shape)} (see weight_gradients)"
                )


# Models


def find_linears(model: nn.Module, targets: Sequence[str] | str) -> dict[str, nn.Linear]:
    """The linear layers that `targets` names, by full name: names or their endings ("q_proj"), or "all-linear".

    A layer that a model holds under several names is listed once, under the first. Changes nothing.

    Raises:
        ValueError: a target names nothing or something that is no plain nn.Linear, or a layer shares its weight with
            another module (tied embeddings).
    """
    every = {name: m for name, m in model.named_modules() if _is_linear(m)}
    if isinstance(targets, str) and targets != ALL_LINEAR:
        raise ValueError(f"targets must be a list of names or {ALL_LINEAR!r}, got the text {targets!r}")
    shared = _shared_weights(model)
    if targets == ALL_LINEAR:  # what shares a weight, mostly the output layer, is left out
        return {name: m for name, m in every.items() if m.weight not in shared}
    if not targets:
        raise ValueError("targets is empty; expected names of linear layers, or 'all-linear'")
    found: dict[str, nn.Linear] = {}
    for target in targets:
        named = {n: m for n, m in model.named_modules() if n == target or n.endswith(f".{target}")}
        if not named:
            endings = sorted({name.rpartition(".")[2] for name in every})
            raise ValueError(
                f"targets must name linear layers, such as {endings[:12]}; nothing is called {target!r}"
            )
        for name, module in named.items():
            if not _is_linear(module):
                raise ValueError(
                    f"targets must name plain nn.Linear layers; {name!r} is a {type(module).__name__}"
                )
            if module.weight in shared:
                raise ValueError(
                    f"targets must name layers with a weight of their own; {name!r} shares its weight with "
                    f"{shared[module.weight]!r}, and an adapter merged into one of them would change the other"
                )
            found[name] = module
    return {name: module for name, module in every.items() if name in found}


def _is_linear(module: nn.Module) -> bool:
    return isinstance(module, nn.Linear) and type(module).forward is nn.Linear.forward


def _shared_weights(model: nn.Module) -> dict[Tensor, str]:
    """Weights that two modules hold, each with the name of the first."""
    holders: dict[Tensor, dict[nn.Module, str]] = {}
    for name, module in model.named_modules():
        for parameter in module.parameters(recurse=False):
            holders.setdefault(parameter, {})[module] = name
    return {parameter: next(iter(names.values())) for parameter, names in holders.items() if len(names) > 1}


def _replace(model: nn.Module, old: nn.Module, new: nn.Module) -> None:
    """Put `new` wherever the model holds `old`."""
    for parent in list(model.modules()):
        for name, child in list(parent._modules.items()):
            if child is old and parent is not new:
                setattr(parent, name, new)


def adapters(model: nn.Module) -> dict[str, LoRALinear]:
    """The adapted layers of a model, by name."""
    return {name: module for name, module in model.named_modules() if isinstance(module, LoRALinear)}


@named
def inject(
    model: nn.Module,
    *,
    rank: int,
    alpha: float | int,
    targets: Sequence[str] | str,
    scaling: str = "alpha/r",
    init: str = "zero_b",
    dora: bool = False,
    dropout: float | int = 0.0,
    gradients: Mapping[str, Tensor] | None = None,
    generator: torch.Generator | None = None,
) -> dict[str, LoRALinear]:
    """Freeze a model and put an adapter on each layer that `targets` names (`find_linears`), in place; return them.

    `init`: "zero_b" (A random), "gradient_svd" (A from `gradients`, dL/dW by name: `weight_gradients`) or "pissa"
    (B A = the leading part of W, which is taken out of W). With each of them the model computes at first what it did,
    with "pissa" up to rounding.

    Raises:
        ValueError: as `find_linears`, `adapter_scale` and `LoRALinear`; `init` is unknown or "both_zero", which is a
            saddle point; a gradient is missing; or the model holds adapters already. The model is then as it was.
    """
    linears = find_linears(model, targets)
    adapter_scale(alpha, rank, scaling)
    _check_init(init, gradients, linears, rank)
    options: dict[str, Any] = {
        "rank": rank,
        "alpha": alpha,
        "scaling": scaling,
        "dropout": dropout,
        "dora": dora,
    }
    made = adapt(model, linears, **options, generator=generator)
    for name, layer in made.items():
        if init == "gradient_svd":
            _start_from_gradient(layer, gradients[name])
        elif init == "pissa":
            _start_from_weight(layer)
    return made


def adapt(model: nn.Module, linears: Mapping[str, nn.Linear], **options: Any) -> dict[str, LoRALinear]:
    """Freeze a model and put `LoRALinear(linear, **options)` in the place of each of its layers `linears`, by name.

    Raises:
        ValueError: as `LoRALinear`, or the model holds adapters already. The model is then as it was.
    """
    if held := adapters(model):
        raise ValueError(
            f"model must be without adapters, got one with {len(held)}, such as {next(iter(held))!r}"
        )
    learned = {parameter: parameter.requires_grad for parameter in model.parameters()}
    try:
        made = {name: LoRALinear(linear, **options) for name, linear in linears.items()}
    except ValueError:
        for parameter, learns in learned.items():
            parameter.requires_grad_(learns)
        raise
    model.requires_grad_(False)
    for name, layer in made.items():
        _replace(model, linears[name], layer.train(linears[name].training))
    return made


def weight_gradients(
    model: nn.Module, targets: Sequence[str] | str, loss: Tensor
) -> dict[str, Float[Tensor, "..."]]:
    """dL/dW of the layers that `targets` names, for init "gradient_svd"; their weights must not be frozen yet.

    Raises:
        ValueError: as `find_linears`.
    """
    linears = find_linears(model, targets)
    return dict(zip(linears, torch.autograd.grad(loss, [m.weight for m in linears.values()]), strict=True))


@named
def merge(model: nn.Module) -> None:
    """Put every adapter into its base weight: the model then runs at the speed of the base, and cannot be trained."""
    for layer in adapters(model).values():
        layer.merge()


@named
def unmerge(model: nn.Module) -> None:
    """Take every adapter out again: each base weight is bit by bit what it was before `merge`."""
    for layer in adapters(model).values():
        layer.unmerge()


@named
def unload(model: nn.Module) -> None:
    """Put plain nn.Linear layers back, with the weights that they hold: adapted after `merge`, else the base's.

    What PiSSA took out of the weights at the start is put back (up to rounding) where they are not merged.
    """
    for layer in adapters(model).values():
        if layer._start_A is not None and not layer.merged:
            with torch.no_grad():
                layer.base.weight.add_(layer.scale * layer._start_B @ layer._start_A)
        _replace(model, layer, layer.base)


def param_groups(model: nn.Module, lr: float | int, *, ratio: float | int = 1.0) -> list[dict[str, Any]]:
    """Groups for an optimiser: A (and DoRA's magnitudes) with `lr`, B with `ratio` times that (LoRA+).

    Raises:
        ValueError: the model holds no adapters, or `lr` or `ratio` is not above 0.
    """
    for name, value in (("lr", lr), ("ratio", ratio)):
        if not 0 < value < math.inf:
            raise ValueError(f"{name} must be a finite number above 0, got {value!r}")
    layers = list(adapters(model).values())
    if not layers:
        raise ValueError("model must hold adapters, got one without; call inject first")
    read = [*(m.lora_A for m in layers), *(m.magnitude for m in layers if m.magnitude is not None)]
    return [{"params": read, "lr": lr}, {"params": [m.lora_B for m in layers], "lr": lr * ratio}]
