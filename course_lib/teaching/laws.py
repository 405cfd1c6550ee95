"""Random inputs of an exercise, written down by name, shape and law.

    draw = inputs(n=whole(3, 5), query=normal("n 2"), scale=uniform(0.5, 2))

draws a whole number n, then a float64 tensor of shape (n, 2), then a number. A shape names sizes that were drawn
before it, or gives them; a plain function takes earlier inputs by their names, and the generator as `generator`.
Sizes and other names that the answer's function does not take are left out when it is called.
"""

import inspect
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

import torch


@dataclass(frozen=True)
class Law:
    """How one input is drawn: `draw(generator, earlier)`, with all inputs drawn so far by name."""

    draw: Callable[[torch.Generator, Mapping[str, Any]], Any]


@dataclass(frozen=True)
class Inputs:
    """Laws by name, drawn in order; with the probability `share` one of the given `cases` is taken instead."""

    laws: Mapping[str, Any]
    cases: tuple[Mapping[str, Any], ...] = ()
    share: float = 0.0

    def sometimes(self, share: float, *cases: Mapping[str, Any]) -> "Inputs":
        """Take one of `cases` in the place of random inputs with the probability `share`: edges worth meeting."""
        return replace(self, cases=cases, share=share)

    def __call__(self, generator: torch.Generator) -> dict[str, Any]:
        """Draw one set of inputs."""
        if self.cases and float(torch.rand((), generator=generator)) < self.share:
            return deepcopy(dict(self.cases[int(torch.randint(len(self.cases), (), generator=generator))]))
        drawn: dict[str, Any] = {}
        for name, law in self.laws.items():
            if isinstance(law, Law):
                drawn[name] = law.draw(generator, drawn)
            elif callable(law):
                known = {**drawn, "generator": generator}
                drawn[name] = law(**{key: known[key] for key in inspect.signature(law).parameters})
            else:
                drawn[name] = deepcopy(law)
        return drawn


def inputs(**laws: Any) -> Inputs:
    """Return a drawing of inputs: each is a law, a function of earlier inputs, or a constant."""
    return Inputs(laws)


def _sizes(shape: str, drawn: Mapping[str, Any]) -> list[int]:
    """Turn "n 2" into sizes; raise ValueError for a name that was not drawn before."""
    if unknown := [part for part in shape.split() if not part.isdigit() and part not in drawn]:
        raise ValueError(
            f"shape {shape!r} names {unknown[0]!r}, and the inputs drawn before it are {list(drawn)}"
        )
    return [int(part) if part.isdigit() else drawn[part] for part in shape.split()]


def whole(low: int, high: int) -> Law:
    """A whole number from `low` to `high`, both included."""
    return Law(lambda generator, _: int(torch.randint(low, high + 1, (), generator=generator)))


def one_of(*options: Any) -> Law:
    """One of the options."""
    return Law(
        lambda generator, _: deepcopy(options[int(torch.randint(len(options), (), generator=generator))])
    )


def uniform(low: float | int, high: float | int, shape: str | None = None, *, digits: int = 2) -> Law:
    """A number, or a float64 tensor where a shape is given, uniform in [low, high] and rounded to `digits`."""

    def draw(generator, drawn):
        sizes = () if shape is None else _sizes(shape, drawn)
        values = low + (high - low) * torch.rand(sizes, generator=generator, dtype=torch.float64)
        return round(float(values), digits) if shape is None else values.round(decimals=digits)

    return Law(draw)


def normal(shape: str, *, digits: int = 1) -> Law:
    """A float64 tensor of standard normal numbers, rounded to `digits` so that they can be read."""
    return Law(
        lambda generator, drawn: torch.randn(
            _sizes(shape, drawn), generator=generator, dtype=torch.float64
        ).round(decimals=digits)
    )


def integers(shape: str, low: int, high: int) -> Law:
    """A float64 tensor of whole numbers from `low` to `high`, both included."""
    return Law(
        lambda generator, drawn: torch.randint(
            low, high + 1, _sizes(shape, drawn), generator=generator
        ).double()
    )
