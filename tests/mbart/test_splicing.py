"""Splicing and steering: the right rows at the right place, nothing else, and nothing left behind."""

import math

import pytest
import torch
from transformers import AutoTokenizer, MBartConfig, MBartForConditionalGeneration
from transformers.models.mbart.modeling_mbart import shift_tokens_right

from course_lib.language.corpus import Sentence
from course_lib.mbart.activations import Site, extract, uncounted_ids
from course_lib.mbart.splicing import loss_recovered, replaced, spliced, steered
from course_lib.mbart.translation import translate
from course_lib.sae import ReluSparseAutoencoder
from course_lib.sae.autoencoder import Autoencoder
from tests.tiny_mbart import write_tiny_mbart

SOURCES = [
    Sentence("the dog sees the bread.", "en_XX"),
    Sentence("le chien aime la maison.", "fr_XX"),
    Sentence("my friend likes a blue bird.", "en_XX"),
    Sentence(".", "de_DE"),
]
TARGETS = [
    Sentence("der Hund sieht das Brot.", "de_DE"),
    Sentence("the dog likes the river and the bread.", "en_XX"),
    Sentence("el perro.", "es_XX"),
    Sentence("a child finds a house.", "en_XX"),
]
SITES = [
    *("encoder.final", "encoder.0", "encoder.1", "encoder.-1", "encoder.2.attention", "encoder.1.mlp"),
    *("decoder.final", "decoder.0", "decoder.1", "decoder.2.cross_attention", "decoder.1.attention"),
]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    directory = tmp_path_factory.mktemp("tiny")
    write_tiny_mbart(directory)
    return AutoTokenizer.from_pretrained(directory)


@pytest.fixture(scope="module")
def model(tokenizer):
    config = MBartConfig(
        vocab_size=len(tokenizer),
        d_model=16,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=32,
        decoder_ffn_dim=32,
        max_position_embeddings=40,
        init_std=0.3,
    )
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return MBartForConditionalGeneration(config).eval()


@pytest.fixture(scope="module")
def autoencoder(model, tokenizer):
    site = Site("encoder")
    states = extract(model, tokenizer, SOURCES, [site], progress=False)[site].values
    made = ReluSparseAutoencoder(16, 40, generator=torch.Generator().manual_seed(0))
    made.fit_normalisation(states)
    return made.requires_grad_(False)


class Fixed(Autoencoder):
    """Reconstructs its input, or one state whatever comes."""

    kind = "fixed"
    code_width = 16

    def __init__(self, state=None):
        super().__init__(16)
        self.state = state

    def config(self):
        return {}

    def _encode(self, x):
        return x if self.state is None else self.state.expand_as(x)

    def _decode(self, code):
        return code

    def _parts(self, x, *, labels, sparsity_scale):
        return {"total": x.new_zeros(())}


def batch(model, tokenizer, sources=SOURCES, targets=TARGETS):
    rows = {"input_ids": [], "labels": []}
    for name, sentences in (("input_ids", sources), ("labels", targets)):
        for sentence in sentences:
            tokenizer.src_lang = sentence.language
            rows[name].append(torch.tensor(tokenizer(sentence.text)["input_ids"]))
    tokenizer.src_lang = "en_XX"
    ids = torch.nn.utils.rnn.pad_sequence(rows["input_ids"], batch_first=True, padding_value=1)
    labels = torch.nn.utils.rnn.pad_sequence(rows["labels"], batch_first=True, padding_value=1)
    shifted = shift_tokens_right(labels, 1).masked_fill(labels == 1, 1)
    return {
        "input_ids": ids,
        "attention_mask": (ids != 1).long(),
        "labels": labels,
        "decoder_input_ids": shifted,
    }


def n_hooks(model):
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())


@torch.no_grad()
@pytest.mark.parametrize("include_special", [False, True])
@pytest.mark.parametrize("name", SITES)
def test_replaced_are_the_rows_that_are_extracted(model, tokenizer, name, include_special):
    site = Site.parse(name)
    seen = []
    skipped = uncounted_ids(tokenizer, include_special)
    with replaced(model, site, lambda x: seen.append(x) or x, skipped_ids=skipped):
        changed = model(**batch(model, tokenizer)).logits
    states = extract(
        model, tokenizer, SOURCES, [site], targets=TARGETS, include_special=include_special, progress=False
    )[site]
    torch.testing.assert_close(torch.cat(seen), states.values, atol=1e-5, rtol=0)
    assert torch.equal(changed, model(**batch(model, tokenizer)).logits)


@torch.no_grad()
def test_the_encoders_final_state_is_what_the_decoder_reads(model, tokenizer, autoencoder):
    inputs = batch(model, tokenizer)
    real = inputs["attention_mask"].bool()
    states = model.model.encoder(inputs["input_ids"], inputs["attention_mask"]).last_hidden_state
    by_hand = states.clone()
    by_hand[real] = autoencoder(states[real])
    with spliced(model, autoencoder, Site("encoder")):
        got = model(**inputs, return_dict=True)
    del inputs["input_ids"]
    expected = model(encoder_outputs=(by_hand,), **inputs).logits
    torch.testing.assert_close(got.logits, expected)
    torch.testing.assert_close(got.encoder_last_hidden_state[~real], states[~real])
    assert not torch.allclose(got.logits, model(encoder_outputs=(states,), **inputs).logits, atol=1e-2)


@torch.no_grad()
@pytest.mark.parametrize("name", ["encoder.1", "decoder.1"])
def test_the_next_layer_reads_what_was_put_in(model, tokenizer, name):
    site, read = Site.parse(name), {}
    layer = getattr(model.model, site.side).layers[1]
    hook = layer.register_forward_pre_hook(lambda m, args: read.update(states=args[0]))
    with replaced(model, site, lambda x: torch.full_like(x, 7.0)):
        model(**batch(model, tokenizer))
    hook.remove()
    full = (read["states"] == 7).all(dim=-1)
    ids = batch(model, tokenizer)["input_ids" if site.side == "encoder" else "labels"]
    # Shifted to the right each target keeps its number of tokens.
    assert full.sum(dim=1).tolist() == (ids != 1).sum(dim=1).tolist()
    assert not full.all()


@torch.no_grad()
@pytest.mark.parametrize("name", ["encoder.final", "encoder.1", "decoder.1"])
def test_a_sentence_is_changed_alike_alone_and_in_a_batch(model, tokenizer, autoencoder, name):
    with steered(model, autoencoder, Site.parse(name), dict.fromkeys(range(40), 3)):
        together = model(**batch(model, tokenizer)).logits
        for i in range(len(SOURCES)):
            one = batch(model, tokenizer, SOURCES[i : i + 1], TARGETS[i : i + 1])
            alone = model(**one).logits[0]
            torch.testing.assert_close(together[i, : len(alone)], alone, atol=1e-4, rtol=1e-4)


@torch.no_grad()
def test_steering_keeps_what_the_autoencoder_does_not_reconstruct(model, tokenizer, autoencoder):
    inputs, site = batch(model, tokenizer), Site("encoder")
    clean = model(**inputs).encoder_last_hidden_state
    code = autoencoder.encode(clean[0, :3])
    feature = int(code.sum(dim=0).argmax())
    direction = autoencoder.input_scale * autoencoder.decoder_weight[:, feature]
    for changes, mode, added in (
        ({feature: 1}, "factor", 0 * code[:, feature]),
        ({}, "factor", 0 * code[:, feature]),
        ({feature: 0}, "factor", -code[:, feature]),
        ({feature: 2.5}, "factor", 1.5 * code[:, feature]),
        ({feature: 4}, "value", 4 - code[:, feature]),
    ):
        with steered(model, autoencoder, site, changes, mode=mode):
            states = model(**inputs).encoder_last_hidden_state
        torch.testing.assert_close(
            states[0, :3], clean[0, :3] + added[:, None] * direction, atol=1e-5, rtol=1e-5
        )
    with steered(model, autoencoder, site, {feature: 1}):
        assert torch.equal(model(**inputs).logits, model(**inputs).logits)


@torch.no_grad()
@pytest.mark.parametrize("name", ["encoder.final", "encoder.1", "decoder.1", "decoder.final"])
@pytest.mark.parametrize("beams", [1, 2])
def test_steering_works_in_generation_and_ends_with_it(model, tokenizer, autoencoder, name, beams):
    inputs = {k: v for k, v in batch(model, tokenizer).items() if k in ("input_ids", "attention_mask")}
    options = {"max_new_tokens": 6, "num_beams": beams, "do_sample": False, "forced_bos_token_id": 10}
    clean = model.generate(**inputs, **options)
    before = n_hooks(model)
    with steered(model, autoencoder, Site.parse(name), dict.fromkeys(range(40), 8), mode="value"):
        changed = model.generate(**inputs, **options)
        uncached = model.generate(**inputs, **options, use_cache=False)
    assert changed.tolist() == uncached.tolist()
    assert changed.tolist() != clean.tolist()
    assert n_hooks(model) == before
    assert model.generate(**inputs, **options).tolist() == clean.tolist()


def test_hooks_are_removed_after_an_error_and_may_be_nested(model, autoencoder):
    before = n_hooks(model)
    with pytest.raises(KeyboardInterrupt), spliced(model, autoencoder, Site("encoder")):
        raise KeyboardInterrupt
    assert n_hooks(model) == before
    with (
        spliced(model, autoencoder, Site("encoder")),
        steered(model, autoencoder, Site("encoder", 1), {0: 2}),
    ):
        assert n_hooks(model) == before + 4
    assert n_hooks(model) == before


def test_what_cannot_be_steered_is_refused(model, autoencoder):
    narrow = ReluSparseAutoencoder(8, 16)
    cases = [
        (autoencoder, Site("encoder"), {40: 1}, "value", "feature is 40; the autoencoder has 0 to 39"),
        (autoencoder, Site("encoder"), {0: math.inf}, "factor", "finite"),
        (autoencoder, Site("encoder", 3), {0: 1}, "factor", "layer is 3; the encoder has layers 1 to 2"),
        (narrow, Site("encoder"), {0: 1}, "factor", "d_model 8, the model 16"),
    ]
    before = n_hooks(model)
    for made, site, changes, mode, message in cases:
        with pytest.raises(ValueError, match=message), steered(model, made, site, changes, mode=mode):
            pass
    assert n_hooks(model) == before
    with (
        replaced(model, Site("encoder"), lambda x: x),
        pytest.raises(RuntimeError, match="inputs_embeds"),
    ):
        model.model.encoder(inputs_embeds=torch.zeros(1, 2, 16))


@torch.no_grad()
@pytest.mark.parametrize("name", ["encoder.final", "encoder.1", "decoder.1"])
def test_loss_recovered_by_hand(model, tokenizer, autoencoder, name):
    site = Site.parse(name)
    skipped = uncounted_ids(tokenizer, False)
    rows = extract(model, tokenizer, SOURCES, [site], targets=TARGETS, progress=False)[site].values
    inputs = batch(model, tokenizer)
    labels = inputs["labels"].clone()
    labels[:, 0] = 1  # the language code is not predicted

    def log_probabilities(replace):
        with replaced(model, site, replace, skipped_ids=skipped):
            return model(**inputs).logits[labels != 1].log_softmax(dim=1)

    chosen = labels[labels != 1]
    clean = log_probabilities(lambda x: x)
    got = loss_recovered(model, tokenizer, autoencoder, site, SOURCES, TARGETS, batch_size=3, progress=False)
    assert got.n_tokens == len(chosen)
    assert got.site == name
    for field, replace in (
        ("clean", lambda x: x),
        ("spliced", autoencoder),
        ("mean_ablated", lambda x: rows.mean(dim=0).expand_as(x)),
        ("zero_ablated", torch.zeros_like),
    ):
        other = log_probabilities(replace)
        entropy = -other[torch.arange(len(chosen)), chosen].mean().item()
        assert getattr(got, field) == pytest.approx(entropy, abs=1e-4)
        if field != "clean":
            kl = (clean.exp() * (clean - other)).sum(dim=1).mean().item()
            assert kl > 0
            assert getattr(got, f"kl_{field}") == pytest.approx(kl, abs=1e-4)


def test_the_ends_of_the_scale(model, tokenizer):
    """A perfect autoencoder loses nothing, and one that gives a constant is that ablation."""
    site = Site("encoder")
    pairs = {"sources": SOURCES, "targets": TARGETS, "progress": False}
    model.train()
    perfect = loss_recovered(model, tokenizer, Fixed(), site, **pairs)
    assert model.training  # restored, and without dropout meanwhile:
    model.eval()
    assert perfect == loss_recovered(model, tokenizer, Fixed(), site, **pairs)
    assert perfect.spliced == perfect.clean
    assert perfect.kl_spliced == pytest.approx(0, abs=1e-6)
    zeros = loss_recovered(model, tokenizer, Fixed(torch.zeros(16)), site, **pairs)
    assert zeros.spliced == pytest.approx(zeros.zero_ablated, abs=1e-6)
    assert zeros.kl_spliced == pytest.approx(zeros.kl_zero_ablated, abs=1e-6)
    mean = extract(model, tokenizer, SOURCES, [site], progress=False)[site].values.mean(dim=0)
    constant = loss_recovered(model, tokenizer, Fixed(mean), site, **pairs)
    assert constant.spliced == pytest.approx(constant.mean_ablated, abs=1e-4)
    for losses in (perfect, zeros, constant):
        if losses.zero_ablated > losses.clean:
            expected = (losses.zero_ablated - losses.spliced) / (losses.zero_ablated - losses.clean)
            assert losses.recovered == pytest.approx(expected)
        else:
            assert math.isnan(losses.recovered)


def test_numbers_that_the_model_cannot_compute_with_are_refused(model, tokenizer, autoencoder):
    inputs = batch(model, tokenizer)
    # 1e25 is finite, and its square is not: normalisation would make zeros of such a row.
    for number in (1e25, 1e308):
        with (
            pytest.raises(ValueError, match="value in changes is too large"),
            steered(model, autoencoder, Site("encoder"), {0: number}, mode="value"),
        ):
            model(**inputs)
    ids = [[tokenizer.convert_tokens_to_ids("en_XX"), 5, tokenizer.eos_token_id]]
    with (
        replaced(model, Site("decoder"), lambda x: x * math.nan),
        pytest.raises(ValueError, match="predicts NaN"),
    ):
        translate(model, tokenizer, ids, [tokenizer.convert_tokens_to_ids("fr_XX")])


def test_pairs_are_needed(model, tokenizer, autoencoder):
    for sources, targets in (([], []), (SOURCES, TARGETS[:2])):
        with pytest.raises(ValueError, match=f"{len(sources)} sources and {len(targets)} targets"):
            loss_recovered(model, tokenizer, autoencoder, Site("encoder"), sources, targets)
