"""Heads of real models: read their weights, name them by where they look, and check the name by taking them away.

    heads = read_heads(model)
    seen = record(model, heads, input_ids=ids)
    with replaced(model, heads, {3: seen.results[3].mean((0, 1))}):
        ...  # the model without head 3

It works on every model whose attention modules hold projections named q_proj, k_proj, v_proj and o_proj or out_proj (BART,
mBART, OPT, Llama, Qwen, Mistral, ...), and on GPT-2 (c_attn, c_proj) and GPT-NeoX (query_key_value, dense). Rotary position
embeddings turn queries and keys between W_Q and W_K^T: scores from weights then hold at distance 0 only, scores from
patterns always.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from course_lib.checks import named
from course_lib.representation.circuits import Heads, Kind

_SEPARATE = ("q_proj", "k_proj", "v_proj")
_OUTPUTS = ("o_proj", "out_proj", "c_proj", "dense")


# Weights


def _output(module: nn.Module) -> nn.Module | None:
    """The projection that brings the results of all heads back to the stream, or None where it is no attention module."""
    inputs = all(hasattr(module, name) for name in _SEPARATE)
    if inputs or hasattr(module, "c_attn") or hasattr(module, "query_key_value"):
        return next((getattr(module, name) for name in _OUTPUTS if hasattr(module, name)), None)
    return None


def _attention_modules(model: nn.Module) -> dict[str, nn.Module]:
    found = {name: part for name, part in model.named_modules() if _output(part) is not None}
    if not found:
        raise ValueError(
            f"model must have attention modules with q_proj, k_proj, v_proj and o_proj or out_proj, or those of GPT-2 or "
            f"GPT-NeoX; {type(model).__name__} has none"
        )
    return found


def _head_size(name: str, module: nn.Module) -> int:
    for size in ("head_dim", "head_size"):
        if isinstance(found := getattr(module, size, None), int):
            return found
    raise ValueError(f"module {name!r} has neither head_dim nor head_size, so its heads cannot be told apart")


def _linear(layer: nn.Module) -> tuple[Tensor, Tensor]:
    """Weight (inputs, outputs) and bias of a projection; GPT-2's Conv1D stores the weight this way round already."""
    weight = layer.weight if type(layer).__name__ == "Conv1D" else layer.weight.mT
    return weight, weight.new_zeros(weight.shape[1]) if layer.bias is None else layer.bias


def _projections(name: str, module: nn.Module) -> list[tuple[Tensor, Tensor]]:
    """Weights (inputs, heads x d_head) and biases of queries, keys and values."""
    if hasattr(module, "q_proj"):
        return [_linear(getattr(module, part)) for part in _SEPARATE]
    if hasattr(module, "c_attn"):
        if hasattr(module, "q_attn"):
            weight, bias = _linear(module.c_attn)
            return [_linear(module.q_attn), *zip(weight.chunk(2, 1), bias.chunk(2), strict=True)]
        weight, bias = _linear(module.c_attn)
        return list(zip(weight.chunk(3, 1), bias.chunk(3), strict=True))
    # GPT-NeoX keeps query, key and value of each head together.
    weight, bias = _linear(module.query_key_value)
    size = _head_size(name, module)
    weight, bias = weight.unflatten(1, (-1, 3, size)), bias.unflatten(0, (-1, 3, size))
    return [(weight[:, :, i].flatten(1), bias[:, i].flatten()) for i in range(3)]


def _kind(name: str) -> Kind:
    parts = name.lower().split(".")
    if parts[-1] in ("encoder_attn", "crossattention", "cross_attn"):
        return "cross"
    return "encoder" if "encoder" in parts else "decoder"


@named
def read_heads(model: nn.Module) -> Heads:
    """The heads of a model, in the order of its modules: weights in row convention, views or copies without gradients.

    Head i of a layer reads and writes columns i d_head ... of the projections. Where key and value heads are fewer than
    query heads, each is repeated for the group that shares it. The factor 1 / sqrt(d_head) of the scores is in no weight.

    Raises:
        ValueError: the model has no attention modules that are known, or their heads differ in size.
    """
    tensors: dict[str, list[Tensor]] = {
        name: [] for name in ("w_q", "w_k", "w_v", "w_o", "b_q", "b_k", "b_v")
    }
    places: list[tuple[int, int, Kind, str]] = []
    for name, module in _attention_modules(model).items():
        size = _head_size(name, module)
        pairs = [(w.detach(), b.detach()) for w, b in _projections(name, module)]
        n_heads = pairs[0][0].shape[1] // size
        for letter, (weight, bias) in zip("qkv", pairs, strict=True):
            split, spread = weight.unflatten(1, (-1, size)).transpose(0, 1), bias.unflatten(0, (-1, size))
            each = n_heads // len(split)
            tensors[f"w_{letter}"].append(split.repeat_interleave(each, 0))
            tensors[f"b_{letter}"].append(spread.repeat_interleave(each, 0))
        out, _ = _linear(_output(module))
        tensors["w_o"].append(out.detach().unflatten(0, (-1, size)))
        numbers = re.findall(r"(?:^|\.)(\d+)(?=\.|$)", name)
        places += [(int(numbers[-1]) if numbers else 0, head, _kind(name), name) for head in range(n_heads)]
    sizes = {tuple(w.shape[1:]) for w in tensors["w_q"]}
    if len(sizes) > 1:
        raise ValueError(f"heads must have one shape to be stacked, got (d_model, d_head) = {sorted(sizes)}")
    layer, number, kind, module = zip(*places, strict=True)
    return Heads(
        **{name: torch.cat(parts) for name, parts in tensors.items()},
        layer=layer,
        number=number,
        kind=kind,
        module=module,
    )


# Runs


@dataclass(frozen=True)
class Recording:
    """What one run of a model showed, head by head in the order of `Heads`.

    Shapes: `patterns` (batch, queries, keys) and `results` (batch, queries, d_head) of each head; `output` is what the
    model returned. A head's share of the stream is results W_O.
    """

    patterns: list[Tensor]
    results: list[Tensor]
    output: Any


@contextmanager
def _eager(model: nn.Module) -> Iterator[None]:
    """Let the attention of a transformers model return its pattern, which the fused kernels never form."""
    configs = {
        id(c): c
        for part in model.modules()
        if hasattr(c := getattr(part, "config", None), "_attn_implementation")
    }
    before = {key: config._attn_implementation for key, config in configs.items()}
    try:
        for config in configs.values():
            config._attn_implementation = "eager"
        yield
    finally:
        for key, config in configs.items():
            config._attn_implementation = before[key]


@torch.no_grad()
def record(model: nn.Module, heads: Heads, *inputs: Any, **named: Any) -> Recording:
    """Run the model once and keep every head's pattern and result; the hooks are removed however the run ends.

    `inputs` and `named` go to the model. In generation with a cache, queries are the new tokens only: give whole sequences.

    Raises:
        ValueError: the heads are not those of this model.
        RuntimeError: an attention module of the run returned no pattern.
    """
    parts, patterns, results, handles = _parts(model, heads), {}, {}, []
    try:
        for name, part in parts.items():
            output = _output(part)
            handles.append(
                output.register_forward_pre_hook(lambda _, args, n=name: results.update({n: args[0]}))
            )
            handles.append(
                part.register_forward_hook(lambda _, args, out, n=name: patterns.update({n: out[1]}))
            )
        with _eager(model):
            returned = model(*inputs, **named)
    finally:
        for handle in handles:
            handle.remove()
    if missing := [name for name in parts if patterns.get(name) is None]:
        raise RuntimeError(
            f"module {missing[0]!r} returned no attention pattern in this run, so heads cannot be scored"
        )
    size = heads.w_q.shape[2]
    place = [(heads.module[i], heads.number[i]) for i in range(len(heads))]
    return Recording(
        patterns=[patterns[name][:, head] for name, head in place],
        results=[results[name].unflatten(-1, (-1, size))[:, :, head] for name, head in place],
        output=returned,
    )


def _parts(model: nn.Module, heads: Heads) -> dict[str, nn.Module]:
    parts = dict(model.named_modules())
    for name in dict.fromkeys(heads.module):
        if name not in parts or _output(parts[name]) is None:
            raise ValueError(f"heads must be those of this model, which has no attention module {name!r}")
    return {name: parts[name] for name in dict.fromkeys(heads.module)}


@contextmanager
def replaced(model: nn.Module, heads: Heads, what: Mapping[int, Tensor | float | int]) -> Iterator[None]:
    """While the block runs, replace the results of heads: 0 ablates, a mean result ablates gently, another run's patches.

    `what` maps the number of a head in `heads` to a number, or to a tensor that broadcasts to its result (batch, queries,
    d_head). The hooks sit on the input of the output projection, so every other head and the projection's bias stay. They
    are removed however the block ends.

    Raises:
        ValueError: a number is not a head, the heads are not those of this model, or a tensor's last size is not d_head.
    """
    size, handles = heads.w_q.shape[2], []
    for i, value in what.items():
        if not 0 <= i < len(heads):
            raise ValueError(f"what must name heads from 0 to {len(heads) - 1}, got {i}")
        if isinstance(value, Tensor) and value.ndim and value.shape[-1] != size:
            raise ValueError(f"what[{i}] must end in d_head = {size}, got shape {tuple(value.shape)}")
    parts = _parts(model, heads)

    def hook_of(name: str):
        chosen = {heads.number[i]: value for i, value in what.items() if heads.module[i] == name}

        def put(_: nn.Module, args: tuple) -> tuple:
            result = args[0].unflatten(-1, (-1, size)).clone()
            for head, value in chosen.items():
                result[..., head, :] = value
            return (result.flatten(-2), *args[1:])

        return put

    try:
        for name in dict.fromkeys(heads.module[i] for i in what):
            handles.append(_output(parts[name]).register_forward_pre_hook(hook_of(name)))
        yield
    finally:
        for handle in handles:
            handle.remove()


# Scores of patterns: where a head looks


def offset_score(pattern: Float[Tensor, "batch queries keys"], offset: int) -> Float[Tensor, ""]:
    """Mean weight that query t gives to key t + offset, over the queries that have one (26.3).

    -1 is the score of a previous-token head, 0 of one that looks at its own place, 1 of one that looks at the next.

    Raises:
        ValueError: `pattern` is not (batch, queries, keys), or no query has such a key.
    """
    if pattern.ndim != 3:
        raise ValueError(f"pattern must have shape (batch, queries, keys), got {tuple(pattern.shape)}")
    found = pattern.diagonal(offset, dim1=1, dim2=2)
    if not found.shape[1]:
        raise ValueError(
            f"offset {offset} leads outside of the {pattern.shape[2]} keys for each of {pattern.shape[1]} queries"
        )
    return found.mean()


def matching_score(
    pattern: Float[Tensor, "batch queries keys"],
    query_tokens: Int[Tensor, "batch queries2"],
    key_tokens: Int[Tensor, "batch keys2"],
    *,
    shift: int = 1,
    itself: bool = False,
) -> Float[Tensor, ""]:
    """Weight on the places `shift` after an equal token, a mean over the queries that have such a place (26.4).

    Shift 1 is the induction score, of looking at what followed the same token before; shift 0 that of duplicate tokens.
    In self-attention a query's own token is no match, and with a causal pattern (zero to the right of the diagonal) later
    places count nothing. For cross-attention, where the two sequences are different ones, `itself` is True.

    Raises:
        ValueError: the tokens do not fit the pattern, or `shift` is negative.
    """
    batch, queries, keys = pattern.shape
    if tuple(query_tokens.shape) != (batch, queries) or tuple(key_tokens.shape) != (batch, keys) or shift < 0:
        raise ValueError(
            f"query_tokens and key_tokens must have shapes {(batch, queries)} and {(batch, keys)} and shift must be at "
            f"least "
            f"0, got {tuple(query_tokens.shape)}, {tuple(key_tokens.shape)} and {shift}"
        )
    equal = query_tokens[:, :, None] == key_tokens[:, None, :]
    places = torch.zeros_like(equal)
    places[:, :, shift:] = equal[:, :, : keys - shift]
    if not itself:
        earlier = torch.ones(queries, keys, dtype=torch.bool, device=pattern.device).tril(shift - 1)
        places &= earlier & torch.ones_like(earlier).tril(0)
    has = places.any(dim=2)
    return ((pattern * places).sum(dim=2) * has).sum() / has.sum().clamp(min=1)


def induction_score_by_loops(pattern: Float[Tensor, "queries keys"], tokens: Int[Tensor, " tokens"]) -> float:
    """Shift 1 of `matching_score` for one sequence, to be read."""
    scores = []
    for t, token in enumerate(tokens.tolist()):
        after = [j + 1 for j in range(t) if int(tokens[j]) == token and j + 1 <= t]
        if after:
            scores.append(sum(float(pattern[t, j]) for j in after))
    return sum(scores) / max(1, len(scores))
