"""One optimiser step of each trainer on 65,536 x 1024 activations in memory, batches of 4,096, one thread.

TopK (k = 32) and ReLU + L1 with 8,192 features, and the bottleneck 1024 -> 128 with ReLU: `course_lib.sae`, its
readable form under a plain float32 loop, and two floors, in the dtype that our large products have. A step holds
everything from drawing the rows to the changed weights.

- products: those that cannot be left out (one for TopK, five for ReLU, four for the bottleneck), on operands
  that lie as the product likes them best, into memory that is there already; TopK's in 8-bit integers where the
  processor multiplies them, and beside it in float32;
- with memory traffic: these, Adam's seven passes over the weights (four read, three written: the fused optimiser
  on one stretch of memory), and for TopK one look at all pre-activations (the largest of each row).

Each part of a floor is timed alone, in the fastest of the forms that torch has for it (`floor_steps`).

The peers, SAELens and EleutherAI's sparsify, run in an environment of their own, because they pin what the
course does not: `python -m venv PEERS; PEERS/bin/pip install torch==2.13.0 sae-lens==6.54.12
eai-sparsify==1.3.3`, then set COURSE_PEERS_PYTHON=PEERS/bin/python. Without it their rows are absent. Where there is no
GPU, remove triton from that environment: sparsify takes it for its decoder where it finds it, and then stops.
"""

import json
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import nn

from benchmarks.sae_peers import BATCH, WIDTH, K, activations
from benchmarks.timing import Spread
from course_lib import devices, torch_private
from course_lib.sae import (
    Autoencoder,
    GroupBiasAdaptedAutoencoder,
    ReluSparseAutoencoder,
    StackedAutoencoder,
    TopKSparseAutoencoder,
    TrainConfig,
    train,
)
from course_lib.sae.train import _Run, compute_dtype

FEATURES, ROUNDS = 8192, 5
CONFIG = TrainConfig(steps=10**6, batch_size=BATCH, step_size=3e-4, warm_up=0, decay=0, record_every=10)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def our_step(autoencoder: Autoencoder, x: torch.Tensor, config: TrainConfig = CONFIG) -> Callable[[], None]:
    """One step of `course_lib.sae.train`."""
    run = _Run(autoencoder, x, config, generator=seeded(), labels=None)
    run.start()
    count = iter(range(config.steps))
    return lambda: run.step(next(count))


def plain_step(autoencoder: Autoencoder, x: torch.Tensor) -> Callable[[], None]:
    """One step of the loop that everybody writes first: the readable loss, autograd, Adam, float32."""
    autoencoder.fit_normalisation(x[:8192])
    optimizer = torch.optim.Adam(autoencoder.parameters(), lr=3e-4)
    generator = seeded()

    def step():
        rows = x[torch.randint(0, len(x), (BATCH,), generator=generator)]
        total = autoencoder.loss(rows)["total"]
        optimizer.zero_grad()
        total.backward()
        optimizer.step()

    return step


def floor_steps(
    products: list[tuple[int, int, int]], autoencoder: Autoencoder, *, table: tuple[int, int] | None = None
) -> dict[str, Callable[[], None]]:
    """What a step cannot do without, part by part, in several forms: names are "floor, PART, FORM".

    `products` are sizes (n, inner, m), `table` is the shape of the pre-activations that a top-k looks at.
    """
    dtype = compute_dtype("auto", autoencoder)
    operands = [
        (torch.randn(n, i).to(dtype), torch.randn(m, i).to(dtype), torch.empty(n, m, dtype=dtype))
        for n, i, m in products
    ]

    def multiply(block: int) -> None:
        for left, right, out in operands:
            for rows, part in zip(left.split(block), out.split(block), strict=True):
                torch.mm(rows, right.T, out=part)

    flat = nn.Parameter(torch.zeros(sum(p.numel() for p in autoencoder.parameters())))
    flat.grad = torch.ones_like(flat)
    forms = {
        "floor, products, whole": lambda: multiply(10**9),
        "floor, products, blocks of 512 rows": lambda: multiply(512),
        "floor, Adam, fused": torch.optim.Adam([flat], fused=True).step,
        "floor, Adam, foreach": torch.optim.Adam([flat], foreach=True).step,
    }
    if table is not None:
        pre = torch.randn(table).to(dtype)
        if devices.multiplies_int8("cpu"):
            (n, inner, m), *_ = products
            rows, columns = (torch.randint(-99, 99, (size, inner), dtype=torch.int8) for size in (n, m))
            whole = torch.empty(512, m, dtype=torch.int32)
            forms["floor, products, integers"] = lambda: [
                torch_private.multiply_int8(block, columns.T, out=whole) for block in rows.split(512)
            ]
        forms["floor, top-k, row maxima"] = lambda: pre.amax(dim=1)
        forms["floor, top-k, column maxima"] = lambda: pre.amax(dim=0)
    return forms


class Peers:
    """The process in which the other trainers run."""

    def __init__(self) -> None:
        self.process = None
        if python := os.environ.get("COURSE_PEERS_PYTHON"):
            worker = Path(__file__).with_name("sae_peers.py")
            self.process = subprocess.Popen(
                [python, str(worker)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                env={
                    **os.environ,
                    "OMP_NUM_THREADS": "1",
                    "CUDA_VISIBLE_DEVICES": "",
                    "WANDB_MODE": "disabled",
                },
            )
        else:
            print("COURSE_PEERS_PYTHON is not set: no rows of other trainers (see benchmarks/sae.py)")

    def ask(self, question: dict) -> dict:
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()
        if not (answer := self.process.stdout.readline()):
            raise RuntimeError(
                f"the process of the other trainers ended at {question}; run sae_peers.py by hand"
            )
        return json.loads(answer)

    def steps(self, *names: str) -> dict[str, Callable[[], float]]:
        """For each name a call that takes one step there and returns its seconds."""
        if self.process is None:
            return {}
        for name in names:
            self.ask({"make": name})
        return {name: lambda name=name: self.ask({"step": name})["seconds"] for name in names}

    def close(self) -> None:
        if self.process is not None:
            self.process.stdin.close()
            self.process.wait()


def interleaved(
    mine: dict[str, Callable[[], None]],
    theirs: dict[str, Callable[[], float]],
    *,
    rounds: int,
    steps: int = 1,
) -> dict[str, np.ndarray]:
    """Seconds of CPU time of one step, every candidate in every round; the first round is left out."""
    found: dict[str, list[float]] = {name: [] for name in (*mine, *theirs)}
    for _ in range(rounds + 1):
        for name, step in mine.items():
            start = time.thread_time()
            for _ in range(steps):
                step()
            found[name].append((time.thread_time() - start) / steps)
        for name, step in theirs.items():
            found[name].append(sum(step() for _ in range(steps)) / steps)
    return {name: np.array(values[1:]) for name, values in found.items()}


def compared(title: str, seconds: dict[str, np.ndarray], ours: str) -> dict[str, Spread]:
    """Activations a second of ours, and every candidate's time over ours; of a floor's part the fastest form."""
    rows = {f"{title}: activations / s": Spread.of(BATCH / seconds[ours])}
    parts: dict[str, np.ndarray] = {}
    for name in [name for name in seconds if name.startswith("floor")]:
        part, values = name.split(", ")[1], seconds.pop(name)
        if part not in parts or np.median(values) < np.median(parts[part]):
            parts[part] = values
    seconds |= {f"floor, {part} alone": values for part, values in parts.items()}
    seconds["floor with memory traffic"] = sum(parts.values())
    for name, values in seconds.items():
        if name != ours:
            rows[f"{title}: {name} / ours"] = Spread.of(values / seconds[ours])
    return rows


def topk(x: torch.Tensor, peers: Peers) -> dict[str, Spread]:
    def make() -> TopKSparseAutoencoder:
        return TopKSparseAutoencoder(WIDTH, FEATURES, k=K, generator=seeded())

    weight, pre = torch.randn(FEATURES, WIDTH), torch.empty(BATCH, FEATURES)
    kept = TrainConfig(**{**vars(CONFIG), "unit_norm_decoder": True, "revive_every": 1000})
    mine = {
        "ours": our_step(make(), x),
        "ours with unit-norm decoder and dead features revived": our_step(make(), x, kept),
        "plain float32 loop": plain_step(make(), x),
        "its product alone in float32": lambda: torch.mm(x[:BATCH], weight.T, out=pre),
        **floor_steps([(BATCH, WIDTH, FEATURES)], make(), table=(BATCH, FEATURES)),
    }
    seconds = interleaved(mine, peers.steps("SAELens TopK", "sparsify TopK"), rounds=ROUNDS)
    return compared("TopK", seconds, "ours")


def relu(x: torch.Tensor, peers: Peers) -> dict[str, Spread]:
    def make() -> ReluSparseAutoencoder:
        return ReluSparseAutoencoder(WIDTH, FEATURES, l1=0.1, generator=seeded())

    wide, narrow = (BATCH, WIDTH, FEATURES), (BATCH, FEATURES, WIDTH)
    mine = {
        "ours": our_step(make(), x),
        "plain float32 loop": plain_step(make(), x),
        **floor_steps([wide, narrow, wide, (FEATURES, BATCH, WIDTH), (WIDTH, BATCH, FEATURES)], make()),
    }
    return compared("ReLU + L1", interleaved(mine, peers.steps("SAELens ReLU + L1"), rounds=ROUNDS), "ours")


def bottleneck(x: torch.Tensor, peers: Peers) -> dict[str, Spread]:
    def make() -> StackedAutoencoder:
        return StackedAutoencoder(WIDTH, (128,), "relu", generator=seeded())

    mine = {
        "ours": our_step(make(), x),
        "plain float32 loop": plain_step(make(), x),
        **floor_steps(
            [(BATCH, WIDTH, 128), (BATCH, 128, WIDTH), (128, BATCH, WIDTH), (WIDTH, BATCH, 128)], make()
        ),
    }
    seconds = interleaved(mine, peers.steps("SAELens 1024 -> 128"), rounds=3 * ROUNDS, steps=5)
    return compared("1024 -> 128", seconds, "ours")


def adaptation(x: torch.Tensor) -> dict[str, Spread]:
    """What gathering statistics and moving biases takes of a step of GBA."""
    autoencoder = GroupBiasAdaptedAutoencoder(WIDTH, FEATURES, generator=seeded())
    step = our_step(autoencoder, x)
    with torch.no_grad():
        pre = autoencoder._preactivations(autoencoder.normalise(x[:BATCH]), torch.bfloat16)
        features = autoencoder._activate(pre)

    def adapt() -> None:
        with torch.no_grad():
            autoencoder._observe(pre, features)
        autoencoder.adapt()

    seconds = interleaved({"step": step, "adaptation": adapt}, {}, rounds=ROUNDS)
    return {
        "GBA: statistics and adaptation, share of a step": Spread.of(seconds["adaptation"] / seconds["step"])
    }


def loss_curves(x: torch.Tensor, *, features: int, batch_size: int, steps: int) -> dict[str, Spread]:
    """Largest difference between the loss curves of the fast step and of the plain float32 loop, in percent.

    Same start, same batches; curves are means over ten steps.
    """
    config = TrainConfig(steps=steps, batch_size=batch_size, step_size=1e-3, decay=0)
    d_model, rows = x.shape[1], {}
    makers = {
        "TopK": lambda: TopKSparseAutoencoder(d_model, features, k=K, generator=seeded()),
        "ReLU + L1": lambda: ReluSparseAutoencoder(d_model, features, l1=0.1, generator=seeded()),
        "bottleneck": lambda: StackedAutoencoder(d_model, (d_model // 8,), "relu", generator=seeded()),
    }
    for name, make in makers.items():
        curves = []
        for precision in ("float32", "bfloat16"):
            autoencoder = make()
            if precision == "float32":
                autoencoder.training_loss = lambda batch, compute_dtype=None, loss=autoencoder.loss, **kw: (
                    loss(batch, **kw)
                )
            history = train(
                autoencoder,
                x,
                TrainConfig(**{**vars(config), "precision": precision}),
                generator=seeded(1),
                progress=False,
            )
            curves.append(np.array(history.parts["total"]))
        difference = 100 * np.abs(curves[1] / curves[0] - 1)
        rows[f"{name}: loss curve against plain float32, largest difference, %"] = Spread.of(
            [difference.max()]
        )
    return rows


def run() -> dict[str, Spread]:
    """Return seconds' ratios (one thread, CPU time), activations a second, and how far loss curves differ."""
    torch.set_num_threads(1)
    x, peers = activations(seeded()), Peers()
    try:
        rows = topk(x, peers) | relu(x, peers) | bottleneck(x, peers)
    finally:
        peers.close()
    return (
        rows | adaptation(x) | loss_curves(x[:, :256].contiguous(), features=4096, batch_size=1024, steps=150)
    )
