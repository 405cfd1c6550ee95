"""The register of lesson 38, using_features, with the symbols of its text."""

from course_lib.teaching import Contents

lesson = Contents(
    symbols={
        "x": "state of one token",
        "f": "its code",
        "f'": "the code after a change",
        "W_d": "decoder, one column for each feature",
        "r": "scale of the states",
        "c": "factor of a feature",
        r"\mathrm{CE}": "cross-entropy of the right translation, in nats a token",
        "m_a": "mean state at the tokens of word a",
        "m_k": "mean state at the tokens of all words of its kind",
        "S_a": "features of word a",
        r"\bar f_k": "mean activations of the features over all words of a kind",
        r"\bar f_b": "mean activations of the features at noun b",
        "N": "labelled occurrences of each noun",
    }
)
