"""The files of a pipeline run: one class writes them, and everything that opens a run reads them through it.

    metrics.json             format number, settings, numbers, digests    `RunDirectory.metrics`
    sentences.jsonl          the sentences, and which are held out        `RunDirectory.sentences`
    concepts.json            the detector of each concept, where known    `RunDirectory.concepts`
    activations.safetensors  sentence vectors in the sentences' order     `RunDirectory.vectors()`
    stacked/  sparse/        the two autoencoders                         `RunDirectory.stacked()`, `.sparse()`
    report.html  figures/    the page to read and its pictures            `RunDirectory.report`

metrics.json is written last of these but the page, and holds the SHA-256 of itself and of the others. What is read is
compared with it; a run written before there were digests is read as it is.

It stands below the pipeline because the browser of features reads runs too. Nothing heavy is imported until a tensor is
asked for.
"""

import hashlib
import json
import math
import os
import shutil
import types
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields, is_dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, Union, get_args, get_origin, get_type_hints

from course_lib.interpret.names import FeatureName
from course_lib.language.corpus import Sentence

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from course_lib.interpret.concept_report import ConceptReport
    from course_lib.sae import SparseAutoencoder, StackedAutoencoder

METRICS, DIGESTS = "metrics.json", "sha256"
FORMAT = 1
"""The number of the files' format: another one is refused."""
AGAIN = "make the run again with `pipeline`, or read it with the version of course_lib that wrote it"

T = TypeVar("T")


class RunError(ValueError):
    """No run, a run of another format, or a damaged file; the message names the file, what is wrong and what to do."""


@dataclass(frozen=True)
class Description:
    """What was run on what. `choice` are the command's options that make it again, None where it has none for it."""

    model: str
    text: str
    text_sha256: str
    site: str
    seed: int
    d_model: int
    sentences: int
    train: int
    held_out: int
    tokens: int
    languages: dict[str, int]
    device: str
    threads: int
    versions: dict[str, str]
    choice: dict[str, Any] | None
    seconds: dict[str, float]
    warnings: list[str]


@dataclass(frozen=True)
class StackedScores:
    """The stacked autoencoder on one side of the split; None is what that side or that text does not have."""

    explained_variance: float
    pca_bound: float
    mean_activation: float
    pca_of_train: float | None = None
    language_accuracy: float | None = None
    most_frequent_language: float | None = None
    label_accuracy: float | None = None
    most_frequent_label: float | None = None


@dataclass(frozen=True)
class CodeNormality:
    """How far a code is from normal on `rows` independent rows, in standard errors (`representation.normality`).

    Median over the units of the size of the scores of skewness and kurtosis, and Mardia's score of all units together. None:
    too few rows for it, or units that are constant or redundant.
    """

    rows: int
    skewness: float | None = None
    kurtosis: float | None = None
    mardia: float | None = None


@dataclass(frozen=True)
class StackedMetrics:
    """The stacked autoencoder: its sizes and weights, how it was trained, and its scores on both sides of the split.

    `unit_means` are the mean activations of the code's units on training sentences, `components` how many principal
    components keep a share of their variance, by the share, and `normality` is of held-out sentences. Runs from before
    they were measured have none.
    """

    config: dict[str, Any]
    training: dict[str, Any]
    code_width: int
    supervised: bool
    train: StackedScores
    held_out: StackedScores
    unit_means: list[float] = field(default_factory=list)
    components: dict[str, int] = field(default_factory=dict)
    normality: CodeNormality | None = None


@dataclass(frozen=True)
class SparseScores:
    """The sparse autoencoder on the tokens of one side of the split."""

    rows: int
    explained_variance: float
    l0: float
    dead: int


@dataclass(frozen=True)
class SparseMetrics:
    """The sparse autoencoder: its sizes, how it was trained, and its scores on both sides of the split.

    Of one that was trained elsewhere `training` is empty, `train` are the scores on all tokens, and `held_out` is None.
    """

    config: dict[str, Any]
    training: dict[str, Any]
    train: SparseScores
    held_out: SparseScores | None


@dataclass(frozen=True)
class SharedConcept:
    """A concept that `count` `of` a feature's top sentences have, and `usual_share` of all sentences."""

    concept: str
    count: int
    of: int
    usual_share: float


@dataclass(frozen=True)
class TopSentence:
    """A sentence that excites a feature, and the piece at which it does so most.

    That piece's word stands between the two characters `word` of the text; none where that is not known.
    """

    row: int
    activation: float
    piece: str
    language: str | None
    text: str
    word: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Feature:
    """What is known about one feature; `strength` and activations are described at `pipeline.describe_features`.

    `tokens` are the pieces with the largest shares of its activation, `words` the words, in lower case, joined from pieces
    (`token_words`); none where it is not known where pieces stand. `name` is what it is called by, see
    `names.feature_names`; None where it has none.
    """

    feature: int
    strength: float
    firing_rate: float
    firing_rate_by_language: dict[str, float]
    shared_concepts: list[SharedConcept]
    sentences: list[TopSentence]
    tokens: list[str] = field(default_factory=list)
    name: FeatureName | None = None
    words: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Metrics:
    """The settings and the numbers of a run; scores on concepts are in `RunDirectory.concepts`.

    `stacked` is None in a run that `pipeline.run_of_autoencoder` made.
    """

    run: Description
    stacked: StackedMetrics | None
    sparse: SparseMetrics
    features: list[Feature]


@dataclass(frozen=True)
class RunSentence:
    """A sentence of a run, the concepts that it is known to hold, and its side of the split: "train" or "held_out"."""

    text: str
    language: str | None
    concepts: frozenset[str]
    split: str

    @property
    def held_out(self) -> bool:
        """Whether nothing was trained on it."""
        return self.split == "held_out"

    @property
    def sentence(self) -> Sentence:
        """The sentence as models read it."""
        return Sentence(self.text, self.language, self.concepts)


class RunDirectory:
    """A run in the directory `path`: each file is read and checked when it is first asked for.

    Raises RunError where a file is not there, is not as it was written, or is of another format.
    """

    def __init__(self, path: os.PathLike | str):
        self.path = Path(path)

    def __fspath__(self) -> str:
        return str(self.path)

    def __repr__(self) -> str:
        return f"RunDirectory({str(self.path)!r})"

    @property
    def report(self) -> Path:
        """The page to read."""
        return self.path / "report.html"

    @property
    def indexed(self) -> tuple[Path, ...]:
        """The files that an index of the run's features is made of."""
        return tuple(
            self.path / name for name in ("sparse/config.json", "sparse/model.safetensors", "sentences.jsonl")
        )

    # --- The hub ---

    @classmethod
    def from_pretrained(
        cls,
        source: "Path | str",
        *,
        revision: str | None = None,
        token: str | None = None,
        local_files_only: bool = False,
    ) -> "RunDirectory":
        """A run in a directory, or in a repository of the model hub of that name, which is downloaded.

        Raises FileNotFoundError where there is neither, and ValueError where it holds no run, or a damaged one.
        """
        from course_lib.sae import hub

        found = cls(hub.fetch(source, revision=revision, token=token, local_files_only=local_files_only))
        found._verify()
        return found

    def save_pretrained(self, directory: "Path | str") -> None:
        """Copy the run to a new directory, whole or not at all.

        Raises FileExistsError where the directory already holds something, and ValueError for a damaged run.
        """
        from course_lib.files import new_directory

        self._verify()
        with new_directory(directory) as partial:
            shutil.copytree(self.path, partial, dirs_exist_ok=True)

    def push_to_hub(
        self,
        repo_id: str,
        *,
        private: bool | None = None,
        revision: str | None = None,
        token: str | None = None,
        commit_message: str = "Upload run",
    ) -> str:
        """Upload the run, its sentences among it, to a repository of the model hub, made where there is none.

        Returns the repository's name. Raises ValueError for a damaged run, before anything is sent, and OSError or
        ValueError, as the hub words them, where it cannot be reached or refuses.
        """
        from course_lib.sae import hub

        self._verify()
        return hub.push(
            self.path, repo_id, private=private, revision=revision, token=token, message=commit_message
        )

    def _verify(self) -> None:
        """Raise ValueError unless every file that has a digest is as it was written."""
        for name in self._content.get(DIGESTS, {}):
            if name != METRICS:
                self._bytes(name)
        for name in ("stacked", "sparse"):
            if (self.path / name).is_dir():
                self._autoencoder(name, "cpu")

    # --- Reading ---

    @cached_property
    def metrics(self) -> Metrics:
        """Settings and numbers."""
        return _parsed(Metrics, self._content, str(self.path / METRICS))

    @cached_property
    def _content(self) -> dict[str, Any]:
        return _metrics_content(self.path / METRICS)

    def _bytes(self, name: str) -> bytes:
        """A file of the run, compared with the digest that was taken when it was written."""
        path, known = self.path / name, self._content.get(DIGESTS)
        data = _read(path)
        # In a run with digests, a file without one came there later.
        if known is not None and known.get(name) != hashlib.sha256(data).hexdigest():
            raise RunError(f"{path} is damaged: it has another SHA-256 than when it was written; {AGAIN}")
        return data

    @cached_property
    def sentences(self) -> list[RunSentence]:
        """The sentences in their order, which is that of the vectors."""
        path = self.path / "sentences.jsonl"
        found = []
        # Not `splitlines`: a sentence may hold signs that it takes for ends of lines.
        for number, line in enumerate(
            _text(self._bytes(path.name), path).removesuffix("\n").split("\n"), start=1
        ):
            where = f"{path}, line {number}"
            row = _parsed(RunSentence, _decoded(line, where), where)
            if row.split not in ("train", "held_out"):
                raise RunError(
                    f"{where} is damaged: split is {row.split!r}; expected 'train' or 'held_out'; {AGAIN}"
                )
            found.append(row)
        return found

    @cached_property
    def concepts(self) -> "ConceptReport | None":
        """How well features detect known concepts; None where the text has none that could be scored."""
        from course_lib.interpret.concept_report import ConceptReport

        path = self.path / "concepts.json"
        if not path.is_file() and path.name not in self._content.get(DIGESTS, {}):
            return None
        return _parsed(ConceptReport, _decoded(_text(self._bytes(path.name), path), str(path)), str(path))

    def vectors(self) -> "dict[str, Tensor]":
        """Mean states of the sentences, shape (sentences, d_model), by side or site of the model."""
        from safetensors import SafetensorError
        from safetensors.torch import load

        path = self.path / "activations.safetensors"
        try:
            return load(self._bytes(path.name))
        except SafetensorError as error:
            raise RunError(f"{path} cannot be read ({error}); {AGAIN}") from error

    def stacked(self, *, device: "torch.device | str" = "cpu") -> "StackedAutoencoder":
        """The autoencoder of sentence vectors."""
        return self._autoencoder("stacked", device)

    def sparse(self, *, device: "torch.device | str" = "cpu") -> "SparseAutoencoder":
        """The dictionary of token states. Raises ValueError where the directory holds another kind of autoencoder."""
        from course_lib import sae

        autoencoder = self._autoencoder("sparse", device)
        if not isinstance(autoencoder, sae.SparseAutoencoder):
            raise RunError(
                f"{self.path / 'sparse'} holds a {autoencoder.kind!r} autoencoder; expected a sparse one; {AGAIN}"
            )
        return autoencoder

    def _autoencoder(self, name: str, device: "torch.device | str") -> Any:
        from course_lib import sae

        if DIGESTS in self._content:
            self._bytes(f"{name}/config.json")  # which holds the digest of the weights
        return sae.load(self.path / name, device=device)

    # --- Writing ---

    def write(
        self,
        metrics: Metrics,
        sentences: Sequence[RunSentence],
        *,
        sparse: "SparseAutoencoder",
        stacked: "StackedAutoencoder | None" = None,
        vectors: "Mapping[str, Tensor] | None" = None,
        concepts: "ConceptReport | None" = None,
    ) -> None:
        """Write a run to the directory, which exists; what is None is left out."""
        from course_lib import sae

        rows = [asdict(row) | {"concepts": sorted(row.concepts)} for row in sentences]
        parts = {
            "sentences.jsonl": "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()
        }
        if concepts is not None:
            parts["concepts.json"] = concepts.to_json().encode()
        if vectors is not None:
            from safetensors.torch import save

            described = metrics.run
            origin = {
                name: str(getattr(described, name)) for name in ("model", "text", "text_sha256", "seed")
            }
            tables = {name: table.contiguous() for name, table in vectors.items()}
            parts["activations.safetensors"] = save(tables, metadata=origin)
        for name, data in parts.items():
            (self.path / name).write_bytes(data)
        for name, autoencoder in (("stacked", stacked), ("sparse", sparse)):
            if autoencoder is not None:
                sae.save(autoencoder, self.path / name)
                parts[f"{name}/config.json"] = (self.path / name / "config.json").read_bytes()
        # As it will be read: keys are text then, and digests follow their order.
        content = json.loads(json.dumps(metrics_as_json(metrics, concepts), allow_nan=False))
        content[DIGESTS] = {name: hashlib.sha256(data).hexdigest() for name, data in parts.items()}
        content[DIGESTS][METRICS] = _own_digest(content)
        written = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False)
        (self.path / METRICS).write_text(written + "\n", encoding="utf-8")

    def write_report(self, page: str, figures: Mapping[str, str]) -> None:
        """Write the page to read, and its pictures, SVG by name."""
        self.report.write_text(page, encoding="utf-8")
        folder = self.path / "figures"
        folder.mkdir()
        for name, svg in figures.items():
            (folder / f"{name}.svg").write_text(svg, encoding="utf-8")


def metrics_as_json(metrics: Metrics, concepts: "ConceptReport | None") -> dict[str, Any]:
    """The content of metrics.json, which repeats for other programs what concepts.json sums up."""
    plain = asdict(metrics)
    for side in ("train", "held_out") if metrics.stacked is not None else ():
        scores = plain["stacked"][side]
        plain["stacked"][side] = {name: value for name, value in scores.items() if value is not None}
    features = plain.pop("features")
    scored: dict[str, Any] = dict.fromkeys(
        ("concepts", "categories", "absorption", "spans", "across_languages", "translated", "shortfalls"),
        None,
    )
    if concepts is not None:
        scored = {
            "concepts": concepts.summary(),
            "categories": [asdict(category) for category in concepts.categories],
            "absorption": concepts.absorption(),
            "spans": concepts.span_summary(),
            "across_languages": None if concepts.across is None else asdict(concepts.across),
            "translated": concepts.translated
            and {
                "pivot": concepts.translated.pivot,
                "languages": concepts.translated.languages,
                "labels": concepts.translated.labels,
                "words": concepts.translated_summary(),
            },
            "shortfalls": concepts.shortfall_summary()
            | {"concepts": [asdict(shortfall) for shortfall in concepts.shortfalls]},
        }
    return {"format": FORMAT} | plain | scored | {"features": features}


def read_metrics(path: Path) -> Metrics:
    """The content of a run's metrics.json. Raises RunError where it cannot be read or was changed."""
    return _parsed(Metrics, _metrics_content(path), str(path))


def _metrics_content(path: Path) -> dict[str, Any]:
    content = _decoded(_text(_read(path), path), str(path))
    found = content.get("format") if isinstance(content, dict) else None
    if found != FORMAT:
        said = "no format number" if found is None else f"format {found!r}"
        raise RunError(f"{path} has {said}; this version of course_lib reads format {FORMAT}: {AGAIN}")
    digests = content.get(DIGESTS)
    if DIGESTS in content and not (
        isinstance(digests, dict) and digests.get(METRICS) == _own_digest(content)
    ):
        raise RunError(f"{path} is damaged: it has another SHA-256 than when it was written; {AGAIN}")
    return content


def _own_digest(content: dict[str, Any]) -> str:
    """SHA-256 of all that metrics.json holds but this digest itself."""
    others = {name: digest for name, digest in content[DIGESTS].items() if name != METRICS}
    return hashlib.sha256(json.dumps(content | {DIGESTS: others}, sort_keys=True).encode()).hexdigest()


# --- Checked JSON ----------------------------------------------------------------------------------


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise RunError(
            f"{path} cannot be read ({error.strerror}); expected the directory of a pipeline run"
        ) from error


def _text(data: bytes, path: Path) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise RunError(f"{path} is damaged: it is not UTF-8 ({error}); {AGAIN}") from error


def _decoded(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise RunError(f"{where} is damaged: it is not JSON ({error}); {AGAIN}") from error


@cache
def _fields(kind: type) -> dict[str, tuple[Any, bool]]:
    """Type of each field of a dataclass, and whether it may be missing."""
    hints = get_type_hints(kind)
    return {
        f.name: (hints[f.name], (f.default, f.default_factory) != (MISSING, MISSING)) for f in fields(kind)
    }


def _parsed(kind: type[T], value: Any, where: str) -> T:
    """A JSON value as a value of the annotated type `kind`, a dataclass or what one is made of; unknown keys are ignored.

    Raises RunError for a value of another type, a missing key and a number that is not finite.
    """
    if kind is Any:
        return value
    origin, arguments = get_origin(kind) or kind, get_args(kind)
    if origin in (Union, types.UnionType):
        if value is None and types.NoneType in arguments:
            return None
        # `float | int` is a number: `float` takes both.
        return _parsed(next(one for one in arguments if one is not types.NoneType), value, where)
    if is_dataclass(origin):
        given = _expected(dict, value, where)
        known = _fields(origin)
        missing = [name for name, (_, optional) in known.items() if not optional and name not in given]
        if missing:
            raise RunError(f"{where} is damaged: {', '.join(missing)} missing; {AGAIN}")
        return origin(
            **{n: _parsed(t, given[n], f"{where}: {n}") for n, (t, _) in known.items() if n in given}
        )
    if origin is dict:
        given = _expected(dict, value, where)
        return {name: _parsed(arguments[1], one, f"{where}: {name}") for name, one in given.items()}
    if origin in (list, tuple, frozenset):
        given = _expected(list, value, where)
        return origin(_parsed(arguments[0], one, f"{where}[{i}]") for i, one in enumerate(given))
    if origin is float:
        if type(value) is int or (type(value) is float and math.isfinite(value)):
            return value
        raise RunError(f"{where} is damaged: it is {value!r}; expected a finite number; {AGAIN}")
    return _expected(origin, value, where)


_NAMES = {dict: "an object", list: "a list", str: "a text", int: "a whole number", bool: "true or false"}


def _expected(kind: type[T], value: Any, where: str) -> T:
    if type(value) is not kind:
        raise RunError(f"{where} is damaged: it is {value!r:.80}; expected {_NAMES[kind]}; {AGAIN}")
    return value
