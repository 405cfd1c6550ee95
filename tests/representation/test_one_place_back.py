"""Layers whose keys, queries or values are mixed with another place's."""

import pytest
import torch

from course_lib.representation.attention_only import SelfAttention
from course_lib.representation.one_place_back import (
    ARMS,
    MixedAttention,
    loss_on,
    moved,
    network,
    sequences,
    train,
    weights,
)


def rows(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def mixed(share, **about):
    layer = MixedAttention(8, 2, generator=torch.Generator().manual_seed(3), **about).requires_grad_(False)
    layer.share.fill_(share)
    return layer


@pytest.mark.parametrize(
    "about", [{"mixes": "k"}, {"mixes": "q"}, {"mixes": "v"}, {"mixes": "v", "back": -1}]
)
def test_a_share_of_zero_is_the_plain_layer(about):
    x = rows(3, 6, 8)
    plain = SelfAttention(8, 2, generator=torch.Generator().manual_seed(3))
    torch.testing.assert_close(mixed(0.0, **about)(x), plain(x))


def test_mixed_keys_are_a_weighted_mean_of_two_places():
    x, layer = rows(1, 5, 8), mixed(0.25, mixes="k")
    q, k = (w(x)[0].unflatten(-1, (2, 4)).transpose(0, 1) for w in (layer.q_proj, layer.k_proj))
    before = torch.stack([k[:, max(0, j - 1)] for j in range(5)], dim=1)
    scores = q @ (0.75 * k + 0.25 * before).mT / 2
    scores = scores.masked_fill(torch.ones(5, 5, dtype=torch.bool).triu(1), -torch.inf)
    torch.testing.assert_close(layer(x)[1][0], scores.softmax(-1))


def test_rows_move_and_stay_at_the_ends():
    x = torch.arange(5.0)[None, None, :, None]
    assert moved(x, 1).flatten().tolist() == [0, 0, 1, 2, 3]
    assert moved(x, 2).flatten().tolist() == [0, 1, 0, 1, 2]
    assert moved(x, -1).flatten().tolist() == [1, 2, 3, 4, 4]


@pytest.mark.parametrize("arm", ARMS)
def test_no_arm_sees_what_it_has_to_predict(arm):
    model = network(arm, 0).requires_grad_(False)
    if hasattr(model.layers[0], "share"):
        model.layers[0].share.fill_(0.7)
    tokens = sequences(1, 5)[0][:, :-1]
    other = tokens.clone()
    other[:, 15:] = (other[:, 15:] + 1) % 32
    torch.testing.assert_close(model(tokens)[:, :15], model(other)[:, :15])
    assert (model(tokens)[:, 15:] - model(other)[:, 15:]).abs().max() > 0.1


def test_arms_of_one_size_start_alike_and_count_their_weights():
    plain = network("one layer", 4)
    for arm in ("keys, one place back", "values, one place ahead", "an MLP after the layer"):
        torch.testing.assert_close(network(arm, 4).layers[0].q_proj.weight, plain.layers[0].q_proj.weight)
    assert weights("queries, one place back") == weights("one layer") + 4
    assert weights("keys all one place back, no new number") == weights("one layer")
    assert weights("rotary positions") == weights("one layer") - 24 * 64


def test_training_lowers_the_loss_and_is_seen_on_the_way():
    steps = []
    model = train(
        "keys, one place back", seed=0, rate=0.01, steps=60, every=20, see=lambda step, _: steps.append(step)
    )
    assert steps == [0, 20, 40, 60]
    test = sequences(64, 1)
    assert loss_on(model, *test) < loss_on(network("keys, one place back", 0), *test) - 0.5


def test_wrong_arguments_are_named():
    with pytest.raises(ValueError, match="arm must be one of"):
        network("three layers", 0)
    with pytest.raises(ValueError, match="only values may come from a later place"):
        MixedAttention(8, 2, mixes="k", back=-1)
