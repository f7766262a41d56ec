"""What a forked process does: run a program against one test, answer calls, or make them."""

import atexit
import builtins
import contextlib
import importlib
import json
import os
import random
import sys
import threading
import types
from collections.abc import Callable, Sequence
from typing import Any

from trinity.rewards.child import unit
from trinity.rewards.child.channel import read_message, write_message
from trinity.rewards.child.plain import decode, encode

RESULT, REQUESTS, REPLIES = 3, 4, 5
_MAX_CALL = 1 << 26
_RECURSION = 50_000
_MAX_REASON = 200

# As LiveCodeBench gives it, in its order (lcb_runner/evaluation/testing_util.py): later names win.
_STARRED = (
    "string", "re", "datetime", "collections", "heapq", "bisect", "copy", "math", "random", "statistics",
    "itertools", "functools", "operator", "io", "sys", "json", "builtins", "typing",
)  # fmt: skip

Names = dict[str, Any]


def prepare() -> Names:
    """Set what LiveCodeBench sets. Returns the names that every program finds defined."""
    sys.setrecursionlimit(_RECURSION)
    sys.set_int_max_str_digits(0)
    modules = {name: importlib.import_module(name) for name in _STARRED}
    quitter = importlib.import_module("_sitebuiltins").Quitter
    for name in ("exit", "quit"):
        setattr(builtins, name, quitter(name, "Ctrl-D"))
    names: Names = {}
    for module in modules.values():
        public = getattr(module, "__all__", [name for name in vars(module) if not name.startswith("_")])
        names.update((name, getattr(module, name)) for name in public)
    return names | {name: module for name, module in modules.items() if name not in ("builtins", "typing")}


def do(job: dict[str, Any], names: Names) -> None:
    """Do the job and write to `RESULT` what came of it: {"value"}, {"passed"}, {} or {"error"}."""
    sys.argv = ["program.py"]
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    random.seed(0)
    process = os.getpid()
    try:
        outcome = _JOBS[job["kind"]](job, names | {"stdin": sys.stdin, "stdout": sys.stdout})
    except SystemExit:
        outcome = {"error": "the program exited"}
    except BaseException as error:
        outcome = {"error": reason(error)}
    if os.getpid() != process:  # a child that a test forked and that came back
        return
    data = json.dumps(outcome).encode()
    while data:
        data = data[os.write(RESULT, data) :]


def reason(error: BaseException) -> str:
    """The error in a line."""
    return f"{type(error).__name__}: {error}"[:_MAX_REASON]


def load(sources: Sequence[str], names: Names, module_name: str) -> Names:
    """Execute sources, one after the other, as one module, and return the names that they define.

    The names given lie behind the module's own, as builtins do: what stands in the prelude (`add`, `gcd`) is
    not defined by a program that forgot to.
    """
    module = types.ModuleType(module_name)
    sys.modules[module_name] = module
    namespace = vars(module)
    if names:
        namespace["__builtins__"] = vars(builtins) | names
    for source in sources:
        execute(source, namespace)
    return namespace


def execute(source: str, namespace: Names) -> None:
    exec(compile(source, "program.py", "exec", dont_inherit=True), namespace)


def _stdin(job: dict[str, Any], names: Names) -> dict[str, Any]:
    """A whole program, from its first line to its exit handlers."""
    with contextlib.suppress(SystemExit):
        load(job["program"], names, "__main__")
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    return {}


def _call(job: dict[str, Any], names: Names) -> dict[str, Any]:
    namespace = load(job["program"], names, "program")
    function: str = job["function"]
    solution: Any = namespace.get("Solution")
    is_method = isinstance(solution, type) and hasattr(solution, function)
    target = getattr(solution(), function) if is_method else namespace[function]
    arguments = [json.loads(line) for line in job["arguments"].split("\n") if line.strip()]
    return {"value": encode(target(*arguments))}


def _value(job: dict[str, Any], names: Names) -> dict[str, Any]:
    namespace = load([*job["program"], job["setup"]], names, "program")
    own = namespace | {"__builtins__": builtins}
    return {"value": encode(eval(compile(job["expression"], "test.py", "eval"), own))}


def _serve(job: dict[str, Any], names: Names) -> dict[str, Any]:
    """Answer calls of the program's functions until the grader hangs up."""
    namespace = load([*job["program"], job["setup"]], names, "program")
    with os.fdopen(REQUESTS, "rb", buffering=0) as requests, os.fdopen(REPLIES, "wb", buffering=0) as replies:
        while True:
            call = read_message(requests, _MAX_CALL)
            try:
                arguments, options = decode(call["arguments"])
                reply = {"value": encode(namespace[call["call"]](*arguments, **options))}
            except BaseException as error:
                kinds = [kind.__name__ for kind in type(error).__mro__ if kind.__module__ == "builtins"]
                reply = {"raised": kinds[0], "reason": reason(error)}
            write_message(replies, reply)


def _check(job: dict[str, Any], names: Names) -> dict[str, Any]:
    """Execute a benchmark's own test, whose calls of the program's functions are answered elsewhere."""
    requests, replies = os.fdopen(REQUESTS, "rb", buffering=0), os.fdopen(REPLIES, "wb", buffering=0)

    def calling(function: str) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            tree = encode((arguments, options))
            write_message(replies, {"call": function, "arguments": tree})
            reply = read_message(requests, _MAX_CALL)
            if "raised" in reply:
                kind = getattr(builtins, reply["raised"], None)
                known = isinstance(kind, type) and issubclass(kind, Exception)
                raise (kind if known else RuntimeError)(reply["reason"])  # type: ignore[misc]
            return decode(reply["value"])

        return call

    class Elsewhere(dict[str, Any]):
        """Builtins, beyond which a name is the program's."""

        def __missing__(self, name: str) -> Any:
            return calling(name)

    modules = {name: value for name, value in names.items() if isinstance(value, types.ModuleType)}
    namespace: Names = modules | {"__name__": "test", "__builtins__": Elsewhere(vars(builtins))}
    for source in job["sources"]:
        execute(source, namespace)
    if job["entry_point"]:
        function = calling(job["entry_point"])
        namespace[job["entry_point"]] = function
        namespace["check"](function)
    return {"passed": True}


def _unittest(job: dict[str, Any], names: Names) -> dict[str, Any]:
    nonce = job.pop("nonce")
    intact = unit.guard()
    namespace = load(job["program"], {}, "__test__")
    failure = unit.run(namespace, job["test"], job["entry_point"])
    if not intact():
        return {"error": "the program changed unittest or builtins"}
    return {"error": failure} if failure else {"passed": True, "nonce": nonce}


_JOBS: dict[str, Callable[[dict[str, Any], Names], dict[str, Any]]] = {
    "stdin": _stdin,
    "call": _call,
    "value": _value,
    "serve": _serve,
    "check": _check,
    "unittest": _unittest,
}
