"""What actor training minimises, for one micro-batch: task, alignment and separation losses.

Every sum is divided by the count of the whole step, so the gradient of a step is the sum over its
micro-batches and ranks, however it is cut.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from interlat.config import TrainConfig
from interlat.models.actor import Actor
from interlat.training.batch import Batch, Branch
from interlat.training.course import Totals
from interlat.training.losses import (
    alignment,
    cross_entropy,
    js_divergence,
    mean_by_sample,
    separation,
)

TERMS = ("task", "task_own", "task_other", "alignment", "separation", "js", "accuracy_own", "rate")
"""Metrics of a step; the sum over its micro-batches and ranks is their value."""


class Losses(NamedTuple):
    """The loss to descend and the step's metrics, in the order of ``TERMS``."""

    loss: Tensor
    terms: Tensor


class ActorObjective(nn.Module):
    """The actor's training loss.

    The plan and mismatched branches are read without gradient: they are what the matched branch is
    drawn to and pushed from.
    """

    def __init__(self, actor: Actor, config: TrainConfig) -> None:
        super().__init__()
        self.actor = actor
        self._config = config

    def forward(self, batch: Batch) -> Losses:
        """Compute the losses of one micro-batch, in float32."""
        totals = batch.totals
        zero = torch.zeros((), device=self.actor.device)
        terms = dict.fromkeys(TERMS, zero)
        terms["rate"] = zero + batch.rates / max(totals.messages, 1)
        others = totals.supervised - totals.own_supervised
        if batch.other is not None:
            nll_N = cross_entropy(read(self.actor, batch.other), batch.other.labels_N)
            terms["task_other"] = nll_N.sum() / others
        if batch.own is not None:
            terms |= self._own_terms(batch.own, batch.plan, batch.mismatched, totals)
        terms["task"] = (
            totals.own_supervised * terms["task_own"] + others * terms["task_other"]
        ) / totals.supervised
        separation_weight = self._config.separation_weight
        loss = terms["task"] + terms["alignment"] + separation_weight * terms["separation"]
        return Losses(loss, torch.stack([terms[name].detach().float() for name in TERMS]))

    def _own_terms(
        self, own: Branch, plan: Branch | None, mismatched: Branch | None, totals: Totals
    ) -> dict[str, Tensor]:
        """Terms of the samples with their own message and of its contrasts."""
        config, own_NV, samples = self._config, read(self.actor, own), len(own.ids_BT)
        right = (own_NV.argmax(dim=-1) == own.labels_N).sum()
        terms = {
            "task_own": cross_entropy(own_NV, own.labels_N).sum() / totals.own_supervised,
            "accuracy_own": right / totals.own_supervised,
        }
        if plan is not None:
            alignment_S = alignment(
                own_NV,
                read_fixed(self.actor, plan),
                own.sample_N,
                samples,
                kl_weight=config.alignment_kl_weight,
                cosine_weight=config.alignment_cosine_weight,
            )
            terms["alignment"] = alignment_S.sum() / totals.own
        if mismatched is not None:
            js_N = js_divergence(own_NV, read_fixed(self.actor, mismatched))
            js_S = mean_by_sample(js_N, own.sample_N, samples)
            separation_S = separation(js_S, margin=config.separation_margin)
            terms["separation"] = separation_S.sum() / totals.own
            terms["js"] = js_S.sum() / totals.own
        return terms


def read(actor: Actor, branch: Branch) -> Tensor:
    """Logits [N, V] of a branch's supervised rows; no other row meets the vocabulary."""
    rows_ND = None
    if branch.messages is not None:
        hidden_MLD, mask_ML, kept_ML = branch.messages
        rows_ND = actor.adapt(hidden_MLD, mask_ML)[kept_ML]
    embeds_BTD = actor.embed(branch.ids_BT, branch.slots_BT, rows_ND)
    hidden_BTD = actor.hidden_states(embeds_BTD)
    return actor.logits(hidden_BTD.flatten(0, 1)[branch.row_N])


@torch.no_grad()
def read_fixed(actor: Actor, branch: Branch) -> Tensor:
    """The same without gradient."""
    return read(actor, branch)
