"""The command `course`, one module a group of commands.

Commands import what they need when they run, so that `--help` answers at once.
"""

import typer

from course_lib.commands import corpus, learn, maintain, sae, teach, text

HELP = """
Learn why the rules of deep learning hold, teach it, or find named features in your own text.

\b
course doctor                    check this machine before the first lesson
course pipeline --out run        text to named features, with a report
course browse run                look at these features

course COMMAND --help explains the options of a command.
"""
TEXT = "Run on your text"
GROUPS = {
    "Learn": (learn.doctor, learn.update, learn.record, learn.site),
    TEXT: (text.pipeline, text.browse, text.activations),
    "Teach": (teach.plan, teach.calendar, teach.hand_out, teach.progress, teach.teacher),
    "Maintain the course": (maintain.figures, maintain.pretrain, maintain.dictionary),
}

app = typer.Typer(
    name="course",
    help=HELP,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for panel, commands in GROUPS.items():
    for command in commands:
        app.command(rich_help_panel=panel)(command)
app.add_typer(sae.app, name="sae", rich_help_panel=TEXT)
app.add_typer(corpus.app, name="corpus", rich_help_panel=TEXT)
