"""What a function is given, checked against its own annotations before anything is computed."""

import functools
import inspect
import typing
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import torch
from jaxtyping import AbstractArray, jaxtyped
from torch import Tensor

_HELD = {"Float": "floating-point numbers", "Bool": "booleans", "Int": "whole numbers"}
P = ParamSpec("P")
R = TypeVar("R")


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function so that its tensors must have the kind and the shape that its annotations state.

    A dimension that has a name has one length in all arguments: nothing of size 1 is repeated in silence. A call costs
    some 30 microseconds more, so that it is not for what runs once a token. Parameters that may be something else
    than one kind of tensor, or None, are not looked at.

    The decorated function raises TypeError for what is no tensor, and ValueError for another dtype or shape; both
    name the argument, what came and what was expected.
    """
    signature = inspect.signature(function)
    annotated = {}
    for name, hint in typing.get_type_hints(function).items():
        kinds = set(typing.get_args(hint) or (hint,)) - {type(None)}
        if name != "return" and len(kinds) == 1 and _has_shape(kind := kinds.pop()):
            annotated[name] = kind

    @functools.wraps(function)
    def front(*args: P.args, **kwargs: P.kwargs) -> R:
        given = signature.bind(*args, **kwargs).arguments
        with jaxtyped("context"):
            seen = {}
            for name, kind in annotated.items():
                value = given.get(name)
                if value is None and signature.parameters[name].default is None:
                    continue
                if not isinstance(value, kind):
                    raise _refusal(name, value, kind, seen)
                seen[name] = tuple(value.shape)
        return function(*args, **kwargs)

    return front


def check_finite(name: str, values: Tensor) -> None:
    """Raise ValueError where a tensor holds a NaN or an infinite value."""
    if type(values) is Tensor and not values.is_meta and not torch.isfinite(values).all():  # no fake ones
        raise ValueError(f"{name} has NaN or infinite values; expected finite numbers")


def _has_shape(hint: object) -> bool:
    return isinstance(hint, type) and issubclass(hint, AbstractArray)


def _refusal(name: str, value: object, kind: type, seen: dict[str, tuple[int, ...]]) -> Exception:
    if not isinstance(value, Tensor):
        return TypeError(f"{name} must be a tensor, got {type(value).__name__}")
    dtype = str(value.dtype).removeprefix("torch.")
    if dtype not in kind.dtypes:
        return ValueError(f"{name} must hold {_HELD[kind.__name__.split('[')[0]]}, got {value.dtype}")
    beside = "".join(f", with {other} {shape}" for other, shape in seen.items())
    return ValueError(f"{name} must have shape ({kind.dim_str.strip()}){beside}, got {tuple(value.shape)}")
