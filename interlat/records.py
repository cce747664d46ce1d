"""Records of users' own data: JSON files, datasets that `save_to_disk` wrote, hub datasets.

A record is a mapping of fields. What in it is a task is said by inputs.py.
"""

import json
import logging
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

from interlat.config import Subject, UserError

if TYPE_CHECKING:
    from datasets import Dataset

SUBJECTS: tuple[str, ...] = get_args(Subject)
"""The subjects of MATH: configurations on the hub, folders or files elsewhere."""
_HUB_ID = re.compile(r"[\w-][\w.-]*(/[\w.-]+)?")
_JSON = (".json", ".jsonl")

Record = dict[str, Any]


class Records(NamedTuple):
    """Records of one source."""

    source: str
    rows: Sequence[Record]
    fields: Sequence[str]
    """Every field that the source has, also those that were not read."""

    @classmethod
    def of_json(cls, source: str, rows: Sequence[Any]) -> "Records":
        """Records that JSON held. Raises UserError for one that is no object."""
        for number, row in enumerate(rows, start=1):
            if not isinstance(row, dict):
                raise UserError(
                    f"{source}, record {number}: expected an object with the task in one of its "
                    f"fields, found {named(row)}"
                )
        return cls(source, rows, list(dict.fromkeys(name for row in rows for name in row)))

    def error(self, number: int, what: str) -> UserError:
        """A mistake in record ``number``, counted from 1."""
        return UserError(f"{self.source}, record {number}: {what}")

    def lacks(self, number: int, what: str) -> UserError:
        """The same of a record that has no such thing; says which fields there are."""
        return self.error(number, f"{what}; the fields there: {', '.join(self.fields)}")


def read_records(
    source: str,
    *,
    split: str,
    name: str | None = None,
    subjects: Sequence[str] = (),
    fields: frozenset[str],
) -> Records:
    """The records in a file, a folder or a hub dataset.

    source: a JSON list, JSON lines, a `save_to_disk` folder, a folder of JSON files, or a hub id.
    split: the one to read, where there are several. name: a hub dataset's configuration. subjects:
    of MATH on the hub, the configurations to read; empty for all. fields: those of a dataset's
    columns that are read, as others, states for one, may be large.
    Raises UserError naming the source, and line or record, for what cannot be read or is empty.
    """
    path = Path(source)
    if path.is_file():
        records = Records.of_json(source, _read_json(path))
    elif path.is_dir():
        records = _read_folder(path, split, fields)
    elif _may_be_hub_id(source):
        records = read_hub(source, name, split, subjects, fields)
    else:
        raise UserError(f"{source}: no such file or folder")
    if not records.rows:
        raise UserError(f"{source}: there is no record in it")
    return records


def read_hub(
    dataset: str, name: str | None, split: str, subjects: Sequence[str], fields: frozenset[str]
) -> Records:
    """The records of a hub dataset, as ``read_records``."""
    from datasets import disable_progress_bars, get_dataset_config_names, load_dataset
    from datasets.exceptions import DatasetsError

    disable_progress_bars()
    # No line for each time that the hub is tried again: the error says it once.
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
    try:
        names = [name]
        if name is None:
            there = get_dataset_config_names(dataset)
            names = [each for each in subjects or SUBJECTS if each in there] or [None]
        parts = [load_dataset(dataset, each, split=split) for each in names]
    except (DatasetsError, OSError, ValueError) as error:
        raise UserError(
            f"{dataset}: there is no such file or folder, and as a hub id it cannot be read: "
            f"{_one_line(error)}; files are read with --dataset_path"
        ) from None
    return Records(
        dataset, [row for part in parts for row in _rows(part, fields)], parts[0].column_names
    )


def named(value: Any) -> str:
    """A value as a message names it."""
    if isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "an object"
    return "null" if value is None else repr(value)


def _read_folder(path: Path, split: str, fields: frozenset[str]) -> Records:
    """A dataset, also one in hf_dataset/ below, or JSON files, also those in a split's folder."""
    for folder in (path, path / "hf_dataset"):
        if (folder / "state.json").is_file() or (folder / "dataset_dict.json").is_file():
            return _read_dataset(folder, split, fields)
    below = path / split if (path / split).is_dir() else path
    files = sorted((file for file in below.rglob("*") if file.suffix in _JSON), key=_by_number)
    if not files:
        raise UserError(f"{path} holds neither a dataset (save_to_disk) nor JSON files")
    return Records.of_json(str(path), [row for file in files for row in _of_subject(file)])


def _of_subject(file: Path) -> Iterator[Record]:
    """The records of a file; named after a subject, or in a folder that is, it is their type."""
    subject = next((word for word in (file.stem, file.parent.name) if word in SUBJECTS), None)
    for row in Records.of_json(str(file), _read_json(file)).rows:
        yield {"type": subject, **row} if subject else row


def _read_dataset(folder: Path, split: str, fields: frozenset[str]) -> Records:
    from datasets import DatasetDict, load_from_disk

    try:
        data = load_from_disk(str(folder))
    except (OSError, ValueError, KeyError) as error:
        raise UserError(f"{folder} cannot be read as a dataset: {_one_line(error)}") from None
    if isinstance(data, DatasetDict):
        if split not in data:
            raise UserError(
                f"{folder} has no split {split}; choose --dataset_split from {', '.join(data)}"
            )
        data = data[split]
    return Records(str(folder), _rows(data, fields), data.column_names)


def _rows(data: "Dataset", fields: frozenset[str]) -> list[Record]:
    columns = [column for column in data.column_names if column in fields]
    rows: list[Record] = data.select_columns(columns).to_list()
    return rows


def _read_json(path: Path) -> list[Any]:
    """The records of a file: a list, one by itself, or one a line."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 text: {error}") from None
    try:
        whole = json.loads(text) if text.strip() else []
        return whole if isinstance(whole, list) else [whole]
    except json.JSONDecodeError as error:
        if not text.lstrip().startswith("{"):
            raise UserError(f"{path}, line {error.lineno}: not valid JSON: {error.msg}") from None
    rows = []
    for number, line in enumerate(text.split("\n"), start=1):
        try:
            rows += [json.loads(line)] if line.strip() else []
        except json.JSONDecodeError as error:
            raise UserError(f"{path}, line {number}: not valid JSON: {error.msg}") from None
    return rows


def _may_be_hub_id(source: str) -> bool:
    """A name, or owner/name; neither a JSON file nor something below a folder that is here."""
    path = Path(source)
    below = len(path.parts) > 1 and path.parent.is_dir()
    return bool(_HUB_ID.fullmatch(source)) and path.suffix not in _JSON and not below


def _by_number(file: Path) -> tuple[str, int, str]:
    """Order of files: by folder, numbered ones by their numbers."""
    return str(file.parent), int(file.stem) if file.stem.isdecimal() else 0, file.stem


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]
