"""Exercises of lesson 14, recurrent networks."""

import torch

from course_lib.lessons.recurrent_networks.contents import lesson
from course_lib.teaching import but, close, edit, inputs, normal, whole

lesson.value(
    "14.1", "One weight, three steps", difficulty=1, minutes=4,
    prompt="Three steps share one weight: $h_0 = 1$ and $h_t = w h_{t-1} + 1$ for $t = 1, 2, 3$. The loss is $L = h_3$. At "
    "$w = 2$, which share of $\\mathrm dL/\\mathrm dw$ does each of the three copies of the weight have in the sum "
    "(14.2)? Answer with a dictionary of three numbers, `first`, `second` and `third`, by step.",
    answer={"first": 4, "second": 6, "third": 7},
    properties=[
        ("Your three shares do not add up to the derivative of L at w = 2.",
         lambda first, second, third: abs(first + second + third - 17) < 1e-6),
        ("The sum is right, but a copy has another share: what the loss feels of h_t, times the state before.",
         lambda first, second, third: max(abs(first - 4), abs(second - 6), abs(third - 7)) < 1e-6),
    ],
    hints=(
        "Each copy of the weight has two factors: what the loss feels of h_t, and what h_t feels of this copy alone.",
        "The states are 1, 3, 7 and 15. For the last copy: the loss feels h₃ with 1, and h₃ feels its own copy with h₂.",
        "One step further back, what the loss feels is multiplied by w once more, and the state before is another.",
    ),
    mistakes=[
        ("full derivatives", {"first": 4, "second": 10, "third": 17},
         "You took the full derivative of each h_t, so that paths count several times. In (14.2) the state before is held "
         "fixed."),
        ("states alone", {"first": 1, "second": 3, "third": 7},
         "These are the immediate derivatives. You left out how strongly the loss feels each state."),
        ("losses alone", {"first": 4, "second": 2, "third": 1},
         "That is how strongly the loss feels each state. You left out what the state feels of its own copy."),
        ("own state for the state before", {"first": 12, "second": 14, "third": 15},
         "You multiplied by the state that the step makes. The copy multiplies the state before."),
        ("the other way round", {"first": 7, "second": 6, "third": 4},
         "The shares are right, in the reverse order: `first` belongs to the step that makes h₁."),
    ],
)


def _tanh_run(generator):
    drawn = inputs(time=whole(2, 4), n=whole(2, 3), states=normal("time n"), upstream=normal("time n"),
                   W_h=normal("n n"))(generator)
    return {**drawn, "states": torch.tanh(drawn["states"]).round(decimals=2)}


def _by_autograd(states, upstream, W_h):
    shifts = [torch.zeros(states.shape[1], dtype=torch.float64, requires_grad=True) for _ in states]
    loss, change = 0.0, torch.zeros(states.shape[1], dtype=torch.float64)
    for h, g, shift in zip(states, upstream, shifts, strict=True):
        change = (1 - h * h) * (W_h @ change + shift)  # to first order, how the state moves
        loss = loss + g @ change
    return torch.stack(torch.autograd.grad(loss, shifts))


@lesson.exercise(
    "14.2", "Backpropagation through time", difficulty=3, minutes=15,
    prompt="A tanh network went through one sequence. Write `deltas(states, upstream, W_h)`: the gradients "
    "$\\delta_t$ of the "
    "loss with respect to the sums $a_t = W_h h_{t-1} + W_x x_t + b$. `states` and "
    "`upstream`, both of "
    "shape (time, units), hold $h_t = \\tanh(a_t)$ and $g_t$, the gradient that reaches $h_t$ directly. Return "
    "the same shape, "
    "the first step first.",
    draw=_tanh_run,
    properties=[
        ("It should be the gradient of the loss with respect to each sum.",
         lambda states, upstream, W_h, answer: close(answer, _by_autograd(states, upstream, W_h))),
    ],
    hints=(
        "What reaches h_t? One part comes directly from the loss, one through the next sum.",
        "The slope of tanh can be computed from the state alone. At which step is it taken?",
        "Run from the last step to the first and keep one vector, the delta of the step after. It starts at zero.",
    ),
    mistakes=[
        ("not transposed", edit("W_h.T @ later", "W_h @ later"),
         "A gradient goes back through the transpose of W_h."),
        ("no slope", edit("(1 - states[t] ** 2) * (upstream[t] + W_h.T @ later)", "upstream[t] + W_h.T @ later"),
         "The slope of tanh is missing: what you have is the gradient at h_t, if the network were linear."),
        ("slope on one part", edit("(1 - states[t] ** 2) * (upstream[t] + W_h.T @ later)",
                                   "upstream[t] + (1 - states[t] ** 2) * (W_h.T @ later)"),
         "The slope multiplies all that arrives at h_t, also the part that comes directly from the loss."),
        ("1 - h", edit("states[t] ** 2", "states[t]"),
         "The slope of tanh is 1 - h², not 1 - h."),
        ("sigmoid's slope", edit("(1 - states[t] ** 2)", "(states[t] * (1 - states[t]))"),
         "h(1 - h) is the slope of the sigmoid. For tanh it is 1 - h²."),
        ("tanh twice", edit("states[t] ** 2", "torch.tanh(states[t]) ** 2"),
         "The states have gone through tanh already: the slope is 1 - h²."),
        ("the last loss only", edit("upstream[t] + W_h.T", "(upstream[t] if t == len(states) - 1 else 0) + W_h.T"),
         "You took the direct gradient at the last step only. Here the loss looks at every state."),
        ("forward in time", edit("reversed(range(len(states)))", "range(len(states))"),
         "You ran forward in time. The delta of a step needs the one of the step after."),
    ],
)
def deltas(states, upstream, W_h):
    """From the last step to the first."""
    found, later = torch.zeros_like(states), torch.zeros_like(states[0])
    for t in reversed(range(len(states))):
        later = (1 - states[t] ** 2) * (upstream[t] + W_h.T @ later)
        found[t] = later
    return found


def _longest(eigenvalue, a, *, steps):
    step = torch.tensor([[eigenvalue, a], [0.0, eigenvalue]], dtype=torch.float64)
    return float(torch.linalg.matrix_norm(torch.linalg.matrix_power(step, steps), ord=2))


lesson.flaw(
    "14.3", "Eigenvalues below 1", difficulty=2, minutes=6,
    prompt="\"All eigenvalues of the recurrent matrix are smaller than 1 in size, so after ten steps back no gradient is "
    "longer than at the last state.\" Give a counterexample: a matrix with rows (`eigenvalue`, `a`) and (0, "
    "`eigenvalue`). Return a dictionary with the two numbers, with $0 <$ `eigenvalue` $< 1$, so that some gradient of a "
    "linear network is longer after *ten* steps than before.",
    answer={"eigenvalue": 0.9, "a": 10.0},
    needs=[
        ("Both numbers should be of moderate size, |eigenvalue| <= 10 and |a| <= 10^6.",
         lambda eigenvalue, a: abs(eigenvalue) <= 10 and abs(a) <= 1e6),
        ("The statement is about eigenvalues below 1 in size: choose one between 0 and 1.",
         lambda eigenvalue: abs(eigenvalue) < 1),
        ("The eigenvalue should lie between 0 and 1.", lambda eigenvalue: eigenvalue > 0),
    ],
    properties=[
        ("No gradient is longer after ten steps of your matrix.",
         lambda eigenvalue, a: _longest(eigenvalue, a, steps=10) > 1 + 1e-9),
    ],
    hints=(
        "Square the matrix, then cube it. What stands above the diagonal, and how does it go on?",
        "The largest length after ten steps is the norm of the tenth power, and it is at least its largest entry.",
        "You are free to make a as large as you like. An eigenvalue near 1 helps as well.",
    ),
    mistakes=[
        ("no coupling", {"eigenvalue": 0.5, "a": 0.0},
         "With a = 0 the matrix multiplies every gradient by the eigenvalue. The entry above the diagonal is what makes it "
         "non-normal.",
         but(lambda a: a == 0)),
        ("near by only", {"eigenvalue": 0.5, "a": 10.0},
         "After two steps a gradient can be longer, after ten no longer: above the diagonal of the tenth power stands "
         "10 · eigenvalue⁹ · a. Make it larger than 1.",
         but(lambda eigenvalue, a: _longest(eigenvalue, a, steps=2) > 1)),
    ],
)


lesson.value(
    "14.4", "A start with radius 0.9", difficulty=2, minutes=5,
    prompt="Entries that are drawn independently, with mean 0 and standard deviation $c/\\sqrt H$, give a matrix whose "
    "eigenvalues fill a disc of radius $c$ when $H$ is large. PyTorch draws the entries of $W_h$ uniformly between "
    "$-1/\\sqrt H$ and $1/\\sqrt H$. By which positive factor must you multiply $W_h$ to give it the spectral radius 0.9? "
    "Two decimals are enough.",
    answer=0.9 * 3**0.5,
    properties=[
        ("With your factor the eigenvalues of a large matrix do not fill a disc of radius 0.9.",
         lambda answer: abs(answer / 3**0.5 - 0.9) < 0.006),
    ],
    hints=(
        "What is the standard deviation of a uniform number between -1 and 1?",
        "The mean of x² over that interval is 1/3. So which c belongs to PyTorch's start?",
        "A factor on the matrix is a factor on c.",
    ),
    mistakes=[
        ("the range for the deviation", 0.9,
         "You took the end of the range for the standard deviation. That of a uniform number is smaller."),
        ("the variance for the deviation", 2.7,
         "You divided by the variance 1/3. The law speaks of the standard deviation, its root."),
        ("divided the wrong way", 0.9 / 3**0.5,
         "With this factor the radius shrinks. PyTorch's start lies below 0.9 already."),
        ("the radius 1", 3**0.5,
         "With this factor the radius is 1."),
        ("the singular value", 0.9 * 3**0.5 / 2,
         "That sets the largest singular value to 0.9. The radius is half of it for such a matrix."),
    ],
)


def _chain(generator):
    return inputs(n=whole(2, 3), W_h=normal("n n"), W_y=normal("2 n"), error=normal("2"), distance=whole(0, 4))(generator)


def _gradient_of_state(W_h, W_y, error, distance):
    h = torch.zeros(W_h.shape[0], dtype=torch.float64, requires_grad=True)
    y = W_y @ torch.linalg.matrix_power(W_h, distance) @ h
    return torch.autograd.grad((y + error).square().sum(), h)[0]


@lesson.exercise(
    "14.5", "The gradient many steps back", difficulty=1, minutes=8,
    prompt="A linear network has $h_t = W_h h_{t-1} + W_x x_t + b$ and $\\hat y_T = W_y h_T + b_y$, and the loss is "
    "$L = \\lVert\\hat y_T - y\\rVert^2$, without a factor 1/2. Write `state_gradient(W_h, W_y, error, "
    "distance)`: the gradient of "
    "$L$ with respect to the state `distance` steps before the last one. `error` is the vector $\\hat y_T - y$; "
    "a distance of 0 "
    "means $h_T$ itself.",
    draw=_chain,
    properties=[
        ("It should be the gradient that autograd finds for the squared error.",
         lambda W_h, W_y, error, distance, answer: close(answer, _gradient_of_state(W_h, W_y, error, distance))),
    ],
    hints=(
        "Which gradient reaches the output, then h_T, then the state before it?",
        "Going forward a state is multiplied by W_h. By what is a gradient multiplied, going back?",
        "Start with twice the error, take it through the output's matrix, then once through the recurrent "
        "matrix for each step.",
    ),
    mistakes=[
        ("not transposed", edit("W_h.T @", "W_h @"),
         "You multiplied by W_h. A gradient, as a column, goes back through the transpose of W_h."),
        ("no factor 2", edit("2 * W_y", "W_y"),
         "The factor 2 is missing: the loss is the squared error without 1/2."),
        ("one step too many", edit("range(distance)", "range(distance + 1)"),
         "You took one step too many: at distance 0 no recurrent matrix is passed."),
        ("one step too few", edit("range(distance)", "range(distance - 1)"),
         "You took one step too few: a state at distance 1 is one recurrent matrix away."),
        ("entrywise power", edit("for _ in range(distance):\n        gradient = W_h.T @ gradient",
                                 "gradient = (W_h.T ** distance) @ gradient"),
         "`**` raises each entry of the matrix to the power. A power of a matrix repeats the product."),
        ("the output's matrix once a step", edit("W_h.T @ gradient", "W_h.T @ gradient + 2 * W_y.T @ error"),
         "You added the error again at each step. The loss looks at the last output only."),
    ],
)
def state_gradient(W_h, W_y, error, distance):
    """Go through the output's matrix once, and through the recurrent one for each step."""
    gradient = 2 * W_y.T @ error
    for _ in range(distance):
        gradient = W_h.T @ gradient
    return gradient


def _sequence(generator):
    return inputs(time=whole(2, 4), batch=whole(1, 3), n=whole(2, 3), deltas=normal("time batch n"),
                  states=normal("time batch n"), h0=normal("batch n"))(generator)


def _weight_gradient(deltas, states, h0):
    weight = torch.zeros(deltas.shape[2], deltas.shape[2], dtype=torch.float64, requires_grad=True)
    before = torch.cat([h0[None], states[:-1]])
    return torch.autograd.grad((deltas * (before @ weight.T)).sum(), weight)[0]


@lesson.exercise(
    "14.6", "The gradient of the recurrent weight", difficulty=2, minutes=8,
    prompt="Write `weight_gradient(deltas, states, h0)`: the gradient of the loss with respect to $W_h$, as in "
    "(14.4), summed "
    "over a batch. `deltas` has shape (time, batch, units) and holds $\\delta_t$ for $t = 1, \\dots, T$; "
    "`states` has the same "
    "shape and holds $h_1, \\dots, h_T$; `h0`, (batch, units), is the state before the first step.",
    draw=_sequence,
    properties=[
        ("It should be the gradient with respect to W_h, with the deltas given.",
         lambda deltas, states, h0, answer: close(answer, _weight_gradient(deltas, states, h0))),
    ],
    hints=(
        "In step t the recurrent weight multiplies one state. Which one?",
        "The entry in row i and column j multiplies unit j of the state before, and belongs to the sum of unit i.",
        "Put h0 in front of the states and leave the last one out; then one product over time and batch is enough.",
    ),
    mistakes=[
        ("the same step's state", edit("before = torch.cat([h0[None], states[:-1]])", "before = states"),
         "You paired δ_t with h_t. The weight multiplied the state before, h_(t-1)."),
        ("transposed", edit('"tbi,tbj->ij"', '"tbi,tbj->ji"'),
         "Your matrix is transposed: rows belong to δ, columns to the state."),
        ("mean over the batch", edit("return torch.einsum(\"tbi,tbj->ij\", deltas, before)",
                                     "return torch.einsum(\"tbi,tbj->ij\", deltas, before) / deltas.shape[1]"),
         "You took the mean over the batch; the sum is asked for. A mean belongs to the loss, and then stands "
         "in the deltas."),
        ("without the first step", edit("return torch.einsum(\"tbi,tbj->ij\", deltas, before)",
                                        "return torch.einsum(\"tbi,tbj->ij\", deltas[1:], before[1:])"),
         "You left out the first step: h0 met the weight as well."),
        ("the last step only", edit("return torch.einsum(\"tbi,tbj->ij\", deltas, before)",
                                    "return torch.einsum(\"bi,bj->ij\", deltas[-1], before[-1])"),
         "That is the share of the last copy. All steps add up."),
    ],
)
def weight_gradient(deltas, states, h0):
    """Pair each delta with the state before it."""
    before = torch.cat([h0[None], states[:-1]])
    return torch.einsum("tbi,tbj->ij", deltas, before)


EXERCISES = lesson.exercises
