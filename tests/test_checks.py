"""A call with a wrong tensor ends in an error that names it, before anything is computed or repeated in silence."""

from functools import partial

import pytest
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from course_lib.attention.random_features import gaussian_kernel
from course_lib.attention.ridge import cholesky_update, conjugate_gradient, sherman_morrison
from course_lib.checks import all_finite, checked
from course_lib.interpret.concepts import best_thresholds, f1_scores, logistic_probe, paired_auroc
from course_lib.representation.pca import reconstruction_loss
from course_lib.theory import hawkes


@checked
def table(
    scores: Float[Tensor, "rows pairs"], labels: Bool[Tensor, "rows pairs"] | None = None, *, scale: int = 1
) -> Float[Tensor, " pairs"]:
    return scale * (scores if labels is None else scores * labels).sum(0)


def test_what_fits_passes():
    scores = torch.ones(3, 2)
    assert table(scores).tolist() == [3, 3]
    assert table(scores, None, scale=2).tolist() == [6, 6]
    assert table(labels=scores > 0, scores=scores).tolist() == [3, 3]


@pytest.mark.parametrize(
    ("scores", "labels", "error", "words"),
    [
        ([[1.0]], None, TypeError, "scores must be a tensor, got list"),
        (None, None, TypeError, "scores must be a tensor, got NoneType"),
        (torch.ones(3, 2), torch.ones(3, 2), ValueError, "labels must hold booleans, got torch.float32"),
        (
            torch.ones(3, 2).long(),
            None,
            ValueError,
            "scores must hold floating-point numbers, got torch.int64",
        ),
        (torch.ones(3), None, ValueError, r"scores must have shape \(rows pairs\), got \(3,\)"),
        (
            torch.ones(3, 2),
            torch.ones(1, 2) > 0,
            ValueError,
            r"labels must have shape \(rows pairs\), with scores \(3, 2\), got \(1, 2\)",
        ),
    ],
)
def test_what_does_not_fit_is_named(scores, labels, error, words):
    with pytest.raises(error, match=words):
        table(scores, labels)


def test_a_wrong_call_is_pythons_to_refuse():
    with pytest.raises(TypeError, match="missing a required argument: 'scores'"):
        table()


def ones(*shape):
    return torch.ones(*shape)


# What each takes; then every dimension of every tensor becomes 1 in turn.
CALLS = {
    "f1_scores": (f1_scores, (ones(40, 3) > 0, ones(40, 3) > 0)),
    "best_thresholds": (best_thresholds, (ones(40, 3), ones(40, 3) > 0)),
    "paired_auroc": (paired_auroc, (ones(40, 3), ones(40, 3) > 0)),
    "logistic_probe": (logistic_probe, (ones(40, 4), ones(40, 3) > 0)),
    "stationary_rate": (hawkes.stationary_rate, (ones(4), ones(4, 4, 2) / 100)),
    "rates": (hawkes.rates, (ones(20, 4), ones(4), ones(4, 4, 2) / 100)),
    "gaussian_kernel": (gaussian_kernel, (ones(2, 5, 3), ones(2, 6, 3))),
    "reconstruction_loss": (reconstruction_loss, (ones(2, 4), ones(4, 2), ones(9, 4))),
    "cholesky_update": (cholesky_update, (torch.eye(4), ones(4))),
    "sherman_morrison": (sherman_morrison, (torch.eye(4), ones(4), ones(4))),
    "conjugate_gradient": (partial(conjugate_gradient, steps=2), (torch.eye(4), ones(4, 2))),
}
# Dimensions that no other argument has: one is as good as many.
FREE = {
    "reconstruction_loss": {(2, 0)},
    "logistic_probe": {(1, 1), (0, 1)},
    "rates": {(2, 2), (0, 0)},
    "stationary_rate": {(1, 2)},
    "gaussian_kernel": {(0, 1), (1, 1)},
    "conjugate_gradient": {(1, 1)},
}


@pytest.mark.parametrize("name", CALLS)
def test_no_side_of_one_is_repeated(name):
    call, arguments = CALLS[name]
    refused = 0
    for place, tensor in enumerate(arguments):
        for dim in range(tensor.ndim):
            if (place, dim) in FREE.get(name, ()):
                continue
            short = [*arguments[:place], tensor.narrow(dim, 0, 1), *arguments[place + 1 :]]
            with pytest.raises(ValueError, match="must have shape"):
                call(*short)
            refused += 1
    assert refused
    for place, tensor in enumerate(arguments):
        with pytest.raises(TypeError, match="must be a tensor, got list"):
            call(*arguments[:place], tensor.tolist(), *arguments[place + 1 :])


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_kernel_with_a_nan_is_refused_before_its_eigenvalues(bad):
    kernel = torch.ones(3, 3, 2)
    kernel[1, 2, 0] = bad
    with pytest.raises(ValueError, match="kernel has NaN or infinite values"):
        hawkes.spectral_radius(kernel)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_one_entry_that_is_not_finite_is_seen(dtype):
    values = torch.linspace(-1, 1, 77 * 13).view(77, 13).to(dtype)
    assert all_finite(values)
    assert all_finite(values[:0])
    for bad in (float("nan"), float("inf"), -float("inf")):
        for place in ((0, 0), (40, 7), (76, 12)):
            one = values.clone()
            one[place] = bad
            assert not all_finite(one)
