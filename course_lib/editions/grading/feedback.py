"""What nbgrader does with lessons beyond its own settings: feedback with names and formulas, and no false warnings.

nbgrader's feedback calls every exercise "Test cell" and fetches MathJax from another host; both are mended by a template
of our own. Its autograder warns of every judging cell, since the tests that it took out itself are missing there.
"""

import html
import importlib.util
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

from course_lib.lessons import exercises_of

# A line of the index, and the heading of a judging cell.
NAMED = (
    re.compile(r'(<a href="#exercise_(\d\d)_(\d+)">)Test cell'),
    re.compile(r"(<span[^>]*>)Grade cell: <code>exercise_(\d\d)_(\d+)</code>"),
)
COMMENT = re.compile(r'(<a href="#comment-answer_(\d\d)_(\d+)">)Comment')


def configure(config: Any) -> None:
    """Add to nbgrader's configuration, `c` in nbgrader_config.py, what this module does."""
    from nbconvert.exporters import HTMLExporter
    from nbgrader import server_extensions
    from nbgrader.api import MissingEntry
    from nbgrader.converters.autograde import Autograde
    from nbgrader.preprocessors import ClearHiddenTests, OverwriteCells
    from traitlets import default

    class PutTestsBack(OverwriteCells):
        """nbgrader's own, which warns of changed cells, but not of those that are as they were released."""

        def preprocess_cell(self, cell, resources, cell_index):
            marks = cell.metadata.get("nbgrader", {})
            with suppress(MissingEntry):  # of a cell that was never handed out; theirs says so
                released = self.gradebook.find_source_cell(
                    marks.get("grade_id"), self.notebook_id, self.assignment_id
                )
                shown = type(cell)(cell, source=released.source)
                ClearHiddenTests(enforce_metadata=False).preprocess_cell(shown, resources, cell_index)
                if released.locked and cell.source == shown.source:
                    cell.source = released.source
            return super().preprocess_cell(cell, resources, cell_index)

    class NamedFeedback(HTMLExporter):
        """HTML whose template finds nbgrader's, which it extends."""

        @default("template_data_paths")
        def _with_theirs(self):
            return [str(Path(server_extensions.__file__).parent / "formgrader" / "templates")]

    config.Autograde.sanitize_preprocessors = [
        PutTestsBack if one is OverwriteCells else one for one in Autograde.sanitize_preprocessors.default()
    ]
    config.GenerateFeedback.exporter_class = NamedFeedback
    config.NamedFeedback.template_name = "course_feedback"
    config.NamedFeedback.extra_template_basedirs = [str(Path(__file__).parent / "templates")]
    config.NamedFeedback.filters = {"name_exercises": name_exercises, "mathjax_source": mathjax_source}


def name_exercises(page: str) -> str:
    """Return nbgrader's feedback with the number and title of each exercise in its index and above its judgement."""
    for found in NAMED:
        page = found.sub(lambda one: f"{one[1]}Exercise {_named(one[2], one[3])}", page)
    return COMMENT.sub(lambda one: f"{one[1]}Comment on {one[2]}.{one[3]}", page)


def _named(lesson: str, place: str) -> str:
    exercise = exercises_of(lesson).get(f"{lesson}.{place}")
    return f"{lesson}.{place}" + (f" {html.escape(exercise.title)}" if exercise else "")


def mathjax_source(name: str) -> str:
    """Return a script of MathJax, which a package brings along, to stand within a page.

    Raises:
        FileNotFoundError: the package is not installed.
    """
    found = importlib.util.find_spec("sphinx-mathjax-offline")
    if found is None:
        raise FileNotFoundError(
            "MathJax is not installed; install it with: python -m pip install -c constraints.txt -e '.[grading]'"
        )
    script = (Path(found.origin).parent / "static" / "mathjax" / name).read_text(encoding="utf-8")
    return script.replace("</script", r"<\/script")
