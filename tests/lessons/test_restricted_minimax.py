"""What the curves of lesson 30 are, what its explorer says, and answers that its checkers must tell apart."""

import numpy as np
import pytest
import torch

from course_lib.lessons import restricted_minimax as lesson
from course_lib.theory.restricted_minimax import bayes_risk, bayes_rule, likelihood, risk, worst_case
from tests.drawing import line_labelled

EXERCISES = lesson.EXERCISES


def grade(number, answer):
    return EXERCISES[number].grade(answer, generator=torch.Generator().manual_seed(0))


def state_of(**settings):
    defaults = {name: control.default for name, control in lesson.RuleExplorer.controls.items()}
    return lesson.RuleExplorer().compute(**{**defaults, **settings})


@pytest.mark.parametrize(
    "setting",
    [{}, {"a": 0.1, "b": 0.9, "eta": 0.8}, {"a": 0.45, "b": 0.2}, {"a": 0.05, "b": 1.0, "eta": 1.0}],
)
def test_the_explorers_quadratic_is_the_risk_and_its_answer_the_worst(setting):
    state = state_of(**setting)
    _, (a, b), eta, value, peaks, _, floor = state["said"]
    rule = torch.tensor([a, b], dtype=torch.float64)
    np.testing.assert_allclose(state["risk"][1], lesson.curve(rule, eta), atol=1e-12)
    wanted, places = worst_case(rule, eta)
    assert value == pytest.approx(wanted)
    np.testing.assert_allclose(peaks, places, atol=1e-4)
    assert value >= floor


def test_the_closed_form_reaches_the_floor_and_b_sticks():
    for eta, b in ((0.3, 0.3), (0.75, 0.75), (0.9, 0.75), (1.0, 0.75)):
        _, used, _, value, _, flat, floor = state_of(eta=eta, rule="closed form")["said"]
        assert value == pytest.approx(floor)
        assert used[1] == pytest.approx(b)
        assert flat == (eta >= 0.75)
    assert (state_of()["first"] < -0.1).all()


def test_words():
    explorer = lesson.RuleExplorer()
    assert explorer.frame()[1] == (
        "η = 0.50, your rule a = 0.250, b = 0.500: nature answers θ = 0, risk 0.0625. That is 45.7% above the smallest "
        "possible."
    )
    assert "θ = 0 or 0.5, risk 0.0429. No rule does better." in explorer.frame(rule="closed form")[1]
    assert "any θ: the risk is flat" in explorer.frame(rule="closed form", eta=0.9)[1]


def test_rivals_stay_in_the_interval_and_the_uniform_mean_is_bayes():
    fine = (torch.arange(2000, dtype=torch.float64) + 0.5) / 2000 * 0.3
    others = lesson.rivals(20, 0.3)
    assert all(rule.min() >= 0 and rule.max() <= 0.3 for rule in others.values())
    wanted = bayes_rule(fine, torch.full_like(fine, 1 / 2000), 20)
    torch.testing.assert_close(others["uniform prior's mean"], wanted, rtol=1e-5, atol=0)


def test_the_larger_risk_at_the_ends_is_smallest_at_the_closed_form():
    axes = lesson.plot_ends().axes[0]
    a, larger = line_labelled(axes, "the larger one").get_data()
    for name, risk_of in (("if θ = 0", lambda a: a**2), ("if θ = 1/2", lambda a: (0.5 - a) ** 2 / 2)):
        np.testing.assert_allclose(line_labelled(axes, name).get_ydata(), risk_of(a), atol=1e-12)
    assert a[larger.argmin()] == pytest.approx((2**0.5 - 1) / 2, abs=2e-3)


def test_the_minimax_curve_is_the_lowest_at_its_worst():
    left, _ = lesson.plot_touch().axes
    tops = {
        line.get_label(): max(line.get_ydata()) for line in left.lines if not line.get_label().startswith("_")
    }
    assert min(tops, key=tops.get) == "minimax"
    assert tops["minimax"] == pytest.approx(0.003779, abs=1e-6)
    top = max(line_labelled(left, "truncated x/n").get_ydata())
    assert top / tops["minimax"] == pytest.approx(
        lesson.ratio(lesson.rivals(20, 0.3)["truncated x/n"], 20, 0.3), abs=1e-3
    )


# Exercises


@pytest.mark.parametrize("answer", [{"n": 1, "eta": 0.8}, {"n": 5, "eta": 0.179}, {"n": 9.0, "eta": 0.1}])
def test_small_numbers_of_trials_refute(answer):
    assert grade("30.5", answer).status == "solved"


@pytest.mark.parametrize("answer", [{"n": 1.5, "eta": 0.5}, {"n": 0, "eta": 0.5}, {"n": 2, "eta": 0.455}])
def test_others_do_not(answer):
    assert grade("30.5", answer).status in ("wrong", "mistake")


def test_answers_by_loops_are_accepted():
    def error(rule, theta):
        n = len(rule) - 1
        p = torch.distributions.Binomial(n, torch.tensor(theta, dtype=torch.float64))
        return sum(
            float(p.log_prob(torch.tensor(float(x))).exp()) * (float(d) - theta) ** 2
            for x, d in enumerate(rule)
        )

    def means(atoms, weights, n):
        p = likelihood(atoms, n)
        return torch.stack(
            [(weights * p[:, x] * atoms).sum() / (weights * p[:, x]).sum() for x in range(n + 1)]
        )

    def bounds(rule, atoms, weights, places):
        return torch.stack([bayes_risk(atoms, weights, len(rule) - 1), max(risk(rule, places))])

    for number, answer in (("30.1", error), ("30.3", means), ("30.6", bounds)):
        assert grade(number, answer).status == "solved"


def test_rounded_numbers_count_and_near_ones_do_not():
    assert grade("30.2", {"a": 0.16, "risk": 0.0256}).status == "solved"
    assert grade("30.2", {"a": 0.165, "risk": 0.0272}).status == "wrong"
    assert grade("30.4", {"weight": 0.556, "estimate": 0.0889}).status == "solved"
    assert grade("30.4", {"weight": 0.56, "estimate": 0.0889}).status == "wrong"
