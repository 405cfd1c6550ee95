"""Sentences of lesson 24, linear purification, each with what decides on it."""

import torch

from course_lib.lessons.linear_purification.contents import lesson
from course_lib.lessons.linear_purification.digits import FITTED, PENALTY, digits, probe_accuracy
from course_lib.lessons.linear_purification.erased import exact, moments_of, pairs, states
from course_lib.lessons.linear_purification.pictures import (
    normal,
    plane,
    plane_ways,
    readers,
    shrunk_rows,
    trained_readers,
)
from course_lib.representation.erasure import fit_eraser, probe_r2
from course_lib.representation.purification import Purifier, purification_gradient, purification_loss, purifying_matrix
from course_lib.teaching import fact


@lesson.sentence(
    "24.Q1",
    "The rows (-2.17, 0.02), (1.98, -0.01), (2.41, 0.01), (-2.03, -0.02) have next to nothing in their second column. "
    "So for "
    "λ = 0.01 the matrix that keeps the first column and drops the second minimises (24.1).",
    answer=False,
)
def candidates():
    """It beats the identity, but (24.2) keeps a tenth of the narrow direction, and that is better than dropping it."""
    x = torch.tensor([[-2.17, 0.02], [1.98, -0.01], [2.41, 0.01], [-2.03, -0.02]], dtype=torch.float64)
    drop = torch.diag(torch.tensor([1.0, 0.0], dtype=torch.float64))
    return "\n".join(
        [
            fact(
                "dropping the second column: loss {:.5f}", purification_loss(drop, x, 0.01), equals=0.011, within=1e-9
            ),
            fact(
                "the identity: {:.5f}",
                purification_loss(torch.eye(2, dtype=torch.float64), x, 0.01),
                equals=0.02,
                within=1e-9,
            ),
            fact("(24.2): {:.5f}", Purifier.fit(x).least_loss(0.01), equals=0.0109036, within=1e-7),
        ]
    )


@lesson.sentence(
    "24.Q2", "The formula (24.2) for W needs singular values that differ from each other and from 0.", answer=False
)
def distinct():
    """Only λ > 0 is needed: then XᵀX + λI has an inverse, whatever the singular values are."""
    x = torch.diag(torch.tensor([2.0, 2.0, 0.0], dtype=torch.float64))
    w = purifying_matrix(x, 4.0)
    return fact(
        "singular values 2, 2, 0 and λ = 4: the gradient of (24.1) at (24.2) is at most {:.0e}",
        purification_gradient(w, x, 4.0).abs().max(),
        at_most=1e-12,
    )


@lesson.sentence(
    "24.Q3",
    "Once the direction of a least-squares probe is projected out at right angles, no linear probe finds the two classes.",
    answer="only if Σxz is an eigenvector of Σxx",
    conditions=("only if Σxz is an eigenvector of Σxx", "only if the features are uncorrelated"),
)
def eigenvector():
    """Then w is parallel to Σxz, (24.5). Correlated features may pass, as [[2, 1], [1, 2]] with (1, 1) does, and
    uncorrelated ones of unequal variance may fail, as diag(1, 4) with (1, 1) does."""

    def left(sigma: list[list[float]]) -> torch.Tensor:
        s = torch.ones(2, dtype=torch.float64)
        w = torch.linalg.solve(torch.tensor(sigma, dtype=torch.float64), s)
        return (s - w * (w @ s) / (w @ w)).norm() / s.norm()

    return "\n".join(
        [
            fact(
                "[[2, 1], [1, 2]]: share of (1, 1) left {:.2f}", left([[2.0, 1.0], [1.0, 2.0]]), equals=0, within=1e-12
            ),
            fact("diag(1, 4): {:.2f}", left([[1.0, 0.0], [0.0, 4.0]]), equals=0.5145, within=1e-4),
            fact(
                "the plane of the picture: R² left {:.2f}",
                probe_r2(plane_ways()["latest probe"], plane()[1])[0],
                at_least=0.05,
            ),
        ]
    )


@lesson.sentence(
    "24.Q4",
    "Shrink every direction of the images, the narrow ones to less than a millionth, and a linear probe loses odd and even.",
    answer="only if the probe is penalised",
    conditions=("only if the probe is penalised", "only if λ is above the largest σ²"),
)
def shrinking():
    """A least-squares probe multiplies by larger weights what was made small. A penalty on its weights stops that."""
    data, (rows, factors) = digits(), shrunk_rows(1e7)
    lost = [probe_accuracy(data.x, data.odd, ridge=r) - probe_accuracy(rows, data.odd, ridge=r) for r in (0.0, PENALTY)]
    return "\n".join(
        [
            fact("λ = 10,000,000: the least factor is {:.0e}", factors.min(), at_most=1e-6),
            fact("least squares: share of new images lost {:.3f}", lost[0], equals=0, within=0.005),
            fact("with a penalty of 10: {:.2f}", lost[1], at_least=0.2),
        ]
    )


@lesson.sentence(
    "24.Q5", "A concept that six rows of 5,000 have is too rare to be read, and so too rare to be erased.", answer=False
)
def rare():
    """Correlations shrink with the root of a class's share only; a program that works with them keeps it (appendix)."""
    concept = torch.zeros(5000, 1, dtype=torch.float64)
    concept[:6] = 1
    x = normal(5000, 32, seed=19) + concept @ normal(1, 32, seed=2)
    return "\n".join(
        [
            fact("32 features: R² before {:.3f}", probe_r2(x, concept)[0], at_least=0.01),
            fact("after LEACE: {:.0e}", probe_r2(fit_eraser(x, concept).erase(x), concept)[0], at_most=1e-12),
        ]
    )


@lesson.sentence(
    "24.Q6",
    "LEACE blinds least squares; logistic regression, with another loss, may still find the class in the rows it was "
    "fitted to.",
    answer=False,
)
def every_loss():
    """Equal class means suffice. For a convex loss ℓ the mean of ℓ(w·x + b, z) over a class is at least ℓ at the class
    mean (Jensen), where the score is the same for both classes: a constant does as well as any w."""
    data = digits()
    x, odd = data.x[:FITTED], data.odd[:FITTED]
    erased = fit_eraser(x, odd).erase(x)
    share = float(odd.double().mean())
    said = trained_readers()["logistic regression"](erased, odd)(erased)
    return "\n".join(
        [
            fact("before: right for {:.0%} of new images", readers()["logistic regression"][0], at_least=0.85),
            fact("erased, rows it was fitted to: right beyond the commoner class {:.3f}",
                 float((said == odd).double().mean()) - max(share, 1 - share), equals=0, within=0.005),
        ]
    )  # fmt: skip


@lesson.sentence(
    "24.Q7",
    "A linear probe reads nothing of a concept in a model's states. So the model does not use it there.",
    answer=False,
)
def used():
    """The translations come out in the language that is asked for, at states whose language no linear probe reads."""
    found, asked = states("decoder.final"), pairs(100)
    eraser = moments_of(found, "language").eraser()
    share = exact(asked, eraser, "decoder.final")
    return "\n".join(
        [
            fact("end of the decoder, language erased: R² {:.0e}",
                 probe_r2(eraser.erase(found.values), found.language).max(), at_most=1e-9),
            fact("translations into the language asked for: {:.0%} exact", share, at_least=0.93),
        ]
    )  # fmt: skip
