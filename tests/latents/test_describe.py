from pathlib import Path

import pytest
from datasets import Dataset
from latents.stores import make_store, some_messages

from interlat.latents.describe import describe
from interlat.latents.store import LatentStore


def test_a_store_in_numbers(tmp_path: Path):
    messages = some_messages(0, 9)
    store = make_store(tmp_path / "store", messages, failures={"x": "NaN"}, seed=3)
    summary = describe(store)
    assert (summary.messages, summary.rows, summary.width) == (9, 18, 4)
    assert (summary.dtype, summary.verified) == ("float32", True)
    assert summary.bytes == sum(f.stat().st_size for f in store.path.rglob("*") if f.is_file())
    assert (summary.length["min"], summary.length["50%"], summary.length["max"]) == (1, 2, 3)
    norms = [float(norm) for m in messages for norm in m.hidden_LD.norm(dim=1)]
    assert summary.norm == pytest.approx(
        {"min": min(norms), "mean": sum(norms) / 18, "max": max(norms)}
    )
    assert summary.not_finite == 0
    assert (summary.finish_reasons, summary.failures) == ({"eos": 9}, {"x": "NaN"})
    assert summary.settings["model.name"] == "tiny"


def test_numbers_that_are_none_are_counted(tmp_path: Path):
    nan, inf = float("nan"), float("inf")
    rows = [{"id": "a", "hidden_state": [[nan, 1.0], [3.0, 4.0]]}]
    Dataset.from_list([*rows, {"id": "b", "hidden_state": [[inf, nan]]}]).save_to_disk(tmp_path)
    summary = describe(LatentStore(tmp_path))
    assert summary.not_finite == 3
    assert summary.norm == {"min": 5.0, "mean": 5.0, "max": 5.0}
    assert (summary.verified, summary.settings, summary.finish_reasons) == (False, {}, {})
