"""The configuration of a pretraining run."""

from dataclasses import dataclass
from typing import ClassVar, Literal

FAMILY = 4
"""Meanings that are drawn together: one, and three that differ from it in a single concept."""


@dataclass(frozen=True)
class PretrainConfig:
    """What decides the result: model, data, noise and optimiser. The defaults made `course-mbart`.

    `denoising_steps` come first; `translation_steps` follow, of which `denoising_share` still denoise, lest
    it is forgotten. In the last of them, a share of `alignment_share`, translations also align the encoder's
    states (`alignment_loss`). `n_meanings` and `batch_size` are multiples of `FAMILY`. `span_mean` is BART's
    Poisson mean; mBART's paper prints 3.5. There is no dropout: text is drawn in such numbers that hardly any
    of it is seen twice. With `precision="bfloat16"` matrix products run in bfloat16 (autocast); weights, sums
    and the optimiser stay in float32.
    """

    d_model: int = 256
    layers: int = 3
    heads: int = 4
    ffn_dim: int = 1024
    max_positions: int = 512
    pieces: int = 3100
    n_meanings: int = 150_000
    denoising_steps: int = 600
    translation_steps: int = 11_000
    denoising_share: float = 0.1
    alignment_share: float = 0.2
    alignment_temperature: float = 0.1
    batch_size: int = 64
    max_document: int = 3
    mask_share: float = 0.35
    span_mean: float = 3.0
    step_size: float = 2e-3
    warmup_steps: int = 200
    weight_decay: float = 0.01
    max_gradient_norm: float = 1.0
    precision: Literal["float32", "bfloat16"] = "bfloat16"
    seed: int = 0

    family: ClassVar[int] = FAMILY

    def __post_init__(self):
        for name in ("translation_steps", "n_meanings", "batch_size", "max_document"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; expected 1 or more")
        for name in ("n_meanings", "batch_size"):
            if getattr(self, name) % self.family:
                raise ValueError(f"{name} is {getattr(self, name)}; expected a multiple of {self.family}")
        if self.denoising_steps < 0:
            raise ValueError(f"denoising_steps is {self.denoising_steps}; expected 0 or more")
        if not self.alignment_temperature > 0:
            raise ValueError(f"alignment_temperature is {self.alignment_temperature}; expected more than 0")
        for name in ("denoising_share", "alignment_share"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} is {getattr(self, name)}; expected a share in [0, 1]")
        if self.precision not in ("float32", "bfloat16"):
            raise ValueError(f"precision is {self.precision!r}; expected 'float32' or 'bfloat16'")

    @property
    def steps(self) -> int:
        """Optimiser steps of both phases together."""
        return self.denoising_steps + self.translation_steps

    @property
    def alignment_steps(self) -> int:
        """The last of the steps, in which translations align the encoder's states."""
        return round(self.alignment_share * self.translation_steps)


@dataclass(frozen=True)
class TextConfig(PretrainConfig):
    """What decides the result on parallel text of a table. The defaults made `course-mbart-help`.

    `text` is the SHA-256 of the table, `languages` are its columns' codes and `n_meanings` counts its training rows:
    `text_config` fills them in. Text is read many times, so there are `dropout` and `label_smoothing` against learning it
    by heart. Rows of more than `max_tokens` tokens in one language are left out. `noised_documents` are made once and
    drawn from. A batch has `batch_size` rows in one pair of languages; all its sentences are of like length.
    """

    text: str = ""
    languages: tuple[str, ...] = ()
    n_meanings: int = 1
    pieces: int = 8000
    max_tokens: int = 128
    dropout: float = 0.2
    label_smoothing: float = 0.1
    noised_documents: int = 60_000
    denoising_steps: int = 408
    translation_steps: int = 4692
    alignment_share: float = 0.5
    batch_size: int = 512
    step_size: float = 1.5e-3
    warmup_steps: int = 255

    family: ClassVar[int] = 1

    def __post_init__(self):
        super().__post_init__()
        for name in ("dropout", "label_smoothing"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; expected a share in [0, 1)")
        if not 8 <= self.max_tokens <= self.max_positions:
            raise ValueError(
                f"max_tokens is {self.max_tokens}; expected 8 to max_positions, {self.max_positions}"
            )
        if self.noised_documents < 1:
            raise ValueError(f"noised_documents is {self.noised_documents}; expected 1 or more")
