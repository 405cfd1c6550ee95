"""What six numbers of the shipped dictionary respond to: their sentences, strongest first, and their rates by language.

`MEANINGS` held-out meanings in each of the four languages (`course_lib.lessons.start_here.numbers.drawn`): a sentence is
stored as its place among them. A number's strength in a sentence is its largest value over the tokens. It is active where
that exceeds a threshold. Name and threshold are the pair with the best F1 on `CHOSEN_ON` training meanings in four
languages: names are the corpus's concepts, the languages, and a concept in one language; thresholds are `LEVELS` quantiles
of the positive strengths, and 0.
"""

import torch
from torch import Tensor

from course_lib.lessons.start_here import numbers

NUMBERS = (numbers.FIRST, *numbers.OTHERS)
MEANINGS, CHOSEN_ON, LEVELS = numbers.MEANINGS, 1200, 19
PLACES = tuple(range(0, 101, 10))
BINS = [round(0.05 * i, 2) for i in range(29)]  # 0 to 1.4


def names_of(sentences) -> tuple[list[str], Tensor]:
    """Return names and which sentences they hold of: concepts, languages, and concepts in one language."""
    from course_lib.language.corpus import CONCEPTS, LANGUAGES

    concepts = torch.tensor([[c in s.concepts for c in CONCEPTS] for s in sentences])
    spoken = torch.tensor([[s.language == one for one in LANGUAGES] for s in sentences])
    both = (concepts[:, :, None] & spoken[:, None, :]).flatten(1)
    names = [*CONCEPTS, *LANGUAGES, *(f"{c} in {one}" for c in CONCEPTS for one in LANGUAGES)]
    return names, torch.cat([concepts, spoken, both], dim=1)


def f1(active: Tensor, holds: Tensor) -> Tensor:
    """Return the F1 of calling a name where the number is active: (sentences,) and (sentences, names) to (names,)."""
    hits = (active[:, None] & holds).sum(dim=0)
    return 2 * hits / (active.sum() + holds.sum(dim=0)).clamp(min=1)


def best_name(strength: Tensor, holds: Tensor) -> tuple[int, float]:
    """Return the place of the name, and the threshold, with the best F1."""
    positive = strength[strength > 0]
    levels = [0.0, *positive.quantile(torch.linspace(0.05, 0.95, LEVELS)).tolist()]
    scores = torch.stack([f1(strength > level, holds) for level in levels])
    level, name = divmod(int(scores.argmax()), holds.shape[1])
    return name, levels[level]


def shown_at(order: list[int], share: int) -> list[int]:
    """Return `numbers.SHOWN` neighbours of the list, that share of the way down."""
    first = round((len(order) - numbers.SHOWN) * share / 100)
    return order[first : first + numbers.SHOWN]


def run() -> dict[str, object]:
    """Return for each number its name, threshold, F1 of names, rates, sentences and counts of strengths."""
    from course_lib.language.corpus import LANGUAGES, draw_meanings, render

    torch.set_num_threads(1)
    chosen_on = [render(m, one) for one in LANGUAGES for m in draw_meanings(CHOSEN_ON, seed=7, split="train")]
    strengths = numbers.strengths(chosen_on)
    names, holds = names_of(chosen_on)
    chosen = {number: best_name(strengths[:, number], holds) for number in NUMBERS}
    sentences = numbers.drawn()
    strengths = numbers.strengths(sentences)
    _, holds = names_of(sentences)
    rows: dict[str, object] = {"sentences": len(sentences)}
    for number, (name, threshold) in chosen.items():
        strength = strengths[:, number]
        active = strength > threshold
        scores = f1(active, holds)
        order = strength.argsort(descending=True)[: int(active.sum())].tolist()
        concept = names[name].partition(" in ")[0]
        kin = [n for n in names if n.partition(" in ")[0] == concept]
        rows |= {
            f"{number}: threshold": round(threshold, 4),
            f"{number}: F1 of names": {
                n: round(float(scores[names.index(n)]), 4) for n in (*kin, *LANGUAGES)
            },
            f"{number}: share active": [
                round(float(share), 4) for share in active.view(len(LANGUAGES), -1).float().mean(dim=1)
            ],
            f"{number}: active": len(order),
            f"{number}: sentences by place": {
                str(share): [[i, round(float(strength[i]), 2)] for i in shown_at(order, share)]
                for share in PLACES
            },
        }
    first = strengths[:, NUMBERS[0]]
    negated, asked = (holds[:, names.index(f"grammar:{name}")] for name in ("negation", "question"))
    spanish = holds[:, names.index("es_XX")]
    guesses = {"Spanish": spanish, "questions": asked, "negation": negated}
    guesses["negated Spanish questions"] = spanish & asked & negated
    active = first > chosen[NUMBERS[0]][1]
    scores = f1(active, torch.stack(list(guesses.values()), dim=1))
    rows["F1 of four guesses"] = {
        name: round(float(score), 4) for name, score in zip(guesses, scores, strict=True)
    }
    rows["true of"] = {name: int(holds_of.sum()) for name, holds_of in guesses.items()}
    rows["negated"], rows["negated and active"] = int(negated.sum()), int((negated & active).sum())
    return rows | strengths_of_negation(sentences, first)


def strengths_of_negation(sentences, strength: Tensor) -> dict[str, object]:
    """Return how often the first number has which strength in negated sentences, by language and kind of sentence."""
    rows: dict[str, object] = {"edges": BINS}
    for language in dict.fromkeys(s.language for s in sentences):
        for kind in ("statement", "question"):
            own = [
                i
                for i, s in enumerate(sentences)
                if s.language == language
                and "grammar:negation" in s.concepts
                and ("grammar:question" in s.concepts) == (kind == "question")
            ]
            counts = torch.histogram(strength[own], torch.tensor(BINS))[0]
            rows[f"strengths, negated {kind}, {language}"] = counts.int().tolist()
    return rows
