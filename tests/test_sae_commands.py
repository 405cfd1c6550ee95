"""`sae train | evaluate | export`: the same numbers as the library, gone on with after a kill, and nothing mixed up."""

import json
import math
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from typer.testing import CliRunner

from course_lib import sae
from course_lib.__main__ import app
from course_lib.commands.options import Kind
from course_lib.interpret.browser.index import FeatureIndex
from course_lib.interpret.run_directory import RunDirectory
from course_lib.language.corpus import Sentence
from course_lib.mbart.activation_store import ActivationStore
from course_lib.mbart.activations import Site, extract
from course_lib.mbart.model import load
from course_lib.mbart.splicing import loss_recovered
from course_lib.pipeline import SparseConfig
from course_lib.pipeline.seeds import generator
from course_lib.pipeline.states import hold_out
from course_lib.sae import checkpoints, sae_lens_format
from tests.tiny_families import write_tiny
from tests.tiny_mbart import SENTENCES, write_tiny_mbart

QUICK = ("--features", "48", "--k", "4", "--steps", "30", "--batch-size", "64", "--checkpoint-every", "10")


def command(*arguments, code=0):
    done = CliRunner().invoke(app, list(map(str, arguments)))
    assert done.exit_code == code, done.output
    return done


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A model, a text, its stores, and those of another model."""
    root = tmp_path_factory.mktemp("made")
    (root / "text.txt").write_text("\n".join(SENTENCES[:80]))
    for name, write in (("model", write_tiny_mbart), ("other", lambda path: write_tiny("mbart50", path))):
        (root / name).mkdir()
        write(root / name)
        command(
            *(
                "activations",
                "--model",
                root / name,
                "--text",
                root / "text.txt",
                "--out",
                root / f"{name}_store",
            ),
            *("--dtype", "float32", "--no-progress"),
        )
    return root


def train(made, out, *more, store="model_store", code=0):
    return command("sae", "train", "--store", made / store, "--out", out, "--no-progress", *more, code=code)


@pytest.fixture(scope="module")
def trained(made, tmp_path_factory):
    out = tmp_path_factory.mktemp("run") / "run"
    train(made, out, *QUICK)
    return out


def killed(action):
    """Whether a process that does this was killed in it."""
    child = os.fork()
    if child == 0:
        try:
            action()
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


def test_killed_after_a_checkpoint_or_while_saving_it_ends_with_the_same_bits(made, trained, tmp_path):
    out = tmp_path / "run"

    def die(*args, **kwargs):
        os.kill(os.getpid(), signal.SIGKILL)

    def until_20():
        write = checkpoints.write
        checkpoints.write = lambda path, step, *rest: write(path, step, *rest) if step < 20 else die()
        train(made, out, *QUICK)

    def until_saved():
        sae.io.to_bytes = die
        train(made, out, *QUICK)

    assert killed(until_20)
    assert [p.name for p in (out / "checkpoints").glob("*.safetensors")] == ["step-00000010.safetensors"]
    done = command("sae", "export", out, "--out", tmp_path / "x", code=2)
    assert "is not finished; run the same `sae train` again" in done.stderr
    assert killed(until_saved)
    assert not (out / "autoencoder").exists()
    train(made, out, *QUICK)
    for file in ("model.safetensors", "config.json"):
        assert (out / "autoencoder" / file).read_bytes() == (trained / "autoencoder" / file).read_bytes()
    before = (out / "autoencoder" / "model.safetensors").stat().st_mtime_ns
    train(made, out, *QUICK)  # finished: nothing is done again
    assert (out / "autoencoder" / "model.safetensors").stat().st_mtime_ns == before


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_a_finished_run_that_was_damaged_is_not_called_done(name, made, trained, tmp_path):
    out = tmp_path / "run"
    shutil.copytree(trained, out)
    path = out / "autoencoder" / name
    good = path.read_bytes()
    for bad in (b"", good[:-9], good.replace(b"t", b"u", 1)):
        path.write_bytes(bad)
        done = train(made, out, *QUICK, code=2)
        said = f"Remove {out / 'autoencoder'} and give the same command again: it goes on from the last checkpoint"
        assert name in done.stderr
        assert said in done.stderr
    shutil.rmtree(out / "autoencoder")
    train(made, out, *QUICK)
    assert path.read_bytes() == good


def test_a_damaged_shard_is_named_by_whatever_reads_it(made, trained, tmp_path):
    store = tmp_path / "store"
    shutil.copytree(made / "model_store", store)
    shard = store / "shard-00000.safetensors"
    data = bytearray(shard.read_bytes())
    data[-5] ^= 1
    shard.write_bytes(data)
    of_text = ("--model", made / "model", "--text", made / "text.txt", "--no-progress")
    for arguments in (
        ("sae", "train", "--store", store, "--out", tmp_path / "run", "--no-progress", *QUICK),
        ("sae", "evaluate", trained, "--store", store),
        ("pipeline", "--out", tmp_path / "p", "--store", store, *of_text),
    ):
        said = command(*arguments, code=2).stderr
        assert (
            f"error: the store {store} is damaged: shard-00000.safetensors does not have the checksum" in said
        )
        assert "give the command that wrote it again" in said
    assert not (tmp_path / "p").exists()


def test_a_choice_that_was_damaged_is_named(made, trained, tmp_path):
    out, rng = tmp_path / "run", random.Random(0)
    shutil.copytree(trained, out)
    path = out / "choice.json"
    good = path.read_bytes()
    wrong = [b"", b"[]", b"{}", good[:-3]]
    for place in rng.sample(range(len(good)), 20):
        changed = bytearray(good)
        changed[place] ^= 1 << rng.randrange(8)
        wrong.append(bytes(changed))
    refused = 0
    for bad in wrong:
        path.write_bytes(bad)
        result = CliRunner().invoke(app, ["sae", "export", str(out), "--out", str(tmp_path / "x")])
        if result.exit_code:
            assert result.exit_code == 2, result.output
            assert f"error: {path} is " in result.stderr
            refused += 1
        else:  # one blank for another
            assert json.loads(bad) == json.loads(good)
            shutil.rmtree(tmp_path / "x")
    assert refused >= 20


def test_another_run_is_not_gone_on_with(made, trained, tmp_path):
    for more, store, words in (
        ((), "other_store", "its store.weights_sha256 is"),
        (("--seed", "1"), "model_store", "its seed is 0, now 1"),
        (("--k", "5"), "model_store", "its config.k is 4, now 5"),
        (("--steps", "31"), "model_store", "its training.steps is 30, now 31"),
    ):
        done = train(made, trained, *QUICK, *more, store=store, code=2)
        assert done.stderr.startswith(f"error: {trained} is another run: ")
        if store == "model_store":
            assert words in done.stderr
    (tmp_path / "note.txt").write_text("mine")
    assert "holds something else (note.txt)" in train(made, tmp_path, *QUICK, code=2).stderr
    assert "expected a store" in train(made, tmp_path / "o", store="none", code=2).stderr
    assert not (tmp_path / "o").exists()


@pytest.mark.parametrize("kind", Kind)
def test_every_kind_is_trained_evaluated_and_exported(kind, made, tmp_path):
    penalty = {"relu": "0.1", "gated": "0.1", "jumprelu": "0.01"}.get(kind)
    sparsity = () if kind == "gba" else ("--k", "4") if penalty is None else ("--penalty", penalty)
    train(
        made, tmp_path / "run", "--kind", kind, "--features", 48, *sparsity, "--steps", 20, "--batch-size", 64
    )
    own = sae.load(tmp_path / "run" / "autoencoder")
    said = command("sae", "evaluate", tmp_path / "run", "--store", made / "model_store").stdout
    rows = ActivationStore(made / "model_store")
    found = sae.metrics.evaluate(own, rows)
    assert said.splitlines() == [
        f"rows: {len(rows)}",
        f"explained variance: {found.explained_variance:.4f}",
        f"active features a row (l0): {found.l0:.2f}",
        f"alive features: {48 - found.n_dead} of 48",
        f"dead features: {found.n_dead} of 48",
    ]
    command("sae", "export", tmp_path / "run", "--out", tmp_path / "lens")
    command("sae", "export", tmp_path / "run", "--out", tmp_path / "own", "--format", "safetensors")
    for read in (sae_lens_format.load(tmp_path / "lens"), sae.load(tmp_path / "own")):
        torch.testing.assert_close(read(rows[:50]), own(rows[:50]), atol=1e-5, rtol=1e-4)
    metadata = json.loads((tmp_path / "lens" / "cfg.json").read_text())["metadata"]
    assert metadata == {"model_name": str(made / "model"), "hook_name": "encoder.final"}


def test_cross_entropy_is_that_of_the_library_and_of_the_same_model_alone(made, trained, tmp_path):
    options = (
        "--store",
        made / "model_store",
        "--text",
        made / "text.txt",
        "--sentences",
        30,
        "--no-progress",
    )
    said = command("sae", "evaluate", trained, *options, "--model", made / "model").stdout
    model, tokenizer = load(str(made / "model"))
    own, sentences = sae.load(trained / "autoencoder"), [Sentence(s, None) for s in SENTENCES[:30]]
    site = ActivationStore(made / "model_store").site
    found = loss_recovered(model, tokenizer, own, site, sentences, sentences, progress=False)
    before, after = map(float, re.search(r": (\S+) before and (\S+) after", said).groups())
    assert (before, after) == pytest.approx((found.clean, found.spliced), abs=1e-4)
    assert before != after
    done = command("sae", "evaluate", trained, *options, "--model", made / "other", code=2)
    assert "is of another model" in done.stderr
    done = command("sae", "evaluate", trained, "--store", made / "other_store", code=2)
    assert "was trained on states with weights_sha256" in done.stderr


def held_out_rows(store, share=0.1, seed=0):
    return hold_out(store, share, generator=generator(seed, 6))


def test_held_out_sentences_are_not_trained_on_and_what_is_printed_is_measured_on_them(made, tmp_path):
    file = tmp_path / "metrics.json"
    out = tmp_path / "run"
    said = train(made, out, *QUICK, "--held-out", 0.25, "--metrics-file", file).stdout
    store, own = ActivationStore(made / "model_store"), sae.load(out / "autoencoder")
    mask = held_out_rows(store, 0.25)
    torch.testing.assert_close(own.input_mean, store[~mask].mean(dim=0))
    x = store[mask]
    with torch.no_grad():
        code, x_hat = own.encode(x), own(x)
    alive = int((code > 0).any(dim=0).sum())
    measured = json.loads(file.read_text())
    explained = 1 - (x - x_hat).square().sum() / (x - x.mean(dim=0)).square().sum()
    assert measured == pytest.approx(
        {
            "rows": int(mask.sum()),
            "features": 48,
            "dead_features": 48 - alive,
            "frac_alive_features": alive / 48,
            "l0": (code > 0).sum().item() / len(x),
            "explained_variance": explained.item(),
            "mse": (x - x_hat).square().mean().item(),
            "cossim": ((x * x_hat).sum(dim=1) / (x.norm(dim=1) * x_hat.norm(dim=1))).mean().item(),
        },
        rel=1e-5,
    )
    n = len(store.column("sentence", mask).unique())
    assert said.splitlines() == [
        f"on {n} held-out sentences:",
        f"rows: {len(x)}",
        f"explained variance: {measured['explained_variance']:.4f}",
        f"active features a row (l0): {measured['l0']:.2f}",
        f"alive features: {alive} of 48",
        f"dead features: {48 - alive} of 48",
        f"metrics: {file}",
        f"autoencoder: {out / 'autoencoder'}",
    ]
    first = file.read_bytes()
    file.unlink()
    train(made, out, *QUICK, "--held-out", 0.25, "--metrics-file", file)  # finished: measured once more
    assert file.read_bytes() == first
    assert "its held_out is 0.25, now 0.1" in train(made, out, *QUICK, code=2).stderr
    assert "its held_out is 0.25, now None" in train(made, out, *QUICK, "--held-out", 0, code=2).stderr


def test_the_split_is_by_sentence_and_equal_sentences_stay_on_one_side(made, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("\n".join([*SENTENCES[:40], *SENTENCES[:40]]))
    of_text = ("--model", made / "model", "--text", text, "--dtype", "float32", "--no-progress")
    command("activations", *of_text, "--out", tmp_path / "store")
    store = ActivationStore(tmp_path / "store")
    sentence, masks = store.column("sentence"), [held_out_rows(store, 0.3, seed) for seed in (0, 0, 1)]
    assert torch.equal(masks[0], masks[1])
    assert not torch.equal(masks[0], masks[2])
    held = set(sentence[masks[0]].tolist())
    assert not held & set(sentence[~masks[0]].tolist())
    assert {number % 40 for number in held if number < 40} == {number % 40 for number in held if number >= 40}
    different = len(set(SENTENCES[:40]))
    assert len({SENTENCES[number % 40] for number in held}) == round(0.3 * different)
    command("activations", *of_text, "--pool", "mean", "--out", tmp_path / "means")
    assert int(held_out_rows(ActivationStore(tmp_path / "means"), 0.3).sum()) == 24


def test_without_a_split_all_rows_are_trained_on(made, tmp_path):
    out = tmp_path / "run"
    said = train(made, out, *QUICK, "--held-out", 0).stdout
    assert said == f"autoencoder: {out / 'autoencoder'}\n"
    assert "held_out" not in json.loads((out / "choice.json").read_text())
    own, store = sae.load(out / "autoencoder"), ActivationStore(made / "model_store")
    torch.testing.assert_close(own.input_mean, store[:].mean(dim=0))


def test_the_loss_after_training_is_that_of_the_held_out_sentences(made, tmp_path):
    out, file = tmp_path / "run", tmp_path / "metrics.json"
    more = ("--model", made / "model", "--text", made / "text.txt", "--metrics-file", file)
    said = train(made, out, *QUICK, *more, "--sentences", 5).stdout
    store, own = ActivationStore(made / "model_store"), sae.load(out / "autoencoder")
    numbers = store.column("sentence", held_out_rows(store)).unique().tolist()[:5]
    chosen = [Sentence(SENTENCES[number], None) for number in numbers]
    model, tokenizer = load(str(made / "model"))
    found = loss_recovered(model, tokenizer, own, store.site, chosen, chosen, progress=False)
    measured = json.loads(file.read_text())
    assert measured["tokens"] == found.n_tokens
    assert measured["ce_loss_without_sae"] == pytest.approx(found.clean, rel=1e-5)
    assert measured["ce_loss_with_sae"] == pytest.approx(found.spliced, rel=1e-5)
    assert measured["ce_loss_with_ablation"] == pytest.approx(found.zero_ablated, rel=1e-5)
    if math.isnan(found.recovered):
        assert measured["ce_loss_score"] is None
    else:
        assert measured["ce_loss_score"] == pytest.approx(found.recovered, abs=1e-3)
        assert f"loss recovered: {measured['ce_loss_score']:.4f}" in said


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--held-out", "1"), "held_out is 1.0; expected a share of the sentences, from 0 (none) to below 1"),
        (("--held-out", "-0.1"), "held_out is -0.1; expected a share"),
        (("--held-out", "0.999"), "expected some to be left to train on"),
        (
            ("--held-out", "0", "--metrics-file", "x.json"),
            "held_out is 0, so that there is nothing to measure",
        ),
        (("--metrics-file", "no/such/place.json"), "expected a file in a directory that exists"),
        (("--model", "MADE/other"), "is of another model"),
        (("--model", "MADE/model"), "text is 'builtin', which is not what the store"),
    ],
)
def test_what_cannot_be_measured_is_said_before_training(more, words, made, tmp_path):
    more = [word.replace("MADE", str(made)) for word in more]
    assert words in train(made, tmp_path / "run", *QUICK, *more, code=2).stderr
    assert not (tmp_path / "run").exists()


def test_a_run_that_diverges_names_step_and_step_size_and_leaves_nothing(made, tmp_path):
    out = tmp_path / "run"
    said = train(made, out, *QUICK, "--step-size", "1e30", code=2).stderr
    assert re.search(
        r"error: training diverged: .* is not finite at step \d+ of 30, where the step size is ", said
    )
    assert "lower step_size, now 1e+30, and train again" in said
    assert list(tmp_path.iterdir()) == []
    train(made, out, *QUICK)  # the same directory takes the next try
    assert (out / "autoencoder").is_dir()
    out = tmp_path / "late"
    more = ("--step-size", "1e30", "--checkpoint-every", "1")
    said = train(made, out, *QUICK, *more, code=2).stderr
    (kept,) = (out / "checkpoints").glob("*.safetensors")
    assert f"the last checkpoint, {kept}, is kept" in said
    assert not (out / "autoencoder").exists()


def test_a_table_with_columns_by_other_names_and_the_standard_input(made, tmp_path):
    table = tmp_path / "text.csv"
    table.write_text("\n".join(["id,said", *(f"{i},{s}" for i, s in enumerate(SENTENCES[:80]))]))
    of_model = ("activations", "--model", made / "model", "--dtype", "float32", "--no-progress")
    named = ("--text", table, "--column", "text=said")
    command(*of_model, *named, "--out", tmp_path / "table")
    lines = "\n".join(SENTENCES[:80])
    done = CliRunner().invoke(
        app, [*map(str, of_model), "--text", "-", "--out", str(tmp_path / "lines")], input=lines
    )
    assert done.exit_code == 0, done.output
    rows = ActivationStore(made / "model_store")[:]
    for name in ("table", "lines"):
        assert torch.equal(ActivationStore(tmp_path / name)[:], rows)
    with_model = ("--model", made / "model", *named)
    said = [
        train(made, tmp_path / "a", *QUICK, *with_model, store=tmp_path / "table").stdout,
        train(made, tmp_path / "b", *QUICK, *with_model[:2], "--text", made / "text.txt").stdout,
    ]
    assert said[0].splitlines()[:-1] == said[1].splitlines()[:-1]
    assert "loss recovered" in said[0]
    for column, words in (
        ("said", "column is 'said'; expected text=NAME"),
        ("text=", "column is 'text='; expected text=NAME"),
        ("text=spoken", "text is column 'spoken', which"),
        ("words=said", "columns name words; expected some of"),
    ):
        done = command(*of_model, "--text", table, "--column", column, "--out", tmp_path / "o", code=2)
        assert words in done.stderr
        assert not (tmp_path / "o").exists()


def test_auxk_is_trained_with_and_recorded(made, trained, tmp_path):
    more = ("--steps", 90)  # dead is what was silent for 50 of them
    train(made, tmp_path / "run", *QUICK, *more, "--auxk", 8)
    train(made, tmp_path / "without", *QUICK, *more)
    with_it, without = (sae.load(tmp_path / name / "autoencoder") for name in ("run", "without"))
    assert (with_it.aux_k, with_it.dead_after, without.aux_k) == (8, 50 * 64, 0)
    assert not torch.equal(with_it.encoder_weight, without.encoder_weight)
    assert "its config.aux_k is 8, now None" in train(made, tmp_path / "run", *QUICK, *more, code=2).stderr


def test_a_file_of_options_trains_the_same(made, trained, tmp_path):
    (tmp_path / "choice.toml").write_text(
        "features = 48\nk = 9\nsteps = 30\nbatch_size = 64\nstep_size = 0.004\nkind = 'topk'\n"
    )
    train(made, tmp_path / "run", "--config", tmp_path / "choice.toml", "--k", 4)
    weights = [
        (run / "autoencoder" / "model.safetensors").read_bytes() for run in (trained, tmp_path / "run")
    ]
    assert weights[0] == weights[1]


def test_help_states_the_defaults_and_loads_nothing_heavy():
    said = " ".join(CliRunner(env={"COLUMNS": "300"}).invoke(app, ["sae", "train", "--help"]).stdout.split())
    made = SparseConfig()
    for default in (made.k, made.training.steps, made.training.batch_size, made.training.step_size):
        assert f"(default: {default})" in said
    code = (
        "import sys\nfrom course_lib.__main__ import app\n"
        "app(['sae', 'train', '--help'], standalone_mode=False)\n"
        "print(sorted({'torch', 'transformers'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip().endswith("[]")


def test_what_is_no_run_is_named(tmp_path):
    done = command("sae", "export", tmp_path, "--out", Path(tmp_path, "x"), code=2)
    assert f"error: {tmp_path} holds no autoencoder; expected a directory with one of: " in done.stderr


def test_an_autoencoder_alone_is_browsed_on_a_text(made, trained, tmp_path):
    of_text = ("--text", made / "text.txt", "--no-progress", "--effects", 2)
    own = sae.load(trained / "autoencoder")
    command("sae", "export", trained, "--out", tmp_path / "lens")
    command("browse", trained, "--out", tmp_path / "a", "--export", tmp_path / "a.html", *of_text)
    of_lens = ("--model", made / "model", "--site", "encoder")
    command(
        "browse",
        tmp_path / "lens",
        "--out",
        tmp_path / "b",
        "--export",
        tmp_path / "b.html",
        *of_text,
        *of_lens,
    )
    assert '"bread"' in (tmp_path / "a.html").read_text()
    sentences = [Sentence(s, None) for s in SENTENCES[:80]]
    site = Site("encoder")
    states = extract(*load(str(made / "model")), sentences, [site], progress=False)[site].values
    with torch.no_grad():
        code = own.encode(states)
    found = [FeatureIndex.open(tmp_path / name) for name in "ab"]
    for index in found:
        assert torch.tensor(index.tables["count"]).float() == pytest.approx(
            (code > 0).sum(dim=0).float(), abs=1
        )
        assert index.about["sentences"] == 80
        assert not index.tables["sentence_held_out"].any()
    # Lengths are shares of the states' spread: of those of the store without what was held out, and of this text.
    largest = code.amax(dim=0) * own.decoder_weight.detach().norm(dim=0)
    torch.testing.assert_close(torch.tensor(found[0].tables["largest"]), largest, atol=1e-4, rtol=1e-4)
    spread = (states - states.mean(dim=0)).square().sum(dim=1).mean().sqrt()
    shares = largest * own.input_scale / spread
    torch.testing.assert_close(torch.tensor(found[1].tables["largest"]), shares, atol=1e-4, rtol=1e-4)
    read = RunDirectory(tmp_path / "b")
    torch.testing.assert_close(read.sparse()(states), own(states), atol=1e-4, rtol=1e-4)
    assert (read.metrics.stacked, read.metrics.sparse.held_out) == (None, None)
    explained = sae.metrics.explained_variance(states, own(states).detach())
    assert read.metrics.sparse.train.explained_variance == pytest.approx(explained, abs=1e-4)
    command("browse", tmp_path / "b", "--export", tmp_path / "again.html", "--no-progress")
    assert (tmp_path / "again.html").read_bytes() == (tmp_path / "b.html").read_bytes()


@pytest.mark.parametrize(
    ("place", "more", "words"),
    [
        (
            "lens",
            (),
            "lens is none; expected the directory of a pipeline run, or, for an autoencoder alone, --out",
        ),
        ("lens", ("--model", "MADE/model"), "and a run has its own; expected --out with it"),
        ("lens", ("--out", "OUT"), "model is not given, and "),
        ("lens", ("--out", "OUT", "--model", "MADE/model"), "site is not given, and "),
        ("run", ("--out", "OUT", "--site", "decoder"), "was trained on states of 'encoder.final'"),
        ("run", ("--out", "OUT", "--model", "MADE/other"), "is of another model"),
        ("run", ("--out", "OUT", "--model", "no/model"), "no/model"),
        (
            "stacked",
            ("--out", "OUT", "--model", "MADE/model"),
            "holds a 'stacked' autoencoder; expected a sparse",
        ),
        ("wide", ("--out", "OUT", "--model", "MADE/model", "--site", "encoder"), "reads states of width 8"),
        ("none", ("--out", "OUT"), "holds no autoencoder"),
    ],
)
def test_what_cannot_be_browsed_is_said(place, more, words, made, trained, tmp_path):
    shutil.copytree(trained, tmp_path / "run")
    command("sae", "export", trained, "--out", tmp_path / "lens")
    sae.save(sae.StackedAutoencoder(32, [4]), tmp_path / "stacked")
    sae.save(sae.TopKSparseAutoencoder(8, 16, k=2), tmp_path / "wide")
    more = [word.replace("MADE", str(made)).replace("OUT", str(tmp_path / "out")) for word in more]
    ending = ("--text", made / "text.txt", "--export", tmp_path / "page.html", "--no-progress")
    assert words in command("browse", tmp_path / place, *more, *ending, code=2).stderr
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / "page.html").exists()


def test_autoencoders_of_other_libraries_are_evaluated_and_exported(made, trained, tmp_path):
    own, store = sae.load(trained / "autoencoder"), ActivationStore(made / "model_store")
    found = sae.metrics.evaluate(own, store)
    scale, mean = own.input_scale, own.input_mean
    encoder, bias = own.encoder_weight.detach() / scale, own.encoder_bias.detach()
    decoder, b_dec = own.decoder_weight.detach() * scale, mean + scale * own.decoder_bias.detach()
    command("sae", "export", trained, "--out", tmp_path / "lens")
    (tmp_path / "dictionary").mkdir()
    tensors = {"encoder.weight": encoder, "encoder.bias": bias, "decoder.weight": decoder, "b_dec": b_dec}
    torch.save(tensors | {"k": torch.tensor(4)}, tmp_path / "dictionary" / "ae.pt")
    trainer = {"dict_class": "AutoEncoderTopK", "activation_dim": 32, "dict_size": 48, "k": 4}
    (tmp_path / "dictionary" / "config.json").write_text(json.dumps({"trainer": trainer}))
    (tmp_path / "sparsify").mkdir()
    tensors = {
        "encoder.weight": encoder,
        "encoder.bias": bias,
        "W_dec": decoder.T.contiguous(),
        "b_dec": b_dec,
    }
    save_file(tensors, tmp_path / "sparsify" / "sae.safetensors")
    (tmp_path / "sparsify" / "cfg.json").write_text(json.dumps({"k": 4, "d_in": 32, "num_latents": 48}))
    for name in ("lens", "dictionary", "sparsify"):
        file = tmp_path / f"{name}.json"
        where = ("--store", made / "model_store", "--metrics-file", file)
        command("sae", "evaluate", tmp_path / name, *where)
        measured = json.loads(file.read_text())
        assert measured["explained_variance"] == pytest.approx(found.explained_variance, abs=1e-4)
        assert (measured["l0"], measured["dead_features"]) == pytest.approx(
            (found.l0, found.n_dead), abs=0.05
        )
        command("sae", "export", tmp_path / name, "--out", tmp_path / f"{name}_out")
        read = sae_lens_format.load(tmp_path / f"{name}_out")
        torch.testing.assert_close(read(store[:50]), own(store[:50]), atol=1e-4, rtol=1e-4)
    (tmp_path / "sparsify" / "cfg.json").write_text(json.dumps({"k": 4, "activation": "groupmax"}))
    done = command("sae", "evaluate", tmp_path / "sparsify", "--store", made / "model_store", code=2)
    assert "has activation 'groupmax'; only 'topk' can be read" in done.stderr


# --- Curves, and several processes -----------------------------------------------------------------------


def test_losses_are_logged_as_lines_or_for_tensorboard_and_change_nothing(made, trained, tmp_path):
    lines = tmp_path / "logs" / "losses.jsonl"
    train(made, tmp_path / "run", *QUICK, "--log", lines)
    written = [json.loads(line) for line in lines.read_text().splitlines()]
    assert [line["step"] for line in written] == [10, 20, 30]
    assert written[-1]["total"] < written[0]["total"]
    train(made, tmp_path / "board", *QUICK, "--log", f"tensorboard:{tmp_path / 'curves'}")
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = accumulator.EventAccumulator(str(tmp_path / "curves"))
    events.Reload()
    found = [(event.step, event.value) for event in events.Scalars("loss/total")]
    assert found == [(line["step"], pytest.approx(line["total"])) for line in written]
    for run in ("run", "board"):
        weights = tmp_path / run / "autoencoder" / "model.safetensors"
        assert weights.read_bytes() == (trained / "autoencoder" / "model.safetensors").read_bytes()


@pytest.mark.parametrize("log", ["losses.txt", "wandb:x", "tensorboard:", "."])
def test_a_log_of_another_form_is_named(log, made, tmp_path):
    done = train(made, tmp_path / "run", *QUICK, "--log", log, code=2)
    assert f"log is {log!r}; expected FILE.jsonl, tensorboard:DIRECTORY or wandb" in done.stderr
    assert not (tmp_path / "run").exists()


def test_losses_are_logged_to_wandb_without_an_account(made, trained, tmp_path, monkeypatch):
    pytest.importorskip("wandb")
    lines = tmp_path / "losses.jsonl"
    train(made, tmp_path / "lines", *QUICK, "--log", lines)
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    monkeypatch.setenv("WANDB_SILENT", "true")
    train(made, tmp_path / "run", *QUICK, "--log", "wandb")
    (written,) = tmp_path.glob("wandb/offline-run-*/run-*.wandb")
    found = written.read_bytes()  # protocol buffers, whose values are JSON
    assert b"loss/total" in found
    for line in map(json.loads, lines.read_text().splitlines()):
        assert json.dumps(line["total"]).encode() in found
    weights = tmp_path / "run" / "autoencoder" / "model.safetensors"
    assert weights.read_bytes() == (trained / "autoencoder" / "model.safetensors").read_bytes()


@pytest.mark.parametrize("log", ["tensorboard:x", "wandb"])
def test_without_its_package_a_log_ends_with_an_error_that_names_it(log, made, tmp_path, monkeypatch):
    monkeypatch.setattr("course_lib.commands.options.find_spec", lambda name: None)
    done = train(made, tmp_path / "run", *QUICK, "--log", log, code=2)
    assert f"{log.partition(':')[0]} is not installed; install it with" in done.stderr
    assert not (tmp_path / "run").exists()


def in_two_processes(directory, action):
    """Act in two processes with the environment of torchrun; return how they ended and what each printed."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    children = []
    for rank in range(2):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                torch.set_num_threads(1)
                os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"}
                os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
                done = action()
                (directory / f"{rank}.txt").write_text(f"{done.output}{done.exception or ''}")
                code = done.exit_code
            finally:
                os._exit(code)
        children.append(child)
    endings = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    return endings, [(directory / f"{rank}.txt").read_text() for rank in range(2)]


@pytest.mark.parametrize("kind", ["topk", "batchtopk"])
def test_two_processes_train_the_weights_of_one(kind, made, tmp_path):
    arguments = ["sae", "train", "--store", made / "model_store", "--no-progress", "--device", "cpu"]
    arguments += ["--kind", kind, "--model", made / "model", "--text", made / "text.txt", *QUICK]

    def act(out):
        return CliRunner().invoke(app, [*map(str, arguments), "--out", str(out), "--log", f"{out}.jsonl"])

    # One after the other: the parent's threads are not in a fork.
    endings, said = in_two_processes(tmp_path, lambda: act(tmp_path / "two"))
    assert endings == [0, 0], said
    assert said[1] == ""
    again, said_again = in_two_processes(tmp_path, lambda: act(tmp_path / "two"))  # finished: measured again
    assert (again, said_again) == ([0, 0], said)
    alone = act(tmp_path / "one")
    assert alone.exit_code == 0, alone.output
    one, two = (sae.load(tmp_path / name / "autoencoder").state_dict() for name in ("one", "two"))
    for name, value in one.items():
        torch.testing.assert_close(two[name], value, rtol=1e-3, atol=1e-4, msg=name)
    numbers = [[float(n) for n in re.findall(r"\d+\.\d+", text)] for text in (said[0], alone.output)]
    assert numbers[0] == pytest.approx(numbers[1], abs=2e-3)
    lines = [(tmp_path / f"{name}.jsonl").read_text().count("\n") for name in ("one", "two")]
    assert lines == [3, 3]


def test_what_the_first_process_refuses_ends_the_others(made, trained, tmp_path):
    shutil.copytree(trained, tmp_path / "run")
    arguments = ["sae", "train", "--store", made / "model_store", "--no-progress", "--device", "cpu", *QUICK]
    arguments += ["--seed", 1, "--out", tmp_path / "run"]
    endings, said = in_two_processes(tmp_path, lambda: CliRunner().invoke(app, list(map(str, arguments))))
    assert endings == [2, 2]
    assert all("is another run: its seed is 0, now 1" in text for text in said)
