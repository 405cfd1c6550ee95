"""Options of the commands, given one by one or in a file. Loads nothing heavy, so that `--help` answers at once."""

import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Any

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


_NUMBERS = dict.fromkeys(("sentences", "features", "k", "steps", "batch_size", "seed", "threads"), int) | {
    "penalty": float,
    "step_size": float,
}
_WORDS = {int: "a whole number", float: "a number", str: "text"}


@contextmanager
def explained(*errors: type[Exception]) -> Iterator[None]:
    """Print errors that the user can fix and leave with code 2; let all others raise."""
    try:
        yield
    except errors as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(2) from None


def from_file(context, config: Path | None) -> Path | None:
    """Let the options of a file be the defaults of the command, as the callback of its `--config`, which is eager.

    The file is TOML, with options by name, or the `metrics.json` of a run, whose options are repeated. A file that
    cannot be read, an unknown key and a value that an option does not take end the command with what is wrong.
    """
    if config is None:
        return None
    known = [p.name for p in context.command.params if p.name not in ("out", "config", "progress")]
    with explained(ValueError, FileNotFoundError):
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
