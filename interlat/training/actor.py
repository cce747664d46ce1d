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
from interlat.chat import BOP, EOP, add_markers, ensure_template
from interlat.config import ActorKind, TrainConfig, UserError
from interlat.files import atomic_directory
from interlat.models.actor import Actor, ActorRecord, Sender, embedding_weight
from interlat.models.adapter import AdapterConfig, CommunicationAdapter
from interlat.models.card import write_card
from interlat.models.load import tokenizer_digest, weights_digest
from interlat.tasks import tasks_digest
from interlat.training.backends import to_full_precision, whole
from interlat.training.course import Course, Material
from interlat.training.even import collator
from interlat.training.lora import add_lora, merge
from interlat.training.objective import TERMS, ActorObjective
from interlat.training.trainer import Point, Schedule, Training, Watcher, fit, is_deterministic
from interlat.training.validation import hold_out, validation

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
    kind: ActorKind = "latent",
    adapter: CommunicationAdapter | None = None,
) -> Training:
    """Train ``model`` and its adapter on ``material``; write the actor to ``output``.

    adapter: the one to go on with; None for a new one, which only a latent actor gets.
    Raises UserError, before training, when the material does not fit the model or the config.
    """
    fingerprint = _fingerprint(model, tokenizer, material, config, seed) | {"kind": kind}
    if adapter is not None:
        fingerprint["adapter"] = adapter.digest
    actor = build_actor(
        model, tokenizer, material.messages.width, config, seed=seed, kind=kind, adapter=adapter
    )
    actor.record = ActorRecord(kind, Sender.of(material.messages), config.max_message_length)
    validated = None
    if config.validation_share:
        material, held_out = hold_out(material, config.validation_share, seed=seed)
        validated = validation(held_out, config, tokenizer, seed=seed, kind=kind)
    course = Course(material, config, tokenizer, seed=seed, kind=kind)
    lora = add_lora(actor, config) if config.lora_rank else None
    if config.gradient_checkpointing:
        model.activation_checkpointing_enable({"use_reentrant": False})
    to_full_precision(actor)
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
        backend=config.backend,
    )
    points = fit(
        objective,
        course,
        collator(course, config),
        torch.optim.AdamW(parameter_groups(actor, config), fused=True),
        schedule,
        terms=TERMS,
        tokens=[totals.supervised for totals in course.totals],
        probe=lambda: adapter_scales(actor),
        work=work,
        fingerprint=fingerprint,
        watch=watch,
        validation=validated,
    )
    if distributed.is_main():
        if lora is not None:
            merge(lora)
        with atomic_directory(output) as folder:
            actor.eval().save(folder)
            write_card(folder, actor, points[-1], config, seed=seed)
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
    kind: ActorKind = "latent",
    adapter: CommunicationAdapter | None = None,
) -> Actor:
    """An actor with its adapter; a fresh one's rows leave at the scale of the model's embeddings.

    A tokenizer without the markers gets them, and the model rows for them; one without a chat
    template its family's. Actors of another kind than latent have no adapter, nor has one without
    ``config.adapter``.
    Raises UserError for a tokenizer without chat template, heads that do not divide the width, and
    messages of a width that neither the adapter nor the model without one reads.
    """
    if not ensure_template(tokenizer):
        raise UserError(
            f"the tokenizer of {model.name_or_path} has no chat template, nor the special tokens "
            "of a family whose template is known: choose a model that was made to chat"
        )
    torch.manual_seed(seed)
    if not {BOP, EOP} <= tokenizer.get_added_vocab().keys():
        add_markers(tokenizer)
        if len(tokenizer) > len(embedding_weight(model)):
            model.resize_token_embeddings(len(tokenizer))
    embedding_VD = embedding_weight(model).detach().float()
    width = embedding_VD.shape[1]
    if kind != "latent":
        return Actor(model, tokenizer)
    if not config.adapter:
        if sender_width != width:
            raise UserError(
                f"the messages have width {sender_width}, the model reads {width}: an adapter "
                "projects them, set train.adapter to true"
            )
        return Actor(model, tokenizer)
    if adapter is not None:
        if adapter.config.sender_width != sender_width:
            raise UserError(
                f"the messages have width {sender_width}, the adapter that training goes on from "
                f"reads {adapter.config.sender_width}: start from a model without an adapter"
            )
        return Actor(model, tokenizer, adapter.to(embedding_VD.device))
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
    """Optimizer groups of what is trained, each module at its own rate; only matrices decay."""
    groups = []
    for module, rate in (
        (actor.model, config.learning_rate),
        (actor.adapter, config.adapter_learning_rate),
    ):
        parameters = [p for p in module.parameters() if p.requires_grad] if module else []
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
        "adapter_input_scale": whole(projection.input_scale).item(),
        "adapter_output_scale": whole(projection.output_scale).item(),
    }


def _final(points: Sequence[Point], course: Course, actor: Actor) -> dict[str, float | int]:
    """Means of the logged values over the end of the run, and the sizes of what was trained."""
    last = points[-max(1, round(LAST_SHARE * len(points))) :]
    scales = [name for name in last[-1] if name.startswith("adapter_")]
    means = {
        name: sum(p[name] for p in last) / len(last)
        for name in ("loss", *TERMS, "grad_norm", *scales)
    }
    samples = {f"samples_{kind}": count for kind, count in course.counts().items()}
    return {
        **means,
        **samples,
        "tasks_without_latents": course.without_latents,
        "messages_truncated": course.truncated,
        **validated(points, best=course.config.keep == "best"),
        "supervised_tokens": sum(t.supervised for t in course.totals[: int(last[-1]["step"])]),
        "parameters": sum(p.numel() for p in actor.parameters()),
    }


def validated(points: Sequence[Point], *, best: bool) -> Point:
    """What was validated of the weights that are kept, and the step that they are of."""
    looks = [point for point in points if "validation_loss" in point]
    if not looks:
        return {}
    kept = min(looks, key=lambda point: point["validation_loss"]) if best else looks[-1]
    values = {name: value for name, value in kept.items() if name.startswith("validation_")}
    return {**values, "kept_step": kept["step"]}


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
