"""Which features belong to a word: how units and states behave at the tokens of each concept's words."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from course_lib.interpret.concepts import token_concepts
from course_lib.language.corpus import Sentence

if TYPE_CHECKING:
    from course_lib.mbart.translation import PreTrainedTokenizerBase


@dataclass(frozen=True)
class WordTable:
    """How units and states behave at the tokens of words, one row for each concept.

    `recall` is the share of the concept's tokens at which a unit is above 0, `precision` the share of the tokens at
    which a unit is above 0 that are the concept's; `activation` and `state` are means over the concept's tokens.
    `n_tokens` counts these.
    """

    n_tokens: Int[Tensor, " concepts"]
    recall: Float[Tensor, "concepts code"]
    precision: Float[Tensor, "concepts code"]
    activation: Float[Tensor, "concepts code"]
    state: Float[Tensor, "concepts d_model"]

    @classmethod
    def of(
        cls,
        states: Float[Tensor, "rows d_model"],
        code: Float[Tensor, "rows code"],
        concept: Int[Tensor, " rows"],
        n_concepts: int,
    ) -> "WordTable":
        """Build it from the states of tokens, their codes (a sparse COO table) and the concept of each, or -1."""
        entries = code.coalesce()
        (row, unit), value = entries.indices(), entries.values()
        row, unit, value = row[value > 0], unit[value > 0], value[value > 0]
        held = concept[row] >= 0
        place = concept[row[held]] * code.shape[1] + unit[held]
        size = (n_concepts, code.shape[1])
        fired = place.bincount(minlength=size[0] * size[1]).view(size)
        total = place.bincount(value[held].double(), minlength=size[0] * size[1]).view(size)
        inside = concept >= 0
        n_tokens = concept[inside].bincount(minlength=n_concepts)
        found = states[inside].float()
        sums = found.new_zeros(n_concepts, states.shape[1]).index_add(0, concept[inside], found)
        least = n_tokens.clamp(min=1)[:, None]
        return cls(
            n_tokens=n_tokens,
            recall=fired / least,
            precision=fired / unit.bincount(minlength=size[1]).clamp(min=1),
            activation=(total / least).float(),
            state=sums / least,
        )

    def features(
        self, detectors: Int[Tensor, " concepts"], *, precision: float, recall: float = 0.05
    ) -> Bool[Tensor, "concepts code"]:
        """Return the features of each concept: its detector, and all with at least this precision and recall."""
        found = (self.precision >= precision) & (self.recall >= recall)
        return found.scatter(1, detectors[:, None], True)


def number_concepts(
    tokenizer: "PreTrainedTokenizerBase", sentences: Sequence[Sentence], concepts: Sequence[str]
) -> Int[Tensor, " rows"]:
    """Number the concept whose word each token belongs to; -1 for none.

    Rows are the tokens that `extract` gives for the sentences: without language code and `</s>`.
    """
    number = {concept: i for i, concept in enumerate(concepts)}
    found = []
    for sentence in sentences:
        offsets = tokenizer(sentence.text, return_offsets_mapping=True)["offset_mapping"][1:-1]
        for held in token_concepts(sentence.words, offsets):
            found.append(max((number.get(concept, -1) for concept in held), default=-1))
    return torch.tensor(found)
