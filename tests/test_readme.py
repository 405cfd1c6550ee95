"""What README and docs show works: their Python runs and their links lead somewhere."""

import re
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn

from course_lib import pipeline, sae, teaching
from course_lib.lessons.catalog import LESSONS, PARTS, part_title
from course_lib.mbart.activation_store import write_store
from course_lib.mbart.activations import Site
from course_lib.mbart.model import load
from tests.tiny_mbart import SENTENCES, write_tiny_mbart

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), ROOT / "benchmarks" / "README.md"])
BLOCK = re.compile(r"^```python\n(.*?)^```$", flags=re.M | re.S)


class Net(nn.Sequential):
    """A network with a hidden matrix."""

    def __init__(self, width):
        super().__init__(
            nn.Linear(8, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 3)
        )


def given(directory):
    """Return what a reader brings along: a model, a network, states with their labels, and the lessons' kit."""
    kit = {name: getattr(teaching, name) for name in teaching.__all__}
    return kit | {
        "model": load(str(directory / "tiny"))[0],
        "Net": Net,
        "net": Net(width=16),
        "states": torch.randn(200, 8, generator=torch.Generator().manual_seed(0)),
        "labels": torch.arange(200) % 3,
    }


def blocks(page):
    return list(BLOCK.finditer(page.read_text(encoding="utf-8")))


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)], ids=lambda page: page.name)
def test_every_python_block_runs(page, tmp_path, monkeypatch):
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
    names = {}
    for block in blocks(page):
        names |= {"__name__": "page", **given(tmp_path)}
        lines_above = block.string.count("\n", 0, block.start(1))
        exec(compile("\n" * lines_above + block[1], page.name, "exec"), names)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_and_pictures_exist(page):
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if not target.startswith(("http", "#")):
            assert (page.parent / target.split("#")[0]).exists(), target
    for alternative in re.findall(r"!\[([^\]]*)\]", text):
        assert len(alternative) > 40


def test_the_readme_shows_a_picture_and_every_lesson():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "](figures/" in readme
    for lesson in LESSONS:
        assert f"[{lesson.number}](notebooks/{lesson.notebook}) {lesson.title}" in readme
    for part in PARTS:
        of_part = [lesson.number for lesson in LESSONS if lesson.part == part]
        assert of_part == re.findall(r"\[(\d\d)\]\(notebooks", row_of(readme, part_title(part) or "Start"))


def row_of(readme: str, title: str) -> str:
    """The row of a table that begins with a title."""
    return next(line for line in readme.splitlines() if line.startswith(f"| {title} |"))
