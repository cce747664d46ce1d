from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
import torch

from interlat.config import UserError
from interlat.latents.columns import (
    BATCH_BYTES,
    HIDDEN,
    all_finite,
    features,
    hidden_rows,
    record_batch,
    record_batches,
    unstorable,
)
from interlat.latents.message import Message


def message(task_id: str, rows: list[list[float]]) -> Message:
    return Message(task_id, torch.tensor(rows), "plan", "task", len(rows), "eos")


def schema(dtype: str = "float16", width: int = 2) -> pa.Schema:
    return features(width, dtype).arrow_schema


def test_messages_of_several_lengths_come_back_as_they_went():
    rows = [[[1.0, 2.0]], [[3.0, 4.0], [5.0, 6.0]]]
    batch = record_batch([message("a", rows[0]), message("b", rows[1])], schema())
    assert batch.column(HIDDEN).to_pylist() == rows
    assert batch.column("n_tokens").to_pylist() == [1, 2]
    offsets, rows_RD = hidden_rows(batch.column(HIDDEN))
    assert offsets.tolist() == [0, 1, 3]
    assert rows_RD.dtype == torch.float16
    assert rows_RD.tolist() == [[1, 2], [3, 4], [5, 6]]


def test_rows_share_memory_with_the_column():
    column = record_batch([message("a", [[1.0, 2.0]])], schema()).column(HIDDEN)
    address = column.values.values.buffers()[1].address
    assert hidden_rows(column)[1].data_ptr() == address


@pytest.mark.parametrize(
    "kind",
    [
        pa.list_(pa.list_(pa.float32())),
        pa.large_list(pa.large_list(pa.float64())),
        pa.list_(pa.list_(pa.float32(), 2)),
        pa.list_(pa.list_(pa.float64(), 2), 2),
    ],
)
def test_lists_of_any_kind_and_their_slices_are_read(kind: pa.DataType):
    column = pa.array([[[9, 9], [9, 9]], [[1, 2], [3, 4]], [[5, 6], [7, 8]]], kind)
    offsets, rows_RD = hidden_rows(column.slice(1))
    messages = [rows_RD[a:b].tolist() for a, b in pairwise(offsets)]
    assert messages == [[[1, 2], [3, 4]], [[5, 6], [7, 8]]]


def test_ragged_rows_and_other_columns_are_refused():
    with pytest.raises(ValueError, match="width"):
        hidden_rows(pa.array([[[1.0], [1.0, 2.0]]]))
    with pytest.raises(ValueError, match="rows of numbers"):
        hidden_rows(pa.array([[1.0, 2.0]]))
    with pytest.raises(ValueError, match="floats"):
        hidden_rows(pa.array([[[1, 2]]]))


def test_a_value_beyond_float16_names_the_task_and_the_way_out():
    with pytest.raises(UserError, match=r"task big.*7e\+04.*--store_dtype float32"):
        record_batch([message("big", [[1.0, 70000.0]])], schema())
    kept = record_batch([message("big", [[1.0, 70000.0]])], schema("float32"))
    assert kept.column(HIDDEN).to_pylist() == [[[1.0, 70000.0]]]


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_states_that_are_not_finite_are_refused(bad: float):
    for dtype in ("float16", "float32"):
        with pytest.raises(UserError, match=r"task t: .*NaN or infinity"):
            record_batch([message("t", [[1.0, bad]])], schema(dtype))


def test_what_cannot_be_stored_is_known_before():
    beyond, nowhere = message("big", [[1.0, 70000.0]]), message("t", [[float("nan"), 1.0]])
    assert unstorable(message("a", [[1.0, 2.0]]), "float16") is None
    assert unstorable(beyond, "float32") is None
    for bad in (beyond, nowhere):
        with pytest.raises(UserError) as refused:
            record_batch([bad], schema())
        assert unstorable(bad, "float16") == str(refused.value)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_one_bad_number_among_many_is_seen(bad: float):
    values = torch.randn(50, 7)
    assert all_finite(values)
    values[31, 3] = bad
    assert not all_finite(values)
    assert all_finite(torch.empty(0, 7))


def test_many_messages_become_batches_of_bounded_size():
    rows = BATCH_BYTES // 4 // 4  # half a batch in float32
    long = [Message(f"t{i}", torch.full((rows, 2), float(i)), "") for i in range(5)]
    batches = list(record_batches(iter(long), schema()))
    assert [batch.column("task_id").to_pylist() for batch in batches] == [
        ["t0", "t1"],
        ["t2", "t3"],
        ["t4"],
    ]


def test_questions_say_their_type_and_level():
    asked = Message("q", torch.ones(1, 2), "p", "1 + 1?", 1, "eos", "Algebra", "Level 2")
    questions = features(2, "float16", questions=True).arrow_schema
    row = record_batch([asked], questions).to_pylist()[0]
    assert (row["task_type"], row["task_level"]) == ("Algebra", "Level 2")
    assert "task_type" not in schema().names


def test_a_message_of_another_width_is_a_mistake():
    with pytest.raises(ValueError, match="not 2 wide"):
        record_batch([message("t", [[1.0, 2.0, 3.0]])], schema())


def test_float16_rounds_by_half_a_unit_in_the_last_place_at_most():
    values = torch.from_numpy(np.random.default_rng(0).normal(size=(50, 2)).astype(np.float32))
    stored = hidden_rows(record_batch([Message("t", values, "")], schema()).column(HIDDEN))[1]
    assert torch.all((stored.float() - values).abs() <= values.abs() * 2**-11 + 2**-25)
