"""Compression, whole runs on the toy task: a Llama of width 24 learns to stand in for a sender."""

import json
import os
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from interlat.chat import render
from interlat.config import CompressConfig, UserError
from interlat.models.actor import Actor
from interlat.models.compressor import Compressor
from interlat.training.compression import build_student, teacher_digest
from interlat.training.compression_course import CompressionCourse, with_steps
from interlat.training.compression_objective import TERMS, CompressionObjective
from interlat.training.losses import cross_entropy
from interlat.training.trainer import Point, Training
from training import students
from training.students import ASKED, make_model, make_teacher, train, word_tokenizer
from training.toy import Toy

CONFIG = CompressConfig(
    K=3, steps=6, batch_size=8, learning_rate=2e-2, log_every=2, save_every=2, projector=True
)


@pytest.fixture(scope="module")
def teacher(toy: Toy) -> Actor:
    return make_teacher(toy)


@pytest.fixture(scope="module")
def finished(
    toy: Toy, teacher: Actor, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Training]:
    output = tmp_path_factory.mktemp("finished") / "student"
    return output, train(toy, output, CONFIG, teacher=teacher)


def weights(folder: Path) -> dict[str, Tensor]:
    return {
        f"{file}/{name}": tensor
        for file in ("model.safetensors", "compressor.safetensors")
        for name, tensor in load_file(folder / file).items()
    }


def lessons(
    toy: Toy, teacher: Actor, config: CompressConfig = CONFIG
) -> tuple[CompressionObjective, CompressionCourse]:
    """An objective with a fresh student, and its course."""
    tasks, store = toy.material.tasks, toy.material.messages
    student = build_student(make_model(), word_tokenizer(), teacher, store, config, ASKED, seed=1)
    course = CompressionCourse(tasks, store, student, teacher, config, seed=1)
    return CompressionObjective(student, teacher, config), course


def test_another_family_width_and_tokenizer_trains_and_the_actor_reads_it(
    toy: Toy, teacher: Actor, finished: tuple[Path, Training]
) -> None:
    output, training = finished
    losses = [point["loss"] for point in training.points]
    assert losses[-1] < losses[0]
    assert [path.name for path in output.parent.iterdir()] == ["student"]
    student = Compressor.load(output)
    assert student.record.teacher_sha256 == teacher_digest(teacher)
    message_KD = student.messages([[9, 10, 11]])[0]
    assert message_KD.shape == (3, teacher.sender_width)
    assert teacher.message_rows([message_KD])[0].shape == (3, teacher.width)
    assert (output / "README.md").read_text().count("# student of 3 steps") == 1


def test_everything_of_the_student_learns_and_nothing_of_the_actor(
    toy: Toy, finished: tuple[Path, Training]
) -> None:
    fresh = make_teacher(toy)
    digest = teacher_digest(fresh)
    objective, course = lessons(toy, fresh)
    objective.train()
    assert not any(module.training for module in fresh.modules())
    objective(**course.collate([course[i] for i in range(8)])).loss.backward()
    silent = {name for name, p in objective.student.named_parameters() if p.grad is None}
    assert silent == {"model.lm_head.weight"}
    assert all(p.grad is None for p in fresh.parameters())
    assert teacher_digest(fresh) == digest == Compressor.load(finished[0]).record.teacher_sha256


def test_losses_are_those_of_whole_conversations_read_one_by_one(toy: Toy, teacher: Actor) -> None:
    """The actor reads what three texts have in common once, in a padded batch, and goes on."""
    objective, course = lessons(toy, teacher)
    samples = [course[i] for i in range(8)]
    with torch.no_grad():
        terms = dict(zip(TERMS, objective(**course.collate(samples)).terms.tolist(), strict=True))
    told: dict[str, list[Tensor]] = {"task": [], "task_full": [], "task_none": []}
    tasks = {t.task_id: t for t in toy.material.tasks}
    for number, sample in enumerate(samples):
        task = tasks[course.task_ids[number]]
        with torch.no_grad():
            short_KD = objective.student.messages([sample.prompt])[0]
        full_LD = toy.material.messages.get(task.task_id).hidden_LD
        for name, message in (("task", short_KD), ("task_full", full_LD), ("task_none", None)):
            length = None if message is None else len(message)
            rendered = render(teacher.tokenizer, task.conversations, message=length)
            ids_BT = torch.tensor([rendered.token_ids])
            slots_BT = torch.zeros_like(ids_BT, dtype=torch.bool)
            slots_BT[0, list(rendered.slots)] = True
            rows = None if message is None else teacher.message_rows([message])[0]
            with torch.no_grad():
                hidden = teacher.hidden_states(teacher.embed(ids_BT, slots_BT, rows))[0]
            where = torch.tensor(rendered.loss_mask).nonzero()[:, 0]
            told[name].append(cross_entropy(teacher.logits(hidden[where - 1]), ids_BT[0, where]))
    for name, losses in told.items():
        assert terms[name] == pytest.approx(torch.cat(losses).mean().item(), rel=1e-5), name


def test_only_supervised_rows_meet_the_vocabulary(toy: Toy, teacher: Actor) -> None:
    objective, course = lessons(toy, teacher)
    batch = course.collate([course[i] for i in range(8)])
    sizes: list[int] = []
    hook = teacher.model.lm_head.register_forward_pre_hook(
        lambda _, inputs: sizes.append(inputs[0].numel() // inputs[0].shape[-1])
    )
    objective(**batch)
    hook.remove()
    supervised = course.totals[0].supervised
    assert sorted(sizes) == [supervised, 2 * supervised]


@pytest.mark.parametrize("change", [{"gradient_checkpointing": True}, {"micro_batches": 2}])
def test_saving_memory_changes_no_loss(
    toy: Toy, teacher: Actor, finished: tuple[Path, Training], tmp_path: Path, change: dict
) -> None:
    config = replace(CONFIG, **change)
    training = train(toy, tmp_path / "student", config, teacher=teacher)
    for point, expected in zip(training.points, finished[1].points, strict=True):
        assert point == pytest.approx(expected, rel=1e-3, abs=1e-5)


def test_a_killed_run_resumes_to_the_same_student(
    toy: Toy, teacher: Actor, finished: tuple[Path, Training], tmp_path: Path
) -> None:
    class KilledError(Exception):
        pass

    started: list[int] = []

    def die(step: int, point: Point | None) -> None:
        if step == 5:
            raise KilledError

    def note(step: int, point: Point | None) -> None:
        started.append(step)

    with pytest.raises(KilledError):
        train(toy, tmp_path / "student", CONFIG, teacher=teacher, watch=die)
    assert not (tmp_path / "student").exists()
    training = train(toy, tmp_path / "student", CONFIG, teacher=teacher, watch=note)
    assert started[0] == 5
    assert training == finished[1]
    resumed = weights(tmp_path / "student")
    for name, expected in weights(finished[0]).items():
        assert torch.equal(resumed[name], expected), name


@pytest.mark.slow
def test_two_ranks_train_what_one_does(finished: tuple[Path, Training], tmp_path: Path) -> None:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node=2"]
    rendezvous = ["--rdzv_backend=c10d", "--rdzv_endpoint=127.0.0.1:0"]
    script = ["--module", "training.students", str(tmp_path), json.dumps(asdict(CONFIG))]
    tests = str(Path(students.__file__).parent.parent)
    subprocess.run(
        [*torchrun, *rendezvous, *script], check=True, env={**os.environ, "PYTHONPATH": tests}
    )
    points = json.loads((tmp_path / "points.json").read_text())
    for shared, expected in zip(points, finished[1].points, strict=True):
        assert shared == pytest.approx(expected, rel=1e-3, abs=1e-5)
    together = weights(tmp_path / "student")
    for name, expected in weights(finished[0]).items():
        torch.testing.assert_close(together[name], expected, atol=1e-3, rtol=1e-2)


def test_held_out_tasks_are_validated_on(toy: Toy, teacher: Actor, tmp_path: Path) -> None:
    config = replace(CONFIG, validation_share=0.25, validate_every=2, keep="best")
    training = train(toy, tmp_path / "student", config, teacher=teacher)
    looks = [point["validation_loss"] for point in training.points]
    assert training.final["validation_loss"] == min(looks)


def test_messages_with_fewer_rows_than_steps_are_counted(toy: Toy, teacher: Actor) -> None:
    _, course = lessons(toy, teacher, replace(CONFIG, K=5))
    assert course.shorter == len(set(course.task_ids))
    assert lessons(toy, teacher)[1].shorter == 0


def test_epochs_are_passes_over_the_tasks(toy: Toy, teacher: Actor) -> None:
    config = with_steps(replace(CONFIG, epochs=2.0), len(toy.material.tasks))
    assert config.steps == 12
    _, course = lessons(toy, teacher, config)
    assert all(course.task_ids.count(task.task_id) == 2 for task in toy.material.tasks)


def test_what_does_not_fit_is_refused_before_training(
    toy: Toy, teacher: Actor, tmp_path: Path
) -> None:
    def refused(words: str, config: CompressConfig = CONFIG, **more: object) -> None:
        with pytest.raises(UserError, match=words):
            train(toy, tmp_path / "student", config, **more)  # type: ignore[arg-type]
        assert list(tmp_path.iterdir()) == []

    deaf = Actor(toy.model(), toy.tokenizer)
    refused("the actor has no adapter", teacher=deaf)
    refused(
        "24 wide, the actor reads messages of width 32: a projector is needed",
        replace(CONFIG, projector=False),
        teacher=teacher,
    )
    refused(
        r"compress\.K: 64 steps do not fit behind prompts of 5 tokens",
        replace(CONFIG, K=64),
        teacher=teacher,
    )
    brief = make_teacher(toy)
    brief.record = replace(brief.record, max_message_length=2)
    refused(r"compress\.K: the actor reads 2 rows of a message, found 3", teacher=brief)
    missing = toy._replace(
        material=replace(toy.material, tasks=[replace(toy.material.tasks[0], task_id="unheard")])
    )
    with pytest.raises(UserError, match=r"no latents for 1 of 1 tasks \(unheard\)"):
        train(missing, tmp_path / "student", CONFIG, teacher=teacher)
    with pytest.raises(UserError, match=r"validation_share: 0\.01 of 48 tasks are 0"):
        train(toy, tmp_path / "student", replace(CONFIG, validation_share=0.01), teacher=teacher)
