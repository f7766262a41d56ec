"""LiveCodeBench: programming contest problems with their tests (Jain et al. 2024, arXiv 2403.07974)."""

import base64
import binascii
import json
import pickletools
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trinity.errors import UserError
from trinity.tasks.jsonl import Row, read_rows
from trinity.tasks.splits import Named, Share, split_two
from trinity.tasks.task import Task, TaskSource, TaskSplits

REPOSITORY = "livecodebench/code_generation_lite"
_MAX_BYTES = 1 << 30
# What `pickle.dumps` writes for a single string, in every protocol.
_STRINGS = {"UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"}
_NEUTRAL = {"PROTO", "FRAME", "MEMOIZE", "PUT", "BINPUT", "LONG_BINPUT", "STOP"}


class LiveCodeBenchTasks(TaskSource):
    """Problems of LiveCodeBench's code_generation_lite files; the domain is the difficulty.

    A task's reference is JSON: {"tests": [{input, output, testtype: stdin | functional}], "fn_name"?}, public
    tests first. The files hold private tests as a compressed pickle of one string: it is read as a string and
    never unpickled. The tests stay in memory, decompressed.

    Args:
        train_files: by default V1's file, 400 problems.
        test_files: by default the file that V6 added, 175 problems.
        folder: holds the files; None fetches them from livecodebench/code_generation_lite on the hub.
        validation: how much of the training problems validates the mean theta instead: a float is a fraction,
            an int a count.
    """

    def __init__(
        self,
        train_files: tuple[str, ...] = ("test.jsonl",),
        test_files: tuple[str, ...] = ("test6.jsonl",),
        *,
        folder: str | None = None,
        validation: Share = 0.1,
    ) -> None:
        self.train_files = train_files
        self.test_files = test_files
        self.folder = folder
        self.validation = validation

    def load(self) -> TaskSplits:
        train, test = self._read(self.train_files), self._read(self.test_files)
        return split_two(train, test, validation=self.validation)

    def _read(self, files: Sequence[str]) -> list[Named]:
        return [(_task(row), row.where) for file in files for row in read_rows(self._path(file))]

    def _path(self, file: str) -> Path:
        if self.folder is not None:
            return Path(self.folder) / file
        from huggingface_hub import hf_hub_download  # seconds that a run on local files does not need

        try:
            return Path(hf_hub_download(REPOSITORY, file, repo_type="dataset"))
        except (OSError, ValueError) as error:
            raise UserError(
                f"Cannot fetch {file} of {REPOSITORY} ({error}): check the connection, or give"
                " a local folder."
            ) from error


def _task(row: Row) -> Task:
    try:
        tests = [*json.loads(row.text("public_test_cases")), *decode_tests(row.text("private_test_cases"))]
        metadata = json.loads(row.values.get("metadata") or "{}")
    except (ValueError, TypeError, RecursionError) as error:
        raise UserError(f"{row.where}: the tests cannot be read ({error}); fetch the file anew.") from error
    name = metadata.get("func_name") if isinstance(metadata, dict) else None
    reference = {"tests": [_test(test, name, row) for test in tests]}
    if not tests:
        raise UserError(f"{row.where}: there are no tests, so any program would pass; drop the row.")
    query = row.text("question_content")
    if row.values.get("starter_code"):
        query += f"\n\nStarter code:\n```python\n{row.text('starter_code')}\n```"
    return Task(
        id=row.text("question_id"),
        domain=row.text("difficulty"),
        query=query,
        reference=json.dumps(reference | ({"fn_name": name} if name else {})),
        grader="code",
        answer_format="code",
    )


def _test(test: Any, function: Any, row: Row) -> dict[str, str]:
    fields = ("input", "output", "testtype")
    if not (isinstance(test, dict) and all(isinstance(test.get(field), str) for field in fields)):
        raise UserError(f"{row.where}: a test is not {{input, output, testtype}}; fetch the file anew.")
    if test["testtype"] not in ("stdin", "functional"):
        raise UserError(f"{row.where}: a test's type is {test['testtype']!r}, not stdin or functional.")
    if test["testtype"] == "functional" and not isinstance(function, str):
        raise UserError(f"{row.where}: a functional test needs metadata's func_name, which is {function!r}.")
    return {field: test[field] for field in fields}


def decode_tests(text: str, max_bytes: int = _MAX_BYTES) -> list[Any]:
    """Private tests: JSON, or base64 of zlib of a pickled string of JSON.

    Raises ValueError if it is neither, or more than max_bytes when decompressed. Nothing is unpickled: the
    pickle's opcodes are read as data, and any that do more than state one string are refused.
    """
    if not text.lstrip().startswith("["):
        text = _pickled_string(_inflate(text, max_bytes))
    tests = json.loads(text)
    if not isinstance(tests, list):
        raise ValueError("the private tests are not a list")
    return tests


def _inflate(text: str, max_bytes: int) -> bytes:
    inflater = zlib.decompressobj()
    try:
        data = inflater.decompress(base64.b64decode(text, validate=True), max_bytes)
    except (binascii.Error, zlib.error) as error:
        raise ValueError(f"the private tests are neither JSON nor base64 of zlib: {error}") from error
    if not inflater.eof:
        raise ValueError(f"the private tests are cut off or larger than {max_bytes} bytes")
    return data


def _pickled_string(data: bytes) -> str:
    strings: list[str] = []
    for opcode, argument, _ in pickletools.genops(data):
        if opcode.name in _STRINGS and isinstance(argument, str):
            strings.append(argument)
        elif opcode.name not in _NEUTRAL:
            raise ValueError(f"the private tests are not a pickled string: opcode {opcode.name}")
    if len(strings) != 1:
        raise ValueError(f"the private tests pickle {len(strings)} strings, not one")
    return strings[0]
