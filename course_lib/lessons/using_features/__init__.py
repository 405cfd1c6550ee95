"""Lesson 38, using_features: what its notebook shows."""

from course_lib.lessons.using_features.contents import lesson
from course_lib.lessons.using_features.exercises import *
from course_lib.lessons.using_features.measurements import *
from course_lib.lessons.using_features.pictures import *
from course_lib.lessons.using_features.quiz import *

quiz = lesson.quiz  # the quiz that the page shows, in the place of the module of that name
