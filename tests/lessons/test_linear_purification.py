"""What the figures of lesson 24 show, what its explorer says, and answers that its checkers must tell apart."""

from functools import cache
from statistics import mean

import numpy as np
import pytest
import torch

from course_lib.lessons import linear_purification as lesson
from course_lib.lessons.linear_purification import MEANS, PROBE, RANDOM, RIDGE, SPLITS, digits
from course_lib.lessons.linear_purification.digits import FITTED, LEACE, removed, without
from course_lib.lessons.linear_purification.erased import moments_of, pairs, race, states
from course_lib.measured import measured
from course_lib.representation.erasure import concept_columns, fit_eraser, probe_r2
from course_lib.representation.purification import purifying_matrix
from course_lib.teaching.style import text_alternative
from tests.drawing import assert_line, line_labelled

EXERCISES = lesson.EXERCISES


@cache
def figure(name):
    return lesson.FIGURES[name]()


def grade(number, answer):
    return EXERCISES[number].grade(answer, generator=torch.Generator().manual_seed(0))


# The digits


def test_the_digits_keep_the_pixels_that_vary_and_show_them_in_their_places():
    few, many = digits(), digits(all_pixels=True)
    assert (few.x.shape, many.x.shape) == ((1797, 47), (1797, 61))
    assert few.x.var(0).min() > 0.01
    image = many.image(many.x[3])
    assert image.shape == (8, 8)
    assert float(image.sum()) == pytest.approx(float(many.x[3].sum()))
    assert set(few.odd.tolist()) == {0, 1}
    assert not torch.equal(digits(seed=1).digit, few.digit)


def test_the_probe_is_least_squares_and_its_penalty_is_ridge():
    data = digits()
    x, z = data.x[:FITTED], concept_columns(data.odd[:FITTED])
    weight, bias = lesson.probe(x, z)
    ones = torch.cat([x, torch.ones(len(x), 1, dtype=x.dtype)], dim=1)
    torch.testing.assert_close(
        torch.cat([weight, bias[None]]), torch.linalg.lstsq(ones, z).solution, atol=1e-8, rtol=1e-6
    )
    centred = x - x.mean(0)
    wanted = torch.linalg.solve(centred.T @ centred + 2 * torch.eye(47).double(), centred.T @ (z - z.mean(0)))
    torch.testing.assert_close(lesson.probe(x, z, ridge=2.0)[0], wanted)


def test_the_probes_directions_need_many_removals_and_the_difference_of_the_means_one():
    for seed in SPLITS:
        found = {way: removed(way, seed=seed) for way in (PROBE, RIDGE, MEANS, RANDOM, LEACE)}
        assert found[PROBE].accuracy[10] > 0.55
        assert found[PROBE].accuracy[20] < 0.56
        assert found[RIDGE].accuracy[10] < 0.58
        assert found[MEANS].accuracy[1] < 0.53
        assert found[LEACE].accuracy[1] < 0.53
        assert found[RANDOM].accuracy[25] > 0.88
        assert found[LEACE].moved[1] < found[MEANS].moved[1]
        assert found[MEANS].moved[1] == pytest.approx(0.125, abs=0.005)
        assert not found[MEANS].directions[1:].any()  # nothing is left to take
        assert removed(PROBE, seed=seed, all_pixels=True).accuracy[5] > 0.88


def test_the_hook_draws_the_mean_of_five_splits_and_one_removal_all_of_them():
    _, axes = figure("question").axes
    curves = np.array([removed(PROBE, seed=s).accuracy for s in SPLITS])
    assert_line(line_labelled(axes, "fresh linear probe"), np.arange(26), 100 * curves.mean(0))
    once = lesson.one_removal()
    assert min(once["random directions"]) > 0.88
    assert len(once["random directions"]) == 100
    assert max(once[MEANS]) < 0.54
    assert min(min(once[name]) for name in once if name != MEANS) > 0.78
    assert "about 50%" in text_alternative(figure("one"))


def test_shrunk_images_are_read_as_well_by_least_squares_only():
    rows, factors = lesson.shrunk_rows(lesson.pictures.SHRINK)
    assert float(factors.max()) < 0.03
    data = digits()
    wanted = data.x @ purifying_matrix(data.x, lesson.pictures.SHRINK)
    torch.testing.assert_close(rows, wanted, atol=1e-9, rtol=1e-6)
    free, penalised = ([bar.get_height() for bar in bars] for bars in figure("shrunk").axes[0].containers)
    assert free[1] == pytest.approx(free[0], abs=0.3)
    assert penalised[0] > 85
    assert penalised[1] < 60
    assert max(free[2], penalised[2]) < 54


def test_the_plane_shows_two_that_erase_and_one_that_does_not():
    x, label = lesson.plane()
    ways = lesson.plane_ways()
    left = {name: float(probe_r2(t, label).max()) for name, t in ways.items()}
    assert left[PROBE] > 0.05
    assert max(left[MEANS], left["LEACE"]) < 1e-12
    cost = {name: float((t - x).square().sum(1).mean()) for name, t in ways.items()}
    assert cost["LEACE"] < 0.6 * cost[MEANS]
    for name in (MEANS, "LEACE"):
        assert f"{cost[name]:.2f}" in text_alternative(figure("oblique"))


def test_who_still_reads_is_as_the_caption_says():
    for seed in SPLITS:
        found = lesson.readers(seed=seed)
        for name in ("linear probe", "logistic regression"):
            assert found[name][0] > 0.88
            assert found[name][1] < 0.53
        for name in ("small neural network", "ten scores for ten digits", "nearest neighbour"):
            assert min(found[name]) > 0.9
        assert found["nearest neighbour"][1] > 0.975


# The translation model


def test_the_stored_run_carries_what_the_text_says():
    """Language is read best and spoils little; the determiner is read less well and spoils a third or more."""
    plain = lesson.shares("as the model is")
    assert len(plain) == 5
    assert mean(plain) == pytest.approx(0.985, abs=0.01)
    for site in lesson.SITE_NAMES:
        language, three = (lesson.shares(f"{site}: {arm}") for arm in ("language", "3 random"))
        determiner, nine = (lesson.shares(f"{site}: {arm}") for arm in ("determiner", "9 random"))
        assert min(plain) - min(language) < 0.02
        assert abs(mean(language) - mean(three)) < 0.01
        assert max(determiner) < 0.75
        assert min(nine) > 0.9
        assert (
            mean(lesson.shares(f"{site}: nearest after"))
            > mean(lesson.shares(f"{site}: nearest before")) - 0.04
        )
    end = "decoder.final"
    assert mean(lesson.shares(f"{end}: language, least R^2")) > mean(
        lesson.shares(f"{end}: determiner, largest R^2")
    )
    assert mean(lesson.shares(f"{end}: language, moved")) > mean(lesson.shares(f"{end}: determiner, moved"))
    assert mean(lesson.shares(f"{end}: linear probe before")) > 0.99
    assert mean(lesson.shares(f"{end}: nearest after")) > 0.95
    assert mean(plain) - mean(lesson.shares(f"{end}: language")) < 0.012
    assert mean(lesson.shares("wrong code")) > 0.93
    assert 0.6 < mean(lesson.shares(f"{end}: determiner")) < 0.7


def test_the_tables_show_what_is_stored():
    rows = lesson.translation_table().data.splitlines()[2:]
    assert len(rows) == 1 + 3 * 4 + 1
    found = [100 * share for share in measured("erased_states", "decoder.final: language")]
    assert f"{mean(found):.1f}% ({min(found):.1f} to {max(found):.1f})" in rows[1]
    assert len(lesson.reader_table().data.splitlines()) == 2 + 3 + 1


def test_the_right_piece_leads_and_erasing_its_concept_costs_the_determiner_its_lead():
    found = states("decoder.final")
    for concept, falls, below in (("language", 4, 0.02), ("determiner", 9, 0.4)):
        eraser = moments_of(found, concept).eraser()
        before, after = race(concept).margins(), race(concept).margins(eraser.erase)
        assert float((before < 0).double().mean()) < 0.01
        assert 1 < float(before.median() - after.median()) < falls
        assert float((after < 0).double().mean()) < below
    assert float((after < 0).double().mean()) > 0.05


def test_pairs_are_translations_and_a_wrong_code_is_another_one():
    asked = pairs(20)
    turned = asked.with_wrong_code()
    for plain, wrong in zip(asked.sources, turned.sources, strict=True):
        assert plain[0] != wrong[0]
        assert plain[1:] == wrong[1:]
    assert all(code == target[0] for code, target in zip(asked.codes, asked.targets, strict=True))


# The explorer


def test_words_and_images_of_the_explorer():
    explorer = lesson.RemovalExplorer()
    said = explorer.frame(k=1, way=PROBE)[1]
    assert said.startswith("47 pixels, 1 direction taken out (latest probe): a fresh probe is right for 88")
    assert "keeps" not in said
    assert "keeps 86% of its length" in explorer.frame(k=1, left_over=True)[1]
    assert "nothing taken out" in explorer.frame(k=0)[1]
    blind = explorer.frame(k=5, way=MEANS, left_over=True)[1]
    assert "keeps 0% of its length. The last one found nothing left to take." in blind
    assert explorer.frame(k=5, faint=True, way=PROBE)[1].startswith("61 pixels")
    state = explorer.compute(k=3, way=PROBE, faint=False, left_over=False)
    assert not state["gap"].any()
    assert np.abs(state["direction"]).max() == pytest.approx(1)
    state = explorer.compute(k=3, way=PROBE, faint=False, left_over=True)
    data = digits()
    assert np.abs(state["gap"]).sum() == pytest.approx(float(removed(PROBE).gaps[3].abs().sum()))
    assert torch.allclose(removed(PROBE).gaps[0], lesson.gap(data.x[:FITTED], data.odd[:FITTED]))


def test_what_is_projected_out_is_gone_from_every_row():
    x = digits().x
    direction = torch.arange(47, dtype=torch.float64)
    flat = without(x, direction) - x[:FITTED].mean(0)
    assert (flat @ direction).abs().max() < 1e-9


# Exercises


def test_rounded_numbers_count():
    assert grade("24.5", 3.0).status == "solved"
    assert grade("24.5", 2.9).status != "solved"


def test_the_purifier_by_other_ways_is_accepted_and_a_scaled_one_is_not():
    def by_svd(x, penalty):
        _, s, vh = torch.linalg.svd(x, full_matrices=False)
        return vh.T @ torch.diag(s**2 / (s**2 + penalty)) @ vh

    def stacked(x, penalty):
        root = penalty**0.5 * torch.eye(x.shape[1], dtype=x.dtype)
        return torch.linalg.lstsq(torch.cat([x, root]), torch.cat([x, 0 * root])).solution

    assert grade("24.1", by_svd).status == grade("24.1", stacked).status == "solved"
    assert grade("24.1", lambda x, penalty: 0.99 * by_svd(x, penalty)).status == "wrong"
    assert grade("24.1", lambda x, penalty: x @ x.T).status != "solved"


@pytest.mark.parametrize("numbers", [(1, 1, 0.5), (1, 1, -0.01), (2, 0.5, 0.9), (1e-3, 1e3, 0.5)])
def test_every_correlated_pair_is_a_counterexample(numbers):
    assert grade("24.2", dict(zip("abc", numbers, strict=True))).status == "solved"


def test_what_is_no_counterexample():
    assert grade("24.2", {"a": 3, "b": 5, "c": 0}).mistake == "unequal, uncorrelated"
    assert grade("24.2", {"a": 1, "b": 4, "c": 2}).mistake == "one feature twice"
    assert grade("24.2", {"a": 0, "b": 1, "c": 0.1}).mistake == "negative variance"


@pytest.mark.parametrize("b", [2.0001, 1.9999])
def test_a_rounded_b_counts(b):
    assert grade("24.3", b).status == "solved"


def test_a_b_that_makes_no_covariance_matrix_is_refused_by_that_property():
    found = grade("24.3", -2)
    assert found.status == "wrong"


def test_an_eraser_by_regressions_is_accepted_and_one_that_uses_the_labels_of_new_rows_cannot_be_written():
    def by_library(x, label, new):
        return fit_eraser(x, label).erase(new)

    def by_regression(x, label, new):
        mean, y = x.mean(0), label.double() - label.double().mean()
        w = torch.linalg.lstsq(x - mean, y[:, None]).solution
        predicted = (x - mean) @ w
        back = torch.linalg.lstsq(predicted, x - mean).solution
        return new - (new - mean) @ w @ back

    assert grade("24.4", by_library).status == grade("24.4", by_regression).status == "solved"
    assert grade("24.4", lambda x, label, new: new).status != "solved"
    assert (
        grade("24.4", lambda x, label, new: new - 0.5 * (new - by_regression(x, label, new))).status
        == "wrong"
    )
