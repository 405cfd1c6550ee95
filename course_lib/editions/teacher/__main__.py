"""`python -m course_lib.editions.teacher`: build the edition for teachers."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(add_completion=False)


@app.command()
def teacher(
    lessons: Annotated[
        list[str] | None, typer.Argument(help="numbers of lessons, all of them if none")
    ] = None,
    notebooks: Annotated[Path, typer.Option(help="folder of the stored notebooks")] = Path("notebooks"),
    out: Annotated[Path, typer.Option(help="folder that the edition is written to")] = Path("build/teacher"),
    work: Annotated[Path, typer.Option(help="folder of what a later build uses again")] = Path(
        "build/teacher-work"
    ),
    workers: Annotated[int, typer.Option(help="processes that run notebooks")] = os.cpu_count() or 1,
) -> None:
    """Run the notebooks with their solutions and build plans, banks and slides; what has not changed is kept."""
    from course_lib.editions.teacher.build import build

    warnings = build(notebooks, out, work=work, numbers=lessons or (), workers=workers)
    print(f"{out / 'index.html'} is the first page; Sphinx gave {warnings} warnings")
    sys.exit(1 if warnings else 0)


if __name__ == "__main__":
    app()
