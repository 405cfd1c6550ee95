import math

import pytest
import torch

from course_lib.sae import ReluSparseAutoencoder, losses

X = torch.tensor([[1.0, 2.0, -1.0]], dtype=torch.float64)
ENCODER = [[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0], [0, 1, 1], [1, 0, -1]]
ENCODER_BIAS = [0, 0, 0, -1, 0, 0]
DECODER = [[1, 0, 0, 0, 0, 3], [0, 2, 0, 0, 0, 4], [0, 0, 1, 1, 0, 0]]


def double(values):
    return torch.tensor(values, dtype=torch.float64)


@pytest.fixture
def by_hand() -> ReluSparseAutoencoder:
    model = ReluSparseAutoencoder(3, 6, l1=0.1).double()
    with torch.no_grad():
        model.encoder_weight.copy_(double(ENCODER))
        model.encoder_bias.copy_(double(ENCODER_BIAS))
        model.decoder_weight.copy_(double(DECODER))
    return model


def test_reconstruction_is_a_sum_over_dimensions_and_a_mean_over_rows():
    x_hat, x = double([[1, 2], [3, 4]]), double([[0, 2], [5, 1]])
    assert losses.reconstruction(x_hat, x).item() == pytest.approx((1 + 4 + 9) / 2)
    x_hat.requires_grad_()
    (2 * losses.reconstruction(x_hat, x)).backward()  # two rows: undo the mean
    assert x_hat.grad.tolist() == [[2, 0], [-4, 6]]


@pytest.mark.parametrize(
    ("rho_hat", "value"),
    [
        (0.1, 0.016706501178764713),
        (0.2, 0.09394302602433173),
        (0.5, 0.4946319372140727),
        (0.8, 1.3416079510322332),
    ],
)
def test_kl_values(rho_hat, value):
    assert losses.bernoulli_kl(0.05, double([rho_hat])).item() == pytest.approx(value, rel=1e-12)


def test_kl_is_zero_at_the_target_and_its_derivative_is_known():
    rho_hat = double([0.05, 0.2]).requires_grad_()
    kl = losses.bernoulli_kl(0.05, rho_hat)
    assert kl[0].item() == pytest.approx(0, abs=1e-15)
    kl.sum().backward()
    assert rho_hat.grad.tolist() == pytest.approx([0, 15 / 16], abs=1e-12)


@pytest.mark.parametrize("bad", [0.0, 1.0, 1.2, -0.1, math.nan])
def test_kl_outside_the_unit_interval_is_an_error(bad):
    with pytest.raises(ValueError, match=r"unit 1 \(1 of 2 units outside \(0, 1\)\).*sigmoid"):
        losses.bernoulli_kl(0.05, double([0.5, bad]))
    with pytest.raises(ValueError, match="rho is"):
        losses.bernoulli_kl(bad, double([0.5]))


def test_kl_sparsity_looks_at_the_batch_mean():
    units = double([[0.1, 0.3], [0.3, 0.1]])
    assert losses.kl_sparsity(units, rho=0.05).item() == pytest.approx(2 * 0.09394302602433173)


def test_cross_entropy_and_unlabelled_rows():
    logits = double([[0.7, 0.2, 0.1]]).log()
    assert losses.cross_entropy(logits, torch.tensor([0])).item() == pytest.approx(0.3566749, abs=1e-7)
    two = torch.cat([logits + 3, double([[9, 0, 0]])])  # a shift of the logits changes nothing
    assert losses.cross_entropy(two, torch.tensor([0, -1])).item() == pytest.approx(0.3566749, abs=1e-7)
    assert losses.cross_entropy(two, torch.tensor([-1, -1])).item() == 0
    with pytest.raises(ValueError, match="0 to 2 for 3 classes"):
        losses.cross_entropy(logits, torch.tensor([3]))


def test_combined_is_the_weighted_sum_and_refuses_negative_weights():
    one, two, three = double(1.0), double(2.0), double(3.0)
    assert losses.combined(one, two, three, beta=0.5, gamma=2.0).item() == 8
    for weights in (
        {"beta": -1.0, "gamma": 0.0},
        {"beta": 0.0, "gamma": -1.0},
        {"beta": math.nan, "gamma": 0.0},
    ):
        with pytest.raises(ValueError, match="at least 0"):
            losses.combined(one, two, three, **weights)


def test_squared_error():
    assert losses.squared_error(double([[1, 2], [0, 0]]), double([[0, 0], [0, 0]])).item() == 2.5


def test_one_step_by_hand(by_hand):
    features = by_hand.encode(X)
    assert features.tolist() == [[1, 2, 0, 2, 1, 2]]
    assert by_hand.decoder_weight.norm(dim=0).tolist() == [1, 2, 1, 1, 0, 5]
    assert by_hand(X).tolist() == [[7, 12, 2]]
    parts = by_hand.loss(X)
    assert {name: pytest.approx(value.item()) for name, value in parts.items()} == {
        "reconstruction": 145,
        "l1": 17,
        "total": 146.7,
    }
    f = features.detach().requires_grad_()
    total = losses.reconstruction(by_hand.decode(f), X) + 0.1 * losses.decoder_weighted_l1(
        f, by_hand.decoder_weight
    )
    total.backward()
    assert f.grad[0].tolist() == pytest.approx([12.1, 40.2, 6.1, 6.1, 0, 116.5])


def test_the_penalty_cannot_be_avoided_by_rescaling(by_hand):
    features = by_hand.encode(X).detach()
    weight = by_hand.decoder_weight.detach()
    before = losses.decoder_weighted_l1(features, weight)
    after = losses.decoder_weighted_l1(features / 10, 10 * weight)
    assert after.item() == pytest.approx(before.item())
    assert (features / 10).sum() < 0.2 * features.sum()


def test_the_penalty_shrinks_active_features():
    features = double([[2, 0.5, 0]]).requires_grad_()
    losses.decoder_weighted_l1(features, torch.eye(3, dtype=torch.float64)).backward()
    assert features.grad[0, :2].tolist() == [1, 1]
    assert (features - 0.1 * features.grad)[0, 0] < 2


def test_gradients_in_float64():
    generator = torch.Generator().manual_seed(0)
    a = torch.rand(4, 3, generator=generator, dtype=torch.float64).mul(0.8).add(0.1).requires_grad_()
    b = torch.rand(4, 3, generator=generator, dtype=torch.float64).requires_grad_()
    labels = torch.tensor([0, 2, -1, 1])
    assert torch.autograd.gradcheck(losses.reconstruction, (a, b))
    assert torch.autograd.gradcheck(lambda h: losses.kl_sparsity(h, rho=0.05), (a,))
    assert torch.autograd.gradcheck(lambda h: losses.cross_entropy(h, labels), (a,))
    assert torch.autograd.gradcheck(lambda f, w: losses.decoder_weighted_l1(f, w), (a, b))


def test_the_two_sparsity_constraints_are_different():
    """Units that never fire, lie just above, just below, and far above the target."""
    units = double([[0, 0.55, 0.45, 0.9], [0, 0.55, 0.45, 0.9]])
    found = losses.check_sparsity(units, rho=0.5, eps=0.1)
    assert found.rho_hat.tolist() == pytest.approx([0, 0.55, 0.45, 0.9])
    assert found.outside.tolist() == [0, 3]
    assert found.above.tolist() == [1, 3]
    assert losses.check_sparsity(units, rho=0.5, eps=0.5).outside.tolist() == []
    for bad in ({"rho": 1.0, "eps": 0.1}, {"rho": 0.5, "eps": -0.1}):
        with pytest.raises(ValueError, match=r"rho is 1|eps is -0\.1"):
            losses.check_sparsity(units, **bad)
