"""Runs that are made in a second: the files that the browser reads, of a tiny model and a random autoencoder."""

import json
from pathlib import Path

import torch

from course_lib import sae
from course_lib.language.corpus import Sentence
from course_lib.mbart.activations import Site, extract
from course_lib.mbart.model import load
from tests.tiny_mbart import SENTENCES

HOSTILE = "the dog sees <script>document.title='taken'</script> </script> [[DATA]] {{ data }} & \"x\"."


def make_run(
    directory: Path,
    model: Path,
    *,
    site: str = "encoder",
    languages: tuple[str | None, ...] = ("en_XX", "fr_XX", None),
    autoencoder: sae.Autoencoder | None = None,
    texts: list[str] | None = None,
) -> Path:
    """Write a run of the sentences of the tiny model, one of which holds markup."""
    texts = [HOSTILE, *SENTENCES[::5]] if texts is None else texts
    sentences = [Sentence(text, languages[i % len(languages)]) for i, text in enumerate(texts)]
    mbart, tokenizer = load(str(model))
    if autoencoder is None:
        generator = torch.Generator().manual_seed(0)
        autoencoder = sae.TopKSparseAutoencoder(32, 96, k=4, generator=generator)
    where = Site(site) if site in ("encoder", "decoder") else Site.parse(site)
    states = extract(mbart, tokenizer, sentences, [where], progress=False)[where].values
    autoencoder.fit_normalisation(states)
    directory.mkdir(parents=True)
    sae.save(autoencoder, directory / "sparse")
    described = {"run": {"model": str(model), "site": site}}
    (directory / "metrics.json").write_text(json.dumps(described))
    rows = (
        {
            "text": s.text,
            "language": s.language,
            "concepts": [],
            "split": "held_out" if i % 3 == 0 else "train",
        }
        for i, s in enumerate(sentences)
    )
    (directory / "sentences.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return directory


def write_concepts(run: Path) -> None:
    """Scores of two concepts for feature 3, one of them by its silence, and of a neuron for the first."""
    row = {"category": "tool", "positives_held_out": 40, "sign": 1, "auroc": 0.99}
    scores = {
        "features": [
            row | {"concept": "tool:hammer", "unit": 3, "f1": 0.912345},
            row | {"concept": "tool:saw", "unit": 3, "f1": 0.9, "sign": -1},
            row | {"concept": "<b>tool:nail</b>", "unit": 3, "f1": 0.95},
        ],
        "neurons": [row | {"concept": "tool:hammer", "unit": 7, "f1": 0.25}],
    }
    (run / "concepts.json").write_text(json.dumps({"scores": scores}))
