"""`python -m course_lib.editions.site`: build the static site."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(add_completion=False)


@app.command()
def site(
    notebooks: Annotated[Path, typer.Option(help="folder of the stored notebooks")] = Path("notebooks"),
    out: Annotated[Path, typer.Option(help="folder that the site is written to")] = Path("build/site"),
    work: Annotated[Path, typer.Option(help="folder of what a later build uses again")] = Path(
        "build/site-work"
    ),
    readme: Annotated[Path, typer.Option(help="the page with the table of measurements")] = Path("README.md"),
    repository: Annotated[str, typer.Option(help="owner/name on GitHub, for links to Binder")] = "",
    workers: Annotated[int, typer.Option(help="processes that render explorers")] = os.cpu_count() or 1,
) -> None:
    """Build the static site from the notebooks as they are stored; no cell is run."""
    from course_lib.editions.site.build import build

    warnings = build(notebooks, out, work=work, readme=readme, repository=repository, workers=workers)
    print(f"{out / 'index.html'} is the first page; Sphinx gave {warnings} warnings")
    sys.exit(1 if warnings else 0)


if __name__ == "__main__":
    app()
