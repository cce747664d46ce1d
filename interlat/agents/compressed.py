"""A trained student in the sender's place: tasks in, messages of K rows out, and not a word."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from interlat.agents.speaker import Outcome, Question, Speaker
from interlat.config import CollectConfig, UserError
from interlat.latents.columns import unstorable
from interlat.latents.message import Message
from interlat.models.compressor import Compressor


class CompressedSpeaker(Speaker):
    """Asks a student for its steps, in the words that it was trained with.

    Raises UserError when the config puts tasks in other words than those.
    """

    def __init__(self, student: Compressor, config: CollectConfig, seed: int) -> None:
        super().__init__(student.model, student.tokenizer, config, seed)
        self._student = student
        for name in ("prompt_template", "chat_template"):
            asked, known = getattr(config, name), getattr(student.record, name)
            if asked != known:
                raise UserError(
                    f"collect.{name}: the student was trained with {known!r}, found {asked!r}: ask "
                    "it the same way"
                )

    @property
    def width(self) -> int:
        """Of its messages, which are those that its actor reads."""
        return self._student.record.message_width

    def longest_reply(self, prompt: int) -> int:
        """Steps that follow a prompt: K, or none where K do not fit."""
        room = self._student.longest_prompt
        return self._student.steps if room is None or prompt <= room else 0

    def provenance(self) -> dict[str, Any]:
        """The student and what it stands in for, beside what is said of its language model."""
        record = self._student.record
        config = self.config
        rows = ("batch_size", "first_k", "max_hidden_states")
        return {
            "compressed": {
                "steps": record.steps,
                "student_sha256": self._student.digest,
                "teacher_sha256": record.teacher_sha256,
                "stands_for": record.sender and asdict(record.sender),
            },
            "generation": {name: getattr(config, name) for name in rows},
        }

    def _unaskable(self, question: Question) -> str | None:
        task, prompt = question
        if reason := super()._unaskable(question):
            return reason
        if not self.longest_reply(len(prompt)):
            return (
                f"task {task.task_id}: its prompt has {len(prompt)} tokens; with "
                f"{self._student.steps} steps the student reads {self._student.longest_prompt}"
            )
        return None

    def _spoken(self, batch: Sequence[Question]) -> dict[str, Outcome]:
        config = self.config
        thoughts = self._student.messages([question.prompt for question in batch])
        outcomes: dict[str, Outcome] = {}
        for (task, _), hidden_KD in zip(batch, thoughts, strict=True):
            message = Message(
                task_id=task.task_id,
                hidden_LD=hidden_KD[: config.first_k][-config.max_hidden_states :],
                plan="",
                task=task.instruction,
                n_tokens=len(hidden_KD),
                task_type=str(task.env_args.get("type", "")),
                task_level=str(task.env_args.get("level", "")),
            )
            outcomes[task.task_id] = unstorable(message, config.store_dtype) or message
        return outcomes
