"""What a build keeps follows its sources: made anew when they change, and never half."""

import pytest

from course_lib.editions import cache
from course_lib.lessons.catalog import LESSONS


def test_the_fingerprint_reads_the_lesson_and_the_library_but_no_other_lesson(tmp_path, monkeypatch):
    lesson, other = LESSONS[1], LESSONS[2]
    places = {
        "own": tmp_path / "lessons" / lesson.slug / "pictures.py",
        "other": tmp_path / "lessons" / other.slug / "pictures.py",
        "library": tmp_path / "attention" / "ridge.py",
        "pages": tmp_path / "editions" / "site" / "pages.py",
        "facts": tmp_path / "editions" / "site" / "facts.py",
    }
    for path in places.values():
        path.parent.mkdir(parents=True) if not path.parent.exists() else None
        path.write_text("x = 1")
    monkeypatch.setattr(cache, "PACKAGE", tmp_path)
    before = cache.fingerprint(lesson)
    changes = {}
    for name, path in places.items():
        path.write_text("x = 2")
        changes[name] = cache.fingerprint(lesson) != before
        path.write_text("x = 1")
    assert changes == {"own": True, "other": False, "library": True, "pages": False, "facts": True}


def test_a_changed_source_has_another_hash(tmp_path, monkeypatch):
    monkeypatch.setattr(cache, "PACKAGE", tmp_path)
    (tmp_path / "pages").mkdir()
    (tmp_path / "pages" / "a.py").write_text("x = 1")
    same = cache.sources(["pages"], b"a")
    assert cache.sources(["pages"], b"a") == same
    assert cache.sources(["pages"], b"b") != same
    (tmp_path / "other.py").write_text("x = 1")
    assert cache.sources(["pages"], b"a") == same
    (tmp_path / "pages" / "b.css").write_text("")
    assert cache.sources(["pages"], b"a") != same
    (tmp_path / "pages" / "b.css").unlink()
    (tmp_path / "pages" / "a.py").write_text("x = 2")
    assert cache.sources(["pages"], b"a") != same
    assert cache.sources(["pages/a.py"], b"a") != cache.sources(["other.py"], b"a")


def make(word, folder):
    if word == "stop":
        raise RuntimeError(word)
    folder.mkdir()
    (folder / word).touch()


def test_what_is_missing_is_made_and_takes_the_place_of_what_is_old(tmp_path):
    one, other = LESSONS[1:3]
    for name in ("01-old", "02-kept", "03-another"):
        (tmp_path / name).mkdir()
    folders = {one: cache.folder_of(tmp_path, one, "new"), other: cache.folder_of(tmp_path, other, "kept")}
    with pytest.raises(RuntimeError, match="stop"):
        cache.make_missing(make, {one: ("stop",), other: ("stop",)}, folders, workers=1)
    assert [path.name for path in cache.find_made(tmp_path, one)] == ["01-old"]
    cache.make_missing(make, {one: ("text",), other: ("stop",)}, folders, workers=1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["01-new", "02-kept", "03-another"]
    assert (tmp_path / "01-new" / "text").exists()
    with pytest.raises(ValueError, match="workers must be at least 1, got 0"):
        cache.make_missing(make, {}, {}, workers=0)
