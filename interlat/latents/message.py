"""A latent message: what one agent hands to another instead of its words."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Message:
    """The hidden states of one generated plan, and the plan.

    hidden_LD: [L, D]; row l is the final-norm last-layer state that predicts generated token l, so
    that L counts the end-of-sequence token. One that a store returns is a read-only view of the
    file: clone it before changing it in place.
    plan: the same tokens as text, special tokens left out.
    n_tokens: tokens generated; more than L where only some of the rows were kept.
    finish_reason: "eos", "length" (cut at max_new_tokens), or "" where nobody noted it.
    task_type, task_level: a question's subject and difficulty, as its data set names them.
    """

    task_id: str
    hidden_LD: Tensor
    plan: str
    task: str = ""
    n_tokens: int = 0
    finish_reason: str = ""
    task_type: str = ""
    task_level: str = ""

    def __post_init__(self) -> None:
        if self.hidden_LD.ndim != 2 or not self.hidden_LD.is_floating_point():
            shape = tuple(self.hidden_LD.shape)
            raise ValueError(f"hidden states of {self.task_id} must be [L, D] floats, not {shape}")
