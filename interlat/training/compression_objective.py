"""What compression minimises, for one micro-batch: the student's message through the frozen actor.

Every sum is divided by the count of the whole step, as in objective.py.
"""

from typing import Self

import torch
from torch import Tensor, nn

from interlat.config import CompressConfig
from interlat.models.actor import Actor
from interlat.models.compressor import Compressor
from interlat.models.continued import Part, positions, read_on, repeated
from interlat.training.batch import Branch
from interlat.training.compression_course import CompressionBatch
from interlat.training.distillation import (
    clipped,
    direction,
    entropy,
    tempered_kl,
    weighted_mean,
)
from interlat.training.losses import cross_entropy
from interlat.training.objective import Losses, in_pieces

TERMS = (
    "task",
    "task_full",
    "task_none",
    "kl",
    "direction",
    "accuracy",
    "agreement",
    "informed",
)
"""Metrics of a step; the sum over its micro-batches and ranks is their value.

task, task_full, task_none: cross-entropy with the student's message, the full one, none. agreement:
supervised tokens on which the actor chooses the same word with the first two. informed: those on
which the full message makes it surer than none, which the KL looks at.
"""


class CompressionObjective(nn.Module):
    """The student's training loss. The actor is frozen and stays in eval mode."""

    def __init__(self, student: Compressor, teacher: Actor, config: CompressConfig) -> None:
        super().__init__()
        self.student = student
        self.teacher = teacher.requires_grad_(False).eval()
        self._config = config

    def train(self, mode: bool = True) -> Self:
        """Set the student's mode; the actor's dropout must not come back."""
        super().train(mode)
        self.teacher.eval()
        return self

    def forward(self, batch: CompressionBatch) -> Losses:
        """Compute the losses of one micro-batch, in float32."""
        config, samples = self._config, batch.short.samples
        part, full_NV, none_NV, full_SD = self._read_fixed(batch)
        hidden_BKD = self.student(*batch.prompts)
        rows_BKD = self.teacher.adapt(hidden_BKD, hidden_BKD.new_ones(hidden_BKD.shape[:2]).bool())
        short_NV = self._read(batch, batch.short, rows_BKD.flatten(0, 1), part)
        measured = in_pieces(self._measure, short_NV, batch.short.labels_N, full_NV, none_NV)
        nll_N, nll_full_N, nll_none_N, kl_N, gain_N = measured.unbind()
        sample_N, totals = batch.short.sample_N, batch.totals
        kl_S = weighted_mean(kl_N, clipped(gain_N, sample_N, samples), sample_N, samples)
        said_N = short_NV.argmax(dim=-1)
        terms = {
            "task": nll_N.sum() / totals.supervised,
            "task_full": nll_full_N.sum() / totals.supervised,
            "task_none": nll_none_N.sum() / totals.supervised,
            "kl": kl_S.sum() / totals.samples,
            "direction": direction(rows_BKD.mean(dim=1).float(), full_SD).sum() / totals.samples,
            "accuracy": (said_N == batch.short.labels_N).sum() / totals.supervised,
            "agreement": (said_N == full_NV.argmax(dim=-1)).sum() / totals.supervised,
            "informed": (gain_N > 0).sum() / totals.supervised,
        }
        loss = (
            config.cross_entropy_weight * terms["task"]
            + config.kl_weight * terms["kl"]
            + config.cosine_weight * terms["direction"]
        )
        return Losses(loss, torch.stack([terms[name].detach().float() for name in TERMS]))

    @torch.no_grad()
    def _read_fixed(self, batch: CompressionBatch) -> tuple[Part, Tensor, Tensor, Tensor]:
        """What does not depend on the student.

        That is what the openings leave in the cache, the logits [N, V] of supervised rows with the
        full messages and with none, and the full messages' mean rows [S, D].
        """
        ids_BP, mask_BP = batch.openings
        opening_BPD = self.teacher.embed(ids_BP)
        part = read_on(self.teacher.model, opening_BPD, mask_BP, positions(mask_BP)).part
        assert batch.fixed.messages is not None
        hidden_MLD, mask_ML, kept_ML = batch.fixed.messages
        rows_MLD = self.teacher.adapt(hidden_MLD, mask_ML)
        logits_NV = self._read(batch, batch.fixed, rows_MLD[kept_ML], repeated(part, 2))
        full_NV, none_NV = logits_NV.chunk(2)
        mean_MD = rows_MLD.sum(dim=1) / mask_ML.sum(dim=1, keepdim=True)
        return part, full_NV, none_NV, mean_MD.float()

    def _read(self, batch: CompressionBatch, branch: Branch, rows_ND: Tensor, part: Part) -> Tensor:
        """Logits [N, V] of a branch's supervised rows; it follows the openings."""
        embeds_BTD = self.teacher.embed(branch.ids_BT, branch.slots_BT, rows_ND)
        opened_BP = batch.openings.mask_BT
        opened_BP = opened_BP.repeat(len(embeds_BTD) // len(opened_BP), 1)
        mask_BC = torch.cat([opened_BP, torch.ones_like(branch.slots_BT)], dim=1)
        positions_BT = positions(mask_BC)[:, opened_BP.shape[1] :]
        states_BTD, _ = read_on(self.teacher.model, embeds_BTD, mask_BC, positions_BT, [part])
        return self.teacher.logits(states_BTD.flatten(0, 1)[branch.row_N])

    def _measure(
        self, short_NV: Tensor, labels_N: Tensor, full_NV: Tensor, none_NV: Tensor
    ) -> Tensor:
        """What there is to know of each row [5, N]: three losses, the KL, what the message told."""
        gain_N = (entropy(none_NV) - entropy(full_NV)).clamp(min=0)
        losses = [cross_entropy(logits_NV, labels_N) for logits_NV in (short_NV, full_NV, none_NV)]
        kl_N = tempered_kl(full_NV, short_NV, temperature=self._config.temperature)
        return torch.stack([*losses, kl_N, gain_N])
