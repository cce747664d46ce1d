"""Small stores, as a collection leaves them."""

from collections.abc import Sequence
from pathlib import Path

import torch

from interlat.latents.message import Message
from interlat.latents.store import LatentStore
from interlat.latents.writer import LatentWriter


def some_messages(first: int, count: int) -> list[Message]:
    """Messages of 1 to 3 rows of 4 numbers, the same for the same task."""
    messages = []
    for i in range(first, first + count):
        rows_LD = torch.randn(i % 3 + 1, 4, generator=torch.Generator().manual_seed(i))
        messages.append(Message(f"t{i}", rows_LD, f"plan {i}", f"task {i}", len(rows_LD), "eos"))
    return messages


def make_store(
    path: Path,
    messages: Sequence[Message],
    *,
    dtype: str = "float32",
    failures: dict[str, str] | None = None,
    **work: object,
) -> LatentStore:
    """Write messages as a store, with any settings."""
    work = {"model": {"name": "tiny", "weights_sha256": "aa"}, **work}
    writer = LatentWriter(path, work, width=4, dtype=dtype)
    writer.claim()
    writer.write_piece(0, messages, failures)
    writer.publish(1)
    return LatentStore(path)
