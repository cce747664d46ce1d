"""A toy task for actor training: the message names a place, the right action goes there.

Run as a script it trains in a process of its own: toy.py FOLDER JSON-OF-TRAIN-SETTINGS.
"""

import json
import os
import sys
import time
import zlib
from pathlib import Path
from typing import NamedTuple

import torch
from transformers import PreTrainedTokenizerFast, Qwen2ForCausalLM

from interlat import distributed
from interlat.config import TrainConfig
from interlat.latents.message import Message
from interlat.latents.store import LatentStore
from interlat.latents.writer import LatentWriter
from interlat.models.tiny import TinyShape, build_model, build_tokenizer
from interlat.tasks import Task
from interlat.training.actor import Training, train_actor
from interlat.training.course import Material
from interlat.training.trainer import Point

PLACES = [f"{kind} {i}" for kind in ("shelf", "drawer", "cabinet") for i in range(1, 9)]
WIDTH = 32


class Toy(NamedTuple):
    """A tokenizer and what there is to learn."""

    tokenizer: PreTrainedTokenizerFast
    material: Material

    def model(self, width: int = WIDTH) -> Qwen2ForCausalLM:
        """A freshly initialised model, the same at every call.

        Its layers start larger than is usual, so that it learns to look within few steps.
        """
        model = build_model(self.tokenizer, TinyShape(width, 2, 2, 2 * width), seed=3)
        with torch.no_grad():
            for parameter in model.model.layers.parameters():
                parameter.mul_(4 if parameter.ndim > 1 else 1)
        return model


def toy_task(number: int, *, informed: bool) -> Task:
    """Find the cup: at once with knowledge, by trying other places first without."""
    target = PLACES[number % len(PLACES)]
    wrong = [PLACES[(number + j) % len(PLACES)] for j in (5, 9)[: 1 + number % 2]]
    tries = [] if informed else wrong
    turns = [{"from": "human", "value": f"find the cup in room {number % 7}"}]
    for place in [*tries, target]:
        turns += [
            {"from": "gpt", "value": f"go to {place}"},
            {"from": "human", "value": "there it is" if place == target else "nothing happens"},
        ]
    plan = f"find cup {target}" if informed else "find cup"
    return Task(f"toy-{number}", "toy", "train", "find the cup", None, plan, tuple(turns[:-1]))


def write_store(path: Path, messages: list[Message], width: int) -> LatentStore:
    """A finished latent store of these messages; every rank calls it."""
    writer = LatentWriter(path, {"model": "toy"}, width=width, dtype="float16")
    if distributed.is_main():
        writer.claim()
        writer.write_piece(0, messages)
    distributed.barrier()
    writer.publish(1, parquet=False)
    return LatentStore(path)


def toy_message(task: Task, width: int) -> Message:
    """A row for each token of the plan, every token its own direction, and an end row."""
    assert task.plan is not None
    target = task.plan.removeprefix("find cup").strip()
    rows = []
    for word in ["find", "cup", *([target] if target else []), "end"]:
        generator = torch.Generator().manual_seed(zlib.crc32(word.encode()))
        rows.append(torch.randn(width, generator=generator))
    return Message(task.task_id, torch.stack(rows), task.plan, n_tokens=len(rows))


def make_toy(folder: Path, *, sender_width: int = WIDTH, tasks: int = 48) -> Toy:
    """The toy task with its messages stored in ``folder``."""
    informed = [toy_task(i, informed=True) for i in range(tasks)]
    searching = [toy_task(i, informed=False) for i in range(tasks + 16)]
    texts = [t["value"] for task in [*informed, *searching] for t in task.conversations]
    tokenizer = build_tokenizer([*texts, *(task.plan or "" for task in informed)])
    stores = [
        write_store(folder / name, [toy_message(t, sender_width) for t in play], sender_width)
        for name, play in (("informed", informed), ("uninformed", searching[:tasks]))
    ]
    return Toy(tokenizer, Material(informed, searching, *stores))


def watch(step: int, point: Point | None) -> None:
    """Wait for the kill that a test sends at TOY_PAUSE_AT, or die; check where a run starts."""
    if point is None and str(step) == os.environ.get("TOY_DIE_AT"):
        os._exit(9)
    if point is None and str(step) == os.environ.get("TOY_PAUSE_AT"):
        time.sleep(600)
    first = os.environ.pop("TOY_EXPECT_FIRST", None)
    assert first in (None, str(step)), f"the run starts at step {step}, not {first}"


def train(toy: Toy, output: Path, config: TrainConfig, seed: int = 1) -> Training:
    """Train a fresh actor on the toy task."""
    return train_actor(
        toy.model(),
        toy.tokenizer,
        toy.material,
        config,
        seed=seed,
        output=output,
        watch=watch,
    )


def main(folder: Path, config: TrainConfig) -> None:
    """Train in a process of its own, alone or under torchrun; everything lies in ``folder``."""
    torch.set_num_threads(1)
    with distributed.process_group():
        toy = make_toy(folder / "toy")
        training = train(toy, folder / "actor", config)
    if distributed.is_main():
        (folder / "points.json").write_text(json.dumps(training.points))


if __name__ == "__main__":
    main(Path(sys.argv[1]), TrainConfig(**json.loads(sys.argv[2])))
