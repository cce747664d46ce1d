"""Record batches of messages from whatever users have, without Python lists.

``save_to_disk`` of nested lists (a Dataset or a DatasetDict), ``data.parquet``, a folder that holds
one of these, or a data set on the hub. Arrow files are mapped; Parquet is read into memory.
"""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from interlat.config import UserError
from interlat.latents.manifest import DATASET, PARQUET

_DATASET_FILES = ("state.json", "dataset_dict.json")
_TABLES = (PARQUET, "data_full.parquet")


def user_batches(path: Path, split: str | None = None) -> list[pa.RecordBatch]:
    """All record batches of what lies at ``path``, which may be a hub id.

    split: one of a DatasetDict's; all of them, one after the other, without.
    Raises UserError where there are no messages, or no such split.
    """
    if path.is_dir():
        for folder in (path, path / DATASET):
            if any((folder / name).is_file() for name in _DATASET_FILES):
                return _from_disk(folder, split)
        for table in (path / name for name in _TABLES):
            if table.is_file():
                return _from_parquet(table)
    elif path.suffix == ".parquet" and path.is_file():
        return _from_parquet(path)
    elif len(path.parts) == 2 and not path.exists() and not path.parent.is_dir():
        return _from_hub(str(path), split)
    raise UserError(f"{path} holds no messages: expected {DATASET}/ or {PARQUET}")


def mapped_stream(path: Path) -> list[pa.RecordBatch]:
    """The record batches of an Arrow stream, over the mapped file."""
    try:
        return list(pa.ipc.open_stream(pa.memory_map(str(path))))
    except (pa.ArrowInvalid, OSError) as error:
        raise UserError(f"{path} is damaged: {error}") from None


def _from_disk(folder: Path, split: str | None) -> list[pa.RecordBatch]:
    from datasets import load_from_disk

    try:
        return _of_splits(str(folder), load_from_disk(str(folder)), split)
    except (pa.ArrowInvalid, OSError, KeyError, ValueError) as error:
        raise UserError(f"{folder} is damaged: {_first_words(error)}") from None


def _from_hub(name: str, split: str | None) -> list[pa.RecordBatch]:
    from datasets import load_dataset

    try:
        return _of_splits(name, load_dataset(name), split)
    except (OSError, ValueError) as error:
        reason = _first_words(error)
        raise UserError(f"{name} is neither a folder nor a dataset on the hub: {reason}") from None


def _from_parquet(path: Path) -> list[pa.RecordBatch]:
    try:
        batches: list[pa.RecordBatch] = pq.read_table(path).to_batches()
    except (pa.ArrowInvalid, OSError) as error:
        raise UserError(f"{path} is damaged: {_first_words(error)}") from None
    return batches


def _of_splits(name: str, dataset: Any, wanted: str | None) -> list[pa.RecordBatch]:
    """Record batches of a Dataset, or of a DatasetDict's wanted split, or of all."""
    splits = dataset if isinstance(dataset, dict) else {}
    if wanted is not None and wanted not in splits:
        raise UserError(f"{name} has no split {wanted!r}; its splits: {', '.join(splits) or '-'}")
    chosen = [splits[wanted]] if wanted is not None else list(splits.values()) or [dataset]
    batches: list[pa.RecordBatch] = []
    for part in chosen:
        batches += part.with_format("arrow")[:].to_batches()  # a view, or a selection's rows
    return batches


def _first_words(error: Exception) -> str:
    return " ".join(str(error).split())[:200]
