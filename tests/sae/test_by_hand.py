"""Steps by hand: worked examples on paper, then equality with autograd on integers, where it is exact."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from course_lib.sae import losses
from course_lib.sae.by_hand import (
    ForwardPass,
    Layer,
    backward,
    forward,
    sparse_backward,
    sparse_loss,
    squared_error,
    step,
)

SEEDS = st.integers(0, 2**31)
WIDTHS = st.lists(st.integers(1, 5), min_size=2, max_size=5)
SIZES = st.integers(1, 6)


def matrix(rows) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.float64)


def rng(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def integers(*shape: int, generator: torch.Generator) -> torch.Tensor:
    return torch.randint(-3, 4, shape, generator=generator).double()


def network(widths, relus, *, generator) -> tuple[Layer, ...]:
    return tuple(
        Layer(integers(o, i, generator=generator), integers(o, generator=generator), relu)
        for i, o, relu in zip(widths, widths[1:], relus, strict=False)
    )


def autograd(layers, loss_of):
    """Gradients of `loss_of(layers)` in all weights, then in all biases."""
    leaves = [
        Layer(y.weight.clone().requires_grad_(), y.bias.clone().requires_grad_(), y.relu) for y in layers
    ]
    tensors = [y.weight for y in leaves] + [y.bias for y in leaves]
    found = torch.autograd.grad(loss_of(leaves), tensors, materialize_grads=True)
    return found[: len(leaves)], found[len(leaves) :]


def torch_forward(layers, x):
    for layer in layers:
        x = layer.weight @ x + layer.bias[:, None]
        x = torch.relu(x) if layer.relu else x
    return x


ENCODER = Layer(
    matrix([[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0], [0, 1, 1], [1, 0, -1]]), matrix([0, 0, 0, -1, 0, 0])
)
DECODER = Layer(
    matrix([[1, 0, 0, 0, 0, 3], [0, 2, 0, 0, 0, 4], [0, 0, 1, 1, 0, 0]]), matrix([0, 0, 0]), relu=False
)
SPARSE = (ENCODER, DECODER)
TOKEN = matrix([[1], [2], [-1]])


# Worked examples


def test_one_step_of_the_sparse_autoencoder_on_paper():
    passed = forward(SPARSE, TOKEN)
    assert passed.values[1].flatten().tolist() == [1, 2, 0, 2, 1, 2]
    assert passed.output.flatten().tolist() == [7, 12, 2]
    loss = sparse_loss(SPARSE, passed, TOKEN, l1=0.1)
    assert loss.column_norms.tolist() == [1, 2, 1, 1, 0, 5]
    assert (float(loss.reconstruction), float(loss.sparsity)) == (145, 17)
    assert float(loss.total) == pytest.approx(146.7, abs=1e-12)
    found = sparse_backward(SPARSE, passed, TOKEN, l1=0.1)
    before_mask = found.from_reconstruction + 0.1 * loss.column_norms[:, None]
    assert before_mask.flatten().tolist() == pytest.approx([12.1, 40.2, 6.1, 6.1, 0, 116.5], abs=1e-12)
    # Feature 3 is off: neither part of the gradient passes its ReLU.
    assert found.from_sparsity.flatten().tolist() == pytest.approx([0.1, 0.2, 0, 0.1, 0, 0.5], abs=1e-15)
    assert found.errors[0].flatten().tolist() == pytest.approx([12.1, 40.2, 0, 6.1, 0, 116.5], abs=1e-12)


def test_the_gradient_of_the_loss_on_paper():
    output, target = matrix([[1, 2], [3, 4]]), matrix([[0, 2], [5, 1]])
    free = (Layer(torch.eye(2).double(), matrix([0, 0]), relu=False),)
    assert backward(free, forward(free, output), target).errors[0].tolist() == [[2, 0], [-4, 6]]
    output.requires_grad_()
    (mean_form,) = torch.autograd.grad(torch.nn.functional.mse_loss(output, target), output)
    assert mean_form.tolist() == [[0.5, 0], [-1, 1.5]]
    masked = (Layer(torch.eye(2).double(), matrix([0, 0])),)
    errors = backward(masked, forward(masked, matrix([[-1], [2]])), matrix([[1], [1]])).errors
    assert errors[0].flatten().tolist() == [0, 2]


def test_shapes_of_both_networks():
    layers = network([4, 3, 2, 3, 4], [True] * 4, generator=rng(0))
    assert sum(y.weight.numel() for y in layers) == 36
    assert sum(y.bias.numel() for y in layers) == 12
    passed = forward(layers, torch.ones(4, 4, dtype=torch.float64))
    assert [tuple(v.shape) for v in passed.values] == [(4, 4), (3, 4), (2, 4), (3, 4), (4, 4)]
    passed = forward(SPARSE, torch.ones(3, 5, dtype=torch.float64))
    assert [tuple(v.shape) for v in passed.values] == [(3, 5), (6, 5), (3, 5)]


def test_the_penalty_is_on_activations_not_on_weights():
    x = matrix([[5], [5], [5]])
    small = Layer(torch.full((6, 3), 0.01, dtype=torch.float64), torch.zeros(6).double())
    large = Layer(torch.zeros(6, 3).double(), torch.zeros(6).double())
    large.weight[0, 0] = 100
    found = [(float(y.weight.abs().sum()), int((forward([y], x).output > 0).sum())) for y in (small, large)]
    assert found[0] == (pytest.approx(0.18), 6)
    assert found[1] == (100, 1)


def test_the_gradient_of_the_penalty_is_plus_the_norm_where_a_feature_is_on():
    features = matrix([[2], [0.5], [0]])
    layers = (
        Layer(torch.eye(3).double(), matrix([0, 0, 0])),
        Layer(torch.eye(3).double(), matrix([0, 0, 0]), False),
    )
    found = sparse_backward(layers, forward(layers, features), features, l1=1)
    assert found.from_sparsity.flatten().tolist() == [1, 1, 0]
    leaf = features.clone().requires_grad_()
    leaf.abs().sum().backward()
    assert torch.equal(leaf.grad, found.from_sparsity)


def test_a_zero_column_has_no_norm_to_shrink_but_still_learns():
    passed = forward(SPARSE, TOKEN)
    assert DECODER.weight[:, 4].tolist() == [0, 0, 0]
    for l1 in (0, 1, 100):
        found = sparse_backward(SPARSE, passed, TOKEN, l1=l1)
        # Column 5 hears of the reconstruction only, the feature of nothing.
        assert found.weights[1][:, 4].tolist() == [12, 20, 6]
        assert found.errors[0][4].tolist() == [0]


# Equality with autograd


@given(SEEDS, WIDTHS, SIZES, st.integers(0, 31))
def test_forward_and_backward_are_those_of_autograd(seed, widths, examples, relus):
    generator = rng(seed)
    layers = network(widths, [bool(relus >> k & 1) for k in range(4)], generator=generator)
    x = integers(widths[0], examples, generator=generator)
    target = integers(widths[-1], examples, generator=generator)
    passed = forward(layers, x)
    assert torch.equal(passed.output, torch_forward(layers, x))
    # Sums of exactly 0 are common here: `forward` itself must have the slope that `backward` takes there.
    through, _ = autograd(layers, lambda y: squared_error(forward(y, x).output, target))
    found = backward(layers, passed, target)
    weights, biases = autograd(layers, lambda y: (torch_forward(y, x) - target).square().sum())
    # Whole numbers far below 2^53: no sum is rounded, in whatever order it is taken.
    for mine, theirs in zip((*found.weights, *found.biases), (*weights, *biases), strict=True):
        assert torch.equal(mine, theirs)
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(found.weights, through, strict=True))


def sparse_loss_by_torch(layers, x, l1):
    encoder, decoder = layers
    features = torch.relu(encoder.weight @ x + encoder.bias[:, None])
    difference = decoder.weight @ features + decoder.bias[:, None] - x
    return difference.square().sum() + l1 * (features * decoder.weight.norm(dim=0)[:, None]).sum()


@given(SEEDS, SIZES, SIZES, SIZES, st.sampled_from([0, 0.1, 1, 7.5]))
def test_the_sparse_backward_pass_is_that_of_autograd(seed, inputs, n_features, examples, l1):
    generator = rng(seed)
    layers = network([inputs, n_features, inputs], [True, False], generator=generator)
    x = integers(inputs, examples, generator=generator)
    passed = forward(layers, x)
    loss = sparse_loss(layers, passed, x, l1=l1)
    torch.testing.assert_close(loss.total, sparse_loss_by_torch(layers, x, l1), rtol=1e-12, atol=1e-12)
    found = sparse_backward(layers, passed, x, l1=l1)
    weights, biases = autograd(layers, lambda y: sparse_loss_by_torch(y, x, l1))
    # Entries reach a few thousand, and some are differences of such numbers.
    for mine, theirs in zip((*found.weights, *found.biases), (*weights, *biases), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-10, atol=1e-9)


@given(SEEDS, SIZES, SIZES, SIZES)
def test_without_a_penalty_the_sparse_pass_is_the_plain_one(seed, inputs, n_features, examples):
    generator = rng(seed)
    layers = network([inputs, n_features, inputs], [True, False], generator=generator)
    x = integers(inputs, examples, generator=generator)
    passed = forward(layers, x)
    plain, sparse = backward(layers, passed, x), sparse_backward(layers, passed, x, l1=0)
    for name in ("errors", "weights", "biases"):
        for mine, theirs in zip(getattr(sparse, name), getattr(plain, name), strict=True):
            assert torch.equal(mine, theirs)


@given(SEEDS, SIZES, SIZES)
def test_losses_are_the_sums_of_which_the_library_takes_means(seed, inputs, examples):
    generator = rng(seed)
    layers = network([inputs, 4, inputs], [True, False], generator=generator)
    x = integers(inputs, examples, generator=generator)
    passed = forward(layers, x)
    loss = sparse_loss(layers, passed, x, l1=1)
    mean = losses.reconstruction(passed.output.T, x.T)
    torch.testing.assert_close(loss.reconstruction, examples * mean, rtol=1e-12, atol=1e-12)
    l1 = losses.decoder_weighted_l1(passed.values[1].T, layers[1].weight)
    torch.testing.assert_close(loss.sparsity, examples * l1, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("widths", [[4, 3, 2, 3, 4], [3, 6, 3], [2, 5]])
def test_a_step_is_that_of_torchs_sgd(seed, widths):
    generator = rng(seed)
    layers = network(widths, [True] * 4, generator=generator)
    x = integers(widths[0], 4, generator=generator)
    target = integers(widths[-1], 4, generator=generator)
    new = step(layers, backward(layers, forward(layers, x), target), step_size=0.25)
    leaves = [torch.nn.Parameter(t.clone()) for y in layers for t in (y.weight, y.bias)]
    pairs = [Layer(*leaves[k : k + 2], y.relu) for k, y in zip(range(0, len(leaves), 2), layers, strict=True)]
    optimizer = torch.optim.SGD(leaves, lr=0.25)
    squared_error(torch_forward(pairs, x), target).backward()
    optimizer.step()
    for mine, theirs in zip(new, pairs, strict=True):
        assert torch.equal(mine.weight, theirs.weight)
        assert torch.equal(mine.bias, theirs.bias)
        assert mine.relu is theirs.relu


@given(SEEDS, st.sampled_from([0.25, 0.5, 4.0]))  # powers of two: nothing is rounded
def test_rescaling_a_feature_changes_the_plain_penalty_only(seed, factor):
    """f / c with c W_d reconstructs the same; only the sum weighted by the norms notices that nothing changed."""
    generator = rng(seed)
    encoder, decoder = network([3, 4, 3], [True, False], generator=generator)
    x = integers(3, 5, generator=generator)
    rescaled = (
        Layer(encoder.weight / factor, encoder.bias / factor),
        Layer(factor * decoder.weight, decoder.bias, relu=False),
    )
    before, after = (forward(y, x) for y in ((encoder, decoder), rescaled))
    assert torch.equal(before.output, after.output)
    assert torch.equal(before.values[1].sum(), factor * after.values[1].sum())
    was = sparse_loss((encoder, decoder), before, x, l1=1)
    torch.testing.assert_close(sparse_loss(rescaled, after, x, l1=1).total, was.total, rtol=1e-12, atol=1e-12)


# Edges, dtypes and errors


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_dtype_follows_the_input(dtype):
    layers = tuple(Layer(y.weight.to(dtype), y.bias.to(dtype), y.relu) for y in SPARSE)
    passed = forward(layers, TOKEN.to(dtype))
    found = sparse_backward(layers, passed, TOKEN.to(dtype), l1=0.5)
    new = step(layers, found, step_size=0.5)
    for tensor in (*passed.sums, *passed.values, *found.errors, *found.weights, *found.biases):
        assert tensor.dtype == dtype
    assert {t.dtype for y in new for t in (y.weight, y.bias)} == {dtype}
    assert sparse_loss(layers, passed, TOKEN.to(dtype), l1=1).total.dtype == dtype


def test_a_step_leaves_the_old_weights_alone():
    before = [y.weight.clone() for y in SPARSE]
    step(SPARSE, sparse_backward(SPARSE, forward(SPARSE, TOKEN), TOKEN, l1=1), step_size=1)
    assert all(torch.equal(y.weight, w) for y, w in zip(SPARSE, before, strict=True))


def test_examples_in_rows_are_refused():
    with pytest.raises(ValueError, match=r"layer 1 reads 3 values and got 5; columns are examples"):
        forward(SPARSE, torch.ones(5, 3, dtype=torch.float64))


@pytest.mark.parametrize("call", [sparse_loss, sparse_backward])
def test_a_sparse_pass_refuses_what_is_no_sparse_autoencoder(call):
    passed = forward(SPARSE, TOKEN)
    for l1 in (-1, float("nan"), float("inf")):
        with pytest.raises(ValueError, match=r"l1 is .*; expected a finite number of at least 0"):
            call(SPARSE, passed, TOKEN, l1=l1)
    with_two = (ENCODER, Layer(DECODER.weight, DECODER.bias))
    with pytest.raises(ValueError, match=r"ReLUs \[True, True\]; expected \[True, False\]"):
        call(with_two, passed, TOKEN, l1=1)


def test_passes_keep_what_they_were_given():
    passed = forward(SPARSE, TOKEN)
    assert isinstance(passed, ForwardPass)
    assert passed.values[0] is TOKEN
    assert passed.sums[1] is passed.values[2]
