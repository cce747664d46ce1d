"""Text from a game's own grammar, as textworld derives it but without parsing anything twice.

``textworld`` parses the grammar, once for all games that differ in their instruction only; the
productions are then compiled to closures over the state's facts. Queries bind variables in the
sorted order of the facts and never two placeholders to one entity, as ``textworld.logic`` does.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import SimpleNamespace
from typing import Any, NamedTuple

from textworld.envs.pddl import textgen
from textworld.envs.pddl.logic import GameLogic
from textworld.logic import Rule

Placeholder = tuple[str, str]
"""Name and type."""
Bound = Mapping[Placeholder, str]
"""Placeholder -> entity."""
_TASK = re.compile(r'(Your task is to: )([^"\\#{}\[\]|;<>]*)(\.")')
_STAND_IN = "THE INSTRUCTION OF THIS GAME"


class Facts:
    """The facts that hold, by predicate; ``sorted`` gives them in the engine's order."""

    def __init__(self, facts: Iterable[tuple[str, ...]]) -> None:
        self._facts: dict[str, set[tuple[str, ...]]] = defaultdict(set)
        self._sorted: dict[str, list[tuple[str, ...]]] = {}
        for name, *arguments in facts:
            self._facts[name].add(tuple(arguments))

    def change(self, name: str, arguments: tuple[str, ...]) -> None:
        """Let a fact hold and its negation not; "not_" before a name negates it."""
        opposite = name[4:] if name.startswith("not_") else f"not_{name}"
        self._facts[name].add(arguments)
        self._facts[opposite].discard(arguments)
        self._sorted.pop(name, None)
        self._sorted.pop(opposite, None)

    def sorted(self, name: str) -> list[tuple[str, ...]]:
        """The arguments of all facts of a predicate, sorted."""
        if name not in self._sorted:
            self._sorted[name] = sorted(self._facts.get(name, ()))
        return self._sorted[name]


@dataclass(frozen=True, slots=True)
class Scene:
    """What text is derived from: facts, the entities' types, and their names in text."""

    facts: Facts
    types: Mapping[str, str]
    entities: Mapping[str, SimpleNamespace]


Text = Callable[[Scene, Bound], str]


class CommandForm(NamedTuple):
    """How an action is written as a command, and what it answers."""

    command: Text
    feedback: Text


class Grammar:
    """A game's texts: its introduction, and each action's command and feedback."""

    def __init__(self, source: str) -> None:
        """source: the twl2 text. Raises ValueError for an expression that does more than name."""
        logic = GameLogic(domain="", grammar=source)
        self._rules: dict[str, list[tuple[Callable[[Scene, Bound], bool], Text]]] = {}
        for symbol, productions in logic.grammar._rules.items():
            self._rules[symbol] = [
                (_condition(rule.condition), self._sequence(rule.rhs)) for rule in productions
            ]
        self.introduction = self._text("#intro#")
        self.actions = {
            name: CommandForm(self._text(action.template), self._text(action.feedback_rule))
            for name, action in logic.actions.items()
        }

    def _text(self, template: str) -> Text:
        return self._sequence(textgen._parse_and_convert(template, rule_name="symbols"))

    def _sequence(self, symbols: Iterable[Any]) -> Text:
        parts = [self._symbol(symbol) for symbol in symbols]
        return (
            parts[0]
            if len(parts) == 1
            else lambda scene, bound: "".join(part(scene, bound) for part in parts)
        )

    def _symbol(self, symbol: Any) -> Text:
        match symbol:
            case textgen.TerminalSymbol():
                literal = str(symbol.symbol)
                return lambda scene, bound: literal
            case textgen.NonterminalSymbol():
                name = str(symbol.symbol)
                return lambda scene, bound: self._expand(name, scene, bound)
            case textgen.EvalSymbol():
                return _expression(symbol.expression)
            case textgen.ListSymbol():
                return self._list(self._each(symbol.symbol))
            case textgen.ConditionalSymbol():
                each = self._each(symbol)
                return lambda scene, bound: "".join(each(scene, bound))
        raise ValueError(f"unknown grammar symbol {symbol!r}")

    def _expand(self, name: str, scene: Scene, bound: Bound) -> str:
        for holds, text in self._rules[name]:
            if holds(scene, bound):
                return text(scene, bound)
        raise ValueError(f"no production of {name!r} applies")

    def _each(self, symbol: Any) -> Callable[[Scene, Bound], list[str]]:
        """The text of a conditional symbol for every way to bind its condition."""
        text = self._symbol(symbol.expression)
        if not symbol.given:
            return lambda scene, bound: [text(scene, bound)]
        atoms = _atoms(symbol.given)
        return lambda scene, bound: [text(scene, more) for more in _bindings(atoms, scene, bound)]

    def _list(self, each: Callable[[Scene, Bound], list[str]]) -> Text:
        """An enumeration, with the grammar's own separators."""

        def text(scene: Scene, bound: Bound) -> str:
            items = each(scene, bound)
            if not items:
                return self._expand("list_empty", scene, bound)
            if len(items) == 1:
                return items[0]
            separator = self._expand("list_separator", scene, bound)
            last = self._expand("list_last_separator", scene, bound)
            return separator.join(items[:-1]) + last + items[-1]

        return text


class GameText(NamedTuple):
    """A grammar shared by many games, and this game's instruction."""

    grammar: Grammar
    instruction: str

    def introduction(self, scene: Scene) -> str:
        """The game's first text."""
        return self.grammar.introduction(scene, {}).replace(_STAND_IN, self.instruction)


def load_grammar(source: str) -> GameText:
    """The texts of a game from its twl2 source; the grammar is parsed once for all its games."""
    found = _TASK.search(source)
    if found is None:
        return GameText(_grammar(source), _STAND_IN)
    shared = _TASK.sub(lambda match: match[1] + _STAND_IN + match[3], source, count=1)
    return GameText(_grammar(shared), found[2])


@lru_cache(maxsize=8)
def _grammar(source: str) -> Grammar:
    return Grammar(source)


Atom = tuple[str, tuple[Placeholder, ...]]


def _atoms(query: str) -> list[Atom]:
    """A conjunctive query as predicates over placeholders."""
    return [
        (predicate.name, tuple((ph.name, ph.type) for ph in predicate.parameters))
        for predicate in Rule.parse_conjunctive_query(query).preconditions
    ]


def _condition(query: str) -> Callable[[Scene, Bound], bool]:
    if not query:
        return lambda scene, bound: True
    atoms = _atoms(query)
    return lambda scene, bound: next(_bindings(atoms, scene, bound), None) is not None


def _bindings(atoms: list[Atom], scene: Scene, bound: Bound) -> Iterator[Bound]:
    """Every extension of ``bound`` under which all atoms are facts."""
    if not atoms:
        yield bound
        return
    (name, placeholders), *rest = atoms
    for arguments in scene.facts.sorted(name):
        extended = _bind(placeholders, arguments, scene, bound)
        if extended is not None:
            yield from _bindings(rest, scene, extended)


def _bind(
    placeholders: tuple[Placeholder, ...], arguments: tuple[str, ...], scene: Scene, bound: Bound
) -> Bound | None:
    """``bound`` with the placeholders bound to the arguments, or None where that cannot be."""
    extended = dict(bound)
    for placeholder, argument in zip(placeholders, arguments, strict=True):
        present = extended.get(placeholder)
        if present is None:
            fits = placeholder[1] in ("object", scene.types[argument])
            if not fits or argument in extended.values():
                return None
            extended[placeholder] = argument
        elif present != argument:
            return None
    return extended


def _expression(source: str) -> Text:
    """Names, attributes, text, + and ``or`` over the bound variables; nothing else is evaluated."""
    tree = ast.parse(source.strip(), mode="eval")
    allowed = (
        ast.Expression, ast.Attribute, ast.Name, ast.Load, ast.Constant,
        ast.BinOp, ast.Add, ast.BoolOp, ast.Or,
    )  # fmt: skip
    for node in ast.walk(tree):
        if not isinstance(node, allowed):
            raise ValueError(f"grammar expression {source!r} does more than put text together")
    code = compile(tree, "<grammar>", "eval")

    def text(scene: Scene, bound: Bound) -> str:
        variables = {name: scene.entities[entity] for (name, _), entity in bound.items()}
        value = eval(code, {"__builtins__": {}}, variables)
        return str(value.name if isinstance(value, SimpleNamespace) else value)

    return text
