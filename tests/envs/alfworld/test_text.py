from interlat.envs.alfworld.text import clean, conversation, first_turn


def test_observations_lose_the_banner_and_nothing_else() -> None:
    raw = "-= Welcome to TextWorld, ALFRED! =-\n\nYou see a cup 1.\n\nYour task is to: look."
    assert clean(raw) == "You see a cup 1. Your task is to: look."


def test_a_plain_conversation_is_observation_and_action_in_turn() -> None:
    assert conversation(["You see.", "You go.", "Won."], ["go to a 1", "look"], "plain", "") == (
        {"from": "human", "value": "You see."},
        {"from": "gpt", "value": "go to a 1"},
        {"from": "human", "value": "You go."},
        {"from": "gpt", "value": "look"},
    )


def test_a_react_conversation_explains_the_actions_and_marks_them() -> None:
    turns = conversation(["You see.", "Won."], ["look"], "react", "put <object> in <receptacle>")
    assert turns[0]["value"].endswith("\n\nYou see.")
    assert "\nput <object> in <receptacle>\n" in turns[0]["value"]
    assert turns[1]["value"] == "Action: look"
    assert first_turn("You see.", "react", "put <object> in <receptacle>") == turns[0]["value"]
