"""Every sentence of every quiz: what decides runs, holds, and can be read."""

import pytest

from course_lib.teaching.claims import PLACE
from course_lib.teaching.style import text_alternative
from tests.drawing import assert_clear_layout
from tests.lessons import REGISTERS

SENTENCES = [one for register in REGISTERS.values() for one in register.sentences.values()]


@pytest.mark.parametrize("sentence", SENTENCES, ids=lambda one: one.id)
def test_what_decides_runs_and_can_be_read(sentence):
    shown = sentence.shown()
    assert shown.text.strip()
    assert not PLACE.search(shown.text)
    assert sentence.text.endswith((".", "?"))
    assert sentence.explanation.endswith(".")
    if shown.figure is not None:
        assert text_alternative(shown.figure)
        assert_clear_layout(shown.figure)


def test_ids_belong_to_their_lesson():
    for number, register in REGISTERS.items():
        assert all(name.startswith(f"{number}.Q") for name in register.sentences)
