"""muP: its rules against the published table, what a parametrized model survives, what is refused, and transfer."""

import copy
import io
import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn.functional import cross_entropy, gelu, scaled_dot_product_attention

from course_lib.optimization.muon import Muon
from course_lib.optimization.mup import (
    UnitScale,
    attention_scale,
    layer_outputs,
    param_groups,
    parametrize,
    resume_groups,
    roles,
    rounding_loss,
    sign_change_mean_square,
    step_kind,
)
from course_lib.optimization.steepest_descent import primal_norm

SEEDS = st.integers(0, 2**31)
R = 8  # how many times wider the models are than their base


def rng(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


class Block(nn.Module):
    """A residual block with attention: what a transformer is made of."""

    def __init__(self, width: int):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width)
        self.gain = nn.RMSNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.drop = nn.Dropout(0.0)

    def forward(self, x):
        q, k, v = self.qkv(self.norm(x)).chunk(3, dim=-1)
        x = x + self.out(scaled_dot_product_attention(q, k, v, scale=attention_scale(q.shape[-1], 16)))
        return x + self.drop(self.down(gelu(self.up(self.gain(x)))))


class Net(nn.Module):
    """Embedding, one block, readout."""

    def __init__(self, width: int, *, seed: int = 0):
        torch.manual_seed(seed)
        super().__init__()
        self.embedding, self.block = nn.Embedding(11, width), Block(width)
        self.norm, self.readout = nn.LayerNorm(width), nn.Linear(width, 11)

    def forward(self, tokens):
        return self.readout(self.norm(self.block(self.embedding(tokens))))


def base_net(width: int = 16) -> Net:
    with torch.device("meta"):
        return Net(width)


def mlp(width: int, *, seed: int = 0, bias: bool = True) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Linear(8, width, bias=bias), nn.Tanh(), nn.Linear(width, width, bias=bias), nn.Tanh(),
        nn.Linear(width, 2, bias=bias),
    )  # fmt: skip


TOKENS = torch.randint(11, (4, 6), generator=rng(0))


def loss_of(model: nn.Module) -> torch.Tensor:
    return cross_entropy(model(TOKENS)[:, :-1].flatten(0, 1), TOKENS[:, 1:].flatten())


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int = 3) -> list[float]:
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = loss_of(model)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def rates(groups) -> dict[str, float]:
    return {name: group["lr"] for group in groups for name, _ in group["params"]}


# The rules

# Table 3 of Yang et al. 2022, in units of the base: where only fan_out, both fans, only fan_in grow R times.
TABLE = {
    "sgd": {"input": R, "hidden": 1, "output": 1 / R},
    "adam": {"input": 1, "hidden": 1 / R, "output": 1 / R},
    "std": {"input": 1, "hidden": R**-0.5, "output": 1 / R},
}
ROLES = {
    "embedding.weight": "input", "block.norm.weight": "input", "block.norm.bias": "input",
    "block.qkv.weight": "hidden", "block.out.weight": "hidden", "block.out.bias": "input",
    "block.gain.weight": "input", "block.up.weight": "hidden", "block.up.bias": "input",
    "block.down.weight": "hidden", "block.down.bias": "input", "norm.weight": "input", "norm.bias": "input",
    "readout.weight": "output", "readout.bias": "fixed",
}  # fmt: skip


def test_roles_are_told_by_the_fans_that_grew():
    assert roles(Net(16 * R), base_net()) == ROLES
    assert set(roles(Net(16), base_net()).values()) == {"fixed"}
    assert roles(parametrize(Net(16 * R), base_net())) == ROLES


@pytest.mark.parametrize(
    ("optimizer", "row"),
    [(torch.optim.SGD, "sgd"), (torch.optim.Adam, "adam"), (torch.optim.AdamW, "adam"), (torch.optim.NAdam, "adam"),
     ("sgd", "sgd"), ("adam", "adam")],
)  # fmt: skip
def test_step_sizes_are_those_of_the_table(optimizer, row):
    found = rates(param_groups(Net(16 * R), optimizer, 0.3, base_model=base_net()))
    assert set(found) == set(ROLES)
    for name, role in ROLES.items():
        assert found[name] == pytest.approx(0.3 * TABLE[row].get(role, 1)), name


@pytest.mark.parametrize(("initial_std", "drawn"), [("fan_in", -0.5), ("constant", 0.0)])
def test_initial_weights_are_those_of_the_table(initial_std, drawn):
    plain, model = Net(16 * R), parametrize(Net(16 * R), base_net(), initial_std=initial_std)
    for (name, before), after in zip(plain.named_parameters(), model.parameters(), strict=True):
        factor = 1.0
        if name.endswith("weight") and ROLES[name] in ("hidden", "output"):
            factor = TABLE["std"][ROLES[name]] / R**drawn
        elif name in ("block.out.bias", "block.up.bias", "block.down.bias", "readout.bias"):
            factor = R**-drawn  # Linear draws its bias like its weights; a bias has the fan_in of one
        torch.testing.assert_close(after, before * factor, rtol=1e-6, atol=0)


def test_standard_deviations_against_the_base_in_numbers():
    base, wide = mlp(64), parametrize(mlp(64 * R), mlp(64))
    for layer, expected in ((0, 1), (2, R**-0.5), (4, 1 / R)):
        ratio = wide[layer].weight.std().item() / base[layer].weight.std().item()
        assert ratio == pytest.approx(expected, rel=0.25)
    assert wide[2].bias.std().item() / base[2].bias.std().item() == pytest.approx(1, rel=0.25)


@given(
    base=st.integers(1, 40),
    width=st.integers(1, 40),
    d_in=st.integers(1, 9),
    step=st.sampled_from(["sgd", "adam"]),
)
def test_rates_follow_the_fans_at_any_width(base, width, d_in, step):
    sizes = lambda w: nn.Sequential(nn.Linear(d_in, w), nn.Linear(w, 3 * w), nn.Linear(3 * w, 2))  # noqa: E731
    with torch.device("meta"):
        found = rates(param_groups(sizes(width), step, 1, base_model=sizes(base)))
    r = width / base
    expected = {"0": (r, 1), "1": (1, 1 / r), "2": (1 / r, 1 / r)}
    for layer, (sgd, adam) in expected.items():
        assert found[f"{layer}.weight"] == pytest.approx(sgd if step == "sgd" else adam)
    assert found["1.bias"] == pytest.approx(r if step == "sgd" else 1)
    assert found["2.bias"] == 1


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.AdamW])
def test_one_group_for_each_step_size_and_every_parameter_once(optimizer):
    model = Net(16 * R)
    groups = param_groups(model, optimizer, 0.1, base_model=base_net())
    assert len({group["lr"] for group in groups}) == len(groups) == (3 if optimizer is torch.optim.SGD else 2)
    taken = [parameter for group in groups for _, parameter in group["params"]]
    assert {id(p) for p in taken} == {id(p) for p in model.parameters()}
    assert len(taken) == len(list(model.parameters()))


def test_weight_decay_shrinks_all_groups_alike():
    groups = param_groups(Net(16 * R), torch.optim.AdamW, 0.1, weight_decay=0.2, base_model=base_net())
    assert [group["lr"] * group["weight_decay"] for group in groups] == pytest.approx([0.02] * len(groups))
    model = Net(16 * R)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    optimizer = torch.optim.AdamW(
        param_groups(model, torch.optim.AdamW, 0.1, weight_decay=0.2, base_model=base_net())
    )
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    optimizer.step()
    for name, p in model.named_parameters():
        torch.testing.assert_close(p.detach(), before[name] * 0.98, rtol=1e-5, atol=1e-8)


def test_without_weight_decay_none_is_left_to_the_optimizers_default():
    for optimizer in (torch.optim.AdamW, torch.optim.SGD):
        groups = optimizer(param_groups(Net(32), optimizer, 0.1, base_model=base_net())).param_groups
        assert {group["weight_decay"] for group in groups} == {0.0}


# Muon


def first_step(kind: type, weight: nn.Parameter, group: dict, gradient: torch.Tensor) -> torch.Tensor:
    before = weight.detach().clone()
    weight.grad = gradient
    kind([{**group, "params": [weight]}], momentum=0.0, nesterov=False).step()
    return weight.detach() - before


@pytest.mark.parametrize("kind", [torch.optim.Muon, Muon], ids=["torch", "course"])
def test_muon_steps_have_the_same_rms_to_rms_norm_at_every_width(kind):
    norms = {}
    for width in (32, 128):
        model = mlp(width, bias=False)
        groups = param_groups(model, kind, 0.1, base_model=mlp(32, bias=False))
        for name, parameter in model.named_parameters():
            (group,) = (g for g in groups if name in dict(g["params"]))
            # Rank one, so that Newton-Schulz meets one singular value, and the same at every width.
            gradient = torch.outer(*(torch.randn(n, generator=rng(1)) for n in parameter.shape))
            norms.setdefault(name, []).append(
                float(primal_norm(first_step(kind, parameter, group, gradient), norm="rms_to_rms"))
            )
    for name, (narrow, wide) in norms.items():
        assert wide / narrow == pytest.approx(1, rel=0.1), name


def test_muon_leaves_hidden_matrices_of_one_shape_ratio_at_the_base_rate():
    model = parametrize(Net(16 * R), base_net())
    hidden = [name for name, role in ROLES.items() if role == "hidden"]
    (group,) = param_groups(model, torch.optim.Muon, 0.02, select=lambda name: name in hidden)
    assert [name for name, _ in group["params"]] == hidden
    assert group["lr"] == pytest.approx(0.02)
    # The groups' choice counts, whatever the optimizer's own default is.
    assert (
        torch.optim.Muon([group], adjust_lr_fn="match_rms_adamw").param_groups[0]["adjust_lr_fn"]
        == "original"
    )
    rest = param_groups(model, torch.optim.AdamW, 0.01, select=lambda name: name not in hidden)
    assert sorted(rates(rest)) == sorted(set(ROLES) - set(hidden))


@pytest.mark.parametrize("name", ["embedding.weight", "block.norm.weight", "block.out.bias"])
def test_muon_refuses_what_is_no_matrix_of_a_linear(name):
    with pytest.raises(ValueError, match=rf"weights of Linear layers, and {name} is none"):
        param_groups(Net(32), torch.optim.Muon, 0.1, base_model=base_net(), select=lambda n: n == name)


def test_other_implementations_are_known_by_the_name_of_their_class():
    class Muon(torch.optim.Optimizer):  # somebody else's
        pass

    class MyAdamW(torch.optim.AdamW):
        pass

    class Unheard(torch.optim.Optimizer):
        pass

    assert (step_kind(Muon), step_kind(MyAdamW), step_kind(torch.optim.SGD)) == ("muon", "adam", "sgd")
    with pytest.raises(ValueError, match=r'no muP rule is known for Unheard.*pass "sgd", "adam" or "muon"'):
        step_kind(Unheard)
    with pytest.raises(ValueError, match="no muP rule is known for lion"):
        param_groups(Net(32), "lion", 0.1, base_model=base_net())


# What a parametrized model survives


def test_a_model_of_the_bases_widths_is_not_changed():
    plain, model = Net(16), parametrize(Net(16), base_net())
    for before, after in zip(plain.parameters(), model.parameters(), strict=True):
        assert torch.equal(before, after)
    (group,) = param_groups(model, torch.optim.SGD, 0.1)
    assert group["lr"] == 0.1


def test_the_forward_pass_and_the_state_dict_are_those_of_the_module():
    plain, model = Net(64), parametrize(Net(64), base_net())
    assert list(model.state_dict()) == list(plain.state_dict())
    plain.load_state_dict(model.state_dict())
    assert torch.equal(plain(TOKENS), model(TOKENS))


def trained(copying) -> tuple[list[float], list[float]]:
    """Losses of a parametrized model, and of what `copying(model)` makes of it and of its step sizes."""
    model = parametrize(Net(64), base_net())
    other, groups = copying(model)
    mine = torch.optim.AdamW(param_groups(model, torch.optim.AdamW, 0.01, weight_decay=0.1))
    return train(model, mine), train(other, torch.optim.AdamW(groups))


def test_deepcopy_trains_like_the_original():
    def copying(model):
        other = copy.deepcopy(model)
        return other, param_groups(other, torch.optim.AdamW, 0.01, weight_decay=0.1)

    original, copied = trained(copying)
    assert original == copied
    assert original[-1] < original[0]


def test_pickling_the_module_keeps_the_base():
    def copying(model):
        buffer = io.BytesIO()
        torch.save(model, buffer)
        buffer.seek(0)
        other = torch.load(buffer, weights_only=False)
        return other, param_groups(other, torch.optim.AdamW, 0.01, weight_decay=0.1)

    original, loaded = trained(copying)
    assert original == loaded


def test_a_model_rebuilt_from_a_state_dict_trains_on_with_the_base_or_with_the_saved_rates():
    model = parametrize(Net(64), base_net())
    optimizer = torch.optim.AdamW(param_groups(model, torch.optim.AdamW, 0.01, weight_decay=0.1))
    train(model, optimizer)
    saved = copy.deepcopy({"model": model.state_dict(), "optimizer": optimizer.state_dict()})
    expected = train(model, optimizer)
    for with_base in (True, False):
        rebuilt = Net(64, seed=5)
        rebuilt.load_state_dict(saved["model"])
        resumed = torch.optim.AdamW(
            param_groups(rebuilt, torch.optim.AdamW, 99.0, base_model=base_net())
            if with_base
            else resume_groups(rebuilt, saved["optimizer"])
        )
        resumed.load_state_dict(copy.deepcopy(saved["optimizer"]))  # it keeps the tensors it is given
        assert train(rebuilt, resumed) == expected
        assert [g["lr"] for g in resumed.param_groups] == [g["lr"] for g in optimizer.param_groups]


def test_resuming_says_what_is_missing():
    model = parametrize(Net(64), base_net())
    optimizer = torch.optim.AdamW(param_groups(model, torch.optim.AdamW, 0.01))
    with pytest.raises(ValueError, match=r"names the parameter 'embedding.weight', which the model lacks"):
        resume_groups(mlp(64), optimizer.state_dict())
    with pytest.raises(ValueError, match="has no parameter names"):
        resume_groups(model, torch.optim.AdamW(model.parameters()).state_dict())


@pytest.mark.nightly
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiled_the_losses_are_the_same(backend):
    model, other = (parametrize(Net(64), base_net()) for _ in range(2))
    plain = train(model, torch.optim.AdamW(param_groups(model, torch.optim.AdamW, 0.01)))
    compiled = train(
        torch.compile(other, backend=backend), torch.optim.AdamW(param_groups(other, torch.optim.AdamW, 0.01))
    )
    assert compiled == pytest.approx(plain, rel=1e-4)


def test_a_base_on_meta_serves_as_well_as_one_with_values():
    first, second = parametrize(Net(64), base_net()), parametrize(Net(64), Net(16))
    for a, b in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(a, b)


def test_float64_and_bfloat16_stay_what_they_are():
    for dtype in (torch.float64, torch.bfloat16):
        assert {p.dtype for p in parametrize(Net(64).to(dtype), base_net()).parameters()} == {dtype}


# What is refused


def test_a_second_parametrization_is_refused_and_changes_nothing():
    model = parametrize(Net(64), base_net())
    before = copy.deepcopy(model.state_dict())
    for again in (model, copy.deepcopy(model)):
        with pytest.raises(ValueError, match="parametrized already"):
            parametrize(again, base_net())
        assert all(torch.equal(before[name], value) for name, value in again.state_dict().items())


class Scaled(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale, self.layer = nn.Parameter(torch.ones(width)), nn.Linear(width, width)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda w: nn.Sequential(nn.Linear(3, w), nn.MultiheadAttention(w, 2)),
         r"^1 is of type MultiheadAttention .*in_proj_weight"),
        (lambda w: nn.Sequential(nn.Sequential(nn.Conv1d(3, w, 3))), r"^0\.0 is of type Conv1d"),
        (lambda w: nn.Sequential(nn.Linear(3, w), nn.BatchNorm1d(w)), r"^1 is of type BatchNorm1d"),
        (lambda w: nn.GRU(3, w), r"^the model itself is of type GRU"),
        (lambda w: nn.Sequential(nn.Linear(3, w), Scaled(w)), r"^1 is of type Scaled and has .*\(scale\)"),
        (lambda w: nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(3, w))), "is of type "),
        (lambda w: nn.Embedding(w, 3), r"^weight has 32 rows, and 16 in base_model"),
    ],
)  # fmt: skip
def test_layers_without_a_rule_are_named_and_nothing_is_touched(make, message):
    model = make(32)
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(ValueError, match=message):
        parametrize(model, make(16))
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert not hasattr(model, "mup_base_shapes")
    with pytest.raises(ValueError, match=message):
        param_groups(model, torch.optim.SGD, 0.1, base_model=make(16))


def test_an_embedding_tied_to_the_readout_is_refused_at_every_width():
    def tied(width):
        model = nn.Sequential(nn.Embedding(11, width), nn.Linear(width, 11, bias=False))
        model[1].weight = model[0].weight
        return model

    for width in (16, 32):
        with pytest.raises(ValueError, match=r"1\.weight and 0\.weight are one tied parameter"):
            parametrize(tied(width), tied(16))


def test_layers_that_share_a_weight_of_one_role_are_scaled_once():
    def shared(width):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(3, width), nn.Linear(width, width), nn.Linear(width, width))
        model[2].weight = model[1].weight
        return model

    plain, model = shared(64), parametrize(shared(64), shared(16), initial_std="constant")
    torch.testing.assert_close(model[1].weight, plain[1].weight / 2)
    assert model[2].weight is model[1].weight
    groups = param_groups(model, torch.optim.Adam, 0.1)
    assert sum(len(group["params"]) for group in groups) == 5
    again = parametrize(shared(64), shared(16))
    torch.testing.assert_close(again[2].bias, plain[2].bias * 2)


def test_models_that_differ_in_more_than_widths_are_refused():
    shallow = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 2))
    for model, base, message in (
        (mlp(32), shallow, r"base_model has no parameter '4\.weight'"),
        (shallow, mlp(32), r"model has no parameter '4\.weight'"),
        (mlp(32), mlp(16, bias=False), r"base_model has no parameter '0\.bias' \(3 are missing\)"),
        (nn.Sequential(nn.LayerNorm(8)), nn.Sequential(nn.LayerNorm((2, 8))), r"0\.weight has shape \(8,\), and \(2, 8\)"),
        (torch.compile(mlp(32), backend="eager"), mlp(16), "Pass the module itself"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=message):
            parametrize(model, base)


def test_arguments_are_checked():
    with pytest.raises(ValueError, match='initial_std must be "fan_in" or "constant", got \'zero\''):
        parametrize(Net(32), base_net(), initial_std="zero")
    with pytest.raises(ValueError, match=r"holds no base shapes.*Pass base_model="):
        param_groups(Net(32), torch.optim.SGD, 0.1)
    for lr in (0, -1.0, math.inf, math.nan):
        with pytest.raises(ValueError, match="lr must be a finite number above 0"):
            param_groups(Net(32), torch.optim.SGD, lr, base_model=base_net())
    for optimizer in (torch.optim.Adam, torch.optim.NAdam):
        with pytest.raises(
            ValueError, match=f"and {optimizer.__name__} normalises it with the gradient: use AdamW"
        ):
            param_groups(Net(32), optimizer, 0.1, weight_decay=0.1, base_model=base_net())
    with pytest.raises(ValueError, match="select takes none"):
        param_groups(Net(32), torch.optim.SGD, 0.1, base_model=base_net(), select=lambda name: False)


# Sizes of one layer: worked examples and laws


def test_worked_examples():
    assert sign_change_mean_square(64, step_size=1) == pytest.approx(2630.850922186088, abs=1e-9)
    assert sign_change_mean_square(4, step_size=1.0) == pytest.approx(11.639437268410976, abs=1e-12)
    assert UnitScale.of(64, 256) == UnitScale(
        multiplier=1 / 16, longest_step=8.0, sign_step=1 / 16, muon_step=8.0
    )
    assert float(torch.linalg.matrix_norm(torch.ones(64, 256), 2)) == pytest.approx(128, rel=1e-5)
    assert float(primal_norm(2 * torch.eye(48, 12), norm="rms_to_rms")) == pytest.approx(1, abs=1e-6)
    e1, h = torch.tensor([1.0, 0.0]), torch.tensor([0.0, math.sqrt(2)])
    assert float(torch.linalg.matrix_norm(torch.outer(e1, e1), 2)) == 1
    assert torch.outer(e1, e1) @ h @ torch.ones(2) == 0
    w = h = dh = 1.0
    assert (w - 0.5) * (h + dh) - w * h == 0


def test_e4m3_has_the_numbers_it_is_said_to_have():
    every = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn).double()
    finite = every[every.isfinite()].unique()  # 0 and -0 count once
    positive = finite[finite > 0]
    assert len(finite) == 253
    assert (float(finite.max()), float(positive.min())) == (448, 2**-9)
    # Below the smallest normal number the distance between neighbours no longer halves.
    gaps = positive.diff()
    assert float(positive[int((gaps > gaps[0]).nonzero()[0])]) == 2**-5
    assert torch.finfo(torch.float8_e4m3fn).smallest_normal == 2**-6


def test_small_weights_lose_more_in_fp8():
    values = torch.randn(400_000, generator=rng(0), dtype=torch.float64)
    for d, error, zeros in ((1, 0.0265, 0.001), (4096, 0.0383, 0.05), (16384, 0.0721, 0.10)):
        lost, share = rounding_loss(values / math.sqrt(d), torch.float8_e4m3fn)
        assert lost == pytest.approx(error, rel=0.02)
        assert share == pytest.approx(zeros, rel=0.3)
    assert rounding_loss(values, torch.float64) == (0.0, 0.0)


@given(d=st.integers(1, 200), step_size=st.floats(1e-3, 10), seed=SEEDS)
def test_a_sign_update_moves_every_output_by_the_sum_of_the_sizes(d, step_size, seed):
    x = torch.randn(d, generator=rng(seed), dtype=torch.float64)
    g = torch.randn(5, generator=rng(seed + 1), dtype=torch.float64)
    change = step_size * torch.outer(g, x).sign() @ x
    torch.testing.assert_close(change, step_size * g.sign() * x.abs().sum(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("d", [1, 4, 64])
def test_the_law_of_the_sign_update_on_average(d):
    squares = torch.randn(20_000, d, generator=rng(d), dtype=torch.float64).abs().sum(1).square()
    error = float(squares.std()) / math.sqrt(len(squares))
    assert abs(float(squares.mean()) - sign_change_mean_square(d, step_size=1)) < 5 * error


@given(
    d_out=st.integers(1, 40), d_in=st.integers(1, 40), batch=st.integers(1, 6), seed=SEEDS,
    step=st.sampled_from(["sign", "muon"]),
)  # fmt: skip
def test_no_unit_scale_step_changes_an_output_by_more_than_its_input(d_out, d_in, batch, seed, step):
    generator = rng(seed)
    layer = UnitScale.of(d_out, d_in)
    g, x = (torch.randn(batch, n, generator=generator, dtype=torch.float64) for n in (d_out, d_in))
    left, _, right = torch.linalg.svd(g.T @ x, full_matrices=False)
    change = layer.sign_step * (g.T @ x).sign() if step == "sign" else layer.muon_step * left @ right
    assert float(torch.linalg.matrix_norm(change, 2)) <= layer.longest_step * (1 + 1e-9)
    rms = lambda t: t.square().mean(-1).sqrt()  # noqa: E731
    probes = torch.randn(20, d_in, generator=generator, dtype=torch.float64)
    assert bool((rms(layer.multiplier * probes @ change.T) <= rms(probes) * (1 + 1e-9)).all())


@given(widths=st.lists(st.integers(1, 30), min_size=2, max_size=5), seed=SEEDS)
def test_the_spectral_condition_bounds_sizes_and_changes(widths, seed):
    """Layers with RMS-to-RMS norms 1 and updates with 1/2: sizes at most 1, changes at most (3/2)^L - 1."""
    generator = rng(seed)
    rms = lambda t: float(t.square().mean().sqrt())  # noqa: E731
    h = torch.randn(widths[0], generator=generator, dtype=torch.float64)
    h = h / rms(h)
    moved, bound = h, 0.0
    for d_in, d_out in pairwise(widths):
        W, step = (torch.randn(d_out, d_in, generator=generator, dtype=torch.float64) for _ in range(2))
        W, step = W / primal_norm(W, norm="rms_to_rms"), step / (2 * primal_norm(step, norm="rms_to_rms"))
        exact = W @ (moved - h) + step @ h + step @ (moved - h)
        torch.testing.assert_close((W + step) @ moved - W @ h, exact, rtol=1e-9, atol=1e-9)
        h, moved, bound = W @ h, (W + step) @ moved, bound + 0.5 + 0.5 * bound
        assert rms(h) <= 1 + 1e-9
        assert rms(moved - h) <= bound * (1 + 1e-9)


# What it is for


def test_attention_scores_of_aligned_vectors_keep_their_size():
    assert attention_scale(64, 64) == pytest.approx(1 / 8)
    sizes = [attention_scale(d, 16) * float(torch.ones(d) @ torch.ones(d)) for d in (16, 64, 256)]
    assert sizes == pytest.approx([4.0] * 3)


def test_layer_outputs_are_those_of_a_forward_pass_and_leave_no_hook():
    model = Net(32)
    outputs = layer_outputs(model, TOKENS)
    assert list(outputs) == ["embedding", "block.norm", "block.qkv", "block.out", "block.gain", "block.up",
                             "block.down", "norm", "readout"]  # fmt: skip
    assert torch.equal(outputs["readout"], model(TOKENS))
    assert not any(value.requires_grad for value in outputs.values())
    assert not any(module._forward_hooks for module in model.modules())
    with pytest.raises(IndexError):
        layer_outputs(model, torch.tensor([[99]]))
    assert not any(module._forward_hooks for module in model.modules())


def slopes(optimizer, *, mup: bool, lr: float, widths=(64, 256, 1024)) -> dict[str, float]:
    """Slope of log RMS change of each layer's output against log width, after six steps on one batch."""
    x, y = torch.randn(16, 8, generator=rng(1)), torch.randn(16, 2, generator=rng(2))
    changes: dict[str, list[float]] = {}
    for width in widths:
        model = mlp(width)
        groups = [{"params": list(model.parameters()), "lr": lr}]
        if mup:
            groups = param_groups(parametrize(model, mlp(64)), optimizer, lr)
        before, stepper = layer_outputs(model, x), optimizer(groups)
        for _ in range(6):
            stepper.zero_grad()
            (model(x) - y).square().mean().backward()
            stepper.step()
        for name, value in layer_outputs(model, x).items():
            changes.setdefault(name, []).append(float((value - before[name]).square().mean().sqrt()))
    logs = torch.tensor(widths, dtype=torch.float64).log()
    centred = logs - logs.mean()
    return {
        name: float(centred @ torch.tensor(values, dtype=torch.float64).log() / centred.square().sum())
        for name, values in changes.items()
    }


@pytest.mark.parametrize(("optimizer", "lr"), [(torch.optim.Adam, 2**-6), (torch.optim.SGD, 2**-4)])
def test_coordinate_check(optimizer, lr):
    flat, steep = slopes(optimizer, mup=True, lr=lr), slopes(optimizer, mup=False, lr=lr)
    assert max(abs(slope) for slope in flat.values()) <= 0.25, flat
    assert max(abs(slope) for slope in steep.values()) >= 0.5, steep


def unit_mlp(width: int) -> nn.Sequential:
    """Eight inputs, two hidden layers of tanh, one output; weights of variance 1 / fan_in, no biases."""
    model, generator = mlp(width, bias=False)[:4].append(nn.Linear(width, 1, bias=False)), rng(2)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=parameter.shape[1] ** -0.5, generator=generator)
    return model


def final_loss(width: int, lr: float, *, mup: bool, steps: int = 60) -> float:
    """Loss that Adam with a falling step size reaches on the outputs of a wilder network of the same form."""
    teacher, model, generator = unit_mlp(32), unit_mlp(width), rng(3)
    with torch.no_grad():
        for parameter in (*teacher[0].parameters(), *teacher[2].parameters()):
            parameter.copy_(
                1.5 * torch.randn(parameter.shape, generator=generator) / parameter.shape[1] ** 0.5
            )
    groups = [{"params": list(model.parameters()), "lr": lr}]
    if mup:
        groups = param_groups(parametrize(model, unit_mlp(32)), torch.optim.Adam, lr)
    optimizer = torch.optim.Adam(groups, betas=(0.9, 0.95))
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / steps)
    for _ in range(steps):
        x = torch.randn(32, 8, generator=generator)
        optimizer.zero_grad()
        (model(x) - teacher(x).detach()).square().mean().backward()
        optimizer.step()
        schedule.step()
    x = torch.randn(1000, 8, generator=rng(4))
    with torch.no_grad():
        return float((model(x) - teacher(x)).square().mean())


def test_the_best_step_size_transfers_under_mup_and_not_without():
    losses = {
        (mup, width): [final_loss(width, 2.0**e, mup=mup) for e in range(-10, -2)]
        for mup in (True, False)
        for width in (32, 256)
    }
    best = {setting: -10 + values.index(min(values)) for setting, values in losses.items()}
    regret = {m: losses[m, 256][best[m, 32] + 10] / min(losses[m, 256]) for m in (True, False)}
    assert abs(best[True, 256] - best[True, 32]) <= 1, best
    assert best[False, 256] - best[False, 32] <= -2, best
    assert regret[True] <= 1.1
    assert regret[False] >= 1.5


@pytest.mark.parametrize("weight_decay", [-1.0, math.nan, math.inf])
def test_a_weight_decay_that_is_none_is_refused(weight_decay):
    model = torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.Linear(4, 1))
    with pytest.raises(ValueError, match="weight_decay must be a finite number, 0 or more"):
        param_groups(model, torch.optim.AdamW, 0.1, weight_decay=weight_decay, base_model=model)
