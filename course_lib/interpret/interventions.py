"""Do features cause what they are named for? Edit states while a model translates, and read the translation.

A feature that detects "hammer" need not be what the model uses to write it. To find out, change the feature while the
model translates: did the word for "hammer" change, and did anything else?

1. An `Edit` says what happens to states. `edit_tokens` and `edit_all_tokens` say to which; `translate_edited` runs it.
2. Controls move states as far as an edit does: `move_randomly`, `edit_other_feature`.
3. On the generated language the answer is exact: `measure_effects` compares translations with what a `Case` allows,
   and `outcomes.Outcome` counts.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import normalize

from course_lib.interpret.concepts import token_concepts
from course_lib.language.corpus import Sentence
from course_lib.language.word_cases import Case, Effect, compare, split_words
from course_lib.sae import Autoencoder

if TYPE_CHECKING:
    from course_lib.mbart.packed import Site
    from course_lib.mbart.translation import PreTrainedModel, PreTrainedTokenizerBase

Rows = Float[Tensor, "rows d_model"]
Edit = Callable[[Tensor, Tensor], Tensor]
"""New states (rows, d_model) from states and the number of the sentence of each row (rows,)."""
TokenEdit = Callable[[Tensor, Tensor, Tensor], Tensor]
"""An edit that is also given the position of each row's token in its sentence (rows,)."""


# --- Translating under edits -----------------------------------------------------------------------


def translate_edited(
    model: "PreTrainedModel",
    tokenizer: "PreTrainedTokenizerBase",
    sentences: Sequence[Sentence],
    targets: Sequence[str | None],
    edits: "Mapping[Site, TokenEdit]",
    *,
    batch_size: int = 100,
) -> list[str]:
    """Translate sentences greedily into the languages `targets` while `edits` act on the states of their sites.

    Language code and `</s>` keep their states. A target is None for a model without language codes. Raises ValueError
    for a site or a language that the model does not have.
    """
    from course_lib.mbart.activations import tokenise, uncounted_ids
    from course_lib.mbart.families import languages
    from course_lib.mbart.splicing import replaced
    from course_lib.mbart.translation import translate

    code_of = {None: None} | languages(tokenizer)
    if unknown := set(targets) - code_of.keys():
        raise ValueError(
            f"targets has {min(unknown)!r}; expected languages of the model, such as {list(code_of)[1:4]}"
        )
    rows = tokenise(tokenizer, sentences)
    codes = [code_of[target] for target in targets]
    skipped = uncounted_ids(tokenizer, include_special=False)
    order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
    found = [""] * len(rows)
    for start in range(0, len(order), batch_size):
        chosen = order[start : start + batch_size]
        numbers = torch.tensor(chosen, device=model.device)
        with ExitStack() as hooks:
            for site, edit in edits.items():
                hook = _number_rows(edit, numbers)
                hooks.enter_context(replaced(model, site, hook, skipped_ids=skipped, with_places=True))
            written = translate(model, tokenizer, [rows[i] for i in chosen], [codes[i] for i in chosen])
        for i, ids in zip(chosen, written, strict=True):
            # One that does not end goes on for as long as the longest sentence of its batch allows, and is ended there.
            found[i] = tokenizer.decode(ids[: 2 * len(rows[i]) + 16], skip_special_tokens=True)
    return found


def _number_rows(edit: TokenEdit, numbers: Tensor) -> Callable[[Tensor, Tensor], Tensor]:
    """Give an edit the numbers that sentences have among all, in place of those in their batch."""
    return lambda x, places: edit(x, numbers[places[:, 0]], places[:, 1])


def measure_effects(
    model: "PreTrainedModel",
    tokenizer: "PreTrainedTokenizerBase",
    cases: Sequence[Case],
    edits: "Mapping[Site, TokenEdit]",
) -> list[Effect]:
    """Translate all cases under edits, and compare each translation with what its case allows."""
    return [
        compare(c, text) for c, text in zip(cases, _translate(model, tokenizer, cases, edits), strict=True)
    ]


def keep_correct(
    model: "PreTrainedModel", tokenizer: "PreTrainedTokenizerBase", cases: Sequence[Case]
) -> list[Case]:
    """Return the cases that the model translates correctly, word for word, without any edit."""
    written = _translate(model, tokenizer, cases, {})
    return [c for c, text in zip(cases, written, strict=True) if split_words(text) == c.renderings[c.concept]]


def _translate(model, tokenizer, cases: Sequence[Case], edits) -> list[str]:
    sentences, targets = [case.sentence for case in cases], [case.target for case in cases]
    return translate_edited(model, tokenizer, sentences, targets, edits)


def find_word_tokens(
    tokenizer: "PreTrainedTokenizerBase", cases: Sequence[Case]
) -> Bool[Tensor, "cases tokens"]:
    """Return which tokens of each case's sentence belong to the concept's word; the language code is token 0."""
    held = []
    for case in cases:
        # The language code comes first whatever the language, and has no characters.
        offsets = tokenizer(case.sentence.text, return_offsets_mapping=True)["offset_mapping"]
        held.append([case.concept in concepts for concepts in token_concepts(case.sentence.words, offsets)])
    table = torch.zeros(len(cases), max(map(len, held), default=0), dtype=torch.bool)
    for row, own in zip(table, held, strict=True):
        row[: len(own)] = torch.tensor(own)
    return table


# --- Edits -----------------------------------------------------------------------------------------


def edit_tokens(tokens: Bool[Tensor, "sentences tokens"], edit: Edit) -> TokenEdit:
    """Edit the states of some tokens of each sentence, such as `find_word_tokens`."""

    def edit_chosen(x: Tensor, sentence: Tensor, token: Tensor) -> Tensor:
        chosen = tokens[sentence, token]
        edited = x.clone()
        edited[chosen] = edit(x[chosen], sentence[chosen])
        return edited

    return edit_chosen


def edit_all_tokens(edit: Edit) -> TokenEdit:
    """Edit the states of all tokens."""
    return lambda x, sentence, token: edit(x, sentence)


def edit_features(
    autoencoder: Autoencoder,
    features: Bool[Tensor, "sentences code"],
    *,
    factor: float | int = 0,
    values: Float[Tensor, "sentences code"] | None = None,
) -> Edit:
    """Multiply some features of each sentence by a factor, then set those with `values` above 0 to them.

    x <- x + decode(f') - decode(f), so what the autoencoder does not reconstruct stays. A factor of 0 switches features
    off; with the features of one word off and `values` of another word's, one word is exchanged for the other.
    """

    @torch.no_grad()
    def edit(x: Rows, sentence: Tensor) -> Rows:
        code = autoencoder.encode(x)
        edited = torch.where(features[sentence], factor * code, code)
        if values is not None:
            edited = torch.where(values[sentence] > 0, values[sentence], edited)
        return x + (autoencoder.decode(edited) - autoencoder.decode(code))

    return edit


def erase_direction(
    directions: Float[Tensor, "sentences d_model"], centres: Float[Tensor, "sentences d_model"]
) -> Edit:
    """Give states the component of `centres` along a direction: x <- x - ((x - m) . u) u, u of length 1."""
    unit = normalize(directions)
    return lambda x, i: x - ((x - centres[i]) * unit[i]).sum(dim=1, keepdim=True) * unit[i]


def add_vectors(vectors: Float[Tensor, "sentences d_model"]) -> Edit:
    """Add a vector to the states of each sentence."""
    return lambda x, sentence: x + vectors[sentence]


def reconstruct(autoencoder: Autoencoder) -> Edit:
    """Replace states by their reconstructions: a control in which no feature is edited."""
    return lambda x, sentence: autoencoder(x).detach()


def move_randomly(edit: Edit, generator: torch.Generator) -> Edit:
    """Move every state as far as `edit` does, in a random direction: a control."""

    def control(x: Rows, sentence: Tensor) -> Rows:
        drawn = torch.randn(x.shape, generator=generator).to(x)
        return x + _length(edit, x, sentence) * normalize(drawn)

    return control


def edit_other_feature(
    autoencoder: Autoencoder,
    features: Int[Tensor, " sentences"],
    allowed: Bool[Tensor, "sentences code"],
    *,
    like: Edit | None = None,
) -> Edit:
    """Switch off, where a sentence's feature fires, the `allowed` active feature nearest to it in strength: a control.

    With `like` states move as far as that edit moves them, against the other feature's decoder direction. A weaker
    feature then goes below 0. Where no other feature fires, nothing happens.
    """
    directions = normalize(autoencoder.decoder_weight.detach().T)
    lengths = autoencoder.decoder_weight.detach().norm(dim=0)

    @torch.no_grad()
    def control(x: Rows, sentence: Tensor) -> Rows:
        code = autoencoder.encode(x)
        strength = code * lengths
        own = strength.gather(1, features[sentence, None])
        fires = (code > 0) & allowed[sentence] & (own > 0)
        fires = fires.scatter(1, features[sentence, None], False)
        nearest = torch.where(fires, (strength - own).abs(), torch.inf).argmin(dim=1, keepdim=True)
        found = fires.any(dim=1, keepdim=True)
        if like is None:
            off = code.scatter(1, nearest, torch.where(found, 0, code.gather(1, nearest)))
            return x + (autoencoder.decode(off) - autoencoder.decode(code))
        return x - found * _length(like, x, sentence) * directions[nearest[:, 0]]

    return control


def _length(edit: Edit, x: Tensor, sentence: Tensor) -> Float[Tensor, "rows 1"]:
    return (edit(x, sentence) - x).norm(dim=1, keepdim=True)
