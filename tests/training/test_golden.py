"""Golden losses: seeded toy runs in every form must keep giving the numbers that they gave.

A change that is meant to change them writes golden/losses.json anew: test_golden.py as a script.
"""

import json
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from interlat.config import TrainConfig
from interlat.training.actor import train_actor
from training.toy import Toy, make_toy, watch

GOLDEN = Path(__file__).parent / "golden" / "losses.json"
CONFIG = TrainConfig(
    steps=6,
    batch_size=8,
    learning_rate=2e-2,
    adapter_learning_rate=2e-2,
    mismatched_share=0.1,
    log_every=2,
)
RUNS: dict[str, dict[str, Any]] = {
    "paper": {
        "curriculum": "plan_first",
        "separation_margin": None,
        "separation_schedule": "anneal",
    },
    "published": {
        "curriculum": "latents_first",
        "loss_form": "published",
        "separation_margin": 0.69,
        "separation_schedule": "adaptive",
        "alignment_kl_weight": 0.035,
        "alignment_cosine_weight": 0.015,
        "alignment_schedule": "adaptive",
    },
    "no adapter": {"adapter": False, "truncate_share": 0.5},
    "text": {"kind": "text"},
    "cot": {"kind": "cot"},
    "none": {"kind": "none"},
}
SHOWN = ("loss", "task_own", "task_other", "alignment", "separation", "grad_norm")


def losses(toy: Toy, name: str, folder: Path) -> dict[str, list[float]]:
    """What a run logs, point by point."""
    settings = dict(RUNS[name])
    kind = settings.pop("kind", "latent")
    training = train_actor(
        toy.model(),
        toy.tokenizer,
        toy.material,
        replace(CONFIG, **settings),
        seed=1,
        output=folder / "actor",
        watch=watch,
        kind=kind,
    )
    return {name: [float(f"{p[name]:.5g}") for p in training.points] for name in SHOWN}


@pytest.mark.parametrize("name", RUNS)
def test_losses_are_the_golden_ones(toy: Toy, name: str, tmp_path: Path) -> None:
    expected = json.loads(GOLDEN.read_text())[name]
    found = losses(toy, name, tmp_path)
    for term in SHOWN:
        assert found[term] == pytest.approx(expected[term], rel=2e-3, abs=1e-4), term


def main() -> None:
    """Write the golden losses anew."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        toy = make_toy(Path(folder))
        found = {name: losses(toy, name, Path(folder) / name) for name in RUNS}
    GOLDEN.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
