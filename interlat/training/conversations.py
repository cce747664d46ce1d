"""Play to train on, from a file of ours or from what users have.

Ours is the JSONL of tasks.py. Theirs is whatever records.py reads, a record a task:

[{"id": "train_7", "conversations": [{"from": "human", "value": "Interact with a household ..."},
  {"from": "gpt", "value": "OK"}, {"from": "human", "value": "You are in the middle of ..."},
  {"from": "gpt", "value": "Thought: ...\\nAction: go to fridge 1"}, ...]}, ...]
"""

from collections.abc import Sequence
from pathlib import Path

from interlat.records import Records, read_records
from interlat.tasks import Task, Turn, is_turn, read_tasks

ID, CONVERSATIONS = "id", "conversations"
ACKNOWLEDGEMENT = "ok"
"""What the second turn of published data says to the instruction in the first."""


def read_play(source: str) -> list[Task]:
    """The tasks of a file, folder or hub dataset.

    In records the first turn becomes instruction and task in one, as an environment says them,
    where the data keep them apart with an "OK" between.
    Raises UserError, naming source and record, for what is missing or malformed.
    """
    records = read_records(source, split="train", fields=frozenset({ID, CONVERSATIONS}))
    if "task_id" in records.fields:
        return read_tasks(Path(source))
    tasks: dict[str, Task] = {}
    for number in range(1, len(records.rows) + 1):
        task = _task(records, number)
        if task.task_id in tasks:
            raise records.error(number, f"id {task.task_id!r} comes twice")
        tasks[task.task_id] = task
    return list(tasks.values())


def _task(records: Records, number: int) -> Task:
    record = records.rows[number - 1]
    for name in (ID, CONVERSATIONS):
        if record.get(name) is None:
            raise records.lacks(number, f"it has no field {name!r}")
    turns = record[CONVERSATIONS]
    if not isinstance(turns, list) or not turns or not all(map(is_turn, turns)):
        raise records.error(
            number,
            f"field {CONVERSATIONS!r} must be a list of "
            '{"from": "human" or "gpt", "value": text, "loss"?: true or false}',
        )
    turns = _folded(turns)
    return Task(str(record[ID]), "", "train", turns[0]["value"], conversations=tuple(turns))


def _folded(turns: Sequence[Turn]) -> list[Turn]:
    """Instruction, acknowledgement and task as one turn; other conversations as they are."""
    if len(turns) < 4 or turns[1]["value"].strip().lower() != ACKNOWLEDGEMENT:
        return list(turns)
    first = Turn({"from": "human", "value": f"{turns[0]['value']}\n{turns[2]['value']}"})
    return [first, *turns[3:]]
