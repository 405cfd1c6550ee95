"""What is written is what is read, and what cannot be read is named."""

import dataclasses
import json
import shutil
import subprocess
import sys

import pytest
import torch

from course_lib import sae
from course_lib.interpret.run_directory import (
    Feature,
    RunDirectory,
    RunError,
    RunSentence,
    SharedConcept,
    TopSentence,
    metrics_as_json,
    read_metrics,
)
from tests.interpret.browser.runs import some_concepts, some_metrics, without_digests
from tests.sae.test_io import FakeHub

ROWS = [
    RunSentence("the dog\u2028sees.\x85", "en_XX", frozenset({"b", "a"}), "train"),
    RunSentence("ein Hund", None, frozenset(), "held_out"),
]


def written(directory, **parts):
    sparse = sae.TopKSparseAutoencoder(8, 16, k=2, generator=torch.Generator().manual_seed(0))
    directory.mkdir(exist_ok=True)
    run = RunDirectory(directory)
    run.write(some_metrics(), ROWS, sparse=sparse, **parts)
    return RunDirectory(directory)


def test_what_was_written_is_read(tmp_path):
    features = [
        Feature(
            feature=3,
            strength=0.5,
            firing_rate=0.25,
            firing_rate_by_language={"en_XX": 0.125},
            shared_concepts=[SharedConcept("tool:saw", 3, 4, 0.1)],
            sentences=[TopSentence(7, 1.5, "saw", None, "a saw")],
        )
    ]
    metrics = dataclasses.replace(some_metrics(), features=features)
    stacked = sae.StackedAutoencoder(8, (4, 2), generator=torch.Generator().manual_seed(0))
    sparse = sae.TopKSparseAutoencoder(8, 16, k=2, generator=torch.Generator().manual_seed(0))
    vectors = {"encoder": torch.randn(2, 8), "decoder": torch.randn(8, 2).T}
    RunDirectory(tmp_path).write(
        metrics, ROWS, stacked=stacked, sparse=sparse, vectors=vectors, concepts=some_concepts()
    )
    run = RunDirectory(tmp_path)
    assert run.metrics == metrics
    assert run.sentences == ROWS
    assert [row.held_out for row in run.sentences] == [False, True]
    assert run.sentences[0].sentence.concepts == {"a", "b"}
    assert run.concepts == some_concepts()
    assert {name: table.tolist() for name, table in run.vectors().items()} == {
        name: table.tolist() for name, table in vectors.items()
    }
    assert torch.equal(run.sparse().decoder_weight, sparse.decoder_weight)
    assert torch.equal(next(run.stacked().parameters()), next(stacked.parameters()))
    run.write_report("<p>", {"one": "<svg/>"})
    assert run.report.read_text() == "<p>"
    assert (tmp_path / "figures" / "one.svg").read_text() == "<svg/>"


def test_other_programs_find_the_concepts_summed_up(tmp_path):
    run = written(tmp_path, concepts=some_concepts())
    content = json.loads((tmp_path / "metrics.json").read_text())
    del content["sha256"]
    assert content == metrics_as_json(run.metrics, run.concepts)
    assert content["concepts"]["features"]["n_concepts"] == 3
    assert content["concepts"]["features"]["lexical_not_scored"] == 1
    assert "pca_of_train" not in content["stacked"]["train"]
    assert metrics_as_json(run.metrics, None)["concepts"] is None
    assert written(tmp_path / "without").concepts is None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda m: m.pop("format"), "no format number; this version of course_lib reads format 1: make the"),
        (lambda m: m.update(format=2), "format 2; this version of course_lib reads format 1"),
        (lambda m: m["run"].pop("seed"), "metrics.json: run is damaged: seed missing"),
        (lambda m: m["run"].update(seed="0"), "run: seed is damaged: it is '0'; expected a whole number"),
        (lambda m: m["run"].update(seed=True), "it is True; expected a whole number"),
        (lambda m: m["run"].update(warnings={}), "warnings is damaged: it is {}; expected a list"),
        (lambda m: m["run"].update(warnings=[3]), r"warnings\[0\] is damaged: it is 3; expected a text"),
        (lambda m: m["run"]["seconds"].update(text=None), "seconds: text .*expected a finite number"),
        (lambda m: m["sparse"]["train"].update(l0=float("nan")), "sparse: train: l0 .*expected a finite"),
        (lambda m: m.update(stacked=[]), r"stacked is damaged: it is \[\]; expected an object"),
        (lambda m: m["stacked"].update(supervised=1), "supervised is damaged: it is 1; expected true or"),
    ],
)
def test_what_is_wrong_in_the_numbers_is_named(change, words, tmp_path):
    written(tmp_path)
    path = tmp_path / "metrics.json"
    content = json.loads(path.read_text())
    del content["sha256"]
    change(content)
    path.write_text(json.dumps(content))
    with pytest.raises(RunError, match=words) as caught:
        _ = RunDirectory(tmp_path).metrics
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("metrics.json", b"{", r"metrics\.json is damaged: it is not JSON"),
        ("metrics.json", b"[]", "has no format number"),
        ("metrics.json", b"\xff", "is damaged: it is not UTF-8"),
        ("sentences.jsonl", b"", r"sentences\.jsonl, line 1 is damaged: it is not JSON"),
        (
            "sentences.jsonl",
            b'{"text": "a", "language": null, "concepts": [], "split": "test"}\n',
            "line 1 is damaged: split is 'test'",
        ),
        (
            "concepts.json",
            b"{}",
            r"concepts\.json is damaged: scores, categories, lexical, skipped, settings",
        ),
        ("activations.safetensors", b"x", r"activations\.safetensors cannot be read"),
    ],
)
def test_a_damaged_file_is_named(name, content, words, tmp_path):
    without_digests(written(tmp_path).path)
    run = RunDirectory(tmp_path)
    (tmp_path / name).write_bytes(content)
    asked = {
        "metrics.json": lambda: run.metrics,
        "sentences.jsonl": lambda: run.sentences,
        "concepts.json": lambda: run.concepts,
        "activations.safetensors": run.vectors,
    }
    with pytest.raises(RunError, match=words):
        asked[name]()


READERS = {
    "metrics.json": lambda run: run.metrics,
    "sentences.jsonl": lambda run: run.sentences,
    "concepts.json": lambda run: run.concepts,
    "activations.safetensors": lambda run: run.vectors(),
    "sparse/config.json": lambda run: dict(run.sparse().state_dict()),
    "sparse/model.safetensors": lambda run: dict(run.sparse().state_dict()),
    "stacked/config.json": lambda run: dict(run.stacked().state_dict()),
    "stacked/model.safetensors": lambda run: dict(run.stacked().state_dict()),
}


def whole(directory, *, seed=0):
    run = written(
        directory,
        stacked=sae.StackedAutoencoder(8, (4, 2), generator=torch.Generator().manual_seed(seed)),
        vectors={"encoder": torch.arange(16.0).reshape(2, 8) + seed},
        concepts=some_concepts(),
    )
    assert {p.relative_to(directory).as_posix() for p in directory.rglob("*.*")} == {*READERS}
    return run


def outcome(read, directory):
    """What is read, or "refused" where the error names a file of the directory."""
    try:
        return str(read(RunDirectory(directory)))
    except ValueError as error:
        return "refused" if str(directory) in str(error) else str(error)


@pytest.mark.parametrize("name", READERS)
def test_no_changed_bit_is_read_as_a_value(name, tmp_path):
    whole(tmp_path)
    path = tmp_path / name
    good = path.read_bytes()
    value = str(READERS[name](RunDirectory(tmp_path)))
    for place in range(0, len(good), max(1, len(good) // 60)):
        path.write_bytes(good[:place] + bytes([good[place] ^ 1]) + good[place + 1 :])
        # White space and what is ignored may change without a change of a value.
        assert outcome(READERS[name], tmp_path) in (value, "refused")
    for cut in (0, 1, len(good) // 2, len(good) - 2):
        path.write_bytes(good[:cut])
        with pytest.raises(ValueError, match=str(path.parent)):
            READERS[name](RunDirectory(tmp_path))
    path.unlink()
    with pytest.raises((RunError, FileNotFoundError), match=str(path)):
        READERS[name](RunDirectory(tmp_path))


def test_a_number_or_a_word_of_another_value_is_refused(tmp_path):
    whole(tmp_path)
    for name, old, new in [
        ("metrics.json", '"l0": 4.0', '"l0": 4.1'),
        ("concepts.json", "0.912345", "0.912344"),
        ("sentences.jsonl", "the dog", "the fog"),
        ("sentences.jsonl", '"held_out"}', '"train"}'),
    ]:
        path = tmp_path / name
        good = path.read_text()
        assert old in good
        path.write_text(good.replace(old, new))
        with pytest.raises(
            RunError, match=rf"{name} is damaged: it has another SHA-256 .*make the run again"
        ):
            READERS[name](RunDirectory(tmp_path))
        path.write_text(good)


@pytest.mark.parametrize("name", ["stacked", "sparse"])
def test_the_autoencoder_of_another_run_is_refused(name, tmp_path):
    run = whole(tmp_path / "run")
    changed = {"stacked": run.stacked, "sparse": run.sparse}[name]()
    changed.input_scale.mul_(2)
    shutil.rmtree(run.path / name)
    sae.save(changed, run.path / name)  # whole, with its own digest
    with pytest.raises(RunError, match=f"{name}/config.json is damaged: it has another SHA-256"):
        READERS[f"{name}/config.json"](RunDirectory(run.path))


def test_a_run_without_digests_is_read_as_it_is(tmp_path):
    new = whole(tmp_path)
    expected = {name: str(read(new)) for name, read in READERS.items()}
    without_digests(new.path)
    old = RunDirectory(tmp_path)
    assert {name: str(read(old)) for name, read in READERS.items()} == expected


def test_a_directory_without_a_run_and_another_kind_of_autoencoder(tmp_path):
    with pytest.raises(
        RunError, match=r"metrics\.json cannot be read .*expected the directory of a pipeline"
    ):
        read_metrics(tmp_path / "metrics.json")
    run = written(tmp_path / "run")
    other = written(tmp_path / "other")
    without_digests(other.path)
    shutil.rmtree(other.path / "sparse")
    sae.save(sae.StackedAutoencoder(8, (4, 2)), other.path / "sparse")
    with pytest.raises(RunError, match="'stacked' autoencoder; expected a sparse one"):
        RunDirectory(tmp_path / "other").sparse()
    assert f"{run!r}" == f"RunDirectory({str(tmp_path / 'run')!r})"


def test_numbers_and_sentences_are_read_without_torch(tmp_path):
    written(tmp_path)
    code = (
        "import sys\nfrom course_lib.interpret.run_directory import RunDirectory\n"
        f"run = RunDirectory({str(tmp_path)!r})\nrun.metrics, run.sentences\n"
        "print(sorted({'torch', 'numpy', 'transformers'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# --- The hub -------------------------------------------------------------------------------------------


def test_a_run_goes_to_the_hub_whole_and_comes_back(tmp_path, monkeypatch):
    run, fake = written(tmp_path / "run", concepts=some_concepts()), FakeHub(tmp_path / "hub")
    monkeypatch.setitem(sys.modules, "huggingface_hub", fake)
    assert run.push_to_hub("mine") == "me/mine"
    back = RunDirectory.from_pretrained("me/mine")
    assert back.path == tmp_path / "hub" / "me" / "mine"
    assert fake.asked[-1] == ("download", "me/mine", None, None, None, False)
    assert (back.metrics, back.sentences) == (run.metrics, run.sentences)
    run.save_pretrained(tmp_path / "copy")
    files = [path.relative_to(run.path) for path in run.path.rglob("*") if path.is_file()]
    assert all((tmp_path / "copy" / name).read_bytes() == (run.path / name).read_bytes() for name in files)
    with pytest.raises(FileExistsError):
        run.save_pretrained(tmp_path / "copy")


@pytest.mark.parametrize("name", ["sentences.jsonl", "sparse/model.safetensors"])
def test_a_damaged_run_is_not_sent(name, tmp_path, monkeypatch):
    run, fake = written(tmp_path / "run", concepts=some_concepts()), FakeHub(tmp_path / "hub")
    monkeypatch.setitem(sys.modules, "huggingface_hub", fake)
    damaged = bytearray((run.path / name).read_bytes())
    damaged[-3] ^= 1
    (run.path / name).write_bytes(damaged)
    for act in (lambda: run.push_to_hub("mine"), lambda: run.save_pretrained(tmp_path / "copy")):
        with pytest.raises(ValueError, match="SHA-256"):
            act()
    assert (fake.asked, (tmp_path / "copy").exists()) == ([], False)
