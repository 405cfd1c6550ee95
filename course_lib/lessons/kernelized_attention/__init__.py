"""Lesson 19, kernelized_attention: what its notebook shows."""

from course_lib.lessons.kernelized_attention.contents import lesson
from course_lib.lessons.kernelized_attention.exercises import *
from course_lib.lessons.kernelized_attention.pictures import *
from course_lib.lessons.kernelized_attention.quiz import *

quiz = lesson.quiz  # the quiz that the page shows, in the place of the module of that name
