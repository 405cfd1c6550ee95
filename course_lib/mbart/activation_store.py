"""Activations on disk: as many as the disk holds, written safely, read by memory map.

A store is a directory: `shard-00000.safetensors`, ... and `manifest.json`. A shard holds the rows of a fixed
number of sentences, and depends on nothing but the model, these sentences and the settings. That makes
everything else simple: shards can be computed in any order, by any number of processes, and again.

Every file appears whole or not at all: it is written under another name, flushed to the disk and renamed. While
a store is being written, each finished shard has a record beside it (`shard-00000.json`: checksum, rows, and
the hash of its sentences). At the end the records move into the manifest, last of all. So a process may
be killed at any moment: the next one counts the shards that agree with their records, and computes the others.
"""

import hashlib
import json
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from itertools import chain, islice, pairwise
from operator import itemgetter
from pathlib import Path
from typing import Any, Literal

import torch
import transformers
from jaxtyping import Bool, Float, Int
from safetensors import safe_open
from safetensors.torch import save as to_bytes
from torch import Tensor
from tqdm.auto import tqdm
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from course_lib import devices, files, parallel
from course_lib.language.corpus import Sentence
from course_lib.language.text import STDIN, TABLES, full_codes, read_fields
from course_lib.mbart import structure
from course_lib.mbart.activations import Reader, Site, States, Window, ahead
from course_lib.mbart.too_long import TokenLimit

RowIndex = slice | Int[Tensor, " chosen"] | Bool[Tensor, " rows"]

FORMAT = 1
MANIFEST, LOCK = "manifest.json", ".lock"
AGAIN = "run the same command again"
_SAMPLED = ("tokens_per_sentence", "seed")  # in the manifests of stores that hold some tokens of a sentence
_LIMITED = ("max_tokens", "too_long")  # in those of stores whose text was cut, or sentences of it skipped

_OURS = re.compile(r"shard-\d+\.(safetensors|json)|\..*\.partial|" + re.escape(LOCK))
_log = logging.getLogger(__name__)


class StoreError(RuntimeError):
    """A store that cannot be written or read; the message says which file, what is wrong and what to do."""


@dataclass(frozen=True)
class Shard:
    """A file of a store: how much it holds, its size and checksum, and the hash of its sentences."""

    file: str
    sentences: int
    rows: int
    bytes: int
    sha256: str
    text_sha256: str

    def damage(self, directory: Path, *, thorough: bool = True) -> str | None:
        """What is wrong with the file, or None. Its bits are read only where `thorough`."""
        path = directory / self.file
        if not path.is_file():
            return f"{self.file} is missing"
        size = path.stat().st_size
        if size != self.bytes:
            return f"{self.file} has {size:,} bytes, expected {self.bytes:,}"
        if thorough:
            with path.open("rb") as file:
                if hashlib.file_digest(file, "sha256").hexdigest() != self.sha256:
                    return f"{self.file} does not have the checksum that was recorded"
        return None


# --- Reading ---------------------------------------------------------------------------------------


class ActivationStore:
    """A finished store: rows of activations with the sentence (and token) that each is from.

    `store[rows]` takes a slice or a tensor of row numbers; only what is asked for is read from the disk.
    `store.column(name, rows)` reads the other columns: "sentence" (its number in the text), and where rows are
    tokens "position" and "token".

    A shard is compared with its checksum once, when something is first asked of it; `verify` does so for all of them.

    Raises FileNotFoundError where there is no store, StoreError for one that is not finished or lacks a part, and for
    rows of a shard that is not as it was written.
    """

    def __init__(self, directory: Path | str) -> None:
        self.directory = Path(directory)
        files.check_utf8(self.directory.absolute())
        manifest = _read_json(self.directory / MANIFEST)
        if manifest is None:
            raise FileNotFoundError(f"{self.directory} has no {MANIFEST}; expected a store of activations")
        if not manifest["complete"]:
            raise StoreError(f"the store {self.directory} is not finished; {AGAIN} to finish it")
        self.manifest: dict[str, Any] = manifest
        self.shards = tuple(Shard(**shard) for shard in manifest["shards"])
        self._raise_for(self._damage(thorough=False))
        self._ends = torch.tensor([shard.rows for shard in self.shards]).cumsum(0)
        self._tables: dict[int, dict[str, Tensor]] = {}

    def __len__(self) -> int:
        return self.manifest["rows"]

    @property
    def d_model(self) -> int:
        """Width of a row."""
        return self.manifest["d_model"]

    @property
    def dtype(self) -> torch.dtype:
        """Type of the numbers in a row."""
        return getattr(torch, self.manifest["dtype"])

    @property
    def site(self) -> Site:
        """Where in the model the rows were taken."""
        return Site.parse(self.manifest["site"])

    @property
    def columns(self) -> tuple[str, ...]:
        """What is known about each row."""
        return tuple(sorted(self._table(0)))

    def __getitem__(self, rows: RowIndex) -> Float[Tensor, "read d_model"]:
        return self.column("activations", rows)

    def column(self, name: str, rows: RowIndex = slice(None)) -> Tensor:
        """One column of some rows (default: all of them): a slice, row numbers, or a mask with an entry a row.

        A slice within one shard is not copied. Raises KeyError for an unknown column, IndexError for a row that
        there is not and a mask of another length, TypeError for anything else than these.
        """
        if name not in self.columns:
            raise KeyError(f"column {name!r}; this store has {', '.join(self.columns)}")
        if isinstance(rows, slice):
            first, last, step = rows.indices(len(self))
            if step == 1:
                return self._range(name, first, max(first, last))
            rows = torch.arange(first, last, step) if (last - first) * step > 0 else torch.arange(0)
        if not isinstance(rows, Tensor) or rows.ndim != 1 or rows.is_floating_point():
            raise TypeError(f"rows is {rows!r}; expected a slice or a 1-D tensor of row numbers or bools")
        if rows.dtype == torch.bool:
            if len(rows) != len(self):
                raise IndexError(f"the mask has {len(rows)} entries; the store has {len(self)} rows")
            rows = rows.nonzero()[:, 0]
        rows = rows.cpu().long()
        wrong = (rows < -len(self)) | (rows >= len(self))
        if wrong.any():
            raise IndexError(f"row {int(rows[wrong][0])}; the store has {len(self)} rows")
        return self._gather(name, torch.where(rows < 0, rows + len(self), rows))

    def verify(self) -> list[str]:
        """Read every bit, and return what is wrong, one line a damaged shard; none where all is well."""
        return self._damage(thorough=True)

    def _range(self, name: str, first: int, last: int) -> Tensor:
        parts = [self._table(0)[name][:0]]
        for number, shard in enumerate(self.shards):
            start = int(self._ends[number]) - shard.rows
            if start < last and first < start + shard.rows:
                parts.append(self._table(number)[name][max(first - start, 0) : last - start])
        return parts[-1] if len(parts) <= 2 else torch.cat(parts)

    def _gather(self, name: str, rows: Int[Tensor, " rows"]) -> Tensor:
        """Shard by shard, and inside a shard in the order of the file."""
        rows, order = rows.sort()
        example = self._table(0)[name]
        found = example.new_empty(len(rows), *example.shape[1:])
        bounds = [0, *torch.searchsorted(rows, self._ends).tolist()]
        for number, (first, last) in enumerate(pairwise(bounds)):
            if first < last:
                start = int(self._ends[number]) - self.shards[number].rows
                found[order[first:last]] = self._table(number)[name][rows[first:last] - start]
        return found

    def _table(self, number: int) -> dict[str, Tensor]:
        """The columns of one shard, mapped into memory: the kernel reads and drops pages as it sees fit.

        Before that, the first time, all its bits are read and compared with its checksum.
        """
        if number not in self._tables:
            damage = self.shards[number].damage(self.directory)
            self._raise_for([damage] if damage else [])
            with safe_open(self.directory / self.shards[number].file, framework="pt") as file:
                self._tables[number] = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        return self._tables[number]

    def _damage(self, *, thorough: bool) -> list[str]:
        return [found for s in self.shards if (found := s.damage(self.directory, thorough=thorough))]

    def _raise_for(self, damaged: list[str]) -> None:
        if damaged:
            raise StoreError(
                f"the store {self.directory} is damaged: {'; '.join(damaged)}; give the command that wrote it again, "
                "and these shards alone are written anew"
            )


# --- Writing ---------------------------------------------------------------------------------------


def write_store(
    directory: Path | str,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    text: Iterable[Any],
    *,
    site: Site,
    pool: Literal["tokens", "mean"] = "tokens",
    model_name: str = "",
    shard_size: int = 1024,
    include_special: bool = False,
    tokens_per_sentence: int | None = None,
    seed: int = 0,
    tokens_per_batch: int | None = None,
    limit: TokenLimit | None = None,
    progress: bool = True,
) -> ActivationStore:
    """Write what a site gives for a text, `shard_size` sentences a file; go on where an earlier call stopped.

    `text` is read once, a shard at a time: any iterable (also a streamed `datasets.IterableDataset`) of

    - sentences: strings, or `Sentence`s with their language;
    - pairs of them: what the encoder reads and what the decoder is forced to read;
    - mappings with "text" and optionally "language", "target" and "target_language".

    What the model reads, which rows there are and what is raised for single sentences is described at `extract`.
    The store holds `site`'s rows, in the order of the text, as `ActivationStore` reads them; with `tokens_per_sentence`
    those of at most so many tokens of a sentence, drawn by `seed` and the sentence's tokens, so that equal sentences
    have equal rows. `limit` is what cut or skipped sentences of the text while it was read: the manifest says so and
    counts them. States are kept in memory for a shard or two; what is known of each sentence grows with the text.

    Where `directory` holds shards of the same model, settings and text already, only what is missing or damaged is
    computed; the result has the same bytes as that of one undisturbed call (on one kind of machine with one number
    of threads, since matrix products may round differently on others). Under torch.distributed each rank
    computes every world_size-th shard; all ranks must see the same text and the same directory.

    Raises StoreError where another process writes to `directory`, where it holds something else or the store of
    another model, text or settings, and where a file cannot be written; nothing is lost by that. Raises
    ValueError for a text without a sentence, and for a directory whose name is not UTF-8.
    """
    if shard_size < 1:
        raise ValueError(f"shard_size is {shard_size}; expected 1 or more")
    files.check_utf8(Path(directory).absolute())
    reader = Reader(
        model,
        tokenizer,
        [site],
        pool=pool,
        include_special=include_special,
        tokens_per_sentence=tokens_per_sentence,
        seed=seed,
        tokens_per_batch=tokens_per_batch,
    )
    settings = {
        "format": FORMAT,
        "model": model_name or model.config.name_or_path,
        "revision": getattr(model.config, "_commit_hash", None),
        "site": str(reader.sites[site]),
        "pool": pool,
        "include_special": include_special,
        **({} if tokens_per_sentence is None else {"tokens_per_sentence": tokens_per_sentence, "seed": seed}),
        **({} if limit is None else limit.settings),
        "dtype": str(torch.float32 if pool == "mean" else model.dtype).removeprefix("torch."),
        "computed_in": str(model.dtype).removeprefix("torch."),
        "d_model": structure.width(model, site.side),
        "shard_size": shard_size,
        "tokens_per_batch": reader.tokens_per_batch,
        "weights_sha256": weights_sha256(model),
        "tokenizer_sha256": tokenizer_sha256(tokenizer),
    }
    writer = _Writer(Path(directory).absolute(), reader, settings, _computed_on(model.device), limit)
    with ExitStack() as held:
        held.enter_context(parallel.synchronised())
        parallel.on_first(lambda: held.enter_context(_lock(writer.directory)))
        writer.manifest = writer.check(parallel.on_first(writer.opened))
        bar = held.enter_context(
            tqdm(
                total=len(text) if hasattr(text, "__len__") else None,
                desc="activations",
                unit="sentence",
                disable=not progress or parallel.rank() > 0,
            )
        )
        for job in ahead(writer.jobs(text)):
            writer.do(job, advance=bar.update)
        parallel.barrier()
        parallel.on_first(writer.close)
    return ActivationStore(directory)


@dataclass(frozen=True)
class _Job:
    """A shard's sentences: their hash, and what is to be computed, if anything."""

    number: int
    sentences: int
    text_sha256: str
    window: Window | None


class _Writer:
    """One process of those that write a store."""

    def __init__(
        self,
        directory: Path,
        reader: Reader,
        settings: dict[str, Any],
        computed_on: dict[str, Any],
        limit: TokenLimit | None,
    ) -> None:
        self.directory, self.reader = directory, reader
        self.settings, self.computed_on, self.limit = settings, computed_on, limit
        self.manifest: dict[str, Any] = {}
        self.texts: list[str] = []  # of all shards, whoever computes them

    def opened(self) -> dict[str, Any]:
        """The manifest to go on from; a new one where the directory is empty."""
        manifest = _read_json(self.directory / MANIFEST)
        if manifest is None:
            foreign = sorted(p.name for p in self.directory.iterdir() if not _OURS.fullmatch(p.name))
            if foreign:
                raise StoreError(
                    f"{self.directory} holds something else ({', '.join(foreign[:3])}); choose another directory"
                )
            # Records without a manifest belong to no settings that could be compared.
            for path in self.directory.glob("shard-*.json"):
                path.unlink()
            manifest = self.settings | {"computed_on": self.computed_on, "complete": False, "shards": []}
            _write(self.directory / MANIFEST, _json_bytes(manifest))
        self.check(manifest)
        files.remove_partials(self.directory)
        return manifest

    def check(self, manifest: dict[str, Any]) -> dict[str, Any]:
        """Return the manifest of a store with our settings; refuse any other."""
        for name in self.settings | dict.fromkeys(_SAMPLED + _LIMITED):
            wanted = self.settings.get(name)
            # The same weights may be reached by another name.
            if name not in ("model", "revision") and manifest.get(name) != wanted:
                raise StoreError(
                    f"{self.directory} is the store of another run: its {name} is {manifest.get(name)!r}, now "
                    f"{wanted!r}; choose another directory, or remove this one"
                )
        return manifest

    def record(self, number: int) -> Shard | None:
        """What is known about a shard that was finished: beside it, or in the manifest."""
        found = _read_json(self.directory / _record(number), damaged_is_missing=True)
        if found is not None:
            return Shard(**found)
        return Shard(**self.manifest["shards"][number]) if number < len(self.manifest["shards"]) else None

    def jobs(self, text: Iterable[Any]) -> Iterator[_Job]:
        """Hash the text, shard by shard, and tokenise what this rank has to compute."""
        first = 0
        for number, pairs in enumerate(_groups(map(pair, text), self.settings["shard_size"])):
            digest = _text_sha256(pairs)
            record, window = self.record(number), None
            finished = self.manifest["complete"]
            if (finished and record is None) or (record is not None and record.text_sha256 != digest):
                raise StoreError(
                    f"{self.directory} is the store of another text: sentences {first + 1} to {first + len(pairs)} "
                    "are not those it was made from; choose another directory, or remove this one"
                )
            if number % parallel.world_size() == parallel.rank() and not self._finished(record):
                self._check_rounding()
                sentences = [source for source, _ in pairs]
                targets = [target or source for source, target in pairs]
                window = self.reader.prepare(sentences, targets, first=first)
            yield _Job(number, len(pairs), digest, window)
            first += len(pairs)

    def _check_rounding(self) -> None:
        """Refuse to mix rows of machines, threads or versions, between which matrix products may round differently."""
        known = self.manifest.get("computed_on", {})  # stores of earlier versions do not say
        unlike = [
            f"its {name} was {known[name]!r}, now {value!r}"
            for name, value in self.computed_on.items()
            if known.get(name, value) != value
        ]
        if unlike:
            raise StoreError(
                f"{self.directory} was begun where rows may be rounded differently: {'; '.join(unlike)}; go on as it "
                "was begun, choose another directory, or remove this one"
            )

    def _finished(self, record: Shard | None) -> bool:
        damage = "not there" if record is None else record.damage(self.directory)
        if record is not None and damage:
            _log.warning("%s; computing it again", damage)
        return damage is None

    def do(self, job: _Job, *, advance: Callable[[int], object]) -> None:
        """Compute a shard where that is to be done."""
        self.texts.append(job.text_sha256)
        if job.window is None:
            advance(job.sentences)
            return
        (states,) = self.reader.read(job.window, advance=advance).values()
        name = f"shard-{job.number:05}.safetensors"
        data = to_bytes(_columns(states))
        _write(self.directory / name, data)
        record = Shard(
            name,
            job.sentences,
            len(states.values),
            len(data),
            hashlib.sha256(data).hexdigest(),
            job.text_sha256,
        )
        _write(self.directory / _record(job.number), _json_bytes(asdict(record)))

    def close(self) -> None:
        """Move the records into the manifest."""
        if not self.texts:
            raise ValueError("the text holds no sentence")
        shards = [self.record(number) for number in range(len(self.texts))]
        if [s and s.text_sha256 for s in shards] != self.texts:
            raise StoreError("the ranks read different texts; give all of them the same")
        left = {p.name for p in self.directory.glob("shard-*")}
        left -= {s.file for s in shards} | {_record(number) for number in range(len(shards))}
        if left or len(shards) < len(self.manifest["shards"]):
            raise StoreError(
                f"{self.directory} is the store of another text: it goes on after the "
                f"{sum(s.sentences for s in shards)} sentences that were given; choose another directory, or "
                "remove this one"
            )
        manifest = self.manifest | {
            "complete": True,
            "sentences": sum(s.sentences for s in shards),
            "rows": sum(s.rows for s in shards),
            "text_sha256": _joined_sha256(self.texts),
            "shards": [asdict(s) for s in shards],
        }
        if self.limit is not None:
            manifest |= self.limit.record
        _write(self.directory / MANIFEST, _json_bytes(manifest))
        for path in self.directory.glob("shard-*.json"):
            path.unlink()


def _computed_on(device: torch.device) -> dict[str, Any]:
    """What the rounding of a matrix product depends on."""
    cpu = device.type == "cpu"
    return {
        "device": f"cpu ({torch.backends.cpu.get_cpu_capability()})" if cpu else devices.describe(device),
        "threads": torch.get_num_threads() if cpu else None,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }


@contextmanager
def _lock(directory: Path) -> Iterator[None]:
    """Held by one process at a time."""
    busy = f"another process is writing to {directory}; wait until it is done, or stop it and {AGAIN}"
    with ExitStack() as held:
        try:
            held.enter_context(files.locked(directory / LOCK, busy=StoreError(busy)))
        except OSError as error:
            raise StoreError(f"{directory} cannot be written: {error.strerror or error}") from error
        yield


def _record(number: int) -> str:
    return f"shard-{number:05}.json"


def _columns(states: States) -> dict[str, Tensor]:
    columns = {"activations": states.values, "sentence": states.sentence}
    if states.token is not None:
        columns |= {"position": states.position.int(), "token": states.token.int()}
    return {name: column.contiguous() for name, column in columns.items()}


def _write(path: Path, data: bytes) -> None:
    try:
        with files.replacing(path) as file:
            file.write(data)
    except OSError as error:
        raise StoreError(
            f"{path} ({len(data):,} bytes) cannot be written: {error.strerror or error}; all finished shards are "
            f"kept: make room or repair the disk, and {AGAIN}"
        ) from error


def _json_bytes(content: dict[str, Any]) -> bytes:
    """JSON that carries its own checksum."""
    return (json.dumps(content | {"checksum": _checksum(content)}, indent=1) + "\n").encode()


def _checksum(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _read_json(path: Path, *, damaged_is_missing: bool = False) -> dict[str, Any] | None:
    """What `_json_bytes` wrote, without its checksum; None where there is no such file."""
    try:
        content = json.loads(path.read_bytes())
        checksum = content.pop("checksum")
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, AttributeError):
        content, checksum = {}, ""
    if checksum == _checksum(content):
        return content
    if damaged_is_missing:
        return None
    raise StoreError(
        f"{path} is damaged: it does not have its own checksum; restore it, or remove it and {AGAIN}: all shards "
        "will be computed again"
    )


# --- Text and model --------------------------------------------------------------------------------


def read_lines(
    path: Path | str, *, languages: Iterable[str] = ()
) -> Iterator[tuple[Sentence, Sentence | None]]:
    """The sentences of a UTF-8 file, one a line, read as they are needed.

    A line is `sentence`, `language<TAB>sentence`, or a pair of them for encoder and decoder,
    `language<TAB>sentence<TAB>language<TAB>sentence`. Blank lines are skipped. "en" is taken for "en_XX"
    where one code of `languages` alone begins so.

    Raises ValueError, with the line, for bytes that are not UTF-8 and for any other number of tabs.
    """
    return (both for _, both in _numbered_lines(path, languages))


def _numbered_lines(
    path: Path | str, languages: Iterable[str]
) -> Iterator[tuple[int, tuple[Sentence, Sentence | None]]]:
    full = full_codes(list(languages))
    for number, fields in read_fields(path):
        fields = ["", *fields] if len(fields) == 1 else fields
        if len(fields) not in (2, 4):
            raise ValueError(f"{path}, line {number} has {len(fields) - 1} tabs; expected none, one or three")
        spoken = [
            Sentence(sentence, full.get(language, language) or None)
            for language, sentence in zip(fields[::2], fields[1::2], strict=True)
        ]
        yield number, (spoken[0], spoken[1] if len(spoken) == 2 else None)


def read_text(
    path: Path | str, *, languages: Iterable[str] = (), columns: Mapping[str, str] | None = None
) -> Iterator[Any]:
    """The sentences of a text, read as they are needed: lines, or a table that `datasets` streams.

    A file that ends in .jsonl, .csv (both also with .gz), or .parquet, and a directory that `Dataset.save_to_disk` wrote,
    are tables with a column "text" and maybe "language", "target" and "target_language"; `columns` says by which names
    theirs go, those that it leaves out by these. Anything else is read by `read_lines`, whose errors it raises: a file,
    which may end in .gz, or "-" for the standard input.

    Raises FileNotFoundError for a path that is neither, ValueError for an empty file, another directory, `columns` of
    a text without any, and names that are not in the table or not ours.
    """
    return (item for _, item in read_numbered(path, languages=languages, columns=columns))


def read_numbered(
    path: Path | str, *, languages: Iterable[str] = (), columns: Mapping[str, str] | None = None
) -> Iterator[tuple[int, Any]]:
    """`read_text` with the number of each line, or of each row of a table, counted from 1."""
    columns, place = dict(columns or {}), Path(path)
    if wrong := set(columns) - set(_COLUMNS):
        raise ValueError(f"columns name {', '.join(sorted(wrong))}; expected some of {', '.join(_COLUMNS)}")
    if place.is_dir():
        return enumerate(_renamed(_saved_table(place), columns, path), start=1)
    if str(path) != STDIN and not place.is_file():
        raise FileNotFoundError(f"{path} is not a file; expected sentences, one a line, or a table")
    if str(path) != STDIN and not place.stat().st_size:
        raise ValueError(f"{path} is empty; expected sentences, one a line, or a table")
    kind = TABLES.get(Path(place.stem).suffix if place.suffix == ".gz" else place.suffix)
    if kind is None:
        if columns:
            raise ValueError(f"{path} has lines and no columns; expected a table, or no names of columns")
        return _numbered_lines(path, languages)
    load_dataset = _datasets(path).load_dataset
    table = load_dataset(kind, data_files=str(path), split="train", streaming=True)
    return enumerate(_renamed(table, columns, path), start=1)


_COLUMNS = ("text", "language", "target", "target_language")


def _datasets(path: Path | str) -> Any:
    try:
        import datasets  # it takes a second to load, which lines of text need not wait for
    except ImportError:
        raise ImportError(
            f"to read {path} as a table the package datasets is needed: pip install 'course-lib[tables]'"
        ) from None
    return datasets


def _saved_table(directory: Path) -> Iterable[Mapping[str, Any]]:
    """The rows of a directory that `datasets` saved. Raises ValueError for any other."""
    if (directory / "dataset_dict.json").is_file():
        splits = sorted(path.name for path in directory.iterdir() if path.is_dir())
        raise ValueError(
            f"{directory} holds several tables; expected one of its directories: {', '.join(splits)}"
        )
    if not (directory / "state.json").is_file():
        raise ValueError(f"{directory} is a directory; expected a file, or what Dataset.save_to_disk wrote")
    return _datasets(directory).load_from_disk(str(directory))


def _renamed(
    table: Iterable[Mapping[str, Any]], columns: dict[str, str], path: Path | str
) -> Iterator[dict[str, Any]]:
    """Rows with our names of columns. Raises ValueError where the first row does not have those that are named."""
    rows = iter(table)
    first = list(islice(rows, 1))
    for ours, theirs in columns.items() if first else ():
        if theirs not in first[0]:
            raise ValueError(f"{ours} is column {theirs!r}, which {path} lacks; it has {', '.join(first[0])}")
    return ({ours: row.get(columns.get(ours, ours)) for ours in _COLUMNS} for row in chain(first, rows))


def weights_sha256(model: PreTrainedModel, *, dtype: torch.dtype | None = None) -> str:
    """Hash of all weights, with their names, in `dtype` (None: the type they have now); tied ones count once."""
    digest = hashlib.sha256()
    for name, weights in model.named_parameters():
        weights = weights.to(dtype)
        digest.update(f"{name} {weights.dtype} {tuple(weights.shape)}\n".encode())
        digest.update(weights.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()


def tokenizer_sha256(tokenizer: PreTrainedTokenizerBase) -> str:
    """Hash of what turns text into ids, without the settings of a single call."""
    if hasattr(tokenizer, "backend_tokenizer"):
        described = json.loads(tokenizer.backend_tokenizer.to_str())
        for name in ("post_processor", "truncation", "padding"):
            described.pop(name, None)
    else:  # M2M100, Marian and PLBART: sentencepiece models, and the ids of their pieces
        models = [getattr(tokenizer, name, None) for name in ("sp_model", "spm_source", "spm_target")]
        described = {
            "pieces": [getattr(tokenizer, name, None) for name in ("encoder", "target_encoder")],
            "models": [hashlib.sha256(m.serialized_model_proto()).hexdigest() for m in models if m],
        }
        if not any(models):  # Blenderbot small and ProphetNet: words, and what is merged to them
            described["words"] = sorted(tokenizer.get_vocab().items(), key=itemgetter(1))
            described["merges"] = sorted(getattr(tokenizer, "bpe_ranks", {}).items(), key=itemgetter(1))
    described["default_language"] = getattr(tokenizer, "src_lang", None)
    return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()


def pair(item: Any) -> tuple[Sentence, Sentence | None]:
    """What the encoder reads, and what the decoder is forced to read where that is something else."""
    if isinstance(item, Mapping):
        if not isinstance(item.get("text"), str):
            raise ValueError(f"a row of the text is {item!r}; expected a sentence in its column 'text'")
        target = item.get("target")
        return Sentence(item["text"], item.get("language")), (
            None if target is None else Sentence(target, item.get("target_language"))
        )
    source, target = item if isinstance(item, tuple) else (item, None)
    return tuple(Sentence(s, None) if isinstance(s, str) else s for s in (source, target))


def text_sha256(text: Iterable[Any], *, shard_size: int) -> str:
    """The `text_sha256` that the manifest of this text's store holds; `text` as for `write_store`."""
    return _joined_sha256([_text_sha256(pairs) for pairs in _groups(map(pair, text), shard_size)])


def _joined_sha256(texts: list[str]) -> str:
    return hashlib.sha256("".join(texts).encode()).hexdigest()


def _text_sha256(pairs: list[tuple[Sentence, Sentence | None]]) -> str:
    spoken = [[None if s is None else [s.language, s.text] for s in both] for both in pairs]
    return hashlib.sha256(json.dumps(spoken).encode()).hexdigest()


def _groups(items: Iterator[Any], size: int) -> Iterator[list[Any]]:
    while group := list(islice(items, size)):
        yield group
