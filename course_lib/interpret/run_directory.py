"""The files of a pipeline run: one class writes them, and everything that opens a run reads them through it.

    metrics.json             format number, settings and numbers          `RunDirectory.metrics`
    sentences.jsonl          the sentences, and which are held out        `RunDirectory.sentences`
    concepts.json            the detector of each concept, where known    `RunDirectory.concepts`
    activations.safetensors  sentence vectors in the sentences' order     `RunDirectory.vectors()`
    stacked/  sparse/        the two autoencoders                         `RunDirectory.stacked()`, `.sparse()`
    report.html  figures/    the page to read and its pictures            `RunDirectory.report`

It stands below the pipeline because the browser of features reads runs too. Nothing heavy is imported until a tensor is
asked for.
"""

import json
import math
import os
import types
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, fields, is_dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, Union, get_args, get_origin, get_type_hints

from course_lib.language.corpus import Sentence

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from course_lib.interpret.concept_report import ConceptReport
    from course_lib.sae import SparseAutoencoder, StackedAutoencoder

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


@dataclass(frozen=True)
class StackedMetrics:
    """The stacked autoencoder: its sizes and weights, how it was trained, and its scores on both sides of the split."""

    config: dict[str, Any]
    training: dict[str, Any]
    code_width: int
    supervised: bool
    train: StackedScores
    held_out: StackedScores


@dataclass(frozen=True)
class SparseScores:
    """The sparse autoencoder on the tokens of one side of the split."""

    rows: int
    explained_variance: float
    l0: float
    dead: int


@dataclass(frozen=True)
class SparseMetrics:
    """The sparse autoencoder: its sizes, how it was trained, and its scores on both sides of the split."""

    config: dict[str, Any]
    training: dict[str, Any]
    train: SparseScores
    held_out: SparseScores


@dataclass(frozen=True)
class SharedConcept:
    """A concept that `count` `of` a feature's top sentences have, and `usual_share` of all sentences."""

    concept: str
    count: int
    of: int
    usual_share: float


@dataclass(frozen=True)
class TopSentence:
    """A sentence that excites a feature, and the piece at which it does so most."""

    row: int
    activation: float
    piece: str
    language: str | None
    text: str


@dataclass(frozen=True)
class Feature:
    """What is known about one feature; `strength` and activations are described at `pipeline.describe_features`."""

    feature: int
    strength: float
    firing_rate: float
    firing_rate_by_language: dict[str, float]
    shared_concepts: list[SharedConcept]
    sentences: list[TopSentence]


@dataclass(frozen=True)
class Metrics:
    """The settings and the numbers of a run; scores on concepts are in `RunDirectory.concepts`."""

    run: Description
    stacked: StackedMetrics
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

    Raises RunError where a file is not there, is damaged, or is of another format.
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

    # --- Reading ---

    @cached_property
    def metrics(self) -> Metrics:
        """Settings and numbers."""
        return read_metrics(self.path / "metrics.json")

    @cached_property
    def sentences(self) -> list[RunSentence]:
        """The sentences in their order, which is that of the vectors."""
        path = self.path / "sentences.jsonl"
        found = []
        # Not `splitlines`: a sentence may hold signs that it takes for ends of lines.
        for number, line in enumerate(_read(path).removesuffix("\n").split("\n"), start=1):
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
        return _parsed(ConceptReport, _decoded(_read(path), str(path)), str(path)) if path.is_file() else None

    def vectors(self) -> "dict[str, Tensor]":
        """Mean states of the sentences, shape (sentences, d_model), by side or site of the model."""
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        path = self.path / "activations.safetensors"
        try:
            return load_file(path)
        except (OSError, SafetensorError) as error:
            raise RunError(f"{path} cannot be read ({error}); {AGAIN}") from error

    def stacked(self, *, device: "torch.device | str" = "cpu") -> "StackedAutoencoder":
        """The autoencoder of sentence vectors."""
        from course_lib import sae

        return sae.load(self.path / "stacked", device=device)

    def sparse(self, *, device: "torch.device | str" = "cpu") -> "SparseAutoencoder":
        """The dictionary of token states. Raises ValueError where the directory holds another kind of autoencoder."""
        from course_lib import sae

        autoencoder = sae.load(self.path / "sparse", device=device)
        if not isinstance(autoencoder, sae.SparseAutoencoder):
            raise RunError(
                f"{self.path / 'sparse'} holds a {autoencoder.kind!r} autoencoder; expected a sparse one; {AGAIN}"
            )
        return autoencoder

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

        _write(self.path / "metrics.json", metrics_as_json(metrics, concepts), indent=1)
        with (self.path / "sentences.jsonl").open("w", encoding="utf-8") as file:
            for row in sentences:
                content = asdict(row) | {"concepts": sorted(row.concepts)}
                file.write(json.dumps(content, ensure_ascii=False) + "\n")
        if concepts is not None:
            (self.path / "concepts.json").write_text(concepts.to_json(), encoding="utf-8")
        if vectors is not None:
            from safetensors.torch import save

            described = metrics.run
            origin = {
                name: str(getattr(described, name)) for name in ("model", "text", "text_sha256", "seed")
            }
            tables = {name: table.contiguous() for name, table in vectors.items()}
            (self.path / "activations.safetensors").write_bytes(save(tables, metadata=origin))
        for name, autoencoder in (("stacked", stacked), ("sparse", sparse)):
            if autoencoder is not None:
                sae.save(autoencoder, self.path / name)

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
    for side in ("train", "held_out"):
        scores = plain["stacked"][side]
        plain["stacked"][side] = {name: value for name, value in scores.items() if value is not None}
    features = plain.pop("features")
    scored: dict[str, Any] = dict.fromkeys(
        ("concepts", "categories", "absorption", "spans", "across_languages", "shortfalls"), None
    )
    if concepts is not None:
        scored = {
            "concepts": concepts.summary(),
            "categories": [asdict(category) for category in concepts.categories],
            "absorption": concepts.absorption(),
            "spans": concepts.span_summary(),
            "across_languages": None if concepts.across is None else asdict(concepts.across),
            "shortfalls": concepts.shortfall_summary()
            | {"concepts": [asdict(shortfall) for shortfall in concepts.shortfalls]},
        }
    return {"format": FORMAT} | plain | scored | {"features": features}


def read_metrics(path: Path) -> Metrics:
    """The content of a run's metrics.json. Raises RunError where it cannot be read."""
    content = _decoded(_read(path), str(path))
    found = content.get("format") if isinstance(content, dict) else None
    if found != FORMAT:
        said = "no format number" if found is None else f"format {found!r}"
        raise RunError(f"{path} has {said}; this version of course_lib reads format {FORMAT}: {AGAIN}")
    return _parsed(Metrics, content, str(path))


# --- Checked JSON ----------------------------------------------------------------------------------


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise RunError(
            f"{path} cannot be read ({error.strerror}); expected the directory of a pipeline run"
        ) from error
    except UnicodeDecodeError as error:
        raise RunError(f"{path} is damaged: it is not UTF-8 ({error}); {AGAIN}") from error


def _write(path: Path, content: Any, *, indent: int) -> None:
    written = json.dumps(content, indent=indent, ensure_ascii=False, allow_nan=False)
    path.write_text(written + "\n", encoding="utf-8")


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
