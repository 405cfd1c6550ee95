"""Sentences of lesson 16 to judge, each with what decides it."""

import torch
from torch import Tensor, nn

from course_lib.architectures.selective import scan_by_doubling, scan_loop, selective_scan
from course_lib.architectures.selective_copying import flagged_texts
from course_lib.attention.decay import decay_mask
from course_lib.lessons.selective_states.contents import lesson
from course_lib.teaching import fact


def _normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@lesson.sentence("16.Q1", "A trained selective model is a convolution with a kernel that was learned.", answer=False)
def is_a_kernel():
    """A convolution answers a click in the same way wherever it stands. Here the answer depends on the tokens that
    follow the click, which set the decays.
    """
    delta, A = _normal(1, 40, 1, seed=1).exp(), -torch.ones(1, 1, dtype=torch.float64)
    ones = torch.ones(1, 40, 1, dtype=torch.float64)
    answers = []
    for place in (5, 25):
        click = torch.zeros_like(ones)
        click[0, place] = 1 / delta[0, place]
        answers.append(selective_scan(click, delta, A, ones, ones)[0][0, place : place + 10, 0])
    return fact("the answers to clicks of the same size at tokens 5 and 25 differ by up to {}",
                (answers[0] - answers[1]).abs().max(), at_least=0.05)  # fmt: skip


@lesson.sentence(
    "16.Q2", "A GRU can be computed for all tokens by a scan that is exact.",
    answer="only if its gates and its candidate do not read the state",
    conditions=("only if its gates and its candidate do not read the state", "only if its gates never close"),
)  # fmt: skip
def gru_by_scan():
    """A scan needs each token's factor and summand before any state is known. Without the weights from the state that
    is so, and what is left is a selective memory (the minimal GRU).
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        gru = nn.GRU(3, 4).double()
    with torch.no_grad():
        gru.weight_hh_l0.zero_()
        gru.bias_hh_l0.zero_()
        x = _normal(50, 1, 3)
        _, keep, new = (x @ gru.weight_ih_l0.T + gru.bias_ih_l0).chunk(3, -1)
        keep, new = keep.sigmoid(), new.tanh()
        gap = (scan_by_doubling(keep, (1 - keep) * new) - gru(x)[0]).abs().max()
    return fact("without weights from the state, PyTorch's GRU and a scan differ by {}", gap, at_most=1e-12)


@lesson.sentence("16.Q3", "The mean of all numbers so far is a memory with a fixed decay.", answer=False)
def mean_so_far():
    """At token t, counted from 0, the old mean is multiplied by t/(t + 1). Nobody's number, no token and no state sets it,
    but the clock does.
    """
    u, t = _normal(30), torch.arange(30, dtype=torch.float64)
    means = scan_loop(t / (t + 1), u / (t + 1))
    gap = (means - u.cumsum(0) / (t + 1)).abs().max()
    return "\n".join([
        fact("a scan with the decays t/(t + 1) is the mean, to {}", gap, at_most=1e-12),
        fact("its decays at tokens 1 and 9 are {}", (t / (t + 1))[[1, 9]], equals=[0.5, 0.9], within=1e-12),
    ])  # fmt: skip


@lesson.sentence(
    "16.Q4", "With fixed decays too, the last flagged number can be read from two states, if one may be divided "
             "by the other.",
    answer=True,
)  # fmt: skip
def fixed_but_divided():
    """Let both states decay by 0.1, the flagged numbers in one and the flags in the other. In the quotient the last flagged
    number outweighs all earlier ones at least nine times. So it is a layer without division that fails, not every model of
    fixed decays. This is in double precision; float32 cannot hold powers of 0.1 for as long.
    """

    def error(length: int, share: float) -> Tensor:
        texts, wanted = flagged_texts(100, length, share=share, generator=torch.Generator().manual_seed(0))
        numbers, flags = texts.double().permute(2, 1, 0)
        decays = torch.full_like(flags, 0.1)
        read = scan_loop(decays, flags * numbers) / scan_loop(decays, flags).clamp(min=1e-300)
        return (read.T - wanted).square().mean() / wanted.square().mean()

    return fact("100 texts of 64 tokens, and of 400 with a fifth of the flags: squared errors over that of 0: {}",
                [error(64, 0.1), error(400, 0.02)], at_most=0.005)  # fmt: skip


@lesson.sentence(
    "16.Q5", "A decay of exactly 0 ruins the parallel form.",
    answer="only if the mask is computed by quotients",
    conditions=("only if the mask is computed by quotients", "only if it stands at the last token"),
)  # fmt: skip
def decay_of_zero():
    """Products of decays are exact where one of them is 0: nothing is left of what came before. A quotient of two running
    products is 0/0 for every pair of tokens from there on; so is a difference of summed logarithms, infinity less infinity.
    """
    decay = torch.full((20,), 0.9, dtype=torch.float64)
    decay[8] = 0
    total, logs = decay.cumprod(0), decay.log().cumsum(0)
    quotient, product = (total[:, None] / total).tril(), decay_mask(decay)
    return "\n".join([
        fact("20 tokens, a 0 at token 8: entries of the quotients that are not numbers: {}",
             int(quotient.isnan().sum()), equals=78, within=0),
        fact("of the differences of logarithms: {}", int((logs[:, None] - logs).tril().isnan().sum()), equals=78, within=0),
        fact("entries of the products that are not numbers: {}", int(product.isnan().sum()), equals=0, within=0),
    ])  # fmt: skip


quiz = lesson.quiz  # what the page calls; the package's name for this module gives way to it
