"""Role templates: (role, task, transcript) -> messages."""

from typing import Protocol

from trinity.episode.roles import Role
from trinity.episode.transcript import Transcript, render_turns
from trinity.pool.base import Message

NEXT_ROLE = "NEXT ROLE:"

_INSTRUCTIONS = {
    Role.THINKER: (
        "You are the Thinker of a small team that works on one task, turn by turn. Plan: break the task into "
        "steps, point out what is easy to get wrong, and criticise what the team has written so far if there "
        "is anything. Do not solve the task and do not state a final answer; a Worker does that next."
    ),
    Role.WORKER: (
        "You are the Worker of a small team that works on one task, turn by turn. Give a complete, concrete "
        "solution. Use plans and criticism from earlier turns where they are right, and correct them where "
        "they are wrong."
    ),
    Role.VERIFIER: (
        "You are the Verifier of a small team that works on one task, turn by turn. Judge the newest Worker "
        "solution: check each step and the form of its answer. Write what is wrong, or why nothing is. Then "
        "end with one line, which is either\nVERDICT: ACCEPT\nor\nVERDICT: REVISE\n"
        "Accept only a solution that is right and complete."
    ),
}
_NAME_NEXT_ROLE = (
    f"End with one line `{NEXT_ROLE} WORKER` or `{NEXT_ROLE} VERIFIER` if one of these should act next."
)
_ANSWER_FORMATS = {
    "boxed": "The final answer must stand in \\boxed{...}.",
    "letter": "The final answer is the letter of one option, on a last line of the form `Answer: X`.",
    "line": "The final answer must stand alone on a last line of the form `Answer: ...`.",
    "json": ('The final answer is one JSON object with the fields "reasoning" and "answer", in this order.'),
    "code": "The final answer is one complete Python program or function in a ```python code fence.",
}


class Question(Protocol):
    """What a prompt needs of a task."""

    @property
    def query(self) -> str:
        """The question's text."""

    @property
    def answer_format(self) -> str:
        """How the answer is to be written: a key of the formats above."""


def build_messages(
    role: Role, question: Question, transcript: Transcript, *, thinker_names_role: bool = False
) -> list[Message]:
    """The request for one turn.

    The system message holds the role and the answer format. The user message of a first turn is the query and
    nothing else (recorded single-turn answers are found by it); later turns add the transcript below it.
    """
    instructions = [_INSTRUCTIONS[role]]
    if role is Role.THINKER and thinker_names_role:
        instructions.append(_NAME_NEXT_ROLE)
    # Thinkers and Verifiers must know what form the answer is to have, or they ask for another one.
    instructions.append("Answer format of this task: " + _ANSWER_FORMATS[question.answer_format])
    user = question.query
    if transcript.turns:
        user += (
            f"\n\n=== Turns so far ===\n{render_turns(transcript.turns)}\n=== End of turns ===\n\n"
            f"Now act as the {role.title}."
        )
    return [
        {"role": "system", "content": "\n\n".join(instructions)},
        {"role": "user", "content": user},
    ]


def named_role(text: str) -> Role | None:
    """The role that a Thinker's last line names, if it names one."""
    lines = text.strip().splitlines()
    last = lines[-1].strip(" *_`.") if lines else ""
    if not last.upper().startswith(NEXT_ROLE):
        return None
    name = last[len(NEXT_ROLE) :].strip(" *_`.").upper()
    return {"WORKER": Role.WORKER, "VERIFIER": Role.VERIFIER}.get(name)
