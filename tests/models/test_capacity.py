"""How many replies fit: fewer of longer ones, and one at least."""

from pathlib import Path

import pytest

from interlat.models import capacity
from interlat.models.capacity import MOST, replies_that_fit
from interlat.models.load import load_causal_lm


def test_longer_replies_leave_room_for_fewer(
    tiny_checkpoint: Path, monkeypatch: pytest.MonkeyPatch
):
    model = load_causal_lm(str(tiny_checkpoint))[0]
    assert replies_that_fit(model, 100, 100, 100) == MOST
    monkeypatch.setattr(capacity, "_usable_bytes", lambda device: 40e6)
    short = replies_that_fit(model, 100, 100, 100)
    # 2 layers, keys and values of 32 floats: 512 bytes a token, and a quarter to spare.
    cached, passing, states = 1.25 * 200 * 512, 100 * 16 * 32 * 4, 100 * 32 * 4
    assert short == int(40e6 / (cached + passing + states))
    assert replies_that_fit(model, 100, 1000, 1000) < short
    assert replies_that_fit(model, 100, 10**9, 0) == 1
