"""The losses of actor training, as pure functions of tensors.

Every function takes logits of supervised rows only, already shifted (row n predicts label n) and
aligned by label across branches: row n of every argument is the same supervised token. Half
precision is computed in float32. Nothing is reduced over a batch here: functions return one value a
row [N] or one a sample [S], so that a caller can sum and divide by totals that span ranks and
accumulation steps.

Source: arXiv 2511.09149, section 3; ``published`` names the forms of its public code, which differ.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from interlat.config import LossForm, WeightSchedule

LN2 = math.log(2)


class Scale(NamedTuple):
    """How far a scheduled weight goes down, as shares of the full weight.

    start: where ``anneal`` begins; floor: what ``adaptive`` leaves of it at a loss of 0; full_at:
    the loss, in nats, from which on ``adaptive`` leaves all of it.
    """

    start: float
    floor: float
    full_at: float


SEPARATION_SCALE = Scale(start=0.1, floor=0.02, full_at=0.69)
"""Paper: within [0.1, 1]. Published code: 0.01 + 0.49 clip(loss / 0.69)."""
ALIGNMENT_SCALE = Scale(start=0.5, floor=0.2, full_at=4.0)
"""Paper: within [0.1, 0.2]. Published code: 0.01 + 0.04 clip(loss / 4)."""


def cross_entropy(logits_NV: Tensor, labels_N: Tensor) -> Tensor:
    """Negative log-likelihood of each label, [N], in nats."""
    return functional.cross_entropy(_precise(logits_NV), labels_N, reduction="none")


def js_divergence(p_logits_NV: Tensor, q_logits_NV: Tensor, *, form: LossForm = "clean") -> Tensor:
    """Jensen-Shannon divergence of each pair of rows, [N], in nats: within [0, ln 2].

    The published form has the arguments of both KL terms swapped: it is another divergence, without
    an upper bound.
    """
    p_NV, q_NV = _log_probabilities(p_logits_NV), _log_probabilities(q_logits_NV)
    m_NV = torch.logaddexp(p_NV, q_NV) - LN2
    if form == "published":
        return (m_NV.exp() * (m_NV - (p_NV + q_NV) / 2)).sum(dim=-1)
    to_p_N = (p_NV.exp() * (p_NV - m_NV)).sum(dim=-1)
    to_q_N = (q_NV.exp() * (q_NV - m_NV)).sum(dim=-1)
    return ((to_p_N + to_q_N) / 2).clamp(0, LN2)


def kl_divergence(p_logits_NV: Tensor, q_logits_NV: Tensor) -> Tensor:
    """KL(p || q) of each pair of rows, [N], in nats."""
    p_NV, q_NV = _log_probabilities(p_logits_NV), _log_probabilities(q_logits_NV)
    return (p_NV.exp() * (p_NV - q_NV)).sum(dim=-1)


def separation(js_S: Tensor, *, margin: float | None = None) -> Tensor:
    """Loss that rewards answering differently to another task's message, [S].

    js_S: each sample's mean divergence between the matched and the mismatched branch. Without a
    margin -JS (paper); with one relu(margin - JS), so that a sample far enough apart is left alone.
    The published code has the margin 0.69 on the published form of the divergence.
    """
    return -js_S if margin is None else functional.relu(margin - js_S)


def compare(latent_NV: Tensor, plan_NV: Tensor, *, form: LossForm = "clean") -> tuple[Tensor, ...]:
    """What ``alignment`` needs to know of each pair of rows, every value [N].

    Clean form: KL(p_latent || p_plan) and the cosine of the logits. Published form: KL(p_plan ||
    p_latent) and the three inner products that a sample's cosine is made of.
    """
    if form == "clean":
        cosine_N = functional.cosine_similarity(_precise(latent_NV), _precise(plan_NV), dim=-1)
        return kl_divergence(latent_NV, plan_NV), cosine_N
    divergence_N = kl_divergence(plan_NV, latent_NV)
    latent_NV, plan_NV = (_log_probabilities(z).exp() for z in (latent_NV, plan_NV))
    pairs = ((latent_NV, plan_NV), (latent_NV, latent_NV), (plan_NV, plan_NV))
    return divergence_N, *((a * b).sum(dim=-1) for a, b in pairs)


def alignment(
    compared: Sequence[Tensor],
    sample_N: Tensor,
    samples: int,
    *,
    kl_weight: float,
    cosine_weight: float,
) -> Tensor:
    """Distance between reading the latent message and reading the plan as text, [S].

    compared: what ``compare`` says of the two branches, whose form decides. Clean: kl_weight *
    KL(p_latent || p_plan) + cosine_weight * (1 - cos of the two rows of logits), averaged over a
    sample's rows. Published: KL(p_plan || p_latent), and one cosine between a sample's flattened
    probability matrices.
    """
    divergence_N, *products = compared
    if len(products) == 1:
        distance_S = mean_by_sample(1 - products[0], sample_N, samples)
    else:
        dot_S, latent_S, plan_S = (_sum_by_sample(p_N, sample_N, samples) for p_N in products)
        distance_S = 1 - dot_S / (latent_S * plan_S).sqrt().clamp_min(1e-12)
    divergence_S = mean_by_sample(divergence_N, sample_N, samples)
    return kl_weight * divergence_S + cosine_weight * distance_S


def weight_share(
    schedule: WeightSchedule, scale: Scale, losses_S: Tensor, *, progress: float
) -> Tensor:
    """Share of its full weight that each sample's loss has, [S], without gradient.

    fixed: all of it. anneal: linear in ``progress``, the share of the run that is done, from
    scale.start to all. adaptive: the larger the loss, the more; of each sample's own loss, so that
    a step may be cut in any way (the published code takes the batch's, and leaves it the gradient).
    """
    if schedule == "adaptive":
        reached_S = (losses_S.detach() / scale.full_at).clamp(0, 1)
        return scale.floor + (1 - scale.floor) * reached_S
    share = 1.0 if schedule == "fixed" else scale.start + (1 - scale.start) * progress
    return torch.full_like(losses_S, share)


def mean_by_sample(values_N: Tensor, sample_N: Tensor, samples: int) -> Tensor:
    """Mean of each sample's rows, [S]; 0 for a sample without rows."""
    counts_S = _sum_by_sample(torch.ones_like(values_N), sample_N, samples)
    return _sum_by_sample(values_N, sample_N, samples) / counts_S.clamp_min(1)


def _sum_by_sample(values_N: Tensor, sample_N: Tensor, samples: int) -> Tensor:
    return values_N.new_zeros(samples).index_add(0, sample_N, values_N)


def _log_probabilities(logits_NV: Tensor) -> Tensor:
    return _precise(logits_NV).log_softmax(dim=-1)


def _precise(values: Tensor) -> Tensor:
    """Float32, or float64 where the caller works in it."""
    return values if values.dtype == torch.float64 else values.float()
