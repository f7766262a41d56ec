from dataclasses import replace
from typing import Any, get_args

import pytest

from trinity.episode.prompts import build_messages, named_role
from trinity.episode.roles import Role
from trinity.episode.transcript import Transcript, Turn
from trinity.pool.base import Completion
from trinity.tasks.task import AnswerFormat

FORMS = {"boxed": r"\boxed", "letter": "letter", "line": "last line", "json": "JSON", "code": "```python"}


def transcript(question: Any, *said: str) -> Transcript:
    return Transcript(question.query, [Turn(0, Role.WORKER, Completion(text), text) for text in said])


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("answer_format", get_args(AnswerFormat))
def test_every_role_is_told_its_part_and_every_answer_format(
    question: Any, role: Role, answer_format: AnswerFormat
) -> None:
    system, user = build_messages(role, replace(question, answer_format=answer_format), transcript(question))
    assert (system["role"], user["role"]) == ("system", "user")
    assert f"You are the {role.title}" in system["content"]
    assert FORMS[answer_format] in system["content"]
    assert ("VERDICT: ACCEPT" in system["content"]) is (role is Role.VERIFIER)
    assert ("Do not solve" in system["content"]) is (role is Role.THINKER)


@pytest.mark.parametrize("role", Role)
def test_the_first_turn_asks_the_query_and_nothing_else(question: Any, role: Role) -> None:
    assert build_messages(role, question, transcript(question))[1]["content"] == question.query


@pytest.mark.parametrize("role", Role)
def test_later_turns_add_what_was_said(question: Any, role: Role) -> None:
    content = build_messages(role, question, transcript(question, "It is 5.", "It is 4."))[1]["content"]
    assert content.startswith(question.query + "\n\n")
    assert content.index("It is 5.") < content.index("It is 4.")
    assert content.endswith(f"Now act as the {role.title}.")


def test_only_a_thinker_is_asked_for_the_next_role_and_only_if_it_may_name_it(question: Any) -> None:
    def asks(role: Role, may: bool) -> bool:
        messages = build_messages(role, question, transcript(question), thinker_names_role=may)
        return "NEXT ROLE" in messages[0]["content"]

    assert [asks(role, True) for role in Role] == [True, False, False]
    assert not any(asks(role, False) for role in Role)


@pytest.mark.parametrize(
    ("text", "role"),
    [
        ("Plan.\nNEXT ROLE: WORKER", Role.WORKER), ("NEXT ROLE: Verifier.", Role.VERIFIER),
        ("**Next role:** `worker`\n\n", Role.WORKER), ("_next role: VERIFIER_", Role.VERIFIER),
        ("NEXT ROLE: THINKER", None), ("NEXT ROLE: WORKER or VERIFIER", None), ("NEXT ROLE:", None),
        ("NEXT ROLE: WORKER\nOne more thing.", None), ("The NEXT ROLE: WORKER", None), ("", None),
        ("\n", None), ("WORKER", None), ("NEXT ROLE: 5", None),
    ],
)  # fmt: skip
def test_the_next_role_is_the_whole_last_line_or_none(text: str, role: Role | None) -> None:
    assert named_role(text) is role
