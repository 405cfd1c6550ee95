"""Lesson 18, rotary_position_embedding: what its notebook shows."""

from course_lib.lessons.rotary_position_embedding.contents import lesson
from course_lib.lessons.rotary_position_embedding.exercises import *
from course_lib.lessons.rotary_position_embedding.experiment import *
from course_lib.lessons.rotary_position_embedding.pictures import *
from course_lib.lessons.rotary_position_embedding.quiz import *

quiz = lesson.quiz
