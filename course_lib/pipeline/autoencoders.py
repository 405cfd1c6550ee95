"""Both autoencoders of a run: trained, scored, and the sparse one's features described."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from course_lib import sae
from course_lib.interpret import concepts
from course_lib.interpret.concept_report import ConceptReport, concept_report
from course_lib.interpret.run_directory import (
    CodeNormality,
    Feature,
    SharedConcept,
    SparseMetrics,
    SparseScores,
    StackedMetrics,
    StackedScores,
    TopSentence,
)
from course_lib.interpret.translated_words import TranslatedWords
from course_lib.language.corpus import CONCEPTS, LEXICAL_CONCEPTS, Sentence
from course_lib.pipeline.config import SparseConfig, StackedConfig, dictionary
from course_lib.pipeline.seeds import generator
from course_lib.pipeline.states import SentenceStates, TokenStates
from course_lib.representation.normality import mardia_score, moment_scores
from course_lib.representation.variance import components_needed
from course_lib.sae import metrics
from course_lib.sae.losses import NO_LABEL

# Shares of the variance for which a run says how many principal components keep them.
SHARES = (0.5, 0.8, 0.9, 0.95, 0.99)
# What the supervised term of the stacked autoencoder tells, as the scores of a run call it.
LANGUAGE, LABEL = "language", "label"
# Held-out sentences that must hold a concept before a unit is judged on it.
MIN_HELD_OUT = 30
REPORTED_FEATURES = 20
REPORTED_SENTENCES = REPORTED_TOKENS = 8
# How a token that is nothing but a blank is shown.
BLANK = "␣"
# A gap between training and held-out explained variance from which a run is called overfitted.
OVERFIT_FROM = 0.2
# A concept is called shared by a feature's top sentences from this share of them on, and only where it is
# this many times as frequent there as among all sentences.
SHARED_FROM, SHARED_LIFT = 0.75, 2.0


@dataclass(frozen=True)
class StackedRun:
    """A trained stacked autoencoder, its curves, the PCA curve of its training rows, and its scores.

    `target` is what its supervised term tells, `LANGUAGE` or `LABEL`; None where there is none.
    """

    autoencoder: sae.StackedAutoencoder
    config: StackedConfig
    history: sae.History
    pca_curve: Float[Tensor, " components"]
    target: str | None
    train: StackedScores
    held_out: StackedScores
    unit_means: Float[Tensor, " units"]
    normality: CodeNormality

    def metrics(self) -> StackedMetrics:
        """What is kept of it in a run's files."""
        return StackedMetrics(
            self.autoencoder.config(),
            self.config.training.as_dict(),
            self.autoencoder.code_width,
            self.target is not None,
            self.train,
            self.held_out,
            self.unit_means.tolist(),
            {
                f"{share:g}": components_needed(_variances(self.pca_curve), share)
                for share in sorted({*SHARES, self.config.alpha} - {None})
            },
            self.normality,
        )


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

    def metrics(self) -> SparseMetrics:
        """What is kept of it in a run's files."""
        training = self.config.training.as_dict()
        return SparseMetrics(self.autoencoder.config(), training, self.train, self.held_out)


def train_stacked(
    rows: SentenceStates,
    config: StackedConfig,
    *,
    seed: int,
    progress: bool,
    classes: Sequence[str | None] | None = None,
) -> StackedRun:
    """Train the bottleneck with the combined loss, whose supervised term tells classes where two are given.

    `classes` has the class of each sentence (None where it is not known); without it they are the languages.
    """
    target = LANGUAGE if classes is None else LABEL
    names, labels = class_labels(rows.languages if classes is None else classes)
    supervised = len(names) >= 2
    d_model, sides = rows.states.shape[1], rows.sides
    curve, widths = metrics.pca_curve(sides["train"]), config.widths
    if config.alpha is not None:
        k = components_needed(_variances(curve), config.alpha)
        widths = (max(d_model // 2, k), k)
    autoencoder = sae.StackedAutoencoder(
        d_model,
        widths,
        beta=config.beta,
        rho=config.rho,
        gamma=config.gamma if supervised else 0.0,
        n_outputs=len(names) if supervised else 0,
        generator=generator(seed, 1),
    ).to(rows.states.device)
    labels = labels.to(rows.states.device)
    history = sae.train(
        autoencoder,
        sides["train"],
        config.training,
        generator=generator(seed, 2),
        labels=labels[~rows.held_out] if supervised else None,
        progress=progress,
    )
    k = autoencoder.code_width
    train = _stacked_scores(
        autoencoder,
        sides["train"],
        labels[~rows.held_out],
        target=target if supervised else None,
        pca_bound=curve[min(k, len(curve)) - 1].item(),
    )
    held_out = _stacked_scores(
        autoencoder,
        sides["held_out"],
        labels[rows.held_out],
        target=target if supervised else None,
        pca_bound=metrics.pca_bound(sides["held_out"], k),
        pca_of_train=metrics.pca_transfer(sides["train"], sides["held_out"], k),
    )
    return StackedRun(
        autoencoder,
        config,
        history,
        curve.cpu(),
        target if supervised else None,
        train,
        held_out,
        *_code_statistics(autoencoder, rows),
    )


def _variances(curve: Float[Tensor, " components"]) -> Float[Tensor, " components"]:
    """The variances of principal components, in shares of their sum, of what `pca_curve` gives."""
    return curve.diff(prepend=curve.new_zeros(1)).clamp(min=0)


@torch.no_grad()
def _code_statistics(
    autoencoder: sae.StackedAutoencoder, rows: SentenceStates
) -> tuple[Float[Tensor, " units"], CodeNormality]:
    """Mean activation of each unit in training, and how normal the code of held-out sentences is.

    Translations of a sentence are no independent rows: only the first of each meaning counts.
    """
    means = autoencoder.encode(rows.sides["train"]).mean(dim=0).cpu()
    seen: set[int | None] = set()
    chosen = []
    for sentence, out in zip(rows.sentences, rows.held_out.tolist(), strict=True):
        chosen.append(out and (sentence.meaning is None or sentence.meaning not in seen))
        if out:
            seen.add(sentence.meaning)
    code = autoencoder.encode(rows.states[torch.tensor(chosen, device=rows.states.device)]).cpu()
    found: dict[str, float] = {}
    with suppress(ValueError):  # too few rows, or units that are constant or redundant: not known
        skewness, kurtosis = moment_scores(code)
        found |= {"skewness": skewness.abs().median().item(), "kurtosis": kurtosis.abs().median().item()}
        found["mardia"] = mardia_score(code)
    return means, CodeNormality(len(code), **found)


@torch.no_grad()
def _stacked_scores(
    autoencoder: sae.StackedAutoencoder,
    states: Float[Tensor, "sentences d_model"],
    labels: Int[Tensor, " sentences"],
    *,
    target: str | None,
    pca_bound: float,
    pca_of_train: float | None = None,
) -> StackedScores:
    """Scores on one side of the split; those of the classes, languages or labels, where one is known there."""
    known = labels != NO_LABEL
    told = {}
    if target is not None and known.any():
        right = autoencoder.predict(states).argmax(dim=1) == labels
        told = {
            f"{target}_accuracy": right[known].double().mean().item(),
            f"most_frequent_{target}": (labels[known].bincount().max() / known.sum()).item(),
        }
    return StackedScores(
        explained_variance=metrics.explained_variance(states, autoencoder(states)),
        pca_bound=pca_bound,
        mean_activation=autoencoder.encode(states).mean().item(),
        pca_of_train=pca_of_train,
        **told,
    )


def class_labels(classes: Sequence[str | None]) -> tuple[list[str], Int[Tensor, " sentences"]]:
    """The classes present, sorted, and each sentence's place among them (-1 where it is not known)."""
    names = sorted({name for name in classes if name is not None})
    place = {name: i for i, name in enumerate(names)} | {None: NO_LABEL}
    return names, torch.tensor([place[name] for name in classes])


def train_sparse(
    tokens: TokenStates, config: SparseConfig, *, seed: int, device: torch.device, progress: bool
) -> SparseRun:
    """Train the overcomplete dictionary on the states of tokens, and describe its strongest features."""
    d_model = tokens.states.shape[1]
    autoencoder = dictionary(config, d_model, generator=generator(seed, 3)).to(device)
    history = sae.train(
        autoencoder,
        tokens.train,
        config.training,
        generator=generator(seed, 4),
        progress=progress,
    )
    code, scores = read_code(autoencoder, tokens)
    rates, strengths = activity(autoencoder, code, ~tokens.held_out)
    described = describe_features(autoencoder, code, tokens, strengths)
    return SparseRun(
        autoencoder, config, history, code, rates, scores["train"], scores["held_out"], described
    )


@torch.no_grad()
def read_code(
    autoencoder: sae.SparseAutoencoder, tokens: TokenStates, *, batch_size: int = 4096
) -> tuple[Float[Tensor, "tokens features"], dict[str, SparseScores]]:
    """Code of all tokens as a sparse table (COO, on the CPU), and the scores of the sides that have any, in one pass."""
    sides = {"train": ~tokens.held_out, "held_out": tokens.held_out}
    sides = {side: chosen for side, chosen in sides.items() if chosen.any()}
    explained = {side: metrics.ExplainedVariance() for side in sides}
    parts = []
    for start in range(0, len(tokens.states), batch_size):
        states = tokens.states[start : start + batch_size].to(autoencoder.input_mean)
        code = autoencoder.encode(states)
        reconstructed = autoencoder.decode(code)
        for side, chosen in sides.items():
            rows = chosen[start : start + batch_size].to(code.device)
            if rows.any():
                explained[side].update(states[rows], reconstructed[rows])
        parts.append(code.float().cpu().to_sparse_coo())
    whole = torch.cat(parts).coalesce()
    scores = {}
    for side, chosen in sides.items():
        fired = _fired(whole, chosen)
        scores[side] = SparseScores(
            rows=int(chosen.sum()),
            explained_variance=explained[side].value(),
            l0=int(fired.sum()) / int(chosen.sum()),
            dead=int((fired == 0).sum()),
        )
    return whole, scores


def _fired(code: Tensor, rows: Bool[Tensor, " tokens"]) -> Int[Tensor, " features"]:
    """In how many of some rows of a sparse code each feature is active."""
    row, feature = code.indices()
    return feature[rows[row] & (code.values() > 0)].bincount(minlength=code.shape[1])


def activity(
    autoencoder: sae.SparseAutoencoder, code: Tensor, rows: Bool[Tensor, " tokens"]
) -> tuple[Float[Tensor, " features"], Float[Tensor, " features"]]:
    """Firing rate and strength of each feature on some rows of a sparse code."""
    row, feature = code.indices()
    chosen = rows[row] & (code.values() > 0)
    empty = torch.zeros(code.shape[1], dtype=torch.float64)
    squares = empty.index_add(0, feature[chosen], code.values()[chosen].double().square())
    lengths = autoencoder.decoder_weight.detach().norm(dim=0).cpu()
    count = int(rows.sum())
    return _fired(code, rows) / count, (squares / count).sqrt() * lengths


@torch.no_grad()
def describe_features(
    autoencoder: sae.SparseAutoencoder,
    code: Float[Tensor, "tokens features"],
    tokens: TokenStates,
    strengths: Float[Tensor, " features"],
) -> list[Feature]:
    """The strongest features, where they fire, and the different sentences that excite them most.

    A feature's activation is given as f_i ||W_d[:, i]||, the length of what it adds to a token's state, in
    units of the root mean square length of the centred training states; its strength is the root mean square
    of that over all training tokens. A sentence's activation is the largest of its tokens.
    """
    strongest = strengths.argsort(descending=True, stable=True)[:REPORTED_FEATURES]
    lengths = autoencoder.decoder_weight.norm(dim=0)[strongest.to(autoencoder.decoder_weight.device)]
    activation = code.index_select(1, strongest).to_dense() * lengths.cpu()
    by_sentence = tokens.largest(activation)
    pieces = _largest_shares([piece.replace("▁", "") or BLANK for piece in tokens.pieces], activation)
    words = [[]] * len(strongest) if tokens.words is None else _largest_shares(_words(tokens), activation)
    sentences = tokens.sentences
    usual = Counter(concept for s in sentences for concept in s.concepts)
    languages, labels = class_labels([s.language for s in sentences])
    described = []
    for column, index in enumerate(strongest.tolist()):
        largest = by_sentence[:, column]
        top = _top_sentences(largest, sentences)
        described.append(
            Feature(
                feature=index,
                strength=strengths[index].item(),
                firing_rate=(largest > 0).double().mean().item(),
                firing_rate_by_language={
                    language: (largest[labels == i] > 0).double().mean().item()
                    for i, language in enumerate(languages)
                },
                shared_concepts=_shared_concepts([sentences[row] for row in top], usual, len(sentences)),
                sentences=[_top_sentence(tokens, activation[:, column], row) for row in top],
                tokens=pieces[column],
                words=words[column],
            )
        )
    return described


def _words(tokens: TokenStates) -> Iterator[str]:
    """The word of each token, in lower case."""
    for row, (start, end) in zip(tokens.sentence.tolist(), tokens.words.tolist(), strict=True):
        yield tokens.sentences[row].text[start:end].lower() or BLANK


def _largest_shares(names: Iterable[str], activation: Float[Tensor, "tokens features"]) -> list[list[str]]:
    """For each feature the names of tokens that have most of its activation."""
    numbers: dict[str, int] = {}
    name = torch.tensor([numbers.setdefault(one, len(numbers)) for one in names])
    listed = list(numbers)
    sums = activation.new_zeros(len(listed), activation.shape[1]).index_add(0, name, activation)
    order = sums.argsort(dim=0, descending=True, stable=True)[:REPORTED_TOKENS]
    return [
        [listed[i] for i in order[:, column].tolist() if sums[i, column] > 0]
        for column in range(activation.shape[1])
    ]


def _top_sentence(tokens: TokenStates, activation: Float[Tensor, " tokens"], row: int) -> TopSentence:
    """A sentence with the token at which a feature is most active in it."""
    of_sentence = (tokens.sentence == row).nonzero().flatten()
    at = int(of_sentence[activation[of_sentence].argmax()])
    return TopSentence(
        row=row,
        activation=activation[at].item(),
        piece=tokens.pieces[at].replace("▁", ""),
        language=tokens.sentences[row].language,
        text=tokens.sentences[row].text,
        word=[] if tokens.words is None else tokens.words[at].tolist(),
    )


def _top_sentences(activation: Tensor, sentences: list[Sentence]) -> list[int]:
    """Rows of the different sentences with the largest activation, none that is not active."""
    rows: dict[str, int] = {}
    for row in activation.argsort(descending=True, stable=True).tolist():
        if activation[row] <= 0 or len(rows) == REPORTED_SENTENCES:
            break
        rows.setdefault(sentences[row].text, row)
    return list(rows.values())


def _shared_concepts(top: list[Sentence], usual: Counter[str], n_sentences: int) -> list[SharedConcept]:
    """Concepts that most of the top sentences have, and clearly fewer of all sentences."""
    counts = Counter(concept for s in top for concept in s.concepts)
    shared = [
        SharedConcept(concept=concept, count=count, of=len(top), usual_share=usual[concept] / n_sentences)
        for concept, count in counts.items()
        if count >= SHARED_FROM * len(top) and count / len(top) >= SHARED_LIFT * usual[concept] / n_sentences
    ]
    return sorted(shared, key=lambda entry: (-entry.count, entry.usual_share, entry.concept))


def score_concepts(
    code: Float[Tensor, "tokens features"],
    tokens: TokenStates,
    *,
    seed: int,
    translated: TranslatedWords | None = None,
) -> ConceptReport | None:
    """How well single features say which concepts a sentence holds; None where the text has no known concepts.

    A feature's value for a sentence is its largest over the tokens. Everything is chosen on the training
    sentences and scored on the held-out ones. Where it is known which tokens are the words of concepts, features are
    scored as detectors of these tokens, too. The concepts are those of the built-in corpus, or the words and labels
    `translated`.
    """
    if not any(s.concepts for s in tokens.sentences):
        return None
    categories, lexical = CONCEPTS, LEXICAL_CONCEPTS
    if translated is not None:
        categories = {word.concept: word.category for word in translated.words}
        lexical = tuple(categories)
    names = list(categories)
    spoken = None if tokens.concepts is None else concepts.label_table(tokens.concepts, names)
    rows, codes = [], []
    for mask in (~tokens.held_out, tokens.held_out):
        of_side, groups = tokens.sentence[mask].unique(return_inverse=True)
        chosen = [tokens.sentences[i] for i in of_side.tolist()]
        languages = [s.language for s in chosen]
        codes.append(code.index_select(0, mask.nonzero()[:, 0]))
        rows.append(
            concepts.LabelledRows(
                tokens.states[mask],
                concepts.label_table([s.concepts for s in chosen], names),
                languages=None if None in languages else languages,
                meanings=[s.meaning for s in chosen],
                groups=groups,
                part_labels=None if spoken is None else spoken[mask],
            )
        )
    return concept_report(
        codes,
        *rows,
        concepts=names,
        categories=categories,
        lexical=lexical,
        generator=generator(seed, 5),
        min_held_out=MIN_HELD_OUT,
        translated=translated,
    )


def warn_of_unscored(report: ConceptReport) -> list[str]:
    """A warning where lexical concepts have too few sentences to be scored, else none."""
    missing = sorted(report.lexical & set(report.skipped))
    if not missing:
        return []
    named = ", ".join(missing[:3]) + (", ..." if len(missing) > 3 else "")
    return [
        f"{len(missing)} of {len(report.lexical)} lexical concepts ({named}) were not scored: fewer than "
        f"{MIN_HELD_OUT} held-out sentences hold them; whether a feature detects them is not known"
    ]


def warn_of_overfitting(kind: str, train: float, held_out: float) -> list[str]:
    """A warning where an autoencoder explains its training sentences far better than held-out ones, else none."""
    if train - held_out <= OVERFIT_FROM:
        return []
    return [
        f"the {kind} autoencoder explains {train:.0%} of the variance in training and {held_out:.0%} on "
        "held-out sentences: it has learned its sentences by heart; use more of them (thousands)"
    ]
