"""Text in, features out: sentences -> mBART -> hidden states -> autoencoders -> a report.

One call, `pipeline.run`, and one command, `python -m course_lib pipeline`. The stacked autoencoder compresses
sentences, the means of their tokens' states; the sparse one takes the states of single tokens apart, because
a mean over a sentence mixes what its words say. `text` reads and splits the sentences, `states` takes them
through the model, `autoencoders` trains on the states, `report` draws what came out, and `run` does all of it in
order. The files of a run are written and read by `course_lib.interpret.run_directory`, which stands below because the
browser of features opens runs too. `run_of_autoencoder` makes such files for an autoencoder that was trained elsewhere.
`end_to_end` is an objective for training on the model's output.
"""

from course_lib.interpret.run_directory import RunDirectory, RunError
from course_lib.pipeline.config import InputError, SparseConfig, StackedConfig
from course_lib.pipeline.run import run, run_of_autoencoder
from course_lib.pipeline.text import (
    BUILTIN,
    BUILTIN_SENTENCES,
    Line,
    read_text,
    resolve_languages,
    split,
)

__all__ = [
    "BUILTIN",
    "BUILTIN_SENTENCES",
    "InputError",
    "Line",
    "RunDirectory",
    "RunError",
    "SparseConfig",
    "StackedConfig",
    "read_text",
    "resolve_languages",
    "run",
    "run_of_autoencoder",
    "split",
]
