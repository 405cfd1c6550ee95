"""Lesson 21, transformer circuits: what its notebook shows."""

from course_lib.lessons.transformer_circuits.exercises import *
from course_lib.lessons.transformer_circuits.pictures import *
