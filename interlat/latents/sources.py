"""``hidden.source``: what is delivered to the actor in a message's place, and in what shape.

Each source is a control of its own: the true message, its text, nothing, another task's message,
noise. Chance is seeded by (seed, source, task_id), so a task's delivery is the same in every run.
Definitions: arXiv 2511.09149, section 4.1. A further source is a function and its line in SOURCES.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from interlat.config import HiddenConfig, UserError
from interlat.latents import perturb
from interlat.latents.chance import task_generator
from interlat.latents.message import Message
from interlat.latents.store import LatentStore
from interlat.tasks import Task


class Delivery(NamedTuple):
    """What the actor gets: latent rows [L, D] in float32, or a plan as text, or neither."""

    hidden_LD: Tensor | None = None
    text: str | None = None


class Request(NamedTuple):
    """One task's delivery, as a source sees it."""

    task_id: str
    messages: LatentStore
    hidden: HiddenConfig
    generator: torch.Generator

    @property
    def message(self) -> Message:
        """The task's own message."""
        return self.messages.get(self.task_id)


def deliver(
    source: str, task_id: str, store: LatentStore | None, hidden: HiddenConfig, seed: int
) -> Delivery:
    """What ``source`` brings to the actor for this task.

    task_id: the key in the store; see ``message_key``. store: None will do for source "none".
    Latent rows are then pruned, cut by percent, and reduced to k, as ``hidden`` says.
    Raises UserError for an unknown source, and where the store cannot serve it.
    """
    if source not in SOURCES:
        raise UserError(f"hidden.source {source!r} is unknown; choose one of {', '.join(SOURCES)}")
    if source == "none":
        return Delivery()
    if store is None:
        raise UserError(f"hidden.source={source} needs messages: give the store of a collection")
    return SOURCES[source](Request(task_id, store, hidden, task_generator(seed, task_id, source)))


def message_key(task: Task, store: LatentStore, hidden: HiddenConfig) -> str:
    """The key under which a task's message is looked up, by hidden.lookup_field.

    task_id; state_history_2: the third turn of its conversation (its observation in the published
    data), else its instruction; auto: the latter where the store is keyed by task text.
    """
    by_text = hidden.lookup_field == "auto" and store.key_field == "task"
    if hidden.lookup_field == "state_history_2" or by_text:
        return task.conversations[2]["value"] if len(task.conversations) > 2 else task.instruction
    return task.task_id


def data(request: Request) -> Delivery:
    """The task's own message."""
    return _latent(request, request.message, request.message.hidden_LD.float())


def text(request: Request) -> Delivery:
    """The plan of the task's own message, in words."""
    return Delivery(text=request.message.plan)


def none(request: Request) -> Delivery:
    """Nothing: the actor is on its own."""
    return Delivery()


def random_other(request: Request) -> Delivery:
    """The message of another task, drawn evenly from all the others in the store."""
    store = request.messages
    own = store.index(request.task_id)
    if len(store) < 2:
        raise UserError(f"{store.path} holds one message; random_other needs another task's")
    drawn = int(torch.randint(len(store) - 1, (), generator=request.generator))
    other = store.get(store.ids[drawn + (drawn >= own)])
    return _latent(request, other, other.hidden_LD.float())


def white_noise(request: Request) -> Delivery:
    """Rows of N(0, I) in the place of the message's: as many, and nothing else of it is kept."""
    own = request.message
    noise_LD = perturb.white_noise(own.hidden_LD.float(), generator=request.generator)
    return _latent(request, own, noise_LD)


def noised(request: Request) -> Delivery:
    """H + hidden.noise_std * N(0, I): the task's own message under noise of that deviation."""
    own, std = request.message, request.hidden.noise_std
    rows_LD = perturb.noised(own.hidden_LD.float(), std=std, generator=request.generator)
    return _latent(request, own, rows_LD)


SOURCES: Mapping[str, Callable[[Request], Delivery]] = {
    "data": data,
    "text": text,
    "none": none,
    "random_other": random_other,
    "white_noise": white_noise,
    "noised": noised,
}

SHORTENED: Mapping[str, Callable[[Tensor, int], Tensor]] = {
    "first": perturb.first_k,
    "even": perturb.evenly_spaced_k,
    "mean": perturb.mean_pooled_k,
}


def _latent(request: Request, message: Message, rows_LD: Tensor) -> Delivery:
    """The rows in the shape that ``hidden`` asks for."""
    hidden = request.hidden
    limits = {"min_keep": hidden.prune_min_keep, "rank": hidden.prune_rank}
    if hidden.prune_keep_ratio is not None:
        rows_LD = perturb.prune(rows_LD, message.plan, keep_ratio=hidden.prune_keep_ratio, **limits)
    if hidden.prune_threshold is not None:
        rows_LD = perturb.prune(rows_LD, message.plan, threshold=hidden.prune_threshold, **limits)
    rows_LD = perturb.truncate_last_percent(rows_LD, hidden.truncate_last_percent)
    if hidden.first_k is not None:
        rows_LD = SHORTENED[hidden.shorten](rows_LD, hidden.first_k)
    return Delivery(hidden_LD=rows_LD)
