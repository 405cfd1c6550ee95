"""What Sphinx loads to build the site: mathematics as the lessons write it, docstrings, and the page's own files."""

import re
from collections.abc import Mapping
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

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


# Docstrings

CODE = re.compile(r"(`[^`]+`)")
MARKUP = re.compile(r"([\\*|_])")
SECTION = re.compile(r"(?:Args|Raises|Returns|Yields):$")


def to_restructured_text(docstring: str, where: Mapping[str, str]) -> str:
    """Return a docstring as reStructuredText: prose and lists as they are, what is set in columns as it stands."""
    made = []
    for paragraph in re.split(r"\n\s*\n", docstring):
        lines = paragraph.splitlines()
        indented = any(line[:1] == " " for line in lines)
        bullets = lines[:1] and all(line[:2] in ("- ", "  ") for line in lines) and lines[0][0] == "-"
        if indented and not bullets and not SECTION.match(lines[0]):
            made.append("\n".join(["::", "", *(f"    {line}" for line in lines)]))
        else:
            made.append(escape_prose(paragraph, where))
    return "\n\n".join(made)


def escape_prose(text: str, where: Mapping[str, str]) -> str:
    """Return text of a docstring as reStructuredText: code between backticks, all else as it stands.

    A mention of an equation, `(15.4)`, becomes a link to it, where `where` (`pages.anchors`) has it.
    """
    parts, pieces = [], CODE.split(text)
    for i, piece in enumerate(pieces):
        if CODE.fullmatch(piece):
            # An escaped space, which vanishes, where a letter touches the code.
            before = "\\ " if pieces[i - 1] and not pieces[i - 1][-1].isspace() else ""
            after = "\\ " if pieces[i + 1] and not pieces[i + 1][0].isspace() else ""
            parts.append(f"{before}`{piece}`{after}")
            continue
        end = 0
        for found in MENTION.finditer(piece):
            if found[1] in where:
                link = f"`({found[1]}) <../lessons/{where[found[1]]}>`__"
                parts += [MARKUP.sub(r"\\\1", piece[end : found.start()]), link]
                end = found.end()
        parts.append(MARKUP.sub(r"\\\1", piece[end:]))
    return "".join(parts)


def _docstring(app: Sphinx, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    lines[:] = to_restructured_text("\n".join(lines), app.config.course_anchors).splitlines()


def shorten_signature(signature: str) -> str:
    """Return a signature without the modules of its annotations: `Float[Tensor, "tokens d_model"]`."""
    return re.sub(r"~?\b(?:jaxtyping|torch|collections\.abc|typing|pathlib|numpy)\.(?=[A-Z])", "", signature)


def _signature(
    app: Sphinx, what: str, name: str, thing: Any, options: Any, signature: str | None, returns: str | None
) -> tuple[str | None, str | None]:
    return signature and shorten_signature(signature), returns and shorten_signature(returns)
