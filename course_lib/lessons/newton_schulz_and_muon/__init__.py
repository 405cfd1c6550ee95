"""Lesson 08, newton_schulz_and_muon: what its notebook shows."""

from course_lib.lessons.newton_schulz_and_muon.contents import lesson
from course_lib.lessons.newton_schulz_and_muon.exercises import *
from course_lib.lessons.newton_schulz_and_muon.pictures import *
from course_lib.lessons.newton_schulz_and_muon.quiz import *

quiz = lesson.quiz  # the quiz that the page shows, in the place of the module of that name
