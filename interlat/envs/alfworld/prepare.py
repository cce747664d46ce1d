"""Tasks and games on disk: what the prepare stage calls.

Train tasks are drawn and recorded in the replica and are made again from (seed, split, index) when
they are played. Games of the other splits are written in the official layout, each with a solution
that was executed in the engine, step by step the same there as in the replica.
"""

import json
import random
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from functools import partial
from hashlib import sha256
from itertools import count
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from interlat.config import TaskConfig, UserError
from interlat.envs.alfworld import TREE
from interlat.envs.alfworld.experts import Play, knowledge_text, plan_text, play
from interlat.envs.alfworld.generate import (
    Difficulty,
    GameSpec,
    ImpossibleGame,
    draw_spec,
    game_data,
    trajectory,
)
from interlat.envs.alfworld.replica import Replica
from interlat.envs.alfworld.rooms import ROOMS
from interlat.envs.alfworld.text import Style, clean, conversation
from interlat.envs.base import Advance, Metrics
from interlat.envs.recorded import KNOWLEDGE, Recorded, write_recorded
from interlat.files import atomic_directory
from interlat.tasks import Task, write_tasks

SPLITS = ("train", "valid_seen", "valid_unseen")
"""Splits that are made unless others are asked for."""
CHECKED_GAMES, CHECKED_STEPS = 12, 30
"""Games and random steps of each in which every run compares replica and engine."""
_MOVE = "move <object> to <receptacle>"


def prepare(
    config: TaskConfig,
    tasks: Path,
    games: Path,
    splits: Sequence[str] = SPLITS,
    *,
    workers: int = 1,
    advance: Advance = lambda done: None,
) -> Metrics:
    """Write tasks/<knowledge>/<split>.jsonl and, of generated games, games/json_2.1.1/<split>/...

    Generated train games are not written, official games stay where they are. workers: processes;
    their number changes nothing but the time.
    Returns for each split: games, and for generated ones the experts' success within each of
    ``success_steps`` and the mean length of a plan in words ("plate 1" is one).
    Raises UserError for a split or a difficulty that cannot be, RuntimeError when the engine and
    the replica differ.
    """
    for split in splits:
        if split not in ROOMS:
            raise UserError(f"splits: {split!r} is none of {', '.join(ROOMS)}")
    with ProcessPoolExecutor(workers, get_context("spawn")) as executor:
        if config.games != "generated":
            root = Path(config.games)
            return {split: _official(executor, root, split, tasks, advance) for split in splits}
        try:
            return _generated(executor, config, tasks, games / TREE, splits, advance)
        except ImpossibleGame as error:
            raise UserError(f"task.receptacles, task.hiding_places: {error}") from None


def count_games(config: TaskConfig, splits: Sequence[str]) -> int:
    """How many games ``prepare`` will report to ``advance``."""
    if config.games != "generated":
        return sum(len(official_games(Path(config.games), split)) for split in splits)
    return sum(_amount(config, split) for split in splits)


def _generated(
    executor: Executor,
    config: TaskConfig,
    tasks: Path,
    games: Path,
    splits: Sequence[str],
    advance: Advance,
) -> Metrics:
    """Draw, record, prove and write generated games."""
    difficulty = Difficulty(config.receptacles, config.distractors, config.hiding_places)
    draw = partial(draw_spec, config.seed, "train", difficulty=difficulty)
    record = partial(_record, step_limit=config.step_limit, style=config.prompt)
    metrics: Metrics = {}
    train = range(config.train_games)
    if "train" in splits:
        recorded = []
        for game in executor.map(partial(_record_drawn, record, draw), train, chunksize=100):
            recorded.append(game)
            advance(1)
        metrics["train"] = write_recorded(tasks, "train", recorded, config.success_steps)
        taken = {game.content for game in recorded}
    else:
        taken = set(executor.map(partial(_content_drawn, draw), train, chunksize=500))
    sample = map(draw, train[:: max(1, len(train) // CHECKED_GAMES)][:CHECKED_GAMES])
    list(executor.map(check_replica, sample))
    for split in splits:
        if split != "train":
            specs = _distinct(config, split, difficulty, taken)
            with atomic_directory(games / split) as folder:
                for _ in executor.map(partial(_write_game, folder), specs, chunksize=4):
                    advance(1)
            metrics[split] = write_recorded(
                tasks, split, list(map(record, specs)), config.success_steps
            )
    return metrics


def _official(
    executor: Executor, root: Path, split: str, tasks: Path, advance: Advance
) -> dict[str, Any]:
    """Write a split's official games as tasks: the same for either knowledge, not demonstrated."""
    folders = official_games(root, split)
    if not folders:
        raise UserError(f"task.games: no solvable game in {root / split}")
    written = []
    for task in executor.map(partial(_official_task, root, split), folders, chunksize=16):
        written.append(task)
        advance(1)
    for knowledge in KNOWLEDGE:
        write_tasks(tasks / knowledge / f"{split}.jsonl", written)
    return {"games": len(written)}


def official_games(root: Path, split: str) -> list[Path]:
    """The folders of a split's playable games: solvable, nothing sliced, no movable receptacle."""
    return [
        file.parent
        for file in sorted((root / split).glob("*/*/game.tw-pddl"))
        if not any(word in str(file.relative_to(root)) for word in ("movable", "Sliced"))
        and json.loads(file.read_text()).get("solvable")
    ]


def check_replica(spec: GameSpec) -> None:
    """Play a game at random in engine and replica. Raises RuntimeError at the first difference."""
    from interlat.envs.alfworld.engine import EngineGame, translate

    game = game_data(spec, [])
    engine, replica = EngineGame(game, translate(game)), Replica(spec)
    rng = random.Random(f"check {spec.game_id}")
    _same(spec, "reset", engine.reset(), replica.reset())
    for _ in range(CHECKED_STEPS):
        commands = engine.admissible()
        _same(spec, "admissible", commands, replica.admissible())
        near = [command for command in commands if not command.startswith("go to ")]
        command = rng.choice(near if rng.random() < 0.6 else commands)
        _same(spec, command, engine.step(command), replica.step(command))
        _same(spec, command, engine.won, replica.won)


def _record_drawn(
    record: Callable[[GameSpec], Recorded], draw: Callable[[int], GameSpec], index: int
) -> Recorded:
    return record(draw(index))


def _content_drawn(draw: Callable[[int], GameSpec], index: int) -> str:
    return _content(draw(index))


def _content(spec: GameSpec) -> str:
    return sha256(repr(spec.content).encode()).hexdigest()


def _distinct(
    config: TaskConfig, split: str, difficulty: Difficulty, taken: set[str]
) -> list[GameSpec]:
    """A split's games; one that repeats a train game, or an earlier one, is drawn again."""
    seed = config.final_seed if split.startswith("final") else config.seed
    taken, specs = set(taken), []
    for index in range(_amount(config, split)):
        for attempt in count():
            spec = draw_spec(seed, split, index, difficulty, attempt=attempt)
            if _content(spec) not in taken:
                break
        taken.add(_content(spec))
        specs.append(spec)
    return specs


def _amount(config: TaskConfig, split: str) -> int:
    if split == "train":
        return config.train_games
    return config.final_games if split.startswith("final") else config.valid_games


def _record(spec: GameSpec, *, step_limit: int, style: Style) -> Recorded:
    """Let both experts play a game."""
    tasks, steps = {}, {}
    for knowledge, informed in KNOWLEDGE.items():
        demonstration = play(spec, informed=informed, step_limit=step_limit)
        tasks[knowledge] = _task(spec, demonstration, informed, style)
        steps[knowledge] = len(demonstration.actions) if demonstration.won else None
    return Recorded(_content(spec), tasks, steps)


def _task(spec: GameSpec, demonstration: Play, informed: bool, style: Style) -> Task:
    drawn = {"seed": spec.seed, "split": spec.split, "index": spec.index}
    return Task(
        task_id=spec.game_id,
        env="alfworld",
        split=spec.split,
        instruction=clean(demonstration.observations[0]),
        knowledge=knowledge_text(spec) if informed else None,
        plan=plan_text(spec, informed=informed),
        conversations=conversation(demonstration.observations, demonstration.actions, style, _MOVE),
        env_args=drawn if spec.split == "train" else {"game": spec.folder},
    )


def _write_game(root: Path, spec: GameSpec) -> None:
    """Execute a game's solution in the engine and write the game, its translation beside it."""
    from interlat.envs.alfworld.engine import GAME_FILE, EngineGame, translate, write_translation

    solution = play(spec, informed=True, step_limit=1000)
    game = game_data(spec, list(solution.actions))
    translation = translate(game)
    engine = EngineGame(game, translation)
    _same(spec, "reset", engine.reset(), solution.observations[0])
    for command, observation in zip(solution.actions, solution.observations[1:], strict=True):
        _same(spec, command, engine.step(command), observation)
    _same(spec, "won", engine.won, True)
    folder = root / Path(spec.folder).relative_to(spec.split)
    folder.mkdir(parents=True)
    (folder / GAME_FILE).write_text(json.dumps(game))
    (folder / "traj_data.json").write_text(json.dumps(trajectory(spec)))
    write_translation(folder, translation)


def _official_task(root: Path, split: str, folder: Path) -> Task:
    from interlat.envs.alfworld.engine import GAME_FILE, first_observation

    name = str(folder.relative_to(root))
    return Task(
        task_id=name,
        env="alfworld",
        split=split,
        instruction=clean(first_observation(json.loads((folder / GAME_FILE).read_text()))),
        env_args={"game": name},
    )


def _same(spec: GameSpec, moment: str, engine: object, replica: object) -> None:
    if engine != replica:
        raise RuntimeError(
            f"engine and replica differ in {spec.game_id} at {moment!r}: {engine!r}, {replica!r}"
        )
