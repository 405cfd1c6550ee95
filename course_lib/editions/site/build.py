"""Build the site: gather the facts, write the pages, let Sphinx make HTML of them."""

import hashlib
import importlib.util
import json
import pkgutil
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

import nbformat
from nbformat import NotebookNode
from sphinx.application import Sphinx

import course_lib
from course_lib.editions.site import front, symbols
from course_lib.editions.site.facts import gather
from course_lib.editions.site.pages import anchors, documented, library_page, page
from course_lib.lessons.catalog import LESSONS

STATIC = Path(__file__).parent / "static"
TITLE = "Why the rules of deep learning hold"


def build(
    notebooks: Path, out: Path, *, work: Path, readme: Path, repository: str = "", workers: int = 1
) -> int:
    """Build the site of the lessons in the folder `notebooks` into the folder `out`; return the number of warnings.

    `work` keeps what a later build uses again. `readme` is the page whose table of measurements the front page shows.
    `repository`, "owner/name" on GitHub, adds a link that opens each lesson on Binder.

    Raises:
        FileNotFoundError: a lesson's notebook or a file of the site is not there.
        ValueError: two equations have one number, or `repository` is no "owner/name".
    """
    stored = {lesson.notebook: read(notebooks / lesson.notebook) for lesson in LESSONS}
    facts = gather(work / "frames", workers=workers)
    where = anchors(stored)
    source = work / "source"
    pages = {
        "index.md": front.index(stored, facts, readme.read_text(encoding="utf-8")),
        "open.md": front.open_page(repository),
        "symbols.md": front.symbols_page(facts),
        **library(),
    }
    for lesson in LESSONS:
        found = symbols.places(stored[lesson.notebook], lesson.number)
        made = page(
            stored[lesson.notebook],
            lesson,
            facts[lesson.number],
            where,
            pictures=source / "lessons" / "pictures",
            introduced={symbols.anchor_of(lesson.number, one): cell for one, cell in found.items()},
        )
        pages[f"lessons/{lesson.notebook}"] = json.dumps(made, ensure_ascii=False)
    write(source, pages)
    warnings = sphinx(source, out, work / "doctrees", where)
    # Frames of an earlier build have other folders.
    shutil.rmtree(out / "_explorers", ignore_errors=True)
    shutil.copytree(work / "frames", out / "_explorers", ignore=shutil.ignore_patterns("*.json", ".*"))
    mathjax(out / "_static" / "mathjax")
    name_all(out)
    return warnings


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


def name_all(folder: Path) -> None:
    """Make all pages of the theme in a folder accessible, see `accessible`."""
    for path in folder.rglob("*.html"):
        made = path.read_text(encoding="utf-8")
        if (named := accessible(made)) != made:
            path.write_text(named, encoding="utf-8")


def accessible(html: str) -> str:
    """Return a page of the theme with names for its landmarks and headings; a second call changes nothing.

    The parameters of a long signature, which Sphinx writes as definitions without terms, become a list.
    """
    for found, named in UNNAMED:
        html = html.replace(found, named)
    return PARAMETERS.sub(_listed, CORNER.sub("<td></td>", html))


def _listed(rows: re.Match[str]) -> str:
    entries = rows[1].replace("<dd>", "<li>").replace("</dd>", "</li>")
    return f'<ul class="course-parameters">\n{entries}</ul>'


def read(path: Path) -> NotebookNode:
    """Read the stored notebook of a lesson.

    Raises:
        FileNotFoundError: it is not there.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path} is not there: the notebook of every lesson is needed")
    return nbformat.read(path, as_version=4)


def library() -> dict[str, str]:
    """Return the pages of the library, one a package with a section for each module, and their index."""
    pages: dict[str, list[str]] = {}
    for module in pkgutil.walk_packages(course_lib.__path__, "course_lib."):
        if documented(module.name):
            name = module.name
            section = (
                f"{name}\n{'-' * len(name)}\n\n.. automodule:: {name}\n   :members:\n   :ignore-module-all:\n"
            )
            pages.setdefault(library_page(name), []).append(section)
    made = {
        f"{page}.rst": "\n".join([f"{Path(page).name}\n{'=' * len(Path(page).name)}\n", *sections])
        for page, sections in sorted(pages.items())
    }
    entries = "\n".join(Path(page).name for page in sorted(pages))
    made["api/index.md"] = (
        "# The library\n\nEvery public function states the shapes of its tensors, units and ranges, the errors that it "
        f"raises and its source.\n\n```{{toctree}}\n:maxdepth: 2\n\n{entries}\n```\n"
    )
    return made


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


def sphinx(source: Path, out: Path, doctrees: Path, where: Mapping[str, str], *, title: str = TITLE) -> int:
    """Make HTML of the pages in `source`; return the number of warnings, which Sphinx prints."""
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
        "autodoc_typehints": "signature",
        "autodoc_typehints_format": "short",
        "python_use_unqualified_type_names": True,
        "python_maximum_signature_line_length": 80,
        "add_module_names": False,
        "toc_object_entries_show_parents": "hide",
        "napoleon_numpy_docstring": False,
        "course_anchors": dict(where),
        "course_sources": digest(Path(__file__).parent),
    }
    app = Sphinx(source, None, out, doctrees, "html", confoverrides=settings)
    app.build()
    return app._warncount


def digest(folder: Path) -> str:
    """Return a hash of the modules in a folder."""
    made = hashlib.sha256()
    for path in sorted(folder.glob("*.py")):
        made.update(path.name.encode() + path.read_bytes())
    return made.hexdigest()


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
