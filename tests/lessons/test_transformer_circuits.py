"""What the figures and the tables of lesson 26 show, what its explorer says, and answers that only a property refuses."""

import math
import re
from functools import cache

import numpy as np
import pytest
import torch

from benchmarks.one_place_back import LONG_RATES, RATES
from course_lib.lessons import transformer_circuits as lesson
from course_lib.measured import measured
from course_lib.representation.circuits import composition_scores
from course_lib.representation.head_scores import matching_score, read_heads
from course_lib.representation.one_place_back import ARMS, loss_on, network
from tests.drawing import assert_line, line_labelled

EXERCISES = lesson.EXERCISES


@cache
def figure(name):
    return lesson.FIGURES[name]()


def grade(number, answer):
    return EXERCISES[number].grade(answer, generator=torch.Generator().manual_seed(0))


def test_the_question_shows_a_repeated_sequence_and_the_stored_curves():
    left, axes = figure("question").axes
    letters = [(*text.get_position(), text.get_text()) for text in left.texts if len(text.get_text()) == 1]
    rows = [[(x, one) for x, y, one in letters if y == row] for row in (0, -1.6)]
    assert rows[1][-1] == (len(rows[1]) - 1, "?")
    assert rows[0][: len(rows[1]) - 1] == rows[1][:-1]
    assert len(rows[0]) + len(rows[1]) - 1 == 24
    at = np.arange(0, 251, 10)
    for arm in ("one layer", "two layers"):
        curves = np.array(measured("one_place_back", f"{arm}, curves"))
        assert_line(line_labelled(axes, f"{arm} of attention"), at, curves.mean(0))
    assert min(measured("one_place_back", "one layer, loss")) > 2.3
    assert max(measured("one_place_back", "two layers, loss")) < 0.03


def test_one_layer_looks_at_the_nine_candidates():
    left, _ = figure("candidates").axes
    for i in range(4):
        weights = np.asarray(line_labelled(left, f"head 0.{i}").get_ydata())
        assert weights[11:20].sum() > 0.8
        assert (weights[11:20] < 0.16).all()
    model = lesson.trained("one layer")
    tokens = lesson.test_sequences()[0][:, :-1]
    # The right place gets about its share of nine.
    for pattern in lesson.recorded(model).patterns:
        assert float(matching_score(pattern, tokens, tokens)) < 0.2


def test_the_marked_places_are_those_after_an_earlier_copy():
    tokens = lesson.test_sequences()[0][0, :-1]
    keys, queries = lesson.pictures._wanted(tokens)
    assert queries
    assert all(
        tokens[key - 1] == tokens[query] and key <= query for key, query in zip(keys, queries, strict=True)
    )
    for axes in figure("patterns").axes:
        assert_line(axes.lines[0], keys, queries)


def test_the_marks_are_losses_without_heads():
    axes = figure("ablation").axes[0]
    at = {
        round(float(np.mean(line.get_xdata())) * 100): np.asarray(line.get_ydata())
        for line in axes.lines[:-1]
    }
    for seed in lesson.SEEDS:
        found, x = lesson.ablations(seed), lambda place, seed=seed: round(100 * (place + 0.13 * (seed - 2)))
        assert at[x(1)] == pytest.approx([found["best of layer 1"]])
        assert at[x(1)][0] < 0.3
        assert max(at[x(2)]) < 0.3
        assert at[x(3)] == pytest.approx([found["best of layer 0"]])
        assert min(at[x(5)][0], at[x(6)][0]) > math.log(32)
        assert len(at[x(7)]) == 20
        assert np.median(at[x(7)]) < at[x(5)][0] - 0.8
    model = lesson.trained("two layers", 0)
    assert lesson.ablations(0)["all heads"] == pytest.approx(
        loss_on(model, *lesson.test_sequences()), abs=1e-5
    )


def test_the_tables_have_their_diagonals():
    own, written, copied = figure("tables").axes[:3]
    own, written, copied = (np.asarray(axes.images[0].get_array()) for axes in (own, written, copied))
    assert np.diag(own).mean() < -0.3
    assert min(np.diag(written).mean(), np.diag(copied).mean()) > 0.5
    table = lesson.token_tables(lesson.trained("two layers"), lesson.INDUCTION)["written"]
    np.testing.assert_allclose(written, table / table.abs().max(), atol=1e-6)


def test_one_writer_stands_out_where_its_loss_costs_most():
    for seed in lesson.SEEDS:
        counts = sorted(lesson.rows_by_writer(lesson.trained("two layers", seed)))
        assert (counts[-1] > counts[-2] + 8) == (lesson.ablations(seed)["best of layer 0"] > 1)


def test_the_second_round_of_the_jumping_sequences_starts_elsewhere():
    tokens, known = lesson.jumping()
    assert tokens.shape == known.shape == (256, 25)
    for row, here in zip(tokens.tolist(), known.tolist(), strict=True):
        assert here.index(True) == 16 == len(set(row[:16]))
        start = row.index(row[16])
        assert 1 <= start <= 4
        assert row[16:] == row[start : start + 9]


def test_one_layer_gets_below_the_even_guess_with_more_heads_width_and_steps():
    even = EXERCISES["26.1"].reference
    for arm in ("twice the width", "16 heads, four times the width"):
        assert max(measured("one_layer_longer", f"{arm}, 750 steps, loss")) < even
        assert min(measured("one_layer_longer", f"{arm}, 250 steps, loss")) > even
    rows = lesson.longer_table().data.splitlines()[2:]
    assert len(rows) == 5
    assert [row.split("|")[3].strip() for row in rows] == ["250", "750", "3,000", "250", "750"]


def test_the_planted_pair_stands_out():
    scores = composition_scores(read_heads(lesson.planted(hidden=True)))
    assert int(scores.argmax()) == (1 * 8 + 1) * 8 + 6  # K-composition of 0.1 with 1.2
    assert float(scores.max()) == pytest.approx(8**-0.5, abs=1e-3)


def test_two_mixed_layers_solve_it_and_eight_rivals_do_not():
    """What the text says of the stored runs, arm by arm; no best rate stands at an end of its grid."""
    bound = EXERCISES["26.1"].reference
    assert len(lesson.UNSOLVED) == 8
    assert all(min(lesson.stored(arm)) > bound for arm in lesson.UNSOLVED)
    assert all(max(lesson.stored(arm)) < 0.1 for arm in lesson.SOLVED)
    for arm in ("keys, one place back", "values, one place ahead"):
        assert max(lesson.stored(arm)) < min(lesson.stored("two layers"))
    for arm in (*ARMS, lesson.LONG):
        rates = LONG_RATES if arm == lesson.LONG else RATES
        assert min(rates) < lesson.best_rate(arm) < max(rates)
        assert lesson.stored(arm) == measured("one_place_back", f"{arm}, rate {lesson.best_rate(arm)}")
    assert measured("one_place_back", "keys, one place back, weights") == 4 + measured(
        "one_place_back", "one layer, weights"
    )
    assert measured("one_place_back", "two layers, weights") == 16_384 + measured(
        "one_place_back", "one layer, weights"
    )


def test_the_picture_and_the_tables_show_what_is_stored():
    axes = figure("mixed").axes[0]
    for line, arm in zip(axes.lines, ("one layer", *lesson.MIXED, "two layers"), strict=False):
        np.testing.assert_allclose(line.get_ydata(), np.maximum(lesson.stored(arm), 2e-5))
    rows = lesson.arms_table().data.splitlines()[2:]
    assert len(rows) == len(ARMS) + 1
    for row, arm in zip(rows, (*ARMS, lesson.LONG), strict=True):
        found = [float(x) for x in re.findall(r"\d+\.\d+", row.split("|")[4])]
        losses = lesson.stored(arm)
        assert found == pytest.approx([np.mean(losses), min(losses), max(losses)], abs=6e-3)
    shares = [[float(x) for x in row.split("|")[2:6]] for row in lesson.shares_table().data.splitlines()[2:]]
    assert (np.array(shares) > 0.4).mean() >= 0.9
    assert np.array(shares).shape == (5, 4)


# The explorer


def test_the_explorer_shows_the_network_of_the_page():
    explorer = lesson.PatternExplorer()
    state = explorer.compute(step=250, head="0.1", sequence=0, mark=True)
    expected = lesson.recorded(lesson.trained("two layers")).patterns[lesson.PREVIOUS][0]
    np.testing.assert_allclose(state["pattern"], expected, atol=1e-4)
    assert np.diag(state["pattern"], -1)[:11].mean() > 0.8
    assert state["weights"][1][1] == max(state["weights"][1])
    start = int(lesson.test_sequences()[1][0].int().argmax())
    assert state["start"][1] == [start - 0.5] * 2
    assert len(state["marks"][0]) == 24 - start
    first = explorer.compute(step=0, head="0.1", sequence=0, mark=False)
    untrained = network("two layers", lesson.SHOWN).requires_grad_(False)
    np.testing.assert_allclose(first["pattern"], lesson.recorded(untrained).patterns[1][0], atol=1e-5)
    assert first["marks"] == ([], [])


def test_the_tasks_have_the_answers_that_the_text_gives():
    explorer = lesson.PatternExplorer()
    back = [
        np.diag(explorer.compute(step=250, head=f"0.{i}", sequence=2, mark=False)["pattern"], -1)[:11].mean()
        for i in range(4)
    ]
    assert int(np.argmax(back)) == lesson.PREVIOUS
    assert f"a guess among 32 tokens: {math.log(32):.2f}" in explorer.frame(step=100, head="1.1")[1]
    found = []
    for step in (60, 80, 100, 120):
        state = explorer.compute(step=step, head="1.1", sequence=0, mark=True)
        keys, queries = state["marks"]
        found.append(state["pattern"][queries, keys].mean())
    assert list(found) == sorted(found)
    assert found[0] < 0.25 < 0.5 < found[-1]


# Exercises


def test_other_right_ways():
    def by_rows(x, w_qk, w_ov, d_head):
        rows = []
        for i in range(len(x)):
            weights = torch.softmax(x[i] @ w_qk @ x[: i + 1].T / d_head**0.5, dim=0)
            rows.append(weights @ (x[: i + 1] @ w_ov))
        return torch.stack(rows)

    assert grade("26.3", by_rows).status == "solved"

    def by_masks(pattern, tokens):
        equal = (tokens[:, None] == tokens[None, :]).tril(-1)
        after = torch.zeros_like(equal)
        after[:, 1:] = equal[:, :-1]
        return (pattern * after).sum(1)[equal.any(1)].mean()

    assert grade("26.2", by_masks).status == "solved"

    def without_forming(w_v, w_o, w_q, w_k):
        norm = lambda left, right: ((left.T @ left) * (right @ right.T)).sum().sqrt()  # noqa: E731
        top = norm(w_v @ (w_o @ w_k), w_q.T)
        return float(top / norm(w_v, w_o) / norm(w_k, w_q.T))

    assert grade("26.4", without_forming).status == "solved"


def test_one_property_alone_refuses():
    assert grade("26.4", lambda w_v, w_o, w_q, w_k: 0.5).status == "wrong"
    assert grade("26.1", 1.9).status == "wrong"
    assert grade("26.3", lambda x, w_qk, w_ov, d_head: 0 * x).status == "wrong"
