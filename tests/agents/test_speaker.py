"""Tasks in, messages out: what does not fit is cut, and what fails costs itself alone."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from interlat.agents.speaker import Speaker
from interlat.config import CollectConfig
from interlat.latents.message import Message
from interlat.models.load import load_causal_lm
from interlat.tasks import Task

CONFIG = CollectConfig(batch_size=8, max_new_tokens=12, store_dtype="float32")
TASKS = [
    Task(f"t{i}", "alfworld", "train", f"find {'the mug and ' * (i % 5)}plate {i}")
    for i in range(20)
]


@pytest.fixture
def sender(tiny_checkpoint: Path) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    return load_causal_lm(str(tiny_checkpoint))


@pytest.fixture
def watch(sender) -> Iterator[Callable[[Callable[[torch.Tensor], object]], list[int]]]:
    """Look at the input of every forward pass; gives the sizes of the batches so far."""
    handles = []

    def watch(look: Callable[[torch.Tensor], object] = lambda ids: None) -> list[int]:
        sizes: list[int] = []

        def hook(module, args, kwargs):
            sizes.append(len(kwargs["input_ids"]))
            look(kwargs["input_ids"])

        handles.append(sender[0].register_forward_pre_hook(hook, with_kwargs=True))
        return sizes

    yield watch
    for handle in handles:
        handle.remove()


def said(sender, config: CollectConfig = CONFIG, tasks: list[Task] = TASKS) -> dict[str, Message]:
    outcomes = Speaker(*sender, config, seed=1).messages(tasks)
    assert all(isinstance(outcome, Message) for outcome in outcomes.values())
    return outcomes


def test_running_out_of_memory_halves_the_batch_for_good(sender, watch):
    whole = said(sender)

    def need_memory(ids_BT: torch.Tensor) -> None:
        if len(ids_BT) > 3:
            torch.empty(2**60)

    sizes = watch(need_memory)
    speaker = Speaker(*sender, CONFIG, seed=1)
    halved = speaker.messages(TASKS)
    assert speaker.limit == 2
    assert sizes[:3] == [8, 4, 2]
    assert max(sizes[2:]) <= 4
    for task_id, message in whole.items():
        assert halved[task_id].plan == message.plan
        torch.testing.assert_close(halved[task_id].hidden_LD, message.hidden_LD, rtol=0, atol=1e-5)
    before = len(sizes)
    speaker.messages(TASKS)
    assert max(sizes[before:]) == 2


def test_an_error_of_the_model_costs_the_task_that_it_is_about(sender, watch):
    lamp = sender[1].convert_tokens_to_ids("lamp")
    whole = said(sender)

    def stumble(ids_BT: torch.Tensor) -> None:
        if ids_BT.shape[1] > 1 and (ids_BT == lamp).any():
            torch.zeros(2) @ torch.zeros(3)

    watch(stumble)
    bad = Task("bad", "alfworld", "train", "find lamp")
    speaker = Speaker(*sender, CONFIG, seed=1)
    outcomes = speaker.messages([*TASKS[:5], bad, *TASKS[5:]])
    assert outcomes.pop("bad").startswith("task bad: the model failed: ")
    assert {i: m.plan for i, m in outcomes.items()} == {i: m.plan for i, m in whole.items()}
    assert speaker.limit == CONFIG.batch_size


def test_a_mistake_in_the_program_is_not_a_failed_task(sender, watch):
    def mistake(ids_BT: torch.Tensor) -> None:
        raise NotImplementedError

    watch(mistake)
    with pytest.raises(NotImplementedError):
        Speaker(*sender, CONFIG, seed=1).messages(TASKS)


def test_prompts_that_cannot_be_asked_are_told_before_and_left_out(sender, watch):
    sizes = watch()
    long = Task("long", "alfworld", "train", "mug " * 300)
    speaker = Speaker(*sender, CONFIG, seed=1)
    lengths, failures = speaker.prepare([TASKS[0], long])
    assert not sizes
    assert failures == {
        "long": f"task long: its prompt has {lengths[1]} tokens; the model reads 1 to 255 and "
        "replies"
    }
    outcomes = speaker.messages([long, TASKS[0]])
    assert outcomes["long"] == failures["long"]
    assert isinstance(outcomes["t0"], Message)
    assert [speaker.longest_reply(prompt) for prompt in (10, 250, 300)] == [12, 6, 0]


def test_a_tokenizer_of_another_model_is_told(sender):
    model, tokenizer = sender
    tokenizer.add_tokens(["teapot"])
    speaker = Speaker(model, tokenizer, CONFIG, seed=1)
    failures = speaker.prepare([Task("t", "alfworld", "train", "find teapot")]).failures
    assert "the tokenizer is another model's" in failures["t"]


def test_states_that_do_not_fit_are_a_failure_with_what_to_do(sender):
    with torch.no_grad():
        sender[0].model.norm.weight *= 1e6
    half = Speaker(*sender, replace(CONFIG, store_dtype="float16"), seed=1).messages(TASKS[:2])
    assert "task t0: " in half["t0"]
    assert "--store_dtype float32" in half["t0"]
    assert isinstance(Speaker(*sender, CONFIG, seed=1).messages(TASKS[:2])["t0"], Message)


def test_without_a_batch_size_as_many_as_fit_are_spoken_together(sender, watch):
    config = replace(CONFIG, batch_size=None)
    speaker = Speaker(*sender, config, seed=1)
    speaker.prepare(TASKS)
    sizes = watch()
    together = speaker.messages(TASKS)
    assert sizes[0] == len(TASKS)
    for task_id, message in said(sender).items():
        assert together[task_id].plan == message.plan


def test_the_rows_that_are_kept_follow_the_settings(sender):
    whole = said(sender)
    first = said(sender, replace(CONFIG, first_k=4))
    last = said(sender, replace(CONFIG, max_hidden_states=4))
    both = said(sender, replace(CONFIG, first_k=4, max_hidden_states=3))
    for task_id, message in whole.items():
        assert torch.equal(first[task_id].hidden_LD, message.hidden_LD[:4])
        assert torch.equal(last[task_id].hidden_LD, message.hidden_LD[-4:])
        assert torch.equal(both[task_id].hidden_LD, message.hidden_LD[:4][-3:])
        assert first[task_id].n_tokens == last[task_id].n_tokens == message.n_tokens


def test_a_question_keeps_its_type_and_level(sender):
    question = Task("q", "math", "test", "find 2", env_args={"type": "Algebra", "level": "Level 1"})
    message = said(sender, tasks=[question])["q"]
    assert (message.task_type, message.task_level) == ("Algebra", "Level 1")
