"""The quiz of lesson 07, maximal_update_parametrization."""

import torch

from course_lib.lessons.maximal_update_parametrization.contents import lesson
from course_lib.optimization.mup import sign_change_mean_square
from course_lib.optimization.steepest_descent import orthogonal_factor, primal_norm
from course_lib.teaching import fact


def _normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@lesson.sentence(
    "07.Q1", "The d ≥ 2 entries of x are independent, with mean 0 and mean square 1. "
    "Then the mean of (|x₁| + … + |x_d|)² is d².",
    answer="only if every entry is 1 or -1",
    conditions=("only if every entry is 1 or -1", "only if the entries are normal", "only if d is large"),
)  # fmt: skip
def mean_of_a_square():
    """The mean of the square is the square of the mean plus the variance. By its mean square, E|x_i| is at most 1,
    and it is 1 only if |x_i| is always 1: d² is the maximum. For many normal entries the mean is lower by about a third."""
    squares = _normal(20_000, 64).abs().sum(1).square()
    signs = _normal(1000, 64).sign().abs().sum(1).square()
    return "\n".join(
        (
            fact("d = 64, normal entries: the mean is {:,.0f}", squares.mean(), equals=2631, within=20),
            fact("d = 64, entries 1 and -1: it is {:,.0f}", signs.mean(), equals=4096, within=0),
            fact("normal entries, d = 4,096: the mean over d² is {:.2f}",
                 sign_change_mean_square(4096, step_size=1) / 4096**2, equals=0.64, within=0.005),
        )
    )  # fmt: skip


@lesson.sentence(
    "07.Q2",
    "In a sign step for one sample, the changes that the moves of the weights make to one output add up "
    "like independent terms of random sign.",
    answer=False,
)
def same_sign():
    """For one output, every move has the sign of its own input, up to one sign that all of them share. Times that input,
    all have the same sign, (07.2)."""
    x, g = _normal(64), -0.7
    terms = torch.sign(g * x) * x
    random = (_normal(2000, 64, seed=1).sign() * x).sum(1).square().mean().sqrt()
    return "\n".join(
        (
            fact("of 64 terms, {} have the sign of g", int((terms * g > 0).sum()), equals=64, within=0),
            fact("their sum is {:.1f} times that of terms with random signs", terms.sum().abs() / random, at_least=5),
        )
    )


@lesson.sentence(
    "07.Q3",
    "Inputs, their change, weights and step of a layer all have size 1 (weights and step in the RMS-to-RMS norm). Then the "
    "change of the output has a size of at least 1.",
    answer=False,
)
def parts_cancel():
    """The change of Wh is W Δh + ΔW h + ΔW Δh. The first two have a size of at most 1, none has a smallest size, and they
    can cancel. In two dimensions, let W keep the first entry only, ΔW be -W, and h and Δh have nothing there."""
    W = torch.diag(torch.tensor([1.0, 0.0], dtype=torch.float64))
    h = torch.tensor([0.0, 2**0.5], dtype=torch.float64)
    dW, dh = -W, -h
    sizes = [primal_norm(matrix, norm="rms_to_rms") for matrix in (W, dW)]
    sizes += [vector.square().mean().sqrt() for vector in (h, dh)]
    change = (W + dW) @ (h + dh) - W @ h
    return "\n".join(
        (
            fact("sizes of weights, step, inputs and their change: {}", sizes, equals=1, within=1e-12),
            fact("size of the change of the output: {}", change.square().mean().sqrt(), equals=0, within=1e-12),
        )
    )


@lesson.sentence(
    "07.Q4",
    "Weights with entries of size 1 need the multiplier √d, with d the number of inputs, for the output to be as large as "
    "the input.",
    answer=False,
)
def multiplier():
    """A sum of d terms of random sign has size √d already. Multiplied by √d once more, the mean square of the outputs is
    d² times that of the inputs. Divide by √d."""
    x = _normal(256)
    x, W = x / x.square().mean().sqrt(), _normal(20_000, 256, seed=1)
    return "\n".join(
        fact(f"d = 256, {name}: the mean square of the outputs is {{:{spec}}}", (c * W @ x).square().mean(), equals=value,
             within=0.05 * value)
        for name, c, value, spec in (("times 16", 16.0, 65_536, ",.0f"), ("over 16", 1 / 16, 1, ".2f"))
    )  # fmt: skip


@lesson.sentence(
    "07.Q5",
    "By the rule (07.6), Muon's step size for a weight matrix falls as the network gets wider.",
    answer="only if its inputs grow faster than its outputs",
    conditions=("only if its inputs grow faster than its outputs", "only if the matrix is square"),
)
def muon():
    """An orthogonalised step has spectral norm 1 at every width, (07.5). Its RMS-to-RMS norm is √(inputs/outputs), (07.4),
    so only the ratio of the two widths counts."""
    shapes = {"64 × 64": (64, 64), "512 × 512": (512, 512), "64 × 512": (64, 512)}
    norms = [float(primal_norm(orthogonal_factor(_normal(*shape)), norm="rms_to_rms")) for shape in shapes.values()]
    return "\n".join(
        fact(f"{name}: its RMS-to-RMS norm is {{:.1f}}", norm, equals=wanted, within=1e-6)
        for name, norm, wanted in zip(shapes, norms, (1, 1, 8**0.5), strict=True)
    )


@lesson.sentence(
    "07.Q6",
    "Adam takes the same steps when every gradient is multiplied by one and the same positive number.",
    answer="only if ε is far below the gradients, before and after",
    conditions=("only if ε is far below the gradients, before and after", "only if the number is above 1"),
)  # fmt: skip
def epsilon():
    """Numerator and denominator of its step both get the factor, all but ε. With gradients near ε it takes other steps."""

    def path(scale: float) -> torch.Tensor:
        weights = torch.zeros(6, dtype=torch.float64, requires_grad=True)
        optimizer = torch.optim.Adam([weights], lr=0.1, eps=1e-8)
        for step in range(5):
            weights.grad = scale * _normal(6, seed=step)
            optimizer.step()
        return weights.detach()

    plain = path(1.0)
    gap = lambda scale: (path(scale) - plain).norm() / plain.norm()  # noqa: E731
    return "\n".join(
        (
            fact("times 1/1,000: after five steps the weights differ by {:.0e}", gap(1e-3), at_most=1e-3),
            fact("times 1e-9: they differ by {:.0%}", gap(1e-9), at_least=0.2),
        )
    )
