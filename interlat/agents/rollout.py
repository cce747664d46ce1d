"""Episodes in lockstep: a batch of environments and one policy take turns until all have ended.

Every episode is a file, written whole when it ends. Started again, a rollout skips what is
finished, if it was played under the same configuration, and plays the rest. What goes wrong in an
environment is a failed episode with its error; it is counted, and played again next time.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from interlat.agents.policy import Policy, Session
from interlat.config import UserError
from interlat.envs.pool import EnvironmentFailure, EnvironmentPool, Started, Stepped
from interlat.files import atomic_write_json, atomic_write_text, read_json, safe_name
from interlat.latents.chance import task_generator
from interlat.latents.sources import Delivery
from interlat.stats import mean_interval, wilson
from interlat.tasks import Task, Turn

CONFIGURATION, SUMMARY, LOG = ".configuration.json", "summary.json", "log.txt"

Advance = Callable[[int, str], None]
"""Told how many more episodes have ended, and the success so far."""


@dataclass(frozen=True)
class Rules:
    """How episodes are played, and what is noted about them."""

    step_limit: int
    batch_size: int
    seed: int
    hidden_source: str
    success_steps: tuple[int, ...] = ()
    """Steps within which success is reported."""


@dataclass(frozen=True)
class Episode:
    """One episode as it ended; ``to_dict`` is what its file holds."""

    task_id: str
    split: str
    steps: int
    reward: float
    """Sum over the steps."""
    success: bool
    """The environment said that the task is solved."""
    finished: bool
    """It ended as episodes end: not by a failure of the environment."""
    terminate_reason: str
    """success | step_limit | environment_done | context_limit | error"""
    error: str | None
    seed: int
    hidden_source: str
    invalid_actions: int | None
    """Actions that were not possible; None where an environment's ``info["valid"]`` is not told."""
    timings: Mapping[str, float]
    """Seconds of its whole batch while it ran, in the policy and in the environments."""
    conversations: tuple[Turn, ...]

    def to_dict(self) -> dict[str, Any]:
        """{"meta": {...}, "conversations": [...]}."""
        meta = asdict(self)
        return {"meta": meta, "conversations": list(meta.pop("conversations"))}

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Self:
        """The episode that ``to_dict`` wrote. Raises TypeError or KeyError for anything else."""
        return cls(**record["meta"], conversations=tuple(record["conversations"]))

    def success_within(self, steps: int) -> bool:
        """Solved in at most so many steps."""
        return self.success and self.steps <= steps


def rollout(
    tasks: Sequence[Task],
    deliver: Callable[[Task], Delivery],
    policy: Policy,
    pool: EnvironmentPool,
    output: Path,
    rules: Rules,
    *,
    configuration: Mapping[str, Any],
    advance: Advance = lambda done, note: None,
) -> list[Episode]:
    """Play every task once; returns the episodes in the order of the tasks.

    deliver: the message that a task's episode gets. output: folder of the episodes, of
    ``summary.json`` and of ``log.txt``. configuration: everything that an episode depends on, as
    JSON; episodes in the output that were played under another one are dropped.
    Raises UserError when the output holds something else.
    """
    ended = _resume(output, tasks, {**configuration, **asdict(rules)})
    waiting = [task for task in tasks if task.task_id not in ended]
    advance(len(ended), _note(ended))
    for start in range(0, len(waiting), rules.batch_size):
        batch = waiting[start : start + rules.batch_size]
        for episode in _play(batch, deliver, policy, pool, rules):
            atomic_write_json(_file(output, episode.task_id), episode.to_dict())
            ended[episode.task_id] = episode
            advance(1, _note(ended))
    episodes = [ended[task.task_id] for task in tasks]
    summary = summarize(episodes, rules.success_steps)
    atomic_write_json(output / SUMMARY, summary)
    atomic_write_text(output / LOG, _log(episodes, summary))
    return episodes


def summarize(
    episodes: Sequence[Episode], success_steps: Sequence[int] = ()
) -> dict[str, float | None]:
    """Counts, success with Wilson intervals, steps with bootstrap intervals; all 95 %.

    ``steps`` is over all episodes, ``steps_won`` over the solved ones (None without any);
    ``invalid_action_rate`` is None where an environment does not tell.
    """
    count = len(episodes)
    won = [episode.steps for episode in episodes if episode.success]
    wins = {
        f"success_{limit}": sum(episode.success_within(limit) for episode in episodes)
        for limit in success_steps
    }
    summary: dict[str, float | None] = {
        "n": count,
        "errors": sum(episode.error is not None for episode in episodes),
        "success": len(won) / count,
    }
    for name, successes in wins.items():
        low, high = wilson(successes, count)
        summary |= {name: successes / count, f"{name}_low": low, f"{name}_high": high}
    steps = [episode.steps for episode in episodes]
    invalid = [e.invalid_actions for e in episodes if e.invalid_actions is not None]
    low, high = mean_interval(steps)
    return summary | {
        "reward": sum(episode.reward for episode in episodes) / count,
        "steps": sum(steps) / count,
        "steps_low": low,
        "steps_high": high,
        "steps_won": sum(won) / len(won) if won else None,
        "invalid_action_rate": sum(invalid) / max(1, sum(steps)) if len(invalid) == count else None,
    }


@dataclass(eq=False)
class _Running:
    """An episode that is being played."""

    task: Task
    slot: int
    session: Session
    turn: str = ""
    steps: int = 0
    reward: float = 0.0
    invalid: int | None = 0
    clock: dict[str, float] = field(default_factory=lambda: {"policy": 0.0, "environment": 0.0})

    def take(self, stepped: Stepped, step_limit: int) -> str | None:
        """Note what a reply brought; returns why the episode ends, if it does."""
        result = stepped.result
        self.turn = stepped.turn
        self.steps += 1
        self.reward += result.reward
        if "valid" not in result.info:
            self.invalid = None
        elif self.invalid is not None:
            self.invalid += not result.info["valid"]
        if result.won:
            return "success"
        if self.steps >= step_limit:
            return "step_limit"
        return "environment_done" if result.done else None

    def end(self, reason: str, rules: Rules, error: str | None = None) -> Episode:
        """The finished episode; its last observation closes the conversation."""
        conversation = self.session.conversation
        answered = bool(conversation) and conversation[-1]["from"] == "gpt"
        last: list[Turn] = [{"from": "human", "value": self.turn}] if answered else []
        return Episode(
            task_id=self.task.task_id,
            split=self.task.split,
            steps=self.steps,
            reward=self.reward,
            success=reason == "success",
            finished=error is None,
            terminate_reason=reason,
            error=error,
            seed=rules.seed,
            hidden_source=rules.hidden_source,
            invalid_actions=self.invalid,
            timings={part: round(seconds, 4) for part, seconds in self.clock.items()},
            conversations=(*conversation, *([] if error else last)),
        )


def _play(
    tasks: Sequence[Task],
    deliver: Callable[[Task], Delivery],
    policy: Policy,
    pool: EnvironmentPool,
    rules: Rules,
) -> Iterator[Episode]:
    """One batch, from the first observation to the last episode's end."""
    running = [
        _Running(
            task, slot, Session(deliver(task), task_generator(rules.seed, task.task_id, "act"))
        )
        for slot, task in enumerate(tasks)
    ]
    with _timed(running, "environment"):
        starts = pool.reset_many(tasks)
    for episode, start in zip(list(running), starts, strict=True):
        if isinstance(start, Started):
            episode.turn = start.turn
        else:
            running.remove(episode)
            yield episode.end("error", rules, start.error)
    while running:
        with _timed(running, "policy"):
            replies = policy.act([e.session for e in running], [e.turn for e in running])
        for episode, reply in zip(list(running), replies, strict=True):
            if reply.finish_reason == "context":
                running.remove(episode)
                yield episode.end("context_limit", rules)
        texts = {e.slot: e.session.conversation[-1]["value"] for e in running}
        with _timed(running, "environment"):
            outcomes = pool.step_many(texts)
        for episode in list(running):
            outcome = outcomes[episode.slot]
            if isinstance(outcome, EnvironmentFailure):
                running.remove(episode)
                yield episode.end("error", rules, outcome.error)
            elif reason := episode.take(outcome, rules.step_limit):
                running.remove(episode)
                yield episode.end(reason, rules)


@contextmanager
def _timed(running: Sequence[_Running], part: str) -> Iterator[None]:
    start = time.monotonic()
    yield
    seconds = time.monotonic() - start
    for episode in running:
        episode.clock[part] += seconds


def _resume(
    output: Path, tasks: Sequence[Task], configuration: Mapping[str, Any]
) -> dict[str, Episode]:
    """The finished episodes of these tasks, if this configuration made them; else a clean start."""
    marker, wanted = output / CONFIGURATION, json.loads(json.dumps(configuration))
    found = [path for path in output.glob("*.json") if path != marker]
    if found and not marker.exists():
        raise UserError(f"{output} holds JSON files that no rollout wrote; choose another output")
    if not marker.exists() or read_json(marker) != wanted:
        for stale in found:
            stale.unlink()
        atomic_write_json(marker, wanted)
    ended = {}
    for task in tasks:
        path = _file(output, task.task_id)
        if path.exists():
            episode = Episode.from_dict(read_json(path))
            if episode.finished:
                ended[task.task_id] = episode
    return ended


def _file(output: Path, task_id: str) -> Path:
    return output / f"{safe_name(task_id)}.json"


def _note(ended: Mapping[str, Episode]) -> str:
    wins = sum(episode.success for episode in ended.values())
    return f"success {wins / len(ended):.0%}" if ended else ""


def _log(episodes: Sequence[Episode], summary: Mapping[str, float | None]) -> str:
    """One line an episode, then the figures that people look for."""
    lines = [
        f"{episode.task_id}: {episode.terminate_reason} after {episode.steps} steps"
        + (f" ({episode.error})" if episode.error else "")
        for episode in episodes
    ]
    lines += [
        f"Episodes: {summary['n']}, with an error: {summary['errors']}",
        f"Success rate: {summary['success']:.4f}",
        f"Average reward: {summary['reward']:.4f}",
    ]
    return "\n".join(lines) + "\n"
