"""Every site: equal to transformers on one sentence at a time, whatever it is batched with."""

import dataclasses
from functools import partial

import pytest
import torch
from transformers import MBartConfig, MBartForConditionalGeneration
from transformers.models.mbart.modeling_mbart import shift_tokens_right

from course_lib.language.corpus import Sentence, generate
from course_lib.mbart.activations import (
    NotFiniteError,
    Site,
    extract,
    masked_mean,
    padded_pooled_states,
    pooled_states,
)


def adversarial_sentences():
    """From one token to hundreds, out of order, in all languages, with a code or without."""
    short = [Sentence(".", "en_XX"), Sentence("dog", None), Sentence("Ж", "fr_XX")]
    long = [
        Sentence(" ".join(["Der Hund schläft."] * n), language)
        for n, language in ((20, "de_DE"), (1, "es_XX"), (17, None))
    ]
    return [*generate(9, seed=2), short[0], *long, *short[1:], *generate(4, seed=3)]


def by_hand(model, tokenizer, sentence, *, include_special=False):
    """One sentence, no padding, no masks: the definition."""
    tokenizer.src_lang = sentence.language or "en_XX"
    ids = tokenizer(sentence.text, return_tensors="pt")["input_ids"]
    tokenizer.src_lang = "en_XX"
    with torch.no_grad():
        shifted = shift_tokens_right(ids, tokenizer.pad_token_id)
        output = model.model(input_ids=ids, decoder_input_ids=shifted)
    # lang X </s> on one side and </s> lang X on the other
    encoder, decoder = (slice(None), slice(None)) if include_special else (slice(1, -1), slice(2, None))
    return output.encoder_last_hidden_state[0, encoder].mean(0), output.last_hidden_state[0, decoder].mean(0)


def test_masked_mean_worked_example():
    states = torch.tensor([[[1.0, 2.0], [3.0, 4.0], [9.0, 9.0]]])
    mask = torch.tensor([[True, True, False]])
    assert masked_mean(states, mask).tolist() == [[2.0, 3.0]]


@pytest.mark.parametrize("include_special", [False, True])
@pytest.mark.parametrize("tokens_per_batch", [1, 64, 2048])
def test_equal_to_one_sentence_at_a_time(tiny_model, tokenizer, tokens_per_batch, include_special):
    sentences = adversarial_sentences()
    states = pooled_states(
        tiny_model,
        tokenizer,
        sentences,
        tokens_per_batch=tokens_per_batch,
        include_special=include_special,
        progress=False,
    )
    for i, sentence in enumerate(sentences):
        encoder, decoder = by_hand(tiny_model, tokenizer, sentence, include_special=include_special)
        torch.testing.assert_close(states.encoder[i], encoder, atol=1e-5, rtol=0)
        torch.testing.assert_close(states.decoder[i], decoder, atol=1e-5, rtol=0)
    assert states.encoder.dtype == states.decoder.dtype == torch.float32


def test_order_is_that_of_the_input(tiny_model, tokenizer):
    sentences = adversarial_sentences()
    states = pooled_states(tiny_model, tokenizer, sentences, progress=False)
    reversed_ = pooled_states(tiny_model, tokenizer, sentences[::-1], progress=False)
    torch.testing.assert_close(states.encoder, reversed_.encoder.flip(0), atol=1e-5, rtol=0)
    torch.testing.assert_close(states.decoder, reversed_.decoder.flip(0), atol=1e-5, rtol=0)
    assert torch.cdist(states.encoder[:9], states.encoder[:9]).fill_diagonal_(1).min() > 1e-3


def test_counting_special_tokens_changes_the_mean(tiny_model, tokenizer):
    sentences = generate(3, seed=0)
    plain = pooled_states(tiny_model, tokenizer, sentences, progress=False)
    special = pooled_states(tiny_model, tokenizer, sentences, include_special=True, progress=False)
    assert (plain.encoder - special.encoder).abs().max() > 1e-3
    assert (plain.decoder - special.decoder).abs().max() > 1e-3


def test_the_language_decides_the_code_that_is_read(tiny_model, tokenizer):
    text = generate(1, seed=0)[0].text
    states = pooled_states(
        tiny_model, tokenizer, [Sentence(text, code) for code in ("en_XX", None, "fr_XX")], progress=False
    )
    torch.testing.assert_close(states.encoder[0], states.encoder[1], atol=1e-5, rtol=0)
    assert (states.encoder[0] - states.encoder[2]).abs().max() > 1e-4
    assert tokenizer.src_lang == "en_XX"


def test_dropout_is_off_and_the_training_mode_comes_back(tokenizer, tiny_model):
    tiny_model.train()
    tiny_model.model.encoder.dropout = 0.5
    try:
        first, second = (
            pooled_states(tiny_model, tokenizer, generate(4, seed=0), progress=False) for _ in range(2)
        )
        assert tiny_model.training
    finally:
        tiny_model.model.encoder.dropout = 0.0
        tiny_model.eval()
    assert torch.equal(first.encoder, second.encoder)


def test_no_sentences_give_no_rows(tiny_model, tokenizer):
    states = pooled_states(tiny_model, tokenizer, [], progress=False)
    assert states.encoder.shape == states.decoder.shape == (0, 16)


def test_half_precision_weights_give_float32_rows_close_to_the_full_ones(
    tokenizer, tiny_directory, tiny_model
):
    from course_lib.mbart.model import load

    sentences = generate(5, seed=0)
    half, _ = load(str(tiny_directory), dtype=torch.bfloat16)
    states = pooled_states(half, tokenizer, sentences, progress=False)
    full = pooled_states(tiny_model, tokenizer, sentences, progress=False)
    assert states.encoder.dtype == torch.float32
    assert torch.cosine_similarity(states.encoder, full.encoder).min() > 0.99


@pytest.mark.parametrize(
    ("sentence", "message"),
    [
        (Sentence("Ciao.", "it"), r"sentence 2 has language 'it'.*en_XX"),
        (Sentence("   ", "en_XX"), r"sentence 2 \('   '\) has no token"),
        (Sentence("", None), r"sentence 2 \(''\) has no token"),
        (Sentence("a " * 600, "en_XX"), r"sentence 2 has \d+ tokens; the model has 512 positions"),
    ],
)
def test_a_sentence_that_cannot_be_read_is_named(tiny_model, tokenizer, sentence, message):
    with pytest.raises(ValueError, match=message):
        pooled_states(tiny_model, tokenizer, [*generate(1, seed=0), sentence], progress=False)
    assert tokenizer.src_lang == "en_XX"


def test_a_budget_below_one_is_refused(tiny_model, tokenizer):
    with pytest.raises(ValueError, match="tokens_per_batch is 0"):
        pooled_states(tiny_model, tokenizer, generate(1, seed=0), tokens_per_batch=0)


def test_results_cannot_be_reassigned(tiny_model, tokenizer):
    states = pooled_states(tiny_model, tokenizer, generate(1, seed=0), progress=False)
    with pytest.raises(dataclasses.FrozenInstanceError):
        states.encoder = states.decoder


# --- Sites -----------------------------------------------------------------------------------------

PARTS = {"attention": "self_attn", "cross_attention": "encoder_attn", "mlp": "fc2", "residual": ""}


@pytest.fixture(scope="module")
def uneven_model(tokenizer):
    """Three layers to read with, two to write with, and norms that are not the identity."""
    config = MBartConfig(
        vocab_size=len(tokenizer),
        d_model=16,
        encoder_layers=3,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=2,
        encoder_ffn_dim=24,
        decoder_ffn_dim=40,
        max_position_embeddings=64,
        scale_embedding=True,
        activation_function="relu",
        dropout=0.3,
        init_std=0.3,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = MBartForConditionalGeneration(config)
        for name, weights in model.named_parameters():
            if "norm" in name:
                torch.nn.init.normal_(weights, mean=1.0, std=0.3)
    return model


def all_sites(config):
    sites = []
    for side in ("encoder", "decoder"):
        sites += [Site(side, 0), Site(side)]
        for layer in range(1, getattr(config, f"{side}_layers") + 1):
            parts = [p for p in PARTS if side == "decoder" or p != "cross_attention"]
            sites += [Site(side, layer, part) for part in parts]
    return sites


def ids_of(tokenizer, sentence):
    tokenizer.src_lang = sentence.language or "en_XX"
    try:
        return tokenizer(sentence.text, return_tensors="pt")["input_ids"]
    finally:
        tokenizer.src_lang = "en_XX"


def by_transformers(model, tokenizer, sentence, target):
    """Every site of one sentence: hooks on transformers' own modules, no padding, no masks."""
    modules, found = {}, {}
    for site in all_sites(model.config):
        stack = getattr(model.model, site.side)
        if site.layer == 0:
            modules[site] = stack.layernorm_embedding
        elif site.layer == "final":
            modules[site] = stack.layer_norm
        else:
            modules[site] = stack.layers[site.layer - 1].get_submodule(PARTS[site.part])

    def keep(site):
        def hook(module, inputs, output):
            found[site] = (output if isinstance(output, torch.Tensor) else output[0])[0]

        return hook

    handles = [module.register_forward_hook(keep(site)) for site, module in modules.items()]
    training = model.training
    model.eval()
    with torch.no_grad():
        shifted = shift_tokens_right(ids_of(tokenizer, target), tokenizer.pad_token_id)
        model.model(input_ids=ids_of(tokenizer, sentence), decoder_input_ids=shifted)
    model.train(training)
    for handle in handles:
        handle.remove()
    return found


def pairs():
    sentences = [Sentence("Der Hund.", "de_DE"), *generate(6, seed=5), Sentence("a", None)]
    return sentences, [*generate(5, seed=6), Sentence("b", "fr_XX"), *generate(2, seed=7)]


@pytest.mark.parametrize("tokens_per_batch", [1, 40, 2048])
def test_every_site_is_that_of_transformers(uneven_model, tokenizer, tokens_per_batch):
    (sentences, targets), sites = pairs(), all_sites(uneven_model.config)
    states = extract(
        uneven_model,
        tokenizer,
        sentences,
        sites,
        targets=targets,
        include_special=True,
        tokens_per_batch=tokens_per_batch,
        progress=False,
    )
    expected = [
        by_transformers(uneven_model, tokenizer, *pair) for pair in zip(sentences, targets, strict=True)
    ]
    assert len(states) == len(sites) == 2 * 2 + 3 * 3 + 2 * 4
    for site in sites:
        torch.testing.assert_close(
            states[site].values, torch.cat([e[site] for e in expected]), atol=2e-5, rtol=2e-6
        )


def test_rows_say_where_they_are_from(tiny_model, tokenizer):
    sentences, targets = pairs()
    for side, texts in (("encoder", sentences), ("decoder", targets)):
        ids = [ids_of(tokenizer, s)[0] for s in texts]
        if side == "decoder":
            ids = [torch.cat([i[-1:], i[:-1]]) for i in ids]
        site = Site(side, 1)
        every = extract(
            tiny_model, tokenizer, sentences, [site], targets=targets, include_special=True, progress=False
        )[site]
        assert torch.equal(every.token, torch.cat(ids))
        assert torch.equal(every.position, torch.cat([torch.arange(len(i)) for i in ids]))
        assert torch.equal(every.sentence, torch.cat([torch.full_like(i, n) for n, i in enumerate(ids)]))
        plain = extract(tiny_model, tokenizer, sentences, [site], targets=targets, progress=False)[site]
        # `lang X </s>` on one side and `</s> lang X` on the other
        inner = torch.cat([i[1:-1] if side == "encoder" else i[2:] for i in ids])
        assert torch.equal(plain.token, inner)
        kept = (every.position >= 1) & (every.token != tokenizer.eos_token_id)
        kept &= torch.isin(every.token, inner)
        torch.testing.assert_close(plain.values, every.values[kept], atol=1e-6, rtol=0)


def test_means_are_those_of_the_tokens(tiny_model, tokenizer):
    sites, sentences = [Site("encoder", 1, "mlp"), Site("decoder", -1)], adversarial_sentences()
    means = extract(tiny_model, tokenizer, sentences, sites, pool="mean", progress=False)
    tokens = extract(tiny_model, tokenizer, sentences, sites, progress=False)
    for site in sites:
        for index in range(len(sentences)):
            mine = tokens[site].values[tokens[site].sentence == index]
            torch.testing.assert_close(means[site].values[index], mine.mean(0), atol=1e-5, rtol=0)
        assert means[site].sentence.tolist() == list(range(len(sentences)))
        assert means[site].token is None


def test_one_pass_gives_to_each_site_what_it_was_asked_for(tiny_model, tokenizer, monkeypatch):
    """Also where two names are of one place, and over more than one window."""
    monkeypatch.setattr("course_lib.mbart.activations.WINDOW", 7)
    first, last, decoder = Site("encoder", 2), Site("encoder", -1), Site("decoder")
    sentences = adversarial_sentences()
    read = partial(extract, tiny_model, tokenizer, sentences, progress=False)
    found = read([first, last, decoder], pool={first: "mean", last: "both", decoder: "tokens"})
    means, tokens = read([first], pool="mean")[first], read([last, decoder])
    for site in (last, decoder):
        for name in ("values", "sentence", "position", "token"):
            assert torch.equal(getattr(found[site], name), getattr(tokens[site], name)), name
    assert torch.equal(found[first].values, means.values)
    assert torch.equal(found[last].means, means.values)
    assert found[first].token is found[first].means is found[decoder].means is None


def test_a_site_without_a_pool_is_named(tiny_model, tokenizer):
    encoder, decoder = Site("encoder"), Site("decoder")
    with pytest.raises(
        ValueError, match=r"pool names encoder\.final; expected encoder\.final, decoder\.final"
    ):
        extract(tiny_model, tokenizer, generate(1, seed=0), [encoder, decoder], pool={encoder: "mean"})


def test_packed_and_padded_agree(tiny_model, tokenizer):
    sentences = adversarial_sentences()
    for include_special in (False, True):
        options = {"include_special": include_special}
        packed = pooled_states(tiny_model, tokenizer, sentences, progress=False, **options)
        padded = padded_pooled_states(tiny_model, tokenizer, sentences, **options)
        torch.testing.assert_close(packed.encoder, padded.encoder, atol=1e-5, rtol=0)
        torch.testing.assert_close(packed.decoder, padded.decoder, atol=1e-5, rtol=0)


def test_the_final_norm_comes_after_the_last_layer(uneven_model, tokenizer):
    final, last = Site("encoder"), Site("encoder", -1)
    states = extract(
        uneven_model, tokenizer, generate(3, seed=0), [final, last, Site("encoder", 3)], progress=False
    )
    assert torch.equal(states[last].values, states[Site("encoder", 3)].values)
    assert not torch.allclose(states[final].values, states[last].values, atol=0.1)
    normed = uneven_model.model.encoder.layer_norm(states[last].values)
    torch.testing.assert_close(states[final].values, normed.detach(), atol=1e-5, rtol=1e-5)


def test_a_prefix_gives_the_first_rows_of_the_whole_target(tiny_model, tokenizer):
    """The decoder is causal, so that what follows a prefix changes nothing before it."""
    sentence, site = generate(1, seed=0), Site("decoder", 1)
    words = generate(1, seed=1, languages=["fr_XX"])[0].text.split()
    whole, prefix = (
        extract(
            tiny_model,
            tokenizer,
            sentence,
            [site],
            targets=[Sentence(" ".join(words[:n]), "fr_XX")],
            progress=False,
        )[site]
        for n in (len(words), 2)
    )
    rows = len(prefix.token)
    assert torch.equal(prefix.token, whole.token[:rows])
    assert rows < len(whole.token)
    torch.testing.assert_close(prefix.values, whole.values[:rows], atol=1e-6, rtol=0)


LENGTHS = {
    "one token each": [1] * 5,
    "as long as the model can read": [509, 1, 509],
    "all equal": [7] * 9,
    "one very long among short ones": [1, 2, 500, 1, 3, 2, 1],
    "all different": list(range(1, 30)),
}


@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
def test_batch_mates_change_nothing(tiny_model, tokenizer, lengths):
    """Float32, relative to the largest value of a row: 1e-6."""
    words = [w for s in generate(200, seed=1, languages=["en_XX"]) for w in s.text.split()]
    single = [w for w in dict.fromkeys(words) if len(tokenizer(w)["input_ids"]) == 3]
    sentences = [
        Sentence(" ".join(single[(i + j) % len(single)] for j in range(n)), "en_XX")
        for i, n in enumerate(lengths)
    ]
    sites = [Site("encoder"), Site("encoder", 1), Site("decoder"), Site("decoder", 2, "mlp")]
    together = extract(tiny_model, tokenizer, sentences, sites, progress=False)
    assert together[sites[0]].sentence.bincount().tolist() == lengths
    for index, sentence in enumerate(sentences):
        alone = extract(tiny_model, tokenizer, [sentence], sites, progress=False)
        for site in sites:
            rows = together[site].values[together[site].sentence == index]
            scale = alone[site].values.abs().amax(1, keepdim=True)
            assert ((rows - alone[site].values).abs() <= 1e-6 * scale).all(), site


@pytest.mark.parametrize(
    ("site", "run"),
    [
        ("encoder.0", []),
        ("encoder.1.attention", []),
        ("encoder.1", ["encoder.0"]),
        ("encoder.-1", ["encoder.0", "encoder.1", "encoder.2"]),
        ("encoder.final", ["encoder.0", "encoder.1", "encoder.2"]),
        ("decoder.1.attention", ["encoder.0", "encoder.1", "encoder.2"]),
        ("decoder.1", ["encoder.0", "encoder.1", "encoder.2", "decoder.0"]),
    ],
)
def test_only_the_layers_needed_are_run(uneven_model, tokenizer, site, run):
    seen, handles = [], []
    for side in ("encoder", "decoder"):
        for index, layer in enumerate(getattr(uneven_model.model, side).layers):
            name = f"{side}.{index}"
            handles.append(layer.fc1.register_forward_hook(lambda *_, name=name: seen.append(name)))
    handles.append(uneven_model.lm_head.register_forward_hook(lambda *_: seen.append("lm_head")))
    extract(uneven_model, tokenizer, generate(3, seed=0), [Site.parse(site)], progress=False)
    for handle in handles:
        handle.remove()
    assert seen == run


def test_windows_do_not_change_the_order(tiny_model, tokenizer, monkeypatch):
    sentences, site = adversarial_sentences(), Site("encoder", 1)
    whole = extract(tiny_model, tokenizer, sentences, [site], progress=False)[site]
    monkeypatch.setattr("course_lib.mbart.activations.WINDOW", 4)
    parts = extract(tiny_model, tokenizer, sentences, [site], progress=False)[site]
    for name in ("sentence", "position", "token"):
        assert torch.equal(getattr(parts, name), getattr(whole, name))
    torch.testing.assert_close(parts.values, whole.values, atol=1e-6, rtol=0)


def test_bfloat16_is_within_its_rounding(tiny_directory, tiny_model, tokenizer):
    from course_lib.mbart.model import load

    half, _ = load(str(tiny_directory), dtype=torch.bfloat16)
    site, sentences = Site("decoder"), adversarial_sentences()
    full = extract(tiny_model, tokenizer, sentences, [site], progress=False)[site].values
    rounded = extract(half, tokenizer, sentences, [site], progress=False)[site].values
    assert rounded.dtype == torch.bfloat16
    # A bfloat16 keeps 8 bits; some ten roundings stand between the input and the last norm.
    assert (rounded - full).norm() < 0.05 * full.norm()
    alone = extract(half, tokenizer, sentences[:1], [site], progress=False)[site].values
    assert (rounded[: len(alone)] - alone).norm() < 0.02 * alone.norm()


def test_float16_is_clamped_as_transformers_does_it(uneven_model, tokenizer):
    model = MBartForConditionalGeneration(uneven_model.config)
    model.load_state_dict(uneven_model.state_dict())
    with torch.no_grad():
        model.model.encoder.layers[0].fc2.bias.fill_(70000.0)
    model = model.half().eval()
    sentence, site = Sentence("a", None), Site("encoder", 1)
    states = extract(model, tokenizer, [sentence], [site], include_special=True, progress=False)[site].values
    assert states.isfinite().all()
    assert torch.equal(states, by_transformers(model, tokenizer, sentence, sentence)[site])


def test_a_sentence_with_nan_is_named(tiny_directory, tokenizer):
    from course_lib.mbart.model import load

    model, _ = load(str(tiny_directory))
    sentences = generate(8, seed=0)
    token = ids_of(tokenizer, sentences[5])[0, 1]
    clean = [s for s in sentences if token not in ids_of(tokenizer, s)]
    with torch.no_grad():
        model.model.shared.weight[token] = float("nan")
    extract(model, tokenizer, clean, [Site("encoder")], progress=False)
    for pool in ("tokens", "mean"):
        with pytest.raises(
            NotFiniteError, match=rf"sentence {len(clean) + 1} .*NaN or infinite.*encoder\.final"
        ):
            extract(model, tokenizer, [*clean, sentences[5]], [Site("encoder")], pool=pool, progress=False)


@pytest.mark.parametrize(
    "text", ["encoder.final", "encoder.0", "decoder.-1.mlp", "decoder.2.cross_attention"]
)
def test_a_site_is_read_as_it_is_written(text):
    assert str(Site.parse(text)) == text
    assert Site.parse(Site.parse(text).short) == Site.parse(text)
    assert (Site.parse("decoder"), Site("decoder").short) == (Site("decoder"), "decoder")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("encoder.", "expected side.layer"),
        ("encoder.last", "such as encoder.final"),
        ("middle.1", "side is 'middle'"),
        ("encoder.1.cross_attention", "the encoder has residual, attention, mlp"),
        ("encoder.final.mlp", "layer final has no mlp"),
        ("decoder.0.attention", "layer 0 has no attention"),
    ],
)
def test_a_site_that_does_not_exist_is_explained(text, message):
    with pytest.raises(ValueError, match=message):
        Site.parse(text)


@pytest.mark.parametrize("layer", [3, -3])
def test_a_layer_too_many_is_refused(tiny_model, tokenizer, layer):
    with pytest.raises(ValueError, match=rf"layer is {layer}; the encoder has layers 1 to 2"):
        extract(tiny_model, tokenizer, generate(1, seed=0), [Site("encoder", layer)], progress=False)


def test_targets_and_sites_are_checked(tiny_model, tokenizer):
    sentences, site = generate(2, seed=0), Site("decoder")
    with pytest.raises(ValueError, match="1 targets for 2 sentences"):
        extract(tiny_model, tokenizer, sentences, [site], targets=sentences[:1])
    with pytest.raises(ValueError, match="target 2 has language 'it'"):
        extract(
            tiny_model,
            tokenizer,
            sentences,
            [site],
            targets=[sentences[0], Sentence("Ciao.", "it")],
            progress=False,
        )
    with pytest.raises(ValueError, match="sites is empty"):
        extract(tiny_model, tokenizer, sentences, [])
