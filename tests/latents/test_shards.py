from hypothesis import given
from hypothesis import strategies as st

from interlat.latents.shards import SHARD_BYTES, grouped


@given(st.lists(st.integers(0, 2 * SHARD_BYTES), max_size=30))
def test_every_item_is_in_one_shard_which_is_no_longer_than_it_must_be(sizes: list[int]):
    groups = grouped(sizes)
    assert [item for group in groups for item in group] == list(range(len(sizes)))
    for i, group in enumerate(groups):
        assert sum(sizes[item] for item in group[:-1]) < SHARD_BYTES
        assert i == len(groups) - 1 or sum(sizes[item] for item in group) >= SHARD_BYTES
