"""What lesson 09 simulates, draws and says: the bandit, the bowl with waves, and the walks on it."""

import math
import re

import numpy as np
import pytest
import torch

from benchmarks import walks
from course_lib.lessons import gradient_estimators as lesson
from course_lib.lessons.gradient_estimators import bandit as bandits
from course_lib.lessons.gradient_estimators import waves as closing
from course_lib.measured import figures, measured
from course_lib.optimization.gradient_estimators import quadratic_score_variance
from tests.drawing import assert_line, line_labelled

# The bandit


def slowly(added, *, baseline, pulls, seed):
    """One learner at a time would draw other numbers: the same draws, the gradient of the log-probability by autograd."""
    generator = torch.Generator().manual_seed(seed)
    pay = torch.tensor(bandits.PAY, dtype=torch.float64) + added
    logits, seen = torch.zeros(100, 5, dtype=torch.float64), []
    for _ in range(pulls):
        leaf = logits.clone().requires_grad_()
        p = leaf.softmax(1)
        arm = torch.multinomial(p.detach(), 1, generator=generator)[:, 0]
        reward = pay[arm] + torch.randn(100, generator=generator, dtype=torch.float64)
        mean = torch.stack(seen).mean(0) if seen and baseline else 0.0
        (score,) = torch.autograd.grad(p.log()[range(100), arm].sum(), leaf)
        logits = logits + 0.1 * (reward - mean)[:, None] * score
        seen.append(reward)
    return logits.softmax(1)


@pytest.mark.parametrize("baseline", [False, True])
def test_a_pull_follows_payment_times_score_and_the_baseline_is_the_mean_so_far(baseline):
    found = lesson.play(2.0, baseline=baseline, pulls=30, seed=3)
    assert found.shape == (31, 100, 5)
    torch.testing.assert_close(
        found[-1], slowly(2.0, baseline=baseline, pulls=30, seed=3), rtol=1e-9, atol=1e-12
    )


def test_a_learner_counts_where_it_pulls_most():
    final = torch.tensor(
        [[0.6, 0, 0, 0, 0.4], [0.1, 0, 0, 0.1, 0.8], [0.4, 0, 0.2, 0, 0.4], [0, 0, 0, 0.51, 0.49]]
    )
    assert (lesson.failed(final), lesson.found(final)) == (2, 1)


def test_a_negative_constant_is_milder_until_about_ten():
    lost = {c: lesson.failed(lesson.play(c, seed=5)[-1]) for c in (0.0, 3.0, 5.0, 10.0, -3.0, -5.0, -10.0)}
    assert lost[0.0] <= 2 < lost[3.0] < 40 < lost[10.0]
    assert lost[-3.0] < lost[3.0] / 2
    assert lost[-5.0] < lost[5.0]
    assert lost[-10.0] > 40


def test_the_bandit_explorer_counts_what_the_simulation_holds():
    explorer = lesson.BanditExplorer()
    for baseline, mean_off in ((bandits.NO_BASELINE, False), (bandits.RUNNING_MEAN, True)):
        _, words = explorer.frame(added=10, pulls=400, step_size=0.05, baseline=baseline)
        final = lesson.play(10.0, baseline=mean_off, step_size=0.05, pulls=400)[-1]
        best, worse = lesson.found(final), lesson.failed(final)
        assert f"{best} of 100 learners" in words
        assert f"{worse} a worse arm, {100 - best - worse} none of them" in words


# The bowl


@pytest.mark.parametrize("name", list(lesson.FUNCTIONS))
@pytest.mark.parametrize(("mean", "std"), [(1.0, 0.5), (-0.7, 0.2), (2.2, 1.3)])
def test_the_exact_gradients_of_the_explorer_are_derivatives(name, mean, std):
    f, gradient = lesson.FUNCTIONS[name]
    grid = torch.linspace(-12, 12, 480_001, dtype=torch.float64)

    def expected(center):
        weights = torch.exp(-(((grid - center) / std) ** 2) / 2)
        return float((weights * f(grid[:, None])).sum() / weights.sum())

    h = 1e-3 if name.startswith("1[") else 1e-4
    difference = (expected(mean + h) - expected(mean - h)) / (2 * h)
    assert gradient(mean, std) == pytest.approx(difference, abs=2e-3 * max(1, abs(difference)))


@pytest.mark.parametrize("doublings", [3, 5])
def test_the_slope_of_the_bowl_is_its_derivative(doublings):
    x = torch.linspace(-1, 5, 31, dtype=torch.float64).requires_grad_()
    (slope,) = torch.autograd.grad(lesson.bowl(x, doublings=doublings).sum(), x)
    torch.testing.assert_close(lesson.bowl_slope(x.detach(), doublings=doublings), slope)


@pytest.mark.parametrize("doublings", [None, 3, 5])
def test_moments_of_the_bowl_are_those_of_samples(doublings):
    z = torch.randn(400_000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x, exact = 1 + z / 2, lesson.bowl_moments(doublings)
    waves = 0 if doublings is None else 1
    a = 2.0 ** (doublings or 0)
    f = (x - 3) ** 2 / 2 + waves * torch.cos(a * x)
    slope = (x - 3) - waves * a * torch.sin(a * x)
    best = (f * z**2).mean() / (z**2).mean()
    assert exact["gradient"] == pytest.approx(-2, abs=0.003)
    assert exact["path"] == pytest.approx(float(slope.var()), rel=0.01)
    assert exact["score"] == pytest.approx(float(((f - best) * z * 2).var()), rel=0.02)


# The walks


def test_a_step_of_each_arm_is_what_a_loop_over_the_samples_gives():
    k, doublings, size = 3, 4, 0.01
    z = torch.randn(closing.SAMPLES, k, generator=torch.Generator().manual_seed(7), dtype=torch.float64)
    x = 0.5 * z
    f = [float(((row - 3) ** 2 / 2 + torch.cos(16 * row)).sum()) for row in x]
    path = torch.stack([row - 3 - 16 * torch.sin(16 * row) for row in x])
    others = [(sum(f) - value) / (len(f) - 1) for value in f]
    score = torch.stack([(value - mean) * row / 0.5 for value, mean, row in zip(f, others, z, strict=True)])
    plain = torch.stack([value * row / 0.5 for value, row in zip(f, z, strict=True)])
    noisy = float(path.var(0).mean()), float(score.var(0).mean())
    share = noisy[1] / sum(noisy)
    wanted = {
        "path": path.mean(0),
        "score": score.mean(0),
        "score, no baseline": plain.mean(0),
        "path, mean clipped": path.mean(0).clamp(-3, 3),
        "path, derivatives clipped": path.clamp(-3, 3).mean(0),
        "mix": share * path.mean(0) + (1 - share) * score.mean(0),
    }
    for arm, gradient in wanted.items():
        about = {
            "dimension": k,
            "doublings": doublings,
            "step_sizes": [size],
            "seed": 7,
            "dtype": torch.float64,
        }
        found = lesson.walk(arm, **about)
        assert found.shape == (closing.STEPS + 1, 1)
        assert float(found[0, 0]) == 3
        assert float(found[1, 0]) == pytest.approx(float((-size * gradient - 3).abs().mean()), rel=1e-12), arm


def test_antithetic_pairs_see_no_even_part_and_a_falling_step_ends_at_rest():
    about = {"dimension": 2, "doublings": 3, "step_sizes": [0.02, 0.01], "seed": 1}
    pairs = lesson.walk("score, antithetic pairs", **about)
    assert torch.isfinite(pairs).all()
    assert not torch.equal(pairs, lesson.walk("score, no baseline", **about))
    falling = lesson.walk("path", **about, falling=True)
    moves = (falling[1:] - falling[:-1]).abs()
    assert float(moves[-10:].max()) < 0.2 * float(lesson.walk("path", **about).diff(dim=0)[-10:].abs().max())
    with pytest.raises(ValueError, match=r"arm must be one of path, score, mix.*, got 'other'"):
        lesson.walk("other", **about)


def test_the_stored_walks_are_those_of_the_code_and_no_best_step_size_lies_at_an_end():
    for name, one in figures("walks").items():
        assert not one["at an end of the grid"], name
        assert len(one["distances"]) == len(walks.SCORED)
    for arm, k, doublings in (("path", 1, 3), ("score", 4, 5), ("mix", 1, 8)):
        stored = measured("walks", f"{arm}, k = {k}, T = {doublings}")
        again = lesson.walk(
            arm, dimension=k, doublings=doublings, step_sizes=[stored["step size"]], seed=walks.SEEDS[0]
        )
        assert float(again[-1, 0]) == pytest.approx(stored["distances"][0], abs=0.02)


def test_the_border_lies_where_the_ratio_is_one():
    ratios = dict(zip(lesson.MAP_T, lesson.distance_ratios(), strict=True))
    for doublings in (3, 4, 5):
        k = lesson.border(doublings)
        of_k = np.interp(math.log(k), np.log(lesson.MAP_K), np.log(ratios[doublings]))
        assert of_k == pytest.approx(0, abs=1e-9)
    with pytest.raises(ValueError, match="at T = 8 one arm leads at all dimensions"):
        lesson.border(8)


# What the figures show


def test_the_baseline_figure_marks_thirty_eighteen_and_fourteen():
    axes = lesson.plot_baseline().axes[0]
    b = np.linspace(-2, 10, 121)
    assert_line(
        line_labelled(axes, "score estimate"),
        b,
        [quadratic_score_variance(mean=1, std=1, baseline=x) for x in b],
    )
    for label, x, y in (("no baseline: 30", 0, 30), ("$b = E[f]$: 18", 2, 18), ("best constant: 14", 4, 14)):
        assert_line(line_labelled(axes, label), [x], [y])


def test_bars_of_one_pull_have_the_mean_that_is_drawn():
    for axes in lesson.plot_pulls().axes:
        heights = [bar.get_height() for bar in axes.patches]
        assert len(heights) == 5
        assert np.mean(heights) == pytest.approx(line_labelled(axes, "mean over the five").get_ydata()[0])
        assert np.mean(heights) == pytest.approx(0.1 * 0.18)


def test_samples_follow_the_variances():
    axes = lesson.plot_samples().axes[0]
    path = np.asarray(line_labelled(axes, "path").get_ydata())
    assert path[1:] / path[:-1] == pytest.approx(np.full(5, 4), rel=0.01)
    score = np.asarray(line_labelled(axes, "score, best constant baseline").get_ydata())
    assert (score < 262).all()
    assert (score > 250).all()


def test_the_map_names_the_ratio_of_each_place():
    left = lesson.plot_map().axes[0]
    said = [float(text.get_text()) for text in left.texts]
    ratios = lesson.distance_ratios().ravel()
    assert said == pytest.approx(np.maximum(ratios, 1 / ratios), abs=0.051)


def test_the_second_explorer_says_who_needs_more_samples():
    explorer = lesson.EstimatorExplorer()
    _, words = explorer.frame(function="bowl with waves, T = 5", samples=2000)
    assert "the path needs" in words
    _, words = explorer.frame(function="bowl", samples=2000)
    times = float(re.search(r"the score needs about ([\d.,]+) times", words)[1].replace(",", ""))
    exact = lesson.bowl_moments(None)["score"] / lesson.bowl_moments(None)["path"]
    assert times > exact  # without its best baseline
