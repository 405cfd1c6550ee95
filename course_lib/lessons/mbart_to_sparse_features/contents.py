"""The register of lesson 29, mbart_to_sparse_features, with the symbols of its text."""

from course_lib.teaching import Contents

lesson = Contents(
    symbols={
        "x": "state of a token, centred and scaled",
        "f": "code of a token",
        "W_e": "rows of the encoder",
        "W_d": "directions of the features",
        "b_e": "bias of the encoder",
        "b_d": "bias of the decoder",
        "k": "active features of a token",
        r"\bar f": "mean code of a sentence",
        "s": "score of a feature for a sentence",
        r"\mu": "mean state",
        "w": "direction made from labels",
        r"\Sigma": "covariance of the states",
    }
)
