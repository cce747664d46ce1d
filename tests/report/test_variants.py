"""Actors trained in several ways, compared."""

from pathlib import Path

import pytest

from interlat.config import UserError
from interlat.report.tables import to_csv
from interlat.report.variants import compare, page, read_variant, tables
from interlat.stats import paired_difference, wilson

GAMES = 40


def episodes(path: Path, won: int, condition: str = "data", games: int = GAMES) -> Path:
    """The first ``won`` games are won, every second of them late."""
    lines = ["task_id,split,condition,won,steps,reward,seed"]
    for game in range(games):
        steps = 18 if game % 2 and game < won else 5
        lines.append(f"g{game},valid,{condition},{int(game < won)},{steps},0.0,0")
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture
def variants(tmp_path: Path) -> list[str]:
    full, none = episodes(tmp_path / "full.csv", 32), episodes(tmp_path / "none.csv", 8, "none")
    plain = episodes(tmp_path / "plain.csv", 12)
    return [f"full={full},{none}", f"plain={plain}"]


def test_each_variant_is_judged_against_the_first_on_the_same_games(variants: list[str]) -> None:
    full, plain = compare([read_variant(v) for v in variants], [20])
    assert (full.n, full.successes, full.alone) == (GAMES, 32, 0.2)
    assert (full.low, full.high) == wilson(32, GAMES)
    won, lost = [i < 32 for i in range(GAMES)], [i < 8 for i in range(GAMES)]
    assert (full.gain, full.gain_low, full.gain_high) == paired_difference(won, lost)
    assert (full.difference, full.p, full.p_holm) == (None, None, None)
    assert plain.difference == pytest.approx(-0.5)
    assert plain.p == pytest.approx(2 * 0.5**20)
    assert plain.p_holm == plain.p
    assert plain.gain is None


def test_fewer_steps_are_a_table_of_their_own(variants: list[str]) -> None:
    rows = compare([read_variant(v) for v in variants], [10, 20])
    assert [(row.name, row.within_steps, row.successes) for row in rows] == [
        ("full", 10, 16),
        ("plain", 10, 6),
        ("full", 20, 32),
        ("plain", 20, 12),
    ]
    (grid,) = tables(rows)
    assert grid.header[5] == "minus full (10 steps)"
    assert [line[0] for line in grid.lines] == ["full", "plain"]
    assert grid.lines[0][1].startswith("40.0 [")
    assert "**valid, 40 games**" in page("Parts", rows)
    assert len(to_csv(rows).splitlines()) == 5


def test_other_games_and_other_forms_are_refused(variants: list[str], tmp_path: Path) -> None:
    other = episodes(tmp_path / "other.csv", 3, games=39)
    with pytest.raises(UserError, match="few: its games are not those of full"):
        compare([read_variant(v) for v in (variants[0], f"few={other}")], [20])
    with pytest.raises(UserError, match="expected NAME=EPISODES"):
        read_variant(str(other))
    both = tmp_path / "both.csv"
    both.write_text(other.read_text() + "g1,valid,none,0,5,0.0,0\n")
    with pytest.raises(UserError, match="it holds several conditions"):
        read_variant(f"both={both}")
