"""The actor, on three model families."""

from pathlib import Path

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    GPT2Config,
    LlamaConfig,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    Qwen2Config,
)

from interlat.config import ActorKind, UserError
from interlat.latents.message import Message
from interlat.latents.store import LatentStore
from interlat.latents.writer import LatentWriter
from interlat.models.actor import Actor, ActorRecord, Sender, start_adapter
from interlat.models.adapter import AdapterConfig, CommunicationAdapter

SHAPE = {"vocab_size": 90, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
CONFIGS = {
    "qwen2": Qwen2Config(
        **SHAPE, num_attention_heads=2, num_key_value_heads=1, tie_word_embeddings=True
    ),
    "llama": LlamaConfig(**SHAPE, num_attention_heads=2, num_key_value_heads=2),
    "gpt2": GPT2Config(vocab_size=90, n_embd=32, n_layer=2, n_head=2),
}
IDS_BT = torch.tensor([[7, 8, 9, 10, 11, 12], [13, 14, 15, 16, 17, 18]])
SLOTS_BT = torch.tensor([[0, 1, 1, 0, 0, 0], [0, 0, 1, 0, 0, 0]], dtype=torch.bool)


def build(config: PreTrainedConfig) -> PreTrainedModel:
    torch.manual_seed(0)
    model: PreTrainedModel = AutoModelForCausalLM.from_config(config).eval()
    return model


@pytest.fixture(scope="module")
def tokenizer(tiny_checkpoint: Path) -> PreTrainedTokenizerBase:
    loaded: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(tiny_checkpoint)
    return loaded


def make_actor(tokenizer: PreTrainedTokenizerBase, family: str = "qwen2", width: int = 24) -> Actor:
    model = build(CONFIGS[family])
    adapter = CommunicationAdapter(AdapterConfig(width, 32, heads=4))
    return Actor(model, tokenizer, adapter).eval()


@pytest.mark.parametrize("family", CONFIGS)
def test_reading_tokens_gives_the_models_own_logits(
    tokenizer: PreTrainedTokenizerBase, family: str
) -> None:
    actor = make_actor(tokenizer, family)
    hidden_BTD = actor.hidden_states(actor.embed(IDS_BT))
    torch.testing.assert_close(actor.logits(hidden_BTD), actor.model(IDS_BT).logits)


@pytest.mark.parametrize("family", CONFIGS)
def test_right_padding_changes_no_real_row(tokenizer: PreTrainedTokenizerBase, family: str) -> None:
    actor = make_actor(tokenizer, family)
    longer_BT = torch.nn.functional.pad(IDS_BT, (0, 3), value=5)
    short_BTD = actor.hidden_states(actor.embed(IDS_BT))
    long_BTD = actor.hidden_states(actor.embed(longer_BT))
    torch.testing.assert_close(long_BTD[:, :6], short_BTD, atol=1e-5, rtol=1e-4)


def test_rows_fill_the_slots_in_reading_order(tokenizer: PreTrainedTokenizerBase) -> None:
    actor = make_actor(tokenizer)
    rows_ND = torch.arange(3)[:, None].expand(3, 32).float()
    embeds_BTD = actor.embed(IDS_BT, SLOTS_BT, rows_ND)
    assert embeds_BTD[0, 1:3, 0].tolist() == [0.0, 1.0]
    assert embeds_BTD[1, 2, 0].item() == 2.0
    assert torch.equal(embeds_BTD[~SLOTS_BT], actor.embed(IDS_BT)[~SLOTS_BT])


def test_rows_and_slots_must_be_as_many(tokenizer: PreTrainedTokenizerBase) -> None:
    actor = make_actor(tokenizer)
    for rows in (2, 4):
        with pytest.raises(ValueError, match=f"{rows} message rows for 3 slots"):
            actor.embed(IDS_BT, SLOTS_BT, torch.zeros(rows, 32))


def test_messages_read_together_equal_messages_read_alone(
    tokenizer: PreTrainedTokenizerBase,
) -> None:
    actor = make_actor(tokenizer)
    messages = [torch.randn(n, 24) for n in (5, 1, 0, 8)]
    together = actor.message_rows(messages)
    assert [tuple(rows.shape) for rows in together] == [(5, 32), (1, 32), (0, 32), (8, 32)]
    for rows_LD, message_LD in zip(together, messages, strict=True):
        alone_LD = actor.message_rows([message_LD])[0]
        torch.testing.assert_close(rows_LD, alone_LD, atol=1e-6, rtol=1e-5)
    assert actor.message_rows([]) == []


def test_a_message_of_another_width_is_refused(tokenizer: PreTrainedTokenizerBase) -> None:
    with pytest.raises(ValueError, match=r"shape \[4, 32\], this actor reads \[L, 24\]"):
        make_actor(tokenizer).message_rows([torch.randn(4, 32)])


def test_without_an_adapter_rows_are_taken_as_they_are(
    tokenizer: PreTrainedTokenizerBase,
) -> None:
    actor = Actor(build(CONFIGS["qwen2"]), tokenizer)
    message_LD = torch.randn(4, 32)
    assert torch.equal(actor.message_rows([message_LD])[0], message_LD)


def test_an_adapter_for_another_model_is_refused(tokenizer: PreTrainedTokenizerBase) -> None:
    adapter = CommunicationAdapter(AdapterConfig(24, 64))
    with pytest.raises(ValueError, match=r"rows of width 64, the model reads rows of width 32"):
        Actor(build(CONFIGS["qwen2"]), tokenizer, adapter)


def test_the_adapter_learns_from_what_the_model_says(tokenizer: PreTrainedTokenizerBase) -> None:
    actor = make_actor(tokenizer)
    rows_ND = torch.cat(actor.message_rows([torch.randn(2, 24), torch.randn(1, 24)]))
    hidden_BTD = actor.hidden_states(actor.embed(IDS_BT, SLOTS_BT, rows_ND))
    actor.logits(hidden_BTD[:, -1]).logsumexp(-1).sum().backward()
    assert actor.adapter is not None
    for name, parameter in actor.adapter.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
    assert actor.adapter.projection.output_scale.grad.abs().item() > 0


@pytest.mark.parametrize("family", CONFIGS)
def test_a_saved_actor_says_the_same(
    tokenizer: PreTrainedTokenizerBase, family: str, tmp_path: Path
) -> None:
    actor = make_actor(tokenizer, family).train()
    actor.save(tmp_path)
    loaded = Actor.load(tmp_path)
    assert not any(module.training for module in loaded.modules())
    message_LD = torch.randn(4, 24)
    assert torch.equal(
        loaded.message_rows([message_LD])[0], actor.eval().message_rows([message_LD])[0]
    )
    assert torch.equal(loaded.model(IDS_BT).logits, actor.model(IDS_BT).logits)
    assert loaded.tokenizer.get_vocab() == tokenizer.get_vocab()
    assert not [path for path in tmp_path.iterdir() if path.suffix in (".bin", ".pt", ".pkl")]


def test_a_base_model_is_an_actor_without_an_adapter(tiny_checkpoint: Path) -> None:
    actor = Actor.load(tiny_checkpoint)
    assert actor.adapter is None
    assert actor.sender_width == actor.width == 32


def store_of(path: Path, digest: str | None, width: int = 24) -> LatentStore:
    """A store with one message of the sender with this digest; of nobody with None."""
    model = {"name": "sender", "weights_sha256": digest} if digest else "unknown"
    writer = LatentWriter(path, {"model": model}, width=width, dtype="float16")
    writer.claim()
    writer.write_piece(0, [Message("a", torch.ones(2, width), "find mug", n_tokens=2)])
    writer.publish(1, parquet=False)
    return LatentStore(path)


RECORD = ActorRecord("latent", Sender("sender", "0123456789abcdef", 24), max_message_length=7)


def test_a_checkpoint_says_how_its_actor_was_trained(
    tokenizer: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    actor = make_actor(tokenizer)
    actor.save(tmp_path)
    assert not (tmp_path / "actor.json").exists()
    assert Actor.load(tmp_path).record == ActorRecord()
    actor.record = RECORD
    actor.save(tmp_path)
    assert Actor.load(tmp_path).record == RECORD
    (tmp_path / "actor.json").write_text('{"kind": "latent", "age": 3, "sender": null}')
    with pytest.raises(UserError, match=r"actor\.json is no actor's record"):
        ActorRecord.load(tmp_path)


def test_messages_of_another_sender_are_refused_unless_they_are_wanted(tmp_path: Path) -> None:
    own, other = store_of(tmp_path / "own", "0123456789abcdef"), store_of(tmp_path / "b", "fedc")
    RECORD.check_sender(own, any_sender=False)
    RECORD.check_sender(other, any_sender=True)
    ActorRecord().check_sender(other, any_sender=False)
    with pytest.raises(UserError, match=r"messages of sender \(fedc\), the actor was trained with"):
        RECORD.check_sender(other, any_sender=False)


def test_a_store_that_does_not_say_its_sender_is_taken_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    RECORD.check_sender(store_of(tmp_path / "store", None), any_sender=False)
    assert "does not say whose messages it holds" in caplog.text


def test_training_goes_on_with_the_adapter_of_its_own_sender_only(
    tokenizer: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    actor = make_actor(tokenizer)
    actor.record = RECORD
    actor.save(tmp_path / "actor")
    own, other = store_of(tmp_path / "own", "0123456789abcdef"), store_of(tmp_path / "b", "fedc")
    adapter = start_adapter(tmp_path / "actor", own, any_sender=False)
    assert adapter is not None
    assert actor.adapter is not None
    assert adapter.digest == actor.adapter.digest
    assert start_adapter(tmp_path, own, any_sender=False) is None
    with pytest.raises(UserError, match="or set actor"):
        start_adapter(tmp_path / "actor", other, any_sender=False)


@pytest.mark.parametrize(
    ("kind", "refused"),
    [("latent", []), ("text", ["data", "noised"]), ("cot", ["data"]), ("none", ["data", "text"])],
)
def test_an_actor_is_told_what_it_can_read(kind: ActorKind, refused: list[str]) -> None:
    record = ActorRecord(kind)
    record.check_source("none")
    for source in refused:
        with pytest.raises(UserError, match=f"actor.kind={kind} and cannot be told hidden.source"):
            record.check_source(source)
