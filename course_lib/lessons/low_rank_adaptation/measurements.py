"""The settings of the runs on course-mbart that the figures of lesson 20 draw.

Some 30 training runs take 15 to 30 minutes of one CPU thread: `make bench low_rank_adaptation` measures them again.
"""

import copy

import torch

from course_lib.representation import lora

RANKS = (1, 2, 4, 8, 16, 32)
SETTINGS = {"alpha": 32, "steps": 120, "batch_size": 16, "meanings": 4000, "scored": 200}
GRID = {"full": (3e-4, 1e-3, 3e-3, 1e-2), "adapter": (3e-3, 1e-2, 3e-2, 1e-3), "parts": (3e-3, 1e-2)}
PARTS = {"all": "all-linear", "attention": ["q_proj", "k_proj", "v_proj", "out_proj"], "mlp": ["fc1", "fc2"]}


def plan() -> list[tuple[str, str, float]]:
    """Return all runs: what is trained ("full" or a rank), in which layers, with which step size."""
    runs = [("full", "all", lr) for lr in GRID["full"]]
    runs += [(str(rank), "all", lr) for lr in GRID["adapter"] for rank in RANKS]
    return runs + [("8", part, lr) for part in ("attention", "mlp") for lr in GRID["parts"]]


def adapted_copy(model, trained: str, part: str, step_size: float) -> tuple:
    """Return a copy of the model, with an adapter unless it is trained in full, and the groups for the optimiser."""
    model = copy.deepcopy(model)
    if trained == "full":
        return model, [{"params": list(model.parameters()), "lr": step_size}]
    generator = torch.Generator().manual_seed(20)
    lora.inject(model, rank=int(trained), alpha=SETTINGS["alpha"], targets=PARTS[part], generator=generator)
    return model, lora.param_groups(model, step_size)


def shuffled(model) -> None:
    """Put random numbers in the place of every B, of the size that it has: the control of a trained adapter."""
    generator = torch.Generator().manual_seed(21)
    with torch.no_grad():
        for layer in lora.adapters(model).values():
            noise = torch.randn(layer.lora_B.shape, generator=generator)
            layer.lora_B.copy_(noise * layer.lora_B.norm() / noise.norm())
