"""Activations of mBART: any site of encoder or decoder, one vector a token or one a sentence.

Sentences are tokenised once, sorted by length, and run without padding (`course_lib.mbart.packed`);
results come back in the order of the input and do not depend on what a sentence was batched with.
For text that does not fit in memory, see `course_lib.mbart.activation_store`.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, TypeVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional
from tqdm.auto import tqdm
from transformers import MBartForConditionalGeneration, PreTrainedTokenizerBase
from transformers.models.mbart.modeling_mbart import shift_tokens_right

from course_lib.mbart.corpus import Sentence
from course_lib.mbart.packed import Packed, Site, stages

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

T = TypeVar("T")


class NotFiniteError(RuntimeError):
    """A sentence whose activations are NaN or infinite; the message says which."""


@dataclass(frozen=True)
class States:
    """What one site gives, on the CPU, in the order of the sentences.

    `sentence` is the index of the sentence that a row is from. Rows of tokens also have `position`, the
    place in the ids that this side of the model reads, counted from 0, and `token`, the id read there.
    Means are float32; tokens have the model's dtype.
    """

    values: Float[Tensor, "rows d_model"]
    sentence: Int[Tensor, " rows"]
    position: Int[Tensor, " rows"] | None = None
    token: Int[Tensor, " rows"] | None = None


@dataclass(frozen=True)
class PooledStates:
    """Pooled states, float32 on the CPU, one row a sentence in the order of the input."""

    encoder: Float[Tensor, "sentences d_model"]
    decoder: Float[Tensor, "sentences d_model"]


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
    model: MBartForConditionalGeneration,
    tokenizer: PreTrainedTokenizerBase,
    sentences: Sequence[Sentence],
    sites: Sequence[Site],
    *,
    pool: Literal["tokens", "mean"] = "tokens",
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

    Rows are those of X and of Y; with `include_special=True` also those of the language code and `</s>`. With
    `pool="mean"` each sentence gives the mean of its rows, `masked_mean`, computed in float32.

    A sentence whose language is None is read in the tokenizer's default source language. No batch holds
    more than `tokens_per_batch` tokens on either side (a longer sentence goes alone; default: 2048, on a
    GPU 16384); memory grows with it. Computed in the model's dtype on its device, without dropout.

    Raises ValueError for an unknown language, a site that the model does not have, a sentence without a
    token, a sentence longer than the model's positions, another number of targets than of sentences,
    and a budget below 1; NotFiniteError for a sentence whose activations are not finite.
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
    model: MBartForConditionalGeneration,
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
    model: MBartForConditionalGeneration,
    tokenizer: PreTrainedTokenizerBase,
    sentences: Sequence[Sentence],
    *,
    include_special: bool = False,
) -> PooledStates:
    """`pooled_states` to read: one padded batch, masks, and transformers' own forward."""
    ids = tokenise(tokenizer, sentences)
    skipped = uncounted_ids(tokenizer, include_special)
    inputs = torch.nn.utils.rnn.pad_sequence(
        [torch.tensor(row) for row in ids], batch_first=True, padding_value=tokenizer.pad_token_id
    )
    real = torch.arange(inputs.shape[1]) < torch.tensor([len(row) for row in ids])[:, None]
    shifted = shift_tokens_right(inputs, tokenizer.pad_token_id)
    with _evaluation_mode(model):
        # No mask for the decoder: it is causal, and the pads stand to the right of all that counts.
        output = model.model(
            input_ids=inputs.to(model.device),
            attention_mask=real.to(model.device),
            decoder_input_ids=shifted.to(model.device),
            use_cache=False,
        )
    # `real` serves both sides: the shift moves tokens but not how many there are.
    return PooledStates(
        encoder=masked_mean(
            output.encoder_last_hidden_state.float().cpu(), real & ~torch.isin(inputs, skipped)
        ),
        decoder=masked_mean(output.last_hidden_state.float().cpu(), real & ~torch.isin(shifted, skipped)),
    )


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

    def batches(self, tokens_per_batch: int) -> Iterator[Int[Tensor, " chosen"]]:
        """Indices of sentences by falling length: neighbours are alike, and the largest batch comes first."""
        sides = [self.source] if self.target is None else [self.source, self.target]
        lengths = list(zip(*(side.lengths.tolist() for side in sides), strict=True))
        batch, size = [], (0,) * len(sides)
        for index in sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True):
            larger = tuple(a + b for a, b in zip(size, lengths[index], strict=True))
            if batch and max(larger) > tokens_per_batch:
                yield torch.tensor(batch)
                batch, larger = [], lengths[index]
            batch.append(index)
            size = larger
        if batch:
            yield torch.tensor(batch)


class Reader:
    """Reads windows of sentences at the sites of one model; arguments and errors are those of `extract`."""

    def __init__(
        self,
        model: MBartForConditionalGeneration,
        tokenizer: PreTrainedTokenizerBase,
        sites: Sequence[Site],
        *,
        pool: Literal["tokens", "mean"] = "tokens",
        include_special: bool = False,
        tokens_per_batch: int | None = None,
    ) -> None:
        if not sites:
            raise ValueError("sites is empty; expected at least one, such as Site('encoder')")
        if pool not in ("tokens", "mean"):
            raise ValueError(f"pool is {pool!r}; expected 'tokens' or 'mean'")
        if tokens_per_batch is None:
            tokens_per_batch = 16384 if model.device.type == "cuda" else 2048
        if tokens_per_batch < 1:
            raise ValueError(f"tokens_per_batch is {tokens_per_batch}; expected 1 or more")
        self.model, self.tokenizer, self.pool = model, tokenizer, pool
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
            target = self._tokens(read, what, first=first, shifted=True)
        return Window(sentences, first, source, target)

    def _tokens(
        self, sentences: Sequence[Sentence], what: str, *, first: int, shifted: bool = False
    ) -> Tokens:
        rows = tokenise(self.tokenizer, sentences, first=first, what=what)
        skipped, limit = set(self.skipped.tolist()), self.model.config.max_position_embeddings
        for number, (row, sentence) in enumerate(zip(rows, sentences, strict=True), start=first + 1):
            # Blanks alone can leave a lone blank piece, which says nothing.
            if not sentence.text.strip() or skipped.issuperset(row):
                raise ValueError(
                    f"{what} {number} ({sentence.text!r}) has no token; remove it or give it text"
                )
            if len(row) > limit:
                raise ValueError(
                    f"{what} {number} has {len(row)} tokens; the model has {limit} positions: split it"
                )
        if shifted:  # what shift_tokens_right does to a row without pads
            rows = [row[-1:] + row[:-1] for row in rows]
        return Tokens.of(rows, skipped=self.skipped)

    def read(
        self, window: Window, *, advance: Callable[[int], object] = lambda n: None
    ) -> dict[Site, States]:
        """Run the model on a window, batch by batch; `advance` is told how many sentences are done."""
        device, d_model = self.model.device, self.model.config.d_model
        tokens = {"encoder": window.source, "decoder": window.target}
        dtype = torch.float32 if self.pool == "mean" else self.model.dtype
        # A token's row among those that count; results are gathered where they are computed.
        rows = {side: side_tokens.counts.cumsum(0) - 1 for side, side_tokens in tokens.items() if side_tokens}
        values = {
            site: torch.empty(
                len(window.sentences) if self.pool == "mean" else int(tokens[site.side].counts.sum()),
                d_model,
                dtype=dtype,
                device=device,
            )
            for site in self.sites.values()
        }
        for batch in window.batches(self.tokens_per_batch):
            chosen = {side: t.of_sentences(batch) for side, t in tokens.items() if t}
            packed = {
                side: Packed(
                    tokens[side].ids[places],
                    tokens[side].position[places],
                    tokens[side].lengths[batch].tolist(),
                ).to(device)
                for side, places in chosen.items()
            }
            missing = set(values)
            with torch.inference_mode():
                for site, found in stages(self.model, packed["encoder"], packed.get("decoder")):
                    if site in missing:
                        places = chosen[site.side]
                        counts = tokens[site.side].counts[places]
                        if self.pool == "mean":
                            means = _means(found.float(), counts, tokens[site.side].lengths[batch])
                            values[site][batch.to(device)] = means
                        else:
                            kept = counts.nonzero()[:, 0]
                            where = rows[site.side][places[kept]]
                            values[site][where.to(device)] = found[kept.to(device)]
                        missing.remove(site)
                    if not missing:
                        break
            advance(len(batch))
        return {
            site: self._states(site, values[resolved].cpu(), window) for site, resolved in self.sites.items()
        }

    def _states(self, site: Site, values: Tensor, window: Window) -> States:
        tokens = window.source if site.side == "encoder" else window.target
        if self.pool == "mean":
            states = States(values, window.first + torch.arange(len(values)))
        else:
            kept = tokens.counts
            states = States(
                values, window.first + tokens.sentence[kept], tokens.position[kept], tokens.ids[kept]
            )
        # A sum is finite only where all its terms are (or overflows, which the rows then tell apart).
        if not values.sum(dtype=torch.float64).isfinite():
            bad = ~values.isfinite().all(dim=1)
            if bad.any():
                number = int(states.sentence[bad.nonzero()[0, 0]])
                raise NotFiniteError(
                    f"sentence {number + 1} ({window.sentences[number - window.first].text!r}) has NaN or infinite "
                    f"activations at {site} in {values.dtype}; look at the weights, or compute in float32"
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
    columns = zip(*((p.values, p.sentence, p.position, p.token) for p in parts), strict=True)
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
) -> list[list[int]]:
    """Token ids with language code and `</s>`, in the order of the sentences.

    Raises ValueError for a language that the tokenizer does not know, named as `what` and its number, which
    is counted from `first` + 1.
    """
    known = tokenizer.lang_code_to_id
    by_language: dict[str, list[int]] = {}
    for index, sentence in enumerate(sentences):
        language = sentence.language or tokenizer.src_lang
        if language not in known:
            raise ValueError(
                f"{what} {first + index + 1} has language {language!r}; this tokenizer knows "
                f"{', '.join(sorted(known))}"
            )
        by_language.setdefault(language, []).append(index)
    ids: list[list[int]] = [[] for _ in sentences]
    default = tokenizer.src_lang
    try:
        for language, indices in by_language.items():
            tokenizer.src_lang = language
            encoded = tokenizer([sentences[i].text for i in indices])["input_ids"]
            for index, tokens in zip(indices, encoded, strict=True):
                ids[index] = tokens
    finally:
        tokenizer.src_lang = default
    return ids


def uncounted_ids(tokenizer: PreTrainedTokenizerBase, include_special: bool) -> Int[Tensor, " ids"]:
    """Ids that do not count. Unknown words and masks are part of a sentence and do."""
    if include_special:
        return torch.tensor([], dtype=torch.long)
    frame = {tokenizer.eos_token_id, *tokenizer.lang_code_to_id.values()}
    return torch.tensor(sorted(frame))


@contextmanager
def _evaluation_mode(model: MBartForConditionalGeneration) -> Iterator[None]:
    """Without dropout; the mode is restored afterwards."""
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)
