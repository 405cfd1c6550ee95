"""Lesson 17, ridge_attention: what its notebook shows."""

from course_lib.lessons.ridge_attention.exercises import *
from course_lib.lessons.ridge_attention.pictures import *
