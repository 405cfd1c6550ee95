"""The README's table of lessons is the catalog's, and what it shows exists."""

import re
from pathlib import Path

from course_lib.lessons.catalog import lesson_map

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_lesson_table_is_current():
    assert lesson_map(ROOT / "notebooks", prefix="notebooks/") in README


def test_links_and_pictures_exist():
    targets = [t for t in re.findall(r"\]\(([^)\s]+)\)", README) if not t.startswith("http")]
    assert any(target.startswith("figures/") for target in targets)
    for target in targets:
        assert (ROOT / target).exists(), target


def test_pictures_have_a_text_alternative():
    for text in re.findall(r"!\[([^\]]*)\]", README):
        assert len(text) > 40
