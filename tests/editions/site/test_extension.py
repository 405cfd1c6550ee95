"""Docstrings and signatures as the library's pages show them."""

import re
from html import unescape

import pytest
from docutils.core import publish_string
from docutils.utils import Reporter

from course_lib.editions.site.extension import (
    escape_prose,
    how_to_correct,
    shorten_signature,
    to_restructured_text,
)

WHERE = {"19.4": "15_a.html#eq-15.4"}


def html(text):
    """What docutils makes of reStructuredText; a warning is an error."""
    settings = {
        "report_level": Reporter.INFO_LEVEL,
        "halt_level": Reporter.INFO_LEVEL,
        "warning_stream": False,
    }
    return publish_string(text, writer="html5", settings_overrides=settings).decode()


def text_of(made):
    """The words of a page's body."""
    body = made.partition("<main>")[2].partition("</main>")[0]
    return " ".join(unescape(re.sub(r"<[^>]*>", "", body)).split())


@pytest.mark.parametrize(
    "docstring",
    [
        "sim(q, k) = |a*b| + w_ ** 2, with `x_i`s and `a*`.",
        "A sum * of two\n`names that\nbreak`, and trailing_ names_.",
        "- one: `a`\n  and more\n- two",
        "Rules:\n    a: 1\n        b: 2\n  c",
        "    columns   of\n    a   table",
    ],
)
def test_a_docstring_keeps_its_words(docstring):
    words = " ".join(docstring.replace("`", "").split())
    assert text_of(html(to_restructured_text(docstring, {}))).replace("- ", "") == words.replace("- ", "")


def test_columns_stand_as_they_are_and_prose_does_not():
    made = html(to_restructured_text("Prose.\n\n    a    b\n    1    2", {}))
    assert "<p>Prose.</p>" in made
    assert "a    b\n" in made
    assert "<pre" in made


def test_an_equation_is_a_link_where_it_is_known():
    made = html(escape_prose("by (19.4), not (99.1) or `(19.4)`", WHERE))
    assert made.count("../lessons/15_a.html#eq-15.4") == 1
    assert text_of(made) == "by (19.4), not (99.1) or (19.4)"


def test_a_section_is_left_to_napoleon():
    text = "Raises:\n    ValueError: `x` is not above 0."
    assert to_restructured_text(text, {}).startswith("Raises:\n    ValueError: ")


def test_annotations_are_read_without_their_modules():
    raw = "(q: ~jaxtyping.Float[Tensor, '... q_len d'], *, mask: ~torch.Tensor | None, g: torch.nn.Module) -> x.torchy.A"
    shown = "(q: Float[Tensor, '... q_len d'], *, mask: Tensor | None, g: torch.nn.Module) -> x.torchy.A"
    assert shorten_signature(raw) == shown


def test_a_page_leads_to_how_it_is_corrected_and_to_the_form_where_that_is_known():
    assert how_to_correct("lessons/a", "../correct.html", "").count("<a ") == 1
    made = how_to_correct("lessons/a", "../correct.html", "someone/a-course")
    assert "https://github.com/someone/a-course/issues/new?template=mistake.yml&amp;page=lessons%2Fa" in made
    assert 'href="../correct.html"' in made
