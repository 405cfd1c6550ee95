"""The course as pages that can be read without installing anything: a static site from the stored notebooks.

    course site --out build/site

`facts` asks a lesson's register for what its page needs besides the notebook (choices of predictions, hints, frames
of explorers), `pages` turns a stored notebook into one that Sphinx reads, `symbols` finds where a lesson
introduces its symbols, `front` writes the pages around the lessons, `extension` is what Sphinx loads, and `build`
joins them. No cell of a notebook is run.
"""
