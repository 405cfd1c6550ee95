"""Training an autoencoder on a table of hidden states."""

from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor
from tqdm.auto import tqdm

from course_lib.sae.autoencoders import Autoencoder


@dataclass(frozen=True)
class TrainConfig:
    """How to train: Adam on minibatches, with shares of `steps` for warm-up and decay.

    The step size rises linearly over the first `warm_up` share of steps and falls linearly to 0 over the
    last `decay` share. The sparsity weight rises linearly over the first `sparsity_warm_up` share: a
    full penalty on random features would silence many for good before they have found a direction.
    """

    steps: int = 1000
    batch_size: int = 256
    step_size: float = 1e-3
    warm_up: float = 0.05
    decay: float = 0.3
    sparsity_warm_up: float = 0.2
    record_every: int = 10

    def __post_init__(self) -> None:
        for name in ("steps", "batch_size", "record_every"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; expected at least 1")
        if not 0 < self.step_size < float("inf"):
            raise ValueError(f"step_size is {self.step_size}; expected a positive number")
        for name in ("warm_up", "decay", "sparsity_warm_up"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} is {getattr(self, name)}; expected a share of steps, 0 to 1")

    def step_size_at(self, step: int) -> float:
        """Step size of step 0, 1, ..., steps - 1."""
        rise = _ramp(step + 1, self.warm_up * self.steps)
        fall = _ramp(self.steps - step, self.decay * self.steps)
        return self.step_size * min(rise, fall)

    def sparsity_scale_at(self, step: int) -> float:
        """Factor on the sparsity weight at a step, 0 to 1."""
        return _ramp(step, self.sparsity_warm_up * self.steps)


@dataclass
class History:
    """Curves of training: `parts[name][i]` is the mean over the interval that ends at `steps[i]`."""

    steps: list[int] = field(default_factory=list)
    parts: dict[str, list[float]] = field(default_factory=dict)


def check_activations(activations: Tensor, *, name: str = "activations") -> None:
    """Raise ValueError unless `activations` is a finite floating-point table of at least two rows."""
    if activations.ndim != 2 or not activations.is_floating_point():
        raise ValueError(
            f"{name} has shape {tuple(activations.shape)} and dtype {activations.dtype}; "
            "expected floating-point numbers of shape (rows, d_model)"
        )
    if len(activations) < 2:
        raise ValueError(f"{name} has {len(activations)} rows; expected at least 2, or there is no variance")
    bad = ~activations.isfinite().all(dim=1)
    if bad.any():
        raise ValueError(
            f"{name} has NaN or infinite values in {int(bad.sum())} of {len(bad)} rows, first in row "
            f"{int(bad.nonzero()[0])}; find where they come from (often half precision) or drop these rows"
        )


def train(
    autoencoder: Autoencoder,
    activations: Float[Tensor, "rows d_model"],
    config: TrainConfig,
    *,
    generator: torch.Generator,
    labels: Tensor | None = None,
    progress: bool = True,
) -> History:
    """Fit the autoencoder's normalisation and weights to `activations`, in place.

    `labels` are classes (rows) or targets (rows, outputs), as the autoencoder's `loss` takes them.
    Rows are reshuffled every epoch with `generator` (on the CPU); the same generator state, weights and
    data give the same result. Batches move to the autoencoder's device.

    Raises ValueError for activations that are empty, a single row, not finite, of another width than the
    autoencoder's, or constant, and for labels of another length; RuntimeError where the loss stops being
    finite.
    """
    check_activations(activations)
    if activations.shape[1] != autoencoder.d_model:
        raise ValueError(
            f"activations have width {activations.shape[1]}, the autoencoder d_model {autoencoder.d_model}"
        )
    if labels is not None and len(labels) != len(activations):
        raise ValueError(f"labels has {len(labels)} rows, activations {len(activations)}; expected as many")
    autoencoder.fit_normalisation(activations)
    device, dtype = autoencoder.input_mean.device, autoencoder.input_mean.dtype
    optimizer = torch.optim.Adam(autoencoder.parameters(), lr=config.step_size, fused=True)
    batches = _batches(len(activations), config, generator=generator)
    history, pending = History(), []
    bar = tqdm(batches, total=config.steps, desc=f"{autoencoder.kind} autoencoder", disable=not progress)
    for step, rows in enumerate(bar):
        optimizer.param_groups[0]["lr"] = config.step_size_at(step)
        parts = autoencoder.loss(
            activations[rows.to(activations.device)].to(device, dtype),
            labels=None if labels is None else labels[rows.to(labels.device)].to(device),
            sparsity_scale=config.sparsity_scale_at(step),
        )
        optimizer.zero_grad()
        parts["total"].backward()
        optimizer.step()
        pending.append({name: value.detach() for name, value in parts.items()})
        if len(pending) == config.record_every or step == config.steps - 1:
            _record(history, step, pending)
            pending = []
            bar.set_postfix(loss=f"{history.parts['total'][-1]:.4f}", refresh=False)
    return history


def _batches(n_rows: int, config: TrainConfig, *, generator: torch.Generator):
    """Yield `config.steps` index tensors, epoch after epoch, each epoch in a new order.

    The rows that do not fill a last batch are left for a later epoch: a small batch would make the batch
    means of the KL penalty noisy.
    """
    size = min(config.batch_size, n_rows)
    left = config.steps
    while left:
        order = torch.randperm(n_rows, generator=generator)
        for start in range(0, n_rows - size + 1, size)[:left]:
            yield order[start : start + size]
            left -= 1


def _record(history: History, step: int, pending: list[dict[str, Tensor]]) -> None:
    history.steps.append(step + 1)
    for name in pending[0]:
        value = torch.stack([parts[name] for parts in pending]).mean().item()
        if not -float("inf") < value < float("inf"):
            raise RuntimeError(
                f"the {name} loss is {value} at step {step + 1}; lower step_size and train again"
            )
        history.parts.setdefault(name, []).append(value)


def _ramp(done: int, length: float) -> float:
    return 1.0 if length <= 0 else min(1.0, done / length)
