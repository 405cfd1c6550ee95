"""Runs that are made in a second: the files that the browser reads, of a tiny model and a random autoencoder."""

import json
from pathlib import Path

import torch

from course_lib import sae
from course_lib.interpret.concept_report import ConceptReport, ConceptScore
from course_lib.interpret.run_directory import (
    Description,
    Metrics,
    RunDirectory,
    RunSentence,
    SparseMetrics,
    SparseScores,
    StackedMetrics,
    StackedScores,
)
from course_lib.language.corpus import Sentence
from course_lib.mbart.activations import Site, extract
from course_lib.mbart.model import load
from tests.tiny_mbart import SENTENCES

HOSTILE = "the dog sees <script>document.title='taken'</script> </script> [[DATA]] {{ data }} & \"x\"."


def some_metrics(model: str = "some-model", site: str = "encoder") -> Metrics:
    """Settings and made-up numbers of a run."""
    described = Description(
        model=model,
        text="some.txt",
        text_sha256="0" * 64,
        site=site,
        seed=0,
        d_model=32,
        sentences=60,
        train=40,
        held_out=20,
        tokens=300,
        languages={"en_XX": 60},
        device="cpu",
        threads=1,
        versions={"course_lib": "0"},
        choice=None,
        seconds={"text": 0.5},
        warnings=[],
    )
    stacked = StackedScores(0.5, 0.75, 0.25)
    sparse = SparseScores(rows=200, explained_variance=0.5, l0=4.0, dead=1)
    return Metrics(
        described,
        StackedMetrics({"d_model": 32}, {"steps": 1}, 4, False, stacked, stacked),
        SparseMetrics({"n_features": 96}, {"steps": 1}, sparse, sparse),
        [],
    )


def make_run(
    directory: Path,
    model: Path,
    *,
    site: str = "encoder",
    languages: tuple[str | None, ...] = ("en_XX", "fr_XX", None),
    autoencoder: sae.SparseAutoencoder | None = None,
    texts: list[str] | None = None,
    concepts: ConceptReport | None = None,
) -> Path:
    """Write a run of the sentences of the tiny model, one of which holds markup."""
    texts = [HOSTILE, *SENTENCES[::5]] if texts is None else texts
    rows = [
        RunSentence(text, languages[i % len(languages)], frozenset(), "held_out" if i % 3 == 0 else "train")
        for i, text in enumerate(texts)
    ]
    mbart, tokenizer = load(str(model))
    if autoencoder is None:
        generator = torch.Generator().manual_seed(0)
        autoencoder = sae.TopKSparseAutoencoder(32, 96, k=4, generator=generator)
    where = Site.parse(site)
    sentences = [Sentence(row.text, row.language) for row in rows]
    states = extract(mbart, tokenizer, sentences, [where], progress=False)[where].values
    autoencoder.fit_normalisation(states)
    directory.mkdir(parents=True)
    RunDirectory(directory).write(some_metrics(str(model), site), rows, sparse=autoencoder, concepts=concepts)
    return directory


def without_digests(directory: Path) -> None:
    """Make a run what an older version wrote, whose files may be exchanged."""
    path = directory / "metrics.json"
    content = json.loads(path.read_text())
    del content["sha256"]
    path.write_text(json.dumps(content))


def some_concepts() -> ConceptReport:
    """Scores of three concepts for feature 3, one of them by its silence, and of a neuron for the first."""

    def score(concept, unit, f1, sign=1, f1_train=0.875, **counts):
        return ConceptScore(
            concept=concept,
            category="tool",
            positives_train=60,
            positives_held_out=40,
            unit=unit,
            sign=sign,
            threshold=0.5,
            f1_train=f1_train,
            f1=f1,
            auroc=0.99,
            languages_reached=2,
            languages_scored=3,
            together=(0.5, 0.75, 1.0),
            **counts,
        )

    return ConceptReport(
        scores={
            "features": [
                score("tool:hammer", 3, 0.912345),
                score("tool:saw", 3, 0.9, sign=-1),
                score("<b>tool:nail</b>", 3, 0.95, f1_train=0.9, calls=40, hits=38),
            ],
            "neurons": [score("tool:hammer", 7, 0.25)],
        },
        categories=[],
        lexical=frozenset({"tool:hammer", "tool:saw", "<b>tool:nail</b>", "tool:axe"}),
        skipped=["tool:axe"],
        settings={"min_train": 10, "rows_train": 600, "rows_held_out": 400},
    )
