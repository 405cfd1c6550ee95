"""The store of measured numbers: one format, clear errors, and nobody who reads its files by hand."""

import json
import re
from math import isfinite
from pathlib import Path

import pytest

from benchmarks import page
from benchmarks.__main__ import PARTS, STORE, main, save
from course_lib import measured as store
from course_lib.measured import figures, measured, origin, parts, quote, spread

ROOT = Path(__file__).resolve().parents[1]


def leaves(value) -> list:
    if isinstance(value, dict):
        return [leaf for inner in value.values() for leaf in leaves(inner)]
    return [leaf for inner in value for leaf in leaves(inner)] if isinstance(value, list) else [value]


@pytest.mark.parametrize("part", parts())
def test_every_part_has_an_origin_and_finite_figures(part):
    stored = json.loads((STORE / f"{part}.json").read_text(encoding="utf-8"))
    assert set(stored) == {"format", "origin", "figures"}
    about = origin(part)
    assert list(about)[:5] == ["machine", "date", "command", "versions", "seeds"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", about["date"])
    assert {"python", "torch"} <= set(about["versions"])
    assert figures(part)
    numbers = [leaf for leaf in leaves(figures(part)) if leaf is not None]
    assert all(isfinite(number) for number in numbers)


@pytest.mark.parametrize("part", parts())
def test_the_command_that_repeats_a_part_exists(part):
    if origin(part)["command"] is None:
        assert "no command repeats it" in origin(part)["note"]
        return
    command = origin(part)["command"].split()
    if command[:2] == ["make", "bench"]:
        assert command[2:] == [part.removeprefix("gpu/")]
        assert command[2] in PARTS
    else:
        module = command[command.index("-m") + 1]
        assert (ROOT / f"{module.replace('.', '/')}.py").exists() or (ROOT / module / "__main__.py").exists()


def test_a_number_is_looked_up_by_part_and_name():
    name = "quadratic kernel / SDPA, no mask, N=32768"
    found = spread("attention", name)
    assert found.q25 <= found.median <= found.q75
    assert measured("attention", name) == found.median == figures("attention")[name]
    assert quote("attention", name) == f"{found.median:.2g}".ljust(4, "0")
    assert quote("attention", name, ".1f", scale=100, quartiles=True) == (
        f"{100 * found.median:.1f} [{100 * found.q25:.1f}..{100 * found.q75:.1f}]"
    )
    assert measured("causes", "encoder, switched off: detector")["n"] > 0


@pytest.mark.parametrize(
    ("part", "name", "said"),
    [
        (
            "attentoin",
            "",
            "part must be one of across_languages, adapter_scale, almost_mbart, attention, .*, got 'attentoin'",
        ),
        (
            "attention",
            "quadratic kernel / SDPA, N=32768",
            "nearest: .*quadratic kernel / SDPA, no mask, N=32768",
        ),
        ("../../pyproject", "", "part must be one of"),
    ],
)
def test_errors_name_what_there_is(part, name, said):
    with pytest.raises(LookupError, match=said):
        measured(part, name)


def test_counts_have_no_quartiles():
    with pytest.raises(LookupError, match="without quartiles"):
        spread("causes", "encoder, switched off: detector")


def test_another_format_is_refused(tmp_path, monkeypatch):
    (tmp_path / "gpu").mkdir()
    (tmp_path / "old.json").write_text('{"machine": {}, "figures": {}}')
    monkeypatch.setattr(store, "files", lambda _: tmp_path)
    with pytest.raises(ValueError, match=r"old\.json has format None, expected 1"):
        measured("old", "x")


def test_what_is_saved_can_be_looked_up(tmp_path, monkeypatch):
    (tmp_path / "gpu").mkdir()
    known = {
        "machine": {"cores": 2},
        "versions": {"python": "3.11", "torch": "2.13"},
        "seeds": (0, 1),
        "settings": None,
    }
    save("ridge", {"a / b": store.Spread(1.0, 0.5, 2.0), "runs": [[1, 2]]}, known, tmp_path)
    save("graphs", {"a / b": 3}, {**known, "machine": {"gpu": "H100"}}, tmp_path)
    monkeypatch.setattr(store, "files", lambda _: tmp_path)
    store._stored.cache_clear()
    try:
        assert parts() == ["gpu/graphs", "ridge"]
        assert spread("ridge", "a / b") == store.Spread(1.0, 0.5, 2.0)
        assert measured("ridge", "runs") == [[1, 2]]
        assert measured("gpu/graphs", "a / b") == 3
        assert origin("ridge")["command"] == "make bench ridge"
        assert origin("ridge")["seeds"] == [0, 1]
    finally:
        store._stored.cache_clear()


def test_nobody_reads_the_files_of_the_store_by_hand():
    sources = [*(ROOT / "course_lib").rglob("*.py"), *(ROOT / "notebooks").glob("*.ipynb")]
    by_path = re.compile(r"""measured["']?\s*/|measured/[\w/]+\.json|measurements\.json""")
    code = {
        path.relative_to(ROOT).as_posix(): [
            line
            for line in path.read_text(encoding="utf-8").splitlines()
            if by_path.search(line) and re.search(r"read_text|open\(|Path\(|/ \"", line)
        ]
        for path in sources
    }
    assert {name: lines for name, lines in code.items() if lines} == {}


# ---------------------------------------------------------------- the pages


def test_the_page_is_what_the_store_says():
    assert (ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8") == page.page()


def test_the_headlines_of_the_readme_are_what_the_store_says():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert page.with_headlines(readme) == readme
    assert page.headlines() in readme


def test_a_digit_changed_by_hand_is_noticed():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    section = readme[readme.index("## Measured") :]
    for digit in re.findall(r"\d\.\d", page.headlines())[:5]:
        changed = readme.replace(
            section, section.replace(digit, f"{digit[:-1]}{(int(digit[-1]) + 1) % 10}", 1)
        )
        assert changed != readme
        assert page.with_headlines(changed) == readme


def test_a_readme_without_its_section_is_refused():
    with pytest.raises(ValueError, match="one section '## Measured', found 0"):
        page.with_headlines("# A\n")


# ---------------------------------------------------------------- the command


def test_the_list_of_parts_is_the_commands(capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", ["benchmarks", "--list"])
    main()
    assert capsys.readouterr().out.split() == list(PARTS)


def test_an_unknown_part_is_refused(capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", ["benchmarks", "no-such-part"])
    with pytest.raises(SystemExit):
        main()
    assert "PART must be among explorer, " in capsys.readouterr().err


def test_every_part_has_its_modules():
    for modules in PARTS.values():
        assert all((ROOT / "benchmarks" / f"{module}.py").exists() for module in modules)
