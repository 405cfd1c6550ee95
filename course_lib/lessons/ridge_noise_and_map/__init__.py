"""Lesson 03, ridge_noise_and_map: what its notebook shows."""

from course_lib.lessons.ridge_noise_and_map.exercises import *
from course_lib.lessons.ridge_noise_and_map.pictures import *
