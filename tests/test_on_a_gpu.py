"""What `test_without_a_gpu` asks of devices that hold no numbers, asked of a GPU: the numbers of the CPU.

The file is skipped as one where there is no GPU. Products run in full float32 there (TF32 is off).
"""

import pytest
import torch
from torch import Tensor, nn

from course_lib import sae
from course_lib.attention.feature_maps import Quadratic
from course_lib.attention.kernelized import kernel_attention, linear_attention
from course_lib.language.corpus import generate
from course_lib.mbart.activations import Site, extract
from course_lib.mbart.model import load
from course_lib.pipeline import run
from tests.test_without_a_gpu import AUTOENCODERS, CASES, Inputs, tensors

if not torch.cuda.is_available():
    pytest.skip("there is no GPU", allow_module_level=True)

# Cases that draw on the device itself, or magnify the rounding of bfloat16; and those that only round to it.
OWN_NUMBERS = """
    optimization.newton_schulz.orthogonalize attention.random_features.RandomFeatureState
    architectures.normalisation.dropout representation.lora.LoRALinear
    attention.random_features.draw_frequencies attention.random_features.positive_features
    attention.random_features.trigonometric_features attention.random_features.random_feature_attention
"""
BFLOAT16 = "sae.sparse."


class Drawn(Inputs):
    """The same numbers on every device: drawn on the CPU, one leaf after the other."""

    def __init__(self, device: str, *, learn: bool) -> None:
        super().__init__(device, learn=learn)
        self.generator = torch.Generator().manual_seed(0)
        self.leaves: list[Tensor] = []

    def __call__(self, *shape: int) -> Tensor:
        leaf = torch.rand(shape, generator=self.generator).to(self.device).requires_grad_(self.learn)
        self.leaves.append(leaf)
        return leaf

    def module(self, make) -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            made = make().to(self.device)
        self.leaves += made.parameters()
        return made


def outcome(name: str, device: str) -> tuple[list[Tensor], list[Tensor]]:
    """What a case computes, and the gradients of its inputs and parameters."""
    drawn = Drawn(device, learn=True)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        found = tensors(CASES[name](drawn))
    total = sum(t.abs().sum() for t in found if t.grad_fn is not None)
    if isinstance(total, Tensor):
        total.backward()
    gradients = [leaf.grad for leaf in drawn.leaves if leaf.grad is not None]
    return [t.detach().cpu() for t in found], [g.cpu() for g in gradients]


@pytest.mark.parametrize("name", CASES)
def test_forward_and_backward_as_on_the_cpu(name):
    here, there = outcome(name, "cpu"), outcome(name, "cuda")
    for expected, found in zip(here, there, strict=True):
        assert len(found) == len(expected)
        for a, b in zip(found, expected, strict=True):
            if name in OWN_NUMBERS.split():
                assert (a.shape, a.dtype) == (b.shape, b.dtype)
            else:
                error = 2**-4 if name.startswith(BFLOAT16) else 1e-4
                torch.testing.assert_close(a, b, rtol=10 * error, atol=error)


@pytest.mark.parametrize("kind", AUTOENCODERS)
def test_training_reads_nothing_back_and_follows_the_cpu(kind):
    rows = torch.randn(256, 6, generator=torch.Generator().manual_seed(0))
    losses = {}
    for device in ("cpu", "cuda"):
        with torch.random.fork_rng():
            torch.manual_seed(0)
            made = kind(6, **AUTOENCODERS[kind]).to(device)
        made.fit_normalisation(rows.to(device))
        config = sae.TrainConfig(steps=40, batch_size=64, record_every=40, precision="float32")
        labels = torch.arange(256) % 3 if kind is sae.StackedAutoencoder else None
        history = sae.train(
            made, rows.to(device), config, generator=torch.Generator().manual_seed(1), labels=labels,
            progress=False,
        )  # fmt: skip
        losses[device] = history.parts["total"][-1]
    assert losses["cuda"] == pytest.approx(losses["cpu"], rel=1e-2)


@pytest.mark.parametrize("kind", AUTOENCODERS)
def test_no_step_of_training_waits_for_the_gpu(kind):
    """Where the queue of kernels is waited for, torch raises."""
    made = kind(6, **AUTOENCODERS[kind]).to("cuda")
    x = torch.randn(64, 6, device="cuda")
    labels = torch.arange(64, device="cuda") % 3 if kind is sae.StackedAutoencoder else None
    optimizer = torch.optim.Adam(made.parameters(), fused=True)

    def step() -> None:
        optimizer.zero_grad()
        made.training_loss(x, labels=labels, sparsity_scale=1.0, compute_dtype=torch.float32)[
            "total"
        ].backward()
        made.before_step()
        optimizer.step()

    step()  # what happens once may wait
    try:
        torch.cuda.set_sync_debug_mode("error")
        step()
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_states_are_those_of_the_cpu():
    sentences, site = generate(64, seed=0), Site("encoder")
    read = [
        extract(*load(device=device), sentences, [site], pool="tokens", progress=False)[site].values.cpu()
        for device in ("cpu", "cuda")
    ]
    torch.testing.assert_close(read[0], read[1], rtol=1e-3, atol=1e-3)


def test_the_pipeline_runs_on_the_gpu(tmp_path):
    found = run(out=tmp_path / "run", n_sentences=300, device="cuda", progress=False)
    assert found.metrics.run.device.startswith("cuda (")
    assert found.metrics.sparse.held_out.explained_variance > 0.3


@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize(("dtype", "error"), [(torch.float32, 5e-6), (torch.bfloat16, 2e-2)], ids=str)
@pytest.mark.parametrize("heads", [1, 40])
def test_the_kernels_of_the_quadratic_form(heads, dtype, error, causal):
    """Outputs and gradients of a long sequence against the definition in float64, few heads and many."""
    # With c = 2 no similarity is near 0: where all that a query sees are, its gradient has few digits in any form.
    kernel, generator = Quadratic(0.25, 2.0), torch.Generator().manual_seed(0)
    made = [0.5 * torch.randn(heads, 1300, 64, generator=generator).cuda() for _ in range(3)]
    mask = torch.rand(1, 1, 1300, generator=generator) > 0.2
    mask[..., 0] = True  # a query that sees no key gives 0/0 by the definition
    mask = mask.cuda().expand(heads, 1, 1300)
    found = []
    for attend, kind in (
        (lambda *t: linear_attention(*t, feature_map=kernel, causal=causal, attn_mask=mask), dtype),
        (
            lambda *t: kernel_attention(*t, similarity=kernel.similarity, causal=causal, attn_mask=mask),
            torch.float64,
        ),
    ):
        leaves = [t.to(kind).requires_grad_() for t in made]
        out = attend(*leaves)
        found.append([out, *torch.autograd.grad(out.square().sum(), leaves)])
    for a, b in zip(*found, strict=True):
        assert float((a.detach().double() - b.detach()).norm() / b.detach().norm()) < error
