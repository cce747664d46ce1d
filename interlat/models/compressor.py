"""The compressor: a student that thinks about a task in K steps instead of words.

It reads the sender's prompt, then a learned start vector; the final-norm state z_k of each step is
a row of its message and, through Linear(LayerNorm(z_k)), the input of the next one. Any Hugging
Face causal language model with a key-value cache will do, with a tokenizer of its own; where it is
not as wide as the messages that the actor reads, a projector makes its rows so.
Source: arXiv 2511.09149, compression; what its code gets wrong is in docs/method.md.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple, Self

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from interlat.config import UserError
from interlat.files import atomic_write_bytes, atomic_write_json, read_json
from interlat.models.actor import Sender, embedding_weight
from interlat.models.continued import Part, Reading, positions, read_on
from interlat.models.load import load_causal_lm, weights_digest
from interlat.models.sender import context_length, output_head

WEIGHTS_FILE = "compressor.safetensors"
RECORD_FILE = "compressor.json"
VERSION = 1


@dataclass(frozen=True)
class CompressorRecord:
    """What a student was trained for; ``compressor.json`` in its checkpoint.

    steps: K. message_width: of its messages, d_s. prompt_template, chat_template: how its tasks
    are put, as in collection. sender: whose messages its teacher reads, and it stands in for; None
    where nobody knows. teacher_sha256: digest of that teacher.
    """

    steps: int
    message_width: int
    prompt_template: str
    chat_template: str = "auto"
    sender: Sender | None = None
    teacher_sha256: str = ""

    def __post_init__(self) -> None:
        """Raise ValueError for fewer than one step."""
        if self.steps < 1:
            raise ValueError(f"a message has at least 1 step, not {self.steps}")


class Compressor(nn.Module):
    """A causal language model with a start vector and a way back from its states to its inputs.

    checkpointing: compute activations again in the backward pass, one step at a time. What is held
    for K steps is then a row of keys and values for each, and one step's activations.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        record: CompressorRecord,
        *,
        checkpointing: bool = False,
    ) -> None:
        super().__init__()
        self.model, self.tokenizer, self.record = model, tokenizer, record
        self.checkpointing = checkpointing
        weight_VD = embedding_weight(model)
        width, scale = weight_VD.shape[1], float(weight_VD.detach().float().std())
        if output_head(model).weight.shape[1] != width:
            raise ValueError("the model's states and its embeddings differ in width")
        self.start_D = nn.Parameter(scale * torch.randn(width))
        self.feedback = Feedback(width, scale)
        projects = record.message_width != width
        self.projector = nn.Linear(width, record.message_width) if projects else None
        self.to(device=weight_VD.device, dtype=weight_VD.dtype)

    @property
    def steps(self) -> int:
        """K, the rows of a message."""
        return self.record.steps

    @property
    def device(self) -> torch.device:
        """Where its inputs belong."""
        return embedding_weight(self.model).device

    def forward(self, ids_BT: Tensor, mask_BT: Tensor) -> Tensor:
        """The messages [B, K, d_s] about left-padded prompts; mask_BT is True on real tokens.

        Gradients run through all K steps and the prompt. A message does not depend on the others.
        """
        batch = len(ids_BT)
        prompt_BTD = self.model.get_input_embeddings()(ids_BT)
        row_B1D = self.start_D.to(prompt_BTD.dtype).expand(batch, 1, -1)
        embeds_BTD = torch.cat([prompt_BTD, row_B1D], dim=1)
        mask_BC = torch.cat([mask_BT.bool(), mask_BT.new_ones(batch, self.steps).bool()], dim=1)
        positions_BC = positions(mask_BC)
        states, past = [], list[Part]()
        read, length = 0, embeds_BTD.shape[1]
        for _ in range(self.steps):
            state_B1D, part = self._read(
                embeds_BTD, mask_BC[:, :length], positions_BC[:, read:length], tuple(past)
            )
            states.append(state_B1D)
            past.append(part)
            embeds_BTD = self.feedback(state_B1D)
            read, length = length, length + 1
        thoughts_BKD = torch.cat(states, dim=1)
        return thoughts_BKD if self.projector is None else self.projector(thoughts_BKD)

    @torch.no_grad()
    def messages(self, prompts: Sequence[Sequence[int]]) -> list[Tensor]:
        """A message [K, d_s] on the CPU for each prompt, given as token ids; in one batch.

        Raises ValueError for an empty prompt, or one that leaves no room for K steps.
        """
        room = self.longest_prompt
        for prompt in prompts:
            if not prompt or (room is not None and len(prompt) > room):
                raise ValueError(f"a prompt of {len(prompt)} tokens, for 1 to {room}")
        return list(self(*left_padded(prompts, self.device)).cpu())

    @property
    def longest_prompt(self) -> int | None:
        """Tokens of a prompt that leave room for K steps in the context; None if it has no end."""
        context = context_length(self.model)
        return None if context is None else context - self.steps

    @property
    def digest(self) -> str:
        """SHA-256 of all weights."""
        return hashlib.sha256(weights_digest(self.model).encode() + self._serialized()).hexdigest()

    def save(self, directory: Path) -> None:
        """Write a checkpoint in HF layout: model, tokenizer, what is new beside them, record."""
        self.model.save_pretrained(directory)
        self.tokenizer.save_pretrained(directory)
        atomic_write_bytes(directory / WEIGHTS_FILE, self._serialized())
        atomic_write_json(directory / RECORD_FILE, {"version": VERSION, **asdict(self.record)})

    @classmethod
    def load(cls, directory: Path, dtype: str = "fp32") -> Self:
        """Read a student that ``save`` wrote, in eval mode, on the accelerator where there is one.

        Raises UserError when the folder holds no trained student.
        """
        for name in (RECORD_FILE, WEIGHTS_FILE):
            if not (directory / name).is_file():
                raise UserError(
                    f"{directory / name} is missing: is this a student that stages/compress.py "
                    "trained?"
                )
        model, tokenizer = load_causal_lm(str(directory), dtype)
        fields = dict(read_json(directory / RECORD_FILE))
        version = fields.pop("version", None)
        if version != VERSION:
            raise UserError(
                f"{directory / RECORD_FILE} has version {version}, this program reads {VERSION}"
            )
        try:
            sender = fields.pop("sender")
            record = CompressorRecord(**fields, sender=Sender(**sender) if sender else None)
            student = cls(model, tokenizer, record)
            student._own().load_state_dict(load_file(directory / WEIGHTS_FILE))
        except (KeyError, TypeError, ValueError, RuntimeError, SafetensorError) as error:
            raise UserError(f"{directory} holds no trained student: {error}") from error
        return student.eval()

    def _read(
        self, embeds_BTD: Tensor, mask_BC: Tensor, positions_BT: Tensor, past: Sequence[Part]
    ) -> Reading:
        """The last state [B, 1, D] of a pass, and what it leaves for the next."""
        if not (self.checkpointing and torch.is_grad_enabled()):
            return self._last(embeds_BTD, mask_BC, positions_BT, past)
        reading: Reading = checkpoint(
            self._last, embeds_BTD, mask_BC, positions_BT, past, use_reentrant=False
        )
        return reading

    def _last(
        self, embeds_BTD: Tensor, mask_BC: Tensor, positions_BT: Tensor, past: Sequence[Part]
    ) -> Reading:
        states_BTD, part = read_on(self.model, embeds_BTD, mask_BC, positions_BT, past)
        return Reading(states_BTD[:, -1:], part)

    def _own(self) -> nn.Module:
        """What is not the language model's."""
        own = nn.Module()
        own.start_D, own.feedback = self.start_D, self.feedback
        if self.projector is not None:
            own.projector = self.projector
        return own

    def _serialized(self) -> bytes:
        state = self._own().state_dict()
        return save({name: tensor.cpu().contiguous() for name, tensor in state.items()})


class Feedback(nn.Module):
    """Linear(LayerNorm(z)): from a state to the next step's input.

    It starts as the identity, at the scale of the embeddings: a model whose states resemble the
    embedding of the token that they predict then goes on much as if it had said that token.
    """

    def __init__(self, width: int, scale: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.linear = nn.Linear(width, width, bias=False)
        with torch.no_grad():
            self.linear.weight.copy_(scale * torch.eye(width))

    def forward(self, state_B1D: Tensor) -> Tensor:
        """The next inputs; shape unchanged."""
        row_B1D: Tensor = self.linear(self.norm(state_B1D))
        return row_B1D


class Padded(NamedTuple):
    """Texts of a batch; mask_BT is True on real tokens, and padding comes first."""

    ids_BT: Tensor
    mask_BT: Tensor


def left_padded(prompts: Sequence[Sequence[int]], device: torch.device | str = "cpu") -> Padded:
    """Prompts, given as token ids, in one batch."""
    longest = max(map(len, prompts))
    ids = [[0] * (longest - len(prompt)) + list(prompt) for prompt in prompts]
    mask = [[False] * (longest - len(prompt)) + [True] * len(prompt) for prompt in prompts]
    return Padded(torch.tensor(ids, device=device), torch.tensor(mask, device=device))
