"""Minimax estimation of a proportion that is known to be at most eta (lesson 30).

X counts successes in n trials with probability theta, and theta lies in [0, eta]. A rule is the vector of its estimates
delta_0 ... delta_n, one for each count. Its risk at theta is the mean squared error; the minimax rule has the smallest
largest risk. The other player is nature, who draws theta from a prior: for every rule and every prior

    Bayes risk of the prior  <=  largest risk of the rule,

so that a rule and a prior for which both agree prove each other right. `Solution.gap` is what separates them.
"""

from dataclasses import dataclass
from functools import cache
from itertools import product
from math import comb

import numpy as np
import torch
from jaxtyping import Float
from scipy import sparse
from scipy.optimize import brentq, root
from scipy.special import roots_jacobi
from torch import Tensor

F64 = torch.float64


def _check(n: int, eta: float | int = 1.0) -> None:
    if not isinstance(n, int) or n < 1:
        raise ValueError(f"n must be a whole number of trials, at least 1, got {n!r}")
    if not 0 < eta <= 1:
        raise ValueError(f"eta must lie in (0, 1], got {eta!r}")


# Risk


@cache
def _coefficients(n: int) -> list[float]:
    return [float(comb(n, x)) for x in range(n + 1)]


def likelihood(theta: Float[Tensor, "*points"], n: int) -> Float[Tensor, "*points counts"]:
    """p_x(theta) = C(n, x) theta^x (1 - theta)^(n - x) for x = 0 ... n (30.1), in the last dimension.

    Raises:
        ValueError: n is not a whole number from 1 to 1000; the coefficients of more trials exceed float64.
    """
    _check(n)
    if n > 1000:
        raise ValueError(f"n must be at most 1000 for probabilities in float64, got {n}")
    x = torch.arange(n + 1, dtype=theta.dtype, device=theta.device)
    ways = x.new_tensor(_coefficients(n))
    return ways * theta.unsqueeze(-1) ** x * (1 - theta.unsqueeze(-1)) ** (n - x)


def risk_by_sum(rule: Float[Tensor, " counts"], theta: Float[Tensor, ""]) -> Float[Tensor, ""]:
    """R(theta) = sum_x p_x(theta) (delta_x - theta)^2 (30.1), term by term, to be read."""
    p = likelihood(theta, len(rule) - 1)
    return sum(p[x] * (rule[x] - theta) ** 2 for x in range(len(rule)))


def risk(
    rule: Float[Tensor, "*rules counts"], theta: Float[Tensor, " points"]
) -> Float[Tensor, "*rules points"]:
    """R(theta) of one rule or of several, at all points (30.1)."""
    p = likelihood(theta, rule.shape[-1] - 1)
    return (p * (rule.unsqueeze(-2) - theta.unsqueeze(-1)).square()).sum(dim=-1)


def risk_slope(
    rule: Float[Tensor, "*rules counts"], theta: Float[Tensor, " points"]
) -> Float[Tensor, "*rules points"]:
    """dR / dtheta (30.9), by hand: differences of neighbouring estimates under n - 1 trials, and the bias.

    R' = n sum_x p_x^(n-1) (delta_(x+1) - delta_x) (delta_(x+1) + delta_x - 2 theta) - 2 sum_x p_x (delta_x - theta)
    """
    n, t, d = rule.shape[-1] - 1, theta.unsqueeze(-1), rule.unsqueeze(-2)
    fewer = likelihood(theta, n - 1) if n > 1 else torch.ones_like(t)
    moved = n * (fewer * (d[..., 1:] - d[..., :-1]) * (d[..., 1:] + d[..., :-1] - 2 * t)).sum(dim=-1)
    return moved - 2 * (likelihood(theta, n) * (d - t)).sum(dim=-1)


def worst_case(
    rule: Float[Tensor, " counts"], eta: float | int, *, cells: int = 1000
) -> tuple[float, Float[Tensor, " peaks"]]:
    """Return the largest risk on [0, eta] and the points where it is reached to one part in a million.

    The candidates are both ends and every point at which the slope, on a grid of `cells`, changes from + to -, which
    bisection then finds to a billionth of eta.

    Raises:
        ValueError: eta is not in (0, 1].
    """
    _check(len(rule) - 1, eta)
    grid = torch.linspace(0, float(eta), cells + 1, dtype=rule.dtype, device=rule.device)
    rising = risk_slope(rule, grid) > 0
    found = (rising[:-1] & ~rising[1:]).nonzero().flatten()
    low, high = grid[found], grid[found + 1]
    for _ in range(20):
        middle = (low + high) / 2
        up = risk_slope(rule, middle) > 0
        low, high = torch.where(up, middle, low), torch.where(up, high, middle)
    points = torch.cat([grid[:1], (low + high) / 2, grid[-1:]])
    values = risk(rule, points)
    return float(values.max()), points[values >= values.max() * (1 - 1e-6)]


# Nature's priors


def bayes_rule(atoms: Float[Tensor, " k"], weights: Float[Tensor, " m"], n: int) -> Float[Tensor, " counts"]:
    """delta_x = E(theta | X = x) (30.2) under a prior of k atoms; the prior's mean for counts that cannot occur.

    Raises:
        ValueError: atoms and weights differ in shape.
    """
    if atoms.shape != weights.shape:
        raise ValueError(
            f"weights must have the shape of atoms, {tuple(atoms.shape)}, got {tuple(weights.shape)}"
        )
    joint = weights.unsqueeze(-1) * likelihood(atoms, n)
    seen = joint.sum(dim=0)
    mean = (weights * atoms).sum() / weights.sum()
    possible = seen > 0
    return torch.where(possible, atoms @ joint / torch.where(possible, seen, 1.0), mean)


def bayes_risk(atoms: Float[Tensor, " k"], weights: Float[Tensor, " k"], n: int) -> Float[Tensor, ""]:
    """r(prior) = sum_j w_j R(theta_j) of the Bayes rule (30.2): below the largest risk of every rule.

    Raises:
        ValueError: atoms and weights differ in shape.
    """
    return weights @ risk(bayes_rule(atoms, weights, n), atoms)


@dataclass(frozen=True)
class Solution:
    """A rule and a prior, with what they prove: the minimax risk lies in [lower, upper].

    Shapes: `rule` (n + 1,), `atoms` and `weights` (k,), ascending. `lower` is the Bayes risk of the prior, `upper` the
    largest risk of the rule on [0, eta].
    """

    rule: Float[Tensor, " counts"]
    atoms: Float[Tensor, " k"]
    weights: Float[Tensor, " k"]
    lower: float
    upper: float

    @property
    def gap(self) -> float:
        """(upper - lower) / lower: 0 up to rounding proves that both are optimal."""
        return (self.upper - self.lower) / self.lower if self.lower > 0 else float("inf")

    @classmethod
    def of(cls, atoms: Tensor, weights: Tensor, *, n: int, eta: float | int) -> "Solution":
        """A prior and its Bayes rule, with both bounds measured."""
        rule = bayes_rule(atoms, weights, n)
        return cls(rule, atoms, weights, float(weights @ risk(rule, atoms)), worst_case(rule, eta)[0])


# Closed forms


def one_trial_rule(eta: float | int) -> tuple[float, float]:
    """The minimax (a, b) = (delta_0, delta_1) for one trial (30.4).

    Raises:
        ValueError: eta is not in (0, 1].
    """
    _check(1, eta)
    s = max(1 - eta, 0.25) ** 0.5
    return s * (1 - s), 1 - s * s


def two_point(n: int, eta: float | int) -> Solution:
    """The prior on 0 and eta that makes the risk at both equal (30.5), with its Bayes rule.

    delta_0 = eta s / (1 + s) and delta_x = eta for x >= 1, with s = (1 - eta)^(n/2); eta has the weight 1 / (1 + s). It
    is minimax exactly up to `two_point_limit(n)`; beyond, the gap says by how much it is not.

    Raises:
        ValueError: n or eta is out of range, or eta is 1.
    """
    _check(n, eta)
    if eta == 1:
        raise ValueError("eta must be below 1 for two points, got 1: from 1, a count of 0 never comes")
    s = (1 - eta) ** (n / 2)
    atoms = torch.tensor([0, eta], dtype=F64)
    return Solution.of(atoms, torch.tensor([s / (1 + s), 1 / (1 + s)], dtype=F64), n=n, eta=eta)


def two_point_limit(n: int) -> float:
    """eta_n, up to which two points suffice: the root of n eta (1 + 2 s) = 2 s (1 + s) (30.6).

    Raises:
        ValueError: n is not a whole number of at least 1.
    """
    _check(n)

    def excess(eta: float) -> float:
        s = (1 - eta) ** (n / 2)
        return n * eta * (1 + 2 * s) - 2 * s * (1 + s)

    return float(brentq(excess, 0, 1, xtol=1e-14))


def classical_rule(n: int) -> Float[Tensor, " counts"]:
    """(x + sqrt(n)/2) / (n + sqrt(n)) (30.10): minimax for eta = 1, with the risk 1 / (4 (1 + sqrt n)^2) everywhere.

    Raises:
        ValueError: n is not a whole number of at least 1.
    """
    _check(n)
    return (torch.arange(n + 1, dtype=F64) + n**0.5 / 2) / (n + n**0.5)


def classical_prior(n: int) -> tuple[Float[Tensor, " k"], Float[Tensor, " k"]]:
    """Atoms and weights of the shortest prior [0, eta] whose Bayes rule is the classical one (30.11).

    The Bayes rule sees only the first n + 1 moments. Gauss' quadrature of the Beta(sqrt(n)/2, sqrt(n)/2) prior keeps
    them with n/2 + 1 atoms for even n; Radau's, with 0 among its atoms, with (n + 3)/2 for odd n.

    Raises:
        ValueError: n is not a whole number of at least 1.
    """
    _check(n)
    half, odd = n**0.5 / 2, n % 2
    nodes, weights = roots_jacobi(n // 2 + 1, half - 1, half - 1 + odd)
    atoms = (1 + nodes) / 2
    weights = weights / weights.sum()
    if odd:  # the nodes are those of theta times the prior, whose whole weight is the prior's mean, 1/2
        weights = weights / atoms / 2
        atoms, weights = np.append(0.0, atoms), np.append(1 - weights.sum(), weights)
    return torch.from_numpy(atoms), torch.from_numpy(weights)


def classical_limit(n: int) -> float:
    """From which eta on the classical rule is minimax on [0, eta]: the largest of these atoms.

    Raises:
        ValueError: n is not a whole number of at least 1.
    """
    return float(classical_prior(n)[0].max())


# Any n and eta


def prior_by_updates(n: int, eta: float | int, *, points: int = 101, steps: int = 3000) -> Solution:
    """Nature learns on a grid, to be read: a point gains weight in proportion to the risk there (30.7).

    Raises:
        ValueError: n or eta is out of range.
    """
    _check(n, eta)
    atoms = torch.linspace(0, float(eta), points, dtype=F64)
    weights = torch.full_like(atoms, 1 / points)
    for _ in range(steps):
        weights = weights * risk(bayes_rule(atoms, weights, n), atoms)
        weights = weights / weights.sum()
    return Solution.of(atoms, weights, n=n, eta=eta)


def prior_on_grid(
    n: int, eta: float | int, *, atoms: Float[Tensor, " points"] | None = None, steps: int = 80
) -> Solution:
    """The same by Newton's method with a barrier; by default on 201 points, denser near both ends.

    The Bayes risk is concave in the weights, its gradient is the risk R at the points, and its second derivative is
    -2 G G^T with G_jx = p_x(theta_j) (theta_j - delta_x) / sqrt(m_x), where m_x is how often x is seen. Primal and dual
    steps on R + z = lambda, z w = mu, sum w = 1.

    Raises:
        ValueError: n or eta is out of range.
    """
    _check(n, eta)
    if atoms is None:
        atoms = eta * (1 - torch.linspace(0, torch.pi, 201, dtype=F64).cos()) / 2
    p, ones = likelihood(atoms, n), torch.ones_like(atoms)
    w = ones / len(ones)
    z = None
    for _ in range(steps):
        seen = w @ p
        apart = atoms[:, None] - (w * atoms) @ p / seen
        R = (p * apart.square()).sum(dim=1)
        if z is None:
            unit = R.max()
            level = 1.1
            z = level - R / unit
        R = R / unit
        if R.max() - w @ R < 1e-11 * (w @ R):
            break
        mu = 0.1 * (w @ z) / len(ones)
        G = p * apart * (2 / unit / seen).sqrt()
        first, second = torch.linalg.solve(
            G @ G.T + torch.diag(z / w), torch.stack([R - level + mu / w, ones], dim=1)
        ).T
        d_level = (first.sum() - 1 + w.sum()) / second.sum()
        dw = first - d_level * second
        dz = mu / w - z - z / w * dw
        length = min(1.0, 0.95 / float(torch.maximum((-dw / w).max(), (-dz / z).max()).clamp(min=1e-9)))
        w, z, level = w + length * dw, z + length * dz, level + length * d_level
    return Solution.of(atoms, w / w.sum(), n=n, eta=eta)


def _clusters(found: Solution) -> tuple[np.ndarray, np.ndarray]:
    """One atom for each run of neighbouring grid points that carry weight."""
    atoms, weights = found.atoms.numpy(), found.weights.numpy()
    runs = np.split(np.arange(len(atoms)), np.nonzero(np.diff((weights > 1e-7).astype(int)))[0] + 1)
    runs = [run for run in runs if weights[run[0]] > 1e-7]
    sums = np.array([weights[run].sum() for run in runs])
    return np.array([weights[run] @ atoms[run] for run in runs]) / sums, sums / sums.sum()


def _polished(start: tuple[np.ndarray, np.ndarray], unit: float, n: int, eta: float) -> list[Solution]:
    """Solve R = level at all atoms and R' = 0 at inner ones; an atom near an end is tried there, and free."""
    solutions = []
    near = [start[0][0] < 0.02 * eta, start[0][-1] > 0.98 * eta]
    for ends in product(*([True, False] if close else [False] for close in near)):
        atoms, weights = start[0].copy(), start[1]
        free = np.ones(len(atoms), dtype=bool)
        for place, held, value in ((0, ends[0], 0.0), (-1, ends[1], float(eta))):
            if held:
                atoms[place], free[place] = value, False

        def placed(u: np.ndarray, atoms=atoms, free=free) -> tuple[Tensor, Tensor]:
            moved = atoms.copy()
            moved[free] = u[: free.sum()] * eta
            return torch.from_numpy(moved), torch.from_numpy(u[free.sum() : -1])

        def unfulfilled(u: np.ndarray, placed=placed, free=free) -> np.ndarray:
            t, w = placed(u)
            rule = bayes_rule(t, w, n)
            slopes = risk_slope(rule, t).numpy()[free] * eta
            return np.concatenate([slopes / unit, risk(rule, t).numpy() / unit - u[-1], [w.sum() - 1]])

        u = root(
            unfulfilled,
            np.concatenate([atoms[free] / eta, weights, [1.0]]),
            options={"xtol": 1e-14, "maxfev": 300},
        ).x
        t, w = placed(u)
        if (w > 0).all() and (t.diff() > 0).all() and t[0] >= 0 and t[-1] <= eta:
            solutions.append(Solution.of(t, w / w.sum(), n=n, eta=eta))
            if solutions[-1].gap < 1e-11:
                break
    return solutions


def minimax(n: int, eta: float | int, *, gap: float | int = 1e-4) -> Solution:
    """The minimax rule for theta in [0, eta] with a least favourable prior, which certifies it (30.3).

    A prior on a grid, its clusters taken for atoms, and Newton's method on the places and weights of the atoms; where
    that fails, a finer grid around the clusters. Where the risk is nearly flat (eta near `classical_limit(n)` or beyond
    it) very many priors are least favourable, and the grid's is returned. Source: the method was made for this course.

    Raises:
        ValueError: n or eta is out of range.
        RuntimeError: the relative gap that was reached is larger than `gap`.
    """
    _check(n, eta)
    best, around = prior_on_grid(n, eta), eta * torch.linspace(-0.015, 0.015, 13, dtype=F64)
    for _ in range(4):
        atoms, weights = _clusters(best)
        if not 1 < len(atoms) <= n // 2 + 2:
            break
        polished = _polished((atoms, weights), best.lower, n, eta)
        zoomed = (torch.from_numpy(atoms)[:, None] + around).clamp(0, eta).unique()
        best = min([best, *(polished or [prior_on_grid(n, eta, atoms=zoomed)])], key=lambda found: found.gap)
        if best.gap < 1e-11 or len(best.atoms) < len(zoomed):
            break
        around = around / 5
    if not best.gap <= gap:
        raise RuntimeError(
            f"the gap between both bounds is {best.gap:.1e} for n = {n} and eta = {eta:g}, at most {gap:g} was asked for"
        )
    return best


def minimax_by_cones(n: int, eta: float | int, *, points: int = 241) -> Float[Tensor, " counts"]:
    """The rule with the smallest largest risk on a grid, as a second-order cone programme of CLARABEL.

    The smallest r with ||(sqrt(p_x(theta)) (delta_x - theta))_x||_2 <= r at every point: r^2 is the largest risk. Uses no
    prior, so that it is independent of `minimax`.

    Raises:
        ValueError: n or eta is out of range.
        RuntimeError: the solver gives up.
    """
    import clarabel

    _check(n, eta)
    atoms = torch.linspace(0, float(eta), points, dtype=F64)
    roots = likelihood(atoms, n).sqrt().numpy()
    # Unknowns (r, delta) in units of eta; slack = b - A u lies in a cone (r, root_x (delta_x - theta)) for each point.
    x = np.arange(n + 1)
    rows = np.concatenate([np.r_[0, 1 + x] + (n + 2) * j for j in range(points)])
    columns = np.tile(np.r_[0, 1 + x], points)
    entries = np.column_stack([-np.ones(points), -roots]).ravel()
    matrix = sparse.csc_matrix((entries, (rows, columns)), shape=((n + 2) * points, n + 2))
    shift = np.column_stack([np.zeros(points), -roots * (atoms.numpy() / eta)[:, None]]).ravel()
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    found = clarabel.DefaultSolver(
        sparse.csc_matrix((n + 2, n + 2)),
        np.r_[1.0, np.zeros(n + 1)],
        matrix,
        shift,
        [clarabel.SecondOrderConeT(n + 2)] * points,
        settings,
    ).solve()
    if str(found.status) not in ("Solved", "AlmostSolved"):
        raise RuntimeError(f"CLARABEL ended with status {found.status} for n = {n} and eta = {eta:g}")
    return eta * torch.tensor(found.x[1:], dtype=F64)
