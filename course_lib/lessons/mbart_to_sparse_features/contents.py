"""The register of lesson 37, mbart_to_sparse_features, with the symbols of its text."""

from course_lib.teaching import Contents

lesson = Contents(
    symbols={
        "x": "state of one token, minus the mean state",
        "f": "code of a token",
        "W_e": "rows of the encoder",
        "W_d": "its columns are the directions",
        "b_e": "bias of the encoder",
        "b_d": "bias of the reconstruction",
        "k": "how many numbers of a code are above 0",
        r"\bar f": "mean code of a sentence",
        "s": "score of a feature for a sentence",
        r"\mu_1": "mean state of all tokens in sentences with the word",
        "w": "direction that labels make",
        r"\Sigma": "covariance of the states",
    }
)
