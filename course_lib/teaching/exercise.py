"""Exercises that know their wrong answers.

An answer is judged by what it does. Fresh random inputs are drawn, the answer is called on them, and each
property of the right solution is tested on its outputs. Where one fails, the outputs are compared with those
of the named wrong solutions of the mistake bank; as long as several of them agree with the answer, more
inputs are drawn. The learner reads the sentence of the one that is left, or the smallest counterexample.

A test (of a property, or of a mistake) is a function whose parameters are named after what it looks at: inputs, the
entries of an answer that is a dictionary, or `answer` for the answer as a whole.
"""

import ast
import inspect
import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from numbers import Real
from typing import Any, Literal

import numpy as np
import torch
from IPython.display import Markdown, display

from course_lib.teaching.progress import Progress
from course_lib.teaching.sandbox import Outcome, TimeLimitError, call_each, does_nothing

N_CASES = 40
ROUNDS_TO_TELL_APART = 25
KINDS = {"value": "compute a value", "function": "write a function", "flaw": "find the flaw"}


@dataclass(frozen=True)
class Property:
    """A fact that every right output satisfies, with the sentence to read where it does not."""

    sentence: str
    holds: Callable[..., bool]


@dataclass(frozen=True)
class Edit:
    """A wrong solution as its difference from the reference: pairs of old and new source text, in order."""

    pairs: tuple[tuple[str, str], ...]


def edit(*texts: str) -> Edit:
    """Return the edit that puts the second text in the place of the first, the fourth in that of the third, ...

    Raises:
        ValueError: the number of texts is odd or zero.
    """
    if not texts or len(texts) % 2:
        raise ValueError(f"edit takes pairs of old and new text, got {len(texts)} texts")
    return Edit(tuple(zip(texts[::2], texts[1::2], strict=True)))


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
    """What became of an answer: `status` and the line to read."""

    status: Literal["not attempted", "solved", "mistake", "malformed", "wrong"]
    message: str
    mistake: str | None = None


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

    Raises:
        ValueError: hints or mistakes are missing, `kind` or `difficulty` is unknown, or a function comes without
            `draw`.
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
    properties: tuple[Property, ...] = ()
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

    # What the learner calls.

    def check(self, answer: Any) -> None:
        """Judge an answer, say what was found, and keep the result in the progress file."""
        verdict = self.grade(answer, generator=fresh_generator())
        if verdict.status != "not attempted":
            Progress().record_attempt(self.id, solved=verdict.status == "solved", mistake=verdict.mistake)
        print(f"Exercise {self.id}: {verdict.message}")

    def hint(self) -> None:
        """Show the next hint; the third one stays the last."""
        progress = Progress()
        number = min(progress.exercise(self.id)["hints"] + 1, len(self.hints))
        progress.record_hint(self.id, number)
        print(f"Hint {number} of {len(self.hints)}: {self.hints[number - 1]}")

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
            print(f"One right answer: {_show(self.reference)}")

    def _ipython_display_(self) -> None:
        stars = "★" * self.difficulty + "☆" * (3 - self.difficulty)
        about = f"*{KINDS[self.kind].capitalize()}, difficulty {stars}, about {self.minutes} minutes.*"
        help_line = f'Stuck? Run `exercises["{self.id}"].hint()` in a new cell, up to three times.'
        title = self.title if self.title.endswith("?") else f"{self.title}."
        display(Markdown(f"**{self.id} {title}** {about}\n\n{self.prompt}\n\n{help_line}"))

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
            return Verdict("malformed", f"{_show(answer)} was given, and the answer should be {wanted}.")
        if answer is None:
            return Verdict("malformed", "None was given. Put your answer in the place of `...`.")
        cases = self._cases(generator)
        function = answer if self.kind == "function" else Answer(answer)
        if (complaint := _signature_complaint(function, cases[0])) is not None:
            return Verdict("malformed", complaint)
        try:
            outcomes = call_each(function, cases, seconds=self.time_limit)
            if any(outcome.value is ... for outcome in outcomes):
                return Verdict("not attempted", "not attempted yet.")
            expected = self._expected(cases)
            complaints = [_complaint(o, e) for o, e in zip(outcomes, expected, strict=True)]
            failing = [
                (case, outcome, sentence)
                for case, outcome, complaint, right in zip(cases, outcomes, complaints, expected, strict=True)
                if (sentence := complaint or self._broken_property(case, outcome.value, right)) is not None
            ]
            if not failing:
                return Verdict("solved", "solved.")
            mistake = self._recognised(function, cases, outcomes, expected, generator)
        except TimeLimitError as stopped:
            return Verdict("malformed", _timeout_message(stopped))
        if mistake is not None:
            return Verdict("mistake", mistake.explanation, mistake.name)
        if malformed := [pair for pair in zip(cases, complaints, strict=True) if pair[1] is not None]:
            case, complaint = min(malformed, key=lambda pair: _size(pair[0]))
            called = f" It was called with {_inputs(case)}." if self.kind == "function" else ""
            return Verdict("malformed", complaint + called)
        return Verdict("wrong", self._counterexample(failing))

    def share_right(self, answer: Any, *, generator: torch.Generator) -> float:
        """Return the share, 0 to 1, of fresh inputs on which a well-formed answer gives a right output."""
        function = answer if self.kind == "function" else Answer(answer)
        cases = self._cases(generator)
        outcomes = call_each(function, cases, seconds=self.time_limit)
        right = [
            _complaint(outcome, expected) is None
            and self._broken_property(case, outcome.value, expected) is None
            for case, outcome, expected in zip(cases, outcomes, self._expected(cases), strict=True)
        ]
        return sum(right) / len(right)

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
            return self.agrees or "Another result is expected."
        return None

    def _recognised(self, function, cases, outcomes, expected, generator) -> Mistake | None:
        """Return the one mistake that behaves as the answer does, drawing more inputs while several do."""
        candidates = list(self.mistakes)
        for _ in range(ROUNDS_TO_TELL_APART):
            candidates = [m for m in candidates if self._agrees(m, cases, outcomes, expected)]
            if len(candidates) <= 1 or self.kind != "function":
                break
            cases = self._cases(generator)
            outcomes = call_each(function, cases, seconds=self.time_limit)
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
                call_each(wrong, cases[some], seconds=self.time_limit),
                outcomes[some],
                expected[some],
                strict=True,
            )
        )

    def _alike(self, a: Outcome, b: Outcome, expected: Any) -> bool:
        """Whether two calls did the same: an error of the same kind, or equal outputs."""
        if a.raised or b.raised:
            return a.raised and b.raised and type(a.error) is type(b.error)
        # `same` may rely on outputs of the right form; a learner's output may have any.
        well_formed = _complaint(a, expected) is None and _complaint(b, expected) is None
        return (self.same if self.same and well_formed else close)(a.value, b.value)

    def _counterexample(self, failing) -> str:
        case, outcome, sentence = min(failing, key=lambda item: _size(item[0]))
        if self.kind != "function":
            return f"not yet. {sentence}"
        expected = self._expected([case])[0]
        return (
            f"not yet. {sentence} The smallest counterexample found: for {_inputs(case)} "
            f"the expected output is {_show(expected)}, yours is {_show(outcome.value)}."
        )


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


def _signature_complaint(function: Callable, case: Mapping[str, Any]) -> str | None:
    try:
        inspect.signature(function).bind(*case.values())
    except TypeError as error:
        return f"your function must take {len(case)} arguments ({', '.join(case)}): {error}."
    except ValueError:  # builtins without a signature are called as they are
        return None
    return None


def source_of(function: Callable) -> str:
    """Return the source of a function from its `def` on, without decorators."""
    source = textwrap.dedent(inspect.getsource(inspect.unwrap(function)))
    start = ast.parse(source).body[0].lineno - 1
    return "".join(source.splitlines(keepends=True)[start:])


def edited_source(reference: Callable, change: Edit) -> str:
    """Return the source of the reference with some of it changed.

    Raises:
        ValueError: an old text does not stand in the source exactly once.
    """
    source = source_of(reference)
    for old, new in change.pairs:
        if (count := source.count(old)) != 1:
            raise ValueError(
                f"{old!r} stands {count} times in {reference.__name__}, and an edit needs it once:\n{source}"
            )
        source = source.replace(old, new)
    return source


@cache
def edited(reference: Callable, change: Edit) -> Callable:
    """Return the reference with some of its source changed.

    Raises:
        ValueError: an old text does not stand in the source exactly once.
    """
    source = edited_source(reference, change)
    scope: dict[str, Any] = {}
    exec(
        compile(source, f"<{reference.__name__} edited>", "exec"),
        inspect.unwrap(reference).__globals__,
        scope,
    )
    return scope[reference.__name__]


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


def _is_number(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return value.ndim == 0 and value.dtype != torch.bool and not value.is_complex()
    if isinstance(value, np.ndarray | np.generic):
        return value.ndim == 0 and value.dtype.kind in "iuf"
    return isinstance(value, Real) and not isinstance(value, bool)


def _as_float(number: Any) -> float:
    """Return a number as a float; a whole number too large for one counts as infinite."""
    try:
        return float(number)
    except OverflowError:
        return math.inf


def _complaint(outcome: Outcome, expected: Any) -> str | None:
    """Say in one line what is wrong with the form of an output, before its value is looked at."""
    value = outcome.value
    if outcome.raised:
        where = f" at {outcome.line}" if outcome.line else ""
        said = " ".join(str(outcome.error).split())
        return f"your function raised {type(outcome.error).__name__}{where}" + (
            f" ({said})." if said else "."
        )
    if value is None:
        return "your function returned None. Is a `return` missing?"
    if isinstance(expected, torch.Tensor) and expected.ndim > 0:
        if not isinstance(value, torch.Tensor):
            return f"a torch.Tensor of shape {tuple(expected.shape)} is expected, you gave {_show(value)}."
        if value.shape != expected.shape:
            return f"the shape should be {tuple(expected.shape)}, yours is {tuple(value.shape)}."
        if value.dtype != expected.dtype:
            return f"the dtype should be {expected.dtype}, yours is {value.dtype}."
        if not torch.isfinite(value).all():
            return "your output contains NaN or infinity."
    elif isinstance(expected, dict):
        if not isinstance(value, dict) or set(value) != set(expected):
            return f"a dictionary with the keys {list(expected)} is expected, you gave {_show(value)}."
        if unfit := [key for key in expected if not _is_number(value[key])]:
            return f"{unfit[0]!r} should be a number, you gave {_show(value[unfit[0]])}."
        if unfit := [key for key in expected if not math.isfinite(_as_float(value[key]))]:
            return f"{unfit[0]!r} should be a finite number, you gave {_show(value[unfit[0]])}."
    elif isinstance(expected, str):
        if not isinstance(value, str):
            return f"a string is expected, you gave {_show(value)}."
    elif _is_number(expected):
        if not _is_number(value):
            return f"a single number is expected, you gave {_show(value)}."
        if not math.isfinite(_as_float(value)):
            return f"a finite number is expected, you gave {_show(value)}."
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
    if _is_number(a) and _is_number(b):
        a, b = _as_float(a), _as_float(b)
        return a == b or (math.isnan(a) and math.isnan(b)) or math.isclose(a, b, rel_tol=rtol, abs_tol=atol)
    return type(a) is type(b) and not isinstance(a, torch.Tensor) and bool(a == b)


def near(value: float | int, *, within: float | int) -> Callable[..., bool]:
    """Return a test that recognises a value that learners round, by its distance from `value`."""
    return lambda answer: abs(answer - value) < within


def _size(case: Mapping[str, Any]) -> float:
    """Order inputs by how much there is to read, then by magnitude."""
    total = 0.0
    for value in case.values():
        tensor = torch.as_tensor(value, dtype=torch.float64) if not isinstance(value, str) else torch.zeros(1)
        total += 100 * tensor.numel() + float(tensor.abs().sum())
    return total


def _show(value: Any) -> str:
    """Write a value the way a learner would type it, short."""
    if callable(value):
        return f"a function ({getattr(value, '__name__', type(value).__name__)})"
    if isinstance(value, torch.Tensor) and value.dtype == torch.bool:
        return f"tensor({value.tolist()})"
    if isinstance(value, torch.Tensor):
        return _show(value.item()) if value.ndim == 0 else f"tensor({[_rounded(v) for v in value.tolist()]})"
    if isinstance(value, bool) or not _is_number(value):
        return " ".join(repr(value).split())
    return f"{_as_float(value) + 0.0:.6g}"  # + 0.0 writes -0.0 as 0


def _inputs(case: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} = {_show(value)}" for name, value in case.items())


def _rounded(value: Any) -> Any:
    return [_rounded(v) for v in value] if isinstance(value, list) else float(f"{value:.4g}") + 0.0
