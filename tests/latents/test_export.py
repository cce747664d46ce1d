from pathlib import Path

import pandas as pd
import pytest
import torch
from datasets import List, Value, load_from_disk
from latents.stores import make_store, some_messages

from interlat.config import UserError
from interlat.latents import shards
from interlat.latents.export import export
from interlat.latents.store import LatentStore


def test_others_read_nested_lists_of_float32(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    store = make_store(tmp_path / "store", some_messages(0, 9), dtype="float16")
    monkeypatch.setattr(shards, "SHARD_BYTES", 100)
    export(store, tmp_path / "out")
    dataset = load_from_disk(str(tmp_path / "out" / "hf_dataset"))
    assert len(list((tmp_path / "out" / "hf_dataset").glob("*.arrow"))) > 1
    assert dataset.features["hidden_state"] == List(List(Value("float32")))
    assert dataset["task_id"][:] == store.ids
    for row, message in zip(dataset, store, strict=True):
        assert torch.equal(torch.tensor(row["hidden_state"]), message.hidden_LD.float())
        assert (row["plan"], row["task"], row["finish_reason"]) == (
            message.plan,
            message.task,
            "eos",
        )
    frame = pd.read_parquet(tmp_path / "out" / "data.parquet")
    assert frame.hidden_state[0][0].tolist() == dataset[0]["hidden_state"][0]


def test_it_is_read_as_what_users_have(tmp_path: Path):
    store = make_store(tmp_path / "store", some_messages(0, 5))
    export(store, tmp_path / "out", parquet=False)
    again = LatentStore(tmp_path / "out")
    assert not again.verified
    assert not (tmp_path / "out" / "data.parquet").exists()
    for ours, theirs in zip(store, again, strict=True):
        assert torch.equal(ours.hidden_LD, theirs.hidden_LD)


def test_nothing_is_overwritten(tmp_path: Path):
    store = make_store(tmp_path / "store", some_messages(0, 2))
    with pytest.raises(UserError, match="store exists; choose another folder"):
        export(store, tmp_path / "store")
