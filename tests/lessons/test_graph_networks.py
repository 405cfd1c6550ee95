"""What the curves and pictures of lesson 13 are, what its networks compute, and what its explorer says."""

from itertools import pairwise

import numpy as np
import pytest
import torch

from course_lib.architectures.graphs import adjacency_matrix, gcn_graph, refine_colours, simple_path_counts
from course_lib.lessons import graph_networks as lesson
from course_lib.lessons.graph_networks import communities
from tests.drawing import line_labelled


def state_of(**settings):
    defaults = {name: control.default for name, control in lesson.GraphExplorer.controls.items()}
    return lesson.GraphExplorer.compute(None, **{**defaults, **settings})


def test_a_draw_is_two_communities_of_100_with_ten_labels_each():
    inside, across = [], []
    for seed in lesson.DRAWS:
        graph = lesson.draw(seed)
        a, side = graph.adjacency, graph.community
        assert torch.equal(a, a.T)
        assert float(a.diagonal().sum()) == 0
        assert side[graph.labelled].sum() == 0
        assert len(graph.labelled) == 20 == 200 - len(graph.hidden)
        assert not set(graph.labelled.tolist()) & set(graph.hidden.tolist())
        inside.append(float(a[:100, :100].mean()))
        across.append(float(a[:100, 100:].mean()))
        assert float(graph.degrees.min()) > 1  # nobody is alone
    assert np.mean(inside) == pytest.approx(0.08 * 0.99, abs=0.004)
    assert np.mean(across) == pytest.approx(0.02, abs=0.002)


def test_the_layer_is_that_of_the_library():
    graph = lesson.draw(1)
    edges = graph.adjacency.nonzero().T
    wanted = gcn_graph(edges, n_nodes=200, dtype=torch.float64).push.to_dense()
    torch.testing.assert_close(graph.layer(), wanted)
    torch.testing.assert_close(wanted @ graph.common(), graph.common())


def test_forms_are_powers_and_removing_commutes_with_the_layer():
    graph, eye = lesson.draw(2), torch.eye(200, dtype=torch.float64)
    layer, x = graph.layer(), graph.features
    power = torch.linalg.matrix_power
    torch.testing.assert_close(lesson.through(graph, 5), power(layer, 5) @ x)
    torch.testing.assert_close(lesson.through(graph, 5, lesson.HALF), power((eye + layer) / 2, 5) @ x)
    limit = lesson.START * torch.linalg.solve(eye - (1 - lesson.START) * layer, x)
    torch.testing.assert_close(lesson.through(graph, 200, lesson.ADDED), limit)
    at_end = lesson.blown_up(lesson.without(lesson.through(graph, 20), graph.common()))
    torch.testing.assert_close(lesson.through(graph, 20, remove="common"), at_end, rtol=1e-6, atol=1e-6)


def test_the_classifier_minimises_the_ridge_loss():
    graph, penalty = lesson.draw(0), 0.3
    x = lesson.through(graph, 2)
    known = graph.labelled
    rows = torch.cat([x, torch.ones(200, 1, dtype=x.dtype)], dim=1)
    weights = torch.diag(torch.tensor([penalty] * 16 + [0.0], dtype=x.dtype))
    solved = torch.linalg.solve(rows[known].T @ rows[known] + weights, rows[known].T @ graph.community[known])
    torch.testing.assert_close(lesson.guesses(x, graph, penalty=penalty), rows @ solved)
    right = ((rows @ solved > 0) == (graph.community > 0))[graph.hidden]
    assert lesson.accuracy(x, graph, penalty=penalty) == pytest.approx(float(right.double().mean()))


def test_the_explorer_holds_powers_of_each_form():
    graph, eye = lesson.draw(0), torch.eye(200, dtype=torch.float64)
    layers = {lesson.SUM: graph.adjacency, lesson.GCN: graph.layer(), lesson.HALF: (eye + graph.layer()) / 2}
    for form, layer in layers.items():
        for depth, node in ((0, 3), (4, 150)):
            wanted = torch.linalg.matrix_power(layer, depth)[:, node - 1]
            torch.testing.assert_close(lesson.from_one_node(form, node, depth), wanted)


def test_the_answers_to_the_explorers_tasks():
    root = lesson.draw(0).degrees.sqrt().numpy()
    for node in (1, 150):
        late = state_of(depth=80, node=node)
        shares = np.concatenate([late["first"][1], late["second"][1]])
        np.testing.assert_allclose(shares, root / root.max(), rtol=1e-6)
        rest = state_of(depth=40, node=node, removed=True)
        mine, others = rest["above"] if node == 1 else rest["above"][::-1]
        assert mine > 90 > 10 > others
        added = state_of(depth=80, node=node, form=lesson.ADDED)
        assert added["most"] == node


def test_the_words_name_what_is_shown():
    explorer = lesson.GraphExplorer()
    said = explorer.frame(depth=1, node=7, form=lesson.SUM)[1]
    assert said.startswith("sum, 1 layer from node 7: the largest entry is at node ")
    assert "above 0 are" in explorer.frame(depth=40, removed=True)[1]


def test_the_pictures_of_the_question_show_every_node_once():
    graph = lesson.draw(0)
    for axes in [*lesson.plot_question().axes, *lesson.plot_rest().axes]:
        shown = np.concatenate([line.get_xydata() for line in axes.lines if line.get_label() != "_edges"])
        assert sorted(map(tuple, shown)) == sorted(map(tuple, lesson.DISCS))
    titles = [axes.get_title() for axes in lesson.plot_question().axes]
    for title, depth in zip(titles, (0, 2, 16, 64), strict=True):
        assert title.endswith(f": {lesson.accuracy(lesson.through(graph, depth), graph):.2f} right")


def test_the_rest_ends_along_the_second_eigenvector():
    sizes, first, second = lesson.plot_directions().axes
    graph = lesson.draw(0)
    values = torch.linalg.eigvalsh(graph.layer()).numpy()
    np.testing.assert_allclose(line_labelled(sizes, "8 layers").get_ydata(), np.abs(values**8))
    late = line_labelled(sizes, "32 layers").get_ydata()
    assert late[-1] == pytest.approx(1)
    assert late[-2] > 20 * late[:-2].max()
    shown = [axes.collections[0].get_array() for axes in (first, second)]
    np.testing.assert_allclose(shown[0], graph.common() / graph.common().max())
    assert np.mean((shown[1] > 0) == (graph.community.numpy() > 0)) > 0.93
    assert np.abs(shown[1]).max() == 1


def test_features_of_noise_lose_the_shift_alone_and_end_along_the_same_pattern():
    graph, noise = lesson.draw(3), lesson.draw(3, shift=0.0)
    assert torch.equal(graph.adjacency, noise.adjacency)
    torch.testing.assert_close(
        graph.features - noise.features, 0.2 * graph.community[:, None].expand(200, 16)
    )
    rest = [lesson.without(lesson.through(g, 64), g.common()) for g in (graph, noise)]
    one, other = (x[:, 0] / x[:, 0].norm() for x in rest)
    assert float((one @ other).abs()) > 0.999


def test_what_is_removed_is_gone_and_a_random_direction_is_not_the_common_part():
    graph = lesson.draw(0)
    for name in ("common", "mean", "random"):
        pattern = communities.pattern(graph, name)
        assert float(pattern.norm()) == pytest.approx(1)
        assert float((pattern @ lesson.through(graph, 5, remove=name)).abs().max()) < 1e-9
    torch.testing.assert_close(communities.pattern(graph, "common"), graph.common())
    assert float((communities.pattern(graph, "random") @ graph.common()).abs()) < 0.3


def test_with_the_chances_swapped_the_label_lies_along_the_most_negative_eigenvalue(monkeypatch):
    monkeypatch.setattr(communities, "INSIDE", 0.02)
    monkeypatch.setattr(communities, "ACROSS", 0.08)
    graph = lesson.draw.__wrapped__(0)
    values, vectors = torch.linalg.eigh(graph.layer())
    same = float(((vectors[:, 0] > 0) == (graph.community > 0)).double().mean())
    assert max(same, 1 - same) > 0.9
    assert values[-2] > -values[0] > -values[1] + 0.05
    assert lesson.accuracy(lesson.through(graph, 2), graph) > lesson.accuracy(graph.features, graph) + 0.1


def test_digits_end_in_float32_first_and_never_where_the_common_part_is_removed():
    axes = lesson.plot_digits().axes[0]
    curve = {name: line_labelled(axes, name).get_ydata() for name in lesson.pictures._DIGITS}
    each, double, single = curve.values()
    assert min(each[6:]) > 0.93
    assert min(double[6:11]) > 0.93
    assert 0.6 < double[-1] < 0.8
    assert min(single[6:8]) > 0.93
    assert all(0.6 < value < 0.8 for value in single[8:])


def test_the_triangle_has_the_walks_that_are_drawn_and_no_path():
    a = adjacency_matrix(lesson.TRIANGLE, n_nodes=3)
    titles = [axes.get_title() for axes in lesson.plot_walks().axes]
    for title in titles:
        walk = [int(part) - 1 for part in title.split(" - ")]
        assert (walk[0], walk[-1]) == (0, 1)
        assert all(a[i, j] == 1 for i, j in pairwise(walk))
    assert len(set(titles)) == 3 == (a @ a @ a)[0, 1]
    assert simple_path_counts(lesson.TRIANGLE, 3, n_nodes=3)[0][1] == 0


def test_the_molecules_have_one_list_of_colours_until_an_atom_is_marked():
    for marked, rounds, alike in ((False, None, True), (True, 2, True), (True, 3, False)):
        first, second = lesson.molecules_colours(marked, rounds)
        assert (sorted(first) == sorted(second)) is alike
    for edges, closed in ((lesson.DECALIN, 0), (lesson.BICYCLOPENTYL, 20)):
        a = adjacency_matrix(edges, n_nodes=10)
        assert a.sum() == 22
        assert torch.linalg.matrix_power(a, 5).trace() == closed


def test_one_colour_is_not_one_row_for_gcn():
    path = lesson.undirected((1, 2), (2, 3), (3, 4), (4, 5))
    colours = refine_colours(path, [0] * 5, rounds=1)
    held = gcn_graph(path, n_nodes=5, dtype=torch.float64).pull.to_dense().sum(1)
    assert colours[1] == colours[2]
    assert held[1:3].tolist() == pytest.approx([1.0749, 1.0], abs=1e-4)


def test_a_normalised_network_has_no_common_part_and_size_1():
    x = torch.randn(1, 200, 2, 4, generator=torch.Generator().manual_seed(0)) + 3
    common = lesson.draw(0).common().float()[None]
    removed = communities._normalised(x, lesson.REMOVED, common)
    assert float(torch.einsum("dn,dnrc->drc", common, removed).abs().max()) < 1e-4
    for form in (lesson.REMOVED, lesson.RESCALED):
        size = communities._normalised(x, form, common).square().mean((1, 3))
        torch.testing.assert_close(size, torch.ones_like(size), rtol=1e-4, atol=1e-4)
    assert communities._normalised(x, lesson.GCN, common) is x


def test_training_learns_two_layers_and_rates_do_not_mix():
    both = lesson.train(lesson.GCN, 2, (0.01, 0.1), (0, 1), steps=40)
    alone = lesson.train(lesson.GCN, 2, (0.1,), (0, 1), steps=40)
    torch.testing.assert_close(both[..., 1:], alone, rtol=1e-3, atol=1e-2)
    found = lesson.scored(both, (0, 1))
    assert float(found["test"][:, 0].mean()) > 0.85
    assert found["choosing"].shape == (2, 2)


def test_the_curves_are_the_stored_accuracies():
    axes = lesson.plot_trained().axes[0]
    for form in lesson.TRAINED:
        wanted = [np.mean(lesson.trained(form, depth)) for depth in lesson.DEPTHS]
        np.testing.assert_allclose(line_labelled(axes, form).get_ydata(), wanted)


def test_with_frozen_layers_only_the_readout_learns():
    rates = tuple(0.001 * 2**k for k in range(12))
    ranks = []
    for frozen in (True, False):
        found = lesson.train(lesson.REMOVED, 3, rates, (0,), steps=20, width=4, frozen=frozen)[0].double()
        sizes = torch.linalg.svdvals(found)
        ranks.append(int((sizes > 1e-5 * sizes[0]).sum()))
    assert ranks[0] <= 4 < ranks[1]  # all logits are sums of the same four channels


def test_random_layers_do_as_well_as_trained_ones_where_the_common_part_is_removed_and_only_there():
    alone = {form: np.mean(lesson.readout_alone(form, 32)) for form in lesson.TRAINED}
    assert alone[lesson.REMOVED] == pytest.approx(np.mean(lesson.trained(lesson.REMOVED, 32)), abs=0.03)
    assert alone[lesson.ADDED] < np.mean(lesson.trained(lesson.ADDED, 32)) - 0.2
    assert max(value for form, value in alone.items() if form != lesson.REMOVED) < 0.7
    drawn = line_labelled(lesson.plot_trained().axes[0], "common part removed, hidden weights random")
    assert drawn.get_ydata()[-1] == alone[lesson.REMOVED]
