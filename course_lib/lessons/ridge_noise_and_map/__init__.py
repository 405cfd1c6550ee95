"""Lesson 04, ridge_noise_and_map: what its notebook shows."""

from course_lib.lessons.ridge_noise_and_map.contents import lesson
from course_lib.lessons.ridge_noise_and_map.exercises import *
from course_lib.lessons.ridge_noise_and_map.pictures import *
from course_lib.lessons.ridge_noise_and_map.quiz import *

quiz = lesson.quiz  # the quiz that the page shows, in the place of the module of that name
