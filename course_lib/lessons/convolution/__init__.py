"""Lesson 08, convolution: what its notebook shows."""

from course_lib.lessons.convolution.exercises import *
from course_lib.lessons.convolution.pictures import *
