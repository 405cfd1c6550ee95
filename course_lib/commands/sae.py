"""The commands `course sae train | evaluate | export`: dictionaries of states that are stored.

A run of `train` is a directory: `choice.json`, what was asked for and of which store; `checkpoints/`, from which the
same command goes on; and at the end, whole or not at all, `autoencoder/`.
"""

import hashlib
import json
import math
import shutil
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from course_lib.commands import options
from course_lib.commands.options import explain_errors

app = typer.Typer(help="Train, evaluate and export sparse autoencoders.", no_args_is_help=True)

CHOICE, CHECKPOINTS, AUTOENCODER = "choice.json", "checkpoints", "autoencoder"
_ANEW = "choose another directory, or remove this run"
# What of a store's manifest says where its rows are from.
_ORIGIN = (
    *("model", "site", "weights_sha256", "tokenizer_sha256", "computed_in", "text_sha256"),
    *("include_special", "rows", "d_model"),
)

Run = Annotated[
    Path,
    typer.Argument(
        help="A run of `sae train` or of `pipeline`, or a directory with an autoencoder of this library, SAELens, "
        "dictionary_learning or sparsify."
    ),
]


class Format(StrEnum):
    """What `export` writes."""

    saelens = "saelens"
    safetensors = "safetensors"


@app.command()
def train(
    out: Annotated[Path, typer.Option(help="Directory of the run; one that was stopped goes on.")],
    store: Annotated[Path, typer.Option(help="A store that `activations` wrote.")],
    kind: options.KindOfAutoencoder = options.Kind.topk,
    features: options.Features = None,
    k: options.K = None,
    auxk: options.AuxK = None,
    penalty: options.Penalty = None,
    steps: options.Steps = None,
    batch_size: Annotated[int | None, typer.Option(help="Rows a step (default: 1024).")] = None,
    step_size: Annotated[float | None, typer.Option(help="Adam's step size (default: 0.004).")] = None,
    seed: Annotated[
        int, typer.Option(help="Seed of the weights, the order of rows and the held-out sentences.")
    ] = 0,
    held_out: Annotated[
        float, typer.Option(help="Share of the sentences to evaluate on instead of training; 0 for none.")
    ] = 0.1,
    model: Annotated[
        str | None,
        typer.Option(help="Model of the states, for how much of its loss the reconstructions keep."),
    ] = None,
    text: Annotated[
        str, typer.Option(help="The text of the store, whose held-out sentences the model reads then.")
    ] = "builtin",
    column: options.Columns = None,
    sentences: Annotated[int, typer.Option(help="Of these sentences at most so many.", min=1)] = 200,
    metrics_file: options.MetricsFile = None,
    checkpoint_every: Annotated[int, typer.Option(help="Steps between two checkpoints.")] = 500,
    log: Annotated[
        str | None,
        typer.Option(
            help="Write the losses while training: FILE.jsonl, a line every 10 steps, tensorboard:DIRECTORY, or wandb."
        ),
    ] = None,
    device: options.Device = None,
    threads: options.Threads = None,
    config: options.Config = None,
    progress: options.Progress = True,
) -> None:
    """Train a sparse autoencoder on stored activations, and evaluate it on held-out sentences.

    Give the same command again to go on after a stop, and run it under torchrun to share the work.
    """
    with explain_errors(ValueError, RuntimeError, OSError):
        from dataclasses import asdict, replace

        import torch

        from course_lib import devices, parallel
        from course_lib.pipeline.config import dictionary, sparse_config
        from course_lib.pipeline.seeds import generator
        from course_lib.pipeline.states import hold_out, open_store
        from course_lib.sae.batches import SomeRows

        logs = _logs(log)
        rows = open_store(store)
        out_of_training = hold_out(rows, held_out, generator=generator(seed, 6))
        if held_out == 0 and (metrics_file is not None or model is not None):
            raise ValueError(
                "held_out is 0, so that there is nothing to measure; leave out metrics_file and model"
            )
        _check_metrics_file(metrics_file)
        settings = sparse_config(
            kind=kind.value, features=features, k=k, penalty=penalty, steps=steps, auxk=auxk
        )
        given = {"batch_size": batch_size, "step_size": step_size}
        given = {name: value for name, value in given.items() if value is not None}
        settings = replace(settings, training=replace(settings.training, **given))
        if device is None and parallel.local_rank() is not None and torch.cuda.is_available():
            device = f"cuda:{parallel.local_rank()}"
        used = devices.usable_device(device)
        autoencoder = dictionary(settings, rows.d_model, generator=generator(seed, 3)).to(used)
        choice = {
            "kind": kind.value,
            "config": autoencoder.config(),
            "training": asdict(settings.training),
            "seed": seed,
            "store": {name: rows.manifest[name] for name in _ORIGIN},
        }
        if held_out:  # runs from before there was a split go on without one
            choice["held_out"] = held_out
        spoken, numbers = None, rows.column("sentence", out_of_training).unique()

        def prepare() -> bool:
            """Read what only the first process needs; return whether the run is finished."""
            nonlocal spoken
            if model is not None:
                named = options.columns(column)
                spoken = _Spoken.of_store(model, rows, text, numbers[:sentences], columns=named, device=used)
            _record_choice(out, json.loads(json.dumps(choice)))
            return (out / AUTOENCODER).exists()

        with devices.threads(devices.threads_for(rows.d_model) if threads is None else threads):
            with parallel.process_group(on=used), parallel.synchronised():
                first = parallel.rank() == 0
                if parallel.on_first(prepare):
                    autoencoder = _load_finished(out / AUTOENCODER, device=used)
                else:
                    _train(
                        autoencoder,
                        rows if held_out == 0 else SomeRows(rows, (~out_of_training).nonzero()[:, 0]),
                        settings.training,
                        out,
                        generator=generator(seed, 4),
                        progress=progress,
                        checkpoint_every=checkpoint_every,
                        **logs,
                    )
            if held_out and first:
                of_held_out = SomeRows(rows, out_of_training.nonzero()[:, 0])
                typer.echo(f"on {len(numbers)} held-out sentences:")
                _measure(autoencoder, of_held_out, spoken, rows, metrics_file=metrics_file, progress=progress)
    if first:
        typer.echo(f"autoencoder: {out / AUTOENCODER}")


def _logs(log: str | None) -> dict[str, Any]:
    """Where `sae.train` writes its curves. Raises ValueError for another form, RuntimeError without the package."""
    if log is None:
        return {}
    writer, colon, directory = log.partition(":")
    if colon and writer == "tensorboard" and directory:
        options.require("tensorboard", "tensorboard")
        return {"tensorboard_dir": Path(directory)}
    if log == "wandb":
        options.require("wandb", "wandb")
        return {"wandb": True}
    if log.endswith(".jsonl") and not Path(log).is_dir():
        return {"metrics_file": Path(log)}
    raise ValueError(f"log is {log!r}; expected FILE.jsonl, tensorboard:DIRECTORY or wandb")


def _train(autoencoder: Any, rows: Any, config: Any, out: Path, **options: Any) -> None:
    """Train and save. A run that diverges before its first checkpoint leaves nothing: no command could go on with it."""
    from course_lib import parallel, sae

    checkpoints = out / CHECKPOINTS
    try:
        sae.train(autoencoder, rows, config, checkpoint_dir=checkpoints, **options)
    except sae.DivergedError as error:
        found = sorted(checkpoints.glob("*.safetensors"))
        if found:
            raise RuntimeError(
                f"{error}, into another directory: the last checkpoint, {found[-1]}, is kept"
            ) from error
        if parallel.rank() == 0:
            shutil.rmtree(checkpoints)
            (out / CHOICE).unlink()
            if not any(out.iterdir()):
                out.rmdir()
        raise
    parallel.on_first(lambda: sae.save(autoencoder, out / AUTOENCODER))


def _load_finished(directory: Path, *, device: Any) -> Any:
    """Raise ValueError or FileNotFoundError, with what to do, where an autoencoder is not as it was written."""
    from course_lib import sae

    try:
        return sae.load(directory, device=device)
    except (ValueError, FileNotFoundError) as error:
        what = f"{error}. Remove {directory} and give the same command again: it goes on from the last checkpoint"
        raise type(error)(what) from error


def _read_choice(path: Path) -> dict[str, Any]:
    """Read what a run was asked for. Raises ValueError, which names the file, for one that is not as it was written."""
    try:
        choice = json.loads(path.read_text(encoding="utf-8"))
        digest = choice.pop("sha256")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is not the choice of a run ({error}); {_ANEW}") from error
    if digest != _digest(choice):
        raise ValueError(f"{path} is damaged: it has another SHA-256 than when it was written; {_ANEW}")
    return choice


def _digest(choice: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(choice, sort_keys=True).encode()).hexdigest()


def _record_choice(out: Path, choice: dict[str, Any]) -> None:
    """Write down what a run is asked for. Raises ValueError where `out` holds another run or something else."""
    from course_lib.files import replacing

    path = out / CHOICE
    if path.is_file():
        before, now = _flatten(_read_choice(path)), _flatten(choice)
        for name in before | now:
            # The same weights may be reached by another name.
            if name != "store.model" and before.get(name) != now.get(name):
                raise ValueError(
                    f"{out} is another run: its {name} is {before.get(name)!r}, now {now.get(name)!r}; choose another "
                    "directory, or remove this one"
                )
        return
    out.mkdir(parents=True, exist_ok=True)
    foreign = sorted(p.name for p in out.iterdir() if not p.name.endswith(".partial"))
    if foreign:
        raise ValueError(f"{out} holds something else ({', '.join(foreign[:3])}); choose another directory")
    with replacing(path) as file:
        file.write((json.dumps({**choice, "sha256": _digest(choice)}, indent=1) + "\n").encode())


def _flatten(choice: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    found = {}
    for name, value in choice.items():
        found |= _flatten(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value}
    return found


def load_run(run: Path, *, device: Any = "cpu") -> tuple[Any, dict[str, Any] | None]:
    """The autoencoder of a run or a directory, and what is known of the states that it was trained on."""
    from course_lib.sae import formats

    origin, place = None, run
    if (run / CHOICE).is_file():
        origin, place = _read_choice(run / CHOICE)["store"], run / AUTOENCODER
        if not place.is_dir():
            raise FileNotFoundError(f"{run} is not finished; run the same `sae train` again to finish it")
    elif (run / "metrics.json").is_file():
        from course_lib.interpret.run_directory import RunDirectory
        from course_lib.mbart.site import Site

        found = RunDirectory(run)
        described = found.metrics.run
        return found.sparse(device=device), {
            "model": described.model,
            "site": str(Site.parse(described.site)),
        }
    return formats.load(place, device=device), origin


@app.command()
def evaluate(
    run: Run,
    store: Annotated[Path, typer.Option(help="States to evaluate on: a store that `activations` wrote.")],
    model: Annotated[
        str | None,
        typer.Option(help="Model of the states, for its cross-entropy with the reconstructions put in."),
    ] = None,
    text: Annotated[
        str, typer.Option(help="What the model reads then: a text as `activations` takes it, or builtin.")
    ] = "builtin",
    column: options.Columns = None,
    sentences: Annotated[int, typer.Option(help="Sentences of it.", min=1)] = 200,
    max_tokens: options.MaxTokens = None,
    too_long: options.TooLong = None,
    metrics_file: options.MetricsFile = None,
    device: options.Device = None,
    threads: options.Threads = None,
    progress: options.Progress = True,
) -> None:
    """Measure a sparse autoencoder on stored activations.

    Prints explained variance, active and dead features; with a model also its cross-entropy before and after splicing.
    """
    with explain_errors(ValueError, RuntimeError, OSError):
        from course_lib import devices
        from course_lib.pipeline.config import check_too_long
        from course_lib.pipeline.states import open_store

        _check_metrics_file(metrics_file)
        check_too_long(max_tokens, too_long, text)
        if max_tokens is not None and model is None:
            raise ValueError(
                f"max_tokens is {max_tokens} without model; expected both: no text is read without"
            )
        used = devices.usable_device(device)
        rows = open_store(store)
        autoencoder, origin = load_run(run, device=used)
        for name in ("site", "weights_sha256"):
            known = (origin or {}).get(name)
            if known is not None and known != rows.manifest[name]:
                raise ValueError(
                    f"{run} was trained on states with {name} {known!r}, and {store} has {rows.manifest[name]!r}; "
                    "expected states of the same model and site"
                )
        spoken, named = None, options.columns(column)
        if model is not None:
            how = {"columns": named, "device": used, "max_tokens": max_tokens, "too_long": too_long}
            spoken = _Spoken.of_text(model, rows, text, sentences, **how)
        with devices.threads(devices.threads_for(rows.d_model) if threads is None else threads):
            _measure(autoencoder, rows, spoken, rows, metrics_file=metrics_file, progress=progress)


@dataclass(frozen=True)
class _Spoken:
    """A model, and pairs of sentences to read and to predict."""

    model: Any
    tokenizer: Any
    pairs: list[tuple[Any, Any]]

    @classmethod
    def of_text(
        cls,
        name: str,
        store: Any,
        text: str,
        n: int,
        *,
        columns: dict[str, str],
        device: Any,
        max_tokens: int | None,
        too_long: str | None,
    ) -> "_Spoken":
        """The first n sentences of a text. Raises ValueError where the store is not of this model."""
        from itertools import islice

        from course_lib.language.corpus import generate
        from course_lib.mbart import activation_store as stores
        from course_lib.mbart.families import languages
        from course_lib.mbart.too_long import TokenLimit

        model, tokenizer = _model_of(store, name, device=device)
        if text == "builtin":
            pairs = [(sentence, None) for sentence in generate(n, seed=0, split="test")]
        else:
            numbered = stores.read_numbered(text, languages=languages(tokenizer), columns=columns)
            numbered = ((number, stores.pair(item)) for number, item in numbered)
            limit = None
            if max_tokens is not None:
                limit = TokenLimit(tokenizer, max_tokens, too_long or "cut", targets=True)
                numbered = limit.apply(numbered)
            pairs = [item for _, item in islice(numbered, n)]
            if not pairs:
                raise ValueError(
                    f"{text} gives no sentence; expected text, of at most max_tokens tokens where given"
                )
            for note in limit.note() if limit is not None else ():
                typer.echo(f"warning: {note}", err=True)
        return cls(model, tokenizer, pairs)

    @classmethod
    def of_store(
        cls, name: str, store: Any, text: str, numbers: Any, *, columns: dict[str, str], device: Any
    ) -> "_Spoken":
        """Sentences of the store's own text, by number. Raises ValueError where model or text are not the store's."""
        from course_lib.mbart.families import languages
        from course_lib.pipeline.states import stored_pairs

        model, tokenizer = _model_of(store, name, device=device)
        pairs = stored_pairs(
            store, text, numbers, known=languages(tokenizer), tokenizer=tokenizer, columns=columns
        )
        return cls(model, tokenizer, pairs)


def _model_of(store: Any, name: str, *, device: Any) -> tuple[Any, Any]:
    from course_lib.mbart.model import load
    from course_lib.pipeline.states import check_model

    model, tokenizer = load(name, device=device)
    check_model(store.manifest, model, tokenizer, what=f"the store {store.directory}")
    return model, tokenizer


def _check_metrics_file(path: Path | None) -> None:
    """Raise ValueError, before anything is computed, for a place where no file can be written."""
    if path is not None and (path.is_dir() or not path.absolute().parent.is_dir()):
        raise ValueError(f"metrics_file is {path}; expected a file in a directory that exists")


def _measure(
    autoencoder: Any,
    rows: Any,
    spoken: _Spoken | None,
    store: Any,
    *,
    metrics_file: Path | None,
    progress: bool,
) -> None:
    """Print how good an autoencoder is on rows, and, with a model, what its reconstructions do to it; write both."""
    from course_lib.files import replacing
    from course_lib.sae import metrics

    found = metrics.evaluate(autoencoder, rows)
    alive = found.code_width - found.n_dead
    typer.echo(f"rows: {found.n_rows}")
    typer.echo(f"explained variance: {found.explained_variance:.4f}")
    typer.echo(f"active features a row (l0): {found.l0:.2f}")
    typer.echo(f"alive features: {alive} of {found.code_width}")
    typer.echo(f"dead features: {found.n_dead} of {found.code_width}")
    measured = {
        "rows": found.n_rows,
        "features": found.code_width,
        "dead_features": found.n_dead,
        "frac_alive_features": alive / found.code_width,
        "l0": found.l0,
        "explained_variance": found.explained_variance,
        "mse": found.mse,
        "cossim": found.cosine,
    }
    if spoken is not None:
        measured |= _spliced_loss(autoencoder, spoken, store, progress=progress)
    if metrics_file is not None:
        with replacing(metrics_file) as file:
            file.write((json.dumps(measured, indent=1, allow_nan=False) + "\n").encode())
        typer.echo(f"metrics: {metrics_file}")


def _spliced_loss(autoencoder: Any, spoken: _Spoken, store: Any, *, progress: bool) -> dict[str, Any]:
    """The cross-entropy of reading sentences back with the states at the store's site clean and replaced, printed."""
    from course_lib.mbart.splicing import loss_recovered

    found = loss_recovered(
        spoken.model,
        spoken.tokenizer,
        autoencoder,
        store.site,
        [source for source, _ in spoken.pairs],
        [target or source for source, target in spoken.pairs],
        include_special=store.manifest["include_special"],
        progress=progress,
    )
    typer.echo(
        f"cross-entropy a token over {found.n_tokens} tokens: {found.clean:.4f} before and {found.spliced:.4f} after "
        f"splicing at {found.site}; {found.mean_ablated:.4f} with the mean state, {found.zero_ablated:.4f} with zeros"
    )
    recovered = None if math.isnan(found.recovered) else found.recovered
    typer.echo(
        "loss recovered: "
        + (f"{recovered:.4f}" if recovered is not None else "not defined, since zeros do not raise the loss")
    )
    return {
        "tokens": found.n_tokens,
        "ce_loss_score": recovered,
        "ce_loss_without_sae": found.clean,
        "ce_loss_with_sae": found.spliced,
        "ce_loss_with_ablation": found.zero_ablated,
    }


@app.command()
def export(
    run: Run,
    out: Annotated[Path, typer.Option(help="Directory to write; must not hold anything yet.")],
    format: Annotated[
        Format,
        typer.Option(help="saelens: what sae_lens.SAE reads; safetensors: what course_lib.sae.load reads."),
    ] = Format.saelens,
) -> None:
    """Write a sparse autoencoder for other programs."""
    with explain_errors(ValueError, OSError):
        from course_lib import sae
        from course_lib.sae import sae_lens_format

        autoencoder, origin = load_run(run)
        if format is Format.saelens:
            known = {"model_name": origin["model"], "hook_name": origin["site"]} if origin else {}
            sae_lens_format.export(autoencoder, out, metadata=known)
        else:
            sae.save(autoencoder, out)
    typer.echo(f"{format.value}: {out}")
