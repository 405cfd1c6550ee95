"""Lesson 16, a memory that decides what to keep: what its notebook shows."""

from course_lib.lessons.selective_states.exercises import *
from course_lib.lessons.selective_states.pictures import *
from course_lib.lessons.selective_states.quiz import *
