"""What a dictionary's features have to beat as detectors: directions made from labels, centres of clusters, word pieces.

Every rival gives a value at each token, and a sentence's value is its largest over the tokens
(`LabelledRows.largest`), as with features. A direction belongs to its concept, so that only a threshold is left to
choose; of clusters and pieces the best one is chosen for each concept, as of features (`detectors.best_detectors`).
"""

from collections.abc import Iterator

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from course_lib.interpret.concepts import LabelledRows, best_thresholds, f1_scores
from course_lib.interpret.detectors import Detectors

_ROWS = 8192  # states that are compared with all centres at a time


def difference_of_means(
    states: Float[Tensor, "rows d_model"], labels: Bool[Tensor, "rows concepts"]
) -> Float[Tensor, "d_model concepts"]:
    """The mean of the states with a concept less the mean of those without it, one column a concept.

    The rows are single tokens. Where only sentences are labelled, each token has the labels of its sentence:
    `rows.labels[rows.groups]`. Raises ValueError where a concept has no row, or no row is without it.
    """
    inside = labels.to(states.dtype)
    n = inside.sum(dim=0)
    if not ((n > 0) & (n < len(states))).all():
        raise ValueError(
            "labels has a concept that none or all of the rows hold; expected rows of both kinds"
        )
    sums = states.T @ inside
    return sums / n - (states.sum(dim=0)[:, None] - sums) / (len(states) - n)


def discriminants(
    states: Float[Tensor, "rows d_model"],
    labels: Bool[Tensor, "rows concepts"],
    *,
    shrinkage: float | int,
    unlabelled: Float[Tensor, "others d_model"] | None = None,
) -> Float[Tensor, "d_model concepts"]:
    """Linear discriminant analysis: the difference of means, divided by how much the states vary along it.

        w = (S + shrinkage * tr(S) / d * I)^-1 (mu_1 - mu_0),

    S the covariance of all rows, or of the rows `unlabelled` where they are given. That of all rows has the direction
    of Fisher's, whose covariance is that within the classes: the two differ by a multiple of (mu_1 - mu_0)(mu_1 -
    mu_0)^T, and so the solutions by a factor. A large `shrinkage`
    gives the difference of means. Raises ValueError for a negative one, and as `difference_of_means` does.
    Source: Fisher (1936).
    """
    if shrinkage < 0:
        raise ValueError(f"shrinkage is {shrinkage}; expected 0 or more")
    difference = difference_of_means(states, labels)
    varied = states if unlabelled is None else unlabelled
    centred = varied - varied.mean(dim=0)
    covariance = centred.T @ centred / len(varied)
    d = len(covariance)
    ridge = shrinkage * covariance.trace() / d * torch.eye(d, dtype=states.dtype)
    return torch.linalg.solve(covariance + ridge, difference)


def refitted_discriminants(
    rows: LabelledRows, *, shrinkage: float | int
) -> Float[Tensor, "d_model concepts"]:
    """Discriminants that guess from labels of sentences which tokens are the word, and are fitted once more on these.

    The first fit gives each token the labels of its sentence (`discriminants`). In each sentence with the concept the
    token with the largest value (all of them, where several are equal) is then labelled, and no other token. Rows
    without groups are single tokens, and nothing is left to guess. Raises ValueError as `discriminants` does.
    """
    if rows.groups is None:
        return discriminants(rows.states, rows.labels, shrinkage=shrinkage)
    told = rows.labels[rows.groups]
    values = rows.states @ discriminants(rows.states, told, shrinkage=shrinkage)
    strongest = told & (values == rows.largest(values)[rows.groups])
    return discriminants(rows.states, strongest, shrinkage=shrinkage)


def spherical_kmeans(
    states: Float[Tensor, "rows d_model"],
    n_centres: int,
    *,
    rounds: int = 15,
    generator: torch.Generator,
) -> Float[Tensor, "n_centres d_model"]:
    """Centres of length 1: each round moves them to the mean direction of the states nearest by cosine.

    It is told nothing, like a dictionary, and is a dictionary with one feature a token. States are to be centred
    before. Centres begin at states drawn at random; one that loses all its states moves to another. Raises
    ValueError for more centres than rows.
    """
    if n_centres > len(states):
        raise ValueError(
            f"n_centres is {n_centres}, and there are {len(states)} rows; expected as many or more"
        )
    unit = torch.nn.functional.normalize(states, dim=1)
    centres = unit[torch.randperm(len(unit), generator=generator)[:n_centres]]
    for _ in range(rounds):
        nearest = torch.cat([(part @ centres.T).argmax(dim=1) for part in unit.split(_ROWS)])
        sums = torch.zeros_like(centres).index_add(0, nearest, unit)
        empty = (nearest.bincount(minlength=n_centres) == 0).nonzero()[:, 0]
        sums[empty] = unit[torch.randint(len(unit), (len(empty),), generator=generator)]
        centres = torch.nn.functional.normalize(sums, dim=1)
    return centres


def piece_table(
    token: Int[Tensor, " tokens"], sentence: Int[Tensor, " tokens"], *, n_sentences: int, n_pieces: int
) -> Tensor:
    """Which pieces of the vocabulary stand in each sentence: a sparse table (COO) with the entries 1."""
    pairs = torch.stack([sentence, token]).unique(dim=1)
    return torch.sparse_coo_tensor(
        pairs, torch.ones(pairs.shape[1]), (n_sentences, n_pieces), check_invariants=False
    )


def largest_projections(
    rows: LabelledRows,
    directions: Float[Tensor, "d_model units"],
    *,
    mean: Float[Tensor, " d_model"] | None = None,
) -> Float[Tensor, "rows units"]:
    """Each direction's largest value over the tokens of each sentence, (x - mean) . w; without `mean`, x . w."""
    return torch.cat(
        [
            rows.largest((rows.states if mean is None else rows.states - mean) @ some)
            for some in directions.split(256, dim=1)
        ],
        dim=1,
    )


def own_detectors(scores: Float[Tensor, "rows concepts"], labels: Bool[Tensor, "rows concepts"]) -> Detectors:
    """Detectors where column i belongs to concept i: only the threshold is chosen, that of the largest F1."""
    threshold = best_thresholds(scores, labels)
    return Detectors(torch.arange(labels.shape[1]), threshold, f1_scores(scores > threshold, labels))


def language_scores(
    found: Detectors, scores: Tensor, rows: LabelledRows
) -> Iterator[tuple[str, Float[Tensor, " concepts"]]]:
    """Yield each language of the rows with the F1 of every detector in it; NaN where no row holds the concept."""
    calls = found.calls(scores)
    for language in dict.fromkeys(rows.languages):
        own = torch.tensor([spoken == language for spoken in rows.languages])
        f1 = f1_scores(calls[own], rows.labels[own])
        yield language, f1.where(rows.labels[own].any(dim=0), torch.nan)
