"""Exercises that know their wrong answers.

An answer is judged by what it does. Fresh random inputs are drawn, the answer is called on them, and each
property of the right solution is tested on its outputs. Where one fails, the outputs are compared with those
of the named wrong solutions of the mistake bank; as long as several of them agree with the answer, more
inputs are drawn. The learner reads the sentence of the one that is left, or the smallest counterexample.

A test (of a property, or of a mistake) is a function whose parameters are named after what it looks at: inputs, the
entries of an answer that is a dictionary, or `answer` for the answer as a whole.

A function is called where it can be stopped (`course_lib.teaching.sandbox` says where that is), and everything that
decides is computed in the kernel, with the libraries as they were when the kit was imported.
"""

import hashlib
import html
import inspect
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal

import ipywidgets
import numpy as np
import torch
from IPython import get_ipython
from IPython.display import Markdown, display

from course_lib.teaching.beside import beside
from course_lib.teaching.originals import original_libraries
from course_lib.teaching.progress import Progress
from course_lib.teaching.sandbox import (
    MEMORY,
    EndedError,
    Outcome,
    TimeLimitError,
    call_each,
    call_ours,
    does_nothing,
)
from course_lib.teaching.sources import Edit, edit, edited, edited_source, source_of
from course_lib.teaching.words import PANEL_CLASS, Words, answer_while_busy
from course_lib.teaching.written import as_float, difference, direction, is_number, shown, typed_inputs

__all__ = [
    "Edit",
    "Exercise",
    "Mistake",
    "Property",
    "Verdict",
    "but",
    "close",
    "edit",
    "edited",
    "edited_source",
    "near",
    "source_of",
]

N_CASES = 40
ROUNDS_TO_TELL_APART = 25
LINES_SHOWN = 10  # of what an answer prints
EXTREME = 1e6  # size of a number, or number of entries, from which a value is judged under limits
TOO_LARGE = "{} was given, and the tests cannot compute with a value of this size. Try a smaller one."
KINDS = {"value": "compute a value", "function": "write a function", "flaw": "find the flaw"}
FORBIDDEN = {
    "autograd": "The numbers are right, but the prompt asks for a derivative written by you, without autograd.",
    "loop": "The numbers are right, but the prompt asks for no Python loop over the input.",
    "overwritten inputs": "The numbers are right, but the prompt asks to leave the inputs as they are, and your "
    "function changes one of them. Work on a copy.",
}


@dataclass(frozen=True)
class Property:
    """A fact that every right output satisfies, with the sentence to read where it does not."""

    sentence: str
    holds: Callable[..., bool]


@dataclass(frozen=True)
class Mistake:
    """A named wrong solution and the sentence that explains it.

    `solution` is a value or a function, or an `edit` of the reference. An answer is taken for this mistake when its
    outputs equal those of the solution on all inputs drawn. Where many wrong answers share one misunderstanding,
    the test `recognise` decides instead.
    """

    name: str
    solution: Any
    explanation: str
    recognise: Callable[..., bool] | None = None


@dataclass(frozen=True)
class Verdict:
    """What became of an answer: `status`, the line to read, and the start of what the answer printed."""

    status: Literal["not attempted", "solved", "mistake", "malformed", "wrong"]
    message: str
    mistake: str | None = None
    printed: str = ""


# The sign and the colour of a verdict; its words say as much.
SIGNS = {
    "not attempted": ("○", "#767676"),
    "solved": ("✓", "#009E73"),
    "mistake": ("✗", "#D55E00"),
    "wrong": ("✗", "#D55E00"),
    "malformed": ("!", "#E69F00"),
}


@dataclass(frozen=True, repr=False)
class VerdictLine:
    """The line of a verdict, as a page shows it."""

    text: str
    status: str

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        sign, colour = SIGNS[self.status]
        box = f"border-left: 4px solid {colour}; background: {colour}18; padding: 6px 10px; max-width: 70em"
        words = "white-space: pre-wrap; overflow-wrap: break-word; line-height: 1.4"
        return (
            f'<div style="{box}; {words}"><strong style="color: {colour}" aria-hidden="true">{sign}</strong> '
            f"{html.escape(self.text)}</div>"
        )


class HintButton(ipywidgets.VBox):
    """A button that shows the next hint of an exercise below it; the third one stays."""

    def __init__(self, exercise: "Exercise"):
        self._exercise = exercise
        self._button = ipywidgets.Button(tooltip=f"Show the next hint of exercise {exercise.id}")
        self._words = Words()
        self._button.on_click(lambda _: self._show())
        answer_while_busy(self._button)
        super().__init__([self._button, self._words])
        self.add_class(PANEL_CLASS)
        self._label()

    def __repr__(self) -> str:
        """What stands in the place of the button where no kernel runs."""
        return self._exercise.help_line

    def _label(self) -> None:
        self._button.description = f"Hint {self._exercise.next_hint} of {len(self._exercise.hints)}"

    def _show(self) -> None:
        self._words.text = self._exercise.read_hint()
        self._label()


@dataclass(frozen=True)
class Answer:
    """A value that a learner gives, seen as a function of the drawn inputs that ignores them."""

    value: Any

    def __call__(self, *_inputs: Any) -> Any:
        """Return the value, whatever the inputs."""
        return self.value


@dataclass(frozen=True, kw_only=True)
class Exercise:
    """One exercise: prompt, reference, checker, three hints and a mistake bank of at least two.

    A function is judged on fresh inputs, `draw(generator)` by name; an answer of another `kind` is one value, judged
    once. `reference` is a right answer. An output is right when it has all `properties`, and, where `agrees` says so
    in a sentence or there are no properties, when it is that of the reference. `same` decides when two outputs
    count as equal.

    `needs` are what the prompt asks of an answer before it counts, above all of a counterexample: sigma is positive,
    the step is stable. They are tested first and in their order; where one fails, its sentence is read, and no mistake
    is looked for. So a mistake's test need not repeat them: it is asked only where all of them hold *but* a property
    fails. `but(test)` writes that down, and `but()` takes all that is left:

        needs=[("Take sigma > 0.", lambda sigma: sigma > 0)],
        properties=[("Your numbers agree with the formula.", lambda sigma, steps: ...)],
        mistakes=[
            ("one step", {"sigma": 2.0, "steps": 1}, "With one step it is right.", but(lambda steps: steps == 1)),
            ("too slow", {"sigma": 0.1, "steps": 2}, "The two are too close. Take a larger sigma.", but()),
        ],

    `forbids` names what the prompt forbids. A right answer that does it is refused with a sentence about it:

        forbids=("autograd",)            torch computes a derivative, by whatever name it was called
        forbids=("loop",)                a line of the learner's own code runs the more often the larger the input
                                         is, in a loop, a comprehension, a recursion or a function that is mapped
        forbids=("overwritten inputs",)  an input is another one after the call

    A loop is seen where the sizes of the inputs are drawn: let `draw` vary them. One with a fixed number of rounds is
    no loop over the input.

    Raises:
        ValueError: hints or mistakes are missing, `kind` or `difficulty` is unknown, a function comes without
            `draw`, or `forbids` names something else.
    """

    id: str
    title: str
    kind: Literal["value", "function", "flaw"]
    difficulty: int
    minutes: int
    prompt: str
    reference: Any
    hints: tuple[str, str, str]
    mistakes: tuple[Mistake, ...]
    draw: Callable[[torch.Generator], dict[str, Any]] | None = None
    needs: tuple[Property, ...] = ()
    properties: tuple[Property, ...] = ()
    forbids: tuple[str, ...] = ()
    agrees: str | None = None
    same: Callable[[Any, Any], bool] | None = None
    time_limit: float = 5.0

    def __post_init__(self):
        if self.kind not in KINDS or self.difficulty not in (1, 2, 3):
            raise ValueError(
                f"exercise {self.id}: kind must be one of {list(KINDS)} and difficulty 1, 2 or 3, "
                f"got {self.kind!r} and {self.difficulty!r}"
            )
        if len(self.hints) != 3 or len(self.mistakes) < 2:
            raise ValueError(
                f"exercise {self.id}: three hints and at least two mistakes are needed, got "
                f"{len(self.hints)} and {len(self.mistakes)}"
            )
        if self.kind == "function" and self.draw is None:
            raise ValueError(
                f"exercise {self.id}: a function is judged on fresh inputs, and draw= is missing"
            )
        if unknown := [name for name in self.forbids if name not in FORBIDDEN]:
            raise ValueError(
                f"exercise {self.id}: forbids= takes names of {list(FORBIDDEN)}, got {unknown[0]!r}"
            )

    # What the learner calls.

    def check(self, answer: Any) -> None:
        """Judge an answer, say what was found, and keep the result in the progress file."""
        verdict = self.grade(answer, generator=fresh_generator())
        if verdict.status != "not attempted":
            solved, told = verdict.status == "solved", _told_apart(answer, verdict)
            Progress().record_attempt(self.id, solved=solved, mistake=verdict.mistake, answer=told)
        if verdict.printed:
            print(verdict.printed)
        line = f"Exercise {self.id}: {verdict.message}"
        if at_a_page():
            display(VerdictLine(line, verdict.status))
            if verdict.status != "solved":
                display(HintButton(self))
        else:
            print(line)
        if (
            self.kind == "function"
            and verdict.status == "solved"
            and (other := beside(answer, self.reference))
        ):
            print(other)

    def hint(self) -> None:
        """Show the next hint; the third one stays the last."""
        print(self.read_hint())

    @property
    def next_hint(self) -> int:
        """The number of the hint that comes next, from 1."""
        return min(Progress().exercise(self.id)["hints"] + 1, len(self.hints))

    def read_hint(self) -> str:
        """Return the next hint with its number, and remember that it was read."""
        number = self.next_hint
        Progress().record_hint(self.id, number)
        return f"Hint {number} of {len(self.hints)}: {self.hints[number - 1]}"

    @property
    def help_line(self) -> str:
        """How to get a hint by code."""
        return f'Stuck? Run `exercises["{self.id}"].hint()` in a new cell, up to three times.'

    def solution(self) -> None:
        """Show the reference solution, once the exercise is solved or all hints were read."""
        done = Progress().exercise(self.id)
        if not done["solved"] and done["hints"] < len(self.hints):
            print(
                f"The solution opens when exercise {self.id} is solved or all {len(self.hints)} hints were read."
            )
        elif callable(self.reference):
            print(source_of(self.reference))
        else:
            print(f"One right answer: {shown(self.reference)}")

    @property
    def statement(self) -> str:
        """The Markdown above the answer cell: title, kind, difficulty, minutes, prompt, and how to get hints."""
        stars = "★" * self.difficulty + "☆" * (3 - self.difficulty)
        about = f"*{KINDS[self.kind].capitalize()}, difficulty {stars}, about {self.minutes} minutes.*"
        title = self.title if self.title.endswith("?") else f"{self.title}."
        stuck = (
            "Stuck? Run the next cell: a button with hints appears below it. Without a button, run "
            f'`exercises["{self.id}"].hint()` in a new cell.'
        )
        return f"**{self.id} {title}** {about}\n\n{self.prompt}\n\n{stuck}"

    def _ipython_display_(self) -> None:
        display(Markdown(self.statement))

    # What decides.

    def wrong_answer(self, mistake: Mistake) -> Any:
        """Return the mistake's solution as a learner would hand it in: a value, or a function."""
        solution = mistake.solution
        return edited(self.reference, solution) if isinstance(solution, Edit) else solution

    def grade(self, answer: Any, *, generator: torch.Generator) -> Verdict:
        """Judge an answer without printing or recording anything."""
        if answer is ... or (callable(answer) and does_nothing(answer)):
            return Verdict("not attempted", "not attempted yet.")
        wanted = "a function" if self.kind == "function" else "a value, not a function"
        if callable(answer) != (self.kind == "function"):
            return Verdict("malformed", f"{shown(answer)} was given, and the answer should be {wanted}.")
        if answer is None:
            return Verdict("malformed", "None was given. Put your answer in the place of `...`.")
        with original_libraries():
            cases = self._cases(generator)
        if self.kind == "function" and (complaint := _signature_complaint(answer, cases[0])) is not None:
            return Verdict("malformed", complaint)
        try:
            outcomes = self._called(answer, cases, watch=self.forbids)
            if any(outcome.value is ... for outcome in outcomes):
                return Verdict("not attempted", "not attempted yet.")
            with original_libraries() as replaced:
                if self.kind != "function" and _extreme(outcomes[0].value):
                    verdict = self._judged_apart(answer, cases, outcomes, generator)
                else:
                    verdict = self._judged(answer, cases, outcomes, generator)
        except TimeLimitError as stopped:
            return Verdict("malformed", _timeout_message(stopped))
        except EndedError as ended:
            return Verdict("malformed", f"your function {ended}. It should return its answer.")
        message = verdict.message + (_about_replaced(replaced) if replaced else "")
        return replace(verdict, message=message, printed=_printed(outcomes))

    def _called(self, answer: Any, cases: Sequence[dict], *, watch: Sequence[str] = ()) -> list[Outcome]:
        if self.kind != "function":
            return list(call_ours(Answer(answer), cases))
        return call_each(answer, cases, seconds=self.time_limit, watch=watch)

    def _judged(self, answer, cases, outcomes, generator) -> Verdict:
        expected = self._expected(cases)
        complaints = [_complaint(o, e) for o, e in zip(outcomes, expected, strict=True)]
        judged = list(zip(cases, outcomes, complaints, expected, strict=True))
        unmet = [
            (case, outcome, need.sentence, right)
            for case, outcome, complaint, right in judged
            for need in self.needs
            if complaint is None and not _says(need.holds, case, outcome.value)
        ]
        failing = unmet or [
            (case, outcome, sentence, right)
            for case, outcome, complaint, right in judged
            if (sentence := complaint or self._broken_property(case, outcome.value, right)) is not None
        ]
        if not failing:
            return self._forbidden(outcomes) or Verdict("solved", "solved.")
        mistake = None if unmet else self._recognised(answer, cases, outcomes, expected, generator)
        if mistake is not None:
            return Verdict("mistake", mistake.explanation, mistake.name)
        if malformed := [pair for pair in zip(cases, complaints, strict=True) if pair[1] is not None]:
            case, complaint = min(malformed, key=lambda pair: _size(pair[0]))
            called = f" It was called with {typed_inputs(case)}." if self.kind == "function" else ""
            return Verdict("malformed", complaint + called)
        return Verdict("wrong", self._counterexample(failing))

    def _judged_apart(self, answer, cases, outcomes, generator) -> Verdict:
        """Judge a value where it can be stopped: a test may compute as many steps, or entries, as the value says."""

        def judge() -> tuple:
            verdict = self._judged(answer, cases, outcomes, generator)
            return verdict.status, verdict.message, verdict.mistake

        try:
            (judged,) = call_each(judge, [{}], seconds=self.time_limit)
        except (TimeLimitError, EndedError):
            return Verdict("malformed", TOO_LARGE.format(shown(answer)))
        if judged.raised:
            return Verdict("malformed", TOO_LARGE.format(shown(answer)))
        return Verdict(*judged.value)

    def _forbidden(self, outcomes: Sequence[Outcome]) -> Verdict | None:
        """Return the refusal of right outputs that came about in a way that the prompt forbids."""
        watched = [dict(outcome.watched) for outcome in outcomes]
        for name in self.forbids:
            if name != "loop":
                if any(name in seen for seen in watched):
                    return Verdict("mistake", FORBIDDEN[name], name)
                continue
            runs = sorted((seen["loop"] for seen in watched if "loop" in seen), key=lambda run: run[1])
            if runs and runs[0][1] < runs[-1][1]:
                line, most = runs[-1]
                said = f" Line {line} of yours runs {most} times for one of the inputs, {runs[0][1]} for another."
                return Verdict("mistake", FORBIDDEN[name] + said, name)
        return None

    def count_right(self, answer: Any, *, generator: torch.Generator) -> tuple[int, int]:
        """Return how many results of an answer are right, and how many there are.

        Those of a function are its outputs on fresh inputs. A value that is asked for as a dictionary of several numbers
        has each of them, beside the right others; any other value, and a counterexample, is one result. Of an answer that
        cannot be judged within the limits none is right.
        """
        entries = self.kind == "value" and isinstance(self.reference, dict)
        total = len(self.reference) if entries else N_CASES if self.kind == "function" else 1
        if callable(answer) != (self.kind == "function") or (self.kind != "function" and _extreme(answer)):
            return 0, total
        with original_libraries():
            cases = self._cases(generator)
        try:
            outcomes = self._called(answer, cases)
        except (TimeLimitError, EndedError):
            return 0, total
        with original_libraries():
            judged = [
                (case, outcome.value, right)
                for case, outcome, right in zip(cases, outcomes, self._expected(cases), strict=True)
                if _complaint(outcome, right) is None
            ]
            if entries:
                judged = [
                    (case, right | {n: value[n]}, right) for case, value, right in judged for n in right
                ]
            return sum(self._is_right(*one) for one in judged), total

    def _is_right(self, case: Mapping, value: Any, expected: Any) -> bool:
        met = all(_says(need.holds, case, value) for need in self.needs)
        return met and self._broken_property(case, value, expected) is None

    def _cases(self, generator: torch.Generator) -> list[dict[str, Any]]:
        return [{}] if self.kind != "function" else [self.draw(generator) for _ in range(N_CASES)]

    def _reference_function(self) -> Callable:
        return self.reference if self.kind == "function" else Answer(self.reference)

    def _expected(self, cases: Sequence[dict]) -> list[Any]:
        function = self._reference_function()
        return [function(*case.values()) for case in cases]

    def _broken_property(self, case: Mapping, value: Any, expected: Any) -> str | None:
        for prop in self.properties:
            if not _says(prop.holds, case, value):
                return prop.sentence
        if (self.agrees or not self.properties) and not (self.same or close)(value, expected):
            if self.kind == "function":
                return self.agrees or ""
            return " ".join(filter(None, [self.agrees, direction(expected, value)]))
        return None

    def _recognised(self, answer, cases, outcomes, expected, generator) -> Mistake | None:
        """Return the one mistake that behaves as the answer does, drawing more inputs while several do."""
        candidates = list(self.mistakes)
        for _ in range(ROUNDS_TO_TELL_APART):
            candidates = [m for m in candidates if self._agrees(m, cases, outcomes, expected)]
            if len(candidates) <= 1 or self.kind != "function":
                break
            cases = self._cases(generator)
            outcomes = self._called(answer, cases)
            expected = self._expected(cases)
        return candidates[0] if candidates else None

    def _agrees(self, mistake: Mistake, cases, outcomes, expected) -> bool:
        if mistake.recognise is not None:
            return all(
                _complaint(o, e) is None and _says(mistake.recognise, case, o.value)
                for case, o, e in zip(cases, outcomes, expected, strict=True)
            )
        wrong = self.wrong_answer(mistake)
        wrong = wrong if self.kind == "function" else Answer(wrong)
        # Most mistakes differ on the first input: the others are called only where that one does not tell.
        return all(
            self._alike(theirs, mine, e)
            for some in (slice(1), slice(1, None))
            for theirs, mine, e in zip(
                call_ours(wrong, cases[some]), outcomes[some], expected[some], strict=True
            )
        )

    def _alike(self, a: Outcome, b: Outcome, expected: Any) -> bool:
        """Whether two calls did the same: an error of the same kind, or equal outputs."""
        if a.raised or b.raised:
            return a.raised and b.raised and a.error.kind == b.error.kind
        # `same` may rely on outputs of the right form; a learner's output may have any.
        well_formed = _complaint(a, expected) is None and _complaint(b, expected) is None
        return (self.same if self.same and well_formed else close)(a.value, b.value)

    def _counterexample(self, failing) -> str:
        case, outcome, sentence, expected = min(failing, key=lambda item: _size(item[0]))
        if self.kind != "function":
            return f"not yet. {sentence}"
        told = " ".join(filter(None, ["not yet.", sentence, "The smallest counterexample found: for"]))
        return f"{told} {typed_inputs(case)} {difference(expected, outcome.value)}."


def but(test: Callable[..., bool] | None = None) -> Callable[..., bool]:
    """Return the test of a mistake that all `needs` of the exercise meet, but a property fails, and `test` holds.

    A mistake's test is asked only then; without `test` the mistake takes every such answer, so that it stands last.
    """
    return (lambda: True) if test is None else test


def at_a_page() -> bool:
    """Whether a learner sees this in JupyterLab, which names its session; where a notebook is run alone nobody does."""
    return hasattr(get_ipython(), "kernel") and "JPY_SESSION_NAME" in os.environ


def _told_apart(answer: Any, verdict: Verdict) -> str | None:
    """Return what tells an answer from the one before it, None where nothing does.

    That is the source of a function, or the value, and what became of it: a function may call another one, and that one
    may have changed.
    """
    try:
        written = inspect.getsource(answer) if callable(answer) else repr(_in_full(answer))
    except (OSError, TypeError):  # it has no source
        return None
    return hashlib.sha256(f"{written} {verdict.status} {verdict.mistake}".encode()).hexdigest()[:16]


def _in_full(value: Any) -> Any:
    """Return a value with lists in the place of tensors and arrays, whose `repr` leaves digits and entries out."""
    if isinstance(value, dict):
        return {key: _in_full(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_in_full(entry) for entry in value]
    small = isinstance(value, torch.Tensor | np.ndarray) and math.prod(value.shape) < EXTREME
    return value.tolist() if small else value


def fresh_generator() -> torch.Generator:
    """Return a generator whose numbers differ at every call."""
    generator = torch.Generator()
    generator.seed()
    return generator


def _timeout_message(stopped: TimeLimitError) -> str:
    if stopped.ended:
        return f"{stopped}. Does a loop in your function never end?"
    return (
        f"{stopped}, but something in it could not be interrupted and still runs in the background. "
        "If the kernel stays slow, restart it."
    )


def _about_replaced(names: Sequence[str]) -> str:
    others = {1: " was", 2: " and one other function were"}.get(
        len(names), f" and {len(names) - 1} other functions were"
    )
    return f" (In this kernel {names[0]}{others} replaced. You were judged with the library's own.)"


def _printed(outcomes: Sequence[Outcome]) -> str:
    """Return the start of what an answer printed, and say how much it was."""
    first = next((outcome.printed for outcome in outcomes if outcome.printed.strip()), "")
    lines = first.splitlines()[:LINES_SHOWN]
    total = sum(outcome.lines for outcome in outcomes)
    if total > len(lines):
        start = f"these are the first {len(lines)}"
        lines.append(f"(Your function printed {total:,} lines in {len(outcomes)} calls: {start}.)")
    return "\n".join(lines)


def _extreme(value: Any) -> bool:
    """Whether a value holds a number, or a count of entries, so large that tests may take for ever on it."""
    if isinstance(value, dict | list | tuple):
        entries = value.values() if isinstance(value, dict) else value
        return len(value) >= EXTREME or any(_extreme(entry) for entry in entries)
    if isinstance(value, torch.Tensor) and value.ndim > 0:
        return value.numel() >= EXTREME or (
            value.dtype != torch.bool and bool((value.abs() >= EXTREME).any())
        )
    return is_number(value) and abs(as_float(value)) >= EXTREME


def _signature_complaint(function: Callable, case: Mapping[str, Any]) -> str | None:
    try:
        inspect.signature(function).bind(*case.values())
    except TypeError as error:
        return f"your function must take {len(case)} arguments ({', '.join(case)}): {error}."
    except ValueError:  # builtins without a signature are called as they are
        return None
    return None


def _says(test: Callable, case: Mapping, value: Any) -> bool:
    """Whether a test holds; one that a number makes overflow or divide by zero does not."""
    known = {**case, **(value if isinstance(value, dict) else {}), "answer": value}
    try:
        return bool(test(**{name: known[name] for name in _parameters(test)}))
    except ArithmeticError:
        return False


@cache
def _parameters(test: Callable) -> tuple[str, ...]:
    return tuple(inspect.signature(test).parameters)


def _complaint(outcome: Outcome, expected: Any) -> str | None:
    """Say in one line what is wrong with the form of an output, before its value is looked at."""
    value = outcome.value
    if outcome.raised:
        where = f" at {outcome.line}" if outcome.line else ""
        said = outcome.error.text
        if outcome.error.name == "MemoryError" and not said:
            said = f"it may take {MEMORY / 2**30:.0f} GiB"
        return f"your function raised {outcome.error.name}{where}" + (f" ({said})." if said else ".")
    if value is None:
        return "your function returned None. Is a `return` missing?"
    if isinstance(expected, torch.Tensor) and expected.ndim > 0:
        if not isinstance(value, torch.Tensor):
            return f"a torch.Tensor of shape {tuple(expected.shape)} is expected, you gave {shown(value)}."
        if value.shape != expected.shape:
            return f"the shape should be {tuple(expected.shape)}, yours is {tuple(value.shape)}."
        if value.dtype != expected.dtype:
            return f"the dtype should be {expected.dtype}, yours is {value.dtype}."
        if not torch.isfinite(value).all():
            return "your output contains NaN or infinity."
    elif isinstance(expected, dict):
        if not isinstance(value, dict) or set(value) != set(expected):
            return f"a dictionary with the keys {list(expected)} is expected, you gave {shown(value)}."
        texts = {key for key in expected if isinstance(expected[key], str)}
        if unfit := [key for key in expected if key in texts and not isinstance(value[key], str)]:
            return f"{unfit[0]!r} should be a string, you gave {shown(value[unfit[0]])}."
        if unfit := [key for key in expected if key not in texts and not is_number(value[key])]:
            return f"{unfit[0]!r} should be a number, you gave {shown(value[unfit[0]])}."
        if unfit := [key for key in expected if key not in texts and not math.isfinite(as_float(value[key]))]:
            return f"{unfit[0]!r} should be a finite number, you gave {shown(value[unfit[0]])}."
    elif isinstance(expected, str):
        if not isinstance(value, str):
            return f"a string is expected, you gave {shown(value)}."
    elif is_number(expected):
        if not is_number(value):
            return f"a single number is expected, you gave {shown(value)}."
        if not math.isfinite(as_float(value)):
            return f"a finite number is expected, you gave {shown(value)}."
    return None


def close(a: Any, b: Any, *, rtol: float = 1e-6, atol: float = 1e-9) -> bool:
    """Whether two outputs are equal up to rounding; NaN equals NaN, other kinds compare by ==."""
    if isinstance(a, dict) and isinstance(b, dict):
        return set(a) == set(b) and all(close(a[key], b[key], rtol=rtol, atol=atol) for key in a)
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor) and max(a.ndim, b.ndim) > 0:
        if a.shape != b.shape or a.is_complex() != b.is_complex():
            return False
        wide = torch.complex128 if a.is_complex() else torch.float64
        return torch.allclose(a.to(wide), b.to(wide), rtol=rtol, atol=atol, equal_nan=True)
    if is_number(a) and is_number(b):
        a, b = as_float(a), as_float(b)
        return a == b or (math.isnan(a) and math.isnan(b)) or math.isclose(a, b, rel_tol=rtol, abs_tol=atol)
    return type(a) is type(b) and not isinstance(a, torch.Tensor) and bool(a == b)


def near(value: float | int, *, within: float | int) -> Callable[..., bool]:
    """Return a test that recognises a value that learners round, by its distance from `value`."""
    return lambda answer: abs(answer - value) < within


def _size(case: Mapping[str, Any]) -> float:
    """Order inputs by how much there is to read, then by magnitude."""
    total = 0.0
    for value in case.values():
        if isinstance(value, torch.Tensor) and value.is_complex():
            value = value.abs()
        tensor = torch.as_tensor(value, dtype=torch.float64) if not isinstance(value, str) else torch.zeros(1)
        total += 100 * tensor.numel() + float(tensor.abs().sum())
    return total
