"""Lesson 15, kernelized_attention: what its notebook shows."""

from course_lib.lessons.kernelized_attention.exercises import *
from course_lib.lessons.kernelized_attention.pictures import *
