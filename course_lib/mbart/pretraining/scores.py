"""How good a pretrained model is, on meanings that it was not trained on."""

import random
from itertools import permutations

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from transformers import MBart50Tokenizer, MBartForConditionalGeneration

from course_lib.language.corpus import LANGUAGES, draw_meanings, minimal_pairs, render
from course_lib.mbart.activations import pooled_states
from course_lib.mbart.pretraining.config import PretrainConfig
from course_lib.mbart.pretraining.examples import Texts, flatten, noised, translation_pair
from course_lib.mbart.translation import IGNORED, pad_rows, translate

_SEED = 12345
_BATCH = 64


def held_out_scores(
    model: MBartForConditionalGeneration,
    tokenizer: MBart50Tokenizer,
    config: PretrainConfig,
    *,
    n_scored: int,
    progress: bool = True,
) -> dict[str, float]:
    """All scores on `n_scored` documents, pairs and candidates, by the names used in the model card."""
    return {
        **denoising_scores(model, tokenizer, config, n_documents=n_scored),
        **translation_scores(model, tokenizer, n_pairs=n_scored),
        **retrieval_scores(model, tokenizer, n_candidates=n_scored, progress=progress),
        **hard_retrieval_scores(model, tokenizer, n_meanings=n_scored, progress=progress),
    }


@torch.inference_mode()
def denoising_scores(
    model: MBartForConditionalGeneration,
    tokenizer: MBart50Tokenizer,
    config: PretrainConfig,
    *,
    n_documents: int,
    texts: Texts | None = None,
) -> dict[str, float]:
    """Loss a token and share of masked words that are predicted right, with the true words before them.

    Documents of 1 to `config.max_document` sentences, in all languages, noised as in training: of `texts`, or else
    of the generated language.
    """
    rng = np.random.default_rng(_SEED)
    texts = texts or _test_texts(tokenizer, n_documents)
    loss_sum, tokens, found, masked_words = 0.0, 0, 0, 0
    for start in range(0, n_documents, _BATCH):
        rows, targets, masks = [], [], []
        for index in range(start, min(start + _BATCH, n_documents)):
            language = texts.languages[index % len(texts.languages)]
            size = 1 + (index // len(texts.languages)) % config.max_document
            document = [texts.words(language, i) for i in rng.integers(texts.n_meanings, size=size).tolist()]
            corrupted = noised(document, tokenizer, config, rng)
            code = tokenizer.lang_code_to_id[language]
            rows.append([code, *corrupted.ids])
            targets.append([code, *flatten(document, tokenizer.eos_token_id)])
            masks.append(_token_ranges(document, corrupted.masked))
        losses, right = teacher_forced(model, tokenizer, rows, targets)
        for row, target in enumerate(targets):
            loss_sum += losses[row, : len(target)].sum().item()
            tokens += len(target)
            found += sum(bool(right[row, first:last].all()) for first, last in masks[row])
            masked_words += len(masks[row])
    return {"denoising_loss": loss_sum / tokens, "masked_word_accuracy": found / masked_words}


@torch.inference_mode()
def translation_scores(
    model: MBartForConditionalGeneration, tokenizer: MBart50Tokenizer, *, n_pairs: int
) -> dict[str, float]:
    """Loss a token of the right translation, and the share of greedy translations that equal it.

    Over random pairs of languages. There is one right translation: the corpus says a meaning in one way.
    """
    rng = np.random.default_rng(_SEED)
    texts = _test_texts(tokenizer, n_pairs)
    pairs = sorted((translation_pair(texts, tokenizer, rng) for _ in range(n_pairs)), key=lambda p: len(p[0]))
    loss_sum, tokens, exact = 0.0, 0, 0
    for start in range(0, n_pairs, _BATCH):
        sources, targets = zip(*pairs[start : start + _BATCH], strict=True)
        losses, _ = teacher_forced(model, tokenizer, sources, targets)
        loss_sum += losses.sum().item()  # zero where a row is filled up
        tokens += sum(map(len, targets))
        written = translate(model, tokenizer, sources, [target[0] for target in targets])
        exact += sum(a == list(b) for a, b in zip(written, targets, strict=True))
    return {"translation_loss": loss_sum / tokens, "translation_exact_match": exact / n_pairs}


def retrieval_scores(
    model: MBartForConditionalGeneration,
    tokenizer: MBart50Tokenizer,
    *,
    n_candidates: int,
    progress: bool = True,
) -> dict[str, float]:
    """Share of sentences whose nearest candidate in another language is their translation.

    Nearest by cosine of mean-pooled encoder states; chance is 1 / n_candidates.
    """
    meanings = draw_meanings(n_candidates, seed=_SEED, split="test")
    sentences = [render(m, language) for language in LANGUAGES for m in meanings]
    states = pooled_states(model, tokenizer, sentences, progress=progress).encoder
    by_language = dict(zip(LANGUAGES, states.split(n_candidates), strict=True))
    top1 = [retrieval_top1(by_language[a], by_language[b]) for a, b in permutations(LANGUAGES, 2)]
    return {"retrieval_top1": float(np.mean(top1)), "retrieval_top1_worst_pair": min(top1)}


def hard_retrieval_scores(
    model: MBartForConditionalGeneration,
    tokenizer: MBart50Tokenizer,
    *,
    n_meanings: int,
    progress: bool = True,
) -> dict[str, float]:
    """Share of sentences whose translation is nearer than all sentences that differ from it in one concept.

    Nearest by cosine of mean-pooled encoder states, over all ordered pairs of languages; the candidates of a
    sentence are its translation and the `minimal_pairs` of its meaning in the other language. Chance is one
    over their number, of which the mean is returned too.
    """
    rng = random.Random(_SEED)
    groups = [[m, *minimal_pairs(m, rng)] for m in draw_meanings(n_meanings, seed=_SEED, split="test")]
    sizes = [len(group) for group in groups]
    states = {}
    for language in LANGUAGES:
        sentences = [render(m, language) for group in groups for m in group]
        pooled = pooled_states(model, tokenizer, sentences, progress=progress).encoder
        states[language] = torch.nn.functional.normalize(pooled).split(sizes)
    found = [
        float(np.mean([int((b @ a[0]).argmax()) == 0 for a, b in zip(states[p], states[q], strict=True)]))
        for p, q in permutations(LANGUAGES, 2)
    ]
    return {
        "hard_retrieval_top1": float(np.mean(found)),
        "hard_retrieval_top1_worst_pair": min(found),
        "hard_retrieval_candidates": float(np.mean(sizes)),
    }


def retrieval_top1(
    queries: Float[Tensor, "sentences d_model"], candidates: Float[Tensor, "sentences d_model"]
) -> float:
    """Share of queries whose nearest candidate by cosine is the one in the same row."""
    normalise = torch.nn.functional.normalize
    nearest = (normalise(queries) @ normalise(candidates).T).argmax(dim=1)
    return (nearest == torch.arange(len(queries))).float().mean().item()


def _test_texts(tokenizer: MBart50Tokenizer, n_meanings: int) -> Texts:
    meanings = draw_meanings(n_meanings, seed=_SEED, split="test")
    return Texts({lang: [render(m, lang).text for m in meanings] for lang in LANGUAGES}, tokenizer)


def _token_ranges(document, masked: frozenset[tuple[int, int]]) -> list[tuple[int, int]]:
    """Where the masked words stand in the target, which begins with a language code."""
    ranges, position = [], 1
    for s, sentence in enumerate(document):
        for w, word in enumerate(sentence):
            if (s, w) in masked:
                ranges.append((position, position + len(word)))
            position += len(word)
        position += 1  # the separator
    return ranges


def teacher_forced(model, tokenizer, sources, targets) -> tuple[Tensor, Tensor]:
    """Loss of every target token, and whether it is the most probable one."""
    inputs = pad_rows(sources, tokenizer.pad_token_id).to(model.device)
    labels = pad_rows(targets, IGNORED).to(model.device)
    logits = model(
        input_ids=inputs, attention_mask=inputs != tokenizer.pad_token_id, labels=labels
    ).logits.float()
    losses = torch.nn.functional.cross_entropy(
        logits.transpose(1, 2), labels, reduction="none", ignore_index=IGNORED
    )
    return losses, logits.argmax(dim=-1) == labels
