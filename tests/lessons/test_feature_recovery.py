"""What the figures, tables and explorers of lesson 36 show, and that stored measurements can be measured again."""

import re
from functools import cache
from statistics import mean

import numpy as np
import pytest

from course_lib.lessons import feature_recovery as lesson
from course_lib.measured import figures, measured, origin
from course_lib.teaching.style import text_alternative
from tests.drawing import assert_line, line_labelled

GRID = lesson.KNOBS["TopK"]


@cache
def figure(name):
    return lesson.FIGURES[name]()


def test_stored_measurements_are_complete_and_those_of_these_settings():
    known = origin("feature_choice")
    assert known["settings"] == lesson.settings()
    assert known["seeds"] == list(lesson.DICTIONARIES)
    first = next(iter(lesson.ROWS))
    points = {f"{kind}, {name}, {k}" for kind in lesson.ROWS for name in ("TopK", lesson.BARE) for k in GRID}
    points |= {f"{first}, {trainer}, {knob}" for trainer in ("L1", "GBA") for knob in lesson.KNOBS[trainer]}
    others = {f"page, {k}" for k in GRID} | {f"{kind}, baselines" for kind in lesson.ROWS}
    stored = figures("feature_choice")
    assert set(stored) == points | others
    for name in points:
        assert len(stored[name]) == 5
        assert all(0 <= run["0.9"] <= run["0.8"] <= 1 for run in stored[name])
        assert all(0 <= run["mean out"] <= 1 for run in stored[name])
    resonance = [f"resonance: {d}, {s}" for d, s in lesson.RESONANCE]
    assert set(figures("feature_recovery")) == set(resonance)
    assert all(np.shape(measured("feature_recovery", name)) == (3, len(lesson.RATIOS)) for name in resonance)


# Another processor rounds another way, and training carries that on: an atom or two of 32 may change sides.
@pytest.mark.parametrize(("trainer", "knob"), [("TopK", 6), ("L1", 1.0), (lesson.BARE, 2)])
def test_points_can_be_measured_again(trainer, knob):
    kind = "2 or 6 of 32"
    stored = measured("feature_choice", f"{kind}, {trainer}, {knob}")[0]
    again = lesson.measure_choice(kind, trainer, knob, 1)
    assert again["0.8"] == pytest.approx(stored["0.8"], abs=0.15)
    assert again["missing"] == pytest.approx(stored["missing"], rel=0.1)
    assert again["agreement"] == pytest.approx(stored["agreement"], abs=0.05)
    assert again["mean out"] == pytest.approx(stored["mean out"], abs=0.15)


def test_the_page_shows_the_autoencoder_that_it_trains():
    live, stored = lesson.portrait(lesson.trained("TopK", 6, 0), lesson.toy(0)), lesson.seen(6)
    assert live["missing"] == pytest.approx(stored["missing"], rel=0.1)
    assert (live["cosine"] >= 0.9).mean() == pytest.approx((stored["cosine"] >= 0.9).mean(), abs=0.15)
    assert live["share"].mean() == pytest.approx(stored["share"].mean(), abs=0.05)


def test_a_curve_of_resonance_can_be_measured_again():
    again = lesson.measure_resonance(32, 2, seed=0)
    stored = measured("feature_recovery", "resonance: 32, 2")[0]
    np.testing.assert_allclose(again, stored, atol=0.1)
    assert again[lesson.RATIOS.index(0.5)] >= 0.9
    assert again[lesson.RATIOS.index(8)] <= 0.05


def test_no_unit_is_counted_for_two_atoms():
    """Both atoms lie at cosine 0.9 of the first unit; the second unit is near neither."""
    import torch

    from course_lib.sae.recovery import recovery

    angle = np.arccos(0.9)
    atoms = torch.tensor([[np.cos(angle), np.sin(angle), 0], [np.cos(angle), -np.sin(angle), 0]])
    units = torch.eye(3, dtype=atoms.dtype)[:, [0, 2]]
    assert recovery(units, atoms).share_matched(0.899) == 0.5


def test_copies_agreement_and_baselines_are_what_their_names_say():
    import torch

    units = torch.tensor([[1.0, 1.0, 0.0], [0.0, 0.1, 1.0]])
    assert lesson.share_copied(units) == pytest.approx(2 / 3)
    assert lesson.pair_agreement(units, units.flip(1)) == pytest.approx(1)
    assert lesson.pair_agreement(units[:, :1], units[:, 2:]) == pytest.approx(0, abs=1e-6)
    turned = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]])
    half = torch.tensor([[0.0, 0.6], [1.0, 0.0], [0.0, 0.8]])  # pairs at cosines 1 and 0.6
    assert lesson.pair_agreement(turned, half) == pytest.approx(0.8)
    assert lesson.pair_agreement(turned, half, torch.tensor([1.0, 3.0])) == pytest.approx(0.9)
    assert lesson.baseline("untrained").max() == 0
    assert lesson.baseline("rows").mean() == pytest.approx(0.2, abs=0.05)


def test_the_hook_shows_an_error_that_falls_and_its_answer_what_was_found():
    missing = np.array([lesson.seen(k)["missing"] for k in GRID])
    (line,) = figure("missing").axes[0].lines
    assert_line(line, GRID, 100 * missing)
    assert (np.diff(missing) < 0).all()
    axes = figure("found").axes[0]
    found = np.array([(lesson.seen(k)["cosine"] >= 0.9).mean() for k in GRID])
    assert_line(line_labelled(axes, "atoms at cosine 0.9"), GRID, 100 * found)
    assert found.argmax() == GRID.index(6)
    assert found[-2:].max() == 0


def test_units_that_write_an_atom_are_as_long_and_as_far_as_stored():
    state = lesson.seen(32)
    for place, (x, y) in enumerate(lesson.writers(32, 0)):
        end = np.array([x[1], y[1]])
        assert np.linalg.norm(end) == pytest.approx(state["strength"][0][place])
        assert np.degrees(np.arctan2(abs(end[1]), end[0])) == pytest.approx(state["angle"][0][place])
    shares = [lesson.seen(k)["share"].mean() for k in (6, 16, 32)]
    assert shares[0] > 0.9 > 0.6 > shares[1] > 0.4 > shares[2]


def test_l1_runs_half_the_penalty_below():
    axes = figure("shrinkage").axes[0]
    y = np.linspace(-0.4, 1.6, 401)
    assert_line(line_labelled(axes, "L1: $\\max(y - \\lambda/2, 0)$"), y, np.maximum(y - 0.3, 0))
    jump = np.asarray(line_labelled(axes, "jump at $\\lambda/2$").get_ydata())
    assert set(np.round(jump - np.maximum(y, 0), 12)[y > 0.31]) == {0}
    assert (jump[y < 0.29] == 0).all()


def test_what_the_text_says_of_the_trainers():
    missing, found = (lesson.stored("L1", what)[1].mean(1) for what in ("missing", "0.9"))
    assert missing[-1] > 0.5
    assert found[-1] > 0.75
    at_four = GRID.index(4)
    assert lesson.stored("TopK", "missing")[1][at_four].mean() == pytest.approx(0.1, abs=0.02)
    assert lesson.stored("TopK", "0.9")[1][at_four].mean() == pytest.approx(0.5, abs=0.1)
    for trainer in lesson.KNOBS:
        missing, found = (lesson.stored(trainer, what)[1].mean(1) for what in ("missing", "0.9"))
        assert found[missing.argmin()] < 0.6 * found.max()
    assert len(lesson.trainer_table().data.splitlines()) == 2 + 2 * len(lesson.KNOBS) + 2


def test_agreement_alone_takes_a_k_that_holds_few():
    found = [share for _, share in lesson.chosen("most agreement")]
    assert mean(found) <= 0.25
    axes = figure("agreement").axes[0]
    assert_line(
        line_labelled(axes, "agreement of two trainings"), GRID, lesson.stored("TopK", "agreement")[1].mean(1)
    )


def test_the_elbow_lies_where_it_is_said_to():
    settings = np.array([2.0, 4, 8, 16])
    assert lesson.elbow(np.array([1.0, 0.1, 0.05, 0.0]), settings) == 1
    assert lesson.elbow(np.array([1.0, 0.1, 0.05, 0.0])[::-1], settings) != 0
    assert lesson.elbow(np.array([0.0, 0.01, 0.02, 1.0]), settings) == 2


def test_a_constant_moves_all_units_by_one_direction():
    """Atoms less the same vector are found with that vector's direction taken out, and a key of random units is not."""
    import torch

    data = lesson.toy(0)
    atoms, mean = data.planted.atoms, data.rows.mean(dim=0)
    moved = (atoms - 2 * mean).T
    assert lesson.share_found(moved, data) < 0.2
    assert lesson.share_found(moved, data, out=mean) == 1
    random = torch.randn(24, 128, generator=torch.Generator().manual_seed(0))
    assert lesson.share_found(random, data, out=mean) == 0
    torch.testing.assert_close(mean @ lesson.without(moved, mean), torch.zeros(32), atol=1e-5, rtol=0)
    axes = figure("constant").axes[0]
    raw, out, bare = (np.asarray(line.get_ydata()) for line in axes.lines)
    assert raw[0] < 20 < 95 < min(out[0], bare[0])
    assert max(raw[-2:].max(), out[-2:].max(), bare[-2:].max()) < 5


def test_without_a_constant_the_most_agreement_finds_nearly_all_and_an_elbow_needs_its_list():
    agreement, bend = "most agreement", "elbow, settings on a log scale"
    for kind in lesson.ROWS:
        for rule in (agreement, "sparsest setting"):
            assert mean(share for _, share in lesson.chosen(rule, lesson.BARE, kind)) >= 0.97
    assert mean(share for _, share in lesson.chosen("sparsest setting")) < 0.1
    for least in (6, 8):
        assert min(k for k, _ in lesson.chosen(bend, lesson.BARE, least=least)) >= 16
        assert mean(share for _, share in lesson.chosen(agreement, lesson.BARE, least=least)) > 0.95
    product = "explained × agreement (36.5)"
    with_constant = list(lesson.QUESTIONS.values())[:3]
    assert min(mean(share for _, share in lesson.chosen(product, *asked)) for asked in with_constant) > 0.9


def test_the_table_of_choosers_is_that_of_the_store():
    rows = [row.split("|")[1:-1] for row in lesson.chooser_table().data.splitlines()]
    assert len(rows) == 2 + len(lesson.CHOOSERS) + 3
    for row, name in zip(rows[2:], lesson.CHOOSERS, strict=False):
        assert row[0].strip() == name
        for cell, asked in zip(row[1:], lesson.QUESTIONS.values(), strict=True):
            shares = [share for _, share in lesson.chosen(name, *asked)]
            assert int(re.match(r" (\d+)%", cell)[1]) == pytest.approx(100 * mean(shares), abs=0.51)
    least = [
        mean(share for _, share in lesson.chosen("least error", *asked))
        for asked in lesson.QUESTIONS.values()
    ]
    assert max(least) < 0.05


def test_the_units_that_one_might_trust_are_counted_one_to_one():
    """Two dictionaries share the first and the last of their three units; only the first is an atom."""
    import torch

    data = lesson.toy(0)
    atoms = data.planted.atoms
    other = torch.nn.functional.normalize(atoms[1] + atoms[2], dim=0)
    one = torch.stack([atoms[0], atoms[5], other], 1)
    two = torch.stack([other, atoms[0], atoms[6]], 1)
    twice = lesson.found_twice(one, two)
    torch.testing.assert_close(twice, one[:, [0, 2]])
    assert lesson.atoms_among(twice, data) == 1
    assert lesson.atoms_among(one[:, [0, 0, 1]], data) == 2
    assert lesson.atoms_among(one[:, :0], data) == 0


def test_what_the_text_says_of_trusted_units_and_refitted_strengths():
    table = lesson.trusted_table().data.splitlines()
    assert len(table) == 2 + len(lesson.LOOKED_AT)
    six, two = lesson.looked_at(6), lesson.looked_at(2)
    assert six["nine tenths, atoms"] / six["nine tenths"] > 0.85
    assert two["twice"] > 20
    assert max(two["twice, atoms"], two["nine tenths, atoms"]) < 3 < 28 < two["twice, mean out"]
    assert lesson.looked_at(16)["twice"] < 6
    assert six["most, atoms"] >= six["twice, atoms"]
    for run in measured("feature_units", "L1, 1"):
        assert run["refitted, all"] < 0.5 * run["all"]
        assert run["refitted, 6"] > run["refitted, 2"]
        assert all(run[f"refitted, {rows}"] <= run[rows] for rows in ("all", "2", "6"))
    known = origin("feature_units")
    assert known["seeds"] == list(lesson.DICTIONARIES)
    assert set(figures("feature_units")) == {"L1, 1"} | {f"TopK, {k}" for k in lesson.LOOKED_AT}


def test_resonance_curves_are_the_means_of_what_was_measured():
    axes = figure("resonance").axes[0]
    for d_model, active in lesson.RESONANCE:
        means = np.mean(measured("feature_recovery", f"resonance: {d_model}, {active}"), axis=0)
        assert_line(line_labelled(axes, f"$d$ = {d_model}, {active} a row"), lesson.RATIOS, means)
    means = np.asarray(line_labelled(axes, "$d$ = 32, 2 a row").get_ydata())
    assert lesson.RATIOS[means.argmax()] in (0.25, 0.5, 0.75)
    assert f"{means[lesson.RATIOS.index(0.5)]:.2f} at a half" in text_alternative(figure("resonance"))


# The explorers


@pytest.mark.parametrize("k", [2, 6, 32])
def test_the_explorer_of_atoms_says_what_is_stored(k):
    explorer = lesson.AtomExplorer()
    state = explorer.compute(k=k, atom=3)
    stored = lesson.seen(k)
    assert state["found"] == (stored["cosine"] >= 0.9).sum()
    assert state["mark"][1] == stored["cosine"][2] == state["cosines"][state["mark"][0] - 1]
    assert list(state["cosines"]) == sorted(stored["cosine"], reverse=True)
    said = explorer.words(state)
    assert f"k = {k}: {stored['missing']:.2%} of the variance is missing" in said
    assert f"{state['found']} of 32 atoms" in said
    assert "nearest" not in said


def test_between_two_trained_values_the_words_say_which_is_shown():
    for kind in (lesson.AtomExplorer, lesson.ChoiceExplorer):
        _, said = kind().frame(k=20)
        assert re.search(r"k = (16|24) \(the trained value nearest to 20\)", said)


def test_the_rectangle_is_as_large_as_the_words_say_and_the_key_is_asked_for():
    explorer = lesson.ChoiceExplorer()
    state = explorer.compute(k=4, kind="2 or 4 of 64", key=True)
    _, _, width, height = state["area"]
    assert f"product {width * height:.3f}" in explorer.words(state)
    assert "Atoms found" in explorer.words(state)
    hidden = explorer.compute(k=4, kind="2 or 4 of 64", key=False)
    assert hidden["found"] == ([], [])
    assert "Atoms found" not in explorer.words(hidden)


def test_the_second_task_has_the_answer_that_the_text_gives():
    explorer = lesson.ChoiceExplorer()
    states = [explorer.compute(k=k, kind="2 or 6 of 32", key=True) for k in GRID]
    signs = np.array([state["signs"] for state in states])
    assert GRID[signs[:, 1].argmax()] == 2
    assert GRID[signs.prod(1).argmax()] == 8
    shares = dict(zip(GRID, (state["share"] for state in states), strict=True))
    assert [round(100 * shares[k]) for k in (2, 6, 8)] == [5, 98, 91]
    assert explorer.controls["kind"].default == "2 or 6 of 32"
    states = [explorer.compute(k=k, kind="2 or 6 of 32, constant 0", key=True) for k in GRID]
    signs, shares = np.array([state["signs"] for state in states]), [state["share"] for state in states]
    assert (GRID[signs[:, 1].argmax()], GRID[signs.prod(1).argmax()]) == (4, 6)
    assert min(shares[signs[:, 1].argmax()], shares[signs.prod(1).argmax()]) > 0.99
