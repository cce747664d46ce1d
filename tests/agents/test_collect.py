"""Collection: the same store however it was made, and one clear sentence for a mistake."""

import json
import os
import random
import re
import shutil
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from importlib.util import module_from_spec, spec_from_file_location
from multiprocessing import get_context
from multiprocessing.context import ForkProcess
from pathlib import Path

import pytest
import torch
from rich.filesize import decimal

from interlat import distributed
from interlat.agents.collect import PIECE_TASKS, CollectionSummary, collect, estimate
from interlat.config import CollectConfig, UserError
from interlat.files import read_json
from interlat.latents.store import LatentStore
from interlat.latents.writer import MANIFEST, partial_folder
from interlat.models.load import load_causal_lm
from interlat.models.sender import encode_prompts, sender_prompt, speak
from interlat.tasks import Task, write_tasks

ROOT = Path(__file__).parents[2]
Stage = Callable[..., int]
CONFIG = CollectConfig(batch_size=4, max_new_tokens=24)


def make_tasks(count: int) -> list[Task]:
    return [
        Task(
            f"t{i}",
            "alfworld",
            "train",
            f"find {'the mug and ' * (i % 5)}plate {i}",
            knowledge=f"plate {i} is in cabinet {i % 7}",
            plan=f"find plate {i}",
        )
        for i in range(count)
    ]


def run(
    checkpoint: Path, output: Path, tasks: list[Task], config: CollectConfig = CONFIG, seed: int = 1
) -> CollectionSummary:
    model, tokenizer = load_causal_lm(str(checkpoint))
    return collect(tasks, model, tokenizer, output, config, seed=seed, sender=str(checkpoint))


def content(folder: Path) -> dict[str, bytes]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_the_store_holds_what_the_sender_says(tiny_checkpoint: Path, tmp_path: Path):
    tasks = make_tasks(22)
    summary = run(
        tiny_checkpoint, tmp_path / "store", tasks, replace(CONFIG, store_dtype="float32")
    )
    store = LatentStore(tmp_path / "store")
    model, tokenizer = load_causal_lm(str(tiny_checkpoint))
    assert store.ids == [task.task_id for task in tasks]
    for task in tasks:
        prompts = encode_prompts(tokenizer, [sender_prompt(task, CONFIG.prompt_template)])
        (alone,) = speak(model, tokenizer, prompts, CONFIG)
        stored = store.get(task.task_id)
        assert stored.plan == alone.plan
        assert stored.task == task.instruction
        assert (stored.n_tokens, stored.finish_reason) == (
            len(alone.token_ids),
            alone.finish_reason,
        )
        torch.testing.assert_close(stored.hidden_LD, alone.hidden_LD, rtol=0, atol=1e-5)
    lengths = [len(message.hidden_LD) for message in store]
    assert (summary.messages, summary.rows) == (22, sum(lengths))
    assert summary.mean_length == sum(lengths) / 22
    assert summary.finished == sum(m.finish_reason == "eos" for m in store) / 22


def test_float16_is_the_default_and_differs_by_rounding(tiny_checkpoint: Path, tmp_path: Path):
    run(tiny_checkpoint, tmp_path / "half", make_tasks(8))
    run(tiny_checkpoint, tmp_path / "full", make_tasks(8), replace(CONFIG, store_dtype="float32"))
    for half, full in zip(
        LatentStore(tmp_path / "half"), LatentStore(tmp_path / "full"), strict=True
    ):
        assert half.hidden_LD.dtype == torch.float16
        assert torch.equal(half.hidden_LD, full.hidden_LD.half())


def test_plan_exact_compares_plans_as_the_tokenizer_reads_them(
    tiny_checkpoint: Path, tmp_path: Path
):
    tasks = make_tasks(8)
    run(tiny_checkpoint, tmp_path / "first", tasks)
    said = [message.plan for message in LatentStore(tmp_path / "first")]
    known = [
        replace(task, plan=f"  {plan}" if i % 2 else "fridge")
        for i, (task, plan) in enumerate(zip(tasks, said, strict=True))
    ]
    assert run(tiny_checkpoint, tmp_path / "second", known).plan_exact == 0.5
    blank = [replace(task, plan=None) for task in tasks]
    assert run(tiny_checkpoint, tmp_path / "third", blank).plan_exact is None
    sampled = replace(CONFIG, do_sample=True)
    assert run(tiny_checkpoint, tmp_path / "fourth", tasks, sampled).plan_exact is None


def test_a_sample_does_not_depend_on_the_other_tasks(tiny_checkpoint: Path, tmp_path: Path):
    config = replace(CONFIG, do_sample=True, temperature=1.0)
    run(tiny_checkpoint, tmp_path / "all", make_tasks(20), config)
    run(tiny_checkpoint, tmp_path / "few", make_tasks(20)[::-3], replace(config, batch_size=7))
    run(tiny_checkpoint, tmp_path / "seed", make_tasks(20), config, seed=2)
    everything, few, seed = (LatentStore(tmp_path / name) for name in ("all", "few", "seed"))
    for message in few:
        assert message.plan == everything.get(message.task_id).plan
    assert [m.plan for m in seed] != [m.plan for m in everything]


def test_the_same_collection_gives_the_same_bytes(tiny_checkpoint: Path, tmp_path: Path):
    for name in ("a", "b"):
        run(tiny_checkpoint, tmp_path / name, make_tasks(22))
    assert content(tmp_path / "a") == content(tmp_path / "b")


def test_the_manifest_says_which_model_and_no_path(tiny_checkpoint: Path, tmp_path: Path):
    run(tiny_checkpoint, tmp_path / "store", make_tasks(4))
    text = (tmp_path / "store" / MANIFEST).read_text()
    manifest = json.loads(text)
    assert manifest["model"]["name"] == "tiny"
    assert len(manifest["model"]["weights_sha256"]) == 64
    assert manifest["d_s"] == 32
    assert manifest["generation"]["max_new_tokens"] == 24
    assert "seed" not in manifest["generation"]
    assert manifest["packages"]["torch"] == torch.__version__
    assert str(tiny_checkpoint.parent) not in text
    assert str(tmp_path) not in text


def test_the_last_rows_are_kept_up_to_the_cap(tiny_checkpoint: Path, tmp_path: Path):
    run(tiny_checkpoint, tmp_path / "all", make_tasks(8))
    run(tiny_checkpoint, tmp_path / "cap", make_tasks(8), replace(CONFIG, max_hidden_states=3))
    for whole, cut in zip(
        LatentStore(tmp_path / "all"), LatentStore(tmp_path / "cap"), strict=True
    ):
        assert torch.equal(cut.hidden_LD, whole.hidden_LD[-3:])
        assert (cut.plan, cut.n_tokens) == (whole.plan, whole.n_tokens)


def test_a_finished_store_is_kept_and_other_settings_replace_it(
    tiny_checkpoint: Path, tmp_path: Path
):
    output = tmp_path / "store"
    first = run(tiny_checkpoint, output, make_tasks(20))
    written = (output / MANIFEST).stat().st_mtime_ns
    again = run(tiny_checkpoint, output, make_tasks(20))
    assert (output / MANIFEST).stat().st_mtime_ns == written
    assert again.tokens_per_second == 0.0
    assert again.reproducible() == first.reproducible()
    shorter = run(tiny_checkpoint, output, make_tasks(20), replace(CONFIG, max_new_tokens=3))
    assert shorter.rows < first.rows
    assert not partial_folder(output).exists()


def test_states_that_cannot_be_stored_name_the_task_and_publish_nothing(
    tiny_checkpoint: Path, tmp_path: Path
):
    model, tokenizer = load_causal_lm(str(tiny_checkpoint))

    def attempt(dtype: str = "float16") -> None:
        config = replace(CONFIG, store_dtype=dtype)
        collect(make_tasks(4), model, tokenizer, tmp_path / "s", config, seed=1, sender="tiny")

    with torch.no_grad():
        model.model.norm.weight *= 1e6
    with pytest.raises(UserError, match=r"task t\d: .*--store_dtype float32"):
        attempt()
    attempt("float32")
    with torch.no_grad():
        model.model.norm.weight[0] = float("nan")
    with pytest.raises(UserError, match=r"task t\d: .*NaN"):
        attempt("float32")
    assert LatentStore(tmp_path / "s").verify() == []


LONG = Task("long", "alfworld", "train", "mug " * 300)


def test_failed_tasks_are_noted_in_the_manifest_and_not_asked_again(
    tiny_checkpoint: Path, tmp_path: Path
):
    tasks = make_tasks(20)
    clean = run(tiny_checkpoint, tmp_path / "clean", tasks)
    tolerant = replace(CONFIG, max_errors=1)
    with_long = [*tasks[:7], LONG, *tasks[7:]]
    summary = run(tiny_checkpoint, tmp_path / "store", with_long, tolerant)
    store = LatentStore(tmp_path / "store")
    assert (summary.failed, summary.messages, summary.rows) == (1, 20, clean.rows)
    assert store.ids == [task.task_id for task in tasks]
    assert list(store.failures) == ["long"]
    assert "its prompt has" in store.failures["long"]
    again = run(tiny_checkpoint, tmp_path / "store", with_long, tolerant)
    assert again.tokens_per_second == 0.0
    assert again.reproducible() == summary.reproducible()


def test_too_many_failures_keep_what_is_finished_and_a_second_start_goes_on(
    tiny_checkpoint: Path, tmp_path: Path
):
    model, tokenizer = load_causal_lm(str(tiny_checkpoint))
    lamp = tokenizer.convert_tokens_to_ids("lamp")
    tasks = make_tasks(40)
    tasks[20] = replace(tasks[20], instruction="find lamp")
    output, whole = tmp_path / "store", tmp_path / "whole"
    asked = 0

    def attempt(folder: Path, **settings: int) -> CollectionSummary:
        config = replace(CONFIG, **settings)
        return collect(tasks, model, tokenizer, folder, config, seed=1, sender="tiny")

    attempt(whole)

    def stumble(module, args, kwargs):
        nonlocal asked
        ids_BT = kwargs["input_ids"]
        asked += len(ids_BT) if ids_BT.shape[1] > 1 else 0
        if ids_BT.shape[1] > 1 and (ids_BT == lamp).any():
            torch.zeros(2) @ torch.zeros(3)

    broken = model.register_forward_pre_hook(stumble, with_kwargs=True)
    with pytest.raises(UserError, match=r"1 of 40 tasks failed, .* 0: task t20: the model failed"):
        attempt(output)
    pieces = partial_folder(output) / "pieces"
    assert len(list(pieces.iterdir())) == 1
    asked = 0
    assert attempt(output, max_errors=1).failed == 1
    assert asked < 40
    assert list(LatentStore(output).failures) == ["t20"]
    with pytest.raises(UserError, match="1 of 40 tasks failed"):
        attempt(tmp_path / "other")
    broken.remove()
    attempt(tmp_path / "other")
    assert content(tmp_path / "other") == content(whole)


def test_without_a_batch_size_the_layout_is_the_same_whatever_fits(
    tiny_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    config = replace(CONFIG, batch_size=None, store_dtype="float32", max_new_tokens=8)
    tasks = make_tasks(2 * PIECE_TASKS + 3)
    stores = []
    for fitting in (5, PIECE_TASKS, 100):
        monkeypatch.setattr(
            "interlat.agents.speaker.replies_that_fit", lambda *_, count=fitting: count
        )
        run(tiny_checkpoint, tmp_path / str(fitting), tasks, config)
        stores.append(LatentStore(tmp_path / str(fitting)))
    for messages in zip(*stores, strict=True):
        first = messages[0]
        for other in messages[1:]:
            assert (other.task_id, other.plan, other.n_tokens) == (
                first.task_id,
                first.plan,
                first.n_tokens,
            )
            torch.testing.assert_close(other.hidden_LD, first.hidden_LD, rtol=0, atol=1e-5)


def test_progress_tells_all_tasks_with_speed_size_and_errors(tiny_checkpoint: Path, tmp_path: Path):
    model, tokenizer = load_causal_lm(str(tiny_checkpoint))
    told: list[tuple[int, str]] = []
    collect(
        make_tasks(40),
        model,
        tokenizer,
        tmp_path / "store",
        CONFIG,
        seed=1,
        sender="tiny",
        on_progress=lambda done, note: told.append((done, note)),
    )
    assert sum(done for done, _ in told) == 40
    size = LatentStore(tmp_path / "store").lengths.sum() * 32 * 2
    assert re.fullmatch(rf"[\d,]+ tokens/s, {re.escape(decimal(size))}, 0 errors", told[-1][1])


@pytest.mark.parametrize(
    "settings",
    [{}, {"store_dtype": "float32", "parquet": False, "first_k": 3, "batch_size": None}],
)
def test_an_estimate_is_near_and_writes_nothing(
    tiny_checkpoint: Path, tmp_path: Path, settings: dict[str, object]
):
    model, tokenizer = load_causal_lm(str(tiny_checkpoint))
    tasks, config = [*make_tasks(100), LONG], replace(CONFIG, max_errors=1, **settings)
    expected = estimate(tasks, model, tokenizer, config, seed=1)
    assert not list(tmp_path.iterdir())
    summary = run(tiny_checkpoint, tmp_path / "store", tasks, config)
    store = LatentStore(tmp_path / "store")
    size = sum(file.stat().st_size for file in (tmp_path / "store" / "hf_dataset").iterdir())
    assert (expected.tasks, expected.failed, expected.spoken) == (101, 1, 64)
    assert expected.rows == pytest.approx(summary.rows, rel=0.15)
    assert expected.store_bytes == pytest.approx(size, rel=0.3)
    assert expected.most_new_tokens == 100 * 24
    tokens = sum(message.n_tokens for message in store)
    assert expected.new_tokens == pytest.approx(tokens, rel=0.15)
    assert expected.parquet_bytes == (expected.store_bytes if config.parquet else 0)
    assert "101, 1 cannot be asked" in str(expected)
    assert "with 1 process" in str(expected)


def test_a_prompt_that_fills_the_context_is_named(tiny_checkpoint: Path, tmp_path: Path):
    tasks = [*make_tasks(2), LONG]
    with pytest.raises(UserError, match=r"task long: its prompt has \d+ tokens"):
        run(tiny_checkpoint, tmp_path / "store", tasks)
    assert not list(tmp_path.iterdir())


Launch = Callable[..., list[ForkProcess]]


@pytest.fixture
def launch(tiny_checkpoint: Path, tmp_path: Path) -> Launch:
    """Start the ranks of a collection into a folder, as forks of this process: nothing to load."""
    model, tokenizer = load_causal_lm(str(tiny_checkpoint))

    def work(rank: int, ranks: int, port: int, folder: str, tasks: list[Task]) -> None:
        place = {"RANK": rank, "WORLD_SIZE": ranks, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        os.environ.update({name: str(value) for name, value in place.items()})
        config = replace(CONFIG, batch_size=2)
        with distributed.process_group():
            collect(tasks, model, tokenizer, tmp_path / folder, config, seed=1, sender="tiny")

    def start(folder: str, tasks: list[Task], ranks: int = 1) -> list[ForkProcess]:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        started = [
            get_context("fork").Process(target=work, args=(rank, ranks, port, folder, tasks))
            for rank in range(ranks)
        ]
        for process in started:
            process.start()
        return started

    return start


def kill(processes: list[ForkProcess]) -> None:
    for process in processes:
        process.kill()
    for process in processes:
        process.join()


def finish(processes: list[ForkProcess]) -> None:
    for process in processes:
        process.join()
        assert process.exitcode == 0


@pytest.mark.slow
def test_killed_twenty_times_it_resumes_to_the_same_bytes(launch: Launch, tmp_path: Path):
    tasks, chance, kills = make_tasks(240), random.Random(0), 0
    began = time.monotonic()
    finish(launch("whole", tasks))
    seconds = time.monotonic() - began
    while kills < 20:
        (process,) = job = launch("store", tasks)
        process.join(chance.uniform(0, seconds / 10))
        if process.exitcode is None:
            kill(job)
            kills += 1
            if not (tmp_path / "store").exists():
                with pytest.raises(UserError, match=r"unfinished|no messages"):
                    LatentStore(tmp_path / "store")
        else:  # the end came between two kills: begin anew
            assert content(tmp_path / "store") == content(tmp_path / "whole")
            shutil.rmtree(tmp_path / "store")
    finish(launch("store", tasks))
    assert content(tmp_path / "store") == content(tmp_path / "whole")
    assert not partial_folder(tmp_path / "store").exists()


@pytest.mark.slow
def test_any_number_of_processes_gives_the_bytes_of_one(launch: Launch, tmp_path: Path):
    tasks = make_tasks(180)
    finish(launch("one", tasks))
    finish(launch("two", tasks, ranks=2))
    assert content(tmp_path / "two") == content(tmp_path / "one")
    pieces = partial_folder(tmp_path / "changing") / "pieces"
    kept = 0
    for ranks in (2, 3, 1):
        job = launch("changing", tasks, ranks)
        while len(list(pieces.glob("*.arrow"))) < kept + 3 and job[0].is_alive():
            time.sleep(0.001)
        kill(job)
        assert len(list(pieces.glob("*.arrow"))) >= kept + 3
        kept = len(list(pieces.glob("*.arrow")))
    finish(launch("changing", tasks, ranks=2))
    assert content(tmp_path / "changing") == content(tmp_path / "one")


@pytest.fixture
def stage(tiny_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    """Run stages/collect.py in an empty workspace with a small train split; returns its status."""
    monkeypatch.chdir(tmp_path)
    write_tasks(tmp_path / "data/tasks/layout/train.jsonl", make_tasks(12))
    (tmp_path / "params.yaml").write_text(
        f"launch: {{processes: 1}}\nmodel: {{sender: {tiny_checkpoint}}}\n"
        "collect: {batch_size: 4, max_new_tokens: 8, tasks: 10}\n"
    )
    spec = spec_from_file_location("collect_stage", ROOT / "stages" / "collect.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)

    def call(*arguments: str) -> int:
        with pytest.raises(SystemExit) as ended:
            module.main.main(list(arguments), prog_name="collect")
        return ended.value.code

    return call


@pytest.mark.slow
def test_the_stage_writes_store_and_metrics(stage: Stage, tmp_path: Path):
    assert stage() == 0
    store = LatentStore(tmp_path / "data/latents/layout/train")
    metrics = read_json(tmp_path / "metrics/collect/layout-train.json")
    assert len(store) == metrics["messages"] == 10
    names = {"messages", "rows", "mean_length", "finished", "failed", "plan_exact"}
    assert set(metrics) == names


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--sender-path", "./missing"], "model path './missing' does not exist"),
        (["--split", "valid"], "valid.jsonl: no such file"),
        (["--split", "broken"], "broken.jsonl, line 2: not valid JSON"),
        (["--split", "empty"], "the split is empty"),
        (["--store-dtype", "float8"], "collect.store_dtype: expected one of float16, float32"),
        (["--temprature", "1"], "No such option"),
    ],
)
def test_a_mistake_is_one_line_and_status_two(
    stage: Stage,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    complaint: str,
):
    folder = tmp_path / "data/tasks/layout"
    lines = (folder / "train.jsonl").read_text().splitlines()
    (folder / "broken.jsonl").write_text(f"{lines[0]}\n{{\n")
    (folder / "empty.jsonl").write_text("")
    assert stage(*arguments) == 2
    error = capsys.readouterr().err.strip()
    assert complaint in error
    assert "\n" not in error
    assert not (tmp_path / "data/latents").exists()
    assert not (tmp_path / "metrics").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--output-dir", "params.yaml/store"], "Not a directory"),
        (["--output-dir", "params.yaml"], "exists and is not a latent store"),
        (["--prompt-template", "Plan!"], "no {task}"),
    ],
)
def test_a_mistake_found_after_loading_is_one_line_too(
    stage: Stage, capsys: pytest.CaptureFixture[str], arguments: list[str], complaint: str
):
    assert stage(*arguments) == 2
    assert complaint in capsys.readouterr().err.strip().splitlines()[-1]
    assert not Path("metrics").exists()
