"""The simulator behind our protocol. Skipped without Java or the package."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from interlat.config import TaskConfig, UserError
from interlat.envs import find, make
from interlat.tasks import Task, read_tasks

pytest.importorskip("scienceworld", reason='needs pip install "interlat[scienceworld]"')
if shutil.which("java") is None:
    pytest.skip("needs Java: apt-get install default-jre-headless", allow_module_level=True)

from interlat.envs.scienceworld import jvm, prepare
from interlat.envs.scienceworld.environment import ScienceWorldEnvironment
from interlat.envs.scienceworld.ids import LEFT_OUT, find_variation, numbering, read_ids

PUBLISHED = Path(__file__).parents[3] / "shared" / "data" / "scienceworld"
FIND = {"name": "find-living-thing", "variation": 0}


def task(**env_args: object) -> Task:
    return Task("t", "scienceworld", "test", "?", env_args=env_args)


def java(process: psutil.Process) -> list[psutil.Process]:
    return [child for child in process.children(recursive=True) if child.name() == "java"]


@pytest.fixture(scope="module", autouse=True)
def world() -> Iterator[jvm.World]:
    """One world for the whole module, so that its JVM stays up."""
    world = jvm.World()
    yield world
    world.close()
    assert java(psutil.Process()) == []


@pytest.fixture
def environment() -> Iterator[ScienceWorldEnvironment]:
    environment = ScienceWorldEnvironment(step_limit=100)
    yield environment
    environment.close()


def play(environment: ScienceWorldEnvironment, which: Task, actions: list[str]) -> list[str]:
    """What is seen, and the reward at the end."""
    seen, earned = [environment.reset(which)], 0.0
    for action in actions:
        result = environment.step(action)
        seen.append(result.observation)
        earned += result.reward
    return [*seen, f"{earned:g}"]


def test_an_episode_says_what_to_do_and_earns_its_score(
    world: jvm.World, environment: ScienceWorldEnvironment
) -> None:
    first = environment.reset(task(**FIND))
    assert first.startswith("Your task is to find a(n) living thing.")
    assert "\nThis room is called the " in first or "\nThis outside location" in first
    gold = world.gold("find-living-thing", 0)
    rewards = [environment.step(action) for action in gold]
    assert sum(result.reward for result in rewards) == pytest.approx(1.0)
    assert [result.won for result in rewards] == [False] * (len(gold) - 1) + [True]
    assert rewards[-1].done
    assert rewards[-1].info["score"] == 100


def test_a_fatal_mistake_ends_the_episode_with_nothing(
    environment: ScienceWorldEnvironment,
) -> None:
    assert play(environment, task(**FIND), ["open door to kitchen"])[-1] == "0.08"
    result = environment.step("focus on picture")
    assert result.reward == -0.08
    assert (result.done, result.won, result.info["score"]) == (True, False, -100)


@pytest.mark.parametrize(
    "action", ["", "  ", "öffne die Tür", "x" * 10_000, "look\x00\x1b[2J", "\ud800"]
)
def test_what_is_not_understood_costs_a_step_and_changes_nothing(
    environment: ScienceWorldEnvironment, action: str
) -> None:
    environment.reset(task(**FIND))
    result = environment.step(action)
    assert result.observation == "No known action matches that input."
    assert (result.reward, result.done, result.info["valid"]) == (0.0, False, False)


def test_steps_and_moves_are_limited() -> None:
    environment = ScienceWorldEnvironment(step_limit=2)
    environment.reset(task(**FIND))
    assert [environment.step("look around").done for _ in range(2)] == [False, True]
    environment.reset(task(**FIND))
    assert not environment.step("wait").done
    long = ScienceWorldEnvironment(step_limit=100)
    long.reset(task(**FIND))
    assert [long.step("wait").done for _ in range(10)] == [False] * 9 + [True]
    for each in (environment, long):
        each.close()


@pytest.mark.slow
def test_the_same_actions_bring_the_same_in_another_jvm() -> None:
    """Left to itself the simulator lists things in the order of their identity hashes."""
    which = task(name="identify-life-stages-2", variation=2)
    ways = ["kitchen", "outside"]
    actions = [f"{verb} {way}" for way in ways for verb in ("open door to", "go to")]
    actions.append("look around")
    script = (
        "import json, sys\n"
        "from interlat.envs import make\n"
        "from interlat.tasks import Task\n"
        "environment = make('sciworld', step_limit=100)\n"
        f"task = Task('t', 's', 'test', '?', env_args={dict(which.env_args)})\n"
        "seen = [environment.reset(task)]\n"
        f"seen += [environment.step(action).observation for action in {actions}]\n"
        "print(json.dumps(seen))\n"
    )
    here = ScienceWorldEnvironment(step_limit=100)
    seen = play(here, which, actions)[:-1]
    again = play(here, which, actions)[:-1]
    here.close()
    there = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    assert seen == again == json.loads(there.stdout)
    assert "turtle" in seen[-1]


def test_a_snapshot_is_reached_again_and_a_false_one_is_noticed(
    environment: ScienceWorldEnvironment,
) -> None:
    environment.reset(task(index=0))
    environment.step("open door to kitchen")
    early = environment.snapshot()
    environment.step("go to kitchen")
    late = environment.snapshot()
    other = ScienceWorldEnvironment(step_limit=100)
    other.restore(late)
    assert other.step("look around") == environment.step("look around")
    other.restore(early)
    assert other.step("go to kitchen").observation == late.history[-1][1]
    false = late._replace(history=(("open door to kitchen", "It is stuck."),))
    with pytest.raises(RuntimeError, match="brought something else again"):
        other.restore(false)
    other.close()


def test_the_admissible_actions_are_understood(environment: ScienceWorldEnvironment) -> None:
    environment.reset(task(**FIND))
    actions = environment.admissible()
    assert actions == sorted(actions)
    assert "look around" in actions
    assert environment.step(actions[0]).info["valid"]


def test_simplifications_change_the_world_and_unknown_ones_are_refused(
    environment: ScienceWorldEnvironment,
) -> None:
    plain = environment.reset(task(**FIND))
    assert "(that is open)" not in plain
    assert "(that is open)" in environment.reset(task(**FIND, simplifications="openDoors"))
    with pytest.raises(UserError, match="no simplification is called 'flying'"):
        environment.reset(task(**FIND, simplifications="flying"))


def test_the_published_numbers() -> None:
    numbers = numbering()
    assert len(numbers) == 4339
    assert numbers[0] == ("boil", 0)
    assert numbers[1096] == ("power-component", 0)
    with_all = numbering(LEFT_OUT - {"2-3"})
    assert len(with_all) == 4639
    assert with_all[2936] == ("find-living-thing", 0)


@pytest.mark.skipif(not PUBLISHED.is_dir(), reason="no published id tables here")
def test_the_published_lists_are_read() -> None:
    flat = read_ids(PUBLISHED / "agent_r_test.json")
    assert len(flat) == 200
    assert len({name for name, _ in flat}) == 18
    pairs = read_ids(PUBLISHED / "eto_test_indices.json")
    assert pairs[0] == ("boil", 21)


@pytest.mark.parametrize(
    ("env_args", "says"),
    [
        ({"name": "boyle", "variation": 0}, "no task is called 'boyle'"),
        ({"name": "boil", "variation": 30}, "boil has 30 variations, found 30"),
        ({"index": 4339}, "4339 is none of the numbers 0 to 4338"),
        ({"game": "x"}, "env_args must have `name` and `variation`, or `index`"),
    ],
)
def test_a_task_that_is_none(env_args: dict[str, object], says: str) -> None:
    with pytest.raises(UserError, match=says):
        find_variation(env_args)


@pytest.mark.parametrize("text", ["{", "3", "[[1]]", '[{"id": 3}]', '[{"item_id": "x"}]'])
def test_a_list_that_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "test.json").write_text(text)
    with pytest.raises(UserError, match=r"test.json: expected a JSON list"):
        read_ids(tmp_path / "test.json")


def test_without_java_one_sentence_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="default-jre-headless"):
        make("scienceworld").reset(task(**FIND))


def test_worlds_share_a_jvm_up_to_a_cap(monkeypatch: pytest.MonkeyPatch) -> None:
    worlds = [jvm.World() for _ in range(3)]
    assert len(java(psutil.Process())) == 1
    monkeypatch.setattr(jvm, "WORLDS", 4)
    monkeypatch.setattr(jvm, "JVMS", 1)
    with pytest.raises(UserError, match="more than 4 ScienceWorld episodes at once"):
        jvm.World()
    for world in worlds:
        world.close()


def test_a_killed_jvm_fails_its_episode_and_not_the_next(
    environment: ScienceWorldEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jvm, "_jvms", [])  # a JVM of its own
    environment.reset(task(**FIND))
    max(java(psutil.Process()), key=psutil.Process.create_time).kill()
    with pytest.raises(RuntimeError, match="the ScienceWorld simulator failed"):
        environment.step("look around")
    assert environment.reset(task(**FIND))


@pytest.mark.slow
@pytest.mark.system
@pytest.mark.parametrize("stop", [signal.SIGKILL, signal.SIGINT])
def test_no_java_is_left_when_its_process_is_stopped(stop: signal.Signals) -> None:
    script = (
        "import time\n"
        "from interlat.envs import make\n"
        "from interlat.tasks import Task\n"
        f"make('sciworld').reset(Task('t', 's', 'test', '?', env_args={FIND}))\n"
        "print('playing', flush=True)\n"
        "time.sleep(60)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"playing\n"
        (left,) = java(psutil.Process(process.pid))
        if stop == signal.SIGINT:
            os.killpg(process.pid, stop)  # as a terminal does on Ctrl-C
        else:
            process.kill()
        process.wait(30)
    assert psutil.wait_procs([left], timeout=30)[1] == []


@pytest.mark.slow
@pytest.mark.system
def test_the_simulators_solutions_score_100(world: jvm.World) -> None:
    environment = ScienceWorldEnvironment(step_limit=300)
    names = [
        "boil",
        "melt",
        "freeze",
        "use-thermometer",
        "power-component",
        "test-conductivity",
        "find-living-thing",
        "find-plant",
        "chemistry-mix",
        "chemistry-mix-paint-tertiary-color",
        "lifespan-longest-lived",
        "identify-life-stages-1",
    ]
    won = []
    for name in names:
        environment.reset(task(name=name, variation=1))
        results = map(environment.step, world.gold(name, 1))
        won += [name] if any(r.won and r.info["score"] == 100 for r in results) else []
    environment.close()
    assert won == names


@pytest.mark.slow
def test_prepared_tasks_are_demonstrated_and_can_be_played(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = {task: name for task, name in jvm.TASKS.items() if task in ("4-1", "7-1")}
    monkeypatch.setattr(prepare, "TASKS", few)
    config = TaskConfig(
        name="scienceworld", train_games=3, valid_games=1, step_limit=20, success_steps=(20,)
    )
    metrics = prepare.prepare(config, tmp_path, tmp_path, ("train", "valid_unseen"), workers=1)
    assert metrics["train"]["games"] == 3
    assert metrics["train"]["informed_expert"] == {"success_20": 1.0}
    informed = read_tasks(tmp_path / "layout" / "train.jsonl")
    searching = read_tasks(tmp_path / "none" / "train.jsonl")
    assert [one.task_id for one in informed] == [one.task_id for one in searching]
    assert {one.env_args["name"] for one in informed} == set(few.values())
    assert all(one.knowledge and one.plan for one in informed)
    assert {one.knowledge for one in searching} == {None}
    environment = make("scienceworld", **find("scienceworld").settings(config, tmp_path))
    demonstration = informed[0].conversations
    assert environment.reset(informed[0]) == demonstration[0]["value"]
    results = [environment.step(turn["value"]) for turn in demonstration[1::2]]
    assert results[-1].won
    assert [result.observation for result in results[:-1]] == [
        turn["value"] for turn in demonstration[2::2]
    ]
    environment.close()


def test_a_list_of_the_users_is_the_split(tmp_path: Path) -> None:
    (tmp_path / "test.json").write_text('[{"item_id": "sciworld_0"}, ["task-1-melt", 3]]')
    config = TaskConfig(name="scienceworld", data=str(tmp_path))
    assert prepare.count_games(config, ["test"]) == 2
    with pytest.raises(UserError, match=r"'other' is none of .*other.json"):
        prepare.count_games(config, ["other"])
