import torch

from interlat.latents.chance import task_generator


def draw(seed: int, task_id: str, use: str) -> list[float]:
    return torch.rand(4, generator=task_generator(seed, task_id, use)).tolist()


def test_numbers_belong_to_seed_task_and_use():
    first = draw(1, "a", "noise")
    assert draw(1, "a", "noise") == first
    others = [draw(2, "a", "noise"), draw(1, "b", "noise"), draw(1, "a", "sender")]
    assert first not in others


def test_parts_of_the_name_do_not_run_together():
    assert draw(1, "1a", "x") != draw(11, "a", "x")
    assert draw(1, "ab", "c") != draw(1, "b", "ca")


def test_the_global_generator_is_left_alone():
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    draw(1, "a", "noise")
    assert torch.equal(torch.rand(2), expected)
