"""Batch norm against PyTorch to 1e-12, gradients by hand, running statistics; dropout against all its masks."""

import importlib.util
from fractions import Fraction
from itertools import product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from course_lib.architectures import normalisation
from course_lib.architectures.normalisation import (
    BatchNorm,
    batch_norm,
    batch_norm_backward,
    dropout,
    dropout_ridge,
    enumerated_dropout_loss,
    expected_dropout_loss,
    generalised_ridge,
    mean_only_backward,
    mean_only_batch_norm,
    naive_batch_norm,
)

EXACT = {"rtol": 0, "atol": 1e-12}
X, Y = [[1.0, 2.0], [3.0, -1.0]], [1.0, 2.0]  # the worked example of dropout


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def randn(*shape: int, seed: int = 0, **options) -> torch.Tensor:
    return torch.randn(shape, generator=rng(seed), dtype=torch.float64, **options)


def tensor(values) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


# Mean-only batch norm


def test_mean_only_worked_example():
    grad = tensor([1, 2, 3, 6])[:, None]
    assert mean_only_backward(grad, tensor([2])).flatten().tolist() == [-4, -2, 0, 6]
    x = tensor([10, 11, 12, 15])[:, None]
    assert mean_only_batch_norm(x, tensor([2]), tensor([5])).flatten().tolist() == [1, 3, 5, 11]


@pytest.mark.parametrize("shape", [(4, 1), (5, 3), (3, 2, 4), (2, 3, 4, 5)])
def test_mean_only_gradient_is_that_of_autograd(shape):
    x, weight, bias = (
        t.requires_grad_() for t in (randn(*shape), randn(shape[1], seed=1), randn(shape[1], seed=2))
    )
    pull = randn(*shape, seed=3)
    (found,) = torch.autograd.grad((mean_only_batch_norm(x, weight, bias) * pull).sum(), x)
    torch.testing.assert_close(mean_only_backward(pull, weight), found, **EXACT)
    assert torch.autograd.gradcheck(mean_only_batch_norm, (x, weight, bias))


def test_the_mean_of_an_image_batch_runs_over_batch_height_and_width():
    x = randn(2, 3, 4, 5)
    by_loop = torch.stack([x[:, c] - x[:, c].sum() / (2 * 4 * 5) for c in range(3)], dim=1)
    torch.testing.assert_close(mean_only_batch_norm(x), by_loop, **EXACT)
    assert (mean_only_batch_norm(x) - (x - x.mean(0))).abs().max() > 0.1  # one mean for each pixel


# Batch norm


def test_worked_example_of_batch_norm():
    column = tensor([10, 11, 12])[:, None]
    expected = tensor([-(1.5**0.5), 0, 1.5**0.5])[:, None]
    for form in (naive_batch_norm, lambda x, eps: batch_norm(x, training=True, eps=eps)):
        torch.testing.assert_close(form(column, eps=0.0), expected, **EXACT)


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("eps", [0.0, 1e-5, 0.3])
def test_three_forms_of_the_gradient_agree(affine, eps):
    x = randn(4, 3, 2, 2).requires_grad_()
    own = (randn(3, seed=1).requires_grad_(), randn(3, seed=2).requires_grad_()) if affine else (None, None)
    pull, leaves = randn(4, 3, 2, 2, seed=3), [t for t in (x, *own) if t is not None]
    outputs = [naive_batch_norm(x, *own, eps=eps), batch_norm(x, None, None, *own, training=True, eps=eps)]
    torch.testing.assert_close(*outputs, **EXACT)
    slow, fast = (torch.autograd.grad((out * pull).sum(), leaves) for out in outputs)
    by_hand = batch_norm_backward(pull, x, own[0], eps=eps)[: len(leaves)]
    for a, b, c in zip(slow, fast, by_hand, strict=True):
        torch.testing.assert_close(a, b, **EXACT)
        torch.testing.assert_close(a, c, **EXACT)


def test_the_gradient_has_a_gradient():
    inputs = [t.requires_grad_() for t in (randn(4, 2), randn(2, seed=1), randn(2, seed=2))]
    call = lambda x, w, b: batch_norm(x, None, None, w, b, training=True)  # noqa: E731
    assert torch.autograd.gradcheck(call, inputs)
    assert torch.autograd.gradgradcheck(call, inputs)


def test_without_eps_the_backward_is_a_projection_and_eps_lets_a_little_through():
    x, g = randn(7, 1), randn(7, 1, seed=1)
    normal = naive_batch_norm(x, eps=0.0)
    s = x.var(correction=0).sqrt()
    once = s * batch_norm_backward(g, x, eps=0.0)[0]
    torch.testing.assert_close(s * batch_norm_backward(once, x, eps=0.0)[0], once, **EXACT)
    for removed in (torch.ones_like(g), normal):
        assert float((once * removed).sum()) == pytest.approx(0, abs=1e-12)
        assert batch_norm_backward(removed, x, eps=0.0)[0].abs().max() < 1e-12
    # With eps, the share eps/(variance + eps) of the part along x-hat stays.
    eps = 0.5
    kept = (s**2 + eps).sqrt() * batch_norm_backward(normal, x, eps=eps)[0]
    torch.testing.assert_close(kept, eps / (s**2 + eps) * normal, **EXACT)


LAYERS = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d, 5: nn.BatchNorm3d}


@pytest.mark.parametrize("shape", [(6, 3), (4, 3, 5), (3, 3, 4, 2), (2, 3, 2, 2, 2)], ids=len)
@pytest.mark.parametrize("momentum", [0.1, 0.7, None])
@pytest.mark.parametrize("track", [True, False], ids=["tracked", "untracked"])
@pytest.mark.parametrize("affine", [True, False], ids=["affine", "plain"])
def test_it_is_pytorch_s_layer(shape, momentum, track, affine):
    """Outputs, running statistics and all gradients, in training and in evaluation, over several batches."""
    options = {"momentum": momentum, "affine": affine, "track_running_stats": track, "dtype": torch.float64}
    ours, theirs = BatchNorm(3, **options), LAYERS[len(shape)](3, **options)
    if affine:
        with torch.no_grad():
            theirs.weight.copy_(randn(3, seed=8))
            theirs.bias.copy_(randn(3, seed=9))
    ours.load_state_dict(theirs.state_dict())
    for step, training in enumerate((True, True, False, True, False)):
        found = []
        for layer in (ours, theirs):
            layer.train(training)
            layer.zero_grad()
            x = (3 + 2 * randn(*shape, seed=step)).requires_grad_()
            out = layer(x)
            (out * randn(*shape, seed=50 + step)).sum().backward()
            found.append([out, x.grad, *(p.grad for p in layer.parameters()), *layer.buffers()])
        assert len(found[0]) == 2 + 2 * affine + 3 * track
        for mine, other in zip(*found, strict=True):
            torch.testing.assert_close(mine, other, **EXACT)


def test_the_stored_variance_is_the_unbiased_one_and_the_dividing_one_is_not():
    layer = BatchNorm(1, momentum=1.0, affine=False, eps=0.0, dtype=torch.float64)
    x = tensor([10, 11, 12])[:, None]
    out = layer(x)
    assert float(layer.running_var) == pytest.approx(1, abs=1e-12)  # 2/2; biased it would be 2/3
    assert float(out.square().mean()) == pytest.approx(1, abs=1e-12)
    assert layer.eval()(x).flatten().tolist() == pytest.approx([-1, 0, 1], abs=1e-12)


def test_momentum_is_the_share_of_the_new_batch():
    layer = BatchNorm(1, momentum=0.1, dtype=torch.float64)
    layer(tensor([9.0, 11.0])[:, None])
    assert float(layer.running_mean) == pytest.approx(1.0)
    assert float(layer.running_var) == pytest.approx(0.9 + 0.1 * 2)


def test_momentum_none_averages_all_batches():
    layer, batches = BatchNorm(2, momentum=None, dtype=torch.float64), randn(5, 8, 2)
    for batch in batches:
        layer(batch)
    torch.testing.assert_close(layer.running_mean, batches.mean((0, 1)), **EXACT)
    torch.testing.assert_close(layer.running_var, batches.var(1).mean(0), **EXACT)


def test_evaluation_treats_the_statistics_as_constants():
    layer, x = BatchNorm(1, eps=0.0, dtype=torch.float64).eval(), randn(4, 1).requires_grad_()
    layer.running_var.fill_(4.0)
    pull = tensor([1, 2, 3, 6])[:, None]
    (grad,) = torch.autograd.grad((layer(x) * pull).sum(), x)
    torch.testing.assert_close(grad, pull / 2, **EXACT)
    assert layer(x[:1]).shape == (1, 1)  # one example is enough


def test_float32_far_from_zero():
    x = (1e4 + randn(64, 2)).float()
    exact = naive_batch_norm(x.double())
    for training in (True, False):
        out = batch_norm(x, x.mean(0), x.var(0, correction=0), training=training)
        assert (out - exact).abs().max() < 2e-3


@given(st.integers(0, 2**31), st.floats(0.1, 10), st.floats(-5, 5))
def test_shift_and_scale_of_the_input_do_not_show(seed, scale, shift):
    x = randn(6, 2, seed=seed)
    torch.testing.assert_close(
        batch_norm(scale * x + shift, training=True, eps=0.0),
        batch_norm(x, training=True, eps=0.0),
        rtol=0,
        atol=1e-9,
    )


@pytest.fixture(scope="module")
def unchecked():
    """The module as users have it: with the shape checks of the test run, wrong shapes never get that far."""
    spec = importlib.util.spec_from_file_location("normalisation_unchecked", normalisation.__file__)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda m: m.batch_norm(randn(3), training=True), r"x must have shape .*got \(3,\)"),
        (lambda m: m.batch_norm(randn(1, 3), training=True), r"at least 2 values of each .*\(1, 3\)"),
        (lambda m: m.naive_batch_norm(randn(1, 3)), "at least 2 values"),
        (
            lambda m: m.batch_norm(randn(4, 3), None, None, randn(2), training=True),
            r"weight must have one entry for each of the 3 .*\(2,\)",
        ),
        (lambda m: m.mean_only_batch_norm(randn(4, 3), None, randn(2)), "bias must have one entry"),
        (lambda m: m.batch_norm(randn(4, 3), training=False), "running_mean and running_var must be given"),
        (lambda m: m.batch_norm(randn(4, 3), randn(3), training=True), "running_var is missing"),
        (lambda m: m.batch_norm(randn(4, 3), training=True, eps=-1.0), "eps must be .*got -1"),
        (lambda m: m.batch_norm(randn(4, 3), training=True, momentum=1.5), "momentum must be .*got 1.5"),
        (
            lambda m: m.batch_norm_backward(randn(4, 2), randn(4, 3)),
            r"grad must have the shape of x, \(4, 3\), got \(4, 2\)",
        ),
        (lambda m: m.BatchNorm(0), "num_features must be at least 1, got 0"),
        (lambda m: m.BatchNorm(2, momentum=-0.1), "momentum must be None or .*got -0.1"),
        (lambda m: m.dropout(randn(3), keep=0.0), "keep must be a probability above 0 and at most 1, got 0"),
        (lambda m: m.dropout_ridge(randn(3, 2), randn(3), keep=1.0), "above 0 and below 1, got 1"),
        (lambda m: m.dropout_ridge(randn(3, 2), randn(2), keep=0.5), "target must have .*got 2 for 3"),
        (
            lambda m: m.expected_dropout_loss(randn(3, 2), randn(3), randn(3), keep=0.5),
            "weights must have .*got 3 for 2",
        ),
        (
            lambda m: m.enumerated_dropout_loss(randn(6, 3), randn(6), randn(3), keep=0.5),
            "at most 16 entries.*got 18",
        ),
    ],
)
def test_bad_input_is_named(unchecked, call, said):
    with pytest.raises(ValueError, match=said):
        call(unchecked)


# Dropout


def by_fractions(weights, keep):
    """The mean over 16 masks in exact arithmetic."""
    total = Fraction(0)
    for mask in product((0, 1), repeat=4):
        chance = keep ** sum(mask) * (1 - keep) ** (4 - sum(mask))
        rows = [
            sum(mask[2 * i + j] * int(X[i][j]) * weights[j] for j in range(2)) - int(Y[i]) for i in range(2)
        ]
        total += chance * sum(r**2 for r in rows)
    return total


def test_worked_example_of_dropout():
    weights, keep = [Fraction(7, 10), Fraction(-2, 5)], Fraction(4, 5)
    assert by_fractions(weights, keep) == Fraction(1299, 625)
    assert by_fractions([w / keep for w in weights], keep) == Fraction(577, 200)
    x, y, w = tensor(X), tensor(Y), tensor([0.7, -0.4])
    for form in (enumerated_dropout_loss, expected_dropout_loss):
        assert float(form(x, y, w, keep=0.8)) == pytest.approx(1299 / 625, abs=1e-12)
        assert float(form(x, y, w / 0.8, keep=0.8)) == pytest.approx(577 / 200, abs=1e-12)
    torch.testing.assert_close(dropout_ridge(x, y, keep=0.8), tensor([350 / 617, 56 / 617]), **EXACT)


def test_the_nearest_wrong_formulas_fail():
    x, y, w = tensor(X), tensor(Y), tensor([0.7, -0.4])
    right = float(enumerated_dropout_loss(x, y, w, keep=0.8))
    fit = float((y - 0.8 * x @ w).square().sum())
    wrong = {
        "rows for columns": fit + 0.16 * float((x.square().sum(1) * w**2).sum()),
        "lengths for squares": fit + 0.16 * float((x.square().sum(0).sqrt() * w**2).sum()),
        "p squared": fit + 0.64 * float((x.square().sum(0) * w**2).sum()),
        "drop rate in the fit": float((y - 0.2 * x @ w).square().sum())
        + 0.16 * float((x.square().sum(0) * w**2).sum()),
    }
    assert all(abs(value - right) > 0.02 for value in wrong.values()), wrong


@pytest.mark.parametrize("keep", [0.2, 0.5, 0.9, 1.0])
def test_expected_loss_is_the_mean_over_all_masks(keep):
    x, y, w = randn(3, 3), randn(3, seed=1), randn(3, seed=2)
    torch.testing.assert_close(
        expected_dropout_loss(x, y, w, keep=keep), enumerated_dropout_loss(x, y, w, keep=keep), **EXACT
    )


@pytest.mark.parametrize("keep", [0.2, 0.5, 0.8])
def test_both_ridge_forms_agree_and_minimise_the_mean(keep):
    x, y = randn(9, 4) * tensor([0.1, 1, 3, 10]), randn(9, seed=1)
    w = dropout_ridge(x, y, keep=keep)
    plain = generalised_ridge(x, y, (1 - keep) / keep * x.square().sum(0))
    torch.testing.assert_close(w, plain, **EXACT)
    trained = (w / keep).requires_grad_()
    (slope,) = torch.autograd.grad(expected_dropout_loss(x, y, trained, keep=keep), trained)
    assert slope.abs().max() < 1e-10
    at_w = w.clone().requires_grad_()  # without the rescaling it is no minimum
    assert torch.autograd.grad(expected_dropout_loss(x, y, at_w, keep=keep), at_w)[0].abs().max() > 1e-2


def test_a_column_of_zeros_and_the_unit_of_a_column():
    x, y = randn(6, 3), randn(6, seed=1)
    w = dropout_ridge(x, y, keep=0.7)
    torch.testing.assert_close(dropout_ridge(x * tensor([100, 1, 1]), y, keep=0.7), w / tensor([100, 1, 1]))
    padded = torch.cat([x, torch.zeros(6, 1, dtype=torch.float64)], 1)
    torch.testing.assert_close(dropout_ridge(padded, y, keep=0.7), torch.cat([w, w.new_zeros(1)]))


def test_dropout_keeps_its_share_and_the_mean():
    x = torch.full((200_000,), 3.0, dtype=torch.float64)
    rescaled, plain = (dropout(x, keep=0.8, rescale=r, generator=rng(1)) for r in (True, False))
    assert set(rescaled.unique().tolist()) == {0.0, 3.75}
    assert float((plain != 0).double().mean()) == pytest.approx(0.8, abs=5 * (0.16 / 200_000) ** 0.5)
    torch.testing.assert_close(plain, 0.8 * rescaled)
    assert torch.equal(dropout(x, keep=1.0), x)
