from types import SimpleNamespace

import pytest

from interlat.envs.alfworld.generate import grammar
from interlat.envs.alfworld.grammar import Facts, Scene, _expression, load_grammar


@pytest.fixture
def scene() -> Scene:
    types = {"l1": "location", "r1": "receptacle", "r2": "receptacle"}
    facts = [("receptacleatlocation", "r2", "l1")]
    names = {name: SimpleNamespace(id=name, name=name.upper(), indefinite="a") for name in types}
    return Scene(Facts([*facts, ("receptacleatlocation", "r1", "l1")]), types, names)


def test_a_grammar_is_parsed_once_for_all_instructions() -> None:
    first = load_grammar(grammar().replace("UNKNOWN GOAL", "put a cup in sink"))
    second = load_grammar(grammar().replace("UNKNOWN GOAL", "heat some egg"))
    assert first.grammar is second.grammar
    assert (first.instruction, second.instruction) == ("put a cup in sink", "heat some egg")


def test_the_introduction_enumerates_in_the_order_of_the_facts(scene: Scene) -> None:
    text = load_grammar(grammar().replace("UNKNOWN GOAL", "put a cup in sink"))
    assert text.introduction(scene).endswith(
        "you see a R1, and a R2.\n\nYour task is to: put a cup in sink."
    )


def test_a_fact_and_its_negation_never_hold_together() -> None:
    facts = Facts([("opened", "r1")])
    facts.change("not_opened", ("r1",))
    assert (facts.sorted("opened"), facts.sorted("not_opened")) == ([], [("r1",)])


@pytest.mark.parametrize("source", ["__import__('os').getcwd()", "o.name[0]", "[x for x in o]"])
def test_an_expression_that_does_more_than_name_is_refused(source: str) -> None:
    with pytest.raises(ValueError, match="does more than put text together"):
        _expression(source)
