"""Experiments, figures, explorer and predictions of lesson 26, inside_mbart.

The model, and with it transformers, is loaded where it is needed: the module itself stays light.
"""

import json
from collections.abc import Mapping
from copy import copy
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
import numpy as np
import torch
from matplotlib.colors import PowerNorm
from matplotlib.patches import Rectangle
from torch import Tensor

from course_lib import mbart
from course_lib.language.corpus import LANGUAGES
from course_lib.lessons.inside_mbart.contents import lesson
from course_lib.mbart import by_hand
from course_lib.teaching import Choice, Explorer, Slider, TextBox, lines, panels
from course_lib.teaching.style import BLACK, BLUE, ORANGE, RED
from course_lib.teaching.token_map import fill_map, shortened, token_map

SENTENCES = ("The old woman sees a small dog.", "The dog sleeps.")
MAX_TOKENS = 24
LONGEST_LABEL = 9
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


def post_norm_layer(x: Tensor, w: Mapping, *, n_heads: int, visible: Tensor | None, activation: str) -> Tensor:
    """The layer as the notes print it: LN(X + MHA(X)), then LN(X + FFN(X))."""
    attended, _ = by_hand.multi_head_attention(x, x, by_hand.part(w, "self_attn"), n_heads=n_heads, visible=visible)
    x = by_hand.layer_norm(x + attended, by_hand.part(w, "self_attn_layer_norm"))
    x = x + by_hand.feed_forward(x, w, activation=activation)
    return by_hand.layer_norm(x, by_hand.part(w, "final_layer_norm"))


def _layers(x: Tensor, weights: Mapping, mask: Tensor, config: Any, *, post_norm: bool) -> list[Tensor]:
    """Return the states before the first layer and after each."""
    states = [x]
    options = {
        "n_heads": config.encoder_attention_heads,
        "visible": mask[:, None, None, :],
        "activation": config.activation_function,
    }
    for layer in range(config.encoder_layers):
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

    def from_layers(x: Tensor, *, post_norm: bool) -> Tensor:
        return by_hand.layer_norm(_layers(x, weights, mask, config, post_norm=post_norm)[-1], final)

    with torch.no_grad():
        theirs = model.model.encoder(input_ids=ids, attention_mask=mask).last_hidden_state
        found = {
            "nothing": right.output,
            "key biases to 0": output(without("k_proj.bias")),
            "value biases to 0": output(without("v_proj.bias")),
            "padding mask off": output(mask=None),
            "position offset 0": output(weights | {positions: weights[positions].roll(2, 0)}),
            "embedding not scaled": output(config=unscaled),
            "no embedding LayerNorm": from_layers(raw, post_norm=False),
            "no final LayerNorm": right.states[-1],
            "LayerNorm after, not before": from_layers(right.states[0], post_norm=True),
        }
    return {name: relative_gap(states[mask], theirs[mask]) for name, states in found.items()}


@lesson.figure(
    "Same weights, same sentence: who computes what the library computes?",
    "state of the encoder",
    "largest gap / largest entry",
    size=(7.0, 4.0),
    legend="center right",
    yscale="log",
    ylim=(1e-10, 1e3),
)
def plot_question(axes):
    """Draw how far two sets of equations are from the library, after each layer of the encoder."""
    model, _ = course_model()
    weights, config = model.state_dict(), model.config
    ids, mask = token_ids(SENTENCES[0])
    with torch.no_grad():
        theirs = model.model.encoder(input_ids=ids, attention_mask=mask, output_hidden_states=True).hidden_states
    ours = by_hand.encoder(weights, ids, mask, config=config)
    printed, corrected = (
        [max(relative_gap(a, b), 1e-9) for a, b in zip(states, theirs, strict=True)]
        for states in (notes_encoder(weights, ids, mask, config=config), [*ours.states[:-1], ours.output])
    )
    lines(axes, None, {"this lesson's equations": corrected, "the notes' equations": printed}, marker="o")
    names = ["embedding", *(f"layer {i}" for i in range(1, len(theirs) - 1)), "output"]
    axes.set_xticks(range(len(names)), names, rotation=90 if len(names) > 8 else 0)
    return (
        "Largest difference from transformers' states, as a share of their largest entry, on a logarithmic axis, from the "
        f"embedding to the encoder's output. With the equations of the notes it is {min(printed):.1g} "
        f"or more everywhere. With those of this lesson it is {'less' if max(corrected) < 1e-5 else 'more'} than 0.00001: "
        "rounding."
    )


# The parts of both stacks from below: what it is, its equation, and whether it belongs to a layer.
ENCODER_PARTS = (
    ("embedding + position, LN", "26.9", False),
    ("LN, self-attention", "26.6", True),
    ("LN, feed-forward", "26.8", True),
    ("final LN", "26.10", False),
)
DECODER_PARTS = (
    ("embedding + position, LN", "26.9", False),
    ("LN, causal self-attention", "26.11", True),
    ("LN, cross-attention", "26.12", True),
    ("LN, feed-forward", "26.12", True),
    ("final LN", "26.12", False),
    ("times embedding table", "26.14", False),
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
    decoder = _stack(axes, 6.4, "decoder", DECODER_PARTS, "tokens moved right by one (26.13)")
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
        "The parts of mBART. Left the encoder, from below: embedding, position and LayerNorm; L layers, each with "
        "self-attention and a feed-forward network; a final LayerNorm. Right the decoder: the same with causal "
        "self-attention, and in each layer cross-attention between the two sublayers, whose keys and values come from "
        "the encoder's output; above the final LayerNorm the product with the embedding table. In every sublayer the "
        "LayerNorm stands before it, and a path leads around both to an addition."
    )


@lesson.figure(
    "All ingredients count, but one: the key biases",
    "largest gap from the library / largest entry",
    "what is changed",
    xscale="log",
)
def plot_ingredients(axes):
    """Draw how far the encoder's output moves when one ingredient is changed."""
    gaps = ingredients()
    places, values = np.arange(len(gaps)), np.fmax(list(gaps.values()), 1e-9)
    axes.hlines(places, 1e-9, values, color=BLACK, linewidth=1, linestyles=":")
    axes.plot(values, places, "o", color=BLUE, markersize=8)
    axes.set_yticks(places, list(gaps))
    axes.set_xlim(1e-9, 10 * values.max())
    axes.invert_yaxis()
    said = [f"{name}: {f'{gap:.0e}' if gap > 1e-5 else 'rounding'}" for name, gap in gaps.items()]
    return (
        "How far the encoder's output is from transformers' when one thing is changed, on a logarithmic axis: "
        f"{'; '.join(said)}."
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


@lesson.figure(
    ["Encoder: states that move (blue)", "Decoder: states that move (blue)"],
    "position",
    "state",
    size=(9.4, 4.4),
    grid=(1, 2),
)
def plot_changes(left, right):
    """Draw which states move when one token of the input is changed."""
    change = one_changed_token()
    colors = matplotlib.colors.ListedColormap(["white", BLUE])
    for axes, moved, tokens in zip((left, right), (change.encoder, change.decoder), change.tokens, strict=True):
        axes.grid(visible=False)
        axes.imshow(moved, cmap=colors, vmin=0, vmax=1, aspect="auto", origin="lower", alpha=0.75)
        labels = [shortened(token, LONGEST_LABEL) for token in tokens]
        axes.set_xticks(np.arange(len(tokens)), labels, rotation=90, parse_math=False)
        axes.set_yticks(range(len(moved)), ["embedding", *(f"layer {i}" for i in range(1, len(moved) - 1)), "output"])
        axes.set_xticks(np.arange(-0.5, len(tokens)), minor=True)
        axes.set_yticks(np.arange(-0.5, len(moved)), minor=True)
        axes.grid(which="minor", color="0.6", linewidth=0.6)
        axes.tick_params(which="minor", length=0)
        axes.axvline(change.position, color=ORANGE, linewidth=2, linestyle="--")
    return (
        f"Which states move when the token at position {change.position + 1}, marked by a dashed line, is replaced. "
        "Encoder: in the embedding only that position, from layer 1 on all positions. Decoder: in the embedding only that "
        "position, from layer 1 on that position and all later ones; earlier positions never move."
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
    both = torch.cat([ids, torch.full_like(ids, tokenizer.pad_token_id)], dim=1)
    mask = torch.arange(both.shape[1])[None] < ids.shape[1]
    states = by_hand.encoder(model.state_dict(), both, mask, config=model.config).output
    return Padded(states[0].norm(dim=-1).numpy(), mask[0].numpy())


@lesson.figure(
    "Pads have states, too", "position", "length of the output state", legend={"loc": "upper right", "ncols": 2}
)
def plot_padding(axes):
    """Draw the lengths of the output states at tokens and at pads."""
    lengths, real = padded_states()
    places = np.arange(1, len(lengths) + 1)
    axes.plot(places[real], lengths[real], "o", color=BLUE, markersize=8, label="token")
    axes.plot(places[~real], lengths[~real], "s", color=RED, markersize=8, fillstyle="none", label="pad")
    axes.set_ylim(0, 1.35 * lengths.max())
    return (
        f"Length of the encoder's output state at each of {len(lengths)} positions. The tokens' states have lengths from "
        f"{lengths[real].min():.1f} to {lengths[real].max():.1f}, those of the pads from {lengths[~real].min():.1f} to "
        f"{lengths[~real].max():.1f}: none is near 0."
    )


class Reading(NamedTuple):
    """One sentence read by the model: its tokens on both sides and all attention weights, or why there are none."""

    problem: str
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    weights: Mapping[str, np.ndarray] | None = None
    unknown: int = 0


SIDES = ("encoder self", "decoder self", "decoder to encoder")
LAYERS, HEADS = sizes()


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


@lesson.explorer
class AttentionExplorer(Explorer):
    """The attention weights of every head, for a sentence that the learner types."""

    title = "Where every head looks"
    summary = (
        "A map of attention weights: each row is one token and shows how its attention is spread over the columns; the "
        "darker, the more. The box marks the strongest link. Grey cells may not be seen."
    )
    layer = Slider("layer", "l", "1 is the layer right after the embedding", min(2, LAYERS), 1, LAYERS, 1)
    head = Slider("head", "h", "The heads of one layer look in parallel", 1, 1, HEADS, 1)
    side = Choice("attention", "Which of the three attentions of an encoder-decoder model", SIDES[0], SIDES)
    language = Choice("language", "The code that is put before the sentence", "en_XX", LANGUAGES)
    together = ("layer", "head")
    sentence = TextBox("sentence", f"Up to {MAX_TOKENS} tokens; press Enter", SENTENCES[0], "La petite fille dort ici.")
    size = (7.9, 5.6)
    layout = panels("One head's attention: every row sums to 1")

    def compute(self, *, layer, head, side, language, sentence):
        """Return the weights of one head with the tokens of rows and columns, and their strongest link."""
        reading = read(sentence, language)
        state = {"layer": layer, "head": head, "side": side, "problem": reading.problem, "unknown": reading.unknown}
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


changed_token_prediction = lesson.prediction(
    "26.P1",
    "One token in the middle of the decoder's input is replaced by another; the encoder's input stays. Which of the "
    "decoder's output states change?",
    {
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


def _what_pads_hold() -> dict[str, str]:
    lengths, real = padded_states()
    pads = (
        f"here they are {lengths[~real].mean() / lengths[real].mean():.1f} times as long as those of tokens, on average"
    )
    return {
        "zeros": "The mask keeps others from looking at a pad. The pad itself still looks at the tokens and passes "
        f"through every layer and the final LayerNorm; {pads}.",
        "vectors like any others": "The mask keeps others from looking at a pad, nothing else. The final LayerNorm "
        f"gives every position entries of mean 0 and variance 1 before its gain and bias; {pads}. A plain mean counts "
        "them.",
        "a copy of the last token's state": "A pad has its own embedding and its own position, so that its state is its "
        f"own; {pads}.",
    }


padding_prediction = lesson.prediction(
    "26.P2",
    "A sentence is padded to twice its length and the padding mask is given to the encoder. What does its output hold "
    "at the pads?",
    _what_pads_hold,
    answer="vectors like any others",
    reveal=plot_padding,
)

FIGURES = lesson.figures
