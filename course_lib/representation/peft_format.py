"""Adapters on disk in the format of PEFT: adapter_config.json and adapter_model.safetensors (lesson 25).

What `save` writes, `peft.PeftModel.from_pretrained` reads with equal outputs, and `load` reads what PEFT wrote.
"""

import json
import math
import re
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from safetensors.torch import save as to_bytes
from torch import Tensor, nn

from course_lib.checks import named
from course_lib.files import new_directory
from course_lib.representation.lora import ALL_LINEAR, LoRALinear, adapt, adapters, find_linears

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
_PREFIX = "base_model.model."
# Settings of PEFT that change what an adapter computes and that these layers do not have, with their neutral values.
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "bias": ("none",),
    "fan_in_fan_out": (False,),
    **dict.fromkeys(("rank_pattern", "alpha_pattern"), ({}, None)),
    **dict.fromkeys(
        ("modules_to_save", "layer_replication", "target_parameters", "trainable_token_indices"), (None, [])
    ),
    **dict.fromkeys(("lora_bias", "use_qalora", "use_bdlora", "alora_invocation_tokens"), (None, False)),
    **dict.fromkeys(("arrow_config", "kasa_config", "velora_config", "monteclora_config"), (None,)),
}
# Starts that change the base weights; what they took out is not in the file.
_CHANGES_BASE = ("pissa", "olora", "loftq", "corda", "lora_ga")


@named
def save(model: nn.Module, directory: Path | str, *, base_model: str | None = None) -> None:
    """Write the adapters of a model to a new directory, whole or not at all; merged or not, the file is the same.

    An adapter that started from PiSSA is written with twice its rank, [B, -B_0] [A; A_0], so that it belongs to the
    published base weights. `base_model` is the name that PEFT shows for the base.

    Raises:
        ValueError: the model holds no adapters, or they differ in rank, scale, dropout or kind.
        FileExistsError: the directory already holds something.
    """
    layers = adapters(model)
    if not layers:
        raise ValueError("model must hold adapters, got one without; call inject first")
    kinds = {_kind(layer) for layer in layers.values()}
    if len(kinds) > 1:
        raise ValueError(
            f"adapters must all be of one kind (rank, alpha, scaling, dropout, dora), got {sorted(kinds)}"
        )
    rank, alpha, scaling, dropout, dora, doubled = kinds.pop()
    names = list(layers)
    config = {
        "peft_type": "LORA",
        "base_model_name_or_path": base_model,
        "task_type": None,
        "inference_mode": True,
        "r": 2 * rank if doubled else rank,
        # The scale stays: alpha / r or alpha / sqrt(r) of twice the rank.
        "lora_alpha": alpha * ((2.0 if scaling == "alpha/r" else math.sqrt(2)) if doubled else 1),
        "use_rslora": scaling == "alpha/sqrt(r)",
        "use_dora": dora,
        "lora_dropout": dropout,
        "target_modules": _targets(model, names),
        "init_lora_weights": True,
        "bias": "none",
        "fan_in_fan_out": False,
    }
    tensors = {_PREFIX + key: value for name in names for key, value in _tensors(name, layers[name]).items()}
    with new_directory(directory) as partial:
        (partial / WEIGHTS).write_bytes(to_bytes(tensors, metadata={"format": "pt"}))
        (partial / CONFIG).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def _kind(layer: LoRALinear) -> tuple:
    dora, doubled = layer.magnitude is not None, layer._start_A is not None
    return (layer.rank, layer.alpha, layer.scaling, layer.dropout, dora, doubled)


def _tensors(name: str, layer: LoRALinear) -> dict[str, Tensor]:
    lora_A, lora_B = layer.lora_A, layer.lora_B
    if layer._start_A is not None:
        lora_A, lora_B = torch.cat([lora_A, layer._start_A]), torch.cat([lora_B, -layer._start_B], dim=1)
    found = {f"{name}.lora_A.weight": lora_A, f"{name}.lora_B.weight": lora_B}
    if layer.magnitude is not None:
        found[f"{name}.lora_magnitude_vector"] = layer.magnitude
    return {key: value.detach().cpu().contiguous() for key, value in found.items()}


def _targets(model: nn.Module, names: list[str]) -> list[str] | str:
    """Full names; as one regular expression where PEFT would take a name for the ending of another layer's."""
    every = [n for n, m in model.named_modules() if isinstance(m, nn.Linear | LoRALinear)]
    others = [n.removesuffix(".base") for n in every if n.removesuffix(".base") not in names]
    if any(other.endswith(f".{name}") for other in others for name in names):
        return "|".join(map(re.escape, names))
    return names


@named
def load(model: nn.Module, directory: Path | str) -> dict[str, LoRALinear]:
    """Inject the adapters of a directory into a model that holds the base weights, in place; return them by name.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: the files are no LoRA adapter of the kinds that these layers know, or do not belong to the model. The
            model is then without adapters.
    """
    directory = Path(directory)
    for name in (CONFIG, WEIGHTS):
        if not (directory / name).is_file():
            raise FileNotFoundError(
                f"{directory / name} is missing; expected a directory that save() or PEFT wrote"
            )
    try:
        config = json.loads((directory / CONFIG).read_text(encoding="utf-8"))
        tensors = load_file(directory / WEIGHTS)
    except (ValueError, SafetensorError) as error:
        raise ValueError(f"{directory} does not hold an adapter that can be read: {error}") from error
    _check_config(config, directory / CONFIG)
    wrong = [key for key in tensors if not key.startswith(_PREFIX)]
    if wrong:
        raise ValueError(
            f"{directory / WEIGHTS} must hold names that begin with {_PREFIX!r}, got {wrong[0]!r}"
        )
    by_name = {key.removeprefix(_PREFIX): value for key, value in tensors.items()}
    suffix = ".lora_A.weight"
    targets = [key.removesuffix(suffix) for key in by_name if key.endswith(suffix)]
    every = find_linears(model, ALL_LINEAR)
    if absent := set(targets) - set(every):
        raise ValueError(
            f"model must have the linear layers of {directory / WEIGHTS}, and has no {min(absent)!r} to adapt"
        )
    linears = {name: every[name] for name in targets}
    wanted, found = _shapes(linears, config), {key: tuple(value.shape) for key, value in by_name.items()}
    if wanted != found:
        key = min(key for key in {*wanted, *found} if wanted.get(key) != found.get(key))
        raise ValueError(
            f"{directory / WEIGHTS} must hold {key!r} with the shape {wanted.get(key, 'of nothing')}, "
            f"got {found.get(key, 'nothing')}"
        )
    made = adapt(
        model,
        linears,
        rank=config["r"],
        alpha=config["lora_alpha"],
        scaling="alpha/sqrt(r)" if config.get("use_rslora") else "alpha/r",
        dora=bool(config.get("use_dora")),
        dropout=config.get("lora_dropout", 0.0),
    )
    with torch.no_grad():
        for name, layer in made.items():
            layer.lora_A.copy_(by_name[f"{name}.lora_A.weight"])
            layer.lora_B.copy_(by_name[f"{name}.lora_B.weight"])
            if layer.magnitude is not None:
                layer.magnitude.copy_(by_name[f"{name}.lora_magnitude_vector"])
    return made


def _check_config(config: dict[str, Any], path: Path) -> None:
    if not isinstance(config, dict) or config.get("peft_type") != "LORA":
        kind = config.get("peft_type") if isinstance(config, dict) else config
        raise ValueError(f"{path}: peft_type must be 'LORA', got {kind!r}")
    for name in ("r", "lora_alpha"):
        if not isinstance(config.get(name), int | float):
            raise ValueError(f"{path}: {name} must be a number, got {config.get(name)!r}")
    for name, neutral in _NEUTRAL.items():
        if name in config and config[name] not in neutral:
            raise ValueError(
                f"{path}: {name} must be {neutral[0]!r}, which is all that these layers know, got {config[name]!r}"
            )
    start = config.get("init_lora_weights")
    if isinstance(start, str) and start.startswith(_CHANGES_BASE):
        raise ValueError(
            f"{path}: init_lora_weights {start!r} changed the base weights, and the file does not say how; save it again "
            "with PEFT's path_initial_model_for_weight_conversion"
        )


def _shapes(linears: dict[str, nn.Linear], config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """What the file of weights has to hold."""
    wanted: dict[str, tuple[int, ...]] = {}
    for name, linear in linears.items():
        d_out, d_in = linear.weight.shape
        wanted |= {
            f"{name}.lora_A.weight": (config["r"], d_in),
            f"{name}.lora_B.weight": (d_out, config["r"]),
        }
        if config.get("use_dora"):
            wanted[f"{name}.lora_magnitude_vector"] = (d_out,)
    return wanted
