"""Codes of k numbers whose encoder, decoder, both or neither may bend, and rivals that bend without training.

They start from the k principal components of the training rows, or trained ones from random weights, and are judged by the
share of the variance that they keep of other rows, as `course_lib.sae.metrics.explained_variance` counts it.
"""

from collections.abc import Callable, Collection

import torch
from jaxtyping import Float
from torch import Tensor, nn

from course_lib.representation.pca import pca
from course_lib.sae.metrics import explained_variance

Rows = Float[Tensor, "rows d_model"]
Reconstruct = Callable[[Tensor], Tensor]


class Bottleneck(nn.Module):
    """A code of k numbers: z = E(x - mean) + e(x), x_hat = mean + D z + b + d(z).

    e and d are networks with one hidden layer (GELU) that stand only where `bent` names them. Their last layers start at
    0 and E, D at the principal components of `rows`, so that an untrained bottleneck is PCA with k components. The
    directions of the code have variance 1 then. With `random` all weights are random, those of the last layers too.

    Raises ValueError for a part other than "encoder" and "decoder".
    """

    def __init__(
        self,
        rows: Rows,
        k: int,
        *,
        bent: Collection[str] = (),
        hidden: int = 128,
        random: bool = False,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        if unknown := set(bent) - {"encoder", "decoder"}:
            raise ValueError(f"bent holds {sorted(unknown)}; expected 'encoder', 'decoder', both or neither")
        found = pca(rows, k)
        d, scale = rows.shape[1], rows.std(dim=0).square().mean().sqrt()
        size = found.project(rows).std(dim=0) / scale
        self.register_buffer("mean", rows.mean(dim=0))
        self.register_buffer("scale", scale)
        self.encoder = nn.Parameter(found.components.mT.to(rows) / size)
        self.decoder = nn.Parameter(found.components.to(rows) * size[:, None])
        self.bias = nn.Parameter(torch.zeros_like(self.mean))
        self.bend_code = _network(d, hidden, k, rows, generator) if "encoder" in bent else None
        self.bend_output = _network(k, hidden, d, rows, generator) if "decoder" in bent else None
        if random:
            last = [part[-1].weight for part in (self.bend_code, self.bend_output) if part is not None]
            with torch.no_grad():
                for weight, n_in in ((self.encoder, d), (self.decoder, k), *((one, hidden) for one in last)):
                    weight.copy_(torch.randn(weight.shape, generator=generator) / n_in**0.5)

    def encode(self, x: Rows) -> Float[Tensor, "rows k"]:
        """Return the code of each row."""
        x = (x - self.mean) / self.scale
        z = x @ self.encoder
        return z if self.bend_code is None else z + self.bend_code(x)

    def forward(self, x: Rows) -> Rows:
        """Return each row's reconstruction."""
        z = self.encode(x)
        out = z @ self.decoder + self.bias
        if self.bend_output is not None:
            out = out + self.bend_output(z)
        return self.mean + self.scale * out


def _network(
    n_in: int, hidden: int, n_out: int, rows: Tensor, generator: torch.Generator | None
) -> nn.Module:
    first, last = nn.Linear(n_in, hidden), nn.Linear(hidden, n_out)
    with torch.no_grad():
        first.weight.copy_(torch.randn(hidden, n_in, generator=generator) / n_in**0.5)
        first.bias.copy_(torch.randn(hidden, generator=generator) / 2)
        last.weight.zero_()
        last.bias.zero_()
    return nn.Sequential(first, nn.GELU(), last).to(rows)


@torch.enable_grad()
def fit_bottleneck(
    rows: Rows,
    chosen_on: Float[Tensor, "others d_model"],
    k: int,
    *,
    bent: Collection[str],
    step_size: float,
    steps: int = 1500,
    every: int = 100,
    batch: int = 256,
    hidden: int = 128,
    random: bool = False,
    seed: int = 0,
) -> Bottleneck:
    """Train a bottleneck by Adam, with a step size that falls to 0 along half a cosine.

    Of the states after every so many steps, step 0 included, the one that keeps most of `chosen_on` is returned. It starts
    at PCA, or with `random` from random weights.
    """
    generator = torch.Generator().manual_seed(seed)
    network = Bottleneck(rows, k, bent=bent, hidden=hidden, random=random, generator=generator)
    optimizer = torch.optim.Adam(network.parameters(), lr=step_size)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    variance = network.scale.square() * rows.shape[1]
    best, state = -float("inf"), network.state_dict()
    for step in range(steps + 1):
        if step % every == 0:
            with torch.no_grad():
                kept = explained_variance(chosen_on, network(chosen_on))
            if kept > best:
                best, state = kept, {name: value.clone() for name, value in network.state_dict().items()}
        x = rows[torch.randint(len(rows), (batch,), generator=generator)]
        optimizer.zero_grad()
        ((network(x) - x).square().sum(dim=1).mean() / variance).backward()
        optimizer.step()
        schedule.step()
    network.load_state_dict(state)
    return network


# Rivals: a decoder for the codes of PCA that bends and is found without gradient steps


def quadratic_features(z: Float[Tensor, "rows k"]) -> Float[Tensor, "rows features"]:
    """Return the k numbers of each code and all their k(k + 1)/2 products."""
    i, j = torch.triu_indices(z.shape[1], z.shape[1])
    return torch.cat([z, z[:, i] * z[:, j]], dim=1)


def bump_features(
    z: Float[Tensor, "rows k"], centres: Float[Tensor, "bumps k"], width: float | int
) -> Float[Tensor, "rows features"]:
    """Return the k numbers of each code and exp(-|z - c|^2 / 2 width^2) for each centre c."""
    return torch.cat([z, (-torch.cdist(z, centres).square() / (2 * width**2)).exp()], dim=1)


def ridge_decoder(
    features: Float[Tensor, "rows features"], rows: Rows, weights: Collection[float | int]
) -> dict[float | int, Reconstruct]:
    """Return affine maps from features to rows, one for each weight of the ridge penalty.

    Features are standardised, and errors are means over the rows, so that weights mean the same for every table.
    """
    mean, size, target = features.mean(dim=0), features.std(dim=0).clamp(min=1e-12), rows.mean(dim=0)
    f = (features - mean) / size
    values, vectors = torch.linalg.eigh(f.mT @ f / len(f))
    turned = vectors.mT @ (f.mT @ (rows - target) / len(f))

    def decoder(weight: float | int) -> Reconstruct:
        solution = vectors @ (turned / (values.clamp(min=0) + weight)[:, None])
        return lambda other: (other - mean) / size @ solution + target

    return {weight: decoder(weight) for weight in weights}


def nearest_decoder(codes: Tensor, rows: Rows, plain: Rows, count: int) -> Callable[[Tensor, Tensor], Tensor]:
    """Return a decoder that adds to a flat reconstruction what is missing on average at the nearest codes.

    `plain` are the flat reconstructions of `rows`; the decoder takes codes and their flat reconstructions.
    """
    missing = rows - plain

    def decode(z: Tensor, flat: Tensor) -> Tensor:
        nearest = torch.cdist(z, codes).topk(min(count, len(codes)), largest=False).indices
        return flat + missing[nearest].mean(dim=1)

    return decode


def cluster_code(rows: Rows, k: int, clusters: int, *, seed: int = 0, steps: int = 15) -> Reconstruct:
    """Return the map x -> x_hat of a code of one cluster number and k - 1 numbers.

    Clusters are those of k-means; the directions are the leading ones of what is left within them, the same for all
    clusters.
    """
    generator = torch.Generator().manual_seed(seed)
    centres = rows[torch.randperm(len(rows), generator=generator)[:clusters]].clone()
    for _ in range(steps):
        nearest = torch.cdist(rows, centres).argmin(dim=1)
        for c in nearest.unique():
            centres[c] = rows[nearest == c].mean(dim=0)
    left = rows - centres[torch.cdist(rows, centres).argmin(dim=1)]
    directions = torch.linalg.eigh(left.mT @ left).eigenvectors.flip(1)[:, : k - 1]

    def reconstruct(x: Tensor) -> Tensor:
        centre = centres[torch.cdist(x, centres).argmin(dim=1)]
        return centre + (x - centre) @ directions @ directions.mT

    return reconstruct
