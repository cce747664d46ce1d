"""From the pipeline's files to the report's: what the report stage calls.

Everything that is read lies under one root, where the stages wrote it. Digests of data and models
are those that DVC noted in dvc.lock, where there is one.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from interlat.config import Params, Scalar, UserError, flat
from interlat.files import atomic_directory, atomic_write_text, read_json
from interlat.report import figures
from interlat.report.figures import Figure
from interlat.report.findings import OWN, caveats, findings, lengths, meanings, summary
from interlat.report.outcomes import Contrast, Results, contrasts, judge, read_results
from interlat.report.page import Facts, Report, facts_of, html, summary_markdown
from interlat.report.tables import Ceilings, Row, grids, read_ceilings, to_csv
from interlat.schema import read_yaml

BASE_LOSSES = {
    "loss_sender": "sender: say the plan",
    "loss_follow": "actor: follow a plan",
    "loss_search": "actor: search",
}
ACTOR_LOSSES = {
    "task_own": "task, own message",
    "task_other": "task, no or other message",
    "alignment": "alignment",
    "js": "divergence from another's message",
}
DIGESTED = ("data/tasks", "data/games", "data/latents", "models")
UNTOLD = ("launch.", "tracking.")
"""Settings that change no number."""


class Built(NamedTuple):
    """The table and the report on it."""

    rows: list[Row]
    report: Report


def build(params: Params, root: Path, ceilings: Path) -> Built:
    """Read what the stages wrote under ``root`` and judge it.

    ceilings: metrics/prepare.json, with the experts' success.
    Raises UserError for what is missing, malformed or not paired.
    """
    plots = root / "plots"
    main = plots / "evaluate.csv"
    results = read_results(
        params.ablate.conditions, plots / "ablate", main if main.is_file() else None
    )
    known = {s: c for s, c in read_ceilings(ceilings).items() if s in results.controls}
    rows = judge(results, params.task.success_steps)
    compared = contrasts(results, OWN, params.task.success_steps[0])
    report = Report(
        summary=summary(rows),
        findings=findings(rows, compared, known),
        caveats=caveats(params.seed, params.sender.knowledge),
        tables=grids(rows, known),
        meanings=meanings(params.ablate.conditions),
        notes=list(filter(None, [_lengths(params, root, results), _main_run(results, params)])),
        figures=list(_figures(params, results, rows, compared, known, plots)),
        facts=list(_facts(params, root)),
    )
    return Built(rows, report)


def write(built: Built, output: Path, table: Path) -> None:
    """Write output/{index.html,summary.md,figures/*} and the table, each whole or not at all."""
    with atomic_directory(output) as folder:
        atomic_write_text(folder / "index.html", html(built.report))
        atomic_write_text(folder / "summary.md", summary_markdown(built.report))
        (folder / "figures").mkdir()
        for figure in built.report.figures:
            (folder / "figures" / f"{figure.name}.png").write_bytes(figure.png)
            (folder / "figures" / f"{figure.name}.csv").write_text(figure.csv)
    atomic_write_text(table, to_csv(built.rows))


def _figures(
    params: Params,
    results: Results,
    rows: list[Row],
    compared: list[Contrast],
    ceilings: Ceilings,
    plots: Path,
) -> Iterable[Figure]:
    limit = params.task.step_limit
    for split in results.controls:
        yield figures.success(rows, compared, ceilings, split)
    if compared:
        yield figures.differences(compared)
    for split, outcomes in results.controls.items():
        yield figures.solved(outcomes, split, limit)
    yield figures.steps(results, limit)
    for name, subject, terms in (
        ("base", "Loss of the base model", BASE_LOSSES),
        ("train", "Loss of the actor", ACTOR_LOSSES),
    ):
        file = plots / f"{name}.csv"
        if not file.is_file():
            raise UserError(f"{file}: no such file; `dvc repro` writes it")
        yield figures.losses(f"loss-{name}", subject, file.read_text(encoding="utf-8"), terms)


def _lengths(params: Params, root: Path, results: Results) -> str:
    """The length of the messages that were read, where stage collect noted it."""
    folder = root / "metrics" / "collect"
    files = {
        split: folder / f"{params.sender.knowledge}-{split}.json" for split in results.controls
    }
    return lengths({s: read_json(f)["mean_length"] for s, f in files.items() if f.is_file()})


def _main_run(results: Results, params: Params) -> str:
    """What the run of stage evaluate was, where there is one."""
    for split, outcomes in results.main.items():
        for condition, episodes in outcomes.items():
            settings = ", ".join(f"{k} {v}" for k, v in flat(params).items() if _shapes(k, params))
            same = episodes == results.controls[split].get(condition)
            equal = f"; its episodes are those of `{condition}`" if same else ""
            return f"“This run” is stage evaluate, as the settings describe it: {settings}{equal}."
    return ""


def _shapes(key: str, params: Params) -> bool:
    """Whether a setting under ``hidden`` says something: the source, or what is not the default."""
    defaults = flat(Params())
    return key == "hidden.source" or (
        key.startswith("hidden.") and flat(params)[key] != defaults[key]
    )


def _facts(params: Params, root: Path) -> Iterable[Facts]:
    messages = sorted((root / "metrics" / "collect").glob("*.json"))
    if messages:
        yield _messages({path.stem: read_json(path) for path in messages})
    told: dict[str, Scalar] = {k: v for k, v in flat(params).items() if not k.startswith(UNTOLD)}
    seeds = {k: v for k, v in told.items() if k == "seed" or k.endswith((".seed", "_seed"))}
    yield facts_of("Seeds", seeds)
    yield facts_of("Settings", told)
    for name, title in (("base", "The base model, at its end"), ("train", "The actor, at its end")):
        file = root / "metrics" / f"{name}.json"
        if file.is_file():
            yield facts_of(title, read_json(file))
    lock = root / "dvc.lock"
    if lock.is_file():
        yield facts_of("Digests of data and models, as DVC keeps them", _digests(read_yaml(lock)))


def _messages(collected: Mapping[str, Mapping[str, Any]]) -> Facts:
    names = {
        "messages": "messages",
        "mean_length": "rows a message (the plan's tokens and its end mark)",
        "plan_exact": "plans equal to the expert's",
        "finished": "plans that ended by themselves",
    }
    lines = [
        [store, *(f"{metrics[n]:.4g}" if n in metrics else "" for n in names)]
        for store, metrics in collected.items()
    ]
    return Facts("Messages: length and exactness", ["knowledge-split", *names.values()], lines)


def _digests(lock: Mapping[str, Any]) -> dict[str, str]:
    return {
        out["path"]: f"md5 {out['md5']}"
        for stage in lock.get("stages", {}).values()
        for out in stage.get("outs", ())
        if out["path"].startswith(DIGESTED) and "md5" in out
    }
