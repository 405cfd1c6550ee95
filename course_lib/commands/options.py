"""Options that commands share, given one by one or in a file. Loads nothing heavy, so that `--help` answers at once."""

import os
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer


class Kind(StrEnum):
    """Kinds of sparse autoencoder that commands train."""

    topk = "topk"
    batchtopk = "batchtopk"
    relu = "relu"
    jumprelu = "jumprelu"
    gated = "gated"
    matryoshka = "matryoshka"
    matryoshka_batchtopk = "matryoshka-batchtopk"
    gba = "gba"


# Options that several commands take, each declared once.
Model = Annotated[
    str, typer.Option(help="Hub name, local directory, or a built-in one: course-mbart, course-mbart-help.")
]
Sentences = Annotated[
    int | None, typer.Option(help="Use so many sentences (default: the whole file, 12000 of builtin).")
]
MaxTokens = Annotated[
    int | None,
    typer.Option(
        help="Sentences of more tokens, language code and </s> counted, are cut or skipped (default: what the model "
        "cannot read is an error)."
    ),
]
TooLong = Annotated[
    str | None,
    typer.Option(
        help="What --max-tokens does: cut the sentence (default), or skip its line, with all its languages."
    ),
]
Columns = Annotated[
    list[str] | None,
    typer.Option(
        "--column",
        help="Of a table: text=NAME, and so language, target and target_language; may be repeated.",
    ),
]
Notebooks = Annotated[Path, typer.Option(help="Folder of the lessons' notebooks.")]
Device = Annotated[
    str | None, typer.Option(help="cpu, cuda, cuda:1, ... (default: cuda where there is one).")
]
Threads = Annotated[
    int | None, typer.Option(help="CPU threads of torch (default: one for small models, else torch's own).")
]
WORKERS = os.cpu_count() or 1
MetricsFile = Annotated[Path | None, typer.Option(help="Also write what is measured to this JSON file.")]
Workers = Annotated[int, typer.Option(help="Processes that work at the same time.")]
Progress = Annotated[bool, typer.Option(help="Show progress bars.")]

# The sparse autoencoder that `pipeline` and `sae train` make.
KindOfAutoencoder = Annotated[Kind, typer.Option(help="Kind of sparse autoencoder.")]
Features = Annotated[
    int | None,
    typer.Option(help="Features of the sparse autoencoder (default: eight times the model's width)."),
]
K = Annotated[int | None, typer.Option(help="Active features a token, of kinds that fix it (default: 8).")]
AuxK = Annotated[
    int | None,
    typer.Option(
        help="Dead features a row that learn from what the others leave (AuxK), of kinds with k (default: 0, none)."
    ),
]
Penalty = Annotated[
    float | None,
    typer.Option(
        help="Weight of the sparsity penalty (default: relu and gated 0.3, jumprelu 0.003; other kinds have none)."
    ),
]
Steps = Annotated[int | None, typer.Option(help="Training steps of the sparse autoencoder (default: 2000).")]

_NUMBERS = dict.fromkeys(
    (
        "sentences",
        "features",
        "k",
        "auxk",
        "steps",
        "batch_size",
        "checkpoint_every",
        "seed",
        "threads",
        "max_tokens",
    ),
    int,
) | dict.fromkeys(("penalty", "step_size", "held_out", "beta", "rho", "gamma", "alpha"), float)
_WORDS = {int: "a whole number", float: "a number", str: "text"}


def names(given: str | None) -> list[str]:
    """The parts of `NAME,NAME`, without blanks around them; none where nothing is given."""
    return [] if given is None else [name.strip() for name in given.split(",")]


def whole_numbers(option: str, given: str | None) -> list[int] | None:
    """The numbers of `512,128`. Raises ValueError, which names the option, for something else."""
    if given is None:
        return None
    try:
        return [int(number) for number in given.split(",")]
    except ValueError:
        raise ValueError(
            f"{option} is {given!r}; expected whole numbers with commas, such as 512,128"
        ) from None


def require(module: str, extra: str) -> None:
    """Raise a RuntimeError that states how to install an extra of this project where a module of it is not installed."""
    if find_spec(module) is None:
        raise RuntimeError(
            f"{module} is not installed; install it with: python -m pip install -c constraints.txt -e '.[{extra}]'"
        )


def finish(page: Path, warnings: int) -> None:
    """Print where the first page of a build is, and leave with code 1 where Sphinx warned."""
    typer.echo(f"{page} is the first page; Sphinx gave {warnings} warnings")
    raise typer.Exit(1 if warnings else 0)


def columns(given: list[str] | None) -> dict[str, str]:
    """The names of a table's columns, of `ours=theirs` each. Raises ValueError for another form and for a repetition."""
    found: dict[str, str] = {}
    for pair in given or ():
        ours, equals, theirs = pair.partition("=")
        if not equals or not theirs or ours in found:
            raise ValueError(f"column is {pair!r}; expected text=NAME, language=NAME, ..., each once")
        found[ours] = theirs
    return found


@contextmanager
def explain_errors(*errors: type[Exception]) -> Iterator[None]:
    """Print errors that the user can fix and leave with code 2; let all others raise."""
    try:
        yield
    except errors as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(2) from None


def read_defaults(context: typer.Context, config: Path | None) -> Path | None:
    """Let the options of a file be the defaults of the command, as the callback of its `--config`, which is eager.

    The file is TOML, with options by name, or the `metrics.json` of a run, whose options are repeated. A file that
    cannot be read, an unknown key and a value that an option does not take end the command with what is wrong.
    """
    if config is None:
        return None
    known = [p.name for p in context.command.params if p.name not in ("out", "config", "progress")]
    with explain_errors(ValueError, FileNotFoundError):
        found = _read(config)
        for key, value in found.items():
            if key not in known:
                raise ValueError(f"{config} has the unknown key {key!r}; expected some of {', '.join(known)}")
            expected = _NUMBERS.get(key, str)
            if type(value) not in ((int, float) if expected is float else (expected,)):
                raise ValueError(f"{config} has {value!r} for {key}; expected {_WORDS[expected]}")
    context.default_map = {key: str(value) for key, value in found.items()}
    return config


def _read(config: Path) -> dict[str, Any]:
    if not config.is_file():
        raise FileNotFoundError(
            f"{config} is not a file; expected options in TOML, or the metrics.json of a run"
        )
    try:
        if config.suffix != ".json":
            return tomllib.loads(config.read_text(encoding="utf-8"))
        from course_lib.interpret.run_directory import read_metrics

        choice = read_metrics(config).run.choice
    except ValueError as error:
        raise ValueError(
            f"{config} cannot be read ({error}); expected options in TOML, or the metrics.json of a run"
        ) from error
    if choice is None:
        raise ValueError(
            f"{config} records a run made from Python with settings that the command has no options for"
        )
    return {key: value for key, value in choice.items() if value is not None}


Config = Annotated[
    Path | None,
    typer.Option(
        help="Options in TOML, or the metrics.json of a run to repeat; options given here win.",
        callback=read_defaults,
        is_eager=True,
    ),
]
