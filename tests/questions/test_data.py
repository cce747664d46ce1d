import json
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset, DatasetDict

from interlat.config import UserError
from interlat.questions.data import UNKNOWN_LEVEL, level_of, read_deck, subject_of

MATH: list[dict[str, Any]] = [
    {
        "problem": f"What is {i}+1?",
        "level": f"Level {1 + i % 5}",
        "type": ("Algebra", "Counting & Probability")[i % 2],
        "solution": rf"We get $\boxed{{{i + 1}}}$.",
    }
    for i in range(10)
]
GSM8K = [{"question": f"Ann has {i} pens.", "answer": f"So <<{i}>>.\n#### {i}"} for i in range(4)]


def lines(path: Path, rows: list[dict[str, Any]]) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def test_math_as_json_lines(tmp_path: Path) -> None:
    deck = read_deck(lines(tmp_path / "math.jsonl", MATH))
    assert deck.test == ()
    assert len(deck.train) == 10
    first = deck.train[0]
    assert (first.problem, first.gold) == ("What is 0+1?", MATH[0]["solution"])
    assert (first.type, first.level, first.marked) == ("Algebra", "Level 1", True)
    assert deck.counts() == {"records": 10, "questions": 10}


def test_math_as_a_folder_of_files_with_splits(tmp_path: Path) -> None:
    for split, rows in (("train", MATH[:6]), ("test", MATH[6:])):
        for number, row in enumerate(rows):
            folder = tmp_path / split / "algebra"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{number}.json").write_text(json.dumps(row))
    deck = read_deck(str(tmp_path))
    assert [len(deck.train), len(deck.test)] == [6, 4]
    assert deck.test[0].split == "test"


def test_gsm8k_as_a_saved_dataset(tmp_path: Path) -> None:
    DatasetDict(train=Dataset.from_list(GSM8K[:3]), test=Dataset.from_list(GSM8K[3:])).save_to_disk(
        tmp_path / "gsm8k"
    )
    deck = read_deck(str(tmp_path / "gsm8k"))
    assert [question.gold[-1] for question in (*deck.train, *deck.test)] == ["0", "1", "2", "3"]
    assert deck.train[0].level is None


def test_an_answer_field_is_the_answer_where_the_solution_has_no_box(tmp_path: Path) -> None:
    row = {"problem": "?", "solution": "It is clear.", "answer": r"\frac{1}{2}", "subject": "A"}
    question = read_deck(lines(tmp_path / "a.jsonl", [row])).train[0]
    assert question.gold == r"\boxed{\frac{1}{2}}"
    assert question.solution == "It is clear."
    assert (question.type, question.marked) == ("A", True)


def test_subjects_and_levels_are_chosen(tmp_path: Path) -> None:
    source = lines(tmp_path / "math.jsonl", MATH)
    deck = read_deck(source, subjects=("counting_and_probability",), levels=(2, 4))
    assert {(question.type, question.level) for question in deck.train} == {
        ("Counting & Probability", "Level 2"),
        ("Counting & Probability", "Level 4"),
    }
    assert deck.counts()["left out: another subject"] == 5
    assert deck.counts()["records"] == 10


def test_bad_records_are_left_out_counted_and_kept_to_look_at(tmp_path: Path) -> None:
    bad = [
        {"problem": " ", "solution": r"\boxed{1}"},
        {"problem": "a", "solution": ""},
        {"problem": "b", "solution": "Nobody knows."},
        {"problem": "c", "solution": r"An empty \boxed{} in it"},
        {"problem": "d", "solution": "The answer is 4.", "level": "hard"},
        {"problem": "e", "solution": r"\boxed{5}", "level": "Level ?"},
        {"problem": "e", "solution": r"\boxed{5}", "level": 3},
    ]
    deck = read_deck(lines(tmp_path / "bad.jsonl", bad))
    assert [(item.number, item.reason) for item in deck.left_out] == [
        (1, "no problem text"),
        (2, "no solution"),
        (3, "no answer in its solution"),
        (4, "no answer in its solution"),
        (7, "the same problem again"),
    ]
    assert deck.left_out[1].record == bad[1]
    assert [question.level for question in deck.train] == [UNKNOWN_LEVEL, UNKNOWN_LEVEL]
    assert deck.counts() == {
        "records": 7,
        "questions": 2,
        "left out: no answer in its solution": 2,
        "left out: no problem text": 1,
        "left out: no solution": 1,
        "left out: the same problem again": 1,
        "answer looked for in the text": 1,
        "unknown level": 2,
    }


def test_a_test_question_does_not_train(tmp_path: Path) -> None:
    for split, rows in (("train", MATH[:6]), ("test", MATH[4:])):
        lines(tmp_path / split / "all.jsonl", rows)
    deck = read_deck(str(tmp_path))
    assert [len(deck.train), len(deck.test)] == [4, 6]
    assert deck.counts()["left out: the same problem again"] == 2


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        ([{"text": "?"}], {}, "no field 'problem' or 'question' for the problem; .*: text"),
        ([{"problem": "?"}], {}, "no field 'solution' or 'answer' for its solution"),
        ([{"problem": "?", "answer": "1"}], {"levels": (3,)}, "no field 'level' for the level"),
        ([{"problem": "?", "answer": "1"}], {"subjects": ("algebra",)}, "for the subject"),
        (
            [{"problem": "?", "answer": ""}],
            {},
            "no question to train on .*no solution: 1",
        ),
    ],
)
def test_what_cannot_be_questions_is_said(
    tmp_path: Path, rows: list[dict[str, Any]], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        read_deck(lines(tmp_path / "x.jsonl", rows), **options)


def test_labels_are_read_as_people_write_them() -> None:
    assert [level_of(value) for value in ("Level 3", "level 3", 3, "3")] == ["Level 3"] * 4
    assert [level_of(value) for value in ("Level 7", "hard", "")] == [UNKNOWN_LEVEL] * 3
    assert subject_of("Counting & Probability") == "counting_and_probability"
