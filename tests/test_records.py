"""Records come out of every form that users have, and what cannot be read is named."""

import json
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset, DatasetDict

from interlat.config import UserError
from interlat.records import read_hub, read_records

ROWS: list[dict[str, Any]] = [{"id": "a", "task": "find the mug"}, {"id": "b", "task": "cool it"}]
FIELDS = frozenset({"id", "task"})


def read(path: Path, split: str = "train") -> list[dict[str, Any]]:
    return list(read_records(str(path), split=split, fields=FIELDS).rows)


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(ROWS),
        json.dumps(ROWS, indent=2),
        "\n".join(map(json.dumps, ROWS)),
        "\n\n".join(map(json.dumps, ROWS)) + "\n\n",
        "\ufeff" + json.dumps(ROWS),
    ],
    ids=["list", "indented", "lines", "blank lines", "byte order mark"],
)
def test_json_is_a_list_or_lines(tmp_path: Path, text: str) -> None:
    (tmp_path / "tasks.json").write_text(text, encoding="utf-8")
    assert read(tmp_path / "tasks.json") == ROWS


def test_a_line_may_hold_characters_that_end_lines_elsewhere(tmp_path: Path) -> None:
    rows = [{"task": "one\u2028two\x85"}, {"task": "three"}]
    text = "\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    (tmp_path / "tasks.jsonl").write_text(text, encoding="utf-8")
    assert read(tmp_path / "tasks.jsonl") == rows


def test_one_record_may_stand_by_itself(tmp_path: Path) -> None:
    (tmp_path / "1.json").write_text(json.dumps(ROWS[0], indent=1))
    assert read(tmp_path / "1.json") == ROWS[:1]


@pytest.mark.parametrize("below", ["", "hf_dataset"])
def test_a_saved_dataset_gives_the_columns_that_are_wanted(tmp_path: Path, below: str) -> None:
    data = Dataset.from_list([{**row, "hidden_state": [[0.5]]} for row in ROWS])
    data.save_to_disk(str(tmp_path / "saved" / below))
    records = read_records(str(tmp_path / "saved"), split="train", fields=FIELDS)
    assert records.rows == ROWS
    assert sorted(records.fields) == ["hidden_state", "id", "task"]


def test_a_split_of_a_saved_dataset_is_chosen(tmp_path: Path) -> None:
    parts = {name: Dataset.from_list([row]) for name, row in zip("xy", ROWS, strict=True)}
    DatasetDict(parts).save_to_disk(str(tmp_path / "saved"))
    assert read(tmp_path / "saved", "y") == ROWS[1:]
    with pytest.raises(UserError, match="has no split train; choose --dataset_split from x, y"):
        read(tmp_path / "saved")


def test_a_folder_of_files_by_subject_says_what_type_a_record_is(tmp_path: Path) -> None:
    for subject, names in {"geometry": ["10", "9"], "algebra": ["1"]}.items():
        folder = tmp_path / "MATH" / "test" / subject
        folder.mkdir(parents=True)
        for name in names:
            (folder / f"{name}.json").write_text(json.dumps({"problem": f"{subject} {name}"}))
    records = read_records(str(tmp_path / "MATH"), split="test", fields=FIELDS)
    assert records.rows == [
        {"type": "algebra", "problem": "algebra 1"},
        {"type": "geometry", "problem": "geometry 9"},
        {"type": "geometry", "problem": "geometry 10"},
    ]


def test_a_file_may_bear_its_subject_s_name(tmp_path: Path) -> None:
    (tmp_path / "prealgebra.jsonl").write_text('{"problem": "x"}\n{"problem": "y", "type": "Own"}')
    assert [row["type"] for row in read(tmp_path)] == ["prealgebra", "Own"]


def test_a_hub_dataset_with_a_configuration_a_subject_is_read_subject_by_subject(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder in the hub's form, which the library reads as it reads the hub."""
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    repository = tmp_path / "repository"
    repository.mkdir()
    named = "".join(
        f"- config_name: {name}\n  data_files: {name}.jsonl\n"
        for name in ("geometry", "algebra", "prealgebra")
    )
    (repository / "README.md").write_text(f"---\nconfigs:\n{named}---\n")
    for name in ("geometry", "algebra", "prealgebra"):
        (repository / f"{name}.jsonl").write_text(json.dumps({"task": name, "other": 1}))

    def tasks(name: str | None, *subjects: str) -> list[str]:
        records = read_hub(str(repository), name, "train", subjects, FIELDS)
        return [row["task"] for row in records.rows]

    assert tasks(None) == ["algebra", "geometry", "prealgebra"]
    assert tasks(None, "geometry") == ["geometry"]
    assert tasks("prealgebra") == ["prealgebra"]
    with pytest.raises(UserError, match=r"as a hub id it cannot be read: .*test"):
        read_hub(str(repository), "algebra", "test", (), FIELDS)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[\n{"id": "a"},\n{"id" "b"}]', "line 3: not valid JSON"),
        ('{"id": "a"}\n{"id": ', "line 2: not valid JSON"),
        ("task,id\n", "line 1: not valid JSON"),
        ('["find the mug"]', "record 1: expected an object .* found 'find the mug'"),
        ("3", "record 1: expected an object"),
        ("[]", "there is no record in it"),
        ("", "there is no record in it"),
    ],
)
def test_what_is_no_record_is_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "tasks.json"
    path.write_text(text)
    with pytest.raises(UserError, match=message) as caught:
        read(path)
    assert str(caught.value).startswith(str(path))


def test_text_in_another_encoding_is_named(tmp_path: Path) -> None:
    (tmp_path / "tasks.json").write_bytes(b"\xff\xfe[]")
    with pytest.raises(UserError, match="not UTF-8"):
        read(tmp_path / "tasks.json")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("nowhere.json", "^nowhere.json: no such file or folder$"),
        ("./nowhere", "^./nowhere: no such file or folder$"),
        ("here/nowhere", "^here/nowhere: no such file or folder$"),
        ("nobody/nothing", "as a hub id it cannot be read: .*Offline"),
        ("here", "^here holds neither a dataset"),
        ("broken", "^broken cannot be read as a dataset: "),
    ],
)
def test_what_is_not_there_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    for name in ("here", "broken"):
        (tmp_path / name).mkdir()
    (tmp_path / "broken" / "state.json").write_text("{")
    (tmp_path / "broken" / "dataset_info.json").write_text("{}")
    with pytest.raises(UserError, match=message) as caught:
        read_records(source, split="train", fields=FIELDS)
    assert "\n" not in str(caught.value)
