"""One frame of a plain two-curve figure: `Explorer` against the same figure under `ipywidgets.interact`.

Both run in a real kernel, as in a lesson: a slider's value is set, and the clock stops when the new picture has
been handed to the page. Time is CPU time of the kernel's main thread, in which both do all their work.
"""

import json

import nbformat
import numpy as np
from nbclient import NotebookClient

from benchmarks.timing import Spread
from course_lib.teaching.explorer import Explorer, Slider

X = np.linspace(0, 10, 600)
LOW, HIGH, STEP = 0.5, 5.0, 0.05


class TwoCurves(Explorer):
    """Two curves of 600 points, 6 x 4 inches."""

    title = "Two curves"
    summary = "A sine and a cosine."
    controls = {  # noqa: RUF012 - shared by all instances, never changed
        "frequency": Slider(
            label="frequency", symbol="f", default=2.0, minimum=LOW, maximum=HIGH, step=STEP, tooltip="Waves"
        )
    }
    size = (6.0, 4.0)
    dpi = 100

    def compute(self, *, frequency):
        """Return both curves."""
        return np.sin(frequency * X), np.cos(frequency * X)

    def draw(self, figure):
        """Draw axes and two empty curves."""
        axes = figure.add_subplot()
        axes.set(xlim=(0, 10), ylim=(-1.2, 1.2), xlabel="x", ylabel="y", title="Two curves")
        (sine,) = axes.plot([], [], label="sine")
        (cosine,) = axes.plot([], [], label="cosine")
        axes.legend(loc="upper right")
        return {"sine": sine, "cosine": cosine}

    def update(self, artists, state):
        """Move both curves."""
        artists["sine"].set_data(X, state[0])
        artists["cosine"].set_data(X, state[1])

    def words(self, state):
        """Say nothing new."""
        return "A sine and a cosine."


def interact_slider():
    """Show the same figure the usual way, and return its slider."""
    import ipywidgets
    import matplotlib.pyplot as plt

    def draw(frequency=2.0):
        _, axes = plt.subplots(figsize=(6, 4), dpi=100)
        axes.plot(X, np.sin(frequency * X), label="sine")
        axes.plot(X, np.cos(frequency * X), label="cosine")
        axes.set(xlim=(0, 10), ylim=(-1.2, 1.2), xlabel="x", ylabel="y", title="Two curves")
        axes.legend(loc="upper right")
        plt.show()

    slider = ipywidgets.FloatSlider(
        value=2.0, min=LOW, max=HIGH, step=STEP, description="frequency g", continuous_update=True
    )
    ipywidgets.interact(draw, frequency=slider)
    return slider


_IN_THE_KERNEL = """
import json, time
%matplotlib inline
from IPython.display import display
from benchmarks.explorer import LOW, STEP, TwoCurves, interact_slider
from benchmarks.timing import interleave

explorer = TwoCurves()
display(explorer)
peer = interact_slider()
mine = explorer._widgets["frequency"]

def move(slider, round_):
    slider.value = LOW + STEP * (1 + (round_ % 2) + 2 * (round_ % 40))

seconds = interleave(
    {"explorer": lambda r: move(mine, r), "interact": lambda r: move(peer, r)},
    rounds=60, clock=time.thread_time,
)
"""


def run() -> dict:
    """Measure in a kernel of its own and return milliseconds a frame and the ratio."""
    notebook = nbformat.v4.new_notebook(
        cells=[
            nbformat.v4.new_code_cell(_IN_THE_KERNEL),
            nbformat.v4.new_code_cell("print(json.dumps(seconds))"),
        ]
    )
    NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
    seconds = json.loads(notebook.cells[1].outputs[0].text)
    milliseconds = {name: 1e3 * np.array(values) for name, values in seconds.items()}
    return {
        "explorer, ms of kernel time a frame": Spread.of(milliseconds["explorer"]),
        "interact, ms of kernel time a frame": Spread.of(milliseconds["interact"]),
        "interact / explorer": Spread.of(milliseconds["interact"] / milliseconds["explorer"]),
    }
