"""What the pictures, the table and the explorer of lesson 22 show."""

from functools import cache
from statistics import mean

import numpy as np
import pytest
import torch

from course_lib.attention.ridge import delta_rule, ridge_memory
from course_lib.lessons import ridge_attention as lesson
from course_lib.teaching.style import text_alternative
from tests.drawing import assert_line, line_labelled


@cache
def figure(name):
    return lesson.FIGURES[name]()


# The digits and the memories


def test_the_three_parts_of_the_digits_do_not_overlap_and_keys_have_length_one():
    parts = lesson.digits(3)
    assert [len(labels) for _, labels in parts] == [1000, 300, 497]
    keys = torch.cat([keys for keys, _ in parts])
    torch.testing.assert_close(keys.norm(dim=1), torch.ones(1797).double())
    assert len(torch.unique(keys.round(decimals=9), dim=0)) >= 1790  # a few images are twins
    assert not torch.equal(lesson.digits(0)[0][0], parts[0][0])


def test_sorted_means_by_class_and_in_the_order_of_reading_within_it():
    labels = torch.tensor([2, 0, 1, 0, 2])
    assert lesson.in_order(labels, "sorted").tolist() == [1, 3, 2, 0, 4]
    assert lesson.in_order(labels, "mixed").tolist() == [0, 1, 2, 3, 4]


def test_corrections_are_the_delta_rule_and_ridge_attention_of_the_library():
    keys, labels = (x[:60] for x in lesson.digits()[0])
    values = lesson.values_of(labels)
    q = torch.eye(64).double()[:60]
    wanted = delta_rule(q, keys, values, step_size=0.1)[-1]
    by_hand = lesson.by_correction(keys, values, rule="delta")
    torch.testing.assert_close(q[-1] @ by_hand, wanted)
    ridge = lesson.by_correction(keys, values, rule="ridge", penalty=0.3)
    torch.testing.assert_close(ridge, ridge_memory(keys, values, penalty=0.3))
    steps = torch.full((1, 60), 0.1).double()
    torch.testing.assert_close(lesson.by_delta_rule(keys, values, steps)[0], by_hand)


def test_waves_are_cosines_about_their_mean():
    parts = lesson.waves(1, 1.5, lesson.digits(1))
    assert parts[0][0].shape == (1000, 272)
    for keys, _ in parts:
        torch.testing.assert_close(keys.norm(dim=1), torch.ones(len(keys)).double())
    assert float(parts[0][0].mean(0).norm()) < 0.05


def test_settings_are_chosen_on_the_tuning_digits():
    found = lesson.closing()
    for (name, order), shares in found.items():
        for seed, share in zip(lesson.SEEDS, shares, strict=True):
            tuning, new = lesson.swept(seed, order)[name]
            assert share == float(new[tuning.argmax()])


def test_no_choice_stands_at_an_end_that_matters():
    """A step near 0 is the sums, a small penalty no penalty, a large scale the nearest pair: these ends are flat."""
    for seed in lesson.SEEDS:
        for order in lesson.ORDERS:
            shares = lesson.swept(seed, order)
            assert int(shares["delta rule"][0].argmax()) < len(lesson.STEPS) - 1
            assert int(shares["ridge"][0].argmax()) < len(lesson.PENALTIES) - 1
            if int(shares["ridge"][0].argmax()) == 0:
                assert float(shares["ridge"][0][0] - shares["ridge"][0][1:3].max()) < 0.005
            assert torch.equal(*(lesson.swept(seed, o)["softmax over 41 pairs"][1] for o in lesson.ORDERS))
            on_waves = divmod(int(shares["delta rule on waves"][0].argmax()), len(lesson.STEPS))
            assert 0 < on_waves[0] < len(lesson.LENGTHS) - 1
            assert 0 < on_waves[1] < len(lesson.STEPS) - 1
            for name in ("delta rule, shrinking step", "delta rule on waves, shrinking step"):
                scale, pace = divmod(int(shares[name][0].argmax()), len(lesson.SHRINKING))
                assert (
                    lesson.SHRINKING[pace][1] > min(half for _, half in lesson.SHRINKING)
                    or "waves" not in name
                )
                assert 0 < scale < len(lesson.LENGTHS) - 1 or "waves" not in name
            flat = shares["delta rule"][1][0] - shares["sums"][1][0]
            assert abs(float(flat)) < 0.015
        assert int(lesson.swept(seed, "mixed")["delta rule"][0].argmax()) > 3


def test_what_the_text_says_of_the_table():
    found = {key: np.array(shares) for key, shares in lesson.closing().items()}
    assert found["delta rule, shrinking step", "sorted"].mean() - found["delta rule", "sorted"].mean() < 0.015
    for order in lesson.ORDERS:
        others = [shares.mean() for (name, o), shares in found.items() if o == order]
        assert found["softmax over all pairs", order].mean() == max(others)
        assert found["ridge on waves", order].mean() > found["delta rule on waves", order].mean()
        assert found["softmax over 41 pairs", order].mean() < found["sums", order].mean()
        lead = found["ridge on 64 waves", order] - found["ridge", order]
        assert abs(lead.mean()) < 0.003
        assert found["sums", order].mean() == pytest.approx(0.88, abs=0.005)
        assert found["ridge", order].mean() == pytest.approx(0.94, abs=0.005)
    waves = "delta rule on waves, shrinking step"
    lead = {order: found[waves, order] - found["ridge", order] for order in lesson.ORDERS}
    assert lead["mixed"].mean() > 0.01
    assert abs(lead["sorted"].mean()) < 2 * lead["sorted"].std(ddof=1) / 5**0.5
    rows = lesson.closing_table().data.splitlines()[2:]
    assert len(rows) == len({name for name, _ in found})
    for row in rows:
        name, _, mixed, _ = (part.strip() for part in row.strip("|").split("|"))
        assert float(mixed.split("%")[0].strip("≈")) / 100 == pytest.approx(
            mean(found[name, "mixed"]), abs=6e-4
        )


def test_the_numbers_that_are_kept():
    assert lesson.NUMBERS["ridge"] == f"{64 * 10 + 64 * 65 // 2:,}" == lesson.NUMBERS["delta rule on waves"]
    assert lesson.NUMBERS["ridge on waves"] == f"{272 * 10 + 272 * 273 // 2:,}"
    assert lesson.NUMBERS["softmax over 41 pairs"] == f"{41 * 65:,}"
    assert lesson.NUMBERS["softmax over all pairs"] == f"{1000 * 65:,}"


# The pictures


def test_sorted_digits_are_forgotten_by_class():
    delta, ridge = lesson.by_class("delta", "sorted"), lesson.by_class("ridge", "sorted")
    axes = figure("sorted").axes[0]
    heights = [np.array([bar.get_height() for bar in bars]) for bars in axes.containers if len(bars) == 10]
    np.testing.assert_allclose(heights[0], delta.mean(0))
    np.testing.assert_allclose(heights[1], ridge.mean(0))
    assert delta.mean(0)[3] < 0.05
    assert delta.mean(0)[9] > 0.9
    assert ridge.mean(0).min() > 0.75
    assert f"{delta.mean(0).min():.0%} for the class 3" in text_alternative(figure("sorted"))


def test_answers_at_stored_keys():
    found = lesson.answers_at_stored_keys()
    values = lesson.values_of(lesson.two_of_each()[1])
    error = {name: float((y - values).square().sum() / values.square().sum()) for name, y in found.items()}
    assert error["sums"] > 0.5
    assert error["ridge"] < 0.01
    assert error["softmax"] < 0.01
    pictures = [axes.images[0].get_array() for axes in figure("answers").axes[:5]]
    for picture, table in zip(pictures[1:], [values, *found.values()], strict=True):
        np.testing.assert_allclose(np.asarray(picture), table)


def test_memories_and_streams_are_drawn_from_the_data():
    upper, lower = figure("memories").axes
    for axes, memory in ((upper, lesson.two_memories()["sums"]), (lower, lesson.two_memories()["ridge"])):
        first = np.asarray(axes.images[0].get_array())[:8, :8]
        column = memory[:, 0].reshape(8, 8)
        np.testing.assert_allclose(first, column / column.abs().max())
    labels = lesson.digits()[0][1]
    for axes, wanted in zip(figure("streams").axes, (labels[:20], labels.sort().values[::50]), strict=True):
        assert [int(text.get_text()) for text in axes.texts] == wanted.tolist()


def test_costs_are_the_counts():
    axes = figure("costs").axes[0]
    line = line_labelled(axes, "one rank-one update a token, $2 n d^2$")
    tokens = np.asarray(line.get_xdata())
    assert_line(line, tokens, 2 * tokens * 64**2)
    assert_line(line_labelled(axes, "one inversion a token, $n d^3$"), tokens, tokens * 64**3)
    assert_line(line_labelled(axes, "one inversion in all, $n d^2 + d^3$"), tokens, tokens * 64**2 + 64**3)


def test_the_closing_picture_draws_the_sweep_and_the_table():
    left, second = figure("closing").axes
    shares = np.stack([lesson.swept(seed, "sorted")["delta rule"][1].numpy() for seed in lesson.SEEDS])
    assert_line(line_labelled(left, "delta rule"), lesson.STEPS, shares.mean(0))
    for bars, order in zip(second.containers, lesson.ORDERS, strict=True):
        wanted = [mean(lesson.closing()[name, order]) for name in lesson.NUMBERS]
        np.testing.assert_allclose(bars[0].get_xdata(), wanted)
    names = [label.get_text().split("\n")[0] for label in second.get_yticklabels()]
    assert names == list(lesson.NUMBERS)


# The explorer


@pytest.mark.parametrize("order", lesson.ORDERS)
@pytest.mark.parametrize("pairs", [64, 1000])
def test_the_explorer_measures_its_three_memories(order, pairs):
    explorer = lesson.DigitExplorer()
    settings = {"log_step": -1.0, "pairs": pairs, "log_penalty": 0.0, "order": order, "asked": "new digits"}
    state = explorer.compute(**settings)
    keys, labels = (x[:pairs] for x in lesson.digits()[0])
    place = lesson.in_order(labels, order)
    keys, values = keys[place], lesson.values_of(labels[place])
    memories = (
        keys.T @ values,
        lesson.by_correction(keys, values, rule="delta"),
        ridge_memory(keys, values, penalty=1.0),
    )
    wanted = [float(lesson.right(memory, lesson.digits()[2])) for memory in memories]
    np.testing.assert_allclose(state["here"], wanted)
    for (counts, curve), share in zip(state["curves"], wanted, strict=True):
        assert curve[list(counts).index(pairs)] == pytest.approx(share)
    # A class's shares, weighed by how often it is asked, give the whole.
    often = torch.bincount(lesson.digits()[2][1], minlength=10).numpy() / 497
    for (_, shares), whole in zip(state["classes"], wanted, strict=True):
        assert float(shares @ often) == pytest.approx(whole)
    _, words = explorer.frame(**settings)
    assert f"the sums get {wanted[0]:.1%} right, the delta rule {wanted[1]:.1%}" in words


def test_stored_digits_are_asked_for_up_to_the_number_in_use():
    explorer = lesson.DigitExplorer()
    state = explorer.compute(log_step=-1.0, pairs=64, log_penalty=-3.0, order="mixed", asked="stored digits")
    keys, labels = (x[:64] for x in lesson.digits()[0])
    memory = ridge_memory(keys, lesson.values_of(labels), penalty=1e-3)
    assert state["here"][2] == pytest.approx(float(lesson.right(memory, (keys, labels))))


def test_the_tasks_have_the_answers_that_the_text_gives():
    explorer = lesson.DigitExplorer()
    ask = {"log_penalty": 0.0, "asked": "new digits"}
    by_step = {
        step: explorer.compute(log_step=step, pairs=1000, order="sorted", **ask)["here"]
        for step in np.arange(-3.5, 0.1, 0.5).tolist()
    }
    best = max(by_step, key=lambda step: by_step[step][1])
    assert best <= -2.0
    assert abs(by_step[best][1] - by_step[best][0]) < 0.02
    few = {"log_step": -1.0, "pairs": 64, "order": "mixed", "asked": "new digits"}
    sums, delta, ridge = explorer.compute(log_penalty=-3.0, **few)["here"]
    assert ridge < min(sums, delta) - 0.05
    assert explorer.compute(log_penalty=0.0, **few)["here"][2] > max(sums, delta)


# The appendix


def test_the_map_changes_half_way_and_errors_are_those_of_the_next_value():
    keys, values = lesson.changing_pairs(runs=2, tokens=60, width=3, noise=0.0)
    for part in (slice(0, 30), slice(30, 60)):
        k, v = keys[:, part], values[:, part]
        torch.testing.assert_close(k @ torch.linalg.lstsq(k, v).solution, v)
    assert not torch.allclose(keys @ torch.linalg.lstsq(keys, values).solution, values, atol=0.1)
    # One token by hand, for the window and for the decay.
    keys, values = lesson.changing_pairs()
    memory = ridge_memory(keys[:, 210:230], values[:, 210:230], penalty=0.01)
    miss = (keys[:, 230, None] @ memory)[:, 0] - values[:, 230]
    expected = float(miss.square().sum() / values[:, 230].square().sum())
    assert float(lesson.tracking_errors(window=20)[229]) == pytest.approx(expected)
    weights = 0.9 ** (torch.arange(229, -1, -1) / 2)[:, None]
    memory = ridge_memory(weights * keys[:, :230], weights * values[:, :230], penalty=0.01 * 0.9**230)
    miss = (keys[:, 230, None] @ memory)[:, 0] - values[:, 230]
    expected = float(miss.square().sum() / values[:, 230].square().sum())
    assert float(lesson.tracking_errors(decay=0.9)[229]) == pytest.approx(expected, rel=1e-4)


def test_the_picture_of_forgetting_draws_means_of_ten_tokens():
    errors = {"a": torch.arange(399.0), "b": torch.full((399,), 0.25)}
    axes = lesson.plot_forgetting(errors).axes[0]
    assert_line(line_labelled(axes, "a"), np.arange(14.5, 400, 10), np.arange(39) * 10 + 13.5)
    assert "b 0.25" in text_alternative(lesson.plot_forgetting(errors))


def test_the_error_of_an_updated_inverse_arises_with_the_first_tokens():
    plain, fresh = lesson.inverse_errors(1e-4), lesson.inverse_errors(1e-4, refresh=100)
    assert 16 <= max(plain, key=plain.get) <= 100
    assert all(plain[t] == fresh[t] for t in plain if t < 100)
    assert fresh[100] < 1e-5
