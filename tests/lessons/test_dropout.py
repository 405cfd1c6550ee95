"""What the networks, the curves and the words of lesson 12 are, and which answers its exercises take."""

from itertools import product

import numpy as np
import pytest
import torch

from course_lib.lessons import dropout as lesson
from course_lib.measured import measured, origin
from tests.drawing import assert_line, line_labelled

F64 = {"dtype": torch.float64}
X, T = torch.tensor([[1.0, 2.0], [3.0, -1.0]], **F64), torch.tensor([1.0, 2.0], **F64)


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


def verdict(number, answer):
    return lesson.EXERCISES[number].grade(answer, generator=rng())


def state_of(**settings):
    explorer = lesson.CoinExplorer()
    defaults = {name: control.default for name, control in explorer.controls.items()}
    return explorer.compute(**{**defaults, **settings})


def test_the_question_shows_400_runs_and_their_mean():
    ends = torch.randn(1000, 2, generator=rng(), **F64)
    axes = lesson.plot_question(ends).axes[0]
    assert_line(line_labelled(axes, "a fifth of the table deleted: one run"), ends[:400, 0], ends[:400, 1])
    assert_line(line_labelled(axes, "mean of these runs"), *ends.mean(0)[:, None])
    assert_line(line_labelled(axes, "nothing deleted: all runs"), [5 / 7], [1 / 7])


def test_the_runs_of_the_example_gather_at_the_minimum_and_not_at_least_squares():
    ends = lesson.plot_question.given()[0]
    assert ends.mean(0).tolist() == pytest.approx([350 / 617, 56 / 617], abs=0.02)


def test_a_table_has_its_unit_and_its_copies():
    table = lesson.table_in("centimetres", 3)
    assert table.tolist() == [[100, 100, 100, 2], [300, 300, 300, -1]]
    assert torch.equal(lesson.table_in(), X)


def test_centimetres_move_ridge_and_not_dropout():
    axes = lesson.plot_units().axes[0]
    points = {
        name: np.array(line_labelled(axes, name).get_xydata()[0])
        for name in (
            "dropout, column 1 in metres",
            "dropout, in centimetres",
            "ridge, penalty 2.5, column 1 in metres",
            "ridge, penalty 2.5, in centimetres",
        )
    }
    dropout, moved, ridge, ridge_moved = points.values()
    assert dropout == pytest.approx([0.7488, 1.6110], abs=1e-4)
    assert moved == pytest.approx(dropout, abs=1e-9)
    assert ridge == pytest.approx([0.717, 1.623], abs=1e-3)
    assert ridge_moved == pytest.approx([0.899, 2.034], abs=1e-3)


def test_copies_weaken_dropout_and_the_jumps_in_the_explorer():
    states = [state_of(copies=copies) for copies in (1, 4, 64)]
    joint = [state["here"][0] for state in states]
    assert joint == pytest.approx([0.5673, 0.6689, 0.7086], abs=1e-4)
    once, few, many = (state["spread"][1] for state in states)
    assert few < 0.7 * once
    assert many < 0.4 * few


@pytest.mark.parametrize("unit", ["centimetres", "kilometres"])
def test_a_unit_moves_ridge_only(unit):
    metres, other = state_of(), state_of(unit=unit)
    for name in ("here", "unmasked", "spread"):
        assert other[name] == pytest.approx(metres[name], abs=1e-9)
    assert np.abs(np.subtract(other["ridge"], metres["ridge"])).max() > 0.03


def test_where_nothing_is_deleted_all_masks_predict_the_targets():
    state = state_of(keep=1.0, copies=5)
    assert state["unmasked"] == pytest.approx(T.tolist(), abs=1e-9)
    assert state["spread"] == pytest.approx([0, 0], abs=1e-12)
    assert state["here"] == pytest.approx([5 / 7, 1 / 7], abs=1e-9)


def test_the_explorer_says_where_dropout_ends():
    _, words = lesson.CoinExplorer().frame()
    assert "dropout ends at weights (0.567, 0.091) and predicts (0.749, 1.611)" in words


def test_patients_are_held_out_and_one_dot_is_one_split():
    errors = lesson.patient_errors()
    dot = line_labelled(lesson.plot_patients().axes[0], "one split")
    assert_line(dot, errors["ridge"], errors["dropout"])
    assert all(0.4 < error < 1 for both in errors.values() for error in both)
    table, target = lesson.forty_patients()
    assert table.shape == (40, 10)
    assert float(table.sum(0).abs().max() + target.sum().abs()) == pytest.approx(0, abs=1e-6)


def test_scaled_columns_make_both_penalties_one():
    """The rival of the text: ridge on columns of length 1 is dropout's average."""
    table, target = lesson.forty_patients()
    table = table / table.norm(dim=0)
    rows = torch.arange(40)
    split = (rows[:20], rows[20:30], rows[30:])
    seen = table[:20] - table[:20].mean(0)
    table = table / seen.norm(dim=0)
    tuned = [lesson.pictures._tuned(table, target, split, scaled) for scaled in (True, False)]
    assert tuned[0] == pytest.approx(tuned[1], rel=1e-9)


def test_mean_scores_are_those_of_whole_hidden_units_and_not_of_whole_inputs():
    found = lesson.averages()
    gap = {name: float((mean - plain).abs().mean()) for name, (plain, mean) in found.items()}
    assert gap["hidden units"] < 0.02 < 0.1 < gap["inputs"]


def test_splits_do_not_overlap_and_a_share_of_the_labels_is_drawn_anew():
    data = lesson.problem([0, 1])
    assert data.train.shape == (2, 200, 64)
    assert data.scored.shape == (2, 1297, 64)
    assert data.train.mean(1).abs().max() < 1e-5
    clean = lesson.problem([0, 1], redrawn=0.0)
    assert torch.equal(clean.train, data.train)
    changed = (clean.targets.argmax(2) != data.targets.argmax(2)).float().mean()
    assert float(changed) == pytest.approx(0.27, abs=0.06)  # one in ten is drawn as it was


def test_coins_keep_their_share_and_the_mean():
    x = torch.full((200_000,), 3.0)
    kept = lesson.thrown(x, 0.5, rng())
    assert set(kept.unique().tolist()) == {0.0, 6.0}
    assert float(kept.mean()) == pytest.approx(3.0, abs=0.05)


def test_the_mean_penalty_is_that_of_all_masks():
    hidden, readout, keep = torch.rand(3, 4, generator=rng()), torch.randn(4, 2, generator=rng(1)), 0.3
    plain, total = hidden @ readout, 0.0
    for kept in product((0.0, 1.0), repeat=4):
        chance = keep ** sum(kept) * (1 - keep) ** (4 - sum(kept))
        total += chance * ((hidden * torch.tensor(kept) / keep) @ readout - plain).square().sum(1).mean()
    assert float(lesson.mean_penalty(hidden, readout, keep)) == pytest.approx(float(total), rel=1e-5)


def test_arms_share_data_and_first_weights_and_a_default_dtype_changes_nothing(monkeypatch):
    monkeypatch.setattr(lesson.coins, "STEPS", 50)
    runs = {arm: lesson.train(arm, 0.5, 0.01, [3]) for arm in lesson.ARMS}
    first = {float(run.scored[0, 0]) for run in runs.values()}
    assert len(first) == 1
    assert len({float(run.scored[-1, 0]) for run in runs.values()}) > 3
    torch.set_default_dtype(torch.float64)
    try:
        again = lesson.train("coins", 0.5, 0.01, [3])
    finally:
        torch.set_default_dtype(torch.float32)
    assert torch.equal(again.scored, runs["coins"].scored)


def test_a_seed_trains_the_same_network_alone_and_beside_others(monkeypatch):
    monkeypatch.setattr(lesson.coins, "STEPS", 50)
    alone, both = (lesson.train("weight decay", 0.01, 0.003, seeds) for seeds in ([1], [0, 1]))
    torch.testing.assert_close(alone.scored[:, 0], both.scored[:, 1], atol=0.01, rtol=0)


def test_stopping_takes_each_seed_s_best_look():
    run = lesson.Run(torch.tensor([[0.5, 0.2], [0.3, 0.4]]), torch.tensor([[0.6, 0.1], [0.2, 0.9]]))
    chosen, scored = run.stopped()
    assert chosen.tolist() == pytest.approx([0.3, 0.2])
    assert scored.tolist() == pytest.approx([0.2, 0.1])


def test_an_unknown_arm_is_named():
    with pytest.raises(ValueError, match="arm must be one of nothing, coins"):
        lesson.train("luck", 0.5, 0.01, [0])


@pytest.mark.parametrize("arm", lesson.ARMS)
def test_the_best_rate_of_the_stored_run_is_not_at_an_end(arm):
    found, rates = measured("coins", arm), origin("coins")["settings"]["rates"]
    assert min(rates) < found["rate"] < max(rates)
    if arm != "nothing":
        settings = [float(s) for s in found["choosing by setting"]]
        assert min(settings) < found["setting"] < max(settings)


def test_the_arms_are_drawn_as_they_were_stored():
    axes = lesson.plot_arms().axes[0]
    drawn = [line.get_xdata() for line in axes.get_lines() if len(line.get_xdata()) == 5]
    for values, arm in zip(drawn, lesson.LABELS, strict=True):
        assert list(values) == measured("coins", arm)["wrong"]


@pytest.mark.parametrize("number", ["1e400", 10**400, -(10**400), float("inf"), float("nan")])
def test_numbers_without_bound_are_refused_at_once(number):
    number = float(number) if isinstance(number, str) else number
    assert verdict("12.4", {"w1": number, "w2": 1.0}).status != "solved"
    assert verdict("12.1", {"mean": number, "variance": 0.7312, "error": 0.7312}).status != "solved"
    assert verdict("12.3", number).status != "solved"


def test_ridge_wins_where_long_columns_matter_and_loses_where_short_ones_do():
    for weights, ridge_is_better in (((1, 1), True), ((0.1, 1), False), ((0.2, 20), False)):
        ridge, dropout = lesson.exercises._least_risks(*weights)
        assert (ridge < dropout) == ridge_is_better, weights


def test_ridge_s_risk_is_the_one_of_simulated_targets():
    generator = rng()
    table, w = torch.diag(torch.tensor([10.0, 1.0], **F64)), torch.tensor([1.0, 1.0], **F64)
    noisy = table @ w + torch.randn(100_000, 2, generator=generator, **F64)
    risks = []
    for penalty in (0.5, 1.0, 2.0):
        fitted = noisy @ table / (table.diag() ** 2 + penalty)
        risks.append(float((fitted * table.diag() - table @ w).square().sum(1).mean()))
    assert min(risks) == pytest.approx(lesson.exercises._least_risks(1, 1)[0], abs=0.02)
