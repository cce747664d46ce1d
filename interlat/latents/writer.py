"""Writing a latent store: piece by piece beside it, then all of it at once.

Work goes on in ``<output>.partial/``: a journal that says what is being collected, and finished
pieces (Arrow streams that appear by rename, so that one which exists is whole). Pieces are numbered
and their content depends on nothing but the work itself, so that whoever goes on after a kill, and
with however many processes, ends with the same bytes. ``publish`` joins them in order into shards,
each process its own, writes the manifest last, and renames the store into place. Nothing is
gathered. All processes must see one file system, which for a while holds the data three times:
pieces, shards and Parquet.
"""

import fcntl
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from interlat import distributed
from interlat.config import UserError
from interlat.files import atomic_write_json, atomic_write_text, make_folder, read_json
from interlat.latents.card import dataset_card
from interlat.latents.columns import features, record_batches
from interlat.latents.manifest import (
    CARD,
    DATASET,
    FORMAT,
    JOURNAL,
    MANIFEST,
    PARQUET,
    fingerprint,
    incomplete,
    partial_folder,
    read_manifest,
)
from interlat.latents.message import Message
from interlat.latents.shards import (
    UNFINISHED,
    described,
    grouped,
    note,
    read_stream,
    room_for,
    shard_name,
    sync,
    with_note,
    write_dataset_files,
    write_parquet,
    write_stream,
)

_FAILURES = "failures"


class LatentWriter:
    """Pieces of one collection, and the store that they become.

    work: everything that decides what is in the store, as JSON values without times, paths and host
    names; they become part of the manifest. questions: with columns task_type and task_level.
    """

    def __init__(
        self,
        output: Path,
        work: Mapping[str, Any],
        *,
        width: int,
        dtype: str,
        questions: bool = False,
    ) -> None:
        self.output = output
        self.work = {"format": FORMAT, **work, "d_s": width, "dtype": dtype}
        self.fingerprint = fingerprint(self.work)
        self._partial = partial_folder(output)
        self._features = features(width, dtype, questions=questions)
        self._schema: pa.Schema = self._features.arrow_schema
        self._lock: int | None = None

    @property
    def is_published(self) -> bool:
        """Whether the finished store of this very work is in place, all of its files there."""
        manifest = read_manifest(self.output)
        return (
            manifest is not None
            and manifest.get("fingerprint") == self.fingerprint
            and not incomplete(self.output, manifest)
        )

    def claim(self) -> None:
        """Take the folder for this job and drop pieces of other work; one of its processes calls.

        Raises UserError when another job holds it, or the output is something else than a store.
        """
        if _holds_something_else(self.output):
            raise UserError(f"{self.output} exists and is not a latent store; choose another")
        with room_for(self.output):
            self._take_journal()
            self._put_back()
            self._pieces.mkdir(exist_ok=True)
        for stale in self._pieces.glob(UNFINISHED):
            stale.unlink()

    def release(self) -> None:
        """Let another job claim the folder (the end of the process does so too)."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def has_piece(self, number: int) -> bool:
        """Whether piece ``number`` is finished."""
        return self._piece(number).is_file()

    def write_piece(
        self, number: int, messages: Sequence[Message], failures: Mapping[str, str] | None = None
    ) -> None:
        """Write a piece whole, or not at all; errors as ``record_batch``.

        failures: task id -> why there is no message for it.
        """
        schema = self._schema
        if failures:
            schema = with_note(schema, _FAILURES, dict(failures))
        with room_for(self.output):
            write_stream(self._piece(number), schema, record_batches(messages, self._schema))

    def failures(self, pieces: Iterable[int]) -> dict[str, str]:
        """Task id -> reason, of what failed in these (finished) pieces."""
        noted = [note(self._piece(number), _FAILURES) or {} for number in pieces]
        return {task_id: reason for piece in noted for task_id, reason in piece.items()}

    def publish(self, pieces: int, *, parquet: bool = True) -> None:
        """Join pieces 0 to ``pieces - 1`` into the finished store and put it in place.

        Every process of the job calls it and writes its part of the shards; when it returns, the
        store is in place. An older store at the output is replaced. Raises UserError when there is
        no message in any piece.
        """
        store, entries = self._build / "store", self._build / "entries"
        if distributed.is_main():
            shutil.rmtree(self._build, ignore_errors=True)
            for folder in (store / DATASET, entries):
                folder.mkdir(parents=True)
        distributed.barrier()
        groups = grouped([self._piece(number).stat().st_size for number in range(pieces)])
        with room_for(self.output):
            for number in distributed.shard(len(groups)):
                path = store / DATASET / shard_name(number, len(groups))
                entry = self._write_shard(path, groups[number])
                atomic_write_json(entries / f"{number}.json", entry)
            if distributed.is_main() and parquet:
                write_parquet(store / PARQUET, self._schema, self._batches(range(pieces)))
            distributed.barrier()
            if distributed.is_main():
                shards = [read_json(entries / f"{i}.json") for i in range(len(groups))]
                self._complete(store, shards, self.failures(range(pieces)))
                self._put_in_place(store)
                self.discard()
        distributed.barrier()

    def discard(self) -> None:
        """Remove the unfinished work."""
        shutil.rmtree(self._partial, ignore_errors=True)
        self.release()

    @property
    def _pieces(self) -> Path:
        return self._partial / "pieces"

    @property
    def _build(self) -> Path:
        """Where the store is put together; other work has another, as it has other pieces."""
        return self._partial / f"build-{self.fingerprint[:16]}"

    @property
    def _replaced(self) -> Path:
        return self._partial / "replaced"

    def _piece(self, number: int) -> Path:
        return self._pieces / f"{number:06d}-{self.fingerprint[:16]}.arrow"

    def _batches(self, numbers: Iterable[int]) -> Iterator[pa.RecordBatch]:
        for number in numbers:
            yield from read_stream(self._piece(number))

    def _take_journal(self) -> None:
        """Lock the journal, and write in it what is being collected where it says otherwise."""
        journal = self._partial / JOURNAL
        while self._lock is None:
            make_folder(self._partial)
            self._lock = _locked(journal)
            if self._lock is None:
                raise UserError(f"another process is collecting into {self.output}")
            if not _is_same(self._lock, journal):  # its job ended meanwhile and removed it
                self.release()
        entry = json.dumps({"fingerprint": self.fingerprint, "work": self.work}, indent=1)
        if journal.read_bytes() != entry.encode():
            for folder in (self._pieces, *self._partial.glob("build-*")):
                shutil.rmtree(folder, ignore_errors=True)
            os.ftruncate(self._lock, 0)
            os.pwrite(self._lock, entry.encode(), 0)
            os.fsync(self._lock)

    def _put_back(self) -> None:
        """The older store, where a kill came between the two renames that replace it."""
        if (self._replaced / MANIFEST).is_file() and not self.output.exists():
            self._replaced.rename(self.output)

    def _write_shard(self, path: Path, pieces: Iterable[int]) -> dict[str, Any]:
        lengths = write_stream(path, self._schema, self._batches(pieces))
        return {"lengths": lengths, **described(path)}

    def _complete(
        self, store: Path, shards: Sequence[dict[str, Any]], failures: Mapping[str, str]
    ) -> None:
        """Write what there is once beside the shards; the manifest last."""
        counts = [shard.pop("lengths") for shard in shards]
        lengths = [length for count in counts for length in count]
        if not lengths:
            reason = next(iter(failures.values()), "there was none to collect")
            raise UserError(f"{self.output}: no message could be collected: {reason}")
        files = write_dataset_files(
            store / DATASET, self._features, [s["file"] for s in shards], self.fingerprint
        )
        table = store / PARQUET
        manifest: dict[str, Any] = {
            **self.work,
            "fingerprint": self.fingerprint,
            "totals": {
                "messages": len(lengths),
                "rows": sum(lengths),
                "shortest": min(lengths),
                "longest": max(lengths),
            },
            "shards": [
                {"messages": len(count), "rows": sum(count), **shard}
                for count, shard in zip(counts, shards, strict=True)
            ],
            "dataset": [described(file) for file in files],
            **({"parquet": described(table)} if table.is_file() else {}),
            "failures": [{"task_id": t, "error": reason} for t, reason in failures.items()],
        }
        atomic_write_text(store / CARD, dataset_card(manifest, self._features))
        sync(store / DATASET)
        atomic_write_json(store / MANIFEST, manifest)

    def _put_in_place(self, store: Path) -> None:
        if self.output.exists():
            shutil.rmtree(self._replaced, ignore_errors=True)
            self.output.rename(self._replaced)
        store.rename(self.output)
        sync(self.output.parent)


def _locked(journal: Path) -> int | None:
    """A descriptor of the journal that holds its lock; None when another process does."""
    handle = os.open(journal, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        return None
    return handle


def _is_same(handle: int, path: Path) -> bool:
    return path.exists() and os.path.samestat(os.fstat(handle), path.stat())


def _holds_something_else(output: Path) -> bool:
    if not output.is_dir():
        return output.exists()
    return any(output.iterdir()) and not (output / MANIFEST).is_file()
