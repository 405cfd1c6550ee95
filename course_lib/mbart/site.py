"""Places in a model and their names. Imports nothing heavy: what only names a site need not wait for transformers."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

FINAL = "final"


@dataclass(frozen=True)
class Site:
    """A place in the model whose values are taken.

    - `layer` 0 is the output of the embeddings, `layer` i that of layer i, -1 that of the last one.
    - `part` "residual" is the stream after the layer; "attention", "cross_attention" (decoder) and "mlp" are
      what these blocks add to it, after their last projection (T5Gemma: after the norm behind it).
    - `layer` "final" is the last hidden state, after the stack's final LayerNorm: what transformers calls
      `last_hidden_state`. It is not the output of the last layer, which is the value before that norm. BART,
      Marian and others have a norm after each block instead: theirs is the output of the last layer.

    Written `encoder.final`, `encoder.3`, `decoder.-1.mlp`. Raises ValueError for anything else.
    """

    side: str
    layer: int | str = FINAL
    part: str = "residual"

    def __post_init__(self) -> None:
        parts = ("residual", "attention", "mlp") + ("cross_attention",) * (self.side == "decoder")
        if self.side not in ("encoder", "decoder"):
            raise ValueError(f"side is {self.side!r}; expected 'encoder' or 'decoder'")
        if isinstance(self.layer, str) and self.layer != FINAL:
            raise ValueError(f"layer is {self.layer!r}; expected a number or {FINAL!r}")
        if self.part not in parts:
            raise ValueError(f"part is {self.part!r}; the {self.side} has {', '.join(parts)}")
        if self.layer in (0, FINAL) and self.part != "residual":
            raise ValueError(f"layer {self.layer} has no {self.part}; expected part 'residual' there")

    @classmethod
    def parse(cls, text: str) -> "Site":
        """Read `side.layer` or `side.layer.part`, such as `decoder.-1.mlp`; `encoder` alone is `encoder.final`."""
        side, dot, rest = text.partition(".")
        layer, _, part = rest.partition(".") if dot else (FINAL, "", "")
        if layer != FINAL:
            try:
                layer = int(layer)
            except ValueError:
                raise ValueError(
                    f"site is {text!r}; expected side.layer or side.layer.part, such as encoder.final, "
                    "encoder.3 or decoder.-1.mlp"
                ) from None
        return cls(side, layer, part or "residual")

    def __str__(self) -> str:
        return f"{self.side}.{self.layer}" + (f".{self.part}" if self.part != "residual" else "")

    @property
    def short(self) -> str:
        """Its name without `.final`, which `parse` reads as well: `encoder` for `encoder.final`."""
        return str(self).removesuffix(f".{FINAL}")

    def resolved(self, config: "PreTrainedConfig") -> "Site":
        """The same site counted from the front. Raises ValueError for a layer that the model does not have."""
        if self.layer == FINAL:
            return self
        last = n_layers(config, self.side)
        if not -last <= self.layer <= last:
            raise ValueError(
                f"layer is {self.layer}; the {self.side} has layers 1 to {last}, 0 before them, and "
                f"-1 to -{last} from the end"
            )
        return replace(self, layer=self.layer + last + 1) if self.layer < 0 else self


def n_layers(config: "PreTrainedConfig", side: str) -> int:
    """Number of layers of the encoder or of the decoder, whatever the configuration calls it."""
    of_side = getattr(config, side, config)  # T5Gemma has a configuration for each
    for name in (f"{side}_layers", f"num_{side}_layers", "num_hidden_layers"):
        if hasattr(of_side, name):
            return getattr(of_side, name)
    raise ValueError(
        f"the configuration of {config.model_type!r} does not say how many layers its {side} has"
    )
