"""The course: which sample stands in which step."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from interlat.chat import PlainText, render
from interlat.config import TrainConfig, UserError
from interlat.latents.store import LatentStore
from interlat.training.course import Course, Kind, with_steps
from training.toy import Toy, make_toy, toy_message, toy_task, write_store

CONFIG = TrainConfig(
    steps=40, batch_size=10, none_share=0.2, uninformed_share=0.1, mismatched_share=0.15
)


def make_course(toy: Toy, config: TrainConfig = CONFIG, seed: int = 1) -> Course:
    return Course(toy.material, config, toy.tokenizer, seed=seed)


@pytest.fixture(scope="module")
def course(toy: Toy) -> Course:
    return make_course(toy)


def test_every_step_has_its_share_of_every_kind(course: Course) -> None:
    assert len(course) == 400
    kinds_SB = np.array([course[i].kind for i in range(400)]).reshape(40, 10)
    for kind, share in zip(Kind, (5.5, 2, 1, 1.5), strict=True):
        counts_S = (kinds_SB == kind).sum(axis=1)
        assert set(counts_S.tolist()) <= {int(np.floor(share)), int(np.ceil(share))}
        assert counts_S.mean() == share
    assert course.counts() == {"own": 220, "none": 80, "uninformed": 40, "mismatched": 60}


def test_own_samples_pair_a_tasks_play_with_its_message(course: Course, toy: Toy) -> None:
    tasks = {task.task_id: task for task in toy.material.tasks}
    seen = set()
    for i in range(len(course)):
        sample = course[i]
        if sample.kind is Kind.OWN:
            assert sample.message is not None
            task = tasks[sample.message.task_id]
            expected = render(toy.tokenizer, task.conversations, message=0)
            assert sample.conversation.ids_T.tolist() == expected.token_ids
            seen.add(task.task_id)
    assert seen == set(tasks)


def test_a_negative_is_never_the_samples_own_message(course: Course) -> None:
    """Guards against the published code, whose negative was often the sample itself."""
    own = [s for s in (course[i] for i in range(len(course))) if s.kind is Kind.OWN]
    for sample in own:
        assert sample.message is not None
        assert sample.negative is not None
        assert sample.negative.task_id != sample.message.task_id
    assert len({sample.negative.task_id for sample in own if sample.negative}) > 40


def test_mismatched_samples_hear_another_task_and_search(course: Course, toy: Toy) -> None:
    searching = {
        tuple(render(toy.tokenizer, task.conversations, message=0).token_ids): task.task_id
        for task in toy.material.searching
    }
    for i in range(len(course)):
        sample = course[i]
        if sample.kind is Kind.MISMATCHED:
            assert sample.message is not None
            assert sample.message.task_id in toy.material.messages
            assert "find cup " in sample.message.plan
            assert searching[tuple(sample.conversation.ids_T.tolist())] != sample.message.task_id


def test_samples_without_a_message_have_no_markers(course: Course, toy: Toy) -> None:
    unmarked = {
        tuple(render(toy.tokenizer, task.conversations, message=None).token_ids)
        for task in toy.material.searching
    }
    silent = [s for s in (course[i] for i in range(len(course))) if s.kind is Kind.NONE]
    assert silent
    for sample in silent:
        assert sample.message is None
        assert tuple(sample.conversation.ids_T.tolist()) in unmarked


def test_uninformed_samples_hear_a_sender_that_knows_nothing(course: Course) -> None:
    plans = {
        sample.message.plan
        for sample in (course[i] for i in range(len(course)))
        if sample.kind is Kind.UNINFORMED and sample.message
    }
    assert plans == {"find cup"}


def test_plan_tokens_are_those_of_the_plan_in_a_prompt(course: Course, toy: Toy) -> None:
    for i in range(50):
        sample = course[i]
        if sample.message is not None:
            turns = [{"from": "human", "value": "find the cup"}]
            rendered = render(toy.tokenizer, turns, message=sample.message.plan)
            expected = rendered.token_ids[rendered.slots.start : rendered.slots.stop]
            assert sample.plan_ids.tolist() == expected


def test_totals_are_those_of_the_samples(course: Course) -> None:
    for step in (0, 17, 39):
        samples = [course[step * 10 + i] for i in range(10)]
        assert {sample.step for sample in samples} == {step}
        rows = [len(sample.conversation.supervised_N) for sample in samples]
        own = [sample.kind is Kind.OWN for sample in samples]
        assert course.totals[step] == (
            sum(rows),
            sum(r for r, o in zip(rows, own, strict=True) if o),
            sum(own),
            sum(sample.message is not None for sample in samples),
        )


def test_a_seed_gives_one_course(course: Course, toy: Toy) -> None:
    def outline(of: Course) -> list[object]:
        return [
            (s.kind, s.rate, s.message and s.message.task_id, s.negative and s.negative.task_id)
            for s in (of[i] for i in range(len(of)))
        ]

    assert outline(course) == outline(make_course(toy))
    assert outline(course) != outline(make_course(toy, seed=2))


def test_samples_of_like_length_stand_together(course: Course) -> None:
    lengths_SB = np.array(
        [[len(course[s * 10 + b].conversation.ids_T) for b in range(10)] for s in range(40)],
        dtype=float,
    )
    searching_SB = np.array(
        [[course[s * 10 + b].kind is Kind.NONE for b in range(10)] for s in range(40)]
    )
    spreads = [
        np.ptp(lengths_SB[s][searching_SB[s]]) for s in range(40) if searching_SB[s].sum() > 1
    ]
    assert np.mean(spreads) < 0.4 * np.ptp(lengths_SB[searching_SB])


def test_tasks_without_latents_are_counted_and_named(toy: Toy) -> None:
    extra = [toy_task(i, informed=True) for i in range(60)]
    material = replace(toy.material, tasks=extra)
    with pytest.raises(UserError, match=r"no latents for 12 of 60 tasks \(toy-48, toy-49, toy-50 "):
        make_course(toy._replace(material=material))


def test_tasks_without_latents_may_be_left_out(toy: Toy) -> None:
    extra = [toy_task(i, informed=True) for i in range(60)]
    lacking = toy._replace(material=replace(toy.material, tasks=extra))
    course = make_course(lacking, replace(CONFIG, allow_missing=True))
    assert course.without_latents == 12
    assert len(course.material.tasks) == 48
    unheard = replace(toy.material, tasks=extra[48:])
    with pytest.raises(UserError, match="no latents for 12 of 12 tasks"):
        make_course(toy._replace(material=unheard), replace(CONFIG, allow_missing=True))


def test_long_messages_are_cut_with_their_plans_and_counted(toy: Toy) -> None:
    whole, cut = make_course(toy), make_course(toy, replace(CONFIG, max_message_length=2))
    assert whole.truncated == 0
    samples = [whole[i] for i in range(len(whole))]
    heard = {(s.kind is Kind.UNINFORMED, s.message.task_id) for s in samples if s.message}
    heard |= {(False, s.negative.task_id) for s in samples if s.negative}
    assert cut.truncated == len(heard)
    for i in range(50):
        long, short = whole[i], cut[i]
        if long.message is None or short.message is None:
            continue
        assert len(short.message.hidden_LD) == 2
        assert short.message.hidden_LD.tolist() == long.message.hidden_LD[:2].tolist()
        share = 2 / len(long.message.hidden_LD)
        kept = round(share * len(long.plan_ids))
        assert short.plan_ids.tolist() == long.plan_ids[:kept].tolist()


def test_a_share_of_messages_is_cut_at_random_lengths(toy: Toy) -> None:
    def lengths(config: TrainConfig) -> list[int]:
        course = make_course(toy, config)
        heard = [course[i].message for i in range(len(course))]
        return [len(message.hidden_LD) for message in heard if message]

    whole, cut = lengths(CONFIG), lengths(replace(CONFIG, truncate_share=0.5))
    shorter = [c < w for c, w in zip(cut, whole, strict=True)]
    assert 0.25 < np.mean(shorter) < 0.5
    assert min(cut) == 1
    assert cut == lengths(replace(CONFIG, truncate_share=0.5))


def test_epochs_are_passes_over_the_tasks() -> None:
    config = TrainConfig(batch_size=10, none_share=0.2, uninformed_share=0.0, epochs=3)
    assert with_steps(config, 100).steps == 38
    assert with_steps(replace(config, epochs=None), 100) == replace(config, epochs=None)
    with pytest.raises(UserError, match=r"train\.epochs: no sample has its task's message"):
        with_steps(replace(config, none_share=1.0), 100)


def test_actors_of_every_kind_learn_the_same_play_in_the_same_steps(toy: Toy) -> None:
    def course_of(kind: str) -> Course:
        return Course(toy.material, CONFIG, toy.tokenizer, seed=1, kind=kind)

    def said(course: Course) -> list[list[int]]:
        samples = [course[i].conversation for i in range(len(course))]
        return [s.ids_T[s.supervised_N].tolist() for s in samples]

    latent = course_of("latent")
    assert latent[0].kind == course_of("cot")[0].kind
    for kind in ("text", "cot", "none"):
        course = course_of(kind)
        assert said(course) == said(latent)
        assert course.totals == latent.totals
        assert all(course[i].message is None for i in range(40))
        assert all(course[i].negative is None for i in range(40))


def test_a_kind_decides_what_stands_in_the_prompt(toy: Toy) -> None:
    tasks = {task.task_id: task for task in toy.material.tasks}
    latent = Course(toy.material, CONFIG, toy.tokenizer, seed=1)
    courses = {
        kind: Course(toy.material, CONFIG, toy.tokenizer, seed=1, kind=kind)
        for kind in ("text", "cot", "none")
    }
    own = [i for i in range(100) if latent[i].kind is Kind.OWN]
    for i in own:
        assert latent[i].message is not None
        task = tasks[latent[i].message.task_id]
        text, cot, none = (courses[kind][i] for kind in ("text", "cot", "none"))
        assert text.conversation.ids_T.tolist() == latent[i].conversation.ids_T.tolist()
        assert text.plan_ids.tolist() == latent[i].plan_ids.tolist()
        told = render(toy.tokenizer, task.conversations, message=PlainText(task.plan or ""))
        assert cot.conversation.ids_T.tolist() == told.token_ids
        silent = render(toy.tokenizer, task.conversations, message=None)
        assert none.conversation.ids_T.tolist() == silent.token_ids
        assert not len(cot.plan_ids)
        assert not len(none.plan_ids)


def test_informed_and_uninformed_messages_are_of_one_sender(toy: Toy) -> None:
    def of(store: LatentStore, digest: str) -> LatentStore:
        made = LatentStore(store.path)
        assert made.manifest is not None
        made.manifest = {**made.manifest, "model": {"name": "s", "weights_sha256": digest}}
        return made

    assert toy.material.uninformed is not None
    stores = {
        "messages": of(toy.material.messages, "a"),
        "uninformed": of(toy.material.uninformed, "b"),
    }
    with pytest.raises(UserError, match="are of two senders"):
        make_course(toy._replace(material=replace(toy.material, **stores)))


def test_messages_of_two_widths_are_refused(toy: Toy, tmp_path: Path) -> None:
    other = write_store(tmp_path / "s", [toy_message(toy_task(1, informed=False), 16)], 16)
    material = replace(toy.material, uninformed=other)
    with pytest.raises(UserError, match="have width 32, the uninformed ones 16"):
        make_course(toy._replace(material=material))


def test_a_share_needs_its_material(toy: Toy) -> None:
    with pytest.raises(UserError, match=r"train\.uninformed_share needs the latents"):
        make_course(toy._replace(material=replace(toy.material, uninformed=None)))
    with pytest.raises(UserError, match="no task with the searching expert's play"):
        make_course(toy._replace(material=replace(toy.material, searching=[])))


def test_a_conversation_that_teaches_nothing_is_named(toy: Toy) -> None:
    first, *rest = toy.material.tasks
    muted = tuple({**turn, "loss": False} for turn in first.conversations)
    material = replace(toy.material, tasks=[replace(first, conversations=muted), *rest])
    with pytest.raises(UserError, match="no supervised token in the conversations of toy-0"):
        make_course(toy._replace(material=material))


def test_one_message_cannot_be_mismatched(tmp_path: Path) -> None:
    toy = make_toy(tmp_path, tasks=1)
    with pytest.raises(UserError, match="at least 2 tasks with latents"):
        make_course(toy)
