"""Commands for those who maintain the course: `figures`, `pretrain` and `dictionary`."""

from pathlib import Path
from typing import Annotated

import typer

from course_lib.commands import options
from course_lib.commands.options import explain_errors


def figures(
    directory: Annotated[Path, typer.Argument(help="Where to write them.")] = Path("figures"),
) -> None:
    """Redraw the lessons' figures."""
    from course_lib.lessons import draw_figures

    draw_figures(directory)


def pretrain(
    out: Annotated[
        Path, typer.Option(help="Directory for model, tokenizer and scores; must not hold anything.")
    ],
    text: Annotated[
        Path | None,
        typer.Option(
            help="Table of parallel text to train on, as `corpus libreoffice-help` writes it (default: the built-in "
            "corpus)."
        ),
    ] = None,
    steps: Annotated[
        int | None, typer.Option(help="Optimiser steps that translate, after those that denoise.")
    ] = None,
    denoising_steps: Annotated[int | None, typer.Option(help="Optimiser steps that denoise.")] = None,
    meanings: Annotated[
        int | None, typer.Option(help="Meanings of the built-in corpus to train on, a multiple of 4.")
    ] = None,
    pieces: Annotated[
        int | None,
        typer.Option(
            help="Pieces of the tokenizer (default: 3100, of a table 8000); little text yields fewer."
        ),
    ] = None,
    batch_size: Annotated[
        int | None,
        typer.Option(help="Documents or sentences in a step, of the built-in corpus a multiple of 4."),
    ] = None,
    alignment_share: Annotated[
        float | None,
        typer.Option(
            help="Share of the translating steps, the last, that align (default: 0.2, of a table 0.5; 0: none)."
        ),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the corpus and of the training.")] = None,
    device: options.Device = None,
    threads: Annotated[int | None, typer.Option(help="CPU threads of torch (default: torch's own).")] = None,
    progress: options.Progress = True,
) -> None:
    """Pretrain the small mBART that is shipped, or another.

    It is trained on the built-in corpus, or on a table of real text; without options it is the one that is shipped.
    A run that was stopped goes on from its last checkpoint when the same command is given again.
    """
    from course_lib.devices import threads as threads_set
    from course_lib.devices import usable_device
    from course_lib.mbart.pretraining import text as parallel
    from course_lib.mbart.pretraining.config import PretrainConfig, TextConfig
    from course_lib.mbart.pretraining.pretrain import pretrain as run

    given = {
        "translation_steps": steps,
        "denoising_steps": denoising_steps,
        "n_meanings": meanings,
        "pieces": pieces,
        "batch_size": batch_size,
        "alignment_share": alignment_share,
        "seed": seed,
    }
    given = {name: value for name, value in given.items() if value is not None}
    with explain_errors(ValueError, OSError, RuntimeError), threads_set(threads):
        used = usable_device(device)
        if text is None:
            scores = run(PretrainConfig(**given), out, device=used, progress=progress)
        elif meanings is not None:
            raise ValueError("--meanings is for the built-in corpus; a table is read as a whole")
        else:
            table = parallel.read_table(text)
            config = parallel.text_config(table, TextConfig(**given))
            scores = parallel.pretrain_on_text(table, config, out, device=used, progress=progress)
    for name, value in scores.items():
        typer.echo(f"{name}: {value:.4g}")
    typer.echo(f"model: {out}")


def dictionary(
    out: Annotated[Path, typer.Option(help="Directory for weights and scores; must not hold anything.")],
    text: Annotated[
        Path | None,
        typer.Option(
            help="Table of parallel text, for a dictionary of course-mbart-help (`corpus libreoffice-help`)."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the sentences and of the training.")] = 0,
    threads: Annotated[int | None, typer.Option(help="CPU threads of torch (default: torch's own).")] = None,
    progress: options.Progress = True,
) -> None:
    """Train the dictionaries of features that are shipped, or others."""
    from course_lib.devices import threads as threads_set
    from course_lib.pipeline.course_dictionary import make, make_of_table

    with explain_errors(ValueError, OSError), threads_set(threads):
        if text is None:
            about = make(out, seed=seed, progress=progress)
        else:
            about = make_of_table(text, out, seed=seed, progress=progress)
    typer.echo(f"held-out variance explained: {about['held-out variance explained']:.4g}")
    typer.echo(f"dictionary: {out}")
