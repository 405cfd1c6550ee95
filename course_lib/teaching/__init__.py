"""The kit that every lesson is built from: claims, predictions, exercises, explorers, figures."""

from course_lib.figures import describe, new_figure, styled
from course_lib.teaching.claims import ClaimError, claim, fact
from course_lib.teaching.exercise import Exercise, Mistake, Property, Verdict, but, close, edit, near
from course_lib.teaching.explorer import Choice, Explorer, Slider, Switch, TextBox
from course_lib.teaching.laws import inputs, integers, normal, one_of, uniform, whole
from course_lib.teaching.layout import lines, markdown_table, panels
from course_lib.teaching.peers import has_peer
from course_lib.teaching.prediction import Prediction, right
from course_lib.teaching.progress import Progress
from course_lib.teaching.quiz import Quiz, Sentence
from course_lib.teaching.register import Contents
from course_lib.teaching.style import show

__all__ = [
    "Choice",
    "ClaimError",
    "Contents",
    "Exercise",
    "Explorer",
    "Mistake",
    "Prediction",
    "Progress",
    "Property",
    "Quiz",
    "Sentence",
    "Slider",
    "Switch",
    "TextBox",
    "Verdict",
    "but",
    "claim",
    "close",
    "describe",
    "edit",
    "fact",
    "has_peer",
    "inputs",
    "integers",
    "lines",
    "markdown_table",
    "near",
    "new_figure",
    "normal",
    "one_of",
    "panels",
    "right",
    "show",
    "styled",
    "uniform",
    "whole",
]
