"""The choice of a run: options, files of options, and the record of a run that repeats it."""

import gzip
import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

from course_lib import pipeline
from course_lib.__main__ import app
from course_lib.commands.options import Kind
from course_lib.interpret.run_directory import RunDirectory, metrics_as_json
from course_lib.pipeline import InputError, SparseConfig, StackedConfig
from course_lib.pipeline.config import PENALTIES, dictionary, record_choice, sparse_config
from course_lib.representation.normality import moment_scores
from course_lib.representation.variance import components_needed
from course_lib.sae import TrainConfig
from tests.interpret.browser.runs import some_metrics
from tests.tiny_families import write_tiny
from tests.tiny_mbart import SENTENCES, write_tiny_mbart


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    directory = tmp_path_factory.mktemp("tiny")
    write_tiny_mbart(directory)
    return str(directory)


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text("\n".join(f"en\t{s}" if i % 2 else f"de\t{s}" for i, s in enumerate(SENTENCES[:90])))
    return str(path)


@pytest.fixture(scope="module")
def stores(model, text, tmp_path_factory):
    made = {}
    for name, more in {
        "mlp": ["--site", "encoder.1.mlp"],
        "part": ["--site", "encoder.1.mlp", "--sentences", "60"],
    }.items():
        made[name] = str(tmp_path_factory.mktemp("stores") / name)
        command(
            "activations", "--model", model, "--text", text, "--out", made[name], "--dtype", "float32", *more
        )
    return made


@pytest.fixture
def quick(monkeypatch):
    """A run with the command's settings, but for a stacked autoencoder of few steps that counts as the default."""
    short = StackedConfig(training=TrainConfig(steps=5, batch_size=64))
    monkeypatch.setattr("course_lib.pipeline.config.StackedConfig", lambda: short)
    monkeypatch.setattr("course_lib.pipeline.run", partial(pipeline.run, stacked=short))


def command(*arguments, code=0):
    done = CliRunner().invoke(app, [*map(str, arguments), "--no-progress"])
    assert done.exit_code == code, done.output
    return done


def metrics_of(out):
    return json.loads((Path(out) / "metrics.json").read_text())


def test_a_run_at_any_site_is_repeated_by_its_record(quick, model, text, tmp_path):
    first = tmp_path / "first"
    options = ["--model", model, "--text", text, "--site", "decoder.1.cross_attention", "--kind", "batchtopk"]
    command(
        "pipeline", "--out", first, *options, "--features", 40, "--k", 3, "--steps", 12, "--sentences", 80
    )
    found = metrics_of(first)
    assert found["run"]["choice"] == {
        **{"model": model, "text": text, "site": "decoder.1.cross_attention", "sentences": 80, "seed": 0},
        **{"max_tokens": None, "too_long": None},
        **{"kind": "batchtopk", "features": 40, "k": 3, "penalty": None, "steps": 12, "auxk": None},
        **{"widths": None, "beta": 0.3, "rho": 0.05, "gamma": 0.02, "alpha": None},
        **{"store": None, "pivot": None, "labels": None, "device": "cpu", "threads": 1},
    }
    assert found["sparse"]["config"]["n_features"] == 40
    vectors = load_file(first / "activations.safetensors")
    assert sorted(vectors) == ["decoder", "decoder.1.cross_attention", "encoder"]
    assert not torch.equal(vectors["decoder"], vectors["decoder.1.cross_attention"])
    again, other = tmp_path / "again", tmp_path / "other"
    command("pipeline", "--out", again, "--config", first / "metrics.json")
    for part in ("stacked", "sparse", "features"):
        assert metrics_of(again)[part] == found[part]
    assert metrics_of(again)["run"]["choice"] == found["run"]["choice"]
    command(
        "pipeline", "--out", other, "--config", first / "metrics.json", "--steps", 11
    )  # what is given wins
    assert metrics_of(other)["run"]["choice"] == found["run"]["choice"] | {"steps": 11}
    assert metrics_of(other)["sparse"]["train"] != found["sparse"]["train"]


def test_options_win_over_the_file_and_the_file_over_defaults(monkeypatch, tmp_path):
    seen = {}

    def recorded(**settings):
        seen.update(settings)
        raise InputError("enough")

    monkeypatch.setattr("course_lib.pipeline.run", recorded)
    file = tmp_path / "choice.toml"
    file.write_text(
        'site = "encoder.2"\nkind = "relu"\npenalty = 1\nfeatures = 70\nseed = 4\nsentences = 90\n'
    )
    command("pipeline", "--out", tmp_path / "o", "--config", file, "--seed", 0, "--features", 80, code=2)
    assert (seen["site"], seen["seed"], seen["n_sentences"], seen["store"]) == ("encoder.2", 0, 90, None)
    assert seen["sparse"] == replace(SparseConfig(), kind="relu", penalty=1.0, n_features=80)
    command("pipeline", "--out", tmp_path / "o", code=2)
    assert seen["sparse"] == SparseConfig()
    assert (seen["site"], seen["text"], seen["model"]) == ("encoder", "builtin", "course-mbart")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ('colour = "red"', "unknown key 'colour'"),
        ('out = "elsewhere"', "unknown key 'out'"),
        ('steps = "many"', "'many' for steps; expected a whole number"),
        ("steps = 1.5", "1.5 for steps; expected a whole number"),
        ("model = 3", "3 for model; expected text"),
        ("seed = true", "True for seed"),
        ("steps = 0", "steps is 0; expected 1 or more"),
        ("steps = ", "cannot be read"),
        ('kind = "relu"\nk = 4', "k is 4, and relu has none"),
        ("penalty = 0.1", "penalty is 0.1, and topk has none"),
        ('site = "encoder.last"', "such as encoder.final"),
        ('site = "encoder.9"', "layer is 9; the encoder has layers 1 to 1"),
    ],
)
def test_a_file_that_cannot_be_used_is_explained(content, words, model, text, tmp_path):
    file = tmp_path / "choice.toml"
    file.write_text(content)
    given = [] if "model" in content else ["--model", model]
    done = command("pipeline", "--out", tmp_path / "o", "--text", text, *given, "--config", file, code=2)
    assert done.stderr.startswith("error: ")
    assert words in done.stderr
    assert not (tmp_path / "o").exists()


def test_a_packed_text_is_the_same_text(text, tmp_path):
    packed = tmp_path / "text.txt.gz"
    packed.write_bytes(gzip.compress(Path(text).read_bytes()))
    assert pipeline.read_text(packed, seed=0) == pipeline.read_text(text, seed=0)
    packed.write_bytes(packed.read_bytes()[:-12])
    with pytest.raises(InputError, match=r"text\.txt\.gz cannot be unpacked"):
        pipeline.read_text(packed, seed=0)


def test_a_kind_that_there_is_not_is_refused(tmp_path):
    (tmp_path / "choice.toml").write_text('kind = "spline"')
    done = command("pipeline", "--out", tmp_path / "o", "--config", tmp_path / "choice.toml", code=2)
    assert "'spline' is not one of" in done.stderr


def test_a_file_that_is_not_there_and_a_record_without_options(tmp_path):
    done = command("pipeline", "--out", tmp_path / "o", "--config", tmp_path / "none.toml", code=2)
    assert "is not a file" in done.stderr
    (tmp_path / "metrics.json").write_text(json.dumps(metrics_as_json(some_metrics(), None)))
    done = command("pipeline", "--out", tmp_path / "o", "--config", tmp_path / "metrics.json", code=2)
    assert "made from Python" in done.stderr
    own = SparseConfig(training=TrainConfig(steps=7, step_size=0.5))
    assert record_choice(own, StackedConfig(), 64) is None
    assert record_choice(SparseConfig(), StackedConfig(training=TrainConfig(steps=7)), 64) is None
    assert record_choice(SparseConfig(), StackedConfig(), 64)["steps"] == SparseConfig().training.steps


def test_the_pipeline_trains_on_a_store_of_the_same_text_and_model(quick, model, text, stores, tmp_path):
    options = [
        "--model",
        model,
        "--text",
        text,
        "--site",
        "encoder.1.mlp",
        "--features",
        40,
        "--k",
        3,
        "--steps",
        10,
    ]
    read, stored = tmp_path / "read", tmp_path / "stored"
    command("pipeline", "--out", read, *options)
    command("pipeline", "--out", stored, *options, "--store", stores["mlp"])
    for part in ("stacked", "sparse", "features"):
        assert metrics_of(stored)[part] == metrics_of(read)[part]
    assert metrics_of(stored)["run"]["choice"]["store"] == stores["mlp"]
    write_tiny("mbart50", tmp_path)  # another model with a tokenizer for the same text
    for given, words in (
        ([*options, "--store", stores["part"]], "another text, or another part of it: it has 60 sentences"),
        (
            [*options, "--site", "encoder", "--store", stores["mlp"]],
            "has site 'encoder.1.mlp'; expected 'encoder.final'",
        ),
        ([*options, "--model", tmp_path, "--store", stores["mlp"]], "is of another model"),
        ([*options, "--store", tmp_path / "none"], "expected a store of activations"),
    ):
        done = command("pipeline", "--out", tmp_path / "o", *given, code=2)
        assert words in done.stderr
    assert not (tmp_path / "o").exists()


@pytest.mark.parametrize("kind", Kind)
def test_every_kind_is_made_and_has_its_own_setting(kind):
    config = sparse_config(kind=kind, features=64)
    made = dictionary(config, 16, generator=torch.Generator().manual_seed(0))
    assert (made.d_model, made.n_features) == (16, 64)
    taken = "penalty" if kind in PENALTIES else "" if kind == "gba" else "k"
    expected = {"penalty": PENALTIES.get(kind), "k": 8, "": 0.05}[taken]
    named = {"gba": "highest", "jumprelu": "l0"}.get(kind, "l1" if taken == "penalty" else "k")
    assert made.config()[named] == expected
    for name, value in {"penalty": 0.1, "k": 4}.items():
        if name != taken:
            with pytest.raises(InputError, match=f"and {kind} has none"):
                sparse_config(kind=kind, **{name: value})
    if taken == "k":
        config = sparse_config(kind=kind, features=64, auxk=7)
        made = dictionary(config, 16)
        assert (made.aux_k, made.dead_after) == (7, 50 * config.training.batch_size)
        assert record_choice(config, StackedConfig(), 64)["auxk"] == 7
    else:
        with pytest.raises(InputError, match=f"auxk is 7, and {kind} has none"):
            sparse_config(kind=kind, auxk=7)
    assert record_choice(config, StackedConfig(), 64)["kind"] == kind


def test_k_is_at_most_the_number_of_features():
    assert dictionary(sparse_config(features=5), 16).k == 5
    assert dictionary(sparse_config(features=5, k=5), 16).k == 5
    with pytest.raises(InputError, match="k is 6; expected 1 to the number of features, 5"):
        sparse_config(features=5, k=6)
    with pytest.raises(InputError, match="auxk is 6; expected 0 to the number of features, 5"):
        sparse_config(features=5, auxk=6)
    with pytest.raises(InputError, match="auxk is -1; expected 0"):
        sparse_config(auxk=-1)
    with pytest.raises(InputError, match="aux_k is 129; expected 0"):
        dictionary(sparse_config(auxk=129), 16)
    with pytest.raises(InputError, match="k is 129; expected 1 to n_features, 128"):
        dictionary(sparse_config(k=129), 16)


def test_help_states_the_defaults():
    said = " ".join(CliRunner(env={"COLUMNS": "300"}).invoke(app, ["pipeline", "--help"]).stdout.split())
    made = SparseConfig()
    assert f"(default: {made.k})" in said
    assert f"(default: {made.training.steps})" in said
    assert made.n_features is None
    assert "(default: eight times the model's width)" in said
    assert f"relu and gated {PENALTIES['relu']}, jumprelu {PENALTIES['jumprelu']}" in said
    assert PENALTIES["relu"] == PENALTIES["gated"]
    for default in ("[default: topk]", "[default: encoder]", "[default: course-mbart]", "[default: 0]"):
        assert default in said


def test_a_site_that_there_is_not_is_refused(tmp_path):
    done = command("pipeline", "--out", tmp_path / "o", "--sentences", 60, "--site", "both", code=2)
    assert "side is 'both'" in done.stderr


# --- The stacked autoencoder ---------------------------------------------------------------------------


def test_widths_and_weights_of_the_stacked_autoencoder_are_taken_and_repeated(quick, model, text, tmp_path):
    sizes = ["--features", 40, "--k", 3, "--steps", 5, "--device", "cpu"]
    own = ["--widths", "20, 6", "--beta", 0.5, "--rho", 0.2, "--gamma", 0.1]
    first, again = tmp_path / "first", tmp_path / "again"
    command("pipeline", "--out", first, "--model", model, "--text", text, *sizes, *own)
    found = metrics_of(first)
    for name, value in {"widths": [20, 6], "beta": 0.5, "rho": 0.2, "gamma": 0.1}.items():
        assert found["stacked"]["config"][name] == value
    command("pipeline", "--out", again, "--config", first / "metrics.json")
    assert metrics_of(again)["stacked"] == found["stacked"]
    assert metrics_of(again)["run"]["choice"] == found["run"]["choice"]
    page = (first / "report.html").read_text()
    assert "target rho = 0.2" in (first / "figures" / "unit_means.svg").read_text()
    assert "Its weight beta is 0.5" in page


def test_a_share_of_the_variance_chooses_the_width_of_the_code(quick, model, text, tmp_path):
    sizes = ["--features", 40, "--k", 3, "--steps", 5, "--device", "cpu", "--alpha", 0.7]
    command("pipeline", "--out", tmp_path / "out", "--model", model, "--text", text, *sizes)
    found, run = metrics_of(tmp_path / "out"), RunDirectory(tmp_path / "out")
    held_out = torch.tensor([s.held_out for s in run.sentences])
    vectors = run.vectors()["encoder"].double()
    k = components_needed(torch.linalg.eigvalsh(vectors[~held_out].T.cov()).clamp(min=0), 0.7)
    assert run.stacked().widths == (max(vectors.shape[1] // 2, k), k)
    assert found["stacked"]["components"]["0.7"] == k
    assert list(found["stacked"]["components"]) == ["0.5", "0.7", "0.8", "0.9", "0.95", "0.99"]
    assert sorted(found["stacked"]["components"].values()) == list(found["stacked"]["components"].values())
    assert found["run"]["choice"]["alpha"] == 0.7
    with torch.no_grad():
        code = run.stacked().encode(vectors.float())
    torch.testing.assert_close(
        torch.tensor(found["stacked"]["unit_means"]), code[~held_out].mean(dim=0), rtol=1e-4, atol=1e-6
    )
    normality = found["stacked"]["normality"]
    scores = moment_scores(code[held_out])
    assert normality["rows"] == int(held_out.sum())
    assert normality["kurtosis"] == pytest.approx(scores.kurtosis.abs().median().item(), rel=1e-3)
    page = (tmp_path / "out" / "report.html").read_text()
    assert f"{k} for 70%" in page
    assert f"the skewness of a unit is {normality['skewness']:.1f} standard errors" in page


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--widths", "20,x"], "widths is '20,x'; expected whole numbers with commas"),
        (["--widths", ""], "widths is ''; expected whole numbers"),
        (["--widths", "20,0"], "widths is [20, 0]; expected units of each layer, 1 or more"),
        (["--beta", -1], "beta is -1.0; expected 0 or more"),
        (["--gamma", "nan"], "gamma is nan; expected 0 or more"),
        (["--rho", 1], "rho is 1.0; expected a mean activation between 0 and 1"),
        (["--alpha", 0], "alpha is 0.0; expected a share of the variance"),
        (["--alpha", 0.5, "--widths", 3], "alpha is 0.5, and widths [3]: both set the code's width"),
    ],
)
def test_settings_of_the_stacked_autoencoder_that_cannot_be_used_are_named(options, message, tmp_path):
    done = command("pipeline", "--out", tmp_path / "out", *options, code=2)
    assert message in done.stderr
