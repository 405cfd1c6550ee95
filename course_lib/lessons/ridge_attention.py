"""Figures, explorer, predictions and exercises of lesson 17, ridge_attention."""

import math
from collections.abc import Callable, Mapping
from functools import cache

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor
from torch.nn.functional import normalize

from course_lib.attention.ridge import (
    cholesky_update,
    conjugate_gradient,
    operations,
    ridge_memory,
    sherman_morrison,
)
from course_lib.teaching.exercise import Exercise, Mistake, Property
from course_lib.teaching.explorer import Explorer, Slider
from course_lib.teaching.prediction import Prediction
from course_lib.teaching.style import BLACK, BLUE, GREEN, ORANGE, RED, describe, new_figure, styled

METHODS = ("softmax attention", "linear attention", "delta rule", "ridge attention")
LOOKS = {
    "softmax attention": (ORANGE, ":", "s"),
    "linear attention": (RED, "--", "^"),
    "delta rule": (GREEN, "-.", "D"),
    "ridge attention": (BLUE, "-", "o"),
}

# Recall


def random_pairs(
    count: int, width: int, *, generator: torch.Generator, correlation: float | int = 0.0
) -> tuple[Tensor, Tensor]:
    """Return `count` random keys and values of length 1; two keys have cosine `correlation` on average."""
    shared = normalize(torch.randn(width, generator=generator, dtype=torch.float64), dim=0)
    own = normalize(torch.randn(count, width, generator=generator, dtype=torch.float64), dim=1)
    keys = normalize(math.sqrt(correlation) * shared + math.sqrt(1 - correlation) * own, dim=1)
    return keys, normalize(torch.randn(count, width, generator=generator, dtype=torch.float64), dim=1)


def delta_memory(keys: Tensor, values: Tensor, *, step_size: float | int = 1.0) -> Tensor:
    """Return the memory of the delta rule after all pairs."""
    memory = keys.new_zeros(keys.shape[1], values.shape[1])
    for key, value in zip(keys, values, strict=True):
        memory = memory + step_size * torch.outer(key, value - key @ memory)
    return memory


def recall_errors(keys: Tensor, values: Tensor, *, penalty: float | int) -> dict[str, float]:
    """Ask for every stored value by its key: mean squared error over the mean square of the values.

    Softmax attention scores with 8 q.k, which is what vectors of length 8, the length of random ones in 64
    dimensions, have after the division by sqrt(64).
    """
    answers = {
        "softmax attention": torch.softmax(8 * keys @ keys.T, dim=1) @ values,
        "linear attention": keys @ (keys.T @ values),
        "delta rule": keys @ delta_memory(keys, values),
        "ridge attention": keys @ ridge_memory(keys, values, penalty=penalty),
    }
    power = values.square().sum()
    return {name: float((answer - values).square().sum() / power) for name, answer in answers.items()}


@styled
def plot_question(*, width: int = 64, penalty: float = 0.01) -> Figure:
    """Draw the recall error of four memories against the number of stored pairs."""
    counts = (2, 4, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 128, 160, 192)
    generator = torch.Generator().manual_seed(17)
    keys, values = random_pairs(counts[-1], width, generator=generator)
    curves = [recall_errors(keys[:n], values[:n], penalty=penalty) for n in counts]
    figure = new_figure(7.2, 4.2)
    axes = figure.add_subplot()
    for name in METHODS:
        color, style, marker = LOOKS[name]
        axes.semilogy(
            counts,
            [c[name] for c in curves],
            color=color,
            linestyle=style,
            marker=marker,
            markersize=4,
            label=name,
        )
    axes.axvline(width, color=BLACK, linewidth=1, linestyle=(0, (1, 3)), label="as many pairs as dimensions")
    axes.set(xlabel="stored pairs $n$", ylabel="relative squared error", ylim=(1e-6, 10))
    axes.set_title(f"Who remembers? Recall by a matrix of {width} x {width}, and by keeping everything")
    axes.legend(loc="lower right")
    return describe(
        figure,
        f"Relative squared error of recall against the number of stored pairs, keys of {width} dimensions. Linear "
        "attention and the delta rule err by more than a tenth from about 16 pairs on. Ridge attention errs by less than a "
        f"hundredth up to 48 pairs and rises steeply near {width}; beyond, no {width} x {width} matrix can hold all pairs. "
        "Softmax attention, which keeps every pair, errs little throughout.",
    )


# Costs


@styled
def plot_costs(*, width: int = 64) -> Figure:
    """Draw the multiplications for the inverse against the number of tokens."""
    figure = new_figure(7.0, 4.0)
    axes = figure.add_subplot()
    tokens = np.unique(np.logspace(0, 4, 60).astype(int))
    for method, label, color, style in (
        ("resolve", "one inversion a token, $n d^3$", RED, "--"),
        ("single", "one inversion in all, $n d^2 + d^3$", BLUE, "-"),
        ("rank_one", "one rank-one update a token, $n d^2$", GREEN, "-."),
    ):
        counts = [operations(int(n), width, method=method) for n in tokens]
        axes.loglog(tokens, counts, color=color, linestyle=style, label=label)
    axes.axvline(width, color=BLACK, linewidth=1, linestyle=":", label="$n = d$")
    axes.set(
        xlabel="tokens $n$", ylabel="multiplications", title=f"What the rank-one update saves (d = {width})"
    )
    axes.legend(loc="upper left")
    return describe(
        figure,
        f"Multiplications for the inverse against the number of tokens, on logarithmic axes, for width {width}. Inverting "
        f"anew at every token costs {width} times as much as updating at every token. A single inversion after the last "
        f"token costs as much as all updates together once there are many more tokens than {width}; below that it "
        "costs more.",
    )


# Rounding

MARKS = tuple(int(n) for n in np.unique(np.logspace(0, 4, 33).astype(int)))


@cache
def drift(penalty: float = 1e-4, width: int = 16) -> dict[str, list[float]]:
    """Return relative errors of the float32 inverse after 1 to 10,000 tokens, for three ways to keep it."""
    generator = torch.Generator().manual_seed(0)
    keys = normalize(torch.randn(MARKS[-1], width, generator=generator, dtype=torch.float32), dim=1)
    # By name: a notebook may have made float64 the default.
    eye = torch.eye(width, dtype=torch.float32)
    gram, exact = penalty * eye, penalty * eye.double()
    plain, resolved, factor = eye / penalty, eye / penalty, gram.sqrt()
    errors: dict[str, list[float]] = {
        "updated": [],
        "updated, computed anew every 100": [],
        "Cholesky factor": [],
    }
    for t, key in enumerate(keys, start=1):
        gram, exact = gram + torch.outer(key, key), exact + torch.outer(key.double(), key.double())
        plain, factor = sherman_morrison(plain, key, key), cholesky_update(factor, key)
        resolved = sherman_morrison(resolved, key, key) if t % 100 else torch.linalg.inv(gram)
        if t in MARKS:
            true = torch.linalg.inv(exact)
            for name, inverse in zip(errors, (plain, resolved, torch.cholesky_inverse(factor)), strict=True):
                errors[name].append(float((inverse.double() - true).norm() / true.norm()))
    return errors


@styled
def plot_drift() -> Figure:
    """Draw the error of the inverse over 10,000 rank-one updates."""
    figure = new_figure(7.2, 4.2)
    axes = figure.add_subplot()
    for (name, errors), color, style in zip(
        drift().items(), (RED, BLUE, GREEN), ("-", "--", "-."), strict=True
    ):
        axes.loglog(MARKS, errors, color=color, linestyle=style, label=name)
    axes.axvline(16, color=BLACK, linewidth=1, linestyle=":", label="as many tokens as dimensions")
    axes.set(xlabel="tokens $n$", ylabel="relative error of $P_n$", ylim=(1e-8, 1e-1))
    axes.set_title("The error comes with the first $d$ tokens, then fades (float32, $\\lambda = 10^{-4}$)")
    axes.legend(loc="upper right")
    return describe(
        figure,
        "Relative error of the inverse in float32 against the number of tokens, on logarithmic axes, for keys of 16 "
        "dimensions and lambda = 0.0001. Updated by Sherman-Morrison, it jumps by a factor of hundreds round token 16, then "
        "falls slowly. Computed anew every 100 tokens it drops below a millionth at token 100. Inverted from an updated "
        "Cholesky factor it reaches a few millionths at token 16 and creeps up with the number of updates, to more than "
        "the other two at the end.",
    )


# Conjugate gradients


def _cg_errors(penalty: float, steps: tuple[int, ...], *, width: int = 64) -> list[float]:
    keys, values = random_pairs(width, width, generator=torch.Generator().manual_seed(0))
    gram = keys.T @ keys + penalty * torch.eye(width, dtype=torch.float64)
    exact = ridge_memory(keys, values, penalty=penalty)
    found = [conjugate_gradient(gram, keys.T @ values, steps=s) for s in steps]
    return [float((f - exact).norm() / exact.norm()) for f in found]


@styled
def plot_conjugate_gradient() -> Figure:
    """Draw the error of the memory against the steps of conjugate gradients for several penalties."""
    figure = new_figure(7.0, 4.0)
    axes = figure.add_subplot()
    steps = tuple(range(0, 81, 2))
    for penalty, color, style in (
        (1.0, BLUE, "-"),
        (0.1, GREEN, "-."),
        (1e-2, ORANGE, "--"),
        (1e-4, RED, ":"),
    ):
        errors = np.maximum(_cg_errors(penalty, steps), 1e-13)
        axes.semilogy(steps, errors, color=color, linestyle=style, label=f"$\\lambda$ = {penalty:g}")
    axes.axvline(30, color=BLACK, linewidth=1, linestyle=(0, (1, 3)), label="30 steps")
    axes.set(xlabel="steps", ylabel="relative error of $W$", ylim=(1e-13, 1e4))
    axes.set_title("Thirty steps of conjugate gradients: enough for a large penalty only")
    axes.legend(loc="upper right", ncols=3)
    return describe(
        figure,
        "Relative error of the memory of 64 pairs in 64 dimensions against the steps of conjugate gradients, in float64. "
        "After 30 steps it is at rounding level for lambda = 1 and about 0.00001 for 0.1, but a few percent for 0.01 and "
        "more than half for 0.0001.",
    )


# Explorer


class RecallExplorer(Explorer):
    """Recall by linear attention, the delta rule and ridge attention, and the spectrum that decides."""

    title = "Recall from a matrix"
    summary = (
        "Left: relative squared error when every stored value is asked for by its key, against the number of stored "
        "pairs, in 32 dimensions; the vertical line is the number in use. At 1 an answer is as far off as no answer. "
        "Right: the singular values of K^T K + lambda I for that number, largest first, and lambda itself as a level line."
    )
    controls = {  # noqa: RUF012 - shared by all instances, never changed
        "pairs": Slider(
            label="stored pairs", symbol="n", default=20, minimum=1, maximum=96, step=1,
            tooltip="How many random pairs of a key and a value are stored; there are 32 dimensions",
        ),
        "log_penalty": Slider(
            label="penalty", symbol="log10 λ", default=-2.0, minimum=-6.0, maximum=2.0, step=0.25,
            tooltip="Power of ten of the penalty on the squared memory",
        ),
        "correlation": Slider(
            label="key correlation", symbol="ρ", default=0.0, minimum=0.0, maximum=0.95, step=0.05,
            tooltip="Average cosine of the angle between two keys",
        ),
        "noise": Slider(
            label="query noise", symbol="s", default=0.0, minimum=0.0, maximum=1.0, step=0.05,
            tooltip="Length of the random vector added to a key when it is used as a query",
        ),
    }  # fmt: skip
    size = (9.6, 4.2)
    width = 32
    names = METHODS[1:]

    def __init__(self):
        self._counts = np.array([1, 2, 3, *range(4, 97, 4)])
        super().__init__()

    def compute(self, *, pairs, log_penalty, correlation, noise):
        """Return the three curves of errors, the errors at the number in use and the singular values."""
        generator, most = torch.Generator().manual_seed(2), int(self._counts[-1])
        keys, values = random_pairs(most, self.width, generator=generator, correlation=correlation)
        shift = normalize(torch.randn(most, self.width, generator=generator, dtype=torch.float64), dim=1)
        queries, penalty = keys + noise * shift, 10.0**log_penalty
        counts = np.union1d(self._counts, [pairs])
        memory, delta, wanted = keys.new_zeros(self.width, self.width), [], set(counts.tolist())
        for i in range(most):
            memory = memory + torch.outer(keys[i], values[i] - keys[i] @ memory)
            if i + 1 in wanted:
                delta.append(memory)
        stored = (torch.arange(most) < torch.as_tensor(counts)[:, None]).to(keys)[..., None]
        kept = stored * keys
        linear = kept.mT @ values
        gram = kept.mT @ kept + penalty * torch.eye(self.width, dtype=torch.float64)
        memories = torch.stack([linear, torch.stack(delta), torch.linalg.solve(gram, linear)])
        misses = (stored * (queries @ memories - values)).square().sum((-1, -2)) / torch.as_tensor(counts)
        here = int(np.searchsorted(counts, pairs))
        return {
            "counts": counts,
            "errors": misses.clamp(1e-12, 1e6).numpy(),
            "here": misses[:, here].tolist(),
            "spectrum": torch.linalg.eigvalsh(gram[here]).flip(0).clamp(min=penalty).numpy(),
            "pairs": pairs,
            "penalty": penalty,
            "shrunk": float((kept[here] @ memories[2, here] - stored[here] * values).square().sum() / pairs),
        }

    def draw(self, figure):
        """Draw both axes with fixed limits."""
        recall, spectrum = figure.subplots(1, 2)
        recall.set_yscale("log")
        recall.set(xlim=(0, 97), ylim=(1e-7, 1e7), xlabel="stored pairs $n$", ylabel="relative squared error")
        recall.set_title("Recall of all stored pairs")
        recall.axvline(self.width, color=BLACK, linewidth=1, linestyle=":", label="$n = d$")
        curves = [
            recall.plot([], [], color=LOOKS[n][0], linestyle=LOOKS[n][1], label=n)[0] for n in self.names
        ]
        dots = [
            recall.plot([], [], color=LOOKS[n][0], linestyle="", marker=LOOKS[n][2], label="_dot")[0]
            for n in self.names
        ]
        (line,) = recall.plot([], [], color=BLACK, linewidth=1.2, linestyle=(0, (6, 2)), label="$n$ in use")
        recall.legend(loc="upper left", fontsize=8, ncols=2)
        spectrum.set_yscale("log")
        spectrum.set(xlim=(0, self.width + 1), ylim=(1e-7, 1e4), xlabel="index", ylabel="singular value")
        spectrum.set_title("Spectrum of $K^\\top K + \\lambda I$")
        (values,) = spectrum.plot(
            [], [], color=BLUE, linestyle="-", marker="o", markersize=4, label="singular values"
        )
        (level,) = spectrum.plot([], [], color=RED, linestyle="--", label="$\\lambda$")
        spectrum.legend(loc="upper right", fontsize=8)
        return {"curves": curves, "dots": dots, "line": line, "values": values, "level": level}

    def update(self, artists, state):
        """Move curves, dots, the line in use and the spectrum."""
        for curve, dot, errors, here in zip(
            artists["curves"], artists["dots"], state["errors"], state["here"], strict=True
        ):
            curve.set_data(state["counts"], errors)
            dot.set_data([state["pairs"]], [here])
        artists["line"].set_data([state["pairs"]] * 2, [1e-7, 1e7])
        artists["values"].set_data(np.arange(1, self.width + 1), state["spectrum"])
        artists["level"].set_data([0, self.width + 1], [state["penalty"]] * 2)

    def words(self, state):
        """Say the three errors and the condition number, and what limits recall."""
        linear, delta, ridge = (max(error, 1e-9) for error in state["here"])
        condition = state["spectrum"][0] / state["spectrum"][-1]
        count = state["pairs"]
        opening = (  # below 1e-9 there is nothing but rounding
            f"With {count} pair{'s' if count > 1 else ''} the error is {linear:.2g} for linear attention, {delta:.2g} for "
            f"the delta rule and {ridge:.2g} for ridge attention. The condition number is {condition:.2g}."
        )
        if count > self.width:
            return f"{opening} There are more pairs than dimensions: no 32 x 32 matrix answers all of them."
        if ridge <= 1e-3:
            return f"{opening} Ridge attention tells all pairs apart."
        if state["shrunk"] < ridge / 2:
            return (
                f"{opening} Most of the last comes from the noise of the queries, which the memory passes on."
            )
        return f"{opening} The penalty shrinks the answers."


# Predictions


def cost_prediction() -> Prediction:
    """Ask what Sherman-Morrison saves when there is one inverse to compute."""
    return Prediction(
        "17.P1",
        "There are $n = 2048$ keys with $d = 64$ entries, and all queries come after the last key: one inverse of "
        "$\\lambda I + K^\\top K$ is needed. You build it by 2048 rank-one updates instead of one inversion. How many "
        "multiplications do you save?",
        choices={
            "A factor of about 64": "That is the saving against an inversion after every key. Here only one inversion is "
            "needed: n d² + d³ = 8,650,752 against n d² = 8,388,608.",
            "Next to none": "One inversion costs n d² + d³ = 8,650,752, where the sum K^T K alone takes n d². All "
            "updates together cost n d² = 8,388,608.",
            "A factor of about 2048": "An inversion costs d³ once, not once a key: n d² + d³ = 8,650,752 against "
            "n d² = 8,388,608.",
        },
        answer="Next to none",
        reveal=plot_costs,
    )


def drift_prediction() -> Prediction:
    """Ask when the rounding error of the updated inverse arises."""
    return Prediction(
        "17.P2",
        "An inverse in float32 is updated by Sherman-Morrison for 10,000 keys in 16 dimensions, from $I/\\lambda$ with "
        "$\\lambda = 10^{-4}$. When is its relative error largest?",
        choices={
            "At the end: it grows with every update": "Later updates add little, and P itself is shrinking. What hurts is "
            "the subtraction from 1/λ, in the first tokens.",
            "Soon after 16 tokens": "While the first 16 keys come in, P falls from 10,000 to about 1 in every direction: "
            "the digits lost in that subtraction are lost for good. Then nothing of the kind happens again.",
            "It is about the same all the time": "It jumps by a factor of hundreds while the first 16 keys come in, then "
            "fades.",
        },
        answer="Soon after 16 tokens",
        reveal=plot_drift,
    )


# Exercises


def _normal(generator: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(shape, generator=generator, dtype=torch.float64).round(decimals=1)


def _uniform(generator: torch.Generator, low: float, high: float, digits: int = 2) -> float:
    return round(low + (high - low) * float(torch.rand((), generator=generator)), digits)


def _scalar_loss_is_smallest(inputs: Mapping, answer) -> bool:
    weight = float(answer) / 2
    keys, values = torch.tensor([1.0, 2, 2]).double(), torch.tensor([3.0, 1, 4]).double()

    def loss(w):
        return float((keys * w - values).square().sum() + w**2)

    return all(loss(weight) <= loss(weight + step) for step in (inputs["step"], -inputs["step"]))


_SCALAR = Exercise(
    id="17.1",
    title="Three pairs of numbers",
    kind="value",
    difficulty=1,
    minutes=4,
    prompt="Keys and values are numbers: the keys 1, 2, 2 belong to the values 3, 1, 4. The penalty is $\\lambda = 1$. "
    "Which number does ridge attention answer to the query $q = 2$?",
    draw=lambda generator: {"step": _uniform(generator, 0.001, 0.5, digits=3)},
    reference=2.6,
    properties=(
        Property("Half of your answer is the memory W, and another W has a smaller loss.", _scalar_loss_is_smallest),
    ),
    hints=(
        "With numbers, the memory is one number W. Which sums of the pairs does it need?",
        "W is the sum of key times value over λ plus the sum of squared keys.",
        "Compute W from these two sums; the answer to a query q is q W.",
    ),
    mistakes=(
        Mistake("no penalty", 26 / 9, "You left out λ: the sum of squared keys is 9, and λ = 1 is added to it."),
        Mistake("linear attention", 26.0, "That is linear attention: the sum of key times value, not divided by anything."),
        Mistake("the memory itself", 1.3, "That is the memory W. The answer to the query is q W with q = 2."),
        Mistake("mean of the values", 8 / 3, "That is the plain mean of the values; keys and query have no part in it."),
    ),
)  # fmt: skip


def read_memory(keys, values, query, penalty):
    """Return the answer of ridge attention to one query."""
    gram = keys.T @ keys + penalty * torch.eye(keys.shape[1], dtype=keys.dtype)
    memory = torch.linalg.solve(gram, keys.T @ values)
    return memory.T @ query


def _draw_memory(generator: torch.Generator) -> dict:
    rows = int(torch.randint(2, 5, (), generator=generator))
    return {
        "keys": _normal(generator, rows, 2),
        "values": _normal(generator, rows, 2),
        "query": _normal(generator, 2),
        "penalty": _uniform(generator, 0.3, 3.0),
    }


def _from_the_scores(inputs: Mapping) -> Tensor:
    """V^T (K K^T + lambda I)^-1 K q: the same answer as a weighted sum of values."""
    keys = inputs["keys"]
    scores = keys @ keys.T + inputs["penalty"] * torch.eye(len(keys), dtype=keys.dtype)
    return inputs["values"].T @ torch.linalg.solve(scores, keys @ inputs["query"])


def _memory(keys: Tensor, values: Tensor, penalty: float) -> Tensor:
    eye = torch.eye(keys.shape[1], dtype=keys.dtype)
    return torch.linalg.solve(keys.T @ keys + penalty * eye, keys.T @ values)


_READ = Exercise(
    id="17.2",
    title="Ask the memory",
    kind="function",
    difficulty=1,
    minutes=8,
    prompt="Write `read_memory(keys, values, query, penalty)`: what ridge attention answers to one query. The rows of "
    "`keys` and `values`, both of shape `(n, d)`, are the pairs; `query` has shape `(d,)`. Return a float64 tensor of "
    "shape `(d,)`.",
    draw=_draw_memory,
    reference=read_memory,
    properties=(
        Property(
            "The answer should be the weighted sum of values Vᵀ(KKᵀ + λI)⁻¹Kq.",
            lambda inputs, output: torch.allclose(output, _from_the_scores(inputs), rtol=1e-8, atol=1e-9),
        ),
    ),
    hints=(
        "First the memory: which d x d system does the gradient of ‖KW - V‖² + λ‖W‖² give when it is zero?",
        "Solve (KᵀK + λI) W = KᵀV. Its rows belong to key dimensions, its columns to value dimensions.",
        "K W is close to V: one row kᵀ of K gives kᵀW, a row. What is that as a column?",
    ),
    mistakes=(
        Mistake("the notes' reading", lambda k, v, q, p: _memory(k, v, p) @ q,
                "You read W q, as the notes print it. The rows of W belong to keys: the answer is Wᵀq."),
        Mistake("penalty one", lambda k, v, q, p: _memory(k, v, 1.0).T @ q,
                "You put 1 in the place of λ, as the notes print it."),
        Mistake("linear attention", lambda k, v, q, p: (k.T @ v).T @ q,
                "That is linear attention, VᵀKq: keys that resemble each other answer for each other."),
        Mistake("penalty on every entry", lambda k, v, q, p: torch.linalg.solve(k.T @ k + p, k.T @ v).T @ q,
                "`gram + penalty` adds λ to every entry of the matrix. Only the diagonal gets it."),
        Mistake("penalty squared", lambda k, v, q, p: _memory(k, v, p**2).T @ q,
                "You added λ². The penalty is λ‖W‖², so λ itself goes on the diagonal."),
    ),
)  # fmt: skip


def rank_one_step(inverse, weights, key, value):
    """Return the memory after one more pair."""
    moved = inverse @ key
    return weights + torch.outer(moved, value - key @ weights) / (1 + key @ moved)


def _draw_step(generator: torch.Generator) -> dict:
    keys, values = _normal(generator, 3, 2), _normal(generator, 3, 2)
    penalty = _uniform(generator, 0.5, 2.0)
    inverse = torch.linalg.inv(keys.T @ keys + penalty * torch.eye(2, dtype=torch.float64))
    key = _normal(generator, 2) + torch.tensor([0.05, -0.05], dtype=torch.float64)  # never the zero vector
    return {
        "inverse": inverse,
        "weights": inverse @ keys.T @ values,
        "key": key,
        "value": _normal(generator, 2),
    }


def _solved_with_one_more(inputs: Mapping) -> Tensor:
    gram = torch.linalg.inv(inputs["inverse"])
    key = inputs["key"]
    cross = gram @ inputs["weights"] + torch.outer(key, inputs["value"])
    return torch.linalg.solve(gram + torch.outer(key, key), cross)


def _step_with(direction: Callable, divisor: Callable, error: Callable) -> Callable:
    return lambda P, W, k, v: W + torch.outer(direction(P, k), error(W, k, v)) / divisor(P, k)


_STEP = Exercise(
    id="17.3",
    title="One more pair",
    kind="function",
    difficulty=2,
    minutes=12,
    prompt="Write `rank_one_step(inverse, weights, key, value)`: the ridge memory after one more pair. `inverse` is "
    "$P = (\\lambda I + K^\\top K)^{-1}$ and `weights` is $W$, both for the pairs before it, of shape `(d, d)`. Use "
    "products with $P$ and a division by a number, no solve. Return a float64 tensor of shape `(d, d)`.",
    draw=_draw_step,
    reference=rank_one_step,
    properties=(
        Property(
            "It should be what solving with all pairs gives.",
            lambda inputs, output: torch.allclose(output, _solved_with_one_more(inputs), rtol=1e-7, atol=1e-8),
        ),
    ),
    hints=(
        "The memory moves by a rank-one matrix: a direction in key space times the error on the new value.",
        "The error is the value minus what the old memory answers to the key; the direction is P times the key.",
        "Sherman-Morrison divides by a number that has the old P and the key twice, and a 1.",
    ),
    mistakes=(
        Mistake("the delta rule", _step_with(lambda P, k: k, lambda P, k: 1.0, lambda W, k, v: v - k @ W),
                "That is the delta rule with step 1: it moves along the key itself and disturbs older pairs. Ridge moves "
                "along P k."),
        Mistake("no division", _step_with(lambda P, k: P @ k, lambda P, k: 1.0, lambda W, k, v: v - k @ W),
                "You left out the division by 1 + kᵀPk: the step goes too far, since the new pair enters the inverse too."),
        Mistake("division without the one",
                _step_with(lambda P, k: P @ k, lambda P, k: k @ P @ k, lambda W, k, v: v - k @ W),
                "You divided by kᵀPk. Then the new pair is fitted exactly; with the penalty it is fitted in part, by "
                "1 + kᵀPk."),
        Mistake("no error", _step_with(lambda P, k: P @ k, lambda P, k: 1 + k @ P @ k, lambda W, k, v: v),
                "You added the value itself. The step is driven by the error v - Wᵀk: what the old memory does not know "
                "already."),
        Mistake("wrong sign", _step_with(lambda P, k: P @ k, lambda P, k: 1 + k @ P @ k, lambda W, k, v: k @ W - v),
                "The sign of the error is turned: the memory moves away from the new value."),
    ),
)  # fmt: skip


def _is_singular(c: Mapping) -> bool:
    return abs(1 + c["v1"] * c["u1"] / 2 + c["v2"] * c["u2"] / 4) < 1e-9


def _nonzero(c: Mapping) -> bool:
    return (c["u1"], c["u2"]) != (0, 0) and (c["v1"], c["v2"]) != (0, 0)


_FLAW = Exercise(
    id="17.4",
    title="When the formula fails",
    kind="flaw",
    difficulty=2,
    minutes=8,
    prompt="The notes give the Sherman-Morrison formula for $(M + uv^\\top)^{-1}$ without a condition. Take "
    "$M = \\mathrm{diag}(2, 4)$, which has an inverse. Give a counterexample: a dictionary with the numbers `u1`, `u2`, "
    "`v1`, `v2` for which $M + uv^\\top$ has none.",
    draw=lambda generator: {"seed": int(torch.randint(1000, (), generator=generator))},
    reference={"u1": 2.0, "u2": 0.0, "v1": -1.0, "v2": 0.0},
    properties=(
        Property("For your numbers M + uvᵀ has an inverse: its determinant is not 0.", lambda inputs, c: _is_singular(c)),
    ),
    hints=(
        "The formula divides by a number. Which one?",
        "1 + vᵀM⁻¹u has to be 0, and M⁻¹ is diag(1/2, 1/4).",
        "Keep to the first axis: with u = (u1, 0) and v = (v1, 0) only u1 v1 matters. M's first entry is 2.",
    ),
    mistakes=(
        Mistake("a zero vector", {"u1": 0.0, "u2": 0.0, "v1": 1.0, "v2": 1.0},
                "With a zero vector nothing is added, and M has an inverse.",
                lambda i, c: not _nonzero(c)),
        Mistake("a key twice", {"u1": 1.0, "u2": 2.0, "v1": 1.0, "v2": 2.0},
                "With v a positive multiple of u the number 1 + vᵀM⁻¹u is above 1: that is why ridge attention, which "
                "adds k kᵀ, never fails here.",
                lambda i, c: _nonzero(c) and abs(c["u1"] * c["v2"] - c["u2"] * c["v1"]) < 1e-12
                and c["u1"] * c["v1"] + c["u2"] * c["v2"] > 0),
        Mistake("orthogonal", {"u1": 1.0, "u2": 0.0, "v1": 0.0, "v2": 1.0},
                "Here vᵀM⁻¹u = 0, so that the formula divides by 1.",
                lambda i, c: _nonzero(c) and abs(c["v1"] * c["u1"] / 2 + c["v2"] * c["u2"] / 4) < 1e-12),
        Mistake("without the inverse", {"u1": 1.0, "u2": 0.0, "v1": -1.0, "v2": 0.0},
                "You made 1 + vᵀu zero. That is the number for M = I; here M⁻¹ stands between v and u.",
                lambda i, c: _nonzero(c) and abs(1 + c["v1"] * c["u1"] + c["v2"] * c["u2"]) < 1e-9
                and not _is_singular(c)),
    ),
)  # fmt: skip


def chunk_outputs(inverse, weights, queries, keys, values):
    """Return the answers to a chunk of queries, each reading the pairs up to its own."""
    eye = torch.eye(len(keys), dtype=keys.dtype)
    factor = torch.linalg.cholesky(eye + keys @ inverse @ keys.T)
    moved = torch.linalg.solve_triangular(factor, keys @ inverse, upper=False)
    error = torch.linalg.solve_triangular(factor, values - keys @ weights, upper=False)
    return queries @ weights + (queries @ moved.T).tril() @ error


def _draw_chunk(generator: torch.Generator) -> dict:
    first, first_values = _normal(generator, 2, 2), _normal(generator, 2, 2)
    inverse = torch.linalg.inv(first.T @ first + torch.eye(2, dtype=torch.float64))
    rows = int(torch.randint(2, 5, (), generator=generator))
    return {
        "inverse": inverse,
        "weights": inverse @ first.T @ first_values,
        "queries": _normal(generator, rows, 2),
        "keys": _normal(generator, rows, 2),
        "values": _normal(generator, rows, 2),
    }


def _token_by_token(inputs: Mapping) -> Tensor:
    gram = torch.linalg.inv(inputs["inverse"])
    cross, answers = gram @ inputs["weights"], []
    for query, key, value in zip(inputs["queries"], inputs["keys"], inputs["values"], strict=True):
        gram, cross = gram + torch.outer(key, key), cross + torch.outer(key, value)
        answers.append(torch.linalg.solve(gram, cross).T @ query)
    return torch.stack(answers)


def _chunk_parts(P: Tensor, W: Tensor, K: Tensor, V: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    factor = torch.linalg.cholesky(torch.eye(len(K), dtype=K.dtype) + K @ P @ K.T)
    solve = torch.linalg.solve_triangular
    return factor, solve(factor, K @ P, upper=False), solve(factor, V - K @ W, upper=False)


def _masked_too_late(P, W, Q, K, V):
    scores = (Q @ P @ K.T).tril()
    return Q @ W + scores @ torch.linalg.solve(torch.eye(len(K), dtype=K.dtype) + K @ P @ K.T, V - K @ W)


def _with_parts(combine: Callable) -> Callable:
    def solution(P, W, Q, K, V):
        _, moved, error = _chunk_parts(P, W, K, V)
        return combine(P, W, Q, K, V, moved, error)

    return solution


_CHUNK = Exercise(
    id="17.5",
    title="A chunk at once",
    kind="function",
    difficulty=3,
    minutes=20,
    prompt="Write `chunk_outputs(inverse, weights, queries, keys, values)`: the answers to a chunk of $C$ tokens, where "
    "query $i$ reads the pairs before the chunk and those of the chunk up to $i$. `inverse` is $P$ and `weights` is $W$ "
    "before the chunk; the other three have shape `(C, d)`. Use one Cholesky factorisation and no loop. Return a "
    "float64 tensor of shape `(C, d)`.",
    draw=_draw_chunk,
    reference=chunk_outputs,
    properties=(
        Property(
            "Each answer should be that of the memory solved for the pairs up to its token.",
            lambda inputs, output: torch.allclose(output, _token_by_token(inputs), rtol=1e-7, atol=1e-8),
        ),
    ),
    hints=(
        "For the last token it is Q W plus Q P Kᵀ (I + K P Kᵀ)⁻¹ (V - K W). What must change for earlier ones?",
        "Factor I + K P Kᵀ = L Lᵀ. The top left block of L belongs to the first tokens alone, as do the top rows of L⁻¹B.",
        "Give one L⁻¹ to K P and one to V - K W; keep the lower triangle, with the diagonal, of Q times the first.",
    ),
    mistakes=(
        Mistake("no mask", _with_parts(lambda P, W, Q, K, V, z, e: Q @ W + Q @ z.T @ e),
                "Every query reads the whole chunk: the lower triangle is missing."),
        Mistake("own pair left out", _with_parts(lambda P, W, Q, K, V, z, e: Q @ W + (Q @ z.T).tril(-1) @ e),
                "Your triangle leaves out the diagonal: a query should read its own pair, too."),
        Mistake("masked too late", _masked_too_late,
                "You masked Q P Kᵀ and solved with the whole I + K P Kᵀ: its inverse mixes later tokens into earlier ones. "
                "Split it into two triangles first."),
        Mistake("past left out", _with_parts(lambda P, W, Q, K, V, z, e: (Q @ z.T).tril() @ e),
                "Q W is missing: what the queries read from before the chunk."),
        Mistake("values for errors", lambda P, W, Q, K, V: Q @ W + (Q @ _chunk_parts(P, W, K, V)[1].T).tril()
                @ _chunk_parts(P, torch.zeros_like(W), K, V)[2],
                "You stored V in the place of V - K W: the memory adds what it does not know yet, not the value itself."),
    ),
)  # fmt: skip

EXERCISES = {e.id: e for e in (_SCALAR, _READ, _STEP, _FLAW, _CHUNK)}

FIGURES = {
    "question": plot_question,
    "costs": plot_costs,
    "drift": plot_drift,
    "conjugate_gradient": plot_conjugate_gradient,
    "explorer": lambda: RecallExplorer().strip(),
}
