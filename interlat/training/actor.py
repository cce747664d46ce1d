"""Training an actor to read latent messages: the whole run, from a base model to a checkpoint.

Work lies in ``<output>.partial`` until the finished actor takes its place at ``output`` in one
rename: a killed run resumes when it is started again, and ``output`` is never half-trained.
"""

import logging
import shutil
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from interlat import distributed
from interlat.chat import BOP, EOP, add_markers
from interlat.config import TrainConfig, UserError
from interlat.files import atomic_directory
from interlat.models.actor import Actor, embedding_weight
from interlat.models.adapter import AdapterConfig, CommunicationAdapter
from interlat.models.load import tokenizer_digest, weights_digest
from interlat.tasks import tasks_digest
from interlat.training.batch import Collator
from interlat.training.course import Course, Material
from interlat.training.objective import TERMS, ActorObjective
from interlat.training.trainer import Point, Schedule, Training, Watcher, fit, is_deterministic

log = logging.getLogger(__name__)
LAST_SHARE = 0.1
"""Share of the run, at its end, that final numbers are averaged over."""


def train_actor(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    material: Material,
    config: TrainConfig,
    *,
    seed: int,
    output: Path,
    watch: Watcher,
) -> Training:
    """Train ``model`` and a new adapter on ``material``; write the actor to ``output``.

    Raises UserError, before training, when the material does not fit the model or the config.
    """
    fingerprint = _fingerprint(model, tokenizer, material, config, seed)
    actor = build_actor(model, tokenizer, material.messages.width, config, seed=seed)
    course = Course(material, config, tokenizer, seed=seed)
    objective = ActorObjective(actor, config)
    work = output.with_name(f"{output.name}.partial")
    schedule = Schedule(
        steps=config.steps,
        batch_size=config.batch_size,
        micro_batches=config.micro_batches,
        warmup_share=config.warmup_share,
        decay_share=config.decay_share,
        gradient_clip=config.gradient_clip,
        bf16=config.precision == "bf16",
        save_every=config.save_every,
        log_every=config.log_every,
        seed=seed,
    )
    points = fit(
        objective,
        course,
        Collator(course, config),
        torch.optim.AdamW(parameter_groups(actor, config), fused=True),
        schedule,
        terms=TERMS,
        tokens=[totals.supervised for totals in course.totals],
        probe=lambda: adapter_scales(actor),
        work=work,
        fingerprint=fingerprint,
        watch=watch,
    )
    if distributed.is_main():
        with atomic_directory(output) as folder:
            actor.eval().save(folder)
        shutil.rmtree(work)
    distributed.barrier()
    points = [{k: v for k, v in point.items() if is_deterministic(k)} for point in points]
    return Training(points, _final(points, course, actor))


def build_actor(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    sender_width: int,
    config: TrainConfig,
    *,
    seed: int,
) -> Actor:
    """An actor with a fresh adapter whose rows leave at the scale of the model's embeddings.

    A tokenizer without the markers gets them, and the model rows for them.
    Raises UserError for a tokenizer without chat template, or heads that do not divide the width.
    """
    if tokenizer.chat_template is None:
        raise UserError(f"the tokenizer of {model.name_or_path} has no chat template")
    torch.manual_seed(seed)
    if not {BOP, EOP} <= tokenizer.get_added_vocab().keys():
        add_markers(tokenizer)
        if len(tokenizer) > len(embedding_weight(model)):
            model.resize_token_embeddings(len(tokenizer))
    embedding_VD = embedding_weight(model).detach().float()
    width = embedding_VD.shape[1]
    if width % config.heads:
        raise UserError(f"train.heads: {config.heads} does not divide the model's width {width}")
    adapter = CommunicationAdapter(
        AdapterConfig(
            sender_width=sender_width,
            width=width,
            heads=config.heads,
            dropout=config.dropout,
            output_std=float(embedding_VD.std()),
        )
    )
    return Actor(model, tokenizer, adapter.to(embedding_VD.device))


def parameter_groups(actor: Actor, config: TrainConfig) -> list[dict[str, Any]]:
    """Optimizer groups: the model and the adapter each at its rate; only matrices decay."""
    groups = []
    for module, rate in (
        (actor.model, config.learning_rate),
        (actor.adapter, config.adapter_learning_rate),
    ):
        parameters = list(module.parameters()) if module is not None else []
        for decay, members in (
            (config.weight_decay, [p for p in parameters if p.ndim >= 2]),
            (0.0, [p for p in parameters if p.ndim < 2]),
        ):
            groups.append({"params": members, "lr": rate, "weight_decay": decay})
    return [group for group in groups if group["params"]]


def adapter_scales(actor: Actor) -> Point:
    """The adapter's two learnable scales."""
    if actor.adapter is None:
        return {}
    projection = actor.adapter.projection
    return {
        "adapter_input_scale": projection.input_scale.item(),
        "adapter_output_scale": projection.output_scale.item(),
    }


def _final(points: Sequence[Point], course: Course, actor: Actor) -> dict[str, float | int]:
    """Means of the logged values over the end of the run, and the sizes of what was trained."""
    last = points[-max(1, round(LAST_SHARE * len(points))) :]
    names = ("loss", *TERMS, "grad_norm", *adapter_scales(actor))
    means = {name: sum(p[name] for p in last) / len(last) for name in names}
    samples = {f"samples_{kind}": count for kind, count in course.counts().items()}
    return {
        **means,
        **samples,
        "supervised_tokens": sum(totals.supervised for totals in course.totals),
        "parameters": sum(p.numel() for p in actor.parameters()),
    }


def _fingerprint(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    material: Material,
    config: TrainConfig,
    seed: int,
) -> dict[str, Any]:
    """Everything that decides what the trained weights will be."""
    return {
        "config": asdict(config),
        "seed": seed,
        "model": weights_digest(model),
        "tokenizer": tokenizer_digest(tokenizer),
        "tasks": tasks_digest(material.tasks),
        "searching": tasks_digest(material.searching),
        "messages": material.messages.digest,
        "uninformed": material.uninformed.digest if material.uninformed else None,
    }
