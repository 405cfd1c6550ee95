"""Lesson 23, in-context regression: what its notebook shows."""

from course_lib.lessons.in_context_regression.exercises import *
from course_lib.lessons.in_context_regression.pictures import *
