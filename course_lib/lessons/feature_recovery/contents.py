"""The register of lesson 28, feature_recovery, with the symbols of its text."""

from course_lib.teaching import Contents

lesson = Contents(
    symbols={
        "n": "true features",
        "s": "atoms in a row",
        "h_j": "strengths",
        "f": "share of the rows that hold an atom",
        "p": "share of the rows in which a neuron fires",
        "M": "units of the autoencoder",
        "z_m": "strengths of the units",
        "k": "largest numbers of the code that TopK keeps",
        "w_m": "direction of a unit",
        "b_m": "bias of a unit",
        "q_m": "share of rows in which a unit fired",
        "v": "atom",
    }
)
