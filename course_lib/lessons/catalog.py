"""The lessons of the course, in order: the one list that the map, the README and the tests read."""

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
    """One row of the course: its number, the name that all its files share, its title and its part."""

    number: str
    slug: str
    title: str
    part: str

    @property
    def notebook(self) -> str:
        """File name of the lesson's notebook."""
        return f"{self.number}_{self.slug}.ipynb"

    def is_open(self, notebooks: Path) -> bool:
        """Whether the lesson is there: its notebook lies in the folder `notebooks`."""
        return (notebooks / self.notebook).is_file()


LESSONS = tuple(
    Lesson(*row)
    for row in (
        ("00", "start_here", "Start here", ""),
        ("01", "gradient_descent_stability", "When gradient descent is stable", "I"),
        ("02", "stochastic_gradient_descent", "Why stochastic gradient descent works", "I"),
        ("03", "ridge_noise_and_map", "Ridge regression: noise, penalty, prior", "I"),
        ("04", "steepest_descent", "Steepest descent in other norms", "I"),
        ("05", "maximal_update_parametrization", "Maximal update parametrization", "I"),
        ("06", "newton_schulz_and_muon", "Newton-Schulz iteration and Muon", "I"),
        ("07", "gradient_estimators", "Gradient estimators", "I"),
        ("08", "convolution", "Convolution", "II"),
        ("09", "batch_norm_and_dropout", "Batch norm and dropout", "II"),
        ("10", "graph_networks", "Graph networks", "II"),
        ("11", "recurrent_networks", "Recurrent networks", "II"),
        ("12", "state_space_models", "State space models", "II"),
        ("13", "attention_scaling", "The scale of attention", "III"),
        ("14", "rotary_position_embedding", "Rotary position embedding", "III"),
        ("15", "kernelized_attention", "Kernelized attention", "III"),
        ("16", "random_features", "Random features", "III"),
        ("17", "ridge_attention", "Ridge attention", "III"),
        ("18", "pca_and_autoencoders", "PCA and autoencoders", "IV"),
        ("19", "linear_purification", "Linear purification", "IV"),
        ("20", "low_rank_adaptation", "Low-rank adaptation", "IV"),
        ("21", "transformer_circuits", "Transformer circuits", "IV"),
        ("22", "induction_heads", "Induction heads", "V"),
        ("23", "in_context_regression", "In-context regression", "V"),
        ("24", "attention_margin", "The margin that attention maximises", "V"),
        ("25", "autoencoders_by_hand", "Autoencoders by hand", "VI"),
        ("26", "inside_mbart", "Inside mBART", "VI"),
        ("27", "stacked_autoencoder", "Stacked autoencoder", "VI"),
        ("28", "feature_recovery", "Feature recovery", "VI"),
        ("29", "mbart_to_sparse_features", "From mBART to sparse features", "VI"),
        ("30", "restricted_minimax", "Restricted minimax estimation", "V"),
        ("31", "hawkes_tensor_recovery", "Hawkes processes by tensor recovery", "V"),
        ("32", "sparse_socp", "Sparsity in conic relaxations", "V"),
    )
)


def lesson_map(notebooks: Path, *, prefix: str = "") -> str:
    """Return the table of lessons in Markdown: open lessons are links, `prefix` before the file's name."""
    rows = ["| | Lesson | Part | |", "|---|---|---|---|"]
    for lesson in LESSONS:
        opened = lesson.is_open(notebooks)
        title = f"[{lesson.title}]({prefix}{lesson.notebook})" if opened else lesson.title
        part = f"{lesson.part} {PARTS[lesson.part]}".strip()
        rows.append(f"| {lesson.number} | {title} | {part} | {'open' if opened else 'in preparation'} |")
    return "\n".join(rows)
