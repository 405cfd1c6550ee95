"""Lesson 32, sparsity in conic relaxations: what its notebook shows."""

from course_lib.lessons.sparse_socp.exercises import *
from course_lib.lessons.sparse_socp.pictures import *
