"""The stacked and the sparse autoencoder, with one interface.

`encode` takes raw hidden states and gives the code, `decode` takes a code and gives raw hidden
states, `forward` does one after the other, and `loss(batch)` gives the named parts of the training
loss with their weighted sum as "total".

Inside, both work on centred states divided by one number, so that the mean squared norm is 1: the
reconstruction loss is then the fraction of variance that is missing, and weights and step sizes carry
over from one model to another. The scale is one number and not one a dimension, because rescaling
dimensions separately would change which directions carry the variance.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from course_lib.sae import losses


class Autoencoder(nn.Module, ABC):
    """What the two have in common: the interface, and the centring and scaling of inputs.

    The buffers `input_mean` (d_model) and `input_scale` (a number) start at 0 and 1 and are set from
    the training data by `fit_normalisation`.
    """

    kind: ClassVar[str]

    def __init__(self, d_model: int) -> None:
        super().__init__()
        _check_width("d_model", d_model)
        self.d_model = d_model
        self.register_buffer("input_mean", torch.zeros(d_model))
        self.register_buffer("input_scale", torch.ones(()))

    @property
    @abstractmethod
    def code_width(self) -> int:
        """Number of units in the code."""

    @abstractmethod
    def config(self) -> dict[str, Any]:
        """The constructor's arguments, as they are written to config.json."""

    @abstractmethod
    def _encode(self, x: Float[Tensor, "batch d_model"]) -> Float[Tensor, "batch code"]:
        """Code of centred and scaled states."""

    @abstractmethod
    def _decode(self, code: Float[Tensor, "batch code"]) -> Float[Tensor, "batch d_model"]:
        """Centred and scaled states of a code."""

    @abstractmethod
    def _parts(
        self,
        x: Float[Tensor, "batch d_model"],
        *,
        labels: Int[Tensor, " batch"] | Float[Tensor, "batch outputs"] | None,
        sparsity_scale: float,
    ) -> dict[str, Float[Tensor, ""]]:
        """Named loss parts of centred and scaled states."""

    @torch.no_grad()
    def fit_normalisation(self, activations: Float[Tensor, "rows d_model"]) -> None:
        """Store the mean of `activations` and the root of their mean squared distance from it.

        Raises ValueError where all rows are equal: there is no variance to explain.
        """
        rows = activations.to(torch.float64)
        mean = rows.mean(dim=0)
        scale = (rows - mean).square().sum(dim=1).mean().sqrt()
        if scale <= 1e-12 * (1 + mean.norm()):
            raise ValueError(
                "activations have no variance: all rows are equal; expected varying hidden states"
            )
        self.input_mean.copy_(mean)
        self.input_scale.copy_(scale)

    def normalise(self, x: Float[Tensor, "batch d_model"]) -> Float[Tensor, "batch d_model"]:
        """(x - input_mean) / input_scale."""
        return (x - self.input_mean) / self.input_scale

    def encode(self, x: Float[Tensor, "batch d_model"]) -> Float[Tensor, "batch code"]:
        """Code of raw hidden states."""
        return self._encode(self.normalise(x))

    def decode(self, code: Float[Tensor, "batch code"]) -> Float[Tensor, "batch d_model"]:
        """Raw hidden states that a code stands for."""
        return self._decode(code) * self.input_scale + self.input_mean

    def forward(self, x: Float[Tensor, "batch d_model"]) -> Float[Tensor, "batch d_model"]:
        """Reconstruction of raw hidden states."""
        return self.decode(self.encode(x))

    def loss(
        self,
        batch: Float[Tensor, "batch d_model"],
        *,
        labels: Int[Tensor, " batch"] | Float[Tensor, "batch outputs"] | None = None,
        sparsity_scale: float = 1.0,
    ) -> dict[str, Float[Tensor, ""]]:
        """Named parts of the training loss of raw hidden states, and their weighted sum as "total".

        Parts are unweighted. `sparsity_scale` multiplies the weight of the sparsity term (training
        raises it from 0 to 1 at the start).
        """
        return self._parts(self.normalise(batch), labels=labels, sparsity_scale=sparsity_scale)


class StackedAutoencoder(Autoencoder):
    """A bottleneck: several encoder layers, each narrower than the last, and an affine decoder.

    z = f_L(... f_1(x)) with f_l(h) = s(W_l h + b_l), x_hat = W' z + b'; s the sigmoid or ReLU. With
    `widths=None` the widths are d_model / 2 and d_model / 8, so 1024 goes to 512 and 128.

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

    def __init__(
        self,
        d_model: int,
        widths: Sequence[int] | None = None,
        activation: Literal["sigmoid", "relu"] = "sigmoid",
        *,
        n_outputs: int = 0,
        supervised: Literal["cross_entropy", "squared_error"] = "cross_entropy",
        beta: float = 0.0,
        rho: float = 0.05,
        gamma: float = 0.0,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(d_model)
        self.widths = tuple(widths) if widths is not None else (max(d_model // 2, 1), max(d_model // 8, 1))
        if not self.widths:
            raise ValueError("widths is empty; expected at least one layer width, the last one the code's")
        for width in self.widths:
            _check_width("widths", width)
        if activation not in ("sigmoid", "relu"):
            raise ValueError(f"activation is {activation!r}; expected 'sigmoid' or 'relu'")
        if supervised not in ("cross_entropy", "squared_error"):
            raise ValueError(f"supervised is {supervised!r}; expected 'cross_entropy' or 'squared_error'")
        losses.check_weight("beta", beta)
        losses.check_weight("gamma", gamma)
        if not 0 < rho < 1:
            raise ValueError(f"rho is {rho}; the target activation must lie strictly between 0 and 1")
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
        self.beta, self.rho, self.gamma = beta, rho, gamma
        sizes = (d_model, *self.widths)
        self.encoder = nn.ModuleList(
            _linear(a, b, generator) for a, b in zip(sizes, self.widths, strict=False)
        )
        self.decoder = _linear(self.widths[-1], d_model, generator)
        self.head = _linear(self.widths[-1], n_outputs, generator) if n_outputs else None
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
        }

    def _encode(self, x: Float[Tensor, "batch d_model"]) -> Float[Tensor, "batch code"]:
        # Weights and Adam's steps are made for inputs and outputs of size 1 in each dimension, not in norm.
        x = x * self.d_model**0.5
        squash = torch.sigmoid if self.activation == "sigmoid" else torch.relu
        for layer in self.encoder:
            x = squash(layer(x))
        return x

    def _decode(self, code: Float[Tensor, "batch code"]) -> Float[Tensor, "batch d_model"]:
        return self.decoder(code) / self.d_model**0.5

    def predict(self, x: Float[Tensor, "batch d_model"]) -> Float[Tensor, "batch outputs"]:
        """Outputs of the supervised head (class logits for the cross-entropy) for raw hidden states.

        Raises RuntimeError for an autoencoder without a head.
        """
        if self.head is None:
            raise RuntimeError("this autoencoder has no supervised head; build it with n_outputs > 0")
        return self.head(self.encode(x))

    def _parts(
        self,
        x: Float[Tensor, "batch d_model"],
        *,
        labels: Int[Tensor, " batch"] | Float[Tensor, "batch outputs"] | None,
        sparsity_scale: float,
    ) -> dict[str, Float[Tensor, ""]]:
        code = self._encode(x)
        parts = {"reconstruction": losses.reconstruction(self._decode(code), x)}
        if self.beta > 0:
            parts["kl"] = losses.kl_sparsity(code, rho=self.rho)
        if self.gamma > 0 and labels is not None:
            supervised = losses.cross_entropy if self.supervised == "cross_entropy" else losses.squared_error
            parts["supervised"] = supervised(self.head(code), labels)
        zero = x.new_zeros(())
        parts["total"] = losses.combined(
            parts["reconstruction"],
            parts.get("kl", zero),
            parts.get("supervised", zero),
            beta=self.beta * sparsity_scale,
            gamma=self.gamma,
        )
        return parts


class SparseAutoencoder(Autoencoder):
    """An overcomplete dictionary: many features, of which a penalty leaves few active at a time.

    f = ReLU(W_e (x - b_d) + b_e), x' = W_d f + b_d, with the training loss
    ||x - x'||^2 + l1 sum_i f_i ||W_d[:, i]||_2. ReLU alone silences about half of the features; the
    penalty makes it sparse. The decoder columns' norms are part of it, so that shrinking f and growing
    W_d gains nothing.

    `n_features` defaults to 4 d_model. Range: l1 >= 0, in the units of states of mean squared norm 1.
    Raises ValueError otherwise.
    """

    kind = "sparse"

    def __init__(
        self,
        d_model: int,
        n_features: int | None = None,
        *,
        l1: float = 0.0,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(d_model)
        self.n_features = 4 * d_model if n_features is None else n_features
        _check_width("n_features", self.n_features)
        losses.check_weight("l1", l1)
        self.l1 = l1
        # Columns of this norm make W_d ReLU(W_d^T x) equal x in expectation over random directions:
        # each of n_features columns passes half of x's share 1 / d_model along it.
        columns = torch.randn(d_model, self.n_features, generator=generator)
        columns *= (2 * d_model / self.n_features) ** 0.5 / columns.norm(dim=0)
        self.encoder_weight = nn.Parameter(columns.T.clone())
        self.encoder_bias = nn.Parameter(torch.zeros(self.n_features))
        self.decoder_weight = nn.Parameter(columns)
        self.decoder_bias = nn.Parameter(torch.zeros(d_model))

    @property
    def code_width(self) -> int:
        """Number of features."""
        return self.n_features

    def config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {"d_model": self.d_model, "n_features": self.n_features, "l1": self.l1}

    def _encode(self, x: Float[Tensor, "batch d_model"]) -> Float[Tensor, "batch code"]:
        return torch.relu((x - self.decoder_bias) @ self.encoder_weight.T + self.encoder_bias)

    def _decode(self, code: Float[Tensor, "batch code"]) -> Float[Tensor, "batch d_model"]:
        return code @ self.decoder_weight.T + self.decoder_bias

    def strengths(self, features: Float[Tensor, "batch features"]) -> Float[Tensor, " features"]:
        """Root mean square length of what each feature writes: ||W_d[:, i]|| sqrt(mean_n f_i(x_n)^2).

        Unlike f_i alone it does not depend on how the product f_i W_d[:, i] is split between the two.
        """
        return features.square().mean(dim=0).sqrt() * self.decoder_weight.norm(dim=0)

    def _parts(
        self,
        x: Float[Tensor, "batch d_model"],
        *,
        labels: Int[Tensor, " batch"] | Float[Tensor, "batch outputs"] | None,
        sparsity_scale: float,
    ) -> dict[str, Float[Tensor, ""]]:
        features = self._encode(x)
        parts = {
            "reconstruction": losses.reconstruction(self._decode(features), x),
            "l1": losses.decoder_weighted_l1(features, self.decoder_weight),
        }
        parts["total"] = parts["reconstruction"] + self.l1 * sparsity_scale * parts["l1"]
        return parts


KINDS: dict[str, type[Autoencoder]] = {cls.kind: cls for cls in (StackedAutoencoder, SparseAutoencoder)}


def _check_width(name: str, width: int) -> None:
    if width < 1:
        raise ValueError(f"{name} is {width}; expected at least 1")


def _linear(n_in: int, n_out: int, generator: torch.Generator | None) -> nn.Linear:
    """A linear layer drawn from `generator` alone (nn.Linear itself would draw from the global one)."""
    layer = nn.utils.skip_init(nn.Linear, n_in, n_out)
    nn.init.xavier_normal_(layer.weight, generator=generator)
    nn.init.zeros_(layer.bias)
    return layer
