"""What the figures of lesson 21 are, what its explorer says, and answers that its checkers must tell apart."""

import numpy as np
import pytest
import torch

from course_lib.lessons import transformer_circuits as lesson
from course_lib.lessons.transformer_circuits import INDUCTION, PREVIOUS
from course_lib.representation.circuits import composition_scores
from course_lib.representation.head_scores import read_heads
from tests.drawing import line_labelled

EXERCISES = lesson.EXERCISES


def grade(number, answer):
    return EXERCISES[number].grade(answer, generator=torch.Generator().manual_seed(0))


def test_two_layers_fall_and_one_does_not():
    axes = lesson.plot_question().axes[0]
    one = line_labelled(axes, "1 layer of attention").get_ydata()
    two = line_labelled(axes, "2 layers of attention").get_ydata()
    assert min(one) > 1.8
    assert two[5] > 2.5  # step 50
    assert two[-1] < 0.3
    assert np.argmin(np.diff(two)) in range(5, 17)  # it falls fastest between the steps 50 and 160


def test_the_dots_are_composition_scores_with_one_that_stands_out():
    planted, _, untrained = lesson.plot_composition().axes
    k_scores = np.sort(planted.lines[1].get_ydata())
    assert k_scores[-1] == pytest.approx(8**-0.5, abs=1e-4)
    assert k_scores[-2] < 0.16
    for line in untrained.lines[:3]:
        assert np.abs(np.asarray(line.get_ydata()) * 8 - 1).max() < 0.25
    scores = composition_scores(read_heads(lesson.planted(hidden=True)))
    assert int(scores.argmax()) == (1 * 8 + PREVIOUS) * 8 + INDUCTION


def test_the_bars_are_losses_without_heads():
    bars = [patch.get_height() for patch in lesson.plot_ablation().axes[0].patches]
    assert max(bars[4:8]) < 0.5 < bars[1]
    assert bars[8] > np.log(32)
    assert bars[9] == pytest.approx(lesson.loss_without(lesson.trained(2, 2)[0], []))


def test_the_explorer_turns_weights_and_keeps_circuits_and_pairs():
    explorer = lesson.CircuitExplorer()
    settings = {name: control.default for name, control in explorer.controls.items()}
    flat, turned = (explorer.compute(**{**settings, "angle": angle}) for angle in (0, 135))
    assert np.abs(flat["weights"] - turned["weights"]).max() > 1
    np.testing.assert_allclose(flat["circuit"], turned["circuit"], atol=1e-4)
    np.testing.assert_allclose(flat["circuit"], 20 * np.eye(8), atol=1e-4)
    assert flat["edges"] == turned["edges"]
    drawn = [edge for edge in flat["edges"] if edge[0] == [0, 1]]
    assert drawn == [([0, 1], [1, 2])]
    words = explorer.frame(angle=0, mode="K", threshold=0.15)[1]
    assert words == (
        "Bases turned by 0°: W_K as planted, W_QK the same. 1 of 16 pairs have K-composition above 0.15; "
        "the strongest is 0.1 with 1.2, 0.354."
    )
    assert "0 of 16 pairs have Q-composition" in explorer.frame(mode="Q", threshold=0.15)[1]
    assert "16 of 16 pairs" in explorer.frame(mode="K", threshold=0.0)[1]


def test_translation_pairs_are_two_languages():
    sources, targets = lesson.translation_pairs()
    assert len(sources) == len(targets) == 32
    assert all(source[0] != target[0] for source, target in zip(sources, targets, strict=True))
    assert len({(source[0], target[0]) for source, target in zip(sources, targets, strict=True)}) == 12


# Exercises


@pytest.mark.parametrize("numbers", [(-1, 2, -1, 2), (-2, 4, -1, 2), (3, -1, 6, -2), (0, -1, 0, -2.5)])
def test_every_parallel_pair_with_a_negative_entry_is_accepted(numbers):
    assert grade("21.2", dict(zip("abcd", numbers, strict=True))).status == "solved"


@pytest.mark.parametrize(
    ("numbers", "mistake"),
    [
        ((2, 1, 4, 2), "no negative entry"),
        ((1, -2, -3, 6), "opposite"),
        ((1, 0, -1, 2), "different directions"),
    ],
)
def test_counterexamples_that_are_none(numbers, mistake):
    assert grade("21.2", dict(zip("abcd", numbers, strict=True))).mistake == mistake


def test_other_right_ways():
    def by_rows(x, w_qk, w_ov, d_head):
        rows = []
        for i in range(len(x)):
            weights = torch.softmax(x[i] @ w_qk @ x[: i + 1].T / d_head**0.5, dim=0)
            rows.append(weights @ (x[: i + 1] @ w_ov))
        return torch.stack(rows)

    assert grade("21.3", by_rows).status == "solved"

    def by_masks(pattern, tokens):
        equal = (tokens[:, None] == tokens[None, :]).tril(-1)
        after = torch.zeros_like(equal)
        after[:, 1:] = equal[:, :-1]
        return (pattern * after).sum(1)[equal.any(1)].mean()

    assert grade("21.4", by_masks).status == "solved"

    def without_forming(w_v, w_o, w_q, w_k):
        norm = lambda left, right: ((left.T @ left) * (right @ right.T)).sum().sqrt()  # noqa: E731
        top = norm(w_v @ (w_o @ w_k), w_q.T)
        return float(top / norm(w_v, w_o) / norm(w_k, w_q.T))

    assert grade("21.5", without_forming).status == "solved"


def test_one_property_alone_refuses():
    assert grade("21.5", lambda w_v, w_o, w_q, w_k: 0.5).status == "wrong"
    assert grade("21.1", 41).status == "wrong"
    assert grade("21.3", lambda x, w_qk, w_ov, d_head: 0 * x).status == "wrong"
