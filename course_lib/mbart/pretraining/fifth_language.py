"""A language that course-mbart was never trained on, and training the model to write it (lesson 25).

Its words exist in the other four, so that the tokenizer has pieces for all of them; its grammar is its own. A language
code that no sentence of the corpus bears, and whose embedding was never trained, stands for it.
"""

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import MBart50Tokenizer, MBartForConditionalGeneration

from course_lib.language.corpus import LANGUAGES, Meaning, render
from course_lib.language.lexicon import NOUNS, PLACES, TIMES, VERBS
from course_lib.mbart.pretraining.examples import Texts
from course_lib.mbart.translation import IGNORED, pad_rows, translate

FIFTH = "gl_ES"
"""The code that stands for the fifth language; the text is not Galician."""

_DETERMINERS = {
    "the": "der", "a": "ein", "my": "mein", "our": "unser", "this": "dieser", "many": "viele",
    "two": "zwei", "three": "drei", "four": "vier", "five": "fünf", "ten": "zehn",
}  # fmt: skip
_TENSES = {"present": "", "past": "war", "future": "wird"}

Batch = tuple[Int[Tensor, "rows source"], Int[Tensor, "rows target"], Int[Tensor, "rows target"]]


def say_in_fifth(m: Meaning) -> str:
    """Time, recipient with à, object with de, place, subject, not, verb, tense: the verb stands at the end.

    Nouns are Spanish, adjectives English and after the noun, determiners German and without endings, verbs English and
    without endings, times French; a relation is marked after its phrase, a question by "est" at the end.
    """
    words = [TIMES[m.time].fr] if m.time else []
    for phrase, marker in ((m.recipient, "à"), (m.object, "de")):
        words += [*_phrase(phrase), marker] if phrase else []
    words += [PLACES[m.place].es[1], PLACES[m.place].en[0]] if m.place else []
    words += [*_phrase(m.subject), "nicht" if m.negated else "", VERBS[m.verb].en[0], _TENSES[m.tense]]
    text = " ".join(word for word in [*words, "est" if m.question else ""] if word)
    return text[0].upper() + text[1:] + ("?" if m.question else ".")


def _phrase(p) -> list[str]:
    determiner = "" if p.determiner == "a" and p.plural else _DETERMINERS[p.determiner]
    return [determiner, NOUNS[p.noun].es[p.plural], p.adjective or ""]


def parallel_texts(meanings: Sequence[Meaning], tokenizer: MBart50Tokenizer) -> Texts:
    """Tokenised sentences of some meanings in the four languages and the fifth."""
    texts = {language: [render(m, language).text for m in meanings] for language in LANGUAGES}
    return Texts(texts | {FIFTH: [say_in_fifth(m) for m in meanings]}, tokenizer)


def draw_batch(
    texts: Texts,
    tokenizer: MBart50Tokenizer,
    rows: Iterable[int],
    rng: np.random.Generator,
    *,
    target: str | None,
    old: int = 0,
) -> tuple[Batch, list[list[int]], list[list[int]]]:
    """Translations of some meanings from a random language of the four into `target`, or into another of the four.

    The first `old` of the rows are translated among the four whatever `target` is.
    Returns padded inputs and labels, and both as lists of token ids. The label of the language code, which is given and
    not predicted when a model translates, is left out of the loss.
    """
    sources, targets = [], []
    for place, row in enumerate(rows):
        one, other = (LANGUAGES[i] for i in rng.choice(len(LANGUAGES), size=2, replace=False))
        for side, language in ((sources, one), (targets, other if place < old else target or other)):
            code = tokenizer.lang_code_to_id[language]
            side.append([code, *texts.sentence(language, row), tokenizer.eos_token_id])
    labels = pad_rows(targets, IGNORED)
    labels[:, 0] = IGNORED
    decoder = pad_rows([[tokenizer.eos_token_id, *target[:-1]] for target in targets], tokenizer.pad_token_id)
    return (pad_rows(sources, tokenizer.pad_token_id), decoder, labels), sources, targets


def batch_loss(model: nn.Module, tokenizer: MBart50Tokenizer, batch) -> Float[Tensor, ""]:
    """Mean cross-entropy a token, in nats."""
    inputs, decoder, labels = batch
    out = model(
        input_ids=inputs,
        attention_mask=inputs != tokenizer.pad_token_id,
        decoder_input_ids=decoder,
        use_cache=False,
    )
    return nn.functional.cross_entropy(out.logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED)


def adapt_to_fifth(
    model: MBartForConditionalGeneration,
    tokenizer: MBart50Tokenizer,
    texts: Texts,
    groups: Sequence[dict],
    *,
    steps: int,
    batch_size: int = 32,
    seed: int = 0,
    old: int = 0,
    decay: bool = True,
    watch: Callable[[int], bool] | None = None,
) -> list[float]:
    """Train the parameters in `groups` (of an optimiser, each with its step size) in place; return every step's loss.

    Adam with a short warm-up and, with `decay`, a linear decay; the same batches whatever is trained. `old` sentences of
    each batch are translated among the four languages. `watch` gets the number of steps taken after each step, with the
    model in evaluation mode, and ends the training by returning True.
    """
    rng = np.random.default_rng(seed)
    optimiser = torch.optim.Adam(groups, betas=(0.9, 0.98))
    last = lambda t: (steps - t) / (0.9 * steps) if decay else 1.0  # noqa: E731
    shape = lambda t: min((t + 1) / (steps / 10), last(t), 1.0)  # noqa: E731
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, shape)
    attention = model.config._attn_implementation
    model.set_attn_implementation("eager")  # faster backwards on short sentences
    model.train()
    losses = []
    for step in range(1, steps + 1):
        rows = rng.integers(texts.n_meanings, size=batch_size).tolist()
        batch, _, _ = draw_batch(texts, tokenizer, rows, rng, target=FIFTH, old=old)
        loss = batch_loss(model, tokenizer, batch)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_([p for group in groups for p in group["params"]], 1.0)
        optimiser.step()
        schedule.step()
        losses.append(loss.item())
        if watch is not None:
            model.eval()
            if watch(step):
                break
            model.train()
    model.zero_grad(set_to_none=True)  # as large as the model, and of no use any more
    model.set_attn_implementation(attention)
    model.eval()
    return losses


@torch.no_grad()
def fifth_scores(
    model: MBartForConditionalGeneration,
    tokenizer: MBart50Tokenizer,
    texts: Texts,
    *,
    n: int,
    exact: bool = True,
) -> dict[str, float]:
    """Loss a token into the fifth language and among the four, and the share of translations that are word by word right.

    On the first `n` meanings of `texts`; with `exact` false only the losses, which are much faster.
    """
    found = {}
    for name, target in (("fifth", FIFTH), ("four", None)):
        batch, sources, targets = draw_batch(
            texts, tokenizer, range(n), np.random.default_rng(12345), target=target
        )
        found[f"{name}_loss"] = batch_loss(model, tokenizer, batch).item()
        if exact:
            written = translate(model, tokenizer, sources, [target[0] for target in targets])
            found[f"{name}_exact"] = sum(a == b for a, b in zip(written, targets, strict=True)) / n
    return found
