"""Activations of encoder-decoders: any site of encoder or decoder, one vector a token or one a sentence.

Sentences are tokenised once, sorted by length, and run without padding (`course_lib.mbart.packed`), or, where a
family is not computed there, by transformers in padded batches of similar length (`course_lib.mbart.padded`). Results
come back in the order of the input and do not depend on what a sentence was batched with.
For text that does not fit in memory, see `course_lib.mbart.activation_store`.
"""

import hashlib
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, TypeVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional
from tqdm.auto import tqdm
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from course_lib.checks import all_finite
from course_lib.language.corpus import Sentence
from course_lib.mbart import packed, padded, structure
from course_lib.mbart.families import PACKED, default_language, framed, languages, shifted
from course_lib.mbart.packed import Packed, Site
from course_lib.mbart.translation import pad_rows

__all__ = [
    "NotFiniteError",
    "PooledStates",
    "Reader",
    "Site",
    "States",
    "extract",
    "masked_mean",
    "padded_pooled_states",
    "pooled_states",
    "uncounted_ids",
]

WINDOW = 8192
"""Sentences that are sorted by length together: many, so that neighbours are equally long."""

Pool = Literal["tokens", "mean", "both"]
"""One row a token, one a sentence (the mean of its tokens), or both."""

T = TypeVar("T")


class NotFiniteError(RuntimeError):
    """A sentence whose activations are NaN or infinite; the message says which."""


@dataclass(frozen=True)
class States:
    """What one site gives, on the CPU, in the order of the sentences.

    `sentence` is the index of the sentence that a row is from. Rows of tokens also have `position`, the
    place in the ids that this side of the model reads, counted from 0, and `token`, the id read there.
    Means are float32; tokens have the model's dtype. Where both were asked for, `values` are those of tokens.
    """

    values: Float[Tensor, "rows d_model"]
    sentence: Int[Tensor, " rows"]
    position: Int[Tensor, " rows"] | None = None
    token: Int[Tensor, " rows"] | None = None
    means: Float[Tensor, "sentences d_model"] | None = None


@dataclass(frozen=True)
class PooledStates:
    """Pooled states, float32 on the CPU, one row a sentence in the order of the input; the sides may differ in width."""

    encoder: Float[Tensor, "sentences d_encoder"]
    decoder: Float[Tensor, "sentences d_decoder"]


def masked_mean(
    states: Float[Tensor, "sentences tokens d_model"], mask: Bool[Tensor, "sentences tokens"]
) -> Float[Tensor, "sentences d_model"]:
    """Mean of the states that count.

    h = sum_t m_t X_t / sum_t m_t, with m_t = 1 where the token counts and 0 where it does not. The mean
    over all T positions of a padded batch would depend on the padding.

    Every row of the mask must hold at least one True; a row without gives NaN.
    """
    weights = mask.to(states.dtype)
    return torch.einsum("st,std->sd", weights, states) / weights.sum(dim=1, keepdim=True)


def extract(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    sentences: Sequence[Sentence],
    sites: Sequence[Site],
    *,
    pool: Pool | Mapping[Site, Pool] = "tokens",
    targets: Sequence[Sentence] | None = None,
    include_special: bool = False,
    tokens_per_batch: int | None = None,
    progress: bool = True,
) -> dict[Site, States]:
    """Read sentences at some sites, in one pass that stops after the last of them.

    What the model reads, for a sentence of tokens X in language `lang`:

    - encoder: `lang X </s>`;
    - decoder: `</s> lang Y`, where Y are the tokens of the sentence's target, shifted right as MBart does it
      in training, so that the state at y_t has read y_1 to y_t (and, through cross-attention, all of X)
      and predicts y_{t+1}. A target may be a translation or the beginning of one (a forced prefix).
      Without `targets`, Y = X.

    Other families frame X and Y with other tokens, or with the same in another order: see
    `course_lib.mbart.families`. What frames a sentence is called language code and `</s>` here.

    Rows are those of X and of Y; with `include_special=True` also those of the language code and `</s>`. With
    `pool="mean"` each sentence gives the mean of its rows, `masked_mean`, computed in float32; with "both" there
    are rows and means. `pool` may be given for each site alone.

    A sentence whose language is None is read in the tokenizer's default source language, if there is one. No
    batch holds more than `tokens_per_batch` tokens on either side (a longer sentence goes alone; default: 2048, on
    a GPU 16384); memory grows with it. Computed in the model's dtype on its device, without dropout.

    Raises ValueError for an unknown language, a site that the model does not have, a sentence without a
    token, a sentence longer than the model's positions, another number of targets than of sentences,
    a budget below 1, and a model that `structure.check` refuses; NotFiniteError for a sentence whose activations
    are not finite.
    """
    reader = Reader(
        model,
        tokenizer,
        tuple(sites),
        pool=pool,
        include_special=include_special,
        tokens_per_batch=tokens_per_batch,
    )
    if targets is not None and len(targets) != len(sentences):
        raise ValueError(f"there are {len(targets)} targets for {len(sentences)} sentences; expected as many")

    def windows() -> Iterator[Window]:
        for first in range(0, max(len(sentences), 1), WINDOW):
            window = slice(first, first + WINDOW)
            yield reader.prepare(sentences[window], None if targets is None else targets[window], first=first)

    with tqdm(total=len(sentences), desc="activations", unit="sentence", disable=not progress) as bar:
        parts = [reader.read(window, advance=bar.update) for window in ahead(windows())]
    return {site: _joined([part[site] for part in parts]) for site in sites}


def pooled_states(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    sentences: Sequence[Sentence],
    *,
    tokens_per_batch: int | None = None,
    include_special: bool = False,
    progress: bool = True,
) -> PooledStates:
    """Masked means over the last hidden states of encoder and decoder, for each sentence.

    The last hidden state is the output of the stack, after its final LayerNorm (the output of the last
    layer is the value before it). The decoder reads the sentence itself, shifted right. See `extract` for what
    counts and what is raised; `padded_pooled_states` is the same in fewer lines.
    """
    encoder, decoder = Site("encoder"), Site("decoder")
    states = extract(
        model,
        tokenizer,
        sentences,
        (encoder, decoder),
        pool="mean",
        include_special=include_special,
        tokens_per_batch=tokens_per_batch,
        progress=progress,
    )
    return PooledStates(encoder=states[encoder].values, decoder=states[decoder].values)


@torch.inference_mode()
def padded_pooled_states(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    sentences: Sequence[Sentence],
    *,
    include_special: bool = False,
) -> PooledStates:
    """`pooled_states` to read: one padded batch, masks, and the forward of transformers' own stacks."""
    ids, targets = (tokenise(tokenizer, sentences, target=target) for target in (False, True))
    skipped = uncounted_ids(tokenizer, include_special)
    (inputs, real), (predicting, real_targets) = (
        _padded(rows, tokenizer.pad_token_id)
        for rows in (ids, [shifted(row, model.config) for row in targets])
    )
    with structure.evaluation_mode(model):
        mask = real.long().to(model.device)
        encoder = structure.stack(model, "encoder")(input_ids=inputs.to(model.device), attention_mask=mask)
        decoder = structure.stack(model, "decoder")(
            input_ids=predicting.to(model.device),
            attention_mask=real_targets.long().to(model.device),
            encoder_hidden_states=encoder.last_hidden_state,
            encoder_attention_mask=mask,
            use_cache=False,
        )
    return PooledStates(
        encoder=masked_mean(encoder.last_hidden_state.float().cpu(), real & ~torch.isin(inputs, skipped)),
        decoder=masked_mean(
            decoder.last_hidden_state.float().cpu(), real_targets & ~torch.isin(predicting, skipped)
        ),
    )


def _padded(
    rows: list[list[int]], pad: int
) -> tuple[Int[Tensor, "sentences tokens"], Bool[Tensor, "sentences tokens"]]:
    """Pad rows of ids; return them and the mask that is true for their own tokens."""
    filled = pad_rows(rows, pad)
    return filled, torch.arange(filled.shape[1]) < torch.tensor([len(row) for row in rows])[:, None]


# --- Windows ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tokens:
    """The ids that one side reads, sentence after sentence, and which of them count."""

    ids: Int[Tensor, " tokens"]
    sentence: Int[Tensor, " tokens"]
    position: Int[Tensor, " tokens"]
    counts: Bool[Tensor, " tokens"]
    lengths: Int[Tensor, " sentences"]

    @classmethod
    def of(cls, rows: Sequence[Sequence[int]], *, skipped: Int[Tensor, " ids"]) -> "Tokens":
        """Lay rows of ids end to end."""
        lengths = torch.tensor([len(row) for row in rows], dtype=torch.long)
        ids = torch.tensor([token for row in rows for token in row], dtype=torch.long)
        sentence = torch.repeat_interleave(torch.arange(len(rows)), lengths)
        position = torch.arange(len(ids)) - (lengths.cumsum(0) - lengths)[sentence]
        return cls(ids, sentence, position, ~torch.isin(ids, skipped), lengths)

    def sampled(self, n: int, *, seed: int) -> "Tokens":
        """The same with at most n tokens of each sentence that count, drawn by the seed and the sentence's ids."""
        counts = []
        lengths = self.lengths.tolist()
        for ids, counted in zip(self.ids.split(lengths), self.counts.split(lengths), strict=True):
            places = counted.nonzero()[:, 0]
            if len(places) > n:
                digest = hashlib.sha256(f"{seed}/{ids.tolist()}".encode()).digest()
                draw = torch.Generator().manual_seed(int.from_bytes(digest[:7]))
                kept = places[torch.randperm(len(places), generator=draw)[:n]]
                counted = torch.zeros_like(counted).index_fill_(0, kept, True)
            counts.append(counted)
        return replace(self, counts=torch.cat(counts))

    def of_sentences(self, chosen: Int[Tensor, " chosen"]) -> Int[Tensor, " tokens"]:
        """Where the tokens of some sentences stand, in that order of sentences."""
        ends = self.lengths.cumsum(0)
        lengths = self.lengths[chosen]
        shift = (ends - self.lengths)[chosen] - (lengths.cumsum(0) - lengths)
        return torch.arange(int(lengths.sum())) + torch.repeat_interleave(shift, lengths)


@dataclass(frozen=True)
class Window:
    """Tokenised sentences, the first of which has the number `first` in the whole text."""

    sentences: Sequence[Sentence]
    first: int
    source: Tokens
    target: Tokens | None

    def batches(self, tokens_per_batch: int, *, padded: bool = False) -> Iterator[Int[Tensor, " chosen"]]:
        """Indices of sentences by falling length: neighbours are alike, and the largest batch comes first.

        With `padded`, pads count as tokens.
        """
        sides = [self.source] if self.target is None else [self.source, self.target]
        lengths = list(zip(*(side.lengths.tolist() for side in sides), strict=True))
        join = max if padded else operator.add
        batch, size = [], (0,) * len(sides)
        for index in sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True):
            larger = tuple(map(join, size, lengths[index]))
            if batch and max(larger) * (len(batch) + 1 if padded else 1) > tokens_per_batch:
                yield torch.tensor(batch)
                batch, larger = [], lengths[index]
            batch.append(index)
            size = larger
        if batch:
            yield torch.tensor(batch)


class Reader:
    """Reads windows of sentences at the sites of one model; arguments and errors are those of `extract`.

    With `tokens_per_sentence` at most so many tokens of a sentence count, drawn by `seed` and the sentence's tokens.
    Raises ValueError for a number below 1, and where rows are means.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        sites: Sequence[Site],
        *,
        pool: Pool | Mapping[Site, Pool] = "tokens",
        include_special: bool = False,
        tokens_per_sentence: int | None = None,
        seed: int = 0,
        tokens_per_batch: int | None = None,
    ) -> None:
        if not sites:
            raise ValueError("sites is empty; expected at least one, such as Site('encoder')")
        pools = dict(pool) if isinstance(pool, Mapping) else dict.fromkeys(sites, pool)
        for chosen in pools.values():
            if chosen not in ("tokens", "mean", "both"):
                raise ValueError(f"pool is {chosen!r}; expected 'tokens', 'mean' or 'both'")
        if pools.keys() != set(sites):
            raise ValueError(
                f"pool names {', '.join(map(str, pools)) or 'no site'}; expected {', '.join(map(str, sites))}"
            )
        if tokens_per_batch is None:
            tokens_per_batch = 16384 if model.device.type == "cuda" else 2048
        if tokens_per_batch < 1:
            raise ValueError(f"tokens_per_batch is {tokens_per_batch}; expected 1 or more")
        if tokens_per_sentence is not None and tokens_per_sentence < 1:
            raise ValueError(f"tokens_per_sentence is {tokens_per_sentence}; expected 1 or more")
        if tokens_per_sentence is not None and set(pools.values()) != {"tokens"}:
            raise ValueError(
                f"tokens_per_sentence is {tokens_per_sentence}, and rows are means of all tokens; expected pool 'tokens'"
            )
        structure.check(model)
        self.tokens_per_sentence, self.seed = tokens_per_sentence, seed
        self.model, self.tokenizer, self.pools = model, tokenizer, pools
        self.sites = {site: site.resolved(model.config) for site in sites}
        self.tokens_per_batch = tokens_per_batch
        self.skipped = uncounted_ids(tokenizer, include_special)

    @property
    def reads_targets(self) -> bool:
        """Whether some site is in the decoder."""
        return any(site.side == "decoder" for site in self.sites)

    def prepare(
        self, sentences: Sequence[Sentence], targets: Sequence[Sentence] | None = None, *, first: int = 0
    ) -> Window:
        """Tokenise and check sentences, of which the first has the number `first` in the whole text."""
        source = self._tokens(sentences, "sentence", first=first)
        target = None
        if self.reads_targets:
            read, what = (sentences, "sentence") if targets is None else (targets, "target")
            target = self._tokens(read, what, first=first, target=True)
        return Window(sentences, first, source, target)

    def _tokens(
        self, sentences: Sequence[Sentence], what: str, *, first: int, target: bool = False
    ) -> Tokens:
        rows = tokenise(self.tokenizer, sentences, first=first, what=what, target=target)
        skipped = set(self.skipped.tolist())
        limit = structure.positions(self.model, "decoder" if target else "encoder")
        for number, (row, sentence) in enumerate(zip(rows, sentences, strict=True), start=first + 1):
            # Blanks alone can leave a lone blank piece, which says nothing.
            if not sentence.text.strip() or skipped.issuperset(row):
                raise ValueError(
                    f"{what} {number} ({sentence.text!r}) has no token; remove it or give it text"
                )
            if limit is not None and len(row) > limit:
                raise ValueError(
                    f"{what} {number} has {len(row)} tokens; the model has {limit} positions: split it"
                )
        if target:
            rows = [shifted(row, self.model.config) for row in rows]
        tokens = Tokens.of(rows, skipped=self.skipped)
        if self.tokens_per_sentence is None:
            return tokens
        return tokens.sampled(self.tokens_per_sentence, seed=self.seed)

    def read(
        self, window: Window, *, advance: Callable[[int], object] = lambda n: None
    ) -> dict[Site, States]:
        """Run the model on a window, batch by batch; `advance` is told how many sentences are done."""
        device = self.model.device
        tokens = {"encoder": window.source, "decoder": window.target}
        # A token's row among those that count; results are gathered where they are computed.
        rows = {side: side_tokens.counts.cumsum(0) - 1 for side, side_tokens in tokens.items() if side_tokens}
        values, means = self._tables(window)
        by_transformers = self.model.config.model_type not in PACKED
        for batch in window.batches(self.tokens_per_batch, padded=by_transformers):
            chosen = {side: t.of_sentences(batch) for side, t in tokens.items() if t}
            laid = {
                side: Packed(
                    tokens[side].ids[places],
                    tokens[side].position[places],
                    tokens[side].lengths[batch].tolist(),
                ).to(device)
                for side, places in chosen.items()
            }
            missing = values.keys() | means.keys()
            sides = self.model, laid["encoder"], laid.get("decoder")
            with torch.inference_mode():
                reached = padded.stages(*sides, missing) if by_transformers else packed.stages(*sides)
                for site, found in reached:
                    if site not in missing:
                        continue
                    places = chosen[site.side]
                    counts = tokens[site.side].counts[places]
                    if site in means:
                        means[site][batch.to(device)] = _means(
                            found.float(), counts, tokens[site.side].lengths[batch]
                        )
                    if site in values:
                        kept = counts.nonzero()[:, 0]
                        where = rows[site.side][places[kept]]
                        values[site][where.to(device)] = found[kept.to(device)]
                    missing.remove(site)
                    if not missing:
                        break
            advance(len(batch))
        return {
            site: self._states(
                site,
                None if self.pools[site] == "mean" else values[resolved],
                None if self.pools[site] == "tokens" else means[resolved],
                window,
            )
            for site, resolved in self.sites.items()
        }

    def _tables(self, window: Window) -> tuple[dict[Site, Tensor], dict[Site, Tensor]]:
        """Empty tables for the rows of tokens and for the means of the sites that are to give them."""
        values, means = {}, {}
        empty = partial(torch.empty, device=self.model.device)
        for site, resolved in self.sites.items():
            side = window.source if site.side == "encoder" else window.target
            width = structure.width(self.model, site.side)
            if self.pools[site] != "mean":
                values[resolved] = empty(int(side.counts.sum()), width, dtype=self.model.dtype)
            if self.pools[site] != "tokens":
                means[resolved] = empty(len(window.sentences), width, dtype=torch.float32)
        return values, means

    def _states(self, site: Site, values: Tensor | None, means: Tensor | None, window: Window) -> States:
        tokens = window.source if site.side == "encoder" else window.target
        means = None if means is None else means.cpu()
        if values is None:
            states = States(means, window.first + torch.arange(len(means)))
        else:
            kept = tokens.counts
            states = States(
                values.cpu(),
                window.first + tokens.sentence[kept],
                tokens.position[kept],
                tokens.ids[kept],
                means,
            )
        if not all_finite(states.values):
            bad = ~states.values.isfinite().all(dim=1)
            number = int(states.sentence[bad.nonzero()[0, 0]])
            raise NotFiniteError(
                f"sentence {number + 1} ({window.sentences[number - window.first].text!r}) has NaN or infinite "
                f"activations at {site} in {states.values.dtype}; look at the weights, or compute in float32"
            )
        return states


def _means(
    states: Float[Tensor, "tokens d_model"],
    counts: Bool[Tensor, " tokens"],
    lengths: Int[Tensor, " sentences"],
) -> Float[Tensor, "sentences d_model"]:
    """`masked_mean` of sentences laid end to end: the mean of a bag of rows."""
    first = (counts.cumsum(0) - counts.long())[lengths.cumsum(0) - lengths]
    kept = counts.nonzero()[:, 0]
    return functional.embedding_bag(kept.to(states.device), states, first.to(states.device), mode="mean")


def _joined(parts: list[States]) -> States:
    if len(parts) == 1:
        return parts[0]
    columns = zip(*((p.values, p.sentence, p.position, p.token, p.means) for p in parts), strict=True)
    return States(*(None if column[0] is None else torch.cat(column) for column in columns))


def ahead(items: Iterator[T]) -> Iterator[T]:
    """Make the next item on another thread while this one is used: tokenise while the model runs."""
    with ThreadPoolExecutor(1) as thread:
        end = object()
        following = thread.submit(next, items, end)
        while (item := following.result()) is not end:
            following = thread.submit(next, items, end)
            yield item


# --- Tokens ----------------------------------------------------------------------------------------


def tokenise(
    tokenizer: PreTrainedTokenizerBase,
    sentences: Sequence[Sentence],
    *,
    first: int = 0,
    what: str = "sentence",
    target: bool = False,
) -> list[list[int]]:
    """Token ids with language code and `</s>`, in the order of the sentences; `target` for what is to be predicted.

    Raises ValueError for a language that the tokenizer does not know, named as `what` and its number, which
    is counted from `first` + 1.
    """
    known, default = languages(tokenizer), default_language(tokenizer)
    by_language: dict[str | None, list[int]] = {}
    for index, sentence in enumerate(sentences):
        language = sentence.language or default
        if language is not None and language not in known:
            raise ValueError(
                f"{what} {first + index + 1} has language {language!r}; this tokenizer knows "
                f"{', '.join(sorted(known)) or 'no languages: give none'}"
            )
        by_language.setdefault(language, []).append(index)
    ids: list[list[int]] = [[] for _ in sentences]
    try:
        for language, indices in by_language.items():
            texts = [sentences[i].text for i in indices]
            rows = framed(tokenizer, texts, language=language, target=target)
            for index, tokens in zip(indices, rows, strict=True):
                ids[index] = tokens
    finally:
        if default is not None:
            tokenizer.src_lang = default
    return ids


def uncounted_ids(tokenizer: PreTrainedTokenizerBase, include_special: bool) -> Int[Tensor, " ids"]:
    """Ids that do not count: language codes, `<s>`, `</s>`, and pads, one of which starts Marian's and T5's decoder.

    Unknown words and masks are part of a sentence and do.
    """
    if include_special:
        return torch.tensor([], dtype=torch.long)
    own = (tokenizer.pad_token_id, tokenizer.bos_token_id, tokenizer.eos_token_id)
    frame = {*own, *tokenizer("")["input_ids"], *languages(tokenizer).values()} - {None}
    return torch.tensor(sorted(frame))
