"""The register of lesson 09, batch_norm_and_dropout, with the symbols of its text."""

from course_lib.teaching import Contents

lesson = Contents(
    symbols={
        r"\bar x": "average over the batch",
        "g": "gradient at the outputs",
        r"\gamma": "weight of the layer",
        r"\beta": "bias of the layer",
        "n": "numbers that the statistics run over",
        "s": "standard deviation of the batch",
        r"\epsilon": "small number that keeps s from being zero",
        "P": "orthogonal projection",
        r"\mu": "momentum of the running statistics",
        "w": "weights of one unit",
        r"\eta": "size of a step",
        "H": "Hessian of the loss",
        "X": "table with n rows and d columns",
        "R": "mask of zeros and ones",
        "p": "probability to keep an entry",
        r"\hat\Gamma": "diagonal matrix of the column lengths",
    }
)
