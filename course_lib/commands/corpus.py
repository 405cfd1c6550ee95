"""Commands that make a corpus of real text: `corpus libreoffice-help`."""

from pathlib import Path
from typing import Annotated

import typer

from course_lib.commands.options import explain_errors

app = typer.Typer(help="Make a table of real parallel text.", no_args_is_help=True)

_LANGUAGES = ["en", "de", "fr", "es"]


@app.callback()
def group() -> None:
    """Make a table of real parallel text."""


@app.command("libreoffice-help")
def libreoffice_help(
    out: Annotated[Path, typer.Option(help="Table to write, separated by tabs.")],
    languages: Annotated[
        list[str] | None,
        typer.Option(help="Languages, each a column: en de pt-BR ... (default: en de fr es)."),
    ] = None,
    more: Annotated[list[str] | None, typer.Argument(hidden=True)] = None,
    source: Annotated[
        list[Path] | None,
        typer.Option(
            help="Directory of the help, or a .deb file, given once for each (default: /usr/share/libreoffice/help)."
        ),
    ] = None,
) -> None:
    """Write the paragraphs of LibreOffice's help that some languages share.

    The help is in Debian's packages libreoffice-help-en-us, -de, -fr, -es and thirty more, installed or downloaded
    (apt-get download). Its text is licensed under the Mozilla Public License 2.0.
    """
    from course_lib.language import libreoffice_help as help_of

    if more and not languages:
        raise typer.BadParameter(f"unexpected {' '.join(more)}; languages follow --languages")
    chosen = [*(languages or _LANGUAGES), *(more or [])]
    with explain_errors(ValueError, OSError, RuntimeError):
        found = help_of.read(source or [help_of.INSTALLED], languages=chosen)
        help_of.write_table(found, out, languages=chosen)
    sides = {side: sum(paragraph.split == side for paragraph in found) for side in help_of.SPLITS}
    typer.echo(
        f"{len(found):,} paragraphs in {', '.join(chosen)}, from {len({p.page for p in found}):,} pages: "
        f"{sides['train']:,} to train on, {sides['test']:,} held out\n"
        f"licence of the text: {help_of.LICENCE}\ntable: {out}"
    )
