"""The register of lesson 22, induction heads, with the symbols of its text."""

from course_lib.teaching import Contents

lesson = Contents(
    symbols={
        "V": "tokens of the chain",
        "P": "set of parents",
        r"\alpha": "parameter of the Dirichlet law",
        r"\pi": "law for each configuration of the parents",
        r"\mu": "how often tokens occur",
        "S": "set of lags",
        "I": "number by which training prefers sets of lags",
        "c_S": "how much the agreement of a set counts",
        "a": "scale of the second layer",
        r"\epsilon": "small number for tokens that were never seen",
        r"\ell": "loss",
    }
)
