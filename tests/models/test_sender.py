"""What the sender says and which states are kept.

Tolerance between batched, single and teacher-forced states: 1e-5 in float32; of the largest state
for a model whose states go far beyond 1.
"""

from copy import copy
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MambaConfig,
    MambaForCausalLM,
    OPTConfig,
    OPTForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    Qwen2ForCausalLM,
)

from interlat.config import CollectConfig, UserError
from interlat.latents.chance import task_generator
from interlat.models.load import load_causal_lm
from interlat.models.sender import Utterance, choose, encode_prompts, sender_prompt, speak
from interlat.tasks import Task

GREEDY = CollectConfig(max_new_tokens=24)
SAMPLED = replace(GREEDY, do_sample=True, temperature=1.0, top_p=0.95, top_k=30)
TOLERANCE = {"rtol": 0.0, "atol": 1e-5}
PROMPTS = [f"find {'the mug and ' * (i % 5)}plate {i} in cabinet {i % 3}" for i in range(24)]


@pytest.fixture(scope="module")
def sender(tiny_checkpoint: Path) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    return load_causal_lm(str(tiny_checkpoint))


@pytest.fixture(scope="module")
def prompts(sender) -> list[list[int]]:
    return encode_prompts(sender[1], PROMPTS)


def generators(seed: int = 0) -> list[torch.Generator]:
    return [task_generator(seed, prompt, "sender") for prompt in PROMPTS]


@torch.no_grad()
def teacher_forced(model: PreTrainedModel, prompt: list[int], reply: list[int]) -> torch.Tensor:
    states_TD = model.base_model(torch.tensor([prompt + reply])).last_hidden_state[0]
    return states_TD[len(prompt) - 1 : -1]


@pytest.mark.parametrize("config", [GREEDY, SAMPLED, replace(GREEDY, repetition_penalty=1.3)])
def test_a_batch_says_and_keeps_what_each_prompt_alone_does(sender, prompts, config):
    many = speak(*sender, prompts, config, generators=generators())
    assert len({len(utterance.token_ids) for utterance in many}) > 3
    for prompt, generator, utterance in zip(prompts, generators(), many, strict=True):
        (alone,) = speak(*sender, [prompt], config, generators=[generator])
        assert alone.token_ids == utterance.token_ids
        assert (alone.plan, alone.finish_reason) == (utterance.plan, utterance.finish_reason)
        torch.testing.assert_close(utterance.hidden_LD, alone.hidden_LD, **TOLERANCE)


def test_row_l_is_the_final_norm_state_that_predicts_token_l(sender, prompts):
    """The earlier collector dropped the first row; L counts the step that emits the end too."""
    model = sender[0]
    for prompt, utterance in zip(prompts, speak(*sender, prompts, GREEDY), strict=True):
        expected_LD = teacher_forced(model, prompt, utterance.token_ids)
        assert len(utterance.hidden_LD) == len(utterance.token_ids)
        torch.testing.assert_close(utterance.hidden_LD, expected_LD, **TOLERANCE)
        predicted = model.lm_head(utterance.hidden_LD).argmax(dim=-1).tolist()
        assert predicted == utterance.token_ids


def test_greedy_tokens_and_states_are_those_of_generate(sender, prompts):
    for prompt, utterance in zip(prompts, speak(*sender, prompts, GREEDY), strict=True):
        check_against_generate(sender[0], prompt, utterance)


def test_replies_end_at_the_end_token_or_at_the_limit(sender, prompts):
    end = sender[1].eos_token_id
    utterances = speak(*sender, prompts, GREEDY)
    assert {utterance.finish_reason for utterance in utterances} == {"eos", "length"}
    for utterance in utterances:
        *inner, last = utterance.token_ids
        assert end not in inner
        if utterance.finish_reason == "eos":
            assert last == end
        else:
            assert len(utterance.token_ids) == GREEDY.max_new_tokens
        assert utterance.plan == sender[1].decode(utterance.token_ids, skip_special_tokens=True)


def test_sampling_depends_on_the_seed_and_on_nothing_else(sender, prompts):
    def tokens(order: list[int], seed: int = 0) -> dict[int, list[int]]:
        streams = generators(seed)
        said = speak(
            *sender, [prompts[i] for i in order], SAMPLED, generators=[streams[i] for i in order]
        )
        return {i: utterance.token_ids for i, utterance in zip(order, said, strict=True)}

    forward = tokens(list(range(24)))
    assert tokens(list(reversed(range(24)))) == forward
    assert tokens(list(range(0, 24, 3))) == {i: forward[i] for i in range(0, 24, 3)}
    assert tokens(list(range(24)), seed=1) != forward


def test_sampling_follows_the_model_distribution():
    """20,000 draws of a known distribution, cut to its top three tokens and 90 % of their mass."""
    probability_V = torch.tensor([0.05, 0.5, 0.15, 0.3])
    draws_B = torch.rand(20_000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    logits_BV = probability_V.log().expand(20_000, 4)
    seen_BV = torch.zeros(20_000, 4, dtype=torch.bool)
    config = CollectConfig(do_sample=True, temperature=1.0, top_k=3, top_p=0.8)
    counts_V = choose(logits_BV, seen_BV, config, draws_B).bincount(minlength=4)
    share_V = counts_V / counts_V.sum()
    torch.testing.assert_close(share_V, torch.tensor([0, 0.625, 0, 0.375]), atol=0.015, rtol=0)
    everything = replace(config, top_k=0, top_p=1.0)
    share_V = choose(logits_BV, seen_BV, everything, draws_B).bincount(minlength=4) / 20_000
    torch.testing.assert_close(share_V, probability_V, atol=0.015, rtol=0)


def test_of_equal_scores_the_lower_ids_are_kept():
    """bfloat16 logits are often equal, and ``topk`` takes any of them."""
    generator = torch.Generator().manual_seed(0)
    logits_BV = torch.randint(0, 6, (64, 500), generator=generator).float()
    config = CollectConfig(do_sample=True, temperature=1.0, top_k=7, top_p=1.0)
    kept_BK = logits_BV.sort(dim=-1, descending=True, stable=True).indices[:, :7]
    for i in range(7):
        draws_B = torch.full((64,), (i + 0.5) / 7, dtype=torch.float64)
        assert torch.equal(choose(logits_BV, None, config, draws_B), kept_BK[:, i])


def test_logits_that_are_not_numbers_still_give_a_token():
    logits_BV = torch.full((2, 9), float("nan"))
    config = CollectConfig(do_sample=True, top_k=3)
    draws_B = torch.tensor([0.0, 0.9], dtype=torch.float64)
    assert bool((choose(logits_BV, None, config, draws_B) < 9).all())


@pytest.mark.parametrize("draw", [0.0, 1.0 - 2**-53])
def test_the_ends_of_the_draw_stay_inside_the_kept_tokens(draw: float):
    logits_BV = torch.tensor([[0.0, 5.0, 4.9, -30.0]])
    config = CollectConfig(do_sample=True, temperature=1.0, top_k=0, top_p=0.9)
    seen_BV = torch.zeros(1, 4, dtype=torch.bool)
    token = choose(logits_BV, seen_BV, config, torch.tensor([draw], dtype=torch.float64))
    assert token.tolist() == [1 if draw == 0.0 else 2]


def test_the_repetition_penalty_touches_seen_tokens_only():
    logits_BV = torch.tensor([[2.0, 1.9, -1.0], [-1.0, -1.1, -9.0]])
    seen_BV = torch.tensor([[True, False, False], [True, False, False]])
    config = CollectConfig(repetition_penalty=1.2)
    assert choose(logits_BV, seen_BV, config, None).tolist() == [1, 1]


def test_a_short_context_ends_the_reply(sender, tiny_checkpoint: Path):
    model = Qwen2ForCausalLM.from_pretrained(tiny_checkpoint, max_position_embeddings=16).eval()
    prompt = encode_prompts(sender[1], ["find mug"])[0]
    (utterance,) = speak(model, sender[1], [prompt], replace(GREEDY, max_new_tokens=200))
    assert len(prompt) + len(utterance.token_ids) <= 16
    with pytest.raises(ValueError, match="context of 16"):
        speak(model, sender[1], [prompt * 3], GREEDY)


def test_hooks_do_not_stay_behind(sender, prompts):
    speak(*sender, prompts[:2], GREEDY)
    with pytest.raises(ValueError, match="generator"):
        speak(*sender, prompts[:2], SAMPLED)
    assert not sender[0].lm_head._forward_pre_hooks


SIZES = {"vocab_size": 90, "num_hidden_layers": 2, "num_attention_heads": 2, "hidden_size": 32}
GROUPED = {**SIZES, "intermediate_size": 64, "num_key_value_heads": 1, "head_dim": 16}


@pytest.mark.parametrize(
    "build",
    [
        lambda: LlamaForCausalLM(LlamaConfig(**GROUPED)),
        lambda: Gemma2ForCausalLM(Gemma2Config(**GROUPED, sliding_window=8)),
        lambda: GPTNeoXForCausalLM(GPTNeoXConfig(**SIZES, intermediate_size=64)),
        lambda: GPT2LMHeadModel(GPT2Config(vocab_size=90, n_layer=2, n_head=2, n_embd=32)),
        lambda: OPTForCausalLM(OPTConfig(**SIZES, ffn_dim=64, word_embed_proj_dim=16)),
    ],
    ids=["llama", "gemma2", "gpt_neox", "gpt2", "opt"],
)
def test_other_families_give_the_states_of_generate_and_of_one_pass(build, sender, prompts):
    """Grouped heads; windows and capped logits; post-norms; learned positions; a projection."""
    torch.manual_seed(0)
    model: PreTrainedModel = build().eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight *= 3 if weight.ndim > 1 else 1
    model.generation_config.eos_token_id = list(range(3, 90, 9))
    said = speak(model, sender[1], prompts[:8], GREEDY)
    assert len({len(utterance.token_ids) for utterance in said}) > 1
    for prompt, utterance in zip(prompts[:8], said, strict=True):
        check_against_generate(model, prompt, utterance)


def check_against_generate(
    model: PreTrainedModel, prompt: list[int], utterance: Utterance, tokens: int = 24
) -> None:
    reference = model.generate(
        torch.tensor([prompt]),
        max_new_tokens=tokens,
        do_sample=False,
        output_hidden_states=True,
        return_dict_in_generate=True,
        pad_token_id=0,
    )
    assert reference.sequences[0, len(prompt) :].tolist() == utterance.token_ids
    states_LD = torch.cat([step[-1][0, -1:] for step in reference.hidden_states])
    one_pass_LD = teacher_forced(model, prompt, utterance.token_ids)
    scale = max(1.0, float(states_LD.abs().max()))
    for expected_LD in (states_LD, one_pass_LD):
        torch.testing.assert_close(utterance.hidden_LD / scale, expected_LD / scale, **TOLERANCE)


STORIES = Path(__file__).parents[3] / "shared" / "data" / "stories260K"


@pytest.mark.skipif(not STORIES.is_dir(), reason="needs the pretrained 260K-parameter Llama")
def test_a_pretrained_llama_gives_the_states_of_generate_and_of_one_pass():
    model, tokenizer = load_causal_lm(str(STORIES))
    texts = ["Once upon a time, there was a little cat", "Tom had a red ball. One day", "Hello"]
    prompts = encode_prompts(tokenizer, texts)
    said = speak(model, tokenizer, prompts, replace(GREEDY, max_new_tokens=80))
    assert "Tom saw a big box" in said[0].plan
    for prompt, utterance in zip(prompts, said, strict=True):
        assert utterance.hidden_LD.shape == (len(utterance.token_ids), 64)
        check_against_generate(model, prompt, utterance, tokens=80)


def test_a_model_without_keys_and_values_is_refused(sender, prompts):
    model = MambaForCausalLM(MambaConfig(vocab_size=90, hidden_size=32, num_hidden_layers=2))
    with pytest.raises(UserError, match="MambaForCausalLM keeps no keys and values"):
        speak(model.eval(), sender[1], prompts[:2], GREEDY)


def test_the_first_rows_alone_are_kept_where_asked(sender, prompts):
    whole = speak(*sender, prompts, GREEDY)
    short = speak(*sender, prompts, replace(GREEDY, first_k=5))
    assert min(len(utterance.token_ids) for utterance in whole) < 5
    for kept, all_rows in zip(short, whole, strict=True):
        assert kept.token_ids == all_rows.token_ids
        assert torch.equal(kept.hidden_LD, all_rows.hidden_LD[:5])


def test_an_accepted_model_is_any_causal_language_model(tiny_checkpoint: Path):
    model = AutoModelForCausalLM.from_pretrained(tiny_checkpoint)
    tokenizer = load_causal_lm(str(tiny_checkpoint))[1]
    tokenizer.chat_template = None
    (prompt,) = encode_prompts(tokenizer, ["find mug"])
    assert tokenizer.convert_ids_to_tokens(prompt) == ["find", "mug"]
    assert speak(model.eval(), tokenizer, [prompt], GREEDY)[0].token_ids


def test_a_prompt_is_one_human_turn_ready_for_the_reply(sender):
    (prompt,) = encode_prompts(sender[1], ["find mug"])
    text = "<|im_start|> user find mug <|im_end|> <|im_start|> assistant"
    assert sender[1].convert_ids_to_tokens(prompt) == text.split()


def test_the_wrapping_of_the_prompt_can_be_chosen(sender):
    def words(template: str) -> list[str]:
        (prompt,) = encode_prompts(sender[1], [" find mug "], template)
        return sender[1].convert_ids_to_tokens(prompt)

    chatml = "<|im_start|> user find mug <|im_end|> <|im_start|> assistant"
    assert words("auto") == words("qwen") == chatml.split()
    assert words("none") == ["find", "mug"]


def test_chatml_is_written_for_a_tokenizer_without_template(sender):
    tokenizer = copy(sender[1])
    tokenizer.chat_template = None
    (prompt,) = encode_prompts(tokenizer, ["find {mug}"], "qwen")
    assert tokenizer.convert_ids_to_tokens(prompt)[2:6] == ["find", "{", "mug", "}"]
    assert encode_prompts(tokenizer, ["find"], "auto") == encode_prompts(
        tokenizer, ["find"], "none"
    )


def test_the_template_is_filled_and_braces_are_left_alone():
    task = Task("t", "alfworld", "train", r"solve {x} \1 {task}", knowledge="mug in {knowledge}")
    bare = Task("t", "alfworld", "train", "solve it")
    assert sender_prompt(task, "{a} {task}") == (
        "{a} mug in {knowledge}\n" + r"solve {x} \1 {task}"
    )
    assert sender_prompt(task, "{task}|{knowledge}") == (r"solve {x} \1 {task}|mug in {knowledge}")
    assert sender_prompt(bare, "Plan: {task}") == "Plan: solve it"
    assert sender_prompt(bare, "{knowledge}{task}") == "solve it"
    with pytest.raises(UserError, match=r"no \{task\}"):
        sender_prompt(bare, "Plan: {instruction}")
