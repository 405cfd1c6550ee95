"""Lesson 27, stacked_autoencoder: what its notebook shows."""

from course_lib.lessons.stacked_autoencoder.exercises import *
from course_lib.lessons.stacked_autoencoder.pictures import *
