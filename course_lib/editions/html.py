"""Pages with Sphinx: what the site and the teacher's edition have in common, from Markdown to accessible HTML."""

import importlib.util
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

from sphinx.application import Sphinx

from course_lib.editions.cache import sources

STATIC = Path(__file__).parent / "site" / "static"


def toctree(caption: str, entries: Iterable[str]) -> str:
    """Return a table of contents, in MyST Markdown, that only the sidebar shows."""
    lines = "\n".join(entries)
    return f"```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{lines}\n```"


def write(source: Path, pages: Mapping[str, str]) -> None:
    """Write pages into the folder `source`, those that changed, and remove pages of an earlier build."""
    for name, text in pages.items():
        path = source / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
    for path in source.rglob("*.*"):
        if path.suffix in (".md", ".rst", ".ipynb") and path.relative_to(source).as_posix() not in pages:
            path.unlink()


@contextmanager
def building(doctrees: Path) -> Iterator[bool]:
    """Say in the block whether all pages must be made anew: an earlier build into `doctrees` did not come to its end.

    Sphinx takes a page that is newer than its text for done, also one that was cut off.
    """
    mark = doctrees / "unfinished"
    anew = mark.exists()
    doctrees.mkdir(parents=True, exist_ok=True)
    mark.touch()
    yield anew
    mark.unlink()


def sphinx(
    source: Path,
    out: Path,
    doctrees: Path,
    where: Mapping[str, str],
    *,
    title: str,
    anew: bool = False,
    more: Mapping[str, Any] = MappingProxyType({}),
) -> int:
    """Make HTML of the pages in `source`, with `more` settings; return the number of warnings, which Sphinx prints.

    Pages whose texts did not change are left alone, unless they are to be made `anew`.
    """
    settings = {
        "project": title,
        "html_title": title,
        "extensions": [
            "myst_nb",
            "sphinx_copybutton",
            "sphinx.ext.autodoc",
            "sphinx.ext.githubpages",
            "sphinx.ext.napoleon",
            "course_lib.editions.site.extension",
        ],
        "html_theme": "furo",
        "html_static_path": [str(STATIC)],
        "html_favicon": str(STATIC / "icon.svg"),
        "html_math_renderer": "course",
        "html_copy_source": False,
        "html_show_sphinx": False,
        "html_show_copyright": False,
        "html_theme_options": {"navigation_with_keys": True},
        "nb_execution_mode": "off",
        "nb_merge_streams": True,
        "myst_enable_extensions": ["dollarmath", "amsmath"],
        "myst_heading_anchors": 4,
        "myst_heading_slug_func": "course_lib.editions.site.pages.jupyter_slug",
        "autodoc_member_order": "bysource",
        "autodoc_mock_imports": ["triton"],  # comes with an extra of its own
        "autodoc_typehints": "signature",
        "autodoc_use_type_comments": False,
        "autodoc_typehints_format": "short",
        "python_use_unqualified_type_names": True,
        "python_maximum_signature_line_length": 80,
        "add_module_names": False,
        "toc_object_entries_show_parents": "hide",
        "napoleon_numpy_docstring": False,
        "course_anchors": dict(where),
        "course_sources": sources(["editions"]),
        **more,
    }
    if anew:  # pages name the digests of these files, of which one may be cut off
        shutil.rmtree(out / "_static", ignore_errors=True)
    app = Sphinx(source, None, out, doctrees, "html", confoverrides=settings, freshenv=anew)
    app.build(force_all=anew)
    return app._warncount


# What the theme leaves without a name, a level or a heading, with what assistive technology needs.
UNNAMED = (
    ('<p class="caption" role="heading">', '<p class="caption" role="heading" aria-level="2">'),
    ('<aside class="sidebar-drawer">', '<aside class="sidebar-drawer" aria-label="All pages">'),
    ('<aside class="toc-drawer">', '<aside class="toc-drawer" aria-label="On this page">'),
    (
        '<noscript>\n<div class="admonition error">',
        '<h1>Search</h1>\n<noscript><div class="admonition error">',
    ),
)
# A header without words is none: the corner of a table is an ordinary cell.
CORNER = re.compile(r"<th\b[^>]*>(<p></p>)?</th>")
PARAMETERS = re.compile(r'<dl>\n((?:<dd><em class="sig-param">.*?</dd>\n)+)</dl>', re.S)


def make_accessible(folder: Path) -> None:
    """Make all pages of the theme in a folder accessible, see `name_landmarks`."""
    for path in folder.rglob("*.html"):
        made = path.read_text(encoding="utf-8")
        if (named := name_landmarks(made)) != made:
            path.write_text(named, encoding="utf-8")


def name_landmarks(html: str) -> str:
    """Return a page of the theme with names for its landmarks and headings; a second call changes nothing.

    The parameters of a long signature, which Sphinx writes as definitions without terms, become a list.
    """
    for found, named in UNNAMED:
        html = html.replace(found, named)
    return PARAMETERS.sub(_listed, CORNER.sub("<td></td>", html))


def _listed(rows: re.Match[str]) -> str:
    entries = rows[1].replace("<dd>", "<li>").replace("</dd>", "</li>")
    return f'<ul class="course-parameters">\n{entries}</ul>'


def mathjax(folder: Path) -> None:
    """Put MathJax and its fonts, which a package brings along, into `folder`."""
    found = importlib.util.find_spec("sphinx-mathjax-offline")
    if found is None:
        raise FileNotFoundError(
            "MathJax is not installed: pip install sphinx-mathjax-offline, or run make site"
        )
    kept = Path(found.origin).parent / "static" / "mathjax"
    fonts = Path("output") / "chtml" / "fonts" / "woff-v2"
    shutil.copytree(kept / fonts, folder / fonts, dirs_exist_ok=True)
    shutil.copy(kept / "tex-chtml.js", folder)
