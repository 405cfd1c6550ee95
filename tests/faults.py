"""Bytes that are read back, damaged one place at a time: `make faults` runs some thousands of such faults.

Its table stands in docs/pipeline.md.

Files are written by the library itself, damaged (a bit flipped, the end cut off, a block of zeros, a block of other
bytes, emptied, removed), read again through the function that commands use, and restored. What is read is compared with
what the undamaged files gave. A fault ends as

    refused    an error that the commands print as one line, and that names the file or its directory
    same       the value of the undamaged files: the damage changed nothing that is read
    wrong      another value, and no error
    traceback  any other error
"""

import argparse
import hashlib
import pickle
import random
import re
import sqlite3
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import datasets
import torch
from safetensors.torch import load_file, save_file

from course_lib import files, sae
from course_lib.commands import sae as commands
from course_lib.interpret.browser.build import build_index
from course_lib.interpret.browser.index import FeatureIndex
from course_lib.interpret.run_directory import RunDirectory
from course_lib.language.corpus import Sentence
from course_lib.mbart.activation_store import ActivationStore, write_store
from course_lib.mbart.activations import Site
from course_lib.mbart.model import load
from course_lib.mbart.pretraining import pretrain as pretraining
from course_lib.mbart.pretraining.config import PretrainConfig
from tests.interpret.browser.runs import make_run, some_concepts
from tests.tiny_mbart import SENTENCES, write_tiny_mbart

# What the commands catch and print as one line.
PRINTED = (ValueError, OSError, RuntimeError)
PAGE = Path(__file__).resolve().parents[1] / "docs" / "pipeline.md"
BEGIN, END = "<!-- faults: written by make faults -->", "<!-- end of faults -->"
BEGIN_PEERS, END_PEERS = "<!-- peers: written by make faults -->", "<!-- end of peers -->"
KINDS = ("flip", "cut", "zero", "replace", "empty", "remove")


@dataclass(frozen=True)
class Place:
    """Files that are read back together, and what reads them."""

    name: str
    files: tuple[Path, ...]
    read: Callable[[], Any]


def digest(value: Any) -> str:
    """A digest of anything that is read: tensors by their bytes."""
    if isinstance(value, torch.Tensor):
        value = (
            str(value.dtype),
            tuple(value.shape),
            value.detach().reshape(-1).contiguous().view(torch.uint8).numpy().tobytes(),
        )
    elif isinstance(value, dict):
        value = [(key, digest(one)) for key, one in value.items()]
    elif isinstance(value, list | tuple):
        value = [digest(one) for one in value]
    return hashlib.sha256(pickle.dumps(value if isinstance(value, bytes) else repr(value))).hexdigest()


def made(root: Path) -> Iterator[Place]:
    """Write one of everything."""
    model = root / "model"
    write_tiny_mbart(model)
    files.write_sums(model)

    def of_model() -> Any:
        files.check_sums(model)
        return [(model / name).read_bytes() for name in sorted(p.name for p in model.iterdir())]

    run = make_run(root / "run", model, concepts=some_concepts())
    build_index(run, effects=3, threads=1, progress=False)

    def of_run() -> Any:
        found = RunDirectory(run)
        report = found.concepts
        return [
            repr(found.metrics), repr(found.sentences), repr(report) if report is None else report.scores,
            dict(found.sparse().state_dict()),
        ]  # fmt: skip

    def of_index() -> Any:
        index = FeatureIndex.open(run)
        return [index.summary(), *(index.feature(i) for i in range(0, index.n_features, 7))]

    trained = root / "trained"
    source = torch.randn(64, 8, generator=torch.Generator().manual_seed(0))
    config = sae.TrainConfig(steps=4, batch_size=8, record_every=1)

    def start() -> sae.Autoencoder:
        return sae.TopKSparseAutoencoder(8, 24, k=4, generator=torch.Generator().manual_seed(0))

    def train() -> sae.Autoencoder:
        model = start()
        sae.train(
            model, source, config, generator=torch.Generator().manual_seed(1), checkpoint_dir=trained,
            checkpoint_every=2, progress=False,
        )  # fmt: skip
        return model

    train()
    kept = {path: path.read_bytes() for path in trained.rglob("*") if path.is_file()}

    def of_checkpoint() -> Any:
        try:
            return dict(train().state_dict())
        finally:
            for path, data in kept.items():
                if not path.exists() or path.read_bytes() != data:
                    path.parent.mkdir(exist_ok=True, parents=True)
                    path.write_bytes(data)

    sae.save(start(), root / "autoencoder")
    store = root / "store"
    mbart, tokenizer = load(str(model))
    text = [Sentence(one, "en_XX") for one in SENTENCES[:30]]
    write_store(store, mbart, tokenizer, text, site=Site("encoder"), shard_size=10, progress=False)

    def of_store() -> Any:
        opened = ActivationStore(store)
        return opened[:]

    choices = root / "choices"
    choices.mkdir()
    commands._record_choice(choices, {"kind": "topk", "seed": 0, "store": {"site": "encoder", "rows": 9}})
    sae.save(start(), choices / commands.AUTOENCODER)

    def of_choice() -> Any:
        model, origin = commands.load_run(choices)
        return [dict(model.state_dict()), origin]

    small = PretrainConfig(
        d_model=16, layers=1, heads=2, ffn_dim=32, pieces=300, n_meanings=40, denoising_steps=2, translation_steps=2,
        batch_size=8, warmup_steps=1,
    )  # fmt: skip
    pieces, texts = pretraining._tokenizer_and_texts(small)
    begun = root / "begun" / "checkpoint.pt"
    begun.parent.mkdir()

    def pretrain() -> Any:
        network = pretraining.random_model(small, pieces, seed=0)
        pretraining.train(network, pieces, texts, small, checkpoint=begun, checkpoint_every=2, progress=False)
        return dict(network.state_dict())

    pretrain()
    saved = begun.read_bytes()

    def of_pretraining() -> Any:
        try:
            return pretrain()
        finally:
            begun.write_bytes(saved)

    yield Place(
        "autoencoder", _files(root / "autoencoder"), lambda: dict(sae.load(root / "autoencoder").state_dict())
    )
    sparse = [p for p in run.rglob("*") if p.is_file() and p.parent.name != "browse" and p.suffix != ".html"]
    yield Place("files of a pipeline run", tuple(sorted(sparse)), of_run)
    yield Place("index of the browser", _files(run / "browse"), of_index)
    yield Place("activation store", _files(store), of_store)
    yield Place("checkpoints of training", tuple(sorted(kept)), of_checkpoint)
    yield Place("choice and autoencoder of `sae train`", _files(choices), of_choice)
    yield Place("checkpoint of `pretrain`", (begun,), of_pretraining)
    yield Place("model and tokenizer", _files(model), of_model)


def peers(root: Path) -> Iterator[Place]:
    """The same numbers in files of others, read as their own pages say, with the checks that they offer."""
    values = torch.randn(64, 24, generator=torch.Generator().manual_seed(0))
    database = root / "numbers.sqlite"
    with closing(sqlite3.connect(database)) as made:
        made.execute("create table numbers (row integer primary key, data blob)")
        made.executemany(
            "insert into numbers values (?, ?)", [(i, v.numpy().tobytes()) for i, v in enumerate(values)]
        )
        made.commit()

    def of_database() -> Any:
        with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as opened:
            if (found := opened.execute("pragma integrity_check").fetchall()) != [("ok",)]:
                raise ValueError(str(found))
            return opened.execute("select row, data from numbers order by row").fetchall()

    yield Place("SQLite, `integrity_check` first", (database,), of_database)
    save_file({"numbers": values}, root / "numbers.safetensors")
    yield Place(
        "safetensors", (root / "numbers.safetensors",), lambda: load_file(root / "numbers.safetensors")
    )
    table = root / "table"
    datasets.disable_progress_bars()
    datasets.Dataset.from_dict({"numbers": values.tolist()}).save_to_disk(table)
    yield Place(
        "`datasets`, `load_from_disk`", _files(table), lambda: datasets.load_from_disk(table)[:]["numbers"]
    )
    ours = root / "ours"
    sae.save(sae.TopKSparseAutoencoder(8, 24, k=4, generator=torch.Generator().manual_seed(0)), ours)
    yield Place("`course_lib.sae`", _files(ours), lambda: dict(sae.load(ours).state_dict()))


def _files(directory: Path) -> tuple[Path, ...]:
    return tuple(
        sorted(p for p in directory.rglob("*") if p.is_file() and not p.name.endswith((".lock", ".md")))
    )


def damaged(data: bytes, kind: str, rng: random.Random) -> bytes | None:
    """The bytes after a fault; None for a file that is gone."""
    if kind == "remove":
        return None
    if kind == "empty" or not data:
        return b""
    at = rng.randrange(len(data))
    length = rng.choice((1, 8, 64, 512))
    if kind == "flip":
        return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]
    if kind == "cut":
        return data[:at]
    block = bytes(length) if kind == "zero" else rng.randbytes(length)
    return data[:at] + block[: len(data) - at] + data[at + length :]


def inject(place: Place, path: Path, kind: str, rng: random.Random, truth: str) -> tuple[str, str]:
    """Damage one file, read, restore it; how it ended and what was said."""
    data = path.read_bytes()
    spoilt = damaged(data, kind, rng)
    if spoilt is None:
        path.unlink()
    else:
        path.write_bytes(spoilt)
    try:
        found = digest(place.read())
    except PRINTED as error:
        said = f"{type(error).__name__}: {error}"
        places = (path.name, path.parent.name, path.stem)
        return ("refused" if any(name in said for name in places) else "traceback"), said
    except Exception as error:
        return "traceback", f"{type(error).__name__}: {error}"
    finally:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return ("same" if found == truth else "wrong"), ""


def measure(
    n: int, *, seed: int = 0, make: Callable[[Path], Iterator[Place]] = made
) -> tuple[dict[str, Counter], list[str]]:
    """`n` faults, as many in each place; counts by place, and what is neither refused nor the same."""
    rng, ends, bad = random.Random(seed), defaultdict(Counter), []
    with tempfile.TemporaryDirectory(prefix="faults-") as folder:
        places = list(make(Path(folder)))
        for place in places:
            truth = digest(place.read())
            if digest(place.read()) != truth:
                raise RuntimeError(f"{place.name} does not read the same twice")
            for at in range(-(-n // len(places))):
                path, kind = place.files[at % len(place.files)], rng.choice(KINDS)
                end, said = inject(place, path, kind, rng, truth)
                ends[place.name][end] += 1
                if end in ("wrong", "traceback"):
                    bad.append(f"{place.name}: {path.name} {kind}: {end} {said[:160]}")
            if digest(place.read()) != truth:
                raise RuntimeError(f"{place.name} was not restored")
    return dict(ends), bad


def table(ends: dict[str, Counter]) -> list[str]:
    """The rows of the table."""
    columns = ("refused", "same", "wrong", "traceback")
    rows = ["| files | " + " | ".join(columns) + " |", "|---|" + "---|" * len(columns)]
    rows += [
        f"| {name} | " + " | ".join(f"{found[c]:,}" for c in columns) + " |" for name, found in ends.items()
    ]
    return rows


def put_into_page(begin: str, end: str, rows: list[str]) -> None:
    """Put the rows of a table between two marks of the page."""
    words = PAGE.read_text(encoding="utf-8")
    inside = "\n".join([begin, *rows, "", end])
    PAGE.write_text(re.sub(f"{begin}.*{end}", lambda _: inside, words, flags=re.DOTALL), encoding="utf-8")


def peer_table(ends: dict[str, Counter]) -> list[str]:
    """The rows of the table of others: an error of any kind is one that notices."""
    rows = ["| read by | error | same | wrong |", "|---|---|---|---|"]
    for name, found in ends.items():
        error = found["refused"] + found["traceback"]
        rows.append(f"| {name} | {error:,} | {found['same']:,} | {found['wrong']:,} |")
    return rows


def main() -> None:
    """Run the faults, print the table, and end with an error where one went unnoticed or gave a traceback."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-n", type=int, default=2400, help="how many faults")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--page", action="store_true", help="write the table into docs/pipeline.md, too")
    given = parser.parse_args()
    ends, bad = measure(given.n, seed=given.seed)
    print("\n".join(table(ends)))
    if bad:
        print("\n".join(bad))
        raise SystemExit(1)
    others, _ = measure(given.n // 2, seed=given.seed, make=peers)
    print("\n".join(peer_table(others)))
    if given.page:
        put_into_page(BEGIN, END, table(ends))
        put_into_page(BEGIN_PEERS, END_PEERS, peer_table(others))


if __name__ == "__main__":
    main()
