"""`trinity-cache` as it is used."""

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest

from trinity.commands.cache import main
from trinity.pool.base import Completion, Paid
from trinity.pool.cache import CompletionCache, key_of


@pytest.fixture
def cache(tmp_path):
    path = tmp_path / "c.sqlite"
    store = CompletionCache(path)
    for number in range(4):
        request = {"model": "ab"[number % 2], "messages": [{"role": "user", "content": f"{number}?"}]}
        finish = "length" if number == 3 else "stop"
        store.put(key_of(request), request, Completion(str(number), 10, 20, 0.5, finish_reason=finish))
    store.close()
    return str(path)


def test_stats_are_by_model(cache, capsys):
    main(["stats", cache, "--json"])
    rows = json.loads(capsys.readouterr().out)
    assert rows[1] == {
        "model": "b",
        "answers": 2,
        "prompt_tokens": 20,
        "completion_tokens": 40,
        "usd": 1.0,
        "cut_by_length": 1,
    }
    main(["stats", cache])
    assert "cut by length" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["x.jsonl", "x.jsonl.gz"])
def test_export_and_import_are_a_round_trip(cache, tmp_path, capsys, name):
    target, other = str(tmp_path / name), str(tmp_path / "other.sqlite")
    main(["export", cache, target])
    main(["import", other, target])
    main(["import", other, target])
    assert "4 answers added" in capsys.readouterr().out
    assert list(CompletionCache(other).rows()) == list(CompletionCache(cache).rows())
    data = Path(target).read_bytes()
    lines = (gzip.decompress(data) if name.endswith("gz") else data).decode().splitlines()
    assert {row["completion"]["text"] for row in map(json.loads, lines)} == set("0123")
    assert not list(tmp_path.glob("*.part"))


def test_an_export_that_an_editor_saved_is_imported(cache, tmp_path, capsys):
    target, other = tmp_path / "x.jsonl", str(tmp_path / "other.sqlite")
    main(["export", cache, str(target)])
    target.write_bytes(b"\xef\xbb\xbf" + target.read_bytes().replace(b"\n", b"\r\n\r\n"))
    main(["import", other, str(target)])
    assert "4 answers added" in capsys.readouterr().out
    assert list(CompletionCache(other).rows()) == list(CompletionCache(cache).rows())


def test_an_export_may_leave_out_what_was_asked(cache, tmp_path):
    target, other = tmp_path / "x.jsonl", str(tmp_path / "other.sqlite")
    main(["export", cache, str(target), "--without_messages"])
    assert "0?" not in target.read_text()
    main(["import", other, str(target)])
    keys = [row["key"] for row in CompletionCache(cache).rows()]
    assert [CompletionCache(other).get(key) for key in keys] == [
        CompletionCache(cache).get(key) for key in keys
    ]


def test_stats_also_tell_what_was_paid_for_nothing(cache, capsys):
    main(["stats", cache])
    assert "could not be used" not in capsys.readouterr().out
    CompletionCache(cache).waste(Paid(0.25, 2, 14, 10))
    main(["stats", cache])
    assert "2 answers that could not be used cost 0.2500 usd more." in capsys.readouterr().out


def test_prune_removes_a_model(cache, capsys):
    main(["prune", cache, "--model", "a"])
    assert "2 answers removed" in capsys.readouterr().out
    assert [row["model"] for row in CompletionCache(cache).statistics()] == ["b"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["stats", "none.sqlite"], "There is no cache none.sqlite"),
        (["export", "none.sqlite", "x.jsonl"], "There is no cache"),
        (["prune", "none.sqlite", "--model", "a"], "There is no cache"),
        (["prune", "CACHE"], "give one of them"),
        (["prune", "CACHE", "--before", "yesterday"], "YYYY-MM-DD"),
        (["import", "CACHE", "none.jsonl"], "Cannot read"),
        (["import", "CACHE", "bad.jsonl"], "no exported completion"),
        (["export", "CACHE", "bad.jsonl"], "exists already"),
    ],
)
def test_mistakes_are_answered_by_a_sentence(cache, tmp_path, capsys, monkeypatch, arguments, sentence):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.jsonl").write_text('{"id": 1}\n')
    before = Path(cache).read_bytes()
    with pytest.raises(SystemExit) as ended:
        main([cache if argument == "CACHE" else argument for argument in arguments])
    assert ended.value.code == 2
    error = capsys.readouterr().err
    assert sentence in error
    assert "Traceback" not in error
    assert Path(cache).read_bytes() == before
    assert not (tmp_path / "none.sqlite").exists()


def test_the_script_is_installed(cache):
    script = Path(sys.executable).with_name("trinity-cache")
    done = subprocess.run([script, "stats", cache, "--json"], capture_output=True, text=True, check=True)
    assert len(json.loads(done.stdout)) == 2
