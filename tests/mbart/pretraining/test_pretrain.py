"""Pretraining: the format, a short run from end to end, and the checkpoint that is shipped."""

import json
import zlib
from dataclasses import replace

import numpy as np
import pytest
import torch
from transformers import AutoTokenizer, MBart50Tokenizer, MBartForConditionalGeneration
from transformers.models.mbart.modeling_mbart import shift_tokens_right

import course_lib.mbart.pretraining.pretrain as pretrain_module
from course_lib.language.corpus import LANGUAGES, concepts_of, draw_meanings, render, split_of
from course_lib.mbart.model import COURSE_MBART_DIR, OF_GENERATED_TEXT, SHIPPED, UNALIGNED, load
from course_lib.mbart.pretraining.config import FAMILY, PretrainConfig
from course_lib.mbart.pretraining.examples import (
    Texts,
    denoising_pair,
    draw_families,
    flatten,
    translation_pair,
)
from course_lib.mbart.pretraining.pretrain import alignment_loss, pretrain, random_model, train
from course_lib.mbart.pretraining.scores import (
    denoising_scores,
    hard_retrieval_scores,
    retrieval_scores,
    retrieval_top1,
    translation_scores,
)


@pytest.fixture(scope="module")
def texts(tokenizer):
    meanings = draw_meanings(60, seed=0)
    return Texts({code: [render(m, code).text for m in meanings] for code in LANGUAGES}, tokenizer)


def test_the_tokenizer_writes_mbart50s_format_and_shifts_as_mbart_does(tokenizer):
    tokenizer.src_lang = "fr_XX"
    ids = tokenizer("Le chien dort.", return_tensors="pt")["input_ids"]
    tokenizer.src_lang = "en_XX"
    tokens = tokenizer.convert_ids_to_tokens(ids[0])
    assert (tokens[0], tokens[-1]) == ("fr_XX", "</s>")
    shifted = shift_tokens_right(ids, tokenizer.pad_token_id)
    assert tokenizer.convert_ids_to_tokens(shifted[0]) == ["</s>", *tokens[:-1]]


def test_sentences_and_words_are_those_of_the_text(texts, tokenizer):
    for language in LANGUAGES:
        for row, meaning in enumerate(draw_meanings(60, seed=0)):
            text = render(meaning, language).text
            assert tokenizer.decode(texts.sentence(language, row)) == text
            words = texts.words(language, row)
            assert [tokenizer.decode(list(word)) for word in words] == text.split()
            assert flatten([words], 2) == [*texts.sentence(language, row), 2]


def test_denoising_pairs_are_documents_in_the_published_format(texts, tokenizer, config):
    rng = np.random.default_rng(0)
    pairs = [denoising_pair(texts, tokenizer, config, rng) for _ in range(20)]
    for source, target in pairs:
        assert source[0] == target[0]
        assert tokenizer.convert_ids_to_tokens(target[0]) in LANGUAGES
        assert source[-1] == target[-1] == tokenizer.eos_token_id
        assert 1 <= source.count(tokenizer.eos_token_id) == target.count(tokenizer.eos_token_id) <= 3
        assert tokenizer.mask_token_id not in target
    assert any(tokenizer.mask_token_id in source for source, _ in pairs)
    assert {target.count(tokenizer.eos_token_id) for _, target in pairs} == {1, 2, 3}


def test_translation_pairs_say_the_same_in_two_languages(texts, tokenizer):
    rng = np.random.default_rng(0)
    where = {tuple(texts.sentence(c, i)): i for c in LANGUAGES for i in range(texts.n_meanings)}
    pairs = [translation_pair(texts, tokenizer, rng) for _ in range(60)]
    for source, target in pairs:
        assert source[0] != target[0]
        assert where[tuple(source[1:-1])] == where[tuple(target[1:-1])]
    assert len({(source[0], target[0]) for source, target in pairs}) == 12


def test_families_are_training_meanings_that_differ_in_one_concept():
    meanings = draw_families(400, seed=3)
    assert meanings == draw_families(400, seed=3)
    assert {split_of(m) for m in meanings} == {"train"}
    for start in range(0, 400, FAMILY):
        drawn, *others = meanings[start : start + FAMILY]
        assert len({drawn, *others}) == FAMILY
        for other in others:
            changed = concepts_of(drawn) ^ concepts_of(other)
            words = [c for c in changed if not c.startswith("grammar:")]
            assert len(words) in (0, 2) or (len(words) == 1 and set(words) < changed)


def test_the_loss_of_alignment_is_the_cross_entropy_of_finding_the_translation():
    states = torch.tensor([[[3.0, 0.0], [9.0, 9.0]], [[0.0, 1.0], [0.0, 3.0]]])
    real = torch.tensor([[True, False], [True, True]])  # means (3, 0) and (0, 2)
    others = torch.tensor([[[1.0, 1.0]], [[0.0, 5.0]]])
    both = torch.ones(2, 1, dtype=torch.bool)
    c, t = 2**-0.5, 0.5
    cosines = torch.tensor([[c, 0.0], [c, 1.0]])
    one_way = [(cosines / t).softmax(dim=d).diagonal().log().mean() for d in (0, 1)]
    loss = alignment_loss(states, real, others, both, t)
    assert loss.item() == pytest.approx(-sum(one_way).item() / 2, rel=1e-6)
    scaled = alignment_loss(states * 7, real, others, both, t)
    assert scaled.item() == pytest.approx(loss.item(), rel=1e-6)


def test_batches_that_align_hold_whole_families_in_one_pair_of_languages(tokenizer, config):
    families = draw_families(80, seed=0)
    texts = Texts({code: [render(m, code).text for m in families] for code in LANGUAGES}, tokenizer)
    where = {(c, *texts.sentence(c, i)): i for c in LANGUAGES for i in range(texts.n_meanings)}
    codes = {code: language for language, code in tokenizer.lang_code_to_id.items()}
    aligned = replace(config, denoising_share=0.0, alignment_share=1.0)
    batches = list(
        pretrain_module._window(
            texts, tokenizer, aligned, np.random.default_rng(0), step=aligned.denoising_steps
        )
    )
    for inputs, labels, aligns in batches:
        assert aligns
        read = []
        for row in (*inputs.tolist(), *labels.tolist()):
            kept = [i for i in row if i not in (tokenizer.pad_token_id, tokenizer.eos_token_id, -100)]
            read.append((codes[kept[0]], where[codes[kept[0]], *kept[1:]]))
        sources, targets = read[: len(inputs)], read[len(inputs) :]
        for start in range(0, len(inputs), FAMILY):
            family = sources[start : start + FAMILY]
            first = family[0][1]
            assert first % FAMILY == 0
            assert [m for _, m in family] == list(range(first, first + FAMILY))
            assert [m for _, m in targets[start : start + FAMILY]] == [m for _, m in family]
            assert len({language for language, _ in family}) == 1
            assert len({language for language, _ in targets[start : start + FAMILY]}) == 1
    plain = replace(config, denoising_share=0.0, alignment_share=0.0)
    drawn = pretrain_module._window(texts, tokenizer, plain, np.random.default_rng(0), step=8)
    assert not any(aligns for *_, aligns in drawn)


def test_alignment_brings_translations_nearer_each_other(texts, tokenizer, config):
    def nearness(share):
        model = random_model(config, tokenizer, seed=0)
        schedule = replace(config, denoising_steps=0, denoising_share=0.0, translation_steps=24)
        train(model, tokenizer, texts, replace(schedule, alignment_share=share), progress=False)
        return retrieval_scores(model.eval(), tokenizer, n_candidates=30, progress=False)["retrieval_top1"]

    assert nearness(1.0) > nearness(0.0) + 0.05


def test_the_loss_falls_and_equal_seeds_give_equal_weights(texts, tokenizer, config):
    models = [random_model(config, tokenizer, seed=0) for _ in range(2)]
    losses = [train(model, tokenizer, texts, config, progress=False)[0] for model in models]
    assert losses[0] == losses[1]
    assert np.mean(losses[0][-5:]) < np.mean(losses[0][:5]) - 0.3
    assert all(torch.equal(a, b) for a, b in zip(*(m.parameters() for m in models), strict=True))


@pytest.fixture(scope="module")
def pretrained(config, tmp_path_factory):
    """One run, never interrupted, and its scores."""
    parent = tmp_path_factory.mktemp("pretrained")
    scores = pretrain(config, parent / "model", n_scored=16, progress=False)
    return parent, scores


def test_a_run_that_was_killed_and_then_found_a_full_disk_ends_with_the_same_weights(
    pretrained, config, tmp_path, monkeypatch
):
    parent, scores = pretrained
    monkeypatch.setattr(pretrain_module, "held_out_scores", lambda *_args, **_kwargs: scores)
    draw, drawn = pretrain_module._window, []

    def killed(*args, **kwargs):
        drawn.append(kwargs["step"])
        if len(drawn) == 3:
            raise KeyboardInterrupt
        return draw(*args, **kwargs)

    monkeypatch.setattr(pretrain_module, "_window", killed)
    resumed = tmp_path / "resumed"
    with pytest.raises(KeyboardInterrupt):
        pretrain(config, resumed, checkpoint_every=4, progress=False)
    assert not resumed.exists()
    with pytest.raises(ValueError, match=r"another configuration \(seed differ\)"):
        pretrain(replace(config, seed=1), resumed, progress=False)

    def no_space(*_args, **_kwargs):
        raise OSError("no space left on device")

    with monkeypatch.context() as full:
        full.setattr(MBart50Tokenizer, "save_pretrained", no_space)
        with pytest.raises(OSError, match="no space"):
            pretrain(config, resumed, checkpoint_every=4, progress=False)
    assert drawn[3] == drawn[2] > 0  # it went on where it had stopped
    assert [p.name for p in tmp_path.iterdir()] == [".resumed.unfinished"]  # to go on from
    pretrain(config, resumed, checkpoint_every=4, progress=False)
    first, second = ((path / "model.safetensors").read_bytes() for path in (parent / "model", resumed))
    assert first == second
    assert [p.name for p in tmp_path.iterdir()] == ["resumed"]


def test_a_damaged_checkpoint_is_named_and_without_it_the_run_begins_anew(texts, tokenizer, config, tmp_path):
    checkpoint = tmp_path / "checkpoint.pt"
    losses, _ = train(
        random_model(config, tokenizer, seed=0),
        tokenizer,
        texts,
        config,
        checkpoint=checkpoint,
        checkpoint_every=1,
    )
    good = checkpoint.read_bytes()
    places = range(0, len(good), len(good) // 30)
    changed = [good[:place] + bytes([good[place] ^ 1]) + good[place + 1 :] for place in places]
    for bad in (b"", b"x", good[:-1], good[: len(good) // 2], good + b"x", *changed):
        checkpoint.write_bytes(bad)
        fresh = random_model(config, tokenizer, seed=0)
        with pytest.raises(
            ValueError, match=f"{checkpoint} is damaged: .* remove it, and the same call begins anew"
        ):
            train(fresh, tokenizer, texts, config, checkpoint=checkpoint)
        checkpoint.unlink()
    checkpoint.write_bytes(good)
    again, _ = train(random_model(config, tokenizer, seed=1), tokenizer, texts, config, checkpoint=checkpoint)
    assert again == losses


def test_a_run_writes_a_directory_that_transformers_loads(pretrained, config):
    parent, scores = pretrained
    assert [p.name for p in parent.iterdir()] == ["model"]  # nothing temporary is left
    model = MBartForConditionalGeneration.from_pretrained(parent / "model")
    tokenizer = AutoTokenizer.from_pretrained(parent / "model")
    assert model.config.scale_embedding
    assert len(tokenizer) == model.config.vocab_size
    assert PretrainConfig(**json.loads((parent / "model" / "pretrain.json").read_text())) == config
    assert json.loads((parent / "model" / "scores.json").read_text()) == scores
    card = (parent / "model" / "README.md").read_text()
    assert f"{scores['denoising_loss']:.3f} | {scores['random_weights_denoising_loss']:.3f}" in card
    assert "pretrain(PretrainConfig(d_model=16" in card


def test_a_directory_that_holds_something_is_refused(pretrained, config, tmp_path):
    parent, _ = pretrained
    with pytest.raises(FileExistsError, match="already holds something"):
        pretrain(config, parent / "model")
    (tmp_path / "file").write_text("")
    with pytest.raises(FileExistsError, match="already holds something"):
        pretrain(config, tmp_path / "file")


@pytest.mark.parametrize(
    "wrong",
    [
        {"translation_steps": 0},
        {"denoising_share": 1.5},
        {"alignment_share": -0.1},
        {"alignment_temperature": 0.0},
        {"n_meanings": 1001},
        {"batch_size": 30},
    ],
)
def test_impossible_configurations_are_refused(wrong):
    with pytest.raises(ValueError, match=str(next(iter(wrong.values())))):
        PretrainConfig(**wrong)


def test_retrieval_counts_the_nearest_row():
    queries = torch.tensor([[1.0, 0.0], [0.0, 2.0], [1.0, 1.0]])
    candidates = torch.tensor([[3.0, 0.1], [0.0, 1.0], [0.0, 5.0]])
    assert retrieval_top1(queries, candidates) == pytest.approx(2 / 3)


# --- the shipped checkpoint --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shipped():
    return load()


@pytest.fixture(scope="module")
def claimed():
    return json.loads((COURSE_MBART_DIR / "scores.json").read_text())


def test_the_shipped_checkpoint_loads_through_plain_transformers(shipped):
    model = MBartForConditionalGeneration.from_pretrained(COURSE_MBART_DIR)
    tokenizer = AutoTokenizer.from_pretrained(COURSE_MBART_DIR)
    assert isinstance(tokenizer, MBart50Tokenizer)
    assert model.dtype == torch.float16
    for plain, ours in zip(model.float().parameters(), shipped[0].parameters(), strict=True):
        assert torch.equal(plain, ours)
    assert (model.config.d_model, model.config.encoder_layers, model.config.scale_embedding) == (256, 3, True)
    assert (COURSE_MBART_DIR / "model.safetensors").stat().st_size <= 25 * 10**6


def test_the_shipped_configuration_is_the_default_one(claimed):
    assert json.loads((COURSE_MBART_DIR / "pretrain.json").read_text()) == PretrainConfig().__dict__
    card = (COURSE_MBART_DIR / "README.md").read_text()
    for name in ("denoising_loss", "translation_exact_match", "retrieval_top1", "hard_retrieval_top1"):
        assert f"{claimed[name]:.3f} | {claimed['random_weights_' + name]:.3f}" in card


def test_the_shipped_checkpoint_keeps_what_its_card_claims(shipped, claimed):
    model, tokenizer = shipped
    untrained = random_model(PretrainConfig(), tokenizer, seed=1).eval()
    trained = denoising_scores(model, tokenizer, PretrainConfig(), n_documents=128)
    random = denoising_scores(untrained, tokenizer, PretrainConfig(), n_documents=24)
    # Other documents than the card's: about 700 masked words, a standard error below 0.02.
    assert trained["masked_word_accuracy"] > claimed["masked_word_accuracy"] - 0.06
    assert trained["masked_word_accuracy"] > random["masked_word_accuracy"] + 0.12
    assert trained["denoising_loss"] < claimed["denoising_loss"] + 0.15 < random["denoising_loss"]


def test_the_shipped_checkpoint_puts_translations_together(shipped, claimed):
    trained = retrieval_scores(*shipped, n_candidates=100, progress=False)
    # Among fewer candidates than the card's the task is easier.
    assert trained["retrieval_top1"] > claimed["retrieval_top1"] - 0.02
    assert claimed["retrieval_top1"] > claimed["random_weights_retrieval_top1"] + 0.5


def test_the_shipped_checkpoint_tells_neighbours_apart(shipped, claimed):
    trained = hard_retrieval_scores(*shipped, n_meanings=30, progress=False)
    # 12 pairs of languages of 30 meanings each: a standard error of about 0.03.
    assert trained["hard_retrieval_top1"] > claimed["hard_retrieval_top1"] - 0.08
    assert trained["hard_retrieval_candidates"] == pytest.approx(claimed["hard_retrieval_candidates"], abs=1)


def test_the_shipped_checkpoint_translates(shipped, claimed):
    trained = translation_scores(*shipped, n_pairs=100)
    assert trained["translation_exact_match"] > claimed["translation_exact_match"] - 0.12
    assert trained["translation_loss"] < claimed["translation_loss"] + 0.05


def test_the_model_without_alignment_is_the_other_half_of_the_comparison(claimed):
    """Trained as long and translating as well, it does not put translations nearest each other."""
    directory = SHIPPED[UNALIGNED]
    assert (
        json.loads((directory / "pretrain.json").read_text()) == PretrainConfig(alignment_share=0.0).__dict__
    )
    own = json.loads((directory / "scores.json").read_text())
    assert abs(own["translation_exact_match"] - claimed["translation_exact_match"]) < 0.01
    model, tokenizer = load(UNALIGNED)
    assert translation_scores(model, tokenizer, n_pairs=40)["translation_exact_match"] > 0.85
    found = hard_retrieval_scores(model, tokenizer, n_meanings=30, progress=False)["hard_retrieval_top1"]
    assert found == pytest.approx(own["hard_retrieval_top1"], abs=0.1)
    assert found < claimed["hard_retrieval_top1"] - 0.25


def test_both_shipped_models_of_the_generated_language_are_a_small_download():
    weights = [(SHIPPED[name] / "model.safetensors").read_bytes() for name in OF_GENERATED_TEXT]
    assert sum(len(zlib.compress(each, 6)) for each in weights) <= 25 * 10**6
