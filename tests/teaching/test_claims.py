"""A claim passes where it should, fails where it should, and marks the digits that a machine could change."""

import configparser
import math
import re
from pathlib import Path

import numpy as np
import pytest
import torch

from course_lib.teaching.claims import ClaimError, claim, fact

_parser = configparser.ConfigParser()
_parser.read(Path(__file__).resolve().parents[1] / "notebooks" / "sanitize.cfg", encoding="utf-8")
SANITIZE = dict(_parser["what may differ between machines"])
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
    with pytest.raises(ClaimError, match=r"at most 1; measured 1\.23457"):
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


@pytest.mark.parametrize(
    ("statement", "measured", "comparison", "line"),
    [
        ("an error of {}", 0.000923, {"at_most": 0.001}, "an error of ≈0.00092, at most 0.001"),
        ("{} of them", 354.2, {"at_least": 300}, "≈354 of them, at least 300"),
        ("a share of {:.1%}", 0.87654, {"at_least": 0.5}, "a share of ≈87.7%, at least 0.5"),
        ("a ratio of {:.3f}", 1.99812, {"equals": 2, "within": 0.01}, "a ratio of ≈1.998, expected 2 within 0.01"),
        ("{} multiply-adds", 137_280_000, {"equals": 137_280_000, "within": 0}, "137,280,000 multiply-adds"),
        ("ranks {}", [15, 6], {"equals": [15, 6], "within": 0}, "ranks 15, 6"),
        ("ends near {}", [0.9, 2.2], {"equals": [1, 2], "within": 0.5}, "ends near ≈0.9, ≈2.2, expected [1. 2.] within 0.5"),
        ("all near {}", [0.9, 1.2], {"equals": 1, "within": 0.5}, "all near ≈0.9, ≈1.2, expected 1 within 0.5"),
        ("the largest is {}", np.arange(9.0), {"at_most": 8000}, "the largest is ≈8, at most 8,000"),
        ("the smallest is {}", torch.arange(9.0), {"at_least": -1}, "the smallest is ≈0, at least -1"),
        ("the farthest is {}", np.arange(9.0), {"equals": 1, "within": 9}, "the farthest is ≈8, expected 1 within 9"),
        ("of the set {1, 2} it takes {}", 3, {"equals": 3, "within": 0}, "of the set {1, 2} it takes 3"),
        ("a gap of {}", 0.0, {"at_most": 1e-12}, "a gap of ≈0, at most 1e-12"),
    ],
)  # fmt: skip
def test_a_statement_shows_what_was_measured(statement, measured, comparison, line, capsys):
    assert fact(statement, measured, **comparison) == line
    claim("9.1", statement, measured, **comparison)
    assert capsys.readouterr().out == f"(9.1) {line}\n"


def test_a_value_that_misses_its_bound_is_shown_in_the_error():
    with pytest.raises(ClaimError, match=r"^an error of ≈0\.0012, at most 0\.001; measured 0\.0012$"):
        fact("an error of {}", 0.0012, at_most=0.001)
    with pytest.raises(ClaimError, match=r"^16 features, expected 15; measured 16$"):
        fact("{} features", 16, equals=15, within=0)


def test_a_truth_value_has_nothing_to_show():
    assert fact("it is so", True) == "it is so"
    with pytest.raises(ValueError, match="a bool has no value to show"):
        fact("it is {}", True)


def test_only_digits_that_may_differ_carry_the_sign_that_masks_them():
    lines = {fact("an error of {}", value, at_most=0.01) for value in (0.0011, 0.0012)}
    masked = re.compile(SANITIZE["regex"])
    assert len(lines) == 2
    assert len({masked.sub(SANITIZE["replace"], line) for line in lines}) == 1
    assert masked.sub(SANITIZE["replace"], fact("{} features", 15, equals=15, within=0)) == "15 features"
    assert (
        masked.sub(SANITIZE["replace"], "≈-1.5e-07 and ≈87.7%, at most 3")
        == "about N and about N%, at most 3"
    )
    assert masked.sub(SANITIZE["replace"], "≈1,234 of 2,000 in ≈inf") == "about N of 2,000 in about N"
    # The comma behind a number stays, whether the number is a plain 0 or has an exponent.
    gaps = [fact("a gap of {}", gap, at_most=1e-12) for gap in (0.0, 4e-16)]
    assert len({masked.sub(SANITIZE["replace"], line) for line in gaps}) == 1
