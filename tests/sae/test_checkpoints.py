"""A run that is stopped, at any moment and in any way, goes on to the same bits."""

import errno
import json
import os
import random
import resource
import signal
import sys
import time
from dataclasses import replace

import pytest
import torch

from course_lib.sae import (
    BatchTopKSparseAutoencoder,
    GroupBiasAdaptedAutoencoder,
    ReluSparseAutoencoder,
    StackedAutoencoder,
    TopKSparseAutoencoder,
    TrainConfig,
    checkpoints,
    train,
    train_greedy,
)
from tests.sae.kinds import composed_kinds
from tests.sae.test_batches import Store

CONFIG = TrainConfig(steps=60, batch_size=32, record_every=7, buffer_rows=64, step_size=3e-3)
KINDS = {
    "relu, revived": (
        lambda g: ReluSparseAutoencoder(8, 32, l1=0.3, generator=g),
        replace(CONFIG, revive_every=9, unit_norm_decoder=True),
    ),
    "topk": (lambda g: TopKSparseAutoencoder(8, 32, k=2, generator=g), CONFIG),
    "batch topk": (lambda g: BatchTopKSparseAutoencoder(8, 32, k=2, generator=g), CONFIG),
    **composed_kinds(CONFIG),
    "gba": (lambda g: GroupBiasAdaptedAutoencoder(8, 32, every=11, generator=g), CONFIG),
    "stacked": (lambda g: StackedAutoencoder(8, (6, 4), beta=0.01, generator=g), CONFIG),
}


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def states(n=300):
    return torch.randn(n, 8, generator=seeded(4)) + 2


class StoppedError(Exception):
    pass


class StopsAt(Store):
    """A store whose reading fails after a while."""

    def __init__(self, rows, reads):
        super().__init__(rows)
        self.left = reads

    def __getitem__(self, rows):
        self.left -= 1
        if self.left < 0:
            raise StoppedError
        return super().__getitem__(rows)


def run(kind, source, directory=None, **settings):
    make, config = KINDS[kind]
    model = make(seeded())
    history = train(
        model, source, config, generator=seeded(1), progress=False, checkpoint_dir=directory, **settings
    )
    return model.state_dict(), history


def assert_same_bits(one, other):
    assert one.keys() == other.keys()
    for name in one:
        assert torch.equal(one[name], other[name]), name


@pytest.mark.parametrize("kind", KINDS)
def test_stopped_and_resumed_is_as_never_stopped(kind, tmp_path):
    expected, history = run(kind, Store(states()))
    for reads in (45, 90, 160):  # within the first steps, in the middle, near the end
        with pytest.raises(StoppedError):
            run(kind, StopsAt(states(), reads), tmp_path, checkpoint_every=5)
    state, resumed = run(kind, Store(states()), tmp_path, checkpoint_every=5)
    assert_same_bits(state, expected)
    assert resumed == history
    again, finished = run(kind, Store(states()), tmp_path, checkpoint_every=5)  # nothing is left to do
    assert_same_bits(again, expected)
    assert finished == history


def test_killed_at_any_moment_it_ends_with_the_same_bits_and_the_same_lines(tmp_path):
    expected, _ = run("topk", states(), metrics_file=tmp_path / "expected.jsonl")
    moments = random.Random(0)
    killed = 0
    for attempt in range(12):
        child = os.fork()
        if child == 0:
            run("topk", states(), tmp_path / "run", checkpoint_every=3, metrics_file=tmp_path / "m.jsonl")
            os._exit(0)
        time.sleep(moments.uniform(0, (0.02, 0.08, 0.25)[attempt % 3]))
        os.kill(child, signal.SIGKILL)
        killed += os.WIFSIGNALED(os.waitpid(child, 0)[1])
    assert killed > 0
    state, _ = run("topk", states(), tmp_path / "run", checkpoint_every=3, metrics_file=tmp_path / "m.jsonl")
    assert_same_bits(state, expected)
    assert (tmp_path / "m.jsonl").read_text() == (tmp_path / "expected.jsonl").read_text()
    assert not list((tmp_path / "run").glob(".*"))
    assert len(list((tmp_path / "run").glob("step-*"))) == checkpoints.KEPT


def test_a_damaged_checkpoint_is_named_and_refused(tmp_path):
    expected, _ = run("topk", states())
    run("topk", states(), tmp_path, checkpoint_every=20)
    newest = sorted(tmp_path.glob("step-*"))[-1]
    whole = newest.read_bytes()
    draw = random.Random(0)
    for damage in ("flip", "flip", "flip", "flip", "cut", "empty"):
        found = bytearray(whole)
        if damage == "flip":
            found[draw.randrange(len(found))] ^= 1 << draw.randrange(8)
        newest.write_bytes({"cut": whole[:-100], "empty": b""}.get(damage, bytes(found)))
        with pytest.raises(
            ValueError, match=rf"{newest.name} is damaged: .*remove it to continue from step-"
        ):
            run("topk", states(), tmp_path, checkpoint_every=20)
    newest.unlink()
    state, _ = run("topk", states(), tmp_path, checkpoint_every=20)
    assert_same_bits(state, expected)


def test_another_run_is_refused_by_what_differs(tmp_path):
    run("topk", states(), tmp_path)
    with pytest.raises(ValueError, match="is of another run: its activations is"):
        run("topk", states() + 1, tmp_path)
    with pytest.raises(ValueError, match="its shuffled is whole, this call's is by buffers"):
        run("topk", Store(states()), tmp_path)
    with pytest.raises(ValueError, match="its rows is 300, this call's is 200"):
        run("topk", states(200), tmp_path)
    with pytest.raises(ValueError, match="its kind is topk, this call's is relu"):
        run("relu, revived", states(), tmp_path)
    model = KINDS["topk"][0](seeded())
    with pytest.raises(ValueError, match="its generator is"):
        train(model, states(), CONFIG, generator=seeded(2), progress=False, checkpoint_dir=tmp_path)


def test_two_runs_in_one_directory_are_refused(tmp_path):
    with checkpoints.only_run(tmp_path), pytest.raises(RuntimeError, match="another process trains in"):
        run("topk", states(), tmp_path)
    run("topk", states(), tmp_path)


def in_a_child(call):
    """Return what `call` returns in a forked process, as text."""
    reading, writing = os.pipe()
    if os.fork() == 0:
        try:
            os.write(writing, call().encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        found = pipe.read()
    os.wait()
    return found


def test_a_full_disk_is_reported_and_costs_no_checkpoint(tmp_path):
    expected, _ = run("topk", Store(states()))
    with pytest.raises(StoppedError):
        run("topk", StopsAt(states(), 70), tmp_path, checkpoint_every=5)
    before = sorted(path.name for path in tmp_path.glob("*step*"))

    def without_room():
        sys.dont_write_bytecode = True  # what is compiled would be kept as far as it fits
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        try:
            run("topk", Store(states()), tmp_path, checkpoint_every=5)
        except OSError as error:
            return f"{errno.errorcode[error.errno]} {error.strerror}"
        return "no error"

    said = in_a_child(without_room)
    assert said.startswith("EFBIG the checkpoint of step ")
    assert "The last checkpoint is" in said
    assert sorted(path.name for path in tmp_path.glob("*step*")) == before
    state, _ = run("topk", Store(states()), tmp_path, checkpoint_every=5)
    assert_same_bits(state, expected)


def test_a_diverging_run_leaves_its_last_finite_checkpoint(tmp_path):
    for record_every in (5, 10**9):  # found by the loss, and by the weights about to be written
        directory = tmp_path / str(record_every)
        model = ReluSparseAutoencoder(8, 32, l1=0.3, generator=seeded())
        with pytest.raises(RuntimeError, match="lower step_size"):
            train(
                model,
                states() * 1e3,
                replace(CONFIG, record_every=record_every, steps=1000, step_size=1e30, warm_up=1.0),
                generator=seeded(1),
                progress=False,
                checkpoint_dir=directory,
                checkpoint_every=1,
            )
        found = checkpoints.latest(directory)
        assert found is None or all(value.isfinite().all() for value in found[0].values())


def test_greedy_training_resumes_too(tmp_path):
    def greedy(source, directory=None):
        model = StackedAutoencoder(8, (6, 4), generator=seeded())
        train_greedy(
            model,
            source,
            replace(CONFIG, steps=20),
            pretraining=replace(CONFIG, steps=15),
            generator=seeded(1),
            progress=False,
            checkpoint_dir=directory,
        )
        return model.state_dict()

    expected = greedy(Store(states()))
    for reads in (30, 60, 90, 120):
        with pytest.raises(StoppedError):
            greedy(StopsAt(states(), reads), tmp_path)
    assert_same_bits(greedy(Store(states()), tmp_path), expected)


def test_lines_of_json_hold_the_curves(tmp_path):
    _, history = run("topk", states(), metrics_file=tmp_path / "a" / "metrics.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "a" / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == history.steps == [7, 14, 21, 28, 35, 42, 49, 56, 60]
    assert [line["total"] for line in lines] == history.parts["total"]
