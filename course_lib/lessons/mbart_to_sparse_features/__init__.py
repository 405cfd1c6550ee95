"""Lesson 37, mbart_to_sparse_features: what its notebook shows."""

from course_lib.lessons.mbart_to_sparse_features.contents import lesson
from course_lib.lessons.mbart_to_sparse_features.exercises import *
from course_lib.lessons.mbart_to_sparse_features.material import *
from course_lib.lessons.mbart_to_sparse_features.pictures import *
from course_lib.lessons.mbart_to_sparse_features.quiz import *

quiz = lesson.quiz
