"""Lesson 23, PCA and autoencoders: what its notebook shows."""

from course_lib.lessons.pca_and_autoencoders.contents import lesson
from course_lib.lessons.pca_and_autoencoders.digits import *
from course_lib.lessons.pca_and_autoencoders.exercises import *
from course_lib.lessons.pca_and_autoencoders.pictures import *
from course_lib.lessons.pca_and_autoencoders.quiz import *
from course_lib.lessons.pca_and_autoencoders.stairs import *

quiz = lesson.quiz  # the quiz that the page shows, in the place of the module of that name
