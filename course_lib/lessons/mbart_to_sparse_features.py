"""Figures, explorer, prediction and exercises of lesson 29, mbart_to_sparse_features.

The pipeline, and with it transformers, is imported where it runs: the module itself stays light.
"""

import atexit
import math
import tempfile
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor

from course_lib.sae import losses, metrics
from course_lib.teaching.exercise import Exercise, Mistake, Property
from course_lib.teaching.explorer import Explorer, Slider
from course_lib.teaching.prediction import Prediction
from course_lib.teaching.style import BLACK, BLUE, ORANGE, RED, SKY, describe, new_figure, styled

if TYPE_CHECKING:
    from course_lib.pipeline import RunResult

SHOWN_SENTENCES = 6
LONGEST_LABEL = 46


def lesson_run(out: Path | str, *, progress: bool = True) -> "RunResult":
    """Run the whole pipeline on the built-in model and corpus, shortened to what a lesson can wait for."""
    from course_lib import pipeline, sae

    return pipeline.run(
        model="course-mbart",
        text="builtin",
        out=out,
        n_sentences=3000,
        stacked=pipeline.StackedConfig(training=sae.TrainConfig(steps=1200, step_size=1e-2)),
        sparse=pipeline.SparseConfig(training=sae.TrainConfig(steps=1200, step_size=1e-3)),
        device="cpu",
        progress=progress,
    )


@lru_cache(maxsize=1)
def pipeline_run() -> "RunResult":
    """The run that the pictures outside a notebook are drawn from, made once a process."""
    folder = tempfile.TemporaryDirectory(prefix="course-run-")
    atexit.register(folder.cleanup)
    return lesson_run(Path(folder.name) / "run", progress=False)


def saved_states(run: "RunResult", site: str = "encoder") -> Tensor:
    """Return the pooled states that a run saved, one row a sentence."""
    from safetensors.torch import load_file

    return load_file(run.out / "activations.safetensors")[site]


# Figures


@styled
def plot_pca_curve(states: Tensor) -> Figure:
    """Draw the share of variance that k principal components keep, for the states and for isotropic data."""
    figure = new_figure(6.4, 3.8)
    axes = figure.add_subplot()
    curve = metrics.pca_curve(states).numpy()
    width, code = len(curve), len(curve) // 8
    axes.plot(
        np.arange(1, width + 1), curve, color=BLUE, linestyle="-", label="pooled states of course-mbart"
    )
    axes.plot([0, width], [0, 1], color=RED, linestyle="--", label="isotropic data, k / d")
    axes.axvline(code, color=BLACK, linewidth=1, linestyle=":")
    axes.plot([code, code], [curve[code - 1], code / width], "o", color=BLACK, markersize=6)
    axes.annotate(
        f"{curve[code - 1]:.1%}", (code, curve[code - 1]), xytext=(8, -14), textcoords="offset points"
    )
    axes.annotate(f"{code / width:.1%}", (code, code / width), xytext=(8, -12), textcoords="offset points")
    axes.set(xlabel="components k", ylabel="share of variance kept", xlim=(0, width), ylim=(0, 1.05))
    axes.set_title(f"What k = d/8 = {code} of d = {width} dimensions keep")
    axes.legend(loc="lower right")
    return describe(
        figure,
        f"Share of variance kept by the first k principal components. The pooled states keep "
        f"{curve[code - 1]:.1%} with {code} of {width} components; isotropic data would keep {code / width:.1%}.",
    )


@styled
def plot_pooling(tokens: list[str], counted: list[bool]) -> Figure:
    """Draw the tokens of one padded sentence and which of them the masked mean counts."""
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
        f"The {len(tokens)} tokens of one padded sentence. The mean counts {len(kept)} of them ({' '.join(kept)}); "
        f"the language code, the end token and the pads are left out.",
    )


# Explorer


class FeatureExplorer(Explorer):
    """The strongest features of a run: the sentences that excite each most, and where it fires."""

    title = "The strongest features"
    summary = (
        "Left: the sentences that excite one feature of the sparse autoencoder most, with their activations. "
        "Right: the share of each language's sentences on which it fires."
    )
    controls = {  # noqa: RUF012 - shared by all instances, never changed
        "rank": Slider(
            label="feature of rank", symbol="r", default=2, minimum=1, maximum=20, step=1,
            tooltip="1 is the feature that contributes most to the reconstructions",
        ),
    }  # fmt: skip
    size = (9.0, 3.8)

    def __init__(self, run: "RunResult | None" = None):
        self.features = (run or pipeline_run()).metrics["features"]
        self.languages = sorted(self.features[0]["firing_rate_by_language"])
        self.top_rate = max(rate for f in self.features for rate in f["firing_rate_by_language"].values())
        self.longest = max(s["activation"] for f in self.features for s in f["sentences"])
        super().__init__()

    def compute(self, *, rank):
        """Return the feature of that rank."""
        return {"rank": rank, "feature": self.features[min(rank, len(self.features)) - 1]}

    def draw(self, figure):
        """Draw fixed axes, empty bars and empty lines of text."""
        left, right = figure.subplots(1, 2, width_ratios=(2.4, 1))
        left.set(
            xlim=(0, 1.05 * self.longest), ylim=(SHOWN_SENTENCES - 0.4, -0.6), xlabel="activation", yticks=[]
        )
        left.set(ylabel="sentences, strongest first", title="Sentences that excite it most")
        left.grid(visible=False)
        places = range(SHOWN_SENTENCES)
        bars = list(left.barh(places, [0.0] * SHOWN_SENTENCES, color=SKY, height=0.8, alpha=0.7))
        lines = [left.text(0.01 * self.longest, place, "", va="center", fontsize=8) for place in places]
        right.set(
            ylim=(0, 1.1 * self.top_rate),
            xlabel="language",
            ylabel="share of sentences it fires on",
            title="Where it fires",
        )
        right.set_xticks(range(len(self.languages)), [code[:2] for code in self.languages])
        rates = list(
            right.bar(range(len(self.languages)), [0.0] * len(self.languages), color=ORANGE, width=0.7)
        )
        return {"bars": bars, "lines": lines, "rates": rates}

    def update(self, artists, state):
        """Set bar lengths, sentences and rates."""
        top = state["feature"]["sentences"]
        for place, (bar, line) in enumerate(zip(artists["bars"], artists["lines"], strict=True)):
            sentence = top[place] if place < len(top) else {"activation": 0.0, "text": "", "language": None}
            bar.set_width(sentence["activation"])
            line.set_text(_label(sentence))
        for bar, language in zip(artists["rates"], self.languages, strict=True):
            bar.set_height(state["feature"]["firing_rate_by_language"][language])

    def words(self, state):
        """Say how often the feature fires and what its sentences share."""
        feature = state["feature"]
        shared = [
            f"{s['concept']} ({s['count']} of {s['of']}, {s['usual_share']:.0%} of all)"
            for s in feature["shared_concepts"]
        ]
        return (
            f"Feature {feature['feature']}, number {state['rank']} by strength, fires on "
            f"{feature['firing_rate']:.0%} of the sentences. What its strongest sentences share: "
            + (", ".join(shared) if shared else "no single concept")
            + "."
        )


def _label(sentence: Mapping[str, Any]) -> str:
    if not sentence["text"]:
        return ""
    text = (
        sentence["text"]
        if len(sentence["text"]) <= LONGEST_LABEL
        else sentence["text"][: LONGEST_LABEL - 1] + "…"
    )
    # A dollar sign would start a formula.
    return (f"{sentence['language'][:2]}  " if sentence["language"] else "") + text.replace("$", r"\$")


# Prediction


def variance_prediction(states: Tensor) -> Prediction:
    """Ask how much variance an eighth of the dimensions keeps on real states."""
    kept = float(metrics.pca_curve(states)[states.shape[1] // 8 - 1])
    return Prediction(
        "29.P1",
        "The notes say that going from $d$ to $d/8$ dimensions keeps 12.5% of the variance. How much do the best $d/8$ "
        "directions keep of the pooled states of a trained model?",
        choices={
            "12.5%, as the notes say": "That is the figure for isotropic data, whose variance is the same in every "
            f"direction. Trained states are far from that: {kept:.1%} is kept.",
            "about a third": f"More: a trained model puts most of its variance into few directions, and {kept:.1%} is kept.",
            "more than 80%": f"A trained model puts most of its variance into few directions: {kept:.1%} is kept.",
        },
        answer="more than 80%",
        reveal=lambda: plot_pca_curve(states),
    )


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
    lengths = torch.randint(1, tokens, (sentences,), generator=generator)
    states = torch.randn(sentences, tokens, 2, generator=generator, dtype=torch.float64).round(decimals=1)
    return {"states": states, "mask": torch.arange(tokens) < lengths[:, None]}


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
        Mistake("did not divide", lambda s, m: (s * m[..., None]).sum(dim=1),
                "You returned the sum: longer sentences get longer vectors. Divide by the number of counted tokens."),
        Mistake("turned the mask over", lambda s, m: (s * ~m[..., None]).sum(dim=1) / (~m).sum(dim=1, keepdim=True),
                "You averaged exactly the tokens that do not count: the mask is True where a token counts."),
        Mistake("one mean for all sentences", lambda s, m: s[m].mean(dim=0).expand(s.shape[0], -1).clone(),
                "`states[mask]` puts the tokens of all sentences into one heap: every sentence gets the same mean."),
    ),
)  # fmt: skip


def sparsity_penalty(features, decoder_weight):
    """Mean over the batch of the features' sum, each weighted by the norm of its decoder column."""
    return (features * decoder_weight.norm(dim=0)).sum(dim=1).mean()


def _draw_features(generator: torch.Generator) -> dict:
    draw = lambda *shape: torch.randn(shape, generator=generator, dtype=torch.float64).round(decimals=1)  # noqa: E731
    return {"features": draw(2, 3).clamp(min=0), "decoder_weight": draw(2, 3)}


def _unmoved_by_rescaling(inputs: Mapping, output: Any) -> bool:
    expected = losses.decoder_weighted_l1(inputs["features"], inputs["decoder_weight"])
    rescaled = losses.decoder_weighted_l1(inputs["features"] / 10, 10 * inputs["decoder_weight"])
    return math.isclose(float(output), float(expected), abs_tol=1e-9) and math.isclose(
        float(output), float(rescaled), abs_tol=1e-9
    )


_PENALTY = Exercise(
    id="29.3",
    title="The penalty that makes features sparse",
    kind="function",
    difficulty=2,
    minutes=8,
    prompt="Write `sparsity_penalty(features, decoder_weight)`: the sum over features of activation times the norm of its "
    "decoder column, $\\sum_i f_i \\lVert W_{d,:,i}\\rVert_2$, averaged over the batch. `features` (not negative) has shape "
    "`(batch, n_features)`, `decoder_weight` is $W_d$ with shape `(d_model, n_features)`; return one number.",
    draw=_draw_features,
    reference=sparsity_penalty,
    properties=(
        Property(
            "The penalty should be the weighted sum, and stay the same for features / 10 with 10 times the decoder.",
            _unmoved_by_rescaling,
        ),
    ),
    hints=(
        "First the norms: one number for each feature. Over which dimension of the decoder is that?",
        "Multiply each feature by its norm, then sum over the features.",
        "At the end, average over the batch.",
    ),
    mistakes=(
        Mistake("no norms", lambda f, w: f.sum(dim=1).mean(),
                "You left out the decoder norms: f / 10 with a decoder ten times as large reconstructs the same and "
                "would cost a tenth."),
        Mistake("penalised the weights", lambda f, w: w.abs().sum(),
                "You penalised the weights, as the notes do. Small weights do not make features sparse; the "
                "activations must be penalised."),
        Mistake("summed over the batch", lambda f, w: (f * w.norm(dim=0)).sum(),
                "You summed over the batch instead of averaging: the weight of the penalty would depend on the batch "
                "size."),
        Mistake("averaged over the features", lambda f, w: (f * w.norm(dim=0)).mean(),
                "You averaged over the features too: the penalty would get weaker the wider the dictionary is."),
        Mistake("squared norms", lambda f, w: (f * w.square().sum(dim=0)).sum(dim=1).mean(),
                "You used the squared norms: rescaling feature and decoder against each other then changes it."),
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

EXERCISES = {e.id: e for e in (_COMPONENTS, _POOL, _PENALTY, _DOMAIN)}


def pooling_example() -> tuple[list[str], list[bool]]:
    """Return the tokens of a short sentence padded beside a longer one, and which of them the mean counts."""
    from course_lib.mbart.corpus import generate
    from course_lib.mbart.model import load

    _, tokenizer = load("course-mbart")
    by_length = sorted(generate(400, seed=5), key=lambda sentence: len(sentence.text))
    short, longer = by_length[0], by_length[60]
    tokenizer.src_lang = short.language
    ids = tokenizer([short.text, longer.text], padding=True)["input_ids"][0]
    tokens = tokenizer.convert_ids_to_tokens(ids)
    special = {*tokenizer.all_special_tokens, short.language}
    return tokens, [token not in special for token in tokens]


FIGURES = {
    "pooling": lambda: plot_pooling(*pooling_example()),
    "pca_curve": lambda: plot_pca_curve(saved_states(pipeline_run())),
    "explorer": lambda: FeatureExplorer().strip(),
}
