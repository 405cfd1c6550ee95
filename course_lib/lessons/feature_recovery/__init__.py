"""Lesson 36, feature_recovery: what its notebook shows."""

from course_lib.lessons.feature_recovery.contents import lesson
from course_lib.lessons.feature_recovery.exercises import *
from course_lib.lessons.feature_recovery.measurements import *
from course_lib.lessons.feature_recovery.pictures import *
from course_lib.lessons.feature_recovery.quiz import *

quiz = lesson.quiz  # the quiz that the page shows, in the place of the module of that name
