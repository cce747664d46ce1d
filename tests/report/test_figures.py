"""Figures carry their data, say what it says, and come out byte for byte the same."""

import csv
import io
from pathlib import Path

import pytest

from interlat.report import figures
from interlat.report.outcomes import Results, contrasts, judge, read_results
from report.conftest import RATES, SPLITS


@pytest.fixture
def results(pipeline: Path) -> Results:
    return read_results(tuple(RATES), pipeline / "plots" / "ablate", None)


def test_the_same_numbers_give_the_same_bytes(results: Results) -> None:
    compared = contrasts(results, "data", 12)
    first, second = (figures.differences(compared) for _ in range(2))
    assert first == second
    assert first.png.startswith(b"\x89PNG")
    assert b"Matplotlib" not in first.png
    assert first.image_uri.startswith("data:image/png;base64,iVBOR")


def test_success_has_every_row_of_the_split_and_the_experts(results: Results) -> None:
    rows = judge(results, (12, 20))
    ceilings = {"valid_seen": {"informed_expert": {12: 1.0, 20: 1.0}}}

    figure = figures.success(rows, contrasts(results, "data", 12), ceilings, "valid_seen")

    data = list(csv.DictReader(io.StringIO(figure.csv)))
    assert len(data) == 2 * len(RATES) + 2
    row = next(
        r for r in rows if (r.split, r.condition, r.within_steps) == ("valid_seen", "none", 12)
    )
    drawn = next(d for d in data if (d["condition"], d["steps"]) == ("none", "12"))
    assert [float(drawn[k]) for k in ("value", "low", "high")] == pytest.approx(
        [row.success, row.low, row.high], rel=1e-5
    )
    assert figure.title.startswith("valid_seen: the message raises success within 12 steps by")


def test_the_curve_ends_where_the_table_is(results: Results) -> None:
    figure = figures.solved(results.controls["valid_seen"], "valid_seen", 20)

    data = list(csv.DictReader(io.StringIO(figure.csv)))
    row = next(r for r in judge(results, (20,)) if r.condition == "data")
    assert float(data[20]["value"]) == row.success
    assert len(data) == 21 * len(RATES)
    assert figure.title == (
        "valid_seen: half of the games are solved by step 8 with data, by step 16 with none"
    )


def test_steps_are_those_of_every_split_with_intervals(results: Results) -> None:
    figure = figures.steps(results, 20)
    data = list(csv.DictReader(io.StringIO(figure.csv)))
    assert {row["split"] for row in data} == set(SPLITS)
    assert all(float(r["low"]) < float(r["value"]) < float(r["high"]) for r in data)


def test_losses_leave_out_what_is_not_there() -> None:
    text = "step,loss,task_own,js\n10,0.5,0.25,0\n20,0.1,0.125,0\n"
    names = {"task_own": "own", "js": "divergence", "alignment": "alignment"}
    figure = figures.losses("loss-train", "Loss", text, names)
    assert figure.title == "Loss, nats, over 20 steps: own 0.25 → 0.12"
    assert figure.csv == text
