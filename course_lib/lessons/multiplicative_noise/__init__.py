"""Lesson 05, multiplicative noise: what its notebook shows."""

from course_lib.lessons.multiplicative_noise.bursts import *
from course_lib.lessons.multiplicative_noise.contents import lesson
from course_lib.lessons.multiplicative_noise.exercises import *
from course_lib.lessons.multiplicative_noise.pictures import *
from course_lib.lessons.multiplicative_noise.quiz import *

quiz = lesson.quiz
