"""What the curves of lesson 22 are, what its explorer says, and answers that its checkers must tell apart."""

import numpy as np
import pytest
import torch

from course_lib.lessons import induction_heads as lesson
from course_lib.theory.markov_chains import criterion, generalised_head
from tests.drawing import line_labelled

EXERCISES = lesson.EXERCISES


def grade(number, answer):
    return EXERCISES[number].grade(answer, generator=torch.Generator().manual_seed(0))


def test_the_drawn_sequence_matches_where_the_text_says():
    """Five, three and one place: more lags leave fewer."""
    found = [
        [
            t
            for t in range(3, 20)
            if all(lesson.pictures.EXAMPLE[t - k] == lesson.pictures.EXAMPLE[20 - k] for k in lags)
        ]
        for lags in ((1,), (1, 2), (1, 2, 3))
    ]
    assert [len(places) for places in found] == [5, 3, 1]


def test_the_parent_alone_takes_everything():
    left, right = lesson.plot_selection().axes
    assert line_labelled(left, "{1}").get_ydata()[-1] > 0.98
    assert max(line_labelled(left, name).get_ydata()[-1] for name in ("{1, 2}", "{1, 3}", "{1, 2, 3}")) < 0.02
    assert line_labelled(right, "{1, 2}").get_ydata()[-1] > 0.9


def test_the_model_follows_the_counting_rule_at_every_length():
    axes = lesson.plot_lengths().axes[0]
    model, rule, unigram, known = (line.get_ydata() for line in axes.get_lines()[:4])
    assert model[0] > 2 * model[-1]
    assert np.all(np.abs(np.subtract(model, rule)) < 0.12)
    assert np.all(np.subtract(unigram, model) > 0.25)
    assert np.all(np.subtract(model, known) > -0.02)


@pytest.mark.parametrize("parents", ["1", "1, 2", "1, 2, 3"])
def test_words_name_the_winner_and_the_ties(parents):
    said = lesson.CriterionExplorer().frame(parents=parents)[1]
    assert f"Parents {{{parents}}}: I is largest for {{{parents}}}" in said
    ties = said.split("Plain chi-square is largest for ")[1]
    assert "{1, 2, 3}" in ties
    assert ties.count("{") == {"1": 4, "1, 2": 2, "1, 2, 3": 1}[parents]


# Exercises


def test_the_librarys_own_head_is_accepted_where_places_match():
    def shares(tokens, lags, vocabulary):
        window = torch.arange(max(lags), len(tokens))
        hit = torch.ones(len(window), dtype=torch.bool)
        for lag in lags:
            hit &= tokens[window - lag] == tokens[-lag]
        counts = torch.bincount(tokens[window][hit], minlength=vocabulary).double()
        return counts / max(float(counts.sum()), 1.0)

    assert grade("22.1", shares).status == "solved"
    always = lambda tokens, lags, vocabulary: generalised_head(tokens[None], lags, vocabulary)[0]  # noqa: E731
    assert grade("22.1", always).status != "solved"  # the unigram where nothing matches


def test_the_worth_of_a_table_by_the_library_is_accepted():
    def by_library(joint):
        return criterion(joint[None], (1,))[0]

    def without_minus(joint):
        return by_library(joint) * joint.shape[1]

    assert grade("22.2", by_library).status == "solved"
    assert grade("22.2", without_minus).status != "solved"


def test_numbers():
    assert grade("22.3", 0.2624).status == grade("22.3", 0.41 * 0.64).status == "solved"
    assert grade("22.3", 0.32).mistake == "as {1}"
    assert grade("22.3", 0.27).status != "solved"


@pytest.mark.parametrize("p", [(0.1, 0.9, 0.15, 0.85), (0.08, 0.92, 0.1, 0.9), (0.9, 0.1, 0.85, 0.15)])
def test_parents_that_matter_little(p):
    assert grade("22.4", dict(zip(("p_00", "p_01", "p_10", "p_11"), p, strict=True))).status == "solved"


@pytest.mark.parametrize("p", [(0.1, 0.9, 0.105, 0.895), (0.01, 0.99, 0.05, 0.95), (0.1, 0.9, 0.5, 0.5)])
def test_counterexamples_that_miss_one_condition(p):
    assert grade("22.4", dict(zip(("p_00", "p_01", "p_10", "p_11"), p, strict=True))).status != "solved"


def test_the_race_by_autograd_is_right_and_refused():
    def velocity(c, values, a):
        leaf = c.clone().requires_grad_()
        gain = a * (leaf.square() / leaf.square().sum() * values).sum()
        return torch.autograd.grad(gain, leaf)[0]

    found = grade("22.5", velocity)
    assert (found.status, found.mistake) == ("mistake", "autograd")
    assert found.message.startswith("The numbers are right")
    assert grade("22.5", lambda c, values, a: 1.5 * velocity(c, values, a)).status != "solved"
    assert grade("22.5", lambda c, values, a: 0 * c).status != "solved"
