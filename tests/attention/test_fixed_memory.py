"""What a matrix recalls: rules against loops, crosstalk, the race of the matches, and the fading of the delta rule."""

import pytest
import torch
from jaxtyping import TypeCheckError

from course_lib.attention.fixed_memory import (
    crosstalk_size,
    expected_recall,
    recalled,
    share_left,
    squared_error,
    unit_vectors,
    write_pairs,
)


def pairs(n, d, seed=0, **options):
    generator = torch.Generator().manual_seed(seed)
    return unit_vectors(n, d, generator=generator, **options), unit_vectors(n, d, generator=generator)


@pytest.mark.parametrize(
    ("rule", "options", "write"),
    [
        ("sums", {}, lambda u, k, v: u + torch.outer(k, v)),
        ("decay", {"decay": 0.8}, lambda u, k, v: 0.8 * u + torch.outer(k, v)),
        ("delta", {"step_size": 0.6}, lambda u, k, v: u + 0.6 * torch.outer(k, v - k @ u)),
    ],
)
def test_each_rule_is_its_loop(rule, options, write):
    keys, values = pairs(70, 8)
    memory = torch.zeros(8, 8, dtype=torch.float64)
    for key, value in zip(keys, values, strict=True):
        memory = write(memory, key, value)
    assert torch.allclose(write_pairs(keys, values, rule=rule, **options), memory, atol=1e-12)


@pytest.mark.parametrize("overlap", [0.0, 0.3])
def test_keys_have_length_one_and_the_overlap_that_is_asked_for(overlap):
    keys, _ = pairs(400, 32, overlap=overlap)
    assert torch.allclose(keys.norm(dim=1), torch.ones(400, dtype=torch.float64))
    gram = keys @ keys.T
    assert float(gram[~torch.eye(400, dtype=torch.bool)].mean()) == pytest.approx(overlap, abs=0.01)


def test_the_nearest_value_decides_and_its_length_does_not():
    values = torch.eye(3, dtype=torch.float64)
    answers = torch.tensor([[0.9, 0.8, 0], [0.9, 0.8, 0], [0, 0, 0.1]], dtype=torch.float64)
    assert recalled(answers, values).tolist() == [True, False, True]
    keys, values = pairs(128, 64)
    answers = keys @ write_pairs(keys, values)
    assert torch.equal(recalled(answers, values), recalled(answers / 3, values))
    assert squared_error(values, values) == 0
    assert squared_error(0 * values, values) == pytest.approx(1)


def test_crosstalk_has_the_size_that_is_expected():
    errors = [squared_error(k @ write_pairs(k, v), v) for k, v in (pairs(96, 32, seed) for seed in range(10))]
    assert sum(errors) / 10 == pytest.approx(crosstalk_size(96, 32), rel=0.05)


@pytest.mark.parametrize(("n", "d"), [(16, 16), (64, 32), (128, 32), (256, 64)])
def test_recall_is_a_race_of_matches(n, d):
    shares = []
    for seed in range(10):
        keys, values = pairs(n, d, seed)
        shares.append(float(recalled(keys @ write_pairs(keys, values), values).double().mean()))
    assert sum(shares) / 10 == pytest.approx(expected_recall(n, d), abs=0.06)
    assert expected_recall(1, d) == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("step_size", [1.0, 0.4])
def test_the_delta_rule_fades_as_a_decay_would(step_size):
    d, n = 16, 48
    found = torch.zeros(n, dtype=torch.float64)
    for seed in range(200):
        keys, _ = pairs(n, d, seed)
        # With one-hot values the memory answers each pair's own share in an entry of its own.
        memory = write_pairs(keys, torch.eye(n, dtype=torch.float64), rule="delta", step_size=step_size)
        found += (keys @ memory).diagonal() / 200
    ages = torch.arange(n - 1, -1, -1, dtype=torch.float64)
    assert float((found - share_left(ages, d, step_size=step_size)).abs().max()) < 0.05


def test_wrong_calls_are_refused():
    with pytest.raises(ValueError, match=r"overlap in .* got 4, 8 and 1.0"):
        unit_vectors(4, 8, overlap=1.0)
    # Where types are checked as the tests run, the type is refused before the function says so.
    with pytest.raises((ValueError, TypeCheckError), match=r"'sum'"):
        write_pairs(torch.ones(2, 2), torch.ones(2, 2), rule="sum")
