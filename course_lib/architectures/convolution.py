"""Convolution: K^2 shifted matrix products, whose gradients are convolutions again (lesson 10).

What a convolutional layer computes is a cross-correlation: the kernel slides over the image without being turned
round. Three forms that agree stand here: `correlate` is the equation for one channel, `conv2d_by_shifts` is the layer
in seven lines with autograd's gradients, and `conv2d` is the same sum without copies of the image, its gradients
by hand. For one large kernel a channel, `depthwise_conv2d` goes through the Fourier transform.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import pad


def _check_whole(least: int, **numbers: int) -> None:
    for name, value in numbers.items():
        if not isinstance(value, int) or value < least:
            raise ValueError(f"{name} must be a whole number of at least {least}, got {value!r}")


# Sizes


def output_size(size: int, *, kernel: int, stride: int = 1, padding: int = 0, dilation: int = 1) -> int:
    """floor((W + 2P - D(K - 1) - 1) / S) + 1 places for a kernel along one axis (10.9).

    Units: pixels; `size` is W, `kernel` K, `stride` S, `padding` P on each side, `dilation` D.

    Raises:
        ValueError: a size, stride or dilation is below 1, the padding is below 0, or the kernel does not fit.
    """
    _check_whole(1, size=size, kernel=kernel, stride=stride, dilation=dilation)
    _check_whole(0, padding=padding)
    reach = dilation * (kernel - 1) + 1
    if reach > size + 2 * padding:
        raise ValueError(
            f"the kernel reaches over {reach} pixels, and the padded input has {size + 2 * padding}: "
            f"size {size}, kernel {kernel}, padding {padding}, dilation {dilation}"
        )
    return (size + 2 * padding - reach) // stride + 1


def receptive_field(
    kernels: Sequence[int], strides: Sequence[int] | None = None, dilations: Sequence[int] | None = None
) -> int:
    """1 + sum_l D_l (K_l - 1) S_1 ... S_(l-1): input pixels along one axis that one output depends on (10.8).

    Shapes: one entry a layer, the first layer first; strides and dilations are 1 where they are left out.

    Raises:
        ValueError: the lists differ in length, or an entry is below 1.
    """
    strides = [1] * len(kernels) if strides is None else strides
    dilations = [1] * len(kernels) if dilations is None else dilations
    if not len(kernels) == len(strides) == len(dilations):
        raise ValueError(
            f"kernels, strides and dilations need one entry a layer, got {len(kernels)}, {len(strides)} "
            f"and {len(dilations)}"
        )
    field, jump = 1, 1
    for kernel, stride, dilation in zip(kernels, strides, dilations, strict=True):
        _check_whole(1, kernel=kernel, stride=stride, dilation=dilation)
        field += dilation * (kernel - 1) * jump
        jump *= stride
    return field


# One channel, to be read


def correlate(
    x: Float[Tensor, "rows cols"], w: Float[Tensor, "k_rows k_cols"]
) -> Float[Tensor, "out_rows out_cols"]:
    """y_ij = sum_hl x_(i+h, j+l) w_hl (10.1), written X * w: one shifted image for each weight.

    Raises:
        ValueError: the kernel is larger than the image.
    """
    rows = output_size(x.shape[0], kernel=w.shape[0])
    cols = output_size(x.shape[1], kernel=w.shape[1])
    y = x.new_zeros(rows, cols)
    for h in range(w.shape[0]):
        for l in range(w.shape[1]):  # noqa: E741
            y = y + w[h, l] * x[h : h + rows, l : l + cols]
    return y


def weight_gradient(
    x: Float[Tensor, "rows cols"], dy: Float[Tensor, "out_rows out_cols"]
) -> Float[Tensor, "k_rows k_cols"]:
    """dW = X * dY (10.3): the incoming gradient is the kernel that slides over the image.

    Raises:
        ValueError: dy is larger than the image.
    """
    return correlate(x, dy)


def input_gradient(
    dy: Float[Tensor, "out_rows out_cols"], w: Float[Tensor, "k_rows k_cols"]
) -> Float[Tensor, "rows cols"]:
    """dX = pad(dY) * (w turned by 180 degrees), with K - 1 zeros on every side (10.4)."""
    k_rows, k_cols = w.shape
    return correlate(pad(dy, (k_cols - 1, k_cols - 1, k_rows - 1, k_rows - 1)), w.flip(0, 1))


# The layer


def _check_layer(x: Tensor, weight: Tensor, bias: Tensor | None, *, depthwise: bool = False) -> None:
    if x.ndim != 4 or weight.ndim != 4:
        raise ValueError(
            f"x must have shape (batch, channels, rows, cols) and weight (filters, channels, k_rows, k_cols), "
            f"got {tuple(x.shape)} and {tuple(weight.shape)}"
        )
    wanted = (x.shape[1], 1) if depthwise else (weight.shape[0], x.shape[1])
    if tuple(weight.shape[:2]) != wanted:
        raise ValueError(
            f"weight must have shape ({wanted[0]}, {wanted[1]}, k_rows, k_cols) for an input of {x.shape[1]} channels, "
            f"got {tuple(weight.shape)}"
        )
    if bias is not None and tuple(bias.shape) != (weight.shape[0],):
        raise ValueError(
            f"bias must have one entry for each of {weight.shape[0]} filters, got {tuple(bias.shape)}"
        )
    for name, tensor in (("weight", weight), ("bias", bias)):
        if tensor is not None and (tensor.dtype, tensor.device) != (x.dtype, x.device):
            raise ValueError(
                f"{name} must share dtype and device with x, {x.dtype} on {x.device}, "
                f"got {tensor.dtype} on {tensor.device}"
            )


def conv2d_by_shifts(
    x: Float[Tensor, "batch channels rows cols"],
    weight: Float[Tensor, "filters _ k_rows k_cols"],
    bias: Float[Tensor, "_"] | None = None,
    *,
    stride: int = 1,
    padding: int = 0,
    dilation: int = 1,
) -> Float[Tensor, "batch filters out_rows out_cols"]:
    """Y = sum_hl W_hl X_hl + b (10.10), to be read: `conv2d` gives the same and is faster.

    W_hl is the filters x channels matrix of one place in the kernel; X_hl is the padded image from row D h and column
    D l on, every S-th pixel of it.
    Shapes: `weight` is filters x channels x k_rows x k_cols, with the channels of x; `bias` has one entry a filter.

    Raises:
        ValueError: shapes, dtypes or devices do not belong together, or the kernel does not fit.
    """
    _check_layer(x, weight, bias)
    options = {"stride": stride, "padding": padding, "dilation": dilation}
    rows, cols = (output_size(x.shape[i], kernel=weight.shape[i], **options) for i in (2, 3))
    x, y = pad(x, [padding] * 4), 0 if bias is None else bias[:, None, None]
    for h in range(weight.shape[2]):
        for l in range(weight.shape[3]):  # noqa: E741
            top, left = dilation * h, dilation * l
            shifted = x[:, :, top : top + stride * rows : stride, left : left + stride * cols : stride]
            y = y + torch.einsum("fc,bcij->bfij", weight[:, :, h, l], shifted)
    return y


def conv2d(
    x: Float[Tensor, "batch channels rows cols"],
    weight: Float[Tensor, "filters _ k_rows k_cols"],
    bias: Float[Tensor, "_"] | None = None,
    *,
    stride: int = 1,
    padding: int = 0,
    dilation: int = 1,
) -> Float[Tensor, "batch filters out_rows out_cols"]:
    """Y = sum_hl W_hl X_hl + b (10.10), as torch.nn.functional.conv2d, in K^2 matrix products without copies.

    The padded image lies in memory as one row of pixels, and a shift by h rows and l columns is a shift along that row:
    a view, which a matrix product takes as it is. Outputs at the right edge, where the row wraps round, are computed
    and left out. A stride of S cuts the image into S x S coarser ones, on which the same holds. Gradients are by hand
    (10.3, 10.4); they cannot be differentiated again.
    Shapes: those of `conv2d_by_shifts`.

    Raises:
        ValueError: shapes, dtypes or devices do not belong together, or the kernel does not fit.
    """
    _check_layer(x, weight, bias)
    options = {"stride": stride, "padding": padding, "dilation": dilation}
    rows, cols = (output_size(x.shape[i], kernel=weight.shape[i], **options) for i in (2, 3))
    y = _ShiftedProducts.apply(x, weight, (rows, cols), stride, padding, dilation)
    return y if bias is None else y + bias[:, None, None]


class _Grid:
    """Where the pixels of a padded image lie: S x S phases, each one row of `length` pixels, `cols` to a line."""

    def __init__(
        self, x: Tensor, weight: Tensor, out: tuple[int, int], stride: int, padding: int, dilation: int
    ):
        self.stride, self.padding, self.size, self.out = stride, padding, x.shape[2:], out
        reach = [dilation * (k - 1) // stride for k in weight.shape[2:]]
        # One line more than needed: the last line of outputs reads beyond its end by the shift of columns.
        self.rows = max(-(-(self.size[0] + 2 * padding) // stride), out[0] + reach[0]) + 1
        self.cols = max(-(-(self.size[1] + 2 * padding) // stride), out[1] + reach[1])
        self.length, self.span = self.rows * self.cols, out[0] * self.cols
        self.taps = [
            [
                (h % stride, l % stride, h // stride * self.cols, l // stride)
                for l in range(0, dilation * weight.shape[3], dilation)  # noqa: E741
            ]
            for h in range(0, dilation * weight.shape[2], dilation)
        ]

    def split(self, x: Tensor) -> Tensor:
        """Return the phases, (S, S, batch, channels, length)."""
        s, p = self.stride, self.padding
        height, width = self.rows * s - self.size[0] - p, self.cols * s - self.size[1] - p
        parts = pad(x, (p, width, p, height)).view(*x.shape[:2], self.rows, s, self.cols, s)
        return parts.permute(3, 5, 0, 1, 2, 4).reshape(s, s, *x.shape[:2], self.length)

    def join(self, parts: Tensor) -> Tensor:
        """The inverse of `split`: put the phases together and cut off the padding."""
        s, p, (height, width) = self.stride, self.padding, self.size
        whole = parts.view(*parts.shape[:4], self.rows, self.cols).permute(2, 3, 4, 0, 5, 1)
        return whole.reshape(*parts.shape[2:4], self.rows * s, self.cols * s)[
            :, :, p : p + height, p : p + width
        ]

    def lines(self, y: Tensor) -> Tensor:
        """Write outputs as one row of pixels, with zeros where lines of the image go on."""
        return pad(y, (0, self.cols - self.out[1])).flatten(2)


class _ShiftedProducts(torch.autograd.Function):
    """The sum of shifted products without a bias, and its gradients by hand."""

    @staticmethod
    def forward(ctx, x, weight, out, stride, padding, dilation):
        grid = _Grid(x, weight, out, stride, padding, dilation)
        parts, y = grid.split(x), None
        ctx.save_for_backward(parts, weight)
        ctx.grid = grid
        for h, row in enumerate(grid.taps):
            for l, (a, b, top, left) in enumerate(row):  # noqa: E741
                shifted = parts[a, b, :, :, top + left : top + left + grid.span]
                tap = weight[:, :, h, l].contiguous().expand(len(x), -1, -1)
                y = torch.bmm(tap, shifted) if y is None else y.baddbmm_(tap, shifted)
        return y.view(*y.shape[:2], out[0], grid.cols)[..., : out[1]].contiguous()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dy):
        (parts, weight), grid, dx, dw = ctx.saved_tensors, ctx.grid, None, None
        dy = grid.lines(dy)
        if ctx.needs_input_grad[0]:
            # Each product of the forward pass, transposed: what it read from a pixel goes back to that pixel.
            dx = torch.zeros_like(parts)
            for h, row in enumerate(grid.taps):
                for l, (a, b, top, left) in enumerate(row):  # noqa: E741
                    tap = weight[:, :, h, l].mT.contiguous().expand(len(dy), -1, -1)
                    dx[a, b, :, :, top + left : top + left + grid.span].baddbmm_(tap, dy)
            dx = grid.join(dx)
        if ctx.needs_input_grad[1]:
            # With the gradient turned to pixels x filters, both factors lie in rows: the fastest product.
            turned, dw = dy.mT.contiguous(), torch.empty_like(weight)
            for h, row in enumerate(grid.taps):
                for l, (a, b, top, left) in enumerate(row):  # noqa: E741
                    shifted = parts[a, b, :, :, top + left : top + left + grid.span]
                    dw[:, :, h, l] = torch.bmm(shifted, turned).sum(0).mT
        return dx, dw, None, None, None, None


# One large kernel a channel, by the Fourier transform


def fft_size(size: int) -> int:
    """The next even number whose prime factors are 2, 3 and 5: transforms of such sizes are fast.

    Raises:
        ValueError: the size is below 1.
    """
    _check_whole(1, size=size)
    found = size + size % 2
    while True:
        rest = found
        for factor in (2, 3, 5):
            while rest % factor == 0:
                rest //= factor
        if rest == 1:
            return found
        found += 2


def depthwise_conv2d(
    x: Float[Tensor, "batch channels rows cols"],
    weight: Float[Tensor, "_ _ k_rows k_cols"],
    *,
    padding: int = 0,
) -> Float[Tensor, "batch channels out_rows out_cols"]:
    """F(Y) = F(X) conj(F(w)) for each channel (10.12): as torch's conv2d with groups = channels, at stride 1.

    The cost does not depend on the kernel's size, except through the padding: it pays for large kernels. In float32 the
    error is that of the transform, near 1e-6 of the largest output. Gradients are by hand, two more such products;
    they cannot be differentiated again.
    Shapes: `weight` is channels x 1 x k_rows x k_cols, as torch has it.

    Raises:
        ValueError: shapes, dtypes or devices do not belong together, or the kernel does not fit.
    """
    _check_layer(x, weight, None, depthwise=True)
    out = tuple(output_size(x.shape[i], kernel=weight.shape[i], padding=padding) for i in (2, 3))
    return _FourierProduct.apply(x, weight, out, padding)


class _FourierProduct(torch.autograd.Function):
    """Circular correlation on a torus that is large enough that nothing wraps round, and its gradients by hand."""

    @staticmethod
    def forward(ctx, x, weight, out, padding):
        size = [fft_size(n + 2 * padding) for n in x.shape[2:]]
        images = torch.fft.rfft2(pad(x, [padding] * 4), size)
        kernels = torch.fft.rfft2(weight[:, 0], size)
        ctx.save_for_backward(images, kernels)
        ctx.sizes = size, x.shape[2:], weight.shape[2:], padding
        return torch.fft.irfft2(images * kernels.conj(), size)[..., : out[0], : out[1]].contiguous()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dy):
        (images, kernels), (size, image, kernel, p), dx, dw = ctx.saved_tensors, ctx.sizes, None, None
        pulled = torch.fft.rfft2(dy, size)
        if ctx.needs_input_grad[0]:
            dx = torch.fft.irfft2(pulled * kernels, size)[..., p : p + image[0], p : p + image[1]]
        if ctx.needs_input_grad[1]:
            products = (images * pulled.conj()).sum(0)
            dw = torch.fft.irfft2(products, size)[:, None, : kernel[0], : kernel[1]]
        return dx, dw, None, None


# Pooling


def pool_gradient(
    x: Float[Tensor, "batch channels rows cols"],
    dy: Float[Tensor, "batch channels out_rows out_cols"],
    *,
    kernel: int,
    stride: int,
    kind: str,
) -> Float[Tensor, "batch channels rows cols"]:
    """Gradient of pooling with respect to its input (10.7): to the largest pixel of a window, or 1/K^2 to each.

    Where windows overlap, a pixel collects from all of them. Of equal largest pixels the first one gets it all, as in
    torch on a CPU.
    Ranges: `kind` is "max" or "average".

    Raises:
        ValueError: `kind` is another, dy has another shape than the pooled output, or the window does not fit.
    """
    if kind not in ("max", "average"):
        raise ValueError(f"kind must be 'max' or 'average', got {kind!r}")
    rows, cols = (output_size(n, kernel=kernel, stride=stride) for n in x.shape[2:])
    if tuple(dy.shape) != (*x.shape[:2], rows, cols):
        raise ValueError(f"dy must have shape {(*x.shape[:2], rows, cols)}, got {tuple(dy.shape)}")
    windows = x.unfold(2, kernel, stride).unfold(3, kernel, stride).flatten(4)
    share = torch.full_like(windows, 1 / kernel**2)
    if kind == "max":
        places = torch.arange(kernel**2, device=x.device)
        share = (windows.argmax(-1, keepdim=True) == places).to(x.dtype)
    dx = torch.zeros_like(x)
    for place in range(kernel**2):
        h, l = divmod(place, kernel)  # noqa: E741
        dx[:, :, h : h + stride * rows : stride, l : l + stride * cols : stride] += share[..., place] * dy
    return dx


# What the gradients are, for random images


def correlated_images(
    count: int, size: int, *, correlation: float | int, generator: torch.Generator
) -> Float[Tensor, "count size size"]:
    """Normal pixels of variance 1 whose correlation falls as rho^(distance along the rows + along the columns).

    Ranges: `correlation` is rho, from 0 (independent pixels) to 1 (constant images). float64.

    Raises:
        ValueError: the correlation lies outside [0, 1], or a size is below 1.
    """
    _check_whole(1, count=count, size=size)
    if not 0 <= correlation <= 1:
        raise ValueError(f"correlation must lie in [0, 1], got {correlation}")
    noise = torch.randn(count, size, size, generator=generator, dtype=torch.float64, device=generator.device)
    i = torch.arange(size, device=noise.device, dtype=noise.dtype)
    steps = i[:, None] - i  # each pixel is rho times the one before and fresh noise; the first has variance 1
    mix = torch.where(steps >= 0, torch.as_tensor(correlation, dtype=noise.dtype) ** steps.clamp(min=0), 0.0)
    mix[:, 1:] *= (1 - correlation**2) ** 0.5
    return mix @ noise @ mix.T


def weight_gradient_std(
    outputs: int, *, correlation: float | int = 0.0, std_x: float | int = 1.0, std_dy: float | int = 1.0
) -> float:
    """sigma_x sigma_y sum_(|a| < m) (m - |a|) rho^|a|: the standard deviation of one entry of dW (10.11).

    X and dY are independent of each other, with means 0 and correlations rho_x^(distance) and rho_y^(distance);
    `correlation` is the product rho = rho_x rho_y. It is m sigma_x sigma_y for rho = 0 and m^2 sigma_x sigma_y for rho = 1.
    Units: `outputs` is m, the number of outputs along one axis.

    Raises:
        ValueError: m is below 1, or rho lies outside [-1, 1].
    """
    _check_whole(1, outputs=outputs)
    if not -1 <= correlation <= 1:
        raise ValueError(f"correlation must lie in [-1, 1], got {correlation}")
    total = sum((outputs - abs(a)) * correlation ** abs(a) for a in range(1 - outputs, outputs))
    return float(std_x * std_dy * total)


def effective_width(kernels: Sequence[int]) -> float:
    """sqrt(sum_l (K_l^2 - 1) / 12): the standard deviation, in pixels, of the effective receptive field (10.6).

    It is that of the mean squared gradient of one output, along one axis, in a deep linear network with independent
    weights of mean 0, stride 1 and no dilation.

    Raises:
        ValueError: a kernel is below 1.

    Source: Luo et al. 2016, arXiv:1701.04128.
    """
    for kernel in kernels:
        _check_whole(1, kernel=kernel)
    return (sum(kernel**2 - 1 for kernel in kernels) / 12) ** 0.5
