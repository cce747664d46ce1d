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

from interlat.config import CollectConfig, UserError
from interlat.models.appending import appending_cache
from interlat.tasks import Task

COMPACT_SHARE = 0.75
"""Finished rows leave the batch once no more than this share of it still speaks."""
CHATML = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"


class Utterance(NamedTuple):
    """What a sender said to one prompt."""

    token_ids: list[int]
    """The generated tokens, with the end-of-sequence token where it came."""
    hidden_LD: Tensor
    """[L, D] on the CPU in the model's dtype; row l predicts token l. One row a token, or the first
    ``first_k`` of them."""
    plan: str
    finish_reason: str
    """"eos", or "length": cut at max_new_tokens or at the end of the model's context."""


def sender_prompt(task: Task, template: str) -> str:
    """What the sender is asked.

    template: its {task}, or {question}, becomes the task and its {knowledge} what the sender knows;
    without a {knowledge} of its own, {task} begins with it. Other braces, and those in the data,
    stay. Raises UserError for a template without a task.
    """
    template = template.replace("{question}", "{task}")
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


def encode_prompts(
    tokenizer: PreTrainedTokenizerBase, prompts: Sequence[str], template: str = "auto"
) -> list[list[int]]:
    """Token ids of each prompt as one user turn, ready for the reply.

    template: "auto" for the tokenizer's own (plain text where it has none), "none" for plain text,
    "qwen" for ChatML without a system turn, whatever the tokenizer. White space around a prompt
    is dropped in a turn.
    """
    if template == "none" or (template == "auto" and tokenizer.chat_template is None):
        plain: list[list[int]] = tokenizer(list(prompts))["input_ids"]
        return plain
    if template == "qwen":
        chatml: list[list[int]] = tokenizer([CHATML.format(p.strip()) for p in prompts])[
            "input_ids"
        ]
        return chatml
    turns = [[{"role": "user", "content": prompt.strip()}] for prompt in prompts]
    ids: list[list[int]] = tokenizer.apply_chat_template(  # type: ignore[assignment]
        turns, add_generation_prompt=True, return_dict=False
    )
    return ids


def output_head(model: PreTrainedModel) -> nn.Linear:
    """The layer from final-norm states [D] to logits [V]; what it reads is what a message holds."""
    head: nn.Linear = model.get_output_embeddings()  # type: ignore[no-untyped-call]
    return head


def vocabulary_size(model: PreTrainedModel) -> int:
    """Token ids that the model knows, from 0."""
    embedding: nn.Embedding = model.get_input_embeddings()  # type: ignore[assignment]
    return embedding.num_embeddings


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

    prompts: token ids, from ``encode_prompts``. model: in eval mode. config: max_new_tokens,
    first_k and the sampling. generators: one CPU generator a prompt, needed when config.do_sample.
    A reply does not depend on what else is in the batch, but for the rounding of matrix products.
    Raises ValueError for an empty prompt, or one that leaves no room in the model's context;
    UserError for a model without a key-value cache.
    """
    options = _accepted(model)
    if "past_key_values" not in options:
        raise UserError(f"{type(model).__name__} keeps no keys and values; it cannot be a sender")
    limits = _reply_limits(model, prompts, config.max_new_tokens)
    heard: list[Tensor] = []
    head = output_head(model)
    hook = head.register_forward_pre_hook(lambda _, inputs: heard.append(inputs[0][:, -1]))
    try:
        reply = _Replies(limits, _end_ids(model, tokenizer), config.first_k)
        draws_BS = _draws(generators, len(prompts), config)
        ids_BT, mask_BT = _left_padded(prompts, _pad_id(tokenizer), model.device)
        seen_BV = None
        if config.repetition_penalty != 1.0:
            seen_BV = _seen(ids_BT, mask_BT, head.weight.shape[0])
        positions_BT = (mask_BT.cumsum(1) - 1).clamp(min=0)
        cache: Any = appending_cache(model)
        for step in range(max(limits)):
            inputs = {"position_ids": positions_BT, "logits_to_keep": 1}
            output = model(
                input_ids=ids_BT,
                attention_mask=mask_BT,
                past_key_values=cache,
                use_cache=True,
                **{name: value for name, value in inputs.items() if name in options},
            )
            draws_B = None if draws_BS is None else draws_BS[reply.speaking, step]
            chosen_B = choose(output.logits[:, -1].float(), seen_BV, config, draws_B)
            kept_B = reply.add(chosen_B, heard.pop())
            if kept_B is None:
                break
            mask_BT = torch.cat([mask_BT, mask_BT.new_ones(len(mask_BT), 1)], dim=1)
            ids_BT, positions_BT = chosen_B[:, None], positions_BT[:, -1:] + 1
            if seen_BV is not None:
                seen_BV.scatter_(1, ids_BT, True)
            if len(kept_B) < len(ids_BT):
                kept_B = kept_B.to(model.device)
                cache.reorder_cache(kept_B)
                ids_BT, mask_BT = ids_BT[kept_B], mask_BT[kept_B]
                positions_BT = positions_BT[kept_B]
                seen_BV = None if seen_BV is None else seen_BV[kept_B]
    finally:
        hook.remove()
    return reply.finish(tokenizer)


def choose(
    logits_BV: Tensor, seen_BV: Tensor | None, config: CollectConfig, draws_B: Tensor | None
) -> Tensor:
    """The next token of each row [B]: the likeliest, or the one that its draw in [0, 1) falls on.

    seen_BV: tokens of the row so far, for the repetition penalty. Sampling keeps the top_k
    likeliest tokens, of those the fewest that hold top_p of the mass, and inverts their cumulative
    distribution: one number a step from the task's own stream, whatever the vocabulary's size.
    """
    if seen_BV is not None:
        factor = config.repetition_penalty
        penalised_BV = torch.where(logits_BV < 0, logits_BV * factor, logits_BV / factor)
        logits_BV = torch.where(seen_BV, penalised_BV, logits_BV)
    if draws_B is None:
        return logits_BV.argmax(dim=-1)
    scores_BV = logits_BV / config.temperature
    order_BK = _likeliest(scores_BV, config.top_k)
    probability_BK = scores_BV.gather(1, order_BK).double().softmax(dim=-1)
    before_BK = probability_BK.cumsum(dim=-1) - probability_BK
    probability_BK = probability_BK.masked_fill(before_BK >= config.top_p, 0.0)
    cumulative_BK = probability_BK.cumsum(dim=-1)
    target_B1 = draws_B.to(cumulative_BK)[:, None] * cumulative_BK[:, -1:]
    rank_B1 = torch.searchsorted(cumulative_BK, target_B1, right=True)
    # A product that rounds up to the total would fall behind the last token.
    last_B1 = ((probability_BK > 0).sum(dim=-1, keepdim=True) - 1).clamp(min=0)
    return order_BK.gather(1, torch.minimum(rank_B1, last_B1))[:, 0]


def _likeliest(scores_BV: Tensor, count: int) -> Tensor:
    """The ids of the ``count`` highest scores of each row, falling; all of them where count is 0.

    Of equal scores, common in bfloat16, the lower id comes first: ``topk`` alone would order and
    choose among them as device and batch have it.
    """
    if not 0 < count < scores_BV.shape[1]:
        return scores_BV.sort(dim=-1, descending=True, stable=True).indices
    least_B1 = scores_BV.topk(count).values[:, -1:]
    reaching = int((scores_BV >= least_B1).sum(dim=-1).max())
    ids_BK = scores_BV.topk(max(count, reaching)).indices.sort(dim=-1).values
    order_BK = scores_BV.gather(1, ids_BK).sort(dim=-1, descending=True, stable=True).indices
    return ids_BK.gather(1, order_BK)[:, :count]


class _Replies:
    """The replies of a batch as they grow; row numbers here are those of the prompts.

    Tokens come to the CPU at every step, which is the one time that it waits for the model: whether
    a reply has ended decides the next step. States stay where they are until the end.
    """

    def __init__(self, limits: Sequence[int], end_ids: Tensor, first_k: int | None) -> None:
        self.speaking = torch.arange(len(limits))
        """Prompts whose rows are in the batch, in order; the finished among them are ignored."""
        self._limits = torch.tensor(limits)
        self._end_ids = end_ids
        self._first_k = first_k
        self._lengths = torch.zeros_like(self._limits)
        self._done = torch.zeros(len(limits), dtype=torch.bool)
        self._ended = torch.zeros(len(limits), dtype=torch.bool)
        self._rows: list[Tensor] = []
        self._tokens: list[Tensor] = []
        self._states: list[Tensor] = []

    def add(self, chosen_B: Tensor, state_BD: Tensor) -> Tensor | None:
        """Note a step; returns the batch rows to go on with, None when every reply is finished."""
        alive_N = (~self._done[self.speaking]).nonzero()[:, 0]
        rows, tokens_N = self.speaking[alive_N], chosen_B.cpu()[alive_N]
        if self._first_k is None or len(self._states) < self._first_k:
            self._states.append(state_BD[alive_N.to(state_BD.device)])
        self._rows.append(rows)
        self._tokens.append(tokens_N)
        self._lengths[rows] += 1
        ended = torch.isin(tokens_N, self._end_ids)
        self._ended[rows[ended]] = True
        self._done[rows] = ended | (self._limits[rows] <= len(self._rows))
        alive_N = (~self._done[self.speaking]).nonzero()[:, 0]
        if not len(alive_N):
            return None
        if len(alive_N) > COMPACT_SHARE * len(self.speaking):
            return torch.arange(len(self.speaking))
        self.speaking = self.speaking[alive_N]
        return alive_N

    def finish(self, tokenizer: PreTrainedTokenizerBase) -> list[Utterance]:
        """The replies in the order of the prompts."""
        kept = self._lengths.clamp(max=len(self._states))
        tokens = self._gathered(self._tokens, self._lengths)
        states = self._gathered(self._states, kept)
        ids = [part.tolist() for part in tokens]
        plans = tokenizer.batch_decode(ids, skip_special_tokens=True)
        return [
            Utterance(token_ids, hidden_LD, plan.strip(), "eos" if ended else "length")
            for token_ids, hidden_LD, plan, ended in zip(
                ids, states, plans, self._ended.tolist(), strict=True
            )
        ]

    def _gathered(self, steps: list[Tensor], lengths: Tensor) -> tuple[Tensor, ...]:
        """Each reply's part of the steps, as views of one tensor on the CPU; empties ``steps``.

        A step is dropped once it is copied, so that there are never two of everything.
        """
        starts = lengths.cumsum(0) - lengths
        whole = steps[0].new_empty(int(lengths.sum()), *steps[0].shape[1:], device="cpu")
        while steps:
            step = len(steps) - 1
            whole[starts[self._rows[step]] + step] = steps.pop().cpu()
        return torch.split(whole, lengths.tolist())


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
