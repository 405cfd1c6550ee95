"""What the pictures of lesson 20 show, and what its explorer says, against loops and definitions."""

import itertools
import re

import numpy as np
import pytest
import torch

from course_lib.lessons import fixed_memory as lesson
from course_lib.measured import measured
from tests.drawing import line_labelled


def by_loop(keys, values, rule, step_size):
    memory = torch.zeros(keys.shape[1], values.shape[1], dtype=torch.float64)
    for key, value in zip(keys, values, strict=True):
        old = key @ memory if rule == "delta rule" else 0
        memory = memory + (step_size if rule == "delta rule" else 1) * torch.outer(key, value - old)
    return memory


def nearest_is_own(answers, values):
    return [int((answer - values).norm(dim=1).argmin()) == i for i, answer in enumerate(answers)]


def test_the_competition_is_that_of_the_hook():
    keys, values = lesson.pairs()
    for axes, rule in zip(lesson.plot_competition().axes, ("sums", "delta rule"), strict=True):
        answers = keys @ by_loop(keys, values, rule, 1.0)
        table = answers @ values.T
        assert np.allclose(line_labelled(axes, "right value").get_ydata(), table.diagonal())
        wrong = [max(float(table[i, j]) for j in range(128) if j != i) for i in range(128)]
        assert np.allclose(line_labelled(axes, "best wrong value").get_ydata(), wrong)
        share = np.mean(nearest_is_own(answers, values))
        assert any(text.get_text() == f"recalled: {share:.0%}" for text in axes.texts)


def test_the_explorer_says_what_a_loop_finds_at_every_setting():
    explorer = lesson.MemoryExplorer()
    grid = itertools.product(
        (16, 128), (16, 64), ("sums", "delta rule"), (1.0, 0.1), (0.0, 0.3), (False, True), (0, 70)
    )
    for count, d, rule, step_size, overlap, centre, read in grid:
        _, words = explorer.frame(
            count=count, d=d, rule=rule, step_size=step_size, overlap=overlap, read=read,
            keys="mean subtracted" if centre else "as they are",
        )  # fmt: skip
        keys, values = lesson.pairs(count, d, overlap=overlap)
        if centre:
            keys = keys - keys.mean(0)
            keys = keys / keys.norm(dim=1, keepdim=True)
        answers = keys @ by_loop(keys, values, rule, step_size)
        own = nearest_is_own(answers, values)
        asked = round(read / 100 * (count - 1))
        said = re.match(
            r"(.*): pair (\d+) of (\d+) is (not )?recalled\. .* by (-?[\d.]+), .* by (-?[\d.]+)\. "
            r".* is ([\d.]+), and (\d+)%",
            words,
        ).groups()
        assert said[0] == ("Sums" if rule == "sums" else f"Delta rule, step size {step_size:g}")
        assert (int(said[1]), int(said[2]), said[3] is None) == (asked + 1, count, own[asked])
        found = [float(answers[asked] @ v) for v in values]
        assert float(said[4]) == pytest.approx(found.pop(asked), abs=0.006)
        assert float(said[5]) == pytest.approx(max(found), abs=0.006)
        error = float((answers - values).square().sum(1).mean())
        assert float(said[6]) == pytest.approx(error, abs=0.006)
        assert int(said[7]) == pytest.approx(100 * np.mean(own), abs=0.6)


def test_half_of_the_pairs_are_recalled_where_the_picture_says():
    for d in (32, 64):
        half = round(lesson.half_recalled(d))
        assert np.mean(lesson.recall_of_sums(half, d)) == pytest.approx(0.5, abs=0.06)
    assert 2.5 < lesson.half_recalled(32) / lesson.half_recalled(16) < 3.5
    assert 3 < lesson.half_recalled(64) / lesson.half_recalled(32) < 3.5


def test_kinds_of_keys_have_length_one():
    for make in lesson.KINDS.values():
        keys = make()
        assert torch.allclose(keys.norm(dim=1), torch.ones(len(keys), dtype=torch.float64))
    assert float(lesson.KINDS["elu + 1 of random keys"]().min()) > 0


def test_what_stands_at_a_key_that_is_written_again():
    assert lesson.weights_of_values("sums").tolist() == [1, 0, 0, 1, 0, 1, 0, 0]
    assert lesson.weights_of_values("delta").tolist() == [0, 0, 0, 0, 0, 1, 0, 0]
    faded = lesson.weights_of_values("decay", decay=0.8)
    assert torch.allclose(faded[[0, 3, 5]], 0.8 ** torch.tensor([7.0, 4.0, 2.0], dtype=torch.float64))


def test_the_trained_layers_are_those_that_are_stored():
    left, second = lesson.plot_trained().axes
    for axes, task in ((left, "copying"), (second, "rewritten")):
        drawn = [sorted(line.get_xdata()) for line in axes.lines if len(line.get_xdata()) == 5]
        arms = [arm for pair in lesson.ARMS.values() for arm in pair] + list(lesson.BESIDE.values())
        stored = [sorted(measured("recall", f"{task}, {arm}")["right"]["16"]) for arm in arms]
        assert sorted(drawn) == sorted(stored)
    table = lesson.stored_table().data
    shares = sorted(measured("recall", "rewritten, delta")["right"]["16"])
    assert f"{shares[2]:.2f} ({shares[0]:.2f}–{shares[4]:.2f})" in table


def test_the_live_run_learns():
    start = lesson.trained("delta", elu=False, step_size=0.03, seeds=(5,), steps=2)
    later = lesson.trained("delta", elu=False, step_size=0.03, seeds=(5,), steps=120)
    assert start[0] < 0.1 < later[0] - 0.1
