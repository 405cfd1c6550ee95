"""What a browser of features knows of a run: written once, memory-mapped afterwards, answered without a model.

The code of all tokens is kept by feature, as the columns of a sparse matrix: feature i is active at the tokens
`active_token[active_start[i] : active_start[i + 1]]`, in order, with the activations at the same places of
`active_value`. All that is shown of a feature's activity follows from its column, when it is asked for; what
would need a look at other columns or at weights stands in tables with one row for each feature.

An activation is a = f_i ||W_d[:, i]||, the length of what the feature adds to a token's state, as a share of the root
mean square length of the centred training states. Only numpy is imported here: to open an index takes no torch.
"""

import hashlib
import json
import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float, Int

from course_lib.interpret.names import above_chance, feature_names, held_out_chance, tried_concepts
from course_lib.interpret.run_directory import RunDirectory
from course_lib.interpret.token_words import in_word, word_places

if TYPE_CHECKING:
    from course_lib.interpret.concept_report import ConceptReport, ConceptScore

FORMAT = 4
DIRECTORY = "browse"
"""Where in a run the index is."""
ABOUT, DIGESTS = "about.json", "sha256"
TOP_TOKENS = NEAREST = 8
BINS = 24
QUANTILES = (0.9, 0.75, 0.5, 0.25, 0.05)
STRONGEST, AT_QUANTILE = 8, 3
"""How many sentences are shown: the strongest ones, and at each quantile."""
FOUND, FEATURES_FOUND, FEATURES_OF_ONE = 20, 6, 32
"""How many sentences with a word are shown, and how many features of each, and of a sentence alone."""
_DRAWN = 256
_FLOATS = "%.4g"
_EFFECTS = ("features", "token", "value", "divergence")


class IndexUnavailable(RuntimeError):  # noqa: N818  (reads as what it says)
    """An index that can neither be opened nor made; the message says why and what to do."""


class IndexMissing(IndexUnavailable):
    """A run without an index, or a directory that is no run."""


class IndexOutdated(IndexUnavailable):
    """An index that was made of other files than those that lie beside it."""


class IndexDamaged(IndexUnavailable):
    """An index with a file that is not as it was written; `build_index` makes it again."""


@dataclass(frozen=True)
class Reading:
    """A text and the sparse code of its tokens, ordered by feature and, within a feature, by token.

    `token_span` says between which characters of its sentence a token stands; `token_piece` is its place in `pieces`.
    """

    texts: list[str]
    languages: list[str | None]
    held_out: Bool[np.ndarray, " sentences"]
    token_sentence: Int[np.ndarray, " tokens"]
    token_span: Int[np.ndarray, "tokens 2"]
    token_piece: Int[np.ndarray, " tokens"]
    pieces: list[str]
    active_start: Int[np.ndarray, " features_and_1"]
    active_token: Int[np.ndarray, " active"]
    active_value: Float[np.ndarray, " active"]

    @property
    def n_features(self) -> int:
        """Number of features, those that are never active among them."""
        return len(self.active_start) - 1


@dataclass(frozen=True)
class Effects:
    """What features do to the decoder's next token; `token` are places in its own `pieces`.

    For each feature of `features`: the tokens that it raises most and those that it lowers most, by how much, and
    `divergence`, the change of the prediction beside that by a random direction of the same length.
    """

    features: Int[np.ndarray, " measured"]
    token: Int[np.ndarray, "measured 2 tokens"]
    value: Float[np.ndarray, "measured 2 tokens"]
    divergence: Float[np.ndarray, "measured 2"]
    pieces: list[str]

    def row(self, place: int) -> dict[str, Any]:
        """The answer for `features[place]`: tokens with at least a hundredth of its largest change.

        A divergence that was not measured is NaN, and None in the answer.
        """
        least = max(float(np.abs(self.value[place]).max()) / 100, 1e-9)
        named = [
            [
                {"token": shown(self.pieces[token]), "change": _short(value)}
                for token, value in zip(tokens, values, strict=True)
                if value * sign >= least
            ]
            for sign, tokens, values in zip((1, -1), self.token[place], self.value[place], strict=True)
        ]
        divergence = [None if np.isnan(value) else _short(value) for value in self.divergence[place]]
        return {
            "raised": named[0],
            "lowered": named[1],
            "divergence": divergence[0],
            "divergence_random": divergence[1],
        }


def shown(piece: str) -> str:
    """A piece as it is displayed: without the mark of a word's beginning, and with an ellipsis where it is missing."""
    if piece.startswith("▁"):
        return piece[1:] or "␣"
    return f"…{piece}" if piece[:1].isalpha() else piece


def by_feature(
    feature: Int[np.ndarray, " active"],
    token: Int[np.ndarray, " active"],
    value: Float[np.ndarray, " active"],
    *,
    n_features: int,
) -> tuple[Int[np.ndarray, " features_and_1"], Int[np.ndarray, " active"], Float[np.ndarray, " active"]]:
    """Entries in the order of their tokens, sorted by feature: where each feature starts, tokens and values."""
    # A stable sort of 16 bits is a radix sort, which takes a tenth of the time.
    order = np.argsort(feature.astype(np.uint16) if n_features <= 1 << 16 else feature, kind="stable")
    start = np.zeros(n_features + 1, np.int64)
    np.cumsum(np.bincount(feature, minlength=n_features), out=start[1:])
    return start, token[order].astype(np.int32), value[order].astype(np.float32)


def write_index(
    directory: Path,
    reading: Reading,
    directions: Float[np.ndarray, "features d_model"],
    *,
    about: Mapping[str, Any],
    concepts: Mapping[int, list[dict[str, Any]]] | None = None,
) -> None:
    """Write the index of a reading, without effects, to a directory that exists.

    `directions` are the decoder's columns, of any length; `about` is kept beside the tables, and so are `concepts`, see
    `concept_rows`. About 30 bytes of memory are needed for each active entry of the code.

    Raises ValueError for another number of directions than of features.
    """
    if len(directions) != reading.n_features:
        raise ValueError(
            f"directions has {len(directions)} rows; expected {reading.n_features}, one a feature"
        )
    languages = sorted({language for language in reading.languages if language is not None})
    place = {language: number for number, language in enumerate(languages)} | {None: -1}
    token_word, words = _words(reading)
    sentence_language = np.array([place[language] for language in reading.languages], np.int16)
    token_language = sentence_language[reading.token_sentence]
    encoded = [text.encode() for text in reading.texts]
    tables = {
        "text": np.frombuffer(b"".join(encoded), np.uint8),
        "text_start": _starts([len(text) for text in encoded]),
        "sentence_language": sentence_language,
        "sentence_held_out": reading.held_out,
        "sentence_start": _starts(np.bincount(reading.token_sentence, minlength=len(encoded))),
        "token_sentence": reading.token_sentence.astype(np.int32),
        "token_span": reading.token_span.astype(np.int32),
        "token_piece": reading.token_piece.astype(np.int32),
        "active_start": reading.active_start,
        "active_token": reading.active_token,
        "active_value": reading.active_value,
        **_activity(reading, token_language, n_languages=len(languages)),
        **_top_words(reading, token_word),
        "direction": _units(directions).astype(np.float16),
        **_nearest(directions),
    }
    described = {
        **about,
        "format": FORMAT,
        "features": reading.n_features,
        "tokens": len(reading.token_sentence),
        "sentences": len(encoded),
        "languages": languages,
        "language_tokens": np.bincount(token_language + 1, minlength=len(languages) + 1)[1:].tolist(),
        "random_nearest": _random_nearest(*directions.shape),
    }
    for name, table in tables.items():
        np.save(directory / f"{name}.npy", table)
    _write_json(directory / "pieces.json", reading.pieces)
    _write_json(directory / "words.json", words)
    _write_json(directory / "concepts.json", concepts or {})
    _write_json(directory / ABOUT, described)


def write_effects(directory: Path, effects: Effects) -> None:
    """Add effects to an index that `write_index` wrote."""
    for name in _EFFECTS:
        np.save(directory / f"effect_{name}.npy", getattr(effects, name))
    _write_json(directory / "effect_pieces.json", effects.pieces)


def seal(directory: Path) -> None:
    """Write down the SHA-256 of all files of an index, those of effects among them, in its about.json."""
    about = _read_json(directory / ABOUT)
    about[DIGESTS] = {path.name: _file_digest(path) for path in directory.iterdir() if path.name != ABOUT}
    about[DIGESTS][ABOUT] = _own_digest(about)
    _write_json(directory / ABOUT, about)


def _own_digest(about: dict[str, Any]) -> str:
    """SHA-256 of all that about.json holds but this digest itself."""
    others = {name: digest for name, digest in about[DIGESTS].items() if name != ABOUT}
    return hashlib.sha256(json.dumps(about | {DIGESTS: others}, sort_keys=True).encode()).hexdigest()


def _file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _write_json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise IndexDamaged(f"{path} is damaged: {error}") from error


def _mapped(path: Path) -> np.ndarray:
    try:
        # Plain views: numpy's own class for mapped files takes longer for each small look.
        return np.load(path, mmap_mode="r").view(np.ndarray)
    except (OSError, ValueError, EOFError) as error:
        raise IndexDamaged(f"{path} is damaged: {error}") from error


def _starts(lengths: Iterable[int] | np.ndarray) -> Int[np.ndarray, " one_more"]:
    return np.concatenate([[0], np.cumsum(np.asarray(lengths, np.int64))]).astype(np.int64)


def _activity(
    reading: Reading, token_language: Int[np.ndarray, " tokens"], *, n_languages: int
) -> dict[str, np.ndarray]:
    """One row for each feature: how often and how strongly it is active, at which tokens, in which languages."""
    n, n_pieces, n_tokens = reading.n_features, len(reading.pieces), len(reading.token_sentence)
    occurrences = np.bincount(reading.token_piece, minlength=n_pieces)
    found = {
        "count": np.diff(reading.active_start),
        "largest": np.zeros(n, np.float32),
        "mean": np.zeros(n, np.float32),
        "strength": np.zeros(n, np.float32),
        "language_count": np.zeros((n, n_languages), np.int64),
        "top_token": np.full((n, TOP_TOKENS), -1, np.int32),
        "top_share": np.zeros((n, TOP_TOKENS), np.float32),
        "top_count": np.zeros((n, TOP_TOKENS), np.int64),
        "top_of": np.zeros((n, TOP_TOKENS), np.int64),
    }
    for feature, (first, last) in enumerate(
        zip(reading.active_start[:-1], reading.active_start[1:], strict=True)
    ):
        if first == last:
            continue
        tokens, values = reading.active_token[first:last], reading.active_value[first:last].astype(np.float64)
        found["largest"][feature], found["mean"][feature] = values.max(), values.mean()
        found["strength"][feature] = np.sqrt(np.square(values).sum() / n_tokens)
        counts = np.bincount(token_language[tokens] + 1, minlength=n_languages + 1)
        found["language_count"][feature] = counts[1:]
        pieces = reading.token_piece[tokens]
        sums = np.bincount(pieces, values, minlength=n_pieces)
        order = np.argsort(-sums, kind="stable")[:TOP_TOKENS] if n_pieces <= 4096 else _largest(sums)
        order = order[sums[order] > 0]
        k = len(order)
        found["top_token"][feature, :k] = order
        found["top_share"][feature, :k] = sums[order] / values.sum()
        found["top_count"][feature, :k] = np.bincount(pieces, minlength=n_pieces)[order]
        found["top_of"][feature, :k] = occurrences[order]
    return found


def _words(reading: Reading) -> tuple[Int[np.ndarray, " tokens"], list[str]]:
    """The word that each token belongs to, as a place in the list of words, which are in lower case."""
    found: dict[str, int] = {}
    of_token = np.zeros(len(reading.token_sentence), np.int32)
    sentences, spans = reading.token_sentence.tolist(), reading.token_span.tolist()
    for token, (sentence, place) in enumerate(
        zip(sentences, word_places(reading.texts, sentences, spans), strict=True)
    ):
        word = reading.texts[sentence][slice(*place)].lower() or "␣"
        of_token[token] = found.setdefault(word, len(found))
    return of_token, list(found)


def _top_words(reading: Reading, token_word: Int[np.ndarray, " tokens"]) -> dict[str, np.ndarray]:
    """One row for each feature: the words that have most of its activation, -1 where there are fewer, and their shares."""
    top = np.full((reading.n_features, TOP_TOKENS), -1, np.int32)
    shares = np.zeros((reading.n_features, TOP_TOKENS), np.float32)
    for feature, (first, last) in enumerate(
        zip(reading.active_start[:-1], reading.active_start[1:], strict=True)
    ):
        words, place = np.unique(token_word[reading.active_token[first:last]], return_inverse=True)
        sums = np.bincount(place, reading.active_value[first:last].astype(np.float64), minlength=len(words))
        order = np.argsort(-sums, kind="stable")[:TOP_TOKENS]
        top[feature, : len(order)] = words[order]
        shares[feature, : len(order)] = sums[order] / max(sums.sum(), 1e-300)
    return {"top_word": top, "top_word_share": shares}


def _largest(sums: Float[np.ndarray, " n"]) -> Int[np.ndarray, " top"]:
    """Places of the largest entries, the largest first, without sorting the others."""
    top = np.argpartition(-sums, TOP_TOKENS)[:TOP_TOKENS]
    return top[np.argsort(-sums[top], kind="stable")]


def _units(directions: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
    directions = np.asarray(directions, np.float32)
    return directions / np.maximum(np.linalg.norm(directions, axis=1, keepdims=True), 1e-12)


def _nearest(directions: Float[np.ndarray, "features d_model"]) -> dict[str, np.ndarray]:
    """The features whose decoder directions have the largest cosine with each feature's."""
    units = _units(directions)
    k = min(NEAREST, len(units) - 1)
    features, cosines = np.zeros((len(units), k), np.int32), np.zeros((len(units), k), np.float32)
    for first in range(0, len(units), 512):
        rows = np.arange(first, min(first + 512, len(units)))
        cosine = units[rows] @ units.T
        cosine[np.arange(len(rows)), rows] = -2.0  # itself
        top = np.argpartition(-cosine, k - 1, axis=1)[:, :k] if k else np.zeros((len(rows), 0), np.int64)
        found = np.take_along_axis(cosine, top, 1)
        order = np.argsort(-found, axis=1, kind="stable")
        features[rows] = np.take_along_axis(top, order, 1)
        cosines[rows] = np.take_along_axis(found, order, 1)
    return {"nearest": features, "nearest_cosine": cosines}


def _random_nearest(n_features: int, d_model: int) -> float:
    """Median cosine of a random direction with the nearest one of as many random directions as there are features."""
    rng = np.random.default_rng(0)
    units = _units(rng.standard_normal((n_features, d_model), np.float32))
    drawn = _units(rng.standard_normal((_DRAWN, d_model), np.float32))
    return float(np.median((drawn @ units.T).max(axis=1)))


# --- Reading an index ------------------------------------------------------------------------------


def fingerprint(run: Path, *, unless: Mapping[str, Any] | None = None) -> dict[str, list]:
    """Size, time of the last change and SHA-256 of the files of a run that an index is made of.

    A file whose size and time are those of `unless`, an older fingerprint, is not read again: its SHA-256 is taken from
    there. Raises IndexMissing where a file is not there.
    """
    found = {}
    for path in RunDirectory(run).indexed:
        name = path.relative_to(run).as_posix()
        try:
            with path.open("rb") as file:
                status = os.fstat(file.fileno())
                stamp, old = [status.st_size, status.st_mtime_ns], (unless or {}).get(name, [])
                known = old[2] if old[:2] == stamp else None
                found[name] = [*stamp, known or hashlib.file_digest(file, "sha256").hexdigest()]
        except OSError as error:
            raise IndexMissing(
                f"{path} cannot be read ({error.strerror}); expected the directory of a pipeline run"
            ) from error
    return found


def _verify(directory: Path, about: dict[str, Any]) -> None:
    """Raise IndexDamaged unless the files of an index are those that its about.json lists."""
    digests = about[DIGESTS]
    if not isinstance(digests, dict) or digests.get(ABOUT) != _own_digest(about):
        raise IndexDamaged(f"{directory / ABOUT} is damaged: it has another SHA-256 than when it was written")
    for name in sorted({*digests, *(path.name for path in directory.glob("*.npy"))} - {ABOUT}):
        path = directory / name
        if not path.is_file() or _file_digest(path) != digests.get(name):
            what = "has another SHA-256 than when it was written" if path.is_file() else "is not there"
            raise IndexDamaged(f"{path} is damaged: it {what}")


def _same_files(a: Mapping[str, list], b: Mapping[str, list]) -> bool:
    """Whether two fingerprints are of the same content, copied at another time or not."""
    return {name: found[2] for name, found in a.items()} == {name: found[2] for name, found in b.items()}


@dataclass(frozen=True)
class FeatureIndex:
    """The index of a run, memory-mapped. `open` reads it; the methods answer in plain data for JSON."""

    about: dict[str, Any]
    pieces: list[str]
    tables: dict[str, np.ndarray]
    effects: Effects | None
    concepts: dict[int, list[dict[str, Any]]]
    words: list[str]

    @classmethod
    def open(cls, run: os.PathLike | str) -> "FeatureIndex":
        """Open the index of the run in directory `run`.

        All its files are read once and compared with their digests; an index from before there were any has none.

        Raises IndexMissing where there is none, IndexDamaged where a file is not as it was written, and IndexOutdated
        where the run's files are not those it was made of.
        """
        run = Path(run)
        if not (run / DIRECTORY).is_dir() or not any((run / DIRECTORY).glob("*.npy")):
            raise IndexMissing(f"{run} has no index; make it with build_index({str(run)!r})")
        about = _read_json(run / DIRECTORY / ABOUT)
        if not isinstance(about, dict):
            raise IndexDamaged(f"{run / DIRECTORY / ABOUT} is damaged: it is no object")
        if DIGESTS in about:
            _verify(run / DIRECTORY, about)
        made_of = about.get("fingerprint", {})
        if about.get("format") != FORMAT or not _same_files(made_of, fingerprint(run, unless=made_of)):
            raise IndexOutdated(
                f"{run / DIRECTORY} was made of other files than those of {run} today, or by another version; "
                "remove that directory, and the index is made again"
            )
        return cls.read(run / DIRECTORY)

    @classmethod
    def read(cls, directory: Path) -> "FeatureIndex":
        """Map the files of `directory`, without comparing them with those of the run."""
        tables = {file.stem: _mapped(file) for file in directory.glob("*.npy")}
        effects = None
        if "effect_features" in tables:
            measured = (tables[f"effect_{name}"] for name in _EFFECTS)
            effects = Effects(*measured, _read_json(directory / "effect_pieces.json"))
        concepts = _read_json(directory / "concepts.json")
        return cls(
            _read_json(directory / ABOUT),
            _read_json(directory / "pieces.json"),
            tables,
            effects,
            {int(feature): rows for feature, rows in concepts.items()},
            _read_json(directory / "words.json"),
        )

    @property
    def n_features(self) -> int:
        """Number of features."""
        return self.about["features"]

    def ranked(self) -> Int[np.ndarray, " features"]:
        """All features, the strongest first: by the root mean square of their activations over all tokens."""
        return np.argsort(-self.tables["strength"], kind="stable")

    def summary(self, features: Iterable[int] | None = None) -> dict[str, list]:
        """Columns of numbers and words for a list of features (all of them, the strongest first, without one).

        `languages` are, for each feature, the shares of tokens of each language at which it is active; `words` those
        that have most of its activation, in lower case; `concepts` are triples of concept, F1 and AUROC, that of its
        name first; `names` are None for features without one, and `sure` has what is known of each name.
        """
        chosen = self.ranked() if features is None else np.array(list(features), np.int64)
        tables, totals = self.tables, np.maximum(self.about["language_tokens"], 1)
        rates = tables["language_count"][chosen] / totals if len(totals) else np.zeros((len(chosen), 0))
        return {
            "id": chosen.tolist(),
            "largest": _rounded(tables["largest"][chosen]),
            "strength": _rounded(tables["strength"][chosen]),
            "density": _rounded(tables["count"][chosen] / self.about["tokens"]),
            "languages": [_rounded(row) for row in rates],
            "tokens": [
                [shown(self.pieces[token]) for token in row if token >= 0]
                for row in tables["top_token"][chosen].tolist()
            ],
            "words": [
                [self.words[word] for word in row if word >= 0] for row in tables["top_word"][chosen].tolist()
            ],
            "concepts": [
                [[row["concept"], row["f1"], row["auroc"]] for row in self._detected(feature)]
                for feature in chosen.tolist()
            ],
            "sure": [
                next(
                    (
                        {name: row.get(name) for name in ("precision", "recall", "above_chance")}
                        for row in self._detected(feature)
                        if row["named"]
                    ),
                    None,
                )
                for feature in chosen.tolist()
            ],
            "names": [self._named(feature) for feature in chosen.tolist()],
        }

    def feature(self, feature: int, *, language: str | None = None) -> dict[str, Any]:
        """All that is shown of one feature; its sentences are those of `language`, or of all.

        Raises ValueError for a feature or a language that the run does not have.
        """
        self._check(feature)
        self._check_language(language)
        tables = self.tables
        tokens, values = self.column(feature)
        counts, edges = np.histogram(
            values, bins=BINS, range=(0.0, max(float(tables["largest"][feature]), 1e-9))
        )
        rates = self.summary([feature])["languages"][0]
        return {
            "id": feature,
            "count": len(tokens),
            "density": _short(len(tokens) / self.about["tokens"]),
            "largest": _short(tables["largest"][feature]),
            "mean": _short(tables["mean"][feature]),
            "strength": _short(tables["strength"][feature]),
            "histogram": {"counts": counts.tolist(), "edges": _rounded(edges)},
            "language": language,
            **self._examples(tokens, values, language),
            "tokens": [
                {
                    "token": shown(self.pieces[token]),
                    "share": _short(share),
                    "count": count,
                    "of": of,
                }
                for token, share, count, of in zip(
                    *(tables[f"top_{name}"][feature].tolist() for name in ("token", "share", "count", "of")),
                    strict=True,
                )
                if token >= 0
            ],
            "words": [
                {"word": self.words[word], "share": _short(share)}
                for word, share in zip(
                    tables["top_word"][feature].tolist(), tables["top_word_share"][feature], strict=True
                )
                if word >= 0
            ],
            "languages": [
                {"language": name, "rate": rate}
                for name, rate in zip(self.about["languages"], rates, strict=True)
            ],
            "nearest": [
                {"id": other, "cosine": _short(cosine), "tokens": words[:3]}
                for other, cosine, words in zip(
                    tables["nearest"][feature].tolist(),
                    tables["nearest_cosine"][feature],
                    self.summary(tables["nearest"][feature].tolist())["tokens"],
                    strict=True,
                )
            ],
            "concepts": self._detected(feature),
            "tried": next((row for row in self.concepts.get(feature, []) if row["tried"]), None),
            "effect": self._effect(feature),
        }

    def cosine(self, a: int, b: int) -> float:
        """The cosine of the decoder's directions of two features."""
        first, second = self.tables["direction"][[a, b]].astype(np.float32)
        return _short(first @ second)

    def together(self, a: int, b: int) -> dict[str, Any]:
        """Where two features are active together: at how many tokens and in how many sentences, and in which ones.

        `tokens` and `sentences` are triples: of a, of b, of both. `examples` are the sentences in which the weaker of
        the two largest activations, each as a share of its feature's largest, is largest: once for a, once for b.

        Raises ValueError for a feature that the run does not have.
        """
        for feature in (a, b):
            self._check(feature)
        columns = [self.column(feature) for feature in (a, b)]
        shares = [self._shares(feature) for feature in (a, b)]
        of_a = np.zeros(self.about["sentences"], np.float32)
        of_a[shares[0][0]] = shares[0][1]
        n_both, shown_here = self._joint(of_a, *shares[1])
        tokens = np.intersect1d(columns[0][0], columns[1][0], assume_unique=True)
        return {
            "cosine": self.cosine(a, b),
            "tokens": [*(len(column[0]) for column in columns), len(tokens)],
            "sentences": [*(len(sentences) for sentences, _ in shares), n_both],
            "examples": [[self._example(sentence, *column) for column in columns] for sentence in shown_here],
        }

    def pairs(
        self, features: list[int], *, examples: bool = True
    ) -> dict[int, dict[int, tuple[float, int, int, list[int]]]]:
        """Of all pairs of some features, by the smaller number: what `together` says of them.

        That is the cosine, the joint tokens and sentences, and the numbers of the sentences that are its examples, none
        without `examples`.
        """
        tokens = {feature: self.column(feature)[0] for feature in features}
        shares = {feature: self._shares(feature) for feature in features}
        at_token, of_a = np.zeros(self.about["tokens"], bool), np.zeros(self.about["sentences"], np.float32)
        found: dict[int, dict[int, tuple[float, int, int, list[int]]]] = {}
        n = STRONGEST if examples else 0
        for a in sorted(features):
            at_token[:], of_a[:] = False, 0
            at_token[tokens[a]], of_a[shares[a][0]] = True, shares[a][1]
            found[a] = {
                b: (self.cosine(a, b), int(at_token[tokens[b]].sum()), *self._joint(of_a, *shares[b], n=n))
                for b in features
                if b > a
            }
        return found

    def _shares(self, feature: int) -> tuple[Int[np.ndarray, " sentences"], Float[np.ndarray, " sentences"]]:
        """The sentences in which a feature is active, and its largest activation there as a share of that of all."""
        sentences, largest = self._by_sentence(*self.column(feature))
        return sentences, largest / np.float32(max(float(self.tables["largest"][feature]), 1e-9))

    def _joint(
        self,
        of_a: Float[np.ndarray, " all_sentences"],
        sentences: Int[np.ndarray, " sentences"],
        of_b: Float[np.ndarray, " sentences"],
        n: int = STRONGEST,
    ) -> tuple[int, list[int]]:
        """In how many sentences two features are active, and the n of them in which the weaker share is largest."""
        weaker = np.minimum(of_a[sentences], of_b)
        both = np.flatnonzero(weaker)
        chosen: list[int] = []
        for first in (8 * n, len(both)) if n else ():  # a few are sorted first: mostly they are enough
            least = np.partition(weaker[both], -first)[-first] if 0 < first < len(both) else 0.0
            top = both[weaker[both] >= least]
            chosen = self._different(sentences, top[np.argsort(-weaker[top], kind="stable")], n)
            if len(chosen) == n or first >= len(both):
                break
        return len(both), sentences[chosen].tolist()

    def find(self, wanted: str, *, language: str | None = None, n: int = FOUND) -> dict[str, Any]:
        """The sentences that hold all words of `wanted`, whole and in any order.

        A `*` at its end makes the last word a beginning. Those in which the words follow each other come first, then
        the order is that of the text; a text that comes twice is shown once. Signs alone are looked for as they are.
        `count` is the number of sentences, of which n are shown, with the `FEATURES_FOUND` features of the largest
        activation, see `sentence`.

        Raises ValueError where nothing is wanted, and for a language that the run does not have.
        """
        self._check_language(language)
        if not wanted.strip():
            raise ValueError("nothing is looked for; expected a word, a beginning (cell*) or a sentence")
        between = {ord(sign): " " for sign in set(wanted) if not in_word(sign)}
        words = [f" {word} " for word in wanted.translate(between).lower().split()]
        if words and wanted.rstrip().endswith("*"):
            words[-1] = words[-1].rstrip()
        if words:
            hits = [i for i, line in enumerate(self._lines) if all(word in line for word in words)]
        else:
            hits = [i for i in range(self.about["sentences"]) if wanted.strip() in self.text(i)]
        if language is not None:
            hits = [i for i in hits if self.language(i) == language]
        phrase = " " + "".join(word[1:] for word in words)
        hits.sort(key=lambda i: phrase not in self._lines[i])
        places = np.arange(len(hits))
        chosen = [hits[place] for place in self._different(np.array(hits, np.int64), places, n)]
        return {"count": len(hits), "sentences": self._features_in(chosen, FEATURES_FOUND)}

    def sentence(self, sentence: int) -> dict[str, Any]:
        """One sentence with its features of the largest activation, at most `FEATURES_OF_ONE` of the `active` ones.

        Of each feature: its largest activation in the sentence, the characters `at` which it has it, and the sentence
        in `parts` with its activation at each.

        Raises ValueError for a sentence that the run does not have.
        """
        if not 0 <= sentence < self.about["sentences"]:
            raise ValueError(f"sentence is {sentence}; the run has 0 to {self.about['sentences'] - 1}")
        (found,) = self._features_in([sentence], FEATURES_OF_ONE)
        for feature in found["features"]:
            feature["parts"] = self._example(sentence, *self.column(feature["id"]))["parts"]
        return found

    def _features_in(self, sentences: list[int], n: int) -> list[dict[str, Any]]:
        features, tokens, values = self._entries(sentences)
        of = self.tables["token_sentence"][tokens]
        # By sentence, then feature, then the largest activation: the first of each is the one that is shown.
        order = np.lexsort((tokens, -values, features, of))
        first = order[np.diff(of[order].astype(np.int64) * self.n_features + features[order], prepend=-1) > 0]
        found = []
        for sentence in sentences:
            own = first[of[first] == sentence]
            top = own[np.argsort(-values[own], kind="stable")[:n]]
            text = self.text(sentence)
            found.append(
                {
                    "id": sentence,
                    "language": self.language(sentence),
                    "held_out": bool(self.tables["sentence_held_out"][sentence]),
                    "text": text,
                    "active": len(own),
                    "features": [
                        {
                            "id": int(features[place]),
                            "activation": _short(values[place]),
                            "at": text[slice(*self.tables["token_span"][tokens[place]].tolist())],
                        }
                        for place in top
                    ],
                }
            )
        return found

    def _entries(
        self, sentences: list[int]
    ) -> tuple[Int[np.ndarray, " entries"], Int[np.ndarray, " entries"], Float[np.ndarray, " entries"]]:
        """Features, tokens and values of the active entries in some sentences, ordered by feature and token."""
        inside = np.zeros(self.about["tokens"], bool)
        for first, last in zip(
            *(self.tables["sentence_start"][np.array(sentences, np.int64) + end] for end in (0, 1)),
            strict=True,
        ):
            inside[first:last] = True
        places = np.flatnonzero(inside[self.tables["active_token"]])
        features = np.searchsorted(self.tables["active_start"], places, side="right") - 1
        return features, self.tables["active_token"][places], self.tables["active_value"][places]

    def codes(self, sentences: Iterable[int], features: Iterable[int]) -> dict[int, dict[str, Any]]:
        """Sentences with the activations of some features, in few characters: for a file that works without the index.

        `pieces` are the characters of the tokens and what stands between them; `code` has for each feature that is
        active the places of pieces and, after each, the activation there.
        """
        chosen, kept = sorted(set(sentences)), np.zeros(self.n_features, bool)
        kept[list(features)] = True
        found, place = {}, {}
        for sentence in chosen:
            first, last = self.tables["sentence_start"][sentence : sentence + 2].tolist()
            pieces, places = _pieces(self.text(sentence), self.tables["token_span"][first:last])
            place |= {first + token: at for token, at in enumerate(places)}
            found[sentence] = {
                "language": self.language(sentence),
                "held_out": bool(self.tables["sentence_held_out"][sentence]),
                "pieces": pieces,
                "code": defaultdict(dict),
            }
        for feature, token, value in zip(*(column.tolist() for column in self._entries(chosen)), strict=True):
            if kept[feature] and place[token] is not None:
                code = found[int(self.tables["token_sentence"][token])]["code"][feature]
                code[place[token]] = max(code.get(place[token], 0.0), _short(value))
        for one in found.values():
            one["code"] = {
                feature: [number for pair in code.items() for number in pair]
                for feature, code in one["code"].items()
            }
        return found

    @cached_property
    def _lines(self) -> list[str]:
        """Each sentence as its words in lower case, with a blank before, between and after them."""
        texts = [self.text(sentence) for sentence in range(self.about["sentences"])]
        between = {ord(sign): " " for sign in set().union(*texts) if not in_word(sign)}
        return [f" {' '.join(text.translate(between).lower().split())} " for text in texts]

    @property
    def identity(self) -> str:
        """The first digits of the SHA-256 of the autoencoder's weights: by it notes know whose features they are of."""
        return self.about["fingerprint"]["sparse/model.safetensors"][2][:16]

    def column(self, feature: int) -> tuple[Int[np.ndarray, " active"], Float[np.ndarray, " active"]]:
        """The tokens at which a feature is active, in order, and its activations there."""
        first, last = self.tables["active_start"][feature : feature + 2]
        return self.tables["active_token"][first:last], self.tables["active_value"][first:last]

    def _check(self, feature: int) -> None:
        if not 0 <= feature < self.n_features:
            raise ValueError(f"feature is {feature}; the run has 0 to {self.n_features - 1}")

    def _check_language(self, language: str | None) -> None:
        if language is not None and language not in self.about["languages"]:
            raise ValueError(
                f"language is {language!r}; the run has {', '.join(self.about['languages']) or 'none'}"
            )

    def _detected(self, feature: int) -> list[dict[str, Any]]:
        """The concepts of a feature without that it was only tried with."""
        return [row for row in self.concepts.get(feature, []) if row["best"]]

    def name(self, feature: int) -> str:
        """What a feature is called by (`names.feature_names`), else its number."""
        return self._named(feature) or f"feature {feature}"

    def _named(self, feature: int) -> str | None:
        return next((row["concept"] for row in self.concepts.get(feature, []) if row["named"]), None)

    def strongest(
        self, feature: int, n: int, *, held_out: bool = False, per_language: int | None = None
    ) -> list[int]:
        """The n different sentences with a feature's largest activations, the strongest first; fewer where it is rare.

        With `held_out` those alone on which nothing was trained; at most `per_language` of one language.
        """
        sentences, largest = self._by_sentence(*self.column(feature))
        if held_out:
            kept = self.tables["sentence_held_out"][sentences]
            sentences, largest = sentences[kept], largest[kept]
        order = np.argsort(-largest, kind="stable")
        return sentences[self._different(sentences, order, n, per_language=per_language)].tolist()

    def example(self, sentence: int, feature: int) -> dict[str, Any]:
        """A sentence with the activation of a feature at each of its parts."""
        return self._example(sentence, *self.column(feature))

    def text(self, sentence: int) -> str:
        """A sentence as it was given."""
        first, last = self.tables["text_start"][sentence : sentence + 2]
        return self.tables["text"][first:last].tobytes().decode()

    def language(self, sentence: int) -> str | None:
        """The language of a sentence, None where it is not known."""
        number = int(self.tables["sentence_language"][sentence])
        return None if number < 0 else self.about["languages"][number]

    def _by_sentence(
        self, tokens: Int[np.ndarray, " active"], values: Float[np.ndarray, " active"]
    ) -> tuple[Int[np.ndarray, " sentences"], Float[np.ndarray, " sentences"]]:
        """The sentences that tokens, in order, are from, and the largest value of each."""
        if not len(tokens):
            return np.zeros(0, np.int64), np.zeros(0, np.float32)
        sentence = self.tables["token_sentence"][tokens]
        first = np.flatnonzero(np.diff(sentence, prepend=-1))
        return sentence[first], np.maximum.reduceat(values, first)

    def _different(
        self,
        sentences: Int[np.ndarray, " sentences"],
        order: Int[np.ndarray, " places"],
        n: int,
        *,
        per_language: int | None = None,
    ) -> list[int]:
        """The first n places of an order whose texts are different, at most so many of a language."""
        found: dict[str, int] = {}
        of_language: Counter[str | None] = Counter()
        for place in order:
            if len(found) == n:
                break
            sentence = int(sentences[place])
            text, language = self.text(sentence), self.language(sentence)
            if text not in found and (per_language is None or of_language[language] < per_language):
                found[text] = int(place)
                of_language[language] += 1
        return list(found.values())

    def _examples(
        self, tokens: Int[np.ndarray, " active"], values: Float[np.ndarray, " active"], language: str | None
    ) -> dict[str, Any]:
        """Sentences by their largest activation: the strongest ones, then those around some quantiles."""
        sentences, largest = self._by_sentence(tokens, values)
        if language is not None:
            number = self.about["languages"].index(language)
            kept = self.tables["sentence_language"][sentences] == number
            sentences, largest = sentences[kept], largest[kept]
        order = np.argsort(-largest, kind="stable")
        groups = [("strongest", self._different(sentences, order, STRONGEST))]
        # Below that, the sentences at the quantiles would be the strongest ones again.
        if len(order) > 2 * STRONGEST:
            for quantile in QUANTILES:
                middle = round((1 - quantile) * (len(order) - 1))
                first = min(max(middle - AT_QUANTILE // 2, 0), len(order) - AT_QUANTILE)
                groups.append((quantile, order[first : first + AT_QUANTILE].tolist()))
        return {
            "sentences": len(sentences),
            "groups": [
                {
                    "quantile": name,
                    "sentences": [self._example(int(sentences[place]), tokens, values) for place in places],
                }
                for name, places in groups
            ],
        }

    def _example(self, sentence: int, tokens: np.ndarray, values: np.ndarray) -> dict[str, Any]:
        first, last = self.tables["sentence_start"][sentence : sentence + 2]
        inside = slice(*np.searchsorted(tokens, (first, last)))
        activation = np.zeros(last - first, np.float32)
        activation[tokens[inside] - first] = values[inside]
        return {
            "id": sentence,
            "language": self.language(sentence),
            "held_out": bool(self.tables["sentence_held_out"][sentence]),
            "activation": _short(activation.max()),
            "parts": parts(self.text(sentence), self.tables["token_span"][first:last], activation),
        }

    def _effect(self, feature: int) -> dict[str, Any] | None:
        place = [] if self.effects is None else np.flatnonzero(self.effects.features == feature)
        return self.effects.row(int(place[0])) if len(place) else None


def parts(
    text: str, spans: Int[np.ndarray, "tokens 2"], activation: Float[np.ndarray, " tokens"]
) -> list[list]:
    """A text in pieces [characters, activation]; the activation is None for what belongs to no token.

    Several tokens of the same characters (the bytes of a rare sign) give one piece, with the largest of theirs.
    """
    pieces, places = _pieces(text, spans)
    found: list[list] = [[piece, None] for piece in pieces]
    for place, value in zip(places, activation, strict=True):
        if place is not None:
            found[place][1] = max(found[place][1] or 0.0, _short(value))
    return found


def _pieces(text: str, spans: Int[np.ndarray, "tokens 2"]) -> tuple[list[str], list[int | None]]:
    """A text cut where tokens begin and end, and the piece of each token; None for a token without characters."""
    pieces: list[str] = []
    places: list[int | None] = []
    done = 0
    for start, end in np.asarray(spans).tolist():
        if end <= done and pieces:
            places.append(len(pieces) - 1 if start < end else None)
            continue
        start = max(start, done)
        if start > done:
            pieces.append(text[done:start])
        pieces.append(text[start:end])
        places.append(len(pieces) - 1)
        done = end
    if done < len(text):
        pieces.append(text[done:])
    return pieces, places


def concept_rows(report: "ConceptReport | None") -> dict[int, list[dict[str, Any]]]:
    """For each feature its name, and the concepts that it detects best of all features, beside a neuron and others.

    The name (`names.feature_names`) is `named` and comes first, the others follow by F1. Concepts that a feature's
    silence detects are left out. A feature without a name also has the concept that it was tried with: that row is
    `tried`, and `best` only where no other feature detects it better.
    """
    found: dict[int, list[dict[str, Any]]] = defaultdict(list)
    if report is None:
        return {}
    controls = {
        kind: {score.concept: score.f1 for score in report.scores.get(kind, [])}
        for kind in ("neurons", "random", "means", "lda", "probe")
    }
    tried = tried_concepts(report)
    named = {(unit, tried[unit].concept): tried[unit] for unit in feature_names(report)}
    ranked = sorted(report.scores["features"], key=lambda score: (-score.f1, -score.auroc))
    best = {(score.unit, score.concept): score for score in ranked if score.sign > 0}
    for key, score in {**named, **best, **{(unit, s.concept): s for unit, s in tried.items()}}.items():
        chance = held_out_chance(report, score)
        found[score.unit].append(
            {
                "concept": score.concept,
                "named": key in named,
                "best": key in named or key in best,
                "tried": tried.get(score.unit) is not None and tried[score.unit].concept == score.concept,
                "f1": _short(score.f1),
                "chance": _short(chance),
                "above_chance": _short(above_chance(score.f1, chance)),
                "auroc": _short(score.auroc),
                "positives_held_out": score.positives_held_out,
                "languages_reached": score.languages_reached,
                "languages_scored": score.languages_scored,
            }
            | _called(score, report.settings["rows_held_out"])
            | {
                f"f1_{kind}": _short(scores[score.concept])
                for kind, scores in controls.items()
                if score.concept in scores
            }
        )
    return dict(found)


def _called(score: "ConceptScore", rows: int) -> dict[str, Any]:
    """Precision, recall and the share of the held-out rows without the concept that are called; {} in older reports.

    The precision of a detector that calls no row is None.
    """
    if score.calls is None or score.hits is None:
        return {}
    without = rows - score.positives_held_out
    return {
        "precision": _short(score.hits / score.calls) if score.calls else None,
        "recall": _short(score.hits / max(score.positives_held_out, 1)),
        "false_alarms": _short((score.calls - score.hits) / max(without, 1)),
        "negatives_held_out": without,
    }


def _short(value: float | np.floating) -> float:
    """A number with the digits that are shown."""
    return float(_FLOATS % value)


def _rounded(values: np.ndarray) -> list[float]:
    return [_short(value) for value in values.tolist()]
