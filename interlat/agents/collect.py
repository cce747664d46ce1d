"""Collecting messages: every task's plan is spoken once, and its states go to a latent store.

Tasks are cut, in order, into pieces; a piece is spoken by one process, and is finished or not
there. Which tasks it holds depends on the settings alone, so a killed collection that is started
again, with any number of processes, ends with the same store as one that ran through: to the byte
where a batch size is given. Without one, memory decides how many tasks are spoken together, and
states may differ in rounding. Nothing is gathered: each process writes its own pieces.

A task that fails is part of its piece, as a reason in a message's place, and is not asked again by
the same work. More than ``max_errors`` of them end the collection; the piece that went too far is
not kept, so that the next start asks its tasks again.
"""

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from rich.filesize import decimal
from transformers import PreTrainedModel, PreTrainedTokenizerBase

import interlat
from interlat import distributed
from interlat.agents.compressed import CompressedSpeaker
from interlat.agents.speaker import Speaker
from interlat.config import CollectConfig, UserError
from interlat.latents.columns import STORE_DTYPES
from interlat.latents.message import Message
from interlat.latents.store import LatentStore
from interlat.latents.writer import LatentWriter
from interlat.models.compressor import Compressor
from interlat.models.load import public_name, tokenizer_digest, weights_digest
from interlat.models.sender import sender_prompt
from interlat.tasks import Task

PIECE_BATCHES = 4
"""Batches in a piece: what a kill can cost each process at most."""
PIECE_TASKS = 32
"""Tasks in a piece where no batch size is given; several are spoken together where they fit."""
PROBED_TASKS = 64
"""Tasks that an estimate asks."""
TOLD_FAILURES = 3
LOOK_SHARE = 0.02
"""Of the time, at most, goes into looking how far the other processes are."""
PACKAGES = ("datasets", "numpy", "pyarrow", "tokenizers", "torch", "transformers")

OnProgress = Callable[[int, str], None]


class CollectionSummary(NamedTuple):
    """What a collection gave; all but the last is the same however it ran."""

    messages: int
    rows: int
    mean_length: float
    """Rows a message."""
    finished: float
    """Share of plans that ended by themselves rather than at max_new_tokens."""
    failed: int
    """Tasks without a message."""
    plan_exact: float | None
    """Share of plans equal to the task's own, token for token; None when sampled, without, or from
    a student, who says none."""
    tokens_per_second: float = 0.0
    """Speed of this process in this run; 0 when nothing was left to do."""

    def reproducible(self) -> dict[str, float]:
        """What is the same in every run, for a metrics file."""
        values = self._asdict()
        del values["tokens_per_second"]
        return {name: value for name, value in values.items() if value is not None}


class Estimate(NamedTuple):
    """What a collection would take, from a few of its tasks spoken for real."""

    tasks: int
    failed: int
    """Tasks whose prompt cannot be asked."""
    prompt_tokens: int
    new_tokens: int
    most_new_tokens: int
    """When every reply runs to its limit."""
    rows: int
    store_bytes: int
    parquet_bytes: int
    """At most: what Parquet saves on states is little."""
    seconds: float
    """At the speed of the tasks spoken; larger batches are faster."""
    processes: int
    spoken: int
    """Tasks spoken for this estimate."""

    def __str__(self) -> str:
        lines = {
            "tasks": f"{self.tasks:,}" + (f", {self.failed:,} cannot be asked" * bool(self.failed)),
            "prompt tokens": f"{self.prompt_tokens:,}",
            "new tokens": f"about {self.new_tokens:,}, at most {self.most_new_tokens:,}",
            "rows": f"about {self.rows:,}",
            "store": f"about {decimal(self.store_bytes)}",
            "data.parquet": f"about {decimal(self.parquet_bytes)}",
            "disk while joining": f"about {decimal(2 * self.store_bytes + self.parquet_bytes)}",
            "time": f"about {timedelta(seconds=round(self.seconds))} "
            f"with {self.processes} process{'es' * (self.processes > 1)}",
            "from": f"{self.spoken} tasks spoken for this estimate; nothing was written",
        }
        return "\n".join(f"{name + ':':<20}{value}" for name, value in lines.items())


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
    student: Compressor | None = None,
    on_progress: OnProgress = lambda done, note: None,
) -> CollectionSummary:
    """Write the latent store of these tasks at ``output``; every process of the job calls it.

    sender: path or hub id of the model, for its name in the manifest. student: to ask instead of
    the model, which is its own. on_progress: called by the main process with the number of tasks
    finished since the last call, and a note.
    Work that was begun with the same model, tasks and settings is resumed; other work is dropped.
    Raises UserError without tasks, for more than ``max_errors`` failed tasks and a taken output.
    """
    if not tasks:
        raise UserError("there is no task to collect a message for")
    speaker = _speaker(model, tokenizer, config, seed, student)
    unaskable = speaker.prepare(tasks).failures
    _stop_at_too_many(unaskable, len(tasks), config)
    writer = LatentWriter(
        output,
        _work(tasks, speaker, sender, revision),
        width=speaker.width,
        dtype=config.store_dtype,
        questions=any("type" in task.env_args for task in tasks),
    )
    published = writer.is_published
    distributed.barrier()
    if distributed.is_main():
        writer.claim()
    speed = 0.0
    try:
        distributed.barrier()
        if not published:
            speed = _write_pieces(tasks, writer, speaker, unaskable, on_progress)
            distributed.barrier()
            pieces = range(len(_pieces(len(tasks), config)))
            _stop_at_too_many(writer.failures(pieces), len(tasks), config)
            writer.publish(len(pieces), parquet=config.parquet)
        elif distributed.is_main():
            on_progress(len(tasks), "already collected")
            writer.discard()
        distributed.barrier()
    finally:
        writer.release()
    judged = student is None and not config.do_sample
    summary = _summary(tasks, tokenizer, LatentStore(output), judged=judged)
    return summary._replace(tokens_per_second=speed)


def estimate(
    tasks: Sequence[Task],
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    config: CollectConfig,
    *,
    seed: int,
    student: Compressor | None = None,
) -> Estimate:
    """What collecting these tasks with this many processes would take; writes nothing.

    Raises UserError when none of the tasks that it asks can be spoken.
    """
    speaker = _speaker(model, tokenizer, config, seed, student)
    lengths, unaskable = speaker.prepare(tasks)
    asked = min(len(tasks), PROBED_TASKS)
    spread = [tasks[i * len(tasks) // asked] for i in range(asked)]
    start = time.monotonic()
    outcomes = list(speaker.messages(spread).values())
    seconds = time.monotonic() - start
    spoken = [outcome for outcome in outcomes if isinstance(outcome, Message)]
    if not spoken:
        raise UserError(f"none of {asked} tasks can be spoken: {outcomes[0]}")
    tokens = sum(message.n_tokens for message in spoken)
    rows = sum(len(message.hidden_LD) for message in spoken)
    texts = sum(len(f"{m.task_id}{m.task}{m.plan}".encode()) for m in spoken)
    share = (len(tasks) - len(unaskable)) / len(spoken)
    state_bytes = spoken[0].hidden_LD.shape[1] * STORE_DTYPES[config.store_dtype].itemsize
    store_bytes = round(share * (rows * state_bytes + texts))
    return Estimate(
        tasks=len(tasks),
        failed=len(unaskable),
        prompt_tokens=sum(lengths),
        new_tokens=round(share * tokens),
        most_new_tokens=sum(map(speaker.longest_reply, lengths)),
        rows=round(share * rows),
        store_bytes=store_bytes,
        parquet_bytes=store_bytes if config.parquet else 0,
        seconds=share * seconds / distributed.world_size(),
        processes=distributed.world_size(),
        spoken=len(spoken),
    )


class _Progress:
    """What the main process shows: pieces that are there, whoever wrote them, and its own speed."""

    def __init__(
        self,
        missing: Mapping[int, range],
        writer: LatentWriter,
        number_bytes: int,
        on_progress: OnProgress,
    ) -> None:
        self._awaited = dict(missing)
        self._writer, self._number_bytes, self._on_progress = writer, number_bytes, on_progress
        self._start = self._next_look = time.monotonic()
        self._tokens = self._numbers = 0

    @property
    def speed(self) -> float:
        """Tokens a second of this process."""
        return self._tokens / (time.monotonic() - self._start)

    def add(self, messages: Sequence[Message]) -> None:
        """Count what this process has written."""
        self._tokens += sum(message.n_tokens for message in messages)
        self._numbers += sum(message.hidden_LD.numel() for message in messages)

    def show(self, failed: int, *, last: bool = False) -> None:
        """Tell the bar, unless looking at the folder again would take too much of the time."""
        began = time.monotonic()
        if not distributed.is_main() or (began < self._next_look and not last):
            return
        there = [number for number in self._awaited if self._writer.has_piece(number)]
        done = sum(len(self._awaited.pop(number)) for number in there)
        self._next_look = time.monotonic() + (time.monotonic() - began) / LOOK_SHARE
        size = decimal(self._numbers * self._number_bytes)
        others = f" in 1 of {distributed.world_size()} processes" * (distributed.world_size() > 1)
        self._on_progress(done, f"{self.speed:,.0f} tokens/s, {size}, {failed} errors{others}")


def _speaker(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    config: CollectConfig,
    seed: int,
    student: Compressor | None,
) -> Speaker:
    if student is None:
        return Speaker(model, tokenizer, config, seed)
    return CompressedSpeaker(student, config, seed)


def _write_pieces(
    tasks: Sequence[Task],
    writer: LatentWriter,
    speaker: Speaker,
    unaskable: Mapping[str, str],
    on_progress: OnProgress,
) -> float:
    """Write this process's part of the missing pieces; returns its tokens a second."""
    config = speaker.config
    pieces = _pieces(len(tasks), config)
    missing = [number for number in range(len(pieces)) if not writer.has_piece(number)]
    finished = sorted(set(range(len(pieces))) - set(missing))
    failures = {**unaskable, **writer.failures(finished)}
    _stop_at_too_many(failures, len(tasks), config)
    resumed = sum(len(pieces[number]) for number in finished)
    if distributed.is_main():
        on_progress(resumed, "resumed" if resumed else "")
    distributed.barrier()  # every process has its list before the first new piece appears
    progress = _Progress(
        {number: pieces[number] for number in missing},
        writer,
        STORE_DTYPES[config.store_dtype].itemsize,
        on_progress,
    )
    mine = [missing[i] for i in distributed.shard(len(missing))]
    while mine:
        together = max(1, speaker.limit // len(pieces[0]))
        turn, mine = mine[:together], mine[together:]
        outcomes = speaker.messages([tasks[i] for number in turn for i in pieces[number]])
        for number in turn:
            said = {tasks[i].task_id: outcomes[tasks[i].task_id] for i in pieces[number]}
            messages = [outcome for outcome in said.values() if isinstance(outcome, Message)]
            failed = {name: reason for name, reason in said.items() if isinstance(reason, str)}
            failures |= failed
            if not failed or len(failures) <= config.max_errors:
                writer.write_piece(number, messages, failed)
                progress.add(messages)
        _stop_at_too_many(failures, len(tasks), config)
        progress.show(len(failures))
    speed = progress.speed
    distributed.barrier()
    progress.show(len(failures), last=True)
    return speed


def _pieces(count: int, config: CollectConfig) -> list[range]:
    size = PIECE_TASKS if config.batch_size is None else PIECE_BATCHES * config.batch_size
    return [range(start, min(start + size, count)) for start in range(0, count, size)]


def _stop_at_too_many(failures: Mapping[str, str], count: int, config: CollectConfig) -> None:
    if len(failures) <= config.max_errors:
        return
    told = "; ".join(list(failures.values())[:TOLD_FAILURES])
    raise UserError(
        f"{len(failures)} of {count} tasks failed, collect.max_errors allows {config.max_errors}: "
        f"{told}{'; ...' * (len(failures) > TOLD_FAILURES)} (what is finished is kept; "
        "--max_errors leaves that many out)"
    )


def _work(
    tasks: Sequence[Task], speaker: Speaker, sender: str, revision: str | None
) -> dict[str, Any]:
    """What decides the content of the store, for its manifest."""
    model, config = speaker.model, speaker.config
    asked = (sender_prompt(task, config.prompt_template) for task in tasks)
    return {
        "model": {
            "name": public_name(sender),
            "revision": revision,
            "dtype": str(model.dtype).removeprefix("torch."),
            "weights_sha256": weights_digest(model),
        },
        "tokenizer_sha256": tokenizer_digest(speaker.tokenizer),
        "prompt": {
            "template": config.prompt_template,
            "chat_template": config.chat_template,
            "sha256": _digest(asked),
        },
        "tasks": {"count": len(tasks), "sha256": _digest(task.task_id for task in tasks)},
        **speaker.provenance(),
        "packages": {
            "interlat": interlat.__version__,
            **{name: version(name) for name in PACKAGES},
        },
    }


def _summary(
    tasks: Sequence[Task],
    tokenizer: PreTrainedTokenizerBase,
    store: LatentStore,
    *,
    judged: bool,
) -> CollectionSummary:
    rows = int(store.lengths.sum())
    return CollectionSummary(
        messages=len(store),
        rows=rows,
        mean_length=rows / len(store),
        finished=store.texts("finish_reason").count("eos") / len(store),
        failed=len(store.failures),
        plan_exact=_plan_exact(tasks, tokenizer, store) if judged else None,
    )


def _plan_exact(
    tasks: Sequence[Task], tokenizer: PreTrainedTokenizerBase, store: LatentStore
) -> float | None:
    known = {task.task_id: task.plan for task in tasks if task.plan is not None}
    said = zip(store.ids, store.texts("plan"), strict=True)
    pairs = [(plan, known[task_id]) for task_id, plan in said if task_id in known]
    if not pairs:
        return None
    ids = tokenizer([text for pair in pairs for text in pair], add_special_tokens=False)[
        "input_ids"
    ]
    return sum(map(list.__eq__, ids[::2], ids[1::2])) / len(pairs)


def _digest(values: Iterable[str]) -> str:
    """SHA-256 over texts, in order."""
    digest = hashlib.sha256()
    for value in values:
        digest.update(json.dumps(value).encode())
    return digest.hexdigest()
