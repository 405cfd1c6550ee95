"""Figures, explorer, predictions and exercises of lesson 29, mbart_to_sparse_features.

The pipeline, and with it transformers, is imported where it runs: the module itself stays light.
"""

import atexit
import json
import math
import re
import tempfile
from collections.abc import Mapping
from difflib import SequenceMatcher
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor

from course_lib.mbart.corpus import LANGUAGES, Sentence, draw_meanings, generate, render
from course_lib.teaching.exercise import Exercise, Mistake, Property
from course_lib.teaching.explorer import Choice, Explorer, Slider, TextBox
from course_lib.teaching.prediction import Prediction
from course_lib.teaching.style import (
    BLACK,
    BLUE,
    GREEN,
    ORANGE,
    PURPLE,
    RED,
    SKY,
    describe,
    new_figure,
    styled,
)

if TYPE_CHECKING:
    from course_lib.pipeline import RunResult

N_SENTENCES = 3600
READ_AGAIN = 1200  # held-out sentences in which the browser looks for what excites a feature
NAMED_FROM = 0.9  # held-out AUROC from which a feature is called by its concept
REACHED = 0.95
LEAST = 3  # held-out sentences of a language that must hold a concept before its score there is given
NAMES = {"en_XX": "English", "fr_XX": "French", "de_DE": "German", "es_XX": "Spanish"}

SHOWN_FEATURES, SHOWN_SENTENCES, SHOWN_CONCEPTS, SHOWN_WORDS = 8, 5, 4, 24
OF_A_LANGUAGE = 2  # of the sentences shown for a feature, so that one language does not hide the others
MAX_TOKENS = 24
LINE_WIDTH = 84  # characters of a line of the translation
EXCERPT = 45

# The run


def lesson_run(out: Path | str, *, progress: bool = True) -> "RunResult":
    """Run the whole pipeline on the built-in model and corpus, shortened to what a lesson can wait for."""
    from course_lib import pipeline, sae

    sparse = sae.TrainConfig(
        steps=700, batch_size=1024, step_size=2e-3, unit_norm_decoder=True, revive_every=200
    )
    return pipeline.run(
        model="course-mbart",
        text="builtin",
        out=out,
        n_sentences=N_SENTENCES,
        stacked=pipeline.StackedConfig(training=sae.TrainConfig(steps=800, step_size=1e-2)),
        sparse=pipeline.SparseConfig(training=sparse),
        device="cpu",
        progress=progress,
    )


@lru_cache(maxsize=1)
def pipeline_run() -> "RunResult":
    """The run that the pictures outside a notebook are drawn from, made once a process."""
    folder = tempfile.TemporaryDirectory(prefix="course-run-")
    atexit.register(folder.cleanup)
    return lesson_run(Path(folder.name) / "run", progress=False)


def concept_scores(run: "RunResult") -> dict[str, list[dict[str, Any]]]:
    """Return the rows of a run's concepts.json by set of units, those of the lexical concepts."""
    scores = json.loads((run.out / "concepts.json").read_text(encoding="utf-8"))["scores"]
    return {units: [row for row in rows if row["category"] != "grammar"] for units, rows in scores.items()}


def lexical_shares(run: "RunResult") -> dict[str, float]:
    """Return for each set of units the share of the lexical concepts that it reaches."""
    return {units: found["lexical_reached"] for units, found in run.metrics["concepts"].items()}


# Figures


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


@styled
def plot_pooling(tokens: list[str], counted: list[bool]) -> Figure:
    """Draw the tokens of one padded sentence and which of them count."""
    figure = new_figure(0.8 * len(tokens), 1.0)
    axes = figure.add_subplot()
    axes.set(xlim=(-0.6, len(tokens) - 0.4), ylim=(-0.75, 0.35))
    axes.axis("off")
    for position, (token, counts) in enumerate(zip(tokens, counted, strict=True)):
        box = Rectangle(
            (position - 0.46, -0.3), 0.92, 0.6, facecolor=SKY if counts else "white", edgecolor=BLACK
        )
        box.set(alpha=0.7 if counts else 0.4, linestyle="-" if counts else "--")
        axes.add_patch(box)
        axes.text(position, 0, token, ha="center", va="center", fontsize=9)
        axes.text(position, -0.55, "counts" if counts else "left out", ha="center", va="center", fontsize=7)
    kept = [token for token, counts in zip(tokens, counted, strict=True) if counts]
    return describe(
        figure,
        f"The {len(tokens)} tokens of one padded sentence. {len(kept)} of them count ({' '.join(kept)}); "
        f"the language code, the end token and the pads are left out.",
    )


UNITS = {  # label, colour, line style, width
    "features": ("sparse features", BLUE, "-", 2.4),
    "neurons": ("neurons", ORANGE, "-.", 1.8),
    "components": ("principal components", GREEN, ":", 2.0),
    "random": ("random features", PURPLE, "--", 1.8),
    "probe": ("logistic probe", BLACK, (0, (1, 1)), 1.4),
}


@styled
def plot_concepts(run: "RunResult") -> Figure:
    """Draw the held-out AUROC of the lexical concepts, best first, for the features and their yardsticks."""
    figure = new_figure(7.0, 4.0)
    axes = figure.add_subplot()
    found, scores = lexical_shares(run), concept_scores(run)
    for units, (label, color, style, width) in UNITS.items():
        values = sorted((row["auroc"] for row in scores[units]), reverse=True)
        shares = 100 * np.arange(1, len(values) + 1) / len(values)
        axes.plot(shares, values, color=color, linestyle=style, linewidth=width, label=label)
    axes.axhline(REACHED, color=RED, linewidth=1, linestyle=(0, (6, 3)))
    axes.text(1, 0.943, "0.95: reached", color=RED, fontsize=9, va="top", ha="left")
    axes.set(xlim=(0, 100), ylim=(0.45, 1.03), xlabel="lexical concepts, best first (% of all)")
    axes.set(ylabel="held-out AUROC of the best unit", title="One unit for each concept?")
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=3)
    said = ", ".join(f"{UNITS[units][0]} {100 * found[units]:.0f}%" for units in UNITS)
    return describe(
        figure,
        "Curves of the held-out AUROC over the lexical concepts, best first. Share of the concepts with 0.95 or more: "
        f"{said}.",
    )


# The browser


class Reading(NamedTuple):
    """What a sentence excites: its pieces and the activations of the features that fire, the strongest first.

    `note` says what is odd about the text, and `problem` why there is nothing to show.
    """

    problem: str
    note: str = ""
    pieces: tuple[str, ...] = ()
    features: tuple[int, ...] = ()
    activation: np.ndarray = np.zeros((0, 0))


class Example(NamedTuple):
    """A sentence, how much it excites a feature, and between which characters."""

    activation: float
    sentence: Sentence
    span: tuple[int, int]


class Told(NamedTuple):
    """A concept that a feature tells best: the held-out AUROC, overall and the languages where it is reached.

    `reached` are the languages in which the AUROC is 0.95 or more, of `scored` that have enough sentences with it.
    """

    concept: str
    auroc: float
    reached: tuple[str, ...]
    scored: tuple[str, ...]


class FeatureBrowser:
    """A run's sparse autoencoder beside its model: what excites its features, and what they do.

    Activations are f_i ||W_d[:, i]||: the length of what a feature adds to a token's state, as a share of the
    root mean square length of the centred training states. What was computed once is kept.
    """

    def __init__(self, run: "RunResult"):
        from course_lib import sae
        from course_lib.mbart.activations import Site, extract
        from course_lib.mbart.model import load

        self.model, self.tokenizer = load(run.metrics["run"]["model"])
        self.autoencoder = sae.load(run.out / "sparse")
        self.site = Site(run.metrics["run"]["site"])
        content = json.loads((run.out / "concepts.json").read_text(encoding="utf-8"))
        self.rows: dict[int, list[dict[str, Any]]] = {}
        for row in sorted(content["scores"]["features"], key=lambda row: -row["auroc"]):
            if row["sign"] > 0:
                self.rows.setdefault(row["unit"], []).append(row)
        with (run.out / "sentences.jsonl").open(encoding="utf-8") as file:
            rows = [json.loads(line) for line in file]
        self.sentences = [
            Sentence(row["text"], row["language"], frozenset(row["concepts"]))
            for row in rows
            if row["split"] == "held_out"
        ][:READ_AGAIN]
        self.states = extract(self.model, self.tokenizer, self.sentences, [self.site], progress=False)[
            self.site
        ]
        self.code = self.encode(self.states.values)
        self.top = float(self.code.max())
        self._kept: dict[tuple, Any] = {}

    @torch.no_grad()
    def encode(self, states: Tensor) -> Tensor:
        """Activations of all features at some states."""
        lengths = self.autoencoder.decoder_weight.norm(dim=0)
        return torch.cat([self.autoencoder.encode(rows.float()) * lengths for rows in states.split(4096)])

    def name(self, feature: int) -> str:
        """The best concept of a feature that tells one well, else its number."""
        best = self.rows.get(feature, [])[:1]
        return best[0]["concept"] if best and best[0]["auroc"] >= NAMED_FROM else f"feature {feature}"

    def concepts(self, feature: int) -> list[Told]:
        """The concepts that have this feature as their best one, best first."""
        return self._once(
            ("concepts", feature), lambda: [self._told(row) for row in self.rows.get(feature, [])]
        )

    def _told(self, row: Mapping[str, Any]) -> Told:
        from course_lib.sae.concepts import auroc

        largest = self.of_sentences(row["unit"])
        holds = torch.tensor([row["concept"] in sentence.concepts for sentence in self.sentences])
        found = {}
        for language in LANGUAGES:
            own = torch.tensor([sentence.language == language for sentence in self.sentences])
            if holds[own].sum() >= LEAST:
                found[language] = float(auroc(largest[own, None], holds[own, None]))
        reached = tuple(language for language, value in found.items() if value >= REACHED)
        return Told(row["concept"], row["auroc"], reached, tuple(found))

    def of_sentences(self, feature: int) -> Tensor:
        """The largest activation of a feature over the tokens of each held-out sentence."""
        zeros = torch.zeros(len(self.sentences))
        return zeros.scatter_reduce(0, self.states.sentence, self.code[:, feature], "amax")

    def examples(self, feature: int) -> list[Example]:
        """The held-out sentences that excite a feature most, at most two of a language."""
        return self._once(("examples", feature), lambda: self._examples(feature))

    def _examples(self, feature: int) -> list[Example]:
        column, found = self.code[:, feature], {}
        for row in column.argsort(descending=True).tolist():
            sentence = self.sentences[int(self.states.sentence[row])]
            if column[row] <= 0 or len(found) == SHOWN_SENTENCES:
                break
            alike = sum(example.sentence.language == sentence.language for example in found.values())
            if sentence.text not in found and alike < OF_A_LANGUAGE:
                # The language code comes first and shifts no offset: any source language will do.
                offsets = self.tokenizer(sentence.text, return_offsets_mapping=True)["offset_mapping"]
                span = _word_at(sentence.text, *offsets[int(self.states.position[row])])
                found[sentence.text] = Example(float(column[row]), sentence, span)
        return list(found.values())

    def read(self, text: str, language: str) -> Reading:
        """The features that fire in a sentence, token by token."""
        return self._once(("read", text, language), lambda: self._read(text, language))

    def _read(self, text: str, language: str) -> Reading:
        from course_lib.mbart.activations import extract

        if not text.strip():
            return Reading("There is nothing to read yet: type a sentence and press Enter.")
        sentence = Sentence(text, language)
        if len(self.tokenizer.tokenize(text)) > MAX_TOKENS:
            return Reading(
                f"The sentence has {len(self.tokenizer.tokenize(text))} tokens, and the map has room for {MAX_TOKENS}: "
                "shorten it."
            )
        states = extract(self.model, self.tokenizer, [sentence], [self.site], progress=False)[self.site]
        code = self.encode(states.values)
        order = code.amax(dim=0).argsort(descending=True, stable=True)
        order = order[code.amax(dim=0)[order] > 0]
        pieces = self.tokenizer.convert_ids_to_tokens(states.token.tolist())
        return Reading(
            "",
            strange_words(text, language),
            tuple(piece.replace("▁", "") or "_" for piece in pieces),
            tuple(order.tolist()),
            code[:, order].T.numpy(),
        )

    def lexical(self, text: str, language: str) -> int | None:
        """The strongest feature of a sentence that is named by a word of content; None where there is none."""
        named = (i for i in self.read(text, language).features if ":" in self.name(i))
        return next((i for i in named if not self.name(i).startswith("grammar:")), None)

    def translate(
        self, text: str, language: str, target: str, changes: Mapping[int, float | int] | None = None
    ) -> str:
        """The decoder's greedy translation, with some features multiplied on the way."""
        changed = tuple(sorted((changes or {}).items()))
        key = ("translate", text, language, target, changed)
        return self._once(key, lambda: self._translate(text, language, target, dict(changed)))

    def _translate(self, text: str, language: str, target: str, changes: Mapping[int, float | int]) -> str:
        from course_lib.mbart.activations import tokenise, uncounted_ids
        from course_lib.mbart.scores import translate
        from course_lib.mbart.splicing import steered

        rows = tokenise(self.tokenizer, [Sentence(text, language)])
        code = self.tokenizer.lang_code_to_id[target]
        skipped = uncounted_ids(self.tokenizer, include_special=False)
        with steered(self.model, self.autoencoder, self.site, changes, skipped_ids=skipped):
            written = translate(self.model, self.tokenizer, rows, [code])[0]
        return self.tokenizer.decode(written, skip_special_tokens=True)

    def _once(self, key: tuple, make: Any) -> Any:
        if key not in self._kept:
            self._kept[key] = make()
        return self._kept[key]


@lru_cache(maxsize=1)
def default_browser() -> FeatureBrowser:
    """The browser of `pipeline_run`, made once a process."""
    return FeatureBrowser(pipeline_run())


def _word_at(text: str, start: int, end: int) -> tuple[int, int]:
    """The word that some characters belong to, without the signs around it."""
    middle = min((start + end) // 2, len(text) - 1)
    for word in re.finditer(r"[\w'’-]+|\S", text):
        if word.start() <= middle < word.end():
            return word.span()
    return (start, end)


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


class FeatureExplorer(Explorer):
    """The feature browser: type a sentence, choose a feature that fires in it, turn it, read the translation."""

    title = "The feature browser"
    summary = (
        "Top left: the strongest sparse features of the sentence, row by row, and at which tokens they fire; the box "
        "marks the chosen one. Right: the held-out sentences that excite it most, at most two of a language, and the "
        "concepts whose best feature it is. Below: the decoder's translation as it is, and with the chosen feature "
        "multiplied by the factor."
    )
    controls = {  # noqa: RUF012 - shared by all instances, never changed
        "rank": Slider(
            label="feature of rank", symbol="r", default=4, minimum=1, maximum=SHOWN_FEATURES, step=1,
            tooltip="1 is the feature that fires most strongly in this sentence",
        ),
        "factor": Slider(
            label="factor", symbol="c", default=0.0, minimum=0.0, maximum=3.0, step=0.5,
            tooltip="0 switches the feature off, 1 leaves it as it is, 3 makes it three times as strong",
        ),
        "sentence": TextBox(
            label="sentence", default="The young girl eats a green apple in the garden.",
            other="La petite fille cherche un chat.",
            tooltip=f"Up to {MAX_TOKENS} tokens; press Enter",
        ),
        "language": Choice(
            label="its language", default="en_XX", options=LANGUAGES,
            tooltip="The code that is put before the sentence",
        ),
        "target": Choice(
            label="translate into", default="de_DE", options=LANGUAGES,
            tooltip="The language in which the decoder writes",
        ),
    }  # fmt: skip
    size = (10.4, 6.6)
    continuous = False

    def __init__(self, run: "RunResult | None" = None):
        self.browser = default_browser() if run is None else FeatureBrowser(run)
        super().__init__()

    def compute(self, *, rank, factor, sentence, language, target):
        """Return what fires, the chosen feature with its sentences and concepts, and both translations."""
        browser = self.browser
        reading = browser.read(sentence, language)
        settings = {"factor": factor, "language": language, "target": target}
        if reading.problem:
            return {**settings, "problem": reading.problem}
        place = min(rank, len(reading.features)) - 1
        feature = reading.features[place]
        original = browser.translate(sentence, language, target)
        steered = (
            original if factor == 1 else browser.translate(sentence, language, target, {feature: factor})
        )
        before, after = changed_words(original, steered)
        return {
            **settings,
            "problem": "",
            "note": reading.note,
            "pieces": reading.pieces,
            "names": [browser.name(i) for i in reading.features[:SHOWN_FEATURES]],
            "activation": reading.activation[:SHOWN_FEATURES],
            "n_active": len(reading.features),
            "place": place,
            "asked": rank - 1,
            "feature": feature,
            "strongest": reading.pieces[int(reading.activation[place].argmax())],
            "examples": browser.examples(feature),
            "concepts": browser.concepts(feature)[:SHOWN_CONCEPTS],
            "original": before,
            "steered": after,
        }

    def draw(self, figure):
        """Draw an empty map, empty bars and lines, and places for the words of two translations."""
        grid = figure.add_gridspec(3, 2, height_ratios=(2.0, 1.45, 1.05), width_ratios=(1.12, 1))
        small = {"fontsize": 8, "parse_math": False}

        heat = figure.add_subplot(grid[:2, 0])
        image = heat.imshow(
            np.zeros((1, 1)), cmap="Blues", norm=PowerNorm(0.6, 0, self.browser.top), extent=(0, 1, 0, 1),
            aspect="auto",
        )  # fmt: skip
        heat.grid(visible=False)
        heat.set(xlim=(0, 1), ylim=(0, 1), xticks=[], yticks=[], title="What fires in the sentence")
        heat.set_xlabel("token", labelpad=42)
        heat.set_ylabel("feature, the strongest first", labelpad=118)

        top = figure.add_subplot(grid[0, 1])
        top.set(
            xlim=(0, 1.02 * self.browser.top), ylim=(SHOWN_SENTENCES - 0.4, -0.6), yticks=[],
            xlabel="activation", ylabel="strongest first", title="Sentences that excite it most",
        )  # fmt: skip
        top.grid(visible=False)
        places = range(SHOWN_SENTENCES)

        told = figure.add_subplot(grid[1, 1])
        told.set(
            xlim=(0.5, 1.0), ylim=(SHOWN_CONCEPTS - 0.4, -0.6), yticks=[], xlabel="held-out AUROC",
            ylabel="best first", title="Concepts whose best feature it is",
        )  # fmt: skip
        told.grid(visible=False)

        lines = figure.add_subplot(grid[2, :])
        lines.set(xlim=(0, LINE_WIDTH), ylim=(0, 4), xticks=[], yticks=[], ylabel="translation")
        lines.set_xlabel("words that differ are red and between stars")
        lines.grid(visible=False)
        mono = {"family": "monospace", "fontsize": 8, "parse_math": False, "va": "center"}
        return {
            "map": image,
            "box": heat.add_patch(Rectangle((0, 0), 0, 0, fill=False, edgecolor=RED, linewidth=2)),
            "rows": [
                heat.text(-0.01, 0, "", ha="right", va="center", **small) for _ in range(SHOWN_FEATURES)
            ],
            "columns": [
                heat.text(0, -0.015, "", ha="center", va="top", rotation=90, **small)
                for _ in range(MAX_TOKENS)
            ],
            "bars": list(top.barh(places, [0.0] * SHOWN_SENTENCES, color=SKY, height=0.8, alpha=0.6)),
            "sentences": [
                top.text(0.01 * self.browser.top, place, "", va="center", **small) for place in places
            ],
            "scores": list(
                told.barh(
                    range(SHOWN_CONCEPTS),
                    [0.0] * SHOWN_CONCEPTS,
                    left=0.5,
                    color=ORANGE,
                    height=0.8,
                    alpha=0.5,
                )
            ),
            "concepts": [
                told.text(0.505, place, "", va="center", **small) for place in range(SHOWN_CONCEPTS)
            ],
            "labels": [
                lines.text(1, height, "", va="center", fontsize=9, color="0.35") for height in (3.5, 1.6)
            ],
            "before": [lines.text(2, 2.65, "", **mono) for _ in range(SHOWN_WORDS)],
            "after": [lines.text(2, 0.75, "", **mono) for _ in range(SHOWN_WORDS)],
            "message": heat.text(0.5, 0.5, "", ha="center", va="center", fontsize=11),
        }

    def update(self, artists, state):
        """Set the map, the box, sentences, scores and the words of both translations."""
        shown = {"activation": np.zeros((1, 1)), "pieces": (), "names": (), "examples": (), "concepts": (),
                 "original": (), "steered": (), **state}  # fmt: skip
        artists["map"].set_data(shown["activation"])
        n_rows, n_columns = shown["activation"].shape
        for place, text in enumerate(artists["rows"]):
            text.set_text(_short(shown["names"][place], 22) if place < len(shown["names"]) else "")
            text.set_y(1 - (place + 0.5) / n_rows)
        for place, text in enumerate(artists["columns"]):
            text.set_text(_short(shown["pieces"][place], 9) if place < len(shown["pieces"]) else "")
            text.set_x((place + 0.5) / n_columns)
        box = (0, 0, 0, 0) if state["problem"] else (0, 1 - (state["place"] + 1) / n_rows, 1, 1 / n_rows)
        artists["box"].set_bounds(*box)
        for place, (bar, line) in enumerate(zip(artists["bars"], artists["sentences"], strict=True)):
            example = shown["examples"][place] if place < len(shown["examples"]) else None
            bar.set_width(example.activation if example else 0.0)
            line.set_text(_excerpt(example) if example else "")
        for place, (bar, line) in enumerate(zip(artists["scores"], artists["concepts"], strict=True)):
            row = shown["concepts"][place] if place < len(shown["concepts"]) else None
            bar.set_width(max(0.0, row.auroc - 0.5) if row else 0.0)
            line.set_text(f"{row.concept}   {row.auroc:.2f}   {_languages(row)}" if row else "")
        if not shown["concepts"] and not state["problem"]:
            artists["concepts"][0].set_text("none: every concept is told better by another feature")
        target = NAMES[state["target"]]
        said = ("", "") if state["problem"] else (
            f"{target}, as it is", f"{target}, the chosen feature times {state['factor']:g}",
        )  # fmt: skip
        for label, text in zip(artists["labels"], said, strict=True):
            label.set_text(text)
        for name, words in (("before", shown["original"]), ("after", shown["steered"])):
            _set_words(artists[name], words)
        artists["message"].set_text("no sentence to show" if state["problem"] else "")

    def words(self, state):
        """Say which feature it is, what it stands for, and what becomes of the translation."""
        source, target = NAMES[state["language"]], NAMES[state["target"]]
        if state["problem"]:
            return f"{source} to {target}. {state['problem']}"
        concepts = state["concepts"]
        known = "no concept of the corpus has it as its best feature"
        if concepts:
            known = (
                f"{concepts[0].concept}, held-out AUROC {concepts[0].auroc:.2f}, {_languages(concepts[0])}"
            )
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


def _languages(told: Told) -> str:
    """In how many languages a concept's feature reaches it."""
    if not told.scored:
        return "too rare to say in which languages"
    return f"reached in {len(told.reached)} of {len(told.scored)} languages"


def _short(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"


def _excerpt(example: Example) -> str:
    """The sentence with the exciting word in brackets, cut to what there is room for."""
    text, (start, end) = example.sentence.text, example.span
    marked = f"{text[:start]}[{text[start:end]}]{text[end:]}"
    if len(marked) > EXCERPT:
        first = max(0, min(start - EXCERPT // 3, len(marked) - EXCERPT))
        marked = ("…" if first else "") + marked[first : first + EXCERPT].strip()
        marked += "…" if first + EXCERPT < len(text) + 2 else ""
    return f"{example.sentence.language[:2]}  {marked}"


def _set_words(texts: list, words: Any) -> None:
    """Lay the words of a translation one after the other; those that differ stand out."""
    column = 2
    for place, text in enumerate(texts):
        word, differs = words[place] if place < len(words) else ("", False)
        shown = f"*{word}*" if differs else word
        fits = column + len(shown) < LINE_WIDTH
        text.set_text(shown if fits else "")
        text.set(x=column, color=RED if differs else BLACK, fontweight="bold" if differs else "normal")
        column += len(shown) + 1 if fits else LINE_WIDTH


# Predictions


def concepts_prediction(run: "RunResult | None" = None) -> Prediction:
    """Ask which units tell most concepts by themselves."""
    run = pipeline_run() if run is None else run
    found = {units: f"{100 * share:.0f}%" for units, share in lexical_shares(run).items()}
    return Prediction(
        "29.P1",
        "For each of the corpus's lexical concepts (dog, red, in the garden) the best single unit is chosen on training "
        "meanings and scored on held-out ones. Which units reach an AUROC of 0.95 for most of the concepts?",
        choices={
            "single neurons": f"A neuron serves many concepts at once: they reach {found['neurons']} of the concepts, "
            f"the sparse features {found['features']}.",
            "principal components": "They are ordered by variance, and no concept has much of it: they reach "
            f"{found['components']}, the sparse features {found['features']}.",
            "as many random sparse features": "Having many units to choose from is not enough: random ones, as many and as "
            f"sparse, reach {found['random']}, the trained ones {found['features']}.",
            "the trained sparse features": f"They reach {found['features']} of the concepts; the neurons reach "
            f"{found['neurons']}, the components {found['components']}, random features {found['random']}.",
        },
        answer="the trained sparse features",
        reveal=lambda: plot_concepts(run),
    )


# Steering


def translation_pairs(n_pairs: int, *, source: str = "en_XX", target: str = "de_DE") -> tuple[list, list]:
    """Held-out sentences and their translations."""
    meanings = draw_meanings(n_pairs, seed=29, split="test")
    return [render(m, source) for m in meanings], [render(m, target) for m in meanings]


# Exercises


def _uniform(generator: torch.Generator, low: float, high: float) -> float:
    return low + (high - low) * float(torch.rand((), generator=generator))


_COMPONENTS = Exercise(
    id="29.1",
    title="How many directions",
    kind="value",
    difficulty=1,
    minutes=3,
    prompt="States of width $d = 256$ are isotropic: every direction has the same variance. How many principal "
    "components are needed to keep at least 90% of the variance?",
    draw=lambda generator: {"variance": _uniform(generator, 0.1, 5.0)},
    reference=231,
    properties=(
        Property("Count whole components, 1 to 256.", lambda i, k: float(k).is_integer() and 1 <= k <= 256),
        Property(
            "With that many components less than 90% is kept.",
            lambda i, k: i["variance"] * float(k) >= 0.9 * i["variance"] * 256 - 1e-9,
        ),
        Property(
            "One component fewer keeps 90% already.",
            lambda i, k: i["variance"] * (float(k) - 1) < 0.9 * i["variance"] * 256 - 1e-9,
        ),
    ),
    hints=(
        "Each of the 256 components keeps the same share of the variance. Which?",
        "k components keep k / 256. Solve k / 256 >= 0.9.",
        "0.9 times 256 is 230.4, and k is whole.",
    ),
    mistakes=(
        Mistake("rounded down", 230, "230 of 256 components keep 89.8%: just short. Round up."),
        Mistake("the share that is lost", 26, "That many components keep about 10%: you solved for what may be lost."),
        Mistake("an eighth", 32, "d/8 = 32 components keep 12.5% of isotropic states, and 90% is asked for."),
        Mistake("did not round", 230.4, "0.9 · 256 = 230.4 is right so far; components are whole: round up."),
    ),
    same=lambda a, b: abs(float(a) - float(b)) < 0.05,
)  # fmt: skip


def mean_over_tokens(states, mask):
    """Mean over the tokens whose mask is True, one row a sentence."""
    weights = mask.to(states.dtype)
    return (states * weights[..., None]).sum(dim=1) / weights.sum(dim=1, keepdim=True)


def _draw_states(generator: torch.Generator) -> dict:
    sentences, tokens = 2, int(torch.randint(3, 6, (), generator=generator))
    states = torch.randn(sentences, tokens, 2, generator=generator, dtype=torch.float64).round(decimals=1)
    mask = torch.rand(sentences, tokens, generator=generator) < 0.5
    mask[:, 0] = False  # the language code
    mask[torch.arange(sentences), torch.randint(1, tokens, (sentences,), generator=generator)] = True
    return {"states": states, "mask": mask}


def _mean_by_loop(inputs: Mapping) -> Tensor:
    rows = [
        [x for x, m in zip(s, k, strict=True) if m]
        for s, k in zip(inputs["states"], inputs["mask"], strict=True)
    ]
    return torch.stack([torch.stack(row).mean(dim=0) for row in rows])


_POOL = Exercise(
    id="29.2",
    title="A mean that does not see the padding",
    kind="function",
    difficulty=2,
    minutes=8,
    prompt="Write `mean_over_tokens(states, mask)`. `states` has shape `(sentences, tokens, d_model)`, `mask` is a bool "
    "tensor of shape `(sentences, tokens)`, True where a token counts; return the mean over those tokens, shape "
    "`(sentences, d_model)`. Every sentence has at least one.",
    draw=_draw_states,
    reference=mean_over_tokens,
    properties=(
        Property(
            "Each row should be the mean over that sentence's counted tokens alone.",
            lambda i, out: torch.allclose(out, _mean_by_loop(i), atol=1e-9),
        ),
    ),
    hints=(
        "Turn the mask into numbers: what is the sum of states times mask?",
        "The mask needs a last dimension of 1 to multiply the states.",
        "Divide by how many tokens count in each sentence, not by how many there are.",
    ),
    mistakes=(
        Mistake("plain mean", lambda s, m: s.mean(dim=1),
                "You averaged over all positions, pads included, as the notes do: the result depends on how long the "
                "longest sentence of the batch is."),
        Mistake("divided by all tokens", lambda s, m: (s * m[..., None]).sum(dim=1) / s.shape[1],
                "You left the pads out of the sum, but divided by the number of all positions."),
        Mistake("summed all tokens", lambda s, m: s.sum(dim=1) / m.sum(dim=1, keepdim=True),
                "You divided by the number of counted tokens, but summed all positions."),
        Mistake("the first ones", lambda s, m: torch.stack([x[: int(k.sum())].mean(0) for x, k in zip(s, m, strict=True)]),
                "You averaged as many tokens as count, but the first ones. The mask says which: the language code in front "
                "does not count."),
        Mistake("did not divide", lambda s, m: (s * m[..., None]).sum(dim=1),
                "You returned the sum: longer sentences get longer vectors. Divide by the number of counted tokens."),
        Mistake("turned the mask over", lambda s, m: (s * ~m[..., None]).sum(dim=1) / (~m).sum(dim=1, keepdim=True),
                "You averaged exactly the tokens that do not count: the mask is True where a token counts."),
        Mistake("one mean for all sentences", lambda s, m: s[m].mean(dim=0).expand(s.shape[0], -1).clone(),
                "`states[mask]` puts the tokens of all sentences into one heap: every sentence gets the same mean."),
    ),
)  # fmt: skip


def area_under_roc(scores, labels):
    """Probability that a positive row scores above a negative one, ties counted half."""
    above = scores[labels][:, None] - scores[~labels]
    return ((above > 0).double() + (above == 0).double() / 2).mean()


def _draw_scores(generator: torch.Generator) -> dict:
    rows, positive = 7, int(torch.randint(2, 5, (), generator=generator))
    labels = torch.zeros(rows, dtype=torch.bool)
    labels[torch.randperm(rows, generator=generator)[:positive]] = True
    # A code has many zeros, and so do the scores: ties are the rule.
    return {
        "scores": torch.randint(0, 4, (rows,), generator=generator).double() / 2,
        "labels": labels,
    }


def _area_by_steps(inputs: Mapping) -> float:
    """Area under the curve itself, threshold by threshold."""
    scores, labels = inputs["scores"], inputs["labels"]
    area, hits, alarms = 0.0, 0.0, 0.0
    for threshold in sorted(set(scores.tolist()), reverse=True):
        called = scores >= threshold
        hits_now = int((called & labels).sum()) / int(labels.sum())
        alarms_now = int((called & ~labels).sum()) / int((~labels).sum())
        area += (alarms_now - alarms) * (hits + hits_now) / 2
        hits, alarms = hits_now, alarms_now
    return area


def _pairs(scores: Tensor, labels: Tensor) -> Tensor:
    return scores[labels][:, None] - scores[~labels]


_AREA = Exercise(
    id="29.3",
    title="How well a feature tells a concept",
    kind="function",
    difficulty=2,
    minutes=10,
    prompt="Write `area_under_roc(scores, labels)`: the AUROC of one unit as a detector of one concept. `scores` has shape "
    "`(rows,)`; `labels` is boolean of shape `(rows,)`, True where the row holds the concept (at least one does, one does "
    "not). Equal scores are frequent, since a sparse feature is 0 almost everywhere. Return one number.",
    draw=_draw_scores,
    reference=area_under_roc,
    properties=(
        Property(
            "It should be the area under the curve of hits against false alarms.",
            lambda i, out: math.isclose(float(out), _area_by_steps(i), abs_tol=1e-9),
        ),
    ),
    hints=(
        "Compare every row that holds the concept with every row that does not: how many pairs are there?",
        "`scores[labels][:, None] - scores[~labels]` is a table with one entry a pair.",
        "An entry above 0 counts as 1, an entry of 0 as a half; then take the mean.",
    ),
    mistakes=(
        Mistake("ties lost", lambda s, y: (_pairs(s, y) > 0).double().mean(),
                "You count a tie as a defeat. A unit that never fires would get 0 instead of 1/2."),
        Mistake("ties won", lambda s, y: (_pairs(s, y) >= 0).double().mean(),
                "You count a tie as a victory. A unit that never fires would be perfect."),
        Mistake("sides exchanged", lambda s, y: (_pairs(s, y) < 0).double().mean() + (_pairs(s, y) == 0).double().mean() / 2,
                "You count the pairs in which the row without the concept scores higher: that is 1 minus the AUROC."),
        Mistake("not divided", lambda s, y: (_pairs(s, y) > 0).double().sum() + (_pairs(s, y) == 0).double().sum() / 2,
                "You counted the pairs that are won; divide by the number of pairs."),
        Mistake("compared with the mean", lambda s, y: (s[y] > s[~y].mean()).double().mean(),
                "You compare with the mean of the rows without the concept. AUROC compares with each of them."),
    ),
)  # fmt: skip


def _relu_mean(c: Mapping) -> float:
    return sum(max(0.0, float(c[key])) for key in ("first", "second")) / 2


_DOMAIN = Exercise(
    id="29.4",
    title="Break the KL penalty",
    kind="flaw",
    difficulty=3,
    minutes=6,
    prompt="The notes put the penalty $\\mathrm{KL}(\\rho \\Vert \\hat\\rho)$ on ReLU units, where $\\hat\\rho$ is the "
    "unit's mean activation over the batch. Give pre-activations of one unit for a batch of two, a dictionary "
    "`{\"first\": ..., \"second\": ...}`, for which the penalty has no value, although the unit is alive (its ReLU is "
    "positive for at least one of the two).",
    draw=lambda generator: {"rho": _uniform(generator, 0.02, 0.3)},
    reference={"first": 3.0, "second": -1.0},
    properties=(
        Property("The unit should be alive: one of the two must be positive.", lambda i, c: _relu_mean(c) > 0),
        Property("For your numbers the penalty has a value.", lambda i, c: _relu_mean(c) >= 1),
    ),
    hints=(
        "Write the second term of KL: which logarithm can fail?",
        "The mean activation of a ReLU unit has no upper limit. What is 1 - rho_hat above 1?",
        "Choose the numbers so that the mean of the two ReLU outputs is 1 or more.",
    ),
    mistakes=(
        Mistake("a dead unit", {"first": -1.0, "second": -2.0},
                "There the penalty is infinite, but the unit is dead: both outputs are 0. Find a living one.",
                lambda i, c: _relu_mean(c) == 0),
        Mistake("a mean below 1", {"first": 0.4, "second": 0.2},
                "The mean of the two outputs lies between 0 and 1, where the penalty is defined.",
                lambda i, c: 0 < _relu_mean(c) < 1 and c["first"] < 1 and c["second"] < 1),
        Mistake("forgot the batch mean", {"first": 1.5, "second": -3.0},
                "One output is above 1, but the penalty looks at the mean over the batch, and that is below 1: the "
                "negative one counts as 0.",
                lambda i, c: 0 < _relu_mean(c) < 1 and max(c["first"], c["second"]) >= 1),
    ),
)  # fmt: skip

EXERCISES = {e.id: e for e in (_COMPONENTS, _POOL, _AREA, _DOMAIN)}

FIGURES = {
    "question": lambda: plot_pooling(*pooling_example()),
    "concepts": lambda: plot_concepts(pipeline_run()),
    "explorer": lambda: FeatureExplorer().strip(),
}
