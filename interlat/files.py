"""Files that are either whole or absent: atomic writes, safe names, digests.

Pattern: write beside the target, fsync, rename. A killed writer leaves at most a `.partial` entry
beside the target, which the next writer of the same target removes.
"""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from interlat.config import UserError

_SAFE = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}")
_RESERVED = frozenset({"summary"})


def make_folder(path: Path) -> None:
    """Make a folder, and those above it, where needed. Raises UserError where that cannot be."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{path}: this folder cannot be made: {error.strerror}") from None


def atomic_write_bytes(path: Path, content: bytes) -> None:
    """Replace `path` by `content` in one step, making its folder where needed."""
    make_folder(path.parent)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with partial.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    _sync(path.parent)


def atomic_write_text(path: Path, content: str) -> None:
    """Replace `path` by `content` (UTF-8) in one step."""
    atomic_write_bytes(path, content.encode())


def atomic_write_json(path: Path, content: Any) -> None:
    """Replace `path` by `content` as indented JSON in one step."""
    atomic_write_text(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


@contextmanager
def atomic_directory(path: Path) -> Iterator[Path]:
    """A folder to fill that takes `path`'s place when the block ends without an error."""
    make_folder(path.parent)
    partial, old = (path.with_name(f".{path.name}.{end}") for end in ("partial", "old"))
    for stale in (partial, old):
        shutil.rmtree(stale, ignore_errors=True)
    partial.mkdir()
    try:
        yield partial
        for entry in partial.rglob("*"):
            _sync(entry)
        _sync(partial)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    if path.exists():
        path.rename(old)
    partial.rename(path)
    _sync(path.parent)
    shutil.rmtree(old, ignore_errors=True)


def read_json(path: Path) -> Any:
    """The content of a JSON file. Raises UserError when it is missing or malformed."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: not valid JSON: {error}") from None


def safe_name(task_id: str) -> str:
    """A file name for `task_id`, at most 100 characters; different ids have different names.

    An id that is a plain name stays as it is; any other keeps a readable prefix and gains `+` and a
    digest, so the two kinds never meet.
    """
    if _SAFE.fullmatch(task_id) and task_id not in _RESERVED:
        return task_id
    prefix = re.sub(r"[^A-Za-z0-9._-]+", "_", task_id).strip("._")[:83]
    return f"{prefix}+{hashlib.sha256(task_id.encode()).hexdigest()[:16]}"


def sha256_file(path: Path) -> str:
    """The SHA-256 of a file's content, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
