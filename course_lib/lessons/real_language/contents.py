"""The register of lesson 39, real_language, with the symbols of its text."""

from course_lib.teaching import Contents

lesson = Contents(
    symbols={
        "w": "an English word",
        "r": "a paragraph, a row of the table",
        r"\ell": "a language",
        "y_r(w)": "whether the English version of paragraph r has word w",
        "p": "share of the paragraphs that hold the word",
        "F": "F1 of a detector",
        r"F_{\text{yes}}": "F1 of the answer yes to every paragraph",
        r"C_\ell(w)": "ceiling: F1 of a probe of the words of language l",
        r"F_\ell(w)": "F1 of the feature in language l",
    }
)
