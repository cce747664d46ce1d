"""What to collect messages about: tasks of the pipeline's splits, or from users' own records.

{"id": "sample-0001", "task": "Clean the kettle, then put it back on the stove."}
{"id": "sample-0002", "conversations": [{"from": "human", "value": "..."}, ...]}
{"problem": "Factor $x^2-1$.", "level": "Level 1", "type": "Algebra", "solution": "..."}

collect.task_field, collect.id_field and collect.conversations_index say what in a record is the
task and its id. Tasks of our own form (tasks.py) are recognised by their fields.
"""

import json
import re
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from interlat.config import CollectConfig, Params, UserError
from interlat.records import Record, Records, named, read_records
from interlat.tasks import Task, read_tasks

MATH_DATASET = "EleutherAI/hendrycks_math"
"""Where the MATH problems are: a configuration a subject, splits train and test."""
ALFWORLD_TASK_TURN = 2
"""The turn of a published ALFWorld conversation that is its task, after instruction and OK."""
_OWN_FIELDS = {"task_id", "env", "split"}


class Collection(NamedTuple):
    """Tasks to collect messages about, and where these go."""

    name: str
    tasks: list[Task]
    files: list[Path]
    """What the tasks were read from; empty for the hub."""
    output: Path
    metrics: Path | None
    """Where the figures go; None but for the pipeline's own splits."""

    @classmethod
    def of(
        cls,
        params: Params,
        *,
        split: str,
        task: str | None = None,
        dataset_path: str | None = None,
        dataset_name: str | None = None,
        output_dir: Path | None = None,
    ) -> "Collection":
        """The collection that a command line names; without anything but a split, the pipeline's.

        task: "alfworld" or "math"; math without a dataset is MATH on the hub.
        Raises UserError for tasks that cannot be read.
        """
        knowledge = params.sender.knowledge
        if task == "math" and dataset_path is None:
            dataset_path = MATH_DATASET
        if dataset_path is None:
            file = Path("data/tasks", knowledge, f"{split}.jsonl")
            name = task or knowledge
            tasks = read_tasks(file, params.collect.tasks if split == "train" else None)
        else:
            file = Path(dataset_path)
            name = task or file.stem
            env = task or params.task.name
            tasks = read_inputs(
                dataset_path, params.collect, env=env, split=split, name=dataset_name
            )
        of_pipeline = not (task or dataset_path or output_dir)
        kind = "compressed" if params.collect.compressed else None
        return cls(
            name=f"{kind} {name} {split}" if kind else f"{name} {split}",
            tasks=tasks,
            files=[file] if file.exists() else [],
            output=output_dir or Path("data", kind or "latents", name, split),
            metrics=Path("metrics", kind or "collect", f"{name}-{split}.json")
            if of_pipeline
            else None,
        )


def read_inputs(
    source: str, config: CollectConfig, *, env: str, split: str, name: str | None = None
) -> list[Task]:
    """The tasks in a file, a folder or a hub dataset, the first collect.tasks of them.

    source, split, name: as ``records.read_records`` takes them. env: what the tasks are of; "math"
    keeps collect.subjects, takes type and level along, and numbers tasks without an id from MATH_1.
    Raises UserError, naming source, record and field, for whatever cannot be a task.
    """
    if _is_ours(Path(source)):
        return read_tasks(Path(source), config.tasks)
    fields = {config.task_field, config.id_field, "task_id", "conversations", "knowledge"}
    fields |= {"type", "level"} if env == "math" else set()
    records = read_records(
        source, split=split, name=name, subjects=config.subjects, fields=frozenset(fields)
    )
    if env == "math" and config.subjects:
        records = _of_subjects(records, config.subjects)
    tasks: dict[str, Task] = {}
    name_id = _naming(records, config, env)
    for number, row in enumerate(islice(records.rows, config.tasks), start=1):
        task_id = name_id(number, row)
        if task_id in tasks:
            what = f"id {task_id!r} comes twice; choose another field with --id_field"
            raise records.error(number, what)
        knowledge = row.get("knowledge")
        tasks[task_id] = Task(
            task_id=task_id,
            env=env,
            split=split,
            instruction=_instruction(records, number, row, config, env),
            knowledge=knowledge if isinstance(knowledge, str) else None,
            env_args=_kind_and_level(row) if env == "math" else {},
        )
    return list(tasks.values())


def _is_ours(path: Path) -> bool:
    """Whether the first line of a file is a task of our own form."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        line = file.readline()
    try:
        first = json.loads(line)
    except ValueError:
        return False
    return isinstance(first, dict) and first.keys() >= _OWN_FIELDS


def _of_subjects(records: Records, subjects: Sequence[str]) -> Records:
    for number, row in enumerate(records.rows, start=1):
        if not isinstance(row.get("type"), str):
            raise records.lacks(number, "has no text in 'type' to choose subjects by")
    rows = [row for row in records.rows if _subject(row["type"]) in subjects]
    if not rows:
        there = ", ".join(sorted({row["type"] for row in records.rows}))
        raise UserError(f"{records.source}: nothing of {', '.join(subjects)} is in it, but {there}")
    return records._replace(rows=rows)


def _subject(title: str) -> str:
    """`Counting & Probability` as `counting_and_probability`."""
    return re.sub(r"\W+", "_", title.lower().replace("&", "and"))


def _naming(records: Records, config: CollectConfig, env: str) -> Callable[[int, Record], str]:
    """How a record gets its id: from its field, else from its place."""
    fields = [field for field in (config.id_field, "task_id") if field in records.fields]
    if not fields and config.id_field != CollectConfig.id_field:
        raise UserError(
            f"{records.source}: no record has the field {config.id_field!r} that --id_field "
            f"names; the fields there: {', '.join(records.fields)}"
        )

    def name_id(number: int, row: Record) -> str:
        value = next((row[field] for field in fields if row.get(field) is not None), None)
        if value is None:
            return f"MATH_{number}" if env == "math" else str(number - 1)
        if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
            raise records.error(
                number, f"its id must be an integer, or text that is not empty: {named(value)}"
            )
        return str(value)

    return name_id


def _instruction(
    records: Records, number: int, row: Record, config: CollectConfig, env: str
) -> str:
    """The task's text, from the field or the conversation."""
    field, turn = config.task_field, config.conversations_index
    if turn is None and env == "alfworld" and field not in row and "conversations" in row:
        turn = ALFWORLD_TASK_TURN
    if turn is not None:
        field = f"conversations[{turn}].value"
        text = _said(records, number, row, turn)
    elif not field:
        raise UserError("--task_field is empty: say which turn is the task, --conversations_index")
    elif field not in row:
        raise records.lacks(number, f"has no field {field!r}, choose with --task_field")
    else:
        text = row[field]
    if not isinstance(text, str) or not text.strip():
        what = f"{field} must be text that is not empty, found {named(text)}"
        raise records.error(number, what)
    return text


def _said(records: Records, number: int, row: Record, index: int) -> Any:
    """What a turn of the record's conversation says."""
    turns = row.get("conversations")
    if not isinstance(turns, list):
        raise records.lacks(number, "has no list 'conversations'")
    if index >= len(turns):
        raise records.error(
            number,
            f"conversations has {len(turns)} entries, so --conversations_index must be less, "
            f"found {index}",
        )
    turn = turns[index]
    if not isinstance(turn, dict) or "value" not in turn:
        raise records.error(number, f"conversations[{index}] has no 'value'")
    return turn["value"]


def _kind_and_level(row: Record) -> dict[str, str]:
    return {name: str(row[name]) for name in ("type", "level") if row.get(name) is not None}
