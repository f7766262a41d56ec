import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from trinity.errors import UserError
from trinity.pool.base import Completion, DecodeParameters, Message
from trinity.pool.recorded import RecordedPool

SETS = Path(__file__).parents[3] / "shared" / "data" / "recorded_outcomes"
MODELS = ["claude-3-opus-20240229", "deepseek-v2.5-0908", "gemini-1.5-flash"]
SECRET = "the-reference-nobody-may-keep"


def row(question: str, **outputs: Any) -> dict[str, Any]:
    return {"id": "q", "question": question, "reference": SECRET, "outputs": outputs}


ROWS = [
    row("What is 1 + 1?\n", a="two", b="2", c="unused"),
    row("Näher?", a="", b="<think>ja</think>"),
]


def write(path: Path, rows: list[Any]) -> str:
    text = "\n".join(json.dumps(r) for r in rows) + "\n\n"
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return str(path)


def ask(question: str) -> list[Message]:
    return [{"role": "system", "content": "You are the Worker."}, {"role": "user", "content": question}]


@pytest.fixture(params=["answers.jsonl", "answers.jsonl.gz"])
def pool(request: pytest.FixtureRequest, tmp_path: Path) -> RecordedPool:
    return RecordedPool(write(tmp_path / request.param, ROWS), ["b", "a"])


async def test_answers_come_verbatim_in_agent_order_without_tokens_or_cost(pool):
    pool.check()
    assert pool.agents == ["b", "a"]
    first, second = ROWS[0]["question"], ROWS[1]["question"]
    assert await pool.complete(0, ask(first), DecodeParameters()) == Completion(text="2")
    assert await pool.complete(1, ask(first), DecodeParameters()) == Completion(text="two")
    assert await pool.complete(0, ask(second), DecodeParameters()) == Completion(text="<think>ja</think>")


async def test_a_recorded_empty_answer_is_an_answer(pool):
    assert await pool.complete(1, ask(ROWS[1]["question"]), DecodeParameters()) == Completion(text="")


async def test_several_files_are_one_recording(tmp_path):
    paths = [write(tmp_path / f"{i}.jsonl", [r]) for i, r in enumerate(ROWS)]
    pool = RecordedPool(paths, ["a", "b"])
    assert [(await pool.complete(1, ask(r["question"]), DecodeParameters())).text for r in ROWS] == [
        "2",
        "<think>ja</think>",
    ]


@pytest.mark.parametrize("name", ["answers.jsonl", "answers.jsonl.gz"])
async def test_byte_order_marks_crlf_and_blank_lines_are_no_part_of_a_recording(tmp_path, name):
    lines = [b"\xef\xbb\xbf" + json.dumps(r, ensure_ascii=False).encode() for r in ROWS]
    content = b"\r\n \r\n".join(lines) + b"\r\n"
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    pool = RecordedPool(str(tmp_path / name), ["a", "b"])
    answers = [await pool.complete(1, ask(r["question"]), DecodeParameters()) for r in ROWS]
    assert [answer.text for answer in answers] == ["2", "<think>ja</think>"]


@pytest.mark.parametrize(
    "messages",
    [
        ask("What is 1 + 1?"),  # the recorded question ends in a line break
        ask("What is 1 + 1?\n\n\n=== Turns so far ==="),
        [*ask("What is 1 + 1?\n"), {"role": "assistant", "content": "2"}],
        [*ask("What is 1 + 1?\n"), *ask("Näher?")],
        [{"role": "assistant", "content": "What is 1 + 1?\n"}],
        ask("")[:1],
    ],
)
async def test_anything_but_a_first_turn_on_a_recorded_question_is_refused(pool, messages):
    with pytest.raises(UserError, match="single-turn Worker runs only"):
        await pool.complete(0, messages, DecodeParameters())


async def test_references_are_not_kept(pool):
    pool.check()
    assert SECRET not in repr(vars(pool))


def test_a_question_recorded_twice_with_other_outputs_is_refused(tmp_path):
    rows = [row("q", a="1", b="2"), row("q", a="1", b="3")]
    with pytest.raises(UserError, match=r"line 2 repeats a question"):
        RecordedPool(write(tmp_path / "r.jsonl", rows), ["a", "b"]).check()


def test_a_question_recorded_twice_alike_for_the_models_asked_for_is_fine(tmp_path):
    rows = [row("q", a="1", b="2", c="x"), row("q", a="1", b="2", c="y")]
    RecordedPool(write(tmp_path / "r.jsonl", rows), ["a", "b"]).check()


def test_an_unknown_model_is_refused_and_the_known_ones_are_listed(tmp_path):
    path = write(tmp_path / "r.jsonl", ROWS)
    with pytest.raises(UserError, match=r"line 1 holds no output of the model 'z': choose among a, b, c\."):
        RecordedPool(path, ["a", "z"]).check()
    with pytest.raises(UserError, match=r"line 2 holds no output of the model 'c': choose among a, b\."):
        RecordedPool(path, ["a", "c"]).check()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "holds no recorded answers"),
        (b"\n \n", "holds no recorded answers"),
        (b"{'a': 1}\n", "line 1 is not JSON"),
        (b"[" * 100_000, "line 1 is not JSON"),
        (b"[1]\n", "line 1 is no recording"),
        (b'{"question": 1, "outputs": {}}\n', "line 1 is no recording"),
        (b'{"question": "q", "outputs": ["a", "b"]}\n', "line 1 is no recording"),
        (b'{"question": "q", "outputs": {"a": "1", "b": null}}\n', "no output of the model 'b'"),
        (b"\xff\xfe\n", "Cannot read"),
    ],
)
@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz"])
def test_an_unusable_file_is_named(tmp_path, content, message, suffix):
    path = tmp_path / f"r{suffix}"
    path.write_bytes(gzip.compress(content) if suffix.endswith(".gz") else content)
    with pytest.raises(UserError, match=message) as caught:
        RecordedPool(str(path), ["a", "b"]).check()
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("damage", ["missing", "not gzip", "cut", "corrupt", "a folder"])
def test_an_unreadable_file_is_named(tmp_path, damage):
    path = tmp_path / "r.jsonl.gz"
    whole = gzip.compress("".join(json.dumps(row(str(i), a="1", b="2")) + "\n" for i in range(999)).encode())
    if damage == "a folder":
        path.mkdir()
    elif damage != "missing":
        broken = {
            "not gzip": b"{}",
            "cut": whole[: len(whole) // 2],
            "corrupt": whole[:10] + b"\xff" + whole[11:],  # no such block type in DEFLATE
        }
        path.write_bytes(broken[damage])
    with pytest.raises(UserError, match="Cannot read the recorded answers") as caught:
        RecordedPool(str(path), ["a", "b"]).check()
    assert str(path) in str(caught.value)


def test_no_file_at_all_is_refused():
    with pytest.raises(UserError, match="no files"):
        RecordedPool([], ["a", "b"]).check()


@pytest.mark.parametrize("models", [[], ["a"], ["a", "a"]])
def test_fewer_than_two_different_models_are_refused(tmp_path, models):
    with pytest.raises(UserError, match=r"at least two|twice"):
        RecordedPool(write(tmp_path / "r.jsonl", ROWS), models).check()


@pytest.mark.skipif(not SETS.is_dir(), reason="the recorded sets do not lie beside the checkout")
async def test_the_recorded_sets_are_served_whole():
    paths = [SETS / f"{name}.jsonl.gz" for name in ("gsm", "math-l5", "crux")]
    pool = RecordedPool([str(path) for path in paths], MODELS)
    pool.check()
    served = 0
    for path in paths:
        with gzip.open(path, "rt") as file:
            for recorded in map(json.loads, file):
                for agent, model in enumerate(MODELS):
                    completion = await pool.complete(agent, ask(recorded["question"]), DecodeParameters())
                    assert completion.text == recorded["outputs"][model]
                    served += 1
    assert served == 3 * (1319 + 721 + 800)
