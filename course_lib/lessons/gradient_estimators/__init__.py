"""Lesson 07, gradient_estimators: what its notebook shows."""

from course_lib.lessons.gradient_estimators.exercises import *
from course_lib.lessons.gradient_estimators.pictures import *
