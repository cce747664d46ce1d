"""The table survives its CSV, and reads well as text."""

from dataclasses import replace
from pathlib import Path

import pytest

from interlat.config import UserError
from interlat.report.tables import (
    Row,
    grids,
    markdown,
    p_value,
    points,
    points_interval,
    read_ceilings,
    read_rows,
    terminal,
    to_csv,
)

DATA = Row(
    "seen, 12 steps: data", "ablate", "seen", "data", 12, 120, 117, 0.975, 0.929, 0.991,
    0.383, 0.291, 0.465, 1.5e-12, 6.84,
)  # fmt: skip
NONE = Row(
    "seen, 12 steps: none", "ablate", "seen", "none", 12, 120, 71, 0.592, 0.502, 0.675,
    None, None, None, None, 12.5,
)  # fmt: skip
LATE = [replace(DATA, within_steps=20), replace(NONE, within_steps=20, success=0.8)]
ROWS = [DATA, LATE[0], NONE, LATE[1]]
CEILINGS = {"seen": {"searching_expert": {12: 0.5333, 20: 0.8583}}}


def test_a_table_is_read_back_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "success.csv"
    path.write_text(to_csv(ROWS))
    assert read_rows(path) == ROWS


def test_a_table_that_is_not_there_or_not_one_is_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "success.csv"
    with pytest.raises(UserError, match="no such file; `dvc repro` writes it"):
        read_rows(path)
    path.write_text("a,b\n1,2\n")
    with pytest.raises(UserError, match="not a table of this version"):
        read_rows(path)


def test_columns_stand_under_each_other() -> None:
    assert terminal(grids(ROWS, CEILINGS)).splitlines() == [
        "seen, 120 games",
        "condition         within 12 steps, %  within 20 steps, %  "
        "minus none (12 steps), points  p      steps",
        "data              97.5 [92.9, 99.1]   97.5 [92.9, 99.1]   "
        "+38.3 [+29.1, +46.5]           2e-12  6.8",
        "none              59.2 [50.2, 67.5]   80.0 [50.2, 67.5]   "
        "                                      12.5",
        "searching expert  53.3                85.8",
    ]


def test_markdown_has_the_same_cells() -> None:
    lines = markdown(grids(ROWS, CEILINGS)).splitlines()
    assert lines[0] == "**seen, 120 games**"
    assert lines[-1] == "| searching expert | 53.3 | 85.8 |  |  |  |"


def test_the_run_of_the_settings_is_told_apart() -> None:
    main = replace(DATA, run="evaluate")
    (grid,) = grids([DATA, main], {})
    assert [line[0] for line in grid.lines] == ["data", "this run: data"]


def test_ceilings_are_the_experts_and_only_theirs(tmp_path: Path) -> None:
    path = tmp_path / "prepare.json"
    path.write_text(
        '{"seen": {"games": 3, "informed_expert": {"success_12": 1.0}}, "official": {"games": 9}}'
    )
    assert read_ceilings(path) == {"seen": {"informed_expert": {12: 1.0}}, "official": {}}


def test_numbers_read_as_people_write_them() -> None:
    assert [points(x) for x in (0.383, -0.05, 0.0, -0.0001)] == ["+38.3", "−5.0", "0.0", "0.0"]
    assert points_interval(-0.05, 0.1) == "[−5.0, +10.0]"
    assert [p_value(p) for p in (1.0, 0.0314, 0.0004, 1.5e-12)] == [
        "1.000",
        "0.031",
        "4e-4",
        "2e-12",
    ]
