"""Commands for learners: `doctor`, `update`, `record` and `site`."""

from pathlib import Path
from typing import Annotated

import typer

from course_lib.commands import options
from course_lib.commands.options import explain_errors


def doctor(
    details: Annotated[bool, typer.Option("--details", help="Say what was found to be right, too.")] = False,
) -> None:
    """Check this machine for the lessons: what is wrong, and how to fix it."""
    from course_lib.doctor import main

    raise typer.Exit(main(details=details))


def update(
    directory: Annotated[Path, typer.Argument(help="A folder of your clone of the course.")] = Path("."),
) -> None:
    """Bring your clone to the newest edition, and keep your answers.

    Files that both you and the new edition changed are moved to my-notebooks/DATE/, the edition's take their places, and
    your answers are put into their cells. Nothing is merged; progress, guesses and files of your own stay.
    """
    from course_lib.update import update as bring

    with explain_errors(ValueError, OSError, RuntimeError):
        for line in bring(directory):
            typer.echo(line)


def record(
    notebooks: Annotated[
        Path, typer.Argument(help="Folder of your notebooks, in which your progress file lies.")
    ] = Path("notebooks"),
    out: Annotated[Path, typer.Option(help="File that the page is written to.")] = Path("record.html"),
    progress: Annotated[
        Path | None, typer.Option(help="The progress file (default: the one in the folder).")
    ] = None,
    check: Annotated[
        bool,
        typer.Option("--check", help="Run the pages with solved exercises again, with the answers in them."),
    ] = False,
) -> None:
    """Make a page of what you predicted and solved: a record, not a certificate.

    Each prediction stands with your first guess, whether you were sure, and what happens; each exercise with attempts,
    hints and the mistakes that you met. Nothing is sent anywhere.
    """
    from course_lib.files import replacing

    with explain_errors(ValueError, OSError, RuntimeError):
        from course_lib.editions import record as records
        from course_lib.editions.grading.progress_table import to_html

        state = records.read_record(progress or notebooks)
        checked = None
        if check:
            options.require("nbclient", "site")
            checked = {}
            for lesson, numbers in records.pages_to_check(state, notebooks).items():
                typer.echo(f"running {lesson.notebook} again ...")
                checked |= records.check(lesson, notebooks, numbers)
        said = records.summary(state)
        if checked is not None:
            again = sum(found == "solved" for found in checked.values())
            said.append(f"Run again: {again} of {len(checked)} stored answers are solved.")
        with replacing(out) as file:
            file.write(to_html(records.tables(state, checked), [records.NOTE, *said], title=records.TITLE))
    for line in [*said, f"the page is {out}"]:
        typer.echo(line)


def site(
    notebooks: options.Notebooks = Path("notebooks"),
    out: Annotated[Path, typer.Option(help="Folder that the site is written to.")] = Path("build/site"),
    work: Annotated[Path, typer.Option(help="Folder of what a later build uses again.")] = Path(
        "build/site-work"
    ),
    readme: Annotated[Path, typer.Option(help="The page with the table of measurements.")] = Path(
        "README.md"
    ),
    repository: Annotated[str, typer.Option(help="owner/name on GitHub, for links to Binder.")] = "",
    workers: options.Workers = options.WORKERS,
) -> None:
    """Build the course as pages to read in a browser.

    They need no installation. The notebooks are shown as they are stored; no cell is run.
    """
    with explain_errors(ValueError, OSError, RuntimeError):
        options.require("sphinx", "site")
        from course_lib.editions.site.build import build, plan

        typer.echo("\n".join(plan(out, work)))
        warnings = build(notebooks, out, work=work, readme=readme, repository=repository, workers=workers)
    options.finish(out / "index.html", warnings)
