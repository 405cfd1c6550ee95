"""The register of lesson 25, autoencoders_by_hand, with the symbols of its text."""

from course_lib.teaching import Contents

lesson = Contents(
    symbols={
        "X": "inputs of the worksheet, one example in each column",
        "W_l": "weights of a layer",
        "b_l": "biases of a layer",
        "z_l": "sums of a layer",
        "h_l": "values of a layer",
        "Y": "output of the network",
        "L": "loss, the sum of all squared differences",
        r"\delta_l": "errors, the slopes of the loss in the sums",
        r"\eta": "step size",
        "W_e": "weights of the encoder",
        "W_d": "weights of the decoder",
        r"\lambda": "weight of the price on the features",
    }
)
