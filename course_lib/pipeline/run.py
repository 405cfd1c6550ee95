"""A whole run, from text to the directory that holds what was found."""

import hashlib
import json
import platform
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from safetensors.torch import save as to_bytes
from torch import Tensor

import course_lib
from course_lib import devices, sae
from course_lib.files import check_free, new_directory
from course_lib.interpret.concept_report import TooFewRowsError
from course_lib.language.corpus import LANGUAGES, Sentence
from course_lib.pipeline.autoencoders import (
    learned_by_heart,
    not_scored,
    score_concepts,
    train_sparse,
    train_stacked,
)
from course_lib.pipeline.config import choice_of, site_of
from course_lib.pipeline.results import (
    Description,
    Results,
    RunResult,
    SentenceStates,
    SparseConfig,
    StackedConfig,
    TokenStates,
)
from course_lib.pipeline.stored import stored_tokens
from course_lib.pipeline.text import (
    BUILTIN,
    MIN_SENTENCES,
    InputError,
    read_text,
    resolve_languages,
    split,
    token_concepts,
)
from course_lib.pipeline.unread import unknown_pieces, unread_by_shipped

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


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
    device: torch.device | str | None = None,
    threads: int | None = None,
    progress: bool = True,
) -> RunResult:
    """Run the pipeline and write everything to `out`.

    `model` is a hub name, a local directory or "course-mbart"; `text` a file or "builtin". `n_sentences`
    limits how many sentences are used (default: all of a file, 12000 of the built-in corpus). Sentence vectors
    of encoder and decoder are both saved; the autoencoders are trained on the states of `site`: "encoder" and
    "decoder" (their last hidden states) or one like "encoder.6.mlp". `store` is one that `activations` wrote of
    the same text, model and site; the states of tokens are then taken from it. Where the
    concepts of the text are known (the built-in corpus), its features are scored on them. torch uses `threads`
    threads on the CPU (default: what suits the model's width, `devices.threads_for`). The same seed and the
    same number of threads give the same numbers on the same machine.

    `out` then holds the sentence vectors, both autoencoders, all numbers as JSON, the figures and a page to
    read; it appears only when all of it is there.

    Raises InputError for text, site, store, sizes, threads or `out` that cannot be used, and ModelUnavailable for a
    model that cannot be loaded. After an error or an interrupt nothing is left at `out`.
    """
    check_request(out=Path(out), site=site, n_sentences=n_sentences, threads=threads)
    stacked, sparse = stacked or StackedConfig(), sparse or SparseConfig()
    site = site.removesuffix(".final")
    clock = _Clock()
    with clock("text"):
        lines = read_text(text, seed=seed, limit=n_sentences)
    with clock("model"):
        # transformers takes seconds to load, which an error about the text need not wait for.
        from course_lib.mbart.families import languages
        from course_lib.mbart.model import SHIPPED, load

        device = _usable_device(device)
        mbart, tokenizer = load(model, device=device, dtype=torch.float32)
        # The tokenizer has the codes of all of mBART-50; the built-in models have only read their corpus.
        known = LANGUAGES if model in SHIPPED else languages(tokenizer)
        sentences = resolve_languages(lines, known=known, source=str(text))
    if threads is None:
        threads = devices.threads_for(mbart.config.d_model)
    with devices.threads(threads), _writable(out) as partial:
        held_out = split(sentences, seed=seed)
        with clock("activations"):
            vectors, tokens = read_states(
                mbart, tokenizer, sentences, site=site, held_out=held_out, store=store, progress=progress
            )
        rows = SentenceStates(sentences, vectors[site].to(device), held_out.to(device))
        with clock("stacked autoencoder"):
            stacked_run = train_stacked(rows, stacked, seed=seed, progress=progress)
        with clock("sparse autoencoder"):
            sparse_run = train_sparse(tokens, sparse, seed=seed, device=device, progress=progress)
        notes = unknown_pieces(tokens.pieces, tokenizer)
        if model in SHIPPED and text != BUILTIN:
            notes += unread_by_shipped(model, mbart, tokenizer, sentences)
        for kind, trained in (("stacked", stacked_run), ("sparse", sparse_run)):
            explained = trained.train.explained_variance, trained.held_out.explained_variance
            notes += learned_by_heart(kind, *explained)
        with clock("concepts"):
            try:
                scored = score_concepts(sparse_run.code, tokens, seed=seed)
                notes += not_scored(scored) if scored else []
            except TooFewRowsError as error:
                scored = None
                notes.append(f"concepts were not scored: {error}")
        described = Description(
            model=str(model),
            text=str(text),
            text_sha256=_digest(sentences),
            site=site,
            seed=seed,
            d_model=rows.states.shape[1],
            sentences=len(sentences),
            train=int((~held_out).sum()),
            held_out=int(held_out.sum()),
            tokens=len(tokens.states),
            languages=dict(sorted(Counter(s.language or "not given" for s in sentences).items())),
            device=devices.describe(device),
            threads=torch.get_num_threads(),
            versions=_versions(),
            choice=choice_of(
                sparse,
                stacked,
                sparse_run.autoencoder.n_features,
                model=str(model),
                text=str(text),
                site=site,
                sentences=n_sentences,
                seed=seed,
                store=None if store is None else str(store),
                device=str(device),
                threads=threads,
            ),
        )
        found = Results(described, stacked_run, sparse_run, scored, clock.seconds, notes)
        with clock("report"):
            from course_lib.pipeline import report

            _write_tables(partial, vectors, rows, described)
            sae.save(stacked_run.autoencoder, partial / "stacked")
            sae.save(sparse_run.autoencoder, partial / "sparse")
            figures = report.draw_figures(partial / "figures", found)
        if scored is not None:
            (partial / "concepts.json").write_text(scored.to_json(), encoding="utf-8")
        metrics = found.as_dict()
        (partial / "metrics.json").write_text(
            json.dumps(metrics, indent=1, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8"
        )
        report.write_page(partial / "report.html", metrics, figures=figures)
    return RunResult(out=Path(out), metrics=metrics)


def check_request(*, out: Path, site: str, n_sentences: int | None, threads: int | None = None) -> None:
    """Raise InputError for arguments that no text or model can make good."""
    site_of(site)
    if n_sentences is not None and n_sentences < MIN_SENTENCES:
        raise InputError(
            f"{n_sentences} sentences asked for; at least {MIN_SENTENCES} are needed to train on"
        )
    if threads is not None and threads < 1:
        raise InputError(f"threads is {threads}; expected 1 or more")
    try:
        check_free(out)
    except FileExistsError as error:
        raise InputError(str(error)) from error


def _usable_device(name: torch.device | str | None) -> torch.device:
    try:
        return devices.usable_device(name)
    except ValueError as error:
        raise InputError(str(error)) from error


@contextmanager
def _writable(out: Path | str) -> Iterator[Path]:
    """`new_directory`, whose failure to be made is the caller's to fix."""
    with ExitStack() as stack:
        try:
            partial = stack.enter_context(new_directory(out))
        except OSError as error:
            raise InputError(f"out {str(out)!r} cannot be written: {error.strerror or error}") from error
        yield partial


def read_states(
    model: "PreTrainedModel",
    tokenizer: "PreTrainedTokenizerBase",
    sentences: list[Sentence],
    *,
    site: str,
    held_out: Tensor,
    store: Path | str | None = None,
    progress: bool,
) -> tuple[dict[str, Tensor], TokenStates]:
    """Read the sentences once: their vectors in encoder, decoder and at `site`, and the states of their tokens there.

    With `store` the states of tokens are those of the store, and the model is read for vectors alone.

    Raises InputError for a site that the model does not have, for a sentence without a token, or longer than the model
    can read, and for a store that is not of this model, text and site.
    """
    from course_lib.mbart.activations import extract

    where = site_of(site)
    sites = {side: site_of(side) for side in ("encoder", "decoder")} | {site: where}
    pools = dict.fromkeys(sites.values(), "mean") | ({} if store is not None else {where: "both"})
    try:
        where.resolved(model.config)
    except ValueError as error:
        raise InputError(str(error)) from error
    tokens = None
    if store is not None:
        tokens = stored_tokens(store, model, tokenizer, sentences, site=where, held_out=held_out)
    try:
        states = extract(model, tokenizer, sentences, list(pools), pool=pools, progress=progress)
    except ValueError as error:
        raise InputError(f"{error} (sentences are counted without blank lines)") from error
    if tokens is None:
        of_site = states[where]
        tokens = TokenStates(
            sentences,
            of_site.values.float(),
            of_site.sentence,
            tokenizer.convert_ids_to_tokens(of_site.token.tolist()),
            held_out[of_site.sentence],
        )
    if any(sentence.words for sentence in sentences):
        tokens = replace(
            tokens, concepts=token_concepts(tokenizer, sentences, target=where.side == "decoder")
        )
    vectors = {
        name: states[place].means if pools[place] == "both" else states[place].values
        for name, place in sites.items()
    }
    return vectors, tokens


# --- What is written -------------------------------------------------------------------------------


def _write_tables(
    directory: Path, vectors: dict[str, Tensor], rows: SentenceStates, described: Description
) -> None:
    """The sentence vectors, and the sentences in the same order."""
    origin = {key: str(getattr(described, key)) for key in ("model", "text", "text_sha256", "seed")}
    contiguous = {name: table.contiguous() for name, table in vectors.items()}
    (directory / "activations.safetensors").write_bytes(to_bytes(contiguous, metadata=origin))
    with (directory / "sentences.jsonl").open("w", encoding="utf-8") as file:
        for sentence, out in zip(rows.sentences, rows.held_out.tolist(), strict=True):
            row = {
                "text": sentence.text,
                "language": sentence.language,
                "concepts": sorted(sentence.concepts),
                "split": "held_out" if out else "train",
            }
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


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
