import json
import shutil
from pathlib import Path

import pytest
import torch

from interlat.config import UserError
from interlat.models.load import (
    load_causal_lm,
    public_name,
    tokenizer_digest,
    weights_digest,
)


@pytest.fixture
def checkpoint(tiny_checkpoint: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_checkpoint, tmp_path / "copy"))


def test_a_folder_is_loaded_ready_to_speak(tiny_checkpoint: Path):
    model, tokenizer = load_causal_lm(str(tiny_checkpoint))
    assert not model.training
    assert model.dtype == torch.float32
    assert tokenizer.padding_side == "left"
    assert load_causal_lm(str(tiny_checkpoint), "bf16")[0].dtype == torch.bfloat16


def test_a_word_level_tokenizer_stays_one(tiny_checkpoint: Path):
    """AutoTokenizer takes Qwen2's byte-level BPE for it, which loses every word."""
    _, tokenizer = load_causal_lm(str(tiny_checkpoint))
    assert tokenizer.tokenize("find the mug") == ["find", "the", "mug"]


@pytest.mark.parametrize(
    "path", ["./missing", "/no/such/model", "tests/missing", "models/missing", "a/b/c", ""]
)
def test_a_missing_path_is_told_without_asking_the_hub(path: str):
    with pytest.raises(UserError, match=r"model path .* does not exist"):
        load_causal_lm(path)


def test_a_folder_without_a_model_is_refused(tmp_path: Path):
    with pytest.raises(UserError, match=r"no config\.json"):
        load_causal_lm(str(tmp_path))


def test_pickled_weights_are_refused(checkpoint: Path):
    model, _ = load_causal_lm(str(checkpoint))
    torch.save(model.state_dict(), checkpoint / "pytorch_model.bin")
    (checkpoint / "model.safetensors").unlink()
    with pytest.raises(UserError, match="safetensors"):
        load_causal_lm(str(checkpoint))


def test_a_damaged_checkpoint_is_one_sentence(checkpoint: Path):
    weights = checkpoint / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(UserError, match="cannot be loaded"):
        load_causal_lm(str(checkpoint))


def test_code_in_a_checkpoint_is_not_run(checkpoint: Path, tmp_path: Path):
    config = json.loads((checkpoint / "config.json").read_text())
    config |= {"model_type": "own", "auto_map": {"AutoModelForCausalLM": "own.Own"}}
    (checkpoint / "config.json").write_text(json.dumps(config))
    (checkpoint / "own.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    with pytest.raises(UserError, match="cannot be loaded"):
        load_causal_lm(str(checkpoint))
    assert not (tmp_path / "ran").exists()


def test_code_in_a_checkpoint_is_run_when_the_user_says_so(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    for place in ("transformers.dynamic_module_utils", "transformers.utils.hub"):
        monkeypatch.setattr(f"{place}.HF_MODULES_CACHE", str(tmp_path / "modules"))
    config = json.loads((checkpoint / "config.json").read_text())
    own = {"AutoConfig": "own.OwnConfig", "AutoModelForCausalLM": "own.Own"}
    config |= {"model_type": "own", "auto_map": own}
    (checkpoint / "config.json").write_text(json.dumps(config))
    (checkpoint / "own.py").write_text(
        "from transformers import Qwen2Config, Qwen2ForCausalLM\n"
        "class OwnConfig(Qwen2Config):\n    model_type = 'own'\n"
        "class Own(Qwen2ForCausalLM):\n    config_class = OwnConfig\n"
    )
    with pytest.raises(UserError, match=r"brings code of its own; .* with --trust_remote_code"):
        load_causal_lm(str(checkpoint))
    model, _ = load_causal_lm(str(checkpoint), trust_remote_code=True)
    assert type(model).__name__ == "Own"


def test_an_unknown_dtype_lists_the_known(tiny_checkpoint: Path):
    with pytest.raises(UserError, match="fp32, bf16, fp16"):
        load_causal_lm(str(tiny_checkpoint), "fp8")


def test_digests_tell_models_and_tokenizers_apart(tiny_checkpoint: Path):
    model, tokenizer = load_causal_lm(str(tiny_checkpoint))
    again, other = load_causal_lm(str(tiny_checkpoint))
    assert weights_digest(model) == weights_digest(again)
    other(["some text", "longer text than that"], padding=True)  # leaves its mark in the backend
    assert tokenizer_digest(tokenizer) == tokenizer_digest(other)
    with torch.no_grad():
        again.lm_head.weight[0, 0] += 1e-3
    other.chat_template += " "
    assert weights_digest(model) != weights_digest(again)
    assert tokenizer_digest(tokenizer) != tokenizer_digest(other)


def test_the_public_name_has_no_path(tiny_checkpoint: Path):
    assert public_name(str(tiny_checkpoint)) == "tiny"
    assert public_name(f"{tiny_checkpoint}/") == "tiny"
    assert public_name("Qwen/Qwen2.5-0.5B-Instruct") == "Qwen/Qwen2.5-0.5B-Instruct"
