"""Scans, the selective scan and attention with decay: forms that agree, gradients by hand, decays of 0 and 1."""

import math

import jaxtyping
import pytest
import torch
from mambapy.pscan import pscan
from torch.autograd import gradcheck

from course_lib.architectures.selective import (
    decay_mask,
    decayed_attention,
    decayed_attention_loop,
    decayed_step,
    scan_by_doubling,
    scan_loop,
    selective_scan,
    selective_scan_loop,
    selective_step,
)
from course_lib.attention.kernelized import linear_attention


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def uniform(*shape, seed=0):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def selective_inputs(length=11, batch=2, channels=3, n=4):
    u, delta, A = (
        normal(batch, length, channels),
        normal(batch, length, channels, seed=1).exp(),
        -normal(channels, n).exp(),
    )
    delta[0, 2], delta[-1, 4] = 0, 1e4  # a token that is skipped, and one that erases the past
    return [
        u,
        delta,
        A,
        normal(batch, length, n, seed=2),
        normal(batch, length, n, seed=3),
        normal(channels, seed=4),
    ]


def decayed_inputs(length=11, *, lead=(2,), d=3, d_v=2):
    decay = uniform(*lead, length)
    decay[..., 3], decay[..., 5] = 0, 1
    return [
        normal(*lead, length, d),
        normal(*lead, length, d, seed=1),
        normal(*lead, length, d_v, seed=2),
        decay,
    ]


# Scans


def test_a_scan_by_hand():
    a, x = torch.tensor([0.5, 2.0, 0.0, 3.0]), torch.tensor([1.0, 1.0, 1.0, 1.0])
    for form in (scan_loop, scan_by_doubling):
        assert form(a, x).tolist() == [1, 3, 1, 4]


@pytest.mark.parametrize("length", [1, 2, 5, 16, 21])
def test_doubling_is_the_loop(length):
    a, x = uniform(length, 3), normal(length, 3)
    a[length // 2] = 0
    torch.testing.assert_close(scan_by_doubling(a, x), scan_loop(a, x))


def test_steps_compose_in_one_order_only():
    a, x, h = uniform(2), normal(2), 0.7
    after_both = a[1] * (a[0] * h + x[0]) + x[1]
    torch.testing.assert_close(a[1] * a[0] * h + a[1] * x[0] + x[1], after_both)
    assert not torch.allclose(a[1] * a[0] * h + a[0] * x[1] + x[0], after_both)


# The selective scan


@pytest.mark.parametrize("chunk_size", [1, 3, 11, 64])
def test_chunks_are_the_loop_with_all_gradients(chunk_size):
    inputs = [t.requires_grad_() for t in selective_inputs()]
    wanted = selective_scan_loop(*inputs)
    found, _ = selective_scan(*inputs, chunk_size=chunk_size)
    torch.testing.assert_close(found, wanted)
    dy = normal(*wanted.shape, seed=9)
    pairs = zip(*(torch.autograd.grad(y, inputs, dy) for y in (found, wanted)), strict=True)
    for ours, theirs in pairs:
        torch.testing.assert_close(ours, theirs)


def test_selective_gradients_are_finite_differences_through_both_states():
    inputs = [
        t.requires_grad_() for t in (*selective_inputs(5, 1, 2, 2)[:1], uniform(1, 5, 2), -uniform(2, 2))
    ]
    inputs += [
        t.requires_grad_() for t in (normal(1, 5, 2), normal(1, 5, 2, seed=1), normal(1, 2, 2, seed=2))
    ]
    run = lambda u, dl, A, B, C, h: selective_scan(u, dl, A, B, C, state=h, chunk_size=2)  # noqa: E731
    assert gradcheck(run, inputs)


def test_selective_prefix_at_once_and_the_rest_by_steps():
    u, delta, A, B, C, D = selective_inputs()
    whole, last = selective_scan(u, delta, A, B, C, D, chunk_size=4)
    for cut in (1, 5, 10):
        y, state = selective_scan(
            *(t[:, :cut] for t in (u, delta)), A, B[:, :cut], C[:, :cut], D, chunk_size=4
        )
        torch.testing.assert_close(y, whole[:, :cut])
        again, end = selective_scan(
            *(t[:, cut:] for t in (u, delta)), A, B[:, cut:], C[:, cut:], D, state=state, chunk_size=4
        )
        torch.testing.assert_close(again, whole[:, cut:])
        torch.testing.assert_close(end, last)
        for t in range(cut, 11):
            y, state = selective_step(state, u[:, t], delta[:, t], A, B[:, t], C[:, t], D)
            torch.testing.assert_close(y, whole[:, t])
        torch.testing.assert_close(state, last)


def test_a_step_size_of_0_skips_the_token_and_a_large_one_starts_anew():
    u, delta, A, B, C, _ = selective_inputs(6, 1)
    delta = delta.clamp(max=1)
    delta[:, 3] = 0
    kept = [t for t in range(6) if t != 3]
    whole = selective_scan(u, delta, A, B, C)[0]
    torch.testing.assert_close(
        whole[:, kept], selective_scan(*(t[:, kept] for t in (u, delta)), A, B[:, kept], C[:, kept])[0]
    )
    delta[:, 3] = 1e4
    whole = selective_scan(u, delta, A, B, C)[0]
    torch.testing.assert_close(
        whole[:, 3:], selective_scan(*(t[:, 3:] for t in (u, delta)), A, B[:, 3:], C[:, 3:])[0]
    )


def test_mambapys_scan_is_the_same_recurrence():
    u, delta, A, B, C, _ = selective_inputs(8)
    states = pscan(torch.exp(delta[..., None] * A), (delta * u)[..., None] * B[:, :, None])
    torch.testing.assert_close((states @ C[..., None])[..., 0], selective_scan(u, delta, A, B, C)[0])


def test_half_precision_keeps_its_state_in_float32():
    inputs = [t.to(torch.bfloat16) for t in selective_inputs(300)]
    inputs[1] = inputs[1].clamp(max=0.05)
    y, state = selective_scan(*inputs)
    assert (y.dtype, state.dtype) == (torch.bfloat16, torch.float32)
    exact, _ = selective_scan(*(t.double() for t in inputs))
    assert (y - exact).abs().max() < 0.01 * exact.abs().max()


def test_the_selective_scan_in_float32_over_65536_tokens():
    """Decays from 0 to 1, both included: nothing is divided by a decay, nothing overflows."""
    length, A = 65_536, -torch.tensor([[0.0, 1e-4, 1.0, 200.0]]).double()
    inputs = [
        normal(1, length, 1),
        uniform(1, length, 1),
        A,
        normal(1, length, 4),
        normal(1, length, 4, seed=1),
    ]
    wanted = [*selective_scan(*inputs)]
    for found, exact in zip(selective_scan(*(t.float() for t in inputs)), wanted, strict=True):
        # A running sum, which the decay 1 is, rounds 65,536 times.
        assert (found - exact).abs().max() < 1e-4 * exact.abs().max()


# Attention with decay


def test_a_decayed_state_by_hand():
    q = k = torch.ones(4, 1).double()
    y, state = decayed_attention(
        q, k, torch.tensor([[1.0], [2.0], [3.0], [4.0]]).double(), torch.full((4,), 0.5).double()
    )
    assert y[:, 0].tolist() == [1, 2.5, 4.25, 6.125]
    assert state.tolist() == [[6.125]]


@pytest.mark.parametrize("chunk_size", [1, 4, 11, 64])
def test_products_in_chunks_are_the_loop_with_all_gradients(chunk_size):
    inputs = [t.requires_grad_() for t in decayed_inputs(lead=(2, 2))]
    wanted = decayed_attention_loop(*inputs)
    found, _ = decayed_attention(*inputs, chunk_size=chunk_size)
    torch.testing.assert_close(found, wanted)
    dy = normal(*wanted.shape, seed=9)
    for ours, theirs in zip(*(torch.autograd.grad(y, inputs, dy) for y in (found, wanted)), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_decayed_gradients_are_finite_differences_through_both_states():
    inputs = [t.requires_grad_() for t in (*decayed_inputs(7), normal(2, 3, 2, seed=5))]
    run = lambda q, k, v, decay, state: decayed_attention(q, k, v, decay, state=state, chunk_size=3)  # noqa: E731
    assert gradcheck(run, inputs)


def test_decayed_prefix_at_once_and_the_rest_by_steps():
    q, k, v, decay = decayed_inputs()
    whole, last = decayed_attention(q, k, v, decay, chunk_size=4)
    for cut in (1, 5, 10):
        _, state = decayed_attention(q[:, :cut], k[:, :cut], v[:, :cut], decay[:, :cut], chunk_size=4)
        rest, end = decayed_attention(
            q[:, cut:], k[:, cut:], v[:, cut:], decay[:, cut:], state=state, chunk_size=4
        )
        torch.testing.assert_close(rest, whole[:, cut:])
        torch.testing.assert_close(end, last)
        for t in range(cut, 11):
            y, state = decayed_step(state, q[:, t], k[:, t], v[:, t], decay[:, t])
            torch.testing.assert_close(y, whole[:, t])
        torch.testing.assert_close(state, last)


def test_without_decay_it_is_linear_attention_and_with_it_a_masked_product():
    q, k, v, decay = decayed_inputs()
    plain = linear_attention(q, k, v, feature_map=lambda x: x, causal=True, normalize=False)
    torch.testing.assert_close(decayed_attention(q, k, v, torch.ones_like(decay))[0], plain)
    mask = decay_mask(decay)
    assert float(mask[0, 7, 5]) == pytest.approx(float(decay[0, 6] * decay[0, 7]))
    assert float(mask[0, 4, 2]) == 0  # token 3 forgets everything
    torch.testing.assert_close(decayed_attention(q, k, v, decay, chunk_size=4)[0], (q @ k.mT * mask) @ v)


def test_decays_of_0_and_1_in_float32_over_65536_tokens():
    length = 65_536
    decay = torch.tensor([0.0, 1.0, 0.5, 0.99999]).double().repeat_interleave(16)
    decay = torch.stack([decay.repeat(length // 64), torch.ones(length).double()])
    inputs = [normal(2, length, 2), normal(2, length, 2, seed=1), normal(2, length, 1, seed=2), decay]
    leaves = [t.float().requires_grad_() for t in inputs]
    found, wanted = decayed_attention(*leaves)[0], decayed_attention(*inputs)[0]
    for head in range(2):
        assert (found[head] - wanted[head]).abs().max() < 1e-5 * wanted[head].abs().max()
    assert all(torch.isfinite(g).all() for g in torch.autograd.grad(found.square().mean(), leaves))


# Wrong input

good, gone = selective_inputs(), decayed_inputs()
broken = normal(2, 11, 3)
broken[0, 0, 0] = math.inf


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: scan_loop(uniform(3), normal(4)), r"a must have shape \(4,\), got \(3,\)"),
        (lambda: scan_by_doubling(uniform(0), normal(0)), "x must have at least one token"),
        (lambda: selective_scan(broken, *good[1:]), "u must be finite, got 1 of 66"),
        (lambda: selective_scan(good[0], good[1][:, :4], *good[2:]), r"delta must have shape \(2, 11, 3\), got \(2, 4, 3\)"),
        (lambda: selective_scan(*good[:3], good[3][..., :2], *good[4:]), r"B must have shape \(2, 11, 4\), got"),
        (lambda: selective_scan(good[0], broken, *good[2:]), "delta must be finite, got 1 of 66"),
        (lambda: selective_scan(*good, chunk_size=0), "chunk_size must be a whole number of at least 1, got 0"),
        (lambda: selective_scan(*good, state=normal(2, 3, 5)), r"state must have shape \(2, 3, 4\), got \(2, 3, 5\)"),
        (lambda: selective_scan(good[0], good[1].float(), *good[2:]), "delta must have dtype torch.float64"),
        (lambda: selective_scan(*(t[:, :0] for t in good[:2]), *good[2:]), "u must have at least one token"),
        (lambda: decayed_attention(*gone[:3], gone[3][:, :4]), r"decay must have shape \(2, 11\), got \(2, 4\)"),
        (lambda: decayed_attention(gone[0], gone[1][..., :2], *gone[2:]), r"k must have shape \(2, 11, 3\), got"),
        (lambda: decayed_attention(*gone, state=normal(3, 2)), r"state must have shape \(2, 3, 2\), got \(3, 2\)"),
        (lambda: decayed_attention(*(t[:, :0] for t in gone)), "q must have at least one token"),
        (lambda: decayed_attention(broken, *gone[1:]), "q must be finite"),
    ],
)  # fmt: skip
def test_wrong_input_is_named(call, said, monkeypatch):
    # A learner runs without the check of annotations, which would speak first here.
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    with pytest.raises(ValueError, match=said):
        call()
