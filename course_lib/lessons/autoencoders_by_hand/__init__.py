"""Lesson 25, autoencoders_by_hand: what its notebook shows."""

from course_lib.lessons.autoencoders_by_hand.exercises import *
from course_lib.lessons.autoencoders_by_hand.pictures import *
