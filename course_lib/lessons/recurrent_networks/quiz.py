"""The sentences of lesson 14, each with what decides on it."""

import itertools

import torch
from torch import nn

from course_lib.architectures.recurrent import power_norms
from course_lib.lessons.recurrent_networks.contents import lesson
from course_lib.lessons.recurrent_networks.experiment import FAR, UNITS, Recall, recall_batches
from course_lib.lessons.recurrent_networks.pictures import input_gradients
from course_lib.teaching import fact


@lesson.sentence(
    "14.Q1",
    "The gradient of W is the sum of ∂L/∂h_t · ∂h_t/∂W over all steps.",
    answer="only if ∂h_t/∂W leaves h_(t-1) as it is",
    conditions=("only if ∂h_t/∂W leaves h_(t-1) as it is", "only if the network is linear"),
)
def immediate_derivatives():
    """With full derivatives a path through several steps is counted once for each of them. tanh changes nothing in that."""
    w = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
    states = [torch.ones((), dtype=torch.float64)]
    for _ in range(3):
        states.append(torch.tanh(w * states[-1]))
    grad = lambda of, to: torch.autograd.grad(of, to, retain_graph=True)[0]  # noqa: E731
    right, total = grad(states[3], w), [grad(states[3], h) for h in states[1:]]
    full = [grad(h, w) for h in states[1:]]
    immediate = [((1 - h**2) * before).detach() for before, h in itertools.pairwise(states)]
    ratio = lambda parts: float(sum(t * p for t, p in zip(total, parts, strict=True)) / right)  # noqa: E731
    return "\n".join(
        [
            fact("three tanh steps, immediate derivatives: {} of autograd's", ratio(immediate), equals=1, within=1e-9),
            fact("full derivatives: {:.2f} of it", ratio(full), at_least=1.05),
        ]
    )


@lesson.sentence(
    "14.Q2",
    "A linear network whose recurrent matrix has an eigenvalue larger than 1 makes gradients explode.",
    answer="only if the gradient, in eigenvectors of Wᵀ, contains that one",
    conditions=("only if the gradient, in eigenvectors of Wᵀ, contains that one", "only if the matrix is symmetric"),
)
def a_part_in_that_direction():
    """Each eigenvector goes its own way. A gradient along another one has no part that the large eigenvalue could
    enlarge."""
    W = torch.tensor([[2.0, 0.0], [0.0, 0.5]], dtype=torch.float64)
    power = torch.linalg.matrix_power(W.T, 20)
    along, mixed = (torch.tensor(v, dtype=torch.float64) for v in ((0.0, 1.0), (0.001, 1.0)))
    return "\n".join(
        [
            fact("eigenvalues 2 and 0.5, along the second, 20 steps back: length {}", (power @ along).norm(),
                 at_most=1e-5),
            fact("with a part of 0.001 along the first: {}", (power @ mixed).norm(), at_least=100),
        ]
    )  # fmt: skip


@lesson.sentence(
    "14.Q3",
    "In a linear network, whatever gradient of length 1 the last state has, many steps back it is very short.",
    answer="only if the spectral radius is below 1",
    conditions=("only if the spectral radius is below 1", "only if the largest singular value is below 1"),
)
def radius_below_one():
    """An orthogonal matrix has the radius 1, and nothing is lost. A singular value of 10 does not hinder the decay."""
    g = torch.Generator().manual_seed(11)
    turn = torch.linalg.qr(torch.randn(8, 8, generator=g, dtype=torch.float64)).Q
    hump = torch.tensor([[0.5, 10.0], [0.0, 0.5]], dtype=torch.float64)
    return "\n".join(
        [
            fact("orthogonal, 1,000 steps: largest length {}", power_norms(turn, 1000)[-1], equals=1, within=1e-9),
            fact("singular value 10, radius 0.5, 60 steps: {}", power_norms(hump, 60)[-1], at_most=1e-12),
        ]
    )


def _forget_gates(net: Recall) -> torch.Tensor:
    """The forget gate of each unit of an LSTM, mean over the steps and sequences of the task."""
    x = recall_batches(FAR, [torch.Generator().manual_seed(0)])[0].to(net.w_h.dtype)
    with torch.no_grad():
        states = net.states(x)
        before = torch.cat([torch.zeros_like(states[:1]), states[:-1]])
        sums = x @ net.w_x.mT + net.b_x[:, None] + before @ net.w_h.mT + net.b_h[:, None]
    return torch.sigmoid(sums.chunk(4, dim=-1)[1]).mean((0, 1, 2))


@lesson.sentence(
    "14.Q4",
    "An LSTM does not lose gradients over 40 steps.",
    answer="not necessarily: it depends on the start",
    conditions=(
        "not necessarily: it depends on the start",
        "only if its forget gates are near 1",
        "only if it has enough units",
    ),
)
def the_start_decides():
    """As PyTorch draws it, it does lose them: the forget gates start near 1/2, and 40 of those multiply to about 1e-12.
    Opening them is one cure, but not the only one: the new value has a way back of its own."""
    ratio = lambda net: float(input_gradients(net.double())[FAR] / input_gradients(net.double())[0])  # noqa: E731
    strong = [Recall("LSTM", [seed]) for seed in range(5)]
    for net in strong:
        net.w_h.data[:, 2 * UNITS : 3 * UNITS] *= 6  # the block of the new value
    reaches = [ratio(net) for net in strong]
    best = max(range(5), key=lambda place: reaches[place])
    wide = nn.LSTM(UNITS, 512, dtype=torch.float64)
    gate = torch.sigmoid(wide.bias_ih_l0[512:1024] + wide.bias_hh_l0[512:1024]).detach()
    return "\n".join(
        [
            fact("as drawn: at distance 40 the gradient is {} of that at 0", ratio(Recall("LSTM")), at_most=1e-7),
            fact("forget bias 4: {:.1f}", ratio(Recall("LSTM, forget bias 4")), at_least=0.1),
            fact(
                "gates as drawn, W_h of the new value times 6, best of five draws: {:.1f}", reaches[best], at_least=0.1
            ),
            fact(
                "there, the largest mean forget gate of a unit: {:.2f}", _forget_gates(strong[best]).max(), at_most=0.7
            ),
            fact("512 units at rest: largest forget gate {:.2f}", gate.max(), at_most=0.55),
        ]
    )


@lesson.sentence("14.Q5", "Clipping gradients to length 1 also helps where they vanish on the way back.", answer=False)
def clipping():
    """Clipping multiplies all shares by one number: what came from far away stays as small beside the rest as it was. It
    helps against steps that are too long."""
    net = Recall("tanh").double()
    x, symbols = recall_batches(FAR, [torch.Generator().manual_seed(0)])
    copies = [net.w_h.detach().clone().requires_grad_() for _ in x]
    h = x.new_zeros(*x.shape[1:3], UNITS).double()
    for x_t, copy in zip(x.double(), copies, strict=True):
        h = torch.tanh(x_t @ net.w_x.mT + net.b_x[:, None] + net.b_h[:, None] + h @ copy.mT)
    scores = (h @ net.w_out.mT + net.b_out[:, None]).flatten(0, 1)
    shares = torch.autograd.grad(100 * nn.functional.cross_entropy(scores, symbols.flatten()), copies)
    whole = sum(shares)
    clipped = [share / max(1.0, float(whole.norm())) for share in shares]
    part = lambda given: float(given[1].norm() / sum(given).norm())  # noqa: E731
    return "\n".join(
        [
            fact("100 times the loss: the gradient of W has the length {:.1f}", whole.norm(), at_least=1),
            fact("share of the copy 39 steps back: {}", part(shares), at_most=1e-7),
            fact("its share after clipping, over the one before: {}", part(clipped) / part(shares), equals=1,
                 within=1e-9),
        ]
    )  # fmt: skip


@lesson.sentence(
    "14.Q6",
    "Multiply the recurrent matrix of a linear network by 1.4: 40 steps back, the gradient that comes from a given one at "
    "the last state is about 700,000 times as long.",
    answer=True,
)
def forty_factors():
    """The matrix acts 40 times, and so does the factor."""
    g = torch.Generator().manual_seed(11)
    W = torch.randn(8, 8, generator=g, dtype=torch.float64) / 8**0.5
    start = torch.randn(8, generator=g, dtype=torch.float64)
    far = lambda matrix: (torch.linalg.matrix_power(matrix.T, 40) @ start).norm()  # noqa: E731
    return fact("measured: {} times", far(1.4 * W) / far(W), equals=700_038, within=1)
