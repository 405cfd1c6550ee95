"""Experiments, figures, explorer and predictions of lesson 29, mbart_to_sparse_features.

The pipeline, and with it transformers, is imported where it runs: the module itself stays light.
"""

import atexit
import re
import tempfile
from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from IPython.display import Markdown
from matplotlib.colors import PowerNorm
from matplotlib.patches import Rectangle
from torch import Tensor

from course_lib.interpret.detectors import REACHED, SHARED
from course_lib.language.corpus import LANGUAGES, draw_meanings, generate, render
from course_lib.lessons.mbart_to_sparse_features.contents import lesson
from course_lib.measured import measured, quote
from course_lib.teaching import Choice, Explorer, Slider, TextBox, lines, markdown_table
from course_lib.teaching.explorer import set_data
from course_lib.teaching.style import BLACK, ORANGE, RED, SKY
from course_lib.teaching.token_map import fill_map, shortened, token_map

if TYPE_CHECKING:
    from course_lib.interpret.concept_report import ConceptScore
    from course_lib.interpret.run_directory import RunDirectory
    from course_lib.interpret.splits import Shortfall

N_SENTENCES, SPARSE_STEPS = 4800, 500
NAMES = {"en_XX": "English", "fr_XX": "French", "de_DE": "German", "es_XX": "Spanish"}

SHOWN_FEATURES, SHOWN_SENTENCES, SHOWN_CONCEPTS, SHOWN_WORDS = 8, 5, 4, 24
MAX_TOKENS = 24
LINE_WIDTH = 84  # characters of a line of the translation
EXCERPT = 45


def lesson_run(
    out: Path | str, *, n_sentences: int = N_SENTENCES, sparse_steps: int = SPARSE_STEPS, progress: bool = True
) -> "RunDirectory":
    """Run the whole pipeline on the built-in model and corpus, shortened to what a lesson can wait for."""
    from course_lib import pipeline, sae

    sparse = sae.TrainConfig(
        steps=sparse_steps, batch_size=1024, step_size=3e-3, unit_norm_decoder=True, revive_every=200
    )
    return pipeline.run(
        model="course-mbart",
        text="builtin",
        out=out,
        n_sentences=n_sentences,
        stacked=pipeline.StackedConfig(training=sae.TrainConfig(steps=1500, step_size=1e-2)),
        sparse=pipeline.SparseConfig(n_features=1024, training=sparse),
        device="cpu",
        progress=progress,
    )


@lru_cache(maxsize=1)
def pipeline_run() -> "RunDirectory":
    """The run that the pictures outside a notebook are drawn from, made once a process."""
    folder = tempfile.TemporaryDirectory(prefix="course-run-")
    atexit.register(folder.cleanup)
    return lesson_run(Path(folder.name) / "run", progress=False)


def concept_scores(run: "RunDirectory") -> dict[str, list["ConceptScore"]]:
    """Return the scores of a run's detectors by set of units, those of the lexical concepts."""
    report = run.concepts
    return {units: [s for s in scores if s.concept in report.lexical] for units, scores in report.scores.items()}


def lexical_shares(run: "RunDirectory") -> dict[str, float]:
    """Return for each set of units the share of the scored lexical concepts that it reaches."""
    return {units: found["lexical_reached"] for units, found in run.concepts.summary().items()}


def shared_shares(run: "RunDirectory") -> dict[str, float]:
    """Return for each set of units the share of the judged concepts whose one unit serves three languages or more."""
    return {units: found["lexical_shared"] for units, found in run.concepts.summary().items()}


def translation_pairs(n_pairs: int, *, source: str = "en_XX", target: str = "de_DE") -> tuple[list, list]:
    """Held-out sentences and their translations."""
    meanings = draw_meanings(n_pairs, seed=29, split="test")
    return [render(m, source) for m in meanings], [render(m, target) for m in meanings]


def pooling_example() -> tuple[list[str], list[bool]]:
    """Return the tokens of a short sentence padded beside a longer one, and which of them the mean counts."""
    from course_lib.mbart.model import load

    _, tokenizer = load("course-mbart")
    by_length = sorted(generate(400, seed=5), key=lambda sentence: len(sentence.text))
    short, longer = by_length[0], by_length[60]
    tokenizer.src_lang = short.language
    ids = tokenizer([short.text, longer.text], padding=True)["input_ids"][0]
    tokens = tokenizer.convert_ids_to_tokens(ids)
    special = {*tokenizer.all_special_tokens, short.language}
    return tokens, [token not in special for token in tokens]


@lesson.figure(bare=True, example=pooling_example, variants={"question": {}}, ylim=(-0.75, 0.35))
def plot_pooling(axes, tokens: list[str], counted: list[bool]):
    """Draw the tokens of one padded sentence and which of them count."""
    axes.figure.set_size_inches(0.8 * len(tokens), 1.0)
    axes.set_xlim(-0.6, len(tokens) - 0.4)
    looks = {True: {"facecolor": SKY, "alpha": 0.7}, False: {"facecolor": "white", "alpha": 0.4, "linestyle": "--"}}
    for position, (token, counts) in enumerate(zip(tokens, counted, strict=True)):
        axes.add_patch(Rectangle((position - 0.46, -0.3), 0.92, 0.6, edgecolor=BLACK, **looks[counts]))
        axes.text(position, 0, token, ha="center", va="center", fontsize=9)
        axes.text(position, -0.55, "counts" if counts else "left out", ha="center", va="center", fontsize=7)
    kept = [token for token, counts in zip(tokens, counted, strict=True) if counts]
    return (
        f"The {len(tokens)} tokens of one padded sentence. {len(kept)} of them count ({' '.join(kept)}); "
        f"the language code, the end token and the pads are left out."
    )


UNITS = {
    "features": "sparse features",
    "neurons": "neurons",
    "components": "principal components",
    "random": "random features",
    "probe": "logistic probe",
}


@lesson.figure(
    "One unit for each concept?",
    "scored lexical concepts, best first (%)",
    "held-out F1 of the best unit",
    legend=None,
    example=pipeline_run,
    xlim=(0, 100),
    ylim=(0, 1.03),
)
def plot_concepts(axes, run: "RunDirectory"):
    """Draw the held-out F1 of the scored lexical concepts, best first, for the features and their yardsticks."""
    found, scores = lexical_shares(run), concept_scores(run)
    curves = {}
    for units, label in UNITS.items():
        values = sorted((score.f1 for score in scores[units]), reverse=True)
        curves[label] = 100 * np.arange(1, len(values) + 1) / len(values), values
    lines(axes, None, curves)
    axes.axhline(REACHED, color=BLACK, linewidth=1, linestyle=(0, (6, 3)))
    axes.text(99, 0.89, f"{REACHED}: reached", fontsize=9, va="top", ha="right")
    axes.figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=3)
    said = ", ".join(f"{label} {100 * found[units]:.0f}%" for units, label in UNITS.items())
    return (
        f"Curves of the held-out F1 over the {len(values)} scored lexical concepts, best first. Share of the concepts with "
        f"{REACHED} or more: {said}."
    )


def split_concepts(run: "RunDirectory") -> list["Shortfall"]:
    """Return the run's concepts below `REACHED` whose hits a label may divide, largest gap above chance first."""
    rows = [row for row in run.concepts.shortfalls if row.gap is not None]
    return sorted(rows, key=lambda row: row.gap_shuffled - row.gap)


@lesson.figure(
    "Where one feature falls short",
    "recall of the concept's feature (%)",
    "concept, and what divides it",
    legend=None,
    size=(8.0, 5.0),
    example=pipeline_run,
    xlim=(-3, 103),
)
def plot_splits(axes, run: "RunDirectory", count: int = 14):
    """Draw the recall with and without the label that divides a concept most, and the gap that chance gives."""
    rows = split_concepts(run)[:count][::-1]
    for place, row in enumerate(rows):
        low, high = sorted((row.recall_with, row.recall_without))
        middle, half = 100 * row.recall, 50 * row.gap_shuffled
        chance = axes.plot(
            [middle - half, middle + half],
            [place, place],
            "-",
            color=BLACK,
            linewidth=9,
            alpha=0.2,
            solid_capstyle="butt",
        )
        axes.plot([100 * low, 100 * high], [place, place], "-", color=BLACK, linewidth=1)
        has = axes.plot(100 * row.recall_with, place, "o", color=RED, markersize=8)
        lacks = axes.plot(100 * row.recall_without, place, "s", color=SKY, markersize=8, markeredgecolor=BLACK)
    axes.set_yticks(
        range(len(rows)),
        labels=[f"{_named(row.concept)}, {_named(row.divided_by)}" for row in rows],
    )
    axes.figure.legend(
        [has[0], lacks[0], chance[0]],
        ["sentences with the label", "without it", "mean gap by chance"],
        loc="outside lower center",
        ncols=3,
    )
    longer = sum(row.gap > row.gap_shuffled for row in rows)
    return (
        f"One row for each of the {len(rows)} concepts below {REACHED} with the largest gap above chance: the recall of its "
        "feature in sentences with the label that divides them most, and without it, beside a bar as long as the mean gap "
        f"by chance. In {longer} rows the gap is longer than the bar."
    )


def _named(label: str) -> str:
    return NAMES.get(label, label.rpartition(":")[2])


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


@lesson.figure(
    ["Concepts with a feature", "What becomes of the features"],
    "features",
    ["of 368 concepts (%)", "number"],
    grid=(1, 2),
    legend="upper left",
    size=(8.8, 3.8),
    example=size_sweep,
    xscale="log",
)
def plot_sizes(reached, used, sweep: dict[str, list[float]]):
    """Draw how many concepts a dictionary of each size reaches, and how many of its features never fire."""
    shares = {what: sweep[what] for what in ("F1 0.9 or more", "F1 0.8 in three languages")}
    numbers = {
        "different features that detect a concept": sweep["different detectors"],
        "dead features": sweep["dead"],
    }
    lines(reached, SIZES, shares, marker="o")
    lines(used, SIZES, numbers, first=2, marker="s")
    for axes in (reached, used):
        axes.set_xticks(SIZES, labels=[f"{size:,}" for size in SIZES])
        axes.minorticks_off()
    reached.set_ylim(0, 125)
    reached.set_yticks(range(0, 101, 20))
    used.set_ylim(0, 3100)
    said = "; ".join(
        f"{size:,} features: {good:.0f}% at F1 0.9, {shared:.0f}% in three languages, {units:.0f} different detectors, "
        f"{dead:,.0f} dead"
        for size, good, shared, units, dead in zip(SIZES, *sweep.values(), strict=True)
    )
    return f"Left: concepts that a feature reaches, by the number of features. Right: features. {said}."


def sentence_vectors(run: "RunDirectory") -> dict[str, dict[str, tuple[Tensor, Tensor]]]:
    """Return the run's pooled states and the numbers of their languages, by side of the model and by split."""
    rows = run.sentences
    languages = torch.tensor([LANGUAGES.index(row.language) for row in rows])
    splits = {split: torch.tensor([row.split == split for row in rows]) for split in ("train", "held_out")}
    saved = run.vectors()
    return {
        side: {split: (saved[side][chosen], languages[chosen]) for split, chosen in splits.items()}
        for side in ("encoder", "decoder")
    }


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


def changed_words(original: str, steered: str) -> tuple[list[tuple[str, bool]], list[tuple[str, bool]]]:
    """The words of two translations, each with whether it differs from the other."""
    a, b = original.split(), steered.split()
    differs = ([True] * len(a), [True] * len(b))
    for block in SequenceMatcher(None, a, b, autojunk=False).get_matching_blocks():
        differs[0][block.a : block.a + block.size] = [False] * block.size
        differs[1][block.b : block.b + block.size] = [False] * block.size
    return list(zip(a, differs[0], strict=True)), list(zip(b, differs[1], strict=True))


@lesson.explorer
class FeatureExplorer(Explorer):
    """The feature browser: type a sentence, choose a feature that fires in it, turn it, read the translation."""

    title = "The feature browser"
    summary = (
        "Top left: the strongest sparse features of the sentence, row by row, and at which tokens they fire; the box "
        "marks the chosen one. Right: the held-out sentences that excite it most, at most two of a language, and the "
        "concepts whose best feature it is. Below: the decoder's translation as it is, and with the chosen feature "
        "multiplied by the factor."
    )
    rank = Slider(
        "feature of rank", "r", "1 is the feature that fires most strongly in this sentence", 4, 1, SHOWN_FEATURES, 1
    )
    factor = Slider(
        "factor",
        "c",
        "0 switches the feature off, 1 leaves it as it is, 3 makes it three times as strong",
        0.0,
        0.0,
        3.0,
        0.5,
    )
    sentence = TextBox(
        "sentence",
        f"Up to {MAX_TOKENS} tokens; press Enter",
        "The young girl eats a green apple in the garden.",
        "La petite fille cherche un chat.",
    )
    language = Choice("its language", "The code that is put before the sentence", "en_XX", LANGUAGES)
    target = Choice("translate into", "The language in which the decoder writes", "de_DE", LANGUAGES)
    together = ("rank", "factor")
    size = (10.4, 6.6)
    continuous = False

    def __init__(self, run: "RunDirectory | None" = None):
        from course_lib.interpret.browser.features import FeatureBrowser
        from course_lib.interpret.browser.server import open_or_build
        from course_lib.mbart.families import languages

        run = pipeline_run() if run is None else run
        self.browser = FeatureBrowser(run)
        self.index = open_or_build(run, effects=0, progress=False)
        self.largest = float(self.index.tables["largest"].max())
        self.translate = lru_cache(maxsize=256)(self.browser.translate)
        if unknown := set(LANGUAGES) - set(languages(self.browser.tokenizer)):
            raise ValueError(
                f"this explorer has the languages {', '.join(LANGUAGES)}, and the run's model does not know "
                f"{', '.join(sorted(unknown))}; open the run with course_lib.interpret.browser.browse instead"
            )
        super().__init__()

    def compute(self, *, rank, factor, sentence, language, target):
        """Return what fires, the chosen feature with its sentences and concepts, and both translations."""
        from course_lib.interpret.browser.features import Change

        index = self.index
        state = {"factor": factor, "language": language, "target": target, "problem": self._problem(sentence)}
        if state["problem"]:
            return state
        reading = self.browser.read(sentence, language)
        place = min(rank, len(reading.features)) - 1
        feature = reading.features[place]
        activation = reading.activation[:, reading.features[:SHOWN_FEATURES]].T.numpy()
        original = self.translate(sentence, language, target)
        change = Change(feature, "scale", factor)
        steered = original if factor == 1 else self.translate(sentence, language, target, (change,))
        examples = index.strongest(feature, SHOWN_SENTENCES, held_out=True, per_language=2)
        before, after = changed_words(original, steered)
        return {
            **state,
            "note": strange_words(sentence, language),
            "tokens": reading.tokens,
            "names": [index.name(i) for i in reading.features[:SHOWN_FEATURES]],
            "activation": activation,
            "n_active": len(reading.features),
            "place": place,
            "asked": rank - 1,
            "feature": feature,
            "strongest": reading.tokens[int(activation[place].argmax())],
            "examples": [index.example(sentence, feature) for sentence in examples],
            "concepts": index.concepts.get(feature, [])[:SHOWN_CONCEPTS],
            "original": before,
            "steered": after,
        }

    def _problem(self, sentence: str) -> str:
        """Say why there is nothing to show, if so."""
        if not sentence.strip():
            return "There is nothing to read yet: type a sentence and press Enter."
        n_tokens = len(self.browser.tokenizer.tokenize(sentence))
        if n_tokens > MAX_TOKENS:
            return f"The sentence has {n_tokens} tokens, and the map has room for {MAX_TOKENS}: shorten it."
        return ""

    def draw(self, figure):
        """Draw an empty map, empty bars and lines, and places for the words of two translations."""
        axes = figure.subplot_mosaic(
            [["heat", "top"], ["heat", "scores"], ["lines", "lines"]],
            height_ratios=(2.0, 1.45, 1.05),
            width_ratios=(1.12, 1),
        )
        heat, top, scores, below = (axes[name] for name in ("heat", "top", "scores", "lines"))
        for one in (top, scores, below):
            one.set_yticks([])
            one.grid(visible=False)
        artists = token_map(
            heat, rows=SHOWN_FEATURES, columns=MAX_TOKENS, cmap="Blues", norm=PowerNorm(0.6, 0, self.largest)
        )
        heat.set_title("What fires in the sentence")
        heat.set_xlabel("token", labelpad=42)
        heat.set_ylabel("feature, the strongest first", labelpad=118)
        top.set(title="Sentences that excite it most", xlabel="activation", ylabel="strongest first")
        top.set(xlim=(0, 1.02 * self.largest), ylim=(SHOWN_SENTENCES - 0.4, -0.6))
        scores.set(title="Concepts whose best feature it is", xlabel="held-out F1", ylabel="best first")
        scores.set(xlim=(0, 1.0), ylim=(SHOWN_CONCEPTS - 0.4, -0.6))
        below.set(xlim=(0, LINE_WIDTH), ylim=(0, 4), xticks=[], ylabel="translation")
        below.set_xlabel("words that differ are red and between stars")
        small = {"va": "center", "fontsize": 8, "parse_math": False}
        mono = {"family": "monospace", **small}
        places, ranks = range(SHOWN_SENTENCES), range(SHOWN_CONCEPTS)
        return {
            **artists,
            "bars": list(top.barh(places, 0.0, color=SKY, height=0.8, alpha=0.6)),
            "sentences": [top.text(0.01 * self.largest, place, "", **small) for place in places],
            "scores": list(scores.barh(ranks, 0.0, color=ORANGE, height=0.8, alpha=0.5)),
            "concepts": [scores.text(0.01, place, "", **small) for place in ranks],
            "labels": [below.text(1, height, "", va="center", fontsize=9, color="0.35") for height in (3.5, 1.6)],
            "before": [below.text(2, 2.65, "", **mono) for _ in range(SHOWN_WORDS)],
            "after": [below.text(2, 0.75, "", **mono) for _ in range(SHOWN_WORDS)],
        }

    def update(self, artists, state):
        """Set the map, the box, sentences, scores and the words of both translations."""
        examples, concepts = state.get("examples", []), state.get("concepts", [])
        scored = [f"{row['concept']}   {row['f1']:.2f}   {_languages(row)}" for row in concepts]
        labels = []
        if state["problem"]:
            fill_map(artists, None, message="no sentence to show")
        else:
            names = [shortened(name, 22) for name in state["names"]]
            tokens = [shortened(token, 9) for token in state["tokens"]]
            fill_map(artists, state["activation"], names, tokens, box=(state["place"], None))
            scored = scored or ["of no concept that was scored"]
            target = NAMES[state["target"]]
            labels = [f"{target}, as it is", f"{target}, the chosen feature times {state['factor']:g}"]
        for name, words in (("sentences", map(_excerpt, examples)), ("concepts", scored), ("labels", labels)):
            set_data(artists[name], _padded(words, len(artists[name]), ""))
        widths = {"bars": [example["activation"] for example in examples], "scores": [row["f1"] for row in concepts]}
        for name, values in widths.items():
            for bar, width in zip(artists[name], _padded(values, len(artists[name]), 0.0), strict=True):
                bar.set_width(width)
        for name, words in (("before", "original"), ("after", "steered")):
            _set_words(artists[name], state.get(words, []))

    def words(self, state):
        """Say which feature it is, what it stands for, and what becomes of the translation."""
        source, target = NAMES[state["language"]], NAMES[state["target"]]
        if state["problem"]:
            return f"{source} to {target}. {state['problem']}"
        concepts = state["concepts"]
        known = "no concept that was scored has it as its best feature"
        if concepts:
            best = concepts[0]
            known = f"{best['concept']}, held-out F1 {best['f1']:.2f}, AUROC {best['auroc']:.2f}, {_languages(best)}"
        place, factor = state["place"] + 1, state["factor"]
        fewer = "" if state["asked"] < state["n_active"] else " No more fire here, so it is the last one."
        before, after = (" ".join(word for word, _ in state[name]) for name in ("original", "steered"))
        turned = {0: "switched off", 1: "left as it is"}.get(factor, f"multiplied by {factor:g}")
        outcome = f"stays “{before}”" if before == after else f"turns from “{before}” into “{after}”"
        return (
            f"Feature {state['feature']} ({known}) is number {place} of the {state['n_active']} that fire in this {source} "
            f"sentence, and strongest at “{state['strongest']}”.{fewer} With the feature {turned}, the {target} translation "
            f"{outcome}.{' ' if state['note'] else ''}{state['note']}"
        )


def _padded(values: Iterable, length: int, blank: Any) -> list:
    found = list(values)
    return found + [blank] * (length - len(found))


def _languages(row: dict[str, Any]) -> str:
    """In how many languages a concept's feature detects it."""
    if not row["languages_scored"]:
        return "too rare to say in which languages"
    return f"F1 {SHARED} in {row['languages_reached']} of {row['languages_scored']} languages"


def word_at(text: str, start: int, end: int) -> tuple[int, int]:
    """The word that some characters belong to, without the signs around it."""
    middle = min((start + end) // 2, len(text) - 1)
    for word in re.finditer(r"[\w'’-]+|\S", text):
        if word.start() <= middle < word.end():
            return word.span()
    return (start, end)


def _excerpt(example: dict[str, Any]) -> str:
    """The sentence with the exciting word in brackets, cut to what there is room for."""
    parts = example["parts"]
    text = "".join(part for part, _ in parts)
    place = max(range(len(parts)), key=lambda i: parts[i][1] or 0.0)
    first = sum(len(part) for part, _ in parts[:place])
    start, end = word_at(text, first, first + len(parts[place][0]))
    marked = f"{text[:start]}[{text[start:end]}]{text[end:]}"
    if len(marked) > EXCERPT:
        first = max(0, min(start - EXCERPT // 3, len(marked) - EXCERPT))
        marked = ("…" if first else "") + marked[first : first + EXCERPT].strip()
        marked += "…" if first + EXCERPT < len(text) + 2 else ""
    return f"{example['language'][:2]}  {marked}"


def _set_words(texts: list, words: Sequence[tuple[str, bool]]) -> None:
    """Lay the words of a translation one after the other; those that differ stand out."""
    column = 2
    for text, (word, differs) in zip(texts, _padded(words[: len(texts)], len(texts), ("", False)), strict=True):
        shown = f"*{word}*" if differs else word
        fits = column + len(shown) < LINE_WIDTH
        text.set(text=shown if fits else "", x=column)
        text.set(color=RED if differs else BLACK, fontweight="bold" if differs else "normal")
        column += len(shown) + 1 if fits else LINE_WIDTH


def _what_units_reach(run: "RunDirectory") -> dict[str, str]:
    found = {units: f"{100 * share:.0f}%" for units, share in lexical_shares(run).items()}
    return {
        "single neurons": f"A neuron serves many concepts at once: they reach {found['neurons']} of the concepts, "
        f"the sparse features {found['features']}.",
        "principal components": "They are ordered by variance, and no concept has much of it: they reach "
        f"{found['components']}, the sparse features {found['features']}.",
        "as many random sparse features": "Having many units to choose from is not enough: random ones, as many and as "
        f"sparse, reach {found['random']}, the trained ones {found['features']}.",
        "the trained sparse features": f"They reach {found['features']} of the concepts; the neurons reach "
        f"{found['neurons']}, the components {found['components']}, random features {found['random']}.",
    }


concepts_prediction = lesson.prediction(
    "29.P1",
    "Take the corpus's lexical concepts (grandmother, eat, in the garden) that at least 30 held-out sentences hold. For "
    "each of them the best single unit is chosen on training meanings and scored on held-out ones. Which units reach an F1 "
    "of 0.9 for the largest share of these concepts?",
    _what_units_reach,
    answer="the trained sparse features",
    reveal=plot_concepts,
)

FIGURES = lesson.figures
