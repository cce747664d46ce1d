"""The cache that appends gives what the library's own gives, and copies less."""

import torch
from transformers import (
    DynamicCache,
    Gemma2Config,
    Gemma2ForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from interlat.models.appending import ROOM, AppendingLayer, appending_cache

SIZES = {
    "vocab_size": 40,
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
}


def test_keys_and_values_are_those_of_the_librarys_cache():
    model = Qwen2ForCausalLM(Qwen2Config(**SIZES))
    ours, theirs = appending_cache(model), DynamicCache(config=model.config)
    generator = torch.Generator().manual_seed(0)
    rows = 6
    for step in range(2 * ROOM):
        columns = 5 if step == 0 else 1
        for layer in range(2):
            keys = torch.randn(rows, 1, columns, 16, generator=generator)
            values = torch.randn(rows, 1, columns, 8, generator=generator)
            pairs = [cache.update(keys, values, layer) for cache in (ours, theirs)]
            for mine, other in zip(*pairs, strict=True):
                assert torch.equal(mine, other)
        if step in (3, 90):
            kept = torch.tensor([0, 2, 3][: rows // 2])
            rows = len(kept)
            for cache in (ours, theirs):
                cache.reorder_cache(kept)
    assert ours.get_seq_length() == theirs.get_seq_length() == 2 * ROOM + 4


def test_a_token_is_written_beside_the_others():
    layer = AppendingLayer()
    states = torch.ones(2, 1, 3, 4)
    keys, _ = layer.update(states, states)
    more, _ = layer.update(2 * states[:, :, :1], states[:, :, :1])
    assert more.data_ptr() == keys.data_ptr()
    assert more[0, 0, :, 0].tolist() == [1, 1, 1, 2]


def test_layers_with_a_window_stay_the_librarys():
    config = Gemma2Config(**SIZES, head_dim=16, sliding_window=8)
    layers = appending_cache(Gemma2ForCausalLM(config)).layers
    assert [type(layer).__name__ for layer in layers] == [
        "DynamicSlidingWindowLayer",
        "AppendingLayer",
    ]
