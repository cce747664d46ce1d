"""Environments behind an AgentGym server: webshop, sciworld, textcraft and alfworld over HTTP.

A task says which of the server's tasks it is, by {"index": 17} in ``env_args`` or by an AgentGym
item id such as "webshop_17". What the servers do differently stands in the dialects. A request is
sent again only where that does no harm: never a step, which may have been done. An episode is over
when the server first says so, or at the step limit, which servers do not have.
"""

import atexit
import re
import threading
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import httpx
from tenacity import retry, retry_if_exception_type, stop_after_attempt, wait_exponential

from interlat.config import TaskConfig, UserError
from interlat.envs.alfworld.replica import NOTHING
from interlat.envs.alfworld.text import clean
from interlat.envs.base import EnvironmentKind, StepResult, parse_reply
from interlat.envs.replay import Moment, replay
from interlat.tasks import Task

Style = Literal["plain", "react"]
SECONDS = 60.0
"""Longest that a server may take to answer."""
ATTEMPTS = 3
_ITEM = re.compile(r"[a-z]+_(\d+)")
_KEEP_ALIVE = httpx.Limits(keepalive_expiry=2.0)
"""Shorter than a server's: a request on a connection that just closes could not be sent again."""


class ServerError(RuntimeError):
    """The server cannot be reached, refuses, or answers what its kind does not."""


class _Unanswered(ServerError):
    """The request may be sent again if it does no harm."""


class Reading(NamedTuple):
    """What a step's answer says."""

    observation: str
    earned: float
    """Reward of the episode so far, in [0, 1]."""
    done: bool
    won: bool


class Dialect:
    """How one kind of server is spoken to; this is what most of them do."""

    id_field = "id"
    create_body: Mapping[str, Any] | None = None
    invalid: tuple[str, ...] = ()
    """How the answer to an impossible action begins, where that can be told."""

    def instance(self, answer: Any) -> int:
        """The id that ``/create`` gives."""
        return int(answer["id"])

    def reset_body(self, index: int) -> dict[str, Any]:
        """What ``/reset`` wants beside the id."""
        return {"data_idx": index}

    def first_observation(self, answer: Any) -> str:
        """The first observation, of the answer to ``/reset``."""
        return str(answer["observation"])

    def reading(self, answer: Any, earned: float) -> Reading:
        """The answer to ``/step``; earned: what there was before."""
        reward, done = float(answer["reward"]), bool(answer["done"])
        return Reading(str(answer["observation"]), earned + reward, done, reward == 1.0)

    def first_turn(self, observation: str, style: Style, answer: Any) -> str:
        """The first human turn; answer: to ``/reset``."""
        raise NotImplementedError

    def admissible(self, last: Any, get: Callable[[str], Any]) -> list[str]:
        """The possible actions, where the server tells. last: its answer; get: asks for more."""
        return []


class TextCraftDialect(Dialect):
    """{"id"} and {"data_idx"}; ``/create`` wants a body."""

    create_body: Mapping[str, Any] | None = {}
    invalid = ("Could not ", "Wrong item format")

    def instance(self, answer: Any) -> int:
        str(answer["observation"])  # the others' creation tells none
        return super().instance(answer)

    def first_turn(self, observation: str, style: Style, answer: Any) -> str:
        from interlat.envs.textcraft.text import first_turn

        return first_turn(observation, style)


class SciWorldDialect(Dialect):
    """Its score, up to 100, is what an episode has earned; a negative one is a fatal mistake."""

    invalid = ("No known action matches that input.",)

    def first_observation(self, answer: Any) -> str:
        return f"{answer['task_description']}\n{answer['observation']}"

    def reading(self, answer: Any, earned: float) -> Reading:
        score = answer["score"]
        done = bool(answer["done"]) or score < 0
        return Reading(str(answer["observation"]), max(0, score) / 100, done, score == 100)

    def first_turn(self, observation: str, style: Style, answer: Any) -> str:
        from interlat.envs.scienceworld.text import first_turn

        return first_turn(observation, style)


class AlfworldDialect(Dialect):
    """{"game"} and a world type; tells the possible actions with every answer.

    Ours also tells its first turn in the react style: the command to put down depends on the game.
    """

    invalid = (NOTHING,)

    def reset_body(self, index: int) -> dict[str, Any]:
        return {"game": index, "world_type": "Text"}

    def first_observation(self, answer: Any) -> str:
        sorted(answer["available_actions"])  # the others tell none
        return clean(str(answer["observation"]))

    def reading(self, answer: Any, earned: float) -> Reading:
        read = super().reading(answer, earned)
        return read._replace(observation=clean(read.observation))

    def first_turn(self, observation: str, style: Style, answer: Any) -> str:
        from interlat.envs.alfworld.text import first_turn

        told = answer.get("first_turn")
        if style == "react" and told:
            return str(told)
        return first_turn(observation, style, "put <object> in/on <receptacle>")

    def admissible(self, last: Any, get: Callable[[str], Any]) -> list[str]:
        return sorted(last["available_actions"])


class WebShopDialect(Dialect):
    """{"env_idx"}, {"session_id"}, {"state"}; ids and observations come bare."""

    id_field = "env_idx"

    def instance(self, answer: Any) -> int:
        if not isinstance(answer, int):
            raise TypeError
        return answer

    def reset_body(self, index: int) -> dict[str, Any]:
        return {"session_id": index}

    def first_observation(self, answer: Any) -> str:
        return str(answer[0])

    def reading(self, answer: Any, earned: float) -> Reading:
        return super().reading({**answer, "observation": answer["state"]}, earned)

    def first_turn(self, observation: str, style: Style, answer: Any) -> str:
        from interlat.envs.webshop.environment import first_turn

        return first_turn(observation, style)

    def admissible(self, last: Any, get: Callable[[str], Any]) -> list[str]:
        told = get("/available_actions")
        clicks = [f"click[{label}]" for label in told["clickables"] if label != "search"]
        return sorted([*clicks, *(["search[keywords]"] if told["has_search_bar"] else [])])


DIALECTS: Mapping[str, Dialect] = {
    "textcraft": TextCraftDialect(),
    "sciworld": SciWorldDialect(),
    "alfworld": AlfworldDialect(),
    "webshop": WebShopDialect(),
}


class AgentGymEnvironment:
    """One instance on a server, which it keeps from its first reset to ``close``."""

    def __init__(
        self,
        *,
        kind: str,
        server: str,
        step_limit: int,
        prompt: Style = "plain",
        seconds: float = SECONDS,
    ) -> None:
        """kind: one of ``DIALECTS``. server: its address, as "http://127.0.0.1:36001"."""
        self._pool = _pool(kind, server.rstrip("/"), seconds)
        self._dialect = DIALECTS[kind]
        self._step_limit = step_limit
        self._style: Style = prompt
        self._instance: int | None = None
        self._moment: Moment | None = None
        self._first: Any = None
        self._last: Any = None
        self._result = StepResult("", 0.0, False, False, {})
        self._earned = 0.0

    def reset(self, task: Task) -> str:
        """Start the task's episode, on a new instance if the server has forgotten the last one.

        Raises UserError when the server cannot be reached, is of another kind, or refuses.
        """
        body = self._dialect.reset_body(_index(task))
        try:
            try:
                answer = self._reset(body)
            except ServerError:
                if self._instance is None:
                    raise
                self._drop()
                answer = self._reset(body)
            observation = self._dialect.first_observation(answer)
        except ServerError as error:
            raise UserError(f"task {task.task_id}: {error}") from None
        except (KeyError, TypeError, IndexError, ValueError):
            raise UserError(self._pool.stranger("/reset")) from None
        self._first = self._last = answer
        self._moment, self._earned = Moment(task), 0.0
        self._result = StepResult(observation, 0.0, False, False, {"steps": 0})
        return observation

    def step(self, action: str) -> StepResult:
        """Do one action; after the end of the episode it changes nothing.

        Raises ServerError when the server fails; whether the action was done is not known then.
        """
        moment = self.snapshot()
        if self._result.done:
            return self._result._replace(reward=0.0)
        try:
            self._last = self._pool.post("/step", self._instance, {"action": _sendable(action)})
            read = self._dialect.reading(self._last, self._earned)
        except ServerError:
            self._drop()
            raise
        except (KeyError, TypeError, ValueError):
            raise ServerError(self._pool.stranger("/step")) from None
        self._moment = moment.after(action, read.observation)
        steps = len(self._moment.history)
        info: dict[str, Any] = {"steps": steps}
        if self._dialect.invalid:
            info["valid"] = not read.observation.startswith(self._dialect.invalid)
        reward, self._earned = read.earned - self._earned, read.earned
        done = read.done or steps >= self._step_limit
        self._result = StepResult(read.observation, reward, done, read.won, info)
        return self._result

    def snapshot(self) -> Moment:
        """The task and all that was done in it."""
        if self._moment is None:
            raise ValueError("reset comes first")
        return self._moment

    def restore(self, state: Moment) -> None:
        """Do again, on this instance, what the snapshot's history has beyond this episode's.

        Raises RuntimeError when an action brings another observation than it did.
        """
        replay(self, self._moment, state)

    def admissible(self) -> list[str]:
        """What alfworld and webshop servers tell; the others do not."""
        self.snapshot()
        return self._dialect.admissible(self._last, partial(self._pool.get, self._instance))

    def first_turn(self, observation: str) -> str:
        """The observation, in ``react`` style after an explanation of the game."""
        return self._dialect.first_turn(observation, self._style, self._first)

    def next_turn(self, observation: str) -> str:
        """The observation itself."""
        return observation

    def parse_action(self, reply: str) -> str:
        """The first line after "Action:", or of a bare reply."""
        return parse_reply(reply)

    def close(self) -> None:
        """Give the instance back."""
        if self._instance is not None:
            self._pool.take_back(self._instance)
        self._instance = self._moment = None

    def _reset(self, body: Mapping[str, Any]) -> Any:
        if self._instance is None:
            self._instance = self._pool.lend()
        return self._pool.post("/reset", self._instance, body, again=True)

    def _drop(self) -> None:
        """Lose an instance of which it is not known what it does now."""
        assert self._instance is not None
        self._pool.drop(self._instance)
        self._instance = self._moment = None


class InstancePool:
    """A process's instances on one server: lent, taken back, and all closed when none is lent."""

    def __init__(self, kind: str, base: str, seconds: float) -> None:
        """kind: what the server is asked to be. Nothing is sent yet."""
        self._kind, self._base, self._seconds = kind, base, seconds
        self._dialect = DIALECTS[kind]
        # The transport's own retries are of connections, before anything is sent: always safe.
        transport = httpx.HTTPTransport(limits=_KEEP_ALIVE, retries=ATTEMPTS - 1)
        timeout = httpx.Timeout(seconds, connect=min(seconds, 5.0))
        self._client = httpx.Client(base_url=base, transport=transport, timeout=timeout)
        self._lock = threading.Lock()
        self._free: list[int] = []
        self._lent: set[int] = set()
        atexit.register(self.close)

    def lend(self) -> int:
        """An instance that nobody uses, made if need be. Raises ServerError."""
        with self._lock:
            instance = self._free.pop() if self._free else self._create()
            self._lent.add(instance)
            return instance

    def take_back(self, instance: int) -> None:
        """What was lent can be lent again."""
        with self._lock:
            self._lent.discard(instance)
            self._free.append(instance)
        if not self._lent:
            self.close()

    def drop(self, instance: int) -> None:
        """Close what was lent."""
        with self._lock:
            self._lent.discard(instance)
        self._close(instance)

    def close(self) -> None:
        """Close every instance, the lent ones too."""
        with self._lock:
            instances = [*self._free, *self._lent]
            self._free, self._lent = [], set()
        for instance in instances:
            if not self._close(instance):
                return

    def post(
        self,
        path: str,
        instance: int | None,
        body: Mapping[str, Any] | None = None,
        *,
        again: bool = False,
    ) -> Any:
        """The answer to a POST about an instance; again: it may be sent again. Raises ServerError.

        body: its fields beside the id.
        """
        content = {self._dialect.id_field: instance, **(body or {})}
        return (
            self._persistently("POST", path, json=content)
            if again
            else self._ask("POST", path, json=content)
        )

    def get(self, instance: int | None, path: str) -> Any:
        """The answer to a GET about an instance. Raises ServerError."""
        return self._persistently("GET", path, params={self._dialect.id_field: instance})

    def stranger(self, path: str) -> str:
        """What to say when a server's answer is not of its kind."""
        return f"{self._base}{path}: the answer is not a {self._kind} server's; is it another kind?"

    def _create(self) -> int:
        answer = self._persistently("POST", "/create", json=self._dialect.create_body)
        try:
            return self._dialect.instance(answer)
        except (KeyError, TypeError, ValueError):
            raise ServerError(self.stranger("/create")) from None

    def _close(self, instance: int) -> bool:
        """Close an instance where the server can; returns False when the server is not there."""
        try:
            self._ask("POST", "/close", json={self._dialect.id_field: instance})
        except _Unanswered:
            return False
        except ServerError:
            pass  # webshop and alfworld servers may have no /close, and any may have forgotten it
        return True

    @retry(
        retry=retry_if_exception_type(_Unanswered),
        stop=stop_after_attempt(ATTEMPTS),
        wait=wait_exponential(multiplier=0.2, max=2.0),
        reraise=True,
    )
    def _persistently(self, method: str, path: str, **content: Any) -> Any:
        return self._ask(method, path, **content)

    def _ask(self, method: str, path: str, **content: Any) -> Any:
        try:
            response = self._client.request(method, path, **content)
        except httpx.TimeoutException:
            raise ServerError(f"{self._base}{path}: no answer within {self._seconds:g} s") from None
        except httpx.TransportError as error:
            raise _Unanswered(
                f"{self._base}: no server answers ({error}); "
                f"python stages/serve_env.py {self._kind} starts one"
            ) from None
        try:
            answer = response.json()
        except ValueError:
            answer = None
        if isinstance(answer, dict) and "error" in answer:
            raise ServerError(f"{self._base}{path}: {answer['error']}")
        if response.is_server_error:
            raise _Unanswered(f"{self._base}{path}: status {response.status_code}")
        if not response.is_success:
            raise ServerError(f"{self.stranger(path)} (status {response.status_code})")
        return answer


@lru_cache
def _pool(kind: str, base: str, seconds: float) -> InstancePool:
    return InstancePool(kind, base, seconds)


def _sendable(action: str) -> str:
    """The action without the halves of characters that are no text."""
    return action.encode("utf-8", "replace").decode()


def _index(task: Task) -> int:
    named = _ITEM.fullmatch(task.task_id)
    index = task.env_args.get("index", int(named[1]) if named else None)
    if not isinstance(index, int):
        raise UserError(
            f"task {task.task_id}: env_args must have `index`, the number of one of the server's "
            "tasks, unless the task_id is an AgentGym item id such as webshop_17"
        )
    return index


def settings(kind: str, task: TaskConfig, games: Path) -> dict[str, Any]:
    """The keyword arguments of ``AgentGymEnvironment``; ``task.data`` is the server's address."""
    address = httpx.URL(task.data or "")
    if address.scheme not in ("http", "https") or not address.host:
        raise UserError(
            f"task.data: expected the address of a {kind} server, as http://127.0.0.1:36001, "
            f"found {task.data or 'null'}"
        )
    return {
        "kind": kind,
        "server": str(address),
        "step_limit": task.step_limit,
        "prompt": task.prompt,
    }


def _kind(kind: str) -> EnvironmentKind:
    return EnvironmentKind(AgentGymEnvironment, partial(settings, kind))


TEXTCRAFT, SCIWORLD, ALFWORLD, WEBSHOP = map(_kind, DIALECTS)
