import os
import socket
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from course_lib.__main__ import app
from course_lib.mbart.activation_store import ActivationStore
from tests.tiny_mbart import SENTENCES, write_tiny_mbart


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    directory = tmp_path_factory.mktemp("tiny")
    write_tiny_mbart(directory)
    return str(directory)


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text("\n".join(f"en\t{s}" if i % 2 else f"de\t{s}" for i, s in enumerate(SENTENCES[:70])))
    return str(path)


def options(model, text, out, *more):
    return ["activations", "--model", model, "--text", text, "--out", str(out), "--shard-size", "16", *more]


def invoke(*arguments):
    return CliRunner().invoke(app, options(*arguments))


def files(path):
    return {p.name: p.read_bytes() for p in sorted(Path(path).iterdir())}


def test_a_store_is_written_and_gone_on_with(model, text, tmp_path):
    from course_lib.mbart.activation_store import ActivationStore

    out = tmp_path / "store"
    done = invoke(model, text, out, "--pool", "mean", "--site", "encoder.-1", "--dtype", "float32")
    assert done.exit_code == 0, done.output
    assert f"70 rows of 32 float32 numbers from 70 sentences at encoder.1\nstore: {out}" in done.stdout
    assert "activations: 70sentence" in done.stderr
    before = files(out)
    (out / "shard-00003.safetensors").unlink()
    again = invoke(
        model, text, out, "--pool", "mean", "--site", "encoder.-1", "--dtype", "float32", "--no-progress"
    )
    assert again.exit_code == 0, again.output
    assert files(out) == before
    assert len(ActivationStore(out).shards) == 5


def test_the_number_of_sentences_can_be_limited(model, text, tmp_path):
    done = invoke(model, text, tmp_path / "store", "--sentences", "20", "--pool", "mean")
    assert done.exit_code == 0, done.output
    assert "20 rows" in done.stdout


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--site", "encoder.9"], "the encoder has layers 1 to 1"),
        (["--site", "encoder.last"], "such as encoder.final"),
        (["--text", "none.txt"], "none.txt is not a file"),
        (["--model", "no/such/model"], "neither a directory that exists nor a hub name"),
        (["--device", "abacus"], "cannot be used"),
        (["--sentences", "0"], "expected at least 1"),
        (["--shard-size", "0"], "shard_size is 0"),
    ],
)
def test_what_cannot_be_used_is_explained(model, text, tmp_path, more, words):
    done = invoke(model, text, tmp_path / "store", *more)
    assert done.exit_code == 2
    assert isinstance(done.exception, SystemExit)
    assert done.stderr.startswith("error: ")
    assert words in done.stderr


def test_the_store_of_another_run_is_explained(model, text, tmp_path):
    assert invoke(model, text, tmp_path / "store", "--pool", "mean").exit_code == 0
    done = invoke(model, text, tmp_path / "store")
    assert done.exit_code == 2
    assert "its pool is 'mean', now 'tokens'" in done.stderr


def test_two_processes_give_the_bytes_of_one(model, text, tmp_path):
    # Two ranks as torchrun starts them, but forked: two more imports of transformers would cost half a minute.
    more = ["--dtype", "float32", "--no-progress"]
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    children = []
    for rank in range(2):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"}
                os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
                done = invoke(model, text, tmp_path / "two", *more)
                (tmp_path / f"{rank}.txt").write_text(f"{done.output}{done.exception or ''}")
                code = done.exit_code
            finally:
                os._exit(code)
        children.append(child)
    endings = [os.waitpid(child, 0)[1] for child in children]
    said = "".join((tmp_path / f"{rank}.txt").read_text() for rank in range(2))
    assert endings == [0, 0], said
    assert said.count("store: ") == 1
    assert invoke(model, text, tmp_path / "one", *more).exit_code == 0
    assert files(tmp_path / "two") == files(tmp_path / "one")


def test_some_tokens_of_each_sentence_are_kept_drawn_by_seed(model, text, tmp_path):
    repeated = tmp_path / "text.txt"
    repeated.write_text(Path(text).read_text() + "\n" + Path(text).read_text())
    more = ["--dtype", "float32", "--no-progress"]
    stores = {}
    for name, options in {
        "all": [],
        "some": ["--tokens-per-sentence", "3"],
        "small shards": ["--tokens-per-sentence", "3", "--shard-size", "7", "--tokens-per-batch", "30"],
        "other seed": ["--tokens-per-sentence", "3", "--seed", "1"],
    }.items():
        done = invoke(model, str(repeated), tmp_path / name, *more, *options)
        assert done.exit_code == 0, done.output
        stores[name] = ActivationStore(tmp_path / name)
    whole, some = stores["all"], stores["some"]
    counts, kept = (store.column("sentence").bincount(minlength=140) for store in (whole, some))
    assert counts.max() > 3
    assert torch.equal(kept, counts.clamp(max=3))
    places = {
        (s, p): row
        for row, (s, p) in enumerate(
            zip(whole.column("sentence").tolist(), whole.column("position").tolist(), strict=True)
        )
    }
    drawn = list(zip(some.column("sentence").tolist(), some.column("position").tolist(), strict=True))
    assert drawn == sorted(set(drawn))
    assert torch.equal(some[:], whole[torch.tensor([places[at] for at in drawn])])
    # Equal sentences have equal rows, so that a split by sentence keeps both on one side.
    assert [(s - 70, p) for s, p in drawn if s >= 70] == [(s, p) for s, p in drawn if s < 70]
    for name in ("position", "token"):
        assert torch.equal(stores["small shards"].column(name), some.column(name))
    assert not torch.equal(stores["other seed"].column("position"), some.column("position"))
    # All places are drawn, not only the first ones.
    assert {p for _, p in drawn} == set(whole.column("position").tolist())


@pytest.mark.parametrize(
    "more", [[], ["--tokens-per-sentence", "2"], ["--tokens-per-sentence", "3", "--seed", "1"]]
)
def test_a_store_of_other_tokens_is_not_gone_on_with(more, model, text, tmp_path):
    assert invoke(model, text, tmp_path / "s", "--tokens-per-sentence", "3").exit_code == 0
    done = invoke(model, text, tmp_path / "s", *more)
    assert done.exit_code == 2
    name = "seed" if "--seed" in more else "tokens_per_sentence"
    assert f"its {name} is" in done.stderr


def test_numbers_of_tokens_that_cannot_be_drawn_are_named(model, text, tmp_path):
    done = invoke(model, text, tmp_path / "s", "--tokens-per-sentence", "0")
    assert "tokens_per_sentence is 0; expected 1 or more" in done.stderr
    done = invoke(model, text, tmp_path / "s", "--tokens-per-sentence", "3", "--pool", "mean")
    assert "rows are means of all tokens; expected pool 'tokens'" in done.stderr
    assert invoke(model, text, tmp_path / "s", "--tokens-per-sentence", "3").exit_code == 0
    done = CliRunner().invoke(
        app,
        [
            "pipeline",
            "--model",
            model,
            "--text",
            text,
            "--store",
            str(tmp_path / "s"),
            "--out",
            str(tmp_path / "o"),
        ],
    )
    assert "has tokens_per_sentence 3; expected None" in done.stderr


def test_a_model_may_compute_in_float16(model, text, tmp_path):
    for dtype in ("float16", "float32"):
        done = invoke(model, text, tmp_path / dtype, "--dtype", dtype, "--no-progress")
        assert done.exit_code == 0, done.output
    half, full = (ActivationStore(tmp_path / dtype) for dtype in ("float16", "float32"))
    assert half.dtype == torch.float16
    assert torch.equal(half.column("token"), full.column("token"))
    # Ten bits after the point, through two layers.
    torch.testing.assert_close(half[:].float(), full[:], rtol=0.02, atol=0.02)
