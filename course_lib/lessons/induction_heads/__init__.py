"""Lesson 27, induction heads: what its notebook shows."""

from course_lib.lessons.induction_heads.contents import lesson
from course_lib.lessons.induction_heads.exercises import *
from course_lib.lessons.induction_heads.pictures import *
from course_lib.lessons.induction_heads.quiz import *

quiz = lesson.quiz  # the quiz that the page shows, in the place of the module of that name
