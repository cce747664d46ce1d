"""A small pipeline's outputs in the stages' own formats: 40 games a split, every condition."""

import json
import random
from collections.abc import Sequence
from pathlib import Path

import pytest

SPLITS = ("valid_seen", "valid_unseen")
GAMES = 40
RATES = {
    "data": 0.95,
    "text": 0.95,
    "none": 0.35,
    "random_other": 0.2,
    "white_noise": 0.3,
    "noised": 0.85,
    "uninformed": 0.35,
}
"""Share of the games solved early; half of the others are solved late, after step 12."""


def write_episodes(
    path: Path, condition: str, games: Sequence[tuple[str, str, bool, int]], seed: int = 0
) -> None:
    """games: (task_id, split, won, steps)."""
    lines = ["task_id,split,condition,won,steps,reward,seed"]
    lines += [
        f"{task_id},{split},{condition},{int(won)},{steps},{float(won)},{seed}"
        for task_id, split, won, steps in games
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")


def played(condition: str, rate: float) -> list[tuple[str, str, bool, int]]:
    """Games whose chance of success is the condition's; the same luck for every condition."""
    games = []
    for split in SPLITS:
        luck = random.Random(split)
        for i in range(GAMES):
            early, late = luck.random(), luck.random()
            if early < rate:
                games.append((f"{split}/{i}", split, True, 4 + i % 8))
            else:
                games.append((f"{split}/{i}", split, late < 0.5, 13 + i % 7 if late < 0.5 else 20))
    return games


def write_json(path: Path, content: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))


@pytest.fixture
def pipeline(tmp_path: Path) -> Path:
    """A folder in which every stage before the report has run."""
    root = tmp_path / "pipeline"
    plots, metrics = root / "plots", root / "metrics"
    for condition, rate in RATES.items():
        write_episodes(plots / "ablate" / f"{condition}.csv", condition, played(condition, rate))
    write_episodes(plots / "evaluate.csv", "data", played("data", RATES["data"]))
    (plots / "base.csv").write_text(
        "step,loss,grad_norm,learning_rate,epoch,loss_sender,accuracy_sender,loss_follow,"
        "accuracy_follow,loss_search,accuracy_search\n"
        + "".join(
            f"{s},{6 / s:.6g},1,0.004,0.1,{7 / s:.6g},0.9,{5 / s:.6g},0.9,{8 / s:.6g},0.8\n"
            for s in range(20, 701, 20)
        )
    )
    (plots / "train.csv").write_text(
        "step,loss,grad_norm,task,task_own,task_other,alignment,separation,js,accuracy_own,rate\n"
        + "".join(
            f"{s},{3 / s:.6g},1,{2 / s:.6g},{2 / s:.6g},{2.4 / s:.6g},{1 / s:.6g},0,0.25,0.9,0.5\n"
            for s in range(10, 251, 10)
        )
    )
    experts = {
        "informed_expert": {"success_12": 1.0, "success_20": 1.0},
        "searching_expert": {"success_12": 0.5333, "success_20": 0.8583},
    }
    words = {"games": GAMES, "plan_words": {"layout": 20.67, "none": 21.17}}
    write_json(metrics / "prepare.json", dict.fromkeys(("train", *SPLITS), words | experts))
    for knowledge in ("layout", "none"):
        summary = {"messages": GAMES, "rows": 840, "mean_length": 21.0, "finished": 1.0}
        for split in SPLITS:
            path = metrics / "collect" / f"{knowledge}-{split}.json"
            write_json(path, summary | {"plan_exact": 0.975})
    write_json(metrics / "base.json", {"step": 700, "loss": 0.02, "parameters": 555000})
    write_json(metrics / "train.json", {"loss": 0.01, "parameters": 700000})
    return root
