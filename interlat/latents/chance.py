"""Randomness that belongs to a task: the same whatever the batch, the rank or the order."""

import hashlib

import torch


def task_generator(seed: int, task_id: str, use: str) -> torch.Generator:
    """A CPU generator seeded by SHA-256 of (seed, use, task_id).

    use: what the numbers are for ("sender", "white_noise"), so that two uses do not share a stream.
    """
    digest = hashlib.sha256(f"{seed}\0{use}\0{task_id}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "big"))
