"""Lesson 29, the margin that attention maximises: what its notebook shows."""

from course_lib.lessons.attention_margin.contents import lesson
from course_lib.lessons.attention_margin.exercises import *
from course_lib.lessons.attention_margin.experiment import *
from course_lib.lessons.attention_margin.pictures import *
from course_lib.lessons.attention_margin.quiz import *

quiz = lesson.quiz  # the quiz that the page shows, in the place of the module of that name
