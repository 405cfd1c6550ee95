"""Softmax attention on separable samples: loss, gradient, flows and the three separating problems."""

import numpy as np
import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from course_lib.theory import attention_margin as am
from course_lib.theory.attention_margin import Constraints, Samples

torch_rng = lambda seed: torch.Generator().manual_seed(seed)  # noqa: E731
F64 = torch.float64


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch_rng(seed), dtype=F64)


def one_row(*row, gap=1.0):
    """One sample with one other token: a single constraint on diagonal weights."""
    features = torch.tensor([[row]], dtype=F64)
    return Constraints(features, torch.full((1, 1), gap, dtype=F64), torch.zeros(1, dtype=F64))


@pytest.fixture
def samples():
    return am.random_samples(5, 4, 3, generator=torch_rng(1))


# The layer, by hand: two tokens (1, 0) and (0, 1), query (1, 1), W = diag(2, 0), so the logits are 2 and 0


def test_worked_example():
    tokens, ones = torch.eye(2, dtype=F64)[None], torch.ones(1, 2, dtype=F64)
    value = torch.tensor([1.0, -1.0], dtype=F64)
    p = 1 / (1 + np.exp(-2))
    for label in (1.0, -1.0):
        given = Samples(tokens, ones, torch.full((1,), label, dtype=F64), value)
        weight = torch.diag(torch.tensor([2.0, 0.0], dtype=F64))
        assert float(am.attention_output(given, weight)[0]) == pytest.approx(2 * p - 1)
        assert float(am.exponential_loss(given, weight)) == pytest.approx(np.exp(-label * (2 * p - 1)))
        # The label decides which token is optimal: the feature turns with it, gaps and best score do not.
        found = am.constraints(given, diagonal=True)
        assert found.features[0, 0].tolist() == [label, -label]
        assert (found.gaps.item(), found.best.item()) == (2.0, 1.0)
        assert found.margin(torch.tensor([2.0, 0.0], dtype=F64)).item() == 2 * label


def test_output_is_torchs_attention_without_its_scale(samples):
    K, Q = normal(3, 2, seed=2), normal(3, 2, seed=3)
    arguments = (
        (samples.queries @ Q)[:, None],
        samples.tokens @ K,
        (samples.tokens @ samples.value)[..., None],
    )
    ours = am.attention_output(samples, K @ Q.T)
    torch.testing.assert_close(scaled_dot_product_attention(*arguments, scale=1.0).flatten(), ours)
    assert not torch.allclose(scaled_dot_product_attention(*arguments).flatten(), ours)
    # The query stands on the right of W.
    assert not torch.allclose(am.attention_output(samples, Q @ K.T), ours)


@pytest.mark.parametrize("diagonal", [False, True])
def test_features_and_gaps_hold_all_of_the_loss(samples, diagonal):
    given = am.constraints(samples, diagonal=diagonal)
    weight = normal(3, seed=4) if diagonal else normal(3, 3, seed=4)
    full = torch.diag(weight) if diagonal else weight
    p = torch.exp(-given.margins(weight))
    p = p / (1 + p.sum(1, keepdim=True))
    loss = torch.exp(-(given.best - (p * given.gaps).sum(1))).sum()
    torch.testing.assert_close(loss, am.exponential_loss(samples, full))
    leaf = weight.clone().requires_grad_()
    (wanted,) = torch.autograd.grad(
        am.exponential_loss(samples, torch.diag(leaf) if diagonal else leaf), leaf
    )
    torch.testing.assert_close(am.loss_gradient(given, weight), wanted)


def test_several_sets_are_each_by_itself(samples):
    other = am.random_samples(5, 4, 3, generator=torch_rng(2))
    both, weights = am.stacked([samples, other]), normal(2, 3, 3, seed=5)
    given = am.constraints(both, diagonal=False)
    for i, one in enumerate((samples, other)):
        alone = am.constraints(one, diagonal=False)
        torch.testing.assert_close(given.features[i], alone.features)
        torch.testing.assert_close(am.loss_gradient(given, weights)[i], am.loss_gradient(alone, weights[i]))
        torch.testing.assert_close(
            am.exponential_loss(both, weights)[i], am.exponential_loss(one, weights[i])
        )
        torch.testing.assert_close(given.margin(weights)[i], alone.margin(weights[i]))


def test_pull_is_the_rescaled_weight_of_each_feature(samples):
    given = am.constraints(samples, diagonal=False)
    weight = normal(3, 3, seed=6)
    a = am.pull(given.margins(weight), given.gaps, given.best)
    assert a.abs().max() == 1
    assert a.min() < 0  # a token better than the current answer is pulled up
    force, wanted = torch.einsum("nt,ntij->ij", a, given.features), -am.loss_gradient(given, weight)
    torch.testing.assert_close(force / force.norm(), wanted / wanted.norm())


def test_pull_survives_margins_whose_exponential_is_zero():
    margins = torch.tensor([[2000.0, 2000.0 + np.log(4.0)]], dtype=F64)
    a = am.pull(margins, torch.tensor([[1.0, 2.0]], dtype=F64), torch.zeros(1, dtype=F64))
    torch.testing.assert_close(a[0, 1] / a[0, 0], torch.tensor(0.5, dtype=F64))  # 2 / 4: gap over e^margin
    assert torch.exp(-margins).max() == 0


# Flows


def test_one_constraint_is_the_hyperbolic_sine():
    start = [torch.full((2,), 0.3, dtype=F64), torch.zeros(2, dtype=F64)]
    for logit_step in (0.1, 5.0):  # the step is exact while the force keeps its direction
        flow = am.gradient_flow(
            one_row(2.0, 1.0), start, parametrisation="kq", margins=(20,), logit_step=logit_step
        )
        beta = flow.products[0]
        tau = torch.asinh(2 * beta[1] / 0.09) / 2
        torch.testing.assert_close(beta[0], 0.09 / 2 * torch.sinh(4 * tau))
        assert not torch.isclose(beta[0], 0.09 / 2 * torch.sinh(2 * tau), rtol=0.1)
    k, q = flow.parameters
    torch.testing.assert_close(
        k.square() - q.square(), torch.full((2,), 0.09, dtype=F64), rtol=1e-6, atol=1e-7
    )


@pytest.mark.parametrize(("row", "end"), [((2, 1), (0.5, 0)), ((1, -4), (0, -0.25)), ((-1, 0.5), (-1, 0))])
def test_ends_of_one_constraint(row, end):
    given = one_row(*map(float, row))
    zero = torch.zeros(2, dtype=F64)
    product = am.gradient_flow(
        given, [zero + 1, zero], parametrisation="kq", margins=(1e7,), logit_step=1e6
    ).products[0]
    np.testing.assert_allclose(product / given.margin(product), end, atol=1e-3)
    shortest = am.gradient_flow(given, [zero], parametrisation="W", margins=(5,)).products[0]
    np.testing.assert_allclose(shortest / given.margin(shortest), np.array(row) / (np.array(row) @ row))
    np.testing.assert_allclose(am.l1_svm(given), end, atol=1e-9)
    np.testing.assert_allclose(am.frobenius_svm(given), np.array(row) / (np.array(row) @ row))


@pytest.mark.parametrize(
    ("parametrisation", "diagonal"), [("W", True), ("kq", True), ("KQ", False), ("W", False)]
)
def test_rescaled_flow_follows_small_plain_steps(parametrisation, diagonal):
    samples = am.planted_samples(3, 3, 5, generator=torch_rng(1))
    given = am.constraints(samples, diagonal=diagonal)
    shape = (5,) if diagonal else (5, 5)
    start = [0.3 * normal(*shape, seed=5 + i) for i in range(am.PARAMETERS[parametrisation])]
    slow = am.flow_by_euler(samples, start, diagonal=diagonal, step=0.05, steps=250)
    goal, wanted = given.margin(am.product(slow, parametrisation)), am.product(slow, parametrisation)
    assert goal > given.margin(am.product(start, parametrisation)) + 1
    flow = am.gradient_flow(
        given, start, parametrisation=parametrisation, margins=[float(goal)], logit_step=0.05
    )
    assert am.direction_cosine(flow.products[0], wanted, diagonal=diagonal) > 0.9995


def test_a_set_by_itself_flows_as_in_a_stack():
    sets = [am.planted_samples(6, 3, 8, generator=torch_rng(s)) for s in range(2)]
    zero = torch.zeros(2, 8, dtype=F64)
    go = lambda given, z: am.gradient_flow(given, [z + 1, z], parametrisation="kq", margins=(5, 20))  # noqa: E731
    both = go(am.constraints(am.stacked(sets), diagonal=True), zero)
    assert both.reached.tolist() == [True, True]
    for i, one in enumerate(sets):
        given = am.constraints(one, diagonal=True)
        torch.testing.assert_close(go(given, zero[i]).products, both.products[:, i])
        assert given.margin(both.products[0, i]) >= 5


def test_planted_sets_pick_the_norm_of_their_parametrisation():
    samples = [am.planted_samples(generator=torch_rng(s)) for s in range(2)]
    given = am.constraints(am.stacked(samples), diagonal=True)
    each = [am.constraints(s, diagonal=True) for s in samples]
    nuclear, frobenius = (torch.stack([solve(c) for c in each]) for solve in (am.l1_svm, am.frobenius_svm))
    zero = torch.zeros_like(nuclear)
    found = {}
    for kind, start in (("kq", [zero + 1, zero]), ("W", [zero])):
        beta = am.gradient_flow(given, start, parametrisation=kind, margins=(100,)).products[0]
        norms = am.nuclear_norm(beta, diagonal=True)
        found[kind] = (
            am.excess(norms, given.margin(beta), am.nuclear_norm(nuclear, diagonal=True)),
            am.direction_cosine(beta, frobenius, diagonal=True),
        )
    assert 0 <= found["kq"][0].min() <= found["kq"][0].max() < 0.1
    assert found["kq"][1].max() < 0.98
    assert found["W"][0].min() > 0.3
    assert found["W"][1].min() > 0.998


def test_a_flow_that_settles_on_a_wrong_token_says_so():
    features = torch.tensor([[[1.0, 0.2]], [[-2.0, 1.0]]], dtype=F64)
    zero = torch.zeros(2, dtype=F64)
    for gap, reached in ((0.3, True), (0.1, False)):
        given = Constraints(
            features, torch.tensor([[1.0], [gap]]).double(), torch.tensor([0.5, gap / 2]).double()
        )
        flow = am.gradient_flow(given, [zero], parametrisation="W", margins=(1, 20), max_steps=300)
        assert bool(flow.reached) == reached
        assert bool(flow.products.isnan().any()) != reached


# The separating problems


def test_frobenius_svm_meets_its_optimality_conditions(samples):
    given = am.constraints(samples, diagonal=False)
    best = am.frobenius_svm(given)
    rows, margins = given.features.flatten(0, 1).flatten(1), given.margins(best).flatten()
    assert margins.min() == pytest.approx(1)
    support = rows[margins < 1 + 1e-7]
    multipliers = torch.linalg.lstsq(support.T, best.flatten()[:, None]).solution
    torch.testing.assert_close((support.T @ multipliers).flatten(), best.flatten())
    assert multipliers.min() > -1e-9


def test_nuclear_svm_beats_every_nearby_separating_matrix(samples):
    given = am.constraints(samples, diagonal=False)
    best = am.nuclear_svm(given)
    norm = lambda weight: am.nuclear_norm(weight, diagonal=False)  # noqa: E731
    assert given.margin(best) == pytest.approx(1, abs=1e-5)
    assert norm(am.frobenius_svm(given)) > 1.01 * norm(best)
    for seed in range(50):
        near = best + 0.1 * normal(3, 3, seed=seed)
        if given.margin(near) > 0:
            assert norm(near) / given.margin(near) > norm(best) - 1e-5
    # A diagonal problem in full matrices: features E_11 * 2 + E_22, optimum 0.5 E_11.
    given = Constraints(
        torch.diag(torch.tensor([2.0, 1.0], dtype=F64))[None, None], given.gaps[:1, :1], given.best[:1]
    )
    np.testing.assert_allclose(am.nuclear_svm(given), [[0.5, 0], [0, 0]], atol=1e-5)


@pytest.mark.parametrize("solve", [am.frobenius_svm, am.l1_svm, am.nuclear_svm])
def test_what_cannot_be_separated(solve):
    rows = torch.tensor([[[1.0, 0.0]], [[-1.0, 0.0]]], dtype=F64)
    features = torch.diag_embed(rows) if solve is am.nuclear_svm else rows
    with pytest.raises(ValueError, match="not separable"):
        solve(Constraints(features, torch.ones(2, 1, dtype=F64), torch.zeros(2, dtype=F64)))


def test_norms():
    assert float(am.nuclear_norm(torch.tensor([3.0, -4.0]), diagonal=True)) == 7
    assert float(am.nuclear_norm(torch.ones(2, 2), diagonal=False)) == pytest.approx(2)
    assert float(am.direction_cosine(torch.tensor([1.0, 0.0]), torch.tensor([3.0, 3.0]), diagonal=True)) == (
        pytest.approx(0.5**0.5)
    )
    assert float(am.excess(torch.tensor(6.0), torch.tensor(2.0), torch.tensor(2.5))) == pytest.approx(0.2)


# Bad input


def test_samples_that_do_not_fit(samples):
    with pytest.raises(ValueError, match=r"queries must have shape \(5, 3\)"):
        Samples(samples.tokens, samples.queries[:4], samples.labels, samples.value)
    with pytest.raises(ValueError, match=r"value must have shape \(3,\)"):
        Samples(samples.tokens, samples.queries, samples.labels, samples.value[:2])
    with pytest.raises(ValueError, match="at least two"):
        Samples(samples.tokens[:, :1], samples.queries, samples.labels, samples.value)


def test_calls_that_do_not_fit(samples):
    given = am.constraints(samples, diagonal=True)
    zero = torch.zeros(3, dtype=F64)
    with pytest.raises(ValueError, match="parametrisation must be one of"):
        am.product([zero], "Q")
    with pytest.raises(ValueError, match="kq has 2 parameters, got 1"):
        am.gradient_flow(given, [zero], parametrisation="kq")
    with pytest.raises(ValueError, match="increasing"):
        am.gradient_flow(given, [zero], parametrisation="W", margins=(5, 5))
    with pytest.raises(ValueError, match="one set of samples"):
        am.l1_svm(am.constraints(am.stacked([samples, samples]), diagonal=True))
    with pytest.raises(ValueError, match="see nuclear_svm"):
        am.l1_svm(am.constraints(samples, diagonal=False))
    with pytest.raises(ValueError, match="margins and gaps must have one shape"):
        am.pull(given.margins(zero)[:, :2], given.gaps, given.best)
