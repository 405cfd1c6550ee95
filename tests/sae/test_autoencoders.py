import pytest
import torch

from course_lib.sae import SparseAutoencoder, StackedAutoencoder


def rows(n=20, d=16, seed=0):
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed)) * 3 + 7


def models():
    generator = torch.Generator().manual_seed(1)
    return [
        StackedAutoencoder(16, beta=0.1, gamma=0.1, n_outputs=3, generator=generator),
        StackedAutoencoder(16, (4,), "relu", generator=generator),
        SparseAutoencoder(16, l1=0.1, generator=generator),
        SparseAutoencoder(16, 5, generator=generator),
    ]


@pytest.mark.parametrize("index", range(4))
def test_one_interface(index):
    model, x = models()[index], rows()
    model.fit_normalisation(x)
    code = model.encode(x)
    assert code.shape == (20, model.code_width)
    assert (code >= 0).all()
    torch.testing.assert_close(model(x), model.decode(code))
    parts = model.loss(x)
    assert "reconstruction" in parts
    assert all(value.isfinite() for value in parts.values())
    parts["total"].backward()
    assert all(p.grad is not None for name, p in model.named_parameters() if not name.startswith("head"))
    assert type(model)(**model.config()).config() == model.config()


def test_default_widths():
    assert StackedAutoencoder(1024).widths == (512, 128)
    assert StackedAutoencoder(1024).config()["widths"] == [512, 128]
    assert SparseAutoencoder(8).n_features == 32
    sizes = sum(p.numel() for p in StackedAutoencoder(1024, (128,)).parameters())
    assert sizes == 263_296


def test_normalisation_makes_the_reconstruction_loss_the_unexplained_fraction():
    model, x = StackedAutoencoder(16), rows()
    model.fit_normalisation(x)
    z = model.normalise(x)
    torch.testing.assert_close(z.mean(dim=0), torch.zeros(16), atol=1e-5, rtol=0)
    assert z.square().sum(dim=1).mean().item() == pytest.approx(1, rel=1e-5)
    residual = (model(x) - x).square().sum() / (x - x.mean(dim=0)).square().sum()
    assert model.loss(x)["reconstruction"].item() == pytest.approx(residual.item(), rel=1e-4)


def test_the_total_is_the_weighted_sum_of_the_parts():
    model, x = models()[0], rows()
    labels = torch.arange(20) % 3
    parts = model.loss(x, labels=labels, sparsity_scale=0.5)
    expected = parts["reconstruction"] + 0.5 * 0.1 * parts["kl"] + 0.1 * parts["supervised"]
    torch.testing.assert_close(parts["total"], expected)
    assert "supervised" not in model.loss(x)
    logits = model.predict(x)
    torch.testing.assert_close(parts["supervised"], torch.nn.functional.cross_entropy(logits, labels))


def test_squared_error_head():
    model = StackedAutoencoder(16, n_outputs=2, supervised="squared_error", gamma=1.0)
    x, target = rows(), rows(20, 2, seed=3)
    expected = (model.predict(x) - target).square().sum(dim=1).mean()
    torch.testing.assert_close(model.loss(x, labels=target)["supervised"], expected)


def test_a_sparse_autoencoder_starts_near_the_identity_on_average():
    model = SparseAutoencoder(64, 4096, generator=torch.Generator().manual_seed(0))
    x = torch.randn(50, 64, generator=torch.Generator().manual_seed(1))
    assert ((model(x) * x).sum() / x.square().sum()).item() == pytest.approx(1, abs=0.1)


def test_strengths_do_not_depend_on_the_split_between_feature_and_decoder():
    model, x = models()[2], rows()
    features = model.encode(x)
    before = model.strengths(features)
    with torch.no_grad():
        model.decoder_weight *= 10
    torch.testing.assert_close(model.strengths(features / 10), before)


def test_same_generator_same_weights_and_the_global_one_is_left_alone():
    state = torch.get_rng_state()
    a, b = models(), models()
    assert torch.equal(torch.get_rng_state(), state)
    for left, right in zip(a, b, strict=True):
        for p, q in zip(left.parameters(), right.parameters(), strict=True):
            assert torch.equal(p, q)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: StackedAutoencoder(0), "d_model is 0"),
        (lambda: StackedAutoencoder(8, ()), "widths is empty"),
        (lambda: StackedAutoencoder(8, (4, 0)), "widths is 0"),
        (lambda: StackedAutoencoder(8, beta=-1.0), "beta is -1"),
        (lambda: StackedAutoencoder(8, gamma=-1.0), "gamma is -1"),
        (lambda: StackedAutoencoder(8, gamma=1.0), "n_outputs 0"),
        (lambda: StackedAutoencoder(8, rho=1.5), "rho is 1.5"),
        (lambda: StackedAutoencoder(8, (4,), "relu", beta=1.0), "sigmoid"),
        (lambda: SparseAutoencoder(8, 0), "n_features is 0"),
        (lambda: SparseAutoencoder(8, l1=-0.1), "l1 is -0.1"),
    ],
)
def test_errors_name_the_argument(build, message):
    with pytest.raises(ValueError, match=message):
        build()


def test_no_head_no_prediction():
    with pytest.raises(RuntimeError, match="n_outputs"):
        StackedAutoencoder(16).predict(rows())


def test_equal_rows_have_no_variance():
    with pytest.raises(ValueError, match="no variance"):
        SparseAutoencoder(4).fit_normalisation(torch.full((5, 4), 1e4))
