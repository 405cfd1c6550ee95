"""Pairs to look up and texts to copy: what is drawn, the circuit by hand in every form, and training."""

import pytest
import torch
from torch.nn import functional

from course_lib.attention.recall import (
    FORMS,
    HEAD_DIM,
    NO_ANSWER,
    RULES,
    TASKS,
    MemoryDecoders,
    associative_recall,
    copying,
    recall_accuracy,
    recall_decoder,
    shares_right,
    train_side_by_side,
    train_to_recall,
)


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("rewritten", [False, True])
def test_answers_are_the_latest_values(rewritten):
    draw = {"n_keys": 9, "n_values": 5, "rewritten": rewritten, "generator": rng()}
    tokens, answers = associative_recall(40, 8, **draw)
    assert tokens.shape == answers.shape == (40, 24)
    repeated = 0
    for text, wanted in zip(tokens.tolist(), answers.tolist(), strict=True):
        told = list(zip(text[0:16:2], text[1:16:2], strict=True))
        assert wanted[:16] == [NO_ANSWER] * 16
        assert wanted[16:] == [dict(told)[key] for key in text[16:]]  # later pairs replace earlier ones
        assert sorted(text[16:]) == sorted(key for key, _ in told)
        assert {value for _, value in told} <= set(range(9, 14))
        repeated += len(told) - len(dict(told))
    assert (repeated > 0) == rewritten
    assert float((answers[:, 16:] != tokens[:, 1:16:2]).double().mean()) > 0.3  # asked in another order


def test_a_copy_is_the_text_again():
    tokens, answers = copying(30, 6, n_tokens=7, generator=rng())
    assert tokens.shape == (30, 11)
    assert torch.equal(tokens[:, 6:], tokens[:, :5])
    assert torch.equal(answers[:, 6:], tokens[:, 1:6])
    assert bool((answers[:, :6] == NO_ANSWER).all())
    assert all(len(set(text[:6])) == 6 for text in tokens.tolist())
    assert len(tokens.unique(dim=0)) == 30


def by_hand(form):
    """A decoder whose key is the token before, whose value is the token, and whose query is the token itself."""
    model = recall_decoder(form, vocab_size=32)
    layer, one = model.blocks[0].attention, torch.eye(64)
    with torch.no_grad():
        model.embed.weight.copy_(one[:32])  # tokens 0 to 15 are keys, 16 to 31 values
        keys = 5 * (2 * one[:16] - 1) if form in ("linear", "decay") else 5 * one[:16]
        keys = torch.where(torch.arange(64) < 16, keys, 0.0)
        layer.project_in.weight.copy_(torch.cat([keys, keys, one[16:32]]))
        layer.taps.zero_()
        layer.taps[0, :16] = layer.taps[1, 16:32] = layer.taps[0, 32:] = 1
        layer.project_out.weight.copy_(one[16:32].T)
        model.unembed.weight.copy_(one[:32])
        model.unembed.weight[:16] = 0
        if form == "decay":  # by one half at each token
            layer.gate.weight.zero_()
            layer.gate.bias.zero_()
        if form == "delta":  # values replace what is there; keys that are asked for write nothing
            layer.gate.weight.copy_(10 * one[16:32].sum(0, keepdim=True))
            layer.gate.bias.fill_(-30)
    return model


@pytest.mark.parametrize("form", [form for form in FORMS if form != "softmax, positions"])
def test_the_circuit_by_hand_recalls_as_many_pairs_as_the_memory_holds(form):
    model = by_hand(form)
    draw = TASKS["recall"][0].func
    found = recall_accuracy(model, lambda *a, **o: draw(*a, n_keys=16, **o), 16)
    rewritten = recall_accuracy(model, lambda *a, **o: draw(*a, n_keys=16, rewritten=True, **o), 24)
    if form == "softmax, window":
        assert found < 0.4
    else:
        assert found == 1
    # Sums hold the mean of all values of a key; half of what is older is forgotten, and the delta rule replaces all of it.
    if form in ("decay", "delta"):
        assert rewritten > 0.99
    else:
        assert rewritten < 0.8


def test_all_sums_have_d_times_d_numbers():
    sizes = {}
    for form in FORMS:
        _, state = recall_decoder(form, vocab_size=32)(
            torch.zeros(1, 300, dtype=torch.long), return_state=True
        )
        (kept,) = state.attention
        kept = kept.settled().sums if form in ("linear", "decay") else kept
        sizes[form] = kept.nbytes // 4
    assert sizes["delta"] == sizes["softmax, window"] == HEAD_DIM**2
    assert sizes["linear"] == sizes["decay"] == HEAD_DIM * (HEAD_DIM + 1)
    assert sizes["softmax"] == 2 * 300 * HEAD_DIM


def test_training_finds_the_circuit_and_no_training_does_not():
    task, vocab_size = TASKS["recall"]
    model = recall_decoder("softmax", vocab_size=vocab_size)
    assert recall_accuracy(model, task, 4) < 0.2
    train_to_recall(model, task, (4,), steps=120)
    assert recall_accuracy(model, task, 4) > 0.5


def test_training_repeats_itself_and_leaves_the_global_generator_alone():
    torch.manual_seed(5)
    before = torch.get_rng_state()
    task, size = TASKS["copying"]
    models = [recall_decoder("delta", vocab_size=size) for _ in range(2)]
    for model in models:
        train_to_recall(model, task, (4, 6), steps=20)
    assert torch.equal(before, torch.get_rng_state())
    assert torch.equal(models[0].embed.weight, models[1].embed.weight)
    assert not torch.equal(models[0].embed.weight, recall_decoder("delta", vocab_size=size).embed.weight)


def test_wrong_calls_are_refused():
    for call, reason in (
        (lambda: associative_recall(1, 5, n_keys=4), "5 pairs need as many keys, got n_keys 4"),
        (lambda: associative_recall(1, 0, n_keys=4), "1 or more, got batch 1, pairs 0"),
        (lambda: copying(1, 5, n_tokens=4), "n_tokens = 4 .* got 5 and 1"),
        (lambda: recall_decoder("rnn", vocab_size=4), "form must be one of .* got 'rnn'"),
        (
            lambda: train_to_recall(
                recall_decoder("linear", vocab_size=4), TASKS["copying"][0], (4,), steps=10
            ),
            "steps must be at least 20, got 10",
        ),
    ):
        with pytest.raises(ValueError, match=reason):
            call()


# Many decoders at once


def read_by_loop(models, q, k, v, gate):
    """What one text of one run reads, token by token."""
    if models.positive:
        q, k = functional.elu(q) + 1, functional.elu(k) + 1
    q, k = q / q.norm(dim=-1, keepdim=True), k / k.norm(dim=-1, keepdim=True)
    memory, rows = torch.zeros(HEAD_DIM, HEAD_DIM), []
    for i in range(len(q)):
        kept = gate[i] if models.rule == "decay" else 1.0
        strength = 1.0 if models.rule == "decay" else gate[i]
        old = k[i] @ memory if models.rule == "delta" else 0.0
        memory = kept * memory + strength * torch.outer(k[i], v[i] - old)
        rows.append(q[i] @ memory)
    return torch.stack(rows)


@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize("rule", ["sums", "decay", "delta"])
def test_each_rule_reads_what_its_loop_reads(rule, positive):
    models = MemoryDecoders(rule, vocab_size=5, seeds=[0, 1], positive=positive)
    q, k, v = torch.randn(3, 2, 2, 7, HEAD_DIM, generator=rng()).unbind()
    gate = torch.rand(2, 2, 7, generator=rng(1)) * 0.9 + 0.05
    found = models._read(q, k, v, gate)
    for run in range(2):
        for text in range(2):
            at = (run, text)
            assert torch.allclose(found[at], read_by_loop(models, q[at], k[at], v[at], gate[at]), atol=1e-5)


def test_the_delta_rule_is_that_of_the_decoder_in_use():
    """The same weights in `Decoder`, which has the same rule in chunks."""
    models, decoder = MemoryDecoders("delta", vocab_size=9, seeds=[3]), recall_decoder("delta", vocab_size=9)
    layer = decoder.blocks[0].attention
    with torch.no_grad():
        decoder.embed.weight.copy_(models.embed[0])
        layer.project_in.weight.copy_(models.project_in[0].T)
        layer.taps.copy_(models.taps[0])
        layer.gate.weight.copy_(models.gate[0].T)
        layer.gate.bias.copy_(models.gate_bias[0, 0])
        layer.project_out.weight.copy_(models.project_out[0].T)
        decoder.unembed.weight.copy_(models.unembed[0].T)
        tokens = torch.randint(9, (4, 12), generator=rng())
        assert torch.allclose(models(tokens[None])[0], decoder(tokens), atol=1e-4)


def test_softmax_sees_the_past_and_a_window_its_last_tokens():
    tokens = torch.randint(9, (1, 1, 20), generator=rng())
    changed = tokens.clone()
    changed[0, 0, 0] = (changed[0, 0, 0] + 1) % 9
    for rule, told_apart in (("softmax", True), ("window", False)):
        models = MemoryDecoders(rule, vocab_size=9, seeds=[0])
        with torch.no_grad():
            gap = (models(tokens) - models(changed))[0, 0].abs().amax(-1)
        # The convolution reaches one token back, the window 8: token 0 is out of sight from token 9 on.
        assert bool(gap[10:].max() > 1e-6) == told_apart
        future = tokens.clone()
        future[0, 0, -1] = (future[0, 0, -1] + 1) % 9
        assert torch.equal(models(tokens)[..., :-1, :], models(future)[..., :-1, :])


def test_a_run_does_not_see_its_neighbours_and_all_rules_start_alike():
    draw, vocab_size = TASKS["copying"]
    alone = MemoryDecoders("sums", vocab_size=vocab_size, seeds=[1])
    beside = MemoryDecoders("sums", vocab_size=vocab_size, seeds=[0, 1, 1])
    train_side_by_side(alone, draw, (4,), steps=20, step_sizes=[0.01])
    train_side_by_side(beside, draw, (4,), steps=20, step_sizes=[0.03, 0.01, 0.1])
    assert torch.allclose(alone.embed[0], beside.embed[1], atol=1e-4)
    assert not torch.allclose(beside.embed[1], beside.embed[2], atol=1e-2)
    starts = [MemoryDecoders(rule, vocab_size=9, seeds=[4]) for rule in RULES]
    assert all(torch.equal(starts[0].project_in, other.project_in) for other in starts)


def test_training_side_by_side_learns_to_copy():
    draw, vocab_size = TASKS["copying"]
    models = MemoryDecoders("delta", vocab_size=vocab_size, seeds=[0, 1])
    before = shares_right(models, draw, 4)
    train_side_by_side(models, draw, (4,), steps=200, step_sizes=[0.02, 0.02])
    assert before.shape == (2,)
    assert float(before.max()) < 0.1
    later = shares_right(models, draw, 4)
    assert float(later.max()) > 0.5
    assert float(later.min()) > 2 * float(before.max())


def test_wrong_calls_of_many_decoders_are_refused():
    with pytest.raises(ValueError, match=r"rule must be one of .* got 'gru'"):
        MemoryDecoders("gru", vocab_size=4, seeds=[0])
    with pytest.raises(ValueError, match="seeds name a run or more"):
        MemoryDecoders("sums", vocab_size=4, seeds=[])
    models = MemoryDecoders("sums", vocab_size=48, seeds=[0, 1])
    with pytest.raises(ValueError, match="must hold 2 numbers, one a run, got 1"):
        train_side_by_side(models, TASKS["copying"][0], (4,), steps=20, step_sizes=[0.1])
