"""Which directions a dictionary holds: recovery of known atoms, and agreement between training runs.

Directions are compared by their cosine, with its sign: features are non-negative, so that a direction and
its opposite are different features. Sizes do not count.
"""

import math
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


def share_split(
    decoder_weight: Float[Tensor, "d_model features"],
    atoms: Float[Tensor, "atoms d_model"],
    *,
    cosine: float | int = 0.8,
) -> float:
    """Share of the atoms that two or more features have at this cosine or more (splitting).

    Copies of one direction count as well as true kinds of a feature: the directions cannot tell the two apart.
    """
    return ((cosines(decoder_weight, atoms) >= cosine).sum(dim=1) >= 2).double().mean().item()


@dataclass(frozen=True)
class Absorption:
    """How often the features of general atoms are silent in rows that hold their atom.

    `with_special`: in rows that hold one of its special atoms, too; `alone`: in the others, which is what the
    first has to be compared with. NaN where no feature has a general atom. `n_general` features were looked at.
    """

    with_special: float
    alone: float
    n_general: int


def absorption(
    features: Float[Tensor, "rows features"],
    codes: Float[Tensor, "rows atoms"],
    *,
    parents: Sequence[int],
    decoder_weight: Float[Tensor, "d_model features"],
    atoms: Float[Tensor, "atoms d_model"],
    cosine: float | int = 0.8,
) -> Absorption:
    """Whether general features are silent where special ones are active, on rows of `PlantedDictionary.draw_nested`.

    An autoencoder saves a feature a row where the special one writes the general direction, too: the general
    feature is absorbed there, and no longer says what it seems to. A general atom is looked at where the assignment
    of `recovery` gives it a feature at this `cosine` or more. Means are over those atoms. Source: Chanin et al.
    (2024), arXiv:2409.14507, who look for it in a language model by a probe.
    """
    table = cosines(decoder_weight, atoms)
    unit = dict(zip(*(pairs.tolist() for pairs in assign(table)), strict=True))
    present, with_special, alone = codes > 0, [], []
    for general in sorted({parent for parent in parents if parent >= 0}):
        if general not in unit or table[general, unit[general]] < cosine:
            continue
        special = present[:, [child for child, parent in enumerate(parents) if parent == general]].any(dim=1)
        silent = features[:, unit[general]] <= 0
        with_special.append(silent[present[:, general] & special].double().mean())
        alone.append(silent[present[:, general] & ~special].double().mean())
    means = [torch.stack(found).mean().item() if found else math.nan for found in (with_special, alone)]
    return Absorption(*means, n_general=len(alone))


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
