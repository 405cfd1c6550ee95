"""The reader of LibreOffice's help, on packages that these tests build: no sentence of the help is here."""

import shutil
import subprocess

import pytest
from typer.testing import CliRunner

from course_lib.commands import app
from course_lib.language.libreoffice_help import (
    NotHelpError,
    near_doubles,
    paragraphs,
    read,
    split_of,
    write_table,
)

NOUNS = {
    "en": ["apple", "bridge", "candle", "donkey", "engine", "forest", "garden", "hammer", "island", "jacket"],
    "de": ["Apfel", "Brücke", "Kerze", "Esel", "Motor", "Wald", "Garten", "Hammer", "Insel", "Jacke"],
    "fr": ["pomme", "pont", "bougie", "âne", "moteur", "forêt", "jardin", "marteau", "île", "veste"],
}
SAYS = {
    "en": "The {} is behind the {} here.",
    "de": "Der oder die {} steht nun hinter {}.",
    "fr": "On voit {} derrière ce que voici : {}.",
}


def page(*blocks: str) -> str:
    return f'<html><body><header><p dir="auto">Help about help, of course</p></header>{"".join(blocks)}</body></html>'


def say(language: str, a: int, b: int) -> str:
    return SAYS[language].format(NOUNS[language][a], NOUNS[language][b])


def packed(root, *, pages=40, languages=("en", "de", "fr")):
    """A help of pages with two sentences each, as a package unpacks it."""
    for language in languages:
        folder = root / "usr/share/libreoffice/help" / {"en": "en-US"}.get(language, language) / "text/shared"
        folder.mkdir(parents=True)
        for number in range(pages):
            a, b = divmod(number, 10)
            two = [say(language, a, b), say(language, b, a + 4)]
            blocks = [f'<p id="par_id{i}" class="paragraph">{text}</p>' for i, text in enumerate(two)]
            (folder / f"{number:02}.html").write_text(page(*blocks), encoding="utf-8")
    return root


def add(root, language, name, *blocks):
    folder = {"en": "en-US"}.get(language, language)
    (root / "usr/share/libreoffice/help" / folder / f"text/{name}.html").write_text(
        page(*blocks), encoding="utf-8"
    )


def test_a_paragraph_is_its_text_on_one_line_without_markup():
    found = paragraphs(
        page(
            '<h1 id="hd_id1"><a name="x"></a>Tools &amp; <em>Options</em>\n of&nbsp;now</h1>',
            '<p id="par_id2">Press <span class="key">Ctrl</span><br>twice: a &lt; b</p>',
            '<p id="par_id3">one</p><p id="par_id3">two</p><p>nameless</p><p id="bm_x">of the page</p>',
            '<p id="par_id4">Hold <span class="switchinline"><span hidden="true" class="MAC" id="MAC1">Command</span>'
            '<span hidden="true" id="default1">Control</span></span> down</p>',
            '<p id="par_id5">never <b>closed',
        )
    )
    assert found == {
        "hd_id1": "Tools & Options of now",
        "par_id2": "Press Ctrl twice: a < b",
        "par_id4": "Hold Control down",
        "par_id5": "never closed",
    }


def test_paragraphs_are_aligned_by_page_and_id_and_come_in_the_order_of_languages(tmp_path):
    found = read([packed(tmp_path)], languages=["fr", "en"])
    assert len(found) > 20
    for row in found:
        a, b = divmod(int(row.page.removeprefix("shared/")), 10)
        a, b = (a, b) if row.id == "par_id0" else (b, a + 4)
        assert row.texts == (say("fr", a, b), say("en", a, b))
        assert row.split == split_of(row.page)
    assert [row.page for row in found] == sorted(row.page for row in found)


def test_what_is_short_untranslated_code_or_missing_is_left_out(tmp_path):
    root = packed(tmp_path, pages=1)
    kept = {
        "en": "A new sentence in English.",
        "de": "Ein neuer Satz auf Deutsch.",
        "fr": "Une phrase en français.",
    }
    blocks = {
        "short": {"en": "Two words", "de": "Zwei kurze Worte", "fr": "Encore trois mots"},
        "alike": {
            "en": "This was never translated",
            "de": "this was never translated",
            "fr": "Cela est traduit ici",
        },
        "code": {"en": "=SUM(A1:A3;B1) + 3", "de": "=SUMME(A1:A3;B1) + 3", "fr": "=SOMME(A1:A3;B1) + 3"},
        "missing": {"en": "Only here and there", "de": "Nur hier und da"},
        "kept": kept,
    }
    for language in ("en", "de", "fr"):
        rows = [
            f'<p id="{name}">{texts[language]}</p>' for name, texts in blocks.items() if language in texts
        ]
        add(root, language, "other", *rows)
    found = [row for row in read([root], languages=["en", "de", "fr"]) if row.page == "other"]
    assert [(row.id, row.texts) for row in found] == [("kept", tuple(kept.values()))]


@pytest.mark.parametrize("language", ["en", "de"])
def test_a_near_double_on_another_page_is_left_out_in_whichever_language_it_is(tmp_path, language):
    root = packed(tmp_path, pages=1)
    first = {
        "en": "one two three four five six seven eight nine",
        "de": "eins zwei drei vier fünf sechs sieben acht neun",
    }
    other = {"en": "quite another thing to say here", "de": "etwas ganz anderes ist hier zu sagen"}
    second = other | {language: first[language].replace("nine", "ten").replace("neun", "zehn").title() + "!"}
    for code in ("en", "de"):
        add(root, code, "p1", f'<p id="a">{first[code]}</p>', f'<p id="b">{second[code]}</p>')
        add(root, code, "p2", f'<p id="a">{second[code]}</p>')
    found = [(row.page, row.id) for row in read([root], languages=["en", "de"]) if row.page.startswith("p")]
    assert found == [("p1", "a"), ("p1", "b")]  # on one page they do no harm


def test_near_doubles_are_all_pairs_that_comparing_each_with_each_finds():
    texts = [f"w{i % 7} w{i % 5} w{i % 3} x{i // 9} y{i % 2} z{i % 4}" for i in range(120)]
    bags = [
        set(text.replace("w", "w ").replace("x", "x ").replace("y", "y ").replace("z", "z ").split())
        for text in texts
    ]
    by_hand = {
        (i, j) for j in range(120) for i in range(j) if len(bags[i] & bags[j]) >= 0.8 * len(bags[i] | bags[j])
    }
    found = list(near_doubles(texts))
    assert set(found) == by_hand
    assert len(found) == len(by_hand) > 50


def test_a_tenth_of_pages_is_held_out_whatever_else_there_is():
    sides = [split_of(f"shared/{i}") for i in range(4000)]
    assert 0.08 < sides.count("test") / 4000 < 0.12


def test_the_help_is_read_from_debs_and_from_where_it_is_installed(tmp_path):
    whole = packed(tmp_path / "whole")
    expected = read([whole], languages=["en", "de"])
    assert read([whole / "usr/share/libreoffice/help"], languages=["en", "de"]) == expected
    if shutil.which("dpkg-deb") is None:
        pytest.skip("dpkg-deb is not installed")
    debs = []
    for language in ("en", "de"):
        root = packed(tmp_path / language, languages=(language,))
        (root / "DEBIAN").mkdir()
        (root / "DEBIAN/control").write_text(
            f"Package: help-{language}\nVersion: 1\nArchitecture: all\nMaintainer: nobody <a@b.c>\nDescription: made up\n"
        )
        debs.append(tmp_path / f"{language}.deb")
        subprocess.run(["dpkg-deb", "-b", root, debs[-1]], check=True, capture_output=True)
    assert read(debs, languages=["en", "de"]) == expected
    debs[1].write_bytes(b"no package")
    with pytest.raises(RuntimeError, match=r"de\.deb cannot be unpacked"):
        read(debs, languages=["en", "de"])


def test_what_is_no_help_is_named(tmp_path, monkeypatch):
    root = packed(tmp_path / "help", languages=("en", "de"))
    with pytest.raises(NotHelpError, match=r"no help in 'es': .* has de, en-US; .* libreoffice-help-es"):
        read([root], languages=["en", "es"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(NotHelpError, match="holds no help of LibreOffice"):
        read([tmp_path / "empty"], languages=["en", "de"])
    with pytest.raises(NotHelpError, match=r"neither a directory nor a .deb file"):
        read([tmp_path / "nowhere"], languages=["en", "de"])
    for languages in (["en"], ["en", "en"], []):
        with pytest.raises(NotHelpError, match="expected two or more different ones"):
            read([root], languages=languages)
    bare = packed(tmp_path / "bare", pages=0, languages=("en", "de"))
    for language in ("en", "de"):
        add(bare, language, "p", '<p id="a">short</p>')
    with pytest.raises(
        NotHelpError, match="no paragraph of 3 words or more is translated into all of en, de"
    ):
        read([bare], languages=["en", "de"])
    package = tmp_path / "a.deb"
    package.write_bytes(b"")
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(RuntimeError, match=r"a\.deb needs dpkg-deb"):
        read([package], languages=["en", "de"])


def test_the_command_writes_a_table_and_names_the_licence(tmp_path):
    root, out = packed(tmp_path / "help"), tmp_path / "t.tsv"
    options = ["--languages", "en", "de", "fr", "--source", str(root), "--out", str(out)]
    done = CliRunner().invoke(app, ["corpus", "libreoffice-help", *options])
    assert done.exit_code == 0, done.output
    assert "licence of the text: MPL-2.0" in done.stdout
    names, *rows = [line.split("\t") for line in out.read_text(encoding="utf-8").splitlines()]
    assert names == ["page", "id", "split", "en", "de", "fr"]
    found = read([root], languages=["en", "de", "fr"])
    assert [tuple(row) for row in rows] == [(p.page, p.id, p.split, *p.texts) for p in found]
    assert {row[2] for row in rows} == {"train", "test"}
    write_table(found, tmp_path / "again.tsv", languages=["en", "de", "fr"])
    assert (tmp_path / "again.tsv").read_bytes() == out.read_bytes()


def test_the_command_explains_what_it_cannot_use(tmp_path):
    out = str(tmp_path / "t.tsv")
    run = CliRunner().invoke
    done = run(app, ["corpus", "libreoffice-help", "--source", str(tmp_path), "--out", out])
    assert done.exit_code == 2
    assert done.stderr.startswith("error: no help in 'en'")
    assert run(app, ["corpus", "libreoffice-help", "de", "--out", out]).exit_code == 2
    assert not (tmp_path / "t.tsv").exists()
