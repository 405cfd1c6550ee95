"""The register of lesson 11, recurrent networks, with the symbols of its text."""

from course_lib.teaching import Contents

lesson = Contents(
    symbols={
        "x_t": "input at step t",
        "h_t": "state",
        "W_h": "matrix from state to state",
        "W_x": "matrix from input to state",
        r"\phi": "what works on each entry, here tanh",
        "L": "loss",
        r"\delta_t": "gradient at the sum in front of φ",
        "g_t": "gradient that reaches the state directly",
        r"\rho": "spectral radius",
        r"\sigma": "largest singular value",
        "k": "distance",
        "c_t": "second state of the LSTM",
        "f_t": "forget gate",
        "i_t": "input gate",
        "z_t": "keep gate",
        "r_t": "reset gate",
        r"\alpha_{ij}": "weight of the mean over the encoder's states",
    }
)
