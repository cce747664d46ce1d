"""Fitting any objective: resuming, fingerprints, checkpoints."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from interlat.config import UserError
from interlat.training.trainer import Point, Schedule, Training, Validation, fit

SCHEDULE = Schedule(
    steps=12,
    batch_size=4,
    micro_batches=1,
    warmup_share=0.1,
    decay_share=0.9,
    gradient_clip=1.0,
    bf16=False,
    save_every=3,
    log_every=2,
    seed=5,
)


class Output(NamedTuple):
    loss: Tensor
    terms: Tensor


class Regression(nn.Module):
    """Least squares with dropout and a tied weight: what checkpoints must get right."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Linear(3, 3)
        self.second = nn.Linear(3, 3)
        self.second.weight = self.first.weight
        self.dropout = nn.Dropout(0.3)

    def forward(self, x: Tensor, y: Tensor) -> Output:
        found = self.second(self.dropout(torch.tanh(self.first(x)))).sum(dim=1)
        loss = (found - y).square().sum() / SCHEDULE.batch_size
        return Output(loss, torch.stack([loss.detach(), y.sum() / SCHEDULE.batch_size]))


class Interrupt(Exception):
    """Stands for whatever ends a run."""


def data() -> TensorDataset:
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(48, 3, generator=generator)
    return TensorDataset(x, x.sum(dim=1))


def collate(items: Sequence[tuple[Tensor, Tensor]]) -> dict[str, Any]:
    x, y = zip(*items, strict=True)
    return {"x": torch.stack(x), "y": torch.stack(y)}


def run(
    work: Path,
    *,
    stop_at: int | None = None,
    fingerprint: str = "a",
    validation: Validation | None = None,
    biases: dict[int, float] | None = None,
) -> tuple[dict[str, Tensor], list[Point], list[int]]:
    """Train; stop_at: a step whose checkpoint is not written any more; biases: filled by step."""
    model, seen = Regression(), []

    def watch(step: int, point: Point | None) -> None:
        if point is None:
            seen.append(step)
            if biases is not None:
                biases[step] = model.second.bias[0].item()
        if step == stop_at:
            raise Interrupt

    points = fit(
        model,
        data(),
        collate,
        torch.optim.AdamW(model.parameters(), lr=0.05),
        SCHEDULE,
        terms=("mean_square", "mean_target"),
        tokens=[4] * 12,
        probe=lambda: {"bias": model.second.bias[0].item()},
        work=work,
        fingerprint={"run": fingerprint},
        watch=watch,
        validation=validation,
    )
    return model.state_dict(), points, seen


def without_timings(points: list[Point]) -> list[Point]:
    return [{k: v for k, v in p.items() if "per_second" not in k} for p in points]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Tensor], list[Point]]:
    weights, points, seen = run(tmp_path_factory.mktemp("whole") / "work")
    assert seen == list(range(1, 13))
    return weights, points


def test_points_are_means_of_the_steps_they_cover(
    whole: tuple[dict[str, Tensor], list[Point]],
) -> None:
    weights, points = whole
    assert [point["step"] for point in points] == [2, 4, 6, 8, 10, 12]
    targets_S = data().tensors[1].reshape(12, 4).mean(dim=1)
    for i, point in enumerate(points):
        assert point["mean_target"] == pytest.approx(targets_S[2 * i : 2 * i + 2].mean().item())
        assert point["mean_square"] == pytest.approx(point["loss"], rel=1e-5)
        assert point["supervised_tokens_per_second"] > 0
    assert points[-1]["bias"] == weights["second.bias"][0].item()


@pytest.mark.parametrize("stop_at", [1, 4, 5, 9, 12])
def test_a_resumed_run_equals_an_uninterrupted_one(
    whole: tuple[dict[str, Tensor], list[Point]], tmp_path: Path, stop_at: int
) -> None:
    with pytest.raises(Interrupt):
        run(tmp_path / "work", stop_at=stop_at)
    weights, points, seen = run(tmp_path / "work")
    assert seen[0] == (stop_at - 1) // 4 * 4 + 1 if seen else stop_at == 12
    for name, expected in whole[0].items():
        assert torch.equal(weights[name], expected), name
    assert without_timings(points) == without_timings(whole[1])


def test_a_checkpoint_without_its_marker_does_not_count(
    whole: tuple[dict[str, Tensor], list[Point]], tmp_path: Path
) -> None:
    with pytest.raises(Interrupt):
        run(tmp_path, stop_at=10)
    (tmp_path / "checkpoint-8" / "complete").unlink()
    (tmp_path / "checkpoint-8" / "model.safetensors").write_bytes(b"half")
    weights, _, seen = run(tmp_path)
    assert seen[0] == 5
    assert torch.equal(weights["first.weight"], whole[0]["first.weight"])


def test_another_runs_work_is_dropped(tmp_path: Path) -> None:
    with pytest.raises(Interrupt):
        run(tmp_path, stop_at=10, fingerprint="a")
    _, _, seen = run(tmp_path, fingerprint="b")
    assert seen[0] == 1
    assert json.loads((tmp_path / "fingerprint.json").read_text()) == {"run": "b"}


def test_processes_must_divide_the_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "3")
    with pytest.raises(UserError, match="a batch of 4 samples cannot be shared by 3 processes"):
        run(tmp_path)


def held_out(**settings: Any) -> Validation:
    """Targets that training leads away from, after it has led to them."""
    x = torch.randn(8, 3, generator=torch.Generator().manual_seed(9))
    return Validation(TensorDataset(x, -0.5 * x.sum(dim=1)), collate, every=2, **settings)


def losses(points: list[Point]) -> dict[float, float]:
    return {p["step"]: p["validation_loss"] for p in points if "validation_loss" in p}


def test_validation_is_without_dropout_and_the_mean_of_its_steps(tmp_path: Path) -> None:
    validation = held_out()
    weights, points, _ = run(tmp_path, validation=validation)
    model = Regression().eval()
    model.load_state_dict(weights)
    with torch.no_grad():
        parts = [model(*(t[i : i + 4] for t in validation.data.tensors)).loss for i in (0, 4)]
    assert points[-1]["validation_loss"] == pytest.approx(sum(parts).item() / 2, rel=1e-5)
    assert points[-1]["validation_mean_square"] == pytest.approx(points[-1]["validation_loss"])
    header, first, *_ = Training(points, {}).csv().splitlines()
    assert len(header.split(",")) == len(first.split(","))


def test_validation_changes_nothing(
    whole: tuple[dict[str, Tensor], list[Point]], tmp_path: Path
) -> None:
    weights, points, _ = run(tmp_path, validation=held_out())
    assert all(torch.equal(weights[name], expected) for name, expected in whole[0].items())
    assert [p["loss"] for p in points] == [p["loss"] for p in whole[1]]


def test_the_best_weights_are_kept(tmp_path: Path) -> None:
    biases: dict[int, float] = {}
    weights, points, seen = run(tmp_path, validation=held_out(keep_best=True), biases=biases)
    by_step = losses(points)
    best = min(by_step, key=lambda step: by_step[step])
    assert seen[-1] == 12
    assert best < 12
    assert weights["second.bias"][0].item() == biases[int(best)]
    assert weights["first.weight"].data_ptr() == weights["second.weight"].data_ptr()


@pytest.mark.parametrize("stop_at", [3, 7, None])
def test_training_ends_when_validation_gets_no_better(tmp_path: Path, stop_at: int | None) -> None:
    """After a kill as well, and when it had ended already: no step is trained twice."""
    validation = held_out(patience=2, keep_best=True)
    weights, points, seen = run(tmp_path / "whole", validation=validation)
    by_step = list(losses(points).values())
    assert seen[-1] < 12
    assert len(by_step) - 1 - by_step.index(min(by_step)) == 2
    if stop_at is not None:
        with pytest.raises(Interrupt):
            run(tmp_path / "killed", stop_at=stop_at, validation=validation)
    work = tmp_path / ("whole" if stop_at is None else "killed")
    again, points_again, seen_again = run(work, validation=validation)
    assert seen_again == ([] if stop_at is None else list(range(stop_at, seen[-1] + 1)))
    assert without_timings(points_again) == without_timings(points)
    for name, expected in weights.items():
        assert torch.equal(again[name], expected), name
