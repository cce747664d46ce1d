"""A training step of the actor: supervised tokens a second and memory, ours against plain code.

python benchmarks/actor_step.py [--steps 6]

Both sides take the same samples through the same random model of 50 M parameters with 32,000 words
(embeddings and head apart), each in a process of its own. Plain code shuffles them, pads a step to
its longest conversation and computes the logits of every position in all three branches. Ours is
the trainer's own course, collator and objective. First both compute the losses of one common step,
which must agree. A step is forward and backward; the optimizer is the same and left out.
"""

import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import click
import torch
from torch import Tensor
from torch.nn import functional
from transformers import Qwen2Config, Qwen2ForCausalLM

from interlat.config import TrainConfig
from interlat.latents.message import Message
from interlat.latents.store import LatentStore
from interlat.latents.writer import LatentWriter
from interlat.models.actor import Actor
from interlat.models.tiny import build_tokenizer
from interlat.tasks import Task
from interlat.training.actor import build_actor
from interlat.training.batch import Collator
from interlat.training.course import Course, Kind, Material, Sample
from interlat.training.objective import ActorObjective

VOCABULARY, WIDTH, LAYERS = 32_000, 512, 5
INSTRUCTION, OBSERVATION, REPLY = 120, 25, 18
"""Words of the first turn, of an observation and of a reply, as in ALFWorld's ReAct prompts."""
TURNS = (3, 18)
ROWS = (40, 120)
TOLERANCE = 1e-3


def words(count: int, chance: random.Random) -> str:
    """So many random words of the vocabulary."""
    return " ".join(WORDS[chance.randrange(len(WORDS))] for _ in range(count))


def spelled(number: int) -> str:
    """A word of four letters for each number."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    return "".join(letters[number // 26**i % 26] for i in range(4)) + "q"


WORDS = [spelled(number) for number in range(VOCABULARY - 7)]


def make_material(folder: Path, tasks: int) -> Material:
    """Tasks with conversations of differing length, and a store with a message for each."""
    chance = random.Random(1)
    generator = torch.Generator().manual_seed(1)
    made, messages = [], []
    for number in range(tasks):
        turns = [{"from": "human", "value": words(INSTRUCTION, chance)}]
        for _ in range(chance.randint(*TURNS)):
            turns += [
                {"from": "gpt", "value": words(REPLY, chance)},
                {"from": "human", "value": words(OBSERVATION, chance)},
            ]
        rows = chance.randint(*ROWS)
        plan = words(rows - 1, chance)
        made.append(Task(f"task-{number}", "", "train", "do", None, plan, tuple(turns[:-1])))
        hidden_LD = torch.randn(rows, WIDTH, generator=generator)
        messages.append(Message(f"task-{number}", hidden_LD, plan, n_tokens=rows))
    writer = LatentWriter(folder / "store", {"model": "random"}, width=WIDTH, dtype="float16")
    writer.claim()
    writer.write_piece(0, messages)
    writer.publish(1, parquet=False)
    return Material(made, made, LatentStore(folder / "store"))


def make_actor(config: TrainConfig) -> Actor:
    """A random actor of 50 M parameters, its adapter included."""
    tokenizer = build_tokenizer([" ".join(WORDS)])
    torch.manual_seed(0)
    shape = Qwen2Config(
        vocab_size=VOCABULARY,
        hidden_size=WIDTH,
        intermediate_size=1408,
        num_hidden_layers=LAYERS,
        num_attention_heads=8,
        num_key_value_heads=8,
        tie_word_embeddings=False,
    )
    return build_actor(Qwen2ForCausalLM(shape), tokenizer, WIDTH, config, seed=1).to(DEVICE)


DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class Plain:
    """The three branches as they are written down first: everything padded, every logit there."""

    def __init__(self, actor: Actor, config: TrainConfig) -> None:
        self._actor, self._config = actor, config

    def loss(self, samples: Sequence[Sample]) -> Tensor:
        """The step's loss, as docs/method.md has it."""
        config = self._config
        own = [sample for sample in samples if sample.kind is Kind.OWN]
        logits_BTV, labels_BT = self._read(samples, lambda s: self._told(s.message))
        task = functional.cross_entropy(
            logits_BTV.flatten(0, 1).float(), labels_BT.flatten(), ignore_index=-100
        )
        with torch.no_grad():
            plan_BTV, plan_BT = self._read(own, lambda s: self._embed(s.plan_ids))
            other_BTV, other_BT = self._read(own, lambda s: self._told(s.negative))
        aligned, apart = task.new_zeros(()), task.new_zeros(())
        chosen = [i for i, sample in enumerate(samples) if sample.kind is Kind.OWN]
        for b, i in enumerate(chosen):
            z_NV = logits_BTV[i][labels_BT[i] >= 0].float().log_softmax(-1)
            plan_NV = plan_BTV[b][plan_BT[b] >= 0].float().log_softmax(-1)
            other_NV = other_BTV[b][other_BT[b] >= 0].float().log_softmax(-1)
            kl_N = (z_NV.exp() * (z_NV - plan_NV)).sum(-1)
            m_NV = ((z_NV.exp() + other_NV.exp()) / 2).log()
            halves_NV = z_NV.exp() * (z_NV - m_NV) + other_NV.exp() * (other_NV - m_NV)
            js = halves_NV.sum(-1).mean() / 2
            aligned = aligned + config.alignment_kl_weight * kl_N.mean()
            apart = apart + (config.separation_margin - js).clamp(min=0)
        return task + (aligned + config.separation_weight * apart) / len(own)

    def _embed(self, ids: object) -> Tensor:
        return self._actor.embed(torch.as_tensor(ids, dtype=torch.long, device=DEVICE))

    def _told(self, message: Message | None) -> Tensor:
        """A message's rows in the embedding space; none where there is no message."""
        if message is None:
            return self._embed([])
        return self._actor.message_rows([message.hidden_LD])[0]

    def _read(
        self, samples: Sequence[Sample], insert: Callable[[Sample], Tensor]
    ) -> tuple[Tensor, Tensor]:
        """Logits [B, T - 1, V] of conversations with their slots filled, and shifted labels."""
        embeds, labels = [], []
        for sample in samples:
            ids_T, supervised_N, slot = sample.conversation
            rows_LD = insert(sample)
            labels_T = torch.full((len(ids_T),), -100)
            labels_T[supervised_N] = torch.as_tensor(ids_T[supervised_N])
            text_TD = self._embed(ids_T)
            embeds.append(torch.cat([text_TD[:slot], rows_LD, text_TD[slot:]]))
            ignored_L = torch.full((len(rows_LD),), -100)
            labels.append(torch.cat([labels_T[:slot], ignored_L, labels_T[slot:]]))
        embeds_BTD = torch.nn.utils.rnn.pad_sequence(embeds, batch_first=True)
        labels_BT = torch.nn.utils.rnn.pad_sequence(labels, batch_first=True, padding_value=-100)
        lengths_B1 = torch.tensor([[len(e)] for e in embeds])
        mask_BT = (torch.arange(embeds_BTD.shape[1]) < lengths_B1).long().to(DEVICE)
        output = self._actor.model(inputs_embeds=embeds_BTD, attention_mask=mask_BT)
        return output.logits[:, :-1], labels_BT[:, 1:].to(DEVICE)


def clock() -> float:
    """Seconds: of this one-threaded process on a CPU, whoever else computes there; else real."""
    if DEVICE == "cpu":
        return time.process_time()
    torch.cuda.synchronize()
    return time.perf_counter()


def peak_bytes() -> int:
    """The most memory that this process, or its work on the accelerator, has held so far."""
    if DEVICE == "cuda":
        return int(torch.cuda.max_memory_allocated())
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def held_bytes() -> int:
    """What is held now, before the first step."""
    if DEVICE == "cuda":
        return int(torch.cuda.memory_allocated())
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def measure(side: str, steps: int, batch: int) -> None:
    """One side's numbers as a line of JSON."""
    torch.set_num_threads(1)
    config = TrainConfig(
        steps=steps, batch_size=batch, uninformed_share=0.0, curriculum="none", heads=8
    )
    with tempfile.TemporaryDirectory() as folder:
        material = make_material(Path(folder), steps * batch)
        actor = make_actor(config)
        course = Course(material, config, actor.tokenizer, seed=1)
        objective, collate = ActorObjective(actor, config), Collator(course, config)
        plain = Plain(actor, config)
        samples = [course[i] for i in range(len(course))]

        def step(members: Sequence[Sample]) -> float:
            loss = (
                plain.loss(members)
                if side == "plain"
                else objective(collate(members)["batch"].to(DEVICE)).loss
            )
            loss.backward()
            return float(loss.detach())

        held = held_bytes()
        common = step(samples[:batch])
        if side == "plain":
            random.Random(2).shuffle(samples)
        start = clock()
        for first in range(0, len(samples), batch):
            actor.zero_grad(set_to_none=True)
            step(samples[first : first + batch])
        seconds = clock() - start
        tokens = sum(len(sample.conversation.supervised_N) for sample in samples)
        parameters = sum(p.numel() for p in actor.parameters())
    told = {"loss": common, "tokens_per_second": tokens / seconds, "peak": peak_bytes() - held}
    click.echo(json.dumps(told | {"parameters": parameters, "tokens": tokens}))


@click.command()
@click.option("--steps", default=6, show_default=True, help="measured steps")
@click.option("--batch", default=6, show_default=True, help="samples a step")
@click.option("--side", type=click.Choice(["ours", "plain"]), help="measure this side alone")
def main(steps: int, batch: int, side: str | None) -> None:
    """Print both sides' throughput and peak memory above the loaded model, and their ratios."""
    if side is not None:
        measure(side, steps, batch)
        return
    numbers = {}
    for name in ("plain", "ours"):
        command = [sys.executable, __file__, "--side", name]
        command += ["--steps", str(steps), "--batch", str(batch)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        numbers[name] = json.loads(done.stdout.splitlines()[-1])
    plain, ours = numbers["plain"], numbers["ours"]
    if abs(plain["loss"] - ours["loss"]) > TOLERANCE * abs(plain["loss"]):
        raise click.ClickException(f"losses differ: {plain['loss']:.6f}, {ours['loss']:.6f}")
    click.echo(
        f"{ours['parameters'] / 1e6:.0f} M parameters, {DEVICE}, n = {ours['tokens']} supervised "
        f"tokens in {steps} steps; loss of the common step {plain['loss']:.5f} and "
        f"{ours['loss']:.5f}"
    )
    speeds = [numbers[name]["tokens_per_second"] for name in ("plain", "ours")]
    click.echo(
        f"throughput: plain {speeds[0]:.1f}, ours {speeds[1]:.1f} supervised tokens/s, "
        f"ratio {speeds[1] / speeds[0]:.2f}"
    )
    click.echo(
        f"peak memory: plain {plain['peak'] / 2**20:.0f} MiB, ours {ours['peak'] / 2**20:.0f} MiB, "
        f"ratio {ours['peak'] / plain['peak']:.2f}"
    )


if __name__ == "__main__":
    main()
