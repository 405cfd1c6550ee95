"""What learners of lesson 10 answer, and what gives its predictions away."""

import torch
from torch.nn import functional

from course_lib.teaching import edit

GIVES_AWAY = {
    "10.P1": [r"In the right half both networks guess", r"still the network guesses"],
    "10.P2": [
        r"half a turn",
        r"(?i)\bturned?\b",
        r"flip\(",
        r"(?i)backwards",
        r"c, b, a",
        r"(?i)kernel of one pixel",
    ],
    "10.P3": [
        r"(?i)never met a corner on the right",
        r"(?i)both together",
        r"(?i)joined edges",
        r"(?i)gives it a hint",
    ],
    "10.P4": [r"(?i)checkerboard", r"2, 3, 5", r"\b25\b"],
}

NEIGHBOURS = {
    "10.e1": ('lesson.accuracy(dense, *lesson.data(5)["left"])', 'lesson.accuracy(dense, *lesson.data(5)["right"])'),
    "10.e2": ('lesson.accuracy(dense, *lesson.data(5)["right"])', 'lesson.accuracy(dense, *lesson.data(5)["left"])'),
    "10.2": ("correlate(x, w).roll(3, dims=0)).abs()", "correlate(x, w).roll(2, dims=0)).abs()"),
    "10.e3": ("      gap[:3].max(), at_least=1)", "      gap[3:].max(), at_least=1)"),
    "10.3": ("(correlate(x, dy) - dw).abs()", "(correlate(x, dy.flip(0, 1)) - dw).abs()"),
    "10.4": ("correlate(wide, w.flip(0, 1)) - dx", "correlate(wide, w.flip(0)) - dx"),
    "10.5": ("ratio = (ways.max() / ways.min()) ** 2", "ratio = ways.max() / ways.min()"),
    "10.e4": ("kernel=4, nets=100)", "kernel=5, nets=100)"),
    "10.6": ("lesson.share_within(energy, 7)", "lesson.share_within(energy, 5)"),
    "10.e5": ("worst[lesson.MAX] - value for value", "worst[lesson.MEAN] - value for value"),
    "10.e7": ("for arm in (lesson.MEAN, lesson.JOINED)", "for arm in (lesson.JOINED, lesson.MEAN)"),
    "10.e6": ("shares[lesson.MAX] / shares[lesson.OWN]", "shares[lesson.OWN] / shares[lesson.MAX]"),
}  # fmt: skip


def backwards(kernels, strides):
    """From the last layer to the first: an interval of n outputs reads (n - 1) S + K inputs."""
    field = 1
    for kernel, stride in zip(reversed(kernels), reversed(strides), strict=True):
        field = (field - 1) * stride + kernel
    return field


def by_sets(kernels, strides):
    seen = {0}
    for kernel, stride in list(zip(kernels, strides, strict=True))[::-1]:
        seen = {place * stride + k for place in seen for k in range(kernel)}
    return len(seen)


def by_products_of_strides(kernels, strides):
    return 1 + sum(
        (kernels[i] - 1) * torch.tensor([1, *strides[:i]]).prod().item() for i in range(len(kernels))
    )


def slide(image, kernel):
    return functional.conv2d(image[None, None], kernel[None, None])[0, 0]


def padded(image, rows, cols):
    return functional.pad(image, (cols - 1, cols - 1, rows - 1, rows - 1))


def kernel_gradient_by_patches(x, dy):
    patches = x.unfold(0, dy.shape[0], 1).unfold(1, dy.shape[1], 1)
    return torch.einsum("hlij,ij->hl", patches, dy)


def kernel_gradient_by_autograd(x, dy):
    w = torch.zeros(
        x.shape[0] - dy.shape[0] + 1, x.shape[1] - dy.shape[1] + 1, dtype=x.dtype, requires_grad=True
    )
    return torch.autograd.grad((slide(x, w) * dy).sum(), w)[0]


def image_gradient_output_by_output(dy, w):
    dx = dy.new_zeros(dy.shape[0] + w.shape[0] - 1, dy.shape[1] + w.shape[1] - 1)
    for i in range(dy.shape[0]):
        for j in range(dy.shape[1]):
            dx[i : i + w.shape[0], j : j + w.shape[1]] += dy[i, j] * w
    return dx


def assigned_output_by_output(dy, w):
    dx = dy.new_zeros(dy.shape[0] + w.shape[0] - 1, dy.shape[1] + w.shape[1] - 1)
    for i in range(dy.shape[0]):
        for j in range(dy.shape[1]):
            dx[i : i + w.shape[0], j : j + w.shape[1]] = dy[i, j] * w
    return dx


def pool_by_autograd(x, dy, size, stride):
    leaf = x.clone().requires_grad_()
    pooled = functional.max_pool1d(leaf[None], size, stride)[0]
    return torch.autograd.grad(pooled[: len(dy)], leaf, dy)[0]


def pool_by_index_add(x, dy, size, stride):
    windows = x.unfold(0, size, stride)[: len(dy)]
    winners = windows.argmax(1) + stride * torch.arange(len(dy))
    return torch.zeros_like(x).index_add(0, winners, dy)


def windows_filled(x, dy, size, stride):
    """The whole gradient for every pixel of its window."""
    dx = torch.zeros_like(x)
    for i, gradient in enumerate(dy):
        dx[i * stride : i * stride + size] += gradient
    return dx


def pool_by_fancy_index(x, dy, size, stride):
    dx = torch.zeros_like(x)
    dx[x.unfold(0, size, stride)[: len(dy)].argmax(1) + stride * torch.arange(len(dy))] += dy
    return dx


ANSWERS = {
    "10.1": [
        ("solved", "the formula of PyTorch's page", (20 + 2 * 6 - 5 * (3 - 1) - 1) // 2 + 1),
        ("solved", "counted places", len(range(0, 32 - 11 + 1, 2))),
        ("solved", "a float", 11.0),
        ("no first place", "rest over stride", (32 - 11) // 2),
        ("one place too many", "ceil", -(-21 // 2) + 1),
        ("one place too many", "a reach of D(K - 1)", (32 - 10) // 2 + 1),
        ("reach of DK", "a reach of DK", (32 - 15) // 2 + 1),
        ("no dilation", "D left out", (32 - 3) // 2 + 1),
        ("padding once", "P instead of 2P", (20 + 6 - 11) // 2 + 1),
        ("no padding", "P left out", (20 - 11) // 2 + 1),
        ("no stride", "every place", 32 - 11 + 1),
        ("the size kept", "'same' padding", 20),
        ("not rounded", "the division as it comes", 21 / 2 + 1),
        ("wrong", "the number of kernels that fit side by side", 32 // 11),
        ("malformed", "both axes", (10, 10)),
    ],
    "10.2": [
        ("solved", "from the last layer to the first", backwards),
        ("solved", "sets of pixels", by_sets),
        ("solved", "a sum with products of strides", by_products_of_strides),
        ("no strides", "the sum of K - 1", lambda kernels, strides: 1 + sum(k - 1 for k in kernels)),
        ("its own stride too", "stride before the sum", lambda kernels, strides: by_products_of_strides(
            [1, *kernels], [*strides, 1])),
        ("K in the place of K - 1", "K steps", edit("(kernel - 1)", "kernel")),
        ("without the first pixel", "starts at 0", lambda kernels, strides: backwards(kernels, strides) - 1),
        ("strides added", "sum of strides", edit("*= stride", "+= stride")),
        ("last layer first", "forgot to reverse",
         lambda kernels, strides: backwards(kernels[::-1], strides[::-1])),
        ("wrong", "the product of all kernels", lambda kernels, strides: torch.tensor(kernels).prod().item()),
        ("wrong", "stride of the next layer", lambda kernels, strides: 1 + sum(
            (k - 1) * s for k, s in zip(kernels, strides, strict=True))),
        ("malformed", "a list for each layer", lambda kernels, strides: [backwards(kernels[:1], strides[:1])]),
    ],
    "10.3": [
        ("solved", "dy as the kernel of conv2d", slide),
        ("solved", "patches", kernel_gradient_by_patches),
        ("solved", "autograd", kernel_gradient_by_autograd),
        ("turned round", "flipped at the end", lambda x, dy: slide(x, dy).flip(0, 1)),
        ("dy turned round", "a true convolution", lambda x, dy: slide(x, dy.flip(0, 1))),
        ("mean for the sum", "mean over outputs", lambda x, dy: slide(x, dy) / dy.numel()),
        ("one place only", "one pixel times all of dy", lambda x, dy: x[: x.shape[0] - dy.shape[0] + 1,
                                                                       : x.shape[1] - dy.shape[1] + 1] * dy.sum()),
        ("dy left out", "the sum of the pixels that it meets", lambda x, dy: slide(x, torch.ones_like(dy))),
        ("turned round", "both flipped", lambda x, dy: slide(x.flip(0, 1), dy.flip(0, 1))),
        ("wrong", "rows flipped", lambda x, dy: slide(x, dy.flip(0))),
        ("malformed", "a full convolution", lambda x, dy: slide(padded(x, *dy.shape), dy)),
    ],
    "10.4": [
        ("solved", "opposite", {"a": 1, "b": -1}),
        ("solved", "hardly correlated", {"a": 0.01, "b": -0.01}),
        ("solved", "tensors", {"a": torch.tensor(0.9), "b": torch.tensor(-0.1)}),
        ("gradients independent", "b = 0", {"a": 0.9, "b": 0}),
        ("both positive", "pixels and gradients alike", {"a": 0.9, "b": 0.9}),
        ("need", "the pixels opposed", {"a": -0.5, "b": 0.5}),
        ("need", "both negative", {"a": -0.5, "b": -0.5}),
        ("need", "a covariance", {"a": 2.0, "b": -3.0}),
        ("need", "a = 0", {"a": 0.0, "b": -0.5}),
        ("malformed", "one number", -0.5),
        ("malformed", "other keys", {"x": 0.5, "dy": -0.5}),
    ],
    "10.5": [
        ("solved", "conv_transpose2d", lambda dy, w: functional.conv_transpose2d(dy[None, None], w[None, None])[0, 0]),
        ("solved", "output by output", image_gradient_output_by_output),
        ("solved", "the turned kernel over the padded dy", lambda dy, w: slide(padded(dy, *w.shape), w.flip(0, 1))),
        ("kernel turned", "forgot the turn", lambda dy, w: slide(padded(dy, *w.shape), w)),
        ("kernel turned", "both turned, dy over the kernel",
         lambda dy, w: slide(padded(w.flip(0, 1), *dy.shape), dy.flip(0, 1))),
        ("solved", "the turned dy over the padded kernel", lambda dy, w: slide(padded(w, *dy.shape), dy.flip(0, 1))),
        ("dy turned round", "dy over the padded kernel, not turned", lambda dy, w: slide(padded(w, *dy.shape), dy)),
        ("mirrored rows", "turned the columns only", lambda dy, w: slide(padded(dy, *w.shape), w.flip(1))),
        ("mirrored columns", "turned the rows only", lambda dy, w: slide(padded(dy, *w.shape), w.flip(0))),
        ("assigned, not added", "overwritten", edit("+= w", "= w")),
        ("dy turned round", "turned dy as well", lambda dy, w: slide(padded(dy.flip(0, 1), *w.shape), w.flip(0, 1))),
        ("wrong", "overwritten output by output", assigned_output_by_output),
        ("malformed", "no padding of dy", lambda dy, w: slide(dy.repeat(3, 3), w.flip(0, 1))),
        ("malformed", "'same' padding", lambda dy, w: dy * w.sum()),
    ],
    "10.7": [
        ("solved", "two strides", 8),
        ("solved", "a float", 8.0),
        ("one more", "an overlap of one", 5),
        ("one and a half strides", "an overlap of two", 4 + 4 // 2),
        ("a middle", "an odd number", 7),
        ("one too many", "two strides and one", 2 * 4 + 1),
        ("three strides", "three strides", 12),
        ("four strides", "the square", 4**2),
        ("the stride", "as given", 4),
        ("wrong", "a smaller one", 2),
        ("wrong", "ten", 10),
        ("malformed", "a list", [8, 12]),
    ],
    "10.6": [
        ("solved", "autograd through max_pool1d", pool_by_autograd),
        ("solved", "index_add", pool_by_index_add),
        ("solved", "a comparison with the maximum", lambda x, dy, size, stride: sum(
            dy[i] * ((x == x[i * stride : i * stride + size].max()).to(x)) for i in range(len(dy)))),
        ("assigned, not added", "an index on the left", pool_by_fancy_index),
        ("place within the window", "argmax as it comes", edit("i * stride + int", "int")),
        ("spread evenly", "average pooling", lambda x, dy, size, stride: windows_filled(x, dy / size, size, stride)),
        ("to every pixel", "a copy for each", windows_filled),
        ("malformed", "windows beyond the end", lambda x, dy, size, stride: pool_by_index_add(x, dy, size, size)),
        ("smallest pixel", "argmin", edit("argmax", "argmin")),
        ("times the pixel", "multiplied by the value",
         lambda x, dy, size, stride: x * pool_by_index_add(x, dy, size, stride)),
        ("malformed", "one entry for each window", lambda x, dy, size, stride: dy),
    ],
}  # fmt: skip
