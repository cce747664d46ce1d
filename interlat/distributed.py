"""Ranks, barriers and shards: the only module that knows torch.distributed.

A stage works the same alone (no process group, rank 0 of 1), under `torchrun`, and started with
`launch.processes > 1`, where it re-executes itself under torchrun's own launcher.
"""

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
_TIMEOUT = timedelta(minutes=300)


def rank() -> int:
    """This process's number, 0 when alone."""
    return int(os.environ.get("RANK", "0"))


def world_size() -> int:
    """How many processes share the work, 1 when alone."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def is_main() -> bool:
    """Is this the process that reports, tracks and writes what exists once?"""
    return rank() == 0


def shard(count: int) -> range:
    """This rank's contiguous part of `count` items; parts differ by one item at most."""
    return range(count * rank() // world_size(), count * (rank() + 1) // world_size())


def set_threads(count: int) -> None:
    """Use `count` CPU threads in this process and in those it starts."""
    os.environ.update(dict.fromkeys(_THREADS, str(count)))
    if "torch" in sys.modules:
        import torch

        torch.set_num_threads(count)


@contextmanager
def process_group() -> Iterator[None]:
    """Join the other ranks for the length of the block; nothing to join when alone."""
    init()
    try:
        yield
    finally:
        close()


def init() -> None:
    """Join the process group that torchrun describes: nccl where there are GPUs, gloo elsewhere."""
    if world_size() == 1:
        return
    import torch
    import torch.distributed as dist

    if dist.is_initialized():
        return
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    backend = "nccl" if torch.cuda.is_available() else "gloo"
    dist.init_process_group(backend, timeout=_TIMEOUT)


def close() -> None:
    """Leave the process group, if there is one."""
    if "torch.distributed" in sys.modules:
        import torch.distributed as dist

        if dist.is_initialized():
            dist.destroy_process_group()


def barrier() -> None:
    """Wait for every rank."""
    if world_size() == 1:
        return
    import torch.distributed as dist

    dist.barrier()


def relaunch(processes: int) -> None:
    """Run this very command under torchrun with `processes` ranks, then exit with its status.

    Returns at once when one process is wanted or torchrun is already above us. The status is that
    of the first rank that failed, so that a user's mistake stays exit status 2.
    """
    if processes == 1 or "WORLD_SIZE" in os.environ:
        return
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=processes,
        rdzv_backend="c10d",
        rdzv_endpoint="127.0.0.1:0",
        run_id=str(os.getpid()),
        max_restarts=0,
    )
    try:
        elastic_launch(config, sys.executable)("-u", *sys.argv)
    except ChildFailedError as error:
        _, failure = error.get_first_failure()
        sys.exit(failure.exitcode if failure.exitcode > 0 else 1)
    sys.exit(0)
