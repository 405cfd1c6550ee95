"""A map with a name at each row and column."""

import numpy as np
import pytest
from matplotlib.figure import Figure

from course_lib.teaching.token_map import fill_map, shortened, token_map


@pytest.mark.parametrize(
    ("text", "cut"), [("dog", "dog"), ("grandmother", "grandm…"), ("bananas", "bananas")]
)
def test_a_long_name_ends_in_an_ellipsis(text, cut):
    assert shortened(text, 7) == cut


def test_names_and_box_stand_at_their_cells_and_leave_with_them():
    axes = Figure().add_subplot()
    artists = token_map(axes, rows=3, columns=5, cmap="Blues")
    values = np.arange(8.0).reshape(2, 4)
    fill_map(artists, values, ["a", "b"], ["p", "q", "r", "s"], box=(1, 2))
    np.testing.assert_array_equal(artists["map"].get_array(), values)
    assert [text.get_text() for text in artists["rows"]] == ["a", "b", ""]
    assert [text.get_text() for text in artists["columns"]] == ["p", "q", "r", "s", ""]
    assert [text.get_position()[1] for text in artists["rows"][:2]] == [0.75, 0.25]
    assert [text.get_position()[0] for text in artists["columns"][:4]] == [0.125, 0.375, 0.625, 0.875]
    assert artists["box"].get_bbox().bounds == (0.5, 0, 0.25, 0.5)
    fill_map(artists, values, ["a", "b"], box=(0, None))
    assert artists["box"].get_bbox().bounds == (0, 0.5, 1, 0.5)
    fill_map(artists, None, message="nothing")
    assert {text.get_text() for name in ("rows", "columns") for text in artists[name]} == {""}
    assert artists["box"].get_bbox().bounds == (0, 0, 0, 0)
    assert artists["map"].get_array().mask.all()
    assert artists["message"].get_text() == "nothing"
