"""Circuits kept as factors against the formed matrices, composition against its definition, and the notes' slips."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from course_lib.representation.attention_only import head_by_circuits
from course_lib.representation.circuits import (
    MODES,
    Circuit,
    Heads,
    circuit_gradients,
    composition,
    composition_scores,
    copying,
    reads,
    token_path,
)


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def decoder(layers: int = 3, heads: int = 2, d_model: int = 12, d_head: int = 3, seed: int = 0) -> Heads:
    weights = normal(4, layers, heads, d_model, d_head, seed=seed)
    return Heads.decoder(*weights[:3], weights[3].mT.contiguous())


# Factors


def test_norm_singular_values_and_eigenvalues_are_those_of_the_product():
    circuit = Circuit(normal(5, 12, 3), normal(5, 3, 12, seed=1))
    full = circuit.matrix()
    torch.testing.assert_close(circuit.norm(), torch.linalg.matrix_norm(full), rtol=1e-12, atol=0)
    torch.testing.assert_close(
        circuit.singular_values(), torch.linalg.svdvals(full)[:, :3], rtol=1e-10, atol=0
    )
    for power in (1, 2, 3):
        traces = circuit.eigenvalues().pow(power).sum(-1).real
        wanted = torch.linalg.matrix_power(full, power).diagonal(dim1=1, dim2=2).sum(1)
        torch.testing.assert_close(traces, wanted, rtol=1e-9, atol=1e-9)
    assert not torch.allclose(circuit.transposed().matrix(), full)
    torch.testing.assert_close(circuit.transposed().matrix(), full.mT)


def test_small_singular_values_keep_their_digits():
    """Through the Gram matrix 1e-9 of the largest would be rounding; through triangles it is not."""
    left = torch.linalg.qr(normal(20, 2)).Q * torch.tensor([1.0, 1e-9], dtype=torch.float64)
    values = Circuit(left, torch.linalg.qr(normal(20, 2, seed=1)).Q.T).singular_values()
    torch.testing.assert_close(values, torch.tensor([1.0, 1e-9], dtype=torch.float64), rtol=1e-6, atol=0)


@given(d=st.integers(2, 9), rank=st.integers(1, 5), seed=st.integers(0, 99))
@settings(max_examples=25, deadline=None)
def test_the_symmetric_part_has_the_eigenvalues_of_the_formed_one(d, rank, seed):
    rank = min(rank, d)
    circuit = Circuit(normal(d, rank, seed=seed), normal(rank, d, seed=seed + 100))
    full = torch.linalg.eigvalsh((circuit.matrix() + circuit.matrix().T) / 2)
    found = circuit.symmetric_eigenvalues()
    padded = torch.cat([found, found.new_zeros(max(0, d - len(found)))]).sort().values
    # Where d < 2 r, the triangle has d rows, and no zeros are added.
    torch.testing.assert_close(padded, full, rtol=1e-9, atol=1e-9)


def test_two_circuits_in_a_row_stay_of_rank_r():
    a, b = (
        Circuit(normal(12, 3), normal(3, 12, seed=1)),
        Circuit(normal(12, 2, seed=2), normal(2, 12, seed=3)),
    )
    chain = a.then(b)
    torch.testing.assert_close(chain.matrix(), a.matrix() @ b.matrix())
    torch.testing.assert_close(chain.apply(normal(4, 12)), normal(4, 12) @ a.matrix() @ b.matrix())


@pytest.mark.parametrize(
    ("left", "right", "message"),
    [
        (normal(4, 2), normal(3, 4), "must share their inner size, got \\(4, 2\\) and \\(3, 4\\)"),
        (torch.ones(4, 2, dtype=torch.int64), normal(2, 4), "left must be a floating-point tensor"),
        (normal(4, 2), normal(4), "right must be a floating-point tensor with at least 2 dimensions"),
    ],
)
def test_factors_that_do_not_fit(left, right, message):
    with pytest.raises(ValueError, match=message):
        Circuit(left, right)


def test_only_square_circuits_have_eigenvalues():
    circuit = Circuit(normal(4, 2), normal(2, 5))
    for ask in (circuit.eigenvalues, circuit.symmetric_eigenvalues):
        with pytest.raises(ValueError, match="must be square to have eigenvalues, got 4 x 5"):
            ask()


# Heads


def test_a_basis_inside_a_head_is_not_seen():
    heads = decoder()
    turned = heads.change_basis(normal(3, 3, seed=5), normal(6, 3, 3, seed=6))
    for name in ("w_q", "w_k", "w_v", "w_o"):
        assert (getattr(turned, name) - getattr(heads, name)).norm() > 0.3 * getattr(heads, name).norm()
    torch.testing.assert_close(turned.qk().matrix(), heads.qk().matrix())
    torch.testing.assert_close(turned.ov().matrix(), heads.ov().matrix())
    torch.testing.assert_close(composition_scores(turned), composition_scores(heads))


def test_gradients_by_hand_and_what_they_keep():
    left, right = normal(5, 2).requires_grad_(), normal(2, 4, seed=1).requires_grad_()
    loss = lambda m: (m.sin() * normal(5, 4, seed=2)).sum()  # noqa: E731
    wanted = torch.autograd.grad(loss(left @ right), (left, right))
    product = (left @ right).detach().requires_grad_()
    (gradient,) = torch.autograd.grad(loss(product), product)
    found = circuit_gradients(Circuit(left.detach(), right.detach()), gradient)
    for mine, theirs in zip(found, wanted, strict=True):
        torch.testing.assert_close(mine, theirs)
    torch.testing.assert_close(left.detach().T @ found[0], found[1] @ right.detach().T)
    with pytest.raises(
        ValueError, match=r"gradient must have the shape of the product, \(5, 4\), got \(4, 5\)"
    ):
        circuit_gradients(Circuit(left.detach(), right.detach()), gradient.T)


def test_heads_say_what_does_not_fit():
    heads = decoder()
    with pytest.raises(ValueError, match=r"w_o must have shape \(6, 3, 12\) to fit w_q, got \(6, 12, 3\)"):
        Heads(**{**vars(heads), "w_o": heads.w_q})
    with pytest.raises(ValueError, match="layer must have 6 entries, one for each head, got 5"):
        Heads(**{**vars(heads), "layer": heads.layer[:5]})
    with pytest.raises(ValueError, match="chosen must hold numbers from 0 to 5, got 6"):
        heads.take([0, 6])
    assert heads.name(3) == "decoder 1.1"
    assert heads.take([3]).name(0) == "decoder 1.1"


# Composition


def test_all_pairs_are_the_definition_pair_by_pair():
    heads = decoder()
    scores, qk, ov = composition_scores(heads), heads.qk().matrix(), heads.ov().matrix()
    readers = {"Q": qk, "K": qk.mT, "V": ov}
    for m, mode in enumerate(MODES):
        for a in range(6):
            for b in range(6):
                wanted = composition(ov[a], readers[mode][b]) if heads.layer[a] < heads.layer[b] else 0.0
                assert float(scores[m, a, b]) == pytest.approx(float(wanted), abs=1e-12)
    # Q and K are different questions, and the order of the notes (columns) is another number.
    assert (scores[0] - scores[1]).abs().max() > 0.02
    assert abs(composition(qk[2], ov[0]) - scores[0, 0, 2]) > 1e-3


def test_scores_have_the_gradient_of_the_definition():
    heads = decoder(2, 1, 6, 2)
    leaf = heads.w_k.clone().requires_grad_()
    live = Heads(**{**vars(heads), "w_k": leaf})
    (found,) = torch.autograd.grad(composition_scores(live)[1, 0, 1], leaf)
    (wanted,) = torch.autograd.grad(composition(live.ov().matrix()[0], live.qk().matrix()[1].T), leaf)
    torch.testing.assert_close(found, wanted)
    assert wanted.abs().max() > 1e-2


def test_scores_that_are_known():
    """Heads that write 4 of 16 directions: read in full, by a reader of 4 directions, the score is 1 / sqrt(4)."""
    eye = torch.eye(16, dtype=torch.float64)
    w = torch.zeros(4, 2, 1, 16, 4, dtype=torch.float64)
    w[2, 0, 0], w[3, 0, 0] = eye[:, :4], eye[:, 4:8]  # V reads 0 to 3, O writes to 4 to 7
    w[0, 1, 0], w[1, 1, 0] = eye[:, 8:12], eye[:, 4:8]  # queries from 8 to 11, keys from 4 to 7
    scores = composition_scores(Heads.decoder(*w[:3], w[3].mT.contiguous()))
    assert scores[:, 0, 1].tolist() == pytest.approx([0, 0.5, 0])


def test_random_heads_score_one_over_the_root_of_d_model():
    for d_head in (2, 16):
        scores = composition_scores(decoder(2, 6, 64, d_head))[:, :6, 6:]
        assert float(scores.mean()) * 8 == pytest.approx(1, abs=0.06)


def test_a_head_of_zeros_scores_zero():
    heads = decoder(2, 2)
    heads.w_o[0] = 0
    scores = composition_scores(heads)
    assert scores.isfinite().all()
    assert scores[:, 0].abs().max() == 0 < scores[0, 1, 2]


def test_who_can_read_whom_in_an_encoder_and_a_decoder():
    one = decoder(1, 1)
    place = {"encoder": (0, 1), "decoder": (0, 1), "cross": (0, 1)}
    kinds = [(kind, layer) for kind, layers in place.items() for layer in layers]
    repeat = {name: getattr(one, name).expand(6, *getattr(one, name).shape[1:]) for name in
              ("w_q", "w_k", "w_v", "w_o", "b_q", "b_k", "b_v")}  # fmt: skip
    heads = Heads(**repeat, layer=tuple(n for _, n in kinds), number=(0,) * 6, module=("m",) * 6,
                  kind=tuple(k for k, _ in kinds))  # fmt: skip
    e0, e1, d0, d1, x0, x1 = range(6)
    pairs = {mode: {(a, b) for a in range(6) for b in range(6) if reads(heads, mode)[a, b]} for mode in MODES}
    own = {(e0, e1), (d0, d1), (x0, d1)}
    assert pairs["Q"] == own | {(d0, x0), (d0, x1), (d1, x1), (x0, x1)}
    assert pairs["K"] == pairs["V"] == own | {(e0, x0), (e0, x1), (e1, x0), (e1, x1)}
    assert ((composition_scores(heads) > 0) == torch.stack([reads(heads, mode) for mode in MODES])).all()
    with pytest.raises((ValueError, TypeError), match="mode"):
        reads(heads, "q")


# From token to token


def test_paths_and_copying():
    embedding, unembedding, heads = normal(7, 12), normal(12, 7, seed=1), decoder()
    one = Circuit(heads.w_v[0], heads.w_o[0])
    table = embedding @ one.matrix() @ unembedding
    torch.testing.assert_close(token_path(embedding, unembedding, one).matrix(), table)
    torch.testing.assert_close(token_path(embedding, unembedding).matrix(), embedding @ unembedding)
    values = torch.linalg.eigvals(table)
    wanted = float(values.real.sum() / values.abs().sum())
    assert float(copying(token_path(embedding, unembedding, one))) == pytest.approx(wanted)
    q = torch.linalg.qr(embedding.T).Q.T[:7]
    assert float(copying(Circuit(q, q.T))) == pytest.approx(1)
    assert float(copying(Circuit(q, -q.T))) == pytest.approx(-1)
    with pytest.raises(ValueError, match="through must be one circuit"):
        token_path(embedding, unembedding, heads.ov())
    with pytest.raises(ValueError, match="embedding must have shape"):
        token_path(embedding, unembedding.T)


# What the notes say, in their columns


def test_the_printed_condition_for_the_inner_product():
    x, w_k = torch.tensor([1.0, 1.0]), torch.diag(torch.tensor([2.0, -1.0]))
    assert float(x @ torch.eye(2) @ w_k @ x) == 1 != float(x @ x)
    # W_Q^T W_K = I is what it takes, here with W_Q = W_K^-T.
    assert float(x @ torch.linalg.inv(w_k) @ w_k @ x) == 2


def test_first_dimension_only_and_the_sign_of_a_self_score():
    q, k = torch.tensor([3.0, 5, 7]), torch.tensor([2.0, 8, 9])
    e = torch.eye(3)
    assert float(q @ torch.outer(e[0], e[0]) @ k) == 6
    assert float(q @ torch.outer(e[1], e[0]) @ k) == 10  # W_K = [1 0 0] alone leaves the query side free
    minus = Circuit(-torch.eye(3), torch.eye(3)).symmetric_eigenvalues()
    assert minus.max() <= 1e-6
    assert minus.min() == pytest.approx(-1)
    spin = torch.tensor([[0.0, 1.0], [-1.0, 0.0]])
    assert Circuit(spin, torch.eye(2)).symmetric_eigenvalues().abs().max() < 1e-6


def test_what_a_head_adds_lies_in_the_rows_of_w_o_and_not_in_those_of_w_v():
    x, heads = normal(5, 6), decoder(1, 1, 6, 2)
    added = head_by_circuits(x, heads.qk().matrix()[0], heads.ov().matrix()[0], d_head=2)
    assert int(torch.linalg.matrix_rank(added)) == 2
    outside = lambda basis: float((added - added @ torch.linalg.pinv(basis) @ basis).norm())  # noqa: E731
    assert outside(heads.w_o[0]) < 1e-10
    assert outside(heads.w_v[0].T) > 0.1
    # r is n x d_head (d_head x n in columns): with the printed d_model x n the product with W_O does not exist.
    with pytest.raises(RuntimeError):
        x @ heads.w_o[0]
    assert math.isclose(
        float((x @ heads.w_v[0] @ heads.w_o[0] - x @ heads.ov().matrix()[0]).norm()), 0, abs_tol=1e-12
    )
