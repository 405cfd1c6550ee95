"""One explorer with a control of each kind, small enough to test all that a panel does."""

from course_lib.teaching.explorer import Choice, Explorer, Slider, TextBox


class EveryControl(Explorer):
    """A point, moved by four controls."""

    title = "A point"
    summary = "One point."
    controls = {  # noqa: RUF012 - shared by all instances, never changed
        "height": Slider(
            label="height",
            symbol="h",
            unit="m",
            default=0.5,
            minimum=0.0,
            maximum=1.0,
            step=0.05,
            tooltip="Up",
        ),
        "count": Slider(label="count", symbol="n", default=2, minimum=1, maximum=9, step=1, tooltip="Right"),
        "colour": Choice(
            label="colour", default="red", options=("red", "green", "blue"), tooltip="Its colour"
        ),
        "name": TextBox(label="name", default="P", other="Q", tooltip="Its name"),
    }
    size = (4.0, 3.0)

    def compute(self, **settings):
        """Return the settings."""
        return settings

    def draw(self, figure):
        """Draw axes and the point."""
        axes = figure.add_subplot()
        axes.set(xlim=(0, 10), ylim=(-0.1, 1.1))
        (point,) = axes.plot([], [], marker="o", markersize=20)
        return {"point": point, "name": axes.text(5, 0.5, "")}

    def update(self, artists, state):
        """Move, colour and name the point."""
        artists["point"].set_data([state["count"]], [state["height"]])
        artists["point"].set_color(state["colour"])
        artists["name"].set_text(state["name"])

    def words(self, state):
        """Say all settings."""
        return f"{state['name']}: {state['colour']}, {state['count']} to the right, {state['height']:.2f} m high."
