"""The communication adapter: a sender's hidden states to rows in the receiver's embedding space.

One module for training, compression and inference; saved whole, projector included, as
``communication_adapter.safetensors`` beside ``communication_adapter.json``.
Source: arXiv 2511.09149, section 3 (layers and initialisation as its code applies them).
"""

import hashlib
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

import torch
from torch import Tensor, nn

from interlat.config import UserError
from interlat.files import atomic_write_bytes, atomic_write_json, read_json

WEIGHTS_FILE = "communication_adapter.safetensors"
CONFIG_FILE = "communication_adapter.json"
VERSION = 1
INPUT_SCALE = 0.2
"""Start value of s; with the default t = 0.1 rows leave with a standard deviation of 0.02."""


@dataclass(frozen=True)
class AdapterConfig:
    """Shape of an adapter; ``output_std`` is the standard deviation of its rows before training."""

    sender_width: int
    width: int
    heads: int = 8
    dropout: float = 0.1
    output_std: float = 0.02

    def __post_init__(self) -> None:
        """Raise ValueError when the heads do not divide the width."""
        if self.width % self.heads:
            raise ValueError(f"{self.heads} heads do not divide the adapter width {self.width}")


class CommunicationAdapter(nn.Module):
    """Optional width projector, pre-norm self-attention, post-norm, adaptive projection.

    Attention is bidirectional and has no positions of its own. The adapter computes in the dtype of
    its weights, whatever autocast is on, so that a message means the same in training and use.
    """

    def __init__(self, config: AdapterConfig) -> None:
        super().__init__()
        self.config = config
        width = config.width
        projects = config.sender_width != width
        self.input_projector = nn.Linear(config.sender_width, width) if projects else None
        self.pre_norm = nn.LayerNorm(width, eps=1e-6)
        self.attention = nn.MultiheadAttention(
            width, config.heads, dropout=config.dropout, batch_first=True
        )
        self.post_norm = nn.LayerNorm(width, eps=1e-6)
        self.projection = AdaptiveProjection(width, config.output_std)
        nn.init.xavier_uniform_(self.attention.in_proj_weight, gain=1 / math.sqrt(3))
        nn.init.xavier_uniform_(self.attention.out_proj.weight)

    def forward(self, hidden_BLD: Tensor, mask_BL: Tensor) -> Tensor:
        """Adapt a padded batch of messages.

        hidden_BLD: [B, L, d_s], any float dtype; mask_BL: bool, True where a row is real.
        Returns [B, L, D] in the dtype of the weights; rows of padding are zero and change nothing
        else, whatever they hold.
        """
        dtype = self.pre_norm.weight.dtype
        if not mask_BL.shape[1]:
            return hidden_BLD.new_zeros(*mask_BL.shape, self.config.width, dtype=dtype)
        with torch.autocast(hidden_BLD.device.type, enabled=False):
            rows_BLD = hidden_BLD.to(dtype).masked_fill(~mask_BL[..., None], 0)
            if self.input_projector is not None:
                rows_BLD = self.input_projector(rows_BLD)
            normal_BLD = self.pre_norm(rows_BLD)
            # A message without rows would leave its attention nothing to look at (NaN).
            ignored_BL = ~mask_BL & mask_BL.any(dim=1, keepdim=True)
            attended_BLD, _ = self.attention(
                normal_BLD,
                normal_BLD,
                normal_BLD,
                key_padding_mask=ignored_BL,
                need_weights=False,
            )
            adapted_BLD: Tensor = self.projection(self.post_norm(normal_BLD + attended_BLD))
            return adapted_BLD.masked_fill(~mask_BL[..., None], 0)

    @property
    def digest(self) -> str:
        """SHA-256 of the weights."""
        return hashlib.sha256(self._serialized()).hexdigest()

    def save(self, directory: Path) -> None:
        """Write weights and shape into a checkpoint folder."""
        atomic_write_bytes(directory / WEIGHTS_FILE, self._serialized())
        atomic_write_json(directory / CONFIG_FILE, {"version": VERSION, **asdict(self.config)})

    def _serialized(self) -> bytes:
        from safetensors.torch import save

        tensors = {name: tensor.cpu().contiguous() for name, tensor in self.state_dict().items()}
        return save(tensors)

    @classmethod
    def load(cls, directory: Path) -> Self:
        """Read an adapter that ``save`` wrote, in eval mode and on the CPU.

        Raises UserError when a file is missing or does not belong to this kind of adapter.
        """
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        for name in (CONFIG_FILE, WEIGHTS_FILE):
            if not (directory / name).is_file():
                raise UserError(f"{directory / name} is missing: is this a trained actor?")
        fields = dict(read_json(directory / CONFIG_FILE))
        version = fields.pop("version", None)
        if version != VERSION:
            raise UserError(
                f"{directory / CONFIG_FILE} has version {version}, this program reads {VERSION}"
            )
        try:
            tensors = load_file(directory / WEIGHTS_FILE)
            adapter = cls(AdapterConfig(**fields)).to(next(iter(tensors.values())).dtype)
            adapter.load_state_dict(tensors)
        except (TypeError, ValueError, RuntimeError, SafetensorError) as error:
            raise UserError(f"{directory} holds no communication adapter: {error}") from error
        return adapter.eval()


class AdaptiveProjection(nn.Module):
    """y = (s o + W2 LN(GELU(W1 s o + b1)) + b2) t, with learnable scalars s and t."""

    def __init__(self, width: int, output_std: float) -> None:
        super().__init__()
        self.input_scale = nn.Parameter(torch.tensor(INPUT_SCALE))
        self.output_scale = nn.Parameter(torch.tensor(output_std / INPUT_SCALE))
        self.up = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width, eps=1e-5)
        self.down = nn.Linear(width, width)
        nn.init.normal_(self.up.weight, std=0.02)
        nn.init.zeros_(self.up.bias)
        nn.init.xavier_uniform_(self.down.weight, gain=0.01)
        nn.init.zeros_(self.down.bias)

    def forward(self, rows_BLD: Tensor) -> Tensor:
        """Rescale rows of unit variance to the receiver's embeddings; shape unchanged."""
        scaled_BLD = self.input_scale * rows_BLD
        residual_BLD = self.down(self.norm(nn.functional.gelu(self.up(scaled_BLD))))
        out_BLD: Tensor = (scaled_BLD + residual_BLD) * self.output_scale
        return out_BLD
