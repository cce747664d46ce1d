"""The communication adapter."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from interlat.config import UserError
from interlat.models.adapter import AdapterConfig, CommunicationAdapter

CONFIG = AdapterConfig(sender_width=24, width=32, heads=4)


def make_adapter(config: AdapterConfig = CONFIG) -> CommunicationAdapter:
    torch.manual_seed(0)
    return CommunicationAdapter(config).eval()


def messages(*lengths: int, width: int = 24) -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(n, width, generator=generator) * 3 for n in lengths]


def padded(rows: list[Tensor], fill: float = 0.0) -> tuple[Tensor, Tensor]:
    longest = max(len(r) for r in rows)
    hidden_BLD = torch.full((len(rows), longest, rows[0].shape[1]), fill)
    mask_BL = torch.zeros(len(rows), longest, dtype=torch.bool)
    for i, r in enumerate(rows):
        hidden_BLD[i, : len(r)], mask_BL[i, : len(r)] = r, True
    return hidden_BLD, mask_BL


@pytest.mark.parametrize("output_std", [0.02, 0.08])
def test_rows_start_at_the_scale_of_the_receivers_embeddings(output_std: float) -> None:
    adapter = make_adapter(AdapterConfig(64, 64, heads=8, output_std=output_std))
    for scale in (0.1, 50.0):
        rows_BLD = adapter(*padded([messages(200, width=64)[0] * scale]))
        assert rows_BLD.std().item() == pytest.approx(output_std, rel=0.02)


def test_the_papers_scales_belong_to_the_usual_embedding_scale() -> None:
    projection = make_adapter(AdapterConfig(64, 64)).projection
    assert projection.input_scale.item() == pytest.approx(0.2)
    assert projection.output_scale.item() == pytest.approx(0.1)


def test_initial_weights_are_within_their_xavier_bounds_and_biases_zero() -> None:
    adapter = make_adapter(AdapterConfig(64, 64))
    attention, projection = adapter.attention, adapter.projection
    bounds = {
        attention.in_proj_weight: (6 / (3 * 64 + 64)) ** 0.5 / 3**0.5,
        attention.out_proj.weight: (6 / 128) ** 0.5,
        projection.down.weight: 0.01 * (6 / 128) ** 0.5,
    }
    for weight, bound in bounds.items():
        assert 0.95 * bound < weight.abs().max().item() <= bound
    assert projection.up.weight.std().item() == pytest.approx(0.02, rel=0.05)
    for bias in (
        attention.in_proj_bias,
        attention.out_proj.bias,
        projection.up.bias,
        projection.down.bias,
    ):
        assert not bias.any()


def test_it_has_as_many_parameters_as_the_papers() -> None:
    def count(adapter: CommunicationAdapter) -> int:
        return sum(p.numel() for p in adapter.parameters())

    width = 32
    assert count(make_adapter(AdapterConfig(width, width))) == 6 * width**2 + 12 * width + 2
    assert make_adapter(AdapterConfig(width, width)).input_projector is None
    assert count(make_adapter()) == 6 * width**2 + 12 * width + 2 + 24 * width + width


@pytest.mark.parametrize("fill", [0.0, 1e4, float("nan")])
def test_padding_changes_nothing(fill: float) -> None:
    adapter, rows = make_adapter(), messages(3, 9, 1, 5)
    together_BLD = adapter(*padded(rows, fill))
    for row_LD, adapted_LD in zip(rows, together_BLD, strict=True):
        alone_LD = adapter(*padded([row_LD]))[0]
        torch.testing.assert_close(adapted_LD[: len(row_LD)], alone_LD, atol=1e-6, rtol=1e-5)
        assert not adapted_LD[len(row_LD) :].any()


def test_padding_changes_no_gradient() -> None:
    adapter, (short_LD,) = make_adapter(), messages(3)
    hidden_BLD, mask_BL = padded([short_LD, *messages(7)], float("nan"))
    gradients = []
    for hidden, mask in ((hidden_BLD, mask_BL), padded([short_LD])):
        adapter.zero_grad()
        adapter(hidden, mask)[0].square().sum().backward()
        gradients.append([p.grad.clone() for p in adapter.parameters() if p.grad is not None])
    for together, alone in zip(*gradients, strict=True):
        torch.testing.assert_close(together, alone, atol=1e-6, rtol=1e-4)


def test_a_message_without_rows_disturbs_nobody() -> None:
    adapter, (real_LD,) = make_adapter(), messages(4)
    hidden_BLD, mask_BL = padded([real_LD, real_LD[:0]])
    rows_BLD = adapter(hidden_BLD, mask_BL)
    assert not rows_BLD[1].any()
    torch.testing.assert_close(rows_BLD[0], adapter(*padded([real_LD]))[0])
    assert adapter(*padded([real_LD[:0]] * 2)).shape == (2, 0, 32)


def test_dropout_acts_in_training_only() -> None:
    adapter, batch = make_adapter(), padded(messages(6))
    assert torch.equal(adapter(*batch), adapter(*batch))
    adapter.train()
    assert not torch.equal(adapter(*batch), adapter(*batch))


def test_autocast_does_not_change_a_message() -> None:
    adapter, batch = make_adapter(), padded(messages(6))
    with torch.autocast("cpu", torch.bfloat16):
        inside = adapter(*batch)
    assert torch.equal(inside, adapter(*batch))


def test_half_precision_messages_are_read_in_the_weights_type() -> None:
    adapter, (hidden_BLD, mask_BL) = make_adapter(), padded(messages(6))
    rows_BLD = adapter(hidden_BLD.half(), mask_BL)
    assert rows_BLD.dtype == torch.float32
    torch.testing.assert_close(rows_BLD, adapter(hidden_BLD, mask_BL), atol=1e-4, rtol=1e-2)


def test_it_is_saved_and_loaded_whole_projector_included(tmp_path: Path) -> None:
    """Guards against the published code, which trained a projector and never saved it."""
    adapter, batch = make_adapter().train(), padded(messages(6, 2))
    adapter.save(tmp_path)
    loaded = CommunicationAdapter.load(tmp_path)
    assert loaded.config == CONFIG
    assert not loaded.training
    assert torch.equal(loaded(*batch), adapter.eval()(*batch))
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "communication_adapter.json",
        "communication_adapter.safetensors",
    ]


def test_what_is_no_adapter_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"communication_adapter\.json is missing"):
        CommunicationAdapter.load(tmp_path)
    make_adapter().save(tmp_path)
    description = tmp_path / "communication_adapter.json"
    text = description.read_text()
    description.write_text(text.replace('"version": 1', '"version": 2'))
    with pytest.raises(UserError, match="version 2, this program reads 1"):
        CommunicationAdapter.load(tmp_path)
    description.write_text(text.replace('"width": 32', '"width": 64'))
    with pytest.raises(UserError, match="holds no communication adapter"):
        CommunicationAdapter.load(tmp_path)


def test_heads_must_divide_the_width() -> None:
    with pytest.raises(ValueError, match="5 heads do not divide the adapter width 32"):
        AdapterConfig(32, 32, heads=5)
