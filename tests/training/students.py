"""A student for the toy task: another family, width and tokenizer than its teacher's.

Run as a module, -m training.students FOLDER JSON-OF-COMPRESS-SETTINGS, it trains in a process of
its own.
"""

import json
import sys
from pathlib import Path

import torch
from conftest import word_tokenizer
from transformers import LlamaConfig, LlamaForCausalLM

from interlat import distributed
from interlat.config import CollectConfig, CompressConfig, TrainConfig
from interlat.models.actor import Actor
from interlat.training.actor import build_actor
from interlat.training.compression import train_compressor
from interlat.training.trainer import Point, Training, Watcher
from training.toy import WIDTH, Toy, make_toy

ASKED = CollectConfig(prompt_template="task: {task}", chat_template="none")


def make_teacher(toy: Toy) -> Actor:
    """An actor that reads the toy's messages; the same at every call."""
    actor = build_actor(toy.model(), toy.tokenizer, WIDTH, TrainConfig(heads=4), seed=1)
    return actor.eval()


def make_model(width: int = 24) -> LlamaForCausalLM:
    """A student to be; its tokenizer is that of the tests."""
    torch.manual_seed(5)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(word_tokenizer()),
            hidden_size=width,
            intermediate_size=32,
            num_hidden_layers=2,
            num_attention_heads=2,
            max_position_embeddings=64,
            initializer_range=0.1,
        )
    )


def ignore(step: int, point: Point | None) -> None:
    """Watch nothing."""


def train(
    toy: Toy,
    output: Path,
    config: CompressConfig,
    *,
    teacher: Actor | None = None,
    width: int = 24,
    watch: Watcher = ignore,
) -> Training:
    """Train a fresh student on the toy task."""
    return train_compressor(
        make_model(width),
        word_tokenizer(),
        teacher or make_teacher(toy),
        toy.material.tasks,
        toy.material.messages,
        config,
        ASKED,
        seed=1,
        output=output,
        watch=watch,
    )


def main(folder: Path, config: CompressConfig) -> None:
    """Train in a process of its own, alone or under torchrun; everything lies in ``folder``."""
    torch.set_num_threads(1)
    with distributed.process_group():
        training = train(make_toy(folder / "toy"), folder / "student", config)
    if distributed.is_main():
        (folder / "points.json").write_text(json.dumps(training.points))


if __name__ == "__main__":
    main(Path(sys.argv[1]), CompressConfig(**json.loads(sys.argv[2])))
