"""What the figures, tables and explorers of lesson 27 show, and answers that its checkers must tell apart."""

from functools import cache
from statistics import mean

import numpy as np
import pytest
import torch

from benchmarks.head_race import NEAR
from course_lib.lessons import induction_heads as lesson
from course_lib.lessons.induction_heads import measurements as made
from course_lib.measured import measured
from course_lib.teaching.style import text_alternative
from course_lib.theory.induction_heads import Weights, examples, predict, start
from course_lib.theory.markov_chains import criterion, cross_entropy, generalised_head, next_table, oracle
from tests.drawing import assert_line, line_labelled

EXERCISES = lesson.EXERCISES


@cache
def figure(name):
    return lesson.FIGURES[name]()


def grade(number, answer):
    return EXERCISES[number].grade(answer, generator=torch.Generator().manual_seed(0))


# The game


def test_players_have_habits_and_oppose_lag_2():
    law = made.players(4000, 0.3, seed=1).law[..., 1]  # of a B: (players, older, newer)
    torch.testing.assert_close(law[:, 0] - law[:, 1], torch.full_like(law[:, 0], 0.3))
    habit = (law[:, 0] - 0.3) / 0.7
    repeats = habit[:, 0] < 0.5
    assert float(repeats.double().mean()) == pytest.approx(0.5, abs=0.03)
    slips = torch.where(repeats[:, None], torch.stack([habit[:, 0], 1 - habit[:, 1]], 1),
                        torch.stack([1 - habit[:, 0], habit[:, 1]], 1))  # fmt: skip
    assert 0.05 <= float(slips.min()) < 0.055
    assert 0.195 < float(slips.max()) <= 0.2
    assert float(slips.mean()) == pytest.approx(0.125, abs=0.002)


def test_games_do_not_depend_on_the_default_dtype():
    before = made.game(50, 0.3, seed=4)[1]
    torch.set_default_dtype(torch.float64)
    try:
        after = made.game(50, 0.3, seed=4)[1]
    finally:
        torch.set_default_dtype(torch.float32)
    assert torch.equal(before, after)


def test_the_best_reader_is_between_the_counters_and_the_oracle():
    chains, presses = made.game(3000, 0.3, seed=11)
    seen, law = presses[:, :-1], None
    law = oracle(chains, seen)
    cost = lambda y: float(-(law * (y + 1e-3).log()).sum(1).mean())  # noqa: E731
    best = made.best_reader(seen, 0.3)
    torch.testing.assert_close(best.sum(1), torch.ones(3000).double())
    counters = [cost(made.smoothed_reader(seen, lags, 0.5)) for lags in ((1,), (1, 2))]
    assert cost(law) < cost(best) < min(counters) - 0.005


def test_the_best_reader_agrees_with_a_sum_over_all_players():
    """Against a plain sum over habits and two grids of slips."""
    presses = made.game(5, 0.3, seed=12, length=20)[1][:, :-1]
    at = 0.05 + 0.15 * (torch.arange(7).double() + 0.5) / 7
    for row, found in zip(presses, made.best_reader(presses, 0.3, points=7), strict=True):
        total, b = 0.0, 0.0
        for changes in (False, True):
            for s_a in at:
                for s_b in at:
                    after = [float(s_a), 1 - float(s_b)]
                    after = [1 - x for x in after] if changes else after
                    law = lambda older, newer, after=after: 0.7 * after[newer] + 0.3 * (older == 0)  # noqa: E731
                    weight = 1.0
                    for t in range(2, len(row)):
                        p = law(int(row[t - 2]), int(row[t - 1]))
                        weight *= p if row[t] == 1 else 1 - p
                    total, b = total + weight, b + weight * law(int(row[-2]), int(row[-1]))
        assert float(found[1]) == pytest.approx(b / total, rel=1e-9)


def test_a_fixed_table_counts_what_followed_each_pair():
    known = torch.tensor([[0, 1, 1, 0, 1, 0, 0, 0, 1, 0, 0], [1, 1, 1, 1, 0, 1, 1, 0, 0, 1, 1]])
    found = made.fixed_table(torch.tensor([[0, 1], [1, 1]]), known)
    following = {pair: [] for pair in ((0, 1), (1, 1))}
    for row in known.tolist():
        for t in range(2, len(row)):
            if (row[t - 2], row[t - 1]) in following:
                following[row[t - 2], row[t - 1]].append(row[t])
    assert found[:, 1].tolist() == pytest.approx([mean(following[0, 1]), mean(following[1, 1])])


def test_smoothing_by_nothing_is_the_counter():
    presses = made.game(200, 0.3, seed=5)[1]
    torch.testing.assert_close(made.smoothed_reader(presses, (1,), 1e-12), generalised_head(presses[:, 0:], (1,), 2),
                               atol=0.02, rtol=0)  # fmt: skip


def test_scale_first_keeps_the_shares_until_the_scale_is_there():
    history = made.train_arm(made.SCALE_FIRST, steps=40)
    p = history.weights.selection()
    torch.testing.assert_close(p[:21], torch.full_like(p[:21], 0.25))
    assert len(p) == 41
    assert bool((history.weights.a[21:] == history.weights.a[20]).all())
    assert float((p[30] - 0.25).abs().max()) > 0.01
    assert history.stages == (10, 10, 20)


# The pictures


def test_the_drawn_player_divides_the_readers():
    presses = lesson.pictures.player()
    found = {lags: lesson.places_that_match(presses, lags) for lags in ((1,), (1, 2))}
    assert [len(found[lags]) for lags in found] == [7, 4]
    assert [int(presses[hits].sum()) for hits in found.values()] == [3, 3]
    assert presses[-2:].tolist() == [0, 1]
    assert int(made.held_out()[1][lesson.pictures.PLAYER, lesson.pictures.SHOWN]) == 1  # she pressed B


def test_the_one_of_lag_1_takes_everything_early():
    axes = figure("race").axes[0]
    assert line_labelled(axes, "{1}").get_ydata()[-1] > 0.99
    assert max(line_labelled(axes, name).get_ydata()[-1] for name in ("{1, 2}", "{2}", "∅")) < 0.005


def test_squares_add_up_to_the_criterion():
    for lags in ((1,), (1, 2)):
        value = sum(mu**2 * chi for _, mu, chi in lesson.blocks(lags))
        assert value == pytest.approx(float(criterion(lesson.typical(), lags)), rel=1e-9)
    assert "squares cover 0.50" in text_alternative(figure("worth"))
    assert "squares cover 0.29" in text_alternative(figure("worth"))


def test_comparisons_and_single_sets_are_those_of_the_model():
    chains, presses = made.game(300, 0.3, seed=6)
    sharp = start(made.SIZES, own=40.0)
    data = examples(presses, made.SIZES)
    for place, lags in ((1, (1,)), (3, (1, 2))):
        alone = Weights(sharp.w, torch.eye(4).double()[place], torch.tensor(2.0).double())
        y, law = predict(data, made.SIZES, alone), oracle(chains, presses[:, :-1])
        wanted = float(-(law * (y + 1e-3).log()).sum(1).mean())
        assert lesson.one_set_losses([2.0], lags, (chains, presses))[0] == pytest.approx(wanted, abs=1e-9)


def test_attention_is_that_of_the_model():
    history = made.train_arm(made.TOGETHER)
    weights = made.last(history, 0)
    presses = lesson.pictures.player()
    attention = lesson.attention_on_player(weights)
    wanted = predict(examples(torch.cat([presses, presses[:1]])[None], made.SIZES), made.SIZES, weights)[0]
    assert float(attention.sum()) == pytest.approx(1)
    assert float(attention @ presses[2:].double()) == pytest.approx(float(wanted[1]), abs=1e-9)


def test_the_crossing_stands_where_the_curves_cross():
    axes, at = figure("scale").axes[0], lesson.crossing()
    one, both = (np.asarray(line_labelled(axes, name).get_ydata()) for name in ("{1}", "{1, 2}"))
    scales = np.asarray(line_labelled(axes, "{1}").get_xdata())
    assert 1.4 < at < 1.55
    assert (one[(scales > 0.05) & (scales < 1.4)] < both[(scales > 0.05) & (scales < 1.4)]).all()
    assert (one[scales > 1.6] > both[scales > 1.6]).all()
    assert scales[both.argmin()] == pytest.approx(4, abs=0.5)


def test_trained_together_the_pair_overtakes_from_next_to_nothing():
    high_axes, low_axes = figure("together").axes
    history = made.train_arm(made.TOGETHER)
    assert_line(line_labelled(low_axes, "{1, 2}"), np.arange(401), made.shares(history, (1, 2))[:, 0].numpy())
    high = made.train_arm(made.TOGETHER, c=1.0)
    assert_line(line_labelled(high_axes, "{1}"), np.arange(401), made.shares(high, (1,))[:, 0].numpy())
    assert float(made.shares(high, (1, 2)).min()) >= 0.25 - 1e-9
    assert float(made.shares(high, (1, 2))[-1].min()) > 0.5
    assert float(made.shares(high, (1,)).amax(0).min()) > 0.5  # {1} leads at first
    flips = [int((run.weights.c[1:] * run.weights.c[:-1] < 0).sum()) for run in (high, history)]
    assert flips[0] == 0
    assert flips[1] > 100, "the steps from 0.01 are large, those from 1 are not"
    assert float(made.shares(history, (1, 2))[40].max()) < 1e-12  # a millionth of a millionth
    above = (made.shares(history, (1,)) > 0.99).sum(0)
    assert [int(above.min()), int(above.max())] == [60, 112]
    assert float(made.shares(history, (1, 2))[40:].amax(0).min()) > 0.95
    assert sum(float(x) < 0.9 for x in made.shares(history, (1, 2))[-1]) == 1
    assert 3.5 < float(history.weights.a[-1].min()) < float(history.weights.a[-1].max()) < 5


def test_the_sharper_attention_stays_at_the_same_places_while_the_shares_spread():
    held = [made.train_selector(a) for a in (3.0, 10.0)]
    looks = [made.matched_attention(history) for history in held]
    assert bool((looks[1] > looks[0]).all())
    assert float(looks[0].min()) > 0.8
    assert bool((made.shares(held[1], (1, 2))[-1] < made.shares(held[0], (1, 2))[-1]).all())


def test_the_floor_decides_who_leads_after_24_presses():
    presses = made.held_out()[1]
    past, coming = presses[:, :24], presses[:, 24]
    plain = [float(cross_entropy(generalised_head(past, lags, 2), coming)) for lags in ((1,), (1, 2))]
    smoothed = [
        float(cross_entropy(made.smoothed_reader(past, lags, 0.5), coming)) for lags in ((1,), (1, 2))
    ]
    assert plain[0] < plain[1]
    assert smoothed[1] < smoothed[0]


# What is stored


def test_the_rate_is_the_smallest_that_is_nearly_best_and_no_end_of_the_grid():
    for way, a in made.ARMS:
        arm = f"{way}, a from {a:g}"
        found = {
            rate: mean(measured("head_race", f"{arm}, rate {rate:g}, validation")) for rate in made.RATES
        }
        wanted = min(rate for rate in made.RATES if found[rate] <= min(found.values()) + NEAR)
        assert measured("head_race", f"{arm}, best rate") == wanted == 1.0


def test_what_the_text_says_of_the_stored_runs():
    for rate in made.RATES:
        assert min(measured("head_race", f"in stages, a from 0.01, rate {rate:g}, validation")) > 0.6
        assert max(measured("head_race", f"in stages, a from 0.01, rate {rate:g}, share of {{1, 2}}")) < 0.05
    worst = max(max(lesson.stored(arm, "loss")) for arm in made.ARMS[1:])
    assert worst < min(lesson.stored(made.ARMS[0], "loss")) - 0.03
    for arm in made.ARMS[1:]:
        assert min(lesson.stored(arm, "share of {1, 2}")) > 0.5
    held = {
        a: [measured("head_race", f"selector at a = {a:g}, share of {s}") for s in ("{1}", "{1, 2}")]
        for a in made.HELD
    }
    for a, (one, both) in held.items():
        if a <= 1:
            assert min(one) > 0.99
        elif 2 <= a <= 4:
            assert all(x > y for x, y in zip(both, one, strict=True))
        elif a >= 10:
            assert mean(both) < 0.3 < mean(one)
    for way, a in made.ARMS:
        arm = f"{way}, a from {a:g}"
        tail = [
            mean(measured("head_race", f"{arm}, rate {rate:g}, validation"))
            for rate in made.RATES
            if rate >= 1
        ]
        assert max(tail) - min(tail) < 0.001
    assert max(lesson.stored((made.SCALE_FIRST, 0.01), "share of {1, 2}", 1600)) < 0.5
    smoothed = measured("head_race", "smoothed (1, 2)")
    assert mean(lesson.stored((made.TOGETHER, 0.01), "loss")) == pytest.approx(smoothed, abs=0.003)
    for rate, bound in ((0.03, 1.0), (0.1, 1.8)):
        assert max(measured("head_race", f"together, a from 0.01, rate {rate:g}, a")) < bound
        assert max(measured("head_race", f"together, a from 0.01, rate {rate:g}, share of {{1, 2}}")) < 0.01


def test_live_runs_repeat_the_stored_ones():
    for way, a in made.ARMS:
        history = made.train_arm(way, a)
        for lags, name in (((1,), "{1}"), ((1, 2), "{1, 2}")):
            found = made.shares(history, lags)[-1].tolist()
            assert found == pytest.approx(lesson.stored((way, a), f"share of {name}"), abs=2e-3)
        assert made.loss_on(made.held_out(), history) == pytest.approx(
            lesson.stored((way, a), "loss"), abs=2e-4
        )
    seen, target = made.held_out()[1][:, :-1], made.held_out()[1][:, -1]
    for lags in made.SETS:
        loss = float(cross_entropy(generalised_head(seen, lags, 2), target))
        assert loss == pytest.approx(measured("head_race", f"reader {lags}"), abs=1e-4)


# The explorers


def test_the_tasks_of_the_race_have_the_answers_of_the_text():
    explorer = lesson.RaceExplorer()

    def outcome(**settings):
        state = explorer.compute(**{"delta": 0.3, "length": 100, **settings})
        ends = {name: state[name][1][-1] for name in ("∅", "{1}", "{2}", "{1, 2}")}
        return max(ends, key=ends.get), min(state["losses"], key=state["losses"].get)

    assert {outcome(delta=d)[0] for d in (0.0, 0.1, 0.2, 0.3, 0.4)} == {"{1}"}
    assert {outcome(delta=d)[0] for d in (0.44, 0.6, 0.9)} == {"{2}"}
    assert {outcome(delta=d)[1] for d in (0.0, 0.1, 0.2)} == {(1,)}
    assert {outcome(delta=d)[1] for d in (0.22, 0.3, 0.44, 0.6, 0.9)} == {(1, 2)}
    assert {outcome(length=n)[0] for n in (40, 200, 300)} == {"{1}"}


def test_the_criterion_of_both_parents_is_largest_only_near_one_delta():
    largest = []
    for delta in np.arange(0, 1.001, 0.01):
        table = next_table(made.players(1000, float(delta), seed=3), 2)
        worths = {lags: float(criterion(table, lags).mean()) for lags in made.SETS}
        if max(worths, key=worths.get) == (1, 2):
            largest.append(delta)
    assert all(0.42 <= delta <= 0.44 for delta in largest)


def test_the_window_is_where_the_text_says():
    right = figure("window").axes[0]
    ends = {a: lesson.ends_at(a).mean(0) for a in lesson.WINDOW}
    assert_line(line_labelled(right, "{1, 2}"), lesson.WINDOW, [float(end[3]) for end in ends.values()])
    for a, end in ends.items():
        if a <= 1:
            assert float(end[1]) > 0.99
        elif 2 <= a <= 5:
            assert float(end[3]) > 0.65
        elif a >= 8:
            assert float(end[3]) < 0.4 < float(end[1])
    assert all(float(lesson.ends_at(a)[:, 3].min()) > 0.5 for a in (2.0, 3.0, 4.0))


def test_copies_come_from_the_lags_below():
    text = [label.get_text() for label in figure("copies").axes[0].texts]
    presses = ["AB"[press] for press in lesson.pictures.player().tolist()]
    assert text == ["press", *presses, "?", "copier 1", *presses, "copier 2", *presses[:-1]]


# Exercises


def test_the_librarys_own_head_is_accepted_where_places_match():
    def shares(tokens, lags, vocabulary):
        window = torch.arange(max(lags), len(tokens))
        hit = torch.ones(len(window), dtype=torch.bool)
        for lag in lags:
            hit &= tokens[window - lag] == tokens[-lag]
        counts = torch.bincount(tokens[window][hit], minlength=vocabulary).double()
        return counts / max(float(counts.sum()), 1.0)

    assert grade("27.1", shares).status == "solved"
    always = lambda tokens, lags, vocabulary: generalised_head(tokens[None], lags, vocabulary)[0]  # noqa: E731
    assert grade("27.1", always).status != "solved"  # the unigram where nothing matches


def test_the_worth_of_a_table_by_the_library_is_accepted():
    def by_library(joint):
        return criterion(joint[None], (1,))[0]

    def without_minus(joint):
        return by_library(joint) * joint.shape[1]

    assert grade("27.2", by_library).status == "solved"
    assert grade("27.2", without_minus).status != "solved"


def test_numbers():
    assert grade("27.3", 0.2624).status == grade("27.3", 0.41 * 0.64).status == "solved"
    assert grade("27.3", 0.32).mistake == "as {1}"
    assert grade("27.3", 0.27).status != "solved"


def test_the_race_by_autograd_is_right_and_refused():
    def velocity(c, values, a):
        leaf = c.clone().requires_grad_()
        gain = a * (leaf.square() / leaf.square().sum() * values).sum()
        return torch.autograd.grad(gain, leaf)[0]

    found = grade("27.4", velocity)
    assert (found.status, found.mistake) == ("mistake", "autograd")
    assert found.message.startswith("The numbers are right")
    assert grade("27.4", lambda c, values, a: 1.5 * velocity(c, values, a)).status != "solved"
    assert grade("27.4", lambda c, values, a: 0 * c).status != "solved"


@pytest.mark.parametrize(
    "p", [(0.1, 0.9, 0.9, 0.1), (0.2, 0.8, 0.8, 0.2), (0.9, 0.1, 0.1, 0.9), (0.1, 0.8, 0.9, 0.2)]
)
def test_pairs_that_win(p):
    assert grade("27.5", dict(zip(("p_00", "p_01", "p_10", "p_11"), p, strict=True))).status == "solved"


@pytest.mark.parametrize("p", [(0.1, 0.9, 0.105, 0.895), (0.01, 0.99, 0.99, 0.01), (0.05, 0.5, 0.5, 0.95)])
def test_counterexamples_that_miss_one_condition(p):
    assert grade("27.5", dict(zip(("p_00", "p_01", "p_10", "p_11"), p, strict=True))).status != "solved"
