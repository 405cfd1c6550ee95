"""Effects of a change counted over many cases: shares with confidence intervals, to stand beside those of controls."""

from collections.abc import Sequence
from dataclasses import dataclass

from course_lib.language.word_cases import Case, Effect


@dataclass(frozen=True)
class Outcome:
    """Effects counted over `n` cases.

    Numbers of cases: in `changed` the concept's word changed, in `elsewhere` another word (beyond agreement), in
    `agreement` a word that agrees with another one; `exact` became the rendering with another word and `aimed` the one
    with the intended word. Of all other `words`, `words_changed` changed.
    """

    n: int
    changed: int
    elsewhere: int
    agreement: int
    exact: int
    words_changed: int
    words: int
    aimed: int | None = None

    @classmethod
    def of(
        cls, cases: Sequence[Case], effects: Sequence[Effect], aims: Sequence[str] | None = None
    ) -> "Outcome":
        """Count effects. `aims` are the intended concepts, one for each case."""
        became = [effect.became for effect in effects]
        own = [case.concept for case in cases]
        return cls(
            n=len(cases),
            changed=sum(effect.changed for effect in effects),
            elsewhere=sum(effect.others > 0 for effect in effects),
            agreement=sum(effect.agreement > 0 for effect in effects),
            exact=sum(a not in (None, b) for a, b in zip(became, own, strict=True)),
            words_changed=sum(effect.others for effect in effects),
            words=sum(word is not None for case in cases for word in case.frames[0]),
            aimed=None if aims is None else sum(a == b for a, b in zip(became, aims, strict=True)),
        )

    def __add__(self, other: "Outcome") -> "Outcome":
        if (self.aimed is None) != (other.aimed is None):
            raise ValueError("one outcome has aims and the other has none; expected both or neither")
        return Outcome(
            **{
                name: None if value is None else value + vars(other)[name]
                for name, value in vars(self).items()
            }
        )

    def share(self, name: str) -> tuple[float, float, float]:
        """Return the share of cases counted under `name`, and the ends of its 95% interval. Source: Wilson (1927)."""
        from scipy.stats import binomtest  # slow to import

        hits = getattr(self, name)
        interval = binomtest(hits, self.n).proportion_ci(method="wilson")
        return hits / self.n, float(interval.low), float(interval.high)

    def __str__(self) -> str:
        parts = []
        for name in ("changed", "elsewhere", "exact", "aimed"):
            if getattr(self, name) is not None:
                share, low, high = (100 * value for value in self.share(name))
                parts.append(f"{name} {share:.0f} [{low:.0f}..{high:.0f}]")
        return f"n {self.n}, %: " + ", ".join(parts)
