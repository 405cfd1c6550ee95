"""What a page needs of its lesson besides the notebook: symbols, predictions, hints, and explorers as frames.

A page has no kernel. So every control of an explorer gets a row of frames through the default setting: one control
moves, the others stand at their defaults. Two controls that act together (`Explorer.together`) get a grid of frames
as well, one for each pair of their settings. Frames and sentences come from `Explorer.frame`, as in the notebook.
Rendering costs far more than reading, so the result is kept in a folder that is named by a hash of all sources that
may have a say in it.
"""

import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from PIL import Image

from course_lib.editions.cache import fingerprint, folder_of, make_missing
from course_lib.files import new_directory
from course_lib.lessons import contents_of
from course_lib.lessons.catalog import LESSONS, Lesson
from course_lib.teaching import Choice, Explorer, Sentence, Slider, Switch
from course_lib.teaching.quiz import inline_picture, opening, verdict

# The positions of one slider and the colours of a frame, in the order in which they are tried until an explorer is small
# enough. Fewer colours come last: they are for frames of much text, one for each of many choices.
ROWS = ((9, 64), (7, 64), (5, 64), (3, 64), (3, 32))
LIMIT = 1_500_000  # bytes an explorer
DPI = 110
WIDEST = 960  # pixels of a frame, about as many as the page shows


def gather(
    cache: Path, *, workers: int = 1, lessons: Sequence[Lesson] = LESSONS
) -> dict[str, dict[str, Any]]:
    """Return the facts of each lesson by its number, from `cache` where its sources have not changed.

    `workers` is the number of processes. The folder of a lesson, `cache / facts["folder"]`, holds its frames.

    Raises:
        ValueError: `workers` is below 1, or an explorer does not fit into its limit.
    """
    cache.mkdir(parents=True, exist_ok=True)
    folders = {lesson: folder_of(cache, lesson, fingerprint(lesson)) for lesson in lessons}
    make_missing(write, {lesson: (lesson,) for lesson in lessons}, folders, workers=workers)
    facts = {}
    for lesson, folder in folders.items():
        facts[lesson.number] = json.loads((folder / "facts.json").read_text(encoding="utf-8"))
        facts[lesson.number]["folder"] = folder.name
    return facts


def write(lesson: Lesson, folder: Path) -> None:
    """Render the explorers of a lesson into `folder` and write `facts.json` beside them."""
    import torch

    torch.set_num_threads(1)
    register = contents_of(lesson)
    predictions = {number: ask.example() for number, ask in register.predictions.items()}
    with new_directory(folder) as made:
        facts = {
            "symbols": register.symbols,
            "predictions": {
                number: {"choices": list(one.choices.items()), "answer": one.answer}
                for number, one in predictions.items()
            },
            "sentences": [sentence(one) for one in register.sentences.values()],
            "hints": {number: list(exercise.hints) for number, exercise in register.exercises.items()},
            "explorers": {name: render_rows(kind, made / name) for name, kind in register.explorers.items()},
        }
        (made / "facts.json").write_text(json.dumps(facts, ensure_ascii=False), encoding="utf-8")


def sentence(about: Sentence) -> dict[str, Any]:
    """Return a sentence of a quiz with its answer; what decides is run here."""
    shown = about.shown()
    return {
        "id": about.id,
        "text": about.text,
        "options": list(about.options),
        "right": about.right,
        "verdict": opening(verdict(about)),
        "why": about.explanation,
        "measured": shown.text,
        "picture": inline_picture(shown.figure),
    }


def render_rows(kind: type[Explorer], folder: Path, *, limit: int = LIMIT) -> dict[str, Any]:
    """Render a row of frames for every control of an explorer, as WebP files in `folder`; return what they show.

    Shapes: of `controls`, each has as many `values` as `words` and `files`; `default` is the index of the default
    in them. `grid`, None where no two controls act together, has the places of the two in `controls`, and `words` and
    `files` with a line for each value of the first and in it an entry for each value of the second. Units: `size` in
    pixels of the page, `bytes` of all files together, at most `limit`.

    Raises:
        ValueError: even with three positions a slider and 32 colours the files are larger than `limit`.
    """
    # The notebook's frames are made for twice the pixels of a page.
    explorer = type(kind.__name__, (kind,), {"dpi": min(DPI, WIDEST / kind.size[0])})()
    slides = any(isinstance(control, Slider) for control in explorer.controls.values())
    for positions, colours in ROWS if slides else ROWS[-2:]:
        made = _rows(explorer, positions, colours)
        size = sum(len(picture) for picture in made["pictures"].values())
        if size <= limit:
            break
    else:
        raise ValueError(f"the frames of {kind.__name__} take {size} bytes, and at most {limit} are allowed")
    folder.mkdir(parents=True, exist_ok=True)
    for name, picture in made.pop("pictures").items():
        (folder / name).write_bytes(picture)
    return {**made, "bytes": size}


def _rows(explorer: Explorer, positions: int, colours: int) -> dict[str, Any]:
    defaults = {name: control.default for name, control in explorer.controls.items()}
    settings = {name: settings_of(control, positions) for name, control in explorer.controls.items()}
    pictures, said = {}, {}

    def frame(changed: dict[str, Any]) -> str:
        """The file of a setting; a setting that is met again is not drawn again."""
        moved = [name for name, value in changed.items() if value != defaults[name]]
        places = [f"{list(settings).index(name)}-{settings[name].index(changed[name])}" for name in moved]
        file = f"{'_'.join(places) or 'default'}.webp"
        if file not in pictures:
            png, said[file] = explorer.frame(**{**defaults, **changed})
            pictures[file] = encode_frame(png, colours)
        return file

    controls = []
    for name, control in explorer.controls.items():
        files = [frame({name: value}) for value in settings[name]]
        controls.append(
            {
                "label": control.description if isinstance(control, Slider) else control.label,
                "about": control.tooltip,
                "symbol": control.symbol if isinstance(control, Slider) else "",
                "kind": "slider" if isinstance(control, Slider) else "choice",
                "values": [format_setting(control, value) for value in settings[name]],
                "default": settings[name].index(control.default),
                "files": files,
                "words": [said[file] for file in files],
            }
        )
    grid = None
    if explorer.together:
        one, other = explorer.together
        files = [[frame({one: a, other: b}) for b in settings[other]] for a in settings[one]]
        grid = {
            "controls": [list(settings).index(name) for name in explorer.together],
            "files": files,
            "words": [[said[file] for file in line] for line in files],
        }
    return {
        "title": explorer.title,
        "summary": explorer.summary,
        "size": [round(96 * inches) for inches in explorer.size],
        "controls": controls,
        "grid": grid,
        "pictures": pictures,
    }


def settings_of(control: Any, positions: int) -> list[Any]:
    """Return the settings of a row: all options of a choice, or at most `positions` of a slider.

    Those of a slider are nearly even, lie on its steps, and the ends and the default are among them.
    """
    if isinstance(control, Choice):
        return list(control.options)
    if isinstance(control, Switch):
        return [False, True]
    if not isinstance(control, Slider):
        return list(dict.fromkeys(control.values()))
    steps = round((control.maximum - control.minimum) / control.step)
    default = round((control.default - control.minimum) / control.step)
    # The share of positions on either side of the default is that of the slider's length.
    count = min(positions - 1, steps)
    left = min(max(round(count * default / steps), default > 0), count - (default < steps))
    indices = {round(default * i / left) for i in range(left)} if left else set()
    right = count - left
    indices |= (
        {default + round((steps - default) * i / right) for i in range(right + 1)} if right else {default}
    )
    exact = {0: control.minimum, default: control.default, steps: control.maximum}
    values = [exact.get(i, control.minimum + i * control.step) for i in sorted(indices)]
    return [value if control.whole else float(f"{value:.10g}") for value in values]


def format_setting(control: Any, value: Any) -> str:
    """Return a setting as the page shows it beside the control."""
    if isinstance(control, Slider):
        return f"{value:g}" + (f" {control.unit}" if control.unit else "")
    if isinstance(control, Switch):
        return "on" if value else "off"
    return str(value) or "(empty)"


def encode_frame(png: bytes, colours: int) -> bytes:
    """Encode a frame as lossless WebP of few colours: lines stay sharp, and it is a fraction of the PNG's size."""
    drawn = Image.open(io.BytesIO(png)).convert("RGB")
    few = drawn.quantize(colours, method=Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
    made = io.BytesIO()
    few.convert("RGB").save(made, format="webp", lossless=True, method=2)
    return made.getvalue()
