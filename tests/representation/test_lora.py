"""Adapted layers against the formed weight and autograd, models with adapters, and the worked examples of lesson 25."""

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

from course_lib.representation import lora
from course_lib.representation.lora import (
    LoRALinear,
    adapted_linear,
    adapted_linear_by_weight,
    adapter_scale,
    adapters,
    inject,
    lora_gradients,
    merge,
    param_groups,
    row_norms,
    row_norms_by_weight,
    unload,
    unmerge,
    weight_gradients,
)


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def parts(d_in: int = 5, d_out: int = 4, rank: int = 2) -> dict[str, torch.Tensor]:
    """Weight, bias and both factors, none of them zero."""
    names = {"weight": (d_out, d_in), "bias": (d_out,), "lora_A": (rank, d_in), "lora_B": (d_out, rank)}
    return {name: normal(*shape, seed=i) for i, (name, shape) in enumerate(names.items(), start=1)}


class Two(nn.Module):
    """Two layers and an output; `twice` is one layer under two names."""

    def __init__(self, *, tied: bool = False, twice: bool = False) -> None:
        super().__init__()
        self.embed = nn.Embedding(7, 6)
        self.block = nn.ModuleDict({"fc1": nn.Linear(6, 8), "fc2": nn.Linear(8, 6)})
        self.fc1 = nn.Linear(6, 6)
        self.again = self.fc1 if twice else nn.Identity()
        self.head = nn.Linear(6, 7, bias=False)
        if tied:
            self.head.weight = self.embed.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embed(ids)
        x = x + self.block["fc2"](torch.tanh(self.block["fc1"](x)))
        return self.head(self.again(torch.tanh(self.fc1(x))))


IDS = torch.arange(7)[None]


def two(dtype: torch.dtype = torch.float64, **options: bool) -> Two:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return Two(**options).to(dtype).eval()


def shaken(model: nn.Module, size: float = 0.3) -> nn.Module:
    """The model with a B that is not zero, as after training."""
    for seed, layer in enumerate(adapters(model).values()):
        noise = normal(*layer.lora_B.shape, seed=100 + seed)
        layer.lora_B.data.add_(size * noise.to(layer.lora_B.dtype))
    return model


# The product


def test_the_numbers_of_the_worked_example():
    # y = (1 + b a) x with a = 0, b = 2, x = 1 and the target 3: the error is -2, da = b G = -4, db = a G = 0.
    one = lambda v: torch.tensor([[v]], dtype=torch.float64)  # noqa: E731
    _, d_a, d_b = lora_gradients(one(-2.0), one(1.0), one(1.0), one(0.0), one(2.0), 1.0)
    assert (d_a.item(), d_b.item()) == (-4.0, 0.0)


@pytest.mark.parametrize("leading", [(), (3,), (2, 3)])
def test_the_fast_form_is_the_formed_weight(leading):
    p, x = parts(), normal(*leading, 5)
    torch.testing.assert_close(
        adapted_linear(x, *p.values(), 0.7),
        adapted_linear_by_weight(x, *p.values(), 0.7),
        rtol=1e-12,
        atol=1e-12,
    )
    assert (adapted_linear(x, *p.values(), 0.7) - adapted_linear(x, *p.values(), 1.4)).abs().max() > 0.1


def test_gradients_by_hand_are_those_of_autograd():
    p, x, grad = parts(), normal(6, 5, seed=9).requires_grad_(), normal(6, 4, seed=10)
    learned = [x, *(p[name].requires_grad_() for name in ("lora_A", "lora_B", "bias"))]
    wanted = torch.autograd.grad(adapted_linear_by_weight(x, *p.values(), 0.7), learned, grad)
    fast = torch.autograd.grad(adapted_linear(x, *p.values(), 0.7), learned, grad)
    torch.testing.assert_close(fast, wanted, rtol=1e-12, atol=1e-12)
    slow = lora_gradients(grad, x.detach(), p["weight"], p["lora_A"].detach(), p["lora_B"].detach(), 0.7)
    torch.testing.assert_close(slow, wanted[:3], rtol=1e-12, atol=1e-12)


@given(st.integers(0, 4), st.integers(1, 4), st.integers(1, 4), st.integers(1, 5), st.booleans())
@settings(max_examples=15, deadline=None)
def test_gradcheck(rows, d_in, d_out, rank, own_input):
    p, x = parts(d_in, d_out, rank), normal(rows, d_in, seed=9)
    read = normal(rows, d_in, seed=11).requires_grad_() if own_input else None
    for name in ("bias", "lora_A", "lora_B"):
        p[name].requires_grad_()

    def call(x, read, bias, lora_A, lora_B):
        return adapted_linear(x, p["weight"], bias, lora_A, lora_B, 0.7, adapter_input=read)

    assert torch.autograd.gradcheck(call, (x.requires_grad_(), read, p["bias"], p["lora_A"], p["lora_B"]))


def test_only_what_is_asked_for_gets_a_gradient():
    p, x = parts(), normal(3, 5)
    p["lora_B"].requires_grad_()
    out = adapted_linear(x, *p.values(), 1.0)
    out.sum().backward()
    assert x.grad is p["lora_A"].grad is None
    assert p["lora_B"].grad is not None


def test_a_half_precision_base_gives_float32_gradients_and_saves_its_input_in_half():
    p, x = parts(64, 32, 4), normal(50, 64, seed=9).bfloat16().requires_grad_()
    weight, bias = p["weight"].bfloat16(), p["bias"].bfloat16()
    low, up = (p[name].float().requires_grad_() for name in ("lora_A", "lora_B"))
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: (saved.append(t), t)[1], lambda t: t):
        out = adapted_linear(x, weight, bias, low, up, 0.1)
    assert out.dtype == torch.bfloat16
    assert max(t.numel() * t.element_size() for t in saved) == 2 * 50 * 64
    out.float().square().sum().backward()
    assert (x.grad.dtype, low.grad.dtype, up.grad.dtype) == (torch.bfloat16, torch.float32, torch.float32)
    exact = [t.detach().double().requires_grad_() for t in (x, low, up)]
    adapted_linear_by_weight(
        exact[0], weight.double(), bias.double(), *exact[1:], 0.1
    ).square().sum().backward()
    for found, wanted in zip((x, low, up), exact, strict=True):
        assert (found.grad - wanted.grad).norm() < 0.01 * wanted.grad.norm()


def test_autocast_decides_the_dtype_of_the_products():
    p, x = {n: v.float() for n, v in parts().items()}, normal(3, 5).float().requires_grad_()
    p["lora_A"].requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        out = adapted_linear(x, *p.values(), 1.0)
    assert out.dtype == torch.bfloat16
    out.float().sum().backward()
    assert x.grad.dtype == p["lora_A"].grad.dtype == torch.float32


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"x": normal(3, 4)}, r"x must have shape \(..., 5\).*got \(3, 4\)"),
        ({"x": normal(3, 5).float()}, "x must have the dtype of weight, torch.float64, got torch.float32"),
        ({"lora_A": normal(2, 4)}, r"lora_A must have shape \(rank, 5\)"),
        ({"lora_B": normal(2, 4)}, r"lora_B \(4, rank\) for a weight \(4, 5\), got \(2, 5\) and \(2, 4\)"),
        ({"weight": normal(4, 5).requires_grad_()}, "weight must be frozen"),
    ],
)
def test_what_does_not_fit_is_named(change, said):
    given = {"x": normal(3, 5), **parts(), "scale": 1.0, **change}
    with pytest.raises(ValueError, match=said):
        adapted_linear(**given)


def test_row_norms_without_the_product():
    p = parts(7, 5, 3)
    del p["bias"]
    torch.testing.assert_close(
        row_norms(**p, scale=0.7), row_norms_by_weight(**p, scale=0.7), rtol=1e-12, atol=0
    )
    assert (row_norms(**p, scale=0.7) - p["weight"].norm(dim=1)).abs().max() > 0.1
    assert row_norms(p["weight"].half(), p["lora_A"].half(), p["lora_B"].half(), 1.0).dtype == torch.float32


# Scale and start


def test_scales():
    assert adapter_scale(16, 4) == 4
    assert adapter_scale(16, 4, "alpha/sqrt(r)") == 8
    for arguments, said in (
        ((0, 4), "alpha"),
        ((16, 0), "rank"),
        ((16, True), "rank"),
        ((16, 4, "r"), "scaling"),
    ):
        with pytest.raises(ValueError, match=f"{said} must be"):
            adapter_scale(*arguments)


def test_both_factors_zero_is_a_saddle_and_is_refused_with_its_reason():
    p, x = parts(), normal(6, 5)
    zero = [torch.zeros_like(p[name]) for name in ("lora_A", "lora_B")]
    _, d_a, d_b = lora_gradients(normal(6, 4), x, p["weight"], *zero, 1.0)
    assert d_a.abs().max() == d_b.abs().max() == 0
    _, d_a, d_b = lora_gradients(normal(6, 4), x, p["weight"], p["lora_A"], zero[1], 1.0)
    assert d_a.abs().max() == 0 < d_b.abs().min()  # one of them is enough
    model = two()
    with pytest.raises(ValueError, match=r"'both_zero' never learns.*saddle point"):
        inject(model, rank=2, alpha=2, targets=["fc1"], init="both_zero")
    assert not adapters(model)
    assert all(p.requires_grad for p in model.parameters())


def test_a_saddle_has_directions_of_both_signs():
    # L(a, b) = (1 - b a)^2 / 2 near 0: falls where a and b have one sign, rises where they differ.
    loss = lambda a, b: (1 - b * a) ** 2 / 2  # noqa: E731
    assert loss(0.1, 0.1) < loss(0, 0) < loss(0.1, -0.1)


@pytest.mark.parametrize("init", ["zero_b", "gradient_svd", "pissa"])
@pytest.mark.parametrize("dora", [False, True])
def test_every_start_computes_what_the_model_did(init, dora):
    model = two()
    before = model(IDS)
    targets = ["fc1", "block.fc2"]
    gradients = weight_gradients(model, targets, model(IDS).square().sum())
    made = inject(model, rank=3, alpha=6, targets=targets, init=init, gradients=gradients, dora=dora)
    torch.testing.assert_close(model(IDS), before, rtol=1e-10, atol=1e-10)
    assert list(made) == ["block.fc1", "block.fc2", "fc1"]
    assert all((layer.lora_B.abs().max() > 0) == (init == "pissa") for layer in made.values())
    learns = {name for name, p in model.named_parameters() if p.requires_grad}
    ends = ("lora_A", "lora_B", "magnitude")[: 2 + dora]
    assert learns == {f"{name}.{end}" for name in made for end in ends}


def test_random_rows_are_those_of_peft_and_of_the_generator():
    base = nn.Linear(400, 30)
    a, b = (LoRALinear(base, rank=8, alpha=8, generator=torch.Generator().manual_seed(3)) for _ in range(2))
    assert torch.equal(a.lora_A, b.lora_A)
    assert a.lora_A.abs().max() <= 400**-0.5
    assert a.lora_A.square().mean().item() == pytest.approx(1 / (3 * 400), rel=0.05)


def test_the_gradients_directions_make_the_first_step_the_best_of_its_rank():
    model = two()
    (gradient,) = weight_gradients(model, ["block.fc1"], model(IDS).square().sum()).values()
    fall = {}
    for init in ("zero_b", "gradient_svd"):
        made = inject(copy.deepcopy(model), rank=2, alpha=2, targets=["block.fc1"], init=init,
                      gradients={"block.fc1": gradient}, generator=torch.Generator().manual_seed(0))  # fmt: skip
        low = made["block.fc1"].lora_A.detach()
        fall[init] = (gradient @ low.T @ low).square().sum() / low.norm() ** 4  # of a step of unit size
    kept = torch.linalg.svdvals(gradient)[:2].square().sum()
    assert fall["gradient_svd"] == pytest.approx(kept.item() / 4)
    assert fall["zero_b"] < 0.7 * fall["gradient_svd"]


def test_pissa_takes_out_the_leading_part():
    model = two()
    weight = model.fc1.weight.detach().clone()
    layer = inject(model, rank=2, alpha=5, targets=["fc1"], init="pissa")["fc1"]
    u, sigma, v = torch.linalg.svd(weight)
    torch.testing.assert_close(layer.base.weight, (u[:, 2:] * sigma[2:]) @ v[2:], rtol=0, atol=1e-12)
    unload(model)
    torch.testing.assert_close(model.fc1.weight, weight, rtol=0, atol=1e-12)


@pytest.mark.parametrize("rank", [1, 2, 4])
def test_a_rank_r_adapter_reaches_the_best_that_rank_r_can(rank):
    # Errata 002-HW10-T2-b: a target of rank 4; too small a rank leaves the tail of its singular values.
    target = torch.diag(torch.tensor([8.0, 4, 2, 1, 0, 0], dtype=torch.float64))
    u, s, v = torch.linalg.svd(target)
    best = (target - (u[:, :rank] * s[:rank]) @ v[:rank]).square().sum()
    assert best == pytest.approx([21, 5, 0][[1, 2, 4].index(rank)])
    low, up = 0.3 * normal(rank, 6, seed=3), torch.zeros(6, rank, dtype=torch.float64)
    for _ in range(600):
        _, d_low, d_up = lora_gradients((up @ low - target).T, torch.eye(6).double(), target, low, up, 1.0)
        low, up = low - 0.05 * d_low, up - 0.05 * d_up
    assert (target - up @ low).square().sum() == pytest.approx(best.item(), abs=0.05)


# Models


@pytest.mark.parametrize("dora", [False, True])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_merge_gives_the_same_outputs_and_unmerge_the_same_bits(dora, dtype):
    model = two(dtype)
    inject(model, rank=2, alpha=4, targets="all-linear", dora=dora)
    shaken(model)
    before, bits = model(IDS), {n: p.clone() for n, p in model.state_dict().items()}
    merge(model)
    merge(model)  # twice is once
    tolerance = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 0.05}[dtype]
    torch.testing.assert_close(model(IDS), before, rtol=tolerance, atol=tolerance)
    assert not torch.equal(model.fc1.base.weight, bits["fc1.base.weight"])
    unmerge(model)
    unmerge(model)
    assert all(torch.equal(p, bits[n]) for n, p in model.state_dict().items())
    assert torch.equal(model(IDS), before)
    # Subtracting what was added is not enough.
    layer = model.fc1
    if dtype != torch.float64 and not dora:
        added = (layer.scale * layer.lora_B @ layer.lora_A).to(dtype)
        assert not torch.equal(layer.base.weight + added - added, layer.base.weight)


def test_unload_leaves_plain_layers():
    for merged in (False, True):
        model = two()
        plain = model(IDS)
        inject(model, rank=2, alpha=4, targets=["fc1"])
        wanted = shaken(model)(IDS) if merged else plain
        if merged:
            merge(model)
        unload(model)
        assert not adapters(model)
        assert type(model.block["fc1"]) is nn.Linear
        torch.testing.assert_close(model(IDS), wanted, rtol=1e-12, atol=1e-12)


def test_code_that_reads_the_weight_reads_the_adapted_one():
    # torch's attention uses out_proj.weight and never calls out_proj.
    attention = nn.MultiheadAttention(4, 2, batch_first=True).double().eval()
    x = normal(1, 3, 4)
    before = attention(x, x, x)[0]
    inject(attention, rank=2, alpha=4, targets=["out_proj"])
    shaken(attention)
    after = attention(x, x, x)[0]
    assert (after - before).abs().max() > 0.01
    after.sum().backward()
    assert attention.out_proj.lora_B.grad.abs().max() > 0


def test_a_layer_under_two_names_is_adapted_once_and_at_both():
    model = two(twice=True)
    made = inject(model, rank=2, alpha=4, targets=["fc1"])
    assert list(made) == ["block.fc1", "fc1"]
    assert model.again is model.fc1 is made["fc1"]


def test_a_shared_weight_is_refused_by_name_and_left_out_of_all():
    with pytest.raises(ValueError, match="'head' shares its weight with 'embed'"):
        inject(two(tied=True), rank=2, alpha=4, targets=["head"])
    assert "head" not in inject(two(tied=True), rank=2, alpha=4, targets="all-linear")
    assert "head" in inject(two(), rank=2, alpha=4, targets="all-linear")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"targets": ["q_proj"]},
            r"targets must name linear layers, such as \['fc1', 'fc2', 'head'\].*'q_proj'",
        ),
        ({"targets": ["embed"]}, "'embed' is a Embedding"),
        ({"targets": "fc1"}, "targets must be a list of names or 'all-linear'"),
        ({"rank": 0}, "rank must be a whole number"),
        ({"dropout": 1.0}, r"dropout must lie in \[0, 1\)"),
        ({"init": "zero_a"}, "init must be one of"),
        ({"init": "pissa", "rank": 7}, "rank must be at most 6, the smaller side of 'block.fc1'"),
        ({"init": "gradient_svd"}, "gradients must hold dL/dW of 'block.fc1'"),
    ],
)
def test_bad_input_leaves_the_model_as_it_was(options, said):
    model = two()
    with pytest.raises(ValueError, match=said):
        inject(model, **{"rank": 2, "alpha": 4, "targets": ["fc1"], **options})
    assert not adapters(model)
    assert all(p.requires_grad for p in model.parameters())


def test_adapters_are_injected_once_and_groups_need_them():
    model = two()
    with pytest.raises(ValueError, match="model must hold adapters"):
        param_groups(model, 0.1)
    inject(model, rank=2, alpha=4, targets=["fc1"], dora=True)
    with pytest.raises(ValueError, match="model must be without adapters, got one with 2"):
        inject(model, rank=2, alpha=4, targets=["fc2"])
    low, up = param_groups(model, 0.1, ratio=16)
    assert (low["lr"], up["lr"]) == (0.1, 1.6)
    assert {id(p) for group in (low, up) for p in group["params"]} == {
        id(p) for p in model.parameters() if p.requires_grad
    }
    with pytest.raises(ValueError, match="ratio must be a finite number above 0, got 0"):
        param_groups(model, 0.1, ratio=0)


def test_a_subclass_with_its_own_forward_is_refused():
    class Quantised(nn.Linear):
        def forward(self, x):
            return super().forward(x).round()

    with pytest.raises(ValueError, match=r"base must be an nn.Linear with its own forward, got Quantised"):
        LoRALinear(Quantised(3, 3), rank=1, alpha=1)


# DoRA and dropout


def test_dora_rescales_rows_and_its_norm_is_a_constant_to_the_gradient():
    layer = LoRALinear(nn.Linear(5, 4).double(), rank=2, alpha=4, dora=True)
    layer.lora_B.data.copy_(normal(4, 2))
    x, adapted = normal(6, 5), layer.base.weight + 2 * layer.lora_B @ layer.lora_A
    start = layer.base.weight.norm(dim=1)
    torch.testing.assert_close(layer.magnitude, start, rtol=1e-12, atol=0)
    norm = adapted.norm(dim=1)
    wanted = functional.linear(x, (start / norm)[:, None] * adapted, layer.bias)
    torch.testing.assert_close(layer(x), wanted, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(layer.weight.norm(dim=1), start, rtol=1e-12, atol=0)
    frozen = functional.linear(x, (layer.magnitude / norm.detach())[:, None] * adapted, layer.bias)
    learned = (layer.lora_A, layer.lora_B, layer.magnitude)
    for out in (frozen, layer(x)):
        found = torch.autograd.grad(out.square().sum(), learned, retain_graph=True)
        first = found if out is frozen else first
    torch.testing.assert_close(found, first, rtol=1e-10, atol=1e-10)
    moving = functional.linear(x, (layer.magnitude / adapted.norm(dim=1))[:, None] * adapted, layer.bias)
    other = torch.autograd.grad(moving.square().sum(), layer.lora_B)[0]
    assert (other - found[1]).abs().max() > 0.1


@pytest.mark.parametrize("dora", [False, True])
def test_dropout_acts_on_what_the_adapter_reads_in_training_only(dora):
    layer = LoRALinear(nn.Linear(5, 4).double(), rank=2, alpha=4, dropout=0.5, dora=dora)
    x = normal(6, 5).requires_grad_()
    with torch.random.fork_rng(devices=[]):
        torch.testing.assert_close(layer(x), layer.base(x))  # B is 0: the frozen part sees all of x
        layer.lora_B.data.copy_(normal(4, 2))
        assert not torch.equal(layer(x), layer(x))
        torch.manual_seed(5)
        out = layer(x)
        torch.manual_seed(5)
        read = functional.dropout(x, 0.5)
    gain = layer._gain() if dora else 1
    base = functional.linear(x - read, layer.base.weight) + gain * functional.linear(read, layer.base.weight)
    wanted = base + gain * (2 * read @ layer.lora_A.T @ layer.lora_B.T) + layer.bias
    torch.testing.assert_close(out, wanted, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(
        torch.autograd.grad(out.sum(), x, retain_graph=True),
        torch.autograd.grad(wanted.sum(), x),
        rtol=1e-12,
        atol=1e-12,
    )
    layer.eval()
    assert torch.equal(layer(x), layer(x))


def test_a_merged_bfloat16_weight_loses_small_updates():
    base = nn.Linear(64, 64, bias=False)
    nn.init.constant_(base.weight, 1.0)
    layer = LoRALinear(base.bfloat16(), rank=1, alpha=1)
    signs = torch.ones(64).index_fill_(0, torch.arange(32), -1.0)
    layer.lora_A.data.copy_(signs)
    layer.lora_B.data.fill_(1e-3)
    x = (signs / 8)[None].bfloat16()
    assert base(x).abs().max() == 0
    torch.testing.assert_close(layer(x).float(), torch.full((1, 64), 8e-3), rtol=0.01, atol=0)
    layer.merge()
    assert torch.equal(layer.base.weight, torch.ones_like(layer.base.weight))


def test_training_moves_the_adapter_alone():
    model = two()
    inject(model, rank=2, alpha=4, targets=["fc1"], generator=torch.Generator().manual_seed(0))
    frozen = {n: p.clone() for n, p in model.named_parameters() if not p.requires_grad}
    optimiser = torch.optim.AdamW(param_groups(model, 0.1, ratio=2))
    losses = []
    for _ in range(30):
        loss = functional.cross_entropy(model(IDS)[0], (IDS[0] + 1) % 7)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < 0.75 * losses[0]
    assert all(torch.equal(p, frozen[n]) for n, p in model.named_parameters() if n in frozen)
    assert lora.adapters(model)["fc1"].merged is False
