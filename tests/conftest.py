"""What every test may lean on: no telemetry, one thread, own runs, a tiny checkpoint."""

from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from interlat.chat import BOP, EOP

SPECIAL = ["<|pad|>", "<|unk|>", "<|im_start|>", "<|im_end|>", BOP, EOP]
WORDS = (
    "user assistant system please provide a general plan to solve this task the is find "
    "take put go open close clean heat cool use examine look in on from with some hot and "
    "then plate mug apple egg lamp book cabinet drawer fridge sinkbasin microwave shelf "
    "desk bed nothing happens you see"
)
TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


@pytest.fixture(autouse=True)
def quiet_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep a test's runs out of the checkout's store and off the network."""
    for name in ("DVC_NO_ANALYTICS", "HF_HUB_OFFLINE"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    for name in ("MLFLOW_RUN_ID", "DVC_EXP_NAME", "DVC_STAGE", "WORLD_SIZE", "RANK"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'runs' / 'mlflow.db'}")


def word_tokenizer() -> PreTrainedTokenizerFast:
    """One token a word of WORDS, a digit or a punctuation mark; ChatML, with <bop> and <eop>."""
    words = [*SPECIAL, *WORDS.split(), *"0123456789.,:;{}"]
    vocabulary = {word: i for i, word in enumerate(words)}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="<|unk|>"))
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Whitespace(),
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.Punctuation(),
        ]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token="<|pad|>",
        unk_token="<|unk|>",
        eos_token="<|im_end|>",
        additional_special_tokens=["<|im_start|>", BOP, EOP],
        chat_template=TEMPLATE,
        padding_side="left",
    )


@pytest.fixture(scope="session")
def tiny_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Qwen2 of width 32 with a word tokenizer; its replies vary in length."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("models") / "tiny"
    tokenizer = word_tokenizer()
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=256,
        initializer_range=0.25,
        tie_word_embeddings=False,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = Qwen2ForCausalLM(config)
        with torch.no_grad():
            model.lm_head.weight[tokenizer.eos_token_id] *= 2.0
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
