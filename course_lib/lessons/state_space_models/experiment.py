"""The closing experiment of lesson 15: find the poles of a hidden system, in the three forms of one layer.

A hidden system of two poles is heard through its answer to noise. A layer of eight poles is trained to give the same
answer, and the form in which it is computed - convolution, scan or loop - is all that differs between the arms; a
fourth arm cuts the loop's backward pass every 64 tokens. No poles at all: free taps, fitted by ridge regression.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from course_lib.architectures.state_space import diagonal_ssm, fft_convolution

HIDDEN_POLES, HIDDEN_WEIGHTS = ((0.998, 0.05), (0.9, 0.6)), (0.1, 0.5)  # size and turn; weights at the exit
RECORDS, LENGTH, LONGER = 4, 2048, 4  # records to learn from, their tokens, and how much longer the held-out ones are
NOISE = 0.3  # of the outputs' standard deviation, on what is learned from
POLES, WINDOW = 8, 64


def hidden_system() -> tuple[Tensor, Tensor]:
    """Return poles and weights (1, 2) of the system that is to be found."""
    size, turn = torch.tensor(HIDDEN_POLES, dtype=torch.float64).T
    return torch.polar(size, turn)[None], torch.tensor([HIDDEN_WEIGHTS], dtype=torch.complex128)


@dataclass
class Records:
    """Inputs (records, tokens), what was heard of the outputs, and longer held-out ones without noise."""

    u: Tensor
    y: Tensor
    new_u: Tensor
    new_y: Tensor

    @classmethod
    def draw(cls, seed: int) -> "Records":
        """Draw inputs and the noise on the outputs."""
        generator = torch.Generator().manual_seed(seed)
        normal = lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)  # noqa: E731
        u, new_u = normal(RECORDS, LENGTH), normal(RECORDS, LONGER * LENGTH)
        y, new_y = (diagonal_ssm(t[..., None], *hidden_system())[..., 0] for t in (u, new_u))
        return cls(u, y + NOISE * new_y.std() * normal(*y.shape), new_u, new_y)

    def error(self, y: Tensor) -> float:
        """Return the root mean squared error on the held-out records, over the outputs' root mean square."""
        return float(((y - self.new_y).square().mean() / self.new_y.square().mean()).sqrt())


# One layer in three forms: u (records, tokens), poles a and weights c (n,)


def by_convolution(u: Tensor, a: Tensor, c: Tensor) -> Tensor:
    """Form the kernel, then convolve by the fast Fourier transform."""
    return diagonal_ssm(u[..., None], a[None], c[None])[..., 0]


def by_scan(u: Tensor, a: Tensor, c: Tensor) -> Tensor:
    """Join neighbours by doubling: all tokens share their decay, so that one power a round is enough."""
    x, distance = u.to(a.dtype)[..., None] + 0 * a, 1
    while distance < u.shape[1]:
        x = torch.cat([x[:, :distance], a * x[:, :-distance] + x[:, distance:]], 1)
        a, distance = a * a, 2 * distance
    return 2 * (x @ c).real


def by_loop(u: Tensor, a: Tensor, c: Tensor, x: Tensor | None = None) -> Tensor:
    """Update the state token by token, and read all states together at the end."""
    return 2 * (loop_states(u, a, x) @ c).real


def loop_states(u: Tensor, a: Tensor, x: Tensor | None = None) -> Tensor:
    """Return the states (records, tokens, n) of the loop, from x (records, n) or 0."""
    x, states = u.new_zeros(len(u), len(a), dtype=a.dtype) if x is None else x, []
    for u_t in u.to(a.dtype).unbind(1):
        x = torch.addcmul(u_t[:, None], a, x)
        states.append(x)
    return torch.stack(states, 1)


FORMS = {"convolution": by_convolution, "scan": by_scan, "loop": by_loop}
ARMS = (*FORMS, "loop, cut every 64", "convolution, poles from the disc")


class Layer:
    """Eight poles a = exp(-exp(log_decay) + i turn) and their weights: |a| < 1 whatever the optimizer does."""

    def __init__(self, seed: int, *, disc: bool = False):
        generator = torch.Generator().manual_seed(1000 + seed)
        uniform = lambda: torch.rand(POLES, generator=generator, dtype=torch.float64)  # noqa: E731
        if disc:  # uniform in the unit disc
            decay, turn = -uniform().sqrt().log(), math.pi * uniform()
        else:  # memories from about 3 to 1,000 tokens, on a logarithmic scale, and slow turns
            places = (torch.arange(POLES, dtype=torch.float64) + uniform()) / POLES
            decay, turn = 10 ** (-3 + 2.5 * places), uniform() * 10 ** (-3 + 3 * places)
        self.parameters = [decay.log(), turn, torch.zeros_like(turn), torch.zeros_like(turn)]
        for parameter in self.parameters:
            parameter.requires_grad_()

    def __call__(self) -> tuple[Tensor, Tensor]:
        """Return poles and weights, (n,)."""
        log_decay, turn, real, imaginary = self.parameters
        return torch.polar(torch.exp(-log_decay.exp()), turn), torch.complex(real, imaginary)


@dataclass
class Trained:
    """What training gave: the held-out error after each looked-at number of updates, the CPU seconds until then, and
    the layer's poles and weights at the end.
    """

    updates: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    errors: list[float] = field(default_factory=list)
    layer: tuple[Tensor, Tensor] | None = None


def identify(
    arm: str,
    data: Records,
    *,
    rate: float,
    seconds: float = math.inf,
    updates: float = math.inf,
    seed: int = 0,
    look_at: Sequence[int] | None = None,
) -> Trained:
    """Train a layer by Adam until its CPU seconds or updates are spent, looking at the held-out error on the way.

    The clock runs for forward, backward and update, not for a look.

    Raises:
        ValueError: `arm` is unknown.
    """
    if arm not in ARMS:
        raise ValueError(f"arm must be one of {list(ARMS)}, got {arm!r}")
    layer = Layer(seed, disc=arm.endswith("disc"))
    optimizer = torch.optim.Adam(layer.parameters, lr=rate)
    scale, found, spent, next_look = data.y.square().mean(), Trained(), 0.0, 0
    pieces = _pieces(arm, data)
    count = 0
    while True:
        if count == next_look or spent >= seconds or count >= updates:
            with torch.no_grad():
                found.errors.append(data.error(by_convolution(data.new_u, *layer())))
            found.updates.append(count)
            found.seconds.append(spent)
            if spent >= seconds or count >= updates:
                found.layer = tuple(value.detach() for value in layer())
                return found
            later = [n for n in look_at if n > count] if look_at else [max(count + 1, int(1.25 * count))]
            next_look = later[0] if later else -1
        start = time.thread_time()
        y, heard = next(pieces)(layer)
        loss = (y - heard).square().mean() / scale
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        spent, count = spent + time.thread_time() - start, count + 1


def _pieces(arm: str, data: Records):
    """Yield, update after update, a function of the layer that returns outputs and what was heard of them."""
    if arm != "loop, cut every 64":
        form: Callable = FORMS.get(arm, by_convolution)
        while True:
            yield lambda layer: (form(data.u, *layer()), data.y)
    while True:
        state = None
        for start in range(0, LENGTH, WINDOW):
            u, heard = (t[:, start : start + WINDOW] for t in (data.u, data.y))

            def window(layer, u=u, heard=heard):
                nonlocal state
                a, c = layer()
                states = loop_states(u, a, state)
                state = states[:, -1].detach()  # carried forward; gradients end here
                return 2 * (states @ c).real, heard

            yield window


def lagged_sums(data: Records, taps: int) -> tuple[Tensor, Tensor]:
    """Return the sums of products of lagged inputs with each other (taps, taps) and with the outputs (taps,)."""
    lagged = torch.stack([torch.nn.functional.pad(data.u, (lag, 0))[:, :LENGTH] for lag in range(taps)], -1)
    rows = lagged.flatten(0, 1)
    return rows.T @ rows, rows.T @ data.y.flatten()


def free_taps(gram: Tensor, heard: Tensor, *, penalty: float, growth: float | None = None) -> Tensor:
    """Fit the kernel itself by ridge regression; `growth` is the number of lags in which the penalty grows e-fold."""
    lags = torch.arange(len(gram), dtype=gram.dtype)
    penalties = penalty * (torch.exp(lags / growth) if growth else torch.ones_like(lags))
    return torch.cholesky_solve(heard[:, None], torch.linalg.cholesky(gram + torch.diag(penalties)))[:, 0]


def answer(u: Tensor, kernel: Tensor) -> Tensor:
    """Return the outputs of a kernel (taps,) for inputs (records, tokens)."""
    return fft_convolution(u[..., None], kernel[None])[..., 0]
