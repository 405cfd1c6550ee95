"""The states of tokens from a store that `activations` wrote, instead of reading the text again."""

from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from course_lib.language.corpus import Sentence
from course_lib.pipeline.results import TokenStates
from course_lib.pipeline.text import InputError

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from course_lib.mbart.activation_store import ActivationStore
    from course_lib.mbart.activations import Site


def open_store(directory: Path | str) -> "ActivationStore":
    """A finished store. Raises InputError where there is none, or it is damaged or not finished."""
    from course_lib.mbart.activation_store import ActivationStore, StoreError

    try:
        return ActivationStore(directory)
    except (FileNotFoundError, StoreError) as error:
        raise InputError(str(error)) from error


def check_model(
    manifest: dict, model: "PreTrainedModel", tokenizer: "PreTrainedTokenizerBase", *, what: str
) -> None:
    """Raise InputError unless what is described there comes from this model and tokenizer."""
    from course_lib.mbart.activation_store import tokenizer_sha256, weights_sha256

    dtype = getattr(torch, manifest["computed_in"])
    if manifest["weights_sha256"] != weights_sha256(model, dtype=dtype):
        raise InputError(
            f"{what} is of another model, {manifest['model']!r}: its weights differ from this one's"
        )
    if manifest["tokenizer_sha256"] != tokenizer_sha256(tokenizer):
        raise InputError(f"{what} was made with another tokenizer than this model's")


def stored_tokens(
    directory: Path | str,
    model: "PreTrainedModel",
    tokenizer: "PreTrainedTokenizerBase",
    sentences: list[Sentence],
    *,
    site: "Site",
    held_out: Tensor,
) -> TokenStates:
    """The rows of a store as the states of the tokens of these sentences, brought into memory.

    Raises InputError for the store of another model, tokenizer, text or site, and for one whose rows are means or
    hold language codes and `</s>` too.
    """
    from course_lib.mbart.activation_store import text_sha256

    store = open_store(directory)
    manifest, what = store.manifest, f"the store {directory}"
    check_model(manifest, model, tokenizer, what=what)
    wanted = {"site": str(site.resolved(model.config)), "pool": "tokens", "include_special": False}
    for name, value in wanted.items():
        if manifest[name] != value:
            raise InputError(f"{what} has {name} {manifest[name]!r}; expected {value!r}")
    if manifest["text_sha256"] != text_sha256(sentences, shard_size=manifest["shard_size"]):
        raise InputError(
            f"{what} was made from another text, or another part of it: it has {manifest['sentences']} sentences, "
            f"the text here {len(sentences)}"
        )
    of_row = store.column("sentence")
    pieces = tokenizer.convert_ids_to_tokens(store.column("token").tolist())
    return TokenStates(sentences, store[:].float(), of_row, pieces, held_out[of_row])
