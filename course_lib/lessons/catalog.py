"""The lessons of the course, in order: the one list that registers a lesson."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

PARTS = {
    "": "Start",
    "I": "Optimisation",
    "II": "Architectures",
    "III": "Attention",
    "IV": "Representation",
    "V": "Theory",
    "VI": "From mBART to named features",
}


@dataclass(frozen=True)
class Lesson:
    """One row of the course: its number, the name that all its files share, its title and its part.

    `needs` are the numbers of the lessons that its page asks for, in one text; `minutes` is what it takes.
    """

    number: str
    slug: str
    title: str
    part: str
    needs: str
    minutes: int

    @property
    def name(self) -> str:
        """Number and slug, the name of its notebook and of its pages: 01_gradient_descent_stability."""
        return f"{self.number}_{self.slug}"

    @property
    def notebook(self) -> str:
        """File name of the lesson's notebook."""
        return f"{self.name}.ipynb"

    def is_open(self, notebooks: Path) -> bool:
        """Whether the lesson is there: its notebook lies in the folder `notebooks`."""
        return (notebooks / self.notebook).is_file()


LESSONS = tuple(
    Lesson(*row)
    for row in (
        ("00", "start_here", "Start here: what has number 1733 found?", "", "", 48),
        ("01", "gradient_descent_stability", "Why the largest safe step can be too small", "I", "00", 70),
        ("02", "momentum", "When is momentum more than a larger step?", "I", "01", 73),
        ("03", "stochastic_gradient_descent", "Must SGD jitter for ever?", "I", "01", 72),
        ("04", "ridge_noise_and_map", "Noise, penalty, prior: one remedy or three?", "I", "01", 61),
        ("05", "multiplicative_noise", "Calm, then a jump: which step is stable?", "I", "03 04", 76),
        ("06", "steepest_descent", "Steepest, measured how?", "I", "01", 55),
        ("07", "maximal_update_parametrization", "Tune the small network, train the large one", "I", "06", 75),
        ("08", "newton_schulz_and_muon", "Make a matrix flat without decomposing it", "I", "02 06", 77),
        ("09", "gradient_estimators", "Add 10 to every reward: what changes?", "I", "03", 84),
        ("10", "convolution", "Trained on the left, asked on the right", "II", "01", 78),
        ("11", "batch_norm", "The layer that does not see the size of your weights", "II", "01 04", 74),
        ("12", "dropout", "Delete a fifth of the inputs: what is trained?", "II", "04", 75),
        ("13", "graph_networks", "Two layers help, 64 ruin it: is anything left?", "II", "01 04 10", 83),
        ("14", "recurrent_networks", "Why are forty steps harder than five?", "II", "07", 77),
        ("15", "state_space_models", "State space models", "II", "10", 84),
        ("16", "selective_states", "A memory that decides what to keep", "II", "14 15", 82),
        ("17", "attention_scaling", "Why the square root, and when it is the wrong number", "III", "04", 69),
        ("18", "rotary_position_embedding", "Does only the distance count?", "III", "17", 75),
        ("19", "kernelized_attention", "Move one bracket: when does attention cost N?", "III", "17", 89),
        ("20", "fixed_memory", "What a full memory still recalls", "III", "19", 76),
        ("21", "random_features", "Can random waves stand in for softmax?", "III", "17 19", 76),
        ("22", "ridge_attention", "What can a matrix remember at best?", "III", "04 19", 84),
        ("23", "pca_and_autoencoders", "Why training stands still, then falls", "IV", "01 04", 82),
        ("24", "linear_purification", "Take out what a probe reads: why does it read on?", "IV", "04 23", 83),
        ("25", "low_rank_adaptation", "Teach a frozen model a fifth language", "IV", "07 23", 77),
        ("26", "transformer_circuits", "Two layers learn to repeat at once. What does one lack?", "IV", "17 23", 79),
        ("27", "induction_heads", "Which past should a model compare?", "V", "01 17 26", 78),
        ("28", "in_context_regression", "The error stands still. Is training over?", "V", "01 04 17 23", 75),
        ("29", "attention_margin", "Same data, no mistakes, two different layers", "V", "06 17 23", 67),
        ("30", "restricted_minimax", "Zero failures in 20 tests: which rate do you report?", "V", "04", 82),
        ("31", "hawkes_tensor_recovery", "What can you read out of this noise?", "V", "04 15 23", 77),
        ("32", "sparse_socp", "Nine guests, two rooms, one bound", "V", "29", 80),
        ("33", "autoencoders_by_hand", "Follow one error through a network", "VI", "01", 78),
        ("34", "inside_mbart", "Five almost-mBARTs: would you notice the slip?", "VI", "17", 82),
        ("35", "stacked_autoencoder", "What fits into 32 numbers?", "VI", "04 23 33 34", 74),
        ("36", "feature_recovery", "It rebuilds everything. Did it find the features?", "VI", "01 23", 73),
        ("37", "mbart_to_sparse_features", "Find “apple” in 256 numbers", "VI", "33 34 35 36", 83),
        ("38", "using_features", "The girl eats a green chair", "VI", "37", 78),
        ("39", "real_language", "Does it work on a language that nobody built?", "VI", "37", 82),
    )
)


def part_title(part: str) -> str:
    """Return a part's number and name: "I Optimisation"."""
    return f"{part} {PARTS[part]}".strip()


# Three ways through the course: the lessons where each ends. What these need belongs to the path.
PATHS = {
    "Optimisation": ("02", "07", "08", "09", "05", "11", "12", "25", "30", "32"),
    "Attention": ("15", "18", "21", "22", "27", "28"),
    "Interpretability": ("24", "26", "27", "38", "39"),
}


# The name that a reader meets for each path, and whom it is for.
PATH_AIMS = {
    "Optimisation": "What decides whether training works: step sizes, norms, widths, estimators.",
    "Attention": "What an attention layer computes, what it costs, and what cheaper ones give up.",
    "Interpretability": "From activations to named features, with controls at every step.",
}


def choose_lessons(numbers: Sequence[str], notebooks: Path) -> list[Lesson]:
    """Return the lessons of these numbers, or all, whose notebooks lie in a folder.

    Raises:
        ValueError: a number is not that of a lesson, or there is no notebook of it.
    """
    by_number = {lesson.number: lesson for lesson in LESSONS if lesson.is_open(notebooks)}
    if unknown := [number for number in numbers if number not in by_number]:
        raise ValueError(f"no notebook of lesson {unknown[0]} lies in {notebooks}; there are {list(by_number)}")
    if not by_number:
        raise ValueError(f"no notebook of a lesson lies in {notebooks}; name the folder by --notebooks")
    return [by_number[number] for number in numbers] or list(by_number.values())


def lessons_for(*goals: str) -> tuple[Lesson, ...]:
    """Return the lessons to take for the ones numbered `goals`, these included, in the order of the course.

    Raises:
        ValueError: there is no lesson of such a number.
    """
    by_number = {lesson.number: lesson for lesson in LESSONS}
    wanted, found = list(goals), set()
    while wanted:
        number = wanted.pop()
        if number not in by_number:
            raise ValueError(f"goals must be numbers of lessons, '00' to '{LESSONS[-1].number}', got {number!r}")
        if number not in found:
            found.add(number)
            wanted += by_number[number].needs.split()
    return tuple(lesson for lesson in LESSONS if lesson.number in found)


def path_table(notebooks: Path) -> str:
    """Return the three paths in Markdown, each with its lessons in order and its hours."""
    rows = ["| Path | Lessons, in order | Hours |", "|---|---|---|"]
    for name, goals in PATHS.items():
        taken = lessons_for(*goals)
        shown = [f"[{one.number}]({one.notebook})" if one.is_open(notebooks) else one.number for one in taken]
        rows.append(f"| {name} | {', '.join(shown)} | {sum(one.minutes for one in taken) / 60:.0f} |")
    return "\n".join(rows)
