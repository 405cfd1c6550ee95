"""What a run is given, what its stages hand on, and what comes out."""

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from jaxtyping import Bool, Float, Int
from torch import Tensor

from course_lib import sae
from course_lib.interpret.concept_report import ConceptReport
from course_lib.language.corpus import Sentence


@dataclass(frozen=True)
class StackedConfig:
    """The stacked autoencoder of a run: widths (None: d/2, d/8), loss weights and training.

    With `beta` 0.01 no unit of `course-mbart`'s code comes within 0.025 of `rho`; with 0.3 all do (lesson 27).
    """

    widths: tuple[int, ...] | None = None
    beta: float = 0.3
    rho: float = 0.05
    gamma: float = 0.02
    training: sae.TrainConfig = field(default_factory=lambda: sae.TrainConfig(steps=3000, step_size=1e-2))


@dataclass(frozen=True)
class SparseConfig:
    """The sparse autoencoder of a run: number of features (None: 8 d), active features a token, training, kind.

    The default is the best TopK of 2,000 steps of 1,024 rows in `course_lib/measured/gpu/features.json`: of 2 d
    features some stand for several words (271 for 368 concepts), of 8 d nearly every word of the built-in corpus has
    its own. Adam remembers the squares of the last ten steps or so: with its usual thousand, fewer concepts have one
    feature (88% for 91% of them, `course_lib/measured/features.json`).
    """

    n_features: int | None = None
    k: int = 8
    training: sae.TrainConfig = field(
        default_factory=lambda: sae.TrainConfig(
            steps=2000,
            batch_size=1024,
            step_size=4e-3,
            betas=(0.9, 0.9),
            unit_norm_decoder=True,
            revive_every=250,
        )
    )
    kind: str = "topk"
    penalty: float | int | None = None  # of kinds without k; None: `config.PENALTIES`


@dataclass(frozen=True)
class SentenceStates:
    """Sentences, their pooled states (sentences, d_model), and which of them are held out."""

    sentences: list[Sentence]
    states: Tensor
    held_out: Tensor

    @property
    def sides(self) -> dict[str, Tensor]:
        """States to train on and held-out states."""
        return {"train": self.states[~self.held_out], "held_out": self.states[self.held_out]}


@dataclass(frozen=True)
class TokenStates:
    """States of all tokens of some sentences, and for each token its sentence, piece and side."""

    sentences: list[Sentence]
    states: Float[Tensor, "tokens d_model"]
    sentence: Int[Tensor, " tokens"]
    pieces: list[str]
    held_out: Bool[Tensor, " tokens"]
    concepts: list[frozenset[str]] | None = (
        None  # those of whose word each token is a part, where words are known
    )

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
class StackedScores:
    """The stacked autoencoder on one side of the split; None is what that side or that text does not have."""

    explained_variance: float
    pca_bound: float
    mean_activation: float
    pca_of_train: float | None = None
    language_accuracy: float | None = None
    most_frequent_language: float | None = None


@dataclass(frozen=True)
class StackedRun:
    """A trained stacked autoencoder, its curves, the PCA curve of its training rows, and its scores."""

    autoencoder: sae.StackedAutoencoder
    config: StackedConfig
    history: sae.History
    pca_curve: Float[Tensor, " components"]
    supervised: bool
    train: StackedScores
    held_out: StackedScores

    def as_dict(self) -> dict[str, Any]:
        """The part of metrics.json."""
        return {
            "config": self.autoencoder.config(),
            "training": self.config.training.as_dict(),
            "code_width": self.autoencoder.code_width,
            "supervised": self.supervised,
            "train": _known(self.train),
            "held_out": _known(self.held_out),
        }


@dataclass(frozen=True)
class SparseScores:
    """The sparse autoencoder on the tokens of one side of the split."""

    rows: int
    explained_variance: float
    l0: float
    dead: int


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
    """What is known about one feature; `strength` and activations are described at `describe_features`."""

    feature: int
    strength: float
    firing_rate: float
    firing_rate_by_language: dict[str, float]
    shared_concepts: list[SharedConcept]
    sentences: list[TopSentence]


@dataclass(frozen=True)
class SparseRun:
    """A trained sparse autoencoder: curves, sparse code of all tokens, firing rates in training, scores, top features."""

    autoencoder: sae.SparseAutoencoder
    config: SparseConfig
    history: sae.History
    code: Float[Tensor, "tokens features"]
    firing_rates: Float[Tensor, " features"]
    train: SparseScores
    held_out: SparseScores
    features: list[Feature]

    def as_dict(self) -> dict[str, Any]:
        """The part of metrics.json."""
        return {
            "config": self.autoencoder.config(),
            "training": self.config.training.as_dict(),
            "train": asdict(self.train),
            "held_out": asdict(self.held_out),
        }


@dataclass(frozen=True)
class Description:
    """What was run on what."""

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
    choice: dict[str, Any] | None = None  # the command's options that make it again, where it has them


@dataclass(frozen=True)
class Results:
    """Everything that a run found."""

    run: Description
    stacked: StackedRun
    sparse: SparseRun
    concepts: ConceptReport | None
    seconds: dict[str, float]
    warnings: list[str]

    def as_dict(self) -> dict[str, Any]:
        """The content of metrics.json."""
        return {
            "run": asdict(self.run) | {"seconds": self.seconds, "warnings": self.warnings},
            "stacked": self.stacked.as_dict(),
            "sparse": self.sparse.as_dict(),
            "concepts": None if self.concepts is None else self.concepts.summary(),
            "categories": None if self.concepts is None else [asdict(c) for c in self.concepts.categories],
            "absorption": None if self.concepts is None else self.concepts.absorption(),
            "spans": None if self.concepts is None else self.concepts.span_summary(),
            "shortfalls": None
            if self.concepts is None
            else self.concepts.shortfall_summary()
            | {"concepts": [asdict(s) for s in self.concepts.shortfalls]},
            "features": [asdict(feature) for feature in self.sparse.features],
        }


@dataclass(frozen=True)
class RunResult:
    """Where a run's results are, and its numbers (the content of metrics.json)."""

    out: Path
    metrics: dict[str, Any]

    def __fspath__(self) -> str:
        return str(self.out)

    @property
    def report(self) -> Path:
        """The page to read."""
        return self.out / "report.html"


def _known(scores: StackedScores) -> dict[str, float]:
    return {name: value for name, value in asdict(scores).items() if value is not None}
