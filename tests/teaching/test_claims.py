"""A claim passes where it should, fails where it should, and prints nothing that a machine could change."""

import math

import numpy as np
import pytest
import torch

from course_lib.teaching.claims import ClaimError, claim

PASSING = [
    (2.0, {"equals": 2.05, "within": 0.1}, "(9.1) holds: it is so [= 2.05 within 0.1]"),
    (2.0, {"at_most": 2.0}, "(9.1) holds: it is so [at most 2]"),
    (2.0, {"at_least": 2.0}, "(9.1) holds: it is so [at least 2]"),
    (0, {"equals": 0, "within": 0}, "(9.1) holds: it is so [= 0 within 0]"),
    (True, {}, "(9.1) holds: it is so"),
    (np.bool_(True), {}, "(9.1) holds: it is so"),
    ([1.0, 2.0], {"equals": [1.0, 2.0], "within": 1e-9}, "(9.1) holds: it is so [= [1. 2.] within 1e-09]"),
    (np.array([1, 2]), {"at_most": 2}, "(9.1) holds: it is so [at most 2]"),
    (torch.tensor([1.0, 2.0], requires_grad=True), {"at_least": 1}, "(9.1) holds: it is so [at least 1]"),
    (
        [torch.tensor(1.0), torch.tensor(2.0, requires_grad=True)],
        {"at_most": 2},
        "(9.1) holds: it is so [at most 2]",
    ),
    (torch.tensor(2.0, dtype=torch.bfloat16), {"at_most": 2}, "(9.1) holds: it is so [at most 2]"),
    (2.0, {"equals": torch.tensor(2.0), "within": 1e-9}, "(9.1) holds: it is so [= 2 within 1e-09]"),
]
FAILING = [
    (2.0, {"equals": 2.2, "within": 0.1}),
    (2.0, {"at_most": 1.9}),
    (2.0, {"at_least": 2.1}),
    (False, {}),
    ([1.0, 2.0, 3.0], {"equals": [1.0, 2.0, 3.5], "within": 0.1}),
    ([1.0, 3.0], {"at_most": 2}),
    (torch.tensor([1.0, 3.0]), {"at_least": 2}),
    (math.nan, {"equals": 1.0, "within": 10.0}),
    (math.nan, {"equals": math.nan, "within": 10.0}),
    (math.nan, {"at_most": 1.0}),
    (None, {"at_most": 1.0}),
    (math.nan, {"at_least": 1.0}),
    ([1.0, math.nan], {"at_most": 2.0}),
    (math.inf, {"at_most": 1e300}),
    (-math.inf, {"at_least": -1e300}),
    (math.inf, {"equals": math.inf, "within": 1.0}),
]


@pytest.mark.parametrize(("measured", "comparison", "line"), PASSING)
def test_what_holds_is_printed_in_one_line(measured, comparison, line, capsys):
    claim("9.1", "it is so", measured, **comparison)
    assert capsys.readouterr().out == line + "\n"


@pytest.mark.filterwarnings("ignore:invalid value encountered")
@pytest.mark.parametrize(("measured", "comparison"), FAILING)
def test_what_does_not_hold_raises_and_prints_nothing(measured, comparison, capsys):
    with pytest.raises(ClaimError, match=r"claim \(9\.1\) fails: it is so"):
        claim("9.1", "it is so", measured, **comparison)
    assert capsys.readouterr().out == ""


def test_the_error_names_bound_and_measured_value():
    with pytest.raises(ClaimError, match=r"\[at most 1\]; measured 1\.23457"):
        claim("9.1", "it is so", 1.2345678901, at_most=1)


@pytest.mark.parametrize(
    "comparison", [{"equals": 1.0, "within": 0.5}, {"at_most": 2.0}, {"at_least": 0.5}], ids=str
)
@pytest.mark.parametrize("kind", [float, lambda v: [v, v], lambda v: torch.tensor([v])])
def test_the_line_does_not_depend_on_the_measured_digits(comparison, kind, capsys):
    lines = set()
    for measured in (1.0371, 1.0371000001, 0.9912):
        claim("9.1", "it is so", kind(measured), **comparison)
        lines.add(capsys.readouterr().out)
    assert len(lines) == 1
    assert "037" not in lines.pop()


@pytest.mark.parametrize(
    ("measured", "comparison", "message"),
    [
        (1.0, {}, "measured must be a bool, got 1.0"),
        (torch.tensor(True), {}, "measured must be a bool"),
        (1.0, {"at_most": 2, "at_least": 0}, "got at_most, at_least"),
        (1.0, {"equals": 1, "within": 1, "at_most": 2}, "got equals, at_most"),
        (1.0, {"equals": 1}, "give equals= with within="),
        (1.0, {"within": 1}, "got within alone"),
        (1.0, {"within": 1, "at_most": 2}, "give equals= with within="),
        ("high", {"at_most": 2}, "measured must be a number or an array of numbers, got 'high'"),
        ([[1.0], [1.0, 2.0]], {"at_most": 2}, "measured must be"),
        ([], {"at_most": 2}, "measured is empty"),
        (torch.zeros(0), {"equals": 0, "within": 1}, "measured is empty"),
    ],
)
def test_misuse_is_refused_with_the_number_or_the_argument(measured, comparison, message, capsys):
    with pytest.raises(ValueError, match=message):
        claim("9.1", "it is so", measured, **comparison)
    assert capsys.readouterr().out == ""


def test_a_failed_claim_is_an_assertion():
    assert issubclass(ClaimError, AssertionError)
