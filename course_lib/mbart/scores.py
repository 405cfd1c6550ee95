"""How good a pretrained model is, on meanings that it was not trained on."""

from itertools import permutations

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from transformers import MBart50Tokenizer, MBartForConditionalGeneration

from course_lib.mbart.activations import pooled_states
from course_lib.mbart.corpus import LANGUAGES, draw_meanings, render
from course_lib.mbart.pretrain import PretrainConfig, flatten, noised, translation_batch, words_of

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
        "translation_loss": translation_loss(model, tokenizer, config, n_pairs=n_scored),
        **retrieval_scores(model, tokenizer, n_candidates=n_scored, progress=progress),
    }


@torch.inference_mode()
def denoising_scores(
    model: MBartForConditionalGeneration,
    tokenizer: MBart50Tokenizer,
    config: PretrainConfig,
    *,
    n_documents: int,
) -> dict[str, float]:
    """Loss a token and share of masked words that are predicted right, with the true words before them.

    Documents of 1 to `config.max_document` sentences, in all languages, noised as in training.
    """
    rng = np.random.default_rng(_SEED)
    texts = _test_words(tokenizer, n_documents)
    loss_sum, tokens, found, masked_words = 0.0, 0, 0, 0
    for start in range(0, n_documents, _BATCH):
        rows, targets, masks = [], [], []
        for index in range(start, min(start + _BATCH, n_documents)):
            language = LANGUAGES[index % len(LANGUAGES)]
            size = 1 + (index // len(LANGUAGES)) % config.max_document
            document = [texts[language][i] for i in rng.integers(n_documents, size=size)]
            corrupted = noised(document, tokenizer, config, rng)
            code = tokenizer.lang_code_to_id[language]
            rows.append([code, *corrupted.ids])
            targets.append([code, *flatten(document, tokenizer.eos_token_id)])
            masks.append(_token_ranges(document, corrupted.masked))
        losses, right = _teacher_forced(model, tokenizer, rows, targets)
        for row, target in enumerate(targets):
            loss_sum += losses[row, : len(target)].sum().item()
            tokens += len(target)
            found += sum(bool(right[row, first:last].all()) for first, last in masks[row])
            masked_words += len(masks[row])
    return {"denoising_loss": loss_sum / tokens, "masked_word_accuracy": found / masked_words}


@torch.inference_mode()
def translation_loss(
    model: MBartForConditionalGeneration, tokenizer: MBart50Tokenizer, config: PretrainConfig, *, n_pairs: int
) -> float:
    """Loss a token of the translation, over random pairs of languages."""
    rng = np.random.default_rng(_SEED)
    texts = _test_words(tokenizer, n_pairs)
    loss_sum, tokens = 0.0, 0
    for _ in range(0, n_pairs, config.batch_size):
        inputs, labels = translation_batch(texts, tokenizer, config, rng)
        count = int((labels != -100).sum())
        output = model(input_ids=inputs, attention_mask=inputs != tokenizer.pad_token_id, labels=labels)
        loss_sum += output.loss.item() * count
        tokens += count
    return loss_sum / tokens


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


def retrieval_top1(
    queries: Float[Tensor, "sentences d_model"], candidates: Float[Tensor, "sentences d_model"]
) -> float:
    """Share of queries whose nearest candidate by cosine is the one in the same row."""
    normalise = torch.nn.functional.normalize
    nearest = (normalise(queries) @ normalise(candidates).T).argmax(dim=1)
    return (nearest == torch.arange(len(queries))).float().mean().item()


def _test_words(tokenizer: MBart50Tokenizer, n_meanings: int):
    meanings = draw_meanings(n_meanings, seed=_SEED, split="test")
    return {lang: words_of(tokenizer, [render(m, lang).text for m in meanings]) for lang in LANGUAGES}


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


def _teacher_forced(model, tokenizer, sources: list[list[int]], targets: list[list[int]]):
    """Loss of every target token, and whether it is the most probable one."""
    pad = torch.nn.utils.rnn.pad_sequence
    inputs = pad([torch.tensor(s) for s in sources], batch_first=True, padding_value=tokenizer.pad_token_id)
    labels = pad([torch.tensor(t) for t in targets], batch_first=True, padding_value=-100)
    logits = model(
        input_ids=inputs, attention_mask=inputs != tokenizer.pad_token_id, labels=labels
    ).logits.float()
    losses = torch.nn.functional.cross_entropy(logits.transpose(1, 2), labels, reduction="none")
    return losses, logits.argmax(dim=-1) == labels
