"""Maximal update parametrization (muP): step sizes that stay right when a network gets wider (lesson 07).

    with torch.device("meta"):  # shapes are all that is needed of the base model
        base_model = Net(width=64)
    model = parametrize(Net(width=4096), base_model)
    optimizer = torch.optim.AdamW(param_groups(model, torch.optim.AdamW, lr=2**-6))

The step size that is best for the base model is then nearly best for the wide one (Yang et al. 2022,
arXiv:2203.03466). With r_in and r_out the factors by which the two fans of a parameter exceed those of
the base model (a bias or the gain of a norm has fan_in 1), the rules of Table 3 of that paper are (07.6):

                            input weights, biases, norms    hidden weights    output weights
    standard deviation      1                               r_in^(-1/2)       1 / r_in
    step size, SGD          r_out                           r_out / r_in      1 / r_in
    step size, Adam         1                               1 / r_in          1 / r_in

Muon takes the place of a row by the spectral condition (Yang, Simon and Bernstein 2023, arXiv:2310.17813).

Why this form, of the many equivalent ones (07.9): it is the one without multipliers in the forward pass.
A parametrized model is the same module with the same state_dict keys; only its initial numbers were
rescaled, and only the optimizer's groups know about widths. So deepcopy, state_dict, torch.compile and
export work as for any module, and a model rebuilt from a state_dict needs no base model to run. Nothing is
written into parameters or buffers. `parametrize` leaves one plain attribute on the module,
`mup_base_shapes`, which deepcopy and pickle keep; without it `param_groups` takes the base model again, or
`resume_groups` reads the step sizes from the optimizer's checkpoint.

Not covered: attention scores must be divided by d_head rather than by its root where d_head grows, which is
the model's own business (`attention_scale` gives the number); Adam's epsilon is left as it is.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from course_lib.checks import named

NORMS = (nn.LayerNorm, nn.RMSNorm)
LAYERS = (nn.Linear, nn.Embedding, *NORMS)

# How a step depends on the gradient: in proportion, not on its size entry by entry, or not on its singular values.
STEPS = {
    "SGD": "sgd",
    **dict.fromkeys(("Adam", "Adamax", "AdamW", "NAdam", "RAdam", "RMSprop"), "adam"),
    "Muon": "muon",
}
# Step size by fans. Muon multiplies its steps by sqrt(max(1, fan_out / fan_in)) itself, with the option below;
# what is missing to sqrt(fan_out / fan_in) is sqrt(min(1, fan_out / fan_in)).
RATES = {
    "sgd": lambda fan_out, fan_in: fan_out / fan_in,
    "adam": lambda fan_out, fan_in: 1 / fan_in,
    "muon": lambda fan_out, fan_in: math.sqrt(min(1.0, fan_out / fan_in)),
}
# Named in the groups, since another choice ("match_rms_adamw") would bring back what the rule removes.
OPTIONS = {"muon": {"adjust_lr_fn": "original"}}


@dataclass(frozen=True)
class Fans:
    """Between how many inputs and outputs a parameter stands, in a model and in its base model."""

    fan_out: int
    fan_in: int
    base_fan_out: int
    base_fan_in: int

    @property
    def r_out(self) -> float:
        """How many times the base's outputs."""
        return self.fan_out / self.base_fan_out

    @property
    def r_in(self) -> float:
        """How many times the base's inputs."""
        return self.fan_in / self.base_fan_in

    @property
    def role(self) -> str:
        """Column of the table: "input" where only fan_out differs from the base, "output" where only fan_in does."""
        return {(False, False): "fixed", (True, False): "input", (True, True): "hidden", (False, True): "output"}[
            self.r_out != 1, self.r_in != 1
        ]  # fmt: skip

    def rate(self, step: str) -> float:
        """Step size as a multiple of the base model's."""
        return RATES[step](self.fan_out, self.fan_in) / RATES[step](self.base_fan_out, self.base_fan_in)


@dataclass(frozen=True)
class Entry:
    """A parameter of a model with its name, the layer that owns it, and its fans."""

    name: str
    parameter: nn.Parameter
    layer: nn.Module
    fans: Fans

    @property
    def is_weight(self) -> bool:
        """Whether it is the matrix of a Linear."""
        return isinstance(self.layer, nn.Linear) and self.parameter is self.layer.weight


def _shapes(model: nn.Module) -> dict[str, torch.Size]:
    return {name: p.shape for name, p in model.named_parameters(remove_duplicate=False)}


def _fans(layer: nn.Module, name: str, shape: torch.Size) -> tuple[int, int]:
    """(fan_out, fan_in) of the parameter called `name` of a layer, had it that shape."""
    if name == "bias" or isinstance(layer, NORMS):
        return shape.numel(), 1
    rows, columns = shape
    return (columns, rows) if isinstance(layer, nn.Embedding) else (rows, columns)


def _entries(model: nn.Module, base_shapes: dict[str, torch.Size]) -> Iterator[Entry]:
    """Walk over the parameters of a model, each once, and refuse whatever the rules do not cover."""
    shapes = _shapes(model)
    for one, other, where in ((shapes, base_shapes, "base_model"), (base_shapes, shapes, "model")):
        if missing := [name for name in one if name not in other]:
            raise ValueError(
                f"model and base_model must differ in widths only, and {where} has no parameter {missing[0]!r} "
                f"({len(missing)} are missing). Is it compiled or wrapped? Pass the module itself"
            )
    seen: dict[nn.Parameter, Entry] = {}
    for path, layer in model.named_modules():
        own = dict(layer.named_parameters(recurse=False))
        if own and (not isinstance(layer, LAYERS) or not set(own) <= {"weight", "bias"}):
            raise ValueError(
                f"{path or 'the model itself'} is of type {type(layer).__name__} and has parameters of its own "
                f"({', '.join(own)}), for which no width rule is known: build it from Linear, Embedding, LayerNorm "
                "and RMSNorm"
            )
        for key, parameter in own.items():
            name = f"{path}.{key}" if path else key
            base = base_shapes[name]
            if parameter.ndim != len(base):
                raise ValueError(
                    f"{name} has shape {tuple(parameter.shape)}, and {tuple(base)} in base_model: the two must "
                    "differ in widths only"
                )
            entry = Entry(
                name, parameter, layer, Fans(*_fans(layer, key, parameter.shape), *_fans(layer, key, base))
            )
            if isinstance(layer, nn.Embedding) and entry.fans.r_in != 1:
                raise ValueError(
                    f"{name} has {entry.fans.fan_in} rows, and {entry.fans.base_fan_in} in base_model: the number "
                    "of embeddings is no width and must be the same"
                )
            if parameter not in seen:
                seen[parameter] = entry
                yield entry
            elif seen[parameter].fans != entry.fans:
                raise ValueError(
                    f"{name} and {seen[parameter].name} are one tied parameter, and muP scales the two uses "
                    "differently. Untie them, or multiply the logits by base width / width in the model and compute "
                    "them from the embedding alone: F.linear(hidden, embedding.weight)"
                )


def _base_shapes(model: nn.Module, base_model: nn.Module | None) -> dict[str, torch.Size]:
    if base_model is not None:
        return _shapes(base_model)
    if not hasattr(model, "mup_base_shapes"):
        raise ValueError(
            "model holds no base shapes: it was not parametrized, or rebuilt from a state_dict. Pass base_model="
        )
    return model.mup_base_shapes


def roles(model: nn.Module, base_model: nn.Module | None = None) -> dict[str, str]:
    """Which rule holds for each parameter, by name: "input", "hidden", "output", or "fixed" if no width changed.

    Biases and the parameters of norms are "input" (their fan_in is 1), or "fixed" in layers whose output has the
    width of the base.

    Raises:
        ValueError: as `param_groups`.
    """
    return {e.name: e.fans.role for e in _entries(model, _base_shapes(model, base_model))}


@torch.no_grad()
@named
def parametrize(model: nn.Module, base_model: nn.Module, *, initial_std: str = "fan_in") -> nn.Module:
    """Rescale the initial parameters of `model` in place as muP asks, and return it (07.6).

    Call it on a freshly initialised model, before a checkpoint is loaded into it. A model of the base's widths
    is not changed. What is done depends on how the model drew its weights: with `initial_std="fan_in"`, as
    PyTorch's Linear does, with a standard deviation in proportion to 1/sqrt(fan_in), biases too; with
    "constant", with the same number at every width, as GPT-2's 0.02, and biases alike. Embeddings and norms are
    taken to start alike at every width.

    Shapes: `base_model` has the same parameters by name, with other widths; it may lie on the "meta" device.

    Raises:
        ValueError: the model is parametrized already; it has a layer other than Linear, Embedding, LayerNorm and
            RMSNorm with parameters of its own, or a parameter tied between uses that scale differently; the two
            models differ in more than widths; `initial_std` is unknown. The model is then left as it was.
    """
    if initial_std not in ("fan_in", "constant"):
        raise ValueError(f'initial_std must be "fan_in" or "constant", got {initial_std!r}')
    if hasattr(model, "mup_base_shapes"):
        raise ValueError(
            "model is parametrized already, and a second rescaling of its weights would spoil them"
        )
    base_shapes = _shapes(base_model)
    entries = list(_entries(model, base_shapes))
    drawn = -0.5 if initial_std == "fan_in" else 0.0
    for entry in entries:
        if entry.is_weight:
            wanted = -1.0 if entry.fans.role == "output" else -0.5
            entry.parameter.mul_(entry.fans.r_in ** (wanted - drawn))
        elif isinstance(entry.layer, nn.Linear):
            base_in = base_shapes[entry.name.removesuffix("bias") + "weight"][1]
            entry.parameter.mul_((entry.layer.in_features / base_in) ** -drawn)
    model.mup_base_shapes = base_shapes
    return model


def step_kind(optimizer: type[torch.optim.Optimizer] | str) -> str:
    """Return "sgd", "adam" or "muon": how the steps of an optimizer class depend on the gradient.

    A class is known by its own name or that of a class it derives from, so that other implementations of Muon
    count as Muon.

    Raises:
        ValueError: neither is known.
    """
    names = [optimizer] if isinstance(optimizer, str) else [cls.__name__ for cls in optimizer.__mro__]
    for name in names:
        if name in RATES or name in STEPS:
            return STEPS.get(name, name)
    raise ValueError(
        f"optimizer: no muP rule is known for {names[0]}. If its steps scale like those of SGD, Adam or Muon, say so: pass "
        '"sgd", "adam" or "muon" instead of the class'
    )


def _decays_apart(optimizer: type[torch.optim.Optimizer]) -> bool:
    """Whether weight decay is AdamW's: apart from the gradient, and so never divided by its size."""
    return any(cls.__name__ == "AdamW" for cls in optimizer.__mro__)


@named
def param_groups(
    model: nn.Module,
    optimizer: type[torch.optim.Optimizer] | str,
    lr: float | int,
    *,
    weight_decay: float | int = 0.0,
    select: Callable[[str], bool] = lambda name: True,
    base_model: nn.Module | None = None,
) -> list[dict[str, Any]]:
    """Parameter groups that give each parameter of `model` its muP step size (07.6), for `optimizer(groups)`.

    There is one group for each distinct step size, with the parameters' names, so that the optimizer's
    state_dict says what belongs to which. Weight decay shrinks a parameter by lr times weight_decay a step;
    that product is made the same in all groups: each gets `weight_decay` divided by its factor. Pass it
    here and not to the optimizer, where the groups' own value would override it. Adam and its kin other than
    AdamW normalise the decay together with the gradient, and no such rule exists for them.

    Muon's steps are for weights of Linear layers, and the rule is that for `adjust_lr_fn="original"`, which its
    groups carry. Give it the hidden matrices and AdamW the rest, by `select`:

        hidden = lambda name: name.startswith("blocks") and name.endswith("weight") and "norm" not in name

    Shapes: `select(name)` says which parameters to take; the default takes all.
    Units: `lr` and `weight_decay` are those of the base model.

    Raises:
        ValueError: the optimizer's rule is unknown; Muon is given something else than weights of Linear layers, or
            Adam without W a weight decay; `lr` is not positive; nothing is selected; there is no base to compare with; or
            the models do not fit, as in `parametrize`.
    """
    step = step_kind(optimizer)
    if not (lr > 0 and math.isfinite(lr)):
        raise ValueError(f"lr must be a finite number above 0, got {lr}")
    if not (weight_decay >= 0 and math.isfinite(weight_decay)):
        raise ValueError(f"weight_decay must be a finite number, 0 or more, got {weight_decay}")
    if weight_decay and step == "adam" and not isinstance(optimizer, str) and not _decays_apart(optimizer):
        raise ValueError(
            f"weight_decay is {weight_decay}, and {optimizer.__name__} normalises it with the gradient: use AdamW"
        )
    groups: dict[float, dict[str, Any]] = {}
    for entry in _entries(model, _base_shapes(model, base_model)):
        if not select(entry.name):
            continue
        if step == "muon" and not entry.is_weight:
            raise ValueError(
                f"Muon steps are for weights of Linear layers, and {entry.name} is none: leave it out by select= "
                "and give it to AdamW"
            )
        rate = entry.fans.rate(step)
        group = groups.setdefault(
            rate,
            {"params": [], "lr": lr * rate, "weight_decay": weight_decay / rate, **OPTIONS.get(step, {})},
        )
        group["params"].append((entry.name, entry.parameter))
    if not groups:
        raise ValueError("select takes none of the model's parameters")
    return list(groups.values())


def resume_groups(model: nn.Module, optimizer_state: dict[str, Any]) -> list[dict[str, Any]]:
    """Parameter groups as they were when an optimizer made from `param_groups` was saved; no base model is needed.

        optimizer = torch.optim.AdamW(resume_groups(model, checkpoint["optimizer"]))
        optimizer.load_state_dict(checkpoint["optimizer"])

    Raises:
        ValueError: the state has no parameter names, or the model lacks one of them.
    """
    parameters = dict(model.named_parameters())
    groups = []
    for group in optimizer_state["param_groups"]:
        names = group.get("param_names", [None])
        if missing := [name for name in names if name not in parameters]:
            raise ValueError(
                f"the optimizer's state names the parameter {missing[0]!r}, which the model lacks"
                if missing[0]
                else "the optimizer's state has no parameter names: it was not made from param_groups"
            )
        groups.append({"params": [(name, parameters[name]) for name in names], "lr": group["lr"]})
    return groups


def attention_scale(d_head: int, base_d_head: int) -> float:
    """What to multiply q^T k by: 1/sqrt(base_d_head) at the base, and in proportion to 1/d_head (07.12).

    Pass it as `scale=` to `torch.nn.functional.scaled_dot_product_attention`. Where a wider model has more heads of
    the same size, this is the usual 1/sqrt(d_head).
    """
    return math.sqrt(base_d_head) / d_head


def layer_outputs(model: nn.Module, *inputs: Tensor) -> dict[str, Tensor]:
    """The output of every layer that has parameters, by name, in one forward pass without gradients.

    The coordinate check compares them before and after a few steps: under muP the root mean square of the
    change depends little on the width.
    """
    outputs: dict[str, Tensor] = {}

    def keep(name: str) -> Callable:
        return lambda module, args, output: outputs.__setitem__(name, output)

    layers = [(n, m) for n, m in model.named_modules() if any(True for _ in m.parameters(recurse=False))]
    hooks = [layer.register_forward_hook(keep(name)) for name, layer in layers]
    try:
        with torch.no_grad():
            model(*inputs)
    finally:
        for hook in hooks:
            hook.remove()
    return outputs


# Sizes of one layer


def sign_change_mean_square(d_in: int, *, step_size: float | int) -> float:
    """Expected mean square of eta sign(g x^T) x for normal x with d_in entries: eta^2 (2/pi d^2 + (1 - 2/pi) d) (07.3).

    Units: `step_size` is eta, the amount by which each weight moves.
    """
    return step_size**2 * (2 / math.pi * d_in**2 + (1 - 2 / math.pi) * d_in)


@dataclass(frozen=True)
class UnitScale:
    """A layer y = multiplier W x whose weights have entries of size 1, and how far one step may go (07.10).

    `longest_step` is the largest spectral norm of a step that changes the root mean square of y by at most that of
    x; `sign_step` and `muon_step` are the factors alpha of sign(G), for a gradient of rank one, and of U V^T that
    reach it.
    """

    multiplier: float
    longest_step: float
    sign_step: float
    muon_step: float

    @classmethod
    def of(cls, d_out: int, d_in: int) -> "UnitScale":
        """Return the numbers for a layer with d_in inputs and d_out outputs."""
        return cls(d_in**-0.5, d_out**0.5, d_in**-0.5, d_out**0.5)


def rounding_loss(values: Float[Tensor, "*shape"], dtype: torch.dtype) -> tuple[float, float]:
    """What `values` lose when they are stored as `dtype`: the relative error and the share that becomes zero (07.11).

    The error is the norm of the difference over the norm of the values.
    """
    stored = values.to(dtype).to(values.dtype)
    return float((stored - values).norm() / values.norm()), float((stored == 0).double().mean())
