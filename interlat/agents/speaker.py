"""A sender with its settings: tasks in, messages out.

Replies are spoken in batches of prompts of like length, as many at once as fit. Whoever turns tasks
into messages in this form can be collected from: ``collect`` asks for nothing else.
"""

import logging
from collections.abc import Sequence
from typing import Any, NamedTuple

from accelerate.utils.memory import clear_device_cache, should_reduce_batch_size
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from interlat.config import CollectConfig
from interlat.latents.chance import task_generator
from interlat.latents.columns import unstorable
from interlat.latents.message import Message
from interlat.models.capacity import replies_that_fit
from interlat.models.sender import (
    context_length,
    encode_prompts,
    output_head,
    sender_prompt,
    speak,
    vocabulary_size,
)
from interlat.tasks import Task

ENCODED_AT_ONCE = 1024
Outcome = Message | str
"""A task's message, or a sentence that says why there is none."""

_log = logging.getLogger(__name__)


class Prompts(NamedTuple):
    """What the sender is asked."""

    lengths: list[int]
    """Tokens of each task's prompt."""
    failures: dict[str, str]
    """Task id -> reason, of the tasks that cannot be asked."""


class Question(NamedTuple):
    """A task and what the sender is asked about it, as token ids."""

    task: Task
    prompt: list[int]


class Speaker:
    """Asks a causal language model for its reply to tasks."""

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        config: CollectConfig,
        seed: int,
    ) -> None:
        self.model, self.tokenizer = model, tokenizer
        self.config, self.seed = config, seed
        self.limit = config.batch_size or 1
        """Replies spoken at once, at most; falls when memory runs out, and stays there."""

    @property
    def width(self) -> int:
        """Of the messages."""
        return output_head(self.model).weight.shape[1]

    def provenance(self) -> dict[str, Any]:
        """What decides the tokens, the rows and their rounding; greedy choice has no seed."""
        config = self.config
        names = ["max_new_tokens", "repetition_penalty", "batch_size", "first_k"]
        names += ["max_hidden_states", "do_sample"]
        names += ["temperature", "top_p", "top_k"] if config.do_sample else []
        generation = {name: getattr(config, name) for name in names}
        return {"generation": generation | ({"seed": self.seed} if config.do_sample else {})}

    def prepare(self, tasks: Sequence[Task]) -> Prompts:
        """Look at all tasks before the first is asked; without a batch size, find one that fits."""
        lengths: list[int] = []
        failures: dict[str, str] = {}
        longest = 0
        for start in range(0, len(tasks), ENCODED_AT_ONCE):
            for question in self._questions(tasks[start : start + ENCODED_AT_ONCE]):
                lengths.append(len(question.prompt))
                if reason := self._unaskable(question):
                    failures[question.task.task_id] = reason
                else:
                    longest = max(longest, len(question.prompt))
        if self.config.batch_size is None and longest:
            self.limit = self._fitting(longest)
        return Prompts(lengths, failures)

    def messages(self, tasks: Sequence[Task]) -> dict[str, Outcome]:
        """What becomes of each task, by task id.

        A failure is a prompt that cannot be asked, an error of the model, or states that cannot be
        stored. The tokens of a message depend on nothing but its task, the model and the settings.
        """
        outcomes: dict[str, Outcome] = {}
        waiting = []
        for question in self._questions(tasks):
            if reason := self._unaskable(question):
                outcomes[question.task.task_id] = reason
            else:
                waiting.append(question)
        waiting.sort(key=lambda question: len(question.prompt))
        while waiting:
            batch, waiting = waiting[: self.limit], waiting[self.limit :]
            outcomes |= self._asked(batch)
        return outcomes

    def longest_reply(self, prompt: int) -> int:
        """Tokens that a reply to a prompt of this length can have at most."""
        context = context_length(self.model)
        room = self.config.max_new_tokens if context is None else context - prompt
        return max(0, min(self.config.max_new_tokens, room))

    def _questions(self, tasks: Sequence[Task]) -> list[Question]:
        texts = [sender_prompt(task, self.config.prompt_template) for task in tasks]
        prompts = encode_prompts(self.tokenizer, texts, self.config.chat_template)
        return list(map(Question, tasks, prompts))

    def _unaskable(self, question: Question) -> str | None:
        (task, prompt), context = question, context_length(self.model)
        if not prompt or (context is not None and len(prompt) >= context):
            most = "any number" if context is None else f"1 to {context - 1}"
            return (
                f"task {task.task_id}: its prompt has {len(prompt)} tokens; "
                f"the model reads {most} and replies"
            )
        if max(prompt) >= vocabulary_size(self.model):
            return (
                f"task {task.task_id}: its prompt has token {max(prompt)}, the model knows "
                f"{vocabulary_size(self.model)}; the tokenizer is another model's"
            )
        return None

    def _asked(self, batch: Sequence[Question]) -> dict[str, Outcome]:
        """Outcomes by task id. A batch that the model fails on is asked again in halves, so that a
        task which it cannot do costs itself alone."""
        try:
            return self._spoken(batch)
        except (NotImplementedError, RecursionError):
            raise  # a mistake in the program, though Python counts it among the next kind
        except RuntimeError as error:
            too_large, reason = should_reduce_batch_size(error), str(error).strip().split("\n")[0]
        half = len(batch) // 2
        if not half:
            task_id = batch[0].task.task_id
            return {task_id: f"task {task_id}: the model failed: {reason}"}
        if too_large:
            clear_device_cache()
            self.limit = min(self.limit, half)
            _log.warning("out of memory: going on with %d tasks at once", self.limit)
        return self._asked(batch[:half]) | self._asked(batch[half:])

    def _spoken(self, batch: Sequence[Question]) -> dict[str, Outcome]:
        config = self.config
        spoken = speak(
            self.model,
            self.tokenizer,
            [question.prompt for question in batch],
            config,
            generators=[task_generator(self.seed, q.task.task_id, "sender") for q in batch],
        )
        outcomes: dict[str, Outcome] = {}
        for (task, _), utterance in zip(batch, spoken, strict=True):
            message = Message(
                task_id=task.task_id,
                hidden_LD=utterance.hidden_LD[-config.max_hidden_states :],
                plan=utterance.plan,
                task=task.instruction,
                n_tokens=len(utterance.token_ids),
                finish_reason=utterance.finish_reason,
                task_type=str(task.env_args.get("type", "")),
                task_level=str(task.env_args.get("level", "")),
            )
            outcomes[task.task_id] = unstorable(message, config.store_dtype) or message
        return outcomes

    def _fitting(self, longest: int) -> int:
        reply = self.longest_reply(longest)
        rows = reply if self.config.first_k is None else min(reply, self.config.first_k)
        return replies_that_fit(self.model, longest, reply, rows)
