"""The register of lesson 06, newton_schulz_and_muon, with the symbols of its text."""

from course_lib.teaching import Contents

lesson = Contents(
    symbols={
        "G": "gradient",
        "s": "singular value",
        "X": "matrix of any shape",
        "p": "polynomial of one step",
        "s_k": "value after k steps",
        "E": "worst error",
        "T": "number of steps",
        r"\mu": "momentum",
        r"\eta": "step size",
        "B": "running mean of the gradients",
        r"\epsilon": "relative size of a rounding error",
    }
)
