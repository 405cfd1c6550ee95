"""Optimal power flow in the lifted voltages: power by hand, cones on lines, trees and loops."""

from dataclasses import replace

import numpy as np
import pytest

from course_lib.theory import power_flow as pf


def two_buses(**changes):
    """A generator feeding a load of 0.5 over a line of resistance 0.1."""
    made = pf.Network(
        lines=np.array([[0, 1]]),
        admittance=np.array([10.0 + 0j]),
        limit=np.array([np.inf]),
        demand=np.array([0j, 0.5 + 0j]),
        cost=np.array([2.0, 0]),
        p_most=np.array([2.0, 0]),
        q_most=np.array([1.0, 0]),
    )
    return replace(made, **changes)


def some_voltages(n, seed=0):
    draw = np.random.default_rng(seed)
    return (1 + 0.1 * draw.standard_normal(n)) * np.exp(0.3j * draw.standard_normal(n))


def test_power_by_hand():
    """1 against 0.9 volt over 0.1 ohm: a current of 1, power 1 in and 0.9 out; reactive power follows the conjugate."""
    V = np.array([1, 0.9 + 0j])
    np.testing.assert_allclose(pf.powers_at(two_buses(), V), [1, -0.9])
    inductive = two_buses(admittance=np.array([-10j]))
    np.testing.assert_allclose(pf.powers_at(inductive, V), [1j, -0.9j])


@pytest.mark.parametrize("radial", [True, False])
def test_rows_are_the_powers(radial):
    network = pf.seven_buses(radial=radial)
    pairs, V = pf._sorted(network), some_voltages(7)
    cost, constant, rows, right = pf._programme(network, pairs)
    z, sent = pf.lift(V, pairs), pf.powers_at(network, V)
    np.testing.assert_allclose((rows @ z)[:7], sent.real, atol=1e-12)
    np.testing.assert_allclose((rows @ z)[14:21], sent.imag, atol=1e-12)
    assert cost @ z + constant == pytest.approx(network.cost @ (sent + network.demand).real)
    for (i, j), y, first, last in zip(
        network.lines, network.admittance, *np.split((rows @ z)[42:], 2), strict=True
    ):
        current = y * (V[i] - V[j])
        assert (first, last) == pytest.approx(
            ((V[i] * np.conj(current)).real, -(V[j] * np.conj(current)).real)
        )
    assert len(right) == rows.shape[0] == 42 + 2 * len(network.lines)


def test_two_buses_by_hand():
    """At the highest voltage v the load takes u with u (v - u) = 0.05: the generator sends v (v - u) / 0.1."""
    v = 1.05
    u = (v + np.sqrt(v * v - 0.2)) / 2
    wanted = 2 * v * (v - u) * 10
    network = two_buses()
    for found in (pf.flow_socp(network), pf.flow_sdp(network), pf.flow_socp(network, dense=True)):
        assert found.value == pytest.approx(wanted, abs=1e-4)
        assert found.slack(network.lines)[0] == pytest.approx(0, abs=1e-4)
    assert pf.flow_local(network)[0] == pytest.approx(wanted, abs=1e-5)


def test_radial_is_exact_and_its_voltages_are_recovered():
    network = pf.seven_buses(radial=True)
    found, dense = pf.flow_socp(network), pf.flow_socp(network, dense=True)
    assert (found.cones, dense.cones) == (6, 21)
    assert found.value == pytest.approx(dense.value, abs=1e-5)
    assert found.slack(network.lines).max() < 1e-5
    V = pf.tree_voltages(network, found)
    i, j = network.lines.T
    np.testing.assert_allclose(V[i] * V[j].conj(), pf._on(found, network.lines), atol=1e-4)
    sent = pf.powers_at(network, V) + network.demand
    assert (sent.real <= network.p_most + 1e-4).all()
    assert (sent.real >= -1e-4).all()
    cost, local = pf.flow_local(network)
    assert cost == pytest.approx(found.value, abs=1e-5)
    np.testing.assert_allclose(abs(local), abs(V), atol=1e-3)


def test_meshed_has_tight_cones_whose_angles_do_not_add_up():
    network = pf.seven_buses(radial=False)
    found = pf.flow_socp(network)
    assert found.cones == 8
    assert found.slack(network.lines).max() < 1e-5
    loops = ([0, 1, 3, 2], [0, 1, 4, 6, 5, 2])
    assert min(abs(pf.loop_angle(found, loop)) for loop in loops) > 5
    cost, V = pf.flow_local(network)
    assert cost / found.value > 1.4
    assert pf.flow_sdp(network).value == pytest.approx(cost, abs=1e-4)
    # The control: a W that is V V^H has loop angles 0, and turning a loop round turns its sign.
    pairs = pf.all_pairs(7)
    z = pf.lift(V, pairs)
    true = pf.FlowRelaxation(0.0, z[:7], pairs, z[7:28] + 1j * z[28:], 0)
    assert [pf.loop_angle(true, loop) for loop in loops] == pytest.approx([0, 0], abs=1e-9)
    assert pf.loop_angle(found, loops[0][::-1]) == pytest.approx(-pf.loop_angle(found, loops[0]))


def test_a_limit_is_kept():
    network = pf.seven_buses(radial=True)
    tight = replace(network, limit=np.where(np.arange(6) == 0, 0.4, network.limit))
    assert pf.flow_socp(tight).value > pf.flow_socp(network).value + 0.1
    _, V = pf.flow_local(tight)
    i, j = tight.lines.T
    assert (V[i] * np.conj(tight.admittance * (V[i] - V[j]))).real[0] == pytest.approx(0.4, abs=1e-5)


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda: two_buses(cost=np.ones(3)), "cost must have 2 entries, got 3"),
        (lambda: two_buses(limit=np.ones(2)), "limit must have 1 entries, got 2"),
        (lambda: two_buses(lines=np.array([[1, 0]])), "different pairs i < j of buses 0 to 1"),
        (lambda: pf.seven_buses(radial=False).without(0, 1).without(*range(5)), None),
    ],
)
def test_bad_networks_are_named(made, said):
    if said is None:
        assert len(made().lines) == 1
    else:
        with pytest.raises(ValueError, match=said):
            made()


def test_voltages_need_a_connected_network():
    network = pf.seven_buses(radial=True).without(0)
    pairs = pf._sorted(network)
    z = pf.lift(some_voltages(7), pairs)
    found = pf.FlowRelaxation(0.0, z[:7], pairs, z[7:12] + 1j * z[12:], 5)
    with pytest.raises(ValueError, match=r"they miss \[1, 4\]"):
        pf.tree_voltages(network, found)


def test_too_much_load_is_said():
    heavy = two_buses(demand=np.array([0j, 5 + 0j]))
    with pytest.raises(ValueError, match="infeasible"):
        pf.flow_socp(heavy)
