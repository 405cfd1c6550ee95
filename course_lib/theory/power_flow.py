"""Optimal power flow as a quadratic programme in complex voltages, and its conic relaxations (lesson 32).

Buses hold voltages V_i, complex, in units of the nominal one; lines have series admittances y = g + j b. Powers are
quadratic in V, hence linear in W = V V^H: the real w_i = |V_i|^2 and, for a pair i < j, V_i conj(V_j) = c_ij + j s_ij. A
2 x 2 minor of W is the cone c^2 + s^2 <= w_i w_j, one for each line (Jabr's relaxation). Powers are per unit.
"""

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Complex, Float, Int
from scipy import sparse
from scipy.optimize import minimize

from course_lib.theory.sparse_socp import all_pairs, conic_solve

Floats = Float[np.ndarray, " n"]


@dataclass(frozen=True)
class Network:
    """Buses and lines; `cost` is the price of a unit of real power at each bus.

    Shapes: `lines` (L, 2) of buses i < j; `admittance` (L,), complex; `limit` (L,), the most real power that may enter a
    line at either end; all others (n,): `demand`, complex; `cost`; `p_most`, real generation in [0, p_most]; `q_most`,
    reactive generation in [-q_most, q_most]. |V| lies in [`v_low`, `v_high`] everywhere.

    Raises:
        ValueError: shapes do not fit, a line is not a pair i < j of buses, or stands twice.
    """

    lines: Int[np.ndarray, "L 2"]
    admittance: Complex[np.ndarray, " lines1"]
    limit: Float[np.ndarray, " lines2"]
    demand: Complex[np.ndarray, " n"]
    cost: Float[np.ndarray, " n1"]
    p_most: Float[np.ndarray, " n2"]
    q_most: Float[np.ndarray, " n3"]
    v_low: float | int = 0.95
    v_high: float | int = 1.05

    def __post_init__(self):
        n, count = len(self.demand), len(self.lines)
        for name, wanted in (
            ("admittance", count), ("limit", count), ("cost", n), ("p_most", n), ("q_most", n)
        ):  # fmt: skip
            if len(getattr(self, name)) != wanted:
                raise ValueError(f"{name} must have {wanted} entries, got {len(getattr(self, name))}")
        i, j = self.lines.T
        if not ((i >= 0) & (i < j) & (j < n)).all() or len(np.unique(self.lines, axis=0)) < count:
            raise ValueError(
                f"lines must be different pairs i < j of buses 0 to {n - 1}, got {self.lines.tolist()}"
            )

    @property
    def n(self) -> int:
        """The number of buses."""
        return len(self.demand)

    def without(self, *dropped: int) -> "Network":
        """The same network with some lines, given by their places, taken out."""
        rest = np.setdiff1d(np.arange(len(self.lines)), dropped)
        return replace(self, lines=self.lines[rest], admittance=self.admittance[rest], limit=self.limit[rest])


@dataclass(frozen=True)
class FlowRelaxation:
    """A solved relaxation: the bound `value`; w (n,) and, on `pairs` (v, 2), c + j s (v,); the number of `cones`."""

    value: float
    w: Floats
    pairs: Int[np.ndarray, "v 2"]
    products: Complex[np.ndarray, " v"]
    cones: int

    def slack(self, lines: Int[np.ndarray, "L 2"]) -> Float[np.ndarray, " L"]:
        """1 - |W_ij|^2 / (w_i w_j) on every line: 0 where the cone is tight."""
        i, j = lines.T
        return 1 - np.abs(_on(self, lines)) ** 2 / (self.w[i] * self.w[j])


def _on(found: FlowRelaxation, lines: np.ndarray) -> np.ndarray:
    n = len(found.w)
    return found.products[np.searchsorted(found.pairs @ [n, 1], lines @ [n, 1])]


def powers_at(network: Network, V: Complex[np.ndarray, " n"]) -> Complex[np.ndarray, " n"]:
    """The complex power that each bus sends into its lines: V_i conj(sum of y (V_i - V_j)) (32.12), to be read."""
    sent = np.zeros(network.n, dtype=complex)
    for (i, j), y in zip(network.lines, network.admittance, strict=True):
        current = y * (V[i] - V[j])
        sent[i] += V[i] * np.conj(current)
        sent[j] -= V[j] * np.conj(current)
    return sent


def lift(V: Complex[np.ndarray, " n"], pairs: Int[np.ndarray, "v 2"]) -> Float[np.ndarray, " size"]:
    """(w, c, s) of voltages, in the order of the relaxations' variables."""
    i, j = pairs.T
    products = V[i] * np.conj(V[j])
    return np.concatenate([np.abs(V) ** 2, products.real, products.imag])


def _flows(network: Network, pairs: np.ndarray) -> tuple[sparse.csr_array, ...]:
    """Real and reactive power into every line at its first and at its last bus, linear in (w, c, s)."""
    n, v, count = network.n, len(pairs), len(network.lines)
    i, j = network.lines.T
    at = np.searchsorted(pairs @ [n, 1], network.lines @ [n, 1])
    g, b, row = network.admittance.real, network.admittance.imag, np.arange(count)

    def rows(bus, own, cosine, sine):
        place = (np.tile(row, 3), np.concatenate([bus, n + at, n + v + at]))
        return sparse.csr_array((np.concatenate([own, cosine, sine]), place), shape=(count, n + 2 * v))

    return rows(i, g, -g, -b), rows(i, -b, b, -g), rows(j, g, -g, b), rows(j, -b, b, g)


def _programme(network: Network, pairs: np.ndarray) -> tuple[np.ndarray, float, sparse.csr_array, np.ndarray]:
    """Cost, its constant, and rows z <= right for all that is linear in W (32.13)."""
    n, v, (i, j) = network.n, len(pairs), network.lines.T
    p_first, q_first, p_last, q_last = _flows(network, pairs)
    lines = np.arange(len(network.lines))
    one = np.ones(len(lines))
    first = sparse.csr_array((one, (i, lines)), shape=(n, len(lines)))
    last = sparse.csr_array((one, (j, lines)), shape=(n, len(lines)))
    P, Q = first @ p_first + last @ p_last, first @ q_first + last @ q_last  # sent into the lines
    w = sparse.eye_array(n, n + 2 * v, format="csr")
    p, q = network.demand.real, network.demand.imag
    rows = sparse.vstack([P, -P, Q, -Q, w, -w, p_first, p_last], format="csr")
    high, low = np.full(n, network.v_high**2), np.full(n, network.v_low**2)
    right = [network.p_most - p, p, network.q_most - q, network.q_most + q, high, -low]
    return (
        P.T @ network.cost, float(network.cost @ p), rows, np.concatenate([*right, network.limit, network.limit]),
    )  # fmt: skip


def _equations(rows: sparse.csr_array, right: np.ndarray, n: int, network: Network):
    """Buses without a generator have equations in the place of two inequalities, which a solver likes better."""
    equal = np.zeros(len(right), dtype=bool)
    drop = np.zeros(len(right), dtype=bool)
    for start, none in ((0, network.p_most == 0), (2 * n, network.q_most == 0)):
        equal[start : start + n], drop[start + n : start + 2 * n] = none, none
    keep = ~equal & ~drop & np.isfinite(right)
    return equal, keep


def _solve(network: Network, pairs: np.ndarray, cone_rows, cones, count: int, made=None) -> FlowRelaxation:
    """Minimise over variables from which `made` makes (w, c, s), by default these themselves."""
    n, v = network.n, len(pairs)
    cost, constant, rows, right = _programme(network, pairs)
    equal, keep = _equations(rows, right, n, network)
    made = sparse.eye_array(n + 2 * v, format="csr") if made is None else made
    z = made @ conic_solve(
        made.T @ cost,
        sparse.vstack([rows[equal] @ made, rows[keep] @ made, cone_rows]),
        np.concatenate([right[equal], right[keep], np.zeros(cone_rows.shape[0])]),
        [("zero", int(equal.sum())), ("nonnegative", int(keep.sum())), *cones],
        tolerance=1e-7,
    )
    products = z[n : n + v] + 1j * z[n + v :]
    return FlowRelaxation(float(cost @ z + constant), z[:n], pairs, products, count)


def _sorted(network: Network) -> np.ndarray:
    return network.lines[np.argsort(network.lines @ [network.n, 1])]


def flow_socp(network: Network, *, dense: bool = False) -> FlowRelaxation:
    """The cheapest generation with c^2 + s^2 <= w_i w_j on lines (32.8), or on all pairs of buses.

    Raises:
        ImportError, ValueError, RuntimeError: see `sparse_socp.conic_solve`.
    """
    n = network.n
    pairs = all_pairs(n) if dense else _sorted(network)
    (i, j), v = pairs.T, len(pairs)
    at, own = 4 * np.arange(v), np.arange(v)
    # |(w_i - w_j, 2 c, 2 s)| <= w_i + w_j
    place = (
        np.concatenate([at, at, at + 1, at + 1, at + 2, at + 3]),
        np.concatenate([i, j, i, j, n + own, n + v + own]),
    )
    minus = np.repeat([-1.0, -1.0, -1.0, 1.0, -2.0, -2.0], v)
    cone_rows = sparse.csr_array((minus, place), shape=(4 * v, n + 2 * v))
    return _solve(network, pairs, cone_rows, [("second-order", 4, v)], v)


def flow_sdp(network: Network) -> FlowRelaxation:
    """The cheapest generation with W positive semidefinite.

    The variable is a real X >= 0 of side 2 n in the place of (Re V, Im V) (Re V, Im V)^T; W is linear in it.

    Raises:
        ImportError, ValueError, RuntimeError: see `sparse_socp.conic_solve`.
    """
    n = network.n
    pairs = all_pairs(n)
    (i, j), v, bus = pairs.T, len(pairs), np.arange(n)
    size = n * (2 * n + 1)
    column, row = np.tril_indices(2 * n)  # the upper triangle by columns
    scale = np.where(row == column, 1.0, 2**0.5)
    entry = lambda row, column: column * (column + 1) // 2 + row  # row <= column  # noqa: E731
    parts = [  # where in (w, c, s), which entry of X, sign
        (bus, entry(bus, bus), 1.0), (bus, entry(n + bus, n + bus), 1.0),
        (n + np.arange(v), entry(i, j), 1.0), (n + np.arange(v), entry(n + i, n + j), 1.0),
        (n + v + np.arange(v), entry(j, n + i), 1.0), (n + v + np.arange(v), entry(i, n + j), -1.0),
    ]  # fmt: skip
    values = np.concatenate([np.full(len(where), sign) for where, _, sign in parts])
    place = tuple(np.concatenate([part[k] for part in parts]) for k in (0, 1))
    made = sparse.csr_array((values, place), shape=(n + 2 * v, size))
    return _solve(network, pairs, -sparse.diags_array(scale).tocsr(), [("psd", 2 * n)], 1, made)


def flow_local(network: Network, start: Complex[np.ndarray, " n"] | None = None):
    """Return (cost, voltages) of a local solution in the voltages themselves, by SLSQP: a bound from above.

    Raises:
        RuntimeError: no feasible voltages were found.
    """
    n, pairs = network.n, _sorted(network)
    cost, constant, rows, right = _programme(network, pairs)
    equal, keep = _equations(rows, right, n, network)
    i, j = pairs.T
    lines = np.arange(len(pairs))

    def slope(x):
        """d(w, c, s)/dx for x = (Re V, Im V)."""
        a, b = x[:n], x[n:]
        d = np.zeros((n + 2 * len(pairs), 2 * n))
        d[np.arange(n), np.arange(n)], d[np.arange(n), n + np.arange(n)] = 2 * a, 2 * b
        c, s = n + lines, n + len(pairs) + lines
        d[c, i], d[c, j], d[c, n + i], d[c, n + j] = a[j], a[i], b[j], b[i]
        d[s, n + i], d[s, j], d[s, i], d[s, n + j] = a[j], b[i], -b[j], -a[i]
        return d

    z = lambda x: lift(x[:n] + 1j * x[n:], pairs)  # noqa: E731
    turned = {"type": "eq", "fun": lambda x: x[n:][:1], "jac": lambda x: np.eye(2 * n)[n][None]}
    begin = np.ones(n, dtype=complex) if start is None else start * np.exp(-1j * np.angle(start[0]))
    found = minimize(
        lambda x: cost @ z(x),
        np.concatenate([begin.real, begin.imag]),
        jac=lambda x: cost @ slope(x),
        constraints=[
            turned,
            {"type": "eq", "fun": lambda x: rows[equal] @ z(x) - right[equal],
             "jac": lambda x: rows[equal] @ slope(x)},
            {"type": "ineq", "fun": lambda x: right[keep] - rows[keep] @ z(x),
             "jac": lambda x: -(rows[keep] @ slope(x))},
        ],
        method="SLSQP",
        options={"maxiter": 1000, "ftol": 1e-12},
    ).x  # fmt: skip
    over = rows @ z(found) - right
    if (broken := max(over.max(), np.abs(over[equal]).max(initial=0))) > 1e-6:
        raise RuntimeError(f"SLSQP found no feasible voltages: a constraint is broken by {broken:g}")
    return float(cost @ z(found) + constant), found[:n] + 1j * found[n:]


def tree_voltages(network: Network, found: FlowRelaxation) -> Complex[np.ndarray, " n"]:
    """Voltages with |V_i|^2 = w_i whose angles follow the lines (32.9), from bus 0 on; without a loop, all lines fit.

    Raises:
        ValueError: not every bus is connected to bus 0.
    """
    angle = np.full(network.n, np.nan)
    angle[0] = 0.0
    turns = np.angle(_on(found, network.lines))
    for _ in range(network.n):
        for (i, j), turn in zip(network.lines, turns, strict=True):
            if np.isnan(angle[j]):
                angle[j] = angle[i] - turn
            elif np.isnan(angle[i]):
                angle[i] = angle[j] + turn
    if np.isnan(angle).any():
        raise ValueError(
            f"lines must connect every bus to bus 0, they miss {np.flatnonzero(np.isnan(angle)).tolist()}"
        )
    return np.sqrt(found.w) * np.exp(1j * angle)


def loop_angle(found: FlowRelaxation, loop: list[int]) -> float:
    """The sum of the angles of W_ij around a closed walk of buses, in degrees: 0 for every W = V V^H (32.9)."""
    total = 0.0
    for i, j in zip(loop, loop[1:] + loop[:1], strict=True):
        turn = np.angle(_on(found, np.array([[min(i, j), max(i, j)]])))[0]
        total += turn if i < j else -turn
    return float(np.degrees(total))


def seven_buses(*, radial: bool) -> Network:
    """A network of this course's own: three generators and four loads; seven buses on six lines, or on eight with two loops.

    The two lines that close loops are 1-3 and 4-6. The cheap generator, at bus 0, sits behind the limited lines 0-1 and 0-2.
    """
    # from, to, resistance, reactance, limit
    table = np.array([
        [0, 1, 0.020, 0.10, 0.7], [0, 2, 0.030, 0.12, 2.0], [1, 4, 0.040, 0.16, 2.0], [2, 3, 0.020, 0.14, 2.0],
        [2, 5, 0.030, 0.10, 2.0], [5, 6, 0.040, 0.20, 2.0], [1, 3, 0.030, 0.08, 2.0], [4, 6, 0.020, 0.18, 2.0],
    ])  # fmt: skip
    network = Network(
        lines=table[:, :2].astype(np.int64),
        admittance=1 / (table[:, 2] + 1j * table[:, 3]),
        limit=table[:, 4],
        demand=np.array([0, 0.3 + 0.1j, 0, 0.5 + 0.2j, 0.4 + 0.1j, 0, 0.4 + 0.15j]),
        cost=np.array([1.0, 0, 0, 0, 3.0, 2.0, 0]),
        p_most=np.array([3.0, 0, 0, 0, 1.0, 1.0, 0]),
        q_most=np.array([1.0, 0, 0, 0, 0.6, 0.6, 0]),
    )
    return network.without(6, 7) if radial else network
