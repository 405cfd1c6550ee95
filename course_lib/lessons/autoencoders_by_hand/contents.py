"""The register of lesson 25, autoencoders_by_hand, with the symbols of its text."""

from course_lib.teaching import Contents

lesson = Contents(
    symbols={
        "X": "matrix of examples, one in each column",
        "W_l": "weights of a layer",
        "b_l": "biases of a layer",
        "Y": "output of the decoder",
        "L": "sum of the squares of all differences",
        r"\delta": "error, the slopes with respect to the sums",
        r"\eta": "step size",
        "W_e": "weights of the encoder",
        "W_d": "weights of the decoder",
        r"\lambda": "weight of the price on the features",
    }
)
