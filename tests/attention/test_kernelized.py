"""Attention with kernels: worked examples, three implementations against each other, gradients, masks, dtypes, compile."""

import json
import math
import subprocess
import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import scaled_dot_product_attention
from torch.utils.flop_counter import FlopCounterMode

from course_lib.attention.kernelized import (
    Quadratic,
    crossover_length,
    elu_features,
    exp_similarity,
    kernel_attention,
    linear_attention,
    linear_attention_loop,
    linear_multiply_adds,
    memory_crossover_length,
    recurrent_step,
    softmax_multiply_adds,
)
from tests import HANG_S

SEEDS = st.integers(0, 2**31)
MAPS = {
    "quadratic": Quadratic(),
    "scaled": Quadratic(scale=0.4, offset=2.0),
    "homogeneous": Quadratic(offset=0),
    "by features": lambda x: Quadratic()(x),
    "elu": elu_features,
}
every_map = pytest.mark.parametrize("name", MAPS)
both = pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def qkv(*lead: int, length=37, d=11, d_v=5, seed=0, dtype=torch.float64, k_length=None):
    generator = rng(seed)
    shapes = ((length, d), (k_length or length, d), (k_length or length, d_v))
    return [torch.randn(*lead, *s, generator=generator, dtype=torch.float64).to(dtype) for s in shapes]


def similarity_of(feature_map):
    if isinstance(feature_map, Quadratic):
        return feature_map.similarity
    return lambda q, k: feature_map(q) @ feature_map(k).mT


def reference(q, k, v, feature_map, causal=False, attn_mask=None):
    return kernel_attention(
        q, k, v, similarity=similarity_of(feature_map), causal=causal, attn_mask=attn_mask
    )


def gap(a, b) -> float:
    return float(((a - b).abs().max() / (1 + b.abs().max())).detach())


def column(*entries: float) -> torch.Tensor:
    return torch.tensor(entries, dtype=torch.float64)[:, None]


# Worked examples


def test_one_query_and_two_keys():
    q, k, v = column(1), column(0, 1), column(1, 3)
    assert Quadratic().similarity(q, k).tolist() == [[1, 4]]
    for out in (
        reference(q, k, v, Quadratic()),
        linear_attention(q, k, v, feature_map=Quadratic()),
        linear_attention_loop(q, k, v, feature_map=Quadratic()),
    ):
        assert float(out) == pytest.approx(13 / 5, abs=1e-14)


@pytest.mark.parametrize(("q", "k", "right", "short"), [((1, 1), (1, 1), 9, 7), ((1, 2), (3, -1), 4, 16)])
def test_the_cross_terms_make_the_square(q, k, right, short):
    q, k = (torch.tensor([x], dtype=torch.float64) for x in (q, k))
    without = lambda x: torch.cat([x.new_ones(1, 1), math.sqrt(2) * x, x**2], 1)  # noqa: E731
    assert float(without(q) @ without(k).T) == pytest.approx(short, abs=1e-12)
    assert float(Quadratic()(q) @ Quadratic()(k).T) == pytest.approx(right, abs=1e-12)
    assert float(Quadratic().similarity(q, k)) == right


@pytest.mark.parametrize(("d", "count"), [(2, 6), (3, 10), (64, 2145)])
def test_number_of_features(d, count):
    assert Quadratic().n_features(d) == Quadratic()(torch.ones(1, d)).shape[-1] == count
    assert Quadratic(offset=0).n_features(d) == Quadratic(offset=0)(torch.ones(1, d)).shape[-1]
    assert Quadratic(offset=0).n_features(d) == d * (d + 1) // 2


def test_costs_for_64():
    count = Quadratic().n_features(64)

    def at(length, **options):
        linear = linear_multiply_adds(length, 64, n_features=count)
        return softmax_multiply_adds(length, 64, 64, **options) / linear

    assert at(2178) < 1 < at(2179)
    assert crossover_length(64, 64, n_features=count) == pytest.approx(2178.515625)
    assert at(16384) == pytest.approx(7.521, abs=5e-4)
    assert at(4356, causal=True) < 1 < at(4357, causal=True)
    assert crossover_length(64, 64, n_features=count, causal=True) == pytest.approx(2 * 2178.515625 - 1)
    assert math.ceil(memory_crossover_length(64, n_features=count)) == 374
    assert 1000 * count * 64 == 137_280_000


def test_finite_output_needs_no_sign_and_a_sign_is_not_enough():
    one, values = column(1), column(1, 3)
    given_numbers = lambda *row: lambda q, k: torch.tensor([row], dtype=torch.float64)  # noqa: E731
    assert float(kernel_attention(one, values, values, similarity=given_numbers(2.0, -1.0))) == -1
    for out in (
        reference(one, column(-1, -1), values, Quadratic()),
        linear_attention(one, column(-1, -1), values, feature_map=Quadratic()),
    ):
        assert out.isnan().all()


def test_features_exist_for_kernels_only():
    x = torch.tensor([0.0, 1.0], dtype=torch.float64)
    square = (torch.outer(x, x) - 1) ** 2
    assert torch.linalg.eigvalsh(square).tolist() == pytest.approx([(1 - 5**0.5) / 2, (1 + 5**0.5) / 2])
    assert torch.linalg.eigvalsh(torch.outer(x, x) - 1)[0] == pytest.approx(-1.618, abs=1e-3)
    for bad in ({"offset": -1}, {"scale": 0}, {"scale": -1.0}, {"offset": math.inf}, {"scale": math.nan}):
        with pytest.raises(ValueError, match="needs a finite scale > 0 and offset >= 0"):
            Quadratic(**bad)


# Properties


@given(SEEDS, st.integers(1, 6), st.floats(0.1, 3), st.floats(0, 3))
def test_features_give_the_similarity(seed, d, scale, offset):
    kernel = Quadratic(scale=scale, offset=offset)
    q, k, _ = qkv(2, length=4, d=d, seed=seed)
    wanted = kernel.similarity(q, k)
    assert gap(kernel(q) @ kernel(k).mT, wanted) < 1e-12
    assert (wanted >= 0).all()
    gram = kernel.similarity(k, k)
    values = torch.linalg.eigvalsh(gram)
    assert (values[..., 0] > -1e-12 * (1 + values[..., -1])).all()


@given(SEEDS)
def test_outputs_are_averages(seed):
    q, k, v = qkv(length=9, seed=seed)
    for feature_map in (Quadratic(), elu_features):
        out = linear_attention(q, k, v, feature_map=feature_map)
        assert (out >= v.amin(0) - 1e-9).all()
        assert (out <= v.amax(0) + 1e-9).all()


def test_elu_features_are_positive_where_elu_plus_one_rounds_to_zero():
    x = torch.tensor([-60.0, -1.0, 0.0, 2.0], requires_grad=True)
    out = elu_features(x)
    assert (out > 0).all()
    assert torch.allclose(out[1:], torch.nn.functional.elu(x)[1:] + 1)
    (grad,) = torch.autograd.grad(out.sum(), x)
    assert torch.allclose(grad, torch.where(x > 0, 1.0, x.exp()))


def test_the_exponential_is_softmax_attention():
    for causal in (False, True):
        q, k, v = qkv(2, 3)
        ours = kernel_attention(q, k, v, similarity=exp_similarity, causal=causal)
        assert gap(ours, scaled_dot_product_attention(q, k, v, is_causal=causal)) < 1e-13


@both
@every_map
@given(
    seed=SEEDS,
    length=st.integers(1, 20),
    d=st.integers(1, 10),
    chunk=st.integers(1, 24),
    batch=st.integers(1, 3),
)
def test_three_implementations_agree(causal, name, seed, length, d, chunk, batch):
    q, k, v = qkv(batch, length=length, d=d, d_v=3, seed=seed)
    weights = similarity_of(MAPS[name])(q, k)
    weights = weights.tril() if causal else weights
    # Of a sum near zero no digit is safe: the bound is on what was divided.
    room = 1e-12 * (1 + weights.amax(-1, keepdim=True)) * length * (1 + v.abs().max())
    total = weights.sum(-1, keepdim=True)
    out = linear_attention(q, k, v, feature_map=MAPS[name], causal=causal, chunk_size=chunk)
    assert ((out * total - weights @ v).abs() <= room * (1 + out.abs())).all()
    loop = linear_attention_loop(q, k, v, feature_map=MAPS[name], causal=causal)
    assert ((loop * total - weights @ v).abs() <= room * (1 + loop.abs())).all()


@every_map
@both
@pytest.mark.parametrize("normalize", [True, False])
def test_sums_without_denominators(name, causal, normalize):
    q, k, v = qkv(3)
    weights = similarity_of(MAPS[name])(q, k)
    weights = weights.tril() if causal else weights
    wanted = weights @ v / (weights.sum(-1, keepdim=True) + 0.5 if normalize else 1)
    found = linear_attention(
        q, k, v, feature_map=MAPS[name], causal=causal, normalize=normalize, eps=0.5, chunk_size=8
    )
    assert gap(found, wanted) < 1e-12


@every_map
def test_queries_may_be_more_or_fewer_than_keys(name):
    for length, k_length in ((5, 40), (40, 5)):
        q, k, v = qkv(2, length=length, k_length=k_length)
        out = linear_attention(q, k, v, feature_map=MAPS[name], chunk_size=16)
        assert gap(out, reference(q, k, v, MAPS[name])) < 1e-12


@every_map
@both
def test_masked_keys_take_no_part(name, causal):
    q, k, v = qkv(2, 3, length=20)
    mask = torch.rand(2, 1, 1, 20, generator=rng(3)) > 0.4
    mask[..., 0] = True
    out = linear_attention(q, k, v, feature_map=MAPS[name], causal=causal, attn_mask=mask, chunk_size=8)
    assert gap(out, reference(q, k, v, MAPS[name], causal, mask)) < 1e-12
    changed = torch.where(mask.mT, v, 1e3)
    assert torch.equal(
        out,
        linear_attention(q, k, changed, feature_map=MAPS[name], causal=causal, attn_mask=mask, chunk_size=8),
    )


@every_map
@both
def test_leading_dimensions(name, causal):
    q, k, v = qkv(2, 3, 2)
    out = linear_attention(q, k, v, feature_map=MAPS[name], causal=causal, chunk_size=16)
    assert out.shape == (2, 3, 2, 37, 5)
    for index in ((0, 0, 0), (1, 2, 1)):
        alone = linear_attention(
            *(t[index] for t in (q, k, v)), feature_map=MAPS[name], causal=causal, chunk_size=16
        )
        assert gap(alone, out[index]) < 1e-13
    swapped = [t.transpose(0, 1).contiguous().transpose(0, 1) for t in (q, k, v)]
    assert gap(linear_attention(*swapped, feature_map=MAPS[name], causal=causal), out) < 1e-12


@every_map
def test_the_future_does_not_change_the_past(name):
    q, k, v = qkv(length=30)
    out = linear_attention(q, k, v, feature_map=MAPS[name], causal=True, chunk_size=8)
    for t in (k, v):
        t[21:] += 5
    later = linear_attention(q, k, v, feature_map=MAPS[name], causal=True, chunk_size=8)
    assert torch.equal(out[:21], later[:21])
    assert not torch.allclose(out[21:], later[21:])


def test_a_decoder_may_go_on_from_its_state():
    q, k, v = qkv(2, 3, length=12)
    wanted = linear_attention(q, k, v, feature_map=elu_features, causal=True)
    state = None
    for i in range(12):
        tokens = (t[..., i, :] for t in (q, k, v))
        out, state = recurrent_step(state, *tokens, feature_map=elu_features)
        assert gap(out, wanted[..., i, :]) < 1e-13
        assert [t.shape for t in state] == [(2, 3, 11, 5), (2, 3, 11)]


# Gradients


@every_map
@both
@pytest.mark.parametrize("normalize", [True, False])
def test_gradients_are_those_of_the_definition(name, causal, normalize):
    inputs = [t.requires_grad_() for t in qkv(2, length=19)]
    mask = torch.ones(2, 1, 19, dtype=torch.bool)
    mask[0, 0, 3] = False
    pull = torch.randn(2, 19, 5, generator=rng(1), dtype=torch.float64)
    for attn_mask in (None, mask):
        q, k, v = inputs
        weights = similarity_of(MAPS[name])(q, k)
        weights = (weights.tril() if causal else weights) * (1 if attn_mask is None else attn_mask)
        wanted = weights @ v / (weights.sum(-1, keepdim=True) + 0.1 if normalize else 1)
        options = {"causal": causal, "attn_mask": attn_mask, "normalize": normalize, "eps": 0.1}
        found = linear_attention(q, k, v, feature_map=MAPS[name], chunk_size=8, **options)
        for a, b in zip(
            torch.autograd.grad(found, inputs, pull), torch.autograd.grad(wanted, inputs, pull), strict=True
        ):
            assert gap(a, b) < 1e-11


@both
@pytest.mark.parametrize("name", ["quadratic", "elu"])
def test_gradients_are_those_of_finite_differences(name, causal):
    inputs = [t.requires_grad_() for t in qkv(length=5, d=2, d_v=2)]
    assert torch.autograd.gradcheck(
        lambda *t: linear_attention(*t, feature_map=MAPS[name], causal=causal, chunk_size=3),
        inputs,
        fast_mode=True,
    )


@both
def test_general_maps_can_be_differentiated_twice_and_learn(causal):
    layer = torch.nn.Linear(2, 2).double()
    inputs = [t.requires_grad_() for t in qkv(length=3, d=2, d_v=1)]

    def attend(q, k, v, weight):
        features = lambda x: (x @ weight.mT).exp()  # noqa: E731
        return linear_attention(q, k, v, feature_map=features, causal=causal, chunk_size=2)

    assert torch.autograd.gradcheck(attend, [*inputs, layer.weight], fast_mode=True)
    assert torch.autograd.gradgradcheck(attend, [*inputs, layer.weight], fast_mode=True)
    frozen = [t.detach() for t in inputs]
    features = lambda x: layer(x).exp()  # noqa: E731
    linear_attention(*frozen, feature_map=features, causal=causal, chunk_size=2).sum().backward()
    assert layer.bias.grad.abs().sum() > 0


@both
def test_the_quadratic_path_can_be_differentiated_again(causal):
    inputs = [t.requires_grad_() for t in qkv(length=3, d=2, d_v=2)]
    attend = lambda *t: linear_attention(*t, feature_map=Quadratic(), causal=causal, chunk_size=2, eps=0.1)  # noqa: E731
    assert torch.autograd.gradgradcheck(attend, inputs, fast_mode=True)
    inputs[1].requires_grad_(False)
    assert torch.autograd.gradgradcheck(attend, inputs, fast_mode=True)


def test_the_quadratic_path_under_torch_func():
    q, k, v = qkv(length=9, d=4)
    through = lambda attend: torch.func.grad(lambda x: attend(x).square().sum())(q)  # noqa: E731
    found = through(lambda x: linear_attention(x, k, v, feature_map=Quadratic(), chunk_size=4))
    assert gap(found, through(lambda x: reference(x, k, v, Quadratic()))) < 1e-12


# Precision, compilation, cost


@both
@pytest.mark.parametrize("name", ["quadratic", "elu"])
def test_float32_is_accurate(name, causal):
    q, k, v = qkv(length=1500, d=64, d_v=64, dtype=torch.float32)
    out = linear_attention(q, k, v, feature_map=MAPS[name], causal=causal)
    exact = reference(q.double(), k.double(), v.double(), MAPS[name], causal)
    assert out.dtype == torch.float32
    assert float((out - exact).norm() / exact.norm()) <= 1e-6


@both
@every_map
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_summed_in_float32(name, causal, dtype):
    inputs = [t.requires_grad_() for t in qkv(length=600, d=8, dtype=dtype)]
    out = linear_attention(*inputs, feature_map=MAPS[name], causal=causal)
    exact = reference(*(t.double() for t in inputs), MAPS[name], causal)
    assert out.dtype == dtype
    # A query whose similarities all nearly vanish may be off; the typical one must be as good as its inputs' digits.
    error = (out - exact).norm(dim=-1) / exact.norm(dim=-1)
    assert float(error.detach().median()) < 8 * torch.finfo(dtype).eps
    out.sum().backward()
    assert all(t.grad.dtype == dtype and t.grad.isfinite().all() for t in inputs)


@both
@pytest.mark.parametrize("name", ["quadratic", "elu"])
def test_autocast(name, causal):
    inputs = [t.requires_grad_() for t in qkv(length=40, dtype=torch.float32)]
    wanted = linear_attention(*inputs, feature_map=MAPS[name], causal=causal, chunk_size=16)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = linear_attention(*inputs, feature_map=MAPS[name], causal=causal, chunk_size=16)
    found.sum().backward()
    assert all(t.grad.isfinite().all() for t in inputs)
    # The quadratic kernel keeps float32; what a map does is left to autocast.
    assert torch.equal(found, wanted) if name == "quadratic" else gap(found, wanted) < 0.1


_COMPILED = """
import json, torch
from course_lib.attention.kernelized import Quadratic, elu_features, linear_attention
torch.set_num_threads(1)
worst = 0.0
for feature_map in (Quadratic(), elu_features):
    for causal in (False, True):
        torch._dynamo.reset()
        torch.manual_seed(0)
        q, k, v = (torch.randn(2, 20, 9, dtype=torch.float64, requires_grad=True) for _ in range(3))
        attend = lambda *t: linear_attention(*t, feature_map=feature_map, causal=causal, chunk_size=16)
        compiled = torch.compile(attend, fullgraph=True, backend="aot_eager")
        out, wanted = compiled(q, k, v), attend(q, k, v)
        pull = torch.randn_like(out)
        found = [out, *torch.autograd.grad(out, (q, k, v), pull)]
        wanted = [wanted, *torch.autograd.grad(wanted, (q, k, v), pull)]
        worst = max([worst, *(float((a - b).abs().max() / b.abs().max()) for a, b in zip(found, wanted))])
print(json.dumps(worst))
"""


@pytest.mark.nightly
def test_compiles_without_graph_breaks():
    # In a process of its own: the run-time checks of shapes that the tests switch on cannot be traced.
    done = subprocess.run([sys.executable, "-c", _COMPILED], capture_output=True, text=True, timeout=HANG_S)
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout) < 1e-12


def test_the_counter_of_torch_counts_what_the_formulas_say():
    q, k, v = qkv(length=512, d=64, d_v=32, dtype=torch.float32)

    def multiply_adds(call) -> int:
        with FlopCounterMode(display=False) as counter:
            call()
        return counter.get_total_flops() // 2

    count = Quadratic().n_features(64)
    assert multiply_adds(lambda: reference(q, k, v, Quadratic())) == softmax_multiply_adds(512, 64, 32)
    general = lambda: linear_attention(q, k, v, feature_map=MAPS["by features"])  # noqa: E731
    assert multiply_adds(general) == linear_multiply_adds(512, 32, n_features=count)
    pairs = sum(min(8, 65 - low) * (65 - low) for low in range(0, 65, 8))
    assert pairs == 2369
    fast = lambda: linear_attention(q, k, v, feature_map=Quadratic())  # noqa: E731
    assert multiply_adds(fast) == 2 * 512 * (pairs * 32 + 65**2)


_MEMORY = """
import os, torch
from pathlib import Path
from course_lib.attention.kernelized import Quadratic, linear_attention
torch.set_num_threads(1)
def call(n, d, learns):
    q, k, v = (torch.randn(1, 1, n, d, requires_grad=learns) for _ in range(3))
    Path("/proc/self/clear_refs").write_text("5")
    before = resident("VmRSS")
    out = linear_attention(q, k, v, feature_map=Quadratic(), causal=True)
    if learns:
        out.sum().backward()
    return resident("VmHWM") - before
def resident(field):
    line = next(li for li in Path("/proc/self/status").read_text().splitlines() if li.startswith(field))
    return int(line.split()[1]) / 1024
for learns in (False, True):
    if not os.fork():  # a heap of its own for each: what one call has freed would hide what the next one takes
        call(8, 8, learns)
        print(call(16384, 64, learns), flush=True)
        os._exit(0)
    os.wait()
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc/self/status")
def test_memory_beyond_the_inputs_is_small():
    # 16,384 tokens: the output takes 4 MiB, N^2 similarities would take 1,024, stored features 268.
    done = subprocess.run([sys.executable, "-c", _MEMORY], capture_output=True, text=True, check=True)
    forwards, with_gradients = map(float, done.stdout.split())
    assert 0 < forwards <= 30
    assert 0 < with_gradients <= 80


# Errors


def test_what_does_not_fit_is_refused():
    q, k, v = qkv(length=6)
    for function in (
        lambda *a, **o: linear_attention(*a, feature_map=elu_features, **o),
        lambda *a, **o: linear_attention_loop(*a, feature_map=elu_features, **o),
        lambda *a, **o: kernel_attention(*a, similarity=Quadratic().similarity, **o),
    ):
        with pytest.raises(ValueError, match="as many keys as queries, got 6 queries and 4 keys"):
            function(q, k[:4], v[:4], causal=True)
        with pytest.raises(ValueError, match="share dtype and device"):
            function(q.float(), k, v)
    with pytest.raises(ValueError, match="chunk_size must be 1 or more, got 0"):
        linear_attention(q, k, v, feature_map=elu_features, chunk_size=0)
    with pytest.raises(ValueError, match="same for all queries"):
        linear_attention(q, k, v, feature_map=Quadratic(), attn_mask=torch.ones(6, 6, dtype=torch.bool))
    with pytest.raises(ValueError, match=r"must return \(..., seq, n_features\)"):
        linear_attention(q, k, v, feature_map=lambda x: x.sum(-1))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("feature_map", [Quadratic(), elu_features], ids=["quadratic", "elu"])
def test_a_query_that_sees_no_key_gets_zeros_and_no_gradient(feature_map, causal):
    q, k, v = (t.requires_grad_() for t in torch.randn(3, 2, 9, 4, dtype=torch.float64))
    mask = torch.ones(2, 1, 9, dtype=torch.bool)
    mask[1, :, : 3 if causal else 9] = False  # padding on the left, or a sequence of padding
    out = linear_attention(q, k, v, feature_map=feature_map, causal=causal, attn_mask=mask, chunk_size=4)
    blind = out[1, :3] if causal else out[1]
    assert (blind == 0).all()
    grads = torch.autograd.grad(out.square().sum(), (q, k, v))
    assert all(grad.isfinite().all() for grad in grads)
    seen = linear_attention(q[1, 3:], k[1, 3:], v[1, 3:], feature_map=feature_map, causal=True)
    if causal:
        torch.testing.assert_close(out[1, 3:], seen)


@pytest.mark.parametrize("feature_map", [Quadratic(), elu_features], ids=["quadratic", "elu"])
def test_autocast_changes_nothing(feature_map):
    q, k, v = torch.randn(3, 2, 40, 8)
    alone = linear_attention(q, k, v, feature_map=feature_map, causal=True)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(linear_attention(q, k, v, feature_map=feature_map, causal=True), alone)


@pytest.mark.parametrize("feature_map", [Quadratic(), elu_features], ids=["quadratic", "elu"])
@pytest.mark.parametrize("causal", [False, True])
def test_empty_sequences_give_empty_outputs(feature_map, causal):
    q, k, v = torch.randn(3, 2, 0, 8)
    assert linear_attention(q, k, v, feature_map=feature_map, causal=causal).shape == (2, 0, 8)


def test_a_feature_map_that_loses_rows_later_on_is_refused():
    q, k, v = torch.randn(3, 2, 9, 4)
    with pytest.raises(ValueError, match=r"feature_map must return .* got \(2, 5, 4\)"):
        linear_attention(q, k, v, feature_map=lambda x: x[:, :5].exp())
