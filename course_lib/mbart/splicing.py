"""Put an autoencoder's reconstruction back into an encoder-decoder: the loss that it recovers, and steering by features.

Both replace, while a block of code runs, the states at one site. Pads are never touched, so that a sentence comes
out the same whatever it is batched with. With `skipped_ids=uncounted_ids(tokenizer, False)` the language code and
`</s>` keep their states, and exactly the rows that `extract` gives by default are replaced.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from tqdm.auto import tqdm
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from course_lib.language.corpus import Sentence
from course_lib.mbart import structure
from course_lib.mbart.activations import tokenise, uncounted_ids
from course_lib.mbart.families import forced, shifted
from course_lib.mbart.packed import Site
from course_lib.mbart.translation import IGNORED, pad_rows

HiddenStates = Float[Tensor, "rows d_model"]


@runtime_checkable
class Reconstructs(Protocol):
    """What is asked of an autoencoder here; those of `course_lib.sae` have it."""

    d_model: int

    @property
    def code_width(self) -> int:
        """Number of features."""

    def encode(self, x: Tensor) -> Tensor:
        """Codes (rows, code_width) of states (rows, d_model)."""

    def decode(self, code: Tensor) -> Tensor:
        """States that codes stand for."""

    def forward(self, x: Tensor) -> Tensor:
        """Reconstructions of states."""

    def state_dict(self) -> Mapping[str, Tensor]:
        """Its tensors, whose device and dtype states are brought to."""


# --- replacing states ------------------------------------------------------------------------------


@contextmanager
def replaced(
    model: PreTrainedModel,
    site: Site,
    replace: Callable[..., Tensor],
    *,
    skipped_ids: Int[Tensor, " ids"] | Sequence[int] = (),
    with_places: bool = False,
) -> Iterator[None]:
    """While the block runs, pass the states at `site` through `replace`; in `model.generate` too.

    `replace` gets the rows (rows, d_model) of all positions that are not padding and whose token is not in
    `skipped_ids`, in order, and gives as many rows back. With `with_places` it also gets (rows, 2): each row's
    sentence in the batch and its token among those that are read now (with a cache, the decoder reads one at a
    time). The hooks are removed however the block ends.

    Raises ValueError for a site that the model does not have, and inside the block where a model computes other
    positions there than those of its tokens (LED, ProphetNet).
    """
    stack = structure.stack(model, site.side)
    place = site.resolved(model.config)
    pad = model.config.pad_token_id
    # The decoders of Marian and of T5 begin with a pad that is none.
    start = getattr(model.config, "decoder_start_token_id", None)
    starts_with_pad = site.side == "decoder" and start == pad
    skipped = torch.as_tensor(skipped_ids, dtype=torch.long)
    counts: Bool[Tensor, "sentences tokens"] | None = None

    def notice(_: nn.Module, args: tuple, inputs: dict[str, Any]) -> None:
        nonlocal counts
        ids = args[0] if args else inputs.get("input_ids")
        if ids is None:
            raise RuntimeError("the model was given inputs_embeds; to replace states it must read input_ids")
        counts = ids != pad
        cache = inputs.get("past_key_values")
        if starts_with_pad and (cache is None or cache.get_seq_length() == 0):
            counts[:, 0] = True
        counts &= ~torch.isin(ids, skipped.to(ids.device))
        mask = inputs.get("attention_mask")
        if mask is not None and mask.ndim == 2:
            # With a cache the mask covers what was read before, too.
            counts &= mask[:, -ids.shape[1] :].bool()

    def changed(states: Tensor) -> Tensor:
        if states.shape[:2] != counts.shape:
            raise ValueError(
                f"{type(model).__name__} computes states of shape {tuple(states.shape)} at {site} for ids of shape "
                f"{tuple(counts.shape)}; only those of one state a token can be replaced"
            )
        if not counts.any():
            return states
        found = states.clone()
        places = (counts.nonzero(),) if with_places else ()
        found[counts] = replace(states[counts], *places).to(states.dtype)
        return found

    hooks = [stack.register_forward_pre_hook(notice, with_kwargs=True), structure.hook(model, place, changed)]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


@contextmanager
def spliced(
    model: PreTrainedModel,
    autoencoder: Reconstructs,
    site: Site,
    *,
    skipped_ids: Int[Tensor, " ids"] | Sequence[int] = (),
) -> Iterator[None]:
    """While the block runs, the states at `site` are the autoencoder's reconstructions. See `replaced`."""
    check_width(autoencoder, model, site)
    with replaced(model, site, in_its_dtype(autoencoder, autoencoder.forward), skipped_ids=skipped_ids):
        yield


@contextmanager
def steered(
    model: PreTrainedModel,
    autoencoder: Reconstructs,
    site: Site,
    changes: Mapping[int, float | int],
    *,
    mode: Literal["factor", "value"] = "factor",
    skipped_ids: Int[Tensor, " ids"] | Sequence[int] = (),
) -> Iterator[None]:
    """While the block runs, features are switched off, up or to a value; in `model.generate` too.

    x <- x + decode(f') - decode(f) with f the code of x and f'_i = c f_i for `changes` {i: c}, or f'_i = c with
    `mode="value"`. What the autoencoder does not reconstruct stays in x: a change of nothing changes nothing.
    A factor acts only where the feature is active, a value at every position that counts.

    Raises ValueError for a feature that the autoencoder does not have, a number that is not finite, an unknown
    mode, an autoencoder of another width than the model, and a site that the model does not have; and inside the
    block for a number with which the states are too large for the model's dtype.
    """
    check_width(autoencoder, model, site)
    if mode not in ("factor", "value"):
        raise ValueError(f"mode is {mode!r}; expected 'factor' or 'value'")
    for feature, number in changes.items():
        if not 0 <= feature < autoencoder.code_width:
            raise ValueError(f"feature is {feature}; the autoencoder has 0 to {autoencoder.code_width - 1}")
        if not math.isfinite(number):
            raise ValueError(f"the {mode} of feature {feature} is {number}; expected a finite number")
    reference = _reference(autoencoder)
    features = torch.tensor(list(changes), dtype=torch.long, device=reference.device)
    numbers = torch.tensor(list(changes.values()), dtype=reference.dtype, device=reference.device)

    @torch.no_grad()
    def change(x: HiddenStates) -> HiddenStates:
        code = autoencoder.encode(x)
        changed = code.clone()
        changed[:, features] = numbers * code[:, features] if mode == "factor" else numbers
        found = x + (autoencoder.decode(changed) - autoencoder.decode(code))
        check_states(found, dtype=model.dtype, why=f"a {mode} in changes is too large")
        return found

    with replaced(model, site, in_its_dtype(autoencoder, change), skipped_ids=skipped_ids):
        yield


def in_its_dtype(
    autoencoder: Reconstructs, function: Callable[[Tensor], Tensor]
) -> Callable[[Tensor], Tensor]:
    """The function on the autoencoder's device and in its dtype."""
    reference = _reference(autoencoder)
    return lambda x: function(x.to(reference)).to(x)


def check_states(states: HiddenStates, *, dtype: torch.dtype, why: str) -> None:
    """Raise ValueError, with `why`, where states are too large for a model of this dtype.

    They are finite in it, and so are their squared lengths in float32: normalisation computes these, and makes
    zeros of a row whose squared length is infinite.
    """
    squares = states.to(dtype).float().square().sum(dim=-1)
    if not torch.isfinite(squares).all():
        raise ValueError(f"{why}; the states of the model would not be finite")


def _reference(autoencoder: Reconstructs) -> Tensor:
    """A tensor of the device and dtype that the autoencoder computes in."""
    return next(value for value in autoencoder.state_dict().values() if value.is_floating_point())


def check_width(autoencoder: Reconstructs, model: PreTrainedModel, site: Site) -> None:
    """Raise ValueError unless the autoencoder reads states of the width that the model's have at the site."""
    width = structure.width(model, site.side)
    if autoencoder.d_model != width:
        raise ValueError(
            f"the autoencoder has d_model {autoencoder.d_model}, the model {width}; "
            "expected an autoencoder of this model's states"
        )


# --- loss recovered --------------------------------------------------------------------------------


@dataclass(frozen=True)
class SplicedLoss:
    """The decoder's cross-entropy, in nats a token, with the states at a site clean and replaced.

    `kl_*` are the means over the same tokens of KL(clean || replaced) of the output distribution.
    """

    site: str
    n_tokens: int
    clean: float
    spliced: float
    mean_ablated: float
    zero_ablated: float
    kl_spliced: float
    kl_mean_ablated: float
    kl_zero_ablated: float

    @property
    def recovered(self) -> float:
        """(CE_zero - CE_spliced) / (CE_zero - CE_clean): 1 if nothing is lost, 0 if as much as by zeros.

        NaN where zeros do not raise the loss.
        """
        if self.zero_ablated <= self.clean:
            return math.nan
        return (self.zero_ablated - self.spliced) / (self.zero_ablated - self.clean)


@torch.no_grad()
def loss_recovered(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    autoencoder: Reconstructs,
    site: Site,
    sources: Sequence[Sentence],
    targets: Sequence[Sentence],
    *,
    include_special: bool = False,
    batch_size: int = 16,
    progress: bool = True,
) -> SplicedLoss:
    """How much worse mBART predicts each target from its source with the states at `site` reconstructed.

    The encoder reads `lang X </s>` and the decoder `</s> lang Y`; the cross-entropy is over Y and the last `</s>`.
    (The language code, which translation forces, is not predicted.) The states at `site` are as they are, the
    reconstructions, their mean over all given pairs, or zeros. Replaced are the rows that `extract` gives:
    with `include_special` also those of the language code and `</s>`. Without dropout.

    Raises ValueError for no pairs, another number of targets than of sources, an unknown language, an
    autoencoder of another width than the model, and a site that the model does not have.
    """
    check_width(autoencoder, model, site)
    if not sources or len(sources) != len(targets):
        raise ValueError(f"there are {len(sources)} sources and {len(targets)} targets; expected pairs")
    skipped = uncounted_ids(tokenizer, include_special)
    read = tokenise(tokenizer, sources)
    predicted = tokenise(tokenizer, targets, what="target", target=True)
    order = sorted(range(len(read)), key=lambda i: (len(predicted[i]), len(read[i])))
    batches = [
        padded_pairs([read[i] for i in rows], [predicted[i] for i in rows], model)
        for rows in (order[start : start + batch_size] for start in range(0, len(order), batch_size))
    ]
    training = model.training
    model.eval()
    try:
        mean = _mean_state(model, site, batches, skipped)
        variants: dict[str, Callable[[Tensor], Tensor]] = {
            "spliced": in_its_dtype(autoencoder, autoencoder.forward),
            "mean_ablated": lambda x: mean.to(x).expand_as(x),
            "zero_ablated": torch.zeros_like,
        }
        sums = dict.fromkeys(["clean", *variants, *(f"kl_{name}" for name in variants)], 0.0)
        n_tokens = 0
        for inputs, labels in tqdm(batches, desc="loss recovered", unit="batch", disable=not progress):
            counted = labels != IGNORED
            chosen = labels[counted][:, None]
            clean = log_probabilities(model, inputs, counted)
            sums["clean"] -= clean.gather(1, chosen).double().sum().item()
            n_tokens += len(chosen)
            for name, replace in variants.items():
                with replaced(model, site, replace, skipped_ids=skipped):
                    other = log_probabilities(model, inputs, counted)
                sums[name] -= other.gather(1, chosen).double().sum().item()
                sums[f"kl_{name}"] += (clean.exp() * (clean - other)).sum(dim=1).double().sum().item()
    finally:
        model.train(training)
    means = {name: value / n_tokens for name, value in sums.items()}
    return SplicedLoss(site=str(site), n_tokens=n_tokens, **means)


def padded_pairs(
    read: list[list[int]], predicted: list[list[int]], model: PreTrainedModel
) -> tuple[dict[str, Tensor], Tensor]:
    """Padded inputs of the model, and labels in which pads and the language code are ignored.

    Of pairs of token numbers: `lang X </s>` for the encoder, `lang Y </s>` to be predicted, or what frames X and Y
    in the model's family (`tokenise`).
    """
    pad, config = model.config.pad_token_id, model.config
    labels = [[IGNORED if i == forced(row, config) else t for i, t in enumerate(row)] for row in predicted]
    decoder = [shifted(row, config) for row in predicted]
    ids, decoder_ids, labels = (
        pad_rows(rows, value).to(model.device)
        for rows, value in ((read, pad), (decoder, pad), (labels, IGNORED))
    )
    # The decoder needs no mask: it is causal, and the pads stand to the right of all that counts.
    return {
        "input_ids": ids,
        "attention_mask": (ids != pad).long(),
        "decoder_input_ids": decoder_ids,
    }, labels


def log_probabilities(
    model: PreTrainedModel, inputs: dict[str, Tensor], counted: Bool[Tensor, "sentences tokens"]
) -> Float[Tensor, "counted vocabulary"]:
    """Of the next token, in float32, at the positions that count."""
    return model(**inputs, use_cache=False).logits[counted].float().log_softmax(dim=1)


def _mean_state(
    model: PreTrainedModel,
    site: Site,
    batches: list[tuple[dict[str, Tensor], Tensor]],
    skipped: Int[Tensor, " ids"],
) -> Float[Tensor, " d_model"]:
    """Mean over the rows at the site that are replaced."""
    width = structure.width(model, site.side)
    total, n_rows = torch.zeros(width, dtype=torch.float64, device=model.device), 0

    def gather(x: HiddenStates) -> HiddenStates:
        nonlocal n_rows
        total.add_(x.double().sum(dim=0))
        n_rows += len(x)
        return x

    with replaced(model, site, gather, skipped_ids=skipped):
        for inputs, _ in batches:
            model.base_model(**inputs, use_cache=False)
    return total / max(n_rows, 1)
