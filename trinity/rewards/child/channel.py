"""Messages between the grader and the sandbox: JSON objects, each behind its length."""

import json
from collections.abc import Mapping
from typing import Any, BinaryIO

_PREFIX = 8


def write_message(pipe: BinaryIO, message: Mapping[str, Any]) -> None:
    """Raises OSError if the other side is gone, TypeError or ValueError for what JSON cannot say."""
    body = json.dumps(message).encode()
    pipe.write(len(body).to_bytes(_PREFIX, "big") + body)
    pipe.flush()


def read_message(pipe: BinaryIO, max_bytes: int) -> dict[str, Any]:
    """Raises EOFError if the other side is gone, ValueError for anything but an object of at most max_bytes."""
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


def _exactly(pipe: BinaryIO, size: int) -> bytes:
    data = pipe.read(size)
    if len(data) < size:
        raise EOFError("the other side is gone")
    return data
