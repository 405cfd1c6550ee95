"""Measure what lesson 20 shows of course-mbart: `python -m course_lib.lessons.low_rank_adaptation`, 15 to 30 minutes."""

from course_lib.lessons.low_rank_adaptation.measurements import measure

measure()
