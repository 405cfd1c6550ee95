"""Notes on features: what is kept, of which autoencoder, and what is refused."""

import json

import pytest

from course_lib.interpret.browser import requests
from course_lib.interpret.browser.notes import FILE, Notes


def test_notes_are_kept_by_feature_and_empty_ones_are_none(tmp_path):
    path = tmp_path / FILE
    notes = Notes(path, "abc", 96)
    assert notes.read() == {}
    first = {3: {"note": "a hammer\n„Hämmer“", "lists": ["tools"]}, 5: {"note": "", "lists": ["tools", "x"]}}
    assert notes.update(first) == first
    assert Notes(path, "abc", 96).read() == first
    assert notes.update({5: {"note": " ", "lists": []}}) == {3: first[3]}
    assert Notes(path, "abc", 96).read() == {3: first[3]}


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
