"""Erasure against two regressions and against its peer: nothing left for a linear probe, and no smaller change."""

import pytest
import torch

from course_lib.representation.erasure import (
    ErasureMoments,
    concept_columns,
    erase_by_regression,
    fit_eraser,
    probe_r2,
)

f64 = lambda *entries: torch.tensor(entries, dtype=torch.float64)  # noqa: E731


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def states(n: int = 300, d: int = 6, classes: int = 3) -> tuple[torch.Tensor, torch.Tensor]:
    """Correlated states with a mean, and labels that shift them."""
    labels = torch.arange(n) % classes
    return (normal(n, d) + normal(classes, d, seed=2)[labels]) @ normal(d, d, seed=3) + 5, labels


def r2_by_lstsq(x: torch.Tensor, z: torch.Tensor, cut: float = 1e-5) -> float:
    """The largest R^2 of a full float64 probe on standardised features, read off an SVD."""
    x, z = x.double() - x.double().mean(0), z.double() - z.double().mean(0)
    u, s, _ = torch.linalg.svd(x / x.std(0).clamp(min=1e-30), full_matrices=False)
    return float(((u[:, s > cut * s[0]].T @ z).square().sum(0) / z.square().sum(0)).max())


def test_worked_example():
    """Variances 1 and covariance 1/2, cross-covariance (1, 0): P = [[0, 0], [-c, 1]] with c = -1/2."""
    x = f64(1, 1, 1, -1, -1, 1, -1, -1).view(4, 2) @ torch.linalg.cholesky(f64(1, 0.5, 0.5, 1).view(2, 2)).T
    # The concept is what the inverse covariance reads as (1, 0): its cross-covariance is (1, 0) itself.
    z = x @ torch.linalg.inv(f64(1, 0.5, 0.5, 1).view(2, 2))[:, :1]
    eraser = fit_eraser(x, z)
    assert eraser.rank == 1
    # What is removed goes along (1, 0) and is read by (1, -1/2): an oblique projection.
    torch.testing.assert_close(eraser.matrix(), f64(0, 0.5, 0, 1).view(2, 2), rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("concept", ["labels", "one column", "numbers"])
def test_covariances_give_what_two_regressions_give(concept):
    x, labels = states()
    z = {
        "labels": concept_columns(labels),
        "one column": (labels == 1).double()[:, None],
        "numbers": normal(300, 2, seed=5) + x[:, :2],
    }[concept]
    eraser = fit_eraser(x, z)
    assert eraser.rank == {"labels": 2, "one column": 1, "numbers": 2}[concept]
    torch.testing.assert_close(eraser.erase(x), erase_by_regression(x, z), rtol=1e-7, atol=1e-7)
    assert probe_r2(x, z).max() > 0.1
    assert probe_r2(eraser.erase(x), z).max() < 1e-20
    assert r2_by_lstsq(eraser.erase(x), z) < 1e-20


def test_the_projection_is_one_and_keeps_the_mean():
    x, labels = states()
    eraser = fit_eraser(x, labels)
    p = eraser.matrix()
    torch.testing.assert_close(p @ p, p, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(eraser.erase(x).mean(0), x.mean(0))
    torch.testing.assert_close(eraser.erase(eraser.erase(x)), eraser.erase(x), rtol=1e-9, atol=1e-9)
    assert fit_eraser(eraser.erase(x), labels).rank == 0  # nothing is left to erase


def test_no_map_that_erases_changes_the_states_less():
    """Every M with M Sigma_xz = 0 is P + G (I - U U^+) P for some G; all of them cost at least as much."""
    x, labels = states()
    z, centred = concept_columns(labels), x - x.mean(0)
    eraser = fit_eraser(x, labels)
    least = (eraser.erase(x) - x).square().sum()
    cross = centred.T @ (z - z.mean(0))
    off = torch.eye(6) - cross @ torch.linalg.pinv(cross, rtol=1e-9)
    orthogonal = centred @ off - centred
    assert orthogonal.square().sum() > 1.02 * least  # the nearest wrong neighbour: at right angles
    for seed in range(5):
        other = eraser.matrix() + 0.05 * normal(6, 6, seed=seed) @ off
        assert r2_by_lstsq(centred @ other.T, z) < 1e-20
        assert (centred @ other.T - centred).square().sum() > least


def test_neighbours_that_do_not_erase():
    x, labels = states()
    z = (labels == 1).double()[:, None]
    centred = x - x.mean(0)
    probe = torch.linalg.lstsq(centred, z - z.mean(0)).solution
    unit = probe / probe.norm()
    assert r2_by_lstsq(centred - centred @ unit @ unit.T, z) > 0.01  # the probe's direction, at right angles
    moments = ErasureMoments()
    moments.update(x, z)
    for seed in range(3):
        chance = moments.random_eraser(1, generator=torch.Generator().manual_seed(seed))
        assert chance.rank == 1
        torch.testing.assert_close(chance.read @ chance.write, torch.eye(1).double())
        assert r2_by_lstsq(chance.erase(x), z) > 0.01
    shuffled = fit_eraser(x, z[torch.randperm(300, generator=torch.Generator().manual_seed(0))])
    assert r2_by_lstsq(shuffled.erase(x), z) > 0.01


@pytest.mark.parametrize("cuts", [[300], [1, 1, 298], [0, 150, 150], [299, 1]])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_batches_give_what_one_table_gives(cuts, dtype):
    x, labels = states()
    x, moments = x.to(dtype), ErasureMoments()
    for part, own in zip(x.split(cuts), labels.split(cuts), strict=True):
        moments.update(part, own, n_classes=3)
    whole, found = fit_eraser(x, labels), moments.eraser()
    tolerance = 1e-8 if dtype == torch.float64 else 1e-4
    torch.testing.assert_close(found.matrix(), whole.matrix(), rtol=tolerance, atol=tolerance)
    assert probe_r2(found.erase(x), labels).max() < 1e-12
    torch.testing.assert_close(moments.probe_r2(), probe_r2(x, labels), rtol=tolerance, atol=tolerance)


def hard(kind: str, n: int = 20_000, d: int = 24, seed: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
    """float32 states of three kinds that are hard for a tolerance in units of the data."""
    g = torch.Generator().manual_seed(seed)
    if kind == "rare":
        z = torch.zeros(n, 1)
        z[torch.randperm(n, generator=g)[:23]] = 1
    else:
        z = torch.eye(10)[torch.arange(n) % 10]
    x = torch.randn(n, d, generator=g) + z @ torch.randn(z.shape[1], d, generator=g)
    return x * torch.logspace(0, 4, d) if kind == "scales" else x, z


@pytest.mark.parametrize("kind", ["balanced", "rare", "scales"])
def test_a_probe_reads_nothing_from_float32(kind):
    x, z = hard(kind)
    assert probe_r2(x, z).max() > 0.01
    erased = fit_eraser(x, z).erase(x)
    assert erased.dtype == torch.float32
    assert probe_r2(erased, z).max() < 1e-12
    assert r2_by_lstsq(erased, z, cut=1e-6) < 1e-12
    assert probe_r2(x - erased, z).max() > 0.01  # what was taken out holds it


def test_two_parts_of_the_written_directions_leave_less_in_the_rounding():
    """A probe that counts directions of 1e-8 of the spread reads what rounding left: less than half as much.

    On average over four draws: what rounding leaves in one of them differs between processors.
    """
    single, both = 0.0, 0.0
    for seed in range(1, 5):
        x, z = hard("balanced", seed=seed)
        eraser = fit_eraser(x, z)
        mean, read, write = (t.float() for t in (eraser.mean, eraser.read, eraser.write))
        single += r2_by_lstsq(x - (x - mean) @ read.T @ write.T, z, cut=1e-8)
        both += r2_by_lstsq(eraser.erase(x), z, cut=1e-8)
    assert both < single / 2


def test_a_large_mean_a_constant_and_a_copied_feature():
    x, labels = states()
    odd = torch.cat([x + 2.0**20, torch.full((300, 1), 7.0).double(), x[:, :1], torch.zeros(300, 1)], dim=1)
    eraser = fit_eraser(odd, labels)
    erased = eraser.erase(odd)
    assert erased.isfinite().all()
    assert probe_r2(erased, labels).max() < 1e-12
    torch.testing.assert_close(erased[:, 6], odd[:, 6])
    torch.testing.assert_close(
        erased[:, 7], erase_by_regression(x, concept_columns(labels))[:, 0], rtol=1e-4, atol=1e-4
    )
    few = odd[:5].float()  # fewer rows than features
    assert fit_eraser(few, labels[:5]).erase(few).isfinite().all()


def test_gradients_pass_through_and_blocks_change_nothing():
    x, labels = states(n=1200)
    eraser = fit_eraser(x, labels)
    leaf = x.clone().requires_grad_()
    out = eraser.erase(leaf)
    torch.testing.assert_close(out.detach(), eraser.erase(x))
    weights = normal(1200, 6, seed=9)
    (gradient,) = torch.autograd.grad((out * weights).sum(), leaf)
    torch.testing.assert_close(gradient, weights @ eraser.matrix())
    assert torch.autograd.gradcheck(eraser.erase, x[:5].clone().requires_grad_())


def test_labels_become_columns():
    assert concept_columns(torch.tensor([2, 0])).tolist() == [[0, 0, 1], [1, 0, 0]]
    assert concept_columns(torch.tensor([1]), n_classes=3).tolist() == [[0, 1, 0]]
    assert concept_columns(torch.tensor([True, False])).tolist() == [[1], [0]]
    assert concept_columns(f64(0.5, 2)).tolist() == [[0.5], [2]]


def test_the_peer_agrees_where_its_options_are_off():
    leace = pytest.importorskip("concept_erasure")
    x, labels = states()
    z = concept_columns(labels)
    plain = {"shrinkage": False, "constrain_cov_trace": False, "svd_tol": 1e-6}
    theirs = leace.LeaceFitter.fit(x, z, **plain).eraser(x)
    torch.testing.assert_close(fit_eraser(x, labels).erase(x), theirs, rtol=1e-7, atol=1e-7)
    rare_x, rare = hard("rare")
    kept = leace.LeaceFitter.fit(rare_x[:, :8], rare).eraser
    assert probe_r2(kept(rare_x[:, :8]), rare).max() > 1e-3  # its tolerance is absolute


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: fit_eraser(normal(4, 3), torch.zeros(5).long()), "z must have 4 rows, as x has, got 5"),
        (lambda: fit_eraser(normal(1, 3), torch.zeros(1).long()), "at least two rows are needed, got 1"),
        (lambda: ErasureMoments().eraser(), "at least two rows are needed, got 0"),
        (lambda: fit_eraser(normal(4, 3) / 0, torch.arange(4)), "x and z must hold finite numbers"),
        (lambda: concept_columns(torch.tensor([0, 3]), n_classes=3), "from 0 to 2, got 0 to 3"),
        (lambda: concept_columns(torch.tensor([-1, 1])), "from 0 to 1, got -1 to 1"),
        (lambda: concept_columns(normal(2, 2), n_classes=2), "n_classes is for whole labels"),
        (lambda: fit_eraser(*states()).erase(normal(3, 5)), r"x must have shape \(rows, 6\), got \(3, 5\)"),
        (lambda: erase_by_regression(normal(3, 5), normal(4, 1)), "z must have 3 rows.*got 4"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_batches_must_agree_and_a_random_rank_must_exist():
    moments = ErasureMoments()
    moments.update(*states())
    with pytest.raises(ValueError, match=r"x must have shape \(rows, 6\), got \(2, 5\)"):
        moments.update(normal(2, 5), torch.tensor([0, 1]))
    with pytest.raises(ValueError, match="z must have 3 columns, as before, got 2"):
        moments.update(normal(2, 6), torch.tensor([0, 1]))
    with pytest.raises(ValueError, match=r"rank must be .* from 0 to 6 .*got 7"):
        moments.random_eraser(7)
