"""Memory of collecting: many messages need no more than few.

python benchmarks/collect_memory.py [--few 200] [--many 2000]

Collects messages of a random model, [64, 896] each, into a temporary folder, each collection in a
process of its own. Prints the peak of resident memory above the loaded model for both counts, and
what the difference is.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import click
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from interlat.agents.collect import collect
from interlat.config import CollectConfig
from interlat.models.tiny import build_tokenizer
from interlat.tasks import Task

WORDS = "find take put the mug plate apple in cabinet"
CONFIG = CollectConfig(batch_size=32, max_new_tokens=64)


def measure(count: int, folder: Path) -> dict[str, int]:
    """Peak and size of collecting this many messages, in bytes."""
    torch.manual_seed(0)
    tokenizer = build_tokenizer([WORDS, CONFIG.prompt_template])
    shape = {"num_hidden_layers": 1, "num_attention_heads": 14, "num_key_value_heads": 2}
    model = Qwen2ForCausalLM(
        Qwen2Config(vocab_size=len(tokenizer), hidden_size=896, intermediate_size=896, **shape)
    ).eval()
    with torch.no_grad():
        model.lm_head.weight[tokenizer.eos_token_id] = (
            0.0  # never the likeliest: all run to the end
        )
    tasks = [Task(f"t{i}", "alfworld", "train", f"put apple {i} in cabinet") for i in range(count)]
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
    before = _resident("VmRSS")
    collect(tasks, model, tokenizer, folder / "store", CONFIG, seed=1, sender="random")
    size = sum(file.stat().st_size for file in (folder / "store" / "hf_dataset").iterdir())
    return {"peak": _resident("VmHWM") - before, "size": size}


def _resident(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))


@click.command()
@click.option("--few", default=200, show_default=True, help="messages of the first collection")
@click.option("--many", default=2000, show_default=True, help="messages of the second")
@click.option("--count", type=int, hidden=True)
def main(few: int, many: int, count: int | None) -> None:
    """Print the peaks of both collections, and their difference."""
    torch.set_num_threads(1)
    if count is not None:
        with tempfile.TemporaryDirectory() as folder:
            click.echo(json.dumps(measure(count, Path(folder))))
        return
    peaks = []
    for messages in (few, many):
        command = [sys.executable, __file__, "--count", str(messages)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        figures = json.loads(done.stdout.splitlines()[-1])
        peaks.append(figures["peak"])
        click.echo(
            f"{messages} messages: {figures['peak'] / 2**20:.0f} MiB above the model, "
            f"shards of {figures['size'] / 2**20:.0f} MiB"
        )
    click.echo(f"{many} against {few}: {(peaks[1] - peaks[0]) / 2**20:+.0f} MiB")


if __name__ == "__main__":
    main()
