"""The process that the sandbox starts: it forks one process for each job and reports what became of it.

Programs run in the forked processes only. But for the two jobs that answer and make calls, these do not hold
the channel to the grader. No expected value of an input-output test or an assert ever comes here.
"""

import fcntl
import gc
import math
import os
import resource
import select
import signal
from io import FileIO
from typing import Any, NoReturn

from trinity.rewards.child import jobs
from trinity.rewards.child.channel import read_message, write_message
from trinity.rewards.child.seccomp import confine, shelter

_HIGH = 20  # the runner's own descriptors stay above those that a job gets
_OPEN_FILES = 128
_PROCESSES = 256
_STACK = 120 << 20  # how far a main thread's stack can grow that was started under the usual limit
_NOBODY = 65534
_MAX_REQUEST = 1 << 30


def main(limits: dict[str, Any]) -> None:
    """Do jobs until the grader hangs up.

    Args:
        limits: of each job: cpu_seconds, wall_seconds, memory_bytes, file_bytes; and drop_root, whether to
            become another user first.
    """
    if limits["drop_root"]:
        os.setgroups([])
        os.setgid(_NOBODY)
        os.setuid(_NOBODY)
    shelter()
    requests = os.fdopen(fcntl.fcntl(0, fcntl.F_DUPFD_CLOEXEC, _HIGH), "rb", buffering=0)
    replies = os.fdopen(fcntl.fcntl(1, fcntl.F_DUPFD_CLOEXEC, _HIGH), "wb", buffering=0)
    names = jobs.prepare()
    gc.freeze()
    silence = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(silence, fd)
    write_message(replies, {"ready": True})
    while True:
        try:
            job = read_message(requests, _MAX_REQUEST)
        except EOFError:
            return
        write_message(replies, _run(job, names, limits, (requests, replies)))


def _run(
    job: dict[str, Any], names: jobs.Names, limits: dict[str, Any], channel: tuple[FileIO, FileIO]
) -> dict[str, Any]:
    """Report of a job: how it ended ("" is well), CPU seconds, what it printed, what it reported itself."""
    given, output, result = files = [os.memfd_create(name) for name in ("input", "output", "result")]
    with os.fdopen(given, "wb", closefd=False) as file:
        file.write(job.pop("input", "").encode("utf-8", "surrogatepass"))
    os.lseek(given, 0, os.SEEK_SET)
    child = os.fork()
    if child == 0:
        _be_the_job(job, names, limits, files, channel)
    ending, cpu_seconds = _wait(child, limits)
    report = {
        "ending": ending,
        "cpu_seconds": cpu_seconds,
        "output": _content(output, limits["file_bytes"]),
        "result": _content(result, limits["file_bytes"]),
    }
    for fd in files:
        os.close(fd)
    return report


def _wait(child: int, limits: dict[str, Any]) -> tuple[str, float]:
    handle = os.pidfd_open(child)
    ended, _, _ = select.select([handle], [], [], limits["wall_seconds"])
    os.close(handle)
    if not ended:
        os.kill(child, signal.SIGKILL)
    _, status, usage = os.wait4(child, 0)
    cpu_seconds = usage.ru_utime + usage.ru_stime
    code = os.waitstatus_to_exitcode(status)
    if code == -signal.SIGXCPU or cpu_seconds > limits["cpu_seconds"]:
        return f"more than {limits['cpu_seconds']:g} s of CPU time", cpu_seconds
    if not ended:
        return f"more than {limits['wall_seconds']:g} s", cpu_seconds
    if code < 0:
        return f"killed by {signal.Signals(-code).name}", cpu_seconds
    return (f"exit status {code}" if code else ""), cpu_seconds


def _content(fd: int, limit: int) -> str:
    size = os.fstat(fd).st_size
    return "" if size > limit else os.pread(fd, size, 0).decode("utf-8", "replace")


def _be_the_job(
    job: dict[str, Any],
    names: jobs.Names,
    limits: dict[str, Any],
    files: list[int],
    channel: tuple[FileIO, FileIO],
) -> NoReturn:
    code = 1
    try:
        os.dup2(files[0], 0)
        os.dup2(files[1], 1)
        os.dup2(files[2], jobs.RESULT)
        first_unused = jobs.RESULT + 1
        if job["kind"] in ("serve", "check"):
            os.dup2(channel[0].fileno(), jobs.REQUESTS)
            os.dup2(channel[1].fileno(), jobs.REPLIES)
            first_unused = jobs.REPLIES + 1
        os.closerange(first_unused, os.sysconf("SC_OPEN_MAX"))
        shelter()
        alone = job["kind"] != "unittest"
        _limit(limits, alone)
        confine(alone)
        jobs.do(job, names)
        code = 0
    finally:
        os._exit(code)


def _limit(limits: dict[str, Any], alone: bool) -> None:
    cpu = math.ceil(limits["cpu_seconds"])
    bounds = {
        resource.RLIMIT_AS: (limits["memory_bytes"],) * 2,
        resource.RLIMIT_CPU: (cpu, cpu + 1),
        resource.RLIMIT_FSIZE: (limits["file_bytes"] + 1,) * 2,
        resource.RLIMIT_NOFILE: (_OPEN_FILES,) * 2,
        resource.RLIMIT_CORE: (0, 0),
        resource.RLIMIT_STACK: (_STACK,) * 2,
    }
    if not alone:
        bounds[resource.RLIMIT_NPROC] = (_PROCESSES,) * 2
    for kind, wanted in bounds.items():
        most = resource.getrlimit(kind)[1]
        soft, hard = (bound if most == resource.RLIM_INFINITY else min(bound, most) for bound in wanted)
        resource.setrlimit(kind, (soft, hard))
