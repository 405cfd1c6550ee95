"""The figures and the page of a pipeline run."""

import base64
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from course_lib.figures import BLACK, BLUE, GREEN, PURPLE, RED, describe, new_figure, save_svg, styled
from course_lib.interpret.across import AcrossLanguages
from course_lib.interpret.concept_report import AUROC_REACHED, TOGETHER, ConceptReport
from course_lib.interpret.detectors import REACHED, SHARED
from course_lib.interpret.names import NAMED_FROM, feature_names
from course_lib.interpret.splits import MARGIN
from course_lib.interpret.translated_words import CEILING_REACHED, MAX_SHARE, TranslatedWords
from course_lib.pipeline.autoencoders import SparseRun, StackedRun
from course_lib.sae import History, TrainConfig

GREY = "#5b5b5b"
STYLES = ((BLUE, "--"), (RED, "-."), (GREEN, ":"))
SIZE = (6.4, 3.6)
AROUND = 80
"""Characters of a sentence that are shown on either side of the word at which a feature fires."""
# What concept scores are drawn for: label, colour, line style, width.
_UNITS = {
    "features": ("sparse features", BLUE, "-", 2.2),
    "neurons": ("neurons", RED, "-.", 1.6),
    "components": ("principal components", GREEN, ":", 1.8),
    "random": ("random features", GREY, "--", 1.4),
    "means": ("difference of means", PURPLE, "-.", 1.2),
    "lda": ("LDA", BLACK, "--", 1.2),
    "probe": ("probe of the mean", BLACK, (0, (1, 1)), 1.4),
}

_OWN = ("means", "lda", "probe")  # made from labels, a direction a concept
_SPAN_UNITS = {name: _UNITS[name][0] for name in _UNITS if name not in _OWN} | {
    "directions": "random directions"
}
_ACROSS_UNITS = {name: label for name, (label, *_) in _UNITS.items()} | {"refitted": "LDA, refitted"}


@dataclass(frozen=True)
class PageFigure:
    """A figure of the page: SVG, its text alternative and its caption."""

    svg: str
    alt: str
    caption: str

    @property
    def source(self) -> str:
        """The picture as a data address."""
        return f"data:image/svg+xml;base64,{base64.b64encode(self.svg.encode()).decode()}"


@styled
def draw_figures(
    stacked: StackedRun, sparse: SparseRun, concepts: ConceptReport | None
) -> dict[str, PageFigure]:
    """Draw every figure of the report."""
    drawn = {
        "stacked_loss": _stacked_loss(stacked),
        "explained_variance": _explained_variance(stacked),
        "unit_means": _unit_means(stacked),
        "sparse_loss": _sparse_loss(sparse),
        "firing_rates": _firing_rates(sparse),
    }
    if concepts is not None:
        drawn["concepts"] = _concepts(concepts)
        drawn["splitting"] = _splitting(concepts)
    pictures = {}
    for name, (figure, alt, caption) in drawn.items():
        file = io.BytesIO()
        save_svg(describe(figure, alt), file)
        pictures[name] = PageFigure(file.getvalue().decode(), alt, caption)
    return pictures


def page(metrics: dict[str, Any], figures: dict[str, PageFigure], *, n_named: int = 0) -> str:
    """The self-contained page of a run, from the content of its metrics.json; `n_named` counts features with a name."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["percent"] = lambda share, digits=1: (
        "–" if share is None else f"{100 * share:.{digits}f}%".replace("-", "−")
    )
    environment.filters["number"] = lambda count: f"{count:,}"
    environment.filters["in_context"] = in_context
    environment.globals["span_units"] = _SPAN_UNITS
    environment.globals["across_units"] = _ACROSS_UNITS
    environment.globals["units"] = {name: label for name, (label, *_) in _UNITS.items()}
    bars = {
        "reached": REACHED,
        "shared": SHARED,
        "auroc_reached": AUROC_REACHED,
        "margin": f"{MARGIN:.0%}",
        "named_from": f"{NAMED_FROM:.0%}",
        "n_named": n_named,
        "ceiling_reached": f"{CEILING_REACHED:.0%}",
        "max_share": f"{MAX_SHARE:.0%}",
        "n_labels": sum(
            metrics["translated"]["words"][column]["n"] for column in metrics["translated"]["labels"]
        )
        if metrics["translated"]
        else 0,
    }
    return environment.get_template("report.html.j2").render(**metrics, figures=figures, **bars)


def in_context(text: str, word: Sequence[int]) -> tuple[str, str, str]:
    """What stands before the word between these two characters of a text, the word, and what stands behind it.

    Of a longer text about `AROUND` characters on either side are kept, cut between words, and an ellipsis.
    """
    start, end = word
    before, after = text[:start], text[end:]
    if len(before) > AROUND:
        kept = before[-AROUND:]
        before = "… " + (kept.split(maxsplit=1)[-1] if re.search(r"\s\S", kept) else kept)
    if len(after) > AROUND:
        kept = after[:AROUND]
        after = (kept.rsplit(maxsplit=1)[0] if re.search(r"\S\s", kept) else kept) + " …"
    return before, text[start:end], after


def _canvas(x_label: str, y_label: str) -> tuple[Figure, Axes]:
    figure = new_figure(*SIZE)
    axes = figure.add_subplot()
    axes.set(xlabel=x_label, ylabel=y_label, axisbelow=True)
    return figure, axes


def _loss_curves(
    history: History, training: TrainConfig, contributions: list[tuple[str, str, float]], *, log: bool
) -> tuple[Figure, str]:
    """Curves of the total and of what each part adds to it (name, label, weight), and their ends in words."""
    figure, axes = _canvas("training step", "training loss")
    axes.plot(history.steps, history.parts["total"], color=BLACK, linewidth=1.8, label="total")
    ends = [f"total {history.parts['total'][-1]:.3f}"]
    for (color, style), (name, label, weight) in zip(STYLES, contributions, strict=False):
        # The sparsity weight is being raised at first: draw what was added, not what will be.
        rising = name in ("kl", "l1")
        scales = [training.sparsity_scale_at(step - 1) if rising else 1.0 for step in history.steps]
        curve = [weight * scale * value for scale, value in zip(scales, history.parts[name], strict=True)]
        axes.plot(history.steps, curve, color=color, linestyle=style, linewidth=1.6, label=label)
        ends.append(f"{label} {curve[-1]:.3f}")
    if log:
        axes.set_yscale("log")
        floor = min(min(curve.get_ydata()[len(history.steps) // 10 :]) for curve in axes.lines)
        axes.set_ylim(bottom=max(floor / 2, 1e-5))
    else:
        axes.set_ylim(bottom=0)
    figure.legend(frameon=False, fontsize=9, ncols=2, loc="outside upper center")
    return figure, ", ".join(ends)


def _stacked_loss(run: StackedRun) -> tuple[Figure, str, str]:
    model = run.autoencoder
    contributions = [("reconstruction", "reconstruction", 1.0)]
    if "kl" in run.history.parts:
        contributions.append(("kl", f"KL sparsity x {model.beta:g}", model.beta))
    if "supervised" in run.history.parts:
        contributions.append(("supervised", f"{run.target} cross-entropy x {model.gamma:g}", model.gamma))
    figure, ends = _loss_curves(run.history, run.config.training, contributions, log=True)
    return (
        figure,
        f"Loss against training step, logarithmic. At the end: {ends}.",
        "Training loss of the stacked autoencoder and what each term adds to it. The reconstruction term is the "
        "fraction of the variance that is still missing.",
    )


def _sparse_loss(run: SparseRun) -> tuple[Figure, str, str]:
    history = run.history
    figure, axes = _canvas("training step", "training loss")
    axes.plot(history.steps, history.parts["reconstruction"], color=BLACK, linewidth=1.8)
    axes.set_yscale("log")
    return (
        figure,
        f"Loss against training step, logarithmic. At the end: {history.parts['reconstruction'][-1]:.3f}.",
        "Training loss of the sparse autoencoder: the fraction of the variance that is still missing with "
        f"{run.train.l0:.1f} active features a token"
        + (". TopK needs no penalty." if run.config.kind == "topk" else f" ({run.config.kind})."),
    )


def _explained_variance(run: StackedRun) -> tuple[Figure, str, str]:
    k, curve = run.autoencoder.code_width, run.pca_curve
    train, held_out = run.train.explained_variance, run.held_out.explained_variance
    figure, axes = _canvas("number of components or code units", "explained variance")
    axes.plot(range(1, len(curve) + 1), curve, color=GREY, linewidth=1.6, label="PCA (the bound)")
    axes.axvline(k, color=GREY, linewidth=0.8, linestyle=":")
    axes.plot([k], [train], "o", color=BLUE, markersize=8, label="stacked, training sentences")
    axes.plot(
        [k],
        [held_out],
        "D",
        color=RED,
        markersize=7,
        mfc="none",
        mew=2,
        label="stacked, held-out sentences",
    )
    axes.set_xscale("log")
    ticks = sorted({1, len(curve), k, *(10**i for i in range(1, 5) if 10**i < len(curve))})
    ticks = [t for t in ticks if t == k or not 0.6 < t / k < 1.7]
    axes.set_xticks(ticks, [str(t) for t in ticks])
    axes.minorticks_off()
    axes.set_ylim(min(0.0, 1.05 * held_out), 1.02)
    figure.legend(frameon=False, fontsize=9, ncols=2, loc="outside upper center")
    bound = run.train.pca_bound
    return (
        figure,
        f"Explained variance against width. PCA rises to 1 at {len(curve)} components and is at {bound:.3f} for "
        f"{k}. The stacked autoencoder with {k} units: {train:.3f} on training, {held_out:.3f} on held-out "
        "sentences.",
        "The line is PCA fitted on the training sentences: no code of that many units with an affine decoder "
        "can lie above it on those sentences. The filled point may touch the line and not cross it.",
    )


def _unit_means(run: StackedRun) -> tuple[Figure, str, str]:
    means, rho = run.unit_means.sort(descending=True).values.tolist(), run.autoencoder.rho
    figure, axes = _canvas("unit of the code, most active first", "mean activation in training")
    axes.plot(range(1, len(means) + 1), means, "o", color=BLUE, markersize=4, label="units")
    axes.axhline(rho, color=GREY, linewidth=1.2, linestyle="--", label=f"target rho = {rho:g}")
    axes.set_xlim(0, len(means) + 1)
    axes.set_ylim(0, 1.1 * max(*means, rho))
    figure.legend(frameon=False, fontsize=9, ncols=2, loc="outside upper center")
    return (
        figure,
        f"Mean activation of each of the {len(means)} units of the code: from {means[-1]:.3f} to {means[0]:.3f}. The "
        f"target is {rho:g}.",
        "What the sparsity term does: it pulls the mean activation of each unit over the training sentences towards "
        f"rho. Its weight beta is {run.autoencoder.beta:g}.",
    )


def describe_concepts(report: ConceptReport) -> str:
    """The lines of the command on concepts."""
    summary, share = report.summary(), _percent
    found = summary["features"]
    others = ", ".join(
        f"{_UNITS[name][0]} {share(summary[name]['lexical_reached'])}"
        for name in _UNITS
        if name != "features"
    )
    return (
        f"concepts: one feature detects {share(found['lexical_reached'])} of {found['n_lexical']} lexical concepts (F1 "
        f"{REACHED} or more on held-out sentences, chosen in training; AUROC {AUROC_REACHED} or more: "
        f"{share(found['lexical_auroc'])}); {others}\n"
        f"languages: the same feature at F1 {SHARED} or more in three or more for {share(found['lexical_shared'])} of the "
        f"{found['lexical_judged']} with enough sentences there; neurons {share(summary['neurons']['lexical_shared'])}\n"
        + _translated_lines(report)
        + _across_line(report.across)
        + f"splitting: two features together reach {share(found['lexical_together']['2'])}, four "
        f"{share(found['lexical_together']['4'])}; {found['lexical_units']} different features are detectors"
        + _shortfall_line(report.shortfall_summary())
        + _token_line(report.span_summary())
        + _absorption_line(report.absorption())
        + _names_line(report)
    )


def _translated_lines(report: ConceptReport) -> str:
    lines = ""
    for group, found in report.translated_summary().items():
        medians, ceiling = found["median_f1"]["features"], found["median_f1"]["ceiling"]
        of_languages = ", ".join(
            f"{language} {medians[language]:.2f} of {ceiling[language]:.2f} ({_percent(found['at_ceiling'][language])})"
            for language in medians
        )
        lines += (
            f"{_group(report.translated, group)} ({found['n']}): median F1 of the best feature of that of a probe "
            f"of the language's own words (share with {CEILING_REACHED:.0%} of it): {of_languages}\n"
        )
    return lines


def _group(found: TranslatedWords, group: str) -> str:
    """What a group of the concepts of a table is called (`ConceptReport.translated_summary`)."""
    if group in found.labels:
        return f"values of {group}"
    if found.labels and group == "all":
        return "concepts of the table, all"
    return f"words of {found.pivot}, {group}"


def _names_line(report: ConceptReport) -> str:
    names = feature_names(report)
    concepts = {name.concept: name for name in sorted(names.values(), key=lambda name: name.above_chance)}
    best = sorted(concepts.values(), key=lambda name: -name.above_chance)[:5]
    listed = ", ".join(f"{name.concept} {name.f1:.2f}" for name in best)
    return (
        f"\nnames: {len(names)} features have one, of {len(concepts)} concepts, with a held-out F1 more than "
        f"{NAMED_FROM:.0%} of the way from always yes to 1{'; best: ' + listed if best else ''}"
    )


def _across_line(found: AcrossLanguages | None) -> str:
    if found is None:
        return ""
    arms = ", ".join(
        f"{_ACROSS_UNITS[name]} {_percent(arm.others)} ({_percent(arm.own)})"
        for name, arm in found.arms.items()
    )
    return (
        f"across languages: chosen on {found.language} alone, share of {found.n} concepts with F1 {SHARED} or more in each "
        f"of {', '.join(found.others)} (and {REACHED} or more in {found.language}): {arms}\n"
    )


def _shortfall_line(found: dict[str, Any]) -> str:
    return (
        f"\nbelow F1 {REACHED}: {found['n']} concepts; the feature of {found['split']} fires or not by grammar or language, "
        f"that of {found['merger']} also for another word, beyond chance; {found['neither']} neither"
    )


def _token_line(spans: dict[str, Any]) -> str:
    if not spans:
        return ""
    others = ", ".join(f"{_SPAN_UNITS[name]} {spans[name]['f1']:.2f}" for name in spans if name != "features")
    found = spans["features"]
    return (
        f"\ntokens: a concept's best feature by token has a median precision of {found['precision']:.2f} and recall of "
        f"{found['recall']:.2f} at the tokens of its words, and fires in {found['words']:.1%} of the words; median F1 "
        f"{found['f1']:.2f}, {others}"
    )


def _absorption_line(found: dict[str, Any]) -> str:
    if found["absorbed"] is None:
        return ""
    return (
        f"\nabsorption: a word's own feature fires and the best feature of its category is silent in "
        f"{found['absorbed']:.1%} of the sentences with the word; for a random other category "
        f"{_percent(found['absorbed_random'])}"
    )


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{share:.1%}"


def _concepts(report: ConceptReport) -> tuple[Figure, str, str]:
    """Held-out F1 of the lexical concepts, best first, for the features and what they are compared with."""
    figure, axes = _canvas("scored lexical concepts, best first", "held-out F1 of the best unit")
    summary, words = report.summary(), []
    for name, (label, color, style, width) in _UNITS.items():
        values = sorted((s.f1 for s in report.scores[name] if s.concept in report.lexical), reverse=True)
        axes.plot(
            range(1, len(values) + 1), values, color=color, linestyle=style, linewidth=width, label=label
        )
        words.append(f"{label} {100 * summary[name]['lexical_reached']:.0f}%")
    axes.axhline(REACHED, color=GREY, linewidth=0.8, linestyle=":")
    axes.set_xlim(1, max(2, len(values)))
    axes.set_ylim(0, 1.03)
    figure.legend(frameon=False, fontsize=9, ncols=3, loc="outside upper center")
    return (
        figure,
        f"Curves of F1 over the {len(values)} scored lexical concepts. Share with {REACHED} or more: {', '.join(words)}.",
        "How well the best single unit says whether a sentence holds a concept: unit, sign and threshold were chosen "
        f"on training sentences, F1 is that on held-out ones. The dotted line is at {REACHED}. The last three are "
        "directions made from the labels; the probe alone reads the mean over a sentence's tokens.",
    )


def _splitting(report: ConceptReport) -> tuple[Figure, str, str]:
    """Share of the lexical concepts of each category that 1, 2 and 4 features together reach."""
    rows: dict[str, list[tuple[float, ...]]] = {}
    for score in report.scores["features"]:
        if score.together:
            rows.setdefault(score.category, []).append(score.together)
    shares = {
        category: [sum(t[i] >= REACHED for t in found) / len(found) for i in range(len(TOGETHER))]
        for category, found in rows.items()
    }
    order = sorted(shares, key=lambda category: (shares[category], category))
    figure = new_figure(SIZE[0], 1.4 + 0.24 * len(order))
    axes = figure.add_subplot()
    axes.set(xlabel="share of the category's concepts with F1 0.9 or more", ylabel="category", axisbelow=True)
    looks = ((BLUE, "o"), (RED, "D"), (GREEN, "s"))
    for i, (size, (color, marker)) in enumerate(zip(TOGETHER, looks, strict=True)):
        label = "one feature" if size == 1 else f"{size} features together"
        values = [100 * shares[category][i] for category in order]
        axes.plot(
            values, range(len(order)), marker, color=color, markersize=9 - 2.5 * i, mfc="none", label=label
        )
    axes.set_yticks(range(len(order)), [f"{category} ({len(rows[category])})" for category in order])
    axes.set_xlim(-3, 103)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:.0f}%")
    figure.legend(frameon=False, fontsize=9, ncols=3, loc="outside upper center")
    low = ", ".join(f"{c} {shares[c][0]:.0%}, {shares[c][1]:.0%}, {shares[c][2]:.0%}" for c in order[:3])
    return (
        figure,
        f"Shares by category for one, two and four features together. Lowest: {low}.",
        "Where one feature is not enough and two are, a concept is split between features; where four do not help, it has "
        "none. In brackets: the number of concepts of the category. Features and thresholds were chosen in training.",
    )


def _firing_rates(run: SparseRun) -> tuple[Figure, str, str]:
    rates, n_rows = run.firing_rates, run.train.rows
    alive = rates[rates > 0]
    figure, axes = _canvas("share of the training tokens at which a feature fires", "number of features")
    edges = [n_rows ** (i / 24 - 1) for i in range(25)]
    axes.hist(alive.tolist(), bins=edges, color=BLUE, edgecolor="white", linewidth=0.6)
    axes.set_xscale("log")
    powers = [10.0**-i for i in range(5) if 10.0**-i >= 1 / n_rows]
    axes.set_xticks(powers, [f"{100 * p:g}%" for p in powers])
    axes.minorticks_off()
    dead = run.train.dead
    middle = alive.median().item() if len(alive) else 0.0
    return (
        figure,
        f"Histogram of firing rates, logarithmic. {len(alive)} features fire, the middle one in "
        f"{100 * middle:.2g}% of the tokens; {dead} of {len(rates)} never do.",
        f"How often features fire. {dead} of {len(rates)} features fire at none of the {n_rows} training tokens "
        "and are not drawn. Features on the left stand for something rare, those on the far right for nearly "
        "everything.",
    )
