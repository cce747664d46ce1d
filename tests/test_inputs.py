"""Users' records become tasks, and a record that cannot be one is named before a model loads."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlat.config import CollectConfig, Params, UserError, build_params
from interlat.inputs import MATH_DATASET, Collection, read_inputs
from interlat.tasks import Task, write_tasks

SAMPLES = [{"id": "s1", "task": "Clean the {kettle}."}, {"id": "s2", "task": "Open the fridge."}]
TURNS = [{"from": "human", "value": text} for text in ("Interact.", "OK", "Find the mug.")]
PROBLEMS = [
    {"problem": "Factor $x^{2}-1$.", "level": "Level 1", "type": "Algebra"},
    {"problem": "Roll a die.", "level": "Level 5", "type": "Counting & Probability"},
    {"problem": "Draw a circle.", "level": "Level 2", "type": "Geometry"},
]


def write(folder: Path, records: Any) -> str:
    path = folder / "tasks.json"
    path.write_text(json.dumps(records))
    return str(path)


def read(folder: Path, records: Any, env: str = "alfworld", **settings: Any) -> list[Task]:
    config = CollectConfig(**{"tasks": None, **settings})
    return read_inputs(write(folder, records), config, env=env, split="train")


def refusal(folder: Path, records: Any, env: str = "alfworld", **settings: Any) -> str:
    with pytest.raises(UserError) as caught:
        read(folder, records, env, **settings)
    return str(caught.value).removeprefix(f"{folder}/")


def test_records_become_tasks(tmp_path: Path) -> None:
    assert read(tmp_path, SAMPLES) == [
        Task("s1", "alfworld", "train", "Clean the {kettle}."),
        Task("s2", "alfworld", "train", "Open the fridge."),
    ]
    assert [task.task_id for task in read(tmp_path, SAMPLES, tasks=1)] == ["s1"]


def test_what_the_sender_may_know_comes_along(tmp_path: Path) -> None:
    (task,) = read(tmp_path, [{"task": "Find it.", "knowledge": "in drawer 2", "plan": "look"}])
    assert (task.knowledge, task.plan) == ("in drawer 2", None)


@pytest.mark.parametrize(
    ("records", "settings", "ids"),
    [
        ([{"task": "x"}, {"task": "y"}], {}, ["0", "1"]),
        ([{"task": "x", "id": 7}, {"task": "y", "id": None}], {}, ["7", "1"]),
        ([{"task": "x", "task_id": "t"}], {}, ["t"]),
        ([{"task": "x", "id": "i", "task_id": "t"}], {}, ["i"]),
        ([{"task": "x", "id": "i", "uid": "u"}], {"id_field": "uid"}, ["u"]),
    ],
)
def test_an_id_is_the_field_s_or_the_row_s_number(
    tmp_path: Path, records: Any, settings: dict[str, Any], ids: list[str]
) -> None:
    assert [task.task_id for task in read(tmp_path, records, **settings)] == ids


def test_a_task_may_stand_in_another_field_or_in_a_conversation(tmp_path: Path) -> None:
    both = [{"task": "label", "goal": "Cool it.", "conversations": TURNS}]

    def said(**settings: Any) -> str:
        return read(tmp_path, both, **settings)[0].instruction

    assert said(task_field="goal") == "Cool it."
    assert said(task_field="", conversations_index=2) == "Find the mug."
    assert said(conversations_index=0) == "Interact."
    assert said() == "label"


def test_a_published_alfworld_record_needs_no_flag(tmp_path: Path) -> None:
    (task,) = read(tmp_path, [{"id": "a", "conversations": TURNS}])
    assert task.instruction == "Find the mug."
    assert "no field 'task'" in refusal(tmp_path, [{"conversations": TURNS}], env="textcraft")


def test_problems_have_their_number_type_and_level(tmp_path: Path) -> None:
    first, _, last = read(tmp_path, PROBLEMS, env="math", task_field="problem")
    assert (first.task_id, first.instruction) == ("MATH_1", "Factor $x^{2}-1$.")
    assert last.env_args == {"type": "Geometry", "level": "Level 2"}


def test_subjects_are_kept_by_the_names_of_their_configurations(tmp_path: Path) -> None:
    def kept(*subjects: str) -> list[str]:
        tasks = read(tmp_path, PROBLEMS, env="math", task_field="problem", subjects=subjects)
        return [task.instruction for task in tasks]

    assert kept("counting_and_probability") == ["Roll a die."]
    assert kept("geometry", "algebra") == ["Factor $x^{2}-1$.", "Draw a circle."]


def test_tasks_of_our_own_form_are_read_as_such(tmp_path: Path) -> None:
    task = Task("a", "alfworld", "train", "put it away", "in drawer 2", "take it", tuple(TURNS))
    write_tasks(tmp_path / "own.jsonl", [task])
    config = CollectConfig(task_field="goal")
    assert read_inputs(str(tmp_path / "own.jsonl"), config, env="x", split="y") == [task]


@pytest.mark.parametrize(
    ("records", "settings", "message"),
    [
        (SAMPLES, {"task_field": "text"}, "record 1: has no field 'text'"),
        (SAMPLES, {"task_field": "text"}, "the fields there: id, task"),
        ([*SAMPLES, {"id": "s3"}], {}, "record 3: has no field 'task'"),
        (SAMPLES, {"id_field": "uid"}, "no record has the field 'uid' that --id_field names"),
        (SAMPLES, {"task_field": ""}, "--task_field is empty: say which turn is the task"),
        ([*SAMPLES, SAMPLES[0]], {}, "record 3: id 's1' comes twice"),
        ([{"task": "x"}, {"id": "0", "task": "y"}], {}, "record 2: id '0' comes twice"),
        ([{"task": " \n"}], {}, "record 1: task must be text that is not empty, found ' \\n'"),
        ([{"task": None}], {}, "record 1: task must be text that is not empty, found null"),
        ([{"task": ["x"]}], {}, "record 1: task must be text that is not empty, found a list"),
        ([{"id": "", "task": "x"}], {}, "record 1: its id must be an integer, or text"),
        ([{"id": True, "task": "x"}], {}, "record 1: its id must be an integer, or text"),
        ([{"id": 0.5, "task": "x"}], {}, "record 1: its id must be an integer, or text"),
        (SAMPLES, {"conversations_index": 2}, "record 1: has no list 'conversations'"),
        ([{"conversations": TURNS}], {"conversations_index": 3}, "conversations has 3 entries"),
        ([{"conversations": ["hi"]}], {"conversations_index": 0}, "[0] has no 'value'"),
        (
            [{"conversations": [{"value": 3}]}],
            {"conversations_index": 0},
            "conversations[0].value must be text that is not empty, found 3",
        ),
        (PROBLEMS, {"env": "math", "subjects": ("prealgebra",)}, "nothing of prealgebra is in it"),
        (SAMPLES, {"env": "math", "subjects": ("algebra",)}, "has no text in 'type'"),
    ],
)
def test_a_record_that_is_no_task_is_named(
    tmp_path: Path, records: Any, settings: dict[str, Any], message: str
) -> None:
    told = refusal(tmp_path, records, **settings)
    assert message in told
    assert "\n" not in told


@given(
    st.lists(st.text(min_size=1).filter(lambda text: text.strip()), min_size=1, max_size=5),
    st.sampled_from(["json", "jsonl"]),
)
def test_any_text_comes_through_as_it_is(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], form: str
) -> None:
    path = tmp_path_factory.mktemp("any") / f"tasks.{form}"
    lines = [json.dumps({"task": text}) for text in texts]
    path.write_text(f"[{','.join(lines)}]" if form == "json" else "\n".join(lines))
    tasks = read_inputs(str(path), CollectConfig(), env="alfworld", split="train")
    assert [task.instruction for task in tasks] == texts


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    tasks = [Task(name, "alfworld", "train", "put it away") for name in "abc"]
    for split in ("train", "valid_seen"):
        write_tasks(tmp_path / "data" / "tasks" / "layout" / f"{split}.jsonl", tasks)
    write(tmp_path, SAMPLES)
    return tmp_path


def test_only_the_pipeline_s_own_form_writes_its_files(workspace: Path) -> None:
    params = build_params({"collect": {"tasks": 2}})
    own = Collection.of(params, split="train")
    assert own.output == Path("data/latents/layout/train")
    assert own.metrics == Path("metrics/collect/layout-train.json")
    assert own.files == [Path("data/tasks/layout/train.jsonl")]
    assert [task.task_id for task in own.tasks] == ["a", "b"]
    assert len(Collection.of(params, split="valid_seen").tasks) == 3
    others = [
        Collection.of(Params(), split="train", task="alfworld"),
        Collection.of(Params(), split="train", dataset_path="tasks.json"),
        Collection.of(Params(), split="train", output_dir=Path("mine")),
    ]
    assert [other.metrics for other in others] == [None, None, None]
    assert [str(other.output) for other in others] == [
        "data/latents/alfworld/train",
        "data/latents/tasks/train",
        "mine",
    ]


def test_math_without_a_dataset_is_that_of_the_hub(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", True)
    with pytest.raises(UserError, match=f"^{MATH_DATASET}: .*files are read with --dataset_path"):
        Collection.of(Params(), split="test", task="math")
