"""Lesson 10, convolution: what its notebook shows."""

from course_lib.lessons.convolution.contents import lesson
from course_lib.lessons.convolution.corners import *
from course_lib.lessons.convolution.exercises import *
from course_lib.lessons.convolution.pictures import *
from course_lib.lessons.convolution.quiz import *

quiz = lesson.quiz
