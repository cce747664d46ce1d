"""Many episodes side by side, in spawned worker processes or, with none, in this process.

Each slot of a batch has its environment in one worker for as long as the batch lasts. What goes
wrong in an environment is an outcome of its episode, not the end of the run; a worker that crashes
or hangs is killed, its episodes fail, and the next batch gets a new one. No torch in a worker.
"""

import os
import signal
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any, Literal, NamedTuple, Self, TypeVar

from interlat.config import UserError
from interlat.envs.base import Environment, Restorable, StepResult, make
from interlat.tasks import Task


class Started(NamedTuple):
    """An episode's first human turn."""

    turn: str


class Stepped(NamedTuple):
    """What a reply brought: the action in it, the environment's answer, that as a human turn."""

    action: str
    result: StepResult
    turn: str


class Snapshot(NamedTuple):
    """A moment of an episode, as ``Restorable.snapshot`` gives it."""

    state: Any


class Restored(NamedTuple):
    """The episode goes on from the moment that was asked for."""


class EnvironmentFailure(NamedTuple):
    """Why an episode cannot go on."""

    error: str


Kind = Literal["reset", "step", "snapshot", "restore"]
Outcome = Started | Stepped | Snapshot | Restored | EnvironmentFailure
T = TypeVar("T")
_STOP_SECONDS = 5.0


class EnvironmentPool:
    """A batch of episodes at a time: ``reset_many``, then ``step_many`` on those still running."""

    def __init__(
        self, name: str, config: Mapping[str, Any], workers: int, *, seconds: float = 60.0
    ) -> None:
        """name, config: as for ``interlat.envs.base.make``.

        workers: processes; 0 hosts the environments here (no protection from crashes and hangs).
        seconds: longest that one reset or step may take.
        """
        self._seconds = seconds
        self._local = _Host(name, config) if workers == 0 else None
        self._workers = [_Worker(name, config) for _ in range(workers)]

    def reset_many(self, tasks: Sequence[Task]) -> list[Started | EnvironmentFailure]:
        """Start an episode of each task; slot i of ``step_many`` is ``tasks[i]``.

        Raises UserError for a task that the user's settings or files make impossible.
        """
        outcomes = self._do("reset", dict(enumerate(tasks)))
        return [_expect(outcomes[slot], Started) for slot in range(len(tasks))]

    def step_many(self, replies: Mapping[int, str]) -> dict[int, Stepped | EnvironmentFailure]:
        """Give each slot's agent's reply to its environment."""
        outcomes = self._do("step", replies)
        return {slot: _expect(outcome, Stepped) for slot, outcome in outcomes.items()}

    def snapshot_many(self, slots: Iterable[int]) -> dict[int, Snapshot | EnvironmentFailure]:
        """The present moment of each slot's episode; a failure where the kind is not Restorable."""
        outcomes = self._do("snapshot", dict.fromkeys(slots))
        return {slot: _expect(outcome, Snapshot) for slot, outcome in outcomes.items()}

    def restore_many(
        self, snapshots: Mapping[int, Snapshot]
    ) -> dict[int, Restored | EnvironmentFailure]:
        """Let each slot go on from a snapshot of any slot; one that is new here begins with it."""
        outcomes = self._do("restore", snapshots)
        return {slot: _expect(outcome, Restored) for slot, outcome in outcomes.items()}

    def close(self) -> None:
        """End the workers."""
        if self._local is not None:
            self._local.close()
        for worker in self._workers:
            worker.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _do(self, kind: Kind, requests: Mapping[int, Any]) -> dict[int, Outcome]:
        if self._local is not None:
            return {slot: self._local.do(kind, slot, what) for slot, what in requests.items()}
        count = len(self._workers)
        shares = [
            {slot: what for slot, what in requests.items() if slot % count == index}
            for index in range(count)
        ]
        for worker, share in zip(self._workers, shares, strict=True):
            worker.send(kind, share)
        return {
            slot: outcome
            for worker, share in zip(self._workers, shares, strict=True)
            for slot, outcome in worker.receive(share, self._seconds)
        }


class _Host:
    """The environments of one process, by slot; they are kept for the next batch."""

    def __init__(self, name: str, config: Mapping[str, Any]) -> None:
        self._name, self._config = name, config
        self._environments: dict[int, Environment] = {}

    def do(self, kind: Kind, slot: int, what: Any) -> Outcome:
        """Start ``what`` (a task), answer it (a reply), or go back to it (a snapshot) in a slot."""
        try:
            if slot not in self._environments:
                self._environments[slot] = make(self._name, **self._config)
            return _answer(self._environments[slot], kind, what)
        except UserError:
            raise
        except Exception as error:  # an environment's failure is its episode's outcome
            return EnvironmentFailure(f"{type(error).__name__}: {error}")

    def close(self) -> None:
        for environment in self._environments.values():
            environment.close()


def _answer(environment: Environment, kind: Kind, what: Any) -> Outcome:
    if kind == "reset":
        return Started(environment.first_turn(environment.reset(what)))
    if kind == "step":
        action = environment.parse_action(what)
        result = environment.step(action)
        return Stepped(action, result, environment.next_turn(result.observation))
    if not isinstance(environment, Restorable):
        raise ValueError("this environment cannot go back to an earlier moment")
    if kind == "snapshot":
        return Snapshot(environment.snapshot())
    environment.restore(what.state)
    return Restored()


class _Worker:
    """One process with a host in it, started when it is first needed."""

    def __init__(self, name: str, config: Mapping[str, Any]) -> None:
        self._name, self._config = name, dict(config)
        self._process: Any = None
        self._pipe: Connection | None = None

    def send(self, kind: Kind, requests: Mapping[int, Any]) -> None:
        """Pass on a share of a batch; a new batch gets a new process if the last one died."""
        if kind in ("reset", "restore") and self._pipe is None and requests:
            self._start()
        if self._pipe is not None and requests:
            try:
                self._pipe.send((kind, dict(requests)))
            except OSError:
                self.stop(patience=0.0)

    def receive(self, requests: Mapping[int, Any], seconds: float) -> Iterator[tuple[int, Outcome]]:
        """The outcomes of what was sent; failures from the one on at which the process died."""
        reason = "its worker process ended earlier"
        for slot in requests:
            if self._pipe is not None:
                try:
                    if self._pipe.poll(seconds):
                        outcome = self._pipe.recv()
                        if isinstance(outcome, UserError):
                            raise outcome
                        yield slot, outcome
                        continue
                    reason = f"no answer within {seconds:g} s"
                except (EOFError, OSError):
                    reason = "its worker process crashed"
                self.stop(patience=0.0)
            yield slot, EnvironmentFailure(reason)

    def stop(self, patience: float = _STOP_SECONDS) -> None:
        """End the process: it goes when its pipe closes, or by force after ``patience`` seconds."""
        if self._pipe is not None:
            self._pipe.close()
            self._pipe = None
        if self._process is not None:
            self._process.join(patience)
            self._process.kill()
            self._process.join()
            self._process = None

    def _start(self) -> None:
        context = get_context("spawn")
        self._pipe, theirs = context.Pipe()
        with _one_thread():
            self._process = context.Process(
                target=_serve, args=(theirs, self._name, self._config), daemon=True
            )
            self._process.start()
        theirs.close()


def _serve(pipe: Connection, name: str, config: Mapping[str, Any]) -> None:
    """A worker's life: batches come, outcomes go back one by one, until the pipe closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    host = _Host(name, config)
    try:
        while True:
            kind, requests = pipe.recv()
            for outcome in _outcomes(host, kind, requests):
                pipe.send(outcome)
    except (EOFError, OSError):
        host.close()


def _outcomes(host: _Host, kind: Kind, requests: Mapping[int, Any]) -> Iterable[Any]:
    for slot, what in requests.items():
        try:
            yield host.do(kind, slot, what)
        except UserError as error:
            yield error


@contextmanager
def _one_thread() -> Iterator[None]:
    """The environment of a child that computes on one thread; restored afterwards."""
    before = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ["OMP_NUM_THREADS"]
        else:
            os.environ["OMP_NUM_THREADS"] = before


def _expect(outcome: Outcome, kind: type[T]) -> T | EnvironmentFailure:
    assert isinstance(outcome, kind | EnvironmentFailure)
    return outcome
