"""A small part of `make faults`: no damaged byte gives another value, or an error without the name of its file."""

import random

import pytest

from tests import faults


def test_no_fault_goes_unnoticed():
    ends, bad = faults.measure(160, seed=1)
    assert bad == []
    assert len(ends) == 8
    # Most faults reach what is read; of checkpoints the last one alone is read.
    assert all(found["refused"] >= 5 for found in ends.values())
    assert sum(found["refused"] for found in ends.values()) > sum(found["same"] for found in ends.values())


@pytest.mark.parametrize("kind", faults.KINDS)
def test_each_kind_changes_the_bytes_and_a_reader_without_digest_is_caught(tmp_path, kind):
    data = bytes(range(1, 200)) * 4
    assert faults.damaged(data, kind, random.Random(0)) != data
    path = tmp_path / "numbers.bin"
    path.write_bytes(data)
    place = faults.Place("numbers", (path,), path.read_bytes)
    end, _ = faults.inject(place, path, kind, random.Random(0), faults.digest(place.read()))
    assert end == ("refused" if kind == "remove" else "wrong")
    assert path.read_bytes() == data


def test_the_page_holds_a_table():
    inside = faults.PAGE.read_text(encoding="utf-8").split(faults.BEGIN)[1].split(faults.END)[0]
    rows = [row.strip("| ").split(" | ") for row in inside.strip().splitlines()[2:]]
    assert len(rows) == 8
    assert all(row[3:] == ["0", "0"] for row in rows)
    assert sum(int(cell.replace(",", "")) for row in rows for cell in row[1:]) >= 2000
