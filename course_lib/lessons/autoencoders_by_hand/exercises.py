"""Exercises of lesson 33, autoencoders_by_hand."""

from dataclasses import replace

import torch
from torch.func import grad

from course_lib.lessons.autoencoders_by_hand.contents import lesson
from course_lib.sae.by_hand import AUTOENCODER, forward, matrix, squared_error
from course_lib.teaching import close, edit, inputs, integers, uniform, whole


def _column(*numbers):
    return matrix([[float(number)] for number in numbers])


FIFTH, SIXTH = _column(3, 0, 3, 6), _column(1, 0, 3, 3)


def _filled(layers, **changed):
    """The fifth column of the worksheet for these layers."""
    passed = forward(layers, FIFTH)
    numbers = [*passed.values[2], *passed.output, squared_error(passed.output, FIFTH)]
    return dict(zip(("code_1", "code_2", "y_1", "y_2", "y_3", "y_4", "loss"), map(float, numbers), strict=True)) | changed


def _no_relu(layers):
    return tuple(replace(layer, relu=False) for layer in layers)


lesson.value(
    "33.1", "Fill in the forward pass", difficulty=1, minutes=8,
    prompt="With paper: a fifth example is $x = (3, 0, 3, 6)$. Fill in its column of the worksheet, all four layers. Answer "
    "with a dictionary of seven numbers: `code_1` and `code_2` (the entries of $h_2$), `y_1` to `y_4` (the output) and "
    "`loss`, the sum of the squared differences between output and $x$.",
    answer={"code_1": 4, "code_2": 1, "y_1": 2, "y_2": 3, "y_3": 0, "y_4": 2, "loss": 35},
    properties=[
        ("Your code is not what the two encoder layers make of x.",
         lambda code_1, code_2: close(forward(AUTOENCODER[:2], FIFTH).output, _column(code_1, code_2))),
        ("Your output is not what the two decoder layers make of the code.",
         lambda code_1, code_2, y_1, y_2, y_3, y_4:
         close(forward(AUTOENCODER[2:], _column(code_1, code_2)).output, _column(y_1, y_2, y_3, y_4))),
        ("Your loss is not the sum of the squared differences between your output and x.",
         lambda y_1, y_2, y_3, y_4, loss: close(squared_error(_column(y_1, y_2, y_3, y_4), FIFTH), loss)),
    ],
    hints=(
        "One layer at a time: rows of W times the column, plus the bias, then replace negative numbers by 0.",
        "The first layer has the sums 5, -5 and -1.",
        "The second layer has the sums 4 and 1, and the code goes through the decoder in the same way.",
    ),
    mistakes=[
        ("no ReLU", _filled(_no_relu(AUTOENCODER)),
         "You left out the ReLU: negative sums become 0 before they go on to the next layer."),
        ("no bias", _filled(tuple(replace(layer, bias=0 * layer.bias) for layer in AUTOENCODER)),
         "You left out the biases, the last column beside each weight matrix."),
        ("no ReLU in the encoder", _filled(_no_relu(AUTOENCODER[:2]) + AUTOENCODER[2:]),
         "The encoder's layers have a ReLU, too: two sums of layer 1 are negative and become 0."),
        ("mean for sum", _filled(AUTOENCODER, loss=35 / 4),
         "Your loss is the mean over the four entries. The question asks for their sum."),
        ("half the loss", _filled(AUTOENCODER, loss=35 / 2),
         "Your loss carries a factor 1/2, which some texts put there. Here it is the plain sum of squares."),
        ("root of the loss", _filled(AUTOENCODER, loss=35**0.5),
         "Your loss is the length of the difference. The loss is its square: leave out the root.",
         lambda loss: abs(loss - 35**0.5) < 0.05),
        ("sizes for squares", _filled(AUTOENCODER, loss=11),
         "Your loss adds the sizes of the differences. They are squared first."),
        ("layer 1 for the code", _filled(AUTOENCODER, code_1=5, code_2=0),
         "Your code is taken from layer 1. The code is what layer 2 puts out; layer 1 has three units.",
         lambda code_1, code_2, y_1, y_2: code_1 == 5 and code_2 in (-5, 0) and (y_1, y_2) == (2, 3)),
        ("third output below 0", _filled(AUTOENCODER, y_3=-3, loss=62),
         "Your third output is negative. The last layer has a ReLU as well.",
         lambda code_1, code_2, y_1, y_2, y_3, y_4: (code_1, code_2, y_1, y_2, y_4) == (4, 1, 2, 3, 2) and y_3 < 0),
        ("code turned round", _filled(AUTOENCODER, code_1=1, code_2=4),
         "The two entries of your code have changed places: the first row of W2 makes the first one."),
    ],
)


@lesson.exercise(
    "33.2", "Where backpropagation starts", difficulty=1, minutes=6,
    prompt="If a *sum* $z$ of the last layer is raised a little, how fast does the loss $\\sum (Y - Y')^2$ change? Here "
    "$Y = \\max(0, z)$ is the output and $Y'$ the target. Write `output_error(z, target)`: these slopes for all entries. "
    "`z` and `target` are float64 tensors of one shape, columns are examples; return a tensor of that shape.",
    draw=inputs(rows=whole(2, 3), columns=whole(2, 3), z=integers("rows columns", -3.5, 4.5),
                target=integers("rows columns", 0, 4)),
    properties=[
        ("A unit that is off passes nothing on: there your entry should be 0.",
         lambda z, answer: (answer[z < 0] == 0).all()),
        ("Your numbers are not the slopes of the loss.",
         lambda z, target, answer: close(answer, grad(lambda z: (z.relu() - target).square().sum())(z))),
    ],
    hints=(
        "The chain rule has two factors here: the slope of the loss in Y, and the slope of Y in z.",
        "The first factor is twice a difference. Which way round?",
        "The second factor is 1 where z is positive and 0 elsewhere.",
    ),
    mistakes=[
        ("no mask", edit(" * (z > 0)", ""),
         "You stopped at 2(Y - Y'). That is the slope in Y; in z it is multiplied by the slope of the "
         "ReLU, which is 0 where z is negative."),
        ("mean for sum", edit("2 *", "2 / z.numel() *"),
         "You divided by the number of entries. That belongs to the mean of the squares; the loss here is their sum."),
        ("the other way round", edit("2 *", "-2 *"),
         "Your sign is that of the step, not of the gradient: the slope is positive where the output is too high."),
        ("forgot the two", edit("2 * ", ""),
         "The factor 2 from the square is missing."),
        ("sums for outputs", edit(".clamp(min=0)", "", " * (z > 0)", ""),
         "You compared the sums z with the targets. The loss sees Y, which is 0 where z is negative."),
        ("mean over examples", edit("2 *", "2 / z.shape[1] *"),
         "You divided by the number of examples. The loss here is a sum over entries and examples: nothing is divided."),
        ("mask of the output error", edit("(z > 0)", "(z.clamp(min=0) > target)"),
         "Your mask looks at the difference. The ReLU's slope depends on the sum z alone: 1 where z is positive."),
        ("values for the mask", edit("(z > 0)", "z.clamp(min=0)"),
         "You multiplied by the ReLU's value. The chain rule asks for its slope, which is 1 or 0."),
        ("loss for slope", edit("2 * (z.clamp(min=0) - target) * (z > 0)", "(z.clamp(min=0) - target) ** 2"),
         "Those are the terms of the loss. Its slopes are asked for."),
        ("mask turned round", edit("z > 0", "z <= 0"),
         "Your mask is turned round: it keeps the units that are off."),
    ],
)
def output_error(z, target):
    """Return the derivatives of the summed squared error in the sums z of a last layer with ReLU."""
    return 2 * (z.clamp(min=0) - target) * (z > 0)


def _carried(through=(True, True), last=True, transposed=True):
    """The errors of the sixth example at layers 2 and 1; `through` names the gates of layers 2 and 1 that are used."""
    passed = forward(AUTOENCODER, SIXTH)
    error = 2 * (passed.output - SIXTH) * ((passed.sums[3] > 0) if last else 1)
    gates, found = {2: True, 1: through[0], 0: through[1]}, {}
    for k in (2, 1, 0):
        error = (AUTOENCODER[k + 1].weight.T @ error) * ((passed.sums[k] > 0) if gates[k] else 1)
        found[k] = [float(v) for v in error]
    return dict(zip(("c_1", "c_2", "a_1", "a_2", "a_3"), found[1] + found[0], strict=True))


CARRIED = _carried()


def _scaled(factor):
    return {name: factor * value for name, value in CARRIED.items()}


lesson.value(
    "33.3", "Carry the error back", difficulty=2, minutes=10,
    prompt="With paper: a sixth example, $x = (1, 0, 3, 3)$, has $(4, 0, 0)$ in layer 1, the code $(3, 1)$, $(1, 1, 1)$ in "
    "layer 3 and the output $(2, 2, 0, 2)$. Its errors at the output are $(2, 4, 0, -2)$. A value is "
    "read by all units of the next layer. Raising it by $\\epsilon$ raises each of their sums by weight times $\\epsilon$. "
    "Then its own gate decides. Go back to layer 3, to the code and to layer 1. Answer with a "
    "dictionary: the errors `c_1`, `c_2` of the code and `a_1`, `a_2`, `a_3` of layer 1.",
    answer=CARRIED,
    properties=[
        ("The errors of the code are not what comes back from layer 3.",
         lambda c_1, c_2: close(_column(c_1, c_2), _column(CARRIED["c_1"], CARRIED["c_2"]))),
        ("The errors of layer 1 are not what comes back from your code.",
         lambda c_1, c_2, a_1, a_2, a_3: close(
             _column(a_1, a_2, a_3),
             (AUTOENCODER[1].weight.T @ _column(c_1, c_2)) * (forward(AUTOENCODER, SIXTH).sums[0] > 0))),
    ],
    hints=(
        "Read W4 by columns: the first unit of layer 3 is read with the weights 1, 1, 0 and 0.",
        "Layer 3 has the errors 6, 4 and -4; all its units are on. Now read W3 by columns.",
        "Two units of layer 1 are off for this example. What comes back to them stops there.",
    ),
    mistakes=[
        ("no gates on the way", _carried(through=(False, False)),
         "At layer 1 you let everything pass. Units 2 and 3 are off for this example, so their errors are 0."),
        ("first gate forgotten", _carried(last=False),
         "You began with -6 at output 3. That unit is off, so its error is 0."),
        ("no gate anywhere", _carried(through=(False, False), last=False),
         "You used no gate at all: output 3 and two units of layer 1 are off, and their errors are 0."),
        ("the other sign", _scaled(-1),
         "All your signs are turned round. The difference at the output is output minus target."),
        ("halved", _scaled(0.5),
         "All your numbers are half as large as they should be: the factor 2 from the square is missing."),
        ("rows for columns at layer 1", CARRIED | {"a_1": 12.0, "a_2": 0.0, "a_3": 0.0},
         "At the last step you multiplied along a row of W2. A unit of layer 1 is read along its *column* of W2.",
         lambda c_1, c_2, a_1, a_2, a_3: (c_1, c_2) == (4, -8) and a_1 == 12),
    ],
)


@lesson.exercise(
    "33.4", "Read a loss", difficulty=2, minutes=6,
    prompt="Some outputs are 0 for all examples. Each other output is one number for all examples, the best one. Which "
    "loss is left? Write `stuck_loss(x, dead)`: `x` is a float64 tensor of targets, a row for each output and a column "
    "for each example; `dead` is true for each row whose output is 0. Return a number (a tensor without dimensions).",
    draw=inputs(rows=whole(3, 4), columns=whole(3, 4), x=integers("rows columns", 0, 5),
                mixed=uniform(0.0, 1.0, "rows"), dead=lambda mixed: (mixed < mixed.median()) | (mixed == mixed.max())),
    agrees="For these targets another loss is left.",
    hints=(
        "A row that is 0 loses the sum of the squares of its targets.",
        "Which constant c makes the sum of (x - c)² over the examples least? Set its derivative to 0.",
        "It is the mean of the row, so such a row loses the sum of the squared differences from its mean.",
    ),
    mistakes=[
        ("all dead", edit("torch.where(dead, x.square().sum(1), spread)", "x.square().sum(1)"),
         "You gave every row the loss of the output 0. Rows that are not dead have their best constant."),
        ("none dead", edit("torch.where(dead, x.square().sum(1), spread)", "spread"),
         "You gave every row its best constant. Dead rows put out 0."),
        ("the other rows", edit("torch.where(dead, x.square().sum(1), spread)",
                                "torch.where(dead, spread, x.square().sum(1))"),
         "You took the rows the wrong way round: `dead` is true where the output is 0."),
        ("live rows are free", edit("x.square().sum(1), spread)", "x.square().sum(1), 0 * spread)"),
         "You counted the dead rows only. A constant is not right for all examples either."),
        ("one mean for all", edit("x.mean(1, keepdim=True)", "x.mean()"),
         "You used one constant for all outputs. Each output has its own."),
        ("mean over outputs", edit("x.mean(1, keepdim=True)", "x.mean(0, keepdim=True)"),
         "You averaged over the outputs. A constant output is the same for all *examples*: average along a row."),
        ("variance", edit(".square().sum(1)\n", ".square().mean(1)\n"),
         "For the live rows you took the mean of the squares. The loss adds them up."),
        ("median", edit("x.mean(1, keepdim=True)", "x.median(1, keepdim=True).values"),
         "You took the median. Squares are least at the mean."),
    ],
)
def stuck_loss(x, dead):
    """Return the loss of outputs that are 0 where `dead`, and their best constant elsewhere."""
    spread = (x - x.mean(1, keepdim=True)).square().sum(1)
    return torch.where(dead, x.square().sum(1), spread).sum()


def _layer_gradients(x, w1, b1, w2, b2):
    """Those of the first and those of the second layer by autograd, flattened and joined."""
    def loss(w1, b1, w2, b2):
        return ((w2 @ (w1 @ x + b1[:, None]).relu() + b2[:, None]).relu() - x).square().sum()

    parts = [part.flatten() for part in grad(loss, argnums=(0, 1, 2, 3))(w1, b1, w2, b2)]
    return torch.cat(parts[:2]), torch.cat(parts[2:])


@lesson.exercise(
    "33.5", "Write the backward pass", difficulty=3, minutes=20,
    prompt="Write `all_gradients(x, w1, b1, w2, b2)` without autograd: the gradients of $\\sum(Y - X)^2$ (33.2) for the "
    "autoencoder $h = \\max(0, W_1X + b_1)$, $Y = \\max(0, W_2h + b_2)$. `x` has shape `(d, examples)`, `w1` `(k, d)`, "
    "`b1` `(k,)`, `w2` `(d, k)`, `b2` `(d,)`, all float64. Return one vector: the gradients of $W_1, b_1, W_2, b_2$ in this "
    "order, each flattened row by row, joined by `torch.cat`.",
    draw=inputs(
        d=whole(2, 3), k=whole(2, 3), examples=whole(2, 3),
        x=integers("d examples", 0, 3), w1=integers("k d", -2, 2), b1=integers("k", -1.5, 2.5),
        w2=integers("d k", -2, 2), b2=integers("d", -1.75, 2.25),
    ),
    properties=[
        ("The gradients of the second layer are not the slopes of the loss.",
         lambda x, w1, b1, w2, b2, answer:
         close(answer[w1.numel() + len(b1):], _layer_gradients(x, w1, b1, w2, b2)[1])),
        ("The gradients of the first layer are not the slopes of the loss.",
         lambda x, w1, b1, w2, b2, answer:
         close(answer[:w1.numel() + len(b1)], _layer_gradients(x, w1, b1, w2, b2)[0])),
    ],
    forbids=("autograd",),
    hints=(
        "First a forward pass that keeps both sums and the hidden values: the backward pass needs them all.",
        "The error of layer 2 is exercise 33.2; times the values that layer 2 read, transposed, it is that layer's "
        "gradient.",
        "Carry the error back with the transpose of the second weights, then apply the first layer's own mask.",
    ),
    mistakes=[
        ("no mask at the output", edit(" * (z2 > 0)", ""),
         "The mask of the last ReLU is missing: output units that are off pass nothing back."),
        ("no mask at the code", edit(" * (z1 > 0)", ""),
         "The mask of the hidden ReLU is missing: after W2 transposed, the error is set to 0 where the first layer's sum "
         "was negative."),
        ("the other sign", edit("2 * (", "-2 * ("),
         "All signs are turned round: the difference is output minus target. The minus of descent comes later, in the "
         "update."),
        ("weights first", edit("delta1.sum(1), delta2 @ h1.T", "delta2 @ h1.T, delta1.sum(1)"),
         "Your gradients are right and in another order, weights first. Join those of W1, b1, W2, b2 as they come."),
        ("from back to front", edit("delta1 @ x.T, delta1.sum(1), delta2 @ h1.T, delta2.sum(1)",
                                    "delta2 @ h1.T, delta2.sum(1), delta1 @ x.T, delta1.sum(1)"),
         "Your gradients are right and in the order in which they are found, layer 2 first. Join those of W1, b1, W2, b2."),
        ("forgot the two", edit("2 * (", "("),
         "All of it is half as large as it should be: the factor 2 from the square is missing."),
        ("mean for sum", edit("2 * (", "2 / x.numel() * ("),
         "You differentiated the mean of the squares. The loss here is their sum."),
        ("sums for values", edit("h1.T", "z1.T"),
         "The second weights' gradient is built from the sums of layer 1. They were multiplied by its values, after the "
         "ReLU."),
        ("no bias in the forward pass", edit(" + b1[:, None]", "", " + b2[:, None]", ""),
         "Your forward pass leaves out the biases, so the masks and errors belong to another network."),
        ("no masks", edit(" * (z2 > 0)", "", " * (z1 > 0)", ""),
         "Both masks are missing: each ReLU sets the error of its own units to 0 where their sums are negative."),
        ("mean over examples", edit("2 * (", "2 / x.shape[1] * ("),
         "You divided by the number of examples. The loss is a sum over them."),
        ("bias mean", edit("delta1.sum(1)", "delta1.mean(1)", "delta2.sum(1)", "delta2.mean(1)"),
         "Your biases' gradients are means over the examples. As for the weights, the effects on all examples add up."),
        ("masks exchanged in time", edit("(w2.T @ delta2) * (z1 > 0)", "w2.T @ (delta2 * (z2 > 0)) * (w1 @ x > 0)"),
         "The mask of layer 1 looks at the sums without their bias. Use the whole sums, as in the forward pass."),
        ("no ReLU in the forward pass", edit("z1.clamp(min=0)", "z1", "(z2.clamp(min=0) - x)", "(z2 - x)"),
         "Your forward pass leaves out the ReLUs: the values are max(0, z), and the error compares those with x."),
    ],
)
def all_gradients(x, w1, b1, w2, b2):
    """Return the gradients of a two-layer ReLU autoencoder's loss in W1, b1, W2, b2, flattened and joined."""
    z1 = w1 @ x + b1[:, None]
    h1 = z1.clamp(min=0)
    z2 = w2 @ h1 + b2[:, None]
    delta2 = 2 * (z2.clamp(min=0) - x) * (z2 > 0)
    delta1 = (w2.T @ delta2) * (z1 > 0)
    parts = (delta1 @ x.T, delta1.sum(1), delta2 @ h1.T, delta2.sum(1))
    return torch.cat([part.flatten() for part in parts])


@lesson.exercise(
    "33.6", "The gradient of sparsity", difficulty=2, minutes=8,
    prompt="Write `penalty_gradient(features, decoder_weight, l1)`: the derivatives of "
    "$\\lambda\\sum_n\\sum_i f_{i,n}\\lVert W_{d,:,i}\\rVert_2$ in the features, with 0 where a feature is 0. `features` "
    "is a float64 tensor of shape `(n_features, examples)` with no negative entries, `decoder_weight` has shape "
    "`(d, n_features)`, `l1` is $\\lambda$; return a tensor of the features' shape.",
    draw=inputs(
        d=whole(2, 3), n_features=whole(3, 4), examples=whole(2, 3),
        sums=integers("n_features examples", -2, 4), features=lambda sums: sums.relu(),
        decoder_weight=integers("d n_features", -3, 3), l1=uniform(0.1, 2.0, digits=1),
    ),
    properties=[
        ("Where a feature is 0, your entry should be 0.", lambda features, answer: (answer[features == 0] == 0).all()),
        ("A small step against your gradient should never make an active feature larger.",
         lambda features, answer: (answer[features > 0] >= 0).all()),
        ("Your numbers are not the slopes of the penalty.",
         lambda features, decoder_weight, l1, answer:
         close(answer, grad(lambda f: l1 * (f.relu() * decoder_weight.norm(dim=0)[:, None]).sum())(features))),
    ],
    hints=(
        "The penalty is linear in each active feature: its slope is a constant of that feature.",
        "One norm for each column of the decoder's matrix, so one for each feature; it is the same for all examples.",
        "Give the norms a second dimension before multiplying, and switch inactive entries off at the end.",
    ),
    mistakes=[
        ("minus", edit("l1 *", "-l1 *"),
         "Your sign is minus. That is the direction of the step: the slope of an active feature's "
         "penalty is positive. Subtracting your gradient would make features grow."),
        ("no norms", edit("decoder_weight.norm(dim=0)[:, None] * (features > 0)", "(features > 0).double()"),
         "You left out the norms of the decoder's columns. Then a feature can shrink for free while its column grows."),
        ("inactive, too", edit(" * (features > 0)", ".expand_as(features)"),
         "Features that are 0 get a slope, too. The ReLU passes nothing on there: their entries are 0."),
        ("one norm for all", edit("norm(dim=0)[:, None]", "norm()"),
         "You used the norm of the whole matrix. Each feature has its own column, with its own norm."),
        ("no lambda", edit("l1 * ", ""),
         "You left out lambda: every slope is proportional to the weight of the penalty."),
        ("value for slope", edit("(features > 0)", "features"),
         "Those are the terms of the penalty, not their slopes: the derivative of c f in f is c."),
        ("mean over examples", edit("l1 *", "l1 / features.shape[1] *"),
         "You divided by the number of examples. The penalty is a sum over examples."),
        ("squared norms", edit("norm(dim=0)[", "square().sum(dim=0)["),
         "You weight each feature by the square of its column's norm: the root is missing."),
        ("sum of sizes", edit("norm(dim=0)[", "abs().sum(dim=0)["),
         "You weight by the sum of sizes of each column, its L1 norm. The weight is the Euclidean norm."),
    ],
)
def penalty_gradient(features, decoder_weight, l1):
    """Return the derivatives of the weighted sum of features, each times its decoder column's norm."""
    return l1 * decoder_weight.norm(dim=0)[:, None] * (features > 0)


def _unchanged_where_off(x, w_e, b_e, answer):
    off = (w_e @ x + b_e[:, None] <= 0).all(dim=1)
    return torch.equal(answer[off], w_e[off])


def _autograd_step(x, w_e, b_e, w_d, b_d, l1, step_size):
    def loss(leaf):
        features = (leaf @ x + b_e[:, None]).relu()
        error = w_d @ features + b_d[:, None] - x
        return error.square().sum() + l1 * (features * w_d.norm(dim=0)[:, None]).sum()

    return w_e - step_size * grad(loss)(w_e)


@lesson.exercise(
    "33.7", "The whole step", difficulty=3, minutes=15,
    prompt="Finish the step: write "
    "`encoder_step(x, w_e, b_e, w_d, b_d, l1, step_size)`, the new encoder weights after one step of gradient descent on "
    "(33.9), without autograd. `x` has shape `(d, examples)`, `w_e` `(n, d)`, `b_e` `(n,)`, `w_d` `(d, n)`, `b_d` `(d,)`, "
    "all float64; `l1` is $\\lambda$, `step_size` is $\\eta$.",
    draw=inputs(
        d=whole(2, 3), n=whole(3, 4), examples=whole(2, 3),
        x=integers("d examples", -2, 2), w_e=integers("n d", -2, 2), b_e=integers("n", -0.5, 1.5),
        w_d=integers("d n", -2, 2), b_d=integers("d", -1, 1), l1=uniform(0.5, 2.0, digits=1), step_size=uniform(0.01, 0.09),
    ),
    properties=[
        ("A row whose feature is off for every token should stay as it was.", _unchanged_where_off),
        ("Your step is not minus the step size times the slopes of the loss.",
         lambda x, w_e, b_e, w_d, b_d, l1, step_size, answer:
         close(answer, _autograd_step(x, w_e, b_e, w_d, b_d, l1, step_size))),
    ],
    hints=(
        "Two gradients meet at the features: one comes back through the decoder, one is that of the penalty.",
        "Add the two, then let the ReLU's mask decide which entries go on to the encoder.",
        "What goes on, times the transposed tokens, is the gradient of the encoder's weights. Then take the step.",
    ),
    mistakes=[
        ("minus one", edit("+ l1", "- l1"),
         "Your penalty has the wrong sign: it is subtracted from the reconstruction's gradient, so the step makes "
         "active features larger."),
        ("uphill", edit("w_e - step_size", "w_e + step_size"),
         "You added the gradient. Descent goes against it: the weights minus the step size times the gradient."),
        ("no mask", edit(" * (z > 0)", ""),
         "Features that are off learn in your step. The ReLU's mask sets their error to 0, for both parts."),
        ("no norms", edit(" * w_d.norm(dim=0)[:, None]", ""),
         "Your penalty counts each feature once. In (33.9) each is weighted by the norm of its decoder column."),
        ("penalty only", edit("w_d.T @ error + ", ""),
         "Only the penalty is in your step. The reconstruction's gradient, carried back through the decoder, is missing."),
        ("reconstruction only", edit(" + l1 * w_d.norm(dim=0)[:, None]", ""),
         "The penalty is missing in your step: only the reconstruction's gradient is there."),
        ("forgot the two", edit("2 * ", ""),
         "The factor 2 from the square of the reconstruction error is missing."),
        ("mean over examples", edit("step_size * delta", "step_size / x.shape[1] * delta"),
         "You divided by the number of examples. The loss (33.9) is a sum over them."),
        ("mask on one part", edit("(w_d.T @ error + l1 * w_d.norm(dim=0)[:, None]) * (z > 0)",
                                  "(w_d.T @ error) * (z > 0) + l1 * w_d.norm(dim=0)[:, None]"),
         "Your mask reaches the reconstruction's part alone. A feature that is off gets nothing from the penalty either."),
        ("mask on the other part", edit("(w_d.T @ error + l1 * w_d.norm(dim=0)[:, None]) * (z > 0)",
                                        "w_d.T @ error + l1 * w_d.norm(dim=0)[:, None] * (z > 0)"),
         "Your mask reaches the penalty alone. What comes back through the decoder passes the same ReLU."),
        ("the gradient", edit("w_e - step_size * delta @ x.T", "delta @ x.T"),
         "You returned the gradient. The new weights are asked for: the old ones minus the step size times it."),
        ("the change", edit("w_e - step_size * delta @ x.T", "-step_size * delta @ x.T"),
         "You returned the change. The new weights are the old ones plus it."),
        ("norms of rows", edit("w_d.norm(dim=0)[:, None]", "w_e.norm(dim=1)[:, None]"),
         "You weighted the penalty by the norms of the encoder's rows. (33.9) has those of the decoder's columns."),
        ("penalty doubled", edit("l1 * w_d", "2 * l1 * w_d"),
         "Your penalty's slope carries a factor 2. The 2 comes from a square, and the penalty has none."),
    ],
)
def encoder_step(x, w_e, b_e, w_d, b_d, l1, step_size):
    """Return the encoder's weights after one step of gradient descent on the sparse autoencoder's loss."""
    z = w_e @ x + b_e[:, None]
    f = z.clamp(min=0)
    error = 2 * (w_d @ f + b_d[:, None] - x)
    delta = (w_d.T @ error + l1 * w_d.norm(dim=0)[:, None]) * (z > 0)
    return w_e - step_size * delta @ x.T


EXERCISES = lesson.exercises
