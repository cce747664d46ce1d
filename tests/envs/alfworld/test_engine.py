import dataclasses
import json
import random
import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import chain
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
import textworld
from alfworld.agents.environment.alfred_tw_env import AlfredDemangler, AlfredInfos
from textworld.envs import PddlEnv

from interlat.envs.alfworld.engine import (
    GAME_FILE,
    TRANSLATION_FILE,
    EngineGame,
    Translation,
    first_observation,
    load_game,
    translate,
    write_translation,
)
from interlat.envs.alfworld.experts import play
from interlat.envs.alfworld.generate import Difficulty, GameSpec, draw_spec, game_data
from interlat.envs.alfworld.replica import Replica

SPLITS = ("train", "valid_seen", "valid_unseen", "final_unseen")


def engine_game(spec: GameSpec) -> EngineGame:
    game = game_data(spec, [])
    return EngineGame(game, translate(game))


def stock_environment() -> Any:
    """The package's own wrapper chain, as AlfredTWEnv registers it."""
    wanted = textworld.EnvInfos(won=True, admissible_commands=True, extras=["gamefile"])
    return AlfredInfos(AlfredDemangler(PddlEnv(wanted), shuffle=False))


def random_commands(seed: int, game: EngineGame, count: int) -> Iterator[str]:
    """Commands by chance, six in ten of them something else than going elsewhere."""
    rng = random.Random(seed)
    for number in range(count):
        commands = game.admissible()
        near = [command for command in commands if not command.startswith("go to ")]
        yield "eat cake" if number == 5 else rng.choice(near if rng.random() < 0.6 else commands)


def differences_from_stock(
    file: Path, games: Sequence[EngineGame | Replica], commands: Iterable[str]
) -> list[str]:
    """Moments at which one of ``games`` and the package's wrapper chain differ."""
    stock = stock_environment()
    stock.load(str(file))
    state = stock.reset()
    found = [f"{game}: reset" for game in games if game.reset() != state.feedback]
    for command in commands:
        listed = state["admissible_commands"]
        found += [f"{game}: before {command}" for game in games if game.admissible() != listed]
        state, _, _ = stock.step(command)
        said = state.feedback, state["won"]
        found += [f"{game}: {command}" for game in games if (game.step(command), game.won) != said]
    return found


def test_an_experts_run_wins_in_the_engine_with_the_replicas_texts(difficulty: Difficulty) -> None:
    for index in range(6):
        spec = draw_spec(1, "valid_unseen", index, difficulty)
        for informed in (True, False):
            game, demonstration = (
                engine_game(spec),
                play(spec, informed=informed, step_limit=100),
            )
            observations = [game.reset(), *map(game.step, demonstration.actions)]
            assert tuple(observations) == demonstration.observations
            assert game.won


def test_games_that_take_turns_do_not_disturb_each_other(difficulty: Difficulty) -> None:
    specs = [draw_spec(2, "train", index, difficulty) for index in range(4)]
    plays = [play(spec, informed=True, step_limit=100) for spec in specs]
    games = [engine_game(spec) for spec in specs]
    seen = [[game.reset()] for game in games]
    for step in range(max(len(each.actions) for each in plays)):
        for game, each, observations in zip(games, plays, seen, strict=True):
            if step < len(each.actions):
                observations.append(game.step(each.actions[step]))
    assert [tuple(observations) for observations in seen] == [each.observations for each in plays]
    assert all(game.won for game in games)


def test_a_reset_begins_again(kitchen: GameSpec) -> None:
    game = engine_game(kitchen)
    first = game.reset(), game.admissible()
    game.step("go to countertop 1")
    game.step("take apple 1 from countertop 1")
    assert (game.reset(), game.admissible()) == first


def test_a_kept_translation_is_used_only_for_its_own_game(
    kitchen: GameSpec, tmp_path: Path
) -> None:
    game = game_data(kitchen, [])
    (tmp_path / GAME_FILE).write_text(json.dumps(game))
    plain = load_game(tmp_path).reset()
    moved = dataclasses.replace(
        kitchen, items=tuple(item._replace(place="countertop 1") for item in kitchen.items)
    )
    write_translation(tmp_path, translate(game_data(moved, [])))
    other = load_game(tmp_path)
    assert other.reset() == plain
    assert other.step("go to countertop 1").endswith("you see a apple 1, and a knife 1.")


def test_a_kept_translation_is_the_same_bytes_each_time(kitchen: GameSpec, tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        write_translation(tmp_path / name, translate(game_data(kitchen, [])))
    one, two = ((tmp_path / name / TRANSLATION_FILE).read_bytes() for name in ("one", "two"))
    assert one == two


def test_pddl_at_which_the_translator_exits_is_a_value_error(kitchen: GameSpec) -> None:
    game = game_data(kitchen, [])
    game["pddl_problem"] = game["pddl_problem"].replace("(isClean ", "(isTidy ")
    arguments = list(sys.argv)
    with pytest.raises(ValueError, match="rejects the game's PDDL: Undeclared predicate"):
        translate(game)
    assert sys.argv == arguments


def test_the_first_observation_needs_no_translator(kitchen: GameSpec) -> None:
    assert first_observation(game_data(kitchen, [])) == engine_game(kitchen).reset()


def test_official_games_first_observation_needs_no_translator(official_games: Path) -> None:
    for file in sorted(official_games.rglob(GAME_FILE))[:6]:
        game = json.loads(file.read_text())
        assert first_observation(game) == load_game(file.parent).reset()


def test_the_commands_of_a_game_are_its_grammars(kitchen: GameSpec) -> None:
    assert engine_game(kitchen).put_form == "move <object> to <receptacle>"


def test_official_games_read_as_in_the_packages_wrapper_chain(official_games: Path) -> None:
    for number, file in enumerate(sorted(official_games.rglob(GAME_FILE))[:2]):
        game = load_game(file.parent)
        game.reset()
        assert game.put_form == "put <object> in/on <receptacle>"
        assert differences_from_stock(file, [game], random_commands(number, game, 10)) == []


@pytest.mark.slow
def test_official_games_of_every_kind_read_as_in_the_wrapper_chain(official_games: Path) -> None:
    for number, file in enumerate(sorted(official_games.rglob(GAME_FILE))):
        game = load_game(file.parent)
        game.reset()
        assert differences_from_stock(file, [game], random_commands(number, game, 20)) == []


def compare_three(number: int, folder: Path) -> list[str]:
    """Moments at which stock engine, fast engine and replica differ in one generated game."""
    spec = draw_spec(99, SPLITS[number % 4], number // 4, Difficulty(20, 8, 6))
    file = folder / f"{number}.tw-pddl"
    file.write_text(json.dumps(game_data(spec, [])))
    engine, replica = engine_game(spec), Replica(spec)
    solution = play(spec, informed=number % 2 == 0, step_limit=100).actions
    commands = chain(random_commands(number, engine, 12), solution, ["look", "help"])
    return differences_from_stock(file, [engine, replica], commands)


@pytest.mark.slow
def test_stock_engine_fast_engine_and_replica_agree_on_204_games(tmp_path: Path) -> None:
    numbers = range(204)
    with ProcessPoolExecutor(2, get_context("fork")) as executor:
        found = list(executor.map(compare_three, numbers, [tmp_path] * len(numbers), chunksize=6))
    assert [differences for differences in found if differences] == []


def test_a_translation_survives_json(kitchen: GameSpec) -> None:
    translation = translate(game_data(kitchen, []))
    assert Translation(*json.loads(json.dumps(translation))) == translation
