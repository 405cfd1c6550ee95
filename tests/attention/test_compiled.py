"""torch.compile takes forms of attention as one graph for lengths that vary, with their gradients."""

import json
import subprocess
import sys

import pytest

HANG_S = 600  # guards against a hang only
AT_ONCE = ("attention", "qk_norm", "rope", "delta rule")
IN_CHUNKS = ("quadratic", "elu", "quadratic that fades", "elu that fades", "random features", "ridge")

# In a process of its own: the run-time checks of shapes that the tests switch on cannot be traced.
_SCRIPT = """
import json, sys, torch
from functools import partial
from course_lib.attention import (
    Quadratic, attention, delta_rule, elu_features, linear_attention, positive_features, qk_norm_attention,
    random_feature_attention, ridge_attention, rope,
)
torch.set_num_threads(1)
backend, names = sys.argv[1], sys.argv[2].split(";")
linear = partial(linear_attention, causal=True, chunk_size=16)
features = positive_features(4, 8, generator=torch.Generator().manual_seed(0))
forms = {
    "attention": partial(attention, causal=True),
    "qk_norm": partial(qk_norm_attention, scale=3.0, causal=True),
    "quadratic": partial(linear, feature_map=Quadratic()),
    "elu": partial(linear, feature_map=elu_features),
    "quadratic that fades": partial(linear, feature_map=Quadratic(), decay=0.9),
    "elu that fades": partial(linear, feature_map=elu_features, decay=0.9),
    "random features": partial(random_feature_attention, features=features, causal=True, chunk_size=16),
    "ridge": partial(ridge_attention, penalty=0.3, chunk_size=16),
    "delta rule": lambda q, k, v: delta_rule(q, torch.nn.functional.normalize(k, dim=-1), v),
    "rope": lambda q, k, v: rope(q, torch.arange(q.shape[-2])) + 0 * (k.sum() + v.sum()),
}
worst = {}
for name in names:
    torch._dynamo.reset()
    form, gaps = forms[name], []
    compiled = torch.compile(lambda q, k, v: form(q, k, v), fullgraph=True, dynamic=True, backend=backend)
    for length in (20, 33):
        torch.manual_seed(length)
        qkv = [torch.randn(2, 3, length, 4, requires_grad=True) for _ in range(3)]
        out, wanted = compiled(*qkv), form(*qkv)
        pull = torch.randn_like(out)
        found = [out, *torch.autograd.grad(out, qkv, pull)]
        wanted = [wanted, *torch.autograd.grad(wanted, qkv, pull)]
        with torch.no_grad():  # reading a prompt has paths of its own
            found, wanted = [*found, compiled(*qkv)], [*wanted, wanted[0]]
        gaps += [float((a - b).detach().abs().max() / (1 + b.detach().abs().max())) for a, b in zip(found, wanted)]
    worst[name] = max(gaps)
print(json.dumps(worst))
"""


def gaps(backend: str, names: tuple[str, ...]) -> dict[str, float]:
    command = [sys.executable, "-c", _SCRIPT, backend, ";".join(names)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANG_S)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


def test_forms_without_chunks_are_one_graph_for_any_length():
    found = gaps("eager", AT_ONCE)
    assert len(found) == len(AT_ONCE)
    assert max(found.values()) < 1e-5, found


@pytest.mark.nightly
@pytest.mark.parametrize("name", IN_CHUNKS)
def test_forms_in_chunks_are_one_graph_for_any_length(name):
    (gap,) = gaps("eager", (name,)).values()
    assert gap < 1e-5
