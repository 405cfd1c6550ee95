"""Muon: torch's steps where the options coincide, AdamW for the rest, and nothing changed that is not its own."""

import io
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from course_lib.optimization import muon as module
from course_lib.optimization.muon import Muon, muon_groups, shape_factor
from course_lib.optimization.newton_schulz import orthogonality_error, orthogonalize

BF16, F32 = torch.bfloat16, torch.float32
AS_TORCH = {"ns_coefficients": "jordan", "ns_norm": "frobenius"}
SEEDS = st.integers(0, 2**31)


def parameters(*shapes: tuple[int, ...], seed: int = 0, dtype: torch.dtype = F32) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(s, generator=generator).to(dtype).requires_grad_() for s in shapes]


def give_gradients(params, *, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for p in params:
        p.grad = torch.randn(p.shape, generator=generator).to(p.dtype)


def run(optimizer, params, *, steps: int, first: int = 0) -> None:
    for t in range(first, first + steps):
        give_gradients(params, seed=t)
        optimizer.step()


def copies(params) -> list[torch.Tensor]:
    return [p.detach().clone() for p in params]


def assert_equal(left, right) -> None:
    for a, b in zip(left, right, strict=True):
        assert torch.equal(a, b)


# Against torch


@pytest.mark.parametrize("nesterov", [True, False])
@pytest.mark.parametrize("adjust_lr_fn", [None, "original", "match_rms_adamw"])
@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
@pytest.mark.parametrize("momentum", [0.0, 0.95])
def test_the_steps_are_those_of_torch_optim_muon(nesterov, adjust_lr_fn, weight_decay, momentum):
    shapes = ((24, 24), (24, 32), (32, 24), (64, 16), (16, 64))
    theirs, ours = parameters(*shapes), parameters(*shapes)
    options = {
        "lr": 0.02,
        "nesterov": nesterov,
        "adjust_lr_fn": adjust_lr_fn,
        "weight_decay": weight_decay,
        "momentum": momentum,
    }
    run(torch.optim.Muon(theirs, **options), theirs, steps=4)
    run(Muon(ours, **options, **AS_TORCH), ours, steps=4)
    for a, b, start in zip(theirs, ours, parameters(*shapes), strict=True):
        gap = float(((a - b).norm() / (a - start).norm()).detach())
        # The Gram form of long matrices rounds elsewhere, in products whose last bit is 1/256 of a number.
        assert gap < (0.1 if max(a.shape) >= 2.5 * min(a.shape) else 0.01)


def test_on_square_matrices_the_first_step_equals_torchs():
    for n in (8, 40):
        theirs, ours = parameters((n, n)), parameters((n, n))
        run(torch.optim.Muon(theirs, lr=0.1), theirs, steps=1)
        run(Muon(ours, lr=0.1, **AS_TORCH), ours, steps=1)
        torch.testing.assert_close(ours[0], theirs[0], rtol=0, atol=2e-3)


def test_the_momentum_is_that_of_torch():
    theirs, ours = parameters((6, 9)), parameters((6, 9))
    a, b = torch.optim.Muon(theirs), Muon(ours)
    run(a, theirs, steps=5)
    run(b, ours, steps=5)
    torch.testing.assert_close(
        b.state[ours[0]]["momentum_buffer"], a.state[theirs[0]]["momentum_buffer"], rtol=1e-6, atol=1e-7
    )


def aliasing(optimizer_class, **options) -> float:
    """How many times too small the momentum is after one step without Nesterov in bfloat16."""
    (p,) = parameters((16, 16), dtype=BF16)
    optimizer = optimizer_class([p], lr=0.01, momentum=0.5, nesterov=False, **options)
    give_gradients([p], seed=1)
    optimizer.step()
    return float((0.5 * p.grad).norm() / optimizer.state[p]["momentum_buffer"].norm())


def test_bfloat16_momentum_without_nesterov_is_left_alone():
    assert aliasing(Muon) == pytest.approx(1, abs=0.02)
    assert aliasing(Muon, **AS_TORCH) == pytest.approx(1, abs=0.02)


def test_torch_normalises_that_momentum_in_place():
    found = aliasing(torch.optim.Muon)
    if abs(found - 1) < 0.02:
        pytest.skip("this version of torch keeps the momentum")
    assert found > 5


@pytest.mark.parametrize("scale", [2.0**-100, 2.0**-40, 2.0**40])
def test_a_step_does_not_depend_on_the_scale_of_the_gradient(scale):
    moved = []
    for factor in (1.0, scale):
        (p,) = parameters((16, 16))
        start = p.detach().clone()
        give_gradients([p], seed=1)
        p.grad *= factor
        Muon([p], lr=1.0, weight_decay=0).step()
        moved.append(p.detach() - start)
    assert torch.equal(*moved)
    assert float(orthogonality_error(moved[1])) < 0.3


@pytest.mark.parametrize("options", [{}, {"weight_decay": 0.0}, {"betas": (0.8, 0.99), "eps": 1e-3}])
def test_other_groups_are_those_of_adamw(options):
    shapes = ((5,), (7, 3), ())
    theirs, ours = parameters(*shapes), parameters(*shapes)
    defaults = {"weight_decay": 0.1, "betas": (0.9, 0.95), "eps": 1e-8}
    run(torch.optim.AdamW(theirs, lr=0.01, **{**defaults, **options}), theirs, steps=10)
    run(Muon([{"params": ours, "use_muon": False}], lr=0.01, **options), ours, steps=10)
    for a, b in zip(theirs, ours, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-7)


# What a step is


@given(
    SEEDS,
    st.integers(1, 20),
    st.integers(1, 20),
    st.sampled_from([None, "original", "match_rms_adamw", "rms_to_rms"]),
    st.floats(0, 0.9),
    st.booleans(),
)
def test_a_step_by_its_definition(seed, rows, columns, adjust, momentum, nesterov):
    (p,) = parameters((rows, columns), seed=seed)
    optimizer = Muon(
        [p], lr=0.1, weight_decay=0.3, momentum=momentum, nesterov=nesterov, compute_dtype=F32,
        adjust_lr_fn=adjust,
    )  # fmt: skip
    expected, mean = p.detach().clone(), torch.zeros(rows, columns)
    for t in range(3):
        give_gradients([p], seed=seed + t)
        mean = momentum * mean + (1 - momentum) * p.grad
        moved = momentum * mean + (1 - momentum) * p.grad if nesterov else mean
        expected = (1 - 0.1 * 0.3) * expected - 0.1 * shape_factor((rows, columns), adjust) * orthogonalize(
            moved
        )
        optimizer.step()
    torch.testing.assert_close(p.detach(), expected, rtol=0, atol=2e-3)


def test_shape_factors_by_hand():
    assert shape_factor((8, 2)) == shape_factor((8, 2), "original") == 2
    assert shape_factor((2, 8)) == 1
    assert shape_factor((2, 8), "rms_to_rms") == 0.5
    assert shape_factor((100, 25), "match_rms_adamw") == 2
    assert shape_factor((8, 2, 3, 3), "rms_to_rms") == pytest.approx(2 / 3)


def test_match_rms_adamw_gives_entries_of_a_root_mean_square_of_a_fifth():
    for shape in ((64, 64), (32, 128), (128, 32)):
        (p,) = parameters(shape)
        start = p.detach().clone()
        give_gradients([p], seed=1)
        Muon([p], lr=1.0, weight_decay=0, adjust_lr_fn="match_rms_adamw").step()
        assert float((p.detach() - start).square().mean().sqrt()) == pytest.approx(0.2, abs=0.02)


def test_filters_are_matrices_with_one_row_for_each_output():
    (filters,), (matrix,) = parameters((6, 3, 2, 2)), parameters((6, 12))
    for p in (filters, matrix):
        give_gradients([p], seed=3)
        Muon([p], lr=0.1).step()
    assert torch.equal(filters.detach().flatten(1), matrix.detach())


@pytest.mark.parametrize("compute_dtype", [BF16, F32])
def test_equal_shapes_in_one_product_move_as_they_do_alone(compute_dtype, monkeypatch):
    shapes = ((8, 12), (8, 12), (12, 8), (8, 12))
    together, alone = parameters(*shapes), parameters(*shapes)
    sizes = []
    real = module.orthogonalize
    monkeypatch.setattr(
        module, "orthogonalize", lambda m, *args, **kw: sizes.append(tuple(m.shape)) or real(m, *args, **kw)
    )
    optimizer = Muon(together, lr=0.1, compute_dtype=compute_dtype)
    sizes.clear()
    run(optimizer, together, steps=3)
    batched = [(3, 8, 12), (12, 8)]
    assert sizes == 3 * (batched if compute_dtype == BF16 else list(shapes))
    monkeypatch.setattr(module, "MOST_ENTRIES_TO_BATCH", 0)
    run(Muon(alone, lr=0.1, compute_dtype=compute_dtype), alone, steps=3)
    for a, b in zip(together, alone, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-2)


def test_gradients_are_only_read_and_parameters_without_one_stay():
    with_one, without = parameters((4, 4), (4, 4))
    vector, idle = parameters((3,), (3,))
    optimizer = Muon([{"params": [with_one, without]}, {"params": [vector, idle], "use_muon": False}], lr=0.1)
    give_gradients([with_one, vector], seed=0)
    grads, still = copies([with_one.grad, vector.grad]), copies([without, idle])
    moved = copies([with_one, vector])
    optimizer.step()
    assert_equal([with_one.grad, vector.grad], grads)
    assert_equal([without.detach(), idle.detach()], still)
    assert set(optimizer.state) == {with_one, vector}
    for before, after in zip(moved, (with_one, vector), strict=True):
        assert not torch.equal(before, after.detach())


def test_a_zero_gradient_moves_nothing_but_the_decay():
    (p,) = parameters((4, 4))
    before = p.detach().clone()
    p.grad = torch.zeros(4, 4)
    Muon([p], lr=0.5, weight_decay=0.1).step()
    torch.testing.assert_close(p.detach(), 0.95 * before)


@pytest.mark.parametrize("dtype", [BF16, torch.float16, torch.float64])
def test_parameters_of_other_dtypes_keep_theirs(dtype):
    (p,) = parameters((8, 8), dtype=dtype)
    before = p.detach().clone()
    optimizer = Muon([p], lr=0.1)
    run(optimizer, [p], steps=2)
    assert p.dtype == optimizer.state[p]["momentum_buffer"].dtype == dtype
    assert 0.05 < float((p.detach() - before).double().norm() / math.sqrt(8)) < 0.5


# Life of an optimiser


def mixed_groups(params):
    matrices = [p for p in params if p.ndim >= 2]
    vectors = [p for p in params if p.ndim < 2]
    return [{"params": matrices}, {"params": vectors, "use_muon": False, "lr": 3e-3}]


@pytest.mark.parametrize("dtype", [F32, BF16])
@pytest.mark.parametrize("options", [{}, {"ns_coefficients": [(1.5, -0.5, 0.0)], "nesterov": False}])
def test_a_resumed_run_is_the_run_bit_by_bit(dtype, options):
    shapes = ((6, 6), (12, 4), (5,), (6, 6))
    straight, resumed = parameters(*shapes, dtype=dtype), parameters(*shapes, dtype=dtype)
    run(Muon(mixed_groups(straight), lr=0.02, **options), straight, steps=10)
    first = Muon(mixed_groups(resumed), lr=0.02, **options)
    run(first, resumed, steps=4)
    file = io.BytesIO()
    torch.save(first.state_dict(), file)
    file.seek(0)
    second = Muon(mixed_groups(resumed), lr=1.0)
    second.load_state_dict(torch.load(file, weights_only=True))
    run(second, resumed, steps=6, first=4)
    assert_equal(straight, resumed)


def test_a_closure_is_called_with_gradients_on_and_its_loss_returned():
    (p,) = parameters((4, 4))
    optimizer = Muon([p], lr=0.01)
    calls = []

    def closure():
        optimizer.zero_grad()
        loss = p.square().sum()
        loss.backward()
        calls.append(float(loss.detach()))
        return loss

    first, second = optimizer.step(closure), optimizer.step(closure)
    assert calls == [float(first.detach()), float(second.detach())]
    assert calls[1] < calls[0]


def test_schedulers_set_the_rate():
    (p,) = parameters((4, 4))
    optimizer = Muon([p], lr=1.0, weight_decay=0.0)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda t: 0.0 if t else 1.0)
    run(optimizer, [p], steps=1)
    scheduler.step()
    before = p.detach().clone()
    run(optimizer, [p], steps=1)
    assert torch.equal(p.detach(), before)


def test_a_rate_may_be_a_tensor_and_names_may_be_given():
    model = nn.Linear(4, 4, bias=False)
    optimizer = Muon(model.named_parameters(), lr=torch.tensor(0.1))
    give_gradients(model.parameters(), seed=0)
    optimizer.step()
    assert optimizer.param_groups[0]["param_names"] == ["weight"]


def test_it_learns_a_matrix_of_low_rank():
    generator = torch.Generator().manual_seed(0)
    target = torch.randn(20, 3, generator=generator) @ torch.randn(3, 20, generator=generator)
    left, right = parameters((20, 20), (20, 20))
    optimizer = Muon([left, right], lr=0.05, weight_decay=0)
    losses = []
    for t in range(100):
        optimizer.param_groups[0]["lr"] = 0.05 * (1 - t / 100)
        loss = (left @ right - target).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.1 * losses[0]


# Which parameter goes where


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(10, 6)
        self.hidden = nn.Linear(6, 6)
        self.norm = nn.LayerNorm(6)
        self.filters = nn.Conv1d(6, 6, 3)
        self.head = nn.Linear(6, 10)


def named(model, groups):
    names = {id(p): name for name, p in model.named_parameters()}
    return {group["use_muon"]: [names[id(p)] for p in group["params"]] for group in groups}


VECTORS = ["hidden.bias", "norm.weight", "norm.bias", "filters.bias"]


@pytest.mark.parametrize("head", [None, "head"])
def test_hidden_matrices_go_to_muon_and_the_rest_to_adamw(head):
    model = Small()
    groups = muon_groups(model, head=head, muon={"lr": 0.02}, adamw={"lr": 3e-4, "weight_decay": 0.0})
    assert named(model, groups) == {
        True: ["hidden.weight", "filters.weight"],
        False: ["embedding.weight", *VECTORS, "head.weight", "head.bias"],
    }
    assert [group["lr"] for group in groups] == [0.02, 3e-4]
    optimizer = Muon(groups)
    give_gradients(model.parameters(), seed=0)
    optimizer.step()
    assert "momentum_buffer" in optimizer.state[model.hidden.weight]
    assert "exp_avg" in optimizer.state[model.head.weight]


def test_a_head_that_is_named_leaves_the_last_layer_to_muon():
    model = Small()
    found = named(model, muon_groups(model, head="hidden"))
    assert found[True] == ["filters.weight", "head.weight"]


def test_tied_and_frozen_weights():
    model = Small()
    model.head.weight = model.embedding.weight
    model.filters.requires_grad_(False)
    assert named(model, muon_groups(model)) == {
        True: ["hidden.weight"],
        False: ["embedding.weight", *VECTORS[:3], "head.bias"],
    }


def test_groups_without_parameters_are_left_out():
    assert [g["use_muon"] for g in muon_groups(nn.Linear(3, 3))] == [False]
    assert [g["use_muon"] for g in muon_groups(nn.Conv1d(3, 3, 2, bias=False))] == [True]


def test_a_head_that_is_not_there_is_told():
    with pytest.raises(ValueError, match=r"got 'lm_head'; there are \['embedding', 'filters', 'head'"):
        muon_groups(Small(), head="lm_head")


# Refusals


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lr": -1.0}, "lr must be a finite number, 0 or more, got -1.0"),
        ({"lr": math.nan}, "lr must be"),
        ({"weight_decay": -0.1}, "weight_decay must be"),
        ({"momentum": 1.0}, "momentum must lie in"),
        ({"momentum": -0.1}, "momentum must lie in"),
        ({"betas": (0.9, 1.0)}, "betas must lie in"),
        ({"eps": -1e-8}, "eps must be"),
        ({"adjust_lr_fn": "spectral"}, "adjust_lr_fn must be"),
        ({"ns_steps": 0}, "steps must be a whole number"),
        ({"ns_coefficients": []}, "sequence of triples"),
        ({"compute_dtype": torch.int32}, "compute_dtype must be"),
    ],
)
def test_options_out_of_range_are_refused_at_once(options, message):
    with pytest.raises(ValueError, match=message):
        Muon(parameters((3, 3)), **options)


def test_vectors_are_refused_and_told_where_to_go():
    (matrix, vector) = parameters((3, 3), (3,))
    with pytest.raises(ValueError, match=r"shape \(3,\): put it into a group with use_muon=False"):
        Muon([matrix, vector])
    optimizer = Muon([matrix])
    with pytest.raises(ValueError, match="use_muon=False"):
        optimizer.add_param_group({"params": [vector]})
    assert len(optimizer.param_groups) == 1
    optimizer.add_param_group({"params": [vector], "use_muon": False})
    run(optimizer, [matrix, vector], steps=2)


def test_complex_parameters_are_refused():
    with pytest.raises(ValueError, match="real floating-point parameters, got"):
        Muon([torch.zeros(2, 2, dtype=torch.complex64, requires_grad=True)])


def test_sparse_gradients_are_refused():
    embedding = nn.Embedding(5, 3, sparse=True)
    optimizer = Muon([{"params": embedding.parameters(), "use_muon": False}])
    embedding(torch.tensor([1, 2])).sum().backward()
    with pytest.raises(RuntimeError, match="sparse gradients"):
        optimizer.step()
