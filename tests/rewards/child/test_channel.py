import os
import threading

import pytest

from trinity.rewards.child.channel import read_message, write_message


@pytest.fixture
def pipe():
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb", buffering=0) as source, os.fdopen(writing, "wb", buffering=0) as sink:
        yield source, sink


def test_messages_of_megabytes_keep_their_order(pipe):
    source, sink = pipe
    messages = [{"text": "é\ud800" * 500_000}, {}, {"n": 1}]
    thread = threading.Thread(target=lambda: [write_message(sink, message) for message in messages])
    thread.start()
    assert [read_message(source, 1 << 24) for _ in messages] == messages
    thread.join()


def test_a_reader_takes_no_more_than_its_message(pipe):
    source, sink = pipe
    write_message(sink, {"first": 1})
    write_message(sink, {"second": 2})
    assert read_message(source, 100) == {"first": 1}
    with os.fdopen(os.dup(source.fileno()), "rb", buffering=0) as another:
        assert read_message(another, 100) == {"second": 2}


@pytest.mark.parametrize(
    "body", [b"[]", b"null", b"{", b"\xff", b"[" * 50_000, b'{"a": 1}' * 20], ids=lambda body: repr(body[:9])
)
def test_anything_else_is_refused(pipe, body):
    source, sink = pipe
    sink.write(len(body).to_bytes(8, "big") + body)
    with pytest.raises(ValueError, match=r"\w"):
        read_message(source, 100 if len(body) < 50_000 else 1 << 20)


def test_an_end_is_an_end(pipe):
    source, sink = pipe
    sink.write((5).to_bytes(8, "big") + b"{")
    sink.close()
    with pytest.raises(EOFError):
        read_message(source, 100)
