"""One store of several that the same model made under the same settings, for other tasks."""

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import Any

from interlat.config import UserError
from interlat.latents.columns import batched
from interlat.latents.manifest import flattened, work_of
from interlat.latents.store import LatentStore
from interlat.latents.writer import LatentWriter

OF_A_PART = ("tasks", "merged")
"""Sections that belong to each store, even where they are equal."""
MAY_DIFFER = ("tasks.", "prompt.sha256", "packages.", "merged")
"""Settings, or beginnings of them, that stores of one kind need not share."""


def merge(
    stores: Sequence[LatentStore],
    output: Path,
    *,
    parquet: bool = True,
    on_progress: Callable[[int], None] = lambda done: None,
) -> None:
    """Write the messages of all stores, in order, as one store; its manifest says of what.

    on_progress: called with the number of messages since the last call.
    Raises UserError when there is something at ``output`` already, a store has no manifest, two
    differ in a setting, or a task comes twice.
    """
    if output.exists():
        raise UserError(f"{output} exists; choose another folder")
    works = [_work(store) for store in stores]
    for store, work in zip(stores[1:], works[1:], strict=True):
        _require_same(stores[0], works[0], store, work)
    _require_distinct(stores)
    common = reduce(_common, works)
    parts = [
        {"manifest_sha256": store.digest, "messages": len(store), **_rest(work, common)}
        for store, work in zip(stores, works, strict=True)
    ]
    writer = LatentWriter(
        output,
        {**common, "merged": parts},
        width=stores[0].width,
        dtype=common["dtype"],
        questions=stores[0].has_questions,
    )
    writer.claim()
    try:
        pieces = 0
        for part in (part for store in stores for part in batched(store)):
            if not writer.has_piece(pieces):
                writer.write_piece(pieces, part)
            pieces += 1
            on_progress(len(part))
        writer.write_piece(pieces, [], _failures(stores))
        writer.publish(pieces + 1, parquet=parquet)
    finally:
        writer.release()


def _work(store: LatentStore) -> dict[str, Any]:
    if store.manifest is None:
        raise UserError(f"{store.path} has no manifest; only stores of a collection can be merged")
    return work_of(store.manifest)


def _require_same(
    first: LatentStore, first_work: dict[str, Any], other: LatentStore, work: dict[str, Any]
) -> None:
    """Raise UserError naming the first setting in which the two differ."""
    ours, theirs = flattened(first_work), flattened(work)
    for key in dict.fromkeys([*ours, *theirs]):
        if not key.startswith(MAY_DIFFER) and ours.get(key) != theirs.get(key):
            raise UserError(
                f"{first.path} and {other.path} cannot be merged: {key} is {ours.get(key)!r} "
                f"in the one and {theirs.get(key)!r} in the other"
            )
    if first.columns != other.columns:
        raise UserError(f"{first.path} and {other.path} cannot be merged: other columns")


def _require_distinct(stores: Sequence[LatentStore]) -> None:
    owner: dict[str, Path] = {}
    for store in stores:
        for task_id in store.ids:
            if task_id in owner:
                raise UserError(f"task {task_id!r} is in {owner[task_id]} and in {store.path}")
            owner[task_id] = store.path


def _common(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> dict[str, Any]:
    """What two trees of settings share."""
    common: dict[str, Any] = {}
    for key in (ours.keys() & theirs.keys()) - set(OF_A_PART):
        if isinstance(ours[key], Mapping) and isinstance(theirs[key], Mapping):
            common[key] = _common(ours[key], theirs[key])
        elif ours[key] == theirs[key]:
            common[key] = ours[key]
    return {key: common[key] for key in ours if key in common}


def _rest(work: Mapping[str, Any], common: Mapping[str, Any]) -> dict[str, Any]:
    """What a tree of settings has beyond the common one."""
    rest: dict[str, Any] = {}
    for key, value in work.items():
        if isinstance(value, Mapping) and key in common:
            if inner := _rest(value, common[key]):
                rest[key] = inner
        elif key not in common:
            rest[key] = value
    return rest


def _failures(stores: Sequence[LatentStore]) -> dict[str, str]:
    """What failed in one store and succeeded in none."""
    return {
        task_id: reason
        for store in stores
        for task_id, reason in store.failures.items()
        if not any(task_id in other for other in stores)
    }
