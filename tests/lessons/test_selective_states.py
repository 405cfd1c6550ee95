"""What the explorer of lesson 16 computes and says, and what its curves are."""

import re

import numpy as np
import pytest
import torch

from course_lib.architectures.selective import decay_mask
from course_lib.lessons import selective_states as lesson
from course_lib.lessons.selective_states import pictures
from course_lib.measured import measured


def state_of(**settings):
    defaults = {name: control.default for name, control in lesson.CellExplorer.controls.items()}
    return lesson.CellExplorer.compute(None, **{**defaults, **settings})


GRID = [
    {"keep_other": keep, "keep_flag": clear, "enter_other": enter, "enter_flag": 0.8, "reader": reader}
    for keep in (0.0, 0.5, 1.0)
    for clear in (0.0, 0.9)
    for enter in (0.0, 0.3)
    for reader in (0, 2, 19, 40, 63)
]


def test_the_explorer_is_the_recursion_at_every_setting():
    text, wanted = pictures.example_text()
    numbers, flags = text.double().T
    for settings in GRID:
        state, reader = state_of(**settings), settings["reader"]
        a = torch.where(
            flags > 0, torch.tensor(settings["keep_flag"], dtype=torch.float64), settings["keep_other"]
        )
        e = torch.where(
            flags > 0, torch.tensor(settings["enter_flag"], dtype=torch.float64), settings["enter_other"]
        )
        weights = decay_mask(a) * e
        assert state["state"][1] == pytest.approx((weights @ numbers).tolist(), abs=1e-9)
        assert state["all"] == pytest.approx(weights[reader].tolist(), abs=1e-12)
        error = ((weights @ numbers - wanted.double()) ** 2).mean() / (wanted.double() ** 2).mean()
        assert state["error"] == pytest.approx(float(error))
        said = lesson.CellExplorer.words(None, state)
        own = [t for t in range(reader + 1) if flags[t]]
        if own:
            assert f"(token {own[-1]}) has the weight {weights[reader, own[-1]]:.2f}" in said
            others = weights[reader].sum() - weights[reader, own[-1]]
            assert float(re.search(r"together have ([\d.]+)\.$", said)[1]) == pytest.approx(
                float(others), abs=0.006
            )
        else:
            assert "no flag has come yet" in said


def test_two_decays_draw_the_staircase_and_one_does_not():
    assert state_of(keep_other=1.0, keep_flag=0.0, enter_other=0.0)["error"] == 0
    assert (
        min(state_of(keep_other=k / 20, keep_flag=k / 20, enter_other=0.0)["error"] for k in range(21)) > 0.3
    )


def test_the_share_of_the_last_flagged_number():
    text, _ = pictures.example_text()
    flags = text[:, 1]
    first = int(flags.nonzero()[0])
    perfect = torch.zeros(64, 64)
    for t in range(first, 64):
        perfect[t, int((flags[: t + 1]).nonzero()[-1])] = 2.0
    assert pictures.share_of_the_last_flagged(perfect) == 1
    assert pictures.share_of_the_last_flagged(perfect + perfect.roll(1, 1)) == pytest.approx(0.5)


def test_the_quotients_end_where_the_smallest_numbers_do():
    for dtype, last in ((torch.float32, 149), (torch.float64, 1074)):
        found = pictures.neighbours_by_quotient(dtype)  # entry k: token k + 1 over token k
        assert (found[: last - 1] == 0.5).all()
        assert found[last - 1] == 0
        assert found[last:].isnan().all()


def test_the_stored_errors_of_the_figure_are_those_of_the_part():
    axes = lesson.plot_errors().axes[0]
    dots = [line.get_xdata() for line in axes.lines if line.get_marker() == "o"]
    for drawn, arm in zip(
        dots, ("selective", "GRU", "fixed", "two fixed layers", "fixed, divided"), strict=True
    ):
        assert sorted(drawn) == sorted(measured("selective", f"{arm}: 64 tokens, by seed"))
    assert all(np.all(np.asarray(d) > 1e-5) for d in dots)  # inside the axes
