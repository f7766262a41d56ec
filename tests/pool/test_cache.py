"""Answers outlive everything, and answer only what they were given to."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trinity.errors import UserError
from trinity.pool.base import Completion, DecodeParameters, Message, Paid, Pool
from trinity.pool.cache import CompletionCache, key_of, request_of
from trinity.pool.litellm_pool import LiteLLMPool, ModelConfig, ProviderSettings

MESSAGES: list[Message] = [{"role": "user", "content": "1 + 1?"}]
ANSWER = Completion("2", 7, 5, 0.5, reasoning="Hm.")


class Two(Pool):
    agents = ("a", "b")

    async def complete(self, agent, messages, decode):
        raise AssertionError


def stored(cache, text="2", **decode):
    key, request = request_of(Two(), 0, MESSAGES, DecodeParameters(**decode))
    cache.put(key, request, replace(ANSWER, text=text))
    return key


def test_what_was_put_is_there_at_no_cost(tmp_path):
    cache = CompletionCache(tmp_path / "c.sqlite")
    key = stored(cache)
    assert cache.get("0" * 64) is None
    cache.close()
    again = CompletionCache(tmp_path / "c.sqlite").get(key)
    assert again == ANSWER
    assert (again.cost, again.source) == (0.0, "cache")


def test_everything_that_decides_an_answer_is_in_the_key():
    decode = DecodeParameters()
    variants = [
        (0, MESSAGES, decode),
        (1, MESSAGES, decode),
        (0, [{"role": "system", "content": "1 + 1?"}], decode),
        (0, [*MESSAGES, *MESSAGES], decode),
        (0, MESSAGES, replace(decode, max_tokens=7)),
        (0, MESSAGES, replace(decode, temperature=0.5)),
        (0, MESSAGES, replace(decode, top_p=0.5)),
        (0, MESSAGES, replace(decode, reasoning_effort=None)),
        (0, MESSAGES, replace(decode, sample="train/1")),
    ]
    keys = [request_of(Two(), *variant)[0] for variant in variants]
    assert len(set(keys)) == len(keys)
    assert keys == [request_of(Two(), *variant)[0] for variant in variants]


def test_the_tokens_of_several_turns_have_the_key_of_their_sum():
    several, sum_ = DecodeParameters(max_tokens=100, turns=5), DecodeParameters(max_tokens=500)
    assert request_of(Two(), 0, MESSAGES, several) == request_of(Two(), 0, MESSAGES, sum_)


def test_a_models_own_options_are_in_the_key_and_its_address_is_not():
    def key(**options):
        return request_of(LiteLLMPool([ModelConfig("openai/m", **options)]), 0, MESSAGES, DecodeParameters())[
            0
        ]

    assert key() == key(api_base="http://127.0.0.1:1/v1", name="other", concurrency=3)
    options = [
        {}, {"max_tokens": 5}, {"extra_body": {"x": 1}}, {"provider": ProviderSettings()},
        {"provider": ProviderSettings(order=["a"])},
    ]  # fmt: skip
    assert len({key(**each) for each in options}) == 5


@pytest.mark.parametrize(
    ("text", "finish", "kept"),
    [("2", "stop", True), ("", "length", True), ("", "stop", False), (" \n", "stop", False)],
)
def test_only_answers_are_kept(tmp_path, text, finish, kept):
    cache = CompletionCache(tmp_path / "c.sqlite")
    key, request = request_of(Two(), 0, MESSAGES, DecodeParameters())
    cache.put(key, request, Completion(text, finish_reason=finish))
    assert (cache.get(key) is not None) is kept


def test_values_are_readable_json(tmp_path):
    path = tmp_path / "c.sqlite"
    stored(CompletionCache(path))
    request, completion = (
        sqlite3.connect(path).execute("SELECT request, completion FROM completions").fetchone()
    )
    assert json.loads(request)["messages"] == MESSAGES
    assert json.loads(completion)["text"] == "2"


def test_the_file_is_written_ahead(tmp_path):
    """What makes a kill harmless: a commit is whole or not there, whenever it is interrupted."""
    database = CompletionCache(tmp_path / "c.sqlite")._database
    assert database.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert database.execute("PRAGMA synchronous").fetchone() == (1,), "NORMAL"


def test_two_open_caches_share_a_file(tmp_path):
    first, second = (CompletionCache(tmp_path / "c.sqlite") for _ in range(2))
    assert second.get(stored(first)) == ANSWER
    stored(second, text="other")
    assert first.get(stored(first)) == ANSWER, "the first answer stays"


def test_what_a_run_spent_is_known(tmp_path):
    cache = CompletionCache(tmp_path / "c.sqlite", "run-1")
    stored(cache, max_tokens=1)
    stored(cache, max_tokens=2)
    cache.use_run("run-2")
    stored(cache, max_tokens=3)
    assert cache.spent("run-1") == Paid(1.0, 2, 14, 10)
    assert cache.spent("run-3") == Paid()


def test_what_was_paid_for_nothing_is_a_part_of_what_a_run_spent(tmp_path):
    cache = CompletionCache(tmp_path / "c.sqlite", "run-1")
    stored(cache)
    cache.waste(Paid(0.25, 1, 70, 30))
    cache.use_run("run-2")
    cache.waste(Paid(8.0, 1, 1, 1))
    cache.close()
    again = CompletionCache(tmp_path / "c.sqlite", read_only=True)
    assert again.spent("run-1") == Paid(0.75, 2, 77, 35)
    assert again.wasted() == Paid(8.25, 2, 71, 31)
    assert len(list(again.rows())) == 1, "it is no answer"


def test_a_cache_of_an_earlier_version_is_read(tmp_path):
    cache = CompletionCache(tmp_path / "c.sqlite", "run-1")
    key = stored(cache)
    cache._database.execute("DROP TABLE wasted")
    cache._database.execute("UPDATE completions SET completion = json_remove(completion, '$.refusal')")
    cache.close()
    again = CompletionCache(tmp_path / "c.sqlite", read_only=True)
    assert (again.get(key), again.spent("run-1")) == (ANSWER, Paid(0.5, 1, 7, 5))


def test_a_refusal_is_kept_and_survives_an_export(tmp_path):
    refused = Completion("", 7, 0, 0.0, "refused", refusal="status 403")
    first, second = (CompletionCache(tmp_path / name) for name in ("a.sqlite", "b.sqlite"))
    key, request = request_of(Two(), 0, MESSAGES, DecodeParameters())
    first.put(key, request, refused)
    second.add((str(n), row) for n, row in enumerate(first.rows()))
    assert second.get(key) == refused


WRITER = """
import sys
from dataclasses import replace
from trinity.pool.cache import CompletionCache, key_of
from trinity.pool.base import Completion
cache = CompletionCache(sys.argv[1])
number = int(sys.argv[2])
while True:
    request = {"model": "m", "number": number, "messages": [], "fill": "x" * 5000}
    cache.put(key_of(request), request, Completion(str(number)))
    print(number, flush=True)
    number += 1
"""


def test_a_writer_that_is_killed_loses_nothing_that_it_said_it_wrote(tmp_path):
    path = tmp_path / "c.sqlite"
    said: list[int] = []
    for round_ in range(12):
        command = [sys.executable, "-c", WRITER, str(path), str(1000 * round_)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            for _ in range(1 + 3 * round_):
                said.append(int(writer.stdout.readline()))
            os.kill(writer.pid, signal.SIGKILL)
            said += [int(line) for line in writer.stdout.read().split("\n")[:-1]]
        cache = CompletionCache(path)
        assert sqlite3.connect(path).execute("PRAGMA integrity_check").fetchone() == ("ok",)
        known = {int(row["completion"]["text"]) for row in cache.rows()}
        assert set(said) <= known
        cache.close()


def test_two_processes_write_to_one_file(tmp_path):
    path = tmp_path / "c.sqlite"
    commands = [[sys.executable, "-c", WRITER, str(path), str(start)] for start in (0, 10**6)]
    writers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for command in commands]
    for writer in writers:
        assert writer.stdout is not None
        for _ in range(50):
            assert writer.stdout.readline().strip()
    for writer in writers:
        writer.kill()
        writer.communicate()
    assert sum(1 for _ in CompletionCache(path).rows()) >= 100


def test_a_full_disk_is_a_sentence_and_what_was_kept_stays(tmp_path):
    path = tmp_path / "c.sqlite"
    cache = CompletionCache(path)
    key = stored(cache)
    pages = cache._database.execute("PRAGMA page_count").fetchone()[0]
    cache._database.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(UserError, match=r"Cannot write the cache .*full.*make room"):
        for number in range(100):
            stored(cache, text="x" * 5000, max_tokens=number + 1)
    assert cache.get(key) == ANSWER
    cache.close()
    assert CompletionCache(path).get(key) == ANSWER


@pytest.mark.parametrize("content", [b"", b"no database at all, but longer than a header" * 100, "other"])
def test_other_files_are_refused_and_left_alone(tmp_path, content):
    path = tmp_path / "c.sqlite"
    if content == "other":
        database = sqlite3.connect(path)
        database.execute("CREATE TABLE notes (text)")
        database.close()
    else:
        path.write_bytes(content)
    before = path.read_bytes()
    with pytest.raises(UserError, match=r"c.sqlite"):
        CompletionCache(path, read_only=content == b"")
    assert path.read_bytes() == before


def test_a_file_that_is_not_there_is_not_made_to_be_read(tmp_path):
    with pytest.raises(UserError, match="There is no cache"):
        CompletionCache(tmp_path / "none", read_only=True)
    assert list(tmp_path.iterdir()) == []


def test_exported_rows_are_taken_in_elsewhere(tmp_path):
    here, there = CompletionCache(tmp_path / "a"), CompletionCache(tmp_path / "b")
    keys = [stored(here, text=str(n), max_tokens=n + 1) for n in range(3)]
    rows = list(here.rows())
    assert there.add((f"row {i}", row) for i, row in enumerate(rows)) == (3, 0)
    assert there.add((f"row {i}", row) for i, row in enumerate(rows)) == (0, 3)
    assert [there.get(key) for key in keys] == [here.get(key) for key in keys]


@pytest.mark.parametrize(
    "change",
    [{"key": "0" * 64}, {"request": None}, {"completion": {"text": "2"}}, {"completion": {"text": 2}}],
)
def test_a_row_that_is_none_stops_an_import_whole(tmp_path, change):
    here, there = CompletionCache(tmp_path / "a"), CompletionCache(tmp_path / "b")
    stored(here, max_tokens=1)
    stored(here, max_tokens=2)
    good, bad = list(here.rows())
    with pytest.raises(UserError, match=r"row 1"):
        there.add(iter([("row 0", good), ("row 1", bad | change)]))
    assert list(there.rows()) == []


def test_prune_removes_what_is_named(tmp_path):
    cache = CompletionCache(tmp_path / "c")
    for agent in (0, 0, 1):
        key, request = request_of(Two(), agent, MESSAGES, DecodeParameters(max_tokens=agent + 1))
        cache.put(key, request, ANSWER)
    assert [(row["model"], row["answers"]) for row in cache.statistics()] == [("a", 1), ("b", 1)]
    assert cache.prune(before="2000-01-01") == 0
    assert cache.prune(model="a") == 1
    assert [row["model"] for row in cache.statistics()] == ["b"]
    assert cache.prune(before="9999-01-01") == 1


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda x: st.lists(x) | st.dictionaries(st.text(), x),
    )
)
def test_a_key_survives_a_round_trip(value):
    request = {"model": "m", "value": value}
    assert key_of(json.loads(json.dumps(request))) == key_of(request)
