"""What lesson 24 erases from the shipped translation model, and how many translations it then still gets exactly right.

Sites are named as everywhere: `encoder.0` is what the encoder's first layer reads, `encoder.final` and `decoder.final` are
the ends. The model, and with it transformers, is imported where it runs: the module itself stays light.
"""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from torch import Tensor

from course_lib.representation.erasure import Eraser, ErasureMoments

SITES = ("decoder.final", "encoder.final", "encoder.0")
FITTED, PAIRS = 1200, 400  # sentences an eraser is fitted to, and translations a page runs


@cache
def mbart():
    """Return the shipped model and its tokenizer."""
    from course_lib.mbart.model import load

    return load()


@dataclass(frozen=True)
class States:
    """The states of all tokens at a site, codes and ends included: (tokens, 256), and what each token is.

    `language` counts from 0; `determiner` from 1, with 0 for tokens that are none.
    """

    values: Tensor
    language: Tensor
    determiner: Tensor


@cache
def states(site: str, *, n: int = FITTED, seed: int = 1, split: str = "train") -> States:
    """Return the states of n generated sentences in four languages at a site."""
    from course_lib.interpret.concepts import token_concepts
    from course_lib.language.corpus import LANGUAGES, LEXICAL_CONCEPTS, generate
    from course_lib.mbart.activations import Site, extract

    (model, tokenizer), read = mbart(), generate(n, seed=seed, split=split)
    names = [c for c in LEXICAL_CONCEPTS if c.startswith("determiner:")]
    at = Site.parse(site)
    found = extract(model, tokenizer, read, (at,), include_special=True, progress=False)[at]
    language = torch.tensor([LANGUAGES.index(s.language) for s in read])[found.sentence]
    held = []
    for sentence in read:
        tokenizer.src_lang = sentence.language
        offsets = tokenizer(sentence.text, return_offsets_mapping=True)["offset_mapping"]
        held.append(
            [next((names.index(c) + 1 for c in t if c in names), 0) for t in token_concepts(sentence.words, offsets)]
        )
    places = zip(found.sentence.tolist(), found.position.tolist(), strict=True)
    return States(found.values, language, torch.tensor([held[i][p] for i, p in places]))


def moments_of(found: States, concept: str) -> ErasureMoments:
    """Return the moments that an eraser of "language" or "determiner" is made from."""
    moments = ErasureMoments()
    moments.update(found.values, getattr(found, concept))
    return moments


def moved(eraser: Eraser, values: Tensor) -> float:
    """Return the mean squared change of the states, as a share of their variance."""
    return float((eraser.erase(values) - values).square().sum() / (values - values.mean(0)).square().sum())


@dataclass(frozen=True)
class Pairs:
    """Sentences with their translations, as ids: `sources`, the codes to write, and `targets`."""

    sources: list[list[int]]
    codes: list[int]
    targets: list[list[int]]

    def with_wrong_code(self) -> "Pairs":
        """Return the pairs with each source's code replaced by that of the next language."""
        from course_lib.language.corpus import LANGUAGES

        codes = [mbart()[1].lang_code_to_id[code] for code in LANGUAGES]
        turned = [[codes[(codes.index(s[0]) + 1) % len(codes)], *s[1:]] for s in self.sources]
        return Pairs(turned, self.codes, self.targets)


@cache
def pairs(n: int = PAIRS, *, seed: int = 3) -> Pairs:
    """Return n new meanings, each in two languages chosen at random."""
    from course_lib.language.corpus import LANGUAGES, draw_meanings, render
    from course_lib.mbart.pretraining.examples import Texts, translation_pair

    _, tokenizer = mbart()
    rng, meanings = np.random.default_rng(seed), draw_meanings(n, seed=seed, split="test")
    texts = Texts({code: [render(m, code).text for m in meanings] for code in LANGUAGES}, tokenizer)
    drawn = [translation_pair(texts, tokenizer, rng) for _ in range(n)]
    return Pairs([s for s, _ in drawn], [t[0] for _, t in drawn], [list(t) for _, t in drawn])


def translations(asked: Pairs, change: Callable[[Tensor], Tensor] | None = None, site: str = "") -> list[list[int]]:
    """Return greedy translations, as ids, while `change` is applied to all states at the site."""
    from course_lib.mbart.activations import Site
    from course_lib.mbart.splicing import replaced
    from course_lib.mbart.translation import translate

    model, tokenizer = mbart()
    with nullcontext() if change is None else replaced(model, Site.parse(site), change):
        return [list(one) for one in translate(model, tokenizer, asked.sources, asked.codes)]


def share_exact(written: Sequence[Sequence[int]], asked: Pairs) -> float:
    """Return the share of translations that are right to the last token."""
    return float(np.mean([list(one) == target for one, target in zip(written, asked.targets, strict=True)]))


def exact(asked: Pairs, eraser: Eraser | None = None, site: str = "") -> float:
    """Return the share of exact translations with an eraser at the site, or without one."""
    return share_exact(translations(asked, None if eraser is None else eraser.erase, site), asked)


def as_text(ids: Sequence[int]) -> str:
    """Return ids as text, without codes and ends."""
    return mbart()[1].decode(ids, skip_special_tokens=True)


# How far the right piece is ahead of its rivals


@dataclass(frozen=True)
class Race:
    """States at the end of the decoder, the piece that is right at each, and which other pieces would be a slip.

    `rivals` (tokens, pieces) marks pieces of other languages only, or of other determiners of the same language.
    """

    values: Tensor
    right: Tensor
    rivals: Tensor

    def margins(self, change: Callable[[Tensor], Tensor] | None = None) -> Tensor:
        """Return the score of the right piece less that of the best rival: below 0, the rival would be written."""
        model, _ = mbart()
        read = self.values if change is None else change(self.values)
        with torch.no_grad():
            scores = read @ model.lm_head.weight.T + model.final_logits_bias[0]
        own = scores.gather(1, self.right[:, None])[:, 0]
        return own - scores.masked_fill(~self.rivals, -torch.inf).amax(1)


@cache
def race(concept: str, *, n: int = 200, seed: int = 2) -> Race:
    """Return the race between languages, at all words, or between determiners, where one comes next."""
    from course_lib.language.corpus import LANGUAGES, generate

    model, tokenizer = mbart()

    def pieces(n: int, seed: int, split: str) -> Tensor:
        written = []
        for sentence in generate(n, seed=seed, split=split):
            tokenizer.src_lang = sentence.language
            written += tokenizer(sentence.text)["input_ids"]
        return torch.tensor(written)

    known, new = states("decoder.final"), states("decoder.final", n=n, seed=seed, split="test")
    seen, right = pieces(FITTED, 1, "train"), pieces(n, seed, "test")
    kinds = int(known.determiner.max()) + 1
    used = torch.zeros(len(LANGUAGES), kinds, model.lm_head.weight.shape[0], dtype=torch.bool)
    used[known.language, known.determiner, seen] = True
    codes = torch.tensor([*tokenizer.lang_code_to_id.values(), *tokenizer.all_special_ids])
    if concept == "determiner":
        asked = new.determiner > 0
        language, own = new.language[asked], new.determiner[asked]
        rivals = used[:, 1:].any(1)[language] & ~used[language, own]
    else:
        asked = ~torch.isin(right, codes)
        spoken = used.any(1)
        rivals = spoken.any(0) & ~spoken[new.language[asked]]
    rivals[:, codes] = False
    return Race(new.values[asked], right[asked], rivals)
