"""What sparse autoencoders share: weights, their start, the loss, and how dead features are started again."""

from abc import abstractmethod
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from course_lib import parallel
from course_lib.checks import named
from course_lib.sae import kernels, losses
from course_lib.sae.autoencoder import Autoencoder, Labels, check_rows, check_width


class SparseAutoencoder(Autoencoder):
    """What sparse autoencoders share: weights, their start, and the loss ||x - x'||^2 + penalties.

    `n_features` defaults to 4 d_model. Shapes: `encoder_weight` (n_features, d_model), `encoder_bias`
    (n_features), `decoder_weight` (d_model, n_features), `decoder_bias` (d_model).
    """

    revived_size: ClassVar[float] = 0.2

    @named
    def __init__(
        self, d_model: int, n_features: int | None = None, *, generator: torch.Generator | None = None
    ) -> None:
        super().__init__(d_model)
        self.n_features = 4 * d_model if n_features is None else n_features
        check_width("n_features", self.n_features)
        self._make_weights(_random_rows(self.n_features, d_model, generator))
        # Features seen to fire in training, to find dead ones; None: not recorded.
        self.fired: Bool[Tensor, " features"] | None = None

    def _make_weights(self, rows: Float[Tensor, "features d_model"]) -> None:
        """Encoder rows and decoder columns start at the same random directions."""
        self.encoder_weight = nn.Parameter(rows.clone())
        self.encoder_bias = nn.Parameter(torch.zeros(self.n_features))
        # A feature's column lies together in memory: a sparse code reads and writes whole columns.
        self.decoder_weight = nn.Parameter(rows.clone().T)
        self.decoder_bias = nn.Parameter(torch.zeros(self.d_model))

    @property
    def code_width(self) -> int:
        """Number of features."""
        return self.n_features

    def config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {"d_model": self.d_model, "n_features": self.n_features}

    # The weights for raw states by the names and shapes of SAELens, with centring and scaling folded in:
    # pre-activations are (x - b_dec) W_enc + b_enc, reconstructions f W_dec + b_dec. Made anew at each call.

    @property
    def W_enc(self) -> Float[Tensor, "d_model features"]:  # noqa: N802
        """Encoder weights for raw states, W_e^T / s."""
        return (self.encoder_weight / self.input_scale).T

    @property
    def b_enc(self) -> Float[Tensor, " features"]:
        """What is added to pre-activations (of gated features: those of the gate)."""
        return self.encoder_bias

    @property
    def W_dec(self) -> Float[Tensor, "features d_model"]:  # noqa: N802
        """What each feature adds to raw states, s W_d^T."""
        return self.decoder_weight.T * self.input_scale

    @property
    def b_dec(self) -> Float[Tensor, " d_model"]:
        """The raw state that no feature adds to, m + s b_d."""
        return self.input_mean + self.input_scale * self.decoder_bias

    @abstractmethod
    def _activate(self, pre: Float[Tensor, "batch features"]) -> Float[Tensor, "batch features"]:
        """Features of pre-activations."""

    def _activate_batch(self, pre: Float[Tensor, "batch features"]) -> Float[Tensor, "batch features"]:
        """Features in training, where they may depend on the other rows of the batch."""
        return self._activate(pre)

    def _penalties(
        self, pre: Float[Tensor, "batch features"], features: Float[Tensor, "batch features"]
    ) -> dict[str, tuple[float | int, Float[Tensor, ""]]]:
        """Weight and value of each sparsity penalty, by name."""
        return {}

    def _preactivations(
        self, x: Float[Tensor, "batch d_model"], dtype: torch.dtype | None = None
    ) -> Float[Tensor, "batch features"]:
        dtype = dtype or x.dtype
        weight, bias = self.encoder_weight.to(dtype), self.encoder_bias.to(dtype)
        return torch.addmm(bias, (x - self.decoder_bias).to(dtype), weight.T)

    def _encode(self, x: Float[Tensor, "batch d_model"]) -> Float[Tensor, "batch code"]:
        return self._activate(self._preactivations(x))

    def _decode(self, code: Float[Tensor, "batch code"]) -> Float[Tensor, "batch d_model"]:
        return code @ self.decoder_weight.to(code.dtype).T + self.decoder_bias

    def strengths(self, features: Float[Tensor, "batch features"]) -> Float[Tensor, " features"]:
        """Root mean square length of what each feature writes: ||W_d[:, i]|| sqrt(mean_n f_i(x_n)^2).

        Unlike f_i alone it does not depend on how the product f_i W_d[:, i] is split between the two.
        """
        return features.square().mean(dim=0).sqrt() * self.decoder_weight.norm(dim=0)

    def _parts(
        self, x: Float[Tensor, "batch d_model"], *, labels: Labels, sparsity_scale: float | int
    ) -> dict[str, Float[Tensor, ""]]:
        pre = self._preactivations(x)
        return self._parts_of(x, pre, self._activate_batch(pre), sparsity_scale)

    def _parts_of(
        self,
        x: Float[Tensor, "batch d_model"],
        pre: Float[Tensor, "batch features"],
        features: Float[Tensor, "batch features"],
        sparsity_scale: float | int,
    ) -> dict[str, Float[Tensor, ""]]:
        reconstruction = losses.reconstruction(self._decode(features), x)
        return self._summed(reconstruction, self._penalties(pre, features), sparsity_scale)

    def _summed(
        self,
        reconstruction: Float[Tensor, ""],
        penalties: dict[str, tuple[float | int, Float[Tensor, ""]]],
        sparsity_scale: float | int,
    ) -> dict[str, Float[Tensor, ""]]:
        total = reconstruction
        for weight, value in penalties.values():
            total = total + weight * sparsity_scale * value
        named = {name: value for name, (_, value) in penalties.items()}
        return {"reconstruction": reconstruction, **named, "total": total}

    def training_loss(
        self,
        batch: Float[Tensor, "batch d_model"],
        *,
        labels: Labels = None,
        sparsity_scale: float | int = 1.0,
        compute_dtype: torch.dtype | None = None,
    ) -> dict[str, Float[Tensor, ""]]:
        """`loss` as `train` computes it, see `Autoencoder.training_loss`."""
        x = self._normalised(batch)
        return self._training_parts(x, sparsity_scale, compute_dtype or x.dtype)

    def _training_parts(
        self, x: Float[Tensor, "batch d_model"], sparsity_scale: float | int, dtype: torch.dtype
    ) -> dict[str, Float[Tensor, ""]]:
        """`training_loss` of centred and scaled states, which are its own to change."""
        pre = self._preactivations(x, dtype)
        features = self._activate_batch(pre)
        with torch.no_grad():
            self._observe(pre, features)
        return self._parts_of(x, pre, features, sparsity_scale)

    def training_forward(
        self, batch: Float[Tensor, "batch d_model"], *, sparsity_scale: float | int = 1.0
    ) -> tuple[Float[Tensor, "batch d_model"], dict[str, Float[Tensor, ""]]]:
        """See `Autoencoder.training_forward`; features are those of training (of the whole batch in BatchTopK)."""
        check_rows(batch)
        x = self.normalise(batch)
        pre = self._preactivations(x)
        features = self._activate_batch(pre)
        parts = self._parts_of(x, pre, features, sparsity_scale)
        with torch.no_grad():
            self._observe(pre, features)
        return self.decode(features), parts

    def _observe(
        self, pre: Float[Tensor, "batch features"], features: Float[Tensor, "batch features"]
    ) -> None:
        """Gather what training wants to know of a batch."""
        if self._watched:
            self._note_active(features.amax(dim=0) > 0, n_rows=len(features))

    @property
    def _watched(self) -> bool:
        """Whether anybody asks which features are active."""
        return self.fired is not None

    def _note_active(self, active: Bool[Tensor, " features"], *, n_rows: int) -> None:
        """Remember which features were active in a batch of `n_rows` rows."""
        if self.fired is not None:
            self.fired |= active

    def _observe_code(self, code: kernels.SparseCode, *, n_rows: int) -> None:
        """Gather the same of a batch of which only the active entries are known."""
        if not self._watched:
            return
        # A mask of active entries would be read back for its size.
        sums = code.values.new_zeros(self.n_features).index_add_(0, code.columns, code.values)
        self._note_active(sums > 0, n_rows=n_rows)

    def _weights(self) -> dict[str, Tensor]:
        """Weights and biases by the names that the kernels give them."""
        names = ("encoder_weight", "encoder_bias", "decoder_weight", "decoder_bias")
        return {name: getattr(self, name) for name in names}

    @torch.no_grad()
    def restart(
        self,
        dead: Int[Tensor, " dead"],
        batch: Float[Tensor, "batch d_model"],
        *,
        generator: torch.Generator,
    ) -> list[tuple[nn.Parameter, Any]]:
        """Point features, given by their numbers, at what the reconstruction of badly explained rows lacks.

        Rows are drawn in proportion to their squared loss ||x - x'||^4; a feature's encoder row and decoder
        column take the direction of x - x', with the mean norms of the other features (encoder rows `revived_size`
        times that, not to disturb what works) and bias 0. Returns the parameters and the entries that were set.
        Source: Bricken et al. (2023), Towards Monosemanticity, which takes the direction of x instead.
        """
        x = self.normalise(batch)
        residual = x - self._decode(self._activate_batch(self._preactivations(x)))
        residual = parallel.gathered(residual)
        badness = residual.square().sum(dim=1).double().square().cpu()
        rows = torch.multinomial(badness + 1e-300, len(dead), replacement=True, generator=generator)
        directions = nn.functional.normalize(residual[rows.to(residual.device)], dim=1)
        others = torch.ones_like(self.encoder_bias, dtype=torch.bool)
        others[dead] = len(dead) == self.n_features
        encoder_norm = self.encoder_weight[others].norm(dim=1).mean()
        decoder_norm = self.decoder_weight.T[others].norm(dim=1).mean()
        self.encoder_weight[dead] = self.revived_size * encoder_norm * directions
        self.encoder_bias[dead] = 0
        self.decoder_weight[:, dead] = decoder_norm * directions.T
        return [
            (self.encoder_weight, dead),
            (self.encoder_bias, dead),
            (self.decoder_weight, (slice(None), dead)),
        ]

    @torch.no_grad()
    def move_norms_to_encoder(self) -> None:
        """Give decoder columns the length 1 and the encoder rows theirs: a ReLU's output stays as it is."""
        norms = self.decoder_weight.norm(dim=0)
        self.encoder_weight.mul_(norms[:, None])
        self.encoder_bias.mul_(norms)
        rescale_columns_(self.decoder_weight)


@torch.no_grad()
def remove_radial_(gradient: Float[Tensor, "rows d"], rows: Float[Tensor, "rows d"]) -> None:
    """Take from each row of `gradient`, in place, its part along the row of `rows`, which has norm 1."""
    gradient.sub_((gradient * rows).sum(dim=1, keepdim=True) * rows)


@torch.no_grad()
def rescale_columns_(weight: Float[Tensor, "d_model features"]) -> None:
    """Divide each column, in place, by its length; a column of zeros stays."""
    weight.div_(weight.norm(dim=0).clamp(min=torch.finfo(weight.dtype).tiny))


def _random_rows(
    n_features: int, d_model: int, generator: torch.Generator | None
) -> Float[Tensor, "features d_model"]:
    """Random directions of the norm at which W_d ReLU(W_d^T x) equals x in expectation.

    Each of n_features rows of norm c passes half of x's share 1 / d_model along it, times c^2.
    """
    columns = torch.randn(d_model, n_features, generator=generator)
    columns *= (2 * d_model / n_features) ** 0.5 / columns.norm(dim=0)
    return columns.T.contiguous()
