"""Conversations to token ids, loss mask and message slots, through the tokenizer's own template.

The one place that knows where a message goes: at the end of the first human turn, between
``<bop>`` and ``<eop>``. Training and evaluation both render here, so a prompt cannot differ
between them.
A conversation is the ShareGPT list of ``{"from": "human" | "gpt", "value": str, "loss"?: bool}``.
Values are stripped of surrounding white space, as templates that trim would do.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from transformers import PreTrainedTokenizerBase

BOP, EOP = "<bop>", "<eop>"
FAMILY_TEMPLATES = {
    "<|start_header_id|>": (
        "{{ bos_token }}{% for message in messages %}"
        "{{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' }}"
        "{{ message['content'] + '<|eot_id|>' }}{% endfor %}"
        "{% if add_generation_prompt %}"
        "{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"
    ),
    "<|im_start|>": (
        "{% for message in messages %}"
        "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
        "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
    ),
}
"""The chat templates of families (Llama 3, ChatML) whose base models have the special tokens that
open a turn, but come without a template.
"""
ROLES = {"human": "user", "gpt": "assistant"}

Turn = Mapping[str, Any]
Conversation = Sequence[Turn]


class PlainText(str):
    """A plan that stands in the prompt's own words, on lines of its own, without markers."""

    __slots__ = ()


Slots = int | str | None
"""Between the markers: n empty slots for latent rows, or a plan text; None leaves them out, and so
does a ``PlainText``, which follows the first human turn's own text."""


class Rendered(NamedTuple):
    """A conversation as the model sees it; ``token_ids`` and ``loss_mask`` have one length, T."""

    token_ids: list[int]
    loss_mask: list[bool]
    slots: range
    """Positions between the markers; empty when there is no message."""


def render(
    tokenizer: PreTrainedTokenizerBase,
    conversation: Conversation,
    *,
    message: Slots,
    add_generation_prompt: bool = False,
) -> Rendered:
    """Render one conversation; see ``render_many``."""
    prompt = add_generation_prompt
    return render_many(tokenizer, [conversation], [message], add_generation_prompt=prompt)[0]


def render_many(
    tokenizer: PreTrainedTokenizerBase,
    conversations: Sequence[Conversation],
    messages: Sequence[Slots],
    *,
    add_generation_prompt: bool = False,
) -> list[Rendered]:
    """Render conversations with one call of the tokenizer.

    Supervised are exactly the tokens of assistant turns with their end-of-turn token, except turns
    marked ``loss: false``. Empty slots hold the pad token's id; rows replace them.
    Raises ValueError for a conversation that does not begin with a human turn, has two turns in a
    row by one side, or contains a marker.
    """
    texts, spans = zip(
        *(
            _layout(tokenizer, conversation, message, add_generation_prompt)
            for conversation, message in zip(conversations, messages, strict=True)
        ),
        strict=True,
    )
    encoded = tokenizer(list(texts), add_special_tokens=False, return_offsets_mapping=True)
    special = frozenset(tokenizer.all_special_ids)
    bop_id, eop_id = marker_ids(tokenizer)
    rendered = []
    for i, message in enumerate(messages):
        token_ids = encoded["input_ids"][i]
        offsets_T2 = np.asarray(encoded["offset_mapping"][i], dtype=np.int64).reshape(-1, 2)
        mask = _loss_mask(token_ids, offsets_T2, spans[i], special)
        rendered.append(_open_slots(token_ids, mask, message, bop_id, eop_id, _filler(tokenizer)))
    return rendered


def continuation(tokenizer: PreTrainedTokenizerBase, conversation: Conversation) -> list[int]:
    """Ids that follow the last assistant turn's end token, through the next generation prompt.

    The conversation ends with a human turn that answers an assistant turn. A cache that holds
    all up to that end token and is fed these ids equals the whole conversation rendered.
    """
    contents = _contents(conversation, None)
    pieces = _scaffold(tokenizer, len(contents), True)
    tail = pieces[-2] + contents[-1] + pieces[-1]
    token_ids: list[int] = tokenizer(tail, add_special_tokens=False)["input_ids"]
    return token_ids[1:] if token_ids[0] in tokenizer.all_special_ids else token_ids


def marker_ids(tokenizer: PreTrainedTokenizerBase) -> tuple[int, int]:
    """Ids of ``<bop>`` and ``<eop>``; ValueError when the tokenizer lacks them."""
    vocabulary = tokenizer.get_added_vocab()
    if BOP not in vocabulary or EOP not in vocabulary:
        raise ValueError(
            f"the tokenizer has no {BOP} and {EOP} tokens; add them with chat.add_markers"
        )
    return vocabulary[BOP], vocabulary[EOP]


def add_markers(tokenizer: PreTrainedTokenizerBase) -> int:
    """Add ``<bop>`` and ``<eop>`` as special tokens; returns how many were new."""
    return int(tokenizer.add_special_tokens({"additional_special_tokens": [BOP, EOP]}, False))


def ensure_template(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Give a tokenizer without chat template that of its family; whether it has one then."""
    if tokenizer.chat_template is None:
        special = set(tokenizer.all_special_tokens) | tokenizer.get_added_vocab().keys()
        known = (template for opening, template in FAMILY_TEMPLATES.items() if opening in special)
        tokenizer.chat_template = next(known, None)
    return tokenizer.chat_template is not None


def _contents(conversation: Conversation, message: Slots) -> list[str]:
    """Stripped values in order, with the markers (and the plan text) at the end of the first."""
    contents = []
    for i, turn in enumerate(conversation):
        if turn["from"] != ("human", "gpt")[i % 2]:
            raise ValueError("a conversation alternates human and gpt turns and begins with human")
        value = str(turn["value"]).strip()
        if BOP in value or EOP in value:
            raise ValueError(f"turn {i} of a conversation contains the marker {BOP} or {EOP}")
        contents.append(value)
    if isinstance(message, PlainText):
        contents[0] = f"{contents[0]}\n{message.strip()}"
    elif message is not None:
        contents[0] += BOP + (message.strip() if isinstance(message, str) else "") + EOP
    return contents


@lru_cache(maxsize=512)
def _scaffold(
    tokenizer: PreTrainedTokenizerBase, turns: int, add_generation_prompt: bool
) -> tuple[str, ...]:
    """The template's own text around ``turns`` alternating contents: turns + 1 pieces."""
    sentinels = [f"\ue000{i}\ue001" for i in range(turns)]
    chat = [
        {"role": ("user", "assistant")[i % 2], "content": text} for i, text in enumerate(sentinels)
    ]
    rendered = tokenizer.apply_chat_template(
        chat, tokenize=False, add_generation_prompt=add_generation_prompt
    )
    text, pieces = str(rendered), []
    for sentinel in sentinels:
        piece, found, text = text.partition(sentinel)
        if not found:
            raise ValueError("the chat template does not render every turn in order")
        pieces.append(piece)
    return (*pieces, text)


def _layout(
    tokenizer: PreTrainedTokenizerBase,
    conversation: Conversation,
    message: Slots,
    add_generation_prompt: bool,
) -> tuple[str, list[tuple[int, int]]]:
    """The rendered text and the character spans of its supervised contents."""
    contents = _contents(conversation, message)
    pieces = _scaffold(tokenizer, len(contents), add_generation_prompt)
    text, spans = [pieces[0]], []
    end = len(pieces[0])
    for turn, content, piece in zip(conversation, contents, pieces[1:], strict=True):
        if turn["from"] == "gpt" and turn.get("loss", True):
            spans.append((end, end + len(content)))
        text += [content, piece]
        end += len(content) + len(piece)
    return "".join(text), spans


def _loss_mask(
    token_ids: list[int],
    offsets_T2: np.ndarray,
    spans: list[tuple[int, int]],
    special: frozenset[int],
) -> list[bool]:
    mask_T = np.zeros(len(token_ids), dtype=bool)
    starts_T = offsets_T2[:, 0]
    for start, end in spans:
        first, last = np.searchsorted(starts_T, [start, end])
        ends_turn = last < len(token_ids) and token_ids[last] in special
        mask_T[first : last + ends_turn] = True
    flags: list[bool] = mask_T.tolist()
    return flags


def _open_slots(
    token_ids: list[int], mask: list[bool], message: Slots, bop_id: int, eop_id: int, filler: int
) -> Rendered:
    if message is None or isinstance(message, PlainText):
        return Rendered(token_ids, mask, range(0))
    start = token_ids.index(bop_id) + 1
    if isinstance(message, str):
        return Rendered(token_ids, mask, range(start, token_ids.index(eop_id, start)))
    token_ids = [*token_ids[:start], *[filler] * message, *token_ids[start:]]
    mask = [*mask[:start], *[False] * message, *mask[start:]]
    return Rendered(token_ids, mask, range(start, start + message))


def _filler(tokenizer: PreTrainedTokenizerBase) -> int:
    filler = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else 0
    return int(filler)
