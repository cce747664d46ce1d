"""Conditions and files, told apart before anything heavy is imported."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from agents.scripted import scripted_task
from interlat.agents.trial import Trial, find_splits
from interlat.config import HiddenConfig, Params, SenderConfig, UserError
from interlat.tasks import write_tasks

SHAPED = Params(hidden=HiddenConfig(source="noised", noise_std=2.0, first_k=3))


def test_without_a_condition_hidden_says_what_reaches_the_actor() -> None:
    trial = Trial.of(SHAPED)

    assert (trial.condition, trial.knowledge) == ("noised", "layout")
    assert trial.hidden == SHAPED.hidden


def test_a_control_ignores_the_source_and_the_shaping_of_hidden() -> None:
    trial = Trial.of(SHAPED, "white_noise")

    assert trial.condition == trial.hidden.source == "white_noise"
    assert trial.hidden.first_k is None
    assert Trial.of(SHAPED, "noised").hidden.noise_std == 2.0


def test_uninformed_is_the_own_message_of_a_sender_without_knowledge() -> None:
    trial = Trial.of(Params(), "uninformed")

    assert (trial.condition, trial.hidden.source, trial.knowledge) == ("uninformed", "data", "none")


def test_every_other_condition_keeps_the_senders_knowledge() -> None:
    params = replace(Params(), sender=SenderConfig(knowledge="none"))

    assert {Trial.of(params, c).knowledge for c in params.ablate.conditions} == {"none"}


def test_splits_are_found_under_the_senders_knowledge(tmp_path: Path) -> None:
    tasks, latents = tmp_path / "tasks", tmp_path / "latents"
    write_tasks(tasks / "none" / "valid_seen.jsonl", [scripted_task("a")])
    (latents / "none" / "valid_seen").mkdir(parents=True)

    split = find_splits(Trial.of(Params(), "uninformed"), ["valid_seen"], tasks, latents)[
        "valid_seen"
    ]

    assert [task.task_id for task in split.tasks] == ["a"]
    assert split.files == [tasks / "none" / "valid_seen.jsonl", latents / "none" / "valid_seen"]


def test_no_store_is_needed_where_nothing_is_sent(tmp_path: Path) -> None:
    write_tasks(tmp_path / "layout" / "valid_seen.jsonl", [scripted_task("a")])

    split = find_splits(Trial.of(Params(), "none"), ["valid_seen"], tmp_path, tmp_path)[
        "valid_seen"
    ]

    assert split.store is None


def test_missing_messages_are_told_with_the_command_that_makes_them(tmp_path: Path) -> None:
    write_tasks(tmp_path / "layout" / "valid_seen.jsonl", [scripted_task("a")])

    with pytest.raises(UserError, match=r"collect\.py --split valid_seen --knowledge layout"):
        find_splits(Trial.of(Params(), "text"), ["valid_seen"], tmp_path, tmp_path / "latents")


def test_an_empty_split_is_refused(tmp_path: Path) -> None:
    (tmp_path / "layout").mkdir()
    (tmp_path / "layout" / "valid_seen.jsonl").write_text("")

    with pytest.raises(UserError, match=r"valid_seen\.jsonl: the split is empty"):
        find_splits(Trial.of(Params(), "none"), ["valid_seen"], tmp_path, tmp_path)


def test_checking_needs_no_torch() -> None:
    code = "import sys, interlat.agents.trial; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
