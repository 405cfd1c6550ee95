"""Figures, explorer, predictions and measurements of lesson 19, linear purification.

The model, and with it transformers, is imported where it runs: the module itself stays light.
"""

from functools import cache, partial

import numpy as np
import torch
from IPython.display import Markdown
from torch import Tensor

from course_lib.lessons.linear_purification.contents import lesson
from course_lib.measured import measured as stored
from course_lib.measured import quote
from course_lib.representation.erasure import Eraser, ErasureMoments, concept_columns, fit_eraser
from course_lib.representation.purification import Purifier, shrink_factors
from course_lib.teaching import Explorer, Slider, lines, markdown_table, panels
from course_lib.teaching.style import BLACK, BLUE, ORANGE, RED

GREY = "0.55"
SPECTRUM = torch.tensor([10.0, 8.0, 4.0, 1.0, 0.5, 0.36, 0.16, 0.01], dtype=torch.float64)  # the notes' example
CLASSES, SEEN = 4, 600
CHANCE = 1 / CLASSES


def normal(*shape: int, seed: int) -> Tensor:
    """Return standard normal numbers in float64."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@cache
def rows() -> tuple[Tensor, Tensor]:
    """Return 1,200 rows of 8 features whose singular values are `SPECTRUM`, and their class, 0 to 3.

    The features are the principal directions, the widest first. The class shifts the rows along the fourth to the
    seventh, where they are narrow.
    """
    label = torch.arange(2 * SEEN) % CLASSES
    shift = torch.zeros(CLASSES, 8, dtype=torch.float64)
    shift[:, 3:7] = 3 * torch.linalg.qr(normal(4, 4, seed=4)).Q
    raw = normal(2 * SEEN, 8, seed=1) + shift[label]
    return torch.linalg.qr(raw - raw.mean(0)).Q * SPECTRUM, label


def probe(x: Tensor, z: Tensor, *, ridge: float = 0.0) -> tuple[Tensor, Tensor]:
    """Fit a linear probe by least squares, with a ridge penalty if one is given; return weights and bias."""
    mean, level = x.mean(0), z.mean(0)
    u, s, vh = torch.linalg.svd(x - mean, full_matrices=False)
    # Directions below 1e-12 of the largest are rounding.
    inverse = torch.where(s > 1e-12 * s[0], s / (s**2 + ridge), 0)
    weight = vh.T @ (inverse[:, None] * (u.T @ (z - level)))
    return weight, level - mean @ weight


def probe_accuracy(x: Tensor, label: Tensor, *, seen: int = SEEN, ridge: float = 0.0) -> float:
    """Return the share of new rows whose class a probe finds that was fitted to the first `seen` rows."""
    weight, bias = probe(x[:seen].double(), concept_columns(label[:seen]), ridge=ridge)
    said = (x[seen:].double() @ weight + bias).round(decimals=9)  # a blind probe ties, whatever its rounding
    return float((said.argmax(1) == label[seen:]).double().mean())


def nearest_accuracy(x: Tensor, label: Tensor, *, seen: int) -> float:
    """Return the share of new rows that have the class of the nearest of the first `seen` rows: no linear probe."""
    nearest = torch.cdist(x[seen:], x[:seen]).argmin(1)
    return float((label[nearest] == label[seen:]).double().mean())


def purified(x: Tensor, penalty: float) -> Tensor:
    """Purify all rows, which needs no labels."""
    return Purifier.fit(x).purify(x, penalty)


WAYS = ("the probe's direction, at right angles", "by whitening (LEACE)", "random directions")


@cache
def erasing(penalty: float = 0.0) -> dict[str, list[float]]:
    """Return a new probe's accuracy after 0, 1, ..., 7 directions were erased, one after the other, for each way."""
    x, label = rows()
    x = purified(x, penalty)
    moments = ErasureMoments()
    moments.update(x[:SEEN], label[:SEEN])
    best, chance = moments.eraser(), moments.random_eraser(7, generator=torch.Generator().manual_seed(0))
    found = {}
    for way, eraser in zip(WAYS[1:], (best, chance), strict=True):
        parts = (Eraser(eraser.mean, eraser.write[:, :k], eraser.read[:k]) for k in range(8))
        found[way] = [probe_accuracy(part.erase(x), label) for part in parts]
    found[WAYS[0]] = [probe_accuracy(x, label)]
    for _ in range(7):
        weight, _ = probe(x[:SEEN], concept_columns(label[:SEEN]))
        direction = torch.linalg.svd(weight)[0][:, :1] if weight.any() else weight[:, :1]
        x = x - x @ direction @ direction.T
        found[WAYS[0]].append(probe_accuracy(x, label))
    return {way: found[way] for way in WAYS}


@lesson.figure(
    "Take out a direction, and ask a new probe",
    "directions taken out",
    "share of new rows with the right class",
    size=(7.0, 3.9),
    ylim=(0, 1.05),
    variants={"question": {}, "count": {"ways": WAYS}},
)
def plot_question(axes, ways=WAYS[:1]):
    """Draw the accuracy of a new probe after directions were taken out one by one, chosen in one way or several."""
    lines(axes, None, {way: erasing()[way] for way in ways}, marker="o", markersize=5)
    axes.axhline(CHANCE, color=GREY, linestyle=":", label="chance")
    said = "; ".join(f"{way} {', '.join(f'{share:.2f}' for share in erasing()[way])}" for way in ways)
    return (
        "The share of new rows whose class, one of four, is found by a linear probe that is fitted anew after 0, 1, ..., 7 "
        f"directions were taken out; chance is 0.25. What is taken out, and the shares: {said}."
    )


PENALTIES = np.logspace(-3, 3, 25)


@lesson.figure(
    "Purified rows, and who still reads the class",
    "penalty λ of the purification",
    "share of new rows with the right class",
    xscale="log",
    ylim=(0, 1.05),
    size=(7.0, 3.9),
    legend="lower left",
)
def plot_purified(axes):
    """Draw the accuracy of two probes on purified rows, and what is left of the narrow directions."""
    x, label = rows()
    tables = [purified(x, penalty) for penalty in PENALTIES.tolist()]
    lines(
        axes,
        PENALTIES,
        {
            "probe by least squares": [probe_accuracy(t, label) for t in tables],
            "probe with a penalty of 1": [probe_accuracy(t, label, ridge=1.0) for t in tables],
            "factor of direction 5": shrink_factors(SPECTRUM[4:5], torch.tensor(PENALTIES))[:, 0],
        },
    )
    axes.axhline(CHANCE, color=GREY, linestyle=":", label="chance")
    return (
        "Against the penalty of the purification, logarithmic: the accuracy of a least-squares probe is the same "
        "for all "
        "penalties, while the factor of the fifth direction falls from 1 to nearly 0. A probe that is penalised "
        "itself loses the class as the directions shrink."
    )


# Erasing in the plane


@cache
def plane() -> tuple[Tensor, Tensor]:
    """Return 400 rows of two correlated features, centred, and their class, 0 or 1."""
    label = torch.arange(400) % 2
    spread = torch.tensor([[1.0, 0.0], [1.1, 0.5]], dtype=torch.float64)
    x = normal(400, 2, seed=7) @ spread.T + (2.0 * label[:, None] - 1) * torch.tensor([0.9, 0.2], dtype=torch.float64)
    return x - x.mean(0), label


def plane_ways() -> dict[str, Tensor]:
    """Return the centred rows of the plane, erased in three ways."""
    x, label = plane()
    weight = probe(x, label[:, None].double())[0]
    gap = (x[label == 1].mean(0) - x[label == 0].mean(0))[:, None]
    out = lambda direction: x - x @ direction @ direction.T / direction.square().sum()  # noqa: E731
    return {
        "probe's direction": out(weight),
        "difference of means": out(gap),
        "LEACE": fit_eraser(x, label).erase(x),
    }


@lesson.figure(
    ["the probe's direction out", "difference of means out", "LEACE"],
    "feature 1",
    "feature 2",
    grid=(1, 3),
    legend=["upper left", None, None],
    xlim=(-3.2, 3.2),
    ylim=(-3.2, 3.2),
    aspect="equal",
    size=(11.4, 4.4),
)
def plot_oblique(*axes):
    """Draw both classes, and where each of three erasers moves them."""
    x, label = plane()
    said = []
    for one, (name, moved) in zip(axes, plane_ways().items(), strict=True):
        for value, color, mark in ((0, BLUE, "o"), (1, ORANGE, "^")):
            before, after = x[label == value], moved[label == value]
            one.plot(*before[:60].T, mark, color=color, alpha=0.35, markersize=4, label=f"class {value}")
            for start, end in zip(before[:14], after[:14], strict=True):
                one.plot(*torch.stack([start, end]).T, color=color, linestyle="-", linewidth=0.8, label="_way")
            one.plot(*after.mean(0), mark, color=color, markersize=13, markeredgecolor=BLACK, label="_mean", zorder=5)
        cost = float((moved - x).square().sum(1).mean())
        one.set_title(f"{one.get_title()}\nmean squared change {cost:.2f}", fontsize=11)
        said.append(f"{name}, mean squared change {cost:.2f}")
    return (
        "Two correlated features of two classes, and thin lines to where each way of erasing moves some points; large "
        f"marks are the means of the classes afterwards. {said[0]}: the means stay apart. {said[1]}: the means "
        f"meet, and "
        f"points move at right angles to the line on which they end. {said[2]}: the means meet, and points move a "
        "shorter way, along a slanted direction."
    )


# Language in the model


@cache
def mbart():
    """Return the shipped model and its tokenizer."""
    from course_lib.mbart.model import load

    return load()


@cache
def sentences(split: str):
    """Return generated sentences in four languages: 1,200 to fit on, or 400 new meanings."""
    from course_lib.language.corpus import generate

    return generate(1200, seed=1) if split == "train" else generate(400, seed=2, split="test")


@cache
def token_states(site: str, split: str) -> tuple[Tensor, Tensor, Tensor]:
    """Return the states of all tokens at a site, codes and ends included, their language and their determiner.

    Languages count from 0; determiners from 1, with 0 for tokens that are none.
    """
    from course_lib.interpret.concepts import token_concepts
    from course_lib.language.corpus import LANGUAGES, LEXICAL_CONCEPTS
    from course_lib.mbart.activations import Site, extract

    model, tokenizer = mbart()
    read = sentences(split)
    names = [c for c in LEXICAL_CONCEPTS if c.startswith("determiner:")]
    at = Site.parse(site)
    states = extract(model, tokenizer, read, (at,), include_special=True, progress=False)[at]
    language = torch.tensor([LANGUAGES.index(s.language) for s in read])[states.sentence]
    held = []
    for sentence in read:
        tokenizer.src_lang = sentence.language
        offsets = tokenizer(sentence.text, return_offsets_mapping=True)["offset_mapping"]
        held.append(
            [next((names.index(c) + 1 for c in t if c in names), 0) for t in token_concepts(sentence.words, offsets)]
        )
    pairs = zip(states.sentence.tolist(), states.position.tolist(), strict=True)
    return states.values, language, torch.tensor([held[i][p] for i, p in pairs])


def exact_match(
    eraser: Eraser | None = None, site: str = "encoder.final", *, turned: int = 0, n_pairs: int = 100
) -> float:
    """Return the share of greedy translations that are exactly right, over random pairs of languages.

    With an eraser, the states at the site are erased while the model writes. `turned` replaces the code of the
    source language by that of the language so many places further: a wrong one.
    """
    from contextlib import nullcontext

    from course_lib.language.corpus import LANGUAGES, draw_meanings, render
    from course_lib.mbart.activations import Site
    from course_lib.mbart.pretraining.examples import Texts, translation_pair
    from course_lib.mbart.splicing import replaced
    from course_lib.mbart.translation import translate

    model, tokenizer = mbart()
    rng, meanings = np.random.default_rng(0), draw_meanings(n_pairs, seed=3, split="test")
    texts = Texts({code: [render(m, code).text for m in meanings] for code in LANGUAGES}, tokenizer)
    pairs = [translation_pair(texts, tokenizer, rng) for _ in range(n_pairs)]
    codes = [tokenizer.lang_code_to_id[code] for code in LANGUAGES]
    sources = [[codes[(codes.index(s[0]) + turned) % 4], *s[1:]] for s, _ in pairs]
    with nullcontext() if eraser is None else replaced(model, Site.parse(site), eraser.erase):
        written = translate(model, tokenizer, sources, [target[0] for _, target in pairs])
    return float(np.mean([a == list(b) for a, (_, b) in zip(written, pairs, strict=True)]))


@cache
def measured() -> dict[str, float]:
    """Return shares of exact translations: as the model is, and with something taken out of its states."""
    shares = {"as the model is": exact_match()}
    for site, name in (
        ("encoder.final", "language"),
        ("encoder.final", "determiner"),
        ("encoder.0", "language"),
        ("decoder.final", "language"),
    ):
        states, language, determiner = token_states(site, "train")
        moments = ErasureMoments()
        moments.update(states, determiner if name == "determiner" else language)
        eraser = moments.eraser()
        shares[f"{site}: {name} erased ({eraser.rank} directions)"] = exact_match(eraser, site)
        if site == "encoder.final":
            random = [moments.random_eraser(eraser.rank, generator=torch.Generator().manual_seed(s)) for s in range(2)]
            shares[f"{site}: {eraser.rank} random directions"] = float(np.mean([exact_match(r) for r in random]))
    return {**shares, "wrong code of the source language": exact_match(turned=1)}


@lesson.figure(
    None,
    "share of exact translations",
    "site and what was taken out",
    size=(8.6, 3.9),
    xlim=(0, 1.12),
    legend=None,
    example=measured,
)
def plot_translations(axes, shares):
    """Draw the share of exact translations for each thing that was taken out."""
    names = list(shares)[::-1]
    colors = [ORANGE if "erased" in name else GREY for name in names]
    axes.barh(range(len(names)), [shares[name] for name in names], color=colors, height=0.65)
    axes.set_yticks(range(len(names)), names)
    for place, name in enumerate(names):
        axes.text(shares[name] + 0.01, place, f"{shares[name]:.2f}", va="center")
    high = "; ".join(name for name, share in shares.items() if share >= 0.9)
    low = "; ".join(name for name, share in shares.items() if share < 0.9)
    return (
        "Bars of the share of 100 greedy translations that are exactly right, one for each thing that was taken out. "
        f"At least 0.9: {high}. Below: {low or 'none'}."
    )


# The explorer


def measured_table() -> Markdown:
    """Return what `make bench erasure` stored of the time against concept-erasure, and of what a probe still finds."""

    def left(case: str, who: str) -> str:
        found = stored("erasure", f"R^2, {case}: {who}")
        if found < 1e-14:
            return "below $10^{-14}$"
        if found > 0.01:
            return f"{found:.2g}"
        return "${}\\cdot10^{{{}}}$".format(*(int(part) for part in f"{found:.0e}".split("e")))

    cases = {
        "ten classes": "balanced",
        "23 positives": "23 positives",
        "scales 1 to $10^4$": "scales 1 to 1e4",
    }
    rows = [("fit and erase, ten classes", quote("erasure", "fit and erase / concept-erasure"), 1)]
    for label, case in cases.items():
        before = quote("erasure", f"R^2, {case}: before")
        rows.append((f"$R^2$, {label} ({before} before)", left(case, "ours"), left(case, "concept-erasure")))
    return markdown_table(("", "`fit_eraser`, `erase`", "concept-erasure"), rows)


@lesson.explorer
class PurifyExplorer(Explorer):
    """Shrink eight directions by a penalty, then erase some, and ask a probe."""

    title = "Shrink eight directions, then erase some of them"
    summary = (
        "Left the singular values of the rows, logarithmic, as outlined bars, and in blue what is left of each after "
        "purification. Right the share of new rows whose class (one of four) a probe finds that was fitted to the "
        "purified "
        "rows, against the number of directions erased: three ways of choosing them. The red line is the number chosen."
    )
    power = Slider(
        "penalty, log10 of",
        "λ",
        "Power of ten of the penalty of the purification: 0 stands for 1",
        0.0,
        -3.0,
        3.0,
        0.25,
    )
    erased = Slider("directions erased", "k", "How many directions are erased after purification", 1, 0, 7, 1)
    size = (10.6, 4.2)
    layout = panels(
        ["singular values, before and after", "what a new probe finds"],
        ["direction", "directions erased k"],
        ["singular value (log)", "share of new rows right"],
        grid=(1, 2),
        legend=[None, "upper right"],
        xlim=[(0.4, 8.6), (-0.3, 7.3)],
        ylim=[(1e-6, 40), (0, 1.45)],
        yscale=["log", "linear"],
        xticks=[range(1, 9), range(8)],
        yticks=[None, (0, 0.25, 0.5, 0.75, 1)],
    )

    def compute(self, *, power, erased):
        """Return what is left of each singular value, and the three curves."""
        factors, curves = shrink_factors(SPECTRUM, 10.0**power), erasing(10.0**power)
        return {
            "bars": (SPECTRUM * factors).tolist(),
            "curves": [(range(8), curves[way]) for way in WAYS],
            "at": ([erased] * 2, [0, 1.05]),
            "said": (10.0**power, factors, erased, [curves[way][erased] for way in WAYS]),
        }

    def draw(self, left, right):
        """Draw outlines, curves, and what moves."""
        left.bar(range(1, 9), SPECTRUM.tolist(), width=0.7, fill=False, edgecolor=BLACK)
        bars = list(left.bar(range(1, 9), [1e-6] * 8, width=0.7, color=BLUE))
        curves = lines(right, [], WAYS, marker="o", markersize=4)
        right.axhline(CHANCE, color=GREY, linestyle=":", label="chance")
        at = right.plot([], [], color=RED, linewidth=1.5, label="_at")[0]
        return {"bars": bars, "curves": curves, "at": at}

    def words(self, state):
        """Say what is left of three directions, and what the probes find."""
        penalty, factors, erased, (probes, leace, chance) = state["said"]
        return (
            f"λ = {penalty:.3g}: factors {factors[2]:.3g} on direction 3, {factors[3]:.3g} on 4, {factors[7]:.2g} "
            f"on 8. "
            f"{erased} erased: a new probe finds {leace:.0%} (LEACE), {probes:.0%} (the probe's direction), "
            f"{chance:.0%} (random)."
        )


# Predictions

shrink_prediction = lesson.prediction(
    "19.P1",
    "Rows of 8 features belong to four classes, which differ only along four narrow directions. A linear map is "
    "trained to return its input under a penalty λ on its size; it shrinks the narrow directions most, for λ = 1000 "
    "to less than a "
    "thousandth. Then a linear probe is fitted to the shrunk rows by least squares. How well does it find the class "
    "of new rows?",
    {
        "Worse and worse, down to chance": "That is what a penalised probe does. Without a penalty the probe "
        "multiplies by "
        "larger weights what was made small: a small factor can be undone, only a factor 0 can not.",
        "First better, since noise is removed, then worse": "The map knows nothing of the classes; and what it does "
        "to the rows, "
        "a probe without a penalty can undo.",
        "Exactly as well as on the original rows": "All factors are above 0, so the map has an inverse, and a probe "
        "can "
        "take it in: the predictions are the same.",
    },
    answer="Exactly as well as on the original rows",
    reveal=plot_purified,
)


count_prediction = lesson.prediction(
    "19.P2",
    "The figure above takes out one direction at a time, that of the latest probe. Choose the directions, and how "
    "they are taken "
    "out, as well as you can. How many does it take until no linear probe finds the four classes among 8 features?",
    {
        "1": "One direction tells two groups of classes apart at best; the four means span more.",
        "3": "The means of four classes, less the mean of all, span three directions, and these suffice if what is "
        "taken out "
        "is chosen well.",
        "4, one for each class": "The four means are centred: the last follows from the other three.",
        "All 8": "Even with each probe's direction projected out at right angles five were enough.",
    },
    answer="3",
    reveal=partial(plot_question, ways=WAYS),
)  # fmt: skip

language_prediction = lesson.prediction(
    "19.P3",
    "The encoder's states are erased before the decoder reads them, so that no linear probe finds the language of "
    "the sentence. The decoder is told the language to write. What happens to its translations, of which 98% are "
    "exactly right?",
    {
        "Nearly all become wrong": "The decoder hardly needs to know which language it reads from: a wrong code of "
        "the source "
        "language does no harm either.",
        "About half stay right, as with any three directions": "Three random directions do no harm either: there "
        "are 256.",
        "At least 90% stay right": "The decoder needs what the sentence says, and the language of the sentence is "
        "no part of that. Erasing which determiner a token is does harm.",
    },
    answer="At least 90% stay right",
    reveal=plot_translations,
)

FIGURES = lesson.figures
