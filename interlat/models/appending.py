"""A generation cache that writes a new token beside the old ones instead of copying them all.

The library's own layer joins old and new keys at every step: the whole cache is read and written
once a token, and there twice while it is. Here a layer's tensors have columns to spare; what it
returns is a view of those in use, so that attention computes the same numbers. Layers with a window
or a recurrent state stay the library's.
"""

from typing import Any

from torch import Tensor
from transformers import DynamicCache, PreTrainedModel
from transformers.cache_utils import DynamicLayer

ROOM = 64
"""Columns to spare after each growth."""


class AppendingLayer(DynamicLayer):  # type: ignore[no-untyped-call]
    """Keys and values [B, heads, T, width] of a layer that attends to everything before it."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._key_room: Tensor | None = None
        self._value_room: Tensor | None = None

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Add the states of new tokens; returns those of all."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        start = self.get_seq_length()
        stop = start + key_states.shape[2]
        self._key_room = _with_room(self._key_room, self.keys, key_states, stop)
        self._value_room = _with_room(self._value_room, self.values, value_states, stop)
        self._key_room[:, :, start:stop] = key_states
        self._value_room[:, :, start:stop] = value_states
        self.keys, self.values = self._key_room[:, :, :stop], self._value_room[:, :, :stop]
        return self.keys, self.values

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Only keep these rows of the batch."""
        self._key_room = self._value_room = None
        super().reorder_cache(beam_idx)  # type: ignore[arg-type]


def appending_cache(model: PreTrainedModel) -> DynamicCache:
    """An empty cache for the model, as it would make itself, but for layers that append."""
    cache = DynamicCache(config=model.config)
    cache.layers = [
        AppendingLayer() if type(layer) is DynamicLayer else layer for layer in cache.layers
    ]
    return cache


def _with_room(room: Tensor | None, old: Tensor | None, new: Tensor, columns: int) -> Tensor:
    """``room`` if it has that many columns, else a larger one that begins with ``old``."""
    if room is not None and room.shape[2] >= columns:
        return room
    grown = new.new_empty(*new.shape[:2], columns + ROOM, new.shape[3])
    if old is not None and old.numel():
        grown[:, :, : old.shape[2]] = old
    return grown
