"""Sphinx leaves a page alone that did not change, unless what makes the pages did."""

import subprocess
import sys

# Sphinx registers its parts once for a process, so that each build has its own.
BUILD = """
import sys
from pathlib import Path
from course_lib.editions import html

folder = Path(sys.argv[1])
html.sources = lambda names: sys.argv[2]
sys.exit(html.sphinx(folder / "source", folder / "out", folder / "doctrees", {}, title="Pages"))
"""


def test_pages_are_made_anew_when_what_makes_them_changes(tmp_path):
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "index.md").write_text("# Title\n\nText of the page.", encoding="utf-8")
    page = tmp_path / "out" / "index.html"
    found = []
    for digest in ("one", "one", "two"):
        subprocess.run([sys.executable, "-c", BUILD, str(tmp_path), digest], check=True, capture_output=True)
        found.append("Text of the page." in page.read_text(encoding="utf-8"))
        page.write_text("left alone", encoding="utf-8")
    assert found == [True, False, True]
