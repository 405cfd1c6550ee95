"""A store on disk: nothing is lost or counted twice, whatever happens to it."""

import errno
import gzip
import io
import json
import logging
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from course_lib.language.corpus import Sentence
from course_lib.language.text import read_fields
from course_lib.mbart import activation_store as stores
from course_lib.mbart.activation_store import ActivationStore, StoreError, read_text, write_store
from course_lib.mbart.activations import NotFiniteError, Site, extract
from course_lib.mbart.model import load
from tests.tiny_mbart import SENTENCES, write_tiny_mbart

LANGUAGES = ("en_XX", "fr_XX", "de_DE", None)
TEXT = [Sentence(text, LANGUAGES[i % 4]) for i, text in enumerate(SENTENCES[:45])]
SITE = Site("encoder")
SHARD = 10


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    path = tmp_path_factory.mktemp("model")
    write_tiny_mbart(path)
    return path


@pytest.fixture(scope="module")
def mbart(directory):
    return load(str(directory))


def write(out, mbart, text=TEXT, **options):
    model, tokenizer = mbart
    options = {"site": SITE, "shard_size": SHARD, "model_name": "tiny", "progress": False} | options
    return write_store(out, model, tokenizer, text, **options)


def files(path):
    return {p.name: p.read_bytes() for p in sorted(Path(path).iterdir())}


@pytest.fixture(scope="module")
def whole(mbart, tmp_path_factory):
    """One undisturbed run, which nobody changes."""
    path = tmp_path_factory.mktemp("whole") / "store"
    write(path, mbart)
    return path


@pytest.fixture
def store(whole, tmp_path):
    """A copy to damage."""
    return Path(shutil.copytree(whole, tmp_path / "store"))


# --- Reading ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("site", ["encoder.final", "encoder.0", "decoder.1.mlp"])
@pytest.mark.parametrize("pool", ["tokens", "mean"])
def test_a_store_holds_what_extract_gives(mbart, tmp_path, site, pool):
    site = Site.parse(site)
    store = write(tmp_path / "store", mbart, site=site, pool=pool)
    expected = extract(*mbart, TEXT, [site], pool=pool, progress=False)[site]
    torch.testing.assert_close(store[:], expected.values, atol=1e-6, rtol=1e-6)
    assert (len(store), store.d_model, store.dtype) == (*expected.values.shape, torch.float32)
    assert store.site == site
    assert torch.equal(store.column("sentence"), expected.sentence)
    if pool == "tokens":
        assert store.columns == ("activations", "position", "sentence", "token")
        assert torch.equal(store.column("token"), expected.token.int())
        assert torch.equal(store.column("position"), expected.position.int())
    else:
        assert store.columns == ("activations", "sentence")
    assert [s.sentences for s in store.shards] == [10, 10, 10, 10, 5]
    assert store.verify() == []


def test_rows_are_found_wherever_they_lie(whole):
    store = ActivationStore(whole)
    table = store[:].clone()
    n = len(store)
    generator = torch.Generator().manual_seed(0)
    for rows in (
        torch.randint(-n, n, (500,), generator=generator),
        torch.randperm(n, generator=generator),
        torch.tensor([], dtype=torch.long),
        torch.tensor([n - 1, 0, n - 1, -n]),
    ):
        assert torch.equal(store[rows], table[rows])
        assert torch.equal(store.column("token", rows), store.column("token")[rows])
    ends = [shard.rows for shard in store.shards]
    for rows in (
        slice(3, 9),
        slice(ends[0] - 1, ends[0] + 1),
        slice(-5, None),
        slice(9, 3),
        slice(5, 200, 7),
    ):
        assert torch.equal(store[rows], table[rows])
    assert torch.equal(store[slice(n, None, -3)], table.flip(0)[::3])
    for row in (n, -n - 1):
        with pytest.raises(IndexError, match=rf"row {row}; the store has {n} rows"):
            store[torch.tensor([0, row])]
    chosen = store.column("sentence") % 3 == 1
    assert torch.equal(store[chosen], table[chosen])
    with pytest.raises(IndexError, match=rf"the mask has {n - 1} entries; the store has {n} rows"):
        store[chosen[:-1]]
    for wrong in (0, [1, 2], torch.tensor([0.5])):
        with pytest.raises(TypeError, match="rows"):
            store[wrong]
    with pytest.raises(KeyError, match="activations, position, sentence, token"):
        store.column("label")


def test_reading_is_by_memory_map_and_never_writes(store):
    before = files(store)
    view = ActivationStore(store)[2:5]
    assert (
        view.data_ptr() == ActivationStore(store)[2:5].data_ptr()
        or view.untyped_storage().nbytes() > view.nbytes
    )
    view.zero_()
    assert files(store) == before


def test_bfloat16_is_stored_as_such_and_means_as_float32(directory, tmp_path):
    half = load(str(directory), dtype=torch.bfloat16)
    tokens = write(tmp_path / "tokens", half)
    assert tokens[:3].dtype == tokens.dtype == torch.bfloat16
    assert write(tmp_path / "means", half, pool="mean")[:3].dtype == torch.float32


# --- Text ------------------------------------------------------------------------------------------


def rows_of_a_table():
    return [{"text": s.text, "language": s.language} for s in TEXT]


def streamed_dataset(tmp_path):
    from datasets import IterableDataset

    return IterableDataset.from_generator(rows_of_a_table)


def json_lines(tmp_path):
    path = tmp_path / "text.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows_of_a_table()))
    return read_text(path)


def plain_lines(tmp_path):
    path = tmp_path / "text.txt"
    lines = [f"{s.language[:2]}\t{s.text}" if s.language else s.text for s in TEXT]
    path.write_bytes(b"\xef\xbb\xbf" + "\r\n\n".join(lines).encode())
    return read_text(path, languages=["en_XX", "fr_XX", "de_DE", "es_XX"])


def packed_lines(tmp_path):
    plain_lines(tmp_path)
    path = tmp_path / "text.txt.gz"
    path.write_bytes(gzip.compress((tmp_path / "text.txt").read_bytes()))
    return read_text(path, languages=["en_XX", "fr_XX", "de_DE", "es_XX"])


def packed_json_lines(tmp_path):
    json_lines(tmp_path)
    path = tmp_path / "text.jsonl.gz"
    path.write_bytes(gzip.compress((tmp_path / "text.jsonl").read_bytes()))
    return read_text(path)


OTHER_NAMES = {"text": "sentence", "language": "code"}


def renamed_table(tmp_path):
    """Two columns by other names, and one that is not asked for."""
    from datasets import Dataset

    rows = list(rows_of_a_table())
    return Dataset.from_dict(
        {
            "code": [row.get("language") for row in rows],
            "id": list(range(len(rows))),
            "sentence": [row["text"] for row in rows],
        }
    )


def parquet(tmp_path):
    renamed_table(tmp_path).to_parquet(tmp_path / "text.parquet")
    return read_text(tmp_path / "text.parquet", columns=OTHER_NAMES)


def csv(tmp_path):
    renamed_table(tmp_path).to_csv(tmp_path / "text.csv", index=False)
    return read_text(tmp_path / "text.csv", columns=OTHER_NAMES)


def saved_dataset(tmp_path):
    renamed_table(tmp_path).save_to_disk(str(tmp_path / "text"))
    return read_text(tmp_path / "text", columns=OTHER_NAMES)


@pytest.mark.parametrize(
    "text",
    [
        *(
            streamed_dataset,
            json_lines,
            packed_json_lines,
            parquet,
            csv,
            saved_dataset,
            plain_lines,
            packed_lines,
        ),
        lambda _: iter(TEXT),
    ],
)
def test_the_same_text_gives_the_same_bytes_however_it_comes(mbart, whole, tmp_path, text):
    write(tmp_path / "store", mbart, text(tmp_path))
    assert files(tmp_path / "store") == files(whole)


def test_lines_of_the_standard_input_are_a_text(tmp_path, monkeypatch):
    given = io.TextIOWrapper(io.BytesIO(b"en\tthe dog.\n\nle chat.\n"))
    monkeypatch.setattr("sys.stdin", given)
    assert list(read_text("-", languages=["en_XX"])) == [
        (Sentence("the dog.", "en_XX"), None),
        (Sentence("le chat.", None), None),
    ]


def test_a_text_that_cannot_be_read_is_named(tmp_path):
    plain_lines(tmp_path)
    json_lines(tmp_path)
    (tmp_path / "no.txt.gz").write_text("not packed")
    packed = gzip.compress(bytes(range(32, 127)) * 40, mtime=0)
    (tmp_path / "cut.txt.gz").write_bytes(packed[:-20])
    (tmp_path / "packed.csv.gz").write_bytes(gzip.compress(b"text\nthe dog."))
    for name in ("no.txt.gz", "cut.txt.gz"):
        with pytest.raises(ValueError, match=f"{name} cannot be unpacked"):
            list(read_text(tmp_path / name))
    with pytest.raises(ValueError, match="is a packed table; expected lines"):
        list(read_fields(tmp_path / "packed.csv.gz"))
    renamed = renamed_table(tmp_path)
    renamed.save_to_disk(str(tmp_path / "all" / "train"))
    (tmp_path / "all" / "dataset_dict.json").write_text("{}")
    for name, columns, words in (
        ("text.txt", {"text": "a"}, r"text\.txt has lines and no columns"),
        ("text.jsonl", {"sentence": "a"}, "columns name sentence; expected some of text, language"),
        ("text.jsonl", {"text": "a"}, r"text is column 'a', which .*text\.jsonl lacks; it has text"),
        ("all", {}, "holds several tables; expected one of its directories: train"),
        ("", {}, "is a directory; expected a file, or what Dataset.save_to_disk wrote"),
    ):
        with pytest.raises(ValueError, match=words):
            read_text(tmp_path / name, columns=columns)


def test_pairs_are_read_by_encoder_and_decoder(mbart, tmp_path):
    site, targets = Site("decoder"), [Sentence(s.text, "es_XX") for s in TEXT[::-1]]
    expected = extract(*mbart, TEXT, [site], targets=targets, progress=False)[site].values
    path = tmp_path / "pairs.txt"
    codes = [s.language or "en_XX" for s in TEXT]
    path.write_text(
        "".join(f"{c}\t{s.text}\tes\t{t.text}\n" for c, s, t in zip(codes, TEXT, targets, strict=True))
    )
    kinds = (
        list(zip(TEXT, targets, strict=True)),
        [{"text": s.text, "language": s.language, "target": t.text, "target_language": t.language}
         for s, t in zip(TEXT, targets, strict=True)],
        read_text(path, languages=["es_XX"]),
    )  # fmt: skip
    for number, pairs in enumerate(kinds):
        store = write(tmp_path / str(number), mbart, pairs, site=site)
        torch.testing.assert_close(store[:], expected, atol=1e-6, rtol=1e-6)


def test_no_more_text_is_held_than_a_few_shards(mbart, tmp_path):
    held = []

    def text():
        for index, sentence in enumerate(TEXT):
            finished = len(list((tmp_path / "store").glob("shard-*.json")))
            held.append(index + 1 - finished * 2)
            yield sentence

    write(tmp_path / "store", mbart, text(), shard_size=2)
    assert len(held) == len(TEXT)
    assert max(held) <= 3 * 2  # one is computed, one is tokenised ahead, one is being read


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"good\nb\xffd\n", "line 2: byte 0xff is not UTF-8"),
        (b"en\ta\tb\n", "line 1 has 2 tabs; expected none, one or three"),
        (b"\n\n", "the text holds no sentence"),
        (b"it\tCiao.\n", "sentence 1 has language 'it'"),
    ],
)
def test_text_that_cannot_be_used_is_explained(mbart, tmp_path, content, message):
    (tmp_path / "text.txt").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        write(tmp_path / "store", mbart, read_text(tmp_path / "text.txt"))


def test_a_row_without_text_is_explained(mbart, tmp_path):
    with pytest.raises(ValueError, match=r"'sentence': 'a'.*column 'text'"):
        write(tmp_path / "store", mbart, [{"sentence": "a"}])
    with pytest.raises(FileNotFoundError, match=r"none\.parquet is not a file"):
        read_text(tmp_path / "none.parquet")
    with pytest.raises(FileNotFoundError, match=r"none\.txt is not a file"):
        read_text(tmp_path / "none.txt")


# --- Damage ----------------------------------------------------------------------------------------


def flip(path, position):
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


DAMAGES = {
    "flipped bit in the numbers": (lambda p: flip(p, -5), "checksum"),
    "flipped bit in the header": (lambda p: flip(p, 12), "checksum"),
    "truncated": (lambda p: os.truncate(p, 100), "has 100 bytes, expected"),
    "emptied": (lambda p: os.truncate(p, 0), "has 0 bytes, expected"),
    "missing": (Path.unlink, "is missing"),
}


@pytest.mark.parametrize(("harm", "words"), DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_shard_is_named_and_it_alone_is_computed_again(
    mbart, whole, store, caplog, monkeypatch, harm, words
):
    before = {p.name: p.stat().st_ino for p in store.glob("*.safetensors")}
    harm(store / "shard-00002.safetensors")
    try:
        named = ActivationStore(store).verify()
    except StoreError as error:  # seen without reading the bits
        named = [str(error)]
    assert len(named) == 1
    assert "shard-00002.safetensors" in named[0]
    assert words in named[0]

    read = []
    reader = stores.Reader.read
    monkeypatch.setattr(
        stores.Reader,
        "read",
        lambda self, window, **k: read.append(window.first) or reader(self, window, **k),
    )
    with caplog.at_level(logging.WARNING):
        write(store, mbart)
    assert [r.message for r in caplog.records] == [caplog.records[0].message]
    assert caplog.records[0].message.startswith("shard-00002.safetensors")
    assert words in caplog.records[0].message
    assert read == [2 * SHARD]
    assert files(store) == files(whole)
    after = {p.name: p.stat().st_ino for p in store.glob("*.safetensors")}
    assert {name for name in after if after[name] != before[name]} <= {"shard-00002.safetensors"}


def test_rows_of_a_damaged_shard_are_refused_and_those_of_others_read(whole, store):
    good = ActivationStore(whole)
    first = good.shards[0].rows
    later = torch.arange(first, first + good.shards[1].rows)
    flip(store / "shard-00001.safetensors", -5)
    damaged = ActivationStore(store)
    assert torch.equal(damaged[:first], good[:first])
    for rows in (slice(None), later, slice(first - 1, first + 1)):
        with pytest.raises(
            StoreError, match=r"shard-00001\.safetensors does not have the checksum.*give the command"
        ):
            damaged[rows]
    with pytest.raises(StoreError, match=r"shard-00001\.safetensors"):
        damaged.column("sentence", later)
    flip(store / "shard-00001.safetensors", -5)
    assert torch.equal(damaged[:], good[:])
    flip(store / "shard-00000.safetensors", 12)
    with pytest.raises(StoreError, match=r"shard-00000\.safetensors"):
        _ = ActivationStore(store).columns


def test_a_shard_is_compared_with_its_checksum_once(whole, monkeypatch):
    compared = []
    damage = stores.Shard.damage
    monkeypatch.setattr(
        stores.Shard,
        "damage",
        lambda self, path, **k: (
            compared.append((self.file, k.get("thorough", True))) or damage(self, path, **k)
        ),
    )
    store = ActivationStore(whole)
    assert not any(thorough for _, thorough in compared)
    compared.clear()
    for _ in range(3):
        store[:], store[torch.arange(len(store))], store.column("sentence")
    assert sorted(compared) == [(shard.file, True) for shard in store.shards]


def test_every_flipped_bit_is_found(store):
    """Anywhere in a shard, and anywhere in the manifest."""
    rng = random.Random(0)
    path = store / "shard-00001.safetensors"
    for _ in range(20):
        position = rng.randrange(path.stat().st_size)
        flip(path, position)
        assert ActivationStore(store).verify() == [
            "shard-00001.safetensors does not have the checksum that was recorded"
        ]
        flip(path, position)
    assert ActivationStore(store).verify() == []
    manifest = store / "manifest.json"
    text = manifest.read_text()
    for position in [i for i, c in enumerate(text) if c.isalnum()][::50]:
        flip(manifest, position)
        with pytest.raises(StoreError, match=r"manifest\.json is damaged"):
            ActivationStore(store)
        flip(manifest, position)


def test_rows_of_two_ways_to_round_are_not_mixed(mbart, whole, store, monkeypatch):
    """A store that is whole may be asked for again anywhere; what is missing of it is computed as the rest was."""
    elsewhere = stores._computed_on(torch.device("cpu")) | {"threads": 999}
    monkeypatch.setattr(stores, "_computed_on", lambda device: elsewhere)
    write(store, mbart)
    (store / "shard-00001.safetensors").unlink()
    with pytest.raises(StoreError, match=r"its threads was \d+, now 999; go on as it was begun"):
        write(store, mbart)
    monkeypatch.undo()
    write(store, mbart)
    assert files(store) == files(whole)


def test_a_damaged_manifest_is_not_written_over(mbart, whole, store):
    flip(store / "manifest.json", 40)
    before = files(store)
    with pytest.raises(StoreError, match="restore it, or remove it"):
        write(store, mbart)
    assert files(store) == before
    (store / "manifest.json").unlink()
    write(store, mbart)
    assert files(store) == files(whole)


def test_a_damaged_record_costs_its_shard_only(mbart, whole, tmp_path, monkeypatch):
    out = tmp_path / "store"
    stop_at_write(monkeypatch, 6)  # manifest, shard 0, its record, shard 1, its record, then nothing
    with pytest.raises(StoreError):
        write(out, mbart)
    monkeypatch.undo()
    assert sorted(p.name for p in out.glob("*.json")) == [
        "manifest.json",
        "shard-00000.json",
        "shard-00001.json",
    ]
    flip(out / "shard-00000.json", 30)
    with pytest.raises(StoreError, match="is not finished; run the same command again"):
        ActivationStore(out)
    write(out, mbart)
    assert files(out) == files(whole)


# --- Refusals --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def other_model(directory):
    model, tokenizer = load(str(directory))
    with torch.no_grad():
        model.model.encoder.layers[0].fc1.bias[3] += 1e-3
    return model, tokenizer


@pytest.mark.parametrize("stopped", [False, True])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mbart": "other"}, "weights_sha256"),
        ({"site": Site("encoder", 1)}, "site is 'encoder.final', now 'encoder.1'"),
        ({"pool": "mean"}, "pool is 'tokens', now 'mean'"),
        ({"shard_size": 11}, "shard_size is 10, now 11"),
        ({"include_special": True}, "include_special is False, now True"),
        ({"text": TEXT[:20] + TEXT[21:]}, "another text: sentences 21 to 30"),
        ({"text": [Sentence(s.text, "fr_XX") for s in TEXT]}, "another text: sentences 1 to 10"),
        ({"text": [*TEXT, TEXT[0]]}, "another text: sentences 41 to 46"),
        ({"text": [*TEXT, *TEXT]}, "another text"),
        ({"text": TEXT[:30]}, "goes on after the 30 sentences"),
    ],
)
def test_the_store_of_another_run_is_refused_and_left_alone(
    mbart, other_model, store, options, message, stopped
):
    if stopped:  # as it is before the last step: records beside the shards
        manifest = stores._read_json(store / "manifest.json")
        for number, record in enumerate(manifest["shards"]):
            (store / f"shard-{number:05}.json").write_bytes(stores._json_bytes(record))
        settings = {k: v for k, v in manifest.items() if k not in ("sentences", "rows", "text_sha256")}
        (store / "manifest.json").write_bytes(
            stores._json_bytes(settings | {"complete": False, "shards": []})
        )
    options = dict(options)
    model = other_model if options.pop("mbart", None) else mbart
    before = files(store)
    with pytest.raises(StoreError, match=message):
        write(store, model, **options)
    assert files(store) == before


def test_the_same_weights_under_another_name_go_on(mbart, store):
    before = files(store)
    write(store, mbart, model_name="a copy")
    assert files(store) == before


def test_a_directory_of_something_else_is_left_alone(mbart, tmp_path):
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(StoreError, match=r"holds something else \(thesis\.tex\)"):
        write(tmp_path, mbart)
    assert {p.name for p in tmp_path.iterdir()} == {"thesis.tex", ".lock"}
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="file cannot be written"):
        write(tmp_path / "file", mbart)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere all names are Unicode")
def test_a_directory_whose_name_is_not_utf_8_is_refused(mbart, whole, tmp_path):
    bad = tmp_path / os.fsdecode(b"x\xff")
    with pytest.raises(ValueError, match="is not UTF-8"):
        write(bad, mbart)
    assert not bad.exists()
    shutil.copytree(whole, bad)
    with pytest.raises(ValueError, match="is not UTF-8"):
        ActivationStore(bad)


def test_no_store_is_no_store(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"has no manifest\.json"):
        ActivationStore(tmp_path)


def test_a_sentence_with_nan_is_named_and_what_is_finished_stays(directory, tmp_path):
    model, tokenizer = load(str(directory))
    bad = Sentence("my friend", None)
    token = tokenizer(bad.text)["input_ids"][2]
    assert not any(token in tokenizer(s.text)["input_ids"] for s in TEXT)
    text = [*TEXT[:25], bad, *TEXT[25:]]
    with torch.no_grad():
        model.model.shared.weight[token, 3] = float("inf")
    with pytest.raises(NotFiniteError, match=r"sentence 26 \('.*'\) has NaN or infinite activations"):
        write(tmp_path / "store", (model, tokenizer), text)
    assert sorted(p.name for p in (tmp_path / "store").glob("*.safetensors")) == [
        "shard-00000.safetensors",
        "shard-00001.safetensors",
    ]


# --- Interruptions ---------------------------------------------------------------------------------


def stop_at_write(monkeypatch, number, error=errno.ENOSPC):
    """Let the number-th file that is flushed find a full disk."""
    calls, fsync = [], os.fsync

    def full(handle):
        if not os.path.isdir(f"/proc/self/fd/{handle}"):
            calls.append(handle)
            if len(calls) == number:
                raise OSError(error, os.strerror(error))
        fsync(handle)

    monkeypatch.setattr("course_lib.files.os.fsync", full)


@pytest.mark.parametrize("number", [1, 2, 3, 7, 11, 12])
def test_a_disk_that_fills_up_anywhere_loses_nothing(mbart, whole, tmp_path, monkeypatch, number):
    out = tmp_path / "store"
    stop_at_write(monkeypatch, number)
    with pytest.raises(
        StoreError, match=r"No space left on device; all finished shards are kept.*run the same"
    ):
        write(out, mbart)
    monkeypatch.undo()
    assert not list(out.glob(".*.partial"))
    finished = {p.name: p.stat().st_ino for p in out.glob("*.safetensors") if p.with_suffix(".json").exists()}
    assert len(finished) == max(0, (number - 2) // 2)
    write(out, mbart)
    assert files(out) == files(whole)
    assert {name: (out / name).stat().st_ino for name in finished} == finished


def test_a_full_disk_of_its_own(mbart, whole, tmp_path):
    """A tmpfs with room for half of the shards, and later for all of them."""
    disk = tmp_path / "disk"
    disk.mkdir()
    size = sum(p.stat().st_size for p in whole.iterdir())
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size // 2}", "tmpfs", disk], capture_output=True, check=False
    ).returncode:
        pytest.skip(
            "no right to mount a tmpfs here; the other tests of a full disk raise the error themselves"
        )
    try:
        with pytest.raises(StoreError, match="No space left on device"):
            write(disk / "store", mbart)
        assert 0 < len(list((disk / "store").glob("shard-*.safetensors"))) < 5
        assert not list((disk / "store").glob(".*.partial"))
        subprocess.run(["mount", "-o", f"remount,size={4 * size}", disk], check=True)
        write(disk / "store", mbart)
        assert files(disk / "store") == files(whole)
    finally:
        subprocess.run(["umount", disk], check=True)


def forked(function):
    """Run a function in a child process, which starts in no time: it has imported and loaded everything.

    It has one thread, since those of the parent do not survive the fork: bits are compared with another child's.
    """
    child = os.fork()
    if child == 0:
        try:
            torch.set_num_threads(1)
            function()
        except BaseException as error:
            print(repr(error), file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    return child


def test_killed_at_20_random_moments_nothing_is_lost(mbart, tmp_path):
    out, rng = tmp_path / "store", random.Random(0)
    started = time.perf_counter()
    assert os.waitpid(forked(lambda: write(out, mbart)), 0)[1] == 0
    seconds = time.perf_counter() - started
    reference = files(out)
    shutil.rmtree(out)
    killed = 0
    while killed < 20:
        child = forked(lambda: write(out, mbart))
        time.sleep(rng.uniform(0, 0.7 * seconds))
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        assert status in (0, signal.SIGKILL)
        killed += status == signal.SIGKILL
        for path in out.glob("shard-*.safetensors"):  # whole under its name, or not there
            assert path.read_bytes() == reference[path.name]
        if status == 0:
            assert files(out) == reference
            shutil.rmtree(out)
    assert os.waitpid(forked(lambda: write(out, mbart)), 0)[1] == 0
    assert files(out) == reference


def test_a_second_run_is_refused_until_the_first_is_dead(mbart, tmp_path):
    holding, says = os.pipe()

    def text():
        """A text that does not end until the process is killed."""
        yield from TEXT[:20]
        os.write(says, b"!")
        signal.pause()

    child = forked(lambda: write(tmp_path / "store", mbart, text()))
    os.close(says)
    try:
        assert os.read(holding, 1) == b"!"
        with pytest.raises(StoreError, match="another process is writing to"):
            write(tmp_path / "store", mbart)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(holding)
    for name in ("store", "reference"):  # the lock of a dead process is nobody's
        assert os.waitpid(forked(lambda name=name: write(tmp_path / name, mbart)), 0)[1] == 0
    assert files(tmp_path / "store") == files(tmp_path / "reference")
