"""What the curves of lesson 20 are, what its explorer says, its stored runs, and answers that checkers must tell apart."""

import numpy as np
import pytest
import torch

from course_lib.lessons import low_rank_adaptation as lesson
from course_lib.lessons.low_rank_adaptation.measurements import SETTINGS, plan
from course_lib.measured import figures, origin
from tests.drawing import line_labelled

EXERCISES = lesson.EXERCISES


def grade(number, answer):
    return EXERCISES[number].grade(answer, generator=torch.Generator().manual_seed(0))


def state_of(**settings):
    defaults = {name: control.default for name, control in lesson.AdapterExplorer.controls.items()}
    return lesson.AdapterExplorer().compute(**{**defaults, **settings})


def test_one_run_of_the_map_is_plain_gradient_descent():
    rank, place, wanted = 3, 12, lesson.target()
    a = (2 * torch.rand(12, 12, generator=torch.Generator().manual_seed(3)).double() - 1) / 12**0.5
    a, b, scale, step = a[:rank], torch.zeros(12, rank).double(), 4 / rank, 10.0 ** lesson.LOG_STEPS[place]
    for t in range(61):
        gap = scale * b @ a - wanted
        left = float(gap.square().sum() / wanted.square().sum())
        assert lesson.small_runs("zero_b", "alpha/r")[rank - 1, place, t] == pytest.approx(left, rel=1e-9)
        a, b = a - step * scale * b.T @ gap, b - step * scale * gap @ a.T


@pytest.mark.parametrize("init", ["zero_b", "gradient_svd"])
def test_no_run_is_below_the_floor_of_its_rank(init):
    least = lesson.small_runs(init, "alpha/r")[..., -1].min(axis=1)
    floors = np.array([lesson.floor(r) for r in range(1, 13)])
    assert (least >= floors - 1e-9).all()
    assert (least[:4] < floors[:4] + 0.01).all()
    assert lesson.floor(3) == pytest.approx(1.32 / 30.32)


def test_the_explorer_says_what_the_start_does():
    explorer = lesson.AdapterExplorer()
    assert "Both gradients are 0" in explorer.frame(init="both zero")[1]
    assert "The loss has grown; rank 1 allows 0.47" in explorer.frame(init="zero B", rank=1, log_step=0.0)[1]
    np.testing.assert_array_equal(state_of(init="both zero")["curve"][1], 1)
    edge = {s: (state_of(init="zero B", scaling=s)["map"] > 0).sum(axis=1) for s in ("α/r", "α/√r")}
    # Where the loss grows: the border moves to larger steps with the rank for α/r, and less so for α/√r.
    assert edge["α/r"][0] - edge["α/r"][8] > edge["α/√r"][0] - edge["α/√r"][8] + 2


def test_the_path_from_one_zero_factor_ends_in_the_valley():
    (path,) = [li for li in lesson.plot_starts().axes[1].lines if li.get_label() == "_path"]
    a, b = path.get_xydata()[-1]
    assert a * b == pytest.approx(1, abs=0.05)


def test_every_planned_run_is_stored_and_the_captions_tell_its_numbers():
    runs = figures("low_rank_adaptation")
    before = runs.pop("before training")
    assert origin("low_rank_adaptation")["settings"] == SETTINGS
    assert set(runs) == {f"{trained} {part} {step:g}" for trained, part, step in plan()}
    best = lesson.best_runs()
    assert best["full"][0] == 3e-3
    assert {best[str(r)][0] for r in lesson.RANKS} == {3e-3, 1e-2}
    assert [round(best[r][1]["fifth_loss"], 2) for r in ("1", "2", "4", "full")] == [0.91, 0.68, 0.46, 0.18]
    assert all(0.36 < best[r][1]["fifth_loss"] < 0.4 for r in ("8", "16", "32"))
    assert all(runs[f"{r} all 0.03"]["fifth_loss"] > 4 for r in lesson.RANKS)
    assert before["four_loss"] < 0.01
    curve = line_labelled(lesson.plot_step_sizes().axes[0], "rank 8")
    assert curve.get_ydata()[2] == runs["8 all 0.01"]["fifth_loss"]


def test_the_numbers_of_parameters_are_those_of_the_model():
    from course_lib.mbart.model import load
    from course_lib.representation.lora import inject

    model, _ = load()
    assert model.num_parameters() == lesson.FULL
    inject(model, rank=2, alpha=2, targets="all-linear")
    assert sum(p.numel() for p in model.parameters() if p.requires_grad) == 2 * lesson.PER_RANK


# Exercises


def test_all_ways_to_the_gradient_of_b_are_accepted():
    solved = lambda answer: grade("20.2", answer).status == "solved"  # noqa: E731
    assert solved(lambda grad, x, lora_A, scale: scale * (grad.T @ x) @ lora_A.T)
    assert solved(lambda grad, x, lora_A, scale: scale * torch.einsum("no,ni,ri->or", grad, x, lora_A))
    assert not solved(lambda grad, x, lora_A, scale: 0 * grad.T @ x @ lora_A.T)


@pytest.mark.parametrize(("w", "d"), [(1.1, 1.0), (0.3, 0.1), (1e5, 0.001), (-1.1, -1.0)])
def test_updates_that_do_not_come_out_again(w, d):
    w32, d32 = np.float32(w), np.float32(d)
    wanted = "solved" if (w32 + d32) - d32 != w32 else ("wrong", "mistake")
    assert grade("20.4", {"w": w, "d": d}).status in wanted


def test_updates_that_do():
    assert grade("20.4", {"w": 3, "d": -2}).mistake == "whole numbers"
    assert grade("20.4", {"w": 1.5, "d": 0.75}).mistake == "halves"
    assert grade("20.4", {"w": 1e-3, "d": 5.0}).mistake == "the update is the larger one"
    assert grade("20.4", {"w": 1e7, "d": 0.1}).status == "wrong"


def test_rounded_answers_count():
    assert grade("20.3", 0.111).status == grade("20.3", 4 / 36).status == "solved"
    assert grade("20.3", 0.12).status != "solved"


def test_the_best_step_by_another_way_and_the_nearest_wrong_one():
    def by_eigenvectors(gradient, rank):
        _, v = torch.linalg.eigh(gradient.T @ gradient)
        kept = gradient @ v[:, -rank:] @ v[:, -rank:].T
        return -kept / torch.linalg.matrix_norm(kept)

    assert grade("20.5", by_eigenvectors).status == "solved"
    assert grade("20.5", lambda gradient, rank: by_eigenvectors(gradient, 1)).status != "solved"
