"""The losses of compression, as pure functions of tensors, in the manner of losses.py.

A student's short message is judged by what a frozen actor says when it reads it: beside the full
message, which it should be as good as, and beside none, which tells where a message matters.
Source: arXiv 2511.09149, compression.
"""

from torch import Tensor
from torch.nn import functional

from interlat.training.losses import kl_divergence, mean_by_sample

QUANTILE = 0.95
"""Of a sample's positive weights; larger ones are clipped to it."""
EPSILON = 1e-6


def entropy(logits_NV: Tensor) -> Tensor:
    """Entropy of each row's distribution, [N], in nats."""
    log_NV = logits_NV.float().log_softmax(dim=-1)
    return -(log_NV.exp() * log_NV).sum(dim=-1)


def tempered_kl(full_NV: Tensor, short_NV: Tensor, *, temperature: float) -> Tensor:
    """T^2 KL(p || q) of each pair of rows, [N], in nats; both softened by the temperature T.

    p: what is said to the full message; q: what is said to the short one. T^2 keeps the gradient's
    size.
    """
    return temperature**2 * kl_divergence(full_NV / temperature, short_NV / temperature)


def clipped(weights_N: Tensor, sample_N: Tensor, samples: int) -> Tensor:
    """Weights with each sample's positive ones clipped at their 0.95 quantile, [N].

    A sample's own quantile, so that a step may be cut in any way; the published code takes the
    batch's.
    """
    limited_N = weights_N.clone()
    for sample in range(samples):
        own_N = sample_N == sample
        positive = weights_N[own_N & (weights_N > 0)]
        if len(positive):
            limited_N[own_N] = weights_N[own_N].clamp(max=positive.quantile(QUANTILE))
    return limited_N


def weighted_mean(values_N: Tensor, weights_N: Tensor, sample_N: Tensor, samples: int) -> Tensor:
    """Each sample's mean under its weights, [S]; 0 where they are all 0."""
    weighted_S = mean_by_sample(weights_N * values_N, sample_N, samples)
    return weighted_S / (mean_by_sample(weights_N, sample_N, samples) + EPSILON)


def direction(short_SD: Tensor, full_SD: Tensor) -> Tensor:
    """1 - cosine of each pair of rows, [S]: of the mean rows of both messages."""
    return 1 - functional.cosine_similarity(short_SD, full_SD, dim=-1)
