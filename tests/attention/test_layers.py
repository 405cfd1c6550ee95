"""The decoder: a text at once, in pieces or token by token, beams, what is kept of the past, and a Llama beside it."""

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import normalize

from course_lib.attention.kernelized import PENDING, Quadratic
from course_lib.attention.layers import (
    KINDS,
    ROOM,
    CausalSelfAttention,
    Decoder,
    DecoderConfig,
    KeyValueCache,
)
from course_lib.attention.ridge import delta_rule_loop
from course_lib.attention.rotary import yarn_attention_factor, yarn_frequencies

SMALL = {"vocab_size": 11, "d_model": 16, "n_layers": 2, "n_heads": 4, "head_dim": 6}
few = settings(max_examples=max(1, settings.default.max_examples // 2))  # an example is slow
every_kind = pytest.mark.parametrize("kind", KINDS)


def decoder(kind="softmax", *, seed=0, **options) -> Decoder:
    torch.manual_seed(seed)
    return Decoder(DecoderConfig(attention=kind, **SMALL | options))


def text(*shape, seed=0):
    return torch.randint(11, shape, generator=torch.Generator().manual_seed(seed))


def in_pieces(model, tokens, sizes, state=None):
    found = []
    for piece in tokens.split(sizes, dim=1):
        logits, state = model(piece, state=state, return_state=True)
        found.append(logits)
    return torch.cat(found, 1), state


def same(a, b, tolerance=1e-5):
    torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


# One answer, however the text comes


@every_kind
@few
@given(
    seed=st.integers(0, 2**31),
    sizes=st.lists(st.integers(0, 70), min_size=1, max_size=4).filter(lambda sizes: 0 < sum(sizes) < 150),
    kv_heads=st.sampled_from([1, 2, 4]),
    conv_width=st.sampled_from([1, 2, 4]),
    rope_base=st.sampled_from([None, 100.0]),
    window=st.sampled_from([None, 1, 9]),
)
def test_pieces_of_any_sizes_are_the_whole(kind, seed, sizes, kv_heads, conv_width, rope_base, window):
    options = {"n_kv_heads": kv_heads, "conv_width": conv_width, "rope_base": rope_base}
    if kind == "softmax":
        options["window"] = window
    model, tokens = decoder(kind, seed=seed, **options), text(2, sum(sizes), seed=seed)
    with torch.no_grad():
        whole, last = model(tokens, return_state=True)
        same(model(tokens), whole)
        found, state = in_pieces(model, tokens, sizes)
        same(found, whole)
        more = text(2, 1, seed=seed + 1)
        same(model(more, state=state), model(more, state=last))
    assert state.length == last.length == sum(sizes)


@every_kind
def test_token_by_token_is_the_whole(kind):
    model, tokens = decoder(kind, n_layers=1, n_kv_heads=2, conv_width=3), text(2, PENDING + 9)
    with torch.no_grad():
        whole = model(tokens)
        same(in_pieces(model, tokens, 1)[0], whole)
    # What a wrong order, or a state that is left out, would give:
    assert not torch.allclose(model(tokens[:, 1:])[:, -1], whole[:, -1], atol=1e-3)


@every_kind
def test_the_quadratic_kernel_is_an_option_of_the_linear_forms(kind):
    with torch.no_grad():
        own = decoder(kind, feature_map=Quadratic())
        whole = own(text(2, 80))
        same(in_pieces(own, text(2, 80), 7)[0], whole)
        changed = not torch.allclose(whole, decoder(kind)(text(2, 80)), atol=1e-4)
    assert changed == (kind in ("linear", "decay"))


@every_kind
def test_generated_tokens_are_those_that_each_prefix_makes_most_probable(kind):
    model, prompt = decoder(kind, n_kv_heads=1, conv_width=2), text(3, 5)
    for block in model.blocks:
        block.attention.project_out.weight.data *= 5  # untrained, the last token alone would decide
    found = model.generate(prompt, max_new_tokens=12)
    assert found.shape == (3, 17)
    assert torch.equal(found[:, :5], prompt)
    for length in range(5, 17):
        assert torch.equal(found[:, length], model(found[:, :length])[:, -1].argmax(-1))
    assert torch.equal(model.generate(prompt, max_new_tokens=0), prompt)
    assert len(found[:, 5:].unique()) > 1


def test_drawn_tokens_have_the_probabilities_of_the_logits():
    model, prompt = decoder(n_layers=1), text(1, 6).expand(5_000, 6)
    draw = lambda seed, **options: model.generate(  # noqa: E731
        prompt, max_new_tokens=1, generator=torch.Generator().manual_seed(seed), **options
    )[:, -1]
    for temperature in (1.0, 0.25):
        shares = torch.bincount(draw(0, temperature=temperature), minlength=11) / 5_000
        wanted = (model(prompt[:1]).detach()[0, -1] / temperature).softmax(-1)
        assert float((shares - wanted).abs().max()) < 0.03
        assert float((wanted - 1 / 11).abs().max()) > 0.05
    assert torch.equal(draw(1, temperature=1.0), draw(1, temperature=1.0))
    assert not torch.equal(draw(1, temperature=1.0), draw(2, temperature=1.0))


@every_kind
def test_no_logit_sees_later_tokens_and_the_window_ends(kind):
    model, tokens = decoder(kind, n_layers=1), text(1, 30)
    other = tokens.clone()
    other[0, 12] = (other[0, 12] + 1) % 11
    gap = (model(tokens) - model(other)).abs().amax(-1)[0]
    assert float(gap[:12].max()) < 1e-6 < 1e-4 < float(gap[12:].min())
    if kind == "softmax":
        model = decoder(kind, n_layers=1, window=5)
        gap = (model(tokens) - model(other)).abs().amax(-1)[0]
        assert torch.equal((gap > 1e-6).nonzero().flatten(), torch.arange(12, 17))


@every_kind
def test_gradients_through_states_are_those_of_the_whole(kind):
    model, tokens = decoder(kind, conv_width=3, n_kv_heads=2), text(2, 40)
    pull = torch.randn(2, 40, 11, generator=torch.Generator().manual_seed(3))
    wanted = torch.autograd.grad(model(tokens), list(model.parameters()), pull)
    found = torch.autograd.grad(in_pieces(model, tokens, 13)[0], list(model.parameters()), pull)
    for a, b in zip(found, wanted, strict=True):
        same(a, b, 2e-4)
        assert float(b.abs().max()) > 0
    _, state = model(tokens[:, :20], return_state=True)
    grads = torch.autograd.grad(
        model(tokens[:, 20:], state=state.detach()), list(model.parameters()), pull[:, 20:]
    )
    assert not all(torch.allclose(a, b, rtol=1e-2) for a, b in zip(grads, wanted, strict=True))


# States


@every_kind
def test_beams_go_on_from_the_texts_that_are_chosen(kind):
    model, tokens, index = decoder(kind, conv_width=2), text(3, 70), torch.tensor([2, 2, 0])
    more = text(3, 4, seed=1)
    with torch.no_grad():
        _, state = model(tokens, return_state=True)
        chosen = state.index_select(index)
        wanted = model(torch.cat([tokens[index], more], 1))[:, 70:]
        same(in_pieces(model, more, 1, chosen)[0], wanted)
        # The first state is as it was, and may be gone on from again.
        same(in_pieces(model, more, 1, state)[0], model(torch.cat([tokens, more], 1))[:, 70:])
        same(in_pieces(model, more, 1, state.to("cpu").detach())[0], in_pieces(model, more, 1, state)[0])
    assert chosen.nbytes == state.nbytes


def test_what_each_form_keeps():
    sizes = {}
    for kind in (*KINDS, "window"):
        options = {"attention": "softmax", "window": 10} if kind == "window" else {"attention": kind}
        torch.manual_seed(0)
        model = Decoder(DecoderConfig(**SMALL | options))
        with torch.no_grad():
            sizes[kind] = [in_pieces(model, text(1, n), n)[1].nbytes for n in (100, 200, 400)]
    a_token = 2 * 2 * 4 * 6 * 4  # layers, keys and values, heads, entries, bytes
    assert sizes["softmax"] == [100 * a_token, 200 * a_token, 400 * a_token]
    assert sizes["window"] == [10 * a_token] * 3
    assert sizes["delta"] == [2 * 4 * 6 * 6 * 4] * 3
    for kind in ("linear", "decay", "ridge"):
        assert max(sizes[kind]) <= min(sizes[kind]) < 40 * a_token


def test_a_cache_refuses_what_does_not_fit():
    k, v = torch.zeros(2, 1, 2, 3, 4)
    cache = KeyValueCache(k, v)
    with pytest.raises(
        ValueError, match=r"k must be torch.float32 of shape \(\*\(1, 2\), new, 4\) as the cache is"
    ):
        cache.append(k[:, :1], v[:, :1])
    with pytest.raises(ValueError, match=r"v must be torch.float32 .* got torch.bfloat16"):
        cache.append(k, v.bfloat16())


def test_a_cache_writes_behind_its_end_and_never_into_another_text():
    k, v = torch.randn(2, 1, 2, 3, 4, generator=torch.Generator().manual_seed(0))
    start = KeyValueCache(k[..., :0, :], v[..., :0, :]).append(k, v)
    first = start.append(k + 1, v)
    second = start.append(k + 2, v)
    assert first.keys.data_ptr() == start.keys.data_ptr() != second.keys.data_ptr()
    assert torch.equal(start.keys, k)
    assert torch.equal(first.keys, torch.cat([k, k + 1], -2))
    assert torch.equal(second.keys, torch.cat([k, k + 2], -2))
    assert torch.equal(second.values, torch.cat([v, v], -2))
    many = first.append(*torch.zeros(2, 1, 2, ROOM, 4))
    assert torch.equal(many.keys[..., :6, :], first.keys)
    assert many.keys.shape[-2] == ROOM + 6
    assert torch.equal(
        many.index_select(0, torch.tensor([0, 0])).append(*torch.ones(2, 2, 2, 1, 4)).keys[1, :, -1],
        torch.ones(2, 4),
    )
    same(start.to(dtype=torch.bfloat16).keys, k.bfloat16())


# The parts, computed otherwise


@pytest.mark.parametrize("extended", [False, True])
def test_softmax_is_transformers_llama(extended):
    from transformers import LlamaConfig, LlamaForCausalLM

    own = {
        "frequencies": yarn_frequencies(6, scale=4, trained_length=16),
        "attention_factor": yarn_attention_factor(4),
    }
    config = DecoderConfig(**SMALL, n_kv_heads=2, d_mlp=20)
    model = Decoder(config, **own if extended else {})
    yarn = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 16}
    llama = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=11,
            hidden_size=16,
            intermediate_size=20,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=6,
            rope_parameters=yarn if extended else {"rope_type": "default", "rope_theta": 1e4},
        )
    )
    with torch.no_grad():
        llama.model.embed_tokens.weight.copy_(model.embed.weight)
        llama.lm_head.weight.copy_(model.unembed.weight)
        for theirs, ours in zip(llama.model.layers, model.blocks, strict=True):
            parts = ours.attention.project_in.weight.split((24, 12, 12))
            for name, weight in zip(("q_proj", "k_proj", "v_proj"), parts, strict=True):
                getattr(theirs.self_attn, name).weight.copy_(weight)
            theirs.self_attn.o_proj.weight.copy_(ours.attention.project_out.weight)
            gated = ours.network[1]
            theirs.mlp.gate_proj.weight.copy_(gated.gate.weight)
            theirs.mlp.up_proj.weight.copy_(gated.project_in.weight)
            theirs.mlp.down_proj.weight.copy_(gated.project_out.weight)
        tokens = text(2, 30)
        same(model(tokens), llama(tokens).logits)
        greedy = {"do_sample": False, "eos_token_id": None, "attention_mask": torch.ones(2, 6)}
        generated = llama.generate(tokens[:, :6], max_new_tokens=8, **greedy)
    assert torch.equal(model.generate(tokens[:, :6], max_new_tokens=8), generated)


def test_a_decay_of_one_is_the_linear_form():
    fading, plain = decoder("decay"), decoder("linear")
    assert plain.load_state_dict(fading.state_dict(), strict=False).missing_keys == []
    tokens = text(2, 50)
    assert not torch.allclose(fading(tokens), plain(tokens), atol=1e-3)
    with torch.no_grad():
        for block in fading.blocks:
            block.attention.gate.weight.zero_()
            block.attention.gate.bias.fill_(40)
    same(fading(tokens), plain(tokens))


def test_the_delta_layer_by_its_loop():
    torch.manual_seed(0)
    layer = CausalSelfAttention(DecoderConfig(attention="delta", **SMALL))
    x = torch.randn(2, 20, 16)
    q, k, v = (t.unflatten(-1, (4, 6)).transpose(1, 2) for t in layer.project_in(x).chunk(3, -1))
    steps = layer.gate(x).sigmoid().transpose(1, 2)
    out = delta_rule_loop(normalize(q, dim=-1), normalize(k, dim=-1), v, step_size=steps)
    same(layer(x)[0], layer.project_out(out.transpose(1, 2).flatten(-2)))


def test_the_convolution_by_its_definition():
    torch.manual_seed(0)
    layer = CausalSelfAttention(DecoderConfig(conv_width=3, **SMALL))
    x, taps = torch.randn(1, 8, 72), layer.taps
    found, recent = layer._mixed(x, None)
    for t in range(8):
        same(found[0, t], sum(taps[i] * x[0, t - i] for i in range(3) if t >= i))
    assert torch.equal(recent, x[:, 6:])


def test_memories_start_from_8_to_256_tokens():
    layer = CausalSelfAttention(DecoderConfig(attention="decay", **SMALL))
    lives = 1 / (1 - layer.gate.bias.detach().sigmoid())
    same(lives, 2 ** torch.linspace(3, 8, 4), 1e-3)
    assert all(a < b for a, b in pairwise(lives.tolist()))


# Errors


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"attention": "flash"}, "attention must be one of .* got 'flash'"),
        ({"n_kv_heads": 3}, "multiple of n_kv_heads, got 4 and 3"),
        ({"window": 0}, "window must be 1 or more .* got 0 with 'softmax'"),
        ({"window": 4, "attention": "delta"}, "belongs to softmax, got 4 with 'delta'"),
        ({"head_dim": 5}, "head_dim must be even"),
        ({"vocab_size": 0}, "vocab_size must be 1 or more, got 0"),
        ({"conv_width": 0}, "conv_width must be 1 or more, got 0"),
        ({"d_mlp": -1}, "d_mlp must be 0.* got -1"),
    ],
)
def test_wrong_sizes_are_refused(options, reason):
    with pytest.raises(ValueError, match=reason):
        DecoderConfig(**SMALL | options)


def test_wrong_calls_are_refused():
    model, tokens = decoder(), text(2, 5)
    _, state = model(tokens, return_state=True)
    for call, reason in (
        (
            lambda: decoder(n_layers=1)(tokens, state=state),
            "state must have 1 layers and a batch of 2, got 2 and 2",
        ),
        (lambda: decoder("delta").generate(tokens, max_new_tokens=-1), "0 or more, got -1"),
        (lambda: model.generate(tokens, max_new_tokens=1, temperature=math.nan), "got 1 and nan"),
        (lambda: model.generate(tokens[:, :0], max_new_tokens=1), r"a token or more, .* got shape \(2, 0\)"),
        (
            lambda: decoder("linear")(tokens, state=state),
            "the state of 'linear' must be a LinearState, got KeyValueCache",
        ),
        (
            lambda: decoder("ridge")(tokens, state=state),
            "the state of 'ridge' must be a RidgeState, got KeyValueCache",
        ),
        (
            lambda: decoder("delta")(tokens, state=state),
            "the state of 'delta' must be a DeltaState, got KeyValueCache",
        ),
        (lambda: model(text(3, 5), state=state), "2 layers and a batch of 3, got 2 and 2"),
    ):
        with pytest.raises(ValueError, match=reason):
            call()
    _, other = decoder("delta")(tokens, return_state=True)
    with pytest.raises(ValueError, match="must be a KeyValueCache, got DeltaState"):
        model(tokens, state=other)
