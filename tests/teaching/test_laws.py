"""Inputs drawn by name, shape and law."""

import pytest
import torch

from course_lib.teaching.laws import inputs, integers, normal, one_of, uniform, whole


def draw(laws, seed=0):
    return laws(torch.Generator().manual_seed(seed))


def test_shapes_name_sizes_drawn_before_them():
    for seed in range(20):
        drawn = draw(
            inputs(n=whole(3, 5), q=normal("n 2"), k=integers("2 n", -1, 1), scalar=normal("")), seed
        )
        assert list(drawn) == ["n", "q", "k", "scalar"]
        assert (drawn["q"].shape, drawn["k"].shape, drawn["scalar"].shape) == (
            (drawn["n"], 2),
            (2, drawn["n"]),
            (),
        )
        assert drawn["q"].dtype == drawn["k"].dtype == torch.float64
        assert torch.equal(drawn["q"], drawn["q"].round(decimals=1))
        assert set(drawn["k"].flatten().tolist()) <= {-1.0, 0.0, 1.0}


def test_integers_go_in_steps_of_one_from_their_low_end():
    drawn = draw(inputs(whole=integers("200", -2, 1), half=integers("200", -1.5, 2.5)))
    assert set(drawn["whole"].tolist()) == {-2, -1, 0, 1}
    assert set(drawn["half"].tolist()) == {-1.5, -0.5, 0.5, 1.5, 2.5}


def test_both_ends_of_a_law_are_met_and_nothing_beyond():
    numbers = [draw(inputs(n=whole(1, 3), x=uniform(0.5, 2), o=one_of("a", "b")), seed) for seed in range(60)]
    assert {d["n"] for d in numbers} == {1, 2, 3}
    assert {d["o"] for d in numbers} == {"a", "b"}
    assert all(
        isinstance(d["x"], float) and 0.5 <= d["x"] <= 2 and d["x"] == round(d["x"], 2) for d in numbers
    )
    assert min(d["x"] for d in numbers) < 0.7 < 1.8 < max(d["x"] for d in numbers)
    tensor = draw(inputs(x=uniform(0.5, 2, "100", digits=1)))["x"]
    assert tensor.shape == (100,)
    assert 0.5 <= tensor.min() <= tensor.max() <= 2
    assert torch.equal(tensor, tensor.round(decimals=1))


def test_a_function_takes_earlier_inputs_and_the_generator_by_name():
    laws = inputs(
        n=whole(2, 4),
        x=normal("n"),
        y=lambda x: 2 * x,
        order=lambda n, generator: torch.randperm(n, generator=generator),
    )
    drawn = draw(laws)
    assert torch.equal(drawn["y"], 2 * drawn["x"])
    assert sorted(drawn["order"].tolist()) == list(range(drawn["n"]))
    assert str(draw(laws)) == str(drawn) != str(draw(laws, 1))


def test_constants_and_cases_are_copies():
    case = {"x": torch.ones(2)}
    laws = inputs(x=torch.zeros(2)).sometimes(0.5, case)
    drawn = [draw(laws, seed)["x"] for seed in range(40)]
    assert 8 <= sum(bool(x.sum()) for x in drawn) <= 32
    for x in drawn:
        x.add_(7)
    assert case["x"].sum() == 2
    assert {float(draw(laws, seed)["x"].sum()) for seed in range(40)} == {0.0, 2.0}


def test_an_unknown_size_is_named():
    with pytest.raises(
        ValueError, match=r"shape 'm 2' names 'm', and the inputs drawn before it are \['n'\]"
    ):
        draw(inputs(n=whole(1, 2), x=normal("m 2")))
