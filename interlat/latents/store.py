"""Reading messages: the stores that collection writes, and folders of users' own making.

Files are memory-mapped. ``get`` finds a task in O(1) and returns a view of the mapped file, with no
copy. A store with a manifest is checked against it when it is opened (files and sizes; ``verify``
reads every byte). Other folders (``save_to_disk`` of nested lists, a DatasetDict, ``data.parquet``,
a hub id) carry no manifest and are read, marked unverified.
"""

import hashlib
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor

from interlat.config import UserError
from interlat.files import read_json, sha256_file
from interlat.latents.columns import HIDDEN, hidden_rows
from interlat.latents.message import Message
from interlat.latents.writer import DATASET, JOURNAL, MANIFEST, PARQUET, partial_folder

KEY_FIELDS = ("task_id", "id", "task")


class _Block(NamedTuple):
    """One record batch: its small columns, and its rows as one tensor over the mapped file."""

    batch: pa.RecordBatch
    offsets: np.ndarray
    rows_RD: Tensor


class LatentStore:
    """Messages by task id. Iterating gives them in stored order.

    path: a store, or what users have (see the module). key_field: the column to look up by, where
    it is not the first there is of task_id, id, task.
    Raises UserError for a path without messages, an unfinished or damaged store, and duplicate
    keys.
    """

    def __init__(self, path: Path | str, *, key_field: str | None = None) -> None:
        self.path = Path(path)
        _refuse_unfinished(self.path)
        self.manifest: dict[str, Any] | None = _read_manifest(self.path)
        batches = _batches(self.path, self.manifest)
        self.key_field = _key_field(self.path, batches, key_field)
        self._blocks = [self._block(batch) for batch in batches if batch.num_rows]
        self._starts = np.cumsum([0, *(block.batch.num_rows for block in self._blocks)]).tolist()
        self.ids = self._text(self.key_field)
        self._index = {key: i for i, key in enumerate(self.ids)}
        if len(self._index) < len(self.ids):
            twice = next(key for i, key in enumerate(self.ids) if self._index[key] != i)
            raise UserError(f"{self.path}: {self.key_field} {twice!r} comes twice")
        self.width = self._common_width()

    @property
    def verified(self) -> bool:
        """Whether a manifest says what is in here."""
        return self.manifest is not None

    @property
    def dtype(self) -> torch.dtype:
        """Type of the states, as stored."""
        return self._blocks[0].rows_RD.dtype

    @property
    def digest(self) -> str:
        """SHA-256 that identifies the content: the manifest's, or of all rows without one."""
        if self.manifest is not None:
            return sha256_file(self.path / MANIFEST)
        whole = hashlib.sha256()
        for message in self:
            whole.update(f"{message.task_id}\0{message.plan}\0{len(message.hidden_LD)}\n".encode())
            whole.update(message.hidden_LD.contiguous().numpy().data)
        return whole.hexdigest()

    def __len__(self) -> int:
        return len(self.ids)

    def __contains__(self, task_id: object) -> bool:
        return task_id in self._index

    def __iter__(self) -> Iterator[Message]:
        return map(self._message, range(len(self)))

    def index(self, task_id: str) -> int:
        """Position of a message in stored order; UserError when there is none."""
        position = self._index.get(task_id)
        if position is None:
            example = self.ids[0]
            raise UserError(
                f"{self.path} has no message for task {task_id!r} (its {self.key_field} are like "
                f"{example!r}); collect that task, or name the column with hidden.key_field"
            )
        return position

    def get(self, task_id: str) -> Message:
        """The message of a task, as a view of the file; UserError when there is none."""
        return self._message(self.index(task_id))

    def require_width(self, width: int) -> None:
        """Raise UserError unless messages are ``width`` wide."""
        if self.width != width:
            raise UserError(
                f"{self.path} holds messages of width {self.width}, the model reads {width}; "
                "collect with the matching sender, or train an adapter for this one"
            )

    def verify(self) -> list[str]:
        """What is wrong with the files, a sentence each: changed bytes, NaN or infinity."""
        manifest = self.manifest or {}
        found = [
            f"{file} differs from the manifest (sha256)"
            for file, entry in _described_files(self.path, manifest)
            if sha256_file(file) != entry["sha256"]
        ]
        found += [
            f"message {message.task_id} holds NaN or infinity"
            for message in self
            if not bool(torch.isfinite(message.hidden_LD).all())
        ]
        return found

    def _block(self, batch: pa.RecordBatch) -> _Block:
        try:
            return _Block(batch, *hidden_rows(batch.column(HIDDEN)))
        except ValueError as error:
            raise UserError(f"{self.path}: {error}") from None

    def _common_width(self) -> int:
        widths = {block.rows_RD.shape[1] for block in self._blocks if len(block.rows_RD)}
        if len(widths) != 1:
            raise UserError(f"{self.path}: messages of several widths, {sorted(widths)}")
        declared = (self.manifest or {}).get("d_s")
        width = widths.pop()
        if declared not in (None, width):
            raise UserError(f"{self.path}: rows are {width} wide, the manifest says {declared}")
        return width

    def _text(self, name: str) -> list[str]:
        return [str(v) for block in self._blocks for v in block.batch.column(name).to_pylist()]

    def _message(self, position: int) -> Message:
        number = bisect_right(self._starts, position) - 1
        batch, offsets, rows_RD = self._blocks[number]
        row = position - self._starts[number]

        def text(name: str) -> str:
            return str(batch.column(name)[row]) if name in batch.schema.names else ""

        hidden_LD = rows_RD[offsets[row] : offsets[row + 1]]
        return Message(
            task_id=self.ids[position],
            hidden_LD=hidden_LD,
            plan=text("plan"),
            task=text("task"),
            n_tokens=int(text("n_tokens") or len(hidden_LD)),
            finish_reason=text("finish_reason"),
        )


def _refuse_unfinished(path: Path) -> None:
    """A journal and no manifest, here or in the work beside a store that is not there yet."""
    if not (path / MANIFEST).exists():
        for folder in (path, partial_folder(path)):
            if (folder / JOURNAL).exists() and (folder == path or not path.exists()):
                raise UserError(f"{path} is unfinished; run its collection again to resume it")


def _read_manifest(path: Path) -> dict[str, Any] | None:
    if not (path / MANIFEST).is_file():
        return None
    manifest: dict[str, Any] = read_json(path / MANIFEST)
    for file, entry in _described_files(path, manifest):
        if not file.is_file() or file.stat().st_size != entry["bytes"]:
            raise UserError(f"{file} is missing or truncated; pull it again or collect it again")
    return manifest


def _described_files(path: Path, manifest: dict[str, Any]) -> list[tuple[Path, dict[str, Any]]]:
    shards = [(path / DATASET / entry["file"], entry) for entry in manifest.get("shards", [])]
    table = manifest.get("parquet")
    return shards + ([(path / table["file"], table)] if table else [])


def _batches(path: Path, manifest: dict[str, Any] | None) -> list[pa.RecordBatch]:
    """All record batches of whatever lies at ``path``."""
    if manifest is not None:
        return [
            batch
            for entry in manifest["shards"]
            for batch in _mapped_stream(path / DATASET / entry["file"])
        ]
    if path.is_dir():
        for folder in (path, path / DATASET):
            if any((folder / name).is_file() for name in ("state.json", "dataset_dict.json")):
                return _user_dataset(folder)
        found = [path / name for name in (PARQUET, "data_full.parquet") if (path / name).is_file()]
        if found:
            return _user_parquet(found[0])
    elif path.suffix == ".parquet" and path.is_file():
        return _user_parquet(path)
    elif len(path.parts) == 2 and not path.exists() and not path.parent.is_dir():
        return _hub_dataset(str(path))
    raise UserError(f"{path} holds no messages: expected {DATASET}/ or {PARQUET}")


def _mapped_stream(path: Path) -> list[pa.RecordBatch]:
    try:
        return list(pa.ipc.open_stream(pa.memory_map(str(path))))
    except pa.ArrowInvalid as error:
        raise UserError(f"{path} is damaged: {error}") from None


def _user_dataset(folder: Path) -> list[pa.RecordBatch]:
    from datasets import load_from_disk

    return _splits_batches(load_from_disk(str(folder)))


def _hub_dataset(name: str) -> list[pa.RecordBatch]:
    from datasets import load_dataset

    try:
        return _splits_batches(load_dataset(name))
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split())[:200]
        raise UserError(f"{name} is neither a folder nor a dataset on the hub: {reason}") from None


def _splits_batches(dataset: Any) -> list[pa.RecordBatch]:
    """Record batches of a Dataset, or of all splits of a DatasetDict."""
    splits = dataset.values() if isinstance(dataset, dict) else [dataset]
    batches: list[pa.RecordBatch] = []
    for split in splits:
        batches += split.flatten_indices().data.table.to_batches()
    return batches


def _user_parquet(path: Path) -> list[pa.RecordBatch]:
    batches: list[pa.RecordBatch] = pq.read_table(path).to_batches()
    return batches


def _key_field(path: Path, batches: list[pa.RecordBatch], wanted: str | None) -> str:
    names = batches[0].schema.names if batches else []
    if not sum(batch.num_rows for batch in batches):
        raise UserError(f"{path} holds no messages: it is empty")
    if HIDDEN not in names:
        raise UserError(f"{path} has no column {HIDDEN}; its columns: {', '.join(names)}")
    candidates = [wanted] if wanted else [name for name in KEY_FIELDS if name in names]
    if not candidates or candidates[0] not in names:
        fields = wanted or " | ".join(KEY_FIELDS)
        raise UserError(f"{path} has no key column {fields}; its columns: {', '.join(names)}")
    return str(candidates[0])
