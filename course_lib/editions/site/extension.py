"""What Sphinx loads to build the site: mathematics as the lessons write it, docstrings, and the page's own files."""

import html
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

from course_lib.editions.site import sources
from course_lib.editions.site.front import issue
from course_lib.editions.site.pages import MENTION

# MathJax typesets what has the class, and nothing else of the page.
MATHJAX = """window.MathJax = {
  options: {ignoreHtmlClass: ".*", processHtmlClass: "math", enableMenu: false},
  tex: {inlineMath: [["\\\\(", "\\\\)"]], displayMath: [["\\\\[", "\\\\]"]]},
};"""
# Set before anything is drawn, so that what waits for a guess is not seen first.
SCRIPTS = 'document.documentElement.classList.add("course-scripts");'


def setup(app: Sphinx) -> dict[str, Any]:
    """Register everything with Sphinx."""
    app.add_config_value("course_anchors", {}, "env")
    app.add_config_value("course_named", {}, "env")
    app.add_config_value("course_correct", "", "env")
    app.add_config_value("course_repository", "", "env")
    # Pages that did not change are written anew when what makes them did.
    app.add_config_value("course_sources", "", "env")
    app.add_html_math_renderer("course", (_inline, None), (_displayed, None))
    app.add_css_file("course.css")
    app.add_js_file(None, body=SCRIPTS)
    app.add_js_file("course.js", loading_method="defer")
    # Before napoleon reads the sections.
    app.connect("autodoc-process-docstring", _docstring, priority=100)
    app.connect("autodoc-process-signature", _signature)
    app.connect("html-page-context", _context)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _inline(self: Any, node: nodes.math) -> None:
    self.body.append(f'<span class="math notranslate">\\({self.encode(node.astext())}\\)</span>')
    raise nodes.SkipNode


def _displayed(self: Any, node: nodes.math_block) -> None:
    # The lessons write their own environments and tags: nothing is put round them.
    text = self.encode(node.astext())
    self.body.append(
        f'<div class="math displayed notranslate">{text if node.get("nowrap") else f"{chr(92)}[{text}{chr(92)}]"}</div>\n'
    )
    raise nodes.SkipNode


def _context(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None
) -> None:
    if doctree is not None and (
        next(doctree.findall(nodes.math), None) or next(doctree.findall(nodes.math_block), None)
    ):
        app.add_js_file(None, body=MATHJAX, priority=490)
        app.add_js_file("mathjax/tex-chtml.js", loading_method="defer", priority=495)
    if toctree := context.get("toctree"):
        # The theme asks for all levels, and Sphinx copies every function of the library for every page before it drops
        # what is no page: two levels hold all pages, in a third of the time.
        context["toctree"] = lambda **asked: toctree(**{**asked, "maxdepth": 2})
    if "body" in context and app.config.course_correct not in ("", page):
        context["body"] += how_to_correct(
            page, app.builder.get_relative_uri(page, app.config.course_correct), app.config.course_repository
        )


def how_to_correct(page: str, place: str, repository: str) -> str:
    """Return the last line of a page: how it is corrected, by the page at `place`, and by a form where that is known."""
    ways = [f'<a href="{place}">How to correct it</a>.']
    if repository:
        ways.insert(0, f'<a href="{html.escape(issue(repository, page))}">Say so</a>.')
    return f'<p class="course-correct">Something wrong on this page? {" ".join(ways)}</p>'


# Docstrings

CODE = re.compile(r"(`[^`]+`)")
MARKUP = re.compile(r"([\\*|_])")
SECTION = re.compile(r"(?:Args|Raises|Returns|Yields):$")


def to_restructured_text(
    docstring: str, where: Mapping[str, str], named: Mapping[str, str] = MappingProxyType({})
) -> str:
    """Return a docstring as reStructuredText: prose and lists as they are, what is set in columns as it stands."""
    made = []
    for paragraph in re.split(r"\n\s*\n", docstring):
        lines = paragraph.splitlines()
        indented = any(line[:1] == " " for line in lines)
        bullets = lines[:1] and all(line[:2] in ("- ", "  ") for line in lines) and lines[0][0] == "-"
        if indented and not bullets and not SECTION.match(lines[0]):
            made.append("\n".join(["::", "", *(f"    {line}" for line in lines)]))
        else:
            made.append(escape_prose(paragraph, where, named))
    return "\n\n".join(made)


def escape_prose(text: str, where: Mapping[str, str], named: Mapping[str, str] = MappingProxyType({})) -> str:
    """Return text of a docstring as reStructuredText: code between backticks, all else as it stands.

    A mention of an equation, `(19.4)`, becomes a link to it, where `where` (`pages.anchors`) has it; that of a source,
    `Su et al. 2021`, a link to its entry, where `named` (`sources.index`) has it.
    """
    parts, pieces = [], CODE.split(text)
    for i, piece in enumerate(pieces):
        if CODE.fullmatch(piece):
            # An escaped space, which vanishes, where a letter touches the code.
            before = "\\ " if pieces[i - 1] and not pieces[i - 1][-1].isspace() else ""
            after = "\\ " if pieces[i + 1] and not pieces[i + 1][0].isspace() else ""
            parts.append(f"{before}`{piece}`{after}")
            continue
        links = [
            (found.span(), f"({found[1]})", f"../lessons/{where[found[1]]}", "")
            for found in MENTION.finditer(piece)
            if found[1] in where
        ]
        for found in sources.MENTION.finditer(piece):
            if anchor := sources.entry_of(found, named):
                name, rest = sources.trim(" ".join(found[0].split()))
                links.append((found.span(), name, f"../sources.html#{anchor}", rest))
        end = 0
        for (start, after), shown, place, rest in sorted(links):
            before = MARKUP.sub(r"\\\1", piece[end:start])
            parts += [before, f"`{shown} <{place}>`__{rest}"]
            end = after
        parts.append(MARKUP.sub(r"\\\1", piece[end:]))
    return "".join(parts)


def _docstring(app: Sphinx, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    lines[:] = to_restructured_text(
        "\n".join(lines), app.config.course_anchors, app.config.course_named
    ).splitlines()


def shorten_signature(signature: str) -> str:
    """Return a signature without the modules of its annotations: `Float[Tensor, "tokens d_model"]`."""
    return re.sub(r"~?\b(?:jaxtyping|torch|collections\.abc|typing|pathlib|numpy)\.(?=[A-Z])", "", signature)


def _signature(
    app: Sphinx, what: str, name: str, thing: Any, options: Any, signature: str | None, returns: str | None
) -> tuple[str | None, str | None]:
    return signature and shorten_signature(signature), returns and shorten_signature(returns)
