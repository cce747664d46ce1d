"""What the words and flags of the earlier scripts stand for, as settings of ours.

A command of theirs keeps its meaning with our script in its place. What a command line says of a
setting always wins; what it leaves unsaid comes from here, and then from params.yaml.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from interlat.config import UserError

MATH_PROMPT = """\
You plan how a problem is solved; another model will solve it, guided by your plan.
Describe the route in a few numbered steps: what to look at, which ideas or theorems to use, in \
which order, and what to check at the end.
Write the plan only. Do not carry out a calculation, do not put in the problem's numbers, do not \
repeat a worked solution, and never state the answer.

Problem: {question}"""

_SAMPLED = {
    "collect.do_sample": "true",
    "collect.max_new_tokens": "1500",
    "collect.top_p": "0.9",
    "collect.top_k": "50",
}
TASKS: Mapping[str, Mapping[str, str]] = {
    "alfworld": {**_SAMPLED, "collect.temperature": "0.7"},
    "math": {
        **_SAMPLED,
        "collect.temperature": "0.8",
        "collect.prompt_template": MATH_PROMPT,
        "collect.task_field": "problem",
    },
}
"""What `collect_data.py alfworld` and `collect_data.py math` begin with."""
FIRST_STEPS = {**_SAMPLED, "collect.temperature": "1.2"}
"""What the script that keeps the first steps of a message (`--c`) begins with."""
NEEDLESS = (
    "distributed_backend=",
    "distributed_timeout=",
    "disable_tqdm",
    "flush_every=",
    "init_method=",
    "load_from_disk",
    "local_rank=",
    "no_write_shards",
    "num_workers=",
    "parquet_max_gb=",
    "temp_dir=",
    "world_size=",
    "write_shards",
)
"""Flags of the collection scripts that mean nothing any more; `=` where they have a value."""
_SAMPLING = ("collect.temperature", "collect.top_p", "collect.top_k")


def collection(given: Mapping[str, str], options: dict[str, Any]) -> dict[str, str]:
    """Settings of a collection, dotted key -> text: what is given, and what that implies.

    given: settings that the command line names. options: the stage's other options; `word`,
    `prompt_file` and `distributed` are taken out, and `task` is set to the kind of data.
    Raises UserError for two kinds of data, or two prompts.
    """
    task = options["task"] = _kind_of_data(given, options)
    implied = dict(TASKS.get(task or "", {}))
    if "collect.first_k" in given:
        implied |= FIRST_STEPS
    if any(key in given for key in _SAMPLING):
        implied["collect.do_sample"] = "true"
    if task or options["dataset_path"]:
        implied["collect.tasks"] = "null"  # that limit is the pipeline's
    if options.pop("distributed"):
        implied |= _every_gpu()
    return implied | dict(given) | _prompt(given, options.pop("prompt_file"))


def _kind_of_data(given: Mapping[str, str], options: dict[str, Any]) -> str | None:
    word, task = options.pop("word"), options["task"]
    if word and task and word != task:
        raise UserError(f"{word} and --task {task}: say one of them")
    chosen: str | None = word or task or ("math" if "collect.subjects" in given else None)
    return chosen


def _prompt(given: Mapping[str, str], file: Path | None) -> dict[str, str]:
    """The template in a file, or that of the command line, where `\\n` is typed for a new line."""
    key = "collect.prompt_template"
    if file is None:
        return {key: given[key].replace("\\n", "\n")} if key in given else {}
    if key in given:
        raise UserError("--prompt_file and a prompt on the command line: give one of them")
    try:
        return {key: file.read_text(encoding="utf-8").removesuffix("\n")}
    except FileNotFoundError:
        raise UserError(f"{file}: no such file; --prompt_file wants a prompt as text") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{file}: not UTF-8 text: {error}") from None


def _every_gpu() -> dict[str, str]:
    """One process a GPU; without any, what launch.processes says."""
    import torch

    count = torch.cuda.device_count()
    return {"launch.processes": str(count)} if count else {}
