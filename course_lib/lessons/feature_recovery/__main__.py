"""Measure what the figures of lesson 28 draw: `python -m course_lib.lessons.feature_recovery`, some minutes."""

import json

from course_lib.lessons.feature_recovery.measurements import MEASURED, measure

MEASURED.write_text(json.dumps(measure(), indent=1) + "\n")
