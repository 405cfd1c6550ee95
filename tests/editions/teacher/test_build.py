"""What the edition is joined from: links to lessons that were not made, the first page, what is kept."""

import nbformat
import pytest

from course_lib.editions.teacher import build
from course_lib.editions.teacher.plan import page
from course_lib.lessons.catalog import LESSONS
from tests.editions.teacher.conftest import NOTEBOOKS


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("[a](01_x.ipynb) and [b](../plans/02_y.md#Z)", "[a](01_x.ipynb) and b"),
        ('<a href="../lessons/01_x.html">a</a><a href="../lessons/02_y.html#Z">b</a>', None),
        ("[web](https://example.org/02_y.md) $a[1](2)$", None),
    ],
)
def test_links_to_lessons_that_were_not_made_are_text(text, kept):
    if kept is None and "lessons" in text:
        kept = '<a href="../lessons/01_x.html">a</a>b'
    assert build.unlink_missing(text, {"01"}) == (kept or text)


def test_the_first_page_leads_to_all_that_was_made():
    made = [LESSONS[1], LESSONS[12]]
    page = build.index(made)
    for lesson in made:
        name = lesson.notebook.removesuffix(".ipynb")
        for link in (
            f"(plans/{name}.md)",
            f"(lessons/{name}.ipynb)",
            f"(banks/{name}.md)",
            f'"slides/{name}.html"',
        ):
            assert link in page
        assert f"\n\nplans/{name}\n```" in page
    assert "02" not in page
    assert "## I Optimisation" in page
    assert "## IV" not in page


def test_a_page_for_the_sidebar_stands_where_the_slides_will(tmp_path, lesson, notebook, register):
    for name, text in (("plans.md", "plan"), ("banks.md", "bank"), ("predictions.json", "{}")):
        (tmp_path / name).write_text(text)
    page_of_it = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell("# A lesson")])
    nbformat.write(page_of_it, tmp_path / "notebook.ipynb")
    made = build.pages({lesson: tmp_path}, {}, tmp_path)
    assert made[f"slides/{lesson.name}.md"] == f"# 01 Slides: {lesson.title}"
    plan = page(lesson, notebook, register, [], 1.0)
    assert plan.endswith(f"../lessons/{lesson.name}\n../banks/{lesson.name}\n../slides/{lesson.name}\n```")


@pytest.mark.parametrize(("numbers", "workers", "match"), [(["99"], 1, "99"), (["00"], 0, "workers")])
def test_wrong_arguments_are_named(tmp_path, numbers, workers, match):
    with pytest.raises(ValueError, match=match):
        build.build(NOTEBOOKS, tmp_path, work=tmp_path, numbers=numbers, workers=workers)
