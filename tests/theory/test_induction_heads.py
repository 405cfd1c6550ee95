"""The fast model against the one place after the other, slopes against autograd, the theory against training."""

import pytest
import torch

from course_lib.representation.head_scores import matching_score
from course_lib.theory import induction_heads as ih
from course_lib.theory import markov_chains as mc
from course_lib.theory.induction_heads import Sizes, Weights


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


def draw(count, length=100, *, parents=(1, 2), seed=0, alpha=0.1, tokens=3):
    chains = mc.random_chains(count, parents=parents, tokens=tokens, alpha=alpha, generator=rng(seed))
    return chains, mc.draw_tokens(chains, length + 1, generator=rng(seed + 100))


def some_weights(sizes, *runs, seed=1):
    new = lambda *shape: torch.randn((*runs, *shape), generator=rng(seed), dtype=torch.float64)  # noqa: E731
    return Weights(new(sizes.n_heads, sizes.reach), new(len(sizes.sets)), new())


def last(history):
    return Weights(*(getattr(history.weights, name)[-1] for name in "wca"))


SMALL = [
    Sizes(),
    Sizes(tokens=2, n_heads=2, reach=4, degree=2),
    Sizes(tokens=2, n_heads=3, reach=3, degree=3),
]


@pytest.mark.parametrize("sizes", SMALL, ids=str)
def test_counts_and_places_predict_the_same(sizes):
    tokens = draw(6, 12, tokens=sizes.tokens, alpha=1.0)[1]
    weights = some_weights(sizes)
    wanted = torch.stack([ih.attend_by_places(row[:-1], sizes, weights) for row in tokens])
    data = ih.examples(tokens, sizes)
    torch.testing.assert_close(ih.predict(data, sizes, weights), wanted)
    assert torch.equal(data.target, tokens[:, -1])


def test_windows_are_numbered_with_the_newest_token_as_last_digit():
    sizes = Sizes(n_heads=1, reach=2)
    data = ih.examples(torch.tensor([[0, 1, 2, 2, 1]]), sizes)
    assert int(data.window[0]) == 2 + 3 * 2
    assert data.counts[0].nonzero().tolist() == [[1, 2], [5, 2]]  # (0, 1) -> 2, (1, 2) -> 2
    assert torch.equal(sizes.codes()[5], torch.tensor([2, 1]))


def test_sets_and_start():
    assert Sizes().sets == ((), (1,), (2,), (3,), (1, 2), (1, 3), (2, 3))
    assert len(Sizes(degree=3).sets) == 8
    weights = ih.start(Sizes())
    torch.testing.assert_close(
        weights.own_lag(), torch.full((3,), 0.9086, dtype=torch.float64), atol=1e-4, rtol=0
    )
    torch.testing.assert_close(weights.selection(), torch.full((7,), 1 / 7, dtype=torch.float64))


@pytest.mark.parametrize("sizes", SMALL, ids=str)
def test_slopes_by_hand_are_autograds_for_many_models_at_once(sizes):
    tokens = torch.stack([draw(5, 12, tokens=sizes.tokens, alpha=1.0, seed=seed)[1] for seed in (0, 1)])
    data, weights = ih.examples(tokens, sizes), some_weights(sizes, 2)
    leaves = Weights(*(getattr(weights, name).clone().requires_grad_() for name in "wca"))
    prediction = ih.predict(data, sizes, leaves)
    loss = mc.cross_entropy(prediction, data.target, eps=1e-2)
    wanted = torch.autograd.grad(loss.sum(), (leaves.w, leaves.c, leaves.a))
    found, slopes = ih.loss_and_gradients(data, sizes, weights, eps=1e-2)
    torch.testing.assert_close(found, loss.detach())
    for name, slope in zip("wca", wanted, strict=True):
        torch.testing.assert_close(getattr(slopes, name), slope, rtol=1e-9, atol=1e-12)
    few = ih.loss_and_gradients(data, sizes, weights, eps=1e-2, parts="c")[1]
    torch.testing.assert_close(few.c, slopes.c)
    assert not few.w.any()


def test_runs_together_are_runs_alone():
    sizes, tokens = Sizes(), torch.stack([draw(40, 30, seed=seed)[1] for seed in (0, 1)])
    options = {"steps": (3, 2, 2), "step_sizes": (0.1, 10, 1)}
    both = ih.train(ih.examples(tokens, sizes), sizes, ih.start(sizes), **options)
    alone = ih.train(ih.examples(tokens[1], sizes), sizes, ih.start(sizes), **options)
    assert both.loss.shape == (8, 2)
    for name in "wca":
        torch.testing.assert_close(getattr(both.weights, name)[:, 1], getattr(alone.weights, name))


def test_a_stage_moves_its_own_part_alone():
    sizes = Sizes()
    data = ih.examples(draw(60, 30)[1], sizes)
    history = ih.train(data, sizes, ih.start(sizes), steps=(2, 3, 1), step_sizes=(0.1, 100, 1))
    assert history.stages == (2, 3, 1)
    moved = {
        name: getattr(history.weights, name).diff(dim=0).reshape(6, -1).abs().amax(dim=1) > 0
        for name in "cwa"
    }
    assert moved["c"].tolist() == [True] * 2 + [False] * 4
    assert moved["w"].tolist() == [False] * 2 + [True] * 3 + [False]
    assert moved["a"].tolist() == [False] * 5 + [True]
    together = ih.train(
        data, sizes, ih.start(sizes), steps=(1, 1, 1), step_sizes=(0.1, 100, 1), together=True
    )
    for name in "cwa":
        assert (getattr(together.weights, name).diff(dim=0).reshape(3, -1).abs().amax(dim=1) > 0).all()


def test_gradient_flow_keeps_the_sum_of_squares():
    """The loss does not see the length of c, so its slope is at right angles to c."""
    sizes = Sizes()
    weights = some_weights(sizes)
    _, slopes = ih.loss_and_gradients(ih.examples(draw(20, 30)[1], sizes), sizes, weights)
    assert float((slopes.c * weights.c).sum()) == pytest.approx(0, abs=1e-14)
    assert float(slopes.c.norm()) > 1e-4


def sharp(sizes, a=1e-4):
    """Copiers that see their own lag alone, and a small a."""
    new = ih.start(sizes, own=60.0, other=0.0)
    return Weights(new.w, new.c, torch.tensor(a, dtype=torch.float64))


def test_growth_is_affine_in_the_criterion_without_a_free_constant():
    """Long sequences, sharp copiers and small a: (27.8) holds up to noise; plain chi^2 in its place does not."""
    sizes = Sizes(degree=3)
    chains, tokens = draw(2000, 1200, alpha=0.5, parents=(1,))
    table = mc.next_table(chains, 3)
    measured = ih.growth_rates(ih.examples(tokens, sizes), sizes, sharp(sizes), eps=0)
    value, plain = (
        torch.stack([form(table, lags).mean() for lags in sizes.sets])
        for form in (mc.criterion, mc.chi_square)
    )
    wanted = ih.predicted_rates(value, sharp(sizes))
    scale = float(wanted.abs().max())
    assert float((measured - wanted).abs().max()) < 0.12 * scale
    assert float((measured - ih.predicted_rates(plain, sharp(sizes))).abs().max()) > 0.5 * scale
    doubled = Weights(sharp(sizes).w, sharp(sizes).c, 2 * sharp(sizes).a)
    torch.testing.assert_close(ih.predicted_rates(value, doubled), 2 * wanted)


@pytest.mark.parametrize("parents", [(1,), (1, 2)])
def test_training_selects_the_parents(parents):
    sizes = Sizes(degree=3)
    _, tokens = draw(500, parents=parents, seed=3)
    data = ih.examples(tokens[:400], sizes)
    end = last(ih.train(data, sizes, ih.start(sizes), steps=(60, 60, 80)))
    assert sizes.sets[int(end.selection().argmax())] == parents
    assert float(end.selection().max()) > 0.99
    own = end.own_lag()
    chosen = [lag - 1 for lag in parents]
    others = [lag for lag in range(3) if lag not in chosen]
    assert float(own[chosen].min()) > 0.98
    assert float((own[others] - 0.9086).abs().max()) < 5e-3
    head = mc.generalised_head(tokens[400:, :-1], parents, 3)
    model = ih.predict(ih.examples(tokens[400:], sizes), sizes, end)
    assert float((head - model).abs().sum(dim=-1).mean() / 2) < 0.06


def test_the_limit_of_a_large_a_is_the_generalised_head():
    sizes, tokens = Sizes(), draw(50, 40)[1]
    c = torch.tensor([float(lags == (1, 3)) for lags in sizes.sets], dtype=torch.float64)
    weights = Weights(sharp(sizes).w, c, torch.tensor(200.0, dtype=torch.float64))
    wanted = mc.generalised_head(tokens[:, :-1], (1, 3), 3)
    torch.testing.assert_close(ih.predict(ih.examples(tokens, sizes), sizes, weights), wanted)


def test_weight_on_matches_is_lesson_21s_for_one_lag_and_less_for_two():
    tokens = draw(5, 29)[1]
    pattern = torch.rand(5, 30, 30, generator=rng()).tril()
    pattern = pattern / pattern.sum(dim=-1, keepdim=True)
    one = ih.matched_weight(pattern, tokens, (1,))
    torch.testing.assert_close(one, matching_score(pattern, tokens, tokens), atol=0.02, rtol=0)
    by_hand = [
        float(sum(pattern[i, t, j] for j in after))
        for i in range(5)
        for t in range(1, 30)
        if (
            after := [
                j for j in range(2, t + 1) if torch.equal(tokens[i, j - 2 : j], tokens[i, t - 1 : t + 1])
            ]
        )
    ]
    two = ih.matched_weight(pattern, tokens, (1, 2))
    assert float(two) == pytest.approx(sum(by_hand) / len(by_hand))
    assert float(two) < float(one)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: Sizes(tokens=0), "tokens must be a whole number of at least 1, got 0"),
        (lambda: Sizes(degree=True), "degree must be a whole number"),
        (lambda: Sizes(n_heads=4, reach=3), "n_heads must be at most reach, 3.*got 4"),
        (lambda: ih.start(Sizes(), small=0), "small must be a positive finite number, got 0"),
        (
            lambda: ih.examples(torch.zeros(2, 4, dtype=torch.int64), Sizes()),
            "at least 5 a sequence .* got 4",
        ),
        (
            lambda: ih.train(
                ih.examples(draw(2, 9)[1], Sizes()), Sizes(), ih.start(Sizes()), steps=(1, 1, -1)
            ),
            "steps and step_sizes must have three entries",
        ),
    ],
)
def test_bad_input_is_named(call, said):
    with pytest.raises(ValueError, match=said):
        call()
