"""Codes that bend: they start as PCA, bend where they are told to, and their rivals are what they say."""

import pytest
import torch

from course_lib.representation.bottleneck import (
    Bottleneck,
    bump_features,
    cluster_code,
    fit_bottleneck,
    nearest_decoder,
    quadratic_features,
    ridge_decoder,
)
from course_lib.representation.pca import pca
from course_lib.sae.metrics import explained_variance, pca_bound


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def parabola(rows: int, *, seed: int) -> torch.Tensor:
    t = normal(rows, 1, seed=seed)
    return torch.cat([t, 0.6 * t.square(), 0.1 * normal(rows, 1, seed=seed + 1)], dim=1)


@pytest.mark.parametrize("bent", [(), ("encoder",), ("decoder",), ("encoder", "decoder")])
def test_an_untrained_bottleneck_is_pca(bent):
    rows = normal(200, 6) @ normal(6, 6, seed=1) + 3
    network = Bottleneck(rows, 2, bent=bent, generator=torch.Generator().manual_seed(2))
    found = pca(rows, 2)
    torch.testing.assert_close(
        network(rows).detach(), found.reconstruct(found.project(rows)), rtol=1e-4, atol=1e-3
    )
    assert network.encode(rows).detach().std(dim=0).tolist() == pytest.approx([1, 1], rel=0.01)
    assert (network.bend_code is None, network.bend_output is None) == (
        "encoder" not in bent,
        "decoder" not in bent,
    )


def test_a_part_that_does_not_exist_is_refused():
    with pytest.raises(ValueError, match="middle"):
        Bottleneck(normal(20, 3), 1, bent=("middle",))


def test_a_bent_decoder_follows_a_parabola_and_a_bent_encoder_alone_does_not_pass_pca():
    fit, choose = parabola(400, seed=0), parabola(200, seed=5)
    kept = {}
    for bent in (("encoder",), ("decoder",)):
        network = fit_bottleneck(fit, choose, 1, bent=bent, step_size=0.02, steps=200, every=50, hidden=16)
        kept[bent] = explained_variance(fit, network(fit).detach())
    assert kept["encoder",] <= pca_bound(fit, 1) + 1e-6
    assert kept["decoder",] > pca_bound(fit, 1) + 0.1


def test_the_state_that_is_best_on_the_rows_to_choose_on_is_returned():
    """With a step size that ruins everything, that is the start."""
    fit, choose = parabola(100, seed=0), parabola(100, seed=5)
    network = fit_bottleneck(fit, choose, 1, bent=("decoder",), step_size=1e4, steps=20, every=10, hidden=8)
    found = pca(fit, 1)
    kept = explained_variance(choose, found.reconstruct(found.project(choose)))
    assert explained_variance(choose, network(choose).detach()) == pytest.approx(kept, abs=1e-5)


def test_quadratic_features_hold_each_product_once():
    features = quadratic_features(torch.tensor([[2.0, 3.0, 5.0]]))
    assert sorted(features[0].tolist()) == sorted([2, 3, 5, 4, 6, 10, 9, 15, 25])


def test_bumps_are_one_at_their_centre_and_fall_with_the_distance():
    z = torch.tensor([[0.0, 0.0], [0.0, 2.0]])
    features = bump_features(z, z[:1], 2.0)
    assert features[:, :2].tolist() == z.tolist()
    assert features[:, 2].tolist() == pytest.approx([1, torch.tensor(-0.5).exp().item()])


def test_ridge_is_least_squares_at_weight_zero_and_the_mean_at_a_huge_one():
    features, rows = normal(80, 3).double(), normal(80, 2, seed=1).double() + 4
    found = ridge_decoder(features, rows, (0, 0.5, 1e12))
    ones = torch.cat([features, torch.ones(80, 1, dtype=torch.float64)], dim=1)
    torch.testing.assert_close(found[0](features), ones @ torch.linalg.lstsq(ones, rows).solution)
    torch.testing.assert_close(found[1e12](features), rows.mean(dim=0).expand(80, 2))
    standard = (features - features.mean(dim=0)) / features.std(dim=0)
    solution = torch.linalg.solve(
        standard.T @ standard / 80 + 0.5 * torch.eye(3, dtype=torch.float64),
        standard.T @ (rows - rows.mean(dim=0)) / 80,
    )
    torch.testing.assert_close(found[0.5](features), standard @ solution + rows.mean(dim=0))


def test_the_nearest_code_gives_its_own_error_back():
    codes, rows = torch.tensor([[0.0], [10.0]]), torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    decode = nearest_decoder(codes, rows, torch.zeros(2, 2), 1)
    assert decode(torch.tensor([[9.0]]), torch.zeros(1, 2)).tolist() == [[3.0, 4.0]]
    both = nearest_decoder(codes, rows, torch.zeros(2, 2), 5)
    assert both(torch.tensor([[9.0]]), torch.ones(1, 2)).tolist() == [[3.0, 4.0]]


def test_a_cluster_number_and_one_direction_restore_two_parallel_lines():
    t = normal(300, 1)
    which = (normal(300, 1, seed=1) > 0).float()
    rows = torch.cat([t, 40 * which, 0 * t], dim=1)
    assert explained_variance(rows, cluster_code(rows, 2, 2)(rows)) == pytest.approx(1, abs=1e-4)
    assert explained_variance(rows, cluster_code(rows, 1, 2)(rows)) < 1
