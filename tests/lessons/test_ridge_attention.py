"""What the curves of lesson 17 are, and what its explorer says."""

import re

import numpy as np
import pytest
import torch

from course_lib.attention.ridge import ridge_memory
from course_lib.lessons import ridge_attention as lesson
from course_lib.teaching.style import text_alternative
from tests.drawing import assert_line, line_labelled


def test_the_question_ranks_the_four_memories():
    axes = lesson.FIGURES["question"]().axes[0]
    counts = np.asarray(line_labelled(axes, "ridge attention").get_xdata())
    errors = {name: np.asarray(line_labelled(axes, name).get_ydata()) for name in lesson.METHODS}
    assert (errors["linear attention"][counts >= 16] > 0.1).all()
    assert (errors["delta rule"][counts >= 16] > 0.1).all()
    assert (errors["ridge attention"][counts <= 48] < 0.01).all()
    assert (errors["ridge attention"][counts >= 80] > 0.1).all()
    assert (errors["softmax attention"] < 0.02).all()
    # Independent of the function that draws: ridge by least squares on extended rows.
    keys, values = lesson.random_pairs(192, 64, generator=torch.Generator().manual_seed(17))
    below = torch.cat([keys[:64], 0.1 * torch.eye(64).double()])
    padded = torch.cat([values[:64], torch.zeros(64, 64).double()])
    answers = keys[:64] @ torch.linalg.lstsq(below, padded).solution
    error = float((answers - values[:64]).square().sum() / values[:64].square().sum())
    assert errors["ridge attention"][list(counts).index(64)] == pytest.approx(error, rel=1e-6)


def test_costs_are_the_counts():
    axes = lesson.FIGURES["costs"]().axes[0]
    line = line_labelled(axes, "one rank-one update a token, $2 n d^2$")
    tokens = np.asarray(line.get_xdata())
    assert_line(line, tokens, 2 * tokens * 64**2)
    assert_line(line_labelled(axes, "one inversion a token, $n d^3$"), tokens, tokens * 64**3)
    assert_line(line_labelled(axes, "one inversion in all, $n d^2 + d^3$"), tokens, tokens * 64**2 + 64**3)


def test_the_error_arises_with_the_first_tokens():
    axes = lesson.FIGURES["drift"]().axes[0]
    plain = np.asarray(line_labelled(axes, "updated").get_ydata())
    anew = np.asarray(line_labelled(axes, "updated, computed anew every 100").get_ydata())
    factor = np.asarray(line_labelled(axes, "Cholesky factor").get_ydata())
    marks = np.array(lesson.MARKS)
    assert 16 <= marks[plain.argmax()] <= 100
    assert plain.max() > 100 * plain[marks == 10]
    assert plain.max() > 30 * plain[-1]
    assert (anew[marks >= 100] < 1e-5).all()
    assert factor[marks <= 100].max() < plain.max() / 5
    assert np.array_equal(anew[marks < 100], plain[marks < 100])


def test_conjugate_gradients_need_a_large_penalty():
    axes = lesson.FIGURES["conjugate_gradient"]().axes[0]
    after = {}
    for penalty in (1, 0.1, 0.01, 0.0001):
        line = line_labelled(axes, f"$\\lambda$ = {penalty:g}")
        steps, errors = (np.asarray(x) for x in line.get_data())
        assert errors[0] == pytest.approx(1)
        after[penalty] = float(errors[steps == 30][0])
    assert after[1] <= 1e-12
    assert 1e-7 <= after[0.1] <= 1e-4
    assert 0.005 <= after[0.01] <= 0.1
    assert after[0.0001] >= 0.3


def test_the_delta_memory_is_the_delta_rule():
    keys, values = lesson.random_pairs(7, 5, generator=torch.Generator().manual_seed(0))
    from course_lib.attention.ridge import delta_rule

    q = torch.eye(5).double()[[0] * 7]
    wanted = delta_rule(q, keys, values, step_size=0.7)[-1]
    torch.testing.assert_close(lesson.delta_memory(keys, values, step_size=0.7)[0], wanted)


@pytest.mark.parametrize("correlation", [0.0, 0.6])
def test_random_keys_have_length_one_and_the_cosine_asked_for(correlation):
    keys, values = lesson.random_pairs(
        400, 32, generator=torch.Generator().manual_seed(1), correlation=correlation
    )
    torch.testing.assert_close(keys.norm(dim=1), torch.ones(400).double())
    torch.testing.assert_close(values.norm(dim=1), torch.ones(400).double())
    cosines = (keys @ keys.T)[~torch.eye(400, dtype=bool)]
    assert abs(float(cosines.mean()) - correlation) < 0.05


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"pairs": 20, "log_penalty": -4.0}, "tells all pairs apart"),
        ({"pairs": 60}, "more pairs than dimensions"),
        ({"pairs": 20, "noise": 0.5, "log_penalty": -4.0}, "noise of the queries"),
        ({"pairs": 20, "log_penalty": 2.0}, "penalty shrinks"),
        ({"pairs": 1}, "With 1 pair the error"),
    ],
)
def test_the_explorer_says_what_it_draws(settings, said):
    explorer = lesson.RecallExplorer()
    _, words = explorer.frame(**settings)
    assert said in words
    numbers = re.findall(r"(?:error is|,|and) ([0-9.e+-]+) for", words)
    for text, curve, dot in zip(numbers, explorer.artists["curves"], explorer.artists["dots"], strict=True):
        x, y = (np.asarray(a) for a in curve.get_data())
        drawn = float(y[x == settings["pairs"]][0])
        assert max(drawn, 1e-9) == pytest.approx(float(text), rel=0.06)
        assert max(float(dot.get_ydata()[0]), 1e-12) == pytest.approx(drawn)
    spectrum = np.asarray(explorer.artists["values"].get_ydata())
    condition = float(re.search(r"condition number is ([0-9.e+]+?)\. ", words).group(1))
    assert condition == pytest.approx(spectrum[0] / spectrum[-1], rel=0.06)
    assert (np.diff(spectrum) <= 0).all()


def test_the_explorer_agrees_with_recall_errors_without_noise():
    state = lesson.RecallExplorer().compute(pairs=24, log_penalty=-2.0, correlation=0.3, noise=0.0)
    keys, values = lesson.random_pairs(96, 32, generator=torch.Generator().manual_seed(2), correlation=0.3)
    wanted = lesson.recall_errors(keys[:24], values[:24], penalty=0.01)
    for name, here in zip(lesson.RecallExplorer.names, state["here"], strict=True):
        assert here == pytest.approx(wanted[name], rel=1e-6)


def test_the_map_changes_half_way_and_errors_are_those_of_the_next_value():
    keys, values = lesson.changing_pairs(runs=2, tokens=60, width=3, noise=0.0)
    for part in (slice(0, 30), slice(30, 60)):
        k, v = keys[:, part], values[:, part]
        torch.testing.assert_close(k @ torch.linalg.lstsq(k, v).solution, v)
    assert not torch.allclose(keys @ torch.linalg.lstsq(keys, values).solution, values, atol=0.1)
    # One token by hand, for the window and for the decay.
    keys, values = lesson.changing_pairs()
    memory = ridge_memory(keys[:, 210:230], values[:, 210:230], penalty=0.01)
    miss = (keys[:, 230, None] @ memory)[:, 0] - values[:, 230]
    expected = float(miss.square().sum() / values[:, 230].square().sum())
    assert float(lesson.tracking_errors(window=20)[229]) == pytest.approx(expected)
    weights = 0.9 ** (torch.arange(229, -1, -1) / 2)[:, None]
    memory = ridge_memory(weights * keys[:, :230], weights * values[:, :230], penalty=0.01 * 0.9**230)
    miss = (keys[:, 230, None] @ memory)[:, 0] - values[:, 230]
    expected = float(miss.square().sum() / values[:, 230].square().sum())
    assert float(lesson.tracking_errors(decay=0.9)[229]) == pytest.approx(expected, rel=1e-4)


def test_the_picture_of_forgetting_draws_what_it_is_given():
    errors = {"a": torch.full((399,), 0.5), "b": torch.full((399,), 0.25)}
    axes = lesson.plot_forgetting(errors).axes[0]
    for name, height in (("a", 0.5), ("b", 0.25)):
        assert_line(line_labelled(axes, name), np.arange(1, 400), np.full(399, height))
    assert "a 0.5, b 0.25" in text_alternative(lesson.plot_forgetting(errors))
