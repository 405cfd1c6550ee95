"""Sentences of lesson 18, rotary_position_embedding, each with what decides on it."""

import math

import torch
from torch.nn.functional import scaled_dot_product_attention

from course_lib.attention.rotary import convert_layout, mean_score, rope, rope_frequencies
from course_lib.lessons.rotary_position_embedding.contents import lesson
from course_lib.teaching import fact


def _normal(*shape: int, seed: int = 14) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@lesson.sentence(
    "18.Q1",
    "With z = x₁ + jx₂ turned to position m and w = y₁ + jy₂ turned to position n, the real part of their product depends "
    "on n - m only.",
    answer=False,
)
def no_conjugate():
    """The product turns with m + n. One of the two has to be conjugated: that is what an inner product does."""
    z, w = 1 + 2j, 2 - 1j
    turned = lambda v, t: v * complex(math.cos(t), math.sin(t))  # noqa: E731
    plain = [(turned(z, m) * turned(w, m + 2)).real for m in (0, 1)]
    conjugated = [(turned(z, m).conjugate() * turned(w, m + 2)).real for m in (0, 1)]
    return "\n".join(
        [
            fact("x = (1, 2), y = (2, -1), distance 2, ω = 1, from m = 0 and m = 1: the products differ by {:.2f}",
                 abs(plain[0] - plain[1]), at_least=1),
            fact("with the conjugate of z: by {}", abs(conjugated[0] - conjugated[1]), at_most=1e-12),
        ]
    )  # fmt: skip


@lesson.sentence(
    "18.Q2",
    "The frequencies may be written as 10000⁻² · (i - 1)/d, with pair 1 as the fastest.",
    answer=False,
)
def slipped_exponent():
    """The exponent has slipped: it is -2(i - 1)/d. As written pair 1 never turns, and the others hardly do."""
    i = torch.arange(1, 5, dtype=torch.float64)
    written = 10_000.0**-2 * (i - 1) / 8
    return "\n".join(
        [
            fact("d = 8: pair 1 turns by {} radians a position", written[0], equals=0, within=0),
            fact("pair 4 turns by {} radians in 100,000 positions", 100_000 * written[3], equals=3.75e-4, within=1e-12),
            fact("with the right exponent, by {} a position", rope_frequencies(8)[3], equals=1e-3, within=1e-12),
        ]
    )


@lesson.sentence(
    "18.Q3",
    "Without positions, one layer of attention cannot tell how many tokens stand before a token.",
    answer="only if no mask hides what comes later",
    conditions=("only if no mask hides what comes later", "only if all tokens differ"),
)
def counting_by_the_mask():
    """Let the first token have value 1 and the others 0, all scores equal. Under a causal mask token t gets 1/(t + 1)."""
    equal, values = torch.zeros(1, 10, 1, dtype=torch.float64), torch.eye(10, dtype=torch.float64)[None, :, :1]
    masked, bare = (
        scaled_dot_product_attention(equal, equal, values, is_causal=causal)[0, :, 0] for causal in (True, False)
    )
    return "\n".join(
        [
            fact("masked, tokens 0, 4 and 9 get {:.3f}", masked[[0, 4, 9]], equals=[1, 0.2, 0.1], within=1e-9),
            fact(
                "not masked, the least and the most of the ten: {:.3f}",
                [bare.min(), bare.max()],
                equals=0.1,
                within=1e-9,
            ),
        ]
    )


@lesson.sentence(
    "18.Q4",
    "Independent random queries and keys score lower, in size and on average, the further they are apart.",
    answer=False,
)
def nothing_falls():
    """A turned normal vector is normal. What falls, on average over distances, is the score of a vector with itself."""
    q, k = _normal(20_000, 1, 64), _normal(20_000, 1, 64, seed=15)
    spread = [float((q * rope(k, torch.tensor([s]))).sum((1, 2)).std()) for s in (0, 1000)]
    itself = mean_score(torch.arange(1000, 2000), rope_frequencies(64)).mean()
    return "\n".join(
        [
            fact("independent: the spread at distances 0 and 1,000 is {:.2f}", spread, equals=8, within=0.2),
            fact("a vector with itself, 1,000 to 1,999 apart: {:.2f} of its score at 0", itself, at_most=0.3),
        ]
    )


@lesson.sentence(
    "18.Q5",
    "A model trained with pairs of neighbours can be run with pairs x_i, x_(i+d/2), at the same scores.",
    answer="only if the rows of W_q and W_k are permuted",
    conditions=("only if the rows of W_q and W_k are permuted", "only if it is trained again"),
)
def two_layouts():
    """Both turn pairs; only the places of a pair's entries differ. The same permutation of both leaves inner products."""
    tokens, t = _normal(20, 32), torch.arange(20)
    weights = [_normal(16, 32, seed=seed) for seed in (15, 16)]
    permuted = [convert_layout(w, head_dim=16, source="interleaved", target="half") for w in weights]

    def scores(pair, layout):
        q, k = (rope(tokens @ w.T, t, layout=layout) for w in pair)
        return q @ k.T

    wanted = scores(weights, "interleaved")
    gap = lambda found: (found - wanted).abs().max() / wanted.abs().max()  # noqa: E731
    return "\n".join(
        [
            fact("as they are, scores are off by {:.0%} of the largest", gap(scores(weights, "half")), at_least=0.1),
            fact("with permuted rows by {}", gap(scores(permuted, "half")), at_most=1e-12),
        ]
    )
