"""The form for a GPU: its operations in torch against the definition, and its kernels by Triton's interpreter."""

import os
import subprocess
import sys
from importlib.util import find_spec

import pytest
import torch

from course_lib.attention import quadratic_in_parallel
from course_lib.attention.feature_maps import Quadratic
from course_lib.attention.kernelized_chunks import Form, Tokens
from course_lib.attention.quadratic_in_parallel import attend_in_parallel, fits
from tests import HANG_S

# Sizes of q, k, v (batch, length, D, M), one of neither a power of two nor a whole number of chunks.
SIZES = {"whole": (2, 256, 16, 16), "ragged": (1, 300, 20, 12), "wide values": (1, 130, 16, 32)}
KERNELS = {"plain": Quadratic(), "scaled": Quadratic(0.25, 0.5), "homogeneous": Quadratic(0.3, 0)}


@pytest.fixture(autouse=True)
def short_chunks(monkeypatch):
    monkeypatch.setattr(quadratic_in_parallel, "CHUNK", 128)


def inputs(batch: int, length: int, d: int, m: int) -> tuple[list[torch.Tensor], torch.Tensor]:
    """q, k, v, weights and floor in float64, some keys hidden, and a gradient of the outputs."""
    generator = torch.Generator().manual_seed(0)
    q, k, v = (
        0.5 * torch.randn(batch, length, size, generator=generator, dtype=torch.float64) for size in (d, d, m)
    )
    weights = (torch.rand(batch, length, 1, generator=generator) > 0.2).double()
    floor = torch.full((batch, length, 1), 0.3, dtype=torch.float64)
    gradient = torch.randn(batch, length, m, generator=generator, dtype=torch.float64)
    return [q, k * weights, v * weights, weights, floor], gradient


def by_definition(q, k, v, weights, floor, form: Form) -> torch.Tensor:
    scores = form.feature_map.similarity(q, k)
    scores = scores.tril() if form.causal else scores
    return form.divide(scores @ v, scores @ weights + floor)


def outcome(
    attend, tokens: list[torch.Tensor], gradient: torch.Tensor, dtype: torch.dtype
) -> list[torch.Tensor]:
    """Outputs and the gradients of q, k and v."""
    learned = [t.to(dtype).requires_grad_() for t in tokens[:3]]
    out = attend(*learned, *(t.to(dtype) for t in tokens[3:]))
    return [out.detach(), *torch.autograd.grad(out, learned, gradient.to(dtype))]


def errors(size: str, kernel: str, *, causal: bool, normalize: bool, dtype: torch.dtype) -> list[float]:
    """||found - wanted|| / ||wanted|| of outputs and gradients."""
    form = Form(KERNELS[kernel], causal, normalize, 256)
    tokens, gradient = inputs(*SIZES[size])
    wanted = outcome(lambda *t: by_definition(*t, form), tokens, gradient, torch.float64)
    found = outcome(lambda *t: attend_in_parallel(Tokens(*t), form), tokens, gradient, dtype)
    return [float((f.double() - w).norm() / w.norm()) for f, w in zip(found, wanted, strict=True)]


@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("size", SIZES)
def test_outputs_and_gradients_are_those_of_the_definition(size, kernel, causal):
    for normalize in (False, True):
        assert max(errors(size, kernel, causal=causal, normalize=normalize, dtype=torch.float32)) < 2e-6


@pytest.mark.parametrize(("dtype", "error"), [(torch.bfloat16, 1.5e-2), (torch.float16, 2e-3)], ids=str)
def test_half_precision_rounds_as_its_digits_do(dtype, error):
    for causal in (False, True):
        found = errors("ragged", "plain", causal=causal, normalize=True, dtype=dtype)
        assert error / 20 < max(found) < error


def test_second_derivatives_are_those_of_the_definition():
    form = Form(Quadratic(0.5, 1.0), True, True, 256)
    tokens, gradient = inputs(1, 140, 5, 3)
    tokens[3] = torch.ones_like(tokens[3])  # hidden keys get no gradient before they come here
    found = []
    for attend in (lambda *t: by_definition(*t, form), lambda *t: attend_in_parallel(Tokens(*t), form)):
        learned = [t.float().requires_grad_() for t in tokens[:3]]
        first = torch.autograd.grad(
            attend(*learned, *(t.float() for t in tokens[3:])), learned, gradient.float(), create_graph=True
        )
        found.append(torch.autograd.grad(sum(t.square().sum() for t in first), learned))
    for wanted, second in zip(*found, strict=True):
        torch.testing.assert_close(second, wanted, rtol=1e-3, atol=1e-4 * float(wanted.abs().max()))


def test_fewer_queries_than_keys_read_all_of_them():
    form = Form(Quadratic(), False, True, 256)
    (q, k, v, weights, floor), _ = inputs(2, 300, 16, 16)
    tokens = [t.float() for t in (q[:, :40], k, v, weights, floor[:, :40])]
    torch.testing.assert_close(attend_in_parallel(Tokens(*tokens), form), by_definition(*tokens, form))


def test_a_cpu_keeps_its_own_form():
    tokens, _ = inputs(*SIZES["whole"])
    assert not fits(Tokens(*(t.float() for t in tokens)), Form(Quadratic(), True, True, 256))


INTERPRETED = """
import torch
from course_lib.attention import quadratic_in_parallel
from course_lib.attention.kernelized import Quadratic, kernel_attention, linear_attention

quadratic_in_parallel.CHUNK = 128
kernel = Quadratic({scale}, {offset})
generator = torch.Generator().manual_seed(0)
q, k, v = (torch.randn(1, 2, {length}, size, generator=generator) / 2 for size in ({d}, {d}, {m}))
mask = (torch.rand(1, 1, 1, {length}, generator=generator) > 0.2).expand(1, 2, 1, {length}).clone()
mask[..., 0] = True  # a query that sees no key gives 0/0 by the definition
calls = []
write = quadratic_in_parallel._forms(q).write
quadratic_in_parallel._forms(q).write = lambda *given: calls.append(given) or write(*given)

def outcome(attend, dtype):
    learned = [t.to(dtype).requires_grad_() for t in (q, k, v)]
    out = attend(*learned, causal={causal}, attn_mask=mask)
    return [out.detach(), *torch.autograd.grad(out.square().sum(), learned)]

found = outcome(lambda *t, **o: linear_attention(*t, feature_map=kernel, **o), torch.float32)
wanted = outcome(lambda *t, **o: kernel_attention(*t, similarity=kernel.similarity, **o), torch.float64)
assert len(calls) == 3, len(calls)  # keys forward, keys and queries backward
for f, w in zip(found, wanted, strict=True):
    error = float((f.double() - w).norm() / w.norm())
    assert error < 2e-6, error
"""


def run_interpreted(code: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=HANG_S,
    )
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.skipif(find_spec("triton") is None, reason="Triton is made for Linux only")
@pytest.mark.parametrize(
    "case",
    [
        {"length": 256, "d": 16, "m": 16, "causal": True, "scale": 1.0, "offset": 1.0},
        {"length": 300, "d": 20, "m": 12, "causal": True, "scale": 0.25, "offset": 0.5},
        {"length": 256, "d": 32, "m": 16, "causal": False, "scale": 0.25, "offset": 0.0},
    ],
    ids=["causal", "ragged", "not causal"],
)
def test_the_kernels_do_the_same_in_the_interpreter(case):
    run_interpreted(INTERPRETED.format(**case))


@pytest.mark.skipif(find_spec("triton") is None, reason="Triton is made for Linux only")
@pytest.mark.parametrize(
    ("causal", "many"), [(True, 1), (False, 8)], ids=["chunks in order", "parts of whole tiles"]
)
def test_programs_share_a_sequence_by_the_number_of_heads(causal, many):
    """Causal, one program goes through all chunks where heads are many; else four parts of six tiles would overlap."""
    code = INTERPRETED.format(length=300, d=16, m=16, causal=causal, scale=1.0, offset=1.0)
    lines = f"calls = []\nfrom course_lib.attention import quadratic_triton\nquadratic_triton.MANY = {many}"
    run_interpreted(code.replace("calls = []", lines))
