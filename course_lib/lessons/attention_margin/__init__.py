"""Lesson 24, the margin that attention maximises: what its notebook shows."""

from course_lib.lessons.attention_margin.exercises import *
from course_lib.lessons.attention_margin.pictures import *
