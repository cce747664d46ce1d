"""A tiny random model plays scripted conversations; references encode everything from scratch."""

from collections.abc import Sequence

import pytest
import torch
from transformers import PreTrainedTokenizerFast

from interlat.agents.policy import Policy, Reply, Session
from interlat.chat import continuation, render
from interlat.config import UserError
from interlat.latents.chance import task_generator
from interlat.latents.sources import Delivery
from interlat.models.actor import Actor
from interlat.models.adapter import AdapterConfig, CommunicationAdapter
from interlat.models.tiny import TinyShape, build_model, build_tokenizer

WORDS = "go to take from open put in on look at hot clean apple plate nothing happens now then"
TURNS = [
    ["look at apple 1", "nothing happens", "then open plate 2 now", "take apple 1"],
    ["put clean plate 2 on apple 3 then look", "open", "go to plate 1", "nothing happens then"],
    ["take hot apple 2 from plate 1", "now look at apple 3", "nothing happens", "put"],
    ["open", "look at plate 3 now then go to apple 1", "take apple 2", "nothing"],
]


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    return build_tokenizer([WORDS, "apple 3 plate 3"])


@pytest.fixture(scope="module")
def actor(tokenizer: PreTrainedTokenizerFast) -> Actor:
    model = build_model(tokenizer, TinyShape(32, 2, 2, 48), seed=6)
    for parameter in model.parameters():
        if parameter.ndim == 2:  # far from uniform, so that replies differ and sometimes end
            torch.nn.init.normal_(parameter, std=0.3)
    adapter = CommunicationAdapter(
        AdapterConfig(sender_width=24, width=32, heads=2, output_std=0.3)
    )
    return Actor(model, tokenizer, adapter).eval()


@pytest.fixture(scope="module")
def deliveries() -> list[Delivery]:
    noise = torch.Generator().manual_seed(5)
    return [
        Delivery(hidden_LD=torch.randn(5, 24, generator=noise)),
        Delivery(),
        Delivery(text="go to plate 3 then take apple 1"),
        Delivery(hidden_LD=torch.randn(2, 24, generator=noise)),
    ]


def play(
    policy: Policy, deliveries: Sequence[Delivery], turns: Sequence[Sequence[str]]
) -> list[list[Reply]]:
    """All turns of all conversations in lockstep; the shorter ones leave when they run out."""
    sessions = [
        Session(delivery, task_generator(1, str(i), "policy"))
        for i, delivery in enumerate(deliveries)
    ]
    replies: list[list[Reply]] = [[] for _ in turns]
    for step in range(max(map(len, turns))):
        here = [i for i, texts in enumerate(turns) if step < len(texts)]
        answers = policy.act([sessions[i] for i in here], [turns[i][step] for i in here])
        for i, answer in zip(here, answers, strict=True):
            replies[i].append(answer)
    return replies


@torch.inference_mode()
def from_scratch(
    actor: Actor, delivery: Delivery, turns: Sequence[str], most: int
) -> list[list[int]]:
    """Greedy replies of one episode, every token by a forward pass over the whole history."""
    tokenizer = actor.tokenizer
    message = delivery.text if delivery.hidden_LD is None else len(delivery.hidden_LD)
    rows = None if delivery.hidden_LD is None else actor.message_rows([delivery.hidden_LD])[0]
    ids: list[int] = []
    slots = range(0)
    conversation: list[dict[str, str]] = []
    replies = []
    for turn in turns:
        conversation.append({"from": "human", "value": turn})
        if ids:
            ids += continuation(tokenizer, conversation)
        else:
            prompt = render(tokenizer, conversation, message=message, add_generation_prompt=True)
            ids, slots = list(prompt.token_ids), prompt.slots
        reply: list[int] = []
        while len(reply) < most:
            ids_BT = torch.tensor([ids])
            mask = torch.zeros(ids_BT.shape, dtype=torch.bool)
            mask[0, slots] = rows is not None
            hidden = actor.hidden_states(actor.embed(ids_BT, mask, rows))[0, -1:]
            chosen = int(actor.logits(hidden).argmax())
            if chosen == tokenizer.eos_token_id:
                break
            reply.append(chosen)
            ids.append(chosen)
        ids.append(tokenizer.eos_token_id)
        conversation.append({"from": "gpt", "value": "said"})
        replies.append(reply)
    return replies


def test_a_kept_cache_says_what_encoding_the_whole_history_again_would_say(
    actor: Actor, deliveries: list[Delivery]
) -> None:
    replies = play(Policy(actor, max_new_tokens=6), deliveries, TURNS)

    for said, delivery, turns in zip(replies, deliveries, TURNS, strict=True):
        assert [reply.token_ids for reply in said] == from_scratch(actor, delivery, turns, 6)
    reasons = {reply.finish_reason for said in replies for reply in said}
    assert reasons == {"stop", "length"}, "the model should both end turns and be cut"


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_an_episode_says_the_same_alone_and_among_others(
    actor: Actor, deliveries: list[Delivery], temperature: float
) -> None:
    together = play(Policy(actor, max_new_tokens=6, temperature=temperature), deliveries, TURNS)

    for i, (delivery, turns) in enumerate(zip(deliveries, TURNS, strict=True)):
        padding = [Delivery()] * i  # the i-th seed belongs to the i-th session
        alone = play(
            Policy(actor, max_new_tokens=6, temperature=temperature),
            [*padding, delivery],
            [*[[]] * i, turns],
        )
        assert alone[i] == together[i]


def test_sampling_differs_from_greedy_and_by_seed(actor: Actor) -> None:
    policy = Policy(actor, max_new_tokens=6, temperature=1.0)
    sessions = [Session(Delivery(), torch.Generator().manual_seed(seed)) for seed in range(8)]

    replies = policy.act(sessions, ["look at apple 1"] * 8)

    assert len({reply.text for reply in replies}) > 4


def test_leaving_rows_change_nothing_for_those_that_stay(
    actor: Actor, deliveries: list[Delivery]
) -> None:
    everyone = play(Policy(actor, max_new_tokens=6), deliveries, TURNS)
    shorter = [turns[: i + 1] for i, turns in enumerate(TURNS)]

    some = play(Policy(actor, max_new_tokens=6), deliveries, shorter)

    assert some == [said[: i + 1] for i, said in enumerate(everyone)]


def test_an_episode_that_enters_late_says_the_same(
    actor: Actor, deliveries: list[Delivery]
) -> None:
    expected = play(Policy(actor, max_new_tokens=6), deliveries, TURNS)
    policy = Policy(actor, max_new_tokens=6)
    early, late = Session(deliveries[1]), Session(deliveries[0])

    policy.act([early], TURNS[1][:1])
    first = policy.act([late, early], [TURNS[0][0], TURNS[1][1]])
    second = policy.act([early, late], [TURNS[1][2], TURNS[0][1]])

    assert first == [expected[0][0], expected[1][1]]
    assert second == [expected[1][2], expected[0][1]]


def test_conversations_hold_what_was_heard_and_said(actor: Actor) -> None:
    session = Session(Delivery())

    (reply,) = Policy(actor, max_new_tokens=4).act([session], ["look at apple 1"])

    assert session.conversation == [
        {"from": "human", "value": "look at apple 1"},
        {"from": "gpt", "value": reply.text},
    ]


def test_a_message_reaches_the_actor_only_through_its_rows(
    actor: Actor, deliveries: list[Delivery]
) -> None:
    hidden_LD = deliveries[0].hidden_LD
    assert hidden_LD is not None
    policy = Policy(actor, max_new_tokens=6)
    others = [Delivery(hidden_LD=hidden_LD.flip(0)), Delivery(hidden_LD=-hidden_LD), Delivery()]

    said = [policy.act([Session(d)], TURNS[0][:1])[0] for d in (deliveries[0], *others)]

    assert len({reply.text for reply in said}) > 1
    assert said[0] == policy.act([Session(deliveries[0])], TURNS[0][:1])[0]


def test_an_episode_without_room_to_answer_ends_and_the_others_go_on(
    tokenizer: PreTrainedTokenizerFast, actor: Actor
) -> None:
    model = build_model(tokenizer, TinyShape(32, 2, 2, 48), seed=3)
    model.config.max_position_embeddings = 24
    policy = Policy(Actor(model, tokenizer), max_new_tokens=4)
    long, short = Session(Delivery(text="open " * 20)), Session(Delivery())

    replies = policy.act([long, short], ["open", "open"])

    assert replies[0] == Reply("", [], "context")
    assert replies[1].finish_reason in ("stop", "length")
    assert policy.act([short], ["open " * 30])[0].finish_reason == "context"


def test_a_model_that_forgets_is_refused(tokenizer: PreTrainedTokenizerFast) -> None:
    model = build_model(tokenizer, TinyShape(32, 2, 2, 48), seed=3)
    model.config.layer_types = ["full_attention", "sliding_attention"]

    with pytest.raises(UserError, match="sliding_attention"):
        Policy(Actor(model, tokenizer), max_new_tokens=4)
