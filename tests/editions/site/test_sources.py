"""The sources: their list, what in a text names one, and links there and back."""

import re
from pathlib import Path

import pytest

from course_lib.editions.notebooks import read
from course_lib.editions.site import sources
from course_lib.editions.site.extension import escape_prose
from course_lib.lessons.catalog import LESSONS
from tests.editions.site.pages.conftest import ROOT

LIST = """# Sources

- **Fisher 1936.** Taxonomy.
- **Gu et al. 2020.** HiPPO. [arXiv:2008.07669](https://arxiv.org/abs/2008.07669)
- **Rao et al. 2024a.** One. [arXiv:2404.00001](https://arxiv.org/abs/2404.00001)
- **Rao et al. 2024b.** Other. [arXiv:2404.00002](https://arxiv.org/abs/2404.00002)
- **Sá, Yang and Hu 2020.** Widths. [arXiv:math/0702226](https://arxiv.org/abs/math/0702226)
"""
WHERE = sources.index(sources.read_sources(LIST))


@pytest.fixture(scope="module")
def listed():
    return (ROOT / "docs" / "sources.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def texts():
    """What lessons and library say, by page or module."""
    lessons = {lesson.name: sources.said(read(ROOT / "notebooks" / lesson.notebook)) for lesson in LESSONS}
    return lessons | sources.docstrings(ROOT / "course_lib")


@pytest.mark.parametrize(
    ("text", "linked"),
    [
        ("by Gu et al. (2020), arXiv:2008.07669.", "Gu et al. (2020), arXiv:2008.07669"),
        ("(Gu et al. 2020, arXiv:2008.07669; b)", "Gu et al. 2020, arXiv:2008.07669"),
        ("as in arXiv:2008.07669", "arXiv:2008.07669"),
        ("(**LDA**, Fisher, 1936) b", "Fisher, 1936"),
        ("(Fisher 1936)", "Fisher 1936"),
        ("of Sá, Yang and Hu (2020)", "Sá, Yang and Hu (2020)"),
        ("Sá and others 2020 x", "Sá and others 2020"),
        ("Rao et al. (2024), arXiv:2404.00002", "Rao et al. (2024), arXiv:2404.00002"),
    ],
)
def test_a_mention_becomes_a_link_to_its_entry(text, linked):
    made = sources.link_sources(text, WHERE, page="../sources.html")
    (found,) = re.findall(r'<a class="source" href="\.\./sources\.html#(source-[\w-]+)">(.*?)</a>', made)
    assert found[1] == linked
    assert re.sub(r"<[^>]*>", "", made) == text
    if "Rao" in text:
        assert found[0] == "source-rao-et-al-2024b"


@pytest.mark.parametrize(
    "text",
    [
        "Feature 1936 and Fisher in 1936 and arXiv:1111.11111",
        "Rao et al. 2024",  # two papers: which one, only a number says
        "`Fisher 1936` and $Fisher 1936$ and [Fisher 1936](x.html)",
        "## Fisher 1936",
        '<form aria-label="Fisher 1936">Fisher 1936</form>',
        "https://arxiv.org/abs/2008.07669",
    ],
)
def test_what_names_no_entry_stays_as_it_is(text):
    assert sources.link_sources(text, WHERE, page="p") == text


def test_in_a_docstring_a_mention_is_a_link_too_also_across_lines():
    made = escape_prose("Source: Gu et al.\n(2020). See (19.4); (Fisher 1936).", {"19.4": "a.html#b"}, WHERE)
    assert "`Gu et al. (2020) <../sources.html#source-gu-et-al-2020>`__. See" in made
    assert "`(19.4) <../lessons/a.html#b>`__" in made
    assert made.endswith("(`Fisher 1936 <../sources.html#source-fisher-1936>`__).")


def test_an_entry_leads_back_to_what_names_it():
    page = sources.sources_page(
        LIST,
        {"12_a": "by Gu et al. 2020", "13_b": "[this](https://arxiv.org/abs/2008.07669)"},
        {"course_lib.attention.ridge": "Source: Fisher (1936)."},
        WHERE,
    )
    entries = dict(re.findall(r'^- .*?id="([^"]+)">.*?\*\*(.*)$', page, re.MULTILINE))
    assert re.findall(r'<a href="([^"]+)">', entries["source-gu-et-al-2020"]) == [
        "lessons/12_a.html",
        "lessons/13_b.html",
    ]
    assert re.findall(r'<a href="([^"]+)">', entries["source-fisher-1936"]) == [
        "api/course_lib.attention.html"
    ]
    assert "Named in" not in entries["source-rao-et-al-2024a"]


def test_a_list_that_cannot_be_right_is_refused():
    with pytest.raises(ValueError, match="none was found"):
        sources.read_sources("# Sources\n\n- Fisher 1936. Taxonomy\n")
    with pytest.raises(ValueError, match="several of source-fisher-1936"):
        sources.read_sources(LIST + "- **Fisher 1936.** Again.\n")


def test_the_list_is_in_order_and_its_numbers_are_its_links(listed):
    found = sources.read_sources(listed)
    names = [source.name for source in found]
    assert len(names) > 80
    assert names == sorted(names, key=str.casefold)
    links = re.findall(r"\[arXiv:([^\]]+)\]\(https://arxiv\.org/abs/([^)]+)\)", listed)
    assert len(links) == listed.count("[arXiv:")
    assert [pair for pair in links if pair[0] != pair[1]] == []
    assert len({number for number, _ in links}) == len(links)


def unlisted(text, where):
    """What looks like a source and has no entry: a number, and a name with "et al." or "and" and a year."""
    mentions = [mention for mention in sources.MENTION.finditer(text) if not sources.entry_of(mention, where)]
    return [one[0] for one in mentions if "arXiv" in one[0] or " and " in one[0] or "et al" in one[0]]


def test_all_that_lessons_and_library_name_is_listed_and_nothing_else_is(listed, texts):
    found = sources.read_sources(listed)
    where = sources.index(found)
    assert {name: unlisted(text, where) for name, text in texts.items() if unlisted(text, where)} == {}
    named = set().union(*(sources.named_in(text, where) for text in texts.values()))
    assert {source.anchor for source in found} - named == set()
    # Both checks can fail.
    fewer = {key: anchor for key, anchor in where.items() if anchor != where["1706.03762"]}
    assert unlisted(texts["17_attention_scaling"], fewer) == ["Vaswani et al. 2017, arXiv:1706.03762"]
    assert where["1706.03762"] not in set().union(*(sources.named_in(text, fewer) for text in texts.values()))


def test_docstrings_are_those_of_modules_that_have_a_page(tmp_path):
    package = tmp_path / "course_lib"
    for name, text in {
        "attention/__init__.py": '"""One."""\n',
        "attention/a.py": '"""Two."""\ndef f():\n    """Three."""\n',
        "lessons/b.py": '"""Four."""\n',
        "attention/_private.py": '"""Five."""\n',
    }.items():
        path = package / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    found = sources.docstrings(Path(package))
    assert {name: text.split() for name, text in found.items()} == {
        "course_lib.attention": ["One."],
        "course_lib.attention.a": ["Two.", "Three."],
    }
