"""The register of lesson 14, recurrent networks, with the symbols of its text."""

from course_lib.teaching import Contents

lesson = Contents(
    symbols={
        "x_t": "input at step t",
        "h_t": "state",
        "W_h": "matrix from state to state",
        "W_x": "matrix from input to state",
        "a_t": "sum in front of the tanh",
        "L": "loss",
        r"\delta_t": "gradient at the sum in front of the tanh",
        "g_t": "gradient that reaches the state directly",
        "D_t": "slopes of the tanh",
        r"\rho": "spectral radius",
        r"\sigma": "largest singular value",
        "k": "steps back",
        "H": "number of units",
        "c_t": "second state of the LSTM",
        "f_t": "forget gate",
        "z_t": "keep gate",
        "r_t": "reset gate",
    }
)
