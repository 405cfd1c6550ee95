"""The graph of lesson 13: two communities, noisy features, 20 labels, and what classifiers see through many layers."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

NODES, CHANNELS, LABELLED = 200, 16, 20
INSIDE, ACROSS = 0.08, 0.02  # chance of an edge within a community, and between the two
SHIFT = 0.2  # of each feature, up in one community and down in the other; the noise has standard deviation 1
START = 0.2  # the share of the start that one form adds again in each layer
DRAWS = tuple(range(8))
GCN, HALF, ADDED = "GCN", "half kept", "start added"
REMOVED, RESCALED = "common part removed", "rescaled only"
FORMS = (GCN, HALF, ADDED)
TRAINED = (REMOVED, RESCALED, HALF, ADDED, GCN)
TRAINED_ON = (0, 1, 2, 3, 4, 5)  # draws
RATES = (3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1, 1.0)


@dataclass(frozen=True)
class Communities:
    """One draw: the adjacency matrix, the features, +1 or -1 for the community, and the nodes whose label is known."""

    adjacency: Tensor
    features: Tensor
    community: Tensor
    labelled: Tensor

    @property
    def hidden(self) -> Tensor:
        """The nodes whose label is not known, in order."""
        mask = torch.ones(len(self.community), dtype=torch.bool)
        mask[self.labelled] = False
        return mask.nonzero()[:, 0]

    @property
    def degrees(self) -> Tensor:
        """How many neighbours a node has, with itself: the row sums of A + I."""
        return self.adjacency.sum(1) + 1

    def layer(self) -> Tensor:
        """D^-1/2 (A + I) D^-1/2 (13.1)."""
        loops = self.adjacency + torch.eye(NODES, dtype=torch.float64)
        return loops / torch.outer(self.degrees, self.degrees).sqrt()

    def common(self) -> Tensor:
        """The vector of length 1 that a layer returns unchanged: the roots of the degrees over their norm."""
        return self.degrees.sqrt() / self.degrees.sum().sqrt()


@cache
def draw(seed: int, shift: float = SHIFT) -> Communities:
    """Draw 200 nodes: the first 100 are one community. Ten labels of each are known. `shift` 0: features of noise alone."""
    generator = torch.Generator().manual_seed(seed)
    community = torch.ones(NODES, dtype=torch.float64)
    community[NODES // 2 :] = -1
    chance = torch.where(community[:, None] == community, INSIDE, ACROSS)
    upper = (torch.rand(NODES, NODES, generator=generator, dtype=torch.float64) < chance).double().triu(1)
    noise = torch.randn(NODES, CHANNELS, generator=generator, dtype=torch.float64)
    features = noise + shift * community[:, None]
    halves = [torch.randperm(NODES // 2, generator=generator)[: LABELLED // 2] for _ in range(2)]
    labelled = torch.cat([halves[0], NODES // 2 + halves[1]])
    return Communities(upper + upper.T, features, community, labelled)


def without(x: Tensor, direction: Tensor) -> Tensor:
    """Take the multiple of a vector of length 1 out of each channel."""
    return x - direction[:, None] * (direction @ x)


def pattern(graph: Communities, name: str) -> Tensor:
    """Return a vector of length 1 over the nodes: the common part, equal entries (a mean), or a random direction."""
    random = torch.randn(NODES, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = {"common": graph.common(), "mean": torch.ones(NODES, dtype=torch.float64), "random": random}[name]
    return found / found.norm()


def blown_up(x: Tensor) -> Tensor:
    """Multiply all entries by one number, so that their root mean square is 1."""
    return x / x.square().mean().sqrt()


def through(
    graph: Communities, depth: int, form: str = GCN, *, remove: str = "", dtype: torch.dtype = torch.float64
) -> Tensor:
    """Return the features after `depth` layers without weights; `remove`: the `pattern` each takes out, and rescales."""
    layer, removed, start = (t.to(dtype) for t in (graph.layer(), pattern(graph, remove or "common"), graph.features))
    x = start
    for _ in range(depth):
        y = layer @ x
        x = {GCN: y, HALF: (x + y) / 2, ADDED: (1 - START) * y + START * start}[form]
        if remove:
            x = blown_up(without(x, removed))
    return x


def guesses(x: Tensor, graph: Communities, *, penalty: float = 1.0) -> Tensor:
    """Fit a ridge classifier on the labelled nodes; return its output for all nodes, above 0 for community +1.

    It is solved by the singular values of the centred rows, so that a small penalty costs no digits.
    """
    known = graph.labelled
    mean = x[known].mean(0)
    left, sizes, right = torch.linalg.svd(x[known] - mean, full_matrices=False)
    label = graph.community[known].to(x.dtype)
    weights = right.T @ (sizes / (sizes**2 + penalty) * (left.T @ (label - label.mean())))
    return (x - mean) @ weights + label.mean()


def accuracy(x: Tensor, graph: Communities, *, penalty: float = 1.0) -> float:
    """Return the share of the nodes without a known label that the ridge classifier gets right."""
    said = (guesses(x, graph, penalty=penalty) > 0) == (graph.community > 0)
    return float(said[graph.hidden].double().mean())


def _normalised(x: Tensor, form: str, common: Tensor) -> Tensor:
    """What a form does with (draws, nodes, rates, channels) after the product, before the ReLU."""
    if form == REMOVED:
        x = x - common[:, :, None, None] * torch.einsum("dn,dnrc->drc", common, x)[:, None]
    if form in (REMOVED, RESCALED):
        x = x / (x.square().mean((1, 3), keepdim=True) + 1e-12).sqrt()
    return x


def train(
    form: str,
    depth: int,
    rates: tuple[float, ...],
    draws: tuple[int, ...] = DRAWS,
    *,
    steps: int = 150,
    width: int = 16,
    frozen: bool = False,
) -> Tensor:
    """Train GCNs of one depth, all draws and rates side by side; return the logits (draws, nodes, rates).

    A linear layer and a ReLU, `depth` layers ReLU(normalise(A_hat H W)), a linear read-out. Adam, all labelled nodes in
    each step, float32. Products are shared by the rates of a draw. `frozen`: all weights but those of the read-out stay as
    they were drawn.
    """
    graphs = [draw(seed) for seed in draws]
    layer, start, common, label = (
        torch.stack(parts).float()
        for parts in zip(*((g.layer(), g.features, g.common(), g.community) for g in graphs), strict=True)
    )
    known = torch.stack([g.labelled for g in graphs])
    d, r = len(draws), len(rates)
    shapes = [(CHANNELS, width), *[(width, width)] * depth, (width, 1)]
    generator = torch.Generator().manual_seed(0)
    weights = [
        (torch.randn(d, 1, *shape, generator=generator, dtype=torch.float32) * (2 / shape[0]) ** 0.5)
        .repeat(1, r, 1, 1)
        .requires_grad_()
        for shape in shapes
    ]
    size = torch.tensor(rates, dtype=torch.float32)[:, None, None]

    def held() -> Tensor:
        h = torch.einsum("dnc,drce->dnre", start, weights[0]).relu()
        first = h
        for w in weights[1:-1]:
            y = (layer @ h.flatten(2)).view_as(h)
            if form == ADDED:
                y = (1 - START) * y + START * first
            y = torch.einsum("dnrc,drce->dnre", y, w)
            y = _normalised(y, form, common).relu()
            h = (h + y) / 2 if form == HALF else y
        return h

    moving = weights[-1:] if frozen else weights
    moments = [(torch.zeros_like(w), torch.zeros_like(w)) for w in moving]
    drawn = held().detach() if frozen else None

    def logits() -> Tensor:
        return torch.einsum("dnrc,drce->dnre", held() if drawn is None else drawn, weights[-1])[..., 0]

    at = known[:, :, None].expand(-1, -1, r)
    wanted = label.gather(1, known)[:, :, None]
    for t in range(1, steps + 1):
        loss = torch.nn.functional.softplus(-wanted * logits().gather(1, at)).mean(1).sum()
        for w, (first, second), slope in zip(moving, moments, torch.autograd.grad(loss, moving), strict=True):
            first.lerp_(slope, 0.1)
            second.lerp_(slope.square(), 0.001)
            step = (first / (1 - 0.9**t)) / ((second / (1 - 0.999**t)).sqrt() + 1e-8)
            w.data -= size * step
    return logits().detach()


def scored(logits: Tensor, draws: tuple[int, ...] = DRAWS) -> Mapping[str, Tensor]:
    """Return the accuracy (draws, rates) on 60 hidden nodes that choose the rate, and on the other 120."""
    found: dict[str, list[Tensor]] = {"choosing": [], "test": []}
    for seed, guess in zip(draws, logits, strict=True):
        graph = draw(seed)
        order = torch.randperm(len(graph.hidden), generator=torch.Generator().manual_seed(1000 + seed))
        right = (guess > 0) == (graph.community[:, None] > 0)
        for name, part in (("choosing", order[:60]), ("test", order[60:])):
            found[name].append(right[graph.hidden[part]].double().mean(0))
    return {name: torch.stack(values) for name, values in found.items()}


@cache
def readout_alone(form: str, depth: int) -> tuple[float, ...]:
    """Train the read-out behind layers that stay random; return the accuracy on each graph at the rate that was chosen."""
    found = scored(train(form, depth, RATES, TRAINED_ON, frozen=True), TRAINED_ON)
    best = int(found["choosing"].mean(0).argmax())
    return tuple(found["test"][:, best].tolist())
