"""The actor's objective: normalised over whole steps, with gradient where it belongs."""

from dataclasses import replace

import pytest
import torch

from interlat.config import TrainConfig
from interlat.training.actor import build_actor
from interlat.training.batch import Batch, Collator
from interlat.training.course import Course, Kind, Sample
from interlat.training.losses import LN2
from interlat.training.objective import TERMS, ActorObjective, read_fixed
from training.toy import Toy

CONFIG = TrainConfig(
    steps=4,
    batch_size=12,
    curriculum="plan_first",
    uninformed_share=0.1,
    mismatched_share=0.1,
    alignment_cosine_weight=0.2,
)


@pytest.fixture(scope="module")
def course(toy: Toy) -> Course:
    return Course(toy.material, CONFIG, toy.tokenizer, seed=1)


@pytest.fixture(scope="module")
def samples(course: Course) -> list[Sample]:
    return [course[i] for i in range(12)]


def make_objective(toy: Toy, config: TrainConfig = CONFIG) -> ActorObjective:
    actor = build_actor(toy.model(), toy.tokenizer, 32, config, seed=1)
    return ActorObjective(actor.eval(), config)


def gradients(objective: ActorObjective, batches: list[Batch]) -> list[torch.Tensor]:
    objective.zero_grad()
    for batch in batches:
        objective(batch).loss.backward()
    return [p.grad.clone() for p in objective.parameters() if p.grad is not None]


@pytest.mark.parametrize("micro", [1, 3, 4])
def test_micro_batches_add_up_to_the_whole_step(
    toy: Toy, course: Course, samples: list[Sample], micro: int
) -> None:
    """Guards against auxiliary losses that grow with the number of accumulation steps."""
    objective, collate = make_objective(toy), Collator(course, CONFIG)
    whole = collate(samples)["batch"]
    parts = [collate(samples[i : i + micro])["batch"] for i in range(0, 12, micro)]
    outputs = [objective(part) for part in parts]
    expected = objective(whole)
    torch.testing.assert_close(sum(o.loss for o in outputs), expected.loss)
    torch.testing.assert_close(sum(o.terms for o in outputs), expected.terms)
    for together, apart in zip(
        gradients(objective, [whole]), gradients(objective, parts), strict=True
    ):
        torch.testing.assert_close(apart, together, atol=2e-6, rtol=1e-3)


def test_the_loss_is_the_weighted_sum_of_its_terms(
    toy: Toy, course: Course, samples: list[Sample]
) -> None:
    output = make_objective(toy)(Collator(course, CONFIG)(samples)["batch"])
    term = dict(zip(TERMS, output.terms.tolist(), strict=True))
    assert output.loss.item() == pytest.approx(
        term["task"] + term["alignment"] + 0.5 * term["separation"], rel=1e-5
    )
    totals = course.totals[0]
    own = totals.own_supervised / totals.supervised
    assert term["task"] == pytest.approx(
        own * term["task_own"] + (1 - own) * term["task_other"], rel=1e-5
    )
    assert 0 < term["js"] < LN2
    rates = [sample.rate for sample in samples if sample.message is not None]
    assert term["rate"] == pytest.approx(sum(rates) / len(rates), rel=1e-5)


@pytest.mark.parametrize("schedule", ["anneal", "adaptive"])
def test_scheduled_weights_do_not_depend_on_how_a_step_is_cut(
    toy: Toy, course: Course, samples: list[Sample], schedule: str
) -> None:
    config = replace(CONFIG, separation_schedule=schedule, alignment_schedule=schedule)
    objective, collate = make_objective(toy, config), Collator(course, config)
    whole = objective(collate(samples)["batch"])
    parts = [objective(collate(samples[i : i + 4])["batch"]) for i in range(0, 12, 4)]
    torch.testing.assert_close(sum(part.loss for part in parts), whole.loss)
    term = dict(zip(TERMS, whole.terms.tolist(), strict=True))
    assert 0.01 <= term["separation_weight"] < 0.5
    assert 0.1 <= term["alignment_weight"] < 0.7


def test_the_published_form_has_another_divergence_and_another_alignment(
    toy: Toy, course: Course, samples: list[Sample]
) -> None:
    batch = Collator(course, CONFIG)(samples)["batch"]
    terms = {
        form: dict(
            zip(
                TERMS,
                make_objective(toy, replace(CONFIG, loss_form=form))(batch).terms.tolist(),
                strict=True,
            )
        )
        for form in ("clean", "published")
    }
    clean, published = terms["clean"], terms["published"]
    assert published["js"] != pytest.approx(clean["js"], rel=1e-5)
    assert published["alignment"] != pytest.approx(clean["alignment"], rel=1e-5)
    assert published["task"] == clean["task"]


def test_a_pure_plan_agrees_with_the_plan_branch(
    toy: Toy, course: Course, samples: list[Sample]
) -> None:
    objective, collate = make_objective(toy), Collator(course, CONFIG)
    plans = [s._replace(rate=1.0) for s in samples]
    term = dict(zip(TERMS, objective(collate(plans)["batch"]).terms.tolist(), strict=True))
    assert term["agreement"] == pytest.approx(1.0)
    assert term["alignment"] == pytest.approx(0.0, abs=1e-5)


def test_the_task_loss_is_the_models_own_on_the_same_conversation(
    toy: Toy, course: Course, samples: list[Sample]
) -> None:
    """Only supervised rows meet the vocabulary; the value is that of the plain computation."""
    objective = make_objective(toy)
    silent = [sample for sample in samples if sample.kind is Kind.NONE]
    nll = []
    for sample in silent:
        ids_T = torch.from_numpy(sample.conversation.ids_T)
        logits_TV = objective.actor.model(ids_T[None]).logits[0]
        supervised_N = torch.from_numpy(sample.conversation.supervised_N)
        log_TV = logits_TV.log_softmax(-1)
        nll.append(-log_TV[supervised_N - 1, ids_T[supervised_N]])
    batch = Collator(course, CONFIG)(silent)["batch"]
    totals = batch.totals._replace(
        supervised=sum(map(len, nll)), own_supervised=0, own=0, messages=0
    )
    output = objective(replace(batch, totals=totals))
    torch.testing.assert_close(output.loss, torch.cat(nll).mean())


def test_the_contrasts_are_read_without_gradient(
    toy: Toy, course: Course, samples: list[Sample]
) -> None:
    objective = make_objective(toy)
    batch = Collator(course, CONFIG)(samples)["batch"]
    for branch in (batch.plan, batch.mismatched):
        assert branch is not None
        assert not read_fixed(objective.actor, branch).requires_grad


def test_rows_measured_in_pieces_give_the_same_loss_and_gradient(
    toy: Toy, course: Course, samples: list[Sample], monkeypatch: pytest.MonkeyPatch
) -> None:
    objective = make_objective(toy)
    batch = Collator(course, CONFIG)(samples)["batch"]
    whole, expected = objective(batch), gradients(objective, [batch])
    monkeypatch.setattr("interlat.training.objective.PIECE", 200)
    torch.testing.assert_close(objective(batch).terms, whole.terms)
    for pieces, together in zip(gradients(objective, [batch]), expected, strict=True):
        torch.testing.assert_close(pieces, together, atol=1e-6, rtol=1e-4)


def test_losses_are_float32_under_bf16_autocast(
    toy: Toy, course: Course, samples: list[Sample]
) -> None:
    objective = make_objective(toy)
    batch = Collator(course, CONFIG)(samples)["batch"]
    with torch.autocast("cpu", torch.bfloat16):
        output = objective(batch)
    assert output.loss.dtype == output.terms.dtype == torch.float32
    torch.testing.assert_close(output.loss, objective(batch).loss, rtol=0.05, atol=0.05)
