import math

import pytest
import torch

from course_lib.sae import metrics


def normal(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def test_explained_variance_by_hand():
    x = torch.tensor([[0.0, 10.0], [2.0, 10.0], [4.0, 10.0]])
    assert metrics.explained_variance(x, x) == 1
    assert metrics.explained_variance(x, x.mean(dim=0).expand_as(x)) == 0
    assert metrics.explained_variance(x, x + torch.tensor([1.0, 0.0])) == pytest.approx(1 - 3 / 8)
    assert metrics.explained_variance(x, -x) < 0


def test_explained_variance_survives_a_large_mean():
    x = normal(400, 6) + 1e7
    x_hat = x + 0.5 * normal(400, 6, seed=1)
    expected = 1 - (x - x_hat).square().sum() / (x - x.mean(dim=0)).square().sum()
    assert metrics.explained_variance(x, x_hat) == pytest.approx(expected.item(), abs=1e-9)
    # In float32 the naive E[x^2] - E[x]^2 has lost the variance entirely at this mean.
    single = (normal(400, 6) + 3e3).float()
    noisy = single + 0.5 * normal(400, 6, seed=1).float()
    assert metrics.explained_variance(single, noisy) == pytest.approx(expected.item(), abs=1e-3)


def test_explained_variance_in_chunks_is_that_of_the_whole():
    x, x_hat = normal(101, 5) * 3 + 1e4, normal(101, 5, seed=1)
    x_hat = x + x_hat
    gathered = metrics.ExplainedVariance()
    for start, stop in [(0, 1), (1, 40), (40, 40), (40, 101)]:
        gathered.update(x[start:stop], x_hat[start:stop])
    assert gathered.n_rows == 101
    assert gathered.value() == pytest.approx(metrics.explained_variance(x, x_hat), abs=1e-10)


def test_no_variance_is_an_error():
    with pytest.raises(ValueError, match="no variance"):
        metrics.explained_variance(torch.ones(3, 2), torch.ones(3, 2))
    with pytest.raises(ValueError, match="no variance"):
        metrics.pca_curve(torch.ones(3, 2))
    with pytest.raises(ValueError, match="no variance"):
        metrics.ExplainedVariance().value()


def test_pca_curve_agrees_with_the_covariance_and_with_the_projection():
    x = normal(60, 8) @ normal(8, 8, seed=1) + 100
    eigenvalues = torch.linalg.eigvalsh(torch.cov(x.T)).flip(0)
    curve = metrics.pca_curve(x)
    torch.testing.assert_close(curve, eigenvalues.cumsum(0) / eigenvalues.sum())
    for k in (1, 3, 8):
        assert metrics.pca_transfer(x, x, k) == pytest.approx(curve[k - 1].item(), abs=1e-10)
        assert metrics.pca_transfer(x[:30], x[30:], k) < metrics.pca_bound(x[30:], k) + 1e-12
    assert metrics.pca_bound(x[:3], 8) == pytest.approx(1)
    with pytest.raises(ValueError, match="k is 0"):
        metrics.pca_bound(x, 0)


def test_isotropic_data_keep_k_over_d_and_the_relu_code_its_factor():
    d, k, n = 64, 8, 200_000
    x = normal(n, d, dtype=torch.float32)
    kept = metrics.pca_bound(x, k)
    assert k / d < kept < 1.05 * k / d  # above it by as much as PCA fits the sample
    # The first k coordinates through a ReLU, decoded by the best affine map.
    z = torch.relu(x[:, :k]).double()
    design = torch.cat([z, torch.ones(n, 1, dtype=torch.float64)], dim=1)
    x_hat = design @ torch.linalg.lstsq(design, x.double()).solution
    factor = 0.25 / (0.5 - 1 / (2 * math.pi))
    assert factor == pytest.approx(0.73347110346213)
    assert metrics.explained_variance(x, x_hat) / (k / d) == pytest.approx(factor, rel=0.02)


def test_sparsity_metrics_by_hand():
    features = torch.tensor([[0.0, 1.0, 0.0], [0.0, 3.0, 2.0], [0.0, 2.0, 0.0], [0.0, 0.5, 0.0]])
    assert metrics.l0(features) == 1.25
    assert metrics.firing_rates(features).tolist() == [0, 1, 0.25]
    assert metrics.dead_units(features).tolist() == [True, False, False]
    assert metrics.dead_units(features[2:]).tolist() == [True, False, True]
    values, rows = metrics.top_rows(features, 2)
    assert values[1].tolist() == [3, 2]
    assert rows[1].tolist() == [1, 2]
    assert metrics.top_rows(features, 9)[0].shape == (3, 4)
