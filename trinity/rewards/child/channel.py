"""Messages between the grader and the sandbox: JSON objects, each behind its length."""

import json
from collections.abc import Mapping
from typing import Any, Protocol

_PREFIX = 8


class Source(Protocol):
    """An unbuffered pipe: what it gives to one reader is not lost to the next."""

    def readinto(self, buffer: memoryview, /) -> int | None: ...


class Sink(Protocol):
    """A blocking pipe."""

    def write(self, data: memoryview, /) -> int | None: ...


def write_message(pipe: Sink, message: Mapping[str, Any]) -> None:
    """Raises OSError if the other side is gone, TypeError or ValueError for what JSON cannot say."""
    body = json.dumps(message).encode()
    data = memoryview(len(body).to_bytes(_PREFIX, "big") + body)
    while data:
        data = data[pipe.write(data) or 0 :]


def read_message(pipe: Source, max_bytes: int) -> dict[str, Any]:
    """Raises EOFError if the other side is gone, ValueError for anything but an object of this size."""
    size = int.from_bytes(_exactly(pipe, _PREFIX), "big")
    if size > max_bytes:
        raise ValueError(f"a message of {size} bytes, more than {max_bytes}")
    try:
        message = json.loads(_exactly(pipe, size))
    except RecursionError as error:
        raise ValueError("a message nested too deeply") from error
    if not isinstance(message, dict):
        raise ValueError("a message that is no object")
    return message


def _exactly(pipe: Source, size: int) -> bytearray:
    data = bytearray(size)
    filled = 0
    while filled < size:
        got = pipe.readinto(memoryview(data)[filled:])
        if not got:
            raise EOFError("the other side is gone")
        filled += got
    return data
