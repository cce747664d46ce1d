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
import torch
from torch import Tensor

from interlat.config import UserError
from interlat.files import sha256_file
from interlat.latents.columns import HIDDEN, all_finite, hidden_rows
from interlat.latents.folders import mapped_stream, user_batches
from interlat.latents.manifest import (
    DATASET,
    JOURNAL,
    MANIFEST,
    changed,
    incomplete,
    partial_folder,
    read_manifest,
)
from interlat.latents.message import Message

KEY_FIELDS = ("task_id", "id", "task")


class _Block(NamedTuple):
    """One record batch: its small columns, and its rows as one tensor over the mapped file."""

    batch: pa.RecordBatch
    offsets: np.ndarray
    rows_RD: Tensor


class LatentStore:
    """Messages by task id. Iterating gives them in stored order, ``store[i]`` the one at i.

    path: a store, or what users have (see the module). key_field: the column to look up by, where
    it is not the first there is of task_id, id, task. split: of a DatasetDict or a hub data set;
    without, all splits are read as one.
    Raises UserError for a path without messages, an unfinished or damaged store, and duplicate
    keys.
    """

    def __init__(
        self, path: Path | str, *, key_field: str | None = None, split: str | None = None
    ) -> None:
        self.path = Path(path)
        _refuse_unfinished(self.path)
        self.manifest: dict[str, Any] | None = read_manifest(self.path)
        batches = _batches(self.path, self.manifest, split)
        self.key_field = _key_field(self.path, batches, key_field)
        self._blocks = [self._block(batch) for batch in batches if batch.num_rows]
        self._starts = np.cumsum([0, *(block.batch.num_rows for block in self._blocks)]).tolist()
        self.ids = self.texts(self.key_field)
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
    def columns(self) -> list[str]:
        """Names of the columns."""
        names: list[str] = self._blocks[0].batch.schema.names
        return names

    @property
    def has_questions(self) -> bool:
        """Whether the messages say a question's type and level."""
        return "task_type" in self.columns

    @property
    def lengths(self) -> np.ndarray:
        """Rows of each message, in stored order; no state is read."""
        return np.concatenate([np.diff(block.offsets) for block in self._blocks])

    @property
    def failures(self) -> dict[str, str]:
        """Task id -> reason, of the tasks for which no message could be collected."""
        noted = (self.manifest or {}).get("failures", [])
        return {entry["task_id"]: entry["error"] for entry in noted}

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

    def __getitem__(self, position: int) -> Message:
        return self._message(range(len(self))[position])

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

    def texts(self, name: str) -> list[str]:
        """A column of texts in stored order (``plan``, ``task``), "" for nulls; no state is read.

        Raises UserError where there is no such column.
        """
        if name not in self.columns:
            known = ", ".join(self.columns)
            raise UserError(f"{self.path} has no column {name}; its columns: {known}")
        return [
            "" if value is None else str(value)
            for block in self._blocks
            for value in block.batch.column(name).to_pylist()
        ]

    def require_width(self, width: int) -> None:
        """Raise UserError unless messages are ``width`` wide."""
        if self.width != width:
            raise UserError(
                f"{self.path} holds messages of width {self.width}, the model reads {width}; "
                "collect with the matching sender, or train an adapter for this one"
            )

    def verify(self) -> list[str]:
        """What is wrong, a sentence each: changed files, wrong counts, NaN or infinity.

        Reads every byte. ``verify`` of this module also takes stores that do not open.
        """
        found = changed(self.path, self.manifest) if self.manifest is not None else []
        return found or self._wrong_content()

    def _wrong_content(self) -> list[str]:
        return self._wrong_counts() + [
            f"message {message.task_id} holds NaN or infinity"
            for message in self
            if not all_finite(message.hidden_LD)
        ]

    def _wrong_counts(self) -> list[str]:
        found = []
        for entry in (self.manifest or {}).get("shards", []):
            path = self.path / DATASET / entry["file"]
            batches = mapped_stream(path)
            counts = {
                "messages": sum(batch.num_rows for batch in batches),
                "rows": sum(len(batch.column(HIDDEN).flatten()) for batch in batches),
            }
            found += [
                f"{path} has {count} {what}, the manifest says {entry[what]}"
                for what, count in counts.items()
                if count != entry[what]
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

    def _message(self, position: int) -> Message:
        number = bisect_right(self._starts, position) - 1
        batch, offsets, rows_RD = self._blocks[number]
        row = position - self._starts[number]

        def text(name: str) -> str:
            value = batch.column(name)[row].as_py() if name in batch.schema.names else None
            return "" if value is None else str(value)

        hidden_LD = rows_RD[offsets[row] : offsets[row + 1]]
        return Message(
            task_id=self.ids[position],
            hidden_LD=hidden_LD,
            plan=text("plan"),
            task=text("task"),
            n_tokens=int(text("n_tokens") or len(hidden_LD)),
            finish_reason=text("finish_reason"),
            task_type=text("task_type"),
            task_level=text("task_level"),
        )


def verify(path: Path, *, key_field: str | None = None, split: str | None = None) -> list[str]:
    """What is wrong with the store at ``path``, a sentence each; nothing is trusted unread.

    key_field, split: as for LatentStore.
    Raises UserError where there is no store, or an unfinished one.
    """
    _refuse_unfinished(path)
    manifest = read_manifest(path)
    found = [] if manifest is None else incomplete(path, manifest) or changed(path, manifest)
    return found or LatentStore(path, key_field=key_field, split=split)._wrong_content()


def _refuse_unfinished(path: Path) -> None:
    """A journal and no manifest, here or in the work beside a store that is not there yet."""
    if not (path / MANIFEST).exists():
        for folder in (path, partial_folder(path)):
            if (folder / JOURNAL).exists() and (folder == path or not path.exists()):
                raise UserError(f"{path} is unfinished; run its collection again to resume it")


def _batches(
    path: Path, manifest: dict[str, Any] | None, split: str | None
) -> list[pa.RecordBatch]:
    """All record batches of whatever lies at ``path``."""
    if manifest is None:
        return user_batches(path, split)
    if split is not None:
        raise UserError(f"{path} is a store, it has no splits")
    for problem in incomplete(path, manifest):
        raise UserError(f"{problem}; pull it again or collect it again")
    return [
        batch
        for entry in manifest["shards"]
        for batch in mapped_stream(path / DATASET / entry["file"])
    ]


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
