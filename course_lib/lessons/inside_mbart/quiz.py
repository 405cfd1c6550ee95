"""Sentences of lesson 34, inside_mbart, each with what decides on it."""

from functools import cache

import torch

from course_lib.lessons.inside_mbart.contents import lesson
from course_lib.lessons.inside_mbart.pictures import SENTENCES, course_model, relative_gap, token_ids
from course_lib.mbart import almost, by_hand
from course_lib.mbart.almost import CHANGES, MBART, Recipe
from course_lib.teaching import fact


@cache
def _read():
    """Return weights, configuration, ids and mask of a padded batch, and what the encoder makes of it."""
    model, _ = course_model()
    ids, mask = token_ids(*SENTENCES)
    weights, config = model.state_dict(), model.config
    return weights, config, ids, mask, almost.encode(weights, ids, mask, config=config)


def _off(recipe: Recipe) -> float:
    weights, config, ids, mask, usual = _read()
    return almost.gaps(almost.encode(weights, ids, mask, recipe, config=config).output, usual.output, mask)[1]


@lesson.sentence("34.Q1", "A layer of mBART computes LN(X + MHA(X)), as in the original Transformer.", answer=False)
def norms():
    """Its LayerNorm stands before each sublayer, (34.6) and (34.8), and what is added stays as it is. With these weights the
    other order moves the output farther than the state of another token would be."""
    *_, mask, usual = _read()
    states = usual.output[mask]
    other = (states.roll(1, 0) - states).square().mean().sqrt() / states.square().mean().sqrt()
    return fact(
        f"the state of the next token is off by {other:.2f}; with LayerNorm after each sublayer the output by {{:.2f}}",
        _off(CHANGES["LayerNorm after each sublayer"]),
        at_least=float(other),
    )


@lesson.sentence(
    "34.Q2", "The first layer of the encoder reads a row of the embedding table for each token.", answer=False
)
def entrance():
    """It reads (34.9): the row times √d, plus a position, normalised. Each of the three leaves a gap when it is missing."""
    return "\n".join(
        fact(f"{name}: the output is off by {{:.2f}}", _off(CHANGES[name]), at_least=0.05)
        for name in ("embedding not scaled", "no positions", "no LayerNorm after the embedding")
    )


@lesson.sentence("34.Q3", "The attention of a decoder layer looks at the encoder, and only there.", answer=False)
def two_attentions():
    """A decoder layer has two attentions (34.12). One looks at the decoder's own tokens, and the translation needs it."""
    model, tokenizer = course_model()
    weights, config = model.state_dict(), model.config
    task = almost.draw_task(tokenizer, 20, seed=7)
    memory = almost.encode(weights, task.ids, task.mask, config=config).output
    usual, silent = (
        almost.decode(weights, memory, task.mask, task.codes, recipe, config=config)
        for recipe in (MBART, Recipe(attention="none"))
    )
    return fact(
        "without the decoder's self-attention {:.0%} of 20 translations are unchanged",
        almost.shared(silent, usual),
        at_most=0.2,
    )


@lesson.sentence(
    "34.Q4",
    "In training, the decoder reads the text that it is to write, moved right by one place.",
    answer=True,
)
def shift():
    """That is (34.13). No position reads the token that it has to predict."""
    ids = _read()[2]
    usual = course_model()[0].prepare_decoder_input_ids_from_labels(ids)
    moved = by_hand.shift_right(ids, pad_id=1)
    return "\n".join(
        [
            fact(
                "{} tokens differ from the library's",
                int((moved != usual).sum()),
                equals=0,
                within=0,
            ),
            fact(
                "{} differ from the text moved by one",
                int((moved[:, 1:] != ids[:, :-1]).sum()),
                at_most=0,
            ),
        ]
    )


@lesson.sentence(
    "34.Q5",
    "A hook (a function called with what a module returns) on the encoder's last layer sees what the decoder reads.",
    answer=False,
)
def hook():
    """It sees the state before the final LayerNorm (34.10)."""
    model, _ = course_model()
    ids, mask = token_ids(*SENTENCES)
    seen = {}
    handle = model.model.encoder.layers[-1].register_forward_hook(lambda m, i, o: seen.update(state=o))
    with torch.inference_mode():
        output = model.model.encoder(input_ids=ids, attention_mask=mask.long()).last_hidden_state
    handle.remove()
    state = seen["state"][0] if isinstance(seen["state"], tuple) else seen["state"]
    ratio = state[mask].norm(dim=-1).mean() / output[mask].norm(dim=-1).mean()
    return fact("what the hook sees is {:.0f} times as long as the output", ratio, at_least=10)


@lesson.sentence(
    "34.Q6",
    "The plain mean of a sentence's output states is the same whatever sentence stands beside it in the batch.",
    answer="only if it has no pads",
    conditions=("only if it has no pads", "only if the padding mask is given"),
)
def pooled():
    """Pads have states, too, with or without the mask. Leave them out of the mean, (34.15) in the appendix."""
    from course_lib.mbart.activations import masked_mean  # brings transformers

    weights, config, _, mask, usual = _read()
    alone_ids, alone_mask = token_ids(SENTENCES[1])
    alone = almost.encode(weights, alone_ids, alone_mask, config=config).output
    wanted = alone[0].mean(0)
    return "\n".join(
        [
            fact(
                "with the padding mask, plain mean beside a longer sentence: off by {:.2f}",
                relative_gap(usual.output[1].mean(0), wanted),
                at_least=0.02,
            ),
            fact(
                "pads left out of the mean: off by {:.0e}",
                relative_gap(masked_mean(usual.output, mask)[1], wanted),
                at_most=1e-5,
            ),
        ]
    )


@lesson.sentence(
    "34.Q7",
    "What the encoder can do without, nearly without damage to the translations, the decoder can do without, too.",
    answer=False,
)
def both_sides():
    """Without the padding mask in the encoder nearly all translations stay. In the decoder it hides the pads from
    cross-attention, and there they do harm."""
    model, tokenizer = course_model()
    weights, config = model.state_dict(), model.config
    task = almost.draw_task(tokenizer, 40, seed=7)
    recipe = CHANGES["no padding mask"]
    clean, open_states = (
        almost.encode(weights, task.ids, task.mask, one, config=config).output for one in (MBART, recipe)
    )
    usual, encoder, decoder = (
        almost.decode(weights, states, task.mask, task.codes, one, config=config)
        for states, one in ((clean, MBART), (open_states, MBART), (clean, recipe))
    )
    return "\n".join(
        [
            fact(
                "no mask in the encoder: {:.0%} of 40 translations unchanged",
                almost.shared(encoder, usual),
                at_least=0.9,
            ),
            fact("no mask in the decoder: {:.0%}", almost.shared(decoder, usual), at_most=0.7),
        ]
    )
