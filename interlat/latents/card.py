"""The data set card: README.md of a latent store, which makes an uploaded folder a page on the hub.

Everything in it comes from the manifest, so that it holds no time, path or host name, and the same
collection has the same card. Format: huggingface.co/docs/hub/datasets-cards.
"""

import json
from collections.abc import Mapping
from typing import Any

from jinja2 import Environment, StrictUndefined

from interlat.latents.columns import HIDDEN
from interlat.latents.manifest import DATASET, flattened, work_of

SIZES = {10**3: "n<1K", 10**4: "1K<n<10K", 10**5: "10K<n<100K", 10**6: "100K<n<1M"}
LARGEST = "1M<n<10M"
COLUMNS = {
    "task_id": "the task's id",
    "task": "the text that the model was asked about",
    "plan": "what it replied",
    "n_tokens": "tokens of the reply",
    "finish_reason": "`eos`, or `length` where the reply was cut",
    "task_type": "the question's subject",
    "task_level": "the question's difficulty",
    HIDDEN: "[L, {width}] {dtype}: row l is the final-norm last-layer state that predicts token l",
}
TEMPLATE = """\
---
{{ header }}
---
# Latent messages of {{ model }}

The last-layer hidden states in which a language model chose the tokens of its replies, a message
for each task.

| messages | rows | width | type | rows a message | failed tasks |
|---|---|---|---|---|---|
| {{ messages }} | {{ rows }} | {{ width }} | {{ dtype }} | {{ shortest }} to {{ longest }}, \
mean {{ mean }} | {{ failed }} |

| column | |
|---|---|
{% for name, meaning in columns.items() -%}
| `{{ name }}` | {{ meaning }} |
{% endfor %}
## Load

```python
from datasets import load_dataset, load_from_disk

ds = load_dataset("OWNER/NAME", split="train")  # from the hub
ds = load_from_disk("FOLDER/{{ dataset }}")  # from a copy of this folder
ds[0]["{{ hidden }}"], ds[0]["plan"]  # nested list [L][{{ width }}], text
```
{% if parquet %}
```python
import pandas as pd

pd.read_parquet("FOLDER/{{ parquet }}")
```
{% endif %}
```python
from interlat.latents.store import LatentStore

store = LatentStore("FOLDER")  # or "OWNER/NAME"
store.get(store.ids[0]).hidden_LD  # tensor over the mapped file, no copy
```

## How it was made
{% if merged %}
Merged from {{ merged }} collections; `manifest.json` says what they were.
{% endif %}
| setting | |
|---|---|
{% for key, value in settings.items() -%}
| {{ key }} | `{{ value }}` |
{% endfor %}
`manifest.json` has the size and SHA-256 of every file. Written by interlat.
"""


def dataset_card(manifest: Mapping[str, Any], features: Any) -> str:
    """The card of the store that ``manifest`` describes; features: its ``datasets.Features``."""
    work, totals = work_of(manifest), manifest["totals"]
    shape = {"width": work["d_s"], "dtype": work["dtype"]}
    merged = work.pop("merged", [])
    environment = Environment(undefined=StrictUndefined, keep_trailing_newline=True)
    return environment.from_string(TEMPLATE).render(
        header=_header(manifest, features),
        model=_model(work),
        **shape,
        **totals,
        mean=f"{totals['rows'] / totals['messages']:.1f}",
        failed=len(manifest["failures"]),
        columns={name: COLUMNS[name].format_map(shape) for name in features},
        dataset=DATASET,
        hidden=HIDDEN,
        parquet=manifest.get("parquet", {}).get("file"),
        merged=len(merged),
        settings={key: _cell(value) for key, value in flattened(work).items()},
    )


def _header(manifest: Mapping[str, Any], features: Any) -> str:
    """The YAML that the hub reads, without its fences."""
    from datasets import DatasetInfo
    from datasets.info import DatasetInfosDict
    from huggingface_hub import DatasetCardData

    count = manifest["totals"]["messages"]
    table = manifest.get("parquet", {}).get("file", f"{DATASET}/*.arrow")
    data = DatasetCardData(
        pretty_name=f"Latent messages of {_model(manifest)}",
        size_categories=[next((name for most, name in SIZES.items() if count < most), LARGEST)],
        tags=["interlat", "latent-communication", "hidden-states"],
        configs=[
            {"config_name": "default", "data_files": [{"split": "train", "path": table}]},
        ],
    )
    DatasetInfosDict({"default": DatasetInfo(features=features)}).to_dataset_card_data(data)
    header: str = data.to_yaml()
    return header


def _model(work: Mapping[str, Any]) -> str:
    """The model's name; a store need not have been collected from one."""
    model = work.get("model")
    return str(model["name"] if isinstance(model, Mapping) else model or "a language model")


def _cell(value: Any) -> str:
    """A value as it may stand in a table."""
    return json.dumps(value, ensure_ascii=False).replace("|", "\\|").replace("`", "'")
