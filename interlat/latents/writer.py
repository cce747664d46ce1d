"""Writing a latent store: piece by piece beside it, then all of it at once.

Work goes on in ``<output>.partial/``: a journal that says what is being collected, and finished
pieces (Arrow streams that appear by rename, so that one which exists is whole). Pieces are numbered
and their content depends on nothing but the work itself, so that whoever goes on after a kill, and
with however many processes, ends with the same bytes. ``publish`` joins them in order into shards,
writes the manifest last, and renames the store into place. All processes must see one file system.
"""

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from interlat.config import UserError
from interlat.files import atomic_write_json, make_folder, read_json, sha256_file
from interlat.latents.columns import features, record_batch
from interlat.latents.message import Message

FORMAT = "interlat-latents/1"
MANIFEST, JOURNAL, DATASET, PARQUET = (
    "manifest.json",
    "collect.journal",
    "hf_dataset",
    "data.parquet",
)
SHARD_BYTES = 128 * 2**20


def partial_folder(output: Path) -> Path:
    """Where the unfinished work for ``output`` lies."""
    return output.with_name(output.name + ".partial")


class LatentWriter:
    """Pieces of one collection, and the store that they become.

    work: everything that decides what is in the store, as JSON values without times, paths and host
    names; they become part of the manifest.
    """

    def __init__(self, output: Path, work: Mapping[str, Any], *, width: int, dtype: str) -> None:
        self.output = output
        self.work = {"format": FORMAT, **work, "d_s": width, "dtype": dtype}
        self.fingerprint = _digest(self.work)
        self._partial = partial_folder(output)
        self._features = features(width, dtype)
        self._schema: pa.Schema = self._features.arrow_schema
        self._lock: int | None = None

    @property
    def is_published(self) -> bool:
        """Whether the finished store of this very work is in place."""
        manifest = self.output / MANIFEST
        return manifest.is_file() and read_json(manifest).get("fingerprint") == self.fingerprint

    def claim(self) -> None:
        """Take the folder for this job and drop pieces of other work; one of its processes calls.

        Raises UserError when another job holds it, or the output is something else than a store.
        """
        if _holds_something_else(self.output):
            raise UserError(f"{self.output} exists and is not a latent store; choose another")
        make_folder(self._partial)
        journal = self._partial / JOURNAL
        self._lock = os.open(journal, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            self._lock = None
            raise UserError(f"another process is collecting into {self.output}") from None
        entry = json.dumps({"fingerprint": self.fingerprint, "work": self.work}, indent=1)
        if journal.read_text(encoding="utf-8") != entry:
            shutil.rmtree(self._pieces, ignore_errors=True)
            os.ftruncate(self._lock, 0)
            os.pwrite(self._lock, entry.encode(), 0)
            os.fsync(self._lock)
        self._pieces.mkdir(exist_ok=True)

    def release(self) -> None:
        """Let another job claim the folder (the end of the process does so too)."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def has_piece(self, number: int) -> bool:
        """Whether piece ``number`` is finished."""
        return self._piece(number).is_file()

    def write_piece(self, number: int, messages: Sequence[Message]) -> None:
        """Write a piece whole, or not at all; errors as ``record_batch``."""
        batch = record_batch(messages, self._schema)
        beside = self._piece(number).with_suffix(".writing")
        with pa.OSFile(str(beside), "wb") as sink, pa.ipc.new_stream(sink, self._schema) as stream:
            stream.write_batch(batch)
        _sync(beside)
        beside.replace(self._piece(number))

    def publish(self, pieces: int, *, parquet: bool = True) -> None:
        """Join pieces 0 to ``pieces - 1`` into the finished store and put it in place.

        An older store at the output is replaced.
        """
        store = self._partial / "store"
        shutil.rmtree(store, ignore_errors=True)
        (store / DATASET).mkdir(parents=True)
        sections: dict[str, Any] = {"shards": self._write_shards(store / DATASET, pieces)}
        self._write_dataset_files(store / DATASET, [shard["file"] for shard in sections["shards"]])
        if parquet:
            sections["parquet"] = self._write_parquet(store / PARQUET, pieces)
        body = {**self.work, "fingerprint": self.fingerprint, **sections}
        atomic_write_json(store / MANIFEST, body)
        if self.output.exists():
            shutil.rmtree(self._partial / "replaced", ignore_errors=True)
            self.output.rename(self._partial / "replaced")
        store.rename(self.output)
        _sync(self.output.parent)
        self.discard()

    def discard(self) -> None:
        """Remove the unfinished work."""
        self.release()
        shutil.rmtree(self._partial, ignore_errors=True)

    @property
    def _pieces(self) -> Path:
        return self._partial / "pieces"

    def _piece(self, number: int) -> Path:
        return self._pieces / f"{number:06d}.arrow"

    def _batches(self, numbers: Sequence[int]) -> Iterator[pa.RecordBatch]:
        for number in numbers:
            with pa.memory_map(str(self._piece(number))) as source:
                yield from pa.ipc.open_stream(source)

    def _write_shards(self, folder: Path, pieces: int) -> list[dict[str, Any]]:
        groups = self._group(pieces)
        shards = []
        for i, numbers in enumerate(groups):
            path = folder / f"data-{i:05d}-of-{len(groups):05d}.arrow"
            messages = rows = 0
            with (
                pa.OSFile(str(path), "wb") as sink,
                pa.ipc.new_stream(sink, self._schema) as stream,
            ):
                for batch in self._batches(numbers):
                    stream.write_batch(batch)
                    messages += batch.num_rows
                    rows += len(batch.column("hidden_state").values)
            shards.append({"messages": messages, "rows": rows, **_described(path)})
        return shards

    def _group(self, pieces: int) -> list[list[int]]:
        """Piece numbers by shard: in order, a shard ends once it has SHARD_BYTES."""
        groups: list[list[int]] = [[]]
        size = 0
        for number in range(pieces):
            if size >= SHARD_BYTES:
                groups.append([])
                size = 0
            groups[-1].append(number)
            size += self._piece(number).stat().st_size
        return groups

    def _write_dataset_files(self, folder: Path, files: list[str]) -> None:
        info = {"citation": "", "description": "", "homepage": "", "license": ""}
        atomic_write_json(
            folder / "dataset_info.json", {**info, "features": self._features.to_dict()}
        )
        state: dict[str, Any] = {
            "_data_files": [{"filename": name} for name in files],
            "_fingerprint": self.fingerprint[:16],
            "_format_columns": None,
            "_format_kwargs": {},
            "_format_type": None,
            "_output_all_columns": False,
            "_split": None,
        }
        atomic_write_json(folder / "state.json", state)

    def _write_parquet(self, path: Path, pieces: int) -> dict[str, Any]:
        small = {"use_dictionary": ["finish_reason"], "write_statistics": ["task_id", "n_tokens"]}
        with pq.ParquetWriter(path, self._schema, **small) as table:
            for batch in self._batches(range(pieces)):
                table.write_batch(batch)
        return _described(path)


def _holds_something_else(output: Path) -> bool:
    if not output.is_dir():
        return output.exists()
    return any(output.iterdir()) and not (output / MANIFEST).is_file()


def _described(path: Path) -> dict[str, Any]:
    _sync(path)
    return {"file": path.name, "bytes": path.stat().st_size, "sha256": sha256_file(path)}


def _digest(value: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
