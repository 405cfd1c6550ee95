"""Lesson 33, autoencoders_by_hand: what its notebook shows."""

from course_lib.lessons.autoencoders_by_hand.contents import lesson
from course_lib.lessons.autoencoders_by_hand.exercises import *
from course_lib.lessons.autoencoders_by_hand.experiment import *
from course_lib.lessons.autoencoders_by_hand.pictures import *
from course_lib.lessons.autoencoders_by_hand.quiz import *

quiz = lesson.quiz  # the quiz that the page shows, in the place of the module of that name
