"""The task record, the same everywhere, and its JSONL files.

{"task_id": "valid_seen-0007", "env": "alfworld", "split": "valid_seen",
 "instruction": "put a clean plate in fridge.", "knowledge": "plate 1 is in cabinet 5 ...",
 "plan": "find plate 1 ...", "conversations": [{"from": "human", "value": "..."}, ...],
 "env_args": {"game": "data/games/..."}}
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from interlat.config import UserError
from interlat.files import atomic_write_text

Turn = TypedDict("Turn", {"from": str, "value": str, "loss": NotRequired[bool]})


@dataclass(frozen=True)
class Task:
    """One thing to do.

    knowledge: what the sender knows beyond the instruction; plan: the expert's plan as text;
    conversations: the expert's play, human and gpt in turn; env_args: what the environment needs.
    """

    task_id: str
    env: str
    split: str
    instruction: str
    knowledge: str | None = None
    plan: str | None = None
    conversations: tuple[Turn, ...] = ()
    env_args: Mapping[str, Any] = field(default_factory=dict)


def write_tasks(path: Path, tasks: Iterable[Task]) -> None:
    """Write one task a line, all or nothing."""
    lines = (json.dumps(asdict(task), ensure_ascii=False) + "\n" for task in tasks)
    atomic_write_text(path, "".join(lines))


def read_tasks(path: Path, limit: int | None = None) -> list[Task]:
    """The tasks in a JSONL file, the first `limit` of them.

    Raises UserError naming file and line when the file is missing, empty or malformed, or when a
    task_id comes twice.
    """
    tasks: dict[str, Task] = {}
    try:
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, start=1):
                if limit is not None and len(tasks) >= limit:
                    break
                task = _parse(line, f"{path}, line {number}")
                if task.task_id in tasks:
                    raise UserError(f"{path}, line {number}: task_id {task.task_id!r} comes twice")
                tasks[task.task_id] = task
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; stages/prepare.py writes it") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 text: {error}") from None
    if not tasks:
        raise UserError(f"{path}: the split is empty; a task a line is expected")
    return list(tasks.values())


def tasks_digest(tasks: Sequence[Task]) -> str:
    """SHA-256 over what training reads of tasks: ids, knowledge, plans and conversations."""
    digest = hashlib.sha256()
    for task in tasks:
        said = [task.task_id, task.instruction, task.knowledge, task.plan, task.conversations]
        digest.update(json.dumps(said).encode())
    return digest.hexdigest()


def _parse(line: str, place: str) -> Task:
    try:
        record = json.loads(line)
    except json.JSONDecodeError as error:
        raise UserError(f"{place}: not valid JSON: {error}") from None
    if not isinstance(record, dict):
        raise UserError(f"{place}: expected a task as a JSON object")
    known = [item.name for item in fields(Task)]
    for key in record:
        if key not in known:
            raise UserError(f"{place}: unknown field {key!r}; allowed: {', '.join(known)}")
    for key in known[:4]:
        if not isinstance(record.get(key), str) or not record[key]:
            raise UserError(f"{place}: field {key!r} must be text that is not empty")
    for key in ("knowledge", "plan"):
        if not isinstance(record.get(key), str | None):
            raise UserError(f"{place}: field {key!r} must be text or null")
    if not isinstance(record.get("env_args", {}), dict):
        raise UserError(f"{place}: field 'env_args' must be an object")
    turns = record.get("conversations", [])
    if not isinstance(turns, list) or not all(is_turn(turn) for turn in turns):
        raise UserError(
            f"{place}: field 'conversations' must be a list of "
            '{"from": "human" or "gpt", "value": text, "loss"?: true or false}'
        )
    return Task(**{**record, "conversations": tuple(turns)})


def is_turn(turn: Any) -> bool:
    """Whether a value is a turn as ``conversations`` holds them."""
    return (
        isinstance(turn, dict)
        and turn.keys() <= {"from", "value", "loss"}
        and turn.get("from") in ("human", "gpt")
        and isinstance(turn.get("value"), str)
        and isinstance(turn.get("loss", True), bool)
    )
