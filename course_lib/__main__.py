"""The command line: `python -m course_lib pipeline | activations | pretrain | figures | doctor`.

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


Model = Annotated[str, typer.Option(help="Hub name, local directory, or the built-in course-mbart.")]
Sentences = Annotated[
    int | None, typer.Option(help="Use so many sentences (default: the whole file, 12000 of builtin).")
]
Threads = Annotated[
    int | None, typer.Option(help="CPU threads of torch (default: one for small models, else torch's own).")
]
Device = Annotated[
    str | None, typer.Option(help="cpu, cuda, cuda:1, ... (default: cuda where there is one).")
]


class Pool(StrEnum):
    """One row a token, or one a sentence."""

    tokens = "tokens"
    mean = "mean"


class Dtype(StrEnum):
    """What a model computes in."""

    auto = "auto"
    float32 = "float32"
    bfloat16 = "bfloat16"


class Side(StrEnum):
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
    model: Model = "course-mbart",
    text: Annotated[
        str,
        typer.Option(help="UTF-8 file, one sentence a line, optionally language<TAB>sentence; or builtin."),
    ] = "builtin",
    site: Annotated[Side, typer.Option(help="States that the autoencoders are trained on.")] = Side.encoder,
    sentences: Sentences = None,
    seed: Annotated[int, typer.Option(help="Seed of the corpus, the split and the training.")] = 0,
    device: Device = None,
    threads: Threads = None,
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
            threads=threads,
            progress=progress,
        )
    stacked, sparse = result.metrics["stacked"], result.metrics["sparse"]
    width, n_features = stacked["code_width"], sparse["config"]["n_features"]
    typer.echo(
        f"stacked autoencoder: {width} units explain {stacked['held_out']['explained_variance']:.1%} of held-out "
        f"variance ({stacked['train']['explained_variance']:.1%} in training, "
        f"PCA bound {stacked['train']['pca_bound']:.1%})\n"
        f"sparse autoencoder: {sparse['held_out']['l0']:.1f} of {n_features} features active at a token explain "
        f"{sparse['held_out']['explained_variance']:.1%} of held-out variance; "
        f"{sparse['train']['dead']} are dead in training"
    )
    if concepts := result.metrics["concepts"]:
        from course_lib.pipeline.report import said_of_concepts

        typer.echo(said_of_concepts(concepts))
    typer.echo(f"report: {result.report}")
    for warning in result.metrics["run"]["warnings"]:
        typer.echo(f"warning: {warning}", err=True)


@app.command()
def activations(
    out: Annotated[
        Path, typer.Option(help="Directory of the store; one that a run left unfinished goes on.")
    ],
    text: Annotated[
        str,
        typer.Option(
            help="UTF-8 file of lines: sentence, language<TAB>sentence, or two of these for encoder and decoder; "
            ".jsonl, .parquet or .csv with a column text; or builtin."
        ),
    ] = "builtin",
    model: Model = "course-mbart",
    site: Annotated[
        str,
        typer.Option(help="encoder.final, encoder.3 (after layer 3), decoder.-1.mlp; parts: attention, mlp."),
    ] = "encoder.final",
    pool: Annotated[Pool, typer.Option(help="One row a token, or the mean of a sentence.")] = Pool.tokens,
    dtype: Annotated[Dtype, typer.Option(help="auto: bfloat16 where the hardware has it.")] = Dtype.auto,
    sentences: Sentences = None,
    include_special: Annotated[bool, typer.Option(help="Keep language codes and </s> too.")] = False,
    shard_size: Annotated[int, typer.Option(help="Sentences in a file; memory grows with it.")] = 1024,
    tokens_per_batch: Annotated[
        int | None, typer.Option(help="Tokens the model reads at once (default: 2048, on a GPU 16384).")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the built-in corpus.")] = 0,
    device: Device = None,
    threads: Threads = None,
    progress: Annotated[bool, typer.Option(help="Show a progress bar.")] = True,
) -> None:
    """Store a model's activations on disk; run it again to go on, under torchrun to share the work."""
    from itertools import islice

    from course_lib.mbart.model import ModelUnavailable, load
    from course_lib.pipeline import BUILTIN, BUILTIN_SENTENCES, InputError

    with _explained(InputError, ModelUnavailable, ValueError, FileNotFoundError):
        import torch

        from course_lib import devices, parallel
        from course_lib.mbart import activation_store as stores
        from course_lib.mbart.activations import NotFiniteError
        from course_lib.mbart.corpus import generate

        where = stores.Site.parse(site)
        if sentences is not None and sentences < 1:
            raise ValueError(f"{sentences} sentences asked for; expected at least 1")
        if device is None and parallel.local_rank() is not None and torch.cuda.is_available():
            device = f"cuda:{parallel.local_rank()}"
        used = devices.usable_device(device)
        chosen = devices.fast_dtype(used) if dtype is Dtype.auto else getattr(torch, dtype.value)
        mbart, tokenizer = load(model, device=used, dtype=chosen)
        if text == BUILTIN:
            spoken = generate(sentences or BUILTIN_SENTENCES, seed=seed)
        else:
            spoken = islice(stores.read_text(text, languages=tokenizer.lang_code_to_id), sentences)
    with parallel.process_group(), parallel.synchronised():
        with (
            _explained(stores.StoreError, NotFiniteError, ValueError),
            devices.threads(devices.threads_for(mbart.config.d_model) if threads is None else threads),
        ):
            store = stores.write_store(
                out,
                mbart,
                tokenizer,
                spoken,
                site=where,
                pool=pool.value,
                model_name=model,
                shard_size=shard_size,
                include_special=include_special,
                tokens_per_batch=tokens_per_batch,
                progress=progress,
            )
        first = parallel.rank() == 0
    if first:
        typer.echo(
            f"{len(store):,} rows of {store.d_model} {store.manifest['dtype']} numbers from "
            f"{store.manifest['sentences']:,} sentences at {store.site}\nstore: {out}"
        )


@app.command()
def pretrain(
    out: Annotated[
        Path, typer.Option(help="Directory for model, tokenizer and scores; must not hold anything.")
    ],
    steps: Annotated[
        int | None, typer.Option(help="Optimiser steps that translate, after those that denoise.")
    ] = None,
    denoising_steps: Annotated[int | None, typer.Option(help="Optimiser steps that denoise.")] = None,
    meanings: Annotated[
        int | None, typer.Option(help="Meanings of the corpus to train on, a multiple of 4.")
    ] = None,
    pieces: Annotated[
        int | None, typer.Option(help="Pieces of the tokenizer (default: 3100); few meanings yield fewer.")
    ] = None,
    batch_size: Annotated[
        int | None, typer.Option(help="Documents or sentences in a step, a multiple of 4.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the corpus and of the training.")] = None,
    threads: Annotated[int | None, typer.Option(help="CPU threads of torch (default: torch's own).")] = None,
    progress: Annotated[bool, typer.Option(help="Show progress bars.")] = True,
) -> None:
    """Pretrain an mBART on the built-in corpus; without options, the one that is shipped.

    A run that was stopped goes on from its last checkpoint when the same command is given again.
    """
    from course_lib.devices import threads as threads_set
    from course_lib.mbart.config import PretrainConfig
    from course_lib.mbart.pretrain import pretrain as run

    given = {
        "translation_steps": steps,
        "denoising_steps": denoising_steps,
        "n_meanings": meanings,
        "pieces": pieces,
        "batch_size": batch_size,
        "seed": seed,
    }
    with _explained(ValueError, FileExistsError), threads_set(threads):
        config = PretrainConfig(**{name: value for name, value in given.items() if value is not None})
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
    from course_lib.doctor import main

    raise typer.Exit(main())


if __name__ == "__main__":
    app(prog_name="python -m course_lib")
