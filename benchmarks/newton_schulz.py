"""Orthogonalisation and the Muon step against torch.optim.Muon, Jordan's quintic, the cubic and the SVD.

On a CPU: one thread, CPU time, candidates interleaved, ratios inside each round. On a GPU the same candidates by
wall clock, with a batch of equal matrices against a loop over them.
"""

import time
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from torch import Tensor
from torch.optim._muon import _zeropower_via_newtonschulz

from benchmarks.timing import Spread, interleave
from course_lib.optimization.muon import Muon
from course_lib.optimization.newton_schulz import JORDAN, orthogonality_error, orthogonalize, polar_factor

BF16, F32 = torch.bfloat16, torch.float32
STEP_SHAPES = ((512, 512),) * 8 + ((2048, 512),) * 4


def torchs(matrix: Tensor) -> Tensor:
    """What torch.optim.Muon does with a momentum: five steps of Jordan's quintic in bfloat16."""
    return _zeropower_via_newtonschulz(matrix, JORDAN, 5, 1e-7)


def svd(matrix: Tensor) -> Tensor:
    """U V^T by a singular value decomposition."""
    left, _, right = torch.linalg.svd(matrix, full_matrices=False)
    return left @ right


def cubic_to_tolerance(matrix: Tensor, tolerance: float = 1e-5) -> Tensor:
    """The cubic on the shorter side until the error is at most `tolerance`."""
    tall = matrix.shape[0] > matrix.shape[1]
    X = matrix.T if tall else matrix
    X = X / torch.linalg.matrix_norm(X)
    eye = torch.eye(len(X), device=X.device)
    while True:
        gram = X @ X.T
        if torch.linalg.matrix_norm(gram - eye) / len(X) ** 0.5 <= tolerance:
            return X.T if tall else X
        X = torch.addmm(X, gram, X, beta=1.5, alpha=-0.5)


jordan = partial(orthogonalize, coefficients="jordan", norm="frobenius")
METHODS = {
    "Jordan 5, float32": jordan,
    "Jordan 5, bfloat16": partial(jordan, compute_dtype=BF16),
    "Polar Express 5, float32": orthogonalize,
    "Polar Express 5, bfloat16": partial(orthogonalize, compute_dtype=BF16),
    "cubic 5, float32": partial(orthogonalize, coefficients="cubic"),
    "polar_factor": polar_factor,
}
LONG_ONLY = {"Polar Express 5, bfloat16, plain": partial(orthogonalize, compute_dtype=BF16, form="plain")}
SLOW = {
    "polar_factor, iteration": partial(polar_factor, method="iteration"),
    "cubic to 1e-5, float32": cubic_to_tolerance,
}


def gaussian(*shape: int, device: str = "cpu") -> Tensor:
    """A float32 matrix of independent standard normal entries."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(device)


def harmonic(n: int) -> Tensor:
    """A float32 n x n matrix with singular values 1, 1/2, ..., 1/n."""
    left, right = (torch.linalg.qr(gaussian(n, n).double() + k * torch.eye(n))[0] for k in (0, 1))
    return (left / torch.arange(1, n + 1) @ right).float()


def logarithmic(n: int) -> Tensor:
    """A float32 n x n matrix with singular values spaced evenly on a logarithmic axis from 1 to 1e-4."""
    left, right = (torch.linalg.qr(gaussian(n, n).double() + k * torch.eye(n))[0] for k in (0, 1))
    return (left * torch.logspace(0, -4, n, dtype=torch.float64) @ right).float()


def _fixed(value: float) -> Spread:
    """A figure that is measured once because it does not vary."""
    return Spread.of([value])


def errors() -> dict[str, Spread]:
    """Return the error of every method on three spectra, 1024 x 1024."""
    figures = {}
    spectra = {
        "gaussian": gaussian(1024, 1024),
        "1/k": harmonic(1024),
        "log-spaced to 1e-4": logarithmic(1024),
    }
    for spectrum, matrix in spectra.items():
        for name, method in {"torch.optim.Muon's": torchs, **METHODS, **SLOW}.items():
            if name in SLOW and spectrum != "gaussian":
                continue
            error = float(orthogonality_error(method(matrix)))
            if name == "polar_factor" or name in SLOW:  # a spread keeps four decimals
                figures[f"1e6 x error on {spectrum} 1024x1024, {name}"] = _fixed(1e6 * error)
            else:
                figures[f"error on {spectrum} 1024x1024, {name}"] = _fixed(error)
    long = gaussian(4096, 1024)
    for name, method in {**METHODS, **LONG_ONLY}.items():
        if name == "polar_factor":
            continue
        figures[f"error on gaussian 4096x1024, {name}"] = _fixed(float(orthogonality_error(method(long))))
    return figures


def _ratios(
    candidates: dict[str, Callable[[], object]], baseline: str, *, rounds: int, clock: Callable[[], float]
) -> dict[str, Spread]:
    seconds = interleave(
        {name: lambda _, call=call: call() for name, call in candidates.items()},
        rounds=rounds,
        clock=clock,
        warm_up=1,
    )
    base = np.array(seconds[baseline])
    return {
        f"{name} / {baseline}": Spread.of(np.array(values) / base)
        for name, values in seconds.items()
        if name != baseline
    }


def _muon_step(optimizer_class: type, device: str, **options) -> Callable[[], object]:
    generator = torch.Generator().manual_seed(0)
    params = [torch.randn(s, generator=generator).to(device).requires_grad_() for s in STEP_SHAPES]
    for p in params:
        p.grad = torch.randn(p.shape, generator=generator).to(device)
    return optimizer_class(params, lr=1e-3, **options).step


def cpu() -> dict[str, Spread]:
    """Return the ratios on one thread of the CPU."""
    figures = {}
    for shape, rounds in (((256, 256), 15), ((1024, 1024), 7), ((4096, 1024), 7)):
        matrix, label = gaussian(*shape), f"{shape[0]}x{shape[1]}"
        slow = SLOW if shape == (1024, 1024) else {}
        extra = LONG_ONLY if shape[0] > 2 * shape[1] else {}
        methods = {"SVD": svd, "torch.optim.Muon's": torchs, **METHODS, **extra, **slow}
        calls = {f"{label}: {name}": partial(method, matrix) for name, method in methods.items()}
        # Both baselines from one run: every ratio is taken inside a round.
        seconds = interleave(
            {name: lambda _, call=call: call() for name, call in calls.items()},
            rounds=rounds,
            clock=time.thread_time,
            warm_up=1,
        )
        times = {name: np.array(values) for name, values in seconds.items()}
        for baseline in ("SVD", "torch.optim.Muon's"):
            base = times[f"{label}: {baseline}"]
            for name in times:
                if not name.endswith(baseline):
                    figures[f"{name} / {baseline}"] = Spread.of(times[name] / base)
        if slow:
            polar, cubic = (times[f"{label}: {name}"] for name in SLOW)
            figures[f"{label}: polar_factor, iteration / cubic to 1e-5"] = Spread.of(polar / cubic)
    for count, n in ((96, 128), (48, 256), (8, 512)):
        batch = gaussian(count, n, n)
        for dtype, name in ((BF16, "bfloat16"), (F32, "float32")):
            figures |= _ratios(
                {
                    f"{count} of {n}x{n} {name}: batched": partial(orthogonalize, batch, compute_dtype=dtype),
                    "one by one": lambda b=batch, d=dtype: [orthogonalize(m, compute_dtype=d) for m in b],
                },
                "one by one",
                rounds=7,
                clock=time.thread_time,
            )
    step = "step on 8 matrices 512x512 and 4 of 2048x512"
    figures |= _ratios(
        {
            f"{step}: Muon": _muon_step(Muon, "cpu"),
            "torch.optim.Muon": _muon_step(torch.optim.Muon, "cpu"),
        },
        "torch.optim.Muon",
        rounds=9,
        clock=time.thread_time,
    )
    return figures


def gpu() -> dict[str, Spread]:
    """Return the ratios on a GPU: sizes, and 48 equal matrices in one batch against torch's loop over them."""

    def timed(function, *args) -> Callable[[], object]:
        def call() -> None:
            function(*args)
            torch.cuda.synchronize()

        return call

    figures = {}
    for shape in ((1024, 1024), (4096, 1024), (4096, 4096)):
        matrix = gaussian(*shape, device="cuda")
        methods = {"torch.optim.Muon's": torchs, "SVD": svd, **METHODS}
        calls = {f"GPU {shape[0]}x{shape[1]}: {n}": timed(m, matrix) for n, m in methods.items()}
        baseline = next(iter(calls))
        figures |= _ratios(calls, baseline, rounds=9, clock=time.perf_counter)
    for n in (128, 256, 512, 1024):
        batch = gaussian(48, n, n, device="cuda")
        figures |= _ratios(
            {
                f"GPU 48 of {n}x{n}: batched bfloat16": timed(
                    partial(orthogonalize, batch, compute_dtype=BF16)
                ),
                "torch.optim.Muon's one by one": timed(lambda b=batch: [torchs(m) for m in b]),
            },
            "torch.optim.Muon's one by one",
            rounds=9,
            clock=time.perf_counter,
        )
    figures |= _ratios(
        {
            "GPU Muon step": timed(_muon_step(Muon, "cuda")),
            "GPU torch.optim.Muon step": timed(_muon_step(torch.optim.Muon, "cuda")),
        },
        "GPU torch.optim.Muon step",
        rounds=9,
        clock=time.perf_counter,
    )
    return figures


def run() -> dict[str, Spread]:
    """Measure errors and ratios; GPU rows only where there is a GPU."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return errors() | cpu() | (gpu() if torch.cuda.is_available() else {})
    finally:
        torch.set_num_threads(threads)
