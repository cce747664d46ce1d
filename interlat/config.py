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
WeightSchedule = Literal["fixed", "anneal", "adaptive"]
LossForm = Literal["clean", "published"]
ActorKind = Literal["latent", "text", "cot", "none"]
Backend = Literal["ddp", "zero2", "zero3", "fsdp2"]
Architecture = Literal["qwen2", "llama"]
StoreDtype = Literal["float16", "float32"]
Precision = Literal["fp32", "bf16"]
Subject = Literal[
    "algebra",
    "counting_and_probability",
    "geometry",
    "intermediate_algebra",
    "number_theory",
    "prealgebra",
    "precalculus",
]


@dataclass(frozen=True)
class LaunchConfig:
    """How a stage is started."""

    processes: int = setting(
        2, "processes a stage starts under torchrun", minimum=1, aliases=("num_gpus",)
    )
    threads: int = setting(1, "CPU threads of each process", minimum=1)


@dataclass(frozen=True)
class TaskConfig:
    """What is played: the environment and its games."""

    name: str = setting("alfworld", "environment, as registered")
    games: str = setting("generated", "`generated`, or the folder of a json_2.1.1 download")
    data: str | None = setting(None, "folder of the environment's own files; null for ours")
    prompt: Literal["plain", "react"] = setting("plain", "style of the first turn's instruction")
    seed: int = setting(7, "seed of the train and valid games", minimum=0)
    final_seed: int = setting(4711, "seed of the final games", minimum=0)
    train_games: int = setting(12000, "games of the train split", minimum=1)
    valid_games: int = setting(120, "games of each valid split", minimum=1)
    final_games: int = setting(400, "games of each final split", minimum=1)
    receptacles: int = setting(20, "receptacles in a room, at most", minimum=2)
    distractors: int = setting(8, "objects or recipes that the task does not need", minimum=0)
    hiding_places: int = setting(6, "receptacles that could hold the target, at least", minimum=1)
    step_limit: int = setting(20, "actions in an episode, at most", minimum=1)
    success_steps: tuple[int, ...] = setting((12, 20), "steps at which success is reported")
    subjects: tuple[Subject, ...] = setting((), "subjects of questions to keep; empty for all")
    levels: tuple[int, ...] = setting(
        (), "levels of questions to keep, 1 to 5; empty for all", minimum=1, maximum=5
    )


@dataclass(frozen=True)
class SenderConfig:
    """What the sender knows."""

    knowledge: Knowledge = setting("layout", "has the sender seen the house?", flag="knowledge")


@dataclass(frozen=True)
class ModelConfig:
    """Which models speak and act: folders or hub ids."""

    sender: str = setting(
        "models/base",
        "the sender's checkpoint",
        flag="sender_path",
        aliases=("model_path", "model_name_or_path"),
    )
    actor: str = setting(
        "models/base",
        "the actor's start checkpoint",
        flag="actor_path",
        aliases=("model", "model_name_or_path"),
    )
    student: str = setting(
        "models/base",
        "start checkpoint of a student that learns to compress",
        flag="student_model_path",
    )
    compressor: str = setting(
        "models/compressor", "the trained student that collection asks with --compressed"
    )
    dtype: Literal["fp32", "bf16", "fp16"] = setting(
        "fp32",
        "weights' type",
        flag="torch_dtype",
        words={"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"},
    )
    revision: str | None = setting(None, "hub revision of both")
    trust_remote_code: bool = setting(False, "run code that a checkpoint brings")


@dataclass(frozen=True)
class BaseConfig:
    """The embedded default's model and its training from scratch."""

    architecture: Architecture = setting("qwen2", "family of the model and of its chat template")
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
    batch_size: int | None = setting(
        256,
        "tasks generated together, at most; null or auto for as many as fit",
        minimum=1,
        words={"auto": None},
    )
    max_new_tokens: int = setting(96, "longest plan in tokens", minimum=1)
    do_sample: bool = setting(False, "sample (else greedy)", negations=("no_sample",))
    temperature: float = setting(0.7, "sampling temperature", above=0.0)
    top_p: float = setting(0.9, "nucleus of the sampling", above=0.0, maximum=1.0)
    top_k: int = setting(50, "tokens to sample from; 0 for all", minimum=0)
    repetition_penalty: float = setting(1.0, "repetition penalty", above=0.0)
    num_beams: int = setting(1, "beams; a message is one reply, so only 1", minimum=1)
    max_hidden_states: int = setting(10000, "rows kept of a message, the last ones", minimum=1)
    first_k: int | None = setting(
        None, "rows kept of a message, the first ones; null for all", minimum=1, flag="c"
    )
    compressed: bool = setting(False, "ask the trained student for its K steps (not the sender)")
    max_errors: int = setting(0, "tasks that may fail", minimum=0)
    store_dtype: StoreDtype = setting("float16", "type of the stored states")
    parquet: bool = setting(
        True,
        "write data.parquet as well",
        aliases=("write_full",),
        negations=("no_write_full",),
    )
    chat_template: Literal["auto", "none", "qwen"] = setting(
        "auto", "what wraps the prompt: the tokenizer's own template, nothing, or ChatML"
    )
    prompt_template: str = setting(
        "Please provide a general plan to solve this task.\nThe task is: {task}\n{knowledge}",
        "what the sender is asked; {knowledge} is what the sender knows beside the task",
        aliases=("custom_prompt",),
    )
    task_field: str = setting("task", "field of a record that is its task")
    id_field: str = setting("id", "field of a record that is its id; else its row's number")
    conversations_index: int | None = setting(
        None, "entry of a record's conversations that is its task", minimum=0
    )
    subjects: tuple[Subject, ...] = setting((), "subjects of MATH to keep; empty for all")


@dataclass(frozen=True)
class TrainConfig:
    """Training of the actor and its communication adapter."""

    steps: int = setting(250, "optimizer steps", minimum=1)
    epochs: float | None = setting(
        None,
        "passes over the tasks, in place of train.steps; null for none",
        above=0.0,
        aliases=("num_train_epochs",),
    )
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
    separation_schedule: WeightSchedule = setting("fixed", "how the weight of separation goes")
    alignment_kl_weight: float = setting(0.5, "weight of the KL to the plan branch", minimum=0.0)
    alignment_cosine_weight: float = setting(
        0.0, "weight of the cosine to the plan branch", minimum=0.0
    )
    alignment_schedule: WeightSchedule = setting("fixed", "how the weights of alignment go")
    loss_form: LossForm = setting(
        "clean", "alignment and separation as the paper says, or as its code does"
    )
    adapter: bool = setting(True, "put an adapter before the actor (else rows go in as they are)")
    curriculum: Curriculum = setting("anneal", "how plan tokens give way to latents")
    max_message_length: int | None = setting(
        None, "rows of a message that the actor reads, the first ones; null for all", minimum=1
    )
    truncate_share: float = setting(
        0.0, "messages cut at a random length", minimum=0.0, maximum=1.0
    )
    allow_missing: bool = setting(False, "leave out tasks without latents (else an error)")
    none_share: float = setting(0.2, "samples without a message", minimum=0.0, maximum=1.0)
    uninformed_share: float = setting(
        0.1, "samples with an uninformed sender's message", minimum=0.0, maximum=1.0
    )
    mismatched_share: float = setting(
        0.0, "samples with another task's message", minimum=0.0, maximum=1.0
    )
    save_every: int = setting(100, "steps between two checkpoints to resume from", minimum=1)
    log_every: int = setting(10, "steps between two logged points", minimum=1)
    lora_rank: int = setting(
        0, "rank of LoRA on the actor's linear layers; 0 trains all its weights", minimum=0
    )
    lora_alpha: int = setting(32, "LoRA's scale, times its rank", minimum=1)
    lora_dropout: float = setting(0.0, "dropout before LoRA's layers", minimum=0.0, maximum=0.9)
    gradient_checkpointing: bool = setting(
        False, "compute activations twice, to save memory (same losses)"
    )
    backend: Backend = setting("ddp", "how weights and optimizer states lie over the processes")
    validation_share: float = setting(
        0.0, "train tasks held out to validate on", minimum=0.0, maximum=0.5
    )
    validate_every: int = setting(
        50, "steps between two validations; with keep: best also between checkpoints", minimum=1
    )
    patience: int = setting(
        0, "validations without a lower loss after which training ends; 0 for none", minimum=0
    )
    keep: Literal["last", "best"] = setting(
        "last", "actor to keep: of the last step, or of the lowest validation loss"
    )


@dataclass(frozen=True)
class CompressConfig:
    """Training of a student that thinks in K steps, through a frozen actor."""

    K: int = setting(8, "steps of a message", minimum=1)
    steps: int = setting(300, "optimizer steps", minimum=1)
    epochs: float | None = setting(
        None,
        "passes over the tasks, in place of compress.steps; null for none",
        above=0.0,
        aliases=("num_train_epochs",),
    )
    batch_size: int = setting(24, "samples a step, over all processes", minimum=1)
    micro_batches: int = setting(
        1, "passes that each process cuts its part of a step into", minimum=1
    )
    learning_rate: float = setting(1e-3, "rate of the student", above=0.0)
    weight_decay: float = setting(0.01, "weight decay", minimum=0.0)
    warmup_share: float = setting(
        0.03, "steps of linear warm-up", minimum=0.0, maximum=1.0, aliases=("warmup_ratio",)
    )
    decay_share: float = setting(
        0.97, "steps over which the rate falls to zero, at the end", minimum=0.0, maximum=1.0
    )
    gradient_clip: float = setting(1.0, "largest gradient norm", above=0.0)
    precision: Precision = setting("fp32", "arithmetic of the forward pass")
    cross_entropy_weight: float = setting(1.0, "weight of the tokens' loss", minimum=0.0)
    kl_weight: float = setting(1.0, "weight of the KL to the full message", minimum=0.0)
    cosine_weight: float = setting(1.0, "weight of the full message's direction", minimum=0.0)
    temperature: float = setting(4.0, "temperature of the KL", above=0.0)
    projector: bool = setting(
        True, "project a student's rows that are not as wide as the messages (else an error)"
    )
    gradient_checkpointing: bool = setting(
        False, "compute activations twice, to save memory (same losses)"
    )
    validation_share: float = setting(
        0.0,
        "train tasks held out to validate on",
        minimum=0.0,
        maximum=0.5,
        aliases=("eval_ratio",),
    )
    validate_every: int = setting(
        50, "steps between two validations", minimum=1, aliases=("eval_steps",)
    )
    patience: int = setting(
        0,
        "validations without a lower loss after which training ends; 0 for none",
        minimum=0,
        aliases=("early_stopping_patience",),
    )
    keep: Literal["last", "best"] = setting(
        "last", "student to keep: of the last step, or of the lowest validation loss"
    )
    save_every: int = setting(
        100, "steps between two checkpoints to resume from", minimum=1, aliases=("save_steps",)
    )
    log_every: int = setting(
        10, "steps between two logged points", minimum=1, aliases=("logging_steps",)
    )


@dataclass(frozen=True)
class ActorConfig:
    """What the actor reads."""

    kind: ActorKind = setting(
        "latent", "trained to read latents, the plan between markers, or in the prompt, or nothing"
    )
    any_sender: bool = setting(
        False, "read messages of another sender than the one it was trained with (else an error)"
    )


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
    first_k: int | None = setting(None, "rows that reach the actor, at most", minimum=1)
    shorten: Literal["first", "even", "mean"] = setting(
        "first", "which `hidden.first_k` rows: the first, evenly spaced ones, or means of parts"
    )
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
    actor: ActorConfig = ActorConfig()
    train: TrainConfig = TrainConfig()
    compress: CompressConfig = CompressConfig()
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
    task, base, train, collect = params.task, params.base, params.train, params.collect
    if collect.num_beams != 1:
        raise UserError(
            f"collect.num_beams: only 1 is possible, found {collect.num_beams}: a message is what "
            "the sender thought while it spoke one reply; sample with --do_sample instead"
        )
    if not any(name in collect.prompt_template for name in ("{task}", "{question}")):
        raise UserError(
            "collect.prompt_template has no {task} (or {question}), so that the sender would not "
            "see it"
        )
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
    unbounded = train.separation_margin is None and train.separation_weight > 0
    if unbounded and (train.loss_form == "published" or train.separation_schedule == "adaptive"):
        raise UserError(
            "train.separation_margin: expected a number with train.loss_form published or "
            "train.separation_schedule adaptive, found null"
        )
    if (train.keep == "best" or train.patience) and not train.validation_share:
        raise UserError(
            "train.keep: best and train.patience judge by held-out tasks: set "
            "train.validation_share above 0"
        )
    compress = params.compress
    if (compress.keep == "best" or compress.patience) and not compress.validation_share:
        raise UserError(
            "compress.keep: best and compress.patience judge by held-out tasks: set "
            "compress.validation_share above 0"
        )
    for key, course in (("base", base), ("train", train), ("compress", compress)):
        if course.warmup_share + course.decay_share > 1.0:
            raise UserError(
                f"{key}: warmup_share + decay_share must be at most 1, "
                f"found {course.warmup_share + course.decay_share:g}"
            )
    for key, section in (("base", base), ("train", train)):
        shares = section.none_share, section.uninformed_share, section.mismatched_share
        if sum(shares) > 1.0:
            raise UserError(
                f"{key}: none_share + uninformed_share + mismatched_share must be at most 1, "
                f"found {sum(shares):g}"
            )
