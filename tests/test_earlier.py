"""An earlier command line keeps its meaning: its defaults lie under what it says."""

from pathlib import Path
from typing import Any

import pytest

from interlat.config import UserError
from interlat.earlier import MATH_PROMPT, NEEDLESS, collection

COMMANDS = Path(__file__).parent.parent / "docs" / "commands.md"

NOTHING = {
    "word": None,
    "task": None,
    "dataset_path": None,
    "prompt_file": None,
    "distributed": False,
}


def settings(given: dict[str, str] | None = None, **options: Any) -> dict[str, str]:
    found = collection(given or {}, {**NOTHING, **options})
    return {key.removeprefix("collect."): value for key, value in found.items()}


def test_the_pipeline_s_own_command_implies_nothing() -> None:
    assert settings() == {}
    assert settings({"collect.max_new_tokens": "8"}) == {"max_new_tokens": "8"}


@pytest.mark.parametrize("how", ["word", "task"])
def test_a_kind_of_data_brings_its_script_s_sampling(how: str) -> None:
    sampling = {"do_sample": "true", "max_new_tokens": "1500", "top_p": "0.9", "top_k": "50"}
    everything = {"tasks": "null"}
    assert settings(**{how: "alfworld"}) == {**sampling, "temperature": "0.7", **everything}
    assert settings(**{how: "math"}) == {
        **sampling,
        "temperature": "0.8",
        "prompt_template": MATH_PROMPT,
        "task_field": "problem",
        **everything,
    }


def test_keeping_the_first_steps_brings_the_second_script_s_sampling() -> None:
    found = settings({"collect.first_k": "8"}, dataset_path="d.json")
    assert (found["temperature"], found["max_new_tokens"]) == ("1.2", "1500")
    assert (found["do_sample"], found["first_k"]) == ("true", "8")
    assert settings({"collect.first_k": "8"}, word="alfworld")["temperature"] == "1.2"


def test_what_is_given_wins() -> None:
    given = {"collect.first_k": "8", "collect.temperature": "0.3", "collect.max_new_tokens": "64"}
    assert given.items() <= collection(given, dict(NOTHING)).items()
    assert settings({"collect.tasks": "5"}, dataset_path="d.json")["tasks"] == "5"
    assert settings({"collect.do_sample": "false"}, word="math")["do_sample"] == "false"


@pytest.mark.parametrize("name", ["temperature", "top_p", "top_k"])
def test_a_sampling_flag_turns_sampling_on(name: str) -> None:
    assert settings({f"collect.{name}": "1"})["do_sample"] == "true"
    quiet = {f"collect.{name}": "1", "collect.do_sample": "false"}
    assert settings(quiet)["do_sample"] == "false"


def test_subjects_are_those_of_math() -> None:
    options = dict(NOTHING)
    collection({"collect.subjects": "algebra"}, options)
    assert options == {"task": "math", "dataset_path": None}


def test_the_prompt_comes_from_the_command_line_or_a_file(tmp_path: Path) -> None:
    typed = settings({"collect.prompt_template": r"Plan.\n{task}"})
    assert typed == {"prompt_template": "Plan.\n{task}"}
    file = tmp_path / "prompt.txt"
    file.write_text("Find $\\nu$ in {question} {x}\n")
    assert settings(prompt_file=file) == {"prompt_template": "Find $\\nu$ in {question} {x}"}
    assert settings(prompt_file=file, word="math")["prompt_template"].startswith("Find")


def test_a_contradiction_is_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="math and --task alfworld: say one of them"):
        settings(word="math", task="alfworld")
    with pytest.raises(UserError, match="give one of them"):
        settings({"collect.prompt_template": "{task}"}, prompt_file=tmp_path / "p.txt")
    with pytest.raises(UserError, match=r"p\.txt: no such file"):
        settings(prompt_file=tmp_path / "p.txt")


def test_every_flag_that_is_ignored_is_documented() -> None:
    text = COMMANDS.read_text(encoding="utf-8")
    assert [name for name in NEEDLESS if f"`--{name.removesuffix('=')}`" not in text] == []


def test_the_prompt_for_math_wants_a_plan_and_no_answer() -> None:
    assert MATH_PROMPT.count("{question}") == 1
    assert "never state the answer" in MATH_PROMPT
