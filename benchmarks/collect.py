"""Speaking and keeping the states: our sender against `generate`, on the same prompts.

python benchmarks/collect.py [--model tiny] [--model 50m] [--threads 1]

Three sides, each in a process of its own, greedy, float32, one random model: the plain loop that
users have (`generate(output_hidden_states=True)`, one prompt at a time, last layers stacked), the
same call on whole batches, and ours. Tokens must agree, states to rounding. Prints tokens a second
and the peak of memory above the loaded model, with their ratios.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import click
import numpy as np
import torch
from torch import Tensor
from transformers import Qwen2Config, Qwen2ForCausalLM

from interlat.config import BaseConfig, CollectConfig
from interlat.models.sender import speak
from interlat.models.tiny import build_tokenizer

BASE = BaseConfig()
PROMPT_TOKENS = (40, 72)
TOKENIZER = build_tokenizer(["a word"])
END_EVERY = 256
"""Each so many tokens one ends a reply, so that those of a random model differ in length."""
END = int(TOKENIZER.eos_token_id)
TOLERANCE = 1e-4


class Setting(NamedTuple):
    """A model, and how much it is asked."""

    config: Qwen2Config
    prompts: int
    batch: int
    new_tokens: int


SETTINGS = {
    "tiny": Setting(
        Qwen2Config(
            vocab_size=512,
            hidden_size=BASE.hidden_size,
            num_hidden_layers=BASE.layers,
            num_attention_heads=BASE.heads,
            num_key_value_heads=BASE.heads,
            intermediate_size=BASE.intermediate_size,
            initializer_range=0.1,
        ),
        prompts=256,
        batch=256,
        new_tokens=96,
    ),
    "50m": Setting(
        Qwen2Config(
            vocab_size=8192,
            hidden_size=512,
            num_hidden_layers=12,
            num_attention_heads=8,
            num_key_value_heads=2,
            intermediate_size=2048,
            initializer_range=0.1,
            tie_word_embeddings=True,
        ),
        prompts=32,
        batch=32,
        new_tokens=192,
    ),
}
Replies = list[tuple[list[int], Tensor]]
"""Token ids and states [L, D] of each prompt."""


def generated(model: Qwen2ForCausalLM, prompts: list[list[int]], setting: Setting) -> Replies:
    """One call of `generate` with all hidden states, of which the last layer's are kept."""
    longest = max(map(len, prompts))
    padded = torch.tensor([[0] * (longest - len(prompt)) + prompt for prompt in prompts])
    output = model.generate(
        padded,
        attention_mask=(
            torch.arange(longest) >= longest - torch.tensor([[len(p)] for p in prompts])
        ).long(),
        max_new_tokens=setting.new_tokens,
        do_sample=False,
        output_hidden_states=True,
        return_dict_in_generate=True,
        pad_token_id=0,
    )
    states_BLD = torch.stack([step[-1][:, -1] for step in output.hidden_states], dim=1)
    replies: Replies = []
    for tokens, states_LD in zip(output.sequences[:, longest:].tolist(), states_BLD, strict=True):
        length = next((i + 1 for i, t in enumerate(tokens) if t % END_EVERY == END), len(tokens))
        replies.append((tokens[:length], states_LD[:length].clone()))
    return replies


def loop(model: Qwen2ForCausalLM, prompts: list[list[int]], setting: Setting) -> Replies:
    """`generate`, one prompt at a time."""
    return [reply for prompt in prompts for reply in generated(model, [prompt], setting)]


def batches(model: Qwen2ForCausalLM, prompts: list[list[int]], setting: Setting) -> Replies:
    """`generate` on batches."""
    return [reply for part in _parts(prompts, setting) for reply in generated(model, part, setting)]


def ours(model: Qwen2ForCausalLM, prompts: list[list[int]], setting: Setting) -> Replies:
    """The sender."""
    config = CollectConfig(max_new_tokens=setting.new_tokens)
    return [
        (utterance.token_ids, utterance.hidden_LD)
        for part in _parts(prompts, setting)
        for utterance in speak(model, TOKENIZER, part, config)
    ]


SIDES: dict[str, Callable[[Qwen2ForCausalLM, list[list[int]], Setting], Replies]] = {
    "loop": loop,
    "batches": batches,
    "ours": ours,
}


def measure(side: str, name: str, folder: Path) -> dict[str, float]:
    """Seconds and bytes that a side takes; leaves its replies in the folder."""
    setting = SETTINGS[name]
    torch.manual_seed(0)
    model = Qwen2ForCausalLM(setting.config).eval()
    model.generation_config.eos_token_id = list(range(END, setting.config.vocab_size, END_EVERY))
    model.generation_config.pad_token_id = 0
    generator = torch.Generator().manual_seed(1)
    lengths = torch.randint(*PROMPT_TOKENS, (setting.prompts,), generator=generator).sort().values
    prompts = [
        torch.randint(1, setting.config.vocab_size, (length,), generator=generator).tolist()
        for length in lengths.tolist()
    ]
    SIDES[side](model, prompts[:1], setting._replace(new_tokens=2))  # code and buffers are loaded
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
    before, start, cpu = _resident("VmRSS"), time.perf_counter(), time.process_time()
    replies = SIDES[side](model, prompts, setting)
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    peak = _resident("VmHWM") - before
    tokens = [token for ids, _ in replies for token in [*ids, -1]]
    np.savez(folder / f"{side}.npz", tokens=tokens, states=torch.cat([s for _, s in replies]))
    count = len(tokens) - len(replies)
    return {"tokens": count, "seconds": seconds, "cpu_seconds": cpu, "peak_bytes": peak}


def _parts(prompts: list[list[int]], setting: Setting) -> list[list[list[int]]]:
    return [prompts[i : i + setting.batch] for i in range(0, len(prompts), setting.batch)]


def _resident(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))


def _measured(side: str, model: str, threads: int, folder: Path) -> dict[str, float]:
    """``measure`` in a fresh process."""
    command = [sys.executable, __file__, "--model", model, "--threads", str(threads)]
    command += ["--side", side, "--folder", str(folder)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


@click.command()
@click.option("--model", "models", type=click.Choice(list(SETTINGS)), multiple=True)
@click.option("--threads", default=1, show_default=True, help="CPU threads of each side")
@click.option("--side", type=click.Choice(list(SIDES)), hidden=True)
@click.option("--folder", type=click.Path(path_type=Path), hidden=True)
def main(models: tuple[str, ...], threads: int, side: str | None, folder: Path | None) -> None:
    """Print speed and memory of the three sides, and the ratios."""
    torch.set_num_threads(threads)
    if side is not None and folder is not None:
        click.echo(json.dumps(measure(side, models[0], folder)))
        return
    for model in models or tuple(SETTINGS):
        with tempfile.TemporaryDirectory() as temporary:
            figures = {s: _measured(s, model, threads, Path(temporary)) for s in SIDES}
            _require_equal(Path(temporary))
        _report(model, figures)


def _require_equal(folder: Path) -> None:
    sides = {side: np.load(folder / f"{side}.npz") for side in SIDES}
    for side, other in sides.items():
        if not np.array_equal(other["tokens"], sides["loop"]["tokens"]):
            raise click.ClickException(f"{side}: tokens differ from the loop's")
        apart = float(np.abs(other["states"] - sides["loop"]["states"]).max())
        click.echo(f"{side}: the loop's tokens, states within {apart:.1e}")
        if apart > TOLERANCE:
            raise click.ClickException(f"{side}: states differ by {apart}")
    states = sides["ours"]["states"]
    states = states[np.abs(states) >= np.finfo(np.float16).smallest_normal]
    error = np.abs(states.astype(np.float16) / states - 1).max()
    click.echo(f"float16 against float32: largest relative error {error:.1e}")


def _report(model: str, figures: dict[str, dict[str, float]]) -> None:
    for side, figure in figures.items():
        click.echo(
            f"{model} {side}: {figure['tokens'] / figure['seconds']:,.0f} tokens/s, "
            f"{figure['peak_bytes'] / 2**20:,.0f} MiB above the model "
            f"(n = {SETTINGS[model].prompts} prompts, {figure['tokens']:.0f} tokens, "
            f"{figure['cpu_seconds']:.1f} s of CPU)"
        )
    ours = figures["ours"]
    for side in ("loop", "batches"):
        click.echo(
            f"{model} ours against {side}: {figures[side]['seconds'] / ours['seconds']:.1f} times "
            f"the speed ({figures[side]['cpu_seconds'] / ours['cpu_seconds']:.1f} by CPU time), "
            f"{ours['peak_bytes'] / figures[side]['peak_bytes']:.2f} of the memory"
        )


if __name__ == "__main__":
    main()
