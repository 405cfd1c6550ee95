"""Lesson 05, maximal_update_parametrization: what its notebook shows."""

from course_lib.lessons.maximal_update_parametrization.exercises import *
from course_lib.lessons.maximal_update_parametrization.pictures import *
