"""What learners answer to lesson 35, stacked_autoencoder, and what its predictions must not be told."""

import math

import torch

from course_lib.teaching import edit


def components_in_a_loop(variances, share):
    kept, values = 0.0, sorted(variances.tolist(), reverse=True)
    for k, value in enumerate(values, start=1):
        kept += value
        if kept >= share * sum(values):
            return k
    return len(values)


def components_by_search(variances, share):
    shares = variances.sort(descending=True).values.cumsum(0) / variances.sum()
    return torch.searchsorted(shares, torch.tensor(share, dtype=torch.float64)) + 1


def kept_by_regression(x, code):
    z, y = code - code.mean(0), x - x.mean(0)
    fitted = z @ torch.linalg.pinv(z) @ y
    return float(fitted.square().sum() / y.square().sum())


def kept_by_covariance(x, code):
    z, y = code - code.mean(0), x - x.mean(0)
    cross = z.T @ y
    return torch.trace(cross.T @ torch.linalg.solve(z.T @ z, cross)) / (y**2).sum()


def pca_of_x(x, code):
    s = torch.linalg.svdvals(x - x.mean(0)) ** 2
    return s[: code.shape[1]].sum() / s.sum()


def centred_without_intercept(x, code):
    y = x - x.mean(0)
    return 1 - (y - code @ torch.linalg.lstsq(code, y).solution).square().sum() / y.square().sum()


def phi(b):
    return torch.distributions.Normal(0.0, 1.0).cdf(torch.tensor(float(b), dtype=torch.float64))


def relu_by_torch(bias):
    cdf = phi(bias)
    density = math.exp(-(bias**2) / 2) / math.sqrt(2 * math.pi)
    variance = (1 + bias**2) * cdf + bias * density - (bias * cdf + density) ** 2
    return cdf.square() / variance


def relu_by_integration(bias):
    u = torch.linspace(-9, 9, 180_001, dtype=torch.float64)
    p = torch.exp(-(u**2) / 2)
    p, r = p / p.sum(), torch.relu(u + bias)
    return float((p * u * r).sum() ** 2 / ((p * r * r).sum() - (p * r).sum() ** 2))


ANSWERS = {
    "35.1": [
        ("solved", "pseudo-inverse", kept_by_regression),
        ("solved", "covariances", kept_by_covariance),
        ("solved", "means for sums", edit("(x - decoded).square().sum()", "(x - decoded).square().mean()",
                                         "x.mean(dim=0)).square().sum()", "x.mean(dim=0)).square().mean()")),
        ("no intercept", "no ones", edit("torch.cat([code, torch.ones_like(code[:, :1])], dim=1)", "code")),
        ("variance about zero", "about 0", edit("(x - x.mean(dim=0))", "x")),
        ("what is missing", "1 - R", edit("1 - (x", "(x")),
        ("mean over all entries", "one mean for all", edit("x.mean(dim=0)", "x.mean()")),
        ("mean over the other axis", "mean of each row", edit("x.mean(dim=0)", "x.mean(dim=1, keepdim=True)")),
        ("PCA of the rows", "the bound", pca_of_x),
        ("root", "not squared", edit("1 - (x - decoded).square().sum() / (x - x.mean(dim=0)).square().sum()",
                                    "1 - (x - decoded).norm() / (x - x.mean(dim=0)).norm()")),
        ("intercept for x alone", "only x centred", centred_without_intercept),
        ("mean over dimensions", "r2 per dimension", edit(
            "1 - (x - decoded).square().sum()", "(1 - (x - decoded).square().sum(0)",
            "x.mean(dim=0)).square().sum()", "x.mean(dim=0)).square().sum(0)).mean()")),
    ],
    "35.2": [
        ("solved", "three quarters", 3 / 4),
        ("solved", "two digits", 0.75),
        ("solved", "a tensor", torch.tensor(9 / 12)),
        ("equal weights", "a half of each", 6 / 12),
        ("all on the largest", "weight 2", 12 / 12),
        ("the sum", "not divided", 9),
        ("smallest first", "2 and 1", 3 / 12),
        ("what is missing", "12 less 9", 3),
        ("wrong", "the largest alone", 6 / 12 + 0.1),
        ("malformed", "a formula", "9 / 12"),
    ],
    "35.3": [
        ("solved", "a loop", components_in_a_loop),
        ("solved", "searchsorted", components_by_search),
        ("solved", "a tensor", edit("int((kept < share * kept[-1]).sum())", "(kept < share * kept[-1]).sum()")),
        ("unsorted", "no sort", edit(".sort(descending=True).values", "")),
        ("smallest first", "sort's default", edit("sort(descending=True)", "sort()")),
        ("more than the share", "<=", edit("<", "<=")),
        ("one too few", "no + 1", edit(" + 1", "")),
        ("isotropic rule", "ceil of share times D", lambda variances, share: -int(-share * len(variances) // 1)),
        ("standard deviations", "roots", edit("variances.sort", "variances.pow(0.5).sort")),
        ("squares", "variances squared", edit("variances.sort", "variances.square().sort")),
        ("always one", "not divided by the total", edit("share * kept[-1]", "share")),
        ("always one", "mean of the variances", edit("share * kept[-1]", "share * variances.mean()")),
        ("always one", "variances above the share", edit(".cumsum(dim=0)", "")),
        ("always one", "a constant", lambda variances, share: 1),
        ("always zero", "zeros", lambda variances, share: 0),
        ("always zero", "the total forgotten, no + 1", lambda variances, share: int((variances.cumsum(0) < share).sum())),
        ("all of them", "every partial sum above the share", lambda variances, share: int(
            (variances.sort(descending=True).values.cumsum(0) >= share).sum())),
        ("all of them", "the length", lambda variances, share: len(variances)),
        ("a share of components", "the count plus 0.4", edit(" + 1", " + 1.4")),
    ],
    "35.4": [
        ("solved", "by the pair's lengths", lambda x: (x**2).sum(1).sqrt().mean()),
        ("solved", "a loop", lambda x: sum(math.hypot(*row) for row in x.tolist()) / len(x)),
        ("solved", "least squares", lambda x: torch.linalg.lstsq(
            torch.ones(len(x), 1, dtype=torch.float64), x.norm(dim=1, keepdim=True)).solution[0, 0]),
        ("wrong", "a coarse grid", lambda x: round(float(x.norm(dim=1).mean()), 2) + 0.01),
        ("root mean square", "of the lengths", lambda x: x.norm(dim=1).square().mean().sqrt()),
        ("median", "quantile", lambda x: x.norm(dim=1).quantile(0.5)),
        ("length of the mean", "centre", lambda x: x.mean(0).norm()),
        ("normal rows", "1.25", lambda x: (math.pi / 2) ** 0.5),
        ("mean square", "squares", lambda x: (x * x).sum(1).mean()),
        ("over all entries", "sizes", lambda x: x.abs().mean()),
        ("largest", "the outermost", lambda x: x.norm(dim=1).max()),
        ("malformed", "one for each row", lambda x: x.norm(dim=1)),
    ],
    "35.5": [
        ("solved", "torch's distribution function", relu_by_torch),
        ("solved", "an integral", relu_by_integration),
        ("solved", "erf", edit("math.erfc(-bias / math.sqrt(2)) / 2", "(1 + math.erf(bias / math.sqrt(2))) / 2")),
        ("second moment", "E r^2", edit(" - mean**2", "")),
        ("covariance not squared", "slope", edit("cdf**2", "cdf")),
        ("correlation not squared", "root", edit("cdf**2 / (second - mean**2)", "cdf / (second - mean**2) ** 0.5")),
        ("bias with the wrong sign", "erfc(b)", lambda bias: relu_by_torch(-bias)),
        ("without the bias", "bias 0", lambda bias: relu_by_torch(0)),
        ("how often it fires", "probability", lambda bias: math.erfc(-bias / math.sqrt(2)) / 2),
        ("variance of the unit", "Var r", edit("cdf**2 / (second - mean**2)", "second - mean**2")),
        ("tail for the distribution", "erfc(b) for erfc(-b)", edit("erfc(-bias", "erfc(bias")),
        ("density without its factor", "exp alone", edit(" / math.sqrt(2 * math.pi)", "")),
    ],
}  # fmt: skip

GIVES_AWAY = {
    "35.P1": [r"69%|0\.69|70%", r"\b27%"],
    "35.P2": [r"every encoder", r"no encoder", r"bent decoder", r"bent encoder"],
    "35.P3": [r"on the twin", r"finds none of"],
}

NEIGHBOURS = {
    "35.e1": ('new states", given_back(states, 32)', 'new states", given_back(states, 28)'),
    "35.e2": (
        '"before training {:.1%}", given_back(untrained, 32)',
        '"before training {:.1%}", given_back(states, 32)',
    ),
    "35.e3": ('gain["bent encoder"], equals=0', 'gain["bent decoder"], equals=0'),
    "35.e4": ('gain["bent decoder"][0], at_least', 'gain["bent encoder"][0], at_least'),
    "35.3": ("best + 10 ** (1 - seed / 25) * bent))", "torch.cat([best, bent], dim=1)))"),
    "35.4": ("for rows in (states, untrained):", "for rows in (untrained, states):"),
    "35.5": ("circle = plane.norm(dim=1).mean()", "circle = plane.square().sum(dim=1).mean().sqrt()"),
    "35.e5": ('8, bent=("encoder", "decoder")', '8, bent=("encoder",)'),
    "35.e6": ('"both bent") for k in (2, 8)]', '"both bent") for k in (8, 32)]'),
    "35.e7": ('mean_gain("twin", 8, "both bent"), at_most', 'mean_gain("states", 8, "both bent"), at_most'),
}
