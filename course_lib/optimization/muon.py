"""Muon: momentum whose matrices are orthogonalised before they become a step (lesson 08).

For a matrix W with gradient G, momentum mu, step size eta and weight decay lambda, one step is (08.7)

    B <- mu B + (1 - mu) G                      running mean of the gradients
    M  = mu B + (1 - mu) G  or  M = B           with and without Nesterov's look ahead
    W <- (1 - eta lambda) W - eta k UV^T        U S V^T = M, by Newton-Schulz; k depends on the shape

Embeddings, output layers, biases and gains are not maps from one hidden vector to another: they get AdamW, in
parameter groups with `use_muon=False`. `muon_groups` splits a model that way.

    optimizer = Muon(muon_groups(model, head="lm_head"), lr=0.02)

Source: Keller Jordan et al., "Muon: an optimizer for hidden layers in neural networks" (2024);
`match_rms_adamw` after Liu et al., "Muon is scalable for LLM training" (2025, arXiv:2502.16982).
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.optim.adamw import adamw

from course_lib import torch_private
from course_lib.checks import named
from course_lib.optimization.newton_schulz import Quintic, orthogonalize

# On a CPU one product of a batch is faster than many products for matrices this small, and in bfloat16 only.
MOST_ENTRIES_TO_BATCH = 128 * 128


def shape_factor(shape: Sequence[int], adjust_lr_fn: str | None = None) -> float:
    """Return k, by which a step on a d_out x d_in matrix is multiplied (08.11).

    None or "original": sqrt(max(1, d_out / d_in)). "match_rms_adamw": 0.2 sqrt(max(d_out, d_in)), with which the
    root mean square of a step's entries is that of AdamW's, 0.2 or so. "rms_to_rms": sqrt(d_out / d_in), the step
    that changes no output by more than eta in root mean square (lesson 06).

    Raises:
        ValueError: the name is unknown.
    """
    rows, columns = shape[0], math.prod(shape[1:])
    if adjust_lr_fn in (None, "original"):
        return math.sqrt(max(1, rows / columns))
    if adjust_lr_fn == "match_rms_adamw":
        return 0.2 * math.sqrt(max(rows, columns))
    if adjust_lr_fn == "rms_to_rms":
        return math.sqrt(rows / columns)
    raise ValueError(
        f"adjust_lr_fn must be None, 'original', 'match_rms_adamw' or 'rms_to_rms', got {adjust_lr_fn!r}"
    )


@named
def muon_groups(
    model: nn.Module,
    *,
    head: str | None = None,
    muon: dict[str, Any] | None = None,
    adamw: dict[str, Any] | None = None,
) -> list[dict[str, Any]]:
    """Split a model's trainable parameters into a Muon group and an AdamW group.

    Muon takes tensors of two or more dimensions; AdamW takes the rest, all embeddings, and the output layer:
    the module called `head`, or the last `nn.Linear` of the model where `head` is None. A parameter that a module
    holds by itself, such as a table of positions, counts as a matrix: split such a model by hand. `muon` and
    `adamw` hold options of the two groups, such as {"lr": 3e-4}.

    Raises:
        ValueError: the model has no module called `head`.
    """
    modules = dict(model.named_modules())
    if head is None:
        linear = [name for name, module in modules.items() if isinstance(module, nn.Linear)]
        outputs = linear[-1:]
    elif head in modules:
        outputs = [head]
    else:
        raise ValueError(f"head must be the name of a module, got {head!r}; there are {sorted(modules)[1:]}")
    apart = [module for module in modules.values() if isinstance(module, nn.Embedding | nn.EmbeddingBag)]
    apart += [modules[name] for name in outputs]
    left_out = {id(p) for module in apart for p in module.parameters()}
    groups: dict[bool, list[Tensor]] = {True: [], False: []}
    for parameter in model.parameters():
        if parameter.requires_grad:
            groups[parameter.ndim >= 2 and id(parameter) not in left_out].append(parameter)
    options = {True: muon or {}, False: adamw or {}}
    return [{"params": groups[use], "use_muon": use, **options[use]} for use in (True, False) if groups[use]]


class Muon(torch.optim.Optimizer):
    """Muon for matrices, AdamW for the groups with `use_muon=False`.

    With ns_coefficients="jordan" and ns_norm="frobenius" the steps are those of `torch.optim.Muon`. The defaults
    are closer to UV^T at the same cost (`orthogonalize`). Parameters of more than two dimensions, such as the
    filters of a convolution, are taken as matrices with their first dimension as rows.

    Every option can be set for a parameter group:
        lr: eta, of both rules; weight_decay: lambda, of both; both are read anew at every step.
        momentum, nesterov, ns_steps, ns_coefficients, ns_norm, compute_dtype, adjust_lr_fn: of Muon; see
            `orthogonalize` and `shape_factor`.
        betas, eps: of AdamW.

    Raises:
        ValueError: an option is out of range, or a parameter of a Muon group has fewer than two dimensions or is
            not of real floating-point numbers.
        RuntimeError: a gradient is sparse.
    """

    @named
    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[dict[str, Any]] | Iterable[tuple[str, Tensor]],
        lr: float | int | Tensor = 1e-3,
        weight_decay: float | int = 0.1,
        momentum: float | int = 0.95,
        nesterov: bool = True,
        *,
        ns_steps: int = 5,
        ns_coefficients: str | Sequence[Quintic] = "polar_express",
        ns_norm: Literal["gram", "frobenius"] = "gram",
        compute_dtype: torch.dtype | None = torch.bfloat16,
        adjust_lr_fn: str | None = None,
        use_muon: bool = True,
        betas: tuple[float | int, float | int] = (0.9, 0.95),
        eps: float | int = 1e-8,
    ) -> None:
        defaults = {
            "lr": lr,
            "weight_decay": weight_decay,
            "momentum": momentum,
            "nesterov": nesterov,
            "ns_steps": ns_steps,
            "ns_coefficients": ns_coefficients,
            "ns_norm": ns_norm,
            "compute_dtype": compute_dtype,
            "adjust_lr_fn": adjust_lr_fn,
            "use_muon": use_muon,
            "betas": betas,
            "eps": eps,
        }
        super().__init__(params, defaults)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group after checking its options and its parameters."""
        super().add_param_group(param_group)
        try:
            _check_group(self.param_groups[-1])
        except ValueError:
            self.param_groups.pop()
            raise

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take one step; `closure`, if given, computes the loss anew, and its value is returned."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            params = [p for p in group["params"] if p.grad is not None]
            if any(p.grad.is_sparse for p in params):
                raise RuntimeError("Muon does not take sparse gradients: use sparse=False in the embedding")
            if params:
                (self._muon_step if group["use_muon"] else self._adamw_step)(group, params)
        return loss

    def _muon_step(self, group: dict[str, Any], params: list[Tensor]) -> None:
        grads = [p.grad for p in params]
        for p in params:
            if not self.state[p]:
                self.state[p]["momentum_buffer"] = torch.zeros_like(p.grad)
        means = [self.state[p]["momentum_buffer"] for p in params]
        lr, momentum = float(group["lr"]), group["momentum"]
        torch_private.lerp_each_(means, grads, 1 - momentum)
        if group["weight_decay"]:
            torch_private.multiply_each_(params, 1 - lr * group["weight_decay"])
        for batch in _batches(grads, group["compute_dtype"]):
            moved = [means[i] for i in batch]
            if group["nesterov"]:
                moved = torch_private.lerp_each([grads[i] for i in batch], moved, momentum)
            for i, update in zip(batch, _orthogonalized(moved, group), strict=True):
                factor = shape_factor(params[i].shape, group["adjust_lr_fn"])
                params[i].add_(update.reshape(params[i].shape), alpha=-lr * factor)

    def _adamw_step(self, group: dict[str, Any], params: list[Tensor]) -> None:
        for p in params:
            if not self.state[p]:
                self.state[p]["step"] = torch.zeros((), dtype=torch.float32)
                self.state[p]["exp_avg"] = torch.zeros_like(p)
                self.state[p]["exp_avg_sq"] = torch.zeros_like(p)
        states = [self.state[p] for p in params]
        adamw(
            params,
            [p.grad for p in params],
            [s["exp_avg"] for s in states],
            [s["exp_avg_sq"] for s in states],
            [],
            [s["step"] for s in states],
            amsgrad=False,
            beta1=group["betas"][0],
            beta2=group["betas"][1],
            lr=group["lr"],
            weight_decay=group["weight_decay"],
            eps=group["eps"],
            maximize=False,
        )


def _batches(grads: list[Tensor], compute_dtype: torch.dtype | None) -> list[list[int]]:
    """Return the indices of the gradients, those together that one batched product takes faster."""
    batches: dict[Any, list[int]] = defaultdict(list)
    for i, g in enumerate(grads):
        small = (compute_dtype or g.dtype) == torch.bfloat16 and g.numel() <= MOST_ENTRIES_TO_BATCH
        alone = g.device.type == "cpu" and not small
        batches[i if alone else (g.shape, g.dtype, g.device)].append(i)
    return list(batches.values())


def _orthogonalized(tensors: Sequence[Tensor], group: dict[str, Any]) -> Sequence[Tensor]:
    """Orthogonalise tensors of one shape, as matrices whose rows are their first dimension."""
    options = {
        "coefficients": group["ns_coefficients"],
        "norm": group["ns_norm"],
        "compute_dtype": group["compute_dtype"],
    }
    matrices = [t.flatten(1) for t in tensors]
    if len(matrices) == 1:
        return [orthogonalize(matrices[0], group["ns_steps"], **options)]
    return orthogonalize(torch.stack(matrices), group["ns_steps"], **options).unbind()


def _check_group(group: dict[str, Any]) -> None:
    for name in ("lr", "weight_decay", "eps"):
        if not 0 <= float(group[name]) < math.inf:
            raise ValueError(f"{name} must be a finite number, 0 or more, got {group[name]}")
    for name, value in (("momentum", group["momentum"]), *(("betas", beta) for beta in group["betas"])):
        if not 0 <= value < 1:
            raise ValueError(f"{name} must lie in [0, 1), got {value}")
    if not group["use_muon"]:
        return
    shape_factor((1, 1), group["adjust_lr_fn"])
    for p in group["params"]:
        if p.ndim < 2:
            raise ValueError(
                f"Muon takes matrices, got a parameter of shape {tuple(p.shape)}: put it into a group with "
                "use_muon=False, for AdamW, or split the model with muon_groups"
            )
        if not p.is_floating_point():
            raise ValueError(f"Muon takes real floating-point parameters, got {p.dtype}")
    # An unknown name or a wrong number of steps should be told here, not at the first step.
    _orthogonalized([torch.zeros(1, 1)], group)
