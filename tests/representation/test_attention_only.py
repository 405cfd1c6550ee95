"""A layer of heads against its circuits and autograd, the stream as a sum, and sequences that repeat."""

import pytest
import torch

from course_lib.representation.attention_only import (
    AttentionOnly,
    SelfAttention,
    attention,
    attention_gradients,
    head_by_circuits,
    planted_induction,
    repeat_loss,
    repeated_sequences,
)
from course_lib.representation.circuits import Heads
from course_lib.representation.head_scores import read_heads, record


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def heads_of(n: int = 3, d_model: int = 8, d_head: int = 2) -> Heads:
    weights = normal(4, 1, n, d_model, d_head)
    return Heads.decoder(*weights[:3], weights[3].mT.contiguous())


def small(**sizes: int) -> AttentionOnly:
    sizes = {"vocabulary": 9, "max_tokens": 7, "d_model": 8, "n_heads": 4, **sizes}
    return AttentionOnly(**sizes, generator=torch.Generator().manual_seed(1)).double()


def test_all_heads_at_once_are_their_circuits_one_by_one():
    x, heads = normal(2, 5, 8), heads_of()
    results, pattern = attention(x, heads)
    for b in range(2):
        for h in range(3):
            slow = head_by_circuits(x[b], heads.qk().matrix()[h], heads.ov().matrix()[h], d_head=2)
            torch.testing.assert_close(results[b, h] @ heads.w_o[h], slow)
    torch.testing.assert_close(pattern.sum(-1), torch.ones(2, 3, 5, dtype=torch.float64))
    assert pattern.triu(1).abs().max() == 0


def test_biases_enter_and_turn_with_the_basis():
    heads = heads_of()
    heads = Heads(**{**vars(heads), **{n: normal(3, 2, seed=i) for i, n in enumerate(("b_q", "b_k", "b_v"))}})
    x = normal(2, 5, 8, seed=9)
    turned = heads.change_basis(normal(2, 2, seed=5), normal(2, 2, seed=6))
    added = lambda h: (attention(x, h)[0] @ h.w_o).sum(1)  # noqa: E731
    torch.testing.assert_close(added(turned), added(heads))
    without = Heads(**{**vars(heads), "b_q": 0 * heads.b_q})
    assert (added(without) - added(heads)).abs().max() > 1e-3


def test_gradients_by_hand_are_those_of_autograd():
    x, heads, gradient = normal(2, 5, 8), heads_of(), normal(2, 5, 8, seed=7)
    names = ("w_q", "w_k", "w_v", "w_o")
    leaves = [x.clone().requires_grad_(), *(getattr(heads, n).clone().requires_grad_() for n in names)]
    live = Heads(**{**vars(heads), **dict(zip(names, leaves[1:], strict=True))})
    loss = ((attention(leaves[0], live)[0] @ live.w_o).sum(1) * gradient).sum()
    found = attention_gradients(x, heads, gradient)
    for name, wanted in zip(("x", *names), torch.autograd.grad(loss, leaves), strict=True):
        torch.testing.assert_close(found[name], wanted)
    # No slope along a change of basis; the transposed partner would not do.
    torch.testing.assert_close(heads.w_q.mT @ found["w_q"], (heads.w_k.mT @ found["w_k"]).mT)
    torch.testing.assert_close(heads.w_v.mT @ found["w_v"], (heads.w_o @ found["w_o"].mT).mT)
    assert (heads.w_q.mT @ found["w_q"] - heads.w_k.mT @ found["w_k"]).abs().max() > 1e-2
    with pytest.raises(ValueError, match=r"gradient must have the shape of x, \(2, 5, 8\), got \(2, 5, 7\)"):
        attention_gradients(x, heads, gradient[..., :7])


def test_the_module_is_the_formula_and_logits_are_a_sum_over_heads():
    model = small(n_layers=3)
    tokens = torch.randint(9, (4, 6), generator=torch.Generator().manual_seed(2))
    heads = read_heads(model)
    seen = record(model, heads, tokens)
    x = (model.embedding[tokens] + model.positions[:6]).detach()
    for layer in range(3):
        own = heads.take(range(4 * layer, 4 * layer + 4))
        results, patterns = attention(x, own)
        for h in range(4):
            torch.testing.assert_close(patterns[:, h], seen.patterns[4 * layer + h])
            torch.testing.assert_close(results[:, h], seen.results[4 * layer + h])
        x = x + (results @ own.w_o).sum(1)
    torch.testing.assert_close(x @ model.unembedding, seen.output)


def test_layers_that_all_read_the_start_are_another_model():
    """The notes' X0 + sum of heads of X0: right for one layer, wrong for three."""
    for n_layers, wrong in ((1, False), (3, True)):
        model = small(n_layers=n_layers)
        x0 = model.embedding[None, :7] + model.positions
        true, printed = x0, x0
        for layer in model.layers:
            true, printed = true + layer(true)[0], printed + layer(x0)[0]
        assert bool((true - printed).norm() > 0.1 * (true - x0).norm()) == wrong


def test_the_planted_pair_looks_where_it_should():
    for hidden in (False, True):
        model = planted_induction(hidden=hidden, generator=torch.Generator().manual_seed(0))
        tokens = torch.tensor([[3, 1, 4, 0, 5, 2, 3, 1, 4, 0]])
        seen = record(model, read_heads(model), tokens)
        assert seen.patterns[1][0].diagonal(-1).min() > 0.99
        assert seen.patterns[6][0, 8, 3] > 0.95  # the second 4 looks at the place after the first
        assert seen.output[0, 7:].argmax(-1).tolist() == [4, 0, 5]
    with pytest.raises(ValueError, match="got 9 tokens and 8 places"):
        planted_induction(vocabulary=9, max_tokens=8)


def test_sequences_repeat_with_their_own_period():
    generator = torch.Generator().manual_seed(0)
    tokens, known = repeated_sequences(200, 25, vocabulary=32, periods=range(12, 21), generator=generator)
    periods = (~known).sum(1)
    assert set(periods.tolist()) == set(range(12, 21))
    for row, mark, p in zip(tokens, known, periods.tolist(), strict=True):
        assert not mark[:p].any()
        assert mark[p:].all()
        assert len(set(row[:p].tolist())) == p
        assert row[p:].tolist() == row[: 25 - p].tolist()
    assert tokens.min() == 0
    assert tokens.max() == 31


@pytest.mark.parametrize(("periods", "most"), [([], 24), ([25], 24), ([0, 3], 24)])
def test_periods_that_cannot_be(periods, most):
    with pytest.raises(ValueError, match=f"periods must hold numbers from 1 to {most}"):
        repeated_sequences(2, 25, vocabulary=32, periods=periods)
    with pytest.raises(ValueError, match="periods must hold numbers from 1 to 4, got \\[5\\]"):
        repeated_sequences(2, 25, vocabulary=4, periods=[5])


def test_the_loss_counts_what_can_be_known():
    tokens = torch.tensor([[0, 1, 2, 0, 1, 2]])
    known = torch.tensor([[False, False, False, True, True, True]])
    logits = torch.zeros(1, 5, 3)
    logits[0, 3, 1] = logits[0, 4, 2] = 50.0  # right after the second 0 and the second 1
    logits[0, :3, 0] = -50.0  # the first period, and the token that begins the second one
    assert float(repeat_loss(logits, tokens, known)) == pytest.approx(0, abs=1e-6)
    logits[0, 4] = 0
    assert float(repeat_loss(logits, tokens, known)) == pytest.approx(torch.tensor(3.0).log().item() / 2)
    with pytest.raises(ValueError, match=r"tokens and known must have shape \(1, 6\), got \(1, 5\)"):
        repeat_loss(logits, tokens[:, :5], known)


def test_sizes_that_do_not_fit():
    with pytest.raises(ValueError, match="d_model must be a multiple of n_heads, got 8 and 3"):
        SelfAttention(8, 3)
    with pytest.raises(ValueError, match="vocabulary must be at least 1, got 0"):
        small(vocabulary=0)
    with pytest.raises(ValueError, match="tokens must hold at most 7 a sequence, got 8"):
        small()(torch.zeros(1, 8, dtype=torch.int64))
    with pytest.raises(ValueError, match=r"x must have shape \(batch, tokens, 8\)"):
        attention(normal(2, 5, 7), heads_of())
