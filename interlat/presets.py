"""Presets: fragments of params.yaml in conf/<group>/<name>.yaml, laid over the file by hand.

All presets of a group set the same keys, so that a second choice undoes the first. Whatever else
stands in params.yaml, hand-made edits and comments included, stays.
"""

import difflib
import io
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from interlat.config import UserError, build_params
from interlat.schema import parse_yaml, read_yaml


def choose(choices: Iterable[str], folder: Path) -> dict[str, Any]:
    """The settings of some presets, `group=name` each, as dotted key -> value; later ones win.

    Raises UserError for a group or a name that is not in `folder`.
    """
    from omegaconf import OmegaConf

    chosen = OmegaConf.merge(*(read_yaml(_preset(choice, folder)) for choice in choices))
    tree = OmegaConf.to_container(chosen)
    assert isinstance(tree, dict)
    return dict(_leaves(tree, ""))


def lay_over(text: str, values: dict[str, Any]) -> str:
    """params.yaml's text with `values` in it and all else as it was.

    Raises UserError when the outcome is not valid.
    """
    from ruamel.yaml import YAML

    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = 4096
    yaml.representer.add_representer(type(None), _represent_null)
    document = yaml.load(text)
    for key, value in values.items():
        _assign(document, key.split("."), value)
    stream = io.StringIO()
    yaml.dump(document, stream)
    build_params(parse_yaml(stream.getvalue(), "params.yaml"))
    return stream.getvalue()


def difference(before: str, after: str) -> str:
    """What changed, as a unified diff without context."""
    lines = difflib.unified_diff(
        before.splitlines(), after.splitlines(), "params.yaml", "params.yaml", lineterm="", n=0
    )
    return "\n".join(lines)


def _preset(choice: str, folder: Path) -> Path:
    group, equals, name = choice.partition("=")
    groups = sorted(entry.name for entry in folder.iterdir() if entry.is_dir())
    if not equals or group not in groups:
        raise UserError(f"{choice}: expected GROUP=NAME with a group of {', '.join(groups)}")
    path = folder / group / f"{name}.yaml"
    names = sorted(entry.stem for entry in path.parent.glob("*.yaml"))
    if name not in names:
        raise UserError(f"{group}={name}: no such preset; choose one of {', '.join(names)}")
    return path


def _assign(document: Any, path: list[str], value: Any) -> None:
    """Set a value so that the comments around it and a list's form stay."""
    *sections, name = path
    for section in sections:
        document = document.setdefault(section, {})
    if isinstance(value, list) and isinstance(document.get(name), list):
        document[name][:] = value
    else:
        document[name] = value


def _leaves(tree: dict[Any, Any], prefix: str) -> Iterable[tuple[str, Any]]:
    for name, value in tree.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _represent_null(representer: Any, _: None) -> Any:
    return representer.represent_scalar("tag:yaml.org,2002:null", "null")
