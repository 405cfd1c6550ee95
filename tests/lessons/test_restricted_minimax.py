"""What the figures, tables and the explorer of lesson 30 show, and answers that its checkers must tell apart."""

import re
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
import torch

from course_lib.lessons import restricted_minimax as lesson
from course_lib.lessons.restricted_minimax import training
from course_lib.lessons.restricted_minimax.quiz import tuned
from course_lib.teaching.style import text_alternative
from course_lib.theory.restricted_minimax import (
    Solution,
    bayes_risk,
    bayes_rule,
    likelihood,
    minimax,
    risk,
    worst_case,
)
from tests.drawing import line_labelled

EXERCISES = lesson.EXERCISES
F64 = torch.float64


@cache
def figure(name):
    return lesson.FIGURES[name]()


def grade(number, answer):
    return EXERCISES[number].grade(answer, generator=torch.Generator().manual_seed(0))


def state_of(**settings):
    defaults = {name: control.default for name, control in lesson.NatureExplorer.controls.items()}
    return lesson.NatureExplorer().compute(**{**defaults, **settings})


# The question


def test_the_five_rules_are_sensible_and_report_what_the_text_says():
    rules = lesson.five_rules()
    assert [round(100 * float(rule[0]), 1) for rule in rules.values()] == [0.0, 2.4, 4.5, 6.1, 9.1]
    for rule in rules.values():
        assert rule.min() >= 0
        assert rule.max() <= 0.3
        assert (rule.diff() >= 0).all()
    assert "A 0.0%, B 2.4%, C 4.5%, D 6.1%, E 9.1%" in text_alternative(figure("question"))


def test_the_uniform_mean_is_the_reply_to_a_uniform_prior():
    fine = (torch.arange(2000, dtype=F64) + 0.5) / 2000 * 0.3
    wanted = bayes_rule(fine, torch.full_like(fine, 1 / 2000), 20)
    torch.testing.assert_close(lesson.rivals(20, 0.3)["uniform prior's mean"], wanted, rtol=1e-5, atol=0)


def test_each_rule_is_worst_where_its_dot_stands_and_each_rival_beats_d_somewhere():
    axes = figure("risks").axes[0]
    curves = {name: lesson.curve(rule, 0.3) for name, rule in lesson.five_rules().items()}
    for name, curve in curves.items():
        line = line_labelled(axes, name)
        np.testing.assert_allclose(line.get_ydata(), 1000 * curve)
        dots = [one for one in axes.lines if one.get_marker() == "o" and one.get_color() == line.get_color()]
        assert dots[0].get_ydata()[0] == pytest.approx(1000 * curve.max(), rel=1e-3)
        assert (curve < curves["D"] - 1e-5).any() == (name != "D")
    assert min(curves, key=lambda name: curves[name].max()) == "D"


def test_the_table_has_the_average_risks():
    rows = lesson.five_table().data.splitlines()[2:]
    averages = {row[2]: float(row.split("|")[-2]) for row in rows}
    assert min(averages, key=averages.get) == "C"
    assert averages["D"] == pytest.approx(0.95, abs=0.006)
    largest = [float(row.split("|")[-3]) for row in rows]
    assert largest == pytest.approx([1.61, 1.42, 1.82, 1.0, 2.21], abs=0.006)


# The explorer


@pytest.mark.parametrize(
    "setting",
    [
        {},
        {"w1": 1, "w2": 1, "w3": 1},
        {"first": 0.03, "second": 0.13, "w1": 13, "w2": 42, "w3": 45},
        {"w1": 0},
    ],
)
def test_floor_and_ceiling_of_the_explorer_enclose_the_smallest_largest_risk(setting):
    state = state_of(**setting)
    places, shares = (torch.tensor(column, dtype=F64) for column in zip(*state["prior"], strict=True))
    assert float(shares.sum()) == pytest.approx(1)
    floor, ceiling, _ = state["said"]
    assert floor == pytest.approx(1000 * float(bayes_risk(places, shares, 20)))
    assert ceiling == pytest.approx(1000 * worst_case(bayes_rule(places, shares, 20), 0.3)[0])
    assert floor <= 1000 * minimax(20, 0.3).upper <= ceiling
    np.testing.assert_allclose(state["reply"][1], bayes_rule(places, shares, 20))


def test_words_at_the_tasks_and_at_a_single_place():
    explorer = lesson.NatureExplorer()
    assert "floor 0.036, ceiling 41.958: the ceiling is 1,169.46 times the floor." in explorer.frame()[1]
    assert "floor 2.440, ceiling 9.108" in explorer.frame(w1=1, w2=1, w3=1)[1]
    best = explorer.frame(first=0.03, second=0.13, third=0.3, w1=13, w2=42, w3=45)[1]
    assert "floor 3.777, ceiling 3.855: the ceiling is 2.1% above the floor." in best
    assert best.startswith("Your prior: 0.03 with share 0.13, 0.13 with share 0.42, 0.30 with share 0.45.")
    assert "the statistician knows the rate" in explorer.frame(w1=0, w2=0)[1]
    assert "0.15 with share 1.00" in explorer.frame(first=0.15, second=0.15, third=0.15)[1]


def test_a_risk_below_the_axis_is_said_and_all_places_at_0_divide_nothing_by_0():
    explorer = lesson.NatureExplorer()
    assert explorer.frame()[1].endswith("At θ = 0.00 the risk, 0.00006, is below the axis.")
    words = explorer.frame(first=0.0, second=0.0, third=0.0, w1=1, w2=1, w3=1)[1]
    assert (
        "0.00 with share 1.00. In thousandths, floor 0.000, ceiling 90.000: the statistician knows" in words
    )
    state = state_of(first=0.0, second=0.0, third=0.0)
    assert np.isfinite(state["risk"][1]).all()
    assert state["ceiling"][1][0] == pytest.approx(90)
    np.testing.assert_array_equal(state["reply"][1], 0)
    assert "below the axis" not in explorer.frame(first=0.03, second=0.13, w1=13, w2=42, w3=45)[1]


def test_at_a_ratio_between_percent_and_times_the_words_agree_with_the_numbers():
    for w3 in range(1, 101, 9):
        words = lesson.NatureExplorer().frame(first=0.03, second=0.13, w1=20, w2=42, w3=w3)[1]
        floor, ceiling = (float(x) for x in re.search(r"floor ([\d.]+), ceiling ([\d.]+)", words).groups())
        if found := re.search(r"is ([\d.]+)% above", words):
            assert ceiling / floor - 1 == pytest.approx(float(found[1]) / 100, abs=1e-3)
        else:
            assert ceiling / floor == pytest.approx(
                float(re.search(r"is ([\d.]+) times", words)[1]), abs=0.01
            )


# The mechanism


def test_no_floor_of_the_picture_passes_a_ceiling():
    axes = figure("bounds").axes[0]
    floors = [float(one.get_xdata()[0]) for one in axes.lines if one.get_marker() is lesson.TIP_RIGHT]
    ceilings = [float(one.get_xdata()[0]) for one in axes.lines if one.get_marker() is lesson.TIP_LEFT]
    assert (len(floors), len(ceilings)) == (4, 5)
    assert max(floors) < 1000 * minimax(20, 0.3).upper <= min(ceilings) * (1 + 1e-9)
    assert floors == pytest.approx([0.036, 2.44, 3.06, 3.777], abs=0.005)
    assert ceilings == pytest.approx([6.1, 5.4, 6.9, 3.779, 8.3], abs=0.06)


def test_the_lower_place_leaves_0_before_a_third_is_born():
    assert [len(minimax(20, eta).atoms) for eta in (0.04, 0.05, 0.1, 0.12, 0.13, 0.15)] == [2, 2, 2, 2, 3, 3]
    assert minimax(20, 0.04).atoms[0] == 0
    assert [float(minimax(20, eta).atoms[0]) for eta in (0.05, 0.1)] == pytest.approx(
        [0.00136, 0.0155], abs=5e-5
    )
    assert minimax(20, 0.13).atoms[0] == 0
    assert len(minimax(5, 0.4).atoms) == 2
    assert minimax(5, 0.4).atoms[0] > 0.07


def test_the_picture_shows_every_place_and_each_birth():
    axes = figure("births").axes[0]
    found = lesson.births()
    assert max(one.gap for one in found) < 1e-9
    assert float(found[-1].atoms[-1]) == pytest.approx(0.75)
    drawn = [line for line in axes.lines if line.get_linestyle() == "-"]
    assert len(drawn) == len(found[-1].atoms) == 6
    assert [float(line.get_ydata()[-1]) for line in drawn] == pytest.approx(found[-1].atoms.flip(0).tolist())
    (dots,) = (line for line in axes.lines if line.get_marker() == "o")
    assert list(dots.get_xdata()) == pytest.approx([0.125, 0.335, 0.54, 0.705], abs=0.011)
    counts = [len(one.atoms) for one in found]
    assert counts == sorted(counts)
    for before, one in pairwise(found):
        if len(one.atoms) > len(before.atoms):
            assert one.atoms[0] == 0  # born at 0


def test_nature_gathers_at_three_places():
    shares = {steps: lesson.learned(steps) for steps in lesson.UPDATES}
    near = {}
    for steps, found in shares.items():
        apart = (found.atoms[:, None] - minimax(20, 0.3).atoms).abs().amin(1)
        near[steps] = float(found.weights[apart < 0.011].sum())
    assert list(near.values()) == sorted(near.values())
    assert near[0] < 0.3
    assert near[10_000] > 0.97


def test_the_nine_places_are_where_the_risk_is_largest():
    _, right_axes = figure("nine").axes
    best = minimax(50, 0.75)
    assert len(best.atoms) == 9
    touched = worst_case(best.rule, 0.75)[1]
    torch.testing.assert_close(touched, best.atoms, atol=1e-4, rtol=0)
    at, below = line_labelled(right_axes, "below").get_data()
    deep = np.asarray(at)[np.asarray(below) < 1e-7]
    assert all(np.abs(best.atoms.numpy() - place).min() < 5e-3 for place in deep)
    assert np.asarray(below)[np.searchsorted(at, best.atoms.numpy())].max() < 1e-7
    assert "2, 7, 13, 20, 30, 40, 51, 63, 75 hundredths" in text_alternative(figure("nine"))


# Training


def test_no_chosen_step_size_or_speed_stands_at_an_end_of_its_grid():
    for name, arm in training.ARMS.items():
        rate, speed = training.chosen(name)
        rates = training.ADAM_RATES if arm.adam else training.RATES
        assert min(rates) < rate < max(rates)
        if arm.mixture == "opponent":
            assert min(training.SPEEDS) < speed < max(training.SPEEDS)
    assert training.chosen("worst case") == (0.1, 0.0)  # what the page runs live


def test_floors_stay_below_and_ceilings_above_and_the_text_says_what_is_left():
    best = minimax(20, 0.3).upper
    for name in training.ARMS:
        runs = training.tested(name)
        assert (runs.floors <= best * (1 + 1e-9)).all()
        assert (runs.ceilings >= best * (1 - 1e-9)).all()
        assert (runs.ceilings.diff(dim=1) <= 0).all()
        if name != "average over θ":
            assert runs.gap < 0.03
    average = training.tested("average over θ").ceilings[:, -1] / best
    assert float(average.min()) > 1.7
    assert float(average.max()) < 1.825
    gaps = {name: training.tested(name).gap for name in training.ARMS}
    assert gaps["worst case, Adam, falling step"] < min(
        gap for name, gap in gaps.items() if name.startswith("opponent")
    )


def test_the_tally_of_each_run_has_three_clumps_near_the_best_shares():
    runs, best = lesson.shown_run(), minimax(20, 0.3)
    at = torch.linspace(0, 0.3, 61)
    for tally in runs.tally / runs.tally.sum(1, keepdim=True):
        clumps = [
            float(tally[(at > low) & (at < high)].sum()) for low, high in ((-1, 0.08), (0.08, 0.2), (0.2, 1))
        ]
        assert clumps == pytest.approx(best.weights.tolist(), abs=0.06)
        assert float(tally[-1]) > 0.4
    _, right_axes = figure("tally").axes
    ceiling = line_labelled(right_axes, "ceiling of the best rule so far").get_ydata()
    floor = line_labelled(right_axes, "floor of the tally so far").get_ydata()
    assert (np.diff(ceiling) <= 0).all()
    assert floor[-1] / 3.779 > 0.99
    assert ceiling[-1] / 3.779 < 1.03


def test_in_each_run_the_trained_rule_is_the_reply_where_counts_are_frequent_and_its_start_where_they_are_not():
    values = torch.linspace(0, 0.3, 61, dtype=F64)
    runs = lesson.shown_run()
    for rule, tally, start in zip(
        runs.rules, runs.tally / 1000, training.starts(training.TESTING), strict=True
    ):
        reply = bayes_rule(values, tally, 20)
        often = tally @ likelihood(values, 20) > 0.02
        assert often.nonzero().flatten().tolist() == list(range(10))
        assert (rule - reply)[often].abs().max() < 0.01
        assert (rule - start)[13:].abs().max() < 0.03
        swapped = torch.where(torch.arange(21) >= 11, reply, rule)
        assert worst_case(swapped, 0.3)[0] / worst_case(rule, 0.3)[0] == pytest.approx(1, abs=0.004)
    axes = figure("reports").axes[0]
    np.testing.assert_allclose(line_labelled(axes, "trained rule").get_ydata(), 100 * runs.rules[0])
    np.testing.assert_allclose(line_labelled(axes, "rule D").get_ydata(), 100 * minimax(20, 0.3).rule)


def test_training_in_a_loop_is_training_in_a_batch():
    values = torch.linspace(0, 0.3, 61, dtype=F64)
    p = likelihood(values, 20)
    rule = training.starts((5,))[0]
    tally, lowest, kept = torch.zeros(61, dtype=F64), float("inf"), rule
    for _ in range(training.STEPS):
        risks = risk(rule, values)
        worst = risks.argmax()
        tally[worst] += 1
        if risks[worst] < lowest:
            lowest, kept = risks[worst], rule
        rule = rule - 0.1 * 2 * p[worst] * (rule - values[worst])
    runs = training.train(training.ARMS["worst case"], rate=0.1, seeds=(5,))
    assert float((tally - runs.tally[0]).abs().sum()) < 40  # ties may go the other way
    torch.testing.assert_close(kept, runs.rules[0], atol=0.01, rtol=0)


def test_the_training_table_shows_the_runs():
    rows = lesson.training_table().data.splitlines()[2:]
    assert [row.split("|")[1].strip() for row in rows] == list(lesson.SHOWN)
    rows = lesson.training_table(every=True).data.splitlines()[2:]
    assert len(rows) == len(training.ARMS)
    for row, name in zip(rows, training.ARMS, strict=True):
        runs = training.tested(name)
        found = [float(x) for x in re.findall(r"≈([\d.]+)", row)]
        ceilings = runs.ceilings[:, -1] / minimax(20, 0.3).upper
        assert found[:3] == pytest.approx(
            [float(f(ceilings)) for f in (torch.mean, torch.min, torch.max)], abs=6e-4
        )
        assert found[-1] == pytest.approx(100 * runs.gap, abs=0.06)


# Quiz and exercises


def test_the_tuned_formula_stands_inside_its_grid():
    _, a, b = tuned()
    assert 1.05 < a < 2.45
    assert 4.25 < b < 8.75


@pytest.mark.parametrize("answer", [{"n": 1, "eta": 0.8}, {"n": 5, "eta": 0.179}, {"n": 9.0, "eta": 0.1}])
def test_small_numbers_of_tests_refute(answer):
    assert grade("30.6", answer).status == "solved"


@pytest.mark.parametrize("answer", [{"n": 1.5, "eta": 0.5}, {"n": 0, "eta": 0.5}, {"n": 2, "eta": 0.455}])
def test_others_do_not(answer):
    assert grade("30.6", answer).status in ("wrong", "mistake")


def test_answers_by_loops_are_accepted():
    def error(rule, theta):
        n = len(rule) - 1
        p = torch.distributions.Binomial(n, torch.tensor(theta, dtype=F64))
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

    for number, answer in (("30.1", error), ("30.2", means), ("30.3", bounds)):
        assert grade(number, answer).status == "solved"


def test_rounded_numbers_count_and_near_ones_do_not():
    assert grade("30.4", {"a": 0.16, "risk": 0.0256}).status == "solved"
    assert grade("30.4", {"a": 0.165, "risk": 0.0272}).status == "wrong"
    assert grade("30.5", {"weight": 0.556, "estimate": 0.0889}).status == "solved"
    assert grade("30.5", {"weight": 0.56, "estimate": 0.0889}).status == "wrong"


def test_the_shares_of_the_best_prior_matter():
    """What the page prints: the same three places, taken evenly, have a lower floor."""
    best = minimax(20, 0.3)
    even = Solution.of(best.atoms, torch.ones(3, dtype=F64) / 3, n=20, eta=0.3)
    assert even.lower / best.upper == pytest.approx(0.919, abs=0.001)


def test_one_test_is_equal_at_both_ends_and_flat():
    axes = figure("balance").axes[0]
    ends = line_labelled(axes, "safest for η = 0.5").get_ydata()
    assert ends[0] == pytest.approx(ends[-1]) == pytest.approx(0.043, abs=5e-4)
    assert max(ends) == pytest.approx(ends[0])
    np.testing.assert_allclose(line_labelled(axes, "safest for η = 0.9").get_ydata(), 1 / 16)
    assert line_labelled(axes, "safest without the bound, cut at 0.5").get_ydata()[0] == pytest.approx(1 / 16)
