"""Messages as Arrow columns and back, without Python lists and, on the way back, without a copy.

The column ``hidden_state`` is list<fixed_size_list<float16|float32>[D]>: its one flat buffer holds
the rows of all messages of a record batch, one after the other.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from interlat.config import UserError
from interlat.latents.message import Message

HIDDEN = "hidden_state"
STORE_DTYPES = {"float16": torch.float16, "float32": torch.float32}
BATCH_BYTES = 8 * 2**20
"""Rows in a record batch, in bytes; writing holds one of them, and Parquet five times that."""


def features(width: int, dtype: str, *, questions: bool = False) -> Any:
    """The ``datasets.Features`` of a store; ``.arrow_schema`` is the schema of its shards.

    questions: with task_type and task_level.
    """
    from datasets import Features, List, Value

    names = ["task_id", "task", "plan", "n_tokens", "finish_reason"]
    names += ["task_type", "task_level"] if questions else []
    columns = {name: Value("int32" if name == "n_tokens" else "string") for name in names}
    return Features({**columns, HIDDEN: List(List(Value(dtype), length=width))})


def record_batch(messages: Sequence[Message], schema: pa.Schema) -> pa.RecordBatch:
    """The messages as one record batch of ``schema`` (that of ``features``).

    Raises UserError, naming the task, for states that are not finite or do not fit the stored type;
    ValueError for a message of another width.
    """
    row_type = schema.field(HIDDEN).type.value_type
    dtype, width = STORE_DTYPES[_dtype_name(row_type.value_type)], row_type.list_size
    offsets = np.cumsum([0, *(len(m.hidden_LD) for m in messages)], dtype=np.int32)
    flat_RD = torch.empty(int(offsets[-1]), width, dtype=dtype)
    for message, start, stop in zip(messages, offsets[:-1], offsets[1:], strict=True):
        if message.hidden_LD.shape[1] != width:
            raise ValueError(f"message {message.task_id} is not {width} wide")
        flat_RD[start:stop] = message.hidden_LD
        if reason := _unstorable(message, flat_RD[start:stop]):
            raise UserError(reason)
    rows = pa.FixedSizeListArray.from_arrays(pa.array(flat_RD.numpy().reshape(-1)), type=row_type)
    hidden = pa.ListArray.from_arrays(pa.array(offsets), rows, type=schema.field(HIDDEN).type)
    small = [
        pa.array([getattr(message, field.name) for message in messages], field.type)
        for field in schema
        if field.name != HIDDEN
    ]
    return pa.record_batch([*small, hidden], schema=schema)


def record_batches(messages: Iterable[Message], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The messages, in order, as record batches of about BATCH_BYTES; errors as record_batch."""
    for part in batched(messages):
        yield record_batch(part, schema)


def batched(messages: Iterable[Message]) -> Iterator[list[Message]]:
    """The messages, in order, in parts that end once their rows have BATCH_BYTES."""
    part: list[Message] = []
    size = 0
    for message in messages:
        part.append(message)
        size += message.hidden_LD.nbytes
        if size >= BATCH_BYTES:
            yield part
            part, size = [], 0
    if part:
        yield part


def unstorable(message: Message, dtype: str) -> str | None:
    """Why the message cannot be stored as ``dtype`` ("float16" or "float32"); None if it can."""
    return _unstorable(message, message.hidden_LD.to(STORE_DTYPES[dtype]))


def all_finite(values: Tensor) -> bool:
    """Whether there is no NaN and no infinity; through the extremes, many times the speed of
    ``isfinite().all()``."""
    return not values.numel() or bool(torch.stack(values.aminmax()).isfinite().all())


def hidden_rows(column: pa.Array) -> tuple[np.ndarray, Tensor]:
    """One array of ``hidden_state``: (offsets [N + 1], all rows [R, D] of which n has offsets n to
    n+1).

    Reads list<fixed_size_list> as well as list<list> with rows of one width (what ``save_to_disk``
    of nested lists gives), and extension types of either; no copy for float16, float32 and float64.
    Raises ValueError for rows of unequal width and for anything that is not two levels of lists.
    """
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    if not _is_list(column.type) or not _is_list(column.type.value_type):
        raise ValueError(f"{HIDDEN} must be rows of numbers, not {column.type}")
    offsets, rows = _children(column)
    first, width = _first_and_width(rows)
    flat = rows.values.slice(first, width * len(rows))
    if column.null_count or rows.null_count or flat.null_count:
        raise ValueError(f"{HIDDEN} must hold no nulls")
    if not pa.types.is_floating(flat.type):
        raise ValueError(f"{HIDDEN} must hold floats, not {flat.type}")
    rows_RD: Tensor = torch.utils.dlpack.from_dlpack(flat)
    return offsets, rows_RD.reshape(len(rows), width)


def _is_list(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _children(column: pa.Array) -> tuple[np.ndarray, pa.Array]:
    """Offsets (into the values) and values of a list array of any of the three kinds."""
    if pa.types.is_fixed_size_list(column.type):
        size = column.type.list_size
        return np.arange(column.offset, column.offset + len(column) + 1) * size, column.values
    return column.offsets.to_numpy().astype(np.int64), column.values


def _first_and_width(rows: pa.Array) -> tuple[int, int]:
    """Where the numbers of a list array of any of the three kinds begin, and how many a row has."""
    if pa.types.is_fixed_size_list(rows.type):
        return rows.offset * rows.type.list_size, rows.type.list_size
    offsets = rows.offsets.to_numpy()
    widths = np.diff(offsets)
    if len(widths) and (widths != widths[0]).any():
        raise ValueError(f"rows of {HIDDEN} differ in width")
    return (int(offsets[0]), int(widths[0])) if len(widths) else (0, 0)


def _unstorable(message: Message, stored_LD: Tensor) -> str | None:
    if all_finite(stored_LD):
        return None
    if not all_finite(message.hidden_LD):
        return (
            f"task {message.task_id}: hidden states contain NaN or infinity; "
            "load the model in a wider type (--dtype fp32) or check its weights"
        )
    largest = float(message.hidden_LD.abs().max())
    return (
        f"task {message.task_id}: a hidden state of {largest:.4g} does not fit float16; "
        "use --store_dtype float32"
    )


def _dtype_name(kind: pa.DataType) -> str:
    return "float16" if pa.types.is_float16(kind) else "float32"
