"""Lesson 04, steepest_descent: what its notebook shows."""

from course_lib.lessons.steepest_descent.exercises import *
from course_lib.lessons.steepest_descent.pictures import *
