"""Text that a model has not read: noticed by its unknown pieces, and by the model's own loss where its corpus is known.

What autoencoders find in the states of such text says little about the text, however well they are trained.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from course_lib.language.corpus import LANGUAGES, Sentence, generate

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

UNKNOWN_FROM = 0.01  # share of unknown pieces from which a text is called foreign
UNREAD_LOSS = (
    1.0  # nats a token; of 600 held-out sentences of the corpus none has more than 0.7, half less than 0.002
)
UNREAD_FROM = 0.1  # share of the sample from which a text is called unread
SAMPLE = 100
_BATCH = 32


def unknown_pieces(pieces: Sequence[str], tokenizer: "PreTrainedTokenizerBase") -> list[str]:
    """A warning where many of a text's pieces are unknown to the tokenizer, else none."""
    share = sum(piece == tokenizer.unk_token for piece in pieces) / max(len(pieces), 1)
    if share < UNKNOWN_FROM:
        return []
    return [
        f"{share:.1%} of the text's pieces are unknown to the model's tokenizer: it was made for other text, whose "
        "states say more; choose a model that knows this script and language"
    ]


def unread_by_shipped(
    name: str, model: "PreTrainedModel", tokenizer: "PreTrainedTokenizerBase", sentences: Sequence[Sentence]
) -> list[str]:
    """A warning where the shipped model of that name cannot read sentences back as it can those of its corpus, else none.

    A sample of the text, and as many held-out sentences of the corpus, are read and predicted again in their own
    language; a sentence without one in that of the corpus's languages that suits it best.
    """
    step = max(len(sentences) // SAMPLE, 1)
    of_text = _losses(model, tokenizer, sentences[::step][:SAMPLE])
    share = (of_text > UNREAD_LOSS).double().mean().item()
    if share < UNREAD_FROM:
        return []
    own = _losses(model, tokenizer, generate(SAMPLE, seed=1, split="test"))
    return [
        f"{name} has read nothing but the generated corpus of this course, and this text is another: reading "
        f"a sentence back costs it {of_text.median().item():.2g} nats a token (median of {len(of_text)}), one of its "
        f"corpus {own.median().item():.2g}; {share:.0%} of the text is beyond it. So its states say little about "
        "other text; choose a model that was trained on such text, for instance facebook/mbart-large-50"
    ]


@torch.no_grad()
def _losses(
    model: "PreTrainedModel", tokenizer: "PreTrainedTokenizerBase", sentences: Sequence[Sentence]
) -> Float[Tensor, " sentences"]:
    """Cross-entropy a token of each sentence, read and predicted in one language."""
    from course_lib.mbart.activations import tokenise
    from course_lib.mbart.examples import IGNORED
    from course_lib.mbart.splicing import log_probabilities, padded_pairs

    spoken = [
        replace(s, language=code) for s in sentences for code in ([s.language] if s.language else LANGUAGES)
    ]
    rows, losses = tokenise(tokenizer, spoken), []
    for start in range(0, len(rows), _BATCH):
        some = rows[start : start + _BATCH]
        inputs, labels = padded_pairs(some, some, model)
        counted = labels != IGNORED
        found = log_probabilities(model, inputs, counted).gather(1, labels[counted][:, None])[:, 0]
        sums = torch.zeros(len(some), device=found.device).index_add(0, counted.nonzero()[:, 0], -found)
        losses.append((sums / counted.sum(dim=1)).cpu())
    every = torch.cat(losses).split([1 if s.language else len(LANGUAGES) for s in sentences])
    return torch.stack([of_sentence.min() for of_sentence in every])
