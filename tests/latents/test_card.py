from pathlib import Path

import pytest
from datasets import Features, load_dataset
from huggingface_hub import DatasetCard
from latents.stores import make_store, some_messages

from interlat.latents.columns import features
from interlat.latents.manifest import CARD
from interlat.latents.merge import merge
from interlat.latents.store import LatentStore


def test_the_hub_reads_its_header(tmp_path: Path):
    store = make_store(tmp_path / "store", some_messages(0, 3))
    header = DatasetCard.load(store.path / CARD).data
    assert header.size_categories == ["n<1K"]
    assert header.pretty_name == "Latent messages of tiny"
    assert "latent-communication" in header.tags
    (config,) = header.configs
    assert config["data_files"] == [{"split": "train", "path": "data.parquet"}]
    assert Features._from_yaml_list(header.dataset_info["features"]) == features(4, "float32")


@pytest.mark.parametrize("table", [True, False])
def test_an_uploaded_folder_is_a_data_set(tmp_path: Path, table: bool):
    stores = [
        make_store(tmp_path / "a", some_messages(0, 2)),
        make_store(tmp_path / "b", some_messages(2, 2)),
    ]
    merge(stores, tmp_path / "both", parquet=table)
    dataset = load_dataset(str(tmp_path / "both"), split="train", cache_dir=str(tmp_path / "cache"))
    store = LatentStore(tmp_path / "both")
    assert dataset.features == features(4, "float32")
    assert dataset["task_id"][:] == store.ids
    assert dataset[3]["hidden_state"] == store[3].hidden_LD.tolist()


def test_it_says_what_made_the_messages(tmp_path: Path):
    work = {"prompt": {"template": "Plan `{task}` | now"}, "generation": {"seed": 7}}
    store = make_store(tmp_path / "store", some_messages(0, 3), failures={"x": "NaN"}, **work)
    card = (store.path / CARD).read_text()
    assert "| 3 | 6 | 4 | float32 | 1 to 3, mean 2.0 | 1 |" in card
    assert "| generation.seed | `7` |" in card
    assert "| prompt.template | `\"Plan '{task}' \\| now\"` |" in card
    assert str(tmp_path) not in card
