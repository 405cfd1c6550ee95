"""Lesson 00, start_here: what its notebook shows, each kind of thing once, on one easy fact."""

from course_lib.lessons.start_here.exercises import *
from course_lib.lessons.start_here.map import *
from course_lib.lessons.start_here.pictures import *
