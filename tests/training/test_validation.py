"""Held-out tasks: which they are, what is said of them, and that they change nothing."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from interlat.config import TrainConfig, UserError
from interlat.training.course import Kind
from interlat.training.even import EvenCollator
from interlat.training.validation import hold_out, validation
from training.toy import Toy, train

CONFIG = TrainConfig(
    steps=8,
    batch_size=8,
    learning_rate=1e-2,
    adapter_learning_rate=1e-2,
    log_every=2,
    save_every=4,
    validation_share=0.25,
    validate_every=3,
)


def test_tasks_are_parted_by_their_ids(toy: Toy) -> None:
    kept, held = hold_out(toy.material, 0.25, seed=1)
    ids = {task.task_id for task in held.tasks}
    assert (len(kept.tasks), len(held.tasks)) == (36, 12)
    assert {task.task_id for task in held.searching} == ids
    for play in (kept.tasks, kept.searching):
        assert not ids & {task.task_id for task in play}
    assert hold_out(toy.material, 0.25, seed=1)[1].tasks == held.tasks
    assert hold_out(toy.material, 0.25, seed=2)[1].tasks != held.tasks


@pytest.mark.parametrize("share", [0.001, 0.999])
def test_neither_part_may_be_empty(toy: Toy, share: float) -> None:
    with pytest.raises(UserError, match=r"train\.validation_share: 0\.\d+ of 48 tasks are"):
        hold_out(toy.material, share, seed=1)


def test_every_held_out_task_is_told_its_message_alone(toy: Toy) -> None:
    _, held = hold_out(toy.material, 0.25, seed=1)
    course = validation(held, CONFIG, toy.tokenizer, seed=1, kind="latent").data
    samples = [course[i] for i in range(len(course))]
    own = [s for s in samples if s.kind is Kind.OWN]
    assert {s.message.task_id for s in own} == {task.task_id for task in held.tasks}
    assert {s.rate for s in samples} == {0.0}
    assert math.ceil(12 / 5.6) * 8 == len(samples)


def test_validation_is_logged_at_points_and_changes_nothing(toy: Toy, tmp_path: Path) -> None:
    often = train(toy, tmp_path / "often", CONFIG)
    never = train(toy, tmp_path / "never", replace(CONFIG, validate_every=1000))
    validated = [p["step"] for p in often.points if "validation_loss" in p]
    assert validated == [4, 8]
    assert [p["step"] for p in never.points if "validation_loss" in p] == [8]
    assert often.points[-1] == never.points[-1]
    assert often.points[-1]["validation_rate"] == 0
    assert often.final["validation_task_own"] == often.points[-1]["validation_task_own"]
    assert often.final["kept_step"] == 8
    header, *rows = often.csv().splitlines()
    assert "validation_js" in header
    assert [row.endswith(",,") for row in rows] == [True, False, True, False]
    weights, expected = (
        load_file(tmp_path / folder / "model.safetensors") for folder in ("often", "never")
    )
    assert all(torch.equal(weights[name], expected[name]) for name in expected)


def test_every_rank_runs_the_same_branches(toy: Toy) -> None:
    """A rank that has only samples of one kind still runs every branch, and learns the same."""
    config = replace(CONFIG, backend="zero3")
    kept, _ = hold_out(toy.material, 0.25, seed=1)
    held = validation(kept, config, toy.tokenizer, seed=1, kind="latent")
    assert isinstance(held.collate, EvenCollator)
    course = held.data
    first = [course[i] for i in range(8)]
    for kinds in ({Kind.OWN}, {Kind.NONE}):
        batch = held.collate([s for s in first if s.kind in kinds])["batch"]
        branches = batch.own, batch.plan, batch.mismatched, batch.other
        assert all(branch is not None for branch in branches)
        counts = [branch.samples for branch in branches]
        assert (counts[0] > 0) is (kinds == {Kind.OWN})
        assert (counts[3] > 0) is (kinds == {Kind.NONE})
        assert [branch.messages is None for branch in branches] == [False, True, False, False]
