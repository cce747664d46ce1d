"""Sender and actor of different families, widths and vocabularies."""

from pathlib import Path

from interlat.agents.policy import Policy, Session
from interlat.config import TrainConfig
from interlat.latents.sources import Delivery
from interlat.models.actor import Actor
from interlat.models.tiny import TinyShape, build_model, build_tokenizer
from interlat.training.actor import train_actor
from interlat.training.course import Course
from training.toy import make_toy, watch

CONFIG = TrainConfig(steps=4, batch_size=8, heads=4, log_every=2)
SENDER_WIDTH, WIDTH = 20, 48


def test_a_llama_actor_reads_a_narrower_sender_in_its_own_words(tmp_path: Path) -> None:
    """Guards against the published code, which used one tokenizer's ids for both."""
    toy = make_toy(tmp_path, sender_width=SENDER_WIDTH)
    play = [*toy.material.tasks, *toy.material.searching]
    texts = [turn["value"] for task in play for turn in task.conversations]
    plans = [task.plan or "" for task in play]
    tokenizer = build_tokenizer([*texts, *plans], "llama")
    assert tokenizer.get_vocab()["find"] != toy.tokenizer.get_vocab()["find"]
    shape = TinyShape(WIDTH, 2, 2, 2 * WIDTH)
    model = build_model(tokenizer, shape, seed=1, architecture="llama")

    sample = next(s for s in iter(Course(toy.material, CONFIG, tokenizer, seed=1)) if s.message)
    assert sample.message is not None
    assert tokenizer.decode(sample.plan_ids) == sample.message.plan
    output = tmp_path / "actor"
    train_actor(model, tokenizer, toy.material, CONFIG, seed=1, output=output, watch=watch)

    actor = Actor.load(output)
    assert (actor.sender_width, actor.width) == (SENDER_WIDTH, WIDTH)
    assert actor.adapter is not None
    assert actor.adapter.input_projector is not None
    delivery = Delivery(hidden_LD=toy.material.messages.get("toy-5").hidden_LD.float())
    (reply,) = Policy(actor, max_new_tokens=3).act([Session(delivery)], ["find the cup in room 5"])
    assert set(reply.token_ids) <= set(tokenizer.get_vocab().values())
