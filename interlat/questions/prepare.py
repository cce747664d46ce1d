"""Questions as tasks on disk: what the prepare stage calls.

Without ``task.data`` the problems are our own (generate.py); else they come from there (data.py).
Our own are made from (seed, split, index) alone; a level's and a subject's turn comes round.
"""

import json
import logging
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from interlat.config import Subject, TaskConfig, UserError
from interlat.envs.base import Advance, Metrics
from interlat.envs.recorded import KNOWLEDGE, Recorded, write_recorded
from interlat.files import atomic_write_text
from interlat.questions.data import Deck, LeftOut, Question, read_deck
from interlat.questions.environment import first_turn
from interlat.questions.generate import FLAVOURS, LEVELS, draw_problem
from interlat.tasks import Task, Turn

SPLITS = ("train", "valid_seen", "valid_unseen")
"""Splits that are made unless others are asked for."""
ALL_SPLITS = (*SPLITS, "final_seen", "final_unseen")
LEFT_OUT = "left_out.jsonl"
"""Among the games: records of ``task.data`` that became no question, with the reason."""
logger = logging.getLogger(__name__)


def count_games(config: TaskConfig, splits: Sequence[str]) -> int:
    """How many questions ``prepare`` will report to ``advance``; of users' own, at most."""
    return sum(_amount(config, split) for split in splits)


def prepare(
    config: TaskConfig,
    tasks: Path,
    games: Path,
    splits: Sequence[str] = SPLITS,
    *,
    workers: int = 1,
    advance: Advance = lambda done: None,
) -> Metrics:
    """Write tasks/<knowledge>/<split>.jsonl, and what was left out of users' own to games/.

    workers: unused; a problem takes less time than handing it on.
    Raises UserError for a split that there is not, and as ``read_deck`` for what ``task.data`` is.
    """
    for split in splits:
        if split not in ALL_SPLITS:
            raise UserError(f"splits: {split!r} is none of {', '.join(ALL_SPLITS)}")
    games.mkdir(parents=True, exist_ok=True)
    if config.data is None:
        dealt = None
    else:
        deck = read_deck(config.data, subjects=config.subjects, levels=config.levels)
        _report_left_out(deck, games)
        dealt = deal(deck, config)
    metrics: Metrics = {}
    for split in splits:
        recorded = []
        amount = _amount(config, split) if dealt is None else len(dealt[split])
        for index in range(amount):
            recorded.append(
                record_problem(config, split, index)
                if dealt is None
                else record_question(config, split, dealt[split][index])
            )
            advance(1)
        metrics[split] = _written(tasks, split, recorded, config)
        if dealt is not None:
            metrics[split]["source"] = deck.counts()
    return metrics


def record_problem(config: TaskConfig, split: str, index: int) -> Recorded:
    """Draw a problem and let both experts solve it: by the route, and by the steps as listed."""
    seed = config.final_seed if split.startswith("final") else config.seed
    name = f"{seed} {split} {index}"
    rng = random.Random(f"question {name}")
    subject, level = _turn(config, index)
    problem = draw_problem(subject, level, split, rng)
    sheet = problem.sheet(rng)
    right = problem.answer(problem.route)
    tasks, steps = {}, {}
    for knowledge, informed in KNOWLEDGE.items():
        route = problem.route if informed else problem.listed
        steps[knowledge] = 1 if problem.answer(route) == right else None
        tasks[knowledge] = Task(
            task_id=f"{split}-{index:05d}",
            env="math",
            split=split,
            instruction=problem.text,
            knowledge=sheet if informed else None,
            plan=problem.plan if informed else problem.uninformed_plan,
            conversations=_turns(problem.text, problem.solution(route), config),
            env_args={
                "solution": problem.solution(problem.route),
                "type": FLAVOURS[subject].title,
                "level": f"Level {level}",
            },
        )
    return Recorded(problem.text, tasks, steps)


def record_question(config: TaskConfig, split: str, question: Question) -> Recorded:
    """A question of users' own: nobody knows more of it than it says, and it has no plan."""
    known = {"type": question.type, "level": question.level, "id": question.id}
    arguments: dict[str, Any] = {"solution": question.gold}
    task = Task(
        task_id=f"{question.split}-{question.number:05d}",
        env="math",
        split=split,
        instruction=question.problem,
        conversations=_turns(question.problem, question.solution, config),
        env_args=arguments | {name: text for name, text in known.items() if text is not None},
    )
    return Recorded(question.problem, dict.fromkeys(KNOWLEDGE, task), dict.fromkeys(KNOWLEDGE, 1))


def deal(deck: Deck, config: TaskConfig) -> dict[str, list[Question]]:
    """Questions for every split: seen ones from the source's train split, unseen from its test.

    Without a test split all come from one deck. No question is in two splits.
    Raises UserError when nothing is left to train on.
    """
    seen = random.Random(config.seed).sample(deck.train, len(deck.train))
    unseen = random.Random(config.seed).sample(deck.test, len(deck.test)) if deck.test else seen
    dealt = {}
    for split in ALL_SPLITS[1:]:
        pile = unseen if split.endswith("unseen") else seen
        dealt[split] = [pile.pop() for _ in range(min(_amount(config, split), len(pile)))]
    dealt["train"] = seen[: config.train_games]
    for split, questions in dealt.items():
        if not questions:
            raise UserError(
                f"{config.data}: its {len(deck.train)} questions to train on and {len(deck.test)} "
                f"to test on leave none for {split}; lower task.valid_games and task.final_games"
            )
    return dealt


def _turn(config: TaskConfig, index: int) -> tuple[Subject, int]:
    """The subject and level of a problem."""
    levels = config.levels or tuple(LEVELS)
    subjects = config.subjects or tuple(FLAVOURS)
    return subjects[index // len(levels) % len(subjects)], levels[index % len(levels)]


def _turns(problem: str, solution: str, config: TaskConfig) -> tuple[Turn, ...]:
    return (
        Turn({"from": "human", "value": first_turn(problem, config.prompt)}),
        Turn({"from": "gpt", "value": solution}),
    )


def _written(
    tasks: Path, split: str, recorded: Sequence[Recorded], config: TaskConfig
) -> dict[str, Any]:
    """Write a split; its metrics, and for problems of our own both experts' success by level."""
    figures = write_recorded(tasks, split, recorded, config.success_steps)
    if config.data is not None:  # a reference solution is no expert's play
        return {"games": figures["games"]}
    levels: dict[str, list[bool]] = {}
    for game in recorded:
        label = game.tasks["none"].env_args["level"]
        levels.setdefault(label, []).append(game.steps["none"] is not None)
    by_level = {label: round(sum(won) / len(won), 4) for label, won in sorted(levels.items())}
    return {**figures, "searching_expert_by_level": by_level}


def _report_left_out(deck: Deck, games: Path) -> None:
    lines = (json.dumps(item._asdict(), ensure_ascii=False, default=str) for item in deck.left_out)
    atomic_write_text(games / LEFT_OUT, "".join(f"{line}\n" for line in lines))
    if deck.left_out:
        logger.warning(
            "%d of %d records are left out; %s says which and why; the first: %s",
            len(deck.left_out),
            deck.counts()["records"],
            games / LEFT_OUT,
            _named(deck.left_out[0]),
        )


def _named(item: LeftOut) -> str:
    return f"{item.split}, record {item.number}: {item.reason}"


def _amount(config: TaskConfig, split: str) -> int:
    if split == "train":
        return config.train_games
    return config.final_games if split.startswith("final") else config.valid_games
