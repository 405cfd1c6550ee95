"""Planted dictionaries: data whose true features are known, to test what an autoencoder recovers (lesson 36).

Rows are x = h V: the n rows v_j of V are unit vectors in R^d (the atoms, the true features) and h >= 0 is the
row's code, with few entries above 0. With n > d the atoms cannot all be orthogonal: they lie in superposition.

The frequency f_j of an atom is the share of rows in which it is active. `draw` gives every row a fixed number
of active atoms, all equally likely, or several such numbers in equal parts (light and heavy rows);
`draw_independent` gives each atom a frequency of its own, and `draw_nested` lets special atoms come only with a
general one.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

NO_PARENT = -1


class PlantedRows(NamedTuple):
    """Rows of data with the code that each was made from: rows = codes @ atoms (up to the rows' scale)."""

    rows: Float[Tensor, "rows d_model"]
    codes: Float[Tensor, "rows atoms"]


class PlantedDictionary:
    """n_atoms random directions in R^d_model, uniform on the unit sphere: the attribute `atoms`.

    Shapes: `atoms` is (n_atoms, d_model). Everything lives on the generator's device, in `dtype`.

    Raises:
        ValueError: `n_atoms` or `d_model` is below 1.
    """

    atoms: Float[Tensor, "atoms d_model"]

    def __init__(
        self, n_atoms: int, d_model: int, *, generator: torch.Generator, dtype: torch.dtype = torch.float32
    ) -> None:
        for name, value in (("n_atoms", n_atoms), ("d_model", d_model)):
            if value < 1:
                raise ValueError(f"{name} is {value}; expected at least 1")
        gaussian = torch.randn(n_atoms, d_model, generator=generator, dtype=dtype, device=generator.device)
        self.atoms = gaussian / gaussian.norm(dim=1, keepdim=True)

    @property
    def n_atoms(self) -> int:
        """Number of atoms n."""
        return self.atoms.shape[0]

    @property
    def d_model(self) -> int:
        """Dimension d of the rows."""
        return self.atoms.shape[1]

    def draw(
        self,
        n_rows: int,
        *,
        active: int | Sequence[int],
        generator: torch.Generator,
        strengths: tuple[float | int, float | int] = (0.5, 1.5),
        unit_rows: bool = False,
    ) -> PlantedRows:
        """Draw rows with exactly `active` atoms each, chosen uniformly; the frequency of an atom is active / n.

        A sequence, such as (2, 8), gives the kinds of rows, which alternate: as many light as heavy ones.
        Ranges: strengths h_j are uniform in `strengths`; `unit_rows` then scales every row to length 1.

        Raises:
            ValueError: `active` is not in 1 ... n_atoms, or `strengths` is not an interval above 0.
        """
        kinds = [active] if isinstance(active, int) else list(active)
        if not kinds or min(kinds) < 1 or max(kinds) > self.n_atoms:
            raise ValueError(
                f"active is {active}; expected numbers of atoms from 1 to n_atoms = {self.n_atoms}"
            )
        counts = torch.tensor(kinds, device=self.atoms.device).repeat(-(-n_rows // len(kinds)))[:n_rows]
        # The ranks of independent uniform numbers are a random order: the first `counts` of them are active.
        ranks = self._uniform(n_rows, generator).argsort(dim=1).argsort(dim=1)
        return self._rows(ranks < counts[:, None], strengths, unit_rows, generator)

    def draw_independent(
        self,
        n_rows: int,
        *,
        frequencies: Float[Tensor, " atoms"],
        generator: torch.Generator,
        strengths: tuple[float | int, float | int] = (0.5, 1.5),
        unit_rows: bool = False,
    ) -> PlantedRows:
        """Draw rows in which atom j is active with probability f_j, independently of the others.

        The number of active atoms then varies from row to row, and some rows are 0 (they stay 0 with
        `unit_rows`).

        Raises:
            ValueError: there is not one frequency in [0, 1] for each atom, or `strengths` is not an interval
                above 0.
        """
        self._check_frequencies(frequencies)
        on = self._uniform(n_rows, generator) < frequencies.to(self.atoms)
        return self._rows(on, strengths, unit_rows, generator)

    def draw_nested(
        self,
        n_rows: int,
        *,
        parents: Sequence[int],
        frequencies: Float[Tensor, " atoms"],
        generator: torch.Generator,
        strengths: tuple[float | int, float | int] = (0.5, 1.5),
        unit_rows: bool = False,
    ) -> PlantedRows:
        """Draw rows in which a special atom comes only with its general one, as a kind of dog only with "dog".

        Atom j with `parents[j]` = `NO_PARENT` (-1) is active with probability f_j; any other where its parent is
        active, and there with probability f_j. All draws are independent otherwise.

        Raises:
            ValueError: a parent is not an atom before its child, or as for `draw_independent`.
        """
        if len(parents) != self.n_atoms or not all(NO_PARENT <= p < j for j, p in enumerate(parents)):
            raise ValueError(
                f"parents are {list(parents)}; expected for each of {self.n_atoms} atoms the number of an atom "
                f"before it, or {NO_PARENT}"
            )
        self._check_frequencies(frequencies)
        on = self._uniform(n_rows, generator) < frequencies.to(self.atoms)
        for child, parent in enumerate(parents):
            if parent != NO_PARENT:
                on[:, child] &= on[:, parent]
        return self._rows(on, strengths, unit_rows, generator)

    def _check_frequencies(self, frequencies: Float[Tensor, " atoms"]) -> None:
        if len(frequencies) != self.n_atoms or not ((frequencies >= 0) & (frequencies <= 1)).all():
            raise ValueError(
                f"frequencies are {len(frequencies)} numbers from {float(frequencies.min()):g} to "
                f"{float(frequencies.max()):g}; expected n_atoms = {self.n_atoms} probabilities"
            )

    def _uniform(self, n_rows: int, generator: torch.Generator) -> Float[Tensor, "rows atoms"]:
        options = {"generator": generator, "dtype": self.atoms.dtype, "device": self.atoms.device}
        return torch.rand(n_rows, self.n_atoms, **options)

    def _rows(
        self,
        on: Bool[Tensor, "rows atoms"],
        strengths: tuple[float | int, float | int],
        unit_rows: bool,
        generator: torch.Generator,
    ) -> PlantedRows:
        low, high = strengths
        if not 0 < low <= high < float("inf"):
            raise ValueError(
                f"strengths is {strengths}; expected an interval (low, high) with 0 < low <= high"
            )
        codes = on * (low + (high - low) * self._uniform(len(on), generator))
        if unit_rows:
            # A row of zeros has no direction: it is divided by 1.
            norms = (codes @ self.atoms).norm(dim=1, keepdim=True)
            codes = codes / torch.where(norms > 0, norms, 1)
        return PlantedRows(codes @ self.atoms, codes)


def log_spaced_frequencies(n_atoms: int, *, highest: float, lowest: float) -> Float[Tensor, " atoms"]:
    """f_j = highest (lowest / highest)^(j / (n - 1)): from the highest frequency to the lowest in equal ratios.

    Raises:
        ValueError: not 0 < lowest <= highest <= 1.
    """
    if not 0 < lowest <= highest <= 1:
        raise ValueError(f"expected 0 < lowest <= highest <= 1, got lowest {lowest} and highest {highest}")
    shares = torch.linspace(0, 1, n_atoms, dtype=torch.float64)
    return highest * (lowest / highest) ** shares
