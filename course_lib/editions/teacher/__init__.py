"""The edition for teachers: every lesson with its solutions, its plan, its bank of mistakes and its slides.

    course teacher 19 21 --out build/teacher

`solved` fills in and runs the notebooks, `bank`, `plan` and `slides` write what belongs to a lesson from the lesson's
own objects and its notebook, and `build` joins them to linked pages with the looks of `course_lib.editions.site`. The pages
hold all answers: they are no part of the public site.
"""
