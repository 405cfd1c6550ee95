"""What learners answer to lesson 26, inside_mbart, and what its predictions must not be told."""

import torch
from torch.nn.functional import layer_norm, scaled_dot_product_attention

from course_lib.teaching import edit


def by_the_library(scores, real):
    hidden = torch.ones_like(scores).triu(1).bool() | ~real
    return scores.masked_fill(hidden, float("-inf")).softmax(-1)


def renormalised(scores, real):
    weights = scores.exp() * torch.tril(torch.ones_like(scores)) * real
    return weights / weights.sum(1, keepdim=True)


def cross_by_library(decoder_states, encoder_output, w_q, w_k, w_v):
    normed = layer_norm(decoder_states, decoder_states.shape[-1:])
    q, k, v = normed @ w_q, encoder_output @ w_k, encoder_output @ w_v
    return scaled_dot_product_attention(q[None], k[None], v[None])[0]


def self_attention(decoder_states, encoder_output, w_q, w_k, w_v):
    normed = layer_norm(decoder_states, decoder_states.shape[-1:])
    return scaled_dot_product_attention(*(t[None] for t in (normed @ w_q, normed @ w_k, normed @ w_v)))[0]


def head_by_silencing(weights, y, w_v, w_o, head):
    width = w_v.shape[1] // len(weights)
    values = torch.zeros(len(y), w_v.shape[1], dtype=y.dtype)
    values[:, head * width : (head + 1) * width] = (
        weights[head] @ (y @ w_v)[:, head * width : (head + 1) * width]
    )
    return values @ w_o


def head_by_views(weights, y, w_v, w_o, head):
    heads = len(weights)
    return weights[head] @ (y @ w_v.unflatten(1, (heads, -1))[:, head] @ w_o.unflatten(0, (heads, -1))[head])


CAUSAL = "torch.ones_like(scores).tril().bool() & real"

ANSWERS = {
    "26.1": [
        ("solved", "exact", 5.0),
        ("solved", "a whole number", 5),
        ("solved", "as a tensor", torch.tensor(5.0)),
        ("solved", "computed", (3 * 4 + 1 * 8) / 4),
        ("no scale", "exponentials 9 and 1", 4.4),
        ("scale d_h", "rounded", 5.46),
        ("pad seen", "pad with weight 4 of 8", 52.5),
        ("pad scored 0", "pad with weight 1 of 5", 24),
        ("not normalised", "sum of exponential times value", 20),
        ("plain mean", "mean of the two values", 6),
        ("scores for exponentials", "scores as weights", 4.0),
        ("weights exchanged", "weights 1/4 and 3/4", 7),
        ("plain mean over three", "mean of all values", 112 / 3),
        ("wrong", "another number", 5.2),
    ],
    "26.2": [
        ("solved", "triu and infinity", by_the_library),
        ("solved", "exponentials, normalised", renormalised),
        ("solved", "a very large negative number", edit("-torch.inf", "-1e30")),
        ("future seen", "only the padding mask", edit(CAUSAL, "real")),
        ("pads seen", "only the causal mask", edit(" & real", "")),
        ("masked after the softmax", "weights times the mask", edit(
            "scores.masked_fill(~visible, -torch.inf), dim=-1)", "scores, dim=-1) * visible")),
        ("zero for minus infinity", "scores times the mask",
         edit("scores.masked_fill(~visible, -torch.inf)", "scores * visible")),
        ("softmax over queries", "dim 0", edit("-torch.inf", "-1e9", "dim=-1", "dim=0")),
        ("softmax down the columns", "dim 0, with infinity", edit("dim=-1", "dim=0")),
        ("mask inverted", "visible masked", edit("~visible", "visible")),
        ("own token hidden", "strict triangle", edit("tril()", "tril(-1)")),
        ("rows of pads hidden", "mask on the queries", edit(" & real", " & real[:, None]")),
        ("upper triangle", "triu", edit("tril()", "triu()")),
        ("malformed", "one row", edit("return torch", "return torch.zeros(1) + 0 * scores[0] if True else torch")),
    ],
    "26.3": [
        ("solved", "the library's attention", cross_by_library),
        ("solved", "scaled queries",
         edit("(normed @ w_q) @", "(normed @ w_q) / w_q.size(1) ** 0.5 @", " / w_q.shape[1] ** 0.5", "")),
        ("solved", "softmax by hand",
         edit("torch.softmax(scores, dim=-1)", "(scores.exp() / scores.exp().sum(1, keepdim=True))")),
        ("no LayerNorm", "states as they are",
         edit("layer_norm(decoder_states, decoder_states.shape[-1:])", "decoder_states")),
        ("LayerNorm on the other side", "encoder normalised", edit(
            "normed = layer_norm(decoder_states, decoder_states.shape[-1:])",
            "encoder_output = layer_norm(encoder_output, encoder_output.shape[-1:])\n    normed = decoder_states")),
        ("normalised twice", "both",
         edit("    scores", "    encoder_output = layer_norm(encoder_output, encoder_output.shape[-1:])\n    scores")),
        ("softmax over queries", "dim 0", edit("dim=-1", "dim=0")),
        ("softmax over queries", "dim -2", edit("dim=-1", "dim=-2")),
        ("no scale", "no root", edit(" / w_q.shape[1] ** 0.5", "")),
        ("scale of the model", "root of d", edit("w_q.shape[1]", "decoder_states.shape[1]")),
        ("no square root", "d_h", edit(" ** 0.5", "")),
        ("self-attention", "keys and values of the decoder", self_attention),
        ("LayerNorm over the tokens", "the whole tensor", edit("decoder_states.shape[-1:]", "decoder_states.shape")),
        ("weights for values", "weights returned", edit(" @ (encoder_output @ w_v)", "")),
    ],
    "26.4": [
        ("solved", "other heads silenced", head_by_silencing),
        ("solved", "views", head_by_views),
        ("solved", "chunks",
         edit("w_v[:, block] @ w_o[block]", "w_v.chunk(len(weights), 1)[head] @ w_o.chunk(len(weights))[head]")),
        ("heads from 1", "head - 1",
         edit("weights[head]", "weights[head - 1]", "head * width, (head + 1) * width", "(head - 1) * width, head * width")),
        ("weights transposed", "keys for queries", edit("weights[head]", "weights[head].mT")),
        ("weights of the first head", "head 0", edit("weights[head]", "weights[0]")),
        ("interleaved", "every n-th",
         edit("slice(head * width, (head + 1) * width)", "slice(head, w_v.shape[1], len(weights))")),
        ("no attention", "values only", edit("weights[head] @ y", "y")),
        ("all heads", "all", lambda weights, y, w_v, w_o, head: torch.cat(
            [w @ v for w, v in zip(weights, (y @ w_v).chunk(len(weights), 1), strict=True)], dim=1) @ w_o),
        ("mean of the heads' weights", "weights averaged", edit("weights[head]", "weights.mean(0)")),
        ("whole matrices", "no blocks", edit("w_v[:, block] @ w_o[block]", "w_v @ w_o")),
        ("without W_O", "one factor forgotten", edit(" @ w_o[block]", "")),
    ],
    "26.5": [
        ("solved", "large", {"x1": 10, "x2": 1}),
        ("solved", "just enough", {"x1": 2, "x2": 0.5}),
        ("solved", "negative x1 above x2", {"x1": -0.5, "x2": 0.2}),
        ("a tie", "equal entries", {"x1": 1, "x2": 1}),
        ("a tie", "x2 is zero", {"x1": 3, "x2": 0}),
        ("both negative", "both negative", {"x1": -3, "x2": -2.5}),
        ("second entry negative", "x2 negative", {"x1": 3, "x2": -1}),
        ("second entry larger", "the other way round", {"x1": 1, "x2": 3}),
        ("too close", "one apart", {"x1": 1.2, "x2": 0.5}),
        ("too close", "less than one apart", {"x1": 0.9, "x2": 0.1}),
        ("second entry larger", "x1 negative, x2 far", {"x1": -2, "x2": 3}),
        ("second entry negative", "both negative, x1 larger", {"x1": -1, "x2": -3}),
        ("malformed", "a tuple", (3, 1)),
    ],
}  # fmt: skip

GIVES_AWAY = {
    "26.P1": [r"\bcausal\b", r"all later (ones|positions)", r"must not look ahead", r"earlier states stay"],
    "26.P2": [r"Pads have states", r"a pad.s state is no zero", r"states like any"],
}
