"""A key-value cache for rows of different lengths: a token's column is its position.

Rows of a batch grow by different numbers of tokens and still have no gaps: what pads a row lands in
columns that the row has not reached, is hidden by the mask, and is overwritten by its next tokens.
So a mask is one comparison, rows join and leave freely, and appending copies nothing that is old.
For decoders whose layers all attend to everything before them; no sliding windows.
"""

from typing import Any

import torch
from torch import Tensor
from transformers import Cache


class PositionCache(Cache):
    """Keys and values of every layer, in buffers [B, C, heads, width] with C columns of room."""

    def __init__(self) -> None:
        super().__init__(layers=[])
        self._buffers: list[Tensor] = []
        self._batch = self._width = 0
        self._rows = slice(0, 0)
        self._columns_BT = torch.empty(0, 0, dtype=torch.long)

    def seat(self, kept: list[int], entering: int, length: int) -> None:
        """Keep these rows, in this order, and add new ones at the end.

        length: columns of the kept rows that matter; what lies beyond may be lost.
        """
        unchanged = not entering and kept == list(range(self._batch))
        self._batch = len(kept) + entering
        if not unchanged:
            for i, buffer in enumerate(self._buffers):
                self._buffers[i] = _moved(buffer[:, :length], kept, self._batch, buffer.shape[1])

    def place(self, rows: slice, columns_BT: Tensor, dtype: torch.dtype) -> Tensor:
        """Say where the next forward pass writes; returns its attention mask [B, 1, T, C].

        rows: the cache rows that the pass is about; columns_BT: their tokens' positions. The mask
        is additive, of the given dtype: 0 where a column is at or before the token's own position.
        """
        self._rows, self._columns_BT = rows, columns_BT
        self._width = int(columns_BT.max()) + 1
        ahead_BTC = torch.arange(self._width, device=columns_BT.device) > columns_BT[..., None]
        mask_BTC = torch.zeros(ahead_BTC.shape, dtype=dtype, device=columns_BT.device)
        return mask_BTC.masked_fill_(ahead_BTC, torch.finfo(dtype).min)[:, None]

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Store a layer's new keys and values [B, heads, T, width]; returns all that are there."""
        keys = self._write(2 * layer_idx, key_states)
        return keys, self._write(2 * layer_idx + 1, value_states)

    def _write(self, i: int, states_BHTD: Tensor) -> Tensor:
        if i == len(self._buffers):
            _, heads, _, size = states_BHTD.shape
            self._buffers.append(states_BHTD.new_zeros(self._batch, 0, heads, size))
        if self._buffers[i].shape[1] < self._width:
            everyone = list(range(self._batch))
            self._buffers[i] = _moved(self._buffers[i], everyone, self._batch, 2 * self._width)
        rows_BCHD = self._buffers[i][self._rows]
        row_B1 = torch.arange(len(rows_BCHD), device=rows_BCHD.device)[:, None]
        rows_BCHD[row_B1, self._columns_BT] = states_BHTD.transpose(1, 2)
        return rows_BCHD[:, : self._width].transpose(1, 2)


def _moved(buffer_BCHD: Tensor, kept: list[int], batch: int, room: int) -> Tensor:
    """A buffer of `batch` rows and `room` columns that begins with the kept rows.

    The rest is zero and not merely unset: hidden columns still enter a sum, with weight 0.
    """
    moved_BCHD = buffer_BCHD.new_zeros(batch, room, *buffer_BCHD.shape[2:])
    index = torch.tensor(kept, dtype=torch.long, device=buffer_BCHD.device)
    moved_BCHD[: len(kept), : buffer_BCHD.shape[1]] = buffer_BCHD.index_select(0, index)
    return moved_BCHD
