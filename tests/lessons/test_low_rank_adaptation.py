"""What the curves and tables of lesson 25 show, its explorer, its stored runs, and answers that checkers must tell apart."""

from functools import cache
from statistics import mean

import numpy as np
import pytest
import torch

from benchmarks import adapter_scale
from benchmarks import low_rank_adaptation as long_run
from course_lib.lessons import low_rank_adaptation as lesson
from course_lib.measured import measured, origin
from course_lib.representation import lora
from course_lib.teaching.style import text_alternative
from tests.drawing import line_labelled

EXERCISES = lesson.EXERCISES


@cache
def figure(name):
    return lesson.FIGURES[name]()


def grade(number, answer):
    return EXERCISES[number].grade(answer, generator=torch.Generator().manual_seed(0))


# The stored runs


def test_every_planned_run_is_stored_with_five_seeds():
    assert origin("low_rank_adaptation")["settings"] == long_run.SETTINGS
    assert origin("low_rank_adaptation")["seeds"] == list(lesson.SEEDS)
    for arm, rate, deeper in lesson.plan():
        for kind in ("steps", "old", *(["turned down, old"] if deeper else [])):
            found = lesson.stored(arm.name, rate, kind)
            assert len(found) == 5
            assert min(found) > 0
    assert origin("adapter_scale")["settings"] == adapter_scale.SETTINGS
    for rule in lesson.SCALES:
        assert all(lesson.trained(rule, rank).shape == (5, len(lesson.RATES)) for rank in lesson.RANKS)


def test_the_goal_is_passed_between_two_measurements():
    taught = lesson.Taught(None, steps=[4, 8], new=[2.5, 1.5], old=[1.0, 2.0])
    assert taught.at_goal() == (6.0, 1.5)
    assert lesson.Taught(None, steps=[4], new=[1.9], old=[0.5]).at_goal() == (4.0, 0.5)
    with pytest.raises(ValueError, match="must have passed"):
        lesson.Taught(None, steps=[4], new=[2.5], old=[1.0]).at_goal()


def test_the_pictures_show_the_stored_means():
    axes = figure("price").axes[0]
    curves = {box.get_label(): box.lines[0] for box in axes.containers}
    assert set(curves) == set(lesson.FAMILIES)
    for name, (arm, rates) in lesson.FAMILIES.items():
        x, y = curves[name].get_data()
        x, y = (np.asarray(v, dtype=float) for v in (x, y))
        np.testing.assert_allclose(y, [mean(lesson.stored(arm, rate, "old")) for rate in rates])
        np.testing.assert_allclose(x, [mean(lesson.stored(arm, rate, "steps")) for rate in rates])
    axes = figure("protection").axes[0]
    seeds = [line.get_xdata() for line in axes.lines if len(line.get_xdata()) == 5]
    strokes = [line.get_xdata()[0] for line in axes.lines if len(line.get_xdata()) == 2]
    assert len(seeds) == len(strokes) == len(axes.get_yticklabels()) == 10
    np.testing.assert_allclose(strokes, [np.mean(one) for one in seeds])


def test_what_caption_and_prediction_say_of_the_ten_ways():
    old = {name: lesson.stored(*which) for name, which in lesson.protection().items()}
    means = {name: mean(found) for name, found in old.items()}
    adapters = sorted((value, name) for name, value in means.items() if name.startswith("adapter"))
    assert [name for _, name in adapters[:2]] == [
        "adapter, 4 of 16 sentences old",
        "adapter, on to 1.4, turned down",
    ]
    for twin in ("", ", half the step size", ", on to 1.4, {}", ", 4 of 16 sentences old"):
        thin, whole = "adapter" + twin.format("turned down"), "whole model" + twin.format("moved back")
        assert max(old[whole]) < min(old[thin])
    said = {
        "": 1.4,
        ", half the step size": 1.1,
        ", 1 of 16 sentences old": 0.9,
        ", on to 1.4, turned down": 0.5,
    }
    assert {name: round(means["adapter" + name], 1) for name in said} == said


def test_what_the_first_prediction_says_of_steps_and_losses():
    whole, adapter = (lesson.stored(arm, rates[1], "old") for arm, rates in lesson.FAMILIES.values())
    assert mean(whole) == pytest.approx(0.44, abs=0.03)
    assert min(adapter) > 0.6
    steps = [mean(lesson.stored(arm, rates[1], "steps")) for arm, rates in lesson.FAMILIES.values()]
    assert steps[0] == pytest.approx(steps[1], rel=0.1)


def test_turning_down_scales_all_that_was_learned():
    taught = lesson.Taught(lesson.with_adapter(2, scale=4.0))
    with torch.no_grad():
        for layer in lora.adapters(taught.model).values():
            layer.lora_B.fill_(0.0)
    ends = [layer.lora_B.clone() for layer in lora.adapters(taught.model).values()]
    c, old = lesson.turned_down(taught)  # nothing was learned: no factor reaches the goal
    assert c == 1
    assert old == pytest.approx(lesson.loss_on(lesson.language()[0], None))
    assert all(
        torch.equal(a, m.lora_B) for a, m in zip(ends, lora.adapters(taught.model).values(), strict=True)
    )


# Directions of a gradient


@pytest.mark.parametrize("source", lesson.SOURCES)
def test_shares_are_those_of_a_projection_on_orthonormal_rows(source):
    name = lesson.LAYERS[3]
    rows, gradient = lesson.rows_of(name, source), lesson.gradients(1)[name]
    torch.testing.assert_close(rows @ rows.T, torch.eye(len(rows)), atol=1e-4, rtol=0)
    projected = gradient @ rows[:5].T @ rows[:5]
    wanted = float(projected.square().sum() / gradient.square().sum())
    assert lesson.shares(name, source, 1)[4] == pytest.approx(wanted, rel=1e-4)


def test_the_gradients_own_rows_reach_the_bound():
    for name in lesson.LAYERS:
        squares = torch.linalg.svdvals(lesson.gradients(0)[name]).square()
        bound = (squares.cumsum(0) / squares.sum())[: lesson.MOST].numpy()
        np.testing.assert_allclose(lesson.shares(name, lesson.SOURCES[2], 0), bound, atol=1e-4)
        assert all((lesson.shares(name, source, 0) <= bound + 1e-5).all() for source in lesson.SOURCES)


def test_the_picture_shows_the_medians_of_all_layers():
    axes = figure("shares").axes[0]
    assert len(lesson.gradients(0)) == 48
    own = line_labelled(axes, lesson.SOURCES[2]).get_ydata()
    np.testing.assert_allclose(own, np.median(lesson.all_shares(lesson.SOURCES[2]), axis=0))
    assert own[7] > 0.85
    assert line_labelled(axes, lesson.SOURCES[0]).get_ydata()[7] < 0.06


def test_the_explorer_opens_at_random_directions_and_says_what_it_shows():
    explorer = lesson.RowsExplorer()
    _, words = explorer.frame()
    assert "random directions, r = 8" in words
    state = explorer.compute(rank=8, source=lesson.SOURCES[2], layer=lesson.LAYERS[4])
    assert state["said"][3] == pytest.approx(state["own"][1][7])
    assert state["said"][4] == pytest.approx(state["other"][1][7])
    _, words = explorer.frame(source=lesson.SOURCES[2])
    assert f"hold {state['said'][3]:.1%} of the squared gradient" in words


# One step


def test_the_stored_steps_follow_the_two_laws():
    ranks = np.log(np.array(lesson.STEP_RANKS[-1] / lesson.STEP_RANKS[0]))
    for (optimiser, rule), power in {
        ("SGD", "alpha/r"): -1,
        ("SGD", "alpha/sqrt(r)"): 0,
        ("Adam", "alpha/r"): 0,
        ("Adam", "alpha/sqrt(r)"): 0.5,
    }.items():
        found = lesson.moved(optimiser, rule)
        slopes = np.log(found[:, -1] / found[:, 0]) / ranks
        np.testing.assert_allclose(slopes, power, atol=0.2)
    left, right = figure("steps").axes
    assert [axes.get_title() for axes in (left, right)] == ["gradient descent", "Adam"]


def test_both_rules_meet_at_rank_8():
    assert lesson.SCALES["alpha/r"](8) == lesson.SCALES["alpha/sqrt(r)"](8) == 4


def test_changes_of_one_layer_follow_the_rank():
    slope = lambda *kind: np.polyfit(np.log(lesson.CHANGE_RANKS[2:]), np.log(lesson.changes(*kind)[2:]), 1)[0]  # noqa: E731
    assert slope("Adam", "alpha/r", 1) == pytest.approx(0, abs=0.15)
    assert slope("Adam", "alpha/r", 32) < -0.25
    assert slope("SGD", "alpha/r", 1) == pytest.approx(-1, abs=0.15)


# The small problem and the saddle


def test_one_small_run_is_plain_gradient_descent():
    rank, place, wanted = 3, 12, lesson.target()
    a = (2 * torch.rand(12, 12, generator=torch.Generator().manual_seed(3)).double() - 1) / 12**0.5
    a, b, scale, step = a[:rank], torch.zeros(12, rank).double(), 4 / rank, 10.0 ** lesson.LOG_STEPS[place]
    for t in range(61):
        gap = scale * b @ a - wanted
        left = float(gap.square().sum() / wanted.square().sum())
        assert lesson.small_runs("zero_b", "alpha/r")[rank - 1, place, t] == pytest.approx(left, rel=1e-9)
        a, b = a - step * scale * b.T @ gap, b - step * scale * gap @ a.T


def test_the_paths_from_the_saddles_neighbourhood_end_in_the_valley():
    for name in ("from b = 0", "from nearly 0, 0"):
        a, b = line_labelled(figure("saddle").axes[0], name).get_xydata()[-1]
        assert a * b == pytest.approx(1, abs=0.05)
    assert "The cross at the origin stays" in text_alternative(figure("saddle"))


def test_the_model_is_taught_with_old_sentences_among_the_new():
    _, tokenizer, texts, _ = lesson.language()
    from course_lib.mbart.pretraining import fifth_language as fifth

    code = tokenizer.lang_code_to_id[fifth.FIFTH]
    _, _, targets = fifth.draw_batch(
        texts, tokenizer, range(6), np.random.default_rng(0), target=fifth.FIFTH, old=2
    )
    assert [target[0] == code for target in targets] == [False, False, True, True, True, True]
    assert (
        measured("low_rank_adaptation", "before")[1] < 0.01 < 8 < measured("low_rank_adaptation", "before")[0]
    )


# Exercises


def test_all_ways_to_the_gradient_of_b_are_accepted():
    solved = lambda answer: grade("25.2", answer).status == "solved"  # noqa: E731
    assert solved(lambda grad, x, lora_A, scale: scale * (grad.T @ x) @ lora_A.T)
    assert solved(lambda grad, x, lora_A, scale: scale * torch.einsum("no,ni,ri->or", grad, x, lora_A))
    assert not solved(lambda grad, x, lora_A, scale: 0 * grad.T @ x @ lora_A.T)


@pytest.mark.parametrize(("w", "d"), [(1.1, 1.0), (0.3, 0.1), (1e5, 0.001), (-1.1, -1.0)])
def test_updates_that_do_not_come_out_again(w, d):
    w32, d32 = np.float32(w), np.float32(d)
    wanted = "solved" if (w32 + d32) - d32 != w32 else ("wrong", "mistake")
    assert grade("25.5", {"w": w, "d": d}).status in wanted


def test_updates_that_do():
    assert grade("25.5", {"w": 3, "d": -2}).mistake == "whole numbers"
    assert grade("25.5", {"w": 1.5, "d": 0.75}).mistake == "halves"
    assert grade("25.5", {"w": 1e-3, "d": 5.0}).mistake == "the update is the larger one"
    assert grade("25.5", {"w": 1e7, "d": 0.1}).status == "wrong"


def test_rounded_answers_count():
    assert grade("25.4", 0.111).status == grade("25.4", 4 / 36).status == "solved"
    assert grade("25.4", 0.12).status != "solved"


def test_the_best_step_by_another_way_and_the_nearest_wrong_one():
    def by_eigenvectors(gradient, rank):
        _, v = torch.linalg.eigh(gradient.T @ gradient)
        kept = gradient @ v[:, -rank:] @ v[:, -rank:].T
        return -kept / torch.linalg.matrix_norm(kept)

    assert grade("25.3", by_eigenvectors).status == "solved"
    assert grade("25.3", lambda gradient, rank: by_eigenvectors(gradient, 1)).status != "solved"
