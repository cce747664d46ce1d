"""The latent store against what users have: nested lists in a data set.

python benchmarks/store.py [--messages 500] [--rows 300] [--width 896]

Both sides get the same messages in memory, each in a process of its own, and write them, read one
by task id, and sum them all. The baseline is `Dataset.from_list` of `.tolist()` rows with float32
features, saved with `save_to_disk`; it finds a task by going through the rows, as the earlier
runner does. Making the messages is not timed; memory is the peak above that before writing.
Prints seconds, MiB, their ratios, and the largest relative error of float16.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click
import torch
from torch import Tensor

from interlat.latents.message import Message
from interlat.latents.store import LatentStore
from interlat.latents.writer import LatentWriter

FLOOR = 2.0**-14
"""Smallest normal float16."""
WANTED = 5
"""Tasks that are looked up, spread evenly over the store."""
MEBIBYTE = 2**20
PIECE = 32
"""Messages in a piece, as a collection writes them."""


class NestedLists:
    """What users have."""

    def __init__(self, folder: Path) -> None:
        self.dataset_folder = folder

    def write(self, messages: list[Message]) -> None:
        """Save nested lists of float32."""
        from datasets import Dataset, Features, List, Value

        texts = {name: Value("string") for name in ("task_id", "task", "plan")}
        features = Features({**texts, "hidden_state": List(List(Value("float32")))})
        rows = [
            {
                "task_id": message.task_id,
                "task": message.task,
                "plan": message.plan,
                "hidden_state": message.hidden_LD.tolist(),
            }
            for message in messages
        ]
        Dataset.from_list(rows, features=features).save_to_disk(str(self.dataset_folder))

    def open(self) -> None:
        """Open what was written."""
        from datasets import load_from_disk

        self._dataset = load_from_disk(str(self.dataset_folder))

    def get(self, task_id: str) -> Tensor:
        """Go through the rows."""
        found = next(row for row in self._dataset if row["task_id"] == task_id)
        return torch.tensor(found["hidden_state"])

    def __iter__(self) -> Iterator[Tensor]:
        rows = range(len(self._dataset))
        return (torch.tensor(self._dataset[i]["hidden_state"]) for i in rows)


class Store:
    """What interlat writes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.dataset_folder = folder / "hf_dataset"

    def write(self, messages: list[Message]) -> None:
        """Write pieces and join them, as a collection does."""
        width = messages[0].hidden_LD.shape[1]
        writer = LatentWriter(self._folder, {}, width=width, dtype="float16")
        writer.claim()
        starts = range(0, len(messages), PIECE)
        for number, start in enumerate(starts):
            writer.write_piece(number, messages[start : start + PIECE])
        writer.publish(len(starts), parquet=False)

    def open(self) -> None:
        """Open what was written."""
        self._store = LatentStore(self._folder)

    def get(self, task_id: str) -> Tensor:
        """Look it up."""
        return self._store.get(task_id).hidden_LD.float()

    def __iter__(self) -> Iterator[Tensor]:
        return (message.hidden_LD for message in self._store)


SIDES: dict[str, Callable[[Path], NestedLists | Store]] = {"lists": NestedLists, "ours": Store}


def measure(side: NestedLists | Store, messages: list[Message]) -> dict[str, float]:
    """Seconds, MiB, bytes, the sum of all numbers, and the largest relative error."""
    import datasets

    datasets.disable_progress_bars()
    before = reset_peak()
    write, _ = timed(lambda: side.write(messages))
    peak = memory("VmHWM") - before
    side.open()
    wanted = [message.task_id for message in messages[:: max(1, len(messages) // WANTED)]]
    side.get(wanted[0])
    by_id, _ = timed(lambda: [side.get(task_id) for task_id in wanted])
    read, total = timed(lambda: sum(float(rows.sum(dtype=torch.float32)) for rows in side))
    errors = [relative_error(m.hidden_LD, rows) for m, rows in zip(messages, side, strict=True)]
    size = sum(file.stat().st_size for file in side.dataset_folder.iterdir())
    return {
        "write": write,
        "peak": peak,
        "by id": by_id / len(wanted),
        "sum": read,
        "size": size / MEBIBYTE,
        "total": total,
        "error": max(errors),
    }


def relative_error(true_LD: Tensor, stored_LD: Tensor) -> float:
    """The largest of |stored - true| / max(|true|, FLOOR)."""
    error_LD = (stored_LD.float() - true_LD).abs()
    return float((error_LD / true_LD.abs().clamp(min=FLOOR)).max())


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds that some work took, and what it gave."""
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


def memory(field: str) -> float:
    """A line of this process's memory figures, in MiB: VmRSS is now, VmHWM the peak."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition(f"{field}:")[2].split()[0]) / 1024


def reset_peak() -> float:
    """Let the peak begin at what is resident now, in MiB."""
    Path("/proc/self/clear_refs").write_text("5")
    return memory("VmRSS")


def make_messages(count: int, rows: int, width: int) -> list[Message]:
    """Messages of normal numbers."""
    generator = torch.Generator().manual_seed(0)
    return [
        Message(f"task-{i:05d}", torch.randn(rows, width, generator=generator), "plan", "task")
        for i in range(count)
    ]


def in_a_fresh_process(side: str, shape: tuple[int, int, int]) -> dict[str, float]:
    """Measure one side in a process that has done nothing before."""
    sizes = zip(("--messages", "--rows", "--width"), map(str, shape), strict=True)
    command = [sys.executable, __file__, "--side", side, *(word for pair in sizes for word in pair)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


@click.command()
@click.option("--messages", default=500, show_default=True)
@click.option("--rows", default=300, show_default=True, help="rows of each message")
@click.option("--width", default=896, show_default=True)
@click.option("--side", type=click.Choice(list(SIDES)), help="measure one side here, as JSON")
def main(messages: int, rows: int, width: int, side: str | None) -> None:
    """Print what both sides took, and how often ours fits into the other."""
    shape = (messages, rows, width)
    if side:
        with TemporaryDirectory() as folder:
            figures = measure(SIDES[side](Path(folder, "store")), make_messages(*shape))
        click.echo(json.dumps(figures))
        return
    lists, ours = (in_a_fresh_process(name, shape) for name in SIDES)
    if abs(lists["total"] - ours["total"]) > 1e-3 * messages * rows * width:
        raise click.ClickException("the two sides read different numbers")
    units = {"write": "s", "peak": "MiB", "by id": "s", "sum": "s", "size": "MiB"}
    for name, unit in units.items():
        click.echo(
            f"{name}: lists {lists[name]:.5g} {unit}, ours {ours[name]:.5g} {unit}, "
            f"ratio {lists[name] / ours[name]:.1f} ({messages} messages of [{rows}, {width}])"
        )
    click.echo(f"largest relative error of float16: {ours['error']:.2e} (half a unit: 4.88e-04)")


if __name__ == "__main__":
    main()
