"""Seeds are pooled by game: rates add up, games are resampled whole, the weakest seed's p is it."""

import csv
from pathlib import Path

import numpy as np
import pytest

from interlat.config import UserError
from interlat.report.pooled import (
    Seeds,
    by_seed,
    difference,
    pool,
    pooled_contrasts,
    pooled_grids,
    read_seeds,
    write_pooled,
)
from interlat.stats import mcnemar_exact, mean_interval, paired_difference, wilson
from report.conftest import write_episodes

CONDITIONS = ("data", "none")
CEILINGS = {"final": {"informed_expert": {12: 1.0}, "searching_expert": {12: 0.5}}}
WON = {
    "1": {"data": "11111111", "none": "10000000"},
    "2": {"data": "11111100", "none": "11000000"},
    "3": {"data": "11101100", "none": "10100000"},
}
"""Seed -> condition -> a game a digit: solved in step 4 or not at all."""


def write(root: Path, won: dict[str, dict[str, str]]) -> list[Path]:
    for seed, conditions in won.items():
        for condition, games in conditions.items():
            played = [
                (f"g{i}", "final", digit == "1", 4 if digit == "1" else 20)
                for i, digit in enumerate(games)
            ]
            write_episodes(root / f"seed-{seed}/plots/ablate/{condition}.csv", condition, played)
    return [root / f"seed-{seed}" for seed in won]


@pytest.fixture
def seeds(tmp_path: Path) -> Seeds:
    return read_seeds(write(tmp_path, WON), CONDITIONS)


def bits(seed: str, condition: str) -> list[bool]:
    return [digit == "1" for digit in WON[seed][condition]]


def test_a_pooled_row_counts_every_episode_and_names_the_extreme_seeds(seeds: Seeds) -> None:
    data, none = pool(seeds, (12,))

    assert (data.condition, data.n, data.games, data.successes) == ("data", 24, 8, 19)
    assert (data.low, data.high) == wilson(19, 24)
    assert (data.lowest, data.highest, data.success) == (5 / 8, 1.0, 19 / 24)
    assert data.mean_steps == pytest.approx((19 * 4 + 5 * 20) / 24)
    assert data.p == max(mcnemar_exact(bits(s, "data"), bits(s, "none")) for s in WON) == 0.25
    assert (none.difference, none.difference_low, none.p) == (None, None, None)


def test_a_difference_is_paired_by_seed_and_game_and_resamples_games(seeds: Seeds) -> None:
    gaps = [
        np.mean([bits(seed, "data")[i] - int(bits(seed, "none")[i]) for seed in WON])
        for i in range(8)
    ]
    found = difference(seeds, "final", "data", "none", 12)
    assert found.difference == pytest.approx(14 / 24)
    assert (found.low, found.high) == pytest.approx(mean_interval([float(gap) for gap in gaps]))


def test_seeds_that_agree_game_by_game_do_not_narrow_a_difference(tmp_path: Path) -> None:
    """Taken as independent episodes, three copies of one seed would look like three times the n."""
    once = read_seeds(write(tmp_path / "once", {"1": WON["1"]}), CONDITIONS)
    thrice = read_seeds(write(tmp_path / "thrice", dict.fromkeys("123", WON["1"])), CONDITIONS)
    assert difference(once, "final", "data", "none", 12) == difference(
        thrice, "final", "data", "none", 12
    )


def test_a_difference_without_spread_is_not_called_certain(tmp_path: Path) -> None:
    same = {"data": "11110000", "none": "11110000"}
    seeds = read_seeds(write(tmp_path, {"1": same, "2": same}), CONDITIONS)
    found = difference(seeds, "final", "data", "none", 12)
    assert found == paired_difference([True] * 4 + [False] * 4, [True] * 4 + [False] * 4)
    assert found.low < -0.1 < 0.1 < found.high


def test_a_contrast_s_p_is_that_of_the_weakest_seed(seeds: Seeds) -> None:
    (contrast,) = pooled_contrasts(seeds, "data", 12)
    assert (contrast.second, contrast.n, contrast.p, contrast.p_holm) == ("none", 24, 0.25, 0.25)
    assert contrast.verdict == 0


def test_every_seed_s_own_table_is_there_too(seeds: Seeds) -> None:
    rows = by_seed(seeds, (12,))
    assert [(row.seed, row.condition, row.successes) for row in rows] == [
        ("1", "data", 8), ("1", "none", 1), ("2", "data", 6), ("2", "none", 2), ("3", "data", 5),
        ("3", "none", 2),
    ]  # fmt: skip


def test_the_shown_table_has_the_range_over_seeds_and_the_experts(seeds: Seeds) -> None:
    (table,) = pooled_grids(pool(seeds, (12,)), CEILINGS, seeds)
    assert table.title == "final, 8 games, training seeds 1, 2, 3"
    assert table.header[-3:] == ["largest p", "steps", "lowest–highest seed (12 steps), %"]
    assert [(line[0], line[-1]) for line in table.lines] == [
        ("data", "62.5–100.0"),
        ("none", "12.5–25.0"),
        ("informed expert", ""),
        ("searching expert", ""),
    ]


def test_what_is_written_is_the_same_twice(seeds: Seeds, tmp_path: Path) -> None:
    for name in ("first", "second"):
        write_pooled(seeds, CEILINGS, (12, 20), tmp_path / name)
    written = [
        {p.relative_to(tmp_path / name): p.read_bytes() for p in (tmp_path / name).rglob("*.*")}
        for name in ("first", "second")
    ]
    assert written[0] == written[1]
    assert {str(path) for path in written[0]} == {
        "table.csv", "seeds.csv", "table.md", "summary.md", "figures/differences.png",
        "figures/success-final.png",
    }  # fmt: skip
    with (tmp_path / "first/table.csv").open() as file:
        assert [float(row["success"]) for row in csv.DictReader(file)] == pytest.approx(
            [19 / 24, 19 / 24, 5 / 24, 5 / 24], rel=1e-5
        )
    assert "3 training seeds" in (tmp_path / "first/summary.md").read_text()


def test_seeds_that_did_not_play_the_same_games_are_not_pooled(tmp_path: Path) -> None:
    folders = write(tmp_path, WON | {"3": {"data": "1", "none": "0"}})
    with pytest.raises(UserError, match=r"seed-3: its games are not those of .*seed-1"):
        read_seeds(folders, CONDITIONS)


def test_one_seed_is_not_pooled_with_itself(tmp_path: Path) -> None:
    folders = write(tmp_path, WON)
    with pytest.raises(UserError, match="two folders of one seed"):
        read_seeds([folders[0], folders[0]], CONDITIONS)
