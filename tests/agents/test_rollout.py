"""Scripted environments, a tiny random actor: what is written, counted, skipped, played again."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from transformers import PreTrainedTokenizerFast

from agents.scripted import register, scripted_task
from interlat.agents.policy import Policy
from interlat.agents.rollout import Episode, Rules, rollout, summarize
from interlat.config import UserError
from interlat.envs.pool import EnvironmentPool
from interlat.latents.sources import Delivery
from interlat.models.actor import Actor
from interlat.models.tiny import TinyShape, build_model, build_tokenizer
from interlat.tasks import Task

LIMIT = 5
RULES = Rules(step_limit=LIMIT, batch_size=3, seed=0, hidden_source="none", success_steps=(2, 5))
TASKS = [
    scripted_task("valid_seen/room 1", win_at=2),
    scripted_task("late", win_at=5),
    scripted_task("never"),
    scripted_task("broken", raise_at=3),
    scripted_task("locked", raise_at=0),
    scripted_task("over", done_at=4),
    scripted_task("ünï/../code.json" + "x" * 300, win_at=1),
]


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    return build_tokenizer(["you see go look take put in nothing happens apple 3 plate 3 egg lamp"])


@pytest.fixture
def policy(tokenizer: PreTrainedTokenizerFast) -> Policy:
    model = build_model(tokenizer, TinyShape(16, 1, 2, 24), seed=1)
    return Policy(Actor(model, tokenizer), max_new_tokens=3)


@pytest.fixture
def pool() -> Iterator[EnvironmentPool]:
    register()
    with EnvironmentPool("scripted", {"step_limit": LIMIT}, workers=0) as pool:
        yield pool


class Played:
    """What a rollout gave, and which tasks it asked a message for."""

    def __init__(
        self, policy: Policy, pool: EnvironmentPool, output: Path, tasks: list[Task], model: str
    ) -> None:
        self.asked: list[str] = []

        def deliver(task: Task) -> Delivery:
            self.asked.append(task.task_id)
            return Delivery()

        self.episodes = rollout(
            tasks, deliver, policy, pool, output, RULES, configuration={"model": model}
        )

    def __getitem__(self, task_id: str) -> Episode:
        return next(e for e in self.episodes if e.task_id.startswith(task_id))


def test_each_way_of_ending(policy: Policy, pool: EnvironmentPool, tmp_path: Path) -> None:
    played = Played(policy, pool, tmp_path, TASKS, "a")

    assert [e.task_id for e in played.episodes] == [task.task_id for task in TASKS]
    ends = [(e.terminate_reason, e.steps, e.success, e.reward) for e in played.episodes]
    assert ends == [
        ("success", 2, True, 1.0),
        ("success", 5, True, 1.0),
        ("step_limit", 5, False, 0.0),
        ("error", 2, False, 0.0),
        ("error", 0, False, 0.0),
        ("environment_done", 4, False, 0.0),
        ("success", 1, True, 1.0),
    ]
    assert played["broken"].error == "RuntimeError: the roof fell in"
    assert played["locked"].error == "RuntimeError: no such room"
    assert [e.finished for e in played.episodes] == [e.error is None for e in played.episodes]


def test_a_time_out_is_a_failure(policy: Policy, pool: EnvironmentPool, tmp_path: Path) -> None:
    """Guards against `done` being taken for `won`, as the published evaluator did."""
    never = Played(policy, pool, tmp_path, TASKS[2:3], "a")["never"]

    assert (never.success, never.terminate_reason, never.steps) == (False, "step_limit", LIMIT)


def test_episode_files_hold_meta_and_conversation(
    policy: Policy, pool: EnvironmentPool, tmp_path: Path
) -> None:
    played = Played(policy, pool, tmp_path, TASKS, "a")

    records = [
        json.loads(p.read_text()) for p in tmp_path.glob("[!.]*.json") if "meta" in p.read_text()
    ]
    assert {record["meta"]["task_id"] for record in records} == {task.task_id for task in TASKS}
    late = next(record for record in records if record["meta"]["task_id"] == "late")
    assert late == json.loads(json.dumps(played["late"].to_dict()))
    assert Episode.from_dict(late) == played["late"]
    said = [turn["from"] for turn in late["conversations"]]
    assert said == ["human", "gpt"] * 5 + ["human"]
    assert late["conversations"][0]["value"] == "you see apple 2 go"
    assert set(late["meta"]) >= {
        *("steps", "reward", "success", "finished", "terminate_reason", "error", "seed"),
        *("hidden_source", "timings"),
    }


def test_finished_episodes_are_skipped_and_failed_ones_played_again(
    policy: Policy, pool: EnvironmentPool, tmp_path: Path
) -> None:
    Played(policy, pool, tmp_path, TASKS[:5], "a")

    again = Played(policy, pool, tmp_path, TASKS, "a")

    assert again.asked == [task.task_id for task in TASKS[3:]]
    assert [e.success for e in again.episodes] == [True, True, False, False, False, False, True]


def test_a_resumed_rollout_equals_an_uninterrupted_one(
    policy: Policy, pool: EnvironmentPool, tmp_path: Path
) -> None:
    whole = Played(policy, pool, tmp_path / "whole", TASKS, "a")
    Played(policy, pool, tmp_path / "parts", TASKS[2:4], "a")
    parts = Played(policy, pool, tmp_path / "parts", TASKS, "a")

    for one, other in zip(whole.episodes, parts.episodes, strict=True):
        assert one.conversations == other.conversations
    summaries = [(tmp_path / name / "summary.json").read_text() for name in ("whole", "parts")]
    logs = [(tmp_path / name / "log.txt").read_text() for name in ("whole", "parts")]
    assert summaries[0] == summaries[1]
    assert logs[0] == logs[1]


def test_another_configuration_starts_afresh(
    policy: Policy, pool: EnvironmentPool, tmp_path: Path
) -> None:
    Played(policy, pool, tmp_path, TASKS[:3], "a")

    again = Played(policy, pool, tmp_path, TASKS[:2], "b")

    assert again.asked == [task.task_id for task in TASKS[:2]]
    assert not (tmp_path / "never.json").exists()


def test_a_folder_of_other_files_is_refused(
    policy: Policy, pool: EnvironmentPool, tmp_path: Path
) -> None:
    (tmp_path / "mine.json").write_text("{}")

    with pytest.raises(UserError, match="no rollout wrote"):
        Played(policy, pool, tmp_path, TASKS, "a")
    assert (tmp_path / "mine.json").read_text() == "{}"


def test_log_names_every_episode_and_the_figures(
    policy: Policy, pool: EnvironmentPool, tmp_path: Path
) -> None:
    Played(policy, pool, tmp_path, TASKS, "a")

    log = (tmp_path / "log.txt").read_text().splitlines()
    assert log[0] == "valid_seen/room 1: success after 2 steps"
    assert log[4] == "locked: error after 0 steps (RuntimeError: no such room)"
    assert log[-3:] == [
        "Episodes: 7, with an error: 2",
        "Success rate: 0.4286",
        "Average reward: 0.4286",
    ]


def test_summary_counts_success_within_steps(
    policy: Policy, pool: EnvironmentPool, tmp_path: Path
) -> None:
    summary = summarize(Played(policy, pool, tmp_path, TASKS, "a").episodes, (2, 5))

    assert summary["n"] == 7
    assert summary["errors"] == 2
    assert summary["success_2"] == pytest.approx(2 / 7)
    assert summary["success_5"] == summary["success"] == pytest.approx(3 / 7)
    assert summary["success_5_low"] == pytest.approx(0.1582, abs=1e-4)
    assert summary["success_5_high"] == pytest.approx(0.7495, abs=1e-4)
    assert summary["steps"] == pytest.approx((2 + 5 + 5 + 2 + 0 + 4 + 1) / 7)
    assert summary["steps_won"] == pytest.approx((2 + 5 + 1) / 3)
    assert summary["invalid_action_rate"] == pytest.approx((1 + 2 + 2 + 1 + 0 + 2 + 0) / 19)


def test_summary_without_a_win_has_no_steps_won(
    policy: Policy, pool: EnvironmentPool, tmp_path: Path
) -> None:
    summary = summarize(Played(policy, pool, tmp_path, TASKS[2:3], "a").episodes, (5,))

    assert summary["steps_won"] is None
    assert (summary["success_5"], summary["steps_low"], summary["steps_high"]) == (0, 5, 5)


def test_invalid_actions_are_not_guessed_where_the_environment_is_silent(
    policy: Policy, pool: EnvironmentPool, tmp_path: Path
) -> None:
    tasks = [*TASKS[:2], scripted_task("silent", silent=1)]

    played = Played(policy, pool, tmp_path, tasks, "a")

    assert [episode.invalid_actions for episode in played.episodes] == [1, 2, None]
    assert summarize(played.episodes)["invalid_action_rate"] is None
