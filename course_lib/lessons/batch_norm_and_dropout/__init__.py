"""Lesson 09, batch_norm_and_dropout: what its notebook shows."""

from course_lib.lessons.batch_norm_and_dropout.exercises import *
from course_lib.lessons.batch_norm_and_dropout.pictures import *
