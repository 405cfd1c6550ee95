"""Lesson 13, graph networks: what its notebook shows."""

from course_lib.lessons.graph_networks.communities import *
from course_lib.lessons.graph_networks.contents import lesson
from course_lib.lessons.graph_networks.exercises import *
from course_lib.lessons.graph_networks.molecules import *
from course_lib.lessons.graph_networks.pictures import *
from course_lib.lessons.graph_networks.quiz import *

quiz = lesson.quiz
