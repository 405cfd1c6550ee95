"""Many copies of lesson 33's network, each from a random start, trained side by side on the worksheet's four examples.

All copies go through one matrix product, so that a hundred cost hardly more than one. Nothing here uses autograd: the
backward pass is (33.3) to (33.5), with one copy in each entry of the first dimension.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from course_lib.sae.by_hand import EXAMPLES

WIDTHS = (4, 3, 2, 3, 4)
SOLVED = 0.1  # a copy has learned the worksheet where its loss is below this


@dataclass(frozen=True)
class Copies:
    """Weights (copies, outputs, inputs) and biases (copies, outputs, 1) of each layer; `leaks` are the slopes below 0.

    `backward` are the slopes below 0 with which errors go back; they are the true slopes where the two agree.
    """

    weights: tuple[Tensor, ...]
    biases: tuple[Tensor, ...]
    leaks: tuple[float, ...]
    backward: tuple[float, ...]

    def sums_and_values(self) -> tuple[list[Tensor], list[Tensor]]:
        """Return the sums and the values of all layers, each (copies, units, examples)."""
        sums, values = [], [EXAMPLES.expand(len(self.weights[0]), *EXAMPLES.shape)]
        for weight, bias, leak in zip(self.weights, self.biases, self.leaks, strict=True):
            sums.append(torch.baddbmm(bias.expand(-1, -1, EXAMPLES.shape[1]), weight, values[-1]))
            values.append(torch.where(sums[-1] > 0, sums[-1], leak * sums[-1]))
        return sums, values

    def losses(self) -> Tensor:
        """Return the loss of each copy; infinity where training has run away."""
        loss = (self.sums_and_values()[1][-1] - EXAMPLES).square().sum((1, 2))
        return torch.where(loss.isfinite(), loss, math.inf)

    def shut_outputs(self) -> Tensor:
        """Return for each copy how many outputs have sums of at most 0 for all four examples."""
        return (self.sums_and_values()[0][-1] <= 0).all(-1).sum(-1)

    def repeated(self, times: int) -> "Copies":
        """Return all copies `times` times, one after another."""
        weights, biases = ([t.repeat(times, 1, 1) for t in side] for side in (self.weights, self.biases))
        return Copies(tuple(weights), tuple(biases), self.leaks, self.backward)


def random_starts(
    count: int,
    *,
    seed: int,
    widths: Sequence[int] = WIDTHS,
    scale: float | int = 1.0,
    he: bool = False,
    bias: float | int | None = None,
    output_bias: float | int | None = None,
    leak: float | int = 0.0,
    output_leak: float | int | None = None,
    backward_leak: float | int | None = None,
) -> Copies:
    """Draw starts as `torch.nn.Linear` does: weights and biases uniform between -1/sqrt(inputs) and 1/sqrt(inputs).

    `scale` multiplies both. With `he` weights are normal with variance 2/inputs and biases 0. `bias` is given to all units
    instead, `output_bias` to the outputs only. `leak` is the slope of every unit below 0 (0 is the ReLU, 1 no gate at all),
    `output_leak` that of the outputs; with `backward_leak` errors go back as if the slope of every unit were that one, while
    the values are as before.
    """
    generator = torch.Generator().manual_seed(seed)
    weights, biases = [], []
    for inputs, outputs in itertools.pairwise(widths):
        if he:
            weights.append(
                torch.randn(count, outputs, inputs, generator=generator, dtype=torch.float64) * (2 / inputs) ** 0.5
            )
            biases.append(torch.zeros(count, outputs, 1, dtype=torch.float64))
            continue
        for side, last in ((weights, inputs), (biases, 1)):
            drawn = torch.rand(count, outputs, last, generator=generator, dtype=torch.float64)
            side.append(scale * (2 * drawn - 1) / inputs**0.5)
    if bias is not None:
        biases = [torch.full_like(b, float(bias)) for b in biases]
    if output_bias is not None:
        biases[-1] = torch.full_like(biases[-1], float(output_bias))
    last = leak if output_leak is None else output_leak
    leaks = (*[float(leak)] * (len(weights) - 1), float(last))
    backward = leaks if backward_leak is None else (float(backward_leak),) * len(weights)
    return Copies(tuple(weights), tuple(biases), leaks, backward)


def train(copies: Copies, *, step_size: float | int | Tensor, steps: int, adam: bool = False) -> Copies:
    """Take steps of gradient descent, or of Adam with its usual constants; a tensor is one step size for each copy."""
    rate = torch.as_tensor(step_size, dtype=torch.float64).reshape(-1, 1, 1)
    weights, biases = [w.clone() for w in copies.weights], [b.clone() for b in copies.biases]
    parameters = weights + biases
    means, squares = ([torch.zeros_like(p) for p in parameters] for _ in range(2))
    now = Copies(
        tuple(weights), tuple(biases), copies.leaks, copies.backward
    )  # shares its tensors, which change in place
    for t in range(1, steps + 1):
        sums, values = now.sums_and_values()
        slope, by_weight, by_bias = 2 * (values[-1] - EXAMPLES), [], []
        for k in reversed(range(len(weights))):
            error = torch.where(sums[k] > 0, slope, copies.backward[k] * slope)
            by_weight.insert(0, error @ values[k].mT)
            by_bias.insert(0, error.sum(2, keepdim=True))
            slope = weights[k].mT @ error
        for p, gradient, first, second in zip(parameters, by_weight + by_bias, means, squares, strict=True):
            if adam:
                first.mul_(0.9).add_(gradient, alpha=0.1)
                second.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
                gradient = first / (1 - 0.9**t) / ((second / (1 - 0.999**t)).sqrt() + 1e-8)
            p.sub_(rate * gradient)
    return now
