from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest
import torch

from interlat.config import HiddenConfig, Source, UserError
from interlat.latents.message import Message
from interlat.latents.perturb import white_noise
from interlat.latents.sources import SOURCES, Delivery, deliver, message_key
from interlat.latents.store import LatentStore
from interlat.latents.writer import LatentWriter
from interlat.tasks import Task

HIDDEN = HiddenConfig()
LENGTHS = {f"t{i}": 5 + i for i in range(6)}


def build(folder: Path, lengths: dict[str, int]) -> LatentStore:
    writer = LatentWriter(folder, {}, width=4, dtype="float16")
    writer.claim()
    generator = torch.Generator().manual_seed(0)
    messages = [
        Message(name, torch.randn(length, 4, generator=generator), f"plan of {name}")
        for name, length in lengths.items()
    ]
    writer.write_piece(0, messages)
    writer.publish(1)
    return LatentStore(folder)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> LatentStore:
    return build(tmp_path_factory.mktemp("sources") / "store", LENGTHS)


def test_every_source_of_params_yaml_is_served():
    assert set(get_args(Source)) == set(SOURCES)


def test_data_is_the_message_in_float32(store: LatentStore):
    delivery = deliver("data", "t1", store, HIDDEN, seed=0)
    assert delivery.text is None
    assert delivery.hidden_LD.dtype == torch.float32
    assert torch.equal(delivery.hidden_LD, store.get("t1").hidden_LD.float())


def test_text_is_the_plan_and_none_is_nothing(store: LatentStore):
    assert deliver("text", "t1", store, HIDDEN, seed=0) == Delivery(text="plan of t1")
    assert deliver("none", "t1", None, HIDDEN, seed=0) == Delivery()


def test_random_other_is_never_the_tasks_own(store: LatentStore):
    """The earlier code could deliver the task's own message as its mismatched control."""
    drawn = Counter()
    for seed in range(300):
        delivery = deliver("random_other", "t2", store, HIDDEN, seed=seed)
        drawn[len(delivery.hidden_LD)] += 1
        owner = f"t{len(delivery.hidden_LD) - 5}"
        assert torch.equal(delivery.hidden_LD, store.get(owner).hidden_LD.float())
    assert LENGTHS["t2"] not in drawn
    assert set(drawn) == set(LENGTHS.values()) - {LENGTHS["t2"]}
    assert min(drawn.values()) > 30


def test_random_other_needs_another_task(tmp_path: Path):
    with pytest.raises(UserError, match="another task"):
        deliver("random_other", "t0", build(tmp_path / "one", {"t0": 3}), HIDDEN, seed=0)


def test_white_noise_has_the_shape_and_nothing_else(store: LatentStore):
    noise_LD = deliver("white_noise", "t3", store, HIDDEN, seed=0).hidden_LD
    assert noise_LD.shape == store.get("t3").hidden_LD.shape
    correlation = torch.corrcoef(
        torch.stack([noise_LD.flatten(), store.get("t3").hidden_LD.float().flatten()])
    )[0, 1]
    assert correlation.abs() < 0.5


def test_noised_is_the_message_plus_noise_of_the_wanted_deviation(store: LatentStore):
    near, far = (
        deliver("noised", "t3", store, replace(HIDDEN, noise_std=std), seed=0).hidden_LD
        - store.get("t3").hidden_LD.float()
        for std in (0.5, 2.0)
    )
    torch.testing.assert_close(4 * near, far, rtol=1e-4, atol=1e-4)
    assert 0.3 < near.std() < 0.7


@pytest.mark.parametrize("source", ["random_other", "white_noise", "noised"])
def test_chance_belongs_to_seed_and_task_not_to_order(store: LatentStore, source: str):
    def rows(task_id: str, seed: int) -> torch.Tensor:
        return deliver(source, task_id, store, replace(HIDDEN, first_k=5), seed).hidden_LD

    alone = rows("t4", 7)
    for other in ("t0", "t5"):
        rows(other, 7)
    assert torch.equal(rows("t4", 7), alone)
    assert any(not torch.equal(rows("t4", seed), alone) for seed in range(8, 16))


def test_rows_are_shaped_as_asked(store: LatentStore):
    own_LD = store.get("t5").hidden_LD.float()
    shaped = {
        "truncate_last_percent": 50.0,
        "first_k": 3,
        "prune_keep_ratio": 0.5,
    }
    lengths = {"truncate_last_percent": 5, "first_k": 3, "prune_keep_ratio": 8}
    for name, value in shaped.items():
        rows_LD = deliver("data", "t5", store, replace(HIDDEN, **{name: value}), 0).hidden_LD
        assert len(rows_LD) == lengths[name]
    cut = replace(HIDDEN, truncate_last_percent=50.0, first_k=2)
    assert torch.equal(deliver("data", "t5", store, cut, 0).hidden_LD, own_LD[:2])


def test_noise_is_drawn_before_the_message_is_cut(store: LatentStore):
    """So that the first rows under noise are the same whatever first_k is."""
    few, many = (
        deliver("noised", "t5", store, replace(HIDDEN, first_k=k), 0).hidden_LD for k in (2, 6)
    )
    assert torch.equal(few, many[:2])


def test_what_cannot_be_served_is_one_sentence(store: LatentStore):
    with pytest.raises(UserError, match=r"'dat' is unknown; choose one of data, text"):
        deliver("dat", "t0", store, HIDDEN, seed=0)
    with pytest.raises(UserError, match="no message for task"):
        deliver("data", "missing", store, HIDDEN, seed=0)
    with pytest.raises(UserError, match="needs messages"):
        deliver("data", "t0", None, HIDDEN, seed=0)


def test_the_stored_message_is_never_changed(store: LatentStore):
    before = store.get("t1").hidden_LD.clone()
    for source in SOURCES:
        deliver(source, "t1", store, HIDDEN, seed=1)
    assert torch.equal(store.get("t1").hidden_LD, before)
    assert white_noise(before, generator=torch.Generator().manual_seed(0)).shape == before.shape


def test_the_key_follows_lookup_field(store: LatentStore):
    turns = ({"from": "human", "value": "a"}, {"from": "gpt", "value": "OK"})
    task = Task("t1", "alfworld", "train", "find mug", conversations=turns)
    observed = replace(task, conversations=(*turns, {"from": "human", "value": "a room"}))
    assert message_key(task, store, HIDDEN) == "t1"
    by_text = replace(HIDDEN, lookup_field="state_history_2")
    assert message_key(task, store, by_text) == "find mug"
    assert message_key(observed, store, by_text) == "a room"
