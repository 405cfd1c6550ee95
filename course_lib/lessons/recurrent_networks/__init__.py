"""Lesson 11, recurrent networks: what its notebook shows."""

from course_lib.lessons.recurrent_networks.exercises import *
from course_lib.lessons.recurrent_networks.pictures import *
