"""What actor training minimises, for one micro-batch: task, alignment and separation losses.

Every sum is divided by the count of the whole step, so the gradient of a step is the sum over its
micro-batches and ranks, however it is cut.
"""

from collections.abc import Callable, Sequence
from itertools import repeat
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from interlat.config import TrainConfig
from interlat.models.actor import Actor
from interlat.training.batch import Batch, Branch
from interlat.training.losses import (
    ALIGNMENT_SCALE,
    SEPARATION_SCALE,
    alignment,
    compare,
    cross_entropy,
    js_divergence,
    mean_by_sample,
    separation,
    weight_share,
)

PIECE = 2**22
"""Logits of a branch that are measured at once."""
TERMS = (
    "task",
    "task_own",
    "task_other",
    "alignment",
    "alignment_weight",
    "separation",
    "separation_weight",
    "js",
    "accuracy_own",
    "agreement",
    "rate",
)
"""Metrics of a step; the sum over its micro-batches and ranks is their value.

``alignment`` has its weights in it, ``separation`` has not. agreement: supervised tokens on which
the latent and the plan branch choose the same word.
"""


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
            other_NV = read(self.actor, batch.other)
            nll_N = in_pieces(cross_entropy, other_NV, batch.other.labels_N)
            terms["task_other"] = nll_N.sum() / others
        if batch.own is not None:
            terms |= self._own_terms(batch.own, batch)
        terms["task"] = (
            totals.own_supervised * terms["task_own"] + others * terms["task_other"]
        ) / totals.supervised
        weighted = terms.pop("weighted_separation", zero)
        loss = terms["task"] + terms["alignment"] + self._config.separation_weight * weighted
        return Losses(loss, torch.stack([terms[name].detach().float() for name in TERMS]))

    def _own_terms(self, own: Branch, batch: Batch) -> dict[str, Tensor]:
        """Terms of the samples that are told their own message, and of their contrasts."""
        totals = batch.totals
        own_NV = read(self.actor, own)
        plan_NV = read_fixed(self.actor, batch.plan) if batch.plan else None
        other_NV = read_fixed(self.actor, batch.mismatched) if batch.mismatched else None
        measured = in_pieces(self._measure, own_NV, own.labels_N, plan_NV, other_NV)
        nll_N, *compared = measured.unbind()
        said_N = own_NV.argmax(dim=-1)
        terms = {
            "task_own": nll_N.sum() / totals.own_supervised,
            "accuracy_own": (said_N == own.labels_N).sum() / totals.own_supervised,
        }
        if other_NV is not None:
            terms |= self._separation_terms(own, compared.pop(), batch)
        if plan_NV is not None:
            agreed = (said_N == plan_NV.argmax(dim=-1)).sum()
            terms["agreement"] = agreed / totals.own_supervised
            terms |= self._alignment_terms(own, compared, batch)
        return terms

    def _measure(
        self, own_NV: Tensor, labels_N: Tensor, plan_NV: Tensor | None, other_NV: Tensor | None
    ) -> Tensor:
        """What there is to know of each row [K, N]: its loss, what the plan and another say."""
        form = self._config.loss_form
        values = [cross_entropy(own_NV, labels_N)]
        if plan_NV is not None:
            values += compare(own_NV, plan_NV, form=form)
        if other_NV is not None:
            values.append(js_divergence(own_NV, other_NV, form=form))
        return torch.stack(values)

    def _alignment_terms(
        self, own: Branch, compared: Sequence[Tensor], batch: Batch
    ) -> dict[str, Tensor]:
        """How far the latent branch is from the plan branch."""
        config = self._config
        full = config.alignment_kl_weight + config.alignment_cosine_weight
        alignment_S = alignment(
            compared,
            own.sample_N,
            own.samples,
            kl_weight=config.alignment_kl_weight,
            cosine_weight=config.alignment_cosine_weight,
        )
        share_S = weight_share(
            config.alignment_schedule, ALIGNMENT_SCALE, alignment_S / full, progress=batch.progress
        )
        return {
            "alignment": (share_S * alignment_S).sum() / batch.totals.own,
            "alignment_weight": full * share_S.sum() / batch.totals.own,
        }

    def _separation_terms(self, own: Branch, js_N: Tensor, batch: Batch) -> dict[str, Tensor]:
        """How near the latent branch is to one that reads another task's message."""
        config, count = self._config, batch.totals.own
        js_S = mean_by_sample(js_N, own.sample_N, own.samples)
        separation_S = separation(js_S, margin=config.separation_margin)
        share_S = weight_share(
            config.separation_schedule, SEPARATION_SCALE, separation_S, progress=batch.progress
        )
        return {
            "separation": separation_S.sum() / count,
            "separation_weight": config.separation_weight * share_S.sum() / count,
            "weighted_separation": (share_S * separation_S).sum() / count,
            "js": js_S.sum() / count,
        }


def in_pieces(measure: Callable[..., Tensor], *rows: Tensor | None) -> Tensor:
    """``measure`` of tensors [N, ...] that belong together row by row; its last dimension is N.

    Where logits are many they are measured a piece at a time, and again for the gradient, so that
    of all that is computed on the way only one piece is held.
    """
    first = rows[0]
    assert first is not None
    size = max(1, PIECE // first.shape[-1])
    if len(first) <= size:
        return measure(*rows)
    split = [repeat(None) if part is None else torch.split(part, size) for part in rows]
    pieces = zip(*split, strict=False)  # what is None is so for ever
    return torch.cat(
        [
            checkpoint(measure, *piece, use_reentrant=False, preserve_rng_state=False)
            for piece in pieces
        ],
        dim=-1,
    )


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
