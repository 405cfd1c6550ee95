"""Sentences of lesson 23, PCA and autoencoders, each with what decides on it."""

import numpy as np
import torch
from torch import nn

from course_lib.lessons.pca_and_autoencoders.contents import lesson
from course_lib.lessons.pca_and_autoencoders.digits import ridge
from course_lib.lessons.pca_and_autoencoders.stairs import VALUES, normal, train
from course_lib.representation.pca import critical_point, linear_gradients, linear_loss, pca, shrinkage
from course_lib.teaching import fact


@lesson.sentence(
    "23.Q1",
    "If the loss has changed by less than 1% in the last 50 steps, training has come to its end.",
    answer=False,
)
def standing():
    """Near a saddle it changes as little, and a later fall is to come."""
    losses = train(scale=1e-6).losses
    return "\n".join(
        [
            fact("start 1e-6, steps 210 to 260: the loss falls by {:.2%}", 1 - losses[260] / losses[210], at_most=0.01),
            fact("steps 300 to 360: by {:.0%}", 1 - losses[360] / losses[300], at_least=0.5),
        ]
    )


@lesson.sentence(
    "23.Q2",
    "Where both gradients (23.2) are zero, the units span the k axes of the largest variances.",
    answer=False,
)
def resting():
    """By (23.3) any k axes do. Only these have the least loss."""
    moment = torch.diag(VALUES)
    weights = critical_point(moment, [2, 3], 2)
    gradient = max(float(g.abs().max()) for g in linear_gradients(*weights, moment))
    least = linear_loss(*critical_point(moment, [0, 1], 2), moment)
    return "\n".join(
        [
            fact("two units on axes 3 and 4: the largest gradient is {}", gradient, at_most=1e-12),
            fact("the loss is {:.1f}", linear_loss(*weights, moment), equals=6, within=1e-9),
            fact("the least loss of two units is {:.1f}", least, equals=1.3, within=1e-9),
        ]
    )


@lesson.sentence(
    "23.Q3",
    "The penalty of (23.7) makes the rows of the best encoder orthonormal, W₁W₁ᵀ = I, if k is less than d.",
    answer="only in the limit λ → 0",
    conditions=("only in the limit λ → 0", "only if λ is large"),
)
def orthonormal():
    """The squared singular values of W₁ are 1 - λ/s by (23.8), and orthonormal weights cost more. W₂W₂ᵀ is d by d of rank
    k, and never the identity."""
    moment, said = torch.diag(torch.tensor([4.0, 1.0], dtype=torch.float64)), []
    for penalty, least in ((1.0, 2.75), (0.01, 1.02 - 0.01**2 / 4)):
        best, rigid = critical_point(moment, [0], 1, penalty), critical_point(moment, [0], 1)
        losses = [float(linear_loss(*weights, moment, penalty)) for weights in (rigid, best)]
        said.append(
            fact(
                f"s = 4 and 1, one unit, λ = {penalty:g}: orthonormal minus best loss {{:.2g}}",
                losses[0] - losses[1],
                equals=1 + 2 * penalty - least,
                within=1e-9,
            )
        )
        said.append(
            fact("squared length of the one row: {:.4f}", best[0].square().sum(), equals=1 - penalty / 4, within=1e-9)
        )
    _, decoder = critical_point(moment, [0], 1)
    least = torch.linalg.eigvalsh(decoder @ decoder.T)[0]
    said.append(fact("without a penalty: the least eigenvalue of W₂W₂ᵀ is {}", least, equals=0, within=1e-12))
    return "\n".join(said)


@lesson.sentence(
    "23.Q4",
    "Of two codes with as many numbers, the one with the lower loss is the better input for a classifier.",
    answer=False,
)
def lower_loss():
    """The loss counts variance, whatever it means. Here one input is 10 times a normal number, the other the label."""
    label = torch.tensor([-1.0, 1.0], dtype=torch.float64).repeat(1000)
    x = torch.stack([10 * normal(2000, seed=18), label], dim=1)
    found = pca(x, 1)
    low = found.project(x)
    loss = float((x - found.reconstruct(low)).square().sum(1).mean())
    middle = low[:, 0].median()
    right = [float(((one > at) == (label > 0)).double().mean()) for one, at in ((low[:, 0], middle), (x[:, 1], 0))]
    return "\n".join(
        [
            fact("code A, the best of one number: loss {:.2f}", loss, equals=1, within=0.01),
            fact(
                "its best guess of the label is right in {:.0%}", max(right[0], 1 - right[0]), equals=0.5, within=0.05
            ),
            fact("code B, the second input: loss {:.0f}", float(x[:, 0].square().mean()), equals=100, within=5),
            fact("right in {:.0%}", right[1], equals=1, within=0),
        ]
    )


def few_labels(seed: int, n_labels: int = 40) -> tuple[float, float, float]:
    """Return test errors of linear fits with few labels: the code, all inputs without and with a penalty.

    Inputs are 5 latent variables in 40 dimensions and noise; the target is the sum of the latent variables and noise. The
    code is PCA of 2,000 rows without labels. The penalties are chosen by leave-one-out on the labelled rows.
    """
    basis = torch.linalg.qr(normal(40, 40, seed=seed)).Q
    latent, noise = normal(4000 + n_labels, 5, seed=seed + 1), 0.3 * normal(4000 + n_labels, 40, seed=seed + 2)
    x = 2 * latent @ basis[:5] + noise
    y = (latent.sum(1) + 0.1 * normal(len(x), seed=seed + 3))[:, None]
    code = pca(x[:2000], 5).project(x)
    choices = tuple(10.0 ** (third / 3) for third in range(-9, 13))
    return tuple(
        float((ridge(table[4000:], y[4000:], penalties).output(table[2000:4000]) - y[2000:4000]).square().mean())
        for table, penalties in ((code, choices), (x, (0.0,)), (x, choices))
    )


@lesson.sentence(
    "23.Q5",
    "40 inputs, 40 labels, a target made of the five leading directions: a linear fit on a code of five errs less than half "
    "as much as one on all inputs.",
    answer="only if the fit on all inputs has no penalty",
    conditions=("only if the fit on all inputs has no penalty", "only if the code has no penalty"),
)
def few():
    """Without a penalty there are as many weights as labels: the worst case, and with 20 or 200 labels the gap is far
    smaller. A penalty chosen by leave-one-out mends it. Medians of 11 draws of such data."""
    code, free, penalised = np.median([few_labels(10 * draw) for draw in range(11)], axis=0)
    others = [np.median([few_labels(10 * draw, n) for draw in range(11)], axis=0) for n in (20, 200)]
    elsewhere = [found[1] / found[0] for found in others]
    return "\n".join(
        [
            fact("40 labels: squared error without a penalty over that of the code: {:.0f}", free / code, at_least=20),
            *(
                fact(f"with {n} labels: {{:.1f}}", ratio, at_most=4)
                for n, ratio in zip((20, 200), elsewhere, strict=True)
            ),
            fact("40 labels, with a penalty: {:.2f}", penalised / code, equals=1.05, within=0.1),
        ]
    )


@lesson.sentence(
    "23.Q6",
    "With `mse_loss` and `weight_decay=0.5`, SGD trains an autoencoder of four inputs to (23.8) with λ = 1.",
    answer=True,
)
def decay():
    """`weight_decay` w adds w times the weight to the gradient, which is λ = w/2. And `mse_loss` divides by the number of
    entries, four times that of rows: relative to it the penalty is four times as strong."""
    x = normal(400, 4, seed=9)
    x = (x - x.mean(0)) @ torch.linalg.inv(torch.linalg.cholesky(torch.cov(x.T, correction=0))).T
    x = x @ torch.diag(VALUES.sqrt())  # the variances are 4, 2, 1 and 0.3
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        net = nn.Sequential(nn.Linear(4, 3, bias=False), nn.Linear(3, 4, bias=False)).double()
    sgd = torch.optim.SGD(net.parameters(), lr=0.3, weight_decay=0.5)
    for _ in range(400):
        sgd.zero_grad()
        nn.functional.mse_loss(net(x), x).backward()
        sgd.step()
    shares = torch.linalg.svdvals((net[1].weight @ net[0].weight).detach())[:2]
    return "\n".join(
        [
            fact("shares of axes 1 and 2: {:.3f}", shares, equals=shrinkage(VALUES, 1.0)[:2], within=0.01),
            fact("λ = 0.25 would leave {:.3f} of axis 2", float(shrinkage(VALUES, 0.25)[1]), equals=0.875, within=1e-9),
        ]
    )
