"""Lesson 26, inside_mbart: what its notebook shows."""

from course_lib.lessons.inside_mbart.exercises import *
from course_lib.lessons.inside_mbart.pictures import *
