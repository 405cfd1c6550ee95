"""An adapted layer against PEFT's: forward and all gradients, d = 1024, r = 8, CPU time of one thread.

Every candidate once a round. Less than 1 means faster than the peer's layer of the same kind; `floor` is the frozen layer
alone, `merged` an adapter inside a layer that forms W + s B A at every step, and `DoRA` is against PEFT's plain layer, too.
In bfloat16 the base is bfloat16 and the factors float32: PEFT's default, and ours.
"""

import time

import numpy as np
import torch
from torch import nn

from benchmarks.timing import Spread, interleave
from course_lib.representation.lora import LoRALinear, adapted_linear_by_weight

WIDTH, RANK, ROUNDS = 1024, 8, {512: 15, 4096: 7}


def _step(layer, x: torch.Tensor, grad: torch.Tensor):
    def call(_: int) -> None:
        x.grad = None
        if isinstance(layer, nn.Module):
            layer.zero_grad(set_to_none=True)
        layer(x).backward(grad)

    return call


def run() -> dict[str, Spread]:
    """Return ratios of time."""
    from peft import LoraConfig, get_peft_model

    torch.set_num_threads(1)
    torch.manual_seed(0)
    figures = {}

    def base(dtype: torch.dtype) -> nn.Linear:
        return nn.Linear(WIDTH, WIDTH).to(dtype).requires_grad_(requires_grad=False)

    def peer(dtype: torch.dtype, **options: bool) -> nn.Module:
        config = LoraConfig(r=RANK, lora_alpha=16, target_modules=["0"], init_lora_weights=False, **options)
        return get_peft_model(nn.Sequential(base(dtype)), config).base_model.model[0]

    def ours(dtype: torch.dtype, *, dora: bool = False) -> LoRALinear:
        layer = LoRALinear(base(dtype), rank=RANK, alpha=16, dora=dora)
        nn.init.normal_(layer.lora_B, std=0.01)
        return layer

    for dtype, kind in ((torch.float32, "fp32"), (torch.bfloat16, "bf16")):
        own = ours(dtype)
        merged = lambda x, w=own: adapted_linear_by_weight(  # noqa: E731
            x, w.base.weight, w.bias, w.lora_A.to(x.dtype), w.lora_B.to(x.dtype), w.scale
        )
        layers = {
            "PEFT": peer(dtype), "LoRALinear": own, "floor (frozen W)": base(dtype), "merged": merged,
            "DoRA": ours(dtype, dora=True), "PEFT's DoRA": peer(dtype, use_dora=True),
        }  # fmt: skip
        for rows, rounds in ROUNDS.items():
            x, grad = (torch.randn(rows, WIDTH).to(dtype) for _ in range(2))
            candidates = {
                label: _step(layer, x.clone().requires_grad_(), grad) for label, layer in layers.items()
            }
            spent = interleave(candidates, rounds=rounds, clock=time.thread_time, warm_up=1)
            seconds = {name: np.array(values) for name, values in spent.items()}
            for label in list(layers)[1:]:
                figures[f"{kind}, {rows} rows: {label} / PEFT"] = Spread.of(seconds[label] / seconds["PEFT"])
            dora = seconds["DoRA"] / seconds["PEFT's DoRA"]
            figures[f"{kind}, {rows} rows: DoRA / PEFT's DoRA"] = Spread.of(dora)
    return figures
