"""Typed settings: nested frozen dataclasses that are built from YAML and checked generically.

A field's type, its `Literal` choices and the bounds in its metadata are all the validation there
is. A mistake is a `UserError` whose one line names the key and what is allowed. Nothing here knows
which settings there are; `config.py` does.
"""

import dataclasses
import math
import types
from collections.abc import Iterator, Mapping
from dataclasses import field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

T = TypeVar("T")


class UserError(Exception):
    """A mistake of the user's: one sentence that says what is wrong and what to do."""


def setting(
    default: T,
    help: str,
    *,
    minimum: float | None = None,
    above: float | None = None,
    maximum: float | None = None,
    flag: str | None = None,
    aliases: tuple[str, ...] = (),
    negations: tuple[str, ...] = (),
    words: Mapping[str, Any] | None = None,
) -> T:
    """A dataclass field with its bounds, its help text and its flags.

    flag: its flag where that is not its name; aliases: further names of the flag; negations: flags
    that set it to false; words: other words for values that a flag takes, `{"float32": "fp32"}`.
    A list may be empty where its default is.
    """
    rules = {"minimum": minimum, "above": above, "maximum": maximum, "may_be_empty": default == ()}
    names = {"flag": flag, "aliases": aliases, "negations": negations, "words": words or {}}
    made: Any = field(default=default, metadata={"help": help, **names, **rules})
    return cast(T, made)


def place(tree: dict[str, Any], key: str, value: Any) -> None:
    """Set the dotted `key` in nested mappings."""
    *sections, name = key.split(".")
    for section in sections:
        tree = tree.setdefault(section, {})
        if not isinstance(tree, dict):
            raise UserError(f"{section}: expected a section of `key: value`")
    tree[name] = value


def read_yaml(path: Path) -> dict[str, Any]:
    """The mapping in a YAML file. Raises UserError."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; run from the repository or pass --params") from None
    return parse_yaml(text, str(path))


def parse_yaml(text: str, name: str) -> dict[str, Any]:
    """The mapping in a YAML 1.2 text, read as DVC reads it. Raises UserError that says `name`."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError

    try:
        tree = YAML(typ="safe", pure=True).load(text)
    except MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else "?"
        raise UserError(f"{name}, line {line}: not valid YAML: {error.problem}") from None
    if not isinstance(tree, dict):
        raise UserError(f"{name}: expected sections of `key: value`, found {_shown(tree)}")
    return tree


def from_text(root: type, key: str, text: str) -> Any:
    """The value that `text` means for the setting `key`: YAML, except where a string is wanted."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    kind = _kind_of(root, key)
    words = field_of(root, key).metadata["words"]
    if text in words:
        return words[text]
    options = _options(kind)
    if str in options:
        return None if text == "null" and types.NoneType in options else text
    if get_origin(kind) is tuple and not text.startswith("["):
        text = f"[{text}]"
    try:
        return YAML(typ="safe", pure=True).load(text)
    except YAMLError:
        return text


def settings(section: Any, prefix: str = "") -> Iterator[tuple[str, Any, Any]]:
    """(dotted key, dataclass field, value or default) of every leaf, in order."""
    for item in dataclasses.fields(section):
        value = item.default if isinstance(section, type) else getattr(section, item.name)
        if dataclasses.is_dataclass(value):
            yield from settings(value, f"{prefix}{item.name}.")
        else:
            yield prefix + item.name, item, value


def allowed(root: type, key: str) -> str:
    """What the setting `key` takes, in words: `one of data, text`, `an integer >= 1`."""
    return _allowed(_kind_of(root, key), field_of(root, key).metadata)


def field_of(root: type, key: str) -> "dataclasses.Field[Any]":
    """The dataclass field of a setting that is there."""
    return next(item for name, item, _ in settings(root) if name == key)


def _kind_of(root: type, key: str) -> Any:
    """The annotation of a leaf, or UserError that says what its section holds."""
    owner: Any = root
    done, rest = "", key
    while True:
        name, _, rest = rest.partition(".")
        hints = get_type_hints(owner)
        kind = hints.get(name)
        if kind is None or dataclasses.is_dataclass(kind) != bool(rest):
            raise UserError(_unknown(key, [done + known for known in hints]))
        if not rest:
            return kind
        owner, done = kind, f"{done}{name}."


def build(owner: type[T], tree: Any, prefix: str = "") -> T:
    """An `owner` from nested mappings; what they leave out has its default. Raises UserError."""
    if not isinstance(tree, Mapping):
        raise UserError(
            f"{prefix.rstrip('.')}: expected a section of `key: value`, found {_shown(tree)}"
        )
    hints = get_type_hints(owner)
    items = {item.name: item for item in dataclasses.fields(cast(Any, owner))}
    for key in tree:
        if key not in items:
            raise UserError(_unknown(f"{prefix}{key}", [prefix + name for name in items]))
    values = {
        name: build(hints[name], tree[name], f"{prefix}{name}.")
        if dataclasses.is_dataclass(hints[name])
        else _convert(prefix + name, hints[name], items[name].metadata, tree[name])
        for name in tree
    }
    return owner(**values)


def _convert(key: str, kind: Any, metadata: Mapping[str, Any], value: Any) -> Any:
    """`value` as `kind`, inside its bounds, or UserError."""
    if get_origin(kind) is tuple:
        if not isinstance(value, list | tuple) or not (value or metadata["may_be_empty"]):
            raise UserError(f"{key}: expected {_allowed(kind, metadata)}, found {_shown(value)}")
        return tuple(_convert(key, get_args(kind)[0], metadata, entry) for entry in value)
    for option in _options(kind):
        if get_origin(option) is Literal:
            if value in get_args(option):
                return value
        elif option is float:
            if type(value) in (int, float) and math.isfinite(value) and _within(value, metadata):
                return float(value)
        elif type(value) is option and (option is not int or _within(value, metadata)):
            return value
    raise UserError(f"{key}: expected {_allowed(kind, metadata)}, found {_shown(value)}")


def _options(kind: Any) -> tuple[Any, ...]:
    return get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)


def _within(value: float, bounds: Mapping[str, Any]) -> bool:
    low, above, high = bounds.get("minimum"), bounds.get("above"), bounds.get("maximum")
    return (
        (low is None or value >= low)
        and (above is None or value > above)
        and (high is None or value <= high)
    )


def _allowed(kind: Any, bounds: Mapping[str, Any]) -> str:
    if get_origin(kind) is tuple:
        return f"a list, each entry {_allowed(get_args(kind)[0], bounds)}"
    words = {int: "an integer", float: "a number", bool: "true or false", str: "text"}
    signs = {"minimum": ">=", "above": ">", "maximum": "<="}
    limits = [f"{s} {bounds[n]:g}" for n, s in signs.items() if bounds.get(n) is not None]
    parts = []
    for option in _options(kind):
        if get_origin(option) is Literal:
            parts.append(f"one of {', '.join(get_args(option))}")
        elif option in (int, float):
            parts.append(" ".join([words[option], " and ".join(limits)]).rstrip())
        else:
            parts.append(words.get(option, "null"))
    return " or ".join(parts)


def _unknown(key: str, known: list[str]) -> str:
    """A sentence on a key that is none of the `known` ones beside it."""
    close = get_close_matches(key, known, n=1)
    hint = f"did you mean {close[0]}? " if close and close[0] != key else ""
    names = ", ".join(name.rpartition(".")[2] for name in known)
    return f"{key}: unknown key; {hint}allowed here: {names}"


def _shown(value: Any) -> str:
    if value is None:
        return "null"
    return "a section" if isinstance(value, dict) else repr(value)
