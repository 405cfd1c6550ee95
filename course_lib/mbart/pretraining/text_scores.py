"""How good a model that was pretrained on parallel text is, on rows that were held out."""

from itertools import permutations

import numpy as np
import torch
from transformers import MBart50Tokenizer, MBartForConditionalGeneration

from course_lib.language.corpus import Sentence
from course_lib.mbart.activations import pooled_states
from course_lib.mbart.pretraining.config import TextConfig
from course_lib.mbart.pretraining.examples import Texts
from course_lib.mbart.pretraining.scores import denoising_scores, retrieval_top1, teacher_forced
from course_lib.mbart.translation import translate

_SEED = 12345
_BATCH = {"cpu": 64, "cuda": 500}


def held_out_text_scores(
    model: MBartForConditionalGeneration,
    tokenizer: MBart50Tokenizer,
    config: TextConfig,
    texts: dict[str, list[str]],
    *,
    n_scored: int,
) -> dict[str, float]:
    """All scores on `n_scored` rows of held-out texts, or on all where there are fewer, by the names of the model card.

    `NAME` is the mean over all ordered pairs of languages, `NAME_en_de` the score of one pair: the loss a token of the
    translation, chrF of the greedy translation (`chrf`) and of the source itself (`chrf_copied`), and the share of
    sentences whose nearest in the other language, by cosine of mean-pooled encoder states, is their translation
    (`retrieval`).
    """
    total = len(next(iter(texts.values())))
    chosen = np.random.default_rng(_SEED).permutation(total)[:n_scored].tolist()
    texts = {code: [column[i] for i in chosen] for code, column in texts.items()}
    read = Texts(texts, tokenizer)
    states = {
        code: pooled_states(
            model, tokenizer, [Sentence(text, code) for text in column], progress=False
        ).encoder
        for code, column in texts.items()
    }
    scores: dict[str, float] = {"rows": float(len(chosen))}
    scores |= denoising_scores(model, tokenizer, config, n_documents=len(chosen), texts=read)
    pairs = list(permutations(texts, 2))
    by_pair = {}
    for source, target in pairs:
        loss, written = _translated(model, tokenizer, read, source, target)
        by_pair[source, target] = {
            "translation_loss": loss,
            "chrf": chrf(written, texts[target]),
            "chrf_copied": chrf(texts[source], texts[target]),
            "retrieval": retrieval_top1(states[source], states[target]),
        }
    for name in by_pair[pairs[0]]:
        values = {pair: found[name] for pair, found in by_pair.items()}
        scores[name] = float(np.mean(list(values.values())))
        scores |= {f"{name}_{a[:2]}_{b[:2]}": value for (a, b), value in values.items()}
    return scores


def chrf(written: list[str], right: list[str]) -> float:
    """chrF of translations, from 0 to 100, by sacrebleu. Raises RuntimeError where that is not installed."""
    return chrf_of_sacrebleu()().corpus_score(written, [right]).score


def chrf_of_sacrebleu() -> type:
    """sacrebleu's class of the score. Raises RuntimeError, with what to install, where there is none."""
    try:
        from sacrebleu.metrics import CHRF
    except ImportError:
        raise RuntimeError(
            "sacrebleu is not installed; install it with: pip install 'course-lib[translation]'"
        ) from None
    return CHRF


@torch.inference_mode()
def _translated(
    model: MBartForConditionalGeneration, tokenizer: MBart50Tokenizer, texts: Texts, source: str, target: str
) -> tuple[float, list[str]]:
    """Loss a token of all rows' translations, and the greedy translations."""
    sides = [
        [
            [tokenizer.lang_code_to_id[code], *texts.sentence(code, i), tokenizer.eos_token_id]
            for i in range(texts.n_meanings)
        ]
        for code in (source, target)
    ]
    order = sorted(range(texts.n_meanings), key=lambda i: (len(sides[0][i]), i))
    written = [""] * texts.n_meanings
    loss_sum, tokens = 0.0, 0
    size = _BATCH.get(model.device.type, _BATCH["cpu"])
    for start in range(0, len(order), size):
        rows = order[start : start + size]
        sources, targets = ([side[i] for i in rows] for side in sides)
        for first in range(0, len(rows), _BATCH["cpu"]):  # logits of fewer rows fit in any memory
            some = slice(first, first + _BATCH["cpu"])
            losses, _ = teacher_forced(model, tokenizer, sources[some], targets[some])
            loss_sum += losses.sum().item()  # zero where a row is filled up
        tokens += sum(map(len, targets))
        found = translate(model, tokenizer, sources, [row[0] for row in targets])
        for i, text in zip(rows, tokenizer.batch_decode(found, skip_special_tokens=True), strict=True):
            written[i] = text
    return loss_sum / tokens, written
