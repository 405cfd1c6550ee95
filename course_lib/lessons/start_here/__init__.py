"""Lesson 00, start_here: what its notebook shows, each tool of the course once."""

from course_lib.lessons.start_here.contents import lesson
from course_lib.lessons.start_here.exercises import *
from course_lib.lessons.start_here.map import *
from course_lib.lessons.start_here.numbers import *
from course_lib.lessons.start_here.powers import *
from course_lib.lessons.start_here.quiz import *

quiz = lesson.quiz
