"""The sentences of lesson 00, each with what decides on it."""

from course_lib.lessons.start_here.contents import lesson
from course_lib.lessons.start_here.numbers import FIRST, NAMES, PART, negated_kinds, sentences_at, stored
from course_lib.lessons.start_here.powers import first_below
from course_lib.measured import measured
from course_lib.teaching import fact


@lesson.sentence(
    "00.Q1",
    "Halving the distance of |f| to 1 doubles the wait until the power is below 0.01.",
    answer="only if |f| is near 1",
    conditions=("only if |f| is near 1", "only if |f| is below 0.9"),
)
def distance_halved():
    """From 0.99 to 0.995 the wait doubles. From 0.5 to 0.75 it grows by more than that."""
    return "\n".join(
        [
            fact(
                "0.995 against 0.99: {:.2f} times as long",
                first_below(0.995) / first_below(0.99),
                equals=2,
                within=0.01,
            ),
            fact("0.75 against 0.5: {:.2f} times as long", first_below(0.75) / first_below(0.5), at_least=2.3),
        ]
    )


@lesson.sentence("00.Q2", "To be below 0.005 takes twice as long as to be below 0.01.", answer=False)
def accuracy_is_cheap():
    """Each further halving takes the same number of multiplications, however small the power is already."""
    waits = [first_below(0.99, level) for level in (0.01, 0.005)]
    return fact(f"0.99: {waits[0]} and then {waits[1]} multiplications, {{:.2f}} times as many", waits[1] / waits[0],
                equals=1.15, within=0.01)  # fmt: skip


@lesson.sentence(
    "00.Q3", "The eight strongest sentences show in which languages number 1733 is active.",
    answer=False,
)  # fmt: skip
def strongest_are_not_typical():
    """The stored list begins with eight Spanish sentences. Of all in which the number is active a quarter is Spanish."""
    top = [language for language, _, _ in sentences_at(FIRST, 0)]
    share = stored(FIRST, "share active")
    spanish = share[list(NAMES).index("es_XX")] / sum(share)
    return "\n".join(
        [
            fact("Spanish among the eight strongest: {:.0%}", top.count("Spanish") / len(top), equals=1, within=0.01),
            fact("among all: {:.0%}", spanish, equals=0.25, within=0.01),
        ]
    )


@lesson.sentence("00.Q4", "There are sentences without a negation in which number 1733 is active.", answer=True)
def false_alarms():
    """A few. So “negation” is a good name and not a perfect one."""
    return fact(
        "active without negation, in stored results: {} of 6,000 sentences",
        stored(FIRST, "active") - measured(PART, "negated and active"),
        at_least=1,
    )


@lesson.sentence(
    "00.Q5",
    "Above a threshold of 1.15 the same number is a detector of negated Spanish questions, with an F1 above 0.8.",
    answer=True,
)
def size_says_more():
    """That it is active says whether a sentence is negated. How strong it is says more."""
    edges = measured(PART, "edges")
    above = {kind: int(counts[edges.index(1.15) :].sum()) for kind, counts in negated_kinds().items()}
    wanted = int(negated_kinds()["Spanish questions"].sum())
    return fact(
        "F1 above 1.15, stored results: {:.2f}",
        2 * above["Spanish questions"] / (sum(above.values()) + wanted),
        at_least=0.8,
    )
