"""Lesson 19, linear purification: what its notebook shows."""

from course_lib.lessons.linear_purification.exercises import *
from course_lib.lessons.linear_purification.pictures import *
