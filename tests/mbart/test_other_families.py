"""T5, T5Gemma, NLLB-MoE, Pegasus, Blenderbot, PLBART and others: read in padded batches as transformers reads one text."""

import importlib
import json
import re
from contextlib import ExitStack

import pytest
import torch
from torch import nn
from transformers import AutoConfig, AutoModelForSeq2SeqLM, BertConfig, EncoderDecoderConfig

from course_lib.language.corpus import Sentence
from course_lib.mbart import structure
from course_lib.mbart.activation_store import write_store
from course_lib.mbart.activations import (
    Reader,
    Site,
    extract,
    padded_pooled_states,
    pooled_states,
    tokenise,
    uncounted_ids,
)
from course_lib.mbart.families import languages, spans
from course_lib.mbart.model import ModelUnavailable, load
from course_lib.mbart.splicing import loss_recovered, padded_pairs, replaced, steered
from course_lib.mbart.translation import translate
from course_lib.pipeline.text import token_words
from course_lib.sae import ReluSparseAutoencoder
from tests.tiny_others import SETTINGS, SPOKEN, make_model, make_tokenizer, write_tiny

READ = (
    "the dog sees the bread.",
    "le chien aime la maison.",
    "a",
    "my friend likes a blue bird.",
    "a child.",
)
WRITTEN = ("der Hund sieht das Brot.", "the dog likes the river.", "el perro come.", "das Brot.", "the cat.")

# Which module of a layer gives what a block adds, and the norms behind the sums; read from transformers' forward.
_T5 = {
    "attention": "layer.0.SelfAttention",
    "cross_attention": "layer.1.EncDecAttention",
    "mlp": "layer.-1.DenseReluDense",
}
_GEMMA = {
    "attention": "post_self_attn_layernorm",
    "cross_attention": "post_cross_attn_layernorm",
    "mlp": "post_feedforward_layernorm",
}
_BART = {"attention": "self_attn", "cross_attention": "encoder_attn", "mlp": "fc2"}
BLOCKS = dict.fromkeys(SETTINGS, _BART) | {
    **dict.fromkeys(("t5", "t5-gated", "mt5", "umt5", "longt5", "longt5-global"), _T5),
    "switch": _T5 | {"mlp": "layer.-1.mlp"},
    "t5gemma": _GEMMA,
    "nllb-moe": {"attention": "self_attn", "cross_attention": "cross_attention", "mlp": "ffn"},
    "prophetnet": {"attention": "self_attn", "cross_attention": "cross_attn", "mlp": "feed_forward"},
}
IN_ENCODER = {"longt5": "LocalSelfAttention", "longt5-global": "TransientGlobalSelfAttention"}
NORMS_AFTER = dict.fromkeys(
    ("blenderbot-small", "plbart", "plbart-bare", "mvp", "led"),
    ("self_attn_layer_norm", "encoder_attn_layer_norm", "final_layer_norm"),
) | {"prophetnet": ("self_attn_layer_norm", "cross_attn_layer_norm", "feed_forward_layer_norm")}
PARTS = ("attention", "cross_attention", "mlp")


@pytest.fixture(scope="module", params=SETTINGS)
def tiny(request, tmp_path_factory):
    """Family, model and tokenizer, as `load` gives them."""
    directory = tmp_path_factory.mktemp(request.param)
    write_tiny(request.param, directory)
    return request.param, *load(str(directory))


def pairs(family):
    source, target = SPOKEN.get(family, (None, None))
    return [Sentence(text, source) for text in READ], [Sentence(text, target) for text in WRITTEN]


def parts(side):
    return PARTS if side == "decoder" else ("attention", "mlp")


def all_sites():
    return [
        site
        for side in ("encoder", "decoder")
        for site in (
            Site(side, 0),
            Site(side),
            *(Site(side, layer, part) for layer in (1, 2) for part in ("residual", *parts(side))),
        )
    ]


def own_rows(family, model, tokenizer):
    """What transformers' own tokenizer and shift make of the pairs, one by one: ids of the encoder and of the decoder."""
    source, target = SPOKEN.get(family, (None, None))
    if source:
        tokenizer.src_lang, tokenizer.tgt_lang = source, target
    read = [tokenizer(text)["input_ids"] for text in READ]
    labels = [tokenizer(text_target=text)["input_ids"] for text in WRITTEN]
    if source:
        tokenizer._switch_to_input_mode()
        tokenizer.src_lang, tokenizer.tgt_lang = {
            "nllb-moe": ("eng_Latn", None),
            "plbart": ("java", "en_XX"),
        }[family]
    if family in ("t5gemma", "blenderbot-small"):  # whose tokenizers do not end what is to be predicted
        labels = [
            [t for t in row if t != tokenizer.bos_token_id] + [tokenizer.eos_token_id] for row in labels
        ]
    rows, config = [], model.config
    for label in labels:
        label = torch.tensor([label])
        if hasattr(model, "prepare_decoder_input_ids_from_labels"):
            row = model.prepare_decoder_input_ids_from_labels(label)
        else:
            shift = importlib.import_module(type(model).__module__).shift_tokens_right
            row = shift(label, config.pad_token_id, config.decoder_start_token_id)
        rows.append(row[0].tolist())
    return read, rows


@torch.no_grad()
def by_transformers(family, model, read, written):
    """Every site of one pair, alone and without a pad, from the outputs of transformers and hooks on named modules."""
    found, handles = {}, []
    for side in ("encoder", "decoder"):
        stack = getattr(model.base_model, side)
        layers = stack.block if hasattr(stack, "block") else stack.layers
        for i, layer in enumerate(layers, start=1):
            modules = {"residual": layer}
            for part in parts(side):
                name = BLOCKS[family][part].replace("-1", "1" if side == "encoder" else "2")
                if side == "encoder" and part == "attention":
                    name = name.replace("SelfAttention", IN_ENCODER.get(family, "SelfAttention"))
                modules[part] = layer.get_submodule(name)
            for part, module in modules.items():
                site = Site(side, i, part)

                def keep(_, args, out, site=site):
                    found[site] = out if isinstance(out, torch.Tensor) else out[0]

                handles.append(module.register_forward_hook(keep))
    out = model(
        input_ids=torch.tensor([read]),
        decoder_input_ids=torch.tensor([written]),
        decoder_attention_mask=torch.ones(1, len(written), dtype=torch.long),
        output_hidden_states=True,
        use_cache=False,
    )
    for handle in handles:
        handle.remove()
    states = {"encoder": out.encoder_hidden_states, "decoder": out.decoder_hidden_states}
    for side in ("encoder", "decoder"):
        found[Site(side, 0)], found[Site(side, 1)] = states[side][:2]
    found[Site("encoder")] = out.encoder_last_hidden_state
    found[Site("decoder")] = states["decoder"][-1]  # the base model's last_hidden_state
    lengths = {"encoder": len(read), "decoder": len(written)}
    return {site: value[0, : lengths[site.side]] for site, value in found.items()}


def extracted(family, model, tokenizer, **options):
    sources, targets = pairs(family)
    return extract(
        model,
        tokenizer,
        sources,
        all_sites(),
        targets=targets,
        include_special=True,
        progress=False,
        **options,
    )


@pytest.mark.parametrize("tokens_per_batch", [40, 2048])
def test_every_site_is_that_of_transformers_one_pair_at_a_time(tiny, tokens_per_batch):
    family, model, tokenizer = tiny
    got = extracted(family, model, tokenizer, tokens_per_batch=tokens_per_batch)
    read, written = own_rows(family, model, tokenizer)
    expected = [by_transformers(family, model, *pair) for pair in zip(read, written, strict=True)]
    for site in all_sites():
        whole = torch.cat([states[site] for states in expected])
        torch.testing.assert_close(got[site].values, whole, atol=1e-5, rtol=1e-5)
        assert whole.std() > 1e-2
    assert got[Site("encoder")].token.tolist() == [token for row in read for token in row]
    assert got[Site("decoder")].token.tolist() == [token for row in written for token in row]


def test_blocks_add_up_to_the_stream(tiny):
    family, model, tokenizer = tiny
    got = {site: states.values for site, states in extracted(family, model, tokenizer).items()}
    for side in ("encoder", "decoder"):
        for i in (1, 2):
            x = got[Site(side, i - 1)]
            layer = structure.layers(model, side)[i - 1]
            for part in parts(side):
                x = x + got[Site(side, i, part)]
                if family in NORMS_AFTER:
                    x = getattr(layer, NORMS_AFTER[family][PARTS.index(part)])(x)
            torch.testing.assert_close(got[Site(side, i)], x.detach(), atol=1e-5, rtol=1e-5)


def test_rows_that_count_are_those_of_the_words(tiny):
    family, model, tokenizer = tiny
    sources, targets = pairs(family)
    sites = [Site("encoder"), Site("decoder")]
    states = extract(model, tokenizer, sources, sites, targets=targets, progress=False)
    for site, texts in zip(sites, (READ, WRITTEN), strict=True):
        words = tokenizer(list(texts), add_special_tokens=False)["input_ids"]
        assert states[site].token.tolist() == [token for row in words for token in row]


def test_pooled_states_are_those_of_the_readable_version(tiny):
    family, model, tokenizer = tiny
    for special in (False, True):
        got = pooled_states(model, tokenizer, pairs(family)[0], include_special=special, progress=False)
        padded = padded_pooled_states(model, tokenizer, pairs(family)[0], include_special=special)
        torch.testing.assert_close(got.encoder, padded.encoder, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(got.decoder, padded.decoder, atol=1e-5, rtol=1e-5)


def test_a_model_in_training_is_read_without_dropout(tiny):
    family, model, tokenizer = tiny
    expected = extracted(family, model, tokenizer)
    model.train()
    try:
        got = extracted(family, model, tokenizer)
        assert model.training
    finally:
        model.eval()
    for site in all_sites():
        assert torch.equal(got[site].values, expected[site].values)


def n_hooks(model):
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())


@torch.no_grad()
def test_nothing_behind_the_last_site_is_computed_and_no_hook_stays(tiny):
    family, model, tokenizer = tiny
    sources, _ = pairs(family)
    extract(
        model, tokenizer, sources, [Site("decoder")], progress=False
    )  # transformers keeps hooks of its own
    before = n_hooks(model)
    seen = []
    stack = structure.stack(model, "decoder")
    handles = [
        stack.register_forward_hook(lambda *_: seen.append("decoder")),
        structure.layers(model, "encoder")[1].register_forward_hook(lambda *_: seen.append("layer 2")),
    ]
    try:
        site = Site("encoder", 1)
        extract(model, tokenizer, sources, [site], progress=False)
        assert seen == []
        extract(model, tokenizer, sources, [Site("decoder", 2, "mlp")], progress=False)
        assert seen == ["layer 2"]
    finally:
        for handle in handles:
            handle.remove()
    assert n_hooks(model) == before


# Their layers hold more positions than tokens: windows are filled up, or streams stand behind.
MORE_POSITIONS = ("led", "prophetnet")


@torch.no_grad()
def test_replaced_are_the_rows_that_are_extracted(tiny):
    family, model, tokenizer = tiny
    sources, targets = pairs(family)
    inputs, _ = padded_pairs(tokenise(tokenizer, sources), tokenise(tokenizer, targets, target=True), model)
    clean = model(**inputs).logits
    if family in MORE_POSITIONS:
        side = "encoder" if family == "led" else "decoder"
        with (
            pytest.raises(ValueError, match="only those of one state a token can be replaced"),
            replaced(model, Site(side, 1), torch.zeros_like),
        ):
            model(**inputs)
        assert torch.equal(model(**inputs).logits, clean)
        return
    for special in (False, True):
        skipped, seen = uncounted_ids(tokenizer, special), {}
        states = extract(
            model, tokenizer, sources, all_sites(), targets=targets, include_special=special, progress=False
        )
        with ExitStack() as stack:
            for site in all_sites():
                keep = lambda x, site=site, seen=seen: seen.setdefault(site, x)  # noqa: E731
                stack.enter_context(replaced(model, site, keep, skipped_ids=skipped))
            assert torch.equal(model(**inputs).logits, clean)
        for site in all_sites():
            torch.testing.assert_close(seen[site], states[site].values, atol=1e-5, rtol=1e-5)
    for site in all_sites():
        with replaced(model, site, torch.zeros_like, skipped_ids=skipped):
            assert not torch.allclose(model(**inputs).logits, clean, atol=1e-4)


@torch.no_grad()
def test_clean_loss_is_that_of_transformers(tiny):
    family, model, tokenizer = tiny
    if family in MORE_POSITIONS:
        return
    sources, targets = pairs(family)
    read, written = own_rows(family, model, tokenizer)
    predicted = tokenise(tokenizer, targets, target=True)
    losses = []
    for source, target, row in zip(read, written, predicted, strict=True):
        logits = model(input_ids=torch.tensor([source]), decoder_input_ids=torch.tensor([target])).logits[0]
        # What is forced is not predicted: a code or <s> in front, PLBART's code at the end.
        chosen = (
            slice(1, None) if family in ("nllb-moe", "mvp") else slice(0, -1 if family == "plbart" else None)
        )
        losses.append(
            torch.nn.functional.cross_entropy(logits[chosen], torch.tensor(row)[chosen], reduction="none")
        )
    made = ReluSparseAutoencoder(
        structure.width(model, "encoder"), 20, generator=torch.Generator().manual_seed(0)
    )
    found = loss_recovered(model, tokenizer, made, Site("encoder"), sources, targets, progress=False)
    losses = torch.cat(losses)
    assert found.n_tokens == len(losses)
    assert found.clean == pytest.approx(losses.mean().item(), abs=1e-5)
    assert found.spliced != pytest.approx(found.clean, abs=1e-4)
    with pytest.raises(ValueError, match="the autoencoder has d_model 7"):
        loss_recovered(
            model, tokenizer, ReluSparseAutoencoder(7, 20), Site("encoder"), sources, targets, progress=False
        )


def test_translations_are_those_of_transformers(tiny):
    family, model, tokenizer = tiny
    target = SPOKEN.get(family, (None, None))[1]
    code = None if target is None else languages(tokenizer)[target]
    rows = tokenise(tokenizer, pairs(family)[0])
    got = translate(model, tokenizer, rows, [code] * len(rows))
    options = {"num_beams": 1, "do_sample": False, "max_new_tokens": 12}
    if family in ("mvp", "led"):
        options["forced_bos_token_id"] = tokenizer.bos_token_id
    elif family == "nllb-moe":
        options["forced_bos_token_id"] = code
    elif family.startswith("plbart"):
        options["decoder_start_token_id"] = tokenizer.eos_token_id if code is None else code
    elif family == "t5gemma":
        options["decoder_start_token_id"] = tokenizer.bos_token_id
    for row, source in zip(got, rows, strict=True):
        ids = torch.tensor([source])
        (wanted,) = model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), **options).tolist()
        wanted = wanted[0 if family == "plbart" else 1 :]
        end = min(len(row), 11, *(i + 1 for i, t in enumerate(wanted) if t == tokenizer.eos_token_id))
        assert row[:end] == wanted[:end]


@torch.no_grad()
@pytest.mark.parametrize("name", ["encoder.0", "decoder.1.attention"])
def test_steering_works_in_generation_with_and_without_a_cache(tiny, name):
    family, model, tokenizer = tiny
    if family in (
        *MORE_POSITIONS,
        "switch",
    ):  # Switch's experts take so many tokens of those that are read at once
        return
    site = Site.parse(name)
    made = ReluSparseAutoencoder(
        structure.width(model, site.side), 40, generator=torch.Generator().manual_seed(0)
    ).requires_grad_(False)
    ids = torch.tensor(tokenise(tokenizer, pairs(family)[0])[:1])
    options = {"max_new_tokens": 5, "num_beams": 1, "do_sample": False}
    options |= {"return_dict_in_generate": True, "output_logits": True}
    if family in ("t5gemma", "plbart", "plbart-bare"):
        options["decoder_start_token_id"] = tokenizer.bos_token_id

    def logits(**more):
        return torch.stack(model.generate(input_ids=ids, **options, **more).logits)

    clean = logits()
    with steered(model, made, site, dict.fromkeys(range(40), 8), mode="value"):
        changed, uncached = logits(), logits(use_cache=False)
    torch.testing.assert_close(changed, uncached, atol=1e-4, rtol=1e-4)
    n = min(len(changed), len(clean))
    assert (changed[:n] - clean[:n]).abs().amax(dim=(1, 2)).min() > 1e-3  # at every step
    assert torch.equal(logits(), clean)


def test_a_store_is_written_at_the_width_of_its_side(tiny, tmp_path):
    family, model, tokenizer = tiny
    sources, targets = pairs(family)
    for site in (Site("encoder", 1, "mlp"), Site("decoder", 2)):
        store = write_store(
            tmp_path / str(site),
            model,
            tokenizer,
            zip(sources, targets, strict=True),
            site=site,
            progress=False,
        )
        states = extract(model, tokenizer, sources, [site], targets=targets, progress=False)[site]
        assert torch.equal(store[:], states.values)
        assert store.manifest["d_model"] == states.values.shape[1]
    assert store.manifest["d_model"] == 32


def test_half_precision_is_read_as_transformers_does(tiny, tmp_path):
    family, model, tokenizer = tiny
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    half, _ = load(str(tmp_path), dtype=torch.bfloat16)
    sources, targets = pairs(family)
    got = extract(
        half, tokenizer, sources, all_sites(), targets=targets, include_special=True, progress=False
    )
    read, written = own_rows(family, half, tokenizer)
    expected = [by_transformers(family, half, *pair) for pair in zip(read, written, strict=True)]
    for site in all_sites():
        whole = torch.cat([states[site] for states in expected])
        assert got[site].values.dtype == torch.bfloat16
        assert torch.cosine_similarity(got[site].values.float(), whole.float()).median() > 0.99


def test_spans_are_those_of_the_pieces_or_refused(tiny):
    family, _, tokenizer = tiny
    if family in ("blenderbot-small", "prophetnet"):
        with pytest.raises(
            ValueError, match=f"{type(tokenizer).__name__} does not say where its tokens stand"
        ):
            spans(tokenizer, list(READ))
        return
    ids, places = spans(tokenizer, list(READ))
    for text, row, place in zip(READ, ids, places, strict=True):
        assert len(row) == len(place)
        for piece, (start, end) in zip(tokenizer.convert_ids_to_tokens(row), place, strict=True):
            assert piece.strip("▁Ġ") in (
                "",
                text[start:end].strip(),
            )  # a blank in front counts as the letter behind it


def test_the_word_of_each_token_is_known_where_its_place_is(tiny):
    family, model, tokenizer = tiny
    sentences = [Sentence(text, SPOKEN.get(family, (None,))[0]) for text in READ]
    tokens = extract(model, tokenizer, sentences, [Site("encoder")], progress=False)[Site("encoder")]
    found = token_words(tokenizer, sentences, tokens.token)
    if family in ("blenderbot-small", "prophetnet"):
        assert found is None
        return
    pieces = tokenizer.convert_ids_to_tokens(tokens.token.tolist())
    for piece, row, (start, end) in zip(pieces, tokens.sentence.tolist(), found.tolist(), strict=True):
        word = READ[row][start:end]
        assert word in re.findall(r"\w+|[^\w\s]+", READ[row])
        assert piece in tokenizer.all_special_tokens or piece.strip("▁Ġ") in word


def test_a_sentence_beyond_the_positions_is_refused_where_they_are_counted(tiny):
    family, model, tokenizer = tiny
    long = [Sentence("the dog sees a house. " * 40, SPOKEN.get(family, (None,))[0])]
    if SETTINGS[family][0] in ("t5", "mt5", "umt5", "longt5", "switch_transformers"):
        states = extract(model, tokenizer, long, [Site("encoder")], progress=False)
        assert len(states[Site("encoder")].values) > 64
    else:
        with pytest.raises(ValueError, match="the model has 64 positions"):
            extract(model, tokenizer, long, [Site("encoder")], progress=False)


def test_pads_count_in_a_padded_batch(tiny):
    family, model, tokenizer = tiny
    window = Reader(model, tokenizer, all_sites()).prepare(*pairs(family))
    sides = (window.source.lengths, window.target.lengths)
    for budget in (30, 45, 70):
        for batch in window.batches(budget, padded=True):
            assert len(batch) == 1 or max(int(s[batch].max()) for s in sides) * len(batch) <= budget
    packed = [len(batch) for batch in window.batches(70)]
    assert sum(packed) == len(READ)


# --- What is refused -------------------------------------------------------------------------------


def saved(directory, model, tokenizer):
    model.save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    return str(directory)


def changed(directory, **settings):
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps(config | settings))
    return str(directory)


@pytest.mark.parametrize(
    ("family", "settings", "message"),
    [
        ("mvp", {"model_type": "gpt2"}, "is a 'gpt2' model; expected an encoder-decoder"),
        ("mvp", {"model_type": "nothing"}, "is a 'nothing' model; expected an encoder-decoder"),
        ("mvp", {"model_type": "t5"}, r"lacks \d+ weights"),
        ("bigbird-pegasus", {"attention_type": "block_sparse"}, "attention_type is 'block_sparse'"),
        ("nllb-moe", {"second_expert_policy": "random"}, "by the batch or by chance"),
        ("nllb-moe", {"moe_eval_capacity_token_fraction": 0.5}, "by the batch or by chance"),
        ("pegasus", {"decoder_start_token_id": None}, "names no decoder_start_token_id"),
    ],
)
def test_what_is_not_read_is_refused_in_one_sentence(family, settings, message, tmp_path):
    write_tiny(family, tmp_path)
    with pytest.raises(ModelUnavailable, match=message) as refused:
        load(changed(tmp_path, **settings))
    assert "\n" not in str(refused.value)


def test_encoder_decoders_without_stacks_of_layers_are_refused(tmp_path):
    tokenizer = make_tokenizer("t5", tmp_path)
    small = {
        "vocab_size": len(tokenizer),
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
    }
    small |= {"intermediate_size": 16}
    bert = EncoderDecoderConfig.from_encoder_decoder_configs(
        BertConfig(**small), BertConfig(**small, is_decoder=True, add_cross_attention=True)
    )
    bert.decoder_start_token_id = 0
    path = saved(tmp_path / "bert", AutoModelForSeq2SeqLM.from_config(bert), tokenizer)
    with pytest.raises(ModelUnavailable, match="no layers are found in the encoder of EncoderDecoderModel"):
        load(path)
    for kind, reason in (
        ("pegasus_x", "by half a block"),
        ("fsmt", "tokens, sentences, width"),
        ("seamless_m4t", "no encoder is found in SeamlessM4TForTextToText"),
    ):
        sizes = dict(d_model=16, encoder_layers=1, decoder_layers=1, encoder_ffn_dim=16, decoder_ffn_dim=16)
        sizes |= dict(encoder_attention_heads=2, decoder_attention_heads=2, vocab_size=len(tokenizer))
        sizes |= dict(hidden_size=16) if kind == "seamless_m4t" else {}
        sizes |= dict(src_vocab_size=len(tokenizer), tgt_vocab_size=len(tokenizer), langs=["en", "de"])
        model = AutoModelForSeq2SeqLM.from_config(AutoConfig.for_model(kind, **sizes))
        with pytest.raises(ValueError, match=reason):
            structure.check(model)


def test_a_layer_without_a_block_is_refused_by_the_name_of_what_is_missing():
    layer = nn.Module()
    layer.self_attn = nn.Identity()
    with pytest.raises(ValueError, match="no cross_attention is found in a Module of the decoder"):
        structure.block(layer, Site("decoder", 1, "cross_attention"))


@pytest.mark.parametrize("passed_by", [False, True])
def test_a_forward_that_is_laid_out_otherwise_or_passes_a_block_by_is_noticed(passed_by, tmp_path):
    tokenizer = make_tokenizer("t5", tmp_path)
    model = make_model("t5", tokenizer)
    sublayer = structure.layers(model, "encoder")[0].layer[1]
    block = sublayer.DenseReluDense
    own = block.forward
    if passed_by:
        sublayer.forward = lambda x, **_: x + own(sublayer.layer_norm(x))
        message = "does not reach encoder.1.mlp"
    else:
        block.forward = lambda x: own(x).transpose(0, 1)
        message = "has states of shape .* at encoder.1.mlp; expected"
    sentences = [Sentence("the dog sees the bread.", None), Sentence("a child.", None)]
    with pytest.raises(ValueError, match=message):
        extract(model, tokenizer, sentences, [Site("encoder", 1, "mlp")], progress=False)


def test_attention_is_that_which_the_class_has(tiny, tmp_path):
    _, model, tokenizer = tiny
    assert model.config._attn_implementation == ("sdpa" if type(model)._supports_sdpa else "eager")
    saved(tmp_path, model, tokenizer)
    again, _ = load(changed(tmp_path, attn_implementation="eager"))
    assert again.config._attn_implementation == "eager"


# --- Full size -------------------------------------------------------------------------------------


@torch.no_grad()
def test_t5_base_is_read_as_transformers_does(tmp_path):
    tokenizer = make_tokenizer("t5", tmp_path)
    config = AutoConfig.for_model(
        "t5",
        vocab_size=32128,
        d_model=768,
        d_kv=64,
        d_ff=3072,
        num_layers=12,
        num_heads=12,
        decoder_start_token_id=0,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = AutoModelForSeq2SeqLM.from_config(config).eval()
    sites = [Site(side, layer) for side in ("encoder", "decoder") for layer in (0, 1, 6, 12, "final")]
    sites += [Site(site.side, 6, part) for site in sites[::5] for part in parts(site.side)]
    sentences = [Sentence(text, None) for text in READ]
    got = extract(model, tokenizer, sentences, sites, include_special=True, progress=False)
    rows = [tokenizer(text)["input_ids"] for text in READ]
    expected = [by_transformers("t5", model, row, [0, *row[:-1]]) for row in rows]
    for site in sites:
        whole = torch.cat([states[site] for states in expected])
        torch.testing.assert_close(got[site].values, whole, atol=3e-6 * whole.abs().max().item(), rtol=1e-5)
