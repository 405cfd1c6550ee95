"""One explorer with a control of each kind, small enough to test all that a panel does."""

from course_lib.teaching import Choice, Explorer, Slider, TextBox, panels


class EveryControl(Explorer):
    """A point, moved by four controls."""

    title = "A point"
    summary = "One point."
    height = Slider("height", "h", "Up", default=0.5, minimum=0.0, maximum=1.0, step=0.05, unit="m")
    count = Slider("count", "n", "Right", default=2, minimum=1, maximum=9, step=1)
    colour = Choice("colour", "Its colour", default="red", options=("red", "green", "blue"))
    name = TextBox("name", "Its name", default="P", other="Q")
    size = (4.0, 3.0)
    layout = panels(x="right", y="up", xlim=(0, 10), ylim=(-0.1, 1.1))

    def compute(self, **settings):
        """Return the settings."""
        return settings

    def draw(self, axes):
        """Draw the point and its name."""
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
