"""Train the dictionaries that the course ships (`course_lib.sae.course_dictionary`), and score what they detect.

The pipeline's settings, on 24,000 training sentences instead of 6,500: with fewer, words that are rare in them have no
feature of their own. That of real text reads a table of parallel text. Weights are stored in half precision; every score
is that of the stored ones.
"""

import json
import platform
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import torch

import course_lib
from course_lib import sae
from course_lib.files import new_directory, write_sums
from course_lib.interpret import concepts
from course_lib.interpret.concepts import LabelledRows, f1_scores
from course_lib.interpret.detectors import best_detectors
from course_lib.language.corpus import LANGUAGES, LEXICAL_CONCEPTS, Sentence, generate
from course_lib.mbart.site import Site
from course_lib.pipeline.config import InputError, SparseConfig, dictionary
from course_lib.pipeline.seeds import generator
from course_lib.pipeline.tables import find_table, parallel_text
from course_lib.sae.course_dictionary import HELP_MODEL, MODEL, NamedDetector
from course_lib.sae.io import write_files
from course_lib.sae.metrics import ExplainedVariance

SENTENCES, HELD_OUT, SEED = 24_000, 12_000, 0
TABLE_SENTENCES = 40_000  # of a table, its held-out ones included
SITE = Site("encoder")
LEAST, LEAST_IN_LANGUAGE = 30, 5  # held-out sentences with a concept, without which it is not scored
CONCEPTS = list(LEXICAL_CONCEPTS)
_PIVOT = "en_XX"


def token_rows(n_sentences: int, *, seed: int, split: str, progress: bool = False) -> LabelledRows:
    """Draw sentences, the languages in turn, and return the states of their tokens with the lexical concepts."""
    return _read(MODEL, generate(n_sentences, seed=seed, split=split), CONCEPTS, progress=progress)


def _read(model: str, sentences: Sequence[Sentence], names: Sequence[str], *, progress: bool) -> LabelledRows:
    from course_lib.mbart.activations import extract
    from course_lib.mbart.model import load

    states = extract(*load(model), sentences, [SITE], progress=progress)[SITE]
    return LabelledRows(
        states.values.float(),
        concepts.label_table([s.concepts for s in sentences], names),
        [s.language for s in sentences],
        [s.meaning for s in sentences],
        states.sentence,
    )


def halved(autoencoder: sae.Autoencoder) -> dict[str, torch.Tensor]:
    """Return its tensors with the weights in half precision; what centres and scales the states stays as it is."""
    return {
        name: (value.half() if name.endswith(("weight", "bias")) else value).contiguous()
        for name, value in autoencoder.state_dict().items()
    }


def named_detectors(
    autoencoder: sae.SparseAutoencoder,
    train: LabelledRows,
    held_out: LabelledRows,
    *,
    names: Sequence[str] = CONCEPTS,
    language: str | None = None,
) -> list[NamedDetector]:
    """Choose each concept's feature and threshold on training sentences, and judge them on held-out ones.

    With `language` they are chosen on the training sentences of that language alone.
    """
    tables = [rows.largest(concepts.encode_rows(autoencoder, rows.states)) for rows in (train, held_out)]
    own = torch.tensor([language in (None, spoken) for spoken in train.languages])
    found = best_detectors(tables[0][own].to_sparse_coo(), train.labels[own])
    calls, truth = found.calls(tables[1]), held_out.labels
    by_language = {}
    for language in LANGUAGES:
        own = torch.tensor([spoken == language for spoken in held_out.languages])
        enough = truth[own].sum(dim=0) >= LEAST_IN_LANGUAGE
        by_language[language] = f1_scores(calls[own], truth[own]).where(enough, torch.nan)
    f1 = f1_scores(calls, truth).where(truth.sum(dim=0) >= LEAST, torch.nan)
    return [
        NamedDetector(
            concept,
            int(found.unit[i]),
            round(float(found.threshold[i]), 6),
            round(float(found.f1[i]), 4),
            None if f1[i].isnan() else round(float(f1[i]), 4),
            {
                language: round(float(scores[i]), 4)
                for language, scores in by_language.items()
                if not scores[i].isnan()
            },
        )
        for i, concept in enumerate(names)
    ]


def make(
    out: Path | str,
    *,
    sentences: int = SENTENCES,
    held_out: int = HELD_OUT,
    config: SparseConfig | None = None,
    seed: int = SEED,
    progress: bool = True,
) -> dict:
    """Train a dictionary of `course-mbart`'s encoder and write weights, detectors and origin to a new directory.

    Returns the origin. Raises FileExistsError where `out` already holds something, and ValueError where a concept is
    in none of so few sentences.
    """
    start = time.process_time()
    train = token_rows(sentences, seed=seed, split="train", progress=progress)
    others = token_rows(held_out, seed=seed, split="test", progress=progress)
    about = {
        "command": "python -m course_lib dictionary --out DIR",
        "model": MODEL,
        "training sentences": sentences,
        "held-out sentences": held_out,
    }
    return _make(out, train, others, CONCEPTS, about, None, config, seed=seed, start=start, progress=progress)


def make_of_table(
    text: Path | str,
    out: Path | str,
    *,
    sentences: int = TABLE_SENTENCES,
    config: SparseConfig | None = None,
    seed: int = SEED,
    progress: bool = True,
) -> dict:
    """Train a dictionary of `course-mbart-help`'s encoder on a table of parallel text, and write what `make` writes.

    Its concepts are the words of `pipeline.tables.parallel_text`, English ones; detectors are chosen on the English training
    sentences alone. `sentences` limits how many are read, the held-out ones included.

    Returns the origin. Raises FileExistsError where `out` already holds something, and InputError for a file that is no
    such table.
    """
    start = time.process_time()
    table = find_table(text)
    if table is None:
        raise InputError(f"{text} is no table of parallel text; expected a column for each language")
    rows = parallel_text(table, known=LANGUAGES, seed=seed, limit=sentences, pivot=_PIVOT)
    names = [word.concept for word in rows.words]
    spoken, out_of = rows.sentences, rows.sentence_held_out.tolist()
    train, others = (
        _read(
            HELP_MODEL,
            [s for s, held in zip(spoken, out_of, strict=True) if held == side],
            names,
            progress=progress,
        )
        for side in (False, True)
    )
    about = {
        "command": "course dictionary --text TABLE --out DIR",
        "model": HELP_MODEL,
        "training sentences": len(train.labels),
        "held-out sentences": len(others.labels),
        "detectors chosen on": f"training sentences in {_PIVOT}",
    }
    return _make(out, train, others, names, about, _PIVOT, config, seed=seed, start=start, progress=progress)


def _make(
    out: Path | str,
    train: LabelledRows,
    others: LabelledRows,
    names: Sequence[str],
    about: dict,
    language: str | None,
    config: SparseConfig | None,
    *,
    seed: int,
    start: float,
    progress: bool,
) -> dict:
    """Train, score and write; `start` is the CPU time at which reading began."""
    config = config or SparseConfig()
    made = dictionary(config, train.states.shape[1], generator=generator(seed, 3))
    sae.train(made, train.states, config.training, generator=generator(seed, 4), progress=progress)
    seconds = time.process_time() - start
    tensors = halved(made)
    made.load_state_dict(tensors)  # in single precision again, as `load` reads it
    made.requires_grad_(False)
    named = named_detectors(made, train, others, names=names, language=language)
    explained = ExplainedVariance()
    for states in others.states.split(4096):
        explained.update(states, made(states))
    scored = [one.f1 for one in named if one.f1 is not None]
    about |= {
        "site": SITE.short,
        "seed": seed,
        "training tokens": len(train.states),
        "training": config.training.as_dict(),
        "held-out variance explained": round(explained.value(), 4),
        "concepts": len(names),
        "concepts with 30 held-out sentences": len(scored),
        "of these, at held-out F1 0.9 or more": sum(f1 >= 0.9 for f1 in scored),
        "CPU seconds to read and train": round(seconds),
        "threads": torch.get_num_threads(),
        "versions": {
            "course_lib": course_lib.__version__,
            "python": platform.python_version(),
            "torch": torch.__version__,
        },
    }
    with new_directory(out) as partial:
        write_files(partial, tensors, made)
        (partial / "origin.json").write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
        rows = ",\n".join(json.dumps(asdict(one)) for one in named)
        (partial / "detectors.json").write_text(f"[\n{rows}\n]\n", encoding="utf-8")
        write_sums(partial)
    return about
