"""Convolution: worked examples, three forms against each other and torch, gradients by hand, sizes, random images."""

from itertools import product

import pytest
import torch
from torch.nn import functional

from course_lib.architectures.convolution import (
    conv2d,
    conv2d_by_shifts,
    correlate,
    correlated_images,
    depthwise_conv2d,
    effective_width,
    fft_size,
    input_gradient,
    output_size,
    pool_gradient,
    receptive_field,
    weight_gradient,
    weight_gradient_std,
)

X = torch.arange(1.0, 10.0, dtype=torch.float64).view(3, 3)
W = torch.tensor([[1.0, 0.0], [0.0, -1.0]], dtype=torch.float64)
DY = torch.tensor([[1.0, 2.0], [0.0, -1.0]], dtype=torch.float64)


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def normal(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=rng(seed), dtype=torch.float64).to(dtype)


# Worked examples


def test_the_worked_example_of_the_notes():
    assert correlate(X, W).tolist() == [[-4, -4], [-4, -4]]
    assert weight_gradient(X, DY).tolist() == [[0, 2], [6, 8]]
    # By hand: each output gives its gradient to the pixel under each weight.
    assert input_gradient(DY, W).tolist() == [[1, 2, 0], [0, -2, -2], [0, 0, 1]]


def test_a_true_convolution_turns_the_kernel_and_is_another_number():
    assert correlate(X, W.flip(0, 1)).tolist() == [[4, 4], [4, 4]]


def test_pooling_of_the_notes():
    x = torch.tensor([[1.0, 2.0], [3.0, 4.0]])[None, None]
    one = torch.ones(1, 1, 1, 1)
    assert pool_gradient(x, one, kernel=2, stride=2, kind="max")[0, 0].tolist() == [[0, 0], [0, 1]]
    assert pool_gradient(x, one, kernel=2, stride=2, kind="average")[0, 0].tolist() == [[0.25] * 2] * 2


def test_overlapping_windows_add_up():
    # (1, 5, 2, 0) with windows of 2 and stride 1: the 5 is the largest of two windows, the 2 of one.
    x = torch.tensor([[1.0, 5.0, 2.0, 0.0], [-9.0] * 4])[None, None]
    found = pool_gradient(x, torch.ones(1, 1, 1, 3), kernel=2, stride=1, kind="max")
    assert found[0, 0].tolist() == [[0, 2, 1, 0], [0, 0, 0, 0]]


@pytest.mark.parametrize(
    ("size", "options", "expected"),
    [
        (7, {"kernel": 3, "padding": 1, "stride": 2}, 4),
        (5, {"kernel": 3, "padding": 1, "stride": 2}, 3),
        (8, {"kernel": 3, "stride": 2}, 3),  # the notes' pooling formula without the floor says 3.5
        (224, {"kernel": 7, "stride": 2, "padding": 3}, 112),
        (9, {"kernel": 3, "dilation": 4}, 1),
    ],
)
def test_output_size(size, options, expected):
    assert output_size(size, **options) == expected


def test_output_size_is_that_of_torch():
    for size, k, s, p, d in product((5, 8, 11), (1, 3, 4), (1, 2, 3), (0, 1, 2), (1, 2)):
        if d * (k - 1) + 1 <= size + 2 * p:
            out = functional.conv1d(
                torch.zeros(1, 1, size), torch.zeros(1, 1, k), stride=s, padding=p, dilation=d
            )
            assert output_size(size, kernel=k, stride=s, padding=p, dilation=d) == out.shape[-1]


def test_receptive_field_of_the_notes_and_with_strides():
    assert receptive_field([3] * 3) == 7
    assert receptive_field([5] * 4) == 17
    assert receptive_field([3, 3], [2, 1]) == 7  # L(K - 1) + 1 says 5
    assert receptive_field([3, 3], [1, 2]) == 5  # the last stride reads nothing more
    assert receptive_field([3, 3], None, [1, 2]) == 7
    assert receptive_field([]) == 1


def test_receptive_field_is_where_the_gradient_is_not_zero():
    for kernels, strides, dilations in (([3, 5], [2, 1], [1, 2]), ([2, 3, 3], [1, 3, 2], [2, 1, 1])):
        x = torch.zeros(1, 1, 60, requires_grad=True)
        y = x
        for k, s, d in zip(kernels, strides, dilations, strict=True):
            y = functional.conv1d(y, torch.ones(1, 1, k), stride=s, dilation=d)
        (gradient,) = torch.autograd.grad(y[0, 0, 0], x)
        reached = gradient[0, 0].nonzero()
        assert int(reached.max()) + 1 == receptive_field(kernels, strides, dilations)


# Three forms and torch's


LAYERS = [
    {"stride": s, "padding": p, "dilation": d, "kernel": k}
    for s, p, d, k in product((1, 2, 3), (0, 2), (1, 2), ((1, 1), (3, 2), (2, 3)))
]


def with_gradients(call, *inputs):
    inputs = [t.detach().clone().requires_grad_() for t in inputs]
    y = call(*inputs)
    return [y, *torch.autograd.grad(y, inputs, torch.cos(torch.arange(y.numel()).to(y)).view_as(y))]


def test_all_forms_are_the_layer_of_torch_with_its_gradients():
    for layer in LAYERS:
        options = {name: value for name, value in layer.items() if name != "kernel"}
        inputs = normal(2, 3, 9, 8), normal(4, 3, *layer["kernel"], seed=1), normal(4, seed=2)
        wanted = with_gradients(lambda *t, o=options: functional.conv2d(*t, **o), *inputs)
        for form in (conv2d, conv2d_by_shifts):
            found = with_gradients(lambda *t, f=form, o=options: f(*t, **o), *inputs)
            for a, b in zip(found, wanted, strict=True):
                torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-11, msg=f"{form.__name__} {layer}")


def test_gradients_by_hand_are_finite_differences():
    inputs = normal(2, 2, 5, 4).requires_grad_(), normal(3, 2, 3, 2, seed=1).requires_grad_()
    assert torch.autograd.gradcheck(lambda x, w: conv2d(x, w, stride=2, padding=1), inputs)
    inputs = normal(2, 2, 5, 4).requires_grad_(), normal(2, 1, 3, 2, seed=1).requires_grad_()
    assert torch.autograd.gradcheck(lambda x, w: depthwise_conv2d(x, w, padding=1), inputs)


def test_only_the_gradients_that_are_asked_for():
    x, w = normal(1, 2, 5, 5).requires_grad_(), normal(3, 2, 3, 3)
    conv2d(x, w).sum().backward()
    assert w.grad is None
    whole = with_gradients(conv2d, x, w)
    torch.testing.assert_close(torch.autograd.grad(conv2d(x, w).sum(), x)[0].shape, whole[1].shape)
    w.requires_grad_()
    (dw,) = torch.autograd.grad(conv2d(x.detach(), w).sum(), w)
    torch.testing.assert_close(dw, torch.nn.grad.conv2d_weight(x, w.shape, torch.ones(1, 3, 3, 3).double()))


def test_one_channel_is_the_layer_with_one_channel():
    x, w = normal(7, 6), normal(3, 2, seed=1)
    y, dx, dw = with_gradients(conv2d, x[None, None], w[None, None])
    dy = torch.cos(torch.arange(y.numel()).to(y)).view_as(y)[0, 0]
    torch.testing.assert_close(correlate(x, w), y[0, 0])
    torch.testing.assert_close(weight_gradient(x, dy), dw[0, 0])
    torch.testing.assert_close(input_gradient(dy, w), dx[0, 0])
    # The nearest wrong ones: the kernel as it is, and dW turned round.
    assert not torch.allclose(correlate(functional.pad(dy, (1, 1, 2, 2)), w), dx[0, 0])
    assert not torch.allclose(weight_gradient(x, dy).flip(0, 1), dw[0, 0])


def test_the_layer_in_float32_is_near_float64_and_keeps_the_dtype():
    inputs = normal(2, 8, 9, 9), normal(4, 8, 3, 3, seed=1)
    wanted = with_gradients(lambda *t: conv2d(*t, padding=1), *inputs)
    found = with_gradients(lambda *t: conv2d(*t, padding=1), *(t.float() for t in inputs))
    for a, b in zip(found, wanted, strict=True):
        assert a.dtype == torch.float32
        assert (a - b).abs().max() < 2e-6 * b.abs().max()


def test_depthwise_through_the_fourier_transform():
    for size, k, p in (
        ((16, 19), (3, 3), 1),
        ((9, 12), (7, 4), 3),
        ((8, 8), (15, 15), 7),
        ((11, 6), (1, 6), 0),
    ):
        inputs = normal(2, 3, *size), normal(3, 1, *k, seed=1)
        wanted = with_gradients(lambda x, w, p=p: functional.conv2d(x, w, padding=p, groups=3), *inputs)
        found = with_gradients(lambda x, w, p=p: depthwise_conv2d(x, w, padding=p), *inputs)
        for a, b in zip(found, wanted, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


def test_fft_sizes_are_even_and_smooth():
    assert [fft_size(n) for n in (1, 2, 7, 11, 46, 62, 97)] == [2, 2, 8, 12, 48, 64, 100]


def test_pooling_gradients_are_those_of_torch():
    x = normal(2, 3, 9, 8)
    for kernel, stride in product((1, 2, 3), (1, 2, 4)):
        for kind, pool in (("max", functional.max_pool2d), ("average", functional.avg_pool2d)):
            y, dx = with_gradients(lambda t, k=kernel, s=stride, f=pool: f(t, k, s), x)
            dy = torch.cos(torch.arange(y.numel()).to(y)).view_as(y)
            torch.testing.assert_close(pool_gradient(x, dy, kernel=kernel, stride=stride, kind=kind), dx)


def test_of_equal_pixels_the_first_gets_the_gradient():
    x = torch.zeros(1, 1, 4, 4, requires_grad=True)
    y = functional.max_pool2d(x, 2)
    (wanted,) = torch.autograd.grad(y.sum(), x)
    found = pool_gradient(x.detach(), torch.ones_like(y), kernel=2, stride=2, kind="max")
    assert torch.equal(found, wanted)
    assert found.sum() == 4


# Random images


def test_correlated_images_have_variance_one_and_fall_off_by_rho():
    images = correlated_images(4000, 5, correlation=0.6, generator=rng())
    products = (images[:, :1, :1] * images).mean(0)
    distance = torch.arange(5)[:, None] + torch.arange(5)
    torch.testing.assert_close(products, 0.6 ** distance.double(), rtol=0, atol=0.07)
    assert images.var() == pytest.approx(1, abs=0.05)
    constant = correlated_images(3, 4, correlation=1, generator=rng())
    assert torch.equal(constant, constant[:, :1, :1].expand(3, 4, 4))


@pytest.mark.parametrize(("rho_x", "rho_y"), [(0, 0), (0.9, 0), (0.7, 0.8), (1, 1)])
def test_spread_of_the_kernel_gradient(rho_x, rho_y):
    n, k, count = 8, 3, 6000
    x = correlated_images(count, n, correlation=rho_x, generator=rng(1))
    dy = correlated_images(count, n - k + 1, correlation=rho_y, generator=rng(2))
    dw = torch.stack([(x[:, h : h + 6, l : l + 6] * dy).sum((1, 2)) for h in range(k) for l in range(k)])  # noqa: E741
    assert float(dw.square().mean().sqrt()) == pytest.approx(
        weight_gradient_std(6, correlation=rho_x * rho_y), rel=0.05
    )


def test_spread_goes_from_m_to_m_squared():
    assert weight_gradient_std(30, std_x=2, std_dy=3) == 180
    assert weight_gradient_std(30, correlation=1, std_x=2, std_dy=3) == 5400
    assert weight_gradient_std(2, correlation=-0.5) == 1.0  # below m = 2
    assert weight_gradient_std(1, correlation=1) == 1.0  # k = n leaves one output


def test_width_of_the_effective_field():
    assert effective_width([3] * 6) == pytest.approx(2.0)
    # The squared gradient of a linear chain with independent weights: a box that meets itself L times.
    gradients = torch.ones(20000, 1)
    generator = rng(3)
    for _ in range(4):
        taps = torch.randn(20000, 5, generator=generator)
        padded = functional.pad(gradients, (4, 4))
        gradients = sum(taps[:, t : t + 1] * padded[:, t : t + gradients.shape[1] + 4] for t in range(5))
    weights = gradients.square().mean(0)
    places = torch.arange(17.0) - 8
    width = float((weights * places**2).sum() / weights.sum()) ** 0.5
    assert width == pytest.approx(effective_width([5] * 4), rel=0.05)


# Wrong input


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: output_size(5, kernel=0), "kernel must be a whole number of at least 1, got 0"),
        (lambda: output_size(5, kernel=2, padding=-1), "padding must be a whole number of at least 0, got -1"),
        (lambda: output_size(5, kernel=4, dilation=2), "reaches over 7 pixels, and the padded input has 5"),
        (lambda: receptive_field([3, 3], [1]), "one entry a layer, got 2, 1 and 2"),
        (lambda: correlate(W, X), "reaches over 3 pixels"),
        (lambda: conv2d(normal(1, 2, 5, 5), normal(3, 4, 3, 3)), r"weight must have shape \(3, 2, k_rows"),
        (lambda: depthwise_conv2d(normal(1, 2, 5, 5), normal(2, 2, 3, 3)), r"weight must have shape \(2, 1, k_rows"),
        (lambda: conv2d(normal(1, 2, 5, 5), normal(3, 2, 3, 3), normal(2)), "bias must have one entry for each of 3"),
        (
            lambda: conv2d(normal(1, 2, 5, 5), normal(3, 2, 3, 3).float()),
            "weight must share dtype and device with x, torch.float64 on cpu, got torch.float32",
        ),
        (
            lambda: pool_gradient(normal(1, 1, 4, 4), normal(1, 1, 2, 2), kernel=2, stride=2, kind="mean"),
            "kind must be 'max' or 'average', got 'mean'",
        ),
        (
            lambda: pool_gradient(normal(1, 1, 4, 4), normal(1, 1, 3, 3), kernel=2, stride=2, kind="max"),
            r"dy must have shape \(1, 1, 2, 2\), got \(1, 1, 3, 3\)",
        ),
        (lambda: correlated_images(1, 4, correlation=1.5, generator=rng()), r"correlation must lie in \[0, 1\], got 1.5"),
        (lambda: weight_gradient_std(3, correlation=-2), r"correlation must lie in \[-1, 1\], got -2"),
        (lambda: fft_size(0), "size must be a whole number of at least 1, got 0"),
    ],
)  # fmt: skip
def test_wrong_input_is_named(call, said):
    with pytest.raises(ValueError, match=said):
        call()
