"""mBART by hand: equal to transformers' MBart, layer by layer, whatever the size, the padding and the activation."""

import math
from functools import cache
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file
from transformers import MBartConfig, MBartForConditionalGeneration
from transformers.models.mbart.modeling_mbart import shift_tokens_right

from course_lib.language.corpus import generate
from course_lib.mbart import by_hand
from course_lib.mbart.activations import masked_mean
from course_lib.mbart.model import COURSE_MBART_DIR, load

PAD = 1


@cache
def double_model():
    """One random model for all examples of a property."""
    return random_model().double()


def random_model(*, seed=0, **settings):
    """A model of transformers with its own initial weights, biases and norms drawn at random, too."""
    small = {
        "vocab_size": 60,
        "d_model": 24,
        "encoder_layers": 3,
        "decoder_layers": 2,
        "scale_embedding": True,
    }
    small |= {"encoder_attention_heads": 4, "decoder_attention_heads": 3, "max_position_embeddings": 20}
    small |= {"encoder_ffn_dim": 40, "decoder_ffn_dim": 32, "init_std": 0.2}
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = MBartForConditionalGeneration(MBartConfig(**(small | settings))).eval()
        with torch.no_grad():
            for name, tensor in model.named_parameters():
                if tensor.ndim == 1:
                    tensor.copy_(torch.randn(tensor.shape) * 0.3 + float("norm.weight" in name))
            model.final_logits_bias.normal_()
    return model


def batch(vocab_size, lengths=(9, 4, 1), *, seed=0):
    """Random ids, padded on the right, and their mask as tokenizers give it."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(4, vocab_size, (len(lengths), max(lengths)), generator=generator)
    mask = (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]).long()
    return ids.masked_fill(mask == 0, PAD), mask


@torch.no_grad()
def theirs(model, ids, decoder_ids, mask):
    model.set_attn_implementation("eager")
    try:
        return model(
            input_ids=ids,
            attention_mask=mask,
            decoder_input_ids=decoder_ids,
            decoder_attention_mask=mask,
            output_hidden_states=True,
            output_attentions=True,
        )
    finally:
        model.set_attn_implementation("sdpa")


def assert_equal_layer_by_layer(model, ids, mask, *, tolerance):
    """Assert on all states, all attention weights of queries that are tokens, and the logits."""
    weights, config = model.state_dict(), model.config
    decoder_ids = by_hand.shift_right(ids, pad_id=config.pad_token_id)
    library = theirs(model, ids, decoder_ids, mask)
    encoder = by_hand.encoder(weights, ids, mask, config=config)
    decoder = by_hand.decoder(weights, decoder_ids, encoder.output, mask, mask, config=config)
    ours = [*encoder.states[:-1], encoder.output, *decoder.states[:-1], decoder.output]
    ours += [*encoder.self_attention, *decoder.self_attention, *decoder.cross_attention]
    ours += [by_hand.logits(weights, decoder.output)]
    wanted = [*library.encoder_hidden_states, *library.decoder_hidden_states, *library.encoder_attentions]
    wanted += [*library.decoder_attentions, *library.cross_attentions, library.logits]
    assert len(encoder.states) == config.encoder_layers + 1
    assert len(decoder.states) == config.decoder_layers + 1
    for found, expected in zip(ours, wanted, strict=True):
        assert found.dtype == expected.dtype
        # Relative to the largest entry: the residual stream of a trained model grows well above 1.
        scale = max(1.0, float(expected.abs().max()))
        torch.testing.assert_close(found, expected, atol=tolerance * scale, rtol=0)


# The whole model


def test_the_shipped_model_layer_by_layer():
    model, tokenizer = load()
    texts = ["Dog.", *(sentence.text for sentence in generate(6, seed=5))]
    inputs = tokenizer(texts, padding=True, return_tensors="pt")
    assert not inputs["attention_mask"].all()
    assert_equal_layer_by_layer(model, inputs["input_ids"], inputs["attention_mask"], tolerance=1e-5)


@pytest.mark.parametrize("layers", [2, 12])
def test_the_architecture_of_mbart_large_50_layer_by_layer(layers):
    """Width 1024, 12 + 12 layers, 16 heads, 4096 inner units: the class's defaults; a small vocabulary for memory."""
    config = MBartConfig(vocab_size=1000, scale_embedding=True)
    sizes = (config.d_model, config.encoder_layers, config.decoder_layers, config.encoder_ffn_dim)
    assert sizes == (1024, 12, 12, 4096)
    config.encoder_layers = config.decoder_layers = layers
    assert config.encoder_attention_heads == config.decoder_attention_heads == 16
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = MBartForConditionalGeneration(config).eval()
    ids, mask = batch(1000, (12, 7))
    assert_equal_layer_by_layer(model, ids, mask, tolerance=1e-5)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"scale_embedding": False},
        {"activation_function": "relu"},
        {"encoder_attention_heads": 1, "decoder_attention_heads": 24},
        {"decoder_layers": 1, "decoder_ffn_dim": 7},
    ],
    ids=str,
)
def test_random_models_in_double_precision(settings):
    model = random_model(**settings).double()
    assert_equal_layer_by_layer(model, *batch(60), tolerance=1e-11)


def test_the_last_state_is_before_the_final_norm():
    model = random_model()
    ids, mask = batch(60)
    last = []
    hook = model.model.encoder.layers[-1].register_forward_hook(lambda *args: last.append(args[-1]))
    library = theirs(model, ids, ids, mask)
    hook.remove()
    stack = by_hand.encoder(model.state_dict(), ids, mask, config=model.config)
    torch.testing.assert_close(stack.states[-1], last[0], atol=1e-5, rtol=0)
    torch.testing.assert_close(stack.output, library.encoder_last_hidden_state, atol=1e-5, rtol=0)
    assert (stack.states[-1] - stack.output).abs().max() > 0.1


def test_a_checkpoints_file_is_enough():
    """No model object: the tensors of the safetensors file, where tied weights stand once."""
    weights = {
        name: tensor.float() for name, tensor in load_file(COURSE_MBART_DIR / "model.safetensors").items()
    }
    model, _ = load()
    ids, mask = batch(model.config.vocab_size)
    from_file = by_hand.encoder(weights, ids, mask, config=model.config)
    from_model = by_hand.encoder(model.state_dict(), ids, mask, config=model.config)
    assert torch.equal(from_file.output, from_model.output)
    assert torch.equal(
        by_hand.logits(weights, from_file.output), by_hand.logits(model.state_dict(), from_model.output)
    )


@given(lengths=st.lists(st.integers(1, 12), min_size=1, max_size=4), seed=st.integers(0, 100))
def test_a_sentence_does_not_depend_on_its_batch(lengths, seed):
    model = double_model()
    weights, config = model.state_dict(), model.config
    ids, mask = batch(60, lengths, seed=seed)
    together = by_hand.encoder(weights, ids, mask, config=config)
    seen = by_hand.decoder(weights, ids, together.output, mask, mask, config=config)
    for row, length in enumerate(lengths):
        alone = by_hand.encoder(weights, ids[row : row + 1, :length], config=config)
        read = by_hand.decoder(weights, ids[row : row + 1, :length], alone.output, config=config)
        torch.testing.assert_close(together.output[row, :length], alone.output[0], atol=1e-10, rtol=0)
        torch.testing.assert_close(seen.output[row, :length], read.output[0], atol=1e-10, rtol=0)


@given(position=st.integers(1, 8), seed=st.integers(0, 100))
def test_the_decoder_does_not_look_ahead_and_the_encoder_does(position, seed):
    model = double_model()
    weights, config = model.state_dict(), model.config
    ids, _ = batch(60, (9,), seed=seed)
    other = ids.clone()
    other[0, position] = 4 + (ids[0, position] - 3) % 56
    memory = by_hand.encoder(weights, ids, config=config).output
    a, b = (by_hand.decoder(weights, x, memory, config=config).output for x in (ids, other))
    torch.testing.assert_close(a[0, :position], b[0, :position], atol=1e-12, rtol=0)
    assert (a[0, position:] - b[0, position:]).abs().amax(-1).min() > 1e-6
    c = by_hand.encoder(weights, other, config=config).output
    assert (memory - c).abs().amax(-1).min() > 1e-6


# Attention


def attention_parts(d_model, *, seed=0):
    generator = torch.Generator().manual_seed(seed)
    draw = lambda *shape: torch.randn(shape, generator=generator, dtype=torch.float64)  # noqa: E731
    names = ("q", "k", "v", "out")
    w = {f"{name}_proj.weight": draw(d_model, d_model) / d_model**0.5 for name in names}
    return w | {f"{name}_proj.bias": draw(d_model) for name in names}, draw


@given(
    n_heads=st.integers(1, 4),
    head_dim=st.integers(1, 5),
    queries=st.integers(1, 6),
    keys=st.integers(1, 6),
    seed=st.integers(0, 1000),
)
def test_heads_side_by_side_are_a_sum_over_heads(n_heads, head_dim, queries, keys, seed):
    d_model = n_heads * head_dim
    w, draw = attention_parts(d_model, seed=seed)
    x, y = draw(2, queries, d_model), draw(2, keys, d_model)
    visible = draw(2, 1, queries, keys) > 0
    visible[..., 0] = True
    together, weights = by_hand.multi_head_attention(x, y, w, n_heads=n_heads, visible=visible)
    one_by_one = by_hand.head_contributions(y, weights, w)
    assert one_by_one.shape == (2, n_heads, queries, d_model)
    torch.testing.assert_close(one_by_one.sum(1) + by_hand.attention_bias(w), together, atol=1e-10, rtol=0)
    heads = [
        by_hand.attention_head(x, y, w, head=h, n_heads=n_heads, visible=visible[:, 0])
        for h in range(n_heads)
    ]
    joined = torch.cat(heads, dim=-1)
    assert joined.shape == (2, queries, d_model)
    torch.testing.assert_close(
        joined @ w["out_proj.weight"].T + w["out_proj.bias"], together, atol=1e-10, rtol=0
    )
    torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]), atol=1e-12, rtol=0)
    assert (weights[~visible.expand_as(weights)] == 0).all()


def test_heads_on_top_of_each_other_do_not_fit_the_output_matrix():
    """The worked example: T = 5, H = 3, d_h = 4."""
    w, draw = attention_parts(12)
    x = draw(1, 5, 12)
    heads = [by_hand.attention_head(x, x, w, head=h, n_heads=3)[0] for h in range(3)]
    assert torch.cat(heads, dim=1).shape == (5, 12)
    assert torch.cat(heads, dim=0).shape == (15, 4)
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        torch.cat(heads, dim=0) @ w["out_proj.weight"].T


def test_the_key_bias_changes_nothing_and_the_query_bias_does():
    w, draw = attention_parts(12)
    x = draw(2, 5, 12)
    before = by_hand.multi_head_attention(x, x, w, n_heads=3)[0]
    key = by_hand.multi_head_attention(x, x, w | {"k_proj.bias": 10 * draw(12)}, n_heads=3)[0]
    query = by_hand.multi_head_attention(x, x, w | {"q_proj.bias": 10 * draw(12)}, n_heads=3)[0]
    torch.testing.assert_close(key, before, atol=1e-10, rtol=0)
    assert (query - before).abs().max() > 0.01


def test_two_tokens_two_heads_by_hand():
    log3, zeros = math.log(3), torch.zeros(2).double()
    tables = {
        "q": [[log3, 0], [0, log3]],
        "k": [[1, 0], [1, 0]],
        "v": [[4, 8], [0, 4]],
        "out": [[1, 1], [0, 1]],
    }
    w = {f"{name}_proj.weight": torch.tensor(rows, dtype=torch.float64) for name, rows in tables.items()}
    w |= {f"{name}_proj.bias": zeros for name in tables}
    x = torch.eye(2).double()[None]
    output, weights = by_hand.multi_head_attention(x, x, w, n_heads=2)
    wanted = torch.tensor([[[3 / 4, 1 / 4], [1 / 2, 1 / 2]], [[1 / 2, 1 / 2], [3 / 4, 1 / 4]]]).double()
    torch.testing.assert_close(weights[0], wanted)
    torch.testing.assert_close(output[0], torch.tensor([[7.0, 2.0], [7.0, 1.0]]).double())
    written = by_hand.head_contributions(x, weights, w)[0]
    torch.testing.assert_close(
        written, torch.tensor([[[5.0, 0], [6, 0]], [[2, 2], [1, 1]]]).double(), atol=1e-12, rtol=0
    )


# The other pieces


@given(d=st.integers(2, 40), seed=st.integers(0, 1000), size=st.floats(0.1, 100))
def test_layer_norm_is_torchs(d, seed, size):
    generator = torch.Generator().manual_seed(seed)
    x, gain, bias = (
        torch.randn(shape, generator=generator, dtype=torch.float64) for shape in ((3, d), (d,), (d,))
    )
    found = by_hand.layer_norm(size * x, {"weight": gain, "bias": bias})
    torch.testing.assert_close(
        found, torch.nn.functional.layer_norm(size * x, (d,), gain, bias), atol=1e-9, rtol=0
    )


def test_pre_norm_and_post_norm_worked_example():
    plain = {"weight": torch.ones(2).double(), "bias": torch.zeros(2).double()}
    x = torch.tensor([1.0, 3.0]).double()
    post, pre = by_hand.layer_norm(x + x, plain, eps=0), x + by_hand.layer_norm(x, plain, eps=0)
    assert post.tolist() == pytest.approx([-1, 1])
    assert pre.tolist() == pytest.approx([0, 4])


def test_masked_mean_worked_example():
    states = torch.tensor([[[1.0, 2.0], [3.0, 4.0], [9.0, 9.0]]])
    assert masked_mean(states, torch.tensor([[True, True, False]])).tolist() == [[2.0, 3.0]]
    assert states.mean(dim=1)[0].tolist() == pytest.approx([13 / 3, 5])


def test_sizes_of_the_large_model():
    with torch.device("meta"):
        model = MBartForConditionalGeneration(MBartConfig(vocab_size=250_054))
    assert sum(p.numel() for p in model.parameters()) == 610_879_488
    assert model.config.d_model // model.config.encoder_attention_heads == 64
    assert model.model.encoder.layers[0].self_attn.out_proj.weight.shape == (1024, 1024)


@given(lengths=st.lists(st.integers(1, 9), min_size=1, max_size=5), seed=st.integers(0, 1000))
def test_the_shift_is_transformers(lengths, seed):
    ids, _ = batch(60, lengths, seed=seed)
    wanted = shift_tokens_right(ids, PAD)
    assert torch.equal(by_hand.shift_right(ids, pad_id=PAD), wanted)


def test_causal_is_the_lower_triangle():
    assert by_hand.causal(3).int().tolist() == [[1, 0, 0], [1, 1, 0], [1, 1, 1]]


def test_part_strips_the_name():
    weights = {"a.b.c": torch.zeros(1), "a.bb.c": torch.ones(1), "a.b.d.e": torch.ones(2)}
    assert set(by_hand.part(weights, "a.b")) == {"c", "d.e"}


# What is refused


def test_weights_of_another_model_are_refused():
    with pytest.raises(ValueError, match=r"nothing under 'model\.encoder'.*'wte'"):
        by_hand.encoder({"wte": torch.zeros(2, 2), "model.shared.weight": torch.zeros(9, 2)},
                        torch.zeros(1, 3, dtype=torch.long), config=random_model().config)  # fmt: skip


def test_more_tokens_than_positions_are_refused():
    model = random_model()
    ids, _ = batch(60, (21,))
    with pytest.raises(ValueError, match="encoder ids have 21 tokens; the model has 20 positions"):
        by_hand.encoder(model.state_dict(), ids, config=model.config)


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        (torch.ones(1, 3), r"attention_mask must have the shape of the ids \(1, 4\), got \(1, 3\)"),
        (torch.tensor([[0, 1, 1, 1]]), "attention_mask hides the first token"),
    ],
)
def test_masks_that_do_not_fit_are_refused(mask, message):
    model = random_model()
    weights, (ids, _) = model.state_dict(), batch(60, (4,))
    with pytest.raises(ValueError, match=message):
        by_hand.encoder(weights, ids, mask, config=model.config)
    memory = torch.zeros(1, 4, 24)
    with pytest.raises(ValueError, match=message):
        by_hand.decoder(weights, ids, memory, mask, config=model.config)
    with pytest.raises(ValueError, match=message.replace("attention_mask", "memory_mask")):
        by_hand.decoder(weights, ids, memory, None, mask, config=model.config)


def test_an_activation_that_is_not_known_is_refused():
    model = random_model()
    settings = {name: getattr(model.config, name) for name in by_hand.Config.__annotations__}
    config = SimpleNamespace(**(settings | {"activation_function": "gelu_new"}))
    with pytest.raises(ValueError, match="activation is 'gelu_new'; expected one of gelu, relu"):
        by_hand.encoder(model.state_dict(), batch(60)[0], config=config)
