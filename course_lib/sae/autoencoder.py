"""What all autoencoders here have in common: the interface, and the centring and scaling of inputs.

`encode` takes raw hidden states and gives the code, `decode` takes a code and gives raw hidden
states, `forward` does one after the other, and `loss(batch)` gives the named parts of the training
loss with their weighted sum as "total".

Inside, all work on centred states divided by one number, so that the mean squared norm is 1: the
reconstruction loss is then the fraction of variance that is missing, and weights and step sizes carry
over from one model to another. The scale is one number and not one a dimension, because rescaling
dimensions separately would change which directions carry the variance.
"""

import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from course_lib.checks import named
from course_lib.sae import hub, io, memory
from course_lib.sae.batches import RowSource, mean_and_scale

AnyAutoencoder = TypeVar("AnyAutoencoder", bound="Autoencoder")
Labels = Int[Tensor, " batch"] | Float[Tensor, "batch outputs"] | None


class Autoencoder(nn.Module, ABC):
    """The interface, and the buffers `input_mean` (d_model) and `input_scale` (a number).

    They start at 0 and 1 and are set from the training data by `fit_normalisation`.
    """

    kind: ClassVar[str]
    # The part of the loss that asks for the states themselves, and its weight in the total; the rest is penalty.
    main_part: ClassVar[tuple[str, float]] = ("reconstruction", 1.0)

    def __init__(self, d_model: int) -> None:
        super().__init__()
        check_width("d_model", d_model)
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
        self, x: Float[Tensor, "batch d_model"], *, labels: Labels, sparsity_scale: float | int
    ) -> dict[str, Float[Tensor, ""]]:
        """Named loss parts of centred and scaled states."""

    def fit_normalisation(self, activations: RowSource) -> None:
        """Store the mean of `activations` and the root of their mean squared distance from it.

        Raises ValueError where a row is not finite, or all rows are equal: there is no variance to explain.
        """
        self.set_normalisation(*mean_and_scale(activations))

    @torch.no_grad()
    @named
    def set_normalisation(self, mean: Float[Tensor, " d_model"], scale: Float[Tensor, ""]) -> None:
        """Store the mean of the states and the root of their mean squared distance from it.

        Raises ValueError where the distance is 0: all rows are equal and there is no variance to explain.
        """
        if scale <= 1e-12 * (1 + mean.norm()):
            raise ValueError(
                "activations have no variance: all rows are equal; expected varying hidden states"
            )
        self.input_mean.copy_(mean)
        self.input_scale.copy_(scale)

    @named
    def normalise(self, x: Float[Tensor, "*rows d_model"]) -> Float[Tensor, "*rows d_model"]:
        """(x - input_mean) / input_scale. Raises ValueError for states of another width."""
        self._check_states(x)
        return (x - self.input_mean).div_(self.input_scale)

    def _check_states(self, x: Tensor, *, name: str = "x") -> None:
        if not x.ndim or x.shape[-1] != len(self.input_mean):
            raise ValueError(
                f"{name} has shape {tuple(x.shape)}: states have width {x.shape[-1] if x.ndim else 0}; "
                f"this autoencoder reads {len(self.input_mean)}"
            )

    def _normalised(self, batch: Float[Tensor, "batch d_model"]) -> Float[Tensor, "batch d_model"]:
        """`normalise` for what is the caller's own to change, in the memory of the step."""
        check_rows(batch)
        if batch.requires_grad:
            return self.normalise(batch)
        self._check_states(batch)
        dtype = torch.result_type(batch, self.input_mean)
        x = memory.empty(*batch.shape, like=batch, dtype=dtype)
        return torch.sub(batch, self.input_mean, out=x).div_(self.input_scale)

    @named
    def encode(self, x: Float[Tensor, "*rows d_model"]) -> Float[Tensor, "*rows code"]:
        """Code of raw hidden states: rows, or (batch, tokens, d_model), each of which is encoded by itself."""
        return _by_rows(self._encode, self.normalise(x))

    @named
    def decode(self, code: Float[Tensor, "*rows code"]) -> Float[Tensor, "*rows d_model"]:
        """Raw hidden states that a code stands for."""
        if not code.ndim or code.shape[-1] != self.code_width:
            raise ValueError(f"code has shape {tuple(code.shape)}; expected (batch, {self.code_width})")
        return _by_rows(self._decode, code) * self.input_scale + self.input_mean

    @named
    def forward(self, x: Float[Tensor, "*rows d_model"]) -> Float[Tensor, "*rows d_model"]:
        """Reconstruction of raw hidden states."""
        return self.decode(self.encode(x))

    @named
    def loss(
        self,
        batch: Float[Tensor, "batch d_model"],
        *,
        labels: Labels = None,
        sparsity_scale: float | int = 1.0,
    ) -> dict[str, Float[Tensor, ""]]:
        """Named parts of the training loss of raw hidden states, and their weighted sum as "total".

        Parts are unweighted. `sparsity_scale` multiplies the weight of the sparsity term (training
        raises it from 0 to 1 at the start). Raises ValueError for a batch without a row.
        """
        check_rows(batch)
        self._check_states(batch, name="batch")
        return self._parts(self.normalise(batch), labels=labels, sparsity_scale=sparsity_scale)

    def training_loss(
        self,
        batch: Float[Tensor, "batch d_model"],
        *,
        labels: Labels = None,
        sparsity_scale: float | int = 1.0,
        compute_dtype: torch.dtype | None = None,
    ) -> dict[str, Float[Tensor, ""]]:
        """`loss` as `train` computes it: by the fast kernels where there are any, gathering statistics.

        Large matrix products are taken in `compute_dtype` (None: the weights' own); weights, gradients
        of weights and sums stay in the weights' dtype.
        """
        return self.loss(batch, labels=labels, sparsity_scale=sparsity_scale)

    def training_forward(
        self, batch: Float[Tensor, "batch d_model"], *, sparsity_scale: float | int = 1.0
    ) -> tuple[Float[Tensor, "batch d_model"], dict[str, Float[Tensor, ""]]]:
        """Reconstruction of raw hidden states as in training, with its gradient, and the parts of `loss`.

        For losses that look at what becomes of the reconstruction. It gathers statistics as `training_loss` does.
        """
        return self(batch), self.loss(batch, sparsity_scale=sparsity_scale)

    # --- Directories and the hub ---

    def save_pretrained(self, directory: Path | str) -> None:
        """Write config.json and model.safetensors to a new directory (`course_lib.sae.save`).

        Raises FileExistsError where the directory already holds something.
        """
        io.save(self, directory)

    @classmethod
    def from_pretrained(
        cls: type[AnyAutoencoder],
        source: Path | str,
        *,
        subfolder: str = "",
        revision: str | None = None,
        token: str | None = None,
        local_files_only: bool = False,
        device: torch.device | str = "cpu",
    ) -> AnyAutoencoder:
        """Read what `save_pretrained` wrote, from a directory, or from a repository of the model hub of that name.

        Called on `Autoencoder` it reads all kinds, on a class itself and the kinds derived from it. `subfolder` is
        "sparse" or "stacked" for the two of a pipeline run. Other libraries' files are read by `sae.formats.load`.

        Raises FileNotFoundError where there is no such directory, repository or file, and ValueError where a file is
        damaged, or holds another kind.
        """
        names = [str(Path(subfolder, name)) for name in (io.CONFIG, io.WEIGHTS)]
        found = hub.fetch(
            source, files=names, revision=revision, token=token, local_files_only=local_files_only
        )
        return io.read(found / subfolder, kinds_of(cls), device=device)

    def push_to_hub(
        self,
        repo_id: str,
        *,
        private: bool | None = None,
        revision: str | None = None,
        token: str | None = None,
        commit_message: str = "Upload autoencoder",
    ) -> str:
        """Upload what `save_pretrained` writes to a repository of the model hub, made where there is none; return its name.

        Raises OSError or ValueError, as the hub words them, where it cannot be reached or refuses.
        """
        with tempfile.TemporaryDirectory() as folder:
            io.save(self, Path(folder, "autoencoder"))
            return hub.push(
                Path(folder, "autoencoder"),
                repo_id,
                private=private,
                revision=revision,
                token=token,
                message=commit_message,
            )

    # --- Training ---

    def before_step(self) -> None:
        """Called by `train` when gradients are ready, before the optimiser uses them."""

    def after_step(self, step: int) -> None:
        """Called by `train` when the optimiser has changed the weights in step 0, 1, 2, ..."""


def kinds_of(cls: type[Autoencoder]) -> dict[str, type[Autoencoder]]:
    """A class of autoencoders and those derived from it, by the kind that is written to config.json."""
    found = {cls.kind: cls} if "kind" in vars(cls) else {}
    for derived in cls.__subclasses__():
        found |= kinds_of(derived)
    return found


def load(directory: Path | str, *, device: torch.device | str = "cpu") -> Autoencoder:
    """Read an autoencoder that `save` wrote.

    Raises FileNotFoundError where a file is missing, ValueError where one cannot be read, is not as it was written
    (files from before version 0.2 hold no digest to tell), or where the two do not belong together.
    """
    return io.read(directory, kinds_of(Autoencoder), device=device)


def _by_rows(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """A function of rows, of a tensor with any leading dimensions."""
    if x.ndim == 2:
        return function(x)
    found = function(x.reshape(-1, x.shape[-1]))
    return found.reshape(*x.shape[:-1], found.shape[-1])


def check_rows(batch: Tensor) -> None:
    """Raise ValueError for a batch without a row, whose means would be NaN."""
    if batch.ndim < 2:
        raise ValueError(f"batch has shape {tuple(batch.shape)}; expected rows of states")
    if not len(batch):
        raise ValueError("batch has no rows; expected at least 1")


def check_width(name: str, width: int) -> None:
    """Raise ValueError unless a number of units is at least 1."""
    if width < 1:
        raise ValueError(f"{name} is {width}; expected at least 1")


def linear(n_in: int, n_out: int, generator: torch.Generator | None) -> nn.Linear:
    """A linear layer drawn from `generator` alone (nn.Linear itself would draw from the global one)."""
    layer = nn.utils.skip_init(nn.Linear, n_in, n_out)
    nn.init.xavier_normal_(layer.weight, generator=generator)
    nn.init.zeros_(layer.bias)
    return layer
