"""Text in, features out: sentences -> mBART -> hidden states -> autoencoders -> a report.

One call, `run`, and one command, `python -m course_lib pipeline`. The stacked autoencoder compresses
sentences, the means of their tokens' states; the sparse one takes the states of single tokens apart, because
a mean over a sentence mixes what its words say. The output directory holds the sentence vectors, both
autoencoders, all numbers as JSON, the figures and a page to read, and appears only when all of it is there.
"""

import hashlib
import json
import platform
import time
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float, Int
from safetensors.torch import save as to_bytes
from torch import Tensor

import course_lib
from course_lib import devices, sae
from course_lib.files import check_free, new_directory
from course_lib.mbart.corpus import CONCEPTS, LANGUAGES, LEXICAL_CONCEPTS, Sentence, generate, split_of
from course_lib.mbart.text import TABLES, full_codes, read_fields
from course_lib.sae import concepts, metrics
from course_lib.sae.losses import NO_LABEL

BUILTIN = "builtin"
BUILTIN_SENTENCES = 12_000
# A concept's detector is judged on held-out sentences that hold it: the built-in text has enough of them.
BUILTIN_HELD_OUT_SHARE = 1 / 3
MIN_SENTENCES = 50
HELD_OUT_SHARE = 0.1
REPORTED_FEATURES = 20
REPORTED_SENTENCES = 8
# A gap between training and held-out explained variance from which a run is called overfitted.
OVERFIT_FROM = 0.2
# A concept is called shared by a feature's top sentences from this share of them on, and only where it is
# this many times as frequent there as among all sentences.
SHARED_FROM, SHARED_LIFT = 0.75, 2.0


class InputError(ValueError):
    """Something that was asked for cannot be used; the message says what, where and what to do."""


@dataclass(frozen=True)
class StackedConfig:
    """The stacked autoencoder of a run: widths (None: d/2, d/8), loss weights and training."""

    widths: tuple[int, ...] | None = None
    beta: float = 1e-2
    rho: float = 0.05
    gamma: float = 0.02
    training: sae.TrainConfig = field(default_factory=lambda: sae.TrainConfig(steps=3000, step_size=1e-2))


@dataclass(frozen=True)
class SparseConfig:
    """The sparse autoencoder of a run: number of features (None: 2 d), active features a token, training.

    Few features and few active ones serve concepts best: with more, the forms of a word in the different
    languages get features of their own.
    """

    n_features: int | None = None
    k: int = 8
    training: sae.TrainConfig = field(
        default_factory=lambda: sae.TrainConfig(
            steps=1500, batch_size=1024, step_size=2e-3, unit_norm_decoder=True, revive_every=250
        )
    )


@dataclass(frozen=True)
class RunResult:
    """Where a run's results are, and its numbers (the content of metrics.json)."""

    out: Path
    metrics: dict[str, Any]

    @property
    def report(self) -> Path:
        """The page to read."""
        return self.out / "report.html"


def run(
    *,
    out: Path | str,
    model: str = "course-mbart",
    text: Path | str = BUILTIN,
    site: Literal["encoder", "decoder"] = "encoder",
    seed: int = 0,
    n_sentences: int | None = None,
    stacked: StackedConfig | None = None,
    sparse: SparseConfig | None = None,
    device: torch.device | str | None = None,
    progress: bool = True,
) -> RunResult:
    """Run the pipeline and write everything to `out`.

    `model` is a hub name, a local directory or "course-mbart"; `text` a file or "builtin". `n_sentences`
    limits how many sentences are used (default: all of a file, 12000 of the built-in corpus). Sentence vectors
    of encoder and decoder are both saved; the autoencoders are trained on the states of `site`. Where the
    concepts of the text are known (the built-in corpus), its features are scored on them. The same seed on the
    same machine gives the same numbers.

    Raises InputError for text, site or `out` that cannot be used, and ModelUnavailable for a model that
    cannot be loaded. After an error or an interrupt nothing is left at `out`.
    """
    check_request(out=Path(out), site=site, n_sentences=n_sentences)
    clock = _Clock()
    with clock("text"):
        lines = read_text(text, seed=seed, limit=n_sentences)
    with clock("model"):
        # transformers takes seconds to load, which an error about the text need not wait for.
        from course_lib.mbart.activations import Site, extract, pooled_states
        from course_lib.mbart.model import COURSE_MBART, load

        try:
            device = devices.usable_device(device)
        except ValueError as error:
            raise InputError(str(error)) from error
        mbart, tokenizer = load(model, device=device, dtype=torch.float32)
        # The tokenizer has the codes of all of mBART-50; the built-in model has only read its corpus.
        known = LANGUAGES if model == COURSE_MBART else tokenizer.lang_code_to_id
        sentences = resolve_languages(lines, known=known, source=str(text))
    with _writable(out) as partial:
        with clock("activations"):
            try:
                states = pooled_states(mbart, tokenizer, sentences, progress=progress)
                of_tokens = extract(mbart, tokenizer, sentences, [Site(site)], progress=progress)[Site(site)]
            except ValueError as error:  # a sentence without a token, or longer than the model can read
                raise InputError(f"{error} (sentences are counted without blank lines)") from error
            tables = {"encoder": states.encoder, "decoder": states.decoder}
        held_out = split(sentences, seed=seed)
        rows = Rows(sentences, tables[site].to(device), held_out.to(device))
        pieces = tokenizer.convert_ids_to_tokens(of_tokens.token.tolist())
        tokens = TokenRows(
            sentences, of_tokens.values.float(), of_tokens.sentence, pieces, held_out[of_tokens.sentence]
        )
        with clock("stacked autoencoder"):
            stacked_run = train_stacked(rows, stacked or StackedConfig(), seed=seed, progress=progress)
        with clock("sparse autoencoder"):
            sparse_run = train_sparse(
                tokens, sparse or SparseConfig(), seed=seed, device=device, progress=progress
            )
        with clock("concepts"):
            notes = warnings(stacked_run, sparse_run)
            try:
                scored = score_concepts(sparse_run.autoencoder, tokens, seed=seed)
            except concepts.TooFewRowsError as error:
                scored = None
                notes.append(f"concepts were not scored: {error}")
        with clock("report"):
            described = {
                "model": str(model),
                "text": str(text),
                "text_sha256": _digest(sentences),
                "site": site,
                "seed": seed,
                "d_model": rows.states.shape[1],
                "sentences": len(sentences),
                "train": int((~held_out).sum()),
                "held_out": int(held_out.sum()),
                "tokens": len(tokens.states),
                "languages": dict(sorted(Counter(s.language or "not given" for s in sentences).items())),
                "device": devices.describe(device),
                "versions": _versions(),
            }
            _write_tables(partial, sentences, tables, held_out, described)
            sae.save(stacked_run.autoencoder, partial / "stacked")
            sae.save(sparse_run.autoencoder, partial / "sparse")
            from course_lib import report

            figures = report.draw_figures(
                partial / "figures", stacked=stacked_run, sparse=sparse_run, concepts=scored
            )
        results = {
            "run": described | {"seconds": clock.seconds, "warnings": notes},
            "stacked": stacked_run.metrics,
            "sparse": sparse_run.metrics,
            "concepts": None if scored is None else scored.summary(),
            "features": sparse_run.features,
        }
        if scored is not None:
            (partial / "concepts.json").write_text(scored.to_json(), encoding="utf-8")
        (partial / "metrics.json").write_text(
            json.dumps(results, indent=1, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8"
        )
        report.write_page(partial / "report.html", results, figures=figures)
    return RunResult(out=Path(out), metrics=results)


@contextmanager
def _writable(out: Path | str) -> Iterator[Path]:
    """`new_directory`, whose failure to be made is the caller's to mend."""
    with ExitStack() as stack:
        try:
            partial = stack.enter_context(new_directory(out))
        except OSError as error:
            raise InputError(f"out {str(out)!r} cannot be written: {error.strerror or error}") from error
        yield partial


def warnings(stacked: "StackedRun", sparse: "SparseRun") -> list[str]:
    """Return what a reader must know before believing the figures: autoencoders that learned by heart."""
    found = []
    for name, metrics_of in (("stacked", stacked.metrics), ("sparse", sparse.metrics)):
        train, held_out = (metrics_of[side]["explained_variance"] for side in ("train", "held_out"))
        if train - held_out > OVERFIT_FROM:
            found.append(
                f"the {name} autoencoder explains {train:.0%} of the variance in training and {held_out:.0%} on "
                "held-out sentences: it has learned its sentences by heart; use more of them (thousands)"
            )
    return found


# --- Text ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Line:
    """A sentence and the number of the line it came from, counted from 1."""

    number: int
    sentence: Sentence


def check_request(*, out: Path, site: str, n_sentences: int | None) -> None:
    """Raise InputError for arguments that no text or model can make good."""
    if site not in ("encoder", "decoder"):
        raise InputError(f"site is {site!r}; expected 'encoder' or 'decoder'")
    if n_sentences is not None and n_sentences < MIN_SENTENCES:
        raise InputError(
            f"{n_sentences} sentences asked for; at least {MIN_SENTENCES} are needed to train on"
        )
    try:
        check_free(out)
    except FileExistsError as error:
        raise InputError(str(error)) from error


def read_text(text: Path | str, *, seed: int, limit: int | None = None) -> list[Line]:
    """The sentences of a UTF-8 file, one a line, optionally `language<TAB>sentence`; or "builtin".

    Blank lines are skipped; a byte order mark and Windows line ends are accepted. With `limit` the rest of
    the file is not read. Languages are not checked here: which exist depends on the model.

    Raises InputError for a path that is no readable file, for bytes that are not UTF-8 (with the line), and
    for fewer than 50 different sentences.
    """
    if text == BUILTIN:
        n = limit or BUILTIN_SENTENCES
        n_held_out = round(n * BUILTIN_HELD_OUT_SHARE)
        generated = generate(n - n_held_out, seed=seed) + generate(n_held_out, seed=seed, split="test")
        return [Line(number, sentence) for number, sentence in enumerate(generated, start=1)]
    path = Path(text)
    if path.is_dir():
        raise InputError(f"{path} is a directory; expected a text file, one sentence a line")
    if not path.exists():
        raise InputError(f"{path} does not exist; expected a text file, one sentence a line, or '{BUILTIN}'")
    try:
        lines = list(_file_lines(path, limit))
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error
    if not lines:
        raise InputError(f"{path} holds no sentence: it is empty or has only blank lines")
    different = len({line.sentence.text for line in lines})
    if different < MIN_SENTENCES:
        raise InputError(
            f"{path} gives {len(lines)} sentences, {different} of them different; at least {MIN_SENTENCES} "
            "different ones are needed to train on, and thousands for features worth reading"
        )
    return lines


def _file_lines(path: Path, limit: int | None) -> Iterator[Line]:
    if path.suffix in TABLES:
        raise InputError(
            f"{path} is a table; expected a text file, one sentence a line (`activations` reads both)"
        )
    try:
        for number, fields in islice(read_fields(path), limit):
            if len(fields) > 2:
                raise InputError(
                    f"{path}, line {number} has {len(fields) - 1} tabs; expected none or one, language<TAB>sentence"
                )
            yield Line(number, Sentence(fields[-1], fields[0] if len(fields) == 2 and fields[0] else None))
    except ValueError as error:  # bytes that are not UTF-8
        raise InputError(str(error)) from error


def resolve_languages(lines: list[Line], *, known: Collection[str], source: str) -> list[Sentence]:
    """Sentences with full language codes; "en" is taken for "en_XX" where one code alone begins so.

    Raises InputError, with the line, for a language that the model does not know.
    """
    full = full_codes(known)
    sentences = []
    for line in lines:
        language = line.sentence.language
        if language is not None and language not in full:
            raise InputError(
                f"{source}, line {line.number}: the model does not know the language {language!r}; expected "
                f"one of {', '.join(sorted(known))} before the tab, or a line without a tab"
            )
        sentences.append(replace(line.sentence, language=None if language is None else full[language]))
    return sentences


def split(sentences: list[Sentence], *, seed: int) -> Tensor:
    """Which sentences are held out, as booleans.

    Where all meanings are known (the built-in corpus): those of the corpus's test split, which the shipped
    model has not read either. Elsewhere a tenth of the different sentences; equal ones stay on one side.
    """
    if all(s.meaning is not None for s in sentences):
        return torch.tensor([split_of(s.meaning) == "test" for s in sentences])
    keys = [s.text if s.meaning is None else s.meaning for s in sentences]
    different = list(dict.fromkeys(keys))
    order = torch.randperm(len(different), generator=_generator(seed, 0)).tolist()
    chosen = {different[i] for i in order[: max(2, round(HELD_OUT_SHARE * len(different)))]}
    return torch.tensor([key in chosen for key in keys])


# --- Autoencoders ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rows:
    """Sentences, their pooled states (sentences, d_model), and which of them are held out."""

    sentences: list[Sentence]
    states: Tensor
    held_out: Tensor

    @property
    def sides(self) -> dict[str, Tensor]:
        """States to train on and held-out states."""
        return {"train": self.states[~self.held_out], "held_out": self.states[self.held_out]}


@dataclass(frozen=True)
class TokenRows:
    """States of all tokens of some sentences, and for each token its sentence, piece and side."""

    sentences: list[Sentence]
    states: Float[Tensor, "tokens d_model"]
    sentence: Int[Tensor, " tokens"]
    pieces: list[str]
    held_out: Bool[Tensor, " tokens"]

    @property
    def sides(self) -> dict[str, Tensor]:
        """States to train on and held-out states."""
        return {"train": self.states[~self.held_out], "held_out": self.states[self.held_out]}

    def largest(self, values: Float[Tensor, "tokens units"]) -> Float[Tensor, "sentences units"]:
        """The largest value of each unit over the tokens of each sentence."""
        index = self.sentence[:, None].expand_as(values)
        empty = values.new_full((len(self.sentences), values.shape[1]), -float("inf"))
        return empty.scatter_reduce(0, index, values, "amax")


@dataclass(frozen=True)
class StackedRun:
    """A trained stacked autoencoder, its curves, and the PCA curve of its training rows."""

    autoencoder: sae.StackedAutoencoder
    config: StackedConfig
    history: sae.History
    pca_curve: Float[Tensor, " components"]
    metrics: dict[str, Any]


@dataclass(frozen=True)
class SparseRun:
    """A trained sparse autoencoder, its curves, firing rates on the training rows, and top features."""

    autoencoder: sae.TopKSparseAutoencoder
    config: SparseConfig
    history: sae.History
    firing_rates: Float[Tensor, " features"]
    metrics: dict[str, Any]
    features: list[dict[str, Any]]


def train_stacked(rows: Rows, config: StackedConfig, *, seed: int, progress: bool) -> StackedRun:
    """Train the bottleneck with the combined loss; languages are the supervision where two are given."""
    languages, labels = language_labels(rows.sentences)
    supervised = len(languages) >= 2
    autoencoder = sae.StackedAutoencoder(
        rows.states.shape[1],
        config.widths,
        beta=config.beta,
        rho=config.rho,
        gamma=config.gamma if supervised else 0.0,
        n_outputs=len(languages) if supervised else 0,
        generator=_generator(seed, 1),
    ).to(rows.states.device)
    labels = labels.to(rows.states.device)
    history = sae.train(
        autoencoder,
        rows.sides["train"],
        config.training,
        generator=_generator(seed, 2),
        labels=labels[~rows.held_out] if supervised else None,
        progress=progress,
    )
    k, sides = autoencoder.code_width, rows.sides
    curve = metrics.pca_curve(sides["train"])
    found: dict[str, Any] = {
        "config": autoencoder.config(),
        "training": asdict(config.training),
        "code_width": k,
        "supervised": supervised,
    }
    with torch.no_grad():
        for name, states in sides.items():
            found[name] = {
                "explained_variance": metrics.explained_variance(states, autoencoder(states)),
                "pca_bound": curve[min(k, len(curve)) - 1].item()
                if name == "train"
                else metrics.pca_bound(states, k),
                "mean_activation": autoencoder.encode(states).mean().item(),
            }
        found["held_out"]["pca_of_train"] = metrics.pca_transfer(sides["train"], sides["held_out"], k)
        if supervised:
            right = autoencoder.predict(rows.states).argmax(dim=1) == labels
            for name, mask in (("train", ~rows.held_out), ("held_out", rows.held_out)):
                known = mask & (labels != NO_LABEL)
                if known.any():
                    found[name]["language_accuracy"] = right[known].double().mean().item()
                    found[name]["most_frequent_language"] = (
                        labels[known].bincount().max() / known.sum()
                    ).item()
    return StackedRun(autoencoder, config, history, curve.cpu(), found)


def language_labels(sentences: list[Sentence]) -> tuple[list[str], Int[Tensor, " sentences"]]:
    """The languages present, sorted, and each sentence's place among them (-1 where it is not known)."""
    languages = sorted({s.language for s in sentences if s.language is not None})
    place = {language: i for i, language in enumerate(languages)} | {None: NO_LABEL}
    return languages, torch.tensor([place[s.language] for s in sentences])


def train_sparse(
    tokens: TokenRows, config: SparseConfig, *, seed: int, device: torch.device, progress: bool
) -> SparseRun:
    """Train the overcomplete dictionary on the states of tokens, and describe its strongest features."""
    d_model = tokens.states.shape[1]
    n_features = 2 * d_model if config.n_features is None else config.n_features
    autoencoder = sae.TopKSparseAutoencoder(
        d_model, n_features, k=min(config.k, n_features), generator=_generator(seed, 3)
    ).to(device)
    sides = tokens.sides
    history = sae.train(
        autoencoder, sides["train"], config.training, generator=_generator(seed, 4), progress=progress
    )
    found: dict[str, Any] = {"config": autoencoder.config(), "training": asdict(config.training)}
    for name, states in sides.items():
        measured = metrics.evaluate(autoencoder, states)
        found[name] = {
            "rows": len(states),
            "explained_variance": measured.explained_variance,
            "l0": measured.l0,
            "dead": measured.n_dead,
        }
    rates, strengths = _activity(autoencoder, sides["train"])
    described = describe_features(autoencoder, tokens, strengths)
    return SparseRun(autoencoder, config, history, rates, found, described)


@torch.no_grad()
def _activity(
    autoencoder: sae.SparseAutoencoder, states: Tensor
) -> tuple[Float[Tensor, " features"], Float[Tensor, " features"]]:
    """Firing rate and strength of each feature on some rows, batch by batch."""
    fired = squares = torch.zeros(autoencoder.n_features, dtype=torch.float64)
    for batch in states.split(4096):
        features = autoencoder.encode(batch.to(autoencoder.input_mean))
        fired = fired + (features > 0).sum(dim=0).cpu()
        squares = squares + features.double().square().sum(dim=0).cpu()
    lengths = autoencoder.decoder_weight.norm(dim=0).cpu()
    return fired / len(states), (squares / len(states)).sqrt() * lengths


@torch.no_grad()
def describe_features(
    autoencoder: sae.SparseAutoencoder, tokens: TokenRows, strengths: Float[Tensor, " features"]
) -> list[dict[str, Any]]:
    """The strongest features, where they fire, and the different sentences that excite them most.

    A feature's activation is given as f_i ||W_d[:, i]||, the length of what it adds to a token's state, in
    units of the root mean square length of the centred training states; its strength is the root mean square
    of that over all training tokens. A sentence's activation is the largest of its tokens.
    """
    strongest = strengths.argsort(descending=True, stable=True)[:REPORTED_FEATURES]
    lengths = autoencoder.decoder_weight.norm(dim=0)[strongest.to(autoencoder.decoder_weight.device)]
    activation = torch.cat(
        [
            (autoencoder.encode(batch.to(lengths))[:, strongest] * lengths).cpu()
            for batch in tokens.states.split(4096)
        ]
    )
    by_sentence = tokens.largest(activation)
    sentences = tokens.sentences
    usual = Counter(concept for s in sentences for concept in s.concepts)
    languages, labels = language_labels(sentences)
    described = []
    for column, index in enumerate(strongest.tolist()):
        largest = by_sentence[:, column]
        top = _top_sentences(largest, sentences)
        described.append(
            {
                "feature": index,
                "strength": strengths[index].item(),
                "firing_rate": (largest > 0).double().mean().item(),
                "firing_rate_by_language": {
                    language: (largest[labels == i] > 0).double().mean().item()
                    for i, language in enumerate(languages)
                },
                "shared_concepts": _shared_concepts([sentences[row] for row in top], usual, len(sentences)),
                "sentences": [
                    {
                        "row": row,
                        "activation": largest[row].item(),
                        "piece": _strongest_piece(tokens, activation[:, column], row),
                        "language": sentences[row].language,
                        "text": sentences[row].text,
                    }
                    for row in top
                ],
            }
        )
    return described


def _strongest_piece(tokens: TokenRows, activation: Float[Tensor, " tokens"], row: int) -> str:
    """The piece of a sentence that excites a feature most."""
    of_sentence = (tokens.sentence == row).nonzero().flatten()
    return tokens.pieces[int(of_sentence[activation[of_sentence].argmax()])].replace("▁", "")


def _top_sentences(activation: Tensor, sentences: list[Sentence]) -> list[int]:
    """Rows of the different sentences with the largest activation, none that is not active."""
    rows: dict[str, int] = {}
    for row in activation.argsort(descending=True, stable=True).tolist():
        if activation[row] <= 0 or len(rows) == REPORTED_SENTENCES:
            break
        rows.setdefault(sentences[row].text, row)
    return list(rows.values())


def _shared_concepts(top: list[Sentence], usual: Counter[str], n_sentences: int) -> list[dict[str, Any]]:
    """Concepts that most of the top sentences have, and clearly fewer of all sentences."""
    counts = Counter(concept for s in top for concept in s.concepts)
    shared = [
        {"concept": concept, "count": count, "of": len(top), "usual_share": usual[concept] / n_sentences}
        for concept, count in counts.items()
        if count >= SHARED_FROM * len(top) and count / len(top) >= SHARED_LIFT * usual[concept] / n_sentences
    ]
    return sorted(shared, key=lambda entry: (-entry["count"], entry["usual_share"], entry["concept"]))


def score_concepts(
    autoencoder: sae.SparseAutoencoder, tokens: TokenRows, *, seed: int
) -> concepts.ConceptReport | None:
    """How well single features say which concepts a sentence holds; None where the text has no known concepts.

    A feature's value for a sentence is its largest over the tokens. Everything is chosen on the training
    sentences and scored on the held-out ones.
    """
    if not any(s.concepts for s in tokens.sentences):
        return None
    names = list(CONCEPTS)
    sides = []
    for mask in (~tokens.held_out, tokens.held_out):
        of_side, groups = tokens.sentence[mask].unique(return_inverse=True)
        chosen = [tokens.sentences[i] for i in of_side.tolist()]
        sides.append(
            concepts.LabelledRows(
                tokens.states[mask],
                concepts.label_table([s.concepts for s in chosen], names),
                languages=[s.language for s in chosen],
                meanings=[s.meaning for s in chosen],
                groups=groups,
            )
        )
    return concepts.concept_report(
        autoencoder,
        *sides,
        concepts=names,
        categories=CONCEPTS,
        lexical=LEXICAL_CONCEPTS,
        generator=_generator(seed, 5),
    )


# --- What is written -------------------------------------------------------------------------------


def _write_tables(
    directory: Path,
    sentences: list[Sentence],
    tables: dict[str, Tensor],
    held_out: Tensor,
    described: dict[str, Any],
) -> None:
    """The hidden states, and the sentences in the same order."""
    origin = {key: str(described[key]) for key in ("model", "text", "text_sha256", "seed")}
    contiguous = {name: table.contiguous() for name, table in tables.items()}
    (directory / "activations.safetensors").write_bytes(to_bytes(contiguous, metadata=origin))
    with (directory / "sentences.jsonl").open("w", encoding="utf-8") as file:
        for sentence, out in zip(sentences, held_out.tolist(), strict=True):
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


def _generator(seed: int, stream: int) -> torch.Generator:
    """An independent source of random numbers for each use of one seed."""
    mixed = hashlib.sha256(f"{seed}/{stream}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(mixed[:7]))


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
