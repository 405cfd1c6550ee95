"""Lesson 29, mbart_to_sparse_features: what its notebook shows."""

from course_lib.lessons.mbart_to_sparse_features.causes import *
from course_lib.lessons.mbart_to_sparse_features.exercises import *
from course_lib.lessons.mbart_to_sparse_features.pictures import *
