"""A training step of the student: steps a second and memory in K, ours against the published form.

python benchmarks/compress_step.py [--batch 16] [--steps 3]

Both sides roll the same random student out for K steps on the same prompts and go backward through
all of them: a student of the embedded default's shape, at its K and at the published one. On a CPU,
where reading the prompts takes both as long, a small K gains less. The published form takes one
sample after another, with a token a call and the library's cache. Ours takes the batch in one. The
messages of both must agree first. Memory is that of a whole process, ours, above the loaded model:
for a short and a long message, with activation checkpointing and without.
"""

import json
import random
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import click
import torch
from torch import Tensor
from transformers import DynamicCache, Qwen2Config, Qwen2ForCausalLM

from interlat.models.compressor import Compressor, CompressorRecord, left_padded
from interlat.models.tiny import build_tokenizer

VOCABULARY = 500
SMALL, LARGE = (128, 3, 2, 256), (256, 4, 4, 704)
"""Width, layers, heads and feed-forward width: for the speed, and for the memory."""
STEPS = (8, 128)
"""K of the embedded default, and the published one."""
MEMORY_STEPS = (8, 64)
PROMPT = (96, 160)
TOLERANCE = 1e-3
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def make_student(
    steps: int, size: tuple[int, int, int, int], *, checkpointing: bool = False
) -> Compressor:
    """A random student."""
    torch.manual_seed(0)
    width, layers, heads, inner = size
    shape = Qwen2Config(
        vocab_size=VOCABULARY,
        hidden_size=width,
        intermediate_size=inner,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        tie_word_embeddings=True,
    )
    model = Qwen2ForCausalLM(shape).to(DEVICE)
    record = CompressorRecord(steps, width, "{task}")
    return Compressor(model, build_tokenizer(["a"]), record, checkpointing=checkpointing)


def make_prompts(batch: int) -> list[list[int]]:
    """Prompts of differing length."""
    chance = random.Random(1)
    return [
        [chance.randrange(VOCABULARY) for _ in range(chance.randint(*PROMPT))] for _ in range(batch)
    ]


def published(student: Compressor, prompts: Sequence[Sequence[int]]) -> Tensor:
    """The messages [B, K, D], a sample and a token at a time; masks as long as the text."""
    messages = []
    decoder = student.model.get_decoder()
    for prompt in prompts:
        ids_BT = torch.tensor([list(prompt)], device=DEVICE)
        cache = DynamicCache(config=student.model.config)
        decoder(input_ids=ids_BT, past_key_values=cache, use_cache=True)
        row_B1D = student.start_D.expand(1, 1, -1)
        states = []
        for _ in range(student.steps):
            output = decoder(inputs_embeds=row_B1D, past_key_values=cache, use_cache=True)
            states.append(output.last_hidden_state)
            row_B1D = student.feedback(states[-1])
        messages.append(torch.cat(states, dim=1))
    return torch.cat(messages)


def clock() -> float:
    """Seconds: of this one-threaded process on a CPU, whoever else computes there; else real."""
    if DEVICE == "cpu":
        return time.process_time()
    torch.cuda.synchronize()
    return time.perf_counter()


def step(student: Compressor, roll_out: Callable[[], Tensor]) -> Tensor:
    """Forward and backward; returns the messages."""
    student.zero_grad(set_to_none=True)
    messages_BKD = roll_out()
    messages_BKD.square().mean().backward()
    return messages_BKD.detach()


def measure_speed(batch: int, steps: int, k: int) -> tuple[float, float]:
    """Training steps a second of the published form and of ours."""
    student, prompts = make_student(k, SMALL), make_prompts(batch)
    padded = left_padded(prompts, DEVICE)
    forms = (lambda: published(student, prompts), lambda: student(*padded))
    there, here = (step(student, form) for form in forms)
    difference = float((there - here).abs().max())
    if difference > TOLERANCE:
        raise click.ClickException(f"the messages differ by {difference:.2g}")
    rates = []
    for form in forms:
        start = clock()
        for _ in range(steps):
            step(student, form)
        rates.append(steps / (clock() - start))
    return rates[0], rates[1]


def measure_memory(batch: int, k: int, *, checkpointing: bool) -> int:
    """The most bytes that a step holds above the loaded model."""
    student = make_student(k, LARGE, checkpointing=checkpointing)
    padded = left_padded(make_prompts(batch), DEVICE)
    if DEVICE == "cuda":
        held = torch.cuda.memory_allocated()
        step(student, lambda: student(*padded))
        return int(torch.cuda.max_memory_allocated() - held)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    held = pages * resource.getpagesize()
    step(student, lambda: student(*padded))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - held


@click.command()
@click.option("--batch", default=16, show_default=True, help="samples a step")
@click.option("--steps", default=3, show_default=True, help="measured steps")
@click.option("--memory", nargs=2, type=int, help="measure memory alone: K, and 1 to checkpoint")
def main(batch: int, steps: int, memory: tuple[int, int] | None) -> None:
    """Print both forms' training steps a second, and how memory grows with K."""
    torch.set_num_threads(1)
    if memory is not None:
        click.echo(json.dumps(measure_memory(batch, memory[0], checkpointing=bool(memory[1]))))
        return
    for k in STEPS:
        there, here = measure_speed(batch, steps, k)
        click.echo(
            f"{DEVICE}, batch {batch}, K = {k}, n = {steps} steps: published form {there:.3f}, "
            f"ours {here:.3f} steps/s, ratio {here / there:.1f}"
        )
    for checkpointing in (0, 1):
        peaks = []
        for length in MEMORY_STEPS:
            words = ["--batch", str(batch), "--memory", str(length), str(checkpointing)]
            done = subprocess.run(
                [sys.executable, __file__, *words], check=True, capture_output=True, text=True
            )
            peaks.append(json.loads(done.stdout.splitlines()[-1]))
        click.echo(
            f"memory {'with' if checkpointing else 'without'} checkpointing: "
            + ", ".join(
                f"K = {k} {peak / 2**20:.0f} MiB"
                for k, peak in zip(MEMORY_STEPS, peaks, strict=True)
            )
            + f", ratio {peaks[1] / peaks[0]:.2f}"
        )


if __name__ == "__main__":
    main()
