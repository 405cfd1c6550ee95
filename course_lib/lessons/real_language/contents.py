"""The register of lesson 39, real_language, with the symbols of its text."""

from course_lib.teaching import Contents

lesson = Contents(
    symbols={
        "w": "English word",
        "r": "paragraph",
        "y_r(w)": "1 if the English version has the word",
        "p": "share of the paragraphs",
        r"F_{\text{yes}}": "F1 of yes to all",
        r"\ell": "language",
        r"C_\ell(w)": "ceiling, the F1 of a linear probe of words",
        r"F_\ell(w)": "F1 of an arm",
    }
)
