"""Every stage takes the same flags, and every mistake is one line and status 2."""

import errno
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from interlat import cli
from interlat.cli import progress_bar, stage_command
from interlat.config import Params, UserError

ROOT = Path(__file__).parent.parent
STAGES = sorted(path.name for path in (ROOT / "stages").glob("*.py"))


def run(function: Callable[..., None], *arguments: str, **form: Any) -> Result:
    sections = ("collect", "sender", "model.sender", "model.dtype", "hidden.source")
    command = stage_command(*sections, **form)(function)
    return CliRunner().invoke(command, ["--params", str(ROOT / "params.yaml"), *arguments])


def show(params: Params) -> None:
    """Print some settings."""
    click.echo(f"{params.collect.max_new_tokens} {params.hidden.source} {params.collect.do_sample}")


@pytest.mark.parametrize(
    "flags",
    [
        ["--max_new_tokens", "7", "--hidden_source", "none", "--do_sample", "true"],
        ["--max-new-tokens", "7", "--hidden-source=none", "--do-sample"],
        ["--set", "collect.max_new_tokens=7", "--set", "hidden.source=none", "--do_sample"],
    ],
)
def test_flags_come_in_snake_and_kebab_case_and_win_over_the_file(flags: list[str]) -> None:
    result = run(show, *flags)
    assert (result.stdout, result.exit_code) == ("7 none True\n", 0)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--temperature", "0"], "collect.temperature: expected a number > 0, found 0"),
        (["--hidden_source", "x"], "hidden.source: expected one of data, text, none"),
        (["--set", "hidden.sauce=1"], "hidden.sauce: unknown key; did you mean hidden.source?"),
        (["--set", "hidden"], "--set hidden: expected KEY=VALUE"),
        (["--temprature", "1"], "No such option"),
        (["--temperature"], "requires an argument"),
        (["--params", "nowhere.yaml"], "nowhere.yaml: no such file"),
        (["stray"], "unexpected extra argument"),
    ],
)
def test_a_user_s_mistake_is_one_line_and_status_2(flags: list[str], message: str) -> None:
    result = run(show, *flags)
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""


def show_more(params: Params) -> None:
    """Print other settings."""
    collect, model = params.collect, params.model
    click.echo(f"{model.sender} {model.dtype} {collect.batch_size} {','.join(collect.subjects)}")


@pytest.mark.parametrize("flag", ["--sender_path", "--model_path", "--model-name-or-path"])
def test_a_flag_has_every_name_that_its_users_know(flag: str) -> None:
    assert run(show_more, flag, "tiny").stdout == "tiny fp32 256 \n"


@pytest.mark.parametrize(
    ("text", "dtype"), [("bf16", "bf16"), ("bfloat16", "bf16"), ("float32", "fp32")]
)
def test_a_value_may_be_said_in_other_words(text: str, dtype: str) -> None:
    result = run(show_more, "--torch_dtype", text, "--batch_size", "auto")
    assert result.stdout == f"models/base {dtype} None \n"


@pytest.mark.parametrize(
    "flags",
    [
        ["--subjects", "algebra", "geometry", "--c", "8"],
        ["--subjects", "algebra", "--subjects", "geometry"],
        ["--c", "8", "--subjects", "algebra,geometry"],
        ["--subjects=algebra", "--subjects=geometry"],
        ["--set", "collect.subjects=[algebra, geometry]"],
    ],
)
def test_a_list_takes_several_words(flags: list[str]) -> None:
    assert run(show_more, *flags).stdout.split()[-1] == "algebra,geometry"


def test_an_unknown_word_of_a_list_is_told_with_the_known() -> None:
    told = run(show_more, "--subjects", "algebra", "algebro").stderr
    assert told.startswith("error: collect.subjects: expected one of algebra, counting_and_prob")
    assert "precalculus, found 'algebro'" in told


@pytest.mark.parametrize(
    ("flags", "sampled"),
    [
        (["--do_sample", "--no-sample"], False),
        (["--no_sample", "--do_sample"], True),
        (["--set", "collect.do_sample=true", "--no_sample"], False),
    ],
)
def test_a_negation_is_a_flag_that_says_false(flags: list[str], sampled: bool) -> None:
    assert run(show, *flags).stdout.split()[-1] == str(sampled)


def test_flags_may_imply_settings_that_others_override() -> None:
    def settle(given: dict[str, str], options: dict[str, Any]) -> dict[str, str]:
        return {"hidden.source": "none", "collect.max_new_tokens": "9", **given}

    result = run(show, "--set", "hidden.source=text", settle=settle)
    assert result.stdout == "9 text False\n"


def test_a_flag_that_means_nothing_any_more_is_taken_and_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    words = ["--temp_dir", "x", "--local-rank", "-1", "--quiet", "--c", "8"]
    retired = ("temp_dir=", "local_rank=", "quiet", "unsaid")
    with caplog.at_level("INFO", logger="interlat"):
        result = run(show, *words, retired=retired)
    assert result.exit_code == 0
    assert caplog.messages == ["not needed here, and ignored: --temp_dir, --local_rank, --quiet"]
    assert "temp_dir" not in run(show, "--help", retired=retired).stdout


@pytest.mark.parametrize(("gpus", "started"), [(0, 4), (1, 1), (8, 4)])
def test_more_processes_than_gpus_are_not_started(
    monkeypatch: pytest.MonkeyPatch, gpus: int, started: int
) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: gpus)
    monkeypatch.setattr(cli.distributed, "relaunch", lambda count: click.echo(count))
    result = run(show, "--set", "launch.processes=4", parallel=True)
    assert result.stdout.split("\n")[0] == str(started)


def test_a_user_error_from_inside_is_one_line() -> None:
    def fail(params: Params) -> None:
        """Fail."""
        raise UserError("models/none: no such\nmodel")

    result = run(fail)
    assert (result.stderr, result.exit_code) == ("error: models/none: no such model\n", 2)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EACCES, errno.EROFS])
def test_a_full_or_forbidden_disk_is_one_line(code: int) -> None:
    def fail(params: Params) -> None:
        """Fail."""
        raise OSError(code, "reason", "data/x")

    result = run(fail)
    assert (result.stderr, result.exit_code) == ("error: data/x: reason\n", 2)


def test_a_defect_of_ours_keeps_its_traceback() -> None:
    def fail(params: Params) -> None:
        """Fail."""
        raise ZeroDivisionError

    assert isinstance(run(fail).exception, ZeroDivisionError)


def test_two_settings_with_one_flag_are_refused() -> None:
    with pytest.raises(ValueError, match="--seed"):
        stage_command("seed", "evaluate.seed")(show)


HEAVY = {
    "torch",
    "transformers",
    "datasets",
    "mlflow",
    "textworld",
    "matplotlib",
    "scipy",
    "pandas",
}
HELP = """
import runpy, sys
sys.argv = [sys.argv[1], "--help"]
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
finally:
    print("modules:", *sys.modules)
"""


@pytest.mark.parametrize("stage", STAGES)
def test_help_is_instant_because_it_imports_nothing_heavy(stage: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", HELP, ROOT / "stages" / stage], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    text, _, modules = done.stdout.partition("modules:")
    assert text.startswith("Usage:")
    assert not HEAVY & set(modules.split())


def test_progress_without_a_terminal_says_when_it_is_done(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level("INFO", logger="interlat"), progress_bar("collect", 4) as advance:
        advance(3)
        advance(1, "success 50 %")
    assert [record.getMessage().split(",")[0] for record in caplog.records] == ["collect 4/4"]
    assert caplog.messages[0].endswith("success 50 %")
