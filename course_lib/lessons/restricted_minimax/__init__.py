"""Lesson 30, restricted minimax estimation: what its notebook shows."""

from course_lib.lessons.restricted_minimax.exercises import *
from course_lib.lessons.restricted_minimax.pictures import *
