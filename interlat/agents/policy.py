"""The policy: history and message to reply, for many episodes at once.

An episode's history lives in the key-value cache as long as the episode does; a turn feeds only
its new tokens. Episodes answer in lockstep, whatever the length of their histories; finished ones
leave, new ones enter, and no episode's replies depend on its neighbours.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedTokenizerBase

from interlat.chat import PlainText, Slots, continuation, render, render_many
from interlat.config import ActorKind, UserError
from interlat.latents.sources import Delivery
from interlat.models.actor import Actor
from interlat.models.cache import PositionCache
from interlat.tasks import Turn


class Reply(NamedTuple):
    """What the actor says in one turn."""

    text: str
    token_ids: list[int]
    """Without the end-of-turn token."""
    finish_reason: str
    """``stop`` (ended its turn), ``length`` (cut at max_new_tokens), ``context`` (had no room)."""


@dataclass(eq=False)
class Session:
    """One episode as the policy sees it: its message, its own chance, the conversation so far."""

    delivery: Delivery
    generator: torch.Generator = field(default_factory=torch.Generator)
    """Feeds sampled replies; on the CPU."""
    conversation: list[Turn] = field(default_factory=list)


@dataclass(eq=False)
class _Seat:
    """A session's place in the batch."""

    session: Session
    length: int = 0
    """Tokens in the cache."""
    unread: list[int] = field(default_factory=list)
    """The history's tokens that are not in the cache yet."""
    slots: range = range(0)
    """Where among the unread tokens the message's rows stand."""


class Policy:
    """An actor that answers for many sessions in one batch."""

    def __init__(self, actor: Actor, *, max_new_tokens: int, temperature: float = 0.0) -> None:
        """Temperature 0 is greedy; above it, replies are sampled with each session's generator.

        Raises UserError when a layer of the model sees only part of what came before.
        """
        config = actor.model.config.get_text_config()
        partial = set(getattr(config, "layer_types", None) or ()) - {"full_attention"}
        if partial:
            kinds = ", ".join(sorted(partial))
            raise UserError(f"an actor with {kinds} layers cannot be played; full attention only")
        self._actor = actor.to(actor.device).eval()
        self._max_new_tokens = max_new_tokens
        self._temperature = temperature
        self._context: int | None = getattr(config, "max_position_embeddings", None)
        self._end_id = _end_of_turn(actor.tokenizer)
        self._stop_ids = {self._end_id, actor.tokenizer.eos_token_id}
        self._cache = PositionCache()
        self._seats: list[_Seat] = []

    @torch.inference_mode()
    def act(self, sessions: Sequence[Session], turns: Sequence[str]) -> list[Reply]:
        """Give each session its next human turn; returns the replies, in the same order.

        A session that is not named leaves for good. Turns and replies join the conversations.
        """
        for session, turn in zip(sessions, turns, strict=True):
            session.conversation.append({"from": "human", "value": turn})
        known = {seat.session: seat for seat in self._seats}
        staying = [known[session] for session in sessions if session in known]
        entering = [_Seat(session) for session in sessions if session not in known]
        self._hear(staying, entering)
        self._arrange([seat for seat in (*staying, *entering) if self._fits(seat)])
        replies = self._generate() if self._seats else {}
        for session, reply in replies.items():
            session.conversation.append({"from": "gpt", "value": reply.text})
        return [replies.get(session, Reply("", [], "context")) for session in sessions]

    def _hear(self, staying: Sequence[_Seat], entering: Sequence[_Seat]) -> None:
        """Turn what was said last into unread tokens."""
        tokenizer = self._actor.tokenizer
        for seat in staying:
            seat.unread += continuation(tokenizer, seat.session.conversation)
        if entering:
            conversations = [seat.session.conversation for seat in entering]
            kind = self._actor.record.kind
            messages = [_message(seat.session.delivery, kind) for seat in entering]
            prompts = render_many(tokenizer, conversations, messages, add_generation_prompt=True)
            for seat, prompt in zip(entering, prompts, strict=True):
                seat.unread, seat.slots = prompt.token_ids, prompt.slots

    def _fits(self, seat: _Seat) -> bool:
        needed = seat.length + len(seat.unread) + self._max_new_tokens
        return self._context is None or needed <= self._context

    def _arrange(self, seats: Sequence[_Seat]) -> None:
        """Give every seat its row of the cache: those that stay first, then those that enter."""
        row = {seat: i for i, seat in enumerate(self._seats)}
        kept = sorted(row[seat] for seat in seats if seat in row)
        entering = [seat for seat in seats if seat not in row]
        staying = [self._seats[i] for i in kept]
        length = max((seat.length for seat in staying), default=0)
        self._cache.seat(kept, len(entering), length)
        self._seats = [*staying, *entering]

    def _generate(self) -> dict[Session, Reply]:
        hidden_BD = self._read()
        start_B = torch.tensor([seat.length for seat in self._seats])
        said: list[list[int]] = [[] for _ in self._seats]
        talking = list(range(len(self._seats)))
        ids_B: list[int] = []
        for step in range(self._max_new_tokens):
            if step:
                embeds_B1D = self._actor.embed(self._tensor(ids_B)[:, None])
                hidden_BD = self._forward(embeds_B1D, start_B + step - 1, slice(None))[:, 0]
            ids_B = self._choose(hidden_BD, talking)
            talking = [i for i in talking if ids_B[i] not in self._stop_ids]
            for i in talking:
                said[i].append(ids_B[i])
            if not talking:
                break
        for i, (seat, ids) in enumerate(zip(self._seats, said, strict=True)):
            # The last token of a reply that was cut was chosen but never fed.
            fed = len(ids) - (i in talking)
            seat.unread = [*ids[fed:], self._end_id]
            seat.length += fed
        texts = self._actor.tokenizer.batch_decode(said, skip_special_tokens=True)
        return {
            seat.session: Reply(text.strip(), ids, "length" if i in talking else "stop")
            for i, (seat, ids, text) in enumerate(zip(self._seats, said, texts, strict=True))
        }

    def _read(self) -> Tensor:
        """Feed every seat's unread tokens; returns the last one's state [B, D].

        Prompts are long and later turns short, so those that enter are fed apart from the others.
        """
        border = sum(seat.length > 0 for seat in self._seats)
        groups = [slice(0, border), slice(border, len(self._seats))]
        return torch.cat([self._read_rows(rows) for rows in groups if rows.start < rows.stop])

    def _read_rows(self, rows: slice) -> Tensor:
        seats = self._seats[rows]
        ids_BT = pad_sequence([torch.tensor(seat.unread) for seat in seats], batch_first=True)
        slots_BT = torch.zeros(ids_BT.shape, dtype=torch.bool)
        messages = []
        for i, seat in enumerate(seats):
            hidden_LD = seat.session.delivery.hidden_LD
            if seat.slots and hidden_LD is not None:
                slots_BT[i, seat.slots] = True
                messages.append(hidden_LD)
        rows_ND = torch.cat(self._actor.message_rows(messages)) if messages else None
        embeds_BTD = self._actor.embed(self._tensor(ids_BT), self._tensor(slots_BT), rows_ND)
        start_B = torch.tensor([seat.length for seat in seats])
        hidden_BTD = self._forward(embeds_BTD, start_B, rows)
        last_B = [len(seat.unread) - 1 for seat in seats]
        for seat in seats:
            seat.length += len(seat.unread)
            seat.unread, seat.slots = [], range(0)
        return hidden_BTD[range(len(seats)), last_B]

    def _forward(self, embeds_BTD: Tensor, start_B: Tensor, rows: slice) -> Tensor:
        """Final-norm states [B, T, D] of tokens that follow `start_B` others in these rows."""
        columns_BT = self._tensor(start_B[:, None] + torch.arange(embeds_BTD.shape[1]))
        mask = self._cache.place(rows, columns_BT, embeds_BTD.dtype)
        decoder = self._actor.model.get_decoder()  # type: ignore[no-untyped-call]
        output = decoder(
            inputs_embeds=embeds_BTD,
            attention_mask=mask,
            position_ids=columns_BT,
            past_key_values=self._cache,
            use_cache=True,
        )
        hidden_BTD: Tensor = output.last_hidden_state
        return hidden_BTD

    def _choose(self, hidden_BD: Tensor, talking: Sequence[int]) -> list[int]:
        """The next token of every row; those that have ended their turn get anything."""
        logits_BV = self._actor.logits(hidden_BD).float()
        ids_B: list[int] = logits_BV.argmax(-1).tolist()
        if self._temperature > 0:
            for i in talking:
                ids_B[i] = _sample(
                    logits_BV[i].cpu() / self._temperature, self._seats[i].session.generator
                )
        return ids_B

    def _tensor(self, values: Tensor | list[int]) -> Tensor:
        return torch.as_tensor(values).to(self._actor.device)


def _message(delivery: Delivery, kind: ActorKind) -> Slots:
    if delivery.hidden_LD is not None:
        return len(delivery.hidden_LD)
    in_prompt = kind == "cot" and delivery.text is not None
    return PlainText(delivery.text) if in_prompt else delivery.text


def _sample(logits_V: Tensor, generator: torch.Generator) -> int:
    """A draw from softmax(logits) that spends exactly one number of the generator."""
    shares_V = logits_V.double().softmax(-1).cumsum(-1)
    point = torch.rand((), dtype=torch.float64, generator=generator) * shares_V[-1]
    return min(int(torch.searchsorted(shares_V, point, right=True)), len(shares_V) - 1)


def _end_of_turn(tokenizer: PreTrainedTokenizerBase) -> int:
    """The token with which the chat template ends an assistant turn: the last supervised one."""
    sample: list[Turn] = [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]
    rendered = render(tokenizer, sample, message=None)
    last = max(i for i, supervised in enumerate(rendered.loss_mask) if supervised)
    return rendered.token_ids[last]
