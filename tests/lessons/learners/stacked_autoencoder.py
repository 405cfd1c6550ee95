"""What learners answer to lesson 27, stacked_autoencoder, and what its predictions must not be told."""

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


def by_numbers(rho, epsilon, rho_hat):
    return {"rho": rho, "epsilon": epsilon, "rho_hat": rho_hat}


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
    "27.1": [
        ("solved", "a float", 722560.0),
        ("solved", "computed", 1024 * 512 + 512 + 512 * 128 + 128 + 128 * 1024 + 1024),
        ("solved", "a tensor", torch.tensor(722560)),
        ("no biases", "matrices", 1024 * 512 + 512 * 128 + 128 * 1024),
        ("mirrored decoder", "two decoder layers", 1181824),
        ("one layer", "the notes' pair", 263296),
        ("tied decoder", "one bias for the decoder", 591488),
        ("encoder only", "two layers", 590464),
        ("encoder only", "two layers, no biases", 589824),
        ("no decoder bias", "decoder without bias", 721536),
        ("units", "sum of widths", 512 + 128 + 1024),
        ("one layer", "the pair without biases", 262144),
        ("wrong", "another number", 700000),
    ],
    "27.2": [
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
    "27.3": [
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
    "27.4": [
        ("solved", "a dead unit", by_numbers(0.5, 0.1, 0)),
        ("solved", "just below", by_numbers(0.5, 0.1, 0.39)),
        ("solved", "tensors", by_numbers(torch.tensor(0.3), torch.tensor(0.1), torch.tensor(0.1))),
        ("both hold", "equal", by_numbers(0.3, 0.1, 0.3)),
        ("both hold", "a little below", by_numbers(0.3, 0.1, 0.25)),
        ("both hold", "epsilon above rho", by_numbers(0.05, 0.1, 0)),
        ("both hold", "exactly epsilon below", by_numbers(0.3, 0.1, 0.2)),
        ("the other way", "a little above", by_numbers(0.3, 0.1, 0.35)),
        ("neither holds", "far above", by_numbers(0.3, 0.1, 0.9)),
        ("outside the range", "per cent", by_numbers(30, 10, 5)),
        ("outside the range", "epsilon 0", by_numbers(0.3, 0, 0.1)),
        ("outside the range", "rho 1", by_numbers(1, 0.1, 0.5)),
    ],
    "27.5": [
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
    "27.P1": [r"9\.1[67]", r"0\.0917", r"0\.7334711"],
    "27.P2": [r"every encoder", r"depth of the encoder does not matter", r"no encoder passes", r"[Ee]ckart"],
}
