"""What the curves of lesson 11 are, what its explorers say, and which answers its exercises take."""

import math

import numpy as np
import pytest
import torch

from course_lib.architectures.normalisation import naive_batch_norm
from course_lib.lessons import batch_norm as lesson
from course_lib.lessons.batch_norm import experiment
from course_lib.measured import measured, origin
from tests.drawing import assert_line, line_labelled

F64 = {"dtype": torch.float64}


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def verdict(number, answer):
    return lesson.EXERCISES[number].grade(answer, generator=rng())


def test_the_small_network_s_gradient_is_that_of_autograd():
    x, wanted, start, readout = lesson.small_network()
    for normalise in (True, False):
        weights = start.clone().requires_grad_()
        hidden = x @ weights
        hidden = naive_batch_norm(hidden, eps=0.0) if normalise else hidden
        loss = (torch.relu(hidden) @ readout - wanted).square().mean()
        (right,) = torch.autograd.grad(loss, weights)
        parts = (part.detach().numpy() for part in (start, x, wanted, readout))
        value, found = lesson.small_gradient(*parts, normalise=normalise)
        assert value == pytest.approx(loss.item())
        np.testing.assert_allclose(found, right.numpy(), atol=1e-12)


def test_a_small_run_shrinks_by_decay_and_then_steps_and_reports_each_angle():
    x, wanted, start, readout = (part.numpy() for part in lesson.small_network())
    run = lesson.train_small(0.3, times=2, decay=0.1, steps=20)
    weights, angles, lengths = 2 * start, [], []
    for rows in lesson.batch_indices(20).numpy():
        _, gradient = lesson.small_gradient(weights, x[rows], wanted[rows], readout, normalise=True)
        new = 0.97 * weights - 0.3 * gradient
        cosine = (weights * new).sum(0) / np.linalg.norm(weights, axis=0) / np.linalg.norm(new, axis=0)
        angles.append(np.sqrt((np.arccos(cosine) ** 2).mean()))
        lengths.append(np.linalg.norm(weights))
        weights = new
    assert run.angles.tolist() == pytest.approx(angles, rel=1e-6)
    assert run.lengths.tolist() == pytest.approx([*lengths, np.linalg.norm(weights)])
    assert len(run.losses) == 3
    assert not run.blew_up


def test_a_longer_run_sees_the_batches_of_a_shorter_one_first():
    assert torch.equal(lesson.batch_indices(50)[:20], lesson.batch_indices(20))
    long, short = (lesson.train_small(0.3, steps=steps) for steps in (60, 20))
    assert long.lengths[:21].tolist() == short.lengths.tolist()


def test_without_batch_norm_step_size_30_ends_early():
    run = lesson.train_small(30, steps=200, normalise=False)
    assert run.blew_up
    assert len(run.lengths) < 60
    assert np.isfinite(run.losses).all()


def test_the_two_starts_begin_together_and_part():
    axes = lesson.FIGURES["two_starts"]().axes[0]
    drawn, larger = (
        line_labelled(axes, n).get_ydata() for n in ("weights as drawn", "the same weights times 10")
    )
    assert drawn[0] == pytest.approx(larger[0], abs=1e-12)
    assert drawn[-1] < 0.8 < 1.5 < larger[-1]


def test_a_hundred_times_the_step_is_the_same_curve_and_ten_times_is_not():
    axes = lesson.plot_rescaled().axes[0]
    drawn = np.asarray(line_labelled(axes, "as drawn, $\\eta$ = 0.3").get_ydata())
    assert_line(line_labelled(axes, "times 10, $\\eta$ = 30"), np.arange(0, 301, 10), drawn, atol=1e-9)
    tenfold = np.asarray(line_labelled(axes, "times 10, $\\eta$ = 3").get_ydata())
    assert np.abs(tenfold - drawn).max() > 0.2


def test_windows_of_twenty_steps_keep_the_mean_square():
    k, found = lesson.smoothed(np.arange(1.0, 46.0))
    assert k.tolist() == [10.5, 30.5]
    assert found.tolist() == pytest.approx([math.sqrt(143.5), math.sqrt(963.5)])


def test_the_growth_figure_s_angles_meet_on_its_line():
    angle = lesson.plot_growth().axes[1]
    ends = [angle.lines[place].get_ydata()[-25:] for place in range(4)]
    assert max(map(np.mean, ends)) / min(map(np.mean, ends)) < 1.1
    k, foretold = angle.lines[4].get_data()
    assert foretold[-1] == pytest.approx(1 / math.sqrt(2 * k[-1]))


def test_deep_networks_start_alike_and_batch_norm_does_not_see_the_factor():
    inputs = torch.randn(1, 10, 32, generator=rng(), dtype=torch.float32)
    outputs = {}
    for kind in experiment.ARMS:
        for start in (0.5, 1.0):
            networks = experiment.DeepNetworks(kind, seeds=[3], starts=[start])
            outputs[kind, start] = networks.outputs(inputs, training=True)
    assert torch.allclose(outputs[experiment.NORMED, 0.5], outputs[experiment.NORMED, 1.0], atol=1e-2)
    assert torch.allclose(outputs[experiment.NORMED, 1.0], outputs[experiment.FROZEN, 1.0], atol=1e-4)
    shrunk = outputs[experiment.PLAIN, 0.5] * 2**16
    assert torch.allclose(shrunk, outputs[experiment.PLAIN, 1.0], rtol=1e-3, atol=1e-5)
    with pytest.raises(ValueError, match="kind must be one of"):
        experiment.DeepNetworks("layer norm", seeds=[0], starts=[1.0])


def test_deep_runs_side_by_side_are_those_run_alone():
    options = {"kind": experiment.NORMED, "steps": 5}
    losses, tested = experiment.train_deep(seeds=[0, 1], starts=[0.5, 1.0], rates=[0.1, 0.01], **options)
    alone, last = experiment.train_deep(seeds=[1], starts=[1.0], rates=[0.01], **options)
    assert torch.allclose(losses[:, 1], alone[:, 0], rtol=1e-3)
    assert torch.allclose(tested[1], last[0], rtol=1e-2)


def test_statistics_kept_from_the_first_batch_stay_and_running_ones_move():
    for kind, stays in ((experiment.FROZEN, True), (experiment.NORMED, False)):
        networks = experiment.DeepNetworks(kind, seeds=[0], starts=[1.0])
        seen = []
        for seed in (1, 2):
            networks.outputs(torch.randn(1, 10, 16, generator=rng(seed), dtype=torch.float32), training=True)
            seen.append(networks.statistics[0][1].clone())
        assert torch.equal(*seen) is stays


def test_the_closing_figure_shows_what_is_stored():
    settings = origin("deep_norm")["settings"]
    assert settings["layers"] == experiment.DEPTH
    assert settings["steps"] == experiment.STEPS
    assert settings["a constant costs"] == pytest.approx(lesson.cost_of_a_constant(), abs=1e-4)
    axes = lesson.plot_closing().axes[0]
    for arm in lesson.ARM_LOOKS:
        medians = line_labelled(axes, lesson.NAMES[arm]).get_ydata()
        for start, shown in zip(lesson.starts_of(arm), medians, strict=True):
            losses = sorted(
                math.inf if loss is None else loss
                for loss in measured("deep_norm", f"{arm}, start {start:g}")["test loss"]
            )
            assert shown == pytest.approx(min(losses[2], lesson.CEILING))
    rows = lesson.closing_table().data.splitlines()[2:]
    assert len(rows) == 4
    assert "all blew up" in rows[0]


def test_the_scale_explorer_says_what_its_curves_show():
    explorer = lesson.ScaleExplorer()
    drawn = {"start": 1, "step": "0.3", "decay": "0", "normalise": True, "law": False}
    state = explorer.compute(**drawn)
    scaled = explorer.compute(**(drawn | {"start": 10, "step": "30"}))
    np.testing.assert_allclose(state["loss"][1], scaled["loss"][1], rtol=1e-6)
    assert state["law"] == ([], [])
    decayed = explorer.compute(**(drawn | {"decay": "0.01", "law": True}))
    assert decayed["law"][1].tolist() == pytest.approx([math.sqrt(0.006)] * 2)
    assert f"Foretold: {math.sqrt(0.006):.3g}" in explorer.words(decayed)
    lost = explorer.compute(**(drawn | {"step": "30", "normalise": False}))
    assert "passes a million within" in explorer.words(lost)


def test_answers_that_are_right_in_another_form_are_taken():
    assert verdict("11.1", {"first": 8, "second": torch.tensor(-2.0)}).status == "solved"
    assert verdict("11.2", {"g1": 3.0, "g2": 5, "g3": 7.0}).status == "solved"  # ones and x-hat mixed
    assert verdict("11.2", {"g1": 1e-8, "g2": 0.0, "g3": -1e-8}).status == "solved"


def test_the_gradient_by_autograd_is_right_and_refused():
    def by_batch_norm(x, g, gamma):
        x = x.clone().requires_grad_()
        norm = torch.nn.functional.batch_norm(x[:, None], None, None, training=True, eps=1e-14)
        return torch.autograd.grad((gamma * norm[:, 0]) @ g, x)[0]

    found = verdict("11.3", by_batch_norm)
    assert (found.status, found.mistake) == ("mistake", "autograd")
    assert found.message.startswith(
        "The numbers are right, but the prompt asks for a derivative written by you"
    )


def test_a_gradient_of_equal_entries_is_the_case_that_the_sentence_names():
    found = verdict("11.2", {"g1": 4.0, "g2": 4.0, "g3": 4.0})
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
    found = verdict("11.2", answer)
    assert found.status == ("mistake" if mistake else "wrong")
    assert found.mistake == mistake
