"""Train the dictionary that the course ships (`course_lib.sae.course_dictionary`), and score what it detects.

The pipeline's settings, on 24,000 training sentences instead of 6,500: with fewer, words that are rare in them have no
feature of their own. Weights are stored in half precision; every score is that of the stored ones.
"""

import json
import platform
import time
from dataclasses import asdict
from pathlib import Path

import torch

import course_lib
from course_lib import sae
from course_lib.files import new_directory, write_sums
from course_lib.interpret import concepts
from course_lib.interpret.concepts import LabelledRows, f1_scores
from course_lib.interpret.detectors import best_detectors
from course_lib.language.corpus import LANGUAGES, LEXICAL_CONCEPTS, generate
from course_lib.mbart.site import Site
from course_lib.pipeline.config import SparseConfig, dictionary
from course_lib.pipeline.seeds import generator
from course_lib.sae.course_dictionary import NamedDetector
from course_lib.sae.io import write_files
from course_lib.sae.metrics import ExplainedVariance

SENTENCES, HELD_OUT, SEED = 24_000, 12_000, 0
SITE = Site("encoder")
LEAST, LEAST_IN_LANGUAGE = 30, 5  # held-out sentences with a concept, without which it is not scored
CONCEPTS = list(LEXICAL_CONCEPTS)


def token_rows(n_sentences: int, *, seed: int, split: str, progress: bool = False) -> LabelledRows:
    """Draw sentences, the languages in turn, and return the states of their tokens with the lexical concepts."""
    from course_lib.mbart.activations import extract
    from course_lib.mbart.model import load

    drawn = generate(n_sentences, seed=seed, split=split)
    states = extract(*load(), drawn, [SITE], progress=progress)[SITE]
    return LabelledRows(
        states.values.float(),
        concepts.label_table([s.concepts for s in drawn], CONCEPTS),
        [s.language for s in drawn],
        [s.meaning for s in drawn],
        states.sentence,
    )


def halved(autoencoder: sae.Autoencoder) -> dict[str, torch.Tensor]:
    """Return its tensors with the weights in half precision; what centres and scales the states stays as it is."""
    return {
        name: (value.half() if name.endswith(("weight", "bias")) else value).contiguous()
        for name, value in autoencoder.state_dict().items()
    }


def named_detectors(
    autoencoder: sae.SparseAutoencoder, train: LabelledRows, held_out: LabelledRows
) -> list[NamedDetector]:
    """Choose each concept's feature and threshold on training sentences, and judge them on held-out ones."""
    tables = [rows.largest(concepts.encode_rows(autoencoder, rows.states)) for rows in (train, held_out)]
    found = best_detectors(tables[0].to_sparse_coo(), train.labels)
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
        for i, concept in enumerate(CONCEPTS)
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
    config = config or SparseConfig()
    start = time.process_time()
    train = token_rows(sentences, seed=seed, split="train", progress=progress)
    others = token_rows(held_out, seed=seed, split="test", progress=progress)
    made = dictionary(config, train.states.shape[1], generator=generator(seed, 3))
    sae.train(made, train.states, config.training, generator=generator(seed, 4), progress=progress)
    seconds = time.process_time() - start
    tensors = halved(made)
    made.load_state_dict(tensors)  # in single precision again, as `load` reads it
    made.requires_grad_(False)
    named = named_detectors(made, train, others)
    explained = ExplainedVariance()
    for states in others.states.split(4096):
        explained.update(states, made(states))
    scored = [one.f1 for one in named if one.f1 is not None]
    about = {
        "command": "python -m course_lib dictionary --out DIR",
        "model": "course-mbart",
        "site": SITE.short,
        "seed": seed,
        "training sentences": sentences,
        "training tokens": len(train.states),
        "training": config.training.as_dict(),
        "held-out sentences": held_out,
        "held-out variance explained": round(explained.value(), 4),
        "concepts": len(CONCEPTS),
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
