"""Commands that take text through a model: `pipeline`, `browse` and `activations`."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from course_lib.commands import options
from course_lib.commands.options import explain_errors


class Pool(StrEnum):
    """One row a token, or one a sentence."""

    tokens = "tokens"
    mean = "mean"


class Dtype(StrEnum):
    """What a model computes in."""

    auto = "auto"
    float32 = "float32"
    bfloat16 = "bfloat16"
    float16 = "float16"


def pipeline(
    out: Annotated[Path, typer.Option(help="Directory for the results; must not hold anything yet.")],
    model: options.Model = "course-mbart",
    text: Annotated[
        str,
        typer.Option(
            help="UTF-8 file, one sentence a line, optionally language<TAB>sentence; a table of parallel text, with a "
            "column a language; or builtin."
        ),
    ] = "builtin",
    pivot: Annotated[
        str | None,
        typer.Option(
            help="Language of a table whose frequent words are the concepts of its rows (default: its first one)."
        ),
    ] = None,
    labels: Annotated[
        str | None,
        typer.Option(
            help="Columns of a table, NAME[,NAME], whose values are the concepts of its rows, in place of words; the "
            "first is what the stacked autoencoder learns to tell, in place of languages."
        ),
    ] = None,
    site: Annotated[
        str,
        typer.Option(
            help="States that the autoencoders are trained on: encoder, decoder, or a site like encoder.6.mlp."
        ),
    ] = "encoder",
    sentences: options.Sentences = None,
    max_tokens: options.MaxTokens = None,
    too_long: options.TooLong = None,
    kind: options.KindOfAutoencoder = options.Kind.topk,
    features: options.Features = None,
    k: options.K = None,
    auxk: options.AuxK = None,
    penalty: options.Penalty = None,
    steps: options.Steps = None,
    widths: Annotated[
        str | None,
        typer.Option(
            help="Units of the layers of the stacked autoencoder, WIDTH[,WIDTH...], the code's last (default: a half "
            "and an eighth of the model's width)."
        ),
    ] = None,
    alpha: Annotated[
        float | None,
        typer.Option(
            help="In place of widths: the code has as many units as PCA needs components for this share of the variance."
        ),
    ] = None,
    beta: Annotated[
        float | None, typer.Option(help="Weight of its sparsity term, the KL of rho (default: 0.3).")
    ] = None,
    rho: Annotated[
        float | None, typer.Option(help="Mean activation that its units are pulled towards (default: 0.05).")
    ] = None,
    gamma: Annotated[
        float | None,
        typer.Option(help="Weight of its supervised term, of languages or labels (default: 0.02)."),
    ] = None,
    store: Annotated[
        Path | None,
        typer.Option(help="Take tokens' states from this store, which `activations` wrote of the same text."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the corpus, the split and the training.")] = 0,
    device: options.Device = None,
    threads: options.Threads = None,
    config: options.Config = None,
    progress: options.Progress = True,
) -> None:
    """Find named features in text: model, autoencoders, report."""
    from course_lib.mbart.model import ModelUnavailable
    from course_lib.pipeline import InputError, run
    from course_lib.pipeline.config import sparse_config, stacked_config

    with explain_errors(InputError, ModelUnavailable, OSError):
        try:
            layers = options.whole_numbers("widths", widths)
        except ValueError as error:
            raise InputError(str(error)) from error
        stacked = stacked_config(widths=layers, alpha=alpha, beta=beta, rho=rho, gamma=gamma)
        sparse = sparse_config(
            kind=kind.value, features=features, k=k, penalty=penalty, steps=steps, auxk=auxk
        )
        result = run(
            out=out,
            model=model,
            text=text,
            site=site,
            seed=seed,
            n_sentences=sentences,
            stacked=stacked,
            sparse=sparse,
            store=store,
            pivot=pivot,
            labels=options.names(labels),
            max_tokens=max_tokens,
            too_long=too_long,
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


def browse(
    run: Annotated[
        Path, typer.Argument(help="Directory of a pipeline run; with --out any that `sae evaluate` takes.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            help="Directory to write what is browsed to, for an autoencoder without a text of its own."
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(help="With --out: model of the states (default: that of the store of `sae train`)."),
    ] = None,
    site: Annotated[
        str | None, typer.Option(help="With --out: site of the states (default: that of the store).")
    ] = None,
    text: Annotated[
        str, typer.Option(help="With --out: sentences to show features on, as `pipeline` reads them.")
    ] = "builtin",
    sentences: options.Sentences = None,
    max_tokens: options.MaxTokens = None,
    too_long: options.TooLong = None,
    port: Annotated[int, typer.Option(help="Port on 127.0.0.1; 0 is any free one.", min=0, max=65535)] = 0,
    link: Annotated[
        str | None,
        typer.Option(help="Address of a view of an earlier page of this run; the page opens there."),
    ] = None,
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
    device: options.Device = None,
    threads: options.Threads = None,
    progress: options.Progress = True,
) -> None:
    """Browse the features that a run found, in a page.

    The page is served on this machine only. Its index is made at the first call. With --out an autoencoder is browsed
    that another program or `sae train` made: it reads a text, and --out is a run to browse from then on.
    """
    import signal
    import webbrowser

    from course_lib.interpret.browser.index import IndexUnavailable
    from course_lib.interpret.browser.page import export as write
    from course_lib.interpret.browser.server import open_or_build, serve

    options = {"effects": effects, "device": device, "threads": threads, "progress": progress}
    view = "" if link is None else "#" + link.partition("#")[2]
    with explain_errors(IndexUnavailable, ValueError, OSError):
        if link is not None and "view=" not in view:
            raise ValueError(f"link is {link!r}; expected the address of a view, with #view= in it")
        for name, value in (
            ("model", model),
            ("site", site),
            ("sentences", sentences),
            ("max_tokens", max_tokens),
            ("too_long", too_long),
        ):
            if out is None and value is not None:
                raise ValueError(f"{name} is {value!r}, and a run has its own; expected --out with it")
        if out is None and run.is_dir() and not (run / "sparse").exists():
            raise ValueError(
                f"{run} is none; expected the directory of a pipeline run, or, for an autoencoder alone, --out, a "
                "directory to write to, and the --text to show it on"
            )
        if out is not None:
            how = {"max_tokens": max_tokens, "too_long": too_long}
            how |= {"device": device, "threads": threads, "progress": progress}
            run = _run_of_autoencoder(run, out, model, site, text=text, n_sentences=sentences, **how)
        if export is not None:
            write(open_or_build(run, **options), export, n_features=features)
            typer.echo(f"page: {export}")
            return
        server = serve(run, port=port, **options)
    typer.echo(f"feature browser: {server.address}{view}\nCtrl+C ends it")
    if browser:
        webbrowser.open(server.address + view)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # the way to end it, which is no stop
    server.wait()


def _run_of_autoencoder(place: Path, out: Path, model: str | None, site: str | None, **options: Any) -> Path:
    """Write a run to `out` that shows the autoencoder of a directory on a text."""
    from course_lib import sae
    from course_lib.commands.sae import load_run
    from course_lib.mbart.model import ModelUnavailable
    from course_lib.mbart.site import Site
    from course_lib.pipeline import run_of_autoencoder

    autoencoder, origin = load_run(place)
    if not isinstance(autoencoder, sae.SparseAutoencoder):
        raise ValueError(f"{place} holds a {autoencoder.kind!r} autoencoder; expected a sparse one")
    found = {}
    for name, given in (("model", model), ("site", site)):
        found[name] = given if given is not None else (origin or {}).get(name)
        if found[name] is None:
            raise ValueError(f"{name} is not given, and {place} does not say which it is; expected --{name}")
    if origin is not None and Site.parse(found["site"]) != Site.parse(origin["site"]):
        raise ValueError(f"site is {site!r}, and {place} was trained on states of {origin['site']!r}")
    known = origin if "weights_sha256" in (origin or {}) else None
    with explain_errors(ModelUnavailable):
        run_of_autoencoder(autoencoder, out=out, origin=known, **found, **options)
    return out


def activations(
    out: Annotated[
        Path, typer.Option(help="Directory of the store; one that a run left unfinished goes on.")
    ],
    text: Annotated[
        str,
        typer.Option(
            help="UTF-8 file of lines: sentence, language<TAB>sentence, or two of these for encoder and decoder (also "
            ".gz, or - for the standard input); .jsonl, .csv, .parquet or a directory of datasets; or builtin."
        ),
    ] = "builtin",
    column: options.Columns = None,
    model: options.Model = "course-mbart",
    site: Annotated[
        str,
        typer.Option(help="encoder.final, encoder.3 (after layer 3), decoder.-1.mlp; parts: attention, mlp."),
    ] = "encoder.final",
    pool: Annotated[Pool, typer.Option(help="One row a token, or the mean of a sentence.")] = Pool.tokens,
    dtype: Annotated[
        Dtype, typer.Option(help="auto: bfloat16 where the hardware is faster with it.")
    ] = Dtype.auto,
    sentences: options.Sentences = None,
    max_tokens: options.MaxTokens = None,
    too_long: options.TooLong = None,
    include_special: Annotated[bool, typer.Option(help="Keep language codes and </s> too.")] = False,
    tokens_per_sentence: Annotated[
        int | None,
        typer.Option(
            help="Keep the rows of at most so many tokens of a sentence, drawn by --seed (default: all)."
        ),
    ] = None,
    shard_size: Annotated[int, typer.Option(help="Sentences in a file; memory grows with it.")] = 1024,
    tokens_per_batch: Annotated[
        int | None, typer.Option(help="Tokens the model reads at once (default: 2048, on a GPU 16384).")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the built-in corpus, and of tokens that are drawn.")] = 0,
    device: options.Device = None,
    threads: options.Threads = None,
    progress: options.Progress = True,
) -> None:
    """Store a model's activations on disk.

    Give the same command again to go on after a stop, and run it under torchrun to share the work.
    """
    from itertools import islice

    from course_lib.mbart.model import ModelUnavailable, load
    from course_lib.pipeline import BUILTIN, InputError, read_text
    from course_lib.pipeline.config import check_too_long

    with explain_errors(InputError, ModelUnavailable, ValueError, FileNotFoundError):
        import torch

        from course_lib import devices, parallel
        from course_lib.mbart import activation_store as stores
        from course_lib.mbart.activations import NotFiniteError
        from course_lib.mbart.families import languages
        from course_lib.mbart.structure import width
        from course_lib.mbart.too_long import TokenLimit

        where, limit = stores.Site.parse(site), None
        check_too_long(max_tokens, too_long, text)
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
            numbered = stores.read_numbered(
                text, languages=languages(tokenizer), columns=options.columns(column)
            )
            if max_tokens is not None:
                limit = TokenLimit(tokenizer, max_tokens, too_long or "cut", targets=True)
                numbered = limit.apply((number, stores.pair(item)) for number, item in numbered)
            spoken = (item for _, item in islice(numbered, sentences))
    with parallel.process_group(), parallel.synchronised():
        with (
            explain_errors(stores.StoreError, NotFiniteError, ValueError),
            devices.threads(devices.threads_for(width(mbart, where.side)) if threads is None else threads),
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
                tokens_per_sentence=tokens_per_sentence,
                seed=seed,
                tokens_per_batch=tokens_per_batch,
                limit=limit,
                progress=progress,
            )
        first = parallel.rank() == 0
    if first:
        typer.echo(
            f"{len(store):,} rows of {store.d_model} {store.manifest['dtype']} numbers from "
            f"{store.manifest['sentences']:,} sentences at {store.site}\nstore: {out}"
        )
        for note in limit.note() if limit is not None else ():
            typer.echo(f"warning: {note}", err=True)
