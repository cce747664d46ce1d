"""How many replies fit into memory together: an estimate, which an out-of-memory error corrects."""

import torch
from accelerate.utils import get_max_memory
from transformers import DynamicCache, PreTrainedModel

from interlat import distributed

SHARE = {"cuda": 0.9, "cpu": 0.5}
"""Part of the free memory to use. On the CPU others need theirs, and too much ends in a kill rather
than in an error."""
MOST = 256
"""Replies at once, at most: beyond, a step takes longer in proportion."""
PROBE_TOKENS = 8
SPARE = 1.25
"""Room that a cache grows into, and the copy of a layer while it does."""
ACTIVATIONS = 16
"""Widths that a prompt's token holds while it passes through a layer."""
CHOICE_BYTES = 32
"""For a token of the vocabulary, while the next one is chosen."""


def replies_that_fit(model: PreTrainedModel, prompt: int, reply: int, rows: int) -> int:
    """Replies of ``reply`` tokens to prompts of ``prompt`` tokens that fit together, 1 to MOST.

    rows: states kept of each.
    """
    config = model.config.get_text_config()
    state = config.hidden_size * model.dtype.itemsize
    cached = SPARE * (prompt + reply) * _cached_bytes(model)
    passing = max(prompt * ACTIVATIONS * state, config.vocab_size * CHOICE_BYTES)
    return max(1, min(MOST, int(_usable_bytes(model.device) / (cached + passing + rows * state))))


def _usable_bytes(device: torch.device) -> float:
    if device.type == "cuda":
        return SHARE["cuda"] * torch.cuda.mem_get_info(device)[0]
    return SHARE["cpu"] * float(get_max_memory()["cpu"]) / distributed.world_size()


@torch.no_grad()
def _cached_bytes(model: PreTrainedModel) -> float:
    """What a token leaves in the cache, as the model makes it."""
    tokens = torch.zeros(1, PROBE_TOKENS, dtype=torch.long, device=model.device)
    cache = DynamicCache(config=model.config)
    model(input_ids=tokens, past_key_values=cache, use_cache=True)
    parts = [getattr(layer, name, None) for layer in cache.layers for name in ("keys", "values")]
    size: int = sum(part.nbytes for part in parts if part is not None)
    return size / PROBE_TOKENS
