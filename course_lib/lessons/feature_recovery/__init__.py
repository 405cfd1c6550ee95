"""Lesson 28, feature_recovery: what its notebook shows."""

from course_lib.lessons.feature_recovery.exercises import *
from course_lib.lessons.feature_recovery.measurements import *
from course_lib.lessons.feature_recovery.pictures import *
