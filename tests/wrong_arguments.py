"""Calls of the public functions with one argument that is wrong: what a learner gets who mixes two things up.

`python -m tests.wrong_arguments` prints the table. Each function is called as its docstring says, and then again with one
argument replaced: by None, a list, a numpy array, a text, another rank, a side of 1 or of another length, whole
numbers, NaN, no entries. The ways to end:

    named      an error whose message holds the name of the argument
    right      the value of the same call with what was meant: a list or an array read as the tensor of its numbers,
               whole numbers as floating-point ones, a side of 1 that the docstring says is repeated as the repeated one,
               NaN that stays NaN
    obscure    an error without the name
    wrong      any other value: nobody would notice
"""

import inspect
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import AbstractArray
from torch import Tensor, nn

from course_lib import attention, sae
from course_lib.attention import layers
from course_lib.interpret import concepts
from course_lib.optimization import muon, mup
from course_lib.representation import circuits, erasure, head_scores, lora, pca
from course_lib.theory import hawkes


@dataclass(frozen=True)
class Target:
    """A public function and arguments that are right.

    `fixed` are the dimensions, by argument and place, that other arguments or weights fix; where they are not given, all
    of a function with several tensors. `repeats` are arguments of which leading sides of 1 are repeated, as the
    docstring says; `optional` are those that may be None.
    """

    name: str
    call: Callable[..., Any]
    right: Callable[[], Mapping[str, Any]]
    repeats: tuple[str, ...] = ()
    fixed: Mapping[str, tuple[int, ...]] | None = None
    optional: tuple[str, ...] = ()


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def qkv() -> dict[str, Tensor]:
    return {"q": draw(2, 3, 6, 4), "k": draw(2, 3, 6, 4, seed=1), "v": draw(2, 3, 6, 5, seed=2)}


def one_token() -> dict[str, Any]:
    return {name: x[..., 0, :] for name, x in qkv().items()}


def net(width: int = 16) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(8, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 4)
    )


def heads() -> head_scores.Heads:
    return head_scores.read_heads(bart())


def bart() -> nn.Module:
    """The four projections of two small attention modules."""
    torch.manual_seed(0)
    names = ("q_proj", "k_proj", "v_proj", "o_proj")
    found = nn.ModuleList([nn.ModuleDict({name: nn.Linear(8, 8) for name in names}) for _ in range(2)])
    for one in found:
        one.head_dim = 4
    return found


def decoder() -> layers.Decoder:
    config = layers.DecoderConfig(vocab_size=11, d_model=8, n_heads=2, n_layers=2)
    torch.manual_seed(0)
    return layers.Decoder(config)


def autoencoder(kind: str = "TopKSparseAutoencoder", **options: Any) -> sae.Autoencoder:
    return getattr(sae, kind)(8, 24, generator=torch.Generator().manual_seed(0), **options)


def targets() -> list[Target]:
    """All functions that are called."""
    lead = {"q": (-1,), "k": (-1, -2), "v": (-2,)}
    some = ("q", "k", "v")

    def of_attention(function: Callable[..., Any], **options: Any) -> Target:
        return Target(function.__name__, function, lambda: qkv() | options, repeats=some, fixed=lead)

    draws = {"generator": torch.Generator().manual_seed(0)}
    found = [
        of_attention(attention.attention, causal=False),
        of_attention(attention.qk_norm_attention, scale=2.0),
        of_attention(attention.linear_attention, feature_map=attention.elu_features),
        of_attention(
            attention.random_feature_attention,
            features=attention.positive_features(4, 16, generator=torch.Generator().manual_seed(0)),
        ),
        of_attention(attention.ridge_attention, penalty=0.5),
        of_attention(attention.delta_rule, step_size=0.5),
        Target(
            "recurrent_step",
            lambda **given: attention.recurrent_step(**given)[0],
            lambda: {"state": None, **one_token(), "feature_map": attention.elu_features},
            fixed={"q": (-1,), "k": (-1,), "v": ()},
            repeats=some,
        ),
        Target("elu_features", attention.elu_features, lambda: {"x": draw(3, 4)}),
        Target(
            "rope",
            attention.rope,
            lambda: {"x": draw(2, 6, 4), "positions": torch.arange(6)},
            fixed={"x": (-2,), "positions": (-1,)},
        ),
        Target(
            "apply_rotary",
            attention.apply_rotary,
            lambda: {
                "x": draw(2, 6, 4),
                "table": attention.rotary_table(torch.arange(6), attention.rope_frequencies(4)),
                "layout": "half",
            },
            fixed={"x": (-2, -1), "table": (-2,)},
        ),
        Target(
            "rotary_table",
            attention.rotary_table,
            lambda: {"positions": torch.arange(6), "frequencies": attention.rope_frequencies(4)},
            fixed={},
        ),
        Target("rope_frequencies", attention.rope_frequencies, lambda: {"rotary_dim": 8, "base": 100.0}),
        Target(
            "interpolated_frequencies",
            attention.interpolated_frequencies,
            lambda: {"frequencies": attention.rope_frequencies(8), "scale": 2.0},
        ),
        Target("ntk_frequencies", attention.ntk_frequencies, lambda: {"rotary_dim": 8, "scale": 2.0}),
        Target(
            "yarn_frequencies",
            attention.yarn_frequencies,
            lambda: {"rotary_dim": 8, "scale": 2.0, "trained_length": 64},
        ),
        Target("yarn_attention_factor", attention.yarn_attention_factor, lambda: {"scale": 2.0}),
        Target(
            "llama3_frequencies",
            attention.llama3_frequencies,
            lambda: {"frequencies": attention.rope_frequencies(8), "scale": 2.0},
        ),
        Target(
            "convert_layout",
            attention.convert_layout,
            lambda: {"weight": draw(8, 5), "head_dim": 4, "source": "half", "target": "interleaved"},
            fixed={"weight": (0,)},
        ),
        Target(
            "positive_features",
            attention.positive_features,
            lambda: {"head_dim": 4, "n_frequencies": 8, **draws},
        ),
        Target(
            "trigonometric_features",
            attention.trigonometric_features,
            lambda: {"head_dim": 4, "n_frequencies": 8, **draws},
        ),
        Target(
            "Decoder.generate",
            lambda prompt, max_new_tokens: decoder().generate(prompt, max_new_tokens=max_new_tokens),
            lambda: {"prompt": torch.tensor([[1, 2, 3]]), "max_new_tokens": 2},
        ),
        Target("Decoder", lambda tokens: decoder()(tokens), lambda: {"tokens": torch.tensor([[1, 2, 3]])}),
        Target("DecoderConfig", layers.DecoderConfig, lambda: {"vocab_size": 11, "d_model": 8, "n_heads": 2}),
        Target("pca", pca.pca, lambda: {"rows": draw(20, 5), "k": 2}),
        Target(
            "fit_eraser",
            lambda x, z: erasure.fit_eraser(x, z).erase(x),
            lambda: {
                "x": draw(30, 5),
                "z": torch.nn.functional.one_hot(torch.arange(30) % 3),
            },
            fixed={"x": (0,), "z": (0,)},
        ),
        Target("composition_scores", circuits.composition_scores, lambda: {"heads": heads()}),
        Target("read_heads", lambda model: head_scores.read_heads(model).w_q, lambda: {"model": bart()}),
        Target(
            "inject",
            lambda model, rank, alpha, targets: sorted(
                lora.inject(model, rank=rank, alpha=alpha, targets=targets)
            ),
            lambda: {"model": net(), "rank": 2, "alpha": 4.0, "targets": ["0", "2"]},
        ),
        Target(
            "parametrize",
            lambda model, base_model: list(mup.parametrize(model, base_model).state_dict()),
            lambda: {"model": net(32), "base_model": net(16)},
        ),
        Target(
            "param_groups",
            lambda model, optimizer, lr: len(mup.param_groups(model, optimizer, lr=lr)),
            lambda: {"model": mup.parametrize(net(32), net(16)), "optimizer": torch.optim.AdamW, "lr": 0.1},
        ),
        Target(
            "muon_groups",
            lambda model, muon: len(muon_groups(model, muon=muon)),
            lambda: {"model": net(), "muon": {"lr": 0.1}},
            optional=("muon",),
        ),
        Target(
            "Muon",
            lambda params, lr, momentum, ns_steps: len(
                muon.Muon(params, lr=lr, momentum=momentum, ns_steps=ns_steps).param_groups
            ),
            lambda: {"params": [nn.Parameter(draw(3, 3))], "lr": 0.1, "momentum": 0.9, "ns_steps": 5},
        ),
        Target(
            "rates",
            hawkes.rates,
            lambda: {"counts": draw(9, 3).abs(), "base": draw(3).abs(), "kernel": draw(3, 3, 2).abs() / 9},
            fixed={"counts": (-1,), "base": (-1,), "kernel": (0, 1)},
        ),
        Target("spectral_radius", hawkes.spectral_radius, lambda: {"kernel": draw(3, 3, 2).abs()}),
        Target(
            "f1_scores",
            concepts.f1_scores,
            lambda: {"predicted": draw(9, 4) > 0, "labels": draw(9, 4, seed=1) > 0},
        ),
    ]
    for kind, options in {
        "TopKSparseAutoencoder": {"k": 4},
        "BatchTopKSparseAutoencoder": {"k": 4},
        "ReluSparseAutoencoder": {},
        "JumpReluSparseAutoencoder": {},
        "GatedSparseAutoencoder": {},
        "MatryoshkaTopKSparseAutoencoder": {"k": 4},
        "KLSparseAutoencoder": {},
        "GroupBiasAdaptedAutoencoder": {},
    }.items():
        try:
            model = autoencoder(kind, **options)
        except TypeError:
            continue
        found += [
            Target(f"{kind}.encode", model.encode, lambda: {"x": draw(6, 8)}, fixed={"x": (-1,)}),
            Target(
                f"{kind}.decode", model.decode, lambda: {"code": draw(6, 24).relu()}, fixed={"code": (-1,)}
            ),
            Target(f"{kind}.forward", model.forward, lambda: {"x": draw(6, 8)}, fixed={"x": (-1,)}),
            Target(
                f"{kind}.loss",
                lambda batch, model=model: model.loss(batch)["total"],
                lambda: {"batch": draw(6, 8)},
                fixed={"batch": (-1,)},
            ),
            Target(
                kind,
                getattr(sae, kind),
                lambda options=options: {"d_model": 8, "n_features": 24, **options},
                optional=("n_features",),
            ),
        ]
    found += [
        Target("TrainConfig", sae.TrainConfig, lambda: {"steps": 3, "batch_size": 4, "step_size": 0.1}),
        Target(
            "train",
            lambda autoencoder, activations, config: (
                sae.train(
                    autoencoder,
                    activations,
                    config,
                    generator=torch.Generator().manual_seed(0),
                    progress=False,
                ).__class__.__name__
            ),
            lambda: {
                "autoencoder": autoencoder(k=4),
                "activations": draw(20, 8),
                "config": sae.TrainConfig(steps=2, batch_size=4),
            },
            fixed={"activations": (-1,)},
        ),
    ]
    return found


def muon_groups(model: Any, *, muon: Any) -> Any:
    from course_lib.optimization.muon import muon_groups as call

    return call(model, muon=muon)


@dataclass(frozen=True)
class Case:
    """One argument replaced; `meant` is the value under which the same result would be right."""

    what: str
    value: Any
    meant: Any = None
    has_meant: bool = False
    nan: bool = False


def replacements(target: Target, name: str, right: Any) -> Iterator[Case]:
    """What stands in for an argument."""
    if right is not None and name not in ("state", "generator", *target.optional):
        yield Case("None", None)
    if isinstance(right, Tensor):
        yield Case("list", right.tolist(), right, True)
        yield Case("array", right.numpy(), right, True)
        yield Case("text", "abc")
        yield Case("number", 3.0)
        yield Case("rank + 1", right[None], None)
        if right.ndim > 1:
            yield Case("rank - 1", right[0])
        yield Case("rank 0", right.flatten()[0])
        fixed = (
            target.fixed.get(name, ())
            if target.fixed is not None
            else range(right.ndim)
            if _shared(target, name)
            else ()
        )
        for side in fixed:
            for size in (1, 0, right.shape[side] - 1):
                yield Case(f"a side of {'one less' if size > 1 else size}", right.narrow(side, 0, size))
        if right.is_floating_point():
            whole = (right * 3).round()
            yield Case("whole numbers", whole.long(), whole, True)
            yield Case("booleans", right > 0, (right > 0).to(right), True)
            spoilt = right.clone()
            spoilt.view(-1)[0] = torch.nan
            yield Case("NaN", spoilt, nan=True)
            yield Case("complex", right.to(torch.complex64))
        elif right.dtype == torch.bool:
            yield Case("numbers", right.float(), right, True)
        elif not right.is_complex():
            yield Case("floats", right.float(), right, True)
            if name != "z":  # a concept may be any number
                yield Case("halves", right + 0.5)
        yield Case("no entries", right[:0])
        yield Case("meta", right.to("meta"))
    elif isinstance(right, bool):
        yield from (Case("text", "no"), Case("number", 3), Case("list", [right]))
    elif isinstance(right, int | float):
        yield from (Case("text", str(right)), Case("list", [right]), Case("NaN", float("nan"), nan=True))
        yield from (Case("True", True), Case("infinite", float("inf"), nan=True))
        yield from (Case("object", object()), Case("tensor", torch.tensor([right, right])))
        if isinstance(right, int):
            yield from (Case("half", right + 0.5), Case("float", float(right), right, True))
    elif isinstance(right, str):
        yield from (
            Case("text", "nonsense"),
            Case("number", 3),
            Case("bytes", right.encode()),
            Case("list", [right]),
        )
    else:
        yield from (
            Case("text", "nonsense"),
            Case("number", 3),
            Case("list", [right]) if not isinstance(right, list) else Case("empty", []),
        )
        yield from (Case("object", object()), Case("array", np.zeros((3, 3))))


def _shared(target: Target, name: str) -> bool:
    hints = inspect.get_annotations(inspect.unwrap(target.call)) if inspect.isfunction(target.call) else {}
    return sum(isinstance(hint, type) and issubclass(hint, AbstractArray) for hint in hints.values()) > 2


def outcome(target: Target, name: str, case: Case) -> tuple[str, str]:
    """How a call ends, and what it says."""
    given = dict(target.right())
    try:
        found = target.call(**given | {name: case.value})
    except Exception as error:
        return (
            "named" if re.search(rf"\b{name}\b", str(error)) else "obscure"
        ), f"{type(error).__name__}: {error}"
    except BaseException as error:  # not even an Exception
        return "crash", repr(error)
    if case.has_meant and same(found, target.call(**dict(target.right()) | {name: case.meant})):
        return "right", ""
    if case.nan and not finite(found):
        return "right", "NaN stays NaN"
    if case.what == "no entries" and isinstance(found, Tensor) and not found.numel():
        return "right", "nothing of nothing"
    if case.what == "meta" and isinstance(found, Tensor) and found.is_meta:
        return "right", "nothing computed"
    if isinstance(case.value, Tensor) and repeated(target, name, case, given, found):
        return "right", "repeated as the docstring says"
    return "wrong", _said(found)


def repeated(target: Target, name: str, case: Case, given: dict[str, Any], found: Any) -> bool:
    """Whether the result is that of each entry alone, or of the argument repeated along leading sides of 1."""
    right, value = given[name], case.value
    if case.what == "rank + 1":  # a batch of one
        expected = target.call(**given)
        return (
            isinstance(found, Tensor)
            and found.numel() == expected.numel()
            and same(found.reshape(expected.shape), expected)
        )
    if case.what == "rank - 1" and isinstance(found, Tensor):
        expected = target.call(**given)
        if isinstance(expected, Tensor) and expected.ndim and same(found, expected[0]):
            return True
    if isinstance(found, Tensor) and not found.numel() and not value.numel():
        return True
    expected = target.call(**given)
    if case.what == "rank 0" and isinstance(found, Tensor) and not found.ndim:  # entry by entry
        return same(found, expected.flatten()[0])
    if case.what == "complex" and isinstance(found, Tensor) and isinstance(expected, Tensor):  # of any kind
        return same(found.real, expected)
    if name in target.repeats and case.what in ("rank - 1", "a side of 1"):
        try:
            return same(found, target.call(**given | {name: value.expand(right.shape).clone()}))
        except RuntimeError:
            return False
    return False


def same(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return a.shape == b.shape and torch.allclose(
            torch.as_tensor(a).to(b.dtype), b, equal_nan=True, atol=1e-5
        )
    if isinstance(a, nn.Module) and isinstance(b, nn.Module):
        pairs = zip(a.state_dict().values(), b.state_dict().values(), strict=True)
        return all(x.shape == y.shape for x, y in pairs)
    if isinstance(a, tuple | list) and isinstance(b, tuple | list):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    try:
        return bool(a == b)
    except (RuntimeError, ValueError, TypeError):
        return False


def finite(found: Any) -> bool:
    if isinstance(found, tuple | list):
        return all(finite(x) for x in found)
    if isinstance(found, Tensor):
        return bool(torch.isfinite(found).all())
    return not (isinstance(found, float) and not np.isfinite(found))


def _said(found: Any) -> str:
    return f"{tuple(found.shape)} {found.dtype}" if isinstance(found, Tensor) else repr(found)[:60]


def measure(seed: int = 0, share: float = 1.0) -> tuple[Counter, list[tuple[str, str, str, str, str]]]:
    """Count the ways to end, of a random share of all cases, and list those that are neither named nor right."""
    rng, ends, bad = random.Random(seed), Counter(), []
    for target in targets():
        for name, right in target.right().items():
            for case in replacements(target, name, right):
                if rng.random() >= share:
                    continue
                end, said = outcome(target, name, case)
                ends[end] += 1
                if end not in ("named", "right"):
                    bad.append(
                        (target.name, name, case.what, end, said.splitlines()[0][:110] if said else "")
                    )
    return ends, bad


def main() -> None:
    """Print the cases that end badly, and the counts."""
    ends, bad = measure()
    for row in bad:
        print("  ".join(row))
    total = sum(ends.values())
    print({end: f"{n} ({n / total:.1%})" for end, n in ends.most_common()}, total, "calls")


if __name__ == "__main__":
    main()
