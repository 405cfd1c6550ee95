"""The commands `course sae train | evaluate | export`: dictionaries of states that are stored.

A run of `train` is a directory: `choice.json`, what was asked for and of which store; `checkpoints/`, from which the
same command goes on; and at the end, whole or not at all, `autoencoder/`.
"""

import hashlib
import json
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
    Path, typer.Argument(help="A run of `sae train` or of `pipeline`, or a directory with an autoencoder.")
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
    penalty: options.Penalty = None,
    steps: options.Steps = None,
    batch_size: Annotated[int | None, typer.Option(help="Rows a step (default: 1024).")] = None,
    step_size: Annotated[float | None, typer.Option(help="Adam's step size (default: 0.004).")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the weights and of the order of rows.")] = 0,
    checkpoint_every: Annotated[int, typer.Option(help="Steps between two checkpoints.")] = 500,
    device: options.Device = None,
    threads: options.Threads = None,
    config: options.Config = None,
    progress: options.Progress = True,
) -> None:
    """Train a sparse autoencoder on stored activations.

    Give the same command again to go on after a stop.
    """
    with explain_errors(ValueError, RuntimeError, OSError):
        from dataclasses import asdict, replace

        from course_lib import devices, sae
        from course_lib.pipeline.config import dictionary, sparse_config
        from course_lib.pipeline.seeds import generator
        from course_lib.pipeline.states import open_store

        rows = open_store(store)
        settings = sparse_config(kind=kind.value, features=features, k=k, penalty=penalty, steps=steps)
        given = {"batch_size": batch_size, "step_size": step_size}
        given = {name: value for name, value in given.items() if value is not None}
        settings = replace(settings, training=replace(settings.training, **given))
        used = devices.usable_device(device)
        autoencoder = dictionary(settings, rows.d_model, generator=generator(seed, 3)).to(used)
        choice = {
            "kind": kind.value,
            "config": autoencoder.config(),
            "training": asdict(settings.training),
            "seed": seed,
            "store": {name: rows.manifest[name] for name in _ORIGIN},
        }
        _record_choice(out, json.loads(json.dumps(choice)))
        if (out / AUTOENCODER).exists():
            _check_finished(out / AUTOENCODER)
        else:
            threads = devices.threads_for(rows.d_model) if threads is None else threads
            with devices.threads(threads):
                sae.train(
                    autoencoder,
                    rows,
                    settings.training,
                    generator=generator(seed, 4),
                    progress=progress,
                    checkpoint_dir=out / CHECKPOINTS,
                    checkpoint_every=checkpoint_every,
                )
            sae.save(autoencoder, out / AUTOENCODER)
    typer.echo(f"autoencoder: {out / AUTOENCODER}")


def _check_finished(directory: Path) -> None:
    """Raise ValueError or FileNotFoundError, with what to do, where an autoencoder is not as it was written."""
    from course_lib import sae

    try:
        sae.load(directory)
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
        before = _read_choice(path)
        for name, value in _flatten(choice).items():
            # The same weights may be reached by another name.
            if name != "store.model" and _flatten(before).get(name) != value:
                raise ValueError(
                    f"{out} is another run: its {name} is {_flatten(before).get(name)!r}, now {value!r}; choose another "
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


def _load_run(run: Path, *, device: Any = "cpu") -> tuple[Any, dict[str, Any] | None]:
    """The sparse autoencoder of a run, and what is known of the states that it was trained on."""
    from course_lib import sae

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
    return sae.load(place, device=device), origin


@app.command()
def evaluate(
    run: Run,
    store: Annotated[Path, typer.Option(help="States to evaluate on: a store that `activations` wrote.")],
    model: Annotated[
        str | None,
        typer.Option(help="Model of the states, for its cross-entropy with the reconstructions put in."),
    ] = None,
    text: Annotated[
        str, typer.Option(help="What the model reads then: a UTF-8 file, or builtin.")
    ] = "builtin",
    sentences: Annotated[int, typer.Option(help="Sentences of it.")] = 200,
    device: options.Device = None,
    threads: options.Threads = None,
    progress: options.Progress = True,
) -> None:
    """Measure a sparse autoencoder on stored activations.

    Prints explained variance, active and dead features; with a model also its cross-entropy before and after splicing.
    """
    with explain_errors(ValueError, RuntimeError, OSError):
        from course_lib import devices
        from course_lib.pipeline.states import open_store
        from course_lib.sae import metrics

        used = devices.usable_device(device)
        rows = open_store(store)
        autoencoder, origin = _load_run(run, device=used)
        for name in ("site", "weights_sha256"):
            known = (origin or {}).get(name)
            if known is not None and known != rows.manifest[name]:
                raise ValueError(
                    f"{run} was trained on states with {name} {known!r}, and {store} has {rows.manifest[name]!r}; "
                    "expected states of the same model and site"
                )
        threads = devices.threads_for(rows.d_model) if threads is None else threads
        with devices.threads(threads):
            found = metrics.evaluate(autoencoder, rows)
            typer.echo(f"rows: {found.n_rows}")
            typer.echo(f"explained variance: {found.explained_variance:.4f}")
            typer.echo(f"active features a row (l0): {found.l0:.2f}")
            typer.echo(f"dead features: {found.n_dead} of {found.code_width}")
            if model is not None:
                _print_spliced_loss(
                    autoencoder,
                    rows,
                    model,
                    text=text,
                    n=sentences,
                    device=used,
                    progress=progress,
                    store=store,
                )


def _print_spliced_loss(
    autoencoder: Any, rows: Any, name: str, *, text: str, n: int, device: Any, progress: bool, store: Path
) -> None:
    """Print the cross-entropy of reading sentences back with the states at the store's site clean and replaced."""
    from itertools import islice

    from course_lib.language.corpus import generate
    from course_lib.mbart.activation_store import read_lines
    from course_lib.mbart.families import languages
    from course_lib.mbart.model import load
    from course_lib.mbart.splicing import loss_recovered
    from course_lib.pipeline.states import check_model

    model, tokenizer = load(name, device=device)
    check_model(rows.manifest, model, tokenizer, what=f"the store {store}")
    if text == "builtin":
        pairs = [(sentence, None) for sentence in generate(n, seed=0, split="test")]
    else:
        pairs = list(islice(read_lines(text, languages=languages(tokenizer)), n))
    sources = [source for source, _ in pairs]
    targets = [target or source for source, target in pairs]
    special = rows.manifest["include_special"]
    found = loss_recovered(
        model, tokenizer, autoencoder, rows.site, sources, targets, include_special=special, progress=progress
    )
    typer.echo(
        f"cross-entropy a token over {found.n_tokens} tokens: {found.clean:.4f} before and {found.spliced:.4f} after "
        f"splicing at {rows.site}; {found.mean_ablated:.4f} with the mean state, {found.zero_ablated:.4f} with zeros"
    )


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

        autoencoder, origin = _load_run(run)
        if format is Format.saelens:
            known = {"model_name": origin["model"], "hook_name": origin["site"]} if origin else {}
            sae_lens_format.export(autoencoder, out, metadata=known)
        else:
            sae.save(autoencoder, out)
    typer.echo(f"{format.value}: {out}")
