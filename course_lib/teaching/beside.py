"""A right answer beside the reference: where the two are written differently, and what is different in kind."""

import ast
from collections.abc import Callable

from course_lib.teaching.sources import source_of

LOOPS = (ast.For, ast.While, ast.comprehension)
# What the answer calls, what the reference calls in its place, and what that means.
KINDS = (
    (
        {"inv", "inverse", "pinv", "matrix_inverse"},
        {"solve", "solve_triangular", "cholesky_solve", "lstsq", "solve_ex"},
        "Yours computes an inverse (`{mine}`); the reference solves a linear system (`{theirs}`).",
    ),
    (
        {"exp"},
        {"softmax", "log_softmax", "logsumexp", "sigmoid", "logsigmoid", "softplus", "logaddexp"},
        "Yours calls `exp`, which overflows for float64 inputs above 709; `{theirs}`, which the reference calls, "
        "does not.",
    ),
    (
        {"backward", "grad", "requires_grad_", "vjp", "jvp", "jacrev", "jacfwd", "jacobian"},
        set(),
        "Yours asks autograd (`{mine}`); the reference writes the derivative out.",
    ),
)


def beside(answer: Callable, reference: Callable) -> str:
    """Return the reference's source, with what is different in kind; nothing where both are written alike.

    A function without a source of its own, and a lambda, are not compared.
    """
    if getattr(answer, "__name__", "<lambda>") == "<lambda>":
        return ""
    try:
        mine, theirs = ast.parse(source_of(answer)), ast.parse(source_of(reference))
    except (OSError, TypeError, SyntaxError, IndexError):  # no source, or not that of one function
        return ""
    if _written(mine) == _written(theirs):
        return ""
    differences = different_in_kind(mine, theirs)
    return "\n".join(
        ["", "The reference writes it this way:", "", source_of(reference).rstrip(), "", *differences]
    ).rstrip()


def different_in_kind(answer: ast.AST, reference: ast.AST) -> list[str]:
    """Return a sentence for each kind of step that one of two sources takes and the other does not."""
    said = []
    mine, theirs = _loops(answer), _loops(reference)
    if mine and not theirs:
        said.append("Yours runs a Python loop; the reference has none.")
    if theirs and not mine:
        said.append("Yours has no Python loop; the reference runs one.")
    mine, theirs = _names(answer), _names(reference)
    for found, other, sentence in KINDS:
        own, instead = sorted(mine & found), sorted(theirs & other)
        if own and not theirs & found and (instead or not other):
            said.append(sentence.format(mine=own[0], theirs=instead[0] if instead else ""))
    return said


def _written(tree: ast.Module) -> str:
    """Return the first function of a source without its name, docstring, annotations, comments and imports."""
    function = tree.body[0]
    if not isinstance(function, ast.FunctionDef):
        return ast.unparse(function)
    body = function.body
    if len(body) > 1 and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
        body = body[1:]
    names = [argument.arg for argument in function.args.args]
    steps = [step for step in body if not isinstance(step, ast.Import | ast.ImportFrom)]
    return "\n".join([*names, *map(ast.unparse, steps)])


def _loops(tree: ast.AST) -> bool:
    return any(isinstance(node, LOOPS) for node in ast.walk(tree))


def _names(tree: ast.AST) -> set[str]:
    called = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    return called | {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
