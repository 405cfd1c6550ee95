"""Encoder-decoders by transformers' own forward, on padded batches: for the families that `packed` does not compute.

Hooks on transformers' modules keep what is asked for, and stop the forward at the last of it, so that neither later
layers nor the projection to the vocabulary are computed. Pads are masked on both sides.
"""

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from contextlib import suppress
from functools import partial

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedModel

from course_lib.mbart import structure
from course_lib.mbart.packed import Packed
from course_lib.mbart.site import Site


class _AllRead(Exception):  # noqa: N818  (no error: the way out of a forward)
    """Nothing that is asked for is left to compute."""


def stages(
    model: PreTrainedModel, source: Packed, target: Packed | None, sites: AbstractSet[Site]
) -> Iterator[tuple[Site, Float[Tensor, "tokens width"]]]:
    """Sites and their states, of the given ones, sentences laid end to end as in `source` and `target`.

    `sites` are counted from the front; those of the decoder need a target. In the model's dtype. Raises ValueError for
    a site that the forward does not reach, or where it lays out states in another way.
    """
    pad = model.config.pad_token_id or 0
    ids, real = _padded(source, pad)
    inputs = {"input_ids": ids, "attention_mask": real.long()}
    kept = {"encoder": real}
    if target is None:
        inputs["decoder_input_ids"] = ids[:, :1]  # asked for by the forward, which does not reach it
    else:
        # The mask also keeps a pad with which the decoder of T5 and others begins.
        decoder_ids, kept["decoder"] = _padded(target, pad)
        inputs |= {"decoder_input_ids": decoder_ids, "decoder_attention_mask": kept["decoder"].long()}
    found: dict[Site, Tensor] = {}

    def keep(site: Site, states: Tensor) -> None:
        # Some pad further (LED); ProphetNet's decoder has its other streams behind.
        rows = kept[site.side]
        if states.ndim != 3 or states.shape[0] != rows.shape[0] or states.shape[1] < rows.shape[1]:
            raise ValueError(
                f"{type(model).__name__} has states of shape {tuple(states.shape)} at {site}; expected (sentences, tokens, "
                f"width) for ids of shape {tuple(rows.shape)}"
            )
        found[site] = states[:, : rows.shape[1]][rows].to(model.dtype)
        if len(found) == len(sites):
            raise _AllRead

    handles = []
    try:
        for site in sites:
            handles.append(structure.hook(model, site, partial(keep, site)))
        with structure.evaluation_mode(model), suppress(_AllRead):
            model(**inputs, use_cache=False)
    finally:
        for handle in handles:
            handle.remove()
    if len(found) < len(sites):
        lost = ", ".join(map(str, sites - found.keys()))
        raise ValueError(f"the forward of {type(model).__name__} does not reach {lost}")
    yield from found.items()


def _padded(
    packed: Packed, pad: int
) -> tuple[Int[Tensor, "sentences tokens"], Bool[Tensor, "sentences tokens"]]:
    """Ids with pads on the right, and the mask that is true for the sentences' own tokens."""
    rows = pad_sequence(packed.ids.split(packed.lengths), batch_first=True, padding_value=pad)
    lengths = torch.tensor(packed.lengths, device=rows.device)
    return rows, torch.arange(rows.shape[1], device=rows.device) < lengths[:, None]
