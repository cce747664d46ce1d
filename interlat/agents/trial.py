"""What an evaluation is about: a condition, and the files of each of its splits.

Knows no torch, so that a user's mistake is told before anything heavy is imported.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from interlat.config import Condition, HiddenConfig, Params, UserError
from interlat.tasks import Task, read_tasks


@dataclass(frozen=True)
class Trial:
    """Which message reaches the actor, and from a sender that knows what."""

    condition: str
    """Its name in the tables."""
    knowledge: str
    hidden: HiddenConfig

    @classmethod
    def of(cls, params: Params, condition: Condition | None = None) -> Self:
        """The trial that ``hidden`` describes, or one of the fixed list of controls.

        A control depends on nothing under ``hidden`` but the noise and how messages are looked up.
        """
        hidden, knowledge = params.hidden, params.sender.knowledge
        if condition is None:
            return cls(hidden.source, knowledge, hidden)
        plain = HiddenConfig(
            source="data" if condition == "uninformed" else condition,
            noise_std=hidden.noise_std,
            key_field=hidden.key_field,
            lookup_field=hidden.lookup_field,
        )
        return cls(condition, "none" if condition == "uninformed" else knowledge, plain)

    @property
    def needs_messages(self) -> bool:
        """Whether the actor is told anything that a sender made."""
        return self.hidden.source != "none"


@dataclass(frozen=True)
class Split:
    """The tasks of a split, and the store of the messages about them where one is needed."""

    tasks_file: Path
    tasks: Sequence[Task]
    store: Path | None

    @property
    def files(self) -> list[Path]:
        """What the split is read from."""
        return [self.tasks_file, *([self.store] if self.store else [])]


def find_splits(
    trial: Trial, names: Sequence[str], tasks: Path, latents: Path
) -> Mapping[str, Split]:
    """The named splits under tasks/<knowledge>/ and latents/<knowledge>/.

    Raises UserError for a split without tasks, or without the messages that the trial needs.
    """
    splits = {}
    for name in names:
        file = tasks / trial.knowledge / f"{name}.jsonl"
        listed = read_tasks(file)
        store = latents / trial.knowledge / name if trial.needs_messages else None
        if store is not None and not store.exists():
            raise UserError(
                f"{store}: no such latent store; stages/collect.py --split {name} "
                f"--knowledge {trial.knowledge} writes it"
            )
        splits[name] = Split(file, listed, store)
    return splits
