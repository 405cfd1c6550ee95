"""The register of lesson 00, start_here, with the symbols of its text."""

from course_lib.teaching import Contents

lesson = Contents(
    symbols={
        "f": "factor",
        "t": "multiplications",
    }
)
