"""The embedded default's language model: a word-level tokenizer and a from-scratch Qwen2.

Made for machines without an accelerator and tasks told in plain English words. Entities
("cabinet 7") are one token each, and the tokenizer's normaliser drops words that carry nothing here
(articles, the engine's boilerplate), so an episode costs about a third of its words. Texts
themselves stay verbatim.

Load it with models/load.py: AutoTokenizer takes every Qwen2 checkpoint's tokenizer for a byte-level
one, whatever its files say, and would lose all words.
"""

from collections.abc import Iterable
from typing import NamedTuple

import torch
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from interlat.chat import BOP, EOP

PAD, UNKNOWN, USER, ASSISTANT, END = "<|pad|>", "<|unk|>", "<|user|>", "<|assistant|>", "<|end|>"
SPECIAL = [PAD, UNKNOWN, USER, ASSISTANT, END, BOP, EOP]
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    f"{{{{ '{ASSISTANT}' if message['role'] == 'assistant' else '{USER}' }}}}"
    f"{{{{ message['content'] + '{END}' }}}}"
    "{% endfor %}"
    f"{{% if add_generation_prompt %}}{{{{ '{ASSISTANT}' }}}}{{% endif %}}"
)
ENTITY = r"[a-z]+ \d+"
DROPPED = (
    r"you are in the middle of a room\. looking quickly around you, you see",
    r"you arrive at [a-z]+ \d+\.",
    r"you open the [a-z]+ \d+\.",
    r"is open\. in it, you see",
    r", you see|, and|,|(?<! )\.",
    r"please provide a general|to solve this task|the task is|your task is to",
    r"\b(an?|the|some|your|you|is)\b",
    rf"(?<=\d) in(?= {ENTITY})",
)
"""Patterns of text (in lower case) that become no token, in order of application.

The last one sets a thing right beside the place that it is in, which makes the place one step of
copying; the decoder says "in" again.
"""


class TinyShape(NamedTuple):
    """Size of the from-scratch model."""

    hidden_size: int
    layers: int
    heads: int
    intermediate_size: int


def build_tokenizer(texts: Iterable[str]) -> PreTrainedTokenizerFast:
    """A tokenizer whose vocabulary is the words of ``texts``, one token an entity.

    Every kind of entity gets the numbers 1 to the largest seen for that kind, so that a number that
    the texts happen to skip is still a word.
    """
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
    backend.model = models.WordLevel(_vocabulary(backend, texts), unk_token=UNKNOWN)
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=backend,
        pad_token=PAD,
        unk_token=UNKNOWN,
        eos_token=END,
        additional_special_tokens=[USER, ASSISTANT, BOP, EOP],
        chat_template=CHAT_TEMPLATE,
        padding_side="left",
        clean_up_tokenization_spaces=False,
    )


def _vocabulary(backend: Tokenizer, texts: Iterable[str]) -> dict[str, int]:
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
    return {word: i for i, word in enumerate([*SPECIAL, *plain, *sorted(entities)])}


def build_model(
    tokenizer: PreTrainedTokenizerFast, shape: TinyShape, *, seed: int
) -> Qwen2ForCausalLM:
    """A Qwen2 with random weights; an entity's embedding starts as that of its kind + its number.

    So "cabinet 7" is near both "cabinet" and all else that is number 7 before any training.
    """
    torch.manual_seed(seed)
    model = Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=len(tokenizer),
            hidden_size=shape.hidden_size,
            num_hidden_layers=shape.layers,
            num_attention_heads=shape.heads,
            num_key_value_heads=shape.heads,
            intermediate_size=shape.intermediate_size,
            max_position_embeddings=2048,
            tie_word_embeddings=True,
            pad_token_id=tokenizer.pad_token_id,
            eos_token_id=tokenizer.eos_token_id,
            bos_token_id=None,
        )
    )
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
