"""What the figures of lesson 23 show, what its explorer says, and what only one property of a checker refuses."""

import math
from functools import cache

import numpy as np
import pytest
import torch

from course_lib.lessons import pca_and_autoencoders as lesson
from course_lib.lessons.pca_and_autoencoders import LABELS, PENALTIES, VALUES, accuracies, train
from course_lib.lessons.pca_and_autoencoders.quiz import few_labels
from course_lib.representation.pca import critical_point, falling_rates, linear_loss, pca
from course_lib.teaching.style import text_alternative
from tests.drawing import line_labelled

EXERCISES = lesson.EXERCISES


def grade(number, answer):
    return EXERCISES[number].grade(answer, generator=torch.Generator().manual_seed(0))


@cache
def figure(name):
    return lesson.FIGURES[name]()


# The staircase


def test_the_numpy_run_is_descent_by_the_library():
    run = train(scale=0.3, seed=3, steps=50)
    start = lesson.random_weights(3, 4, scale=0.3, seed=3)
    encoder, decoder, losses = lesson.descend(*start, torch.diag(VALUES), steps=50, record=True)
    np.testing.assert_allclose(run.losses, losses, rtol=1e-9)
    np.testing.assert_allclose(run.factors[-1], (decoder @ encoder).diag().numpy(), atol=1e-9)


def test_a_fall_is_where_the_loss_drops_fastest_between_flatter_stretches():
    drops = np.array([0, 1, 3, 1, 0, 2, 0, 0, 0.9, 0.8, 1.0, 0.2])
    falls = lesson.Run(-np.concatenate([[0], np.cumsum(drops)]), *np.zeros((2, 13, 4))).falls()
    assert falls == [2, 5, 10]  # the step of 0.9 stands beside one of 1.0, with no flat stretch between


def test_the_question_stands_still_at_the_losses_of_the_saddles():
    losses = figure("question").axes[0].lines[0].get_ydata()
    for level, step in ((7.3, 20), (3.3, 80), (1.3, 150), (0.3, 390)):
        assert losses[step] == pytest.approx(level, abs=0.05)


def test_the_smaller_start_is_later_by_what_is_written_beside_the_arrows():
    axes = figure("smaller").axes[0]
    written = [text.get_text() for text in axes.texts if "steps" in text.get_text()]
    first, second = train().falls(), train(scale=1e-6).falls()
    delays = [b - a for a, b in zip(first, second, strict=True)]
    assert written == [f"{delay} steps" for delay in delays]
    assert delays == pytest.approx([math.log(100) / math.log1p(0.04 * s) for s in (4, 2, 1)], abs=1.2)
    assert "{}, {} and {}".format(*delays) in text_alternative(figure("smaller"))


def test_each_fall_is_one_axis_that_arrives_and_axis_4_needs_a_unit():
    for panel, units in ((1, 3), (2, 4)):
        axes = figure("growth").axes[panel]
        for i, step in enumerate(train(steps=1100, units=units).falls()):
            size = axes.lines[i].get_ydata()
            assert size[max(0, step - 60)] < 0.4
            assert size[step] == pytest.approx(
                3**-0.5, abs=0.06
            )  # the loss falls fastest at a share of a third
            assert size[min(1100, step + 150)] > 0.95
    three = [train(steps=1500, seed=seed).sizes[:, 3] for seed in range(5)]
    assert all(size[-1] < 1e-6 and size[-1] < size.max() / 1000 and size.max() < 2e-3 for size in three)
    fourth = [train(steps=1500, seed=seed, units=4).falls()[3] for seed in range(5)]
    assert (min(fourth), max(fourth)) == (748, 998)


def test_absolute_times_follow_from_the_part_of_the_start_that_ends_on_the_axis():
    for seed in range(5):
        times = torch.log(1 / lesson.own_part(seed)) / torch.log1p(0.04 * VALUES[:3])
        assert float((times - torch.tensor(train(seed=seed).falls())).abs().max()) < 11


# What the units are


def test_units_near_zero_end_orthonormal_and_turned_and_large_ones_do_not():
    eye = torch.eye(3, dtype=torch.float64)
    small, large = lesson.trained_encoders(), lesson.trained_encoders(scale=0.8)
    assert max(float((e @ e.T - eye).abs().max()) for e in small) < 1e-4
    assert min(float((e @ e.T - eye).abs().max()) for e in large) > 0.5
    shares = torch.stack([lesson.largest_shares(e) for e in small])
    assert float(shares.min()) == pytest.approx(0.44, abs=0.01)
    assert float(shares.max()) == pytest.approx(0.93, abs=0.01)
    assert max(float(e[:, 3].abs().max()) for e in small) < 0.05
    assert ".2" in [text.get_text() for text in figure("units").axes[0].texts]


def test_unequal_penalties_find_the_axes_in_the_picture_too():
    axes = figure("axes").axes
    for one in axes[2:]:
        weights = np.array([float(text.get_text()) for text in one.texts]).reshape(3, 4)
        np.testing.assert_allclose(abs(weights[:, :3]), np.diag([1.0, 0.9, 0.4]), atol=1e-9)
    for one in axes[:2]:
        assert (abs(np.array([float(text.get_text()) for text in one.texts])) > 0.15).sum() > 5


def test_units_exchanged_cost_more_under_unequal_penalties():
    unequal = torch.tensor([0.2, 0.5, 0.8], dtype=torch.float64)
    orders = ((0, 1, 2), (1, 0, 2), (2, 1, 0))
    losses = [
        float(linear_loss(*critical_point(torch.diag(VALUES), o, 3, unequal), torch.diag(VALUES), unequal))
        for o in orders
    ]
    assert losses[0] < min(losses[1:]) - 0.05


def test_the_arrows_are_as_many_as_the_directions_in_which_the_loss_falls():
    axes = figure("ways").axes[0]
    for pair in lesson.PAIRS:
        ways = lesson.ways_down(pair)
        assert len(ways) == len(falling_rates(VALUES, pair, 2))
        assert all(VALUES[list(lower)].sum() > VALUES[list(pair)].sum() for lower in ways)
    said = [text.get_text() for text in axes.texts if "down" in text.get_text()]
    assert sorted(said) == sorted(
        ["no way down", "1 way down", "2 ways down", "2 ways down", "3 ways down", "4 ways down"]
    )
    assert sum(hasattr(text, "arrow_patch") and text.arrow_patch is not None for text in axes.texts) == 12


def test_the_shares_are_the_soft_threshold():
    axes = figure("shrinkage").axes[0]
    line = line_labelled(axes, "s = 2")
    np.testing.assert_allclose(line.get_ydata(), np.maximum(0, 1 - line.get_xdata() / 2), atol=1e-12)


# The explorer


def test_words_of_the_explorer():
    explorer = lesson.StairsExplorer()
    falls = "Falls at steps {}, {} and {}.".format(*train().falls())
    assert explorer.frame()[1] == f"{falls} The loss is 7.3 at the start and 0.30 after 600 steps."
    assert explorer.frame(exponent=-0.1)[1].startswith(
        "No fall between two flatter stretches. The loss is 38.0 at the"
    )
    assert explorer.frame(exponent=-1.0)[1].startswith("One fall, at step 15.")
    two = explorer.frame(exponent=-4.0, second=2.0, third=2.0)[1]
    assert two.startswith("Falls at steps 61 and 109.")


def test_what_is_learned_is_shown_on_request_only():
    explorer = lesson.StairsExplorer()
    explorer.frame()
    assert all(len(line.get_xdata()) == 0 for line in explorer.artists["shares"])
    assert explorer.artists["hint"].get_text()
    explorer.frame(reveal=True)
    assert explorer.artists["shares"][0].get_ydata()[-1] == pytest.approx(1, abs=1e-3)
    assert not explorer.artists["hint"].get_text()


def test_training_stays_finite_at_all_settings_of_the_explorer():
    for exponent in (-6.0, -1.0, -0.1):
        for values in ((4.0, 4.0, 4.0, 4.0), (4.0, 0.1, 4.0, 2.0)):
            assert np.isfinite(train(scale=10**exponent, step_size=0.04, values=values).losses).all()


# Digits


def test_the_trained_code_is_that_of_principal_components_turned():
    x, encoder = lesson.split_digits(0).x, lesson.trained_encoder(0)
    spanned = torch.linalg.svdvals(torch.linalg.qr(encoder.T).Q.T @ pca(x, 10).components.T)
    assert float(spanned.min()) > 0.999
    assert float((encoder @ encoder.T - torch.eye(10, dtype=torch.float64)).abs().max()) < 1e-2


def test_test_images_are_not_seen_before_the_test():
    split = lesson.split_digits(3)
    assert (len(split.x), len(split.test)) == (1297, 500)
    assert float(split.x.mean(0).abs().max()) < 1e-12
    assert float(torch.cdist(split.test, split.x).min()) > 0


@pytest.mark.parametrize("penalty", [0.1, 3.0])
def test_leave_one_out_is_what_refitting_without_a_row_gives(penalty):
    x, y = lesson.normal(12, 5, seed=1), lesson.normal(12, 2, seed=2)
    fit = lesson.ridge(x, y, (penalty,))
    errors = []
    for row in range(12):
        rest = torch.arange(12) != row
        centred = x[rest] - x[rest].mean(0)
        gram = centred.T @ centred + penalty * torch.eye(5, dtype=torch.float64)
        weight = torch.linalg.solve(gram, centred.T @ (y[rest] - y[rest].mean(0)))
        errors.append((x[row] - x[rest].mean(0)) @ weight + y[rest].mean(0) - y[row])
    assert fit.error == pytest.approx(float(torch.stack(errors).square().mean()), rel=1e-9)


def test_the_penalty_is_chosen_among_several_and_not_at_the_end_of_the_grid():
    for n in LABELS:
        split = lesson.split_digits(0)
        fit = lesson.linear_fit(split.x[:n], split.labels[:n])
        assert PENALTIES[0] < fit.penalty < PENALTIES[-1]
        assert fit.error == min(
            lesson.linear_fit(split.x[:n], split.labels[:n], (p,)).error for p in PENALTIES
        )


def test_nearest_mean_and_nearest_image():
    x = torch.tensor([[0.0, 0.0], [0.0, 2.0], [5.0, 0.0]])
    labels = torch.tensor([3, 3, 7])
    asked = torch.tensor([[2.4, 1.0], [2.6, 0.0]])
    assert lesson.nearest_mean(x, labels)(asked).tolist() == [3, 7]
    assert lesson.nearest_image(x, labels)(asked).tolist() == [3, 7]
    assert lesson.accuracy(lesson.nearest_mean(x, labels), asked, torch.tensor([3, 3])) == 0.5


def test_what_the_text_says_of_pixels_and_code():
    lead = {n: accuracies("pixels, penalty", n) - accuracies("code, penalty", n) for n in LABELS}
    assert all(float(lead[n].mean()) > 0.03 for n in LABELS if n >= 50)
    assert float(accuracies("pixels, no penalty", 50).mean()) == pytest.approx(0.31, abs=0.015)
    assert float(accuracies("code, no penalty", 50).mean()) == pytest.approx(0.73, abs=0.015)
    assert float(accuracies("pixels, penalty", 50).mean()) == pytest.approx(0.765, abs=0.015)
    for readout in ("nearest class mean", "nearest image"):
        gaps = {
            n: accuracies(f"pixels, {readout}", n) - accuracies(f"code, {readout}", n) for n in (20, 50, 1000)
        }
        assert all(abs(float(gaps[n].mean())) < 0.02 for n in (20, 50))
        assert float(gaps[1000].mean()) > 0.01
    cut = {
        n: accuracies("pixels, penalty", n) - accuracies("best number of axes, no penalty", n) for n in LABELS
    }
    assert all(0 < float(cut[n].mean()) < 0.025 for n in LABELS if n >= 75)
    assert all(float(cut[n].mean()) > 0.03 for n in LABELS if n < 75)
    free = [float(accuracies("pixels, no penalty", n).mean()) for n in LABELS]
    code = [float(accuracies("code, no penalty", n).mean()) for n in LABELS]
    assert [p > c for p, c in zip(free, code, strict=True)] == [n == 20 or n >= 200 for n in LABELS]
    for n in (20, 100, 1000):
        chosen = accuracies("best number of axes, penalty", n) - accuracies("pixels, penalty", n)
        assert abs(float(chosen.mean())) < 0.01


def test_the_picture_of_the_code_holds_the_means_of_twenty_splits():
    right_axes = figure("code").axes[1]
    for arm in lesson.DRAWN:
        wanted = [100 * float(accuracies(arm, n).mean()) for n in LABELS]
        np.testing.assert_allclose(line_labelled(right_axes, arm).get_ydata(), wanted, rtol=1e-9)


def test_made_data_are_fitted_worst_with_as_many_labels_as_inputs():
    code, free, penalised = np.median([few_labels(10 * draw) for draw in range(5)], axis=0)
    assert free > 10 * code
    assert penalised < 1.3 * code


# Exercises


@pytest.mark.parametrize(
    "points", [(3, 1, 3, -1), (5.0, -2.0, 5.0, 2.0), (-2, 1.9, -2, -1.9), (1e5, 1, 1e5, -1)]
)
def test_every_pair_of_points_that_misleads_the_unit_is_accepted(points):
    assert grade("23.6", dict(zip("pqrt", points, strict=True))).status == "solved"


def test_points_that_meet_one_condition_only():
    assert grade("23.6", {"p": 3, "q": 1, "r": -3, "t": -1}).status == "wrong"  # one line through the origin
    assert grade("23.6", {"p": 2, "q": 2, "r": 2, "t": -2}).mistake == "moved too little"
    assert grade("23.6", {"p": 2, "q": 1, "r": 2, "t": 1}).status in ("wrong", "mistake")  # one point twice


def test_reconstruction_by_eigh_is_accepted_too():
    def back(x, k):
        mean = x.mean(dim=0, keepdim=True)
        _, vectors = torch.linalg.eigh(torch.cov(x.T))
        chosen = vectors[:, -k:]
        return (x - mean) @ chosen @ chosen.T + mean

    assert grade("23.7", back).status == "solved"


def test_the_gradient_through_second_moments_is_accepted_too():
    def gradient(encoder, decoder, x):
        s = x.T @ x / len(x)
        return 2 * (decoder @ encoder - torch.eye(len(s))) @ s @ encoder.T

    assert grade("23.1", gradient).status == "solved"
    assert grade("23.1", lambda encoder, decoder, x: 0 * decoder).status != "solved"


def test_delays_that_meet_one_property_only():
    def turned_round(variances, step_size, factor):
        return math.log(factor) * torch.log1p(2 * step_size * variances)

    assert grade("23.3", turned_round).status == "wrong"
    assert grade("23.3", lambda variances, step_size, factor: -math.log(factor) / variances).status == "wrong"


def test_the_penalised_map_through_weights_is_accepted_and_saddles_are_not():
    def through_weights(moment, k, penalty):
        encoder, decoder = critical_point(moment, range(k), k, penalty)
        return decoder @ encoder

    assert grade("23.5", through_weights).status == "solved"

    def saddle(moment, k, penalty):
        encoder, decoder = critical_point(moment, range(1, k + 1), k, penalty)
        return decoder @ encoder

    assert grade("23.5", saddle).status == "wrong"
    assert grade("23.5", lambda moment, k, penalty: 0 * moment).status == "wrong"


def test_rounded_numbers_count():
    assert grade("23.4", 1.6875).status == grade("23.4", 1.688).status == "solved"
    assert grade("23.4", 1.7).status != "solved"
