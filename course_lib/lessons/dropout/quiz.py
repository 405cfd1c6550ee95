"""The sentences of lesson 12, each with what decides on it."""

from collections.abc import Callable
from itertools import product

import torch
from torch import Tensor

from course_lib.architectures.normalisation import enumerated_dropout_loss, naive_batch_norm
from course_lib.lessons.dropout.contents import lesson
from course_lib.lessons.dropout.pictures import F64, KEEP, MATRIX, TARGET, ridge_weights, table_in
from course_lib.teaching import fact

WEIGHTS = torch.tensor([0.7, -0.4], **F64)


def over_masks(shape: tuple[int, int], loss: Callable[[Tensor], Tensor]) -> float:
    """Return the mean of a loss over all masks of a shape, each with its probability; it is spread over the table."""
    total = 0.0
    for kept in product((0.0, 1.0), repeat=shape[0] * shape[1]):
        chance = KEEP ** sum(kept) * (1 - KEEP) ** (len(kept) - sum(kept))
        total += chance * float(loss(torch.tensor(kept, **F64).view(shape)))
    return total


def masked_error(mask: Tensor) -> Tensor:
    """Return the squared error of the two rows, their entries multiplied by a mask."""
    return (TARGET - (mask * MATRIX) @ WEIGHTS).square().sum()


@lesson.sentence(
    "12.Q1", "Dropout in least squares is batch norm, even the rescaling by the spread of a column.", answer=False
)
def not_batch_norm():
    """On average dropout is ridge regression on columns divided by their length. Batch norm subtracts the mean of a column
    first."""
    column = torch.tensor([10.0, 11, 12], **F64)
    by_batch = naive_batch_norm(column[:, None], eps=0.0)[:, 0]
    return "\n".join(
        [
            fact("column 10, 11, 12, divided by its length: {:.4f}", column / column.norm(),
                 equals=[0.5234, 0.5758, 0.6281], within=5e-5),
            fact("by batch norm: {:.4f}", by_batch, equals=[-1.2247, 0, 1.2247], within=5e-5),
        ]
    )  # fmt: skip


@lesson.sentence(
    "12.Q2",
    "With masks that only delete, (12.1), and keep probability p, dropout minimises ‖t - Xw‖² plus (1 - p)/p times the "
    "sum of ‖Xⱼ‖² wⱼ² on average.",
    answer="only if w is p times the trained weights",
    conditions=("only if w is p times the trained weights", "only if the columns have mean 0"),
)
def which_weights():
    """The fit must be the one of the inputs that are left: p X w̃ = X w. For the trained weights themselves another number
    comes out."""
    loss = lambda w: (TARGET - MATRIX @ w).square().sum() + 0.25 * (MATRIX.square().sum(0) * w**2).sum()  # noqa: E731
    return "\n".join(
        [
            fact("all 16 masks, weights (0.7, -0.4): {:.4f}",
                 enumerated_dropout_loss(MATRIX, TARGET, WEIGHTS, keep=KEEP), equals=2.0784, within=1e-9),
            fact("the formula at these weights: {:.4f}", loss(WEIGHTS), equals=2.885, within=1e-9),
            fact("at 0.8 times these weights: {:.4f}", loss(KEEP * WEIGHTS), equals=2.0784, within=1e-9),
        ]
    )  # fmt: skip


@lesson.sentence(
    "12.Q3",
    "In (12.1) the loss may be written E‖t - (RX)w̃‖², with RX the product of the matrices R and X.",
    answer=False,
)
def entry_by_entry():
    """A product of matrices adds rows of the table. A mask multiplies entry by entry."""
    by_matrix = over_masks((2, 2), lambda mask: (TARGET - (mask @ MATRIX) @ WEIGHTS).square().sum())
    return "\n".join(
        [
            fact("entry by entry, all 16 masks: {:.4f}", over_masks((2, 2), masked_error), equals=2.0784, within=1e-9),
            fact("product of matrices: {:.4f}", by_matrix, equals=2.856, within=1e-9),
        ]
    )


@lesson.sentence(
    "12.Q4",
    "If one coin decides for a whole column of the table, in all its rows, the mean loss stays the same.",
    answer=True,
)
def whose_coin():
    """The mean of a sum does not depend on whether its terms, the rows, are independent. Within a row it matters: one
    coin for a whole row gives another loss."""
    return "\n".join(
        [
            fact("a coin for each entry: {:.4f}", over_masks((2, 2), masked_error), equals=2.0784, within=1e-9),
            fact("a coin for each column: {:.4f}", over_masks((1, 2), masked_error), equals=2.0784, within=1e-9),
            fact("a coin for each row: {:.4f}", over_masks((2, 1), masked_error), equals=2.168, within=1e-9),
        ]
    )


@lesson.sentence(
    "12.Q5",
    "A network without masks, its weights behind them scaled, predicts the mean of its predictions over all masks.",
    answer="surely if all that is behind the masks is linear",
    conditions=("surely if all that is behind the masks is linear", "surely if no mask deletes everything"),
)
def linear_behind():
    """The mean of a sum is the sum of the means. The mean of a ReLU is not the ReLU of a mean, if masks can move its input
    across 0."""
    x, read = torch.tensor([1.0, -2.0, 4.0], **F64), torch.tensor([1.0, 1.0, -1.0], **F64)
    hidden = over_masks((1, 3), lambda mask: (mask[0] / KEEP * x) @ read)
    inputs = over_masks((1, 3), lambda mask: torch.relu((mask[0] / KEEP * x) @ read + 5))
    return "\n".join(
        [
            fact("a sum, mean over masks less value without: {}", hidden - float(x @ read), equals=0, within=1e-9),
            fact("a ReLU of 5 plus that sum: {:.2f}", inputs - float(torch.relu(x @ read + 5)), at_least=0.1),
        ]
    )


@lesson.sentence(
    "12.Q6",
    "Put a column into the table four times: plain ridge regression shrinks its joint weight more.",
    answer=False,
)
def copies():
    """Four copies share the weight, and four squares of a quarter are a quarter of the square: they are charged less."""
    sums = [float(ridge_weights(table_in(copies=k), TARGET)[:-1].sum()) for k in (1, 4)]
    return "\n".join(
        [
            fact("column 1 once, penalty 2.5: weight {:.3f}", sums[0], at_least=0.5),
            fact("four times: joint weight {:.2f} times that", sums[1] / sums[0], at_least=1.05),
        ]
    )
