"""Lesson 31, Hawkes processes by tensor recovery: what its notebook shows."""

from course_lib.lessons.hawkes_tensor_recovery.exercises import *
from course_lib.lessons.hawkes_tensor_recovery.pictures import *
