"""The fifth language of lesson 25: its grammar, its batches, and what training on it changes and restores."""

import numpy as np
import torch

from course_lib.language.corpus import Meaning, Phrase, draw_meanings
from course_lib.mbart.model import load
from course_lib.mbart.pretraining import fifth_language as fifth
from course_lib.representation import lora


def test_the_fifth_language_is_regular_and_can_be_written():

    said = fifth.say_in_fifth(
        Meaning(
            "give",
            Phrase("nurse", "my"),
            Phrase("apple", "two", True),
            Phrase("girl"),
            tense="past",
            negated=True,
        )
    )
    assert said == "Der muchacha à zwei manzanas de mein enfermera nicht give war."
    assert (
        fifth.say_in_fifth(Meaning("sleep", Phrase("dog", "a", True), question=True)) == "Perros sleep est?"
    )
    model, tokenizer = load()
    texts = fifth.parallel_texts(draw_meanings(100, seed=1), tokenizer)
    assert all(tokenizer.unk_token_id not in texts.sentence(fifth.FIFTH, i) for i in range(100))
    (inputs, decoder, labels), sources, targets = fifth.draw_batch(
        texts, tokenizer, range(5), np.random.default_rng(0), target=fifth.FIFTH
    )
    code = tokenizer.lang_code_to_id[fifth.FIFTH]
    assert (decoder[:, 1] == code).all()
    assert (labels[:, 0] == -100).all()
    assert all(
        target[0] == code and source[0] != code for source, target in zip(sources, targets, strict=True)
    )
    assert labels[0, 1 : len(targets[0])].tolist() == targets[0][1:]
    assert inputs.shape[0] == 5
    # A few steps on a small adapter move it alone, and leave the model in the mode that it had.
    lora.inject(model, rank=4, alpha=32, targets="all-linear", generator=torch.Generator().manual_seed(0))
    attention, frozen = model.config._attn_implementation, model.model.shared.weight.clone()
    losses = fifth.adapt_to_fifth(
        model, tokenizer, texts, lora.param_groups(model, 5e-3), steps=12, batch_size=8
    )
    assert losses[-1] < losses[0] - 1
    seen = []

    def watch(step):
        seen.append((step, model.training))
        return step == 2

    groups = lora.param_groups(model, 1e-9)
    kept = fifth.adapt_to_fifth(
        model, tokenizer, texts, groups, steps=5, batch_size=2, old=2, decay=False, watch=watch
    )
    assert seen == [(1, False), (2, False)]
    assert len(kept) == 2
    assert max(kept) < losses[-1]  # old sentences only, which the adapter has not lost yet
    assert (model.config._attn_implementation, model.training) == (attention, False)
    assert torch.equal(model.model.shared.weight, frozen)
    scores = fifth.fifth_scores(model, tokenizer, texts, n=4)
    assert scores["four_loss"] < 3 < scores["fifth_loss"] < 9
    assert scores["fifth_exact"] == 0
