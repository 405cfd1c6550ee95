"""Figures, explorer and predictions of lesson 37, mbart_to_sparse_features: what the page shows."""

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np
import torch
from IPython.display import Markdown
from matplotlib.colors import PowerNorm
from torch import Tensor

from course_lib.interpret import rivals
from course_lib.interpret.concepts import f1_scores, paired_auroc
from course_lib.interpret.detectors import REACHED, SHARED, Detectors, best_detectors, strongest_of_equals
from course_lib.language.corpus import LANGUAGES, Sentence, generate
from course_lib.lessons.mbart_to_sparse_features.contents import lesson
from course_lib.lessons.mbart_to_sparse_features.material import (
    APPLE,
    CONCEPTS,
    NAMES,
    TEXT,
    Material,
    ReadText,
    read_material,
)
from course_lib.measured import measured, quote
from course_lib.sae.course_dictionary import NamedDetector, detectors
from course_lib.teaching import Choice, Explorer, Slider, Switch, TextBox, markdown_table, right
from course_lib.teaching.explorer import set_data
from course_lib.teaching.style import BLACK, BLUE, RED, SKY
from course_lib.teaching.token_map import fill_map, shortened, token_map

SHOWN_FEATURES, SHOWN_SENTENCES, SHOWN_CONCEPTS, MAX_TOKENS, EXCERPT = 8, 5, 4, 24, 45
PART = "across_languages"


def alignment_table() -> Markdown:
    """Return what a sweep on a GPU stored of both shipped models, at either side: shares of the lexical concepts."""
    rows = []
    for side in ("encoder", "decoder"):
        for model in ("course-mbart", "course-mbart-unaligned"):
            name = f"{model} {side}, 2048 features, k = 8, 2000 steps of 0.003"
            wanted = ("F1 0.9, %", "same unit at F1 0.8 in three languages, %")
            shares = (f"{quote('gpu/features', f'{name}: {what}', '.0f')}%" for what in wanted)
            rows.append((f"`{model}`, {side}", *shares))
    return markdown_table(("model, states", "F1 0.9 or more", "same feature at F1 0.8 in three languages"), rows)


SIZES = (512, 1024, 2048, 4096)


def size_sweep() -> dict[str, list[float]]:
    """Return what `make bench features` stored for each of `SIZES`: shares of the 368 lexical concepts, dead features."""
    name = "course-mbart encoder, {} features, k = 8, 2000 steps of 0.002: {}"
    wanted = {
        "F1 0.9 or more": "F1 0.9, %",
        "F1 0.8 in three languages": "same unit at F1 0.8 in three languages, %",
        "different detectors": "different units",
        "dead": "dead features",
    }
    return {
        what: [measured("gpu/features", name.format(size, stored)) for size in SIZES] for what, stored in wanted.items()
    }


def size_table() -> Markdown:
    """Return how many concepts a dictionary of each size reaches, and how many of its features never fire."""
    rows = [
        (f"{size:,}", f"{good:.0f}%", f"{shared:.0f}%", f"{units:.0f}", f"{dead:,.0f}")
        for size, good, shared, units, dead in zip(SIZES, *size_sweep().values(), strict=True)
    ]
    header = (
        "features", "of 368 words, at F1 0.9 or more", "same feature at F1 0.8 in three languages", "different detectors",
        "dead features",
    )  # fmt: skip
    return markdown_table(header, rows)


@lru_cache(maxsize=len(LANGUAGES))
def known_words(language: str) -> frozenset[str]:
    """Words of a language that the corpus uses, in small letters."""
    sentences = generate(4000, seed=0, languages=(language,))
    return frozenset(word for sentence in sentences for word in _words_of(sentence.text))


def _words_of(text: str) -> list[str]:
    return re.findall(r"[^\W\d_]+", text.lower())


def strange_words(text: str, language: str) -> str:
    """Say which words the corpus does not have in that language, and which language the text looks like."""
    words = _words_of(text)
    strange = [word for word in words if word not in known_words(language)]
    if not strange:
        return "" if words else "There is no word in it."
    known = {code: sum(word in known_words(code) for word in words) for code in LANGUAGES}
    best = max(LANGUAGES, key=known.__getitem__)
    if known[best] > known[language]:
        return f"The text looks {NAMES[best]}, and the model was told that it is {NAMES[language]}."
    named = ", ".join(f"“{word}”" for word in dict.fromkeys(strange))
    return f"Not among the corpus's {NAMES[language]} words: {named}; expect the model to guess."


def word_at(text: str, start: int, end: int) -> tuple[int, int]:
    """The word that some characters belong to, without the signs around it."""
    middle = min((start + end) // 2, len(text) - 1)
    for word in re.finditer(r"[\w'’-]+|\S", text):
        if word.start() <= middle < word.end():
            return word.span()
    return (start, end)


def apple_token(material: Material) -> tuple[ReadText, int]:
    """The page's sentence as it is read, and the row of its apple."""
    read = material.read([Sentence(TEXT, "en_XX")])
    return read, next(row for row, piece in enumerate(read.pieces) if "apple" in piece)


def strongest_first(values: Tensor) -> list[int]:
    """Places of the values above 0, the largest first."""
    order = values.argsort(descending=True, stable=True)
    return order[values[order] > 0].tolist()


@lesson.figure(
    ["The state at “apple”", "Its sparse code"],
    ["dimension", "feature"],
    ["value", "activation"],
    grid=(1, 2),
    legend=None,
    size=(8.8, 3.1),
    example=read_material,
)
def plot_state(state_axes, code_axes, material: Material):
    """Draw the 256 numbers at the apple and the features that are active there."""
    read, row = apple_token(material)
    x, f = material.dictionary.normalise(read.states[row]), read.code[row]
    active = strongest_first(f)
    state_axes.bar(range(len(x)), x, width=1.0, color="0.55")
    state_axes.set(xlim=(0, len(x)))
    code_axes.vlines(active, 0, f[active], color=BLUE, linewidth=2)
    code_axes.plot(active, f[active], "o", color=BLUE, markersize=5)
    code_axes.set(xlim=(0, len(f)), ylim=(0, 1.2 * float(f.max())))
    top = active[0]
    side = "right" if top > len(f) / 2 else "left"
    code_axes.annotate(
        f"feature {top}", (top, float(f[top])), (-6 if side == "right" else 6, 4), textcoords="offset points", ha=side
    )
    return (
        f"Left: the {len(x)} numbers of the state at “apple”, all of them different from 0. Right: the code of the same "
        f"state, {len(active)} of {len(f):,} features above 0, feature {top} the strongest."
    )


@lesson.figure(
    ["One state, taken apart", "How much each feature adds"],
    ["dimension of the state", "activation f"],
    ["row of the sum", "feature"],
    grid=(1, 2),
    legend=None,
    size=(8.8, 3.7),
    subplots={"width_ratios": (2.2, 1)},
    example=read_material,
)
def plot_parts(parts_axes, lengths, material: Material):
    """Draw the state as the rows that add up to it: what each active feature adds, the bias, and what is left."""
    read, row = apple_token(material)
    network = material.dictionary
    x, f = network.normalise(read.states[row]), read.code[row]
    active = strongest_first(f)
    added = [f[i] * network.decoder_weight[:, i] for i in active]
    bias = network.decoder_bias
    left = x - bias - sum(added)
    table = torch.stack([x, *added, bias, left])
    names = ["the state x", *(f"+ feature {i}" for i in active), "+ bias", "+ what is left"]
    limit = float(x.abs().quantile(0.98))
    parts_axes.imshow(table, aspect="auto", cmap="RdBu_r", vmin=-limit, vmax=limit, interpolation="nearest")
    parts_axes.axhline(0.5, color=BLACK, linewidth=1.5)
    parts_axes.set_yticks(range(len(names)), labels=names)
    parts_axes.grid(visible=False)
    lengths.barh(range(1, 1 + len(active)), f[active], color=BLUE, height=0.7)
    lengths.set(ylim=(len(names) - 0.5, -0.5), yticks=[])
    share = float(1 - left.square().sum() / (x - bias).square().sum())
    return (
        f"Left, from the top: the state at “apple”, then the rows whose sum it is: {len(active)} features, the bias, "
        f"what is left. Blue is below 0. Right: the activations. The features hold {100 * share:.0f}% of the squared length."
    )


@lesson.figure(
    "Which features fire at which token?", "token, and the mean of all", "feature", legend=None, size=(8.0, 3.8),
    example=read_material,
)  # fmt: skip
def plot_firing(axes, material: Material, shown: int = 12):
    """Draw the activations of the strongest features of the sentence at every token, and their means."""
    read, _ = apple_token(material)
    order = strongest_first(read.code.amax(dim=0))
    top = order[:shown]
    table = torch.cat([read.code[:, top], read.code[:, top].mean(dim=0, keepdim=True)]).T
    axes.imshow(table, aspect="auto", cmap="Blues", norm=PowerNorm(0.6, 0, float(table.max())))
    axes.axvline(len(read.pieces) - 0.5, color=RED, linewidth=2, linestyle="--")
    axes.set_xticks(
        range(len(read.pieces) + 1), labels=[*(p.replace("▁", "") for p in read.pieces), "mean"], rotation=60
    )
    axes.set_yticks(range(len(top)), labels=[str(i) for i in top], fontsize=8)
    axes.grid(visible=False)
    return (
        f"The {len(top)} strongest of the {len(order)} features that are active somewhere in the sentence, one row each, at "
        f"its {len(read.pieces)} tokens. Most are dark at one token, and all are pale in the last column, the mean."
    )


def apple_detectors(material: Material) -> dict[str, tuple[Tensor, Tensor, float]]:
    """The best feature and the best neuron for the apple, chosen on the English sentences.

    For each the number of the unit, its largest values in held-out sentences of all languages, and the threshold.
    """
    concept = torch.tensor([CONCEPTS.index(APPLE)])
    english, held_out = material.english, material.held_out
    found = {}
    for name, known, other in (
        ("feature", english.scores, held_out.scores),
        ("neuron", english.largest(english.states), held_out.largest(held_out.states)),
    ):
        best = best_detectors(known, english.labels[:, concept])
        found[name] = (best.unit, other[:, best.unit[0]], float(best.threshold[0]))
    return found


@lesson.figure(
    ["", ""], "sentence, the largest value first", "largest value in it", grid=(1, 2), legend=None, size=(8.8, 3.4),
    example=read_material,
)  # fmt: skip
def plot_ranking(first, second, material: Material):
    """Draw held-out English sentences by the value of the apple's best feature and best neuron."""
    english = material.held_out.language == 0
    holds = material.held_out.labels[english, CONCEPTS.index(APPLE)]
    for axes, (name, (unit, values, threshold)) in zip((first, second), apple_detectors(material).items(), strict=True):
        values = values[english]
        order = values.argsort(descending=True, stable=True)
        ranked, hit = values[order], holds[order]
        axes.vlines((~hit).nonzero()[:, 0], 0, ranked[~hit], color="0.8", linewidth=0.8)
        axes.vlines(hit.nonzero()[:, 0], 0, ranked[hit], color=RED, linewidth=1.6)
        axes.plot(hit.nonzero()[:, 0], ranked[hit], "o", color=RED, markersize=3.5)
        axes.axhline(threshold, color=BLACK, linewidth=1, linestyle=(0, (6, 3)))
        area = float(paired_auroc(values[:, None], holds[:, None])[0])
        f1 = float(f1_scores((values > threshold)[:, None], holds[:, None])[0])
        axes.set_title(f"{name} {int(unit)}: AUROC {area:.2f}, F1 {f1:.2f}")
        axes.set_xlim(-8, len(values))
    second.set_ylim(0, None)
    return (
        f"{len(holds)} held-out English sentences by the largest value of one unit, {int(holds.sum())} with an apple in "
        "orange; dashed, the threshold chosen on other sentences."
    )


def luck(n_units: int = 500, few: int = 20, many: int = 2000) -> tuple[Tensor, Tensor]:
    """The AUROC of units of pure noise on a few rows, and of the same units on many others."""
    from course_lib.interpret.concepts import auroc

    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(few + many, n_units, generator=generator, dtype=torch.float64)
    label = (torch.arange(few + many) % 2 == 0)[:, None]
    return auroc(noise[:few], label[:few])[:, 0], auroc(noise[few:], label[few:])[:, 0]


def named_in_english(
    material: Material, concept: str = APPLE, shrinkage: float = 0.01
) -> dict[str, tuple[Tensor, float]]:
    """Three ways to find a word, chosen on the English sentences: values in held-out sentences, and a threshold."""
    english, held_out = material.english, material.held_out
    column = torch.tensor([CONCEPTS.index(concept)])
    labels = english.labels[:, column]
    pieces = [
        rivals.piece_table(
            text.token, text.sentence, n_sentences=len(text.sentences), n_pieces=len(material.tokenizer)
        ).to_dense()
        for text in (english, held_out)
    ]
    direction = rivals.discriminants(english.states, labels[english.sentence], shrinkage=shrinkage)
    ways = {
        "one word piece": pieces,
        "LDA": [rivals.largest_projections(text.rows, direction) for text in (english, held_out)],
        "one feature": [english.scores, held_out.scores],
    }
    found = {}
    for name, (known, other) in ways.items():
        own = known.shape[1] == 1
        best = rivals.own_detectors(known, labels) if own else best_detectors(known, labels)
        found[name] = other[:, best.unit[0]], float(best.threshold[0])
    return found


@lesson.figure(
    ["", ""], "value, scaled", ["language of the sentences"] * 2, grid=(1, 2), legend=None,
    size=(7.8, 3.2), example=read_material,
)  # fmt: skip
def plot_strips(first, second, material: Material):
    """Draw values of LDA and of one feature in held-out sentences of every language, with English thresholds."""
    held_out, holds = material.held_out, material.held_out.labels[:, CONCEPTS.index(APPLE)]
    generator = np.random.default_rng(0)
    said = []
    ways = named_in_english(material)
    for axes, name in ((first, "LDA"), (second, "one feature")):
        values, threshold = ways[name]
        scores = []
        english = held_out.language == 0
        zero, one = values[english & ~holds].mean(), values[english & holds].mean()
        scaled, cut = (values - zero) / (one - zero), (threshold - zero) / (one - zero)
        for place in range(len(LANGUAGES)):
            own = held_out.language == place
            for chosen, color, size in ((own & ~holds, "0.65", 2), (own & holds, RED, 4)):
                height = place + generator.uniform(-0.3, 0.3, int(chosen.sum()))
                look = {"markersize": size, "antialiased": False, "markeredgewidth": 0}
                axes.plot(scaled[chosen], height, "o", color=color, **look)
            scores.append(float(f1_scores((values[own] > threshold)[:, None], holds[own, None])[0]))
        axes.axvline(float(cut), color=BLACK, linewidth=1.2, linestyle=(0, (6, 3)))
        axes.set_yticks(
            range(4), labels=[f"{NAMES[code]}\nF1 {f1:.2f}" for code, f1 in zip(LANGUAGES, scores, strict=True)]
        )
        axes.set(title=name, ylim=(3.6, -0.6))
        said.append(f"{name}: F1 {scores[0]:.2f} in English, {min(scores[1:]):.2f} to {max(scores[1:]):.2f} elsewhere")
    return (
        "One point for each held-out sentence, orange where it holds an apple; dashed, the threshold chosen in "
        f"English. {'; '.join(said)}."
    )


STRONGEST, REFITTED = "dictionary, strongest of equals", "LDA refitted, told sentences, shrinkage 10"
ARMS = {
    STRONGEST: "dictionary, ties broken",
    "dictionary": "dictionary (told nothing)",
    "k-means, cosine": "k-means (told nothing)",
    "dictionary of the untrained model": "dictionary, untrained model",
    "neurons": "neurons (told nothing)",
    "word pieces": "word pieces (told nothing)",
    "difference of means, told sentences": "difference of means",
    "LDA, told sentences, shrinkage 0.01": "LDA, little shrinkage",
    "LDA, told sentences, shrinkage 10": "LDA, much shrinkage",
    REFITTED: "LDA, much shrinkage, refitted",
    "difference of means, told tokens": "difference of means, told tokens",
    "LDA, told tokens, shrinkage 10": "LDA, much shrinkage, told tokens",
}
# Without those that the picture before has, and with one of the two that are told tokens.
DRAWN_ACROSS = [
    arm
    for arm in ARMS
    if arm not in ("dictionary of the untrained model", "neurons", "difference of means, told tokens")
]
ENGLISH, OTHERS, FOUR = "English", "the three others", "four languages"


def stored_shares(arm: str, question: str) -> list[float]:
    """The shares of concepts that an arm found in each stored draw."""
    return measured(PART, f"{arm}: {question}, %")


def plain_rivals() -> tuple[str, ...]:
    """k-means, and all directions that labels of sentences give at once, LDA with each shrinkage."""
    lda = [f"LDA, told sentences, shrinkage {g:g}" for g in measured(PART, "shrinkages")]
    return ("k-means, cosine", "difference of means, told sentences", *lda)


def shares_text(arm: str, question: str) -> str:
    """The median over the draws, with the smallest and the largest."""
    values = stored_shares(arm, question)
    low, high = min(values), max(values)
    return f"{np.median(values):.0f}%" + (f" ({low:.0f} to {high:.0f})" if round(low) != round(high) else "")


def _draw_shares(axes, arms: Sequence[str], questions: Sequence[str]) -> str:
    looks = ((SKY, "s", 0.2), (RED, "o", -0.2))
    for question, (color, marker, lift) in zip(questions, looks, strict=True):
        for place, arm in enumerate(arms):
            values = stored_shares(arm, question)
            axes.plot(
                values, [place - lift] * len(values), marker, color=color, markersize=6, markeredgecolor=BLACK,
                markeredgewidth=0.4, label=question if place == 0 else None, linestyle="",
            )  # fmt: skip
            axes.text(max(values) + 2, place - lift, f"{np.median(values):.0f}%", va="center", fontsize=8)
    axes.set_yticks(range(len(arms)), labels=[ARMS[arm] for arm in arms])
    axes.set(xlim=(-3, 112), ylim=(len(arms) - 0.4, -0.6), xticks=range(0, 101, 20))
    axes.figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return "; ".join(
        f"{ARMS[arm]}: " + ", ".join(f"{question} {shares_text(arm, question)}" for question in questions)
        for arm in arms
    )


@lesson.figure(
    "Who finds the word: in English, and in four languages at once?", "words found at F1 0.9 (%)", "detector", legend=None,
    size=(8.6, 3.6),
)  # fmt: skip
def plot_untrained(axes):
    """Draw what a trained and an untrained model's dictionary find, beside word pieces and neurons."""
    arms = ("dictionary", "dictionary of the untrained model", "word pieces", "neurons")
    return f"One mark for each of five draws. {_draw_shares(axes, arms, (ENGLISH, FOUR))}."


@lesson.figure(
    "Told English sentences only: who finds the word elsewhere?",
    "words found (%): English at F1 0.9, all three others at F1 0.8",
    "detector",
    legend=None,
    size=(8.0, 4.6),
)
def plot_across(axes):
    """Draw for each way the share of concepts found in English and in all three other languages."""
    _draw_shares(axes, DRAWN_ACROSS, (ENGLISH, OTHERS))
    return "One mark for each of five draws, medians beside them; the appendix has the numbers."


def rivals_table() -> Markdown:
    """Return what the stored run found: medians over its draws, with the smallest and the largest."""
    rows = [
        (label, *(shares_text(arm, question) for question in (FOUR, ENGLISH, OTHERS))) for arm, label in ARMS.items()
    ]
    header = (
        "what finds the word", "F1 0.9 in four languages, told all four", "F1 0.9 in English",
        "F1 0.8 in the three others, told English",
    )  # fmt: skip
    return markdown_table(header, rows)


ask_untrained = lesson.prediction(
    "37.P1",
    "An **untrained copy of the model**, with random weights, gets a dictionary too. Labels choose the best feature and "
    "threshold for every word on English sentences. On new English sentences, how many of the words does it find (F1 0.9), "
    "beside the trained model's dictionary?",
    {
        "None": "Its states are far from empty: each is a fixed random mixture that still holds which word piece it read.",
        "About a fifth": "Random layers keep far more than that: the word piece is still there at its token.",
        "About half": "It is closer than that. A word piece needs no training to be recognised again.",
        "Nearly as many": right(
            "In one language the spelling is enough, and random layers keep it. Only a second language shows what training "
            "has added."
        ),
    },
    reveal=plot_untrained,
)

ask_across = lesson.prediction(
    "37.P2",
    "Only English sentences are labelled. **LDA with little shrinkage** then finds nine in ten of the words on new English "
    "sentences. How many does it find with the same directions and thresholds in German **and** French **and** Spanish?",
    {
        "Nearly all of them": "Then English labels would have found what the languages share. LDA trusts any small "
        "difference that is reliable in English, and such details need not be the same elsewhere.",
        "About two thirds": "That is what a large shrinkage reaches, which uses less of the fine detail. With little of it, "
        "most thresholds chosen in English no longer fit.",
        "Fewer than half": right(
            "Other languages still rank most of these words high, but English thresholds no longer fit, and part of what "
            "LDA weighs is how English writes the word."
        ),
        "Hardly any": "It fails for the apple, but not for every word: a direction made in English still points roughly the "
        "right way.",
    },
    reveal=plot_across,
)


@lesson.explorer
class FeatureExplorer(Explorer):
    """The feature browser with the names hidden: type a sentence, choose a feature, name it from what excites it."""

    title = "What does this feature stand for?"
    summary = (
        "Left: the strongest features of the sentence, row by row, and at which tokens they fire; the box marks the chosen "
        "one. Right: the held-out sentences that excite it most, at most two of a language, the exciting word in brackets, "
        "and, after “Reveal the name”, the concepts whose best detector it is, with their F1 by language."
    )
    rank = Slider(
        "feature of rank", "r", "1 is the feature that fires most strongly in this sentence", 1, 1, SHOWN_FEATURES, 1
    )
    sentence = TextBox("sentence", f"Up to {MAX_TOKENS} tokens; press Enter", TEXT, "La petite fille cherche un chat.")
    language = Choice("its language", "The code that is put before the sentence", "en_XX", LANGUAGES)
    reveal = Switch("Reveal the name", "Show the concepts that this feature detects best, by the labels", False)
    size = (10.4, 4.8)
    together = ("rank", "reveal")
    continuous = False

    def __init__(self, material: Material | None = None):
        self.material = read_material() if material is None else material
        self.named: dict[int, list[NamedDetector]] = {}
        for one in detectors():
            self.named.setdefault(one.feature, []).append(one)
        self.largest = float(self.material.held_out.scores.max())
        super().__init__()

    def compute(self, *, rank, sentence, language, reveal):
        """Return what fires where, the chosen feature, its strongest held-out sentences and its concepts."""
        state = {"language": language, "reveal": reveal, "problem": self._problem(sentence)}
        if state["problem"]:
            return state
        read = self.material.read([Sentence(sentence, language)])
        features = strongest_first(read.code.amax(dim=0))
        place = min(rank, len(features)) - 1
        feature = features[place]
        activation = read.code[:, features[:SHOWN_FEATURES]].T.numpy()
        named = sorted(self.named.get(feature, []), key=lambda one: -(one.f1 or one.f1_train))
        return {
            **state,
            "note": strange_words(sentence, language),
            "tokens": read.words(0),
            "features": features[:SHOWN_FEATURES],
            "activation": activation,
            "n_active": len(features),
            "place": place,
            "asked": rank - 1,
            "feature": feature,
            "strongest": read.words(0)[int(activation[place].argmax())].strip(),
            "examples": self._examples(feature),
            "named": named[:SHOWN_CONCEPTS],
        }

    def _examples(self, feature: int) -> list[tuple[str, float]]:
        """The held-out sentences that excite a feature most, at most two of a language, with their activations."""
        held_out = self.material.held_out
        found, count = [], dict.fromkeys(LANGUAGES, 0)
        for i in strongest_first(held_out.scores[:, feature])[:400]:
            language = held_out.sentences[i].language
            if count[language] < 2 and len(found) < SHOWN_SENTENCES:
                count[language] += 1
                found.append((marked_sentence(held_out, i, feature), float(held_out.scores[i, feature])))
        return found

    def _problem(self, sentence: str) -> str:
        """Say why there is nothing to show, if so."""
        if not sentence.strip():
            return "There is nothing to read yet: type a sentence and press Enter."
        n_tokens = len(self.material.tokenizer.tokenize(sentence))
        if n_tokens > MAX_TOKENS:
            return f"The sentence has {n_tokens} tokens, and the map has room for {MAX_TOKENS}: shorten it."
        return ""

    def draw(self, figure):
        """Draw an empty map, empty bars and lines."""
        axes = figure.subplot_mosaic(
            [["heat", "top"], ["heat", "scores"]], height_ratios=(1.5, 1), width_ratios=(1, 1.1)
        )
        heat, top, scores = (axes[name] for name in ("heat", "top", "scores"))
        for one in (top, scores):
            one.set_yticks([])
            one.grid(visible=False)
        artists = token_map(
            heat, rows=SHOWN_FEATURES, columns=MAX_TOKENS, cmap="Blues", norm=PowerNorm(0.6, 0, self.largest)
        )
        heat.set_title("What fires in the sentence")
        heat.set_xlabel("token", labelpad=42)
        heat.set_ylabel("feature, the strongest first", labelpad=40)
        top.set(title="Held-out sentences that excite it most", xlabel="activation", ylabel="strongest first")
        top.set(xlim=(0, 1.02 * self.largest), ylim=(SHOWN_SENTENCES - 0.4, -0.6))
        scores.set(title="Its name, if it has one", xlabel="F1, in all and by language", ylabel="best first")
        scores.set(xlim=(0, 1), xticks=[], ylim=(SHOWN_CONCEPTS - 0.4, -0.6))
        small = {"va": "center", "fontsize": 8, "parse_math": False}
        return {
            **artists,
            "bars": list(top.barh(range(SHOWN_SENTENCES), 0.0, color=SKY, height=0.8, alpha=0.6)),
            "sentences": [top.text(0.01 * self.largest, place, "", **small) for place in range(SHOWN_SENTENCES)],
            "concepts": [scores.text(0.01, place, "", **small) for place in range(SHOWN_CONCEPTS)],
        }

    def update(self, artists, state):
        """Set the map, the box, the sentences and the name."""
        examples = state.get("examples", [])
        if state["problem"]:
            fill_map(artists, None, message="no sentence to show")
            said = []
        else:
            tokens = [shortened(token.strip() or "␣", 9) for token in state["tokens"]]
            rows = [str(feature) for feature in state["features"]]
            fill_map(artists, state["activation"], rows, tokens, box=(state["place"], None))
            said = [f"{one.concept}   {_by_language(one)}" for one in state["named"]]
            said = said or ["another feature is named for each word"]
            said = said if state["reveal"] else ["hidden: guess first"]
        texts = [text for text, _ in examples]
        for name, words in (("sentences", texts), ("concepts", said)):
            set_data(artists[name], [*words, *[""] * (len(artists[name]) - len(words))])
        for place, bar in enumerate(artists["bars"]):
            bar.set_width(examples[place][1] if place < len(examples) else 0.0)

    def words(self, state):
        """Say which feature it is, where it fires, and, where asked for, its name."""
        source = NAMES[state["language"]]
        if state["problem"]:
            return f"{source}. {state['problem']}"
        fewer = "" if state["asked"] < state["n_active"] else " No more fire here, so it is the last one."
        named = state["named"]
        if not state["reveal"]:
            known = "Its name is hidden."
        elif named:
            known = f"By the labels it is the best detector of {' and of '.join(map(_with_doubt, named))}."
        else:
            known = "By the labels, another feature is as good or better for each word."
        return (
            f"Feature {state['feature']} is number {state['place'] + 1} of the {state['n_active']} that fire in this "
            f"{source} sentence, and strongest at “{state['strongest']}”.{fewer} {known}"
            f"{' ' if state['note'] else ''}{state['note']}"
        )


def _with_doubt(one: NamedDetector) -> str:
    """A concept, with a remark where its detector stays below the F1 from which a word counts as found."""
    known = one.f1 is not None
    if known and one.f1 >= REACHED:
        return one.concept
    return f"{one.concept} ({f'F1 {one.f1:.2f}, below {REACHED}' if known else 'not scored'})"


def _by_language(one: NamedDetector) -> str:
    """The held-out F1 of a detector, in all and by language."""
    each = ", ".join(f"{code[:2]} {f1:.2f}" for code, f1 in one.f1_by_language.items())
    total = "not scored" if one.f1 is None else f"F1 {one.f1:.2f}"
    return f"{total} ({each})" if each else total


def marked_sentence(text: ReadText, i: int, feature: int) -> str:
    """A sentence with the piece at which a feature is strongest in brackets, cut to what there is room for."""
    rows = (text.sentence == i).nonzero()[:, 0]
    place = int(text.code_of(rows)[:, feature].argmax())
    words = text.words(i)
    start = len("".join(words[:place]).lstrip())
    whole = "".join(words).strip()
    begin, end = word_at(whole, start + words[place].startswith(" ") * (place > 0), start + len(words[place]))
    marked = f"{whole[:begin]}[{whole[begin:end]}]{whole[end:]}"
    if len(marked) > EXCERPT + 12:
        first = max(0, min(begin - EXCERPT // 3, len(marked) - EXCERPT - 10))
        marked = ("…" if first else "") + marked[first : first + EXCERPT + 10].strip()
    return f"{text.sentences[i].language[:2]}  {marked}"


def live_shares(material: Material) -> dict[str, dict[str, float]]:
    """The experiment of the stored run, once, with the page's sentences: shares of the concepts that each way finds."""
    english, held_out, scored = material.english, material.held_out, material.scored
    labels, rows = english.labels[:, scored], held_out.rows
    truth = held_out.labels[:, scored]
    tables = {"dictionary": (english.scores.to_sparse_coo(), held_out.scores)}
    pieces = [
        rivals.piece_table(t.token, t.sentence, n_sentences=len(t.sentences), n_pieces=len(material.tokenizer))
        for t in (english, held_out)
    ]
    tables["word pieces"] = (pieces[0], pieces[1].to_dense())
    found = {name: (best_detectors(known, labels), other) for name, (known, other) in tables.items()}
    told = labels[english.sentence]
    for name, directions in (
        ("difference of means, told sentences", rivals.difference_of_means(english.states, told)),
        ("LDA, told sentences", rivals.discriminants(english.states, told, shrinkage=1e-2)),
    ):
        known = rivals.largest_projections(english.rows, directions)
        found[name] = rivals.own_detectors(known, labels), rivals.largest_projections(rows, directions)
    return {name: _shares(best, values, held_out.language, truth) for name, (best, values) in found.items()}


def tied_shares(material: Material) -> tuple[int, dict[str, float]]:
    """How many words have several features of the best English F1, and what the strongest of these find."""
    english, held_out = material.english, material.held_out
    labels = english.labels[:, material.scored]
    first = best_detectors(english.scores.to_sparse_coo(), labels)
    strongest, equals = strongest_of_equals(first, english.scores, labels)
    truth = held_out.labels[:, material.scored]
    return int((equals > 1).sum()), _shares(strongest, held_out.scores, held_out.language, truth)


def refitted_shares(material: Material, shrinkage: float = 10) -> dict[str, float]:
    """What LDA finds that guesses the tokens itself."""
    english, held_out = material.english, material.held_out
    labels = english.labels[:, material.scored]
    rows = replace(english.rows, labels=labels)
    directions = rivals.refitted_discriminants(rows, shrinkage=shrinkage)
    best = rivals.own_detectors(rivals.largest_projections(rows, directions), labels)
    values = rivals.largest_projections(held_out.rows, directions)
    return _shares(best, values, held_out.language, held_out.labels[:, material.scored])


def _shares(best: Detectors, values: Tensor, language: Tensor, truth: Tensor) -> dict[str, float]:
    calls = best.calls(values)
    f1 = torch.stack([f1_scores(calls[language == i], truth[language == i]) for i in range(len(LANGUAGES))])
    return {
        ENGLISH: float((f1[0] >= REACHED).double().mean()),
        OTHERS: float((f1[1:] >= SHARED).all(dim=0).double().mean()),
    }


FIGURES = lesson.figures
