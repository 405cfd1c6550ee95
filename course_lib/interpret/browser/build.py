"""Makes the index of a run: its text goes through the model once more, and the code of every token is kept."""

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from tqdm.auto import tqdm

from course_lib import devices
from course_lib.files import locked, new_directory
from course_lib.interpret.browser.features import EFFECT_SENTENCES, FeatureBrowser, strongest_sentences
from course_lib.interpret.browser.index import (
    DIRECTORY,
    FeatureIndex,
    IndexDamaged,
    IndexMissing,
    IndexUnavailable,
    Reading,
    by_feature,
    concept_rows,
    fingerprint,
    seal,
    write_effects,
    write_index,
)
from course_lib.language.corpus import Sentence
from course_lib.mbart.activations import NotFiniteError
from course_lib.mbart.model import ModelUnavailable

CHUNK = 1024
"""Sentences that are read at once; memory grows with it."""
MAX_ACTIVE = 128
"""Active features of a token that are kept, the strongest ones."""
EFFECTS, EFFECTS_WIDE = 256, 32

UNITS = "share of the root mean square length of the centred training states"
BY_LOGITS = (
    "The states are those that the output weights read: the change of each token's logit at the feature's mean "
    "activation, minus the mean over the vocabulary."
)
BY_STEERING = (
    f"Measured by switching the feature off on the {EFFECT_SENTENCES} sentences that excite it most, with the decoder "
    "reading the sentence itself: by how much the feature changes the expected number of times that a token is "
    "predicted in a sentence."
)


def build_index(
    run: os.PathLike | str,
    *,
    effects: int | None = None,
    device: torch.device | str | None = None,
    threads: int | None = None,
    progress: bool = True,
) -> FeatureIndex:
    """Make the index of the run in directory `run`, beside it, and open it. One that is there is opened as it is;
    one that is damaged is made again, which a line on stderr says.

    For the `effects` strongest features (default: 256, for a model of width 512 or more 32) the effect on the
    decoder's output is measured; for the decoder's final states it is a matrix product, and given for all.
    At most 128 active features of a token are kept; `about["kept"]` is the share of squared activation in them.

    Raises IndexMissing for a directory that holds no run, RunError for one that is damaged, IndexOutdated for an index
    of other files, IndexUnavailable where the model cannot be loaded, its states are not finite, or another process is
    making the index, and ValueError for fewer than 0 effects.
    """
    run = Path(run)
    if effects is not None and effects < 0:
        raise ValueError(f"effects is {effects}; expected 0 or more")
    of_run = fingerprint(run)
    busy = IndexUnavailable(f"another process is making the index of {run}; wait for it")
    with locked(run / f".{DIRECTORY}.lock", busy=busy):
        try:
            return FeatureIndex.open(run)
        except IndexMissing:
            damaged = None
        except IndexDamaged as error:
            damaged = os.path.realpath(run / DIRECTORY)
            print(f"{error}; the index is made again", file=sys.stderr)
        try:
            browser = FeatureBrowser(run, device=device, threads=threads)
            if damaged is not None:
                shutil.rmtree(damaged)
            _make(browser, run, of_run, effects=effects, progress=progress)
        except (ModelUnavailable, NotFiniteError) as error:
            raise IndexUnavailable(str(error)) from error
    return FeatureIndex.open(run)


def _make(
    browser: FeatureBrowser, run: Path, of_run: dict[str, list], *, effects: int | None, progress: bool
) -> None:
    rows = browser.run.sentences
    held_out = np.array([row.held_out for row in rows])
    with devices.threads(browser.threads):
        reading, kept = read_run(browser, [row.sentence for row in rows], held_out, progress=progress)
    about = {
        "fingerprint": of_run,
        "run": os.fsencode(run.resolve().name).decode(errors="replace"),
        "warnings": browser.run.metrics.run.warnings,
        "model": browser.name,
        "site": str(browser.site),
        "d_model": browser.autoencoder.d_model,
        "kind": browser.autoencoder.kind,
        "units": UNITS,
        "kept": kept,
        "known_languages": browser.known_languages,
        "default_language": browser.default_language,
        "effects": BY_LOGITS if browser.exact_logits else BY_STEERING,
        "effects_unit": "logits" if browser.exact_logits else "times a sentence",
    }
    directions = browser.autoencoder.decoder_weight.detach().T.float().cpu().numpy()
    if effects is None:
        effects = EFFECTS if browser.autoencoder.d_model < devices.WIDE else EFFECTS_WIDE
    with new_directory(run / DIRECTORY) as partial:
        concepts = concept_rows(browser.run.concepts)
        write_index(partial, reading, directions, about=about, concepts=concepts)
        index = FeatureIndex.read(partial)
        if browser.exact_logits:
            write_effects(partial, browser.logit_effects(torch.tensor(index.tables["mean"])))
        elif chosen := [
            feature for feature in index.ranked()[:effects].tolist() if index.tables["count"][feature]
        ]:
            with tqdm(total=len(chosen), desc="effects", unit="feature", disable=not progress) as bar:
                write_effects(
                    partial, browser.effects(chosen, strongest_sentences(index, chosen), advance=bar.update)
                )
        seal(partial)


def read_run(
    browser: FeatureBrowser, sentences: list[Sentence], held_out: np.ndarray, *, progress: bool
) -> tuple[Reading, float]:
    """The code of all tokens of some sentences, and the share of squared activation that is kept of it."""
    n_features = browser.autoencoder.code_width
    pieces: dict[int, int] = {}  # the tokenizer's number of a piece and ours, in the order of the text
    active, token_sentence, token_span, token_piece = [], [], [], []
    squares, n_tokens = np.zeros(2), 0
    with tqdm(total=len(sentences), desc="index", unit="sentence", disable=not progress) as bar:
        for first in range(0, len(sentences), CHUNK):
            chunk = sentences[first : first + CHUNK]
            states = browser.states(chunk)
            ids, spans = browser.spans([sentence.text for sentence in chunk])
            flat = [token for row in ids for token in row]
            if flat != states.token.tolist():
                raise RuntimeError(
                    f"the tokenizer of {browser.name!r} cuts sentences {first + 1} to {first + len(chunk)} differently "
                    "with and without the language's code; their tokens cannot be placed in the text"
                )
            token_sentence.append(first + states.sentence.numpy())
            token_span.append(np.array([span for row in spans for span in row], np.int32))
            token_piece.append(np.array([pieces.setdefault(token, len(pieces)) for token in flat], np.int32))
            for rows, features, values, whole in _active(browser, states.values):
                active.append((features, rows + n_tokens, values))
                squares += (np.square(values, dtype=np.float64).sum(), whole)
            n_tokens += len(flat)
            bar.update(len(chunk))
    columns = (np.concatenate(column) for column in zip(*active, strict=True))
    reading = Reading(
        [sentence.text for sentence in sentences],
        [sentence.language for sentence in sentences],
        held_out,
        np.concatenate(token_sentence),
        np.concatenate(token_span),
        np.concatenate(token_piece),
        browser.tokenizer.convert_ids_to_tokens(list(pieces)),
        *by_feature(*columns, n_features=n_features),
    )
    return reading, float(squares[0] / max(squares[1], 1e-300))


def _active(
    browser: FeatureBrowser, states: Float[Tensor, "rows d_model"]
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray, float]]:
    """Rows, features and values of the active entries, batch by batch, and the sum of all their squares."""
    first = 0
    for batch in states.split(2048):
        code = browser.activations(batch)
        whole = code.double().square().sum().item()
        if int((code > 0).sum(dim=1).max()) > MAX_ACTIVE:
            least = code.topk(MAX_ACTIVE, dim=1).values[:, -1:]
            code = torch.where(code >= least, code, 0)
        rows, features = (code > 0).nonzero(as_tuple=True)
        values = code[rows, features].float().cpu().numpy()
        yield rows.cpu().numpy() + first, features.cpu().numpy().astype(np.int32), values, whole
        first += len(batch)
