"""The model card beside a checkpoint: what it is, what it comes from, how to load it.

A README.md with the YAML header that model hubs read. It names models and digests, never paths or
machines, and the same training writes it byte for byte again.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import interlat
from interlat.config import CompressConfig, TrainConfig
from interlat.files import atomic_write_text
from interlat.models.load import public_name

if TYPE_CHECKING:
    from interlat.models.actor import Actor, Sender
    from interlat.models.compressor import Compressor

CARD_FILE = "README.md"
SHOWN = ("loss", "task", "accuracy_own")
CONTRASTS = ("agreement", "js")
"""Values of the last logged step that the card tells; contrasts of an actor that reads latents."""
READS = {
    "latent": "latent messages (a sender's hidden states) between `<bop>` and `<eop>`",
    "text": "a plan in words between `<bop>` and `<eop>`",
    "cot": "a plan in words, in the prompt",
    "none": "nothing but its task",
}
TEMPLATE = """\
---
library_name: interlat
pipeline_tag: text-generation
tags:
- interlat
- latent-communication
{% if "/" in start %}
base_model: {{ start | tojson }}
{% endif %}
---

# {{ name }}

An actor trained with interlat {{ version }} (arXiv 2511.09149). At the end of the first user turn
it reads {{ reads }}.

| | |
|---|---|
| start | {{ start or "random weights" }} |
| architecture | {{ architecture }}, {{ "{:,}".format(parameters) }} parameters, width {{ width }} |
| adapter | {{ adapter }} |
| sender | {{ sender }} |
| training | {{ config.steps }} steps of {{ config.batch_size }} samples, seed {{ seed }} |
{% if kind == "latent" %}
| curriculum | {{ config.curriculum }} |
| separation | weight {{ config.separation_weight }}, margin {{ config.separation_margin }} |
| alignment | KL {{ config.alignment_kl_weight }}, cosine {{ config.alignment_cosine_weight }} |
{% endif %}
{% for name, value in point.items() %}
| {{ name }}, last logged step | {{ "%.4g" | format(value) }} |
{% endfor %}

```python
from pathlib import Path
from interlat.models.actor import Actor

actor = Actor.load(Path("path/to/this/folder"))
```

`python stages/evaluate.py --model_path path/to/this/folder --hidden_source {{ source }}` plays it.
Its success is in the reports of the evaluation, not here: it depends on the games.
"""

STUDENT_SHOWN = ("loss", "task", "task_full", "task_none", "kl", "direction", "agreement")
STUDENT_TEMPLATE = """\
---
library_name: interlat
tags:
- interlat
- latent-communication
{% if "/" in start %}
base_model: {{ start | tojson }}
{% endif %}
---

# student of {{ record.steps }} steps

A student trained with interlat {{ version }} (arXiv 2511.09149, compression). Asked for a plan, it
says nothing: it thinks {{ record.steps }} steps, and their states are its message, \
{{ record.steps }} rows of width {{ record.message_width }}.

| | |
|---|---|
| start | {{ start or "random weights" }} |
| architecture | {{ architecture }}, {{ "{:,}".format(parameters) }} parameters |
| teacher | actor and adapter, weights {{ record.teacher_sha256[:12] }}, frozen |
| stands in for | {{ sender }} |
| training | {{ config.steps }} steps of {{ config.batch_size }} samples, seed {{ seed }} |
| weights | cross-entropy {{ config.cross_entropy_weight }}, KL {{ config.kl_weight }} at \
temperature {{ config.temperature }}, cosine {{ config.cosine_weight }} |
{% for name, value in point.items() %}
| {{ name }}, last logged step | {{ "%.4g" | format(value) }} |
{% endfor %}

```python
from pathlib import Path
from interlat.models.compressor import Compressor

student = Compressor.load(Path("path/to/this/folder"))
```

`python stages/collect.py --compressed --compressor path/to/this/folder` collects its messages.
"""


def write_card(
    folder: Path, actor: "Actor", point: Mapping[str, float], config: TrainConfig, *, seed: int
) -> None:
    """Write the card of a trained actor into its checkpoint's folder.

    point: the last logged values.
    """
    _write(folder, TEMPLATE, _facts(actor, point, config, seed))


def write_student_card(
    folder: Path,
    student: "Compressor",
    point: Mapping[str, float],
    config: CompressConfig,
    *,
    seed: int,
) -> None:
    """Write the card of a trained student into its checkpoint's folder.

    point: the last logged values.
    """
    start, record = student.model.name_or_path, student.record
    facts = {
        "version": interlat.__version__,
        "record": record,
        "start": public_name(start) if start else "",
        "architecture": type(student.model).__name__,
        "parameters": sum(p.numel() for p in student.parameters()),
        "sender": _named(record.sender),
        "config": config,
        "seed": seed,
        "point": {name: point[name] for name in STUDENT_SHOWN if name in point},
    }
    _write(folder, STUDENT_TEMPLATE, facts)


def _write(folder: Path, template: str, facts: Mapping[str, Any]) -> None:
    from jinja2 import Environment, StrictUndefined

    environment = Environment(
        trim_blocks=True, undefined=StrictUndefined, keep_trailing_newline=True
    )
    atomic_write_text(folder / CARD_FILE, environment.from_string(template).render(facts))


def _named(sender: "Sender | None") -> str:
    if sender is None:
        return "not recorded"
    return f"{sender.name}, width {sender.width}, weights {sender.weights_sha256[:12]}"


def _facts(
    actor: "Actor", point: Mapping[str, float], config: TrainConfig, seed: int
) -> dict[str, Any]:
    record, adapter = actor.record, actor.adapter
    start = actor.model.name_or_path
    shown = (*SHOWN, *(CONTRASTS if record.kind == "latent" else ()))
    return {
        "name": f"{record.kind} actor",
        "version": interlat.__version__,
        "reads": READS[record.kind],
        "kind": record.kind,
        "start": public_name(start) if start else "",
        "architecture": type(actor.model).__name__,
        "parameters": sum(p.numel() for p in actor.parameters()),
        "width": actor.width,
        "adapter": f"from width {adapter.config.sender_width}, {adapter.config.heads} heads"
        if adapter
        else "none",
        "sender": _named(record.sender),
        "config": config,
        "seed": seed,
        "point": {name: point[name] for name in shown if name in point},
        "source": {"latent": "data", "none": "none"}.get(record.kind, "text"),
    }
