"""Lesson 35, stacked_autoencoder: what its notebook shows."""

from course_lib.lessons.stacked_autoencoder.contents import lesson
from course_lib.lessons.stacked_autoencoder.exercises import *
from course_lib.lessons.stacked_autoencoder.pictures import *
from course_lib.lessons.stacked_autoencoder.quiz import *

quiz = lesson.quiz  # the quiz that the page shows, in the place of the module of that name
