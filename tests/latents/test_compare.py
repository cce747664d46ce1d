import dataclasses
from pathlib import Path

from datasets import Dataset
from latents.stores import make_store, some_messages

from interlat.latents.compare import compare
from interlat.latents.store import LatentStore


def test_equal_stores_do_not_differ(tmp_path: Path):
    first, second = (make_store(tmp_path / name, some_messages(0, 4)) for name in "ab")
    difference = compare(first, second)
    assert difference.is_none
    assert (difference.only_first, difference.largest_absolute) == ([], 0.0)


def test_every_kind_of_difference_is_named(tmp_path: Path):
    messages = some_messages(0, 5)
    first = make_store(tmp_path / "a", messages[:4], generation={"seed": 1})
    moved = dataclasses.replace(messages[1], hidden_LD=messages[1].hidden_LD + 0.5)
    shorter = dataclasses.replace(messages[2], hidden_LD=messages[2].hidden_LD[:2])
    other = dataclasses.replace(messages[3], plan="another")
    second = make_store(
        tmp_path / "b", [moved, shorter, other, messages[4]], generation={"seed": 2}
    )
    difference = compare(first, second)
    assert not difference.is_none
    assert (difference.only_first, difference.only_second) == (["t0"], ["t4"])
    assert (difference.plans, difference.shapes) == (["t3"], ["t2"])
    assert abs(difference.largest_absolute - 0.5) < 1e-6
    assert difference.settings == {"generation.seed": (1, 2)}


def test_float16_is_half_a_unit_from_float32_at_most(tmp_path: Path):
    messages = some_messages(0, 400)
    difference = compare(
        make_store(tmp_path / "a", messages), make_store(tmp_path / "b", messages, dtype="float16")
    )
    assert 1e-4 < difference.largest_relative <= 2**-11
    assert difference.settings == {"dtype": ("float32", "float16")}


def test_a_number_that_is_none_differs_from_any_other(tmp_path: Path):
    nan = float("nan")
    for name, number in {"a": nan, "b": nan, "c": 1.0}.items():
        rows = [{"id": "t", "hidden_state": [[number, 2.0]]}]
        Dataset.from_list(rows).save_to_disk(tmp_path / name)
    first, same, other = (LatentStore(tmp_path / name) for name in "abc")
    assert compare(first, same).is_none
    assert compare(first, other).largest_absolute == float("inf")
