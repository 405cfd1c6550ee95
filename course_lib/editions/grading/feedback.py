"""What nbgrader does with lessons beyond its own settings: feedback to read, submissions that say why they have no points.

nbgrader's feedback calls every exercise "Test cell", shows the code that judges and fetches MathJax from another host; a
template and a preprocessor of our own change that. Its autograder warns of every judging cell, since the tests that it
took out itself are missing there, stops at a file that is no notebook, and gives nothing for a judging cell that was
deleted. Its export has one number for a lesson.
"""

import csv
import html
import importlib.util
import io
import json
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from course_lib.lessons import exercises_of

# A line of the index, and the heading of a judging cell.
NAMED = (
    re.compile(r'(<a href="#exercise_(\d\d)_(\d+)">)Test cell'),
    re.compile(r"(<span[^>]*>)Grade cell: <code>exercise_(\d\d)_(\d+)</code>"),
)
COMMENT = re.compile(r'(<a href="#comment-answer_(\d\d)_(\d+)">)Comment')
UNREAD = "could not be read"


def configure(config: Any) -> None:
    """Add to nbgrader's configuration, `c` in nbgrader_config.py, what this module does."""
    from nbconvert.exporters import HTMLExporter, NotebookExporter
    from nbgrader import server_extensions
    from nbgrader.api import Gradebook, MissingEntry
    from nbgrader.converters import Autograde, GenerateFeedback
    from nbgrader.plugins import CsvExportPlugin
    from nbgrader.preprocessors import ClearHiddenTests, OverwriteCells
    from traitlets import default

    class PutTestsBack(OverwriteCells):
        """nbgrader's own, which warns of changed cells, but not of those that are as they were released."""

        def preprocess(self, nb, resources):
            about = resources["nbgrader"]
            with Gradebook(about["db_url"]) as gradebook:
                released = gradebook.find_notebook(about["notebook"], about["assignment"])
                sources = {one.name: one for one in released.source_cells}
                judging = {}
                for one in released.grade_cells:
                    lost = nbformat.from_dict(self.missing_cell_transform(sources[one.name], one.max_score))
                    judging[one.name] = new_code_cell(sources[one.name].source, metadata=lost.metadata)
            put_back(nb, judging)
            return super().preprocess(nb, resources)

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

    class ReadSubmission(NotebookExporter):
        """A notebook; where a file is none, one that says so in its place."""

        def from_filename(self, filename, resources=None, **kwargs):
            if (why := why_unread(Path(filename))) is None:
                return super().from_filename(filename, resources=resources, **kwargs)
            note = new_markdown_cell(f"**The file {Path(filename).name} {UNREAD}: {why}.**")
            return self.from_notebook_node(new_notebook(cells=[note]), resources=resources, **kwargs)

    class WithoutTests(ClearHiddenTests):
        """nbgrader's own, for a notebook that was graded: it also leaves out verdicts that are shown again below."""

        def preprocess(self, nb, resources):
            say_once(nb)
            return super().preprocess(nb, resources)

    class NamedFeedback(HTMLExporter):
        """HTML whose template finds nbgrader's, which it extends."""

        @default("template_data_paths")
        def _with_theirs(self):
            return [str(Path(server_extensions.__file__).parent / "formgrader" / "templates")]

    class ExportByExercise(CsvExportPlugin):
        """nbgrader's own columns, then the points of each exercise, and what could not be read."""

        def export(self, gradebook):
            super().export(gradebook)
            path = Path(self.to or "grades.csv")
            coursedir = self.parent.coursedir
            points, unread = {}, {}
            for submission in (one for assignment in gradebook.assignments for one in assignment.submissions):
                key = (submission.assignment.name, submission.student.id)
                for notebook in submission.notebooks:
                    points[key] = {one.name: one.score for one in notebook.grades}
                    folder = coursedir.format_path(coursedir.submitted_directory, key[1], key[0])
                    unread[key] = unread_parts(Path(folder) / f"{notebook.name}.ipynb", points[key])
            path.write_text(with_exercises(path.read_text(), points, unread), encoding="utf-8", newline="")

    config.Autograde.exporter_class = ReadSubmission
    config.Autograde.sanitize_preprocessors = [
        PutTestsBack if one is OverwriteCells else one for one in Autograde.sanitize_preprocessors.default()
    ]
    config.GenerateFeedback.preprocessors = [*GenerateFeedback.preprocessors.default(), WithoutTests]
    config.GenerateFeedback.exporter_class = NamedFeedback
    config.NamedFeedback.template_name = "course_feedback"
    config.NamedFeedback.extra_template_basedirs = [str(Path(__file__).parent / "templates")]
    config.NamedFeedback.filters = {"name_exercises": name_exercises, "mathjax_source": mathjax_source}
    config.ExportApp.plugin_class = ExportByExercise


# Submissions


def why_unread(path: Path) -> str | None:
    """Return in words why a file is no notebook; None where it is one."""
    if not path.is_file():
        others = ", ".join(sorted(one.name for one in path.parent.glob("*.ipynb")))
        return f"there is no {path.name}" + (f", but {others}" if others else "")
    try:
        nbformat.read(path, as_version=4)
    except ValueError as error:  # also of text that is no UTF-8
        at = error.__cause__
        where = f" from line {at.lineno} on" if isinstance(at, json.JSONDecodeError) else ""
        return f"it is not the JSON of a notebook{where}"
    except Exception as error:  # of JSON that is no notebook, whatever nbformat stumbles over
        return f"it is not a notebook ({type(error).__name__})"
    return None


def unread_parts(path: Path, judging: Mapping[str, Any]) -> str:
    """Return what of a submission could not be read, in words; "" where all was. `judging` has its cells that judge."""
    if (why := why_unread(path)) is not None:
        return f"{UNREAD}: {why}"
    missing = [
        number_of(one) for one in judging if answer_place(nbformat.read(path, as_version=4), one) is None
    ]
    return f"{UNREAD}: there is no answer cell of {', '.join(missing)}" if missing else ""


def number_of(grade_id: str) -> str:
    """Return the number of the exercise of a cell, exercise_01_3 or answer_01_3."""
    return grade_id.partition("_")[2].replace("_", ".")


def answer_place(notebook: nbformat.NotebookNode, judging: str) -> int | None:
    """Return the place of the answer that a cell judges; None where the notebook has no such cell."""
    wanted = judging.replace("exercise_", "answer_")
    return next(
        (
            i
            for i, one in enumerate(notebook.cells)
            if one.metadata.get("nbgrader", {}).get("grade_id") == wanted
        ),
        None,
    )


def put_back(notebook: nbformat.NotebookNode, judging: Mapping[str, nbformat.NotebookNode]) -> None:
    """Put judging cells that were deleted back below their answers; where an answer cell is missing, say so at the end."""
    there = {one.metadata.get("nbgrader", {}).get("grade_id") for one in notebook.cells}
    for name, cell in judging.items():
        place = answer_place(notebook, name)
        if place is None:
            said = f"**Exercise {number_of(name)} {UNREAD}: there is no answer cell of it.**"
            notebook.cells.append(new_markdown_cell(said))
        if name not in there:
            notebook.cells.insert(len(notebook.cells) if place is None else place + 1, cell)


# Feedback


def say_once(notebook: nbformat.NotebookNode) -> None:
    """Take the verdict out of what an answer cell printed: the cell below it, which gives the points, has it again."""
    for cell in notebook.cells:
        place = cell.metadata.get("nbgrader", {}).get("grade_id", "")
        if place.startswith("answer_"):
            verdict = f"Exercise {number_of(place)}: "
            for output in cell.outputs:
                if output.output_type == "stream":
                    lines = output.text.splitlines(keepends=True)
                    output.text = "".join(one for one in lines if not one.startswith(verdict))


def name_exercises(page: str) -> str:
    """Return nbgrader's feedback with the number and title of each exercise in its index and above its judgement."""
    for found in NAMED:
        page = found.sub(lambda one: f"{one[1]}Exercise {_named(one[2], one[3])}", page)
    return COMMENT.sub(lambda one: f"{one[1]}Comment on {one[2]}.{one[3]}", page)


def _named(lesson: str, place: str) -> str:
    return html.escape(title(f"exercise_{lesson}_{place}"))


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


# Export


def with_exercises(
    exported: str,
    points: Mapping[tuple[str, str], Mapping[str, float]],
    unread: Mapping[tuple[str, str], str],
) -> str:
    """Return nbgrader's CSV with a column for the points of each exercise, and one for what could not be read.

    `points` by the names of the judging cells, and `unread`, belong to an assignment and a student.
    """
    rows = list(csv.DictReader(io.StringIO(exported)))
    keys = [(row["assignment"], row["student_id"]) for row in rows]
    columns = sorted({name for key in keys for name in points.get(key, ())})
    added = [[*map(title, columns), "not_read"]]
    added += [[*(points.get(key, {}).get(one, "") for one in columns), unread.get(key, "")] for key in keys]
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(added)
    return "".join(
        f"{line},{more}\n"
        for line, more in zip(exported.splitlines(), text.getvalue().splitlines(), strict=True)
    )


def title(judging: str) -> str:
    """Return the number and title of the exercise of a judging cell, as text."""
    number = number_of(judging)
    exercise = exercises_of(number.partition(".")[0]).get(number)
    return f"{number} {exercise.title}" if exercise else number
