"""The slips of `make mutants` are still aimed: each changes a text that the library holds exactly once."""

from pathlib import Path

import course_lib
from tests.mutants import MUTANTS, place_of, sources


def test_each_slip_applies_once():
    texts, lost = sources(Path(course_lib.__file__).parent), []
    for mutant in MUTANTS:
        try:
            place_of(mutant, texts)
        except ValueError as error:
            lost.append(f"{mutant.name}: {error}")
    assert not lost
