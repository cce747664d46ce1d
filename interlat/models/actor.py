"""The actor: a causal language model that reads latent messages through the communication adapter.

Works for any Hugging Face causal language model: only its embeddings, its decoder and its output
head are touched. Where a message stands in a prompt is chat.py's business, not this module's.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from interlat.config import ActorKind, UserError
from interlat.files import atomic_write_json, read_json
from interlat.latents.store import LatentStore
from interlat.models.adapter import CONFIG_FILE, CommunicationAdapter
from interlat.models.load import load_causal_lm

log = logging.getLogger(__name__)
RECORD_FILE = "actor.json"
READS: Mapping[ActorKind, frozenset[str]] = {
    "text": frozenset({"text", "none"}),
    "cot": frozenset({"text", "none"}),
    "none": frozenset({"none"}),
}
"""Sources that an actor can be told; one that reads latents can be told all."""


@dataclass(frozen=True)
class Sender:
    """Whose messages they are, as a store's manifest says it."""

    name: str
    weights_sha256: str
    width: int

    @classmethod
    def of(cls, store: LatentStore) -> Self | None:
        """The sender of a store's messages, or the one that a student stands in for.

        None where no manifest says it.
        """
        manifest = store.manifest or {}
        model = manifest.get("model")
        if "compressed" in manifest:
            model = manifest["compressed"]["stands_for"]
        if not isinstance(model, Mapping) or "weights_sha256" not in model:
            return None
        return cls(str(model.get("name", "")), str(model["weights_sha256"]), store.width)


@dataclass(frozen=True)
class ActorRecord:
    """How an actor was trained to be told things; ``actor.json`` in its checkpoint.

    sender: of the messages that it was trained with, None where nobody knows;
    max_message_length: rows of a message that it reads, the first ones; None for all.
    """

    kind: ActorKind = "latent"
    sender: Sender | None = None
    max_message_length: int | None = None

    def check_source(self, source: str) -> None:
        """Raise UserError when the actor cannot be told what ``hidden.source`` brings."""
        allowed = READS.get(self.kind)
        if allowed is not None and source not in allowed:
            raise UserError(
                f"the actor was trained with actor.kind={self.kind} and cannot be told "
                f"hidden.source={source}: choose one of {', '.join(sorted(allowed))}"
            )

    def check_sender(self, store: LatentStore, *, any_sender: bool) -> None:
        """Raise UserError when a store holds messages of another sender than in training.

        A store or an actor that does not say is taken, with a warning. any_sender: take all.
        """
        if any_sender or self.sender is None:
            return
        found = Sender.of(store)
        if found is None:
            log.warning("%s does not say whose messages it holds; they are taken", store.path)
        elif found.weights_sha256 != self.sender.weights_sha256:
            raise UserError(
                f"{store.path} holds messages of {found.name} ({found.weights_sha256[:12]}), the "
                f"actor was trained with those of {self.sender.name} "
                f"({self.sender.weights_sha256[:12]}): collect with that sender, train on these "
                "messages, or set actor.any_sender"
            )

    def save(self, directory: Path) -> None:
        """Write the record into a checkpoint folder."""
        atomic_write_json(directory / RECORD_FILE, asdict(self))

    @classmethod
    def load(cls, directory: Path) -> Self:
        """Read a checkpoint's record; that of a plain actor where there is none.

        Raises UserError for a malformed one.
        """
        if not (directory / RECORD_FILE).is_file():
            return cls()
        fields = read_json(directory / RECORD_FILE)
        try:
            sender = fields.pop("sender")
            return cls(**fields, sender=Sender(**sender) if sender else None)
        except (AttributeError, KeyError, TypeError) as error:
            raise UserError(f"{directory / RECORD_FILE} is no actor's record: {error}") from None


class Actor(nn.Module):
    """A causal language model, its tokenizer, and the adapter through which it reads messages.

    Without an adapter the sender's rows are taken as they are, so the widths must agree.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        adapter: CommunicationAdapter | None = None,
        record: ActorRecord | None = None,
    ) -> None:
        super().__init__()
        self.model = model
        self.tokenizer = tokenizer
        self.adapter = adapter
        self.record = record or ActorRecord()
        if adapter is not None and adapter.config.width != self.width:
            raise ValueError(
                f"the adapter writes rows of width {adapter.config.width}, "
                f"the model reads rows of width {self.width}"
            )

    @property
    def width(self) -> int:
        """Width of the model's embeddings, D."""
        return embedding_weight(self.model).shape[1]

    @property
    def sender_width(self) -> int:
        """Width of the messages that this actor reads, d_s."""
        return self.width if self.adapter is None else self.adapter.config.sender_width

    @property
    def device(self) -> torch.device:
        """Device of the model's embeddings, where inputs belong."""
        return embedding_weight(self.model).device

    def message_rows(self, messages: Sequence[Tensor]) -> list[Tensor]:
        """Rows for the embedding space, one [L_i, D] for each message [L_i, d_s], in one batch.

        Raises ValueError when a message is not of the width that the actor reads.
        """
        if not messages:
            return []
        for hidden_LD in messages:
            if hidden_LD.ndim != 2 or hidden_LD.shape[1] != self.sender_width:
                raise ValueError(
                    f"a message has shape {list(hidden_LD.shape)}, "
                    f"this actor reads [L, {self.sender_width}]"
                )
        hidden_BLD = pad_sequence([m.float() for m in messages], batch_first=True)
        lengths_B = torch.tensor([len(m) for m in messages])
        mask_BL = torch.arange(hidden_BLD.shape[1]) < lengths_B[:, None]
        rows_BLD = self.adapt(hidden_BLD.to(self.device), mask_BL.to(self.device))
        return [rows_LD[: len(m)] for rows_LD, m in zip(rows_BLD, messages, strict=True)]

    def adapt(self, hidden_BLD: Tensor, mask_BL: Tensor) -> Tensor:
        """Padded messages [B, L, d_s] to rows [B, L, D]; mask_BL is True on real rows."""
        if self.adapter is None:
            return hidden_BLD.to(embedding_weight(self.model).dtype)
        rows_BLD: Tensor = self.adapter(hidden_BLD, mask_BL)
        return rows_BLD

    def embed(
        self, ids_BT: Tensor, slots_BT: Tensor | None = None, rows_ND: Tensor | None = None
    ) -> Tensor:
        """Input embeddings [B, T, D] with message rows in the slots.

        slots_BT: bool; its True positions, in reading order, take the N rows of rows_ND. The ids
        there may be anything. Raises ValueError when the counts differ.
        """
        embeds_BTD: Tensor = self.model.get_input_embeddings()(ids_BT)
        if slots_BT is None or rows_ND is None:
            return embeds_BTD
        batch_N, position_N = slots_BT.nonzero(as_tuple=True)
        if len(batch_N) != len(rows_ND):
            raise ValueError(f"{len(rows_ND)} message rows for {len(batch_N)} slots")
        return embeds_BTD.index_put((batch_N, position_N), rows_ND.to(embeds_BTD.dtype))

    def hidden_states(self, embeds_BTD: Tensor, attention_mask_BT: Tensor | None = None) -> Tensor:
        """Final-norm states [B, T, D]: row t predicts token t + 1.

        Right-padded input needs no attention mask: no real token is after a padded one.
        """
        decoder = self.model.get_decoder()  # type: ignore[no-untyped-call]
        hidden_BTD: Tensor = decoder(
            inputs_embeds=embeds_BTD, attention_mask=attention_mask_BT, use_cache=False
        ).last_hidden_state
        return hidden_BTD

    def logits(self, hidden_ND: Tensor) -> Tensor:
        """Vocabulary logits [N, V] of chosen states [N, D]."""
        head = self.model.get_output_embeddings()  # type: ignore[no-untyped-call]
        logits_NV: Tensor = head(hidden_ND)
        return logits_NV

    def save(self, directory: Path) -> None:
        """Write a checkpoint in HF layout: model, tokenizer, adapter, record; safetensors."""
        self.model.save_pretrained(directory)
        self.tokenizer.save_pretrained(directory)
        if self.adapter is not None:
            self.adapter.save(directory)
        if self.record != ActorRecord():
            self.record.save(directory)

    @classmethod
    def load(cls, directory: Path, dtype: str = "fp32") -> Self:
        """Read an actor, in eval mode; a folder without an adapter gives an actor without one.

        Raises UserError when the folder holds no model or a broken adapter.
        """
        model, tokenizer = load_causal_lm(str(directory), dtype)
        has_adapter = (directory / CONFIG_FILE).is_file()
        adapter = CommunicationAdapter.load(directory) if has_adapter else None
        return cls(model, tokenizer, adapter, ActorRecord.load(directory)).to(model.device).eval()


def start_adapter(
    start: Path, messages: LatentStore, *, any_sender: bool
) -> CommunicationAdapter | None:
    """The adapter that training goes on with; None when the start checkpoint has none.

    Raises UserError for a broken adapter, and for one that was trained with another sender.
    """
    if not (start / CONFIG_FILE).is_file():
        return None
    ActorRecord.load(start).check_sender(messages, any_sender=any_sender)
    return CommunicationAdapter.load(start)


def embedding_weight(model: PreTrainedModel) -> Tensor:
    """The model's input embeddings, [V, D]."""
    weight = model.get_input_embeddings().weight
    assert isinstance(weight, Tensor)
    return weight
