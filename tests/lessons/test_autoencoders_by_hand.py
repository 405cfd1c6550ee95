"""What the worksheets, curves and the explorer of lesson 33 show, and how its many starts are trained."""

import numpy as np
import pytest
import torch
from matplotlib.patches import Rectangle

from course_lib.lessons import autoencoders_by_hand as lesson
from course_lib.measured import measured, origin
from course_lib.sae.by_hand import Layer, backward, forward, squared_error, step
from course_lib.teaching.style import text_alternative
from tests.drawing import assert_line, line_labelled


def cells(figure) -> list[str]:
    """Texts of all cells of a worksheet, in the order in which they were drawn."""
    return [text.get_text() for text in figure.axes[0].texts if text.get_ha() == "center"]


def titles(figure) -> list[str]:
    return [text.get_text() for text in figure.axes[0].texts if text.get_ha() == "left"]


def shaded(figure) -> int:
    patches = figure.axes[0].findobj(Rectangle)
    return sum(np.allclose(p.get_facecolor()[:3], 0.82) for p in patches)


def numbers(*tables: torch.Tensor) -> list[float]:
    return [value for table in tables for value in table.flatten().tolist()]


def joined(layer_or_weights, biases=None) -> torch.Tensor:
    weight, bias = (
        (layer_or_weights.weight, layer_or_weights.bias) if biases is None else (layer_or_weights, biases)
    )
    return torch.cat([weight, bias[:, None]], dim=1)


def test_the_examples_are_described_by_two_numbers_each():
    x = lesson.EXAMPLES
    assert torch.equal(x[2], x[0] + x[1])
    assert torch.equal(x[3], x[2] + x[0])
    assert torch.linalg.matrix_rank(x) == 2


def test_the_worksheet_of_the_question_shows_values_and_no_errors():
    passed = forward(lesson.AUTOENCODER, lesson.EXAMPLES)
    figure = lesson.plot_worksheet(until="forward")
    expected = [lesson.EXAMPLES]
    for layer, values in zip(lesson.AUTOENCODER, passed.values[1:], strict=True):
        expected += [joined(layer), values]
    assert [float(text) for text in cells(figure)] == numbers(*expected)
    assert (float(passed.sums[3][2, 1]), float(lesson.EXAMPLES[2, 1])) == (-1, 3)
    assert "orange frame" in text_alternative(figure)


def test_the_filled_worksheet_holds_values_errors_and_gradients():
    passed = forward(lesson.AUTOENCODER, lesson.EXAMPLES)
    back = backward(lesson.AUTOENCODER, passed, lesson.EXAMPLES)
    expected = [lesson.EXAMPLES]
    for k, layer in enumerate(lesson.AUTOENCODER):
        expected += [
            joined(layer),
            passed.values[k + 1],
            back.errors[k],
            joined(back.weights[k], back.biases[k]),
        ]
    figure = lesson.plot_worksheet()
    assert [float(text) for text in cells(figure)] == numbers(*expected)
    off = sum(int((sums <= 0).sum()) for sums in passed.sums)
    assert shaded(figure) == 2 * off
    assert shaded(lesson.plot_worksheet(until="forward")) == off


def test_no_number_of_the_sheet_is_rounded_away():
    assert all(len(text) <= 4 for text in cells(lesson.plot_worksheet()))


def test_output_3_alone_stays_where_its_gate_is_closed():
    axes = lesson.plot_own_row().axes[0]
    t = np.arange(41)
    assert_line(line_labelled(axes, "as on the sheet, from -1"), t, -np.ones(41))
    # It reads (1, 1, 1) and a bias: z - 3 is multiplied by 1 - 8 * 0.02 in every step.
    assert_line(line_labelled(axes, "the same from 0.3"), t, 3 - 2.7 * 0.84**t)
    assert_line(line_labelled(axes, "from -1, without the gate"), t, 3 - 4 * 0.84**t)


def test_the_graph_has_values_and_errors_of_example_2():
    texts = [text.get_text() for text in lesson.plot_network().axes[0].texts]
    assert "slope -6\nstopped here" in texts
    assert "slope -6" in texts
    found = backward(lesson.AUTOENCODER, forward(lesson.AUTOENCODER, lesson.EXAMPLES), lesson.EXAMPLES)
    assert [e[:, 1].tolist() for e in found.errors] == [[2, 0, 0], [2, -10], [2, 2, -8], [0, 2, 0, -6]]
    for error in (-10, -8):
        assert texts.count(f"{error}") == 1


def test_the_corner_has_a_slope_on_each_side():
    loss = line_labelled(lesson.plot_corner().axes[0], "loss")
    changes, losses = loss.get_xdata(), loss.get_ydata()
    at = len(changes) // 2
    assert losses[at] == 30
    assert (losses[at - 1] - 30) / changes[at - 1] == pytest.approx(-12, abs=0.1)
    assert (losses[at + 1] - 30) / changes[at + 1] == pytest.approx(38, rel=0.1)


def test_stopped_parts_do_not_move():
    """With its own numbers alone the rest stays, so that no example's input to output 3 changes; and the other way round."""
    own, others = lesson.sums_of_output_3(rows="own"), lesson.sums_of_output_3(rows="others")
    assert own[-1] < 0 < others[-1] <= 1 + 1e-12
    all_of_it = lesson.sums_of_output_3()
    after = [float(forward(lesson.trained(t), lesson.EXAMPLES).sums[3][2, 1]) for t in (0, 1, 40)]
    assert [all_of_it[t] for t in (0, 1, 40)] == pytest.approx(after, abs=1e-12)
    assert lesson.sums_of_output_3(muted=(1, 3))[-1] < 0 < lesson.sums_of_output_3(muted=(0,))[-1]


def test_output_2_is_needed_and_output_4_is_not():
    for eta in (0.001, 0.002):
        assert max(lesson.sums_of_output_3(muted=(1,), step_size=eta, steps=200)) < -0.1
        assert lesson.sums_of_output_3(muted=(3,), step_size=eta)[-1] > 1.5


def test_output_3_comes_on_where_unit_2_of_layer_3_goes_off():
    """Its sum is 1 - 2 h with its own four numbers kept."""
    outputs, hidden = lesson.sums_of_output_3(rows="others"), lesson.sums_of_unit_2()
    assert outputs == pytest.approx([1 - 2 * max(0, z) for z in hidden], abs=1e-12)
    assert hidden[0] == 1
    assert hidden[-1] < -0.5
    assert (forward(lesson.trained(40), lesson.EXAMPLES).sums[2][1] < 0).all()


def test_short_steps_do_not_open_the_gate():
    axes = lesson.plot_times().axes[0]
    assert -0.2 < max(line_labelled(axes, "0.0005").get_ydata()) < 0
    for size in (0.0007, 0.002):
        assert line_labelled(axes, f"{size:g}").get_ydata()[-1] > 1.5


def test_the_error_of_output_2_turns_round_before_short_steps_open_the_gate():
    short = line_labelled(lesson.plot_times().axes[1], "0.0005").get_ydata()
    assert short[0] == 2 > short[5] > 1 > short[10] > short[20]
    for size in (0.0001, 0.0005):
        given = {"step_size": size, "steps": round(0.05 / size)}
        assert (
            max(lesson.sums_of_output_3(**given)) < 0 < lesson.sums_of_output_3(only_down=(1,), **given)[-1]
        )


def test_stuck_levels_lie_between_constants_and_zeros():
    levels = lesson.stuck_levels()
    assert (levels[0], levels[-1]) == (12, 72)
    assert {28, 32, 52} < set(levels)


def test_one_direction_leaves_less_than_constants():
    levels = lesson.levels_of_one_direction()
    assert (levels[0], levels[-1]) == (pytest.approx(3, abs=0.1), 72)
    assert any(level == pytest.approx(45, abs=0.1) for level in levels)
    x = lesson.EXAMPLES - lesson.EXAMPLES.mean(1, keepdim=True)
    u, _, _ = torch.linalg.svd(x)
    direction = u[:, :1]
    assert float((x - direction @ direction.T @ x).square().sum()) == pytest.approx(levels[0], abs=1e-5)


# Many starts


def test_a_copy_is_trained_as_the_network_by_hand():
    starts = lesson.random_starts(3, seed=5)
    ended = lesson.train(starts, step_size=torch.tensor([0.001, 0.002, 0.004], dtype=torch.float64), steps=20)
    for k, rate in enumerate((0.001, 0.002, 0.004)):
        layers = tuple(
            Layer(w[k], b[k].flatten()) for w, b in zip(starts.weights, starts.biases, strict=True)
        )
        for _ in range(20):
            layers = step(
                layers,
                backward(layers, forward(layers, lesson.EXAMPLES), lesson.EXAMPLES),
                step_size=rate,
            )
        for weight, layer in zip(ended.weights, layers, strict=True):
            torch.testing.assert_close(weight[k], layer.weight, rtol=1e-9, atol=1e-12)
        assert float(ended.losses()[k]) == pytest.approx(
            float(squared_error(forward(layers, lesson.EXAMPLES).output, lesson.EXAMPLES)), rel=1e-9
        )


def test_adam_with_leaks_takes_the_steps_of_torch():
    starts = lesson.random_starts(2, seed=6, leak=0.1, output_leak=1.0)
    leaves = [t.clone().requires_grad_() for t in (*starts.weights, *starts.biases)]
    optimizer = torch.optim.Adam(leaves, lr=0.01)
    for _ in range(15):
        h = lesson.EXAMPLES
        for weight, bias, leak in zip(leaves[:4], leaves[4:], starts.leaks, strict=True):
            h = torch.nn.functional.leaky_relu(weight @ h + bias, leak)
        optimizer.zero_grad()
        (h - lesson.EXAMPLES).square().sum().backward()
        optimizer.step()
    ended = lesson.train(starts, step_size=0.01, steps=15, adam=True)
    for ours, theirs in zip((*ended.weights, *ended.biases), leaves, strict=True):
        torch.testing.assert_close(ours, theirs.detach(), rtol=1e-7, atol=1e-10)


def test_a_backward_leak_changes_errors_and_no_values():
    plain, open_ = (lesson.random_starts(20, seed=6, **given) for given in ({}, {"backward_leak": 0.1}))
    assert torch.equal(plain.losses(), open_.losses())
    shut = plain.shut_outputs() == 4
    one, other = (lesson.train(copies, step_size=0.001, steps=1) for copies in (plain, open_))
    assert torch.equal(one.weights[3][shut], plain.weights[3][shut])
    assert not torch.equal(other.weights[0], one.weights[0])


def test_starts_are_drawn_as_asked():
    plain = lesson.random_starts(400, seed=7)
    for weight, bias in zip(plain.weights, plain.biases, strict=True):
        bound = weight.shape[2] ** -0.5
        assert bound * 0.98 < weight.abs().max() <= bound
        assert bound * 0.98 < bias.abs().max() <= bound
    half = lesson.random_starts(400, seed=7, scale=0.5)
    assert torch.equal(half.weights[1], plain.weights[1] / 2)
    he = lesson.random_starts(4000, seed=7, he=True)
    assert float(he.weights[0].var()) == pytest.approx(2 / 4, rel=0.05)
    assert not he.biases[0].any()
    opened = lesson.random_starts(3, seed=7, output_bias=1)
    assert (opened.biases[-1] == 1).all()
    assert torch.equal(opened.biases[0], plain.biases[0][:3]) or opened.biases[0].shape == (3, 3, 1)
    assert (lesson.random_starts(3, seed=7, bias=1).biases[0] == 1).all()
    assert lesson.random_starts(3, seed=7, leak=0.2, output_leak=1).leaks == (0.2, 0.2, 0.2, 1.0)


def test_what_runs_away_has_an_infinite_loss():
    ended = lesson.train(lesson.random_starts(5, seed=8, leak=1.0), step_size=10.0, steps=60)
    assert torch.isinf(ended.losses()).all()


def test_shut_outputs_are_counted():
    starts = lesson.random_starts(50, seed=9)
    for k in range(50):
        layers = tuple(
            Layer(w[k], b[k].flatten()) for w, b in zip(starts.weights, starts.biases, strict=True)
        )
        sums = forward(layers, lesson.EXAMPLES).sums[3]
        assert starts.shut_outputs()[k] == (sums <= 0).all(1).sum()


def test_the_stored_step_sizes_are_the_best_and_inside_the_grid():
    settings = origin("random_starts")["settings"]
    for arm in lesson.ARMS:
        counts = measured("random_starts", f"{arm}, by rate")
        rates = settings["adam_rates" if "Adam" in arm else "rates"]
        place = rates.index(measured("random_starts", f"{arm}, best rate"))
        assert counts[place] == max(counts)
        assert 0 < place < len(rates) - 1 or max(counts) == 0


def test_the_stored_run_says_what_the_page_says():
    assert max(lesson.learned("as on the worksheet")) <= 4
    assert max(lesson.learned("Adam")) <= 4
    assert min(lesson.learned("slope 0.1 below 0, Adam")) >= 95
    assert lesson.learned("no gates") == [100] * 5
    assert max(lesson.learned("output biases start at 1") + lesson.learned("no gate at the output")) < 20
    assert sum(lesson.learned("all biases start at 1")) > 250
    assert min(measured("random_starts", "as on the worksheet, an output shut at the start")) >= 90
    assert min(measured("random_starts", "as on the worksheet, an output shut at the end")) > 50
    losses = np.array(measured("random_starts", "as on the worksheet, losses"))
    assert len(losses) == 500
    gaps = np.abs(losses[:, None] - np.array(lesson.stuck_levels())).min(1)
    assert (gaps <= 0.01).mean() > 0.4
    both = np.array(lesson.stuck_levels() + lesson.levels_of_one_direction())
    assert (np.abs(losses[:, None] - both).min(1) <= 0.05).mean() > 0.7
    only_errors = lesson.learned("slope 0.1 backward only, Adam")
    assert 35 <= min(only_errors) <= max(only_errors) <= 65
    assert max(measured("random_starts", "He's starts, by rate")) == 0


def test_plain_and_weighted_runs_descend_their_own_loss():
    """One step of each: autograd of that penalty gives the same weights."""
    for weighted in (True, False):
        leaves = [t.clone().requires_grad_() for y in lesson.SPARSE for t in (y.weight, y.bias)]
        we, be, wd, bd = leaves
        features = (we @ lesson.TOKENS + be[:, None]).relu()
        difference = wd @ features + bd[:, None] - lesson.TOKENS
        sizes = wd.norm(dim=0)[:, None] if weighted else 1
        (difference.square().sum() + (features * sizes).sum()).backward()
        we, be, wd, bd = (leaf.detach() - 0.002 * leaf.grad for leaf in leaves)
        features = (we @ lesson.TOKENS + be[:, None]).relu()
        run = lesson.sparse_run(l1=1, steps=1, weighted=weighted)
        assert run["features"][1] == pytest.approx(float(features.sum()), rel=1e-12)
        assert run["norm"][1] == pytest.approx(float(wd.norm(dim=0).mean()), rel=1e-12)


# The explorer

EXPLORER = lesson.NetworkExplorer()


def test_the_explorer_shows_the_worksheet():
    passed = forward(lesson.AUTOENCODER, lesson.EXAMPLES)
    found = backward(lesson.AUTOENCODER, passed, lesson.EXAMPLES)
    for n in range(4):
        state = EXPLORER.compute(example=n + 1, layer=2, row=2, column=1, errors=True, steps="0")
        assert [float(v) for v in state["values"]] == [float(v) for t in passed.values for v in t[:, n]]
        assert [float(v) for v in state["errors"]] == [float(v) for t in found.errors for v in t[:, n]]
        assert len(state["off"][0]) == sum(int((t[:, n] <= 0).sum()) for t in passed.sums)
        assert state["products"] == [0, -40, 6, 0]
        assert state["gradient"] == -34


def test_hidden_errors_are_nowhere():
    state = EXPLORER.compute(example=2, layer=4, row=3, column=1, errors=False, steps="0")
    assert set(state["errors"]) == {""}
    assert [height for *_, height in state["parts"]] == [0] * 4
    assert "gradient" not in EXPLORER.words(state)


@pytest.mark.parametrize("steps", ["0", "2", "100", "4000"])
@pytest.mark.parametrize(("layer", "row", "column"), [(1, 4, 4), (2, 3, 4), (3, 1, 3), (4, 4, 4)])
def test_the_words_name_the_weight_that_is_drawn(steps, layer, row, column):
    state = EXPLORER.compute(example=3, layer=layer, row=row, column=column, errors=True, steps=steps)
    _, _, _, i, j, *_ = state["where"]
    layers = lesson.trained(int(steps))
    assert state["weight"] == float(layers[layer - 1].weight[i - 1, j - 1])
    assert sum(state["products"]) == pytest.approx(state["gradient"], abs=1e-12)
    assert ("You asked for" in EXPLORER.words(state)) == ((i, j) != (row, column))


def test_output_3_is_on_after_two_steps():
    sums = [
        EXPLORER.compute(example=2, layer=4, row=3, column=1, errors=False, steps=t)["sum"]
        for t in ("0", "1", "2")
    ]
    assert sums[0] == -1
    assert sums[1] < 0 < sums[2]
