"""What learners of a lesson answer, and what they must not have read before they are asked.

One module a lesson, named like its package, holds

- `ANSWERS`: for each exercise, answers that a learner might give: the verdict that is right ("solved", "wrong",
  "malformed" or the name of a mistake of the bank), in words what was done, and the answer (a value, a function, or an
  `edit` of the reference);
- `GIVES_AWAY`: for each prediction, regular expressions for the words and numbers that give its answer away.
"""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

Answers = dict[str, list[tuple[str, str, Any | Callable]]]

LEARNERS = {
    path.stem: import_module(f"{__name__}.{path.stem}")
    for path in sorted(Path(__file__).parent.glob("[a-z]*.py"))
}
"""Answers that learners give, beyond the banks: each gets the verdict that is right for it."""

GIVEN_AWAY = {
    "29.P1": "the first code cell imports nuclear_norm and nuclear_svm",
}
"""Predictions whose answer stands before the question today, and where; an entry goes when its page is fixed."""
