"""Notes on features: what is kept, of which autoencoder, and what is refused."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from course_lib.files import locked
from course_lib.interpret.browser import requests
from course_lib.interpret.browser.notes import FILE, NONE, Notes, merged


def test_notes_are_kept_by_feature_and_empty_ones_are_none(tmp_path):
    path = tmp_path / FILE
    notes = Notes(path, "abc", 96)
    assert notes.read() == {}
    first = {3: {"note": "a hammer\n„Hämmer“", "lists": ["tools"]}, 5: {"note": "", "lists": ["tools", "x"]}}
    assert notes.update(first) == first
    assert Notes(path, "abc", 96).read() == first
    assert notes.update({5: {"note": " ", "lists": []}}) == {3: first[3]}
    assert Notes(path, "abc", 96).read() == {3: first[3]}


def note(text, *lists):
    return {"note": text, "lists": list(lists)}


@pytest.mark.parametrize(
    ("stored", "before", "after", "kept"),
    [
        (NONE, NONE, note("a", "x"), note("a", "x")),
        (note("a"), note("a"), note("b"), note("b")),
        (note("a"), note("a"), note(""), note("")),
        # Somebody else wrote since the page was read.
        (note("theirs"), NONE, note("mine"), note("theirs\nmine")),
        (note("theirs"), NONE, note("", "x"), note("theirs", "x")),
        (note("a, then theirs"), note("a"), note("a"), note("a, then theirs")),
        (note("a, then more"), note(""), note("a"), note("a, then more")),
        (note("", "x", "y"), note("", "x"), note("", "z"), note("", "y", "z")),
        (note("same"), NONE, note("same"), note("same")),
        (note("theirs"), note("a"), note(""), note("theirs")),
    ],
)
def test_what_somebody_else_wrote_in_the_meantime_stays(stored, before, after, kept, tmp_path):
    assert merged(stored, before, after) == kept
    notes = Notes(tmp_path / FILE, "abc", 96)
    notes.update({3: stored, 4: note("another")})
    found = notes.update({3: after}, {3: before})
    assert found.pop(4) == note("another")
    assert found.get(3, NONE) == kept
    assert notes.update({3: after})[4] == note("another")
    assert notes.read().get(3, NONE) == (after if after["note"] or after["lists"] else NONE)


def test_two_texts_that_are_too_long_together_are_refused(tmp_path):
    notes = Notes(tmp_path / FILE, "abc", 96)
    notes.update({3: note("a" * 9000)})
    with pytest.raises(ValueError, match=r"features\['3'\] is too long"):
        notes.update({3: note("b" * 9000)}, {})
    assert notes.read() == {3: note("a" * 9000)}


def test_writers_at_the_same_time_lose_nothing(tmp_path):
    def write(first):
        own = Notes(tmp_path / FILE, "abc", 96)
        for feature in range(first, 40, 4):
            own.update({feature: note(f"of {first}")}, {})

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(write, range(4)))
    assert Notes(tmp_path / FILE, "abc", 96).read() == {n: note(f"of {n % 4}") for n in range(40)}


def test_a_writer_that_waits_too_long_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr("course_lib.interpret.browser.notes._PATIENCE", 0.05)
    with (
        locked(tmp_path / f".{FILE}.lock", busy=RuntimeError()),
        pytest.raises(ValueError, match=f"another server is writing {tmp_path / FILE}; try again"),
    ):
        Notes(tmp_path / FILE, "abc", 96).update({3: note("a")})
    assert not (tmp_path / FILE).exists()


def test_notes_of_another_autoencoder_stay_as_they_are(tmp_path):
    path = tmp_path / FILE
    Notes(path, "abc", 96).update({3: {"note": "mine", "lists": []}})
    before = path.read_bytes()
    other = Notes(path, "xyz", 96)
    for work in (other.read, lambda: other.update({1: {"note": "theirs", "lists": []}})):
        with pytest.raises(ValueError, match="another autoencoder"):
            work()
    assert path.read_bytes() == before


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"features": {"x": {}}}', b"\xff"])
def test_a_damaged_file_is_named_and_not_written_over(content, tmp_path):
    path = tmp_path / FILE
    path.write_bytes(content)
    with pytest.raises(ValueError, match=f"{FILE} is damaged"):
        Notes(path, "abc", 96).update({3: {"note": "a", "lists": []}})
    assert path.read_bytes() == content


@pytest.mark.parametrize(
    ("features", "words"),
    [
        (None, "features is None; expected an object"),
        ({"-1": {}}, "expected the number of a feature"),
        ({"1": []}, "expected an object"),
        ({"1": {"note": 3}}, "note is 3; expected a text"),
        ({"1": {"lists": "tools"}}, "lists is 'tools'"),
        ({"1": {"lists": [3]}}, "name is 3; expected a text"),
        ({"1": {"note": "x" * 10_001}}, "too long"),
        ({"1": {"lists": ["x" * 101]}}, "too long"),
    ],
)
def test_what_is_no_note_is_explained(features, words):
    with pytest.raises(ValueError, match=words):
        requests.notes(json.loads(json.dumps({"features": features})))


def test_a_feature_that_is_not_there_has_no_note(tmp_path):
    with pytest.raises(ValueError, match="feature is 96; expected a number from 0 to 95"):
        Notes(tmp_path / FILE, "abc", 96).update({96: {"note": "a", "lists": []}})
    assert list(tmp_path.iterdir()) == []
