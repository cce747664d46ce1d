"""The embedded default's tokenizer and model."""

from pathlib import Path

import torch
from transformers import PreTrainedTokenizerFast

from interlat.chat import render
from interlat.models.load import load_causal_lm
from interlat.models.tiny import UNKNOWN, TinyShape, build_model, build_tokenizer

ROOM = (
    "You are in the middle of a room. Looking quickly around you, you see a cabinet 3, "
    "a cabinet 1, and a fridge 1. Your task is to: put a clean plate in fridge."
)
OPENED = "You open the cabinet 3. The cabinet 3 is open. In it, you see a plate 2, and a mug 1."
PLAN = "first find plate 2 in cabinet 3 and take it . finally put it in fridge 1 ."
SHAPE = TinyShape(hidden_size=32, layers=2, heads=2, intermediate_size=64)


def tokens(tokenizer: PreTrainedTokenizerFast, text: str) -> list[str]:
    """The words that a text becomes."""
    return tokenizer.convert_ids_to_tokens(tokenizer(text, add_special_tokens=False)["input_ids"])


def test_entities_are_one_token_and_boilerplate_is_none() -> None:
    tokenizer = build_tokenizer([ROOM, OPENED, PLAN])
    assert tokens(tokenizer, ROOM) == [
        *("cabinet 3", "cabinet 1", "fridge 1", ":", "put", "clean", "plate", "in", "fridge"),
    ]
    assert tokens(tokenizer, OPENED) == ["cabinet 3", "plate 2", "mug 1"]


def test_plans_and_actions_survive_a_round_trip() -> None:
    tokenizer = build_tokenizer([ROOM, OPENED, PLAN, "go to cabinet 3"])
    for text in (PLAN, "go to cabinet 3"):
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        assert tokenizer.decode(ids) == text


def test_amounts_stay_with_what_they_count() -> None:
    command = "craft 1 belt using 1 calf leather, 12 iron nail"
    tokenizer = build_tokenizer([command])
    words = ["craft 1", "belt", "using 1", "calf", "leather", ",", "12", "iron", "nail"]
    assert tokens(tokenizer, command) == words
    ids = tokenizer(command, add_special_tokens=False)["input_ids"]
    assert tokenizer.decode(ids) == command.replace(",", " ,")


def test_saying_nothing_decodes_to_nothing() -> None:
    tokenizer = build_tokenizer([PLAN])
    assert tokenizer.decode([]) == ""
    assert tokenizer.decode([tokenizer.eos_token_id], skip_special_tokens=True) == ""


def test_numbers_that_the_texts_skip_are_words_too() -> None:
    tokenizer = build_tokenizer([ROOM])
    assert UNKNOWN not in tokens(tokenizer, "go to cabinet 2".removeprefix("go to "))
    assert UNKNOWN in tokens(tokenizer, "cabinet 4")


def test_a_saved_tokenizer_reads_the_same(tmp_path: Path) -> None:
    tokenizer = build_tokenizer([ROOM, OPENED, PLAN])
    build_model(tokenizer, SHAPE, seed=1).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    _, loaded = load_causal_lm(str(tmp_path))
    for text in (ROOM, OPENED, PLAN):
        assert loaded(text)["input_ids"] == tokenizer(text)["input_ids"]
    assert loaded.decode(loaded(PLAN)["input_ids"]) == PLAN
    assert loaded.padding_side == "left"


def test_an_entity_starts_as_its_kind_plus_its_number() -> None:
    tokenizer = build_tokenizer([ROOM, PLAN])
    weight_VD = build_model(tokenizer, SHAPE, seed=1).get_input_embeddings().weight.detach()
    row = tokenizer.get_vocab()
    steps = [
        weight_VD[row[f"{kind} 1"]] - weight_VD[row[f"{kind} 2"]] for kind in ("cabinet", "plate")
    ]
    torch.testing.assert_close(steps[0], steps[1])
    number_one = [
        weight_VD[row[f"{kind} 1"]] - weight_VD[row[kind]] for kind in ("plate", "fridge")
    ]
    torch.testing.assert_close(number_one[0], number_one[1])


def test_the_same_seed_gives_the_same_model() -> None:
    tokenizer = build_tokenizer([ROOM])
    first, same, other = (
        build_model(tokenizer, SHAPE, seed=seed).state_dict() for seed in (1, 1, 2)
    )
    assert all(torch.equal(first[name], same[name]) for name in first)
    assert not torch.equal(first["lm_head.weight"], other["lm_head.weight"])


def test_a_llama_has_its_own_template_and_numbers_words_in_its_own_way() -> None:
    qwen, llama = (build_tokenizer([ROOM, OPENED, PLAN], family) for family in ("qwen2", "llama"))
    turns = [{"from": "human", "value": PLAN}, {"from": "gpt", "value": "go to fridge 1"}]
    rendered = render(llama, turns, message=2)
    words = llama.convert_ids_to_tokens(rendered.token_ids)
    assert words[:4] == ["<|begin_of_text|>", "<|start_header_id|>", "user", "<|end_header_id|>"]
    taught = [word for word, on in zip(words, rendered.loss_mask, strict=True) if on]
    assert taught == [UNKNOWN, UNKNOWN, "fridge 1", "<|eot_id|>"]
    assert len(llama) != len(qwen)
    assert llama.get_vocab()["fridge 1"] != qwen.get_vocab()["fridge 1"]
    assert llama.eos_token == "<|eot_id|>"


def test_a_llama_is_built_saved_and_loaded(tmp_path: Path) -> None:
    tokenizer = build_tokenizer([ROOM, OPENED, PLAN], "llama")
    model = build_model(tokenizer, SHAPE, seed=1, architecture="llama")
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    loaded, read = load_causal_lm(str(tmp_path))
    assert type(loaded).__name__ == "LlamaForCausalLM"
    assert tokens(read, PLAN) == tokens(tokenizer, PLAN)
    assert read.chat_template == tokenizer.chat_template
