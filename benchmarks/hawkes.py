"""The proximal map of the tensor nuclear norm against p full SVDs of the DFT slices: CPU time of one thread, and accuracy.

Half of the slices and the eigenvectors of Gram matrices (`prox`) against an FFT and SVDs of all p slices, with NumPy and
with torch; the ratio is to the faster of the two in each round. Less than 1 means faster than the peer. The tensors
hold normal numbers, the threshold is a third of the largest singular value. "lost" is the difference from the SVDs in
float64, over the largest singular value, for thresholds of 1/3 and of 1/1000 of it.
"""

import time

import numpy as np
import torch
from torch import Tensor

from benchmarks.timing import Spread, interleave
from course_lib.theory.tensor_nuclear_norm import matrices, prox, prox_by_slices

SIZES = {(12, 12, 8): 50, (50, 50, 24): 2, (100, 100, 24): 1}
ROUNDS = 15


def numpy_slices(tensor: np.ndarray, threshold: float) -> np.ndarray:
    """Shrink all p DFT slices by NumPy's SVD."""
    u, s, vh = np.linalg.svd(np.fft.fft(tensor, norm="ortho").transpose(2, 0, 1), full_matrices=False)
    shrunk = (u * np.maximum(s - threshold, 0)[:, None]) @ vh
    return np.fft.ifft(shrunk.transpose(1, 2, 0), norm="ortho").real


def lost(tensor: Tensor, threshold: float, largest: float) -> Spread:
    """By how much the fast map is off, over the largest singular value."""
    exact = prox_by_slices(tensor.double(), threshold, "fourier")
    off = float(
        torch.linalg.matrix_norm((prox(tensor, threshold, "fourier") - exact).movedim(-1, 0), 2).max()
    )
    return Spread(off / largest, off / largest, off / largest)


def run() -> dict[str, Spread]:
    """Return ratios of CPU time, and what the Gram matrix loses."""
    torch.set_num_threads(1)
    figures = {}
    for shape, times in SIZES.items():
        drawn = torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        largest = float(torch.linalg.matrix_norm(matrices(drawn, "fourier"), 2).max())
        for dtype in (torch.float64, torch.float32):
            tensor, threshold = drawn.to(dtype), largest / 3
            array = tensor.numpy()
            calls = {
                "prox": lambda t=tensor, s=threshold: prox(t, s, "fourier"),
                "torch": lambda t=tensor, s=threshold: prox_by_slices(t, s, "fourier"),
                "NumPy": lambda a=array, s=threshold: numpy_slices(a, s),
            }
            repeated = {
                n: (lambda _, f=f, times=times: [f() for _ in range(times)]) for n, f in calls.items()
            }
            seconds = {
                n: np.array(s)
                for n, s in interleave(repeated, rounds=ROUNDS, clock=time.thread_time, warm_up=2).items()
            }
            name = f"{shape}, {str(dtype).removeprefix('torch.')}"
            peer = np.minimum(seconds["torch"], seconds["NumPy"])
            figures[f"prox / faster SVDs, {name}"] = Spread.of(seconds["prox"] / peer)
            for share in (3, 1000):
                figures[f"lost, threshold 1/{share}, {name}"] = lost(tensor, largest / share, largest)
    return figures
