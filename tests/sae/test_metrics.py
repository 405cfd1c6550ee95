import math

import pytest
import torch

from course_lib.sae import StackedAutoencoder, metrics


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
    activity = metrics.UnitActivity()
    activity.update(features)
    assert activity.dead().tolist() == [True, False, False]
    assert activity.dead(window=2).tolist() == [True, False, True]


def test_fvu_is_the_rest():
    x, x_hat = normal(30, 4), normal(30, 4, seed=1)
    assert metrics.fvu(x, x_hat) == pytest.approx(1 - metrics.explained_variance(x, x_hat))


def test_dense_units_by_hand():
    features = torch.eye(20)[:, :3]
    features[:3, 0] = 1
    activity = metrics.UnitActivity()
    activity.update(features)
    assert activity.dense().tolist() == [True, False, False]
    assert activity.dense(share=0.04).tolist() == [True, True, True]
    assert activity.dense(share=0.05).tolist() == [True, False, False]


def test_activity_in_chunks_is_that_of_the_whole():
    features = normal(101, 8).sub(1.5).relu()
    features[:, 0] = 0
    features[60:, 1] = 0
    features[59, 1] = 1
    features[:, 2] = 1
    activity = metrics.UnitActivity()
    for start, stop in [(0, 1), (1, 40), (40, 40), (40, 101)]:
        activity.update(features[start:stop])
    assert activity.n_rows == 101
    assert activity.l0() == pytest.approx(metrics.l0(features))
    torch.testing.assert_close(activity.firing_rates(), metrics.firing_rates(features))
    assert activity.dense().tolist() == (metrics.firing_rates(features) > metrics.DENSE_SHARE).tolist()
    for window in (1, 41, 42, 101):
        assert activity.dead(window=window).tolist() == (~(features[-window:] > 0).any(dim=0)).tolist()
    assert activity.dead().tolist() == (~(features > 0).any(dim=0)).tolist()
    assert activity.dead(window=41)[1]
    assert not activity.dead(window=42)[1]
    with pytest.raises(ValueError, match="window is 102; expected 1 to the 101 rows"):
        activity.dead(window=102)


def test_activity_of_nothing_is_an_error_and_sigmoids_need_a_threshold():
    with pytest.raises(ValueError, match="no rows"):
        metrics.UnitActivity().firing_rates()
    units = torch.tensor([[0.2, 0.01], [0.9, 0.02]])
    for threshold, expected in ((0, 2.0), (0.5, 0.5)):
        activity = metrics.UnitActivity(active_above=threshold)
        activity.update(units)
        assert activity.l0() == expected


def test_principal_variance_in_chunks_is_that_of_the_whole():
    x = normal(101, 5) @ normal(5, 5, seed=1) + 1e4
    gathered = metrics.PrincipalVariance()
    for start, stop in [(0, 1), (1, 40), (40, 40), (40, 101)]:
        gathered.update(x[start:stop])
    torch.testing.assert_close(gathered.curve(), metrics.pca_curve(x), atol=1e-9, rtol=0)
    assert gathered.bound(2) == pytest.approx(metrics.pca_bound(x, 2), abs=1e-9)
    assert gathered.bound(9) == pytest.approx(1)
    with pytest.raises(ValueError, match="k is 0"):
        gathered.bound(0)
    with pytest.raises(ValueError, match="no variance"):
        metrics.PrincipalVariance().curve()


class Store:
    """Rows that are read by slices, as a store on disk gives them."""

    def __init__(self, rows):
        self.rows, self.longest = rows, 0

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, rows):
        self.longest = max(self.longest, rows.stop - rows.start)
        return self.rows[rows]


def test_evaluate_refuses_rows_that_are_not_finite():
    x = normal(150, 12, dtype=torch.float32)
    autoencoder = StackedAutoencoder(12, [4], "relu", generator=torch.Generator().manual_seed(0))
    autoencoder.fit_normalisation(x)
    x[77, 3] = torch.nan
    with pytest.raises(ValueError, match="NaN or infinite"):
        metrics.evaluate(autoencoder, x, batch_size=40)


def test_states_of_another_width_are_refused():
    autoencoder = StackedAutoencoder(12, [4], "relu", generator=torch.Generator().manual_seed(0))
    with pytest.raises(ValueError, match="states have width 11; this autoencoder reads 12"):
        autoencoder.encode(torch.randn(3, 11))


def test_evaluate_goes_over_all_rows_of_a_store_once():
    x = normal(150, 12, dtype=torch.float32) * torch.arange(1, 13)
    autoencoder = StackedAutoencoder(12, [4], "relu", generator=torch.Generator().manual_seed(0))
    autoencoder.fit_normalisation(x)
    store = Store(x)
    got = metrics.evaluate(autoencoder, store, batch_size=40, window=30)
    assert store.longest == 40
    with torch.no_grad():
        code = autoencoder.encode(x)
        x_hat = autoencoder(x)
    assert got.explained_variance == pytest.approx(metrics.explained_variance(x, x_hat), abs=1e-6)
    assert got.mse == pytest.approx((x - x_hat).square().mean().item(), rel=1e-5)
    cosines = (x * x_hat).sum(dim=1) / (x.norm(dim=1) * x_hat.norm(dim=1))
    assert got.cosine == pytest.approx(cosines.mean().item(), rel=1e-5)
    assert got.fvu == pytest.approx(1 - got.explained_variance)
    assert got.pca_bound == pytest.approx(metrics.pca_bound(x, 4), abs=1e-6)
    assert got.explained_variance < got.pca_bound
    assert (got.n_rows, got.code_width, got.window) == (150, 4, 30)
    assert got.l0 == pytest.approx(metrics.l0(code))
    assert got.n_dead == int((~(code[-30:] > 0).any(dim=0)).sum())
    assert got.n_dense == int((metrics.firing_rates(code) > metrics.DENSE_SHARE).sum())
    wide = StackedAutoencoder(12, [12], "relu", generator=torch.Generator().manual_seed(0))
    assert metrics.evaluate(wide, x).pca_bound is None
    assert metrics.evaluate(wide, x).window == 150


@pytest.mark.parametrize("figure", [metrics.l0, metrics.firing_rates])
def test_no_rows_are_refused_and_not_called_silent(figure):
    with pytest.raises(ValueError, match="has no rows"):
        figure(torch.zeros(0, 4))
