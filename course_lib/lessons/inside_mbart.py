"""Figures, explorer, predictions and exercises of lesson 26, inside_mbart.

The model, and with it transformers, is loaded where it is needed: the module itself stays light.
"""

import json
from collections.abc import Callable, Mapping
from copy import copy
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
import numpy as np
import torch
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor
from torch.nn.functional import layer_norm

from course_lib import mbart
from course_lib.mbart import by_hand
from course_lib.mbart.corpus import LANGUAGES
from course_lib.teaching.exercise import Exercise, Mistake, Property
from course_lib.teaching.explorer import Choice, Explorer, Slider, TextBox
from course_lib.teaching.prediction import Prediction
from course_lib.teaching.style import BLACK, BLUE, ORANGE, RED, describe, new_figure, styled

SENTENCES = ("The old woman sees a small dog.", "The dog sleeps.")
MAX_TOKENS = 24
LONGEST_LABEL = 9
NOT_SEEN = "0.82"  # the grey of cells that a row may not see

# The model


@lru_cache(maxsize=1)
def course_model() -> tuple[Any, Any]:
    """Return the shipped model and its tokenizer, loaded once a process."""
    from course_lib.mbart.model import load

    return load()


def sizes() -> tuple[int, int]:
    """Return how many layers and heads both stacks of the shipped model have, read from its configuration."""
    path = Path(mbart.__file__).with_name("course-mbart") / "config.json"
    config = json.loads(path.read_text())
    return tuple(
        min(config[f"encoder_{what}"], config[f"decoder_{what}"]) for what in ("layers", "attention_heads")
    )


def token_ids(*sentences: str, language: str = "en_XX") -> tuple[Tensor, Tensor]:
    """Return ids, padded to the longest sentence, and the mask that is true for tokens."""
    _, tokenizer = course_model()
    tokenizer.src_lang = language
    batch = tokenizer(list(sentences), padding=True, return_tensors="pt")
    return batch["input_ids"], batch["attention_mask"].bool()


def relative_gap(found: Tensor, wanted: Tensor) -> float:
    """Return the largest difference, as a share of the largest entry."""
    return float((found - wanted).abs().max() / wanted.abs().max())


# What the notes leave out


def post_norm_layer(
    x: Tensor, w: Mapping, *, n_heads: int, visible: Tensor | None, activation: str
) -> Tensor:
    """The layer as the notes print it: LN(X + MHA(X)), then LN(X + FFN(X))."""
    attended, _ = by_hand.multi_head_attention(
        x, x, by_hand.part(w, "self_attn"), n_heads=n_heads, visible=visible
    )
    x = by_hand.layer_norm(x + attended, by_hand.part(w, "self_attn_layer_norm"))
    return by_hand.layer_norm(
        x + by_hand.feed_forward(x, w, activation=activation), by_hand.part(w, "final_layer_norm")
    )


def _layers(x: Tensor, weights: Mapping, mask: Tensor, config: Any, *, post_norm: bool) -> list[Tensor]:
    """Return the states before the first layer and after each."""
    states = [x]
    for layer in range(config.encoder_layers):
        options = {
            "n_heads": config.encoder_attention_heads,
            "visible": mask[:, None, None, :],
            "activation": config.activation_function,
        }
        w = by_hand.part(weights, f"model.encoder.layers.{layer}")
        x = post_norm_layer(x, w, **options) if post_norm else by_hand.encoder_layer(x, w, **options)[0]
        states.append(x)
    return states


def notes_encoder(weights: Mapping, ids: Tensor, mask: Tensor, *, config: Any) -> list[Tensor]:
    """The encoder as the notes print it, with the model's own weights: token embeddings, then post-norm layers."""
    return _layers(weights["model.shared.weight"][ids], weights, mask, config, post_norm=True)


def ingredients() -> dict[str, float]:
    """Return how far the encoder's output is off when one ingredient is changed, at the tokens of a padded batch."""
    model, _ = course_model()
    weights, config = model.state_dict(), model.config
    ids, mask = token_ids(*SENTENCES)
    right = by_hand.encoder(weights, ids, mask, config=config)
    unscaled = copy(config)
    unscaled.scale_embedding = not config.scale_embedding
    positions = "model.encoder.embed_positions.weight"
    table = weights["model.shared.weight"]
    raw = table[ids] * (table.shape[1] ** 0.5 if config.scale_embedding else 1.0)
    raw = raw + weights[positions][2 : 2 + ids.shape[1]]
    final = by_hand.part(weights, "model.encoder.layer_norm")

    def without(ending: str) -> dict[str, Tensor]:
        return {k: torch.zeros_like(t) if k.endswith(ending) else t for k, t in weights.items()}

    def output(weights: Mapping = weights, mask: Tensor | None = mask, config: Any = config) -> Tensor:
        return by_hand.encoder(weights, ids, mask, config=config).output

    def from_states(states: list[Tensor]) -> Tensor:
        return by_hand.layer_norm(states[-1], final)

    with torch.no_grad():
        theirs = model.model.encoder(input_ids=ids, attention_mask=mask).last_hidden_state
        found = {
            "nothing": right.output,
            "key biases to 0": output(without("k_proj.bias")),
            "value biases to 0": output(without("v_proj.bias")),
            "padding mask off": output(mask=None),
            "position offset 0": output(weights | {positions: weights[positions].roll(2, 0)}),
            "embedding not scaled": output(config=unscaled),
            "no embedding LayerNorm": from_states(_layers(raw, weights, mask, config, post_norm=False)),
            "no final LayerNorm": right.states[-1],
            "LayerNorm after, not before": from_states(
                _layers(right.states[0], weights, mask, config, post_norm=True)
            ),
        }
    return {name: relative_gap(states[mask], theirs[mask]) for name, states in found.items()}


# Figures


@styled
def plot_question() -> Figure:
    """Draw how far two sets of equations are from the library, after each layer of the encoder."""
    model, _ = course_model()
    weights, config = model.state_dict(), model.config
    ids, mask = token_ids(SENTENCES[0])
    with torch.no_grad():
        theirs = model.model.encoder(
            input_ids=ids, attention_mask=mask, output_hidden_states=True
        ).hidden_states
    ours = by_hand.encoder(weights, ids, mask, config=config)
    found = {
        "the notes' equations": notes_encoder(weights, ids, mask, config=config),
        "this lesson's equations": [*ours.states[:-1], ours.output],
    }
    figure = new_figure(7.0, 4.0)
    axes = figure.add_subplot()
    looks = {"the notes' equations": (RED, "--", "s"), "this lesson's equations": (BLUE, "-", "o")}
    found = {
        name: [max(relative_gap(a, b), 1e-9) for a, b in zip(states, theirs, strict=True)]
        for name, states in found.items()
    }
    for name, gaps in found.items():
        color, style, marker = looks[name]
        axes.semilogy(range(len(gaps)), gaps, color=color, linestyle=style, marker=marker, label=name)
    names = ["embedding", *(f"layer {i}" for i in range(1, len(theirs) - 1)), "output"]
    axes.set_xticks(range(len(names)), names, rotation=90 if len(names) > 8 else 0)
    axes.set(xlabel="state of the encoder", ylabel="largest gap / largest entry", ylim=(1e-10, 1e3))
    axes.set_title("Same weights, same sentence: who computes what the library computes?")
    axes.legend(loc="center right")
    printed, corrected = (found[name] for name in looks)
    return describe(
        figure,
        "Largest difference from transformers' states, as a share of their largest entry, on a logarithmic axis, from the "
        f"embedding to the encoder's output. With the equations of the notes it is {min(printed):.1g} "
        f"or more everywhere. With those of this lesson it is {'less' if max(corrected) < 1e-5 else 'more'} than 0.00001: "
        "rounding.",
    )


@styled
def plot_ingredients() -> Figure:
    """Draw how far the encoder's output moves when one ingredient is changed."""
    gaps = ingredients()
    figure = new_figure(7.0, 4.0)
    axes = figure.add_subplot()
    places = np.arange(len(gaps))
    values = np.array([max(gap, 1e-9) for gap in gaps.values()])
    axes.hlines(places, 1e-9, values, color=BLACK, linewidth=1, linestyles=":")
    axes.plot(values, places, "o", color=BLUE, markersize=8)
    axes.set_xscale("log")
    axes.set_yticks(places, list(gaps))
    axes.invert_yaxis()
    axes.set(
        xlim=(1e-9, 10 * values.max()),
        xlabel="largest gap from the library / largest entry",
        ylabel="what is changed",
    )
    axes.set_title("All ingredients count, but one: the key biases")
    return describe(
        figure,
        "How far the encoder's output is from transformers' when one thing is changed, on a logarithmic axis: "
        + "; ".join(f"{name}: {gap:.0e}" if gap > 1e-5 else f"{name}: rounding" for name, gap in gaps.items())
        + ".",
    )


class Change(NamedTuple):
    """Whether states moved when one token was changed: (states, positions) for each stack, and the two inputs."""

    position: int
    encoder: np.ndarray
    decoder: np.ndarray
    tokens: tuple[list[str], list[str]]


@lru_cache(maxsize=1)
def one_changed_token() -> Change:
    """Change one token in the middle, once for the encoder and once for the decoder (on the same memory)."""
    model, tokenizer = course_model()
    weights, config = model.state_dict(), model.config
    ids, _ = token_ids(SENTENCES[0])
    position = ids.shape[1] // 2
    memory = by_hand.encoder(weights, ids, config=config).output
    inputs = {"encoder": ids, "decoder": by_hand.shift_right(ids, pad_id=config.pad_token_id)}
    run = {
        "encoder": lambda x: by_hand.encoder(weights, x, config=config),
        "decoder": lambda x: by_hand.decoder(weights, x, memory, config=config),
    }
    moved = {}
    for side, before in inputs.items():
        after = before.clone()
        after[0, position] = before[0, position - 2]  # any other token of the sentence
        a, b = run[side](before), run[side](after)
        pairs = zip([*a.states, a.output], [*b.states, b.output], strict=True)
        gaps = [(x - y).abs().amax(-1)[0] / x.abs().max() for x, y in pairs]
        moved[side] = (torch.stack(gaps) > 1e-6).numpy()
    tokens = tuple(tokenizer.convert_ids_to_tokens(x[0]) for x in inputs.values())
    return Change(position, moved["encoder"], moved["decoder"], tokens)


@styled
def plot_changes() -> Figure:
    """Draw which states move when one token of the input is changed."""
    change = one_changed_token()
    figure = new_figure(9.4, 4.4)
    left, right = figure.subplots(1, 2)
    colors = matplotlib.colors.ListedColormap(["white", BLUE])
    for axes, name, moved, tokens in (
        (left, "Encoder", change.encoder, change.tokens[0]),
        (right, "Decoder", change.decoder, change.tokens[1]),
    ):
        axes.grid(visible=False)
        axes.imshow(moved, cmap=colors, vmin=0, vmax=1, aspect="auto", origin="lower", alpha=0.75)
        axes.set_xticks(np.arange(len(tokens)), [_label(t) for t in tokens], rotation=90, parse_math=False)
        rows = ["embedding", *(f"layer {i}" for i in range(1, len(moved) - 1)), "output"]
        axes.set_yticks(range(len(rows)), rows)
        axes.set_xticks(np.arange(-0.5, len(tokens)), minor=True)
        axes.set_yticks(np.arange(-0.5, len(rows)), minor=True)
        axes.grid(which="minor", color="0.6", linewidth=0.6)
        axes.tick_params(which="minor", length=0)
        axes.axvline(change.position, color=ORANGE, linewidth=2, linestyle="--")
        axes.set(xlabel="position", ylabel="state", title=f"{name}: states that move (blue)")
    return describe(
        figure,
        f"Which states move when the token at position {change.position + 1}, marked by a dashed line, is replaced. "
        "Encoder: in the embedding only that position, from layer 1 on all positions. Decoder: in the embedding only that "
        "position, from layer 1 on that position and all later ones; earlier positions never move.",
    )


class Padded(NamedTuple):
    """Lengths of the encoder's output states of one padded sentence, and which of them belong to tokens."""

    lengths: np.ndarray
    real: np.ndarray


@lru_cache(maxsize=1)
def padded_states() -> Padded:
    """Read a sentence padded to twice its length."""
    model, tokenizer = course_model()
    ids, _ = token_ids(SENTENCES[1])
    pads = torch.full_like(ids, tokenizer.pad_token_id)
    mask = torch.cat([torch.ones_like(ids), torch.zeros_like(ids)], dim=1).bool()
    states = by_hand.encoder(
        model.state_dict(), torch.cat([ids, pads], dim=1), mask, config=model.config
    ).output
    return Padded(states[0].norm(dim=-1).numpy(), mask[0].numpy())


@styled
def plot_padding() -> Figure:
    """Draw the lengths of the output states at tokens and at pads."""
    lengths, real = padded_states()
    places = np.arange(1, len(lengths) + 1)
    figure = new_figure(7.0, 3.8)
    axes = figure.add_subplot()
    axes.plot(places[real], lengths[real], "o", color=BLUE, markersize=8, label="token")
    axes.plot(places[~real], lengths[~real], "s", color=RED, markersize=8, fillstyle="none", label="pad")
    axes.set(xlabel="position", ylabel="length of the output state", ylim=(0, 1.35 * lengths.max()))
    axes.set_title("Pads have states, too")
    axes.legend(loc="upper right", ncols=2)
    return describe(
        figure,
        f"Length of the encoder's output state at each of {len(lengths)} positions. The tokens' states have lengths from "
        f"{lengths[real].min():.1f} to {lengths[real].max():.1f}, those of the pads from {lengths[~real].min():.1f} to "
        f"{lengths[~real].max():.1f}: none is near 0.",
    )


# Explorer


class Reading(NamedTuple):
    """One sentence read by the model: its tokens on both sides and all attention weights, or why there are none."""

    problem: str
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    weights: Mapping[str, np.ndarray] | None = None
    unknown: int = 0


SIDES = ("encoder self", "decoder self", "decoder to encoder")


@lru_cache(maxsize=64)
def read(sentence: str, language: str) -> Reading:
    """Run encoder and decoder on one sentence; the decoder gets it shifted right, as in training."""
    model, tokenizer = course_model()
    if not sentence.strip():
        return Reading("There is nothing to read yet: type a sentence and press Enter.")
    ids, mask = token_ids(sentence, language=language)
    if ids.shape[1] > MAX_TOKENS:
        return Reading(
            f"The sentence has {ids.shape[1]} tokens with its language code and end, and the map has room for "
            f"{MAX_TOKENS}: shorten it."
        )
    weights = model.state_dict()
    shifted = by_hand.shift_right(ids, pad_id=tokenizer.pad_token_id)
    encoder = by_hand.encoder(weights, ids, mask, config=model.config)
    decoder = by_hand.decoder(weights, shifted, encoder.output, mask, mask, config=model.config)
    found = (encoder.self_attention, decoder.self_attention, decoder.cross_attention)
    return Reading(
        "",
        tuple(tokenizer.convert_ids_to_tokens(ids[0])),
        tuple(tokenizer.convert_ids_to_tokens(shifted[0])),
        {side: torch.stack(layers)[:, 0].numpy() for side, layers in zip(SIDES, found, strict=True)},
        int((ids == tokenizer.unk_token_id).sum()),
    )


def _label(token: str) -> str:
    return token if len(token) <= LONGEST_LABEL else token[: LONGEST_LABEL - 1] + "…"


LAYERS, HEADS = sizes()


class AttentionExplorer(Explorer):
    """The attention weights of every head, for a sentence that the learner types."""

    title = "Where every head looks"
    summary = (
        "A map of attention weights: each row is one token and shows how its attention is spread over the columns; the "
        "darker, the more. The box marks the strongest link. Grey cells may not be seen."
    )
    controls = {  # noqa: RUF012 - shared by all instances, never changed
        "layer": Slider(
            label="layer", symbol="l", default=min(2, LAYERS), minimum=1, maximum=LAYERS, step=1,
            tooltip="1 is the layer right after the embedding",
        ),
        "head": Slider(
            label="head", symbol="h", default=1, minimum=1, maximum=HEADS, step=1,
            tooltip="The heads of one layer look in parallel",
        ),
        "side": Choice(
            label="attention", default=SIDES[0], options=SIDES,
            tooltip="Which of the three attentions of an encoder-decoder model",
        ),
        "language": Choice(
            label="language", default="en_XX", options=LANGUAGES,
            tooltip="The code that is put before the sentence",
        ),
        "sentence": TextBox(
            label="sentence", default="The old woman sees a small dog.", other="La petite fille dort ici.",
            tooltip=f"Up to {MAX_TOKENS} tokens; press Enter",
        ),
    }  # fmt: skip
    size = (7.9, 5.6)

    def compute(self, *, layer, head, side, language, sentence):
        """Return the weights of one head with the tokens of rows and columns, and their strongest link."""
        reading = read(sentence, language)
        state = {
            "layer": layer,
            "head": head,
            "side": side,
            "problem": reading.problem,
            "unknown": reading.unknown,
        }
        if reading.problem:
            return {**state, "weights": np.ma.array(np.zeros((1, 1)), mask=True), "rows": (), "columns": ()}
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

    def draw(self, figure):
        """Draw an empty map, its scale, and places for the tokens' names."""
        axes = figure.add_subplot()
        colors = matplotlib.colormaps["Blues"].with_extremes(bad=NOT_SEEN)
        image = axes.imshow(
            np.zeros((1, 1)), cmap=colors, norm=PowerNorm(0.5, 0, 1), extent=(0, 1, 0, 1), aspect="auto"
        )
        axes.grid(visible=False)
        axes.set(xlim=(0, 1), ylim=(0, 1), xticks=[], yticks=[])
        axes.set_xlabel("key: the token that is looked at", labelpad=58)
        axes.set_ylabel("query: the token that looks", labelpad=62)
        axes.set_title("One head's attention: every row sums to 1")
        scale = figure.colorbar(image, ax=axes, ticks=[0, 0.05, 0.25, 0.5, 1], fraction=0.06, pad=0.06)
        scale.ax.set_ylabel("attention weight")
        scale.ax.set_xlabel("grey: not\nto be seen", labelpad=9)
        small = {"fontsize": 8, "parse_math": False}
        return {
            "map": image,
            "link": axes.add_patch(Rectangle((0, 0), 0, 0, fill=False, edgecolor=RED, linewidth=2)),
            "rows": [axes.text(-0.01, 0, "", ha="right", va="center", **small) for _ in range(MAX_TOKENS)],
            "columns": [
                axes.text(0, -0.015, "", ha="center", va="top", rotation=90, **small)
                for _ in range(MAX_TOKENS)
            ],
            "message": axes.text(0.5, 0.5, "", ha="center", va="center", wrap=True, fontsize=11),
        }

    def update(self, artists, state):
        """Set the map, the names and the box."""
        artists["map"].set_data(state["weights"])
        n_rows, n_columns = state["weights"].shape
        for place, text in enumerate(artists["rows"]):
            text.set_text(_label(state["rows"][place]) if place < len(state["rows"]) else "")
            text.set_y(1 - (place + 0.5) / n_rows)
        for place, text in enumerate(artists["columns"]):
            text.set_text(_label(state["columns"][place]) if place < len(state["columns"]) else "")
            text.set_x((place + 0.5) / n_columns)
        row, column = state.get("link", (0, 0))
        box = (column / n_columns, 1 - (row + 1) / n_rows, 1 / n_columns, 1 / n_rows)
        artists["link"].set_bounds(*((0, 0, 0, 0) if state["problem"] else box))
        artists["message"].set_text("no sentence to show" if state["problem"] else "")

    def words(self, state):
        """Say which link is the strongest, and how widely the rows spread."""
        where = f"{state['side'].capitalize()} attention, layer {state['layer']}, head {state['head']}"
        if state["problem"]:
            return f"{where}. {state['problem']}"
        row, column = state["link"]
        unknown = ""
        if state["unknown"]:
            some = "1 piece is" if state["unknown"] == 1 else f"{state['unknown']} pieces are"
            unknown = f" {some} unknown to the model and read as <unk>."
        return (
            f"{where}: the strongest link goes from “{state['rows'][row]}” (row {row + 1}) to "
            f"“{state['columns'][column]}” (column {column + 1}), weight {state['weights'][row, column]:.2f}; equal weights "
            f"over the {state['seen']} tokens that it may see would be {1 / state['seen']:.2f}. On average a row that has a "
            f"choice spreads as over {state['spread']:.1f} equal ones.{unknown}"
        )


# Predictions


def changed_token_prediction() -> Prediction:
    """Ask which decoder states a changed token reaches."""
    return Prediction(
        "26.P1",
        "One token in the middle of the decoder's input is replaced by another; the encoder's input stays. Which of the "
        "decoder's output states change?",
        choices={
            "only the one at that position": "Later positions look back at it: from the first layer on their states "
            "change as well.",
            "all of them": "That is what happens in the encoder. In the decoder no position may look at a later one, so "
            "that the earlier states cannot know.",
            "the one at that position and all later ones": "A position may look at itself and at what stands before it. "
            "So earlier states do not change at all, in any layer.",
        },
        answer="the one at that position and all later ones",
        reveal=plot_changes,
    )


def padding_prediction() -> Prediction:
    """Ask what stands at the pads of the encoder's output."""
    lengths, real = padded_states()
    pads = f"here they are {lengths[~real].mean() / lengths[real].mean():.1f} times as long as those of tokens, on average"
    return Prediction(
        "26.P2",
        "A sentence is padded to twice its length and the padding mask is given to the encoder. What does its output hold "
        "at the pads?",
        choices={
            "zeros": "The mask keeps others from looking at a pad. The pad itself still looks at the tokens and passes "
            f"through every layer and the final LayerNorm; {pads}.",
            "vectors like any others": "The mask keeps others from looking at a pad, nothing else. The final LayerNorm "
            f"gives every position entries of mean 0 and variance 1 before its gain and bias; {pads}. A plain mean counts "
            "them.",
            "a copy of the last token's state": "A pad has its own embedding and its own position, so that its state is its "
            f"own; {pads}.",
        },
        answer="vectors like any others",
        reveal=plot_padding,
    )


# Exercises


def _normal(generator: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(shape, generator=generator, dtype=torch.float64).round(decimals=2)


def _integer(generator: torch.Generator, low: int, high: int) -> int:
    """Draw a whole number from low to high."""
    return int(torch.randint(low, high + 1, (), generator=generator))


def _head_with_shift(inputs: Mapping, value: Any) -> bool:
    """The first two scores moved by the same number give the same weights."""
    scores = (torch.tensor([2 * np.log(3), 0.0]) + inputs["shift"]) / 2
    return (
        abs(float(torch.softmax(scores, 0) @ torch.tensor([4.0, 8.0], dtype=torch.float64)) - float(value))
        < 1e-3
    )


_HEAD = Exercise(
    id="26.1",
    title="One head, one query",
    kind="value",
    difficulty=1,
    minutes=5,
    prompt="A head of width $d_h = 4$ compares one query with three keys: $q \\cdot k_1 = 2 \\ln 3$, $q \\cdot k_2 = 0$, "
    "$q \\cdot k_3 = 4 \\ln 2$. The third key belongs to a pad. With the values 4, 8 and 100 (one number for each key), "
    "what is the head's output for this query?",
    draw=lambda generator: {"shift": float(_normal(generator, 1))},
    reference=5.0,
    properties=(
        Property("It should be the mean of the values under the weights of the two keys that count.", _head_with_shift),
    ),
    hints=(
        "Which keys take part in the softmax at all?",
        "Divide the scores by the square root of the head's width before the exponential.",
        "The exponentials of the two scores that are left are whole numbers.",
    ),
    mistakes=(
        Mistake("no scale", 4.4, "You left out the division by √d_h = 2: the exponentials are then 9 and 1."),
        Mistake("scale d_h", (4 * 3**0.5 + 8) / (3**0.5 + 1), "You divided by d_h = 4; it is the square root, 2."),
        Mistake("pad seen", 52.5, "You let the query see the pad, whose exponential is 4. Its weight must be 0."),
        Mistake("pad scored 0", 24.0,
                "You gave the pad the score 0, and e⁰ = 1 is a share like any other. Its score must be minus infinity."),
        Mistake("not normalised", 20.0, "You added up exponential times value; the weights must sum to 1."),
    ),
    same=lambda a, b: abs(float(a) - float(b)) < 0.01,
)  # fmt: skip


def decoder_attention(scores, real):
    """Weights of causal attention over a sentence whose pads are masked."""
    visible = torch.ones_like(scores).tril().bool() & real
    return torch.softmax(scores.masked_fill(~visible, -torch.inf), dim=-1)


def _draw_scores(generator: torch.Generator) -> dict:
    tokens = _integer(generator, 3, 4)
    return {
        "scores": _normal(generator, tokens, tokens),
        "real": torch.arange(tokens) < _integer(generator, 1, tokens),
    }


def _weights_by_loop(inputs: Mapping) -> Tensor:
    scores, real = inputs["scores"], inputs["real"]
    weights = torch.zeros_like(scores)
    for i in range(len(scores)):
        keys = [j for j in range(i + 1) if real[j]]
        total = sum(scores[i, j].exp() for j in keys)
        for j in keys:
            weights[i, j] = scores[i, j].exp() / total
    return weights


def _softmax_where(visible: Callable) -> Callable:
    return lambda s, r: torch.softmax(s.masked_fill(~visible(s, r), -1e9), dim=-1)


_MASKS = Exercise(
    id="26.2",
    title="What the decoder may see",
    kind="function",
    difficulty=1,
    minutes=8,
    prompt="Write `decoder_attention(scores, real)`: the attention weights of a decoder's self-attention. `scores` has "
    "shape `(T, T)`, row $i$ for query $i$; `real` is boolean of shape `(T,)`, True for tokens and False for pads, which "
    "stand on the right. Return the weights, shape `(T, T)`.",
    draw=_draw_scores,
    reference=decoder_attention,
    properties=(
        Property(
            "Row i should be the softmax over the tokens j ≤ i that are no pads, and 0 elsewhere.",
            lambda inputs, output: torch.allclose(output, _weights_by_loop(inputs), atol=1e-9),
        ),
    ),
    hints=(
        "Two conditions must hold for query i to see key j. Which?",
        "`torch.ones_like(scores).tril().bool()` is one of them; `&` joins it with the other, which broadcasts over rows.",
        "Put minus infinity where a key may not be seen (`masked_fill`), and only then take the softmax over the keys.",
    ),
    mistakes=(
        Mistake("future seen", _softmax_where(lambda s, r: r.expand_as(s)),
                "Your queries see later tokens. That is the encoder's attention; the decoder's is causal."),
        Mistake("pads seen", _softmax_where(lambda s, r: torch.ones_like(s).tril().bool()),
                "The causal mask is there, but later rows still see pads: use `real`, too."),
        Mistake("masked after the softmax",
                lambda s, r: torch.softmax(s, dim=-1) * (torch.ones_like(s).tril().bool() & r),
                "You masked after the softmax: the rows no longer sum to 1. Mask the scores."),
        Mistake("softmax over queries",
                lambda s, r: torch.softmax(s.masked_fill(~(torch.ones_like(s).tril().bool() & r), -1e9), dim=0),
                "You took the softmax over the queries (dim 0). Each row, over its keys, must sum to 1."),
        Mistake("zero for minus infinity",
                lambda s, r: torch.softmax(s * (torch.ones_like(s).tril().bool() & r), dim=-1),
                "You set the hidden scores to 0. The softmax turns 0 into a positive weight; minus infinity gives 0."),
    ),
)  # fmt: skip


def cross_attention_head(decoder_states, encoder_output, w_q, w_k, w_v):
    """One head of cross-attention in a pre-norm decoder."""
    normed = layer_norm(decoder_states, decoder_states.shape[-1:])
    scores = (normed @ w_q) @ (encoder_output @ w_k).T / w_q.shape[1] ** 0.5
    return torch.softmax(scores, dim=-1) @ (encoder_output @ w_v)


def _draw_cross(generator: torch.Generator) -> dict:
    return {
        "decoder_states": _normal(generator, _integer(generator, 2, 3), 6) + 1,
        "encoder_output": _normal(generator, _integer(generator, 2, 3), 6),
        **{f"w_{name}": _normal(generator, 6, 2) for name in "qkv"},
    }


def _cross_by_library(inputs: Mapping) -> Tensor:
    x, y = inputs["decoder_states"], inputs["encoder_output"]
    x = (x - x.mean(1, keepdim=True)) / (x.var(1, keepdim=True, correction=0) + 1e-5).sqrt()
    q, k, v = x @ inputs["w_q"], y @ inputs["w_k"], y @ inputs["w_v"]
    return torch.nn.functional.scaled_dot_product_attention(q[None], k[None], v[None])[0]


def _cross(x: Tensor, y: Tensor, w_q: Tensor, w_k: Tensor, w_v: Tensor, scale: float) -> Tensor:
    return torch.softmax((x @ w_q) @ (y @ w_k).T / scale, dim=-1) @ (y @ w_v)


def _ln(x: Tensor) -> Tensor:
    return layer_norm(x, x.shape[-1:])


_CROSS = Exercise(
    id="26.3",
    title="The decoder asks the encoder",
    kind="function",
    difficulty=2,
    minutes=12,
    prompt="Write `cross_attention_head(decoder_states, encoder_output, w_q, w_k, w_v)`: the output of one head of mBART's "
    "cross-attention, without biases. `decoder_states`, shape `(T', d)`, come from the residual stream of the decoder; "
    "`encoder_output`, shape `(T, d)`, has passed the encoder's final LayerNorm. The weights have shape `(d, head_dim)`. "
    "Where a LayerNorm is missing, use `torch.nn.functional.layer_norm(x, x.shape[-1:])`. Return shape `(T', head_dim)`.",
    draw=_draw_cross,
    reference=cross_attention_head,
    properties=(
        Property(
            "The output should be what scaled_dot_product_attention gives for the same queries, keys and values.",
            lambda inputs, output: torch.allclose(output, _cross_by_library(inputs), atol=1e-7),
        ),
    ),
    hints=(
        "Queries come from one side, keys and values from the other. Which of the two is not yet normalised?",
        "mBART is pre-norm: the sublayer reads the LayerNorm of the decoder's states.",
        "Scores have shape (T', T) and are divided by the square root of the head's width; the softmax runs over T.",
    ),
    mistakes=(
        Mistake("no LayerNorm", lambda x, y, q, k, v: _cross(x, y, q, k, v, q.shape[1] ** 0.5),
                "You used the decoder's states as they are, as the notes print it. The sublayer reads their LayerNorm."),
        Mistake("normalised twice", lambda x, y, q, k, v: _cross(_ln(x), _ln(y), q, k, v, q.shape[1] ** 0.5),
                "You normalised the encoder's output again. It has its final LayerNorm already, and every decoder layer "
                "reads it as it is."),
        Mistake("sides exchanged", lambda x, y, q, k, v: _cross(y, _ln(x), q, k, v, q.shape[1] ** 0.5),
                "You exchanged the sides: the decoder asks (queries), the encoder's output answers (keys and values)."),
        Mistake("no scale", lambda x, y, q, k, v: _cross(_ln(x), y, q, k, v, 1.0),
                "The scores are not divided by the square root of the head's width."),
        Mistake("no square root", lambda x, y, q, k, v: _cross(_ln(x), y, q, k, v, float(q.shape[1])),
                "You divided by the head's width. It is its square root."),
        Mistake("scale of the model", lambda x, y, q, k, v: _cross(_ln(x), y, q, k, v, x.shape[1] ** 0.5),
                "You divided by √d of the model. The vectors that are compared have the head's width."),
    ),
)  # fmt: skip


def one_head_writes(weights, y, w_v, w_o, head):
    """What one head adds to the states, biases aside."""
    width = w_v.shape[1] // len(weights)
    block = slice(head * width, (head + 1) * width)
    return weights[head] @ y @ w_v[:, block] @ w_o[block]


def _draw_writing(generator: torch.Generator) -> dict:
    heads, tokens, width = _integer(generator, 2, 3), _integer(generator, 2, 3), 2
    return {
        "weights": torch.softmax(_normal(generator, heads, tokens, tokens), dim=-1).round(decimals=3),
        "y": _normal(generator, tokens, 3),
        "w_v": _normal(generator, 3, heads * width),
        "w_o": _normal(generator, heads * width, 3),
        "head": _integer(generator, 0, heads - 1),
    }


def _written_by_silencing(inputs: Mapping) -> Tensor:
    """Multi-head attention minus itself with one head's columns of the concatenation set to zero."""
    weights, y = inputs["weights"], inputs["y"]
    heads = (y @ inputs["w_v"]).unflatten(1, (len(weights), -1))
    joined = torch.einsum("hqk,khe->qhe", weights, heads)
    silent = joined.clone()
    silent[:, inputs["head"]] = 0
    return (joined - silent).flatten(1) @ inputs["w_o"]


def _block(w: Tensor, head: int, heads: int) -> slice:
    width = w.shape[1] // heads
    return slice(head * width, (head + 1) * width)


_WRITES = Exercise(
    id="26.4",
    title="What one head writes",
    kind="function",
    difficulty=2,
    minutes=10,
    prompt="Write `one_head_writes(weights, y, w_v, w_o, head)`: what head number `head` (from 0) adds to the states, "
    "biases aside. `weights` has shape `(heads, T, T)`; `y` has shape `(T, d)`; `w_v` of shape `(d, heads * head_dim)` and "
    "`w_o` of shape `(heads * head_dim, d)` hold the heads one after the other. Return shape `(T, d)`.",
    draw=_draw_writing,
    reference=one_head_writes,
    properties=(
        Property(
            "It should be what multi-head attention loses when this head is set to 0 before W_O.",
            lambda inputs, output: torch.allclose(output, _written_by_silencing(inputs), atol=1e-9),
        ),
    ),
    hints=(
        "Which columns of w_v, and which rows of w_o, belong to the head?",
        "The head's width is w_v.shape[1] // len(weights); its block starts at head times that.",
        "Four factors: the head's weights, y, its block of w_v, its block of w_o.",
    ),
    mistakes=(
        Mistake("all heads", lambda a, y, v, o, h: torch.cat([a[i] @ y @ v[:, _block(v, i, len(a))]
                                                              for i in range(len(a))], dim=1) @ o,
                "That is the sum over all heads. Only one is asked for."),
        Mistake("interleaved", lambda a, y, v, o, h: a[h] @ y @ v[:, h::len(a)] @ o[h::len(a)],
                "You took every n-th column. A head is one block of neighbouring columns."),
        Mistake("no attention", lambda a, y, v, o, h: y @ v[:, _block(v, h, len(a))] @ o[_block(v, h, len(a))],
                "You left out the attention weights: every token would read only itself."),
        Mistake("weights transposed",
                lambda a, y, v, o, h: a[h].T @ y @ v[:, _block(v, h, len(a))] @ o[_block(v, h, len(a))],
                "You used the weights transposed. Row i of them belongs to the query i, and so to row i of the result."),
        Mistake("weights of the first head",
                lambda a, y, v, o, h: a[0] @ y @ v[:, _block(v, h, len(a))] @ o[_block(v, h, len(a))],
                "The values are those of the head, but the attention weights are always those of head 0."),
    ),
)  # fmt: skip


def _placements(c: Mapping) -> tuple[float, float]:
    """Second minus first entry, whose sign is LN's result in two dimensions: post-norm, pre-norm with a final norm."""
    x1, x2 = float(c["x1"]), float(c["x2"])
    first = 1.0 if x1 > x2 else -1.0
    return x2 + x1 - x1, x2 + first - x1


def _tie(c: Mapping) -> bool:
    return float(c["x1"]) == float(c["x2"]) or 0.0 in _placements(c)


def _opposite(c: Mapping) -> bool:
    post, pre = _placements(c)
    return not _tie(c) and (post > 0) != (pre > 0)


_PLACE = Exercise(
    id="26.5",
    title="A matter of taste?",
    kind="flaw",
    difficulty=3,
    minutes=12,
    prompt="Someone says: “Where the LayerNorm stands is a matter of taste. Pre-norm ends with a final LayerNorm, so that "
    "$\\mathrm{LN}(x + f(\\mathrm{LN}(x)))$ is the same as the post-norm $\\mathrm{LN}(x + f(x))$.” Take two dimensions, no "
    "gain, no bias, $\\epsilon = 0$, and the sublayer $f(z) = (0, z_1)$, which copies the first entry to the second place. "
    "Give a state $x$, a dictionary with the numbers `x1` and `x2`, for which the two results are opposite: $(-1, 1)$ and "
    "$(1, -1)$.",
    draw=lambda generator: {"seed": _integer(generator, 0, 10_000)},
    reference={"x1": 3.0, "x2": 1.0},
    properties=(
        Property("For your x both give the same, or one of them divides 0 by 0.", lambda inputs, c: _opposite(c)),
    ),
    hints=(
        "In two dimensions LN says only which entry is larger: (-1, 1) if it is the second.",
        "Post-norm compares x1 with x2 + x1. Pre-norm adds not x1 but the first entry of LN(x), which is 1 or -1.",
        "Take a large x1 and a small positive x2: what is added in one case, and what in the other?",
    ),
    mistakes=(
        Mistake("a tie", {"x1": 2.0, "x2": 2.0},
                "Two equal entries have variance 0 somewhere on the way, and LN divides 0 by 0. Keep all entries apart.",
                lambda i, c: _tie(c)),
        Mistake("second entry negative", {"x1": 3.0, "x2": -1.0},
                "With x2 below 0 and x1 above it, both leave the second entry the smaller one: nothing that is added makes "
                "up for it.",
                lambda i, c: not _tie(c) and not _opposite(c) and float(c["x2"]) < 0),
        Mistake("second entry larger", {"x1": 1.0, "x2": 3.0},
                "The second entry is so far ahead that neither copy changes which one is larger.",
                lambda i, c: not _tie(c) and not _opposite(c) and float(c["x2"]) > max(float(c["x1"]), 0.0)),
        Mistake("too close", {"x1": 1.5, "x2": 1.0},
                "Here the 1 that pre-norm adds is enough to lift the second entry above the first, as x1 does in post-norm.",
                lambda i, c: not _tie(c) and not _opposite(c) and 0 < float(c["x2"]) < float(c["x1"])),
    ),
)  # fmt: skip

EXERCISES = {e.id: e for e in (_HEAD, _MASKS, _CROSS, _WRITES, _PLACE)}

FIGURES = {
    "question": plot_question,
    "ingredients": plot_ingredients,
    "changes": plot_changes,
    "padding": plot_padding,
    "explorer": lambda: AttentionExplorer().strip(),
}
