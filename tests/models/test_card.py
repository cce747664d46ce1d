"""The model card beside a checkpoint."""

from pathlib import Path

from interlat.config import TrainConfig
from interlat.models.actor import Actor, ActorRecord, Sender
from interlat.models.adapter import AdapterConfig, CommunicationAdapter
from interlat.models.card import write_card
from interlat.models.load import load_causal_lm
from interlat.schema import parse_yaml

POINT = {"loss": 0.25, "task": 0.125, "accuracy_own": 0.5, "step": 12.0, "grad_norm": 3.0}


def card(folder: Path, checkpoint: Path, record: ActorRecord) -> str:
    model, tokenizer = load_causal_lm(str(checkpoint))
    adapter = CommunicationAdapter(AdapterConfig(24, 32)) if record.kind == "latent" else None
    write_card(folder, Actor(model, tokenizer, adapter, record), POINT, TrainConfig(), seed=7)
    return (folder / "README.md").read_text()


def test_it_says_what_the_actor_is_and_where_it_comes_from(
    tiny_checkpoint: Path, tmp_path: Path
) -> None:
    record = ActorRecord("latent", Sender("base", "0123456789abcdef", 24))
    text = card(tmp_path, tiny_checkpoint, record)
    _, header, body = text.split("---\n", 2)
    assert parse_yaml(header, "card") == {
        "library_name": "interlat",
        "pipeline_tag": "text-generation",
        "tags": ["interlat", "latent-communication"],
    }
    assert "| start | tiny |" in body
    assert "| sender | base, width 24, weights 0123456789ab |" in body
    assert "| adapter | from width 24, 8 heads |" in body
    assert "250 steps of 24 samples, seed 7" in body
    assert "| accuracy_own, last logged step | 0.5 |" in body
    assert "--hidden_source data" in body
    assert str(tiny_checkpoint.parent) not in text


def test_a_card_of_another_kind_names_no_adapter_and_no_curriculum(
    tiny_checkpoint: Path, tmp_path: Path
) -> None:
    text = card(tmp_path, tiny_checkpoint, ActorRecord("cot"))
    assert "it reads a plan in words, in the prompt." in text
    assert "| adapter | none |" in text
    assert "curriculum" not in text
    assert "--hidden_source text" in text
