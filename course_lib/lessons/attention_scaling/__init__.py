"""Lesson 17, attention_scaling: what its notebook shows."""

from course_lib.lessons.attention_scaling.contents import lesson
from course_lib.lessons.attention_scaling.exercises import *
from course_lib.lessons.attention_scaling.lookup import *
from course_lib.lessons.attention_scaling.pictures import *
from course_lib.lessons.attention_scaling.quiz import *

quiz = lesson.quiz
