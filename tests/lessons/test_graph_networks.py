"""What the curves and pictures of lesson 10 are, and what its explorer says."""

from itertools import pairwise

import numpy as np
import pytest
import torch

from course_lib.architectures.graphs import adjacency_matrix, simple_path_counts
from course_lib.lessons import graph_networks as lesson
from tests.drawing import line_labelled


def bridge():
    return adjacency_matrix(lesson.BRIDGE, n_nodes=8).double()


def state_of(**settings):
    defaults = {name: control.default for name, control in lesson.WalkExplorer.controls.items()}
    return lesson.WalkExplorer.compute(None, **{**defaults, **settings})


def test_the_explorer_holds_powers_of_each_form():
    a, eye = bridge(), torch.eye(8, dtype=torch.float64)
    loops = a + eye
    gcn = loops / loops.sum(1).sqrt() / loops.sum(1).sqrt()[:, None]
    layers = {"sum": a, "mean": a / a.sum(1)[:, None], "GCN": gcn, "GCN + residual": (eye + gcn) / 2}
    for form, layer in layers.items():
        for depth, node in ((0, 3), (4, 5), (10, 8)):
            held = state_of(form=form, depth=depth, node=node)["held"]
            wanted = torch.linalg.matrix_power(layer, depth)[:, node - 1]
            np.testing.assert_allclose(held, wanted, rtol=1e-10, atol=1e-14)
    x = eye[:, 1]
    for _ in range(3):
        x = 0.8 * gcn @ x + 0.2 * eye[:, 1]
    np.testing.assert_allclose(state_of(form="GCN + start", depth=3, node=2)["held"], x, rtol=1e-12)


def test_the_angles_are_those_to_what_a_layer_leaves_unchanged():
    for form in lesson.FORMS[:4]:
        layer = lesson.layer_matrix(form, lesson.BRIDGE, 8)
        pattern = lesson.limit_pattern(form, lesson.BRIDGE, 8)
        stretched = layer @ pattern
        torch.testing.assert_close(stretched, pattern * (stretched @ pattern))
        state = state_of(form=form, depth=10, node=8)
        cosine = float(pattern @ torch.tensor(state["held"]) / np.linalg.norm(state["held"]))
        assert state["angles"][1] == pytest.approx(np.degrees(np.arccos(cosine)), rel=1e-9)
        assert state["angles"][1] < state["angles"][0]


def test_the_words_and_the_places_that_the_notebook_names():
    explorer = lesson.WalkExplorer()
    assert explorer.frame(depth=2)[1].startswith(
        "3 walks of 2 edges from node 1 to node 1, the largest number."
    )
    assert explorer.frame(depth=1)[1].startswith(
        "1 walk of 1 edge from node 1 to node 2, the largest number."
    )
    assert "of the 1 at node 1, the most is at node 1, 0.237" in explorer.frame(depth=2, form="GCN")[1]
    far = state_of(form="sum", node=8, depth=10)
    assert far["held"][:3].min() == far["held"].max() > far["held"][3:].max()
    assert state_of(depth=2)["held"][3] == 2  # the walks 1-2-4 and 1-3-4
    plain, residual, start = (state_of(form=f, depth=10)["angles"][1] for f in lesson.FORMS[2:])
    assert plain < residual < start


def test_the_rest_falls_by_the_second_eigenvalue():
    axes = lesson.plot_depth().axes[0]
    second = float(torch.linalg.eigvalsh(lesson.gcn_matrix(lesson.BRIDGE, 8))[-2])
    for form, rate in (("GCN", second), ("GCN + residual", (1 + second) / 2)):
        ratio = line_labelled(axes, form).get_ydata()
        assert ratio[80] / ratio[60] == pytest.approx(rate**20, rel=2e-3)
    kept = line_labelled(axes, "GCN + start").get_ydata()
    assert kept[80] == pytest.approx(kept[40], rel=1e-3)
    assert kept[80] > 0.9


def test_the_triangle_has_the_walks_that_are_drawn_and_no_path():
    a = adjacency_matrix(lesson.TRIANGLE, n_nodes=3)
    titles = [axes.get_title() for axes in lesson.plot_walks().axes]
    for title in titles:
        walk = [int(part) - 1 for part in title.split(" - ")]
        assert (walk[0], walk[-1]) == (0, 1)
        assert all(a[i, j] == 1 for i, j in pairwise(walk))
    assert len(set(titles)) == 3 == (a @ a @ a)[0, 1]
    assert simple_path_counts(lesson.TRIANGLE, 3, n_nodes=3)[0][1] == 0


def test_the_colours_of_the_twins():
    for axes, wanted in zip(lesson.plot_twins().axes, (1, 1, 4, 3), strict=True):
        assert len({text.get_text() for text in axes.texts}) == wanted


def test_the_product_of_the_picture():
    axes = lesson.plot_product().axes
    column = lambda one: [float(t.get_text()) for t in one.texts]  # noqa: E731
    a = adjacency_matrix(lesson.FLOW, n_nodes=4)
    assert column(axes[3]) == (a.T @ torch.tensor(column(axes[2]))).tolist() == [0, 5, 9, 7]
