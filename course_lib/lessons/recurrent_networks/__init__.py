"""Lesson 14, recurrent networks: what its notebook shows."""

from course_lib.lessons.recurrent_networks.contents import lesson
from course_lib.lessons.recurrent_networks.exercises import *
from course_lib.lessons.recurrent_networks.experiment import *
from course_lib.lessons.recurrent_networks.pictures import *
from course_lib.lessons.recurrent_networks.quiz import *

quiz = lesson.quiz
