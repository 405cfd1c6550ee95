"""A transformer of attention alone, small enough to be taken apart, and sequences that repeat themselves.

There are no MLPs, norms or biases: the residual stream is a sum, and every logit is a sum over heads. Tokens are rows.
"""

import math
from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from course_lib.representation.circuits import Heads


def _check_stream(x: Tensor, heads: Heads) -> None:
    if x.ndim != 3 or x.shape[-1] != heads.w_q.shape[1]:
        raise ValueError(f"x must have shape (batch, tokens, {heads.w_q.shape[1]}), got {tuple(x.shape)}")


def head_by_circuits(
    x: Float[Tensor, "tokens d_model"],
    w_qk: Float[Tensor, "d d2"],
    w_ov: Float[Tensor, "d3 d4"],
    *,
    d_head: int,
) -> Float[Tensor, "tokens d_model"]:
    """What one causal head adds to the stream: A x W_OV with A = softmax(x W_QK x^T / sqrt(d_head)) (26.5, 26.6).

    To be read: `d_head` enters by the scale only, and no basis inside the head appears.
    """
    scores = x @ w_qk @ x.T / math.sqrt(d_head)
    later = torch.ones_like(scores, dtype=torch.bool).triu(1)
    pattern = scores.masked_fill(later, -math.inf).softmax(dim=-1)
    return pattern @ (x @ w_ov)


def attention(
    x: Float[Tensor, "batch tokens d_model"], heads: Heads
) -> tuple[Float[Tensor, "batch heads tokens d_head"], Float[Tensor, "batch heads tokens tokens"]]:
    """The results r = A x W_V of causal heads, and their patterns A: the fast form, one product for all heads.

    Head h adds r W_O to the stream: the sum over heads of `head_by_circuits`. Biases are included.

    Raises:
        ValueError: `x` is not (batch, tokens, d_model).
    """
    _check_stream(x, heads)
    n, d_model, d_head = heads.w_q.shape
    weights = torch.cat([heads.w_q, heads.w_k, heads.w_v]).transpose(0, 1).reshape(d_model, -1)
    biases = torch.cat([heads.b_q, heads.b_k, heads.b_v]).reshape(-1)
    q, k, v = (x @ weights + biases).view(*x.shape[:2], 3, n, d_head).permute(2, 0, 3, 1, 4)
    later = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device).triu(1)
    pattern = (q @ k.mT / math.sqrt(d_head)).masked_fill(later, -math.inf).softmax(dim=-1)
    return pattern @ v, pattern


def attention_gradients(
    x: Float[Tensor, "batch tokens d_model"], heads: Heads, gradient: Float[Tensor, "b t d"]
) -> dict[str, Tensor]:
    """Gradients of the layer y = sum_h r_h W_O^h (without biases) with respect to `x` and its weights, by hand.

    With G = dL/dy, dr = G W_O^T and dA = dr v^T, the softmax gives dS = A * (dA - rowsum(A * dA)) / sqrt(d_head). From
    there W_QK = W_Q W_K^T and W_OV = W_V W_O get M = x^T dS x and N = x^T A^T G, and the factors, as in
    `circuit_gradients`, dW_Q = M W_K, dW_K = M^T W_Q, dW_V = N W_O^T, dW_O = W_V^T N; M and N are never formed.

    Returns the gradients by the names "x", "w_q", "w_k", "w_v", "w_o", in the shapes of what they belong to.
    Raises ValueError where `gradient` does not have the shape of `x`.
    """
    if gradient.shape != x.shape:
        raise ValueError(f"gradient must have the shape of x, {tuple(x.shape)}, got {tuple(gradient.shape)}")
    result, pattern = attention(x, heads)
    rows, grads = x[:, None], gradient[:, None]
    q, k, v = (rows @ w for w in (heads.w_q, heads.w_k, heads.w_v))
    d_result = grads @ heads.w_o.mT
    d_pattern = d_result @ v.mT
    d_scores = pattern * (d_pattern - (pattern * d_pattern).sum(-1, keepdim=True)) / math.sqrt(q.shape[-1])
    d_q, d_k, d_v = d_scores @ k, d_scores.mT @ q, pattern.mT @ d_result
    return {
        "x": sum((d @ w.mT).sum(1) for d, w in ((d_q, heads.w_q), (d_k, heads.w_k), (d_v, heads.w_v))),
        "w_q": (rows.mT @ d_q).sum(0),
        "w_k": (rows.mT @ d_k).sum(0),
        "w_v": (rows.mT @ d_v).sum(0),
        "w_o": (result.mT @ grads).sum(0),
    }


class SelfAttention(nn.Module):
    """One layer of causal heads with the four projections under the names that transformers' models use."""

    def __init__(self, d_model: int, n_heads: int, *, generator: torch.Generator | None = None) -> None:
        super().__init__()
        if n_heads < 1 or d_model % n_heads:
            raise ValueError(f"d_model must be a multiple of n_heads, got {d_model} and {n_heads}")
        self.num_heads, self.head_dim = n_heads, d_model // n_heads
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            linear = nn.Linear(d_model, d_model, bias=False)
            nn.init.normal_(linear.weight, std=d_model**-0.5, generator=generator)
            self.add_module(name, linear)

    def forward(self, x: Float[Tensor, "batch tokens d_model"]) -> tuple[Tensor, Tensor]:
        """What the heads add to the stream, and their patterns (batch, heads, tokens, tokens)."""
        q, k, v = (
            project(x).unflatten(-1, (self.num_heads, self.head_dim)).transpose(1, 2)
            for project in (self.q_proj, self.k_proj, self.v_proj)
        )
        later = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device).triu(1)
        pattern = (q @ k.mT / math.sqrt(self.head_dim)).masked_fill(later, -math.inf).softmax(dim=-1)
        return self.o_proj((pattern @ v).transpose(1, 2).flatten(2)), pattern


class AttentionOnly(nn.Module):
    """Layers of causal self-attention between an embedding and an unembedding, with learned positions.

    logits = (E[token] + P[position] + sum over layers and heads of A x W_OV) U (26.1).

    Raises:
        ValueError: a size is not at least 1, `d_model` is no multiple of `n_heads`, or a sequence is too long.
    """

    def __init__(
        self,
        *,
        vocabulary: int,
        max_tokens: int,
        d_model: int = 32,
        n_heads: int = 4,
        n_layers: int = 2,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        sizes = {"vocabulary": vocabulary, "max_tokens": max_tokens, "d_model": d_model, "n_layers": n_layers}
        for name, size in sizes.items():
            if size < 1:
                raise ValueError(f"{name} must be at least 1, got {size}")
        draw = lambda *shape, std: nn.Parameter(std * torch.randn(shape, generator=generator))  # noqa: E731
        self.embedding = draw(vocabulary, d_model, std=1.0)
        self.positions = draw(max_tokens, d_model, std=0.5)
        self.unembedding = draw(d_model, vocabulary, std=d_model**-0.5)
        self.layers = nn.ModuleList(
            SelfAttention(d_model, n_heads, generator=generator) for _ in range(n_layers)
        )

    def forward(self, tokens: Int[Tensor, "batch tokens"]) -> Float[Tensor, "batch tokens vocabulary"]:
        """The logits of the next token at every position."""
        if tokens.shape[1] > len(self.positions):
            raise ValueError(
                f"tokens must hold at most {len(self.positions)} a sequence, got {tokens.shape[1]}"
            )
        x = self.embedding[tokens] + self.positions[: tokens.shape[1]]
        for layer in self.layers:
            x = x + layer(x)[0]
        return x @ self.unembedding


# A pair that is known, to test tools on


@torch.no_grad()
def planted_induction(
    *,
    vocabulary: int = 8,
    max_tokens: int = 16,
    hidden: bool = False,
    generator: torch.Generator | None = None,
) -> AttentionOnly:
    """Two layers of four random heads, in which head 0.1 looks at the previous token and head 1.2 completes repetitions.

    Half of the stream is used: dimensions for the token, its place, and the token before. Head 0.1 asks at place t for
    place t - 1 and writes the token there to "the token before"; head 1.2 asks for a place whose token before is its own
    token, and raises the score of the token there. A match has the score 20. Where the pair is `hidden`, a random rotation
    of the stream mixes all dimensions, so that single entries show nothing.

    Raises:
        ValueError: `vocabulary` or `max_tokens` is below 2 (a pair needs two tokens), or max_tokens below vocabulary.
    """
    if not 2 <= vocabulary <= max_tokens:
        raise ValueError(
            f"vocabulary must be at least 2 and at most max_tokens, got {vocabulary} tokens and {max_tokens} places"
        )
    used, d_head = 2 * vocabulary + max_tokens, max_tokens
    width = 4 * d_head
    model = AttentionOnly(
        vocabulary=vocabulary, max_tokens=max_tokens, d_model=width, n_heads=4, generator=generator
    )
    turn = torch.eye(width)
    if hidden:
        turn = torch.linalg.qr(torch.randn(width, width, generator=generator)).Q
    token, place, before = turn[:used].split([vocabulary, max_tokens, vocabulary])
    model.embedding.copy_(token)
    model.positions.copy_(place)
    model.unembedding.copy_(token.T)
    for weight in model.layers.parameters():
        weight.mul_(0.3)
    sharp = math.sqrt(20 * math.sqrt(d_head))
    _put(model.layers[0], 1, sharp * place.roll(-1, 0), sharp * place, token, before)
    _put(model.layers[1], 2, sharp * token, sharp * before, token, 6 * token)
    return model.requires_grad_(False)


def _put(layer: nn.Module, head: int, query: Tensor, key: Tensor, value: Tensor, output: Tensor) -> None:
    """Let dimension i of a head read rows i of query, key and value, and write row i of output; the rest is zero."""
    own = slice(head * layer.head_dim, (head + 1) * layer.head_dim)
    for name, rows in (("q_proj", query), ("k_proj", key), ("v_proj", value)):
        getattr(layer, name).weight[own] = 0
        getattr(layer, name).weight[own][: len(rows)] = rows
    layer.o_proj.weight[:, own] = 0
    layer.o_proj.weight[:, own][:, : len(output)] = output.T


# Sequences


def repeated_sequences(
    count: int,
    length: int,
    *,
    vocabulary: int,
    periods: Sequence[int],
    generator: torch.Generator | None = None,
) -> tuple[Int[Tensor, "count length"], Bool[Tensor, "count length"]]:
    """Random tokens that repeat with a period of each sequence's own, and which tokens can be known: the repeated ones.

    Within a period the tokens are different, so that each has one successor. The period is drawn from `periods`. If it were
    the same for all, a head could look a fixed number of tokens back; so it has to look for the token. The second
    result is True from the end of the first period on.

    Raises:
        ValueError: `periods` is empty or holds a number below 1, or of at least `length`, or above `vocabulary`.
    """
    options, most = [int(p) for p in periods], min(length - 1, vocabulary)
    if not options or not all(1 <= p <= most for p in options):
        raise ValueError(f"periods must hold numbers from 1 to {most}, got {options}")
    device = "cpu" if generator is None else generator.device
    drawn = torch.randint(len(options), (count, 1), generator=generator, device=device)
    period = torch.tensor(options, device=device)[drawn]
    place = torch.arange(length, device=device)
    block = torch.rand(count, vocabulary, generator=generator, device=device).argsort(dim=1)[
        :, : max(options)
    ]
    return block.gather(1, place % period), place >= period


def repeat_loss(
    logits: Float[Tensor, "batch tokens vocabulary"],
    tokens: Int[Tensor, "batch tokens2"],
    known: Bool[Tensor, "count length"],
) -> Float[Tensor, ""]:
    """Mean cross-entropy (nats) of the next token where it is known from the first period, apart from its first token.

    `tokens` and `known` are one longer than `logits` (as `repeated_sequences` gives them): entry t of the logits is for
    token t + 1. The token that begins the repetition is left out: nothing tells when it comes.
    """
    if tokens.shape != known.shape or tokens.shape[1] != logits.shape[1] + 1:
        raise ValueError(
            f"tokens and known must have shape {(logits.shape[0], logits.shape[1] + 1)}, got {tuple(tokens.shape)} and "
            f"{tuple(known.shape)}"
        )
    losses = nn.functional.cross_entropy(logits.mT, tokens[:, 1:], reduction="none")
    counts = known[:, :-1]
    return (losses * counts).sum() / counts.sum()
