"""Rendering: markers, supervised tokens and continuations, over the families of chat templates."""

import pytest
from conftest import word_tokenizer
from hypothesis import given
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from interlat.chat import (
    BOP,
    EOP,
    PlainText,
    add_markers,
    continuation,
    ensure_template,
    marker_ids,
    render,
    render_many,
)
from interlat.models.tiny import build_tokenizer

CHATML = (
    "{% if messages[0]['role'] != 'system' %}<|im_start|>system\nplease provide a plan<|im_end|>\n"
    "{% endif %}{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
LLAMA3 = (
    "{% for message in messages %}{% if loop.first %}<|im_start|>{% endif %}"
    "{{ '<|im_start|>' + message['role'] + '\n\n' + message['content'] | trim + '<|im_end|>' }}"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n\n{% endif %}"
)
BARE = (
    "{% for message in messages %}"
    "{{ message['role'] + ' : ' + message['content'] + '<|im_end|>' }}"
    "{% endfor %}{% if add_generation_prompt %}assistant : {% endif %}"
)
EPISODE = [
    {"from": "human", "value": " put some mug in fridge "},
    {"from": "gpt", "value": "go to cabinet 1"},
    {"from": "human", "value": "nothing happens"},
    {"from": "gpt", "value": "take mug 2", "loss": False},
    {"from": "human", "value": "you see"},
    {"from": "gpt", "value": "open fridge"},
]


@pytest.fixture(params=[CHATML, LLAMA3, BARE], ids=["chatml", "llama3", "bare"])
def tokenizer(request: pytest.FixtureRequest) -> PreTrainedTokenizerFast:
    """A tokenizer with one family's template."""
    made = word_tokenizer()
    made.chat_template = request.param
    return made


def test_a_rendered_conversation_is_what_the_template_itself_gives(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    turns = [
        {"role": "user" if t["from"] == "human" else "assistant", "content": t["value"].strip()}
        for t in EPISODE[:5]
    ]
    for prompt in (False, True):
        text = tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=prompt)
        expected = tokenizer(text, add_special_tokens=False)["input_ids"]
        rendered = render(tokenizer, EPISODE[:5], message=None, add_generation_prompt=prompt)
        assert rendered.token_ids == expected
        assert rendered.slots == range(0)


def test_supervised_are_exactly_the_assistant_tokens_and_their_end(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    rendered = render(tokenizer, EPISODE, message=3)
    words = tokenizer.convert_ids_to_tokens(rendered.token_ids)
    supervised = [w for w, taught in zip(words, rendered.loss_mask, strict=True) if taught]
    assert supervised == [
        *("go", "to", "cabinet", "1", "<|im_end|>"),
        *("open", "fridge", "<|im_end|>"),
    ]


def test_a_message_stands_between_markers_at_the_end_of_the_first_human_turn(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    words = tokenizer.convert_ids_to_tokens
    latent = render(tokenizer, EPISODE, message=4)
    text = render(tokenizer, EPISODE, message="go to shelf")
    for rendered, length in ((latent, 4), (text, 3)):
        start, stop = rendered.slots.start, rendered.slots.stop
        assert stop - start == length
        around = [words(rendered.token_ids[i]) for i in (start - 2, start - 1, stop, stop + 1)]
        assert around == ["fridge", BOP, EOP, "<|im_end|>"]
    assert [words(text.token_ids[i]) for i in text.slots] == ["go", "to", "shelf"]
    empty = render(tokenizer, EPISODE, message=0).token_ids
    without = latent.token_ids[: latent.slots.start] + latent.token_ids[latent.slots.stop :]
    assert empty == without


def test_a_plain_plan_follows_the_first_human_turn_in_words(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    told = render(tokenizer, EPISODE, message=PlainText(" go to shelf "))
    by_hand = [{**EPISODE[0], "value": "put some mug in fridge\ngo to shelf"}, *EPISODE[1:]]
    assert told == render(tokenizer, by_hand, message=None)


def test_continuations_add_up_to_the_whole_conversation(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    fed = render(tokenizer, EPISODE[:1], message=2, add_generation_prompt=True).token_ids
    for turns in (3, 5):
        reply = tokenizer(EPISODE[turns - 2]["value"], add_special_tokens=False)["input_ids"]
        fed = [*fed, *reply, end, *continuation(tokenizer, EPISODE[:turns])]
        whole = render(tokenizer, EPISODE[:turns], message=2, add_generation_prompt=True)
        assert fed == whole.token_ids


@given(
    st.lists(st.sampled_from(["go", "to", "mug", "plate", "1", "2", "."]), min_size=1, max_size=9)
)
def test_many_render_as_each_alone(words: list[str]) -> None:
    tokenizer = word_tokenizer()
    conversations = [EPISODE[:3], [{"from": "human", "value": " ".join(words)}]]
    messages = [None, " ".join(words)]
    together = render_many(tokenizer, conversations, messages)
    alone = [
        render(tokenizer, conversation, message=message)
        for conversation, message in zip(conversations, messages, strict=True)
    ]
    assert together == alone


def test_a_base_model_without_a_template_gets_that_of_its_family() -> None:
    chatml = word_tokenizer()
    chatml.chat_template = None
    assert ensure_template(chatml)
    assert render(chatml, EPISODE, message=3) == render(word_tokenizer(), EPISODE, message=3)
    plain = build_tokenizer(["take mug 1"])
    kept = plain.chat_template
    assert ensure_template(plain)
    assert plain.chat_template == kept
    plain.chat_template = None
    assert not ensure_template(plain)


def test_a_llama_base_gets_headers_and_supervises_replies_alone() -> None:
    llama = build_tokenizer(["take mug 1", "go"], "llama")
    expected = render(llama, EPISODE, message=2)
    llama.bos_token, llama.chat_template = "<|begin_of_text|>", None
    assert ensure_template(llama)
    assert render(llama, EPISODE, message=2) == expected


def test_a_conversation_that_cannot_be_rendered_is_refused() -> None:
    tokenizer = word_tokenizer()
    backwards = [EPISODE[1], EPISODE[0]]
    with pytest.raises(ValueError, match="begins with human"):
        render(tokenizer, backwards, message=None)
    forged = [{"from": "human", "value": f"open {BOP} fridge"}]
    with pytest.raises(ValueError, match="marker"):
        render(tokenizer, forged, message=None)


def test_markers_are_added_once_and_are_single_tokens() -> None:
    tokenizer = word_tokenizer()
    assert add_markers(tokenizer) == 0
    bop, eop = marker_ids(tokenizer)
    assert tokenizer(f"go{BOP}{EOP}", add_special_tokens=False)["input_ids"][1:] == [bop, eop]


def test_the_tiny_tokenizer_supervises_the_same_words() -> None:
    tokenizer = build_tokenizer(str(turn["value"]) for turn in EPISODE)
    rendered = render(tokenizer, EPISODE, message=None)
    words = tokenizer.convert_ids_to_tokens(rendered.token_ids)
    taught = [w for w, on in zip(words, rendered.loss_mask, strict=True) if on]
    assert taught == ["go", "to", "cabinet 1", "<|end|>", "open", "fridge", "<|end|>"]
    ends = [i for i, word in enumerate(words) if word == "<|end|>"]
    assert len(ends) == len(EPISODE)
