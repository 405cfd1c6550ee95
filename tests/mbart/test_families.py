"""mBART, BART, M2M100, NLLB-200 and Marian: read without padding, replaced and translated as transformers does."""

import importlib
from contextlib import ExitStack
from itertools import pairwise

import pytest
import torch
from torch.nn.utils.rnn import pad_sequence

from course_lib.language.corpus import Sentence
from course_lib.language.text import full_codes
from course_lib.mbart.activation_store import tokenizer_sha256, write_store
from course_lib.mbart.activations import (
    Site,
    extract,
    padded_pooled_states,
    pooled_states,
    tokenise,
    uncounted_ids,
)
from course_lib.mbart.families import languages, spans
from course_lib.mbart.model import load
from course_lib.mbart.splicing import loss_recovered, replaced, steered
from course_lib.mbart.translation import translate
from course_lib.sae import ReluSparseAutoencoder
from tests.tiny_families import FAMILIES, SPOKEN, write_tiny

PARTS = {"attention": "self_attn", "cross_attention": "encoder_attn", "mlp": "fc2", "residual": ""}
READ = (
    "the dog sees the bread.",
    "le chien aime la maison.",
    "a",
    "my friend likes a blue bird.",
    "a child.",
)
WRITTEN = ("der Hund sieht das Brot.", "the dog likes the river.", "el perro come.", "das Brot.", "the cat.")


@pytest.fixture(scope="module", params=FAMILIES)
def tiny(request, tmp_path_factory):
    """Family, model and tokenizer, as `load` gives them."""
    directory = tmp_path_factory.mktemp(request.param)
    write_tiny(request.param, directory)
    return request.param, *load(str(directory))


def pairs(family):
    source, target = SPOKEN[family]
    if family == "marian-many":  # the code, in front of the source, is that of the output
        source = target
    return [Sentence(text, source) for text in READ], [Sentence(text, target) for text in WRITTEN]


def reference_batch(family, model, tokenizer):
    """What transformers' own tokenizer and model make of the pairs: padded ids, mask, and the decoder's ids."""
    source, target = SPOKEN[family]
    texts = list(READ)
    if family == "marian-many":
        texts = [f">>{target}<< {text}" for text in texts]
    if not family.startswith("marian") and source is not None:
        tokenizer.src_lang, tokenizer.tgt_lang = source, target
    read = tokenizer(texts, padding=True, return_tensors="pt")
    labels = tokenizer(text_target=list(WRITTEN), padding=True, return_tensors="pt")["input_ids"]
    if family == "nllb-legacy":  # targets always begin with their code
        rows = [torch.cat([row[row != 1][-1:], row[row != 1][:-1]]) for row in labels]
        labels = pad_sequence(rows, batch_first=True, padding_value=1)
    if not family.startswith("marian") and source is not None:
        tokenizer._switch_to_input_mode()
        tokenizer.src_lang, tokenizer.tgt_lang = (
            {"mb": "en_XX", "m2": "en", "nl": "eng_Latn"}[family[:2]],
            None,
        )
    pad, start = model.config.pad_token_id, model.config.decoder_start_token_id
    shift = importlib.import_module(type(model).__module__).shift_tokens_right
    decoder = shift(labels, pad) if family.startswith("mbart") else shift(labels, pad, start)
    # The last token of a row, which no row reads, stands behind those that end early.
    behind = torch.arange(labels.shape[1]) >= (labels != pad).sum(dim=1, keepdim=True)
    inputs = {"input_ids": read["input_ids"], "attention_mask": read["attention_mask"]}
    return inputs | {"decoder_input_ids": decoder.masked_fill(behind, pad)}, labels, ~behind


def all_sites(config):
    sites = []
    for side in ("encoder", "decoder"):
        sites += [Site(side, 0), Site(side)]
        for layer in range(1, getattr(config, f"{side}_layers") + 1):
            sites += [
                Site(side, layer, part) for part in PARTS if side == "decoder" or part != "cross_attention"
            ]
    return sites


@torch.no_grad()
def by_transformers(model, inputs, real):
    """Every site of a padded batch, from hooks on transformers' modules: the rows that are no pads."""
    found, handles = {}, []
    for site in all_sites(model.config):
        stack = getattr(model.model, site.side)
        kept = inputs["attention_mask"].bool() if site.side == "encoder" else real

        def keep(value, site=site, kept=kept):
            found[site] = (value if isinstance(value, torch.Tensor) else value[0])[kept]

        if site.layer == 0:
            handles.append(
                stack.layers[0].register_forward_pre_hook(lambda m, args, keep=keep: keep(args[0]))
            )
        elif site.layer == "final":
            handles.append(
                stack.register_forward_hook(lambda m, args, out, keep=keep: keep(out.last_hidden_state))
            )
        else:
            module = stack.layers[site.layer - 1].get_submodule(PARTS[site.part])
            handles.append(module.register_forward_hook(lambda m, args, out, keep=keep: keep(out)))
    model.model(**inputs, use_cache=False)
    for handle in handles:
        handle.remove()
    return found


def test_every_site_is_that_of_transformers_padded_batch(tiny):
    family, model, tokenizer = tiny
    sites = all_sites(model.config)
    sources, targets = pairs(family)
    got = extract(
        model,
        tokenizer,
        sources,
        sites,
        targets=targets,
        include_special=True,
        tokens_per_batch=40,  # several batches
        progress=False,
    )
    inputs, _, real = reference_batch(family, model, tokenizer)
    expected = by_transformers(model, inputs, real)
    assert len(sites) == 2 * 2 + 2 * 3 + 2 * 4
    for site in sites:
        torch.testing.assert_close(got[site].values, expected[site], atol=1e-5, rtol=1e-5)
    ids = inputs["decoder_input_ids"][real]
    assert torch.equal(got[Site("decoder")].token, ids)
    assert torch.equal(got[Site("encoder")].token, inputs["input_ids"][inputs["attention_mask"].bool()])


def test_rows_that_count_are_those_of_the_words(tiny):
    family, model, tokenizer = tiny
    sources, targets = pairs(family)
    sites = [Site("encoder"), Site("decoder")]
    states = extract(model, tokenizer, sources, sites, targets=targets, progress=False)
    second = "text_target" if family.startswith("marian") else "text"
    for site, texts in zip(sites, ({"text": list(READ)}, {second: list(WRITTEN)}), strict=True):
        words = tokenizer(**texts, add_special_tokens=False)["input_ids"]
        assert states[site].token.tolist() == [token for row in words for token in row]
    if family == "marian-two":  # German is cut by the pieces of the target
        cut = [piece for text in WRITTEN for piece in tokenizer.spm_target.encode(text, out_type=str)]
        assert cut != [piece for text in WRITTEN for piece in tokenizer.spm_source.encode(text, out_type=str)]
        expected = tokenizer.convert_ids_to_tokens(states[sites[1]].token.tolist())
        assert [piece for piece in cut if piece in tokenizer.encoder] == [p for p in expected if p != "<unk>"]


@pytest.mark.parametrize("target", [False, True])
def test_spans_are_those_of_the_pieces(tiny, target):
    _, _, tokenizer = tiny
    texts = [*(WRITTEN if target else READ), "  the  dog sees\tЖ ﬁ.", "x"]
    ids, places = spans(tokenizer, texts, target=target)
    sentences = [Sentence(text, None) for text in texts]
    framed = tokenise(tokenizer, sentences, target=target)
    for text, row, place, whole in zip(texts, ids, places, framed, strict=True):
        assert row == [token for token in whole if token not in uncounted_ids(tokenizer, False)]
        assert len(row) == len(place)
        if tokenizer.is_fast:
            continue  # their offsets are the tokenizer's own
        covered = {i for start, end in place for i in range(start, end)}
        assert {i for i, letter in enumerate(text) if not letter.isspace()} <= covered
        assert all(end <= start for (_, end), (start, _) in pairwise(place))
        if text.isascii():  # nothing is normalised: what a piece says stands there
            for piece, (start, end) in zip(tokenizer.convert_ids_to_tokens(row), place, strict=True):
                assert piece == "<unk>" or piece.strip("▁") == text[start:end].strip()


def test_pooled_states_are_those_of_the_readable_version(tiny):
    family, model, tokenizer = tiny
    sentences = [Sentence(text, code) for text in READ for code in SPOKEN[family]]
    for special in (False, True):
        packed = pooled_states(model, tokenizer, sentences, include_special=special, progress=False)
        padded = padded_pooled_states(model, tokenizer, sentences, include_special=special)
        torch.testing.assert_close(packed.encoder, padded.encoder, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(packed.decoder, padded.decoder, atol=1e-5, rtol=1e-5)


def test_a_long_sentence_is_read_and_a_longer_one_refused(tiny):
    _, model, tokenizer = tiny
    frame = len(tokenizer("")["input_ids"])
    # Some tokenizers take a word as one piece, others as two: the blank and the letter.
    words = (64 - frame) // (len(tokenizer("a a")["input_ids"]) - len(tokenizer("a")["input_ids"]))
    site = Site("encoder", 0)
    longest = Sentence(("a " * words).strip(), None)
    states = extract(model, tokenizer, [longest], [site], include_special=True, progress=False)
    assert 64 - 2 <= len(states[site].values) <= 64
    with pytest.raises(ValueError, match="the model has 64 positions"):
        extract(
            model, tokenizer, [Sentence("a " * (64 - frame + 1), None)], [Site("encoder")], progress=False
        )


@torch.no_grad()
def test_replaced_are_the_rows_that_are_extracted(tiny):
    family, model, tokenizer = tiny
    sources, targets = pairs(family)
    inputs, _, _ = reference_batch(family, model, tokenizer)
    clean = model(**inputs).logits
    # Marian's decoder begins with a pad, which is a row like another where special tokens count.
    for special in (False, True):
        skipped, seen, sites = uncounted_ids(tokenizer, special), {}, all_sites(model.config)
        states = extract(
            model, tokenizer, sources, sites, targets=targets, include_special=special, progress=False
        )
        with ExitStack() as stack:
            for site in sites:
                keep = lambda x, site=site, seen=seen: seen.setdefault(site, x)  # noqa: E731
                stack.enter_context(replaced(model, site, keep, skipped_ids=skipped))
            assert torch.equal(model(**inputs).logits, clean)
        for site in sites:
            torch.testing.assert_close(seen[site], states[site].values, atol=1e-5, rtol=1e-5)
    for site in (Site("encoder", 0), Site("encoder"), Site("decoder", 0), Site("decoder")):
        with replaced(model, site, torch.zeros_like, skipped_ids=skipped):
            assert not torch.allclose(model(**inputs).logits, clean, atol=1e-3)


@torch.no_grad()
def test_a_pad_after_the_end_is_not_replaced_though_marians_first_is(tiny):
    family, model, tokenizer = tiny
    inputs, _, _ = reference_batch(family, model, tokenizer)
    out, pads = model(**inputs, use_cache=True), torch.full((len(READ), 1), tokenizer.pad_token_id)
    with replaced(model, Site("decoder", 1), lambda x: pytest.fail(f"{len(x)} pads were replaced")):
        model.model.decoder(
            input_ids=pads,
            encoder_hidden_states=out.encoder_last_hidden_state,
            past_key_values=out.past_key_values,
        )


@torch.no_grad()
def test_clean_loss_is_that_of_transformers_without_what_is_forced(tiny):
    family, model, tokenizer = tiny
    sources, targets = pairs(family)
    inputs, labels, real = reference_batch(family, model, tokenizer)
    frame = {*languages(tokenizer).values(), tokenizer.bos_token_id}
    forced = torch.tensor([[token in frame for token in row] for row in labels.tolist()])
    assert forced.sum() == (0 if family.startswith("marian") else len(labels))
    chosen = real & ~forced
    logits = model(**inputs).logits[chosen]
    expected = torch.nn.functional.cross_entropy(logits, labels[chosen]).item()
    nothing = ReluSparseAutoencoder(16, 20, generator=torch.Generator().manual_seed(0))
    found = loss_recovered(model, tokenizer, nothing, Site("encoder"), sources, targets, progress=False)
    assert found.clean == pytest.approx(expected, abs=1e-5)
    assert found.n_tokens == int(chosen.sum())


def test_translations_are_those_of_transformers(tiny):
    family, model, tokenizer = tiny
    target = SPOKEN[family][1]
    code = None if target is None else languages(tokenizer)[target]
    inputs, _, _ = reference_batch(family, model, tokenizer)
    del inputs["decoder_input_ids"]
    options = {"num_beams": 1, "do_sample": False, "max_new_tokens": 12}
    if family == "bart":
        options["forced_bos_token_id"] = tokenizer.bos_token_id
    elif family == "mbart25":
        options["decoder_start_token_id"] = code
    elif not family.startswith("marian"):
        options["forced_bos_token_id"] = code
    expected = model.generate(**inputs, **options)[:, 0 if family == "mbart25" else 1 :]
    rows = tokenise(tokenizer, pairs(family)[0])
    got = translate(model, tokenizer, rows, [code] * len(rows))
    eos = tokenizer.eos_token_id
    for row, wanted in zip(got, expected.tolist(), strict=True):
        end = min(len(row), 11, *(i + 1 for i, t in enumerate(wanted) if t == eos))
        assert row[:end] == wanted[:end]
    if family == "marian-many":  # a code in front takes the place of the one that stands there
        other = languages(tokenizer)["fra"]
        bare = tokenise(tokenizer, [Sentence(text, "fra") for text in READ])
        assert translate(model, tokenizer, bare, [code] * len(bare)) == got
        assert translate(model, tokenizer, bare, [other] * len(bare)) != got


@torch.no_grad()
@pytest.mark.parametrize("name", ["encoder.0", "decoder.0", "decoder.1"])
def test_steering_works_in_generation_with_and_without_a_cache(tiny, name):
    family, model, tokenizer = tiny
    made = ReluSparseAutoencoder(16, 40, generator=torch.Generator().manual_seed(0)).requires_grad_(False)
    inputs, _, _ = reference_batch(family, model, tokenizer)
    del inputs["decoder_input_ids"]
    options = {"max_new_tokens": 5, "num_beams": 1, "do_sample": False}
    options |= {"return_dict_in_generate": True, "output_logits": True}

    def logits(**more):
        return torch.stack(model.generate(**inputs, **options, **more).logits)

    clean = logits()
    with steered(model, made, Site.parse(name), dict.fromkeys(range(40), 8), mode="value"):
        changed, uncached = logits(), logits(use_cache=False)
    torch.testing.assert_close(changed, uncached, atol=1e-4, rtol=1e-4)
    n = min(len(changed), len(clean))
    assert (changed[:n] - clean[:n]).abs().amax(dim=(1, 2)).min() > 1e-2  # at every step
    assert torch.equal(logits(), clean)


def test_a_language_that_the_model_does_not_know_is_named(tiny):
    family, _, tokenizer = tiny
    known = "no languages" if SPOKEN[family][0] is None else SPOKEN[family][0]
    with pytest.raises(ValueError, match=f"sentence 1 has language 'xx'.*{known}"):
        tokenise(tokenizer, [Sentence("a", "xx")])
    assert (
        len(languages(tokenizer))
        == {
            **{"mbart50": 52, "mbart25": 25, "bart": 0, "m2m100": 100, "nllb": 202, "nllb-legacy": 202},
            **{"marian": 0, "marian-many": 2, "marian-two": 0},
        }[family]
    )


def test_a_store_of_a_family_is_written_and_its_tokenizer_is_told_from_another(tiny, tmp_path):
    family, model, tokenizer = tiny
    sources, targets = pairs(family)
    made = [
        write_store(
            tmp_path / name,
            model,
            tokenizer,
            zip(sources, targets, strict=True),
            site=Site("decoder", 1, "mlp"),
            shard_size=size,
            progress=False,
        )
        for name, size in (("one", 5), ("again", 5))
    ]
    assert made[0].manifest == made[1].manifest
    site = Site("decoder", 1, "mlp")
    states = extract(model, tokenizer, sources, [site], targets=targets, progress=False)[site]
    assert torch.equal(made[0][:], states.values)
    before = tokenizer_sha256(tokenizer)
    if hasattr(tokenizer, "encoder"):  # pieces with other ids
        tokenizer.encoder["e"], tokenizer.encoder["n"] = tokenizer.encoder["n"], tokenizer.encoder["e"]
        try:
            assert tokenizer_sha256(tokenizer) != before
        finally:
            tokenizer.encoder["e"], tokenizer.encoder["n"] = tokenizer.encoder["n"], tokenizer.encoder["e"]
    assert tokenizer_sha256(tokenizer) == before


def test_half_precision_is_read_as_transformers_does(tiny, tmp_path):
    family, model, tokenizer = tiny
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    half, _ = load(str(tmp_path), dtype=torch.bfloat16)
    sources, targets = pairs(family)
    site = Site("decoder")
    got = extract(half, tokenizer, sources, [site], targets=targets, include_special=True, progress=False)[
        site
    ]
    inputs, _, real = reference_batch(family, half, tokenizer)
    with torch.no_grad():
        expected = half.model(**inputs).last_hidden_state[real]
    assert got.values.dtype == expected.dtype == torch.bfloat16
    assert torch.cosine_similarity(got.values.float(), expected.float()).min() > 0.98


def test_short_codes_stand_for_codes_with_an_underscore_alone():
    # NLLB's "est_Latn" is Estonian; M2M100's "ast" is Asturian, and "as" is neither.
    assert full_codes(["est_Latn", "spa_Latn"]) == {"est_Latn": "est_Latn", "spa_Latn": "spa_Latn"}
    assert full_codes(["ast", "en"]) == {"ast": "ast", "en": "en"}
    assert full_codes(["en_XX"]) == {"en": "en_XX", "en_XX": "en_XX"}


@pytest.mark.parametrize("name", FAMILIES)
def test_what_looks_like_a_special_token_is_text(name, tmp_path):
    write_tiny(name, tmp_path)
    tokenizer = load(str(tmp_path))[1]
    special = set(tokenizer.all_special_ids) | set(languages(tokenizer).values())
    written = [token for token in tokenizer.all_special_tokens if token != tokenizer.unk_token]
    special -= {tokenizer.unk_token_id}
    plain = Sentence("the dog sees the cat.", None)
    (frame,) = tokenise(tokenizer, [plain])
    n_frame = sum(token in special for token in frame)
    for text in [f"the dog {token} the{token} cat." for token in written]:
        (row,) = tokenise(tokenizer, [Sentence(text, None)])
        assert sum(token in special for token in row) == n_frame, text
        (ids,), (places,) = spans(tokenizer, [text])
        inside = [token for token in row if token not in special]
        assert [token for token in ids if token not in special] == inside == ids
        # The last sign is found at its place in the text as it was given, behind the blanks that were put in.
        assert places[-1][1] == len(text)
        assert text[places[-1][0] : places[-1][1]].endswith(".")
        assert all(0 <= start <= end <= len(text) for start, end in places)
