"""The three roles that an LLM can be asked to play."""

from enum import IntEnum
from functools import cached_property


class Role(IntEnum):
    """A role; its value is its index in the head's role logits."""

    THINKER = 0
    WORKER = 1
    VERIFIER = 2

    @cached_property
    def title(self) -> str:
        """The role's name as prompts and transcripts write it."""
        return self.name.capitalize()
