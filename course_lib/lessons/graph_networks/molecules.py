"""Two molecules of lesson 13 that colour refinement cannot tell apart, and how its small graphs are written down."""

from itertools import pairwise

import torch
from torch import Tensor


def undirected(*pairs: tuple[int, int]) -> Tensor:
    """Return an edge_index with both directions of each pair; nodes count from 1, as in the text."""
    both = [*pairs, *((j, i) for i, j in pairs)]
    return torch.tensor(both).reshape(-1, 2).T - 1


# Ten carbon atoms, eleven bonds: two rings of six with a common bond, and two rings of five with a bond between them.
DECALIN = undirected(*pairwise(range(1, 11)), (10, 1), (1, 6))
BICYCLOPENTYL = undirected((1, 2), (2, 3), (3, 4), (4, 5), (5, 1), (6, 7), (7, 8), (8, 9), (9, 10), (10, 6), (1, 6))
