"""Commands for those who teach: `teacher`, `plan`, `calendar`, `hand-out` and `progress`."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from course_lib.commands import options
from course_lib.commands.options import explain_errors


class Grader(StrEnum):
    """Tools that hand out and grade notebooks."""

    nbgrader = "nbgrader"


def teacher(
    lessons: Annotated[list[str] | None, typer.Argument(help="Numbers of lessons (default: all).")] = None,
    notebooks: options.Notebooks = Path("notebooks"),
    out: Annotated[Path, typer.Option(help="Folder that the edition is written to.")] = Path("build/teacher"),
    work: Annotated[Path, typer.Option(help="Folder of what a later build uses again.")] = Path(
        "build/teacher-work"
    ),
    workers: options.Workers = options.WORKERS,
) -> None:
    """Build plans, solutions, banks of mistakes and slides.

    The notebooks are run with their solutions; what has not changed since an earlier build is kept. The pages hold all
    answers: keep them from pages that students read.
    """
    with explain_errors(ValueError, OSError, RuntimeError):
        options.require("sphinx_revealjs", "site")
        from course_lib.editions.teacher.build import build

        warnings = build(notebooks, out, work=work, numbers=lessons or (), workers=workers)
    options.finish(out / "index.html", warnings)


def plan(
    lessons: Annotated[list[str] | None, typer.Argument(help="Numbers of lessons (default: all).")] = None,
    notebooks: options.Notebooks = Path("notebooks"),
    out: Annotated[Path, typer.Option(help="Folder that the pages are written to.")] = Path("build/plans"),
) -> None:
    """Write each lesson's plan on one page of A4, to print from a browser.

    It says minute by minute what is done, what to watch for, and which exercises there are, all from the lesson itself.
    It holds answers: keep it from students.
    """
    with explain_errors(ValueError, OSError, RuntimeError):
        options.require("sphinx", "site")
        from course_lib.editions.teacher.sheet import write_sheets
        from course_lib.lessons.catalog import choose_lessons

        for path in write_sheets(choose_lessons(lessons or [], notebooks), notebooks, out):
            typer.echo(path)


def calendar(
    weeks: Annotated[
        int | None,
        typer.Option(help="Spread the paths over so many weeks (default: 14, 7 and a weekend).", min=1),
    ] = None,
) -> None:
    """Spread the three paths over the weeks of a course.

    Lessons keep their order, each comes after what it needs, and weeks are as even as they can be.
    """
    from course_lib.editions import calendar as calendars

    typer.echo(calendars.calendar() if weeks is None else calendars.weeks_table(weeks))


def hand_out(
    directory: Annotated[Path, typer.Argument(help="Course directory of the grading tool, new or begun.")],
    lessons: Annotated[list[str] | None, typer.Argument(help="Numbers of lessons (default: all).")] = None,
    grader: Annotated[Grader, typer.Option("--for", help="The grading tool.")] = Grader.nbgrader,
    notebooks: options.Notebooks = Path("notebooks"),
    points: Annotated[
        Path | None,
        typer.Option(
            help='Points of exercises in TOML, a line "01.3" = 4 for each (default: as many as stars).'
        ),
    ] = None,
    partial: Annotated[
        bool,
        typer.Option("--partial", help="Give a share of the points for each tested property that holds."),
    ] = False,
) -> None:
    """Make assignments of lessons, without solutions.

    The grading tool grades the answers by their behaviour. Each lesson is an assignment, and each exercise in it
    gives as many points as it has stars, or as the file of `--points` says.
    """
    from course_lib.editions.grading import hand_out as handing
    from course_lib.lessons.catalog import choose_lessons

    with explain_errors(ValueError, OSError, RuntimeError):
        options.require("nbgrader", "grading")
        taken = choose_lessons(lessons or [], notebooks)
        numbers, given = [one.number for one in taken], handing.read_points(points) if points else {}
        for lesson in taken:
            source = handing.write_source(
                directory, lesson, notebooks, numbers, points=given, partial=partial
            )
            typer.echo(f"to hand out: {handing.release(directory, source.stem)}")
    typer.echo(f"collect the notebooks in {directory / 'submitted'}/LEARNER/ASSIGNMENT, then in {directory}:")
    typer.echo("nbgrader autograde ASSIGNMENT && nbgrader generate_feedback ASSIGNMENT && nbgrader export")


def progress(
    directory: Annotated[
        Path, typer.Argument(help="Folder of progress files, *.json, one a learner; subfolders count.")
    ],
    csv: Annotated[Path | None, typer.Option(help="Write who solved what to this file, as CSV.")] = None,
    guesses_csv: Annotated[
        Path | None, typer.Option(help="Write who guessed what to this file, as CSV.")
    ] = None,
    html: Annotated[Path | None, typer.Option(help="Write all tables to this file, as a page.")] = None,
    details: Annotated[
        bool, typer.Option("--details", help="Also print each exercise and prediction of each learner.")
    ] = False,
) -> None:
    """Compare learners: who solved and guessed what, and common mistakes.

    A learner is named by the path of the file, and by nothing else: rename the files to hide who is who. The files
    are only read, and nothing is sent anywhere.
    """
    from rich.console import Console

    from course_lib.editions.grading import progress_table as tables
    from course_lib.files import replacing

    with explain_errors(ValueError, OSError):
        collected = tables.collect(directory)
        shown = [
            tables.by_learner(collected),
            tables.by_exercise(collected),
            tables.by_prediction(collected),
            tables.common_mistakes(collected),
        ]
        every, guessed = tables.details(collected), tables.predictions(collected)
        for path, written in (
            (csv, lambda: tables.to_csv(every)),
            (guesses_csv, lambda: tables.to_csv(guessed)),
            (html, lambda: tables.to_html([*shown, every, guessed], collected.unread)),
        ):
            if path is not None:
                with replacing(path) as file:
                    file.write(written())
    console = Console()
    for table in [*shown, every, guessed] if details else shown:
        tables.print_table(table, console)
    for line in collected.unread:
        typer.echo(line, err=True)
