"""What the edition is joined from: links to lessons that were not made, the first page, what is kept."""

import pytest

from course_lib.editions.teacher import build
from course_lib.lessons.catalog import LESSONS


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
    assert build.reachable(text, {"01"}) == (kept or text)


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


def test_a_changed_source_has_another_hash(tmp_path):
    same = build.sources(["editions/teacher"], b"a")
    assert build.sources(["editions/teacher"], b"a") == same
    assert build.sources(["editions/teacher"], b"b") != same
    assert build.sources(["editions/teacher/solved.py"], b"a") != same


def test_a_new_folder_takes_the_place_of_the_old_ones_of_its_lesson(tmp_path):
    lesson = LESSONS[1]
    (tmp_path / "01-old").mkdir()
    (tmp_path / "02-other").mkdir()
    with pytest.raises(RuntimeError), build.only(tmp_path / "01-new", lesson):
        raise RuntimeError
    assert [path.name for path in build.kept(tmp_path, lesson)] == ["01-old"]
    with build.only(tmp_path / "01-new", lesson) as folder:
        (folder / "text").touch()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["01-new", "02-other"]


@pytest.mark.parametrize(("numbers", "workers", "match"), [(["99"], 1, "99"), ([], 0, "workers")])
def test_wrong_arguments_are_named(tmp_path, numbers, workers, match):
    with pytest.raises(ValueError, match=match):
        build.build(tmp_path, tmp_path, work=tmp_path, numbers=numbers, workers=workers)
