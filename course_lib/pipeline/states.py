"""The states that a run trains on: read by the model, or those of tokens taken from a store that `activations` wrote."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from course_lib.language.corpus import Sentence
from course_lib.mbart.site import Site
from course_lib.pipeline.config import InputError
from course_lib.pipeline.text import BUILTIN, read_text, token_concepts, token_words

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from course_lib.mbart.activation_store import ActivationStore


@dataclass(frozen=True)
class SentenceStates:
    """Sentences, their pooled states (sentences, d_model), and which of them are held out."""

    sentences: list[Sentence]
    states: Tensor
    held_out: Tensor

    @property
    def languages(self) -> list[str | None]:
        """The language of each sentence, None where it is not known."""
        return [sentence.language for sentence in self.sentences]

    @property
    def sides(self) -> dict[str, Tensor]:
        """States to train on and held-out states."""
        return {"train": self.states[~self.held_out], "held_out": self.states[self.held_out]}


@dataclass(frozen=True)
class TokenStates:
    """States of all tokens of some sentences, and for each token its sentence, piece and side."""

    sentences: list[Sentence]
    states: Float[Tensor, "tokens d_model"]
    sentence: Int[Tensor, " tokens"]
    pieces: list[str]
    held_out: Bool[Tensor, " tokens"]
    concepts: list[frozenset[str]] | None = (
        None  # those of whose word each token is a part, where words are known
    )
    words: Int[Tensor, "tokens 2"] | None = (
        None  # between which characters of its sentence the word of each token stands, where that is known
    )

    @property
    def train(self) -> Tensor:
        """States to train on: a copy of most of the table."""
        return self.states[~self.held_out]

    def largest(self, values: Float[Tensor, "tokens units"]) -> Float[Tensor, "sentences units"]:
        """The largest value of each unit over the tokens of each sentence."""
        index = self.sentence[:, None].expand_as(values)
        empty = values.new_full((len(self.sentences), values.shape[1]), -float("inf"))
        return empty.scatter_reduce(0, index, values, "amax")


def read_states(
    model: "PreTrainedModel",
    tokenizer: "PreTrainedTokenizerBase",
    sentences: list[Sentence],
    *,
    site: Site,
    held_out: Tensor,
    store: Path | str | None = None,
    progress: bool,
) -> tuple[dict[str, Tensor], TokenStates]:
    """Read the sentences once: their vectors in encoder, decoder and at `site`, and the states of their tokens there.

    With `store` the states of tokens are those of the store, and the model is read for vectors alone.

    Raises InputError for a site that the model does not have, for a sentence without a token, or longer than the model
    can read, and for a store that is not of this model, text and site.
    """
    from course_lib.mbart.activations import extract

    sites = {place.short: place for place in (Site("encoder"), Site("decoder"), site)}
    pools = dict.fromkeys(sites.values(), "mean") | ({} if store is not None else {site: "both"})
    try:
        site.resolved(model.config)
    except ValueError as error:
        raise InputError(str(error)) from error
    tokens = None
    if store is not None:
        tokens = stored_tokens(store, model, tokenizer, sentences, site=site, held_out=held_out)
    try:
        states = extract(model, tokenizer, sentences, list(pools), pool=pools, progress=progress)
    except ValueError as error:
        raise InputError(f"{error} (sentences are counted without blank lines)") from error
    if tokens is None:
        of_site = states[site]
        tokens = _token_states(
            tokenizer,
            sentences,
            of_site.values.float(),
            of_site.sentence,
            of_site.token,
            site=site,
            held_out=held_out,
        )
    if any(sentence.words for sentence in sentences):
        tokens = replace(tokens, concepts=token_concepts(tokenizer, sentences, target=site.side == "decoder"))
    vectors = {
        name: states[place].means if pools[place] == "both" else states[place].values
        for name, place in sites.items()
    }
    return vectors, tokens


def open_store(directory: Path | str) -> "ActivationStore":
    """A finished store. Raises InputError where there is none, or it is damaged or not finished."""
    from course_lib.mbart.activation_store import ActivationStore, StoreError

    try:
        return ActivationStore(directory)
    except (FileNotFoundError, StoreError) as error:
        raise InputError(str(error)) from error


def hold_out(
    store: "ActivationStore", share: float | int, *, generator: torch.Generator
) -> Bool[Tensor, " rows"]:
    """Which rows of a store are held out: those of a share of its different sentences, at least 2, drawn at random.

    Sentences of the same tokens stay on one side; where rows are means, tokens are not known, and each sentence
    stands for itself. Raises InputError for a share that is not from 0 (none) to below 1, and where no sentence would
    be left to train on.
    """
    if not 0 <= share < 1:
        raise InputError(f"held_out is {share}; expected a share of the sentences, from 0 (none) to below 1")
    of_row = store.column("sentence")
    if share == 0:
        return torch.zeros(len(of_row), dtype=torch.bool)
    # Rows are in the order of the sentences, so that each sentence is one stretch of them.
    numbers, lengths = of_row.unique_consecutive(return_counts=True)
    keys: list[int | bytes] = numbers.tolist()
    if "token" in store.columns:
        keys = [tokens.numpy().tobytes() for tokens in store.column("token").split(lengths.tolist())]
    different = list(dict.fromkeys(keys))
    n_chosen = max(2, round(share * len(different)))
    if n_chosen >= len(different):
        raise InputError(
            f"held_out is {share}, which is {n_chosen} of the store's {len(different)} different sentences; expected "
            "some to be left to train on, or 0 to hold out none"
        )
    order = torch.randperm(len(different), generator=generator)[:n_chosen].tolist()
    chosen = {different[place] for place in order}
    return torch.tensor([key in chosen for key in keys]).repeat_interleave(lengths)


def stored_pairs(
    store: "ActivationStore",
    text: Path | str,
    sentences: Int[Tensor, " chosen"],
    *,
    known: Collection[str],
    tokenizer: "PreTrainedTokenizerBase",
    columns: Mapping[str, str] | None = None,
) -> list[tuple[Sentence, Sentence | None]]:
    """What encoder and decoder read for these sentences of a store, given by number; None where it is the same.

    `text` and `columns` (see `read_text`) are what the store was made of, `known` are the model's languages. Raises
    InputError for another text.
    """
    from course_lib.mbart import activation_store as stores
    from course_lib.mbart.too_long import TokenLimit

    manifest = store.manifest
    if text == BUILTIN:
        lines = [line.sentence for line in read_text(BUILTIN, seed=0, limit=manifest["sentences"])]
    else:
        numbered = stores.read_numbered(text, languages=known, columns=columns)
        if "max_tokens" in manifest:
            limit = TokenLimit(tokenizer, manifest["max_tokens"], manifest["too_long"], targets=True)
            numbered = limit.apply((number, stores.pair(item)) for number, item in numbered)
        lines = [item for _, item in islice(numbered, manifest["sentences"])]
    if stores.text_sha256(lines, shard_size=manifest["shard_size"]) != manifest["text_sha256"]:
        raise InputError(
            f"text is {str(text)!r}, which is not what the store {store.directory} was made of; expected the same text "
            f"as in `activations` ({BUILTIN}: with seed 0), whose held-out sentences are known"
        )
    return [stores.pair(lines[number]) for number in sentences.tolist()]


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
    site: Site,
    held_out: Tensor,
) -> TokenStates:
    """The rows of a store as the states of the tokens of these sentences, brought into memory.

    Raises InputError for the store of another model, tokenizer, text or site, for one whose rows are means, of some
    tokens of a sentence alone, or of language codes and `</s>` too, and for one that is damaged.
    """
    from course_lib.mbart.activation_store import StoreError, text_sha256

    store = open_store(directory)
    manifest, what = store.manifest, f"the store {directory}"
    check_model(manifest, model, tokenizer, what=what)
    wanted = {
        "site": str(site.resolved(model.config)),
        "pool": "tokens",
        "include_special": False,
        "tokens_per_sentence": None,
    }
    for name, value in wanted.items():
        if manifest.get(name) != value:
            raise InputError(f"{what} has {name} {manifest.get(name)!r}; expected {value!r}")
    if manifest["text_sha256"] != text_sha256(sentences, shard_size=manifest["shard_size"]):
        raise InputError(
            f"{what} was made from another text, or another part of it: it has {manifest['sentences']} sentences, "
            f"the text here {len(sentences)}"
        )
    try:
        of_row, of_token, states = store.column("sentence"), store.column("token"), store[:].float()
    except StoreError as error:
        raise InputError(str(error)) from error
    return _token_states(tokenizer, sentences, states, of_row, of_token, site=site, held_out=held_out)


def _token_states(
    tokenizer: "PreTrainedTokenizerBase",
    sentences: list[Sentence],
    states: Float[Tensor, "tokens d_model"],
    sentence: Int[Tensor, " tokens"],
    token: Int[Tensor, " tokens"],
    *,
    site: Site,
    held_out: Tensor,
) -> TokenStates:
    """States of tokens with their pieces and words; `token` are their numbers in the tokenizer."""
    return TokenStates(
        sentences,
        states,
        sentence,
        tokenizer.convert_ids_to_tokens(token.tolist()),
        held_out[sentence],
        words=token_words(tokenizer, sentences, token, target=site.side == "decoder"),
    )
