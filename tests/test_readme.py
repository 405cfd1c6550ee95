"""What the README shows works: its Python runs and its links lead somewhere."""

import linecache
import re
from functools import partial
from pathlib import Path

import torch
from torch import nn

from course_lib import pipeline, sae, teaching
from course_lib.mbart.activation_store import write_store
from course_lib.mbart.activations import Site
from course_lib.mbart.model import load
from tests.tiny_mbart import SENTENCES, write_tiny_mbart

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```python\n(.*?)^```$", flags=re.M | re.S)


class Net(nn.Sequential):
    """A network with a hidden matrix."""

    def __init__(self, width):
        super().__init__(
            nn.Linear(8, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 3)
        )


def given(directory):
    """Return what a reader brings along: a model, a network, states with their labels, a lesson and its kit."""
    kit = {name: getattr(teaching, name) for name in teaching.__all__}
    return kit | {
        "model": load(str(directory / "tiny"))[0],
        "Net": Net,
        "net": Net(width=16),
        "states": torch.randn(200, 8, generator=torch.Generator().manual_seed(0)),
        "labels": torch.arange(200) % 3,
        "lesson": teaching.contents("readme"),
    }


def test_every_python_block_runs(tmp_path, monkeypatch):
    """One after the other in one directory, with fewer steps and sentences."""
    monkeypatch.chdir(tmp_path)
    config = sae.TrainConfig
    few = {"steps": 3, "batch_size": 16}
    monkeypatch.setattr(sae, "TrainConfig", lambda **options: config(**options | few))
    stacked, sparse = (
        pipeline.StackedConfig(training=config(**few)),
        pipeline.SparseConfig(training=config(**few)),
    )
    small = {"n_sentences": 60, "stacked": stacked, "sparse": sparse, "progress": False}
    monkeypatch.setattr(pipeline, "run", partial(pipeline.run, **small))
    write_tiny_mbart(tmp_path / "tiny")
    write_store("runs/states", *load("tiny"), SENTENCES[:60], site=Site("encoder"), progress=False)
    # Where an exercise is written, the source of its reference is read.
    linecache.cache["README.md"] = (len(README), None, README.splitlines(keepends=True), "README.md")
    names, blocks = {}, list(BLOCK.finditer(README))
    assert blocks
    for block in blocks:
        names |= {"__name__": "readme", **given(tmp_path)}
        lines_above = README.count("\n", 0, block.start(1))
        exec(compile("\n" * lines_above + block[1], "README.md", "exec"), names)


def test_links_and_pictures_exist():
    targets = [t for t in re.findall(r"\]\(([^)\s]+)\)", README) if not t.startswith("http")]
    assert any(target.startswith("figures/") for target in targets)
    for target in targets:
        assert (ROOT / target).exists(), target


def test_pictures_have_a_text_alternative():
    for text in re.findall(r"!\[([^\]]*)\]", README):
        assert len(text) > 40
