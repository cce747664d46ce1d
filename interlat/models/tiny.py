"""The embedded default's language model: a word-level tokenizer and a from-scratch Qwen2 or Llama.

Made for machines without an accelerator and tasks told in plain English words. Entities
("cabinet 7") are one token each, and the tokenizer's normaliser drops words that carry nothing here
(articles, the engine's boilerplate), so an episode costs about a third of its words. Texts
themselves stay verbatim.

Load it with models/load.py: AutoTokenizer takes every Qwen2 checkpoint's tokenizer for a byte-level
one, whatever its files say, and would lose all words.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import torch
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from interlat.chat import BOP, EOP
from interlat.config import Architecture

PAD, UNKNOWN, USER, ASSISTANT, END = "<|pad|>", "<|unk|>", "<|user|>", "<|assistant|>", "<|end|>"
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    f"{{{{ '{ASSISTANT}' if message['role'] == 'assistant' else '{USER}' }}}}"
    f"{{{{ message['content'] + '{END}' }}}}"
    "{% endfor %}"
    f"{{% if add_generation_prompt %}}{{{{ '{ASSISTANT}' }}}}{{% endif %}}"
)
BEGIN, HEADER, HEADER_END, TURN_END = (
    "<|begin_of_text|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|eot_id|>",
)
LLAMA3_TEMPLATE = (
    f"{{{{ '{BEGIN}' }}}}{{% for message in messages %}}"
    f"{{{{ '{HEADER}' + message['role'] + '{HEADER_END}\n\n' + message['content'] }}}}{TURN_END}"
    "{% endfor %}"
    f"{{% if add_generation_prompt %}}{HEADER}assistant{HEADER_END}\n\n{{% endif %}}"
)


class Dialect(NamedTuple):
    """How a family's tokenizer writes a chat: special tokens after pad and unknown, template, the
    token that ends a turn, and the plain words that the template itself says.
    """

    special: tuple[str, ...]
    template: str
    end: str
    words: tuple[str, ...]


DIALECTS: Mapping[Architecture, Dialect] = {
    "qwen2": Dialect((USER, ASSISTANT, END, BOP, EOP), CHAT_TEMPLATE, END, ()),
    "llama": Dialect(
        (BEGIN, HEADER, HEADER_END, TURN_END, BOP, EOP),
        LLAMA3_TEMPLATE,
        TURN_END,
        ("user", "assistant"),
    ),
}
ENTITY = r"[a-z]+ \d{1,3}(?!\d)"
"""A thing with its number; what is longer is an amount, such as a price, and no thing's number."""
DROPPED = (
    r"you are in the middle of a room\. looking quickly around you, you see",
    r"you arrive at [a-z]+ \d+\.",
    r"you open the [a-z]+ \d+\.",
    r"is open\. in it, you see",
    r", you see|, and|,(?! \d)|(?<! )\.",
    r"please provide a general|to solve this task|the task is|your task is to",
    r"\b(an?|the|some|your|you|is)\b",
    rf"(?<=\d) in(?= {ENTITY})",
)
"""Patterns of text (in lower case) that become no token, in order of application.

A comma before an amount stays, or "1 log, 2 nail" would hold a thing called "log 2". The last one
sets a thing right beside the place that it is in, which makes the place one step of copying; the
decoder says "in" again.
"""


class TinyShape(NamedTuple):
    """Size of the from-scratch model."""

    hidden_size: int
    layers: int
    heads: int
    intermediate_size: int


def build_tokenizer(
    texts: Iterable[str], architecture: Architecture = "qwen2"
) -> PreTrainedTokenizerFast:
    """A tokenizer whose vocabulary is the words of ``texts``, one token an entity.

    architecture: whose special tokens and chat template it has; llama's are those of Llama 3, so
    that the two families number every word differently.
    Every kind of entity gets the numbers 1 to the largest seen for that kind, so that a number that
    the texts happen to skip is still a word.
    """
    dialect = DIALECTS[architecture]
    special = (PAD, UNKNOWN, *dialect.special)
    backend = Tokenizer(models.WordLevel({PAD: 0, UNKNOWN: 1}, unk_token=UNKNOWN))
    backend.normalizer = normalizers.Sequence(
        [normalizers.Lowercase(), *(normalizers.Replace(Regex(p), "") for p in DROPPED)]
    )
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(rf"{ENTITY}|[a-z]+|\d+|[^\s\w]"), "isolated"),
            pre_tokenizers.Split(Regex(r"^\s+$|^\s+|\s+$"), "removed"),
        ]
    )
    backend.decoder = decoders.Sequence(
        [
            decoders.Replace(Regex("$"), " "),
            decoders.Fuse(),
            decoders.Replace(Regex(rf"(?<=\d) (?={ENTITY})"), " in "),
            decoders.Replace(Regex(" $"), ""),
        ]
    )
    vocabulary = _vocabulary(backend, [*texts, *dialect.words], special)
    backend.model = models.WordLevel(vocabulary, unk_token=UNKNOWN)
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=backend,
        pad_token=PAD,
        unk_token=UNKNOWN,
        eos_token=dialect.end,
        additional_special_tokens=[token for token in dialect.special if token != dialect.end],
        chat_template=dialect.template,
        padding_side="left",
        clean_up_tokenization_spaces=False,
    )


def _vocabulary(backend: Tokenizer, texts: Iterable[str], special: Iterable[str]) -> dict[str, int]:
    words: set[str] = set()
    for text in dict.fromkeys(texts):
        normal = backend.normalizer.normalize_str(text)
        words.update(word for word, _ in backend.pre_tokenizer.pre_tokenize_str(normal))
    numbers: dict[str, int] = {}
    for word in words:
        kind, _, number = word.partition(" ")
        if number:
            numbers[kind] = max(numbers.get(kind, 0), int(number))
    entities = {f"{kind} {i + 1}" for kind, most in numbers.items() for i in range(most)}
    plain = sorted(word for word in words if " " not in word)
    return {word: i for i, word in enumerate([*special, *plain, *sorted(entities)])}


def build_model(
    tokenizer: PreTrainedTokenizerFast,
    shape: TinyShape,
    *,
    seed: int,
    architecture: Architecture = "qwen2",
) -> Qwen2ForCausalLM | LlamaForCausalLM:
    """A model with random weights; an entity's embedding starts as that of its kind + its number.

    So "cabinet 7" is near both "cabinet" and all else that is number 7 before any training.
    """
    torch.manual_seed(seed)
    settings = {
        "vocab_size": len(tokenizer),
        "hidden_size": shape.hidden_size,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.heads,
        "intermediate_size": shape.intermediate_size,
        "max_position_embeddings": 2048,
        "tie_word_embeddings": True,
        "pad_token_id": tokenizer.pad_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "bos_token_id": None,
    }
    model: Qwen2ForCausalLM | LlamaForCausalLM
    if architecture == "llama":
        model = LlamaForCausalLM(LlamaConfig(**settings))
    else:
        model = Qwen2ForCausalLM(Qwen2Config(**settings))
    _compose_entities(model.model.embed_tokens.weight, tokenizer)
    return model


@torch.no_grad()
def _compose_entities(weight_VD: torch.Tensor, tokenizer: PreTrainedTokenizerFast) -> None:
    vocabulary = tokenizer.get_vocab()
    scale = weight_VD.std()
    parts: dict[str, torch.Tensor] = {}

    def part(name: str) -> torch.Tensor:
        """The plain word's own row where it is a word, else a new random row of the same scale."""
        if name not in parts:
            row = vocabulary.get(name)
            fresh = torch.randn(weight_VD.shape[1]) * scale
            parts[name] = fresh if row is None else weight_VD[row].clone()
        return parts[name]

    for word, row in sorted(vocabulary.items()):
        kind, _, number = word.partition(" ")
        if number.isdigit():
            weight_VD[row] = part(kind) + part(number)
