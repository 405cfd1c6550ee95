"""A learner who mixes two things up reads the name of the argument. `python -m tests.wrong_arguments` lists all cases."""

from dataclasses import dataclass

import pytest
import torch
from jaxtyping import Float
from torch import Tensor, nn

from course_lib.checks import check_fields, check_source, named
from tests.wrong_arguments import Target, measure, outcome, replacements, targets


def test_wrong_arguments_are_named_and_never_go_unnoticed():
    ends, bad = measure(share=0.5)
    assert [row for row in bad if row[3] != "obscure"] == []
    assert sum(ends.values()) > 800
    assert ends["named"] + ends["right"] >= 0.95 * sum(ends.values()), bad
    # Most are errors: that an oracle calls a value right is the exception.
    assert ends["named"] > 8 * ends["right"]


def test_every_right_call_works():
    assert len(targets()) > 60
    for target in targets():
        target.call(**target.right())


def loose(x: Float[Tensor, "rows d"], y: Float[Tensor, "rows d"]) -> Tensor:
    return x + y


def test_the_count_notices_a_function_without_checks():
    target = Target(
        "loose", loose, lambda: {"x": torch.ones(3, 2), "y": torch.ones(3, 2)}, fixed={"y": (0, 1)}
    )
    cases = {case.what: case for case in replacements(target, "y", target.right()["y"])}
    ends = {what: outcome(target, "y", case)[0] for what, case in cases.items()}
    assert ends["a side of 1"] == ends["rank - 1"] == ends["number"] == "wrong"
    assert ends["text"] == ends["None"] == "obscure"
    assert ends["whole numbers"] == ends["NaN"] == "right"
    assert outcome(Target("named", named(loose), target.right), "y", cases["text"])[0] == "named"


@named
def several(
    x: Float[Tensor, "rows d"] | float,
    n: int,
    *,
    flag: bool = True,
    words: str | None = None,
    net: nn.Module | None = None,
) -> object:
    return x, n, flag, words, net


def test_kinds_and_their_words():
    several(torch.ones(2, 3), 3)
    several(3, 3, words="a", net=nn.Linear(2, 2))
    several(torch.tensor(1.0), 3, flag=False)
    for given, error, words in (
        (
            {"x": [1.0], "n": 3},
            TypeError,
            "x must be a number or a tensor of floating-point numbers, got list",
        ),
        (
            {"x": torch.ones(2, 3).int(), "n": 3},
            (TypeError, ValueError),
            "x must .* got a tensor of torch.int32",
        ),
        ({"x": 1.0, "n": 3.0}, TypeError, "n must be a whole number, got float 3.0"),
        ({"x": 1.0, "n": True}, TypeError, "n must be a whole number, got bool True"),
        ({"x": 1.0, "n": 1, "flag": 1}, TypeError, "flag must be True or False, got int 1"),
        ({"x": 1.0, "n": 1, "words": 1}, TypeError, "words must be a text or None, got int 1"),
        ({"x": 1.0, "n": 1, "net": "relu"}, TypeError, "net must be a Module or None, got str 'relu'"),
    ):
        with pytest.raises(error, match=words):
            several(**given)


def test_shapes_are_explained_only_where_the_function_fails():
    refused = named(loose)
    assert refused(torch.ones(3, 2), torch.ones(1, 2)).shape == (3, 2)
    with pytest.raises(ValueError, match=r"y must have shape \(rows d\), with x \(3, 2\), got \(3, 4\)"):
        refused(torch.ones(3, 2), torch.ones(3, 4))

    @named
    def fails(x: Float[Tensor, "rows d"]) -> None:
        raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError, match="out of memory"):
        fails(torch.ones(3, 2))


@dataclass
class Settings:
    steps: int
    rate: float | int = 1.0


def test_fields_and_sources():
    check_fields(Settings(3, 1))
    with pytest.raises(TypeError, match="steps must be a whole number, got float nan"):
        check_fields(Settings(float("nan")))
    check_source("rows", torch.ones(3, 2))
    for value in (None, [1.0], "abc"):
        with pytest.raises(TypeError, match="rows must be a tensor or a store of rows"):
            check_source("rows", value)


def test_nothing_is_looked_at_inside_a_compiled_function(monkeypatch):
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    assert several("x", "n") == ("x", "n", True, None, None)
