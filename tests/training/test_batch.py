"""Batches: what stands where, and what is predicted from which row."""

import numpy as np
import pytest
import torch

from interlat.chat import render
from interlat.config import TrainConfig
from interlat.training.batch import Batch, Branch, Collator
from interlat.training.course import Course, Kind, Sample
from training.toy import Toy

CONFIG = TrainConfig(
    steps=8,
    batch_size=16,
    curriculum="plan_first",
    none_share=0.2,
    uninformed_share=0.1,
    mismatched_share=0.1,
)


@pytest.fixture(scope="module")
def course(toy: Toy) -> Course:
    return Course(toy.material, CONFIG, toy.tokenizer, seed=1)


def collate(course: Course, samples: list[Sample], config: TrainConfig = CONFIG) -> Batch:
    return Collator(course, config)(samples)["batch"]


def step(course: Course, number: int = 0) -> list[Sample]:
    return [course[number * 16 + i] for i in range(16)]


def predicted(branch: Branch) -> list[tuple[int, int]]:
    """(sample, label) with the label read from the token after the predicting row."""
    width = branch.ids_BT.shape[1]
    ids = branch.ids_BT.flatten()
    return [(int(row) // width, int(ids[row + 1])) for row in branch.row_N]


def test_each_row_predicts_the_token_after_it(course: Course) -> None:
    """Guards against the published code, whose rows were not shifted."""
    for number in range(8):
        batch = collate(course, step(course, number))
        for branch in (batch.own, batch.other, batch.plan, batch.mismatched):
            assert branch is not None
            expected = list(zip(branch.sample_N.tolist(), branch.labels_N.tolist(), strict=True))
            assert predicted(branch) == expected


def test_branches_of_a_sample_are_aligned_by_label(course: Course) -> None:
    for number in range(8):
        batch = collate(course, step(course, number))
        assert batch.own is not None
        for contrast in (batch.plan, batch.mismatched):
            assert contrast is not None
            assert torch.equal(contrast.labels_N, batch.own.labels_N)
            assert torch.equal(contrast.sample_N, batch.own.sample_N)


def test_the_plan_branch_is_the_prompt_with_the_plan_as_text(course: Course, toy: Toy) -> None:
    samples = step(course)
    batch = collate(course, samples)
    tasks = {task.task_id: task for task in toy.material.tasks}
    own = [sample for sample in samples if sample.kind is Kind.OWN]
    assert batch.plan is not None
    assert batch.plan.messages is None
    assert not batch.plan.slots_BT.any()
    for b, (ids_T, sample) in enumerate(zip(batch.plan.ids_BT, own, strict=True)):
        assert sample.message is not None
        conversation = tasks[sample.message.task_id].conversations
        rendered = render(toy.tokenizer, conversation, message=sample.message.plan)
        assert ids_T[: len(rendered.token_ids)].tolist() == rendered.token_ids
        supervised = np.flatnonzero(rendered.loss_mask)
        rows = batch.plan.row_N[batch.plan.sample_N == b] % len(ids_T)
        assert (rows + 1).tolist() == supervised.tolist()


def test_pure_latents_are_the_prompt_that_evaluation_renders(course: Course, toy: Toy) -> None:
    samples = [s._replace(rate=0.0) for s in step(course) if s.kind is Kind.OWN]
    batch = collate(course, samples)
    tasks = {task.task_id: task for task in toy.material.tasks}
    assert batch.own is not None
    for ids_T, slots_T, sample in zip(batch.own.ids_BT, batch.own.slots_BT, samples, strict=True):
        assert sample.message is not None
        conversation = tasks[sample.message.task_id].conversations
        rows = len(sample.message.hidden_LD)
        rendered = render(toy.tokenizer, conversation, message=rows)
        assert ids_T[: len(rendered.token_ids)].tolist() == rendered.token_ids
        assert slots_T.nonzero().flatten().tolist() == list(rendered.slots)


@pytest.mark.parametrize("curriculum", ["plan_first", "latents_first"])
def test_mixed_slots_hold_the_right_plan_tokens_and_rows(toy: Toy, curriculum: str) -> None:
    config = TrainConfig(steps=8, batch_size=16, curriculum=curriculum, none_share=0.0)
    course = Course(toy.material, config, toy.tokenizer, seed=1)
    sample = next(s for s in step(course) if s.kind is Kind.OWN)._replace(rate=0.5)
    batch = collate(course, [sample], config)
    assert batch.own is not None
    assert batch.own.messages is not None
    assert sample.message is not None
    rows, plan = len(sample.message.hidden_LD), sample.plan_ids.tolist()
    half_plan, half_rows = round(len(plan) / 2), round(rows / 2)
    start = sample.conversation.slot
    taken = batch.own.messages.hidden_MLD[batch.own.messages.kept_ML]
    slots = (batch.own.slots_BT[0].nonzero().flatten() - start).tolist()
    ids = batch.own.ids_BT[0, start:].tolist()
    if curriculum == "plan_first":
        assert ids[:half_plan] == plan[:half_plan]
        assert slots == list(range(half_plan, half_plan + rows - half_rows))
        assert torch.equal(taken, sample.message.hidden_LD[half_rows:].float())
    else:
        assert slots == list(range(half_rows))
        assert ids[half_rows : half_rows + len(plan) - half_plan] == plan[half_plan:]
        assert torch.equal(taken, sample.message.hidden_LD[:half_rows].float())


def test_matched_and_mismatched_branches_share_the_rate(course: Course) -> None:
    """Guards against the published code, which reused the rates of the step before."""
    for number in range(8):
        samples = step(course, number)
        batch = collate(course, samples)
        own = [sample for sample in samples if sample.kind is Kind.OWN]
        assert batch.mismatched is not None
        for slots_T, sample in zip(batch.mismatched.slots_BT, own, strict=True):
            assert sample.negative is not None
            rows = len(sample.negative.hidden_LD)
            assert int(slots_T.sum()) == rows - round(sample.rate * rows)


def test_branches_whose_loss_has_no_weight_are_not_built(course: Course) -> None:
    config = TrainConfig(separation_weight=0.0, alignment_kl_weight=0.0)
    batch = collate(course, step(course), config)
    assert batch.plan is None
    assert batch.mismatched is None


def test_a_batch_moves_whole(course: Course) -> None:
    batch = collate(course, step(course)).to("meta")
    assert batch.own is not None
    assert batch.own.messages is not None
    assert batch.own.ids_BT.device.type == "meta"
    assert batch.own.messages.kept_ML.device.type == "meta"
    assert batch.totals == course.totals[0]
