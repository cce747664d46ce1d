"""Files of a table of messages: Arrow shards, what makes them a data set, and Parquet.

Written as streams of record batches: memory holds one batch, whatever the size of the file. A file
appears under its name when it is whole.
"""

import errno
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from interlat.config import UserError
from interlat.files import atomic_write_json, sha256_file
from interlat.latents.columns import HIDDEN

SHARD_BYTES = 128 * 2**20
UNFINISHED = ".*.writing"
"""Pattern of the files that a killed writer leaves."""
_FULL = (errno.ENOSPC, errno.EDQUOT)


@contextmanager
def room_for(output: Path) -> Iterator[None]:
    """Tell a full disk in a sentence, as UserError."""
    try:
        yield
    except OSError as error:
        if error.errno not in _FULL:
            raise
        raise UserError(
            f"{output}: no space left on the disk; free some and run the command again "
            "(a collection goes on where it was)"
        ) from None


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A path to write to, which takes ``path``'s place when the block ends without an error.

    Its name is its own, so that a process which outlived its job harms nobody.
    """
    beside = path.with_name(f".{path.name}.{uuid4().hex}.writing")
    try:
        yield beside
        sync(beside)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def write_stream(path: Path, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> list[int]:
    """Write an Arrow stream; returns the number of rows of each message in it."""
    lengths: list[int] = []
    with (
        whole_file(path) as beside,
        pa.OSFile(str(beside), "wb") as sink,
        pa.ipc.new_stream(sink, schema) as stream,
    ):
        for batch in batches:
            stream.write_batch(batch)
            lengths += batch.column(HIDDEN).value_lengths().to_pylist()
    return lengths


def read_stream(path: Path) -> Iterator[pa.RecordBatch]:
    """The record batches of an Arrow stream, read one at a time: nothing of it stays in memory."""
    with pa.OSFile(str(path)) as source:
        yield from pa.ipc.open_stream(source)


def write_parquet(path: Path, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
    """Write the batches as a Parquet table, a row group each."""
    small = {"use_dictionary": ["finish_reason"], "write_statistics": ["task_id", "n_tokens"]}
    with whole_file(path) as beside, pq.ParquetWriter(beside, schema, **small) as table:
        for batch in batches:
            table.write_batch(batch)


def shard_name(number: int, count: int) -> str:
    """The file name of shard ``number`` of ``count``."""
    return f"data-{number:05d}-of-{count:05d}.arrow"


def write_dataset_files(
    folder: Path, features: Any, shards: Sequence[str], identity: str
) -> list[Path]:
    """Write what ``datasets.load_from_disk`` needs beside the shards; returns the files."""
    info = {"citation": "", "description": "", "homepage": "", "license": ""}
    state: dict[str, Any] = {
        "_data_files": [{"filename": name} for name in shards],
        "_fingerprint": identity[:16],
        "_format_columns": None,
        "_format_kwargs": {},
        "_format_type": None,
        "_output_all_columns": False,
        "_split": None,
    }
    contents = {
        folder / "dataset_info.json": {**info, "features": features.to_dict()},
        folder / "state.json": state,
    }
    for path, content in contents.items():
        atomic_write_json(path, content)
    return list(contents)


def grouped(sizes: Sequence[int]) -> list[range]:
    """Items of these sizes by shard: in order, a shard ends once it has SHARD_BYTES."""
    groups, start, total = [], 0, 0
    for stop, size in enumerate(sizes, 1):
        total += size
        if total >= SHARD_BYTES or stop == len(sizes):
            groups.append(range(start, stop))
            start, total = stop, 0
    return groups


def described(path: Path) -> dict[str, Any]:
    """A file's entry in the manifest."""
    return {"file": path.name, "bytes": path.stat().st_size, "sha256": sha256_file(path)}


def with_note(schema: pa.Schema, name: str, value: Any) -> pa.Schema:
    """The schema with a JSON value in its metadata."""
    return schema.with_metadata({**(schema.metadata or {}), name: json.dumps(value)})


def note(path: Path, name: str) -> Any:
    """The JSON value that a stream's schema carries under this name; None without."""
    with pa.OSFile(str(path)) as source:
        value = (pa.ipc.open_stream(source).schema.metadata or {}).get(name.encode())
    return None if value is None else json.loads(value)


def sync(path: Path) -> None:
    """Have a file or folder on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
