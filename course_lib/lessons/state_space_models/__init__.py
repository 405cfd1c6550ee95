"""Lesson 15, state space models: what its notebook shows."""

from course_lib.lessons.state_space_models.contents import lesson
from course_lib.lessons.state_space_models.exercises import *
from course_lib.lessons.state_space_models.experiment import *
from course_lib.lessons.state_space_models.pictures import *
from course_lib.lessons.state_space_models.quiz import *

quiz = lesson.quiz
