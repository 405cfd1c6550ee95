"""The library behind the course: the mathematics, the lessons and the text-to-features pipeline.

Importing this package imports nothing heavy: torch, transformers, matplotlib and ipywidgets
are loaded by the modules that need them, when they are imported themselves.
"""

__version__ = "0.1.0"
