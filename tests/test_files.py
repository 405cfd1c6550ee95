"""Whole or not at all, and one process at a time."""

import multiprocessing
import os
import re

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


@pytest.mark.parametrize("write", [files.replacing, files.new_directory])
def test_the_error_of_a_full_disk_names_what_was_written(write, tmp_path):
    place = tmp_path / "place"
    for told, expected in (
        ((28, "No space left on device"), f"[Errno 28] No space left on device: '{place}'"),
        ((2, "No such file", "other"), "[Errno 2] No such file: 'other'"),
        (("4096 requested and 0 written",), f"{place} cannot be written: 4096 requested and 0 written"),
    ):
        with pytest.raises(OSError, match=f"^{re.escape(expected)}$"), write(place):
            raise OSError(*told)
    assert list(tmp_path.iterdir()) == []


def test_sums_are_those_of_sha256sum(tmp_path):
    (tmp_path / "a").write_bytes(b"abc")
    (tmp_path / "README.md").write_text("not among them")
    files.write_sums(tmp_path)
    # The digest of "abc" is the first example of FIPS 180-2.
    expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad  a\n"
    assert (tmp_path / files.SUMS).read_text() == expected
    files.check_sums(tmp_path)
    (tmp_path / "README.md").unlink()
    files.write_sums(tmp_path)
    files.check_sums(tmp_path)
    (tmp_path / "a").write_bytes(b"abd")
    with pytest.raises(ValueError, match=f"{tmp_path / 'a'} is damaged"):
        files.check_sums(tmp_path)


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


def test_a_directorys_bytes_are_on_the_disk_before_its_name_is(tmp_path, monkeypatch):
    seen, fsync = [], os.fsync

    def watched(handle):
        seen.append((os.path.basename(os.readlink(f"/proc/self/fd/{handle}")), (tmp_path / "out").exists()))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", watched)
    with files.new_directory(tmp_path / "out") as partial:
        (partial / "inner").mkdir()
        for name in ("first", "inner/second"):
            (partial / name).write_text(name)
    *before, (last, there) = seen
    assert sorted(name for name, _ in before) == sorted(["first", "inner", "second", partial.name])
    assert not any(there for _, there in before)
    assert (last, there) == (tmp_path.name, True)


def _make_and_die(path, made):
    with files.new_directory(path) as partial:
        (partial / "half").touch()
        made.set()
        os.kill(os.getpid(), 9)


def _make_and_wait(path, made, go_on):
    with files.new_directory(path) as partial:
        (partial / "whole").touch()
        made.set()
        go_on.wait(60)


def test_what_the_dead_left_goes_and_what_the_living_make_stays(tmp_path):
    context = multiprocessing.get_context("fork")
    dead, living, go_on = context.Event(), context.Event(), context.Event()
    killed = context.Process(target=_make_and_die, args=(tmp_path / "out", dead))
    killed.start()
    killed.join()
    assert dead.is_set()
    assert len(list(tmp_path.glob(".out-*.partial"))) == 1
    (tmp_path / ".output-01234567.partial").mkdir()  # of another directory
    other = context.Process(target=_make_and_wait, args=(tmp_path / "out", living, go_on))
    other.start()
    living.wait(60)
    assert len(list(tmp_path.glob(".out-*.partial"))) == 1
    filled(tmp_path / "out")
    assert len(list(tmp_path.glob(".out-*.partial"))) == 1  # the living one's
    go_on.set()
    other.join()
    # The second to finish found the place taken: what it made is kept beside it.
    (kept,) = tmp_path.glob("out-*")
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(
        [".output-01234567.partial", "out", kept.name]
    )
    assert [entry.name for entry in kept.iterdir()] == ["whole"]
    assert [entry.name for entry in (tmp_path / "out").iterdir()] == ["half"]


def taken_meanwhile(path):
    with files.new_directory(path) as partial:
        (partial / "ours").touch()
        path.mkdir()
        (path / "theirs").touch()


def test_a_place_that_was_taken_meanwhile_costs_nothing(tmp_path):
    with pytest.raises(FileExistsError, match="was taken while it was being made") as caught:
        taken_meanwhile(tmp_path / "out")
    (kept,) = tmp_path.glob("out-*")
    assert str(caught.value).endswith(f"what was made is whole, in {kept}")
    assert [entry.name for entry in kept.iterdir()] == ["ours"]
    assert [entry.name for entry in (tmp_path / "out").iterdir()] == ["theirs"]


@pytest.mark.parametrize("there", [True, False])
def test_a_link_is_followed(there, tmp_path):
    (tmp_path / "disk").mkdir()
    if there:
        (tmp_path / "disk" / "target").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "disk" / "target")
    filled(tmp_path / "link")
    assert [entry.name for entry in (tmp_path / "disk" / "target").iterdir()] == ["half"]
    assert (tmp_path / "link").is_symlink()
    assert [entry.name for entry in (tmp_path / "disk").iterdir()] == ["target"]


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


def test_a_file_that_a_dead_process_began_is_removed_and_one_that_a_living_one_writes_stays(tmp_path):
    path = tmp_path / "numbers[1].txt"
    dead = tmp_path / ".numbers[1].txt-0123abcd.partial"
    dead.write_bytes(b"half of it")
    other = tmp_path / ".other.txt-0123abcd.partial"
    other.write_bytes(b"of another file")
    with files.replacing(path) as outer:
        outer.write(b"first")
        with files.replacing(path) as inner:
            inner.write(b"second")
        assert path.read_bytes() == b"second"
    assert path.read_bytes() == b"first"
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([path.name, other.name])


def test_a_name_that_is_not_utf_8_is_refused_before_tensors_are_written(tmp_path):
    files.check_utf8(tmp_path / "Zoë")
    bad = tmp_path / os.fsdecode(b"x\xff")
    with pytest.raises(ValueError, match=rf"x\\?\S+ is not UTF-8 at character {len(str(tmp_path)) + 3}"):
        files.check_utf8(bad)
