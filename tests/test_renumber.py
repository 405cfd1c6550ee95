"""The lessons get the numbers of their order, and nothing else changes: ids, links and names, no decimals."""

from pathlib import Path

import pytest

from tests.renumber import CATALOG, ROWS, Renumbering, UnresolvedError, defined_in, read, renumbered, tracked

ROOT = Path(__file__).resolve().parents[1]
ROW = '        ("{}", "{}", "A title", "I", "{}", 60),\n'
# The second lesson was put in between: it has a free number.
SHUFFLED = (("00", "start", ""), ("12", "second", "00"), ("10", "first", "00 12"))
FOUND = {"10.1", "10.2", "10.m1", "10.P1", "12.1", "12.5", "00.1"}


def catalog(rows=SHUFFLED) -> str:
    return (
        "LESSONS = tuple(\n    Lesson(*row)\n    for row in (\n"
        + "".join(ROW.format(*row) for row in rows)
        + '    )\n)\nPATHS = {"A": ("12", "10")}\n\n# The name that a reader meets\nREST = 12\n'
    )


@pytest.fixture
def plan() -> Renumbering:
    return Renumbering(catalog(), FOUND)


@pytest.mark.parametrize(
    ("text", "made"),
    [
        (
            "Lesson [10](10_first.ipynb), then lessons 10 and 12",
            "Lesson [02](02_first.ipynb), then lessons 02 and 01",
        ),
        ('make store LESSONS="10 12"; course plan 10', 'make store LESSONS="02 01"; course plan 02'),
        ("course hand-out runs/a 10 12 --points p", "course hand-out runs/a 02 01 --points p"),
        ("to 10 A title or 10 others", "to 02 A title or 10 others"),
        ("by (10.1), (10.2) and (12.5)", "by (02.1), (02.2) and (01.5)"),
        ("(10.1, 12.1)", "(02.1, 01.1)"),
        (r"$$x \tag{10.1}$$, exercise 10.2; 10.m1 holds", r"$$x \tag{02.1}$$, exercise 02.2; 02.m1 holds"),
        ("**10.1 A title.** `10.P1`, <b>10.2</b>", "**02.1 A title.** `02.P1`, <b>02.2</b>"),
        # Figures, and words that only look like names.
        ("10.1 ms (12.1 to 12.5), ≈10.2 and 110.1, 10.15", "10.1 ms (12.1 to 12.5), ≈10.2 and 110.1, 10.15"),
        ("10_000 rows, 12_layers, 10 lessons", "10_000 rows, 12_layers, 10 lessons"),
        ("version 10.1.2, 00.1", "version 10.1.2, 00.1"),
    ],
)
def test_ids_and_figures_are_told_apart(plan, text, made):
    assert plan.file("docs/page.md", text) == made
    assert plan.unresolved == []


def test_in_python_only_strings_and_comments_have_ids(plan):
    source = 'size = (10.1, 12.5)  # by (10.1)\nwords = f"({x}) see (12.5)", "10.1"\n'
    made = 'size = (10.1, 12.5)  # by (02.1)\nwords = f"({x}) see (01.5)", "02.1"\n'
    assert plan.file("course_lib/a.py", source) == made


def test_the_catalogue_has_the_numbers_of_its_order(plan):
    made = plan.file(CATALOG, catalog())
    assert [row for row in ROWS.findall(made)] == [
        ("00", "start", ""), ("01", "second", "00"), ("02", "first", "00 01"),
    ]  # fmt: skip
    assert '{"A": ("01", "02")}' in made
    assert "REST = 12" in made


def test_the_metadata_of_a_page_are_renumbered(plan):
    page = '{\n "course": {\n   "number": "10",\n   "prerequisites": [\n    "00",\n    "12"\n   ]\n }, "places": "10"}'
    made = plan.file("notebooks/10_first.ipynb", page)
    assert made == page.replace('"number": "10"', '"number": "02"').replace('"12"', '"01"')
    assert plan.name("notebooks/10_first.ipynb") == "notebooks/02_first.ipynb"


def test_what_learners_answered_is_carried_over(plan):
    assert plan.answered() == {
        "10.1": "02.1",
        "10.2": "02.2",
        "10.P1": "02.P1",
        "12.1": "01.1",
        "12.5": "01.5",
    }


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("by (10.7)", "10.7 is no exercise"),
        ("claim 10.m9", "10.m9 is no exercise"),
        ("lesson 11", "there is no lesson 11"),
        ("lessons 10 to 12", "lessons 10 to 12 will be"),
        ("[11](a.ipynb)", "there is no lesson 11"),
        ("notebooks/12_first.ipynb", "12_first is lesson 10"),
    ],
)
def test_a_reference_that_does_not_resolve_is_refused(text, why):
    with pytest.raises(UnresolvedError, match=why):
        renumbered({CATALOG: catalog(), "notebooks/10_first.ipynb": '"10.1"', "docs/page.md": text})


def test_two_lessons_with_one_number_are_refused():
    with pytest.raises(UnresolvedError, match="two lessons have the number 10"):
        Renumbering(catalog((*SHUFFLED, ("10", "third", ""))), FOUND)


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    """The project without most of its pages, which are long: their ids are left."""
    known = read(ROOT, tracked(ROOT))
    keep = ("notebooks/00_", "notebooks/01_", "course_lib/", "docs/", "tests/test_")
    short = {path: text for path, text in known.items() if path.startswith(keep) or path == "README.md"}
    pages = {path: text for path, text in known.items() if path.startswith("notebooks/")}
    return short | {path: ids_alone(text) for path, text in pages.items() if path not in short}


def ids_alone(page: str) -> str:
    """The ids of a page, as a JSON text."""
    return "{" + ", ".join(f'"{one}": 0' for one in sorted(defined_in({"notebooks/x": page}))) + "}"


def test_in_its_own_order_nothing_of_the_project_changes(texts):
    assert renumbered(texts) == ({}, {})


def test_there_and_back_the_project_is_the_same(texts):
    """Every lesson but the first gets the number of another one, and then its own again.

    What fails here is an id that stands bare, as 01.3 does, so that another number would look like a decimal: put it
    into quotation marks or backticks.
    """
    rows = [found[0] for found in ROWS.finditer(texts[CATALOG])]
    turned = [rows[0], *reversed(rows[1:])]
    there = applied(texts, turned)
    assert "notebooks/01_gradient_descent_stability.ipynb" not in there
    rows = [found[0] for found in ROWS.finditer(there[CATALOG])]
    assert applied(there, [rows[0], *reversed(rows[1:])]) == texts


def applied(texts: dict[str, str], rows: list[str]) -> dict[str, str]:
    """The files after their catalogue's rows were put into another order and all was renumbered."""
    order = iter(rows)
    texts = texts | {CATALOG: ROWS.sub(lambda _: next(order), texts[CATALOG])}
    changed, _ = renumbered(texts)
    return dict(changed.get(path, (path, text)) for path, text in texts.items())
