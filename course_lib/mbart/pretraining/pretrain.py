"""Pretrain a small mBART: denoising as published, many-to-many translation as mBART-50 adds it, alignment.

Denoising alone gives each language states of its own; translation pairs make one meaning look alike in
all of them, which is what features across languages need. In the last steps a contrastive loss on the
means of encoder states, as in mRASP2 (arXiv:2105.09501), brings translations closest together, with
sentences that differ in one concept among those to be told apart. Text is in the format of mBART-50's
tokenizer: `lang X </s>` on both sides, documents of several sentences as `lang X </s> Y </s>`, and the
decoder reads the target shifted right, `</s> lang X`. (mBART's first release wrote `X </s> lang`.)

A run can be killed at any moment: the same call again goes on from its last checkpoint and ends with
the weights that an uninterrupted run gives.
"""

import hashlib
import io
import json
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from tqdm.auto import tqdm
from transformers import MBart50Tokenizer, MBartConfig, MBartForConditionalGeneration

from course_lib import files
from course_lib.language.corpus import LANGUAGES, render
from course_lib.mbart.activations import uncounted_ids
from course_lib.mbart.pretraining.config import FAMILY, PretrainConfig, TextConfig
from course_lib.mbart.pretraining.examples import (
    Texts,
    denoising_pair,
    draw_families,
    translation_pair,
    translation_pairs,
)
from course_lib.mbart.pretraining.model_card import model_card
from course_lib.mbart.pretraining.scores import held_out_scores
from course_lib.mbart.pretraining.tokenizer import candidate_pieces, train_tokenizer
from course_lib.mbart.translation import IGNORED, pad_rows

# Sequences are drawn for so many batches at once and sorted by length, so that little of a batch is padding.
_WINDOW = 8


def pretrain(
    config: PretrainConfig,
    out: Path,
    *,
    n_scored: int = 1000,
    checkpoint_every: int = 500,
    device: torch.device | str = "cpu",
    progress: bool = True,
) -> dict[str, float]:
    """Train tokenizer and model on `device`, score them on `n_scored` held-out meanings, and write them to `out`.

    `out` then holds what `save_pretrained` writes for both (weights in half precision), `scores.json`,
    a model card, and digests of the files. It appears only when it is complete. Until then a checkpoint (every
    `checkpoint_every` steps, rounded up to whole windows of batches) lies beside it in `.<name>.unfinished`; the same
    call goes on from there. Returns the scores.

    On the CPU the same configuration gives the same weights on the same machine, library versions and number of
    torch threads, however often the run was interrupted. Raises FileExistsError when `out` exists and is
    not an empty directory, ValueError when the checkpoint beside it is of another configuration or damaged.
    """

    def made(checkpoint: Path) -> Made:
        tokenizer, texts = _tokenizer_and_texts(config)
        model = random_model(config, tokenizer, seed=config.seed).to(device)
        started = time.process_time()
        losses, earlier = train(
            model,
            tokenizer,
            texts,
            config,
            checkpoint=checkpoint,
            checkpoint_every=checkpoint_every,
            progress=progress,
        )
        minutes = (earlier + time.process_time() - started) / 60

        model = model.half().float().eval()  # score what is stored
        scores = {"training_cpu_minutes": minutes, "final_training_loss": float(np.mean(losses[-50:]))}
        untrained = random_model(config, tokenizer, seed=config.seed + 1).to(device).eval()
        for prefix, scored in (("", model), ("random_weights_", untrained)):
            measured = held_out_scores(scored, tokenizer, config, n_scored=n_scored, progress=progress)
            scores |= {prefix + name: value for name, value in measured.items()}
        card = model_card(
            config,
            scores,
            name=Path(out).name,
            n_scored=n_scored,
            parameters=model.num_parameters(),
            languages=LANGUAGES,
            device=model.device,
        )
        return Made(model, tokenizer, scores, card)

    return build(config, Path(out), made)


@dataclass(frozen=True)
class Made:
    """A trained model, its tokenizer, its scores and its model card."""

    model: MBartForConditionalGeneration
    tokenizer: MBart50Tokenizer
    scores: dict[str, float]
    card: str


def build(config: PretrainConfig, out: Path, make: Callable[[Path], Made]) -> dict[str, float]:
    """Write what `make` makes to `out`, which appears only when it is complete, and return the scores.

    `make` is given the path of the checkpoint that it continues from and writes to. Where `out` is the model of this
    configuration already, nothing is made. Raises FileExistsError when `out` holds something else.
    """
    unfinished = out.with_name(f".{out.name}.unfinished")
    if unfinished.exists() and _is_made(out, config):  # stopped between the last two lines of this function
        shutil.rmtree(unfinished)
        return json.loads((out / "scores.json").read_text(encoding="utf-8"))
    files.check_free(out)
    unfinished.mkdir(parents=True, exist_ok=True)
    files.remove_partials(unfinished)
    try:
        made = make(unfinished / "checkpoint.pt")
    except BaseException:
        with suppress(OSError):
            unfinished.rmdir()  # where it is empty: there is nothing to continue from
        raise
    with files.new_directory(out) as partial:
        made.model.half().save_pretrained(partial)
        made.tokenizer.save_pretrained(partial)
        (partial / "pretrain.json").write_text(_described(config), encoding="utf-8")
        (partial / "scores.json").write_text(json.dumps(made.scores, indent=2) + "\n")
        (partial / "README.md").write_text(made.card, encoding="utf-8")
        files.write_sums(partial)
    shutil.rmtree(unfinished)
    return made.scores


def _is_made(out: Path, config: PretrainConfig) -> bool:
    """Whether `out` holds the model of this configuration. Raises ValueError where it does and is damaged."""
    about = out / "pretrain.json"
    if not about.is_file() or about.read_text(encoding="utf-8") != _described(config):
        return False
    files.check_sums(out)
    return True


def _described(config: PretrainConfig) -> str:
    return json.dumps(asdict(config), indent=2) + "\n"


def random_model(
    config: PretrainConfig, tokenizer: MBart50Tokenizer, *, seed: int
) -> MBartForConditionalGeneration:
    """The architecture with fresh weights."""
    architecture = MBartConfig(
        vocab_size=len(tokenizer),
        d_model=config.d_model,
        encoder_layers=config.layers,
        decoder_layers=config.layers,
        encoder_attention_heads=config.heads,
        decoder_attention_heads=config.heads,
        encoder_ffn_dim=config.ffn_dim,
        decoder_ffn_dim=config.ffn_dim,
        max_position_embeddings=config.max_positions,
        scale_embedding=True,
        dropout=config.dropout if isinstance(config, TextConfig) else 0.0,
        decoder_start_token_id=tokenizer.eos_token_id,
    )
    with torch.random.fork_rng(devices=[]):  # transformers initialises from the global generator
        torch.manual_seed(seed)
        return MBartForConditionalGeneration(architecture)


def train(
    model: MBartForConditionalGeneration,
    tokenizer: MBart50Tokenizer,
    texts: Texts,
    config: PretrainConfig,
    *,
    checkpoint: Path | None = None,
    checkpoint_every: int = 500,
    progress: bool = True,
) -> tuple[list[float], float]:
    """Train in place; returns the loss of every step (mean cross-entropy a token, in nats, plus the loss of
    alignment where there is one), and the seconds of CPU time that went into the steps before this call.

    AdamW with linear warm-up and linear decay to 0. With `checkpoint` the state is written there every
    `checkpoint_every` steps, and read from there first. Raises ValueError where it belongs to another
    configuration, or is not as it was written.
    """
    rng = np.random.default_rng(config.seed)
    optimiser = torch.optim.AdamW(
        model.parameters(), lr=0.0, betas=(0.9, 0.98), weight_decay=config.weight_decay, fused=True
    )
    losses: list[float] = []
    earlier, started = 0.0, time.process_time()
    if checkpoint and checkpoint.exists():
        losses, earlier = read_checkpoint(checkpoint, config, model, optimiser, rng)
    attention = model.config._attn_implementation
    model.set_attn_implementation("eager")  # on sentences of a dozen tokens three times as fast backwards
    model.train()
    saved = len(losses)
    bar = tqdm(initial=saved, total=config.steps, desc="pretraining", unit="step", disable=not progress)
    with bar:
        while len(losses) < config.steps:
            for inputs, labels, aligned in _window(texts, tokenizer, config, rng, step=len(losses)):
                with torch.autocast(
                    model.device.type, torch.bfloat16, enabled=config.precision == "bfloat16"
                ):
                    loss = _loss(model, tokenizer, config, inputs, labels, aligned=aligned)
                optimiser.zero_grad(set_to_none=True)
                loss.backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), config.max_gradient_norm)
                optimiser.param_groups[0]["lr"] = config.step_size * schedule(len(losses), config)
                optimiser.step()
                losses.append(loss.item())
                bar.update()
                bar.set_postfix(loss=f"{np.mean(losses[-50:]):.3f}", refresh=False)
            if checkpoint and len(losses) - saved >= checkpoint_every:
                saved = len(losses)
                write_checkpoint(
                    checkpoint, config, model, optimiser, rng, losses, earlier + time.process_time() - started
                )
    model.set_attn_implementation(attention)
    return losses, earlier


def alignment_loss(
    states: Float[Tensor, "batch source d_model"],
    real: Bool[Tensor, "batch source"],
    other_states: Float[Tensor, "batch target d_model"],
    other_real: Bool[Tensor, "batch target"],
    temperature: float,
) -> Float[Tensor, ""]:
    """Cross-entropy, in nats, of finding each row's translation among the batch by cosine / temperature.

    Rows are means over the tokens that are `real`; both directions count alike (InfoNCE, as in mRASP2).
    """
    one, other = (
        torch.nn.functional.normalize((s.float() * r[..., None]).sum(1) / r.sum(1, keepdim=True), dim=1)
        for s, r in ((states, real), (other_states, other_real))
    )
    logits = one @ other.T / temperature
    right = torch.arange(len(logits), device=logits.device)
    found = [torch.nn.functional.cross_entropy(each, right) for each in (logits, logits.T)]
    return (found[0] + found[1]) / 2


def _loss(model, tokenizer, config, inputs, labels, *, aligned: bool) -> Float[Tensor, ""]:
    """Cross-entropy of the labels, and with `aligned` the loss of alignment besides."""
    inputs, labels = inputs.to(model.device), labels.to(model.device)
    mask = inputs != tokenizer.pad_token_id
    encoded = model.model.encoder(input_ids=inputs, attention_mask=mask)
    loss = model(encoder_outputs=encoded, attention_mask=mask, labels=labels).loss
    if not aligned:
        return loss
    others = labels.masked_fill(labels == IGNORED, tokenizer.pad_token_id)
    read = model.model.encoder(input_ids=others, attention_mask=others != tokenizer.pad_token_id)
    skipped = torch.tensor(
        [tokenizer.pad_token_id, *uncounted_ids(tokenizer, include_special=False).tolist()]
    )
    return loss + alignment_loss(
        encoded.last_hidden_state,
        ~torch.isin(inputs, skipped.to(model.device)),
        read.last_hidden_state,
        ~torch.isin(others, skipped.to(model.device)),
        config.alignment_temperature,
    )


def draw_kind(config: PretrainConfig, rng: np.random.Generator, *, step: int) -> tuple[bool, bool, int]:
    """Whether a step denoises, whether it aligns, and how many steps its phase has left."""
    ends = (config.denoising_steps, config.steps - config.alignment_steps, config.steps)
    phase = next(i for i, end in enumerate(ends) if step < end)
    denoise = phase == 0 or rng.random() < config.denoising_share
    return denoise, phase == 2 and not denoise, ends[phase] - step


def _window(
    texts: Texts, tokenizer: MBart50Tokenizer, config: PretrainConfig, rng: np.random.Generator, *, step: int
) -> Iterator[tuple[Int[Tensor, "batch source"], Int[Tensor, "batch target"], bool]]:
    """Some batches of one kind, each of sequences of like length, in random order; and whether they align.

    A batch that aligns is made of whole families, each in one pair of languages.
    """
    denoise, aligned, left = draw_kind(config, rng, step=step)
    n_batches, size = min(_WINDOW, left), config.batch_size
    if denoise:
        groups = [[denoising_pair(texts, tokenizer, config, rng)] for _ in range(n_batches * size)]
    elif aligned:
        families = rng.integers(texts.n_meanings // FAMILY, size=n_batches * size // FAMILY).tolist()
        groups = [
            translation_pairs(texts, tokenizer, rng, range(FAMILY * f, FAMILY * (f + 1))) for f in families
        ]
    else:
        groups = [[translation_pair(texts, tokenizer, rng)] for _ in range(n_batches * size)]
    groups.sort(key=lambda group: max(len(source) + len(target) for source, target in group))
    pairs = [pair for group in groups for pair in group]
    for batch in rng.permutation(n_batches):
        sources, targets = zip(*pairs[batch * size : (batch + 1) * size], strict=True)
        yield pad_rows(sources, tokenizer.pad_token_id), pad_rows(targets, IGNORED), aligned


def write_checkpoint(checkpoint: Path, config, model, optimiser, rng, losses, seconds) -> None:
    """What torch saves, and behind it the SHA-256 of these bytes."""
    written = io.BytesIO()
    torch.save(
        {
            "config": asdict(config),
            "model": model.state_dict(),
            "optimiser": optimiser.state_dict(),
            "rng": rng.bit_generator.state,
            "losses": losses,
            "seconds": seconds,
        },
        written,
    )
    with files.replacing(checkpoint) as file:
        file.write(written.getbuffer())
        file.write(hashlib.sha256(written.getbuffer()).digest())


def read_checkpoint(checkpoint: Path, config, model, optimiser, rng) -> tuple[list[float], float]:
    """Set model, optimiser and generator to what the checkpoint holds; losses so far, and seconds of CPU time."""
    data = checkpoint.read_bytes()
    length = max(0, len(data) - hashlib.sha256().digest_size)
    saved, digest = data[:length], data[length:]
    if hashlib.sha256(saved).digest() != digest:
        raise ValueError(
            f"{checkpoint} is damaged: it has another SHA-256 than when it was written; remove it, and the same call "
            "begins anew"
        )
    state = torch.load(io.BytesIO(saved), weights_only=True, map_location=model.device)
    if state["config"] != asdict(config):
        changed = [name for name, value in asdict(config).items() if state["config"].get(name) != value]
        raise ValueError(
            f"{checkpoint} belongs to another configuration ({', '.join(changed) or 'of other fields'} differ); "
            f"remove {checkpoint.parent} or choose another name for the output"
        )
    model.load_state_dict(state["model"])
    optimiser.load_state_dict(state["optimiser"])
    rng.bit_generator.state = state["rng"]
    return state["losses"], state["seconds"]


def _tokenizer_and_texts(config: PretrainConfig) -> tuple[MBart50Tokenizer, Texts]:
    meanings = draw_families(config.n_meanings, seed=config.seed)
    sample = [render(m, language) for language in LANGUAGES for m in meanings[:20_000]]
    tokenizer = train_tokenizer(
        [s.text for s in sample], pieces=config.pieces, candidates=candidate_pieces(sample)
    )
    texts = {language: [render(m, language).text for m in meanings] for language in LANGUAGES}
    return tokenizer, Texts(texts, tokenizer)


def schedule(step: int, config: PretrainConfig) -> float:
    """The step size at a step, as a share of the largest."""
    rise = (step + 1) / max(1, config.warmup_steps)
    fall = (config.steps - step) / max(1, config.steps - config.warmup_steps)
    return min(rise, fall, 1.0)
