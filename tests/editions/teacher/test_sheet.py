"""A plan on one page: its minutes follow on each other, it names what is asked and done, and A4 holds it."""

import re

import pytest
from typer.testing import CliRunner

from course_lib.__main__ import app
from course_lib.editions.teacher import sheet
from course_lib.editions.teacher.plan import assign_minutes
from course_lib.lessons import contents_of
from course_lib.lessons.catalog import LESSONS
from tests.browser.conftest import browser, chromium  # noqa: F401
from tests.editions.teacher.conftest import NOTEBOOKS, stored


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.number)
def test_the_minutes_follow_on_each_other_and_everything_is_done_once(lesson):
    notebook, register = stored(lesson), contents_of(lesson)
    timed = assign_minutes(lesson, notebook, register)
    rows = sheet.schedule(timed, register)
    spans = [tuple(map(int, minutes.split("–"))) for minutes, _, _ in rows]
    assert spans[0][0] == 0
    assert spans[-1][1] == lesson.minutes
    assert [end for _, end in spans[:-1]] == [start for start, _ in spans[1:]]
    said = " ".join(done for _, _, done in rows)
    later = {number for part, _ in timed if part.appendix for number in part.exercises}
    assert sorted(re.findall(r"\d\d\.P?\d+", said)) == sorted(
        {*register.predictions, *register.exercises} - later
    )
    tasks = sum(
        len(re.findall(r"^- ", cell.source, re.M))
        for cell in notebook.cells
        if cell.cell_type == "markdown" and cell.source.startswith("**Tasks.**")
    )
    assert sum(map(int, re.findall(r"explorer, (\d+) task", said))) == tasks


def test_the_page_says_what_to_watch_for(lesson, notebook, register):
    page = sheet.page(lesson, notebook, register)
    for said, why in sheet.watch_for(register):
        assert sheet.line(said) in page
        assert sheet.line(why) in page
    assert len(sheet.watch_for(register)) == 5
    assert "Rounding" in page or "rounded up, right on" in page
    assert ".ipynb" not in page
    assert "01.5</td><td>One step for a matrix (appendix: for later)" in page
    for ask in register.predictions.values():
        answer = ask.example().answer
        assert f"{sheet.line(ask.question)} <strong>Answer:</strong> {sheet.line(answer)}</li>" in page


def test_a_line_keeps_formulas_and_loses_links():
    made = sheet.line("Lesson [17](17_attention_scaling.ipynb#A) and $x_1 < y_2$ in `code`\nand **more**")
    assert made == "Lesson 17 and $x_1 &lt; y_2$ in <code>code</code> and <strong>more</strong>"


@pytest.mark.browser
def test_a_page_is_one_sheet_of_a4_and_needs_no_network(tmp_path, browser):  # noqa: F811
    done = CliRunner().invoke(
        app, ["plan", "01", "32", "--notebooks", str(NOTEBOOKS), "--out", str(tmp_path)]
    )
    assert done.exit_code == 0, done.output
    paths = sorted(tmp_path.glob("*.html"))
    assert [path.name[:2] for path in paths] == ["01", "32"]
    page = browser.new_page()
    requested = []
    page.on("request", lambda request: requested.append(request.url))
    for path in paths:
        page.goto(path.as_uri())
        page.evaluate("() => MathJax.startup.promise")
        assert page.locator("mjx-merror").count() == 0
        printed = page.pdf(prefer_css_page_size=True)
        assert len(re.findall(rb"/Type\s*/Page\b", printed)) == 1
        assert re.search(rb"/MediaBox \[0 0 59[45]\.\d+ 84[12]\.\d+\]", printed)
    assert [url for url in requested if not url.startswith(("file:", "data:", "blob:"))] == []
    page.close()


def test_an_unknown_lesson_is_named_and_nothing_is_written(tmp_path):
    out = tmp_path / "out"
    done = CliRunner().invoke(app, ["plan", "99", "--notebooks", str(NOTEBOOKS), "--out", str(out)])
    assert done.exit_code == 2
    assert "no notebook of lesson 99" in done.stderr
    assert not out.exists()
