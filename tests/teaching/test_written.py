"""Inputs are written so that a cell reads them back, and two outputs so that the reader sees how they differ."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from course_lib.teaching.written import difference, direction, how_off, shown, typed, typed_inputs

NAMES = {"torch": torch, "float": float}


def read_back(text):
    return eval(text, NAMES)


@given(
    values=st.lists(st.floats(), min_size=1, max_size=6),
    dtype=st.sampled_from([torch.float64, torch.float32, torch.float16]),
)
def test_tensors_are_read_back_bit_by_bit(values, dtype):
    tensor = torch.tensor(values, dtype=dtype) + 0.0
    again = read_back(typed(tensor))
    assert again.dtype == dtype
    assert torch.equal(again.nan_to_num(7), tensor.nan_to_num(7))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (torch.tensor([[1.0, 2.5]], dtype=torch.float64), "torch.tensor([[1.0, 2.5]], dtype=torch.float64)"),
        (torch.tensor([0.1]), "torch.tensor([0.1])"),
        (torch.tensor([1, 2]), "torch.tensor([1, 2])"),
        (torch.tensor([1, 2], dtype=torch.int32), "torch.tensor([1, 2], dtype=torch.int32)"),
        (torch.tensor([True, False]), "torch.tensor([True, False])"),
        (torch.tensor(2.0, dtype=torch.float64), "torch.tensor(2.0, dtype=torch.float64)"),
        (torch.tensor([1j]), "torch.tensor([1j])"),
        (torch.empty(0, 2), "torch.empty((0, 2))"),
        (1 / 3, "0.3333333333333333"),
        (3.0, "3.0"),
        (3, "3"),
        ("word", "'word'"),
        ([1, 2], "[1, 2]"),
        (math.inf, 'float("inf")'),
        ([torch.tensor([1]), torch.tensor([2])], "[torch.tensor([1]), torch.tensor([2])]"),
    ],
)
def test_inputs_are_written_as_they_would_be_typed(value, text):
    assert typed(value) == text
    again = read_back(text)
    assert type(again) is type(value)


def test_a_large_input_is_named_by_its_shape():
    assert typed(torch.full((6, 6), 1 / 3).double()) == "a torch.float64 tensor of shape (6, 6)"
    assert typed(torch.zeros(6, 6)).startswith("torch.tensor([[0.0, ")
    assert (
        typed_inputs({"x": torch.zeros(10, 10), "n": 2})
        == "x = a torch.float32 tensor of shape (10, 10), n = 2"
    )


@given(
    expected=st.floats(-1e6, 1e6, allow_subnormal=False),
    relative=st.sampled_from([1e-3, -1e-5, 1e-8, 1e-12, -1e-15]),
)
def test_two_numbers_that_differ_never_read_alike(expected, relative):
    value = expected * (1 + relative) + (1e-300 if expected == 0 else 0)
    if value == expected:
        return
    said = difference(expected, value)
    first, second = said.removeprefix("the expected output is ").split(", yours is ")
    assert first != second.partition(",")[0]
    assert ("too large" in said) == (value > expected)


@given(data=st.data())
def test_two_tensors_that_differ_never_read_alike(data):
    expected = torch.tensor(
        data.draw(st.lists(st.floats(-10, 10), min_size=2, max_size=4)), dtype=torch.float64
    )
    value = expected.clone()
    place = data.draw(st.integers(0, len(expected) - 1))
    value[place] += data.draw(st.sampled_from([1.0, 1e-4, 1e-7, 1e-11]))
    if torch.equal(value, expected):
        return
    said = difference(expected, value)
    if "first at" in said:  # many digits are needed, and the entry that differs stands alone
        assert f"first at [{place}]: " in said
        first, second = said.partition("first at ")[2].split(" is expected, yours is ")
        assert first.partition("]: ")[2] != second
    else:
        first, second = said.removeprefix("the expected output is ").split(", yours is ")
        assert first not in second


@pytest.mark.parametrize(
    ("factor", "said"),
    [(2, "twice"), (0.5, "half"), (-1, "opposite sign"), (1 / 3, "a third of"), (10, "10 times")],
)
def test_simple_factors_are_named(factor, said):
    tensor = torch.tensor([1.5, -2.0, 0.0])
    assert said in how_off(3.7, 3.7 * factor)
    assert said in how_off(tensor, tensor * factor)
    assert said not in how_off(tensor, tensor * factor + torch.tensor([0.0, 0.0, 1.0]))


def test_a_shift_and_a_transposition_are_named():
    square = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    assert how_off(square, square + 7) == ": every entry is too large by 7"
    assert how_off(square, square - 0.5) == ": every entry is too small by 0.5"
    assert how_off(square, square.T) == ": it is transposed"
    assert how_off(square, square.flip(0)) == ""


def test_large_outputs_are_shown_by_the_first_entry_that_differs():
    expected = torch.arange(100.0).reshape(10, 10)
    value = expected.clone()
    value[3, 4] = 35
    value[9, 9] = 0
    assert difference(expected, value) == (
        "the expected output is of shape (10, 10), yours is another one in 2 of 100 entries, first at [3, 4]: "
        "34 is expected, yours is 35"
    )


def test_a_direction_does_not_tell_the_value():
    assert direction(2.0, 3) == "Your number is too large."
    assert direction(2.0, np.float64(1.999)) == "Your number is too small."
    assert direction({"a": 1, "b": 2}, {"a": 1, "b": 5}) == "'b' is too large."
    assert direction("yes", "no") == "'no' is not right."


def test_long_values_are_cut():
    assert len(shown(list(range(10_000)))) < 250
    assert shown(torch.zeros(100)) == "a torch.float32 tensor of shape (100,)"


def test_whole_numbers_are_written_in_full():
    assert shown(1234567) == shown(torch.tensor(1234567)) == "1234567"
    assert shown(torch.tensor([1234567, 2])) == "torch.tensor([1234567, 2])"
    assert shown(1234567.0) == "1.23457e+06"
    assert shown(10**400) == "inf"
    many = torch.arange(50) + 1_000_000
    assert "first at [3]: 1000003 is expected, yours is 1000004" in difference(
        many, many + (torch.arange(50) == 3)
    )
