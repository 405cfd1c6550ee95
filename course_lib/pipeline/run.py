"""A whole run, from text to the directory that holds what was found."""

import hashlib
import platform
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

import course_lib
from course_lib import devices, sae
from course_lib.files import check_free, new_directory
from course_lib.interpret.concept_report import ConceptReport, TooFewRowsError
from course_lib.interpret.names import feature_names
from course_lib.interpret.run_directory import (
    Description,
    Metrics,
    RunDirectory,
    RunSentence,
    SparseMetrics,
    metrics_as_json,
)
from course_lib.interpret.translated_words import TranslatedWords
from course_lib.language.corpus import LANGUAGES, Sentence
from course_lib.language.text import ParallelTable
from course_lib.mbart.site import Site
from course_lib.pipeline.autoencoders import (
    SparseRun,
    StackedRun,
    activity,
    describe_features,
    read_code,
    score_concepts,
    train_sparse,
    train_stacked,
    warn_of_overfitting,
    warn_of_unscored,
)
from course_lib.pipeline.config import InputError, SparseConfig, StackedConfig, check_too_long, record_choice
from course_lib.pipeline.states import SentenceStates, TokenStates, check_model, read_states
from course_lib.pipeline.tables import ParallelText, find_table, parallel_text
from course_lib.pipeline.text import (
    BUILTIN,
    MIN_SENTENCES,
    Line,
    read_text,
    resolve_languages,
    split,
    warn_of_no_names,
    warn_of_unknown_pieces,
    warn_of_unread_text,
)
from course_lib.sae.formats import fit_to_states

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from course_lib.mbart.too_long import TokenLimit


@dataclass(frozen=True)
class Request:
    """What `run` was asked for."""

    out: Path
    model: str
    text: Path | str
    site: Site
    seed: int
    n_sentences: int | None
    stacked: StackedConfig
    sparse: SparseConfig
    store: Path | str | None
    progress: bool
    pivot: str | None
    labels: tuple[str, ...]
    max_tokens: int | None
    too_long: str | None


@dataclass(frozen=True)
class Inputs:
    """The model on its device, the sentences in languages that it knows, which are held out, and their table if any."""

    model: "PreTrainedModel"
    tokenizer: "PreTrainedTokenizerBase"
    sentences: list[Sentence]
    held_out: Tensor
    device: torch.device
    parallel: ParallelText | None
    notes: list[str]


def run(
    *,
    out: Path | str,
    model: str = "course-mbart",
    text: Path | str = BUILTIN,
    site: str = "encoder",
    seed: int = 0,
    n_sentences: int | None = None,
    stacked: StackedConfig | None = None,
    sparse: SparseConfig | None = None,
    store: Path | str | None = None,
    pivot: str | None = None,
    labels: Sequence[str] = (),
    max_tokens: int | None = None,
    too_long: str | None = None,
    device: torch.device | str | None = None,
    threads: int | None = None,
    progress: bool = True,
) -> RunDirectory:
    """Run the pipeline and write everything to `out`.

    `model` is a hub name, a local directory or "course-mbart"; `text` a file or "builtin". `n_sentences` limits how
    many sentences are used (default: all of a file, 12000 of the built-in corpus). A file may be a table of parallel
    text (`tables.parallel_text`): frequent words of the language `pivot` (default: the first one) are then the
    concepts of its rows, or, with `labels`, the values of these columns of the table, which may be of one language; the
    first of these columns is then what the stacked autoencoder learns to tell, in place of languages. With `max_tokens`
    sentences of a file that have more tokens are cut or, with `too_long="skip"`, skipped with all languages of their row
    (`TokenLimit`); the warnings of the run say how many and on which lines. Sentence vectors
    of encoder and decoder are both saved; the autoencoders are trained on the states of `site`: "encoder" and "decoder"
    (their last hidden states) or one like "encoder.6.mlp". `store` is one that `activations` wrote of the same text,
    model and site; the states of tokens are then taken from it. Where the concepts of the text are known (the built-in
    corpus, tables), its features are scored on them, and named. torch uses `threads` threads on the CPU (default: what
    suits the model's width, `devices.threads_for`). The same seed and the same number of threads give the same numbers
    on the same machine.

    `out` then holds the sentence vectors, both autoencoders, all numbers as JSON, the figures and a page to
    read; it appears only when all of it is there.

    Raises InputError for text, pivot, labels, site, store, sizes, threads or `out` that cannot be used, and
    ModelUnavailable for a model that cannot be loaded. After an error or an interrupt nothing is left at `out`.
    """
    request = Request(
        out=Path(out),
        model=model,
        text=text,
        site=_parse_site(site),
        seed=seed,
        n_sentences=n_sentences,
        stacked=stacked or StackedConfig(),
        sparse=sparse or SparseConfig(),
        store=store,
        progress=progress,
        pivot=pivot,
        labels=tuple(labels),
        max_tokens=max_tokens,
        too_long=too_long,
    )
    _check_request(request, threads=threads)
    clock = _Clock()
    with clock("text"):
        table = None if text == BUILTIN else find_table(text, labelled=bool(labels))
        read = read_text(text, seed=seed, limit=_read_at_most(request)) if table is None else table
        if table is None and (pivot is not None or labels):
            asked = f"labels is {', '.join(labels)!r}" if labels else f"pivot is {pivot!r}"
            raise InputError(f"{asked}; expected a table of parallel text, which {text} is not")
    with clock("model"):
        # transformers takes seconds to load, which an error about the text need not wait for.
        inputs = _load_inputs(request, read, device)
    if threads is None:
        from course_lib.mbart import structure

        threads = devices.threads_for(structure.width(inputs.model, request.site.side))
    with devices.threads(threads), _writable(request.out) as partial:
        inputs = _with_notes_of_text(request, inputs)
        _run_stages(request, inputs, RunDirectory(partial), clock)
    return RunDirectory(out)


def run_of_autoencoder(
    autoencoder: sae.SparseAutoencoder,
    *,
    out: Path | str,
    model: str,
    site: str,
    text: Path | str = BUILTIN,
    n_sentences: int | None = None,
    origin: Mapping[str, Any] | None = None,
    max_tokens: int | None = None,
    too_long: str | None = None,
    device: torch.device | str | None = None,
    threads: int | None = None,
    progress: bool = True,
) -> RunDirectory:
    """Write what the feature browser reads, of a sparse autoencoder that was trained elsewhere: `run` without training.

    `model` and `site` are those whose states it reads; `text` is what the browser shows it on. What it was trained on is
    not known, so that no sentence is called held out. Concepts of the built-in corpus are scored as in `run`: detectors
    are chosen on some sentences and scored on others. `origin` is what the manifest of a store says of the model.

    Where `input_mean` and `input_scale` were never fitted, as in files of other libraries, they are fitted to the states
    of the text, and the weights are changed so that features and reconstructions stay the same.

    Raises what `run` raises, and InputError for an autoencoder of another width than the model or of another model.
    """
    request = Request(
        out=Path(out),
        model=model,
        text=text,
        site=_parse_site(site),
        seed=0,
        n_sentences=n_sentences,
        stacked=StackedConfig(),
        sparse=SparseConfig(),
        store=None,
        progress=progress,
        pivot=None,
        labels=(),
        max_tokens=max_tokens,
        too_long=too_long,
    )
    _check_request(request, threads=threads)
    clock = _Clock()
    with clock("text"):
        lines = read_text(text, seed=request.seed, limit=_read_at_most(request))
    with clock("model"):
        inputs = _load_inputs(request, lines, device)
    if origin is not None:
        check_model(
            origin, inputs.model, inputs.tokenizer, what="the store that the autoencoder was trained on"
        )
    from course_lib.mbart import structure

    width = structure.width(inputs.model, request.site.side)
    if autoencoder.d_model != width:
        raise InputError(
            f"the autoencoder reads states of width {autoencoder.d_model}, and those of {model} have {width}; expected "
            "the model that it was trained on"
        )
    if threads is None:
        threads = devices.threads_for(width)
    with devices.threads(threads), _writable(request.out) as partial:
        inputs = _with_notes_of_text(request, inputs, names=False)
        _describe_autoencoder(autoencoder, request, inputs, RunDirectory(partial), clock)
    return RunDirectory(out)


def _describe_autoencoder(
    autoencoder: sae.SparseAutoencoder,
    request: Request,
    inputs: Inputs,
    directory: RunDirectory,
    clock: "_Clock",
) -> None:
    """Read, score, and write the directory."""
    with clock("activations"):
        _, tokens = read_states(
            inputs.model,
            inputs.tokenizer,
            inputs.sentences,
            site=request.site,
            held_out=inputs.held_out,
            progress=request.progress,
        )
    autoencoder = autoencoder.to(inputs.device)
    fit_to_states(autoencoder, tokens.states)
    everything = replace(tokens, held_out=torch.zeros_like(tokens.held_out))
    code, scores = read_code(autoencoder, everything)
    strengths = activity(autoencoder, code, ~everything.held_out)[1]
    with clock("concepts"):
        concepts, notes = _scored(code, tokens, None, seed=request.seed)
    described = _describe(
        request,
        inputs,
        tokens,
        held_out=0,
        choice=None,
        seconds=clock.seconds,
        warnings=inputs.notes + warn_of_unknown_pieces(tokens.pieces, inputs.tokenizer) + notes,
    )
    names = feature_names(concepts)
    features = [
        replace(feature, name=names.get(feature.feature))
        for feature in describe_features(autoencoder, code, tokens, strengths)
    ]
    metrics = Metrics(
        described, None, SparseMetrics(autoencoder.config(), {}, scores["train"], None), features
    )
    sentences = [RunSentence(s.text, s.language, s.concepts, "train") for s in inputs.sentences]
    directory.write(metrics, sentences, sparse=autoencoder, concepts=concepts)


def _check_request(request: Request, *, threads: int | None) -> None:
    """Raise InputError for arguments that no text or model can make good."""
    if request.n_sentences is not None and request.n_sentences < MIN_SENTENCES:
        raise InputError(
            f"{request.n_sentences} sentences asked for; at least {MIN_SENTENCES} are needed to train on"
        )
    check_too_long(request.max_tokens, request.too_long, request.text)
    if threads is not None and threads < 1:
        raise InputError(f"threads is {threads}; expected 1 or more")
    try:
        check_free(request.out)
    except FileExistsError as error:
        raise InputError(str(error)) from error


# --- Stages ----------------------------------------------------------------------------------------


def _parse_site(text: str) -> Site:
    try:
        return Site.parse(text)
    except ValueError as error:
        raise InputError(f"site {text!r}: {error}") from error


def _load_inputs(
    request: Request, read: list[Line] | ParallelTable, device: torch.device | str | None
) -> Inputs:
    from course_lib.mbart.families import languages
    from course_lib.mbart.model import SHIPPED, load

    try:
        used = devices.usable_device(device)
    except ValueError as error:
        raise InputError(str(error)) from error
    model, tokenizer = load(request.model, device=used, dtype=torch.float32)
    # The tokenizer has the codes of all of mBART-50; the built-in models have only read four languages.
    known = LANGUAGES if request.model in SHIPPED else languages(tokenizer)
    limit = _token_limit(request, tokenizer)
    if isinstance(read, ParallelTable):
        rows = parallel_text(
            read,
            known=known,
            seed=request.seed,
            limit=request.n_sentences,
            pivot=request.pivot,
            labels=request.labels,
            max_tokens=limit,
        )
        return Inputs(model, tokenizer, rows.sentences, rows.sentence_held_out, used, rows, rows.notes)
    sentences = resolve_languages(read, known=known, source=str(request.text))
    notes = []
    if limit is not None:
        numbered = ((line.number, (sentence,)) for line, sentence in zip(read, sentences, strict=True))
        try:
            kept = [row[0] for _, row in islice(limit.apply(numbered), request.n_sentences)]
        except ValueError as error:
            raise InputError(f"{request.text}: {error}") from error
        sentences, notes = kept, limit.note()
        if len({sentence.text for sentence in sentences}) < MIN_SENTENCES:
            raise InputError(
                f"max_tokens is {request.max_tokens}, which leaves {len(sentences)} sentences of {request.text}; at least "
                f"{MIN_SENTENCES} different ones are needed to train on"
            )
    return Inputs(model, tokenizer, sentences, split(sentences, seed=request.seed), used, None, notes)


def _read_at_most(request: Request) -> int | None:
    """How many lines are read: all where some may be skipped."""
    return None if request.max_tokens is not None else request.n_sentences


def _token_limit(request: Request, tokenizer: "PreTrainedTokenizerBase") -> "TokenLimit | None":
    from course_lib.mbart.too_long import TokenLimit

    if request.max_tokens is None:
        return None
    try:
        return TokenLimit(tokenizer, request.max_tokens, request.too_long or "cut")
    except ValueError as error:
        raise InputError(str(error)) from error


def _with_notes_of_text(request: Request, inputs: Inputs, *, names: bool = True) -> Inputs:
    """Note what makes a run on this text of little use, and say it now: the minutes of training come after it.

    Without `names` nothing is said of them: `run_of_autoencoder` reads no table that they could come from.
    """
    from course_lib.mbart.model import OF_GENERATED_TEXT

    found = []
    if request.text != BUILTIN:
        if request.model in OF_GENERATED_TEXT:
            found += warn_of_unread_text(request.model, inputs.model, inputs.tokenizer, inputs.sentences)
        if names:
            found += warn_of_no_names(inputs.sentences)
    if request.progress:
        for note in found:
            print(f"warning: {note}", file=sys.stderr, flush=True)
    return replace(inputs, notes=inputs.notes + found)


def _run_stages(request: Request, inputs: Inputs, directory: RunDirectory, clock: "_Clock") -> None:
    """Read, train, score, and write the directory."""
    seed, progress, held_out = request.seed, request.progress, inputs.held_out
    with clock("activations"):
        vectors, tokens = read_states(
            inputs.model,
            inputs.tokenizer,
            inputs.sentences,
            site=request.site,
            held_out=held_out,
            store=request.store,
            progress=progress,
        )
    rows = SentenceStates(
        inputs.sentences, vectors[request.site.short].to(inputs.device), held_out.to(inputs.device)
    )
    _check_variance(request, sentences=rows, tokens=tokens)
    with clock("stacked autoencoder"):
        classes = inputs.parallel and inputs.parallel.classes
        stacked = train_stacked(rows, request.stacked, seed=seed, progress=progress, classes=classes)
    with clock("sparse autoencoder"):
        sparse = train_sparse(tokens, request.sparse, seed=seed, device=inputs.device, progress=progress)
    warnings = _warnings(inputs, tokens, stacked, sparse)
    with clock("concepts"):
        translated = inputs.parallel and inputs.parallel.translated()
        concepts, notes = _scored(sparse.code, tokens, translated, seed=seed)
        names = feature_names(concepts)
        features = [replace(feature, name=names.get(feature.feature)) for feature in sparse.features]
    with clock("report"):
        # matplotlib is loaded where something is drawn.
        from course_lib.pipeline import report

        figures = report.draw_figures(stacked, sparse, concepts)
    described = _describe(
        request,
        inputs,
        tokens,
        held_out=int(held_out.sum()),
        choice=_choice(request, inputs, sparse.autoencoder.n_features),
        seconds=clock.seconds,
        warnings=warnings + notes,
    )
    metrics = Metrics(described, stacked.metrics(), sparse.metrics(), features)
    directory.write(
        metrics,
        [
            RunSentence(s.text, s.language, s.concepts, "held_out" if out else "train")
            for s, out in zip(inputs.sentences, held_out.tolist(), strict=True)
        ],
        stacked=stacked.autoencoder,
        sparse=sparse.autoencoder,
        vectors=vectors,
        concepts=concepts,
    )
    page = report.page(metrics_as_json(metrics, concepts), figures, n_named=len(names))
    directory.write_report(page, {name: figure.svg for name, figure in figures.items()})


def _check_variance(request: Request, **tables: SentenceStates | TokenStates) -> None:
    """Raise InputError where the states of all training sentences, or of their tokens, are equal."""
    for what, rows in tables.items():
        trained = (~rows.held_out).nonzero()[:, 0]
        first = rows.states[trained[0]]
        # Chunk by chunk: the first one tells in nearly all texts, and nothing as large as the table is made.
        if all((rows.states[chunk] == first).all() for chunk in trained.split(4096)):
            raise InputError(
                f"the {len(trained)} training {what} of {request.text} have equal states at {request.site.short}: there is "
                "no variance to explain; expected another text or site"
            )


def _warnings(inputs: Inputs, tokens: TokenStates, stacked: StackedRun, sparse: SparseRun) -> list[str]:
    """What a reader must know before believing a number: text that the model has not read, and overfitting."""
    found = inputs.notes + warn_of_unknown_pieces(tokens.pieces, inputs.tokenizer)
    for kind, trained in (("stacked", stacked), ("sparse", sparse)):
        found += warn_of_overfitting(
            kind, trained.train.explained_variance, trained.held_out.explained_variance
        )
    return found


def _scored(
    code: Tensor, tokens: TokenStates, translated: TranslatedWords | None, *, seed: int
) -> tuple[ConceptReport | None, list[str]]:
    """The scores on known concepts, None where there are none, and warnings about what was not scored."""
    try:
        report = score_concepts(code, tokens, seed=seed, translated=translated)
    except TooFewRowsError as error:
        return None, [f"concepts were not scored: {error}"]
    return report, warn_of_unscored(report) if report else []


def _choice(request: Request, inputs: Inputs, n_features: int) -> dict[str, Any] | None:
    """The options of the command that make this run again, None where it has none for some setting."""
    return record_choice(
        request.sparse,
        request.stacked,
        n_features,
        model=str(request.model),
        text=str(request.text),
        site=request.site.short,
        sentences=request.n_sentences,
        seed=request.seed,
        store=None if request.store is None else str(request.store),
        pivot=request.pivot,
        labels=",".join(request.labels) or None,
        max_tokens=request.max_tokens,
        too_long=request.too_long,
        device=str(inputs.device),
        threads=torch.get_num_threads(),
    )


def _describe(
    request: Request,
    inputs: Inputs,
    tokens: TokenStates,
    *,
    held_out: int,
    choice: dict[str, Any] | None,
    seconds: dict[str, float],
    warnings: list[str],
) -> Description:
    sentences = inputs.sentences
    return Description(
        model=str(request.model),
        text=str(request.text),
        text_sha256=_digest(sentences),
        site=request.site.short,
        seed=request.seed,
        d_model=tokens.states.shape[1],
        sentences=len(sentences),
        train=len(sentences) - held_out,
        held_out=held_out,
        tokens=len(tokens.states),
        languages=dict(sorted(Counter(s.language or "not given" for s in sentences).items())),
        device=devices.describe(inputs.device),
        threads=torch.get_num_threads(),
        versions=_versions(),
        choice=choice,
        seconds=seconds,
        warnings=warnings,
    )


@contextmanager
def _writable(out: Path) -> Iterator[Path]:
    """`new_directory`, whose failure to be made is the caller's to fix."""
    with ExitStack() as stack:
        try:
            partial = stack.enter_context(new_directory(out))
        except OSError as error:
            raise InputError(f"out {str(out)!r} cannot be written: {error.strerror or error}") from error
        yield partial


class _Clock:
    """Seconds of wall time by stage."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, stage: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.seconds[stage] = round(time.perf_counter() - start, 2)


def _digest(sentences: list[Sentence]) -> str:
    joined = "\n".join(f"{s.language or ''}\t{s.text}" for s in sentences)
    return hashlib.sha256(joined.encode()).hexdigest()


def _versions() -> dict[str, str]:
    import transformers

    return {
        "course_lib": course_lib.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }
