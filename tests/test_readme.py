"""What the README shows exists."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_links_and_pictures_exist():
    targets = [t for t in re.findall(r"\]\(([^)\s]+)\)", README) if not t.startswith("http")]
    assert any(target.startswith("figures/") for target in targets)
    for target in targets:
        assert (ROOT / target).exists(), target


def test_pictures_have_a_text_alternative():
    for text in re.findall(r"!\[([^\]]*)\]", README):
        assert len(text) > 40
