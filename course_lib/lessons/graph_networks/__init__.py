"""Lesson 10, graph networks: what its notebook shows."""

from course_lib.lessons.graph_networks.exercises import *
from course_lib.lessons.graph_networks.pictures import *
