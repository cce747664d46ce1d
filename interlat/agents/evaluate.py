"""One condition judged: every task of every split played once, as metrics and as a table.

The table has a row an episode and no timings: paired tests and the report are made from it, and the
same commit, seed and machine write it byte for byte again.
"""

import csv
import io
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

import interlat
from interlat.agents.policy import Policy
from interlat.agents.rollout import Advance, Episode, Rules, rollout, summarize
from interlat.agents.trial import Split, Trial
from interlat.config import Params
from interlat.envs import environment_config
from interlat.envs.pool import EnvironmentPool
from interlat.files import sha256_file
from interlat.latents.sources import Delivery, deliver, message_key
from interlat.latents.store import LatentStore
from interlat.models.actor import Actor
from interlat.models.load import tokenizer_digest, weights_digest
from interlat.tasks import Task

COLUMNS = ("task_id", "split", "condition", "won", "steps", "reward", "seed")


class Evaluation(NamedTuple):
    """The episodes of one condition, by split."""

    condition: str
    episodes: Mapping[str, list[Episode]]
    success_steps: tuple[int, ...]
    stores: Mapping[str, LatentStore]
    """The messages that were read, by split."""

    def metrics(self) -> dict[str, dict[str, float | None]]:
        """Split -> ``summarize``."""
        return {
            split: summarize(episodes, self.success_steps)
            for split, episodes in self.episodes.items()
        }

    def flat_metrics(self) -> dict[str, float]:
        """The same as ``split.name`` -> number, without what is not a number."""
        return {
            f"{split}.{name}": value
            for split, summary in self.metrics().items()
            for name, value in summary.items()
            if value is not None
        }

    def csv(self) -> str:
        """COLUMNS, an episode a line."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(COLUMNS)
        for split, episodes in self.episodes.items():
            for e in episodes:
                row = (e.task_id, split, self.condition, int(e.success), e.steps, e.reward, e.seed)
                writer.writerow(row)
        return text.getvalue()


def evaluate(
    actor: Actor,
    trial: Trial,
    splits: Mapping[str, Split],
    params: Params,
    output: Path,
    *,
    advance: Advance = lambda done, note: None,
) -> Evaluation:
    """Play a trial; the episodes of a split go to output/<split>/.

    Raises UserError when the actor cannot be told what the trial says, and when a store lacks a
    task's message or holds messages of another width or sender.
    """
    config, any_sender = params.evaluate, params.actor.any_sender
    actor.record.check_source(trial.hidden.source)
    stores = {
        name: open_messages(split, trial, actor, any_sender=any_sender)
        for name, split in splits.items()
        if split.store
    }
    policy = Policy(actor, max_new_tokens=config.max_new_tokens, temperature=config.temperature)
    rules = Rules(
        step_limit=params.task.step_limit,
        batch_size=config.batch_size,
        seed=config.seed,
        hidden_source=trial.hidden.source,
        success_steps=params.task.success_steps,
    )
    environment = environment_config(params.task)
    shared = {
        "version": interlat.__version__,
        "trial": asdict(trial),
        "actor": [*_digests(actor), params.model.dtype, asdict(actor.record)],
        "replies": [config.max_new_tokens, config.temperature],
        "environment": [params.task.name, {key: str(v) for key, v in environment.items()}],
    }
    episodes = {}
    with EnvironmentPool(params.task.name, environment, config.env_workers) as pool:
        for name, split in splits.items():
            store = stores.get(name)
            own = {
                "tasks": sha256_file(split.tasks_file),
                "messages": store.digest if store else None,
            }
            episodes[name] = rollout(
                split.tasks,
                _courier(trial, store, config.seed, actor.record.max_message_length),
                policy,
                pool,
                output / name,
                rules,
                configuration=shared | own,
                advance=advance,
            )
    return Evaluation(trial.condition, episodes, params.task.success_steps, stores)


def open_messages(
    split: Split, trial: Trial, actor: Actor, *, any_sender: bool = False
) -> LatentStore:
    """The split's store, found to hold a message for every task that the actor can read.

    any_sender: also one of another sender than the actor was trained with.
    """
    assert split.store is not None
    store = LatentStore(split.store, key_field=_key_field(trial))
    if trial.hidden.source != "text":
        store.require_width(actor.sender_width)
        actor.record.check_sender(store, any_sender=any_sender)
    for task in split.tasks:
        store.index(message_key(task, store, trial.hidden))
    return store


def _digests(actor: Actor) -> tuple[str, str, str]:
    """Of the model, the tokenizer and the adapter."""
    return (
        weights_digest(actor.model),
        tokenizer_digest(actor.tokenizer),
        actor.adapter.digest if actor.adapter else "",
    )


def _key_field(trial: Trial) -> str | None:
    """None, for the first that there is, where the user has not asked for another."""
    wanted = trial.hidden.key_field
    return None if wanted == "task_id" else wanted


def _courier(
    trial: Trial, store: LatentStore | None, seed: int, most_rows: int | None
) -> Callable[[Task], Delivery]:
    """What brings each task its delivery, with as many rows as the actor reads at most."""

    def bring(task: Task) -> Delivery:
        key = task.task_id if store is None else message_key(task, store, trial.hidden)
        delivery = deliver(trial.hidden.source, key, store, trial.hidden, seed)
        if delivery.hidden_LD is None:
            return delivery
        return delivery._replace(hidden_LD=delivery.hidden_LD[:most_rows])

    return bring
