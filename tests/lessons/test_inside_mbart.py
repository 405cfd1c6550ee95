"""What the figures of lesson 26 show, and what its explorer draws and says."""

import re
import subprocess
import sys

import numpy as np
import pytest
import torch

from course_lib.lessons import inside_mbart as lesson
from course_lib.teaching.style import text_alternative
from tests.drawing import assert_clear_layout, line_labelled


def attentions(sentence, language):
    """The library's weights by side, (layers, heads, queries, keys)."""
    model, tokenizer = lesson.course_model()
    tokenizer.src_lang = language
    ids = tokenizer(sentence, return_tensors="pt")["input_ids"]
    model.set_attn_implementation("eager")
    try:
        with torch.no_grad():
            output = model(input_ids=ids, output_attentions=True)  # shifts the ids by itself
    finally:
        model.set_attn_implementation("sdpa")
    found = (output.encoder_attentions, output.decoder_attentions, output.cross_attentions)
    return {side: torch.cat(layers).numpy() for side, layers in zip(lesson.SIDES, found, strict=True)}


def test_lessons_are_imported_without_transformers():
    code = "import sys, course_lib.lessons.inside_mbart; sys.exit('transformers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_question_has_one_curve_at_rounding_and_one_far_off():
    axes = lesson.FIGURES["question"]().axes[0]
    ours = np.asarray(line_labelled(axes, "this lesson's equations").get_ydata())
    notes = np.asarray(line_labelled(axes, "the notes' equations").get_ydata())
    assert len(ours) == len(notes) == lesson.course_model()[0].config.encoder_layers + 1
    assert ours.max() < 1e-5
    assert notes.min() > 1e-2


def test_all_ingredients_count_but_the_key_biases():
    gaps = lesson.ingredients()
    free = {"nothing", "key biases to 0"}
    assert all((gap < 1e-5) == (name in free) for name, gap in gaps.items())
    axes = lesson.plot_ingredients().axes[0]
    assert axes.get_xlim()[1] > max(gaps.values())  # every point is to be seen
    assert [t.get_text() for t in axes.get_yticklabels()] == list(gaps)
    drawn = np.asarray(axes.lines[0].get_xdata())
    np.testing.assert_allclose(drawn[2:], list(gaps.values())[2:], rtol=1e-3)
    assert text_alternative(lesson.plot_ingredients()).count("rounding") == len(free)


def test_a_changed_token_reaches_everything_in_the_encoder_and_only_what_follows_in_the_decoder():
    change = lesson.one_changed_token()
    assert 0 < change.position < change.encoder.shape[1] - 1
    places = np.arange(change.encoder.shape[1])
    for moved, reached in ((change.encoder, places >= 0), (change.decoder, places >= change.position)):
        assert (moved[0] == (places == change.position)).all()
        assert (moved[1:] == reached).all()
    left, right = lesson.plot_changes().axes
    np.testing.assert_array_equal(left.images[0].get_array(), change.encoder)
    np.testing.assert_array_equal(right.images[0].get_array(), change.decoder)


def test_pads_have_states_that_are_drawn():
    lengths, real = lesson.padded_states()
    assert real.sum() == (~real).sum()
    axes = lesson.plot_padding().axes[0]
    np.testing.assert_allclose(line_labelled(axes, "pad").get_ydata(), lengths[~real])
    np.testing.assert_allclose(line_labelled(axes, "token").get_ydata(), lengths[real])
    assert lengths[~real].min() > 0


# The explorer


@pytest.mark.parametrize("side", lesson.SIDES)
@pytest.mark.parametrize(
    ("sentence", "language"), [("The dog sees a cat.", "en_XX"), ("La fille dort.", "fr_XX")]
)
def test_the_map_is_the_librarys_attention(side, sentence, language):
    wanted = attentions(sentence, language)[side]
    for layer, head in ((1, 1), (lesson.LAYERS, lesson.HEADS)):
        state = lesson.AttentionExplorer().compute(
            layer=layer, head=head, side=side, language=language, sentence=sentence
        )
        np.testing.assert_allclose(state["weights"].filled(0), wanted[layer - 1, head - 1], atol=1e-5)
        assert (len(state["rows"]), len(state["columns"])) == state["weights"].shape
        assert (state["weights"].mask.any()) == (side == "decoder self")
        first = state["rows"][0], state["columns"][0]
        assert first == ("</s>" if side != lesson.SIDES[0] else language,
                         "</s>" if side == lesson.SIDES[1] else language)  # fmt: skip


@pytest.mark.parametrize("side", lesson.SIDES)
def test_the_words_name_the_strongest_link_that_is_drawn(side):
    explorer = lesson.AttentionExplorer()
    for head in range(1, lesson.HEADS + 1):
        _, words = explorer.frame(side=side, head=head)
        weights = explorer.artists["map"].get_array()
        found = re.search(r"\(row (\d+)\).*\(column (\d+)\), weight ([\d.]+); .* the (\d+) tokens", words)
        row, column = int(found[1]) - 1, int(found[2]) - 1
        choosing = weights[1:] if side == "decoder self" else weights
        assert weights[row, column] == choosing.max() == pytest.approx(float(found[3]), abs=0.0051)
        assert int(found[4]) == (row + 1 if side == "decoder self" else weights.shape[1])
        box = explorer.artists["box"]
        across, down = (
            (box.get_x() + box.get_width() / 2) * weights.shape[1],
            1 - box.get_y() - box.get_height() / 2,
        )
        assert (int(across), int(down * weights.shape[0])) == (column, row)
        assert f"“{explorer.artists['rows'][row].get_text()}”" in words
        spread = float(re.search(r"spreads as over ([\d.]+)", words)[1])
        assert 1 <= spread <= weights.shape[1]


@pytest.mark.parametrize(
    ("sentence", "said"),
    [
        ("", "There is nothing to read yet"),
        ("  \t ", "There is nothing to read yet"),
        ("a dog " * 30, r"The sentence has \d+ tokens .* shorten it"),
        ("字 dog", r"(1 piece is|\d pieces are) unknown to the model"),
        ("$x_1 \\frac{ <b> & \\", "the strongest link"),
        ("<mask> </s> en_XX <pad>", "the strongest link"),
    ],
)
def test_any_text_gets_a_clear_line(sentence, said, recwarn):
    explorer = lesson.AttentionExplorer()
    for side in lesson.SIDES:
        _, words = explorer.frame(sentence=sentence, side=side)
        assert re.search(said, words)
        assert_clear_layout(explorer.figure)
    _, words = explorer.frame(sentence="The dog sleeps.")
    assert "strongest link" in words
    assert not [w for w in recwarn if "Glyph" in str(w.message)]


def test_the_longest_sentence_that_fits_can_be_read():
    explorer = lesson.AttentionExplorer()
    for words in range(30):
        reading = lesson.read("dog " * words + ".", "en_XX")
        if len(reading.inputs) >= lesson.MAX_TOKENS - 1:
            break
    assert lesson.MAX_TOKENS - 1 <= len(reading.inputs) <= lesson.MAX_TOKENS
    for side in lesson.SIDES:
        explorer.frame(sentence="dog " * words + ".", side=side)
        assert_clear_layout(explorer.figure)
