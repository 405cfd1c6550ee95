"""Lesson 20, low-rank adaptation: what its notebook shows."""

from course_lib.lessons.low_rank_adaptation.exercises import *
from course_lib.lessons.low_rank_adaptation.measurements import *
from course_lib.lessons.low_rank_adaptation.pictures import *
