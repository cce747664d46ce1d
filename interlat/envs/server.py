"""AgentGym's protocol over our environments: ``serve`` answers clients until it is interrupted.

Routes, bodies and error texts are those of AgentGym's own servers, kind by kind. What these lack is
added: ``/close`` everywhere, an end that stays an end, a step limit, and limits on what a client
may take. There is no password: it listens on the loopback address unless told otherwise.
"""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import lru_cache
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import APIRouter, FastAPI
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from interlat.config import TaskConfig, UserError
from interlat.envs import GAMES, environment_config
from interlat.envs.base import StepResult
from interlat.envs.instances import Call, Instances, Limits, Refused
from interlat.tasks import Task

log = logging.getLogger(__name__)

Told = dict[str, Any]
"""An answer's body."""


class Kind:
    """What is particular to a kind of server; this is what most have in common."""

    name: str
    """Of the environment."""
    title: str
    processes = False
    """Must its environments live in processes of their own?"""
    with_reset: tuple[Call, ...] = ()
    """What else an environment is asked at a reset."""
    with_step: tuple[Call, ...] = ()
    ended_is_error = True
    """Is a step after the end an error, or does it bring the last observation again?"""
    refusal_status = 200

    def settings(self, config: TaskConfig, prepared: bool) -> dict[str, Any]:
        """The environment's arguments; prepared: its tasks are from the prepare stage."""
        return environment_config(config, GAMES)

    def task(self, config: TaskConfig, number: int) -> Task:
        """The task of a number. Raises IndexError; the environment may refuse it as well."""
        return Task(f"{self.title}_{number}", self.name, "served", "?", env_args={"index": number})

    def started(self, number: int, task: Task, observation: str, more: Sequence[Any]) -> Told:
        """The answer to a reset of instance ``number``; more: see ``with_reset``."""
        return {"id": number, "observation": observation, "done": False, "reward": 0}

    def stepped(self, before: Told, result: StepResult, more: Sequence[Any]) -> Told:
        """The answer to a step; before: the answer before."""
        return {
            "observation": result.observation,
            "reward": result.reward,
            "done": result.done,
        }


class TextCraftKind(Kind):
    """Its end was never an error."""

    name = title = "textcraft"
    ended_is_error = False

    def settings(self, config: TaskConfig, prepared: bool) -> dict[str, Any]:
        made = super().settings(config, prepared)
        return made if prepared else {**made, "book": config.data}


class SciWorldKind(Kind):
    """Rewards are differences of the score, which is up to 100, or -100."""

    name = "scienceworld"
    title = "sciworld"
    processes = True

    def settings(self, config: TaskConfig, prepared: bool) -> dict[str, Any]:
        _numbering()  # without Java this says so now, and not to the first client
        return super().settings(config, prepared)

    def task(self, config: TaskConfig, number: int) -> Task:
        name, variation = _numbering()[number]
        args: dict[str, Any] = {"name": name, "variation": variation}
        if config.name.endswith("-easy"):
            args["simplifications"] = "easy"
        return replace(super().task(config, number), env_args=args)

    def started(self, number: int, task: Task, observation: str, more: Sequence[Any]) -> Told:
        description, _, look = observation.partition("\n")
        return {
            "task_name": task.env_args.get("name"),
            "var_num": task.env_args.get("variation"),
            "task_description": description,
            "observation": look,
            "reward": 0,
            "score": 0,
            "deleted": False,
            "done": False,
        }

    def stepped(self, before: Told, result: StepResult, more: Sequence[Any]) -> Told:
        score = result.info["score"]
        told = super().stepped(before, result, more)
        return {**told, "reward": score - before["score"], "score": score}


class AlfworldKind(Kind):
    """Says what is possible with every answer, and at the start the first turn in react style."""

    name = title = "alfworld"
    processes = True
    with_reset = (("admissible",), ("first_turn", ""))
    with_step = (("admissible",),)

    def settings(self, config: TaskConfig, prepared: bool) -> dict[str, Any]:
        return {**super().settings(config, prepared), "prompt": "react"}

    def task(self, config: TaskConfig, number: int) -> Task:
        if config.games == "generated":
            if not 0 <= number < config.train_games:
                raise IndexError("list index out of range")
            args: dict[str, Any] = {"seed": config.seed, "split": "train", "index": number}
        else:
            args = {"game": _official_games(config.games)[number]}
        return replace(super().task(config, number), env_args=args)

    def started(self, number: int, task: Task, observation: str, more: Sequence[Any]) -> Told:
        actions, turn = more
        place = task.env_args
        game = place["game"] if "game" in place else f"{place['split']}/{place['index']}"
        return {
            **super().started(number, task, observation, more),
            "available_actions": actions,
            "task_type": "/".join(Path(game).parts[-2:]),
            "first_turn": turn + observation,
        }

    def stepped(self, before: Told, result: StepResult, more: Sequence[Any]) -> Told:
        return {**super().stepped(before, result, more), "available_actions": more[0]}


class WebShopKind(Kind):
    """Answers bare, refuses with status 500; its goals are numbered as the shop orders them."""

    name = title = "webshop"
    ended_is_error = False
    refusal_status = 500

    def task(self, config: TaskConfig, number: int) -> Task:
        return replace(super().task(config, number), env_args={"goal": number})

    def started(self, number: int, task: Task, observation: str, more: Sequence[Any]) -> Told:
        return {"state": observation, "reward": 0.0, "done": False, "info": None}

    def stepped(self, before: Told, result: StepResult, more: Sequence[Any]) -> Told:
        return {
            "state": result.observation,
            "reward": result.reward,
            "done": result.done,
            "info": None,
        }


KINDS: Mapping[str, Kind] = {
    "textcraft": TextCraftKind(),
    "webshop": WebShopKind(),
    "sciworld": SciWorldKind(),
    "scienceworld": SciWorldKind(),
    "scienceworld-easy": SciWorldKind(),
    "alfworld": AlfworldKind(),
}
"""What can be served."""


class Service:
    """What clients of any kind can do."""

    def __init__(
        self, kind: Kind, config: TaskConfig, tasks: Sequence[Task], limits: Limits
    ) -> None:
        """tasks: what the numbers mean; none for the environment's own numbering."""
        self.kind, self._config, self._tasks = kind, config, tasks
        made = kind.settings(config, bool(tasks))
        self.instances = Instances(kind.name, made, limits, processes=kind.processes)

    async def reset(self, number: int, index: int) -> Told:
        """Start a task in an instance. Raises Refused."""
        instance = self.instances.find(number)
        async with instance.lock:
            try:
                task = await asyncio.to_thread(self._task, index)
            except (IndexError, UserError) as error:
                raise Refused(str(error)) from None
            instance.told = {}
            observation, *more = await self.instances.ask(
                number, ("reset", task), *self.kind.with_reset
            )
            instance.told = self.kind.started(number, task, observation, more)
            return instance.told

    async def step(self, number: int, action: str) -> Told:
        """Do an action in an instance. Raises Refused."""
        instance = self.instances.find(number)
        async with instance.lock:
            if not instance.told:
                raise Refused(f"The environment {number} has not been reset.")
            if instance.told["done"]:
                self._check_end(number, instance.told)
                return {**instance.told, "reward": 0}
            result, *more = await self.instances.ask(number, ("step", action), *self.kind.with_step)
            instance.told = self.kind.stepped(instance.told, result, more)
            return instance.told

    async def ask(self, number: int, *call: Any) -> Any:
        """What an instance's environment returns to a call. Raises Refused."""
        instance = self.instances.find(number)
        async with instance.lock:
            return (await self.instances.ask(number, call))[0]

    def told(self, number: int) -> Told:
        """The last answer of an instance. Raises Refused before the first, and after the end."""
        told = self.instances.find(number).told
        if not told:
            raise Refused(f"The environment {number} has not been reset.")
        self._check_end(number, told)
        return told

    def _check_end(self, number: int, told: Told) -> None:
        if told["done"] and self.kind.ended_is_error:
            raise Refused(f"The task with environment {number} has finished.")

    def _task(self, index: int) -> Task:
        return self._tasks[index] if self._tasks else self.kind.task(self._config, index)


class ById(BaseModel):
    """A request about an instance."""

    id: int


class StepById(ById):
    """A step."""

    action: str


class ResetById(ById):
    """A reset of textcraft and sciworld."""

    data_idx: int = 0


class ResetGame(ById):
    """A reset of alfworld."""

    game: int
    world_type: str


class CreateTextCraft(BaseModel):
    """What textcraft's creation may name; only nothing is understood here."""

    commands: str | None = None
    goal: str | None = None


class ByIndex(BaseModel):
    """A request about a webshop instance."""

    env_idx: int


class StepByIndex(ByIndex):
    """A step in webshop."""

    action: str


class ResetByIndex(ByIndex):
    """A reset of webshop; without a goal it is the one of the instance's own number."""

    session_id: int | None = None


def build_app(
    name: str, config: TaskConfig, tasks: Sequence[Task] = (), limits: Limits | None = None
) -> FastAPI:
    """The server's application. name: one of ``KINDS``; tasks: see ``Service``."""
    limits = limits or Limits()
    kind = KINDS[name]
    service = Service(kind, config, tasks, limits)

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        eviction = asyncio.create_task(service.instances.evict())
        try:
            yield
        finally:
            eviction.cancel()
            with suppress(asyncio.CancelledError):
                await eviction
            await service.instances.shut_down()

    app = FastAPI(title=f"interlat {kind.title}", lifespan=life)
    app.state.instances = service.instances
    app.add_middleware(BodyLimit, most=limits.body_bytes)
    app.include_router(_webshop(service) if kind.name == "webshop" else _by_id(service))

    @app.exception_handler(Refused)
    def refuse(_: Request, refusal: Refused) -> JSONResponse:
        return JSONResponse({"error": str(refusal)}, kind.refusal_status)

    return app


def _by_id(service: Service) -> APIRouter:
    """The routes of textcraft, sciworld and alfworld."""
    router = APIRouter()
    kind = service.kind

    @router.get("/")
    async def greet() -> str:
        return f"This is environment {kind.title}."

    if kind.name == "textcraft":

        @router.post("/create")
        async def create_textcraft(body: CreateTextCraft) -> Told:
            if body.commands or body.goal:
                raise Refused("Commands and goals of a client's own are not served here.")
            number = service.instances.create()
            return await service.reset(number, number)

    else:

        @router.post("/create")
        async def create() -> Told:
            return {"id": service.instances.create()}

    if kind.name == "alfworld":

        @router.post("/reset")
        async def reset_game(body: ResetGame) -> Told:
            if body.world_type != "Text":
                raise Refused('Only the world type "Text" is served here.')
            return await service.reset(body.id, body.game)

        @router.get("/available_actions")
        async def available_actions(id: int) -> list[str]:
            actions: list[str] = service.told(id)["available_actions"]
            return actions

    else:

        @router.post("/reset")
        async def reset(body: ResetById) -> Told:
            return await service.reset(body.id, body.data_idx)

    @router.post("/step")
    async def step(body: StepById) -> Told:
        return await service.step(body.id, body.action)

    @router.post("/close")
    async def close(body: ById) -> bool:
        return await service.instances.close(body.id)

    @router.get("/observation")
    async def observation(id: int) -> str:
        return str(service.told(id)["observation"])

    @router.get("/detail")
    async def detail(id: int) -> Told:
        return service.told(id)

    return router


def _webshop(service: Service) -> APIRouter:
    """The routes of webshop."""
    router = APIRouter()

    @router.get("/")
    async def greet() -> str:
        return "ok"

    @router.get("/list_envs")
    async def list_envs() -> list[int]:
        return service.instances.ids

    @router.post("/create")
    async def create() -> int:
        return service.instances.create()

    @router.post("/reset")
    async def reset(body: ResetByIndex) -> tuple[str, None]:
        index = body.env_idx if body.session_id is None else body.session_id
        return (await service.reset(body.env_idx, index))["state"], None

    @router.post("/step")
    async def step(body: StepByIndex) -> Told:
        return await service.step(body.env_idx, body.action)

    @router.post("/close")
    async def close(body: ByIndex) -> dict[str, bool]:
        return {"closed": await service.instances.close(body.env_idx)}

    @router.get("/observation")
    async def observation(env_idx: int) -> str:
        return str(service.told(env_idx)["state"])

    @router.get("/available_actions")
    async def available_actions(env_idx: int) -> Told:
        service.told(env_idx)
        bar, clickables = await service.ask(env_idx, "available")
        return {"has_search_bar": bar, "clickables": clickables}

    return router


class BodyLimit:
    """Refuses requests that are too long, before anything of them is looked at."""

    def __init__(self, app: ASGIApp, most: int) -> None:
        """most: bytes of a body."""
        self._app, self._most = app, most

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on a request whose body is short enough."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        body, more = b"", True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
            if len(body) > self._most:
                error = {"error": f"A request may have {self._most} bytes."}
                await JSONResponse(error, 413)(scope, receive, send)
                return
        messages: list[Message] = [{"type": "http.request", "body": body}]

        async def replay() -> Message:
            return messages.pop() if messages else await receive()

        await self._app(scope, replay, send)


def serve(
    name: str,
    config: TaskConfig,
    host: str,
    port: int,
    *,
    tasks: Sequence[Task] = (),
    limits: Limits | None = None,
    announce: Callable[[str], None] = log.info,
) -> None:
    """Answer clients until interrupted; then close every environment.

    port: 0 for any that is free. announce: told the address when it is open.
    Raises UserError when the address cannot be had.
    """
    app = build_app(name, config, tasks, limits)
    try:
        listener = socket.create_server((host, port), reuse_port=False, backlog=1024)
    except (OSError, OverflowError) as error:
        raise UserError(f"--host {host} --port {port}: {error}; choose another") from None
    if not _is_loopback(listener):
        log.warning("%s can be reached from other machines, and asks nobody who they are", host)
    announce(f"http://{host}:{listener.getsockname()[1]}")
    server = uvicorn.Server(
        uvicorn.Config(app, log_level="warning", access_log=False, timeout_graceful_shutdown=5)
    )
    server.run(sockets=[listener])


def _is_loopback(listener: socket.socket) -> bool:
    return ip_address(listener.getsockname()[0]).is_loopback


@lru_cache
def _numbering() -> list[tuple[str, int]]:
    from interlat.envs.scienceworld.ids import numbering

    return numbering()


@lru_cache
def _official_games(root: str) -> list[str]:
    """The folders of the official games of train and valid_seen, in that order."""
    from interlat.envs.alfworld.prepare import official_games

    return [
        str(folder.relative_to(root))
        for split in ("train", "valid_seen")
        for folder in official_games(Path(root), split)
    ]
