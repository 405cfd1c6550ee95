"""What may be chosen of both autoencoders: kind, sizes, sparsity, training."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from course_lib import sae


class InputError(ValueError):
    """Something that was asked for cannot be used; the message says what, where and what to do."""


@dataclass(frozen=True)
class StackedConfig:
    """The stacked autoencoder of a run: widths (None: d/2, d/8), loss weights and training.

    With `alpha`, in place of `widths`, the code has as many units as PCA needs components for that share of the
    variance of the training sentences, k(alpha), and the layer before it d/2 units or as many as the code.

    With `beta` 0.01 no unit of `course-mbart`'s code comes within 0.025 of `rho`; with 0.3 all do (lesson 35).
    """

    widths: tuple[int, ...] | None = None
    beta: float = 0.3
    rho: float = 0.05
    gamma: float = 0.02
    alpha: float | None = None
    training: sae.TrainConfig = field(default_factory=lambda: sae.TrainConfig(steps=3000, step_size=1e-2))


@dataclass(frozen=True)
class SparseConfig:
    """The sparse autoencoder of a run: number of features (None: 8 d), active features a token, training, kind.

    The default is the best TopK of 2,000 steps of 1,024 rows in `course_lib/measured/gpu/features.json`: of 2 d
    features some stand for several words (271 for 368 concepts), of 8 d nearly every word of the built-in corpus has
    its own. Adam remembers the squares of the last ten steps or so: with its usual thousand, fewer concepts have one
    feature (88% for 91% of them, `course_lib/measured/features.json`).
    """

    n_features: int | None = None
    k: int = 8
    training: sae.TrainConfig = field(
        default_factory=lambda: sae.TrainConfig(
            steps=2000,
            batch_size=1024,
            step_size=4e-3,
            betas=(0.9, 0.9),
            unit_norm_decoder=True,
            revive_every=250,
        )
    )
    kind: str = "topk"
    penalty: float | int | None = None  # of kinds without k; None: `PENALTIES`
    aux_k: int = 0  # of kinds with k: AuxK by so many dead features a row


# Each kind, and what sets how many features are active: their number, the weight of a penalty, or ("") the target
# frequencies of `_GBA`.
_KINDS: dict[str, tuple[type[sae.SparseAutoencoder], str]] = {
    "topk": (sae.TopKSparseAutoencoder, "k"),
    "batchtopk": (sae.BatchTopKSparseAutoencoder, "k"),
    "matryoshka": (sae.MatryoshkaTopKSparseAutoencoder, "k"),
    "matryoshka-batchtopk": (sae.MatryoshkaBatchTopKSparseAutoencoder, "k"),
    "relu": (sae.ReluSparseAutoencoder, "l1"),
    "gated": (sae.GatedSparseAutoencoder, "l1"),
    "jumprelu": (sae.JumpReluSparseAutoencoder, "l0"),
    "gba": (sae.GroupBiasAdaptedAutoencoder, ""),
}
_GBA = {"groups": 6, "highest": 0.05, "lowest": 0.0005}
DEAD_AFTER = 50  # steps without a row in which a feature is active, after which AuxK calls it dead
PENALTIES: dict[str, float] = {"relu": 0.3, "gated": 0.3, "jumprelu": 0.003}


def sparse_config(
    *,
    kind: str | None = None,
    features: int | None = None,
    k: int | None = None,
    penalty: float | int | None = None,
    steps: int | None = None,
    auxk: int | None = None,
) -> SparseConfig:
    """The sparse autoencoder's default settings but for what is given; the default k is at most `features`.

    Raises InputError for a kind that there is not, for a number below 1, for more than `features` active ones, and for
    `k`, `auxk` or `penalty` where the kind is made sparse by the other.
    """
    made = SparseConfig()
    for name, value in (("features", features), ("k", k), ("steps", steps)):
        if value is not None and value < 1:
            raise InputError(f"{name} is {value}; expected 1 or more")
    if auxk is not None and auxk < 0:
        raise InputError(f"auxk is {auxk}; expected 0 (no such loss) or more")
    if penalty is not None and not 0 <= penalty < float("inf"):
        raise InputError(f"penalty is {penalty}; expected 0 or more")
    if k is None and features is not None:
        made = replace(made, k=min(made.k, features))
    given = {"kind": kind, "n_features": features, "k": k, "penalty": penalty, "aux_k": auxk}
    made = replace(made, **{name: value for name, value in given.items() if value is not None})
    if steps is not None:
        made = replace(made, training=replace(made.training, steps=steps))
    if made.kind not in _KINDS:
        raise InputError(f"kind is {made.kind!r}; expected one of {', '.join(_KINDS)}")
    by = "penalty" if made.kind in PENALTIES else _KINDS[made.kind][1]
    for name, value in (("k", k), ("penalty", penalty)):
        if value is not None and name != by:
            raise InputError(
                f"{name} is {value}, and {made.kind} has none: its sparsity is set by {by or 'target frequencies'}"
            )
    if made.aux_k and by != "k":
        raise InputError(f"auxk is {auxk}, and {made.kind} has none; expected a kind with k")
    if made.kind == "gba":  # its directions are tied and of length 1, and its biases wake dead features
        made = replace(made, training=replace(made.training, unit_norm_decoder=False, revive_every=0))
    for name, value, least in (("k", k, 1), ("auxk", auxk, 0)):
        if value is not None and features is not None and value > features:
            raise InputError(f"{name} is {value}; expected {least} to the number of features, {features}")
    return made


def stacked_config(
    *,
    widths: Sequence[int] | None = None,
    beta: float | int | None = None,
    rho: float | int | None = None,
    gamma: float | int | None = None,
    alpha: float | int | None = None,
) -> StackedConfig:
    """The stacked autoencoder's default settings but for what is given.

    Raises InputError for no width or one below 1, negative or infinite beta and gamma, rho not between 0 and 1, alpha not
    above 0 and up to 1, and for widths and alpha together.
    """
    for name, value in (("beta", beta), ("gamma", gamma)):
        if value is not None and not 0 <= value < float("inf"):
            raise InputError(f"{name} is {value}; expected 0 or more")
    if rho is not None and not 0 < rho < 1:
        raise InputError(f"rho is {rho}; expected a mean activation between 0 and 1")
    if alpha is not None and not 0 < alpha <= 1:
        raise InputError(f"alpha is {alpha}; expected a share of the variance, above 0 and up to 1")
    if widths is not None and (not widths or min(widths) < 1):
        raise InputError(
            f"widths is {list(widths)}; expected units of each layer, 1 or more, the code's last"
        )
    if widths is not None and alpha is not None:
        raise InputError(
            f"alpha is {alpha}, and widths {list(widths)}: both set the code's width; expected one"
        )
    given = {
        "widths": None if widths is None else tuple(widths),
        **{"beta": beta, "rho": rho, "gamma": gamma, "alpha": alpha},
    }
    return replace(StackedConfig(), **{name: value for name, value in given.items() if value is not None})


def check_too_long(max_tokens: int | None, too_long: str | None, text: Path | str) -> None:
    """Raise InputError for `too_long` that is unknown, or alone, and for `max_tokens` of the built-in text."""
    if too_long not in (None, "cut", "skip"):
        raise InputError(f"too_long is {too_long!r}; expected 'cut' or 'skip'")
    if too_long is not None and max_tokens is None:
        raise InputError(f"too_long is {too_long!r} without max_tokens; expected both, or neither")
    if max_tokens is not None and text == "builtin":
        raise InputError(
            f"max_tokens is {max_tokens}, and the text builtin; expected a file: its sentences are short"
        )


def penalty_of(config: SparseConfig) -> float | None:
    """The weight of the sparsity penalty; None for kinds without one."""
    if config.kind not in PENALTIES:
        return None
    return PENALTIES[config.kind] if config.penalty is None else float(config.penalty)


def dictionary(
    config: SparseConfig, d_model: int, *, generator: torch.Generator | None = None
) -> sae.SparseAutoencoder:
    """A new sparse autoencoder of states of width `d_model`. Raises InputError where the sizes do not fit."""
    n_features = 8 * d_model if config.n_features is None else config.n_features
    made, by = _KINDS[config.kind]
    if by:
        settings = {by: config.k if by == "k" else penalty_of(config)}
        if config.aux_k:
            settings |= {"aux_k": config.aux_k, "dead_after": DEAD_AFTER * config.training.batch_size}
    else:
        settings = _GBA | {"groups": min(_GBA["groups"], n_features)}
    try:
        return made(d_model, n_features, **settings, generator=generator)
    except ValueError as error:
        raise InputError(str(error)) from error


def record_choice(
    sparse: SparseConfig, stacked: StackedConfig, n_features: int, **others: Any
) -> dict[str, Any] | None:
    """The options of the command that make this run again; None where it has no options for some setting."""
    penalty = penalty_of(sparse)
    options = {
        "kind": str(sparse.kind),
        "features": n_features,
        "k": sparse.k if _KINDS[sparse.kind][1] == "k" else None,
        "penalty": penalty,
        "steps": sparse.training.steps,
        "auxk": sparse.aux_k or None,
    }
    of_stacked = {name: getattr(stacked, name) for name in ("widths", "beta", "rho", "gamma", "alpha")}
    same = sparse_config(**options).training == sparse.training and stacked == stacked_config(**of_stacked)
    if stacked.widths is not None:
        of_stacked["widths"] = ",".join(map(str, stacked.widths))
    return others | options | of_stacked if same else None
