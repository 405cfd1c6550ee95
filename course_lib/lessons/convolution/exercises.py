"""Exercises of lesson 10, convolution."""

import torch
from torch.nn import functional

from course_lib.lessons.convolution.contents import lesson
from course_lib.teaching import but, close, edit, inputs, normal


def _image(generator):
    rows, cols, k_rows, k_cols = (int(torch.randint(2, high, (), generator=generator)) for high in (5, 5, 4, 4))
    draw = inputs(x=normal(f"{rows + k_rows - 1} {cols + k_cols - 1}"), dy=normal(f"{rows} "
    f"{cols}"), w=normal(f"{k_rows} {k_cols}"))
    return draw(generator)


def _by_autograd(x, dy, *, of):
    """Gradient of sum(Y dY) with respect to the kernel or the image, by torch."""
    if of == "kernel":
        return torch.nn.grad.conv2d_weight(x[None, None], (1, 1, x.shape[0] - dy.shape[0] + 1, x.shape[1] - dy.shape[1] + 1),
                                           dy[None, None])[0, 0]
    return torch.nn.grad.conv2d_input((1, 1, dy.shape[0] + x.shape[0] - 1, dy.shape[1] + x.shape[1] - 1), x[None, None],
                                      dy[None, None])[0, 0]


@lesson.exercise(
    "10.3", "The gradient of the kernel", difficulty=2, minutes=10,
    prompt="Write `kernel_gradient(x, dy)` for the layer (10.1), at stride 1 without padding: `x` is the image, `dy` the "
    "gradient of "
    "the loss with respect to the output $y_{ij} = \\sum_{h,l} x_{i+h-1,\\,j+l-1}w_{hl}$. Return the gradient with "
    "respect to the kernel. "
    "The shape of the kernel follows from the two shapes; rows and columns may differ.",
    draw=_image,
    properties=[
        ("It should be the gradient of the sum of y · dy with respect to the kernel.",
         lambda x, dy, answer: close(answer, _by_autograd(x, dy, of="kernel"))),
    ],
    hints=(
        "Which pixel does the weight w_hl meet in the output y_ij? Collect all places i, j.",
        "For each weight: cut the part of the image that this weight sees, as large as dy.",
        "The kernel has x.shape[0] - dy.shape[0] + 1 rows. Multiply the part with dy, entry by entry, and add up.",
    ),
    mistakes=[
        ("turned round", edit("return dw", "return dw.flip(0, 1)"),
         "Your kernel is turned by 180 degrees. The turn belongs to the gradient of the image; for the kernel there "
         "is none."),
        ("dy turned round", edit("* dy", "* dy.flip(0, 1)"),
         "You turned dy by 180 degrees, as a true convolution does. dW is a cross-correlation: the pixel x_(i+h-1, "
         "j+l-1) meets dy_ij."),
        ("mean for the sum", edit(".sum()", ".mean()"),
         "You took the mean over the places. Every place adds its share to the loss: the gradient is the sum."),
        ("one place only", edit("(x[top : top + rows, left : left + cols] * dy).sum()", "x[top, left] * dy.sum()"),
         "You took the same pixel for all outputs. The weight w_hl meets another pixel in every output."),
        ("dy left out", edit(" * dy).sum()", ").sum()"),
         "You added up the pixels that the weight meets. Each of them counts with the gradient of its output, dy_ij."),
    ],
)
def kernel_gradient(x, dy):
    """Let dy slide over the image."""
    rows, cols = dy.shape
    dw = x.new_zeros(x.shape[0] - rows + 1, x.shape[1] - cols + 1)
    for top in range(dw.shape[0]):
        for left in range(dw.shape[1]):
            dw[top, left] = (x[top : top + rows, left : left + cols] * dy).sum()
    return dw


@lesson.exercise(
    "10.5", "The gradient of the image", difficulty=2, minutes=12,
    prompt="Write `image_gradient(dy, w)` for the layer (10.1), at stride 1 without padding: the gradient of the loss with "
    "respect to the "
    "image, from `dy` and the kernel `w`. Its shape is `(dy.shape[0] + w.shape[0] - 1, dy.shape[1] + w.shape[1] - 1)`.",
    draw=lambda generator: {name: _image(generator)[name] for name in ("dy", "w")},
    properties=[
        ("It should be the gradient of the sum of y · dy with respect to the image.",
         lambda dy, w, answer: close(answer, _by_autograd(w, dy, of="image"))),
    ],
    hints=(
        "An output gives its gradient to every pixel that it read, each time through another weight.",
        "Start with zeros of the image's shape. For each weight, add w_hl · dy to the part of the image that this "
        "weight sees.",
        "The part for the weight (h, l), counted from 0, begins in row h and column l and is as large as dy.",
    ),
    mistakes=[
        ("kernel turned", edit("w[top, left]", "w[-1 - top, -1 - left]"),
         "Your kernel is turned by 180 degrees where it should not be, or is not where it should be. Either add w_hl · dy, "
         "with the kernel as it is, at (h, l), or slide the turned kernel over the padded dy."),
        ("mirrored rows", edit("w[top, left]", "w[-1 - top, left]"),
         "The rows of your kernel are in the wrong order, the columns are right."),
        ("mirrored columns", edit("w[top, left]", "w[top, -1 - left]"),
         "The columns of your kernel are in the wrong order, the rows are right."),
        ("assigned, not added", edit("+= w", "= w"),
         "You overwrote what earlier weights had left. A pixel that several outputs read adds up all their gradients."),
        ("dy turned round", edit("* dy", "* dy.flip(0, 1)"),
         "Against the kernel, your dy is turned by 180 degrees. Either add w_hl · dy, with dy as it is, at (h, l), or slide "
         "the turned kernel over the padded dy. (If dy slides over the padded kernel, it is dy that has to be turned.)"),
    ],
)
def image_gradient(dy, w):
    """Give each output's gradient back to the pixels that it read."""
    rows, cols = dy.shape
    dx = dy.new_zeros(rows + w.shape[0] - 1, cols + w.shape[1] - 1)
    for top in range(w.shape[0]):
        for left in range(w.shape[1]):
            dx[top : top + rows, left : left + cols] += w[top, left] * dy
    return dx


def _evenly_read(kernel, stride):
    """Whether all pixels away from the ends of a long row are read equally often, by any number of weights."""
    return len({(kernel - first - 1) // stride for first in range(stride)}) == 1


lesson.value(
    "10.7", "A kernel for stride 4", difficulty=1, minutes=4,
    prompt="Kernels slide along a long row of pixels at stride 4. With 4 weights each pixel is read by one "
    "output. Which is the "
    "next larger number of weights with which all pixels, away from the ends, are read by equally many outputs?",
    answer=8,
    properties=[
        ("It should be larger than 4.", lambda answer: answer > 4),
        ("Some pixels are read more often than others with this kernel.",
         lambda answer: float(answer).is_integer() and _evenly_read(int(answer), 4)),
        ("There is a smaller one above 4.",
         lambda answer: not any(_evenly_read(kernel, 4) for kernel in range(5, min(int(answer), 9)))),
    ],
    hints=(
        "Draw a row of pixels, and below it kernels of 5 weights that begin at pixels 1, 5, 9, ...",
        "By how many kernels of 5 is pixel 5 read? And pixel 6?",
        "Each weight reads every fourth pixel. How many weights read the pixels 1, 5, 9, ..., and how many 2, 6, 10, ...?",
    ),
    mistakes=[
        ("one more", 5, "With 5 weights neighbouring windows overlap in one pixel: it is read twice, the others once."),
        ("one and a half strides", 6, "With 6 weights half of the pixels are read twice, the others once."),
        ("a middle", 7, "A middle does not help: with 7 weights three of four pixels are read twice, the fourth once."),
        ("one too many", 9, "With 9 weights one pixel of four is read three times, the others twice."),
        ("three strides", 12, "With 12 weights all pixels are read three times. A smaller kernel will do, too."),
        ("four strides", 16, "With 16 weights all pixels are read four times. A smaller kernel will do, too."),
        ("the stride", 4, "That is the given one. A larger kernel is asked for."),
    ],
)


def _row(generator):
    places, size, stride = (int(torch.randint(low, high, (), generator=generator)) for low, high in ((2, 5), (2, 4), (1, 4)))
    pixels = torch.randperm((places - 1) * stride + size + 1, generator=generator).double()
    return {"x": pixels, "dy": torch.randint(1, 10, (places,), generator=generator).double(), "size": size, "stride": stride}


def _pooled(x, dy, size, stride):
    leaf = x.clone().requires_grad_()
    return torch.autograd.grad(leaf.unfold(0, size, stride)[: len(dy)].amax(1), leaf, dy)[0]


@lesson.exercise(
    "10.6", "Max pooling with overlap", difficulty=3, minutes=12,
    prompt="Write `max_pool_gradient(x, dy, size, stride)` along one axis: the output $i$ (from 0) of max pooling is "
    "the largest of the "
    "`size` pixels from `i * stride` on, and `dy` has one entry for each of the `len(dy)` outputs. Return the "
    "gradient with respect to `x`. No two pixels "
    "are equal. Windows may overlap, or leave pixels out.",
    draw=_row,
    properties=[
        ("It should be the gradient of the sum of the pooled outputs times dy.",
         lambda x, dy, size, stride, answer: close(answer, _pooled(x, dy, size, stride))),
    ],
    hints=(
        "In each window, one pixel decides the output. Which derivative do the others have?",
        "A pixel may be the largest of several windows. What happens to its gradients?",
        "Loop over the outputs, find the place of the largest pixel with argmax, and count it from the start of x.",
    ),
    mistakes=[
        ("assigned, not added", edit("+= gradient", "= gradient"),
         "A pixel that wins several windows gets the sum of their gradients; you kept the last one."),
        ("place within the window", edit("i * stride + int", "int"),
         "argmax counts from the start of the window. Add where the window starts, i · stride."),
        ("spread evenly", edit("int(x[i * stride : i * stride + "
        "size].argmax())", "torch.arange(size)", "+= gradient", "+= gradient / size"),
         "That is average pooling: it gives every pixel of the window the same share."),
        ("to every pixel", edit("int(x[i * stride : i * stride + size].argmax())", "torch.arange(size)"),
         "You gave the whole gradient to every pixel of the window. Only the largest one decides the output."),
        ("windows side by side", edit("x[i * stride : i * stride + size]", "x[i * size : (i + 1) * size]" , "i * "
        "stride + int", "i * size + int"),
         "Your windows stand side by side, i · size apart. They start i · stride apart."),
        ("smallest pixel", edit("argmax", "argmin"),
         "You gave the gradient to the smallest pixel of the window. The largest one decides the output."),
        ("times the pixel", edit("return dx", "return dx * x"),
         "You multiplied by the pixel. The output is the pixel itself: its derivative with respect to it is 1."),
    ],
)
def max_pool_gradient(x, dy, size, stride):
    """Give each window's gradient to its largest pixel."""
    dx = torch.zeros_like(x)
    for i, gradient in enumerate(dy):
        dx[i * stride + int(x[i * stride : i * stride + size].argmax())] += gradient
    return dx


def _linear_chain(kernels, strides):
    """The pixels that one output of a chain of ones reaches, by autograd."""
    x = torch.zeros(1, 1, 200, requires_grad=True)
    y = x
    for k, s in zip(kernels, strides, strict=True):
        y = functional.conv1d(y, torch.ones(1, 1, k), stride=s)
    return int((torch.autograd.grad(y[0, 0, 0], x)[0] != 0).sum())


def _layers(generator):
    n = int(torch.randint(2, 5, (), generator=generator))
    draw = lambda low, high: torch.randint(low, high, (n,), generator=generator).tolist()  # noqa: E731
    return {"kernels": draw(2, 6), "strides": draw(1, 3)}


@lesson.exercise(
    "10.2", "The receptive field with strides", difficulty=1, minutes=8,
    prompt="Write `receptive_field(kernels, strides)`: the number of input pixels along one axis that one output of "
    "a chain of "
    "layers depends on. Both arguments are lists with one whole number for each layer, the first layer first; there "
    "is no dilation.",
    draw=_layers,
    properties=[
        ("The gradient of one output reaches another number of pixels.",
         lambda kernels, strides, answer: answer == _linear_chain(kernels, strides)),
    ],
    hints=(
        "Two neighbours in the output of a layer lie how many input pixels apart?",
        "A layer adds K - 1 steps to the field; a step of this layer is as long as the strides before it make it.",
        "Carry two numbers through the loop: the field so far, and the length of a step in input pixels.",
    ),
    mistakes=[
        ("no strides", edit(" * step", ""),
         "That is right at stride 1 only. After a stride of 2, a step is 2 input pixels "
         "long."),
        ("its own stride too", edit("field += (kernel - 1) * step\n        step *= stride", "step *= stride\n        "
        "field += (kernel - 1) * step"),
         "You multiplied by the layer's own stride as well. The stride moves the kernel, it does not stretch it."),
        ("K in the place of K - 1", edit("(kernel - 1)", "kernel"),
         "You added K for each layer: the windows of neighbours overlap, and only K - 1 pixels are new."),
        ("without the first pixel", edit("1, 1", "0, 1"),
         "One pixel is missing: a chain without layers has a field of 1, the pixel itself."),
        ("strides added", edit("step *= stride", "step += stride"),
         "Strides multiply: two layers of stride 3 make steps of 9 pixels."),
        ("last layer first", edit("zip(kernels, strides, strict=True)", "zip(kernels[::-1], strides[::-1], strict=True)"),
         "You took the layers in reverse order. The lists start with the first layer, and a step of a layer is as long as "
         "the strides *before* it make it."),
    ],
)
def receptive_field(kernels, strides):
    """Add K - 1 steps for each layer."""
    field, step = 1, 1
    for kernel, stride in zip(kernels, strides, strict=True):
        field += (kernel - 1) * step
        step *= stride
    return field


def _places(**options):
    return functional.conv1d(torch.zeros(1, 1, 20), torch.zeros(1, 1, 3), **options).shape[-1]


lesson.value(
    "10.1", "How many outputs", difficulty=1, minutes=3,
    prompt="An image has 20 pixels along one axis. A kernel of size $K = 3$ with dilation $D = 5$ slides over it "
    "with stride $S = 2$, after a padding of $P = 6$ zeros on each side. How many outputs are there along this axis?",
    answer=11,
    properties=[
        ("PyTorch's own layer with these settings returns another number of outputs.",
         lambda answer: answer == _places(stride=2, padding=6, dilation=5)),
    ],
    hints=(
        "How many pixels are there with the padding, and how many does the kernel reach over?",
        "With dilation 5 a kernel leaves four pixels out between two neighbouring weights.",
        "Count the places: the first one, and one more for every two pixels that are left.",
    ),
    mistakes=[
        ("no first place", 10,
         "You divided what is left by the stride, and forgot the first place: add 1."),
        ("one place too many", 12,
         "One place too many. A last place that does not fit completely gives no output: round down. And the kernel reaches "
         "over D(K - 1) + 1 = 11 pixels: D(K - 1) is the distance from its first weight to its last."),
        ("no dilation", 15,
         "That is right for D = 1. With D = 5 the kernel reaches over D(K - 1) + 1 = 11 pixels, not 3."),
        ("reach of DK", 9,
         "You let the kernel reach over DK = 15 pixels. K weights have K - 1 distances between them: D(K - 1) + 1 = 11."),
        ("padding once", 8,
         "You added the padding once: there are 6 zeros on each side, 12 together."),
        ("no padding", 5, "You left the padding out: there are 6 zeros on each side, 12 together."),
        ("no stride", 22, "That is right at stride 1. The stride of 2 takes every second of these places."),
        ("the size kept", 20,
         "A padding can keep the size, but only at stride 1. The stride of 2 takes every second place."),
        ("not rounded", 11.5,
         "The kernel cannot stop between two places. A last place that does not fit gives no output: round down.",
         lambda answer: 11 < answer < 12),
    ],
)


lesson.flaw(
    "10.4", "Correlation that narrows", difficulty=2, minutes=6,
    prompt="\"If the pixels of the image are correlated, the gradient of a weight can only spread more.\" Give a "
    "counterexample with two outputs: $dw = x_1\\,dy_1 + x_2\\,dy_2$, all four of mean 0 and variance 1, the pixels "
    "independent of the "
    "incoming gradients. Return a dictionary with the correlations `a` of $x_1, x_2$ and `b` of $dy_1, dy_2$, with "
    "$a > 0$, so that "
    "$\\mathrm{Var}(dw)$ is smaller than 2.",
    answer={"a": 0.5, "b": -0.5},
    needs=[
        ("A correlation lies between -1 and 1.", lambda a, b: -1 <= a <= 1 and -1 <= b <= 1),
        ("With a = 0 the pixels are not correlated, and the statement says nothing about them.", lambda a: a != 0),
        ("The statement is about pixels with a positive correlation: a > 0 is asked for.", lambda a: a > 0),
    ],
    properties=[
        ("The variance of your example is not below 2.", lambda a, b: 2 + 2 * a * b < 2),
    ],
    hints=(
        "Square dw and take the mean: two squares and twice a product.",
        "The mean of the mixed product x₁x₂dy₁dy₂ factors, because pixels and gradients are independent.",
        "The mixed term is twice the product of both correlations. Which sign do you need?",
    ),
    mistakes=[
        ("gradients independent", {"a": 0.5, "b": 0.0},
         "With b = 0 the mixed term vanishes and the variance is 2, whatever the pixels do.",
         but(lambda b: b == 0)),
        ("both positive", {"a": 0.5, "b": 0.5},
         "With both correlations above 0 the mixed term 2ab adds to the variance.",
         but(lambda b: b > 0)),
    ],
)


EXERCISES = lesson.exercises
