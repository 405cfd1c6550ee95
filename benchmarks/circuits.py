"""Composition scores of all pairs of heads against TransformerLens: time, and how far the scores are apart.

12 layers of 12 heads, d_model 768, d_head 64, random weights in float32: the sizes of GPT-2 small. CPU time of one thread,
both once a round; less than 1 means faster than `TransformerBridge.all_composition_scores`. TransformerLens computes one
mode a call: the three modes together, and `composition_scores`, which computes all three. It needs 9 GB of memory.
"""

import time

import torch

from benchmarks.timing import Spread, interleave
from course_lib.representation.circuits import MODES, Heads, composition_scores

LAYERS, HEADS, D_MODEL, D_HEAD, ROUNDS = 12, 12, 768, 64, 3


def _peer(heads: Heads):
    """A model of TransformerLens that holds the same weights, attention only and without norms."""
    from transformer_lens.config import TransformerBridgeConfig
    from transformer_lens.model_bridge import TransformerBridge

    config = TransformerBridgeConfig(
        d_model=D_MODEL, d_head=D_HEAD, n_heads=HEADS, n_layers=LAYERS, n_ctx=4, d_vocab=4, attn_only=True,
        normalization_type=None, act_fn="relu",
    )  # fmt: skip
    peer = TransformerBridge.boot_native(config).requires_grad_(False)
    for layer, block in enumerate(peer.original_model.layers):
        own = slice(layer * HEADS, (layer + 1) * HEADS)
        for name in ("q", "k", "v"):
            weight = getattr(heads, f"w_{name}")[own]  # (heads, d_model, d_head) to (heads x d_head, d_model)
            getattr(block.attn, name).weight.copy_(weight.transpose(1, 2).flatten(0, 1))
        block.attn.o.weight.copy_(heads.w_o[own].flatten(0, 1).T)
    return peer


def run() -> dict[str, Spread]:
    """Return the ratio of CPU times, and the largest difference of a score in each mode."""
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    draw = lambda *shape: 0.02 * torch.randn(LAYERS, HEADS, *shape, generator=generator)  # noqa: E731
    heads = Heads.decoder(*(draw(D_MODEL, D_HEAD) for _ in "qkv"), draw(D_HEAD, D_MODEL))
    peer = _peer(heads)
    candidates = {
        "ours": lambda _: composition_scores(heads),
        **{mode: lambda _, mode=mode: peer.all_composition_scores(mode) for mode in MODES},
    }
    seconds = interleave(candidates, rounds=ROUNDS, clock=time.thread_time, warm_up=0)
    theirs = [sum(round_) for round_ in zip(*(seconds[mode] for mode in MODES), strict=True)]
    ratios = [a / b for a, b in zip(seconds["ours"], theirs, strict=True)]
    figures = {"composition_scores / all_composition_scores, Q + K + V": Spread.of(ratios)}
    figures["composition_scores: CPU seconds"] = Spread.of(seconds["ours"])
    figures["all_composition_scores, Q + K + V: CPU seconds"] = Spread.of(theirs)
    found = composition_scores(heads)
    for m, mode in enumerate(MODES):
        gap = (peer.all_composition_scores(mode).scores.reshape(found[m].shape) - found[m]).abs().max()
        figures[f"largest difference of a score, {mode}, in 1e-8"] = Spread.of([float(gap) * 1e8])
    return figures
