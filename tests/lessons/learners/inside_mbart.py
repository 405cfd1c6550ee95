"""What learners answer to lesson 34, inside_mbart, and what its predictions must not be told."""

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


def layer_in_steps(x, a, w_v, w_o, w_1, w_2):
    normed = layer_norm(x, (x.shape[1],))
    middle = x + (a @ (normed @ w_v)) @ w_o
    inner = torch.nn.functional.gelu(layer_norm(middle, (x.shape[1],)) @ w_1)
    return middle + inner @ w_2


def layer_with_module(x, a, w_v, w_o, w_1, w_2):
    norm = torch.nn.LayerNorm(x.shape[1], elementwise_affine=False, dtype=x.dtype)
    for read in (lambda z: a @ z @ (w_v @ w_o), lambda z: torch.nn.GELU()(z @ w_1) @ w_2):
        x = x + read(norm(x))
    return x


def post_norm(x, a, w_v, w_o, w_1, w_2):
    x = layer_norm(x + a @ x @ w_v @ w_o, x.shape[-1:])
    return layer_norm(x + torch.nn.functional.gelu(x @ w_1) @ w_2, x.shape[-1:])


CAUSAL = "torch.ones_like(scores).tril().bool() & real"

ANSWERS = {
    "34.1": [
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
    "34.2": [
        ("solved", "in steps", layer_in_steps),
        ("solved", "with modules and a loop", layer_with_module),
        ("norm after", "the original Transformer", post_norm),
        ("no residual", "only what is written", edit("x = x + a @", "x = a @", "return x + gelu", "return gelu")),
        ("first residual lost", "attention replaces", edit("x = x + a @", "x = a @")),
        ("second residual lost", "feed-forward replaces", edit("return x + gelu", "return gelu")),
        ("no first LayerNorm", "attention reads x", edit("a @ layer_norm(x, x.shape[-1:])", "a @ x")),
        ("no second LayerNorm", "gelu of x",
         edit("gelu(layer_norm(x, x.shape[-1:]) @ w_1)", "gelu(x @ w_1)")),
        ("norm kept in the sum", "x is overwritten",
         edit("    x = x + a @ layer_norm(x, x.shape[-1:])", "    x = layer_norm(x, x.shape[-1:])\n    x = x + a @ x")),
        ("side by side", "both read x",
         edit("    x = x + a @", "    first = layer_norm(x, x.shape[-1:])\n    x = x + a @",
              "gelu(layer_norm(x, x.shape[-1:])", "gelu(first")),
        ("no attention", "each token alone", edit("a @ layer_norm", "layer_norm")),
        ("weights transposed", "columns for rows", edit("a @", "a.mT @")),
        ("no activation", "linear", edit("gelu(layer_norm(x, x.shape[-1:]) @ w_1)", "layer_norm(x, x.shape[-1:]) @ w_1")),
        ("relu", "relu", edit("gelu(layer_norm(x, x.shape[-1:]) @ w_1)", "torch.relu(layer_norm(x, x.shape[-1:]) @ w_1)")),
        ("LayerNorm over the tokens", "the whole matrix",
         edit("a @ layer_norm(x, x.shape[-1:])", "a @ layer_norm(x, x.shape)",
              "gelu(layer_norm(x, x.shape[-1:])", "gelu(layer_norm(x, x.shape)")),
        ("wrong", "the tanh that is near gelu",
         edit("gelu(layer_norm(x, x.shape[-1:]) @ w_1)", "gelu(layer_norm(x, x.shape[-1:]) @ w_1, approximate='tanh')")),
        ("malformed", "the inner units", edit(" @ w_2", "", "return x + gelu", "return gelu")),
    ],
    "34.3": [
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
    "34.4": [
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
    "34.5": [
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
}  # fmt: skip

GIVES_AWAY = {
    "34.P1": [r"In C every sum", r"LayerNorm after each sublayer"],
    "34.P2": [r"(?i)only the token itself", r"Worst by far", r"looking only at itself"],
    "34.P3": [r"(?i)noise as large", r"far less damage", r"(?i)nearly harmless"],
}

NEIGHBOURS = {
    "34.2": (
        "weights = torch.softmax(q @ k.mT / 4**0.5, dim=-1)",
        "weights = torch.softmax(q @ k.mT / 4, dim=-1)",
    ),
    "34.e1": ('off(output(drawn("k_proj.bias"))', 'off(output(drawn("v_proj.bias"))'),
    "34.4": ("each.sum(dim=1) + attention_bias(w)", 'each.sum(dim=1) + w["out_proj.bias"]'),
    "34.8": ("middle = x + attend(by_hand.layer_norm(x, ln_1))", "middle = x + attend(x)"),
    "34.10": ("ours = [*encoder.states[:-1], encoder.output]", "ours = encoder.states"),
    "34.11": ("moved[:5].max()", "moved[:6].max()"),
    "34.12": ("states, theirs = [*before.states[:-1], before.output],", "states, theirs = before.states,"),
    "34.14": ("ours = almost.decode(W, states,", "ours = almost.decode(W, states.roll(1, 0),"),
    "34.e5": ("Recipe(post_norm=True)", "Recipe(scaled=False)"),
    "34.e2": ('rest - kept["itself"]', 'rest - kept["none"]'),
    "34.e3": (
        'lesson.at_distance(f"attention: {name}", 0.5)',
        'lesson.stored(f"attention: {name}", "unchanged")',
    ),
    "34.e4": ("almost.shared(written(noisy), usual) -", "almost.shared(written(elsewhere), usual) -"),
}
