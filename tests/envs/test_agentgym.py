"""The client against servers that answer as AgentGym's own were recorded to."""

import time
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse
from serving import serving

from interlat.config import TaskConfig, UserError
from interlat.envs import find, make
from interlat.envs.agentgym import AgentGymEnvironment, ServerError
from interlat.envs.base import Environment
from interlat.envs.pool import EnvironmentFailure, EnvironmentPool, Started
from interlat.tasks import Task

TASK = Task("t", "agentgym", "test", "?", env_args={"index": 3})


class Recorded:
    """A server that gives prepared answers, a list for each path; the last one again and again."""

    def __init__(self, answers: dict[str, list[Any]]) -> None:
        self.answers = {path: list(given) for path, given in answers.items()}
        self.asked: list[tuple[str, Any]] = []
        self.app = FastAPI()
        self.app.add_api_route("/{path:path}", self.answer, methods=["GET", "POST"])

    async def answer(self, path: str, request: Request) -> Response:
        body = await request.body()
        self.asked.append((path, await request.json() if body else dict(request.query_params)))
        given = self.answers.get(path)
        if not given:
            return JSONResponse({"detail": "Not Found"}, 404)
        said = given.pop(0) if len(given) > 1 else given[0]
        if isinstance(said, float):
            time.sleep(said)
        return said if isinstance(said, Response) else JSONResponse(said)

    def bodies(self, path: str) -> list[Any]:
        """What was sent to a path."""
        return [body for asked, body in self.asked if asked == path]


def failed(status: int) -> Response:
    return JSONResponse({"detail": "oops"}, status)


def created(number: int) -> dict[str, Any]:
    return {"id": number, "observation": "...", "done": False, "reward": 0}


def client(kind: str, server: str, **more: Any) -> AgentGymEnvironment:
    return AgentGymEnvironment(kind=kind, server=server, **{"step_limit": 10, **more})


@pytest.fixture
def textcraft() -> Iterator[tuple[Recorded, str]]:
    recorded = Recorded(
        {
            "create": [created(0)],
            "reset": [{"id": 0, "observation": "Goal: craft stick.", "done": False, "reward": 0}],
            "step": [
                {"observation": "Could not execute dance", "reward": 0, "done": False},
                {"observation": "Crafted 4 minecraft:stick", "reward": 1, "done": True},
                {"observation": "Inventory: [stick] (4) ", "reward": 0, "done": False},
            ],
            "close": [True],
        }
    )
    with serving(recorded.app) as base:
        yield recorded, base


def test_textcraft_is_spoken_to_as_recorded(textcraft: tuple[Recorded, str]) -> None:
    server, base = textcraft
    environment = client("textcraft", base)
    assert environment.reset(TASK) == "Goal: craft stick."
    missed, made = environment.step("dance"), environment.step("craft 4 stick using 2 planks")
    assert (missed.reward, missed.done, missed.info["valid"]) == (0.0, False, False)
    assert (made.reward, made.done, made.won) == (1.0, True, True)
    environment.close()
    assert server.asked == [
        ("create", {}),
        ("reset", {"id": 0, "data_idx": 3}),
        ("step", {"id": 0, "action": "dance"}),
        ("step", {"id": 0, "action": "craft 4 stick using 2 planks"}),
        ("close", {"id": 0}),
    ]


def test_an_end_that_the_server_forgets_stays_an_end(textcraft: tuple[Recorded, str]) -> None:
    server, base = textcraft
    environment = client("textcraft", base)
    environment.reset(TASK)
    environment.step("dance")
    environment.step("craft 4 stick using 2 planks")
    after = environment.step("inventory")
    assert (after.reward, after.done, after.won) == (0.0, True, True)
    assert len(server.bodies("step")) == 2
    environment.close()


def test_sciworld_is_spoken_to_as_recorded() -> None:
    server = Recorded(
        {
            "create": [{"id": 7}],
            "reset": [
                {
                    "task_name": "boil",
                    "var_num": 0,
                    "task_description": "Your task is to boil water.",
                    "observation": "This room is called the hallway.",
                    "reward": 0,
                    "score": 0,
                    "deleted": False,
                    "done": False,
                }
            ],
            "step": [
                {"observation": "You move.", "reward": 17, "score": 17, "done": False},
                {"observation": "You focus.", "reward": -117, "score": -100, "done": True},
            ],
            "close": [failed(500)],
        }
    )
    with serving(server.app) as base:
        environment = client("sciworld", base)
        first = environment.reset(TASK)
        good, bad = environment.step("go to kitchen"), environment.step("focus on orange")
        environment.close()
    assert first == "Your task is to boil water.\nThis room is called the hallway."
    assert (good.reward, good.done) == (0.17, False)
    assert (bad.reward, bad.done, bad.won) == (-0.17, True, False)
    assert server.bodies("create") == [{}]


def test_alfworld_is_spoken_to_as_recorded_and_has_no_close() -> None:
    opening = "You are in the middle of a room.\nYour task is to: put a mug in desk."
    server = Recorded(
        {
            "create": [{"id": 0}],
            "reset": [
                {
                    "id": 0,
                    "observation": opening,
                    "available_actions": ["look", "go to desk 1"],
                    "task_type": "pick_and_place_simple-Mug-None-Desk-308/trial_T1",
                }
            ],
            "step": [
                {
                    "observation": "Nothing happens.",
                    "reward": 0.0,
                    "available_actions": ["look"],
                    "done": False,
                },
                {
                    "observation": "You put the mug 1 in/on the desk 1.",
                    "reward": 1.0,
                    "available_actions": [],
                    "done": True,
                },
            ],
        }
    )
    with serving(server.app) as base:
        environment = client("alfworld", base, prompt="react")
        first = environment.reset(TASK)
        actions = environment.admissible()
        results = [environment.step(action) for action in ("dance", "put mug 1 in/on desk 1")]
        environment.close()
    assert first == "You are in the middle of a room. Your task is to: put a mug in desk."
    assert "put <object> in/on <receptacle>" in environment.first_turn(first)
    assert actions == ["go to desk 1", "look"]
    assert [result.info["valid"] for result in results] == [False, True]
    assert results[-1].won
    assert server.bodies("reset") == [{"id": 0, "game": 3, "world_type": "Text"}]
    assert len(server.bodies("close")) == 1


def test_webshop_is_spoken_to_as_recorded() -> None:
    server = Recorded(
        {
            "create": [48950],
            "reset": [["WebShop [SEP] Instruction: [SEP] red shoes [SEP] Search", None]],
            "step": [
                {"state": "page", "reward": 0.0, "done": False, "info": None},
                {"state": "Thank you", "reward": 0.75, "done": True, "info": None},
            ],
            "available_actions": [
                {"has_search_bar": True, "clickables": ["search"]},
                {"has_search_bar": False, "clickables": ["buy now", "< prev"]},
            ],
        }
    )
    with serving(server.app) as base:
        environment = client("webshop", base)
        environment.reset(Task("webshop_6", "agentgym", "test", "?"))
        at_first = environment.admissible()
        environment.step("search[red shoes]")
        then = environment.admissible()
        bought = environment.step("click[buy now]")
        environment.close()
    assert at_first == ["search[keywords]"]
    assert then == ["click[< prev]", "click[buy now]"]
    assert (bought.reward, bought.done, bought.won) == (0.75, True, False)
    assert server.bodies("reset") == [{"env_idx": 48950, "session_id": 6}]
    assert server.bodies("available_actions") == [{"env_idx": "48950"}] * 2


def test_what_may_be_sent_again_is_and_a_step_is_not(textcraft: tuple[Recorded, str]) -> None:
    server, base = textcraft
    server.answers["create"].insert(0, failed(500))
    server.answers["reset"].insert(0, failed(503))
    server.answers["step"].insert(0, failed(500))
    environment = client("textcraft", base)
    environment.reset(TASK)
    with pytest.raises(ServerError, match="/step: status 500"):
        environment.step("dance")
    assert [len(server.bodies(path)) for path in ("create", "reset", "step")] == [2, 2, 1]
    environment.close()


def test_after_a_failure_a_new_instance_is_used(textcraft: tuple[Recorded, str]) -> None:
    server, base = textcraft
    server.answers["create"] = [created(0), created(1)]
    server.answers["step"].insert(0, {"error": "The id 0 is not valid."})
    environment = client("textcraft", base)
    environment.reset(TASK)
    with pytest.raises(ServerError, match="The id 0 is not valid"):
        environment.step("dance")
    environment.reset(TASK)
    environment.close()
    assert [body["id"] for body in server.bodies("reset")] == [0, 1]
    assert [body["id"] for body in server.bodies("close")] == [0, 1]


def test_a_forgotten_instance_is_replaced_at_the_next_reset(
    textcraft: tuple[Recorded, str],
) -> None:
    server, base = textcraft
    environment = client("textcraft", base)
    environment.reset(TASK)
    server.answers["reset"].insert(0, {"error": "The id 0 is not valid."})
    server.answers["create"] = [created(5)]
    assert environment.reset(TASK) == "Goal: craft stick."
    assert server.bodies("reset")[-1]["id"] == 5
    environment.close()


def test_instances_are_used_again_and_closed_with_the_last(
    textcraft: tuple[Recorded, str],
) -> None:
    server, base = textcraft
    server.answers["create"] = [created(0), created(1), created(2)]
    first, second = client("textcraft", base), client("textcraft", base)
    first.reset(TASK)
    second.reset(TASK)
    first.close()
    third = client("textcraft", base)
    third.reset(TASK)
    assert server.bodies("close") == []
    for environment in (second, third):
        environment.close()
    assert len(server.bodies("create")) == 2
    assert {body["id"] for body in server.bodies("close")} == {0, 1}


def test_a_refusal_at_the_start_is_the_users_to_see(textcraft: tuple[Recorded, str]) -> None:
    server, base = textcraft
    server.answers["reset"] = [{"error": "list index out of range"}]
    with pytest.raises(UserError, match=r"task t: .*/reset: list index out of range"):
        client("textcraft", base).reset(TASK)


def test_a_dead_server_is_named_and_how_to_start_one() -> None:
    with pytest.raises(UserError, match=r"127.0.0.1:9: no server .* stages/serve_env.py sciworld"):
        client("sciworld", "http://127.0.0.1:9").reset(TASK)


def test_a_server_that_dies_fails_the_episode(textcraft: tuple[Recorded, str]) -> None:
    recorded = textcraft[0]
    with serving(recorded.app) as base:
        environment = client("textcraft", base)
        environment.reset(TASK)
    with pytest.raises(ServerError, match="no server answers"):
        environment.step("dance")


def test_a_slow_server_is_given_up(textcraft: tuple[Recorded, str]) -> None:
    server, base = textcraft
    server.answers["step"].insert(0, 0.6)
    environment = client("textcraft", base, seconds=0.2)
    environment.reset(TASK)
    with pytest.raises(ServerError, match=r"/step: no answer within 0.2 s"):
        environment.step("dance")
    environment.close()


@pytest.mark.parametrize("kind", ["sciworld", "alfworld", "webshop"])
def test_a_server_of_another_kind_is_noticed(textcraft: tuple[Recorded, str], kind: str) -> None:
    with pytest.raises(UserError, match=f"the answer is not a {kind} server's"):
        client(kind, textcraft[1]).reset(TASK)


@pytest.mark.parametrize("status", [404, 405, 422])
def test_a_server_without_the_route_is_noticed(
    textcraft: tuple[Recorded, str], status: int
) -> None:
    textcraft[0].answers["reset"] = [failed(status)]
    with pytest.raises(UserError, match=rf"another kind\? \(status {status}\)"):
        client("textcraft", textcraft[1]).reset(TASK)


def test_what_is_not_json_is_noticed(textcraft: tuple[Recorded, str]) -> None:
    textcraft[0].answers["create"] = [Response("<html>a portal</html>", media_type="text/html")]
    with pytest.raises(UserError, match="the answer is not a textcraft server's"):
        client("textcraft", textcraft[1]).reset(TASK)


@pytest.mark.parametrize("action", ["", "faites-le", "x" * 10_000, "a\x00\x1b[2J\n", "\ud800"])
def test_any_action_reaches_the_server_as_text(
    textcraft: tuple[Recorded, str], action: str
) -> None:
    server, base = textcraft
    environment = client("textcraft", base)
    environment.reset(TASK)
    environment.step(action)
    assert server.bodies("step")[0]["action"] == action.replace("\ud800", "?")
    environment.close()


def test_a_snapshot_is_replayed_on_one_instance(textcraft: tuple[Recorded, str]) -> None:
    server, base = textcraft
    server.answers["step"] = [{"observation": "Got 1 log", "reward": 0, "done": False}]
    environment = client("textcraft", base)
    environment.reset(TASK)
    environment.step("get 1 log")
    state = environment.snapshot()
    environment.step("get 1 log")
    environment.restore(state)
    assert len(server.bodies("reset")) == 2
    server.answers["step"] = [{"observation": "Got 2 log", "reward": 0, "done": False}]
    environment.step("get 1 log")
    with pytest.raises(RuntimeError, match="brought something else again"):
        environment.restore(state)
    environment.close()


def test_the_address_is_a_setting(textcraft: tuple[Recorded, str]) -> None:
    config = TaskConfig(name="agentgym-textcraft", data=textcraft[1], step_limit=5)
    kind = find(config.name)
    environment: Environment = make(config.name, **kind.settings(config, None))  # type: ignore[arg-type]
    assert environment.reset(TASK) == "Goal: craft stick."
    environment.close()
    for address in (None, "nowhere", "ftp://x"):
        with pytest.raises(UserError, match=r"task.data: expected the address of a textcraft"):
            kind.settings(TaskConfig(data=address), None)  # type: ignore[arg-type]


def test_a_task_needs_a_number() -> None:
    with pytest.raises(UserError, match="env_args must have `index`"):
        client("textcraft", "http://127.0.0.1:9").reset(Task("x", "agentgym", "test", "?"))


def test_workers_play_through_the_client(textcraft: tuple[Recorded, str]) -> None:
    server, base = textcraft
    config = {"kind": "textcraft", "server": base, "step_limit": 5}
    with EnvironmentPool("agentgym-textcraft", config, 1) as pool:
        (started,) = pool.reset_many([TASK])
        assert isinstance(started, Started)
        assert not isinstance(pool.step_many({0: "Action: dance"})[0], EnvironmentFailure)
    assert server.bodies("step") == [{"id": 0, "action": "dance"}]
    assert server.bodies("close") == [{"id": 0}]
