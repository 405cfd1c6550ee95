"""Where an encoder-decoder of transformers keeps its stacks, layers and blocks: found by how its modules are nested.

Two forms are known. A layer holds its blocks side by side (mBART, Pegasus, NLLB-MoE, T5Gemma, ...), or it holds a
list of sublayers, each a norm and one block (T5 and what was made from it). Where a norm stands between a block and
the stream (T5Gemma), what the block adds is the output of that norm. A mixture of experts is one block.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle
from transformers import PreTrainedModel

from course_lib.mbart.site import FINAL, Site, n_layers

_NAMES = {
    "attention": ("post_self_attn_layernorm", "self_attn"),
    "cross_attention": ("post_cross_attn_layernorm", "encoder_attn", "cross_attn", "cross_attention"),
    "mlp": ("post_feedforward_layernorm", "fc2", "ffn", "mlp", "feed_forward"),
}
"""What a layer calls its blocks, or the norm after them: the first name that it has is the block."""

_OTHERWISE = {
    "fsmt": "lays out the states in its layers as (tokens, sentences, width); expected (sentences, tokens, width)",
    "pegasus_x": "shifts the tokens in every other layer by half a block; expected them at their places",
}


def stack(model: PreTrainedModel, side: str) -> nn.Module:
    """The encoder or the decoder of a model. Raises ValueError where there is none."""
    found = getattr(model.base_model, side, None)
    if found is None:
        raise ValueError(f"no {side} is found in {type(model).__name__}")
    return found


def layers(model: PreTrainedModel, side: str) -> nn.ModuleList:
    """The layers of a side, in order. Raises ValueError where they are not found."""
    of_side = stack(model, side)
    for name in ("layers", "block"):
        if isinstance(found := getattr(of_side, name, None), nn.ModuleList):
            return found
    raise ValueError(
        f"no layers are found in the {side} of {type(model).__name__}; expected a list 'layers' or 'block'"
    )


def block(layer: nn.Module, site: Site) -> nn.Module:
    """The module whose output a block adds to the stream, for a site whose part is a block.

    Raises ValueError where it is not found.
    """
    sublayers = getattr(layer, "layer", None)
    if isinstance(sublayers, nn.ModuleList):
        order = ["attention", *["cross_attention"] * (site.side == "decoder"), "mlp"]
        if len(sublayers) == len(order):
            sublayer = sublayers[order.index(site.part)].named_children()
            blocks = [child for name, child in sublayer if name not in ("layer_norm", "dropout")]
            if len(blocks) == 1:
                return blocks[0]
    for name in _NAMES[site.part]:
        if (found := getattr(layer, name, None)) is not None:
            return found
    raise ValueError(f"no {site.part} is found in a {type(layer).__name__} of the {site.side}")


def check(model: PreTrainedModel) -> None:
    """Raise ValueError unless every site of the model can be found, and a sentence reads alike in every batch."""
    config = model.config
    if not config.is_encoder_decoder:
        raise ValueError(f"{type(model).__name__} is no encoder-decoder")
    for side in ("encoder", "decoder"):
        found = layers(model, side)
        if n_layers(config, side) != len(found):
            raise ValueError(
                f"the {side} of {type(model).__name__} has {len(found)} layers; its config says {n_layers(config, side)}"
            )
        for layer in found:
            for part in ("attention", *["cross_attention"] * (side == "decoder"), "mlp"):
                block(layer, Site(side, 1, part))
    if config.model_type in _OTHERWISE:
        raise ValueError(f"{type(model).__name__} {_OTHERWISE[config.model_type]}")
    if config.model_type == "bigbird_pegasus" and config.attention_type != "original_full":
        raise ValueError(
            f"attention_type is {config.attention_type!r}, which reads a sentence by the length of others in its batch; "
            "expected 'original_full'"
        )
    if config.model_type == "nllb-moe" and (
        config.second_expert_policy != "all" or config.moe_eval_capacity_token_fraction < 1
    ):
        raise ValueError(
            f"its experts are chosen by the batch or by chance (second_expert_policy {config.second_expert_policy!r}, "
            f"moe_eval_capacity_token_fraction {config.moe_eval_capacity_token_fraction}); expected 'all' and 1"
        )


@contextmanager
def evaluation_mode(model: PreTrainedModel) -> Iterator[None]:
    """Without dropout; the mode is restored afterwards."""
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)


def width(model: PreTrainedModel, side: str) -> int:
    """Length of a state of the encoder or of the decoder: T5Gemma's may differ."""
    return stack(model, side).config.hidden_size


def positions(model: PreTrainedModel, side: str) -> int | None:
    """Most tokens that the encoder or the decoder can read; None where it counts no absolute positions (T5)."""
    config = stack(model, side).config
    own = getattr(config, f"max_{side}_position_embeddings", None)  # LED
    return own or getattr(config, "max_position_embeddings", None)


def hook(model: PreTrainedModel, site: Site, function: Callable[[Tensor], Tensor | None]) -> RemovableHandle:
    """Give the states at a site, (sentences, tokens, width), to `function` whenever the model computes them.

    They are replaced by what it returns, unless that is None. `site` is counted from the front (`Site.resolved`).
    """
    if site.layer == 0:  # few models have a module that gives what their first layer reads

        def before(_: nn.Module, args: tuple, inputs: dict) -> tuple[tuple, dict] | None:
            found = function(args[0] if args else inputs["hidden_states"])
            if found is None:
                return None
            return ((found, *args[1:]), inputs) if args else (args, inputs | {"hidden_states": found})

        return layers(model, site.side)[0].register_forward_pre_hook(before, with_kwargs=True)

    def after(_: nn.Module, args: tuple, output):
        found = function(output if isinstance(output, Tensor) else output[0])
        if found is None or isinstance(output, Tensor):
            return found
        if isinstance(output, tuple):
            return (found, *output[1:])
        output["last_hidden_state"] = found
        return output

    if site.layer == FINAL:
        module = stack(model, site.side)
    else:
        module = layers(model, site.side)[site.layer - 1]
        module = module if site.part == "residual" else block(module, site)
    return module.register_forward_hook(after)
