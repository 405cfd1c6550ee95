"""What the figures and the explorer of lesson 14 show."""

import math

import numpy as np
import pytest
import torch

from course_lib.attention.rotary import rotary_table
from course_lib.lessons import rotary_position_embedding as lesson
from course_lib.teaching.style import text_alternative
from tests.drawing import assert_legend, assert_line, line_labelled


def frequencies(dim: int, base: float = 10_000.0) -> np.ndarray:
    return base ** (-2 * np.arange(dim // 2) / dim)


def cosine_mean(distances, dim: int = 64, base: float = 10_000.0) -> np.ndarray:
    return np.cos(np.asarray(distances)[:, None] * frequencies(dim, base)).mean(axis=1)


def test_the_question_shows_equal_columns_without_positions_only():
    without, with_rope = (np.asarray(axes.images[0].get_array()) for axes in lesson.plot_question().axes)
    np.testing.assert_allclose(without[:, 0], without[:, 3], atol=1e-12)
    assert np.abs(with_rope[:, 0] - with_rope[:, 3]).max() > 0.05
    np.testing.assert_allclose(np.diag(with_rope), np.diag(without), atol=1e-12)
    assert f"scores {with_rope[1, 0]:.2f} with" in text_alternative(lesson.plot_question())


def test_the_score_is_the_same_after_a_shift():
    near, far = lesson.plot_shift().axes
    said = [axes.get_title().split("score ")[1] for axes in (near, far)]
    assert said[0] == said[1]
    tips = [
        complex(*(c[1] for c in line_labelled(axes, label).get_data()))
        for axes, label in (
            (near, "query at position 1"),
            (near, "key at position 3"),
            (far, "query at position 4"),
            (far, "key at position 6"),
        )
    ]
    assert (tips[0].conjugate() * tips[1]).real == pytest.approx(float(said[0]), abs=5e-4)
    for before, after in ((tips[0], tips[2]), (tips[1], tips[3])):
        assert after / before == pytest.approx(np.exp(1j * 3 * 0.4), abs=1e-12)


def test_wavelengths_are_straight_lines_from_two_pi():
    axes = lesson.plot_wavelengths().axes[0]
    for base in (10_000, 500_000):
        line = line_labelled(axes, f"base {base:,}")
        assert_line(line, np.arange(1, 65), 2 * math.pi / frequencies(128, base))
        assert line.get_ydata()[0] == pytest.approx(2 * math.pi)
    assert "18 of 64 pairs do not complete one" in text_alternative(lesson.plot_wavelengths())


def test_the_matrices_of_both_layouts_are_rotations_with_their_own_pairs():
    left, right = (np.asarray(axes.images[0].get_array()) for axes in lesson.plot_layouts().axes)
    for matrix in (left, right):
        np.testing.assert_allclose(matrix @ matrix.T, np.eye(8), atol=1e-12)
        assert np.linalg.det(matrix) == pytest.approx(1)
    assert {tuple(p) for p in np.argwhere(left)} == {
        (i, j) for i in range(8) for j in range(8) if i // 2 == j // 2
    }
    assert {tuple(p) for p in np.argwhere(right)} == {
        (i, j) for i in range(8) for j in range(8) if i % 4 == j % 4
    }
    assert left[1, 0] == pytest.approx(math.sin(1))
    assert right[4, 0] == pytest.approx(math.sin(1))
    labels = {text.get_text() for text in lesson.plot_layouts().axes[0].texts}
    assert labels == {f"{kind} {i}" for kind in ("cos", "sin", "-sin") for i in range(1, 5)}


def test_the_mean_score_and_its_law():
    left, right = lesson.plot_decay().axes
    scores = line_labelled(left, "mean score (14.13)")
    s = np.asarray(scores.get_xdata())
    assert_line(scores, np.arange(1, 40_000), cosine_mean(s), atol=1e-10)
    law = line_labelled(left, "logarithmic law (14.14)")
    x = np.array([2.0, 2500.0])
    assert_line(law, x, 1 - (np.log(x) + np.euler_gamma) / math.log(10_000) - 1 / 64)
    # Over each octave the mean of the curve is that of the law.
    for start in (4, 16, 64, 256, 1024):
        octave = np.arange(start, 2 * start)
        expected = (1 - (np.log(octave) + np.euler_gamma) / math.log(10_000) - 1 / 64).mean()
        assert cosine_mean(octave).mean() == pytest.approx(expected, abs=0.02)
    assert_legend(right, ["key = query", "query turned back by 200", "key = -query"])
    assert np.argmax(line_labelled(right, "query turned back by 200").get_ydata()) == 200
    same = np.asarray(line_labelled(right, "key = query").get_ydata())
    np.testing.assert_allclose(line_labelled(right, "key = -query").get_ydata(), -same)
    assert "49% of the first 1,000 steps go up" in text_alternative(lesson.plot_decay())


def test_extensions_slow_pairs_down_as_they_say():
    axes = lesson.plot_extension().axes[0]
    turn = 2 * np.pi * 10_000 ** (np.arange(64) / 64)
    assert_line(line_labelled(axes, "interpolation"), turn, np.full(64, 4.0))
    assert_line(line_labelled(axes, "NTK-aware base"), turn, 4 ** (np.arange(64) / 63))
    turns = 4096 / turn
    ramp = np.clip((4 - turns) / 3, 0, 1)
    assert_line(line_labelled(axes, "Llama 3"), turn, 1 / (1 - ramp + ramp / 4))
    yarn = np.asarray(line_labelled(axes, "YaRN").get_ydata())
    np.testing.assert_allclose(yarn[turns > 32], 1)
    np.testing.assert_allclose(yarn[turns < 1], 4)
    assert (np.diff(yarn) >= 0).all()
    text = text_alternative(lesson.plot_extension())
    assert "left alone: interpolation 0, NTK-aware base 1, YaRN 21, Llama 3 36" in text
    assert "less than 4: interpolation 0, NTK-aware base 17, YaRN 0, Llama 3 0" in text


def test_only_float64_angles_leave_scores_where_they_are():
    axes = lesson.plot_precision().axes[0]
    ends = {kind: line_labelled(axes, kind).get_ydata() for kind in lesson.TABLES}
    assert ends["float64 angles"].max() < 1e-6
    assert ends["float32 angles"][-1] > 30 * ends["float32 angles"][0]
    assert 3e-5 < ends["float32 angles"][-1] < 3e-3
    assert 1e-4 < ends["bfloat16 table"].min() <= ends["bfloat16 table"].max() < 1e-2
    assert ends["bfloat16 angles"][-1] > 0.1


def test_low_precision_tables_are_rounded_where_they_say():
    positions, omega = torch.tensor([100_001]), torch.tensor([0.75, 1.0]).double()
    exact = np.exp(1j * 100_001 * omega.numpy())
    found = {k: lesson.low_precision_table(positions, omega, kind=k)[0].numpy() for k in lesson.TABLES}
    assert torch.equal(torch.from_numpy(found["float64 angles"]), rotary_table(positions, omega)[0])
    # 75000.75 and 100001 are float32 numbers; bfloat16 has 99840 or 100352 for the latter.
    np.testing.assert_allclose(found["float32 angles"], exact, atol=1e-6)
    np.testing.assert_allclose(found["bfloat16 table"], exact, atol=2**-8)
    assert np.abs(found["bfloat16 table"] - exact).max() > 1e-5
    assert found["bfloat16 angles"][1] == pytest.approx(np.exp(1j * 99_840), abs=1e-6)


@pytest.mark.parametrize("dim", ["16", "64", "128"])
def test_the_explorers_clocks_and_curve_belong_together(dim):
    explorer = lesson.ClockExplorer()
    state = explorer.compute(distance=17, exponent=4.5, dim=dim, extension="none")
    omega = frequencies(int(dim), 10**4.5)
    pairs = np.array([int(name.removeprefix("pair ")) for name in state["names"]])
    assert pairs[0] == 1
    assert pairs[-1] == int(dim) // 2
    assert len(set(pairs.tolist())) == 8
    np.testing.assert_allclose(state["angles"], 17 * omega[pairs - 1])
    expected = cosine_mean(np.arange(402), int(dim), 10**4.5)
    np.testing.assert_allclose(state["scores"][1], expected[:-1], atol=1e-12)
    assert state["next"] == pytest.approx(expected[18])
    explorer.frame(distance=17, exponent=4.5, dim=dim)
    (x0, x1), (y0, y1) = explorer.artists["hands"][5].get_data()
    assert (x0, y0) == (1, -1.35)
    assert complex(x1 - x0, y1 - y0) == pytest.approx(0.4 * np.exp(1j * state["angles"][5]))
    assert explorer.artists["here"].get_data() == ([17], [state["scores"][1][17]])


def test_the_explorers_extensions():
    explorer = lesson.ClockExplorer()
    settings = {"exponent": 4.0, "dim": "16"}
    plain, squeezed, ntk = (
        explorer.compute(distance=d, extension=e, **settings)
        for d, e in zip((10, 40, 40), lesson.EXTENSIONS, strict=True)
    )
    np.testing.assert_allclose(plain["angles"], squeezed["angles"])
    assert ntk["angles"][0] == pytest.approx(4 * plain["angles"][0])
    assert ntk["angles"][-1] == pytest.approx(plain["angles"][-1])


def test_the_explorers_words():
    explorer = lesson.ClockExplorer()
    default = (
        "Base 10,000, 64 entries: at distance 24 the fastest pair has made 3.82 turns, the slowest 0.0005."
    )
    assert explorer.frame()[1].startswith(default)
    words = explorer.frame(distance=0, extension=lesson.EXTENSIONS[2])[1]
    assert "extended by NTK-aware base, 4 times: at distance 0 the fastest pair has made 0.00 turns" in words
    assert "The score is 1.000 of its value at distance 0; one position further it falls to" in words
    rises = explorer.frame(distance=4, exponent=2.0, dim="16", extension="none")[1]
    assert ("rises" in rises) == (cosine_mean([5], 16, 100)[0] > cosine_mean([4], 16, 100)[0])
