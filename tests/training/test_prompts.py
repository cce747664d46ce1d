"""Training and evaluation put one and the same prompt before an actor, whatever its kind."""

import pytest
import torch

from interlat.agents.policy import Policy, Session
from interlat.config import ActorKind, TrainConfig
from interlat.latents.sources import Delivery
from interlat.models.actor import ActorRecord
from interlat.training.actor import build_actor
from interlat.training.batch import Collator
from interlat.training.course import Course, Kind
from training.toy import Toy

CONFIG = TrainConfig(steps=2, batch_size=12, curriculum="none", uninformed_share=0.0)


@pytest.mark.parametrize("kind", ["latent", "text", "cot", "none"])
def test_the_prompt_of_training_is_that_of_evaluation(toy: Toy, kind: ActorKind) -> None:
    course = Course(toy.material, CONFIG, toy.tokenizer, seed=1, kind=kind)
    actor = build_actor(toy.model(), toy.tokenizer, 32, CONFIG, seed=1, kind=kind)
    actor.record = ActorRecord(kind)
    latent = Course(toy.material, CONFIG, toy.tokenizer, seed=1)
    number = next(i for i in range(12) if latent[i].kind is Kind.OWN)
    message = latent[number].message
    assert message is not None
    branch = Collator(course, CONFIG)([course[number]])["batch"].own
    trained_T = branch.ids_BT[0, : branch.row_N[0] + 1]

    deliveries = {
        "latent": Delivery(hidden_LD=message.hidden_LD.float()),
        "text": Delivery(text=message.plan),
        "cot": Delivery(text=message.plan),
        "none": Delivery(),
    }
    read: list[torch.Tensor] = []
    embeddings = actor.model.get_input_embeddings()
    embeddings.register_forward_pre_hook(lambda _, inputs: read.append(inputs[0]))
    first = next(t for t in toy.material.tasks if t.task_id == message.task_id).conversations[0]
    policy = Policy(actor, max_new_tokens=1)
    policy.act([Session(deliveries[kind])], [first["value"]])

    empty_T = branch.slots_BT[0, : len(trained_T)]
    evaluated_T = read[0][0]
    assert evaluated_T.shape == trained_T.shape
    assert evaluated_T[~empty_T].tolist() == trained_T[~empty_T].tolist()
    assert int(empty_T.sum()) == (len(message.hidden_LD) if kind == "latent" else 0)
