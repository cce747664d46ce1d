"""Whole evaluations of a tiny random actor on scripted tasks, with a real store of messages."""

import csv
import io
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from agents.scripted import register, scripted_task
from interlat.agents.evaluate import COLUMNS, Evaluation, evaluate
from interlat.agents.trial import Split, Trial, find_splits
from interlat.config import EvaluateConfig, Params, TaskConfig, UserError
from interlat.latents.message import Message
from interlat.latents.writer import LatentWriter
from interlat.models.actor import Actor, ActorRecord
from interlat.models.adapter import AdapterConfig, CommunicationAdapter
from interlat.models.tiny import TinyShape, build_model, build_tokenizer
from interlat.tasks import Task, write_tasks

WIDTH = 16
TASKS = [scripted_task("quick", win_at=2), scripted_task("slow", win_at=4), scripted_task("never")]
PARAMS = Params(
    task=TaskConfig(name="scripted", step_limit=4, success_steps=(2, 4)),
    evaluate=EvaluateConfig(splits=("valid_seen",), max_new_tokens=3, env_workers=0, seed=5),
)


def write_store(path: Path, tasks: list[Task], width: int = WIDTH) -> None:
    writer = LatentWriter(path, {"model": "toy"}, width=width, dtype="float16")
    writer.claim()
    generator = torch.Generator().manual_seed(1)
    messages = [
        Message(task.task_id, torch.randn(4, width, generator=generator), "take egg", n_tokens=4)
        for task in tasks
    ]
    writer.write_piece(0, messages)
    writer.publish(1, parquet=False)


@pytest.fixture(scope="module")
def actor() -> Actor:
    tokenizer = build_tokenizer(["you see go look take put in nothing happens apple 3 plate 3 egg"])
    model = build_model(tokenizer, TinyShape(WIDTH, 1, 2, 24), seed=1)
    for parameter in model.parameters():
        if parameter.ndim == 2:
            torch.nn.init.normal_(parameter, std=0.4)
    return Actor(model, tokenizer, CommunicationAdapter(AdapterConfig(WIDTH, WIDTH, heads=2)))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    register()
    for knowledge in ("layout", "none"):
        write_tasks(tmp_path / "tasks" / knowledge / "valid_seen.jsonl", TASKS)
        write_store(tmp_path / "latents" / knowledge / "valid_seen", TASKS)
    return tmp_path


def splits_of(trial: Trial, data: Path) -> Mapping[str, Split]:
    return find_splits(trial, ["valid_seen"], data / "tasks", data / "latents")


def played(
    actor: Actor, data: Path, source: str, output: str, params: Params = PARAMS
) -> Evaluation:
    params = replace(params, hidden=replace(params.hidden, source=source))
    trial = Trial.of(params)
    return evaluate(actor, trial, splits_of(trial, data), params, data / output)


def test_the_table_has_a_row_an_episode(actor: Actor, data: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(played(actor, data, "data", "out").csv())))

    assert tuple(rows[0]) == COLUMNS
    assert [(row["task_id"], row["won"], row["steps"]) for row in rows] == [
        ("quick", "1", "2"),
        ("slow", "1", "4"),
        ("never", "0", "4"),
    ]
    assert {(row["split"], row["condition"], row["seed"]) for row in rows} == {
        ("valid_seen", "data", "5")
    }


def test_metrics_are_nested_by_split_and_flat_for_tracking(actor: Actor, data: Path) -> None:
    evaluation = played(actor, data, "none", "out")

    assert evaluation.metrics()["valid_seen"]["success_2"] == pytest.approx(1 / 3)
    assert evaluation.flat_metrics()["valid_seen.success_4"] == pytest.approx(2 / 3)
    assert all(isinstance(value, float | int) for value in evaluation.flat_metrics().values())


def test_the_same_evaluation_writes_the_same_table_and_metrics(actor: Actor, data: Path) -> None:
    first, second = (played(actor, data, "white_noise", name) for name in ("one", "two"))

    assert first.csv() == second.csv()
    assert first.metrics() == second.metrics()
    conversations = [
        [episode.conversations for episode in run.episodes["valid_seen"]] for run in (first, second)
    ]
    assert conversations[0] == conversations[1]


def test_what_the_actor_says_depends_on_what_it_is_told(actor: Actor, data: Path) -> None:
    said = {
        source: tuple(
            str(episode.conversations)
            for episode in played(actor, data, source, source).episodes["valid_seen"]
        )
        for source in ("data", "text", "none", "random_other", "white_noise", "noised")
    }

    assert len(set(said.values())) == len(said)


def test_another_source_does_not_reuse_the_episodes_in_its_folder(actor: Actor, data: Path) -> None:
    one = played(actor, data, "data", "out").episodes["valid_seen"]
    other = played(actor, data, "white_noise", "out").episodes["valid_seen"]
    again = played(actor, data, "white_noise", "out").episodes["valid_seen"]

    assert [episode.hidden_source for episode in other] == ["white_noise"] * 3
    assert one[0].conversations != other[0].conversations
    assert again == other, "the second time, episodes come from their files, timings and all"


def test_a_store_without_a_tasks_message_is_refused_before_anything_is_played(
    actor: Actor, data: Path
) -> None:
    write_tasks(data / "tasks" / "layout" / "valid_seen.jsonl", [*TASKS, scripted_task("new")])

    with pytest.raises(UserError, match="no message for task 'new'"):
        played(actor, data, "data", "out")
    assert not (data / "out").exists()


def test_an_actor_hears_no_more_rows_than_it_was_trained_with(actor: Actor, data: Path) -> None:
    def conversations(record: ActorRecord, first_k: int | None = None) -> list[object]:
        told = Actor(actor.model, actor.tokenizer, actor.adapter, record)
        params = replace(PARAMS, hidden=replace(PARAMS.hidden, first_k=first_k))
        run = played(told, data, "data", f"{record.max_message_length}-{first_k}", params)
        return [episode.conversations for episode in run.episodes["valid_seen"]]

    short = ActorRecord(max_message_length=2)
    assert conversations(short) == conversations(ActorRecord(), first_k=2)
    assert conversations(short) != conversations(ActorRecord())


def test_an_actor_of_another_kind_is_told_words_and_refuses_latents(
    actor: Actor, data: Path
) -> None:
    said = {}
    for kind in ("text", "cot"):
        told = Actor(actor.model, actor.tokenizer, record=ActorRecord(kind))
        episodes = played(told, data, "text", kind).episodes["valid_seen"]
        said[kind] = [episode.conversations for episode in episodes]
        with pytest.raises(UserError, match=f"trained with actor.kind={kind} and cannot be told"):
            played(told, data, "data", "refused")
    assert said["text"] != said["cot"]


def test_messages_of_another_width_are_refused(actor: Actor, data: Path) -> None:
    wide = data / "wide"
    write_store(wide, TASKS, width=24)
    trial = Trial.of(PARAMS)
    split = replace(splits_of(trial, data)["valid_seen"], store=wide)

    with pytest.raises(UserError, match="width 24"):
        evaluate(actor, trial, {"valid_seen": split}, PARAMS, data / "out")
