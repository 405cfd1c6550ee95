"""Lesson 21, random_features: what its notebook shows."""

from course_lib.lessons.random_features.contents import lesson
from course_lib.lessons.random_features.exercises import *
from course_lib.lessons.random_features.pictures import *
from course_lib.lessons.random_features.quiz import *

quiz = lesson.quiz  # the quiz that the page shows, in the place of the module of that name
