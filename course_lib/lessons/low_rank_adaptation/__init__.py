"""Lesson 25, low-rank adaptation: what its notebook shows."""

from course_lib.lessons.low_rank_adaptation.contents import lesson
from course_lib.lessons.low_rank_adaptation.exercises import *
from course_lib.lessons.low_rank_adaptation.measurements import *
from course_lib.lessons.low_rank_adaptation.pictures import *
from course_lib.lessons.low_rank_adaptation.quiz import *

quiz = lesson.quiz  # the quiz that the page shows, in the place of the module of that name
