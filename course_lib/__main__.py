"""The command line: `python -m course_lib pipeline | pretrain | figures | doctor`.

Commands import what they need when they run, so that `--help` answers at once.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    name="course_lib",
    help="The course's commands.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


class Site(StrEnum):
    """Where hidden states are taken from."""

    encoder = "encoder"
    decoder = "decoder"


@contextmanager
def _explained(*errors: type[Exception]) -> Iterator[None]:
    """Print errors that the user can mend and leave with code 2; let all others raise."""
    try:
        yield
    except errors as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(2) from None


@app.command()
def pipeline(
    out: Annotated[Path, typer.Option(help="Directory for the results; must not hold anything yet.")],
    model: Annotated[
        str, typer.Option(help="Hub name, local directory, or the built-in course-mbart.")
    ] = "course-mbart",
    text: Annotated[
        str,
        typer.Option(help="UTF-8 file, one sentence a line, optionally language<TAB>sentence; or builtin."),
    ] = "builtin",
    site: Annotated[Site, typer.Option(help="States that the autoencoders are trained on.")] = Site.encoder,
    sentences: Annotated[
        int | None, typer.Option(help="Use so many sentences (default: the whole file, 6000 of builtin).")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the corpus, the split and the training.")] = 0,
    device: Annotated[
        str | None, typer.Option(help="cpu, cuda, cuda:1, ... (default: cuda where there is one).")
    ] = None,
    progress: Annotated[bool, typer.Option(help="Show progress bars.")] = True,
) -> None:
    """Take text through mBART and two autoencoders, and write a report to read."""
    from course_lib.mbart.model import ModelUnavailable
    from course_lib.pipeline import InputError, run

    with _explained(InputError, ModelUnavailable):
        result = run(
            out=out,
            model=model,
            text=text,
            site=site.value,
            seed=seed,
            n_sentences=sentences,
            device=device,
            progress=progress,
        )
    stacked, sparse = result.metrics["stacked"], result.metrics["sparse"]
    width, n_features = stacked["code_width"], sparse["config"]["n_features"]
    typer.echo(
        f"stacked autoencoder: {width} units explain {stacked['held_out']['explained_variance']:.1%} of held-out "
        f"variance ({stacked['train']['explained_variance']:.1%} in training, "
        f"PCA bound {stacked['train']['pca_bound']:.1%})\n"
        f"sparse autoencoder: {sparse['held_out']['l0']:.1f} of {n_features} features active in a sentence explain "
        f"{sparse['held_out']['explained_variance']:.1%} of held-out variance; "
        f"{sparse['train']['dead']} are dead in training\n"
        f"report: {result.report}"
    )
    for warning in result.metrics["run"]["warnings"]:
        typer.echo(f"warning: {warning}", err=True)


@app.command()
def pretrain(
    out: Annotated[
        Path, typer.Option(help="Directory for model, tokenizer and scores; must not hold anything.")
    ],
    steps: Annotated[int | None, typer.Option(help="Optimiser steps.")] = None,
    meanings: Annotated[int | None, typer.Option(help="Meanings of the corpus to train on.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Documents in a step.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the corpus and of the training.")] = None,
    progress: Annotated[bool, typer.Option(help="Show progress bars.")] = True,
) -> None:
    """Pretrain an mBART on the built-in corpus; without options, the one that is shipped."""
    from course_lib.mbart.pretrain import PretrainConfig
    from course_lib.mbart.pretrain import pretrain as run

    given = {"steps": steps, "n_meanings": meanings, "batch_size": batch_size, "seed": seed}
    with _explained(ValueError):
        config = PretrainConfig(**{name: value for name, value in given.items() if value is not None})
    with _explained(FileExistsError):
        scores = run(config, out, progress=progress)
    for name, value in scores.items():
        typer.echo(f"{name}: {value:.4g}")
    typer.echo(f"model: {out}")


@app.command()
def figures(
    directory: Annotated[Path, typer.Argument(help="Where to write them.")] = Path("figures"),
) -> None:
    """Redraw the pictures of the lessons."""
    from course_lib.lessons import draw_figures

    draw_figures(directory)


@app.command()
def doctor() -> None:
    """Say what is wrong with this environment and how to mend it."""
    from course_lib.teaching.doctor import main

    raise typer.Exit(main())


if __name__ == "__main__":
    app(prog_name="python -m course_lib")
