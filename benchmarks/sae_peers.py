"""The other trainers of sparse autoencoders, in a process and an environment of their own.

`python sae_peers.py` waits for one line of JSON at a time on its standard input and answers with one on its
standard output: {"make": name} builds a trainer, {"step": name} takes one optimiser step and returns the
seconds of CPU time that it took. The file imports nothing of the course, which is not installed there.
"""

import json
import os
import sys
import time
from importlib import import_module

import torch

ROWS, WIDTH, BATCH, K = 65_536, 1024, 4096, 32


def activations(generator: torch.Generator) -> torch.Tensor:
    """Sums of 16 of 4,096 directions with a little noise: sparse, as hidden states are taken to be."""
    atoms = torch.nn.functional.normalize(torch.randn(4096, WIDTH, generator=generator), dim=1)
    chosen = torch.randint(0, 4096, (ROWS, 16), generator=generator)
    weights = torch.rand(ROWS, 16, generator=generator) + 0.5
    rows = torch.nn.functional.embedding_bag(chosen, atoms, mode="sum", per_sample_weights=weights)
    return rows + 0.005 * torch.randn(ROWS, WIDTH, generator=generator)


def saelens(kind: str, features: int, x: torch.Tensor):
    """One step of SAELens' own trainer: its losses, statistics, clipping and optimiser, as they come."""
    # By name: the project does not depend on its peers.
    peer = import_module("sae_lens")
    if kind == "topk":
        sae = peer.TopKTrainingSAE(peer.TopKTrainingSAEConfig(d_in=WIDTH, d_sae=features, k=K))
    else:
        settings = peer.StandardTrainingSAEConfig(d_in=WIDTH, d_sae=features, l1_coefficient=0.1)
        sae = peer.StandardTrainingSAE(settings)
    config = import_module("sae_lens.config").SAETrainerConfig(
        total_training_samples=10**9, train_batch_size_samples=BATCH, lr_end=3e-4
    )

    def batches():
        while True:
            yield x[torch.randint(0, ROWS, (BATCH,))]

    provider = batches()
    trainer = import_module("sae_lens.training.sae_trainer").SAETrainer(config, sae, provider)

    def step():
        trainer.step(next(provider))
        trainer.n_training_steps += 1

    return step


def sparsify(features: int, x: torch.Tensor):
    """One step of EleutherAI's sparsify with Adam, in the order of its `Trainer.fit`."""
    peer = import_module("sparsify")
    coder = peer.SparseCoder(WIDTH, peer.SparseCoderConfig(num_latents=features, k=K))
    coder.b_dec.data = x.mean(dim=0)
    optimizer = torch.optim.Adam(coder.parameters(), lr=2e-4 / (features / 2**14) ** 0.5)
    since_fired = torch.zeros(features, dtype=torch.long)

    def step():
        rows = x[torch.randint(0, ROWS, (BATCH,))]
        coder.set_decoder_norm_to_unit_norm()
        out = coder(rows)
        fired = torch.zeros(features, dtype=torch.bool)
        fired[out.latent_indices.flatten()] = True
        out.fvu.backward()
        coder.remove_gradient_parallel_to_decoder_directions()
        optimizer.step()
        optimizer.zero_grad()
        since_fired.add_(BATCH)
        since_fired[fired] = 0

    return step


def main() -> None:
    """Answer until the input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print does not belong among the answers
    torch.set_num_threads(1)
    x = activations(torch.Generator().manual_seed(0))
    makers = {
        "SAELens TopK": lambda: saelens("topk", 8192, x),
        "sparsify TopK": lambda: sparsify(8192, x),
        "SAELens ReLU + L1": lambda: saelens("standard", 8192, x),
        "SAELens 1024 -> 128": lambda: saelens("standard", 128, x),
    }
    steps = {}
    for line in sys.stdin:
        asked = json.loads(line)
        if "make" in asked:
            steps[asked["make"]] = makers[asked["make"]]()
            answer = {"made": asked["make"]}
        else:
            start = time.thread_time()
            steps[asked["step"]]()
            answer = {"seconds": time.thread_time() - start}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
