"""What the curves of lesson 29 are, what its explorer says, and answers that its checkers must tell apart."""

import itertools
import re
from functools import cache
from statistics import mean

import numpy as np
import pytest
import torch

from benchmarks import margin_cuts, margin_norms, margin_rivals
from course_lib.lessons import attention_margin as lesson
from course_lib.measured import measured
from course_lib.theory.attention_margin import Constraints, gradient_flow, loss_gradient
from tests.drawing import assert_line, line_labelled

EXERCISES = lesson.EXERCISES


def grade(number, answer):
    return EXERCISES[number].grade(answer, generator=torch.Generator().manual_seed(0))


@cache
def figure(name):
    return lesson.FIGURES[name]()


def state_of(**settings):
    defaults = {name: control.default for name, control in lesson.LayerExplorer.controls.items()}
    return lesson.LayerExplorer().compute(**{**defaults, **settings})


# The samples


@pytest.mark.parametrize("rank", [1, 3, 10])
def test_the_truth_has_equal_singular_values_and_decides_what_is_right(rank):
    w_star = lesson.truth(4, rank)
    values = torch.linalg.svdvals(w_star)
    torch.testing.assert_close(values[:rank], values[:1].expand(rank))
    assert values[rank:].abs().max() < 1e-12 if rank < 10 else True
    assert float(w_star.norm()) == pytest.approx(10**0.5)
    for tokens, queries in lesson.drawn(4, rank):
        logits = torch.einsum("ntd,de,ne->nt", tokens, w_star, queries)
        assert (logits.argmax(1) == 0).all()
        assert lesson.accuracy(lesson.conditions(tokens, queries), w_star) == 1


def test_parts_do_not_share_samples_and_ranks_share_the_tokens():
    parts = [tokens for tokens, _ in lesson.drawn(2, 1)]
    assert [len(part) for part in parts] == [40, 200, 1000]
    first = {x for part in parts for x in part.flatten().tolist()}
    assert len(first) == sum(part.numel() for part in parts)
    other = lesson.drawn(2, 10)[0][0]
    torch.testing.assert_close(parts[0].sort(dim=1)[0], other.sort(dim=1)[0])


def test_conditions_are_those_of_values_one_and_minus_one():
    given = lesson.hook().training
    W = 0.3 * lesson.randn(10, 10, generator=lesson.rng(5))
    leads = given.margins(W.expand(10, 10, 10))
    right = 1 / (1 + (-leads).exp().sum(-1))
    wanted = (1 - 2 * right).exp().sum(-1)
    step = 1e-6 * lesson.randn(10, 10, generator=lesson.rng(6))
    after = given.margins((W + step).expand(10, 10, 10))
    moved = (1 - 2 / (1 + (-after).exp().sum(-1))).exp().sum(-1) - wanted
    torch.testing.assert_close(
        (loss_gradient(given, W.expand(10, 10, 10)) * step).sum((1, 2)), moved, rtol=1e-3, atol=1e-9
    )


def test_cut_keeps_the_largest_singular_values():
    W = lesson.randn(3, 10, 10, generator=lesson.rng(1))
    values = torch.linalg.svdvals(lesson.cut(W, 4))
    torch.testing.assert_close(values[:, :4], torch.linalg.svdvals(W)[:, :4])
    assert values[:, 4:].max() < 1e-10
    torch.testing.assert_close(lesson.cut(W, 10), W)


def test_a_penalty_shrinks_its_norm_and_none_is_descent():
    given = lesson.problem(1, [0, 1]).training
    plain, nuclear, frobenius = (
        lesson.penalised(given, size, kind, steps=200)
        for size, kind in ((0, "nuclear"), (0.2, "nuclear"), (0.2, "frobenius"))
    )
    torch.testing.assert_close(plain, lesson.penalised(given, 0, "frobenius", steps=200))
    assert (lesson.norm(nuclear, "nuclear") < lesson.norm(plain, "nuclear")).all()
    assert (lesson.norm(frobenius, "Frobenius") < lesson.norm(plain, "Frobenius")).all()
    ranks = [(torch.linalg.svdvals(w) > 1e-9).sum(1).max() for w in (nuclear, frobenius)]
    assert ranks[0] < 6 < ranks[1]


def test_stopping_early_is_never_worse_on_what_it_chooses_by():
    seeds = [0, 1]
    at = lesson.problem(1, seeds)
    ten = lesson.trained(at.training, "KQ", seeds, [10]).products[0]
    early = lesson.stopped(at, "KQ", seeds)
    assert (lesson.accuracy(at.held_out, early) >= lesson.accuracy(at.held_out, ten) - 0.02).all()


# Figures


def test_the_plane_is_where_the_flow_goes():
    given = Constraints(*(torch.tensor(x).double() for x in ([[[2.0, 1.0]]], [[2.0]], [1.0])))
    zero = torch.zeros(2, dtype=torch.float64)
    for start in (0.01, 1.0, 10.0):
        beta = gradient_flow(given, [zero + start, zero], parametrisation="kq", margins=(30,)).products[0]
        margin = float(given.margin(beta))
        np.testing.assert_allclose(lesson.plane_point(start, margin), beta / margin, rtol=1e-4, atol=1e-6)


def test_the_layers_differ_by_the_angles_that_the_caption_gives():
    curves = np.array([line.get_ydata() for line in figure("question").axes[0].lines])
    assert curves.shape == (int(lesson.arrived().sum()), len(lesson.LADDER))
    assert 30 < curves.min() < curves.max() < 45


def test_new_samples_favour_the_factors_in_each_set():
    pairs = np.array([line.get_ydata() for line in figure("new").axes[0].lines[:-1]])
    assert len(pairs) == int(lesson.arrived().sum()) >= 6
    assert (pairs[:, 1] - pairs[:, 0]).min() > 4
    assert pairs.mean(0) == pytest.approx([45, 61], abs=4)


def test_pulls_fall_like_an_exponential():
    axes = figure("pull").axes[0]
    for label in ("margin 1", "margin 10"):
        line = line_labelled(axes, label)
        leads, pulls = np.asarray(line.get_xdata()), np.asarray(line.get_ydata())
        assert len(leads) == 120
        assert pulls[leads > 6].max() < 0.01
        near = leads < 12
        assert np.abs(np.log(pulls[near]) + leads[near]).max() < 0.8


def test_the_race_is_the_hyperbolic_sine():
    left, right = figure("race").axes
    tau = np.linspace(0.005, 2.5, 300)
    assert_line(line_labelled(left, "k and q: β₁, pulled by 2"), tau, np.sinh(4 * tau) / 2)
    assert_line(line_labelled(left, "β itself: β₂, pulled by 1"), tau, tau)
    assert_line(line_labelled(right, "k and q trained"), tau, 1 / (2 * np.cosh(2 * tau)))
    np.testing.assert_allclose(line_labelled(right, "β trained directly").get_ydata(), 0.5)


def test_the_ends_in_the_plane_touch_the_balls_of_their_norms():
    points = {
        line.get_label(): np.array([*line.get_xdata(), *line.get_ydata()])
        for line in figure("plane").axes[0].lines
    }
    alone, made = points["W: (0.4, 0.2)"], points["k * q ends at (0.5, 0)"]
    assert lesson.ROW @ alone == pytest.approx(1)
    assert lesson.ROW @ made == pytest.approx(1)
    along = np.stack([np.linspace(-1, 1, 2001), 1 - 2 * np.linspace(-1, 1, 2001)])
    assert np.linalg.norm(alone) == pytest.approx(np.linalg.norm(along, axis=0).min(), abs=1e-3)
    assert np.abs(made).sum() == pytest.approx(np.abs(along).sum(0).min(), abs=1e-3)


def test_the_best_part_of_the_path_is_where_the_last_training_sample_comes_right():
    axes = figure("growth").axes[0]
    sizes = np.array(lesson.SIZES)
    _, came_right = lesson.grown("KQ")
    right = float(came_right.log().mean().exp())
    assert 2 < right < 6
    whole, first = (
        np.array(line_labelled(axes, f"K Qᵀ, {part}").get_ydata()) for part in ("whole", "first pair only")
    )
    assert right / 2 < sizes[whole.argmax()] < 2 * right
    assert sizes[first.argmax()] > sizes[whole.argmax()]
    assert whole.max() - whole[0] > 8
    assert whole.max() - whole[-1] > 3
    assert first.max() - first[0] > 15
    assert first.max() - first[-1] < 3
    other, pair = (
        np.array(line_labelled(axes, f"W, {part}").get_ydata()) for part in ("whole", "first pair only")
    )
    assert other.max() < whole.min()
    assert pair.max() - max(pair[0], pair[-1]) > 3
    ratios = np.array([float(lesson.second(w).mean()) for w in lesson.grown("KQ")[0]])
    assert sizes[ratios.argmin()] < sizes[whole.argmax()] / 2


def test_the_path_by_size_has_those_sizes_and_its_first_part_is_that_of_the_flow():
    given = lesson.hook().training
    weights, came_right = lesson.by_size("W", given, range(10), (1.0, 10.0))
    sizes = weights.flatten(2).norm(dim=2)
    for size, found in zip((1.0, 10.0), sizes, strict=True):
        assert (found[~found.isnan()] >= size).all()
        assert (found[~found.isnan()] < 1.3 * size).all()
    assert came_right[lesson.arrived()].isfinite().all()
    assert (given.margin(weights[1])[lesson.arrived()] > 0).all()


def test_the_least_norms_have_margin_one_and_no_rival_of_the_path_is_shorter():
    some = lesson.chosen_sets(lesson.hook(), lesson.arrived())
    for which, best in lesson.solutions().items():
        torch.testing.assert_close(
            some.training.margin(best), torch.ones(len(best)).double(), atol=1e-5, rtol=0
        )
        for kind in ("KQ", "W"):
            for W in lesson.along(kind):
                shortest = lesson.norm(W, which) / some.training.margin(W)
                assert (shortest > lesson.norm(best, which) * (1 - 1e-6)).all()
    assert len(some.test.features) == int(lesson.arrived().sum())


# The stored run


def test_the_store_holds_what_the_benchmark_makes():
    rank, kind = 10, "W"
    at = lesson.problem(rank, [0, 1])
    flow = lesson.trained(at.training, kind, [0, 1])
    found = margin_rivals.rounded(lesson.accuracy(at.test, flow.products[1]))
    assert lesson.stored(rank, kind, ", margin 10")[:2] == pytest.approx(found, abs=0.005)
    assert lesson.RANKS == margin_rivals.RANKS


def test_leads_are_as_the_prediction_and_the_text_say():
    means = {rank: mean(lesson.leads(rank)) for rank in lesson.RANKS}
    assert [round(means[rank]) for rank in (2, 3, 5, 10)] == [8, 4, -3, -7]
    assert means[1] > 14
    assert max(lesson.leads(10)) < 0
    for rank in lesson.RANKS:
        found = lesson.leads(rank)
        assert abs(means[rank]) > 3 * np.std(found, ddof=1) / len(found) ** 0.5
    everyone = [
        mean(a - b for a, b in lesson.pairs(rank, ("KQ", ", last"), ("W", ", last"))) for rank in lesson.RANKS
    ]
    assert [gap > 0 for gap in everyone] == [True, True, True, False, False]


def test_both_stores_hold_the_same_layers():
    for rank in lesson.RANKS:
        seeds = measured("margin_norms", f"rank {rank}, sets")
        assert seeds == [seed for seed, both in enumerate(lesson.both_arrived(rank)) if both]
        for kind, margin in itertools.product(("KQ", "W"), (1, 10, 100)):
            known = lesson.stored(rank, kind, f", margin {margin}")
            found = lesson.norms(rank, f"{kind}, margin {margin}", "accuracy")
            assert found == pytest.approx([known[seed] for seed in seeds], abs=0.005)
    assert margin_norms.SETTINGS["ranks"] == list(lesson.RANKS)


def test_the_least_nuclear_norm_lies_between_the_layers_for_one_property():
    def points(rank, arm):
        return 100 * np.array(lesson.norms(rank, arm, "accuracy"))

    least = points(1, "least nuclear norm")
    assert (points(1, "KQ, margin 10") - least).mean() == pytest.approx(6.5, abs=0.3)
    assert (least - points(1, "W, margin 10")).mean() == pytest.approx(9.2, abs=0.3)
    falls = [points(1, f"KQ, margin {margin}").mean() for margin in (1, 10, 100)]
    assert falls == sorted(falls, reverse=True)
    above = 100 * np.mean(lesson.norms(1, "KQ, margin 10", "excess"))
    assert 20 < above < 25  # "a fifth to a quarter", says the prediction
    level = [points(10, arm).mean() for arm in ("KQ, margin 1", "KQ, margin 100", "least nuclear norm")]
    assert max(level) - min(level) < 1.5
    choices = str(lesson.lesson.predictions["29.P2"].example().choices)
    assert all(f"{share}%" in choices for share in (53, 60, 44))


@pytest.mark.parametrize("rank", lesson.RANKS)
def test_no_penalty_was_chosen_at_the_large_end_of_its_grid(rank):
    for name in ("nuclear", "frobenius"):
        assert measured("margin_rivals", f"rank {rank}, W, {name} penalty, setting") < max(
            margin_rivals.PENALTIES
        )


def test_the_table_of_rivals_is_taken_on_the_same_sets():
    assert len(lesson.rivals_table().data.splitlines()) == 2 + len(lesson.MAIN)
    rows = lesson.rivals_table(range(len(lesson.ARMS))).data.splitlines()
    assert len(rows) == 2 + len(lesson.ARMS)
    assert [int(n) for n in re.findall(r"(\d+) sets", rows[0])] == [18, 18, 15]
    for name, arm in lesson.ARMS.items():
        row = next(row for row in rows if row.startswith(f"| {name} |"))
        for shown, rank in zip(re.findall(r"([\d.]+) ±", row), lesson.SHOWN, strict=True):
            kept = [
                x
                for x, good in zip(lesson.stored(rank, *arm), lesson.both_arrived(rank), strict=True)
                if good
            ]
            assert float(shown) == pytest.approx(100 * mean(kept), abs=0.051)
        kind, what = arm
        if what in lesson.LEARNT and kind in lesson.KINDS:
            known = measured("margin_cuts", f"rank 1, {kind}{what}, training")
            wanted = 100 * mean(x for x, good in zip(known, lesson.both_arrived(1), strict=True) if good)
            assert float(row.split("|")[-2]) == pytest.approx(wanted, abs=0.51)
    settings = lesson.settings_table().data.splitlines()
    cut = next(row for row in settings if row.startswith("| W, margin 10, first r"))
    assert cut.endswith("| 10 |")
    penalty = next(row for row in settings if row.startswith("| W with a penalty on the nuclear"))
    assert penalty.endswith("| 0 |")


def test_a_penalised_matrix_cut_alike_and_one_column_are_level_with_the_factors_cut():
    def points(rank, *arm):
        found = zip(lesson.stored(rank, *arm), lesson.both_arrived(rank), strict=True)
        return 100 * np.array([x for x, good in found if good])

    cut = points(1, "KQ", " cut")
    for arm in (("W", ", nuclear penalty, cut"), ("KQ", ", few columns")):
        gap = points(1, *arm) - cut
        assert abs(gap.mean()) < 2 * gap.std(ddof=1) / len(gap) ** 0.5
    gap = points(3, "W", ", nuclear penalty") - points(3, "KQ", ", margin 10")
    assert gap.mean() > 3 * gap.std(ddof=1) / len(gap) ** 0.5
    for rank, (size, r) in zip(margin_cuts.RANKS, ((0.2, 1), (0.1, 3), (0, 10)), strict=True):
        assert measured("margin_cuts", f"rank {rank}, W, nuclear penalty, cut, setting") == [size, r]
    for name in ("KQ, margin 10", "KQ cut", "W, nuclear penalty"):
        rival = measured("margin_rivals", f"rank 1, {name}")
        both = [(a, b) for a, b in zip(rival, measured("margin_cuts", f"rank 1, {name}"), strict=True) if a]
        assert [a for a, _ in both] == pytest.approx([b for _, b in both], abs=0.01)


# The explorer


def test_the_explorer_shows_the_layers_of_one_set():
    kinds = {"K and Q": "KQ", "W": "W"}
    for layer, (place, margin) in itertools.product(kinds, ((0, 1), (5, 10), (10, 100))):
        W = lesson.along(kinds[layer])[place, 0]
        state = state_of(log_margin=place / 5, layer=layer)
        values = torch.linalg.svdvals(W)
        np.testing.assert_allclose(state[kinds[layer]][1], values / values[0])
        np.testing.assert_allclose(state["matrix"], W / W.abs().max())
        said = lesson.LayerExplorer().words(state)
        assert f"margin {margin}." in said
        assert f"{float(values[1] / values[0]):.2f} of the largest" in said
        assert f"the third {float(values[2] / values[0]):.2f}" in said
        assert "%" not in said
    np.testing.assert_allclose(state_of(layer="W")["KQ"][1], state_of(layer="K and Q")["KQ"][1])


def test_the_tasks_have_the_answers_that_the_text_gives():
    ratio = {layer: state_of(log_margin=1, layer=layer)["said"][2][1] for layer in ("W", "K and Q")}
    assert ratio["K and Q"] < ratio["W"] / 2
    second = [state_of(log_margin=rung, layer="K and Q")["KQ"][1][1] for rung in (0, 1, 2)]
    assert second == sorted(second)


# Exercises


def test_rounded_numbers_count_and_near_ones_do_not():
    assert grade("29.4", {"first": 0.0, "second": -0.25}).status == "solved"
    assert grade("29.4", {"first": 0.02, "second": -0.235}).status == "wrong"
    assert grade("29.3", 3.75).status == "solved"
    assert grade("29.3", 3.7).status == "wrong"


def test_the_velocity_by_transposes_is_accepted_and_standing_still_is_not():
    assert grade("29.2", lambda K, Q, force: force @ (Q @ Q.T) + (K @ K.T) @ force).status == "solved"
    assert grade("29.2", lambda K, Q, force: 0 * force).status == "wrong"
