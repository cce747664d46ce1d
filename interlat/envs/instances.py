"""The environments of a server: made for clients, one call at a time each, capped, evicted, ended.

They live in workers. Pure Python ones share a thread; ALFWorld's engine bears no threads and a
simulator can hang, so these live in processes, which are replaced when they hang or die. Everything
here but the workers runs in one event loop.
"""

import asyncio
import os
import signal
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context
from typing import Any, NamedTuple

from interlat.envs.base import Environment, make
from interlat.envs.workers import end_with_parent

_STOP_SECONDS = 5.0

Call = tuple[Any, ...]
"""A method of an environment and its arguments: ("step", "look")."""
CLOSE: Call = ("close",)


class Refused(Exception):
    """Why a client does not get what it asks for."""


@dataclass(frozen=True)
class Limits:
    """What a server takes upon itself."""

    instances: int = 64
    """Instances at a time."""
    workers: int = 2
    """Processes, for environments that live in some."""
    idle_seconds: float = 1800.0
    """After so long without a call an instance is closed."""
    call_seconds: float = 60.0
    """Longest that a call may take."""
    body_bytes: int = 65536
    """Longest request."""


@dataclass(eq=False)
class Instance:
    """One client's environment."""

    worker: "_Worker"
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    used: float = field(default_factory=time.monotonic)
    told: dict[str, Any] = field(default_factory=dict)
    """What the client was told last."""


class Instances:
    """All instances, by id."""

    def __init__(
        self, name: str, config: Mapping[str, Any], limits: Limits, *, processes: bool
    ) -> None:
        """name, config: as for ``interlat.envs.base.make``. processes: do they need some?

        Nothing is started yet.
        """
        self._limits = limits
        workers = limits.workers if processes else 1
        self._workers = [_Worker(name, config, process=processes) for _ in range(workers)]
        self._instances: dict[int, Instance] = {}
        self._made = 0

    @property
    def ids(self) -> list[int]:
        """Of all that are open."""
        return list(self._instances)

    def create(self) -> int:
        """The id of a new instance. Raises Refused when there are as many as there may be."""
        if len(self._instances) >= self._limits.instances:
            raise Refused(
                f"All {self._limits.instances} instances are in use. Close one, or start the "
                "server with a higher --max_instances."
            )
        users = [instance.worker for instance in self._instances.values()]
        number, self._made = self._made, self._made + 1
        self._instances[number] = Instance(min(self._workers, key=users.count))
        return number

    def find(self, number: int) -> Instance:
        """An open instance. Raises Refused, in AgentGym's words."""
        if number in self._instances:
            return self._instances[number]
        if 0 <= number < self._made:
            raise Refused(f"The task with environment {number} has been deleted.")
        raise Refused(f"The id {number} is not valid.")

    async def ask(self, number: int, *calls: Call) -> list[Any]:
        """What an instance's environment returns to some calls, done in one go.

        The instance must be locked by the caller. Raises Refused when a call raises, when it takes
        too long, and when the environment was lost with its worker.
        """
        instance = self.find(number)
        instance.used = time.monotonic()
        try:
            return await instance.worker.do(self._limits.call_seconds, number, *calls)
        except Refused:
            raise
        except Exception as error:  # a client's bad task and a broken world are told alike
            raise Refused(str(error) or type(error).__name__) from error
        finally:
            instance.used = time.monotonic()

    async def close(self, number: int) -> bool:
        """Close an instance; False when it is not open."""
        instance = self._instances.pop(number, None)
        if instance is None:
            return False
        async with instance.lock:
            with suppress(Exception):  # it is gone either way
                await instance.worker.do(self._limits.call_seconds, number, CLOSE)
        return True

    async def evict(self) -> None:
        """Close, for ever, what has been idle for too long."""
        while True:
            await asyncio.sleep(min(30.0, self._limits.idle_seconds / 4))
            oldest = time.monotonic() - self._limits.idle_seconds
            for number, instance in list(self._instances.items()):
                if instance.used < oldest and not instance.lock.locked():
                    await self.close(number)

    async def shut_down(self) -> None:
        """End the workers, and the environments with them."""
        self._instances.clear()
        await asyncio.gather(*(worker.end() for worker in self._workers))


class _Worker:
    """A thread or process with environments in it; a process that hangs or dies is replaced."""

    def __init__(self, name: str, config: Mapping[str, Any], *, process: bool) -> None:
        self._arguments = name, dict(config)
        self._in_process = process
        self._running: _Running | None = None

    async def do(self, seconds: float, number: int, *calls: Call) -> list[Any]:
        """Let an environment do some calls. Raises what it raises, and Refused."""
        if self._running is None:
            self._running = self._start()
        running = self._running
        try:
            future = asyncio.get_running_loop().run_in_executor(
                running.executor, _do, number, *calls
            )
            done, _ = await asyncio.wait({future}, timeout=seconds)
            if done:
                return future.result()
            future.cancel()
            reason = f"No answer within {seconds:g} s"
        except BrokenProcessPool:
            reason = "The worker process crashed"
        if self._in_process and self._running is running:
            self._running = None
            running.kill()
        raise Refused(f"{reason}; reset the instance.")

    async def end(self) -> None:
        """End the thread or process, by force if it does not come to an end by itself."""
        if self._running is not None:
            running, self._running = self._running, None
            ending = asyncio.to_thread(running.executor.shutdown, wait=True, cancel_futures=True)
            _, late = await asyncio.wait({asyncio.create_task(ending)}, timeout=_STOP_SECONDS)
            if late:
                running.kill()

    def _start(self) -> "_Running":
        if not self._in_process:
            thread = ThreadPoolExecutor(1, initializer=_enter, initargs=self._arguments)
            return _Running(thread, None)
        process = ProcessPoolExecutor(
            1, get_context("spawn"), initializer=_enter_process, initargs=self._arguments
        )
        return _Running(process, process.submit(os.getpid))


class _Running(NamedTuple):
    """A started worker."""

    executor: Executor
    process: Future[int] | None
    """Its process id."""

    def kill(self) -> None:
        """End a process at once; all that waits for it fails."""
        self.executor.shutdown(wait=False, cancel_futures=True)
        if self.process is not None and self.process.done() and not self.process.exception():
            with suppress(ProcessLookupError):
                os.kill(self.process.result(), signal.SIGKILL)


_here = threading.local()
"""The environments of a worker, and how to make more."""


def _enter(name: str, config: Mapping[str, Any]) -> None:
    _here.make = partial(make, name, **config)
    _here.environments = {}


def _enter_process(name: str, config: Mapping[str, Any]) -> None:
    end_with_parent()
    _enter(name, config)


def _do(number: int, *calls: Call) -> list[Any]:
    """In a worker: do an environment's calls; it is made by its first reset."""
    environments: dict[int, Environment] = _here.environments
    if calls == (CLOSE,):
        if number in environments:
            environments.pop(number).close()
        return []
    if number not in environments:
        if calls[0][0] != "reset":
            raise ValueError("reset comes first")
        environments[number] = _here.make()
    try:
        return [getattr(environments[number], method)(*rest) for method, *rest in calls]
    except SystemExit as error:  # the engine's way to say that a game is malformed
        raise RuntimeError(f"the environment gave up: {error}") from None
