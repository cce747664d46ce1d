"""Every setting of every stage: params.yaml as frozen dataclasses.

The only module that reads params.yaml. What a value may be is said here, by type and bounds;
`schema.py` checks it. Defaults are those of the embedded default, as in params.yaml.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from interlat.schema import UserError as UserError
from interlat.schema import build, from_text, place, read_yaml, setting, settings

Scalar = str | int | float | bool | None
Knowledge = Literal["layout", "none"]
Source = Literal["data", "text", "none", "random_other", "white_noise", "noised"]
Condition = Literal["data", "text", "none", "random_other", "white_noise", "noised", "uninformed"]
Curriculum = Literal["plan_first", "latents_first", "anneal", "none"]
StoreDtype = Literal["float16", "float32"]
Precision = Literal["fp32", "bf16"]


@dataclass(frozen=True)
class LaunchConfig:
    """How a stage is started."""

    processes: int = setting(2, "processes a stage starts under torchrun", minimum=1)
    threads: int = setting(1, "CPU threads of each process", minimum=1)


@dataclass(frozen=True)
class TaskConfig:
    """What is played: the environment and its games."""

    name: str = setting("alfworld", "environment, as registered")
    games: str = setting("generated", "`generated`, or the folder of a json_2.1.1 download")
    prompt: Literal["plain", "react"] = setting("plain", "style of the first turn's instruction")
    seed: int = setting(7, "seed of the train and valid games", minimum=0)
    final_seed: int = setting(4711, "seed of the final games", minimum=0)
    train_games: int = setting(12000, "games of the train split", minimum=1)
    valid_games: int = setting(120, "games of each valid split", minimum=1)
    final_games: int = setting(400, "games of each final split", minimum=1)
    receptacles: int = setting(20, "receptacles in a room, at most", minimum=2)
    distractors: int = setting(8, "objects that the task does not need", minimum=0)
    hiding_places: int = setting(6, "receptacles that could hold the target, at least", minimum=1)
    step_limit: int = setting(20, "actions in an episode, at most", minimum=1)
    success_steps: tuple[int, ...] = setting((12, 20), "steps at which success is reported")


@dataclass(frozen=True)
class SenderConfig:
    """What the sender knows."""

    knowledge: Knowledge = setting("layout", "has the sender seen the house?", flag="knowledge")


@dataclass(frozen=True)
class ModelConfig:
    """Which models speak and act: folders or hub ids."""

    sender: str = setting("models/base", "the sender's checkpoint", flag="sender_path")
    actor: str = setting("models/base", "the actor's start checkpoint", flag="actor_path")
    dtype: Literal["fp32", "bf16", "fp16"] = setting("fp32", "weights' type", flag="torch_dtype")
    revision: str | None = setting(None, "hub revision of both")


@dataclass(frozen=True)
class BaseConfig:
    """The embedded default's model and its training from scratch."""

    hidden_size: int = setting(128, "width of the model", minimum=8)
    layers: int = setting(3, "transformer layers", minimum=1)
    heads: int = setting(2, "attention heads", minimum=1)
    intermediate_size: int = setting(256, "width of the feed-forward layers", minimum=8)
    steps: int = setting(800, "optimizer steps", minimum=1)
    sender_batch: int = setting(32, "sender samples a step, over all processes", minimum=1)
    actor_batch: int = setting(48, "actor samples a step, over all processes", minimum=1)
    micro_batches: int = setting(
        2, "passes that each process cuts its part of a step into", minimum=1
    )
    learning_rate: float = setting(4e-3, "Muon's rate, for matrices", above=0.0)
    embedding_learning_rate: float = setting(3e-3, "AdamW's rate, for the rest", above=0.0)
    weight_decay: float = setting(0.01, "weight decay", minimum=0.0)
    warmup_share: float = setting(0.04, "steps of linear warm-up", minimum=0.0, maximum=1.0)
    decay_share: float = setting(
        0.5, "steps over which the rate falls to zero, at the end", minimum=0.0, maximum=1.0
    )
    gradient_clip: float = setting(20.0, "largest gradient norm", above=0.0)
    uninformed_sender_share: float = setting(
        0.125, "sender samples without knowledge", minimum=0.0, maximum=1.0
    )
    none_share: float = setting(0.48, "actor samples without a plan", minimum=0.0, maximum=1.0)
    uninformed_share: float = setting(
        0.125, "actor samples with an uninformed plan", minimum=0.0, maximum=1.0
    )
    mismatched_share: float = setting(
        0.0625, "actor samples with another task's plan", minimum=0.0, maximum=1.0
    )
    precision: Precision = setting("fp32", "arithmetic of the forward pass")
    save_every: int = setting(100, "steps between two checkpoints to resume from", minimum=1)
    log_every: int = setting(20, "steps between two logged points", minimum=1)


@dataclass(frozen=True)
class CollectConfig:
    """How the sender speaks and how its messages are stored."""

    tasks: int | None = setting(3000, "train tasks to collect; null for all", minimum=1)
    batch_size: int = setting(256, "tasks generated together", minimum=1)
    max_new_tokens: int = setting(96, "longest plan in tokens", minimum=1)
    do_sample: bool = setting(False, "sample (else greedy)")
    temperature: float = setting(0.7, "sampling temperature", above=0.0)
    top_p: float = setting(0.9, "nucleus of the sampling", above=0.0, maximum=1.0)
    top_k: int = setting(50, "tokens to sample from; 0 for all", minimum=0)
    repetition_penalty: float = setting(1.0, "repetition penalty", above=0.0)
    max_hidden_states: int = setting(10000, "rows kept of a message, the last ones", minimum=1)
    store_dtype: StoreDtype = setting("float16", "type of the stored states")
    prompt_template: str = setting(
        "Please provide a general plan to solve this task.\nThe task is: {task}\n{knowledge}",
        "what the sender is asked; {knowledge} is what the sender knows beside the task",
    )


@dataclass(frozen=True)
class TrainConfig:
    """Training of the actor and its communication adapter."""

    steps: int = setting(250, "optimizer steps", minimum=1)
    batch_size: int = setting(24, "samples a step, over all processes", minimum=1)
    micro_batches: int = setting(
        1, "passes that each process cuts its part of a step into", minimum=1
    )
    learning_rate: float = setting(1e-3, "rate of the actor's own weights", above=0.0)
    adapter_learning_rate: float = setting(3e-3, "rate of the adapter", above=0.0)
    weight_decay: float = setting(0.01, "weight decay", minimum=0.0)
    warmup_share: float = setting(0.03, "steps of linear warm-up", minimum=0.0, maximum=1.0)
    decay_share: float = setting(
        0.97, "steps over which the rate falls to zero, at the end", minimum=0.0, maximum=1.0
    )
    gradient_clip: float = setting(1.0, "largest gradient norm", above=0.0)
    precision: Precision = setting("fp32", "arithmetic of the forward pass")
    heads: int = setting(4, "attention heads of the adapter", minimum=1)
    dropout: float = setting(0.0, "dropout of the adapter", minimum=0.0, maximum=0.9)
    separation_weight: float = setting(0.5, "weight of the separation loss", minimum=0.0)
    separation_margin: float | None = setting(
        0.3,
        "hinge on the divergence, in nats; null for none",
        above=0.0,
        maximum=round(math.log(2), 6),
    )
    alignment_kl_weight: float = setting(0.5, "weight of the KL to the plan branch", minimum=0.0)
    alignment_cosine_weight: float = setting(
        0.0, "weight of the cosine to the plan branch", minimum=0.0
    )
    curriculum: Curriculum = setting("anneal", "how plan tokens give way to latents")
    none_share: float = setting(0.2, "samples without a message", minimum=0.0, maximum=1.0)
    uninformed_share: float = setting(
        0.1, "samples with an uninformed sender's message", minimum=0.0, maximum=1.0
    )
    mismatched_share: float = setting(
        0.0, "samples with another task's message", minimum=0.0, maximum=1.0
    )
    save_every: int = setting(100, "steps between two checkpoints to resume from", minimum=1)
    log_every: int = setting(10, "steps between two logged points", minimum=1)


@dataclass(frozen=True)
class HiddenConfig:
    """Which message reaches the actor, and in what shape."""

    source: Source = setting("data", "where the message comes from", flag="hidden_source")
    noise_std: float = setting(1.0, "deviation of the noise of `noised`", minimum=0.0)
    prune_keep_ratio: float | None = setting(
        None, "share of rows that pruning keeps", above=0.0, maximum=1.0
    )
    prune_threshold: float | None = setting(None, "importance (deviations) below which rows go")
    prune_min_keep: int = setting(8, "rows that pruning leaves, at least", minimum=1)
    prune_rank: int = setting(16, "directions that measure importance", minimum=1)
    truncate_last_percent: float = setting(
        0.0, "share of rows cut from the end, percent", minimum=0.0, maximum=99.99
    )
    first_k: int | None = setting(None, "rows kept from the start", minimum=1)
    key_field: str = setting("task_id", "store column to look up by", flag="hidden_key_field")
    lookup_field: Literal["auto", "task_id", "state_history_2"] = setting(
        "auto", "what is looked up", flag="hidden_lookup_field"
    )


@dataclass(frozen=True)
class EvaluateConfig:
    """How episodes are played."""

    splits: tuple[str, ...] = setting(("valid_seen", "valid_unseen"), "splits to play")
    batch_size: int = setting(120, "episodes in lockstep", minimum=1)
    max_new_tokens: int = setting(16, "longest reply in tokens", minimum=1)
    temperature: float = setting(0.0, "sampling temperature; 0 for greedy", minimum=0.0)
    env_workers: int = setting(2, "processes that host environments; 0 for none", minimum=0)
    seed: int = setting(0, "seed of messages and sampling", minimum=0)


@dataclass(frozen=True)
class AblateConfig:
    """The fixed list of controls."""

    conditions: tuple[Condition, ...] = setting(get_args(Condition), "conditions to compare")


@dataclass(frozen=True)
class TrackingConfig:
    """Where MLflow keeps the runs."""

    experiment: str = setting("interlat", "MLflow experiment")
    uri: str | None = setting(None, "MLflow store; null for mlflow.db in the main workspace")


@dataclass(frozen=True)
class Params:
    """Everything in params.yaml."""

    seed: int = setting(1, "seed of initialisation and training", minimum=0)
    launch: LaunchConfig = LaunchConfig()
    task: TaskConfig = TaskConfig()
    sender: SenderConfig = SenderConfig()
    model: ModelConfig = ModelConfig()
    base: BaseConfig = BaseConfig()
    collect: CollectConfig = CollectConfig()
    train: TrainConfig = TrainConfig()
    hidden: HiddenConfig = HiddenConfig()
    evaluate: EvaluateConfig = EvaluateConfig()
    ablate: AblateConfig = AblateConfig()
    tracking: TrackingConfig = TrackingConfig()


def load_params(
    path: Path = Path("params.yaml"), overrides: Mapping[str, str] | None = None
) -> Params:
    """Read params.yaml, lay `overrides` (dotted key -> text, as on a command line) over it, check.

    Keys that the file leaves out have the dataclass's default.
    Raises UserError for a missing or malformed file and for every bad key or value.
    """
    tree = read_yaml(path)
    for key, text in (overrides or {}).items():
        place(tree, key, from_text(Params, key, text))
    return build_params(tree)


def build_params(tree: Mapping[str, Any]) -> Params:
    """Params from nested mappings, checked. Raises UserError for every bad key or value."""
    params = build(Params, tree)
    _check_relations(params)
    return params


def flat(params: Params) -> dict[str, Scalar]:
    """Every setting as dotted key -> scalar; lists become comma-separated text."""
    leaves = ((key, value) for key, _, value in settings(params))
    return {k: ",".join(map(str, v)) if isinstance(v, tuple) else v for k, v in leaves}


def _check_relations(params: Params) -> None:
    """What no single setting can say."""
    task, base, train = params.task, params.base, params.train
    if max(task.success_steps) > task.step_limit or min(task.success_steps) < 1:
        raise UserError(
            f"task.success_steps: expected steps from 1 to task.step_limit ({task.step_limit}), "
            f"found {list(task.success_steps)}"
        )
    if base.hidden_size % (2 * base.heads):
        raise UserError(
            f"base.heads: expected a divisor of base.hidden_size ({base.hidden_size}) that leaves "
            f"an even width a head, found {base.heads}"
        )
    for key, section in (("base", base), ("train", train)):
        if section.warmup_share + section.decay_share > 1.0:
            raise UserError(
                f"{key}: warmup_share + decay_share must be at most 1, "
                f"found {section.warmup_share + section.decay_share:g}"
            )
        shares = section.none_share, section.uninformed_share, section.mismatched_share
        if sum(shares) > 1.0:
            raise UserError(
                f"{key}: none_share + uninformed_share + mismatched_share must be at most 1, "
                f"found {sum(shares):g}"
            )
