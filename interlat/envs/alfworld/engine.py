"""The real ALFWorld engine, made quick: the game's own PDDL, grammar and fast-downward library.

Transitions, applicable actions and the goal are the library's; the text is the grammar's. What is
left out is repetition: grammars are parsed once, a problem is translated once (and the translation
can be kept in a file beside the game), and all games of a process share one library, which is
handed from game to game by loading and replaying (about half a millisecond). Not for threads.
Tests prove the same text, commands and win flag as the package's own wrapper chain.
"""

import contextlib
import gzip
import hashlib
import io
import json
import re
import sys
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import fast_downward
from alfworld.agents.utils.misc import Demangler

from interlat.envs.alfworld.grammar import Bound, Facts, Scene, load_grammar
from interlat.envs.alfworld.replica import NOTHING
from interlat.files import atomic_write_bytes

GAME_FILE, TRANSLATION_FILE = "game.tw-pddl", "translation.json.gz"


class Translation(NamedTuple):
    """What fast-downward's translator makes of a domain and a problem."""

    digest: str
    sas: str
    facts: list[list[str]]
    """Predicate and arguments of all that holds at the start, derived atoms left out."""
    types: dict[str, str]
    """Object -> type."""
    parameters: dict[str, list[list[str]]]
    """Action -> name and type of each parameter."""


def digest(game: dict[str, Any]) -> str:
    """What a translation depends on."""
    return hashlib.sha256(f"{game['pddl_domain']}\0{game['pddl_problem']}".encode()).hexdigest()


def translate(game: dict[str, Any]) -> Translation:
    """Run the translator, 0.02 to 1 s. Raises ValueError where it would end the process."""
    arguments = sys.argv  # replaced by the translator
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            task, sas = fast_downward.pddl2sas(game["pddl_domain"], game["pddl_problem"])
    except SystemExit as error:
        raise ValueError(f"fast-downward rejects the game's PDDL: {error}") from error
    finally:
        sys.argv = arguments
    atoms = fast_downward.translate.pddl.conditions.Atom
    facts = [
        [fact.predicate, *fact.args]
        for fact in task.init
        if isinstance(fact, atoms) and fact.predicate != "="
    ]
    return Translation(
        digest=digest(game),
        sas=sas,
        facts=sorted(facts),
        types={thing.name: thing.type_name for thing in task.objects},
        parameters={
            action.name: [[slot.name.strip("?"), slot.type_name] for slot in action.parameters]
            for action in task.actions
        },
    )


def write_translation(folder: Path, translation: Translation) -> None:
    """Keep a translation beside its game; the bytes depend on the game alone."""
    content = gzip.compress(json.dumps(translation).encode(), mtime=0)
    atomic_write_bytes(folder / TRANSLATION_FILE, content)


def load_game(folder: Path) -> "EngineGame":
    """The game in a folder of the official layout. Raises OSError or ValueError when unreadable."""
    game = json.loads((folder / GAME_FILE).read_text())
    with contextlib.suppress(FileNotFoundError):
        kept = Translation(*json.loads(gzip.decompress((folder / TRANSLATION_FILE).read_bytes())))
        if kept.digest == digest(game):
            return EngineGame(game, kept)
    return EngineGame(game, translate(game))


def first_observation(game: dict[str, Any]) -> str:
    """What a game says first, read off its problem without the translator (milliseconds)."""
    text = re.sub(r";.*", "", game["pddl_problem"]).lower()
    things, facts = text.partition("(:objects")[2].partition("(:goal")[0].split("(:init")
    types = dict(re.findall(r"(\S+)\s+-\s+(\w+)", things))
    atoms = [tuple(fact.split()) for fact in re.findall(r"\(([^()=]+)\)", facts)]
    held = [atom for atom in atoms if atom[0] not in ("distance", "total-cost")]
    scene = Scene(Facts(held), types, _entities(held))
    return load_grammar(game["grammar"]).introduction(scene)


class _Operator(NamedTuple):
    """An applicable action, its placeholders bound."""

    id: int
    name: str
    effects: int
    bound: Bound


class _Library:
    """The process's one copy of libdownward, and the game that it holds at the moment."""

    def __init__(self) -> None:
        self.calls = fast_downward.load_lib()
        self.holds: EngineGame | None = None


@lru_cache(maxsize=1)
def _library() -> _Library:
    return _Library()


class EngineGame:
    """One game in the engine: ``reset``, then ``step``; ``won`` is the engine's word."""

    def __init__(self, game: dict[str, Any], translation: Translation) -> None:
        self._text = load_grammar(game["grammar"])
        self._translation = translation
        self._sas = translation.sas.encode()
        self.put_form = _put_form(game["grammar"])
        """How the game wants an object put down: "move <object> to <receptacle>"."""
        self.won = False

    def reset(self) -> str:
        """Start again; returns the engine's first text."""
        self._applied: list[_Operator] = []
        calls = self._attend(reload=True)
        atoms = (fast_downward.Atom * calls.get_state_size())()
        calls.get_state(atoms)
        held = [(name, *arguments) for name, arguments in map(_atom, atoms)]
        start = [tuple(fact) for fact in self._translation.facts]
        start += [fact for fact in held if not fact[0].startswith("not_")]
        self._scene = Scene(Facts(start), self._translation.types, _entities(start))
        self._commands: dict[str, _Operator] | None = None
        self.won = calls.check_goal()
        return self._text.introduction(self._scene)

    def admissible(self) -> list[str]:
        """Every command that the engine understands now, sorted."""
        return sorted(self._possible())

    def step(self, command: str) -> str:
        """The engine's answer to a command."""
        operator = self._possible().get(command.strip())
        if operator is None:
            return NOTHING
        calls = self._attend()
        effects = self._apply(operator)
        self._applied.append(operator)
        self._commands = None
        for name, arguments in map(_atom, effects):
            self._scene.facts.change(name, arguments)
        self.won = calls.check_goal()
        return self._text.grammar.actions[operator.name].feedback(self._scene, operator.bound)

    def _attend(self, *, reload: bool = False) -> Any:
        """The library's calls, holding this game in its present state."""
        library = _library()
        if reload or library.holds is not self:
            library.holds = None
            library.calls.load_sas(self._sas)
            library.holds = self
            for operator in self._applied:
                self._apply(operator)
        return library.calls

    def _apply(self, operator: _Operator) -> Any:
        effects = (fast_downward.Atom * operator.effects)()
        _library().calls.apply_operator(operator.id, effects)
        return effects

    def _possible(self) -> dict[str, _Operator]:
        """Command -> action, for all that is applicable; the engine's first one where two agree."""
        if self._commands is None:
            calls = self._attend()
            found = (fast_downward.Operator * calls.get_applicable_operators_count())()
            calls.get_applicable_operators(found)
            self._commands = {}
            for raw in found:
                name, *arguments = raw.name.split()
                slots = self._translation.parameters[name]
                named = zip(slots, arguments, strict=False)  # disjunctions add hidden arguments
                bound = {(slot, kind): thing for (slot, kind), thing in named}
                form = self._text.grammar.actions[name]
                operator = _Operator(raw.id, name, raw.nb_effect_atoms, bound)
                self._commands.setdefault(form.command(self._scene, bound), operator)
        return self._commands


def _put_form(grammar: str) -> str:
    found = re.search(r'action PutObject \{\s*template :: "([^"]*)"', grammar)
    if found is None:
        raise ValueError("the game's grammar has no PutObject action")
    return found[1].replace("{o}", "<object>").replace("{r}", "<receptacle>")


def _atom(raw: Any) -> tuple[str, tuple[str, ...]]:
    """The library's "NegatedAtom holds(a, b)" as ("not_holds", ("a", "b"))."""
    kind, _, rest = raw.name.partition(" ")
    name, _, arguments = rest.partition("(")
    present = tuple(filter(None, arguments[:-1].split(", ")))
    return (f"not_{name}" if kind == "NegatedAtom" else name), present


def _entities(facts: list[tuple[str, ...]]) -> dict[str, SimpleNamespace]:
    """What occurs in the facts, with the names that the package gives it."""
    ids = sorted({argument for _, *arguments in facts for argument in arguments})
    entities = {
        thing: SimpleNamespace(id=thing, definite="the", indefinite="a", name="") for thing in ids
    }
    names = Demangler(game_infos=entities)
    for thing, entity in entities.items():
        entity.name = names.demangle_alfred_name(thing)
    return entities
