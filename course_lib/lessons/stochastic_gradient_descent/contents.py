"""The register of lesson 02, stochastic_gradient_descent, with the symbols of its text."""

from course_lib.teaching import Contents

lesson = Contents(
    symbols={
        "X": "rows of the equations, n rows and d columns",
        "y": "labels",
        "I": "index that a step draws",
        "c": "factor of the gradient: 1 or 2, by the loss",
        r"\eta": "step size",
        "w'": "w measured from the solution",
        r"\tilde w": "first n coordinates",
        "A": "gain of a step",
        "B": "price of a step on a curved loss",
        "q": "factor in (02.9)",
        "b": "rows that a step averages over",
    }
)
