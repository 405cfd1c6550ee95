"""Whole or not at all, and one process at a time."""

import multiprocessing
import os

import pytest

from course_lib import files


def overwritten(path, *, error=None):
    with files.replacing(path) as file:
        file.write(b"new")
        if error is not None:
            raise error


@pytest.mark.parametrize("error", [RuntimeError(), KeyboardInterrupt()])
def test_a_file_is_replaced_whole_or_not_at_all(error, tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old and longer")
    with pytest.raises(type(error)):
        overwritten(path, error=error)
    assert path.read_bytes() == b"old and longer"
    overwritten(path)
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


def test_the_bytes_are_on_the_disk_before_the_name_is(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(os, "fsync", lambda handle: seen.append((tmp_path / "file").exists()))
    overwritten(tmp_path / "file")
    assert seen[0] is False
    assert seen[1:] == [True] * (os.name == "posix")  # the directory, after the rename


def test_what_a_killed_process_left_behind_can_be_removed(tmp_path):
    child = os.fork()
    if child == 0:
        with files.replacing(tmp_path / "file") as file:
            file.write(b"half")
            os._exit(0)
    os.waitpid(child, 0)
    (tmp_path / "kept").touch()
    (left,) = (path for path in tmp_path.iterdir() if path.name != "kept")
    assert left.name.startswith(".file-")
    files.remove_partials(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


def filled(path, *, error=None):
    with files.new_directory(path) as partial:
        (partial / "half").write_text("half")
        assert not (path / "half").exists()
        if error is not None:
            raise error


@pytest.mark.parametrize("error", [RuntimeError(), KeyboardInterrupt()])
def test_an_interrupted_directory_leaves_nothing(error, tmp_path):
    with pytest.raises(type(error)):
        filled(tmp_path / "out", error=error)
    assert list(tmp_path.iterdir()) == []


def test_a_directory_may_be_new_or_empty(tmp_path):
    (tmp_path / "empty").mkdir()
    for path in (tmp_path / "empty", tmp_path / "a" / "b"):
        filled(path)
        assert [entry.name for entry in path.iterdir()] == ["half"]
        with pytest.raises(FileExistsError, match="already holds something"):
            filled(path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "empty"]


def _hold_and_die(path, held):
    with files.locked(path, busy=RuntimeError()):
        held.set()
        os.kill(os.getpid(), 9)


def test_a_lock_is_for_one_and_ends_with_its_process(tmp_path):
    path = tmp_path / "new" / "lock"
    with (
        files.locked(path, busy=RuntimeError()),
        pytest.raises(RuntimeError, match="somebody"),
        files.locked(path, busy=RuntimeError("somebody holds it")),
    ):
        pass
    context = multiprocessing.get_context("fork")
    held = context.Event()
    process = context.Process(target=_hold_and_die, args=(path, held))
    process.start()
    process.join()
    assert held.is_set()
    with files.locked(path, busy=RuntimeError("somebody holds it")):
        pass


def test_a_lock_that_cannot_be_made_is_an_os_error(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"), files.locked(tmp_path / "file" / "lock", busy=RuntimeError()):
        pass
