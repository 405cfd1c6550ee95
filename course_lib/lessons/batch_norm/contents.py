"""The register of lesson 11, batch norm, with the symbols of its text."""

from course_lib.teaching import Contents

lesson = Contents(
    symbols={
        "L": "loss",
        r"\eta": "step size",
        r"\lambda": "weight decay",
        "w": "weights of one unit",
        "k": "number of the step",
        "x_i": "input of the layer for example i",
        "n": "numbers that the statistics run over",
        r"\bar x": "average over the batch",
        r"\gamma": "weight of the layer",
        r"\beta": "bias of the layer",
        "g_j": "gradient at output j",
        "s": "standard deviation of the batch",
        r"\hat x": "normalised inputs",
        "P": "projection",
        r"\theta_k": "angle",
        r"\epsilon": "small number",
        r"\mu": "momentum of the running statistics",
    }
)
