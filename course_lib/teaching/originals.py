"""The libraries as they were when the kit was imported: what an answer is judged with.

A cell may replace `torch.allclose` for good, by accident or to see what happens. An answer is still called in the
kernel as it is; the tests of the exercise see the functions that the libraries came with. A replacement that an
installed package makes stays: torch's compiler, for one, wraps some of torch's functions when it is imported.
"""

import builtins
import math
from collections.abc import Iterator
from contextlib import contextmanager

import numpy
import torch

from course_lib.teaching.sandbox import is_own

_NAMESPACES = {
    "torch": torch,
    "torch.linalg": torch.linalg,
    "torch.autograd": torch.autograd,
    "torch.nn.functional": torch.nn.functional,
    "torch.Tensor": torch.Tensor,
    "numpy": numpy,
    "numpy.linalg": numpy.linalg,
    "math": math,
    "builtins": builtins,
}
# IPython replaces others of the built-in functions itself, around every cell.
_BUILTINS = {"abs", "all", "any", "bool", "float", "int", "isinstance", "len", "max", "min", "round", "set"}
_BUILTINS |= {"sorted", "sum", "type", "zip"}


def _functions(name: str) -> dict[str, object]:
    """Return the functions of a namespace, without its classes: torch.set_default_dtype exchanges one of torch's."""
    return {
        key: value
        for key, value in vars(_NAMESPACES[name]).items()
        if (key in _BUILTINS if name == "builtins" else callable(value) and not isinstance(value, type))
    }


_ORIGINALS = {name: _functions(name) for name in _NAMESPACES}
_TENSORS_OWN = frozenset(vars(torch.Tensor))


def _replaced() -> Iterator[tuple[str, str]]:
    for name, functions in _ORIGINALS.items():
        now = vars(_NAMESPACES[name])
        yield from (
            (name, key)
            for key, function in functions.items()
            if now.get(key) is not function and not _is_a_packages(now.get(key))
        )
    # A method that torch.Tensor inherits is replaced by a new one of its own.
    new = {key for key in vars(torch.Tensor).keys() - _TENSORS_OWN if hasattr(torch.Tensor.__base__, key)}
    yield from (("torch.Tensor", key) for key in new if not _is_a_packages(getattr(torch.Tensor, key)))


def _is_a_packages(replacement: object) -> bool:
    code = getattr(replacement, "__code__", None)
    return code is not None and not is_own(code.co_filename)


@contextmanager
def original_libraries() -> Iterator[list[str]]:
    """Put the original functions back for the time of the block; yield the names of those that were replaced."""
    replaced = list(_replaced())
    now = {(name, key): vars(_NAMESPACES[name]).get(key) for name, key in replaced}
    for name, key in replaced:
        if key in _ORIGINALS[name]:
            setattr(_NAMESPACES[name], key, _ORIGINALS[name][key])
        else:
            delattr(_NAMESPACES[name], key)
    try:
        yield [f"{name}.{key}" for name, key in replaced]
    finally:
        for (name, key), function in now.items():
            if function is None:
                delattr(_NAMESPACES[name], key)
            else:
                setattr(_NAMESPACES[name], key, function)
