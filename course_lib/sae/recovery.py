"""Which directions a dictionary holds: recovery of known atoms, and agreement between training runs.

Directions are compared by their cosine, with its sign: features are non-negative, so that a direction and
its opposite are different features. Sizes do not count.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import torch
from jaxtyping import Float, Int
from scipy.optimize import linear_sum_assignment
from torch import Tensor


def cosines(
    decoder_weight: Float[Tensor, "d_model features"], atoms: Float[Tensor, "atoms d_model"]
) -> Float[Tensor, "atoms features"]:
    """Cosine of each atom with each decoder column, 0 for a column or atom of length 0."""
    return torch.nn.functional.normalize(atoms.to(decoder_weight), dim=1) @ torch.nn.functional.normalize(
        decoder_weight, dim=0
    )


def assign(cosine: Float[Tensor, "atoms features"]) -> tuple[Int[Tensor, " pairs"], Int[Tensor, " pairs"]]:
    """Pairs (atoms, features), each used once, with the largest sum of cosines.

    There are as many as the shorter side has. Solved exactly. Source: Crouse (2016), the algorithm of scipy.
    """
    rows, columns = linear_sum_assignment(cosine.detach().double().cpu().numpy(), maximize=True)
    return torch.from_numpy(rows), torch.from_numpy(columns)


@dataclass(frozen=True)
class Recovery:
    """How much of a known dictionary was found.

    `mmcs`, the mean max cosine similarity, is the mean over atoms of the largest cosine with any feature; one
    feature may serve several atoms there. `matched_cosines[a]` is the cosine of atom a with the feature that
    the assignment gives it alone, -1 for an atom that gets none.
    """

    mmcs: float
    matched_cosines: Float[Tensor, " atoms"]

    def share_matched(self, cosine: float | int) -> float:
        """Share of the atoms whose own feature has at least this cosine with them."""
        return (self.matched_cosines >= cosine).double().mean().item()


def recovery(
    decoder_weight: Float[Tensor, "d_model features"], atoms: Float[Tensor, "atoms d_model"]
) -> Recovery:
    """Compare a decoder with the atoms that the data were made from (`PlantedDictionary.atoms`).

    MMCS = (1/n) sum_a max_i cos(atom_a, W_d[:, i]). The assignment maximises the sum of cosines, every feature
    for one atom. Source: Sharkey, Braun and Millidge (2022) for MMCS.
    """
    table = cosines(decoder_weight, atoms)
    rows, columns = assign(table)
    matched = torch.full((len(atoms),), -1.0, dtype=table.dtype)
    matched[rows] = table.detach().cpu()[rows, columns]
    return Recovery(table.max(dim=1).values.mean().item(), matched)


@dataclass(frozen=True)
class Agreement:
    """Mean cosine of assigned decoder columns for every pair of runs, trained and untrained.

    Without the untrained figure beside it the trained one says little: in many directions and few
    dimensions the best match of a random direction is far from 0.
    """

    trained: dict[tuple[int, int], float]
    untrained: dict[tuple[int, int], float]

    @property
    def mean(self) -> float:
        """Mean over the pairs of trained runs."""
        return sum(self.trained.values()) / len(self.trained)

    @property
    def untrained_mean(self) -> float:
        """Mean over the pairs of untrained ones."""
        return sum(self.untrained.values()) / len(self.untrained)


def agreement(
    decoders: Sequence[Float[Tensor, "d_model features"]],
    *,
    untrained: Sequence[Float[Tensor, "d_model features"]],
) -> Agreement:
    """How far runs from different seeds found the same features, beside the same for untrained ones.

    For every pair of decoders the mean over assigned columns of their cosine, each column used once.
    `untrained` are the decoders as the constructor makes them, of equally many other seeds.

    All have one shape. Raises ValueError for fewer than 3 of either.
    """
    if min(len(decoders), len(untrained)) < 3:
        raise ValueError(
            f"got {len(decoders)} decoders and {len(untrained)} untrained ones; expected at least 3 of each"
        )
    return Agreement(_pairwise(decoders), _pairwise(untrained))


def _pairwise(decoders: Sequence[Tensor]) -> dict[tuple[int, int], float]:
    pairs = {}
    for (i, first), (j, second) in combinations(enumerate(decoders), 2):
        table = cosines(second, first.T)
        pairs[i, j] = table[assign(table)].mean().item()
    return pairs
