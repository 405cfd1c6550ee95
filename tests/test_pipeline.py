import base64
import dataclasses
import json
import re
import shutil
from collections import Counter
from html.parser import HTMLParser

import pytest
import torch
from matplotlib.figure import Figure
from transformers import AutoConfig, MBartConfig, MBartForConditionalGeneration

from course_lib import devices, pipeline, sae
from course_lib.interpret.detectors import REACHED
from course_lib.interpret.run_directory import RunDirectory, metrics_as_json
from course_lib.language.corpus import LEXICAL_CONCEPTS, Sentence, generate, split_of
from course_lib.mbart import packed
from course_lib.pipeline import InputError, SparseConfig, StackedConfig, autoencoders, report, run
from course_lib.pipeline.autoencoders import StackedRun
from course_lib.pipeline.states import SentenceStates, TokenStates
from course_lib.pipeline.text import token_concepts
from tests.drawing import assert_clear_layout
from tests.tiny_mbart import SENTENCES, write_tiny_mbart

QUICK = sae.TrainConfig(steps=60, batch_size=64, step_size=1e-2)
STACKED = StackedConfig(training=QUICK)
SPARSE = SparseConfig(n_features=128, training=QUICK)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    directory = tmp_path_factory.mktemp("tiny")
    write_tiny_mbart(directory)
    return str(directory)


def mixed_lines():
    prefixes = ("", "en_XX\t", "fr\t", "de_DE\t")
    return [prefixes[i % 4] + sentence for i, sentence in enumerate(SENTENCES)]


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "mixed.txt"
    lines = mixed_lines()
    lines[5:5] = ["", "   ", "fr_XX\t  "]
    path.write_bytes(b"\xef\xbb\xbf" + "\r\n".join(lines).encode())
    return path


def quick(**changes):
    return run(**({"stacked": STACKED, "sparse": SPARSE, "device": "cpu", "progress": False} | changes))


def with_figures(**options):
    """A run, and the figures that it saved."""
    drawn, save = [], Figure.savefig
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Figure, "savefig", lambda self, *a, **k: (drawn.append(self), save(self, *a, **k)))
        return quick(**options), drawn


@pytest.fixture(scope="module")
def first(model, text, tmp_path_factory):
    return with_figures(model=model, text=text, out=tmp_path_factory.mktemp("runs") / "first", seed=3)


@pytest.fixture(scope="module")
def result(first):
    return first[0]


@pytest.fixture(scope="module")
def unsupervised(model, tmp_path_factory):
    """A run on the decoder's states of a text that names no languages."""
    folder = tmp_path_factory.mktemp("unsupervised")
    (folder / "plain.txt").write_text("\n".join(SENTENCES[:100]))
    return with_figures(model=model, text=folder / "plain.txt", out=folder / "out", site="decoder")


def test_everything_is_there(result):
    found = {str(path.relative_to(result.path)) for path in result.path.rglob("*") if path.is_file()}
    figures = {"explained_variance", "firing_rates", "sparse_loss", "stacked_loss", "unit_means"}
    assert found == {
        "activations.safetensors",
        "sentences.jsonl",
        "metrics.json",
        "report.html",
        *(
            f"{name}/{file}"
            for name in ("stacked", "sparse")
            for file in ("config.json", "model.safetensors")
        ),
        *(f"figures/{name}.svg" for name in figures),
    }
    assert [path.name for path in result.path.parent.iterdir()] == ["first"]
    written = json.loads((result.path / "metrics.json").read_text())
    read_back = {name for name in found if name.endswith((".json", ".jsonl", "activations.safetensors"))}
    assert set(written.pop("sha256")) == read_back
    assert written == metrics_as_json(result.metrics, result.concepts)


def test_sentences_and_states_are_in_the_order_of_the_file(result, model):
    rows = result.sentences
    assert [row.text for row in rows] == SENTENCES
    assert [row.language for row in rows[:4]] == [None, "en_XX", "fr_XX", "de_DE"]
    held_out = sum(row.held_out for row in rows)
    assert held_out == result.metrics.run.held_out == round(0.1 * len(SENTENCES))
    states = result.vectors()
    assert {name: tuple(table.shape) for name, table in states.items()} == {
        "encoder": (len(SENTENCES), 32),
        "decoder": (len(SENTENCES), 32),
    }
    from course_lib.mbart.activations import pooled_states
    from course_lib.mbart.model import load

    mbart, tokenizer = load(model, device="cpu", dtype=torch.float32)
    alone = pooled_states(mbart, tokenizer, [Sentence(SENTENCES[2], "fr_XX")], progress=False)
    torch.testing.assert_close(alone.encoder[0], states["encoder"][2], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(alone.decoder[0], states["decoder"][2], rtol=1e-4, atol=1e-5)


def test_saved_autoencoders_give_the_reported_numbers(result, model):
    states = result.vectors()["encoder"]
    train = torch.tensor([not row.held_out for row in result.sentences])
    stacked = result.stacked()
    with torch.no_grad():
        explained = sae.metrics.explained_variance(states[train], stacked(states[train]))
    assert explained == pytest.approx(result.metrics.stacked.train.explained_variance, abs=1e-6)

    from course_lib.mbart.activations import Site, extract
    from course_lib.mbart.model import load

    mbart, tokenizer = load(model)
    site = Site("encoder")
    sentences = [row.sentence for row in result.sentences]
    of_tokens = extract(mbart, tokenizer, sentences, [site], progress=False)[site]
    assert len(of_tokens.values) == result.metrics.run.tokens
    measured = sae.metrics.evaluate(result.sparse(), of_tokens.values[train[of_tokens.sentence]])
    reported = result.metrics.sparse.train
    assert measured.n_rows == reported.rows
    assert measured.explained_variance == pytest.approx(reported.explained_variance, abs=1e-6)
    assert measured.l0 == pytest.approx(reported.l0, abs=1e-4)


def test_numbers_are_plausible(result):
    stacked, sparse = result.metrics.stacked, result.metrics.sparse
    assert stacked.code_width == 4
    assert sparse.config["n_features"] == 128
    for side in ("train", "held_out"):
        of_stacked = getattr(stacked, side)
        assert 0 < of_stacked.explained_variance <= of_stacked.pca_bound < 1
        assert 0 < getattr(sparse, side).explained_variance < 1
    assert stacked.held_out.pca_of_train <= stacked.held_out.pca_bound
    assert stacked.supervised
    assert stacked.config["n_outputs"] == 3
    assert set(result.metrics.run.languages) == {"de_DE", "en_XX", "fr_XX", "not given"}
    strengths = [feature.strength for feature in result.metrics.features]
    assert strengths == sorted(strengths, reverse=True)
    for feature in result.metrics.features:
        activations = [sentence.activation for sentence in feature.sentences]
        assert activations == sorted(activations, reverse=True)
        assert all(SENTENCES[s.row] == s.text for s in feature.sentences)


class Page(HTMLParser):
    def __init__(self):
        super().__init__()
        self.images, self.words, self.outside, self.marked, self.tag = [], [], [], [], None

    def handle_starttag(self, tag, attrs):
        attrs, self.tag = dict(attrs), tag
        if tag == "img":
            self.images.append(attrs)
        self.outside += [
            attrs[key] for key in ("src", "href") if not attrs.get(key, "data:").startswith("data:")
        ]

    def handle_data(self, data):
        self.words.append(data)
        if self.tag == "mark":
            self.marked.append(data)

    def handle_endtag(self, tag):
        self.tag = None


def test_the_page_stands_alone_and_says_what_was_measured(result):
    page = Page()
    page.feed(result.report.read_text())
    assert page.outside == []
    assert len(page.images) == 5
    for image in page.images:
        assert len(image["alt"]) > 40
        assert base64.b64decode(image["src"].partition(",")[2]).lstrip().startswith(b"<?xml")
    words = " ".join(page.words)
    for side in ("train", "held_out"):
        for trained in (result.metrics.stacked, result.metrics.sparse):
            assert f"{getattr(trained, side).explained_variance:.1%}" in words
    assert f"{result.metrics.stacked.train.pca_bound:.1%}" in words
    for feature in result.metrics.features:
        for sentence in feature.sentences:
            before, word, after = report.in_context(sentence.text, sentence.word)
            assert sentence.piece in word
            assert before + word + after == sentence.text  # all are short
    assert f"{before}<mark>{word}</mark>{after}</td>" in result.report.read_text()
    assert result.concepts is None
    assert "Concepts" not in words
    assert "cross-entropy of a linear classifier" in words


def test_the_same_seed_gives_the_same_numbers_and_another_does_not(result, model, text, tmp_path):
    def numbers(metrics):
        return dataclasses.replace(metrics, run=dataclasses.replace(metrics.run, seconds={}))

    again = quick(model=model, text=text, out=tmp_path / "again", seed=3)
    assert numbers(again.metrics) == numbers(result.metrics)
    other = quick(model=model, text=text, out=tmp_path / "other", seed=4)
    assert other.metrics.stacked.train != result.metrics.stacked.train


def test_without_languages_nothing_is_supervised(unsupervised):
    found, _ = unsupervised
    assert not found.metrics.stacked.supervised
    assert found.metrics.stacked.config["gamma"] == 0
    assert "switched off (gamma = 0)" in found.report.read_text()
    means = found.vectors()
    centre = found.sparse().input_mean
    # The mean over tokens lies near the mean over sentences of the same side, far from that of the other.
    near, far = ((centre - means[side].mean(dim=0)).norm() for side in ("decoder", "encoder"))
    assert near < far / 3


def test_the_model_reads_every_sentence_once(model, text, tmp_path, monkeypatch):
    read, stages = [], packed.stages

    def counted(mbart, source, target=None):
        read.append(len(source.lengths))
        return stages(mbart, source, target)

    monkeypatch.setattr("course_lib.mbart.packed.stages", counted)
    for site in ("encoder", "decoder"):
        read.clear()
        quick(model=model, text=text, out=tmp_path / site, site=site)
        assert sum(read) == len(SENTENCES)


def test_a_small_model_gets_one_thread_and_the_user_what_is_asked_for(model, text, tmp_path):
    with devices.threads(3):
        alone = quick(model=model, text=text, out=tmp_path / "alone")
        asked = quick(model=model, text=text, out=tmp_path / "asked", threads=2)
        assert torch.get_num_threads() == 3
    for done, threads in ((alone, 1), (asked, 2)):
        assert done.metrics.run.threads == threads
        assert f'<th scope="row">Threads</th><td>{threads}</td>' in done.report.read_text()


@pytest.mark.parametrize("coded", [True, False])
def test_the_built_in_model_says_that_it_has_not_read_other_text_and_only_then(coded, tmp_path):
    read = tmp_path / "read.txt"
    spoken = generate(60, seed=8, split="test")
    read.write_text("\n".join(f"{s.language}\t{s.text}" if coded else s.text for s in spoken))
    found = quick(model="course-mbart", text=read, out=tmp_path / "its_own")
    assert not [w for w in found.metrics.run.warnings if "course-mbart" in w or "unknown" in w]
    # Words that it knows, said in another way: nothing is unknown, and still it cannot read them.
    (tmp_path / "other.txt").write_text("\n".join(("en\t" if coded else "") + s for s in SENTENCES[:60]))
    found = quick(model="course-mbart", text=tmp_path / "other.txt", out=tmp_path / "other")
    (warning,) = [w for w in found.metrics.run.warnings if "course-mbart" in w or "unknown" in w]
    assert warning.startswith("course-mbart has read nothing but the generated")
    text, own = map(float, re.search(r"costs it (\S+) nats .*corpus (\S+);", warning).groups())
    assert text > 1 > 100 * own
    assert "its states say little about other text" in found.report.read_text()
    assert "no feature gets a name" in found.report.read_text()


def test_an_autoencoder_from_elsewhere_is_warned_of_the_same_text(tmp_path):
    alone = sae.TopKSparseAutoencoder(256, 64, k=4, generator=torch.Generator().manual_seed(0))
    (tmp_path / "other.txt").write_text("\n".join(s.replace("dog", "Ж") for s in SENTENCES[:60]))
    found = pipeline.run_of_autoencoder(
        alone,
        out=tmp_path / "out",
        model="course-mbart",
        site="encoder",
        text=tmp_path / "other.txt",
        progress=False,
    )
    unread, unknown = found.metrics.run.warnings
    assert unread.startswith("course-mbart has read nothing but the generated")
    assert "pieces are unknown" in unknown


def test_a_text_of_unknown_pieces_is_called_so(model, tmp_path):
    (tmp_path / "text.txt").write_text(
        "\n".join(s.replace("dog", "Ж").replace("cat", "Щ") for s in SENTENCES)
    )
    found = quick(model=model, text=tmp_path / "text.txt", out=tmp_path / "out")
    (warning,) = [w for w in found.metrics.run.warnings if "unknown" in w]
    share = float(re.match(r"(\S+)%", warning)[1])
    words = [word for s in SENTENCES for word in s.split()]
    assert 0.5 < share / (100 * sum(word in ("dog", "cat") for word in words) / len(words)) < 1
    assert "unknown to the model" in found.report.read_text()


def test_the_page_escapes_sentences_and_shows_warnings(model, tmp_path, monkeypatch):
    monkeypatch.setattr(autoencoders, "OVERFIT_FROM", -2.0)
    path = tmp_path / "markup.txt"
    path.write_text("\n".join(f"{s} <script>alert({i})</script>" for i, s in enumerate(SENTENCES[:60])))
    done = quick(model=model, text=path, out=tmp_path / "out")
    page = done.report.read_text()
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    of_heart = [w for w in done.metrics.run.warnings if "by heart" in w]
    assert len(of_heart) == page.count("by heart") == 2


def test_features_are_described_by_whole_words_in_context(tmp_path):
    """The built-in model's tokenizer cuts the words of other text into pieces, which say nothing to a reader."""
    ends = "which changes the paragraph, cell and border formatting of the selected worksheet"
    lines = [
        f"Spreadsheet ({i}) - {word} hyperlinks are unavailable, {ends}"
        for i, word in enumerate(80 * ["LibreOffice"])
    ]
    (tmp_path / "own.txt").write_text("\n".join(lines))
    done = quick(model="course-mbart", text=tmp_path / "own.txt", out=tmp_path / "out")
    whole = {word.lower() for line in lines for word in re.findall(r"\w+|[^\w\s]+", line)}
    pieces = {piece for feature in done.metrics.features for piece in feature.tokens}
    assert len(pieces - whole) > 5
    page = Page()
    page.feed(done.report.read_text())
    marked = iter(page.marked)
    for feature in done.metrics.features:
        assert set(feature.words) <= whole
        assert [next(marked) for _ in feature.words] == feature.words
        for sentence in feature.sentences:
            before, word, after = report.in_context(sentence.text, sentence.word)
            assert word.lower() in whole
            assert sentence.piece in (
                "<unk>",
                *(word[i:j] for i in range(len(word)) for j in range(i, len(word) + 1)),
            )
            assert next(marked) == word
            assert max(len(before), len(after)) < report.AROUND + 3
    assert next(marked, None) is None
    assert f"{before}<mark>{word}</mark>{after}</td>" in done.report.read_text()
    back = RunDirectory(done.path).metrics.features
    assert back == done.metrics.features


def test_a_long_sentence_is_cut_between_words():
    text = " ".join(f"word{i}" for i in range(100))
    start = text.index("word50")
    before, word, after = report.in_context(text, [start, start + 6])
    assert word == "word50"
    assert before.startswith("… word39 ")
    assert before.endswith(" word49 ")
    assert after.startswith(" word51 ")
    assert after.endswith(" …")
    kept = (before[2:] + word + after[:-2]).split()
    assert kept == text.split()[50 - kept.index("word50") :][: len(kept)]
    assert report.AROUND - 10 < len(before) <= report.AROUND + 2
    # Without blanks there is no other place to cut at.
    before, word, after = report.in_context("x" * 200 + "!" + "y" * 200, [200, 201])
    assert (before, word, after) == ("… " + "x" * report.AROUND, "!", "y" * report.AROUND + " …")
    assert report.in_context("!", [0, 1]) == ("", "!", "")


def test_pieces_are_shown_where_the_place_of_a_token_is_not_known(model, text, tmp_path, monkeypatch):
    def unknown(*_, **__):
        raise ValueError("it does not say")

    monkeypatch.setattr("course_lib.mbart.families.spans", unknown)
    done = quick(model=model, text=text, out=tmp_path / "out")
    page = Page()
    page.feed(done.report.read_text())
    first = done.metrics.features[0]
    assert (first.words, first.sentences[0].word) == ([], [])
    assert page.marked[: len(first.tokens)] == first.tokens
    shown = f"<td><strong>{first.sentences[0].piece}</strong></td><td"
    assert shown in done.report.read_text()
    assert f">{first.sentences[0].text}</td>" in done.report.read_text()


def test_both_autoencoders_train_on_the_training_side_with_the_labels_of_its_rows(monkeypatch):
    """Held-out rows stand between the others here, as in a user's file: a count in the place of a mask would not do."""
    given = []

    class AskedError(Exception):
        """Training was asked for."""

    def record(autoencoder, states, config, *, labels=None, **_):
        given.append((states, labels))
        raise AskedError

    monkeypatch.setattr(sae, "train", record)
    sentences = [
        Sentence(str(i), language) for i, language in enumerate(("en_XX", "fr_XX", "fr_XX", "en_XX") * 3)
    ]
    states = torch.arange(48.0).reshape(12, 4)
    held_out = torch.arange(12) % 3 == 1
    rows = SentenceStates(sentences, states, held_out)
    tokens = TokenStates(sentences, states, torch.arange(12), ["x"] * 12, held_out)
    with pytest.raises(AskedError):
        autoencoders.train_stacked(rows, STACKED, seed=0, progress=False)
    with pytest.raises(AskedError):
        autoencoders.train_sparse(tokens, SPARSE, seed=0, device=states.device, progress=False)
    (stacked, labels), (sparse, _) = given
    assert torch.equal(stacked, states[~held_out])
    assert torch.equal(sparse, states[~held_out])
    assert labels.tolist() == [0, 1, 0, 1, 1, 0, 1, 0]


def test_the_builtin_corpus_names_concepts(model, tmp_path, monkeypatch):
    monkeypatch.setattr(autoencoders, "MIN_HELD_OUT", 5)
    short = dataclasses.replace(QUICK, steps=300)
    found = quick(
        model=model,
        out=tmp_path / "out",
        n_sentences=600,
        stacked=dataclasses.replace(STACKED, training=short),
        sparse=dataclasses.replace(SPARSE, training=short),
    )
    assert (found.metrics.run.sentences, found.metrics.run.held_out) == (600, 275)
    scored = found.concepts
    features = scored.summary()["features"]
    assert set(scored.scores) == {"features", "neurons", "components", "random", "means", "lda", "probe"}
    corpus = found.sentences
    held_out = Counter(c for row in corpus if row.held_out for c in row.concepts)
    assert all(held_out[score.concept] >= 5 for score in scored.scores["features"])
    # What is not scored is said, and is not shown as missing.
    assert features["n_lexical"] + features["lexical_not_scored"] == len(LEXICAL_CONCEPTS)
    assert features["lexical_not_scored"] > 0
    (note,) = (w for w in found.metrics.run.warnings if "not scored" in w)
    assert note.startswith(f"{features['lexical_not_scored']} of {len(LEXICAL_CONCEPTS)} lexical concepts")
    assert {p.name for p in (found.path / "figures").iterdir()} >= {"concepts.svg", "splitting.svg"}
    page = found.report.read_text()
    assert "<h2>Concepts</h2>" in page
    assert f"{features['lexical_median_f1']:.2f}" in page
    assert f"of {features['lexical_not_scored']} others nothing is known" in page
    lines = report.describe_concepts(scored)
    assert f"{features['lexical_reached']:.1%} of {features['n_lexical']} lexical concepts" in lines
    spans, absorbed = scored.span_summary(), scored.absorption()
    assert list(spans) == ["features", "neurons", "components", "random", "directions"]
    assert {one["n"] for one in spans.values()} == {features["n_lexical"]}
    assert f"precision of {spans['features']['precision']:.2f}" in lines
    assert all(label in page for label in ("random directions", "words called", "random pair"))
    assert f"silent in {absorbed['absorbed']:.1%} of the sentences" in lines
    assert f"{absorbed['absorbed_random']:.1%} for the other category" in page
    short = scored.shortfall_summary()
    below = sorted(
        (score.f1, score.concept)
        for score in scored.scores["features"]
        if score.together and score.f1 < REACHED
    )
    assert [row.concept for row in scored.shortfalls] == [concept for _, concept in below]
    assert short["n"] == len(below)
    written = json.loads((found.path / "metrics.json").read_text())
    assert "concepts.json" in written.pop("sha256")
    assert written == metrics_as_json(found.metrics, scored)
    assert f"below F1 0.9: {short['n']} concepts; the feature of {short['split']} fires or not" in lines
    assert "Where one feature falls short" in page
    assert all(f"<td>{concept}</td>" in page for _, concept in below)
    shared = [(feature, s) for feature in found.metrics.features for s in feature.shared_concepts]
    assert shared
    for feature, entry in shared:
        top = [corpus[sentence.row].concepts for sentence in feature.sentences]
        assert sum(entry.concept in concepts for concepts in top) == entry.count >= 0.75 * len(top)
        usual = sum(entry.concept in row.concepts for row in corpus) / len(corpus)
        assert entry.usual_share == pytest.approx(usual)
        assert entry.count / entry.of >= 2 * usual


@pytest.mark.parametrize("layers", [1, pytest.param(12, marks=pytest.mark.nightly)])
def test_the_architecture_of_mbart_large_50_goes_to_128(layers, tmp_path):
    """Width 1024, at night all 12 + 12 layers, with random weights; a small vocabulary for memory."""
    write_tiny_mbart(tmp_path / "large")
    config = MBartConfig(vocab_size=AutoConfig.from_pretrained(tmp_path / "large").vocab_size)
    assert (config.d_model, config.encoder_layers, config.decoder_layers) == (1024, 12, 12)
    config.encoder_layers = config.decoder_layers = layers
    with torch.random.fork_rng():
        torch.manual_seed(0)
        MBartForConditionalGeneration(config).half().save_pretrained(tmp_path / "large")
    few = dataclasses.replace(QUICK, steps=5)
    (tmp_path / "text.txt").write_text("\n".join(mixed_lines()[:60]))
    found = quick(
        model=str(tmp_path / "large"),
        text=tmp_path / "text.txt",
        out=tmp_path / "out",
        stacked=dataclasses.replace(STACKED, training=few),
        sparse=SparseConfig(training=few),
    )
    assert found.metrics.stacked.config["widths"] == [512, 128]
    assert found.stacked().code_width == 128
    assert found.sparse().n_features == 8192


def test_too_few_sentences_to_score_concepts_on_are_reported(tmp_path):
    found = quick(model="course-mbart", text="builtin", out=tmp_path / "out", n_sentences=60)
    assert found.concepts is None
    assert not any("course-mbart" in w for w in found.metrics.run.warnings)
    (note,) = (w for w in found.metrics.run.warnings if "concepts" in w)
    assert note.startswith(
        "concepts were not scored: no lexical concept has 10 rows in train and 30 in held_out"
    )
    assert note in found.report.read_text()


# --- What cannot be used ---------------------------------------------------------------------------


def written(path, content: bytes):
    path.write_bytes(content)
    return path


GOOD = "\n".join(SENTENCES[:60]).encode()
BAD_TEXTS = {
    "missing": (None, r"missing does not exist"),
    "empty": (b"", r"holds no sentence"),
    "blank": (b"\n  \n\t\r\n", r"holds no sentence"),
    "latin-1": (GOOD + b"\nla ma\xeetresse\n" + GOOD, r"line 61: byte 0xee is not UTF-8"),
    "short": (b"one sentence\nanother one\n", r"2 sentences, 2 of them different; at least 50"),
    "repeated": (b"the same\n" * 500, r"500 sentences, 1 of them different"),
    "language": (GOOD + b"\n\nxx_XX\tthe dog sees a house.\n", r"line 62: .*'xx_XX'"),
    "pairs": (GOOD + b"\nen\tthe dog.\tfr\tle chien.\n", r"line 61 has 3 tabs; expected none or one"),
    "table.jsonl": (b'{"text": "the dog."}\n' * 80, r"is a table; expected a text file"),
    "long": (GOOD + b"\n" + b"the dog " * 40, r"sentence 61 has \d+ tokens"),
}


@pytest.mark.parametrize("name", BAD_TEXTS)
def test_unusable_text_is_refused_and_leaves_nothing(name, model, tmp_path):
    content, message = BAD_TEXTS[name]
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(InputError, match=message):
        quick(model=model, text=path, out=tmp_path / "out")
    assert sorted(tmp_path.iterdir()) == before


def test_a_directory_is_no_text(model, tmp_path):
    with pytest.raises(InputError, match="is a directory"):
        quick(model=model, text=tmp_path, out=tmp_path / "out")


def test_an_occupied_directory_is_refused_and_kept(model, text, tmp_path):
    (tmp_path / "out").mkdir()
    written(tmp_path / "out" / "notes.txt", b"mine")
    with pytest.raises(InputError, match="already holds something"):
        quick(model=model, text=text, out=tmp_path / "out")
    with pytest.raises(InputError, match="already holds something"):
        quick(model=model, text=text, out=tmp_path / "out" / "notes.txt")
    assert (tmp_path / "out" / "notes.txt").read_bytes() == b"mine"


def test_unusable_arguments_are_named(model, text, tmp_path):
    with pytest.raises(InputError, match="10 sentences asked for"):
        quick(model=model, text=text, out=tmp_path / "out", n_sentences=10)
    for device in ("cuda:99", "abacus"):
        with pytest.raises(InputError, match=f"device '{device}' cannot be used"):
            quick(model=model, text=text, out=tmp_path / "out", device=device)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(InputError, match="threads is 0; expected 1 or more"):
        quick(model=model, text=text, out=tmp_path / "out", threads=0)
    with pytest.raises(InputError, match="site 'both': side is 'both'; expected 'encoder' or 'decoder'"):
        quick(model=model, text=text, out=tmp_path / "out", site="both")


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_an_interrupted_run_leaves_nothing(error, model, text, tmp_path, monkeypatch):
    def stop(*args, **kwargs):
        raise error

    monkeypatch.setattr(RunDirectory, "write_report", stop)
    few = dataclasses.replace(QUICK, steps=2)
    with pytest.raises(error):
        quick(
            model=model,
            text=text,
            out=tmp_path / "out",
            stacked=dataclasses.replace(STACKED, training=few),
            sparse=dataclasses.replace(SPARSE, training=few),
        )
    assert list(tmp_path.iterdir()) == []


# --- Parts -----------------------------------------------------------------------------------------


def test_read_text_stops_at_the_limit(text):
    lines = pipeline.read_text(text, seed=0, limit=60)
    assert [line.sentence.text for line in lines] == SENTENCES[:60]
    assert [line.number for line in lines[3:7]] == [4, 5, 9, 10]


def test_short_language_codes_stand_for_the_only_match():
    def lines(code):
        return [pipeline.Line(7, Sentence("a", code))]

    known = {"en_XX", "pt_XX", "pt_BR"}
    assert pipeline.resolve_languages(lines("en"), known=known, source="a.txt")[0].language == "en_XX"
    with pytest.raises(InputError, match=r"line 7: .*'pt'.*en_XX, pt_BR, pt_XX"):
        pipeline.resolve_languages(lines("pt"), known=known, source="a.txt")


def test_split_keeps_equal_sentences_and_translations_together():
    sentences = [Sentence(str(i % 70), None) for i in range(140)]
    held_out = pipeline.split(sentences, seed=0)
    assert torch.equal(held_out[:70], held_out[70:])
    assert int(held_out.sum()) == 14
    mixed = [Sentence(f"{i}", "en_XX", meaning=i // 2) for i in range(140)] + [
        Sentence("of nobody's", None)
    ] * 2
    held_out = pipeline.split(mixed, seed=0)
    assert torch.equal(held_out[::2], held_out[1::2])
    assert not torch.equal(held_out, pipeline.split(mixed, seed=1))


def test_the_builtin_text_is_held_out_as_it_was_from_pretraining():
    lines = pipeline.read_text("builtin", seed=0, limit=90)
    held_out = pipeline.split([line.sentence for line in lines], seed=0)
    assert held_out.tolist() == [False] * 49 + [True] * 41
    assert all(split_of(line.sentence.meaning) == "train" for line in lines[:49])


def test_figures_show_what_was_measured(result):
    stacked = StackedRun(
        autoencoder=result.stacked(),
        config=STACKED,
        history=sae.History(
            steps=[10, 20],
            parts={"reconstruction": [0.5, 0.4], "kl": [3, 2], "supervised": [2, 1], "total": [1, 0.9]},
        ),
        pca_curve=torch.tensor([0.3, 0.5, 0.6, 0.8, 1.0]),
        target="language",
        train=result.metrics.stacked.train,
        held_out=result.metrics.stacked.held_out,
        unit_means=torch.tensor([0.1, 0.4, 0.2, 0.3]),
        normality=result.metrics.stacked.normality,
    )
    figure, alt, _ = report._unit_means(stacked)
    units, target = figure.axes[0].lines
    assert list(units.get_ydata()) == pytest.approx([0.4, 0.3, 0.2, 0.1])
    assert target.get_ydata()[0] == stacked.autoencoder.rho
    assert "from 0.100 to 0.400" in alt
    figure, _, _ = report._explained_variance(stacked)
    pca, _, train, held_out = figure.axes[0].lines
    assert list(pca.get_ydata()) == pytest.approx([0.3, 0.5, 0.6, 0.8, 1.0])
    assert (train.get_xdata()[0], held_out.get_xdata()[0]) == (4, 4)
    assert train.get_ydata()[0] == result.metrics.stacked.train.explained_variance
    assert held_out.get_ydata()[0] == result.metrics.stacked.held_out.explained_variance

    figure, alt, _ = report._stacked_loss(stacked)
    curves = {line.get_label(): list(line.get_ydata()) for line in figure.axes[0].lines}
    scales = [QUICK.sparsity_scale_at(step - 1) for step in (10, 20)]
    assert curves[f"KL sparsity x {STACKED.beta:g}"] == pytest.approx(
        [STACKED.beta * scale * value for scale, value in zip(scales, (3, 2), strict=True)]
    )
    assert curves["reconstruction"] == [0.5, 0.4]
    assert (
        len({(line.get_linestyle(), line.get_color()) for line in figure.axes[0].lines}) == len(curves) == 4
    )
    assert "total 0.900" in alt


@pytest.mark.parametrize("which", ["first", "unsupervised"])
def test_no_text_of_a_figure_overlaps_another_or_leaves_the_canvas(which, request):
    _, drawn = request.getfixturevalue(which)
    assert len(drawn) == 5
    for figure in drawn:
        assert_clear_layout(figure)


def test_a_folder_that_cannot_be_made_is_refused(model, text, tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("in the way", encoding="utf-8")
    with pytest.raises(InputError, match="cannot be written"):
        run(model=model, text=text, out=blocked / "out", progress=False)
    assert blocked.read_text(encoding="utf-8") == "in the way"


def test_states_without_variance_are_named(model, text, tmp_path):
    flat = MBartForConditionalGeneration.from_pretrained(model)
    with torch.no_grad():
        for layer in flat.model.encoder.layers:
            layer.fc2.weight.zero_()
    shutil.copytree(model, tmp_path / "flat")
    flat.save_pretrained(tmp_path / "flat")
    with pytest.raises(
        InputError, match=r"have equal states at encoder\.1\.mlp: there is no variance to explain"
    ):
        quick(model=str(tmp_path / "flat"), text=text, site="encoder.1.mlp", out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_sentences_learned_by_heart_are_called_so():
    (warning,) = autoencoders.warn_of_overfitting("stacked", 0.988, -0.412)
    assert "stacked autoencoder explains 99% of the variance in training and -41%" in warning
    assert autoencoders.warn_of_overfitting("stacked", 0.82, 0.81) == []
    assert autoencoders.warn_of_overfitting("sparse", 0.88, 0.78) == []


def test_tokens_are_labelled_with_the_concepts_of_their_words():
    from course_lib.mbart.activations import Site, extract
    from course_lib.mbart.model import load

    model, tokenizer = load("course-mbart")
    sentences = generate(40, seed=5)
    said = token_concepts(tokenizer, sentences)
    states = extract(model, tokenizer, sentences, [Site("encoder")], progress=False)[Site("encoder")]
    assert len(said) == len(states.values)
    pieces = tokenizer.convert_ids_to_tokens(states.token.tolist())
    for i, sentence in enumerate(sentences):
        of_sentence = [
            (p, c) for p, c, s in zip(pieces, said, states.sentence.tolist(), strict=True) if s == i
        ]
        for concept in sentence.concepts & set(LEXICAL_CONCEPTS):
            written = "".join(piece for piece, concepts in of_sentence if concept in concepts)
            words = [sentence.text[start:end] for start, end, c in sentence.words if c == concept]
            assert re.sub("[▁ ]", "", written) == re.sub(" ", "", "".join(words))


def test_the_scores_of_a_sparse_code_are_those_of_its_dense_rows():
    made = sae.TopKSparseAutoencoder(8, 24, k=3, generator=torch.Generator().manual_seed(0))
    states = torch.randn(50, 8, generator=torch.Generator().manual_seed(1))
    made.fit_normalisation(states)
    held_out = torch.arange(50) % 3 == 0
    tokens = TokenStates(
        [Sentence(str(i), None) for i in range(50)], states, torch.arange(50), ["x"] * 50, held_out
    )
    code, scores = autoencoders.read_code(made, tokens, batch_size=16)
    with torch.no_grad():
        dense = made.encode(states)
    # The products of 16 rows and of all 50 may differ in their last digit.
    assert torch.equal(code.to_dense() > 0, dense > 0)
    torch.testing.assert_close(code.to_dense(), dense)
    for side, rows in (("train", ~held_out), ("held_out", held_out)):
        assert scores[side].rows == int(rows.sum())
        assert scores[side].l0 == pytest.approx((dense[rows] > 0).sum(dim=1).double().mean().item())
        assert scores[side].dead == int((~(dense[rows] > 0).any(dim=0)).sum())
        explained = sae.metrics.explained_variance(states[rows], made(states[rows]).detach())
        assert scores[side].explained_variance == pytest.approx(explained, abs=1e-6)
