"""Grading one reply at a time, as an environment must: a process that compares, and can be stopped.

``grading.grade`` starts processes for each batch, and may not be called in the worker of a pool.
Here one child compares all that this process asks about, and is replaced when an item takes longer
than its limit. It ends when its input does. Neither side evaluates anything that it is sent.
"""

import json
import select
import signal
import subprocess
import sys
import threading
from functools import lru_cache
from typing import IO, cast, get_args

from interlat.questions.answers import find_answer
from interlat.questions.grading import Reason, Verdict, at_sight, compare, prepare_worker

LIMIT_S = 5.0
"""Seconds for one item."""
_START_S = 120.0
"""Seconds for a child's imports."""


class Judge:
    """Grades replies; starts its child when one is first needed."""

    def __init__(self, limit_s: float = LIMIT_S) -> None:
        """limit_s: seconds for one item; one that takes longer is wrong, by "time limit"."""
        self._limit_s = limit_s
        self._child: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def grade(self, reply: str, solution: str) -> Verdict:
        """Is a reply's answer the solution's? What can be told at sight needs no child."""
        prediction, gold = (
            found.text if (found := find_answer(text)) else None for text in (reply, solution)
        )
        verdict = at_sight(prediction, gold)
        if verdict is not None:
            return verdict
        with self._lock:
            reason = self._compare([prediction, gold])
        return Verdict(prediction, gold, reason == "equivalent", reason)

    def close(self) -> None:
        """End the child."""
        if self._child is not None:
            self._child.kill()
            self._child.communicate()
            self._child = None

    def _compare(self, pair: list[str | None]) -> Reason:
        if self._child is None:
            self._child = subprocess.Popen(
                [sys.executable, "-c", f"from {__name__} import serve; serve()"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
            self._hear(_START_S)
        try:
            self._ask(pair)
            answer = self._hear(self._limit_s)
        except BrokenPipeError:
            answer = ""
        if answer in get_args(Reason):
            return cast(Reason, answer)
        self.close()
        return "time limit"

    def _ask(self, pair: list[str | None]) -> None:
        assert self._child is not None
        questions = cast(IO[bytes], self._child.stdin)
        questions.write(json.dumps(pair).encode() + b"\n")
        questions.flush()

    def _hear(self, seconds: float) -> str:
        """The child's next line; empty where none comes in time, or it has died."""
        assert self._child is not None
        answers = cast(IO[bytes], self._child.stdout)
        ready, _, _ = select.select([answers], [], [], seconds)
        return answers.readline().decode().strip() if ready else ""


@lru_cache(maxsize=1)
def shared_judge() -> Judge:
    """The judge of all environments in this process."""
    return Judge()


def serve() -> None:
    """A child's life: a pair as a JSON line comes, a reason goes back, until the input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    prepare_worker()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    for line in sys.stdin:
        sys.stdout.write(compare(*json.loads(line)) + "\n")
        sys.stdout.flush()
