"""What may be chosen: the site, and the kind, size and sparsity of the sparse autoencoder."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from course_lib import sae
from course_lib.pipeline.results import SparseConfig, StackedConfig
from course_lib.pipeline.text import InputError

if TYPE_CHECKING:
    from course_lib.mbart.activations import Site

# Each kind, and what sets how many features are active: their number, or the weight of a penalty.
_KINDS: dict[str, tuple[type[sae.SparseAutoencoder], str]] = {
    "topk": (sae.TopKSparseAutoencoder, "k"),
    "batchtopk": (sae.BatchTopKSparseAutoencoder, "k"),
    "matryoshka": (sae.MatryoshkaTopKSparseAutoencoder, "k"),
    "matryoshka-batchtopk": (sae.MatryoshkaBatchTopKSparseAutoencoder, "k"),
    "relu": (sae.ReluSparseAutoencoder, "l1"),
    "gated": (sae.GatedSparseAutoencoder, "l1"),
    "jumprelu": (sae.JumpReluSparseAutoencoder, "l0"),
}
PENALTIES: dict[str, float] = {"relu": 0.3, "gated": 0.3, "jumprelu": 0.003}


def site_of(text: str) -> "Site":
    """The site that `encoder`, `encoder.6.mlp` and the like name. Raises InputError for anything else."""
    from course_lib.mbart.activations import Site

    try:
        return Site(text) if "." not in text else Site.parse(text)
    except ValueError as error:
        raise InputError(f"site {text!r}: {error}") from error


def sparse_config(
    *,
    kind: str | None = None,
    features: int | None = None,
    k: int | None = None,
    penalty: float | int | None = None,
    steps: int | None = None,
) -> SparseConfig:
    """The sparse autoencoder's default settings but for what is given.

    Raises InputError for a kind that there is not, for a number below 1, and for `k` or `penalty` where the kind is
    made sparse by the other.
    """
    made = SparseConfig()
    for name, value in (("features", features), ("k", k), ("steps", steps)):
        if value is not None and value < 1:
            raise InputError(f"{name} is {value}; expected 1 or more")
    if penalty is not None and not 0 <= penalty < float("inf"):
        raise InputError(f"penalty is {penalty}; expected 0 or more")
    given = {"kind": kind, "n_features": features, "k": k, "penalty": penalty}
    made = replace(made, **{name: value for name, value in given.items() if value is not None})
    if steps is not None:
        made = replace(made, training=replace(made.training, steps=steps))
    if made.kind not in _KINDS:
        raise InputError(f"kind is {made.kind!r}; expected one of {', '.join(_KINDS)}")
    by_k = _KINDS[made.kind][1] == "k"
    if by_k and penalty is not None:
        raise InputError(f"penalty is {penalty}, and {made.kind} has none: its sparsity is k")
    if not by_k and k is not None:
        raise InputError(f"k is {k}, and {made.kind} has none: its sparsity is set by penalty")
    return made


def penalty_of(config: SparseConfig) -> float | None:
    """The weight of the sparsity penalty; None for kinds that have a number of active features instead."""
    if _KINDS[config.kind][1] == "k":
        return None
    return PENALTIES[config.kind] if config.penalty is None else float(config.penalty)


def dictionary(
    config: SparseConfig, d_model: int, *, generator: torch.Generator | None = None
) -> sae.SparseAutoencoder:
    """A new sparse autoencoder of states of width `d_model`. Raises InputError where the sizes do not fit."""
    n_features = 8 * d_model if config.n_features is None else config.n_features
    made, by = _KINDS[config.kind]
    value = min(config.k, n_features) if by == "k" else penalty_of(config)
    try:
        return made(d_model, n_features, **{by: value}, generator=generator)
    except ValueError as error:
        raise InputError(str(error)) from error


def choice_of(
    sparse: SparseConfig, stacked: StackedConfig, n_features: int, **others: Any
) -> dict[str, Any] | None:
    """The options of the command that make this run again; None where it has no options for some setting."""
    penalty = penalty_of(sparse)
    options = {
        "kind": str(sparse.kind),
        "features": n_features,
        "k": sparse.k if penalty is None else None,
        "penalty": penalty,
        "steps": sparse.training.steps,
    }
    of_options = sparse_config(**options)
    same = of_options.training == sparse.training and stacked == StackedConfig()
    return others | options if same else None
