"""Lesson 09, gradient_estimators: what its notebook shows."""

from course_lib.lessons.gradient_estimators.bandit import *
from course_lib.lessons.gradient_estimators.contents import lesson
from course_lib.lessons.gradient_estimators.exercises import *
from course_lib.lessons.gradient_estimators.pictures import *
from course_lib.lessons.gradient_estimators.quiz import *
from course_lib.lessons.gradient_estimators.waves import *

quiz = lesson.quiz
