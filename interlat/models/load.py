"""Loading language models, and digests that say which one it was.

Only safetensors weights and the library's own code: nothing that a checkpoint brings is executed,
unless the user says `trust_remote_code`.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)
from transformers.models.auto.tokenization_auto import get_tokenizer_config
from transformers.utils import logging

from interlat.config import UserError

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def load_causal_lm(
    path_or_id: str,
    dtype: str = "fp32",
    revision: str | None = None,
    *,
    trust_remote_code: bool = False,
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """A causal language model in eval mode, on the accelerator where there is one, and its
    tokenizer.

    path_or_id: a folder in HF layout, or a hub id. The tokenizer pads on the left; without a pad
    token of its own it pads with the end-of-sequence token. trust_remote_code: run the code that a
    checkpoint brings; without it such a checkpoint is refused.
    Raises UserError when there is no such model, or it has no safetensors weights.
    """
    if dtype not in DTYPES:
        raise UserError(f"dtype {dtype!r} is unknown; choose one of {', '.join(DTYPES)}")
    _check_folder(path_or_id)
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]  # a stage shows its own
    try:
        tokenizer = _load_tokenizer(path_or_id, revision, trust_remote_code)
        model = AutoModelForCausalLM.from_pretrained(
            path_or_id,
            revision=revision,
            dtype=DTYPES[dtype],
            use_safetensors=True,
            trust_remote_code=trust_remote_code,
        )
    except (OSError, ValueError, SafetensorError) as error:
        reason = " ".join(str(error).split())[:300]
        if "trust_remote_code" in str(error):
            reason = "it brings code of its own; read it, then allow it with --trust_remote_code"
        place = "" if Path(path_or_id).is_dir() else "there is no such folder, and as a hub id: "
        raise UserError(f"model {path_or_id} cannot be loaded: {place}{reason}") from None
    tokenizer.padding_side = "left"
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    device = "cuda" if torch.cuda.is_available() else "cpu"
    return model.to(device).eval(), tokenizer  # type: ignore[arg-type]


def public_name(path_or_id: str) -> str:
    """The model's name without the path to it: a folder's own name, or the hub id."""
    return Path(path_or_id).resolve().name if Path(path_or_id).exists() else path_or_id


def weights_digest(model: PreTrainedModel) -> str:
    """SHA-256 over names, types, shapes and bytes of all weights, in name order."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        digest.update(flat.view(torch.uint8).numpy().data)
    return digest.hexdigest()


def tokenizer_digest(tokenizer: PreTrainedTokenizerBase) -> str:
    """SHA-256 over what turns text into ids: rules, vocabulary, special tokens, template."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    rules = json.loads(backend.to_str()) if backend is not None else tokenizer.get_vocab()
    for momentary in ("padding", "truncation"):
        rules.pop(momentary, None)
    parts = [rules, tokenizer.special_tokens_map, tokenizer.chat_template]
    text = json.dumps(parts, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def _load_tokenizer(
    path_or_id: str, revision: str | None, trust_remote_code: bool
) -> PreTrainedTokenizerBase:
    """The tokenizer that the checkpoint's tokenizer.json describes.

    Where the checkpoint names no particular class, that file is all there is to it; AutoTokenizer
    would take the class of the model's family, and read a word-level vocabulary as byte-level BPE.
    """
    declared = get_tokenizer_config(path_or_id, revision=revision).get("tokenizer_class")
    generic = declared in ("TokenizersBackend", "PreTrainedTokenizerFast")
    kind: Any = PreTrainedTokenizerFast if generic else AutoTokenizer
    tokenizer: PreTrainedTokenizerBase = kind.from_pretrained(
        path_or_id, revision=revision, trust_remote_code=trust_remote_code
    )
    return tokenizer


def _check_folder(path_or_id: str) -> None:
    """Refuse what can only be a path and holds no model, without asking the hub about it.

    models/ is where the stages put theirs, so models/base is never an id.
    """
    path = Path(path_or_id)
    looks_like_hub_id = path_or_id.count("/") <= 1 and path_or_id[:1] not in (".", "/", "~", "")
    looks_like_hub_id &= path.parts[:1] != ("models",)
    if path_or_id and path.is_dir():
        if not (path / "config.json").is_file():
            raise UserError(f"{path_or_id} holds no model: it has no config.json")
    elif not looks_like_hub_id or (path.parent != Path() and path.parent.is_dir()):
        raise UserError(f"model path {path_or_id!r} does not exist")
