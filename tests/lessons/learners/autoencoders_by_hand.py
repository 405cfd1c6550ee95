"""What learners answer to lesson 25, autoencoders_by_hand, and what its predictions must not be told."""

import torch
from torch.func import grad

from course_lib.teaching import edit

RIGHT = {"code_1": 2, "code_2": 0, "y_1": 1, "y_2": 3, "y_3": 0, "y_4": 1, "loss": 19}


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
    "25.1": [
        ("solved", "floats", {key: float(value) for key, value in RIGHT.items()}),
        ("solved", "tensors", {key: torch.tensor(value) for key, value in RIGHT.items()}),
        ("solved", "another order", dict(reversed(RIGHT.items()))),
        ("root of the loss", "the norm, rounded", RIGHT | {"loss": 4.36}),
        ("sizes for squares", "absolute differences", RIGHT | {"loss": 7}),
        ("mean for sum", "the mean", RIGHT | {"loss": 4.75}),
        ("half the loss", "half", RIGHT | {"loss": 9.5}),
        ("third output below 0", "no ReLU at the output alone", RIGHT | {"y_3": -1, "loss": 26}),
        ("third output below 0", "the same, loss not worked out again", RIGHT | {"y_3": -1}),
        ("layer 1 for the code", "the first two of layer 1", RIGHT | {"code_1": 3, "code_2": 0}),
        ("layer 1 for the code", "the sums of layer 1", RIGHT | {"code_1": 3, "code_2": -1}),
        ("code turned round", "the code's entries exchanged", RIGHT | {"code_1": 0, "code_2": 2}),
        ("no ReLU in the encoder", "a negative sum went on", {"code_1": 3, "code_2": -1} | {
            "y_1": 1, "y_2": 5, "y_3": 0, "y_4": 1, "loss": 27}),
        ("wrong", "a slip in one output", RIGHT | {"y_4": 2, "loss": 14}),
    ],
    "25.2": [
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
    "25.3": [
        ("solved", "tiny against one large", {"a_1": 1e-3, "a_2": 2e-3, "b_1": 1, "b_2": 0}),
        ("solved", "B with a negative weight", {"a_1": 0.5, "a_2": 0.5, "b_1": 1, "b_2": -9}),
        ("solved", "nothing fires in B", {"a_1": 1, "a_2": 0, "b_1": -3, "b_2": -3}),
        ("sum not smaller", "one against one", {"a_1": 1, "a_2": 1, "b_1": 2, "b_2": 0}),
        ("sum not smaller", "exchanged", {"a_1": 5, "a_2": 0, "b_1": 0.01, "b_2": 0.01}),
        ("sum not smaller", "signed sums", {"a_1": 3, "a_2": -4, "b_1": 0.1, "b_2": 0.1}),
        ("nothing fires", "all negative", {"a_1": -1, "a_2": -1, "b_1": -2, "b_2": -2}),
        ("nothing fires", "A all zero", {"a_1": 0, "a_2": 0, "b_1": 0, "b_2": -2}),
        ("as many", "both fire in both", {"a_1": 0.1, "a_2": 0.1, "b_1": 5, "b_2": 5}),
        ("as many", "one in each", {"a_1": 0.1, "a_2": -0.1, "b_1": 5, "b_2": 0}),
        ("what the notes expect", "fewer in A", {"a_1": 0.1, "a_2": 0, "b_1": 5, "b_2": 5}),
        ("what the notes expect", "none in A", {"a_1": 0, "a_2": 0, "b_1": 5, "b_2": 0}),
    ],
    "25.4": [
        ("solved", "einsum and where", penalty_by_einsum),
        ("solved", "autograd", penalty_by_autograd),
        ("solved", "sign of the features", edit("(features > 0)", "features.sign()")),
        ("squared norms", "no root", edit("norm(dim=0)[", "pow(2).sum(0)[")),
        ("sum of sizes", "L1 norm", edit("norm(dim=0)[", "norm(p=1, dim=0)[")),
        ("mean over examples", "mean", edit("l1 *", "l1 / features.size(1) *")),
        ("minus", "the notes' sign", lambda f, w, l1: -l1 * w.norm(dim=0)[:, None] * (f > 0)),
        ("no norms", "lambda alone", lambda f, w, l1: l1 * torch.sign(f)),
        ("inactive, too", "no mask", lambda f, w, l1: l1 * w.norm(dim=0)[:, None] + 0 * f),
        ("one norm for all", "matrix norm", lambda f, w, l1: l1 * torch.linalg.norm(w) * (f > 0)),
        ("no lambda", "lambda forgotten", lambda f, w, l1: w.norm(dim=0)[:, None] * (f > 0)),
        ("value for slope", "terms", lambda f, w, l1: l1 * f * w.norm(dim=0)[:, None]),
        ("malformed", "norms of the rows", lambda f, w, l1: l1 * w.norm(dim=1)[:, None] * (f > 0)),
        ("malformed", "norms along the examples", lambda f, w, l1: l1 * w.norm(dim=0) * (f > 0)),
    ],
    "25.5": [
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
    "25.6": [
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
    "25.P1": [r"gets no gradient", r"passes nothing on", r"the mask removes it"],
    "25.P2": [r"[Ll]arger (decoder )?columns|columns (grow|longer)", r"Divide the features", r"plain sum"],
}
