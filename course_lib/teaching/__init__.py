"""The kit that every lesson is built from: claims, predictions, exercises, explorers, figures.

Five rules that made the largest difference to how critical first-time readers judged a page, each with an example:

1. Open with the shortest run that startles, before any definition. Lesson 19: two lines that differ in one bracket, the
   same result, a hundredth of the time.
2. Ask only what is open. A default setting, a box's title or the picture before a question can give it away. Lesson 15:
   after four boxes and one click it is still open how many of 64 outputs a transform without zeros gets right; it is one.
3. Let two failures separate two ideas that words mix up. Lesson 15: the tanh's miss shrinks with the input, the changing
   decay's does not; one is not linear, the other not the same at every token.
4. Name the rivals that were tried, never "any" or "neither", and find the strongest one before a reader does. Lesson 37:
   in English a dictionary of an untrained model finds as many words as that of the trained one.
5. A number that surprises gets its reason on the page, and a number that rests on a choice gets the choice. Lesson 19:
   45 features miss more than half of 32 values, since their table is the square of one of rank nine. Lesson 37: how rare is
   the word in the sample?
"""

from IPython import get_ipython

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

if (_shell := get_ipython()) is not None:
    _shell.extension_manager.load_extension("course_lib.stopped")
