"""Two optimizers that act as one: the same numbers as each alone, kept and restored together."""

import copy
import io
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, nn
from torch.optim import AdamW, Muon, Optimizer
from torch.optim.lr_scheduler import LambdaLR

from interlat.training.optimizers import MuonWithAdamW

RATES = {"matrix_rate": 0.02, "other_rate": 0.003, "weight_decay": 0.1}


@pytest.fixture
def model() -> nn.Sequential:
    """An embedding, two matrices, biases and a norm."""
    torch.manual_seed(4)
    return nn.Sequential(nn.Embedding(10, 6), nn.Linear(6, 8), nn.LayerNorm(8), nn.Linear(8, 10))


def both(model: nn.Sequential) -> MuonWithAdamW:
    return MuonWithAdamW(model, [model[0].weight], **RATES)


def apart(model: nn.Sequential) -> list[Optimizer]:
    """The two optimizers as torch has them."""
    matrices = [model[1].weight, model[3].weight]
    others = [p for p in model.parameters() if all(p is not matrix for matrix in matrices)]
    muon = Muon(matrices, lr=0.02, momentum=0.95, weight_decay=0.1, adjust_lr_fn="match_rms_adamw")
    return [muon, AdamW(others, lr=0.003, betas=(0.9, 0.98), weight_decay=0.1)]


def descend(model: nn.Module, optimizers: Sequence[Optimizer], steps: int, seed: int = 0) -> None:
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        ids_B = torch.randint(10, (16,), generator=generator)
        loss = nn.functional.cross_entropy(model(ids_B), (ids_B * 3 + 1) % 10)
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()


def equal(one: nn.Module, other: nn.Module) -> bool:
    pairs = zip(one.parameters(), other.parameters(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


def test_it_is_torch_s_own_two_run_side_by_side(model: nn.Sequential) -> None:
    alone = copy.deepcopy(model)
    descend(model, [both(model)], 5)
    descend(alone, apart(alone), 5)
    assert equal(model, alone)


def test_a_restored_state_goes_on_as_if_never_saved(model: nn.Sequential) -> None:
    """Guards against a copy whose groups are not those that the two parts step with."""
    optimizer = both(model)
    descend(model, [optimizer], 3)
    file = io.BytesIO()
    torch.save(optimizer.state_dict(), file)
    file.seek(0)
    other = copy.deepcopy(model)
    restored = both(other)
    restored.load_state_dict(torch.load(file, weights_only=True))
    for each in (optimizer, restored):
        for group in each.param_groups:
            group["lr"] *= 0.5
    descend(model, [optimizer], 3, seed=1)
    descend(other, [restored], 3, seed=1)
    assert equal(model, other)


@pytest.mark.parametrize("reloaded", [False, True])
def test_a_schedule_moves_both_rates(model: nn.Sequential, reloaded: bool) -> None:
    optimizer = both(model)
    schedule = LambdaLR(optimizer, lambda step: 1.0 if step == 0 else 0.0)
    if reloaded:
        optimizer.load_state_dict(optimizer.state_dict())
    assert [group["lr"] for group in optimizer.param_groups] == [0.02, 0.003]
    descend(model, [optimizer], 1)
    schedule.step()
    assert [group["lr"] for group in optimizer.param_groups] == [0.0, 0.0]
    before = copy.deepcopy(model)
    descend(model, [optimizer], 1)
    assert equal(model, before)


def test_a_closure_is_called_once_and_its_loss_returned(model: nn.Sequential) -> None:
    optimizer = both(model)
    losses = []

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = model(torch.arange(10)).square().mean()
        loss.backward()
        losses.append(loss)
        return loss

    assert optimizer.step(closure) is losses[0]
    assert len(losses) == 1


def test_what_needs_no_gradient_stays(model: nn.Sequential) -> None:
    model[1].requires_grad_(False)
    before = model[1].weight.clone()
    optimizer = both(model)
    descend(model, [optimizer], 2)
    assert torch.equal(model[1].weight, before)
    assert sum(len(group["params"]) for group in optimizer.param_groups) == 5
