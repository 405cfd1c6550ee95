"""Lesson 16, random_features: what its notebook shows."""

from course_lib.lessons.random_features.exercises import *
from course_lib.lessons.random_features.pictures import *
