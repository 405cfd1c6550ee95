"""What is built from the lessons beside the notebooks: the site, the teacher's edition, and what is handed out.

`notebooks` reads the lessons' notebooks, `cache` keeps what one build leaves to the next, and `html` makes pages with
Sphinx; `site`, `teacher` and `grading` stand on these.
"""
