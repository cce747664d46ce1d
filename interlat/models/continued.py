"""Reading on: new tokens after others whose keys and values are there already, with gradients.

The library's caches grow in place, so one cache serves one continuation, and a step that activation
checkpointing computes again would be appended twice. Here what is there is never touched: a pass is
a function of it and of its own tokens, and hands out its own keys and values for the next.
"""

import inspect
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers import Cache, DynamicCache, PreTrainedModel
from transformers.cache_utils import DynamicLayer

from interlat.config import UserError

Part = tuple[tuple[Tensor, Tensor], ...]
"""Keys and values [B, heads, T, width] that some tokens left, a pair for each layer."""


class Reading(NamedTuple):
    """What a pass gives: final-norm states [B, T, D], and what its tokens leave for later ones."""

    states_BTD: Tensor
    part: Part


def read_on(
    model: PreTrainedModel,
    embeds_BTD: Tensor,
    mask_BC: Tensor,
    positions_BT: Tensor,
    past: Sequence[Part] = (),
) -> Reading:
    """The model's states on T tokens that follow those of ``past``.

    mask_BC: bool, True where one of the C columns, past ones first, holds a token and no padding.
    positions_BT: each new token's place in its own text, from 0.
    Raises UserError for a model that does not keep keys and values of all tokens.
    """
    decoder = model.get_decoder()  # type: ignore[no-untyped-call]
    layers = [_Layer([part[i] for part in past]) for i in range(_depth(model))]
    options = {"position_ids": positions_BT}
    accepted = inspect.signature(decoder.forward).parameters
    output = decoder(
        inputs_embeds=embeds_BTD,
        attention_mask=mask_BC,
        past_key_values=Cache(layers=[*layers]),
        use_cache=True,
        **{name: value for name, value in options.items() if name in accepted},
    )
    return Reading(output.last_hidden_state, tuple(layer.new for layer in layers))


def repeated(part: Part, times: int) -> Part:
    """The part for a batch that has every row ``times`` times, the whole batch after itself."""
    return tuple((k.repeat(times, 1, 1, 1), v.repeat(times, 1, 1, 1)) for k, v in part)


def positions(mask_BT: Tensor) -> Tensor:
    """Each token's place among the real ones of its row [B, T]; anything for padding."""
    return (mask_BT.cumsum(dim=1) - 1).clamp(min=0)


class _Layer(DynamicLayer):  # type: ignore[no-untyped-call]
    """A layer's keys and values: parts that are there, and ``new`` ones of one pass."""

    new: tuple[Tensor, Tensor]

    def __init__(self, parts: Sequence[tuple[Tensor, Tensor]]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._parts = parts

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Keep the new states; returns all."""
        self.new = key_states, value_states
        keys = torch.cat([*(key for key, _ in self._parts), key_states], dim=-2)
        return keys, torch.cat([*(value for _, value in self._parts), value_states], dim=-2)

    def get_seq_length(self) -> int:
        """Tokens that were there before the pass."""
        return sum(key.shape[-2] for key, _ in self._parts)


def _depth(model: PreTrainedModel) -> int:
    """Layers of the model's cache."""
    layers = DynamicCache(config=model.config).layers
    if not layers or not all(isinstance(layer, DynamicLayer) for layer in layers):
        raise UserError(
            f"{type(model).__name__} does not keep keys and values of all its tokens; it cannot "
            "think in steps"
        )
    return len(layers)
