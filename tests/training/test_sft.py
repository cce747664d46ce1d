"""Training the embedded default's base model: what it is taught, and whole runs in small."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from interlat.chat import render_many
from interlat.config import BaseConfig, UserError
from interlat.models.actor import Actor
from interlat.models.load import load_causal_lm
from interlat.models.tiny import TinyShape, build_model, build_tokenizer
from interlat.training.sft import (
    CHUNKS,
    GROUPS,
    TERMS,
    Collator,
    LanguageObjective,
    Lesson,
    Skill,
    skill_counts,
)
from interlat.training.trainer import Training
from training import lessons as lessons_module
from training.lessons import School, make_school, train

CONFIG = BaseConfig(
    hidden_size=32,
    layers=2,
    heads=2,
    intermediate_size=64,
    steps=12,
    sender_batch=4,
    actor_batch=8,
    learning_rate=0.03,
    embedding_learning_rate=0.03,
    warmup_share=0.1,
    uninformed_sender_share=0.25,
    none_share=0.4,
    uninformed_share=0.125,
    mismatched_share=0.125,
    precision="fp32",
    save_every=4,
    log_every=2,
)
COUNTS = {
    Skill.INFORMED: 3,
    Skill.UNINFORMED: 1,
    Skill.FOLLOW: 3,
    Skill.SEARCH: 3,
    Skill.SEARCH_UNINFORMED: 1,
    Skill.SEARCH_MISMATCHED: 1,
}
BATCH = 12
TESTS = Path(__file__).parent.parent


def process_of_its_own(**variables: str) -> dict[str, str]:
    """The environment in which lessons.py finds its neighbours."""
    return {**os.environ, "PYTHONPATH": str(TESTS), **variables}


@pytest.fixture(scope="module")
def school() -> School:
    return make_school()


@pytest.fixture(scope="module")
def actor(school: School) -> Actor:
    """An untrained model that knows the words of the school."""
    torch.set_num_threads(1)
    tasks = [*school.informed, *school.searching]
    texts = [turn["value"] for task in tasks for turn in task.conversations]
    plans = [text for task in tasks for text in (task.plan, task.knowledge) if text]
    tokenizer = build_tokenizer([*texts, *plans])
    return Actor(build_model(tokenizer, TinyShape(32, 2, 2, 64), seed=1), tokenizer).eval()


@pytest.fixture(scope="module")
def finished(school: School, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Training]:
    torch.set_num_threads(1)
    output = tmp_path_factory.mktemp("finished") / "base"
    return output, train(school, output, CONFIG)


def one_step(school: School) -> list[Lesson]:
    lessons = school.lessons(CONFIG)
    return [lessons[i] for i in range(BATCH)]


def test_a_lesson_is_a_function_of_the_seed_and_its_number(school: School) -> None:
    first, again, other = (school.lessons(CONFIG, seed) for seed in (1, 1, 2))
    backwards = {i: again[i] for i in reversed(range(len(again)))}
    assert len(first) == 12 * BATCH
    assert [first[i] for i in range(len(first))] == [backwards[i] for i in range(len(again))]
    assert [first[i] for i in range(len(first))] != [other[i] for i in range(len(other))]


def test_every_step_teaches_each_skill_as_often_as_its_share_says(school: School) -> None:
    assert skill_counts(CONFIG) == COUNTS
    lessons = school.lessons(CONFIG)
    for step in range(CONFIG.steps):
        taught = Counter(lessons[step * BATCH + i].skill for i in range(BATCH))
        assert taught == COUNTS


@pytest.mark.parametrize(
    ("break_it", "words"),
    [
        (lambda s: School(s.informed[:1], s.searching[:1]), "at least 2 train tasks"),
        (lambda s: School(s.informed, s.searching[::-1]), "tasks are not the same"),
        (
            lambda s: School(s.informed, [replace(task, plan=None) for task in s.searching]),
            "train-7-00000 has no plan or no demonstration",
        ),
    ],
)
def test_what_shows_nothing_to_learn_is_refused(
    school: School, break_it: Callable[[School], School], words: str
) -> None:
    with pytest.raises(UserError, match=words):
        break_it(school).lessons(CONFIG)


@pytest.mark.parametrize("shares", [(0.0, 0.0, 0.0), (1.0, 0.0, 0.0), (0.48, 0.125, 0.0625)])
@pytest.mark.parametrize("batches", [(32, 48), (8, 7)])
def test_skills_fill_the_batch(
    shares: tuple[float, float, float], batches: tuple[int, int]
) -> None:
    none, uninformed, mismatched = shares
    counts = skill_counts(
        replace(
            CONFIG,
            sender_batch=batches[0],
            actor_batch=batches[1],
            none_share=none,
            uninformed_share=uninformed,
            mismatched_share=mismatched,
        )
    )
    assert min(counts.values()) >= 0
    assert sum(counts[skill] for skill in GROUPS["sender"]) == batches[0]
    assert sum(counts.values()) == sum(batches)
    assert set(GROUPS["sender"] + GROUPS["follow"] + GROUPS["search"]) == set(Skill)


def test_each_skill_shows_what_it_should(school: School) -> None:
    """Above all: who searches is never shown where things are."""
    informed, searching = ({id(task.conversations): task for task in tasks} for tasks in school)
    lessons = school.lessons(CONFIG)
    for skill, conversation, plan in (lessons[i] for i in range(len(lessons))):
        if skill in GROUPS["sender"]:
            asked, said = (turn["value"] for turn in conversation)
            tasks = school.informed if skill is Skill.INFORMED else school.searching
            (task,) = (task for task in tasks if task.instruction in asked)
            assert said == task.plan
            assert (str(task.knowledge) in asked) == (skill is Skill.INFORMED)
        elif skill is Skill.FOLLOW:
            assert plan == informed[id(conversation)].plan
        elif skill is Skill.SEARCH:
            assert plan is None
            assert id(conversation) in searching
        elif skill is Skill.SEARCH_UNINFORMED:
            assert plan == searching[id(conversation)].plan
        else:
            own = searching[id(conversation)].task_id
            assert plan in [task.plan for task in school.informed if task.task_id != own]


def test_the_collator_keeps_every_sample(school: School, actor: Actor) -> None:
    lessons = one_step(school)
    chunks = Collator(actor.tokenizer)(lessons)["chunks"]
    assert len(chunks) == CHUNKS
    found = []
    for branch, group_S in chunks:
        assert len(group_S) == len(branch.ids_BT)
        for b, ids_T in enumerate(branch.ids_BT):
            own_N = branch.sample_N == b
            predicted = (branch.row_N[own_N] - b * len(ids_T) + 1).tolist()
            ids = ids_T[: int(ids_T.nonzero().max()) + 1].tolist()
            assert [ids[at] for at in predicted] == branch.labels_N[own_N].tolist()
            found.append((ids, predicted, int(group_S[b])))
    rendered = render_many(
        actor.tokenizer, [x.conversation for x in lessons], [x.plan for x in lessons]
    )
    groups = [next(g for g, s in enumerate(GROUPS.values()) if x.skill in s) for x in lessons]
    expected = [
        (r.token_ids, [at for at, learn in enumerate(r.loss_mask) if learn], group)
        for r, group in zip(rendered, groups, strict=True)
    ]
    assert sorted(found) == sorted(expected)


def test_chunks_hold_samples_of_like_length(school: School, actor: Actor) -> None:
    chunks = Collator(actor.tokenizer)(one_step(school))["chunks"]
    lengths = [[int(ids.nonzero().max()) + 1 for ids in branch.ids_BT] for branch, _ in chunks]
    assert all(max(a) <= min(b) for a, b in pairwise(lengths))
    assert [branch.ids_BT.shape[1] for branch, _ in chunks] == [max(each) for each in lengths]


@torch.no_grad()
def test_a_step_s_loss_is_the_sum_over_its_parts(school: School, actor: Actor) -> None:
    """So ranks and micro-batches may cut it anywhere."""
    lessons = one_step(school)
    objective, collate = LanguageObjective(actor, CONFIG), Collator(actor.tokenizer)
    whole = objective(**collate(lessons))
    parts = [objective(**collate(part)) for part in (lessons[:1], lessons[1:7], lessons[7:])]
    torch.testing.assert_close(sum(part.loss for part in parts), whole.loss)
    torch.testing.assert_close(sum(part.terms for part in parts), whole.terms)
    terms = dict(zip(TERMS, whole.terms.tolist(), strict=True))
    chance = torch.tensor(float(len(actor.tokenizer))).log().item()
    for group in GROUPS:
        assert terms[f"loss_{group}"] == pytest.approx(chance, rel=0.1)


def test_a_short_run_lowers_every_loss(finished: tuple[Path, Training]) -> None:
    _, training = finished
    first, last = training.points[0], training.points[-1]
    assert [point["step"] for point in training.points] == [2, 4, 6, 8, 10, 12]
    assert last["loss"] < 0.7 * first["loss"]
    for group in GROUPS:
        assert last[f"loss_{group}"] < 0.8 * first[f"loss_{group}"]
        assert last[f"accuracy_{group}"] > first[f"accuracy_{group}"]


def test_it_leaves_a_checkpoint_and_nothing_else(finished: tuple[Path, Training]) -> None:
    output, training = finished
    assert [path.name for path in output.parent.iterdir()] == ["base"]
    model, tokenizer = load_causal_lm(str(output))
    assert training.final["parameters"] == sum(p.numel() for p in model.parameters())
    assert training.final["vocabulary"] == len(tokenizer) == model.config.vocab_size
    assert training.final["loss"] == training.points[-1]["loss"]


@pytest.mark.slow
def test_a_killed_run_resumes_to_the_same_weights(
    finished: tuple[Path, Training], tmp_path: Path
) -> None:
    command = [sys.executable, lessons_module.__file__, str(tmp_path), json.dumps(asdict(CONFIG))]
    checkpoint = tmp_path / "base.partial" / "checkpoint-8" / "complete"
    process = subprocess.Popen(command, env=process_of_its_own(TOY_PAUSE_AT="9"))
    while not checkpoint.exists():
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert not (tmp_path / "base").exists()
    subprocess.run(command, check=True, env=process_of_its_own(TOY_EXPECT_FIRST="9"))
    output, training = finished
    assert json.loads((tmp_path / "points.json").read_text()) == training.points
    resumed = load_file(tmp_path / "base" / "model.safetensors")
    for name, expected in load_file(output / "model.safetensors").items():
        assert torch.equal(resumed[name], expected), name


@pytest.mark.slow
def test_two_ranks_train_what_one_does(finished: tuple[Path, Training], tmp_path: Path) -> None:
    """Up to the order of sums, which Muon makes larger where a gradient's direction is weak."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node=2"]
    rendezvous = ["--rdzv_backend=c10d", "--rdzv_endpoint=127.0.0.1:0"]
    script = [lessons_module.__file__, str(tmp_path), json.dumps(asdict(CONFIG))]
    subprocess.run([*torchrun, *rendezvous, *script], check=True, env=process_of_its_own())
    output, alone = finished
    points = json.loads((tmp_path / "points.json").read_text())
    for shared, expected in zip(points, alone.points, strict=True):
        assert shared == pytest.approx(expected, rel=1e-2, abs=0.02)
    together = load_file(tmp_path / "base" / "model.safetensors")
    for name, expected in load_file(output / "model.safetensors").items():
        weak = 0.1 if name.endswith("proj.weight") else 0.01
        assert (together[name] - expected).norm() < weak * expected.norm(), name
