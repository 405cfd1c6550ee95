"""The task of selective copying, and that its networks are what the lesson says they are."""

import pytest
import torch
from torch import nn

from course_lib.architectures.selective_copying import (
    MEMORIES,
    CopyNetworks,
    copy_errors,
    flagged_texts,
    last_flagged,
    parameter_count,
    sensitivities,
    train_to_copy,
    units_for,
)


def texts(count=3, length=20, share=0.2, seed=0):
    return flagged_texts(count, length, share=share, generator=torch.Generator().manual_seed(seed))


def test_the_last_flagged_number_is_wanted_and_0_before_the_first_flag():
    read, wanted = texts()
    for text, target in zip(read, wanted, strict=True):
        held = 0.0
        for (number, flag), want in zip(text.tolist(), target.tolist(), strict=True):
            held = number if flag else held
            assert want == held
    assert last_flagged(torch.tensor([5.0, 6.0]), torch.tensor([0.0, 0.0])).tolist() == [0, 0]
    assert texts(400, 50)[0][..., 1].mean() == pytest.approx(0.2, abs=0.02)


@pytest.mark.parametrize("memory", MEMORIES)
def test_networks_side_by_side_share_nothing_and_see_no_future(memory):
    networks = CopyNetworks(memory, units=6, seeds=(3, 4))
    alone = CopyNetworks(memory, units=6, seeds=(4,))
    read = torch.stack([texts(seed=1)[0], texts(seed=2)[0]])
    with torch.no_grad():
        together = networks(read)
        torch.testing.assert_close(together[1], alone(read[1:])[0])
        later = read.clone()
        later[:, :, 12:] += 1
        torch.testing.assert_close(networks(later)[:, :, :12], together[:, :, :12])
        assert (networks(later)[:, :, 12:] - together[:, :, 12:]).abs().max() > 1e-4
    moved = sensitivities(networks, read[0, 0])
    assert moved.shape == (2, 20, 20)
    assert moved.triu(1).max() == 0


def test_the_states_of_a_memory_are_those_of_its_loop():
    networks = CopyNetworks("selective", units=5, seeds=(0,))
    read = texts()[0][None]
    with torch.no_grad():
        x, cell = networks._read(read), networks.cell
        states = cell(x, 20).view(20, 3, 5)
        decay = networks.decays(read)[0].transpose(0, 1)
        entry = (torch.sigmoid(cell.gate(x)) * cell.value(x)).view(20, 3, 5)
        h = torch.zeros(3, 5)
        for t in range(20):
            h = decay[t] * h + entry[t]
            torch.testing.assert_close(states[t], h)


def test_the_gru_is_pytorchs():
    networks = CopyNetworks("GRU", units=5, seeds=(0,))
    theirs, ours = nn.GRU(5, 5), networks.cell
    with torch.no_grad():
        theirs.weight_ih_l0.copy_(ours.of_token.weight[0].T)
        theirs.weight_hh_l0.copy_(ours.of_state.weight[0].T)
        theirs.bias_ih_l0.copy_(ours.of_token.bias[0, 0])
        theirs.bias_hh_l0.copy_(ours.of_state.bias[0, 0])
        x = torch.randn(1, 20 * 3, 5, generator=torch.Generator().manual_seed(1))
        torch.testing.assert_close(ours(x, 20).view(20, 3, 5), theirs(x.view(20, 3, 5))[0])


def test_only_the_selective_decay_sees_the_token():
    read = texts()[0][None]
    with torch.no_grad():
        for memory in ("selective", "fixed", "two fixed layers", "fixed, divided"):
            spread = CopyNetworks(memory, units=5, seeds=(0,)).decays(read).std(2).max()
            assert (spread > 1e-3) == (memory == "selective")
    with pytest.raises(ValueError, match="depend on its state"):
        CopyNetworks("GRU", units=5, seeds=(0,)).decays(read)
    with pytest.raises(ValueError, match="memory must be one of"):
        CopyNetworks("LSTM", units=5, seeds=(0,))


def test_sizes_are_matched():
    sizes = {m: parameter_count(m, units_for(m, parameters=1700)) for m in MEMORIES}
    assert all(abs(size - 1700) < 100 for size in sizes.values())


def test_training_lowers_the_error_and_each_network_has_its_own_texts():
    networks = CopyNetworks("selective", units=8, seeds=(0, 1))
    before = copy_errors(networks, seeds=(0, 1), length=16, share=0.2)
    losses = train_to_copy(networks, seeds=(0, 1), step_size=0.03, steps=60, batch=8, length=16, share=0.2)
    assert losses.shape == (60, 2)
    after = copy_errors(networks, seeds=(0, 1), length=16, share=0.2)
    assert (after < 0.7 * before).all()
    alone = CopyNetworks("selective", units=8, seeds=(1,))
    own = train_to_copy(alone, seeds=(1,), step_size=0.03, steps=3, batch=8, length=16, share=0.2)
    fresh = CopyNetworks("selective", units=8, seeds=(0, 1))
    both = train_to_copy(fresh, seeds=(0, 1), step_size=0.03, steps=3, batch=8, length=16, share=0.2)
    torch.testing.assert_close(both[:, 1], own[:, 0], rtol=1e-4, atol=1e-5)
