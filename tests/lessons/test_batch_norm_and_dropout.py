"""What the curves of lesson 09 are, what its explorers say, and which answers its exercises take."""

from itertools import product

import numpy as np
import pytest
import torch

from course_lib.lessons import batch_norm_and_dropout as lesson
from course_lib.teaching.style import text_alternative
from tests.drawing import assert_line, line_labelled

F64 = {"dtype": torch.float64}


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def verdict(number, answer):
    return lesson.EXERCISES[number].grade(answer, generator=rng())


def test_the_question_s_curves_start_together_and_part():
    axes = lesson.FIGURES["question"]().axes[0]
    drawn, larger = (
        line_labelled(axes, n).get_ydata() for n in ("weights as drawn", "the same weights times 10")
    )
    assert drawn[0] == pytest.approx(larger[0], abs=1e-12)
    assert drawn[-1] < 0.8 < 1.5 < larger[-1]


def test_a_hundred_times_the_step_is_the_same_curve_and_ten_times_is_not():
    axes = lesson.plot_rescaled().axes[0]
    drawn = np.asarray(line_labelled(axes, "as drawn, $\\eta$ = 0.3").get_ydata())
    assert_line(line_labelled(axes, "times 10, $\\eta$ = 30"), np.arange(0, 200, 8), drawn[::8], atol=1e-9)
    tenfold = np.asarray(line_labelled(axes, "times 10, $\\eta$ = 3").get_ydata())
    assert np.abs(tenfold - drawn).max() > 0.3


def test_the_parts_of_a_gradient_add_up_at_right_angles():
    g, x = (torch.randn(6, generator=rng(seed), **F64) for seed in (1, 2))
    parts = lesson.parts(g, x)
    torch.testing.assert_close(sum(parts), g)
    for a, b in ((0, 1), (0, 2), (1, 2)):
        assert float(parts[a] @ parts[b]) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("mode", ["evaluation", "mean only", "full"])
def test_the_gradient_explorer_shows_what_autograd_finds(mode):
    state = lesson.GradientExplorer().compute(
        mode=mode, first=1.0, second=-2.0, third=0.5, fourth=3.0, gamma=1.5, spread=2.5
    )
    x = torch.tensor(state["inputs"], **F64).requires_grad_()
    assert float(x.detach().std(correction=0)) == pytest.approx(2.5)
    centred = x - (0 if mode == "evaluation" else x.mean())
    divisor = {"evaluation": 2.5, "mean only": 1.0, "full": centred.square().mean().sqrt()}[mode]
    g = torch.tensor([1.0, -2.0, 0.5, 3.0], **F64)
    (right,) = torch.autograd.grad((1.5 * centred / divisor * g).sum(), x)
    assert state["reaches"] == pytest.approx(right.tolist(), abs=1e-12)


def test_a_gradient_along_the_inputs_is_removed_whole():
    explorer = lesson.GradientExplorer()
    _, words = explorer.frame(mode="full", first=-2.0, second=-1.0, third=1.0, fourth=2.0)
    assert "(0, 0, 0, 0) reaches x, with the sum 0." in words


def test_the_mask_explorer_adds_up_and_its_ellipse_has_one_loss():
    explorer = lesson.MaskExplorer()
    _, words = explorer.frame()
    assert "2.0784 = 1.1664 for the fit + 0.9120 for the penalty" in words
    assert "w = (0.567, 0.091)" in words
    state = explorer.compute(keep=0.6, first=0.2, second=0.3)
    x, t = torch.tensor([[1.0, 2.0], [3.0, -1.0]], **F64), torch.tensor([1.0, 2.0], **F64)

    def expected(w):
        total = 0.0
        for kept in product((0.0, 1.0), repeat=4):
            chance = 0.6 ** sum(kept) * 0.4 ** (4 - sum(kept))
            mask = torch.tensor(kept, **F64).view(2, 2)
            total += chance * float((t - (mask * x) @ torch.tensor(w, **F64) / 0.6).square().sum())
        return total

    here = expected([0.2, 0.3])
    assert sum(state["bars"]) == pytest.approx(here, abs=1e-12)
    ellipse = np.stack(state["ellipse"], 1)
    assert [expected(w) for w in ellipse[::30]] == pytest.approx([here] * 5)
    assert expected(state["minimum"]) < min(
        expected([state["minimum"][0] + d, state["minimum"][1]]) for d in (-0.01, 0.01)
    )


def test_the_cloud_shows_the_mean_of_all_runs_and_at_most_400_of_them():
    ends = torch.randn(1000, 2, generator=rng(), **F64)
    axes = lesson.plot_cloud(ends).axes[0]
    assert_line(line_labelled(axes, "one run"), ends[:400, 0], ends[:400, 1])
    assert_line(line_labelled(axes, "mean of all runs"), *ends.mean(0)[:, None])
    assert "mean of all runs (0.71, 0.1" in text_alternative(lesson.FIGURES["cloud"]())


def test_answers_that_are_right_in_another_form_are_taken():
    assert verdict("09.1", {"first": 8, "second": torch.tensor(-2.0)}).status == "solved"
    assert verdict("09.3", {"g1": 3.0, "g2": 5, "g3": 7.0}).status == "solved"  # ones and x-hat mixed
    assert verdict("09.3", {"g1": 1e-8, "g2": 0.0, "g3": -1e-8}).status == "solved"

    def by_stacking(matrix, target, keep):
        root = ((1 - keep) / keep) ** 0.5 * torch.diag(matrix.norm(dim=0))
        zeros = torch.zeros(matrix.shape[1], 1, **F64)
        stacked = torch.cat([target[:, None], zeros])
        return torch.linalg.lstsq(torch.cat([matrix, root]), stacked).solution[:, 0] / keep

    assert verdict("09.6", by_stacking).status == "solved"


def test_the_gradient_by_autograd_is_right_and_refused():
    def by_batch_norm(x, g, gamma):
        x = x.clone().requires_grad_()
        norm = torch.nn.functional.batch_norm(x[:, None], None, None, training=True, eps=1e-14)
        return torch.autograd.grad((gamma * norm[:, 0]) @ g, x)[0]

    found = verdict("09.2", by_batch_norm)
    assert (found.status, found.mistake) == ("mistake", "autograd")
    assert found.message.startswith(
        "The numbers are right, but the prompt asks for a derivative written by you"
    )


def test_a_gradient_of_equal_entries_is_the_case_that_the_sentence_names():
    found = verdict("09.3", {"g1": 4.0, "g2": 4.0, "g3": 4.0})
    assert found.status == "wrong"
    assert found.message.endswith("it is the case that the sentence names: its entries are equal.")


@pytest.mark.parametrize(
    ("answer", "mistake"),
    [
        ({"g1": -2.0, "g2": 4.0, "g3": -2.0}, "across both"),
        ({"g1": 0.0, "g2": 2.0, "g3": 0.0}, "a single example"),
        ({"g1": 1.0, "g2": 2.0, "g3": 4.0}, None),
    ],
)
def test_a_gradient_that_is_no_counterexample_is_recognised(answer, mistake):
    found = verdict("09.3", answer)
    assert found.status == ("mistake" if mistake else "wrong")
    assert found.mistake == mistake


def test_the_bank_stays_silent_on_neighbours():
    assert verdict("09.5", 4.01).status == "wrong"
    assert verdict("09.5", 4).status == "solved"
    assert verdict("09.5", 0.2).mistake is None
