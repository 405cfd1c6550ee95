"""The feature browser on a made-up run of 8,192 features and 100,000 sentences, without a model.

Sentences have 4 to 20 tokens of 20,000, drawn by Zipf's law, in four languages. At each token 32 features are active,
drawn by a law of which the most frequent one is active at a tenth of all tokens, with exponential activations.
All times are wall times of one thread with warm files: what somebody waits for who opens the page.

- open: `FeatureIndex.open`, which compares the run's files with those of the index;
- command: a fresh Python until the server has its address;
- page: the first answer to the browser, with the list of all features; later ones are kept;
- feature: answers over HTTP for 200 features, spread over all ranks, and those of the 20 most frequent ones; the slowest
  one of all is given apart.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import numpy as np

from benchmarks.timing import Spread
from course_lib.interpret.browser.index import (
    DIRECTORY,
    FeatureIndex,
    Reading,
    by_feature,
    fingerprint,
    write_index,
)
from course_lib.interpret.browser.server import Server

FEATURES, SENTENCES, D_MODEL, K, PIECES = 8192, 100_000, 1024, 32, 20_000
LANGUAGES = ("de_DE", "en_XX", "es_XX", "fr_XX")
ROUNDS = 7


def reading(rng: np.random.Generator) -> Reading:
    """Draw a text and its code."""
    lengths = rng.integers(4, 21, size=SENTENCES)
    n = int(lengths.sum())
    weights = 1 / np.arange(1, PIECES + 1)
    piece = rng.choice(PIECES, size=n, p=weights / weights.sum())
    sentence = np.repeat(np.arange(SENTENCES), lengths)
    first = np.cumsum(lengths) - lengths
    start = 6 * (np.arange(n) - first[sentence])
    # Features by the inverse of their distribution; of equal ones at a token one is kept.
    share = 1 / (np.arange(FEATURES) + 60.0)
    edges = np.cumsum(share / share.sum())
    drawn = np.sort(np.searchsorted(edges, rng.random((n, K), np.float32)).clip(max=FEATURES - 1), axis=1)
    kept = np.diff(drawn, axis=1, prepend=-1) > 0
    token = np.repeat(np.arange(n, dtype=np.int32), kept.sum(axis=1))
    value = rng.standard_exponential(len(token), np.float32)
    return Reading(
        [("word1 " * length).strip() for length in lengths.tolist()],
        [LANGUAGES[i % 4] for i in range(SENTENCES)],
        np.arange(SENTENCES) % 10 == 0,
        sentence,
        np.stack([start, start + 5], axis=1),
        piece,
        [f"▁piece{i}" for i in range(PIECES)],
        *by_feature(drawn[kept], token, value, n_features=FEATURES),
    )


def make_run(directory: Path) -> float:
    """Write the files that an index is compared with, of their true size, and the index; return its seconds."""
    rng = np.random.default_rng(0)
    (directory / "sparse").mkdir()
    directions = rng.standard_normal((FEATURES, D_MODEL), np.float32)
    (directory / "sparse/model.safetensors").write_bytes(directions.tobytes() * 2)
    (directory / "sparse/config.json").write_text("{}")
    made = reading(rng)
    rows = (json.dumps({"text": text, "language": "en_XX"}) for text in made.texts)
    (directory / "sentences.jsonl").write_text("\n".join(rows))
    about = {"fingerprint": fingerprint(directory), "run": "made up", "site": "encoder.final"}
    (directory / DIRECTORY).mkdir()
    start = time.perf_counter()
    write_index(directory / DIRECTORY, made, directions, about=about)
    return time.perf_counter() - start


COMMAND = """
import sys
from course_lib.__main__ import app
from course_lib.interpret.browser.server import Server
Server.wait = lambda self: self.close()
app(["browse", sys.argv[1], "--no-browser"], standalone_mode=False)
"""


def run(rounds: int = ROUNDS) -> dict[str, Spread]:
    """Measure all rows."""
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        written = make_run(directory)
        opened, started, first_page, answers, frequent = [], [], [], [], []
        for _ in range(rounds):
            start = time.perf_counter()
            index = FeatureIndex.open(directory)
            opened.append(time.perf_counter() - start)
            start = time.perf_counter()
            subprocess.run(
                [sys.executable, "-c", COMMAND, folder], check=True, capture_output=True, env=os.environ
            )
            started.append(time.perf_counter() - start)
            server = Server(index, load=lambda: None)
            try:
                start = time.perf_counter()
                urllib.request.urlopen(server.address).read()
                first_page.append(time.perf_counter() - start)
            finally:
                server.close()
        server = Server(index, load=lambda: None)
        try:
            ranked = np.argsort(-index.tables["count"], kind="stable")
            for chosen, seconds in ((ranked[:: FEATURES // 200], answers), (ranked[:20], frequent)):
                for feature in chosen.tolist():
                    address = f"http://127.0.0.1:{server.port}/api/feature/{feature}"
                    headers = {"Authorization": f"token {server.token}"}
                    start = time.perf_counter()
                    urllib.request.urlopen(urllib.request.Request(address, headers=headers)).read()
                    seconds.append(time.perf_counter() - start)
        finally:
            server.close()
        active = len(index.tables["active_token"]) / 1e6
        densest = float(index.tables["count"].max() / index.about["tokens"])
    return {
        "tokens, millions": Spread.of([index.about["tokens"] / 1e6]),
        "active entries, millions": Spread.of([active]),
        "densest feature, share of tokens": Spread.of([densest]),
        "write, s": Spread.of([written]),
        "open, ms": Spread.of(1000 * np.array(opened)),
        "command until its address, ms": Spread.of(1000 * np.array(started)),
        "page with its list, first time, ms": Spread.of(1000 * np.array(first_page)),
        "a feature, ms": Spread.of(1000 * np.array(answers)),
        "a feature, the 20 most frequent, ms": Spread.of(1000 * np.array(frequent)),
        "a feature, the slowest, ms": Spread.of([1000 * max(answers + frequent)]),
    }
