"""Text in, features out: sentences -> mBART -> hidden states -> autoencoders -> a report.

One call, `pipeline.run`, and one command, `python -m course_lib pipeline`. The stacked autoencoder compresses
sentences, the means of their tokens' states; the sparse one takes the states of single tokens apart, because
a mean over a sentence mixes what its words say. `text` reads and splits the sentences, `run` takes them
through the model, `autoencoders` trains on the states, `report` draws what came out, and `results` is what they
hand to each other. `end_to_end` is an objective for training on the model's output.
"""

from course_lib.pipeline.results import RunResult, SparseConfig, StackedConfig
from course_lib.pipeline.run import run
from course_lib.pipeline.text import (
    BUILTIN,
    BUILTIN_SENTENCES,
    InputError,
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
    "RunResult",
    "SparseConfig",
    "StackedConfig",
    "read_text",
    "resolve_languages",
    "run",
    "split",
]
