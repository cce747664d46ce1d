"""A store for tools that expect what the earlier scripts wrote: nested lists of float32.

``hidden_state`` becomes list<list<float32>>, in ``hf_dataset/`` and ``data.parquet``. Streamed:
memory holds one record batch.
"""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from interlat.config import UserError
from interlat.files import atomic_directory
from interlat.latents.columns import HIDDEN, features, record_batches
from interlat.latents.manifest import DATASET, PARQUET
from interlat.latents.message import Message
from interlat.latents.shards import (
    grouped,
    read_stream,
    room_for,
    shard_name,
    write_dataset_files,
    write_parquet,
    write_stream,
)
from interlat.latents.store import LatentStore

DTYPE = "float32"


def export(
    store: LatentStore,
    output: Path,
    *,
    parquet: bool = True,
    on_progress: Callable[[int], None] = lambda done: None,
) -> None:
    """Write ``output/hf_dataset`` and, where wanted, ``output/data.parquet``, whole or not at all.

    on_progress: called with the number of messages since the last call.
    Raises UserError when there is something at ``output`` already, or a state is not finite.
    """
    if output.exists():
        raise UserError(f"{output} exists; choose another folder")
    flat = features(store.width, DTYPE, questions=store.has_questions)
    nested = _nested_features(flat)
    groups = grouped((store.lengths * store.width * np.dtype(DTYPE).itemsize).tolist())
    names = [shard_name(number, len(groups)) for number in range(len(groups))]
    with room_for(output), atomic_directory(output) as folder:
        dataset = folder / DATASET
        dataset.mkdir()
        for name, group in zip(names, groups, strict=True):
            messages = (store[position] for position in group)
            batches = _nested_batches(messages, flat.arrow_schema, nested.arrow_schema)
            write_stream(dataset / name, nested.arrow_schema, batches)
            on_progress(len(group))
        write_dataset_files(dataset, nested, names, store.digest)
        if parquet:
            shards = (batch for name in names for batch in read_stream(dataset / name))
            write_parquet(folder / PARQUET, nested.arrow_schema, shards)


def _nested_features(flat: Any) -> Any:
    from datasets import Features, List, Value

    return Features({**flat, HIDDEN: List(List(Value(DTYPE)))})


def _nested_batches(
    messages: Iterable[Message], flat: pa.Schema, nested: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Record batches whose rows are lists with offsets of their own, over the same numbers."""
    for batch in record_batches(messages, flat):
        column = batch.column(HIDDEN)
        rows = column.values
        starts = np.arange(len(rows) + 1, dtype=np.int32) * rows.type.list_size
        lists = pa.ListArray.from_arrays(pa.array(starts), rows.values)
        hidden = pa.ListArray.from_arrays(column.offsets, lists)
        small = [batch.column(name) for name in nested.names if name != HIDDEN]
        yield pa.record_batch([*small, hidden], schema=nested)
