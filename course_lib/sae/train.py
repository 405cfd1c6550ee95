"""Training an autoencoder on hidden states, from a tensor or from a store on disk.

One loop for all kinds. Each autoencoder says what its loss is and how to compute it fast
(`training_loss`); this module draws batches, takes Adam's steps, and sees to what can go wrong in a long run:
states that are not finite, a loss that diverges, features that die, a process that is killed.
"""

import hashlib
import json
import math
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, NoReturn, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from tqdm.auto import tqdm

from course_lib import devices, parallel
from course_lib.checks import check_fields, check_source, named
from course_lib.files import replacing
from course_lib.sae import checkpoints
from course_lib.sae.autoencoder import Autoencoder
from course_lib.sae.batches import Batches, RowSource, check_finite
from course_lib.sae.losses import check_labels
from course_lib.sae.memory import Memory
from course_lib.sae.sparse import SparseAutoencoder, remove_radial_, rescale_columns_
from course_lib.sae.stacked import StackedAutoencoder

Precision = Literal["auto", "float32", "bfloat16"]


@dataclass(frozen=True)
class TrainConfig:
    """How to train: Adam on minibatches, with shares of `steps` for warm-up and decay.

    The step size rises linearly over the first `warm_up` share of steps and falls linearly to 0 over the
    last `decay` share. The sparsity weight rises linearly over the first `sparsity_warm_up` share: a
    full penalty on random features would silence many for good before they have found a direction. `betas` are
    Adam's, of the means of gradients and of their squares.

    `precision` is that of the large matrix products; weights, optimiser and loss are always in the
    autoencoder's own dtype. "auto" takes bfloat16 where the hardware multiplies it faster than float32 and the
    layer is wide enough to gain. With either, the k largest features of a row are decided in float32 where they
    are looked for in integers first (`sae.screening`). `unit_norm_decoder` keeps the decoder columns of a sparse
    autoencoder at length 1: their gradients lose the part along them and they are rescaled after every step.
    Every `revive_every` steps (0: never) features that fired in no row of those steps are dead, and are started again at
    badly explained rows; none are revived while the step size decays. `buffer_rows` rows of a store are
    shuffled together in memory.
    """

    steps: int = 1000
    batch_size: int = 256
    step_size: float | int = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    warm_up: float | int = 0.05
    decay: float | int = 0.3
    sparsity_warm_up: float | int = 0.2
    record_every: int = 10
    precision: Precision = "auto"
    unit_norm_decoder: bool = False
    revive_every: int = 0
    buffer_rows: int = 65_536

    def __post_init__(self) -> None:
        check_fields(self)
        for name in ("steps", "batch_size", "record_every", "buffer_rows"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; expected at least 1")
        if not 0 < self.step_size < float("inf"):
            raise ValueError(f"step_size is {self.step_size}; expected a positive number")
        if len(self.betas) != 2 or not all(0 <= beta < 1 for beta in self.betas):
            raise ValueError(f"betas is {self.betas}; expected two numbers from 0 to below 1")
        for name in ("warm_up", "decay", "sparsity_warm_up"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} is {getattr(self, name)}; expected a share of steps, 0 to 1")
        if self.precision not in ("auto", "float32", "bfloat16"):
            raise ValueError(f"precision is {self.precision!r}; expected 'auto', 'float32' or 'bfloat16'")
        if self.revive_every < 0:
            raise ValueError(
                f"revive_every is {self.revive_every}; expected a number of steps, or 0 for never"
            )

    def as_dict(self) -> dict[str, Any]:
        """All settings, in what JSON holds."""
        return asdict(self) | {"betas": list(self.betas)}

    def step_size_at(self, step: int) -> float:
        """Step size of step 0, 1, ..., steps - 1."""
        rise = _ramp(step + 1, self.warm_up * self.steps)
        fall = _ramp(self.steps - step, self.decay * self.steps)
        return self.step_size * min(rise, fall)

    def sparsity_scale_at(self, step: int) -> float:
        """Factor on the sparsity weight at a step, 0 to 1."""
        return _ramp(step, self.sparsity_warm_up * self.steps)

    def revives_after(self, step: int) -> bool:
        """Whether dead features are revived when a step is done."""
        return (
            self.revive_every > 0
            and (step + 1) % self.revive_every == 0
            and step + 1 < (1 - self.decay) * self.steps
        )


class DivergedError(RuntimeError):
    """Training whose loss or weights stopped being finite; the message names the step and its step size."""


@dataclass
class History:
    """Curves of training: `parts[name][i]` is the mean over the interval that ends at `steps[i]`.

    `revived` counts the dead features that were started again, by step.
    """

    steps: list[int] = field(default_factory=list)
    parts: dict[str, list[float]] = field(default_factory=dict)
    revived: dict[int, int] = field(default_factory=dict)


@runtime_checkable
class Objective(Protocol):
    """Another loss than that of rows: a model's output, say, with its states at a site reconstructed."""

    def __len__(self) -> int:
        """Number of examples; each is in a batch once an epoch."""

    def identity(self) -> dict[str, Any]:
        """What must be the same when a run is resumed, in what JSON holds."""

    def loss(
        self, autoencoder: Autoencoder, examples: Int[Tensor, " batch"], *, sparsity_scale: float | int
    ) -> dict[str, Float[Tensor, ""]]:
        """Named parts of the loss of examples, given by their numbers; "total" is trained on."""


def check_activations(activations: Tensor, *, name: str = "activations") -> None:
    """Raise ValueError unless `activations` is a finite floating-point table of at least two rows."""
    if activations.ndim != 2 or not activations.is_floating_point():
        raise ValueError(
            f"{name} has shape {tuple(activations.shape)} and dtype {activations.dtype}; "
            "expected floating-point numbers of shape (rows, d_model)"
        )
    if len(activations) < 2:
        raise ValueError(f"{name} has {len(activations)} rows; expected at least 2, or there is no variance")
    check_finite(activations, first_row=0, n_rows=len(activations), name=name)


@named
def train(
    autoencoder: Autoencoder,
    activations: RowSource,
    config: TrainConfig,
    *,
    generator: torch.Generator | None = None,
    labels: Tensor | None = None,
    objective: Objective | None = None,
    progress: bool = True,
    checkpoint_dir: Path | str | None = None,
    checkpoint_every: int = 1000,
    metrics_file: Path | str | None = None,
    tensorboard_dir: Path | str | None = None,
    wandb: bool = False,
) -> History:
    """Fit the autoencoder's normalisation and weights to `activations`, in place.

    `activations` is a tensor (rows, d_model) or anything that gives rows by slice and by number, such as
    an `ActivationStore`: see `Batches` for how it is shuffled. `labels` are classes (rows) or targets
    (rows, outputs), as the autoencoder's `loss` takes them. Rows are drawn with `generator` (on the CPU; default: a
    new one with seed 0); the same generator state, weights, data and number of threads give the same result. Batches
    move to the autoencoder's device.

    With `objective` the loss is its loss, and batches are `batch_size` of its examples; `activations` only fit the
    normalisation. `course_lib.pipeline.end_to_end.EndToEnd` is one. It runs in one process, without labels, revival
    or bfloat16.

    With `checkpoint_dir` the state is written there every `checkpoint_every` steps and at the end; the same
    call goes on from the last checkpoint, and on the CPU ends with the same bits as if never stopped.
    `metrics_file` gets one line of JSON for every `record_every` steps, `tensorboard_dir` the same as curves, and
    with `wandb` a new run of Weights & Biases, which its environment variables place (`WANDB_MODE`, `WANDB_PROJECT`, ...).

    Under `torchrun`, with `torch.distributed` initialised, `batch_size` is that of all ranks together, each
    takes its part of every batch, and all end with the same weights; rank 0 alone writes files.

    Raises ValueError for activations that are empty, a single row, not finite, of another width than the
    autoencoder's, or constant, for labels of another length, and for a checkpoint that is damaged or of
    another run; RuntimeError where another process uses `checkpoint_dir`, and DivergedError, one of its kind, where
    the loss, or a weight that is about to be saved, is not finite.
    """
    _check_inputs(autoencoder, activations, config, labels, checkpoint_every)
    if generator is None:
        generator = torch.Generator().manual_seed(0)
    with ExitStack() as stack:
        stack.enter_context(parallel.synchronised())
        if objective is not None:
            _check_objective(objective, config, labels)
        run = _Run(autoencoder, activations, config, generator=generator, labels=labels, objective=objective)
        checkpoint_dir = Path(checkpoint_dir) if checkpoint_dir is not None else None
        first = 0
        if checkpoint_dir is not None:
            if parallel.rank() == 0:
                stack.enter_context(checkpoints.only_run(checkpoint_dir))
            parallel.barrier()
            first = run.resume(checkpoint_dir)
        if first == 0:
            run.start()
        write = stack.enter_context(
            _metrics(metrics_file, tensorboard_dir, wandb=wandb, config=config, after=first)
        )
        bar = tqdm(
            range(first, config.steps),
            total=config.steps,
            initial=first,
            desc=f"{autoencoder.kind} autoencoder",
            disable=not progress or parallel.rank() > 0,
        )
        for step in bar:
            if (recorded := run.step(step)) is not None:
                write(step + 1, recorded)
                bar.set_postfix(loss=f"{recorded['total']:.4f}", refresh=False)
            done = step + 1
            if checkpoint_dir is not None and (done % checkpoint_every == 0 or done == config.steps):
                run.save(checkpoint_dir, done)
    return run.history


class _Run:
    """What changes while training, and how it is written down and read back."""

    def __init__(
        self,
        autoencoder: Autoencoder,
        activations: RowSource,
        config: TrainConfig,
        *,
        generator: torch.Generator,
        labels: Tensor | None,
        objective: Objective | None = None,
    ) -> None:
        self.objective = objective
        self.autoencoder, self.config, self.generator = autoencoder, config, generator
        self.activations, self.labels = activations, labels
        self.device, self.dtype = autoencoder.input_mean.device, autoencoder.input_mean.dtype
        self.compute_dtype = compute_dtype(config.precision, autoencoder)
        parallel.share(list(autoencoder.state_dict().values()))
        parallel.share_generator(generator)
        self.identity = self._identity()
        examples = None if objective is None else torch.arange(len(objective))
        self.batches = Batches(
            activations if examples is None else examples,
            labels,
            batch_size=config.batch_size,
            buffer_rows=config.buffer_rows,
            generator=generator,
        )
        size = self.batches.batch_size
        if size % parallel.world_size():
            raise ValueError(
                f"batch_size is {size} with {parallel.world_size()} processes; expected a multiple of their number"
            )
        # The fused optimiser walks through contiguous memory, and copies a transposed matrix there and back.
        self.contiguous = {p: p if p.is_contiguous() else p.detach().mT for p in autoencoder.parameters()}
        self.optimizer = torch.optim.Adam(
            self.contiguous.values(), lr=config.step_size, betas=config.betas, fused=True
        )
        self.memory = Memory()
        self.history, self.pending = History(), []

    def _identity(self) -> dict[str, Any]:
        """What must be the same when a run is resumed."""
        n = len(self.activations)
        places = torch.arange(0, n, max(n // 16, 1))
        sample = self.activations[places].to("cpu", torch.float64).contiguous()
        found = {
            "kind": self.autoencoder.kind,
            "autoencoder": self.autoencoder.config(),
            "config": self.config.as_dict(),
            "rows": n,
            "shuffled": "whole" if isinstance(self.activations, Tensor) else "by buffers",
            "activations": hashlib.sha256(sample.numpy()).hexdigest()[:16],
            "labels": None if self.labels is None else list(self.labels.shape),
            "generator": hashlib.sha256(self.generator.get_state().numpy()).hexdigest()[:16],
            "compute_dtype": str(self.compute_dtype),
            "processes": parallel.world_size(),
        }
        if self.objective is not None:
            found["objective"] = self.objective.identity()
        return json.loads(json.dumps(found))

    def start(self) -> None:
        """Fit the normalisation, and bring weights to where the configuration wants them."""
        self.autoencoder.fit_normalisation(self.activations)
        if self.config.unit_norm_decoder:
            self.autoencoder.move_norms_to_encoder()
        self._watch()

    def _watch(self) -> None:
        if self.config.revive_every:
            self.autoencoder.fired = torch.zeros(
                self.autoencoder.code_width, dtype=torch.bool, device=self.device
            )

    def step(self, step: int) -> dict[str, float] | None:
        """Take one step; return the mean loss parts where an interval ends."""
        with self.memory.reused():
            return self._step(step)

    def _step(self, step: int) -> dict[str, float] | None:
        rows, labels = next(self.batches)
        batch, parts = self._loss(rows, labels, self.config.sparsity_scale_at(step))
        self.autoencoder.zero_grad()
        parts["total"].backward()
        parallel.average_gradients(self.autoencoder.parameters())
        self.autoencoder.before_step()
        if self.config.unit_norm_decoder:
            weight = self.autoencoder.decoder_weight
            remove_radial_(weight.grad.T, weight.detach().T)
        self.optimizer.param_groups[0]["lr"] = self.config.step_size_at(step)
        for parameter, flat in self.contiguous.items():
            if flat is not parameter:
                flat.grad = None if parameter.grad is None else parameter.grad.mT
        self.optimizer.step()
        if self.config.unit_norm_decoder:
            rescale_columns_(self.autoencoder.decoder_weight)
        self.autoencoder.after_step(step)
        if self.config.revives_after(step):
            with torch.no_grad():
                if not self.autoencoder.loss(batch)["total"].isfinite():  # by which rows are drawn
                    self._diverged("the total loss", step + 1)
            self.history.revived[step + 1] = self._revive(batch)
        self.pending.append({name: value.detach() for name, value in parts.items()})
        if len(self.pending) == self.config.record_every or step == self.config.steps - 1:
            return self._record(step)
        return None

    def _loss(
        self, rows: Tensor, labels: Tensor | None, sparsity_scale: float
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """This rank's part of a batch, and the parts of its loss."""
        if self.objective is not None:
            return rows, self.objective.loss(self.autoencoder, rows, sparsity_scale=sparsity_scale)
        part = len(rows) // parallel.world_size()
        mine = slice(parallel.rank() * part, (parallel.rank() + 1) * part)
        batch = rows[mine].to(self.device, self.dtype)
        return batch, self.autoencoder.training_loss(
            batch,
            labels=None if labels is None else labels[mine].to(self.device),
            sparsity_scale=sparsity_scale,
            compute_dtype=self.compute_dtype,
        )

    def _record(self, step: int) -> dict[str, float]:
        means = {
            name: torch.stack([parts[name] for parts in self.pending]).mean() for name in self.pending[0]
        }
        pending, self.pending = self.pending, []
        recorded = {name: parallel.mean_over_ranks(value).item() for name, value in means.items()}
        for name, value in recorded.items():
            if not math.isfinite(value):
                # Of another rank's rows, where none here: then the interval's last step is named.
                wrong = (
                    (~torch.stack([parts[name] for parts in pending]).isfinite()).nonzero().flatten().tolist()
                )
                self._diverged(f"the {name} loss", step + 2 - len(pending) + wrong[0] if wrong else step + 1)
            self.history.parts.setdefault(name, []).append(value)
        self.history.steps.append(step + 1)
        return recorded

    def _diverged(self, what: str, step: int) -> NoReturn:
        raise DivergedError(
            f"training diverged: {what} is not finite at step {step} of {self.config.steps}, where the step size is "
            f"{self.config.step_size_at(step - 1):.3g}; lower step_size, now {self.config.step_size:g}, and train again"
        )

    def _revive(self, batch: Float[Tensor, "batch d_model"]) -> int:
        """Start features that have not fired since the last time anew, and forget their optimiser state."""
        parallel.any_over_ranks(self.autoencoder.fired)
        dead = (~self.autoencoder.fired).nonzero()[:, 0]
        self.autoencoder.fired.zero_()
        if len(dead):
            for parameter, index in self.autoencoder.restart(dead, batch, generator=self.generator):
                moments = self._optimizer_state(parameter)
                for name in ("exp_avg", "exp_avg_sq"):
                    moments[name][index] = 0
        return len(dead)

    def _optimizer_state(self, parameter: nn.Parameter) -> dict[str, Tensor]:
        """What the optimiser knows of a parameter, in the parameter's own shape; empty before the first step."""
        state, turned = (
            self.optimizer.state[self.contiguous[parameter]],
            self.contiguous[parameter] is not parameter,
        )
        return {name: value.mT if turned and value.ndim else value for name, value in state.items()}

    def save(self, directory: Path, step: int) -> None:
        """Write a checkpoint: weights, optimiser, and where data, random numbers and curves are."""
        for name, parameter in self.autoencoder.named_parameters():
            if not parameter.isfinite().all():
                self._diverged(name, step)
        # What each rank has gathered of its own rows becomes that of all.
        self.pending = [
            {name: parallel.mean_over_ranks(value) for name, value in parts.items()} for parts in self.pending
        ]
        if self.config.revive_every:
            parallel.any_over_ranks(self.autoencoder.fired)
        if parallel.rank() == 0:
            tensors = {f"autoencoder.{k}": v for k, v in self.autoencoder.state_dict().items()}
            for name, parameter in self.autoencoder.named_parameters():
                for key, value in self._optimizer_state(parameter).items():
                    tensors[f"adam.{key}.{name}"] = value
            if self.config.revive_every:
                tensors["fired"] = self.autoencoder.fired
            tensors["generator"] = self.generator.get_state()
            description = {
                "step": step,
                "identity": self.identity,
                "batches": self.batches.state(),
                "history": asdict(self.history),
                "pending": [{k: v.item() for k, v in parts.items()} for parts in self.pending],
            }
            checkpoints.write(directory, step, tensors, description)
        parallel.barrier()

    def resume(self, directory: Path) -> int:
        """Continue from the newest checkpoint, if there is one; return the number of steps done."""
        found = checkpoints.latest(directory)
        if found is None:
            return 0
        tensors, description, path = found
        for name, mine in self.identity.items():
            if (theirs := description["identity"].get(name)) != mine:
                raise ValueError(
                    f"{path} is of another run: its {name} is {theirs}, this call's is {mine}; name another "
                    "checkpoint_dir, or call as before"
                )
        state = {name.split(".", 1)[1]: v for name, v in tensors.items() if name.startswith("autoencoder.")}
        self.autoencoder.load_state_dict(state)
        for name, parameter in self.autoencoder.named_parameters():
            if f"adam.step.{name}" not in tensors:
                continue  # no gradient reaches it
            flat = self.contiguous[parameter]
            moments = {key: tensors[f"adam.{key}.{name}"] for key in ("exp_avg", "exp_avg_sq")}
            if flat is not parameter:
                moments = {key: value.mT for key, value in moments.items()}
            moments = {key: torch.zeros_like(flat).copy_(value) for key, value in moments.items()}
            # On a GPU the fused optimiser keeps its count of steps there too.
            count = tensors[f"adam.step.{name}"].to(parameter.device)
            self.optimizer.state[flat] = {"step": count, **moments}
        self._watch()
        if self.config.revive_every:
            self.autoencoder.fired.copy_(tensors["fired"])
        self.generator.set_state(tensors["generator"])
        self.batches.restore(description["batches"])
        history = description["history"]
        revived = {int(step): count for step, count in history["revived"].items()}
        self.history = History(history["steps"], history["parts"], revived)
        self.pending = [
            {name: torch.tensor(value, dtype=self.dtype, device=self.device) for name, value in parts.items()}
            for parts in description["pending"]
        ]
        return description["step"]


def compute_dtype(precision: Precision, autoencoder: Autoencoder) -> torch.dtype:
    """The dtype of large products: bfloat16 where asked for, or where it is fast and the layer wide."""
    own = autoencoder.input_mean.dtype
    if precision == "bfloat16":
        return torch.bfloat16
    narrow = min(autoencoder.d_model, autoencoder.code_width)
    if precision == "float32" or own != torch.float32 or narrow < 128:
        return own
    return devices.fast_dtype(autoencoder.input_mean.device)


def _check_inputs(
    autoencoder: Autoencoder,
    activations: RowSource,
    config: TrainConfig,
    labels: Tensor | None,
    checkpoint_every: int,
) -> None:
    check_source("activations", activations)
    if isinstance(activations, Tensor):
        check_activations(activations)
    elif len(activations) < 2:
        raise ValueError(
            f"activations has {len(activations)} rows; expected at least 2, or there is no variance"
        )
    width = activations[:1].shape[-1]
    if width != autoencoder.d_model:
        raise ValueError(f"activations have width {width}, the autoencoder d_model {autoencoder.d_model}")
    if labels is not None and len(labels) != len(activations):
        raise ValueError(f"labels has {len(labels)} rows, activations {len(activations)}; expected as many")
    stacked = isinstance(autoencoder, StackedAutoencoder) and autoencoder.gamma > 0
    if stacked and labels is not None and autoencoder.supervised == "cross_entropy":
        # Once for all steps: on a GPU the loss itself cannot look at labels without waiting for them.
        check_labels(labels, classes=autoencoder.n_outputs)
    if checkpoint_every < 1:
        raise ValueError(f"checkpoint_every is {checkpoint_every}; expected at least 1 step")
    for name in ("unit_norm_decoder", "revive_every"):
        free = isinstance(autoencoder, SparseAutoencoder) and isinstance(
            getattr(autoencoder, "decoder_weight", None), nn.Parameter
        )
        if getattr(config, name) and not free:
            raise ValueError(
                f"{name} is {getattr(config, name)} for a {autoencoder.kind} autoencoder; expected a sparse one "
                "with a decoder of its own"
            )


def _check_objective(objective: Objective, config: TrainConfig, labels: Tensor | None) -> None:
    for name, value, wrong in (
        ("labels", "given", labels is not None),
        ("revive_every", config.revive_every, config.revive_every > 0),
        ("precision", repr(config.precision), config.precision == "bfloat16"),
        ("the number of processes", parallel.world_size(), parallel.world_size() > 1),
    ):
        if wrong:
            raise ValueError(
                f"{name} is {value} with an objective; expected no labels, revive_every 0, precision 'auto' or "
                "'float32', and one process"
            )
    if len(objective) < 1:
        raise ValueError("objective has 0 examples; expected at least 1")


@contextmanager
def _metrics(
    metrics_file: Path | str | None,
    tensorboard_dir: Path | str | None,
    *,
    wandb: bool,
    config: TrainConfig,
    after: int,
) -> Iterator[Any]:
    """Give a function that writes the parts recorded at a step; lines after step `after` are replaced."""
    if parallel.rank() > 0:
        metrics_file, tensorboard_dir, wandb = None, None, False
    with ExitStack() as stack:
        lines = board = tracked = None
        if metrics_file is not None:
            metrics_file = Path(metrics_file)
            metrics_file.parent.mkdir(parents=True, exist_ok=True)
            # Killed between two writes, the lines so far would be lost.
            with replacing(metrics_file) as file:
                file.write("".join(_lines_up_to(metrics_file, after)).encode())
            lines = stack.enter_context(metrics_file.open("a", encoding="utf-8"))
        if tensorboard_dir is not None:
            try:
                from torch.utils.tensorboard import SummaryWriter
            except ImportError:
                raise ImportError(
                    "tensorboard_dir needs the package tensorboard: pip install 'course-lib[tensorboard]'"
                ) from None

            board = stack.enter_context(SummaryWriter(str(tensorboard_dir), purge_step=after + 1))
        if wandb:
            try:
                import wandb as weights_and_biases
            except ImportError:
                raise ImportError("wandb needs the package wandb: pip install 'course-lib[wandb]'") from None

            tracked = stack.enter_context(weights_and_biases.init(config=asdict(config), reinit="create_new"))

        def write(step: int, parts: dict[str, float]) -> None:
            if lines is not None:
                lines.write(json.dumps({"step": step, **parts}) + "\n")
                lines.flush()
            if board is not None:
                for name, value in parts.items():
                    board.add_scalar(f"loss/{name}", value, step)
            if tracked is not None:
                tracked.log({f"loss/{name}": value for name, value in parts.items()}, step=step)

        yield write


def _lines_up_to(path: Path, step: int) -> list[str]:
    """The lines of steps up to `step`; a last line that a killed process left half written is none."""
    kept = []
    for line in path.read_text(encoding="utf-8").splitlines(keepends=True) if path.exists() else ():
        try:
            if json.loads(line)["step"] <= step:
                kept.append(line)
        except (ValueError, KeyError, TypeError):
            break
    return kept


def _ramp(done: int, length: float | int) -> float:
    return 1.0 if length <= 0 else min(1.0, done / length)
