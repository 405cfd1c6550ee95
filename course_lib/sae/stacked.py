"""The stacked autoencoder: a bottleneck that compresses hidden states, layer by layer."""

import math
from collections.abc import Sequence
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from course_lib.checks import named
from course_lib.sae import kernels, losses
from course_lib.sae.autoencoder import Autoencoder, Labels, check_width, linear


class StackedAutoencoder(Autoencoder):
    """A bottleneck: several encoder layers, each narrower than the last, and an affine decoder.

    z = f_L(... f_1(x)) with f_l(h) = s(W_l h + b_l), x_hat = W' z + b'; s the sigmoid or ReLU. With
    `widths=None` the widths are d_model / 2 and d_model / 8, so 1024 goes to 512 and 128. A tied
    decoder has W' = (W_L ... W_1)^T: half the parameters, and the same directions are read and written.

    The decoder is affine by design. Hidden states are signed, so a squashed output could not reach
    them. And the reconstructions then lie in an affine subspace of dimension k (the code's width), so
    that the explained variance can never exceed that of PCA with k components on the same rows, however
    deep the encoder is. (A non-linear decoder has no such bound: an angle reconstructs a circle.)

    The training loss is ||x - x_hat||^2 + beta sum_j KL(rho || rho_hat_j) + gamma L_sup, with rho_hat_j the
    batch mean of code unit j, and L_sup the loss of a linear head on the code: the cross-entropy for
    integer labels, or the squared error with `supervised="squared_error"`. Without labels L_sup is 0.

    Ranges: beta, gamma >= 0; rho in (0, 1), the KL needs sigmoid units. Raises ValueError otherwise.
    """

    kind = "stacked"

    @named
    def __init__(
        self,
        d_model: int,
        widths: Sequence[int] | None = None,
        activation: Literal["sigmoid", "relu"] = "sigmoid",
        *,
        n_outputs: int = 0,
        supervised: Literal["cross_entropy", "squared_error"] = "cross_entropy",
        beta: float | int = 0.0,
        rho: float | int = 0.05,
        gamma: float | int = 0.0,
        tied: bool = False,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(d_model)
        self.widths = tuple(widths) if widths is not None else (max(d_model // 2, 1), max(d_model // 8, 1))
        if not self.widths:
            raise ValueError("widths is empty; expected at least one layer width, the last one the code's")
        for width in self.widths:
            check_width("widths", width)
        if activation not in ("sigmoid", "relu"):
            raise ValueError(f"activation is {activation!r}; expected 'sigmoid' or 'relu'")
        if supervised not in ("cross_entropy", "squared_error"):
            raise ValueError(f"supervised is {supervised!r}; expected 'cross_entropy' or 'squared_error'")
        losses.check_weight("beta", beta)
        losses.check_weight("gamma", gamma)
        losses.check_probability("rho", rho)
        if beta > 0 and activation != "sigmoid":
            raise ValueError(
                f"beta is {beta} with activation {activation!r}; the KL penalty needs mean activations "
                "in (0, 1): use activation='sigmoid' or beta=0"
            )
        if gamma > 0 and n_outputs < 1:
            raise ValueError(
                f"gamma is {gamma} with n_outputs {n_outputs}; the supervised loss needs outputs"
            )
        self.activation, self.supervised, self.n_outputs = activation, supervised, n_outputs
        self.beta, self.rho, self.gamma, self.tied = beta, rho, gamma, tied
        sizes = (d_model, *self.widths)
        self.encoder = nn.ModuleList(
            linear(a, b, generator) for a, b in zip(sizes, self.widths, strict=False)
        )
        if tied:
            self.decoder_bias = nn.Parameter(torch.zeros(d_model))
        else:
            self.decoder = linear(self.widths[-1], d_model, generator)
        self.head = linear(self.widths[-1], n_outputs, generator) if n_outputs else None
        self._initialise()

    @torch.no_grad()
    def _initialise(self) -> None:
        """Start where the units respond, so that signals and gradients pass through all layers.

        A sigmoid adds the constant 1/2 and has slope 1/4: the next encoder layer's bias and weights undo
        the two. Code units start at their target rho, not to travel there through the sigmoid's flat end.
        """
        if self.activation != "sigmoid":
            return
        for layer in self.encoder[1:]:
            layer.weight.mul_(4)
            layer.bias.sub_(layer.weight.sum(dim=1) / 2)
        if self.beta > 0:
            self.encoder[-1].bias.add_(math.log(self.rho / (1 - self.rho)))

    @property
    def code_width(self) -> int:
        """Number of units in the code."""
        return self.widths[-1]

    def config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {
            "d_model": self.d_model,
            "widths": list(self.widths),
            "activation": self.activation,
            "n_outputs": self.n_outputs,
            "supervised": self.supervised,
            "beta": self.beta,
            "rho": self.rho,
            "gamma": self.gamma,
            "tied": self.tied,
        }

    def _encode(self, x: Float[Tensor, "batch d_model"]) -> Float[Tensor, "batch code"]:
        return self.layer_inputs(x, len(self.encoder))

    def layer_inputs(self, x: Float[Tensor, "batch d_model"], depth: int) -> Float[Tensor, "batch n_in"]:
        """What layer `depth` (0, 1, ...) reads for centred and scaled states; after the last, the code."""
        # Weights and Adam's steps are made for inputs and outputs of size 1 in each dimension, not in norm.
        x = x * self.d_model**0.5
        squash = torch.sigmoid if self.activation == "sigmoid" else torch.relu
        for layer in self.encoder[:depth]:
            x = squash(layer(x))
        return x

    def _decode(self, code: Float[Tensor, "batch code"]) -> Float[Tensor, "batch d_model"]:
        if not self.tied:
            return self.decoder(code) / self.d_model**0.5
        for layer in reversed(self.encoder):
            code = code @ layer.weight
        return (code + self.decoder_bias) / self.d_model**0.5

    def predict(self, x: Float[Tensor, "batch d_model"]) -> Float[Tensor, "batch outputs"]:
        """Outputs of the supervised head (class logits for the cross-entropy) for raw hidden states.

        Raises RuntimeError for an autoencoder without a head.
        """
        if self.head is None:
            raise RuntimeError("this autoencoder has no supervised head; build it with n_outputs > 0")
        return self.head(self.encode(x))

    def _parts(
        self, x: Float[Tensor, "batch d_model"], *, labels: Labels, sparsity_scale: float | int
    ) -> dict[str, Float[Tensor, ""]]:
        code = self._encode(x)
        reconstruction = losses.reconstruction(self._decode(code), x)
        return self._parts_of(reconstruction, code, labels, sparsity_scale)

    def _parts_of(
        self,
        reconstruction: Float[Tensor, ""],
        code: Float[Tensor, "batch code"],
        labels: Labels,
        sparsity_scale: float | int,
    ) -> dict[str, Float[Tensor, ""]]:
        parts = {"reconstruction": reconstruction}
        if self.beta > 0:
            parts["kl"] = losses.kl_sparsity(code, rho=self.rho)
        if self.gamma > 0 and labels is not None:
            supervised = losses.cross_entropy if self.supervised == "cross_entropy" else losses.squared_error
            parts["supervised"] = supervised(self.head(code), labels)
        zero = reconstruction.new_zeros(())
        parts["total"] = losses.combined(
            parts["reconstruction"],
            parts.get("kl", zero),
            parts.get("supervised", zero),
            beta=self.beta * sparsity_scale,
            gamma=self.gamma,
        )
        return parts

    def training_loss(
        self,
        batch: Float[Tensor, "batch d_model"],
        *,
        labels: Labels = None,
        sparsity_scale: float | int = 1.0,
        compute_dtype: torch.dtype | None = None,
    ) -> dict[str, Float[Tensor, ""]]:
        """`loss` as `train` computes it, see `Autoencoder.training_loss`."""
        if self.tied:
            return self.loss(batch, labels=labels, sparsity_scale=sparsity_scale)
        stack = (
            [(layer.weight, layer.bias) for layer in self.encoder],
            (self.decoder.weight, self.decoder.bias),
        )
        how = {
            "activation": self.activation,
            "scale": self.d_model**0.5,
            "compute_dtype": compute_dtype or self.input_mean.dtype,
        }
        reconstruction, code = kernels.stacked_reconstruction(self._normalised(batch), *stack, **how)
        return self._parts_of(reconstruction, code, labels, sparsity_scale)
