"""Exercises of lesson 34, inside_mbart."""

import math

import torch
from torch.nn.functional import gelu, layer_norm, scaled_dot_product_attention

from course_lib.lessons.inside_mbart.contents import lesson
from course_lib.teaching import edit, inputs, normal, whole


def _two_key_output(scores, values):
    weights = torch.softmax(torch.tensor(scores, dtype=torch.float64) / 2, dim=0)
    return float(weights @ torch.tensor(values, dtype=torch.float64))


lesson.value(
    "34.1", "One head, one query", difficulty=1, minutes=4,
    prompt="A head of width $d_h = 4$ compares one query with three keys: $q \\cdot k_1 = 2 \\ln 3$, $q \\cdot k_2 = 0$, "
    "$q \\cdot k_3 = 4 \\ln 2$. The third key belongs to a pad. With the values 4, 8 and 100 (one number for each key), "
    "what is the head's output for this query?",
    answer=5.0,
    same=lambda one, other: abs(one - other) < 0.01,
    properties=[
        ("It should be the mean of the values under the weights of the two keys that count.",
         lambda answer: abs(answer - _two_key_output([2 * math.log(3), 0.0], [4.0, 8.0])) < 1e-3),
    ],
    hints=(
        "Which keys take part in the softmax at all?",
        "Divide the scores by the square root of the head's width before the exponential.",
        "The exponentials of the two scores that are left are whole numbers.",
    ),
    mistakes=[
        ("no scale", 4.4, "You left out the division by √d_h = 2: the exponentials are then 9 and 1."),
        ("scale d_h", (4 * 3**0.5 + 8) / (3**0.5 + 1), "You divided by d_h = 4; it is the square root, 2."),
        ("pad seen", 52.5, "You let the query see the pad, whose exponential is 4. Its weight must be 0."),
        ("pad scored 0", 24.0,
         "You gave the pad the score 0, and e⁰ = 1 is a share like any other. Its score must be minus infinity."),
        ("not normalised", 20.0, "You added up exponential times value; the weights must sum to 1."),
        ("plain mean", 6.0, "That is the plain mean of the two values. The first key has three times the "
         "second one's weight."),
        ("scores for exponentials", 4.0,
         "You used the scores themselves as weights. The softmax takes their exponentials, and e⁰ is 1, not 0."),
        ("weights exchanged", 7.0, "Your weights are exchanged: the key with the higher score gets the larger one."),
        ("plain mean over three", 112 / 3, "That is the plain mean of all three values. Weights come from the scores, and "
         "the pad gets none."),
    ],
)


def _layer_by_loop(x, a, w_v, w_o, w_1, w_2):
    def norm(row):
        centred = row - row.mean()
        return centred / (centred.square().mean() + 1e-5).sqrt()

    read = torch.stack([norm(row) @ w_v for row in x])
    middle = torch.stack([row + sum(w * r for w, r in zip(weights, read, strict=True)) @ w_o
                          for row, weights in zip(x, a, strict=True)])
    return torch.stack([row + gelu(norm(row) @ w_1) @ w_2 for row in middle])


@lesson.exercise(
    "34.2", "A layer in a few lines", difficulty=2, minutes=10,
    prompt="Write `encoder_layer(x, a, w_v, w_o, w_1, w_2)`: the states after one encoder layer of mBART, (34.6) and "
    "(34.8), with one head, no biases, and no gain in LN. `x` has shape `(T, d)`; the attention weights `a`, shape "
    "`(T, T)`, are given. `w_v`, shape `(d, d_h)`, is $W^V$ of (34.1), `w_o`, shape `(d_h, d)`, is $W^O$ of (34.3), and "
    "`w_1`, `w_2` are those of (34.7). For LN (34.5) use `layer_norm(x, x.shape[-1:])`, for $\\phi$ use `gelu`, both from "
    "`torch.nn.functional`. Return shape `(T, d)`.",
    draw=inputs(
        tokens=whole(2, 3), logits=normal("tokens tokens", digits=2),
        a=lambda logits: logits.softmax(dim=-1).round(decimals=2), x=normal("tokens 3", digits=1),
        w_v=normal("3 2", digits=1), w_o=normal("2 3", digits=1), w_1=normal("3 2", digits=1), w_2=normal("2 3", digits=1),
    ),
    properties=[
        ("It should be what the two equations give.",
         lambda x, a, w_v, w_o, w_1, w_2, answer: torch.allclose(
             answer, _layer_by_loop(x, a, w_v, w_o, w_1, w_2), atol=1e-7)),
    ],
    hints=(
        "Two sublayers, and both have the same form: the state, plus what a function makes of its LayerNorm.",
        "The first sublayer reads a LayerNorm of x; with given weights the head is weights times values, then w_o.",
        "The second sublayer reads the LayerNorm of what the first one left, not of x, and is added to that.",
    ),
    mistakes=[
        ("norm after", lambda x, a, w_v, w_o, w_1, w_2: (
            lambda y: layer_norm(y + gelu(y @ w_1) @ w_2, y.shape[-1:])
        )(layer_norm(x + a @ x @ w_v @ w_o, x.shape[-1:])),
         "Your LayerNorm stands after each sublayer. In mBART it stands before, and what is added is never normalised."),
        ("no residual", edit("x = x + a @", "x = a @", "return x + gelu", "return gelu"),
         "You left out the state itself: each sublayer adds to what was there."),
        ("first residual lost", edit("x = x + a @", "x = a @"),
         "The first sublayer replaced the state. It is added to it."),
        ("second residual lost", edit("return x + gelu", "return gelu"),
         "You returned what the feed-forward network writes. It is added to the state."),
        ("no LayerNorm", edit("a @ layer_norm(x, x.shape[-1:])", "a @ x", "gelu(layer_norm(x, x.shape[-1:]) @ w_1)",
                              "gelu(x @ w_1)"),
         "Neither sublayer normalises what it reads."),
        ("no second LayerNorm", edit("gelu(layer_norm(x, x.shape[-1:]) @ w_1)", "gelu(x @ w_1)"),
         "The feed-forward network reads the state as it is. It should read its LayerNorm."),
        ("no first LayerNorm", edit("a @ layer_norm(x, x.shape[-1:])", "a @ x"),
         "Attention reads the state as it is. It should read its LayerNorm."),
        ("norm kept in the sum", edit("x = x + a @ layer_norm(x, x.shape[-1:])",
                                      "x = layer_norm(x, x.shape[-1:])\n    x = x + a @ x"),
         "You added to the normalised state. The LayerNorm is only for what the sublayer reads."),
        ("side by side", edit("x = x + a @", "old = x\n    x = x + a @", "gelu(layer_norm(x, x.shape[-1:])",
                              "gelu(layer_norm(old, x.shape[-1:])"),
         "Your feed-forward network reads x. It should read the state after attention."),
        ("no attention", edit("a @ layer_norm", "layer_norm"),
         "Each token reads only itself: you left out the attention weights."),
        ("weights transposed", edit("a @", "a.T @"),
         "You used the weights transposed. Row i of them belongs to query i, and so to row i of the result."),
        ("no activation", edit("gelu(layer_norm(x, x.shape[-1:]) @ w_1)", "(layer_norm(x, x.shape[-1:]) @ w_1)"),
         "You left out gelu: two matrices in a row are one matrix."),
        ("relu", edit("gelu(layer_norm(x, x.shape[-1:]) @ w_1)", "(layer_norm(x, x.shape[-1:]) @ w_1).relu()"),
         "You used relu. mBART's activation is gelu."),
        ("LayerNorm over the tokens", edit("a @ layer_norm(x, x.shape[-1:])", "a @ layer_norm(x, x.shape)",
              "gelu(layer_norm(x, x.shape[-1:])", "gelu(layer_norm(x, x.shape)"),
         "You normalised all states together. LayerNorm takes each state by itself."),
    ],
)
def encoder_layer(x, a, w_v, w_o, w_1, w_2):
    """One pre-norm encoder layer with given attention weights."""
    x = x + a @ layer_norm(x, x.shape[-1:]) @ w_v @ w_o
    return x + gelu(layer_norm(x, x.shape[-1:]) @ w_1) @ w_2


def _placements(x1, x2):
    """Second minus first entry, whose sign is LN's result in two dimensions: post-norm, pre-norm with a final norm."""
    x1, x2 = float(x1), float(x2)
    return x2 + x1 - x1, x2 + (1.0 if x1 > x2 else -1.0) - x1


def _tie(x1, x2):
    return x1 == x2 or 0.0 in _placements(x1, x2)


def _opposite(x1, x2):
    post, pre = _placements(x1, x2)
    return not _tie(x1, x2) and (post > 0) != (pre > 0)


lesson.flaw(
    "34.3", "A matter of taste?", difficulty=2, minutes=8,
    prompt="Someone says: “Where the LayerNorm stands is a matter of taste. Pre-norm ends with a final LayerNorm, so that "
    "$\\mathrm{LN}(x + f(\\mathrm{LN}(x)))$ is the same as the post-norm $\\mathrm{LN}(x + f(x))$.” Take two dimensions, no "
    "gain, no bias, $\\epsilon = 0$, and the sublayer $f(z) = (0, z_1)$, which copies the first entry to the second place. "
    "Give a state $x$, a dictionary with the numbers `x1` and `x2`, for which the two results are opposite: $(-1, 1)$ and "
    "$(1, -1)$.",
    answer={"x1": 3.0, "x2": 1.0},
    properties=[("For your x both give the same, or one of them divides 0 by 0.", _opposite)],
    hints=(
        "In two dimensions LN says only which entry is larger: (-1, 1) if it is the second.",
        "Post-norm compares x1 with x2 + x1. Pre-norm adds not x1 but the first entry of LN(x), which is 1 or -1.",
        "Take a large x1 and a small positive x2: what is added in one case, and what in the other?",
    ),
    mistakes=[
        ("a tie", {"x1": 2.0, "x2": 2.0},
         "Two equal entries have variance 0 somewhere on the way, and LN divides 0 by 0. Keep all entries apart.", _tie),
        ("both negative", {"x1": -3.0, "x2": -2.5},
         "Both copies lower the second entry, by |x1| in post-norm and by 1 in pre-norm, and here either is enough to make "
         "it the smaller one.",
         lambda x1, x2: not _opposite(x1, x2) and x1 < x2 < 0),
        ("second entry negative", {"x1": 3.0, "x2": -1.0},
         "With x2 below 0 and x1 above it, both leave the second entry the smaller one: nothing that is added makes up for "
         "it.",
         lambda x1, x2: not _opposite(x1, x2) and x2 < 0 and x1 > x2),
        ("second entry larger", {"x1": 1.0, "x2": 3.0},
         "The second entry is so far ahead that neither copy changes which one is larger.",
         lambda x1, x2: not _opposite(x1, x2) and x2 > max(x1, 0)),
        ("too close", {"x1": 1.5, "x2": 1.0},
         "Here the 1 that pre-norm adds is enough to lift the second entry above the first, as x1 does in post-norm.",
         lambda x1, x2: not _opposite(x1, x2) and 0 < x2 < x1),
    ],
)

def _weights_by_loop(scores, real):
    weights = torch.zeros_like(scores)
    for i in range(len(scores)):
        keys = [j for j in range(i + 1) if real[j]]
        total = sum(scores[i, j].exp() for j in keys)
        for j in keys:
            weights[i, j] = scores[i, j].exp() / total
    return weights


@lesson.exercise(
    "34.4", "What the decoder may see", difficulty=1, minutes=8,
    prompt="Write `decoder_attention(scores, real)`: the attention weights of a decoder's self-attention. `scores` has "
    "shape `(T, T)`, row $i$ for query $i$; `real` is boolean of shape `(T,)`, True for tokens and False for pads, which "
    "stand on the right. Return the weights, shape `(T, T)`.",
    draw=inputs(
        tokens=whole(3, 4), scores=normal("tokens tokens", digits=2),
        real=lambda tokens, generator: torch.arange(tokens) <= torch.randint(tokens, (), generator=generator),
    ),
    properties=[
        ("Row i should be the softmax over the tokens j ≤ i that are no pads, and 0 elsewhere.",
         lambda scores, real, answer: torch.allclose(answer, _weights_by_loop(scores, real), atol=1e-9)),
    ],
    hints=(
        "Two conditions must hold for query i to see key j. Which?",
        "`torch.ones_like(scores).tril().bool()` is one of them; `&` joins it with the other, which broadcasts over rows.",
        "Put minus infinity where a key may not be seen (`masked_fill`), and only then take the softmax over the keys.",
    ),
    mistakes=[
        ("future seen", edit("torch.ones_like(scores).tril().bool() & real", "real"),
         "Your queries see later tokens. That is the encoder's attention; the decoder's is causal."),
        ("pads seen", edit(" & real", ""),
         "The causal mask is there, but later rows still see pads: use `real`, too."),
        ("masked after the softmax", edit("scores.masked_fill(~visible, -torch.inf), dim=-1)", "scores, dim=-1) * visible"),
         "You masked after the softmax: the rows no longer sum to 1. Mask the scores."),
        # A column in which nothing is visible has to stay finite.
        ("softmax over queries", edit("-torch.inf", "-1e9", "dim=-1", "dim=0"),
         "You took the softmax over the queries (dim 0). Each row, over its keys, must sum to 1."),
        ("zero for minus infinity", edit("-torch.inf", "0"),
         "You set the hidden scores to 0. The softmax turns 0 into a positive weight; minus infinity gives 0."),
        ("softmax down the columns", edit("dim=-1", "dim=0"),
         "You took the softmax down the columns, over the queries, and a column that no query sees becomes NaN. Each row, "
         "over its keys, must sum to 1."),
        ("mask inverted", edit("~visible", "visible"),
         "Your mask is inverted: it hides what should be seen. `masked_fill` fills where its mask is True."),
        ("own token hidden", edit("tril()", "tril(-1)"),
         "Your triangle leaves out the diagonal, so the first row sees nothing. A query may see its own token."),
        ("rows of pads hidden", edit(" & real", " & real[:, None]"),
         "You hid the rows of the pads. The mask is about keys: no query may see a pad's column."),
        ("upper triangle", edit("tril()", "triu()"),
         "Your triangle points the wrong way: row i may see the keys j ≤ i, below the diagonal."),
    ],
)
def decoder_attention(scores, real):
    """Weights of causal attention over a sentence whose pads are masked."""
    visible = torch.ones_like(scores).tril().bool() & real
    return torch.softmax(scores.masked_fill(~visible, -torch.inf), dim=-1)


def _cross_by_library(decoder_states, encoder_output, w_q, w_k, w_v):
    centred = decoder_states - decoder_states.mean(1, keepdim=True)
    normed = centred / (centred.square().mean(1, keepdim=True) + 1e-5).sqrt()
    return scaled_dot_product_attention(*(t[None] for t in (normed @ w_q, encoder_output @ w_k, encoder_output @ w_v)))[0]


@lesson.exercise(
    "34.5", "The decoder asks the encoder", difficulty=2, minutes=12,
    prompt="Write `cross_attention_head(decoder_states, encoder_output, w_q, w_k, w_v)`: the output of one head of mBART's "
    "cross-attention, without biases. `decoder_states`, shape `(T', d)`, come from the residual stream of the decoder; "
    "`encoder_output`, shape `(T, d)`, has passed the encoder's final LayerNorm. The weights have shape `(d, head_dim)`. "
    "Where a LayerNorm is missing, use `torch.nn.functional.layer_norm(x, x.shape[-1:])`. Return shape `(T', head_dim)`.",
    draw=inputs(
        queries=whole(2, 3), keys=whole(2, 3), centred=normal("queries 3", digits=1),
        decoder_states=lambda centred: centred + 1, encoder_output=normal("keys 3", digits=1),
        w_q=normal("3 2", digits=1), w_k=normal("3 2", digits=1), w_v=normal("3 2", digits=1),
    ),
    properties=[
        ("The output should be what scaled_dot_product_attention gives for the same queries, keys and values.",
         lambda decoder_states, encoder_output, w_q, w_k, w_v, answer: torch.allclose(
             answer, _cross_by_library(decoder_states, encoder_output, w_q, w_k, w_v), atol=1e-7)),
    ],
    hints=(
        "Queries come from one side, keys and values from the other. Which of the two is not yet normalised?",
        "mBART is pre-norm: the sublayer reads the LayerNorm of the decoder's states.",
        "Scores have shape (T', T) and are divided by the square root of the head's width; the softmax runs over T.",
    ),
    mistakes=[
        ("no LayerNorm", edit("layer_norm(decoder_states, decoder_states.shape[-1:])", "decoder_states"),
         "You used the decoder's states as they are. The sublayer reads their LayerNorm."),
        ("normalised twice",
         edit("normed =", "encoder_output = layer_norm(encoder_output, encoder_output.shape[-1:])\n    normed ="),
         "You normalised the encoder's output again. It has its final LayerNorm already, and every decoder layer reads it "
         "as it is."),
        ("sides exchanged", edit("(normed @ w_q) @ (encoder_output @ w_k)", "(encoder_output @ w_q) @ (normed @ w_k)",
                                 "encoder_output @ w_v", "normed @ w_v"),
         "You exchanged the sides: the decoder asks (queries), the encoder's output answers (keys and values)."),
        ("no scale", edit(" / w_q.shape[1] ** 0.5", ""),
         "The scores are not divided by the square root of the head's width."),
        ("no square root", edit(" ** 0.5", ""), "You divided by the head's width. It is its square root."),
        ("scale of the model", edit("w_q.shape[1]", "w_q.shape[0]"),
         "You divided by √d of the model. The vectors that are compared have the head's width."),
        ("LayerNorm on the other side",
         edit("normed = layer_norm(decoder_states, decoder_states.shape[-1:])",
              "normed, encoder_output = decoder_states, layer_norm(encoder_output, encoder_output.shape[-1:])"),
         "Your LayerNorm stands on the wrong side: the encoder's output has passed its own, the decoder's states have not."),
        ("softmax over queries", edit("dim=-1", "dim=0"),
         "You took the softmax over the queries (dim 0). Each query's weights, over the keys, sum to 1."),
        ("self-attention", edit("(encoder_output @ w_k)", "(normed @ w_k)", "(encoder_output @ w_v)", "(normed @ w_v)"),
         "Your keys and values come from the decoder: that is self-attention. In cross-attention they come from the "
         "encoder's output."),
        ("LayerNorm over the tokens", edit("layer_norm(decoder_states, decoder_states.shape[-1:])",
                                           "layer_norm(decoder_states, decoder_states.shape)"),
         "You normalised all states together. LayerNorm takes each state, each row, by itself."),
        ("weights for values", edit(" @ (encoder_output @ w_v)", ""),
         "You returned the attention weights. They still have to be multiplied by the values."),
    ],
)
def cross_attention_head(decoder_states, encoder_output, w_q, w_k, w_v):
    """One head of cross-attention in a pre-norm decoder."""
    normed = layer_norm(decoder_states, decoder_states.shape[-1:])
    scores = (normed @ w_q) @ (encoder_output @ w_k).T / w_q.shape[1] ** 0.5
    return torch.softmax(scores, dim=-1) @ (encoder_output @ w_v)


EXERCISES = lesson.exercises
