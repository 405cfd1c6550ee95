"""What lesson 31 plants, reads and draws, what its explorer says, and answers that its checkers must tell apart."""

import math
import re
from functools import cache
from statistics import mean

import numpy as np
import pytest
import torch

from course_lib.lessons import hawkes_tensor_recovery as lesson
from course_lib.measured import figures, measured
from course_lib.teaching.style import text_alternative
from course_lib.theory.hawkes import fit, moments, spectral_radius, squared_error
from course_lib.theory.tensor_nuclear_norm import numerical_ranks
from tests.drawing import line_labelled

EXERCISES = lesson.EXERCISES


def grade(number, answer):
    return EXERCISES[number].grade(answer, generator=torch.Generator().manual_seed(0))


def delays(to, away):
    return dict(zip(("d1", "d2", "e1", "e2"), (*to, *away), strict=True))


def state_of(**settings):
    defaults = {name: control.default for name, control in lesson.TurnExplorer.controls.items()}
    return lesson.TurnExplorer().compute(**{**defaults, **settings})


def stored(name):
    return measured("hawkes_delays", name)


@cache
def drawn(name):
    return lesson.FIGURES[name]()


# What is planted


@pytest.mark.parametrize(
    ("kind", "in_time", "in_frequency"),
    [
        ("delayed", [1, 2, 3, 4, 4, 3, 2, 1], 1),
        ("separable", [1] * 8, 1),
        ("short", [1, 1, 0, 0, 0, 0, 0, 0], 1),
        ("random", [12] * 8, 12),
    ],
)
def test_planted_kernels_have_the_ranks_that_the_page_states(kind, in_time, in_frequency):
    for seed in lesson.SEEDS:
        kernel = lesson.process(kind, seed).kernel
        assert numerical_ranks(kernel, "slices", share=1 - 1e-12).tolist() == in_time
        assert int(numerical_ranks(kernel, "fourier", share=1 - 1e-9).max()) == in_frequency
        assert float(spectral_radius(kernel)) == pytest.approx(0.8)


# What is read


@pytest.mark.parametrize("seed", range(5))
def test_delays_of_a_kernel_without_noise_are_read_by_every_way_that_can(seed):
    one = lesson.process("delayed", seed)
    assert lesson.right_of_24(lesson.read_delays(one.kernel), one.delays) == 24
    assert lesson.right_of_24(lesson.read_totals(one.kernel), one.delays) == 24
    assert lesson.right_of_24(lesson.peak_lags(one.kernel), one.delays) == 24
    assert lesson.right_of_24(lesson.largest_squares(one.kernel, generator=lesson.rng(0)), one.delays) == 24


def test_a_search_over_lags_finds_as_many_delays_as_the_turns():
    """In the mean over ten processes, within 0.8."""

    def mean_right(method):
        return (
            sum(
                lesson.right_of_24(
                    method(lesson.norm_fit("delayed", seed, "none")), lesson.process("delayed", seed).delays
                )
                for seed in range(10)
            )
            / 10
        )

    searched = mean_right(lambda kernel: lesson.largest_squares(kernel, generator=lesson.rng(0)))
    assert searched == pytest.approx(mean_right(lesson.read_delays), abs=0.8)


def test_a_common_shift_counts_as_right_and_a_single_one_does_not():
    d, e = torch.tensor([0, 1, 2, 1]), torch.tensor([1, 0, 2, 2])
    assert lesson.right_of_24((d + 1, e), (d, e)) == 8
    assert lesson.right_of_24((d + torch.tensor([1, 0, 0, 0]), e), (d, e)) == 7


def test_the_arrows_are_leading_singular_vectors_with_their_value():
    kernel = torch.randn(5, 5, 8, generator=lesson.rng(0), dtype=torch.float64)
    left, right = lesson.arrows(kernel, (2,))
    values = torch.linalg.svdvals(torch.fft.fft(kernel, norm="ortho")[..., 2])
    found = (left[0][:, None] * right[0] / values[0]).abs()
    assert float(left.norm()) == pytest.approx(float(values[0]))
    u, s, vh = torch.linalg.svd(torch.fft.fft(kernel, norm="ortho")[..., 2])
    torch.testing.assert_close(found, (s[0] * u[:, :1] * vh[:1]).abs())


def test_a_refit_with_the_true_delays_finds_a_kernel_without_noise():
    one = lesson.process("delayed", 0)
    gram = torch.eye(96, dtype=torch.float64)
    zero = torch.zeros(12, dtype=torch.float64)
    cross = one.kernel.flatten(1)
    given = lesson.Moments(gram, cross, torch.zeros(96, dtype=torch.float64), zero, cross.square().sum(1), 1)
    assert lesson.error(lesson.refit(given, one.delays).kernel, one.kernel) < 1e-6
    moved = one.delays[0].clone()
    moved[0] = (moved[0] + 1) % 4
    assert lesson.error(lesson.refit(given, (moved, one.delays[1])).kernel, one.kernel) > 0.05
    corrected = lesson.descent(given, (moved, one.delays[1]))
    assert lesson.error(corrected.kernel, one.kernel) < 1e-6


def test_correcting_does_not_raise_the_squares():
    one = lesson.process("delayed", 3)
    given = moments(one.counts, 8)
    start = lesson.read_totals(fit(given, "none").kernel)

    def cost(form):
        flat = form.kernel.flatten(1)
        return float((flat @ given.gram * flat - 2 * flat * given.cross).sum())

    assert cost(lesson.descent(given, start)) < cost(lesson.refit(given, start))


# Norms


def test_the_cosine_transform_is_orthonormal_and_turned_moments_give_the_same_squares():
    q = lesson.cosines()
    torch.testing.assert_close(q @ q.T, torch.eye(8, dtype=torch.float64))
    one = lesson.process("delayed", 0)
    given = moments(one.counts[:500], 8)
    kernel, base = one.kernel, one.base
    torch.testing.assert_close(
        squared_error(lesson.turned(given, q), kernel @ q.T, base), squared_error(given, kernel, base)
    )


def test_no_weight_was_chosen_at_an_end_of_its_grid():
    for name, found in figures("hawkes_delays").items():
        if name.endswith(", shares"):
            grid = lesson.SHARES[name.split(", ")[1]]
            assert str(max(grid)) not in found
            assert str(min(grid)) not in found


def test_the_stored_run_is_the_one_of_the_page():
    for kind, name in (("delayed", "fourier"), ("separable", "cosine"), ("random", "ridge")):
        found = lesson.error(lesson.norm_fit(kind, 1, name), lesson.process(kind, 1).kernel)
        assert stored(f"{kind}, {name}")[1] == pytest.approx(found, abs=0.01)
    for kind in ("delayed", "separable", "random"):
        found = lesson.form_fit(kind, 1, "read, corrected")[0]
        assert stored(f"{kind}, read, corrected")[1] == pytest.approx(
            lesson.error(found, lesson.process(kind, 1).kernel), abs=0.02
        )


# What the text says of the long run


def test_nearly_all_delays_are_right_in_all_twenty_processes():
    assert min(stored("delayed, read, right")) >= 22
    assert max(stored("delayed, darkest, right")) <= 18
    assert (min(stored("delayed, peaks, right")[:5]), max(stored("delayed, peaks, right")[:5])) == (17, 23)


def test_corrected_starts_end_alike_and_ten_random_ones_do_not():
    best = mean(stored("delayed, read, corrected"))
    for start in ("totals, corrected", "peaks of Fourier, corrected", "40 starts"):
        assert mean(stored(f"delayed, {start}")) == pytest.approx(best, abs=0.01)
    stuck = [
        a > b + 0.1 for a, b in zip(stored("delayed, 10 starts"), stored("delayed, 40 starts"), strict=True)
    ]
    assert sum(stuck) == 4
    assert mean(stored("delayed, fourier")) / best == pytest.approx(3, abs=0.5)
    assert mean(stored("delayed, read")) - best < 0.02


def test_without_delays_no_search_is_better_and_without_structure_least_squares():
    assert mean(stored("separable, read")) > 0.9
    assert mean(stored("separable, no delays")) < mean(stored("separable, read, corrected")) - 0.02
    assert min(stored("random, read, corrected")) > 0.9
    assert max(stored("random, none")) < 0.6


def test_rivals_of_one_line_are_level_with_the_norm_and_twice_as_far_off_as_the_form():
    norm, cut, above = (
        mean(stored(f"delayed, {arm}")) for arm in ("fourier", "rank 1", "rank 1, at least 0")
    )
    assert cut == pytest.approx(norm, abs=0.03)
    assert above > 2 * mean(stored("delayed, read, corrected"))
    one = lesson.process("delayed", 0)
    torch.testing.assert_close(lesson.rank_one(one.kernel), one.kernel)
    assert float(lesson.simple_fit("delayed", 0, "rank 1, at least 0").min()) == 0


def test_held_out_hours_choose_a_form_where_there_is_one():
    forms = {
        kind: sum(stored(f"{kind}, chosen, arms")[arm] for arm in ("read, corrected", "no delays"))
        for kind in ("delayed", "separable", "random")
    }
    assert forms == {"delayed": 19, "separable": 19, "random": 0}


def test_the_form_is_below_the_fourier_norm_at_every_length():
    for prefix in ("1000 bins", "2000 bins", "delayed", "16000 bins"):
        read, norm = stored(f"{prefix}, read, corrected"), stored(f"{prefix}, fourier")
        assert all(a < b for a, b in zip(read, norm, strict=True))


# Explorer and pictures


def test_a_delay_turns_the_arrows_of_its_forum_clockwise_and_only_those():
    def turn(before, after):
        z = [complex(x[1], y[1]) for x, y in (before, after)]
        return math.degrees(np.angle(z[1] / z[0]))

    for f in range(5):
        at = [state_of(d=d, e=0, f=f)["arrows"] for d in (0, 1)]
        for k in (1, 3):
            assert (turn(at[0][k], at[1][k]) + 45 * f + 180) % 360 == pytest.approx(180, abs=1e-6)
        for k in (0, 2):
            assert turn(at[0][k], at[1][k]) == pytest.approx(0, abs=1e-6)
        sent = [state_of(d=1, e=e, f=f)["arrows"] for e in (0, 1)]
        turns = [(turn(sent[0][k], sent[1][k]) + 45 * f + 180) % 360 for k in (2, 3)]
        assert turns == pytest.approx([180, 180], abs=1e-6)


def test_words_name_the_angles():
    words = lesson.TurnExplorer().frame(d=1, e=0, f=2)[1]
    told = re.findall(r"(\w to \d): (-?\d+)°", words)
    assert [name for name, _ in told] == list(lesson.CORNERS)
    assert (int(told[0][1]) - int(told[1][1])) % 360 == 90


def test_the_arrows_of_the_picture_lie_near_the_rays_of_their_delays():
    for end in (0, 1):
        found, true = lesson.turned_to_truth(end)
        off = np.degrees(np.angle(found * np.exp(2j * np.pi * true / 8)))
        longer = np.abs(found) > np.median(np.abs(found))
        assert np.abs(off[longer]).max() < 22.5


def test_the_error_by_lag_is_where_the_text_says():
    fourier, slices, cosine = (lesson.profiles(name)[1] for name in ("fourier", "slices", "cosine"))
    assert fourier.argmax() == 0
    assert fourier[7] > 1.5 * fourier[5]
    for lag in (0, 7):
        assert fourier[lag] > cosine[lag] > slices[lag]
    fourier, slices, cosine = (lesson.profiles(name)[0] for name in ("fourier", "slices", "cosine"))
    assert fourier[0] < cosine[0] < slices[0] < 1
    assert min(fourier[2], cosine[2]) > 0.1 > slices[2]
    assert fourier[7] > 0.05 > cosine[7]
    fourier = lesson.profiles("fourier")[1]
    line = line_labelled(drawn("by_lag").axes[1], "Fourier")
    np.testing.assert_allclose(line.get_ydata(), fourier)


def test_three_frequencies_rescue_the_square_among_the_circles_of_the_picture():
    found, true = lesson.turned_to_truth(1)
    off = np.abs(np.degrees(np.angle(found * np.exp(2j * np.pi * true / 8))))
    k = int(off.argmax())
    plain = lesson.norm_fit("delayed", 0, "none")
    assert (true[k], int(lesson.read_delays(plain, (1,))[1][k]), int(lesson.read_delays(plain)[1][k])) == (
        1,
        0,
        1,
    )


def test_a_tenth_of_the_pairs_of_late_answers_an_hour_later():
    one, other = lesson.process("late", 0), lesson.process("delayed", 0)
    sums = other.delays[0][:, None] + other.delays[1]
    late = one.kernel.argmax(-1) - sums
    assert set(late.flatten().tolist()) == {0, 1}
    assert 5 <= int(late.sum()) <= 25


def test_long_profiles_have_short_arrows_and_fewer_delays_are_right():
    given = [lesson.process("separable", seed) for seed in range(5)]
    read = [lesson.read_delays(lesson.norm_fit("separable", seed, "none")) for seed in range(5)]
    right = [lesson.right_of_24(one, other.delays) for one, other in zip(read, given, strict=True)]
    assert (min(right), max(right)) == (13, 19)


def test_pictures_say_what_they_show():
    for name in lesson.FIGURES:
        assert len(text_alternative(drawn(name))) > 100


# Exercises


@pytest.mark.parametrize(("to", "away"), [([0, 1], [0, 2]), ([0, 3], [0, 3]), ([3, 0], [0, 1])])
def test_every_cut_that_raises_the_rank_is_accepted(to, away):
    assert grade("31.3", delays(to, away)).status == "solved"


@pytest.mark.parametrize(
    ("to", "away"), [([0, 1], [0, 1]), ([2, 2], [0, 3]), ([0, 3], [1, 1]), ([0, 4], [0, 1])]
)
def test_other_delays_are_not(to, away):
    assert grade("31.3", delays(to, away)).status in ("wrong", "mistake")


def test_right_answers_by_other_ways_are_accepted():
    assert grade("31.1", lambda m, A, y: m + torch.einsum("ijt,tj->i", A, y[-2:].flip(0))).status == "solved"
    verdict = grade("31.6", lambda m, A: torch.linalg.inv(torch.eye(3, dtype=m.dtype) - A.sum(2)) @ m)
    assert verdict.status == "solved"
    assert grade("31.7", {"first": 1, "second": 1, "norm": 2.83}).status == "solved"
    assert grade("31.7", {"first": 1, "second": 1, "norm": 2.9}).status == "wrong"


def test_only_the_property_refuses_a_delay_outside_the_window():
    assert grade("31.4", lambda z, r, p: -1).status == "wrong"
