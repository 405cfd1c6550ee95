"""What the figures of lesson 34 show, and what its explorer draws and says."""

import re
import subprocess
import sys
from statistics import mean

import numpy as np
import pytest
import torch

from benchmarks import scaled_slips
from benchmarks.almost_mbart import one_draw
from course_lib.lessons import inside_mbart as lesson
from course_lib.mbart import almost
from course_lib.measured import figures
from tests.drawing import assert_clear_layout, line_labelled


def attentions(sentence, language, text=lesson.FRENCH):
    """The library's weights by side, (layers, heads, queries, keys)."""
    model, tokenizer = lesson.course_model()
    tokenizer.src_lang = language
    ids = tokenizer(sentence, return_tensors="pt")["input_ids"]
    tokenizer.src_lang = "fr_XX"
    french = tokenizer(text, return_tensors="pt")["input_ids"]
    model.set_attn_implementation("eager")
    try:
        with torch.no_grad():
            output = model(input_ids=ids, labels=french, output_attentions=True)  # shifts them by itself
    finally:
        model.set_attn_implementation("sdpa")
    found = (output.encoder_attentions, output.decoder_attentions, output.cross_attentions)
    return {side: torch.cat(layers).numpy() for side, layers in zip(lesson.SIDES, found, strict=True)}


def test_lessons_are_imported_without_transformers():
    code = "import sys, course_lib.lessons.inside_mbart; sys.exit('transformers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_five_encoders_write_what_the_text_says():
    rows = [row.split(" | ") for row in lesson.hook_table().data.splitlines()[2:]]
    found = {row[0].strip("| "): row[1].strip("| ") for row in rows}
    right = "Les bébés ne dormiront pas dans le jardin."
    assert found["A"] == found["E"] == right
    assert "miroir" in found["C"]
    assert "bébés" in found["B"]
    assert found["D"].endswith("...")
    axes = lesson.FIGURES["stream"]().axes[0]
    drawn = {line.get_label()[0]: np.asarray(line.get_ydata()) for line in axes.lines}
    assert set(drawn) == {*lesson.FIVE, "m"}
    np.testing.assert_allclose(drawn["m"], drawn["A"], rtol=1e-5)
    np.testing.assert_allclose(drawn["A"], lesson.almost_run(lesson.HOOK, "es_XX", None).lengths(), rtol=1e-5)
    # What the text alternative says: C stays short, D lacks the last step only.
    assert drawn["C"].min() > 4
    assert drawn["C"][1:].max() < 13
    np.testing.assert_allclose(drawn["D"][:-1], drawn["A"][:-1], rtol=1e-5)
    assert drawn["D"][-1] == drawn["D"][-2] > 30 * drawn["A"][-1]


def test_a_changed_token_reaches_everything_in_the_encoder_and_only_what_follows_in_the_decoder():
    change = lesson.one_changed_token()
    for moved, place, causal in zip(
        (change.encoder, change.decoder), change.position, (False, True), strict=True
    ):
        places = np.arange(moved.shape[1])
        assert 0 < place < len(places) - 1
        reached = places >= place * causal
        assert (moved[0] == (places == place)).all()
        assert (moved[1:] == reached).all()
    left, right = lesson.plot_changes().axes
    np.testing.assert_array_equal(left.images[0].get_array(), change.encoder)
    np.testing.assert_array_equal(right.images[0].get_array(), change.decoder)


def test_the_pictures_show_what_is_stored():
    axes = lesson.FIGURES["attention"]().axes[0]
    for place, name in enumerate(lesson.REPLACED):
        shares = [100 * x for x in lesson.stored(name, "unchanged")]
        np.testing.assert_allclose(axes.lines[2 * place].get_xdata(), shares)
        assert axes.lines[2 * place + 1].get_xdata()[0] == pytest.approx(mean(shares))
    axes = lesson.FIGURES["survival"]().axes[0]
    for name in lesson.LINES:
        line = line_labelled(axes, lesson.SCALED[name])
        drawn = dict(zip(line.get_xdata(), line.get_ydata(), strict=True))
        assert drawn[0] == 100
        assert drawn[0.25] == pytest.approx(100 * mean(lesson.at_distance(name, 0.25)))


def test_noise_leaves_more_than_the_change_and_handed_on_changes_lie_between():
    """What the text says of "handed on", for every change that changes more than 5% of the translations."""
    for name in lesson.CHANGES:
        own, handed_on, noise = (mean(lesson.stored(name, kind)) for kind in lesson.KINDS)
        if own < 0.95 and mean(lesson.stored(name, "rms")) < 1.7:
            assert own < handed_on < noise, name


def test_a_small_draw_repeats_what_is_stored():
    model, tokenizer = lesson.course_model()
    names = ("key biases 0", "attention: itself")
    row = one_draw(model, tokenizer, 3, n=16, changes={name: lesson.CHANGES[name] for name in names})
    assert row["mBART, right"] >= 0.9
    assert row["key biases 0, unchanged"] == row["key biases 0, both"] == 1
    assert row["attention: itself, unchanged"] <= 0.3 < 0.6 < row["attention: itself, noise"]
    assert row["cross-attention: equal weights, unchanged"] <= 0.1
    assert set(row) - {"mBART, right"} <= set(figures("almost_mbart"))


def test_a_small_draw_of_scaled_slips_repeats_what_is_stored():
    model, tokenizer = lesson.course_model()
    names = ("attention: itself", "attention: itself, as long")
    row = scaled_slips.one_draw(
        model, tokenizer, 3, n=16, changes={name: scaled_slips.ENCODERS[name] for name in names}
    )
    assert row["noise, at 0.25"] >= 0.9
    assert row["attention: itself, at 0.25"] > row["attention: itself, at 0.5"] - 0.1
    assert row["attention: itself, as long, rms"] < row["attention: itself, rms"]
    assert set(row) <= set(figures("scaled_slips"))


def test_itself_as_long_writes_as_long_as_attention():
    model, tokenizer = lesson.course_model()
    weights, config = model.state_dict(), model.config
    task = almost.draw_task(tokenizer, 4, seed=1)
    lengths, written = [], []
    for kind in ("softmax", "itself", "itself as long"):
        stream = almost.encode(
            weights, task.ids, task.mask, almost.Recipe(attention=kind), config=config
        ).stream
        written.append((stream[1] - stream[0])[task.mask])
        lengths.append(written[-1].norm(dim=-1))
    torch.testing.assert_close(lengths[2], lengths[0], rtol=1e-3, atol=1e-4)
    assert (lengths[1] - lengths[0]).abs().max() > 1
    alike = torch.cosine_similarity(written[1], written[2], dim=-1)
    assert alike.min() > 0.9999


# The explorer of the stream


def test_the_stream_explorer_says_what_it_draws():
    explorer = lesson.StreamExplorer()
    for change in lesson.CHOICES:
        for sentence in (1, 5):
            _, words = explorer.frame(change=change, sentence=sentence)
            text, language = lesson.played()[sentence - 1]
            usual, altered = (lesson.almost_run(text, language, one) for one in (None, change))
            assert f"“{text}” ({language}). Change: {change}." in words
            assert ("it is the same" in words) == (usual.translation == altered.translation)
            assert usual.translation in words
            assert altered.translation in words
            np.testing.assert_allclose(explorer.artists["altered"].get_ydata(), altered.lengths())
            assert explorer.artists["apart"].get_ydata()[-1] < 1e-4 or change != "key biases 0"


def test_without_positions_sentences_5_6_and_8_change():
    changed = [
        n
        for n, (text, language) in enumerate(lesson.played(), start=1)
        if lesson.almost_run(text, language, None).translation
        != lesson.almost_run(text, language, "no positions").translation
    ]
    assert changed == [5, 6, 8]


# The explorer of attention


@pytest.mark.parametrize("side", lesson.SIDES)
@pytest.mark.parametrize(
    ("sentence", "language"), [("The dog sees a cat.", "en_XX"), ("La fille dort.", "fr_XX")]
)
def test_the_map_is_the_librarys_attention(side, sentence, language):
    wanted = attentions(sentence, language)[side]
    for layer, head in ((1, 1), (lesson.LAYERS, lesson.HEADS)):
        state = lesson.AttentionExplorer().compute(
            layer=layer, head=head, side=side, language=language, sentence=sentence, text=lesson.FRENCH
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
        spread = float(re.search(r"spreads its weight over about ([\d.]+)", words)[1])
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
        reading = lesson.read("dog " * words + ".", "en_XX", lesson.FRENCH)
        if len(reading.inputs) >= lesson.MAX_TOKENS - 1:
            break
    assert lesson.MAX_TOKENS - 1 <= len(reading.inputs) <= lesson.MAX_TOKENS
    for side in lesson.SIDES:
        explorer.frame(sentence="dog " * words + ".", side=side)
        assert_clear_layout(explorer.figure)
