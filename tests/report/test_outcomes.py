"""Episodes are paired by task; the table and the contrasts are what the counts say."""

from pathlib import Path

import pytest

from interlat.config import UserError
from interlat.report.outcomes import Contrast, contrasts, judge, read_results
from interlat.stats import mcnemar_exact, paired_difference
from report.conftest import write_episodes


def games(*steps: int) -> list[tuple[str, str, bool, int]]:
    """One game a number: the step in which it was won; 20 means that it was not."""
    return [(f"g{i}", "valid_seen", step < 20, step) for i, step in enumerate(steps)]


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    write_episodes(tmp_path / "data.csv", "data", games(4, 5, 14, 6, 20))
    write_episodes(tmp_path / "none.csv", "none", games(20, 9, 20, 20, 20))
    return tmp_path


def test_a_row_counts_what_was_solved_in_time(tables: Path) -> None:
    rows = judge(read_results(("data", "none"), tables, None), (12, 20))

    assert [(r.condition, r.within_steps, r.successes, r.n) for r in rows] == [
        ("data", 12, 3, 5),
        ("data", 20, 4, 5),
        ("none", 12, 1, 5),
        ("none", 20, 1, 5),
    ]
    data, reference = rows[0], rows[2]
    won = [True, True, False, True, False], [False, True, False, False, False]
    assert (data.difference, data.difference_low, data.difference_high) == paired_difference(*won)
    assert data.p == mcnemar_exact(*won) == 0.5
    assert data.mean_steps == 49 / 5
    assert (reference.difference, reference.p) == (None, None)


def test_the_order_of_episodes_does_not_matter(tables: Path) -> None:
    before = judge(read_results(("data", "none"), tables, None), (12,))
    write_episodes(tables / "none.csv", "none", games(20, 9, 20, 20, 20)[::-1])
    assert judge(read_results(("data", "none"), tables, None), (12,)) == before


def test_the_main_run_is_compared_with_none_too(tables: Path) -> None:
    write_episodes(tables / "main.csv", "none", games(4, 4, 4, 4, 4))

    rows = judge(read_results(("data", "none"), tables, tables / "main.csv"), (12,))

    assert [(r.run, r.condition) for r in rows][-1] == ("evaluate", "none")
    assert rows[-1].difference == 0.8


def test_conditions_that_did_not_play_the_same_tasks_are_not_compared(tables: Path) -> None:
    write_episodes(tables / "none.csv", "none", games(20, 9, 20, 20))
    with pytest.raises(UserError, match=r"none\.csv: 1 tasks of valid_seen are not in both"):
        read_results(("data", "none"), tables, None)


def test_a_task_that_comes_twice_is_an_error(tables: Path) -> None:
    write_episodes(tables / "none.csv", "none", games(20, 9) + games(20))
    with pytest.raises(UserError, match=r"none\.csv, line 4: 'g0' comes twice"):
        read_results(("data", "none"), tables, None)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("a,b\n1,2\n", "not a table of episodes"),
        ("task_id,split,condition,won,steps\n", "there is no episode in it"),
        ("task_id,split,condition,won,steps\na,s,none,yes,3\n", "not a table of episodes"),
    ],
)
def test_a_malformed_table_is_one_sentence(tables: Path, content: str, words: str) -> None:
    (tables / "none.csv").write_text(content)
    with pytest.raises(UserError, match=words):
        read_results(("none",), tables, None)


def test_a_missing_table_or_reference_says_what_to_do(tables: Path) -> None:
    with pytest.raises(UserError, match=r"text\.csv: no such file; `dvc repro`"):
        read_results(("text", "none"), tables, None)
    with pytest.raises(UserError, match=r"ablate\.conditions: none is needed"):
        read_results(("data",), tables, None)


def test_the_contrasts_of_a_split_are_one_family(tables: Path) -> None:
    """Three raw p-values of 0.031 are none below 0.05 together."""
    for condition in ("text", "random_other", "none"):
        write_episodes(tables / f"{condition}.csv", condition, games(*[20] * 6))
    write_episodes(tables / "data.csv", "data", games(*[4] * 6))

    found = contrasts(
        read_results(("data", "text", "random_other", "none"), tables, None), "data", 12
    )

    assert [c.second for c in found] == ["text", "random_other", "none"]
    assert [c.p for c in found] == [0.03125] * 3
    assert [c.p_holm for c in found] == [0.09375] * 3
    assert [c.verdict for c in found] == [0, 0, 0]


@pytest.mark.parametrize(
    ("difference", "low", "high", "p_holm", "verdict"),
    [
        (0.4, 0.3, 0.5, 0.001, 1),
        (-0.4, -0.5, -0.3, 0.001, -1),
        (0.4, 0.3, 0.5, 0.06, 0),
        (0.1, -0.01, 0.2, 0.04, 0),
    ],
)
def test_a_verdict_needs_the_test_and_the_interval(
    difference: float, low: float, high: float, p_holm: float, verdict: int
) -> None:
    contrast = Contrast("s", 12, "data", "none", 40, difference, low, high, p_holm / 2, p_holm)
    assert contrast.verdict == verdict
