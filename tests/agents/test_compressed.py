"""A student in the sender's place: its messages make a store, which says whose they are."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from interlat.agents.collect import collect, estimate
from interlat.agents.compressed import CompressedSpeaker
from interlat.config import CollectConfig, UserError
from interlat.latents.store import LatentStore
from interlat.models.actor import ActorRecord, Sender
from interlat.models.compressor import Compressor, CompressorRecord
from interlat.models.load import load_causal_lm
from interlat.tasks import Task

CONFIG = CollectConfig(
    batch_size=2, compressed=True, chat_template="none", prompt_template="{task}", parquet=False
)
TASKS = [Task(f"t{i}", "alfworld", "train", f"find {'plate ' * i}") for i in range(5)]
SENDER = Sender("teacher", "a" * 64, 20)


@pytest.fixture(scope="module")
def student(tiny_checkpoint: Path) -> Compressor:
    torch.manual_seed(0)
    record = CompressorRecord(3, SENDER.width, "{task}", "none", SENDER)
    return Compressor(*load_causal_lm(str(tiny_checkpoint)), record).eval()


def gather(student: Compressor, output: Path, config: CollectConfig = CONFIG, **more: object):
    arguments = {"seed": 1, "sender": "models/student", "student": student, **more}
    return collect(TASKS, student.model, student.tokenizer, output, config, **arguments)


def test_the_store_holds_k_rows_a_task_and_says_whose(student: Compressor, tmp_path: Path) -> None:
    summary = gather(student, tmp_path / "store")
    assert (summary.messages, summary.rows, summary.plan_exact) == (5, 15, None)
    store = LatentStore(tmp_path / "store")
    assert store.width == SENDER.width
    assert store.get("t3").plan == ""
    expected = student.messages([student.tokenizer("find plate plate plate")["input_ids"]])[0]
    torch.testing.assert_close(store.get("t3").hidden_LD.float(), expected, rtol=1e-2, atol=1e-2)
    assert store.manifest is not None
    said = store.manifest["compressed"]
    assert (said["steps"], said["student_sha256"]) == (3, student.digest)
    assert "do_sample" not in store.manifest["generation"]


def test_an_actor_takes_them_for_the_sender_s_that_the_student_stands_in_for(
    student: Compressor, tmp_path: Path
) -> None:
    gather(student, tmp_path / "store")
    store = LatentStore(tmp_path / "store")
    assert Sender.of(store) == SENDER
    ActorRecord(sender=SENDER).check_sender(store, any_sender=False)
    other = replace(SENDER, weights_sha256="b" * 64)
    with pytest.raises(UserError, match="holds messages of teacher"):
        ActorRecord(sender=other).check_sender(store, any_sender=False)


def test_a_prompt_without_room_for_k_steps_costs_its_task_alone(
    student: Compressor, tmp_path: Path
) -> None:
    words = Task("long", "alfworld", "train", "plate " * 254)
    speaker = CompressedSpeaker(student, CONFIG, seed=1)
    failures = speaker.prepare([TASKS[0], words]).failures
    assert failures == {
        "long": "task long: its prompt has 254 tokens; with 3 steps the student reads 253"
    }
    assert len(speaker.messages([TASKS[1], words])["t1"].hidden_LD) == 3
    assert estimate(TASKS, student.model, student.tokenizer, CONFIG, seed=1, student=student).rows


def test_fewer_rows_can_be_kept(student: Compressor, tmp_path: Path) -> None:
    assert gather(student, tmp_path / "store", replace(CONFIG, first_k=2)).rows == 10


def test_a_student_is_asked_in_the_words_that_it_knows(student: Compressor) -> None:
    with pytest.raises(UserError, match=r"collect\.prompt_template: the student was trained with"):
        CompressedSpeaker(student, replace(CONFIG, prompt_template="Plan: {task}"), seed=1)
