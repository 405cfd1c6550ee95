"""The register of lesson 24, linear purification, with the symbols of its text."""

from course_lib.teaching import Contents

lesson = Contents(
    symbols={
        "X": "examples as rows, features as columns",
        "W": "matrix that returns each row under a penalty",
        r"\lambda": "penalty",
        r"\Sigma_{xx}": "covariance matrix of the features",
        r"\Sigma_{xz}": "covariances of the features with the concept",
        "z": "concept",
        "w": "weights of the probe",
        "P": "matrix that changes a state",
        r"\hat z": "prediction of the probe",
        "D": "standard deviations of the features",
    }
)
