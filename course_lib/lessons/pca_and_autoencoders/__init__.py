"""Lesson 18, PCA and autoencoders: what its notebook shows."""

from course_lib.lessons.pca_and_autoencoders.exercises import *
from course_lib.lessons.pca_and_autoencoders.pictures import *
