"""A right answer beside the reference: nothing where they are alike, facts where they differ in kind."""

import torch

from course_lib.teaching.beside import beside


def solved(matrix, vector):
    """Solve."""
    return torch.linalg.solve(matrix, vector)


def same_but_for_names(matrix, vector):
    # a comment
    return torch.linalg.solve(matrix, vector)


def inverted(matrix, vector):
    return torch.linalg.inv(matrix) @ vector


def weights(scores):
    return scores.softmax(dim=0)


def by_exp(scores):
    return scores.exp() / scores.exp().sum()


def by_the_library(scores):
    return torch.nn.functional.softmax(scores, dim=0)


def slope(x):
    return 2 * x


def by_autograd(x):
    leaf = x.clone().requires_grad_()
    return torch.autograd.grad(leaf.square().sum(), leaf)[0]


def total(x):
    return x.sum()


def added(x):
    result = 0
    for entry in x:
        result = result + entry
    return result


def test_nothing_is_said_where_the_two_are_written_alike():
    assert beside(solved, solved) == ""
    assert beside(same_but_for_names, solved) == ""


def test_functions_without_a_source_are_not_compared():
    assert beside(lambda matrix, vector: 0, solved) == ""
    assert beside(torch.linalg.solve, solved) == ""
    scope = {}
    exec("def typed(matrix, vector): return 0", scope)
    assert beside(scope["typed"], solved) == ""


def test_an_import_inside_the_answer_makes_no_other_answer():
    def solved_too(matrix, vector):
        from torch.linalg import solve  # noqa: F401

        return torch.linalg.solve(matrix, vector)

    assert beside(solved_too, solved) == ""


def test_the_reference_is_shown_with_what_is_different_in_kind():
    for own, reference, fact in (
        (
            inverted,
            solved,
            "Yours computes an inverse (`inv`); the reference solves a linear system (`solve`).",
        ),
        (by_exp, weights, "Yours calls `exp`, which overflows for float64 inputs above 709; `softmax`"),
        (by_autograd, slope, "Yours asks autograd (`grad`); the reference writes the derivative out."),
        (added, total, "Yours runs a Python loop; the reference has none."),
        (total, added, "Yours has no Python loop; the reference runs one."),
    ):
        said = beside(own, reference)
        assert said.startswith("\nThe reference writes it this way:\n\ndef ")
        assert fact in said.splitlines()[-1]


def test_another_way_of_the_same_kind_gets_no_remark():
    assert beside(by_the_library, weights).endswith("return scores.softmax(dim=0)")


def test_what_is_said_about_exp_is_so():
    large = torch.tensor([710.0, 0.0], dtype=torch.float64)
    assert by_exp(large).isnan().any()
    assert torch.isfinite(by_exp(large - 1)).all()
    assert torch.isfinite(weights(large)).all()
