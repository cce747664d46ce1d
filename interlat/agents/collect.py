"""Collecting messages: every task's plan is spoken once, and its states go to a latent store.

Tasks are cut, in order, into pieces of a few batches; a piece is spoken by one process, its prompts
sorted by length into batches, and is finished or not there. What a piece holds depends on the tasks
and the settings alone, so a killed collection that is started again, with any number of processes,
ends with the same bytes as one that ran through. Nothing is gathered: each process writes its own
pieces.
"""

import hashlib
import json
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from transformers import PreTrainedModel, PreTrainedTokenizerBase

import interlat
from interlat import distributed
from interlat.config import CollectConfig, UserError
from interlat.latents.chance import task_generator
from interlat.latents.message import Message
from interlat.latents.store import LatentStore
from interlat.latents.writer import LatentWriter
from interlat.models.load import public_name, tokenizer_digest, weights_digest
from interlat.models.sender import context_length, encode_prompts, output_head, sender_prompt, speak
from interlat.tasks import Task

PIECE_BATCHES = 4
"""Batches in a piece: what a kill can cost each process at most."""
PACKAGES = ("datasets", "numpy", "pyarrow", "tokenizers", "torch", "transformers")


class CollectionSummary(NamedTuple):
    """What a collection gave; all but the last is the same however it ran."""

    messages: int
    rows: int
    mean_length: float
    """Rows a message."""
    finished: float
    """Share of plans that ended by themselves rather than at max_new_tokens."""
    plan_exact: float | None
    """Share of plans equal to the task's own, token for token; None when sampled or without."""
    tokens_per_second: float = 0.0
    """Speed of this process in this run; 0 when nothing was left to do."""

    def reproducible(self) -> dict[str, float]:
        """What is the same in every run, for a metrics file."""
        values = self._asdict()
        del values["tokens_per_second"]
        return {name: value for name, value in values.items() if value is not None}


def collect(
    tasks: Sequence[Task],
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    output: Path,
    config: CollectConfig,
    *,
    seed: int,
    sender: str,
    revision: str | None = None,
    on_progress: Callable[[int, str], None] = lambda done, note: None,
) -> CollectionSummary:
    """Write the latent store of these tasks at ``output``; every process of the job calls it.

    sender: path or hub id of the model, for its name in the manifest. on_progress: called with the
    number of tasks finished since the last call, and a note.
    Work that was begun with the same model, tasks and settings is resumed; other work is dropped.
    Raises UserError for tasks that cannot be asked, states that cannot be stored, a taken output.
    """
    prompts = _prompts(tasks, model, tokenizer, config)
    work = {
        "model": {
            "name": public_name(sender),
            "revision": revision,
            "dtype": str(model.dtype).removeprefix("torch."),
            "weights_sha256": weights_digest(model),
        },
        "tokenizer_sha256": tokenizer_digest(tokenizer),
        "prompt": {"template": config.prompt_template, "sha256": _digest(prompts)},
        "tasks": {"count": len(tasks), "sha256": _digest([task.task_id for task in tasks])},
        "generation": _generation(config, seed),
        "packages": {
            "interlat": interlat.__version__,
            **{name: version(name) for name in PACKAGES},
        },
    }
    width = output_head(model).weight.shape[1]
    writer = LatentWriter(output, work, width=width, dtype=config.store_dtype)
    published = writer.is_published
    distributed.barrier()
    if distributed.is_main():
        writer.claim()
    try:
        speed = 0.0
        if published:
            on_progress(len(tasks), "already collected")
        else:
            distributed.barrier()
            speaker = _Speaker(model, tokenizer, config, seed)
            speed = _write_pieces(tasks, prompts, writer, speaker, on_progress)
            distributed.barrier()
        if distributed.is_main():
            writer.discard() if published else writer.publish(len(_pieces(len(tasks), config)))
        distributed.barrier()
    finally:
        writer.release()
    return _summary(tasks, tokenizer, LatentStore(output), config)._replace(tokens_per_second=speed)


class _Speaker(NamedTuple):
    """The sender with its settings."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    config: CollectConfig
    seed: int

    def messages(self, tasks: Sequence[Task], prompts: Sequence[list[int]]) -> list[Message]:
        """The messages of some tasks, in order; prompts of like length share a batch."""
        by_length = sorted(range(len(tasks)), key=lambda i: len(prompts[i]))
        messages: dict[int, Message] = {}
        for start in range(0, len(tasks), self.config.batch_size):
            batch = by_length[start : start + self.config.batch_size]
            generators = [task_generator(self.seed, tasks[i].task_id, "sender") for i in batch]
            spoken = speak(
                self.model,
                self.tokenizer,
                [prompts[i] for i in batch],
                self.config,
                generators=generators,
            )
            for i, utterance in zip(batch, spoken, strict=True):
                messages[i] = Message(
                    task_id=tasks[i].task_id,
                    hidden_LD=utterance.hidden_LD[-self.config.max_hidden_states :],
                    plan=utterance.plan,
                    task=tasks[i].instruction,
                    n_tokens=len(utterance.token_ids),
                    finish_reason=utterance.finish_reason,
                )
        return [messages[i] for i in range(len(tasks))]


def _write_pieces(
    tasks: Sequence[Task],
    prompts: Sequence[list[int]],
    writer: LatentWriter,
    speaker: _Speaker,
    on_progress: Callable[[int, str], None],
) -> float:
    """Write this process's part of the missing pieces; returns its tokens a second."""
    pieces = _pieces(len(tasks), speaker.config)
    missing = [number for number in range(len(pieces)) if not writer.has_piece(number)]
    shown = len(tasks) - sum(len(pieces[number]) for number in missing)
    on_progress(shown, "resumed" if shown else "")
    distributed.barrier()  # every process has its list before the first new piece appears
    tokens, start, speed = 0, time.monotonic(), 0.0
    for i in distributed.shard(len(missing)):
        mine = pieces[missing[i]]
        messages = speaker.messages([tasks[j] for j in mine], [prompts[j] for j in mine])
        writer.write_piece(missing[i], messages)
        tokens += sum(message.n_tokens for message in messages)
        speed = tokens / (time.monotonic() - start)
        done = sum(len(piece) for number, piece in enumerate(pieces) if writer.has_piece(number))
        on_progress(done - shown, f"{speed:,.0f} tokens/s a process")
        shown = done
    return speed


def _pieces(count: int, config: CollectConfig) -> list[range]:
    size = PIECE_BATCHES * config.batch_size
    return [range(start, min(start + size, count)) for start in range(0, count, size)]


def _prompts(
    tasks: Sequence[Task],
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    config: CollectConfig,
) -> list[list[int]]:
    """Prompts as token ids; UserError for one that is empty or fills the model's context."""
    texts = [sender_prompt(task, config.prompt_template) for task in tasks]
    prompts = encode_prompts(tokenizer, texts) if texts else []
    if not prompts:
        raise UserError("there is no task to collect a message for")
    context = context_length(model)
    for task, prompt in zip(tasks, prompts, strict=True):
        if not prompt or (context is not None and len(prompt) >= context):
            raise UserError(
                f"task {task.task_id}: its prompt has {len(prompt)} tokens; "
                f"the model reads 1 to {(context or 0) - 1} and replies"
            )
    return prompts


def _generation(config: CollectConfig, seed: int) -> dict[str, Any]:
    """What decides the tokens, the rows and their rounding; greedy choice has no seed."""
    names = ["max_new_tokens", "repetition_penalty", "batch_size", "max_hidden_states", "do_sample"]
    names += ["temperature", "top_p", "top_k"] if config.do_sample else []
    settings = {name: getattr(config, name) for name in names}
    return {**settings, "seed": seed} if config.do_sample else settings


def _summary(
    tasks: Sequence[Task],
    tokenizer: PreTrainedTokenizerBase,
    store: LatentStore,
    config: CollectConfig,
) -> CollectionSummary:
    messages = list(store)
    rows = sum(len(message.hidden_LD) for message in messages)
    pairs = [(m.plan, t.plan) for m, t in zip(messages, tasks, strict=True) if t.plan is not None]
    exact = None
    if pairs and not config.do_sample:
        texts = [text for pair in pairs for text in pair]
        ids = tokenizer(texts, add_special_tokens=False)["input_ids"]
        exact = sum(map(list.__eq__, ids[::2], ids[1::2])) / len(pairs)
    return CollectionSummary(
        messages=len(messages),
        rows=rows,
        mean_length=rows / len(messages),
        finished=sum(message.finish_reason == "eos" for message in messages) / len(messages),
        plan_exact=exact,
    )


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()
