"""The simulator in Java processes that this process shares: pooled, capped, never left behind.

A JVM hosts several worlds and ends with the last of them. It also ends by itself when this process
does, however that comes about: it waits on a pipe. Its worlds share one source of chance, so one
call at a time goes to it. The simulator walks over hash sets; left to themselves these have another
order each time, and with them rooms, temperatures and circuits. So every object gets the same
identity hash, which costs half the speed and makes each episode repeatable.
"""

import logging
import shutil
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, NamedTuple

from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from py4j.protocol import Py4JError
from scienceworld.constants import BASEPATH, ID2TASK, JAR_PATH

from interlat.config import UserError

MEMORY_MIB = 768
"""Heap of a JVM, at most; a world takes 11 to 20."""
WORLDS = 32
"""Worlds in a JVM, at most."""
JVMS = 4
"""JVMs of a process, at most."""
TASKS: Mapping[str, str] = ID2TASK
"""Task id ("1-1") -> name ("boil"), in the published order."""
_OPTIONS = (
    f"-Xmx{MEMORY_MIB}m",
    "-XX:+UseSerialGC",
    "-XX:+IgnoreUnrecognizedVMOptions",
    "-XX:+UnlockExperimentalVMOptions",
    "-XX:hashCode=2",
)
# It logs, with a traceback, what it raises as well, and whatever outlives its JVM.
logging.getLogger("py4j").setLevel(logging.CRITICAL)


class Reading(NamedTuple):
    """What an action brought."""

    text: str
    score: int
    """Of the whole episode, up to 100; below 0 when the task can no longer be done."""
    completed: bool
    moves: int
    """The simulator's clock: looking takes none, waiting ten."""


class World:
    """One simulated house. When its JVM fails, calls raise RuntimeError."""

    def __init__(self) -> None:
        """Raises UserError without Java, or when this process has all the worlds that it may."""
        with _sharing:
            self._jvm = _jvm_with_room()
            self._simulator = self._jvm.simulator()

    @property
    def alive(self) -> bool:
        """Whether its JVM runs."""
        return self._jvm.alive

    def load(self, name: str, variation: int, simplifications: str = "") -> Reading:
        """Start a task; the text is its description and, on a new line, the first look around."""
        with self._speaking() as simulator:
            _check(simulator, simplifications)
            simulator.load(name, variation, simplifications, False)
            reading = _act(simulator, "look around")
            return reading._replace(text=f"{simulator.getTaskDescription()}\n{reading.text}")

    def step(self, action: str) -> Reading:
        """Do one action."""
        with self._speaking() as simulator:
            return _act(simulator, action)

    def admissible(self) -> list[str]:
        """Every action that would be understood now, sorted."""
        with self._speaking() as simulator:
            return sorted(set(simulator.getValidActionObjectCombinations()))

    def gold(self, name: str, variation: int, simplifications: str = "") -> list[str]:
        """The simulator's own solution of a task; what was going on is lost."""
        with self._speaking() as simulator:
            _check(simulator, simplifications)
            simulator.load(name, variation, simplifications, True)
            return list(simulator.getGoldActionSequence())

    def count(self, name: str) -> int:
        """How many variations a task has."""
        with self._speaking() as simulator:
            return int(simulator.getTaskMaxVariations(name))

    def parts(self, name: str) -> dict[str, list[int]]:
        """The variations of a task's Train, Dev and Test part; what was going on is lost."""
        with self._speaking() as simulator:
            simulator.load(name, 0, "", False)
            return {
                "Train": sorted(simulator.getVariationsTrain()),
                "Dev": sorted(simulator.getVariationsDev()),
                "Test": sorted(simulator.getVariationsTest()),
            }

    def close(self) -> None:
        """Leave the JVM; the last world to go ends it."""
        with _sharing:
            if self._simulator is not None:
                self._simulator = None
                self._jvm.leave()

    @contextmanager
    def _speaking(self) -> Iterator[Any]:
        with self._jvm.lock:
            try:
                yield self._simulator
            except (Py4JError, OSError) as error:
                self._jvm.end()
                reason = " ".join(str(error).split("\n\t", 1)[0].split())
                raise RuntimeError(f"the ScienceWorld simulator failed: {reason}") from None


@lru_cache
def variation_counts() -> Mapping[str, int]:
    """Task name -> how many variations it has."""
    world = World()
    try:
        return {name: world.count(name) for name in TASKS.values()}
    finally:
        world.close()


class _Jvm:
    """A Java process."""

    def __init__(self) -> None:
        try:
            port, token, self._process = launch_gateway(
                classpath=JAR_PATH,
                cwd=BASEPATH,
                javaopts=list(_OPTIONS),
                die_on_exit=True,
                enable_auth=True,
                return_proc=True,
            )
        except ValueError:  # what it says first is not its port
            raise UserError(
                f"java does not start with {_OPTIONS[0]}: try `java {_OPTIONS[0]} -version`"
            ) from None
        self._gateway = JavaGateway(
            gateway_parameters=GatewayParameters(port=port, auth_token=token, auto_field=True)
        )
        self.lock = threading.RLock()
        self.worlds = 0

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def simulator(self) -> Any:
        """A new one; ``leave`` when it is done with."""
        self.worlds += 1
        return self._gateway.jvm.scienceworld.runtime.pythonapi.PythonInterface()

    def leave(self) -> None:
        self.worlds -= 1
        if self.worlds == 0:
            self.end()

    def end(self) -> None:
        """Kill the process: there is nothing in it to save."""
        self._gateway.close()
        self._process.kill()
        self._process.wait()


_jvms: list[_Jvm] = []
_sharing = threading.RLock()


def _jvm_with_room() -> _Jvm:
    if shutil.which("java") is None:
        raise UserError(
            "ScienceWorld needs Java and there is no `java` here: install the package "
            "default-jre-headless (apt-get install default-jre-headless), or any Java from 8 on"
        )
    _jvms[:] = [jvm for jvm in _jvms if jvm.alive]
    for jvm in _jvms:
        if jvm.worlds < WORLDS:
            return jvm
    if len(_jvms) == JVMS:
        raise UserError(
            f"more than {JVMS * WORLDS} ScienceWorld episodes at once in one process: lower "
            "evaluate.batch_size, or raise evaluate.env_workers"
        )
    _jvms.append(_Jvm())
    return _jvms[-1]


def _check(simulator: Any, simplifications: str) -> None:
    known = ["easy", *simulator.getPossibleSimplifications().split(", ")]
    for one in filter(None, simplifications.split(",")):
        if one not in known:
            raise UserError(f"no simplification is called {one!r}; there is: {', '.join(known)}")


def _act(simulator: Any, action: str) -> Reading:
    text = simulator.step(action)
    score = round(100 * simulator.getScore())
    return Reading(text, score, simulator.getCompleted(), simulator.getNumMoves())
