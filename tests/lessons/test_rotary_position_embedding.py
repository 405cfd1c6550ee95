"""What the figures and the explorer of lesson 18 show, and its closing experiment."""

import math

import numpy as np
import pytest
import torch

from course_lib.attention.rotary import rope, rope_frequencies, rotary_table
from course_lib.lessons import rotary_position_embedding as lesson
from course_lib.lessons.rotary_position_embedding import experiment
from course_lib.measured import measured, origin
from course_lib.teaching.style import text_alternative
from tests.drawing import assert_legend, assert_line, line_labelled


def frequencies(base: float = 10_000.0) -> np.ndarray:
    return base ** (-2 * np.arange(32) / 64)


def cosine_mean(distances, base: float = 10_000.0) -> np.ndarray:
    return np.cos(np.asarray(distances)[:, None] * frequencies(base)).mean(axis=1)


def settings(**changed):
    return {**{name: control.default for name, control in lesson.ChainExplorer.controls.items()}, **changed}


def test_turned_scores_know_the_sentence_and_not_its_place():
    (bare, first), (other, second), (again, moved) = lesson.sentence_scores().values()
    assert bare == other == again
    assert moved == pytest.approx(first, abs=1e-9)
    assert abs(first - second) > 1
    x = torch.stack([lesson.word_vector("bit"), lesson.word_vector("dog")])
    assert first == pytest.approx(float(x[0] @ rope(x[1:], torch.tensor([-1]))[0]), abs=1e-9)
    left, right = lesson.plot_sentences().axes
    assert [bar.get_width() for bar in left.patches] == pytest.approx([bare] * 3)
    assert [bar.get_width() for bar in right.patches] == pytest.approx([first, second, moved])


def test_the_score_is_the_same_after_a_shift():
    near, far = lesson.plot_shift().axes
    said = [axes.get_title().split("score ")[1] for axes in (near, far)]
    assert said[0] == said[1]
    tips = [
        complex(*(c[1] for c in line_labelled(axes, label).get_data()))
        for axes, label in ((near, "query at 3"), (near, "key at 1"), (far, "query at 6"), (far, "key at 4"))
    ]
    assert (tips[0].conjugate() * tips[1]).real == pytest.approx(float(said[0]), abs=5e-4)
    for before, after in ((tips[0], tips[2]), (tips[1], tips[3])):
        assert after / before == pytest.approx(np.exp(1j * 3 * 0.4), abs=1e-12)


def test_the_chains_end_where_the_scores_are():
    for axes, s in zip(lesson.plot_chain().axes, lesson.CHAINED, strict=True):
        x, y = axes.lines[0].get_data()
        assert len(x) == 33
        assert np.hypot(np.diff(x), np.diff(y)) == pytest.approx(np.ones(32))
        assert x[-1] == pytest.approx(32 * cosine_mean([s])[0])


def test_the_mean_score_and_its_law():
    left, right = lesson.plot_decay().axes
    scores = line_labelled(left, "mean score")
    s = np.asarray(scores.get_xdata())
    assert_line(scores, np.arange(1, 1001), cosine_mean(s), atol=1e-10)
    law = line_labelled(left, "$1 - (\\ln s + \\gamma)/\\ln b - 1/d$")
    x = np.array([2.0, 1000.0])
    assert_line(law, x, 1 - (np.log(x) + np.euler_gamma) / math.log(10_000) - 1 / 64)
    assert_legend(right, ["the query", "turned on by 200", "its negative"])
    assert np.argmax(line_labelled(right, "turned on by 200").get_ydata()) == 200
    same = np.asarray(line_labelled(right, "the query").get_ydata())
    np.testing.assert_allclose(line_labelled(right, "its negative").get_ydata(), -same)
    rising = (np.diff(cosine_mean(np.arange(1, 1001))) > 0).mean()
    assert f"{rising:.0%} of the single steps" in text_alternative(lesson.plot_decay())


def test_the_arcs_are_those_of_both_lengths():
    for axes, i in zip(lesson.plot_arcs().axes, lesson.DIALS, strict=True):
        for patch, reach in zip(axes.patches, (1023, 63), strict=True):
            arc = patch.get_xy()[:200]
            end = min(reach * frequencies()[i - 1], 2 * math.pi)
            assert complex(*arc[-1]) == pytest.approx(np.exp(1j * end), abs=1e-9)


def test_the_hills_are_those_of_the_stored_hands():
    hands, s = lesson.head_hands(), np.arange(1024)
    scores = (np.exp(1j * np.outer(s, frequencies())) @ hands).real
    left, right = lesson.plot_hills().axes
    assert left.lines[0].get_ydata() == pytest.approx(scores[:64])
    assert right.lines[0].get_ydata() == pytest.approx(scores[right.lines[0].get_xdata()])
    assert scores.argmax() == 5
    assert 64 + scores[64:].argmax() == lesson.RETURN
    assert f"{scores[64:].max():.1f}, at 407" in text_alternative(lesson.plot_hills())


def test_the_fast_clocks_are_back_at_the_hill():
    for i, axes in enumerate(lesson.plot_return().axes, start=1):
        for line, s in zip(axes.lines[1:], (5, lesson.RETURN), strict=True):
            tip = complex(*(c[1] for c in line.get_data()))
            assert tip == pytest.approx(np.exp(1j * s * frequencies()[i - 1]), abs=1e-9)


def dots(axes):
    return [line.get_xdata() for line in axes.lines if line.get_marker() == "o"]


def test_the_pictures_of_the_experiment_show_what_is_stored():
    figure = lesson.plot_rules()
    for axes, length in zip(figure.axes, ("256", "1024"), strict=True):
        rows = dots(axes)
        stored = [measured("longer_texts", name)["accuracy"][length] for name in
                  (*lesson.RULES[:4], lesson.CAPPED, *lesson.ARMS[1:])]  # fmt: skip
        assert [list(row) for row in rows] == stored
    left, right = lesson.plot_blame().axes
    rules = (lesson.AS_TRAINED, lesson.SLOW_CAPPED, lesson.FAST_CAPPED, lesson.CAPPED)
    assert [list(row) for row in dots(left)] == [
        measured("longer_texts", f"{rule}, the same heads") for rule in rules
    ]
    for rule in rules:
        means = measured("longer_texts", rule)["mean by rate"]
        curve = line_labelled(right, lesson.BLAMED[rule])
        assert_line(curve, [float(r) for r in list(means)[:4]], list(means.values())[:4])


def test_stored_rates_are_the_best_of_those_that_learned():
    rates = origin("longer_texts")["settings"]["rates"]
    for name in (*lesson.RULES, *lesson.ARMS[1:]):
        row = measured("longer_texts", name)
        assert [float(rate) for rate in row["mean by rate"]] == rates
        assert row["best rate"] in rates
        if name != lesson.NONE:
            assert np.mean(row["accuracy"]["64"]) >= 0.85


def test_low_precision_tables_are_rounded_where_they_say():
    positions, omega = torch.tensor([100_001]), torch.tensor([0.75, 1.0]).double()
    exact = np.exp(1j * 100_001 * omega.numpy())
    found = {k: lesson.low_precision_table(positions, omega, kind=k)[0].numpy() for k in lesson.TABLES}
    assert torch.equal(torch.from_numpy(found["float64 angles"]), rotary_table(positions, omega)[0])
    # 75000.75 and 100001 are float32 numbers; bfloat16 has 99840 or 100352 for the latter.
    np.testing.assert_allclose(found["float32 angles"], exact, atol=1e-6)
    np.testing.assert_allclose(found["bfloat16 table"], exact, atol=2**-8)
    assert np.abs(found["bfloat16 table"] - exact).max() > 1e-5
    assert found["bfloat16 angles"][1] == pytest.approx(np.exp(1j * 99_840), abs=1e-6)


def test_only_float64_angles_leave_scores_where_they_are():
    axes = lesson.plot_precision().axes[0]
    ends = {kind: line_labelled(axes, kind).get_ydata() for kind in lesson.TABLES}
    assert ends["float64 angles"].max() < 1e-6
    assert ends["float32 angles"][-1] > 30 * ends["float32 angles"][0]
    assert ends["bfloat16 angles"][-1] > 0.1


# The explorer


@pytest.mark.parametrize("key", lesson.KEYS)
def test_the_chain_and_the_curve_of_the_explorer_belong_together(key):
    explorer = lesson.ChainExplorer()
    state = explorer.compute(**settings(distance=17, exponent=4.5, key=key))
    hands = {
        lesson.ITSELF: np.ones(32),
        lesson.ANOTHER: np.exp(-200j * frequencies()),
        lesson.TRAINED_HEAD: lesson.head_hands(),
    }[key]
    omega = frequencies(10**4.5)
    end = (hands * np.exp(17j * omega)).sum()
    assert complex(*state["end"]) == pytest.approx(end)
    assert state["here"] == (17, pytest.approx(end.real))
    curve = (np.exp(1j * np.outer(np.arange(1001), omega)) @ hands).real
    assert state["scores"][1] == pytest.approx(curve, abs=1e-9)


def test_another_key_is_best_at_200_and_the_words_say_where_a_chain_ends():
    explorer = lesson.ChainExplorer()
    state = explorer.compute(**settings(key=lesson.ANOTHER))
    assert state["scores"][1].argmax() == 200
    words = explorer.frame(distance=1000)[1]
    assert f"At distance 1000 the chain ends {32 * cosine_mean([1000])[0]:.2f} to the right" in words


# The experiment


def a_head(arm=lesson.ROTARY, seeds=(0, 1)):
    return {name: value.detach() for name, value in experiment.untrained(arm, seeds, biases=1).items()}


def texts(length, seeds=2):
    drawn = torch.randint(16, (1, 3, length), generator=torch.Generator().manual_seed(1))
    return drawn.expand(seeds, -1, -1)


def test_a_rotary_head_does_not_see_where_its_text_starts():
    weights, read = a_head(), texts(40)
    near, far = (experiment.read(weights, read, start=start) for start in (0, 1000))
    torch.testing.assert_close(near, far, atol=1e-3, rtol=1e-3)
    last = experiment.read(weights, read, last=7)
    torch.testing.assert_close(last, near[:, :, -7:])


def test_a_head_is_one_of_attention_with_turned_queries_and_keys():
    weights, read = a_head(seeds=(3,)), texts(30, seeds=1)
    x = weights["letters"][0][read[0]]
    q, k = (rope(x @ weights[f"W_{n}"][0] + weights[f"b_{n}"][0], torch.arange(30)) for n in "qk")
    mixed = torch.nn.functional.scaled_dot_product_attention(q, k, x @ weights["W_v"][0], is_causal=True)
    torch.testing.assert_close(
        experiment.read(weights, read)[0], mixed @ weights["answers"][0], atol=1e-3, rtol=1e-3
    )


@pytest.mark.parametrize("rule", [lesson.SLOW_CAPPED, lesson.FAST_CAPPED, lesson.CAPPED])
def test_capped_pairs_count_far_distances_as_63(rule):
    weights, read, n = a_head(seeds=(0,)), texts(90, seeds=1), 90
    capped = experiment.capped_pairs(rule)
    assert int(capped.sum()) == {lesson.SLOW_CAPPED: 23, lesson.FAST_CAPPED: 9, lesson.CAPPED: 32}[rule]
    x = weights["letters"][0][read[0, 0]].double()
    q, k = (
        torch.view_as_complex(
            (x @ weights[f"W_{c}"][0].double() + weights[f"b_{c}"][0].double()).view(n, 32, 2)
        )
        for c in "qk"
    )
    distance = torch.arange(n)[:, None] - torch.arange(n)
    by_pair = torch.where(capped[:, None, None], distance.clamp(max=63), distance)
    turned = torch.exp(1j * by_pair * rope_frequencies(64)[:, None, None])
    scores = torch.einsum("mi,ni,imn->mn", q, k.conj(), turned).real / 8
    weights_of = scores.masked_fill(distance < 0, -math.inf).softmax(-1)
    wanted = weights_of @ (x @ weights["W_v"][0].double()) @ weights["answers"][0].double()
    found = experiment.read(weights, read[:, :1], capped=capped)[0, 0].double()
    torch.testing.assert_close(found, wanted, atol=1e-2, rtol=1e-2)


def test_the_hands_give_the_mean_score():
    weights = a_head(seeds=(4,))
    letters = weights["letters"][0].double()
    q, k = (letters @ weights[f"W_{c}"][0].double() + weights[f"b_{c}"][0].double() for c in "qk")
    for s in (0, 5, 70):
        turned = rope(q, torch.full((16,), s))
        mean = float((turned @ k.T).mean()) / 8
        assert lesson.added(experiment.hands(weights)[0].numpy(), [s], frequencies())[0] == pytest.approx(
            mean, abs=1e-4
        )


def test_three_rules_slow_pairs_down_as_they_say():
    plain, turns = rope_frequencies(64).numpy(), 64 * frequencies() / (2 * math.pi)
    ramp = np.clip((4 - turns) / 3, 0, 1)
    for name, factor in {
        lesson.INTERPOLATED: np.full(32, 16.0),
        lesson.NTK: 16 ** (np.arange(32) / 31),
        lesson.LLAMA: 1 / (1 - ramp + ramp / 16),
    }.items():
        np.testing.assert_allclose(plain / experiment.frequencies_by(name, scale=16).numpy(), factor)


def test_slow_pairs_that_never_turn_and_rules_at_scale_1():
    never = experiment.trained_frequencies(lesson.NEVER)
    assert int((never == 0).sum()) == 23
    for rule in lesson.RULES:
        torch.testing.assert_close(experiment.frequencies_by(rule, scale=1), rope_frequencies(64))


@pytest.mark.parametrize("arm", lesson.ARMS)
def test_training_lowers_the_loss_of_each_head_apart(arm):
    both = experiment.learn(arm, rate=0.02, seeds=(0, 1), steps=3)
    start = experiment.untrained(arm, (0, 1))
    for name, value in both.items():
        if name != "places" or arm == lesson.LEARNED:
            assert not torch.equal(value, start[name].detach()), name
    found = experiment.accuracy(both, 64, arm=arm, texts=2)
    assert found.shape == (2,)
    assert ((found >= 0) & (found <= 1)).all()


def test_a_head_learns_the_task():
    head = experiment.learn(lesson.ROTARY, rate=0.02, seeds=[0], steps=250)
    assert experiment.accuracy(head, 64).item() > 0.9
    assert experiment.accuracy(head, 64, start=1000).item() > 0.9
    assert experiment.accuracy(head, 64, back=6).item() < 0.3
