"""K steps of thought: the same as without a cache, differentiable through all of them."""

from pathlib import Path

import pytest
import torch
from conftest import word_tokenizer
from torch import Tensor
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from interlat.config import UserError
from interlat.models.compressor import Compressor, CompressorRecord, left_padded

TOKENIZER = word_tokenizer()
SHAPE = {
    "vocab_size": len(TOKENIZER),
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "max_position_embeddings": 32,
    "initializer_range": 0.3,
}
PROMPTS = [[9, 10, 11], [12, 13, 14, 15, 16, 17, 18, 19], [20]]


def build(family: str) -> PreTrainedModel:
    torch.manual_seed(0)
    if family == "qwen2":
        return Qwen2ForCausalLM(Qwen2Config(**SHAPE, num_key_value_heads=1))
    if family == "llama":
        return LlamaForCausalLM(LlamaConfig(**SHAPE))
    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=len(TOKENIZER), n_embd=16, n_layer=2, n_head=2, n_positions=32, resid_pdrop=0
        )
    )


def student(family: str = "qwen2", *, steps: int = 5, width: int = 16, **more: bool) -> Compressor:
    record = CompressorRecord(steps, width, "{task}")
    return Compressor(build(family), TOKENIZER, record, **more).eval()


def uncached(student: Compressor, prompt: list[int]) -> Tensor:
    """The definition: at every step the whole text so far is read again, and alone."""
    embeds = student.model.get_input_embeddings()(torch.tensor([prompt]))
    row = student.start_D.expand(1, 1, -1)
    states = []
    for _ in range(student.steps):
        embeds = torch.cat([embeds, row], dim=1)
        state = student.model.get_decoder()(inputs_embeds=embeds, use_cache=False)[0][:, -1:]
        states.append(state[0])
        row = student.feedback(state)
    rows_KD = torch.cat(states)
    return rows_KD if student.projector is None else student.projector(rows_KD)


@pytest.mark.parametrize("family", ["qwen2", "llama", "gpt2"])
@pytest.mark.parametrize("checkpointing", [False, True])
def test_cached_steps_equal_those_of_an_uncached_forward(family: str, checkpointing: bool) -> None:
    """Published: with caches or checkpointing later steps see a part of the context, or nothing."""
    thinker = student(family, width=12, checkpointing=checkpointing)
    together = thinker(*left_padded(PROMPTS))
    assert together.shape == (3, 5, 12)
    for message_KD, prompt in zip(together, PROMPTS, strict=True):
        torch.testing.assert_close(message_KD, uncached(thinker, prompt), rtol=0, atol=2e-6)


def test_every_step_sees_the_whole_context() -> None:
    thinker = student()
    other = [[30, *prompt[1:]] for prompt in PROMPTS]
    changed = thinker(*left_padded(PROMPTS)) - thinker(*left_padded(other))
    assert (changed.abs().amax(dim=-1) > 1e-4).all()


@pytest.mark.parametrize("checkpointing", [False, True])
def test_gradients_equal_finite_differences(checkpointing: bool) -> None:
    """Of GPT-2: the norms of the other families compute in float32, whatever their weights are."""
    thinker = student("gpt2", width=12, checkpointing=checkpointing).double()
    padded = left_padded(PROMPTS)
    generator = torch.Generator().manual_seed(1)
    weight = torch.randn(3, 5, 12, generator=generator, dtype=torch.float64)
    parameters = list(thinker.parameters())
    (thinker(*padded) * weight).sum().backward()

    def moved(distance: float, directions: list[Tensor]) -> float:
        with torch.no_grad():
            for parameter, direction in zip(parameters, directions, strict=True):
                parameter.add_(direction, alpha=distance)
            value = float((thinker(*padded) * weight).sum())
            for parameter, direction in zip(parameters, directions, strict=True):
                parameter.sub_(direction, alpha=distance)
        return value

    for chosen in [range(len(parameters)), *([i] for i in range(len(parameters)))]:
        directions = [
            torch.randn(p.shape, generator=generator, dtype=p.dtype) * (i in chosen)
            for i, p in enumerate(parameters)
        ]
        expected = sum(
            float((p.grad * d).sum()) for p, d in zip(parameters, directions, strict=True)
        )
        measured = (moved(1e-6, directions) - moved(-1e-6, directions)) / 2e-6
        assert expected == pytest.approx(measured, rel=1e-6, abs=1e-7)


def test_it_starts_at_the_scale_of_the_embeddings() -> None:
    thinker = student()
    scale = thinker.model.get_input_embeddings().weight.std().item()
    rows = thinker.feedback(thinker(*left_padded(PROMPTS)))
    assert rows.std().item() == pytest.approx(scale, rel=0.2)


def test_a_student_is_the_same_after_saving(tmp_path: Path) -> None:
    thinker = student(width=12)
    thinker.save(tmp_path / "student")
    again = Compressor.load(tmp_path / "student")
    assert again.record == thinker.record
    assert again.digest == thinker.digest
    assert not again.training
    for a, b in zip(again.messages(PROMPTS), thinker.messages(PROMPTS), strict=True):
        assert torch.equal(a, b)
    half = Compressor.load(tmp_path / "student", "bf16")
    assert half.messages(PROMPTS)[0].dtype == torch.bfloat16
    assert not list(tmp_path.rglob("*.bin"))


def test_what_is_no_student_is_refused(tmp_path: Path, tiny_checkpoint: Path) -> None:
    with pytest.raises(UserError, match=r"compressor\.json is missing: is this a student"):
        Compressor.load(tiny_checkpoint)
    folder = tmp_path / "student"
    student().save(folder)
    weights, record = folder / "compressor.safetensors", folder / "compressor.json"
    good = weights.read_bytes()
    weights.write_bytes(b"not tensors")
    with pytest.raises(UserError, match="holds no trained student"):
        Compressor.load(folder)
    weights.write_bytes(good)
    record.write_text(record.read_text().replace('"version": 1', '"version": 2'))
    with pytest.raises(UserError, match="has version 2, this program reads 1"):
        Compressor.load(folder)


def test_fewer_than_one_step_and_prompts_without_room_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 1 step, not 0"):
        student(steps=0)
    thinker = student(steps=5)
    assert thinker.longest_prompt == 27
    assert len(thinker.messages([[9] * 27])[0]) == 5
    for prompt in ([], [9] * 28):
        with pytest.raises(ValueError, match="for 1 to 27"):
            thinker.messages([prompt])
