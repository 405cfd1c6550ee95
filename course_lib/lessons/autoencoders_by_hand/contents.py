"""The register of lesson 33, autoencoders_by_hand, with the symbols of its text."""

from course_lib.teaching import Contents

lesson = Contents(
    symbols={
        "X": "inputs, one example in each column",
        "W_l": "weights of a layer",
        "b_l": "biases of a layer",
        "z_l": "sums of a layer",
        "h_l": "values of a layer",
        "Y": "output for all examples",
        "L": "loss of all examples",
        r"\delta_l": "errors of a layer",
        r"\eta": "step size",
        "W_e": "weights of the encoder",
        "W_d": "weights of the decoder",
        r"\lambda": "weight of the price on the features",
    }
)
