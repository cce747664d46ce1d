import pytest
import torch

from interlat.latents.message import Message


def test_a_message_holds_rows_of_floats():
    message = Message("t1", torch.zeros(3, 4), "find mug")
    assert message.hidden_LD.shape == (3, 4)


@pytest.mark.parametrize("hidden", [torch.zeros(4), torch.zeros(1, 3, 4), torch.zeros(3, 4).int()])
def test_anything_else_is_refused_by_name(hidden: torch.Tensor):
    with pytest.raises(ValueError, match="t1"):
        Message("t1", hidden, "find mug")
