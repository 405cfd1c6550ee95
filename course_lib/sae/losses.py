"""The terms that autoencoders are trained on.

Every term is a mean over the batch of a per-sample value, except the KL penalty, which is a
function of the batch itself (it looks at each unit's mean activation). Sums run over
dimensions and units, so the weights beta, gamma and lambda mean the same for every batch size.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from course_lib import parallel

NO_LABEL = -1


def reconstruction(
    x_hat: Float[Tensor, "batch d_model"], x: Float[Tensor, "batch d_model"]
) -> Float[Tensor, ""]:
    """Squared error of the reconstruction, per sample, averaged over the batch.

    (1/N) sum_n ||x_n - x_hat_n||_2^2. The mean over all entries, which libraries call MSE, is
    1/d_model of it.
    """
    return (x_hat - x).square().sum(dim=-1).mean()


def bernoulli_kl(rho: float | int, rho_hat: Float[Tensor, " units"]) -> Float[Tensor, " units"]:
    """KL divergence between coins that land heads with probability rho and rho_hat.

    KL(rho || rho_hat) = rho log(rho / rho_hat) + (1 - rho) log((1 - rho) / (1 - rho_hat)), with
    derivative -rho / rho_hat + (1 - rho) / (1 - rho_hat) in rho_hat.

    Both must lie strictly between 0 and 1: a ReLU's mean is not a probability, and the formula
    gives NaN above 1 and infinity at 0.

    Raises ValueError where rho or an entry of rho_hat is outside (0, 1). On another device than the CPU, which
    each look at a value would keep waiting, only rho is checked, and the loss becomes NaN or infinite.
    """
    check_probability("rho", rho)
    outside = ~((rho_hat > 0) & (rho_hat < 1))
    if rho_hat.device.type == "cpu" and outside.any():
        unit = int(outside.nonzero()[0])
        raise ValueError(
            f"rho_hat is {rho_hat[unit].item():g} at unit {unit} ({int(outside.sum())} of {len(rho_hat)} "
            "units outside (0, 1)); the KL penalty is defined for mean activations strictly between 0 and 1. "
            "Use sigmoid units, or an L1 penalty for ReLU units."
        )
    return rho * torch.log(rho / rho_hat) + (1 - rho) * torch.log((1 - rho) / (1 - rho_hat))


def kl_sparsity(units: Float[Tensor, "batch units"], *, rho: float | int) -> Float[Tensor, ""]:
    """Sparsity penalty of the combined loss: sum_j KL(rho || rho_hat_j), rho_hat_j the batch mean.

    rho_hat_j = (1/N) sum_n h_j(x_n) is a statistic of the batch: small batches make it noisy.

    Raises ValueError where a mean activation is outside (0, 1), see `bernoulli_kl`.
    """
    # At least float32: in bfloat16 a mean close to 1 would be rounded to 1, outside the domain.
    rho_hat = units.mean(dim=0, dtype=torch.promote_types(units.dtype, torch.float32))
    return bernoulli_kl(rho, parallel.mean_over_ranks(rho_hat)).sum()


class SparsityCheck(NamedTuple):
    """Mean activations rho_hat, and the units that violate each of the two sparsity constraints.

    `outside`: |rho_hat_j - rho| > eps. `above`: rho_hat_j > rho. Neither constraint implies the other: a unit that
    never fires meets rho_hat_j <= rho and misses the target by rho, one at rho + eps / 2 the reverse.
    """

    rho_hat: Float[Tensor, " units"]
    outside: Int[Tensor, " violating"]
    above: Int[Tensor, " exceeding"]


def check_sparsity(
    units: Float[Tensor, "batch units"], *, rho: float | int, eps: float | int
) -> SparsityCheck:
    """Which units violate |rho_hat_j - rho| <= eps, and which rho_hat_j <= rho.

    rho_hat_j = (1/N) sum_n h_j(x_n). For sigmoid units it is a mean firing probability; for ReLU units it is a
    scale and says little about how often they fire.

    Raises ValueError unless 0 < rho < 1 and eps >= 0.
    """
    check_probability("rho", rho)
    check_weight("eps", eps)
    rho_hat = units.double().mean(dim=0)
    return SparsityCheck(
        rho_hat.to(units.dtype),
        ((rho_hat - rho).abs() > eps).nonzero()[:, 0],
        (rho_hat > rho).nonzero()[:, 0],
    )


def squared_error(
    prediction: Float[Tensor, "batch outputs"], target: Float[Tensor, "batch outputs"]
) -> Float[Tensor, ""]:
    """Supervised squared error: (1/N) sum_n ||y_n - y_hat_n||_2^2."""
    return (prediction - target).square().sum(dim=-1).mean()


def cross_entropy(logits: Float[Tensor, "batch classes"], labels: Int[Tensor, " batch"]) -> Float[Tensor, ""]:
    """Supervised cross-entropy: the mean of -sum_c y_c log y_hat_c with y_hat = softmax(logits).

    Logits rather than probabilities come in, so that y_hat is a probability vector by construction
    and its logarithm stays finite. Rows labelled `NO_LABEL` (-1) are left out of the mean; with no
    labelled row at all the value is 0.

    Raises ValueError for a label outside 0 .. classes - 1, on the CPU; on a GPU torch itself refuses it.
    """
    if labels.device.type == "cpu":
        check_labels(labels, classes=logits.shape[-1])
    summed = functional.cross_entropy(logits, labels, ignore_index=NO_LABEL, reduction="sum")
    labelled = parallel.mean_over_ranks((labels != NO_LABEL).sum().to(logits.dtype))
    return summed / torch.where(labelled > 0, labelled, 1)


def check_labels(labels: Int[Tensor, " batch"], *, classes: int) -> None:
    """Raise ValueError for a label outside 0 .. classes - 1 that is not `NO_LABEL`. It reads the labels back."""
    if labels.numel() and (int(labels.max()) >= classes or int(labels.min()) < NO_LABEL):
        raise ValueError(
            f"labels range from {int(labels.min())} to {int(labels.max())}; expected 0 to "
            f"{classes - 1} for {classes} classes, or {NO_LABEL} for no label"
        )


def combined(
    reconstruction: Float[Tensor, ""],
    sparsity: Float[Tensor, ""],
    supervised: Float[Tensor, ""],
    *,
    beta: float | int,
    gamma: float | int,
) -> Float[Tensor, ""]:
    """Combined loss of a stacked autoencoder: reconstruction + beta sparsity + gamma supervised.

    Raises ValueError unless beta >= 0 and gamma >= 0: a negative weight rewards what the term measures.
    """
    check_weight("beta", beta)
    check_weight("gamma", gamma)
    return reconstruction + beta * sparsity + gamma * supervised


def decoder_weighted_l1(
    features: Float[Tensor, "batch features"], decoder_weight: Float[Tensor, "d_model features"]
) -> Float[Tensor, ""]:
    """L1 of the features, each weighted by the norm of its decoder column, averaged over the batch.

    (1/N) sum_n sum_i f_i(x_n) ||W_d[:, i]||_2 for features f >= 0. It penalises activations, not
    weights. The norms close a loophole: f / 10 with 10 W_d reconstructs the same and would have a
    tenth of the plain L1. The gradient in an active f_i is +||W_d[:, i]||_2, so descent shrinks it.
    """
    return (features * decoder_weight.norm(dim=0)).sum(dim=-1).mean()


def check_probability(name: str, value: float | int) -> None:
    """Raise ValueError unless a target activation lies strictly between 0 and 1."""
    if not 0 < value < 1:
        raise ValueError(f"{name} is {value}; the target activation must lie strictly between 0 and 1")


def check_weight(name: str, value: float | int) -> None:
    """Raise ValueError unless a weight of a loss term is finite and at least 0."""
    if not 0 <= value < float("inf"):
        raise ValueError(f"{name} is {value}; expected a finite number of at least 0")
