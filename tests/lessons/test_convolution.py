"""What lesson 10 trains, counts and draws: the corners, the ways through a stride, and what the stencil connects."""

import numpy as np
import pytest
import torch

from benchmarks import corners as long_run
from benchmarks import shifted_corners as second_run
from course_lib.lessons import convolution as lesson
from course_lib.measured import figures, measured
from tests.drawing import line_labelled


def state_of(**settings):
    defaults = {name: control.default for name, control in lesson.StencilExplorer.controls.items()}
    return lesson.StencilExplorer.compute(None, **{**defaults, **settings})


def test_the_explorer_connects_what_autograd_connects():
    for stride, padding, dilation in ((1, 1, 1), (2, 0, 1), (3, 2, 2), (1, 2, 2)):
        layer = {"stride": stride, "padding": padding, "dilation": dilation}
        x = torch.ones(1, 1, 8, 8, requires_grad=True)
        w = torch.arange(1.0, 10.0).view(1, 1, 3, 3).requires_grad_()
        y = torch.nn.functional.conv2d(x, w, **layer)[0, 0]
        for i, j in ((1, 1), (2, 3), (8, 8)):
            state = state_of(target="an output", row=i, col=j, **layer)
            p, q = state["here"]
            (dx,) = torch.autograd.grad(y[p - 1, q - 1], x, retain_graph=True)
            assert 9 - state["outside"] == int((dx != 0).sum())
            # The letters that an input pixel shows are the weights with which outputs answer to it.
            state = state_of(target="an input pixel", row=i, col=j, **layer)
            answers = torch.stack([torch.autograd.grad(v, x, retain_graph=True)[0] for v in y.flatten()])
            answers = answers[:, 0, 0, i - 1, j - 1]
            assert sorted(state["names"]) == sorted("abcdefghi"[int(a) - 1] for a in answers[answers != 0])
            assert state["count"] == int((answers != 0).sum())
            k = (min(i, 3) - 1, min(j, 3) - 1)
            state = state_of(target="a weight", row=i, col=j, **layer)
            (dw,) = torch.autograd.grad(y.sum(), w, retain_graph=True)
            assert state["count"] == y.numel()
            assert state["count"] - state["outside"] == int(dw[0, 0, k[0], k[1]])


def test_the_words_of_the_three_targets():
    explorer = lesson.StencilExplorer()
    assert "Output (1, 3) is the sum of 9 products, 3 of them" in explorer.frame(row=1)[1]
    said = explorer.frame(target="an input pixel", row=4)[1]
    assert "through i, h, g, f, e, d, c, b, a: the kernel backwards" in said
    assert (
        "Weight f is used by all 64 outputs, 8 times on padding"
        in explorer.frame(target="a weight", row=2)[1]
    )
    # The places that the notebook names.
    for row, col, count in ((4, 4, "4 outputs"), (4, 3, "2 outputs"), (3, 3, "1 output,")):
        assert f"is read by {count}" in explorer.frame(target="an input pixel", row=row, col=col, stride=2)[1]
    # Two outputs at distance 3 without padding read six pixels and the last two not at all.
    unread = explorer.frame(target="an input pixel", row=8, col=8, stride=3, padding=0)[1]
    assert unread.startswith("No output reads the input pixel (8, 8): its gradient is 0.")


def test_the_energy_of_a_gradient():
    energy = lesson.gradient_energy(4, nets=2)
    assert energy.shape == (9, 9)
    assert float(energy.sum()) == pytest.approx(1)
    assert lesson.share_within(energy, 4) == pytest.approx(1)
    even = torch.full((9, 9), 1 / 81, dtype=torch.float64)
    assert lesson.width_of(even) == pytest.approx((80 / 12) ** 0.5)
    assert lesson.share_within(even, 1) == pytest.approx(9 / 81)
    assert lesson.width_of(energy) < 0.8 * lesson.width_of(even)


# The corners


@pytest.mark.parametrize("half", ["left", "right"])
def test_a_corner_lies_in_its_half_and_nowhere_else(half):
    images, labels = lesson.draw_images(300, half=half, generator=torch.Generator().manual_seed(1))
    noise = torch.randn(300, 1, 16, 16, generator=torch.Generator().manual_seed(1), dtype=torch.float32)
    added = (images - noise)[:, 0]
    inside = added[:, :, :8] if half == "left" else added[:, :, 8:]
    assert added.sum((1, 2)).numpy() == pytest.approx(np.full(300, 18), abs=1e-3)
    assert inside.sum((1, 2)).numpy() == pytest.approx(np.full(300, 18), abs=1e-3)
    for image, label in zip(added, labels, strict=True):
        rows, columns = (image > 1).nonzero().T
        box = image[rows.min() : rows.max() + 1, columns.min() : columns.max() + 1]
        torch.testing.assert_close(box, lesson.corner(int(label)), atol=1e-5, rtol=0)
    assert 100 < int(labels.sum()) < 200


def test_a_half_and_a_network_have_names():
    with pytest.raises(ValueError, match='half must be "left" or "right", got \'top\''):
        lesson.draw_images(1, half="top", generator=torch.Generator())
    with pytest.raises(
        ValueError, match=r"name must be one of dense, convolution, dense readout.*, got 'other'"
    ):
        lesson.train("other", *lesson.data(0)["train"], rate=0.01, seed=0)


def test_own_filters_that_are_alike_are_a_convolution():
    layer = lesson.OwnFilters()
    shared = layer.weight[:, :, :1].detach().clone()
    with torch.no_grad():
        layer.weight.copy_(shared.expand_as(layer.weight))
        layer.bias.zero_()
    images = lesson.data(0)["left"][0][:4]
    wanted = torch.nn.functional.conv2d(images, shared.view(8, 1, 5, 5))
    torch.testing.assert_close(layer(images), wanted, atol=1e-5, rtol=0)


def test_what_is_read_of_a_map():
    maps = torch.arange(12.0, dtype=torch.float32).view(1, 3, 2, 2)
    assert lesson.OverPlaces("max")(maps).tolist() == [[3, 7, 11]]
    assert lesson.OverPlaces("mean")(maps).tolist() == [[1.5, 5.5, 9.5]]


def test_the_weights_of_the_networks():
    counts = [
        lesson.weights(name) for name in (lesson.DENSE, lesson.CONV, lesson.MAX, lesson.MEAN, lesson.OWN)
    ]
    assert counts == [16578, 2514, 226, 226, 29970]


def test_each_image_is_shifted_by_its_own_number_of_columns():
    images = lesson.data(0)["left"][0][:3]
    found = lesson.shift_columns(images, torch.tensor([0, 5, 15]))
    for image, one, steps in zip(images, found, (0, 5, 15), strict=True):
        assert torch.equal(one, image.roll(steps, -1))


def test_training_lowers_the_loss_is_repeatable_and_leaves_the_global_seed():
    images, labels = (part[:200] for part in lesson.data(0)["train"])
    before = torch.random.get_rng_state()
    one, two = (lesson.train(lesson.MAX, images, labels, rate=0.01, seed=3, epochs=30) for _ in range(2))
    assert torch.equal(before, torch.random.get_rng_state())
    assert torch.equal(one(images), two(images))
    assert lesson.accuracy(one, images, labels) > 0.8
    shifted = lesson.train(lesson.MAX, images, labels, rate=0.01, seed=3, epochs=1, shifts=16)
    assert not torch.equal(
        shifted(images), lesson.train(lesson.MAX, images, labels, rate=0.01, seed=3, epochs=1)(images)
    )


def test_the_stored_run_is_that_of_the_code_and_no_best_step_size_lies_at_an_end():
    stored = figures("corners")
    assert list(stored) == list(long_run.ARMS)
    for name, one in stored.items():
        assert not one["at an end of the grid"], name
        assert len(one["left"]) == len(one["right"]) == len(long_run.SEEDS)
    for name in (lesson.DENSE, lesson.MAX):
        one = measured("corners", name)
        again = lesson.train(name, *lesson.data(1)["train"], rate=one["step size"], seed=1)
        for half in ("left", "right"):
            assert lesson.accuracy(again, *lesson.data(1)[half]) == pytest.approx(one[half][1], abs=0.04)


def test_the_second_run_is_that_of_the_code_too():
    stored = figures("shifted_corners")
    assert list(stored) == list(second_run.ARMS)
    assert not any(one["at an end of the grid"] for one in stored.values())
    # At these step sizes the rounding of a processor may decide a single run, so means over the seeds are compared.
    for name in (f"{lesson.MEAN}, shifted by 0 to 8", lesson.JOINED):
        found = []
        for place in range(len(stored[name]["right"])):
            again = lesson.train(
                **{k: v for k, v in second_run.ARMS[name].items() if k != "rates"},
                rate=stored[name]["step size"],
                seed=place,
                **dict(zip(("images", "labels"), lesson.data(place)["train"], strict=True)),
            )
            found.append(lesson.accuracy(again, *lesson.data(place)["right"]))
        assert np.mean(found) == pytest.approx(np.mean(stored[name]["right"]), abs=0.08)


def test_a_shift_by_at_most_eight_cuts_no_corner():
    added = torch.zeros(8, 1, 16, 16, dtype=torch.float32)
    for column in range(4):
        added[2 * column, 0, 3:8, column : column + 5] = lesson.corner(0)
        added[2 * column + 1, 0, 3:8, column : column + 5] = lesson.corner(1)
    for steps in range(lesson.WHOLE):
        moved = lesson.shift_columns(added, torch.full((8,), steps))
        assert torch.equal(moved[..., steps:], added[..., : 16 - steps])
        assert float(moved[..., :steps].sum()) == 0
    torn = lesson.shift_columns(added, torch.full((8,), lesson.WHOLE))
    assert float(torn[..., : lesson.WHOLE].sum()) > 0


def test_joined_after_training_has_the_weights_of_the_trained_network():
    joined, trained = lesson.edges_joined(), lesson.network(lesson.MEAN)
    assert all(torch.equal(a, b) for a, b in zip(joined.parameters(), trained.parameters(), strict=True))
    images = lesson.data(0)["left"][0][:5]
    inner = joined[0](images)[:, :, 2:-2, 2:-2]  # places whose filter lies inside the image
    torch.testing.assert_close(inner, trained[0](images), atol=1e-5, rtol=0)


def test_the_dots_are_the_stored_accuracies():
    axes = lesson.plot_closing().axes[0]
    rows = [line for line in axes.lines if len(line.get_xdata()) == len(long_run.SEEDS)]
    assert len(rows) == 2 * len(lesson.ARMS)
    for number, arm in enumerate(lesson.ARMS):
        for line, half in zip(rows[2 * number : 2 * number + 2], ("left", "right"), strict=True):
            assert list(line.get_xdata()) == lesson.found_of(arm)[half]
    assert line_labelled(axes, "guessing") is not None


def test_the_map_moves_with_the_corner_and_at_stride_two_with_every_second_step():
    explorer = lesson.CornerExplorer()
    settings = {**explorer.settings, "noise": False}

    def maps(stride, column):
        image = torch.zeros(1, 1, 16, 16, dtype=torch.float32)
        image[0, 0, 3:8, column - 1 : column + 4] = lesson.corner(0)
        return lesson.CornerExplorer.maps(image, stride)

    for stride, steps in ((1, 1), (2, 2)):
        one, two = maps(stride, 5), maps(stride, 5 + steps)
        torch.testing.assert_close(one[:, :, 1:-2], two[:, :, 2:-1], atol=1e-5, rtol=0)
    assert (maps(2, 5)[:, :, 1:-2] - maps(2, 6)[:, :, 1:-2]).abs().max() > 0.1
    assert (maps(2, 5)[:, :, 1:-2] - maps(2, 6)[:, :, 2:-1]).abs().max() > 0.1
    peaks = [explorer.compute(**{**settings, "column": column})["peak"] for column in (3, 8)]
    assert peaks[0][0] == pytest.approx(peaks[1][0], abs=1e-4)
    assert (peaks[0][1], peaks[0][2] + 5) == peaks[1][1:]


def test_the_third_network_is_asked_only_on_request():
    explorer = lesson.CornerExplorer()
    assert "largest value of each map:" not in explorer.frame()[1]
    assert (
        "With the largest value of each map: opens to the upper left"
        in explorer.frame(largest=True, column=10)[1]
    )


def test_the_explorer_counts_the_corners_that_are_named():
    explorer = lesson.CornerExplorer()
    counts = {"left": 0, "right": 0}
    for half, columns in (("left", range(1, 5)), ("right", range(9, 13))):
        for shape in lesson.OPENS:
            for row in range(1, 13):
                for column in columns:
                    settings = {**explorer.settings, "shape": shape, "row": row, "column": column}
                    counts[half] += explorer.compute(**settings)["answers"][1].startswith(shape)
    assert counts == {half: lesson.named_in(half, noise=False)[lesson.CONV] for half in counts}
    # What the stored picture shows: right on the left, and wrong at the last column.
    assert "Convolution, dense readout: opens to the upper left" in explorer.frame(column=3)[1]
    said = explorer.frame(column=12, row=2, stride=2)[1]
    assert "Networks at stride 1: dense" in said
    assert "Convolution, dense readout: opens to the lower right" in said
    assert "rightly" not in explorer.frame(column=6)[1]


def test_where_edges_meet_the_mean_does_not_depend_on_the_place():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        joined, cut = (lesson.NETWORKS[name]() for name in (lesson.JOINED, lesson.MEAN))
    images = lesson.data(0)["left"][0][:20]
    moved = images.roll((3, 8), (2, 3))
    torch.testing.assert_close(joined(images), joined(moved), atol=1e-5, rtol=0)
    assert (cut(images) - cut(moved)).abs().max() > 1e-3


def test_the_share_on_the_corner_counts_its_pixels_alone():
    images, boxes = lesson.placed_corners(6)
    shares = []
    for image, (row, column) in zip(images, boxes.tolist(), strict=True):
        x = image[None].clone().requires_grad_()
        scores = lesson.network(lesson.MEAN)(x)[0]
        (gradient,) = torch.autograd.grad(scores[0] - scores[1], x)
        squared = gradient[0, 0] ** 2
        box = sum(float(squared[row + i, column + j]) for i in range(5) for j in range(5))
        shares.append(box / float(squared.sum()))
    assert lesson.share_on_corner(lesson.MEAN, images, boxes) == pytest.approx(np.mean(shares), rel=1e-4)


# The ways through a stride


@pytest.mark.parametrize(("depth", "kernel", "stride"), [(1, 3, 2), (3, 3, 2), (2, 5, 3), (2, 4, 2)])
def test_ways_are_the_gradient_of_a_chain_of_ones(depth, kernel, stride):
    ways = lesson.reads(depth, kernel=kernel, stride=stride)
    x = torch.zeros(1, 1, len(ways), dtype=torch.float64, requires_grad=True)
    y = x
    for _ in range(depth):
        y = torch.nn.functional.conv1d(y, torch.ones(1, 1, kernel, dtype=torch.float64), stride=stride)
    assert y.shape[-1] == 8
    assert torch.equal(torch.autograd.grad(y.sum(), x)[0][0, 0], ways)


def test_favourites_of_kernels_of_three_at_stride_two():
    largest = [int(lesson.one_period(depth).max()) for depth in range(1, 6)]
    assert largest == [2, 3, 5, 8, 13]
    assert all(lesson.one_period(depth).min() == 1 for depth in range(1, 6))
    assert lesson.one_period(3, kernel=4).unique().tolist() == [8]


@pytest.mark.parametrize("relu", [False, True])
def test_squared_gradients_are_products_of_ways(relu):
    ways = lesson.one_period(2)
    found = lesson.squared_gradients(2, nets=150, relu=relu)
    wanted = ways[:, None] * ways
    start = max(range(4), key=lambda n: float((found.roll((n, n), (0, 1)) * wanted).sum()))
    assert found.roll((start, start), (0, 1)).numpy() == pytest.approx(
        (wanted / wanted.min()).numpy(), rel=0.35
    )
    assert float(lesson.squared_gradients(2, kernel=4, nets=150, relu=relu).max()) < 1.3


def test_the_matrix_and_its_transpose_hold_the_letters_of_the_kernel():
    pixels, outputs = 9, 7
    kernel = {"a": 1.0, "b": 2.0, "c": 3.0}
    matrix, transpose = torch.zeros(outputs, pixels), torch.zeros(pixels, outputs)
    for figure, drawn in ((lesson.plot_matrix(), matrix), (lesson.plot_transpose(), transpose)):
        for text in figure.axes[0].texts:
            column, row = (round(v) - 1 for v in text.get_position())
            drawn[row, column] = kernel[text.get_text()]
    drawn = torch.zeros(16, 36)
    for text in lesson.plot_matrix().axes[1].texts:
        column, row = (round(v) - 1 for v in text.get_position())
        drawn[row, column] = 1 + "abcdefghi".index(text.get_text())
    each = torch.eye(36).view(36, 1, 6, 6)
    assert torch.equal(
        drawn, torch.nn.functional.conv2d(each, torch.arange(1.0, 10).view(1, 1, 3, 3)).flatten(1).T
    )
    x = torch.arange(1.0, 10.0)
    wanted = torch.nn.functional.conv1d(x[None, None], torch.tensor([[[1.0, 2.0, 3.0]]]))[0, 0]
    torch.testing.assert_close((matrix.double() @ x.double()), wanted.double())
    assert torch.equal(transpose, matrix.T)
