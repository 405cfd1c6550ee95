"""Lesson 22, induction heads: what its notebook shows."""

from course_lib.lessons.induction_heads.exercises import *
from course_lib.lessons.induction_heads.pictures import *
