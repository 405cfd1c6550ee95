import json
import os
import re
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest
from typer.testing import CliRunner

from course_lib import sae
from course_lib.__main__ import app
from course_lib.interpret.browser.build import build_index
from course_lib.pipeline import InputError, SparseConfig, StackedConfig
from course_lib.sae import TrainConfig
from tests.interpret.browser.runs import make_run
from tests.tiny_mbart import SENTENCES, write_tiny_mbart

try:
    import resource
except ImportError:  # Windows
    resource = None


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    directory = tmp_path_factory.mktemp("tiny")
    write_tiny_mbart(directory)
    return str(directory)


def test_the_pipeline_prints_where_the_report_is(model, tmp_path, monkeypatch):
    quick = TrainConfig(steps=30, batch_size=64)
    monkeypatch.setattr("course_lib.pipeline.config.StackedConfig", lambda: StackedConfig(training=quick))
    monkeypatch.setattr("course_lib.pipeline.config.SparseConfig", lambda: SparseConfig(training=quick))
    text, out = tmp_path / "text.txt", tmp_path / "out"
    text.write_text("\n".join(f"en\t{s}" if i % 2 else f"de\t{s}" for i, s in enumerate(SENTENCES[:80])))
    options = [
        "--model",
        model,
        "--text",
        text,
        "--out",
        out,
        "--sentences",
        60,
        "--seed",
        1,
        "--device",
        "cpu",
    ]
    done = CliRunner().invoke(app, ["pipeline", *map(str, options)])
    assert done.exit_code == 0, done.output
    last = done.stdout.strip().splitlines()[-1]
    assert last == f"report: {out / 'report.html'}"
    assert (out / "report.html").is_file()
    assert "topk autoencoder: 100%" in done.stderr


def test_a_model_that_cannot_read_the_text_and_missing_names_are_said_before_training(tmp_path):
    (tmp_path / "text.txt").write_text("\n".join(SENTENCES[:60]))
    options = ["--text", tmp_path / "text.txt", "--out", tmp_path / "out", "--steps", 20]
    done = CliRunner().invoke(app, ["pipeline", *map(str, options)])
    assert done.exit_code == 0, done.output
    before = done.stderr.partition("activations:")[0].strip().splitlines()
    assert [line.partition(" ")[0] for line in before] == ["warning:"] * 2
    for line, words in zip(
        before, ("course-mbart has read nothing but", "no feature gets a name"), strict=True
    ):
        assert words in line
    assert "--model course-mbart-help" in before[0]
    assert "--labels" in before[1]


def test_an_offline_machine_is_told_what_to_do_without_a_traceback(tmp_path):
    """In a process of its own, as a user calls it: the hub's client reads these variables once."""
    text, out = tmp_path / "text.txt", tmp_path / "out"
    text.write_text("\n".join(SENTENCES[:60]))
    options = ["--model", "facebook/mbart-large-50", "--text", str(text), "--out", str(out)]
    done = subprocess.run(
        [sys.executable, "-m", "course_lib", "pipeline", *options],
        capture_output=True,
        text=True,
        env=os.environ | {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "cache")},
    )
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert "Traceback" not in done.stderr + done.stdout
    for words in ("facebook/mbart-large-50", "local directory", "course-mbart"):
        assert words in done.stderr
    assert not out.exists()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "text.txt does not exist"),
        (b"", "holds no sentence"),
        (b"good\nb\xffd\n", "line 2: byte 0xff is not UTF-8"),
        (b"one\ntwo\n", "at least 50"),
    ],
)
def test_unusable_text_exits_with_2(content, words, model, tmp_path):
    text = tmp_path / "text.txt"
    if content is not None:
        text.write_bytes(content)
    done = CliRunner().invoke(
        app, ["pipeline", "--model", model, "--text", str(text), "--out", str(tmp_path / "out")]
    )
    assert done.exit_code == 2
    assert isinstance(done.exception, SystemExit)
    assert done.stderr.startswith("error: ")
    assert words in done.stderr
    assert not (tmp_path / "out").exists()


def test_another_run_is_not_overwritten(model, tmp_path):
    (tmp_path / "metrics.json").write_text("{}")
    done = CliRunner().invoke(app, ["pipeline", "--model", model, "--out", str(tmp_path)])
    assert done.exit_code == 2
    assert "already holds something" in done.stderr


def test_a_mistake_in_the_program_still_raises(monkeypatch, tmp_path):
    def broken(**kwargs):
        raise KeyError("a bug")

    monkeypatch.setattr("course_lib.pipeline.run", broken)
    done = CliRunner().invoke(app, ["pipeline", "--out", str(tmp_path / "out")])
    assert isinstance(done.exception, KeyError)


def test_the_pipeline_passes_its_options_on(monkeypatch, tmp_path):
    seen = {}

    def recorded(**settings):
        seen.update(settings)
        raise InputError("enough")

    monkeypatch.setattr("course_lib.pipeline.run", recorded)
    options = ["--out", str(tmp_path / "o"), "--threads", "2", "--site", "decoder", "--sentences", "70"]
    assert CliRunner().invoke(app, ["pipeline", *options]).exit_code == 2
    assert (seen["threads"], seen["site"], seen["n_sentences"]) == (2, "decoder", 70)
    CliRunner().invoke(app, ["pipeline", "--out", str(tmp_path / "o")])
    assert seen["threads"] is None


def test_the_page_of_help_shows_every_command_once_with_one_line_by_reader():
    done = CliRunner().invoke(app, ["--help"], prog_name="course", env={"COLUMNS": "120"})
    assert done.exit_code == 0
    panels = re.split(r"^╭─ ", done.stdout, flags=re.M)[1:]
    shown = {panel.split(" ─")[0]: re.findall(r"^│ ([a-z]\S*) +(\S.*?) +│$", panel, re.M) for panel in panels}
    readers = {
        "Learn": ["doctor", "update", "record", "site"],
        "Run on your text": ["pipeline", "browse", "activations", "sae", "corpus"],
        "Teach": ["plan", "calendar", "hand-out", "progress", "teacher"],
        "Maintain the course": ["figures", "pretrain", "dictionary"],
    }
    assert {
        name: [command for command, _ in rows] for name, rows in shown.items() if name != "Options"
    } == readers
    lines = [line for name in readers for _, line in shown[name]]
    assert [line for line in lines if not line.endswith(".")] == []
    examples = re.findall(r"^ course (\S+) +.*", done.stdout, re.M)
    assert {"doctor", "pipeline", "browse"} <= set(examples)
    assert done.stdout.split()[:2] == ["Usage:", "course"]


def test_the_command_of_a_module_calls_itself_course():
    done = subprocess.run([sys.executable, "-m", "course_lib", "sae"], capture_output=True, text=True)
    assert "Usage: course sae [OPTIONS] COMMAND" in done.stdout + done.stderr


@pytest.mark.parametrize(("command", "edition"), [("site", "site"), ("teacher", "teacher")])
@pytest.mark.parametrize("warnings", [0, 3])
def test_an_edition_is_built_as_asked_and_a_warning_is_a_failure(
    command, edition, warnings, monkeypatch, tmp_path
):
    seen = {}

    def built(notebooks, out, **settings):
        seen.update(settings, notebooks=notebooks, out=out)
        return warnings

    monkeypatch.setattr(f"course_lib.editions.{edition}.build.build", built)
    more = ["15", "16"] if command == "teacher" else ["--repository", "someone/a-course"]
    options = ["--out", str(tmp_path), "--workers", "3", "--notebooks", "n"]
    done = CliRunner().invoke(app, [command, *more, *options])
    assert done.exit_code == (1 if warnings else 0)
    if command == "site":
        assert done.stdout.startswith(
            f"Builds the pages of 40 lessons in {tmp_path}, about 4 minutes of processor"
        )
    assert f"{tmp_path / 'index.html'} is the first page; Sphinx gave {warnings} warnings" in done.stdout
    assert (seen["notebooks"], seen["out"], seen["workers"]) == (Path("n"), tmp_path, 3)
    assert seen.get("numbers", seen.get("repository")) == (more if command == "teacher" else more[1])


def test_an_edition_without_its_extra_says_what_to_install(monkeypatch):
    monkeypatch.setattr("course_lib.commands.options.find_spec", lambda name: None)
    for command in ("site", "teacher"):
        done = CliRunner().invoke(app, [command])
        assert done.exit_code == 2
        assert "pip install -c constraints.txt -e '.[site]'" in done.stderr


@pytest.mark.skipif(os.name != "posix", reason="signals")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_command_that_is_stopped_says_so_and_leaves_nothing(number, model, tmp_path):
    (tmp_path / "text.txt").write_text("\n".join(SENTENCES[:80]))
    options = ["--model", model, "--text", tmp_path / "text.txt", "--out", tmp_path / "out", "--steps", 10**6]
    arguments = [sys.executable, "-m", "course_lib", "pipeline", "--no-progress", *map(str, options)]
    # A shell's background jobs ignore some of them, and what they start does too.
    listening = partial(signal.signal, number, signal.SIG_DFL)
    with subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True, preexec_fn=listening) as running:
        while not list(tmp_path.glob(".out-*.partial")) and running.poll() is None:
            time.sleep(0.05)
        running.send_signal(number)
        said = running.communicate(timeout=60)[1]
    assert running.returncode == -number
    assert said.splitlines()[-1] == "stopped; run the same command again"
    assert "Traceback" not in said
    assert [path.name for path in tmp_path.iterdir()] == ["text.txt"]


def in_its_own_process(*arguments, at_most=None, **options):
    """Run a command as a user does; no file of it can be longer than `at_most` bytes, as on a disk that is full.

    Python would keep what it compiled as far as it fits, and stumble over it ever after.
    """

    def limit():
        if at_most is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (at_most, at_most))

    return subprocess.run(
        [sys.executable, "-m", "course_lib", *map(str, arguments)],
        **{
            "env": os.environ | ({} if at_most is None else {"PYTHONDONTWRITEBYTECODE": "1"}),
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
            "preexec_fn": limit,
        }
        | options,
    )


@pytest.mark.skipif(resource is None, reason="limits of a process")
@pytest.mark.parametrize("command", ["pipeline", "browse", "export", "index"])
def test_a_full_disk_is_told_in_a_line_that_names_the_place(command, model, tmp_path):
    run, out = tmp_path / "run", tmp_path / "out"
    if command == "pipeline":
        (tmp_path / "text.txt").write_text("\n".join(SENTENCES[:80]))
        arguments = ["--model", model, "--text", tmp_path / "text.txt", "--out", out, "--steps", 5]
    else:
        make_run(run, Path(model))
        arguments = [run, "--export", out] if command != "export" else [run, "--out", out]
        if command == "browse":
            build_index(run, effects=1, threads=1, progress=False)
    there = sorted(path.name for path in tmp_path.rglob("*"))
    called = {"export": ["sae", "export"], "index": ["browse"]}.get(command, [command])
    more = [] if command == "export" else ["--no-progress"]
    done = in_its_own_process(*called, *arguments, *more, at_most=1000)
    assert done.returncode == 2
    place = run / "browse" if command == "index" else out
    (said,) = done.stderr.decode().splitlines()
    assert said.startswith("error: ")
    assert str(place) in said
    assert done.stdout == b""
    left = sorted(path.name for path in tmp_path.rglob("*") if path.name != ".browse.lock")
    assert left == [name for name in there if name != ".browse.lock"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device that is always full")
@pytest.mark.parametrize("arguments", [["--help"], ["sae", "export"]])
def test_an_output_that_is_full_is_told_in_a_line(arguments, tmp_path):
    if arguments[0] == "sae":
        sae.save(sae.TopKSparseAutoencoder(8, 16, k=2), tmp_path / "a")
        arguments = [*arguments, tmp_path / "a", "--out", tmp_path / "out"]
    with open("/dev/full", "wb") as full:
        done = in_its_own_process(*arguments, stdout=full)
    assert done.returncode == 1
    assert done.stderr.decode() == "error: standard output cannot be written: No space left on device\n"


def test_a_terminal_of_ascii_shows_the_number_of_a_letter_that_it_lacks(tmp_path):
    row = {"attempts": 2, "hints": 0, "solved": True}
    content = {"exercises": {"01.1": row}, "predictions": {}, "sentences": {}}
    (tmp_path / "Zo\xeb.json").write_text(json.dumps(content))
    done = in_its_own_process(
        "progress", tmp_path, "--details", env=os.environ | {"PYTHONIOENCODING": "ascii"}
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert "Zo\\xeb" in done.stdout.decode("ascii")


def test_help_is_quick_because_nothing_heavy_is_loaded():
    code = (
        "import sys\nfrom course_lib.__main__ import app\n"
        "app(['pipeline', '--help'], standalone_mode=False)\n"
        "print(sorted({'torch', 'transformers', 'matplotlib', 'ipywidgets'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip().endswith("[]")
    assert "--sentences" in done.stdout


def test_pretrain_passes_its_options_on(monkeypatch, tmp_path):
    seen = {}

    def recorded(config, out, *, device, progress):
        seen.update(config=config, out=out, device=device, progress=progress)
        return {"accuracy": 0.5}

    monkeypatch.setattr("course_lib.mbart.pretraining.pretrain.pretrain", recorded)
    options = [
        "--out",
        str(tmp_path / "m"),
        "--steps",
        "7",
        "--denoising-steps",
        "5",
        "--meanings",
        "20",
        "--pieces",
        "500",
        "--batch-size",
        "8",
        "--alignment-share",
        "0",
        "--device",
        "cpu",
        "--no-progress",
    ]
    done = CliRunner().invoke(app, ["pretrain", *options])
    assert done.exit_code == 0, done.output
    config = seen["config"]
    assert (config.translation_steps, config.denoising_steps, config.steps) == (7, 5, 12)
    assert (config.n_meanings, config.pieces, config.batch_size, config.seed) == (20, 500, 8, 0)
    assert config.alignment_steps == 0
    assert (seen["out"], seen["device"].type, seen["progress"]) == (tmp_path / "m", "cpu", False)
    assert "accuracy: 0.5" in done.stdout


def test_pretrain_explains_what_it_cannot_use(tmp_path):
    (tmp_path / "note.txt").write_text("mine")
    for options in (["--steps", "0"], []):
        done = CliRunner().invoke(app, ["pretrain", "--out", str(tmp_path), *options])
        assert done.exit_code == 2
        assert done.stderr.startswith("error: ")


def test_doctor_ends_with_its_own_exit_code(monkeypatch):
    monkeypatch.setattr("course_lib.doctor.main", lambda *, details: 7)
    assert CliRunner().invoke(app, ["doctor"]).exit_code == 7


def test_figures_go_where_they_are_wanted(monkeypatch, tmp_path):
    seen = []
    monkeypatch.setattr("course_lib.lessons.draw_figures", seen.append)
    assert CliRunner().invoke(app, ["figures", str(tmp_path)]).exit_code == 0
    assert seen == [tmp_path]
