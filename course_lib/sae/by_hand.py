"""Autoencoders whose every number can be checked on paper: forward pass, backward pass, one step.

A network is a tuple of layers. As on paper, columns are examples: a matrix of hidden values has one row a
unit and one column an example, so that a layer is W H + b (`torch.nn.Linear` keeps examples in rows). The
forward pass keeps every intermediate value, and the backward pass reads them; nothing here uses autograd.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from course_lib.sae.losses import check_weight


@dataclass(frozen=True)
class Layer:
    """Weights and biases of one layer, h = ReLU(W h_before + b), without the ReLU where `relu` is False."""

    weight: Float[Tensor, "outputs inputs"]
    bias: Float[Tensor, " outputs"]
    relu: bool = True


@dataclass(frozen=True)
class ForwardPass:
    """What a forward pass computed: `values[0]` is the input, `sums[l]` and `values[l + 1]` are layer l's."""

    sums: tuple[Tensor, ...]
    values: tuple[Tensor, ...]

    @property
    def output(self) -> Tensor:
        """The last layer's values."""
        return self.values[-1]


@dataclass(frozen=True)
class BackwardPass:
    """What a backward pass computed: per layer, the loss's derivatives in its sums, weights and biases."""

    errors: tuple[Tensor, ...]
    weights: tuple[Tensor, ...]
    biases: tuple[Tensor, ...]


@dataclass(frozen=True)
class SparseLoss:
    """The two parts of a sparse autoencoder's loss and their weighted sum; norms are the decoder columns'."""

    reconstruction: Float[Tensor, ""]
    sparsity: Float[Tensor, ""]
    total: Float[Tensor, ""]
    column_norms: Float[Tensor, " features"]


@dataclass(frozen=True)
class SparseBackwardPass(BackwardPass):
    """A sparse autoencoder's backward pass, with the two gradients that meet at its features.

    `from_reconstruction` and `from_sparsity` are derivatives in f of the two parts of the loss, l1 included.
    Where f = 0 the second is 0, and the ReLU's mask removes both: `errors[0]` is their masked sum.
    """

    from_reconstruction: Float[Tensor, "features examples"]
    from_sparsity: Float[Tensor, "features examples"]


def forward(layers: Sequence[Layer], x: Float[Tensor, "inputs examples"]) -> ForwardPass:
    """Forward pass that keeps every value (33.1).

    z_l = W_l h_{l-1} + b_l 1^T, h_l = max(0, z_l), h_0 = x; h_l = z_l for a layer without ReLU.

    Shapes: columns of `x` are examples. Raises ValueError where a layer's width does not fit what it reads.
    """
    sums, values = [], [x]
    for number, layer in enumerate(layers, start=1):
        if layer.weight.shape[1] != len(values[-1]):
            raise ValueError(
                f"layer {number} reads {layer.weight.shape[1]} values and got {len(values[-1])}; "
                "columns are examples: did you pass them as rows?"
            )
        sums.append(layer.weight @ values[-1] + layer.bias[:, None])
        values.append(sums[-1].relu() if layer.relu else sums[-1])
    return ForwardPass(tuple(sums), tuple(values))


def squared_error(
    output: Float[Tensor, "outputs examples"], target: Float[Tensor, "outputs examples"]
) -> Float[Tensor, ""]:
    """Loss of a reconstruction, summed over all entries: sum_n ||y_n - y'_n||^2 (33.2).

    Libraries' MSE is the mean over entries, `course_lib.sae.losses.reconstruction` the mean over examples.
    """
    return (output - target).square().sum()


def backward(
    layers: Sequence[Layer], passed: ForwardPass, target: Float[Tensor, "outputs examples"]
) -> BackwardPass:
    """Backward pass of the squared error, from the last layer to the first (33.3) to (33.5).

    delta_L = 2 (y - y') 1[z_L > 0], dW_l = delta_l h_{l-1}^T, db_l = delta_l 1,
    delta_{l-1} = (W_l^T delta_l) 1[z_{l-1} > 0].

    A sum of exactly 0 counts as off, as in torch. Shapes: errors[l] as passed.sums[l], weights[l] as W_l.
    """
    errors, weights, biases = [], [], []
    slope = 2 * (passed.output - target)
    for layer, sums, before in reversed(list(zip(layers, passed.sums, passed.values, strict=False))):
        error = slope * (sums > 0) if layer.relu else slope
        errors.insert(0, error)
        weights.insert(0, error @ before.T)
        biases.insert(0, error.sum(dim=1))
        slope = layer.weight.T @ error
    return BackwardPass(tuple(errors), tuple(weights), tuple(biases))


def step(layers: Sequence[Layer], gradients: BackwardPass, *, step_size: float | int) -> tuple[Layer, ...]:
    """One step of gradient descent: W - eta dW and b - eta db in every layer (33.6)."""
    return tuple(
        Layer(layer.weight - step_size * weight, layer.bias - step_size * bias, layer.relu)
        for layer, weight, bias in zip(layers, gradients.weights, gradients.biases, strict=True)
    )


def sparse_loss(
    layers: Sequence[Layer], passed: ForwardPass, target: Float[Tensor, "inputs examples"], *, l1: float | int
) -> SparseLoss:
    """Loss of a sparse autoencoder, encoder (ReLU) and decoder (none), summed over examples (33.9).

    sum_n ||x'_n - x_n||^2 + l1 sum_n sum_i f_{i,n} ||W_d[:, i]||_2.

    Range: l1 >= 0. Raises ValueError for another l1, or where the layers are not such a pair.
    """
    _check_sparse(layers, l1)
    norms = layers[1].weight.norm(dim=0)
    reconstruction = squared_error(passed.output, target)
    sparsity = (norms[:, None] * passed.values[1]).sum()
    return SparseLoss(reconstruction, sparsity, reconstruction + l1 * sparsity, norms)


def sparse_backward(
    layers: Sequence[Layer], passed: ForwardPass, target: Float[Tensor, "inputs examples"], *, l1: float | int
) -> SparseBackwardPass:
    """Backward pass of `sparse_loss` (33.10) and (33.11).

    df = 2 W_d^T (x' - x) + l1 ||W_d[:, i]|| 1[f > 0], delta = df 1[z > 0], dW_e = delta x^T, db_e = delta 1,
    dW_d = 2 (x' - x) f^T + l1 (sum_n f_{i,n}) W_d[:, i] / ||W_d[:, i]||, db_d = 2 (x' - x) 1.

    The norm of a zero column has no derivative; 0 is taken, as torch does. Shapes and errors as above.
    """
    _check_sparse(layers, l1)
    x, features, _ = passed.values
    columns = layers[1].weight
    norms = columns.norm(dim=0)
    error = 2 * (passed.output - target)
    from_reconstruction = columns.T @ error
    from_sparsity = l1 * norms[:, None] * (features > 0)
    delta = (from_reconstruction + from_sparsity) * (passed.sums[0] > 0)
    directions = torch.where(norms > 0, columns / norms, 0)
    return SparseBackwardPass(
        errors=(delta, error),
        weights=(delta @ x.T, error @ features.T + l1 * features.sum(dim=1) * directions),
        biases=(delta.sum(dim=1), error.sum(dim=1)),
        from_reconstruction=from_reconstruction,
        from_sparsity=from_sparsity,
    )


def _check_sparse(layers: Sequence[Layer], l1: float | int) -> None:
    check_weight("l1", float(l1))
    if [layer.relu for layer in layers] != [True, False]:
        raise ValueError(
            f"layers have ReLUs {[layer.relu for layer in layers]}; expected [True, False], an encoder with "
            "ReLU and a decoder without"
        )


# A worked example: two networks of small whole numbers


def matrix(rows: Sequence) -> Tensor:
    """Return nested lists of numbers as a float64 tensor."""
    return torch.tensor(rows, dtype=torch.float64)


# Row 3 is row 1 plus row 2, and row 4 is row 3 plus row 1: two numbers describe each example.
EXAMPLES = matrix([[1, 2, 0, 1], [0, 1, 2, 1], [1, 3, 2, 2], [2, 5, 2, 3]])
AUTOENCODER = (
    Layer(matrix([[-1, -1, 1, 1], [0, 1, 0, -1], [0, 1, 0, 0]]), matrix([-1, 1, -1])),
    Layer(matrix([[1, -1, 0], [0, 1, -1]]), matrix([-1, 1])),
    Layer(matrix([[0, 0], [1, -1], [0, 1]]), matrix([1, -1, 0])),
    Layer(matrix([[1, 0, 1], [1, 1, -1], [0, -2, 0], [0, 0, 1]]), matrix([0, 1, 1, 1])),
)
TOKENS = matrix([[1, 2, -1, 0, 1], [2, 0, 1, -1, -2], [-1, 1, 0, 2, 1]])
ENCODER = Layer(
    matrix([[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0], [0, 1, 1], [1, 0, -1]]),
    matrix([0, 0, 0, -1, 0, 0]),
)
DECODER = Layer(
    matrix([[1, 0, 0, 0, 0, 3], [0, 2, 0, 0, 0, 4], [0, 0, 1, 1, 0, 0]]), matrix([0, 0, 0]), relu=False
)
SPARSE = (ENCODER, DECODER)
