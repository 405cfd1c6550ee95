"""Sentences of lesson 26, transformer circuits, each with what decides on it."""

import torch

from course_lib.lessons.transformer_circuits.contents import lesson
from course_lib.lessons.transformer_circuits.pictures import SEEDS, ablations, jumping, stored, test_sequences
from course_lib.measured import measured
from course_lib.representation.attention_only import SelfAttention, attention
from course_lib.representation.circuits import Heads, composition
from course_lib.representation.one_place_back import MixedAttention, loss_on
from course_lib.teaching import fact


def _normal(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@lesson.sentence("26.Q1", "What a head adds to the stream is a combination of the columns of its W_V.", answer=False)
def writes():
    """It is a combination of the rows of W_O (26.6). W_V decides with which coefficients."""
    heads = Heads.decoder(*(_normal(1, 1, 6, 2, seed=i) for i in range(3)), _normal(1, 1, 2, 6, seed=3))
    added = (attention(_normal(1, 5, 6, seed=4), heads)[0] @ heads.w_o)[0, 0]

    def outside(rows: torch.Tensor) -> float:
        return float((added - added @ torch.linalg.pinv(rows) @ rows).norm() / added.norm())

    return "\n".join(
        [
            fact(
                "share of a random head's output outside of the rows of W_O: {:.0e}",
                outside(heads.w_o[0]),
                at_most=1e-10,
            ),
            fact("outside of the columns of W_V: {:.2f}", outside(heads.w_v[0].T), at_least=0.3),
        ]
    )


@lesson.sentence(
    "26.Q2",
    "If W_Q is the identity, a head compares two tokens by their inner product.",
    answer="only if W_K is a multiple of the identity",
    conditions=("only if W_K is a multiple of the identity", "only if W_K is diagonal"),
)
def identity():
    """The score holds the product of W_Q with W_K transposed (26.5). For a small head it has a low rank and cannot be the
    identity at all."""
    x, keys = torch.tensor([1.0, 1.0]), torch.diag(torch.tensor([2.0, -1.0]))
    product = _normal(6, 2, seed=5) @ _normal(2, 6, seed=6)
    return "\n".join(
        [
            fact(
                "x = (1, 1), inner product 2; with W_K = diag(2, -1) the score is {}",
                float(x @ keys @ x),
                equals=1,
                within=0,
            ),
            fact(
                "d_model 6, d_head 2: rank of the product {}",
                int(torch.linalg.matrix_rank(product)),
                equals=2,
                within=0,
            ),
        ]
    )


@lesson.sentence("26.Q3", "A head whose removal hardly changes the loss does nothing for it.", answer=False)
def idle():
    """Others may share its work. Remove the group."""
    found = [ablations(seed) for seed in SEEDS]
    return "\n".join(
        [
            fact("without the best head of layer 1, five starts: at most {:.2f}",
                 [one["best of layer 1"] for one in found], at_most=0.3),
            fact("without all four: at least {:.1f}", [one["all of layer 1"] for one in found], at_least=3.47),
        ]
    )  # fmt: skip


@lesson.sentence(
    "26.Q4",
    "Turn the queries and the keys of a head by one and the same rotation, any you like: no logit of the network changes.",
    answer="only if no rotary embedding acts on them",
    conditions=("only if no rotary embedding acts on them", "only if the network has one layer"),
)
def turned():
    """By (26.7) the circuits stay. But a rotary embedding turns each pair of dimensions inside a head by its own angle. A
    rotation inside these pairs does no harm; a general one does."""
    turn = torch.linalg.qr(_normal(8, 8, seed=7)).Q
    x, gaps = _normal(1, 6, 8, seed=8), []
    for layer in (SelfAttention(8, 1), MixedAttention(8, 1, rotary=True)):
        layer = layer.double().requires_grad_(False)
        before = layer(x)[0]
        for projection in (layer.q_proj, layer.k_proj):
            projection.weight.copy_(turn @ projection.weight)
        gaps.append(float((layer(x)[0] - before).norm() / before.norm()))
    return "\n".join(
        [
            fact("without: the output changes by {:.0e}", gaps[0], at_most=1e-10),
            fact("with rotary embeddings: by {:.2f} of its size", gaps[1], at_least=0.02),
        ]
    )


@lesson.sentence(
    "26.Q5", "One plain layer with more weights than two layers have learns this task as fast.", answer=False
)
def heavier():
    """It learns more slowly. One layer of twice the width has more weights than two layers. Each had its best step size."""
    part, longer = "one_place_back", "one_layer_longer"
    return "\n".join(
        [
            fact("stored runs: its weights over those of two layers {:.1f}",
                 measured(part, "twice the width, weights") / measured(part, "two layers, weights"), equals=2, within=0.01),
            fact("two layers, 250 steps, five starts: at most {:.3f}", stored("two layers"), at_most=0.1),
            fact("twice the width, 250 steps: at least {:.2f}", stored("twice the width"), at_least=1.5),
            fact("twice the width, 3,000 steps: at least {:.2f}", measured(longer, "twice the width, 3000 steps, loss"),
                 at_least=0.5),
        ]
    )  # fmt: skip


@lesson.sentence(
    "26.Q6", "One layer of plain heads cannot solve this task: it needs a second one, or a shift.", answer=False
)
def votes():
    """Ten heads can. The head of period p looks p - 1 places back and votes against the token there, unless its own token
    stands p places back: then it looks at that. A tenth one raises all tokens 11 to 19 places back."""

    def logits(tokens: torch.Tensor) -> torch.Tensor:
        x = torch.nn.functional.one_hot(tokens, 32).double()
        place = torch.arange(tokens.shape[1])
        back = place[:, None] - place
        look = lambda scores: scores.masked_fill(back < 0, -torch.inf).softmax(-1) @ x  # noqa: E731
        against = sum(look(24 * x @ x.mT + 28 * (back == p) + 40 * (back == p - 1)) for p in range(12, 21))
        return 300 * look((40.0 * ((back >= 11) & (back <= 19))).double().expand(len(x), -1, -1)) - 40 * against

    return "\n".join(
        [
            fact("ten heads by hand: a loss of {:.0e}", loss_on(logits, *test_sequences()), at_most=1e-6),
            fact("the second round starts elsewhere: {:.0e}", loss_on(logits, *jumping()), at_most=1e-6),
        ]
    )


@lesson.sentence(
    "26.Q7", "Double all weights of both heads: their composition score (26.8) stays as it is.", answer=True
)
def scaled():
    """The norms below the line grow as the product above it."""
    a, b = _normal(6, 6, seed=9), _normal(6, 6, seed=10)
    ratio = float(composition(4 * a, 4 * b) / composition(a, b))
    return fact("4 A and 4 B: the score over that of A and B is {:.6f}", ratio, equals=1, within=1e-9)
