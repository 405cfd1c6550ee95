"""Lesson 06, newton_schulz_and_muon: what its notebook shows."""

from course_lib.lessons.newton_schulz_and_muon.exercises import *
from course_lib.lessons.newton_schulz_and_muon.pictures import *
