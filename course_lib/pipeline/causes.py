"""Do a dictionary's features cause what they are named for? Changes of a translation, beside their controls.

A feature that detects "hammer" need not be what the model uses to write it. To find out, change the feature while the
model translates and read the translation: did the word for "hammer" change, and did anything else? The corpus answers
exactly, since it can say the same meaning with any other word in that place.

1. A `Case` is one word in one sentence to be translated; `draw_cases` draws them, `right_cases` keeps those that the
   model translates right when nothing is changed.
2. An `Edit` says what happens to the states of some rows, `at` and `everywhere` to which; `translations` runs them.
3. `effect` compares a translation with the case's renderings; `Outcome` counts effects over cases, and
   `draw_arms` shows arms beside controls.
"""

import math
import random
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float, Int
from matplotlib.figure import Figure
from torch import Tensor

from course_lib.figures import BLUE, RED, describe, new_figure, styled
from course_lib.interpret.concepts import token_concepts
from course_lib.language.corpus import (
    LANGUAGES,
    LEXICAL_CONCEPTS,
    TENSES,
    Meaning,
    Sentence,
    concepts_of,
    draw_meanings,
    render,
)
from course_lib.language.lexicon import ADJECTIVES, DETERMINERS, NOUNS, PLACES, TIMES, VERBS
from course_lib.sae import Autoencoder

if TYPE_CHECKING:
    from transformers import MBartForConditionalGeneration, PreTrainedTokenizerBase

    from course_lib.mbart.packed import Site

_ROLES = ("subject", "object", "recipient")
_TABLES = {"noun": NOUNS, "adjective": ADJECTIVES, "verb": VERBS, "place": PLACES, "time": TIMES}
_WORDS = re.compile(r"\w+(?:-\w+)*['’]?|[^\w\s]")
# A noun of each gender, in all languages together.
_GENDERS = tuple(
    {
        (n.fr_gender, n.de_gender, n.es_gender, n.fr[0].startswith(tuple("aeiouéê"))): name
        for name, n in NOUNS.items()
    }.values()
)

Rows = Float[Tensor, "rows d_model"]
Edit = Callable[[Tensor, Tensor], Tensor]
"""New states (rows, d_model) for states and for the numbers of the cases (rows,) that they are from."""
Change = Callable[[Tensor, Tensor, Tensor], Tensor]
"""An edit that is also given the number of each row's token (rows,)."""


# --- Words and meanings ----------------------------------------------------------------------------


def words(text: str) -> list[str]:
    """Split a sentence into its words, in small letters; "l'" and "grand-mère" are one each, and so is a mark."""
    return _WORDS.findall(text.lower())


def slots(meaning: Meaning, concept: str) -> list[tuple[str, str]]:
    """Return where a meaning says a lexical concept: pairs such as ("subject", "noun") and ("", "verb")."""
    found = []
    for part in _ROLES:
        if phrase := getattr(meaning, part):
            said = {"noun": NOUNS[phrase.noun].concept, "determiner": f"determiner:{phrase.determiner}"}
            if phrase.adjective:
                said["adjective"] = ADJECTIVES[phrase.adjective].concept
            found += [(part, kind) for kind, name in said.items() if name == concept]
    for kind in ("verb", "place", "time"):
        name = getattr(meaning, kind)
        if name and _TABLES[kind][name].concept == concept:
            found.append(("", kind))
    return found


def alternatives(meaning: Meaning, concept: str) -> dict[str, Meaning]:
    """Return the meaning with each word that can stand in a concept's place, by concept; its own comes first.

    Every word of the same part of speech stands there, whether that makes sense or not, unless the meaning says it
    elsewhere: any noun for a noun, any verb that takes as many objects for a verb; a determiner keeps the number.

    Raises ValueError where the meaning does not say the concept in exactly one place.
    """
    [(part, kind)] = _one_slot(meaning, concept)
    phrase = getattr(meaning, part) if part else None
    if kind == "determiner":
        own = phrase.determiner
        names = {f"determiner:{d}": d for d, many in DETERMINERS.items() if d == own or phrase.plural >= many}
    else:
        names = {word.concept: name for name, word in _TABLES[kind].items()}
        if kind == "verb":
            frame = VERBS[meaning.verb].frame
            names = {other: name for other, name in names.items() if VERBS[name].frame == frame}

    def said(name: str) -> Meaning:
        if phrase is None:
            return replace(meaning, **{kind: name})
        return replace(meaning, **{part: replace(phrase, **{kind: name})})

    others = {other: said(name) for other, name in names.items() if not slots(meaning, other)}
    return {concept: meaning} | others


def _one_slot(meaning: Meaning, concept: str) -> list[tuple[str, str]]:
    found = slots(meaning, concept)
    if len(found) != 1:
        raise ValueError(f"the meaning says {concept!r} in {len(found)} places; expected 1: {meaning}")
    return found


@dataclass(frozen=True)
class Case:
    """A word to be changed: `concept` of a `meaning` that is read in language `source` and written in `target`.

    Raises ValueError where the meaning does not say the concept in exactly one place.
    """

    meaning: Meaning
    concept: str
    source: str
    target: str

    def __post_init__(self) -> None:
        _one_slot(self.meaning, self.concept)

    @cached_property
    def read(self) -> Sentence:
        """What the encoder reads."""
        return render(self.meaning, self.source)

    @cached_property
    def renderings(self) -> dict[str, list[str]]:
        """The words of the right translation with each word in the concept's place, by concept; its own first."""
        return {concept: words(sentence.text) for concept, sentence in self._sentences.items()}

    @cached_property
    def frames(self) -> list[list[str | None]]:
        """The different renderings with None for the words in the concept's place; the case's own first."""
        found = {}
        for concept, sentence in self._sentences.items():
            spans = [(start, end) for start, end, said in sentence.words if said == concept]
            frame = (
                None if any(a < word.end() and word.start() < b for a, b in spans) else word.group()
                for word in _WORDS.finditer(sentence.text.lower())
            )
            found[tuple(frame)] = None
        return [list(frame) for frame in found]

    @cached_property
    def _sentences(self) -> dict[str, Sentence]:
        return {c: render(m, self.target) for c, m in alternatives(self.meaning, self.concept).items()}

    @cached_property
    def forms(self) -> set[tuple[str, ...]]:
        """The concept's words in the target language: either number, any gender and tense, asked and denied."""
        [(part_of_word, kind)] = slots(self.meaning, self.concept)
        # What an adjective or a participle agrees with. A noun's own gender stays.
        part_of_noun = {"adjective": part_of_word, "verb": "subject"}.get(kind)
        found = set()
        for tense, plural, asked, denied, noun in product(
            TENSES, *[(False, True)] * 3, _GENDERS if part_of_noun else (None,)
        ):
            phrases = {
                part: replace(
                    phrase,
                    plural=plural or DETERMINERS[phrase.determiner],
                    noun=noun if part == part_of_noun else phrase.noun,
                )
                for part in _ROLES
                if (phrase := getattr(self.meaning, part))
            }
            other = replace(self.meaning, tense=tense, question=asked, negated=denied, **phrases)
            sentence = render(other, self.target)
            said = " ".join(sentence.text[a:b] for a, b, concept in sentence.words if concept == self.concept)
            found.add(tuple(words(said)))
        return found - {()}


def draw_cases(
    concepts: Sequence[str], n_cases: int, *, seed: int, pool: int = 12_000, pool_seed: int = 200
) -> list[Case]:
    """Draw cases whose words are `concepts`, in turn, from the first `pool` meanings of the test split.

    Each takes the first meaning, in random order, that says its concept once and is not taken; languages are random.
    A concept that has no meaning left is passed over, so that there may be fewer than `n_cases`.

    Raises ValueError for no concepts, one that the corpus has no word for, and a number below 1.
    """
    if not concepts or n_cases < 1:
        raise ValueError(f"{len(concepts)} concepts and n_cases {n_cases}; expected 1 or more of both")
    if unknown := sorted(set(concepts) - set(LEXICAL_CONCEPTS)):
        raise ValueError(f"concepts has {unknown[0]!r}; expected some of LEXICAL_CONCEPTS")
    rng = random.Random(seed)
    meanings = draw_meanings(pool, seed=pool_seed, split="test")
    rng.shuffle(meanings)
    saying: dict[str, list[Meaning]] = {concept: [] for concept in concepts}
    for meaning in meanings:
        for concept in concepts_of(meaning) & saying.keys():
            if len(slots(meaning, concept)) == 1:
                saying[concept].append(meaning)
    order, taken, found = list(saying), set(), []
    rng.shuffle(order)
    while len(found) < n_cases and any(saying.values()):
        for concept in order[: n_cases - len(found)]:
            left = saying[concept]
            while left and left[-1] in taken:
                left.pop()
            if left:
                taken.add(meaning := left.pop())
                found.append(Case(meaning, concept, *rng.sample(LANGUAGES, 2)))
    return found


# --- Effects ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Effect:
    """What a change did to the translation of a case.

    - `changed`: the concept's word is not there any more, in no form.
    - `others`: as many other words differ from the nearest of the case's renderings, whatever stands in the concept's
      place; words that are left out or added count as one each. (That place may hold as many words as some expression
    for it has: one for a noun or an adjective, a few for a time.)
    - `agreement`: as many more differ from the right translation, because they take the form that another word
      asks for: articles, adjectives, a Spanish "a".
    - `became`: the concept whose rendering this is, word for word; None if it is no rendering.
    """

    changed: bool
    others: int
    agreement: int
    became: str | None


def effect(case: Case, translation: str) -> Effect:
    """Compare a translation with the renderings of a case; without a change it is taken to have been right."""
    written = words(translation)
    own, *nearer = (distance(frame, written) for frame in case.frames)
    others = min([own, *nearer])
    before = sum(_count(form, case.renderings[case.concept]) for form in case.forms)
    after = sum(_count(form, written) for form in case.forms)
    became = next((concept for concept, said in case.renderings.items() if said == written), None)
    return Effect(after < before, others, own - others, became)


def distance(frame: Sequence[str | None], written: Sequence[str]) -> int:
    """Fewest words to be changed, left out or added that make `written` of `frame`.

    None stands for any word or for none and costs nothing. D[i, j] is the distance of the first i and j words,

        D[i, j] = min(D[i-1, j-1] + [a_i is a word other than b_j], D[i-1, j] + [a_i is a word], D[i, j-1] + 1).
    """
    row = list(range(len(written) + 1))
    for word in frame:
        above, row = row, [row[0] + (word is not None)]
        for j, other in enumerate(written):
            put = above[j] + (word is not None and word != other)
            row.append(min(put, above[j + 1] + (word is not None), row[j] + 1))
    return row[-1]


def _count(form: tuple[str, ...], written: Sequence[str]) -> int:
    return sum(tuple(written[i : i + len(form)]) == form for i in range(len(written)))


@dataclass(frozen=True)
class Outcome:
    """Effects counted over `n` cases.

    In how many the concept's word changed, another word changed (beyond agreement), a word took the form that another
    one asks for; how many became exactly the rendering with another word, and with the one that was aimed at; and
    how many other words changed in all, of `words`.
    """

    n: int
    changed: int
    elsewhere: int
    agreement: int
    exact: int
    words_changed: int
    words: int
    aimed: int | None = None

    @classmethod
    def of(
        cls, cases: Sequence[Case], effects: Sequence[Effect], aims: Sequence[str] | None = None
    ) -> "Outcome":
        """Count effects. `aims` are the concepts that were aimed at, one a case."""
        became = [effect.became for effect in effects]
        own = [case.concept for case in cases]
        return cls(
            n=len(cases),
            changed=sum(effect.changed for effect in effects),
            elsewhere=sum(effect.others > 0 for effect in effects),
            agreement=sum(effect.agreement > 0 for effect in effects),
            exact=sum(a not in (None, b) for a, b in zip(became, own, strict=True)),
            words_changed=sum(effect.others for effect in effects),
            words=sum(word is not None for case in cases for word in case.frames[0]),
            aimed=None if aims is None else sum(a == b for a, b in zip(became, aims, strict=True)),
        )

    def __add__(self, other: "Outcome") -> "Outcome":
        if (self.aimed is None) != (other.aimed is None):
            raise ValueError("one outcome has aims and the other has none; expected both or neither")
        return Outcome(
            **{
                name: None if value is None else value + vars(other)[name]
                for name, value in vars(self).items()
            }
        )

    def __str__(self) -> str:
        parts = []
        for name in ("changed", "elsewhere", "exact", "aimed"):
            if (hits := vars(self)[name]) is not None:
                share, low, high = (100 * value for value in wilson(hits, self.n))
                parts.append(f"{name} {share:.0f} [{low:.0f}..{high:.0f}]")
        return f"n {self.n}, %: " + ", ".join(parts)


def wilson(hits: int, n: int, *, z: float = 1.96) -> tuple[float, float, float]:
    """Return a share and its interval, which covers the true share in about 95% of samples.

    With p = hits / n the ends are (p + z^2 / 2n +- z sqrt(p (1 - p) / n + z^2 / 4n^2)) / (1 + z^2 / n).
    Raises ValueError unless 0 <= hits <= n and n >= 1. Source: Wilson (1927).
    """
    if not 0 <= hits <= n or n < 1:
        raise ValueError(f"hits is {hits} of n = {n}; expected 0 <= hits <= n and n of 1 or more")
    p = hits / n
    centre, half = p + z**2 / (2 * n), z * math.sqrt(p * (1 - p) / n + z**2 / (4 * n**2))
    # At 0 and n hits an end is the share itself, but for rounding.
    low, high = (centre - half) / (1 + z**2 / n), (centre + half) / (1 + z**2 / n)
    return p, max(low, 0.0), min(high, 1.0)


# --- Translating under a change --------------------------------------------------------------------


def translations(
    model: "MBartForConditionalGeneration",
    tokenizer: "PreTrainedTokenizerBase",
    cases: Sequence[Case],
    changes: "Mapping[Site, Change] | None" = None,
    *,
    batch_size: int = 100,
) -> list[str]:
    """Translate all cases greedily, many at once, while `changes` act on the states of their sites.

    Language code and `</s>` keep their states. Raises ValueError for a site that the model does not have.
    """
    from course_lib.mbart.activations import tokenise, uncounted_ids
    from course_lib.mbart.splicing import replaced
    from course_lib.mbart.translation import translate

    rows = tokenise(tokenizer, [case.read for case in cases])
    codes = [tokenizer.lang_code_to_id[case.target] for case in cases]
    skipped = uncounted_ids(tokenizer, include_special=False)
    order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
    found = [""] * len(rows)
    for start in range(0, len(order), batch_size):
        chosen = order[start : start + batch_size]
        numbers = torch.tensor(chosen, device=model.device)
        with ExitStack() as hooks:
            for site, change in (changes or {}).items():

                def numbered(
                    x: Tensor, places: Tensor, change: Change = change, numbers: Tensor = numbers
                ) -> Tensor:
                    return change(x, numbers[places[:, 0]], places[:, 1])

                hooks.enter_context(replaced(model, site, numbered, skipped_ids=skipped, with_places=True))
            written = translate(model, tokenizer, [rows[i] for i in chosen], [codes[i] for i in chosen])
        for i, ids in zip(chosen, written, strict=True):
            # One that does not end goes on for as long as the longest sentence of its batch allows, and is ended there.
            found[i] = tokenizer.decode(ids[: 2 * len(rows[i]) + 16], skip_special_tokens=True)
    return found


def right_cases(
    model: "MBartForConditionalGeneration", tokenizer: "PreTrainedTokenizerBase", cases: Sequence[Case]
) -> list[Case]:
    """Return the cases that the model translates right, word for word, when nothing is changed."""
    written = translations(model, tokenizer, cases)
    return [c for c, text in zip(cases, written, strict=True) if words(text) == c.renderings[c.concept]]


def own_tokens(tokenizer: "PreTrainedTokenizerBase", cases: Sequence[Case]) -> Bool[Tensor, "cases tokens"]:
    """Return which tokens of what is read belong to the concept's word; the language code is token 0."""
    held = []
    for case in cases:
        # The language code comes first whatever the language, and has no characters.
        offsets = tokenizer(case.read.text, return_offsets_mapping=True)["offset_mapping"]
        held.append([case.concept in said for said in token_concepts(case.read.words, offsets)])
    table = torch.zeros(len(cases), max(map(len, held), default=0), dtype=torch.bool)
    for row, said in zip(table, held, strict=True):
        row[: len(said)] = torch.tensor(said)
    return table


def effects(
    model: "MBartForConditionalGeneration",
    tokenizer: "PreTrainedTokenizerBase",
    cases: Sequence[Case],
    changes: "Mapping[Site, Change]",
) -> list[Effect]:
    """Translate all cases under some changes, and return what became of each."""
    written = translations(model, tokenizer, cases, changes)
    return [effect(case, text) for case, text in zip(cases, written, strict=True)]


# --- Changes ---------------------------------------------------------------------------------------


def at(tokens: Bool[Tensor, "cases tokens"], edit: Edit) -> Change:
    """Edit the states of some tokens of each case, such as `own_tokens`."""

    def change(x: Tensor, case: Tensor, token: Tensor) -> Tensor:
        chosen = tokens[case, token]
        changed = x.clone()
        changed[chosen] = edit(x[chosen], case[chosen])
        return changed

    return change


def everywhere(edit: Edit) -> Change:
    """Edit the states of all tokens."""
    return lambda x, case, token: edit(x, case)


def rewritten(
    autoencoder: Autoencoder,
    features: Bool[Tensor, "cases code"],
    *,
    factor: float | int = 0,
    values: Float[Tensor, "cases code"] | None = None,
) -> Edit:
    """Multiply the features of each case by a factor, then set those with `values` above 0 to them.

    x <- x + decode(f') - decode(f): what the autoencoder does not reconstruct stays. 0 switches features off, and
    with them those of one word off and those of another set, one word is exchanged for the other.
    """

    @torch.no_grad()
    def edit(x: Rows, case: Tensor) -> Rows:
        code = autoencoder.encode(x)
        changed = torch.where(features[case], factor * code, code)
        if values is not None:
            changed = torch.where(values[case] > 0, values[case], changed)
        return x + (autoencoder.decode(changed) - autoencoder.decode(code))

    return edit


def erased(directions: Float[Tensor, "cases d_model"], centres: Float[Tensor, "cases d_model"]) -> Edit:
    """Give the states the component of `centres` along a direction: x <- x - ((x - m) . u) u, u of length 1."""
    unit = torch.nn.functional.normalize(directions)
    return lambda x, case: x - ((x - centres[case]) * unit[case]).sum(dim=1, keepdim=True) * unit[case]


def shifted(vectors: Float[Tensor, "cases d_model"]) -> Edit:
    """Add a vector to the states."""
    return lambda x, case: x + vectors[case]


def set_to(states: Float[Tensor, "cases d_model"]) -> Edit:
    """Put one state in the place of all."""
    return lambda x, case: states[case]


def neuron_set(neurons: Int[Tensor, " cases"], values: Float[Tensor, " cases"]) -> Edit:
    """Set one coordinate of the states to a value, such as its mean."""

    def edit(x: Rows, case: Tensor) -> Rows:
        return x.scatter(1, neurons[case, None], values[case, None])

    return edit


def reconstructed(autoencoder: Autoencoder) -> Edit:
    """Put reconstructions in the place of states, and change nothing in them."""
    return lambda x, case: autoencoder(x).detach()


def random_direction(edit: Edit, generator: torch.Generator) -> Edit:
    """A control: move every state as far as `edit` does, in a random direction."""

    def control(x: Rows, case: Tensor) -> Rows:
        drawn = torch.randn(x.shape, generator=generator).to(x)
        return x + _length(edit, x, case) * torch.nn.functional.normalize(drawn)

    return control


def another_feature(
    autoencoder: Autoencoder,
    features: Int[Tensor, " cases"],
    allowed: Bool[Tensor, "cases code"],
    *,
    like: Edit | None = None,
) -> Edit:
    """A control: where the case's feature fires, switch off the `allowed` feature that fires most nearly as strongly.

    With `like` the state is moved as far as that edit moves it, against the other feature's decoder direction: the
    other feature may be weaker, and then goes below 0. Where no other feature fires, nothing happens.
    """
    directions = torch.nn.functional.normalize(autoencoder.decoder_weight.detach().T)
    lengths = autoencoder.decoder_weight.detach().norm(dim=0)

    @torch.no_grad()
    def control(x: Rows, case: Tensor) -> Rows:
        code = autoencoder.encode(x)
        strength = code * lengths
        own = strength.gather(1, features[case, None])
        fires = (code > 0) & allowed[case] & (own > 0)
        fires = fires.scatter(1, features[case, None], False)
        nearest = torch.where(fires, (strength - own).abs(), torch.inf).argmin(dim=1, keepdim=True)
        found = fires.any(dim=1, keepdim=True)
        if like is None:
            off = code.scatter(1, nearest, torch.where(found, 0, code.gather(1, nearest)))
            return x + (autoencoder.decode(off) - autoencoder.decode(code))
        return x - found * _length(like, x, case) * directions[nearest[:, 0]]

    return control


def _length(edit: Edit, x: Tensor, case: Tensor) -> Float[Tensor, "rows 1"]:
    return (edit(x, case) - x).norm(dim=1, keepdim=True)


# --- Which features are a word's -------------------------------------------------------------------


@dataclass(frozen=True)
class WordTable:
    """How units and states behave at the tokens of words, one row a concept.

    `recall` is the share of the concept's tokens at which a unit is above 0, `precision` the share of the tokens at
    which a unit is above 0 that are the concept's; `activation` and `state` are means over the concept's tokens.
    `n_tokens` counts these.
    """

    n_tokens: Int[Tensor, " concepts"]
    recall: Float[Tensor, "concepts code"]
    precision: Float[Tensor, "concepts code"]
    activation: Float[Tensor, "concepts code"]
    state: Float[Tensor, "concepts d_model"]

    @classmethod
    def of(
        cls,
        states: Float[Tensor, "rows d_model"],
        code: Float[Tensor, "rows code"],
        concept: Int[Tensor, " rows"],
        n_concepts: int,
    ) -> "WordTable":
        """Gather it from the states of tokens, their codes (a sparse COO table) and the concept of each, or -1."""
        entries = code.coalesce()
        (row, unit), value = entries.indices(), entries.values()
        row, unit, value = row[value > 0], unit[value > 0], value[value > 0]
        held = concept[row] >= 0
        place = concept[row[held]] * code.shape[1] + unit[held]
        size = (n_concepts, code.shape[1])
        fired = place.bincount(minlength=size[0] * size[1]).view(size)
        total = place.bincount(value[held].double(), minlength=size[0] * size[1]).view(size)
        inside = concept >= 0
        n_tokens = concept[inside].bincount(minlength=n_concepts)
        sums = torch.zeros(n_concepts, states.shape[1]).index_add(0, concept[inside], states[inside].float())
        least = n_tokens.clamp(min=1)[:, None]
        return cls(
            n_tokens=n_tokens,
            recall=fired / least,
            precision=fired / unit.bincount(minlength=size[1]).clamp(min=1),
            activation=(total / least).float(),
            state=sums / least,
        )

    def features(
        self, detectors: Int[Tensor, " concepts"], *, precision: float, recall: float = 0.05
    ) -> Bool[Tensor, "concepts code"]:
        """Return the features of each concept: its detector, and all with so much precision and recall or more."""
        found = (self.precision >= precision) & (self.recall >= recall)
        return found.scatter(1, detectors[:, None], True)


def word_concepts(
    tokenizer: "PreTrainedTokenizerBase", sentences: Sequence[Sentence], concepts: Sequence[str]
) -> Int[Tensor, " rows"]:
    """Return the number of the concept whose word each token belongs to, -1 for none.

    Rows are the tokens that `extract` gives of the sentences: without language code and `</s>`.
    """
    number = {concept: i for i, concept in enumerate(concepts)}
    found = []
    for sentence in sentences:
        offsets = tokenizer(sentence.text, return_offsets_mapping=True)["offset_mapping"][1:-1]
        for said in token_concepts(sentence.words, offsets):
            found.append(max((number.get(concept, -1) for concept in said), default=-1))
    return torch.tensor(found)


# --- The picture -----------------------------------------------------------------------------------


@styled
def draw_arms(groups: Mapping[str, Mapping[str, Outcome]], *, controls: Sequence[str]) -> Figure:
    """Draw how often the word changed, and how often another word, for the arms of some groups.

    Arms named in `controls` are drawn hollow. Bars are 95% intervals (`wilson`).
    """
    names = [(group, arm) for group, arms in groups.items() for arm in arms]
    figure = new_figure(7.2, 1.1 + 0.24 * (len(names) + len(groups)))
    axes = figure.add_subplot()
    height, ticks, labels, told = 0.0, [], [], []
    for group, arms in groups.items():
        axes.text(0, height, group, fontweight="bold", va="center", fontsize=9.5)
        height += 1
        for arm, outcome in arms.items():
            for what, color, marker, lift in (("changed", BLUE, "o", -0.13), ("elsewhere", RED, "s", 0.13)):
                share, low, high = (100 * value for value in wilson(vars(outcome)[what], outcome.n))
                face = "white" if arm in controls else color
                axes.plot([low, high], [height + lift] * 2, color=color, linewidth=1.2, linestyle="-")
                axes.plot(share, height + lift, marker, color=color, markerfacecolor=face, markersize=5)
            told.append(
                f"{group}, {arm}: the word changed in {100 * outcome.changed / outcome.n:.0f}%, "
                f"another word in {100 * outcome.elsewhere / outcome.n:.0f}%"
            )
            ticks.append(height)
            labels.append(arm)
            height += 1
    axes.set(
        xlim=(-2, 102), ylim=(height - 0.3, -0.7), xlabel="sentences, %", yticks=ticks, yticklabels=labels
    )
    axes.grid(axis="y", visible=False)
    handles = [
        axes.plot([], [], marker, color=color, markerfacecolor=face, linestyle="none", label=label)[0]
        for marker, color, face, label in (
            ("o", BLUE, BLUE, "the word changed"),
            ("s", RED, RED, "another word changed"),
            ("o", BLUE, "white", "hollow: controls"),
        )
    ]
    figure.legend(handles=handles, loc="outside upper center", ncols=3, frameon=False)
    return describe(figure, ". ".join(told) + ".")
