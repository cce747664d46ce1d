"""The names in a latent store's folder, and its manifest: what is in there and what made it.

The manifest is written last. ``fingerprint`` is the digest of everything that decides the content
(the work); the rest describes what came of it, file by file.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from interlat.files import read_json, sha256_file

FORMAT = "interlat-latents/1"
MANIFEST = "manifest.json"
JOURNAL = "collect.journal"
DATASET = "hf_dataset"
PARQUET = "data.parquet"
CARD = "README.md"
RESULTS = ("fingerprint", "totals", "shards", "dataset", "parquet", "failures")
"""The sections of a manifest that are no part of the work."""


def partial_folder(output: Path) -> Path:
    """Where the unfinished work for ``output`` lies."""
    return output.with_name(output.name + ".partial")


def fingerprint(work: Mapping[str, Any]) -> str:
    """SHA-256 of a collection's work."""
    return hashlib.sha256(json.dumps(work, sort_keys=True).encode()).hexdigest()


def work_of(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a manifest that decides the content."""
    return {key: value for key, value in manifest.items() if key not in RESULTS}


def flattened(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Leaves by dotted key, as in ``model.name``."""
    leaves: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, Mapping):
            leaves |= flattened(value, f"{prefix}{key}.")
        else:
            leaves[f"{prefix}{key}"] = value
    return leaves


def read_manifest(path: Path) -> dict[str, Any] | None:
    """The manifest of the store at ``path``; None where there is none."""
    if not (path / MANIFEST).is_file():
        return None
    manifest: dict[str, Any] = read_json(path / MANIFEST)
    return manifest


def described_files(path: Path, manifest: Mapping[str, Any]) -> list[tuple[Path, dict[str, Any]]]:
    """Every file that the manifest describes, with its entry."""
    dataset = [*manifest.get("shards", []), *manifest.get("dataset", [])]
    files = [(path / DATASET / entry["file"], entry) for entry in dataset]
    table = manifest.get("parquet")
    return files + ([(path / table["file"], table)] if table else [])


def incomplete(path: Path, manifest: Mapping[str, Any]) -> list[str]:
    """Files that are missing or have another size than the manifest says, a sentence each."""
    found = []
    for file, entry in described_files(path, manifest):
        size = file.stat().st_size if file.is_file() else None
        if size is None:
            found.append(f"{file} is missing")
        elif size != entry["bytes"]:
            word = "truncated" if size < entry["bytes"] else "too long"
            found.append(f"{file} is {word}: {size} bytes, the manifest says {entry['bytes']}")
    return found


def changed(path: Path, manifest: Mapping[str, Any]) -> list[str]:
    """What differs from the manifest in content, a sentence each; reads every byte."""
    found = []
    if fingerprint(work_of(manifest)) != manifest.get("fingerprint"):
        found.append(f"{path / MANIFEST} was changed: its fingerprint does not fit what it says")
    for file, entry in described_files(path, manifest):
        if sha256_file(file) != entry["sha256"]:
            found.append(f"{file} differs from the manifest (sha256)")
    return found
