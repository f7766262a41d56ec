"""A process that runs programs of LLMs, as the grader sees it: limits, messages, and its end."""

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from io import FileIO
from types import TracebackType
from typing import Any, Self

from trinity.errors import UserError
from trinity.rewards.child.channel import read_message, write_message

_START_SECONDS = 30.0
_GRACE_SECONDS = 1.0
_ESCAPED = 7  # how much longer than bytes of output their JSON gets, at most


@dataclass(frozen=True, slots=True)
class Limits:
    """What one test of one program may use.

    Attributes:
        cpu_seconds: CPU time, which decides.
        wall_seconds: time on the wall, which only stops programs that sleep. Leave room: on a busy machine a
            right program waits, too.
        memory_mb: address space.
        output_mb: what it prints, returns, or writes to one file.
    """

    cpu_seconds: float = 6.0
    wall_seconds: float = 30.0
    memory_mb: int = 2048
    output_mb: int = 16

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if value <= 0:
                raise UserError(f"The sandbox's {name} is {value}, but must be above 0; raise it.")
        if self.wall_seconds < self.cpu_seconds:
            raise UserError(
                f"The sandbox's wall_seconds, {self.wall_seconds:g}, is below its cpu_seconds, "
                f"{self.cpu_seconds:g}; raise it."
            )


class SandboxEnded(Exception):
    """The sandbox ended, or said what it should not. Once it was ready, that is the program's doing."""


class Sandbox:
    """One started sandbox, for one program. Use it in a `with` block, which waits until it is ready.

    Args:
        command: what to start; it answers messages on its standard input and output.
        environment: all of its environment.
        folder: where it starts.
        limits: of each job.
        jobs: how many jobs it gets at most: beyond their wall time in all, it is killed.
    """

    def __init__(
        self, command: list[str], environment: Mapping[str, str], folder: str, limits: Limits, jobs: int
    ) -> None:
        self._max_bytes = 2 * _ESCAPED * (limits.output_mb << 20)
        self._process = subprocess.Popen(  # noqa: S603
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(environment),
            cwd=folder,
            bufsize=0,
            start_new_session=True,
        )
        self._seconds = (limits.wall_seconds + _GRACE_SECONDS) * jobs
        self._stop = self._kill_after(_START_SECONDS)

    def __enter__(self) -> Self:
        """Raises RuntimeError with what it printed if it does not start."""
        try:
            self.receive()
        except BaseException as error:  # an interrupt, too, leaves nothing behind
            said = self._end().decode(errors="replace").strip()
            if not isinstance(error, SandboxEnded):
                raise
            raise RuntimeError(f"the sandbox did not start: {said or error}") from error
        self._stop.cancel()
        self._stop = self._kill_after(self._seconds)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _end(self) -> bytes:
        """Kill it and wait; what it printed on standard error."""
        self._stop.cancel()
        self.kill()
        return self._process.communicate()[1]

    def do(self, job: Mapping[str, Any]) -> dict[str, Any]:
        """Send a job and wait for the answer. Raises SandboxEnded."""
        self.send(job)
        return self.receive()

    def send(self, message: Mapping[str, Any]) -> None:
        """Raises SandboxEnded if nobody listens any more."""
        assert self._process.stdin is not None
        try:
            write_message(self._process.stdin, message)
        except OSError as error:
            raise SandboxEnded("the program ended its sandbox") from error

    def receive(self) -> dict[str, Any]:
        """The next message. Raises SandboxEnded if none comes, or something else."""
        assert isinstance(self._process.stdout, FileIO)
        try:
            return read_message(self._process.stdout, self._max_bytes)
        except (EOFError, OSError) as error:
            raise SandboxEnded("the program ended its sandbox") from error
        except ValueError as error:
            raise SandboxEnded(f"the sandbox sent {error}") from error

    def _kill_after(self, seconds: float) -> threading.Timer:
        timer = threading.Timer(seconds, self.kill)
        timer.daemon = True
        timer.start()
        return timer

    def kill(self) -> None:
        """End every process of the sandbox, whatever it is doing."""
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
