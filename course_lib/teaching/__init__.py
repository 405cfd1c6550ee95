"""The kit that every lesson is built from: claims, predictions, exercises, explorers, figures.

The names below are loaded on first use, so that the doctor, which must run in a broken
environment, can be imported without torch, matplotlib or ipywidgets.
"""

from importlib import import_module

_HOME = {
    "contents": "register",
    "Exercise": "exercise",
    "close": "exercise",
    "near": "exercise",
    "edit": "exercise",
    "Mistake": "exercise",
    "Property": "exercise",
    "Verdict": "exercise",
    "Choice": "explorer",
    "Explorer": "explorer",
    "Slider": "explorer",
    "ClaimError": "claims",
    "claim": "claims",
    "inputs": "laws",
    "integers": "laws",
    "normal": "laws",
    "one_of": "laws",
    "uniform": "laws",
    "whole": "laws",
    "panels": "layout",
    "lines": "layout",
    "Prediction": "prediction",
    "Progress": "progress",
    "describe": "style",
    "new_figure": "style",
    "show": "style",
    "styled": "style",
}

__all__ = sorted(_HOME)


def __getattr__(name: str):
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
