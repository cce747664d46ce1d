from pathlib import Path

import pytest
import torch
from latents.stores import make_store, some_messages

from interlat.config import UserError
from interlat.latents.merge import merge
from interlat.latents.store import LatentStore, verify


def test_messages_follow_one_another_and_the_manifest_says_whence(tmp_path: Path):
    messages = some_messages(0, 7)
    first = make_store(
        tmp_path / "a", messages[:3], tasks={"count": 4}, failures={"t6": "x", "u": "NaN"}
    )
    second = make_store(tmp_path / "b", messages[3:], tasks={"count": 4}, packages={"torch": "9"})
    merge([first, second], tmp_path / "both")
    both = LatentStore(tmp_path / "both")
    assert verify(tmp_path / "both") == []
    assert both.ids == [message.task_id for message in messages]
    for read, written in zip(both, messages, strict=True):
        assert torch.equal(read.hidden_LD, written.hidden_LD)
        assert (read.plan, read.task) == (written.plan, written.task)
    assert both.failures == {"u": "NaN"}  # t6 failed in the one and is in the other
    assert both.manifest["model"] == {"name": "tiny", "weights_sha256": "aa"}
    assert both.manifest["merged"] == [
        {"manifest_sha256": first.digest, "messages": 3, "tasks": {"count": 4}},
        {
            "manifest_sha256": second.digest,
            "messages": 4,
            "tasks": {"count": 4},
            "packages": {"torch": "9"},
        },
    ]
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["a", "b", "both"]


@pytest.mark.parametrize(
    ("work", "complaint"),
    [
        ({"model": {"name": "tiny", "weights_sha256": "bb"}}, "model.weights_sha256 is 'aa' in"),
        ({"generation": {"temperature": 0.7}}, "generation.temperature is None in the one and 0.7"),
        ({"prompt": {"template": "{task}"}}, "prompt.template is None"),
        ({"dtype": "float16"}, "dtype is 'float32' in the one and 'float16' in the other"),
    ],
)
def test_stores_of_two_kinds_are_not_merged(tmp_path: Path, work: dict, complaint: str):
    stores = [
        make_store(tmp_path / "a", some_messages(0, 2)),
        make_store(tmp_path / "b", some_messages(2, 2), **work),
    ]
    with pytest.raises(UserError, match=f"cannot be merged: {complaint}"):
        merge(stores, tmp_path / "both")
    assert not (tmp_path / "both").exists()


def test_a_task_that_comes_twice_is_refused(tmp_path: Path):
    stores = [
        make_store(tmp_path / "a", some_messages(0, 3)),
        make_store(tmp_path / "b", some_messages(2, 2)),
    ]
    with pytest.raises(UserError, match=r"task 't2' is in .*a and in .*b"):
        merge(stores, tmp_path / "both")


def test_merging_into_a_store_that_is_there_is_refused(tmp_path: Path):
    stores = [
        make_store(tmp_path / "a", some_messages(0, 3)),
        make_store(tmp_path / "b", some_messages(3, 2)),
    ]
    with pytest.raises(UserError, match="a exists; choose another folder"):
        merge(stores, tmp_path / "a")
