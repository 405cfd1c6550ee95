"""Figures, explorer and predictions of lesson 21, transformer circuits."""

import math
from functools import cache

import numpy as np
import torch
from IPython.display import Markdown
from torch import Tensor

from course_lib.lessons.transformer_circuits.contents import lesson
from course_lib.measured import quote
from course_lib.representation.attention_only import (
    AttentionOnly,
    planted_induction,
    repeat_loss,
    repeated_sequences,
)
from course_lib.representation.circuits import MODES, Heads, composition_scores
from course_lib.representation.head_scores import (
    Recording,
    matching_score,
    offset_score,
    read_heads,
    record,
    replaced,
)
from course_lib.teaching import Choice, Explorer, Slider, lines, markdown_table, panels
from course_lib.teaching.style import BLACK, BLUE, GREEN, ORANGE, RED

GREY, PALE = "0.55", "0.88"

# A pair that is put in by hand

PREVIOUS, INDUCTION = 1, 6  # heads 0.1 and 1.2 of two layers of four


@cache
def planted(hidden: bool = False) -> AttentionOnly:
    """Return the planted pair among random heads; where it is `hidden`, a random rotation mixes the stream."""
    return planted_induction(generator=torch.Generator().manual_seed(5), hidden=hidden)


def planted_sequences(count: int = 128) -> tuple[Tensor, Tensor]:
    """Return sequences of 8 tokens that repeat after 6 to 8, and which tokens can be known."""
    generator = torch.Generator().manual_seed(1)
    return repeated_sequences(count, 16, vocabulary=8, periods=range(6, 9), generator=generator)


# A pair that forms

PERIODS, STEPS, EVERY = range(12, 21), 250, 10


@cache
def held_out() -> tuple[Tensor, Tensor]:
    """Return 256 sequences of 25 tokens of 32, which repeat after 12 to 20, and which tokens can be known."""
    generator = torch.Generator().manual_seed(1000)
    return repeated_sequences(256, 25, vocabulary=32, periods=PERIODS, generator=generator)


def head_table(model: torch.nn.Module, count: int = 256) -> tuple[float, Tensor, Tensor]:
    """Return the loss on `count` held-out sequences, and the previous-token and induction scores of all heads.

    The previous-token score is that of the first 12 places, which every sequence comes back to.
    """
    tokens, known = (part[:count] for part in held_out())
    seen = record(model, read_heads(model), tokens[:, :-1])
    before = torch.stack([offset_score(p[:, :12, :12], -1) for p in seen.patterns])
    after = torch.stack([matching_score(p, tokens[:, :-1], tokens[:, :-1]) for p in seen.patterns])
    return float(repeat_loss(seen.output, tokens, known)), before, after


@cache
def trained(seed: int, n_layers: int) -> tuple[AttentionOnly, np.ndarray]:
    """Train an attention-only transformer; return it, and (step, loss, best previous, best induction) every 10 steps."""
    generator = torch.Generator().manual_seed(seed)
    model = AttentionOnly(vocabulary=32, max_tokens=24, d_model=64, n_layers=n_layers, generator=generator)
    adam, curve = torch.optim.Adam(model.parameters(), lr=5e-3, betas=(0.9, 0.99)), []
    for step in range(STEPS + 1):
        if step % EVERY == 0:
            loss, before, after = head_table(model, 64)
            curve.append((step, loss, float(before[:4].max()), float(after.max())))
        tokens, known = repeated_sequences(32, 25, vocabulary=32, periods=PERIODS, generator=generator)
        adam.zero_grad()
        repeat_loss(model(tokens[:, :-1]), tokens, known).backward()
        adam.step()
    return model.requires_grad_(False), np.array(curve)


def loss_without(model: AttentionOnly, chosen: list[int], sequences: tuple[Tensor, Tensor] | None = None) -> float:
    """Return the loss with the results of some heads replaced by their means over all sequences and places."""
    tokens, known = sequences or held_out()
    heads = read_heads(model)
    seen = record(model, heads, tokens[:, :-1])
    with torch.no_grad(), replaced(model, heads, {i: seen.results[i].mean((0, 1)) for i in chosen}):
        return float(repeat_loss(model(tokens[:, :-1]), tokens, known))


@lesson.figure("Tokens that repeat, and two small transformers", "training step", "held-out loss (nats)",
               size=(7.2, 3.8), legend="center right", ylim=(0, 5))  # fmt: skip
def plot_question(axes):
    """Draw the held-out losses of one layer and of two."""
    for place, n_layers in enumerate((1, 2)):
        curve = trained(2, n_layers)[1]
        lines(axes, curve[:, 0], {f"{n_layers} layer{'s' * (n_layers > 1)} of attention": curve[:, 1]}, first=place)
    axes.axhline(math.log(32), color=GREY, linewidth=1, linestyle=":", label="a guess among 32 tokens")
    return (
        "The loss on new repeated sequences against training steps, for one layer and two layers of attention. Both start "
        "above 4 and come to about 3.4, the loss of a guess among 32 tokens, dotted. One layer then falls slowly, to about "
        "2.3 at the end. Two layers fall from 3.2 at step 50 to below 0.2 at step 150."
    )


@lesson.figure(["$W_K$", "$W_K$, turned", "$W_{QK}$", "$W_{QK}$, turned"], ["inside", "inside", "stream", "stream"],
               "stream", grid=(1, 4), size=(9.6, 3.4), legend=None,
               subplots={"width_ratios": [1, 1, 3, 3]})  # fmt: skip
def plot_basis(*axes):
    """Draw the keys' weights and the circuit of a random head, before and after a rotation inside it."""
    draw = lambda *shape: torch.randn(*shape, generator=torch.Generator().manual_seed(4))  # noqa: E731
    before = Heads.decoder(*(w[None, None] for w in (*draw(3, 24, 8), draw(8, 24))))
    turn = torch.linalg.qr(draw(8, 8)).Q
    after = before.change_basis(turn, turn)
    for one, table in zip(axes, (before.w_k, after.w_k, before.qk().matrix(), after.qk().matrix()), strict=True):
        one.imshow(table[0].numpy(), cmap="RdBu_r", vmin=-4, vmax=4, interpolation="nearest", aspect="auto")
        one.grid(False)
    return (
        "Four tables of numbers in red and blue. The weights W_K of a head, 24 by 8, look quite different after a rotation "
        "inside the head. Its circuit W_QK, 24 by 24, is the same table before and after."
    )


@lesson.figure(size=(8.0, 3.3), legend=None, bare=True, xlim=(-0.9, 8.4), ylim=(-0.7, 3.3))
def plot_pair(axes):
    """Draw which place each of the two heads reads, in a sequence in which A B comes back."""
    x = {"A": 1.0, "B": 2.3, "again": 6.0}
    for place, word in ((x["A"], "A"), (x["B"], "B"), (4.1, "..."), (x["again"], "A")):
        axes.text(place, 0, word, ha="center", va="center", fontsize=15, bbox={"boxstyle": "circle", "facecolor": PALE})
    arrow = lambda start, end, color, bend: axes.annotate(  # noqa: E731
        "", end, start, arrowprops={"arrowstyle": "-|>", "color": color, "linewidth": 2,
                                    "connectionstyle": f"arc3,rad={bend}"})  # fmt: skip
    arrow((x["A"] + 0.1, 0.45), (x["B"] - 0.05, 0.45), BLUE, -0.7)
    axes.text(0.9, 1.3, "layer 0: B's place\nstores “A before me”", color=BLUE, ha="center", va="bottom")
    arrow((x["B"] + 0.15, 0.45), (x["again"], 0.45), RED, -0.5)
    axes.text(4.5, 1.75, "layer 1: A looks for “A before me”,\nand brings B", color=RED, ha="center", va="bottom")
    arrow((x["again"] + 0.4, 0), (7.45, 0), BLACK, 0)
    axes.text(7.75, 0, "B ?", ha="center", va="center", fontsize=15)
    return (
        "The tokens A and B, others after them, and A again. An arrow of layer 0 goes from A to B, whose place stores "
        "that A "
        "came before. An arrow of layer 1 goes from B to the second A, which looks for a place with A before it and brings "
        "B. So B is predicted."
    )


def untrained(seed: int = 7) -> AttentionOnly:
    """Return what training starts from: the same sizes, random weights."""
    return AttentionOnly(vocabulary=32, max_tokens=24, d_model=64, generator=torch.Generator().manual_seed(seed))


@lesson.figure(["planted among random heads", "after training", "before training"], "composition",
               "score of a pair of heads", grid=(1, 3), legend=None, ylim=(0, 0.42), xticks=range(3),
               xlim=(-0.5, 2.5))  # fmt: skip
def plot_composition(*axes):
    """Draw the composition scores of all pairs of heads of two layers, for three models."""
    for one, model in zip(axes, (planted(hidden=True), trained(2, 2)[0], untrained()), strict=True):
        scores = composition_scores(read_heads(model))[:, :4, 4:].flatten(1)
        for m, color in enumerate((BLUE, RED, GREEN)):
            x = m + np.linspace(-0.25, 0.25, scores.shape[1])
            one.plot(x, scores[m].numpy(), "o", color=color, markersize=5, label=f"_{m}")
        one.axhline(1 / 8, color=BLACK, linewidth=1, linestyle=":", label="_random")
        one.set_xticks(range(3), MODES)
    return (
        "The Q-, K- and V-composition of the 16 pairs of a head of layer 0 and one of layer 1, as dots. Left one K score, "
        "that of the planted pair, is 0.35, the Q and V scores of that pair are 0, and all others lie near the dotted "
        "line, 1 "
        "over the square root of d_model, 0.125. In the middle, after training, most K scores lie above the line, up to "
        "about "
        "0.21, and most Q and V scores below it. Right, before training, all 48 lie close to the line."
    )


@lesson.figure(["three starts: the loss", "scores of the best heads"], "training step", ["held-out loss (nats)", "score"],
               grid=(1, 2), legend=["upper right", "center right"], ylim=[(0, 5), (0, 1.05)])  # fmt: skip
def plot_formation(left, right):
    """Draw losses of three seeds, and the best previous-token and induction scores."""
    for place, seed in enumerate((0, 1, 2)):
        curve = trained(seed, 2)[1]
        lines(left, curve[:, 0], {f"seed {seed}": curve[:, 1]}, first=place)
        for column, color, name in ((2, BLUE, "previous token, layer 0"), (3, RED, "induction, layer 1")):
            look = {"linestyle": "--" if column == 2 else "-", "color": color, "linewidth": 1 + 0.5 * place}
            right.plot(curve[:, 0], curve[:, column], label=name if seed == 2 else "_seed", **look)
    return (
        "Left the losses from three random starts: each falls slowly to about 3.2 at step 50, then to almost 0 before step "
        "160. "
        "Right the best induction score of layer 1, which rises in the same steps from 0.06 to above 0.9 in each run, and "
        "the best previous-token score of layer 0, which rises together with it from 0.2 towards 0.9."
    )


@lesson.figure("Which heads are missing", "head replaced by its mean result", "held-out loss (nats)",
               size=(8.0, 4.0), legend=None, ylim=(0, 4.4))  # fmt: skip
def plot_ablation(axes):
    """Draw the loss without each head of the trained model, and without all four of layer 1."""
    model, _ = trained(2, 2)
    names = [f"{i // 4}.{i % 4}" for i in range(8)] + ["all of\nlayer 1", "none"]
    losses = [loss_without(model, chosen) for chosen in (*([i] for i in range(8)), [4, 5, 6, 7], [])]
    axes.bar(range(10), losses, color=[BLUE] * 4 + [RED] * 4 + [ORANGE, GREY])
    for place, loss in enumerate(losses):
        axes.text(place, loss + 0.08, f"{loss:.2f}", ha="center", fontsize=9)
    axes.set_xticks(range(10), names)
    return (
        "The loss with each of the eight heads replaced by its mean, as bars. Without any one of the four heads of layer "
        "1 it "
        "stays below 0.1; without all four of them it is near 3.8, more than a guess. Without head 1 of layer 0 alone it "
        "rises to about 1.3, without another one of layer 0 it hardly changes."
    )


# The explorer


@cache
def _turning() -> Tensor:
    spin = torch.randn(16, 16, generator=torch.Generator().manual_seed(3))
    return (spin - spin.T) / 4


def measured_table() -> Markdown:
    """Return what `make bench circuits` stored of all scores of a model, against TransformerLens."""
    theirs, ours = "all_composition_scores, Q + K + V", "composition_scores"
    seconds = [quote("circuits", f"{name}: CPU seconds", ".1f", quartiles=True) for name in (theirs, ours)]
    ratio = quote("circuits", f"{ours} / {theirs}", quartiles=True)
    rows = [
        ("TransformerLens, `all_composition_scores`, three modes", seconds[0], 1),
        ("`composition_scores`, three modes", seconds[1], ratio),
    ]
    return markdown_table(("", "seconds", "over `all_composition_scores`"), rows)


@lesson.explorer
class CircuitExplorer(Explorer):
    """Turn the bases inside the heads, and look for the pair that composes."""

    title = "Turn the bases inside the heads"
    summary = (
        "Left the weights W_K of head 1.2 as a picture, blue negative, red positive. In the middle what the circuit W_QK "
        "of this head "
        "does: for each token that asks, the score of each token that a place may have stored. Right the heads of layer 0 "
        "and "
        "layer 1 as dots, with a line for each pair whose composition score exceeds the threshold: the thicker, the higher."
    )
    angle = Slider("basis turned by", "θ", "How far the basis inside each head is turned", 60, 0, 180, 5, "°")
    mode = Choice("composition", "What of the later head reads the earlier one's output", "K", MODES)
    threshold = Slider("threshold", "s", "Pairs with a lower score are not drawn", 0.15, 0.0, 0.4, 0.01)
    size = (11.6, 4.0)
    layout = panels(
        ["weights W_K of head 1.2", "its circuit W_QK", "pairs that compose"],
        ["dimension inside the head", "stored token", "layer"],
        ["stored token", "token that asks", "head"],
        grid=(1, 3),
        legend=None,
        xticks=[range(0, 16, 5), range(8), (0, 1)],
        yticks=[range(8), range(8), range(4)],
        xlim=[None, None, (-0.3, 1.3)],
        ylim=[None, None, (4.1, -0.5)],
    )

    def compute(self, *, mode, angle, threshold):
        """Return the turned weights, the circuit between tokens, and the pairs."""
        turn = torch.matrix_exp(angle / 90 * _turning())
        heads = read_heads(planted()).change_basis(turn, turn)
        circuit = planted().embedding @ heads.w_q[INDUCTION] @ heads.w_k[INDUCTION].T
        scores = composition_scores(heads)[MODES.index(mode), :4, 4:]
        shown = scores > threshold
        edges = [([0, 1], [a, b] if shown[a, b] else [a, a]) if shown[a, b] else ([0, 0], [a, a])
                 for a in range(4) for b in range(4)]  # fmt: skip
        widths = [0.6 + 12 * max(0.0, float(s) - 1 / 8) for s in scores.flatten()]
        best = int(scores.argmax())
        return {
            "weights": heads.w_k[INDUCTION, 24:32].numpy(),
            "circuit": (circuit[:, 24:32] / 4).numpy(),
            "edges": edges,
            "widths": widths,
            "bound": f"{mode}-composition above {threshold:.2f}",
            "said": (mode, angle, int(shown.sum()), best // 4, best % 4, float(scores.max()), threshold),
        }

    def draw(self, left, middle, right):
        """Draw both pictures and the graph."""
        weights = left.imshow(np.zeros((8, 16)), cmap="RdBu_r", vmin=-9, vmax=9, aspect="auto", interpolation="nearest")
        circuit = middle.imshow(np.zeros((8, 8)), cmap="RdBu_r", vmin=-20, vmax=20, interpolation="nearest")
        for axes in (left, middle):
            axes.grid(False)
        edges = [right.plot([0, 0], [0, 0], "-", color=RED, zorder=1)[0] for _ in range(16)]
        for layer in (0, 1):
            right.plot([layer] * 4, range(4), "o", color=BLUE, markersize=13, zorder=3)
        bound = right.text(0.5, 3.8, "", ha="center", va="center", fontsize=9)
        return {"weights": weights, "circuit": circuit, "edges": edges, "bound": bound}

    def update(self, artists, state):
        """Set the data, and the width of each line."""
        super().update(artists, state)
        for line, width in zip(artists["edges"], state["widths"], strict=True):
            line.set_linewidth(width)

    def words(self, state):
        """Say how many pairs are drawn, and which is the strongest."""
        mode, angle, count, a, b, score, threshold = state["said"]
        return (
            f"Bases turned by {angle}°: W_K {'as planted' if not angle else 'changed'}, W_QK the same. {count} of 16 "
            f"pairs have "
            f"{mode}-composition above {threshold:.2f}; the strongest is 0.{a} with 1.{b}, {score:.3f}."
        )


# The heads of the model that comes with the course


@cache
def course_model() -> tuple:
    """Return the shipped mBART, its tokenizer and its heads."""
    from course_lib.mbart.model import load

    model, tokenizer = load("course-mbart")
    return model, tokenizer, read_heads(model)


@cache
def copied_sentences() -> Tensor:
    """Return French sentences of one length as token rows, each once: the task is to write them again."""
    from course_lib.language.corpus import draw_meanings, render

    _, tokenizer, _ = course_model()
    texts = [render(meaning, "fr_XX").text for meaning in draw_meanings(400, seed=5, split="test")]
    ends = lambda ids: [tokenizer.lang_code_to_id["fr_XX"], *ids, tokenizer.eos_token_id]  # noqa: E731
    rows = [ends(tokenizer(text, add_special_tokens=False).input_ids) for text in texts]
    return torch.tensor([row for row in rows if len(row) == 13])


def copy_run(model: torch.nn.Module, heads: Heads) -> tuple[Recording, Tensor, Tensor]:
    """Return a recording of the model on these sentences, with the tokens that encoder and decoder read."""
    ids = copied_sentences()
    read = torch.cat([ids[:, -1:], ids[:, :-1]], dim=1)
    return record(model, heads, input_ids=ids, decoder_input_ids=read, use_cache=False), ids, read


@cache
def translation_pairs(count: int = 32) -> tuple[list[list[int]], list[list[int]]]:
    """Return held-out sentences and their translations, as token rows that begin with a language code."""
    from course_lib.language.corpus import LANGUAGES, draw_meanings, render

    _, tokenizer, _ = course_model()
    sides = ([], [])
    for i, meaning in enumerate(draw_meanings(count, seed=9, split="test")):
        for side, code in zip(sides, (LANGUAGES[i % 4], LANGUAGES[(i + 1 + i // 4 % 3) % 4]), strict=True):
            ids = tokenizer(render(meaning, code).text, add_special_tokens=False).input_ids
            side.append([tokenizer.lang_code_to_id[code], *ids, tokenizer.eos_token_id])
    return sides


def translation_loss(chosen: tuple[int, ...] = ()) -> float:
    """Return the loss in nats a token of the right translations, some heads replaced by their mean results."""
    from course_lib.mbart.translation import IGNORED, pad_rows

    model, tokenizer, heads = course_model()
    sources, targets = translation_pairs()
    ids, labels = pad_rows(sources, tokenizer.pad_token_id), pad_rows(targets, IGNORED)
    means = {i: copy_run_results()[i].mean((0, 1)) for i in chosen}
    with torch.no_grad(), replaced(model, heads, means):
        return float(model(input_ids=ids, attention_mask=ids != tokenizer.pad_token_id, labels=labels).loss)


@cache
def copy_run_results() -> list[Tensor]:
    """Return the results of all heads of the shipped model on the sentences to be copied."""
    model, _, heads = course_model()
    return copy_run(model, heads)[0].results


@lesson.figure("Heads of the decoder: the pattern, and what it is worth", "weight on the previous token",
               "translation loss without the head (nats)", size=(7.2, 4.2), legend=None, xlim=(0, 0.6),
               ylim=(0, 0.3))  # fmt: skip
def plot_names(axes):
    """Draw the loss without each self-attention head of the decoder against its previous-token score."""
    model, _, heads = course_model()
    seen, base = copy_run(model, heads)[0], translation_loss()
    for i in heads.where("decoder"):
        score, loss = float(offset_score(seen.patterns[i], -1)), translation_loss((i,))
        axes.plot(score, loss, "o", color=RED if score > 0.4 else BLUE, markersize=8, label="_head")
        if score > 0.4 or loss > base + 0.04:
            axes.annotate(heads.name(i), (score, loss), (6, 6), textcoords="offset points", fontsize=9)
    axes.axhline(base, color=GREY, linestyle=":", label="_none")
    return (
        "The translation loss of the shipped model without one self-attention head of the decoder, against that head's "
        "weight "
        "on the previous token. The head 1.2 has by far the largest weight, about 0.48, and the loss without it lies on "
        "the "
        "dotted line of the whole model. The loss rises most without head 0.1, whose weight is 0.31."
    )


# Predictions

basis_prediction = lesson.prediction(
    "21.P1",
    "Inside one head, the 64 query and key dimensions are turned by a random rotation, the same for $W_Q$ and $W_K$, and "
    "the "
    "64 value dimensions by another one, undone in $W_O$. Nearly every weight of the head changes. What else does?",
    {
        "The pattern changes, and with it the output": "Queries and keys turn together, so all their inner products stay, "
        "and with them the pattern.",
        "The pattern stays, the output turns": "$W_O$ undoes the rotation of the values: what arrives in the stream stays.",
        "Nothing that any other part of the model can see": "Only the products $W_QW_K^\\top$ and $W_VW_O$ are seen from "
        "outside, and "
        "a basis inside the head cancels in both. The dimensions inside a head have no meaning of their own.",
    },
    answer="Nothing that any other part of the model can see",
    reveal=plot_basis,
)

ablation_prediction = lesson.prediction(
    "21.P2",
    "A trained model with two layers of four heads predicts repeated tokens with a loss below 0.1. Each of the four heads "
    "of layer 1 puts more than two thirds of its weight on the right place, the best one nearly all. Now the best one is "
    "replaced by its "
    "mean result. What is the loss?",
    {
        "About 3.5, that of a guess": "That is what happens without all four. The other three still bring the token.",
        "About a quarter of the way, 0.9": "Scores add up before the softmax: three heads still put the right token far "
        "ahead of the others.",
        "Below 0.5: hardly a change": "The other three heads still bring the right token. That a head is not missed does "
        "not "
        "show that it does nothing: take away all four, and the loss is above that of a guess.",
    },
    answer="Below 0.5: hardly a change",
    reveal=plot_ablation,
)

names_prediction = lesson.prediction(
    "21.P3",
    "Of all self-attention heads of the shipped model's decoder, head 1.2 looks most at the previous token: 48% of its "
    "weight; "
    "in a random model it is 18%. It is replaced by its mean result. What happens to the translation loss?",
    {
        "It rises more than without any other of the twelve": "A pattern says where a head looks, not whether what it "
        "brings "
        "is needed. The loss rises most without another head, 0.1.",
        "It rises, about as for the others": "It rises by less than for most of the others: a pattern says where a head "
        "looks, not whether what it brings is needed.",
        "It hardly changes": "A pattern says where a head looks, not whether what it brings is needed. It may also be that "
        "others step in: only ablating more than one head could tell.",
    },
    answer="It hardly changes",
    reveal=plot_names,
)

FIGURES = lesson.figures
