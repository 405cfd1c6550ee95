"""The command line: `python -m course_lib COMMAND`; `--help` lists the commands.

Commands import what they need when they run, so that `--help` answers at once.
"""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from course_lib import sae_commands
from course_lib.options import Kind, explained, from_file

app = typer.Typer(
    name="course_lib",
    help="The course's commands.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(sae_commands.app, name="sae")


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


KindOption = Annotated[Kind, typer.Option(help="Kind of sparse autoencoder.")]
Penalty = Annotated[
    float | None,
    typer.Option(
        help="Weight of the sparsity penalty, of kinds without k (default: relu and gated 0.3, jumprelu 0.003)."
    ),
]
ConfigFile = Annotated[
    Path | None,
    typer.Option(
        help="Options in TOML, or the metrics.json of a run to repeat; options given here win.",
        callback=from_file,
        is_eager=True,
    ),
]


class Grader(StrEnum):
    """Tools that hand out and grade notebooks."""

    nbgrader = "nbgrader"


class Pool(StrEnum):
    """One row a token, or one a sentence."""

    tokens = "tokens"
    mean = "mean"


class Dtype(StrEnum):
    """What a model computes in."""

    auto = "auto"
    float32 = "float32"
    bfloat16 = "bfloat16"


@app.command()
def pipeline(
    out: Annotated[Path, typer.Option(help="Directory for the results; must not hold anything yet.")],
    model: Model = "course-mbart",
    text: Annotated[
        str,
        typer.Option(help="UTF-8 file, one sentence a line, optionally language<TAB>sentence; or builtin."),
    ] = "builtin",
    site: Annotated[
        str,
        typer.Option(
            help="States that the autoencoders are trained on: encoder, decoder, or a site like encoder.6.mlp."
        ),
    ] = "encoder",
    sentences: Sentences = None,
    kind: KindOption = Kind.topk,
    features: Annotated[
        int | None,
        typer.Option(help="Features of the sparse autoencoder (default: eight times the model's width)."),
    ] = None,
    k: Annotated[
        int | None, typer.Option(help="Active features a token, of kinds that fix it (default: 8).")
    ] = None,
    penalty: Penalty = None,
    steps: Annotated[
        int | None, typer.Option(help="Training steps of the sparse autoencoder (default: 2000).")
    ] = None,
    store: Annotated[
        Path | None,
        typer.Option(help="Take tokens' states from this store, which `activations` wrote of the same text."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the corpus, the split and the training.")] = 0,
    device: Device = None,
    threads: Threads = None,
    config: ConfigFile = None,
    progress: Annotated[bool, typer.Option(help="Show progress bars.")] = True,
) -> None:
    """Take text through a model and two autoencoders, and write a report to read."""
    from course_lib.mbart.model import ModelUnavailable
    from course_lib.pipeline import InputError, run
    from course_lib.pipeline.config import sparse_config

    with explained(InputError, ModelUnavailable):
        sparse = sparse_config(kind=kind.value, features=features, k=k, penalty=penalty, steps=steps)
        result = run(
            out=out,
            model=model,
            text=text,
            site=site,
            seed=seed,
            n_sentences=sentences,
            sparse=sparse,
            store=store,
            device=device,
            threads=threads,
            progress=progress,
        )
    stacked, sparse = result.metrics.stacked, result.metrics.sparse
    typer.echo(
        f"stacked autoencoder: {stacked.code_width} units explain {stacked.held_out.explained_variance:.1%} of held-out "
        f"variance ({stacked.train.explained_variance:.1%} in training, "
        f"PCA bound {stacked.train.pca_bound:.1%})\n"
        f"sparse autoencoder: {sparse.held_out.l0:.1f} of {sparse.config['n_features']} features active at a token "
        f"explain {sparse.held_out.explained_variance:.1%} of held-out variance; "
        f"{sparse.train.dead} are dead in training"
    )
    if result.concepts is not None:
        from course_lib.pipeline.report import describe_concepts

        typer.echo(describe_concepts(result.concepts))
    typer.echo(f"report: {result.report}")
    for warning in result.metrics.run.warnings:
        typer.echo(f"warning: {warning}", err=True)


@app.command()
def browse(
    run: Annotated[Path, typer.Argument(help="Directory of a pipeline run.")],
    port: Annotated[int, typer.Option(help="Port on 127.0.0.1; 0 is any free one.", min=0, max=65535)] = 0,
    browser: Annotated[bool, typer.Option(help="Open the page in a browser.")] = True,
    export: Annotated[
        Path | None, typer.Option(help="Write one static HTML file instead of serving the page.")
    ] = None,
    features: Annotated[int, typer.Option(help="Features in that file, the strongest first.")] = 200,
    effects: Annotated[
        int | None,
        typer.Option(
            help="Features whose effect on the output is measured when the index is made "
            "(default: 256, from width 512 on 32)."
        ),
    ] = None,
    device: Device = None,
    threads: Threads = None,
    progress: Annotated[bool, typer.Option(help="Show progress bars.")] = True,
) -> None:
    """Browse the features of a run in a page on this machine; its index is made at the first time."""
    import webbrowser

    from course_lib.interpret.browser.index import IndexUnavailable
    from course_lib.interpret.browser.page import export as write
    from course_lib.interpret.browser.server import open_or_build, serve

    options = {"effects": effects, "device": device, "threads": threads, "progress": progress}
    with explained(IndexUnavailable, ValueError, OSError):
        if export is not None:
            write(open_or_build(run, **options), export, n_features=features)
            typer.echo(f"page: {export}")
            return
        server = serve(run, port=port, **options)
    typer.echo(f"feature browser: {server.address}\nCtrl+C ends it")
    if browser:
        webbrowser.open(server.address)
    server.wait()


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
    dtype: Annotated[
        Dtype, typer.Option(help="auto: bfloat16 where the hardware is faster with it.")
    ] = Dtype.auto,
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
    from course_lib.pipeline import BUILTIN, InputError, read_text

    with explained(InputError, ModelUnavailable, ValueError, FileNotFoundError):
        import torch

        from course_lib import devices, parallel
        from course_lib.mbart import activation_store as stores
        from course_lib.mbart.activations import NotFiniteError
        from course_lib.mbart.families import languages

        where = stores.Site.parse(site)
        if sentences is not None and sentences < 1:
            raise ValueError(f"{sentences} sentences asked for; expected at least 1")
        if device is None and parallel.local_rank() is not None and torch.cuda.is_available():
            device = f"cuda:{parallel.local_rank()}"
        used = devices.usable_device(device)
        chosen = devices.fast_dtype(used) if dtype is Dtype.auto else getattr(torch, dtype.value)
        mbart, tokenizer = load(model, device=used, dtype=chosen)
        if text == BUILTIN:
            # The text of the pipeline, so that it can train on the store.
            spoken = [line.sentence for line in read_text(BUILTIN, seed=seed, limit=sentences)]
        else:
            spoken = islice(stores.read_text(text, languages=languages(tokenizer)), sentences)
    with parallel.process_group(), parallel.synchronised():
        with (
            explained(stores.StoreError, NotFiniteError, ValueError),
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
    alignment_share: Annotated[
        float | None,
        typer.Option(help="Share of the translating steps, the last, that align (default: 0.2; 0: none)."),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the corpus and of the training.")] = None,
    device: Device = None,
    threads: Annotated[int | None, typer.Option(help="CPU threads of torch (default: torch's own).")] = None,
    progress: Annotated[bool, typer.Option(help="Show progress bars.")] = True,
) -> None:
    """Pretrain an mBART on the built-in corpus; without options, the one that is shipped.

    A run that was stopped goes on from its last checkpoint when the same command is given again.
    """
    from course_lib.devices import threads as threads_set
    from course_lib.devices import usable_device
    from course_lib.mbart.config import PretrainConfig
    from course_lib.mbart.pretrain import pretrain as run

    given = {
        "translation_steps": steps,
        "denoising_steps": denoising_steps,
        "n_meanings": meanings,
        "pieces": pieces,
        "batch_size": batch_size,
        "alignment_share": alignment_share,
        "seed": seed,
    }
    with explained(ValueError, FileExistsError), threads_set(threads):
        config = PretrainConfig(**{name: value for name, value in given.items() if value is not None})
        scores = run(config, out, device=usable_device(device), progress=progress)
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
    """Say what is wrong with this environment and how to fix it."""
    from course_lib.doctor import main

    raise typer.Exit(main())


@app.command()
def progress(
    directory: Annotated[
        Path, typer.Argument(help="Folder of progress files, *.json, one a learner; subfolders count.")
    ],
    csv: Annotated[Path | None, typer.Option(help="Write who solved what to this file, as CSV.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write all tables to this file, as a page.")] = None,
    details: Annotated[
        bool, typer.Option("--details", help="Also print each exercise of each learner.")
    ] = False,
) -> None:
    """Put learners' progress files side by side: who solved what, and which mistakes were common.

    A learner is named by the path of the file, and by nothing else: rename the files to hide who is who. The files
    are only read, and nothing is sent anywhere.
    """
    from rich.console import Console

    from course_lib.editions.grading import progress_table as tables
    from course_lib.files import replacing

    with explained(ValueError, OSError):
        collected = tables.collect(directory)
        shown = [
            tables.by_learner(collected),
            tables.by_exercise(collected),
            tables.common_mistakes(collected),
        ]
        every = tables.details(collected)
        for path, written in (
            (csv, lambda: tables.to_csv(every)),
            (html, lambda: tables.to_html([*shown, every], collected.unread)),
        ):
            if path is not None:
                with replacing(path) as file:
                    file.write(written())
    console = Console()
    for table in [*shown, every] if details else shown:
        tables.print_table(table, console)
    for line in collected.unread:
        typer.echo(line, err=True)


@app.command()
def hand_out(
    directory: Annotated[Path, typer.Argument(help="Course directory of the grading tool, new or begun.")],
    lessons: Annotated[list[str] | None, typer.Argument(help="Numbers of lessons (default: all).")] = None,
    grader: Annotated[Grader, typer.Option("--for", help="The grading tool.")] = Grader.nbgrader,
    notebooks: Annotated[Path, typer.Option(help="Folder of the lessons' notebooks.")] = Path("notebooks"),
) -> None:
    """Make assignments of lessons: notebooks without solutions to hand out, which the tool grades by behaviour.

    Each lesson is an assignment, and each exercise in it gives as many points as it has stars.
    """
    from course_lib.editions.grading import hand_out as handing

    with explained(ValueError, OSError, RuntimeError):
        handing.needs_nbgrader()
        taken = handing.chosen(lessons or [], notebooks)
        for lesson in taken:
            source = handing.write_source(directory, lesson, notebooks, [one.number for one in taken])
            typer.echo(f"to hand out: {handing.release(directory, source.stem)}")
    typer.echo(f"collect the notebooks in {directory / 'submitted'}/LEARNER/ASSIGNMENT, then in {directory}:")
    typer.echo("nbgrader autograde ASSIGNMENT && nbgrader generate_feedback ASSIGNMENT && nbgrader export")


if __name__ == "__main__":
    app(prog_name="python -m course_lib")
