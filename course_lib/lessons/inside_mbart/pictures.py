"""Experiments, figures, explorers and predictions of lesson 34, inside_mbart.

The model, and with it transformers, is loaded where it is needed: the module itself stays light.
"""

import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

import matplotlib
import numpy as np
import torch
from IPython.display import Markdown
from matplotlib.colors import PowerNorm
from matplotlib.patches import Rectangle
from torch import Tensor

from course_lib import mbart
from course_lib.language.corpus import LANGUAGES, draw_meanings, render
from course_lib.lessons.inside_mbart.contents import lesson
from course_lib.mbart import almost, by_hand
from course_lib.mbart.almost import CHANGES, MBART
from course_lib.measured import figures, measured
from course_lib.teaching import Choice, Explorer, Slider, TextBox, markdown_table, panels, right
from course_lib.teaching.layout import LOOKS
from course_lib.teaching.style import BLACK, BLUE, ORANGE, RED
from course_lib.teaching.token_map import fill_map, shortened, token_map

HOOK = "Los bebés no dormirán en el jardín."
FIVE = {
    "A": "key biases 0",
    "B": "embedding not scaled",
    "C": "LayerNorm after each sublayer",
    "D": "no LayerNorm at the end",
    "E": "no LayerNorm after the embedding",
}
SENTENCES = ("The old woman sees a small dog.", "The dog sleeps.")
FRENCH = "La vieille femme voit un petit chien."
MAX_TOKENS = 24
LONGEST_LABEL = 9
LONGEST_TRANSLATION = 16  # words of a translation that are shown
NOT_SEEN = "0.82"  # the grey of cells that a row may not see


@lru_cache(maxsize=1)
def course_model() -> tuple[Any, Any]:
    """Return the shipped model and its tokenizer, loaded once a process."""
    from course_lib.mbart.model import load

    return load()


def sizes() -> tuple[int, int]:
    """Return how many layers and heads both stacks of the shipped model have, read from its configuration."""
    config = json.loads((Path(mbart.__file__).with_name("course-mbart") / "config.json").read_text())
    stacks = ("encoder", "decoder")
    return tuple(min(config[f"{stack}_{what}"] for stack in stacks) for what in ("layers", "attention_heads"))


def token_ids(*sentences: str, language: str = "en_XX") -> tuple[Tensor, Tensor]:
    """Return ids, padded to the longest sentence, and the mask that is true for tokens."""
    _, tokenizer = course_model()
    tokenizer.src_lang = language
    batch = tokenizer(list(sentences), padding=True, return_tensors="pt")
    return batch["input_ids"], batch["attention_mask"].bool()


def relative_gap(found: Tensor, wanted: Tensor) -> float:
    """Return the largest difference, as a share of the largest entry."""
    return float((found - wanted).abs().max() / wanted.abs().max())


class Run(NamedTuple):
    """One sentence through an almost-mBART: the stream and the output at each stop, and the translation into French."""

    stops: list[str]
    states: list[Tensor]
    translation: str

    def lengths(self) -> np.ndarray:
        """Return the mean length of the states at each stop."""
        return np.array([float(x.norm(dim=-1).mean()) for x in self.states])


@lru_cache(maxsize=256)
def almost_run(sentence: str, language: str, change: str | None) -> Run:
    """Read a sentence with a changed encoder and let the decoder, as it was trained, write it in French."""
    model, tokenizer = course_model()
    weights, config = model.state_dict(), model.config
    ids, mask = token_ids(sentence, language=language)
    found = almost.encode(weights, ids, mask, MBART if change is None else CHANGES[change], config=config)
    code = tokenizer.lang_code_to_id["fr_XX"]
    written = almost.decode(weights, found.output, mask, [code], config=config)
    words = tokenizer.decode(written[0], skip_special_tokens=True).split()
    short = " ".join(words[:LONGEST_TRANSLATION]) + " ..." * (len(words) > LONGEST_TRANSLATION)
    return Run([*found.stops, "output"], [*found.stream, found.output], short)


def hook_table() -> Markdown:
    """Return what five encoders, each altered in one place, make of one Spanish sentence."""
    rows = [(letter, almost_run(HOOK, "es_XX", change).translation) for letter, change in FIVE.items()]
    return markdown_table(("encoder", "French"), rows)


STOPS = [
    "embedding",
    "attention 1",
    "feed-fwd. 1",
    "attention 2",
    "feed-fwd. 2",
    "attention 3",
    "feed-fwd. 3",
    "output",
]


@lesson.figure(
    "What travels through five encoders",
    None,
    "mean length of the states",
    size=(7.0, 4.2),
    legend={"loc": "upper center", "fontsize": 8.5, "ncols": 2},
    yscale="log",
    ylim=(3, 4000),
    xticks=range(len(STOPS)),
)
def plot_stream(axes):
    """Draw the mean length of the states after each sublayer, for the five encoders of the table."""
    drawn = {f"{letter}: {change}": almost_run(HOOK, "es_XX", change).lengths() for letter, change in FIVE.items()}
    for width, (name, lengths), look in zip((4, 1.6, 1.6, 1.6, 1.6), drawn.items(), LOOKS, strict=False):
        axes.plot(
            lengths, **{**look, "linewidth": width}, marker="oDs^v"[list(drawn).index(name)], markersize=5, label=name
        )
    usual = almost_run(HOOK, "es_XX", None).lengths()
    axes.plot(usual, color=BLACK, linestyle=":", linewidth=1.8, marker="+", markersize=9, label="mBART")
    axes.set_xticks(range(len(STOPS)), STOPS, rotation=90, fontsize=9)
    axes.set_xlabel("stop on the way through the encoder")
    return (
        "Mean length of the states of the Spanish sentence at eight stops, for mBART and five encoders. A, D and E rise "
        "from 25 to above 200; at the output A and E fall to about 6, D does not. B reaches about 100. C falls below 13."
    )


# The parts of both stacks from below: what it is, its equation, and whether it belongs to a layer.
ENCODER_PARTS = (
    ("√d · embedding + position, LN", "34.9", False),
    ("LN, self-attention", "34.6", True),
    ("LN, feed-forward", "34.8", True),
    ("final LN", "34.10", False),
)
DECODER_PARTS = (
    ("√d · embedding + position, LN", "34.9", False),
    ("LN, causal self-attention", "34.11", True),
    ("LN (queries), cross-attention", "34.12", True),
    ("LN, feed-forward", "34.12", True),
    ("final LN", "34.14", False),
    ("times embedding table", "34.14", False),
)
BOX_WIDTH, BOX_HEIGHT, BOX_STEP = 3.6, 0.62, 1.05


def _stack(axes, left: float, title: str, parts: tuple, inputs: str) -> list[float]:
    """Draw one stack from below, residual additions in a frame that is repeated; return the heights of its boxes."""
    middle, heights = left + BOX_WIDTH / 2, [0.9 + BOX_STEP * i for i in range(len(parts))]
    axes.text(middle, 0.05, inputs, ha="center", va="center", fontsize=9)
    arrow = {"arrowstyle": "-|>", "color": BLACK, "linewidth": 1}
    for (name, equation, repeated), y in zip(parts, heights, strict=True):
        face = "white" if repeated else "0.93"
        axes.add_patch(Rectangle((left, y), BOX_WIDTH, BOX_HEIGHT, facecolor=face, edgecolor=BLUE))
        axes.text(middle, y + BOX_HEIGHT / 2, f"{name}  ({equation})", ha="center", va="center", fontsize=8.5)
        bottom = 0.25 if y == heights[0] else y - (BOX_STEP - BOX_HEIGHT)
        axes.annotate("", (middle, y), (middle, bottom), arrowprops=arrow)
        if repeated:  # the path around the sublayer, to the addition above it
            x, low, high = left - 0.3, y - 0.13, y + BOX_HEIGHT + 0.13
            axes.plot([middle, x, x, middle], [low, low, high, high], color=ORANGE, linewidth=1.6, linestyle="--")
            axes.text(middle + 0.16, high, "+", color=ORANGE, ha="left", va="center", fontsize=11, weight="bold")
    inner = [y for (*_, repeated), y in zip(parts, heights, strict=True) if repeated]
    low, high = inner[0] - 0.29, inner[-1] + BOX_HEIGHT + 0.29
    frame = {"fill": False, "edgecolor": "0.5", "linestyle": ":"}
    axes.add_patch(Rectangle((left - 0.5, low), BOX_WIDTH + 0.8, high - low, **frame))
    axes.text(left + BOX_WIDTH + 0.36, low + 0.08, "$\\times L$", ha="left", va="bottom", fontsize=10)
    axes.text(middle, heights[-1] + 1.25, title, ha="center", va="center", fontsize=11)
    return heights


@lesson.figure(bare=True, size=(9.0, 5.6), xlim=(-0.6, 11.4), ylim=(-0.25, 7.9))
def plot_architecture(axes):
    """Draw the parts of mBART with their equations: encoder left, decoder right."""
    encoder = _stack(axes, 0.2, "encoder", ENCODER_PARTS, "tokens of the sentence")
    decoder = _stack(axes, 6.4, "decoder", DECODER_PARTS, "tokens moved right by one (34.13)")
    for heights, left, text in ((encoder, 0.2, "states $X_{enc}$"), (decoder, 6.4, "logits")):
        top, middle = heights[-1] + BOX_HEIGHT, left + BOX_WIDTH / 2
        arrow = {"arrowstyle": "-|>", "color": BLACK, "linewidth": 1}
        axes.annotate(text, (middle + 0.1, top + 0.22), fontsize=9, va="center")
        axes.annotate("", (middle, top + 0.4), (middle, top), arrowprops=arrow)
    y = decoder[2] + BOX_HEIGHT / 2
    axes.plot([2.0, 5.1, 5.1], [encoder[-1] + BOX_HEIGHT + 0.4] * 2 + [y], color=RED, linewidth=1.6)
    axes.annotate("", (6.4, y), (5.1, y), arrowprops={"arrowstyle": "-|>", "color": RED, "linewidth": 1.6})
    axes.text(5.05, y + 0.75, "keys, values", rotation=90, color=RED, fontsize=9, ha="right", va="center")
    return (
        "The parts of mBART, from below. Left the encoder, right the decoder, whose cross-attention takes keys and values "
        "from the encoder's output. LayerNorm stands before each sublayer; a path leads around the two to an addition."
    )


class Change(NamedTuple):
    """Whether states moved when one token was changed: (states, positions) for each stack, and the two inputs."""

    position: tuple[int, int]
    encoder: np.ndarray
    decoder: np.ndarray
    tokens: tuple[list[str], list[str]]


@lru_cache(maxsize=1)
def one_changed_token() -> Change:
    """Change one token in the middle, once of the encoder's sentence and once of the decoder's text (on the same memory)."""
    model, tokenizer = course_model()
    weights, config = model.state_dict(), model.config
    ids, _ = token_ids(SENTENCES[0])
    memory = by_hand.encoder(weights, ids, config=config).output
    french, _ = token_ids(FRENCH, language="fr_XX")
    inputs = {"encoder": ids, "decoder": by_hand.shift_right(french, pad_id=config.pad_token_id)}
    run = {
        "encoder": lambda x: by_hand.encoder(weights, x, config=config),
        "decoder": lambda x: by_hand.decoder(weights, x, memory, config=config),
    }
    moved, places = {}, {}
    for side, before in inputs.items():
        position = places[side] = before.shape[1] // 2
        after = before.clone()
        after[0, position] = before[0, position - 2]  # any other token of the sentence
        a, b = run[side](before), run[side](after)
        pairs = zip([*a.states, a.output], [*b.states, b.output], strict=True)
        gaps = [(x - y).abs().amax(-1)[0] / x.abs().max() for x, y in pairs]
        moved[side] = (torch.stack(gaps) > 1e-6).numpy()
    tokens = tuple(tokenizer.convert_ids_to_tokens(x[0]) for x in inputs.values())
    return Change((places["encoder"], places["decoder"]), moved["encoder"], moved["decoder"], tokens)


@lesson.figure(
    ["Encoder: states that move (blue)", "Decoder: states that move (blue)"],
    "position",
    "state",
    size=(9.4, 4.4),
    grid=(1, 2),
)
def plot_changes(left, right_axes):
    """Draw which states move when one token of the input is changed."""
    change = one_changed_token()
    colors = matplotlib.colors.ListedColormap(["white", BLUE])
    sides = (change.encoder, change.decoder)
    for axes, moved, tokens, place in zip((left, right_axes), sides, change.tokens, change.position, strict=True):
        axes.grid(visible=False)
        axes.imshow(moved, cmap=colors, vmin=0, vmax=1, aspect="auto", origin="lower", alpha=0.75)
        labels = [shortened(token, LONGEST_LABEL) for token in tokens]
        axes.set_xticks(np.arange(len(tokens)), labels, rotation=90, parse_math=False)
        axes.set_yticks(range(len(moved)), ["embedding", *(f"layer {i}" for i in range(1, len(moved) - 1)), "output"])
        axes.set_xticks(np.arange(-0.5, len(tokens)), minor=True)
        axes.set_yticks(np.arange(-0.5, len(moved)), minor=True)
        axes.grid(which="minor", color="0.6", linewidth=0.6)
        axes.tick_params(which="minor", length=0)
        axes.axvline(place, color=ORANGE, linewidth=2, linestyle="--")
    return (
        "States that move when one token (dashed line) is replaced. In the embedding only its own; from layer 1 on all in "
        "the encoder, and in the decoder its own and all later ones. To move means by over a millionth of the largest entry."
    )


# The explorer of attention, with a text of its own for the decoder


class Reading(NamedTuple):
    """A sentence and the decoder's own text as the model reads them, or why it cannot."""

    problem: str
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    weights: Mapping[str, np.ndarray] | None = None
    unknown: int = 0


SIDES = ("encoder self", "decoder self", "decoder to encoder")
LAYERS, HEADS = sizes()


@lru_cache(maxsize=64)
def read(sentence: str, language: str, text: str) -> Reading:
    """Run the encoder on a sentence and the decoder on a French text of its own, moved right as in training."""
    model, tokenizer = course_model()
    if not sentence.strip():
        return Reading("There is nothing to read yet: type a sentence and press Enter.")
    (ids, mask), (french, _) = token_ids(sentence, language=language), token_ids(text, language="fr_XX")
    for name, found in (("sentence", ids), ("decoder's text", french)):
        if found.shape[1] > MAX_TOKENS:
            return Reading(
                f"The {name} has {found.shape[1]} tokens with its language code and end, and the map has room for "
                f"{MAX_TOKENS}: shorten it."
            )
    weights = model.state_dict()
    shifted = by_hand.shift_right(french, pad_id=tokenizer.pad_token_id)
    encoder = by_hand.encoder(weights, ids, mask, config=model.config)
    decoder = by_hand.decoder(weights, shifted, encoder.output, config=model.config)
    found = (encoder.self_attention, decoder.self_attention, decoder.cross_attention)
    return Reading(
        "",
        tuple(tokenizer.convert_ids_to_tokens(ids[0])),
        tuple(tokenizer.convert_ids_to_tokens(shifted[0])),
        {side: torch.stack(layers)[:, 0].numpy() for side, layers in zip(SIDES, found, strict=True)},
        int((ids == tokenizer.unk_token_id).sum() + (french == tokenizer.unk_token_id).sum()),
    )


@lesson.explorer
class AttentionExplorer(Explorer):
    """The attention weights of every head, for a sentence and a text of the decoder's that the learner types."""

    title = "Where every head looks"
    summary = (
        "A map of attention weights: each row is one token and shows how its attention is spread over the columns; the "
        "darker, the more; the scale of colours is stretched at its low end. The box marks the strongest link. "
        "Grey cells may not be seen."
    )
    layer = Slider("layer", "l", "1 is the layer right after the embedding", min(2, LAYERS), 1, LAYERS, 1)
    head = Slider("head", "h", "The heads of one layer look in parallel", 1, 1, HEADS, 1)
    side = Choice("attention", "Which of the three attentions of an encoder-decoder model", SIDES[2], SIDES)
    language = Choice("language of the sentence", "The code that is put before the sentence", "en_XX", LANGUAGES)
    sentence = TextBox(
        "encoder reads", f"The sentence; up to {MAX_TOKENS} tokens; press Enter", SENTENCES[0], "The dog sleeps here."
    )
    text = TextBox(
        "decoder reads", "A French text of its own, which may be empty; press Enter", FRENCH, "Le petit chien dort ici."
    )
    stills = ({}, {"side": SIDES[1]}, {"side": SIDES[0], "layer": LAYERS})
    dpi = 96
    strip_dpi = 96
    size = (7.9, 5.6)
    layout = panels("One head's attention: every row sums to 1")

    def compute(self, *, layer, head, side, language, sentence, text):
        """Return the weights of one head with the tokens of rows and columns, and their strongest link."""
        reading = read(sentence, language, text)
        state = {"layer": layer, "head": head, "side": side, "language": language}
        state |= {"problem": reading.problem, "unknown": reading.unknown}
        if reading.problem:
            return state
        weights = np.ma.array(reading.weights[side][layer - 1, head - 1])
        if side == "decoder self":
            weights[~np.tri(len(weights), dtype=bool)] = np.ma.masked
        # A row that sees a single key gives it all its weight: no finding.
        free = weights.count(axis=1) > 1
        link = np.unravel_index(np.where(free[:, None], weights.filled(0), 0).argmax(), weights.shape)
        safe = weights.filled(0).clip(min=1e-30)
        spread = np.exp(-(safe * np.log(safe)).sum(axis=1))
        return {
            **state,
            "weights": weights,
            "rows": reading.inputs if side == SIDES[0] else reading.outputs,
            "columns": reading.outputs if side == SIDES[1] else reading.inputs,
            "link": tuple(int(i) for i in link),
            "seen": int(weights.count(axis=1)[link[0]]),
            "spread": float(spread[free].mean()),
        }

    def draw(self, axes):
        """Draw an empty map, its scale, and places for the tokens' names."""
        colors = matplotlib.colormaps["Blues"].with_extremes(bad=NOT_SEEN)
        artists = token_map(axes, rows=MAX_TOKENS, columns=MAX_TOKENS, cmap=colors, norm=PowerNorm(0.5, 0, 1))
        axes.set_xlabel("key: the token that is looked at", labelpad=58)
        axes.set_ylabel("query: the token that looks", labelpad=62)
        ticks = [0, 0.05, 0.25, 0.5, 1]
        scale = axes.figure.colorbar(artists["map"], ax=axes, ticks=ticks, fraction=0.06, pad=0.06)
        scale.ax.set_ylabel("attention weight")
        scale.ax.set_xlabel("grey: not\nto be seen", labelpad=9)
        return artists

    def update(self, artists, state):
        """Set the map, the names and the box."""
        if state["problem"]:
            fill_map(artists, None, message="no sentence to show")
        else:
            rows, columns = ([shortened(token, LONGEST_LABEL) for token in state[name]] for name in ("rows", "columns"))
            fill_map(artists, state["weights"], rows, columns, box=state["link"])

    def words(self, state):
        """Say which link is the strongest, and how widely the rows spread."""
        where = (
            f"{state['side'].capitalize()} attention, layer {state['layer']}, head {state['head']}, sentence in "
            f"{state['language']}"
        )
        if state["problem"]:
            return f"{where}. {state['problem']}"
        row, column = state["link"]
        unknown = ""
        if state["unknown"]:
            some = "1 piece is" if state["unknown"] == 1 else f"{state['unknown']} pieces are"
            unknown = f" {some} unknown to the model and read as <unk>."
        return (
            f"{where}: among the rows that have a choice, the strongest link goes from “{state['rows'][row]}” "
            f"(row {row + 1}) to “{state['columns'][column]}” (column {column + 1}), weight "
            f"{state['weights'][row, column]:.2f}; equal weights over the {state['seen']} tokens that it may see would be "
            f"{1 / state['seen']:.2f}. On average such a row spreads its weight over about {state['spread']:.1f} "
            f"tokens.{unknown}"
        )


# The explorer of the stream

CHOICES = (
    "key biases 0",
    "query biases 0",
    "value biases 0",
    "no LayerNorm after the embedding",
    "positions off by 2",
    "no positions",
    "embedding not scaled",
    "LayerNorm after each sublayer",
    "no LayerNorm at the end",
)
N_PLAYED = 8


@lru_cache(maxsize=1)
def played() -> list[tuple[str, str]]:
    """Return eight sentences and their languages: the one of the first table, and seven drawn ones of the test part."""
    languages = ("en_XX", "de_DE", "es_XX")
    drawn = draw_meanings(N_PLAYED - 1, seed=26, split="test")
    return [
        (HOOK, "es_XX"),
        *((render(m, code).text, code) for i, m in enumerate(drawn) for code in [languages[i % 3]]),
    ]


FLOOR = 1e-8


@lesson.explorer
class StreamExplorer(Explorer):
    """The residual stream of mBART and of an almost-mBART, for one of eight sentences."""

    title = "One change in the encoder"
    summary = (
        "Left: mean length of the states after each sublayer and at the output, with mBART's encoder and with the altered "
        "one. Right: how far the two are apart, as root mean square over that of mBART's states."
    )
    change = Choice(
        "change", "What the encoder does differently; the decoder stays as it was trained", "no positions", CHOICES
    )
    sentence = Slider("sentence", "n", "Eight sentences in English, German or Spanish", 1, 1, N_PLAYED, 1)
    stills = ({"sentence": 5}, {"sentence": 8}, {"change": "key biases 0"})
    dpi = 96
    strip_dpi = 70
    size = (9.2, 4.5)
    together = ("change", "sentence")
    layout = panels(
        ["Length of the states", "Distance from mBART's states"],
        "stop",
        ["mean length", "relative distance"],
        grid=(1, 2),
        legend=[{"loc": "upper left", "fontsize": 9}, None],
        yscale="log",
        ylim=[(2, 2000), (FLOOR / 3, 300)],
        xlim=(-0.4, len(STOPS) - 0.6),
    )

    def compute(self, *, change, sentence):
        """Return lengths and distances at all stops, and both translations."""
        text, language = played()[sentence - 1]
        usual, altered = almost_run(text, language, None), almost_run(text, language, change)
        apart = [
            float((a - b).square().mean().sqrt() / b.square().mean().sqrt())
            for a, b in zip(altered.states, usual.states, strict=True)
        ]
        return {
            "usual": usual.lengths(),
            "altered": altered.lengths(),
            "apart": np.fmax(apart, FLOOR),
            "off": apart[-1],
            "text": text,
            "language": language,
            "change": change,
            "translations": (usual.translation, altered.translation),
        }

    def draw(self, left, right_axes):
        """Draw three curves over the stops."""
        at = np.arange(len(STOPS))
        for axes in (left, right_axes):
            axes.set_xticks(at, STOPS, rotation=90, fontsize=8.5)
        (usual,) = left.plot(at, 10.0 + 0 * at, "-", color=BLACK, marker="o", markersize=5, label="mBART")
        (altered,) = left.plot(at, 10.0 + 0 * at, "--", color=RED, marker="s", markersize=5, label="with the change")
        (apart,) = right_axes.plot(at, 1.0 + 0 * at, "--", color=RED, marker="s", markersize=5)
        return {"usual": usual, "altered": altered, "apart": apart}

    def words(self, state):
        """Say what is changed, how far the output is off, and what is written."""
        before, after = state["translations"]
        ratio = state["altered"][-1] / state["usual"][-1]
        off = f"{state['off']:.2f}" if state["off"] >= 0.005 else f"{state['off']:.0e}"
        wrote = "With the change it is the same" if before == after else f"With the change: “{after}”"
        return (
            f"“{state['text']}” ({state['language']}). Change: {state['change']}. The output is off by {off}, and its "
            f"states are {ratio:.2f} times as long as mBART's. mBART's French: “{before}” {wrote}."
        ).replace("”.", "”")


# The closing experiment: what `make bench almost_mbart` stored

PART = "almost_mbart"
REPLACED = {
    "attention: equal weights": "equal weights for all tokens",
    "attention: another token's row": "the weights of another token",
    "attention: nothing": "nothing is written",
    "attention: itself": "only the token itself",
}
INGREDIENTS = tuple(name for name in CHANGES if name not in REPLACED)


def stored(change: str, what: str) -> list[float]:
    """Return a figure of a change, one number for each of five draws of 120 sentences."""
    return measured(PART, f"{change}, {what}")


def at_distance(name: str, far: float | str) -> list[float]:
    """Return the shares left by a change or rival shrunk to a distance, `far`: five draws of 60 sentences."""
    return measured("scaled_slips", f"{name}, at {far}")


def percent(values: list[float]) -> str:
    """Return mean and range of shares, in percent."""
    low, middle, high = (f"{100 * x:.0f}" for x in (min(values), mean(values), max(values)))
    return f"{middle}%" if low == high else f"{middle}% ({low} to {high})"


def _off(change: str) -> str:
    off = mean(stored(change, "rms"))
    return "rounding" if off < 1e-5 else f"{off:.2f}"


def ranked() -> list[str]:
    """Return the changes in the order of what they leave."""
    return sorted(CHANGES, key=lambda name: (-mean(stored(name, "unchanged")), mean(stored(name, "rms"))))


IN_THE_DECODER = (
    "no padding mask",
    "positions off by 2",
    "no positions",
    "attention: equal weights",
    "attention: nothing",
    "attention: itself",
)


def ranking_table() -> Markdown:
    """Return for each change how far the states are off and what share of the translations is unchanged."""
    rows = [
        (
            name,
            _off(name),
            percent(stored(name, "unchanged")),
            percent(measured("scaled_slips", f"{name}, decoder")) if name in IN_THE_DECODER else "",
            percent(stored(name, "both")) if "another" not in name else "not defined",
        )
        for name in ranked()
    ]
    return markdown_table(("change", "states off by", "encoder", "decoder", "both"), rows)


SCALED = {
    "positions off by 2": "positions off by 2",
    "no positions": "no positions",
    "attention: equal weights": "attention: equal weights",
    "attention: nothing": "attention: nothing",
    "attention: another token's row": "attention: another token's row",
    "attention: itself": "attention: itself",
    "attention: itself, as long": "itself, as long as attention writes",
    "embedding not scaled": "embedding not scaled",
    "LayerNorm after each sublayer": "LayerNorm after each sublayer",
    "no LayerNorm at the end": "no LayerNorm at the end",
    "another sentence": "another sentence's states",
    "shorter states": "shorter states",
    "noise": "noise",
}


def rivals_table() -> Markdown:
    """Return what the changes leave beside noise as large, and beside the same differences at other tokens."""
    rows = [(name, *(percent(stored(name, kind)) for kind in KINDS)) for name in ranked()]
    return markdown_table(("change", *(label for label, _ in KINDS.values())), rows)


def scaled_table() -> Markdown:
    """Return what changes and rivals leave when their differences are shrunk to a common distance."""
    rows = []
    for name, label in SCALED.items():
        own = mean(measured("scaled_slips", f"{name}, rms"))
        cells = [
            percent(at_distance(name, far)) if f"{name}, at {far}" in figures("scaled_slips") else ""
            for far in (0.25, 0.5)
        ]
        rows.append((label, f"{own:.2f}", *cells))
    return markdown_table(("difference", "its own size", "shrunk to 0.25", "shrunk to 0.5"), rows)


def layer_table() -> Markdown:
    """Return what is left when attention is replaced in one layer of the encoder only."""
    rows = [
        (REPLACED[name], *(percent(stored(f"{name}, layer {layer}", "unchanged")) for layer in (1, 2, 3)))
        for name in REPLACED
        if "another" not in name
    ]
    return markdown_table(("in place of attention", "layer 1", "layer 2", "layer 3"), rows)


@lesson.figure(
    "Attention replaced in all layers of the encoder",
    "translations unchanged (%)",
    "what is written instead",
    size=(7.0, 3.2),
    legend=None,
    xlim=(0, 100),
)
def plot_attention(axes):
    """Draw the share of unchanged translations for four replacements of attention, five draws each."""
    names = list(REPLACED)
    for place, name in enumerate(names):
        shares = [100 * x for x in stored(name, "unchanged")]
        axes.plot(shares, [place] * len(shares), "o", color=BLUE, markersize=6, fillstyle="none")
        axes.plot([mean(shares)], [place], "D", color=BLACK, markersize=7)
    axes.set_yticks(range(len(names)), list(REPLACED.values()))
    axes.set_ylim(len(names) - 0.5, -0.5)
    low, *_, high = sorted(mean(stored(name, "unchanged")) for name in names)
    return (
        "Unchanged translations when attention is replaced in all layers of the encoder: five draws of 120 sentences "
        f"(circles), their mean (diamond). Only the token itself: {100 * low:.0f}%, the others "
        f"{100 * sorted(mean(stored(name, 'unchanged')) for name in names)[1]:.0f}% to {100 * high:.0f}%."
    )


KINDS = {
    "unchanged": ("the change itself", {"marker": "o", "color": BLUE}),
    "handed on": ("the same differences at other tokens", {"marker": "^", "color": ORANGE}),
    "noise": ("noise as large", {"marker": "x", "color": RED}),
}


LINES = (
    "noise",
    "shorter states",
    "attention: equal weights",
    "no positions",
    "attention: itself, as long",
    "attention: itself",
    "embedding not scaled",
    "LayerNorm after each sublayer",
)


@lesson.figure(
    "The same distance, and not the same damage",
    "how far the states are off (root mean square, mBART's = 1)",
    "translations unchanged (%)",
    size=(7.6, 3.9),
    legend={"loc": "upper left", "bbox_to_anchor": (1.01, 1.0), "fontsize": 8},
    xlim=(0, 0.56),
    ylim=(-4, 104),
)
def plot_survival(axes):
    """Draw the share of unchanged translations against the distance, each difference shrunk to common distances."""
    for name, look, marker in zip(LINES, LOOKS * 2, "xP^Dvosd", strict=False):
        far = [far for far in (0.25, 0.5) if f"{name}, at {far}" in figures("scaled_slips")]
        own = mean(measured("scaled_slips", f"{name}, rms"))
        ends = [(own, mean(stored(name, "unchanged")))] if name in CHANGES and own < 0.55 and far[-1] < own else []
        points = sorted([(0.0, 1.0), *((x, mean(at_distance(name, x))) for x in far), *ends])
        axes.plot(
            [x for x, _ in points],
            [100 * y for _, y in points],
            **look,
            marker=marker,
            markersize=6,
            label=SCALED[name],
        )
    return (
        "Unchanged translations against how far the states are off, when each difference is multiplied by one number. Five "
        "draws of 60 sentences. Noise leaves the most; of the slips, LayerNorm after each sublayer."
    )


ask_fluent = lesson.prediction(
    "34.P1",
    "Encoder C wrote a sentence without babies and without a garden. What was changed in it?",
    {
        "all key biases are 0": "This one wrote A. The next section shows why it cannot differ from mBART.",
        "embeddings are not multiplied by 16": "This one wrote B: the babies and the garden are still there.",
        "LayerNorm stands after each sublayer": right(
            "Its output is nearly as long as mBART's, but nearly the same for every token of every sentence. The decoder "
            "then writes the sentence of C, whatever it is asked to translate."
        ),
        "the last LayerNorm is left out": "This one wrote D. Its output is about 40 times as long as mBART's.",
    },
    reveal=plot_stream,
)

ask_attention = lesson.prediction(
    "34.P2",
    "In all three layers of the encoder, attention's weights are thrown away. Which replacement leaves the fewest "
    "translations unchanged?",
    {
        "each token gets equal weights for all tokens": "The sentence is blurred; more than half of them survive.",
        "each token gets the weights of another token": "Weights as sharp as before, at the wrong places. Many "
        "translations survive this, too.",
        "each token looks only at itself": right(
            "Nearly all translations change. Writing nothing would have been far less harmful."
        ),
        "attention writes nothing": "Tokens then know nothing of each other, and almost half of the translations "
        "survive.",
    },
    reveal=plot_attention,
)

ask_noise = lesson.prediction(
    "34.P3",
    "Equal weights moved each state of the encoder's output by some distance, and more than half of the translations stayed "
    "the same. Now each state is moved by *the same distance in a random direction* instead. What share stays the same?",
    {
        "below 10%": "Noise knows nothing of the sentence, but neither does the decoder listen to every direction.",
        "about a quarter": "Noise destroys less than this at the same size.",
        "about as many": "A step into a random direction does less than this at the same size.",
        "above 85%": right("In 256 dimensions, nearly all random directions matter little to this decoder."),
    },
    reveal=plot_survival,
)

FIGURES = lesson.figures
