"""A run's model beside its sparse autoencoder: reads sentences that are typed in, and changes features on the way."""

import math
import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from course_lib import devices
from course_lib.interpret.browser.index import Effects, FeatureIndex, parts
from course_lib.interpret.run_directory import RunDirectory
from course_lib.language.corpus import LANGUAGES, Sentence
from course_lib.mbart import families, splicing, structure
from course_lib.mbart.activations import Site, States, extract, tokenise, uncounted_ids
from course_lib.mbart.families import languages
from course_lib.mbart.model import COURSE_MBART, load
from course_lib.mbart.translation import translate

EFFECT_SENTENCES = 4
"""The strongest sentences of a feature on which its effect is measured."""
SHOWN_AT_TOKEN = 12


@dataclass(frozen=True)
class Change:
    """What becomes of a feature: f <- number * f ("scale"), or its activation is set ("set"), at one token or at all.

    `number` is a factor, or an activation in the units of the index. `token` counts the tokens of the sentence from
    0; None are all. Raises ValueError for another mode, a number that is not finite, and a negative activation.
    """

    feature: int
    mode: str
    number: float | int
    token: int | None = None

    def __post_init__(self) -> None:
        if self.mode not in ("scale", "set"):
            raise ValueError(f"mode is {self.mode!r}; expected 'scale' or 'set'")
        if not math.isfinite(self.number):
            raise ValueError(
                f"the number for feature {self.feature} is {self.number}; expected a finite number"
            )
        if self.mode == "set" and self.number < 0:
            raise ValueError(f"the activation of feature {self.feature} is {self.number}; expected 0 or more")


@dataclass(frozen=True)
class SentenceCode:
    """The activations of all features at the tokens of a sentence, and between which characters each token stands."""

    text: str
    spans: list[tuple[int, int]]
    activation: Float[Tensor, "tokens features"]

    @property
    def tokens(self) -> list[str]:
        """The characters of each token; a blank is shown as one."""
        return [self.text[start:end] or "␣" for start, end in self.spans]

    @cached_property
    def largest(self) -> Float[Tensor, " features"]:
        """The largest activation of each feature."""
        return self.activation.amax(dim=0)

    @cached_property
    def features(self) -> list[int]:
        """The active features, the strongest first."""
        order = self.largest.argsort(descending=True, stable=True)
        return order[self.largest[order] > 0].tolist()

    def as_dict(self) -> dict[str, Any]:
        """What the page shows: the strongest features of each token, and each feature along the sentence."""
        values, features = self.activation.topk(min(SHOWN_AT_TOKEN, self.activation.shape[1]), dim=1)
        spans = np.array(self.spans)
        return {
            "tokens": [
                {
                    "text": text,
                    "active": int((row > 0).sum()),
                    "features": [
                        {"id": feature, "activation": round(value, 4)}
                        for feature, value in zip(of_token, strengths, strict=True)
                        if value > 0
                    ],
                }
                for text, row, of_token, strengths in zip(
                    self.tokens, self.activation, features.tolist(), values.tolist(), strict=True
                )
            ],
            "features": [
                {
                    "id": feature,
                    "activation": round(float(self.largest[feature]), 4),
                    "parts": parts(self.text, spans, self.activation[:, feature].numpy()),
                }
                for feature in self.features
            ],
        }


class FeatureBrowser:
    """The sparse autoencoder of a run beside its model: what is active in a sentence, and what features do.

    Activations are in the units of the index. Raises RunError for a directory that holds no run or one whose
    autoencoder is not sparse, ModelUnavailable for a model that cannot be loaded, and ValueError where the
    autoencoder is not one of this model's states.
    """

    def __init__(
        self, run: os.PathLike | str, *, device: torch.device | str | None = None, threads: int | None = None
    ):
        self.run = RunDirectory(run)
        described = self.run.metrics.run
        self.name, self.site = described.model, Site.parse(described.site)
        device = devices.usable_device(device)
        self.model, self.tokenizer = load(self.name, device=device)
        self.autoencoder = self.run.sparse(device=device).requires_grad_(False)
        splicing.check_width(self.autoencoder, self.model, self.site)
        self.lengths = self.autoencoder.decoder_weight.norm(dim=0)
        self.threads = devices.threads_for(self.autoencoder.d_model) if threads is None else threads
        self.skipped = uncounted_ids(self.tokenizer, include_special=False)
        known = LANGUAGES if self.name == COURSE_MBART else languages(self.tokenizer)
        self.known_languages = sorted(known)
        self.default_language = getattr(self.tokenizer, "src_lang", None)

    @property
    def exact_logits(self) -> bool:
        """Whether the states are those that the output weights read: a feature's effect is then a matrix product."""
        return self.site == Site("decoder")

    def states(self, sentences: Sequence[Sentence]) -> States:
        """The states of the sentences' tokens at the run's site."""
        return extract(self.model, self.tokenizer, sentences, [self.site], progress=False)[self.site]

    @torch.no_grad()
    def activations(self, states: Float[Tensor, "rows d_model"]) -> Float[Tensor, "rows features"]:
        """f_i ||W_d[:, i]|| of all features, see the units in `index`."""
        return self.autoencoder.encode(states.to(self.lengths)) * self.lengths

    def spans(self, texts: Sequence[str]) -> tuple[list[list[int]], list[list[tuple[int, int]]]]:
        """Ids of the tokens of each text that count, and between which characters each stands."""
        skipped = set(self.skipped.tolist())
        ids, spans = [], []
        found = families.spans(self.tokenizer, list(texts), target=self.site.side == "decoder")
        for text, row, offsets in zip(texts, *found, strict=True):
            kept = [place for place, token in enumerate(row) if token not in skipped]
            ids.append([row[place] for place in kept])
            spans.append([_without_blanks(text, *offsets[place]) for place in kept])
        return ids, spans

    def read(self, text: str, language: str | None) -> SentenceCode:
        """Which features are active at which token of a sentence.

        Raises ValueError for a sentence without a token, one that is too long, and an unknown language.
        """
        sentence = Sentence(text, self._language(language))
        with devices.threads(self.threads), _naming("text"):
            states = self.states([sentence])
            activation = self.activations(states.values).cpu()
        (spans,) = self.spans([text])[1]
        return SentenceCode(text, spans, activation)

    def translate(
        self, text: str, source: str | None, target: str | None, changes: Sequence[Change] = ()
    ) -> str:
        """Return the greedy translation, with features changed on the way.

        A state x becomes x + decode(f') - decode(f), which keeps what the autoencoder does not reconstruct.

        Raises ValueError for a text or a language that cannot be read, for a change of a feature or a token that is
        not there, and for numbers with which the model no longer computes.
        """
        rows, code = self._tokens_and_target(text, source, target)
        return self._translate(rows, code, self._changing(rows, changes))

    def compare(
        self, text: str, source: str | None, target: str | None, changes: Sequence[Change]
    ) -> dict[str, str]:
        """Return translations of the model as it is, with the states reconstructed, and as `translate` changes them.

        Raises what `translate` raises.
        """
        rows, code = self._tokens_and_target(text, source, target)
        ways = {
            "original": nullcontext(),
            "reconstructed": splicing.spliced(
                self.model, self.autoencoder, self.site, skipped_ids=self.skipped
            ),
            "changed": self._changing(rows, changes),
        }
        return {name: self._translate(rows, code, way) for name, way in ways.items()}

    def _tokens_and_target(
        self, text: str, source: str | None, target: str | None
    ) -> tuple[list[list[int]], int | None]:
        source, target = self._language(source), self._language(target)
        if not text.strip():
            raise ValueError(f"text is {text!r}; expected a sentence")
        with _naming("text"):
            rows = tokenise(self.tokenizer, [Sentence(text, source)])
        # A model that counts no absolute positions (T5) is held to as many as mBART has.
        limit = ((structure.positions(self.model, "decoder") or 1024) - 18) // 2
        if len(rows[0]) > limit:
            raise ValueError(
                f"text has {len(rows[0])} tokens; at most {limit} are translated here: shorten it"
            )
        return rows, languages(self.tokenizer).get(target)

    def _changing(self, rows: list[list[int]], changes: Sequence[Change]) -> AbstractContextManager[None]:
        self._check(changes, n_tokens=sum(token not in self.skipped for token in rows[0]))
        if not changes:
            return nullcontext()
        change = splicing.in_its_dtype(self.autoencoder, lambda x: self._changed(x, changes))
        return splicing.replaced(self.model, self.site, change, skipped_ids=self.skipped)

    def _translate(self, rows: list[list[int]], code: int | None, way: AbstractContextManager[None]) -> str:
        with devices.threads(self.threads), way:
            (written,) = translate(self.model, self.tokenizer, rows, [code])
        return self.tokenizer.decode(written, skip_special_tokens=True)

    def effects(
        self,
        features: Sequence[int],
        sentences: Sequence[Sequence[Sentence]],
        *,
        advance: Any = lambda n: None,
    ) -> Effects:
        """What switching features off does to the prediction of the sentences that are given for each.

        The decoder reads the sentence itself, as it does for its states (`extract`). A token's change is
        sum_t p(token | t) as it is minus the same with the feature at 0, the mean over the sentences: by how much the
        feature raises the expected number of times that the token is predicted. The divergence is
        sum_t KL(as it is || without), in nats a sentence; the second one is that of taking off, at the same
        tokens, a random direction of the same length.
        """
        vocabulary = self.model.config.vocab_size
        at_once = max(1, min(16, 2**20 // vocabulary))
        tokens, values, divergences = [], [], []
        with devices.threads(self.threads):
            for first in range(0, len(features), at_once):
                part = slice(first, first + at_once)
                change, divergence = self._measured(features[part], sentences[part])
                for sign in (1, -1):
                    value, token = (sign * change).topk(min(8, vocabulary), dim=1)
                    tokens.append((sign, token.cpu()))
                    values.append((sign, sign * value.cpu()))
                divergences.append(divergence.cpu())
                advance(len(features[part]))
        token, value = (
            torch.stack([torch.cat([t for s, t in kept if s == sign]) for sign in (1, -1)], dim=1).numpy()
            for kept in (tokens, values)
        )
        return self._named(features, token, value, torch.cat(divergences).numpy())

    def logit_effects(self, activation: Float[Tensor, " features"]) -> Effects:
        """What features write to the logits at an activation: W_U d_i a_i, minus its mean over the vocabulary.

        Exact for the decoder's final states, which the output weights read. Features are all that the autoencoder has.
        """
        written = self.model.get_output_embeddings().weight.detach().float()
        scale = self.autoencoder.input_scale * activation.to(self.lengths) / self.lengths.clamp(min=1e-12)
        tokens, values = [], []
        for part in torch.arange(len(self.lengths)).split(256):
            change = (written @ (self.autoencoder.decoder_weight[:, part] * scale[part]).float()).T
            change = change - change.mean(dim=1, keepdim=True)
            both = [(sign * change).topk(min(8, change.shape[1]), dim=1) for sign in (1, -1)]
            tokens.append(torch.stack([found.indices for found in both], dim=1).cpu())
            values.append(
                torch.stack([sign * found.values for sign, found in zip((1, -1), both, strict=True)], 1).cpu()
            )
        unknown = np.full((len(self.lengths), 2), np.nan, np.float32)
        features = range(len(self.lengths))
        return self._named(features, torch.cat(tokens).numpy(), torch.cat(values).numpy(), unknown)

    def _named(
        self, features: Sequence[int], token: np.ndarray, value: np.ndarray, divergence: np.ndarray
    ) -> Effects:
        used, places = np.unique(token, return_inverse=True)
        pieces = [piece or "" for piece in self.tokenizer.convert_ids_to_tokens(used.tolist())]
        return Effects(
            np.array(features, np.int32),
            places.reshape(token.shape).astype(np.int32),
            value.astype(np.float32),
            divergence.astype(np.float32),
            pieces,
        )

    @torch.inference_mode()
    def _measured(
        self, features: Sequence[int], sentences: Sequence[Sequence[Sentence]]
    ) -> tuple[Float[Tensor, "features vocabulary"], Float[Tensor, "features 2"]]:
        """The change of expected tokens by each feature, and its divergence beside a random direction's."""
        device, autoencoder = self.model.device, self.autoencoder
        flat = [sentence for of_one in sentences for sentence in of_one]
        read, predicted = (tokenise(self.tokenizer, flat, target=target) for target in (False, True))
        pair = [place for place, of_one in enumerate(sentences) for _ in of_one]
        inputs, labels = splicing.padded_pairs(read, predicted, self.model)
        counted = labels != splicing.IGNORED
        of_row = torch.tensor(pair, device=device)[counted.nonzero()[:, 0]]
        # The rows that `replaced` hands over are those of the tokens that count, sentence after sentence.
        changed = predicted if self.site.side == "decoder" else read
        n_rows = torch.tensor([sum(token not in self.skipped for token in row) for row in changed])
        feature = torch.tensor([features[place] for place in pair]).repeat_interleave(n_rows).to(device)
        directions = autoencoder.decoder_weight.T * autoencoder.input_scale
        generator = torch.Generator().manual_seed(0)
        drawn = torch.randn(len(features), autoencoder.d_model, generator=generator).to(directions)
        drawn = drawn / drawn.norm(dim=1, keepdim=True)
        drawn = drawn[torch.tensor(pair).repeat_interleave(n_rows)]

        def without(x: Tensor, *, random: bool) -> Tensor:
            written = autoencoder.encode(x).gather(1, feature[:, None]) * directions[feature]
            return x - (written.norm(dim=1, keepdim=True) * drawn if random else written)

        clean = splicing.log_probabilities(self.model, inputs, counted)
        sums = clean.new_zeros(len(features), self.model.config.vocab_size)
        divergence = clean.new_zeros(len(features), 2)
        for column, random in enumerate((False, True)):
            change = splicing.in_its_dtype(autoencoder, lambda x, random=random: without(x, random=random))
            with splicing.replaced(self.model, self.site, change, skipped_ids=self.skipped):
                other = splicing.log_probabilities(self.model, inputs, counted)
            divergence[:, column].index_add_(0, of_row, (clean.exp() * (clean - other)).sum(dim=1))
            if not random:
                sums.index_add_(0, of_row, clean.exp() - other.exp())
        n_sentences = torch.tensor(
            [max(len(of_one), 1) for of_one in sentences], device=device, dtype=torch.float32
        )
        return sums / n_sentences[:, None], divergence / n_sentences[:, None]

    def _changed(self, x: Float[Tensor, "rows d_model"], changes: Sequence[Change]) -> Tensor:
        code = self.autoencoder.encode(x)
        changed = code.clone()
        for change in changes:
            rows = slice(None) if change.token is None else change.token
            if change.mode == "scale":
                changed[rows, change.feature] *= change.number
            else:
                changed[rows, change.feature] = change.number / self.lengths[change.feature]
        found = x + (self.autoencoder.decode(changed) - self.autoencoder.decode(code))
        numbers = ", ".join(f"{change.number:g} for feature {change.feature}" for change in changes[:4])
        splicing.check_states(found, dtype=self.model.dtype, why=f"number is too large: {numbers}")
        return found

    def _check(self, changes: Sequence[Change], *, n_tokens: int) -> None:
        for change in changes:
            if not 0 <= change.feature < len(self.lengths):
                raise ValueError(f"feature is {change.feature}; the run has 0 to {len(self.lengths) - 1}")
            if change.token is not None:
                if self.site.side == "decoder":
                    raise ValueError(
                        f"token is {change.token}; the decoder writes its own tokens: expected all of them"
                    )
                if not 0 <= change.token < n_tokens:
                    raise ValueError(f"token is {change.token}; the sentence has 0 to {n_tokens - 1}")
            if change.mode == "set" and change.number and not self.lengths[change.feature] > 0:
                raise ValueError(f"feature {change.feature} writes nothing; its activation cannot be set")

    def _language(self, language: str | None) -> str | None:
        if language is not None and language not in self.known_languages:
            raise ValueError(
                f"language is {language!r}; expected one of {', '.join(self.known_languages)}, or none"
            )
        return language or self.default_language


def strongest_sentences(index: FeatureIndex, features: Sequence[int]) -> list[list[Sentence]]:
    """The sentences on which the effects of features are measured."""
    return [
        [Sentence(index.text(i), index.language(i)) for i in index.strongest(feature, EFFECT_SENTENCES)]
        for feature in features
    ]


@contextmanager
def _naming(field: str) -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{field}: {error}") from error


def _without_blanks(text: str, start: int, end: int) -> tuple[int, int]:
    while start < end and text[start].isspace():
        start += 1
    while end > start and text[end - 1].isspace():
        end -= 1
    return start, end
