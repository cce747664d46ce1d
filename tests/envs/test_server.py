"""Our servers, with our client and with plain requests."""

import random
import shutil
import threading
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import psutil
import pytest
from serving import serving

from interlat.config import TaskConfig, UserError
from interlat.envs import find, make
from interlat.envs.agentgym import ServerError
from interlat.envs.base import Environment, StepResult
from interlat.envs.instances import Limits
from interlat.envs.server import KINDS, build_app
from interlat.tasks import Task

SCIENCE = pytest.mark.skipif(
    find_spec("scienceworld") is None or shutil.which("java") is None,
    reason='needs Java and pip install "interlat[scienceworld]"',
)
SHOP = pytest.mark.skipif(
    find_spec("bm25s") is None, reason='needs pip install "interlat[webshop]"'
)
EACH = [
    "textcraft",
    pytest.param("webshop", marks=SHOP),
    pytest.param("alfworld", marks=pytest.mark.slow),
    pytest.param("sciworld", marks=[pytest.mark.slow, SCIENCE]),
]
GENERAL = [
    "get 2 ash log",
    "craft 4 ash plank using 1 ash log",
    "inventory",
    "look around",
    "open door to kitchen",
    "go to kitchen",
    "pick up thermometer",
    "focus on orange",
]
BAD = ["", "öffne die Tür", "x" * 10_000, "look\x00\x1b[2J"]


def config(name: str, **more: Any) -> TaskConfig:
    return TaskConfig(name=name, step_limit=12, success_steps=(12,), **more)


def client(name: str, server: str, **more: Any) -> Environment:
    remote = f"agentgym-{KINDS[name].title}"
    return make(remote, **find(remote).settings(config(name, data=server, **more), Path()))


def numbered(index: int) -> Task:
    return Task("t", "agentgym", "test", "?", env_args={"index": index})


class Seen(NamedTuple):
    """An episode as the agent sees it."""

    first: str
    results: list[StepResult]
    admissible: list[list[str]]


def play(environment: Environment, task: Task, seed: int, told: bool) -> Seen:
    """An episode of actions drawn at random; told: does the environment say what is possible?"""
    rng = random.Random(seed)
    first = environment.first_turn(environment.reset(task))
    results, admissible = [], []
    for _ in range(12):
        actions = environment.admissible() if told else GENERAL
        admissible.append(actions)
        action = rng.choice([*actions, *BAD])
        result = environment.step(action.replace("[keywords]", "[red shoes]"))
        results.append(result._replace(info={"steps": result.info["steps"]}))
        if result.done:
            break
    return Seen(first, results, admissible)


@pytest.mark.parametrize("name", EACH)
def test_the_client_plays_what_is_played_in_process(name: str) -> None:
    kind = KINDS[name]
    told = kind.name in ("alfworld", "webshop")
    with serving(build_app(name, config(name))) as base:
        for prompt, index in (("plain", 0), ("react", 5)):
            remote = client(name, base, prompt=prompt)
            settings = {**kind.settings(config(name), False), "prompt": prompt}
            local = make(kind.name, **settings)
            there = play(remote, numbered(index), index, told)
            here = play(local, kind.task(config(name), index), index, told)
            assert there == here
            remote.close()
            local.close()


def load(name: str, clients: int, seconds: float) -> tuple[int, float, list[Exception], float]:
    """Play with so many clients at a time; steps done, seconds, errors, MiB that memory grew."""
    counts, errors = [0] * clients, []
    actions = GENERAL if name == "textcraft" else ["search[red shoes]", "click[next >]"]

    def run(slot: int, base: str, until: float) -> None:
        rng = random.Random(slot)
        try:
            environment = client(name, base)
            while time.monotonic() < until:
                environment.reset(numbered(rng.randrange(50)))
                for _ in range(10):
                    counts[slot] += 1
                    if environment.step(rng.choice(actions)).done:
                        break
            environment.close()
        except Exception as error:
            errors.append(error)

    app = build_app(name, config(name))
    with serving(app) as base:
        warm_up = client(name, base)
        warm_up.reset(numbered(0))
        warm_up.close()
        before, start = psutil.Process().memory_info().rss, time.monotonic()
        threads = [
            threading.Thread(target=run, args=(slot, base, start + seconds))
            for slot in range(clients)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        took = time.monotonic() - start
        growth = (psutil.Process().memory_info().rss - before) / 2**20
        assert app.state.instances.ids == []
    return sum(counts), took, errors, growth


@pytest.mark.parametrize("name", ["textcraft", pytest.param("webshop", marks=SHOP)])
def test_many_clients_at_once_meet_no_error_and_leave_nothing(name: str) -> None:
    steps, _, errors, growth = load(name, clients=16, seconds=3.0)
    assert errors == []
    assert steps > 16
    assert growth < 64


@pytest.fixture
def textcraft() -> Iterator[httpx.Client]:
    limits = Limits(instances=2, body_bytes=20_000)
    with (
        serving(build_app("textcraft", config("textcraft"), limits=limits)) as base,
        httpx.Client(base_url=base) as plain,
    ):
        yield plain


def post(server: httpx.Client, path: str, **body: Any) -> Any:
    return server.post(path, json=body).json()


def test_more_instances_than_the_cap_are_refused(textcraft: httpx.Client) -> None:
    assert [post(textcraft, "/create")["id"] for _ in range(2)] == [0, 1]
    assert post(textcraft, "/create")["error"].startswith("All 2 instances are in use.")
    with pytest.raises(UserError, match="All 2 instances are in use"):
        client("textcraft", str(textcraft.base_url)).reset(numbered(0))
    assert post(textcraft, "/close", id=0) is True
    assert post(textcraft, "/create")["id"] == 2


def test_ids_that_are_none_are_told_in_agentgyms_words(textcraft: httpx.Client) -> None:
    post(textcraft, "/create")
    assert post(textcraft, "/step", id=7, action="x") == {"error": "The id 7 is not valid."}
    assert post(textcraft, "/reset", id=-1) == {"error": "The id -1 is not valid."}
    assert post(textcraft, "/close", id=7) is False
    assert textcraft.get("/observation", params={"id": 9}).json() == {
        "error": "The id 9 is not valid."
    }
    post(textcraft, "/close", id=0)
    assert post(textcraft, "/step", id=0, action="x") == {
        "error": "The task with environment 0 has been deleted."
    }


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b'{"id": "a", "action": "x"}', b'{"id": 0}', b'{"id": 0, "action": 3}'],
)
def test_a_malformed_request_is_422(textcraft: httpx.Client, content: bytes) -> None:
    post(textcraft, "/create")
    assert textcraft.post("/step", content=content).status_code == 422


def test_a_long_request_is_refused_unread(textcraft: httpx.Client) -> None:
    post(textcraft, "/create")
    long = textcraft.post("/step", json={"id": 0, "action": "x" * 20_000})
    assert (long.status_code, long.json()) == (413, {"error": "A request may have 20000 bytes."})
    assert "error" not in post(textcraft, "/step", id=0, action="x" * 19_000)


def test_an_end_stays_an_end(textcraft: httpx.Client) -> None:
    post(textcraft, "/create")
    last = [post(textcraft, "/step", id=0, action="look") for _ in range(12)][-1]
    assert last["done"]
    assert post(textcraft, "/step", id=0, action="inventory") == {**last, "reward": 0}
    assert not post(textcraft, "/reset", id=0, data_idx=1)["done"]


def test_calls_about_one_instance_come_one_after_the_other(textcraft: httpx.Client) -> None:
    post(textcraft, "/create")
    threads = [
        threading.Thread(target=post, args=(textcraft, "/step"), kwargs=step)
        for step in [{"id": 0, "action": "get 1 ash log"}] * 8
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    carried = post(textcraft, "/step", id=0, action="inventory")["observation"]
    assert carried == "Inventory: [ash log] (8) "


def test_an_idle_instance_is_closed() -> None:
    limits = Limits(idle_seconds=0.2)
    with serving(build_app("textcraft", config("textcraft"), limits=limits)) as base:
        environment = client("textcraft", base)
        environment.reset(numbered(0))
        time.sleep(0.6)
        with pytest.raises(ServerError, match="has been deleted"):
            environment.step("inventory")
        environment.reset(numbered(0))
        environment.close()


@SHOP
def test_webshop_refuses_with_a_status_and_plays_a_users_tasks() -> None:
    tasks = [Task("a", "webshop", "test", "?", env_args={"goal": 7})]
    with (
        serving(build_app("webshop", config("webshop"), tasks)) as base,
        httpx.Client(base_url=base) as plain,
    ):
        assert plain.post("/create").json() == 0
        listed, _ = post(plain, "/reset", env_idx=0, session_id=0)
        local = make("webshop", **KINDS["webshop"].settings(config("webshop"), True))
        assert listed == local.reset(tasks[0])
        unknown = plain.post("/step", json={"env_idx": 5, "action": "x"})
        assert (unknown.status_code, unknown.json()) == (500, {"error": "The id 5 is not valid."})
        assert plain.post("/reset", json={"env_idx": 0, "session_id": 1}).status_code == 500
        assert plain.get("/list_envs").json() == [0]
        assert post(plain, "/close", env_idx=0) == {"closed": True}


def workers() -> list[psutil.Process]:
    return [
        child for child in psutil.Process().children() if "spawn_main" in " ".join(child.cmdline())
    ]


@pytest.mark.slow
def test_a_worker_that_crashes_or_hangs_is_replaced() -> None:
    limits = Limits(workers=1, call_seconds=20.0)
    app = build_app("alfworld", config("alfworld"), limits=limits)
    with serving(app) as base:
        environment = client("alfworld", base)
        first = environment.reset(numbered(3))
        (worker,) = workers()
        worker.kill()
        with pytest.raises(ServerError, match="The worker process crashed; reset the instance"):
            environment.step("look")
        assert environment.reset(numbered(3)) == first
        object.__setattr__(limits, "call_seconds", 0.5)
        (worker,) = workers()
        worker.suspend()
        with pytest.raises(ServerError, match=r"No answer within 0.5 s; reset the instance"):
            environment.step("look")
        assert psutil.wait_procs([worker], timeout=30)[1] == []
        object.__setattr__(limits, "call_seconds", 20.0)
        assert environment.reset(numbered(3)) == first
        environment.close()
    assert workers() == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ["alfworld", pytest.param("sciworld", marks=SCIENCE)])
def test_as_many_as_the_cap_play_at_once_in_processes(name: str) -> None:
    limits = Limits(instances=4, workers=2)
    results: list[StepResult] = []
    with serving(build_app(name, config(name), limits=limits)) as base:
        environments = [client(name, base) for _ in range(5)]
        for index, environment in enumerate(environments[:4]):
            environment.reset(numbered(index))
        with pytest.raises(UserError, match="All 4 instances are in use"):
            environments[4].reset(numbered(4))
        threads = [
            threading.Thread(target=lambda e=environment: results.append(e.step("inventory")))
            for environment in environments[:4]
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(results) == 4
        assert all(result.info["valid"] for result in results)
        finished = [environments[0].step("inventory") for _ in range(11)][-1]
        assert finished.done
        for environment in environments:
            environment.close()
    assert workers() == []
