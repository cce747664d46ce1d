"""The sender: asked for a plan, it speaks, and the states in which it chose each token are kept.

Works for any Hugging Face causal language model with a key-value cache. Row l of a message is what
the output head sees when it predicts generated token l: the final-norm last-layer state. It falls
out of generation itself, so nothing is computed twice and no other layer's states are held.
"""

import inspect
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from interlat.chat import render_many
from interlat.config import CollectConfig, UserError
from interlat.tasks import Task

COMPACT_SHARE = 0.75
"""Finished rows leave the batch once no more than this share of it still speaks."""


class Utterance(NamedTuple):
    """What a sender said to one prompt."""

    token_ids: list[int]
    """The generated tokens, with the end-of-sequence token where it came."""
    hidden_LD: Tensor
    """[L, D] on the CPU in the model's dtype; row l predicts token l, L = len(token_ids)."""
    plan: str
    finish_reason: str
    """"eos", or "length": cut at max_new_tokens or at the end of the model's context."""


def sender_prompt(task: Task, template: str) -> str:
    """What the sender is asked.

    template: its {task} becomes the task and its {knowledge} what the sender knows; without a
    {knowledge} of its own, {task} begins with it. Other braces, and those in the data, stay.
    Raises UserError for a template without {task}.
    """
    if "{task}" not in template:
        raise UserError(
            "collect.prompt_template has no {task}, so that the sender would not see it"
        )
    knowledge = task.knowledge or ""
    apart = "{knowledge}" in template
    words = {
        "task": task.instruction if apart or not knowledge else f"{knowledge}\n{task.instruction}",
        "knowledge": knowledge,
    }
    return re.sub(r"\{(task|knowledge)\}", lambda match: words[match[1]], template)


def encode_prompts(tokenizer: PreTrainedTokenizerBase, prompts: Sequence[str]) -> list[list[int]]:
    """Token ids of each prompt as a human turn; of its plain text where there is no template."""
    if tokenizer.chat_template is None:
        plain: list[list[int]] = tokenizer(list(prompts))["input_ids"]
        return plain
    turns = [[{"from": "human", "value": prompt}] for prompt in prompts]
    nothing = [None] * len(turns)
    rendered = render_many(tokenizer, turns, nothing, add_generation_prompt=True)
    return [prompt.token_ids for prompt in rendered]


def output_head(model: PreTrainedModel) -> nn.Linear:
    """The layer from final-norm states [D] to logits [V]; what it reads is what a message holds."""
    head: nn.Linear = model.get_output_embeddings()  # type: ignore[no-untyped-call]
    return head


def context_length(model: PreTrainedModel) -> int | None:
    """Positions that the model was made for, prompt and reply together; None if it is silent."""
    config = model.config.get_text_config()
    length: int | None = getattr(config, "max_position_embeddings", None)
    return length


@torch.no_grad()
def speak(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    prompts: Sequence[Sequence[int]],
    config: CollectConfig,
    *,
    generators: Sequence[torch.Generator] | None = None,
) -> list[Utterance]:
    """The sender's reply to each prompt, all of them as one batch.

    prompts: token ids, from ``encode_prompts``. model: in eval mode. config: max_new_tokens and the
    sampling. generators: one CPU generator a prompt, needed when config.do_sample. A reply does not
    depend on what else is in the batch, except for the rounding of the matrix products.
    Raises ValueError for an empty prompt, or one that leaves no room in the model's context.
    """
    limits = _reply_limits(model, prompts, config.max_new_tokens)
    heard: list[Tensor] = []
    head = output_head(model)
    hook = head.register_forward_pre_hook(lambda _, inputs: heard.append(inputs[0][:, -1]))
    try:
        reply = _Replies(limits, _end_ids(model, tokenizer), model.device)
        draws_BS = _draws(generators, len(prompts), config)
        ids_BT, mask_BT = _left_padded(prompts, _pad_id(tokenizer), model.device)
        seen_BV = _seen(ids_BT, mask_BT, head.weight.shape[0])
        positions_BT = (mask_BT.cumsum(1) - 1).clamp(min=0)
        options = _accepted(model)
        cache: Any = None
        for step in range(max(limits)):
            inputs = {"position_ids": positions_BT, "logits_to_keep": 1}
            output = model(
                input_ids=ids_BT,
                attention_mask=mask_BT,
                past_key_values=cache,
                use_cache=True,
                **{name: value for name, value in inputs.items() if name in options},
            )
            cache = output.past_key_values
            draws_B = None if draws_BS is None else draws_BS[reply.speaking, step]
            chosen_B = choose(output.logits[:, -1].float(), seen_BV, config, draws_B)
            kept_B = reply.add(chosen_B, heard.pop())
            if kept_B is None:
                break
            mask_BT = torch.cat([mask_BT, mask_BT.new_ones(len(mask_BT), 1)], dim=1)
            ids_BT, positions_BT = chosen_B[:, None], positions_BT[:, -1:] + 1
            seen_BV.scatter_(1, ids_BT, True)
            if len(kept_B) < len(ids_BT):
                cache.batch_select_indices(kept_B)
                ids_BT, mask_BT = ids_BT[kept_B], mask_BT[kept_B]
                seen_BV, positions_BT = seen_BV[kept_B], positions_BT[kept_B]
    finally:
        hook.remove()
    return reply.finish(tokenizer)


def choose(
    logits_BV: Tensor, seen_BV: Tensor, config: CollectConfig, draws_B: Tensor | None
) -> Tensor:
    """The next token of each row [B]: the likeliest, or the one that its draw in [0, 1) falls on.

    seen_BV: tokens of the row so far, for the repetition penalty. Sampling keeps the top_k
    likeliest tokens, of those the fewest that hold top_p of the mass, and inverts their cumulative
    distribution: one number a step from the task's own stream, whatever the vocabulary's size.
    """
    if config.repetition_penalty != 1.0:
        factor = config.repetition_penalty
        penalised_BV = torch.where(logits_BV < 0, logits_BV * factor, logits_BV / factor)
        logits_BV = torch.where(seen_BV, penalised_BV, logits_BV)
    if draws_B is None:
        return logits_BV.argmax(dim=-1)
    sorted_BV, order_BV = (logits_BV / config.temperature).sort(
        dim=-1, descending=True, stable=True
    )
    if config.top_k:
        sorted_BV = sorted_BV[:, : config.top_k]
    probability_BV = sorted_BV.double().softmax(dim=-1)
    before_BV = probability_BV.cumsum(dim=-1) - probability_BV
    probability_BV = probability_BV.masked_fill(before_BV >= config.top_p, 0.0)
    cumulative_BV = probability_BV.cumsum(dim=-1)
    target_B1 = draws_B.to(cumulative_BV)[:, None] * cumulative_BV[:, -1:]
    rank_B1 = torch.searchsorted(cumulative_BV, target_B1, right=True)
    # A product that rounds up to the total would fall behind the last token.
    last_B1 = (probability_BV > 0).sum(dim=-1, keepdim=True) - 1
    return order_BV.gather(1, torch.minimum(rank_B1, last_B1))[:, 0]


class _Replies:
    """The replies of a batch as they grow; row numbers here are those of the prompts."""

    def __init__(self, limits: Sequence[int], end_ids: Tensor, device: torch.device) -> None:
        self.speaking = torch.arange(len(limits))
        """Prompts whose rows are in the batch, in order; the finished among them are ignored."""
        self._limits = torch.tensor(limits)
        self._end_ids = end_ids
        self._done = torch.zeros(len(limits), dtype=torch.bool)
        self._ended = torch.zeros(len(limits), dtype=torch.bool)
        self._steps = 0
        self._rows: list[Tensor] = []
        self._tokens: list[Tensor] = []
        self._states: list[Tensor] = []

    def add(self, chosen_B: Tensor, state_BD: Tensor) -> Tensor | None:
        """Note a step; returns the batch rows to go on with, None when every reply is finished."""
        device = chosen_B.device
        alive_B = ~self._done[self.speaking]
        rows, tokens_B = self.speaking[alive_B], chosen_B.cpu()[alive_B]
        self._rows.append(rows)
        self._tokens.append(tokens_B)
        self._states.append(state_BD[alive_B.to(device)])
        self._steps += 1
        ended = torch.isin(tokens_B, self._end_ids)
        self._ended[rows[ended]] = True
        self._done[rows] = ended | (self._limits[rows] <= self._steps)
        alive_B = ~self._done[self.speaking]
        if not bool(alive_B.any()):
            return None
        if int(alive_B.sum()) > COMPACT_SHARE * len(alive_B):
            return torch.arange(len(alive_B), device=device)
        self.speaking = self.speaking[alive_B]
        return alive_B.nonzero()[:, 0].to(device)

    def finish(self, tokenizer: PreTrainedTokenizerBase) -> list[Utterance]:
        """The replies in the order of the prompts."""
        rows = torch.cat(self._rows)
        order = rows.argsort(stable=True)
        lengths = rows.bincount(minlength=len(self._limits)).tolist()
        states_ND = torch.cat(self._states).cpu()
        tokens = [part.tolist() for part in torch.split(torch.cat(self._tokens)[order], lengths)]
        plans = tokenizer.batch_decode(tokens, skip_special_tokens=True)
        return [
            Utterance(ids, states_ND[mine], plan.strip(), "eos" if ended else "length")
            for ids, mine, plan, ended in zip(
                tokens, torch.split(order, lengths), plans, self._ended.tolist(), strict=True
            )
        ]


def _reply_limits(
    model: PreTrainedModel, prompts: Sequence[Sequence[int]], max_new_tokens: int
) -> list[int]:
    context = context_length(model)
    limits = []
    for prompt in prompts:
        room = max_new_tokens if context is None else min(max_new_tokens, context - len(prompt))
        if not prompt or room < 1:
            raise ValueError(f"a prompt of {len(prompt)} tokens, for a context of {context}")
        limits.append(room)
    return limits


def _draws(
    generators: Sequence[torch.Generator] | None, count: int, config: CollectConfig
) -> Tensor | None:
    """One number in [0, 1) for each prompt and step [B, S], or None for greedy choice."""
    if not config.do_sample:
        return None
    if generators is None or len(generators) != count:
        raise ValueError("sampling needs one generator a prompt")
    steps = config.max_new_tokens
    return torch.stack([torch.rand(steps, generator=g, dtype=torch.float64) for g in generators])


def _left_padded(
    prompts: Sequence[Sequence[int]], pad_id: int, device: torch.device
) -> tuple[Tensor, Tensor]:
    longest = max(map(len, prompts))
    ids = [[pad_id] * (longest - len(prompt)) + list(prompt) for prompt in prompts]
    mask = [[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts]
    return torch.tensor(ids, device=device), torch.tensor(mask, device=device)


def _seen(ids_BT: Tensor, mask_BT: Tensor, vocabulary: int) -> Tensor:
    """Which tokens stand in each row [B, V]; padding does not count."""
    counts_BV = torch.zeros(len(ids_BT), vocabulary, dtype=torch.int32, device=ids_BT.device)
    counts_BV.scatter_add_(1, ids_BT, mask_BT.int())
    return counts_BV > 0


def _end_ids(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> Tensor:
    ids = getattr(model.generation_config, "eos_token_id", None)
    ends = set(ids if isinstance(ids, list) else [ids]) | {tokenizer.eos_token_id}
    return torch.tensor(sorted(end for end in ends if end is not None), dtype=torch.long)


def _pad_id(tokenizer: PreTrainedTokenizerBase) -> int:
    return int(tokenizer.pad_token_id) if tokenizer.pad_token_id is not None else 0


def _accepted(model: PreTrainedModel) -> frozenset[str]:
    return frozenset(inspect.signature(model.forward).parameters)
