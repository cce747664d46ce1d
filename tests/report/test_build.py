"""From a pipeline's outputs to the report's, the same bytes every time."""

from dataclasses import replace
from pathlib import Path

import pytest

from interlat.config import Params, UserError
from interlat.report.build import build, write
from interlat.report.tables import read_rows
from report.conftest import RATES, SPLITS


def contents(folder: Path) -> dict[Path, bytes]:
    return {f.relative_to(folder): f.read_bytes() for f in folder.rglob("*") if f.is_file()}


def test_the_report_is_written_twice_alike(pipeline: Path, tmp_path: Path) -> None:
    for name in ("first", "second"):
        built = build(Params(), pipeline, pipeline / "metrics" / "prepare.json")
        write(built, tmp_path / name / "report", tmp_path / name / "success.csv")

    first, second = (contents(tmp_path / name) for name in ("first", "second"))
    assert first == second
    names = {str(path) for path in first}
    figures = ["differences", "steps", "loss-base", "loss-train"]
    figures += [f"{kind}-{split}" for kind in ("success", "solved") for split in SPLITS]
    assert names == {"success.csv", "report/index.html", "report/summary.md"} | {
        f"report/figures/{figure}.{ending}" for figure in figures for ending in ("png", "csv")
    }
    assert len(read_rows(tmp_path / "first" / "success.csv")) == 2 * 2 * (len(RATES) + 1)
    page = first[Path("report/index.html")].decode()
    assert "its episodes are those of <code>data</code>" in page
    assert "21.0 on valid_seen and 21.0 on valid_unseen rows" in page
    assert "searching expert" in page


def test_a_workspace_without_a_main_run_is_reported_too(pipeline: Path) -> None:
    (pipeline / "plots" / "evaluate.csv").unlink()
    built = build(Params(), pipeline, pipeline / "metrics" / "prepare.json")
    assert {row.run for row in built.rows} == {"ablate"}


def test_data_and_models_are_named_by_their_digests(pipeline: Path) -> None:
    (pipeline / "dvc.lock").write_text(
        "schema: '2.0'\nstages:\n  base:\n    outs:\n"
        "    - {path: models/base, md5: abc.dir}\n    - {path: plots/base.csv, md5: def}\n"
    )
    built = build(Params(), pipeline, pipeline / "metrics" / "prepare.json")
    digests = next(facts for facts in built.report.facts if facts.title.startswith("Digests"))
    assert digests.lines == [("models/base", "md5 abc.dir")]


def test_how_the_message_was_shaped_is_said(pipeline: Path) -> None:
    params = replace(Params(), hidden=replace(Params().hidden, first_k=4))
    built = build(params, pipeline, pipeline / "metrics" / "prepare.json")
    assert "hidden.source data, hidden.first_k 4" in built.report.notes[-1]


def test_a_missing_file_is_named(pipeline: Path) -> None:
    (pipeline / "plots" / "train.csv").unlink()
    with pytest.raises(UserError, match=r"train\.csv: no such file; `dvc repro` writes it"):
        build(Params(), pipeline, pipeline / "metrics" / "prepare.json")
