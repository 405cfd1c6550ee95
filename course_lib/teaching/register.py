"""What a lesson holds: one register of its symbols, figures, explorers, predictions, exercises and sentences to judge.

A lesson's package makes it in `contents.py`, where its other modules import it from, and offers it as `lesson`.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any

from matplotlib.figure import Figure

from course_lib.teaching.exercise import Exercise, Mistake, Property
from course_lib.teaching.explorer import Explorer
from course_lib.teaching.laws import Inputs
from course_lib.teaching.layout import panels
from course_lib.teaching.prediction import Prediction, the_right_one
from course_lib.teaching.quiz import Quiz, Sentence
from course_lib.teaching.style import describe, new_figure, styled


class Contents:
    """The figures, explorers, predictions, exercises and sentences of one lesson, by name or number, in order.

    `symbols` are those that its text introduces, in TeX, each with what it stands for.
    """

    def __init__(self, *, symbols: Mapping[str, str] | None = None):
        self.symbols: dict[str, str] = dict(symbols or {})
        self.figures: dict[str, Callable[[], Figure]] = {}
        self.explorers: dict[str, type[Explorer]] = {}
        self.predictions: dict[str, Callable[..., Prediction]] = {}
        self.exercises: dict[str, Exercise] = {}
        self.sentences: dict[str, Sentence] = {}

    def figure(
        self,
        title: str | list[str] | None = None,
        x: str | list[str] | None = None,
        y: str | list[str] | None = None,
        *,
        size: tuple[float | int, float | int] | None = None,
        example: Callable[[], Any] | None = None,
        variants: Mapping[str, Mapping[str, Any]] | None = None,
        **layout: Any,
    ) -> Callable[[Callable[..., str]], Callable[..., Figure]]:
        """Register a figure `plot_NAME(*axes, ...)` that draws on the axes and returns its text alternative.

        The axes are declared as by `panels`; `size` is in inches, by default 6.4 x 4 for
        one axes, 8.8 or 11.4 x 3.8 for two or three side by side. The function that is returned makes the figure, so it
        takes the further arguments only. Where those have no defaults, `example` returns the first of them (or a tuple
        of them) for the picture that tests and `make figures` draw; `variants` registers several pictures, each by its
        keyword arguments.
        """
        declared = panels(title, x, y, **layout)
        rows, columns = declared.grid
        width, height = size or ({1: 6.4, 2: 8.8, 3: 11.4}[columns], rows * (4.0 if columns == 1 else 3.8))

        def register(draw: Callable[..., str]) -> Callable[..., Figure]:
            @styled
            @wraps(draw)
            def plot(*args: Any, **kwargs: Any) -> Figure:
                figure = new_figure(width, height)
                axes = declared.make(figure)
                text = draw(*axes, *args, **kwargs)
                declared.legends(axes)
                return describe(figure, text)

            def given() -> tuple:
                arguments = () if example is None else example()
                return arguments if isinstance(arguments, tuple) else (arguments,)

            def shown(**kwargs: Any) -> Figure:
                return plot(*given(), **kwargs)

            plot.given, plot.example = given, shown
            plot.__signature__ = _without_axes(draw, declared.grid[0] * declared.grid[1])
            for name, kwargs in (variants or {draw.__name__.removeprefix("plot_"): {}}).items():
                self._add(self.figures, name, lambda kwargs=kwargs: shown(**kwargs))
            return plot

        return register

    def explorer(self, kind: type[Explorer]) -> type[Explorer]:
        """Register an explorer; its strip is the figure "explorer", a second one's is named by its class."""
        name = "explorer" if "explorer" not in self.figures else kind.__name__.lower()
        self._add(self.explorers, kind.__name__, kind)
        self._add(self.figures, name, lambda: kind().strip())
        return kind

    def prediction(
        self,
        number: str,
        question: str,
        choices: Mapping[str, str] | Callable[..., Mapping[str, str]],
        *,
        answer: str | None = None,
        reveal: Callable[..., Figure],
    ) -> Callable[..., Prediction]:
        """Register a prediction; return what a notebook calls to ask it.

        The right choice is named by `answer`, or its sentence is marked: `right("...")`.

        The arguments of that call, what the page has measured, go on to `reveal`, and to `choices` where that is a
        function: its sentences then say what was measured.
        """

        def asked(said: Mapping[str, str], draw: Callable[[], Figure]) -> Prediction:
            return Prediction(number, question, choices=said, answer=answer, reveal=draw)

        def ask(*args: Any, **kwargs: Any) -> Prediction:
            inspect.signature(reveal).bind(
                *args, **kwargs
            )  # a call that the figure cannot take fails before the guess
            return asked(
                choices(*args, **kwargs) if callable(choices) else choices, lambda: reveal(*args, **kwargs)
            )

        def example() -> Prediction:
            if callable(choices):
                return ask(*getattr(reveal, "given", tuple)())
            return asked(choices, getattr(reveal, "example", reveal))

        ask.__doc__ = f"Ask prediction {number}: {question}"
        ask.question = question
        ask.reveal = reveal
        ask.example = example
        if not callable(choices):
            the_right_one(choices, answer)
        self._add(self.predictions, number, ask)
        return ask

    def sentence(
        self, number: str, text: str, *, answer: bool | str, conditions: Sequence[str] = ()
    ) -> Callable[[Callable], Callable]:
        """Register a sentence of the quiz; the decorated function computes what decides, its docstring says why."""

        def register(run: Callable) -> Callable:
            sentence = Sentence(number, text, answer=answer, run=run, conditions=tuple(conditions))
            self._add(self.sentences, number, sentence)
            return run

        return register

    def quiz(self) -> Quiz:
        """Return the quiz of all sentences, for the page to show."""
        return Quiz(list(self.sentences.values()))

    def exercise(
        self, number: str, title: str, *, draw: Inputs | Callable[..., dict], **about: Any
    ) -> Callable[[Callable], Callable]:
        """Register the decorated function as the reference of an exercise; `about` is what `Exercise` takes.

        The function's docstring and body are what `solution()` shows.
        """

        def register(reference: Callable) -> Callable:
            names = list(inspect.signature(reference).parameters)

            def drawn(generator):
                made = draw(generator)
                return {name: made[name] for name in names}

            self._judge(number, title, kind="function", reference=reference, draw=drawn, **about)
            return reference

        return register

    def value(self, number: str, title: str, *, answer: Any, **about: Any) -> None:
        """Register an exercise whose answer is one value; `answer` is a right one."""
        self._judge(number, title, kind="value", reference=answer, **about)

    def flaw(self, number: str, title: str, *, answer: Any, **about: Any) -> None:
        """Register an exercise that asks for a counterexample; `answer` is one."""
        self._judge(number, title, kind="flaw", reference=answer, **about)

    def _judge(
        self,
        number: str,
        title: str,
        *,
        mistakes: Sequence[tuple],
        needs: Sequence[tuple] = (),
        properties: Sequence[tuple] = (),
        **about,
    ) -> None:
        exercise = Exercise(
            id=number,
            title=title,
            mistakes=tuple(Mistake(*row) for row in mistakes),
            needs=tuple(Property(*row) for row in needs),
            properties=tuple(Property(*row) for row in properties),
            **about,
        )
        self._add(self.exercises, number, exercise)

    @staticmethod
    def _add(register: dict, name: str, thing: Any) -> None:
        if name in register:
            raise ValueError(f"{name} is registered already; the names so far are {list(register)}")
        register[name] = thing


def _without_axes(draw: Callable, count: int) -> inspect.Signature:
    """The signature of `draw` less the axes that are handed to it."""
    signature = inspect.signature(draw)
    parameters = list(signature.parameters.values())
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    dropped = {p.name for p in positional[:count]}
    return signature.replace(
        parameters=[p for p in parameters if p.name not in dropped and p.kind is not p.VAR_POSITIONAL],
        return_annotation=Figure,
    )
