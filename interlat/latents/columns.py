"""Messages as Arrow columns and back, without Python lists and, on the way back, without a copy.

The column ``hidden_state`` is list<fixed_size_list<float16|float32>[D]>: its one flat buffer holds
the rows of all messages of a record batch, one after the other.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from interlat.config import UserError
from interlat.latents.message import Message

HIDDEN = "hidden_state"
STORE_DTYPES = {"float16": torch.float16, "float32": torch.float32}


def features(width: int, dtype: str) -> Any:
    """The ``datasets.Features`` of a store; ``.arrow_schema`` is the schema of its shards."""
    from datasets import Features, List, Value

    return Features(
        {
            "task_id": Value("string"),
            "task": Value("string"),
            "plan": Value("string"),
            "n_tokens": Value("int32"),
            "finish_reason": Value("string"),
            HIDDEN: List(List(Value(dtype), length=width)),
        }
    )


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
        _check_finite(message, flat_RD[start:stop])
    rows = pa.FixedSizeListArray.from_arrays(pa.array(flat_RD.numpy().reshape(-1)), type=row_type)
    columns: dict[str, pa.Array] = {
        "task_id": pa.array([m.task_id for m in messages], pa.string()),
        "task": pa.array([m.task for m in messages], pa.string()),
        "plan": pa.array([m.plan for m in messages], pa.string()),
        "n_tokens": pa.array([m.n_tokens for m in messages], pa.int32()),
        "finish_reason": pa.array([m.finish_reason for m in messages], pa.string()),
        HIDDEN: pa.ListArray.from_arrays(pa.array(offsets), rows, type=schema.field(HIDDEN).type),
    }
    return pa.record_batch([columns[name] for name in schema.names], schema=schema)


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
    inner, values = _children(rows)
    widths = np.diff(inner)
    if len(widths) and (widths != widths[0]).any():
        raise ValueError(f"rows of {HIDDEN} differ in width")
    width = int(widths[0]) if len(widths) else 0
    first = int(inner[0]) if len(inner) else 0
    flat = values.slice(first, width * len(widths))
    if flat.null_count or not pa.types.is_floating(flat.type):
        raise ValueError(f"{HIDDEN} must hold floats and no nulls, not {flat.type}")
    rows_RD: Tensor = torch.utils.dlpack.from_dlpack(flat)
    return offsets, rows_RD.reshape(-1, width)


def _is_list(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _children(column: pa.Array) -> tuple[np.ndarray, pa.Array]:
    """Offsets (into the values) and values of a list array of any of the three kinds."""
    if pa.types.is_fixed_size_list(column.type):
        size = column.type.list_size
        return np.arange(column.offset, column.offset + len(column) + 1) * size, column.values
    return column.offsets.to_numpy().astype(np.int64), column.values


def _check_finite(message: Message, stored_LD: Tensor) -> None:
    if bool(torch.isfinite(stored_LD).all()):
        return
    if not bool(torch.isfinite(message.hidden_LD).all()):
        raise UserError(
            f"task {message.task_id}: hidden states contain NaN or infinity; "
            "load the model in a wider type (--dtype fp32) or check its weights"
        )
    largest = float(message.hidden_LD.abs().max())
    raise UserError(
        f"task {message.task_id}: a hidden state of {largest:.4g} does not fit float16; "
        "use --store_dtype float32"
    )


def _dtype_name(kind: pa.DataType) -> str:
    return "float16" if pa.types.is_float16(kind) else "float32"
