"""Lesson 31, Hawkes processes by tensor recovery: what its notebook shows."""

from course_lib.lessons.hawkes_tensor_recovery.closing import *
from course_lib.lessons.hawkes_tensor_recovery.contents import lesson
from course_lib.lessons.hawkes_tensor_recovery.delays import *
from course_lib.lessons.hawkes_tensor_recovery.exercises import *
from course_lib.lessons.hawkes_tensor_recovery.pictures import *
from course_lib.lessons.hawkes_tensor_recovery.quiz import *

quiz = lesson.quiz  # the quiz that the page shows, in the place of the module of that name
