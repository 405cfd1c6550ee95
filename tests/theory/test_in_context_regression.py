"""The attention model against a loop and against autograd, its theory against simulation, and the training's outcome."""

import math

import pytest
import torch

from course_lib.theory import in_context_regression as icr
from course_lib.theory.in_context_regression import Prompts, Tasks

SMALL = Tasks(n_tasks=2, block=3, n_examples=7)


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


def f64(values):
    return torch.tensor(values, dtype=torch.float64)


def weights(*runs, heads=3, seed=1):
    """Weights of both signs for the small tasks."""
    new = lambda size: torch.randn(*runs, heads, size, generator=rng(seed), dtype=torch.float64)  # noqa: E731
    return new(6), new(2)


@pytest.fixture
def prompts():
    return SMALL.draw(5, generator=rng(), dtype=torch.float64)


def test_an_answer_depends_on_its_own_block_alone():
    drawn = Tasks(n_tasks=2, block=2, n_examples=40, noise=0).draw(3, generator=rng(), dtype=torch.float64)
    for task in (0, 1):
        own = slice(2 * task, 2 * task + 2)
        beta = torch.linalg.lstsq(drawn.x[..., own], drawn.y[..., task, None]).solution
        torch.testing.assert_close((drawn.query[:, None, own] @ beta)[:, 0, 0], drawn.target[:, task])
        other = torch.linalg.lstsq(drawn.x[..., own], drawn.y[..., 1 - task, None]).solution
        assert (drawn.x[..., own] @ other - drawn.y[..., 1 - task, None]).abs().max() > 0.5


def test_noise_is_on_the_examples_and_not_on_the_target():
    clean, noisy = (Tasks(noise=s).draw(400, generator=rng(), dtype=torch.float64) for s in (0, 0.5))
    torch.testing.assert_close(clean.target, noisy.target)
    assert float((noisy.y - clean.y).std()) == pytest.approx(0.5, rel=0.02)


def test_a_link_bends_the_answers_before_the_noise():
    straight, bent = (Tasks(noise=0).draw(4, generator=rng(), link=link) for link in (None, torch.tanh))
    torch.testing.assert_close(bent.y, straight.y.tanh())
    torch.testing.assert_close(bent.target, straight.target.tanh())


def test_by_hand():
    """Two examples, weights 3/4 and 1/4: the answer is 2 (3/4 * 4 + 1/4 * 8) = 10."""
    prompts = Prompts(f64([[[math.log(3)], [0.0]]]), f64([[[4.0], [8.0]]]), f64([[1.0]]), f64([[7.0]]))
    w, u = f64([[1.0]]), f64([[2.0]])
    assert float(icr.attention(prompts, w, u)) == pytest.approx(10)
    mse, d_w, d_u = icr.gradients(prompts, w, u)
    assert float(mse) == pytest.approx(9)
    assert float(d_u) == pytest.approx(3 * 5)
    # u r times the covariance of x and y under the weights: 3/4 * 1/4 * log 3 * (4 - 8)
    assert float(d_w) == pytest.approx(3 * 2 * 3 / 16 * math.log(3) * -4)


def test_all_runs_at_once_are_the_loop_over_heads(prompts):
    w, u = weights(4)
    wanted = torch.stack([icr.attention_by_heads(prompts, *run) for run in zip(w, u, strict=True)])
    torch.testing.assert_close(icr.attention(prompts, w, u), wanted)
    torch.testing.assert_close(
        icr.mean_squared_error(prompts, w, u), ((wanted - prompts.target) ** 2).sum(-1).mean(-1)
    )


@pytest.mark.parametrize("runs", [(), (2, 3)], ids=["one", "grid"])
def test_gradients_are_autograds_of_half_the_error(prompts, runs):
    w, u = (t.requires_grad_() for t in weights(*runs))
    mse = icr.mean_squared_error(prompts, w, u)
    wanted = torch.autograd.grad(mse.sum() / 2, (w, u))
    found = icr.gradients(prompts, w.detach(), u.detach())
    torch.testing.assert_close(found[0], mse.detach())
    for ours, theirs in zip(found[1:], wanted, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)


def test_the_fast_form_has_the_right_slopes(prompts):
    leaves = [t.requires_grad_() for t in weights(heads=2)]
    assert torch.autograd.gradcheck(lambda w, u: icr.mean_squared_error(prompts, w, u), leaves)


def test_a_step_on_equal_factors_is_a_step_on_the_product_of_four(prompts):
    w, u = weights()
    q, v = w.abs(), u.abs()
    leaves = [t.clone().requires_grad_() for t in (q, q, v, v)]
    loss = icr.mean_squared_error(prompts, leaves[0] * leaves[1], leaves[2] * leaves[3]) / 2
    d_q, d_k, d_o, d_v = torch.autograd.grad(loss, leaves)
    torch.testing.assert_close(d_q, d_k)
    torch.testing.assert_close(d_o, d_v)
    _, new_q, new_v = icr.factor_step(prompts, q, v, 0.1)
    torch.testing.assert_close(new_q, q - 0.1 * d_q)
    torch.testing.assert_close(new_v, v - 0.1 * d_v)


def test_training_is_the_same_for_runs_together_and_alone():
    starts = [icr.start(SMALL, 2, generator=rng(seed), dtype=torch.float64) for seed in (0, 1)]
    together = icr.train(
        SMALL, *map(torch.stack, zip(*starts, strict=True)), steps=5, batch=4, every=2, generator=rng(9)
    )
    assert together.steps == (0, 2, 4, 5)
    assert together.w.shape == (4, 2, 2, 6)
    for place, one in enumerate(starts):
        alone = icr.train(SMALL, *one, steps=5, batch=4, every=2, generator=rng(9))
        torch.testing.assert_close(alone.w, together.w[:, place])
        torch.testing.assert_close(alone.mse, together.mse[:, place])
    torch.testing.assert_close(together.u[0, 1], starts[1][1].square())


def test_a_start_leans_only_where_asked():
    q, v = icr.start(Tasks(), 5, scale=0.2, lean=0.5, generator=rng())
    assert torch.all(q == q[0, 0])
    assert 0.2 <= float(v.min()) < float(v.max()) <= 0.3
    even = icr.start(Tasks(), 5, scale=0.2, lean=0, generator=rng())[1]
    assert torch.all(even == even[0, 0])


def test_equal_heads_stay_equal_and_absent_heads_absent():
    q, v = icr.start(SMALL, 3, lean=0, dtype=torch.float64)
    q[2] = v[2] = 0
    history = icr.train(SMALL, q, v, steps=40, batch=16, generator=rng())
    torch.testing.assert_close(history.u[-1, 0], history.u[-1, 1], rtol=1e-12, atol=0)
    assert not history.w[-1, 2].any()
    assert not history.u[-1, 2].any()
    assert (history.u[-1, :2] != history.u[0, :2]).all()


# Theory


def test_worked_examples_of_the_best_head():
    """Twelve features in three tasks: 1/2 with four features, 1/sqrt(12) = 0.289 where one head serves all."""
    tasks = Tasks(n_tasks=3, block=4, n_examples=60, noise=0.2)
    w, u = icr.best_head(tasks)
    assert w == 0.5
    assert u == pytest.approx(2 / (1 + math.e * 4 / 60 * 1.01))
    assert icr.best_head(tasks, 3)[0] == pytest.approx(0.2887, abs=1e-4)
    kappa = math.e * 4 / 60 * 1.01
    assert icr.served_error(tasks, [1, 1, 1]) == pytest.approx(12 * kappa / (1 + kappa))
    assert icr.served_error(tasks, [3]) == pytest.approx(12 * 3 * kappa / (1 + 3 * kappa))
    assert icr.served_error(tasks, [0, 0]) == 12
    assert icr.zero_sum_error(tasks) == pytest.approx(12 * 5.04 / 65.04)


def test_the_ratio_of_one_head_to_many_tends_to_the_number_of_tasks_and_not_to_its_square():
    long = Tasks(n_tasks=3, block=4, n_examples=10**7, noise=0.2)
    assert icr.served_error(long, [3]) / icr.served_error(long, [1, 1, 1]) == pytest.approx(3, rel=1e-4)
    assert icr.served_error(long, [1, 1, 1]) / icr.zero_sum_error(long) == pytest.approx(
        math.e * 4.04 / 5.04, rel=1e-4
    )


def test_the_best_head_minimises_the_error_of_first_order():
    """e^{n w^2} / w^2 has its minimum at 1 / sqrt(n), and (uw - 1)^2 + (uw)^2 kappa that at 1 / (1 + kappa)."""
    tasks = Tasks(n_tasks=2, block=8, n_examples=100)
    w, u = icr.best_head(tasks)
    error = lambda w, u: (  # noqa: E731
        16 * ((u * w - 1) ** 2 + u**2 * math.exp(8 * w**2) * tasks.noise_ratio / 100)
    )
    assert error(w, u) == pytest.approx(icr.served_error(tasks, [1, 1]))
    for factor in (0.97, 1.03):
        assert error(w * factor, u) > error(w, u)
        assert error(w, u * factor) > error(w, u)
        assert error(w * factor, u / factor) > error(w, u)


def test_many_examples_bring_the_theory_of_one_head_near():
    tasks = Tasks(n_tasks=2, block=16, n_examples=800)
    prompts = tasks.draw(300, generator=rng(5))
    (w, u), shared = icr.best_head(tasks), icr.best_head(tasks, 2)
    apart = icr.mean_squared_error(prompts, w * torch.eye(2).repeat_interleave(16, dim=1), u * torch.eye(2))
    together = icr.mean_squared_error(prompts, torch.full((1, 32), shared[0]), torch.full((1, 2), shared[1]))
    assert float(apart) == pytest.approx(icr.served_error(tasks, [1, 1]), rel=0.15)
    assert float(together) == pytest.approx(icr.served_error(tasks, [2]), rel=0.15)


def test_emergence_time_is_that_of_the_flow():
    for w, u in ((0.01, 0.01), (0.01, 0.0225), (0.01, 0.04), (0.01, 0.0400001)):
        wanted, time = icr.emergence_time(w, u, 4), 0.0
        w_t, u_t = w, u
        while u_t < 1e3:
            step = 2e-4 / u_t
            half_w, half_u = w_t + step * w_t * u_t, u_t + step * 4 * w_t * u_t
            w_t, u_t, time = w_t + 2 * step * half_w * half_u, u_t + 8 * step * half_w * half_u, time + step
        assert time == pytest.approx(wanted, rel=2e-3)
    assert icr.emergence_time(0.01, 0.01, 4) == pytest.approx(4 * icr.emergence_time(0.04, 0.04, 4))


def test_zero_sum_heads_cancel_and_return_one_step_of_descent():
    tasks = Tasks(n_tasks=3, block=4, n_examples=60)
    w, u = icr.zero_sum_heads(tasks, 1e-3)
    assert w.shape == (4, 12)
    assert u.sum(dim=0).abs().max() < 1e-9
    shrink = 1 / (1 + 5.04 / 60)
    torch.testing.assert_close(
        u.T @ w, shrink * torch.eye(3, dtype=torch.float64).repeat_interleave(4, dim=1)
    )
    prompts = tasks.draw(2000, generator=rng(3), dtype=torch.float64)
    x, y = (t - t.mean(dim=1, keepdim=True) for t in (prompts.x, prompts.y))
    slopes = (x.unflatten(-1, (3, 4)) * y[..., None]).mean(dim=1)  # (batch, I, d_i)
    step = shrink * (slopes * prompts.query.unflatten(-1, (3, 4))).sum(dim=-1)
    torch.testing.assert_close(icr.attention(prompts, w, u), step, rtol=0, atol=0.02)
    assert float(icr.mean_squared_error(prompts, w, u)) == pytest.approx(icr.zero_sum_error(tasks), rel=0.08)


def test_ridge_in_blocks_is_the_posterior_mean_and_beats_its_neighbours():
    tasks = Tasks(n_tasks=2, block=3, n_examples=12, noise=0.5)
    prompts = tasks.draw(800, generator=rng(), dtype=torch.float64)
    error = lambda answers: float((answers - prompts.target).square().sum(-1).mean())  # noqa: E731
    best = error(icr.ridge_answers(prompts, tasks))
    first = prompts.x[0, :, :3]
    beta = torch.linalg.solve(first.T @ first + 0.25 * torch.eye(3), first.T @ prompts.y[0, :, 0])
    torch.testing.assert_close(icr.ridge_answers(prompts, tasks)[0, 0], prompts.query[0, :3] @ beta)
    for other in (0.1, 1.5):
        assert best < error(icr.ridge_answers(prompts, Tasks(n_tasks=2, block=3, n_examples=12, noise=other)))
    assert best < 0.6 * error(icr.ridge_answers(prompts, tasks, blocks_known=False))


def test_allocations():
    u = f64([[[0.1, 2.0], [1.0, 0.1]], [[1.0, 2.0], [0.5, 0.1]]])
    assert icr.winners(u).tolist() == [[1, 0], [0, 0]]
    assert icr.one_head_each(u).tolist() == [True, False]
    torch.testing.assert_close(icr.shares(-u).sum(dim=-2), torch.ones(2, 2, dtype=torch.float64))
    assert float(icr.shares(u)[1, 0, 0]) == pytest.approx(2 / 3)


# What training ends in


def test_training_gives_each_task_a_head_and_one_head_serves_all():
    """A shorter relative of the lesson's run: batch 128 and 300 steps of double length."""
    tasks = Tasks()
    q, v = icr.start(tasks, 3, generator=rng(3))
    assert not icr.one_head_each(v)  # this start leans with one head to all three tasks
    lone = torch.zeros_like(q), torch.zeros_like(v)
    lone[0][0], lone[1][0] = q[0], v[0]
    history = icr.train(
        tasks,
        torch.stack([q, lone[0]]),
        torch.stack([v, lone[1]]),
        steps=300,
        batch=128,
        step_size=0.1,
        generator=rng(1),
    )
    assert icr.one_head_each(history.u[-1, 0])
    assert float(icr.shares(history.u[-1, 0]).amax(0).min()) > 0.9
    held_out = tasks.draw(2000, generator=rng(2))
    several, one = icr.mean_squared_error(held_out, history.w[-1], history.u[-1]).tolist()
    assert several < 2.7
    assert one / several > 1.6


def test_steps_read_nothing_back():
    meta = Tasks().draw(4, device="meta")
    q, v = icr.start(Tasks(), 3, device="meta")
    assert all(t.is_meta for t in icr.factor_step(meta, q, v, 0.1))
    assert icr.ridge_answers(meta, Tasks()).is_meta


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Tasks(block=0), "block must be a whole number of at least 1, got 0"),
        (lambda: Tasks(n_examples=True), "n_examples must be a whole number of at least 1, got True"),
        (lambda: Tasks(noise=-0.1), "noise must be a finite number of at least 0, got -0.1"),
        (lambda: SMALL.draw(0), "batch must be a whole number of at least 1, got 0"),
        (lambda: icr.start(SMALL, 0), "n_heads must be .*got 0"),
        (lambda: icr.start(SMALL, 2, scale=0), "scale must be a positive finite number, got 0"),
        (lambda: icr.start(SMALL, 2, lean=-1), "lean must be a finite number of at least 0, got -1"),
        (lambda: icr.attention(SMALL.draw(2), torch.ones(3, 5), torch.ones(3, 2)),
         r"w must have shape \(..., heads, 6\), got \(3, 5\)"),
        (lambda: icr.gradients(SMALL.draw(2), torch.ones(3, 6), torch.ones(2, 2)),
         r"u must have shape \(3, 2\).*got \(2, 2\)"),
        (lambda: icr.train(SMALL, *icr.start(SMALL, 2), every=0), "every must be .*got 0"),
        (lambda: icr.train(SMALL, *icr.start(SMALL, 2), step_size=-1), "step_size must be a positive"),
        (lambda: icr.best_head(SMALL, 3), "n_served must be at most the number of tasks, 2, got 3"),
        (lambda: icr.served_error(SMALL, [2, 1]), r"served must hold .* sum 2 at most, got \[2, 1\]"),
        (lambda: icr.emergence_time(0.0, 1, 4), "w must be a positive finite number, got 0.0"),
        (lambda: icr.zero_sum_heads(SMALL, 0), "size must be a positive finite number, got 0"),
        (lambda: icr.ridge_answers(SMALL.draw(2), Tasks()), "prompts must have 12 features and 3 tasks, got 6 and 2"),
    ],
)  # fmt: skip
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
