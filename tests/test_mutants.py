"""The slips of `make mutants` are still aimed: each changes a text that the library holds exactly once."""

from pathlib import Path

import pytest

import course_lib
from tests.mutants import MUTANTS, place_of, sources

TEXTS = sources(Path(course_lib.__file__).parent)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_each_slip_applies_once(mutant):
    place_of(mutant, TEXTS)
