"""A small part of `make faults`: nothing is lost by a kill; and the ways in which something could be are found."""

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from course_lib import files
from tests import kills
from tests.faults import PAGE

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked and killed by signals")


def test_killed_commands_lose_nothing():
    # In a process that has no threads yet, of which a fork would keep none.
    ran = subprocess.run(
        [sys.executable, "-m", "tests.kills", "-n", "3", "--names", "sae|hand-out|activations"],
        capture_output=True,
        text=True,
        cwd=kills.NOTEBOOKS.parent,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    rows = [line.strip("| ").split(" | ") for line in ran.stdout.splitlines() if line.startswith("| ")][1:]
    assert len(rows) == 5
    assert all(sum(map(int, row[1:3])) == 3 for row in rows)
    assert sum(int(row[1]) for row in rows) >= 5


def whole(directory):
    for name in ("one", "two"):
        with files.replacing(directory / name) as file:
            file.write(name.encode() * 9)


def in_place(directory):
    for name in ("one", "two"):
        if not (directory / name).exists():
            (directory / name).touch()
            (directory / name).write_text(name * 9)


def not_twice(directory):
    (directory / "one").mkdir()
    (directory / "one" / "two").write_text("2")


def own_names(directory):
    part = directory / f"{os.getpid()}.tmp"
    part.write_text("1")
    part.rename(directory / "one")


def over_what_was_there(directory):
    (directory / "old").unlink()
    (directory / "old").write_text("new")


def old(directory):
    (directory / "old").write_text("old")


@pytest.mark.parametrize(
    ("run", "before", "ends"),
    [
        (whole, old, {"again", "whole"}),
        (in_place, old, {"other"}),
        (not_twice, old, {"other"}),
        (own_names, old, {"other"}),
        (over_what_was_there, old, {"lost"}),
    ],
)
def test_each_way_to_lose_something_is_found(run, before, ends, tmp_path):
    command = kills.Command(run.__name__, run, before=before, replaces=("old",))
    (tmp_path / "out").mkdir()
    before(tmp_path / "out")
    truth, changes, seconds = kills.undisturbed(command, tmp_path / "out", tmp_path / "log")
    assert changes >= 2
    found = set()
    for at in range(changes):
        chosen = SimpleNamespace(randrange=lambda n, at=at: at)
        found.add(kills.trial(command, tmp_path, truth, "before a change", changes, seconds, chosen)[0])
    assert found & ends
    assert found <= ends | {"again", "whole"}
    assert changes < 9


def test_the_page_holds_a_table():
    inside = PAGE.read_text(encoding="utf-8").split(kills.BEGIN)[1].split(kills.END)[0]
    rows = [row.strip("| ").split(" | ") for row in inside.strip().splitlines()[2:]]
    assert all(row[3:] == ["0", "0"] for row in rows)
    assert sum(int(cell) for row in rows for cell in row[1:]) >= 400
