"""What the worksheets, curves and the explorer of lesson 25 show."""

import numpy as np
import pytest
import torch
from matplotlib.patches import Rectangle

from course_lib.lessons import autoencoders_by_hand as lesson
from course_lib.sae.by_hand import backward, forward, sparse_backward, sparse_loss
from course_lib.teaching.style import text_alternative
from tests.drawing import assert_labels, assert_legend, assert_line, line_labelled


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


def test_the_blank_worksheet_gives_nothing_away():
    figure = lesson.plot_worksheet(until="nothing")
    found = cells(figure)
    assert found.count("?") == 48
    given = [float(text) for text in found if text != "?"]
    assert given == numbers(lesson.EXAMPLES, *map(joined, lesson.AUTOENCODER))
    assert shaded(figure) == 0
    assert "question marks" in text_alternative(figure)


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
    assert shaded(figure) == 2 * off == 24
    assert shaded(lesson.plot_worksheet(until="forward")) == off


def test_no_number_of_the_sheets_is_rounded_away():
    for figure in (lesson.plot_worksheet(), lesson.plot_sparse_worksheet()):
        assert all(len(text) <= 4 for text in cells(figure))


def test_the_sparse_worksheet_holds_one_step():
    passed = forward(lesson.SPARSE, lesson.TOKENS)
    back = sparse_backward(lesson.SPARSE, passed, lesson.TOKENS, l1=1)
    loss = sparse_loss(lesson.SPARSE, passed, lesson.TOKENS, l1=1)
    expected = [
        lesson.TOKENS,
        joined(lesson.ENCODER),
        passed.values[1],
        back.errors[0],
        joined(back.weights[0], back.biases[0]),
        joined(lesson.DECODER),
        loss.column_norms,
        passed.output,
        back.errors[1],
        joined(back.weights[1], back.biases[1]),
    ]
    figure = lesson.plot_sparse_worksheet(l1=1)
    assert [float(text) for text in cells(figure)] == pytest.approx(numbers(*expected), abs=1e-12)
    assert "column norms" in titles(figure)
    assert shaded(figure) == 2 * int((passed.sums[0] <= 0).sum())


def test_losses_start_as_on_paper_and_fall():
    left, right = lesson.plot_losses(steps=50).axes
    for step_size in (0.0005, 0.002, 0.02):
        losses = line_labelled(left, f"$\\eta$ = {step_size:g}").get_ydata()
        assert losses[0] == 30
        assert (losses[-1] < 30) == (step_size < 0.02)
    total = np.asarray(line_labelled(right, "total, $\\lambda$ = 1").get_ydata())
    parts = [np.asarray(line_labelled(right, name).get_ydata()) for name in ("reconstruction", "sparsity")]
    np.testing.assert_allclose(total, sum(parts), rtol=1e-12)
    assert (total[0], parts[0][0], parts[1][0]) == (210, 178, 32)
    assert (np.diff(total) < 0).all()


def test_a_unit_that_is_off_stays_where_it_is():
    axes = lesson.plot_dead_unit().axes[0]
    assert_legend(axes, ["final ReLU, from -1", "final ReLU, from 0.3", "no final ReLU, from -1"])
    t = np.arange(41)
    assert_line(line_labelled(axes, "final ReLU, from -1"), t, -np.ones(41))
    # z - 1 is multiplied by 1 - 2 * 0.1 in every step.
    assert_line(line_labelled(axes, "final ReLU, from 0.3"), t, 1 - 0.7 * 0.8**t)
    assert_line(line_labelled(axes, "no final ReLU, from -1"), t, 1 - 2 * 0.8**t)


def test_the_plain_penalty_shrinks_features_and_grows_columns():
    features, decoder, written = lesson.plot_loophole(steps=400).axes
    assert_labels(features, x="steps plus 1", y="sum of the features", title="Features")
    plain, weighted = (
        [np.asarray(line.get_ydata()) for line in (axes.lines[0], axes.lines[1])]
        for axes in (features, decoder)
    )
    assert plain[0][0] == plain[1][0] == 21
    assert plain[0][-1] < plain[1][-1] / 2
    assert weighted[0][-1] > weighted[0][0] > weighted[1][-1]
    assert written.lines[0].get_ydata()[0] == 32


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

EXPLORER = lesson.FeatureExplorer()


@pytest.mark.parametrize("feature", range(1, 7))
@pytest.mark.parametrize("first", [-3.0, -1.0, 0.25, 1.0, 3.0])
@pytest.mark.parametrize("l1", [0.0, 0.7, 4.0])
def test_the_explorer_shows_loss_and_gradient_of_the_network(feature, first, l1):
    state = EXPLORER.compute(l1=l1, first=first, feature=feature)
    assert state["loss"][2] == pytest.approx(state["loss"][0] + l1 * state["loss"][1], abs=1e-12)
    values, total = EXPLORER.values, state["error"] + state["penalty"]
    now, lowest = state["now"], state["lowest"]
    # The curve holds the present point, is nowhere below the lowest one, and has the slope that the words say.
    assert np.interp(now[0], values, total) == pytest.approx(now[1], abs=1e-2)
    assert lowest[1] <= total.min() + 1e-12
    others = (
        state["loss"][0] - now[1] + l1 * now[0] * float(lesson.GENTLE_DECODER.weight[:, feature - 1].norm())
    )
    assert others == pytest.approx(0, abs=1e-12)
    if state["sum"] > 0:
        slope = np.polynomial.Polynomial.fit(values, total, 2).deriv()(now[0])
        assert slope == pytest.approx(sum(state["parts"]), abs=1e-9)
        end = "leaves" if abs(slope) < 1e-9 else "lowers" if slope > 0 else "raises"
        assert f"descent {end} it" in EXPLORER.words(state)
    else:
        assert "the ReLU passes no gradient" in EXPLORER.words(state)
    assert 0 <= now[0] <= 5
    assert 0 <= now[1] <= 22
    assert 0 <= lowest[0] <= 5


def test_the_penalty_turns_the_default_feature_round_at_two():
    words = [EXPLORER.words(EXPLORER.compute(l1=v, first=-1.0, feature=2)) for v in (1.9, 2.0, 2.1)]
    assert ["raises" in words[0], "leaves" in words[1], "lowers" in words[2]] == [True] * 3


def test_the_explorer_moves_bars_points_and_curves():
    EXPLORER.frame(l1=1.0, first=1.0, feature=6)
    heights = [bar.get_height() for bar in EXPLORER.artists["bars"]]
    assert heights == [1, 2, 0, 2, 1, 2]
    assert list(EXPLORER.artists["x"].get_ydata()) == [1, 2, -1]
    assert list(EXPLORER.artists["output"].get_ydata()) == [1.5, 2, -0.5]
