"""What learners answer to lesson 33, autoencoders_by_hand, and what its predictions must not be told."""

import torch
from torch.func import grad

from course_lib.teaching import edit

RIGHT = {"code_1": 4, "code_2": 1, "y_1": 2, "y_2": 3, "y_3": 0, "y_4": 2, "loss": 35}
CARRIED = {"c_1": 4, "c_2": -8, "a_1": 4, "a_2": 0, "a_3": 0}


def by_autograd(z, target):
    leaf = z.clone().requires_grad_()
    return torch.autograd.grad((leaf.relu() - target).square().sum(), leaf)[0]


def output_error_in_place(z, target):
    return z.relu_().sub_(target).mul_(2)


def penalty_by_einsum(features, decoder_weight, l1):
    sizes = torch.einsum("ki,ki->i", decoder_weight, decoder_weight).sqrt()
    return torch.where(features > 0, (l1 * sizes).unsqueeze(1), torch.zeros_like(features))


def penalty_by_autograd(features, decoder_weight, l1):
    return grad(lambda f: l1 * (f.relu() * decoder_weight.norm(dim=0).unsqueeze(1)).sum())(features)


def reconstruction(x, w1, b1, w2, b2):
    return (w2 @ (w1 @ x + b1[:, None]).relu() + b2[:, None]).relu()


def gradients_by_autograd(x, w1, b1, w2, b2):
    loss = lambda *w: (reconstruction(x, *w) - x).square().sum()  # noqa: E731
    return torch.cat([part.flatten() for part in grad(loss, argnums=(0, 1, 2, 3))(w1, b1, w2, b2)])


def gradients_of_the_mse(x, w1, b1, w2, b2):
    loss = lambda *w: torch.nn.functional.mse_loss(reconstruction(x, *w), x)  # noqa: E731
    return torch.cat([part.flatten() for part in grad(loss, argnums=(0, 1, 2, 3))(w1, b1, w2, b2)])


def gradients_example_by_example(x, w1, b1, w2, b2):
    total = 0
    for column in x.T:
        total = total + gradients_by_autograd(column[:, None], w1, b1, w2, b2)
    return total


def stuck_by_a_loop(x, dead):
    total = 0.0
    for row, off in zip(x, dead, strict=True):
        total = total + sum((v - (0 if off else row.mean())) ** 2 for v in row)
    return total


def stuck_by_lstsq(x, dead):
    ones = torch.ones(x.shape[1], 1, dtype=x.dtype)
    best = (ones @ torch.linalg.lstsq(ones, x.T).solution).T
    return (x - best * (~dead)[:, None]).square().sum()


def step_of(loss_of):
    def encoder_step(x, w_e, b_e, w_d, b_d, l1, step_size):
        def loss(leaf):
            features = (leaf @ x + b_e[:, None]).relu()
            return loss_of(w_d @ features + b_d[:, None] - x, features, w_d, l1)

        return w_e - step_size * grad(loss)(w_e)

    return encoder_step


weighted = step_of(lambda d, f, w, l1: (d**2).sum() + l1 * (w.norm(dim=0) @ f).sum())
averaged = step_of(lambda d, f, w, l1: ((d**2).sum() + l1 * (w.norm(dim=0) @ f).sum()) / d.shape[1])
squared = step_of(lambda d, f, w, l1: (d**2).sum() + l1 * (w.norm(dim=0) @ f.square()).sum())


def step_in_place(x, w_e, b_e, w_d, b_d, l1, step_size):
    change = weighted(x, w_e, b_e, w_d, b_d, l1, step_size) - w_e
    w_e += change
    return w_e


ANSWERS = {
    "33.1": [
        ("solved", "floats", {key: float(value) for key, value in RIGHT.items()}),
        ("solved", "tensors", {key: torch.tensor(value) for key, value in RIGHT.items()}),
        ("solved", "another order", dict(reversed(RIGHT.items()))),
        ("root of the loss", "the norm, rounded", RIGHT | {"loss": 5.92}),
        ("sizes for squares", "absolute differences", RIGHT | {"loss": 11}),
        ("mean for sum", "the mean", RIGHT | {"loss": 8.75}),
        ("half the loss", "half", RIGHT | {"loss": 17.5}),
        ("third output below 0", "no ReLU at the output alone", RIGHT | {"y_3": -3, "loss": 62}),
        ("third output below 0", "the same, loss not worked out again", RIGHT | {"y_3": -3}),
        ("layer 1 for the code", "the first two of layer 1", RIGHT | {"code_1": 5, "code_2": 0}),
        ("layer 1 for the code", "the sums of layer 1", RIGHT | {"code_1": 5, "code_2": -5}),
        ("code turned round", "the code's entries exchanged", RIGHT | {"code_1": 1, "code_2": 4}),
        ("wrong", "a slip in one output", RIGHT | {"y_4": 3, "loss": 28}),
    ],
    "33.2": [
        ("solved", "autograd", by_autograd),
        ("solved", "twice the difference where on", lambda z, target: torch.where(z > 0, 2 * (z - target), 0.0)),
        ("no mask", "in place, without a mask", output_error_in_place),
        ("no mask", "mask forgotten", lambda z, target: 2 * (torch.relu(z) - target)),
        ("mean over examples", "divided by the columns", edit("2 *", "2 / z.size(-1) *")),
        ("mean for sum", "mse_loss", lambda z, target: grad(
            lambda s: torch.nn.functional.mse_loss(s.relu(), target))(z)),
        ("the other way round", "target minus output", lambda z, target: 2 * (target - z.relu()) * (z > 0)),
        ("values for the mask", "the ReLU for its slope", lambda z, target: 2 * (z.relu() - target) * z.relu()),
        ("loss for slope", "squares", lambda z, target: (target - z.relu()).square()),
        ("mask turned round", "off for on", edit("z > 0", "z < 0")),
        ("forgot the two", "half the square", lambda z, target: (z - target) * (z > 0)),
        ("sums for outputs", "no ReLU at all", lambda z, target: 2 * (z - target)),
        ("mask of the output error", "mask of the difference", edit("(z > 0)", "(z.relu() - target > 0)")),
        ("malformed", "one number", lambda z, target: (2 * (z.relu() - target) * (z > 0)).sum()),
    ],
    "33.3": [
        ("solved", "floats", {name: float(value) for name, value in CARRIED.items()}),
        ("solved", "tensors", {name: torch.tensor(float(value)) for name, value in CARRIED.items()}),
        ("no gates on the way", "all of layer 1 passes", CARRIED | {"a_2": -12, "a_3": 8}),
        ("the other sign", "input minus output", {name: -value for name, value in CARRIED.items()}),
        ("halved", "no factor 2", {name: value / 2 for name, value in CARRIED.items()}),
        ("first gate forgotten", "-6 at output 3 passes", {"c_1": 16, "c_2": -20, "a_1": 16, "a_2": 0, "a_3": 0}),
        ("no gate anywhere", "no gates", {"c_1": 16, "c_2": -20, "a_1": 16, "a_2": -36, "a_3": 20}),
        ("rows for columns at layer 1", "along the first row of W2", CARRIED | {"a_1": 12}),
        ("wrong", "a slip in the code", CARRIED | {"c_2": -10}),
        ("wrong", "a slip at layer 1", CARRIED | {"a_1": 5}),
        ("malformed", "three numbers", {"a_1": 4, "a_2": 0, "a_3": 0}),
    ],
    "33.4": [
        ("solved", "a loop", stuck_by_a_loop),
        ("solved", "moments", lambda x, dead: x.square().sum() - (x.sum(1) ** 2 / x.shape[1])[~dead].sum()),
        ("solved", "the best constant by lstsq", stuck_by_lstsq),
        ("all dead", "squares of all", lambda x, dead: x.square().sum()),
        ("none dead", "all constant", lambda x, dead: (x - x.mean(1, keepdim=True)).square().sum()),
        ("the other rows", "not dead", edit("torch.where(dead,", "torch.where(~dead,")),
        ("live rows are free", "dead rows only", lambda x, dead: x[dead].square().sum()),
        ("one mean for all", "the mean of the table", lambda x, dead: torch.where(
            dead[:, None], x, x - x.mean()).square().sum()),
        ("variance", "population variance", lambda x, dead: torch.where(
            dead, x.square().sum(1), x.var(1, unbiased=False)).sum()),
        ("wrong", "sample variance", lambda x, dead: torch.where(dead, x.square().sum(1), x.var(1)).sum()),
        ("malformed", "one loss for each row", lambda x, dead: torch.where(
            dead, x.square().sum(1), (x - x.mean(1, keepdim=True)).square().sum(1))),
    ],
    "33.5": [
        ("autograd", "autograd", gradients_by_autograd),
        ("autograd", "example by example", gradients_example_by_example),
        ("solved", "masks of the values", edit("(z2 > 0)", "(z2.relu() > 0)", "(z1 > 0)", "(h1 > 0)")),
        ("no masks", "both masks forgotten", edit(" * (z2 > 0)", "", " * (z1 > 0)", "")),
        ("mean for sum", "mse_loss", gradients_of_the_mse),
        ("mean over examples", "mean over columns", edit("2 * (", "2 / x.size(1) * (")),
        ("bias mean", "mean at the biases", edit("delta1.sum(1)", "delta1.mean(1)", "delta2.sum(1)", "delta2.mean(1)")),
        ("no ReLU in the forward pass", "linear values", edit("z1.clamp(min=0)", "z1", "z2.clamp(min=0)", "z2")),
        ("no mask at the code", "one mask forgotten", edit(" * (z1 > 0)", "")),
        ("no mask at the output", "the other mask forgotten", edit(" * (z2 > 0)", "")),
        ("the other sign", "target minus output", edit("(z2.clamp(min=0) - x)", "(x - z2.clamp(min=0))")),
        ("sums for values", "sums", edit("h1.T", "z1.T")),
        ("malformed", "a tuple", edit("torch.cat([part.flatten() for part in parts])", "parts")),
        ("malformed", "biases left out", edit("(delta1 @ x.T, delta1.sum(1), delta2 @ h1.T, delta2.sum(1))",
                                             "(delta1 @ x.T, delta2 @ h1.T)")),
        ("wrong", "each matrix flattened by columns", edit(
            "part.flatten()", "(part.mT if part.ndim > 1 else part).flatten()")),
    ],
    "33.6": [
        ("solved", "einsum and where", penalty_by_einsum),
        ("solved", "autograd", penalty_by_autograd),
        ("solved", "sign of the features", edit("(features > 0)", "features.sign()")),
        ("squared norms", "no root", edit("norm(dim=0)[", "pow(2).sum(0)[")),
        ("sum of sizes", "L1 norm", edit("norm(dim=0)[", "norm(p=1, dim=0)[")),
        ("mean over examples", "mean", edit("l1 *", "l1 / features.size(1) *")),
        ("minus", "the step's sign", lambda f, w, l1: -l1 * w.norm(dim=0)[:, None] * (f > 0)),
        ("no norms", "lambda alone", lambda f, w, l1: l1 * torch.sign(f)),
        ("inactive, too", "no mask", lambda f, w, l1: l1 * w.norm(dim=0)[:, None] + 0 * f),
        ("one norm for all", "matrix norm", lambda f, w, l1: l1 * torch.linalg.norm(w) * (f > 0)),
        ("no lambda", "lambda forgotten", lambda f, w, l1: w.norm(dim=0)[:, None] * (f > 0)),
        ("value for slope", "terms", lambda f, w, l1: l1 * f * w.norm(dim=0)[:, None]),
        ("malformed", "norms of the rows", lambda f, w, l1: l1 * w.norm(dim=1)[:, None] * (f > 0)),
        ("malformed", "norms along the examples", lambda f, w, l1: l1 * w.norm(dim=0) * (f > 0)),
    ],
    "33.7": [
        ("solved", "autograd", weighted),
        ("solved", "in place", step_in_place),
        ("solved", "two masks", edit("error + l1 * w_d.norm(dim=0)[:, None]) * (z > 0)",
                                     "error) * (z > 0) + l1 * w_d.norm(dim=0)[:, None] * (f > 0)")),
        ("mean over examples", "mean", averaged),
        ("mask on one part", "penalty unmasked", edit(
            "(w_d.T @ error + l1 * w_d.norm(dim=0)[:, None]) * (z > 0)",
            "l1 * w_d.norm(dim=0)[:, None] + (w_d.T @ error) * (z > 0)")),
        ("mask on the other part", "reconstruction unmasked", edit(
            "(w_d.T @ error + l1 * w_d.norm(dim=0)[:, None]) * (z > 0)",
            "l1 * w_d.norm(dim=0)[:, None] * (f > 0) + w_d.T @ error")),
        ("the gradient", "gradient returned", edit("w_e - step_size * delta", "delta")),
        ("the change", "change returned", edit("w_e - ", "-")),
        ("norms of rows", "encoder's norms", edit("w_d.norm(dim=0)[:, None]", "w_e.norm(dim=1, keepdim=True)")),
        ("penalty doubled", "two for both", edit("+ l1", "+ 2 * l1")),
        ("uphill", "plus", edit("w_e - step_size", "w_e + step_size")),
        ("forgot the two", "no two", edit("2 * (w_d", "(w_d")),
        ("wrong", "features squared in the penalty", squared),
    ],
}  # fmt: skip

GIVES_AWAY = {
    "33.P1": [r"cannot move this unit", r"stays there", r"[Ss]lope is 0"],
    "33.P2": [r"corner", r"slope 38|= 38", r"left slope"],
    "33.P3": [r"0\.0006", r"None of four sizes", r"changes sign"],
}

NEIGHBOURS = {
    "33.1": ("h = z.clamp(min=0)\nclaim", "h = z\nclaim"),
    "33.3": ("delta = 2 * (h - EXAMPLES) * (z > 0)", "delta = 2 * (h - EXAMPLES)"),
    "33.4": (
        "delta = (AUTOENCODER[k].weight.T @ delta) * (passed.sums[k - 1] > 0)",
        "delta = AUTOENCODER[k].weight.T @ delta",
    ),
    "33.5": ("gradients += [delta.sum(1),", "gradients += [delta.mean(1),"),
    "33.e1": (
        "(lesson.nudged_loss(h) - lesson.nudged_loss(0)) / h for h in (-1e-6, 1e-6)",
        "(lesson.nudged_loss(h) - lesson.nudged_loss(-h)) / (2 * h) for h in (-1e-6, 1e-6)",
    ),
    "33.e2": ("[paths[eta][1][-1] for eta", "[paths[eta][0][-1] for eta"),
    "33.e3": ("[unit_2[40] for", "[unit_2[0] for"),
    "33.e4": ("[max(paths[eta][3]) for eta", "[max(paths[eta][4]) for eta"),
    "33.e11": ("only_down=(1,))", "only_down=())"),
    "33.e5": ("(0.0001, 0.0003, 0.0005, 0.0006)", "(0.0001, 0.0003, 0.0005, 0.0007)"),
    "33.7": ("dead = (thrown.sums[3] <= 0).all(1)", "dead = (thrown.sums[3] <= 0).any(1) & False"),
    "33.e6": ('{"backward_leak": 0.1}', '{"backward_leak": 0.0}'),
}
