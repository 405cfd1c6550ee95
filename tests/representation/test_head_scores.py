"""Heads read from real architectures, run as the models run them, and scores of patterns against loops."""

import pytest
import torch
from torch import nn

from course_lib.representation.attention_only import AttentionOnly, planted_induction, repeated_sequences
from course_lib.representation.circuits import composition_scores, reads
from course_lib.representation.head_scores import (
    induction_score_by_loops,
    matching_score,
    offset_score,
    read_heads,
    record,
    replaced,
)

IDS = torch.tensor([[5, 9, 4, 7, 5, 9], [3, 3, 8, 6, 4, 2]])


def llama() -> nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(vocab_size=20, hidden_size=16, intermediate_size=8, num_hidden_layers=2,
                                        num_attention_heads=4, num_key_value_heads=2, head_dim=6)).eval()  # fmt: skip


def gpt2() -> nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=20, n_embd=16, n_layer=2, n_head=4, n_positions=8)).eval()
    for name, value in model.named_parameters():
        if name.endswith("bias"):
            nn.init.normal_(value, std=0.3)
    return model


def gpt_neox() -> nn.Module:
    from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

    torch.manual_seed(0)
    return GPTNeoXForCausalLM(GPTNeoXConfig(vocab_size=20, hidden_size=16, num_hidden_layers=2, num_attention_heads=4,
                                            intermediate_size=8, max_position_embeddings=8)).eval()  # fmt: skip


def mbart() -> nn.Module:
    from transformers import MBartConfig, MBartForConditionalGeneration

    torch.manual_seed(0)
    config = MBartConfig(vocab_size=20, d_model=16, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
                         decoder_attention_heads=4, encoder_ffn_dim=8, decoder_ffn_dim=8,
                         max_position_embeddings=16)  # fmt: skip
    model = MBartForConditionalGeneration(config).eval()
    for name, value in model.named_parameters():
        if name.endswith("proj.bias"):
            nn.init.normal_(value, std=0.3)
    return model


def inputs(model: nn.Module) -> dict[str, torch.Tensor]:
    return {"input_ids": IDS, "use_cache": False} | (
        {"decoder_input_ids": IDS[:, :5]} if model.config.is_encoder_decoder else {}
    )


MODELS = {"llama": llama, "gpt2": gpt2, "gpt_neox": gpt_neox, "mbart": mbart}


@pytest.mark.parametrize("name", MODELS)
def test_weights_and_patterns_make_the_results_that_the_model_computed(name):
    """r = A (x W_V + b_V) with x the input of the module's values: grouped, biased, fused or crossed."""
    model = MODELS[name]()
    heads, entered = read_heads(model), {}
    modules = dict(model.named_modules())
    handles = [
        modules[part].register_forward_pre_hook(
            lambda _, args, kwargs, p=part: entered.update(
                {p: kwargs.get("key_value_states", kwargs.get("hidden_states", args[0] if args else None))}
            ),
            with_kwargs=True,
        )
        for part in dict.fromkeys(heads.module)
    ]
    seen = record(model, heads, **inputs(model))
    for handle in handles:
        handle.remove()
    assert len(seen.results) == len(heads) == {"mbart": 24}.get(name, 8)
    for i in range(len(heads)):
        x = entered[heads.module[i]]
        wanted = seen.patterns[i] @ (x @ heads.w_v[i] + heads.b_v[i])
        torch.testing.assert_close(seen.results[i], wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["gpt2", "mbart"])
def test_queries_and_keys_make_the_patterns(name):
    """Without rotary positions, A is the softmax of (x W_Q + b_Q)(x W_K + b_K)^T / sqrt(d_head), masked or not."""
    model = MODELS[name]()
    heads, entered = read_heads(model), {}
    part = model.transformer.h[1] if name == "gpt2" else model.model.encoder.layers[1]
    norm = part.ln_1 if name == "gpt2" else part.self_attn_layer_norm
    handle = norm.register_forward_hook(lambda _, args, out: entered.update(x=out))
    seen = record(model, heads, **inputs(model))
    handle.remove()
    own = [i for i in range(len(heads)) if heads.layer[i] == 1 and heads.kind[i] != "cross"]
    own = own if name == "gpt2" else [i for i in own if heads.kind[i] == "encoder"]
    for i in own:
        q, k = entered["x"] @ heads.w_q[i] + heads.b_q[i], entered["x"] @ heads.w_k[i] + heads.b_k[i]
        scores = q @ k.mT / heads.w_q.shape[2] ** 0.5
        if name == "gpt2":
            scores = scores.masked_fill(torch.ones(6, 6, dtype=torch.bool).triu(1), -torch.inf)
        torch.testing.assert_close(seen.patterns[i], scores.softmax(-1), rtol=1e-4, atol=1e-5)


def test_kinds_layers_and_grouped_heads():
    heads = read_heads(mbart())
    assert [heads.name(i) for i in (0, 7, 8, 12, 16, 23)] == [
        "encoder 0.0", "encoder 1.3", "decoder 0.0", "cross 0.0", "decoder 1.0", "cross 1.3",
    ]  # fmt: skip
    scores = composition_scores(heads)
    for m, mode in enumerate("QKV"):
        assert ((scores[m] > 0) == reads(heads, mode)).all()
    grouped = read_heads(llama())
    assert torch.equal(grouped.w_k[0], grouped.w_k[1])
    assert not torch.equal(grouped.w_k[1], grouped.w_k[2])
    assert grouped.b_q.abs().max() == 0


@pytest.mark.parametrize("name", MODELS)
def test_replacing_results_by_themselves_changes_nothing_and_zero_does(name):
    model = MODELS[name]()
    heads = read_heads(model)
    seen, last = record(model, heads, **inputs(model)), len(heads) - 1
    run = lambda: model(**inputs(model)).logits  # noqa: E731
    with torch.no_grad():
        plain = run()
        with replaced(model, heads, {0: seen.results[0], last: seen.results[last]}):
            torch.testing.assert_close(run(), plain, rtol=1e-4, atol=1e-5)
        with replaced(model, heads, {last: 0.0}):
            assert (run() - plain).abs().max() > 1e-4
        torch.testing.assert_close(run(), plain, rtol=0, atol=0)


def test_ablating_a_head_takes_away_its_share_of_the_stream_and_no_other():
    model = AttentionOnly(vocabulary=9, max_tokens=6, n_layers=1, generator=torch.Generator().manual_seed(0))
    heads, tokens = read_heads(model), torch.randint(9, (3, 6), generator=torch.Generator().manual_seed(1))
    seen = record(model, heads, tokens)
    with torch.no_grad(), replaced(model, heads, {2: 0}):
        without = model(tokens)
    share = seen.results[2] @ heads.w_o[2] @ model.unembedding
    torch.testing.assert_close(seen.output - without, share.detach(), rtol=1e-4, atol=1e-5)


def test_hooks_and_attention_are_put_back_when_a_run_fails():
    model = llama()
    heads, before = read_heads(model), model.config._attn_implementation
    with pytest.raises(ValueError, match="exactly one of input_ids"):
        record(model, heads, no_such_argument=1)
    with pytest.raises(KeyError), replaced(model, heads, {0: 0}):
        raise KeyError
    assert model.config._attn_implementation == before
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


def test_what_cannot_be_read_or_replaced():
    with pytest.raises(ValueError, match=r"model must have attention modules with q_proj.*Linear has none"):
        read_heads(nn.Linear(2, 2))
    model = llama()
    heads = read_heads(model)
    with (
        pytest.raises(ValueError, match="what must name heads from 0 to 7, got 8"),
        replaced(model, heads, {8: 0}),
    ):
        pass
    wrong = {0: torch.zeros(16)}
    with pytest.raises(ValueError, match=r"what\[0\] must end in d_head = 6, got shape \(16,\)"):
        replaced(model, heads, wrong).__enter__()
    with pytest.raises(ValueError, match=r"no attention module 'model\.layers\.0\.self_attn'"):
        record(gpt2(), heads, input_ids=IDS)


# Scores


def test_offsets_by_hand():
    pattern = torch.tensor([[[1.0, 0, 0], [0.75, 0.25, 0], [0.1, 0.5, 0.4]]])
    assert [float(offset_score(pattern, o)) for o in (0, -1, -2)] == pytest.approx([0.55, 0.625, 0.1])
    with pytest.raises(ValueError, match="offset 3 leads outside"):
        offset_score(pattern, 3)


def test_the_induction_score_is_that_of_the_loops_and_others_are_not():
    generator = torch.Generator().manual_seed(0)
    for _ in range(20):
        tokens = torch.randint(4, (1, 9), generator=generator)
        scores = torch.randn(1, 9, 9, generator=generator)
        pattern = scores.masked_fill(torch.ones(9, 9, dtype=torch.bool).triu(1), -torch.inf).softmax(-1)
        slow = induction_score_by_loops(pattern[0], tokens[0])
        assert float(matching_score(pattern, tokens, tokens)) == pytest.approx(slow, abs=1e-6)
    assert abs(float(matching_score(pattern, tokens, tokens, shift=0)) - slow) > 1e-3


def test_matching_across_two_sequences():
    pattern = torch.tensor([[[0.1, 0.2, 0.3, 0.4], [0.25, 0.25, 0.25, 0.25]]])
    score = lambda **options: float(matching_score(  # noqa: E731
        pattern, torch.tensor([[7, 8]]), torch.tensor([[7, 5, 7, 6]]), **options))  # fmt: skip
    assert score(itself=True) == pytest.approx(0.2 + 0.4)  # 8 stands nowhere, and does not count
    assert score(itself=True, shift=0) == pytest.approx(0.1 + 0.3)
    with pytest.raises(ValueError, match=r"must have shapes \(1, 2\) and \(1, 4\)"):
        matching_score(pattern, torch.tensor([[7, 8, 9]]), torch.tensor([[7, 5, 7, 6]]))


def test_scores_find_the_planted_pair_and_no_other():
    model = planted_induction(hidden=True, generator=torch.Generator().manual_seed(0))
    tokens, _ = repeated_sequences(
        32, 16, vocabulary=8, periods=(7, 8), generator=torch.Generator().manual_seed(1)
    )
    seen = record(model, read_heads(model), tokens)
    previous = torch.stack([offset_score(p, -1) for p in seen.patterns])
    induction = torch.stack([matching_score(p, tokens, tokens) for p in seen.patterns])
    assert (previous.argmax(), induction.argmax()) == (1, 6)
    for scores in (previous, induction):
        assert scores.max() > 0.85
        assert scores.topk(2).values[1] < 0.4
